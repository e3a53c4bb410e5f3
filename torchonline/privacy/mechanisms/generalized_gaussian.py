"""DP-TOFW's binary tree with generalized Gaussian noise, for comparison."""

import math
from typing import Any

from torch import Tensor

from torchonline.core.backend import beside
from torchonline.core.ops import floor
from torchonline.privacy.accounting import Event, ZCDPEvent
from torchonline.privacy.mechanisms.trees import Tree
from torchonline.privacy.noise import grid_of


class GeneralizedGaussianTree(Tree):
    r"""Binary tree with the paper's noise scale.

    .. math:: \sigma^2 = 2h^2\kappa\log(h/\delta)s^2/\varepsilon^2,\qquad h = \lceil\log_2 n\rceil + 1 .

    If a record moves a sum by at most s in the norm of order q, then noise of density :math:`\propto
    \exp(-\|z\|_r^2/(2\sigma^2))` makes the sum :math:`\kappa s^2/(2\sigma^2)`-zCDP, with :math:`\kappa = (r-1)\,d^{2(1/r-1/q)}`
    and r in [2, q]. The paper's rule is :math:`r = \min\{q, \max\{2, \log d\}\}`. For q below 2, r is 2 and kappa is 1. The
    ledger books this zCDP, not the promise in the formula for :math:`\sigma`, whose noise is at least five times the noise
    needed.

    Releases are rounded to a grid. For r above 2 this is a heuristic protection of their last bits: nothing is proved about the
    exactness of the draws.

    Args:
        horizon, dim, source: n, the number of steps, at least 2; d, the number of features; and the source of the noise.
        order: q, the order of the norm of ``sensitivity``. For q below 2 the norm is Euclidean and the noise normal.
        sensitivity: s, how far a record can move its summand in that norm.
        longest: see :class:`~torchonline.privacy.mechanisms.base.Mechanism`.
        epsilon, delta: as in the formula, which is enough up to a limit of epsilon. A larger epsilon raises a ValueError.
    """

    name = "paper"

    def __init__(
        self, horizon: int, *, order: float, dim: int, sensitivity: float, epsilon: float, delta: float, **options: Any
    ) -> None:
        if horizon < 2:
            raise ValueError(f"horizon: expected at least 2, where the paper's noise is enough, got {horizon}")
        height = math.ceil(math.log2(horizon)) + 1
        limit = 4.0 * height * math.log(height / delta) * (1.0 - 1.0 / math.sqrt(height))
        if epsilon > limit:
            raise ValueError(f"epsilon: expected at most {limit:.4g}, for the paper's noise, got {epsilon:g}")
        q = max(2.0, order)
        r = min(q, max(2.0, math.log(dim)))
        self.order, self.kappa = r, (r - 1.0) * dim ** (2.0 / r - 2.0 / q)
        scale = math.sqrt(2.0 * self.kappa * math.log(height / delta)) * height * sensitivity / epsilon
        super().__init__(horizon, sensitivity=sensitivity, noise_scale=scale, **options)

    @property
    def law(self) -> str:  # type: ignore[override]
        """The law that the noise source draws from."""
        return "add_normal" if self.order == 2.0 else "generalized_gaussian"

    def event(self, steps: int) -> Event:
        return ZCDPEvent(self.kappa * (self.moved(steps) / self.noise_scale) ** 2 / 2.0)

    def _release(self, row: Tensor) -> Tensor:
        if self.law == "add_normal":
            return super()._release(row)
        noise = beside(self.source.generalized_gaussian(tuple(row.shape), self.order), row) * self.noise_scale
        grid = grid_of(self.noise_scale)
        return floor((row + noise) / grid + 0.5) * grid + 0.0
