"""The choice between tensors and NumPy views, made here and nowhere else.

A learner is written once, against :mod:`torchonline.core.ops` and the operators that torch and NumPy share. Its code runs on
tensors everywhere: accelerators, large fleets, TorchScript, torch.export. Small rounds on the CPU run the same code on NumPy
views of the same buffers, because a NumPy call costs a fraction of a torch call.

Two decorators state what differs. Both replace a function in Python only. TorchScript reads a function's source through
``__wrapped__``, so it compiles the decorated body and never sees the decorator.

- :func:`on_arrays` gives a function a second body for NumPy arrays.
- :func:`in_python` gives a function another body for Python, eager or traced.
"""

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.jit import is_tracing

F = TypeVar("F", bound=Callable[..., Any])

# The types that code on NumPy views computes with. Python's own numbers and booleans belong to a single learner.
ARRAYS = (np.ndarray, np.generic, float, bool)
ARRAY_TYPES = frozenset((np.ndarray, np.float64, np.float32, np.bool_, np.int64, float, bool))

# NumPy views serve up to this many multiplications in the matrix product of a choice, and up to this many entries of a
# state matrix in a step, over all learners. Above, torch's larger call overhead no longer matters.
SMALL_PRODUCT = 1 << 22
SMALL_STEP = 1 << 17


def in_place_of(function: Callable[..., Any], replacement: Callable[..., Any]) -> Any:
    """Return a copy of ``replacement`` with the name, documentation, globals and default arguments of ``function``.

    TorchScript looks up the names of a function's source in the globals of what replaces the function. So the copy has these
    globals, and a replacement from another module reaches its own names through its closure.
    """
    new: Any = replacement
    old: Any = function
    # A code object of its own: CPython specialises code for what it calls, and wrappers of one kind call different functions.
    code = new.__code__.replace(co_name=old.__name__)
    same = FunctionType(code, old.__globals__, old.__name__, new.__defaults__, new.__closure__)
    same.__kwdefaults__ = new.__kwdefaults__
    return functools.wraps(function)(same)


def with_arguments_of(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Any:
    """Return ``wrapper``, which takes as many arguments, with the names and defaults of the arguments of ``function``."""
    old, new = function.__code__, wrapper.__code__  # type: ignore[attr-defined]
    count = old.co_argcount
    code = new.replace(co_varnames=old.co_varnames[:count] + new.co_varnames[count:])
    return FunctionType(code, wrapper.__globals__, wrapper.__name__, function.__defaults__, wrapper.__closure__)  # type: ignore[attr-defined]


def on_arrays(array_version: Callable[..., Any]) -> Callable[[F], F]:
    """Decorate a function on tensors with its version for NumPy arrays. The type of the first argument (after self) decides.

    Example:
        >>> @on_arrays(lambda x: x.max(-1))
        ... def largest(x: Tensor) -> Tensor:
        ...     return x.amax(-1)
        >>> largest(torch.ones(3)), largest(np.ones(3))
        (tensor(1.), np.float64(1.0))
    """

    def decorate(function: F) -> F:
        types, call, count = ARRAY_TYPES, function, function.__code__.co_argcount  # type: ignore[attr-defined]

        # A fixed number of arguments costs half of what *rest does.
        def of_one(x: Any) -> Any:
            return array_version(x) if type(x) in types else call(x)

        def of_two(x: Any, y: Any) -> Any:
            return array_version(x, y) if type(x) in types else call(x, y)

        def of_three(x: Any, y: Any, z: Any) -> Any:
            return array_version(x, y, z) if type(x) in types else call(x, y, z)

        def of_many(x: Any, *rest: Any) -> Any:
            return array_version(x, *rest) if type(x) in types else call(x, *rest)

        def of_method(self: Any, x: Any, *rest: Any) -> Any:
            return array_version(self, x, *rest) if type(x) in types else call(self, x, *rest)

        if function.__code__.co_varnames[:1] == ("self",):  # type: ignore[attr-defined]
            return in_place_of(function, of_method)
        either = {1: of_one, 2: of_two, 3: of_three}.get(count)
        return in_place_of(function, of_many if either is None else with_arguments_of(function, either))

    return decorate


def in_python(python_version: Callable[..., Any]) -> Callable[[F], F]:
    """Decorate the body that TorchScript compiles with the one that Python runs, from the same module."""

    def decorate(function: F) -> F:
        return in_place_of(function, python_version)

    return decorate


def is_readable(tensor: Tensor) -> bool:
    """Return whether a value of ``tensor`` can be read without leaving a constant behind in a traced program."""
    return type(tensor) in PLAIN and not is_compiling() and not is_tracing()


# Tensors of other types are fake or traced: `checks.as_plain` converts all subclasses that hold values.
PLAIN = (Tensor, torch.nn.Parameter)


def _at_hand_in_python(value: Any) -> bool:
    return not isinstance(value, Tensor) or (value.is_cpu and is_readable(value))


@in_python(_at_hand_in_python)
def is_at_hand(value: Tensor) -> bool:
    """Return whether the host can branch on ``value`` without waiting for a device or fixing a branch in a program."""
    return True


def _may_hold_in_python(condition: Any) -> bool:
    if isinstance(condition, (bool, np.bool_)):
        return bool(condition)
    return not _at_hand_in_python(condition) or bool(condition.any())


@in_python(_may_hold_in_python)
def may_hold(condition: Tensor) -> bool:
    """Return whether a condition ``(*B)`` holds for any learner; True where the host cannot tell."""
    return bool(condition.any())


def autocasts(x: Any) -> bool:
    """Return whether automatic mixed precision would round products of a float32 state with ``x``."""
    return isinstance(x, Tensor) and not x.is_meta and torch.is_autocast_enabled(x.device.type)


def exactly(x: Tensor) -> torch.autocast:
    """Return a context without automatic mixed precision."""
    return torch.autocast(x.device.type, enabled=False)


def without_cast(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a function for ``nn.Module._apply`` that moves tensors as ``fn`` does and keeps their type."""

    def move(value: Tensor) -> Tensor:
        moved = fn(value)
        return moved if moved.dtype is value.dtype else value.to(moved.device)

    return move


def as_array(x: Tensor) -> Any:
    """Return a tensor on the CPU as a NumPy array, without a copy where none is needed."""
    if x.requires_grad:
        x = x.detach()
    try:
        return x.numpy()
    except RuntimeError:  # the memory holds the negative of x
        return x.resolve_neg().numpy()


def beside(constant: Any, x: Any) -> Any:
    """Return an array, or a tensor on the CPU, in the form that goes with ``x``: an array, or a tensor on its device."""
    if isinstance(x, np.ndarray):
        return constant if isinstance(constant, np.ndarray) else constant.numpy()
    return torch.as_tensor(constant, device=x.device)
