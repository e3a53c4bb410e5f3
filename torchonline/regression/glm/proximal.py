"""The proximal step of a round of generalized linear regression."""

import math

from torch import Tensor

from torchonline.core.ops import at_least, maximum, minimum, where
from torchonline.regression.glm.base import GeneralizedEstimator


class ProximalStep(GeneralizedEstimator):
    """Base of the estimators whose rounds end at the root of one scalar equation."""

    def _set_proximal_step(self) -> None:
        """Set the numbers of halvings and of Newton's steps."""
        self.steepest = self.link.steepest
        # Halvings bring Newton's method within 2 / R of the root, from where six steps reach the last digits. Predictors
        # of 8 / R are allowed for, because a file does not refuse features longer than feature_bound.
        R, bound = self.concordance, self.predictor_bound
        farthest = max(R * bound, 8.0 if self.link.is_global and R > 0.0 else 1.0)
        self.halvings, self.newton_steps = min(10, math.ceil(math.log2(farthest))), 6

    def _move(self, z: Tensor, s: Tensor, bound: Tensor, reward: Tensor) -> Tensor:
        """Return the root u of ``u + s (mean(z + u) - reward)``, z + u in +-bound."""
        # The derivative is at least 1, so the root is between any u and u - f(u), which halvings shorten. From the point nearest
        # to the steepest point of the mean, f is convex or concave up to the root, so no step of Newton's method goes beyond it.
        link = self.link
        first, last = -bound - z, bound - z
        start = minimum(maximum(0.0 * z, first), last)
        end = start - (start + s * (link.mean(z + start) - reward))
        low, high = maximum(minimum(start, end), first), minimum(maximum(start, end), last)
        for _ in range(self.halvings):
            middle = 0.5 * (low + high)
            is_above = middle + s * (link.mean(z + middle) - reward) > 0.0
            low, high = where(is_above, low, middle), where(is_above, middle, high)
        u = minimum(maximum(at_least(z + low, self.steepest) - z, low), high)
        for _ in range(self.newton_steps):
            mean, slope = link.mean_and_slope(z + u)
            u = minimum(maximum(u - (u + s * (mean - reward)) / (1.0 + s * slope), low), high)
        return u
