"""The base of all links: the functions of a family and the constants that a confidence set needs."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchonline.core.ops import where

# Points of the grids on which a maximum over an interval is looked for.
GRID = 1 << 13


class Link(nn.Module):
    r"""Base of all links.

    What a confidence set needs of one, besides the functions: a constant R with :math:`|\mu''| \le R\mu'`
    (:meth:`self_concordance`), the largest :math:`\mu'` (:meth:`max_slope`), and a lower bound of
    :math:`2D_m(b, y)/(b-y)^2` for the divergence :math:`D_m(b, y) = m(b) - m(y) - \mu(y)(b - y)` (:meth:`curvature`).

    Attributes:
        noise_scale: the square root of the dispersion g.
        reach: the functions can be computed where :math:`|z|` is below it.
        is_global: whether :meth:`self_concordance` is one number for all of the line.
        is_unimodal: whether :math:`\mu'` rises up to a point and falls from there on.
        steepest: that point.
    """

    noise_scale: float = 1.0
    reach: float = math.inf
    is_global: bool = True
    is_unimodal: bool = True
    steepest: float = 0.0

    def log_partition(self, z: Tensor) -> Tensor:
        """m(z), of any shape."""
        raise NotImplementedError

    def mean(self, z: Tensor) -> Tensor:
        """The mean reward mu(z), of any shape."""
        raise NotImplementedError

    def slope(self, z: Tensor) -> Tensor:
        """The derivative of the mean, of any shape; times g it is the variance of the reward."""
        raise NotImplementedError

    def mean_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Both, for less than the price of both; far from the steepest point the slope may have lost its last digits."""
        return self.mean(z), self.slope(z)

    def forward(self, z: Tensor) -> Tensor:
        """What :meth:`mean` returns."""
        return self.mean(z)

    def divergence(self, b: Tensor, y: Tensor) -> Tensor:
        """``D_m(b, y)``, of any shape."""
        return self.log_partition(b) - self.log_partition(y) - self.mean(y) * (b - y)

    def curvature(self, b: Tensor, y: Tensor, concordance: float) -> Tensor:
        r"""No more than :math:`2D_m(b, y)/(b-y)^2`, of any shape, for R = ``concordance`` between b and y.

        It is that number, but for points so close that rounding would spoil it.
        """
        size = abs(b - y)
        close = size <= 0.02
        away = where(close, 0.0 * size + 1.0, size)
        at_hand = 2.0 * self.slope(y) / (2.0 + concordance * size)
        # A little less than it is, for rounding.
        return (1.0 - 1e-6) * where(close, at_hand, 2.0 * self.divergence(b, y) / (away * away))

    # What follows is eager Python only.

    def self_concordance(self, bound: float) -> float:
        """R, for :math:`|z|` up to ``bound``."""
        raise NotImplementedError

    def max_slope(self, bound: float) -> float:
        """The largest derivative of the mean where :math:`|z|` is at most ``bound``."""
        raise NotImplementedError

    def min_slope(self, bound: float) -> float:
        """The smallest derivative of the mean where :math:`|z|` is at most ``bound``, or a little less."""
        if not self.is_unimodal:
            raise NotImplementedError(f"{type(self).__name__} does not say where its mean is flattest")
        ends: Any = np.array([-bound, bound])
        return float(self.slope(ends).min())

    def possible(self, values: Tensor) -> Tensor:
        """The rewards nearest to any numbers; rewards themselves, among them 0 and 1, are left as they are."""
        return values

    def rewards(self) -> str:
        """Which rewards are possible, in words."""
        return "any"

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Independent rewards of the family at each z: float64, on the CPU."""
        raise NotImplementedError(f"{type(self).__name__} does not say by which law rewards are drawn")

    def signature(self) -> list[tuple[str, float]]:
        """Numbers that tell one link from another, by name, for checkpoints."""
        points: Any = min(1.0, self.reach) * np.array([-0.5, -0.25, 0.25, 0.5])
        means = zip(points.tolist(), self.mean(points).tolist(), strict=True)
        return [(f"the link's mean at {z:g}", mean) for z, mean in means]

    def check_bound(self, bound: float) -> None:
        """Refuse a link that does not hold what it promises where :math:`|z|` is at most ``bound``."""
        if bound >= self.reach:
            raise ValueError(
                f"theta_bound: expected |x'theta| below {self.reach:g}, the reach of {type(self).__name__}, "
                f"got up to {bound:g}"
            )

    def curvature_ratio(self, bound: float) -> float:
        r"""At least the largest :math:`\mu'(y)(b-y)^2/(2D_m(b,y))` for b and y in [-bound, bound]; at least 1.

        For a unimodal slope the maximum over b is at an end. Over y it is that of a grid, times what the logarithm of the
        ratio, whose derivative is at most 2R, may rise between two of its points. Otherwise self-concordance gives
        :math:`u^2/(2(u-1+e^{-u}))` with u = 2 R bound.
        """
        concordance = self.self_concordance(bound)
        u = 2.0 * concordance * bound
        if u < 1e-6:
            return 1.0 + u
        by_concordance = u * u / (2.0 * (u + math.expm1(-u)))
        # A grid must not be too coarse, nor slopes too small for floating-point numbers.
        if not self.is_unimodal or u > GRID or self.min_slope(bound) < 1e-290:
            return by_concordance
        y: Any = np.linspace(-bound, bound, GRID)
        ratios = [self.slope(y) / self.curvature(0.0 * y + b, y, concordance) for b in (-bound, bound)]
        return min(float(np.max(ratios)) * math.exp(u / (GRID - 1)), by_concordance)
