"""Where the noise of private learners comes from, and what each source is good for."""

import math
import os
import secrets
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from torchonline.core.checks import finite_number, one_of, positive_integer, seed_number, sizes

# One object for each process: a source that knows another one was made before a fork.
_process = object()


def _after_fork() -> None:
    """In the child of a fork: a new process."""
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class NoiseSource:
    r"""Base of the noise sources, which :func:`noise_source` makes and explains.

    Draws are on the CPU and do not depend on ``torch.manual_seed``: the learner puts them where its state is. A source draws the
    laws that it has methods for, and refuses the others with a ValueError.

    No noise is drawn twice. A copy, a deep copy, what is unpickled, and the source in the child of ``os.fork`` draw new
    randomness from the operating system, and are not seeded. An image of the whole process or machine that is started twice
    cannot be seen from inside: :meth:`renew` there.

    Attributes:
        name: what :func:`noise_source` knows it by.
    """

    name = ""

    @property
    def is_seeded(self) -> bool:
        """Whether the noise can be computed from a seed that somebody chose."""
        return False

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Draws of N(0, 1), float64."""
        self._refuse("normal")

    def normal_array(self, shape: tuple[int, ...]) -> np.ndarray:
        """:meth:`normal` as an array, with no check of the shape: for small steps, which are nothing but calls."""
        return self.normal(shape).numpy()

    def laplace(self, shape: tuple[int, ...]) -> Tensor:
        r"""Draws of the law with density :math:`e^{-|z|}/2`, float64."""
        self._refuse("laplace")

    def gumbel(self, shape: tuple[int, ...]) -> Tensor:
        r"""Draws of the law with :math:`P(Z \le z) = \exp(-e^{-z})`, float64."""
        self._refuse("gumbel")

    def generalized_gaussian(self, shape: tuple[int, ...], order: float) -> Tensor:
        r"""Draws of vectors, ``(..., d)``, with density proportional to :math:`\exp(-\|z\|_r^2/2)`, float64.

        The square of the norm has the law Gamma(d/2, scale 2), and is independent of the direction :math:`z/\|z\|_r`. At scale
        :math:`\sigma`, :math:`z` times :math:`\sigma`, that is Gamma(d/2, scale :math:`2\sigma^2`). For r = 2 this is N(0, I).

        Args:
            shape: at least one size; the last one is d.
            order: r, at least 1.
        """
        self._refuse("generalized_gaussian")

    def discrete_normal(self, shape: tuple[int, ...], sigma: int) -> Tensor:
        r"""Draws of the discrete Gaussian, :math:`P(Z = z) \propto e^{-z^2/(2\sigma^2)}` on the integers, exactly; int64.

        Args:
            shape: of the result.
            sigma: from 1 to 2^40. The standard deviation is sigma to six digits, and in double precision from 2 on.
        """
        self._refuse("discrete_normal")

    def require(self, law: str) -> None:
        """Refuse a law that this source cannot draw, by name, before anything is drawn."""
        if getattr(type(self), law) is getattr(NoiseSource, law):
            self._refuse(law)

    def renew(self) -> None:
        """Go on with new randomness from the operating system; a seed is forgotten."""

    def spawn(self) -> "NoiseSource":
        """A source of the same name with noise of its own; children of a seeded one are seeded, each with its own."""
        return type(self)()

    def __reduce__(self) -> tuple[Any, ...]:
        """What copies and pickles keep: the kind of source, and none of its randomness."""
        return type(self), ()

    def __repr__(self) -> str:
        return f"noise_source({self.name!r}{', seed=...' if self.is_seeded else ''})"

    def _refuse(self, law: str) -> NoReturn:
        able = [name for name, cls in _SOURCES.items() if getattr(cls, law) is not getattr(NoiseSource, law)]
        raise ValueError(f"noise_source: expected {' or '.join(map(repr, able))} to draw {law}, got {self.name!r}")


def noise_source(name: str, seed: int | None = None) -> NoiseSource:
    r"""The source of noise of that name, ready to draw.

    - ``"torch"``: an ordinary pseudorandom generator, as torch programs have. It draws ``normal``, ``laplace``, ``gumbel`` and
      ``generalized_gaussian``. Its claim: the laws, in real arithmetic, for whoever cannot tell the generator from chance. It is
      NumPy's Philox under a key of 128 bits from the operating system, a generator that is not made to withstand attacks. (That
      of torch on the CPU has 2^32 streams, which can be searched, and of a hundred thousand two are likely the same.) Who
      knows the seed, if there is one, removes the noise.
    - ``"csprng"``: every bit from ``os.urandom``, kept nowhere; ``normal``, ``laplace`` and ``gumbel``, by the inverses of their
      distribution functions. Its claim: in real arithmetic, and as far as the operating system's bytes are random, noise that
      was seen says nothing about other noise. Of each law 2^-64 = 5.4e-20 is cut off in the tails, beyond 9.16 for ``normal``,
      44.4 for ``laplace``, -3.81 and 45.1 for ``gumbel``. Each number drawn thereby costs an (epsilon, delta) guarantee up to
      :math:`(1 + e^\varepsilon)\,2^{-64}` of delta: at epsilon 1, 2.0e-10 in a million rounds of a thousand dimensions.
    - ``"discrete"``: ``discrete_normal`` alone, in integer arithmetic on bytes from ``secrets``. Its claim: as far as those are
      random, the law to the last bit. Added to integers of l2 sensitivity s it is :math:`s^2/(2\sigma^2)`-zCDP, as the continuous
      law would be; that law's curve, mu-GDP, it does not have: calibrate by rho.

    The first two are floating-point numbers, and which sums of them are possible can depend on the secret (Mironov, CCS 2012):
    no theorem covers the last bits of a sum that is released. In no source does the time that a draw takes keep a secret.

    Args:
        name: "torch", "csprng" or "discrete".
        seed: of "torch" alone, for tests: the same numbers again, with the same version of NumPy. They are not those of other
            generators with that seed. None takes randomness from the operating system.

    Example:
        >>> noise_source("csprng").normal((2, 3)).shape
        torch.Size([2, 3])
        >>> source = noise_source("torch", seed=0)
        >>> torch.equal(source.gumbel((5,)), noise_source("torch", seed=0).gumbel((5,)))
        True
        >>> source
        noise_source('torch', seed=...)
        >>> noise_source("discrete").discrete_normal((2,), sigma=2**20).dtype
        torch.int64

    Reference:
        Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox). Canonne, Kamath and Steinke, "The discrete
        Gaussian for differential privacy", NeurIPS 2020: the law, its privacy and Bernoulli trials of exp(-p). Karney,
        "Sampling exactly from the normal distribution", ACM TOMS 42, 2016, Algorithm D: what is proposed here in their place,
        because its numbers stay below 2^63 and many are drawn at a time.
    """
    name = one_of("noise_source", name, tuple(_SOURCES))
    if seed is None:
        return _SOURCES[name]()
    if name != "torch":
        raise ValueError(f"seed: expected None, because {name!r} draws from the operating system, got a seed")
    return _Pseudorandom(seed)


class _Pseudorandom(NoiseSource):
    """The source "torch"."""

    name = "torch"

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            self.renew()
        else:
            # As torch reads seeds: -1 is 2^64 - 1.
            self._start(np.random.SeedSequence(seed_number(seed) % 2**64), True)

    def _start(self, sequence: np.random.SeedSequence, seeded: bool) -> None:
        self._sequence, self._seeded, self._process = sequence, seeded, _process
        self._numbers = np.random.Generator(np.random.Philox(sequence))

    def renew(self) -> None:
        self._start(np.random.SeedSequence(secrets.randbits(128)), False)

    @property
    def is_seeded(self) -> bool:
        return self._seeded and self._process is _process

    def spawn(self) -> NoiseSource:
        child = type(self)()
        if self.is_seeded:
            child._start(self._sequence.spawn(1)[0], True)
        return child

    def _generator(self) -> np.random.Generator:
        """The generator of this process."""
        if self._process is not _process:
            self.renew()
        return self._numbers

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(self.normal_array(sizes("shape", shape)))

    def normal_array(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._generator().standard_normal(shape)

    def laplace(self, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(self._generator().laplace(size=sizes("shape", shape)))

    def gumbel(self, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(self._generator().gumbel(size=sizes("shape", shape)))

    def generalized_gaussian(self, shape: tuple[int, ...], order: float) -> Tensor:
        shape, order = sizes("shape", shape), finite_number("order", order)
        if not shape:
            raise ValueError("shape: expected at least one size, got ()")
        if order < 1.0:
            raise ValueError(f"order: expected a number of at least 1, got {order}")
        numbers = self._generator()
        # |e|^r ~ Gamma(1/r), as a uniform number to the r times Gamma(1 + 1/r): nothing underflows. An odd multiple of 2^-53, so
        # that no vector is 0.
        uniform = 2.0 * numbers.random(shape) - 1.0 + 2.0**-53
        e = uniform * numbers.standard_gamma(1.0 + 1.0 / order, shape) ** (1.0 / order)
        e /= np.abs(e).max(-1, keepdims=True)
        e /= (np.abs(e) ** order).sum(-1, keepdims=True) ** (1.0 / order)
        square = 2.0 * numbers.standard_gamma(0.5 * shape[-1], shape[:-1])
        return torch.from_numpy(np.sqrt(square)[..., None] * e)


class _Csprng(NoiseSource):
    """The source "csprng": inverse distribution functions, from whichever tail is nearer."""

    name = "csprng"

    def _tails(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Which tail, the upper one if True, and its probability (k + 1/2) 2^-64, k < 2^63: above 0, and at most 1/2."""
        shape = sizes("shape", shape)
        words = np.frombuffer(os.urandom(8 * math.prod(shape)), dtype=np.int64)
        tail = ((words & (2**63 - 1)) + 0.5) * 2.0**-64
        return torch.from_numpy(words < 0).reshape(shape), torch.from_numpy(tail).reshape(shape)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        upper, tail = self._tails(shape)
        z = torch.special.ndtri(tail)
        return torch.where(upper, -z, z)

    def laplace(self, shape: tuple[int, ...]) -> Tensor:
        upper, tail = self._tails(shape)
        z = torch.log(2.0 * tail)
        return torch.where(upper, -z, z)

    def gumbel(self, shape: tuple[int, ...]) -> Tensor:
        upper, tail = self._tails(shape)
        return -torch.log(torch.where(upper, -torch.log1p(-tail), -torch.log(tail)))


class _Discrete(NoiseSource):
    """The source "discrete"."""

    name = "discrete"

    def discrete_normal(self, shape: tuple[int, ...], sigma: int) -> Tensor:
        shape, sigma = sizes("shape", shape), positive_integer("sigma", sigma)
        if sigma > 2**40:
            raise ValueError(f"sigma: expected an integer from 1 to 2^40, got {sigma}")
        count, z = math.prod(shape), np.empty(0, dtype=np.int64)
        while z.size < count:
            # About half of them are kept.
            z = np.concatenate([z, _proposals(2 * (count - z.size) + 8, sigma)])
        return torch.from_numpy(z[:count].reshape(shape))


# A probability, or a factor of one: integers from 0 to the denominator, and the denominators.
_Fraction = tuple[np.ndarray, np.ndarray]


def _proposals(count: int, sigma: int) -> np.ndarray:
    r"""Independent draws of the discrete Gaussian, as many as come of ``count`` proposals.

    The absolute value is k sigma + j, 0 <= j < sigma, and with x = j / sigma its weight is :math:`e^{-(k+x)^2/2} = e^{-k/2}\,
    e^{-k(k-1)/2}\,e^{-x(2k+x)/2}`. The first factor is a geometric law of k, j is uniform, and the others are probabilities.
    """
    one, two = np.ones(count, dtype=np.int64), np.full(count, 2)
    k, alive = np.zeros(count, dtype=np.int64), np.arange(count)
    while alive.size:
        alive = alive[_with_probability_exp((one[alive], two[alive]))]
        k[alive] += 1
    k = k[_all_succeed(k * (k - 1), (one, two))]
    scale = np.full(k.size, sigma)
    j = _below(scale)
    # x (2k + x) / 2 is k + 1 times the product of j / sigma and (2k + x) / (2k + 2).
    kept = _all_succeed(k + 1, (j, scale), (2 * k * sigma + j, (2 * k + 2) * sigma))
    z = (k * sigma + j)[kept]
    negative = _below(np.full(z.size, 2)) == 1
    # There is one zero, not two.
    return np.where(negative, -z, z)[(z > 0) | ~negative]


def _all_succeed(trials: np.ndarray, *factors: _Fraction) -> np.ndarray:
    """Whether so many trials all succeed, each with probability exp(-p), p the product of the factors."""
    which = np.repeat(np.arange(trials.size), trials)
    succeeds = _with_probability_exp(*((num[which], den[which]) for num, den in factors))
    kept = np.ones(trials.size, dtype=bool)
    kept[which[~succeeds]] = False
    return kept


def _with_probability_exp(first: _Fraction, *others: _Fraction) -> np.ndarray:
    """True with probability exp(-p), p the product of the factors, at most 1.

    Trials of probability p, p/2, p/3, ... until one fails: the first to fail has an odd number with probability exp(-p).
    """
    kept, alive, i = np.zeros(first[0].size, dtype=bool), np.arange(first[0].size), 0
    while alive.size:
        i += 1
        hit = _below(first[1][alive] * i) < first[0][alive]
        for num, den in others:
            hit &= _below(den[alive]) < num[alive]
        kept[alive[~hit]] = i % 2 == 1
        alive = alive[hit]
    return kept


def _below(bounds: np.ndarray) -> np.ndarray:
    """Uniform integers from 0 to each bound - 1: 63 random bits modulo the bound, drawn again below 2^63 mod bound."""
    words, again = np.empty_like(bounds), np.arange(bounds.size)
    refused = ((2**63 - 1) % bounds + 1) % bounds
    while again.size:
        words[again] = np.frombuffer(secrets.token_bytes(8 * again.size), dtype=np.int64) & (2**63 - 1)
        again = again[words[again] < refused[again]]
    return words % bounds


_SOURCES = {source.name: source for source in (_Pseudorandom, _Csprng, _Discrete)}
