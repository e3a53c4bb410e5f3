"""Tests of bandit heads on encoders, with and without Lightning."""

import copy
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn

import torchonline
from tests.learners import round_of
from tests.versions import weights_only
from torchonline import (
    OFUL,
    UCB,
    AnytimeHeavyTailUCB,
    DisjointArms,
    Greedy,
    HvtUCB,
    RidgeRegression,
    StandardScaler,
    ThompsonSampling,
)
from torchonline.callbacks import RegretLogger
from torchonline.core.ops import of_chosen
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead, LoggedRounds, NeuralLinearBandit, RoundLoader, bandit_head
from torchonline.models.replay import Replay
from torchonline.policies.rules import Rule

# Lightning 2.6 itself uses what torch 2.13 has deprecated.
pytestmark = [
    pytest.mark.fast,
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

FEATURES, DIM, ARMS = 4, 3, 5


def encoder(width: int = DIM) -> nn.Module:
    """Return an encoder whose output varies from call to call in training mode."""
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, width))


def arms_head(policy: Any = None, **options: Any) -> BanditHead:
    return BanditHead(encoder(), OFUL(DIM, **options) if policy is None else policy)


def product_head(**options: Any) -> BanditHead:
    return BanditHead(encoder(), OFUL(DIM, **options), actions=torch.randn(ARMS, DIM))


def outer_head(**options: Any) -> BanditHead:
    return BanditHead(encoder(2), OFUL(6, **options), actions=torch.randn(ARMS, 3), combine="outer")


HEADS = [arms_head, product_head, outer_head]


def inputs_for(head: BanditHead, *lead: int) -> Tensor:
    return torch.randn(*lead, FEATURES) if head.actions is not None else torch.randn(*lead, ARMS, FEATURES)


def same_state(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def assert_close_state(one: nn.Module, other: nn.Module) -> None:
    """Compare states to the precision of a float32 encoder."""
    torch.testing.assert_close(dict(one.state_dict()), dict(other.state_dict()), rtol=1e-5, atol=1e-5)


class TestBanditHead:
    def test_arms_are_encoded_one_by_one(self) -> None:
        head = arms_head()
        inputs = inputs_for(head, 2, 7)
        head.encoder.eval()
        expected = torch.stack([head.encoder(item[None])[0] for item in inputs.reshape(-1, FEATURES)])
        torch.testing.assert_close(head.encode(inputs), expected.reshape(2, 7, ARMS, DIM))

    def test_product_is_a_bilinear_score(self) -> None:
        head = product_head()
        head.policy.estimator.theta_hat.copy_(torch.randn(DIM))
        context = torch.randn(FEATURES)
        encoded = head.eval().encoder(context[None])[0].double()
        weights = torch.diag(head.policy.estimator.theta_hat)
        torch.testing.assert_close(head.policy.estimator(head.encode(context)), head.actions @ weights @ encoded)

    def test_outer_is_the_flattened_outer_product(self) -> None:
        head = outer_head()
        context = torch.randn(FEATURES)
        encoded = head.eval().encoder(context[None])[0].double()
        expected = [torch.outer(encoded, action).flatten() for action in head.actions]
        torch.testing.assert_close(head.encode(context), torch.stack(expected))

    def test_outer_with_the_identity_is_a_model_for_each_action(self) -> None:
        head = BanditHead(encoder(2), Greedy(RidgeRegression(2 * ARMS)), actions=torch.eye(ARMS), combine="outer")
        contexts, rewards = torch.randn(30, FEATURES), torch.randn(30, dtype=torch.float64)
        actions = torch.randint(ARMS, (30,))
        head.step(contexts, actions, rewards)
        encoded = head.eval().encoder(contexts).double().detach()
        for k in range(ARMS):
            own = encoded[actions == k]
            theta = torch.linalg.solve(own.T @ own + torch.eye(2), own.T @ rewards[actions == k])
            torch.testing.assert_close(head(contexts)[:, k], encoded @ theta)

    def test_images(self) -> None:
        layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 4 * 4, DIM))
        one = BanditHead(layers, OFUL(DIM), actions=torch.randn(ARMS, DIM), feature_dims=3)
        assert one.select(torch.randn(6, 7, 1, 6, 6)).shape == (6, 7)
        assert one.select(torch.randn(1, 6, 6)).shape == ()
        many = BanditHead(layers, OFUL(DIM), feature_dims=3)
        assert many.select(torch.randn(7, ARMS, 1, 6, 6)).shape == (7,)
        many.step(torch.randn(7, ARMS, 1, 6, 6), torch.zeros(7, dtype=torch.int64), torch.randn(7))

    @pytest.mark.parametrize("make", HEADS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_step_teaches_the_chosen_arms_features(self, make: Any, batch: tuple[int, ...]) -> None:
        head = make(batch_shape=batch)
        policy = copy.deepcopy(head.policy)
        for lead in (batch, (*batch, 6)):
            inputs, rewards = inputs_for(head, *lead), torch.randn(lead)
            action = torch.randint(ARMS, lead)
            scale = torch.rand(lead) + 0.5
            arms = head.encode(inputs).detach()
            policy.step(arms, action, rewards, noise_scale=scale)
            head.step(inputs, action, rewards, noise_scale=scale)
            assert_close_state(head.policy, policy)

    @pytest.mark.parametrize("make", HEADS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_logs_teach_the_chosen_arms_features_in_blocks(self, make: Any, batch: tuple[int, ...]) -> None:
        head = make(AnytimeHeavyTailUCB(DIM, batch_shape=batch)) if make is arms_head else make(batch_shape=batch)
        head.train()
        policy, modes = copy.deepcopy(head.policy), [part.training for part in head.modules()]
        for lead, size in ((batch, None), ((*batch, 40), None), ((*batch, 40), 16), ((*batch, 0), None)):
            inputs, rewards = inputs_for(head, *lead), torch.randn(lead)
            action, scale = torch.randint(ARMS, lead), torch.rand(lead) + 0.5
            arms = head.encode(inputs).detach()
            policy.learn(arms, action, rewards, noise_scale=scale, block_size=size)
            head.learn(inputs, action, rewards, noise_scale=scale, block_size=size)
            assert_close_state(head.policy, policy)
        assert [part.training for part in head.modules()] == modes

    @pytest.mark.parametrize("batch", [(), (2,)])
    @pytest.mark.parametrize("kind", ["arms", "embeddings", "models"])
    def test_a_long_log_is_encoded_in_parts(
        self, kind: str, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        head = {"arms": arms_head, "embeddings": product_head}.get(
            kind, lambda **o: BanditHead(encoder(), DisjointArms(RidgeRegression(DIM, **o), ARMS))
        )(batch_shape=batch)
        whole, sizes = copy.deepcopy(head), []
        inputs, action, reward = (
            inputs_for(head, *batch, 30),
            torch.randint(ARMS, (*batch, 30)),
            torch.randn(*batch, 30),
        )
        if kind == "models":
            inputs = torch.randn(*batch, 30, FEATURES)
        whole.learn(inputs, action, reward)
        monkeypatch.setattr(bandit_head, "ENCODED_AT_ONCE", 8)
        head.encoder.register_forward_pre_hook(lambda _, items: sizes.append(len(items[0])))
        head.learn(inputs, action, reward)
        assert_close_state(head.policy, whole.policy)
        assert sizes == [8 * len(torch.zeros(batch).reshape(-1)), *sizes[1:3], sizes[0] * 6 // 8]

    def test_log_errors_change_nothing(self) -> None:
        """In the last block of many; and sizes of blocks that are none, for each kind of head."""
        head = arms_head(batch_shape=(2,))
        before = copy.deepcopy(head)
        rewards = torch.zeros(2, 30)
        rewards[1, 29] = torch.nan
        inputs = torch.ones(2, 30, 5, 4)
        wrong = inputs.clone()
        wrong[1, 29] = torch.inf
        action = torch.zeros(2, 30, dtype=torch.int64)
        bad = action.clone()
        bad[1, 29] = 5
        for error, text, change in (
            (ValueError, "^reward: expected finite", {"reward": rewards}),
            (ValueError, "^inputs: expected finite", {"inputs": wrong}),
            (ValueError, "^action: expected indices from 0 to 4, got 5", {"action": bad}),
            (ValueError, r"^action: expected shape \(2, 30\)", {"action": action[:, 1:]}),
            (ValueError, r"^reward: expected shape \(2, 30\)", {"reward": rewards[:, 1:]}),
            (ValueError, "^inputs: expected shape", {"inputs": inputs[0]}),
            (TypeError, "^noise_scale: expected a torch.Tensor", {"noise_scale": "1.0"}),
            (ValueError, "^block_size: expected an integer above 0, got 0", {"block_size": 0}),
            (TypeError, "^block_size: expected an integer, got float", {"block_size": 2.0}),
        ):
            good: dict[str, Any] = {"inputs": inputs, "action": action, "reward": torch.ones(2, 30), "block_size": 4}
            with pytest.raises(error, match=text):
                head.learn(**(good | change))
            assert same_state(head, before)
        models = BanditHead(nn.Identity(), DisjointArms(RidgeRegression(DIM), ARMS))
        for other in (models, BanditHead(encoder(), OFUL(DIM), scaler=StandardScaler(FEATURES, intercept=False))):
            item = (DIM,) if other is models else (ARMS, FEATURES)
            with pytest.raises(ValueError, match=r"^block_size: expected an integer above 0, got -1"):
                other.learn(torch.ones(3, *item), [0, 1, 2], torch.ones(3), block_size=-1)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["arms", "embeddings", "models"])
    def test_a_script_learns_logs(self, kind: str) -> None:
        head = {"arms": arms_head, "embeddings": product_head}.get(
            kind, lambda: BanditHead(encoder(), DisjointArms(RidgeRegression(DIM), ARMS))
        )()
        scripted = torch.jit.script(copy.deepcopy(head).eval())
        for size in (None, 7):
            inputs = inputs_for(head, 40) if kind != "models" else torch.randn(40, FEATURES)
            action, rewards = torch.randint(ARMS, (40,)), torch.randn(40)
            head.learn(inputs, action, rewards, block_size=size)
            scripted.learn(inputs, action, rewards, None, size)
            for name, value in head.policy.state_dict().items():
                torch.testing.assert_close(scripted.policy.state_dict()[name], value, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("make", HEADS)
    def test_scores_and_choices_are_the_policys(self, make: Any) -> None:
        head = make()
        head.step(inputs_for(head, 9), torch.randint(ARMS, (9,)), torch.randn(9))
        inputs = inputs_for(head, 20)
        arms = head.encode(inputs)
        assert torch.equal(head(inputs), head.policy(arms))
        assert torch.equal(head.select(inputs), head.policy.select(arms))
        best = head.select(inputs)
        mask = torch.ones(20, ARMS, dtype=torch.bool).scatter(1, best[:, None], False)
        assert bool((head.select(inputs, mask) != best).all())
        assert torch.equal(head.select(inputs, mask), head(inputs).masked_fill(~mask, -1e9).argmax(-1))

    @pytest.mark.parametrize("make", HEADS)
    def test_looking_and_learning_leave_an_encoder_in_training_mode_alone(self, make: Any) -> None:
        head = make().train()
        head.encoder[1].eval()
        modes = [part.training for part in head.modules()]
        before = {name: value.clone() for name, value in head.encoder.state_dict().items()}
        inputs = inputs_for(head, 20)
        # In training mode, dropout and batch statistics change the encoder's output from call to call.
        assert torch.equal(head(inputs), head(inputs))
        assert torch.equal(head.select(inputs), head.select(inputs))
        head.step(inputs, head.select(inputs), torch.randn(20))
        assert [part.training for part in head.modules()] == modes
        assert all(torch.equal(before[name], value) for name, value in head.encoder.state_dict().items())
        assert not any(buffer.requires_grad for buffer in head.buffers())
        twin = copy.deepcopy(head).eval()
        assert torch.equal(head(inputs), twin(inputs))

    def test_training_mode_is_for_chosen_features_only(self) -> None:
        head = arms_head().train()
        inputs, action = inputs_for(head, 20), torch.zeros(20, dtype=torch.int64)
        one, other = head.chosen_features(inputs, action), head.chosen_features(inputs, action)
        assert not torch.equal(one, other)
        one.sum().backward()
        assert all(parameter.grad is not None for parameter in head.encoder.parameters())

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("make", "batch"), [(arms_head, ()), (arms_head, (2,)), (product_head, (2,)), (outer_head, ())]
    )
    def test_script_and_program_equal_eager(self, make: Any, batch: tuple[int, ...]) -> None:
        head = make(batch_shape=batch).train()
        example = inputs_for(head, *batch)
        scripted, program = to_torchscript(head, example=example), to_program(head, example=example).module()
        past, reward, learn = (example, torch.zeros(batch, dtype=torch.int64)), torch.zeros(batch), torch.tensor(False)
        lead = len(batch)
        for t in range(20):
            inputs = inputs_for(head, *batch)
            if head.actions is None:
                inputs = inputs.narrow(lead, 0, 1 + t % ARMS)
            mask = torch.rand(head(inputs).shape) < 0.8
            mask[..., 0] = True
            action = head.select(inputs, mask)
            decision = inputs.unsqueeze(lead), mask.unsqueeze(lead)
            assert torch.equal(action, program(*past, reward.double(), learn.expand(batch), *decision)[0].squeeze(-1))
            assert torch.equal(action, scripted.select(inputs, mask))
            torch.testing.assert_close(scripted(inputs), head(inputs))
            past, reward, learn = (inputs, action), torch.randn(batch), torch.tensor(True)
            head.step(*past, reward)
            scripted.step(*past, reward)
        assert_close_state(head, scripted)

    def test_a_script_refuses_training_mode(self) -> None:
        head = arms_head()
        scripted = to_torchscript(head, example=inputs_for(head)).train()
        with pytest.raises(torch.jit.Error, match="expected evaluation mode"):
            scripted.select(inputs_for(head))
        assert scripted.eval().select(inputs_for(head)).shape == ()

    def test_low_precision_and_gradients(self) -> None:
        head = BanditHead(nn.Linear(FEATURES, DIM).to(torch.bfloat16), OFUL(DIM))
        inputs = torch.randn(ARMS, FEATURES, dtype=torch.bfloat16, requires_grad=True)
        head.step(inputs, head.select(inputs), torch.tensor(1.0))
        head(inputs).sum().backward()
        assert inputs.grad is not None
        assert not head.policy.estimator.theta_hat.requires_grad

    def test_state_dict_carries_encoder_actions_and_statistics(self) -> None:
        head = product_head()
        head.step(inputs_for(head, 5), torch.arange(5), torch.randn(5))
        other = product_head()
        assert not same_state(head, other)
        other.load_state_dict(head.state_dict())
        assert same_state(head, other)

    @pytest.mark.parametrize(
        ("error", "text", "build"),
        [
            (TypeError, "encoder: expected a torch.nn.Module", lambda: BanditHead(lambda x: x, OFUL(DIM))),
            (
                TypeError,
                "policy: expected a rule of choice, such as UCB, or an Estimator",
                lambda: BanditHead(encoder(), nn.Linear(DIM, 1)),
            ),
            (
                TypeError,
                "got 5; give actions=5 to torchonline.bandit",
                lambda: BanditHead(encoder(), torchonline.bandit(DIM), actions=5),
            ),
            (
                ValueError,
                "actions: expected a list of at least one name",
                lambda: BanditHead(encoder(), OFUL(3), actions=[["1.0"]]),
            ),
            (
                TypeError,
                "actions: expected a floating",
                lambda: BanditHead(encoder(), OFUL(3), actions=torch.eye(3).int()),
            ),
            (
                ValueError,
                r"actions: expected shape \(K, e\)",
                lambda: BanditHead(encoder(), OFUL(3), actions=torch.ones(3)),
            ),
            (
                ValueError,
                r"actions: expected shape \(K, 3\)",
                lambda: BanditHead(encoder(), OFUL(3), actions=torch.eye(4)),
            ),
            (
                ValueError,
                "actions: expected finite",
                lambda: BanditHead(encoder(), OFUL(3), actions=torch.eye(3).log()),
            ),
            (
                ValueError,
                "actions: expected a width that divides the policy's dim 7",
                lambda: BanditHead(encoder(), OFUL(7), actions=torch.eye(3), combine="outer"),
            ),
            (ValueError, "combine: expected one of", lambda: BanditHead(encoder(), OFUL(3), combine="sum")),
            (ValueError, "feature_dims: expected", lambda: BanditHead(encoder(), OFUL(3), feature_dims=0)),
        ],
    )
    def test_constructor_errors(self, error: type[Exception], text: str, build: Any) -> None:
        with pytest.raises(error, match=text):
            build()

    @pytest.mark.parametrize(
        ("error", "text", "arguments"),
        [
            (TypeError, "inputs: expected a torch.Tensor, .*, got str", {"inputs": "1.0"}),
            (
                ValueError,
                r"inputs: expected shape \(2, \[n\], K, feature\), got \(3, 5, 4\)",
                {"inputs": torch.ones(3, 5, 4)},
            ),
            (ValueError, r"inputs: .* got \(2, 1, 1, 5, 4\)", {"inputs": torch.ones(2, 1, 1, 5, 4)}),
            (ValueError, r"inputs: .* got \(4,\)|inputs: .* got \(4\)", {"inputs": torch.ones(4)}),
            (ValueError, "inputs: expected finite values", {"inputs": torch.full((2, 5, 4), torch.nan)}),
            (TypeError, "action: expected an int64 tensor or integers, got float", {"action": 1.0}),
            (TypeError, "action: expected torch.int64, got torch.int32", {"action": torch.zeros(2, dtype=torch.int32)}),
            (ValueError, r"action: expected shape \(2\)", {"action": torch.tensor(0)}),
            (ValueError, "action: expected indices from 0 to 4, got 5", {"action": torch.tensor([0, 5])}),
            (ValueError, "action: expected indices from 0 to 4, got -1", {"action": torch.tensor([-1, 0])}),
            (ValueError, r"reward: expected shape \(2\)", {"reward": torch.ones(3)}),
            (ValueError, "reward: expected finite", {"reward": torch.tensor([0.0, torch.inf])}),
            (TypeError, "noise_scale: expected a torch.Tensor", {"noise_scale": "1.0"}),
        ],
    )
    def test_step_errors_change_nothing(self, error: type[Exception], text: str, arguments: dict[str, Any]) -> None:
        head = arms_head(batch_shape=(2,))
        before = copy.deepcopy(head)
        good = {"inputs": torch.ones(2, 5, 4), "action": torch.zeros(2, dtype=torch.int64), "reward": torch.ones(2)}
        with pytest.raises(error, match=text):
            head.step(**(good | arguments))
        assert same_state(head, before)
        head.step(**good)
        assert not same_state(head, before)

    @pytest.mark.parametrize("width", [DIM - 1, DIM + 1])
    def test_encoder_of_wrong_width(self, width: int) -> None:
        head = BanditHead(encoder(width), OFUL(DIM))
        with pytest.raises(ValueError, match=rf"encoder: expected output of shape \(n, 3\).* got \(5, {width}\)"):
            head.select(torch.randn(ARMS, FEATURES))

    def test_encoder_without_rows(self) -> None:
        head = BanditHead(nn.Flatten(0), OFUL(DIM))
        with pytest.raises(ValueError, match=r"encoder: expected output of shape \(n, 3\).* got \(20\)"):
            head.select(torch.randn(ARMS, FEATURES))

    def test_nan_inputs_and_masks_without_an_arm(self) -> None:
        head = arms_head()
        with pytest.raises(ValueError, match="inputs: expected finite"):
            head.select(torch.full((ARMS, FEATURES), torch.nan))
        with pytest.raises(ValueError, match="mask: expected an available entry in each row"):
            head.select(torch.randn(ARMS, FEATURES), torch.zeros(ARMS, dtype=torch.bool))


def test_repr_says_what_was_asked_for() -> None:
    plain = BanditHead(nn.Linear(FEATURES, DIM), OFUL(DIM))
    assert plain.extra_repr() == ""
    assert repr(plain).startswith("BanditHead(\n  (encoder): Linear(in_features=4, out_features=3, bias=True)\n")
    outer = BanditHead(nn.Flatten(), OFUL(6), actions=torch.eye(ARMS, 3), combine="outer", feature_dims=3)
    assert outer.extra_repr() == "actions=<torch.float64 of shape (5, 3)>, combine='outer', feature_dims=3"
    assert NeuralLinearBandit(plain).extra_repr() == ""
    trained = NeuralLinearBandit(plain, feedback="batch", train_encoder_every=60, encoder_learning_rate=0.01)
    assert trained.extra_repr() == "feedback='batch', train_encoder_every=60, encoder_learning_rate=0.01"
    assert repr(trained.replay) == "Replay(size=2000)"
    trained.replay.push(torch.zeros(6, 1, FEATURES), torch.zeros(6, dtype=torch.int64), torch.zeros(6))
    assert repr(trained.replay) == "Replay(size=2000, inputs=<torch.float32 of shape (2000, 1, 4)>)"
    loader = RoundLoader(torch.zeros(20, 5, 4), torch.zeros(20, 5), batch_size=10)
    tensors = "(<torch.float32 of shape (20, 5, 4)>, <torch.float32 of shape (20, 5)>)"
    assert repr(loader) == f"RoundLoader(tensors={tensors}, batch_size=10)"
    shuffled = RoundLoader(torch.zeros(3), rounds=8, shuffle=True, seed=1)
    share = RoundLoader(torch.zeros(3), rank=0, world_size=2)
    assert repr(share) == "RoundLoader(tensors=(<torch.float32 of shape (3)>,), rank=0, world_size=2)"
    assert repr(shuffled) == ("RoundLoader(tensors=(<torch.float32 of shape (3)>,), rounds=8, shuffle=True, seed=1)")


class TestReplay:
    def test_keeps_the_last_rounds_in_order_however_they_come(self) -> None:
        inputs, action, reward = torch.randn(23, 2, 4), torch.arange(46).reshape(23, 2), torch.randn(23, 2)
        for size in (1, 5, 7, 23, 40):
            for cut in (1, 3, 10, 23):
                replay = Replay(size)
                for start in range(0, 23, cut):
                    replay.push(*(values[start : start + cut] for values in (inputs, action, reward)))
                for kept, values in zip(replay.in_order(), (inputs, action, reward), strict=True):
                    assert torch.equal(kept, values[-size:])
                assert replay.inputs.shape == (size, 2, 4)

    def test_state_dict_into_a_fresh_replay(self) -> None:
        replay = Replay(4)
        replay.push(torch.randn(6, 3), torch.arange(6), torch.randn(6))
        fresh = Replay(4)
        fresh.load_state_dict(replay.state_dict())
        assert same_state(fresh, replay)
        fresh.push(torch.randn(1, 3), torch.zeros(1, dtype=torch.int64), torch.randn(1))
        assert not same_state(fresh, replay)


class TestRoundLoader:
    def test_passes_are_permutations_with_orders_of_their_own(self) -> None:
        loader = RoundLoader(torch.arange(10), rounds=25, batch_size=4, shuffle=True, seed=3)
        batches = [batch for (batch,) in loader]
        assert [len(batch) for batch in batches] == [4] * 6 + [1]
        assert len(loader) == 7
        stream = torch.cat(batches)
        first, second, third = stream[:10], stream[10:20], stream[20:]
        assert torch.equal(first.sort().values, torch.arange(10))
        assert torch.equal(second.sort().values, torch.arange(10))
        assert not torch.equal(first, second)
        assert len(third.unique()) == 5
        assert torch.equal(torch.cat([batch for (batch,) in loader]), stream)
        other = RoundLoader(torch.arange(10), rounds=25, batch_size=25, shuffle=True, seed=4)
        assert not torch.equal(next(iter(other))[0], stream)

    def test_tensors_stay_aligned(self) -> None:
        for a, b in RoundLoader(torch.arange(10), 10 * torch.arange(10), batch_size=3, shuffle=True):
            assert torch.equal(10 * a, b)

    @pytest.mark.parametrize("played", range(5))
    def test_resumes_where_it_was(self, played: int) -> None:
        loader = RoundLoader(torch.arange(10), batch_size=3, shuffle=True)
        whole = [batch for (batch,) in loader]
        batches = iter(loader)
        for _ in range(played):
            next(batches)
        fresh = RoundLoader(torch.arange(10), batch_size=3, shuffle=True)
        if played:
            fresh.load_state_dict(loader.state_dict())
        rest = [batch for (batch,) in fresh]
        expected = whole[played:] or whole
        assert all(torch.equal(a, b) for a, b in zip(rest, expected, strict=True))
        assert len(list(fresh)) == 4

    @pytest.mark.parametrize(
        ("error", "text", "build"),
        [
            (ValueError, "tensors: expected one or more", lambda: RoundLoader()),
            (ValueError, "tensors: .*lengths \\[3, 4\\]", lambda: RoundLoader(torch.ones(3), torch.ones(4))),
            (ValueError, "tensors: .*above 0", lambda: RoundLoader(torch.ones(0))),
            (ValueError, "tensors: .*above 0", lambda: RoundLoader(torch.tensor(1.0))),
            (TypeError, "tensors: expected torch.Tensors, got list", lambda: RoundLoader([1.0])),
            (ValueError, "batch_size: expected", lambda: RoundLoader(torch.ones(3), batch_size=0)),
            (TypeError, "rounds: expected", lambda: RoundLoader(torch.ones(3), rounds=2.5)),
            (ValueError, "rank: expected rank and world_size", lambda: RoundLoader(torch.ones(3), world_size=2)),
            (ValueError, "world_size: expected rank and world", lambda: RoundLoader(torch.ones(3), rank=0)),
            (ValueError, "rank: expected .* 0 to 1, got 2", lambda: RoundLoader(torch.ones(3), rank=2, world_size=2)),
            (ValueError, "rank: expected .* 0 to 1, got -1", lambda: RoundLoader(torch.ones(3), rank=-1, world_size=2)),
            (ValueError, "world_size: expected", lambda: RoundLoader(torch.ones(3), rank=0, world_size=0)),
            (TypeError, "rank: expected an integer", lambda: RoundLoader(torch.ones(3), rank=True, world_size=2)),
            (TypeError, "world_size: expected an integer", lambda: RoundLoader(torch.ones(3), rank=0, world_size=2.0)),
        ],
    )
    def test_errors(self, error: type[Exception], text: str, build: Any) -> None:
        with pytest.raises(error, match=text):
            build()

    @pytest.mark.parametrize("world", [1, 2, 4, 7])
    @pytest.mark.parametrize("rounds", [1, 3, 12, 25, 27])
    def test_each_round_goes_to_one_rank(self, world: int, rounds: int) -> None:
        """All ranks have as many batches, of nearly as many rounds; put together they are those of one process."""
        options: dict[str, Any] = {"rounds": rounds, "shuffle": True}
        data = torch.arange(10), 10 * torch.arange(10)
        ranks = [RoundLoader(*data, batch_size=3, rank=i, world_size=world, **options) for i in range(world)]
        whole = RoundLoader(*data, batch_size=3 * world, **options)
        batches = [list(rank) for rank in ranks]
        assert {len(rank) for rank in ranks} == {len(one) for one in batches} == {len(whole)}
        for parts, expected in zip(zip(*batches, strict=True), whole, strict=True):
            for i, part in enumerate(zip(*parts, strict=True)):
                assert torch.equal(torch.cat(part), expected[i])
            sizes = [len(part[0]) for part in parts]
            assert max(sizes) - min(sizes) <= 1
            assert sizes == sorted(sizes, reverse=True)

    @pytest.mark.parametrize("played", range(4))
    def test_one_position_resumes_all_ranks(self, played: int) -> None:
        """The last batch is empty on two ranks. A changed number of rounds in a batch is refused, except between epochs."""

        def loaders(size: int, world: int) -> list[RoundLoader]:
            return [RoundLoader(torch.arange(14), batch_size=size, rank=i, world_size=world) for i in range(world)]

        ranks = loaders(2, 3)
        for rank in ranks:
            batches = iter(rank)
            for _ in range(played):
                next(batches)
        assert len({str(rank.state_dict()) for rank in ranks}) == 1
        state = ranks[0].state_dict()
        missing = [*range(6 * played, 14)] or [*range(14)]
        for others in (loaders(2, 3), loaders(3, 2), loaders(6, 1)):
            for other in others:
                other.load_state_dict(state)
            assert sorted(int(i) for other in others for (batch,) in other for i in batch) == missing
            assert sorted(int(i) for other in others for (batch,) in other for i in batch) == [*range(14)]
        (other,) = loaders(2, 1)
        other.load_state_dict(state)
        if 0 < played < 3:
            with pytest.raises(ValueError, match=r"^next_batch: expected .* of 6 rounds .*, got batches of 2"):
                next(iter(other))
        else:
            assert len(list(other)) == 7
        (old,) = loaders(2, 1)
        old.load_state_dict({"next_batch": 6})  # of a version without ranks
        assert [batch.tolist() for (batch,) in old] == [[12, 13]]

    def test_a_share_of_a_log(self) -> None:
        log = LoggedRounds(torch.randn(3, FEATURES), torch.arange(3), torch.rand(3))
        (batch,) = RoundLoader(log, batch_size=2, rank=1, world_size=2)
        assert isinstance(batch, LoggedRounds)
        assert batch.action.tolist() == [2]
        (none,) = RoundLoader(log, rounds=1, rank=1, world_size=2)
        assert [tuple(part.shape) for part in none[:3]] == [(0, FEATURES), (0,), (0,)]


def trainer(*callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    checkpoints = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    return pl.Trainer(
        accelerator="cpu", callbacks=list(callbacks), **(quiet | {"enable_checkpointing": checkpoints} | options)
    )


def rounds_for(head: BanditHead, n: int, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, rewards and means of n rounds."""
    means = torch.randn(n, *batch, ARMS, dtype=torch.float64)
    return inputs_for(head, n, *batch), means + 0.1 * torch.randn_like(means), means


def play_by_hand(head: BanditHead, inputs: Tensor, rewards: Tensor) -> Tensor:
    """Play without Lightning, one round after another."""
    actions = []
    for row, payoffs in zip(inputs, rewards, strict=True):
        actions.append(head.select(row))
        head.step(row, actions[-1], of_chosen(payoffs, actions[-1]))
    return torch.stack(actions)


class Recorder(pl.Callback):
    """Callback that keeps the outputs of the training steps."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Tensor]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.outputs.append(outputs)

    def __getitem__(self, name: str) -> Tensor:
        return torch.cat([outputs[name] for outputs in self.outputs])


class Coin(Rule):
    """Rule of random scores."""

    def scores_of(self, predictor: Tensor, width: Tensor) -> Tensor:
        return torch.rand(predictor.shape)


class TestNeuralLinearBandit:
    @pytest.mark.parametrize("make", HEADS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_plays_as_a_loop_would(self, make: Any, batch: tuple[int, ...]) -> None:
        head = make(batch_shape=batch)
        by_hand = copy.deepcopy(head)
        inputs, rewards, means = rounds_for(head, 50, *batch)
        recorder = Recorder()
        bandit = NeuralLinearBandit(head, train_encoder_every=None)
        trainer(recorder, max_epochs=1).fit(bandit, RoundLoader(inputs, rewards, means, batch_size=12))
        action = play_by_hand(by_hand, inputs, rewards)
        assert torch.equal(recorder["action"], action)
        assert torch.equal(recorder["reward"], of_chosen(rewards, action))
        assert torch.equal(recorder["regret"], means.amax(-1) - of_chosen(means, action))
        assert_close_state(head, by_hand)
        assert bandit.rounds == 50
        assert torch.equal(bandit(inputs[0]), head(inputs[0]))

    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_batch_feedback_decides_from_one_state(self, batch: tuple[int, ...]) -> None:
        head = arms_head(batch_shape=batch)
        by_hand = copy.deepcopy(head)
        inputs, rewards, means = rounds_for(head, 30, *batch)
        recorder = Recorder()
        bandit = NeuralLinearBandit(head, feedback="batch")
        trainer(recorder, max_epochs=1).fit(bandit, RoundLoader(inputs, rewards, means, batch_size=10))
        actions = []
        for start in range(0, 30, 10):
            actions += [by_hand.select(row) for row in inputs[start : start + 10]]
            for t in range(start, start + 10):
                by_hand.step(inputs[t], actions[t], of_chosen(rewards[t], actions[t]))
        assert torch.equal(recorder["action"], torch.stack(actions))
        assert_close_state(head, by_hand)
        assert not torch.equal(recorder["action"], play_by_hand(arms_head(batch_shape=batch), inputs, rewards))

    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_the_rewards_of_a_batch_are_learnt_in_blocks(self, batch: tuple[int, ...]) -> None:
        """With ``feedback="batch"``, and from a log: as the policy learns the features of the chosen arms."""
        head = arms_head(AnytimeHeavyTailUCB(DIM, batch_shape=batch))
        by_hand, logged = copy.deepcopy(head), copy.deepcopy(head)
        inputs, rewards, means = rounds_for(head, 80, *batch)
        recorder, lead = Recorder(), len(batch)
        bandit = NeuralLinearBandit(head, feedback="batch", train_encoder_every=None)
        trainer(recorder, max_epochs=1).fit(bandit, RoundLoader(inputs, rewards, means, batch_size=40))
        action = recorder["action"]
        for rows in (slice(0, 40), slice(40, 80)):
            assert torch.equal(by_hand.select(inputs[rows].movedim(0, lead)).movedim(lead, 0), action[rows])
            log = (inputs[rows], action[rows], of_chosen(rewards[rows], action[rows]))
            by_hand.learn(*(values.movedim(0, lead) for values in log))
        assert_close_state(head, by_hand)
        log = LoggedRounds(inputs, action, of_chosen(rewards, action))
        module = NeuralLinearBandit(logged, train_encoder_every=None)
        trainer(max_epochs=1).fit(module, RoundLoader(log, batch_size=40))
        assert_close_state(logged, by_hand)
        stepped = arms_head(AnytimeHeavyTailUCB(DIM, batch_shape=batch))
        stepped.encoder.load_state_dict(head.encoder.state_dict())
        stepped.step(*(values.movedim(0, lead) for values in log[:3]))
        states = (each.policy.estimator.bias for each in (stepped, logged))
        assert not torch.equal(*states)  # which a step and a block bound each in its own way

    def test_regret_without_means_is_of_the_rewards(self) -> None:
        head = arms_head()
        inputs, rewards, _ = rounds_for(head, 8)
        recorder = Recorder()
        trainer(recorder, max_epochs=1).fit(NeuralLinearBandit(head), RoundLoader(inputs, rewards, batch_size=4))
        assert torch.equal(recorder["regret"], rewards.amax(-1) - recorder["reward"])

    # Whether the warning appears depends on the number of processors.
    @pytest.mark.filterwarnings("ignore:.*does not have many workers")
    def test_a_data_loader_of_torch_will_do(self) -> None:
        head = arms_head()
        data = torch.utils.data.TensorDataset(*rounds_for(head, 20))
        trainer(max_epochs=1).fit(NeuralLinearBandit(head), torch.utils.data.DataLoader(data, batch_size=5))
        assert head.policy.estimator.rounds == 20

    @pytest.mark.parametrize("make", [HvtUCB, AnytimeHeavyTailUCB])
    def test_drives_any_policy(self, make: Any) -> None:
        head = arms_head(make(DIM, **({"horizon": 100} if make is HvtUCB else {})))
        trainer(max_epochs=1).fit(NeuralLinearBandit(head), RoundLoader(*rounds_for(head, 20), batch_size=10))
        assert head.policy.estimator.rounds == 20

    def test_max_steps_counts_batches_and_ends_with_a_whole_one(self) -> None:
        bandit = NeuralLinearBandit(arms_head())
        run = trainer(max_steps=4)
        run.fit(bandit, RoundLoader(*rounds_for(bandit.head, 25), batch_size=10))  # batches of 10, 10, 5, then again
        assert run.global_step == 4
        assert bandit.rounds == 35
        single = NeuralLinearBandit(arms_head())
        run = trainer(max_steps=15)
        run.fit(single, RoundLoader(*rounds_for(single.head, 40)))
        assert run.global_step == single.rounds == single.head.policy.estimator.rounds == 15

    def test_model_checkpoint_saves_every_n_steps(self, tmp_path: Path) -> None:
        bandit = NeuralLinearBandit(arms_head())
        keeper = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=2, save_top_k=-1)
        trainer(keeper, max_epochs=1).fit(bandit, RoundLoader(*rounds_for(bandit.head, 65), batch_size=10))
        files = sorted(tmp_path.iterdir())
        assert [file.name for file in files] == [f"epoch=0-step={step}.ckpt" for step in (2, 4, 6)]
        loaded = NeuralLinearBandit.load_from_checkpoint(files[1], head=arms_head(), weights_only=True)
        assert loaded.rounds == loaded.head.policy.estimator.rounds == 40
        assert loaded.feedback == "round"

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("policy", "batch_size", "train_encoder_every"),
        [("OFUL", 1, None), ("OFUL", 4, 10), ("ThompsonSampling", 1, 10), ("ThompsonSampling", 4, None)],
    )
    def test_resume_is_bit_exact_in_the_middle_of_an_epoch(
        self, tmp_path: Path, policy: str, batch_size: int, train_encoder_every: int | None
    ) -> None:
        steps = 37 if batch_size == 1 else 9
        layers = encoder()

        def fresh() -> NeuralLinearBandit:
            make = OFUL(DIM) if policy == "OFUL" else ThompsonSampling(RidgeRegression(DIM))
            head = BanditHead(copy.deepcopy(layers), make)
            options = {"replay_size": 25, "encoder_steps": 3, "encoder_batch_size": 8}
            return NeuralLinearBandit(head, train_encoder_every=train_encoder_every, **options)

        data = rounds_for(fresh().head, 60)

        def loader() -> RoundLoader:
            return RoundLoader(*data, rounds=100, batch_size=batch_size, shuffle=True)

        def run(bandit: NeuralLinearBandit, logger: RegretLogger, **options: Any) -> None:
            keeper = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=steps, save_top_k=-1, filename="{epoch}")
            trainer(keeper, logger, max_epochs=1, **options).fit(bandit, loader(), **resume)

        resume: dict[str, Any] = {}
        whole, interrupted, resumed = fresh(), fresh(), fresh()
        for bandit in (interrupted, resumed):
            bandit.seed.copy_(whole.seed)
        resumed.seed.zero_()
        totals = [RegretLogger() for _ in range(3)]
        run(whole, totals[0])
        for file in tmp_path.iterdir():
            file.unlink()
        run(interrupted, totals[1], max_steps=steps)
        assert interrupted.rounds == steps * batch_size
        # Moved, because Lightning would otherwise warn about files of the first run in the directory.
        (checkpoint,) = tmp_path.iterdir()
        moved = tmp_path.with_name("moved.ckpt")
        os.replace(checkpoint, moved)
        torch.manual_seed(1)
        resume = {"ckpt_path": moved, **weights_only()}
        run(resumed, totals[2])
        assert resumed.rounds == whole.rounds == 100
        assert same_state(resumed, whole)
        assert torch.equal(totals[2].regret.compute(), totals[0].regret.compute())
        assert all(torch.equal(a, b) for a, b in zip(totals[2].regret.curve(), totals[0].regret.curve(), strict=True))

    @pytest.mark.slow
    def test_resume_after_max_steps(self, tmp_path: Path) -> None:
        data = rounds_for(arms_head(), 100)
        head = arms_head()
        bandits = [NeuralLinearBandit(copy.deepcopy(head)) for _ in range(3)]
        for bandit in bandits:
            bandit.seed.zero_()
        trainer(max_steps=100).fit(bandits[0], RoundLoader(*data, shuffle=True))
        first = trainer(max_steps=37)
        first.fit(bandits[1], RoundLoader(*data, shuffle=True))
        first.save_checkpoint(tmp_path / "37.ckpt")
        last = trainer(max_steps=100)
        last.fit(bandits[2], RoundLoader(*data, shuffle=True), ckpt_path=tmp_path / "37.ckpt", **weights_only())
        assert last.global_step == 100
        assert same_state(bandits[2], bandits[0])

    def test_draws_are_its_own(self) -> None:
        head = arms_head(ThompsonSampling(RidgeRegression(DIM)))
        data = rounds_for(head, 30)
        recorders = []
        for seed, noise in ((1, 1), (1, 2), (2, 1)):
            bandit = NeuralLinearBandit(copy.deepcopy(head))
            bandit.seed.fill_(seed)
            torch.manual_seed(noise)
            recorders.append(Recorder())
            before = torch.get_rng_state()
            trainer(recorders[-1], max_epochs=1).fit(bandit, RoundLoader(*data, batch_size=10))
            assert torch.equal(torch.get_rng_state(), before)
        one, same, other = (recorder["action"] for recorder in recorders)
        assert torch.equal(one, same)
        assert not torch.equal(one, other)
        # The draws differ between batches.
        recorder = Recorder()
        bandit = NeuralLinearBandit(BanditHead(nn.Linear(FEATURES, DIM), Coin(RidgeRegression(DIM))))
        trainer(recorder, max_epochs=1).fit(bandit, RoundLoader(*data, batch_size=15))
        assert not torch.equal(recorder["action"][:15], recorder["action"][15:])
        torch.manual_seed(5)
        seed = NeuralLinearBandit(head).seed
        torch.manual_seed(5)
        assert torch.equal(seed, NeuralLinearBandit(head).seed)
        assert not torch.equal(seed, NeuralLinearBandit(head).seed)

    @pytest.mark.parametrize("make", HEADS)
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_no_statistics_of_stale_features_survive(self, make: Any, batch: tuple[int, ...]) -> None:
        head = make(batch_shape=batch)
        inputs, rewards, means = rounds_for(head, 40, *batch)
        before = copy.deepcopy(head.encoder.state_dict())
        recorder = Recorder()
        bandit = NeuralLinearBandit(head, train_encoder_every=20, replay_size=30, encoder_steps=5, encoder_batch_size=8)
        trainer(recorder, max_epochs=1).fit(bandit, RoundLoader(inputs, rewards, means, batch_size=10))
        assert any(not torch.equal(before[name], value) for name, value in head.encoder.state_dict().items())
        # A new learner learns the last 30 rounds with the features of the current encoder.
        fresh = OFUL(head.policy.estimator.dim, batch_shape=batch)
        lead = len(batch)
        action = recorder["action"]
        arms = head.encode(inputs).detach()
        x, reward = of_chosen(arms, action)[-30:], of_chosen(rewards, action)[-30:]
        fresh.step(*round_of(fresh, x.movedim(0, lead), reward.movedim(0, lead)))
        assert_close_state(head.policy, fresh)
        assert bool((head.policy.estimator.rounds == 30).all())
        assert bandit.rounds == 40
        assert all(parameter.grad is None for parameter in head.encoder.parameters())

    @pytest.mark.parametrize("batch_size", [7, 50])
    def test_training_does_not_wait_for_the_end_of_a_batch(self, batch_size: int) -> None:
        """With feedback after each round, the batch size does not change the play."""
        layers = nn.Linear(FEATURES, DIM)
        data = rounds_for(arms_head(), 50)
        heads = []
        for size in (1, batch_size):
            head = BanditHead(copy.deepcopy(layers), OFUL(DIM))
            bandit = NeuralLinearBandit(head, train_encoder_every=20, encoder_steps=3)
            bandit.seed.zero_()
            trainer(max_epochs=1).fit(bandit, RoundLoader(*data, batch_size=size))
            heads.append(head)
        assert_close_state(heads[0], heads[1])

    def test_with_batch_feedback_training_follows_the_batch(self) -> None:
        options = {"feedback": "batch", "train_encoder_every": 15, "replay_size": 12, "encoder_steps": 1}
        bandit = NeuralLinearBandit(arms_head(), **options)
        trainer(max_epochs=1).fit(bandit, RoundLoader(*rounds_for(bandit.head, 40), batch_size=10))
        # Trained after the batches that end at 20 and 30; then 10 more rounds follow the 12 of the replay.
        assert bandit.head.policy.estimator.rounds == 22

    @pytest.mark.parametrize("feedback", ["round", "batch"])
    def test_a_refused_round_is_not_counted_and_those_before_it_are(self, feedback: str) -> None:
        """With a NaN in round 8, all counters agree on 7 rounds, or on none."""
        inputs, rewards, means = rounds_for(arms_head(), 12)
        rewards[7] = torch.nan
        bandit = NeuralLinearBandit(arms_head(), feedback=feedback, train_encoder_every=5, replay_size=20)
        with pytest.raises(ValueError, match="reward: expected finite values, got nan"):
            trainer(max_epochs=1).fit(bandit, RoundLoader(inputs, rewards, means, batch_size=12, shuffle=False))
        learnt = 7 if feedback == "round" else 0
        assert bandit.rounds == bandit.head.policy.estimator.rounds == bandit.replay.rounds == learnt
        if learnt:
            assert bool(torch.isfinite(bandit.replay.in_order()[2]).all())

    def test_a_frozen_encoder_stays_as_it_is(self) -> None:
        head = arms_head()
        before = copy.deepcopy(head.encoder.state_dict())
        bandit = NeuralLinearBandit(head, train_encoder_every=None)
        trainer(max_epochs=1).fit(bandit, RoundLoader(*rounds_for(head, 60), batch_size=10))
        assert all(torch.equal(before[name], value) for name, value in head.encoder.state_dict().items())
        assert all(part.training for part in bandit.modules())

    @pytest.mark.slow
    def test_a_trained_encoder_learns_what_a_frozen_one_cannot(self) -> None:
        inputs = torch.randn(1500, ARMS, FEATURES)
        means = torch.tanh(2.0 * inputs[..., 0] * inputs[..., 1])
        rewards = means + 0.2 * torch.distributions.StudentT(2.1).sample(means.shape)
        layers = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 8))
        late = []
        for every in (None, 250):
            head = BanditHead(copy.deepcopy(layers), UCB(RidgeRegression(8, noise_scale=0.3, radius_scale=0.2)))
            recorder = Recorder()
            bandit = NeuralLinearBandit(head, train_encoder_every=every, encoder_learning_rate=3e-3)
            trainer(recorder, max_epochs=1).fit(bandit, RoundLoader(inputs, rewards, means, batch_size=50))
            late.append(recorder["regret"][-500:].mean().item())
        assert late[1] < 0.3 * late[0]

    def test_an_outlier_turns_the_encoder_no_more_than_a_large_reward(self) -> None:
        layers = nn.Linear(FEATURES, DIM)
        inputs, rewards, _ = rounds_for(arms_head(), 40)
        trained = []
        for outlier in (None, 1e3, 1e6):
            if outlier is not None:
                rewards[7] = outlier
            head = BanditHead(copy.deepcopy(layers), AnytimeHeavyTailUCB(DIM))
            bandit = NeuralLinearBandit(head, train_encoder_every=40)
            bandit.seed.zero_()
            trainer(max_epochs=1).fit(bandit, RoundLoader(inputs, rewards, batch_size=10))
            trained.append(torch.cat([value.flatten() for value in head.encoder.state_dict().values()]))
        torch.testing.assert_close(trained[1], trained[2], rtol=1e-3, atol=1e-4)
        assert not torch.allclose(trained[0], trained[1], rtol=1e-3, atol=1e-4)

    def test_memory_of_the_replay_is_bounded(self) -> None:
        bandit = NeuralLinearBandit(arms_head(), train_encoder_every=1000, replay_size=16)
        trainer(max_epochs=1).fit(bandit, RoundLoader(*rounds_for(bandit.head, 90), batch_size=40))
        assert [buffer.shape for buffer in bandit.replay.buffers()] == [(), (16, 1, FEATURES), (16,), (16,)]
        assert bandit.replay.rounds == 90

    def test_refuses_several_processes(self) -> None:
        bandit = NeuralLinearBandit(arms_head())

        class TwoProcesses:
            world_size, strategy = 2, None

        bandit._trainer = TwoProcesses()
        with pytest.raises(
            RuntimeError,
            match=r"expected one process, or strategy=torchonline.models.LearnerStrategy\(\), got 2 under NoneType",
        ):
            bandit.setup("fit")

    @pytest.mark.parametrize(
        ("error", "text", "options"),
        [
            (TypeError, "head: expected a BanditHead, got Linear", {"head": nn.Linear(1, 1)}),
            (ValueError, "feedback: expected one of", {"feedback": "never"}),
            (ValueError, "train_encoder_every: expected", {"train_encoder_every": 0}),
            (ValueError, "replay_size: expected", {"train_encoder_every": 5, "replay_size": 0}),
            (ValueError, "encoder_steps: expected", {"encoder_steps": 0}),
            (TypeError, "encoder_batch_size: expected", {"encoder_batch_size": 1.5}),
            (ValueError, "encoder_learning_rate: expected", {"encoder_learning_rate": 0.0}),
        ],
    )
    def test_constructor_errors(self, error: type[Exception], text: str, options: dict[str, Any]) -> None:
        with pytest.raises(error, match=text):
            NeuralLinearBandit(**({"head": arms_head()} | options))

    @pytest.mark.parametrize(
        ("text", "batch"),
        [
            ("batch: expected .* got 1 items", (torch.ones(4, ARMS, FEATURES),)),
            ("batch: expected .* got Tensor", torch.ones(4)),
            (r"rewards: expected shape \(4, 5\), got \(4, 6\)", (torch.ones(4, ARMS, FEATURES), torch.ones(4, 6))),
            (r"means: expected shape \(4, 5\)", (torch.ones(4, ARMS, FEATURES), torch.ones(4, 5), torch.ones(4, 6))),
        ],
    )
    def test_batches_of_another_kind(self, text: str, batch: Any) -> None:
        bandit = NeuralLinearBandit(arms_head())
        with pytest.raises(ValueError, match=text):
            bandit.training_step(batch, 0)
        assert bandit.rounds == 0


def logged(actions: list[int], rewards: list[float]) -> LoggedRounds:
    return LoggedRounds(torch.randn(len(actions), FEATURES), torch.tensor(actions), torch.tensor(rewards))


def in_training(policy: Any, **options: Any) -> NeuralLinearBandit:
    """A module whose steps can be called without a trainer."""
    bandit = NeuralLinearBandit(BanditHead(nn.Linear(FEATURES, DIM), policy), **options)
    bandit.configure_optimizers()
    bandit.log = lambda *_, **__: None  # type: ignore[method-assign]
    return bandit


class TestArmsThatComeAndGo:
    def test_the_replay_follows(self) -> None:
        """Rounds of the removed arm are not learnt again, and those of the others are those of the same arms."""
        bandit = in_training(torchonline.bandit(DIM, actions=3, scale=False), train_encoder_every=8)
        bandit.training_step(logged([0, 1, 2, 0, 1, 2, 2], [0.0, 0.5, 1.0] + [0.0, 0.5, 1.0, 1.0]), 0)
        bandit.head.policy.remove_actions([0])
        bandit.head.policy.add_actions()
        bandit.training_step(logged([3], [0.25]), 1)  # of the new arm; the encoder is trained after it
        assert bandit.head.policy.estimator.rounds.tolist() == [2, 3, 1]
        assert bandit.replay.in_order()[1].tolist() == [1, 2, 1, 2, 2, 3]
        assert bandit.replay.in_order()[2].tolist() == [0.5, 1.0, 0.5, 1.0, 1.0, 0.25]
        assert bandit.readout.shape == (3, DIM)
        assert int(bandit.rounds) == 8

    def test_a_checkpoint_after_a_removal_goes_on(self, tmp_path: Path) -> None:
        bandit = NeuralLinearBandit(
            BanditHead(nn.Linear(FEATURES, DIM), torchonline.bandit(DIM, actions=3, scale=False))
        )
        inputs, rewards = torch.randn(60, FEATURES), torch.rand(60, 3)
        run = trainer(max_epochs=1)
        run.fit(bandit, RoundLoader(inputs, rewards, batch_size=10))
        bandit.head.policy.remove_actions([1])
        run.save_checkpoint(tmp_path / "after.ckpt")
        loaded = NeuralLinearBandit.load_from_checkpoint(tmp_path / "after.ckpt")
        assert same_state(bandit, loaded)
        for each in (bandit, loaded):
            trainer(max_epochs=1).fit(each, RoundLoader(inputs, rewards[:, 1:], batch_size=10))
        assert same_state(bandit, loaded)

    def test_an_empty_replay_follows_again(self) -> None:
        bandit = in_training(torchonline.bandit(DIM, actions=2, scale=False))
        bandit.training_step(logged([0, 0], [0.0, 0.5]), 0)
        bandit.head.policy.remove_actions([0])
        assert int(bandit.state_dict()["replay.rounds"]) == 0
        bandit.head.policy.add_actions()
        assert int(bandit.state_dict()["replay.rounds"]) == 0
        bandit.training_step(logged([2], [0.5]), 1)
        assert bandit.replay.in_order()[1].tolist() == [2]

    def test_a_refused_state_changes_nothing(self) -> None:
        bandit = in_training(torchonline.bandit(DIM, actions=4, scale=False), train_encoder_every=4)
        bandit.training_step(logged([0, 1, 2, 3], [0.0, 0.5, 1.0, 1.0]), 0)
        of_four = copy.deepcopy(bandit.state_dict())
        bandit.head.policy.remove_actions([0])
        before = copy.deepcopy(bandit.state_dict())
        with pytest.raises(RuntimeError):
            bandit.load_state_dict(of_four)
        assert before.keys() == bandit.state_dict().keys()
        assert all(torch.equal(before[name], value) for name, value in bandit.state_dict().items())
        bandit.training_step(logged([2], [1.0]), 1)
        empty = in_training(torchonline.bandit(DIM, actions=3, scale=False), train_encoder_every=4)
        with pytest.raises(RuntimeError):
            empty.load_state_dict(of_four)
        assert empty.replay.inputs is None

    def test_a_parent_module_loads_them(self) -> None:
        states = []
        for _ in range(2):
            bandit = in_training(torchonline.bandit(DIM, actions=3, scale=False), train_encoder_every=4)
            if not states:
                bandit.training_step(logged([0, 1, 2, 2], [0.0, 0.5, 1.0, 1.0]), 0)
            bandit.head.policy.remove_actions([1])
            parent = nn.ModuleDict({"bandit": bandit})
            parent.load_state_dict(states[0] if states else parent.state_dict())
            states.append(copy.deepcopy(parent.state_dict()))
        assert states[0].keys() == states[1].keys()
        assert all(torch.equal(states[0][name], value) for name, value in states[1].items())

    def test_ids_are_never_given_twice(self) -> None:
        policy = torchonline.bandit(DIM, actions=2)
        policy.remove_actions([1])
        policy.add_actions(2)
        assert policy.action_ids == [0, 2, 3]


class TestBatches:
    @pytest.mark.parametrize(
        ("error", "batch"),
        [
            (
                r"^rewards: expected 4 rounds, as inputs have, got shape \(3, 2\)",
                (torch.zeros(4, 4), torch.zeros(3, 2)),
            ),
            (r"^inputs: expected shape \(N, ...\), got \(\)", (torch.tensor(1.0), torch.zeros(0, 2))),
            (r"^rewards: expected shape \(0, 2\), got \(0, 3\)", (torch.zeros(0, 4), torch.zeros(0, 3))),
            (r"^rewards: expected 0 rounds, as inputs have", (torch.zeros(0, 4), torch.zeros(2, 2))),
            (
                r"^reward: expected 4 rounds",
                LoggedRounds(torch.zeros(4, 4), torch.zeros(3, dtype=torch.int64), torch.zeros(3)),
            ),
            (
                r"^reward: expected a torch.Tensor, got list",
                {"inputs": torch.zeros(1, 4), "action": [0], "reward": [1.0]},
            ),
            (
                r"^inputs: expected features of shape \(4\) and torch.float32, as in",
                (torch.zeros(2, 5), torch.zeros(2, 2)),
            ),
            (r"and torch.uint8$", (torch.zeros(2, 4, dtype=torch.uint8), torch.zeros(2, 2))),
        ],
    )
    def test_wrong_batches_are_named_and_change_nothing(self, error: str, batch: Any) -> None:
        bandit = in_training(torchonline.bandit(DIM, actions=2, scale=False))
        bandit.training_step(logged([0, 1], [0.5, 1.0]), 0)
        before = copy.deepcopy(bandit.state_dict())
        with pytest.raises((TypeError, ValueError), match=error):
            bandit.training_step(batch, 1)
        assert all(torch.equal(before[name], value) for name, value in bandit.state_dict().items())

    def test_types_may_change_from_batch_to_batch(self) -> None:
        """Integers first, which would cut later rewards."""
        bandit = in_training(torchonline.bandit(DIM, actions=2, scale=False), train_encoder_every=5)
        for k, reward in enumerate(
            (torch.tensor([1, 0]), torch.tensor([True]), torch.tensor([0.25], dtype=torch.float64))
        ):
            bandit.training_step((torch.randn(len(reward), FEATURES), torch.stack([reward, reward], -1)), k)
        assert bandit.replay.in_order()[2].tolist() == [1.0, 0.0, 1.0, 0.25]
        assert bandit.replay.rounds == bandit.rounds == 4

    def test_means_may_be_true_or_false(self) -> None:
        bandit = in_training(torchonline.bandit(DIM, actions=2, scale=False))
        outputs = bandit.training_step((torch.randn(2, FEATURES), torch.ones(2, 2), torch.eye(2).bool()), 0)
        assert set(outputs["regret"].tolist()) <= {0.0, 1.0}
