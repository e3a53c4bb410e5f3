"""Steps that are all or nothing, one at a time.

Three things guard the state of a learner in Python. TorchScript files and exported programs have none of them.

- A lock: steps, choices, loads and copies of one learner by several threads follow one another.
- A snapshot: an exception in the middle of a step, Ctrl-C included, leaves the state as it was. A snapshot is taken where it
  costs at most a tenth of the step, and before several rounds at once.
- A mark: elsewhere, an interrupted step leaves the learner marked as torn. It then refuses to be used by name, until it is reset
  or a state is loaded.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor
from torch.compiler import is_compiling

from torchonline.core.backend import in_place_of, with_arguments_of

if TYPE_CHECKING:
    from torchonline.core.learner import Learner

F = TypeVar("F", bound=Callable[..., Any])

ARRAY, TO_BYTES = np.ndarray, np.ndarray.tobytes

# Up to this size of the state, in bytes, a snapshot costs at most a tenth of a step.
SNAPSHOT_BYTES = 1 << 16


def one_at_a_time(method: F) -> F:
    """Decorate a method so that threads call it one after another, and a torn state is refused.

    TorchScript compiles the method alone. A traced program has no threads.
    """
    is_traced, torn = is_compiling, torn_error

    def of_one(self: Any) -> Any:
        if self.is_view or is_traced():
            return method(self)
        with self._lock:
            if self._is_torn:
                raise torn(self)
            return method(self)

    def of_two(self: Any, x: Any) -> Any:
        if self.is_view or is_traced():
            return method(self, x)
        with self._lock:
            if self._is_torn:
                raise torn(self)
            return method(self, x)

    def of_three(self: Any, x: Any, y: Any) -> Any:
        if self.is_view or is_traced():
            return method(self, x, y)
        with self._lock:
            if self._is_torn:
                raise torn(self)
            return method(self, x, y)

    def of_four(self: Any, x: Any, y: Any, z: Any) -> Any:
        if self.is_view or is_traced():
            return method(self, x, y, z)
        with self._lock:
            if self._is_torn:
                raise torn(self)
            return method(self, x, y, z)

    # Four times the same, because *arguments would double the price.
    alone = (of_one, of_two, of_three, of_four)[method.__code__.co_argcount - 1]  # type: ignore[attr-defined]
    return in_place_of(method, with_arguments_of(method, alone))


def torn_error(learner: "Learner") -> RuntimeError:
    """Return the error of a learner that an interrupted call has left half written."""
    return RuntimeError(
        f"state: expected the whole state of {type(learner).__name__}, got one that an interrupted step or load has left half "
        "written; call reset() or load_state_dict()"
    )


def all_or_nothing(learner: Any, state: list[Any], is_whole: bool, method: Callable[..., Any], *arguments: Any) -> None:
    """Call a method that writes a learner's state, and put the state back if it raises.

    Args:
        learner: is marked as torn while the method runs: a learner, or any object that holds learners.
        state: the tensors or arrays that the method may write.
        is_whole: whether to take a snapshot. Without one, any exception leaves the learner marked, but for a
            :func:`~torchonline.core.checks.refusal`.
        method: what to call.
        arguments: what to call it with.
    """
    marks = learner.__dict__
    # Bytes are copied in half the time of an array.
    copy = Tensor.clone if type(state[0]) is not ARRAY else TO_BYTES
    before = list(map(copy, state)) if is_whole else None
    try:
        marks["_is_torn"] = True
        method(*arguments)
        marks["_is_torn"] = False
    except BaseException as error:
        marks["_is_torn"] = True
        if before is not None:
            for value, old in zip(state, before, strict=True):
                _restore_(value, old)
        elif not getattr(error, "is_refusal", False):
            raise
        marks["_is_torn"] = False
        raise


def in_order(observe: Callable[..., None], rounds: Iterable[tuple[Any, ...]]) -> None:
    """Learn from rounds one after another."""
    for arguments in rounds:
        observe(*arguments)


def _restore_(value: Any, old: Any) -> None:
    if isinstance(value, Tensor):
        value.detach().copy_(old)
    else:
        value[...] = np.frombuffer(old, value.dtype).reshape(value.shape)
