"""Decisions that enter the statistics before their rewards are known."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchonline.core.backend import MISSING, is_readable
from torchonline.core.checks import LARGEST_EXACT, refusal, shape_text
from torchonline.core.inputs import as_tensor
from torchonline.regression.arguments import (
    as_actions,
    as_reward,
    checked_responses,
    learn_on_tensors,
    places_of_arrays,
    rounds_of_arrays,
    with_places,
)

# The first entry of a record, a number by which a record is told from another tensor. The second entry is the id of the arm.
TAG, HEAD = 20140517.25, 2


def opened_decisions(policy: Any, inputs: Any, action: Any, noise_scale: Any) -> Tensor:
    """Open decisions in order, all or none; return their records.

    A record holds the tag, the id of the arm or 0, and the entries of the learner's ``_open_round``.
    """
    learner, state = policy._owners()[0], policy._state()
    x = policy._checked_inputs(inputs, ("n",))
    no_reward = x.new_zeros(x.shape[: x.dim() - policy.item_dims])
    x, place, _, noise_scale, is_one = policy._checked_rounds(x, action, no_reward, noise_scale)
    # One model for all arms does not depend on the arm.
    place = no_reward.to(torch.int64) if policy.has_arm_inputs else torch.as_tensor(place, device=state.device)
    found: list[Any] = []

    def open(on: Any, x: Any, place: Any, reward: Any, noise_scale: Any) -> None:
        found.append(on._open_round(x, place, noise_scale))

    _run(policy, open, "inputs", (x, no_reward, noise_scale), place, is_one)
    rows = [torch.as_tensor(row, device=state.device).to(torch.float64) for row in found]
    ids = policy._named(place).to(torch.float64).unsqueeze(-1)
    if is_one:
        record = rows[0]
    else:
        none = ids.new_zeros((*place.shape, _width(policy) - HEAD))
        record = torch.stack(rows, learner.batch_dims) if rows else none
    return torch.cat([torch.full_like(ids, TAG), ids, record], -1)


def close_decisions(policy: Any, opened: Any, reward: Any) -> None:
    """Learn the rewards of open decisions in order, all or none; ``MISSING`` drops.

    See ``Policy.close`` and ``Policy.drop``.
    """
    state, record = policy._state(), _checked_record(policy, opened)
    shape = record.shape[:-1]
    rows = record[..., HEAD:].detach().to(state.dtype)
    is_dropped, is_one = reward is MISSING, len(shape) == policy._owners()[0].batch_dims
    reward = rows.new_zeros(shape) if is_dropped else checked_responses("reward", reward, None, state, shape)[0]

    def close(on: Any, opened: Any, place: Any, reward: Any, noise_scale: Any) -> None:
        on._drop_round(opened, place)
        if not is_dropped:
            try:
                on._learn_opened(opened, place, reward)
            except ValueError as error:
                error.is_refusal = False  # type: ignore[attr-defined]  # the drop has written, so there is something to undo
                raise

    _run(policy, close, "opened", (rows, as_reward(reward), None), _places(policy, record), is_one)


def _run(
    policy: Any, call: Any, name: str, arguments: tuple[Tensor, Tensor, Tensor | None], place: Tensor, is_one: bool
) -> None:
    """Call a function of the learner and the arguments of each round, all or nothing.

    ``arguments`` are rows, called ``name`` in errors, rewards and noise scales. The learner may be one on NumPy views.
    """
    learner, (x, reward, noise_scale) = policy._owners()[0], arguments
    is_small = learner.is_small and (policy.has_batch_views or not learner.batch_dims)
    view = learner.view_for(x) if is_small else None
    if view is None:
        learn_on_tensors(learner, x, reward, noise_scale, is_one, name, place, partial(call, learner))
    else:
        rounds = rounds_of_arrays(learner, view.learner, x, reward, noise_scale, is_one, name)
        places = places_of_arrays(place, learner.batch_dims)
        learner._run(view, partial(call, view.learner), with_places(rounds, places))


def _width(policy: Any) -> int:
    """Return the number of entries of a record."""
    learner, estimator = policy._owners()
    return HEAD + (0 if learner is estimator else learner.dim) + estimator.dim + 2


def _checked_record(policy: Any, opened: Any) -> Tensor:
    """Return the records as a tensor, or raise."""
    learner, state = policy._owners()[0], policy._state()
    record = as_tensor("opened", opened, state.device)
    if record.dtype != torch.float64:
        raise TypeError(f"opened: expected the torch.float64 tensor that open() returned, got {record.dtype}")
    if record.device != state.device:
        raise ValueError(f"opened: expected a tensor on {state.device}, got one on {record.device}")
    one = (*learner.batch_shape, _width(policy))
    dims = learner.batch_dims
    if record.shape != one and (record.dim() != dims + 2 or record.shape[:dims] + record.shape[dims + 1 :] != one):
        wanted = f"{shape_text(one)} or {shape_text((*one[:-1], 'n', one[-1]))}"
        raise ValueError(f"opened: expected shape {wanted}, as open() returns, got {shape_text(record.shape)}")
    if (learner.validate or record.is_cpu) and is_readable(record):
        if not bool((record[..., 0] == TAG).all()):
            raise refusal("opened: expected a record that open() returned, got another tensor")
        if not bool((record[..., -2] >= policy.estimator.smallest_noise_scale).all()):
            raise refusal("opened: expected a record that open() returned, got one with a changed noise scale")
    return record


def _places(policy: Any, record: Tensor) -> Tensor:
    """Return the positions of the arms of records, or raise."""
    arm = record[..., 1]
    if policy.has_arm_inputs:
        return torch.zeros_like(arm, dtype=torch.int64)
    may_ask = policy._owners()[0].validate or arm.is_cpu
    if may_ask and is_readable(arm) and not bool(((arm >= 0) & (arm < LARGEST_EXACT) & (arm == arm.floor())).all()):
        raise refusal("opened: expected a record that open() returned, got one with a changed arm")
    try:
        ids = policy._placed(arm.to(torch.int64))
        return as_actions(ids, arm.shape, arm.device, policy._count(policy._like()), may_ask)
    except ValueError as error:
        raise refusal(str(error).replace("action:", "opened:", 1)) from None
