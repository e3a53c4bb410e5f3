"""Logs of raw columns in files, read in chunks into a temporary file of codes."""

import math
import mmap
import re
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.action_names import LONGEST, why_no_name
from torchonline.core.messages import counted
from torchonline.features import ColumnEncoder
from torchonline.features.proposal import MOST_VALUES, proposed, proposed_column
from torchonline.features.reader import category_of, is_missing
from torchonline.features.rows import Problems, RowReader, native
from torchonline.features.schema import MISSING, make_schema, words_of_gaps
from torchonline.models.batches import LoggedRounds
from torchonline.models.file_tables import NAMELESS, matching, times_of
from torchonline.models.files import check_names, read_chunks
from torchonline.models.round_loader import RoundLoader

# Text of an integer. str.isdigit() also takes digits that int() refuses.
INTEGER = re.compile(r"-?[0-9]{1,18}")
# Rows in a chunk.
CHUNK = 50_000
# What to do about a wrong action, reward or probability.
REMEDY = "mend or leave out such rows"
# Rows from which kinds of columns are proposed.
SAMPLE = 20_000


@dataclass
class RawLog:
    """Rounds of a log: codes of inputs, and positions of actions in ``names``."""

    inputs: Tensor
    action: Tensor
    reward: Tensor
    probability: Tensor | None
    names: list[str]
    spool: "Spool"


class Spool:
    """Rows of float64 in a temporary file, so that memory does not grow with them."""

    def __init__(self, width: int) -> None:
        self.width, self.rows = width, 0
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self.file.close)  # what is mapped stays
        self.mapped: Any = None

    def append(self, rows: np.ndarray) -> None:
        """Write rows, ``(n, width)``."""
        self.file.write(np.ascontiguousarray(rows, dtype=np.float64).tobytes())
        self.rows += len(rows)

    def array(self) -> Any:
        """Return all rows, mapped into memory."""
        if self.mapped is None:
            self.file.flush()
            self.mapped = np.memmap(self.file, dtype=np.float64, mode="r+", shape=(self.rows, self.width))
        return self.mapped

    def release(self) -> None:
        """Give the memory of the mapped rows back. They are read again from the file."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped._mmap.madvise(mmap.MADV_DONTNEED)

    def reordered(self, order: np.ndarray) -> "Spool":
        """Return the rows in another order."""
        rows, found = self.array(), Spool(self.width)
        for part in np.array_split(order, max(1, len(order) // CHUNK)):
            found.append(rows[part])
        return found


def read_raw_log(
    files: Sequence[Path],
    encoder: ColumnEncoder,
    action: str,
    reward: str,
    probability: str | None,
    time: str | None,
    part: tuple[float, float],
    separator: str | None,
    encoding: str,
) -> RawLog:
    """Read a log in chunks, or raise one error for all columns.

    Args:
        files: the files.
        encoder: the encoder, whose columns are the inputs.
        action: column of the actions: text, or integers.
        reward: column of the rewards: numbers or booleans, also as text.
        probability: column of the logging probabilities, or None.
        time: column to sort by, or None.
        part: fractions of the ordered rounds.
        separator: of text files.
        encoding: of text files.
    """
    reader = encoder.reader
    others = [reward, *([] if probability is None else [probability])]
    wanted = [*reader.names, action, *others, *([] if time is None else [time])]
    # pandas knows the usual words for a gap only.
    is_usual = reader.schema["missing"] == words_of_gaps()
    texts = [column["name"] for column in reader.columns if not (is_usual and is_plain_number(column))]
    spool, others_found, times = Spool(reader.width), [], []
    places: dict[str, int] = {}
    numbers: RowReader | None = None
    problems = Problems("files", "row", 1)
    for frame in read_chunks(files, separator, encoding, wanted, [*texts, action], CHUNK):
        table = native(frame)
        if numbers is None:
            numbers = RowReader(_schema_of_numbers(table, others))
        codes = reader.codes_of_table(table)
        found = numbers.codes_of_table(table)
        problems.add(reader, codes, lambda name, table=table: table[name].to_list())  # type: ignore[misc]
        chosen, is_lost = _places_of(table[action].to_list(), places)
        for name, is_bad, what in (
            *((one, np.isnan(values), "numbers") for one, values in zip(others, found.T, strict=True)),
            (action, is_lost, f"integers, or names of 1 to {LONGEST} characters, in one line,"),
        ):
            if is_bad.any():
                value = table[name].to_list()[int(np.argmax(is_bad))]
                problems.record(name, what, is_bad, value, REMEDY)
        if time is not None:
            times.append(_times(frame, time, reader, codes))
            if (is_bad := np.isnan(times[-1]) if times[-1].dtype.kind == "f" else np.zeros(0)).any():
                problems.record(time, "times", is_bad, math.nan, "leave out rows without a time")
        problems.add(numbers, found, lambda name, table=table: table[name].to_list(), REMEDY)  # type: ignore[misc]
        problems.row += len(codes)
        spool.append(codes)
        others_found.append(np.concatenate([chosen[:, None], found], 1))
    problems.check()
    if spool.rows == 0:
        raise ValueError("files: expected at least one round, got none")
    small = np.concatenate(others_found)
    if time is not None:
        order = np.argsort(np.concatenate(times), kind="stable")
        if (np.diff(order) != 1).any():
            spool, small = spool.reordered(order), small[order]
    first, last = (round(end * spool.rows) for end in part)
    if first == last:
        raise ValueError(
            f"part: expected at least one of {counted(spool.rows, 'round')}, got none from {part[0]:g} to {part[1]:g}"
        )
    names = sorted(places, key=_key_of_name)
    order_of_names = {name: k for k, name in enumerate(names)}
    numbers_of_names = np.array([order_of_names[name] for name in places])
    chosen, *numbers_found = small[first:last].T
    payoffs, *probabilities = [torch.from_numpy(column.copy()) for column in numbers_found]
    return RawLog(
        torch.from_numpy(spool.array())[first:last],
        torch.from_numpy(numbers_of_names[chosen.astype(np.int64)]),
        payoffs,
        probabilities[0] if probabilities else None,
        names,
        spool,
    )


class RawLoader(RoundLoader):
    """Loader of a log of raw columns, which frees the memory of the rows it has read."""

    def __init__(self, raw: RawLog, rounds: LoggedRounds, batch_size: int) -> None:
        super().__init__(rounds, batch_size=batch_size)
        self.spool = raw.spool

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in super().__iter__():
            self.spool.release()
            yield batch


def propose_columns(
    files: Sequence[Path],
    context: Sequence[str],
    roles: Sequence[str],
    separator: str | None,
    encoding: str,
    *,
    is_probability_known: bool,
    kinds: Any = None,
    missing: Sequence[str] = MISSING,
) -> ColumnEncoder:
    """Return an encoder for the first rows of the first file.

    Values that their columns do not take are left to :func:`read_raw_log`.

    Args:
        files: the files.
        context: names of the columns, or patterns.
        roles: columns with another role, which patterns do not match.
        separator: of text files.
        encoding: of text files.
        is_probability_known: see :func:`~torchonline.models.file_tables.matching`.
        kinds: see :meth:`~torchonline.features.ColumnEncoder.from_frame`.
        missing: see there.
    """
    frame = next(read_chunks(files[:1], separator, encoding, None, None, SAMPLE), None)
    if frame is None or not len(frame):
        raise ValueError("files: expected at least one round, got none")
    names = [name for name in context if "*" not in name]
    check_names(list(frame.columns), [*names, *roles], files[0], separator)
    kinds = kinds or {}
    taken = {*roles, *names, *kinds}
    left_out = {
        name: "no name, row numbers?" for name in frame.columns if NAMELESS.fullmatch(name) and name not in taken
    }
    left_out |= {name: "left out" for name in frame.columns if name in kinds and kinds[name] is None}
    frame = frame.drop(columns=list(left_out))
    kinds = {name: kind for name, kind in kinds.items() if name not in left_out}
    columns = matching(frame, "context", context, roles, is_probability_known=is_probability_known)
    # The first rows are read again, with all other rows, and with one error for all wrong values.
    found, dropped = proposed(frame[columns], None, kinds, missing, MOST_VALUES, None, is_checked=False)
    encoder = ColumnEncoder(found, missing=missing)
    encoder.dropped = left_out | dropped
    return encoder


def _times(frame: Any, time: str, reader: RowReader, codes: np.ndarray) -> np.ndarray:
    """Return the times of rows as numbers. An encoded date is read in its own order."""
    if time in reader.names and reader.columns[reader.names.index(time)]["kind"] in ("date", "number"):
        return codes[:, reader.starts[reader.names.index(time)]]
    column = times_of(frame, time, "; kinds can name it a date, as an input")
    # pandas makes objects of times with a zone.
    values = (column if getattr(column.dtype, "tz", None) is None else column.dt.tz_convert(None)).to_numpy()
    return values.astype("datetime64[ns]").astype(np.int64) if values.dtype.kind == "M" else values


def is_plain_number(column: Any) -> bool:
    """Return whether a column can be read as numbers, and not as text."""
    return column["kind"] == "number" and column["decimal"] == "." and not column["unit"]


def _schema_of_numbers(table: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the schema of columns of numbers or booleans."""
    columns = []
    for name in names:
        values = [value for value in table[name].to_list() if not is_missing(value)]
        column: dict[str, Any] = {"kind": "number"}
        if values:
            found, _ = proposed_column(values, None, words_of_gaps(), 2, True)
            column = found if found["kind"] in ("number", "boolean") else column
        column.pop("has_gaps", None)
        columns.append({"name": name, **column})
    return make_schema(columns)


def _places_of(values: list[Any], places: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of actions in ``places``, and which have no name."""
    cache: dict[str, int] = {}

    def place(value: Any) -> int:
        text = None if is_missing(value) else category_of(value)
        found = places.setdefault(text, len(places)) if text and why_no_name(text) is None else -1
        if isinstance(value, str):
            cache[value] = found
        return found

    found = np.array([cache[value] if isinstance(value, str) and value in cache else place(value) for value in values])
    return found, found < 0


def _key_of_name(name: str) -> tuple[float, str]:
    """Return a key that sorts integers by value, before other names."""
    return (float(name), "") if INTEGER.fullmatch(name) else (float("inf"), name)
