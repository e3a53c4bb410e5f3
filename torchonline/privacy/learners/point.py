"""Base class of the private learners that publish a point."""

from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.checks import check_shape, positive_integer
from torchonline.core.inputs import ArrayLike
from torchonline.privacy.clipping import MARGIN, clipped
from torchonline.privacy.learners.base import PrivateLearner, PrivateOptions
from torchonline.privacy.learners.released import Released
from torchonline.privacy.records import record_values

DEFAULT_RADIUS = 3.0  # of the decision ball, for features of norm 1 (docs/private_accuracy.md)
# Up to this many records a step, the rounding of their sum is within the margin of the clip.
MOST_RECORDS = 2**15


class PrivatePoint(PrivateLearner):
    """Base class of the private learners that clip gradients and publish a point.

    ``clip`` is C, the bound of contributions in the norm of order ``clip_norm``; ``inf`` only if epsilon is.
    """

    if TYPE_CHECKING:

        def __call__(self) -> Tensor: ...

    theta: Tensor
    theta_prev: Tensor
    decisions: tuple[str, ...] = ("theta",)
    points = 1  # number of points whose gradients it needs: 1, or 2 with ``theta_prev``

    def __init__(
        self,
        dim: int,
        *,
        clip: float,
        clip_norm: float = 2.0,
        records_a_step: int = 1,
        **options: Unpack[PrivateOptions],
    ) -> None:
        if positive_integer("records_a_step", records_a_step) > MOST_RECORDS:
            raise ValueError(f"records_a_step: expected at most {MOST_RECORDS}, got {records_a_step}")
        vars(self)["records_a_step"] = records_a_step  # the warning of delta needs it
        super().__init__(dim, **options)
        self.clip = self._clip_bound("clip", clip)
        self.clip_norm = clip_norm

    @one_at_a_time
    def predict(self) -> Tensor:
        """Return the public decision, ``(*B, d)``."""
        self._refuse_tracing()
        return self.theta.clone()

    forward = predict

    @one_at_a_time
    def queries(self) -> Tensor:
        """Return the points for the next record's gradients, ``(*B, N, d)``.

        They are the decision and, if N = 2, the previous decision.
        """
        self._refuse_tracing()
        return torch.stack([self.theta, self.theta_prev], -2) if self.points == 2 else self.theta.unsqueeze(-2).clone()

    @one_at_a_time
    def step(self, gradients: ArrayLike | None, values: Any = None) -> None:
        """Learn from one record, from ``records_a_step`` records, or from None.

        Args:
            gradients: of the record's loss, at the points of :meth:`queries` in their order, ``(*B, N, d)``; or ``(*B, d)`` for
                one point. ``(*B, m, N, d)``, or ``(*B, m, d)``, for m records a step. None for a missing record, which still
                takes its step; among m records, a row of zeros or NaN. NaN, infinite and long gradients are clipped, not refused.
            values: of the loss. Ignored.
        """
        step = self._next_step()
        rows_a_step = () if self.records_a_step == 1 else (self.records_a_step,)
        shape = (*self.batch_shape, *rows_a_step, self.points, self.dim)
        # In every step, so that a missing record takes as long as any other.
        none = self.constants.new_zeros(shape)
        rows = record_values("gradients", none if gradients is None else gradients, self.constants)
        if self.points == 1 and rows.dim() == len(shape) - 1:
            rows = rows.unsqueeze(-2)
        check_shape("gradients", rows, shape)
        with torch.no_grad():
            self._advance(rows, step)

    @one_at_a_time
    def released(self) -> Released:
        """Return a module with the current decision only, for export."""
        return Released(self.theta)

    def _longest(self, order: float = 2.0) -> float:
        """Return the largest norm of a contribution, for a norm of this order."""
        return self.clip * (1.0 + MARGIN) * self.dim ** max(0.0, 1.0 / order - 1.0 / self.clip_norm)

    def _longest_sum(self, order: float = 2.0) -> float:
        """Return the largest norm of a step's sum of contributions."""
        return self.records_a_step * self._longest(order)

    def _moved(self, order: float = 2.0) -> float:
        """Return the sensitivity of a sum: the length of two contributions, or of one."""
        return self._records_moved() * self._longest(order)

    def _advance(self, gradients: Tensor, step: int) -> None:
        """Take a step on gradients, float64, ``(*B, N, d)``."""
        self._take(step, self._learn, self._sum(gradients, step), step)

    def _sum(self, gradients: Tensor, step: int) -> Tensor:
        """Return the sum of a step's clipped contributions: ``(*B, d)``."""
        contribution = self._contribution(gradients, step)
        return contribution if self.records_a_step == 1 else contribution.sum(-2)

    def _contribution(self, gradients: Tensor, step: int) -> Tensor:
        """Return a record's clipped summand: ``(..., N, d)`` to ``(..., d)``, float64."""
        return clipped(gradients.squeeze(-2), self.clip, self.clip_norm)

    def _learn(self, contribution: Tensor, step: int) -> None:
        """Learn from a contribution, ``(*B, d)``, in the step of that number."""
        raise NotImplementedError
