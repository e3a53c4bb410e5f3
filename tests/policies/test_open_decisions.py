"""Decisions whose features enter the statistics before their rewards: equality with steps, exactness, errors, files."""

import copy
import io
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.interruption import interrupted
from torchonline import (
    OFUL,
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    FixedArms,
    RadiusSelector,
    RidgeRegression,
    RobustRidgeRegression,
    ScaledPolicy,
    StandardScaler,
    ThompsonSampling,
    bandit,
)
from torchonline.models import BanditHead

pytestmark = pytest.mark.fast

D = torch.float64
DIM, ARMS = 3, 4


def arms_with_models(**options: Any) -> Any:
    return bandit(DIM, actions=ARMS, **options)


def arms_with_features(**options: Any) -> Any:
    return bandit(DIM, **options)


def robust(**options: Any) -> Any:
    return bandit(DIM, "real", actions=ARMS, **options)


def of_encoder(**options: Any) -> Any:
    return bandit(DIM, scale=False, **options)


KINDS = (arms_with_models, arms_with_features, robust, of_encoder)


def inputs_of(policy: Any, count: int, seed: int = 0) -> Tensor:
    """Return the inputs of some decisions, ``(count, *B, ...)``."""
    generator = torch.Generator().manual_seed(seed)
    arms = (ARMS,) if policy.has_arm_inputs else ()
    z = torch.randn((count, *policy.batch_shape, *arms, DIM), generator=generator, dtype=D)
    return z if policy.learner is policy.estimator else z * torch.tensor([1.0, 50.0, 0.02], dtype=D) + 1.0


def rewards_of(policy: Any, count: int, seed: int = 1) -> Tensor:
    return torch.rand((count, *policy.batch_shape), generator=torch.Generator().manual_seed(seed), dtype=D)


def is_close(one: Any, other: Any, tolerance: float) -> None:
    """Compare all statistics, relative to the largest number of each."""
    for name, value in other.state_dict().items():
        if value.numel():
            error = (one.state_dict()[name].double() - value.double()).abs().max()
            assert float(error) <= tolerance * float(value.double().abs().max()), name


def is_equal(one: Any, state: dict[str, Tensor]) -> None:
    for name, value in one.state_dict().items():
        assert torch.equal(value, state[name]), name


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("batch_shape", [(), (2,)])
@pytest.mark.parametrize("is_small", [True, False])
def test_to_open_and_close_at_once_is_to_step(make: Any, batch_shape: tuple[int, ...], is_small: bool) -> None:
    stepped, opened = make(batch_shape=batch_shape), make(batch_shape=batch_shape)
    for policy in () if is_small else (stepped, opened):
        policy.learner.__dict__["is_small"] = False
    inputs, rewards = inputs_of(stepped, 80), rewards_of(stepped, 80)
    for t, (x, reward) in enumerate(zip(inputs, rewards, strict=True)):
        k = stepped.select(x)
        scale = 0.3 + rewards[t - 1] if t % 3 == 0 else None
        stepped.step(x, k, reward, noise_scale=scale)
        opened.close(opened.open(x, k, noise_scale=scale), reward)
    is_close(opened, stepped, 1e-11)


@pytest.mark.parametrize("estimator", [AdaptiveRidgeRegression, RobustRidgeRegression])
@pytest.mark.parametrize("actions", [None, ARMS])
def test_the_parameter_is_ridge_regression_on_what_is_known_and_assumed(estimator: Any, actions: int | None) -> None:
    """Open decisions have their own predictions as responses; the others are closed in another order, or dropped."""
    policy: Any = UCB(estimator(DIM)) if actions is None else DisjointArms(estimator(DIM), actions)
    inputs, rewards = inputs_of(policy, 60) / torch.tensor([1.0, 50.0, 1.0], dtype=D), rewards_of(policy, 60)
    random, waiting, known = np.random.default_rng(3), list[Tensor](), list[tuple[Tensor, float]]()
    for t, (x, reward) in enumerate(zip(inputs, rewards, strict=True)):
        waiting.append(policy.open(x, policy.select(x)))
        if len(waiting) > 7:
            record = waiting.pop(int(random.integers(len(waiting))))
            if t % 5 == 0:
                policy.drop(record)
            else:
                policy.close(record, reward)
                known.append((record, float(policy.estimator.target.reshape(-1)[0])))
    one = policy.estimator
    rows = [*known, *((record, float(record[-1])) for record in waiting)]
    for arm, (theta, ones) in enumerate(
        zip(one.theta_hat.reshape(-1, DIM), one.ones_hat.reshape(-1, DIM), strict=True)
    ):
        own = [(record[-2 - DIM : -2], response) for record, response in rows if record[1] == arm]
        x = torch.stack([row for row, _ in own]) if own else torch.zeros((0, DIM), dtype=D)
        V = one.ridge * torch.eye(DIM, dtype=D) + x.mT @ x
        response = torch.tensor([value for _, value in own], dtype=D)
        assert torch.allclose(one.V.reshape(-1, DIM, DIM)[arm], V, rtol=1e-10)
        assert torch.allclose(theta, torch.linalg.solve(V, x.mT @ response), rtol=1e-9, atol=1e-12)
        assert torch.allclose(ones, torch.linalg.solve(V, x.sum(0)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("make", KINDS)
def test_a_dropped_decision_leaves_nothing(make: Any) -> None:
    policy = make()
    inputs, rewards = inputs_of(policy, 21), rewards_of(policy, 20)
    for x, reward in zip(inputs, rewards, strict=False):
        policy.step(x, policy.select(x), reward)
    before = copy.deepcopy(policy)
    policy.drop(policy.open(inputs[-1].expand(3, *inputs[-1].shape), torch.arange(3)))
    is_close(policy, before, 1e-10)


def test_early_rounds_are_renewed_whatever_the_order() -> None:
    """The rounds are those of steps in the order in which rewards come, once nothing is open."""
    policy, twin = arms_with_models(), arms_with_models()
    inputs, rewards = inputs_of(policy, 50), rewards_of(policy, 50)
    order = np.random.default_rng(0).permutation(50)
    records = [policy.open(x, t % ARMS) for t, x in enumerate(inputs)]
    for t in order:
        policy.close(records[t], rewards[t])
        twin.step(inputs[t], int(t) % ARMS, rewards[t])
    for name in ("V", "V_inv", "ones_hat"):
        value = getattr(twin.estimator, name)
        assert torch.allclose(getattr(policy.estimator, name), value, rtol=1e-8, atol=1e-10 * float(value.abs().max()))
    assert torch.allclose(policy.early.records[:, : DIM + policy.estimator.dim], twin.early.records[:, :-3])
    assert torch.equal(policy.scaler.state_dict()["rounds"], twin.scaler.state_dict()["rounds"])


@pytest.mark.parametrize("make", KINDS)
def test_opening_moves_no_parameter_and_shrinks_widths(make: Any) -> None:
    policy = make()
    for x, reward in zip(inputs_of(policy, 20), rewards_of(policy, 20), strict=True):
        policy.step(x, policy.select(x), reward)
    (x,) = inputs_of(policy, 1, seed=5)
    before, k = copy.deepcopy(policy), policy.select(x)
    policy.open(x, k)
    was, now = before.estimator, policy.estimator
    assert torch.equal(was.theta_hat, now.theta_hat)
    assert torch.equal(before.rounds, policy.rounds)
    assert torch.equal(was.rounds, now.rounds)
    features = policy._features(x)
    if policy.has_arm_inputs:
        assert now.width(features[k]) < was.width(features[k])
    else:
        widths = [each.width(features.expand(ARMS, 1, -1)).squeeze(-1) for each in (was, now)]
        assert widths[1][k] < widths[0][k]
        others = torch.arange(ARMS) != k
        assert torch.equal(widths[0][others], widths[1][others])


@pytest.mark.parametrize("make", KINDS)
def test_n_decisions_at_once_are_opened_and_closed_in_order(make: Any) -> None:
    together, single = make(batch_shape=(2,)), make(batch_shape=(2,))
    inputs, rewards = inputs_of(single, 9), rewards_of(single, 9)
    actions = torch.arange(18).reshape(9, 2) % ARMS
    records = torch.stack([single.open(*one) for one in zip(inputs, actions, strict=True)], 1)
    found = together.open(inputs.transpose(0, 1), actions.mT)
    assert torch.equal(found, records)
    together.close(found, rewards.mT)
    for record, reward in zip(records.unbind(1), rewards, strict=True):
        single.close(record, reward)
    is_equal(together, single.state_dict())
    none = together.open(inputs[:0].transpose(0, 1), actions[:0].mT)
    together.close(none, rewards[:0].mT)
    is_equal(together, single.state_dict())
    assert none.shape == (2, 0, records.size(-1))


@pytest.mark.parametrize("make", KINDS)
def test_open_decisions_survive_files_copies_and_pickles(make: Any) -> None:
    policy = make()
    inputs, rewards = inputs_of(policy, 12), rewards_of(policy, 12)
    records = [policy.open(x, policy.select(x)) for x in inputs]
    for record, reward in zip(records[:6], rewards, strict=False):
        policy.close(record, reward)
    file = io.BytesIO()
    torch.save({"policy": policy.state_dict(), "waiting": records[6:]}, file)
    file.seek(0)
    checkpoint, loaded = torch.load(file), make()
    loaded.load_state_dict(checkpoint["policy"])
    twins = [loaded, copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]
    for one in (policy, *twins):
        for record, reward in zip(checkpoint["waiting"], rewards[6:], strict=True):
            one.close(record, reward)
    for twin in twins:
        is_equal(twin, policy.state_dict())


@pytest.mark.parametrize("make", KINDS)
def test_float32_is_close_to_float64(make: Any) -> None:
    policies = [make(dtype=dtype) for dtype in (torch.float32, D)]
    for policy in policies:
        inputs, rewards = inputs_of(policy, 30).float(), rewards_of(policy, 30).float()
        records = [policy.open(x, t % ARMS) for t, x in enumerate(inputs)]
        assert records[0].dtype == D
        for record, reward in zip(reversed(records), rewards, strict=True):
            policy.close(record, reward)
    is_close(*policies, tolerance=2e-3)


def test_dropping_many_decisions_keeps_the_inverse_of_float32() -> None:
    """After 1000 decisions of one arm, the least eigenvalue of V grows and shrinks by a factor of a thousand."""
    policy = arms_with_models(dtype=torch.float32)
    x = torch.randn(1000, DIM, generator=torch.Generator().manual_seed(0))
    records = policy.open(x, torch.zeros(1000, dtype=torch.int64))
    policy.drop(records[torch.randperm(1000, generator=torch.Generator().manual_seed(0))])
    inverse = policy.policy.estimator.V_inv
    assert (inverse[0] - inverse[1]).abs().max() < 1e-4 * inverse[1].abs().max()


@pytest.mark.parametrize("is_small", [True, False])
def test_float32_drops_decisions_of_equal_features(is_small: bool) -> None:
    """Features that add up to nothing new make V nearly singular; no drop is refused after it has written."""
    policy: Any = UCB(AdaptiveRidgeRegression(DIM, ridge=1e-3, dtype=torch.float32))
    policy.learner.__dict__["is_small"] = is_small
    arms = torch.linspace(1.0, 30.0, 30).reshape(30, 1, 1).expand(30, 1, DIM)
    policy.step(arms, torch.zeros(30, dtype=torch.int64), torch.ones(30))
    records = policy.open(arms, torch.zeros(30, dtype=torch.int64))
    policy.drop(records)
    assert bool(policy.estimator.V_inv.isfinite().all())
    assert int(policy.rounds) == 30


def test_a_void_record_is_refused_without_validation_too() -> None:
    policy = arms_with_models(validate=False)
    record = policy.open(torch.ones(DIM), 0)
    policy.reset()
    state = policy.state_dict()
    with pytest.raises(ValueError, match="opened: expected a decision that is open in this state"):
        policy.close(record, 1.0)
    is_equal(policy, state)


def test_removed_arms_and_late_rewards() -> None:
    policy = arms_with_models()
    x = torch.rand(DIM, dtype=D)
    gone, kept = policy.open(x, 1), policy.open(x, 2)
    policy.remove_actions([1])
    policy.add_actions(1)
    state = policy.state_dict()
    with pytest.raises(
        ValueError, match="opened: expected the id of an arm, one of 0, 2, 3, 4, got 1, which was removed"
    ):
        policy.close(gone, 1.0)
    is_equal(policy, state)
    policy.close(kept, 1.0)
    assert policy.estimator.rounds.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one[:-1], r"opened: expected shape \(26\) or \(n, 26\), as open\(\) returns, got \(25\)"),
        (lambda one: one.float(), "opened: expected the torch.float64 tensor"),
        (lambda one: torch.rand_like(one), "opened: expected a record that open"),
        (lambda one: one.index_fill(0, torch.tensor([5]), float("nan")), "opened: expected finite values, got nan"),
        (lambda one: one.index_fill(0, torch.tensor([1]), 0.5), "opened: expected a record .* changed arm"),
        (lambda one: one.index_fill(0, torch.tensor([1]), 9.0), "opened: expected indices from 0 to 3, got 9"),
        (lambda one: one.index_fill(0, torch.tensor([24]), 0.0), "opened: expected a record .* noise scale"),
        (lambda one: "record", "opened: expected a torch.Tensor"),
    ],
)
def test_wrong_records_are_refused(change: Any, message: str) -> None:
    policy = arms_with_models()
    record = policy.open(torch.rand(DIM, dtype=D), 2)
    state = policy.state_dict()
    with pytest.raises((TypeError, ValueError), match=message):
        policy.close(change(record), 1.0)
    is_equal(policy, state)


@pytest.mark.parametrize("make", KINDS)
def test_wrong_arguments_change_nothing(make: Any) -> None:
    policy = make()
    for x, reward in zip(inputs_of(policy, 5), rewards_of(policy, 5), strict=True):
        policy.step(x, 0, reward)
    (x,) = inputs_of(policy, 1)
    record = policy.open(x, 0)
    state = policy.state_dict()
    for reward, message in ((float("nan"), "reward"), (torch.rand(2), "reward: expected shape"), ("one", "reward")):
        with pytest.raises((TypeError, ValueError), match=message):
            policy.close(record, reward)
    if make is not robust:
        with pytest.raises(ValueError, match="reward: expected at least 0"):
            policy.close(torch.stack([record, record]), [1.0, -1.0])
    with pytest.raises(TypeError, match="reward"):
        policy.close(record, None)
    for inputs, action in ((x * float("inf"), 0), (x, ARMS), (x[..., :2], 0), (x, [0, 1])):
        with pytest.raises(ValueError, match=r"inputs|action"):
            policy.open(inputs, action)
    with pytest.raises(ValueError, match="noise_scale"):
        policy.open(x, 0, noise_scale=-1.0)
    is_equal(policy, state)


def test_a_record_of_another_state_is_refused() -> None:
    policy = arms_with_models()
    (x,) = inputs_of(policy, 1)
    policy.step(x, 0, 1.0)
    policy.step(-x, 0, 1.0)
    policy.step(2.0 * x, 0, 1.0)
    record = policy.open(x, 0)
    policy.reset()
    state = policy.state_dict()
    with pytest.raises(ValueError, match="opened: expected a decision that is open in this state"):
        policy.close(record, 1.0)
    is_equal(policy, state)


@pytest.mark.parametrize("make", [arms_with_models, arms_with_features])
@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("rounds", [5, 70])
def test_an_interrupted_call_changes_nothing(make: Any, is_small: bool, rounds: int) -> None:
    policy = make()
    policy.learner.__dict__["is_small"] = is_small
    inputs, rewards = inputs_of(policy, rounds), rewards_of(policy, rounds)
    for t, (x, reward) in enumerate(zip(inputs, rewards, strict=True)):
        policy.step(x, t % ARMS, reward)
    record, state = policy.open(inputs[0], 1), policy.state_dict()
    calls = (lambda twin: twin.open(inputs[1], 1), lambda twin: twin.close(record, 0.5), lambda twin: twin.drop(record))
    for call in calls:
        done = copy.deepcopy(policy)
        call(done)
        line = 0
        while interrupted(partial(call, twin := copy.deepcopy(policy)), line, at_with=False):
            found, after = twin.state_dict(), done.state_dict()
            assert any(all(torch.equal(found[name], one[name]) for name in one) for one in (state, after)), line
            line += 41
        is_equal(twin, after)


@pytest.mark.parametrize("dim", [DIM, 100])  # of 100, a journal takes the place of copies
@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("rounds", [5, 70])
def test_a_reward_that_is_refused_after_the_drop_changes_nothing(dim: int, is_small: bool, rounds: int) -> None:
    """The features were 0 at the opening; today's outweigh all others, because the round has hardly any noise."""
    scaler = StandardScaler(dim, intercept=False)
    policy = DisjointArms(AdaptiveRidgeRegression(dim), 2, scaler=scaler)
    policy.__dict__["is_small"] = is_small
    x = torch.randn((rounds, dim), generator=torch.Generator().manual_seed(0), dtype=D)
    record = policy.open(x[0], 1, noise_scale=1e-12)
    for t, row in enumerate(x):
        policy.step(row, t % 2, 0.5)
    kept, state = policy.open(x[1], 1), policy.state_dict()
    with pytest.raises(ValueError, match="opened: expected a round that adds less than"):
        policy.close(record, 0.5)
    is_equal(policy, state)
    policy.close(kept, 0.5)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (OFUL(DIM), "estimator: expected AdaptiveRidgeRegression or RobustRidgeRegression, because the widths"),
        (DisjointArms(RidgeRegression(DIM), ARMS), "may not enter a radius that is proved, got RidgeRegression"),
        (UCB(AdaptiveRidgeRegression(DIM, restart_every=10)), "restart_every: expected None"),
        (
            ScaledPolicy(UCB(AdaptiveRidgeRegression(DIM)), StandardScaler(DIM, intercept=False, freeze_after=9)),
            "freeze_after: expected None",
        ),
        (FixedArms(AdaptiveRidgeRegression(DIM), torch.eye(DIM)), "policy: expected a rule, .*, got FixedArms"),
        (RadiusSelector(RobustRidgeRegression(DIM), ARMS), "policy: expected a rule, .*, got RadiusSelector"),
    ],
)
def test_other_policies_say_why_they_cannot(policy: Any, message: str) -> None:
    state = policy.state_dict()
    with pytest.raises(TypeError, match=f"open: {message}" if ":" in message else message):
        policy.open(torch.eye(DIM, dtype=D) if policy.has_arm_inputs else torch.ones(DIM, dtype=D), 0)
    with pytest.raises(TypeError, match="close: "):
        policy.close(torch.zeros(9), 1.0)
    is_equal(policy, state)


def test_a_subclass_with_its_own_round_cannot_open() -> None:
    class Own(UCB[Any]):
        def step(self, *arguments: Any, **options: Any) -> None:
            super().step(*arguments, **options)

    class OwnEstimator(AdaptiveRidgeRegression):
        def _observe(self, x: Any, reward: Any, noise_scale: Any) -> None:
            super()._observe(0.5 * x, reward, noise_scale)

    policies: tuple[Any, ...] = (Own(AdaptiveRidgeRegression(DIM)), UCB(OwnEstimator(DIM)))
    for policy in policies:
        with pytest.raises(TypeError, match="open: "):
            policy.open(torch.eye(DIM), 0)


def test_a_head_opens_encoded_features() -> None:
    torch.manual_seed(0)
    head = BanditHead(nn.Linear(5, DIM), bandit(DIM, actions=ARMS, scale=False))
    twin = copy.deepcopy(head)
    for x in torch.rand(10, 5):
        k = head.select(x)
        head.close(head.open(x, k), 1.0)
        twin.step(x, k, 1.0)
    is_close(head, twin, 1e-12)


def test_draws_follow_the_widths_too() -> None:
    policy = ThompsonSampling(AdaptiveRidgeRegression(DIM))
    record = policy.open(torch.eye(DIM), 1)
    policy.close(record, 1.0)
    assert policy.rounds == 1


def test_without_validation_and_from_an_array() -> None:
    policy = bandit(DIM, actions=ARMS, validate=False)
    record = policy.open(torch.rand(DIM, dtype=D), 1)
    policy.close(record.numpy(), 0.5)
    assert policy.estimator.rounds.tolist() == [0, 1, 0, 0]
