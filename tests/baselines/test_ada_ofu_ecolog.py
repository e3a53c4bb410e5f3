"""ada-OFU-ECOLog and OFU-ECOLog against a NumPy version, scipy's solver, and what their radius promises."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit

from tests.baselines.test_generalized_linear_one_pass import DELTA, LIMIT, RUNS, share_of_misses
from tests.reference.ada_ofu_ecolog import AdaECOLogReference, nearest
from torchonline import UCB
from torchonline.baselines import AdaECOLog, AdaECOLogRegression, ECOLogRegression
from torchonline.baselines.generalized_linear.ada_ofu_ecolog import Region
from torchonline.links import Logistic

D = torch.float64
OPTIONS: dict[str, dict[str, Any]] = {
    "by data": {"theta_bound": 3.0, "ridge": 0.5, "delta": 0.5},
    "planned": {"theta_bound": 1.2, "ridge": 0.5, "delta": 0.5, "warm_up_rounds": 50},
}


def region(seed: int) -> tuple[Region, np.ndarray, np.ndarray, np.ndarray]:
    """A ball and an ellipsoid that meet, a norm, and a goal that is likely to be outside."""
    random = np.random.default_rng(seed)
    dim = int(random.integers(1, 5))
    roots = random.standard_normal((2, dim, dim))
    A, U = (root @ root.T + 0.1 * np.eye(dim) for root in roots)
    centre = random.standard_normal(dim)
    centre *= random.uniform(0.0, 2.0) / np.linalg.norm(centre)
    return Region(2.0, centre, U, float(random.uniform(0.3, 2.0))), A, 4.0 * random.standard_normal(dim), random


def test_the_nearest_point_of_a_ball_and_an_ellipsoid() -> None:
    """On 60 pairs: two nested roots to 1e-9 and SLSQP to 1e-6, whether the ball, the ellipsoid or both are in the way."""
    held = set()
    for seed in range(60):
        where, A, goal, _ = region(seed)
        found = where.minimum(A, A @ (where.centre - goal), where.centre)
        expected = nearest(goal, A, where.bound, where.centre, where.matrix, where.radius)
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-9, err_msg=f"seed {seed}")
        assert where.excess(found) <= 1e-12
        assert np.linalg.norm(found) <= where.bound * (1.0 + 1e-12)
        held.add((where.excess(found) > -1e-9, bool(np.linalg.norm(found) > where.bound * (1.0 - 1e-9))))
        constraints = [
            {"type": "ineq", "fun": lambda u, where=where: where.bound**2 - u @ u},
            {
                "type": "ineq",
                "fun": lambda u, where=where: where.radius**2 - (u - where.centre) @ where.matrix @ (u - where.centre),
            },
        ]

        def distance(u: np.ndarray, A: np.ndarray = A, goal: np.ndarray = goal) -> float:
            return float((u - goal) @ A @ (u - goal))

        scipys = minimize(
            distance, where.centre * 0.9, method="SLSQP", constraints=constraints, options={"ftol": 1e-14}
        )
        assert distance(found) <= distance(scipys.x) + 1e-6 * max(1.0, distance(found))
    assert held == {(True, False), (False, True), (True, True), (False, False)}


def feed(learner: Any, x: np.ndarray, reward: float, scale: float) -> None:
    learner.step(torch.from_numpy(x), torch.tensor(reward, dtype=D), noise_scale=torch.tensor(scale, dtype=D))


@pytest.mark.parametrize("name", [pytest.param("by data", marks=pytest.mark.slow), "planned"])
def test_agrees_with_reference(name: str) -> None:
    """150 rounds with noise scales and rewards of any kind; the ellipsoid is in the way, and rounds are learnt and not."""
    options = OPTIONS[name]
    policy, reference = AdaECOLog(2, horizon=150, **options), AdaECOLogReference(2, **options)
    learner, random = policy.estimator, np.random.default_rng(3)
    for t in range(150):
        arms = random.standard_normal((5, 2))
        arms /= np.linalg.norm(arms, axis=1, keepdims=True) * random.uniform(1.0, 2.0, (5, 1))
        if t < options.get("warm_up_rounds", 0):
            scores = np.sqrt(np.einsum("ki,ij,kj->k", arms, np.linalg.inv(reference.U), arms))
        else:
            scores = reference.scores(arms)
        np.testing.assert_allclose(policy(torch.from_numpy(arms)).numpy(), scores, rtol=1e-8, atol=1e-8)
        x = arms[int(policy.select(torch.from_numpy(arms)))]
        click = float(random.random() < expit(x @ np.array([1.0, -0.5])))
        reward, scale = click if t % 3 else float(random.random()), float(random.choice([0.2, 0.5, 1.0]))
        feed(learner, x, reward, scale)
        reference.step(x, reward, scale)
        np.testing.assert_allclose(learner.theta_hat.numpy(), reference.theta, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(learner.V.numpy(), reference.V, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(learner.radius().item(), reference.radius(), rtol=1e-9)
        np.testing.assert_allclose(learner.warm_up_theta.numpy(), reference.theta_o, rtol=0.0, atol=1e-7)
        np.testing.assert_allclose(learner.warm_up_radius.item(), reference.rho(), rtol=1e-9)
        np.testing.assert_allclose(learner.diameter.item(), reference.D, rtol=1e-9)
    warm_ups = int(learner.warm_ups)
    assert warm_ups == len(reference.warm.r)
    assert 10 <= warm_ups <= 140
    if name == "planned":
        assert warm_ups == 50
        assert reference.held >= 5
        assert float(learner.diameter) < 2.4


def test_without_warm_up_rounds_it_is_ecolog() -> None:
    """With a ridge that no round outweighs the condition holds, and the estimates are ECOLog's."""
    one, other = AdaECOLogRegression(3, horizon=60, ridge=50.0), ECOLogRegression(3, ridge=50.0)
    random = np.random.default_rng(0)
    for _ in range(60):
        x = random.standard_normal(3)
        x /= max(1.0, np.linalg.norm(x))
        reward = float(random.random())
        for learner in (one, other):
            feed(learner, x, reward, 1.0)
    assert int(one.warm_ups) == 0
    torch.testing.assert_close(one.theta_hat, other.theta_hat, rtol=0.0, atol=1e-9)
    torch.testing.assert_close(one.excess_sum, other.inverse_rate * other.excess_loss, rtol=1e-9, atol=1e-9)


def test_a_warm_up_round_moves_nothing_else() -> None:
    learner = AdaECOLogRegression(2, horizon=20, warm_up_rounds=3, theta_bound=2.0)
    x = torch.tensor([0.8, 0.6], dtype=D)
    learner.step(x.expand(3, 2), torch.tensor([1.0, 0.0, 1.0], dtype=D))
    assert int(learner.warm_ups) == int(learner.rounds) == 3
    assert torch.equal(learner.theta_hat, torch.zeros(2, dtype=D))
    assert torch.equal(learner.V, 2.0 * torch.eye(2, dtype=D))
    learner.step(x, torch.tensor(1.0))
    assert int(learner.warm_ups) == 3
    assert float(learner.theta_hat @ x) > 0.0


def test_a_full_history_refuses() -> None:
    learner = AdaECOLogRegression(2, horizon=2)
    learner.step(torch.eye(2, dtype=D), torch.ones(2, dtype=D))
    with pytest.raises(ValueError, match=r"^horizon: expected at most 2 rounds"):
        learner.step(torch.eye(2, dtype=D)[0], torch.tensor(1.0))


@pytest.mark.parametrize("dtype", [D, torch.float32])
def test_on_tensors_as_on_arrays(dtype: torch.dtype) -> None:
    """Where the buffers are not NumPy's memory, as on an accelerator; and a batch is its learners."""
    options: dict[str, Any] = {"horizon": 30, "batch_shape": (2,), "ridge": 0.05, "theta_bound": 3.0, "dtype": dtype}
    learners = AdaECOLogRegression(2, **options), AdaECOLogRegression(2, **options)
    learners[1].is_small = False
    alone = AdaECOLogRegression(2, **options | {"batch_shape": ()})
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        x, reward = torch.rand(2, 2, generator=generator), torch.randint(2, (2,), generator=generator).double()
        for learner in learners:
            learner.step(0.7 * x, reward)
        alone.step(0.7 * x[1], reward[1])
    assert int(alone.warm_ups) > 0
    for name, value in learners[0].state().items():
        torch.testing.assert_close(learners[1].get_buffer(name), value, rtol=1e-5, atol=1e-9)
        torch.testing.assert_close(value[1], alone.get_buffer(name), rtol=1e-5, atol=1e-7)


def test_a_nan_without_checks_stays_one() -> None:
    learner = AdaECOLogRegression(2, horizon=4, validate=False)
    learner.step(torch.tensor([0.5, 0.5]), torch.tensor(math.nan))
    assert bool(learner.theta_hat.isnan().all())


@pytest.mark.slow
@pytest.mark.parametrize("warm_up_rounds", [None, 25])
def test_the_radius_keeps_its_promise(warm_up_rounds: int | None) -> None:
    """200 runs; in the first case with a ridge so small that many rounds are warm-up rounds."""
    options = {
        "theta_bound": 2.0,
        "delta": DELTA,
        "batch_shape": (RUNS,),
        "ridge": 0.5 if warm_up_rounds is None else 2.0,
    }
    policy = AdaECOLog(2, horizon=50, warm_up_rounds=warm_up_rounds, **options)
    assert share_of_misses(policy, Logistic(), seed=1, rounds=50) <= LIMIT
    assert int(policy.estimator.warm_ups.sum()) >= 10 * RUNS
    assert isinstance(policy, UCB)


@pytest.mark.slow
def test_a_part_of_the_radius_is_seen_to_be_too_little() -> None:
    options = {"theta_bound": 2.0, "delta": DELTA, "batch_shape": (RUNS,), "radius_scale": 0.1, "ridge": 2.0}
    policy = AdaECOLog(2, horizon=30, **options)
    assert share_of_misses(policy, Logistic(), seed=1, rounds=30) > LIMIT
