"""The choice between tensors and NumPy views, made here and nowhere else.

A learner is written once, in :mod:`torchonline.core.ops` and the operators that torch and NumPy share. The code runs on tensors
everywhere: accelerators, large batches of learners, TorchScript, torch.export. Small rounds on the CPU run it on NumPy views of
the same buffers, because a NumPy call costs a fraction of a torch call.

:func:`on_arrays` gives a function a second body for NumPy arrays, :func:`in_python` one for Python, eager or traced. TorchScript
reads a function's source through ``__wrapped__``, so it compiles the decorated body and never sees the decorator.
"""

import functools
import inspect
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch._C import _is_tracing  # torch.jit.is_tracing without its two calls
from torch._C import _len_torch_dispatch_stack as modes_of_dispatch
from torch.compiler import is_compiling

F = TypeVar("F", bound=Callable[..., Any])

# The types that code on NumPy views computes with. Python's own numbers and booleans belong to a single learner.
ARRAY_TYPES = frozenset((np.ndarray, np.float64, np.float32, np.bool_, np.int64, float, bool))

# NumPy views serve up to this many multiplications in the matrix product of a choice, and up to this many entries of a
# state matrix in a step, over all learners. Above, torch's larger call overhead no longer matters.
SMALL_PRODUCT = 1 << 22
SMALL_STEP = 1 << 17


# Stands for a keyword-only argument that a call omits.
MISSING: Any = object()


def with_body(function: Callable[..., Any], body: str, **names: Any) -> Any:
    """Return a function with the signature of ``function`` and another body.

    Name, documentation and globals are those of ``function`` too. The body is text, because a wrapper with ``*arguments`` takes
    twice as long, and TorchScript needs the globals. ``{all}`` stands for the arguments in the body, ``{first}`` for the first
    after ``self``. The body may use ``names`` too. If the function has keyword-only arguments, the new one refuses them by
    position, with an error that shows the right call.
    """
    new: Any = function
    code = new.__code__
    arguments = code.co_varnames[: code.co_argcount]
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    defaults = new.__kwdefaults__ or {}
    every, first = ", ".join(arguments), next((name for name in arguments if name != "self"), "")
    body = body.format(all=", ".join([*arguments, *(f"{name}={name}" for name in keywords)]), first=first)
    if keywords:
        every = ", ".join([*arguments, "*surplus", *keywords])
        bad = " or ".join(["surplus", *(f"{name} is _missing" for name in keywords if name not in defaults)])
        body = f"if {bad}:\n raise _by_keyword(_name, {arguments}, {keywords}, surplus)\n{body}"
        names |= {"_by_keyword": by_keyword_error, "_name": new.__name__, "_missing": MISSING}
    body = body.replace("\n", "\n  ")
    source = f"def make({', '.join(names)}):\n def {new.__name__}({every}):\n  {body}\n return {new.__name__}"
    made: dict[str, Any] = {}
    exec(compile(source, f"<{new.__qualname__}>", "exec"), new.__globals__, made)
    wrapper = made["make"](**names)
    wrapper.__defaults__, wrapper.__kwdefaults__ = new.__defaults__, dict.fromkeys(keywords, MISSING) | defaults
    return functools.wraps(function)(wrapper)


def with_keywords(method: F) -> F:
    """Decorate a method to refuse keyword-only arguments by position."""
    return with_body(method, "return _method({all})", _method=method)


def check_keywords(name: str, signature: inspect.Signature, arguments: tuple[Any, ...]) -> None:
    """Refuse keyword-only arguments by position, as the method itself does."""
    kinds = [(key, each.kind) for key, each in signature.parameters.items()]
    own = tuple(key for key, kind in kinds if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
    keywords = tuple(key for key, kind in kinds if kind is inspect.Parameter.KEYWORD_ONLY)
    surplus = arguments[len(own) - 1 :]
    if keywords and surplus:
        raise by_keyword_error(name, own, keywords, surplus)


def by_keyword_error(
    name: str, arguments: tuple[str, ...], keywords: tuple[str, ...], surplus: tuple[Any, ...]
) -> TypeError:
    """Return the error for keyword-only arguments given by position."""
    own = [argument for argument in arguments if argument != "self"]
    values = [f"{value!r}" if value is None or isinstance(value, (int, float)) else "..." for value in surplus]
    given = [f"{keyword}={value}" for keyword, value in zip(keywords, values or ["..."], strict=False)]
    text = (
        f"{name}: expected {' and '.join(keywords[: len(given)])} by keyword, {name}({', '.join([*own, *given])}), "
        f"got {len(own) + len(surplus)} positional arguments"
    )
    if "reward" in own and "action" not in own:
        text += f"; this {name} takes no action, {own[0]} is the features of the chosen arm"
    return TypeError(text)


def on_arrays(array_version: Callable[..., Any]) -> Callable[[F], F]:
    """Decorate a function on tensors with its version for NumPy arrays.

    The type of the first argument chooses the version.

    Example:
        >>> @on_arrays(lambda x: x.max(-1))
        ... def largest(x: Tensor) -> Tensor:
        ...     return x.amax(-1)
        >>> largest(torch.ones(3)), largest(np.ones(3))
        (tensor(1.), np.float64(1.0))
    """
    body = "return _of_arrays({all}) if type({first}) in _types else _of_tensors({all})"

    def decorate(function: F) -> F:
        chosen: Any = with_body(function, body, _of_arrays=array_version, _of_tensors=function, _types=ARRAY_TYPES)
        if not chosen.__defaults__:  # the version for arrays has none
            chosen.of_arrays = array_version
        return chosen

    return decorate


def bound_to_arrays(method: Any, known: dict[int, dict[str, Any]]) -> Any:
    """Return a method that calls the array versions of functions without a choice.

    The choices of :func:`on_arrays` take some percent of a small round. ``known`` holds the globals of modules with these
    versions.
    """
    names = getattr(method, "__globals__", {})
    # A user's globals may change. Those of code that is run by `exec` may have no name.
    is_ours = (names.get("__name__") or "").startswith("torchonline.")
    if type(method) is not FunctionType or method.__closure__ or not is_ours:
        return method
    if id(names) not in known:
        known[id(names)] = {name: getattr(value, "of_arrays", value) for name, value in names.items()}
    bound: Any = FunctionType(method.__code__, known[id(names)], method.__name__, method.__defaults__)
    bound.__kwdefaults__ = method.__kwdefaults__
    return bound


def in_python(python_version: F) -> Callable[[Callable[..., Any]], F]:
    """Decorate the body that TorchScript compiles with the body that Python runs.

    Both are from the same module. TorchScript reads the types of the first, which are tensors. A type checker sees those of the
    second. TorchScript does not compile keyword-only arguments with defaults: arguments that are keyword-only in Python are
    positional there.
    """

    def decorate(function: Callable[..., Any]) -> F:
        old: Any = python_version
        keywords = old.__kwdefaults__ or {}
        if keywords and not old.__code__.co_flags & inspect.CO_VARARGS:
            old = with_keywords(old)
        cells = zip(old.__code__.co_freevars, old.__closure__ or (), strict=True)
        # Errors call the method by its public name.
        closure = tuple(CellType(function.__name__) if name == "_name" else cell for name, cell in cells)
        copy: Any = FunctionType(old.__code__, old.__globals__, old.__name__, old.__defaults__, closure)
        copy.__kwdefaults__ = old.__kwdefaults__
        copy = functools.wraps(function)(copy)
        if keywords:
            signature = inspect.signature(function)
            kinds = [
                each.replace(kind=each.KEYWORD_ONLY) if name in keywords else each
                for name, each in signature.parameters.items()
            ]
            copy.__signature__ = signature.replace(parameters=kinds)
        return copy

    return decorate


def is_readable(tensor: Tensor) -> bool:
    """Return whether values can be read without becoming constants of a trace."""
    return type(tensor) in PLAIN and not tensor.is_meta and not is_compiling() and not _is_tracing()


def is_eager() -> bool:
    """Return whether nothing is being compiled or traced, and tensors are not fake."""
    return not is_compiling() and not _is_tracing() and not modes_of_dispatch()


# Tensors of other types are fake or traced: `inputs.as_plain` converts all subclasses that hold values.
PLAIN = (Tensor, torch.nn.Parameter)


def _at_hand_in_python(value: Any) -> bool:
    return not isinstance(value, Tensor) or (value.is_cpu and is_readable(value))


@in_python(_at_hand_in_python)
def is_at_hand(value: Tensor) -> bool:
    """Return whether the host can branch on ``value``.

    It cannot where it would wait for a device or fix a branch in a traced program.
    """
    return True


def _may_hold_in_python(condition: Any) -> bool:
    if isinstance(condition, (bool, np.bool_)):
        return bool(condition)
    return not _at_hand_in_python(condition) or bool(condition.any())


@in_python(_may_hold_in_python)
def may_hold(condition: Tensor) -> bool:
    """Return whether any of ``(*B)`` conditions holds; True if the host cannot tell."""
    return bool(condition.any())


def autocasts(x: Any) -> bool:
    """Return whether autocast would round products of a float32 state with ``x``."""
    return isinstance(x, Tensor) and not x.is_meta and torch.is_autocast_enabled(x.device.type)


def exactly(x: Tensor) -> torch.autocast:
    """Return a context without automatic mixed precision."""
    return torch.autocast(x.device.type, enabled=False)


def without_cast(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a version of ``fn`` for ``nn.Module._apply`` that keeps the dtype."""

    def move(value: Tensor) -> Tensor:
        moved = fn(value)
        return moved if moved.dtype is value.dtype else value.to(moved.device)

    return move


def writable(x: Tensor | None) -> Tensor | None:
    """Return the tensor, or a copy if it was made in inference mode.

    An inference tensor cannot be written outside of that mode.
    """
    if x is None or not x.is_inference():
        return x
    with torch.inference_mode(False):
        return x.clone()


def as_array(x: Tensor) -> Any:
    """Return a tensor on the CPU as a NumPy array, without a copy if possible."""
    if x.requires_grad:
        x = x.detach()
    try:
        return x.numpy()
    except RuntimeError:  # x is the negative of its memory
        return x.resolve_neg().numpy()


def beside(constant: Any, x: Any) -> Any:
    """Return an array or a CPU tensor in the form and on the device of ``x``."""
    if isinstance(x, np.ndarray):
        return constant if isinstance(constant, np.ndarray) else constant.numpy()
    return torch.as_tensor(constant, device=x.device)
