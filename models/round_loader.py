"""Loader of a stream of rounds that a checkpoint can resume anywhere."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import positive_integer, seed_number
from torchonline.core.options import described
from torchonline.models.batches import LoggedRounds


class RoundLoader:
    """Loader of batches of rounds from tensors, resumable in the middle of an epoch.

    Lightning saves the position of a loader that has ``state_dict`` and ``load_state_dict``, which a plain ``DataLoader`` lacks.
    The order depends only on the arguments and is the same in each epoch. For data larger than memory use another loader with
    the two methods, such as torchdata's ``StatefulDataLoader``.

    Args:
        tensors: tensors with one entry per round along the first dimension, such as inputs, rewards and means; or one
            :class:`~torchonline.models.LoggedRounds`, which makes each batch one.
        rounds: length of the stream, which is one epoch for Lightning. None passes through the tensors once; of more passes each
            is shuffled anew.
        batch_size: rounds in a batch. The last batch may have fewer.
        shuffle: whether to shuffle each pass.
        seed: seed of the shuffling.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tensors are empty or differ in length, or a number is not positive.

    Example:
        >>> loader = RoundLoader(torch.arange(3.0), rounds=5, batch_size=2)
        >>> [batch for (batch,) in loader]
        [tensor([0., 1.]), tensor([2., 0.]), tensor([1.])]
    """

    def __init__(
        self,
        *tensors: Tensor | LoggedRounds,
        rounds: int | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
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
        order = torch.cat(passes)[: self.rounds].to(parts[0].device)
        self.tensors: tuple[Tensor, ...] = parts
        self.shuffle = shuffle
        self.batch_size = positive_integer("batch_size", batch_size)
        self.batches = order.split(self.batch_size)
        self._next_batch = 0
        self._first_batch = 0

    def __repr__(self) -> str:
        rounds = None if self.rounds == len(self.tensors[0]) else self.rounds
        return f"{type(self).__name__}({described(self, vars(self) | {'rounds': rounds})})"

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield all batches, or the remaining batches after a state was loaded."""
        self._next_batch, self._first_batch = self._first_batch % len(self), 0
        while self._next_batch < len(self):
            rounds = self.batches[self._next_batch]
            # Counted before the batch is yielded, because a checkpoint is taken after the batch was played.
            self._next_batch += 1
            batch = tuple(tensor[rounds] for tensor in self.tensors)
            yield LoggedRounds(*batch) if self.is_log else batch

    def state_dict(self) -> dict[str, int]:
        return {"next_batch": self._next_batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a saved position at the next ``iter``."""
        self._next_batch = self._first_batch = state["next_batch"]
