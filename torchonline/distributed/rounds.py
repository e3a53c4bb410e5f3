"""Queued rounds of a rank: how they are counted, checked, sent and learnt."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchonline.convex.learner import ConvexLearner
from torchonline.core.all_or_nothing import all_or_nothing_with
from torchonline.distributed.ranks import text_of_error
from torchonline.policies.policy import Policy, of_inputs
from torchonline.privacy.learners.bandit import PrivateBandit
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.learners.clock import one_rank_steps
from torchonline.privacy.mechanisms.prefix_sums import PrefixSum
from torchonline.privacy.records import record_actions, record_values
from torchonline.regression.blocks import Log, check_log
from torchonline.regression.estimator import Estimator

# The arguments of a call of `step`, by name.
Arguments = dict[str, Any]


class Steps:
    """Rounds that are learnt by successive calls of ``step``.

    Args:
        policy: the object with ``step``.
        learner: the learner that ``step`` changes: the policy's estimator, or the policy.
    """

    def __init__(self, policy: Any, learner: Any) -> None:
        self.policy, self.learner = policy, learner
        self.always_one = isinstance(learner, (ConvexLearner, PrivateLearner))

    def count(self, arguments: Arguments) -> int:
        """Return the number of rounds in the arguments, judged by their shapes."""
        if self.always_one:
            return 1
        first: int = self.learner.batch_dims
        # A reward for each round, or features.
        is_policy = isinstance(self.policy, Policy)
        value, dims = (arguments["reward"], first) if is_policy else (next(iter(arguments.values())), first + 1)
        try:
            shape = value.shape if isinstance(value, Tensor) else np.shape(value)
        except ValueError:  # a ragged list, which is refused later
            return 1
        return int(shape[first]) if len(shape) > dims else 1

    def checked(self, queue: list[Arguments], rank: int) -> Any:
        """Return the message of a rank's queue, or raise."""
        return queue

    def learn(self, of_ranks: list[Any], block_size: int | None) -> str | None:
        """Learn the rounds of all ranks in order, all or nothing.

        Return the first error of a refused record that has still taken its step, or None.
        """
        state = list(self.learner.state().values())
        all_or_nothing_with(self.learner, self, state, self._learn_all, of_ranks, block_size)
        return None

    def _learn_all(self, of_ranks: list[Any], block_size: int | None) -> None:
        for rank, queue in enumerate(of_ranks):
            for arguments in queue:
                self._step(rank, arguments)

    def _step(self, rank: int, arguments: Arguments) -> None:
        """Take a step. Errors name the rank that observed the round."""
        device = self.learner.constants.device
        here = {name: v.to(device) if isinstance(v, Tensor) else v for name, v in arguments.items()}
        try:
            self.policy.step(**here)
        except (TypeError, ValueError) as error:
            raise type(error)(f"rank {rank}: {error}") from error


class Records(Steps):
    """Rounds of a private learner: each takes its step, even if it is refused."""

    def checked(self, queue: list[Arguments], rank: int) -> Any:
        """Return each record as tensors, or as the text of its error.

        The size of a message then depends only on shapes and types. A missing record becomes a record of zeros, which takes the
        same step.
        """
        return [self._record(arguments, rank) for arguments in queue]

    def learn(self, of_ranks: list[Any], block_size: int | None) -> str | None:
        """Let each record take its step. Not all or nothing: a release cannot be undone."""
        refused = None
        with one_rank_steps():
            for rank, queue in enumerate(of_ranks):
                for record in queue:
                    if (error := self._refusal(rank, record)) is not None:
                        refused = refused or error
                        self.policy.step(None)
        return refused

    def _refusal(self, rank: int, record: Any) -> str | None:
        """Take a step, or return why the record is refused."""
        if isinstance(record, str):
            return record
        try:
            self._step(rank, record)
        except (TypeError, ValueError) as error:
            return text_of_error(error)
        return None

    def _record(self, arguments: Arguments, rank: int) -> Any:
        state = self.learner.constants

        def converted(name: str, value: Any) -> Any:
            if value is None:
                return None
            return record_actions(name, value, state.device) if name == "action" else record_values(name, value, state)

        if all(value is None for value in arguments.values()):
            return self._missing(next(iter(arguments)))
        try:
            return {name: converted(name, value) for name, value in arguments.items()}
        except (TypeError, ValueError) as error:
            return text_of_error(error, rank)

    def _missing(self, name: str) -> Arguments:
        """Return the record of ``step(None)``, under its argument's name."""
        learner = self.learner
        if isinstance(learner, PrivateBandit):
            x = learner.constants.new_zeros((*learner.batch_shape, learner.dim))
            return {name: x, "action": x[..., 0].to(torch.int64), "reward": x[..., 0]}
        if isinstance(learner, PrefixSum):
            return {name: learner.constants.new_zeros(learner.shape)}
        rows = () if learner.records_a_step == 1 else (learner.records_a_step,)
        return {name: learner.constants.new_zeros((*learner.batch_shape, *rows, learner.points, learner.dim))}


class Rows(NamedTuple):
    """Rounds of a bandit in one piece: ``(*B, n, d)``, and ``(*B, n)`` for the rest."""

    x: Tensor
    reward: Tensor
    noise_scale: Tensor | None
    action: Tensor | None

    def part(self, dim: int, first: int, rows: int) -> "Rows":
        """Return some rounds."""
        return _rows(None if each is None else each.narrow(dim, first, rows) for each in self)

    def to(self, device: torch.device) -> "Rows":
        """Return the rounds on a device."""
        return _rows(None if each is None else each.to(device) for each in self)


class Logs(Steps):
    """Rounds of a bandit that are rows of features, which can be joined.

    They are learnt by ``learn``. A few rounds without a ``block_size`` are learnt by ``step``.
    """

    def checked(self, queue: list[Arguments], rank: int) -> Rows:
        """Return the rounds in one piece, or raise."""
        return self.joined(self._log(**arguments) for arguments in _stacked(queue, self.policy))

    def _learn_all(self, of_ranks: list[Any], block_size: int | None) -> None:
        device, dims = self.learner.constants.device, self.learner.batch_dims
        x, reward, scale, action = self.joined(part.to(device) for part in of_ranks)
        learner, arguments = self.learner, (x, reward)
        if action is not None:  # a position, already checked
            learner, arguments = self.policy, (*self.policy._as_round(x, action), reward)
        if block_size is None and x.size(dims) <= few(self.learner.dim):
            learner.step(*arguments, noise_scale=scale)
        else:
            learner.learn(*arguments, noise_scale=scale, block_size=block_size)

    def joined(self, parts: Iterable[Rows]) -> Rows:
        """Return the rounds of several queues or ranks in order."""
        learner = self.learner
        x, rewards, scales, actions = map(list, zip(self._none(), *parts, strict=True))
        if all(scale is None for scale in scales):
            scales = []
        else:
            pairs = zip(scales, rewards, strict=True)
            scales = [learner._own_scale(reward) if scale is None else scale for scale, reward in pairs]
        columns = (x, rewards, scales, [] if actions[0] is None else actions)
        return _rows(torch.cat(column, learner.batch_dims) if column else None for column in columns)

    def _none(self) -> Rows:
        learner, state = self.learner, self.learner._state()
        shape = (*learner.batch_shape, 0)
        reward = state.new_empty((*shape, *learner.output_shape))
        action = reward.to(torch.int64) if learner is self.policy and isinstance(learner, Policy) else None
        return Rows(state.new_empty((*shape, learner.dim)), reward, None, action)

    def _log(self, x: Any = None, inputs: Any = None, action: Any = None, noise_scale: Any = None, **rest: Any) -> Rows:
        ((reward,), policy) = rest.values(), self.policy
        if not isinstance(policy, Policy):
            return Rows(*check_log(Log(policy, x, reward, noise_scale, None)))
        try:
            return Rows(*check_log(Log(self.learner, inputs, reward, noise_scale, None, policy, action)))
        except ValueError as error:
            raise of_inputs(error) from error.__cause__


def few(dim: int) -> int:
    """Return the number of rounds up to which steps are faster than a block."""
    return max(15, min(dim // 5, 50))


def rounds_for(policy: Any, learner: Any) -> Steps:
    """Return how a policy's rounds are counted, checked and learnt."""
    if isinstance(learner, PrivateLearner):
        return Records(policy, learner)
    has_rows = isinstance(policy, Estimator) or (isinstance(policy, Policy) and policy.learns_rows)
    if has_rows and not policy.has_own_step:
        return Logs(policy, learner)
    return Steps(policy, learner)


def copy_of(value: Any) -> Any:
    """Return a copy of a value that the caller may overwrite before the sync."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return list(map(copy_of, value))
    if isinstance(value, np.ndarray):
        return value.copy()
    # Values that NumPy converts to an array, such as a table.
    return np.asarray(value).copy() if hasattr(value, "__array__") or isinstance(value, memoryview) else value


def _rows(columns: Iterable[Any]) -> Rows:
    return Rows(*columns)


def _stacked(queue: list[Arguments], policy: Any) -> Iterator[Arguments]:
    """Yield a queue, with single rounds of one form stacked: faster to check."""
    for form, stretch in itertools.groupby(queue, lambda arguments: _form(arguments, policy)):
        if form is None:
            yield from stretch
        else:
            rounds = list(stretch)
            yield {name: _column([one[name] for one in rounds], len(policy.batch_shape)) for name in rounds[0]}


def _form(arguments: Arguments, policy: Any) -> Any:
    """Return the common form of single rounds that can be stacked, or None."""
    found: list[Any] = []
    lead, dims = policy.batch_shape, getattr(policy, "item_dims", 1)
    for name, value in arguments.items():
        if type(value) is Tensor and value.dim() == len(lead) + dims and value.shape[: len(lead)] == lead:
            found.append((name, value.shape, value.dtype, value.device))
        elif lead == () and dims == 0 and (type(value) is float or (type(value) is int and abs(value) < 2**53)):
            found.append((name, type(value)))
        else:
            return None
        dims = 0  # of actions, rewards and noise scales
    return found


def _column(values: list[Any], dims: int) -> Tensor:
    """Return the values of an argument in several rounds as one tensor."""
    if isinstance(values[0], Tensor):
        return torch.stack(values, dims)
    return torch.tensor(values, dtype=torch.int64 if type(values[0]) is int else torch.float64)
