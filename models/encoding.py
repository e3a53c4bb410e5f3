"""Encoders in evaluation mode, and the tensors around them."""

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from torchonline.core.checks import kind, shape_text
from torchonline.core.inputs import NUMBERS, array_of, as_indices, as_tensor

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
# One lock for each encoder in training mode: threads that switch its mode take turns. Reentrant, for signal handlers.
_LOCKS: "WeakKeyDictionary[nn.Module, Any]" = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):  # a child does not inherit a lock that another thread holds
    os.register_at_fork(after_in_child=_LOCKS.clear)


def typed_like(encoder: nn.Module, otherwise: Tensor) -> Tensor:
    """Return an encoder's first floating-point parameter, or another tensor."""
    return next((parameter for parameter in encoder.parameters() if parameter.is_floating_point()), otherwise)


def as_inputs(inputs: Any, encoder: nn.Module, state: Tensor) -> Tensor:
    """Return arrays and lists as inputs of an encoder, in the type of its parameters.

    Integers stay integers if the encoder begins with an embedding.
    """
    like = typed_like(encoder, state)
    if _begins_with_an_embedding(encoder) and array_of("inputs", inputs, NUMBERS).dtype.kind in "iu":
        return as_indices("inputs", inputs, like.device)
    return as_tensor("inputs", inputs, like.device).to(like.dtype)


def _begins_with_an_embedding(encoder: nn.Module) -> bool:
    """Return whether the layer that is registered first looks up integers.

    Layers without parameters do not count.
    """
    first = next((part for part in encoder.modules() if any(True for _ in part.parameters(recurse=False))), None)
    # A scripted layer keeps its name alone.
    return isinstance(first, EMBEDDINGS) or getattr(first, "original_name", "") in [one.__name__ for one in EMBEDDINGS]


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


def encoded_copy(encoder: nn.Module, items: Tensor) -> Any:
    """Return an encoder's output for a batch, of which it gets a copy.

    An encoder may work in place, as ``x.div_(255)`` does: what the caller gave stays as it is.
    """
    return encoder(items.clone())


def encoded_items(encoder: nn.Module, items: Tensor, feature_dims: int) -> Any:
    """Return an encoder's output for a batch of a head's items, or raise.

    The error names ``feature_dims``, and the encoder's own error is its cause. Running out of memory is not about the inputs,
    and is raised as it is.
    """
    if is_compiling():
        return encoded_copy(encoder, items)
    try:
        return encoded_copy(encoder, items)
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(
            f"inputs: expected what the encoder takes, got a batch of {kind(items)} for feature_dims={feature_dims}, and the "
            f"encoder raised {type(error).__name__}: {reason}. feature_dims is the number of trailing dimensions of one item: 1 "
            "for vectors, 3 for images"
        ) from error


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
