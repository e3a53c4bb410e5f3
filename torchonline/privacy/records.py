"""Conversion of records to tensors, without errors that depend on values."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.inputs import NUMBERS, array_of, as_indices, check_tensor


def record_values(name: str, value: Any, state: Tensor) -> Tensor:
    """Return a record's numbers as a detached float64 tensor beside ``state``.

    Integers are rounded to float64, or become infinite beyond its range.
    """
    if not isinstance(value, Tensor):
        value = _with_integers(name, value, np.float64, np.inf)
    return check_tensor(name, value, state).detach()


def record_actions(name: str, value: Any, device: torch.device) -> Tensor:
    """Return a record's arms as int64. Integers beyond int64 become negative."""
    if not isinstance(value, Tensor):
        value = _with_integers(name, value, np.int64, -1)
    action = as_indices(name, value, device)
    if action.device != device:
        raise ValueError(f"{name}: expected a tensor on {device}, got one on {action.device}")
    return action


def _with_integers(name: str, value: Any, dtype: Any, beyond: float) -> Any:
    """Convert integers to an array of ``dtype``. Return anything else unchanged."""
    # Masked integers, and integers that ``dtype`` cannot hold, become ``beyond``.
    if isinstance(value, np.ma.MaskedArray) and value.dtype.kind in ("iu" if dtype is np.int64 else "biuf"):
        value = np.ma.filled(value.astype(dtype), beyond)
    array = array_of(name, value, NUMBERS)
    if array.dtype.kind in "iu":
        return array.astype(dtype)  # a uint64 that int64 cannot hold becomes negative
    if array.dtype.kind == "f" and isinstance(value, (list, tuple)) and dtype is np.float64:
        return array  # NumPy has rounded the integers
    numbers = (int,) if dtype is np.int64 else (int, float)
    if array.dtype.kind != "O" or not array.size or any(type(entry) not in numbers for entry in array.flat):
        return value

    def held(entry: Any) -> Any:
        try:
            return dtype(entry)
        except OverflowError:
            return dtype(beyond)

    return np.array([held(entry) for entry in array.flat], dtype=dtype).reshape(array.shape)
