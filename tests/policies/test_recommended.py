"""What `torchonline.bandit` returns, and that it plays on raw features by default."""

import statistics
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

import torchonline
from torchonline import UCB, DisjointArms, ScaledPolicy
from torchonline.policies.recommended import KINDS, MEANT, Rewards

pytestmark = pytest.mark.fast

UNITS = torch.tensor([1e5, 1.0, 1e-4])


def stream(rounds: int) -> tuple[Tensor, Tensor]:
    """Contexts in unlike units, and the right of three actions, which is linear in them."""
    generator = torch.Generator().manual_seed(0)
    contexts = torch.randn(rounds, 3, generator=generator, dtype=torch.float64)
    return contexts * UNITS + 3.0 * UNITS, contexts.argmax(-1)


def share_of_errors(policy: Any, contexts: Tensor, labels: Tensor) -> float:
    """The share of wrong choices in the second half."""
    wrong = []
    for x, label in zip(contexts, labels.tolist(), strict=True):
        k = int(policy.select(x))
        wrong.append(k != label)
        policy.step(x, k, float(k == label))
    return sum(wrong[len(wrong) // 2 :]) / (len(wrong) - len(wrong) // 2)


@pytest.mark.parametrize("rewards", KINDS)
def test_it_learns_from_raw_features(rewards: str) -> None:
    policy = torchonline.bandit(3, rewards=rewards, actions=3)
    assert share_of_errors(policy, *stream(400)) < 0.25  # two thirds by chance


@pytest.mark.parametrize("rewards", KINDS)
def test_the_repr_says_what_was_chosen_and_what_has_a_theorem(rewards: str) -> None:
    shown = repr(torchonline.bandit(3, rewards=rewards, actions=2))
    assert f'rewards="{rewards}"' in shown
    assert f"for a theorem, and its conditions, see DisjointArms({KINDS[rewards].theorem}, 2)" in shown
    assert f"UCB({KINDS[rewards].theorem})" in repr(torchonline.bandit(3, rewards=rewards))


def test_a_better_arm_is_found_beside_one_that_always_pays_half() -> None:
    """Rewards without noise. Too small a radius in the first rounds would leave the better arm untried."""
    batched = torchonline.bandit(5, actions=2, batch_shape=(50,))
    contexts = torch.randn(100, 50, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    means = torch.tensor([0.5, 0.9], dtype=torch.float64)
    for x in contexts:
        arm = batched.select(x)
        batched.step(x, arm, means[arm])
    assert bool((arm == 1).all())


@pytest.mark.parametrize(("dim", "features"), [(1, 3), (5, 51), (6, 28), (10, 66), (11, 23), (48, 97), (49, 50)])
def test_interactions_go_by_the_number_of_features(dim: int, features: int) -> None:
    assert torchonline.bandit(dim).scaler.features == features
    assert torchonline.bandit(dim, interactions=False).scaler.features == min(2 * dim + 1, features)


@pytest.mark.parametrize("interactions", [None, {"user": [0, 1], "page": [2, 3]}, [(0, 2), (1, 3)]])
def test_value_in_products_is_learnt(interactions: Any) -> None:
    """An arm pays where x0 x2 + x1 x3 > 0, the other one elsewhere: a linear model has nothing to learn."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 4, generator=generator, dtype=torch.float64)
    right, action = (x[:, 0] * x[:, 2] + x[:, 1] * x[:, 3] > 0.0).long(), torch.arange(4000) % 2
    errors = []
    for option in (interactions, False):
        policy = torchonline.bandit(4, "binary", actions=2, interactions=option)
        policy.learn(x[:3000], action[:3000], (action == right)[:3000].double())
        errors.append(float((policy.predict(x[3000:]).argmax(-1) != right[3000:]).double().mean()))
    assert errors[0] < 0.1
    assert errors[1] > 0.4


@pytest.mark.parametrize(
    ("name", "value"), [("magnitudes", True), ("interactions", "all"), ("interactions", []), ("bins", 4)]
)
def test_without_a_scaler_nothing_is_appended(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: expected None or (False|1) with scale=False"):
        torchonline.bandit(3, scale=False, **{name: value})


@pytest.mark.parametrize("rewards", ["unit", "real"])
def test_actions_are_told_apart_where_contexts_say_nothing(rewards: str) -> None:
    """Ten actions, 20 features. Most learners find an action that is nearly the best."""
    generator = torch.Generator().manual_seed(0)
    means = torch.rand(50, 10, generator=generator, dtype=torch.float64)
    batched, context = torchonline.bandit(20, rewards, actions=10, batch_shape=(50,)), torch.ones(50, 20)
    for _ in range(300):
        arm = batched.select(context)[:, None]
        noise = 0.1 * torch.randn(50, generator=generator, dtype=torch.float64)
        batched.step(context, arm[:, 0], (means.gather(1, arm)[:, 0] + noise).clamp(0.0, 1.0))
    assert bool((batched.estimator.rounds > 0).all())
    regret = means.amax(1) - means.gather(1, arm)[:, 0]
    assert float((regret < 0.1).double().mean()) > 0.8


@pytest.mark.parametrize("offset", [-10.0, 10.0, 100.0])
def test_rewards_far_from_0_are_learnt(offset: float) -> None:
    generator = torch.Generator().manual_seed(0)
    batched = torchonline.bandit(4, "real", actions=2, batch_shape=(50,))
    for _ in range(300):
        x = torch.randn(50, 4, generator=generator, dtype=torch.float64)
        arm = batched.select(x)
        batched.step(x, arm, offset + arm + 0.3 * torch.randn(50, generator=generator, dtype=torch.float64))
    assert float((arm == 1).double().mean()) > 0.9


@pytest.mark.parametrize("rewards", ["unit", "real"])
def test_rewards_between_0_and_1_are_learnt(rewards: str) -> None:
    """Ten actions that pay little less than the best, with little noise. All are tried."""
    generator = torch.Generator().manual_seed(0)
    contexts, weights, noise = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((600, 4), (4, 10), (600, 10))
    )
    means = torch.sigmoid(contexts @ weights)
    policy, regret = torchonline.bandit(4, rewards, actions=10), 0.0
    for x, mean, z in zip(contexts, means, noise, strict=True):
        k = int(policy.select(x))
        policy.step(x, k, float((mean[k] + 0.1 * z[k]).clamp(0.0, 1.0)))
        regret += float(mean.max() - mean[k])
    assert bool((policy.estimator.rounds > 0).all())
    assert regret < 0.3 * float((means.amax(-1) - means.mean(-1)).sum())  # of a uniform choice's


def test_magnitudes_of_up_to_48_features() -> None:
    for dim, magnitudes, expected in ((48, None, True), (49, None, False), (3, False, False), (49, True, True)):
        policy = torchonline.bandit(dim, magnitudes=magnitudes)
        assert policy.scaler.magnitudes is expected
        assert policy.estimator.ridge == pytest.approx(dim / 6.0 if expected else (dim + 1) / 5.0)
    assert torchonline.bandit(8, "real").estimator.ridge == 2.0
    assert torchonline.bandit(12, "heavy").estimator.ridge == 4.0
    assert torchonline.bandit(59, "heavy").estimator.ridge == 20.0
    assert torchonline.bandit(np.int64(3)).scaler.magnitudes is True
    assert torchonline.bandit(3, scale=False, magnitudes=False).estimator.dim == 3


def test_magnitudes_tell_the_middle_of_a_range() -> None:
    """A linear model on z alone cannot."""
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(5):
        contexts = torch.randn(400, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        labels = (contexts[:, 0].abs() > 0.67).long()
        for magnitudes, found in errors.items():
            policy = torchonline.bandit(2, actions=2, magnitudes=magnitudes)
            found.append(share_of_errors(policy, contexts, labels))
    assert statistics.median(errors[True]) < 0.1 < 0.3 < statistics.median(errors[False])


def test_types_and_hints_name_the_kinds_of_rewards() -> None:
    assert get_args(Rewards) == tuple(KINDS)
    assert set(MEANT.values()) == set(KINDS)


def test_linucb_is_oful() -> None:
    assert torchonline.LinUCB is torchonline.OFUL


def test_what_it_returns() -> None:
    assert type(torchonline.bandit(3, actions=2)) is DisjointArms
    assert type(torchonline.bandit(3)) is ScaledPolicy
    for policy in (torchonline.bandit(3, scale=False), torchonline.bandit(3, actions=2, scale=False)):
        assert type(policy) is (UCB if not isinstance(policy, DisjointArms) else DisjointArms)
        assert getattr(policy, "scaler", None) is None
        assert policy.estimator.dim == 3
        assert policy.estimator.ridge == 2.0
    policy = torchonline.bandit(3, actions=2, dtype=torch.float32, batch_shape=(4,))
    assert policy.select(torch.zeros(4, 3)).shape == (4,)
    assert policy.estimator.theta_hat.dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rewards": "clicks"},
            r"^rewards: expected one of 'binary', 'unit', 'count', 'real', 'heavy', got 'clicks'; did you mean 'binary'\?$",
        ),
        ({"rewards": "Gaussian"}, r"got 'Gaussian'; did you mean 'real'\?$"),
        ({"rewards": "counts"}, r"got 'counts'; did you mean 'count'\?$"),
        ({"rewards": "banana"}, r"got 'banana'$"),
        ({"actions": 0}, "actions: expected an integer above 0, got 0"),
        ({"dim": -1}, "dim: expected an integer above 0, got -1"),
        ({"ridge": 1.0}, r"bandit\(\) got an unexpected keyword argument 'ridge'"),
        ({"scale": "no"}, "scale: expected True or False, got str"),
        ({"magnitudes": 2}, "magnitudes: expected True or False, got int"),
        ({"scale": False, "magnitudes": True}, "magnitudes: expected None or False with scale=False, got True"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        torchonline.bandit(**({"dim": 3} | options))
