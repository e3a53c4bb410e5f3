"""Lightning data module of tables in CSV or Parquet files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchonline.models.file_data import FileDataModule
from torchonline.models.file_tables import read_frame
from torchonline.models.round_loader import RoundLoader
from torchonline.off_policy.columns import Columns, check_columns


class TableDataModule(FileDataModule):
    r"""Lightning data module of inputs and targets in CSV or Parquet files.

    The batches are ``(inputs, targets)``, for :class:`~torchonline.models.NeuralLinearBandit` and
    :class:`~torchonline.models.OnlinePredictor`:

    - With one column of targets, the targets are labels, ``(N)``.
    - With a list of columns, the targets are the rewards of all K arms of each round, ``(N, K)``. A bandit sees only the reward
      of the chosen arm, and its regret is known.

    Each round comes once, in the order of the files and their rows, or stably sorted by a column of times. Training, test and
    prediction use the same rounds, so build one data module for each, with its own ``part``. The loader is a
    :class:`~torchonline.models.RoundLoader`. Files are read with pandas; Parquet files also need pyarrow.

    Args:
        files: a ``.csv``, ``.tsv`` or ``.parquet`` file, text files also with ``.gz`` appended; a list of such files; or a
            folder, whose files are read in the order of their names.
        inputs: numeric columns of the inputs. ``*`` matches any characters: ``["*"]`` means all columns that no other argument
            names, in the order of the first file. Columns of targets are refused, and so are duplicates. A pattern is refused if
            it matches a column without a name, which often holds row numbers.
        targets: the column of the labels; or a list of columns, one for the reward of each arm.
        time: column to sort by, numbers or dates; dates as text in ISO 8601 (UTC if without a zone). None keeps the order of the
            rows.
        batch_size: rounds in a batch of one rank.
        dtype: dtype of inputs and targets.
        part: the rounds to take, as fractions of the ordered rounds: ``(0, 0.8)`` takes the first 80 percent.
        separator: character between the values of a line; None for a tab in ``.tsv`` files and a comma in others. Blanks after
            it are skipped.
        encoding: encoding of text files, such as ``"cp1252"`` or ``"utf-16"``.

    Raises:
        ImportError: pandas is not installed, or pyarrow for Parquet files.
        TypeError, ValueError: an argument is invalid, a file or a column is missing, or columns have missing or non-numeric
            values. The error names all such columns. Files are read in ``setup``, which Lightning calls.

    Example:
        >>> _ = (folder / "table.csv").write_text("age,price,bought\n31,2.5,0\n27,1.0,1\n44,3.5,0\n")
        >>> data = TableDataModule(folder / "table.csv", inputs=["age", "price"], targets="bought", batch_size=2)
        >>> data.setup("fit")
        >>> [targets for inputs, targets in data.train_dataloader()]
        [tensor([0., 1.], dtype=torch.float64), tensor([0.], dtype=torch.float64)]
    """

    def __init__(
        self,
        files: str | Path | Sequence[str | Path],
        *,
        inputs: Sequence[str],
        targets: str | Sequence[str],
        time: str | None = None,
        batch_size: int = 1,
        dtype: torch.dtype = torch.float64,
        part: tuple[float, float] = (0.0, 1.0),
        separator: str | None = None,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(files, time, part, batch_size, dtype, separator, encoding)
        self.inputs = _columns("inputs", inputs)
        self.has_labels = isinstance(targets, str)
        self.targets = [targets] if isinstance(targets, str) else _columns("targets", targets)
        check_columns("inputs", self.inputs, targets=self.targets)
        self._tensors: tuple[Tensor, Tensor] | None = None

    def setup(self, stage: str | None = None) -> None:
        """Read the files, once."""
        if self._tensors is None:
            frame, names = read_frame(
                self.files, "inputs", self.inputs, self.targets, self.time, self.part, self.separator, self.encoding
            )
            columns = Columns(frame)
            arrays = columns.numbers("inputs", names), columns.numbers("targets", self.targets)
            columns.check()
            inputs, targets = (torch.from_numpy(array).to(self.dtype) for array in arrays)
            self._tensors = inputs, targets.squeeze(1) if self.has_labels else targets

    def train_dataloader(self) -> RoundLoader:
        """Return the loader of all rounds in order."""
        self.setup()
        tensors: Any = self._tensors
        return RoundLoader(*tensors, batch_size=self.batch_size)

    def test_dataloader(self) -> RoundLoader:
        """Return the loader of all rounds in order."""
        return self.train_dataloader()

    def predict_dataloader(self) -> RoundLoader:
        """Return the loader of all rounds in order."""
        return self.train_dataloader()


def _columns(name: str, columns: Any) -> list[str]:
    """Return names of columns, or raise."""
    if not isinstance(columns, (list, tuple)) or not columns or not all(isinstance(one, str) for one in columns):
        raise TypeError(f"{name}: expected names of columns, got {columns!r}")
    return list(columns)
