"""Times as numbers: one rule for tables and logs."""

from typing import Any

import numpy as np

# Nanoseconds since 1970, from its 15th week to the year 2262. As microseconds, these numbers would be after the year 2255.
LEAST, MOST = 2**53, 2**63


def as_times(name: str, values: np.ndarray) -> np.ndarray:
    """Return times as float64, or raise.

    Dates become seconds since 1970, and so do nanoseconds since 1970: numbers from 2^53 to 2^63 in magnitude. All other numbers
    stay in their unit. A float64 resolves present times to a quarter of a microsecond.

    Args:
        name: the name of the times in errors.
        values: numbers, dates of NumPy, or objects with ``timestamp()``, such as dates with a time zone.
    """
    if values.dtype.kind == "O" and values.size and all(hasattr(value, "timestamp") for value in values.flat):
        _refuse_gaps(name, values != values)  # NaT
        return np.array([value.timestamp() for value in values.flat], dtype=np.float64).reshape(values.shape)
    if values.dtype.kind == "M":
        _refuse_gaps(name, np.isnat(values))
        whole = values.astype("datetime64[s]")
        rest = (values - whole).astype("timedelta64[ns]").astype(np.int64)
        return whole.astype(np.int64) + rest / 1e9
    if values.dtype.kind not in "iuf":
        raise TypeError(f"{name}: expected numbers or dates, got {values.dtype}")
    sizes = np.abs(values.astype(np.float64))
    is_nanosecond = (sizes >= LEAST) & (sizes <= MOST)
    if not is_nanosecond.any():
        return values.astype(np.float64)
    return np.where(is_nanosecond, values // 10**9 + (values % 10**9) / 1e9, values.astype(np.float64))


def as_time(name: str, value: Any) -> Any:
    """Return one time as :func:`as_times` does; return a non-number unchanged."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return float(as_times(name, np.asarray(value))) if is_number and LEAST <= abs(value) <= MOST else value


def _refuse_gaps(name: str, is_gap: np.ndarray) -> None:
    if is_gap.any():
        raise ValueError(f"{name}: expected times without gaps, got {int(is_gap.sum())} without a date")
