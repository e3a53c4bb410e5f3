"""Tests of encoders that learn, of logged rounds, of play without learning, and of checkpoints that hold the head."""

import copy
import csv
import io
import logging
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn

import torchonline
from torchonline import (
    OFUL,
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    EpsilonGreedy,
    HeavyTailRegression,
    RidgeRegression,
    StandardScaler,
    ThompsonSampling,
    bandit,
)
from torchonline.callbacks import ArtifactExporter, RegretLogger
from torchonline.core.ops import of_chosen
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead, LoggedRounds, NeuralLinearBandit, RoundLoader, neural_linear
from torchonline.models.checkpoints import packed, unpacked_head
from torchonline.models.refit import fit_encoder, predicted, relearn

pytestmark = [
    pytest.mark.fast,
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    # Whether the warning appears depends on the number of processors.
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
]
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

FEATURES, DIM, ARMS = 4, 3, 5


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, DIM))


def head_of(kind: str, batch: tuple[int, ...] = ()) -> BanditHead:
    """Return a head: inputs for each arm, embeddings, a model for each action, or these behind a scaler."""
    if kind == "arms":
        return BanditHead(layers(), OFUL(DIM, batch_shape=batch))
    if kind == "embeddings":
        return BanditHead(layers(), OFUL(DIM, batch_shape=batch), actions=torch.randn(ARMS, DIM))
    if kind == "models":
        return BanditHead(layers(), UCB(RidgeRegression(DIM, batch_shape=batch)), actions=ARMS)
    return BanditHead(
        layers(), bandit(DIM, "real", actions=ARMS if kind == "scaled models" else None, batch_shape=batch)
    )


KINDS = ["arms", "embeddings", "models", "scaled models", "scaled arms"]


def rounds_for(kind: str, n: int, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, rewards and means of n rounds."""
    arms = (ARMS,) if kind.endswith("arms") else ()
    means = torch.randn(n, *batch, ARMS, dtype=torch.float64)
    return torch.randn(n, *batch, *arms, FEATURES), means + 0.1 * torch.randn_like(means), means


def trainer(*callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"enable_checkpointing": False, "max_epochs": 1}
    return pl.Trainer(accelerator="cpu", callbacks=list(callbacks), **(quiet | options))


def same_state(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(torch.equal(states[0][k], states[1][k]) for k in states[0])


class Batches:
    """Loader of batches of any kind. A list would be a list of loaders to Lightning."""

    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Any:
        return iter(self.batches)


class Recorder(pl.Callback):
    """Callback that keeps the outputs of all steps."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Tensor]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *rest: Any) -> None:
        self.outputs.append(outputs)

    on_validation_batch_end = on_test_batch_end = on_predict_batch_end = on_train_batch_end

    def __getitem__(self, name: str) -> Tensor:
        return torch.cat([outputs[name] for outputs in self.outputs])


class TestRefit:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_the_readout_predicts_the_chosen_arm_from_the_policys_features(
        self, kind: str, batch: tuple[int, ...]
    ) -> None:
        head = head_of(kind, batch).eval()
        inputs, rewards, _ = rounds_for(kind, 12, *batch)
        action = torch.randint(ARMS, (12, *batch))
        lead = len(batch)
        head.step(inputs.movedim(0, lead), action.movedim(0, lead), of_chosen(rewards, action).movedim(0, lead))
        theta = torch.randn_like(head.policy.estimator.theta_hat)
        found = predicted(head, theta, inputs, action)
        for b in range(2 if batch else 1):
            for t in range(12):
                at = (b,) if batch else ()
                row = inputs[(t, *at)][action[(t, *at)]] if kind.endswith("arms") else inputs[(t, *at)]
                x = head.encoder(row[None])[0].double()
                if kind == "embeddings":
                    x = x * head.actions[action[(t, *at)]]
                if kind.startswith("scaled"):
                    scaler = copy.deepcopy(head.policy.scaler)
                    scaler.step(torch.stack([x] * 2) if batch else x)
                    z = ((x - scaler.mean[at]) / (scaler.squares[at] / 12.0).sqrt()).clamp(-2.5, 2.5)
                    columns = torch.cat([z, 0.7 * (z.abs() - 0.8)])
                    products = 0.1 * columns[scaler.pairs[0]] * columns[scaler.pairs[1]]
                    x = torch.cat([columns, products, torch.full((1,), scaler.intercept, dtype=torch.float64)])
                own = theta[at][action[(t, *at)]] if kind.endswith("models") else theta[at]
                torch.testing.assert_close(found[(*at, t)], (x * own).sum(), rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_encoder_and_readout_are_trained_together(self, kind: str, batch: tuple[int, ...]) -> None:
        head = head_of(kind, batch)
        inputs, _, _ = rounds_for(kind, 200, *batch)
        action = torch.randint(ARMS, (200, *batch))
        chosen = of_chosen(inputs, action) if kind.endswith("arms") else inputs
        reward = (chosen[..., 0] * chosen[..., 1]).double()
        relearn(head, (inputs, action, reward), 50)
        readout = head.policy.estimator.theta_hat.clone()
        before = readout.clone(), copy.deepcopy(head.encoder)

        def error() -> float:
            with torch.no_grad():
                mean = predicted(head, readout, inputs, action)
            return (mean - reward.movedim(0, len(batch))).square().mean().item()

        start = error()
        fit_encoder(head, readout, (inputs, action, reward), steps=300, batch_size=64, learning_rate=1e-2)
        assert error() < 0.8 * start
        assert not torch.equal(readout, before[0])
        assert not same_state(head.encoder, before[1])
        assert not readout.requires_grad
        assert all(parameter.grad is None for parameter in head.encoder.parameters())

    @pytest.mark.parametrize("kind", ["models", "scaled models", "scaled arms"])
    def test_policy_and_scaler_are_relearnt_in_order(self, kind: str) -> None:
        head = head_of(kind).eval()
        fresh = copy.deepcopy(head)
        inputs, rewards, _ = rounds_for(kind, 30)
        head.step(inputs[:7], torch.zeros(7, dtype=torch.int64), rewards[:7, 0])
        action = torch.randint(ARMS, (30,))
        relearn(head, (inputs, action, of_chosen(rewards, action)), 8)
        for t in range(30):
            fresh.step(inputs[t], action[t], rewards[t, action[t]])
        torch.testing.assert_close(dict(head.state_dict()), dict(fresh.state_dict()), rtol=1e-5, atol=1e-5)
        assert head.policy.rounds == 30

    @pytest.mark.parametrize("kind", ["arms", "models"])
    def test_the_replay_is_relearnt_in_blocks(self, kind: str) -> None:
        """As one log, from features of the encoder in evaluation mode."""
        actions = ARMS if kind == "models" else None
        head = BanditHead(nn.Sequential(layers(), nn.Dropout(0.5)), UCB(HeavyTailRegression(DIM)), actions=actions)
        fresh = copy.deepcopy(head)
        inputs, rewards, _ = rounds_for(kind, 90)
        action = torch.randint(ARMS, (90,))
        reward = of_chosen(rewards, action)
        head.learn(inputs[:7], action[:7], reward[:7])
        relearn(head, (inputs, action, reward), 40)
        fresh.learn(inputs, action, reward)
        torch.testing.assert_close(dict(head.state_dict()), dict(fresh.state_dict()), rtol=1e-5, atol=1e-5)
        assert int(head.policy.estimator.rounds.sum()) == 90

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_the_encoder_is_trained_by_default(self, kind: str, batch: tuple[int, ...]) -> None:
        head = head_of(kind, batch)
        before = copy.deepcopy(head.encoder)
        module = NeuralLinearBandit(head, train_encoder_every=20, encoder_steps=3, replay_size=30)
        trainer().fit(module, RoundLoader(*rounds_for(kind, 45, *batch), batch_size=15))
        assert not same_state(head.encoder, before)
        assert module.readout.shape == head.policy.estimator.theta_hat.shape
        assert bool(module.readout.any())
        rounds = head.policy.rounds if hasattr(head.policy, "rounds") else head.policy.estimator.rounds
        assert bool((rounds == 35).all())  # 30 of the replay, after round 40, and 5 since then

    def test_nothing_is_trained_without_trainable_parameters(self) -> None:
        head = BanditHead(layers().requires_grad_(False), OFUL(DIM))
        before = copy.deepcopy(head.encoder)
        module = NeuralLinearBandit(head)
        assert module.train_encoder_every is module.replay is module.readout is None
        trainer().fit(module, RoundLoader(*rounds_for("arms", 60), batch_size=30))
        assert same_state(head.encoder, before)
        assert head.policy.estimator.rounds == 60

    def test_the_readout_follows_the_number_of_actions(self) -> None:
        head = head_of("models")
        module = NeuralLinearBandit(head, train_encoder_every=10, encoder_steps=2)
        inputs, rewards, means = rounds_for("models", 20)
        trainer().fit(module, RoundLoader(inputs, rewards, means, batch_size=10))
        head.policy.add_actions(2)
        wider = torch.cat([rewards, rewards[:, :2]], -1)
        trainer().fit(module, RoundLoader(inputs, wider, batch_size=10))
        assert module.readout.shape == (ARMS + 2, DIM)

    @pytest.mark.slow
    def test_a_trained_encoder_serves_models_that_a_frozen_one_cannot(self) -> None:
        inputs = torch.randn(1200, 8)
        label = (inputs[:, 0] * inputs[:, 1] > 0).long()
        rewards = nn.functional.one_hot(label, 2).double()
        late = []
        encoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        for options in ({"train_encoder_every": None}, {}):
            ridge = AdaptiveRidgeRegression(32, ridge=1.0)
            module = NeuralLinearBandit(BanditHead(copy.deepcopy(encoder), UCB(ridge), actions=2), **options)
            module.seed.zero_()
            recorder = Recorder()
            trainer(recorder).fit(module, RoundLoader(inputs, rewards, batch_size=100))
            late.append(recorder["regret"][-400:].mean().item())
        assert late[1] < 0.5 * late[0]


def test_an_encoder_trains_behind_a_feature_that_stays_the_same() -> None:
    """A dead unit of the encoder, or an input that does not vary any more, has no slope behind the scaler."""
    torch.manual_seed(0)
    policy = bandit(2, actions=3)
    module = NeuralLinearBandit(BanditHead(nn.Linear(4, 2), policy), encoder_steps=5, replay_size=50)
    inputs = torch.randn(250, 4)
    inputs[50:] = 1.0
    trainer().fit(module, RoundLoader(inputs, torch.rand(250, 3), batch_size=25))
    assert all(bool(torch.isfinite(value).all()) for value in module.state_dict().values())
    assert int(policy.rounds) == 50


class TestLoggedRounds:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_a_log_teaches_what_playing_taught(self, kind: str, batch: tuple[int, ...]) -> None:
        head = head_of(kind, batch)
        inputs, rewards, means = rounds_for(kind, 50, *batch)
        modules, recorder, logged = [], Recorder(), Recorder()
        for _ in range(2):
            module = NeuralLinearBandit(copy.deepcopy(head), train_encoder_every=20, encoder_steps=2)
            module.seed.zero_()
            modules.append(module)
        trainer(recorder).fit(modules[0], RoundLoader(inputs, rewards, means, batch_size=15))
        log = LoggedRounds(inputs, recorder["action"], recorder["reward"])
        trainer(logged).fit(modules[1], RoundLoader(log, batch_size=12))
        states = [dict(module.state_dict()) for module in modules]
        torch.testing.assert_close(states[1], states[0], rtol=1e-4, atol=1e-4)
        assert torch.equal(logged["reward"], recorder["reward"])
        assert all("regret" not in outputs for outputs in logged.outputs)

    def test_dicts_and_named_tuples_are_the_same(self) -> None:
        inputs, _, _ = rounds_for("models", 10)
        log = LoggedRounds(inputs, torch.randint(ARMS, (10,)), torch.randn(10), torch.rand(10))
        head, modules = head_of("models"), []
        for batch in (log, log._asdict(), {"inputs": log.inputs, "action": log.action, "reward": log.reward}):
            modules.append(NeuralLinearBandit(copy.deepcopy(head)))
            modules[-1].seed.zero_()
            regret = RegretLogger()
            run = trainer(regret)
            run.fit(modules[-1], Batches(batch, batch))
            assert regret.regret is None
            assert run.logged_metrics.keys() == {"reward"}
            torch.testing.assert_close(run.logged_metrics["reward"].double(), log.reward.double().mean())
            assert modules[-1].rounds == 20
        assert same_state(modules[0], modules[1])
        assert same_state(modules[0], modules[2])

    def test_a_dict_may_be_a_table(self) -> None:
        inputs, rewards, means = rounds_for("models", 10)
        recorder, plain = Recorder(), Recorder()
        head = head_of("models")
        twin = copy.deepcopy(head)
        trainer(recorder).fit(NeuralLinearBandit(head), Batches({"inputs": inputs, "rewards": rewards, "means": means}))
        trainer(plain).fit(NeuralLinearBandit(twin), Batches((inputs, rewards, means)))
        assert torch.equal(recorder["regret"], plain["regret"])

    def test_the_exporter_takes_a_dict(self, tmp_path: Path) -> None:
        head = head_of("arms")
        inputs, _, _ = rounds_for("arms", 6)
        log = {"inputs": inputs, "action": torch.zeros(6, dtype=torch.int64), "reward": torch.zeros(6)}
        trainer(ArtifactExporter(tmp_path, formats=("torchscript",))).fit(NeuralLinearBandit(head), Batches(log))
        assert torch.jit.load(tmp_path / "head.pt").policy.estimator.rounds == 6

    def test_the_loader_keeps_the_kind(self) -> None:
        log = LoggedRounds(torch.randn(5, 2), torch.zeros(5, dtype=torch.int64), torch.arange(5.0), torch.ones(5))
        batches = list(RoundLoader(log, batch_size=2))
        assert all(isinstance(batch, LoggedRounds) for batch in batches)
        assert torch.equal(torch.cat([batch.reward for batch in batches]), log.reward)
        assert next(iter(RoundLoader(log._replace(probability=None)))).probability is None

    @pytest.mark.parametrize(
        ("text", "change"),
        [
            (r"action: expected shape \(4\), got \(3\)", {"action": torch.zeros(3, dtype=torch.int64)}),
            (r"probability: expected shape \(4\)", {"probability": torch.ones(4, 5)}),
            ("action: expected indices from 0 to 4, got 5", {"action": torch.tensor([0, 1, 5, 0])}),
            ("reward: expected finite", {"reward": torch.tensor([0.0, torch.nan, 0.0, 0.0])}),
            ("batch: expected .* got a dict with inputs, action, reward, weight", {"weight": torch.ones(4)}),
        ],
    )
    def test_errors_change_nothing(self, text: str, change: dict[str, Any]) -> None:
        inputs, _, _ = rounds_for("models", 4)
        module = NeuralLinearBandit(head_of("models"))
        before = copy.deepcopy(module)
        batch = {"inputs": inputs, "action": torch.zeros(4, dtype=torch.int64), "reward": torch.ones(4)} | change
        with pytest.raises(ValueError, match=text):
            module.training_step(batch, 0)
        assert same_state(module, before)


class TestBatchesWithoutRounds:
    """The last batch of some ranks of a RoundLoader."""

    @pytest.mark.parametrize("feedback", ["round", "batch"])
    @pytest.mark.parametrize("log", [False, True])
    @pytest.mark.parametrize("batch", [(), (2,)])
    @pytest.mark.parametrize("kind", KINDS)
    def test_they_change_nothing(
        self, kind: str, batch: tuple[int, ...], log: bool, feedback: str, tmp_path: Path
    ) -> None:
        """A fit with them is a fit without them, in its state, its draws and its logs, except for the trainer's steps."""
        inputs, rewards, means = rounds_for(kind, 20, *batch)
        action = torch.randint(ARMS, (20, *batch))

        def rows(start: int, stop: int) -> Any:
            if log:
                table = (inputs, action, of_chosen(rewards, action))
                return LoggedRounds(*(part[start:stop] for part in table))
            return tuple(part[start:stop] for part in (inputs, rewards, means))

        fits = []
        for ends in ([0, 10, 20], [0, 0, 10, 10, 20, 20]):
            torch.manual_seed(0)
            module = NeuralLinearBandit(head_of(kind, batch), feedback=feedback, train_encoder_every=8, encoder_steps=2)
            recorder, regret, logger = Recorder(), RegretLogger(), CSVLogger(tmp_path, str(len(ends)), "")
            run = trainer(recorder, regret, logger=logger, log_every_n_steps=1)
            run.fit(module, Batches(*(rows(*between) for between in pairwise(ends))))
            assert run.global_step == len(ends) - 1
            assert int(module.rounds) == 20
            shapes = {tuple(values.shape) for name, values in recorder.outputs[0].items() if name != "loss"}
            assert shapes == {(ends[1], *batch)}
            names = ["reward"] if log else ["regret", "regret_per_round", "reward"]
            with open(tmp_path / str(len(ends)) / "metrics.csv", newline="") as file:
                seen = list(dict.fromkeys(tuple(row[name] for name in names) for row in csv.DictReader(file)))
            fits.append((module, [recorder[name] for name in names if name != "regret_per_round"], seen))
        (one, played, logged), (other, theirs, theirs_logged) = fits
        assert same_state(one, other)
        assert all(torch.equal(a, b) for a, b in zip(played, theirs, strict=True))
        assert logged == theirs_logged
        assert "nan" not in str(logged)

    @pytest.mark.parametrize("kind", KINDS)
    def test_they_have_no_weight_in_a_mean_and_no_predictions(self, kind: str) -> None:
        module, rounds = NeuralLinearBandit(head_of(kind)), rounds_for(kind, 5)
        none = tuple(part[:0] for part in rounds)
        (expected,) = trainer().validate(module, Batches(rounds), verbose=False)
        (found,) = trainer().validate(module, Batches(none, rounds, none), verbose=False)
        assert found == expected
        decided = module.predict_step(none[0])
        assert {name: tuple(value.shape) for name, value in decided.items()} == {
            "action": (0,),
            "probability": (0,),
            "probabilities": (0, ARMS),
        }

    def test_an_export_needs_none_of_them(self, tmp_path: Path) -> None:
        rounds = rounds_for("arms", 5)
        none = tuple(part[:0] for part in rounds)
        exporter = ArtifactExporter(tmp_path, formats=("torchscript",))
        module = NeuralLinearBandit(head_of("arms"), train_encoder_every=None)
        trainer(exporter).fit(module, Batches(none, rounds, none))
        assert int(torch.jit.load(tmp_path / "head.pt").policy.estimator.rounds) == 5


class TestPlayWithoutLearning:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_validation_and_test_log_regret_and_reward(self, kind: str, batch: tuple[int, ...]) -> None:
        module = NeuralLinearBandit(head_of(kind, batch))
        trainer().fit(module, RoundLoader(*rounds_for(kind, 20, *batch), batch_size=10))
        before = copy.deepcopy(module)
        inputs, rewards, means = rounds_for(kind, 25, *batch)
        choices = torch.stack([module.head.select(row) for row in inputs])
        for stage in ("validate", "test"):
            recorder = Recorder()
            play = getattr(trainer(recorder), stage)
            (logged,) = play(module, RoundLoader(inputs, rewards, means, batch_size=10), verbose=False)
            name = {"validate": "val", "test": "test"}[stage]
            assert torch.equal(recorder["action"], choices)
            regret = means.amax(-1) - of_chosen(means, choices)
            assert logged[f"{name}_regret"] == pytest.approx(regret.mean().item(), rel=1e-6)
            assert logged[f"{name}_reward"] == pytest.approx(of_chosen(rewards, choices).mean().item(), rel=1e-6)
            assert same_state(module, before)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_prediction_takes_inputs_alone_or_any_batch(self, kind: str, batch: tuple[int, ...]) -> None:
        module = NeuralLinearBandit(head_of(kind, batch))
        inputs, rewards, _ = rounds_for(kind, 6, *batch)
        for k in range(ARMS):  # so that no arms tie
            module.head.step(inputs[k], torch.full(batch, k), rewards[k, ..., 0])
        before = copy.deepcopy(module)
        action = torch.zeros((6, *batch), dtype=torch.int64)
        log = LoggedRounds(inputs, action, rewards[..., 0])
        batches = [inputs, (inputs,), (inputs, rewards), log, log._asdict(), {"inputs": inputs}]
        found = trainer().predict(module, Batches(*batches))
        expected = torch.stack([module.head.select(row) for row in inputs])
        for outputs in found:
            assert torch.equal(outputs["action"], expected)
            assert torch.equal(outputs["probabilities"], nn.functional.one_hot(expected, ARMS).double())
            assert bool((outputs["probability"] == 1.0).all())
        assert same_state(module, before)

    def test_a_log_is_played_without_a_regret(self) -> None:
        module = NeuralLinearBandit(head_of("models"))
        inputs, _, _ = rounds_for("models", 6)
        module.head.step(inputs[:ARMS], torch.arange(ARMS), torch.linspace(0.1, 0.9, ARMS))  # so that no arms tie
        log = LoggedRounds(inputs, torch.zeros(6, dtype=torch.int64), torch.ones(6))
        recorder = Recorder()
        trainer(recorder).validate(module, Batches(log), verbose=False)
        assert torch.equal(recorder["action"], module.head.select(inputs))

    def test_draws_are_its_own_and_differ_from_batch_to_batch(self) -> None:
        head = BanditHead(layers(), EpsilonGreedy(RidgeRegression(DIM), epsilon=0.9))
        module = NeuralLinearBandit(head)
        inputs, _, _ = rounds_for("arms", 40)
        before = torch.get_rng_state()
        one, other = trainer().predict(module, Batches(inputs, inputs))
        again, _ = trainer().predict(module, Batches(inputs, inputs))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(one["action"], again["action"])
        assert not torch.equal(one["action"], other["action"])
        chosen = one["probabilities"].gather(-1, one["action"].unsqueeze(-1)).squeeze(-1)
        assert torch.equal(one["probability"], chosen)

    def test_other_batches_are_refused(self) -> None:
        module = NeuralLinearBandit(head_of("models"))
        with pytest.raises(ValueError, match=r"batch: expected inputs, .* got str"):
            module.predict_step("inputs", 0)
        with pytest.raises(ValueError, match=r"rewards: expected shape \(4, 5\), got \(4, 6\)"):
            module.validation_step((torch.ones(4, FEATURES), torch.ones(4, 6)), 0)


def test_a_table_for_a_head_without_actions_is_explained() -> None:
    module = NeuralLinearBandit(BanditHead(nn.Linear(FEATURES, DIM), OFUL(DIM)))
    text = r"rewards: expected shape \(50\), got \(50, 10\); a head without actions .* give BanditHead actions=K"
    for step in (module.training_step, module.validation_step):
        with pytest.raises(ValueError, match=text):
            step((torch.randn(50, FEATURES), torch.randn(50, 10)), 0)


class Doubled(nn.Module):
    """An encoder of the user's, with an argument and a buffer that is in no state dict."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, DIM)
        self.register_buffer("factor", torch.tensor(factor), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.linear(x)


def saved(module: NeuralLinearBandit, path: Path, kind: str) -> dict[str, Any]:
    """Train a module a little, save it, and return the checkpoint."""
    run = trainer()
    run.fit(module, RoundLoader(*rounds_for(kind, 30), batch_size=10))
    run.save_checkpoint(path)
    return torch.load(path, weights_only=True)


class TestCheckpoints:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("weights_only", [None, True])
    def test_a_checkpoint_holds_the_head(self, tmp_path: Path, kind: str, weights_only: bool | None) -> None:
        module = NeuralLinearBandit(head_of(kind), train_encoder_every=20, encoder_steps=2, feedback="batch")
        saved(module, tmp_path / "a.ckpt", kind)
        loaded = NeuralLinearBandit.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=weights_only)
        assert same_state(loaded, module)
        assert repr(loaded) == repr(module)
        assert loaded.hparams == module.hparams
        assert all(parameter.requires_grad for parameter in loaded.head.encoder.parameters())
        inputs, rewards, _ = rounds_for(kind, 25)
        for one in (module, loaded):
            trainer().fit(one, RoundLoader(inputs, rewards, batch_size=5))
        assert same_state(loaded, module)

    def test_it_holds_an_encoder_of_the_users(self, tmp_path: Path) -> None:
        module = NeuralLinearBandit(BanditHead(Doubled(3.0), OFUL(DIM)))
        saved(module, tmp_path / "a.ckpt", "arms")
        loaded = NeuralLinearBandit.load_from_checkpoint(tmp_path / "a.ckpt")
        assert loaded.head.encoder.factor == 3.0
        assert same_state(loaded, module)

    def test_the_encoders_tensors_are_not_there_twice(self) -> None:
        small, large = (len(packed(BanditHead(nn.Linear(n, DIM), OFUL(DIM)))) for n in (10, 100_000))
        assert large < 1.1 * small

    def test_what_cannot_be_packed_is_asked_for(self, tmp_path: Path) -> None:
        encoder = nn.Linear(FEATURES, DIM)
        encoder.hook = lambda x: x
        module = NeuralLinearBandit(BanditHead(encoder, OFUL(DIM)))
        saved(module, tmp_path / "a.ckpt", "arms")
        with pytest.raises(
            TypeError, match=r"head: expected a BanditHead, which the checkpoint could not hold .*head="
        ):
            NeuralLinearBandit.load_from_checkpoint(tmp_path / "a.ckpt")
        head = BanditHead(nn.Linear(FEATURES, DIM), OFUL(DIM))
        assert same_state(NeuralLinearBandit.load_from_checkpoint(tmp_path / "a.ckpt", head=head), module)

    def test_packed_bytes_run_no_code(self) -> None:
        class Evil(nn.Module):
            def __reduce__(self) -> Any:
                return os.getcwd, ()

        file = io.BytesIO()
        torch.save(Evil(), file)
        with pytest.raises(ValueError, match=r"head: expected classes of modules that are imported, got .*getcwd"):
            unpacked_head(file.getvalue())
        file = io.BytesIO()
        torch.save({"head": 1}, file)
        with pytest.raises(ValueError, match="head: expected a packed BanditHead, got dict"):
            unpacked_head(file.getvalue())

    def test_a_checkpoint_of_version_0_1_0_loads_with_its_head(self, tmp_path: Path) -> None:
        for every in (None, 10):
            head = head_of("arms")
            module = NeuralLinearBandit(head, train_encoder_every=every, encoder_steps=1)
            checkpoint = saved(module, tmp_path / "a.ckpt", "arms")
            own = ("feedback", "train_encoder_every", "replay_size", "encoder_steps", "encoder_batch_size")
            old = {name: checkpoint["hyper_parameters"][name] for name in own}
            checkpoint["hyper_parameters"] = old | {"encoder_learning_rate": 1e-3}
            checkpoint["state_dict"].pop("readout", None)
            torch.save(checkpoint, tmp_path / "old.ckpt")
            loaded = NeuralLinearBandit.load_from_checkpoint(tmp_path / "old.ckpt", head=head_of("arms"))
            assert loaded.train_encoder_every == every
            assert same_state(loaded.head, module.head)
            assert loaded.rounds == 30
            assert every is None or not bool(loaded.readout.any())

    def test_hyper_parameters_say_what_the_head_is(self) -> None:
        arms = DisjointArms(
            UCB(RidgeRegression(DIM, noise_scale=0.5, radius="classic", radius_scale=0.4)),
            actions=7,
            scaler=StandardScaler(DIM, intercept=False),
        )
        found = dict(NeuralLinearBandit(BanditHead(layers(), arms), encoder_steps=30).hparams)
        expected = {
            "feedback": "round",
            "encoder_steps": 30,
            "encoder": "Sequential",
            "policy": "UCB",
            "composition": "DisjointArms",
            "scaler": "StandardScaler",
            "scaler_clip": 2.5,
            "estimator": "RidgeRegression",
            "actions": 7,
            "dim": DIM,
            "noise_scale": 0.5,
            "radius": "classic",
            "radius_scale": 0.4,
            "ridge": 1.0,
        }
        assert found.items() >= expected.items()
        assert all(value is None or isinstance(value, (bool, int, float, str)) for value in found.values())
        greedy = BanditHead(layers(), EpsilonGreedy(RidgeRegression(DIM), epsilon=0.3), actions=torch.eye(DIM))
        found = NeuralLinearBandit(greedy).hparams
        assert (found["policy"], found["epsilon"], found["actions"]) == ("EpsilonGreedy", 0.3, DIM)

    def test_a_subclass_keeps_its_own(self, tmp_path: Path) -> None:
        class Named(NeuralLinearBandit):
            def __init__(self, head: BanditHead, label: str, **options: Any) -> None:
                super().__init__(head, **options)
                self.label = label

        saved(Named(head_of("arms"), "a", encoder_steps=3), tmp_path / "a.ckpt", "arms")
        loaded = Named.load_from_checkpoint(tmp_path / "a.ckpt")
        assert (loaded.label, loaded.encoder_steps) == ("a", 3)


CONFIG = {
    "class_path": "torchonline.models.NeuralLinearBandit",
    "init_args": {
        "head": {
            "class_path": "torchonline.models.BanditHead",
            "init_args": {
                "encoder": {"class_path": "torch.nn.Linear", "init_args": {"in_features": FEATURES, "out_features": 2}},
                "policy": {"class_path": "torchonline.OFUL", "init_args": {"dim": 2}},
                "actions": 5,
            },
        },
        "encoder_steps": 7,
    },
}


def instantiated(value: Any) -> Any:
    """Construct what class paths and arguments describe, as Lightning's command line does."""
    if isinstance(value, dict) and "class_path" in value:
        module, _, name = value["class_path"].rpartition(".")
        source = {"torch.nn": nn, "torchonline": torchonline, "torchonline.models": torchonline.models}[module]
        return getattr(source, name)(**{key: instantiated(one) for key, one in value["init_args"].items()})
    return value


class TestCommandLine:
    @pytest.mark.parametrize("actions", [5, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [0.0, 2.0]]])
    def test_a_file_can_say_it_all(self, actions: Any) -> None:
        config = copy.deepcopy(CONFIG)
        config["init_args"]["head"]["init_args"]["actions"] = actions
        module = instantiated(config)
        recorder = Recorder()
        trainer(recorder).fit(module, RoundLoader(*rounds_for("models", 10), batch_size=5))
        assert recorder["regret"].shape == (10,)
        assert module.hparams["actions"] == 5

    # Lightning calls jsonargparse in ways that the latest one warns of.
    @pytest.mark.filterwarnings("ignore")
    def test_with_lightnings_command_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("jsonargparse")
        from pytorch_lightning.cli import LightningCLI

        monkeypatch.setattr("sys.argv", ["fit.py"])
        cli = LightningCLI(
            NeuralLinearBandit,
            run=False,
            args={"model": CONFIG["init_args"]},
            save_config_callback=None,
            seed_everything_default=False,
        )
        assert cli.model.encoder_steps == 7
        saved(cli.model, tmp_path / "a.ckpt", "models")
        assert same_state(NeuralLinearBandit.load_from_checkpoint(tmp_path / "a.ckpt"), cli.model)


class TestCompiledEncoders:
    def test_they_are_exported_as_what_was_compiled(self) -> None:
        head = BanditHead(torch.compile(layers(), backend="eager"), OFUL(DIM))
        inputs = torch.randn(ARMS, FEATURES)
        head.step(inputs, head.select(inputs), torch.tensor(1.0))
        scripted, program = to_torchscript(head, example=inputs), to_program(head, example=inputs)
        torch.testing.assert_close(scripted(inputs), head(inputs))
        assert "encoder.0.weight" in scripted.state_dict()
        assert not any("_orig_mod" in name for name in program.state_dict)
        assert "encoder._orig_mod.0.weight" in head.state_dict()
        whole = to_torchscript(torch.compile(head, backend="eager"), example=inputs)
        torch.testing.assert_close(whole(inputs), head(inputs))

    def test_checkpoints_pass_between_compiled_and_not(self, tmp_path: Path) -> None:
        compiled = BanditHead(torch.compile(layers(), backend="eager"), OFUL(DIM))
        module = NeuralLinearBandit(compiled, train_encoder_every=20, encoder_steps=2)
        assert module.hparams["encoder"] == "Sequential"
        saved(module, tmp_path / "a.ckpt", "arms")
        loaded = NeuralLinearBandit.load_from_checkpoint(tmp_path / "a.ckpt")
        assert type(loaded.head.encoder) is nn.Sequential
        inputs = torch.randn(ARMS, FEATURES)
        assert torch.equal(loaded.head(inputs), module.head(inputs))
        saved(loaded, tmp_path / "b.ckpt", "arms")
        again = BanditHead(torch.compile(layers(), backend="eager"), OFUL(DIM))
        again = NeuralLinearBandit.load_from_checkpoint(tmp_path / "b.ckpt", head=again)
        assert torch.equal(again.head(inputs), loaded.head(inputs))


def test_thompson_sampling_is_described_and_packed() -> None:
    head = BanditHead(layers(), ThompsonSampling(RidgeRegression(DIM)), actions=3)
    assert repr(unpacked_head(packed(head))) == repr(head)


@pytest.mark.parametrize("place", ["fit_encoder", "relearn"])
@pytest.mark.parametrize("kind", ["arms", "scaled models"])
def test_an_interrupted_training_leaves_encoder_and_statistics(
    kind: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were before it; the next training goes on from there."""
    module = NeuralLinearBandit(head_of(kind), train_encoder_every=10, encoder_steps=3)
    inputs, rewards, _ = rounds_for(kind, 20)
    before: dict[str, Tensor] = {}

    def fit(*arguments: Any, **options: Any) -> None:
        before.update(copy.deepcopy(module.head.state_dict()))
        fit_encoder(*arguments, **options)
        if place == "fit_encoder":
            raise KeyboardInterrupt

    def relearn_half(head: BanditHead, rounds: Any, batch_size: int) -> None:
        relearn(head, tuple(values[:5] for values in rounds), batch_size)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(neural_linear, "fit_encoder", fit)
        patch.setattr(neural_linear, "relearn", relearn_half)
        with pytest.raises(KeyboardInterrupt):
            module._in_turns(module._play, inputs[:10], rewards[:10])
    after = module.head.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    with torch.no_grad():
        module._in_turns(module._play, inputs[10:], rewards[10:])
    assert int(module.head.rounds) == int(module.rounds) == 20
    now = module.head.encoder.state_dict()
    assert not all(torch.equal(before[f"encoder.{name}"], value) for name, value in now.items())
