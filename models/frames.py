"""Tables in CSV and Parquet files, and the base class of their data modules."""

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl

from torchonline.core.checks import finite_number, instance_of
from torchonline.off_policy.logs import column_of_numbers

SUFFIXES = (".csv", ".parquet")


class FileDataModule(pl.LightningDataModule):
    """Base class of data modules of files.

    A checkpoint of a fit says which rounds the fit has taken.

    Args:
        files: see :func:`files_of`.
        time: column to sort by, or None.
        part: see :func:`checked_part`.
    """

    def __init__(self, files: Any, time: Any, part: Any) -> None:
        super().__init__()
        self.files, self.part = files_of(files), checked_part(part)
        self.time: str | None = instance_of("time", time, (str, type(None)), "the name of a column")
        self._learnt: list[dict[str, Any]] = []  # by the fits that a checkpoint is of

    def state_dict(self) -> dict[str, Any]:
        """Return the rounds of this fit and of those before it: files, order and part."""
        own = {"files": self._names(), "paths": self._paths(), "time": self.time, "part": list(self.part)}
        return {"learnt": self._learnt if own in self._learnt else [*self._learnt, own]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the rounds that a checkpoint's fits have taken."""
        self._learnt = list(state_dict.get("learnt", []))

    def learnt_parts(self) -> list[tuple[float, float]]:
        """Return the parts of the present rounds that a checkpoint has learnt.

        It knows the fits on the same files in the same order, by their names or by their paths. The state has to be loaded
        before.
        """
        same = [one["part"] for one in self._learnt if self._is_like(one)]
        shared = [(max(first, self.part[0]), min(last, self.part[1])) for first, last in same]
        return list(dict.fromkeys((first, last) for first, last in shared if first < last))

    def may_be_learnt(self) -> bool:
        """Return whether a checkpoint may have learnt some of the rounds.

        A fit has read one of the files in another order, or among other files. Its part of the rounds then has no place among
        the present ones. The state has to be loaded before.
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
    """Return the files that are named, or those of a folder."""
    given = [files] if isinstance(files, (str, Path)) else files
    if not isinstance(given, (list, tuple)) or not given or not all(isinstance(path, (str, Path)) for path in given):
        raise TypeError(f"files: expected a path or a list of paths, got {files!r}")
    paths = [Path(path) for path in given]
    if len(paths) == 1 and paths[0].is_dir():
        paths = sorted(path for path in paths[0].iterdir() if path.suffix in SUFFIXES)
    wrong = [str(path) for path in paths if path.suffix not in SUFFIXES]
    if wrong or not paths:
        raise ValueError(f"files: expected files that end in .csv or .parquet, got {wrong or 'none'}")
    return paths


def numbers_of(frame: Any, name: str, column: str) -> np.ndarray:
    """Return a column of finite numbers as an array, or raise."""
    values = np.array(column_of_numbers(frame, name, column))  # pandas may keep its own from being written
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: expected finite values, got {column!r} with {values[~np.isfinite(values)][0]}")
    return values


def checked_part(part: Any) -> tuple[float, float]:
    """Return the two ends of a part of the rounds, from 0 to 1, or raise."""
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        raise TypeError(f"part: expected two numbers, got {part!r}")
    first, last = (finite_number("part", end) for end in part)
    if not 0.0 <= first < last <= 1.0:
        raise ValueError(f"part: expected 0 <= first < last <= 1, got {first:g} and {last:g}")
    return first, last


def matching(frame: Any, names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return names of columns, with those that match in the place of a pattern.

    A name with ``*`` that is no column is a pattern. It matches columns in their order, but none of ``taken``
    or of the other names.
    """
    found: list[str] = []
    for name in names:
        if "*" in name and name not in frame.columns:
            columns = [
                column for column in fnmatch.filter(frame.columns, name) if column not in (*taken, *found, *names)
            ]
            if not columns:
                raise ValueError(f"files: expected columns that match {name!r}, got {list(frame.columns)}")
            found += columns
        else:
            found.append(name)
    return found


def read_frame(
    files: Sequence[Path], inputs: Sequence[str], others: Sequence[str], time: str | None, part: tuple[float, float]
) -> tuple[Any, list[str]]:
    """Return a part of the rows of files, and the names of the input columns.

    Rows are sorted by the column ``time`` if it is named. Patterns among ``inputs`` match none of ``others``.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("files: expected pandas to read them with; pip install pandas pyarrow") from error
    others = [*others, *([] if time is None else [time])]
    found: list[str] | None = None
    # From version 3.1 on, pandas reads the nearest numbers by itself, and warns of the option.
    version = tuple(map(int, pandas.__version__.split(".")[:2]))
    exact: Any = {"float_precision": "round_trip"} if version < (3, 1) else {}
    frames = []
    for path in files:
        try:
            frame = pandas.read_csv(path, **exact) if path.suffix == ".csv" else pandas.read_parquet(path)
        except FileNotFoundError:
            raise ValueError(f"files: expected files that exist, got {str(path)!r}") from None
        except ValueError as error:
            raise ValueError(f"files: expected files that pandas can read, got {str(path)!r}: {error}") from error
        found = matching(frame, inputs, others) if found is None else found
        columns = list(dict.fromkeys([*found, *others]))
        missing = [name for name in columns if name not in frame.columns]
        if missing:
            raise ValueError(f"files: expected the columns {columns}, got none of {missing} in {path.name}")
        if len(frame):  # columns without a row have no type
            frames.append(frame[columns])
    if not frames:
        raise ValueError("files: expected at least one round, got none")
    frame = pandas.concat(frames, ignore_index=True)
    if time is not None:
        frame = _sorted(frame, time)
    first, last = (round(end * len(frame)) for end in part)
    if first == last:
        raise ValueError(
            f"part: expected at least one of {len(frame)} rounds, got none from {part[0]:g} to {part[1]:g}"
        )
    return frame.iloc[first:last].reset_index(drop=True), found or []


def _sorted(frame: Any, time: str) -> Any:
    """Return a frame sorted by a column of times."""
    import pandas

    if frame[time].dtype == object or pandas.api.types.is_string_dtype(frame[time]):  # CSV files hold dates as text
        try:
            frame[time] = pandas.to_datetime(frame[time], format="ISO8601", utc=True)
        except (TypeError, ValueError) as error:
            raise ValueError(f"time: expected a column of numbers or ISO dates, got {time!r}: {error}") from error
    if gaps := int(frame[time].isna().sum()):
        raise ValueError(f"time: expected a column without gaps, got {time!r} with {gaps}")
    return frame.sort_values(time, kind="stable", ignore_index=True)
