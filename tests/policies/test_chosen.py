"""Tests of what policies say of chosen arms, against their statistics."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learners import round_of
from torchonline import (
    OFUL,
    UCB,
    DisjointArms,
    EpsilonGreedy,
    LocalGLB,
    RadiusSelector,
    RidgeRegression,
    ScaledPolicy,
    StandardScaler,
    ThompsonSampling,
)
from torchonline.policies.chosen import chosen_probability, predicted

DIM, ARMS = 3, 4


def bounds(theta: Tensor, matrix: Tensor, radius: Tensor, x: Tensor, bound: float = 1.0) -> list[Tensor]:
    """Prediction and bounds of one learner, by the formula of a ridge regression."""
    mean, width = x @ theta, (x @ matrix * x).sum(-1).sqrt()
    most = bound * x.norm(dim=-1)
    return [mean, torch.maximum(mean - radius * width, -most), torch.minimum(mean + radius * width, most)]


def assert_close(found: Any, expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("many", [False, True])
def test_against_the_statistics_of_each_learner(batch: tuple[int, ...], many: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (*batch, 5) if many else batch
    arms = torch.rand(*shape, ARMS, DIM, generator=generator, dtype=torch.float64)
    context = torch.rand(*shape, DIM, generator=generator, dtype=torch.float64)
    action = torch.randint(ARMS, shape, generator=generator)

    shared = OFUL(DIM, batch_shape=batch)
    rows, rewards = torch.rand(*batch, 9, DIM, generator=generator), torch.rand(*batch, 9, generator=generator)
    shared.step(*round_of(shared, rows, rewards))
    each = DisjointArms(RidgeRegression(DIM, batch_shape=batch), ARMS)
    index = torch.randint(ARMS, (*batch, 20), generator=generator)
    each.step(torch.rand(*batch, 20, DIM, generator=generator), index, torch.rand(*batch, 20, generator=generator))

    one, batched = shared.estimator, each.policy.estimator
    found, of_each = predicted(shared, arms, action), predicted(each, context, action)
    for place in [(i,) for i in range(2)] if batch else [()]:
        k = action[place]
        x = arms[place].gather(-2, k[..., None, None].expand(*k.shape, 1, DIM)).squeeze(-2)
        expected = bounds(one.theta_hat[place], one.V_inv[place], one.radius()[place], x)
        assert_close([value[place] for value in found], expected)
        for number in range(k.numel()):
            at = (*place, number) if many else place
            arm = (*place, int(action[at]))
            expected = bounds(batched.theta_hat[arm], batched.V_inv[arm], batched.radius()[arm], context[at])
            assert_close([value[at] for value in of_each], expected)


def test_scalers_and_links_come_in_between() -> None:
    scaled = ScaledPolicy(UCB(RidgeRegression(DIM + 1)), scaler=StandardScaler(DIM))
    rows = 10.0 + 5.0 * torch.rand(30, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scaled.step(rows.unsqueeze(-2), [0] * 30, torch.linspace(0.0, 1.0, 30))
    x = scaled.scaler(rows[:ARMS])[2] if scaled.scaler is not None else rows
    estimator = scaled.policy.estimator
    assert_close(predicted(scaled, rows[:ARMS], torch.tensor(2)), [estimator(x), *estimator.interval(x)])
    clicks = LocalGLB(DIM)
    mean, low, high = predicted(clicks, torch.eye(DIM), torch.tensor(1))
    assert 0.0 < low < mean == 0.5 < high < 1.0


def test_probabilities() -> None:
    """1 where nothing is drawn, none where they would be estimates."""
    arms, action = torch.rand(6, ARMS, DIM, generator=torch.Generator().manual_seed(2)), torch.arange(6) % ARMS
    greedy = EpsilonGreedy(RidgeRegression(DIM), epsilon=0.4)
    expected = greedy.probabilities(arms)[torch.arange(6), action]
    assert torch.equal(chosen_probability(greedy, arms, action), expected)  # type: ignore[arg-type]
    for policy in (OFUL(DIM), RadiusSelector(RidgeRegression(DIM), ARMS)):
        assert torch.equal(chosen_probability(policy, arms[:, 0], action), torch.ones(6).double())  # type: ignore[arg-type]
    drawn = RadiusSelector(RidgeRegression(DIM), ARMS, rule="exp4", reward_range=(0.0, 1.0))
    assert torch.equal(
        chosen_probability(drawn, arms[:, 0], action), drawn.probabilities(arms[:, 0])[torch.arange(6), action]
    )  # type: ignore[arg-type]
    assert chosen_probability(ThompsonSampling(RidgeRegression(DIM)), arms, action) is None
