"""Batches of rounds, possibly empty: tables of rewards and logged decisions."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchonline.core.action_names import holds_text
from torchonline.core.checks import check_shape, shape_text
from torchonline.core.inputs import as_indices
from torchonline.core.messages import counted
from torchonline.core.ops import of_chosen
from torchonline.models.encoding import typed_inputs
from torchonline.policies.policy import Policy


class LoggedRounds(NamedTuple):
    """N logged rounds, decided by another policy.

    Args:
        inputs: as :class:`~torchonline.models.BanditHead` takes them, ``(N, *B, K, *feature)``, or ``(N, *B, *feature)``.
        action: the chosen arms, int64, ``(N, *B)``; or their names, if the head's actions have names.
        reward: rewards of the chosen arms, ``(N, *B)``.
        probability: propensities of the chosen arms, ``(N, *B)``, or None. Learning does not need them.
    """

    inputs: Tensor
    action: Tensor
    reward: Tensor
    probability: Tensor | None = None


class Table(NamedTuple):
    """N rounds with the rewards of all arms."""

    inputs: Tensor
    rewards: Tensor
    means: Tensor


WANTED = (
    "(inputs, rewards), (inputs, rewards, means), LoggedRounds, or a dict with inputs, action and reward or with inputs and "
    "rewards"
)


def unpacked(batch: Any) -> Table | LoggedRounds:
    """Return a batch as a table or as logged rounds, or raise a ValueError."""
    if isinstance(batch, LoggedRounds):
        return _checked_log(batch)
    if isinstance(batch, Mapping):
        names = set(batch)
        if {"inputs", "action", "reward"} <= names <= set(LoggedRounds._fields):
            return _checked_log(LoggedRounds(**batch))
        if {"inputs", "rewards"} <= names <= set(Table._fields):
            return _table(**batch)
        raise ValueError(f"batch: expected {WANTED}, got a dict with {', '.join(map(str, batch))}")
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        got = f"{len(batch)} items" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise ValueError(f"batch: expected {WANTED}, got {got}")
    return _table(*batch)


def inputs_of(batch: Any) -> Tensor:
    """Return the inputs of a batch. A batch may be inputs alone."""
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, Mapping) and isinstance(batch.get("inputs"), Tensor):
        return batch["inputs"]
    if isinstance(batch, (tuple, list)) and batch and isinstance(batch[0], Tensor):
        return batch[0]
    raise ValueError(f"batch: expected inputs, {WANTED}, got {type(batch).__name__}")


def typed_batch(batch: Any, encoder: nn.Module | None) -> Any:
    """Return a batch with its inputs as :func:`typed_inputs` returns them.

    A batch without inputs is returned unchanged: the step raises an error.
    """
    if isinstance(batch, Mapping) and "inputs" in batch:
        return {**batch, "inputs": typed_inputs(encoder, batch["inputs"])}
    if isinstance(batch, LoggedRounds):
        return batch._replace(inputs=typed_inputs(encoder, batch.inputs))
    if isinstance(batch, (tuple, list)) and batch and not isinstance(batch[0], str):
        return (typed_inputs(encoder, batch[0]), *batch[1:])
    return typed_inputs(encoder, batch)


def numbered_batch(batch: Any, policy: Policy) -> Any:
    """Return a batch with the ids of its actions in place of their names.

    A batch without names is returned unchanged.
    """
    is_log = isinstance(batch, LoggedRounds)
    action = batch.action if is_log else batch.get("action") if isinstance(batch, Mapping) else None
    if not holds_text(action):
        return batch
    ids = torch.as_tensor(policy._ids_of("action", action))
    return batch._replace(action=ids) if is_log else {**batch, "action": ids}


def payoffs(table: Table, action: Tensor, place: Tensor) -> dict[str, Tensor]:
    """Return regret, reward and action of each round, ``(N, *B)``.

    ``place`` is each action's index in the table.
    """
    means, rewards = as_real(table.means), as_real(table.rewards)
    regret = means.amax(-1) - of_chosen(means, place)
    return {"regret": regret, "reward": of_chosen(rewards, place), "action": action}


def as_real(values: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Convert booleans, integers and half-precision numbers to ``dtype``.

    This keeps their differences and means from being rounded. Other numbers keep their dtype.
    """
    return values if values.dtype in (torch.float32, torch.float64) else values.to(dtype)


def _table(inputs: Tensor, rewards: Tensor, means: Tensor | None = None) -> Table:
    _check_rounds(inputs, rewards, "rewards")
    if means is None:
        means = rewards
    check_shape("means", means, rewards.shape)
    return Table(inputs, rewards, means)


def _checked_log(log: LoggedRounds) -> LoggedRounds:
    _check_rounds(log.inputs, log.reward, "reward")
    action = as_indices("action", log.action, log.inputs.device)
    check_shape("action", action, log.reward.shape)
    if log.probability is not None:
        check_shape("probability", log.probability, log.reward.shape)
    return log._replace(action=action)


def _check_rounds(inputs: Any, rewards: Any, name: str) -> None:
    """Raise unless inputs and rewards are tensors of the same number of rounds."""
    for argument, value in (("inputs", inputs), (name, rewards)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{argument}: expected a torch.Tensor, got {type(value).__name__}")
    if inputs.dim() == 0:
        raise ValueError("inputs: expected shape (N, ...), got ()")
    if rewards.dim() == 0 or len(rewards) != len(inputs):
        raise ValueError(
            f"{name}: expected {counted(len(inputs), 'round')}, as inputs have, got shape {shape_text(rewards.shape)}"
        )
