"""Posterior sampling: the posterior's law, how far truths lie from it, and what it costs against the theorem's scale."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learners import close
from tests.policies.test_rules import draws, law_is_right
from torchonline import (
    AdaptiveRidgeRegression,
    DiscountedRidgeRegression,
    DisjointArms,
    GLMRegression,
    HeavyTailRegression,
    HuberRegression,
    LocalGLMRegression,
    NormalizedLMS,
    Poisson,
    RidgeRegression,
    RobustRidgeRegression,
    SystemIdentification,
    ThompsonSampling,
)
from torchonline.baselines import AdaOFULRegression, CRTMRegression, GLMUCBRegression, GLOCRegression
from torchonline.links import Gaussian, Link, Logistic

D = torch.float64
NOISE, RIDGE, DIM = 0.7, 2.0, 3


def bandits(count: int, rounds: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw parameters from the prior N(0, NOISE^2 / RIDGE I), and rounds with a noise scale each."""
    theta = NOISE / RIDGE**0.5 * torch.randn(count, DIM, dtype=D)
    x = torch.randn(count, rounds, DIM, dtype=D) * torch.tensor([1.0, 0.3, 2.0], dtype=D)
    scale = NOISE * (0.5 + torch.rand(count, rounds, dtype=D))
    reward = (x @ theta.unsqueeze(-1)).squeeze(-1) + scale * torch.randn(count, rounds, dtype=D)
    return theta, x, scale, reward


def posterior(x: Tensor, scale: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the covariance of Bayes' posterior, from its definition."""
    a = x / scale.unsqueeze(-1)
    covariance = torch.linalg.inv(a.mT @ a + RIDGE / NOISE**2 * torch.eye(DIM, dtype=D))
    return (covariance @ a.mT @ (reward / scale).unsqueeze(-1)).squeeze(-1), covariance


@pytest.mark.fast
@pytest.mark.parametrize("by_block", [False, True])
def test_draws_have_the_law_of_the_posterior(by_block: bool) -> None:
    """Accepted at the posterior's mean and covariance, rejected at 2/3 and 3/2 of the scale, and off the mean."""
    _, x, scale, reward = bandits(4, 20)
    estimator = RidgeRegression(DIM, noise_scale=NOISE, ridge=RIDGE, radius_scale=0.1, batch_shape=(4,))
    if by_block:
        estimator.learn(x, reward, noise_scale=scale)
    else:
        for t in range(20):
            estimator.step(x[:, t], reward[:, t], noise_scale=scale[:, t])
    mean, covariance = posterior(x, scale, reward)
    # The scores of coordinate vectors are the parameter that was drawn.
    scores = draws(ThompsonSampling(estimator), torch.eye(DIM, dtype=D).expand(4, DIM, DIM))
    assert law_is_right(scores, mean, covariance)
    for factor in (2 / 3, 3 / 2):
        assert not law_is_right(scores, mean, factor**2 * covariance)
    assert not law_is_right(scores, mean + 0.1 * covariance.diagonal(dim1=-2, dim2=-1).sqrt(), covariance)


def squared_distance(estimator: Any, theta: Tensor, scale: Tensor) -> Tensor:
    """Return the mean of the truths' squared distance from the estimates, over d: 1 if draws have their law."""
    apart = theta - estimator.theta_hat
    square = (apart * torch.linalg.solve(estimator.width_matrix(), apart.unsqueeze(-1)).squeeze(-1)).sum(-1)
    return (square / scale**2).mean() / DIM


@pytest.mark.fast
def test_truths_lie_where_draws_do() -> None:
    """The truths' squared distances are those of a chi-squared law; at 2/3 and 3/2 of the scale they are not."""
    count = 4000
    theta, x, scale, reward = bandits(count, 10)
    estimator = RidgeRegression(DIM, noise_scale=NOISE, ridge=RIDGE, batch_shape=(count,))
    estimator.learn(x, reward, noise_scale=scale)
    error = (2.0 / (DIM * count)) ** 0.5  # of the mean of chi-squared numbers, over d
    found = squared_distance(estimator, theta, estimator.posterior_scale())
    assert abs(found - 1.0) < 5.0 * error
    for factor in (2 / 3, 3 / 2):
        assert abs(found / factor**2 - 1.0) > 30.0 * error


GLM: dict[str, Any] = {"theta_bound": 3.0, "feature_bound": 10.0, "batch_shape": (300,)}
ESTIMATORS: dict[str, tuple[Callable[[], Any], Link, float, float]] = {
    "adaptive": (lambda: AdaptiveRidgeRegression(DIM, batch_shape=(300,)), Gaussian(NOISE), 0.9, 1.1),
    # It clips a tenth of the residuals, and estimates the spread of the others.
    "robust": (lambda: RobustRidgeRegression(DIM, batch_shape=(300,)), Gaussian(NOISE), 0.9, 1.4),
    "heavy tail": (lambda: HeavyTailRegression(DIM, noise_scale=NOISE, batch_shape=(300,)), Gaussian(NOISE), 0.6, 1.1),
    "discounted": (
        lambda: DiscountedRidgeRegression(DIM, discount=0.99, noise_scale=NOISE, batch_shape=(300,)),
        Gaussian(NOISE),
        0.9,
        1.1,
    ),
    # At a ten-thousandth of its radius, sigma is the noise's; the covariance is 4/7 of V's inverse.
    "Huber": (
        lambda: HuberRegression(DIM, horizon=400, noise_scale=NOISE, radius_scale=1e-4, batch_shape=(300,)),
        Gaussian(NOISE),
        0.3,
        1.1,
    ),
    "local, Gaussian": (lambda: LocalGLMRegression(DIM, link=Gaussian(NOISE), **GLM), Gaussian(NOISE), 0.9, 1.1),
    "local, clicks": (lambda: LocalGLMRegression(DIM, **GLM), Logistic(), 0.5, 1.1),
    "local, counts": (lambda: LocalGLMRegression(DIM, link=Poisson(), **GLM), Poisson(), 0.5, 1.2),
    "mirror descent, clicks": (lambda: GLMRegression(DIM, **GLM), Logistic(), 0.5, 1.5),
    "GLOC, clicks": (
        lambda: GLOCRegression(DIM, theta_bound=1.0, feature_bound=2.0, batch_shape=(300,)),
        Logistic(),
        0.1,
        1.5,
    ),
    "CRTM": (
        lambda: CRTMRegression(DIM, horizon=400, noise_scale=NOISE, batch_shape=(300,)),
        Gaussian(NOISE),
        0.8,
        1.2,
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_posterior_scales_are_of_the_size_of_the_errors(name: str) -> None:
    """After 400 rounds, truths lie as far from the estimates as draws do, or nearer where the docstrings say so."""
    build, link, low, high = ESTIMATORS[name]
    estimator, count = build(), 300
    theta = 0.5 * torch.randn(count, DIM, dtype=D)
    theta /= theta.norm(dim=-1, keepdim=True).clamp(min=1.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(400):
        x = torch.randn(count, DIM, dtype=D)
        x /= x.norm(dim=-1, keepdim=True).clamp(min=2.0)
        estimator.step(x, link.sample((x * theta).sum(-1), generator))
    assert low < squared_distance(estimator, theta, estimator.posterior_scale()) < high


def test_other_options_do_not_change_the_posterior() -> None:
    """``delta``, ``theta_bound``, ``radius`` and ``radius_scale`` change the theorem's draws only."""
    found: dict[str, list[Tensor]] = {"posterior": [], "theorem": []}
    for options in ({}, {"delta": 0.5}, {"theta_bound": 9.0}, {"radius": "classic"}, {"radius_scale": 0.1}):
        for scale, scores in found.items():
            torch.manual_seed(0)
            scores.append(ThompsonSampling(DIM, scale=scale, **options)(torch.eye(DIM, dtype=D)))
    assert all(torch.equal(scores, found["posterior"][0]) for scores in found["posterior"])
    assert all(bool((scores != found["theorem"][0]).all()) for scores in found["theorem"][1:])


@pytest.mark.fast
def test_scale_is_checked_and_shown() -> None:
    assert ThompsonSampling(DIM).scale == "posterior"
    assert "scale" not in repr(ThompsonSampling(DIM))
    assert "scale='theorem'" in repr(ThompsonSampling(DIM, scale="theorem"))
    for bad, error in (("Posterior", ValueError), ("", ValueError), (None, TypeError), (0.5, TypeError)):
        with pytest.raises(error, match=r"^scale: expected one of 'posterior', 'theorem', got"):
            ThompsonSampling(DIM, scale=bad)  # type: ignore[arg-type]


def test_modules_pickled_without_a_scale_draw_as_they_did() -> None:
    policy = ThompsonSampling(DIM)
    state = copy.copy(policy.__dict__)
    del state["scale"]
    older = ThompsonSampling.__new__(ThompsonSampling)
    older.__setstate__(state)
    assert older.scale == "theorem"
    assert copy.deepcopy(policy).scale == "posterior"


@pytest.mark.fast
def test_a_smaller_noise_scale_makes_narrower_draws() -> None:
    found = []
    for noise_scale in (0.5, 0.05):
        torch.manual_seed(0)
        policy = ThompsonSampling(DIM, noise_scale=noise_scale)
        for _ in range(9):
            policy.step(torch.randn(1, DIM, dtype=D), 0, torch.randn((), dtype=D))
        found.append(policy(torch.eye(DIM, dtype=D)) - policy.estimator.theta_hat)
    close(found[1], 0.1 * found[0], 1e-12)


@pytest.mark.parametrize("scale", ["posterior", "theorem"])
def test_arms_with_separate_models_draw_at_the_same_scale(scale: str) -> None:
    """Before the first round, at a context of 1, a score is a draw of the arm's parameter."""
    policy = DisjointArms(ThompsonSampling(RidgeRegression(1, noise_scale=NOISE, ridge=RIDGE), scale=scale), 2)
    scores = policy(torch.ones(40_000, 1, dtype=D))
    wanted = NOISE if scale == "posterior" else float(policy.estimator.radius()[0])
    close(scores.std(0), torch.full((2,), wanted / RIDGE**0.5, dtype=D), 0.03)


SCRIPTED: dict[str, Callable[[], Any]] = {
    "ridge": lambda: RidgeRegression(DIM, noise_scale=NOISE, batch_shape=(2,)),
    "adaptive": lambda: AdaptiveRidgeRegression(DIM),
    "robust": lambda: RobustRidgeRegression(DIM, batch_shape=(2,)),
    "discounted": lambda: DiscountedRidgeRegression(DIM, discount=0.9),
    "LMS": lambda: NormalizedLMS(DIM),
    "heavy tail": lambda: HeavyTailRegression(DIM),
    "system": lambda: SystemIdentification(DIM, 2, noise_scale=(0.1, 1.0)),
    "Huber": lambda: HuberRegression(DIM, horizon=9, dtype=torch.float32),
    "local": lambda: LocalGLMRegression(DIM, dtype=torch.float32),
    "mirror descent": lambda: GLMRegression(DIM, link=Poisson(), batch_shape=(2, 2)),
}


@pytest.mark.parametrize("name", SCRIPTED)
def test_torchscript_has_the_posterior_scale(name: str) -> None:
    """A number for each learner, in the state's type; and a script draws what the policy draws."""
    estimator = SCRIPTED[name]()
    scale = estimator.posterior_scale()
    assert (scale.shape, scale.dtype) == (estimator.radius().shape, estimator.theta_hat.dtype)
    assert torch.equal(torch.jit.script(estimator).posterior_scale(), scale)
    if estimator.output_shape:
        close(scale, torch.tensor([0.1, 1.0], dtype=D))
        return
    arms = torch.randn(*estimator.batch_shape, 4, DIM, dtype=estimator.theta_hat.dtype)
    for kind in ("posterior", "theorem"):
        policy = ThompsonSampling(estimator, scale=kind)
        found = []
        for module in (policy, torch.jit.script(policy)):
            torch.manual_seed(0)
            found.append(module(arms))
        close(found[0], found[1], 1e-6 if arms.dtype == torch.float32 else 1e-12)


def test_baselines_name_their_units() -> None:
    """V without slopes bounds the information from below; V of scaled rounds is in units of the noise."""
    glm: dict[str, Any] = {"theta_bound": 2.0}
    slope = float(Logistic().slope(torch.tensor(2.0, dtype=D)))
    for estimator in (GLMUCBRegression(DIM, horizon=3, **glm), GLOCRegression(DIM, **glm)):
        close(estimator.posterior_scale(), torch.tensor(slope**-0.5, dtype=D))
    close(AdaOFULRegression(DIM, horizon=3).posterior_scale(), torch.tensor(1.0, dtype=D))


def total_regret(scale: str, prior: float, seed: int) -> Tensor:
    """Return the regret of 1000 rounds among 20 arms, over 100 bandits: ``(100)``."""
    count, dim, arms = 100, 5, 20
    generator = torch.Generator().manual_seed(seed)
    theta = prior * torch.randn(count, dim, 1, dtype=D, generator=generator)
    policy = ThompsonSampling(dim, noise_scale=NOISE, ridge=(NOISE / prior) ** 2, scale=scale, batch_shape=(count,))
    regret = torch.zeros(count, dtype=D)
    torch.manual_seed(seed)
    for _ in range(1000):
        x = torch.randn(count, arms, dim, dtype=D, generator=generator)
        means = (x @ theta).squeeze(-1)
        k = policy.select(x)
        mean = means.gather(1, k.unsqueeze(1)).squeeze(1)
        policy.step(x, k, mean + NOISE * torch.randn(count, dtype=D, generator=generator))
        regret += means.amax(1) - mean
    return regret


def test_the_posterior_costs_far_less_regret_than_the_theorem() -> None:
    """Of the parameters of the prior, with Gaussian noise: a third at most, beyond five standard errors."""
    posterior, theorem = (total_regret(scale, 0.5, seed=0) for scale in ("posterior", "theorem"))
    error = ((posterior.var() + theorem.var() / 9.0) / len(posterior)) ** 0.5
    assert posterior.mean() + 5.0 * error < theorem.mean() / 3.0
