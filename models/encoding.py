"""Calls of encoders in evaluation mode, and conversion of their inputs."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from torchonline.core.checks import kind, shape_text
from torchonline.core.inputs import NUMBERS, array_of, as_indices, as_tensor
from torchonline.export.copies import uncompiled
from torchonline.features import ColumnEncoder
from torchonline.models.fitted_transformer import FittedTransformer
from torchonline.models.hugging_face import HuggingFaceEncoder

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
# One lock for each encoder in training mode: threads that switch its mode take turns. Reentrant, for signal handlers.
_LOCKS: "WeakKeyDictionary[nn.Module, Any]" = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):  # a child does not inherit a lock that another thread holds
    os.register_at_fork(after_in_child=_LOCKS.clear)


def typed_like(encoder: nn.Module, otherwise: Tensor) -> Tensor:
    """Return an encoder's first floating-point parameter, or ``otherwise``.

    The codes of a :class:`~torchonline.features.ColumnEncoder` are float64.
    """
    columns = column_encoder(encoder)
    if columns is not None:
        return columns.fill
    return next((parameter for parameter in encoder.parameters() if parameter.is_floating_point()), otherwise)


def column_encoder(encoder: nn.Module) -> ColumnEncoder | None:
    """Return the module that reads rows of a table, if an encoder begins with one."""
    first = _first(encoder)
    return first if isinstance(first, ColumnEncoder) else None


def hugging_face_encoder(encoder: nn.Module) -> HuggingFaceEncoder | None:
    """Return the module that reads texts or images, if an encoder begins with one."""
    first = _first(encoder)
    return first if isinstance(first, HuggingFaceEncoder) else None


def _first(encoder: nn.Module) -> nn.Module:
    encoder = uncompiled(encoder)
    return encoder[0] if isinstance(encoder, nn.Sequential) and len(encoder) else encoder


def are_rows(inputs: Any) -> bool:
    """Return whether inputs are rows of a table, and not numbers."""
    while isinstance(inputs, (list, tuple)) and inputs:
        inputs = inputs[0]
    return isinstance(inputs, Mapping) or (hasattr(inputs, "columns") and hasattr(inputs, "__getitem__"))


def input_type(head: Any) -> Tensor:
    """Return a tensor with the dtype of a head's inputs.

    The dtype is the scaler's if there is a scaler, else the encoder's, else the policy's.
    """
    return head.scaler.mean if head.scaler is not None else typed_like(head.encoder, head.policy.estimator.theta_hat)


def typed_inputs(encoder: nn.Module | None, inputs: Any) -> Any:
    """Convert floating-point inputs to the dtype of an encoder's parameters.

    Inputs of a HuggingFaceEncoder become tensors.
    """
    reader = None if encoder is None else hugging_face_encoder(encoder)
    if reader is not None and not isinstance(inputs, Tensor):
        inputs = reader.lookup(inputs)
    if encoder is None or not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return inputs
    return inputs.to(typed_like(encoder, inputs).dtype)


def as_inputs(inputs: Any, encoder: nn.Module, state: Tensor) -> Tensor:
    """Convert arrays and lists to an encoder's inputs, in its parameters' dtype.

    Integers stay integers if the encoder begins with an embedding. Rows of a table become the codes of a ColumnEncoder or the
    features of a FittedTransformer, texts the tokens of a HuggingFaceEncoder.
    """
    columns, transformer, reader = column_encoder(encoder), _first(encoder), hugging_face_encoder(encoder)
    if reader is not None:
        return reader.lookup(inputs)
    if columns is not None and are_rows(inputs):
        return columns.lookup(inputs)
    if isinstance(transformer, FittedTransformer):
        return transformer.lookup(inputs).to(state.device)
    like = typed_like(encoder, state)
    if _begins_with_an_embedding(encoder) and array_of("inputs", inputs, NUMBERS).dtype.kind in "iu":
        return as_indices("inputs", inputs, like.device)
    return as_tensor("inputs", inputs, like.device).to(like.dtype)


def _begins_with_an_embedding(encoder: nn.Module) -> bool:
    """Return whether the first registered layer with parameters is an embedding."""
    first = next((part for part in encoder.modules() if any(True for _ in part.parameters(recurse=False))), None)
    # A scripted layer keeps only its class name.
    return isinstance(first, EMBEDDINGS) or getattr(first, "original_name", "") in [one.__name__ for one in EMBEDDINGS]


def evaluating(module: nn.Module) -> AbstractContextManager[None]:
    """Run a module in evaluation mode, then restore the mode of each part.

    Several threads may run a module concurrently if it is already in evaluation mode. In training mode they take turns.
    """
    return NO_MODE if type(module) is nn.Identity else _evaluating(module)


# For modules without a mode.
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
        part.__dict__["training"] = is_training  # takes a tenth of the time of nn.Module's assignment


def encoded_copy(encoder: nn.Module, items: Tensor) -> Any:
    """Return an encoder's output for a copy of a batch.

    An encoder may therefore work in place, like ``x.div_(255)``, without changing the caller's tensor.
    """
    return encoder(items.clone())


def encoded_items(encoder: nn.Module, items: Tensor, feature_dims: int) -> Any:
    """Return an encoder's output for a batch of a head's items, or raise.

    The error names ``feature_dims`` and has the encoder's error as its cause. An out-of-memory error is raised unchanged.
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
    """Return the encoder's output width that gives the policy ``dim`` features."""
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
