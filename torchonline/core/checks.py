"""Argument checks: the value in the wanted type, or an error that names it."""

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.compiled import sum_of_squares
from torchonline.core.messages import did_you_mean


def refusal(message: str) -> ValueError:
    """Return the error for a value that a step refuses before its first write."""
    error = ValueError(message)
    error.is_refusal = True  # type: ignore[attr-defined]
    return error


def finite_number(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        raise ValueError(f"{name}: expected a magnitude from 1e-50 to 1e50, got an integer beyond it") from None
    if not math.isfinite(number):
        raise ValueError(f"{name}: expected a finite number, got {value}")
    # Beyond this, squares and ratios of options overflow.
    if number != 0 and not 1e-50 <= abs(number) <= 1e50:
        raise ValueError(f"{name}: expected a magnitude from 1e-50 to 1e50, got {value}")
    return number


def positive(name: str, value: Any) -> float:
    """Return a number above 0, or raise."""
    number = finite_number(name, value)
    if number <= 0:
        raise ValueError(f"{name}: expected a number above 0, got {value}")
    return number


def non_negative(name: str, value: Any) -> float:
    """Return a number of at least 0, or raise."""
    number = finite_number(name, value)
    if number < 0:
        raise ValueError(f"{name}: expected a number of at least 0, got {value}")
    return number


def within(name: str, value: Any, low: float, high: float, *, closed: bool = False) -> float:
    """Return a number in (low, high), or in (low, high] if ``closed``.

    Raises:
        TypeError: the value is not a real number.
        ValueError: it is not in the interval, or not in the range that all floats resolve.
    """
    number = finite_number(name, value)
    if not (low < number < high or (closed and number == high)):
        raise ValueError(f"{name}: expected a number in ({low}, {high}{']' if closed else ')'}, got {value}")
    return number


def integer(name: str, value: Any) -> int:
    """Return an integer of any sign, or raise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
    return int(value)


def positive_integer(name: str, value: Any) -> int:
    """Return an integer above 0, or raise."""
    number = integer(name, value)
    if number < 1:
        raise ValueError(f"{name}: expected an integer above 0, got {value}")
    return number


def non_negative_integer(name: str, value: Any) -> int:
    """Return an integer of at least 0 that a float can hold, or raise."""
    number = integer(name, value)
    if not 0 <= number <= 2**53:
        raise ValueError(f"{name}: expected an integer from 0 to 2^53, got {value}")
    return number


def rounds_at_most(name: str, value: Any) -> int:
    """Return a number of rounds that a float can count, or raise."""
    number = positive_integer(name, value)
    if number > 2**53:
        raise ValueError(f"{name}: expected an integer from 1 to 2^53, got a larger one")
    return number


def seed_number(value: Any) -> int:
    """Return an integer that torch's generators accept as a seed, or raise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"seed: expected an integer, got {type(value).__name__}")
    seed = int(value)
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed: expected an integer from -2^63 to 2^64 - 1, got {seed}")
    return seed


def sizes(name: str, value: Any) -> tuple[int, ...]:
    """Return a tuple of integers above 0, perhaps empty; or raise."""
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name}: expected a tuple of integers, got {type(value).__name__}")
    return tuple(positive_integer(name, size) for size in value)


def one_of(name: str, value: Any, choices: tuple[str, ...], meant: Mapping[str, str] | None = None) -> str:
    """Return one of the words in ``choices``, or raise.

    ``meant`` maps other words to the choice that the error suggests.
    """
    wanted = f"one of {', '.join(map(repr, choices))}"
    if instance_of(name, value, str, wanted) not in choices:
        word = (meant or {}).get(value.casefold().strip(), value)
        raise ValueError(f"{name}: expected {wanted}, got {value!r}{did_you_mean([word], choices)}")
    return value


def device_or_none(device: Any) -> torch.device | None:
    """Return the device of that name, or raise; None stays None."""
    if device is None:
        return None
    if not isinstance(device, (str, int, torch.device)) or isinstance(device, bool):
        raise TypeError(f"device: expected a torch.device or its name, got {type(device).__name__}")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device: expected a torch.device or its name, got {device!r}") from error


def instance_of(name: str, value: Any, types: Any, wanted: str) -> Any:
    """Return a value of one of the types, called ``wanted`` in errors; or raise."""
    if not isinstance(value, types):
        raise TypeError(f"{name}: expected {wanted}, got {type(value).__name__}")
    return value


def check_state_dtype(dtype: torch.dtype) -> None:
    """Refuse a state that is neither in float64 nor in float32."""
    instance_of("dtype", dtype, torch.dtype, "a torch.dtype")
    if dtype not in (torch.float64, torch.float32):
        raise ValueError(f"dtype: expected the state in torch.float64 or torch.float32, got {dtype}")


def check_size(name: str, value: float, largest: float, dtype: torch.dtype) -> None:
    """Refuse an option above ``largest`` or below its inverse."""
    if not 1.0 / largest <= value <= largest:
        raise ValueError(f"{name}: expected from {1.0 / largest:.1e} to {largest:.1e}, for {dtype}, got {value:g}")


def positive_size(name: str, value: Any, dtype: torch.dtype, *, besides: tuple[float, ...] = ()) -> float:
    """Return a number above 0 to multiply values of ``dtype``, or one of ``besides``."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value in besides:
        return float(value)
    number = positive(name, value)
    check_size(name, number, LARGEST[dtype], dtype)
    return number


def one_for_each(
    name: str,
    value: Any,
    shape: tuple[int, ...],
    check: Callable[[str, Any], float],
    *,
    broadcasts: bool = False,
) -> Tensor:
    """Return an option with one number for each entry of ``shape``: float64, CPU.

    The value is one number for all entries, or a tensor, NumPy array or (nested) sequence with one number for each; with
    ``broadcasts``, of any shape that broadcasts to ``shape``. ``check`` gets ``name`` and a number, and returns the number as a
    float or raises.
    """
    if not isinstance(value, (Tensor, np.ndarray, tuple, list)):
        return torch.full(shape, check(name, value), dtype=torch.float64)
    try:
        # Objects, so that `check` sees what each entry was: as_tensor would take True for 1.
        entries = np.array(value.tolist() if isinstance(value, Tensor) else value, dtype=object)
    except ValueError:  # ragged sequences
        raise TypeError(f"{name}: expected numbers of shape {shape_text(shape)}, got {value!r}") from None
    numbers = torch.tensor([check(name, entry) for entry in entries.flat], dtype=torch.float64).reshape(entries.shape)
    if numbers.shape == shape:
        return numbers
    if broadcasts:
        try:
            return numbers.expand(shape).clone()
        except RuntimeError:
            pass
    wanted = f"a shape that broadcasts to {shape_text(shape)}" if broadcasts else f"shape {shape_text(shape)}"
    raise ValueError(f"{name}: expected {wanted}, got {shape_text(numbers.shape)}")


# The largest count up to which float64 holds every integer.
LARGEST_EXACT = 2**53

# Inputs up to here can be squared and multiplied without overflow: 5.6e102 in float64, 7.0e12 in float32.
LARGEST = {dtype: torch.finfo(dtype).max ** (1 / 3) for dtype in (torch.float64, torch.float32)}

# A value up to here passes in either type.
ORDINARY, ORDINARY_SQUARE = 1e12, 1e24

# BLAS sums longer vectors with several threads, which on a busy machine takes a hundred times as long.
LONG = 10_000


def check_values(name: str, value: Tensor, minimum: float = -math.inf) -> None:
    """Refuse NaN, infinity, values too large to square, and values below ``minimum``."""
    if value.dim() == 0:
        low = high = value.item()
    elif value.numel() == 0:
        return
    else:
        lowest, highest = value.aminmax()
        low, high = lowest.item(), highest.item()
    largest = LARGEST[value.dtype]
    if low >= minimum and -largest <= low and high <= largest:
        return
    if not bool(torch.isfinite(value).all()):
        bad = value[~torch.isfinite(value)][0].item()
        raise refusal(f"{name}: expected finite values, got {bad}")
    if low < minimum:
        raise refusal(f"{name}: expected values of at least {minimum:g}, got {low:g}")
    raise refusal(
        f"{name}: expected values of magnitude at most {largest:.1e} ({value.dtype}), got {max(-low, high):.1e}"
    )


def passes(value: Tensor) -> Tensor:
    """Return which entries pass :func:`check_values`. Also in programs and scripts."""
    # TorchScript sees neither LARGEST nor its keys.
    if value.element_size() == 8:
        return value.abs() <= 1.7976931348623157e308 ** (1.0 / 3.0)
    return value.abs() <= 3.4028234663852886e38 ** (1.0 / 3.0)


def check_array(name: str, value: Any) -> None:
    """Refuse what :func:`check_values` refuses in a NumPy array."""
    if not is_ordinary(value):
        check_values(name, torch.from_numpy(value))


def is_ordinary(value: Any) -> bool:
    """Return whether an array or a float is sure to pass :func:`check_values`."""
    if isinstance(value, float):
        return abs(value) <= ORDINARY
    # A sum of squares takes a third of the time of a maximum and a minimum. NaN fails.
    return value.size < LONG and sum_of_squares(value) <= ORDINARY_SQUARE


def check_shape(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Refuse a tensor of another shape."""
    if value.shape != shape:
        raise ValueError(f"{name}: expected shape {shape_text(shape)}, got {shape_text(value.shape)}")


def shape_text(sizes: Iterable[object]) -> str:
    """Return a shape as errors write it: ``(2, K, 3)``."""
    return f"({', '.join(map(str, sizes))})"


def kind(value: object) -> str:
    """Return ``torch.float64 of shape (2, 3)``, or a non-tensor's type, for errors."""
    return f"{value.dtype} of shape {shape_text(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def mismatch(name: str, here: Tensor, loaded: Mapping[str, Any], *, with_dtype: bool = False) -> str | None:
    """Return why the entry loaded as ``name`` cannot replace a tensor, or None."""
    if name not in loaded:
        return f"{name}: expected an entry, got none"
    value = loaded[name]
    if not isinstance(value, Tensor):
        return f"{name}: expected a torch.Tensor, got {type(value).__name__}"
    if value.shape != here.shape:
        return f"{name}: expected shape {shape_text(here.shape)}, got {shape_text(value.shape)}"
    if with_dtype and value.dtype is not here.dtype:
        return f"{name}: expected {here.dtype}, got {value.dtype}"
    return None
