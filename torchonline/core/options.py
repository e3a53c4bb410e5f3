"""Constructor options: the four that all learners share, and what a repr says of the others."""

import inspect
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from torchonline.core.checks import kind


def described(instance: object, arguments: Mapping[str, Any]) -> str:
    """Return constructor arguments as ``name=value`` pairs, for a ``repr``: required ones, then those that are not the default.

    Args:
        instance: an object, whose class gives names, order and defaults.
        arguments: values by name. Names that the constructor does not have are ignored, so ``vars(instance)`` will do for a
            class that keeps its arguments under their own names.

    Example:
        >>> class Stream:
        ...     def __init__(self, dim, *, scale=1.0, batch_shape=()):
        ...         self.dim, self.scale, self.batch_shape = dim, scale, batch_shape
        >>> described(Stream(3, batch_shape=(2,)), {"dim": 3, "scale": 1.0, "batch_shape": (2,)})
        'dim=3, batch_shape=(2,)'
    """
    required, changed = [], []
    for name, parameter in inspect.signature(type(instance)).parameters.items():
        if name not in arguments:
            continue
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        elif _differs(arguments[name], parameter.default):
            changed.append(name)
    return ", ".join(f"{name}={_text(arguments[name])}" for name in (*required, *changed))


def _differs(value: Any, default: Any) -> bool:
    """Return whether a value is not the default. Tensors are compared by identity."""
    if value is default:
        return False
    return isinstance(value, Tensor) or isinstance(default, Tensor) or bool(value != default)


def _text(value: Any) -> str:
    """Return a value as one short line."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Tensor):
        return f"<{kind(value)}{'' if value.is_cpu else f' on {value.device}'}>"
    if isinstance(value, torch.device):
        return repr(str(value))
    if type(value) in (tuple, list):
        items = ", ".join(map(_text, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, (FunctionType, BuiltinFunctionType, MethodType, type)):
        return value.__name__
    text = repr(value)
    if isinstance(value, nn.Module) and "\n" in text:  # the tree of its parts
        return f"{type(value).__name__}(...)"
    return text


class LearnerOptions(TypedDict, total=False):
    """The four options of all learners, as ``**options: Unpack[LearnerOptions]`` in constructors. ``Learner`` explains them."""

    batch_shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device | str | None
    validate: bool


COMMON = ("batch_shape", "dtype", "device", "validate")
DEFAULTS: dict[str, Any] = {"batch_shape": (), "dtype": torch.float64, "device": None, "validate": True}


def expanded_signature(cls: type) -> inspect.Signature:
    """Return a constructor's signature with ``**options: Unpack[LearnerOptions]`` written out."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    if parameters and parameters[-1].annotation == Unpack[LearnerOptions]:
        hints = LearnerOptions.__annotations__
        parameters[-1:] = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=hints[name])
            for name in COMMON
        ]
    return inspect.Signature(parameters)


def passed(cls: type, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor's call by name, or raise a TypeError that names the class."""
    try:
        bound = inspect.signature(cls).bind(*arguments, **named).arguments
    except TypeError as error:
        raise TypeError(f"{cls.__name__}() {error}") from None
    return {name: value for name, value in bound.items() if name != "options"} | bound.get("options", {})


def arguments_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the method whose ``locals()`` are given, to pass them all on."""
    return {name: value for name, value in values.items() if name not in ("self", "__class__")}
