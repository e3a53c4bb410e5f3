"""RidgeRegression and OFUL against normal equations, and what follows from them."""

import math

import numpy as np
import pytest
import torch

from tests.learners import close, differences, snapshot
from tests.reference.follow import data, follow
from tests.reference.ridge import RidgeReference
from torchonline import OFUL, RidgeRegression

pytestmark = pytest.mark.fast

D = torch.float64
OPTIONS = {
    "default": {},
    "all": {"ridge": 0.01, "theta_bound": 3.0, "delta": 0.2, "radius_scale": 0.3, "noise_scale": 2.0},
}


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_agrees_with_reference(dim: int, options: dict[str, float]) -> None:
    noise = (0.1, 1.0, 3.0) if dim > 1 else None
    rounds = data(dim, seed=dim, noise=noise, outlier=1e6)
    follow(OFUL(dim, **options), RidgeReference(dim, **options), rounds)


def test_is_least_squares() -> None:
    x, reward = torch.randn(200, 4, dtype=D), torch.randn(200, dtype=D)
    estimator = RidgeRegression(4, ridge=0.5)
    estimator.step(x, reward)
    solution = torch.linalg.lstsq(
        torch.cat([x, math.sqrt(0.5) * torch.eye(4)]), torch.cat([reward, torch.zeros(4)])
    ).solution
    close(estimator.theta_hat, solution)
    close(estimator.V, x.T @ x + 0.5 * torch.eye(4, dtype=D))
    close(estimator(x), x @ solution)


def test_radius_is_the_theorem() -> None:
    """Abbasi-Yadkori et al. 2011, Theorem 2, with the determinant written out for orthogonal features."""
    estimator = RidgeRegression(2, noise_scale=0.5, theta_bound=2.0, ridge=4.0, delta=0.05)
    close(estimator.radius(), torch.tensor(0.5 * math.sqrt(2 * math.log(20)) + 4.0, dtype=D))
    estimator.step(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.zeros(2))
    determinant = (4 + 9) * (4 + 1) / 16
    close(estimator.radius(), torch.tensor(0.5 * math.sqrt(math.log(determinant) + 2 * math.log(20)) + 4.0, dtype=D))


def test_confidence_set_holds_under_its_assumption() -> None:
    """400 fleets of Gaussian noise at delta = 0.2: misses well under 80, and not none at a quarter of the radius."""
    random = np.random.default_rng(0)
    theta = torch.tensor([0.6, -0.8], dtype=D)
    estimator = RidgeRegression(2, delta=0.2, batch_shape=(400,))
    missed, missed_if_scaled = torch.zeros(400, dtype=torch.bool), torch.zeros(400, dtype=torch.bool)
    for _ in range(100):
        x = torch.from_numpy(random.standard_normal((400, 2)))
        estimator.step(x, x @ theta + torch.from_numpy(random.standard_normal(400)))
        error = estimator.theta_hat - theta
        norm = torch.einsum("bi,bij,bj->b", error, estimator.V, error).sqrt()
        missed |= norm > estimator.radius()
        missed_if_scaled |= norm > 0.25 * estimator.radius()
    assert missed.sum() < 80
    assert missed_if_scaled.sum() > 200


def test_a_noisier_round_counts_less() -> None:
    """A round of noise scale c is a round of the usual scale with features and reward divided by c."""
    one, other = RidgeRegression(3, noise_scale=2.0), RidgeRegression(3, noise_scale=2.0)
    for _ in range(20):
        x, reward, scale = torch.randn(3, dtype=D), torch.randn((), dtype=D), torch.rand((), dtype=D) + 0.2
        one.step(x, reward, scale)
        other.step(2.0 * x / scale, 2.0 * reward / scale)
    for name, value in snapshot(one).items():
        close(value, snapshot(other)[name])


def test_a_noise_free_round_is_refused() -> None:
    """Least squares cannot weigh a round of noise scale 0."""
    for batch_shape in ((), (2,)):
        estimator = RidgeRegression(3, batch_shape=batch_shape)
        with pytest.raises(ValueError, match="noise_scale: expected "):
            estimator.step(torch.ones(*batch_shape, 3), torch.ones(batch_shape), torch.zeros(batch_shape))
        assert differences(snapshot(RidgeRegression(3, batch_shape=batch_shape)), snapshot(estimator)) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_a_row_beyond_resolution_takes_back_the_rows_before_it(
    batch_shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """x'V^-1x of 1/eps and more would leave nothing of V^-1: the third of four rounds is refused, and so are all."""
    estimator = RidgeRegression(3, batch_shape=batch_shape, dtype=dtype)
    x = torch.randn(*batch_shape, 4, 3, dtype=dtype)
    x[..., 2, :] = 1e9 if dtype == torch.float64 else 1e5
    before = snapshot(estimator)
    with pytest.raises(ValueError, match=r"^x: expected a round that adds less than"):
        estimator.step(x, torch.ones(*batch_shape, 4))
    assert differences(before, snapshot(estimator)) == []
    x[..., 2, :] *= 1e-2
    estimator.step(x, torch.ones(*batch_shape, 4))
    assert (estimator.rounds == 4).all()


def test_statistics_of_another_ridge_are_refused() -> None:
    """V holds the ridge: a learner with another one says so instead of going on with wrong widths."""
    learnt, other = RidgeRegression(3, ridge=2.0), RidgeRegression(3)
    learnt.step(torch.ones(3), torch.tensor(1.0))
    before = snapshot(other)
    with pytest.raises(RuntimeError, match="ridge"):
        other.load_state_dict(learnt.state_dict())
    assert differences(before, snapshot(other)) == []
    same_ridge = RidgeRegression(3, ridge=2.0, delta=0.5)
    same_ridge.load_state_dict(learnt.state_dict())
    close(same_ridge.theta_hat, learnt.theta_hat)
