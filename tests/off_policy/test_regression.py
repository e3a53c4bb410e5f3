"""Predicted rewards: each round is predicted from other rounds, or from earlier ones."""

from typing import Any

import pytest
import torch

import torchonline
from torchonline import (
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    FixedArms,
    LocalGLMRegression,
    RidgeRegression,
    ScaledPolicy,
    StandardScaler,
)
from torchonline.models import BanditHead
from torchonline.off_policy import BanditLog, predicted_rewards
from torchonline.policies.policy import Policy

N, K, D = 90, 3, 2


def log_of(features: bool, *, rewards: torch.Tensor | None = None, groups: Any = None) -> BanditLog:
    generator = torch.Generator().manual_seed(0)
    context = torch.randn(N, *((K,) if features else ()), D, generator=generator, dtype=torch.float64).clamp(-0.7, 0.7)
    action = torch.randint(K, (N,), generator=generator)
    reward = torch.bernoulli(torch.full((N,), 0.4), generator=generator) if rewards is None else rewards
    return BanditLog(arms=K, action=action, reward=reward, probability=[1 / K] * N, context=context, groups=groups)


MODELS = {
    "ridge": (lambda: RidgeRegression(D), True),
    "policy": (lambda: UCB(AdaptiveRidgeRegression(D)), True),
    "logistic": (lambda: LocalGLMRegression(D), True),
    "scaled": (lambda: ScaledPolicy(RidgeRegression(D + 1), StandardScaler(D)), True),
    "arms": (lambda: DisjointArms(RidgeRegression(D), actions=K), False),
    "float32": (lambda: DisjointArms(RidgeRegression(D, dtype=torch.float32), actions=K), False),
    "adaptive arms": (lambda: DisjointArms(AdaptiveRidgeRegression(D), actions=K), False),
    "scaled arms": (lambda: DisjointArms(RidgeRegression(D + 1), actions=K, scaler=StandardScaler(D)), False),
    "recommended": (lambda: torchonline.bandit(D, "binary", actions=K), False),
}


def predict(model: Any, log: BanditLog, row: int) -> torch.Tensor:
    """Return predictions of a model that was built and fed by hand."""
    if isinstance(model, DisjointArms):
        features = model._features(log.context[row].to(model.estimator.theta_hat.dtype))
        return model.estimator(features.expand(K, -1)).double()
    if isinstance(model, ScaledPolicy):
        return model.estimator(model.scaler(log.context[row]))
    return (model.estimator if isinstance(model, UCB) else model)(log.context[row])


def feed(model: Any, log: BanditLog, rows: Any) -> None:
    context, action, reward = log.context[rows], log.action[rows], log.reward[rows]
    if isinstance(model, DisjointArms):
        dtype = model.estimator.theta_hat.dtype
        model.learn(context.to(dtype), action, reward.to(dtype))
    elif isinstance(model, Policy):
        model.learn(context, action, reward)
    else:
        model.learn(context[torch.arange(len(action)), action], reward)


@pytest.mark.parametrize("name", MODELS)
def test_rounds_in_order_are_predicted_before_they_are_learnt(name: str) -> None:
    make, features = MODELS[name]
    log, given, by_hand = log_of(features), make(), make()
    feed(given, log, torch.arange(10))  # which does not count
    before = {key: value.clone() for key, value in given.state_dict().items()}
    predicted = predicted_rewards(given, log, folds=None, block_size=30)
    assert predicted.from_past
    assert all(torch.equal(value, before[key]) for key, value in given.state_dict().items())
    for start in range(0, N, 30):
        expected = torch.stack([predict(by_hand, log, row) for row in range(start, start + 30)])
        torch.testing.assert_close(predicted.values[start : start + 30], expected, rtol=1e-6, atol=1e-6)
        feed(by_hand, log, torch.arange(start, start + 30))
    assert predicted.values.std() > 0.0


@pytest.mark.parametrize("name", ["ridge", "arms", "recommended"])
def test_a_round_does_not_change_its_own_prediction(name: str) -> None:
    """Cross-fitted: not by any round of its group. In order: not by itself or a later round."""
    make, features = MODELS[name]
    groups = torch.arange(N) // 3
    log = log_of(features, groups=groups)
    crossed, ordered = predicted_rewards(make(), log), predicted_rewards(make(), log, folds=None, block_size=1)
    assert not crossed.from_past
    changed = log.reward.clone()
    changed[30:33] = 1.0 - changed[30:33]
    other = log_of(features, rewards=changed, groups=groups)
    again, later = predicted_rewards(make(), other), predicted_rewards(make(), other, folds=None, block_size=1)
    torch.testing.assert_close(again.values[30:33], crossed.values[30:33], rtol=0.0, atol=1e-12)
    assert not torch.allclose(again.values, crossed.values)
    torch.testing.assert_close(later.values[:31], ordered.values[:31], rtol=0.0, atol=1e-12)
    assert not torch.allclose(later.values[31:], ordered.values[31:])


def test_folds_are_those_of_the_seed() -> None:
    log = log_of(False)
    first = predicted_rewards(DisjointArms(RidgeRegression(D), actions=K), log).values
    assert torch.equal(first, predicted_rewards(DisjointArms(RidgeRegression(D), actions=K), log).values)
    assert not torch.equal(first, predicted_rewards(DisjointArms(RidgeRegression(D), actions=K), log, seed=1).values)


def test_what_cannot_predict() -> None:
    log, arms = log_of(False), DisjointArms(RidgeRegression(D), actions=K)
    alone = BanditLog(arms=K, action=[0], reward=[0.0], probability=[1.0])
    few = log_of(False, groups=torch.arange(N) // 45)
    cases = [
        (
            lambda: predicted_rewards(torch.nn.Linear(2, 3), log),
            TypeError,
            "model: expected an Estimator or a Policy, got Linear",
        ),
        *(
            (
                lambda one=one: predicted_rewards(one, log),
                TypeError,
                "model: expected a Policy on features, got " + name,
            )
            for name, one in (
                ("BanditHead", BanditHead(torch.nn.Identity(), arms)),
                ("FixedArms", FixedArms(RidgeRegression(D), torch.eye(D))),
            )
        ),
        (lambda: predicted_rewards(arms, alone), ValueError, "log: expected a log with context"),
        (
            lambda: predicted_rewards(RidgeRegression(D), log),
            ValueError,
            r"log: expected context of shape \(90, 3, 2\)",
        ),
        (lambda: predicted_rewards(arms, log_of(True)), ValueError, r"log: expected context of shape \(90, 2\)"),
        (
            lambda: predicted_rewards(RidgeRegression(3), log_of(True)),
            ValueError,
            r"log: expected context of shape \(90, 3, 3\)",
        ),
        (
            lambda: predicted_rewards(DisjointArms(RidgeRegression(D), 4), log),
            ValueError,
            "model: expected 3 actions, as",
        ),
        (
            lambda: predicted_rewards(RidgeRegression(D, batch_shape=(2,)), log_of(True)),
            ValueError,
            "model: expected a single learner",
        ),
        (
            lambda: predicted_rewards(arms, few),
            ValueError,
            "folds: expected None or an integer from 2 to 2, the number",
        ),
        (
            lambda: predicted_rewards(arms, log_of(False, groups=torch.zeros(N, dtype=torch.int64))),
            ValueError,
            "log: expected at least 2 groups of rounds, to learn from one and predict another, got 1",
        ),
        (lambda: predicted_rewards(arms, log, folds=1), ValueError, "folds: expected None or an integer from 2 to 90"),
        (lambda: predicted_rewards(arms, log, folds=2.0), TypeError, "folds: expected an integer"),
        (lambda: predicted_rewards(arms, log, block_size=0), ValueError, "block_size: expected an integer above 0"),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=f"^{message}"):
            call()
