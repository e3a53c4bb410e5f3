"""RidgeRegression and OFUL against normal equations, and what follows from them."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from tests.learners import close, differences, round_of, snapshot
from tests.reference.follow import data, follow
from tests.reference.ridge import RidgeReference
from torchonline import OFUL, RidgeRegression
from torchonline.metrics import has_missed

pytestmark = pytest.mark.fast

D = torch.float64
OTHERS = {"ridge": 0.01, "theta_bound": 3.0, "delta": 0.2, "radius_scale": 0.3, "noise_scale": 2.0}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "classic": {"radius": "classic"},
    "all": OTHERS,
    "all, classic": OTHERS | {"radius": "classic"},
}


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_agrees_with_reference(dim: int, options: dict[str, Any]) -> None:
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
    """Both radii, with the determinant written out for orthogonal features."""
    for kind, together in (("mixture", math.hypot), ("classic", lambda noise, bias: noise + bias)):
        estimator = RidgeRegression(2, noise_scale=0.5, theta_bound=2.0, ridge=4.0, delta=0.05, radius=kind)
        close(estimator.radius(), torch.tensor(together(0.5 * math.sqrt(2 * math.log(20)), 4.0), dtype=D))
        estimator.step(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.zeros(2))
        logdet = math.log((4 + 9) * (4 + 1) / 16)
        close(estimator.radius(), torch.tensor(together(0.5 * math.sqrt(logdet + 2 * math.log(20)), 4.0), dtype=D))


def test_an_unknown_radius_is_refused() -> None:
    for cls in (RidgeRegression, OFUL):
        with pytest.raises(ValueError, match=r"^radius: expected one of 'mixture', 'classic', got 'paper'"):
            cls(2, radius="paper")
        with pytest.raises(TypeError, match=r"^radius: expected one of 'mixture', 'classic', got int"):
            cls(2, radius=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_default_radius_is_never_larger(dtype: torch.dtype) -> None:
    """Nor smaller than 1 / sqrt(2) of the classic radius, for any sizes of noise and parameter."""
    sizes = [1e-12, 1e-3, 1.0, 1e3, 1e12]
    for noise_scale, theta_bound in itertools.product(sizes, sizes):
        options: dict[str, Any] = {"noise_scale": noise_scale, "theta_bound": theta_bound, "dtype": dtype}
        mixture, classic = (RidgeRegression(2, radius=kind, **options) for kind in ("mixture", "classic"))
        for _ in range(3):
            ratio = float(mixture.radius() / classic.radius())
            assert math.sqrt(0.5) - 1e-6 <= ratio <= 1.0 + 1e-6
            for learner in (mixture, classic):
                learner.step(torch.tensor([2.0, 1.0], dtype=dtype), torch.tensor(0.0, dtype=dtype))
        log_terms = float(mixture.logdet) + 2.0 * math.log(100.0)
        expected = math.hypot(noise_scale * math.sqrt(log_terms), theta_bound)
        assert float(mixture.radius()) == pytest.approx(expected, rel=1e-5)


def test_statistics_do_not_depend_on_the_radius() -> None:
    """So the state of either learner, and of 0.1.0, which had no such option, goes into the other."""
    classic, mixture = RidgeRegression(3, radius="classic"), RidgeRegression(3)
    x, reward = torch.randn(20, 3, dtype=D), torch.randn(20, dtype=D)
    classic.step(x, reward)
    mixture.load_state_dict(classic.state_dict())
    assert differences(snapshot(classic), snapshot(mixture)) == []
    assert mixture.radius() < classic.radius()


RUNS, ROUNDS, SQUARED_WIDTH = 2000, 300, 0.1
FEATURES = ("own choices", "against it", "growing", "scales")


def failures(features: str, delta: float, *, share: float = 1.0, radius: str = "mixture") -> Tensor:
    """Return the share of 2000 runs whose set ever failed, for noise of three laws of scale 1, and a parameter of norm 1.

    The features are OFUL's own choices; or the direction in which the estimate is worst; or random, without and with a noise
    scale of each round. Each of the last three has the same squared width, so that features grow. The learner is told a share
    of each noise scale.
    """
    generator = torch.Generator().manual_seed(0)
    batch = (3, RUNS)
    policy = OFUL(2, noise_scale=share, delta=delta, radius=radius, batch_shape=batch, validate=False)
    estimator = policy.estimator
    theta = normalize(torch.randn(*batch, 2, generator=generator, dtype=D), dim=-1)
    arms = normalize(torch.randn(*batch, 5, 2, generator=generator, dtype=D), dim=-1)
    scale = torch.ones(batch, dtype=D)
    missed = has_missed(estimator, theta)
    for _ in range(ROUNDS):
        if features == "own choices":
            x = arms.take_along_dim(policy.select(arms)[..., None, None], dim=-2).squeeze(-2)
        else:
            x = torch.randn(*batch, 2, generator=generator, dtype=D)
            if features == "against it":
                x = (estimator.V @ (estimator.theta_hat - theta).unsqueeze(-1)).squeeze(-1)
            elif features == "scales":
                scale = torch.tensor([0.3, 1.0, 3.0], dtype=D)[torch.randint(3, batch, generator=generator)]
            x = x * (scale * math.sqrt(SQUARED_WIDTH) / estimator.width(x)).unsqueeze(-1)
        normal = torch.randn(RUNS, generator=generator, dtype=D)
        uniform = math.sqrt(3.0) * (2.0 * torch.rand(RUNS, generator=generator, dtype=D) - 1.0)
        sign = 2.0 * torch.randint(2, (RUNS,), generator=generator).double() - 1.0
        reward = (x * theta).sum(-1) + scale * torch.stack([normal, uniform, sign])
        policy.step(*round_of(policy, x, reward), noise_scale=share * scale)
        missed |= has_missed(estimator, theta)
    return missed.double().mean(-1)


def limit(delta: float) -> float:
    return delta + 3.0 * math.sqrt(delta * (1.0 - delta) / RUNS)


@pytest.mark.parametrize("delta", [0.5, 0.1, 0.05])
@pytest.mark.parametrize("features", FEATURES)
def test_confidence_set_holds_under_its_assumption(features: str, delta: float) -> None:
    assert (failures(features, delta) <= limit(delta)).all()


@pytest.mark.parametrize("features", FEATURES)
def test_two_thirds_of_the_noise_scale_are_seen_to_be_too_little(features: str) -> None:
    assert (failures(features, 0.1, share=2.0 / 3.0) > limit(0.1)).all()


def test_the_default_radius_has_little_to_spare() -> None:
    """At delta = 0.5 the sets fail in a third of the runs at least, where the classic radius fails in a tenth at most."""
    for features in FEATURES[1:]:
        assert (failures(features, 0.5) > 1.0 / 3.0).all()
        assert (failures(features, 0.5, radius="classic") < 0.1).all()


def test_a_noisier_round_counts_less() -> None:
    """A round of noise scale c is a round of the usual scale with features and reward divided by c."""
    one, other = RidgeRegression(3, noise_scale=2.0), RidgeRegression(3, noise_scale=2.0)
    for _ in range(20):
        x, reward, scale = torch.randn(3, dtype=D), torch.randn((), dtype=D), torch.rand((), dtype=D) + 0.2
        one.step(x, reward, noise_scale=scale)
        other.step(2.0 * x / scale, 2.0 * reward / scale)
    for name, value in snapshot(one).items():
        close(value, snapshot(other)[name])


def test_a_noise_free_round_is_refused() -> None:
    """Least squares cannot weigh a round of noise scale 0."""
    for batch_shape in ((), (2,)):
        estimator = RidgeRegression(3, batch_shape=batch_shape)
        with pytest.raises(ValueError, match="noise_scale: expected "):
            estimator.step(torch.ones(*batch_shape, 3), torch.ones(batch_shape), noise_scale=torch.zeros(batch_shape))
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
