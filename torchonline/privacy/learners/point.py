"""Base class of the private learners of a point."""

from typing import Any, Unpack

from torch import Tensor

from torchonline.core.checks import check_shape
from torchonline.core.stepping import one_at_a_time
from torchonline.privacy.clipping import MARGIN
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.learners.options import PrivateOptions
from torchonline.privacy.learners.released import Released
from torchonline.privacy.records import record_values


class PrivatePoint(PrivateLearner):
    """Base class of the private learners of a point: clips gradients, publishes it.

    Args:
        dim: number of features d.
        clip: C, the bound that contributions are clipped to; ``inf`` only if epsilon is.
        clip_norm: the order of the norm that contributions are clipped in.
        options: those of :class:`~torchonline.privacy.learners.base.PrivateLearner`.
    """

    theta: Tensor

    decisions: tuple[str, ...] = ("theta",)

    def __init__(self, dim: int, *, clip: float, clip_norm: float = 2.0, **options: Unpack[PrivateOptions]) -> None:
        super().__init__(dim, **options)
        self.clip = self._clip_bound("clip", clip)
        self.clip_norm = clip_norm

    def forward(self) -> Tensor:
        """Return the public decision, ``(*B, d)``."""
        return self.predict()

    @one_at_a_time
    def predict(self) -> Tensor:
        """Return the public decision, ``(*B, d)``."""
        self._refuse_tracing()
        return self.theta.clone()

    @one_at_a_time
    def released(self) -> Released:
        """Return a module with the current decision only, for export."""
        return Released(self.theta)

    def _longest(self, order: float = 2.0) -> float:
        """Return the largest norm of a contribution, for a norm of this order."""
        return self.clip * (1.0 + MARGIN) * self.dim ** max(0.0, 1.0 / order - 1.0 / self.clip_norm)

    def _moved(self, order: float = 2.0) -> float:
        """Return the sensitivity of a sum, in the norm of this order.

        It is two contributions if a record is replaced, and one if it is left out.
        """
        return (2.0 if self.adjacency == "replace_one" else 1.0) * self._longest(order)

    def _checked(self, gradients: Any, points: int) -> Tensor:
        """Return gradients at so many points, float64, ``(*B, N, d)``, or raise.

        Values raise nothing. For None, a missing record, return zeros.
        """
        shape = (*self.batch_shape, points, self.dim)
        if gradients is None:
            return self.constants.new_zeros(shape)
        gradients = record_values("gradients", gradients, self.constants)
        if points == 1 and gradients.dim() == self.batch_dims + 1:
            gradients = gradients.unsqueeze(-2)
        check_shape("gradients", gradients, shape)
        return gradients
