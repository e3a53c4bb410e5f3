"""Base class of the convex learners: decisions, queries and steps from gradients."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.convex.divergence import DivergenceWatch
from torchonline.core.all_or_nothing import all_or_nothing, one_at_a_time
from torchonline.core.backend import SMALL_STEP, as_array, autocasts, exactly, in_python, is_readable
from torchonline.core.checks import check_array, check_shape, check_values, positive_size, shape_text
from torchonline.core.inputs import ArrayLike, check_tensor
from torchonline.core.learner import Learner
from torchonline.core.ops import assign_
from torchonline.core.options import LearnerOptions
from torchonline.core.views import NumpyView


class ConvexLearner(Learner):
    """Base class of the learners of online convex optimisation.

    A round::

        gradients, values = torchonline.gradients(loss, learner, x, y)    # or a formula, at learner.queries()
        learner.step(gradients)

    A subclass implements :meth:`_observe`, which runs on tensors and on NumPy views.

    Args:
        dim: number of coordinates d.
        points: number of queries N.
        entries: size of the largest array in a step of one learner; None for d. If this array and the buffers are small, steps
            run on NumPy views.
        options: as in :class:`~torchonline.core.learner.Learner`.
    """

    if TYPE_CHECKING:

        def __call__(self) -> Tensor: ...

    decision: Tensor
    rounds: Tensor

    # Whether `step` needs the values of the loss, and the name of the gradients in its errors.
    needs_values = False
    response = "gradients"
    # Whether the single query is another point than the decision.
    asks_elsewhere = False
    # Tracks the cost of decisions, in a learner that warns about unscaled features.
    watch: DivergenceWatch | None = None

    def __init__(
        self, dim: int, *, points: int = 1, entries: int | None = None, **options: Unpack[LearnerOptions]
    ) -> None:
        super().__init__(dim, **options)
        self.points = points
        self.is_small = math.prod(self.batch_shape) * (self.dim if entries is None else entries) < SMALL_STEP
        # With one query, the axis of the queries may be missing.
        one = (self.dim,) if points == 1 else (points, self.dim)
        self.gradients_shape = (*self.batch_shape, *one)

    def _size(self, name: str, value: Any, *besides: float) -> float:
        """Return a scale of the state's values, above 0 or one of ``besides``, or raise."""
        return positive_size(name, value, self._initial_options["dtype"], besides=besides)

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {"decision": torch.zeros(self.dim, dtype=torch.float64), "rounds": torch.zeros((), dtype=torch.int64)}

    def _create_buffers(self) -> None:
        super()._create_buffers()
        self.is_small &= max(buffer.numel() for buffer in self.state().values()) < SMALL_STEP

    def _observe(self, gradients: Tensor, values: Tensor | None) -> None:
        """Learn from one round of each learner, and write the next decision.

        Errors must be raised before the first write. The arguments are copies of the arguments of :meth:`step`; ``values`` is
        None unless needed.
        """
        raise NotImplementedError

    def forward(self) -> Tensor:
        """Return the decision, ``(*B, d)``."""
        return self.predict()

    @torch.jit.export
    @one_at_a_time
    def predict(self) -> Tensor:
        """Return the decision, ``(*B, d)``. Change no state."""
        return self.decision.clone()

    @torch.jit.export
    @one_at_a_time
    def queries(self) -> Tensor:
        """Return the points for the next gradients, ``(*B, N, d)``. Change no state."""
        return self.decision.unsqueeze(-2).clone()

    @one_at_a_time
    def _step_in_python(self, gradients: ArrayLike, values: ArrayLike | None = None) -> None:
        """Check the types and shapes of a step's arguments, then learn."""
        state: Any = self._buffers["decision"]
        if isinstance(gradients, Tensor) and gradients.layout is torch.sparse_coo and self.response == "gradients":
            gradients = gradients.to_dense()
        rows: Any = self._shaped(self.response, gradients, state, self.gradients_shape, 2)
        if not self.needs_values:
            values = None
        elif values is None:
            wanted = shape_text((*self.batch_shape, self.points))
            raise ValueError(f"values: expected a tensor of shape {wanted}, which this learner needs, got None")
        else:
            values = self._shaped("values", values, state, self.gradients_shape[:-1], 1)
        view, rows, numbers = self._arguments_on_view(rows, values)
        if self.validate and (view is not None or is_readable(rows)):
            check: Callable[[str, Any], None] = check_values if view is None else check_array
            check(self.response, rows)
            if numbers is not None:
                check("values", numbers)
        # Copies, because the arguments may share memory that a step writes.
        self._learn_in_python(self._run, view, _copied(rows), None if numbers is None else _copied(numbers))

    @one_at_a_time
    def _learn_checked(self, gradients: Tensor, values: Tensor | None) -> None:
        """Learn from arguments in the state's type and shape, with checked values.

        The arguments and the state are not copied: an interrupted call leaves the learner torn until the caller restores it.
        """
        self._learn_in_python(self._run_once, *self._arguments_on_view(gradients, values))

    def _arguments_on_view(self, gradients: Tensor, values: Tensor | None) -> tuple[NumpyView | None, Any, Any]:
        """Return the view of a small step or None, and arguments in its form."""
        view = self.view_for(gradients) if self.is_small else None
        if view is None:
            return None, gradients.detach(), None if values is None else values.detach()
        return view, as_array(gradients), None if values is None else as_array(values)

    def _learn_in_python(self, run: Callable[..., None], view: NumpyView | None, gradients: Any, values: Any) -> None:
        """Learn from checked arguments: on a view, or without autocast on tensors."""
        watch = self.watch if self.validate else None
        product = None
        learner: Any = self if view is None else view.learner
        if watch is not None:
            product = watch.product(learner.decision, gradients)
            watch.warn(type(self).__name__, stacklevel=5)  # before the step: an error leaves the state as it was
        if view is not None:  # [()] makes one number a NumPy scalar
            run(view, learner._observe, [(gradients, None if values is None else values[()])])
        else:
            with torch.no_grad(), exactly(gradients) if autocasts(gradients) else nullcontext():
                run(None, learner._observe, [(gradients, values)])
        if watch is not None:
            watch.count(product)

    def _run_once(self, view: NumpyView | None, learn: Callable[..., None], rounds: list[tuple[Any, ...]]) -> None:
        """Learn from one round without a copy of the state."""
        if view is not None:
            view.journal.forget()
        all_or_nothing(self, None, learn, *rounds[0])
        if view is not None:
            view.mark_written()

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, gradients: Tensor, values: Tensor | None = None) -> None:
        """Learn from the gradients of a round's loss at the points of :meth:`queries`.

        A wrong type, shape, device or value raises TypeError or ValueError, and changes no buffer.

        Args:
            gradients: ``(*B, N, d)``, or ``(*B, d)`` where N = 1; real numbers, not an integer tensor. Sparse COO tensors of
                gradients are made dense, and give the same decisions, bit for bit.
            values: values of the loss at the same points, ``(*B, N)``, or ``(*B)`` where N = 1, if the learner needs them.
        """
        with torch.no_grad():
            gradients = gradients.detach().to(self.decision.dtype, copy=True)
            if self.points == 1:
                gradients = gradients.reshape(self.decision.shape)
            if values is not None:
                values = values.detach().to(self.decision.dtype, copy=True)
                if self.points == 1:
                    values = values.reshape(self.rounds.shape)
            self._observe(gradients, values)

    def _shaped(self, name: str, value: Any, state: Tensor, shape: tuple[int, ...], axes: int) -> Tensor:
        """Return an argument of a step in the state's type and in ``shape``, or raise."""
        value = check_tensor(name, value, state, is_real=name == "values")
        if value.shape == shape:
            return value
        wanted = (*self.batch_shape, self.points, self.dim)[: len(self.batch_shape) + axes]
        if self.points == 1 and value.shape == wanted:
            return value.reshape(shape)
        either = "" if self.points > 1 else f" or {shape_text(shape)}"
        raise ValueError(f"{name}: expected shape {shape_text(wanted)}{either}, got {shape_text(value.shape)}")

    @one_at_a_time
    def _tell(self, write: Callable[[Tensor], None], what: Tensor) -> None:
        """Write a value given between rounds: all or nothing, and without autocast."""
        with torch.no_grad(), exactly(what) if autocasts(what) else nullcontext():
            self._run(None, write, [(what.detach(),)])


class HintedLearner(ConvexLearner):
    """Base class of the learners with a hint. A subclass implements :meth:`_decide_`."""

    hint: Tensor

    def _decide_(self) -> None:
        """Write the next decision, from ``hint`` and all other buffers."""
        raise NotImplementedError

    def _cut_hint(self, hint: Tensor) -> Tensor:
        """Return a hint, ``(*B, d)``, scaled down to where the guarantee holds."""
        return hint

    def _set_hint_in_python(self, hint: Any) -> None:
        self._tell(self._set_hint_, checked_hint(hint, self.decision, self.validate))

    @torch.jit.export
    @in_python(_set_hint_in_python)
    def set_hint(self, hint: Tensor) -> None:
        """Replace the hint of the next round, and update the decision.

        The hint is a guess of the next gradient, or of the next losses, ``(*B, d)``. It may depend on everything known before the
        round. The class says how long the hint is used and whether it is scaled down. A wrong type, shape, device or value raises
        TypeError or ValueError, and changes no buffer.
        """
        self._set_hint_(hint)

    def _set_hint_(self, hint: Tensor) -> None:
        with torch.no_grad():
            assign_(self.hint, self._cut_hint(hint.detach().to(self.decision.dtype)))
            self._decide_()


def _copied(value: Any) -> Any:
    """Copy an array or a tensor, but not a traced one."""
    if type(value) is np.ndarray:
        return value.copy()
    return value.clone() if is_readable(value) else value


def checked_hint(hint: Any, like: Tensor, validate: bool) -> Tensor:
    """Return a hint in the type and shape of a decision or of gradients, or raise."""
    hint = check_tensor("hint", hint, like)
    check_shape("hint", hint, like.shape)
    if validate and is_readable(hint):
        check_values("hint", hint)
    return hint
