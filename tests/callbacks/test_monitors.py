"""Tests of BanditMonitor and NoiseMonitor: what they log, warn of and keep, and that they change nothing."""

import csv
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.plugins.environments import LightningEnvironment
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader

from tests.process_groups import on_ranks
from tests.versions import weights_only
from torchonline import (
    OFUL,
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    EpsilonGreedy,
    Gaussian,
    LocalGLB,
    LocalGLMRegression,
    RadiusSelector,
    RidgeRegression,
    ScaledPolicy,
    StandardScaler,
    ThompsonSampling,
)
from torchonline.callbacks import BanditMonitor, MisspecifiedWarning, NoiseMonitor, RegretLogger
from torchonline.diagnostics import NoiseScaleWarning
from torchonline.metrics import DriftAlarm, DriftWarning
from torchonline.models import BanditHead, LearnerStrategy, LoggedRounds, NeuralLinearBandit, RoundLoader
from torchonline.policies.chosen import chosen_probability, predicted

# Lightning 2.6 itself uses what torch 2.13 has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint"),
]
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

FEATURES, DIM, ARMS = 4, 3, 5


def policies() -> dict[str, Any]:
    return {
        "greedy": EpsilonGreedy(RidgeRegression(DIM), epsilon=0.3),
        "ucb": OFUL(DIM),
        "batch": EpsilonGreedy(RidgeRegression(DIM, batch_shape=(2,)), epsilon=0.3),
        "thompson": ThompsonSampling(RidgeRegression(DIM)),
        "disjoint": DisjointArms(EpsilonGreedy(RidgeRegression(DIM), epsilon=0.3), ARMS),
        "scaled": ScaledPolicy(UCB(AdaptiveRidgeRegression(DIM + 1)), scaler=StandardScaler(DIM)),
        "masters": RadiusSelector(AdaptiveRidgeRegression(DIM), ARMS),
        "drawn masters": RadiusSelector(AdaptiveRidgeRegression(DIM), ARMS, rule="exp4", reward_range=(0.0, 1.0)),
        "clicks": LocalGLB(DIM),
    }


def bandit(policy: Any, **options: Any) -> NeuralLinearBandit:
    torch.manual_seed(0)
    encoder = nn.Linear(FEATURES, DIM)
    with torch.no_grad():
        encoder.weight /= 4.0  # features are short enough for clicks
        encoder.bias.zero_()
    module = NeuralLinearBandit(BanditHead(encoder, policy), train_encoder_every=None, **options)
    module.seed.fill_(7)
    return module


def data(n: int, module: NeuralLinearBandit, *, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    batch = module.head.batch_shape
    arms = (ARMS,) if module.head.has_arm_inputs else ()
    inputs = torch.randn(n, *batch, *arms, FEATURES, generator=generator).clamp(-1.0, 1.0)
    return inputs, scale * torch.rand(n, *batch, ARMS, generator=generator)


def trainer(*callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "max_epochs": 1, "log_every_n_steps": 1}
    quiet |= {"enable_checkpointing": any(isinstance(one, ModelCheckpoint) for one in callbacks)}
    return pl.Trainer(accelerator="cpu", callbacks=list(callbacks), enable_model_summary=False, **(quiet | options))


class Witness(pl.Callback):
    """Callback that keeps the outputs of each batch."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Tensor]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.outputs.append(dict(outputs))

    def all(self, name: str) -> Tensor:
        return torch.cat([outputs[name] for outputs in self.outputs if len(outputs["action"])])


@pytest.mark.parametrize("name", policies())
@pytest.mark.parametrize("feedback", ["round", "batch"])
def test_a_monitor_changes_nothing_and_sees_what_was_played(name: str, feedback: str) -> None:
    """The same actions and state with and without; predictions, bounds and probabilities before learning."""
    plain, module = (bandit(policies()[name], feedback=feedback) for _ in range(2))
    inputs, rewards = data(12, module)
    before, witness = Witness(), Witness()
    trainer(before).fit(plain, RoundLoader(inputs, rewards, batch_size=5))
    assert "prediction" not in before.outputs[0]
    monitor = BanditMonitor(ARMS)
    trainer(witness, monitor, NoiseMonitor()).fit(module, RoundLoader(inputs, rewards, batch_size=5))
    assert not module.watched
    assert torch.equal(before.all("action"), witness.all("action"))
    assert all(
        torch.equal(a, b) for a, b in zip(plain.state_dict().values(), module.state_dict().values(), strict=True)
    )

    # Once more by hand, with the same actions.
    policy, head = policies()[name], module.head
    features = head.encode(inputs.movedim(0, module._batch_dims())).detach()
    action, reward, lead = witness.all("action"), witness.all("reward"), module._batch_dims()
    expected: dict[str, list[Tensor]] = {"prediction": [], "low": [], "high": [], "probability": []}
    for first in range(0, 12, 1 if feedback == "round" else 5):
        rows = range(first, min(12, first + (1 if feedback == "round" else 5)))
        for i in rows:
            x = features.select(lead, i)
            values = [*predicted(policy, x, action[i]), chosen_probability(policy, x, action[i])]
            for key, value in zip(expected, values, strict=True):
                expected[key] += [] if value is None else [value]
        for i in rows if feedback == "round" else ():
            x = features.select(lead, i)
            learn(policy, x, action[i], reward[i])
        if feedback == "batch":
            n = len(rows)
            x = features.narrow(lead, first, n)
            learn(
                policy,
                x,
                action[first : first + n].movedim(0, lead),
                reward[first : first + n].movedim(0, lead),
                many=True,
            )
    for key, values in expected.items():
        if values:
            torch.testing.assert_close(witness.all(key), torch.stack(values), rtol=1e-6, atol=1e-6)
        else:
            assert (key, name) == ("probability", "thompson")
            assert key not in witness.outputs[0]

    # The metrics are about these rounds.
    assert monitor.shares.rounds == action.numel()
    assert monitor.rewards.compute().mean.nan_to_num(0.0) @ monitor.shares.total == pytest.approx(
        float(reward.double().sum())
    )
    width = witness.all("high") - witness.all("low")
    assert monitor.widths.compute() == pytest.approx(float(width.double().mean()), rel=1e-9)
    if name != "thompson":
        assert monitor.probabilities.compute().smallest == witness.all("probability").min()


def learn(policy: Any, x: Tensor, action: Tensor, reward: Tensor, *, many: bool = False) -> None:
    """Let a policy learn from rounds, given what it has decided from."""
    (policy.learn if many else policy.step)(x, action, reward)


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.fast
def test_what_is_logged(tmp_path: Path) -> None:
    """Beside a RegretLogger, by rounds."""
    module, monitor, witness = bandit(policies()["greedy"]), BanditMonitor(ARMS), Witness()
    logger = CSVLogger(str(tmp_path), "", "")
    run = trainer(witness, monitor, RegretLogger(), logger=logger)
    run.fit(module, RoundLoader(*data(12, module), batch_size=5))
    found = rows(tmp_path)
    assert [int(float(row["step"])) for row in found] == [5, 10, 12]
    action, reward, regret = (witness.all(name) for name in ("action", "reward", "regret"))
    for k in range(ARMS):
        mine = action == k
        assert float(found[-1][f"share/{k}"]) == pytest.approx(float(mine.double().mean()))
        for name, values in (("reward", reward), ("regret", regret)):
            mean = float(values[mine].mean())
            assert float(found[-1][f"{name}/{k}"]) == pytest.approx(mean, nan_ok=True, rel=1e-5)
    last = witness.outputs[-1]
    width, probability = last["high"] - last["low"], last["probability"]
    assert float(found[-1]["width_max"]) == pytest.approx(float(width.max()), rel=1e-5)
    assert float(found[-1]["width_mean"]) == pytest.approx(float(width.mean()), rel=1e-5)
    assert float(found[-1]["probability_min"]) == pytest.approx(float(probability.min()), rel=1e-5)
    weight = 1.0 / (ARMS * witness.all("probability"))
    size = float(weight.sum() ** 2 / weight.square().sum())
    assert float(found[-1]["effective_sample_size"]) == pytest.approx(size, rel=1e-5)
    assert float(found[-1]["mean_weight"]) == pytest.approx(float(weight.mean()), rel=1e-5)


def test_names_of_actions_are_logged(tmp_path: Path) -> None:
    module, names = bandit(policies()["greedy"]), [f"page {k}" for k in range(ARMS)]
    run = trainer(BanditMonitor(names), logger=CSVLogger(str(tmp_path), "", ""))
    run.fit(module, RoundLoader(*data(5, module), batch_size=5))
    assert {key for key in rows(tmp_path)[0] if key.startswith("share/")} == {f"share/{name}" for name in names}


def test_logged_rounds_have_the_probabilities_of_the_log() -> None:
    module, monitor = bandit(policies()["greedy"]), BanditMonitor(ARMS)
    inputs, rewards = data(10, module)
    action, probability = torch.arange(10) % ARMS, torch.linspace(0.1, 1.0, 10)
    logged = LoggedRounds(inputs, action, rewards[:, 0], probability)
    batches = [logged, LoggedRounds(inputs, action, rewards[:, 0])]
    trainer(monitor).fit(module, DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
    assert monitor.probabilities.rounds == 10
    assert monitor.probabilities.compute().smallest == pytest.approx(0.1)
    assert monitor.rewards.rounds == monitor.widths.rounds == 20
    assert monitor.regrets.rounds == 0


def test_a_resumed_fit_goes_on(tmp_path: Path) -> None:
    whole, part, resumed = (BanditMonitor(ARMS, drift=DriftAlarm(20, warn=False)) for _ in range(3))
    noise = [NoiseMonitor(), NoiseMonitor(), NoiseMonitor()]
    loader = RoundLoader(*data(60, bandit(OFUL(DIM))), batch_size=5)
    trainer(whole, noise[0]).fit(bandit(OFUL(DIM)), loader)
    keeper = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=4)
    trainer(part, noise[1], keeper, max_steps=6).fit(
        bandit(OFUL(DIM)), RoundLoader(*data(60, bandit(OFUL(DIM))), batch_size=5)
    )
    again = RoundLoader(*data(60, bandit(OFUL(DIM))), batch_size=5)
    trainer(resumed, noise[2]).fit(bandit(OFUL(DIM)), again, ckpt_path=tmp_path / "step=20.ckpt", **weights_only())
    pairs = [(whole.metrics[name], resumed.metrics[name]) for name in whole.metrics]
    pairs += [(noise[0].diagnostic, noise[2].diagnostic)]
    for one, other in pairs:
        assert int(one.rounds) == 60 or one is whole.probabilities
        states = one.state_dict(), other.state_dict()
        assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_noise_that_was_promised_too_small_is_warned_of_once() -> None:
    module, monitor = bandit(OFUL(DIM, noise_scale=0.01)), NoiseMonitor()
    with pytest.warns(NoiseScaleWarning, match="noise_scale looks too small") as record:
        trainer(monitor).fit(module, RoundLoader(*data(200, module, scale=30.0), batch_size=20))
    assert len([one for one in record if one.category is NoiseScaleWarning]) == 1
    assert monitor.diagnostic is not None
    assert bool(monitor.diagnostic.compute().noise_scale_is_small)


@pytest.mark.parametrize("name", ["greedy", "batch", "disjoint", "clicks"])
def test_no_warning_where_promises_hold(name: str) -> None:
    """Rewards in [0, 1] have the noise scale 1/2 of the defaults."""
    module, monitor = bandit(policies()[name]), NoiseMonitor()
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoiseScaleWarning)
        warnings.simplefilter("error", MisspecifiedWarning)
        trainer(monitor).fit(module, RoundLoader(*data(60, module), batch_size=20))
    assert monitor.diagnostic is not None
    assert int(monitor.diagnostic.rounds) == 60


def test_estimators_that_promise_nothing_are_not_tested() -> None:
    module, monitor = bandit(policies()["scaled"]), NoiseMonitor()
    trainer(monitor).fit(module, RoundLoader(*data(20, module, scale=100.0), batch_size=20))
    assert monitor.diagnostic is None


@pytest.mark.fast
def test_a_misspecified_estimator_is_warned_of_once() -> None:
    policy = UCB(LocalGLMRegression(DIM, link=Gaussian(0.5)))
    module, monitor = bandit(policy), NoiseMonitor()
    policy.estimator.misspecified.fill_(True)
    with pytest.warns(MisspecifiedWarning, match="LocalGLMRegression is misspecified: no parameter") as record:
        trainer(monitor).fit(module, RoundLoader(*data(20, module), batch_size=5))
    assert len([one for one in record if one.category is MisspecifiedWarning]) == 1
    again = NoiseMonitor()
    again.load_state_dict(monitor.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error", MisspecifiedWarning)
        trainer(again).fit(module, RoundLoader(*data(20, module), batch_size=5))


def test_residuals_that_change_raise_the_drift_alarm() -> None:
    module = bandit(OFUL(DIM, noise_scale=20.0), feedback="batch")
    inputs, rewards = data(200, module)
    rewards[100:] += 20.0
    monitor = BanditMonitor(ARMS, drift=DriftAlarm(50))
    with pytest.warns(DriftWarning, match="values have changed: after 150 of them"):
        trainer(monitor).fit(module, RoundLoader(inputs, rewards, batch_size=20))


def test_an_alarm_has_a_stream_for_each_learner() -> None:
    module = bandit(policies()["batch"])
    inputs, rewards = data(12, module)
    for shape in ((), (3,)):
        with pytest.raises(ValueError, match=r"^drift: expected a DriftAlarm with the learners' batch_shape \(2,\)"):
            trainer(BanditMonitor(ARMS, drift=DriftAlarm(batch_shape=shape))).fit(
                module, RoundLoader(inputs, rewards, batch_size=6)
            )
    monitor = BanditMonitor(ARMS, drift=DriftAlarm(batch_shape=(2,)))
    trainer(monitor).fit(module, RoundLoader(inputs, rewards, batch_size=6))
    assert monitor.drift is not None
    assert monitor.drift.rounds == 12


def test_a_state_that_waits_for_a_batch_is_saved_again() -> None:
    module, monitor, resumed = bandit(OFUL(DIM)), NoiseMonitor(), NoiseMonitor()
    trainer(monitor).fit(module, RoundLoader(*data(10, module)))
    state = monitor.state_dict()
    resumed.load_state_dict(state)
    (again,) = resumed.state_dict()["ranks"]
    assert all(torch.equal(value, again[name]) for name, value in state["ranks"][0].items())


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"^drift: expected a DriftAlarm or None, got int"):
        BanditMonitor(3, drift=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^actions: expected an integer above 0, got 0"):
        BanditMonitor(0)
    with pytest.raises(ValueError, match=r"^alpha: expected a number in \(0.0, 1.0\), got 2"):
        NoiseMonitor(2.0)
    module = bandit(policies()["greedy"])
    with pytest.raises(ValueError, match=r"^action: expected values from 0 to 0, got"):
        trainer(BanditMonitor(1)).fit(module, RoundLoader(*data(20, module)))


class Log:
    """A module that does nothing but log."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def log_dict(self, values: dict[str, Tensor], **options: Any) -> None:
        for name, value in values.items():
            self.values.setdefault(name, []).append(float(value))


def outputs_of(n: int, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    value = torch.randint(1, 256, (n,), generator=generator).double() / 256
    action = torch.randint(ARMS, (n,), generator=generator)
    return {
        "action": action,
        "reward": value,
        "regret": 1.0 - value,
        "probability": value,
        "low": -value,
        "high": value,
    }


SIZES = ((30, 0, 5), (70,))


def monitored() -> dict[str, Any]:
    """What a monitor knows of the rounds of all ranks, now and after a checkpoint, without Lightning."""
    rank, monitor = distributed.get_rank(), BanditMonitor(ARMS, points=8)
    for seed, n in enumerate(SIZES[rank]):
        monitor.on_train_batch_end(None, Log(), outputs_of(n, 10 * rank + seed), None, 0)  # type: ignore[arg-type]
    state = monitor.state_dict()
    twin = BanditMonitor(ARMS, points=8)
    twin.load_state_dict(state)
    found = []
    for one in (monitor, twin):
        computed = {name: metric.compute() for name, metric in one.metrics.items()}
        found.append({name: list(value) if isinstance(value, tuple) else [value] for name, value in computed.items()})
    return {"found": found, "state": state, "fit": shared_fit()}


def shared_fit() -> tuple[int, int, float]:
    """What the monitors of one learner for all ranks know, under Lightning."""
    warnings.resetwarnings()  # Lightning has many
    os.environ |= {"LOCAL_RANK": str(distributed.get_rank()), "NODE_RANK": "0"}
    module = bandit(policies()["disjoint"], feedback="batch")
    monitor, noise, witness = BanditMonitor(ARMS), NoiseMonitor(), Witness()
    group: Any = {"devices": 2, "plugins": [LightningEnvironment()], "strategy": LearnerStrategy()}
    run = trainer(monitor, noise, witness, **group)
    run.fit(module, RoundLoader(*data(41, module), batch_size=5))
    assert noise.diagnostic is not None
    assert int(monitor.shares.rounds) == int(noise.diagnostic.rounds) == len(witness.all("prediction"))
    with pytest.raises(RuntimeError, match=r"^drift: expected one process, got 2"):
        BanditMonitor(ARMS, drift=DriftAlarm()).setup(run, module, "fit")
    return int(monitor.shares.rounds), int(module.rounds), float(monitor.probabilities.compute().smallest)


def test_several_processes() -> None:
    """``compute`` is about all ranks, a checkpoint holds all, and one process goes on with it."""
    parts = [outputs_of(n, 10 * rank + seed) for rank, sizes in enumerate(SIZES) for seed, n in enumerate(sizes)]
    alone = BanditMonitor(ARMS, points=8)
    for part in parts:
        alone.on_train_batch_end(None, Once(), part, None, 0)  # type: ignore[arg-type]
    results = on_ranks(2, monitored)
    assert sum(rank["fit"][0] for rank in results) == results[0]["fit"][1] == 41
    assert results[0]["fit"][2] == results[1]["fit"][2]
    resumed = BanditMonitor(ARMS, points=8)
    resumed.load_state_dict(results[0]["state"])
    for name, metric in alone.metrics.items():
        value = metric.compute()
        expected = list(value) if isinstance(value, tuple) else [value]
        again = resumed.metrics[name].compute()
        candidates = [found[name] for rank in results for found in rank["found"]]
        for got in [*candidates, list(again) if isinstance(again, tuple) else [again]]:
            for a, b in zip(got, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


class Once(Log):
    """A module of a single process, whose x axis counts rounds."""

    def log(self, name: str, value: Tensor, **options: Any) -> None:
        self.log_dict({name: value})
