"""Noise sources of the private learners, and the guarantee of each."""

import math
import os
import secrets
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from torchonline.core.checks import finite_number, one_of, positive_integer, seed_number, sizes
from torchonline.privacy import discrete_gaussian

# One object for each process. A source that holds another object was made before a fork.
_process = object()


def _after_fork() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class NoiseSource:
    """Base class of the noise sources, which :func:`noise_source` makes and explains.

    Draws are float64 and on the CPU, and do not depend on ``torch.manual_seed``. A source draws the laws that it has methods for,
    and refuses the others with a ValueError. No noise is drawn twice. A copy, a deep copy, an unpickled source, and the source in
    the child of ``os.fork`` take new randomness from the operating system, and are not seeded. A source cannot see that an
    image of the whole process or machine is started twice: call :meth:`renew` there.
    """

    name = ""

    @property
    def is_seeded(self) -> bool:
        """Return whether the noise can be computed from a seed that somebody chose."""
        return False

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Draw from N(0, 1)."""
        self._refuse("normal")

    def normal_array(self, shape: tuple[int, ...]) -> np.ndarray:
        """Draw an array from N(0, 1), for fast small steps. The shape is not checked."""
        return self.normal(shape).numpy()

    def laplace(self, shape: tuple[int, ...]) -> Tensor:
        r"""Draw from the law with density :math:`e^{-|z|}/2`."""
        self._refuse("laplace")

    def gumbel(self, shape: tuple[int, ...]) -> Tensor:
        r"""Draw from the law with :math:`P(Z \le z) = \exp(-e^{-z})`."""
        self._refuse("gumbel")

    def generalized_gaussian(self, shape: tuple[int, ...], order: float) -> Tensor:
        r"""Draw vectors ``(..., d)`` of density :math:`\propto \exp(-\|z\|_r^2/2)`.

        r is ``order``, at least 1. The square of the norm has the law Gamma(d/2, scale 2), and is independent of the direction
        :math:`z/\|z\|_r`.
        """
        self._refuse("generalized_gaussian")

    def discrete_normal(self, shape: tuple[int, ...], sigma: int) -> Tensor:
        r"""Draw from the discrete Gaussian, exactly, int64.

        The law is :math:`P(Z = z) \propto e^{-z^2/(2\sigma^2)}` on the integers. ``sigma`` is from 1 to 2^40. The standard
        deviation is sigma to six digits, and in double precision from 2 on.
        """
        self._refuse("discrete_normal")

    def require(self, law: str) -> None:
        """Raise a ValueError if this source cannot draw a law, before anything is drawn."""
        if getattr(type(self), law) is getattr(NoiseSource, law):
            self._refuse(law)

    def renew(self) -> None:
        """Go on with new randomness from the operating system; a seed is forgotten."""

    def spawn(self) -> "NoiseSource":
        """Return a source of the same name with its own noise, seeded if this one is."""
        return type(self)()

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the kind of source in copies and pickles, and none of its randomness."""
        return type(self), ()

    def __repr__(self) -> str:
        return f"noise_source({self.name!r}{', seed=...' if self.is_seeded else ''})"

    def _refuse(self, law: str) -> NoReturn:
        able = [name for name, cls in _SOURCES.items() if getattr(cls, law) is not getattr(NoiseSource, law)]
        raise ValueError(f"noise_source: expected {' or '.join(map(repr, able))} to draw {law}, got {self.name!r}")


def noise_source(name: str | NoiseSource, seed: int | None = None) -> NoiseSource:
    r"""Return the noise source of that name.

    - ``"torch"``: an ordinary pseudorandom generator, NumPy's Philox with a key of 128 bits from the operating system. It draws
      ``normal``, ``laplace``, ``gumbel`` and ``generalized_gaussian``. Guarantee: the laws, in real arithmetic, for anybody who
      cannot tell the generator from chance.
    - ``"csprng"``: every bit comes from ``os.urandom`` and is kept nowhere. It draws ``normal``, ``laplace`` and ``gumbel``.
      Guarantee: the laws, in real arithmetic, as far as these bytes are random, but for a share of 2^-64 of each in the tails.
      Each number drawn costs an (epsilon, delta) guarantee up to :math:`(1 + e^\varepsilon)\,2^{-64}` of delta.
    - ``"discrete"``: ``discrete_normal`` only, in integer arithmetic on bytes from ``secrets``. Guarantee: the law to the last
      bit, as far as those bytes are random. Added to integers of l2 sensitivity s, it is :math:`s^2/(2\sigma^2)`-zCDP, as the
      continuous law would be. It is not mu-GDP, as the continuous law is: calibrate it by rho.

    The first two draw floating-point numbers. Which sums of them are possible can depend on the secret (Mironov, CCS 2012), and
    no theorem covers the last bits of a released sum. No source hides how long a draw takes. More: docs/privacy.md.

    Args:
        name: "torch", "csprng" or "discrete"; or a source, which is returned as it is, and has no seed.
        seed: of "torch" only, for tests: equal seeds give equal numbers, with the same version of NumPy. Whoever knows it removes
            the noise. None takes randomness from the operating system.

    Example:
        >>> noise_source("torch", seed=0)
        noise_source('torch', seed=...)

    Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020: the law, its privacy
    and Bernoulli trials of exp(-p). What differs: the proposals are those of Karney, "Sampling exactly from the normal
    distribution", ACM TOMS 42, 2016, Algorithm D.
    """
    if isinstance(name, NoiseSource):
        if seed is not None:
            raise ValueError("seed: expected None with a noise source, which has its own randomness, got a seed")
        return name
    name = one_of("noise_source", name, tuple(_SOURCES))
    if seed is None:
        return _SOURCES[name]()
    if name != "torch":
        raise ValueError(f"seed: expected None, because {name!r} draws from the operating system, got a seed")
    return _Pseudorandom(seed)


class _Pseudorandom(NoiseSource):
    name = "torch"

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            self.renew()
        else:
            # torch reads the seed -1 as 2^64 - 1, too.
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
        """Return the generator of this process."""
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
        # |e|^r has the law Gamma(1/r). A uniform number to the power r times Gamma(1 + 1/r) has this law, and does not underflow.
        # The uniform number is an odd multiple of 2^-53, so that no vector is 0.
        uniform = 2.0 * numbers.random(shape) - 1.0 + 2.0**-53
        e = uniform * numbers.standard_gamma(1.0 + 1.0 / order, shape) ** (1.0 / order)
        e /= np.abs(e).max(-1, keepdims=True)
        e /= (np.abs(e) ** order).sum(-1, keepdims=True) ** (1.0 / order)
        square = 2.0 * numbers.standard_gamma(0.5 * shape[-1], shape[:-1])
        return torch.from_numpy(np.sqrt(square)[..., None] * e)


class _Csprng(NoiseSource):
    """The source "csprng": inverse distribution functions, from the nearer tail."""

    name = "csprng"

    def _tails(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Draw tails, True for the upper, and their probabilities, in (0, 1/2]."""
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
    name = "discrete"

    def discrete_normal(self, shape: tuple[int, ...], sigma: int) -> Tensor:
        shape, sigma = sizes("shape", shape), positive_integer("sigma", sigma)
        if sigma > 2**40:
            raise ValueError(f"sigma: expected an integer from 1 to 2^40, got {sigma}")
        return torch.from_numpy(discrete_gaussian.draws(math.prod(shape), sigma).reshape(shape))


_SOURCES = {source.name: source for source in (_Pseudorandom, _Csprng, _Discrete)}
