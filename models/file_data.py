"""Base class of the data modules that read files."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from torchonline.core.checks import check_state_dtype, finite_number, instance_of, positive_integer
from torchonline.models.files import SUFFIXES, checked_encoding, checked_separator, suffix_of


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
