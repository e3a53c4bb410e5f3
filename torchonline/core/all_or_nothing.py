"""Steps that are all or nothing, one at a time.

Three things guard the state of a learner in Python. TorchScript files and exported programs have only the guard of
:mod:`torchonline.export.guard`.

- A lock: steps, choices, loads and copies of one learner by several threads follow one another.
- A copy: an exception in the middle of a step, Ctrl-C included, leaves the state as it was. A small state is copied before each
  step, and any state before several rounds at once. A large state is copied once in many rounds, and a journal keeps the rounds
  since (:mod:`torchonline.core.undo_journal`).
- A mark: while a step writes, the learner is marked as torn. Steps, choices, predictions, saves and copies by a signal handler
  then raise an error. The mark stays only where nothing can be undone: on an accelerator, and in a large group of an optimizer.
  Then the learner refuses calls until it is reset or a state is loaded.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from torch.compiler import is_dynamo_compiling

from torchonline.core.backend import with_body
from torchonline.core.undo_journal import copies_of, restore_

if TYPE_CHECKING:
    from torchonline.core.learner import Learner

F = TypeVar("F", bound=Callable[..., Any])

# Up to this size of the state, in bytes, a copy costs about a twentieth of a step, and less than a journal.
SNAPSHOT_BYTES = 1 << 17

# How often an interrupted undo is started again.
UNDO_ATTEMPTS = 10

ALONE = """\
if self.is_view or _is_traced():
    return _method({all})
owner = OWNER
with owner._lock:
    if owner._is_torn:
        raise _torn(owner)
    return _method({all})"""


# The learners whose locks a forked child has to replace.
LOCKED: "WeakSet[Learner]" = WeakSet()


def give_lock_(learner: "Learner") -> None:
    """Give a learner its own lock."""
    learner.__dict__["_lock"] = threading.RLock()
    LOCKED.add(learner)


def _renew_locks() -> None:
    """Replace all locks in a forked child: one held during the fork stays locked."""
    for learner in list(LOCKED):
        give_lock_(learner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def one_at_a_time(method: F, owner: str = "self") -> F:
    """Decorate a method to run in one thread at a time and to refuse a torn state.

    TorchScript compiles only the method. A traced program has no threads. For a method of a module with a learner in it,
    ``owner`` is the expression for that learner.
    """
    body = ALONE.replace("OWNER", owner)
    return with_body(method, body, _method=method, _is_traced=is_dynamo_compiling, _torn=torn_error)


def torn_error(learner: "Learner") -> RuntimeError:
    """Return the error for a learner that an interrupted call left half written."""
    return RuntimeError(
        f"state: expected the whole state of {type(learner).__name__}, got one that a step or load is writing, or has left "
        f"half written; {getattr(learner, 'remedy_of_torn', 'call reset() or load_state_dict()')}"
    )


def copied(state: list[Any]) -> Callable[[], None]:
    """Copy tensors or arrays, and return the function that writes the copies back."""
    return partial(restore_, state, copies_of(state))


def all_or_nothing(learner: Any, undo: Callable[[], None] | None, method: Callable[..., Any], *arguments: Any) -> None:
    """Call a method that writes a learner's state; restore the state if it raises.

    ``learner``, a learner or any object that holds learners, is marked as torn while the method runs. ``undo`` restores the
    state, and may be called again if it is interrupted. Without it, any exception except a
    :func:`~torchonline.core.checks.refusal` leaves the learner marked. A learner that was marked before stays marked.
    """
    marks = learner.__dict__
    was_torn = marks.get("_is_torn", False)
    try:
        marks["_is_torn"] = True
        method(*arguments)
        marks["_is_torn"] = False
    except BaseException as error:
        marks["_is_torn"] = True
        if undo is not None:
            _surely(undo)
        elif not getattr(error, "is_refusal", False):
            raise
        marks["_is_torn"] = was_torn
        raise


def all_or_nothing_with(
    learner: "Learner", owner: Any, state: list[Any], method: Callable[..., Any], *arguments: Any
) -> None:
    """Call :func:`all_or_nothing` for an owner of a learner, with copies.

    ``state`` holds the learner's tensors too. The method steps the learner, which marks itself as torn where it cannot undo.
    """
    was_torn = learner._is_torn
    try:
        all_or_nothing(owner, copied(state), method, *arguments)
    except BaseException:
        # The copies have restored the learner's state, unless that was interrupted too.
        learner.__dict__["_is_torn"] = was_torn or owner.__dict__.get("_is_torn", False)
        raise


@contextmanager
def undone(undo: Callable[[], None]) -> Iterator[None]:
    """Undo what calls of other learners have written, if one of them raises."""
    try:
        yield
    except BaseException:
        _surely(undo)
        raise


def _surely(undo: Callable[[], None]) -> None:
    """Undo; start again if the undo is interrupted."""
    for _ in range(UNDO_ATTEMPTS - 1):
        try:
            return undo()
        except BaseException:  # a second Ctrl-C: the first one is about to be raised
            continue
    undo()


def in_order(observe: Callable[..., None], rounds: Iterable[tuple[Any, ...]]) -> None:
    """Learn from rounds one after another."""
    for arguments in rounds:
        observe(*arguments)
