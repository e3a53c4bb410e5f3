"""Blocks of rounds whose sums several ranks add."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from torchonline.core.backend import autocasts, exactly
from torchonline.distributed.ranks import Ranks
from torchonline.distributed.rounds import Logs, Rows


class Workers:
    """The ranks that learn a block together, as an estimator's ``_workers``.

    Args:
        ranks: the ranks of the learner.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.rows = 0  # rounds of the block, over all ranks
        self.refused: ValueError | None = None

    def totals(self, sums: list[Tensor]) -> list[Tensor]:
        """Return sums over the rounds of all ranks. One message."""
        flat = self.ranks.sum(torch.cat([part.reshape(-1).to(torch.float64) for part in sums]))
        pieces = zip(flat.split([part.numel() for part in sums]), sums, strict=True)
        return [piece.reshape(part.shape).to(part.dtype) for piece, part in pieces]

    def most(self, values: Tensor) -> Tensor:
        """Return the largest values of all ranks."""
        return self.ranks.largest(values)

    def first_says(self, condition: bool) -> bool:
        """Return the first rank's condition."""
        (said,) = self.ranks.broadcast([torch.tensor([condition])])
        return bool(said)

    def refuse(self, error: ValueError) -> None:
        """Note why a block is refused. Raising would leave the other ranks waiting."""
        self.refused = self.refused or error


def learn_shares(logs: Logs, ranks: Ranks, rounds: Rows, counts: Sequence[int], block_size: int | None) -> Any:
    """Learn this rank's share of each block, summed with other ranks.

    Return the error of a block that was refused, or None. The first rank's error counts, because rounding may differ between
    ranks. After a refusal the state is unusable.

    Args:
        logs: the logs of the learner.
        ranks: the ranks that learn together. All have the same state.
        rounds: the checked rounds of this rank.
        counts: the number of rounds of each rank.
        block_size: rounds in a block, of all ranks together; None for the learner's choice.
    """
    learner, left, first = logs.learner, list(counts), 0
    with _summing(learner, ranks) as workers, exactly(rounds.x) if autocasts(rounds.x) else nullcontext():
        while (rest := sum(left)) > 0:
            workers.rows = min(_rows_of_next_block(learner, sum(counts) - rest, block_size), rest)
            shares = shares_of(left, workers.rows)
            own = shares[ranks.rank]
            _learn_block(learner, rounds.part(learner.batch_dims, first, own), workers.rows)
            first += own
            left = [before - share for before, share in zip(left, shares, strict=True)]
    return workers.refused


def shares_of(left: Sequence[int], size: int) -> list[int]:
    """Return each rank's part of ``size`` rounds, in proportion to ``left``."""
    shares = [size * rest // sum(left) for rest in left]
    for rank, rest in enumerate(left):
        if sum(shares) < size and shares[rank] < rest:
            shares[rank] += 1
    return shares


def _learn_block(learner: Any, rounds: Rows, size: int) -> None:
    """Learn this rank's share of a block of ``size`` rounds."""
    x, reward, scale, action = rounds
    scale = learner._own_scale(reward) if scale is None else scale
    learner._learn_part(x, action, reward, scale, None, size)


def _rows_of_next_block(learner: Any, done: int, block_size: int | None) -> int:
    """Return the size of the next block of all ranks, at most the rest of an epoch."""
    size: int = learner._rows_of_shared_block(done, block_size)
    return size


@contextmanager
def _summing(learner: Any, ranks: Ranks) -> Iterator[Workers]:
    """Let a learner add the sums of its blocks to those of the other ranks."""
    estimator = learner.estimator_of_blocks()
    workers = estimator.__dict__["_workers"] = Workers(ranks)
    try:
        yield workers
    finally:
        del estimator.__dict__["_workers"]
