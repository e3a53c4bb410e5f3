"""AdaptiveRidgeRegression and RobustRidgeRegression against their docstrings, and what is promised of units and outliers."""

import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learners import close, differences, same, snapshot
from tests.reference.adaptive import AdaptiveReference, RobustReference
from tests.reference.follow import data
from torchonline import (
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    RadiusSelector,
    RobustRidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    StandardScaler,
    bandit,
)

pytestmark = pytest.mark.fast

D = torch.float64
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "a small window": {"window": 7, "warmup": 3},
    "a window shorter than the warm-up": {"window": 4, "warmup": 20},
    "a window of 1": {"window": 1, "warmup": 1},
    "all": {"ridge": 0.1, "radius_scale": 2.0, "cut": 0.7, "quantile": 0.6, "window": 50, "warmup": 25},
}


@pytest.mark.parametrize("dim", [1, 4])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("is_small", [True, False], ids=["on arrays", "on tensors"])
def test_agrees_with_reference(dim: int, options: dict[str, Any], is_small: bool) -> None:
    policy, reference = UCB(RobustRidgeRegression(dim, **options)), RobustReference(dim, **options)
    policy.estimator.is_small = is_small
    for arms, reward, noise_scale in data(dim, seed=dim, noise=(0.1, 1.0, 3.0) if dim > 1 else None, outlier=1e6):
        rows, scores = torch.from_numpy(arms), torch.from_numpy(reference.scores(arms))
        size = max(1.0, float(scores.abs().max()))
        assert float((policy(rows) - scores).abs().max()) < 1e-9 * size
        policy.step(rows, 0, reward, noise_scale=noise_scale)
        reference.step(arms[0], reward, noise_scale)
        size = max(1.0, float(abs(reference.theta).max()))
        assert float((policy.estimator.theta_hat - torch.from_numpy(reference.theta)).abs().max()) < 1e-9 * size
        assert policy.estimator.spread.item() == pytest.approx(reference.spread(), rel=1e-9)
        assert policy.estimator.radius().item() == pytest.approx(reference.radius(), rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [{}, {"noise_scale": 2.0, "ridge": 3.0, "radius_scale": 0.1}, {"floor": 0.2}, {"floor": 1e9}],
    ids=["default", "all", "a floor", "a high floor"],
)
@pytest.mark.parametrize("is_small", [True, False], ids=["on arrays", "on tensors"])
def test_adaptive_agrees_with_reference(options: dict[str, Any], is_small: bool) -> None:
    policy, reference = UCB(AdaptiveRidgeRegression(3, **options)), AdaptiveReference(3, **options)
    policy.estimator.is_small = is_small
    for arms, reward, noise_scale in data(3, seed=1, noise=(0.1, 1.0, 3.0), outlier=1e3):
        reward = reward if policy.estimator.floor is None else abs(reward)
        rows, scores = torch.from_numpy(arms), torch.from_numpy(reference.scores(arms))
        assert float((policy(rows) - scores).abs().max()) < 1e-9 * max(1.0, float(scores.abs().max()))
        policy.step(rows, 0, reward, noise_scale=noise_scale)
        reference.step(arms[0], reward, noise_scale)
        assert policy.estimator.radius().item() == pytest.approx(reference.radius(), rel=1e-9)


def rows_and_rewards(count: int = 200, outlier: float = 1e3) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 3, dtype=D)
    reward = x @ torch.tensor([1.0, -2.0, 0.5], dtype=D) + torch.randn(count, dtype=D)
    reward[::17] *= outlier
    return x, reward


def test_the_window_is_a_ring() -> None:
    """After 3 windows and a bit, it holds the last residuals; the oldest went first."""
    learner, (x, reward), last = RobustRidgeRegression(3, window=8, warmup=2), rows_and_rewards(27), []
    for row, value in zip(x, reward, strict=True):
        last.append(abs(float(value - learner(row))))
        learner.step(row, value)
    for t in range(27 - 8, 27):
        assert learner.residuals[t % 8].item() == pytest.approx(last[t], rel=1e-12)
    assert int(learner.seen) == 27


def test_the_ring_still_turns_where_float32_has_no_odd_counts() -> None:
    learner = RobustRidgeRegression(1, window=4, dtype=torch.float32)
    learner.seen.fill_(2**25 + 1)
    for value in (1.0, 2.0, 3.0):
        before = learner.residuals.clone()
        learner.step([0.0], value)
        assert (learner.residuals != before).nonzero().flatten().tolist() == [int(learner.seen - 1) % 4]
    assert learner.residuals.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("scale", [1000.0, 1e-6, 1e30])
def test_rewards_in_another_unit_give_predictions_in_that_unit(scale: float) -> None:
    """Predictions, radii and intervals are multiplied; so choices stay."""
    one, other = RobustRidgeRegression(3), RobustRidgeRegression(3)
    x, reward = rows_and_rewards()
    probes = torch.randn(9, 3, dtype=D)
    for row, value in zip(x, reward, strict=True):
        one.step(row, value)
        other.step(row, scale * value)
        close(scale * one(probes) / scale, other(probes) / scale)
        if int(one.seen) > 1:
            close(one.radius(), other.radius() / scale)
    for bound, scaled in zip(one.interval(probes), other.interval(probes), strict=True):
        close(bound, scaled / scale)
    low, high = other.interval(probes)
    close((low + high) / (2.0 * scale), one(probes))
    assert bool((low < high).all())


@pytest.mark.parametrize("scale", [1.0, 1e-6])
@pytest.mark.parametrize("kind", ["count", "real", "heavy"])
def test_an_arm_that_never_pays_does_not_end_exploration(kind: str, scale: float) -> None:
    """The first arm pays nothing, the others do, in whatever unit."""
    policy = bandit(2, kind, actions=3)
    x, plays = torch.randn(100, 2, generator=torch.Generator().manual_seed(0), dtype=D), [0, 0, 0]
    for row in x:
        k = int(policy.select(row))
        plays[k] += 1
        policy.step(row, k, scale * min(k, 1))
    assert plays[0] < 20, plays


def test_a_window_of_zeros_keeps_the_spread() -> None:
    learner, reference = RobustRidgeRegression(1, window=4, warmup=2), RobustReference(1, window=4, warmup=2)
    for reward in [0.0, 0.0, 3.0] + [0.0] * 6 + [2.0]:
        # At features 0, residuals are rewards, and nothing is learnt.
        learner.step([0.0], reward)
        reference.step(np.zeros(1), reward)
        assert learner.spread.item() == pytest.approx(reference.spread(), rel=1e-12)
        assert learner.spread.item() > 0.0


def test_an_interval_at_zero_features_is_no_nan() -> None:
    for cls, dtype in itertools.product((AdaptiveRidgeRegression, RobustRidgeRegression), (D, torch.float32)):
        for learner in (cls(3, dtype=dtype), torch.jit.script(cls(3, dtype=dtype))):
            low, high = learner.interval(torch.zeros(2, 3, dtype=dtype))
            assert bool((low <= high).all())
            assert bool((high.abs() < 1e-6).all())


def test_outliers_of_any_size_move_the_estimate_by_what_the_cut_allows() -> None:
    x, reward = rows_and_rewards(outlier=1.0)
    seen = []
    for size in (1e3, 1e6, 1e90):
        learner = RobustRidgeRegression(3)
        learner.step(x[:100], reward[:100])
        before = learner.theta_hat.clone()
        learner.step(x[100], size)
        seen.append(learner.theta_hat.clone())
        ordinary = learner.residuals[:100].sort().values
        allowed = 1.5 * float(ordinary[-1]) * float((learner.V_inv @ x[100]).norm())
        assert float((seen[-1] - before).norm()) <= allowed
        assert math.isfinite(learner.radius().item())
    assert all(torch.equal(seen[0], each) for each in seen)


def test_single_precision_follows_double() -> None:
    x, reward = rows_and_rewards()
    single, double = RobustRidgeRegression(3, window=16, dtype=torch.float32), RobustRidgeRegression(3, window=16)
    single.step(x.float(), reward.float())
    double.step(x.float(), reward.float())
    torch.testing.assert_close(single.theta_hat.double(), double.theta_hat, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(single.spread.double(), double.spread, rtol=1e-4, atol=1e-4)
    assert single.residuals.dtype == torch.float32


def test_a_batch_has_a_window_for_each_learner() -> None:
    batched = RobustRidgeRegression(3, window=6, warmup=2, batch_shape=(2, 3))
    x, reward = torch.randn(2, 3, 20, 3, dtype=D), torch.randn(2, 3, 20, dtype=D) ** 3
    batched.step(x, reward)
    for i in range(2):
        for j in range(3):
            single = RobustRidgeRegression(3, window=6, warmup=2)
            single.step(x[i, j], reward[i, j])
            for name, value in snapshot(single).items():
                whole = batched.state_dict()[name]
                close(value, whole[i, j] if whole.dim() > value.dim() else whole, 1e-12)


def test_a_state_of_another_window_is_refused() -> None:
    learner, other = RobustRidgeRegression(2, window=8), RobustRidgeRegression(2, window=9)
    before = snapshot(learner)
    with pytest.raises(RuntimeError, match=r"residuals: expected shape \(8\)"):
        learner.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match="cut: the state was learnt with 2"):
        learner.load_state_dict(RobustRidgeRegression(2, window=8, cut=2.0).state_dict())
    assert differences(before, snapshot(learner)) == []


def test_restarts_forget_the_window_too() -> None:
    learner, (x, reward) = RobustRidgeRegression(3, restart_every=10, window=8), rows_and_rewards(13)
    learner.step(x, reward)
    fresh = RobustRidgeRegression(3, restart_every=10, window=8)
    fresh.step(x[10:], reward[10:])
    assert all(map(same, snapshot(learner).values(), snapshot(fresh).values()))


def test_a_floor_is_no_higher_than_half_of_the_mean_reward() -> None:
    """So rewards that are rarely above 0 are learnt too, and it needs no look at the arms."""
    learner = AdaptiveRidgeRegression(2, floor=0.3)
    predictor = torch.tensor([-1.0, 0.04, 0.2, 0.5], dtype=D)
    assert learner.raised(predictor).tolist() == [0.0, 0.04, 0.2, 0.5]
    learner.step([0.0, 0.0], 0.2)
    assert learner.raised(predictor).tolist() == [0.1, 0.1, 0.2, 0.5]
    learner.step(torch.zeros(9, 2), torch.full((9,), 0.7))
    assert learner.raised(predictor).tolist() == [0.3, 0.3, 0.3, 0.5]
    plain = AdaptiveRidgeRegression(2)
    plain.step([0.0, 0.0], 0.2)
    assert torch.equal(plain.raised(predictor), predictor)


@pytest.mark.parametrize("reward", [-1e-5, -1.0, [0.5, -2.0], float("nan"), [1.0, float("inf")]])
def test_a_floor_refuses_rewards_below_0(reward: Any) -> None:
    for policy in (bandit(2, "unit", 3), bandit(2, "binary"), bandit(2, "unit", 3, dtype=torch.float32)):
        before, size = snapshot(policy), (len(reward),) if isinstance(reward, list) else ()
        item = (2,) if isinstance(policy, DisjointArms) else (1, 2)
        with pytest.raises(ValueError, match=r"^reward: expected "):
            policy.step(torch.zeros(*size, *item), torch.zeros(size, dtype=torch.int64), reward)
        assert differences(before, snapshot(policy)) == []
    policy.step([0.0, 0.0], 0, -1e-7)  # 0 but for rounding
    unchecked = AdaptiveRidgeRegression(2, floor=0.3, validate=False)
    unchecked.step([1.0, 0.0], -1.0)
    AdaptiveRidgeRegression(2).step([1.0, 0.0], -1.0)


@pytest.mark.parametrize("reward", [5.0, 1.00001, [0.5, 2.0]])
def test_binary_rewards_are_at_most_1(reward: Any) -> None:
    size, rewards = (len(reward),) if isinstance(reward, list) else (), torch.tensor(reward, dtype=torch.float64)
    policy, unit = bandit(2, "binary", 3), bandit(2, "unit", 3)
    x, action = torch.ones(*size, 2, dtype=torch.float64), torch.zeros(size, dtype=torch.int64)
    before = snapshot(policy)
    with pytest.raises(ValueError, match=r"^reward: expected at most the ceiling, 1, got .*; pass ceiling=None"):
        policy.step(x, action, reward)
    assert differences(before, snapshot(policy)) == []
    policy.step(x, action, torch.full(size, 1.0 + 1e-7))  # 1 but for rounding
    unit.step(x, action, reward)
    assert policy.estimator._accepts_rewards(rewards).tolist() == (rewards <= 1.0).tolist()
    assert unit.estimator._accepts_rewards(rewards).all()


def test_all_arms_share_the_mean_reward() -> None:
    arms = bandit(2, "unit", 3)
    for k, reward in enumerate((0.0, 1.0, 0.5)):
        arms.step([1.0, 2.0], k, reward)
    assert arms.estimator.gain.tolist() == [1.5] * 3
    arms.add_actions()
    assert arms.estimator.gain.tolist() == [1.5] * 4


def test_every_optimist_has_the_floor() -> None:
    """The same scores as over an estimator whose estimates are raised by hand."""
    x, rewards = torch.eye(2, dtype=D), torch.tensor([0.0, 0.9], dtype=D)
    for make in (
        lambda e: UCB(e),
        lambda e: ScaledPolicy(e, StandardScaler(2, intercept=False)),
        lambda e: RadiusSelector(e, 1),
        lambda e: SharedRadiusSelector(e),
    ):
        low, high = (make(AdaptiveRidgeRegression(2, floor=floor)) for floor in (1e-30, 0.15))
        is_context = isinstance(low, DisjointArms)
        for policy in (low, high):
            for _ in range(2):
                policy.step(x if is_context else x[:, None], torch.zeros(2, dtype=torch.int64), rewards)
        probe = -x[1] if is_context else -x
        assert float((high(probe) - low(probe)).max()) == pytest.approx(0.15, rel=1e-6)


def test_residuals_of_the_first_rounds_are_cut_too() -> None:
    """An outlier in the third round, at three times the largest residual of the rounds after the first."""
    learner = RobustRidgeRegression(1, ridge=1.0)
    learner.step([1.0], 1.0)
    before = learner([1.0])
    learner.step([1.0], 2.0)
    largest, predicted = 2.0 - float(before), float(learner([1.0]))
    learner.step([1.0], 1e9)
    assert float(learner.target) == pytest.approx(predicted + 3.0 * largest)
    first = RobustRidgeRegression(1, ridge=1.0)
    first.step(torch.ones(3, 1), torch.tensor([0.0, 0.0, 1e9]))
    close(first.theta_hat, torch.tensor([1e9 / 4.0], dtype=D))


def test_an_arm_with_an_estimate_far_below_0_is_tried_again() -> None:
    """Arm 0 pays abs(x). Its line through the rounds with x < 1 says less than 0 at x = 3."""
    chosen = {}
    for floor in (None, 0.15):
        arms = DisjointArms(AdaptiveRidgeRegression(2, floor=floor), 2)
        for x in torch.linspace(-1.0, 0.0, 60).tolist():
            arms.step([x, 1.0], 0, -x)
            arms.step([x, 1.0], 1, 0.1)
        for _ in range(100):
            k = int(arms.select([3.0, 1.0]))
            arms.step([3.0, 1.0], k, [3.0, 0.1][k])
        chosen[floor] = k
    assert chosen == {None: 1, 0.15: 0}


@pytest.mark.parametrize("level", [10.0, -1000.0])
def test_without_odds_of_zero_a_level_changes_nothing_but_predictions(level: float) -> None:
    x, reward = rows_and_rewards(60, outlier=3.0)
    one, other = RobustRidgeRegression(3, zero_odds=0.0), RobustRidgeRegression(3, zero_odds=0.0)
    one.step(x, reward)
    other.step(x, reward + level)
    close(one(x) + level, other(x), 1e-9)
    close(one.radius(), other.radius(), 1e-9)
    close(one.width(x), other.width(x))


@pytest.mark.parametrize("batch_shape", [(), (2,)])
@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("build", [AdaptiveRidgeRegression, RobustRidgeRegression])
def test_an_arm_that_was_never_played_has_the_mean_reward(
    build: Any, dtype: torch.dtype, batch_shape: tuple[int, ...]
) -> None:
    """On arrays, on tensors and in a file."""
    arms = DisjointArms(build(1, batch_shape=batch_shape, dtype=dtype), 3)
    script, one = torch.jit.script(copy.deepcopy(arms)), torch.ones(*batch_shape, 1, dtype=dtype)
    rewards = [3.0, 4.0, 5.0, 4.0]
    for k, reward in zip((0, 1, 0, 0), rewards, strict=True):
        for policy in (arms, script):
            policy.step(one, torch.full(batch_shape, k), torch.full(batch_shape, reward, dtype=dtype))
    estimator = arms.estimator
    close(arms.predict(one)[..., 2], (estimator.gain / 4.0)[..., 2], 1e-5 if dtype == torch.float32 else 1e-12)
    close(script(one), arms(one), 1e-5 if dtype == torch.float32 else 1e-12)
    assert (arms.select(one) == 2).all()


def test_an_outlier_counts_in_the_mean_as_it_is_cut() -> None:
    arms = DisjointArms(RobustRidgeRegression(1), 2)
    for reward in [1.0] * 30 + [1e9]:
        arms.step([1.0], 0, reward)
    assert 0.9 < float(arms.estimator._mean_reward()[1]) < 1.1


def test_costs_leave_an_arm_that_was_never_played_at_0() -> None:
    arms = DisjointArms(RobustRidgeRegression(1), 2)
    arms.step([1.0], 0, -3.0)
    assert arms.estimator.raised(torch.zeros(2, dtype=D)).tolist() == [0.0, 0.0]


def test_an_added_arm_is_tried() -> None:
    arms = DisjointArms(AdaptiveRidgeRegression(1), 2)
    for t in range(100):
        arms.step([1.0], t % 2, 0.8 + 0.1 * (t % 2))
    arms.add_actions()
    assert int(arms.select([1.0])) == 2
