"""Noise sources of the private learners, and the guarantee of each."""

import math
import os
import secrets
import warnings
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import as_array
from torchonline.core.checks import finite_number, one_of, positive_integer, seed_number, sizes
from torchonline.core.write_once import WriteOnce
from torchonline.privacy import discrete_gaussian
from torchonline.privacy.exact_draws import Probability, highest, rounded_normal

# Releases are multiples of a power of two, between 1/32 and 1/16 of the standard deviation of the noise.
FINENESS = 5
# A floating-point sum decides a rounding if it is farther than SURE from a midpoint, in units of the grid, and the tail of the
# draw has a probability of at least COMMON_TAIL. Its error is about a thousand times smaller (docs/privacy_proofs.md).
SURE, COMMON_TAIL = 2.0**-32, 2.0**-25
# A floating-point score is the highest if all others are lower by more than this fraction of all numbers that are added.
CLOSE = 2.0**-40
SMALLEST_SCALE = 2.0**-900  # of the noise of a release
FIRST_BIT, REST = np.uint64(2**63), np.uint64(2**63 - 1)

# One object for each process. A source that holds another object was made before a fork.
_process = object()


def this_process() -> object:
    """Return an object that identifies this process, and changes after a fork."""
    return _process


def _after_fork() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class NoiseSource(WriteOnce):
    """Base class of the noise sources. :func:`noise_source` makes and explains them.

    Draws are float64 and on the CPU, and do not depend on ``torch.manual_seed``. A source draws the laws whose methods it
    overrides; the other methods raise a ValueError. No noise is drawn twice. A copy, a deep copy, an unpickled source, and the
    source in the child of ``os.fork`` take fresh randomness from the operating system, and are not seeded. A source cannot detect
    that a snapshot of the whole process or machine is started twice: call :meth:`renew` there.
    """

    name = ""

    @property
    def is_seeded(self) -> bool:
        """Return whether the noise can be computed from a seed that somebody chose."""
        return False

    def add_normal(self, values: Any, scale: float) -> Any:
        r"""Release secret numbers with noise: values + scale N(0, 1), rounded to a grid.

        The grid is a power of two, between 1/32 and 1/16 of the scale. The result has exactly the law of the rounded sum of real
        numbers, so its last bits reveal nothing more. ``values`` and the result are float64 tensors or arrays of any shape.
        """
        self._refuse("add_normal")

    def highest(self, scores: Tensor, scale: float, law: str) -> Tensor:
        r"""Choose the highest of secret scores with noise: ``(..., m)`` to ``(...)``.

        The result is the int64 index of the largest of scores + scale Z, with Z from ``law``, ``"laplace"`` or ``"gumbel"``. It
        has exactly the law of the index for real numbers. The scores are float64.
        """
        self._refuse("highest")

    def happens(self, shape: tuple[int, ...], probability: float) -> Tensor:
        """Draw independent events, bool, each with this probability.

        The actual probability is never above it, and below it by at most 2^-64.
        """
        self._refuse("happens")

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Draw from N(0, 1), not for release: see ``add_normal``."""
        self._refuse("normal")

    def laplace(self, shape: tuple[int, ...]) -> Tensor:
        r"""Draw from the law with density :math:`e^{-|z|}/2`, not for release."""
        self._refuse("laplace")

    def gumbel(self, shape: tuple[int, ...]) -> Tensor:
        r"""Draw from the law with :math:`P(Z \le z) = \exp(-e^{-z})`, not for release."""
        self._refuse("gumbel")

    def generalized_gaussian(self, shape: tuple[int, ...], order: float) -> Tensor:
        r"""Draw vectors ``(..., d)`` of density :math:`\propto \exp(-\|z\|_r^2/2)`.

        r is ``order``, at least 1. The square of the norm has the law Gamma(d/2, scale 2), and is independent of the direction
        :math:`z/\|z\|_r`. A sum with this noise must be rounded before release, and nothing is proved about its last bits.
        """
        self._refuse("generalized_gaussian")

    def discrete_normal(self, shape: tuple[int, ...], sigma: int) -> Tensor:
        r"""Draw from the discrete Gaussian, exactly, int64.

        The law is :math:`P(Z = z) \propto e^{-z^2/(2\sigma^2)}` on the integers. ``sigma`` is from 1 to 2^40. The standard
        deviation equals sigma to six digits, and to double precision for a sigma of at least 2.
        """
        self._refuse("discrete_normal")

    def require(self, law: str) -> None:
        """Raise a ValueError if this source cannot draw a law, before anything is drawn."""
        if getattr(type(self), law) is getattr(NoiseSource, law):
            self._refuse(law)

    def renew(self) -> None:
        """Take fresh randomness from the operating system, and forget any seed."""

    def spawn(self) -> "NoiseSource":
        """Return a source of the same name with its own noise, seeded if this one is."""
        return type(self)()

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep only the kind of source in copies and pickles, not its randomness."""
        return type(self), ()

    def __repr__(self) -> str:
        return f"noise_source({self.name!r}{', seed=...' if self.is_seeded else ''})"

    def _refuse(self, law: str) -> NoReturn:
        able = [name for name, cls in _SOURCES.items() if getattr(cls, law) is not getattr(NoiseSource, law)]
        raise ValueError(f"noise_source: expected {' or '.join(map(repr, able))} to draw {law}, got {self.name!r}")


def noise_source(name: str | NoiseSource, seed: int | None = None) -> NoiseSource:
    r"""Return the noise source called ``name``.

    - ``"torch"``: an ordinary pseudorandom generator, NumPy's Philox with a key of 128 bits from the operating system. It
      releases sums with normal noise, choices with Gumbel and Laplace noise, and draws ``generalized_gaussian``. Guarantee:
      releases have their laws to the last bit, for anybody who cannot distinguish the generator from true randomness.
    - ``"csprng"``: every bit comes from ``os.urandom`` and is not stored. It does the same, except for ``generalized_gaussian``.
      Guarantee: releases have their laws to the last bit, as far as these bytes are random.
    - ``"discrete"``: ``discrete_normal`` only, in integer arithmetic on bytes from ``secrets``. Guarantee: the law to the last
      bit, as far as these bytes are random. Added to integers of l2 sensitivity s, the noise is :math:`s^2/(2\sigma^2)`-zCDP,
      like continuous noise. Unlike continuous noise it is not exactly :math:`s/\sigma`-GDP; for a :math:`\sigma` of at least
      :math:`2^{20}` it is :math:`(1 + 10^{-8})s/\sigma`-GDP (docs/privacy_proofs.md).

    The set of possible floating-point sums can depend on the secret (Mironov, CCS 2012). The first two sources therefore round
    sums to a grid, exactly as if they were real numbers. No source hides how long a draw takes. More: docs/privacy_proofs.md.

    Args:
        name: "torch", "csprng" or "discrete"; or a source, which is returned unchanged and takes no ``seed``.
        seed: of "torch" only, for tests, with a warning. Equal seeds give equal numbers with the same version of NumPy. Anybody
            who knows or guesses the seed can remove the noise. None takes randomness from the operating system.

    Example:
        >>> noise_source("torch", seed=0)
        noise_source('torch', seed=...)

    Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020: the law, its privacy
    and Bernoulli trials of exp(-p). What differs: the proposals are from Karney, "Sampling exactly from the normal distribution",
    ACM TOMS 42, 2016, Algorithm D.
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
    warnings.warn(
        "seed: expected None outside of tests; anybody who knows or guesses it removes the noise, so privacy_spent is infinite",
        stacklevel=2,
    )
    return _Pseudorandom(seed)


def grid_of(scale: float) -> float:
    """Return a release's grid: a power of two, between 1/32 and 1/16 of the scale."""
    return math.ldexp(1.0, math.frexp(scale)[1] - FINENESS)


class _Continuous(NoiseSource):
    """Base class of the real-valued sources, which transform uniform 64-bit words.

    A word's highest bit says which tail of a law the number is in. The other bits are the first bits of the tail's probability.
    """

    def _words(self, count: int) -> np.ndarray:
        """Draw uniform integers, uint64, ``(count)``."""
        raise NotImplementedError

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(self._numbers("normal", sizes("shape", shape))[0])

    def laplace(self, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(self._numbers("laplace", sizes("shape", shape))[0])

    def gumbel(self, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(self._numbers("gumbel", sizes("shape", shape))[0])

    def _numbers(self, law: str, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        """Draw numbers. Return them, their words, tails, and whether these are upper."""
        words = self._words(math.prod(shape))
        upper = words >= FIRST_BIT
        tail = ((words & REST) + 0.5) * 2.0**-64
        numbers = _LAWS[law](tail, upper), words, tail, upper
        return numbers if len(shape) == 1 else tuple(values.reshape(shape) for values in numbers)

    def add_normal(self, values: Any, scale: float) -> Any:
        if isinstance(values, Tensor):
            released = self.add_normal(as_array(values.cpu()), scale)
            return torch.from_numpy(released).to(values.device)
        if not SMALLEST_SCALE <= scale <= 1.0 / SMALLEST_SCALE:
            raise ValueError(f"scale: expected a number from {SMALLEST_SCALE:.3g} to its inverse, got {scale}")
        shape = values.shape
        values = values.reshape(-1)
        grid = grid_of(scale)
        exact, ratio = values / grid, scale / grid
        whole = np.rint(exact)
        offset = exact - whole  # exact, as the two lines before are
        z, words, tail, upper = self._numbers("normal", values.shape)
        moved = offset + ratio * z
        steps = np.rint(moved)
        margin = abs(moved - steps)
        if margin.max(initial=0.0) > 0.5 - SURE or tail.min(initial=0.5) < COMMON_TAIL:
            for place in np.flatnonzero((margin > 0.5 - SURE) | (tail < COMMON_TAIL)):
                sign = -1.0 if upper[place] else 1.0  # by symmetry all are lower tails
                probability = Probability(int(words[place] & REST), self._word)
                found = rounded_normal(sign * float(offset[place]), ratio, int(sign * steps[place]), probability)
                steps[place] = sign * found
        return ((whole + steps) * grid + 0.0).reshape(shape)  # no negative zeros

    def highest(self, scores: Tensor, scale: float, law: str) -> Tensor:
        shape = scores.shape[:-1]
        values = as_array(scores.cpu()).reshape(-1, scores.size(-1))
        noise, words, tail, upper = self._numbers(one_of("law", law, ("gumbel", "laplace")), values.shape)
        added = scale * noise
        noisy = values + added
        # More than the errors of the noise, of the sum, and of the unknown bits of the tail.
        error = CLOSE * (scale + abs(added) + abs(values)) + scale * (2.0**-63 / tail)
        best = noisy.argmax(-1)
        may_win = noisy + error >= (noisy - error).max(-1, keepdims=True)
        if (may_win.sum(-1) > 1).any():
            for place in np.flatnonzero(may_win.sum(-1) > 1):
                (able,) = np.nonzero(may_win[place])
                tails = [(Probability(int(words[place][i] & REST), self._word), bool(upper[place][i])) for i in able]
                best[place] = able[highest(values[place][able].tolist(), scale, law, tails)]
        return torch.from_numpy(best).reshape(shape).to(scores.device)

    def happens(self, shape: tuple[int, ...], probability: float) -> Tensor:
        count = math.prod(sizes("shape", shape))
        limit = min(int(probability * 2.0**64), 2**64 - 1)
        return torch.from_numpy(self._words(count) < np.uint64(limit)).reshape(shape)

    def _word(self) -> int:
        return int(self._words(1)[0])


def _normal_of(tail: np.ndarray, upper: np.ndarray) -> np.ndarray:
    z = torch.special.ndtri(torch.from_numpy(tail)).numpy()
    return np.negative(z, out=z, where=upper)


def _laplace_of(tail: np.ndarray, upper: np.ndarray) -> np.ndarray:
    z = np.log(2.0 * tail)
    return np.negative(z, out=z, where=upper)


def _gumbel_of(tail: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return -np.log(np.where(upper, -np.log1p(-tail), -np.log(tail)))


_LAWS = {"normal": _normal_of, "laplace": _laplace_of, "gumbel": _gumbel_of}


class _Pseudorandom(_Continuous):
    name = "torch"

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            self.renew()
        else:
            # torch reads the seed -1 as 2^64 - 1, too.
            self._start(np.random.SeedSequence(seed_number(seed) % 2**64), True)

    def _start(self, sequence: np.random.SeedSequence, seeded: bool) -> None:
        self._sequence, self._seeded, self._process = sequence, seeded, _process
        self._generator = np.random.Generator(np.random.Philox(sequence))

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

    def _own_generator(self) -> np.random.Generator:
        """Return the generator of this process."""
        if self._process is not _process:
            self.renew()
        return self._generator

    def _words(self, count: int) -> np.ndarray:
        raw: Any = self._own_generator().bit_generator
        return raw.random_raw(count)

    def generalized_gaussian(self, shape: tuple[int, ...], order: float) -> Tensor:
        shape, order = sizes("shape", shape), finite_number("order", order)
        if not shape:
            raise ValueError("shape: expected at least one size, got ()")
        if order < 1.0:
            raise ValueError(f"order: expected a number of at least 1, got {order}")
        numbers = self._own_generator()
        # |e|^r has the law Gamma(1/r). A uniform number to the power r times Gamma(1 + 1/r) has this law, and does not underflow.
        # The uniform number is an odd multiple of 2^-53, so that no vector is 0.
        uniform = 2.0 * numbers.random(shape) - 1.0 + 2.0**-53
        e = uniform * numbers.standard_gamma(1.0 + 1.0 / order, shape) ** (1.0 / order)
        e /= np.abs(e).max(-1, keepdims=True)
        e /= (np.abs(e) ** order).sum(-1, keepdims=True) ** (1.0 / order)
        square = 2.0 * numbers.standard_gamma(0.5 * shape[-1], shape[:-1])
        return torch.from_numpy(np.sqrt(square)[..., None] * e)


class _Csprng(_Continuous):
    """The source "csprng"."""

    name = "csprng"

    def _words(self, count: int) -> np.ndarray:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


class _Discrete(NoiseSource):
    name = "discrete"

    def discrete_normal(self, shape: tuple[int, ...], sigma: int) -> Tensor:
        shape, sigma = sizes("shape", shape), positive_integer("sigma", sigma)
        if sigma > 2**40:
            raise ValueError(f"sigma: expected an integer from 1 to 2^40, got {sigma}")
        return torch.from_numpy(discrete_gaussian.draws(math.prod(shape), sigma).reshape(shape))


_SOURCES = {source.name: source for source in (_Pseudorandom, _Csprng, _Discrete)}
