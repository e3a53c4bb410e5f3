"""NeuralLinearBandit over several real processes: nothing is lost, ranks are equal, and a run resumes bit for bit."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import DDPStrategy, StrategyRegistry
from torch import Tensor, distributed, nn

from tests.process_groups import on_ranks
from torchonline import OFUL, DisjointArms, HeavyTailRegression, RidgeRegression, ThompsonSampling, bandit
from torchonline.callbacks import RegretLogger
from torchonline.distributed.ranks import digest
from torchonline.models import BanditHead, LearnerStrategy, LoggedRounds, NeuralLinearBandit, RoundLoader

FEATURES, ARMS = 4, 3
POLICIES = {
    "bandit": lambda: bandit(8, actions=ARMS, scale=False),
    "heavy": lambda: DisjointArms(HeavyTailRegression(8), ARMS),
    "thompson": lambda: DisjointArms(ThompsonSampling(RidgeRegression(8)), ARMS),
}


def module(policy: str = "bandit", **options: Any) -> NeuralLinearBandit:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU())
    options = {"feedback": "batch", "train_encoder_every": 40, "encoder_steps": 3, "replay_size": 60} | options
    return NeuralLinearBandit(BanditHead(encoder, POLICIES[policy]()), **options)


def table(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(n, FEATURES, generator=generator), torch.rand(n, ARMS, generator=generator)


def trainer(*callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    """The trainer of this rank of the group that is there already."""
    warnings.resetwarnings()  # Lightning has many
    os.environ |= {"LOCAL_RANK": str(distributed.get_rank()), "NODE_RANK": "0"}
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 1}
    quiet |= {"enable_checkpointing": any(isinstance(one, ModelCheckpoint) for one in callbacks)}
    group = {"devices": distributed.get_world_size(), "plugins": [LightningEnvironment()]}
    return pl.Trainer(
        accelerator="cpu", callbacks=list(callbacks), **(group | {"strategy": LearnerStrategy()} | quiet | options)
    )


def state(learner: NeuralLinearBandit) -> int:
    return digest(learner._state_of_all_ranks())


def plays(policy: str, sync_every: int) -> dict[str, Any]:
    """Play 103 rounds, of which the ranks get unequal numbers."""
    learner, regret = module(policy, sync_every=sync_every), RegretLogger()
    trainer(regret).fit(learner, RoundLoader(*table(103), batch_size=7))
    assert regret.regret is not None
    return {
        "state": state(learner),
        "rounds": int(learner.rounds),
        "learnt": int(learner.head.policy.rounds),
        "replayed": int(learner.replay.rounds) if learner.replay is not None else 0,
        "regret": float(regret.regret.compute()),
        "own": float(regret.regret.total),
    }


@pytest.mark.parametrize(("world", "policy", "sync_every"), [(2, "bandit", 1), (2, "thompson", 3), (3, "heavy", 2)])
def test_ranks_are_equal_and_lose_nothing(world: int, policy: str, sync_every: int) -> None:
    found = on_ranks(world, plays, policy, sync_every)
    assert len({one["state"] for one in found}) == 1
    assert all(one["rounds"] == 103 for one in found)
    assert len({one["learnt"] for one in found}) == 1
    assert [one["replayed"] for one in found] == [103] + [0] * (world - 1)
    # The regret of all ranks is known to all, and is the sum of their own.
    assert all(one["regret"] == pytest.approx(sum(each["own"] for each in found)) for one in found)


def logs() -> tuple[int, int]:
    learner = module("heavy", train_encoder_every=None)
    inputs, rewards = table(50)
    log = LoggedRounds(inputs, torch.arange(50) % ARMS, rewards[:, 0])
    trainer().fit(learner, RoundLoader(log, batch_size=6))
    return int(learner.rounds), state(learner)


def test_logs_are_learnt_as_by_one_process() -> None:
    found = on_ranks(2, logs)
    alone = module("heavy", train_encoder_every=None)
    inputs, rewards = table(50)
    for i in range(0, 50, 12):
        part = slice(i, i + 12)
        alone.head.learn(inputs[part], torch.arange(50)[part] % ARMS, rewards[part, 0])
    alone.rounds += 50
    alone.seed.zero_()
    assert found[0] == found[1]
    assert found[0][0] == 50


def whole_and_resumed(folder: str, sync_every: int) -> tuple[int, int, int]:
    """A run, and one that goes on from a checkpoint of its middle."""
    loader = RoundLoader(*table(103), batch_size=7)
    keep = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=3, save_top_k=-1)
    whole = module("thompson", sync_every=sync_every)
    trainer(keep).fit(whole, loader)
    resumed = module("thompson", sync_every=sync_every)
    trainer().fit(resumed, RoundLoader(*table(103), batch_size=7), ckpt_path=f"{folder}/step=3.ckpt")
    return state(whole), state(resumed), int(resumed.rounds)


@pytest.mark.parametrize("sync_every", [1, 2])
def test_a_run_resumes_bit_for_bit_in_the_middle_of_an_epoch(sync_every: int, tmp_path: Path) -> None:
    """With 2, the first rank's checkpoint has rounds of both ranks that wait for a sync."""
    found = on_ranks(2, whole_and_resumed, str(tmp_path), sync_every)
    assert len({number for one in found for number in one[:2]}) == 1
    assert found[0][2] == 103
    names = sorted(path.name for path in tmp_path.iterdir())
    assert "step=3.ckpt" in names
    # One process goes on from the same file, and learns what was waiting.
    alone = module("thompson")
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    rest = RoundLoader(*table(103), batch_size=14)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pl.Trainer(accelerator="cpu", max_epochs=1, **quiet).fit(alone, rest, ckpt_path=tmp_path / "step=3.ckpt")
    assert int(alone.rounds) == 103


class Cut(RoundLoader):
    """A loader that lacks an arm in the third batch of the second rank."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for i, (inputs, rewards) in enumerate(super().__iter__()):
            yield inputs, rewards[:, :2] if (i, distributed.get_rank()) == (2, 1) else rewards


def bad_rows(fault: str) -> tuple[str, bool]:
    learner = module("heavy", sync_every=2)
    inputs, rewards = table(60)
    if fault == "a NaN":
        rewards[25] = torch.nan
    loader = (Cut if fault == "a wrong shape" else RoundLoader)(inputs, rewards, batch_size=5)
    run = trainer()
    before = None
    try:
        run.fit(learner, loader)
    except ValueError as error:
        before = str(error)
    return str(before), bool(torch.isfinite(learner.head.policy.estimator.theta_hat).all())


@pytest.mark.parametrize(
    ("fault", "text"), [("a NaN", "reward: expected finite"), ("a wrong shape", "rank 1: rewards: expected")]
)
def test_a_bad_row_of_one_rank_is_raised_by_all(fault: str, text: str) -> None:
    for said, is_finite in on_ranks(2, bad_rows, fault):
        assert text in said
        assert is_finite


def refusals() -> list[str]:
    said = []
    for strategy, feedback in ((DDPStrategy(), "batch"), (LearnerStrategy(), "round")):
        try:
            trainer(strategy=strategy).fit(module(feedback=feedback), RoundLoader(*table(4)))
        except RuntimeError as error:
            said.append(str(error))
    return said


def test_other_strategies_and_feedback_by_rounds_are_refused() -> None:
    for said in on_ranks(2, refusals):
        assert (
            "expected one process, or strategy=torchonline.models.LearnerStrategy(), got 2 under DDPStrategy" in said[0]
        )
        assert 'expected feedback="batch" with several processes' in said[1]


def test_one_process_may_use_the_strategy_too() -> None:
    assert on_ranks(1, plays, "bandit", 1)[0]["rounds"] == 103


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="sync_every: expected an integer above 0, got 0"):
        NeuralLinearBandit(BanditHead(nn.Linear(2, 2), OFUL(2)), sync_every=0)


@pytest.mark.fast
def test_the_strategy_has_a_name() -> None:
    assert StrategyRegistry.get("learner").__class__ is LearnerStrategy
