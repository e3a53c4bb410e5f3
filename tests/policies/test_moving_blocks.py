"""`learn` of the rounds of all arms in blocks, also while a scaler moves: the same state as in order."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learners import close, differences, snapshot
from torchonline import (
    AdaptiveRidgeRegression,
    DisjointArms,
    RidgeRegression,
    RobustRidgeRegression,
    StandardScaler,
    bandit,
)
from torchonline.policies.early_rounds import KEPT

pytestmark = pytest.mark.fast

D = torch.float64
FIRST_BLOCK = 2 * KEPT


def log(rounds: int, arms: int = 3, dim: int = 4, outlier: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return contexts in several units, actions and rewards; every 97th row is multiplied by ``outlier``."""
    generator = torch.Generator().manual_seed(rounds)
    x = torch.randn(rounds, dim, generator=generator, dtype=D) * 10.0 ** torch.arange(dim) + 3.0
    x[::97] *= outlier
    action = torch.randint(arms, (rounds,), generator=generator)
    reward = (torch.rand(rounds, generator=generator, dtype=D) < 0.3 + 0.2 * (x[:, 0] > 3.0)).to(D)
    return x, action, reward


def learnt_twice(policy: Any, arguments: tuple[Tensor, ...], **options: Any) -> tuple[Any, Any]:
    """Return a policy that has learnt in blocks, and one that has learnt in order."""
    other = copy.deepcopy(policy)
    policy.learn(*arguments, **options)
    other.step(*arguments)
    return policy, other


def agree(one: Any, other: Any, tolerance: float, left_out: tuple[str, ...] = ()) -> None:
    states = one.state_dict(), other.state_dict()
    for name, value in states[0].items():
        if not name.startswith("arm.") and name.rpartition(".")[2] not in left_out:
            size = max([1.0, *states[1][name].abs().flatten().tolist()]) if value.is_floating_point() else 1.0
            close(value / size, states[1][name] / size, tolerance, name)


@pytest.mark.parametrize("outlier", [1.0, 100.0])
@pytest.mark.parametrize("rounds", [FIRST_BLOCK - 1, FIRST_BLOCK + 31, 2000])
def test_unclipped_arms_learn_what_they_learn_in_order(rounds: int, outlier: float) -> None:
    blocks, in_order = learnt_twice(bandit(4, actions=3), log(rounds, outlier=outlier))
    agree(blocks, in_order, 1e-9)


@pytest.mark.parametrize("zero_odds", [0.0, 10.0])
@pytest.mark.parametrize("steps", [0, 50])
@pytest.mark.parametrize("arms", [1, 3, 60])
def test_arms_without_a_scaler_learn_what_they_learn_in_order(zero_odds: float, steps: int, arms: int) -> None:
    policy = DisjointArms(AdaptiveRidgeRegression(4, zero_odds=zero_odds), arms)
    x, action, reward = log(700, arms)
    x = x / 10.0 ** torch.arange(4)
    policy.step(x[:steps], action[:steps], reward[:steps])
    scale = 0.25 + 0.5 * torch.rand(700, generator=torch.Generator().manual_seed(0), dtype=D)
    other = copy.deepcopy(policy)
    policy.learn(x, action, reward, noise_scale=scale)
    other.step(x, action, reward, noise_scale=scale)
    agree(policy, other, 1e-9)


def test_a_float32_state_learns_nearly_the_same() -> None:
    x, action, reward = log(700)
    arguments = (x / 10.0 ** torch.arange(4)).float(), action, reward.float()
    blocks, in_order = learnt_twice(DisjointArms(AdaptiveRidgeRegression(4, dtype=torch.float32), 3), arguments)
    agree(blocks, in_order, 1e-4, ("V_lost",))


def test_outliers_among_the_rows_are_clipped_as_in_order() -> None:
    x = log(2000, outlier=1e6)[0]
    one, other = StandardScaler(4), StandardScaler(4)
    one.step(x[:256])
    other.step(x[:256])
    features = one._observe_windows_(x[256:1920])
    close(features, in_turn(other, x[256:1920]), 1e-6)
    agree(one, other, 1e-6)


def in_turn(scaler: StandardScaler, x: Tensor) -> Tensor:
    """Return rows standardised one after another; each is then learnt."""
    found = []
    for row in x:
        found.append(scaler(row))
        scaler.step(row)
    return torch.stack(found)


@pytest.mark.parametrize("kind", ["rare", "dead", "growing"])
def test_rare_and_late_features_are_standardised_as_in_order(kind: str) -> None:
    """Rows of the outputs of ReLU, where each clipped value depends on the clipped ones before it."""
    x = torch.randn(1024, 6, generator=torch.Generator().manual_seed(0), dtype=D)
    if kind == "rare":
        x = (x - torch.linspace(0.0, 3.5, 6)).relu()
    elif kind == "dead":
        x[:640, 3:], x[300, 4] = 0.0, 1.0
    else:
        x = (x - 2.0).relu() * torch.logspace(0.0, 6.0, 1024).unsqueeze(-1)
    one, other = StandardScaler(6), StandardScaler(6)
    one.step(x[:64])
    other.step(x[:64])
    features, done = [], 64
    while done < len(x):
        features.append(one._observe_windows_(x[done:]))
        assert len(features[-1]) > 0
        done += len(features[-1])
    close(torch.cat(features), in_turn(other, x[64:]), 1e-9)
    agree(one, other, 1e-9)


def test_a_change_of_scale_ends_a_block() -> None:
    x = torch.randn(1024, 2, generator=torch.Generator().manual_seed(0), dtype=D)
    x[640:, 1] *= 100.0
    one, other = StandardScaler(2), StandardScaler(2)
    one.step(x[:256])
    other.step(x[:256])
    assert len(one._observe_windows_(x[256:])) == 416  # to the end of the first window with twelve far rows
    other.step(x[256:672])
    agree(one, other, 1e-9)
    blocks, in_order = learnt_twice(bandit(2, actions=2), (x, torch.arange(1024) % 2, torch.ones(1024)))
    agree(blocks, in_order, 1e-9)


def test_a_feature_may_vary_for_the_first_time_in_a_block() -> None:
    x = torch.ones(1024, 2, dtype=D)
    x[:, 0] = torch.linspace(0.0, 1.0, 1024)
    x[900:, 1] = 2.0
    blocks, in_order = learnt_twice(bandit(2, actions=2), (x, torch.arange(1024) % 2, x[:, 0]))
    agree(blocks, in_order, 1e-9)


@pytest.mark.parametrize(("steps", "rows"), [(0, 0), (300, 0), (0, 10), (300, 10)])
def test_blocks_start_with_a_window_of_the_scaler(steps: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of steps, and of rows that the scaler has seen alone."""
    policy: Any = bandit(4, actions=3)
    policy.scaler.step(log(rows + 1)[0][:rows])
    policy.step(*log(steps + 1))
    learnt: list[int] = []
    learn = DisjointArms._learn_pooled

    def counted(self: Any, *arguments: Any) -> int:
        learnt.append(learn(self, *arguments))
        return learnt[-1]

    monkeypatch.setattr(DisjointArms, "_learn_pooled", counted)
    blocks, in_order = learnt_twice(policy, log(2000))
    agree(blocks, in_order, 1e-9)
    assert sum(learnt) > 1600


def test_blocks_start_after_the_warmup() -> None:
    scaler = StandardScaler(4)
    policy = DisjointArms(RobustRidgeRegression(scaler.features, warmup=1000), 3, scaler=scaler)
    blocks, in_order = learnt_twice(policy, log(1000))
    assert differences(snapshot(blocks), snapshot(in_order)) == []


@pytest.mark.parametrize("kind", ["real", "heavy", "count"])
def test_clipped_arms_learn_nearly_the_same(kind: str) -> None:
    """Residuals are clipped at the quantile before a block."""
    blocks, in_order = learnt_twice(bandit(4, kind, actions=3), log(4000))
    agree(blocks, in_order, 0.02, ("residuals", "squares", "loss_gap", "pooled_loss_gap", "gain"))
    assert blocks.estimator.seen.tolist() == in_order.estimator.seen.tolist()


def test_arms_with_features_share_one_model_whichever_is_chosen() -> None:
    x, action, reward = torch.randn(600, 3, 4, dtype=torch.float64), torch.arange(600) % 3, torch.arange(600) % 2
    blocks, in_order = bandit(4), bandit(4)
    blocks.learn(x, action, reward.double())
    in_order.step(x, action, reward.double())
    torch.testing.assert_close(blocks.theta_hat, in_order.theta_hat, rtol=1e-8, atol=1e-8)


def test_arms_with_features_and_noise_scales() -> None:
    policy = bandit(4)
    x, _, reward = log(1500)
    noise = 0.25 + 0.5 * torch.rand(1500, generator=torch.Generator().manual_seed(0), dtype=D)
    other = copy.deepcopy(policy)
    arguments = x.unsqueeze(-2), torch.zeros(1500, dtype=torch.int64), reward
    policy.learn(*arguments, noise_scale=noise, block_size=100)
    other.step(*arguments, noise_scale=noise)
    agree(policy, other, 1e-9)


def test_a_file_learns_the_same_blocks() -> None:
    policy = bandit(4, actions=3)
    script = torch.jit.script(copy.deepcopy(policy))
    arguments = log(1500)
    policy.learn(*arguments)
    script.learn(*arguments)
    agree(policy, script, 1e-9, ())


def test_a_refused_log_changes_nothing() -> None:
    policy, (x, action, reward) = bandit(4, actions=3), log(1500)
    policy.learn(x, action, reward)
    before = snapshot(policy)
    for bad in (float("nan"), float("inf"), 1e300):
        wrong = x.clone()
        wrong[1400, 2] = bad
        with pytest.raises(ValueError, match="inputs: expected"):
            policy.learn(wrong, action, reward)
        assert differences(before, snapshot(policy)) == []


def test_other_estimators_go_on_in_order() -> None:
    arms = DisjointArms(RidgeRegression(5), 3, scaler=StandardScaler(4))
    blocks, in_order = learnt_twice(arms, log(600))
    agree(blocks, in_order, 1e-12, ())


class Unshared(AdaptiveRidgeRegression):
    """An estimator that never predicts by the mean reward."""

    def _weight_of_mean(self) -> Any:
        return 0.0 * super()._weight_of_mean()


def test_a_subclass_with_a_weight_of_its_own_goes_on_in_order() -> None:
    blocks, in_order = learnt_twice(DisjointArms(Unshared(4), 3), log(600))
    agree(blocks, in_order, 1e-12, ())
