"""Lightning data module of logged rounds in CSV or Parquet files."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.action_names import ids_of_names
from torchonline.core.checks import instance_of
from torchonline.core.messages import listed
from torchonline.features import ColumnEncoder
from torchonline.features.schema import MISSING, Kinds
from torchonline.models.bandit_head import ENCODED_AT_ONCE
from torchonline.models.batches import LoggedRounds
from torchonline.models.file_data import FileDataModule
from torchonline.models.file_tables import read_frame
from torchonline.models.raw_log import INTEGER, RawLoader, RawLog, propose_columns, read_raw_log
from torchonline.models.round_loader import RoundLoader
from torchonline.off_policy import BanditLog, from_frame
from torchonline.off_policy.columns import Columns, check_columns


class LogDataModule(FileDataModule):
    r"""Lightning data module of logged rounds in CSV or Parquet files.

    The training batches are :class:`~torchonline.models.LoggedRounds`, which :class:`~torchonline.models.NeuralLinearBandit`
    learns in order. Each round comes once, in the order of the files and their rows, or stably sorted by a column of times. The
    loader is a :class:`~torchonline.models.RoundLoader`: a checkpoint resumes it in the middle of an epoch, and each round goes
    to one rank. :meth:`bandit_log` returns the same log for off-policy evaluation.

    Files are read with pandas; Parquet files also need pyarrow. Without ``encoder``, all named columns are held in memory.

    Args:
        files: a ``.csv``, ``.tsv`` or ``.parquet`` file, text files also with ``.gz`` appended; a list of such files; or a
            folder, whose files are read in the order of their names.
        context: columns of the inputs, numeric without ``encoder``: ``["age", "price"]`` gives inputs ``(N, 2)``, for a
            head with actions. A list of such lists, one for each arm, gives ``(N, K, d)``. In the first case ``*``
            matches any characters: ``["*"]``, or None, means all columns that no other argument names, in the order of
            the first file. The columns of rewards, actions and probabilities are refused, and so are duplicates. A
            pattern is refused if it matches a column without a name, which often holds row numbers, or a column that is
            named like a probability and is not the one in ``probability``.
        action: column of the chosen arms, integers from 0, see :func:`~torchonline.off_policy.from_frame`.
        reward: column of the chosen arms' rewards.
        probability: column of the logging probabilities, or None. Learning does not need them.
        time: column to sort by, numbers or dates; dates as text in ISO 8601 (UTC if without a zone). None keeps the order of the
            rows. It is an input only if ``context`` or ``kinds`` names it. With ``encoder``, dates in other orders need this.
        batch_size: rounds in a batch of one rank; None for 1, or 8192 with ``encoder``. A head learns the rounds in order anyway.
        dtype: dtype of inputs, rewards and probabilities, in batches and in :meth:`bandit_log`. A head converts inputs to the
            dtype of its encoder, or of its policy.
        part: the rounds to take, as fractions of the ordered rounds: ``(0, 0.8)`` takes the first 80 percent, ``(0.8, 1)`` the
            rest. A policy that has learnt one part can be evaluated on the other.
        separator: character between the values of a line; None for a tab in ``.tsv`` files and a comma in others. Blanks after
            it are skipped.
        encoding: encoding of text files, such as ``"cp1252"`` or ``"utf-16"``.
        encoder: a :class:`~torchonline.features.ColumnEncoder`, for columns of any kind. The inputs are then its codes,
            ``(N, C)``, for a head with it, and only :meth:`propose` reads ``context``. Rewards may be booleans, and
            actions may be names. Files are read in chunks into a temporary file, so that memory does not grow with them.
        actions: names of the actions in the order of their ids, if the column has names. Only used with ``encoder``.
        kinds, missing: of :meth:`propose`, see :meth:`ColumnEncoder.from_frame
            <torchonline.features.ColumnEncoder.from_frame>`.

    Raises:
        ImportError: pandas is not installed, or pyarrow for Parquet files.
        TypeError, ValueError: an argument is invalid, a file or a column is missing, or columns have missing or non-numeric
            values. The error names all such columns. Files are read in ``setup``, which Lightning calls.

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
        context: Sequence[str] | Sequence[Sequence[str]] | None = None,
        action: str,
        reward: str,
        probability: str | None = None,
        time: str | None = None,
        batch_size: int | None = None,
        dtype: torch.dtype = torch.float64,
        part: tuple[float, float] = (0.0, 1.0),
        separator: str | None = None,
        encoding: str = "utf-8",
        encoder: ColumnEncoder | None = None,
        actions: list[str] | None = None,
        kinds: Kinds | None = None,
        missing: list[str] | None = None,
    ) -> None:
        super().__init__(files, time, part, 1 if batch_size is None else batch_size, dtype, separator, encoding)
        # Large batches of raw columns are learnt in blocks.
        self.raw_batch_size = ENCODED_AT_ONCE if batch_size is None else self.batch_size
        self.encoder = instance_of("encoder", encoder, (ColumnEncoder, type(None)), "a ColumnEncoder or None")
        self.actions = None if actions is None else list(instance_of("actions", actions, (list, tuple), "names"))
        self.kinds, self.missing = kinds or {}, MISSING if missing is None else missing
        context = ["*"] if context is None else context
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
        # Arms may share a column, such as a feature of the visitor.
        for names in self.context if self.of_arms else [[name for (name,) in self.context]]:
            check_columns("context", names, **roles)
        self._frame: Any = None
        self._raw: RawLog | None = None
        self._raw_schema = torch.empty(0, dtype=torch.uint8)  # of the encoder that has read it

    def setup(self, stage: str | None = None) -> None:
        """Read the files, once."""
        if self.encoder is not None:
            self._of_raw(self.encoder)
        elif self._frame is None:
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
        if self.encoder is not None:
            raw = self._of_raw(self.encoder)
            values = [None if one is None else one.to(self.dtype) for one in (raw.reward, raw.probability)]
            rounds = LoggedRounds(raw.inputs, self._ids(raw), *values)  # type: ignore[arg-type]
            return RawLoader(raw, rounds, self.raw_batch_size)
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

        It has the same order and numbers as the batches.

        Args:
            arms: K; None for the number of arms of the context, or else the largest action plus 1.

        Raises:
            ValueError: ``probability`` is None, or values are out of range.
        """
        names = self.names
        if names["probability"] is None:
            raise ValueError("probability: expected the name of a column, which off-policy evaluation needs, got None")
        if self.encoder is not None:
            raw = self._of_raw(self.encoder)
            action, reward = self._ids(raw), raw.reward.to(self.dtype)
            probability: Any = raw.probability
            known = int(action.max()) + 1 if self.actions is None else len(self.actions)
            arms = known if arms is None else arms
            return BanditLog(arms=arms, action=action, reward=reward, probability=probability, context=raw.inputs)
        frame = self._of_setup()
        arms = len(self.context) if arms is None and self.of_arms else arms
        log: Any = from_frame(frame, arms=arms, time=self.time, context=self._inputs, **names)
        found: BanditLog = dataclasses.replace(
            log,
            context=self._of_each_arm(log.context),
            reward=log.reward.to(self.dtype),
            probability=log.probability.to(self.dtype),
        )
        return found

    def propose(self) -> ColumnEncoder:
        """Return an encoder for ``context``, from 20,000 rows of the first file."""
        if self.of_arms:
            raise ValueError("context: expected names of columns, to propose kinds for, got a list for each arm")
        time = None if self.time in self.kinds else self.time
        roles = [name for name in (*self.names.values(), time) if name is not None]
        return propose_columns(
            self.files,
            [name for (name,) in self.context],
            roles,
            self.separator,
            self.encoding,
            is_probability_known=self.names["probability"] is not None,
            kinds=self.kinds,
            missing=self.missing,
        )

    def raw_log(self) -> RawLog:
        """Return the log of raw columns. It needs an ``encoder``."""
        if self.encoder is None:
            raise ValueError("encoder: expected a ColumnEncoder, to read raw columns, got None")
        return self._of_raw(self.encoder)

    def _of_raw(self, encoder: ColumnEncoder) -> RawLog:
        if self._raw is None or not torch.equal(self._raw_schema, encoder.schema):
            check_columns("encoder", encoder.reader.names, **{role: [one] for role, one in self.names.items()})
            options: Any = self.time, self.part, self.separator, self.encoding
            self._raw = read_raw_log(self.files, encoder, *self.names.values(), *options)
            self._raw_schema = encoder.schema.clone()
        return self._raw

    def _ids(self, raw: RawLog) -> Tensor:
        """Return the actions as integers: positions in ``actions``, or themselves."""
        if self.actions is not None:
            ids = ids_of_names("action", raw.names, {name: k for k, name in enumerate(self.actions)}, self.actions)
            return torch.as_tensor(ids)[raw.action]
        if not all(INTEGER.fullmatch(name) and int(name) >= 0 for name in raw.names):
            raise ValueError(
                f"actions: expected the names of the actions, in the order of their ids, got None, and text in "
                f"{self.names['action']!r}: {listed(raw.names)}"
            )
        return torch.tensor([int(name) for name in raw.names])[raw.action]

    def _of_setup(self) -> Any:
        if self._frame is None:
            self.setup()
        return self._frame

    def _of_each_arm(self, inputs: Tensor) -> Tensor:
        """Arrange columns ``(N, m)`` as inputs, ``(N, d)`` or ``(N, K, d)``."""
        places = {name: place for place, name in enumerate(self._inputs)}
        found = inputs.to(self.dtype)
        return found[:, [[places[name] for name in names] for names in self.context]] if self.of_arms else found
