"""Tables in CSV and Parquet files, and the base class of their data modules."""

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from torchonline.core.checks import check_state_dtype, finite_number, instance_of, positive_integer
from torchonline.core.messages import counted, listed
from torchonline.models.files import (
    SUFFIXES,
    check_names,
    checked_encoding,
    checked_separator,
    read_file,
    suffix_of,
)

# Names that pandas gives to unnamed columns, and common names of columns of logging probabilities.
NAMELESS = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")
PROBABILITY = re.compile(
    r"p|p[ _-]?scores?|.*prob(s|ability|abilities)?|.*propensit(y|ies)([ _-]scores?)?", re.IGNORECASE
)


class FileDataModule(pl.LightningDataModule):
    """Base class of data modules that read files.

    A checkpoint of a fit records which rounds the fit used.

    Args:
        files: see :func:`files_of`.
        time: column to sort by, or None.
        part: see :func:`checked_part`.
        batch_size: rounds in a batch of one rank.
        dtype: dtype of the numbers.
        separator: see :func:`checked_separator`.
        encoding: see :func:`checked_encoding`.
    """

    def __init__(
        self, files: Any, time: Any, part: Any, batch_size: Any, dtype: torch.dtype, separator: Any, encoding: Any
    ) -> None:
        super().__init__()
        self.files, self.part = files_of(files), checked_part(part)
        self.batch_size = positive_integer("batch_size", batch_size)
        check_state_dtype(dtype)
        self.dtype = dtype
        self.separator, self.encoding = checked_separator(separator), checked_encoding(encoding)
        self.time: str | None = instance_of("time", time, (str, type(None)), "the name of a column")
        self._learnt: list[dict[str, Any]] = []  # one entry per fit recorded in the checkpoint

    def state_dict(self) -> dict[str, Any]:
        """Return the rounds of this fit and of earlier fits: files, order and part."""
        own = {"files": self._names(), "paths": self._paths(), "time": self.time, "part": list(self.part)}
        return {"learnt": self._learnt if own in self._learnt else [*self._learnt, own]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the record of the rounds that a checkpoint's fits used."""
        self._learnt = list(state_dict.get("learnt", []))

    def learnt_parts(self) -> list[tuple[float, float]]:
        """Return the parts of the present rounds that a checkpoint has learnt.

        Only fits on the same files in the same order count; names or paths must agree. Load the state first.
        """
        same = [one["part"] for one in self._learnt if self._is_like(one)]
        shared = [(max(first, self.part[0]), min(last, self.part[1])) for first, last in same]
        return list(dict.fromkeys((first, last) for first, last in shared if first < last))

    def may_be_learnt(self) -> bool:
        """Return whether a checkpoint may have learnt some of the rounds.

        This is True if a fit read one of the files in another order or together with other files. The position of its rounds
        among the present ones is then unknown. Load the state first.
        """
        own = {*self._names(), *self._paths()}
        return any(not self._is_like(one) and own & {*one["files"], *one.get("paths", ())} for one in self._learnt)

    def _is_like(self, fit: dict[str, Any]) -> bool:
        """Return whether a fit had the present files in the present order."""
        has_files = fit["files"] == self._names() or fit.get("paths") == self._paths()
        return bool(has_files and fit["time"] == self.time)

    def _names(self) -> list[str]:
        return list(map(str, self.files))

    def _paths(self) -> list[str]:
        return [str(path.resolve()) for path in self.files]


def files_of(files: Any) -> list[Path]:
    """Return the paths of the given files, or of the files in a folder."""
    given = [files] if isinstance(files, (str, Path)) else files
    if not isinstance(given, (list, tuple)) or not given or not all(isinstance(path, (str, Path)) for path in given):
        raise TypeError(f"files: expected a path or a list of paths, got {files!r}")
    paths = [Path(path) for path in given]
    if len(paths) == 1 and paths[0].is_dir():
        paths = sorted(path for path in paths[0].iterdir() if suffix_of(path))
    wrong = [str(path) for path in paths if not suffix_of(path)]
    if wrong or not paths:
        raise ValueError(f"files: expected files that end in {', '.join(SUFFIXES)}, got {wrong or 'none'}")
    return paths


def checked_part(part: Any) -> tuple[float, float]:
    """Return start and end of a part of the rounds, both in [0, 1], or raise."""
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        raise TypeError(f"part: expected two numbers, got {part!r}")
    first, last = (finite_number("part", end) for end in part)
    if not 0.0 <= first < last <= 1.0:
        raise ValueError(f"part: expected 0 <= first < last <= 1, got {first:g} and {last:g}")
    return first, last


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


def times_of(frame: Any, time: str) -> Any:
    """Return a column of times, numbers or dates, to sort by; or raise."""
    import pandas

    values = frame[time]
    if values.dtype == object or pandas.api.types.is_string_dtype(values):  # CSV files hold dates as text
        try:
            values = pandas.to_datetime(values, format="ISO8601", utc=True)
        except (TypeError, ValueError) as error:
            raise ValueError(f"time: expected a column of numbers or ISO dates, got {time!r}: {error}") from error
    if gaps := int(values.isna().sum()):
        raise ValueError(f"time: expected a column without gaps, got {time!r} with {gaps}")
    return values
