"""Blocks of rounds that are learnt at once, from one state."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import autocasts, exactly, is_readable
from torchonline.core.checks import check_shape, check_values, positive_integer, refusal, shape_text
from torchonline.core.inputs import as_dense, as_tensor, check_tensor
from torchonline.core.ops import joined
from torchonline.core.stepping import all_or_nothing, one_at_a_time

# Rounding moves an inverse by the roundoff times d times its largest inflation factor. This much is allowed.
MOST_ROUNDING = 1e-3


def rows_of_block(learnt: int, dim: int) -> int:
    """Return the size of the block that follows so many rounds, where no size is given."""
    # Information is never older than an eighth of the rounds, and no temporary array has more than 8192 rows.
    return min(max(dim, learnt // 8), 8192)


def can_learn_blocks(cls: Any) -> bool:
    """Return whether a class has a block form of the very update that its rounds make."""
    order = cls.__mro__

    def depth(name: str) -> int:
        return next(i for i, base in enumerate(order) if name in base.__dict__)

    # A subclass with another update may not know of its parent's blocks. The base class has none.
    base = next(i for i, one in enumerate(order) if "_learn_rows" in one.__dict__)
    return depth("_observe_block") < base and depth("_observe_block") <= min(depth("_observe"), depth("_learn_round"))


def totals_of_workers(self: Any, sums: list[Tensor]) -> list[Tensor]:
    """Return a block's sums over all workers, see :class:`Workers`."""
    workers = self.__dict__.get("_workers")
    return sums if workers is None else workers.totals(sums)


def most_of_workers(self: Any, values: Tensor) -> Tensor:
    """Return the largest value, at least 0, of a block's rounds of all workers."""
    most = joined(values, torch.zeros_like(values.sum(-1))).amax(-1)
    workers = self.__dict__.get("_workers")
    return most if workers is None else workers.most(most)


def first_worker_says(self: Any, condition: bool) -> bool:
    """Return the first worker's condition: rounding may tell those of the others apart."""
    workers = self.__dict__.get("_workers")
    return condition if workers is None else workers.first_says(condition)


def check_block(self: Any, inflation: Tensor) -> None:
    """Refuse a block after which rounding would decide on the inverse."""
    if not self.validate or not is_readable(inflation):
        return
    most = MOST_ROUNDING / (2.0**-52 * self.dim)
    largest = float(inflation.max())
    if not largest < most:
        raise refusal(
            f"{self.features_name}: expected rounds that float64 can resolve together (an inflation factor of V below {most:.1e}), "
            f"got a factor of {largest:.1e}; scale the features down, raise ridge or noise_scale, or call step()"
        )


@one_at_a_time
def learn_blocks(self: Any, x: Any, reward: Any, noise_scale: Any, block_size: int | None, mask: Any) -> None:
    """Check the arguments of ``learn``, then learn from them block by block."""
    log = Log(self, x, reward, noise_scale, mask)
    size = None if block_size is None else positive_integer("block_size", block_size)
    state = list(self.state().values())

    def learn() -> None:
        done = 0
        while done < log.rounds:
            rows = min(self._rows_of_next_block(done, size, log.mask), log.rounds - done)
            log.learn_(done, rows)
            done += rows

    with torch.no_grad(), exactly(log.x) if autocasts(log.x) else nullcontext():
        if all(map(is_readable, state)):
            all_or_nothing(self, state, True, learn)
        else:  # a traced call
            learn()


class Log:
    """The checked arguments of ``learn``, which are converted block by block.

    Args:
        learner: an estimator.
        x, reward, noise_scale, mask: see :meth:`Estimator.learn`.
    """

    def __init__(self, learner: Any, x: Any, reward: Any, noise_scale: Any, mask: Any) -> None:
        self.learner, self.state = learner, learner._buffers["theta_hat"]
        self.dims = dims = learner.batch_dims
        x, reward = self._rows("x", x), self._rows(learner.response, reward)
        scales = None if noise_scale is None else self._rows("noise_scale", noise_scale)
        is_one = x.shape == learner.features_shape
        if not is_one and x.shape[:-2] + x.shape[-1:] != learner.features_shape:
            one, several = learner.features_shape, (*learner.batch_shape, "n", learner.dim)
            wanted = f"{shape_text(one)} or {shape_text(several)}"
            raise ValueError(f"x: expected shape {wanted}, got {shape_text(x.shape)}")
        wanted = learner.response_shape if is_one else x.shape[:-1] + learner.output_shape
        check_shape(learner.response, reward, wanted)
        if scales is not None:
            check_shape("noise_scale", scales, wanted)
        if mask is not None:
            mask = self._mask(mask, wanted[: len(wanted) - len(learner.output_shape)])
        if is_one:
            x, reward = x.unsqueeze(dims), reward.unsqueeze(dims)
            scales = None if scales is None else scales.unsqueeze(dims)
            mask = None if mask is None else mask.unsqueeze(dims)
        self.x, self.reward, self.scales, self.mask = x, reward, scales, mask
        self.rounds: int = x.shape[dims]

    def learn_(self, first: int, rows: int) -> None:
        """Let the learner learn from some rounds."""
        learner = self.learner
        x = self._block("x", self.x, first, rows, False)
        reward = self._block(learner.response, self.reward, first, rows, True)
        scales = None if self.scales is None else self._block("noise_scale", self.scales, first, rows, True)
        mask = None if self.mask is None else self.mask.narrow(self.dims, first, rows)
        if is_readable(x):
            learner._check_rewards(reward, scales)
            if learner.validate:
                check_values("x", x)
        learner._learn_block(x, reward, learner._own_scale(reward) if scales is None else scales, mask)

    def _rows(self, name: str, value: Any) -> Tensor:
        """Return an argument as a tensor, if possible without a copy."""
        if isinstance(value, np.ndarray) and type(value) is np.ndarray and value.dtype.kind in "biuf":
            is_plain = value.flags.writeable and value.dtype.isnative and value.dtype.itemsize <= 8
            if is_plain and all(stride >= 0 for stride in value.strides) and self.state.is_cpu:
                return torch.from_numpy(value)
        return as_dense(name, as_tensor(name, value, self.state.device))

    def _block(self, name: str, values: Tensor, first: int, rows: int, is_real: bool) -> Tensor:
        """Return some rounds of an argument in the type of the state."""
        block = values.narrow(self.dims, first, rows).detach()
        return check_tensor(name, block, self.state, is_real=is_real)

    def _mask(self, mask: Any, shape: tuple[int, ...]) -> Tensor:
        if not isinstance(mask, Tensor):
            mask = torch.from_numpy(np.array(mask)).to(self.state.device)
        if mask.dtype != torch.bool:
            raise TypeError(f"mask: expected booleans, True where a round is learnt, got {mask.dtype}")
        mask = as_dense("mask", mask)
        check_shape("mask", mask, shape)
        if mask.device != self.state.device:
            raise ValueError(f"mask: expected a tensor on {self.state.device}, got one on {mask.device}")
        return mask
