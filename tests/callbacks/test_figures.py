"""Figures of the callbacks: which loggers get them, when, and what goes on without matplotlib."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.loggers.logger import DummyLogger

from torchonline import DPTOFW, OFUL
from torchonline.callbacks import PrivacySpendLogger, RegretLogger
from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]


class Writer:
    """An experiment with figures."""

    def __init__(self) -> None:
        self.figures: list[tuple[str, Figure, int]] = []

    def add_figure(self, name: str, figure: Figure, global_step: int) -> None:
        self.figures.append((name, figure, global_step))


class Board(DummyLogger):
    """A logger with such an experiment."""

    def __init__(self) -> None:
        super().__init__()
        self.writer, self.numbers = Writer(), 0

    @property
    def experiment(self) -> Any:
        return self.writer

    def log_metrics(self, *args: Any, **kwargs: Any) -> None:
        self.numbers += 1


def fitted(module: pl.LightningModule, rounds: RoundLoader, callback: pl.Callback, *loggers: Any) -> None:
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, log_every_n_steps=1, callbacks=[callback], logger=loggers, **quiet
    )
    trainer.fit(module, rounds)


def played(callback: RegretLogger, *loggers: Any, batch: tuple[int, ...] = ()) -> None:
    torch.manual_seed(0)
    bandit = NeuralLinearBandit(BanditHead(torch.nn.Linear(4, 2), OFUL(2, batch_shape=batch)))
    rounds = RoundLoader(torch.randn(35, *batch, 5, 4), torch.rand(35, *batch, 5), batch_size=10)
    fitted(bandit, rounds, callback, *loggers)


def test_the_regret_curve_is_a_figure_at_the_end_and_every_so_many_rounds(tmp_path: Path) -> None:
    board, callback, before = Board(), RegretLogger(figure_every=20), pyplot.get_fignums()
    played(callback, board, CSVLogger(tmp_path), batch=(3,))
    assert [(name, step) for name, _, step in board.writer.figures] == [("regret_curve", 20), ("regret_curve", 35)]
    (axes,) = board.writer.figures[-1][1].axes
    rounds, totals = callback.regret.curve()
    assert axes.lines[0].get_xdata().tolist() == rounds.tolist()
    assert axes.lines[0].get_ydata().tolist() == pytest.approx(totals.mean(1).tolist())
    assert pyplot.get_fignums() == before  # nothing that somebody must close


def test_tensorboard_shows_the_figure(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(tmp_path)
    played(RegretLogger(), logger)
    events = EventAccumulator(logger.log_dir)
    events.Reload()
    assert [event.step for event in events.Images("regret_curve")] == [35]


def test_no_figure_is_made_where_none_is_wanted_or_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board()
    played(RegretLogger(figure=False, figure_every=5), board)
    for name in ["matplotlib", *(name for name in sys.modules if name.startswith("matplotlib."))]:
        monkeypatch.setitem(sys.modules, name, None)
    played(RegretLogger(), board)
    assert board.writer.figures == []
    assert board.numbers >= 8  # the numbers go on


def test_a_figure_that_fails_warns_once_and_the_fit_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError("disk is full")

    board, callback = Board(), RegretLogger(figure_every=10)
    monkeypatch.setattr(board.writer, "add_figure", fail)
    with pytest.warns(
        UserWarning, match=r"^regret_curve: the figure failed, .* continues: OSError\('disk is full'\)"
    ) as seen:
        played(callback, board)
    assert sum("regret_curve" in str(one.message) for one in seen) == 1
    assert callback.regret is not None
    assert int(callback.regret.rounds) == 35


def test_wrong_options_are_named() -> None:
    with pytest.raises(TypeError, match=r"^figure: expected True or False, got str"):
        RegretLogger(figure="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^figure_every: expected"):
        RegretLogger(figure_every=0)
    with pytest.raises(TypeError, match=r"^figure: expected True or False, got int"):
        PrivacySpendLogger(delta=1e-3, figure=1)  # type: ignore[arg-type]


class Regression(pl.LightningModule):
    """Private least squares, with a step for each record."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.learner = DPTOFW(2, horizon=40, epsilon=1.0, delta=1e-3)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([torch.zeros((), requires_grad=True)], lr=1.0)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for x, y in zip(*batch, strict=True):
            self.learner.step((self.learner.queries() @ x - y).unsqueeze(-1) * x)
        optimizer: Any = self.optimizers()
        optimizer.step()


def test_the_privacy_curve_is_a_figure_at_the_end() -> None:
    board, module = Board(), Regression()
    rounds = RoundLoader(torch.rand(40, 2).double(), torch.rand(40).double())
    fitted(module, rounds, PrivacySpendLogger(delta=1e-3, stop_at=0.9), board)
    ((name, figure, step),) = board.writer.figures
    assert (name, step) == ("privacy_curve", int(module.learner.rounds))
    (axes,) = figure.axes
    assert axes.lines[0].get_ydata()[-1] == module.learner.privacy_spent(1e-3)
    assert axes.texts[0].get_text() == "stop_at: 0.9"
