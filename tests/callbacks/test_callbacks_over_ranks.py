"""Tests of the callbacks and the loader under Lightning with several real processes: nothing waits, nothing is lost."""

import csv
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, distributed, nn

from tests.process_groups import on_ranks
from tests.versions import weights_only
from torchonline import OFUL
from torchonline.callbacks import ArtifactExporter, RegretLogger
from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader

pytestmark = [
    pytest.mark.fast,
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint"),
]
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

ARMS, FEATURES = 3, 4


class OneLearnerEach(NeuralLinearBandit):
    """A learner in each process, which learns from the rounds of that process alone."""

    def setup(self, stage: str) -> None:
        pass


class Unwrapped(DDPStrategy):
    """Processes whose modules exchange nothing in a batch."""

    def configure_ddp(self) -> None:
        pass


class Witness(pl.Callback):
    """Callback that keeps the regret and the number of each round that a rank plays."""

    def __init__(self) -> None:
        self.regret: list[float] = []
        self.rounds: list[int] = []
        self.sizes: list[int] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.regret += outputs["regret"].tolist()
        self.rounds += batch[0][:, 0, 0].long().tolist()
        self.sizes.append(len(batch[0]))


def bandit() -> NeuralLinearBandit:
    torch.manual_seed(0)
    return OneLearnerEach(BanditHead(nn.Linear(FEATURES, 2), OFUL(2)), train_encoder_every=None)


def data(n: int) -> tuple[Tensor, Tensor]:
    """Inputs, the first of which is the number of the round, and rewards."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(n, ARMS, FEATURES, generator=generator)
    inputs[:, :, 0] = torch.arange(n).unsqueeze(-1)
    return inputs, torch.randint(0, 256, (n, ARMS), generator=generator).double() / 256


def trainer(*callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    """The trainer of this rank of the group that is there already, or of a single process."""
    if distributed.is_initialized():
        warnings.resetwarnings()  # Lightning has many; these two would be ours
        warnings.filterwarnings("error", "It is recommended to use")
        warnings.filterwarnings("error", "The ``compute`` method")
        os.environ |= {"LOCAL_RANK": str(distributed.get_rank()), "NODE_RANK": "0"}
        options |= {"devices": distributed.get_world_size(), "strategy": Unwrapped()}
        options |= {"plugins": [LightningEnvironment()]}
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}
    quiet |= {"max_epochs": 1, "enable_checkpointing": any(isinstance(one, ModelCheckpoint) for one in callbacks)}
    return pl.Trainer(accelerator="cpu", callbacks=list(callbacks), **(quiet | options))


def after_laps(regret: list[Any]) -> dict[int, Any]:
    """The total after each whole lap of some ranks, by the number of their rounds."""
    laps = range(1, max(map(len, regret)) + 1)
    return {sum(min(k, len(one)) for one in regret): sum(sum(one[:k]) for one in regret) for k in laps}


def fits(folder: str, cases: list[Any], loader: Callable[[Any], RoundLoader]) -> list[dict[str, Any]]:
    found = []
    for case in cases:
        witness, regret, logger = Witness(), RegretLogger(), CSVLogger(folder, str(case), "")
        run = trainer(witness, regret, logger=logger, max_epochs=2)
        module = bandit()
        run.fit(module, loader(case))
        assert regret.regret is not None
        assert regret.last_curve is not None
        assert all(torch.equal(a, b) for a, b in zip(regret.last_curve, regret.regret.curve(), strict=True))
        found.append(
            vars(witness)
            | {
                "learnt": int(module.rounds),
                "own": float(regret.regret.total),
                "total": float(regret.regret.compute()),
                "curve": [values.tolist() for values in regret.regret.curve()],
                "logged": [float(run.callback_metrics[f"{name}_all_ranks"]) for name in ("regret", "rounds")],
            }
        )
    return found


def rows(folder: Path, case: Any) -> list[dict[str, str]]:
    with open(folder / str(case) / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def assert_right(folder: Path, case: Any, of_ranks: tuple[dict[str, Any], ...]) -> None:
    """The global values are those of what each rank has played; the values of a batch are rank 0's."""
    expected = after_laps([rank["regret"] for rank in of_ranks])
    total = sum(sum(rank["regret"]) for rank in of_ranks)
    for rank in of_ranks:
        assert rank["curve"][0] == list(expected)
        assert rank["curve"][1] == list(expected.values())
        assert rank["total"] == total
        assert rank["logged"] == pytest.approx([total, list(expected)[-1]], rel=1e-6)
        assert rank["own"] == sum(rank["regret"])
        assert rank["learnt"] == len(rank["regret"])
    found = rows(folder, case)
    mine = [(int(float(row["step"])), float(row["regret"])) for row in found if row["regret"]]
    first, sizes, played = of_ranks[0]["regret"], of_ranks[0]["sizes"], 0
    assert [step for step, _ in mine] == [i for i, size in enumerate(sizes) if size]
    for (_, value), size in zip(mine, filter(None, sizes), strict=True):
        played += size
        assert value == pytest.approx(sum(first[:played]), rel=1e-6)
    assert [float(row["rounds_all_ranks"]) for row in found if row["rounds_all_ranks"]][-1] == list(expected)[-1]


def shared(n: int) -> RoundLoader:
    return RoundLoader(*data(n), batch_size=3, shuffle=True)


class Log:
    """A module that does nothing but log."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def log(self, name: str, value: Tensor, **options: Any) -> None:
        self.values.setdefault(name, []).append(float(value))

    def log_dict(self, values: dict[str, Tensor], **options: Any) -> None:
        for name, value in values.items():
            self.log(name, value, **options)


def batches_of_its_own(sizes: list[list[list[int]]], batch: tuple[int, ...]) -> list[Any]:
    """Epochs of batches whose number depends on the rank, without Lightning, which would wait in each of them."""
    logger, module, found, mine = RegretLogger(), Log(), [], []
    for epoch in sizes:
        for size in epoch[distributed.get_rank()]:
            regret = torch.arange(size * max(1, *batch, 1)).reshape(size, *batch).double() + len(mine)
            logger.on_train_batch_end(None, module, {"regret": regret}, None, 0)
            logger.on_train_batch_end(None, module, {"reward": regret}, None, 0)  # logged rounds
            mine += regret.unbind(0)
        logger.on_train_epoch_end(None, module)
        state = logger.state_dict()
        twin = RegretLogger()
        twin.load_state_dict(state)
        if logger.regret is None:
            assert twin.regret is None
            assert state == {}
            continue
        assert all(torch.equal(a, b) for a, b in zip(logger.last_curve, twin.regret.curve(), strict=True))
        found.append(
            (torch.stack(mine) if mine else torch.zeros(0, *batch), *logger.last_curve, logger.regret.compute())
        )
    return [found, module.values]


@pytest.mark.parametrize("batch", [(), (3,)])
def test_unequal_numbers_of_batches(batch: tuple[int, ...]) -> None:
    """A batch exchanges nothing: a rank with many waits for nobody, and a rank with none joins at the end of an epoch."""
    sizes = [[[], []], [[], [3, 0, 4]], [[0], [2]], [[2] * 9, [1]]]
    results = on_ranks(2, batches_of_its_own, sizes, batch)
    for (mine, *values), (others, *theirs) in zip(*(found for found, _ in results), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(values, theirs, strict=True))
        at, totals, total = values
        expected = after_laps([mine, others])
        assert at.tolist() == list(expected)
        torch.testing.assert_close(totals, torch.stack(list(expected.values())), rtol=1e-12, atol=0.0)
        assert torch.equal(total, totals[-1])
    for _, logged in results:
        assert logged["regret_all_ranks"] == pytest.approx([float(total.mean()) for *_, total in results[0][0]])
        assert logged["rounds_all_ranks"] == [7.0, 9.0, 28.0]
        assert "step" not in logged
    assert [len(logged["regret"]) for _, logged in results] == [9, 4]


@pytest.mark.parametrize(("world", "lengths"), [(2, (12, 11, 7, 1)), (4, (12, 14, 2))])
def test_shares_of_one_stream(tmp_path: Path, world: int, lengths: tuple[int, ...]) -> None:
    """Equal, unequal and empty shares: each round is played once in an epoch, in as many batches on each rank."""
    results = on_ranks(world, fits, str(tmp_path), lengths, shared)
    for n, *of_ranks in zip(lengths, *results, strict=True):
        assert sorted(i for rank in of_ranks for i in rank["rounds"]) == sorted([*range(n)] * 2)
        assert {len(rank["sizes"]) for rank in of_ranks} == {2 * -(-n // (3 * world))}
        counts = [sum(rank["sizes"][: len(rank["sizes"]) // 2]) for rank in of_ranks]
        assert max(counts) - min(counts) <= 1
        assert_right(tmp_path, n, tuple(of_ranks))


def interrupted(folder: str, n: int) -> tuple[list[int], list[float], float, list[Any]]:
    """A fit that ends in the middle of its epoch, and another that goes on from its checkpoint."""
    first, second, regret = Witness(), Witness(), RegretLogger()
    keeper = ModelCheckpoint(folder, "{step}", save_top_k=-1, every_n_train_steps=2)
    trainer(first, RegretLogger(), keeper, max_steps=3).fit(bandit(), shared(n))
    resumed = trainer(second, regret)
    module = bandit()
    resumed.fit(module, shared(n), ckpt_path=f"{folder}/step=2.ckpt", **weights_only())
    assert regret.regret is not None
    played = sum(first.sizes[:2])
    rounds, regrets = first.rounds[:played] + second.rounds, first.regret[:played] + second.regret
    return rounds, regrets, float(regret.regret.compute()), [values.tolist() for values in regret.regret.curve()]


@pytest.mark.parametrize("world", [2, 4])
def test_a_resume_in_the_middle_of_an_epoch(tmp_path: Path, world: int) -> None:
    """The checkpoint that rank 0 writes resumes the position and the regret of each rank, and can be read by one process."""
    n = 3 * 3 * world + 2
    results = on_ranks(world, interrupted, str(tmp_path), n)
    assert sorted(i for rounds, *_ in results for i in rounds) == [*range(n)]
    regrets = [regret for _, regret, *_ in results]
    expected = after_laps(regrets)
    for _, _, total, curve in results:
        assert total == sum(map(sum, regrets))
        assert curve == [list(expected), list(expected.values())]
    saved = torch.load(tmp_path / "step=2.ckpt", weights_only=True)
    alone = RegretLogger()
    alone.load_state_dict(saved["callbacks"]["RegretLogger"])
    assert alone.regret is not None
    assert alone.regret.rounds == 6 * world
    halves = after_laps([one[:6] for one in regrets])
    assert float(alone.regret.compute()) == halves[6 * world]
    at, totals = alone.regret.curve()
    assert at.tolist() == [*range(1, 6 * world + 1)]
    assert totals[world - 1 :: world].tolist() == pytest.approx(list(halves.values()))
    assert (saved["loops"]["fit_loop"]["state_dict"]["combined_loader"]) == [
        {"next_batch": 2, "rounds_in_batch": 3 * world}
    ]
    # One process goes on with the regret, but not from a position between other batches.
    with pytest.raises(ValueError, match=rf"^next_batch: expected batches of {3 * world} rounds"):
        trainer(alone).fit(bandit(), shared(n), ckpt_path=tmp_path / "step=2.ckpt", **weights_only())
    inputs, rewards = data(n)
    wider = RoundLoader(inputs, rewards, batch_size=3 * world, shuffle=True)
    witness = Witness()
    trainer(alone, witness).fit(bandit(), wider, ckpt_path=tmp_path / "step=2.ckpt", **weights_only())
    played = [i for rounds, *_ in results for i in rounds[:6]]
    assert sorted(played + witness.rounds) == [*range(n)]
    assert alone.regret.rounds == n


def validations(lengths: tuple[int, ...]) -> list[dict[str, float]]:
    found = []
    for n in lengths:
        (values,) = trainer().validate(bandit(), RoundLoader(*data(n), batch_size=2), verbose=False)
        found.append(values)
    return found


def test_validation_is_the_mean_over_the_rounds_of_all_ranks() -> None:
    """With unequal shares and with a rank that has none."""
    lengths = (8, 5, 1)
    for results in on_ranks(2, validations, lengths):
        for n, values in zip(lengths, results, strict=True):
            (alone,) = trainer().validate(bandit(), RoundLoader(*data(n), batch_size=2), verbose=False)
            assert values == pytest.approx(alone, rel=1e-12)


def exports(folder: str) -> int:
    module = bandit()
    exporter = ArtifactExporter(Path(folder) / str(distributed.get_rank()), every_n_rounds=5, formats=("torchscript",))
    trainer(exporter).fit(module, RoundLoader(*data(13), batch_size=6))
    return int(module.rounds)


def test_the_first_process_exports(tmp_path: Path) -> None:
    rounds = on_ranks(2, exports, str(tmp_path))
    assert rounds == [7, 6]
    assert os.listdir(tmp_path) == ["0"]
    assert int(torch.jit.load(tmp_path / "0" / "head.pt").policy.estimator.rounds) == 7
