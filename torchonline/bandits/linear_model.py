"""What all linear models share: their statistics, their widths, and a step that is checked, whole, and fast when it is small."""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.jit import is_scripting

from torchonline.core.checks import (
    LARGEST,
    ORDINARY,
    check_array,
    check_shape,
    check_size,
    check_tensor,
    check_values,
    positive,
    positive_integer,
    shape_text,
)
from torchonline.core.learner import SMALL_STEP, Learner, NumpyView
from torchonline.core.ops import (
    ARRAYS,
    as_array,
    at_least,
    autocasts,
    converted,
    exactly,
    fill_,
    is_at_hand,
    is_readable,
    may_hold,
    roundoff,
    row_dots,
    rows_times,
    sqrt,
)
from torchonline.linalg import fill_identity_, refine_inverse_


def default_ridge(dim: int, theta_bound: float) -> float:
    """The ridge d / S^2, which makes what is known of the parameter before the first round weigh as much as d."""
    dim, bound = positive_integer("dim", dim), positive("theta_bound", theta_bound)
    if not 1e-20 <= bound <= 1e20:
        raise ValueError(f"theta_bound: expected from 1e-20 to 1e20, unless ridge is given, got {bound:g}")
    return dim / bound**2


class LinearModel(Learner):
    """Base of all linear models: a linear prediction of a response, an ellipsoid around it, and a one-pass update.

    The response is a reward (:class:`Estimator`), or ``output_shape`` of numbers that are predicted from the same features.
    A subclass says two things: the :meth:`radius` of the confidence set
    ``|x'theta - x'theta_hat| <= radius * sqrt(x' width_matrix x)``, and :meth:`_observe`, which learns from one round.
    If it adds buffers to these here, :meth:`_forget_` says how they are emptied. All of them run on tensors and on NumPy
    views.

    With ``restart_every=n`` each learner forgets everything after n rounds and starts anew: each buffer is what it was
    before the first round, and ``rounds`` counts the rounds since the last start.
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        V_lost: Tensor | None
    theta_hat: Tensor
    V: Tensor
    V_inv: Tensor
    rounds: Tensor

    # What `step` calls the response.
    response = "reward"

    def __init__(
        self,
        dim: int,
        *,
        output_shape: tuple[int, ...] = (),
        ridge: float,
        radius_scale: float,
        restart_every: int | None = None,
        batch_shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device | str | None,
        validate: bool,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.output_shape = output_shape
        self.ridge = positive("ridge", ridge)
        check_size("ridge", self.ridge, torch.finfo(dtype).max, dtype)
        self.radius_scale = positive("radius_scale", radius_scale)
        self.restart_every = None if restart_every is None else positive_integer("restart_every", restart_every)
        self.smallest_noise_scale = 0.0
        self.features_shape = (*self.batch_shape, self.dim)
        self.is_small = math.prod(self.batch_shape) * self.dim * max(self.dim, *output_shape, 1) < SMALL_STEP
        # Rounds between two corrections of the inverse, one column each.
        self.refine_every = 8
        # A float32 sum of many outer products needs compensation; a float64 one does not.
        self.compensated = dtype == torch.float32

    def _initial_state(self) -> dict[str, Tensor | None]:
        identity = torch.eye(self.dim, dtype=torch.float64)
        return {
            "theta_hat": torch.zeros((self.dim, *self.output_shape), dtype=torch.float64),
            "V": self.ridge * identity,
            "V_inv": identity / self.ridge,
            "V_lost": torch.zeros_like(identity) if self.compensated else None,
            "rounds": torch.zeros((), dtype=torch.int64),
        }

    def radius(self) -> Tensor:
        """Confidence radius after the rounds so far, times ``radius_scale``: shape ``(*B)``, and one for each output."""
        raise NotImplementedError

    def width_matrix(self) -> Tensor:
        """The matrix M of ``width(x) = sqrt(x'Mx)``: shape ``(*B, d, d)``; ``V_inv``, unless a subclass has another."""
        return self.V_inv

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn from one round of each learner: ``(*B, d)``, ``(*B)``, ``(*B)``. Refuse before the first write.

        Rewards and noise scales have ``output_shape`` besides.
        """
        raise NotImplementedError

    def _own_scale(self, reward: Tensor) -> Tensor:
        """The constructor's noise scale for rounds without one, shaped like their responses. Not on NumPy views."""
        raise NotImplementedError

    def _forget_(self, due: Tensor) -> None:
        """Put each buffer back to its value before the first round, in the learners that are ``due``, ``(*B)``."""
        self._forget_regression_(due)

    def _forget_regression_(self, due: Tensor) -> None:
        """:meth:`_forget_` for the buffers that all estimators have."""
        fill_(self.theta_hat, due[..., None], 0.0)
        fill_identity_(self.V, self.V_lost, due, self.ridge)
        fill_identity_(self.V_inv, None, due, 1.0 / self.ridge)
        rounds = self.rounds
        rounds *= ~due

    def _create_buffers(self) -> None:
        # What is out of the range of the state's dtype would be infinite there, or 0.
        for name in ("noise_scale", "theta_bound", "feature_bound", "minimum_scale"):
            value = self.__dict__.get(name)
            if value:
                check_size(name, value, LARGEST[self._initial_options["dtype"]], self._initial_options["dtype"])
        super()._create_buffers()

    @torch.jit.export
    def width(self, x: Tensor) -> Tensor:
        """The norm that the radius multiplies: ``(*B, ..., d)`` to ``(*B, ...)``. Differentiable in ``x``."""
        if not is_scripting():
            if self._check_rows(x):
                with exactly(x):
                    return self.width(x)
        x = converted(x, self.theta_hat)
        is_single = self.batch_dims == 0
        square = self._squared_width(x) if is_single else self._squared_width(self.grouped(x)).reshape(x.shape[:-1])
        # Not 0, where a square root has no slope.
        return sqrt(at_least(square, 1e-38))

    def _squared_width(self, x: Tensor) -> Tensor:
        """``x'Mx`` for rows: ``(..., d)`` of one learner, or ``(*B, n, d)``."""
        return row_dots(rows_times(x, self.width_matrix()), x)

    def grouped(self, x: Tensor) -> Tensor:
        """``(*B, ..., d)`` as one list of rows for each learner, ``(*B, n, d)``."""
        return x.reshape(list(self.rounds.shape) + [-1, self.dim])

    def _learn(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> None:
        """Learn from one round or from several in order, on tensors."""
        with torch.no_grad():
            x = x.detach().to(self.theta_hat.dtype)
            reward = reward.detach().to(self.theta_hat.dtype)
            scale = self._own_scale(reward) if noise_scale is None else noise_scale.detach().to(self.theta_hat.dtype)
            if x.dim() == self.batch_dims + 1:
                self._learn_round(x, reward, scale)
            else:
                if not is_scripting():
                    self._observe_in_order(x, reward, scale)
                else:
                    rows = self.batch_dims
                    for i in range(x.size(rows)):
                        self._learn_round(x.select(rows, i), reward.select(rows, i), scale.select(rows, i))

    def _learn_round(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn from one round of each learner, and start anew where that was the last of an epoch."""
        self._observe(x, reward, noise_scale)
        if self.restart_every is not None:
            self._restart_(self.rounds >= self.restart_every)

    def _restart_(self, due: Tensor) -> None:
        """Forget everything in the learners that are ``due``, ``(*B)``: without asking whether any is, if that would stall."""
        if may_hold(due):
            self._forget_(due)

    def _refine_(self, inverse: Tensor, matrix: Tensor) -> None:
        """Correct the column of an inverse whose turn it is."""
        refine_inverse_(inverse, matrix, self.rounds // self.refine_every)

    def _count_round(self) -> bool:
        """Count a round; whether one learner's inverses are due for correction, and so all are corrected.

        Yes without asking where the answer would stall an accelerator.
        """
        rounds = self.rounds
        if not is_scripting():
            if isinstance(rounds, np.ndarray) and rounds.ndim == 0:
                count = int(rounds) + 1
                rounds[()] = count  # a third of the time of +=
                return count % self.refine_every == 0
        rounds += 1
        if not is_at_hand(rounds):
            return True
        return bool((rounds % self.refine_every == 0).any())

    # What follows is eager Python only: TorchScript and torch.export never reach it.

    def _check_rows(self, x: Tensor) -> bool:
        """Refuse what are no rows of features; whether automatic mixed precision has to be kept from their products."""
        if isinstance(x, np.ndarray) and isinstance(self.theta_hat, np.ndarray):
            return False
        check_tensor("x", x, self.theta_hat)
        batch, shape = self.batch_shape, x.shape
        if len(shape) <= len(batch) or shape[: len(batch)] != batch or shape[-1] != self.dim:
            wanted = shape_text((*batch, "...", self.dim))
            raise ValueError(f"x: expected shape {wanted}, got {shape_text(shape)}")
        return autocasts(x)

    def _step_eagerly(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> None:
        """Check the arguments of a step, then learn: on NumPy views where that is faster."""
        state: Any = self._buffers["theta_hat"]  # a fifth of the time of self.theta_hat
        x = check_tensor("x", x, state)
        reward = check_tensor(self.response, reward, state)
        shape = x.shape
        if shape != self.features_shape and shape[:-2] + shape[-1:] != self.features_shape:
            one, several = (*self.batch_shape, self.dim), (*self.batch_shape, "n", self.dim)
            raise ValueError(f"x: expected shape {shape_text(one)} or {shape_text(several)}, got {shape_text(shape)}")
        shape = shape[:-1] + self.output_shape
        check_shape(self.response, reward, shape)
        if noise_scale is not None:
            noise_scale = check_tensor("noise_scale", noise_scale, state)
            check_shape("noise_scale", noise_scale, shape)
        view = self.view_for(x) if self.is_small else None
        if view is not None:
            self._step_on_numpy(view, x, reward, noise_scale)
            return
        if is_readable(reward):
            self._check_rewards(reward, noise_scale)
        if not autocasts(x):
            self._learn(x, reward, noise_scale)
            return
        with exactly(x):
            self._learn(x, reward, noise_scale)

    def _check_rewards(self, reward: Tensor, noise_scale: Tensor | None) -> None:
        # The values of x are checked through x'V^-1x, in `_check_quadratic`.
        if self.validate:
            check_values(self.response, reward)
            if noise_scale is not None:
                check_values("noise_scale", noise_scale, self.smallest_noise_scale)

    def _is_ordinary(self, reward: float) -> bool:
        """Whether :meth:`_check_rewards` would pass one learner's reward; no where that is not seen at once."""
        return abs(reward) <= ORDINARY

    def _check_quadratic(self, x: Tensor, quadratic: Tensor, name: str = "x") -> None:
        """Refuse a round that an inverse cannot follow: NaN, infinity, or a growth beyond the state's resolution."""
        if not self.validate:
            return
        if isinstance(quadratic, float) and quadratic < 2.0**52:  # one learner in double precision
            return
        largest = 1.0 / roundoff(quadratic)
        if isinstance(quadratic, ARRAYS):
            if (quadratic.max() if isinstance(quadratic, np.ndarray) else quadratic) < largest:
                return
        elif not is_readable(quadratic) or quadratic.max().item() < largest:
            return
        check_values("x", torch.as_tensor(x))
        raise ValueError(
            f"{name}: expected a round that adds less than {largest:.1e} to the statistics in its direction, all that the "
            f"state's dtype can resolve, got {torch.as_tensor(quadratic).max():.1e}; scale the features down or raise ridge"
        )

    def view_for(self, x: Tensor) -> NumpyView | None:
        """What a call on ``x`` may run on in place of tensors: NumPy views, on the CPU and in eager mode."""
        return self.numpy_view() if x.is_cpu and is_readable(x) else None

    def _step_on_numpy(self, view: NumpyView, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> None:
        learn = view.learner._learn_round
        rows = as_array(x)
        # One learner's numbers are Python's, which have no precision of their own to impose.
        is_number = not (self.batch_dims or self.output_shape)
        numbers: Callable[[Tensor], Any] = Tensor.tolist if is_number else as_array
        rewards = numbers(reward)
        scales: Any = view.learner.noise_scale if noise_scale is None else numbers(noise_scale)
        if self.validate:
            if noise_scale is not None or not (isinstance(rewards, float) and self._is_ordinary(rewards)):
                self._check_rewards(reward, noise_scale)
            check_array("x", rows)
        if rows.ndim == self.batch_dims + 1:
            view.run(learn, rows, rewards, scales)
        else:
            # Copies: the rows may be views of the very buffers that learning from the first of them changes.
            rows = np.moveaxis(rows, self.batch_dims, 0).copy()
            if not is_number:
                rewards = np.moveaxis(rewards, self.batch_dims, 0).copy()
            if noise_scale is None:
                scales = [scales] * len(rows)
            elif not is_number:
                scales = np.moveaxis(scales, self.batch_dims, 0).copy()
            view.run(self._all_or_nothing, learn, view.state, rows, rewards, scales)
        view.mark_written()

    def _observe_in_order(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        if self.validate and is_readable(x):
            check_values("x", x)
        rows = [value.clone().unbind(self.batch_dims) for value in (x, reward, noise_scale)]
        self._all_or_nothing(self._learn_round, list(self.state().values()), *rows)

    def _all_or_nothing(self, learn: Callable[..., None], state: list[Any], *rows: Iterable[Any]) -> None:
        """Learn from rounds in order; put ``state``, tensors or arrays, back if one of them is refused."""
        before = [value.clone() if isinstance(value, Tensor) else value.copy() for value in state]
        try:
            for row in zip(*rows, strict=True):
                learn(*row)
        except BaseException:
            for value, old in zip(state, before, strict=True):
                value[...] = old
            raise
