"""A journal that undoes an interrupted step of a large learner.

Copying a large state before every step would cost as much as the step. A journal copies it once in many rounds, and keeps the
arguments of the rounds since. To undo a step, it restores the copy and learns these rounds again. This gives the same bits,
because a step depends only on the state and its arguments. A journal takes at most twice the memory of the state.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter, is_
from typing import Any

import numpy as np
from torch import Tensor

ARRAY, VERSION = np.ndarray, attrgetter("_version")

# A copy in this many rounds adds at most 2 % to a step that passes over its state once.
MOST_ROUNDS = 64


class Journal:
    """Copies of a large state, and the rounds since each copy.

    Args:
        tensors: the state. A write from elsewhere, which the version counters show, invalidates the copies.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.version = -1
        self.entries: dict[Any, Entry] = {}

    def is_of(self, tensors: list[Tensor]) -> bool:
        """Return whether the state consists of these tensors."""
        return len(tensors) == len(self.tensors) and all(map(is_, tensors, self.tensors))

    def entry(self, key: Any, state: list[Any]) -> "Entry":
        """Return the entry of one part of the state, with room for a round.

        ``key`` names the part. ``state`` holds its tensors or arrays.
        """
        version = sum(map(VERSION, self.tensors))
        if version != self.version:
            self.entries.clear()
            self.version = version
        entry = self.entries.get(key)
        if entry is None or entry.done >= entry.room:
            entry = self.entries[key] = Entry(state)
        return entry

    def close(self) -> None:
        """Record the version counters after a round, which made the writes."""
        self.version = sum(map(VERSION, self.tensors))

    def forget(self) -> None:
        """Drop all copies, before a write that is not journaled."""
        self.entries.clear()


class Entry:
    """A copy of one part of a state, and the rounds that it has learnt since."""

    def __init__(self, state: list[Any]) -> None:
        self.state = state
        self.copies = copies_of(state)
        self.bytes = sum(value.nbytes for value in state)
        self.rounds: list[tuple[Callable[..., Any], list[Any], list[Any], list[Any]]] = []
        self.done = 0
        self.room = MOST_ROUNDS

    def learn(self, shared: list[Any], method: Callable[..., Any], *arguments: Any) -> None:
        """Call a method that writes the state and ``shared``, and record the call."""
        own = _copied(arguments)
        if not self.done:
            size = sum(getattr(value, "nbytes", 0) for value in [*own, *shared])
            self.room = max(1, min(MOST_ROUNDS, self.bytes // max(size, 1)))
        self.rounds.append((method, own, shared, copies_of(shared) if shared else shared))
        try:
            method(*arguments)
        except ValueError as error:
            if getattr(error, "is_refusal", False):  # before the first write
                self.rounds.pop()
            raise
        self.done += 1

    def undo(self) -> None:
        """Restore the state to that after the last completed round."""
        if len(self.rounds) == self.done:  # before the first write, or after the last
            return
        restore_(self.state, self.copies)
        for number, (method, arguments, shared, copies) in enumerate(self.rounds):
            restore_(shared, copies)
            if number < self.done:
                method(*_copied(arguments))
        self.rounds.pop()


def copies_of(state: list[Any]) -> list[Any]:
    """Copy tensors; copy arrays as bytes, in half the time."""
    return list(map(Tensor.clone if state and isinstance(state[0], Tensor) else np.ndarray.tobytes, state))


def restore_(state: list[Any], copies: list[Any]) -> None:
    """Write copies back."""
    for value, old in zip(state, copies, strict=True):
        if isinstance(value, Tensor):
            value.detach().copy_(old)
        else:
            value[...] = np.frombuffer(old, value.dtype).reshape(value.shape)


def _copied(arguments: Sequence[Any]) -> list[Any]:
    """Copy what others may write before the arguments are needed again."""
    return [
        value.copy() if type(value) is ARRAY else value.detach().clone() if isinstance(value, Tensor) else value
        for value in arguments
    ]
