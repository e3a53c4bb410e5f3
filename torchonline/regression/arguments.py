"""The arguments of bandit calls: rows of features, and the rounds of a step."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.backend import as_array, autocasts, exactly, is_readable, with_body
from torchonline.core.checks import check_array, check_shape, check_values, is_ordinary, refusal, shape_text
from torchonline.core.compiled import MOST_GROWTH
from torchonline.core.inputs import ArrayLike, as_indices, check_tensor, plain_array, plain_number
from torchonline.core.ops import roundoff
from torchonline.core.sparse import is_sparse
from torchonline.regression.sparse_rows import answers_on_rows, step_on_rows

S = TypeVar("S")
T = TypeVar("T")


def on_rows(method: Callable[[S, Tensor], T]) -> Callable[[S, ArrayLike], T]:
    """Decorate an estimator's method on rows: check the rows, disable autocast.

    TorchScript compiles only the method.
    """

    def look(self: Any, x: Any) -> Any:
        if is_sparse(x):
            return answers_on_rows(self, method, x)
        x = checked_rows(self, x)
        if not autocasts(x):
            return method(self, x)
        with exactly(x):
            return method(self, x)

    decorated: Any = with_body(method, "return _checked({all})", _checked=one_at_a_time(look))
    decorated.on_views = method
    return decorated


def checked_rows(estimator: Any, x: Any) -> Tensor:
    """Return rows ``(*B, ..., d)`` as a tensor, or raise."""
    x = check_tensor("x", x, estimator._buffers["theta_hat"])
    shape, dims = x.shape, estimator.batch_dims
    if len(shape) <= dims or shape[-1] != estimator.dim or (dims and shape[:dims] != estimator.batch_shape):
        wanted = shape_text((*estimator.batch_shape, "...", estimator.dim))
        raise ValueError(f"x: expected shape {wanted}, got {shape_text(shape)}")
    return x


@one_at_a_time
def step_rounds(self: Any, x: ArrayLike, reward: ArrayLike, *, noise_scale: ArrayLike | None = None) -> None:
    """Check a step's arguments, then learn, on NumPy views where that is faster."""
    if is_sparse(x):
        step_on_rows(self, x, reward, noise_scale)
        return
    own = self.__dict__  # a fifth of the time of self.name
    view = self.view_for(x) if own["is_small"] else None
    if view is not None and noise_scale is None:
        one = plain_round(view.learner, x, reward)
        if one is not None:
            self._run(view, view.learner._learn_round, [one])
            return
    x, reward, noise_scale, is_one = checked_rounds(self, own["_buffers"]["theta_hat"], x, reward, noise_scale)
    if view is None and own["is_small"]:
        view = self.view_for(x)
    if view is not None:
        rounds = rounds_of_arrays(self, view.learner, x, reward, noise_scale, is_one)
        self._run(view, view.learner._learn_round, rounds)
        return
    learn_on_tensors(self, x, reward, noise_scale, is_one)


def learn_on_tensors(
    learner: Any,
    x: Tensor,
    reward: Any,
    noise_scale: Tensor | None,
    is_one: bool,
    name: str = "x",
    place: Any = None,
    learn: Callable[..., None] | None = None,
) -> None:
    """Check the values of rounds, then learn from them on tensors, all or nothing.

    ``place`` is the position of the chosen arm, for a learner that needs it. ``name`` is the features' name in errors. ``learn``
    takes the arguments of the learner's ``_learn_round``, which is the default.
    """
    reward = as_reward(reward)
    if is_readable(reward):
        learner._check_rewards(reward, noise_scale)
        # An estimator checks the features of one round where it looks at its growth.
        if learner.validate and not (is_one and place is None):
            check_values(name, x)
    with torch.no_grad(), exactly(x) if autocasts(x) else nullcontext():
        rounds = rounds_of_tensors(learner, x, reward, noise_scale, is_one)
        if place is not None:
            place = torch.as_tensor(place, device=x.device)
            rounds = with_places(rounds, [place] if is_one else place.unbind(learner.batch_dims))
        learner._run(None, learner._learn_round if learn is None else learn, rounds)


def places_of_arrays(place: Any, dims: int) -> Any:
    """Return the chosen places by round, as integers or arrays ``(*B)``.

    ``place`` is an integer or a tensor, ``(*B)`` of one round or ``(*B, n)``, and ``dims`` the number of dimensions of ``*B``.
    """
    if type(place) is int:
        return [place]
    rows = as_array(place)
    if dims == 0:
        return rows.reshape(-1).tolist()
    return [rows] if rows.ndim == dims else np.moveaxis(rows, dims, 0)


def with_places(rounds: list[Any], places: Any) -> list[Any]:
    """Insert the position of the chosen arm after the features of each round."""
    return [(x, place, *rest) for (x, *rest), place in zip(rounds, places, strict=True)]


def plain_round(learner: Any, x: Any, reward: Any) -> tuple[Any, float, float] | None:
    """Return a plain round as :func:`rounds_of_arrays` does; or None.

    A plain round needs no conversion and is sure to pass all checks. All other rounds, including wrong ones, take the slow
    path. ``learner`` is on NumPy views.
    """
    state = learner._buffers["theta_hat"]
    rows, number = plain_array(x, state), plain_number(reward, state)
    if rows is None or number is None or rows.shape != learner.features_shape or learner.response_shape:
        return None
    if learner.validate and not (is_ordinary(rows) and learner._is_ordinary(number)):
        return None
    return rows, number, learner.noise_scale


def checked_rounds(
    learner: Any, state: Tensor, x: Any, reward: Any, noise_scale: Any
) -> tuple[Tensor, Any, Tensor | None, bool]:
    """Return a step's arguments as tensors, and whether they are one round; or raise.

    ``state`` is a tensor of the learner's. The reward of one round stays a Python float where learning needs no tensor, see
    :func:`as_reward`.
    """
    x = check_tensor("x", x, state)
    shape = x.shape
    is_one = shape == learner.features_shape
    if is_one:
        shape = learner.response_shape
    elif shape[:-2] + shape[-1:] == learner.features_shape:
        shape = shape[:-1] + learner.output_shape
    else:
        one, several = learner.features_shape, (*learner.batch_shape, "n", learner.dim)
        raise ValueError(f"x: expected shape {shape_text(one)} or {shape_text(several)}, got {shape_text(shape)}")
    reward, noise_scale = checked_responses(learner.response, reward, noise_scale, state, shape)
    return x, reward, noise_scale, is_one


def checked_responses(
    name: str, reward: Any, noise_scale: Any, state: Tensor, shape: tuple[int, ...]
) -> tuple[Any, Tensor | None]:
    """Return rewards and noise scales of a shape, in the state's type; or raise.

    ``name`` is the rewards' name in errors.
    """
    if type(reward) is not float or shape or not (state.is_cpu and state.dtype is torch.float64):
        reward = check_tensor(name, reward, state, is_real=True)
        check_shape(name, reward, shape)
    if noise_scale is not None:
        noise_scale = check_tensor("noise_scale", noise_scale, state, is_real=True)
        check_shape("noise_scale", noise_scale, shape)
    return reward, noise_scale


def as_reward(reward: Any) -> Tensor:
    """Return a reward of :func:`checked_responses` as a tensor."""
    return torch.tensor(reward, dtype=torch.float64, device="cpu") if type(reward) is float else reward


def depth(value: Any) -> int:
    """Return the dimensions of a tensor or an array; 1 of a list, 0 of a number."""
    return int(getattr(value, "ndim", isinstance(value, (list, tuple))))


def as_actions(action: Any, shape: tuple[int, ...], device: torch.device, count: int, may_ask: bool) -> Tensor:
    """Return indices of arms below ``count`` as a tensor, or raise.

    Without ``may_ask``, values are not read.
    """
    index = as_indices("action", action, device)
    check_shape("action", index, shape)
    if index.device != device:
        raise ValueError(f"action: expected a tensor on {device}, got one on {index.device}")
    if may_ask and is_readable(index):
        is_bad = (index < 0) | (index >= count)
        if bool(is_bad.any()):
            raise out_of_range(int(index[is_bad][0]), count)
    return index


def out_of_range(index: int, count: int) -> ValueError:
    """Return the error for an arm index out of range."""
    return ValueError(f"action: expected indices from 0 to {count - 1}, got {index}")


def rounds_of_arrays(
    learner: Any, view: Any, x: Tensor, reward: Any, noise_scale: Tensor | None, is_one: bool, name: str = "x"
) -> list[Any]:
    """Check the values; return each round's arguments as arrays and Python numbers."""
    rows = as_array(x)
    # A single learner uses Python numbers, which impose no precision.
    is_number = not (learner.batch_dims or learner.output_shape)
    values: Any = Tensor.tolist if is_number else as_array
    rewards: Any = reward if type(reward) is float else values(reward)
    scales = view.noise_scale if noise_scale is None else values(noise_scale)
    if learner.validate:
        if noise_scale is not None or isinstance(rewards, list) or not learner._is_ordinary(rewards):
            learner._check_rewards(as_reward(reward), noise_scale)
        check_array(name, rows)
    if is_one:
        return [(rows, rewards, scales)]
    # Copies: the rows may be views of buffers that learning the first row changes.
    rows = np.moveaxis(rows, learner.batch_dims, 0).copy()
    if not is_number:
        rewards = np.moveaxis(rewards, learner.batch_dims, 0).copy()
    if noise_scale is None:
        scales = [scales] * len(rows)
    elif not is_number:
        scales = np.moveaxis(scales, learner.batch_dims, 0).copy()
    return list(zip(rows, rewards, scales, strict=True))


def rounds_of_tensors(learner: Any, x: Tensor, reward: Tensor, noise_scale: Tensor | None, is_one: bool) -> list[Any]:
    """Return the arguments of each round as tensors."""
    x, reward = x.detach(), reward.detach()
    scale = learner._own_scale(reward) if noise_scale is None else noise_scale.detach()
    if is_one:
        return [(x, reward, scale)]
    return list(zip(*(value.clone().unbind(learner.batch_dims) for value in (x, reward, scale)), strict=True))


def check_growth(self: Any, x: Any, quadratic: Any, is_response: bool = False) -> None:
    """Refuse a round whose ``quadratic``, a'V^-1 a, the dtype cannot resolve."""
    if isinstance(quadratic, (float, np.float32)) and quadratic < MOST_GROWTH:  # one learner, in either precision
        return
    if isinstance(quadratic, Tensor) and not is_readable(quadratic):
        self._note(~(quadratic < 1.0 / roundoff(quadratic)))
        return
    if not self.validate:
        return
    largest, most = self._largest(quadratic), 1.0 / roundoff(quadratic)
    if largest < most:
        return
    check_values("x", x if isinstance(x, Tensor) else torch.tensor(x))  # a copy: the array may be read-only
    name = self.response if is_response else "x"
    raise refusal(
        f"{name}: expected a round that adds less than {most:.1e} to the statistics in its direction, the most that the "
        f"state's dtype can resolve, got {largest:.1e}; scale the features down or raise ridge"
    )


def check_can_be_removed(self: Any, x: Any, quadratic: Any) -> None:
    """Refuse an open decision that rounding would not let be taken out again.

    That is one with nearly all information in its direction, given ``quadratic``, a'V^-1 a.
    """
    if self.validate and (not isinstance(quadratic, Tensor) or is_readable(quadratic)):
        largest, most = self._largest(quadratic), 1.0 / (1.0 - self.most_of_a_direction)
        if not largest < most:
            check_values("x", x if isinstance(x, Tensor) else torch.tensor(x))
            wanted = f"a decision that adds less than {most:.0f} to the statistics in its direction"
            raise refusal(f"x: expected {wanted}, got {largest:.1e}; call step() when the reward has come")


def check_is_open(self: Any, quadratic: Any) -> None:
    """Refuse an open decision that cannot be in V: a'V^-1 a is then not below 1.

    A decision that is not in V may pass.
    """
    # Checked with validate=False too: what was never in V would make the state NaN.
    if not isinstance(quadratic, Tensor) or is_readable(quadratic):
        is_below = quadratic < 1.0 - 1e-3 * (1.0 - self.most_of_a_direction)
        if not (is_below if isinstance(is_below, bool) else is_below.all()):
            wanted = "a decision that is open in this state"
            raise refusal(f"opened: expected {wanted}, got one of another state, before a reset() or a load, say")
