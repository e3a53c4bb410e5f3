"""Tables in CSV and Parquet files."""

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchonline.core.messages import counted, listed
from torchonline.models.files import check_names, read_file

# Names that pandas gives to unnamed columns, and common names of columns of logging probabilities.
NAMELESS = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")
PROBABILITY = re.compile(
    r"p|p[ _-]?scores?|.*prob(s|ability|abilities)?|.*propensit(y|ies)([ _-]scores?)?", re.IGNORECASE
)


def matching(
    frame: Any, name: str, columns: Sequence[str], taken: Sequence[str], *, is_probability_known: bool = True
) -> list[str]:
    """Return names of columns, with each pattern replaced by its matches.

    A name that contains ``*`` and is not a column is a pattern. It matches columns in their order, except ``taken`` and the other
    names in ``columns``. A match that is unlikely to be an input is refused: a column without a name, which often holds row
    numbers, or probabilities that no argument names.

    Args:
        frame: the table.
        name: name of the argument that holds ``columns``.
        columns: names and patterns.
        taken: columns with another role.
        is_probability_known: whether ``taken`` includes the column of probabilities, or the table has none.
    """
    found: list[str] = []
    used = {*taken, *columns}
    for column in columns:
        if "*" not in column or column in frame.columns:
            found.append(column)
            continue
        # A separator at the end of each line adds a last column without a name or values.
        is_open = {
            one: one not in used and not (NAMELESS.fullmatch(one) and frame[one].isna().all()) for one in frame.columns
        }
        matches = [one for one in fnmatch.filter(frame.columns, column) if is_open[one]]
        if not matches:
            raise ValueError(f"files: expected columns that match {column!r}, got {listed(frame.columns)}")
        nameless = [one for one in matches if NAMELESS.fullmatch(one)]
        likely = [] if is_probability_known else [one for one in matches if PROBABILITY.fullmatch(one)]
        facts = []
        if nameless:
            facts.append(f"{listed(nameless)} without a name (row numbers?): remove it from the file")
        if likely:
            facts.append(f"{listed(likely)} (the logging probabilities?): name it as probability")
        if facts:
            raise ValueError(
                f"{name}: expected {column!r} to match only inputs, got {'; '.join(facts)}; or list the inputs by name"
            )
        found += matches
        used.update(matches)
    return found


def read_frame(
    files: Sequence[Path],
    name: str,
    inputs: Sequence[str],
    others: Sequence[str],
    time: str | None,
    part: tuple[float, float],
    separator: str | None = None,
    encoding: str = "utf-8",
    *,
    is_probability_known: bool = True,
) -> tuple[Any, list[str]]:
    """Return a part of the rows of files, and the names of the input columns.

    Rows are sorted by the column ``time`` if it is given. Patterns in ``inputs`` do not match columns in ``others``. Errors call
    the inputs ``name``.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("files: expected pandas to be installed; pip install pandas pyarrow") from error
    others = [*others, *([] if time is None else [time])]
    found: list[str] | None = None
    frames = []
    for path in files:
        frame = read_file(path, separator, encoding)
        columns = list(dict.fromkeys([*inputs, *others]))
        check_names(list(frame.columns), [column for column in columns if "*" not in column], path, separator)
        if found is None:
            found = matching(frame, name, inputs, others, is_probability_known=is_probability_known)
        columns = list(dict.fromkeys([*found, *others]))
        missing = [column for column in columns if column not in frame.columns]
        if missing:
            raise ValueError(
                f"files: expected the columns of {files[0].name} in all files, got none of {listed(missing)} in {path.name}, "
                f"which has {listed(frame.columns)}"
            )
        if len(frame):  # an empty column has no dtype
            frames.append(frame[columns])
    if not frames:
        raise ValueError("files: expected at least one round, got none")
    frame = pandas.concat(frames, ignore_index=True)
    if time is not None:
        frame = _sorted(frame, time)
    first, last = (round(end * len(frame)) for end in part)
    if first == last:
        raise ValueError(
            f"part: expected at least one of {counted(len(frame), 'round')}, got none from {part[0]:g} to {part[1]:g}"
        )
    return frame.iloc[first:last].reset_index(drop=True), found or []


def _sorted(frame: Any, time: str) -> Any:
    """Return a frame sorted by a column of times."""
    return frame.assign(**{time: times_of(frame, time)}).sort_values(time, kind="stable", ignore_index=True)


def times_of(frame: Any, time: str, remedy: str = "") -> Any:
    """Return a column of times, numbers or dates, to sort by; or raise.

    ``remedy`` ends the error for text that is not an ISO date.
    """
    import pandas

    values = frame[time]
    if values.dtype == object or pandas.api.types.is_string_dtype(values):  # CSV files hold dates as text
        try:
            values = pandas.to_datetime(values, format="ISO8601", utc=True)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"time: expected a column of numbers or ISO dates, got {time!r}: {error}{remedy}"
            ) from error
    if gaps := int(values.isna().sum()):
        raise ValueError(f"time: expected a column without gaps, got {time!r} with {gaps}")
    return values
