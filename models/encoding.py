"""Encoders in evaluation mode, and the tensors around them."""

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.compiler import is_compiling

from torchonline.core.checks import shape_text

# One lock for each encoder in training mode: threads that switch its mode take turns. Reentrant, for signal handlers.
_LOCKS: "WeakKeyDictionary[nn.Module, Any]" = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):  # a child does not inherit a lock that another thread holds
    os.register_at_fork(after_in_child=_LOCKS.clear)


def typed_like(encoder: nn.Module, otherwise: Tensor) -> Tensor:
    """Return an encoder's first floating-point parameter, or another tensor."""
    return next((parameter for parameter in encoder.parameters() if parameter.is_floating_point()), otherwise)


def input_type(head: Any) -> Tensor:
    """Return a tensor of the type in which a head takes inputs.

    It is that of the scaler, if there is one, of the encoder, or of the policy.
    """
    return head.scaler.mean if head.scaler is not None else typed_like(head.encoder, head.policy.estimator.theta_hat)


def typed_inputs(encoder: nn.Module | None, inputs: Tensor) -> Tensor:
    """Convert floating-point inputs to the type of an encoder's parameters."""
    if encoder is None or not inputs.is_floating_point():
        return inputs
    return inputs.to(typed_like(encoder, inputs).dtype)


def evaluating(module: nn.Module) -> AbstractContextManager[None]:
    """Run a module in evaluation mode, then restore the mode of each part.

    Several threads may run a module at once if it is in evaluation mode already. Otherwise they follow one another.
    """
    return NO_MODE if type(module) is nn.Identity else _evaluating(module)


# For modules that have no mode.
NO_MODE = nullcontext()


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    lock = nullcontext() if is_compiling() else _LOCKS.setdefault(module, threading.RLock())
    with lock:
        training = [part for part in module.modules() if part.training]
        if training:
            try:
                _set_mode(training, False)
                yield
            finally:
                _set_mode(training, True)
            return
    yield


def _set_mode(parts: list[nn.Module], is_training: bool) -> None:
    for part in parts:
        part.__dict__["training"] = is_training  # a tenth of the time of nn.Module's assignment


def encoder_width(actions: Tensor, combine: str, dim: int) -> int:
    """Return the encoder's output width for which the policy gets ``dim`` features."""
    if actions.dim() != 2 or actions.size(0) == 0:
        raise ValueError(f"actions: expected shape (K, e) with K > 0, got {shape_text(actions.shape)}")
    width = actions.size(1)
    if combine == "product":
        if width != dim:
            raise ValueError(
                f'actions: expected shape (K, {dim}), the policy\'s dim, for combine="product", got (K, {width})'
            )
        return dim
    if width == 0 or dim % width != 0:
        raise ValueError(
            f'actions: expected a width that divides the policy\'s dim {dim} for combine="outer", got (K, {width})'
        )
    return dim // width
