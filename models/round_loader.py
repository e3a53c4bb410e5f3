"""A stream of rounds, in batches, that a checkpoint can resume anywhere."""

from collections.abc import Iterator

import torch
from torch import Tensor

from torchonline.core.checks import positive_integer, seed_number


class RoundLoader:
    """Tensors cut into batches of rounds, in an order that can be resumed.

    Lightning saves where a loader stands if the loader has ``state_dict`` and ``load_state_dict``. A plain
    ``DataLoader`` has neither: a run that is resumed in the middle of an epoch starts its data from the beginning. This
    one has them, and its order depends on nothing but ``seed``: it is the same in each epoch. For a stream that goes
    through the data more than once ask for more ``rounds`` than the tensors have; each pass is shuffled anew. For data
    that does not fit in memory use another loader with the two methods, such as torchdata's ``StatefulDataLoader``.

    Args:
        tensors: round by round along the first dimension, such as inputs, rewards and means.
        rounds: length of the stream, which is an epoch to Lightning; None goes through the tensors once.
        batch_size: rounds in a batch; the last may have fewer.
        shuffle: whether each pass has a random order.
        seed: of these orders.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: the tensors are empty or of different lengths, or a number is not positive.

    Example:
        >>> loader = RoundLoader(torch.arange(3.0), rounds=5, batch_size=2)
        >>> [batch for (batch,) in loader]
        [tensor([0., 1.]), tensor([2., 0.]), tensor([1.])]
    """

    def __init__(
        self,
        *tensors: Tensor,
        rounds: int | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"tensors: expected torch.Tensors, got {type(tensor).__name__}")
        lengths = [len(tensor) if tensor.dim() else 0 for tensor in tensors]
        if not lengths or min(lengths) == 0 or min(lengths) != max(lengths):
            raise ValueError(f"tensors: expected one or more of the same length above 0, got lengths {lengths}")
        length = lengths[0]
        rounds = length if rounds is None else positive_integer("rounds", rounds)
        generator = torch.Generator().manual_seed(seed_number(seed))
        passes = [
            torch.randperm(length, generator=generator) if shuffle else torch.arange(length)
            for _ in range(0, rounds, length)
        ]
        order = torch.cat(passes)[:rounds].to(tensors[0].device)
        self.tensors = tensors
        self.batches = order.split(positive_integer("batch_size", batch_size))
        self._next_batch = 0
        self._first_batch = 0

    def __len__(self) -> int:
        """The number of batches."""
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """All batches; the remaining ones if a state was loaded in the middle."""
        self._next_batch, self._first_batch = self._first_batch % len(self), 0
        while self._next_batch < len(self):
            rounds = self.batches[self._next_batch]
            # Counted before it is handed out: a checkpoint is taken when it has been played.
            self._next_batch += 1
            yield tuple(tensor[rounds] for tensor in self.tensors)

    def state_dict(self) -> dict[str, int]:
        """Where the loader stands."""
        return {"next_batch": self._next_batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there at the next ``iter``."""
        self._next_batch = self._first_batch = state["next_batch"]
