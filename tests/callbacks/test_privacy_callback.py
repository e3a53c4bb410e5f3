"""Tests of PrivacySpendLogger and PrivacySpent."""

import copy
import csv
import functools
import io
import logging
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from tests.private_learners import without_tags
from tests.private_tools import KnownNoise
from tests.versions import weights_only
from torchonline import DPPOFW, DPTOFW
from torchonline.baselines import NoisySFW
from torchonline.callbacks import PrivacySpendLogger
from torchonline.metrics import PrivacySpent
from torchonline.models import RoundLoader
from torchonline.privacy.accounting import Event, PureEvent
from torchonline.privacy.composition import private_learners, total_ledger

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
pytestmark = [
    pytest.mark.fast,
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended"),
    pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization and every_n_train_steps"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]

FEATURES, DIM, PEOPLE, DELTA, PROMISE = 4, 3, 24, 1e-3, 1.0


def learner(**options: Any) -> DPTOFW:
    return DPTOFW(DIM, **({"horizon": PEOPLE, "epsilon": PROMISE, "delta": DELTA, "mechanism": "tree"} | options))


class Regression(pl.LightningModule):
    """Private least squares on a frozen encoder: one step for each record of a batch."""

    def __init__(self, *, crash_at: int | None = None, **learners: DPTOFW) -> None:
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(FEATURES, DIM), nn.Tanh()).requires_grad_(False)
        self.heads = nn.ModuleDict(learners or {"only": learner()})
        self.crash_at = crash_at
        self.metric = PrivacySpent(DELTA)
        self.batches: list[int] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimizer of a constant, by which Lightning counts batches."""
        return torch.optim.SGD([torch.zeros((), requires_grad=True)], lr=1.0)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        if batch_idx == self.crash_at:
            raise InterruptedError("crash")
        self.batches.append(batch_idx)
        for x, y in zip(self.encoder(batch[0]).double(), batch[1], strict=True):
            for head in self.heads.values():
                head.step((head.queries() @ x - y).unsqueeze(-1) * x)
        self.metric.update(*self.heads.values())
        self.optimizers().step()


class Silent(KnownNoise):
    """No noise, which is nobody's seed."""

    is_seeded = False


class Looking(Regression):
    """Reads records in validation."""

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.encoder(batch[0]).double() @ self.heads["only"].predict()


class Learning(Regression):
    """Makes steps in validation."""

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.heads["only"].step(None)


def people(seed: int = 1, n: int = PEOPLE) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, FEATURES, generator=generator), torch.randn(n, generator=generator).double()


def loader(size: int = 1, seed: int = 1, n: int = PEOPLE) -> RoundLoader:
    return RoundLoader(*people(seed, n), batch_size=size)


def plain_loader() -> DataLoader:
    return DataLoader(TensorDataset(*people()))


def trainer(*callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "max_epochs": 1, "log_every_n_steps": 1}
    quiet |= {"enable_checkpointing": any(isinstance(callback, ModelCheckpoint) for callback in callbacks)}
    return pl.Trainer(accelerator="cpu", callbacks=list(callbacks), enable_model_summary=False, **(quiet | options))


def fit(module: Regression, *callbacks: pl.Callback, data: Any = None, ckpt: Any = None, **options: Any) -> pl.Trainer:
    run = trainer(*callbacks, **options)
    options_of_load = {} if ckpt is None else weights_only()
    run.fit(module, loader() if data is None else data, ckpt_path=ckpt, **options_of_load)
    return run


def rows(logger: CSVLogger) -> list[dict[str, str]]:
    with open(Path(logger.log_dir) / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of Balle and Wang's formula for delta, by bisection."""

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2.0))

    low, high = 0.0, 100.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        spent = phi(0.5 * mu - middle / mu) - math.exp(middle) * phi(-0.5 * mu - middle / mu)
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


@functools.cache
def gaussian_mu(promise: float) -> float:
    """Return the largest mu within an epsilon, by bisection."""
    low, high = 0.0, 10.0
    for _ in range(40):
        mu = 0.5 * (low + high)
        low, high = (mu, high) if gaussian_epsilon(mu, DELTA) <= promise else (low, mu)
    return low


def tree_epsilon(steps: int, runs: float = 1, n: int = PEOPLE) -> float:
    """Return the epsilon of a tree, where a record is in steps.bit_length() nodes."""
    return gaussian_epsilon(gaussian_mu(PROMISE) * math.sqrt(runs * steps.bit_length() / n.bit_length()), DELTA)


class TestLogs:
    @pytest.mark.parametrize("size", [1, 5])
    def test_an_independent_epsilon_by_steps(self, tmp_path: Path, size: int) -> None:
        logger = CSVLogger(tmp_path)
        fit(Regression(), PrivacySpendLogger(DELTA), data=loader(size), logger=logger)
        steps = [*range(size, PEOPLE, size), PEOPLE]
        assert [int(float(row["step"])) for row in rows(logger)] == steps
        spent = [float(row["privacy_spent"]) for row in rows(logger)]
        assert spent == pytest.approx([tree_epsilon(t) for t in steps], rel=1e-6)
        assert spent[-1] == pytest.approx(PROMISE, rel=1e-6)

    def test_nothing_depends_on_the_records(self, tmp_path: Path) -> None:
        written = []
        strange = [tensor.clone() for tensor in people(2)]
        strange[0][3], strange[1][5], strange[1][7] = torch.nan, torch.inf, 1e30
        for i, data in enumerate([loader(2), loader(2, seed=7), RoundLoader(*strange, batch_size=2)]):
            logger = CSVLogger(tmp_path, version=i)
            fit(Regression(), PrivacySpendLogger(DELTA), data=data, logger=logger)
            written.append((Path(logger.log_dir) / "metrics.csv").read_bytes())
        assert written[0] == written[1] == written[2]
        assert set(rows(logger)[0]) == {"step", "privacy_spent"}

    def test_the_progress_bar_shows_it(self) -> None:
        run = fit(Regression(), PrivacySpendLogger(DELTA))
        assert set(run.progress_bar_metrics) == {"privacy_spent"}

    def test_it_only_looks(self) -> None:
        states = []
        for callbacks in ((), (PrivacySpendLogger(DELTA, stop_at=2.0),)):
            module = Regression(only=learner(noise_source=Silent()))
            torch.manual_seed(5)
            fit(module, *callbacks)
            states.append(without_tags({**module.state_dict(), "draws": torch.get_rng_state()}))
        assert states[0].keys() == states[1].keys()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])

    def test_a_seed_is_logged_as_infinity(self, tmp_path: Path) -> None:
        logger = CSVLogger(tmp_path)
        fit(Regression(only=learner(seed=3)), PrivacySpendLogger(DELTA), data=loader(12), logger=logger)
        assert [float(row["privacy_spent"]) for row in rows(logger)] == [math.inf, math.inf]

    def test_no_privacy_is_logged_as_infinity(self, tmp_path: Path) -> None:
        logger = CSVLogger(tmp_path)
        fit(Regression(only=learner(epsilon=math.inf)), PrivacySpendLogger(DELTA), data=loader(12), logger=logger)
        assert [float(row["privacy_spent"]) for row in rows(logger)] == [math.inf, math.inf]


class TestBudget:
    # A record is in 1, 2, 3, 4, 5 nodes of the tree from steps 1, 2, 4, 8, 16 on.
    @pytest.mark.parametrize(("nodes", "last"), [(1, 1), (2, 3), (3, 7), (4, 15), (5, PEOPLE)])
    @pytest.mark.parametrize("seed", [1, 2])
    def test_the_exact_step_for_all_data(self, nodes: int, last: int, seed: int) -> None:
        module, logger = Regression(), PrivacySpendLogger(DELTA, stop_at=tree_epsilon(2 ** (nodes - 1)) * (1 + 1e-6))
        fit(module, logger, data=loader(seed=seed))
        assert int(module.heads["only"].rounds) == logger.last_step == last
        assert module.heads["only"].privacy_spent(DELTA) <= logger.stop_at
        if last < PEOPLE:
            module.heads["only"].step(None)
            assert module.heads["only"].privacy_spent(DELTA) > logger.stop_at

    @pytest.mark.parametrize("mechanism", ["blt", "honaker", "sqrt"])
    def test_of_other_mechanisms(self, mechanism: str) -> None:
        other = learner(mechanism=mechanism)
        spent = []
        while not spent or spent[-1] <= 0.95:
            other.step(None)
            spent.append(other.privacy_spent(DELTA))
        module = Regression(only=learner(mechanism=mechanism))
        fit(module, PrivacySpendLogger(DELTA, stop_at=0.95))
        assert int(module.heads["only"].rounds) == len(spent) - 1

    @pytest.mark.parametrize(("size", "stopped"), [(2, 14), (4, 12), (5, 15), (7, 14)])
    def test_batches_of_several_steps_stop_before(self, size: int, stopped: int) -> None:
        module, logger = Regression(), PrivacySpendLogger(DELTA, stop_at=tree_epsilon(15) + 1e-6)
        fit(module, logger, data=loader(size))
        assert (int(module.heads["only"].rounds), logger.last_step) == (stopped, 15)

    def test_a_batch_that_goes_past_it_raises(self) -> None:
        with pytest.raises(RuntimeError, match=r"at most 3 steps, for .*, got 6 after a batch larger than all earlier"):
            fit(Regression(), PrivacySpendLogger(DELTA, stop_at=tree_epsilon(3) + 1e-6), data=loader(6))

    @pytest.mark.parametrize("keep", [{"min_steps": 10}, {"min_epochs": 1}])
    def test_a_trainer_that_may_not_stop_raises(self, keep: dict[str, int]) -> None:
        module = Regression()
        with pytest.raises(RuntimeError, match=r"stop at 7 steps.* min_steps and min_epochs"):
            fit(module, PrivacySpendLogger(DELTA, stop_at=tree_epsilon(7) + 1e-6), **keep)
        assert int(module.heads["only"].rounds) == 7

    def test_no_room_for_one_step(self) -> None:
        with pytest.raises(
            ValueError, match=r"stop_at: expected at least 0\.38.*, the epsilon after one more step, got 0.1"
        ):
            fit(Regression(), PrivacySpendLogger(DELTA, stop_at=0.1))

    def test_a_horizon_that_is_over_is_no_budget_left(self) -> None:
        module = Regression(only=learner(horizon=10))
        fit(module, PrivacySpendLogger(DELTA, stop_at=5.0))
        assert int(module.heads["only"].rounds) == 10


class TestOnePass:
    @pytest.mark.parametrize("limits", [{"max_epochs": 2}, {"max_epochs": -1, "max_steps": 30}])
    @pytest.mark.parametrize("data", [loader, plain_loader])
    def test_a_second_epoch_raises_before_its_first_batch(self, limits: dict[str, int], data: Any) -> None:
        module = Regression(only=learner(horizon=100))
        with pytest.raises(RuntimeError, match="expected one pass through the loader"):
            fit(module, PrivacySpendLogger(DELTA), data=data(), **limits)
        assert module.batches == list(range(PEOPLE))
        assert int(module.heads["only"].rounds) == PEOPLE

    @pytest.mark.filterwarnings("ignore:train_dataloader yielded None")
    def test_an_epoch_that_begins_with_nothing_is_one(self) -> None:
        module = Regression(only=learner(horizon=100))
        with pytest.raises(RuntimeError, match="expected one pass through the loader"):
            fit(module, PrivacySpendLogger(DELTA), data=DataLoader([None, *loader()], batch_size=None), max_epochs=2)
        assert module.batches == list(range(1, PEOPLE + 1))

    def test_another_fit_of_the_same_learner_raises(self, tmp_path: Path) -> None:
        module = Regression(only=learner(horizon=100))
        run = fit(module, PrivacySpendLogger(DELTA), limit_train_batches=5)
        run.save_checkpoint(tmp_path / "end.ckpt")
        for again in (module, Regression(only=learner(horizon=100))):
            again.load_state_dict(torch.load(tmp_path / "end.ckpt", weights_only=True)["state_dict"])
            with pytest.raises(RuntimeError, match="expected one pass"):
                fit(again, PrivacySpendLogger(DELTA))
            assert int(again.heads["only"].rounds) == 5
        run.fit_loop.max_epochs = 2
        with pytest.raises(RuntimeError, match="expected one pass"):
            run.fit(module, loader())

    def test_rewound_learners_have_released_all_the_same(self) -> None:
        module = Regression(only=learner(horizon=100))
        start = copy.deepcopy(module.state_dict())
        fit(module, PrivacySpendLogger(DELTA), limit_train_batches=5)
        module.load_state_dict(start)
        assert (int(module.heads["only"].rounds), int(module.heads["only"].furthest)) == (0, 5)
        with pytest.raises(RuntimeError, match="expected one pass"):
            fit(module, PrivacySpendLogger(DELTA))

    def test_a_fresh_learner_begins(self) -> None:
        callback = PrivacySpendLogger(DELTA, stop_at=tree_epsilon(7) + 1e-6)
        for _ in range(2):
            module = Regression()
            fit(module, callback)
            assert int(module.heads["only"].rounds) == 7

    @pytest.mark.parametrize("options", [{}, {"num_sanity_val_steps": 0, "val_check_interval": 0.25}])
    def test_validation_that_looks(self, options: dict[str, Any]) -> None:
        module = Looking()
        trainer(PrivacySpendLogger(DELTA), **options).fit(module, loader(), DataLoader(TensorDataset(*people(3))))
        assert int(module.heads["only"].rounds) == PEOPLE

    @pytest.mark.parametrize(("sanity", "rounds"), [(2, 2), (0, PEOPLE + 3)])
    def test_validation_that_learns_raises(self, sanity: int, rounds: int) -> None:
        module = Learning(only=learner(horizon=100))
        options = {"num_sanity_val_steps": sanity, "limit_val_batches": 3}
        with pytest.raises(RuntimeError, match="expected steps in training only"):
            trainer(PrivacySpendLogger(DELTA), **options).fit(module, loader(), DataLoader(TensorDataset(*people(3))))
        assert int(module.heads["only"].rounds) == rounds

    @pytest.mark.parametrize("loop", ["test", "predict"])
    def test_other_loops_that_learn_raise(self, loop: str) -> None:
        module = Regression(only=learner(horizon=100))

        def step(batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            module.heads["only"].step(None)
            return module.heads["only"].predict()

        setattr(module, f"{loop}_step", step)
        run = trainer(PrivacySpendLogger(DELTA))
        with pytest.raises(RuntimeError, match="expected steps in training only"):
            getattr(run, loop)(module, DataLoader(TensorDataset(*people(3))))

    def test_several_processes_raise(self) -> None:
        callback = PrivacySpendLogger(DELTA)
        with pytest.raises(RuntimeError, match="expected one process, got 2"):
            callback.setup(SimpleNamespace(world_size=2), Regression(), "fit")
        callback.setup(SimpleNamespace(world_size=1), Regression(), "fit")


def crashed(folder: Path, data: Any = None, *, every: int = 5, crash_at: int | None = 8) -> Path:
    """Return a checkpoint of a fit that crashed later, at batch 8."""
    module = Regression(crash_at=crash_at, only=learner(horizon=100))
    keep = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=every, save_top_k=-1)
    if crash_at is None:
        fit(module, PrivacySpendLogger(DELTA), keep, data=data)
    else:
        with pytest.raises(InterruptedError):
            fit(module, PrivacySpendLogger(DELTA), keep, data=data)
    return folder / f"step={every}.ckpt"


class TestPasses:
    """As many passes as a learner's participations are booked for, in one order, and long enough."""

    THREE = {"horizon": 4 * PEOPLE, "participations": 3, "min_separation": PEOPLE}

    @pytest.mark.parametrize("data", [loader, plain_loader])
    def test_participations_allow_as_many_passes(self, tmp_path: Path, data: Any) -> None:
        module, logger = Regression(only=learner(**self.THREE)), CSVLogger(tmp_path)
        fit(module, PrivacySpendLogger(DELTA), data=data(), logger=logger, max_epochs=3)
        assert int(module.heads["only"].rounds) == 3 * PEOPLE
        # By the matrix: three columns that are PEOPLE apart.
        noise: Any = module.heads["only"].noise
        row = noise.materialize(3 * PEOPLE)[1][:, ::PEOPLE].sum(1)
        least = gaussian_epsilon(float(row.norm()) * noise.sensitivity / noise.noise_scale, DELTA)
        assert least <= float(rows(logger)[-1]["privacy_spent"]) <= PROMISE

    def test_one_pass_more_raises(self) -> None:
        module = Regression(only=learner(**self.THREE))
        with pytest.raises(RuntimeError, match="or one fit of as many passes as participations"):
            fit(module, PrivacySpendLogger(DELTA), max_epochs=4)
        assert int(module.heads["only"].rounds) == 3 * PEOPLE

    def test_another_order_raises_unless_it_is_booked(self) -> None:
        shuffled = DataLoader(TensorDataset(*people()), shuffle=True)
        module = Regression(only=learner(**self.THREE))
        with pytest.raises(RuntimeError, match="expected a loader with a fixed order, for min_separation=24"):
            fit(module, PrivacySpendLogger(DELTA), data=shuffled, max_epochs=2)
        assert int(module.heads["only"].rounds) == 0
        batches = BatchSampler(RandomSampler(range(PEOPLE)), 4, False)
        with pytest.raises(RuntimeError, match="expected a loader with a fixed order"):
            fit(module, PrivacySpendLogger(DELTA), data=DataLoader(TensorDataset(*people()), batch_sampler=batches))
        module = Regression(only=learner(**(self.THREE | {"min_separation": 1})))
        fit(module, PrivacySpendLogger(DELTA), data=shuffled, max_epochs=3)
        assert int(module.heads["only"].rounds) == 3 * PEOPLE

    def test_a_pass_is_resumed_in_the_middle(self, tmp_path: Path) -> None:
        """Of one that was resumed too the callback knows where it began."""
        saver = ModelCheckpoint(tmp_path, every_n_train_steps=10, save_top_k=-1, filename="{step}")
        module = Regression(crash_at=12, only=learner(**self.THREE))
        with pytest.raises(InterruptedError):
            fit(module, PrivacySpendLogger(DELTA), saver, max_epochs=3)
        again = Regression(only=learner(**self.THREE))
        fit(again, PrivacySpendLogger(DELTA), ckpt=tmp_path / "step=10.ckpt", max_epochs=3)
        assert int(again.heads["only"].rounds) == 3 * PEOPLE
        assert int(again.heads["only"].continuations) == 2

    def test_short_passes_raise(self) -> None:
        module = Regression(only=learner(**(self.THREE | {"min_separation": PEOPLE + 1})))
        with pytest.raises(RuntimeError, match="expected passes of at least 25 steps, for min_separation, got 24"):
            fit(module, PrivacySpendLogger(DELTA), max_epochs=2)


class TestResume:
    def test_the_rest_of_an_epoch_is_that_of_two_runs(self, tmp_path: Path) -> None:
        ckpt, logger = crashed(tmp_path), CSVLogger(tmp_path)
        module = Regression(only=learner(horizon=100))
        fit(module, PrivacySpendLogger(DELTA), logger=logger, ckpt=ckpt)
        head = module.heads["only"]
        assert module.batches == list(range(5, PEOPLE))
        assert (int(head.rounds), int(head.continuations)) == (PEOPLE, 2)
        assert [int(float(row["step"])) for row in rows(logger)] == list(range(6, PEOPLE + 1))
        expected = [tree_epsilon(t, runs=2, n=100) for t in range(6, PEOPLE + 1)]
        assert [float(row["privacy_spent"]) for row in rows(logger)] == pytest.approx(expected, rel=1e-6)
        assert module.metric.compute().item() == pytest.approx(expected[-1], rel=1e-6)
        assert int(module.metric.runs) == 2

    def test_in_one_process_what_was_seen_since_counts(self, tmp_path: Path) -> None:
        module = Regression(crash_at=8, only=learner(horizon=100))
        keep = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3)
        with pytest.raises(InterruptedError):
            fit(module, PrivacySpendLogger(DELTA), keep)
        module.crash_at = None
        logger = CSVLogger(tmp_path)
        fit(module, PrivacySpendLogger(DELTA), logger=logger, ckpt=tmp_path / "step=6.ckpt", limit_train_batches=7)
        # 8 steps had been published, more than the current 7.
        assert [int(float(row["step"])) for row in rows(logger)] == [7]
        assert float(rows(logger)[0]["privacy_spent"]) == pytest.approx(tree_epsilon(8, runs=2, n=100), rel=1e-6)
        assert module.metric.compute().item() == pytest.approx(tree_epsilon(8, runs=2, n=100), rel=1e-6)

    def test_a_caller_may_know_better(self, tmp_path: Path) -> None:
        ckpt, logger = crashed(tmp_path), CSVLogger(tmp_path)
        module = Regression(only=learner(horizon=100))
        fit(module, PrivacySpendLogger(DELTA, continuations=1), logger=logger, ckpt=ckpt)
        assert float(rows(logger)[-1]["privacy_spent"]) == pytest.approx(tree_epsilon(PEOPLE, n=100), rel=1e-6)

    def test_the_budget_of_two_runs(self, tmp_path: Path) -> None:
        ckpt = crashed(tmp_path)
        budget = tree_epsilon(15, runs=2, n=100) + 1e-6
        module, callback = Regression(only=learner(horizon=100)), PrivacySpendLogger(DELTA, stop_at=budget)
        fit(module, callback, ckpt=ckpt)
        assert int(module.heads["only"].rounds) == callback.last_step == 15
        with pytest.raises(ValueError, match="stop_at: expected at least"):
            fit(Regression(only=learner(horizon=100)), PrivacySpendLogger(DELTA, stop_at=0.5), ckpt=ckpt)

    def test_a_loader_that_begins_again_raises(self, tmp_path: Path) -> None:
        without, with_ = crashed(tmp_path / "0", plain_loader()), crashed(tmp_path / "1")
        for ckpt, data in ((without, plain_loader()), (without, loader())):
            module = Regression(only=learner(horizon=100))
            with pytest.raises(RuntimeError, match="expected a loader that resumes"):
                fit(module, PrivacySpendLogger(DELTA), data=data, ckpt=ckpt)
            assert int(module.heads["only"].rounds) == 5
        # Lightning itself detects this.
        with pytest.raises(RuntimeError, match="0 stateful loaders, but found 1 states"):
            fit(Regression(only=learner(horizon=100)), PrivacySpendLogger(DELTA), data=plain_loader(), ckpt=with_)

    @pytest.mark.parametrize("data", [loader, plain_loader])
    def test_a_finished_epoch_has_no_second(self, tmp_path: Path, data: Any) -> None:
        last = crashed(tmp_path, data(), every=PEOPLE, crash_at=None)  # saved in the last batch of the epoch
        for limits in ({}, {"max_epochs": 2}, {"max_epochs": -1, "max_steps": 2 * PEOPLE}):
            module = Regression(only=learner(horizon=100))
            with pytest.raises(
                RuntimeError, match="expected one pass" if limits else "whose fit has ended: nothing was learnt"
            ):
                fit(module, PrivacySpendLogger(DELTA), data=data(), ckpt=last, **limits)
            assert module.batches == []
            assert int(module.heads["only"].rounds) == PEOPLE

    def test_a_fit_that_has_ended_is_not_begun_again(self, tmp_path: Path) -> None:
        module = Regression(only=learner(horizon=100))
        fit(module, PrivacySpendLogger(DELTA)).save_checkpoint(tmp_path / "end.ckpt")
        for limits in ({"max_epochs": 2}, {"max_epochs": -1, "max_steps": 2 * PEOPLE}):
            module = Regression(only=learner(horizon=100))
            with pytest.raises(RuntimeError, match="expected one pass"):
                fit(module, PrivacySpendLogger(DELTA), ckpt=tmp_path / "end.ckpt", **limits)
            assert module.batches == []

    def test_a_fit_that_its_budget_ended_is_not_begun_again(self, tmp_path: Path) -> None:
        first, second = (Regression(only=learner(horizon=100)) for _ in range(2))
        fit(first, PrivacySpendLogger(DELTA, stop_at=0.7)).save_checkpoint(tmp_path / "budget.ckpt")
        assert 0 < len(first.batches) < PEOPLE
        with pytest.raises(RuntimeError, match="whose fit has ended: nothing was learnt"):
            fit(second, PrivacySpendLogger(DELTA), ckpt=tmp_path / "budget.ckpt")

    def test_an_epoch_that_max_steps_cut_short_goes_on(self, tmp_path: Path) -> None:
        first, second = (Regression(only=learner(horizon=100)) for _ in range(2))
        run = fit(first, PrivacySpendLogger(DELTA), max_epochs=-1, max_steps=10)
        run.save_checkpoint(tmp_path / "cut.ckpt")
        fit(second, PrivacySpendLogger(DELTA), max_epochs=-1, max_steps=PEOPLE, ckpt=tmp_path / "cut.ckpt")
        assert second.batches == list(range(10, PEOPLE))
        assert int(second.heads["only"].continuations) == 2
        # With max_epochs Lightning takes the epoch as finished, and the loader begins again.
        with pytest.raises(RuntimeError, match="expected one pass"):
            fit(
                Regression(only=learner(horizon=100)),
                PrivacySpendLogger(DELTA),
                max_epochs=2,
                ckpt=tmp_path / "cut.ckpt",
            )


class TestSeveralLearners:
    def test_the_total_is_that_of_all(self, tmp_path: Path) -> None:
        logger = CSVLogger(tmp_path)
        module = Regression(a=learner(), b=learner(), c=learner(epsilon=0.3))
        fit(module, PrivacySpendLogger(DELTA), PrivacySpendLogger(DELTA, learner="heads.c"), logger=logger)
        last = rows(logger)[-1]
        assert float(last["privacy_spent"]) > tree_epsilon(PEOPLE, runs=2) > 1.4
        squared = sum(gaussian_mu(promise) ** 2 for promise in (1.0, 1.0, 0.3))
        assert float(last["privacy_spent"]) == pytest.approx(gaussian_epsilon(math.sqrt(squared), DELTA), rel=1e-6)
        assert float(last["privacy_spent/heads.c"]) == pytest.approx(0.3, rel=1e-6)
        assert module.metric.compute().item() == pytest.approx(float(last["privacy_spent"]), rel=1e-9)

    def test_the_budget_is_for_all(self) -> None:
        module, callback = Regression(a=learner(), b=learner()), PrivacySpendLogger(DELTA, stop_at=1.0)
        fit(module, callback)
        # 2 nodes in each of two trees are within the budget of 5 nodes; 3 in each are not.
        assert int(module.heads["a"].rounds) == callback.last_step == 3

    def test_of_different_adjacency_there_is_none(self) -> None:
        mixed = {"a": learner(), "b": learner(adjacency="zero_out")}
        with pytest.raises(ValueError, match=r"one adjacency, .*, got 'replace_one' and 'zero_out'"):
            fit(Regression(**mixed), PrivacySpendLogger(DELTA))

    def test_one_of_others_speaks_for_them(self) -> None:
        outer = learner()
        outer.inner = learner()
        module = Regression(outer=outer, beside=learner())
        assert set(private_learners(module)) == {"heads.outer", "heads.beside"}
        assert private_learners(outer) == {"": outer}
        assert private_learners(nn.Linear(2, 2)) == {}

    @pytest.mark.parametrize("name", ["heads.b", "encoder", ""])
    def test_a_name_of_none(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"expected the name of a private learner, such as \['heads.only'\]"):
            fit(Regression(), PrivacySpendLogger(DELTA, learner=name))

    def test_a_module_without_one(self) -> None:
        module = Regression()
        module.heads = nn.ModuleDict()
        with pytest.raises(ValueError, match="expected a module with a PrivateLearner, got Regression"):
            fit(module, PrivacySpendLogger(DELTA))

    def test_other_kinds_of_events_add_up(self) -> None:
        parts = [learner(), DPPOFW(DIM, horizon=PEOPLE, epsilon=0.5, delta=DELTA, mechanism="gumbel")]
        total = total_ledger(parts, more_steps=PEOPLE)
        rho = sum(event.costs()["rho"] for part in parts for event in part.privacy_ledger(steps=PEOPLE).events)
        assert sum(event.costs()["rho"] for event in total.events) == pytest.approx(rho, rel=1e-12)
        assert total.epsilon(DELTA) > max(part.privacy_ledger(steps=PEOPLE).epsilon(DELTA) for part in parts)
        seeded = [learner(seed=1), learner(seed=2)]
        assert total_ledger(seeded).notes == ("seeded: no protection against anybody who knows the seed",)
        assert total_ledger(seeded).events == ()
        with pytest.raises(ValueError, match=r"learners: expected learners of one adjacency.* got none"):
            total_ledger([])


def test_a_learner_without_a_horizon_stops_at_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("torchonline.callbacks.privacy.rank_zero_info", said.append)
    endless = learner(horizon=None, mechanism="blt")
    budget = endless.ledger_after(10).epsilon(DELTA)
    fit(Regression(only=endless), PrivacySpendLogger(DELTA, stop_at=budget))
    assert int(endless.rounds) == 10
    assert said == [f"PrivacySpendLogger: the privacy budget, stop_at={budget:g}, ended the fit at step 10"]


@pytest.mark.parametrize(
    ("error", "text", "arguments"),
    [
        (ValueError, "delta: expected a number in", {"delta": 0.0}),
        (ValueError, "delta: expected a number in", {"delta": 1.0}),
        (TypeError, "delta: expected a number", {"delta": None}),
        (ValueError, "stop_at: expected a number above 0", {"stop_at": 0.0}),
        (TypeError, "learner: expected a name or None, got DPTOFW", {"learner": learner()}),
        (ValueError, "continuations: expected an integer above 0", {"continuations": 0}),
    ],
)
def test_constructor_errors(error: type[Exception], text: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(error, match=text):
        PrivacySpendLogger(**({"delta": DELTA} | arguments))


class Pure(DPTOFW):
    """Learner whose ledger pretends that its steps add Laplace noise."""

    def _event(self, steps: int) -> Event:
        return PureEvent(0.01 * steps)


def stepped(made: DPTOFW, steps: int = 10) -> DPTOFW:
    for _ in range(steps):
        made.step(None)
    return made


def same(one: PrivacySpent, other: PrivacySpent) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def fed(*learners: DPTOFW, **options: Any) -> PrivacySpent:
    metric = PrivacySpent(DELTA, **options)
    metric.update(*learners)
    return metric


KINDS = {
    "tree": lambda: learner(),
    "blt": lambda: learner(mechanism="blt"),
    "paper": lambda: learner(mechanism="paper"),
    "gumbel": lambda: DPPOFW(DIM, horizon=PEOPLE, epsilon=1.0, delta=DELTA, mechanism="gumbel"),
    "pure": lambda: Pure(DIM, horizon=PEOPLE, epsilon=1.0, delta=DELTA),
    "none": lambda: learner(epsilon=math.inf),
    "zero_out": lambda: learner(adjacency="zero_out"),
    "batches": lambda: NoisySFW(DIM, horizon=14, epsilon=1.0, delta=DELTA),
}


class TestMetric:
    @pytest.mark.parametrize("kind", KINDS)
    def test_says_what_the_learner_says_through_a_file(self, kind: str) -> None:
        made = stepped(KINDS[kind]())
        metric = fed(made)
        assert metric.compute().dtype == torch.float64
        assert metric.compute().item() == made.privacy_spent(DELTA)
        resumed, metric_resumed = KINDS[kind](), PrivacySpent(DELTA)
        for here, there in ((made, resumed), (metric, metric_resumed)):
            file = io.BytesIO()
            torch.save(here.state_dict(), file)
            file.seek(0)
            there.load_state_dict(torch.load(file))
        # Both have been loaded, and neither has made a further step.
        assert metric_resumed.compute().item() == resumed.privacy_spent(DELTA)
        assert resumed.privacy_spent(DELTA) == made.privacy_spent(DELTA, continuations=2)
        assert kind == "none" or metric_resumed.compute() > metric.compute()
        metric_resumed.update(stepped(resumed, 3))
        assert metric_resumed.compute().item() == resumed.privacy_spent(DELTA)
        assert int(metric_resumed.rounds) == 13

    def test_nothing_released_costs_nothing_later(self) -> None:
        """The metric of a learner of batches agrees with it from the first step on."""
        made, metric = KINDS["batches"](), PrivacySpent(DELTA)
        for _ in range(14):
            metric.update(stepped(made, 1))
            assert metric.compute().item() == made.privacy_spent(DELTA)
        assert metric.compute() > 0.99

    def test_it_never_falls(self) -> None:
        made = stepped(learner(), 4)
        early = copy.deepcopy(fed(made).state_dict())
        metric = fed(stepped(made, 8))
        late = metric.compute().item()
        metric.update(stepped(learner(), 1))
        metric.reset()
        assert metric.compute().item() == late
        metric.load_state_dict(early)
        assert metric.compute().item() == made.privacy_spent(DELTA, continuations=2) > late
        metric.load_state_dict(PrivacySpent(DELTA).state_dict())  # the learner counts such a load, too
        assert metric.compute().item() == made.privacy_spent(DELTA, continuations=3)

    def test_nothing_is_counted_before_the_first_step(self) -> None:
        fresh = fed(learner())
        assert fresh.compute() == 0.0
        other = fed(learner())
        other.load_state_dict(fresh.state_dict())
        assert same(other, fresh)

    def test_a_caller_may_know_better(self) -> None:
        made = stepped(learner())
        metric = fed(made, continuations=1)
        metric.load_state_dict(copy.deepcopy(metric.state_dict()))
        assert metric.compute().item() == made.privacy_spent(DELTA, continuations=1)
        assert fed(made, continuations=3).compute().item() == made.privacy_spent(DELTA, continuations=3)

    def test_several_learners(self) -> None:
        parts = [stepped(KINDS[kind]()) for kind in ("tree", "blt", "gumbel")]
        assert fed(*parts).compute().item() == pytest.approx(total_ledger(parts).epsilon(DELTA), rel=1e-12)
        parts[1].load_state_dict(copy.deepcopy(parts[1].state_dict()))
        assert fed(*parts).compute().item() == pytest.approx(
            total_ledger(parts, continuations=2).epsilon(DELTA), rel=1e-12
        )
        assert fed(*parts).compute() > total_ledger(parts).epsilon(DELTA)  # the largest count is taken for all

    def test_forward_and_casts(self) -> None:
        made, metric = stepped(learner()), PrivacySpent(DELTA)
        assert metric(made).item() == metric.compute().item() == made.privacy_spent(DELTA)
        metric.half().set_dtype(torch.float32)
        assert metric.cost.dtype == torch.float64
        assert metric.compute().item() == made.privacy_spent(DELTA)
        assert not metric.compute().requires_grad

    def test_bad_updates_change_nothing(self) -> None:
        metric = fed(stepped(learner()))
        before = copy.deepcopy(metric)
        with pytest.raises(TypeError, match="learners: expected private learners, got Linear"):
            metric.update(nn.Linear(2, 2))
        with pytest.raises(ValueError, match="learners: expected learners of one adjacency"):
            metric.update()
        with pytest.raises(ValueError, match="learners: expected learners of one adjacency"):
            metric.update(learner(), learner(adjacency="zero_out"))
        with pytest.raises(ValueError, match="expected adjacency 'replace_one', as before, got 'zero_out'"):
            metric.update(learner(adjacency="zero_out"))
        assert same(metric, before)

    @pytest.mark.parametrize("strict", [True, False])
    @pytest.mark.parametrize(
        ("text", "change"),
        [
            (r"cost: expected shape \(3\), got \(2\)", {"cost": torch.zeros(2, dtype=torch.float64)}),
            ("cost: expected torch.float64, got torch.float32", {"cost": torch.zeros(3)}),
            ("cost: expected at least 0.0, got", {"cost": torch.tensor([0.0, torch.nan, 0.0]).double()}),
            ("cost: expected at least 0.0, got", {"cost": torch.tensor([0.0, -1.0, 0.0]).double()}),
            ("rounds: expected torch.int64, got torch.float64", {"rounds": torch.tensor(3.0).double()}),
            ("rounds: expected at least 0, got -1", {"rounds": torch.tensor(-1)}),
            ("runs: expected at least 1, got 0", {"runs": torch.tensor(0)}),
            ("runs: expected a torch.Tensor, got int", {"runs": 1}),
            ("relation: expected the adjacency of this metric, 0, got 1", {"relation": torch.tensor(1)}),
            ("relation: expected the adjacency of this metric, 0, got 2", {"relation": torch.tensor(2)}),
        ],
    )
    def test_bad_states_are_refused_as_a_whole(self, text: str, change: dict[str, Any], strict: bool) -> None:
        metric = fed(stepped(learner()))
        before = copy.deepcopy(metric)
        with pytest.raises(RuntimeError, match=text):
            metric.load_state_dict(metric.state_dict() | change, strict=strict)
        for name in metric.state_dict():
            with pytest.raises(RuntimeError, match=f"{name}: expected an entry, got none"):
                metric.load_state_dict({k: v for k, v in metric.state_dict().items() if k != name}, strict=strict)
        assert same(metric, before)

    def test_constructor_errors(self) -> None:
        with pytest.raises(ValueError, match="delta: expected"):
            PrivacySpent(2.0)
        with pytest.raises(TypeError, match="continuations: expected an integer"):
            PrivacySpent(DELTA, continuations=1.5)
