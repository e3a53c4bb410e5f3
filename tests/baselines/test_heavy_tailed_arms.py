"""BTC and BMM, which estimate each arm apart: what they are made of, and what is proved of features on a schedule."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from torchonline import RidgeRegression
from torchonline.baselines import BMMRegression, BTCRegression
from torchonline.environments import GaussianNoise, LinearBandit, Noise, Pareto, StudentT

D = torch.float64


def played(learner: Any, rounds: int, scale: float, seed: int = 0) -> torch.Tensor:
    """Learn from some rounds; return probes."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(rounds):
        x = torch.randn(learner.dim, generator=generator, dtype=D)
        learner.step(x, scale * torch.randn((), generator=generator, dtype=D))
    return torch.randn(7, learner.dim, generator=generator, dtype=D)


@pytest.mark.parametrize("cls", [BTCRegression, BMMRegression])
def test_estimates_are_ridge_regression_where_nothing_is_robust(cls: Any) -> None:
    """No reward is large enough for BTC; and BMM has one regression."""
    own = {"truncation": 1e6} if cls is BTCRegression else {"repeats": 1}
    learner, ridge = cls(3, horizon=50, ridge=0.5, **own), RidgeRegression(3, ridge=0.5)
    probes = played(learner, 40, 1.0)
    played(ridge, 40, 1.0)
    torch.testing.assert_close(learner(probes), ridge(probes), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(learner.theta_hat, ridge.theta_hat, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cls", [BTCRegression, BMMRegression])
def test_estimates_scale_with_x_and_are_not_linear(cls: Any) -> None:
    own = {"truncation": 0.3} if cls is BTCRegression else {"repeats": 5}
    learner = cls(2, horizon=80, **own)
    generator, arms = torch.Generator().manual_seed(0), torch.eye(2, dtype=D)
    for t in range(60):
        learner.step(arms[t // 5 % 2], torch.randn((), generator=generator, dtype=D))
    x, y = arms
    torch.testing.assert_close(learner(-3.0 * (x + 0.5 * y)), -3.0 * learner(x + 0.5 * y))
    torch.testing.assert_close(learner.theta_hat, learner(arms))
    assert abs(float(learner(x + y) - learner(x) - learner(y))) > 1e-3


def test_btc_truncates_each_round_by_its_weight() -> None:
    """By hand, in one dimension: V = 1 + 1 + 1/4, the weights of x = 1 are 4/9 and 2/9, of norm 6/9 to the order 1."""
    learner = BTCRegression(1, horizon=5, ridge=1.0, moment_order=1.0 + 1e-12)
    for x, reward in ((1.0, 1.49), (0.5, 3.01)):
        learner.step(torch.tensor([x], dtype=D), torch.tensor(reward, dtype=D))
    expected = 4.0 / 9.0 * 1.49
    torch.testing.assert_close(learner(torch.ones(1, dtype=D)), torch.tensor(expected, dtype=D))
    learner = BTCRegression(1, horizon=5, ridge=1.0, moment_order=1.0 + 1e-12)
    for x, reward in ((1.0, -1.51), (0.5, -2.99)):
        learner.step(torch.tensor([x], dtype=D), torch.tensor(reward, dtype=D))
    torch.testing.assert_close(learner(torch.ones(1, dtype=D)), torch.tensor(-2.0 / 9.0 * 2.99, dtype=D))


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("order", [2.0, 1.7, 1.2])
def test_btc_keeps_rewards_at_the_threshold(order: float, dtype: torch.dtype) -> None:
    """Whatever rounding does: n equal rounds keep rewards up to the p-th root of n."""
    learner, x = BTCRegression(2, horizon=40, moment_order=order, dtype=dtype), torch.tensor([0.3, 0.7], dtype=dtype)
    for n in range(1, 40):
        learner.step(x, torch.tensor(n ** (1.0 / order), dtype=dtype))
        total = sum(k ** (1.0 / order) for k in range(1, n + 1))
        mean = total * float(x @ x) / (2.0 + n * float(x @ x))
        torch.testing.assert_close(learner(x), torch.tensor(mean, dtype=dtype), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("order", "noise_scale"), [(2.0, 1.0), (1.3, 0.2), (1.6, 5.0)])
def test_the_radius_of_btc_is_small_at_the_truncation_that_is_named(order: float, noise_scale: float) -> None:
    """At (u / ell)^(1/p) it is at most twice as large as at any other."""
    options: dict[str, Any] = {"horizon": 1000, "moment_order": order, "noise_scale": noise_scale}
    u, ell = (1.0 + noise_scale) ** order, math.log(2.0 * 1000 / 0.01)
    best = (u / ell) ** (1.0 / order)
    slope = BTCRegression(2, truncation=best, **options).slope
    others = [BTCRegression(2, truncation=best * 2.0**k, **options).slope for k in range(-12, 13)]
    assert slope <= 2.0 * min(others)
    assert slope == pytest.approx((5.0 / 3.0 + math.sqrt(2.0)) * u ** (1.0 / order) * ell ** ((order - 1.0) / order))


@pytest.mark.parametrize(("horizon", "delta"), [(100, 0.5), (4000, 0.05 / 20), (18_000, 1.0 / 144_000.0)])
def test_epochs_of_bmm_are_long_enough_for_their_medians(horizon: int, delta: float) -> None:
    repeats = BMMRegression(2, horizon=horizon, delta=delta).repeats
    assert math.exp(-repeats / 8.0) <= delta / (2.0 * horizon) < math.exp(-(repeats - 1) / 8.0)


@pytest.mark.parametrize("repeats", [1, 2, 3, 4, 9])
def test_bmm_is_the_median_of_its_regressions(repeats: int) -> None:
    learner = BMMRegression(3, horizon=400, repeats=repeats)
    generator = torch.Generator().manual_seed(0)
    arms = torch.randn(4, 3, generator=generator, dtype=D)
    for t in range(12 * repeats):
        learner.step(arms[t // repeats % 4], StudentT(1.2).sample((), generator))
    assert int(learner.epochs) == 12
    each = (arms @ learner.theta_candidates.mT).numpy()
    np.testing.assert_allclose(learner(arms).numpy(), np.median(each, axis=-1), rtol=1e-12)


class Schedule:
    """Many runs of a learner on arms that stay, in an order that was drawn before the first reward."""

    runs, arms, delta = 300, 6, 0.05

    def __init__(self, cls: Any, law: Noise, order: float, rounds: int, **options: Any) -> None:
        options |= {"noise_scale": law.moment_norm(order), "moment_order": order, "delta": self.delta / self.arms}
        self.learner = cls(3, horizon=rounds, batch_shape=(self.runs,), **options)
        self.environment = LinearBandit(
            3, self.arms, noise=law, redraw=False, batch_shape=(self.runs,), seed=4, dtype=D
        )
        self.rounds = rounds

    def share_of_misses(self, hold: int) -> float:
        """Runs in which the bound of any arm ever failed. An arm stays for ``hold`` rounds, an epoch."""
        generator, arms = torch.Generator().manual_seed(1), self.environment.arms()
        means = (arms @ self.environment.theta.unsqueeze(-1)).squeeze(-1)
        missed = torch.zeros(self.runs, dtype=torch.bool)
        for t in range(self.rounds):
            if t % hold == 0:
                index = torch.randint(self.arms, (self.runs,), generator=generator)
            x, reward, _ = self.environment.pull(index)
            self.learner.step(x, reward)
            if (t + 1) % hold:
                continue
            error = (self.learner(arms) - means).abs()
            bound = self.learner.radius().unsqueeze(-1) * self.learner.width(arms)
            missed |= (error > bound).any(-1)
        return float(missed.double().mean())


LAWS = [(StudentT(2.1), 2.0), (Pareto(2.5), 2.0), (Pareto(1.6), 1.5)]
MOST = 0.05 + 3.0 * (0.05 * 0.95 / 300) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("truncation", [1.0, 0.3])
@pytest.mark.parametrize(("law", "order"), LAWS)
def test_btc_keeps_its_bounds_on_a_schedule(law: Noise, order: float, truncation: float) -> None:
    """300 runs, skewed noise too: misses of any arm in any round."""
    assert Schedule(BTCRegression, law, order, 300, truncation=truncation).share_of_misses(1) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize(("law", "order"), LAWS)
def test_bmm_keeps_its_bounds_on_a_schedule(law: Noise, order: float) -> None:
    play = Schedule(BMMRegression, law, order, 3000)
    assert play.share_of_misses(play.learner.repeats) <= MOST
    assert int(play.learner.epochs.min()) == 3000 // play.learner.repeats == 27


@pytest.mark.slow
@pytest.mark.parametrize("cls", [BTCRegression, BMMRegression])
def test_a_share_of_the_radius_is_seen_to_be_too_little(cls: Any) -> None:
    own = {} if cls is BTCRegression else {"repeats": 20}
    play = Schedule(cls, GaussianNoise(), 2.0, 300, radius_scale=0.02, **own)
    assert play.share_of_misses(own.get("repeats", 1)) > 0.2
