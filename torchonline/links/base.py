"""Base class of the links: a family's functions and confidence-set constants."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from torchonline.core.ops import where

# Number of grid points for a maximum over an interval.
GRID = 1 << 13


class Link(nn.Module):
    r"""Base class of the links: modules without state, on tensors and NumPy arrays.

    A link is a canonical exponential family. Given the past, the reward has the density :math:`\exp\{(rz - m(z))/g + h(r)\}`, the
    mean :math:`\mu(z) = m'(z)` and the variance :math:`g\,\mu'(z)`, where :math:`z = x^\top\theta`. The divergence of m is
    :math:`D_m(b, y) = m(b) - m(y) - \mu(y)(b - y)`.

    Attributes:
        noise_scale: square root of the dispersion g.
        reach: learners accept only predictors with :math:`|z|` below ``reach``.
        is_global: whether :meth:`self_concordance` is the same number for all bounds.
        is_unimodal: whether :math:`\mu'` rises up to the point ``steepest`` and falls beyond it.
        steepest: the point where :math:`\mu'` is largest; it may be infinite.
        possible_rewards: description of the possible rewards, for error messages.
        takes_fractions: whether all rewards from 0 to 1 are sure to be possible.
    """

    if TYPE_CHECKING:

        def __call__(self, z: Tensor) -> Tensor: ...

    noise_scale: float = 1.0
    reach: float = math.inf
    is_global: bool = True
    is_unimodal: bool = True
    steepest: float = 0.0
    possible_rewards: str = "any"
    takes_fractions = False

    def log_partition(self, z: Tensor) -> Tensor:
        """Return m(z), of any shape."""
        raise NotImplementedError

    def mean(self, z: Tensor) -> Tensor:
        """Return the mean reward mu(z), of any shape."""
        raise NotImplementedError

    def slope(self, z: Tensor) -> Tensor:
        """Return the derivative mu'(z), of any shape; the reward's variance is g mu'(z)."""
        raise NotImplementedError

    def mean_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return :meth:`mean` and :meth:`slope` in one pass.

        Far from ``steepest``, this slope may be rounded to 0.
        """
        return self.mean(z), self.slope(z)

    def forward(self, z: Tensor) -> Tensor:
        """Return :meth:`mean`."""
        return self.mean(z)

    def divergence(self, b: Tensor, y: Tensor) -> Tensor:
        """Return the divergence ``D_m(b, y)``, of any shape."""
        return self.log_partition(b) - self.log_partition(y) - self.mean(y) * (b - y)

    def curvature(self, b: Tensor, y: Tensor, concordance: float) -> Tensor:
        r"""Return a lower bound of :math:`2D_m(b, y)/(b-y)^2`, of any shape.

        ``concordance`` is R between b and y. The bound is the quotient minus a millionth of it, against rounding. For points
        closer than 0.02 it follows from self-concordance.
        """
        size = abs(b - y)
        close = size <= 0.02
        away = where(close, 0.0 * size + 1.0, size)
        at_hand = 2.0 * self.slope(y) / (2.0 + concordance * size)
        return (1.0 - 1e-6) * where(close, at_hand, 2.0 * self.divergence(b, y) / (away * away))

    # The methods below are eager Python only.

    def self_concordance(self, bound: float) -> float:
        r"""Return R with :math:`|\mu''| \le R\mu'` for :math:`|z|` up to ``bound``."""
        raise NotImplementedError

    def max_slope(self, bound: float) -> float:
        """Return the largest slope where :math:`|z|` is at most ``bound``."""
        self._check_unimodal("steepest")
        at: Any = np.float64(min(max(self.steepest, -bound), bound))
        return float(self.slope(at))

    def _check_unimodal(self, where: str) -> None:
        if not self.is_unimodal:
            raise NotImplementedError(f"{type(self).__name__} does not say where its mean is {where}")

    def min_slope(self, bound: float) -> float:
        """Return the smallest slope for :math:`|z|` up to ``bound``, or slightly less."""
        self._check_unimodal("flattest")
        ends: Any = np.array([-bound, bound])
        return float(self.slope(ends).min())

    def possible(self, values: Tensor) -> Tensor:
        """Return the nearest possible rewards; 0 and 1 are always possible."""
        return values

    def rewards(self) -> str:
        """Describe the possible rewards for error messages, such as "in [0, 1]"."""
        return self.possible_rewards

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Draw independent rewards from the family at each z: float64, on the CPU."""
        raise NotImplementedError(f"{type(self).__name__} does not say by which law rewards are drawn")

    def signature(self) -> list[tuple[str, float]]:
        """Return named numbers that tell links apart, for checkpoints."""
        points: Any = min(1.0, self.reach) * np.array([-0.5, -0.25, 0.25, 0.5])
        means = zip(points.tolist(), self.mean(points).tolist(), strict=True)
        return [(f"the link's mean at {z:g}", mean) for z, mean in means]

    def check_bound(self, bound: float) -> None:
        """Raise ValueError if the link violates its contract on [-bound, bound]."""
        if bound >= self.reach:
            reach = f"{self.reach:g}, the reach of {type(self).__name__}"
            raise ValueError(f"theta_bound: expected |x'theta| below {reach}, got up to {bound:g}")

    def curvature_ratio(self, bound: float) -> float:
        r"""Return an upper bound of :math:`\mu'(y)(b-y)^2/(2D_m(b,y))`, at least 1.

        It holds for b and y in [-bound, bound]. If the slope is unimodal, the maximum over b is at an end. The maximum over y
        is taken on a grid, times an allowance for the points between: the logarithm of the ratio has a derivative of at most
        2R. If the slope is not unimodal, self-concordance gives :math:`u^2/(2(u-1+e^{-u}))` with u = 2 R bound.
        """
        concordance = self.self_concordance(bound)
        u = 2.0 * concordance * bound
        if u < 1e-6:
            return 1.0 + u
        by_concordance = u * u / (2.0 * (u + math.expm1(-u)))
        # The grid would be too coarse, or the slopes too small for floating-point numbers.
        if not self.is_unimodal or u > GRID or self.min_slope(bound) < 1e-290:
            return by_concordance
        y: Any = np.linspace(-bound, bound, GRID)
        ratios = [self.slope(y) / self.curvature(0.0 * y + b, y, concordance) for b in (-bound, bound)]
        return min(float(np.max(ratios)) * math.exp(u / (GRID - 1)), by_concordance)
