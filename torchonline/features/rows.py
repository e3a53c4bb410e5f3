"""Codes of rows and tables, with one error for all wrong columns."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any

import numpy as np

from torchonline.core.messages import counted, did_you_mean, install_extra, listed
from torchonline.features.reader import LAST_SECOND, buckets_of_text, code_of, codes_of, counts_of, is_missing
from torchonline.features.schema import width_of

WANTED = {
    "number": "numbers",
    "boolean": "booleans",
    "category": "text, booleans or integers",
    "date": "dates",
    "text": "text",
}
# Numbers that Python and parsed_number read alike. Python also reads other digits, blanks and exponents.
PLAIN = re.compile(r"(?=.{1,64}\Z)[ \t]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,2})?[ \t]*")


class RowReader:
    """Reader of rows by a schema: dicts, lists of dicts, and tables."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.columns: list[dict[str, Any]] = schema["columns"]
        self.names = [column["name"] for column in self.columns]
        *self.starts, self.width = accumulate(map(width_of, self.columns), initial=0)

    def codes(self, rows: Any) -> np.ndarray:
        """Return the codes of rows, float64 ``(..., C)``, or raise."""
        if isinstance(rows, Mapping):
            return self._of_dicts([rows])[0]
        if isinstance(rows, (list, tuple)):
            return self._of_list(rows)
        if type(rows).__name__ == "Series" and hasattr(rows, "to_dict"):  # a row of a pandas frame
            return self.codes({name: value for name, value in rows.to_dict().items() if name in self.names})
        return self._of_frame(rows)

    def _of_list(self, rows: Any) -> np.ndarray:
        if rows and all(isinstance(row, (list, tuple)) for row in rows):
            found = [self._of_list(row) for row in rows]
            if len({part.shape for part in found}) > 1:
                raise ValueError(f"rows: expected lists of equal lengths, got {[len(part) for part in found]}")
            return np.stack(found)
        return self._of_dicts(rows)

    def _of_dicts(self, rows: Any) -> np.ndarray:
        for row in rows:
            if not isinstance(row, Mapping):
                raise TypeError(f"rows: expected a table or dicts of values by column, got {type(row).__name__}")
            if unknown := [name for name in row if name not in self.names]:
                hint = did_you_mean(map(str, unknown), self.names)
                raise ValueError(f"rows: expected columns {listed(self.names)}, got {listed(unknown)}{hint}")
        codes = np.array([codes_of(row, self.schema) for row in rows], dtype=np.float64)
        codes = codes.reshape(len(rows), self.width)
        problems = Problems("rows", "row" if len(rows) > 1 else "")
        problems.add(self, codes, lambda name: [row.get(name) for row in rows])
        problems.check()
        return codes

    def _of_frame(self, frame: Any) -> np.ndarray:
        table = native(frame)
        if lost := [name for name in self.names if name not in table.columns]:
            raise ValueError(f"rows: expected columns {listed(lost)}, got a table with {listed(table.columns)}")
        codes = self.codes_of_table(table)
        problems = Problems("rows", "row")
        problems.add(self, codes, lambda name: table[name].to_list())
        problems.check()
        return codes

    def codes_of_table(self, table: Any) -> np.ndarray:
        """Return the codes of a narwhals frame; infinity for values that are not read."""
        codes = np.empty((len(table), self.width))
        for column, start in zip(self.columns, self.starts, strict=True):
            series = table[column["name"]]
            if column["kind"] == "text":
                codes[:, start : start + width_of(column)] = self._of_text(series.to_list(), column)
            else:
                codes[:, start] = self._of_series(series, column)
        return codes

    def _of_series(self, series: Any, column: Mapping[str, Any]) -> Any:
        """Return the codes of a column of a table."""
        import narwhals

        kind, dtype = column["kind"], series.dtype
        if kind == "number" and (dtype.is_numeric() or dtype == narwhals.Boolean):
            return series.cast(narwhals.Float64).to_numpy()
        if kind == "boolean" and dtype == narwhals.Boolean:
            return series.cast(narwhals.Float64).to_numpy()
        if kind == "date" and dtype == narwhals.Datetime:
            if dtype.time_zone is not None:
                series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
            moments = series.to_numpy().astype("datetime64[us]")
            micro = moments.astype(np.int64)
            seconds = (micro // 1000000).astype(float) + micro % 1000000 / 1e6
            seconds[np.abs(seconds) > LAST_SECOND] = np.inf
            return np.where(np.isnat(moments), np.nan, seconds)
        values = series.to_list()
        if kind == "number" and dtype == narwhals.String and column["decimal"] == ".":
            plain = plain_numbers(values, self.schema["missing"])
            if plain is not None:
                return plain
        cache = _Codes(column, self.schema["missing"])
        try:
            return np.fromiter(map(cache.__getitem__, values), np.float64, len(values))
        except TypeError:  # a value that is not hashable, such as a list
            return np.fromiter(map(code_of, values, repeat(column), repeat(self.schema["missing"])), np.float64)

    def _of_text(self, values: list[Any], column: Mapping[str, Any]) -> np.ndarray:
        """Return the number of tokens in each bucket, ``(N, buckets)``."""
        buckets = column["buckets"]
        places: list[int] = []
        for i, value in enumerate(values):
            if isinstance(value, str):
                places += [i * buckets + token for token in buckets_of_text(value, buckets) or ()]
        found = np.bincount(np.array(places, dtype=np.int64), minlength=len(values) * buckets).astype(np.float64)
        found = found.reshape(len(values), buckets)
        for i, value in enumerate(values):
            if not isinstance(value, str) and not is_missing(value):
                found[i] = counts_of(value, column)
        return found


class Problems:
    """Values that their columns do not take, collected into one error.

    Args:
        argument: name of the argument, with which the error begins.
        noun: what a row is called, such as "row"; "" if there is only one.
        row: the number of the first row. Move it on to record further rows.
    """

    def __init__(self, argument: str, noun: str, row: int = 0) -> None:
        self.argument, self.noun, self.row = argument, noun, row
        self.found: dict[str, tuple[str, Any, int, int]] = {}
        self.remedies: dict[str, None] = {}  # as an ordered set

    def add(
        self, reader: RowReader, codes: np.ndarray, values_of: Callable[[str], Sequence[Any]], remedy: str = ""
    ) -> None:
        """Record the codes of infinity among the codes of rows from number :attr:`row`.

        ``remedy`` says what to do about them; "" for what suits the column.
        """
        if np.isinf(codes).any():
            for column, start in zip(reader.columns, reader.starts, strict=True):
                is_bad = np.isinf(codes[:, start : start + width_of(column)]).any(-1)
                if is_bad.any():
                    value = values_of(column["name"])[int(np.argmax(is_bad))]
                    self.record(column["name"], WANTED[column["kind"]], is_bad, value, remedy or _remedy(column, value))

    def record(self, name: str, wanted: str, is_bad: np.ndarray, value: Any, remedy: str) -> None:
        """Record wrong values of a column among rows from number :attr:`row`."""
        old = self.found.get(name, (wanted, value, self.row + int(np.argmax(is_bad)), 0))
        self.found[name] = (*old[:3], old[3] + int(is_bad.sum()))
        self.remedies[remedy] = None

    def check(self) -> None:
        """Raise one error for all columns with problems."""
        texts = []
        for name, (wanted, value, row, count) in self.found.items():
            where = f" in {self.noun} {row}" if self.noun else ""
            more = f" and {counted(count - 1, 'other value')}" if count > 1 else ""
            texts.append(f"{wanted} in {name!r}, got {_shown(value)}{where}{more}")
        if texts:
            raise ValueError(f"{self.argument}: expected {'; '.join([*texts, *self.remedies])}")


class _Codes(dict[Any, float]):
    """Codes of the values of a column, computed once for each value."""

    def __init__(self, column: Mapping[str, Any], missing: str) -> None:
        self.column, self.gaps = column, missing

    def __missing__(self, value: Any) -> float:
        code = code_of(value, self.column, self.gaps)
        # Python takes 1, 1.0 and True for one key, which would share the code of a category.
        if isinstance(value, str):
            self[value] = code
        return code


def plain_numbers(texts: list[Any], missing: str) -> np.ndarray | None:
    """Return texts as numbers if all are plain, else None: a fast path."""
    if any(map(str.isdigit, missing)) or not all(isinstance(text, str) and PLAIN.fullmatch(text) for text in texts):
        return None
    return np.array(texts, dtype=np.float64)


def native(frame: Any) -> Any:
    """Return a table as a narwhals frame, or raise."""
    try:
        import narwhals
    except ImportError as error:
        raise ImportError(f"features: expected narwhals to read tables, got none; {install_extra('tables')}") from error
    try:
        table = narwhals.from_native(frame, eager_only=True)
        _ = table.columns
        return table
    except narwhals.exceptions.DuplicateError as error:
        raise ValueError(f"rows: expected unique names of columns, got {listed(frame.columns)}") from error
    except TypeError as error:
        wanted = "a dict, a list of dicts, a pandas or polars frame, or an Arrow table in memory"
        raise TypeError(f"rows: expected {wanted}, got {type(frame).__name__}") from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 43 else f"{text[:40]}..."


def _remedy(column: Mapping[str, Any], value: Any) -> str:
    """Return what to do about a value that a column does not take."""
    kind = column["kind"]
    if isinstance(value, str) and kind in ("number", "date", "boolean"):
        return "mend the values, name them in missing=, or choose another kind for the column"
    if isinstance(value, (list, tuple, dict)):
        return "give each entry of a list a column"
    if kind == "date":
        return "give dates as text, or as seconds since 1970"
    if kind == "number":
        return "mend or leave out infinite numbers"
    return "convert the values to text"
