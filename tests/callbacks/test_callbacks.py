"""Tests of the callbacks: their logs, their files, and that they change nothing."""

import csv
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import TQDMProgressBar
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from torch import Tensor, nn

from tests.versions import weights_only
from torchonline import OFUL, RidgeRegression, ThompsonSampling
from torchonline.callbacks import ArtifactExporter, RegretLogger
from torchonline.export import Runner
from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader

# Lightning 2.6 itself uses what torch 2.13 has deprecated.
pytestmark = [
    pytest.mark.fast,
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

FEATURES, DIM, ARMS = 4, 3, 5


def bandit(batch: tuple[int, ...] = (), *, context: bool = False, thompson: bool = False) -> NeuralLinearBandit:
    torch.manual_seed(0)
    policy = ThompsonSampling(RidgeRegression(DIM, batch_shape=batch)) if thompson else OFUL(DIM, batch_shape=batch)
    encoder = nn.Sequential(nn.Linear(FEATURES, DIM), nn.Dropout(0.5))
    return NeuralLinearBandit(BanditHead(encoder, policy, actions=torch.randn(ARMS, DIM) if context else None))


def data(n: int, batch: tuple[int, ...] = (), *, context: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    arms = () if context else (ARMS,)
    inputs = torch.randn(n, *batch, *arms, FEATURES, generator=generator)
    means = torch.randn(n, *batch, ARMS, generator=generator, dtype=torch.float64)
    return inputs, means + torch.randn(means.shape, generator=generator), means


def trainer(*callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "max_epochs": 1, "log_every_n_steps": 1}
    return pl.Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        enable_model_summary=False,
        enable_checkpointing=False,
        **(quiet | options),
    )


class Witness(pl.Callback):
    """Callback that sums regret independently, batch by batch."""

    def __init__(self) -> None:
        self.totals: list[float] = []
        self.means: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        _, _, means = batch
        lost = 0.0
        actions = outputs["action"].reshape(len(means), -1)
        for row, action in zip(means.reshape(len(means), -1, ARMS).tolist(), actions.tolist(), strict=True):
            lost += sum(max(table) - table[k] for table, k in zip(row, action, strict=True)) / len(action)
        self.totals.append((self.totals[-1] if self.totals else 0.0) + lost)
        self.means.append(lost / len(means))


def logged(folder: str) -> list[dict[str, str]]:
    with open(os.path.join(folder, "metrics.csv"), newline="") as file:
        return list(csv.DictReader(file))


class TestRegretLogger:
    @pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
    def test_logs_an_independent_sum_by_rounds(self, tmp_path: Path, batch: tuple[int, ...]) -> None:
        witness, regret, logger = Witness(), RegretLogger(), CSVLogger(tmp_path)
        run = trainer(regret, witness, logger=logger)
        run.fit(bandit(batch), RoundLoader(*data(35, batch), batch_size=10))
        rows = logged(logger.log_dir)
        assert [int(float(row["step"])) for row in rows] == [10, 20, 30, 35]
        assert [float(row["regret"]) for row in rows] == pytest.approx(witness.totals)
        assert [float(row["regret_per_round"]) for row in rows] == pytest.approx(witness.means)
        assert regret.regret.compute().shape == batch
        assert regret.regret.compute().mean().item() == pytest.approx(witness.totals[-1])

    def test_tensorboard(self, tmp_path: Path) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        witness, logger = Witness(), TensorBoardLogger(tmp_path)
        trainer(RegretLogger(), witness, logger=logger).fit(bandit(), RoundLoader(*data(30), batch_size=10))
        events = EventAccumulator(logger.log_dir)
        events.Reload()
        scalars = events.Scalars("regret")
        assert [event.step for event in scalars] == [10, 20, 30]
        assert [event.value for event in scalars] == pytest.approx(witness.totals, rel=1e-6)

    def test_progress_bar(self) -> None:
        shown: list[set[str]] = []

        class Bar(TQDMProgressBar):
            def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
                metrics = super().get_metrics(trainer, pl_module)
                shown.append(set(metrics))
                return metrics

        trainer(RegretLogger(), Bar(), enable_progress_bar=True).fit(bandit(), RoundLoader(*data(20), batch_size=10))
        assert shown[-1] == {"regret", "regret_per_round"}

    def test_a_resumed_run_goes_on_with_the_total(self, tmp_path: Path) -> None:
        rounds = data(40)
        whole, first, second = RegretLogger(), RegretLogger(), RegretLogger()
        trainer(whole, max_steps=4, max_epochs=-1).fit(bandit(), RoundLoader(*rounds, batch_size=10))
        run = trainer(first, max_steps=2, max_epochs=-1)
        run.fit(bandit(), RoundLoader(*rounds, batch_size=10))
        run.save_checkpoint(tmp_path / "half.ckpt")
        assert first.regret.rounds == 20
        logger = CSVLogger(tmp_path)
        rest = trainer(second, max_steps=4, max_epochs=-1, logger=logger)
        rest.fit(bandit(), RoundLoader(*rounds, batch_size=10), ckpt_path=tmp_path / "half.ckpt", **weights_only())
        assert torch.equal(second.regret.compute(), whole.regret.compute())
        assert [int(float(row["step"])) for row in logged(logger.log_dir)] == [30, 40]
        assert float(logged(logger.log_dir)[-1]["regret"]) == pytest.approx(whole.regret.compute().item())

    def test_state_before_the_first_batch(self) -> None:
        logger = RegretLogger()
        logger.load_state_dict(RegretLogger().state_dict())
        assert logger.regret is None


class TestArtifactExporter:
    @pytest.mark.slow
    @pytest.mark.parametrize(("context", "batch"), [(False, ()), (True, (2,))])
    def test_writes_what_the_head_has_become(self, tmp_path: Path, context: bool, batch: tuple[int, ...]) -> None:
        module = bandit(batch, context=context)
        loader = RoundLoader(*data(30, batch, context=context), batch_size=10)
        trainer(ArtifactExporter(tmp_path / "deep" / "er")).fit(module, loader)
        folder = tmp_path / "deep" / "er"
        assert sorted(os.listdir(folder)) == ["head.pt", "head.pt2"]
        scripted = torch.jit.load(folder / "head.pt")
        archive = Runner.load(folder / "head.pt2")
        theta_hat = module.head.policy.estimator.theta_hat
        assert torch.equal(scripted.policy.estimator.theta_hat, theta_hat)
        assert torch.equal(archive.state["policy.estimator.theta_hat"], theta_hat)
        inputs = data(1, batch, context=context)[0][0]
        torch.testing.assert_close(scripted(inputs), module.head(inputs))
        scripted.step(inputs, scripted.select(inputs), torch.zeros(batch))
        assert bool((scripted.policy.estimator.rounds == 31).all())
        assert bool((module.head.policy.estimator.rounds == 30).all())

    @pytest.mark.slow
    def test_the_file_learns_where_torchonline_is_not_installed(self, tmp_path: Path) -> None:
        trainer(ArtifactExporter(tmp_path, formats=("torchscript",))).fit(
            bandit(), RoundLoader(*data(20), batch_size=10)
        )
        code = f"""
import sys
sys.modules["torchonline"] = sys.modules["pytorch_lightning"] = None
import torch
head = torch.jit.load({str(tmp_path / "head.pt")!r})
inputs = torch.ones({ARMS}, {FEATURES})
head.step(inputs, head.select(inputs), torch.tensor(1.0))
print(int(head.policy.estimator.rounds))
"""
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "21"

    @pytest.mark.slow
    def test_writes_when_a_multiple_of_rounds_is_reached(self, tmp_path: Path) -> None:
        written: list[int] = []

        class Watch(pl.Callback):
            def on_train_batch_end(self, trainer: Any, pl_module: Any, *arguments: Any) -> None:
                file = tmp_path / "head.pt"
                if file.exists():
                    written.append(int(torch.jit.load(file).policy.estimator.rounds))

        exporter = ArtifactExporter(tmp_path, every_n_rounds=25, formats=("torchscript",))
        trainer(exporter, Watch()).fit(bandit(), RoundLoader(*data(85), batch_size=10))
        # Batches end at 10, 20, 30, ...: the first after 25, 50 and 75 are 30, 50 and 80.
        assert written == [30, 30, 50, 50, 50, 80, 80]
        assert int(torch.jit.load(tmp_path / "head.pt").policy.estimator.rounds) == 85
        assert os.listdir(tmp_path) == ["head.pt"]

    def test_rounds_of_other_processes_count(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A module that learns more rounds than its batch has, as one that gathers them from several processes."""

        class Gathering(NeuralLinearBandit):
            def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
                outputs = super().training_step(batch, batch_idx)
                self.rounds += len(batch[0])
                return outputs

        calls: list[int] = []
        monkeypatch.setattr(ArtifactExporter, "_write", _counting(ArtifactExporter._write, calls))
        module = Gathering(BanditHead(nn.Linear(FEATURES, DIM), OFUL(DIM)), train_encoder_every=None)
        exporter = ArtifactExporter(tmp_path, every_n_rounds=25, formats=("torchscript",))
        trainer(exporter).fit(module, RoundLoader(*data(40), batch_size=10))
        assert int(module.rounds) == 80
        assert len(calls) == 3  # after 40, 60 and 80 rounds; the last is the end of the fit

    def test_writes_once_for_one_state(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[int] = []
        monkeypatch.setattr(ArtifactExporter, "_write", _counting(ArtifactExporter._write, calls))
        exporter = ArtifactExporter(tmp_path, every_n_rounds=10, formats=("torchscript",))
        trainer(exporter).fit(bandit(), RoundLoader(*data(20), batch_size=10))
        assert len(calls) == 2

    @pytest.mark.slow
    def test_a_failed_export_leaves_the_old_file(self, tmp_path: Path) -> None:
        trainer(ArtifactExporter(tmp_path, formats=("torchscript",))).fit(
            bandit(), RoundLoader(*data(20), batch_size=10)
        )
        before = (tmp_path / "head.pt").read_bytes()

        class Unscriptable(nn.Linear):
            def forward(self, *args: Any, **kwargs: Any) -> Tensor:
                return super().forward(*args, **kwargs)

        module = NeuralLinearBandit(BanditHead(Unscriptable(FEATURES, DIM), OFUL(DIM)))
        with pytest.raises(
            ValueError, match="module: expected an encoder that TorchScript can compile, got Unscriptable"
        ):
            trainer(ArtifactExporter(tmp_path, formats=("torchscript",))).fit(module, RoundLoader(*data(20)))
        assert (tmp_path / "head.pt").read_bytes() == before
        assert os.listdir(tmp_path) == ["head.pt"]

    def test_nothing_is_written_when_nothing_was_played(self, tmp_path: Path) -> None:
        run = trainer(ArtifactExporter(tmp_path / "none"), limit_train_batches=0)
        run.fit(bandit(), RoundLoader(*data(20), batch_size=10))
        assert not (tmp_path / "none").exists()

    @pytest.mark.parametrize(
        ("error", "text", "options"),
        [
            (ValueError, "every_n_rounds: expected", {"every_n_rounds": 0}),
            (ValueError, "formats: expected one of", {"formats": ("onnx",)}),
            (ValueError, "formats: expected some of", {"formats": ()}),
            (ValueError, "formats: expected some of .* got 'program'", {"formats": "program"}),
        ],
    )
    def test_constructor_errors(
        self, tmp_path: Path, error: type[Exception], text: str, options: dict[str, Any]
    ) -> None:
        with pytest.raises(error, match=text):
            ArtifactExporter(tmp_path, **options)


def _counting(function: Any, calls: list[int]) -> Any:
    def counted(*arguments: Any) -> None:
        calls.append(1)
        function(*arguments)

    return counted


@pytest.mark.slow
def test_callbacks_only_look(tmp_path: Path) -> None:
    states = []
    for callbacks in ((), (RegretLogger(), ArtifactExporter(tmp_path, every_n_rounds=10))):
        module = bandit(thompson=True)
        torch.manual_seed(3)
        trainer(*callbacks).fit(module, RoundLoader(*data(20), batch_size=5))
        states.append({**module.state_dict(), "draws": torch.get_rng_state()})
        assert all(part.training for part in module.modules())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
