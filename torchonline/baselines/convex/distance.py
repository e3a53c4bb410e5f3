"""Base class of the learners that estimate the distance to the comparator."""

from typing import Unpack

from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.ops import squarable
from torchonline.core.options import LearnerOptions


def farthest(x: Tensor) -> float:
    """Return the largest length of an unbounded decision, in the dtype of ``x``."""
    return float(squarable(x) ** 0.5)


class DistanceLearner(ConvexLearner):
    """Base class of DoG, DoWG, D-Adaptation and Prodigy: their two options.

    Args:
        initial_distance: first estimate of the distance, above 0.
        step_scale: factor of all steps, above 0.
    """

    statistics_depend_on = ("initial_distance", "step_scale")

    def __init__(
        self,
        dim: int,
        *,
        initial_distance: float = 1e-6,
        step_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.initial_distance = self._size("initial_distance", initial_distance)
        self.step_scale = self._size("step_scale", step_scale)
        self._create_buffers()
