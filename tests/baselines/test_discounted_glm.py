"""Discounted generalized linear regression against a dense version, and on bandits whose parameter moves."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.reference.discounted_glm import DiscountedGLMReference
from torchonline import FixedArms, Gaussian, LocalGLB, Logistic, Poisson
from torchonline.baselines import DiscountedGLB, DiscountedGLMRegression
from torchonline.links import Link
from torchonline.regression.discounted import DiscountedRidgeRegression

D = torch.float64
LINKS: dict[str, Link] = {"Logistic": Logistic(), "Poisson": Poisson(), "Gaussian": Gaussian(0.5)}


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("noise", [False, True])
def test_agrees_with_reference(name: str, noise: bool) -> None:
    link = LINKS[name]
    options = {"discount": 0.9, "theta_bound": 1.5, "ridge": 0.7, "delta": 0.1}
    policy = DiscountedGLB(3, link=link, **options)
    reference, learner = DiscountedGLMReference(3, name, scale=float(link.noise_scale), **options), policy.estimator
    random = np.random.default_rng(1)
    for t in range(150):
        arms = random.standard_normal((4, 3))
        arms /= np.maximum(1.0, np.linalg.norm(arms, axis=1, keepdims=True))
        if t % 29 == 7:
            arms[:] = 0.0
        scores = reference.scores(arms)
        np.testing.assert_allclose(policy(torch.from_numpy(arms)).numpy(), scores, rtol=1e-9, atol=1e-9)
        k = int(policy.select(torch.from_numpy(arms)))
        reward = float(link.possible(torch.tensor(2.0 * random.random() - 0.2, dtype=D)))
        scale = float(random.uniform(0.5, 2.0)) if noise else None
        policy.step(
            torch.from_numpy(arms),
            k,
            torch.tensor(reward, dtype=D),
            noise_scale=None if scale is None else torch.tensor(scale),
        )
        reference.step(arms[k], reward, None if scale is None else float(np.float32(scale)))
        np.testing.assert_allclose(learner.theta_hat.numpy(), reference.theta, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(learner.V.numpy(), reference.V, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(learner.radius().item(), reference.radius(), rtol=1e-9)


def test_on_a_line_it_is_discounted_ridge_regression() -> None:
    """With the Gaussian link and no bound in the way, in the units of that class, which has the noise in its radius."""
    ridge, R = 0.8, 0.5
    glm = DiscountedGLMRegression(3, link=Gaussian(R), discount=0.9, theta_bound=100.0, ridge=ridge / R**2)
    plain = DiscountedRidgeRegression(3, noise_scale=R, discount=0.9, theta_bound=100.0, ridge=ridge)
    generator = torch.Generator().manual_seed(0)
    for _ in range(80):
        x = torch.randn(3, generator=generator, dtype=D) / 5.0
        reward = torch.randn((), generator=generator, dtype=D)
        for learner in (glm, plain):
            learner.step(x, reward)
    torch.testing.assert_close(glm.theta_hat, plain.theta_hat, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(glm.V, plain.V / R**2, rtol=1e-9, atol=1e-9)
    x = torch.randn(5, 3, generator=generator, dtype=D)
    torch.testing.assert_close(glm.radius() * glm.width(x), plain.radius() * plain.width(x), rtol=1e-9, atol=1e-9)


def dynamic_regret(policy: Any, link: Link, path: Tensor, seed: int) -> Tensor:
    """Regret against the best arm of each round, of a batch on 20 fixed arms, for a parameter that goes along a path."""
    runs = policy.estimator.batch_shape[0]
    generator = torch.Generator().manual_seed(seed)
    arms = torch.nn.functional.normalize(torch.randn(runs, 20, 2, generator=generator, dtype=D), dim=-1)
    regret = torch.zeros(runs, dtype=D)
    for theta in path:
        z = arms @ theta
        k = policy.select(arms).unsqueeze(-1)
        chosen = z.gather(-1, k).squeeze(-1)
        regret += link.mean(z.amax(-1)) - link.mean(chosen)
        policy.step(arms, k.squeeze(-1), link.sample(chosen, generator))
    return regret


PATHS = {
    "turns": torch.linspace(0.0, 2.0 * math.pi, 1500, dtype=D),
    "jumps": torch.where(torch.arange(1500) < 500, 0.0, 0.8 * math.pi).to(D),
}


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_it_follows_a_parameter_that_moves(path: str) -> None:
    """Clicks with a parameter that turns once, or jumps: over 30 runs, less than half of the regret of LocalGLB."""
    angle = PATHS[path]
    theta = 3.0 * torch.stack([angle.cos(), angle.sin()], -1)
    options: dict[str, Any] = {"theta_bound": 3.0, "batch_shape": (30,)}
    forgets = dynamic_regret(DiscountedGLB(2, discount=0.98, **options), Logistic(), theta, 0)
    keeps = dynamic_regret(LocalGLB(2, **options), Logistic(), theta, 0)
    assert float(forgets.mean()) < 0.5 * float(keeps.mean())


def test_fixed_arms_follow_its_widths() -> None:
    plain, fixed = (DiscountedGLB(3, discount=0.9, theta_bound=2.0) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    arms = torch.nn.functional.normalize(torch.randn(9, 3, generator=generator, dtype=D), dim=-1)
    catalogue = FixedArms(fixed, arms)
    for _ in range(60):
        k = plain.select(arms)
        assert int(catalogue.select()) == int(k)
        reward = torch.randint(2, (), generator=generator).to(D)
        plain.step(arms, k, reward)
        catalogue.step(None, k, reward)
