"""New arms that start from a prior: as if they had learnt the rounds of the others, or at a given parameter."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchonline
from tests.golden import numbers
from tests.learners import close, differences, snapshot
from torchonline import (
    UCB,
    AdaptiveRidgeRegression,
    DisjointArms,
    GLMRegression,
    Logistic,
    RidgeRegression,
    RobustRidgeRegression,
)

pytestmark = pytest.mark.fast

D = torch.float64
DIM, ARMS, ROUNDS = 3, 2, 5.0


def played(build: Any, *batch: int, seed: int = 0, **options: Any) -> tuple[DisjointArms, Tensor, Tensor]:
    """Arms after 40 rounds, their features and their rewards."""
    arms = DisjointArms(build(DIM, batch_shape=batch, **options), ARMS)
    x, reward = numbers(seed, 40, *batch, DIM), numbers(seed + 1, 40, *batch).abs()
    for t in range(40):
        arms.step(x[t], torch.full(batch, int(t % 3 == 0)), reward[t])
    return arms, x, reward


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("build", [RidgeRegression, AdaptiveRidgeRegression, RobustRidgeRegression])
def test_a_pooled_prior_is_the_rounds_of_the_others_with_less_weight(build: Any, batch: tuple[int, ...]) -> None:
    arms, x, reward = played(build, *batch)
    learnt = torch.stack(
        [arms.estimator.V @ arms.theta_hat.unsqueeze(-1), arms.estimator.V @ torch.ones(DIM, 1, dtype=D)], -1
    )
    assert arms.add_actions(2, prior="pooled", rounds=ROUNDS) == [2, 3]
    estimator, lead = arms.estimator, len(batch)
    one = RidgeRegression(DIM, ridge=estimator.ridge, batch_shape=batch)
    scale = torch.full(batch, one.noise_scale * (40.0 / ROUNDS) ** 0.5, dtype=D)
    for t in range(40):
        one.step(x[t], reward[t], noise_scale=scale)
    for k in (2, 3):
        close(estimator.V.select(lead, k), one.V, 1e-10)
        close(estimator.V_inv.select(lead, k), one.V_inv, 1e-10)
        if build is RidgeRegression:
            close(estimator.theta_hat.select(lead, k), one.theta_hat, 1e-10)
            close(estimator.logdet.select(lead, k), one.logdet, 1e-10)
        else:  # residuals may be cut, so the sums are those of the arms
            sums = (estimator.V @ estimator.theta_hat.unsqueeze(-1)).squeeze(-1)
            close(sums.select(lead, k), ROUNDS / 40.0 * learnt[..., 0, 0].sum(lead), 1e-10)
            ones = RidgeRegression(DIM, ridge=estimator.ridge, batch_shape=batch)
            for t in range(40):
                ones.step(x[t], torch.ones(batch, dtype=D), noise_scale=scale)
            close(estimator.ones_hat.select(lead, k), ones.theta_hat, 1e-10)
    assert not estimator.rounds[..., 2:].any()
    arms.step(x[0], torch.full(batch, 3), reward[0])
    assert bool((estimator.rounds[..., 3] == 1).all())


def test_without_rounds_there_is_nothing_to_pool() -> None:
    arms = DisjointArms(RidgeRegression(DIM), ARMS)
    arms.add_actions(prior="pooled", rounds=ROUNDS)
    assert differences({"V": arms.estimator.V[0]}, {"V": arms.estimator.V[2]}) == []


@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_given_parameter_is_the_first_estimate(batch: tuple[int, ...]) -> None:
    arms, x, _ = played(RidgeRegression, *batch, ridge=2.0)
    before = snapshot(arms)
    arms.add_actions(prior=[0.5, -1.0, 0.0], rounds=ROUNDS)
    close(arms.theta_hat[..., 2, :], torch.tensor([0.5, -1.0, 0.0], dtype=D).expand(*batch, -1), 1e-12)
    close(arms.estimator.V[..., 2, :, :], 7.0 * torch.eye(DIM, dtype=D).expand(*batch, -1, -1), 1e-12)
    close(arms.estimator.logdet[..., 2], torch.full(batch, DIM * np.log(3.5), dtype=D), 1e-12)
    arms.remove_actions([2])
    for name, value in snapshot(arms).items():
        if name in before:
            close(value, before[name], 0.0)
    assert arms.select(x[0]).shape == batch


def test_the_set_holds_if_the_prior_does() -> None:
    """With a parameter as far from the prior as the theorem allows, the set fails in at most a share delta of the runs."""
    runs, ridge, delta, bound = 400, 1.0, 0.1, 1.0
    arms = DisjointArms(
        RidgeRegression(2, noise_scale=1.0, ridge=ridge, theta_bound=bound, delta=delta, batch_shape=(runs,)),
        1,
        most_actions=1,
    )
    prior = torch.tensor([2.0, -1.0], dtype=D)
    arms.add_actions(prior=prior, rounds=ROUNDS)
    away = numbers(1, runs, 2)
    truth = prior + bound * (ridge / (ridge + ROUNDS)) ** 0.5 * away / away.norm(dim=-1, keepdim=True)
    missed, arm = torch.zeros(runs, dtype=torch.bool), torch.ones(runs, dtype=torch.int64)
    for t in range(60):
        x = numbers(10 + t, runs, 2)
        arms.step(x, arm, (x * truth).sum(-1) + numbers(100 + t, runs))
        gap = truth - arms.theta_hat[:, 1]
        length = (gap * (arms.estimator.V[:, 1] @ gap.unsqueeze(-1)).squeeze(-1)).sum(-1).sqrt()
        missed |= length > arms.estimator.radius()[:, 1]
    assert float(missed.double().mean()) <= delta
    assert float((arms.theta_hat[:, 1] - truth).norm(dim=-1).mean()) < 0.5


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a word": (
        {"prior": "mean", "rounds": 1.0},
        ValueError,
        "prior: expected 'pooled', a parameter or None, got 'mean'",
    ),
    "shape": ({"prior": [1.0], "rounds": 1.0}, ValueError, r"prior: expected shape \(3\), got \(1\)"),
    "NaN": ({"prior": [1.0, np.nan, 0.0], "rounds": 1.0}, ValueError, "prior: expected finite"),
    "no rounds": ({"prior": "pooled"}, TypeError, "rounds: expected the number of rounds"),
    "0 rounds": ({"prior": "pooled", "rounds": 0}, ValueError, "rounds: expected a number above 0, got 0"),
    "no prior": ({"rounds": 2.0}, TypeError, "rounds: expected None without a prior, got 2"),
}


@pytest.mark.parametrize(("options", "error", "message"), BAD.values(), ids=BAD)
def test_a_wrong_prior_is_refused_by_name(options: Any, error: type[Exception], message: str) -> None:
    arms = played(RidgeRegression)[0]
    before = snapshot(arms)
    with pytest.raises(error, match=f"^{message}"):
        arms.add_actions(**options)
    assert differences(before, snapshot(arms)) == []
    assert arms.actions == ARMS


def test_other_estimators_are_refused_by_name() -> None:
    logistic = DisjointArms(UCB(GLMRegression(2, link=Logistic(), feature_bound=1.0)), ARMS)
    with pytest.raises(TypeError, match=r"^prior: expected arms over one of RidgeRegression, .*, got GLMRegression$"):
        logistic.add_actions(prior="pooled", rounds=1.0)
    with pytest.raises(
        TypeError, match=r"^prior: expected 'pooled' or None, .*AdaptiveRidgeRegression, got a parameter$"
    ):
        torchonline.bandit(2, actions=ARMS).add_actions(prior=[0.0, 0.0, 0.0], rounds=1.0)
