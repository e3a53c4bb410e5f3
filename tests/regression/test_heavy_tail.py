"""HeavyTailRegression and AnytimeHeavyTailUCB against dense sums, and the properties that its certificate rests on."""

import math
from typing import Any

import pytest
import torch

from tests.learners import close, differences, snapshot
from tests.reference.follow import data, follow
from tests.reference.heavy_tail import HeavyTailReference
from torchonline import AnytimeHeavyTailUCB, HeavyTailRegression

D = torch.float64
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "infinite variance": {"moment_order": 1.5},
    "all": {"moment_order": 1.1, "theta_bound": 0.3, "ridge": 0.1, "delta": 0.1, "radius_scale": 0.1},
    "no noise": {"moment_order": 1.9, "noise_scale": 0.0, "theta_bound": 10.0},
    "corrupted": {"corrupted_rounds": 7},
    "infinite variance, corrupted": {"moment_order": 1.3, "corrupted_rounds": 100, "delta": 0.2},
    "symmetric": {"noise": "symmetric"},
    "symmetric, corrupted": {"noise": "symmetric", "corrupted_rounds": 7},
    "symmetric, all": {"noise": "symmetric", "theta_bound": 2.0, "ridge": 0.5, "delta": 0.3},
}


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_agrees_with_reference(dim: int, options: dict[str, Any]) -> None:
    noise = (0.0, 0.1, 1.0, 3.0) if dim > 1 else None
    # Symmetric noise is not clipped: an outlier enters A with its square, and A is inverted.
    outlier = 1e2 if options.get("noise") == "symmetric" else 1e9
    rounds = data(dim, seed=dim, noise=noise, outlier=outlier)
    follow(AnytimeHeavyTailUCB(dim, **options), HeavyTailReference(dim, **options), rounds)


def learnt(rounds: int = 200, **options: Any) -> HeavyTailRegression:
    """An estimator after ordinary rounds."""
    estimator = HeavyTailRegression(3, **options)
    estimator.step(torch.randn(rounds, 3, dtype=D), torch.randn(rounds, dtype=D))
    return estimator


def test_starts_from_the_prior() -> None:
    """Ridge d / S^2; radius sqrt(2 log(1/delta) + ridge S^2); width ||x|| / sqrt(ridge)."""
    estimator = HeavyTailRegression(4, theta_bound=0.5, delta=0.05)
    assert estimator.ridge == 16.0
    close(estimator.radius(), torch.tensor(math.sqrt(2 * math.log(20) + 4.0), dtype=D))
    x = torch.randn(5, 4, dtype=D)
    close(estimator.width(x), x.norm(dim=-1) / 4.0)
    assert not estimator(x).any()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_matrices_belong_together(options: dict[str, Any]) -> None:
    """P = V^-1 A V^-1, symmetric to the last bit and positive definite; both inverses are inverses."""
    estimator = learnt(1000, **options)
    identity = torch.eye(3, dtype=D)
    close(estimator.V @ estimator.V_inv, identity)
    close(estimator.A @ estimator.A_inv, identity)
    inverse = torch.linalg.inv(estimator.V)
    close(estimator.P, inverse @ estimator.A @ inverse)
    for name in ("V", "V_inv", "A", "A_inv", "P"):
        matrix = getattr(estimator, name)
        assert torch.equal(matrix, matrix.mT), name
        assert bool((torch.linalg.eigvalsh(matrix) > 0).all()), name
    close(estimator.logdet, (estimator.A / estimator.ridge).logdet())


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_radius_never_shrinks(options: dict[str, Any]) -> None:
    estimator = HeavyTailRegression(3, **options)
    last = estimator.radius()
    for _ in range(300):
        estimator.step(torch.randn(3, dtype=D), torch.randn((), dtype=D) / torch.rand((), dtype=D))
        radius = estimator.radius()
        assert radius >= last
        last = radius


@pytest.mark.parametrize("scales", [(-3.0, 3.0), (-6.0, 0.0)])
def test_rounding_makes_the_radius_larger_and_never_smaller(scales: tuple[float, float]) -> None:
    """Features over six decades in single precision: the logarithms add up to no less than the determinant of their sum."""
    estimator = HeavyTailRegression(5, dtype=torch.float32)
    for _ in range(4):
        x = torch.randn(500, 5) * torch.logspace(*scales, 5)
        estimator.step(x, torch.randn(500))
        A = estimator.A.double() - estimator.A_lost.double()
        assert estimator.logdet.double() > (A / estimator.ridge).logdet()


@pytest.mark.parametrize("moment_order", [2.0, 1.5])
@pytest.mark.parametrize("size", [1e9, 1e30, 1e100])
def test_an_outlier_of_any_size_is_the_same_outlier(moment_order: float, size: float) -> None:
    """Past the clip level the reward no longer matters: the state is that of a moderate outlier, and it stays sound."""
    estimators = []
    for reward in (1e7, size):
        torch.manual_seed(0)
        estimator = learnt(moment_order=moment_order)
        estimator.step(torch.ones(3), torch.tensor(reward, dtype=D))
        estimators.append(estimator)
    moderate, huge = map(snapshot, estimators)
    for name, value in moderate.items():
        close(huge[name], value)
    close(estimators[1].V @ estimators[1].V_inv, torch.eye(3, dtype=D))


@pytest.mark.parametrize("moment_order", [2.0, 1.5])
def test_has_no_unit(moment_order: float) -> None:
    """Rewards, noise and theta_bound c times as large: theta and widths c times as large, the same radius and choices."""
    c = 2.0**20
    one = AnytimeHeavyTailUCB(3, moment_order=moment_order, noise_scale=1.0)
    other = AnytimeHeavyTailUCB(3, moment_order=moment_order, theta_bound=c, noise_scale=c)
    for _ in range(200):
        arms, reward = torch.randn(5, 3, dtype=D), torch.randn((), dtype=D)
        index = one.select(arms)
        assert other.select(arms) == index
        close(other(arms) / c, one(arms))
        one.step(arms, index, reward)
        other.step(arms, index, c * reward)
    close(other.estimator.theta_hat / c, one.estimator.theta_hat)
    close(other.estimator.radius(), one.estimator.radius())


def test_a_feature_has_no_unit_either() -> None:
    """Features c times as large and theta_bound c times as small: the same scores."""
    c = 2.0**-15
    one, other = AnytimeHeavyTailUCB(3), AnytimeHeavyTailUCB(3, theta_bound=1.0 / c)
    for _ in range(200):
        arms, reward = torch.randn(5, 3, dtype=D), torch.randn((), dtype=D)
        close(other(c * arms), one(arms))
        one.step(arms, 0, reward)
        other.step(c * arms, 0, reward)


@pytest.mark.parametrize(("dim", "moment_order"), [(1, 2.0), (3, 2.0), (3, 1.5)])
def test_corruption_moves_the_estimate_as_far_as_its_bias_says(dim: int, moment_order: float) -> None:
    """Without noise, all that moves the estimate is false rewards: within the bound of the proof, which they nearly reach."""
    corrupted, theta = 50, torch.eye(dim, dtype=D)[0]
    estimator = HeavyTailRegression(dim, moment_order=moment_order, corrupted_rounds=corrupted)
    shares = []
    for t in range(400):
        x = torch.randn(dim, dtype=D) if t % 3 else theta
        x = theta if t < corrupted else x
        estimator.step(x, x @ theta - 3.5 * (t < corrupted))
        moved = estimator.V @ (estimator.theta_hat - theta) + estimator.ridge * theta
        shares.append(float((moved @ estimator.A_inv @ moved).sqrt() / estimator.bias))
    assert 0.8 < max(shares) <= 1.0


@pytest.mark.parametrize("noise", ["moment", "symmetric"])
def test_corrupted_rounds_start_the_bias(noise: str) -> None:
    """At sqrt(4.5 K), or at sqrt(K) for symmetric noise."""
    estimator = HeavyTailRegression(3, noise=noise, corrupted_rounds=8)
    close(estimator.bias, torch.tensor(6.0 if noise == "moment" else 8.0**0.5, dtype=D))


@pytest.mark.parametrize("corrupted", [5, 500])
def test_corrupted_rounds_of_any_size_widen_the_set_a_bounded_way(corrupted: int) -> None:
    """All of them together add at most 17/6 V to A."""
    estimator = HeavyTailRegression(3, noise_scale=1.0, corrupted_rounds=corrupted)
    estimator.step(torch.randn(corrupted, 3, dtype=D), 1e9 * torch.randn(corrupted, dtype=D))
    excess = (17.0 / 6.0) * estimator.V - (estimator.A - estimator.ridge * torch.eye(3, dtype=D))
    assert bool((torch.linalg.eigvalsh(excess) >= 0.0).all())


def test_symmetric_noise_needs_no_scale() -> None:
    """noise="symmetric" takes no notice of noise_scale and moment_order."""
    plain = HeavyTailRegression(3, noise="symmetric")
    others = [HeavyTailRegression(3, noise="symmetric", noise_scale=7.0), HeavyTailRegression(3, noise="symmetric")]
    for _ in range(50):
        x, reward = torch.randn(3, dtype=D), torch.randn((), dtype=D)
        plain.step(x, reward)
        others[0].step(x, reward)
        others[1].step(x, reward, noise_scale=torch.rand((), dtype=D))
    for other in others:
        assert differences(snapshot(plain), snapshot(other)) == []


def test_a_noisier_round_counts_less() -> None:
    quiet, loud = learnt(), learnt()
    x = torch.ones(3, dtype=D)
    quiet.step(x, torch.tensor(0.0), noise_scale=torch.tensor(0.1))
    loud.step(x, torch.tensor(0.0), noise_scale=torch.tensor(10.0))
    assert quiet.width(x) < loud.width(x)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_nothing_to_see_teaches_nothing(options: dict[str, Any]) -> None:
    estimator = learnt(5, **options)
    before = snapshot(estimator)
    estimator.step(torch.zeros(3), torch.tensor(5.0))
    assert differences(before, snapshot(estimator)) == ["rounds"]
    assert estimator.rounds == 6


def test_a_state_certified_otherwise_is_refused() -> None:
    """Delta and theta_bound have shaped every weight: the certificate does not survive another value."""
    state = learnt().state_dict()
    for options in (
        {"delta": 0.5},
        {"theta_bound": 2.0},
        {"ridge": 1.0},
        {"moment_order": 1.5},
        {"noise": "symmetric"},
        {"corrupted_rounds": 1},
    ):
        other = HeavyTailRegression(3, **options)
        before = snapshot(other)
        with pytest.raises(RuntimeError, match="symmetric" if "noise" in options else next(iter(options))):
            other.load_state_dict(state)
        assert differences(before, snapshot(other)) == []
