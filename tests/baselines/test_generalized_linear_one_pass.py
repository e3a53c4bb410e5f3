"""GLOC, ECOLog and OFUL-MLogB against NumPy versions of their equations, scipy, and what their radii promise."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import Tensor

from tests.baselines.test_heavy_tailed import scipy_minimum
from tests.learners import cosh, sinh
from tests.reference.ecolog import ECOLogReference, loss, minimum
from tests.reference.gloc import GLOCReference
from tests.reference.oful_mlogb import MLogBReference
from torchonline.baselines import (
    GLOC,
    ECOLog,
    ECOLogRegression,
    GLOCRegression,
    MLogBRegression,
    OFULMLogB,
    OFULogRRegression,
)
from torchonline.links import Binomial, CustomLink, Gamma, Gaussian, Link, Logistic, Poisson

D = torch.float64
RIVALS = {"ECOLog": (ECOLog, ECOLogReference), "OFULMLogB": (OFULMLogB, MLogBReference)}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "small ridge": {"ridge": 0.05, "theta_bound": 0.7, "delta": 0.1},
    "all": {"theta_bound": 3.0, "feature_bound": 2.0, "ridge": 0.5, "delta": 0.3, "radius_scale": 1e-2},
}


def play(policy: Any, reference: Any, link: Link, *, seed: int, noise: bool, rounds: int) -> None:
    """Raise where a policy and its reference differ by more than 1e-9: choices, scores, estimate, radius, inverse."""
    random = np.random.default_rng(seed)
    estimator = policy.estimator
    for t in range(rounds):
        arms = random.standard_normal((3 + t % 4, estimator.dim))
        arms *= estimator.feature_bound / np.linalg.norm(arms, axis=-1).max() * random.uniform(0.1, 1.0)
        if t % 29 == 7:
            arms[:] = 0.0
        expected = reference.scores(arms)
        index = int(policy.select(torch.from_numpy(arms)))
        assert expected.max() - expected[index] <= 1e-9
        np.testing.assert_allclose(policy(torch.from_numpy(arms)).numpy(), expected, rtol=1e-9, atol=1e-9)
        # Half of the rewards as the link makes them, half of any kind that is possible.
        scale = float(random.choice([0.3, 1.0, 2.0])) if noise else None
        value = link.possible(torch.tensor(random.standard_t(2.1) if t % 2 else random.choice([0.0, 1.0]), dtype=D))
        scale_tensor = None if scale is None else torch.tensor(scale, dtype=D)
        policy.step(torch.from_numpy(arms), index, value, noise_scale=scale_tensor)
        reference.step(arms[index], float(value), scale)
        np.testing.assert_allclose(estimator.theta_hat.numpy(), reference.theta, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(estimator.radius().item(), reference.radius(), rtol=1e-9)
        if t % 5 == 0:
            np.testing.assert_allclose(estimator.V_inv.numpy(), np.linalg.inv(reference.V), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize(("dim", "options"), [(1, "default"), (3, "small ridge"), (2, "all"), (5, "small ridge")])
@pytest.mark.parametrize("name", RIVALS)
def test_agrees_with_reference(name: str, dim: int, options: str, noise: bool) -> None:
    policy, reference = (cls(dim, **OPTIONS[options]) for cls in RIVALS[name])
    play(policy, reference, Logistic(), seed=dim, noise=noise, rounds=60)
    assert reference.active >= (10 if options == "small ridge" else 0)


@pytest.mark.parametrize(
    ("link", "kappa", "variance", "bound"),
    [
        (Logistic(), expit(1.4) * expit(-1.4), 0.25, 1.4),
        (Gaussian(0.5), 1.0, 1.0, 3.0),
        (Binomial(7), 7.0 * expit(2.0) * expit(-2.0), 7.0 / 4.0, 2.0),
        (Poisson(), np.exp(-1.0), np.exp(1.0), 1.0),
        (Gamma(2.0, shape=3.0), 1.0 / 9.0, 1.0, 1.0),
        (CustomLink(cosh, sinh, cosh, R=1.0, C_mu=np.cosh(1.2)), 1.0, np.cosh(1.2), 1.2),
    ],
)
@pytest.mark.parametrize("noise", [False, True])
def test_gloc_agrees_with_reference(link: Link, kappa: float, variance: float, bound: float, noise: bool) -> None:
    options = {"theta_bound": bound / 2.0, "ridge": 0.2, "delta": 0.1}
    policy = GLOC(3, link=link, feature_bound=2.0, **options)
    # A slope that is no unimodal function is known from a grid.
    assert kappa * (1.0 - 1e-3) <= policy.estimator.smallest_slope <= kappa * (1.0 + 1e-12)
    kappa = policy.estimator.smallest_slope
    reference = GLOCReference(
        3,
        mean=lambda z: float(link.mean(torch.tensor(z, dtype=D))),
        kappa=kappa,
        variance=variance,
        noise_scale=link.noise_scale,
        **options,
    )
    play(policy, reference, link, seed=4, noise=noise, rounds=120)
    np.testing.assert_allclose(policy.estimator.iterate.numpy(), reference.iterate, rtol=1e-9, atol=1e-9)


def test_gloc_projects_in_the_norm_of_its_matrix() -> None:
    """The iterate reaches the ball's boundary again and again, and not where scaling would put it."""
    learner = GLOCRegression(2, theta_bound=0.5, ridge=0.1)
    generator = torch.Generator().manual_seed(0)
    outside = elsewhere = 0
    for _ in range(100):
        x = torch.nn.functional.normalize(torch.randn(2, generator=generator, dtype=D), dim=0) * 0.99
        before, reward = learner.iterate.clone(), torch.randint(2, (), generator=generator).to(D)
        learner.step(x, reward)
        step = torch.linalg.solve(learner.V, x) * (torch.sigmoid(x @ before) - reward) / learner.smallest_slope
        moved = before - step
        if moved.norm() > 0.5:
            outside += 1
            assert abs(float(learner.iterate.norm()) - 0.5) < 1e-12
            elsewhere += bool((learner.iterate - 0.5 * moved / moved.norm()).norm() > 1e-3)
    assert outside >= 20
    assert elsewhere >= 10


@pytest.mark.parametrize("cls", [ECOLogRegression, MLogBRegression, OFULogRRegression])
def test_logistic_rivals_take_no_link(cls: Any) -> None:
    """Nor from a subclass with a constructor of its own."""

    class Mine(cls):
        def __init__(self, dim: int, **options: Any) -> None:
            super().__init__(dim, **options)

    options = {"horizon": 5} if cls is OFULogRRegression else {}
    assert isinstance(Mine(2, **options).link, Logistic)
    for called in (cls, Mine):
        with pytest.raises(TypeError, match="link"):
            called(2, link=Poisson(), **options)


def test_gloc_refuses_a_link_that_is_flat_in_the_ball() -> None:
    with pytest.raises(
        ValueError, match=r"^theta_bound: expected one within which the link has slopes of at least 1e-12"
    ):
        GLOC(2, theta_bound=40.0)


class OneRound:
    """The objective of a round of ECOLog, its gradient, and a Hessian for the scale of both."""

    def __init__(self, centre: np.ndarray, V: np.ndarray, x: np.ndarray, rate: float, reward: float) -> None:
        self.centre, self.V, self.x, self.rate, self.reward = centre, V, x, rate, reward

    def value(self, theta: np.ndarray) -> float:
        move = theta - self.centre
        return 0.5 * float(move @ self.V @ move) + self.rate * loss(float(self.x @ theta), self.reward)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self.V @ (theta - self.centre) + self.rate * (expit(self.x @ theta) - self.reward) * self.x


def problem(seed: int) -> tuple[ECOLogRegression, np.ndarray, float, float]:
    """A learner after some rounds, and another round."""
    random = np.random.default_rng(seed)
    dim, long = int(random.integers(1, 7)), 10.0 ** random.uniform(-0.5, 0.7)
    learner = ECOLogRegression(
        dim, theta_bound=10.0 ** random.uniform(-0.7, 0.7), feature_bound=long, ridge=10.0 ** random.uniform(-1.5, 1.0)
    )
    truth = random.standard_normal(dim)
    for _ in range(int(random.integers(1, 10))):
        x = random.standard_normal(dim)
        x *= long * random.uniform(0.2, 1.0) / np.linalg.norm(x)
        reward = float(random.random() < expit(x @ truth)) if random.random() < 0.7 else random.random()
        before = learner.theta_hat.numpy().copy(), learner.V.numpy().copy(), float(learner.excess_loss)
        learner.step(torch.from_numpy(x), torch.tensor(reward, dtype=D))
    learner.before = before
    return learner, x, reward, learner.inverse_rate / 2.0


def test_ecolog_is_the_constrained_minimum() -> None:
    """On 100 rounds: scipy's minimum to 1e-7, a second solver's to 1e-10, the conditions of optimality to 1e-10."""
    in_the_way = 0
    for seed in range(100):
        learner, x, reward, rate = problem(seed)
        (centre, V, excess), bound, theta = learner.before, learner.theta_bound, learner.theta_hat.numpy()
        here = OneRound(centre, V, x, rate, reward)
        gradient, norm = here.gradient(theta), float(np.linalg.norm(theta))
        assert norm <= bound * (1.0 + 1e-12)
        multiplier = max(0.0, -(gradient @ theta) / norm**2) if norm >= bound * (1.0 - 1e-12) else 0.0
        assert np.linalg.norm(gradient + multiplier * theta) <= 1e-10 * max(1.0, np.linalg.norm(V, 2)), seed
        np.testing.assert_allclose(theta, scipy_minimum(here, learner.dim, bound), rtol=0.0, atol=1e-7)
        np.testing.assert_allclose(theta, minimum(centre, V, x, rate, reward, bound)[0], rtol=0.0, atol=1e-10)
        either, _ = minimum(centre, V, x, 2.0 * rate, 0.5, bound)
        added = max(0.0, loss(x @ either, reward) - loss(x @ theta, reward))
        np.testing.assert_allclose(float(learner.excess_loss) - excess, added, rtol=0.0, atol=1e-9)
        in_the_way += multiplier > 0.0
    assert 20 <= in_the_way <= 80


def test_ecolog_arrives_where_the_loss_outweighs_all_else() -> None:
    """Newton's method with next to no ridge, from far up the flat part of the mean: where a step overshoots it would cycle."""
    for start, reward in ((9.9, 0.0), (9.9, 1.0), (-9.9, 1.0), (0.0, 1.0), (3.0, 0.5)):
        learner = ECOLogRegression(1, theta_bound=10.0, ridge=1e-4)
        learner.theta_hat.fill_(start)
        learner.step(torch.ones(1, dtype=D), torch.tensor(reward, dtype=D))
        expected, _ = minimum(np.array([start]), 1e-4 * np.eye(1), np.ones(1), learner.inverse_rate / 2.0, reward, 10.0)
        np.testing.assert_allclose(learner.theta_hat.numpy(), expected, rtol=0.0, atol=1e-9)


def worst_case(learner: Any, rounds: int = 80) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Any features and rewards, for a batch, and any parameters of its ball, the same in each round."""
    generator, (batched, dim) = torch.Generator().manual_seed(0), learner.theta_hat.shape
    theta = torch.randn(batched, dim, generator=generator, dtype=D)
    theta *= (
        learner.theta_bound * torch.rand(batched, 1, generator=generator, dtype=D) / theta.norm(dim=-1, keepdim=True)
    )
    for _ in range(rounds):
        x = torch.randn(batched, dim, generator=generator, dtype=D)
        x /= x.norm(dim=-1, keepdim=True).clamp(min=1.0)
        yield x, torch.randint(2, (batched,), generator=generator).to(D), theta


def loss_at(x: Tensor, reward: Tensor, theta: Tensor) -> Tensor:
    z = (x * theta).sum(-1)
    return Logistic().log_partition(z) - reward * z


def test_ecolog_pays_for_its_distance_in_losses() -> None:
    """What its proof adds up, for any rewards and any parameter in the ball; and the terms of its sum are at least 0."""
    learner = ECOLogRegression(3, theta_bound=2.0, ridge=0.1, batch_shape=(50,))
    paid = torch.zeros(50, dtype=D)
    tightest = torch.inf
    for x, reward, theta in worst_case(learner):
        before = learner.excess_loss.clone()
        learner.step(x, reward)
        assert (learner.excess_loss >= before).all()
        paid += learner.inverse_rate * (loss_at(x, reward, theta) - loss_at(x, reward, learner.theta_hat))
        difference = (learner.theta_hat - theta).unsqueeze(-1)
        square = (difference.mT @ learner.V @ difference).squeeze((-2, -1))
        slack = learner.ridge * (theta * theta).sum(-1) + paid - square
        tightest = min(tightest, float(slack.min()))
        assert (slack >= -1e-9).all()
    assert tightest < 1.0


def test_gloc_bounds_the_regret_of_its_iterates() -> None:
    """B, for any rewards and any parameter in the ball."""
    learner = GLOCRegression(3, theta_bound=2.0, ridge=0.1, batch_shape=(50,))
    kappa, regret = learner.smallest_slope, torch.zeros(50, dtype=D)
    for x, reward, theta in worst_case(learner):
        regret += loss_at(x, reward, learner.iterate) - loss_at(x, reward, theta)
        learner.step(x, reward)
        bound = 2.0 * kappa * learner.ridge * learner.theta_bound**2 + learner.gradient_sum / (2.0 * kappa)
        assert (regret <= bound + 1e-9).all()


RUNS, DELTA = 200, 0.05
LIMIT = DELTA + 3.0 * (DELTA * (1.0 - DELTA) / RUNS) ** 0.5


def share_of_misses(policy: Any, link: Link, *, seed: int, rounds: int = 200) -> float:
    """Play a batch on arms that it chooses; the share of runs whose set was ever without the truth. Half have |theta| = S."""
    estimator, generator = policy.estimator, torch.Generator().manual_seed(seed)
    theta, arms = (
        torch.nn.functional.normalize(torch.randn(*shape, estimator.dim, generator=generator, dtype=D), dim=-1)
        for shape in ((RUNS,), (RUNS, 10))
    )
    theta = theta * torch.where(torch.arange(RUNS) % 2 == 0, 1.0, 0.3).unsqueeze(-1) * estimator.theta_bound

    def lost() -> Tensor:
        difference = (estimator.theta_hat - theta).unsqueeze(-1)
        return (difference.mT @ estimator.V @ difference).squeeze((-2, -1)).sqrt() > estimator.radius()

    missed = lost()
    for _ in range(rounds):
        index = policy.select(arms)
        x = arms.gather(1, index[:, None, None].expand(-1, -1, estimator.dim)).squeeze(1)
        policy.step(arms, index, link.sample((x * theta).sum(-1), generator))
        missed |= lost()
    return float(missed.double().mean())


@pytest.mark.parametrize("cls", [GLOC, ECOLog, OFULMLogB])
def test_the_radius_keeps_its_promise(cls: Any) -> None:
    options = {"theta_bound": 2.0, "delta": DELTA, "batch_shape": (RUNS,)}
    assert share_of_misses(cls(2, **options), Logistic(), seed=1) <= LIMIT


@pytest.mark.parametrize("link", [Gaussian(0.5), Binomial(5)])
def test_gloc_keeps_its_promise_with_other_links(link: Link) -> None:
    assert share_of_misses(GLOC(2, link=link, delta=DELTA, batch_shape=(RUNS,)), link, seed=2) <= LIMIT


@pytest.mark.parametrize(("cls", "scale"), [(GLOC, 0.1), (ECOLog, 0.1), (OFULMLogB, 0.3)])
def test_a_part_of_the_radius_is_seen_to_be_too_little(cls: Any, scale: float) -> None:
    options = {"theta_bound": 2.0, "delta": DELTA, "batch_shape": (RUNS,), "radius_scale": scale}
    assert share_of_misses(cls(2, **options), Logistic(), seed=1, rounds=50) > LIMIT
