"""Two learners as small as the convex contract allows, one of them made of the other: what its suite is tried on."""

import torch
from torch import Tensor
from torch.jit import is_scripting

from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import positive
from torchonline.core.ops import along, assign_, count_, dot, exp, increase_, row_dots, smallest, sqrt


class Descent(ConvexLearner):
    """Gradient descent with the step ``rate / sqrt(1 + sum of squares)``."""

    statistics_depend_on = ("rate",)

    energy: Tensor

    def __init__(
        self,
        dim: int,
        *,
        rate: float = 0.5,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.rate = positive("rate", rate)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"energy": torch.ones((), dtype=torch.float64)}

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        increase_(self.energy, dot(gradients, gradients))
        decision = self.decision
        decision -= along(self.rate / sqrt(self.energy), gradients) * gradients
        count_(self.rounds)


class Mixture(ConvexLearner):
    """Two descents, weighted by the exponential of what they have lost."""

    needs_values = True

    lost: Tensor

    def __init__(
        self,
        dim: int,
        *,
        rate: float = 0.5,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        options = {"dtype": dtype, "device": device, "validate": validate}
        super().__init__(dim, points=2, batch_shape=batch_shape, **options)
        self.bases = Descent(dim, rate=rate, batch_shape=(*batch_shape, 2), **options)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"lost": torch.zeros(2, dtype=torch.float64)}

    @torch.jit.export
    def queries(self) -> Tensor:
        return self.bases.decision.clone()

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        if not is_scripting():
            if values is None:
                raise ValueError("values: expected a tensor, got None")
        self.bases._observe(gradients, None)
        lost = self.lost
        if values is not None:
            lost += values
        weights = exp(0.1 * (along(smallest(lost), lost) - lost))
        weights = weights / along(weights.sum(-1), weights)
        assign_(self.decision, row_dots(self.bases.decision.swapaxes(-1, -2), weights[..., None, :]))
        count_(self.rounds)
