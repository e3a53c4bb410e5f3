"""Decisions that enter the statistics before their rewards are known."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from torchonline.core.backend import autocasts, exactly, is_readable
from torchonline.core.checks import LARGEST_EXACT, check_values, refusal, shape_text
from torchonline.core.inputs import as_tensor
from torchonline.regression.arguments import (
    as_actions,
    as_reward,
    checked_responses,
    places_of_arrays,
    rounds_of_arrays,
    rounds_of_tensors,
)

# The first entry of a record, which other tensors hardly have there. The second entry is the id of the arm.
TAG, HEAD = 20140517.25, 2


def opened_decisions(policy: Any, inputs: Any, action: Any, noise_scale: Any) -> Tensor:
    """Open decisions in order, all or none; return their records. See ``Policy.open``.

    A record holds the tag, the id of the arm or 0, and the entries of the learner's ``_open_round``.
    """
    learner, state = policy._owners()[0], policy._state()
    x = policy._checked_inputs(inputs, ("n",))
    no_reward = x.new_zeros(x.shape[: x.dim() - policy.item_dims])
    x, place, _, noise_scale, is_one = policy._checked_rounds(x, action, no_reward, noise_scale)
    # One model for all arms does not depend on the arm.
    place = no_reward.to(torch.int64) if policy.has_arm_inputs else torch.as_tensor(place, device=state.device)
    found: list[Any] = []

    def keep(open_round: Any, x: Any, place: Any, noise_scale: Any) -> None:
        found.append(open_round(x, place, noise_scale))

    _run(policy, "_open_round", "inputs", (x, no_reward, noise_scale), place, is_one, keep)
    rows = [torch.as_tensor(row, device=state.device).to(torch.float64) for row in found]
    ids = policy._named(place).to(torch.float64).unsqueeze(-1)
    if is_one:
        record = rows[0]
    else:
        none = ids.new_zeros((*place.shape, _width(policy) - HEAD))
        record = torch.stack(rows, learner.batch_dims) if rows else none
    return torch.cat([torch.full_like(ids, TAG), ids, record], -1)


def close_decisions(policy: Any, opened: Any, reward: Any) -> None:
    """Learn the rewards of open decisions in order, all or none. See ``Policy.close``."""
    learner, state = policy._owners()[0], policy._state()
    record = _checked_record(policy, opened)
    shape = record.shape[:-1]
    reward = as_reward(checked_responses("reward", reward, None, state, shape)[0])
    place = _places(policy, record)
    rows = record[..., HEAD:].detach().to(state.dtype)

    def close(close_round: Any, x: Any, place: Any, reward: Any) -> None:
        close_round(x, place, reward)

    is_one = len(shape) == learner.batch_dims
    _run(policy, "_close_round", "opened", (rows, reward, None), place, is_one, close)


def _run(
    policy: Any,
    name: str,
    features: str,
    arguments: tuple[Tensor, Tensor, Tensor | None],
    place: Tensor,
    is_one: bool,
    call: Any,
) -> None:
    """Call a method of the learner for each round, all or nothing.

    ``arguments`` are rows, rewards and noise scales. ``_open_round`` gets the noise scale, ``_close_round`` the reward.
    """
    learner, (x, reward, noise_scale) = policy._owners()[0], arguments
    is_small = learner.is_small and (policy.has_batch_views or not learner.batch_dims)
    view = learner.view_for(x) if is_small else None
    if view is not None:
        rounds = rounds_of_arrays(learner, view.learner, x, reward, noise_scale, is_one, features)
        places = places_of_arrays(place, learner.batch_dims)
        method = getattr(view.learner, name)
    else:
        if is_readable(x) and is_readable(reward):
            learner._check_rewards(reward, noise_scale)
            if learner.validate:
                check_values(features, x)
        rounds = rounds_of_tensors(learner, x, reward, noise_scale, is_one)
        places = [place] if is_one else place.unbind(learner.batch_dims)
        method = getattr(learner, name)
    last = 2 if name == "_open_round" else 1
    some = [(round[0], k, round[last]) for round, k in zip(rounds, places, strict=True)]

    def learn(*round: Any) -> None:
        call(method, *round)

    with torch.no_grad(), exactly(x) if autocasts(x) else nullcontext():
        learner._run(view, learn, some)


def _width(policy: Any) -> int:
    """Return the number of entries of a record."""
    learner, estimator = policy._owners()
    return HEAD + (0 if learner is estimator else learner.dim) + estimator.dim + 3


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
        if not bool((record[..., -3] >= policy.estimator.smallest_noise_scale).all()):
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
