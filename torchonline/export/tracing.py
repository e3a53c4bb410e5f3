"""Traces of encoders that TorchScript cannot compile."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def traced(encoder: nn.Module, items: Tensor) -> nn.Module:
    """Return the TorchScript trace of an encoder, in evaluation mode.

    A trace repeats the operations of one pass on other values and sizes. It ignores branches that depend on values.

    Args:
        encoder: a module in evaluation mode; its parameters are shared with the trace.
        items: a batch of its inputs, ``(n, *feature)``.
    """
    with torch.no_grad(), _quiet():
        trace: Any = torch.jit.trace(encoder, (items,), check_trace=False)
    return trace.eval()


def not_scriptable(module: nn.Module) -> str | None:
    """Name an innermost part that cannot be scripted, with torch's reason.

    Return None if all parts can.
    """
    for part in module.children():
        if (found := not_scriptable(part)) is not None:
            return found
    try:
        with _quiet():
            torch.jit.script(module)
    except Exception as error:  # of many types
        reason = next((line.strip(" .:") for line in str(error).splitlines() if line.strip()), "")
        return f"{type(module).__name__}, for which torch raised {type(error).__name__}: {reason}"
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings about the format, and about an encoder's shapes."""
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, FutureWarning, torch.jit.TracerWarning):
            warnings.simplefilter("ignore", kind)
        yield
