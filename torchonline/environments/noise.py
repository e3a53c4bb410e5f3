"""Noise laws with mean 0, light-tailed to heavy-tailed, with exact moment norms."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from torchonline.core.checks import positive, within
from torchonline.core.options import described


@dataclass(frozen=True, repr=False)
class Noise(ABC):
    r"""Base class of the noise laws: ``scale`` times a standard law of mean 0.

    Args:
        scale: the unit of the noise, above 0.
    """

    scale: float = field(default=1.0, kw_only=True)
    # The law's own argument, and its open range.
    _range: ClassVar[tuple[str, float, float] | None] = None

    def __post_init__(self) -> None:
        positive("scale", self.scale)
        if self._range is not None:
            name, low, high = self._range
            within(name, getattr(self, name), low, high)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({described(self, vars(self))})"

    @abstractmethod
    def _standard_sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw at scale 1."""

    @abstractmethod
    def _standard_log_moment(self, order: float) -> float:
        """Return ``log E|eta|^order`` at scale 1."""

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return independent draws: float64, on the generator's device."""
        return self.scale * self._standard_sample(shape, generator)

    def moment_norm(self, order: float) -> float:
        r"""Return the exact :math:`(E|\eta|^p)^{1/p}`, p = ``order`` > 0, in reward units.

        The result is infinite if the moment is.
        """
        order = positive("order", order)
        return self.scale * math.exp(self._standard_log_moment(order) / order)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw uniformly from (0, 1]: never 0, where the laws below have a pole."""
    return 1.0 - torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)


@dataclass(frozen=True, repr=False)
class GaussianNoise(Noise):
    r"""The normal law :math:`N(0, \text{scale}^2)`.

    Args:
        scale: the standard deviation, above 0.

    Example:
        >>> round(GaussianNoise(scale=3.0).moment_norm(2.0), 6)
        3.0
    """

    def _standard_sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)

    def _standard_log_moment(self, order: float) -> float:
        return 0.5 * order * math.log(2.0) + math.lgamma(0.5 * (order + 1.0)) - 0.5 * math.log(math.pi)


@dataclass(frozen=True, repr=False)
class StudentT(Noise):
    r"""Student's t: symmetric, with finite moments only of order below ``df``.

    Args:
        df: degrees of freedom, above 1 so that the mean exists. Up to 2 the variance is infinite.
        scale: the unit of the noise. The standard deviation is ``moment_norm(2)``.

    Example:
        >>> round(StudentT(2.1).moment_norm(1.99), 3)
        4.388
        >>> StudentT(1.5).moment_norm(2)
        inf
    """

    df: float
    _range = ("df", 1.0, math.inf)

    def _standard_sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        # Polar form of Bailey (Math. Comp. 62, 1994): Box and Muller's with a heavy-tailed radius.
        square = self.df * torch.expm1(-2.0 / self.df * _uniform(shape, generator).log())
        return square.sqrt() * torch.cos(2.0 * math.pi * _uniform(shape, generator))

    def _standard_log_moment(self, order: float) -> float:
        if order >= self.df:
            return math.inf
        half, df = 0.5 * order, self.df
        log_moment = half * math.log(df) + math.lgamma(0.5 * (order + 1.0)) + math.lgamma(0.5 * (df - order))
        return log_moment - math.lgamma(0.5 * df) - 0.5 * math.log(math.pi)


@dataclass(frozen=True, repr=False)
class Pareto(Noise):
    r"""Pareto's law :math:`P(X > x) = x^{-\text{index}}` for :math:`x \ge 1`, centred.

    By default the mean is subtracted: the right tail is heavy, and all values are above -1 / (index - 1).

    Args:
        index: tail index, above 1 so that the mean exists. Moments of order below ``index`` are finite.
        symmetric: whether to draw a random sign instead of subtracting the mean.
        scale: the unit of the noise.

    Example:
        >>> round(Pareto(3.0).moment_norm(2.0) ** 2, 6)
        0.75
        >>> Pareto(1.5, symmetric=True).moment_norm(1.5)
        inf
    """

    index: float
    symmetric: bool = False
    _range = ("index", 1.0, math.inf)

    def _standard_sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        size = _uniform(shape, generator) ** (-1.0 / self.index)
        if self.symmetric:
            return torch.where(_uniform(shape, generator) > 0.5, size, -size)
        return size - self.index / (self.index - 1.0)

    def _standard_log_moment(self, order: float) -> float:
        a = self.index
        if order >= a:
            return math.inf
        if self.symmetric:
            return -math.log1p(-order / a)
        # With mu = E X and p = order, E|X - mu|^p is a mu^(p - a) times the sum of two integrals: above the mean
        # u = mu / x gives B(a - p, p + 1), below it u = 1 - x / mu gives int_0^{1/a} u^p (1 - u)^(-a - 1) du.
        mu = a / (a - 1.0)
        above = math.exp(math.lgamma(a - order) + math.lgamma(order + 1.0) - math.lgamma(a + 1.0))
        below = (1.0 / a) ** (order + 1.0) * mu**a / (order + 1.0) * _series(order + 1.0 - a, order + 2.0, 1.0 / a)
        return math.log(a) + (order - a) * math.log(mu) + math.log(above + below)


def _series(b: float, c: float, z: float) -> float:
    """Return Gauss's hypergeometric F(1, b; c; z), 0 < z < 1, to machine precision."""
    total, term, n = 1.0, 1.0, 0
    while abs(term) > 1e-17 * (1.0 - z) * abs(total):
        term *= z * (b + n) / (c + n)
        total += term
        n += 1
    return total


@dataclass(frozen=True, repr=False)
class TwoPoint(Noise):
    r"""A rare large jump, balanced by a small constant.

    The value is :math:`\sqrt{(1-q)/q}` with probability q, else :math:`-\sqrt{q/(1-q)}`. Most samples of far fewer than 1 / q
    rounds show no spread at all, and confidence radii for Gaussian noise fail under this law.

    Args:
        probability: probability q of the jump, in (0, 1).
        scale: the standard deviation.

    Example:
        >>> round(TwoPoint(0.01, scale=2.0).moment_norm(2.0), 6)
        2.0
    """

    probability: float
    _range = ("probability", 0.0, 1.0)

    def _standard_sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        jump = math.sqrt((1.0 - self.probability) / self.probability)
        jumps = (_uniform(shape, generator) <= self.probability).to(torch.float64)
        return (jump + 1.0 / jump) * jumps - 1.0 / jump

    def _standard_log_moment(self, order: float) -> float:
        q = self.probability
        log_jump = 0.5 * (math.log1p(-q) - math.log(q))
        large, small = math.log(q) + order * log_jump, math.log1p(-q) - order * log_jump
        return max(large, small) + math.log1p(math.exp(-abs(large - small)))
