"""Bases of the learners that learn a log in blocks."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchonline.core.backend import in_python, is_readable, may_hold
from torchonline.core.learner import Learner
from torchonline.core.ops import along, assign_, joined
from torchonline.regression.blocks import (
    check_block,
    first_worker_says,
    has_own_step,
    most_inflation,
    most_of_workers,
    rows_of_block,
    rows_of_workers,
    totals_of_workers,
)


class BlockLearner(Learner):
    """Base of the learners that learn a log part by part.

    A subclass implements :meth:`_rows_of_next_part`, the number of rounds to learn next, and :meth:`_learn_part`, which learns
    them. Python calls :func:`~torchonline.regression.blocks.learn_blocks`, which checks arguments and learns all or nothing.
    TorchScript calls :meth:`_learn_log`.
    """

    if TYPE_CHECKING:
        noise_scale: Any
        has_blocks: bool

    # Whether a subclass has its own step, which `learn` then calls.
    has_own_step = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.has_own_step = has_own_step(cls)

    def _own_scale(self, reward: Tensor) -> Tensor:
        """Return the constructor's noise scale, shaped as responses. Not on NumPy views."""
        return torch.full_like(reward, self.noise_scale)

    def _rows_of_next_part(self, done: int, block_size: int | None, mask: Tensor | None) -> int:
        """Return how many rounds of a log to learn next, after ``done`` rounds.

        The rounds are one block if that suits all learners and arms.
        """
        raise NotImplementedError

    def _learns_blocks_now(self) -> bool:
        """Return whether the next rounds can be learnt at once."""
        raise NotImplementedError

    def _whole_windows(self, rows: int) -> int:
        """Return how many of the next ``rows`` rounds are learnt together. Python only."""
        return rows

    def _rows_of_shared_block(self, done: int, block_size: int | None) -> int:
        """Return the size of the next block that several workers learn together."""
        estimator = self.estimator_of_blocks()
        size: int = estimator._rows_of_next_part(done, block_size, None)
        if estimator.restart_every is not None:
            size = min(size, estimator.restart_every - int(estimator.rounds.max()))
        return size

    def estimator_of_blocks(self) -> Any:
        """Return the estimator that learns the blocks: this one. Python only."""
        return self

    def _why_no_sums(self) -> str | None:
        """Return why several workers cannot add sums over rounds, or None if they can."""
        return None if self.has_blocks else "which has no sums over rounds to add"

    def _is_in_order(self, rows: int, block_size: int | None) -> bool:
        """Return whether ``rows`` rounds are learnt one after another."""
        return not self._learns_blocks_now()

    def _learn_part(
        self,
        x: Tensor,
        action: Tensor | None,
        reward: Tensor,
        noise_scale: Tensor,
        mask: Tensor | None,
        block_size: int | None,
    ) -> None:
        """Learn the next rounds, ``(*B, n)``, in the type of the state.

        Features are ``(*B, n, d)``. ``action`` is None for learners without actions; ``mask`` is None if all learn.
        """
        raise NotImplementedError

    def _learn_log(
        self,
        like: Tensor,
        x: Tensor,
        action: Tensor | None,
        reward: Tensor,
        noise_scale: Tensor | None,
        mask: Tensor | None,
        block_size: int | None,
    ) -> None:
        """Learn a log in TorchScript, in the type of ``like``."""
        rows = self.batch_dims
        if x.dim() == rows + 1:  # one round
            x, reward = x.unsqueeze(rows), reward.unsqueeze(rows)
            action = None if action is None else action.unsqueeze(rows)
            noise_scale = None if noise_scale is None else noise_scale.unsqueeze(rows)
            mask = None if mask is None else mask.unsqueeze(rows)
        with torch.no_grad():
            done = 0
            while done < x.size(rows):
                n = min(self._rows_of_next_part(done, block_size, mask), x.size(rows) - done)
                rewards = reward.narrow(rows, done, n).detach().to(like.dtype)
                scales = self._own_scale(rewards)
                if noise_scale is not None:
                    scales = noise_scale.narrow(rows, done, n).detach().to(like.dtype)
                self._learn_part(
                    x.narrow(rows, done, n).detach().to(like.dtype),
                    None if action is None else action.narrow(rows, done, n),
                    rewards,
                    scales,
                    None if mask is None else mask.narrow(rows, done, n),
                    block_size,
                )
                done += n


class BlockEstimator(BlockLearner):
    """The part of an estimator that learns blocks.

    Blocks may be masked, end an epoch of ``restart_every`` rounds, or be sums over several workers.
    """

    if TYPE_CHECKING:
        restart_every: int | None
        has_blocks: bool
        evolving: list[str]
        rounds: Tensor
        theta_hat: Tensor
        refused: Tensor
        _learn_round: Any
        _forget_: Any
        _statistics: Any

    def _observe_block(self, x: Tensor, reward: Tensor, noise_scale: Tensor, count: Tensor) -> None:
        """Learn from n rounds at once, from the statistics before the first of them.

        Shapes are ``(*B, n, d)``, ``(*B, n, *output_shape)`` twice and ``(*B)``. Not on NumPy views. A round with x = 0 must
        add nothing; ``count`` is the number of rounds to count, which may be less than n. Sums over rounds go through
        :meth:`_totals`. A subclass without this method learns rounds in order.
        """
        raise NotImplementedError

    def _rows_of_next_part(self, done: int, block_size: int | None, mask: Tensor | None) -> int:
        if block_size is not None:
            return self._at_most_an_epoch(block_size)
        if mask is not None and self._learns_blocks_now():
            return self._rows_at_once()
        learnt = int(self.rounds.min()) if self._can_ask(self.rounds) else done
        return self._at_most_an_epoch(rows_of_block(learnt, self.dim))

    def _rows_at_once(self) -> int:
        """Return how many rounds of each learner fit in 64 MiB, from 256 to 8192."""
        return max(min(8192, (1 << 23) // (self.dim * self.rounds.numel())), 256)

    def _at_most_an_epoch(self, size: int) -> int:
        if size < 1:  # a file does not check its arguments, and must not loop forever
            size = 1
        epoch = size if self.restart_every is None else self.restart_every
        # Not min(): torch.export would keep it, although it knows which of the two is smaller.
        return epoch if size > epoch else size

    def _can_ask_in_python(self, value: Tensor) -> bool:
        return is_readable(value) and (value.is_cpu or self.validate)

    @in_python(_can_ask_in_python)
    def _can_ask(self, value: Tensor) -> bool:
        """Return whether the host may wait for a value."""
        return True

    def _learn_part(
        self,
        x: Tensor,
        action: Tensor | None,
        reward: Tensor,
        noise_scale: Tensor,
        mask: Tensor | None,
        block_size: int | None,
    ) -> None:
        if mask is not None and block_size is None and self._learns_blocks_now():
            self._learn_own_blocks(x, reward, noise_scale, mask)
        else:
            self._learn_block(x, reward, noise_scale, mask)

    def _learn_own_blocks(self, x: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor) -> None:
        """Learn the rounds in a mask, in blocks sized by each learner's own rounds.

        Blocks sized by the counts of other learners would look ahead: whether another learner has rounds to come may depend on
        rewards of this block (docs/blocks.md).
        """
        # Positions of each learner's own rounds, in order, then those of the other rounds.
        places = (~mask).to(torch.uint8).argsort(dim=-1, stable=True)
        count, most, asks = mask.sum(-1), mask.size(-1), self._can_ask(self.rounds)
        start = torch.zeros_like(count)
        left = self._longest(count) if asks else most
        while left > 0:
            # Where the host cannot ask, all learners count as new.
            size = torch.clamp((self.rounds if asks else start) // 8, min=self.dim).clamp(
                max=self._at_most_an_epoch(8192)
            )
            end = torch.minimum(start + size, count)
            rows = int((end - start).max()) if asks else min(rows_of_block(most - left, self.dim), left)
            slot = start.unsqueeze(-1) + torch.arange(rows, device=count.device)
            place = places.take_along_dim(slot.clamp(max=most - 1), -1)
            self._learn_block(
                rounds_at(x, place), rounds_at(reward, place), rounds_at(noise_scale, place), slot < end.unsqueeze(-1)
            )
            start = end
            left = self._longest(count - start) if asks else left - rows

    def _longest(self, count: Tensor) -> int:
        """Return the largest count of any learner, on any worker: ``(*B)``."""
        return int(self._most(count.unsqueeze(-1)).max())

    def _learn_block(self, x: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor | None) -> None:
        """Learn n rounds of each learner, and restart where they end an epoch."""
        if not self._learns_blocks_now():
            for i in range(x.size(-2)):
                taken = None if mask is None else mask.select(-1, i)
                rows = self.batch_dims
                self._learn_where(taken, x.select(rows, i), reward.select(rows, i), noise_scale.select(rows, i))
            return
        if self.restart_every is None:
            self._learn_rows(x, reward, noise_scale, mask)
            return
        # A block is no longer than an epoch, so it ends at most one epoch.
        taken = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
        place = self.rounds.unsqueeze(-1) + taken.cumsum(-1)
        later = taken & (place > self.restart_every)
        if may_hold(later):
            self._learn_rows(x, reward, noise_scale, taken & ~later)
            self._forget_(self.rounds >= self.restart_every)
            self._learn_rows(x, reward, noise_scale, later)
        else:
            self._learn_rows(x, reward, noise_scale, mask)
        self._forget_(self.rounds >= self.restart_every)

    def _learns_blocks_now(self) -> bool:
        return self.has_blocks

    def _learn_rows(self, x: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor | None) -> None:
        """Learn rounds at once, each learner only the rounds in its mask."""
        if mask is None:
            self._observe_block(x, reward, noise_scale, torch.zeros_like(self.rounds) + self._count_rows(x))
            return
        count = self._totals([mask.sum(-1)])[0]
        before = self._copies()
        self._observe_block(
            torch.where(along(mask, x), x, 0.0),
            torch.where(along(mask, reward), reward, 0.0),
            torch.where(along(mask, noise_scale), noise_scale, self._own_scale(noise_scale)),
            count,
        )
        self._put_back_(before, count == 0)

    def _learn_where(self, mask: Tensor | None, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn a round of each learner in a mask, ``(*B)``, and of no other learner."""
        if mask is None:
            self._learn_round(x, reward, noise_scale)
            return
        before = self._copies()
        self._learn_round(
            torch.where(along(mask, x), x, 0.0), torch.where(along(mask, reward), reward, 0.0), noise_scale
        )
        self._put_back_(before, ~mask)

    def _copies(self) -> dict[str, Tensor]:
        """Return copies of the statistics by name."""
        found: dict[str, Tensor] = {}
        for name, buffer in self._statistics(self.evolving).items():
            found[name] = buffer.clone()
        return found

    def _put_back_(self, before: dict[str, Tensor], where: Tensor) -> None:
        """Restore the statistics where ``where``, ``(*B)``, is True."""
        for name, buffer in self.named_buffers():
            if buffer is not None and name in before:
                assign_(buffer, torch.where(along(where, buffer), before[name], buffer))

    @in_python(totals_of_workers)
    def _totals(self, sums: list[Tensor]) -> list[Tensor]:
        """Return sums over a block's rounds, ``(*B, ...)``, of all workers.

        There is one worker, except under a :class:`~torchonline.distributed.SharedLearner`.
        """
        return sums

    @in_python(rows_of_workers)
    def _count_rows(self, x: Tensor) -> int:
        """Return the number of a block's rounds, ``(*B, n, d)``, of all workers together."""
        return x.size(-2)

    @in_python(most_of_workers)
    def _most(self, values: Tensor) -> Tensor:
        """Return the largest value, at least 0, of all workers: ``(*B, n)``, ``(*B)``."""
        return joined(values, torch.zeros_like(self.rounds).to(values.dtype)).amax(-1)

    def _is_any_in_python(self, condition: Tensor) -> bool:
        return not self._can_ask(condition) or first_worker_says(self, bool(condition.any()))

    @in_python(_is_any_in_python)
    def _is_any(self, condition: Tensor) -> bool:
        """Return True if any of ``(*B)`` holds, or if the host cannot ask."""
        return bool(condition.any())

    @in_python(check_block)
    def _check_block(self, inflation: Tensor, is_response: bool = False) -> None:
        """Refuse a block whose sums the dtype cannot resolve, by :func:`add_squares_`."""
        # ``is_response`` blames the response, not x.
        self._note(~(inflation < most_inflation(self.theta_hat, self.dim)))

    def _note_in_python(self, is_bad: Tensor) -> None:
        refused = self.__dict__.get("refused")
        if refused is not None:
            self.__dict__["refused"] = refused | is_bad

    @in_python(_note_in_python)
    def _note(self, is_bad: Tensor) -> None:
        """Note the rounds to refuse, ``(*B)``, in an exported program or file.

        Only these have an attribute ``refused``, ``(*B)``: see :mod:`torchonline.export.guard`.
        """
        if hasattr(self, "refused"):
            self.refused = self.refused | is_bad


def rounds_at(values: Tensor, place: Tensor) -> Tensor:
    """Select rounds: ``(*B, n, ...)`` and ``(*B, m)`` to ``(*B, m, ...)``."""
    rows = place if values.dim() == place.dim() else place.unsqueeze(-1)
    return values.take_along_dim(rows, place.dim() - 1)
