"""Tests of SEAStream: noise, drift, comparator and gradients."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor

from torchonline.environments import SEAStream
from torchonline.environments.sea import LOSSES

pytestmark = pytest.mark.fast

EACH_LOSS = pytest.mark.parametrize("loss", list(LOSSES))


def probes(stream: SEAStream, count: int = 7, spread: float = 3.0) -> Tensor:
    """Return points near and far from 0, and the comparator, ``(*B, count + 1, d)``."""
    generator = torch.Generator().manual_seed(5)
    points = torch.randn((*stream.batch_shape, count, stream.dim), generator=generator, dtype=torch.float64)
    return torch.cat([spread * points, stream.comparator.double().unsqueeze(-2)], -2)


def profile(loss: str, r: np.ndarray) -> np.ndarray:
    """Return the losses of the docstring's table."""
    if loss == "quadratic":
        return r**2 / 2
    if loss == "huber":
        return np.where(r <= 1, r**2 / 2, r - 0.5)
    return np.logaddexp(0, r) + np.logaddexp(0, -r) - 2 * math.log(2)


@EACH_LOSS
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_values_against_numpy(loss: str, batch: tuple[int, ...]) -> None:
    stream = SEAStream(3, loss=loss, sigma=0.7, drift=0.4, comparator_norm=1.5, scale=2.0, batch_shape=batch)
    for _ in range(3):
        x = probes(stream)
        u, a, xi = (value.unsqueeze(-2).numpy() for value in (stream.comparator, stream.shift, stream.noise))
        if loss == "linear":
            h = -2.0 * (u * x.numpy()).sum(-1) / 1.5
        else:
            h = 2.0 * profile(loss, np.linalg.norm(x.numpy() - u, axis=-1))
        np.testing.assert_allclose(stream.expected_values(x), h + (a * x.numpy()).sum(-1), rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(stream.values(x), h + ((a + xi) * x.numpy()).sum(-1), rtol=1e-11, atol=1e-11)
        at_u = stream.values(stream.comparator)
        assert at_u.shape == batch
        np.testing.assert_allclose(stream.regret(x), stream.values(x) - at_u.unsqueeze(-1), atol=1e-11)
        expected = stream.expected_values(x) - stream.expected_values(stream.comparator).unsqueeze(-1)
        np.testing.assert_allclose(stream.expected_regret(x), expected, atol=1e-11)
        assert (stream.regret(stream.comparator) == 0.0).all()
        # A single point gives the same result as that point among many, but for rounding.
        torch.testing.assert_close(stream.regret(x[..., 0, :]), stream.regret(x)[..., 0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            stream.gradients(x[..., 0, :]), stream.gradients(x)[..., 0, :], rtol=1e-12, atol=1e-12
        )
        stream.advance()


@EACH_LOSS
def test_gradients_are_those_of_the_values(loss: str) -> None:
    stream = SEAStream(3, loss=loss, sigma=0.7, drift=0.4, scale=3.0, batch_shape=(2,))
    stream.advance()
    points = torch.cat([probes(stream), probes(stream, spread=1e-3), probes(stream, spread=1e3)], -2).requires_grad_()
    for values, gradients in (
        (stream.values, stream.gradients),
        (stream.expected_values, stream.expected_gradients),
        (stream.regret, stream.gradients),
        (stream.expected_regret, stream.expected_gradients),
    ):
        (slopes,) = torch.autograd.grad(values(points).sum(), points)
        torch.testing.assert_close(gradients(points), slopes, rtol=1e-12, atol=1e-12)


@EACH_LOSS
def test_a_loss_is_smooth_where_it_says(loss: str) -> None:
    """The largest difference quotient of slopes is just below the smoothness constant."""
    stream = SEAStream(1, loss=loss, sigma=0.0, scale=2.0)
    x = stream.comparator + torch.linspace(-30.0, 30.0, 6001, dtype=torch.float64).unsqueeze(-1)
    slopes = stream.gradients(x).diff(dim=0) / x.diff(dim=0)
    assert (slopes >= -1e-9).all()
    assert slopes.max() <= stream.smoothness + 1e-9
    assert slopes.max() >= 0.99 * stream.smoothness
    assert stream.smoothness == {"linear": 0.0, "quadratic": 2.0, "huber": 2.0, "logistic": 1.0}[loss]


@pytest.mark.parametrize(
    ("loss", "far"),
    [("quadratic", lambda r: 0.5 * r * r), ("huber", lambda r: r - 0.5), ("logistic", lambda r: r - 2 * math.log(2))],
)
def test_losses_keep_their_digits_close_to_the_comparator_and_far_from_it(loss: str, far: Callable) -> None:
    near, away = torch.tensor([1e-100, 1e-12, 1e-6, 1e-4]).double(), torch.tensor([1e2, 1e6, 1e100]).double()
    value, slope, smoothness, _ = LOSSES[loss]
    torch.testing.assert_close(value(away), far(away), rtol=1e-13, atol=0.0)
    torch.testing.assert_close(slope(near), smoothness * near, rtol=1e-8, atol=0.0)
    torch.testing.assert_close(value(near), 0.5 * smoothness * near**2, rtol=1e-8, atol=1e-20)


@EACH_LOSS
@pytest.mark.parametrize(("dim", "period"), [(1, 2), (2, 2), (5, 2), (2, 3), (5, 3), (2, 12)])
def test_noise_and_drift_have_exactly_the_lengths_that_were_set(loss: str, dim: int, period: int) -> None:
    stream = SEAStream(dim, loss=loss, sigma=0.7, drift=0.03, period=period, batch_shape=(4,))
    shifts = []
    for _ in range(2 * period + 1):
        x = probes(stream)
        noise = stream.gradients(x) - stream.expected_gradients(x)
        steps = stream.expected_gradients(x) - stream.expected_gradients(x, lag=1)
        # The difference is the same at every point, so the supremum is attained everywhere.
        torch.testing.assert_close(
            noise.norm(dim=-1), torch.full((4, 8), 0.7, dtype=torch.float64), rtol=1e-12, atol=1e-12
        )
        torch.testing.assert_close(
            steps.norm(dim=-1), torch.full((4, 8), 0.03, dtype=torch.float64), rtol=1e-12, atol=1e-12
        )
        if shifts:
            walked = (stream.shift - shifts[-1]).unsqueeze(1).expand_as(steps)
            torch.testing.assert_close(steps, walked, rtol=1e-12, atol=1e-12)
        shifts.append(stream.shift)
        stream.advance()
    # The walk is closed and centred at 0.
    assert torch.equal(shifts[0], shifts[period])
    assert torch.equal(shifts[0], shifts[2 * period])
    assert torch.stack(shifts[:period]).sum(0).abs().max() < 1e-12
    sums = torch.stack(shifts).cumsum(0).norm(dim=-1)
    assert sums.max() <= 0.03 / (2 * math.sin(math.pi / period) ** 2) + 1e-12


@pytest.mark.parametrize(("factor", "accepts"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_law_of_the_noise(factor: float, accepts: bool) -> None:
    """In three dimensions each coordinate of a uniform direction is uniform."""
    count, sigma = 2000, 0.7
    stream = SEAStream(3, sigma=sigma, drift=0.2, batch_shape=(count,), seed=1)
    point = torch.zeros(count, 3)
    noise = (stream.gradients(point) - stream.expected_gradients(point)).numpy()
    claimed = factor * sigma
    for j in range(3):
        pvalue = stats.kstest(noise[:, j], stats.uniform(-claimed, 2.0 * claimed).cdf).pvalue
        assert (pvalue > 1e-3) == accepts
    # The square of a uniform coordinate has mean 1/3 and variance 4/45.
    z = math.sqrt(count) * ((noise[:, 0] ** 2).mean() / claimed**2 - 1 / 3) / math.sqrt(4 / 45)
    assert (abs(z) < 4.5) == accepts


def test_noise_is_unbiased_and_independent_from_round_to_round() -> None:
    count = 4000
    stream = SEAStream(2, loss="huber", sigma=2.0, drift=1.0, batch_shape=(count,))
    first = stream.noise
    stream.advance()
    second = stream.noise
    spread = 2.0 / math.sqrt(2.0 * count)  # standard error of a mean of coordinates with variance sigma^2 / d
    for noise in (first, second):
        assert (noise.mean(0).abs() < 4.5 * spread).all()
    # Products of coordinates have mean 0 and variance (sigma^2 / d)^2.
    for other in (second, 2.0 * stream.comparator, 4.0 * stream.shift):  # all of length 2
        products = first.unsqueeze(-1) * other.unsqueeze(-2)
        assert (products.mean(0).abs() < 4.5 * 2.0 / math.sqrt(count)).all()


def test_the_mean_loss_is_the_expected_one() -> None:
    """In one dimension the streams of a batch share all but their noise and signs."""
    count = 4000
    stream = SEAStream(1, loss="logistic", sigma=1.5, drift=0.8, batch_shape=(count,))
    x = stream.comparator.sign() * torch.tensor([-2.0, 0.5, 4.0])
    excess = (stream.values(x.unsqueeze(-1)) - stream.expected_values(x.unsqueeze(-1))) / x
    torch.testing.assert_close(excess.abs(), torch.full((count, 3), 1.5, dtype=torch.float64))
    assert (excess.mean(0).abs() < 4.5 * 1.5 / math.sqrt(count)).all()


@EACH_LOSS
@pytest.mark.parametrize("period", [2, 5])
def test_the_two_are_independent_of_each_other(loss: str, period: int) -> None:
    """Changing sigma leaves the drift unchanged bit for bit, and vice versa."""
    plain, noisy, drifting = (
        SEAStream(3, loss=loss, sigma=sigma, drift=drift, period=period, batch_shape=(2,), seed=7)
        for sigma, drift in ((1.0, 0.5), (3.0, 0.5), (1.0, 2.0))
    )
    still = SEAStream(3, sigma=0.0, drift=0.0, batch_shape=(2,), seed=7)
    for _ in range(6):
        x = probes(plain)
        assert torch.equal(plain.comparator, noisy.comparator)
        assert torch.equal(plain.comparator, drifting.comparator)
        assert torch.equal(plain.comparator, still.comparator)
        assert torch.equal(plain.expected_values(x), noisy.expected_values(x))
        assert torch.equal(plain.expected_gradients(x), noisy.expected_gradients(x))
        assert torch.equal(plain.expected_gradients(x, lag=1), noisy.expected_gradients(x, lag=1))
        assert torch.equal(plain.noise, drifting.noise)
        torch.testing.assert_close(noisy.noise, 3.0 * plain.noise, rtol=1e-13, atol=0.0)
        torch.testing.assert_close(drifting.shift, 4.0 * plain.shift, rtol=1e-13, atol=0.0)
        assert not still.noise.any()
        assert not still.shift.any()
        for stream in (plain, noisy, drifting, still):
            stream.advance()


@EACH_LOSS
@pytest.mark.parametrize("period", [2, 7])
def test_the_comparator_minimises_the_expected_losses(loss: str, period: int) -> None:
    """Check first-order conditions over many cycles, and scipy's minimum over one."""
    cycle = [SEAStream(3, loss=loss, drift=0.3, comparator_norm=2.0, period=period, seed=3) for _ in range(period)]
    for t, stream in enumerate(cycle):
        for _ in range(t):
            stream.advance()

    def mean(x: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(x)
        values = [float(stream.expected_values(point)) for stream in cycle]
        return float(np.mean(values)), np.mean([stream.expected_gradients(point).numpy() for stream in cycle], 0)

    u = cycle[0].comparator.numpy()
    assert np.linalg.norm(u) == pytest.approx(2.0, rel=1e-12)
    long, total = SEAStream(3, loss=loss, drift=0.3, comparator_norm=2.0, period=period, seed=3), np.zeros(3)
    for _ in range(100 * period):
        total += long.expected_gradients(long.comparator).numpy()
        long.advance()
    np.testing.assert_allclose(total / (100 * period), -u / 2.0 if loss == "linear" else 0.0 * u, atol=1e-12)
    np.testing.assert_allclose(mean(u)[1], total / (100 * period), atol=1e-12)
    ball = {"type": "ineq", "fun": lambda x: 4.0 - x @ x, "jac": lambda x: -2.0 * x}
    options: dict[str, Any] = {"method": "BFGS", "options": {"gtol": 1e-10}}
    if loss == "linear":
        options = {"method": "SLSQP", "constraints": ball, "options": {"ftol": 1e-14}}
    found = optimize.minimize(mean, np.zeros(3), jac=True, **options)
    np.testing.assert_allclose(found.x, u, atol=1e-6)
    assert mean(u)[0] <= found.fun + 1e-12


@EACH_LOSS
def test_between_whole_cycles_nothing_is_much_better_than_the_comparator(loss: str) -> None:
    drift, period = 0.5, 5
    stream = SEAStream(2, loss=loss, drift=drift, period=period, comparator_norm=1.0)
    x = probes(stream, 200)
    if loss == "linear":
        x = x / x.norm(dim=-1, keepdim=True).clamp(min=1.0)
    allowed = drift * (x - stream.comparator).norm(dim=-1) / (2.0 * math.sin(math.pi / period) ** 2)
    total, worst = torch.zeros(len(x)).double(), 0.0
    for _ in range(3 * period):
        total += stream.expected_regret(x)
        assert (total >= -allowed - 1e-12).all()
        worst = min(worst, float((total / allowed.clamp(min=1e-9)).min()))
        stream.advance()
        if stream.rounds % period == 0:
            assert (total >= -1e-12).all()
    assert worst < -0.01, "somewhere in between another point is better"


@EACH_LOSS
def test_no_gradient_is_longer_than_it_may_be_and_some_are_almost_as_long(loss: str) -> None:
    options: dict[str, Any] = {"loss": loss, "sigma": 0.5, "drift": 0.6, "comparator_norm": 2.0, "scale": 1.5}
    stream = SEAStream(2, **options, period=4, batch_shape=(40,))
    reach = 0.6 / (2.0 * math.sin(math.pi / 4.0))
    assert stream.lipschitz == (math.inf if loss == "quadratic" else pytest.approx(1.5 + reach + 0.5))
    angles = torch.linspace(0.0, 2.0 * math.pi, 64).double()
    circle = torch.stack([angles.cos(), angles.sin()], -1).expand(40, 64, 2)
    for radius in (0.0, 0.5, 30.0):
        bound, longest = stream.lipschitz_on(radius), 0.0
        assert bound <= stream.lipschitz
        for _ in range(40):
            # The point farthest from a comparator is on the boundary of the ball.
            longest = max(longest, float(stream.gradients(radius * circle).norm(dim=-1).max()))
            stream.advance()
        assert 0.97 * bound < longest <= bound * (1.0 + 1e-12)


def test_options_of_each_trial() -> None:
    """A batch of different options equals streams with single options."""
    sigma, norms = torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([0.1, 10.0]).double()
    options: dict[str, Any] = {"loss": "huber", "batch_shape": (3, 2)}
    batched = SEAStream(2, sigma=sigma, drift=2.0 * sigma, comparator_norm=norms, **options)
    torch.testing.assert_close(batched.noise.norm(dim=-1), sigma.double().expand(3, 2))
    torch.testing.assert_close(batched.comparator.norm(dim=-1), norms.expand(3, 2))
    assert batched.lipschitz == 1.0 + 4.0 + 4.0
    for row in range(3):
        number = float(sigma[row])
        plain = SEAStream(2, sigma=number, drift=2.0 * number, comparator_norm=10.0, **options)
        x = torch.randn(3, 2, 4, 2).double()
        assert torch.equal(plain.gradients(x)[row, 1], batched.gradients(x)[row, 1])
    integers = SEAStream(2, sigma=torch.tensor([1, 2]), batch_shape=(2,))
    torch.testing.assert_close(integers.noise.norm(dim=-1), torch.tensor([1.0, 2.0]).double())


def test_streams_of_one_seed_are_the_same_whatever_is_looked_at() -> None:
    before = torch.get_rng_state()
    first, second, other = (SEAStream(2, drift=0.5, batch_shape=(3,), seed=seed) for seed in (5, 5, 6))
    assert not torch.equal(first.comparator, other.comparator)
    x = torch.ones(3, 2).double()
    for _ in range(5):
        assert torch.equal(first.values(x), first.values(x))
        assert torch.equal(first.gradients(-3.0 * x), first.gradients(-3.0 * x))
        first.regret(x)
        assert torch.equal(first.gradients(x), second.gradients(x))
        assert not torch.equal(first.gradients(x), other.gradients(x))
        kept = first.noise
        for stream in (first, second, other):
            stream.advance()
        assert not torch.equal(first.noise, kept)
    assert first.rounds == 5
    assert torch.equal(torch.get_rng_state(), before)


def test_trials_are_independent() -> None:
    stream = SEAStream(3, drift=0.5, batch_shape=(6,))
    for values in (stream.comparator, stream.noise, stream.shift):
        assert len(values.unique(dim=0)) == 6
        turned = torch.nn.functional.normalize(values, dim=-1)
        assert ((turned @ turned.mT).fill_diagonal_(0.0).abs() < 1.0 - 1e-6).all()


@EACH_LOSS
def test_single_precision_has_the_same_draws(loss: str) -> None:
    double, single = (
        SEAStream(3, loss=loss, drift=0.3, batch_shape=(2,), dtype=dtype) for dtype in (torch.float64, torch.float32)
    )
    for _ in range(3):
        x = probes(double)
        for method in ("values", "gradients", "expected_values", "expected_gradients", "regret", "expected_regret"):
            for points in (x, x.float(), x.half()):
                result = getattr(single, method)(points)
                assert result.dtype == torch.float32
                torch.testing.assert_close(result, getattr(double, method)(points).float(), rtol=1e-5, atol=1e-5)
        for stream in (double, single):
            stream.advance()


def test_the_counter_example_to_linearised_losses_is_one_of_these_streams() -> None:
    """Huber's loss of the distance to 4: gradient 0 at 4, 1.5 at 2, 3.5 at 0."""
    stream = SEAStream(1, loss="huber", sigma=0.0, comparator_norm=4.0)
    u = stream.comparator
    assert float(u.abs()) == 4.0
    assert stream.regret(torch.stack([u, 0.5 * u, 0.0 * u])).tolist() == [0.0, 1.5, 3.5]
    assert (stream.gradients(torch.stack([u, 0.5 * u, 0.0 * u])) * u.sign()).flatten().tolist() == [0.0, -1.0, -1.0]
    assert stream.lipschitz == 1.0


def test_nan_stays_nan() -> None:
    for loss in LOSSES:
        stream = SEAStream(2, loss=loss)
        x = torch.tensor([[0.0, torch.nan], [1.0, 2.0]]).double()
        for result in (stream.values(x), stream.gradients(x).sum(-1), stream.regret(x)):
            assert result.isnan().tolist() == [True, False]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"dim": 0}, ValueError, "dim: expected an integer above 0, got 0"),
        (
            {"loss": "hinge"},
            ValueError,
            "loss: expected one of 'linear', 'quadratic', 'huber', 'logistic', got 'hinge'",
        ),
        ({"loss": None}, TypeError, "loss: expected one of .*, got NoneType"),
        ({"sigma": -1.0}, ValueError, "sigma: expected a number of at least 0, got -1.0"),
        ({"sigma": "one"}, TypeError, "sigma: expected a number, got str"),
        ({"sigma": [1.0, 2.0]}, TypeError, "sigma: expected a number, got list"),
        ({"sigma": torch.tensor([1.0, torch.nan])}, ValueError, "sigma: expected a finite number, got nan"),
        ({"sigma": torch.ones(3)}, ValueError, r"sigma: expected a shape that broadcasts to \(2\), got \(3\)"),
        ({"sigma": torch.ones(2, 2)}, ValueError, r"sigma: expected a shape that broadcasts to \(2\), got \(2, 2\)"),
        ({"drift": torch.tensor([True])}, TypeError, "drift: expected a number, got bool"),
        ({"drift": math.inf}, ValueError, "drift: expected a finite number, got inf"),
        ({"comparator_norm": 0.0}, ValueError, "comparator_norm: expected a number above 0, got 0.0"),
        ({"scale": 0.0}, ValueError, "scale: expected a number above 0, got 0.0"),
        ({"period": 1}, ValueError, "period: expected at least 2, got 1"),
        ({"period": 2.0}, TypeError, "period: expected an integer, got float"),
        ({"period": 3, "dim": 1}, ValueError, "period: expected 2, in one dimension, got 3"),
        ({"batch_shape": 2}, TypeError, "batch_shape: expected a tuple of integers, got int"),
        ({"seed": None}, TypeError, "seed: expected an integer, got NoneType"),
        ({"dtype": torch.float16}, ValueError, "dtype: expected"),
        ({"dtype": "float64"}, TypeError, "dtype: expected a torch.dtype, got str"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], error: type[Exception], said: str) -> None:
    options = {"dim": 2, "batch_shape": (2,)} | options
    with pytest.raises(error, match=f"^{said}"):
        SEAStream(**options)


@pytest.mark.parametrize(
    ("method", "argument", "error", "said"),
    [
        (
            "values",
            "points",
            TypeError,
            r"points: expected a torch.Tensor, .*, got str",
        ),
        ("gradients", torch.ones(2, 3, dtype=torch.int64), TypeError, "points: expected a floating-point tensor"),
        ("gradients", torch.ones(3), ValueError, r"points: expected shape \(2, ..., 3\), got \(3\)"),
        ("gradients", torch.ones(2), ValueError, r"points: expected shape \(2, ..., 3\), got \(2\)"),
        ("expected_values", torch.ones(3, 3), ValueError, r"points: expected shape \(2, ..., 3\), got \(3, 3\)"),
        ("expected_gradients", torch.ones(2, 4), ValueError, r"points: expected shape \(2, ..., 3\), got \(2, 4\)"),
        ("regret", torch.ones(2, 4), ValueError, r"decision: expected shape \(2, ..., 3\), got \(2, 4\)"),
        (
            "expected_regret",
            None,
            TypeError,
            r"decision: expected a torch.Tensor, .*, got NoneType",
        ),
        ("lipschitz_on", -1.0, ValueError, "radius: expected a number of at least 0, got -1.0"),
        ("lipschitz_on", "one", TypeError, "radius: expected a number, got str"),
    ],
)
def test_bad_points_are_refused_by_name(method: str, argument: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^{said}"):
        getattr(SEAStream(3, batch_shape=(2,)), method)(argument)


def test_no_lag_but_one() -> None:
    with pytest.raises(ValueError, match=r"^lag: expected 0 or 1, got 2"):
        SEAStream(3).expected_gradients(torch.zeros(3), lag=2)


def test_repr_says_what_was_asked_for() -> None:
    assert repr(SEAStream(2)) == "SEAStream(dim=2)"
    one_number = SEAStream(2, loss="huber", sigma=0.5, drift=torch.full((3,), 0.1), period=5, batch_shape=(3,), seed=1)
    assert repr(one_number) == (
        "SEAStream(dim=2, loss='huber', sigma=0.5, drift=0.1, period=5, batch_shape=(3,), seed=1)"
    )
    several = SEAStream(1, sigma=torch.tensor([0.5, 1.0]), batch_shape=(2,), dtype=torch.float32)
    assert repr(several) == (
        "SEAStream(dim=1, sigma=<torch.float64 of shape (2)>, batch_shape=(2,), dtype=torch.float32)"
    )
