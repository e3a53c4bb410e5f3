"""One type along the whole path: what fit learns from is what evaluate, replay and a service look at, digit for digit."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor

import torchonline
from torchonline import FreeGrad, StandardScaler
from torchonline.callbacks import ArtifactExporter
from torchonline.command_line.evaluation import replay_head
from torchonline.command_line.service import make_settings
from torchonline.models import BanditHead, LogDataModule, NeuralLinearBandit, OnlinePredictor, TableDataModule
from torchonline.off_policy import target_probabilities

TIMES = [1700000001.0, 1700000031.0]  # equal in float32
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "max_epochs": 1,
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("second,hour,item,click,p\n1700000001,0.5,0,0,0.3\n1700000031,0.7,1,1,0.7\n")
    return path


def data(log: Path, **options: Any) -> LogDataModule:
    columns: dict[str, Any] = {"context": ["second"], "action": "item", "reward": "click", "probability": "p"}
    return LogDataModule(log, batch_size=2, **(columns | options))


class Seen(torch.nn.Identity):
    """Encoder that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.inputs.append(inputs.clone())
        return inputs


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_batch_and_the_log_have_the_same_numbers(log: Path, dtype: torch.dtype) -> None:
    module = data(log, dtype=dtype)
    (batch,) = module.train_dataloader()
    found = module.bandit_log()
    assert batch.inputs.dtype == dtype
    for name, values in {"context": batch.inputs, "reward": batch.reward, "probability": batch.probability}.items():
        assert torch.equal(getattr(found, name), values.double()), name


def test_two_times_of_the_same_minute_differ_for_fit_and_evaluate(log: Path) -> None:
    (batch,) = data(log).train_dataloader()
    assert batch.inputs.flatten().tolist() == data(log).bandit_log().context.flatten().tolist() == TIMES
    (inputs, _), *_ = TableDataModule(log, inputs=["second"], targets="click", batch_size=2).train_dataloader()
    assert inputs.flatten().tolist() == TIMES


def test_a_scaler_in_front_of_a_float32_encoder_gets_all_digits(log: Path) -> None:
    """In fit, replay, evaluate and the service."""
    encoder = torch.nn.Sequential(Seen(), torch.nn.Linear(2, 2))
    head = BanditHead(encoder, torchonline.bandit(2, actions=2, scale=False), scaler=StandardScaler(1))
    pl.Trainer(**QUIET).fit(NeuralLinearBandit(head, feedback="batch"), datamodule=data(log))
    assert head.scaler.mean.item() == sum(TIMES) / 2
    seen: Any = encoder[0]
    for look in (
        lambda: target_probabilities(data(log).bandit_log(), uniform_of(head)),
        lambda: replay_head(head, data(log).bandit_log()),
    ):
        seen.inputs.clear()
        look()
        values = torch.cat([one.flatten() for one in seen.inputs])
        assert {one.dtype for one in seen.inputs} == {torch.float32}
        assert len(values.unique()) >= 2
    assert make_settings(head, str(log.parent)).dtype == torch.float64


def uniform_of(head: BanditHead) -> Any:
    """Return a target that looks at the head's features, and has probabilities."""

    class Uniform:
        scaler = head.scaler

        def probabilities(self, context: Tensor, mask: Any = None) -> Tensor:
            head.encode(context)
            return torch.full((len(context), 2), 0.5)

    return Uniform()


def test_an_encoder_of_another_type_gets_its_own(log: Path, tmp_path: Path) -> None:
    """In all steps of a fit, and in the files that a callback writes."""
    head = BanditHead(torch.nn.Linear(1, 2), torchonline.bandit(2, actions=2, scale=False))
    module = NeuralLinearBandit(head, train_encoder_every=1, encoder_steps=1, replay_size=4)
    trainer = pl.Trainer(callbacks=[ArtifactExporter(tmp_path / "files", formats=("torchscript",))], **QUIET)
    trainer.fit(module, datamodule=data(log, context=["hour"]))
    assert int(module.rounds) == 2
    assert (tmp_path / "files").is_dir()
    table = TableDataModule(log, inputs=["hour"], targets=["item", "click"], batch_size=2)
    trainer = pl.Trainer(**QUIET)
    trainer.test(module, datamodule=table, verbose=False)
    assert trainer.predict(module, datamodule=table)
    predictor = OnlinePredictor(FreeGrad(2), encoder=torch.nn.Linear(1, 2))
    pl.Trainer(**QUIET).fit(predictor, datamodule=TableDataModule(log, inputs=["hour"], targets="click"))
    assert int(predictor.rounds) == 2
