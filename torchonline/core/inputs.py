"""Conversion of arguments to tensors: Python numbers, lists, NumPy arrays and tensors of all kinds."""

import numbers
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.compiler import is_compiling

from torchonline.core.backend import PLAIN, is_readable
from torchonline.core.checks import LARGEST_EXACT, check_state_dtype, kind, shape_text


def check_tensor(name: str, value: Any, state: Tensor, *, is_real: bool = False) -> Tensor:
    """Return ``value`` as a plain tensor in the type of a learner's ``state``, or raise an error that calls it ``name``.

    Numbers, lists and NumPy arrays are converted once, exactly, and moved to the state's device. A tensor on another device is
    refused, and a tensor of integers or booleans unless ``is_real``.
    """
    if type(value) is not Tensor:
        value = as_tensor(name, value, state.device)
    if value.layout is not torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got one of layout {value.layout}")
    if not (value.is_cpu and state.is_cpu) and value.device != state.device:
        raise ValueError(f"{name}: expected a tensor on {state.device}, got one on {value.device}")
    dtype = state.dtype
    if dtype is not torch.float64 and dtype is not torch.float32:
        check_state_dtype(dtype)
    if value.dtype is dtype:
        return value
    if not value.is_floating_point():
        if not is_real or value.is_complex():
            raise TypeError(f"{name}: expected a floating-point tensor, got {value.dtype}")
        if value.dtype is torch.int64:
            _check_integers(name, as_plain(name, value).abs().max() if value.numel() else 0)
    return value.to(dtype)


def as_tensor(name: str, value: Any, device: torch.device) -> Tensor:
    """Return a tensor as a plain one; anything else as a new float tensor, or raise a TypeError."""
    if isinstance(value, Tensor):
        return as_plain(name, value)
    if isinstance(value, bool) or (isinstance(value, numbers.Real) and not isinstance(value, np.generic)):
        if isinstance(value, numbers.Integral):
            _check_integers(name, abs(int(value)))
        return torch.tensor(float(value), dtype=torch.float64, device=device)
    if isinstance(value, (str, bytes, type(None))):
        raise _no_numbers(name, type(value).__name__)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors on other devices
        raise _no_numbers(name, f"{type(value).__name__} ({str(error).splitlines()[0]})") from error
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise _no_numbers(name, f"{type(value).__name__} of {array.dtype}")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        _check_integers(name, max(int(array.max()), -int(array.min())))
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    # A copy: the array may be read-only, or be written while the step reads it.
    return torch.from_numpy(np.array(array, order="C", dtype=array.dtype.newbyteorder("="))).to(device)


def as_indices(name: str, value: Any, device: torch.device) -> Tensor:
    """Return an int64 tensor as a plain one, and an integer or (lists or arrays of) integers as a new int64 tensor."""
    if not isinstance(value, Tensor):
        array = np.asarray(None if isinstance(value, (str, bytes, bool)) else value)
        if array.dtype.kind not in "iu":
            raise TypeError(f"{name}: expected an int64 tensor or integers, got {type(value).__name__}")
        return torch.from_numpy(array.astype(np.int64)).to(device)
    if value.dtype != torch.int64:
        raise TypeError(f"{name}: expected torch.int64, got {value.dtype}")
    return as_plain(name, value)


def as_plain(name: str, value: Tensor) -> Tensor:
    """Return a tensor of a subclass as a plain tensor on the same memory. Fake and traced tensors stay what they are."""
    cls: Any = type(value)
    if cls in PLAIN or is_compiling() or isinstance(value, (FakeTensor, FunctionalTensor)):
        return value
    if cls.__torch_dispatch__ is not Tensor.__torch_dispatch__:  # a wrapper, whose values are elsewhere
        raise TypeError(f"{name}: expected a torch.Tensor with values of its own, got {cls.__name__}")
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(Tensor)


def check_mask(name: str, mask: Any, shape: tuple[int, ...], like: Tensor, validate: bool) -> Tensor:
    """Return a boolean mask as a plain tensor, or raise. With ``validate``, each row needs an available entry."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"{name}: expected a tensor of torch.bool, True where available, got {kind(mask)}")
    mask = as_plain(name, mask)
    if mask.device != like.device:
        raise ValueError(f"{name}: expected a tensor on {like.device}, got one on {mask.device}")
    if mask.shape != shape:
        raise ValueError(f"{name}: expected shape {shape_text(shape)}, got {shape_text(mask.shape)}")
    if validate and is_readable(mask) and not bool(mask.any(-1).all()):
        raise ValueError(f"{name}: expected an available entry in each row, got a row with none")
    return mask


def _check_integers(name: str, largest: Any) -> None:
    if largest > LARGEST_EXACT:
        raise ValueError(
            f"{name}: expected integers of magnitude at most 2^53, which float64 holds exactly, got {int(largest)}"
        )


def _no_numbers(name: str, got: str) -> TypeError:
    return TypeError(f"{name}: expected a torch.Tensor, a NumPy array or (lists of) real numbers, got {got}")
