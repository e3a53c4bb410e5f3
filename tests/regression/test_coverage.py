"""What a radius promises, counted: runs whose confidence set ever lost the truth, on arms the learner chose itself."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learners import round_of
from torchonline import OFUL, UCB, AnytimeHeavyTailUCB
from torchonline.environments import GaussianNoise, LinearBandit, Noise, Pareto, StudentT, TwoPoint

RUNS, ROUNDS, ARMS, DELTA = 500, 2000, 20, 0.05
CORRUPTED = 40
LIMIT = DELTA + 3.0 * math.sqrt(DELTA * (1.0 - DELTA) / RUNS)


def heavy_tail_error(estimator: Any, theta: Tensor) -> Tensor:
    """The norm of V (theta_hat - theta) in A^-1, which the theorem bounds by the radius."""
    moved = estimator.V @ (estimator.theta_hat - theta).unsqueeze(-1)
    return (moved.mT @ estimator.A_inv @ moved).squeeze((-2, -1)).sqrt()


def ridge_error(estimator: Any, theta: Tensor) -> Tensor:
    """The norm of theta_hat - theta in V."""
    difference = (estimator.theta_hat - theta).unsqueeze(-1)
    return (difference.mT @ estimator.V @ difference).squeeze((-2, -1)).sqrt()


def share_of_misses(
    policy: UCB,
    error: Callable[[Any, Tensor], Tensor],
    laws: list[Noise],
    order: float,
    seed: int,
    false_reward: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Play 500 runs of each law as one batch, ``batch_shape=(laws, 500)``, told each law's moment norm.

    In the first CORRUPTED rounds, a false reward is a function of the mean reward.
    """
    estimator = policy.estimator
    environments = [
        LinearBandit(estimator.dim, ARMS, noise=noise, batch_shape=(RUNS,), seed=seed + i)
        for i, noise in enumerate(laws)
    ]
    arms = torch.stack([environment.arms() for environment in environments])
    theta = torch.stack([environment.theta for environment in environments])
    norms = torch.tensor([noise.moment_norm(order) for noise in laws], dtype=torch.float64)
    noise_scale = norms.unsqueeze(-1).expand(len(laws), RUNS)
    missed = ~(error(estimator, theta) <= estimator.radius())
    # The set holds before the first round, or what follows would prove nothing.
    assert not missed.any()
    for t in range(ROUNDS):
        index = policy.select(arms)
        outcomes = [environment.pull(k) for environment, k in zip(environments, index, strict=True)]
        x, reward, _ = map(torch.stack, zip(*outcomes, strict=True))
        if false_reward is not None and t < CORRUPTED:
            reward = false_reward((x * theta).sum(-1))
        policy.step(*round_of(policy, x, reward), noise_scale=noise_scale)
        missed |= ~(error(estimator, theta) <= estimator.radius())
    assert (estimator.rounds == ROUNDS).all()
    return missed.double().mean(-1)


@pytest.mark.parametrize("dim", [2, 5])
@pytest.mark.parametrize(
    ("noise", "order", "laws"),
    [
        ("moment", 2.0, [StudentT(2.1), GaussianNoise(), TwoPoint(0.01)]),
        # These have no variance.
        ("moment", 1.4, [StudentT(1.5), Pareto(1.5)]),
        ("symmetric", 1.4, [StudentT(1.5), Pareto(1.5, symmetric=True)]),
    ],
)
def test_heavy_tail_ucb_keeps_its_promise(dim: int, noise: str, order: float, laws: list[Noise]) -> None:
    policy = AnytimeHeavyTailUCB(
        dim, noise=noise, moment_order=order, noise_scale=1.0, delta=DELTA, batch_shape=(len(laws), RUNS)
    )
    misses = share_of_misses(policy, heavy_tail_error, laws, order, seed=100 * dim)
    assert (misses <= LIMIT).all(), misses


# A false reward is on the other side of 0: hidden in the noise, or far out.
@pytest.mark.parametrize("size", [3.0, 1e6])
@pytest.mark.parametrize(("order", "laws"), [(2.0, [StudentT(2.1), TwoPoint(0.01)]), (1.4, [Pareto(1.5)])])
def test_a_set_that_allows_for_corruption_survives_it(size: float, order: float, laws: list[Noise]) -> None:
    def false_reward(mean: Tensor) -> Tensor:
        return -size * mean.sign() * torch.tensor([law.moment_norm(order) for law in laws]).unsqueeze(-1)

    options: dict[str, Any] = {"moment_order": order, "noise_scale": 1.0, "delta": DELTA}
    options |= {"batch_shape": (len(laws), RUNS)}
    policy = AnytimeHeavyTailUCB(5, corrupted_rounds=CORRUPTED, **options)
    misses = share_of_misses(policy, heavy_tail_error, laws, order, 500, false_reward)
    assert (misses <= LIMIT).all(), misses
    misses = share_of_misses(AnytimeHeavyTailUCB(5, **options), heavy_tail_error, laws, order, 500, false_reward)
    assert (misses > LIMIT).all(), misses


def test_two_thirds_of_the_radius_are_seen_to_be_too_little() -> None:
    policy = AnytimeHeavyTailUCB(2, noise_scale=1.0, delta=DELTA, radius_scale=2.0 / 3.0, batch_shape=(1, RUNS))
    assert share_of_misses(policy, heavy_tail_error, [GaussianNoise()], 2.0, seed=200) > LIMIT


def test_oful_is_seen_to_break_its_promise_under_heavy_tails() -> None:
    law = StudentT(1.5)
    policy = OFUL(2, noise_scale=law.moment_norm(1.4), ridge=2.0, delta=DELTA, batch_shape=(1, RUNS))
    assert share_of_misses(policy, ridge_error, [law], 1.4, seed=200) > LIMIT


def test_oful_keeps_its_promise_under_gaussian_noise() -> None:
    policy = OFUL(2, noise_scale=1.0, ridge=2.0, delta=DELTA, batch_shape=(1, RUNS))
    assert share_of_misses(policy, ridge_error, [GaussianNoise()], 2.0, seed=200) <= LIMIT
