"""What DisjointArms promises, counted: runs in which any arm's confidence set ever lost its parameter."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.regression.test_coverage import heavy_tail_error, ridge_error
from torchonline import DisjointArms, HeavyTailRegression, RidgeRegression, StandardScaler
from torchonline.environments import GaussianNoise, Noise, Pareto, StudentT, TwoPoint

RUNS, ROUNDS, ARMS, DIM, DELTA = 500, 400, 4, 2, 0.05
LIMIT = DELTA + 3.0 * math.sqrt(DELTA * (1.0 - DELTA) / RUNS)
Choice = Callable[[DisjointArms, Tensor, torch.Generator], tuple[Tensor, Tensor]]


def directions(generator: torch.Generator, *shape: int) -> Tensor:
    """Vectors of length 1."""
    return torch.nn.functional.normalize(torch.randn(shape, generator=generator, dtype=torch.float64), dim=-1)


def on_policy(arms: DisjointArms, theta: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random context, and the arm that the policy chooses."""
    context = directions(generator, RUNS, arms.dim)
    return context, arms.select(context)


def adversary(arms: DisjointArms, theta: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The arm nearest to a miss, or every third time another, in the direction of its error: in sight of the truth."""
    error = arms.estimator.theta_hat - theta
    ratio = (error.unsqueeze(-2) @ arms.estimator.V @ error.unsqueeze(-1)).squeeze(
        (-2, -1)
    ) / arms.estimator.radius() ** 2
    others = torch.randint(ARMS, (RUNS,), generator=generator)
    action = torch.where(torch.rand(RUNS, generator=generator) < 2 / 3, ratio.argmax(-1), others)
    aim = error[torch.arange(RUNS), action] + 1e-3 * directions(generator, RUNS, arms.dim)
    return torch.nn.functional.normalize(aim, dim=-1), action


def share_of_misses(
    arms: DisjointArms, error: Callable[[Any, Tensor], Tensor], noise: Noise, choose: Choice, seed: int
) -> float:
    """The share of the runs, all in one batch, with a miss of any arm in any round."""
    generator = torch.Generator().manual_seed(seed)
    theta = directions(generator, RUNS, ARMS, arms.dim)
    missed = torch.zeros(RUNS, dtype=torch.bool)
    assert bool((error(arms.estimator, theta) <= arms.estimator.radius()).all())
    for _ in range(ROUNDS):
        context, action = choose(arms, theta, generator)
        mean = (context * theta[torch.arange(RUNS), action]).sum(-1)
        arms.step(context, action, mean + noise.sample((RUNS,), generator))
        missed |= ~(error(arms.estimator, theta) <= arms.estimator.radius()).all(-1)
    assert bool((arms.estimator.rounds.sum(-1) == ROUNDS).all())
    return float(missed.double().mean())


def ridge(factor: float = 1.0, delta: float = DELTA) -> DisjointArms:
    estimator = RidgeRegression(DIM, noise_scale=1.0, delta=delta, radius_scale=factor, batch_shape=(RUNS,))
    return DisjointArms(estimator, ARMS)


def heavy(noise: Noise, order: float, factor: float = 1.0) -> DisjointArms:
    options: dict[str, Any] = {"noise_scale": noise.moment_norm(order), "delta": DELTA, "radius_scale": factor}
    return DisjointArms(HeavyTailRegression(DIM, moment_order=order, batch_shape=(RUNS,), **options), ARMS)


@pytest.mark.parametrize("choose", [on_policy, adversary])
def test_ridge_arms_keep_their_promise(choose: Choice) -> None:
    assert share_of_misses(ridge(), ridge_error, GaussianNoise(), choose, seed=0) <= LIMIT


@pytest.mark.parametrize("choose", [on_policy, adversary])
@pytest.mark.parametrize(("noise", "order"), [(StudentT(2.1), 2.0), (TwoPoint(0.01), 2.0), (Pareto(1.5), 1.4)])
def test_heavy_tailed_arms_keep_their_promise(noise: Noise, order: float, choose: Choice) -> None:
    assert share_of_misses(heavy(noise, order), heavy_tail_error, noise, choose, seed=1) <= LIMIT


def test_a_radius_too_small_is_seen_to_be_too_small() -> None:
    """The count can tell 2/3 of the radius, and arms that have the whole of delta each."""
    assert share_of_misses(ridge(2 / 3), ridge_error, GaussianNoise(), adversary, seed=0) > LIMIT
    assert share_of_misses(ridge(delta=ARMS * DELTA), ridge_error, GaussianNoise(), adversary, seed=0) > LIMIT
    noise = GaussianNoise()
    assert share_of_misses(heavy(noise, 2.0, 1 / 2), heavy_tail_error, noise, adversary, seed=1) > LIMIT


def test_the_promise_holds_from_the_freeze_of_a_scaler_on() -> None:
    """Rewards are linear in the frozen features, with an intercept; before the freeze, in nothing in particular."""
    generator, freeze = torch.Generator().manual_seed(2), 30
    scaler = StandardScaler(DIM, clip=1.0, freeze_after=freeze, batch_shape=(RUNS,))
    # |z| <= sqrt(DIM + 1); the bound is on the parameter of the scaled coordinates.
    estimator = RidgeRegression(DIM + 1, noise_scale=1.0, delta=DELTA, batch_shape=(RUNS,))
    arms = DisjointArms(estimator, ARMS, scaler=scaler)
    theta, missed = directions(generator, RUNS, ARMS, DIM + 1), torch.zeros(RUNS, dtype=torch.bool)
    noise = GaussianNoise()
    for t in range(200):
        context = 1000.0 + 100.0 * torch.randn(RUNS, DIM, generator=generator, dtype=torch.float64)
        action = arms.select(context)
        mean = (scaler(context) * theta[torch.arange(RUNS), action]).sum(-1) if t >= freeze else context[:, 0]
        arms.step(context, action, mean + noise.sample((RUNS,), generator))
        if t >= freeze - 1:
            missed |= ~(ridge_error(arms.estimator, theta) <= arms.estimator.radius()).all(-1)
    assert bool((arms.estimator.rounds.sum(-1) == 200 - freeze).all())
    assert float(missed.double().mean()) <= LIMIT
