"""Loader of a stream of rounds that a checkpoint can resume anywhere."""

import numbers
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import positive_integer, seed_number
from torchonline.core.messages import counted
from torchonline.core.options import described
from torchonline.core.processes import rank_and_world_size
from torchonline.models.batches import LoggedRounds


class RoundLoader:
    """Loader of batches of rounds from tensors, resumable in the middle of an epoch.

    Lightning saves the position of a loader that has ``state_dict`` and ``load_state_dict``, which a plain ``DataLoader`` lacks.
    The order depends only on the arguments and is the same in each epoch. For data larger than memory use another loader with
    these two methods, such as torchdata's ``StatefulDataLoader``.

    *Several processes.* Build the loader with the same arguments on all ranks; Lightning adds no sampler to it. Each round of the
    stream goes to exactly one rank, because learning a round twice breaks confidence sets. (torch's ``DistributedSampler``
    repeats rounds to make ranks equal.) All ranks get the same number of batches, because Lightning's ranks wait for one another
    in each batch. The i-th batches of all ranks, concatenated in the order of ranks, equal the i-th batch of a single process
    with ``world_size`` times the batch size. The rounds of the last batch are divided as evenly as possible. If it has fewer
    rounds than ranks, some ranks get an *empty* batch, of 0 rows. :class:`~torchonline.models.NeuralLinearBandit` does not learn,
    count or log an empty batch. The position is the same on all ranks, so the checkpoint of one rank resumes all.

    Args:
        tensors: tensors with one entry per round along the first dimension, such as inputs, rewards and means; or one
            :class:`~torchonline.models.LoggedRounds`. Each batch is then one, too.
        rounds: length of the stream, which is one epoch for Lightning. None passes through the tensors once. A longer stream
            passes through them repeatedly.
        batch_size: rounds in a batch of one rank. The last batch may have fewer.
        shuffle: whether to shuffle each pass anew.
        seed: seed of the shuffling.
        rank: number of this rank, from 0 to ``world_size`` - 1. None reads both numbers from torch.distributed at each ``iter``
            and ``len``; without a process group there is one rank.
        world_size: number of ranks that share the stream. None if and only if ``rank`` is None.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tensors are empty or differ in length, or a number is out of range. At ``iter``: the loaded state is from
            the middle of an epoch with another number of rounds in a batch, over all ranks.

    Example:
        >>> loader = RoundLoader(torch.arange(3.0), rounds=5, batch_size=2)
        >>> [batch for (batch,) in loader]
        [tensor([0., 1.]), tensor([2., 0.]), tensor([1.])]
        >>> second_of_two = RoundLoader(torch.arange(5.0), batch_size=2, rank=1, world_size=2)
        >>> [batch for (batch,) in second_of_two]  # the first rank gets 0 and 1, then 4
        [tensor([2., 3.]), tensor([])]
    """

    def __init__(
        self,
        *tensors: Tensor | LoggedRounds,
        rounds: int | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.is_log = len(tensors) == 1 and isinstance(tensors[0], LoggedRounds)
        parts: Any = tuple(part for part in tensors[0] if part is not None) if self.is_log else tensors
        for tensor in parts:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"tensors: expected torch.Tensors, got {type(tensor).__name__}")
        lengths = [len(tensor) if tensor.dim() else 0 for tensor in parts]
        if not lengths or min(lengths) == 0 or min(lengths) != max(lengths):
            raise ValueError(f"tensors: expected one or more of the same length above 0, got lengths {lengths}")
        length = lengths[0]
        self.rounds = length if rounds is None else positive_integer("rounds", rounds)
        self.seed = seed_number(seed)
        generator = torch.Generator().manual_seed(self.seed)
        passes = [
            torch.randperm(length, generator=generator) if shuffle else torch.arange(length)
            for _ in range(0, self.rounds, length)
        ]
        self.order = torch.cat(passes)[: self.rounds].to(parts[0].device)
        self.tensors: tuple[Tensor, ...] = parts
        self.shuffle = shuffle
        self.batch_size = positive_integer("batch_size", batch_size)
        self.rank, self.world_size = _checked_rank(rank, world_size)
        self._next_batch = 0
        self._first_batch = 0
        self._rounds_in_batch: int | None = None  # over all ranks; the unit of the position

    def __repr__(self) -> str:
        rounds = None if self.rounds == len(self.tensors[0]) else self.rounds
        return f"{type(self).__name__}({described(self, vars(self) | {'rounds': rounds})})"

    def __len__(self) -> int:
        """Return the number of batches, the same on all ranks."""
        return -(-self.rounds // (self._share()[1] * self.batch_size))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield all batches, or the remaining ones after a load."""
        rank, world_size = self._share()
        of_all = world_size * self.batch_size
        first, self._first_batch = self._first_batch, 0
        self._next_batch = self._begin(first, of_all)
        while (start := self._next_batch * of_all) < self.rounds:
            rounds = self.order[start : start + of_all].tensor_split(world_size)[rank]
            # Count before the yield, because a checkpoint is saved after the batch was played.
            self._next_batch += 1
            batch = tuple(tensor[rounds] for tensor in self.tensors)
            yield LoggedRounds(*batch) if self.is_log else batch

    def state_dict(self) -> dict[str, int]:
        """Return the position, the same on all ranks."""
        known = {} if self._rounds_in_batch is None else {"rounds_in_batch": self._rounds_in_batch}
        return {"next_batch": self._next_batch} | known

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a saved position at the next ``iter``."""
        self._next_batch = self._first_batch = state["next_batch"]
        self._rounds_in_batch = state.get("rounds_in_batch")

    def _share(self) -> tuple[int, int]:
        """Return the present rank and number of ranks."""
        if self.rank is None or self.world_size is None:
            return rank_and_world_size()
        return self.rank, self.world_size

    def _begin(self, first: int, rounds_in_batch: int) -> int:
        """Return the number of the first batch to yield, or raise."""
        before = self._rounds_in_batch or rounds_in_batch
        at_the_start = first == 0 or first * before >= self.rounds
        if before != rounds_in_batch and not at_the_start:
            raise ValueError(
                f"next_batch: expected batches of {counted(before, 'round')} over all ranks, as in the loaded state, got "
                f"batches of {rounds_in_batch}; some rounds would be repeated or skipped"
            )
        self._rounds_in_batch = rounds_in_batch
        return 0 if at_the_start else first


def _checked_rank(rank: Any, world_size: Any) -> tuple[int | None, int | None]:
    """Return the rank and the number of ranks, or (None, None), or raise."""
    if rank is None and world_size is None:
        return None, None
    if rank is None or world_size is None:
        missing = "rank" if rank is None else "world_size"
        raise ValueError(f"{missing}: expected rank and world_size, or neither, got only the other one")
    if isinstance(rank, bool) or not isinstance(rank, numbers.Integral):
        raise TypeError(f"rank: expected an integer, got {type(rank).__name__}")
    world_size = positive_integer("world_size", world_size)
    number = int(rank)
    if not 0 <= number < world_size:
        raise ValueError(f"rank: expected an integer from 0 to {world_size - 1}, got {number}")
    return number, world_size
