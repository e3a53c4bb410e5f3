"""Estimators without a bandit: features that come by themselves, noise scales that change, predictions with intervals."""

import math

import pytest
import torch

from torchonline import HeavyTailRegression, HuberRegression, RidgeRegression
from torchonline.environments import Noise, Pareto, StudentT
from torchonline.regression.estimator import Estimator

D = torch.float64
RUNS, ROUNDS, DIM, DELTA = 300, 600, 3, 0.05
LIMIT = DELTA + 3.0 * math.sqrt(DELTA * (1.0 - DELTA) / RUNS)


def share_of_misses(estimator: Estimator, law: Noise, order: float) -> tuple[float, torch.Tensor]:
    """Runs in which an interval for the mean of the next response ever missed it, and the last errors of prediction.

    Features follow an autoregression, which knows what came before; the noise scale of a round is known before it.
    """
    generator = torch.Generator().manual_seed(0)
    theta = torch.nn.functional.normalize(torch.randn(RUNS, DIM, generator=generator, dtype=D), dim=-1)
    x, response = torch.zeros(RUNS, DIM, dtype=D), torch.zeros(RUNS, dtype=D)
    missed = torch.zeros(RUNS, dtype=torch.bool)
    errors = []
    for t in range(ROUNDS):
        x = 0.5 * x + torch.randn(RUNS, DIM, generator=generator, dtype=D)
        x[:, 0] += 0.1 * response.clamp(-1.0, 1.0)
        size = 0.3 if t % 3 else 3.0
        mean = (x * theta).sum(-1)
        low, high = estimator.interval(x)
        missed |= (mean < low) | (mean > high)
        errors.append((estimator(x) - mean).abs())
        response = mean + size * law.sample((RUNS,), generator) / law.moment_norm(order)
        estimator.step(x, response, noise_scale=torch.full((RUNS,), size, dtype=D))
    return float(missed.double().mean()), torch.stack(errors[-100:]).mean(0)


@pytest.mark.parametrize(("law", "order"), [(StudentT(2.1), 2.0), (Pareto(2.5), 2.0), (Pareto(1.5), 1.4)])
def test_intervals_cover(law: Noise, order: float) -> None:
    certified = HeavyTailRegression(DIM, moment_order=order, delta=DELTA, batch_shape=(RUNS,))
    share, errors = share_of_misses(certified, law, order)
    assert share <= LIMIT
    # They are of use: the widest is far from what theta_bound alone would say.
    assert float((certified.radius() * certified.width(torch.ones(RUNS, DIM, dtype=D))).max()) < math.sqrt(DIM)
    assert float(errors.median()) < 0.3


def test_intervals_of_the_paper_cover() -> None:
    huber = HuberRegression(DIM, horizon=ROUNDS, moment_order=1.99, feature_bound=6.0, batch_shape=(RUNS,))
    share, _ = share_of_misses(huber, StudentT(2.1), 1.99)
    assert share <= LIMIT


def test_least_squares_is_seen_to_miss() -> None:
    ridge = RidgeRegression(DIM, noise_scale=1.0, ridge=DIM, delta=DELTA, batch_shape=(RUNS,))
    share, _ = share_of_misses(ridge, Pareto(1.5), 1.4)
    assert share > LIMIT
