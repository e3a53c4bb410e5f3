"""Export of the learning head during a fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from torchonline.core.checks import one_of, positive_integer
from torchonline.export import to_archive, to_torchscript
from torchonline.models.batches import inputs_of
from torchonline.models.encoding import typed_inputs

WRITERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "torchscript": ("head.pt", to_torchscript),
    "program": ("head.pt2", to_archive),
}


class ArtifactExporter(pl.Callback):
    """Callback that exports ``module.head`` to files that run without torchonline.

    The files in ``directory`` are ``head.pt`` (TorchScript) and ``head.pt2`` (an archive of programs). Each new file is verified
    against the head and then replaces the old one atomically, so a server that reads the directory always sees a complete file.
    The files skip rounds with NaN, and their steps return which rounds were learnt (docs/files.md). With several processes, the
    first one exports its head.

    The module is a :class:`~torchonline.models.NeuralLinearBandit`, or another module with a ``head`` and a buffer ``rounds``.
    The first element of each batch must be the inputs of N rounds.

    Args:
        directory: directory of the files, created if missing.
        every_n_rounds: export after each batch that reaches a multiple of this number, and at the end of the fit. None exports
            only at the end.
        formats: ``"torchscript"``, ``"program"``, or both.

    Example:
        >>> import torch
        >>> from torchonline import OFUL
        >>> from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader
        >>> bandit = NeuralLinearBandit(BanditHead(torch.nn.Linear(4, 2), OFUL(2)))
        >>> exporter = ArtifactExporter(folder, formats=("torchscript",))
        >>> quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
        >>> quiet |= {"enable_model_summary": False, "enable_checkpointing": False}
        >>> trainer = pl.Trainer(max_epochs=1, callbacks=[exporter], **quiet)
        >>> trainer.fit(bandit, RoundLoader(torch.rand(20, 5, 4), torch.rand(20, 5)))
        >>> served = torch.jit.load(folder / "head.pt")
        >>> served.select(torch.rand(5, 4)).shape
        torch.Size([])
    """

    def __init__(
        self,
        directory: str | Path,
        every_n_rounds: int | None = None,
        formats: tuple[str, ...] = ("torchscript", "program"),
    ) -> None:
        self.directory = Path(directory)
        self.every_n_rounds = None if every_n_rounds is None else positive_integer("every_n_rounds", every_n_rounds)
        if isinstance(formats, str) or not formats:
            raise ValueError(f"formats: expected some of {', '.join(map(repr, WRITERS))}, got {formats!r}")
        self.formats = tuple(one_of("formats", name, tuple(WRITERS)) for name in formats)
        self._example: Tensor | None = None
        self._is_written = False
        self._rounds_before = 0

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self.every_n_rounds:
            self._rounds_before = int(pl_module.get_buffer("rounds"))

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        inputs = inputs_of(batch)
        if not trainer.is_global_zero or len(inputs) == 0:
            return
        head: Any = pl_module.head
        self._example = (
            inputs[0].detach() if head.scaler is not None else typed_inputs(head.encoder, inputs[0].detach())
        )
        self._is_written = False
        if self.every_n_rounds:
            # The count may include rounds of other processes.
            rounds = int(pl_module.get_buffer("rounds"))
            if rounds // self.every_n_rounds > self._rounds_before // self.every_n_rounds:
                self._write(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._example is not None and not self._is_written:
            self._write(pl_module)

    def _write(self, pl_module: pl.LightningModule) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in self.formats:
            file, writer = WRITERS[name]
            writer(pl_module.head, self.directory / file, example=self._example)
        self._is_written = True
