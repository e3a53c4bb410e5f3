"""Constructor options as text, for ``repr``."""

import inspect
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.core.checks import kind


def described(instance: object, arguments: Mapping[str, Any]) -> str:
    """Return constructor arguments as ``name=value`` pairs, for a ``repr``.

    Required arguments come first. An optional argument is left out where its value equals the default. Within both groups
    the order is the constructor's. A tensor is shown by its type and shape.

    Args:
        instance: an object, whose class gives names, order and defaults.
        arguments: values by name. Names that the constructor does not have are ignored, so ``vars(instance)`` will do for
            a class that keeps its arguments under their own names.

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
    """Whether a value is not the default; tensors are compared by identity."""
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
