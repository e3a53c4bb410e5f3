"""Lightning data module of logged rounds in CSV or Parquet files."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.checks import instance_of
from torchonline.models.batches import LoggedRounds
from torchonline.models.frames import FileDataModule, read_frame
from torchonline.models.round_loader import RoundLoader
from torchonline.off_policy import BanditLog, from_frame
from torchonline.off_policy.columns import Columns, check_columns


class LogDataModule(FileDataModule):
    r"""Lightning data module of logged rounds in CSV or Parquet files.

    Its training batches are :class:`~torchonline.models.LoggedRounds`, which :class:`~torchonline.models.NeuralLinearBandit`
    learns in order. Rounds come in the order of the files and of their rows, or sorted by a column of times (stably), once. The
    loader is a :class:`~torchonline.models.RoundLoader`. A checkpoint resumes it in the middle of an epoch, and each round goes
    to one rank. :meth:`bandit_log` is the same log for off-policy evaluation.

    Files are read with pandas, Parquet files also need pyarrow. All of the named columns are held in memory.

    Args:
        files: a ``.csv``, ``.tsv`` or ``.parquet`` file, of text also with ``.gz`` after it; a list of such files; or a folder,
            whose files are taken in the order of their names.
        context: columns of the inputs, all numbers: ``["age", "price"]`` gives inputs ``(N, 2)``, for a head with actions. A list
            of such lists, one for each arm, gives ``(N, K, d)``. In the first case ``*`` stands for any letters: ``["*"]`` are
            all columns that are not named by another argument, in the order of the first file. The columns of rewards,
            actions and probabilities are refused, and so is a column that is named twice. A pattern is refused where it matches a
            column without a name, which often holds row numbers, or one that is called like a probability and that
            ``probability`` does not name.
        action: column of the chosen arms, integers from 0, see :func:`~torchonline.off_policy.from_frame`.
        reward: column of their rewards.
        probability: column of the logging probabilities; None if there is none. Learning needs none.
        time: column to sort by, numbers or dates, as text by ISO 8601 (UTC without a zone); None keeps the order of the rows.
        batch_size: rounds in a batch of one rank.
        dtype: of inputs, rewards and probabilities, in batches and in :meth:`bandit_log` alike. A head converts inputs to the
            type of its encoder, or of its policy.
        part: which rounds to take, by their place in the order of all: ``(0, 0.8)`` takes the first 80 percent, ``(0.8, 1)`` the
            others. A policy that has learnt one part can be evaluated on the other.
        separator: character between the values of a line; None for a tab in ``.tsv`` files and a comma in others. Blanks after it
            are left out.
        encoding: of text files, such as ``"cp1252"`` or ``"utf-16"``.

    Raises:
        ImportError: pandas is not installed, or pyarrow for Parquet files.
        TypeError, ValueError: an argument is something else, a file or a column is missing, or columns lack values or hold no
            numbers: the error names all of them. Files are read in ``setup``, which Lightning calls.

    Example:
        >>> _ = (folder / "log.csv").write_text("age,item,click,p\n31,0,0,0.5\n27,2,1,0.25\n44,1,0,0.25\n")
        >>> data = LogDataModule(
        ...     folder / "log.csv", context=["age"], action="item", reward="click", probability="p", batch_size=2
        ... )
        >>> data.setup("fit")
        >>> [batch.action for batch in data.train_dataloader()]
        [tensor([0, 2]), tensor([1])]
        >>> data.bandit_log()
        BanditLog(3 rounds, arms=3: action, reward, probability, context)
    """

    def __init__(
        self,
        files: str | Path | Sequence[str | Path],
        *,
        context: Sequence[str] | Sequence[Sequence[str]],
        action: str,
        reward: str,
        probability: str | None = None,
        time: str | None = None,
        batch_size: int = 1,
        dtype: torch.dtype = torch.float64,
        part: tuple[float, float] = (0.0, 1.0),
        separator: str | None = None,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(files, time, part, batch_size, dtype, separator, encoding)
        self.context = [
            list(name) if isinstance(name, (list, tuple)) else [name]
            for name in instance_of("context", context, (list, tuple), "a list of columns")
        ]
        self.of_arms = not all(isinstance(name, str) for name in context)
        are_lists = {not isinstance(names, str) for names in context}
        if not all(isinstance(name, str) for names in self.context for name in names):
            raise TypeError(f"context: expected names of columns, got {list(context)}")
        if (
            len(are_lists) > 1
            or not self.context
            or len({len(names) for names in self.context}) > 1
            or not self.context[0]
        ):
            raise ValueError(
                f"context: expected columns, or lists of as many columns for each arm, got {list(context)}"
            )
        self.names: dict[str, Any] = {"action": action, "reward": reward, "probability": probability}
        for name, column in self.names.items():
            instance_of(
                name, column, (str,) if name in ("action", "reward") else (str, type(None)), "the name of a column"
            )
        roles: dict[str, Any] = {name: [self.names[name]] for name in ("reward", "action", "probability")}
        # Arms may share a column, as one of the visitor.
        for names in self.context if self.of_arms else [[name for (name,) in self.context]]:
            check_columns("context", names, **roles)
        self._frame: Any = None

    def setup(self, stage: str | None = None) -> None:
        """Read the files, once."""
        if self._frame is None:
            names = [name for names in self.context for name in names]
            others = [self.names[name] for name in ("action", "reward", "probability") if self.names[name] is not None]
            inputs, others = ([], names + others) if self.of_arms else (names, others)
            self._frame, inputs = read_frame(
                self.files,
                "context",
                inputs,
                others,
                self.time,
                self.part,
                self.separator,
                self.encoding,
                is_probability_known=self.names["probability"] is not None,
            )
            self._inputs = list(dict.fromkeys(names)) if self.of_arms else inputs

    def train_dataloader(self) -> RoundLoader:
        """Return the loader of all rounds in order."""
        columns = Columns(self._of_setup())
        action = columns.actions(self.names["action"], len(self.context) if self.of_arms else None)
        numbers = {
            role: columns.numbers(role, [name])[:, 0] for role, name in self.names.items() if name and role != "action"
        }
        inputs = columns.numbers("context", self._inputs)
        columns.check()
        rounds = LoggedRounds(
            inputs=self._of_each_arm(torch.from_numpy(inputs)),
            action=torch.from_numpy(action.astype(np.int64)),
            **{role: torch.from_numpy(values).to(self.dtype) for role, values in numbers.items()},
        )
        return RoundLoader(rounds, batch_size=self.batch_size)

    def bandit_log(self, *, arms: int | None = None) -> BanditLog:
        """Return the log for :mod:`torchonline.off_policy`.

        Its order and its numbers are those of the batches.

        Args:
            arms: K; None for that of the context, or for the largest action plus 1.

        Raises:
            ValueError: there is no column of probabilities, or values are out of range.
        """
        frame, names = self._of_setup(), self.names
        if names["probability"] is None:
            raise ValueError("probability: expected the name of a column, which off-policy evaluation needs, got None")
        arms = len(self.context) if arms is None and self.of_arms else arms
        log: Any = from_frame(frame, arms=arms, time=self.time, context=self._inputs, **names)
        found: BanditLog = dataclasses.replace(
            log,
            context=self._of_each_arm(log.context),
            reward=log.reward.to(self.dtype),
            probability=log.probability.to(self.dtype),
        )
        return found

    def _of_setup(self) -> Any:
        if self._frame is None:
            self.setup()
        return self._frame

    def _of_each_arm(self, inputs: Tensor) -> Tensor:
        """Return the inputs, ``(N, d)`` or ``(N, K, d)``, from the columns ``(N, m)``."""
        places = {name: place for place, name in enumerate(self._inputs)}
        found = inputs.to(self.dtype)
        return found[:, [[places[name] for name in names] for names in self.context]] if self.of_arms else found
