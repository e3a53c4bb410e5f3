"""Base classes of the private baselines that learn online from gradients."""

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from torch import Tensor

from torchonline.convex.domains import norm_order
from torchonline.core.checks import positive
from torchonline.privacy.accounting import Event, GaussianEvent
from torchonline.privacy.calibration import gaussian_mu
from torchonline.privacy.learners.point import PrivatePoint


def rate_or_best(learning_rate: float | None, clip: float, best: Callable[[], float]) -> float:
    """Return the learning rate; for None the best one, if the clip is finite."""
    if learning_rate is not None:
        return positive("learning_rate", learning_rate)
    if clip == math.inf:
        raise ValueError("learning_rate: expected a number, because clip is infinite, got None")
    return best()


class PrivateOptimizer(PrivatePoint):
    """Base class of the private online baselines on an l_p ball, p = ``norm``."""

    statistics_depend_on: tuple[str, ...] = ("norm", "radius_bound", "clip")

    def __init__(self, dim: int, *, norm: float, radius_bound: float, **options: Any) -> None:
        super().__init__(dim, **options)
        self.norm = norm_order("norm", norm)
        self.radius_bound = positive("radius_bound", radius_bound)


class DisjointBatches(PrivateOptimizer):
    r"""Base class of the baselines that release one noisy vector after each batch.

    The noise is :math:`N(0, (s/\mu)^2 I)`, and nothing is released before a batch's end. Given the earlier releases, the vector
    is a function of the batch's records, and one record moves the vector by at most s in the Euclidean norm. All public values
    are functions of these releases. *Each batch gets the whole budget*, because each record is in one batch only: the run is
    (epsilon, delta)-private for the :math:`\mu` of :func:`~torchonline.privacy.calibration.gaussian_mu`. Proof:
    docs/privacy_proofs.md.
    """

    ends: tuple[int, ...]  # the last steps of the batches, up to the horizon
    noise_multiplier: float  # 1 / mu
    statistics_depend_on = (*PrivateOptimizer.statistics_depend_on, "noise_multiplier")

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self._refuse_several(type(self).__name__)
        self._refuse_endless(type(self).__name__)
        self.source.require("add_normal")
        self.noise_multiplier = 0.0 if self.epsilon == math.inf else 1.0 / gaussian_mu(self.epsilon, self.delta)

    def _cut(self, sizes: list[int]) -> None:
        """Split the steps into batches of data-independent sizes; the last gets the rest."""
        *ends, _ = accumulate(sizes)
        self.ends = (*ends, self.horizon)
        self._sizes = {end: end - start for start, end in zip((0, *ends), self.ends, strict=True)}

    def _with_noise(self, values: Tensor, sensitivity: float) -> Tensor:
        """Release secret values, ``(*B, d)``, of a given sensitivity."""
        scale = self.noise_multiplier * sensitivity
        return self.source.add_normal(values, scale) if scale > 0.0 else values

    def _event(self, steps: int) -> Event | None:
        return None if steps < self.ends[0] else GaussianEvent(self.noise_multiplier)
