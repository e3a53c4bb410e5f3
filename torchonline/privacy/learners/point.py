"""What private learners of a point share: clipped contributions, a decision that is published, and what a file may hold of it."""

from typing import Any

import torch
from torch import Tensor, nn

from torchonline.core.checks import check_shape
from torchonline.core.inputs import check_tensor
from torchonline.privacy.clipping import MARGIN
from torchonline.privacy.learners.base import PrivateLearner


class PrivatePoint(PrivateLearner):
    """Base of the private learners whose decision is a point, learnt from gradients.

    Args:
        dim: number of features d.
        clip: C, for the contributions; ``inf`` only where epsilon is.
        clip_norm: the order of the norm that they are clipped in.
        options: those of :class:`~torchonline.privacy.learners.base.PrivateLearner`.
    """

    theta: Tensor

    decisions: tuple[str, ...] = ("theta",)

    def __init__(self, dim: int, *, clip: float, clip_norm: float = 2.0, **options: Any) -> None:
        super().__init__(dim, **options)
        self.clip = self._clip_bound("clip", clip)
        self.clip_norm = clip_norm

    def forward(self) -> Tensor:
        """The decision, ``(*B, d)``."""
        return self.predict()

    def predict(self) -> Tensor:
        """The decision, ``(*B, d)``: public."""
        self._refuse_tracing()
        return self.theta.clone()

    def released(self) -> "Released":
        return Released(self.theta)

    def _longest(self, order: float = 2.0) -> float:
        """The longest contribution, in the norm of that order."""
        return self.clip * (1.0 + MARGIN) * self.dim ** max(0.0, 1.0 / order - 1.0 / self.clip_norm)

    def _moved(self, order: float = 2.0) -> float:
        """How far one record moves a sum: by two contributions where another takes its place, by one where none does."""
        return (2.0 if self.adjacency == "replace_one" else 1.0) * self._longest(order)

    def _checked(self, gradients: Tensor, points: int) -> Tensor:
        """Gradients at so many points, ``(*B, N, d)``, or an error: of a shape, type or device, never of a value."""
        gradients = check_tensor("gradients", gradients, self.constants).detach()
        if points == 1 and gradients.dim() == self.batch_dims + 1:
            gradients = gradients.unsqueeze(-2)
        check_shape("gradients", gradients, (*self.batch_shape, points, self.dim))
        return gradients

    def _nothing(self) -> Tensor:
        """The contribution of a record that is missing, ``(*B, d)``."""
        return torch.zeros_like(self.theta, dtype=torch.float64)


class Released(nn.Module):
    """A decision that was published, and nothing else: what a private learner leaves in a file.

    Args:
        theta: the decision.
    """

    theta: Tensor

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.register_buffer("theta", theta.detach().clone())

    def forward(self) -> Tensor:
        """The decision."""
        return self.theta

    def predict(self) -> Tensor:
        """The decision."""
        return self.theta

    def example(self) -> tuple[Tensor, ...]:
        """Arguments to export it with: none."""
        return ()
