"""Blocks of rounds that are learnt at once, from one state."""

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.all_or_nothing import all_or_nothing, copied, in_order, one_at_a_time
from torchonline.core.backend import PLAIN, autocasts, exactly, is_readable
from torchonline.core.checks import check_shape, kind, positive_integer, refusal, shape_text
from torchonline.core.inputs import array_of, as_dense, as_tensor, check_tensor
from torchonline.core.ops import joined, roundoff
from torchonline.core.sparse import MOST_ENTRIES, SparseRows, is_sparse
from torchonline.regression.arguments import as_actions, depth, places_of_arrays, rounds_of_arrays, with_places
from torchonline.regression.sparse_rows import step_on_rows


def most_inflation(like: Tensor, dim: int) -> float:
    """Return the largest inflation factor of a block, in the type of the state."""
    # Rounding changes an inverse by the roundoff times d times its largest inflation factor. The first limit is for float64, in
    # which Cholesky factors are computed. The second is for the type of the state, which holds the inverse. Nothing is proved
    # for float32.
    return min(1e-3 / 2.0**-52, 0.1 / roundoff(like)) / dim


def rows_of_block(learnt: int, dim: int) -> int:
    """Return the default size of the block after ``learnt`` rounds."""
    # Information is never older than an eighth of the rounds, and no temporary array has more than 8192 rows.
    return min(max(dim, learnt // 8), 8192)


def learns_at_once(cls: Any, at_once: str, in_order: tuple[str, ...]) -> bool:
    """Return whether no subclass overrides only a method in ``in_order``.

    ``at_once`` names the method for many rounds, ``in_order`` those for one. A subclass with its own update may not match its
    parent's method for many rounds.
    """

    def depth(name: str) -> int:
        return next(i for i, base in enumerate(cls.__mro__) if name in base.__dict__)

    return depth(at_once) <= min(map(depth, in_order))


def has_own_step(cls: Any) -> bool:
    """Return whether a class overrides ``step`` and inherits ``learn``."""
    return hasattr(cls, "learn") and not learns_at_once(cls, "learn", ("step",))


def learn_by_step(self: Any, block_size: int | None, mask: Any, *arguments: Any, noise_scale: Any) -> None:
    """Check the options of ``learn``, then learn by ``step``."""
    if block_size is not None:
        positive_integer("block_size", block_size)
    if mask is not None:
        raise TypeError(f"mask: expected None for {type(self).__name__}, which has its own step and no learn")
    self.step(*arguments, noise_scale=noise_scale)


def totals_of_workers(self: Any, sums: list[Tensor]) -> list[Tensor]:
    """Return a block's sums over all processes that learn it together."""
    workers = self.__dict__.get("_workers")
    return sums if workers is None else workers.totals(sums)


def most_of_workers(self: Any, values: Tensor) -> Tensor:
    """Return the largest value, at least 0, of a block's rounds of all workers."""
    most = joined(values, torch.zeros_like(values.sum(-1))).amax(-1)
    workers = self.__dict__.get("_workers")
    return most if workers is None else workers.most(most)


def rows_of_workers(self: Any, x: Tensor) -> int:
    """Return the number of a block's rounds, of all workers together: ``(*B, n, d)``."""
    workers = self.__dict__.get("_workers")
    return x.size(-2) if workers is None else int(workers.rows)


def first_worker_says(self: Any, condition: bool) -> bool:
    """Return the first worker's condition, so that rounding cannot split workers."""
    workers = self.__dict__.get("_workers")
    return condition if workers is None else workers.first_says(condition)


def refuse_block(self: Any, error: ValueError) -> None:
    """Raise an error; with several workers, note it for the first one to decide."""
    workers = self.__dict__.get("_workers")
    if workers is None:
        raise error
    workers.refuse(error)


def check_block(self: Any, inflation: Tensor, is_response: bool = False) -> None:
    """Refuse a block after which rounding would dominate the inverse."""
    dtype, most = self._state().dtype, most_inflation(self._state(), self.dim)
    if not is_readable(inflation):
        self._note(~(inflation < most))
        return
    if not self.validate:
        return
    largest = float(inflation.max())
    if not largest < most:
        name, matrix = (self.response, "A") if is_response else ("x", "V")
        text = (
            f"{name}: expected rounds that {dtype} can resolve together, with an inflation factor of {matrix} below {most:.1e}, "
            f"got a factor of {largest:.1e}; scale the features down, raise ridge or noise_scale, or call step()"
        )
        refuse_block(self, refusal(text))


@one_at_a_time
def learn_in_blocks(self: Any, x: Any, reward: Any, noise_scale: Any, block_size: int | None, mask: Any = None) -> None:
    """Check the arguments of ``learn``, then learn all blocks or nothing."""
    if self.has_own_step:
        learn_by_step(self, block_size, mask, x, reward, noise_scale=noise_scale)
        return
    size = None if block_size is None else positive_integer("block_size", block_size)
    if is_sparse(x) and self.has_own_columns and not self.batch_dims and mask is None:
        step_on_rows(self, x, reward, noise_scale)
        return
    learn_blocks(Log(self, x, reward, noise_scale, mask), size)


def learn_blocks(log: "Log", block_size: int | None) -> None:
    """Learn all blocks of a checked log or nothing."""
    learner = log.learner
    state = list(learner.state().values())

    def learn() -> None:
        done = 0
        while done < log.rounds:
            rows = learner._whole_windows(
                min(learner._rows_of_next_part(done, block_size, log.mask), log.rounds - done)
            )
            if log.most_rows < rows and not learner._learns_blocks_now():
                rows = log.most_rows
            log.learn_part(done, rows, block_size)
            done += rows

    with torch.no_grad(), exactly(log.state) if autocasts(log.state) else nullcontext():
        if all(map(is_readable, state)):
            all_or_nothing(learner, copied([*state, *learner.scratch()]), learn)
        else:  # a traced call
            learn()


class Log:
    """Checked arguments of ``learn``, converted block by block.

    Args:
        learner: an estimator or a policy with a state, which learns.
        x: features, or the inputs of a policy's decisions.
        reward, noise_scale, mask: see :meth:`Estimator.learn`.
        policy: the policy that made the decisions; None for rounds of an estimator.
        action: of a policy's decisions.
    """

    def __init__(
        self, learner: Any, x: Any, reward: Any, noise_scale: Any, mask: Any, policy: Any = None, action: Any = None
    ) -> None:
        self.learner, self.state, self.policy = learner, learner._state(), policy
        self.name, item_dims = ("x", 1) if policy is None else ("inputs", policy.item_dims)
        self.dims = dims = learner.batch_dims
        x, reward = self._as_rows(self.name, x), self._as_rows(learner.response, reward)
        scales = None if noise_scale is None else self._as_rows("noise_scale", noise_scale)
        lead, item = tuple(x.shape[: len(x.shape) - item_dims]), x.shape[len(x.shape) - item_dims :]
        is_one = len(lead) == dims
        is_right = len(x.shape) >= item_dims and lead[:dims] == learner.batch_shape and len(lead) in (dims, dims + 1)
        if not is_right or item[-1] != learner.dim or 0 in item:
            if policy is not None:
                raise policy._wrong_shape(x.shape, ("n",), "learn")
            one, several = learner.features_shape, (*learner.batch_shape, "n", learner.dim)
            raise ValueError(f"x: expected shape {shape_text(one)} or {shape_text(several)}, got {shape_text(x.shape)}")
        wanted = lead + learner.output_shape
        if policy is not None and is_one and depth(action) == len(reward.shape) == dims + 1:
            raise policy._one_round(x.shape, "learn")
        check_shape(learner.response, reward, wanted)
        if scales is not None:
            check_shape("noise_scale", scales, wanted)
        if mask is not None:
            mask = check_learners(mask, lead, self.state)
        if policy is not None:
            device = self.state.device
            count = item[0] if item_dims == 2 else policy._count(x)
            action = as_actions(policy._placed(action), lead, device, count, learner.validate or device.type == "cpu")
        if is_one:
            x, reward, scales, mask, action = (
                None if value is None else _with_round(value, dims) for value in (x, reward, scales, mask, action)
            )
        self.x, self.reward, self.scales, self.mask, self.action = map(self._apart, (x, reward, scales, mask, action))
        self.rounds: int = x.shape[dims]
        # Of sparse rows, dense copies are bounded.
        self.most_rows = max(1, MOST_ENTRIES // math.prod(item)) if isinstance(self.x, SparseRows) else self.rounds
        self._converted(0, 0)  # refuses types and devices before anything is learnt

    def block(self, first: int, rows: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Return some rounds in the type of the state, checked.

        They are the rows to learn from, rewards, noise scales, the positions of arms if the learner needs them, and the mask.
        """
        learner, policy = self.learner, self.policy
        x, reward, scales = self._converted(first, rows)
        action, mask = (
            None if part is None else part.narrow(self.dims, first, rows) for part in (self.action, self.mask)
        )
        if policy is not None:
            x = policy._chosen(x, action)
        if is_readable(x):
            learner._check_rewards(reward, scales)
            learner._check_features(self.name, x)
        return x, reward, scales, action if policy is learner else None, mask

    def learn_part(self, first: int, rows: int, block_size: int | None) -> None:
        """Let the learner learn from the rounds of a part."""
        learner = self.learner
        x, reward, scales, action, mask = self.block(first, rows)
        if learner._is_in_order(rows, block_size) and mask is None and (view := self._view(x)) is not None:
            rounds = rounds_of_arrays(learner, view.learner, x, reward, scales, False, self.name)
            if action is not None:
                rounds = with_places(rounds, places_of_arrays(action, self.dims))
            view.run(in_order, view.learner._learn_round, rounds)
            view.mark_written()
            return
        scales = learner._own_scale(reward) if scales is None else scales
        learner._learn_part(x, action, reward, scales, mask, block_size)

    def _view(self, x: Tensor) -> Any:
        """Return the NumPy view to learn on in order, or None."""
        learner = self.learner
        has_views = self.policy is None or self.policy._learns_on_views(learner)
        return learner.view_for(x) if learner.is_small and has_views else None

    def _as_rows(self, name: str, value: Any) -> Any:
        """Return an argument as a tensor, or as an array whose blocks become tensors."""
        if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
            if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
                return np.asarray(value)  # also of a memory map, of which only blocks are read
        if name == self.name and is_sparse(value):
            rows = SparseRows(name, value, self.state)
            is_log = not self.dims and len(rows.shape) > 1
            return (
                rows if is_log else torch.from_numpy(rows.dense(0, rows.rows)).reshape(rows.shape).to(self.state.device)
            )
        return as_dense(name, as_tensor(name, value, self.state.device))

    def _apart(self, values: Any) -> Any:
        """Return an argument, as a copy if learning writes its memory."""
        written = (*self.learner.state().values(), *self.learner.scratch())
        if not any(share_memory(values, each) for each in written):
            return values
        return values.copy() if isinstance(values, np.ndarray) else values.clone()

    def _converted(self, first: int, rows: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return features, responses and noise scales in the state's type; or raise."""
        x = self._converted_one(self.name, self.x, first, rows, False)
        reward = self._converted_one(self.learner.response, self.reward, first, rows, True)
        scales = self.scales
        return x, reward, None if scales is None else self._converted_one("noise_scale", scales, first, rows, True)

    def _converted_one(self, name: str, values: Any, first: int, rows: int, is_real: bool) -> Tensor:
        """Return some rounds of an argument in the type of the state."""
        if isinstance(values, SparseRows):
            unit = math.prod(values.shape[1:-1])
            some = values.dense(unit * first, unit * rows).reshape(rows, *values.shape[1:])
            return check_tensor(name, as_tensor(name, some, self.state.device), self.state)
        if isinstance(values, np.ndarray):
            some = values[(*(slice(None),) * self.dims, slice(first, first + rows))]
            return check_tensor(name, as_tensor(name, some, self.state.device), self.state)
        return check_tensor(name, values.narrow(self.dims, first, rows).detach(), self.state, is_real=is_real)


def _with_round(value: Any, dims: int) -> Any:
    """Add a dimension for rounds: ``(*B, ...)`` to ``(*B, 1, ...)``."""
    if isinstance(value, SparseRows):
        value = torch.from_numpy(value.dense(0, value.rows)).reshape(value.shape).to(value.state.device)
    return value.reshape((*value.shape[:dims], 1, *value.shape[dims:]))


def check_log(log: Log) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Check a log; return features, rewards, noise scales and actions."""
    return log.block(0, log.rounds)[:4]


def share_memory(values: Any, written: Tensor) -> bool:
    """Return whether an argument lies, at least in part, in the memory of a tensor."""
    if type(written) not in PLAIN or not is_readable(written):
        return False
    if isinstance(values, np.ndarray):
        return written.is_cpu and np.may_share_memory(values, written.detach().numpy())
    if type(values) not in PLAIN or not is_readable(values) or values.device != written.device:  # None, fake or traced
        return False
    (first, size), (second, other) = (
        (storage.data_ptr(), storage.nbytes()) for storage in (values.untyped_storage(), written.untyped_storage())
    )
    return first < second + other and second < first + size


def check_learners(mask: Any, shape: tuple[int, ...], state: Tensor) -> Tensor:
    """Return the mask of learners and rounds as a tensor, or raise."""
    wanted = "booleans, True where a round is learnt"
    if not isinstance(mask, Tensor):
        array = array_of("mask", mask, wanted)
        if array.dtype.kind != "b" and array.size:
            raise TypeError(f"mask: expected {wanted}, got {type(mask).__name__} of {array.dtype}")
        mask = torch.from_numpy(array.astype(bool)).to(state.device)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask: expected {wanted}, got {kind(mask)}")
    mask = as_dense("mask", mask)
    check_shape("mask", mask, shape)
    if mask.device != state.device:
        raise ValueError(f"mask: expected a tensor on {state.device}, got one on {mask.device}")
    return mask
