"""Ridge regression whose noise scale finds itself and whose outliers are cut."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.bandits.estimator import Estimator
from torchonline.core.checks import LARGEST, positive, positive_integer, within
from torchonline.core.ops import (
    along,
    ascending,
    assign_,
    at_most,
    clip,
    column,
    count_,
    dot,
    entry,
    floor,
    matvec,
    minimum,
    number,
    real,
    sqrt,
    total,
    where,
)
from torchonline.core.options import LearnerOptions


class RobustRidgeRegression(Estimator):
    r"""Ridge regression on cut residuals, for rewards of any unit and with outliers.

    The last ``window`` residuals :math:`|r - x^\top\hat\theta|`, this round's included, have the quantile q. A round is one step
    of ridge regression on the cut residual, and the radius follows the spread of the cut residuals:

    .. math:: V \leftarrow V + xx^\top,\quad
              \hat\theta \leftarrow \hat\theta + V^{-1}x\;\text{clip}(r - x^\top\hat\theta,\ \pm\text{cut}\cdot q),\qquad
              \text{radius} = \text{radius\_scale}\cdot\text{spread}

    with the root mean square of the residuals, each cut, as ``spread``, and 1 before the first round. The first ``warmup`` rounds
    are not cut. If all rewards are multiplied by a number, so are predictions and radii after the first round.

    Guarantee: none. The radius is a heuristic. It needs neither the noise scale nor the parameter's norm, and under heavy-tailed
    noise it plays well on real data (docs/benchmark.md). :class:`HeavyTailRegression` has a theorem. A round with a
    ``noise_scale`` of its own is learnt as x and r divided by it.

    Cost of a round: O(d^2 + w log w) time for a window of w, and two d x d matrices (three in float32).

    Args:
        dim, ridge, radius_scale, restart_every, batch_shape, dtype, device, validate: as in :class:`Estimator`.
        cut: above 0, where residuals are cut, in quantiles.
        quantile: in (0, 1).
        window: number of residuals that are kept.
        warmup: rounds without a cut.

    Shape:
        - ``residuals``, ``(*B, window)``; ``spread``, ``(*B)``; ``seen``, rounds in the window, ``(*B)``.

    Example:
        >>> learner, x = RobustRidgeRegression(1), torch.ones(1)
        >>> for reward in [3.0, 5.0] * 50 + [1e6] + [3.0, 5.0] * 50:
        ...     learner.step(x, torch.tensor(reward))
        >>> print(f"{learner(x):.1f}")
        4.0

    Reference:
        Of this library. Huber (Robust estimation of a location parameter, 1964) cuts residuals at a known scale.
    """

    statistics_depend_on = ("ridge", "restart_every", "cut", "quantile", "window", "warmup")
    pooled = ("residuals", "spread", "seen")
    residuals: Tensor
    spread: Tensor
    seen: Tensor
    slots: Tensor

    def __init__(
        self,
        dim: int,
        *,
        ridge: float = 1.0,
        radius_scale: float = 0.4,
        cut: float = 1.5,
        quantile: float = 0.95,
        window: int = 256,
        warmup: int = 10,
        restart_every: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, ridge, radius_scale, restart_every=restart_every, **options)
        self.cut = positive("cut", cut)
        self.quantile = within("quantile", quantile, 0.0, 1.0)
        self.window, self.warmup = positive_integer("window", window), positive_integer("warmup", warmup)
        # A round without noise would outweigh all others for ever.
        self.smallest_noise_scale = 1e-20
        # Rewards have any unit: no bound of the parameter cuts an interval.
        self.theta_bound = LARGEST[self._initial_options["dtype"]]
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        residuals = torch.zeros(self.window, dtype=torch.float64)
        own = {"residuals": residuals, "spread": torch.ones((), dtype=torch.float64)}
        return super()._initial_state() | own | {"seen": torch.zeros((), dtype=torch.int64)}

    def _tables(self) -> dict[str, Tensor]:
        return {"slots": torch.arange(self.window, dtype=torch.float64)}

    def radius(self) -> Tensor:
        return self.radius_scale * number(self.spread)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, weight = self.theta_hat, 1.0 / noise_scale
        a = along(weight, x) * x
        V_inv_a = matvec(self.V_inv, a)
        quadratic = dot(a, V_inv_a)
        self._check_growth(x, quadratic)
        residual = weight * reward - dot(a, theta_hat)
        residual = clip(residual, self._keep_(abs(residual)))
        theta_hat += V_inv_a * along(residual / (1.0 + quadratic), x)
        self._add_outer_(a, V_inv_a, quadratic)

    def _keep_(self, residual: Tensor) -> Tensor:
        """Put a residual into the window, renew the spread, and return the cut."""
        seen = real(self.seen, self.slots)
        slot = real(self.seen % self.window, self.slots)
        residuals = where(self.slots == column(slot), column(residual), self.residuals)
        count = at_most(seen + 1.0, float(self.window))
        used = self.slots < column(count)
        ordered = ascending(where(used, residuals, residuals + math.inf))
        # The quantile, by linear interpolation.
        position = self.quantile * (count - 1.0)
        low = floor(position)
        below, above = entry(ordered, low), entry(ordered, minimum(low + 1.0, count - 1.0))
        q = below + (position - low) * (above - below)
        limit = number(where(seen < self.warmup, residual + math.inf, self.cut * q))
        kept = where(used, minimum(residuals, column(limit)), 0.0 * residuals)
        assign_(self.residuals, residuals)
        assign_(self.spread, sqrt(total(kept * kept) / count))
        count_(self.seen)
        return limit
