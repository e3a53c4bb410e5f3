"""Rarely switching GLB: its copy, how often it is renewed, and what its scores promise."""

import copy
import math

import numpy as np
import pytest
import torch

from tests.learners import round_of
from torchonline import LocalGLB, LocalGLMRegression, Logistic, Poisson
from torchonline.baselines import RarelySwitchingGLB, RarelySwitchingRegression
from torchonline.environments import GeneralizedLinearBandit
from torchonline.links import Link

D = torch.float64


@pytest.mark.parametrize(("link", "growth"), [(Logistic(), 2.0), (Poisson(), 1.3)])
def test_the_copy_is_that_of_the_last_doubling(link: Link, growth: float) -> None:
    """Determinants from scratch, and an estimator without a copy, tell when it is renewed and what it is."""
    policy = RarelySwitchingGLB(3, link=link, theta_bound=2.0, growth=growth, radius_scale=0.7)
    learner, plain = policy.estimator, LocalGLMRegression(3, link=link, theta_bound=2.0, radius_scale=0.7)
    random, kept, switches = np.random.default_rng(0), copy.deepcopy(plain), 0
    for t in range(400):
        arms = torch.from_numpy(random.standard_normal((4, 3)))
        arms /= arms.norm(dim=-1, keepdim=True).clamp(min=1.0)
        if t % 40 == 7:
            arms *= 0.0
        torch.testing.assert_close(
            policy(arms), kept.predictor(arms) + kept.radius() * kept.width(arms), rtol=1e-9, atol=1e-9
        )
        reward = link.possible(torch.tensor(2.0 * random.random(), dtype=D))
        scale = torch.tensor(random.uniform(0.5, 2.0), dtype=D)
        for each in (learner, plain):
            each.step(arms[0], reward, noise_scale=scale)
        if float(torch.logdet(plain.V) - torch.logdet(kept.V)) > math.log(growth):
            kept, switches = copy.deepcopy(plain), switches + 1
        assert int(learner.switches) == switches
    for name in ("theta_hat", "V", "squared_radius"):
        assert torch.equal(learner.get_buffer(name), plain.get_buffer(name))
    assert 5 <= switches <= float(torch.logdet(plain.V) - 3.0 * math.log(plain.ridge)) / math.log(growth)


def test_a_batch_switches_one_by_one() -> None:
    batched, alone = RarelySwitchingGLB(2, batch_shape=(3,)), [RarelySwitchingGLB(2) for _ in range(3)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        x = torch.randn(3, 2, generator=generator, dtype=D)
        x = x / x.norm(dim=-1, keepdim=True) * torch.tensor([1.0, 0.5, 0.1], dtype=D).unsqueeze(-1)
        reward = torch.randint(2, (3,), generator=generator).to(D)
        batched.step(*round_of(batched, x, reward))
        for i, one in enumerate(alone):
            one.step(x[i, None], 0, reward[i])
    counts = batched.estimator.switches.tolist()
    assert counts == [int(one.estimator.switches) for one in alone]
    assert len(set(counts)) == 3
    arms = torch.eye(2, dtype=D)
    torch.testing.assert_close(batched(arms.expand(3, 2, 2)), torch.stack([one(arms) for one in alone]))


def test_a_warm_start_is_the_first_copy() -> None:
    learner, guess = RarelySwitchingRegression(2, theta_bound=3.0), torch.tensor([1.0, -1.0], dtype=D)
    learner.warm_start(guess, distance=0.5)
    assert torch.equal(learner.decision_theta, guess)
    torch.testing.assert_close(learner.decision_radius, learner.radius())


def test_the_sets_of_the_copies_hold_and_decisions_are_few() -> None:
    """200 runs of 300 rounds; failures at most delta and three standard errors, where a fifth of the radius fails in most."""
    environment = GeneralizedLinearBandit(2, 10, link=Logistic(), theta_norm=3.0, batch_shape=(200,), seed=5)
    policy = RarelySwitchingGLB(2, theta_bound=3.0, delta=0.05, batch_shape=(200,))
    learner, arms = policy.estimator, environment.arms()
    failed, fifth = (torch.zeros(200, dtype=torch.bool) for _ in range(2))
    for _ in range(300):
        x, reward, _ = environment.pull(policy.select(arms))
        policy.step(*round_of(policy, x, reward))
        error = (learner.decision_theta - environment.theta).unsqueeze(-1)
        matrix = torch.linalg.inv(learner.decision_V_inv)
        distance = (error.mT @ matrix @ error).squeeze((-1, -2)).sqrt()
        failed |= distance > learner.decision_radius
        fifth |= distance > 0.2 * learner.decision_radius
    assert int(failed.sum()) <= 200 * 0.05 + 3.0 * (200 * 0.05 * 0.95) ** 0.5
    assert int(fifth.sum()) >= 150
    assert int(learner.switches.max()) <= 15


def test_regret_is_near_that_of_local_glb() -> None:
    regrets = []
    for make in (LocalGLB, RarelySwitchingGLB):
        environment = GeneralizedLinearBandit(2, 10, link=Logistic(), theta_norm=3.0, batch_shape=(50,), seed=5)
        policy, arms, regret = make(2, theta_bound=3.0, batch_shape=(50,)), environment.arms(), torch.zeros(50, dtype=D)
        for _ in range(500):
            x, reward, lost = environment.pull(policy.select(arms))
            policy.step(*round_of(policy, x, reward))
            regret += lost
        regrets.append(float(regret.mean()))
    assert regrets[1] <= 2.0 * regrets[0]
