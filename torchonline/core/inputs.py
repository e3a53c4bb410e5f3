"""Conversion of Python numbers, lists, NumPy arrays and tensors to plain tensors."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.compiler import is_compiling

from torchonline.core.backend import PLAIN, is_readable
from torchonline.core.checks import LARGEST_EXACT, check_state_dtype, kind, shape_text

# The types that a learner accepts as numbers. TorchScript accepts only tensors.
ArrayLike = Tensor | np.ndarray | np.generic | Sequence[Any] | float

NUMBERS = "a torch.Tensor, a NumPy array or (lists of) real numbers"
STRIDED = torch.strided
FLOAT_OF = {torch.float64: np.dtype(np.float64), torch.float32: np.dtype(np.float32)}
FLOATS = tuple(FLOAT_OF.values())
NUMBER_TYPES = (float, int, np.float64, np.float32)
LONG_INTEGERS = (torch.int64, torch.uint64)


def check_tensor(name: str, value: Any, state: Tensor, *, is_real: bool = False) -> Tensor:
    """Return ``value`` as a plain tensor in the type of a learner's ``state``.

    Numbers, lists and NumPy arrays are converted once, without rounding, and moved to the state's device. A tensor on another
    device is refused, and a tensor of integers or booleans unless ``is_real``. ``name`` is the value's name in errors.
    """
    if type(value) is not Tensor:
        value = as_tensor(name, value, state.device)
    if value.layout is not STRIDED or value.is_nested:
        raise _not_dense(name, value)
    if not (value.is_cpu and state.is_cpu) and value.device != state.device:
        raise ValueError(f"{name}: expected a tensor on {state.device}, got one on {value.device}")
    dtype = state.dtype
    if dtype is not torch.float64 and dtype is not torch.float32:
        check_state_dtype(dtype)
    if value.dtype is dtype:
        return value
    if not value.is_floating_point():
        if not is_real or value.is_complex() or value.is_quantized:
            how = "" if value.is_complex() or value.is_quantized else "; convert it by .float()"
            raise TypeError(f"{name}: expected a floating-point tensor, got {value.dtype}{how}")
        if value.dtype in LONG_INTEGERS and value.numel():
            _check_integers(name, _largest(value))
    return value.to(dtype)


def plain_array(value: Any, state: Tensor) -> Any:
    """Return a tensor or an array as an array in the type of the state; or None.

    Float32 and float64 convert as torch converts them; other types, and tensors that require a gradient, give None. ``state`` is
    on the CPU. Another thread may write an array between its check and its use, so it is copied.
    """
    if type(value) is Tensor:
        if value.requires_grad:
            return None
        try:
            array = value.numpy()
        except (RuntimeError, TypeError):  # on another device, sparse, nested or negated
            return None
        if value.dtype is state.dtype:
            return array
    elif type(value) is np.ndarray and value.dtype in FLOATS:
        array = value.copy()
    else:
        return None
    wanted = FLOAT_OF.get(state.dtype)
    if array.dtype == wanted:
        return array
    if array.dtype not in FLOATS or wanted not in FLOATS:
        return None
    # NumPy widens a small array in a third of the time, but where it narrows one, it may warn.
    return array.astype(wanted) if wanted == np.float64 else torch.from_numpy(array).to(state.dtype).numpy()


def plain_number(value: Any, state: Tensor) -> float | None:
    """Return a real number as a float, rounded to the state's type; or None.

    Integers that float32 does not hold give None.
    """
    is_double = state.dtype is torch.float64
    if type(value) is Tensor:
        is_exact = value.dtype is state.dtype or (is_double and value.dtype is torch.float32)
        return value.item() if is_exact and value.is_cpu and value.layout is STRIDED and not value.dim() else None
    if type(value) not in NUMBER_TYPES or (type(value) is int and abs(value) > 2**24):
        return None
    number = float(value)
    if is_double:
        return number
    # NumPy would warn of an overflow.
    return float(np.float32(number)) if abs(number) < 1e30 else None


def as_tensor(name: str, value: Any, device: torch.device) -> Tensor:
    """Return a tensor as a plain one, other numbers as a new float tensor, or raise."""
    if isinstance(value, Tensor):
        return as_plain(name, value)
    if isinstance(value, bool) or (isinstance(value, numbers.Real) and not isinstance(value, np.generic)):
        if isinstance(value, numbers.Integral):
            _check_integers(name, abs(int(value)))
        return torch.tensor(float(value), dtype=torch.float64, device=device)
    array = array_of(name, value, NUMBERS)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise _unexpected(name, NUMBERS, f"{type(value).__name__} of {array.dtype}")
    _check_long_integers(name, array)
    # NumPy has rounded the integers in a list with a float. Below 2^53 none can have been rounded.
    if isinstance(value, (list, tuple)) and array.dtype.kind == "f" and array.size:
        if not np.abs(array).max() < LARGEST_EXACT:
            _check_entries(name, value)
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    # A copy: the array may be read-only, or be written while the step reads it.
    return torch.from_numpy(np.array(array, order="C", dtype=array.dtype.newbyteorder("="))).to(device)


def as_indices(name: str, value: Any, device: torch.device) -> Tensor:
    """Return an int64 tensor as a plain one; integers, lists and arrays as a new one."""
    if not isinstance(value, Tensor):
        wanted = "an int64 tensor or integers"
        if isinstance(value, bool):
            raise _unexpected(name, wanted, "bool")
        array = array_of(name, value, wanted)
        is_empty = isinstance(value, (list, tuple)) and not array.size  # an empty list has no type
        if array.dtype.kind not in "iu" and not is_empty:
            raise _unexpected(name, wanted, f"{type(value).__name__} of {array.dtype}")
        if array.dtype.kind == "u" and array.size and array.max() > torch.iinfo(torch.int64).max:
            raise ValueError(f"{name}: expected integers up to {torch.iinfo(torch.int64).max}, got {array.max()}")
        return torch.from_numpy(array.astype(np.int64)).to(device)
    if value.dtype != torch.int64:
        raise TypeError(f"{name}: expected torch.int64, got {value.dtype}")
    return as_dense(name, value)


def integer_at_hand(value: Any) -> int | None:
    """Return an integer, or a tensor of one on the CPU, as an int; or None."""
    if type(value) is Tensor and value.dtype is torch.int64 and not value.dim() and value.is_cpu and is_readable(value):
        return int(value.item())
    return value if type(value) is int else None


def check_indices(name: str, value: Any, size: int) -> Tensor:
    """Return int64 indices below ``size``, at least one, as a plain tensor, or raise."""
    if not isinstance(value, Tensor) or value.dtype != torch.int64:
        raise TypeError(f"{name}: expected a tensor of int64, got {kind(value)}")
    value = as_dense(name, value)
    if value.numel() == 0:
        raise ValueError(f"{name}: expected at least one value, got none")
    low, high = (int(bound) for bound in value.aminmax())
    if low < 0 or high >= size:
        raise ValueError(f"{name}: expected values from 0 to {size - 1}, got {low} to {high}")
    return value


def check_floats(name: str, value: Any) -> Tensor:
    """Return a floating-point tensor as a plain one, or raise."""
    if not isinstance(value, Tensor):
        raise _unexpected(name, "a torch.Tensor", type(value).__name__)
    if not value.is_floating_point():
        raise _unexpected(name, "a floating-point tensor", kind(value))
    return as_dense(name, value)


def as_dense(name: str, value: Tensor) -> Tensor:
    """Return a tensor as a plain one, or refuse a sparse, nested or quantized one."""
    value = as_plain(name, value)
    if value.layout is not STRIDED or value.is_nested or value.is_quantized:
        raise _not_dense(name, value)
    return value


def as_plain(name: str, value: Tensor) -> Tensor:
    """Return a tensor as a plain one on the same memory; keep fake and traced ones."""
    cls: Any = type(value)
    if cls in PLAIN or is_compiling() or isinstance(value, (FakeTensor, FunctionalTensor)):
        return value
    if cls.__torch_dispatch__ is not Tensor.__torch_dispatch__:  # a wrapper, whose values are elsewhere
        raise TypeError(f"{name}: expected a torch.Tensor with its own values, got {cls.__name__}")
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(Tensor)


def check_mask(name: str, mask: Any, shape: tuple[int, ...], like: Tensor, validate: bool) -> Tensor:
    """Return a boolean mask as a plain tensor, or raise.

    A mask is broadcast over leading dimensions: a mask for one decision, ``(K)``, holds for all of them. With ``validate``,
    each row needs an available entry. Arrays and lists of booleans are copied to the device of ``like``.
    """
    wanted = "booleans, True where available"
    if not isinstance(mask, Tensor):
        array = array_of(name, mask, wanted)
        if array.dtype.kind != "b":
            raise _unexpected(name, wanted, f"{type(mask).__name__} of {array.dtype}")
        mask = torch.from_numpy(array.copy()).to(like.device)
    if mask.dtype != torch.bool:
        raise _unexpected(name, wanted, kind(mask))
    mask = as_dense(name, mask)
    if mask.device != like.device:
        raise ValueError(f"{name}: expected a tensor on {like.device}, got one on {mask.device}")
    if mask.shape != shape:
        lead = len(shape) - mask.dim()
        own = zip(mask.shape[:-1], shape[lead:-1], strict=False)
        if lead < 0 or mask.shape[-1:] != shape[-1:] or not all(one in (1, size) for one, size in own):
            raise ValueError(f"{name}: expected shape {shape_text(shape)}, got {shape_text(mask.shape)}")
        mask = mask.expand(shape)
    if validate and is_readable(mask) and not bool(mask.any(-1).all()):
        raise ValueError(f"{name}: expected an available entry in each row, got a row with none")
    return mask


def array_of(name: str, value: Any, wanted: str) -> np.ndarray:
    """View or copy numbers as an array; refuse text, raw bytes and masked entries."""
    is_raw = isinstance(value, (str, bytes, bytearray, type(None)))
    if is_raw or (isinstance(value, memoryview) and value.itemsize == 1):
        raise _unexpected(name, wanted, type(value).__name__)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name}: expected {wanted}, got an array with masked entries, which have no value")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors on other devices
        raise _unexpected(name, wanted, f"{type(value).__name__} ({str(error).splitlines()[0]})") from error


def _check_entries(name: str, values: Any) -> None:
    """Refuse large integers in nested lists."""
    for entry in values:
        if isinstance(entry, (list, tuple)):
            _check_entries(name, entry)
        elif not isinstance(entry, float):
            _check_long_integers(name, np.asarray(entry))


def _check_long_integers(name: str, array: np.ndarray) -> None:
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        _check_integers(name, max(int(array.max()), -int(array.min())))


def _largest(value: Tensor) -> int:
    """Return the largest magnitude in a tensor of long integers."""
    low, high = (int(bound) for bound in value.view(torch.int64).aminmax())
    if value.dtype is torch.uint64 and low < 0:
        return low + 2**64
    return max(high, -low)


def _check_integers(name: str, largest: int) -> None:
    if largest > LARGEST_EXACT:
        raise ValueError(
            f"{name}: expected integers of magnitude at most 2^53, which float64 holds exactly, got {largest}"
        )


def _not_dense(name: str, value: Tensor) -> TypeError:
    got = "a nested one" if value.is_nested else f"one of {value.dtype} in layout {value.layout}"
    return TypeError(f"{name}: expected a dense tensor, got {got}")


def _unexpected(name: str, wanted: str, got: str) -> TypeError:
    return TypeError(f"{name}: expected {wanted}, got {got}")


def one_of_many(name: str, index: Any, sizes: tuple[int, ...], what: str) -> tuple[int, ...]:
    """Return an index of one of several learners or decisions as a tuple, or raise."""
    if not sizes and index is None:
        return ()
    place = index if isinstance(index, tuple) else (index,)
    is_right = len(place) == len(sizes) and all(
        isinstance(i, numbers.Integral) and not isinstance(i, bool) and -n <= int(i) < n
        for i, n in zip(place, sizes, strict=False)
    )
    if not is_right:
        example = repr((0,) * len(sizes)) if len(sizes) > 1 else "0"
        wanted = (
            f"one of the {shape_text(sizes)} {what}, such as {name}={example}" if sizes else "None for a single one"
        )
        raise ValueError(f"{name}: expected {wanted}, got {index!r}")
    return tuple(int(i) for i in place)
