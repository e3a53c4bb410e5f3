"""HuberRegression and HvtUCB against the paper's equations, its own numbers, and the properties of its update."""

import itertools
import math
from typing import Any

import pytest
import torch

from tests.learners import close, differences, snapshot
from tests.reference.follow import data, follow
from tests.reference.huber import HuberReference
from torchonline import HuberRegression, HvtUCB, RidgeRegression

D = torch.float64
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "infinite variance": {"moment_order": 1.5},
    "all": {
        "moment_order": 1.2,
        "noise_scale": 0.5,
        "theta_bound": 0.3,
        "feature_bound": 5.0,
        "ridge": 0.1,
        "delta": 0.1,
        "radius_scale": 1e-3,
    },
    "no noise": {"radius_scale": 1e-4, "alpha": 1.0, "minimum_scale": 0.5, "noise_scale": 0.0},
}


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_agrees_with_reference(dim: int, options: dict[str, Any]) -> None:
    noise = (0.0, 0.1, 1.0, 3.0) if dim > 1 else None
    rounds = data(dim, seed=dim, noise=noise, outlier=1e9)
    follow(HvtUCB(dim, horizon=300, **options), HuberReference(dim, horizon=300, **options), rounds)


def test_radius_in_the_papers_experiment() -> None:
    """D = 2, T = 18000: what Eq. (10) gives there, before the first round, after it, and at the end."""
    heavy = HuberRegression(2, horizon=18_000, moment_order=1.99)
    assert heavy.radius().item() == pytest.approx(math.sqrt(2 * (2 + 4)), rel=1e-12)
    heavy.step(torch.ones(2), torch.tensor(0.0))
    assert heavy.radius().item() == pytest.approx(4968, abs=0.5)
    heavy.rounds.fill_(18_000)
    assert heavy.radius().item() == pytest.approx(5092, abs=0.5)
    finite = HuberRegression(2, horizon=18_000)
    finite.step(torch.ones(2), torch.tensor(0.0))
    assert finite.radius().item() == pytest.approx(4982, abs=0.5)


def test_is_ridge_regression_where_nothing_is_clipped() -> None:
    """With alpha = 1, unit scales and small rewards the update is recursive least squares."""
    huber = HuberRegression(
        3, horizon=10_000, alpha=1.0, minimum_scale=1.0, ridge=400.0, theta_bound=50.0, radius_scale=1e-9
    )
    ridge = RidgeRegression(3, ridge=400.0)
    for _ in range(300):
        x, reward = torch.nn.functional.normalize(torch.randn(3, dtype=D), dim=0), torch.randn((), dtype=D)
        huber.step(x, reward)
        ridge.step(x, reward)
    for name in ("theta_hat", "V", "V_inv"):
        close(getattr(huber, name), getattr(ridge, name))


SWITCHES = ("clip_residuals", "project", "adaptive_scale")


@pytest.mark.parametrize("off", [SWITCHES[:1], SWITCHES[1:2], SWITCHES[2:], SWITCHES])
def test_switches_agree_with_reference(off: tuple[str, ...]) -> None:
    options: dict[str, Any] = {"horizon": 300, "radius_scale": 1e-3, "theta_bound": 0.3, "minimum_scale": 0.2}
    options |= dict.fromkeys(off, False)
    rounds = data(3, seed=0, noise=(0.0, 0.1, 1.0), outlier=30.0)
    follow(HvtUCB(3, **options), HuberReference(3, **options), rounds)


def test_is_weighted_ridge_regression_without_its_switches() -> None:
    """With alpha = 1: no condition on rewards, ridge, ball or noise scales."""
    off = dict.fromkeys(SWITCHES, False)
    huber = HuberRegression(
        3, horizon=10_000, alpha=1.0, ridge=0.3, theta_bound=0.1, noise_scale=1.0, minimum_scale=1e-3, **off
    )
    ridge = RidgeRegression(3, ridge=0.3, noise_scale=1.0)
    for _ in range(200):
        x, reward, scale = (
            3.0 * torch.randn(3, dtype=D),
            100.0 * torch.randn((), dtype=D),
            torch.rand((), dtype=D) + 0.01,
        )
        huber.step(x, reward, noise_scale=scale)
        ridge.step(x, reward, noise_scale=scale)
    for name in ("theta_hat", "V", "V_inv"):
        close(getattr(huber, name), getattr(ridge, name))


def test_a_state_of_other_switches_is_refused() -> None:
    settings = [dict(zip(SWITCHES, values, strict=True)) for values in itertools.product((True, False), repeat=3)]
    for mine, theirs in itertools.product(settings, repeat=2):
        learner, other = (HuberRegression(2, horizon=10, **switches) for switches in (mine, theirs))
        if mine == theirs:
            learner.load_state_dict(other.state_dict())
            continue
        with pytest.raises(RuntimeError, match=next(name for name in SWITCHES if mine[name] != theirs[name])):
            learner.load_state_dict(other.state_dict())


def learnt(**options: Any) -> HuberRegression:
    """An estimator after 50 ordinary rounds."""
    estimator = HuberRegression(3, horizon=1000, radius_scale=1e-3, **options)
    estimator.step(torch.randn(50, 3, dtype=D), torch.randn(50, dtype=D))
    return estimator


@pytest.mark.parametrize("moment_order", [2.0, 1.5])
@pytest.mark.parametrize("reward", [1e3, -1e6, 1e12, -1e100])
def test_one_outlier_moves_theta_by_a_bounded_amount(moment_order: float, reward: float) -> None:
    """At most sqrt(alpha) tau0 t^p in the norm of V, whatever the reward; and exactly that when it is clipped."""
    estimator = learnt(moment_order=moment_order, theta_bound=100.0)
    reference = HuberReference(3, horizon=1000, moment_order=moment_order)
    before = estimator.theta_hat.clone()
    estimator.step(torch.randn(3, dtype=D), torch.tensor(reward, dtype=D))
    move = estimator.theta_hat - before
    bound = 2.0 * reference.tau0 * 51.0**reference.p
    assert (move @ estimator.V @ move).sqrt().item() == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("alpha", [1.0, 4.0])
@pytest.mark.parametrize("noise_scale", [0.0, 1e-3, 1.0])
def test_the_floor_bounds_how_much_a_round_counts(alpha: float, noise_scale: float) -> None:
    """w^2 <= 1 / (8 alpha), at any scale of the radius: no round adds more than log(1 + w^2) to log det V."""
    estimator = HuberRegression(2, horizon=100, alpha=alpha, noise_scale=noise_scale, radius_scale=1e-9)
    largest = 0.0
    for _ in range(60):
        before = estimator.V.logdet()
        estimator.step(30.0 * torch.randn(2, dtype=D), torch.randn((), dtype=D))
        largest = max(largest, (estimator.V.logdet() - before).item())
    assert largest == pytest.approx(math.log1p(1.0 / (8.0 * alpha)), rel=1e-9)


def test_radius_scale_reaches_the_weights_too() -> None:
    """With the radius of theory, each round is down-weighted by it; a scaled radius gives the rounds their weight back."""
    information = []
    for scale in (1.0, 1e-3):
        estimator = HuberRegression(2, horizon=1000, radius_scale=scale)
        estimator.step(torch.nn.functional.normalize(torch.randn(500, 2, dtype=D), dim=-1), torch.zeros(500))
        information.append((estimator.V.logdet() - 2 * math.log(2.0)).item())
    assert information[0] < 0.1
    assert information[1] > 1.0


@pytest.mark.parametrize("batch_shape", [(), (4,)])
def test_theta_stays_in_the_ball(batch_shape: tuple[int, ...]) -> None:
    estimator = HuberRegression(3, horizon=100, theta_bound=0.2, radius_scale=1e-3, batch_shape=batch_shape)
    on_the_sphere = 0
    for _ in range(100):
        estimator.step(torch.randn(*batch_shape, 3, dtype=D), 3.0 * torch.randn(batch_shape, dtype=D))
        lengths = estimator.theta_hat.norm(dim=-1)
        assert bool((lengths <= 0.2 * (1 + 1e-12)).all())
        on_the_sphere += int((lengths > 0.2 * (1 - 1e-9)).sum())
    assert 0 < on_the_sphere < 100 * max(1, estimator.theta_hat.numel() // 3)


def test_scales_with_the_unit_of_the_reward() -> None:
    """Rewards, noise and theta c times as large, ridge c^2 times as small: theta c times as large."""
    c = 1000.0
    # beta_0 = sqrt(ridge (2 + 4 S^2)) has a 2 without a unit: keep the radius out, and the floor 2 sqrt 2 decides.
    options = {"horizon": 200, "moment_order": 1.5, "delta": 0.1, "radius_scale": 1e-9}
    one = HuberRegression(2, **options, minimum_scale=0.1, ridge=2.0, theta_bound=1.0)
    other = HuberRegression(2, **options, minimum_scale=0.1 * c, ridge=2.0 / c**2, theta_bound=c)
    for _ in range(100):
        x, reward, scale = torch.randn(2, dtype=D), torch.randn((), dtype=D), torch.rand((), dtype=D)
        other.step(x, c * reward, noise_scale=c * scale)
        one.step(x, reward, noise_scale=scale)
    close(other.theta_hat / c, one.theta_hat)


def test_nothing_to_see_teaches_nothing() -> None:
    estimator = learnt()
    before = snapshot(estimator)
    estimator.step(torch.zeros(3), torch.tensor(5.0))
    assert differences(before, snapshot(estimator)) == ["rounds"]
    assert estimator.rounds == 51
