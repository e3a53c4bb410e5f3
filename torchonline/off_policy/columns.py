"""Table columns as arrays, with one error for all invalid columns."""

import math
import numbers
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from torchonline.core.messages import counted, listed
from torchonline.features.reader import is_missing

TEXT, GAPS, AMOUNTS, DATES = (
    "number text, or give each of its values a column of 0 and 1",
    "fill gaps, or drop their rows",
    "write amounts as plain numbers, such as 1234.5",
    "write dates as numbers, such as days since a first one",
)
AMOUNT = re.compile(r"[$€£¥%]|^\s*[+-]?\d[\d.,' ]*\d\s*([A-Z]{3})?\s*$|^[A-Z]{3}\s*\d")
DATE = re.compile(r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})\b")


class Columns:
    """Columns of a pandas, polars or Arrow table, by name.

    The methods return arrays and record invalid columns, for which the array may be empty. :meth:`check` then raises one error
    for all of them.

    Args:
        frame: a table in memory with named columns.
    """

    def __init__(self, frame: Any) -> None:
        is_lazy = hasattr(frame, "collect")  # a lazy frame computes its columns on request
        names = None if is_lazy else getattr(frame, "column_names", None)  # Arrow, where ``columns`` are the values
        self.is_arrow = names is not None
        names = getattr(frame, "columns", None) if names is None and not is_lazy else names
        if names is None or not hasattr(frame, "__getitem__"):
            wanted = "a pandas or polars frame or an Arrow table in memory"
            raise TypeError(f"frame: expected {wanted}, got {type(frame).__name__}")
        self.frame = frame
        self.counts = Counter(names)
        self.is_wrong_type = False
        self.problems: list[str] = []
        self.remedies: dict[str, None] = {}  # as an ordered set

    def check(self) -> None:
        """Raise one error for all invalid columns.

        It is a TypeError if one of them is not numeric, else a ValueError.
        """
        if self.problems:
            error = TypeError if self.is_wrong_type else ValueError
            raise error("; ".join([*self.problems, *self.remedies]))

    def numbers(self, name: str, columns: Sequence[str]) -> np.ndarray:
        """Return columns of finite numbers as float64, ``(N, m)``.

        Args:
            name: name of the argument that holds ``columns``.
            columns: names of the columns.
        """
        found, wrong = [], []
        for column in columns:
            values = self._values(name, column)
            if values is None:
                continue
            reason = self._reason(values)
            if reason:
                wrong.append(f"{column!r} with {reason}")
            else:
                found.append(values.astype(np.float64))
        if wrong:
            wanted = "a column" if len(columns) == 1 else "columns"
            self.problems.append(f"{name}: expected {wanted} of finite numbers, got {listed(wrong, str)}")
        return np.stack(found, 1) if found and len(found) == len(columns) else np.empty((0, len(columns)))

    def actions(self, column: str, arms: int | None) -> np.ndarray:
        """Return a column of actions, integers from 0.

        Args:
            column: name of the column.
            arms: K, or None if unknown. With None, a smallest action of 1 gives a warning, because the actions may count from 1.
        """
        values, none = self._values("action", column), np.empty(0, dtype=np.int64)
        if values is None:
            return none
        is_object = values.dtype.kind in "OUST"
        if is_object and any(isinstance(value, str) for value in values.tolist()):
            self.is_wrong_type = True
            self.problems.append(
                f"action: expected integers from 0, got text in {column!r}; number the column, in the file or in the frame, and "
                f"keep the names in the order of their numbers: numbers, names = pandas.factorize(frame[{column!r}], sort=True)"
            )
            return none
        if gaps := count_of_gaps(values):
            self.problems.append(f"action: expected integers from 0, got {column!r} with {counted(gaps, 'gap')}")
            self.remedies[GAPS] = None
            return none
        if is_object and all(isinstance(value, numbers.Integral) for value in values.tolist()):
            if all(abs(value) < 2**63 for value in values.tolist()):
                values = values.astype(np.int64)
        if values.dtype.kind not in "iu":
            self.is_wrong_type = True
            self.problems.append(f"action: expected a column of integers, got {column!r} of {values.dtype}")
            return none
        if values.size and int(values.min()) == 1:
            largest = int(values.max())
            facts = (
                f"got 1 to {largest} in {column!r}, and no 0; actions count from 0: if these count from 1, subtract 1"
            )
            if arms is not None and largest == arms:
                self.problems.append(f"action: expected integers from 0 to {arms - 1}, {facts}")
            if arms is None:
                warnings.warn(f"action: expected integers from 0, {facts}", stacklevel=3)
        return values

    def without_gaps(self, name: str, column: str) -> np.ndarray | None:
        """Return a column of any type without gaps, or None if it is invalid."""
        values = self._values(name, column)
        if values is not None and (gaps := count_of_gaps(values)):
            self.problems.append(f"{name}: expected a column without gaps, got {column!r} with {gaps}")
            return None
        return values

    def _values(self, name: str, column: str) -> np.ndarray | None:
        """Return a column, or None if its name is missing or not unique."""
        if self.counts[column] != 1:
            if self.counts[column]:
                self.problems.append(f"{name}: expected one column of the name {column!r}, got several")
            else:
                there = listed(self.counts)
                self.problems.append(f"{name}: expected a column of the frame, got {column!r}; it has {there}")
            return None
        values = self.frame[column]
        return np.asarray(values if self.is_arrow else values.to_numpy())

    def _reason(self, values: np.ndarray) -> str:
        """Return why a column does not hold finite numbers, or "". Record the remedy."""
        if values.dtype.kind in "biuf":
            if gaps := count_of_gaps(values):
                self.remedies[GAPS] = None
                return counted(gaps, "gap")
            infinite = values[np.isinf(values)] if values.dtype.kind == "f" else values[:0]
            return f"{infinite[0]}" if infinite.size else ""
        if values.dtype.kind in "Mm":
            return self._of_type("dates", str(values[0]) if values.size else None, DATES)
        rows = values.tolist()
        other = next((value for value in rows if not is_number(value) and not is_missing(value)), None)
        if other is None:
            gaps = count_of_gaps(values)
            if gaps:
                self.remedies[GAPS] = None
            return counted(gaps, "gap") if gaps else ""
        if not isinstance(other, str):
            is_date = hasattr(other, "year") or hasattr(other, "days")
            return self._of_type("dates" if is_date else type(other).__name__, str(other), DATES if is_date else TEXT)
        texts = [value for value in rows[:1000] if isinstance(value, str)] or [other]
        unread = next((text for text in texts if not is_numeral(text)), None)
        if unread is None:
            return self._of_type("numbers as text", texts[0], "convert text to numbers")
        if DATE.search(unread):
            return self._of_type("dates", unread, DATES)
        if AMOUNT.search(unread):
            return self._of_type("amounts as text", unread, AMOUNTS)
        among = " among numbers" if any(map(is_numeral, texts)) else ""
        return self._of_type(f"text{among}", unread, TEXT)

    def _of_type(self, kind: str, sample: str | None, remedy: str) -> str:
        self.is_wrong_type = True
        self.remedies[remedy] = None
        return kind if sample is None else f"{kind} ({sample[:40]!r})"


def check_columns(name: str, inputs: Sequence[str], **roles: Sequence[str]) -> None:
    """Refuse duplicate inputs, and inputs that are unknown before the decision.

    Args:
        name: name of the argument, with which the error begins.
        inputs: columns of the inputs.
        **roles: columns of ``reward`` or ``targets``, which are to be learnt, and columns that come with the decision.
    """
    counts = Counter(inputs)
    for role, columns in roles.items():
        if shared := sorted(counts.keys() & set(columns)):
            is_learnt = role in ("reward", "targets")
            reason = "which is to be learnt" if is_learnt else "which is not known before the decision"
            raise ValueError(f"{name}: expected no column of the {role}, {reason}, got {shared}")
    if twice := sorted(column for column, count in counts.items() if count > 1):
        raise ValueError(f"{name}: expected each column once, got {twice} more than once")


def count_of_gaps(values: np.ndarray) -> int:
    """Return the number of missing values: None, NaN or NaT."""
    return sum(map(is_missing, values)) if values.dtype.kind == "O" else int((values != values).sum())


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number, not text."""
    return isinstance(value, (numbers.Real, Decimal)) and math.isfinite(value)


def is_numeral(text: str) -> bool:
    """Return whether a text parses as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
