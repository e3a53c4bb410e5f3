"""AdaOFUL, HuberBandit and HEAVY-OFUL with recursive scales: against NumPy, scipy, and what they are for."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.baselines.test_heavy_tailed import optimality, scipy_minimum
from tests.reference.adaoful import AdaOFULReference, PseudoHuberLoss
from tests.reference.follow import data, follow
from tests.reference.heavy_oful import HeavyOFULReference, Loss
from tests.reference.huber_bandit import HuberBanditReference
from torchonline.baselines import AdaOFUL, AdaOFULRegression, HeavyOFUL, HuberBandit, HuberBanditRegression

D = torch.float64
REFERENCES = {"AdaOFUL": (AdaOFUL, AdaOFULReference), "HuberBandit": (HuberBandit, HuberBanditReference)}
COMMON = {"noise_scale": 0.3, "theta_bound": 0.4, "ridge": 0.1, "delta": 0.1, "radius_scale": 1e-2}
OWN: dict[str, dict[str, Any]] = {
    "AdaOFUL": COMMON
    | {"feature_bound": 5.0, "minimum_scale": 0.03, "scale_factor": 1e-3, "linear_factor": 1e-3, "ridge_factor": 0.5},
    "HuberBandit": COMMON | {"moment_order": 1.3, "threshold_factor": 3.0, "radius_factor": 0.5},
}


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", REFERENCES)
def test_agrees_with_reference(name: str, own: bool, dim: int) -> None:
    """In 150 rounds, in which each has a noise scale of its own."""
    cls, reference = REFERENCES[name]
    options = {"horizon": 200, **(OWN[name] if own else {})}
    rounds = data(dim, seed=dim, noise=(0.1, 1.0, 3.0), outlier=1e6)[:150]
    follow(cls(dim, **options), reference(dim, **options), rounds)


class RecursiveReference(HeavyOFULReference):
    """HEAVY-OFUL whose scale bounds the error by the radius instead of the ball."""

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        q, t = float(self.width(x)), len(self.rows) + 1
        root = q * math.sqrt(2.0 * self.radius() / (self.tau0 * t ** ((2.0 - self.p) / (2.0 * self.p))))
        # As the reference has it: the square root of q times what follows.
        self.largest_mean = root**2 * (self.c1 * 2.0 * self.kappa) ** 0.5 / q if q > 0.0 else 0.0
        super().step(x, reward, noise_scale=noise_scale)


@pytest.mark.parametrize("moment_order", [2.0, 1.4])
def test_recursive_scales_agree_with_reference(moment_order: float) -> None:
    options = {"horizon": 200, "moment_order": moment_order, "radius_scale": 1e-3, "scale_factor": 1.0}
    rounds = data(3, seed=0, noise=(0.1, 1.0), outlier=1e6)[:150]
    follow(HeavyOFUL(3, recursive_scale=True, **options), RecursiveReference(3, **options), rounds)


def test_a_state_of_other_scales_is_refused() -> None:
    for this, that in ((True, False), (False, True)):
        learner = HeavyOFUL(2, horizon=10, recursive_scale=this)
        with pytest.raises(RuntimeError, match="recursive_scale"):
            learner.load_state_dict(HeavyOFUL(2, horizon=10, recursive_scale=that).state_dict())


def history(seed: int, name: str) -> tuple[Any, Loss]:
    """A learner after some rounds, and the loss that it should have minimised; all kinds of thresholds, bounds, outliers."""
    random = np.random.default_rng(seed)
    dim, rounds = int(random.integers(1, 7)), int(random.integers(5, 100))
    bound, ridge = 10.0 ** random.uniform(-1.0, 0.5), 10.0 ** random.uniform(-1.0, 1.0)
    options: dict[str, Any] = {"theta_bound": bound, "ridge": ridge, "noise_scale": 10.0 ** random.uniform(-2.0, 0.5)}
    if name == "AdaOFUL":
        options |= {"minimum_scale": 0.01, "scale_factor": 10.0 ** random.uniform(-3.0, 1.5)}
        options |= {"linear_factor": 10.0 ** random.uniform(-3.0, 1.7)}
    else:
        options |= {"moment_order": float(random.uniform(1.2, 2.0))}
    cls: Any = AdaOFULRegression if name == "AdaOFUL" else HuberBanditRegression
    learner, truth = cls(dim, horizon=150, **options), random.standard_normal(dim)
    for _ in range(rounds):
        x = random.standard_normal(dim)
        reward = x @ truth + random.standard_t(1.2) * 10.0 ** random.uniform(-2.0, 2.0)
        learner.step(torch.from_numpy(x), torch.tensor(reward, dtype=D))
    learner.rounds -= 1
    thresholds = learner._thresholds(rounds).numpy().copy()
    learner.rounds += 1
    kind = PseudoHuberLoss if name == "AdaOFUL" else Loss
    return learner, kind(learner.history[:rounds].numpy(), learner.history_reward[:rounds].numpy(), thresholds, ridge)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
def test_is_the_constrained_minimum(name: str) -> None:
    """On 60 histories: scipy's minimum to 1e-7, a second solver's to 1e-9, and the conditions of optimality."""
    on_the_ball = inside = 0
    for seed in range(60):
        learner, loss = history(seed, name)
        theta, bound = learner.theta_hat.numpy(), learner.theta_bound
        assert optimality(loss, theta, bound) <= 1e-9 * max(1.0, float(np.abs(loss.rewards).max()))
        np.testing.assert_allclose(theta, loss.minimum(bound, np.zeros_like(theta)), rtol=0.0, atol=1e-9)
        expected = scipy_minimum(loss, learner.dim, bound)
        np.testing.assert_allclose(theta, expected, rtol=0.0, atol=1e-7, err_msg=f"seed {seed}")
        on_the_ball += np.linalg.norm(theta) > bound * (1.0 - 1e-9)
        inside += np.linalg.norm(theta) < bound * (1.0 - 1e-3)
    assert on_the_ball >= 10
    assert inside >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
def test_from_a_bad_start(name: str) -> None:
    """From anywhere in the ball, Newton's method still arrives."""
    for seed in range(20):
        learner, loss = history(seed, name)
        random = np.random.default_rng(seed)
        start = random.standard_normal(learner.dim)
        learner.theta_hat.copy_(torch.from_numpy(start / np.linalg.norm(start) * learner.theta_bound))
        learner.rounds -= 1
        learner._minimise(torch.tensor(True))
        theta = learner.theta_hat.numpy()
        assert optimality(loss, theta, learner.theta_bound) <= 1e-8 * max(1.0, float(np.abs(loss.rewards).max())), seed


def test_pseudo_huber_steps_that_are_too_long_are_cut() -> None:
    """Where a whole Newton step would overshoot: rounds far out in their tails, which hardly curve the loss."""
    learner = AdaOFULRegression(1, horizon=50, ridge=1e-3, theta_bound=1e3, noise_scale=1.0, scale_factor=1e-6)
    learner.step(torch.ones(40, 1), torch.linspace(-1.0, 1.0, 40))
    learner.history[:40], learner.history_threshold[:40] = 1.0, 0.1
    stored = (learner.history, learner.history_reward, learner.history_threshold)
    loss = PseudoHuberLoss(*(value[:40].numpy() for value in stored), 1e-3)
    lengths = []
    share = learner._share
    learner._share = lambda *arguments: (lengths.append(share(*arguments)), lengths[-1])[1]
    for start in (-900.0, 0.0, 900.0):
        learner.theta_hat.fill_(start)
        learner.rounds -= 1
        learner._minimise(torch.tensor(True))
        learner.rounds += 1
        assert optimality(loss, learner.theta_hat.numpy(), 1e3) <= 1e-6
    assert min(float(length) for length in lengths) < 0.9


@pytest.mark.filterwarnings("ignore:theta_hat. not at the minimum")
@pytest.mark.parametrize(("decades", "dtype"), [(60.0, D), (11.0, torch.float32)])
@pytest.mark.parametrize("cls", [AdaOFULRegression, HuberBanditRegression])
def test_many_decades_leave_no_nan(cls: Any, decades: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    options = {"scale_factor": 1e-4, "linear_factor": 1e-3} if cls is AdaOFULRegression else {}
    learner = cls(3, horizon=40, dtype=dtype, **options)
    for _ in range(40):
        power = decades * (2.0 * torch.rand(4, generator=generator, dtype=D) - 1.0)
        value = (torch.randn(4, generator=generator).sign() * 10.0**power).to(dtype)
        learner.step(value[:3] if cls is AdaOFULRegression else value[:3].sign(), value[3])
        assert all(bool(buffer.isfinite().all()) for buffer in learner.buffers())
        assert float(learner.theta_hat.norm()) <= 1.0 + 1e-6


def test_a_huber_bandit_without_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="noise_scale: expected"):
        HuberBandit(2, horizon=10, noise_scale=0.0)


def test_a_round_counts_by_its_own_deviation() -> None:
    """AdaOFUL: a thousand noisy rounds do not hide the line that a few precise ones show."""
    generator = torch.Generator().manual_seed(0)
    learner = AdaOFULRegression(1, horizon=2000, minimum_scale=1e-3, scale_factor=1e-3, linear_factor=1e-6)
    x, noise = torch.ones(300, 1, dtype=D), torch.randn(300, generator=generator, dtype=D)
    scales = torch.where(torch.arange(300) % 30 == 0, 0.01, 10.0).to(D)
    learner.step(x, 0.5 + scales * noise, noise_scale=scales)
    assert float(learner.theta_hat) == pytest.approx(0.5, abs=0.02)


def test_one_growing_threshold() -> None:
    """HuberBandit cuts all residuals at h nu (t / log(3 t^2 / delta))^(1/p), those of earlier rounds too."""
    learner = HuberBanditRegression(1, horizon=1000, ridge=1e-6, theta_bound=1e6, noise_scale=2.0, moment_order=1.5)
    learner.step(torch.ones(1), torch.tensor(1e4))
    learner.step(torch.ones(99, 1), torch.zeros(99))
    tau = 2.0 * (100.0 / math.log(3.0 * 100.0**2 / 0.01)) ** (1.0 / 1.5)
    assert float(learner.theta_hat) == pytest.approx(tau / 99.0, rel=1e-6)
