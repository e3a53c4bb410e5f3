"""CRT, MoM and RobustUCB, which are ridge regression on robust rewards: against NumPy, and what they promise."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.learners import round_of
from tests.reference.follow import data, follow
from tests.reference.medina_yang import CRTReference, MoMReference
from tests.reference.robust_ucb import RobustUCBReference, truncated_mean
from torchonline import DisjointArms
from torchonline.baselines import CRT, MoM, MoMRegression, RobustUCB, RobustUCBRegression
from torchonline.environments import GaussianNoise, LinearBandit, Noise, Pareto, StudentT

D = torch.float64
COMMON = {"moment_order": 1.3, "noise_scale": 0.3, "theta_bound": 0.4, "ridge": 0.1, "delta": 0.1, "radius_scale": 1e-2}
ONE_BY_ONE = {
    "CRT": (CRT, CRTReference, {}, {"feature_bound": 5.0, "truncation": 3.0, "radius_factor": 0.5}),
    "RobustUCB": (RobustUCB, RobustUCBReference, {"horizon": 300}, {}),
}


@pytest.mark.parametrize("dim", [1, 4])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_agrees_with_reference(name: str, own: bool, dim: int) -> None:
    cls, reference, required, extra = ONE_BY_ONE[name]
    options: dict[str, Any] = {**required, **(COMMON | extra if own else {})}
    rounds = data(dim, seed=dim, noise=(0.1, 1.0), outlier=1e6)
    follow(cls(dim, **options), reference(dim, **options), rounds)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "order"), [(StudentT(2.1), 2.0), (Pareto(2.5), 2.0), (Pareto(1.6), 1.5)])
def test_crt_keeps_the_promise_of_its_radius(law: Noise, order: float) -> None:
    """Skewed noise too, 300 runs on arms that it chooses: misses in any round from T / 4^p to T."""
    runs, rounds, delta = 300, 2000, 0.05
    options: dict[str, Any] = {"noise_scale": law.moment_norm(order), "moment_order": order, "delta": delta}
    policy = CRT(2, batch_shape=(runs,), **options)
    environment = LinearBandit(2, 10, noise=law, batch_shape=(runs,), seed=4)
    estimator, missed = policy.estimator, torch.zeros(runs, dtype=torch.bool)
    for t in range(1, rounds + 1):
        x, reward, _ = environment.pull(policy.select(environment.arms()))
        policy.step(*round_of(policy, x, reward))
        difference = (estimator.theta_hat - environment.theta).unsqueeze(-1)
        error = (difference.mT @ estimator.V @ difference).squeeze((-2, -1)).sqrt()
        missed |= (error > estimator.radius()) & (t >= rounds / 4.0**order)
    assert float(missed.double().mean()) <= delta + 3.0 * (delta * (1.0 - delta) / runs) ** 0.5


@pytest.mark.parametrize(("repeats", "groups"), [(1, 1), (5, 2), (12, 4), (7, 7)])
@pytest.mark.parametrize("own", [False, True])
def test_mom_agrees_with_reference(own: bool, repeats: int, groups: int) -> None:
    """On arms that stay; now and then other arms interrupt an epoch."""
    options: dict[str, Any] = {"horizon": 400, "repeats": repeats, "groups": groups, **(COMMON if own else {})}
    rounds = data(3, seed=repeats, noise=None, outlier=1e6)
    arms = rounds[0][0]
    policy = MoM(3, **options)
    rounds = [(moved if t % 37 == 5 else arms, reward, None) for t, (moved, reward, _) in enumerate(rounds)]
    follow(policy, MoMReference(3, **options), rounds)
    assert len(rounds) // repeats - 12 <= int(policy.estimator.epochs) <= len(rounds) // repeats


@pytest.mark.parametrize(("horizon", "order"), [(100, 2.0), (20_000, 2.0), (20_000, 1.2)])
def test_mom_has_groups_enough(horizon: int, order: float) -> None:
    """Medians of m epochs miss with probability delta / 2 at most, and an epoch is of the paper's order."""
    learner = MoMRegression(2, horizon=horizon, moment_order=order, delta=0.05)
    epochs = math.ceil(horizon / learner.repeats)
    assert epochs * math.exp(-learner.groups / 8.0) <= 0.05 / 2.0
    paper = math.ceil(horizon ** (order / (3.0 * order - 2.0)))
    assert learner.repeats >= max(paper, learner.groups)
    assert learner.repeats == paper or paper < learner.groups + 8


def test_more_groups_than_rewards_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^groups: expected at most repeats = 5, got 6"):
        MoM(2, horizon=100, repeats=5, groups=6)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "order"), [(StudentT(2.1), 2.0), (Pareto(2.5), 2.0), (Pareto(1.6), 1.5)])
def test_mom_keeps_the_promise_of_its_radius(law: Noise, order: float) -> None:
    """Skewed noise too, 300 runs on arms that it chooses: misses of the confidence set, after each epoch."""
    runs, rounds, delta = 300, 3000, 0.05
    options: dict[str, Any] = {"noise_scale": law.moment_norm(order), "moment_order": order, "delta": delta}
    policy = MoM(2, horizon=rounds, batch_shape=(runs,), **options)
    environment = LinearBandit(2, 10, noise=law, batch_shape=(runs,), seed=3)
    estimator, missed = policy.estimator, torch.zeros(runs, dtype=torch.bool)
    for _ in range(rounds):
        x, reward, _ = environment.pull(policy.select(environment.arms()))
        policy.step(*round_of(policy, x, reward))
        difference = (estimator.theta_hat - environment.theta).unsqueeze(-1)
        error = (difference.mT @ estimator.V @ difference).squeeze((-2, -1)).sqrt()
        # Before the first epoch the error is the radius, to rounding.
        missed |= error > (1.0 + 1e-9) * estimator.radius()
    assert int(estimator.epochs.min()) == rounds // estimator.repeats
    assert float(missed.double().mean()) <= delta + 3.0 * (delta * (1.0 - delta) / runs) ** 0.5


@pytest.mark.parametrize("order", [2.0, 1.4])
def test_robust_ucb_is_truncated_means(order: float) -> None:
    """Arms with a model each and one-hot arms: the same scores, and both the paper's means and bounds."""
    arms, T, delta = 4, 400, 0.05
    options: dict[str, Any] = {"horizon": T, "moment_order": order, "noise_scale": 1.5, "delta": delta}
    disjoint, hot = DisjointArms(RobustUCB(1, **options), actions=arms), RobustUCB(arms, **options)
    random, seen = np.random.default_rng(0), [np.zeros(0) for _ in range(arms)]
    one, rows = torch.ones(1), torch.eye(arms)
    m, ell = 2.5, math.log(2.0 * arms * T / delta)
    power = (order - 1.0) / order
    for _ in range(T):
        np.testing.assert_allclose(disjoint(one).numpy(), hot(rows).numpy(), rtol=1e-9)
        k = int(disjoint.select(one))
        reward = float(0.2 * k + random.standard_t(1.5))
        disjoint.step(one, k, reward)
        hot.step(rows, k, reward)
        seen[k] = np.append(seen[k], reward)
        means = np.array([truncated_mean(rewards, order, m, 1.0, ell) for rewards in seen])
        counts = np.array([1.0 + len(rewards) for rewards in seen])
        np.testing.assert_allclose(hot.estimator.theta_hat.numpy(), means, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(disjoint.estimator.theta_hat[:, 0].numpy(), means, rtol=1e-9, atol=1e-9)
        bounds = means + m * ((order + 2.0) * (ell / counts) ** power + (1.0 / counts) ** power)
        np.testing.assert_allclose(disjoint(one).numpy(), bounds, rtol=1e-9)
    assert min(map(len, seen)) > 10


class Play:
    """RobustUCB on runs of arms whose means are within +-1."""

    def __init__(self, law: Noise, order: float, radius_scale: float = 1.0) -> None:
        self.runs, self.arms, self.rounds, self.law = 300, 5, 1500, law
        options: dict[str, Any] = {"noise_scale": law.moment_norm(order), "moment_order": order, "delta": 0.05}
        options |= {"radius_scale": radius_scale, "batch_shape": (self.runs,)}
        self.policy = DisjointArms(RobustUCBRegression(1, horizon=self.rounds, **options), actions=self.arms)

    def share_of_misses(self) -> float:
        """Runs in which the bound of any arm ever failed."""
        generator = torch.Generator().manual_seed(0)
        means = 2.0 * torch.rand(self.runs, self.arms, generator=generator, dtype=D) - 1.0
        estimator, one = self.policy.estimator, torch.ones(self.runs, 1, dtype=D)
        missed = torch.zeros(self.runs, dtype=torch.bool)
        every = torch.ones(self.runs, self.arms, 1, dtype=D)
        for _ in range(self.rounds):
            action = self.policy.select(one)
            mean = means.gather(-1, action.unsqueeze(-1)).squeeze(-1)
            self.policy.step(one, action, mean + self.law.sample((self.runs,), generator))
            error = (estimator.theta_hat.squeeze(-1) - means).abs()
            missed |= (error > estimator.radius() * estimator.width(every)).any(-1)
        return float(missed.double().mean())


@pytest.mark.slow
@pytest.mark.parametrize(("law", "order"), [(StudentT(2.1), 2.0), (GaussianNoise(), 2.0), (Pareto(1.5), 1.4)])
def test_robust_ucb_keeps_the_promise_of_its_radius(law: Noise, order: float) -> None:
    assert Play(law, order).share_of_misses() <= 0.05 + 3.0 * (0.05 * 0.95 / 300) ** 0.5


@pytest.mark.slow
def test_a_tenth_of_the_radius_is_seen_to_be_too_little() -> None:
    assert Play(GaussianNoise(), 2.0, radius_scale=0.1).share_of_misses() > 0.2
