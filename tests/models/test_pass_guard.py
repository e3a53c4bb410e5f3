"""Tests that modules with private learners release each person once, without any callback."""

import logging
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

from tests.versions import weights_only
from torchonline import DPTOFW, FreeGrad
from torchonline.callbacks import PrivacySpendLogger
from torchonline.models import OnlinePredictor, RoundLoader

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended"),
    pytest.mark.filterwarnings("ignore:You requested to overfit but enabled"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint"),
    # Lightning 2.6 itself uses what torch 2.13 has deprecated.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]

DIM, PEOPLE, DELTA = 3, 12, 1e-3
QUIET: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "max_epochs": 1}
QUIET |= {"enable_model_summary": False, "enable_checkpointing": False}
ANOTHER = "expected one pass through the loader"


def people() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(PEOPLE, DIM, generator=generator), torch.rand(PEOPLE, generator=generator)


class Predictor(OnlinePredictor):
    """A private predictor that may crash, and may learn in validation."""

    crash_at: int | None = None
    learns_in_validation = False

    def __init__(self, **options: Any) -> None:
        defaults: dict[str, Any] = {"horizon": 100, "epsilon": 1.0, "delta": DELTA, "mechanism": "tree"}
        super().__init__(DPTOFW(DIM, **(defaults | options)), log_losses=False)

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        if batch_idx == self.crash_at:
            raise InterruptedError("crash")
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if self.learns_in_validation:
            self.learner.step(None)

    def steps(self) -> int:
        return int(self.learner.rounds)


def loader(batch_size: int = 4, **options: Any) -> RoundLoader:
    return RoundLoader(*people(), batch_size=batch_size, **options)


def plain(sampler: Any = None) -> DataLoader:
    return DataLoader(TensorDataset(*people()), batch_size=4, sampler=sampler)


@pytest.mark.parametrize("data", [loader, plain])
@pytest.mark.parametrize(
    "options",
    [
        {"max_epochs": 3},
        {"max_epochs": -1, "max_steps": 9},
        {"max_epochs": 2, "reload_dataloaders_every_n_epochs": 1},
        {"max_epochs": 2, "limit_train_batches": 3},
    ],
)
def test_a_second_epoch_is_refused_before_its_first_batch(data: Any, options: dict[str, Any]) -> None:
    module = Predictor()
    with pytest.raises(RuntimeError, match=f"^Predictor: {ANOTHER}"):
        pl.Trainer(**(QUIET | options)).fit(module, data())
    assert module.steps() == PEOPLE


def test_batches_that_are_overfitted_are_seen_once() -> None:
    module = Predictor()
    with pytest.raises(RuntimeError, match=ANOTHER):
        pl.Trainer(**(QUIET | {"overfit_batches": 1, "max_epochs": 5})).fit(module, plain())
    assert module.steps() == 4


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2}, {"val_check_interval": 1}])
def test_one_pass_is_taken(options: dict[str, Any]) -> None:
    module = Predictor()
    pl.Trainer(**(QUIET | options)).fit(module, plain())
    assert module.steps() == PEOPLE


def test_a_second_fit_is_refused() -> None:
    module = Predictor()
    first = pl.Trainer(**QUIET)
    first.fit(module, loader())
    for trainer in (first, pl.Trainer(**QUIET)):
        trainer.fit_loop.max_epochs = 2
        with pytest.raises(RuntimeError, match=ANOTHER):
            trainer.fit(module, loader())
    assert module.steps() == PEOPLE


def test_a_fit_after_a_crash_is_refused() -> None:
    module = Predictor()
    module.crash_at = 1
    with pytest.raises(InterruptedError):
        pl.Trainer(**QUIET).fit(module, loader())
    module.crash_at = None
    with pytest.raises(RuntimeError, match=ANOTHER):
        pl.Trainer(**QUIET).fit(module, loader())
    assert module.steps() == 4


SAMPLERS = {
    "with replacement": lambda rows: RandomSampler(rows, replacement=True),
    "weighted": lambda rows: WeightedRandomSampler([1.0] * PEOPLE, PEOPLE),
    "longer than its data": lambda rows: RandomSampler(rows, num_samples=2 * PEOPLE),
}


@pytest.mark.parametrize("kind", [*SAMPLERS, "rounds"])
def test_a_loader_that_repeats_people_is_refused(kind: str) -> None:
    module = Predictor()
    data: Any = loader(rounds=PEOPLE + 1)
    if kind in SAMPLERS:
        data = plain(SAMPLERS[kind](range(PEOPLE)))
    with pytest.raises(RuntimeError, match="expected a loader that returns each person once"):
        pl.Trainer(**QUIET).fit(module, data)
    assert module.steps() == 0


def test_a_loader_may_return_fewer_people_than_there_are() -> None:
    module = Predictor()
    pl.Trainer(**QUIET).fit(module, loader(rounds=5))
    assert module.steps() == 5
    module = Predictor()
    pl.Trainer(**QUIET).fit(module, plain(RandomSampler(range(PEOPLE), num_samples=5)))
    assert module.steps() == 5


def saved(folder: Path, module: Predictor, data: Any) -> Path:
    """Return the checkpoint of a fit that crashed after its second batch."""
    module.crash_at = 2
    saver = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=2)
    with pytest.raises(InterruptedError):
        pl.Trainer(**(QUIET | {"enable_checkpointing": True, "callbacks": [saver]})).fit(module, data)
    return folder / "step=2.ckpt"


def test_an_epoch_is_resumed_by_a_loader_that_goes_on(tmp_path: Path) -> None:
    path = saved(tmp_path, Predictor(), loader())
    module = Predictor()
    pl.Trainer(**QUIET).fit(module, loader(), ckpt_path=path, **weights_only())
    assert module.steps() == PEOPLE
    assert int(module.learner.continuations) == 2


def test_an_epoch_that_begins_again_is_refused(tmp_path: Path) -> None:
    path, module = saved(tmp_path, Predictor(), plain()), Predictor()
    with pytest.raises(RuntimeError, match="expected a loader that resumes"):
        pl.Trainer(**QUIET).fit(module, plain(), ckpt_path=path, **weights_only())
    assert module.steps() == 8


@pytest.mark.parametrize("sanity", [0, 2])
def test_validation_that_learns_is_refused(sanity: int) -> None:
    module = Predictor()
    module.learns_in_validation = True
    with pytest.raises(RuntimeError, match="expected steps in training only"):
        pl.Trainer(**(QUIET | {"num_sanity_val_steps": sanity})).fit(module, loader(), plain())
    module = Predictor()
    pl.Trainer(**QUIET).fit(module, loader(), plain())
    assert module.steps() == PEOPLE


def test_participations_are_booked() -> None:
    module = Predictor(horizon=3 * PEOPLE, participations=3, min_separation=PEOPLE, mechanism="blt")
    pl.Trainer(**(QUIET | {"max_epochs": 3})).fit(module, loader())
    assert module.steps() == 3 * PEOPLE
    assert module.learner.privacy_spent(DELTA) <= 1.0


def test_the_logger_is_a_guard_beside_that_of_the_module() -> None:
    module = Predictor()
    with pytest.raises(RuntimeError, match=ANOTHER):
        pl.Trainer(**(QUIET | {"max_epochs": 2, "callbacks": [PrivacySpendLogger(DELTA)]})).fit(module, loader())
    assert module.steps() == PEOPLE


def test_learners_that_are_not_private_see_people_as_often_as_asked() -> None:
    model = OnlinePredictor(FreeGrad(DIM))
    trainer = pl.Trainer(**(QUIET | {"max_epochs": 3}))
    trainer.fit(model, plain())
    trainer.fit_loop.max_epochs = 4
    trainer.fit(model, plain())
    assert int(model.rounds) == 4 * PEOPLE
