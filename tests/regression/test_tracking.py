"""Discounted ridge regression and normalised LMS: their references, and what they claim."""

import math

import numpy as np
import pytest
import torch

from tests.learners import close
from tests.reference.discounted_ridge import DiscountedRidgeReference, normalized_lms
from torchonline import DiscountedRidgeRegression, NormalizedLMS

pytestmark = pytest.mark.fast

D = torch.float64


def draw(seed: int, count: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of many lengths, rewards and noise scales."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, dim)) * 10.0 ** random.uniform(-1, 1, (count, 1))
    return x, random.standard_t(2.0, count), random.uniform(0.2, 3.0, count)


@pytest.mark.parametrize(("dim", "discount"), [(1, 0.5), (3, 2.0 / 3.0), (3, 0.97), (4, 0.999)])
@pytest.mark.parametrize("views", [True, False])
def test_discounted_ridge_is_the_reference(dim: int, discount: float, views: bool) -> None:
    options = {"discount": discount, "noise_scale": 0.7, "theta_bound": 2.0, "ridge": 3.0, "delta": 0.1}
    learner, reference = DiscountedRidgeRegression(dim, **options), DiscountedRidgeReference(dim, **options)
    learner.is_small &= views
    query = np.linspace(-1.0, 2.0, dim)
    for x, reward, scale in zip(*draw(0, 120, dim), strict=True):
        own = None if reward > 1.0 else scale
        learner.step(x, reward, noise_scale=own)
        reference.step(x, reward, own)
        close(learner.theta_hat, torch.from_numpy(reference.theta_hat))
        close(learner.V, torch.from_numpy(reference.matrix(1)))
        for ours, theirs in (
            (learner.width(query), reference.width(query)),
            (learner.radius(), reference.radius()),
            (learner.squared_trace, np.trace(reference.matrix(2))),
        ):
            assert math.isclose(float(ours), theirs, rel_tol=1e-9)
        close(learner.prior, torch.from_numpy(reference.prior(1)))
        close(learner.squared_prior, torch.from_numpy(reference.prior(2)))


def misses(radius_scale: float, move: float = 0.0) -> float:
    """The largest share, over checkpoints, of 2000 learners whose confidence set fails somewhere."""
    batched, dim, random = 2000, 2, torch.Generator().manual_seed(0)
    learner = DiscountedRidgeRegression(
        dim, discount=0.9, noise_scale=1.0, delta=0.2, ridge=0.1, radius_scale=radius_scale, batch_shape=(batched,)
    )
    theta = torch.nn.functional.normalize(torch.randn(batched, dim, generator=random, dtype=D), dim=-1)
    worst = 0.0
    for t in range(60):
        # Looks where the set is widest.
        _, vectors = torch.linalg.eigh(learner.P)
        x = vectors[..., -1]
        learner.step(x, (x * theta).sum(-1) + torch.randn(batched, generator=random, dtype=D))
        if t % 10 == 9:
            error = learner.theta_hat - theta
            norm = (error * torch.linalg.solve(learner.P, error)).sum(-1).sqrt()
            worst = max(worst, float((norm > learner.radius()).double().mean()))
    return worst


def test_the_set_of_a_round_holds_as_often_as_claimed() -> None:
    """And a radius much smaller fails more often than that: the bound is of the right order."""
    assert misses(1.0) <= 0.2
    assert misses(0.4) > 0.2


def test_drift_costs_at_most_the_last_term() -> None:
    """Without noise, and with a parameter that moves: the bias is below the term, the rest below the ridge's."""
    random, dim, discount = np.random.default_rng(0), 3, 0.9
    learner = DiscountedRidgeRegression(dim, discount=discount, theta_bound=1.0, noise_scale=1e-6)
    thetas, rows = [], []
    for t in range(200):
        theta = np.array([math.cos(t / 20), math.sin(t / 20), 0.0])
        x = random.standard_normal(dim)
        learner.step(x, x @ theta)
        thetas.append(theta)
        rows.append(x)
        ages = discount ** np.arange(t, -1, -1.0)
        drift = math.sqrt(ages @ np.square(np.sum(np.array(rows) * (np.array(thetas) - theta), -1)))
        for query in random.standard_normal((5, dim)):
            error = abs(float(learner(query)) - query @ theta)
            along = math.sqrt(query @ np.linalg.solve(learner.V.numpy(), query))
            assert error <= float(learner.radius() * learner.width(query)) + along * drift + 1e-12


@pytest.mark.parametrize("views", [True, False])
def test_normalized_lms_is_the_reference_and_keeps_its_bound(views: bool) -> None:
    for seed, step_size in enumerate((0.05, 0.5, 1.0)):
        x, rewards, scales = draw(seed, 200, 3)
        learner = NormalizedLMS(3, step_size=step_size, ridge=0.3, noise_scale=0.5)
        learner.is_small &= views
        expected = normalized_lms(x, rewards, step_size, 0.3, 0.5 / scales)
        for t in range(200):
            close(learner.theta_hat, torch.from_numpy(expected[t]))
            learner.step(x[t], rewards[t], noise_scale=scales[t])
        close(learner.theta_hat, torch.from_numpy(expected[-1]))
        a, targets = x * (0.5 / scales)[:, None], rewards * 0.5 / scales
        w = 1.0 / (0.3 + np.sum(a * a, -1))
        for u in (np.zeros(3), np.ones(3), np.linalg.lstsq(a, targets, rcond=None)[0], 100.0 * np.ones(3)):
            errors = w @ np.square(np.sum(a * (expected[:-1] - u), -1))
            assert errors <= u @ u / step_size + w @ np.square(targets - a @ u) + 1e-9
            # Of a parameter that moves: the path times what it is at most away.
            path = u + np.cumsum(np.full((201, 3), 0.01), 0) - 0.01
            away = np.linalg.norm(expected - path, axis=-1).max()
            moved = np.linalg.norm(np.diff(path, axis=0), axis=-1)
            errors = w @ np.square(np.sum(a * (expected[:-1] - path[:-1]), -1))
            noise = w @ np.square(targets - np.sum(a * path[:-1], -1))
            assert errors <= (path[0] @ path[0] + 2.0 * away * moved.sum()) / step_size + noise + 1e-9


def test_its_set_is_the_trivial_one() -> None:
    """It holds for every parameter that is no longer than the bound."""
    learner = NormalizedLMS(2, theta_bound=3.0, ridge=0.5)
    learner.step(torch.tensor([1.0, 2.0]), 5.0)
    theta = -3.0 * learner.theta_hat / learner.theta_hat.norm()
    x = learner.theta_hat.clone()
    assert math.isclose(float(learner(x) - x @ theta), float(learner.radius() * learner.width(x)), rel_tol=1e-12)


def test_wrong_steps_are_refused() -> None:
    for step_size in (0.0, 1.5, -1.0):
        with pytest.raises(ValueError, match=r"step_size: expected a number in \(0\.0, 1\.0\]"):
            NormalizedLMS(2, step_size=step_size)
    with pytest.raises(ValueError, match=r"discount: expected at least 0\.75, a memory of 4 rounds, got 0\.7"):
        DiscountedRidgeRegression(4, discount=0.7)
