"""The contract of convex learners: a decision, the points where a gradient is wanted, and a step that learns from gradients."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.jit import is_scripting

from torchonline.core.checks import check_array, check_shape, check_tensor, check_values, shape_text
from torchonline.core.learner import SMALL_STEP, Learner, NumpyView
from torchonline.core.ops import as_array, autocasts, exactly, is_readable


class ConvexLearner(Learner):
    """Base of the learners of online convex optimisation: they take a decision, and learn from the gradient of its loss.

    A round, for the caller::

        gradients, values = torchonline.gradients(loss, learner, x, y)    # or a formula, at learner.queries()
        learner.step(gradients)

    A subclass says how one round is learnt, :meth:`_observe`, which leaves the next decision in ``decision``; that runs on
    tensors and on NumPy views alike. Looking (``predict``, ``queries``) reads what is there.

    Args:
        dim: number of coordinates d.
        points: N, of the queries.
        entries: numbers in the largest array that a step of one learner makes; small steps run on NumPy views.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.
    """

    decision: Tensor
    rounds: Tensor

    # What `step` needs besides the gradients, and what it calls them.
    needs_values = False
    response = "gradients"

    def __init__(
        self,
        dim: int,
        *,
        points: int = 1,
        entries: int | None = None,
        batch_shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device | str | None,
        validate: bool,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.points = points
        self.is_small = math.prod(self.batch_shape) * (self.dim if entries is None else entries) < SMALL_STEP
        # A learner of one point takes its gradient without an axis for it, too.
        one = (self.dim,) if points == 1 else (points, self.dim)
        self.gradients_shape = (*self.batch_shape, *one)

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {
            "decision": torch.zeros(self.dim, dtype=torch.float64),
            "rounds": torch.zeros((), dtype=torch.int64),
        }

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        """Learn from one round of each learner, and take the next decision. Refuse before the first write.

        Args:
            gradients: ``(*B, N, d)``, or ``(*B, d)`` where N = 1; not the memory of a buffer.
            values: ``(*B, N)``, or ``(*B)``; None unless the learner needs them.
        """
        raise NotImplementedError

    def forward(self) -> Tensor:
        """The decision, ``(*B, d)``."""
        return self.predict()

    @torch.jit.export
    def predict(self) -> Tensor:
        """The decision, ``(*B, d)``. Changes no state."""
        return self.decision.clone()

    @torch.jit.export
    def queries(self) -> Tensor:
        """The points at which the next round's gradients are wanted, ``(*B, N, d)``. Changes no state."""
        return self.decision.unsqueeze(-2).clone()

    @torch.jit.export
    def step(self, gradients: Tensor, values: Tensor | None = None) -> None:
        """Learn from the gradients of a round's loss, at the points of :meth:`queries`.

        Args:
            gradients: ``(*B, N, d)``; or ``(*B, d)`` where N = 1.
            values: of the loss at those points, ``(*B, N)``, or ``(*B)`` where N = 1. Not looked at by a learner that does
                not need them.

        Raises:
            TypeError: an argument is no floating-point tensor.
            ValueError: a shape, device or value is wrong, or values are needed and are not there. No buffer has changed.
        """
        if not is_scripting():
            self._step_eagerly(gradients, values)
            return
        with torch.no_grad():
            gradients = gradients.detach().to(self.decision.dtype, copy=True)
            if self.points == 1:
                gradients = gradients.reshape(self.decision.shape)
            if values is not None:
                values = values.detach().to(self.decision.dtype, copy=True)
                if self.points == 1:
                    values = values.reshape(self.rounds.shape)
            self._observe(gradients, values)

    # What follows is eager Python only: TorchScript never reaches it, and an exported program leaves out what looks at values.

    def _step_eagerly(self, gradients: Tensor, values: Tensor | None) -> None:
        """Check the arguments of a step, then learn: on NumPy views where that is faster."""
        state: Any = self._buffers["decision"]
        gradients = self._shaped(self.response, gradients, state, self.gradients_shape, 2)
        if not self.needs_values:
            values = None
        elif values is None:
            wanted = shape_text((*self.batch_shape, self.points))
            raise ValueError(f"values: expected a tensor of shape {wanted}, which this learner needs, got None")
        else:
            values = self._shaped("values", values, state, self.gradients_shape[:-1], 1)
        view = self.numpy_view() if self.is_small and gradients.is_cpu and is_readable(gradients) else None
        if view is not None:
            self._step_on_numpy(view, gradients, values)
            return
        if self.validate and is_readable(gradients):
            check_values(self.response, gradients)
            if values is not None:
                check_values("values", values)
        with torch.no_grad():
            gradients = gradients.detach()
            # What is given may lie in the memory that a step writes.
            gradients = gradients.clone() if is_readable(gradients) else gradients
            values = None if values is None else values.detach()
            if values is not None and is_readable(values):
                values = values.clone()
            if not autocasts(gradients):
                self._observe(gradients, values)
                return
            with exactly(gradients):
                self._observe(gradients, values)

    def _shaped(self, name: str, value: Tensor, state: Tensor, shape: tuple[int, ...], axes: int) -> Tensor:
        """What a step was given, in the type of the state and of that shape; N = 1 may have an axis or not."""
        value = check_tensor(name, value, state)
        if value.shape == shape:
            return value
        wanted = (*self.batch_shape, self.points, self.dim)[: len(self.batch_shape) + axes]
        if self.points == 1 and value.shape == wanted:
            return value.reshape(shape)
        either = "" if self.points > 1 else f" or {shape_text(shape)}"
        raise ValueError(f"{name}: expected shape {shape_text(wanted)}{either}, got {shape_text(value.shape)}")

    def _step_on_numpy(self, view: NumpyView, gradients: Tensor, values: Tensor | None) -> None:
        rows = as_array(gradients)
        numbers: Any = None if values is None else as_array(values)
        if self.validate:
            check_array(self.response, rows)
            if numbers is not None:
                check_array("values", numbers)
        # Copies: what is given may lie in the memory that a step writes. One number is NumPy's scalar.
        view.run(view.learner._observe, rows.copy(), None if numbers is None else numbers.copy()[()])
        view.mark_written()


def checked_hint(hint: Any, like: Tensor, validate: bool) -> Tensor:
    """A hint, in the type and of the shape of a decision or of gradients. Eager Python only."""
    hint = check_tensor("hint", hint, like)
    check_shape("hint", hint, like.shape)
    if validate and is_readable(hint):
        check_values("hint", hint)
    return hint
