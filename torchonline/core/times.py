"""Times as numbers: one rule for tables and logs."""

from typing import Any

import numpy as np

# Nanoseconds since 1970, from its 15th week to the year 2262. As microseconds, these numbers would be after the year 2255.
LEAST, MOST = 2**53, 2**63


def as_times(name: str, values: np.ndarray) -> np.ndarray:
    """Return times as float64, or raise.

    Dates become seconds since 1970, and so do nanoseconds since 1970: numbers of which the largest magnitude is from 2^53 to
    2^63. All other numbers stay in their unit. A float64 tells times of today apart to a quarter of a microsecond.

    Args:
        name: what errors call the times.
        values: numbers, dates of NumPy, or objects with ``timestamp()``, such as dates with a time zone.
    """
    if values.dtype.kind == "O" and values.size and all(hasattr(value, "timestamp") for value in values.flat):
        return np.array([value.timestamp() for value in values.flat], dtype=np.float64).reshape(values.shape)
    if values.dtype.kind == "M":
        if np.isnat(values).any():
            raise ValueError(f"{name}: expected times without gaps, got {int(np.isnat(values).sum())} without a date")
        whole = values.astype("datetime64[s]")
        rest = (values - whole).astype("timedelta64[ns]").astype(np.int64)
        return whole.astype(np.int64) + rest / 1e9
    if values.dtype.kind not in "iuf":
        raise TypeError(f"{name}: expected numbers or dates, got {values.dtype}")
    if not values.size or not LEAST <= np.abs(values.astype(np.float64)).max() <= MOST:
        return values.astype(np.float64)
    return values // 10**9 + (values % 10**9) / 1e9


def as_time(name: str, value: Any) -> Any:
    """Return one time as :func:`as_times` does; what is no number stays as it is."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or not LEAST <= abs(value) <= MOST:
        return value
    whole, rest = divmod(value, 10**9)
    return float(whole) + float(rest) / 1e9
