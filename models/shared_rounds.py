"""Queue of rounds that all ranks play and the first rank learns."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchonline.distributed.ranks import Ranks, error_from_text, text_of_error
from torchonline.models.replay import same_length

# Inputs, actions and rewards, (n, *B, ...).
Rounds = tuple[Tensor, Tensor, Tensor]


class SharedRounds:
    """Queue of this rank's rounds since the last sync, and the sync of all ranks.

    Args:
        ranks: the processes.
        pads: as in :class:`~torchonline.models.replay.Replay`.
    """

    def __init__(self, ranks: Ranks, pads: bool = False) -> None:
        self.ranks, self.pads = ranks, pads
        self.queue: list[Rounds] = []
        # The number of batches since the last sync, and the first error in them.
        self.batches = 0
        self.error: Exception | None = None

    def add(self, *rounds: Tensor) -> None:
        """Queue the rounds of a batch."""
        self.batches += 1
        self.queue.append(rounds)  # type: ignore[arg-type]

    def fail(self, error: Exception) -> None:
        """Count a batch that could not be played. The next sync raises the first error."""
        self.batches += 1
        self.error = self.error or error

    def sync(self, learn: Callable[[Rounds], None], state: Sequence[Tensor]) -> None:
        """Learn all ranks' rounds on the first rank and send its state. Collective.

        If a batch of any rank has failed, or the learner refuses the rounds, all ranks raise the error and nothing is learnt.
        """
        own = None if self.error else self._joined([part for part in self.queue if len(part[1])])
        text = None if self.error is None else text_of_error(self.error, self.ranks.rank)
        gathered = self.ranks.gather((_on(own, "cpu"), text))
        answer, failure = (None, None) if gathered is None else self._learnt(learn, gathered, state[0].device)
        answer = self.ranks.broadcast_object(answer)
        if failure is not None and not isinstance(failure, Exception):
            raise failure
        if answer is not None:
            raise error_from_text(answer) from (self.error or failure)
        self.queue, self.batches = [], 0
        self.broadcast(state)

    def broadcast(self, state: Sequence[Tensor]) -> None:
        """Overwrite the other ranks' state with the first rank's."""
        with torch.no_grad():
            for tensor, value in zip(state, self.ranks.broadcast(state), strict=True):
                if self.ranks.rank > 0:
                    tensor.copy_(value)

    def of_all_ranks(self) -> list[Any]:
        """Return the queues of all ranks, for a checkpoint. Collective."""
        return self.ranks.all_gather((self.batches, [_on(part, "cpu") for part in self.queue]))

    def take(self, queues: list[Any], device: torch.device) -> None:
        """Restore a checkpoint's queues.

        If their number is not the number of ranks, the first rank takes all.
        """
        if len(queues) == self.ranks.size:
            self.batches, queue = queues[self.ranks.rank]
        else:
            self.batches, queue = 0, [part for _, parts in queues for part in parts] if self.ranks.rank == 0 else []
        self.queue = [_on(part, device) for part in queue]

    def _learnt(
        self, learn: Callable[[Rounds], None], gathered: list[Any], device: torch.device
    ) -> tuple[str | None, BaseException | None]:
        """Learn on the first rank. Return an error as text, and the error itself."""
        for _, text in gathered:
            if text is not None:
                return text, None
        try:
            rounds = self._joined([part for part, _ in gathered if part is not None])
            if rounds is not None:
                learn(_on(rounds, device))
        except BaseException as error:
            return text_of_error(error, self.ranks.rank), error
        return None, None

    def _joined(self, parts: list[Any]) -> Any:
        """Concatenate rounds in order. Return None if there are none."""
        if not parts:
            return None
        inputs, *others = (list(column) for column in zip(*parts, strict=True))
        return tuple(torch.cat(column) for column in (same_length(inputs) if self.pads else inputs, *others))


def _on(rounds: Any, device: Any) -> Any:
    """Move rounds to a device."""
    return None if rounds is None else tuple(part.to(device) for part in rounds)
