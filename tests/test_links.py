"""Links: their functions to the last digits, the constants of confidence sets, rewards, range, and what is no link."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from tests.learners import VARIANTS, cosh, sinh
from torchonline import GLMRegression, LocalGLMRegression
from torchonline.environments import GeneralizedLinearBandit
from torchonline.links import Binomial, CustomLink, Gamma, Gaussian, Link, Logistic, Poisson
from torchonline.metrics import has_missed

pytestmark = pytest.mark.fast

D = torch.float64
GAMMA = Gamma(100.0, shape=2.0)
EXACT: dict[str, Any] = {
    "Logistic": lambda z: mpmath.log(1 + mpmath.exp(z)),
    "Binomial": lambda z: 5 * mpmath.log(1 + mpmath.exp(z)),
    "Poisson": mpmath.exp,
    "Gaussian": lambda z: z * z / 2,
    "Gamma": lambda z: -mpmath.log(100 - z),
}
LINKS = [Logistic(), Binomial(5), Poisson(), Gaussian(0.5), GAMMA]
BOUNDS = (0.5, 3.0, 8.0)


@pytest.mark.parametrize("link", LINKS, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(D, 5e-15), (torch.float32, 1e-6)])
def test_functions_are_exact_far_from_0(link: Link, dtype: torch.dtype, tolerance: float) -> None:
    """m, mu and mu' for |z| up to 80, on tensors, arrays and NumPy's numbers; relative, but for m near a root."""
    z = torch.tensor([-80.0, -37.0, -20.5, -1.0, -1e-3, 0.0, 0.7, 5.0, 36.5, 80.0], dtype=dtype)
    m = EXACT[type(link).__name__]
    with mpmath.workdps(60):
        exact = [
            [mpmath.diff(m, float(at), order) if order else m(mpmath.mpf(float(at))) for at in z] for order in range(3)
        ]
    for function, values in zip((link.log_partition, link.mean, link.slope), exact, strict=True):
        expected = np.array([float(value) for value in values])
        size = np.maximum(np.abs(expected), 1e-3 if function == link.log_partition else 0.0)
        # An exponential multiplies the rounding of its argument by that argument.
        allowed = tolerance * size * np.maximum(1.0, np.abs(z.numpy()))
        for seen in (function(z).numpy(), function(z.numpy()), np.array([function(at) for at in z.numpy()])):
            assert (np.abs(seen - expected) <= allowed).all()
    assert torch.equal(link(z), link.mean(z))
    mean, slope = link.mean_and_slope(z)
    assert torch.equal(mean, link.mean(z))
    largest = torch.maximum(link.slope(z), link.slope(torch.zeros_like(z)))
    assert bool(((slope - link.slope(z)).abs() <= tolerance * largest).all())


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("link", [*LINKS, CustomLink(cosh, sinh, cosh, R=1.0)], ids=str)
def test_constants_bound_what_they_bound(link: Link, bound: float) -> None:
    """|mu''| <= R mu', mu' <= C_mu, curvature <= 2 D / d^2 and the ratio, over 60,000 pairs; and none is far too large."""
    random = np.random.default_rng(0)
    R, C, ratio = link.self_concordance(bound), link.max_slope(bound), link.curvature_ratio(bound)
    y, b = random.uniform(-bound, bound, (2, 60_000))
    y[:1000], b[:1000] = random.choice([-bound, bound], (2, 1000))
    b[1000:20_000] = np.clip(y[1000:20_000] + random.normal(0.0, 0.03, 19_000), -bound, bound)
    slope = np.asarray(link.slope(y)) * np.ones_like(y)
    step = 1e-4
    assert (np.abs(link.slope(y + step) - link.slope(y - step)) <= 2.0 * step * R * slope * (1.0 + 1e-6) + 1e-12).all()
    assert (slope <= C * (1.0 + 1e-12)).all()
    assert 1.05 * slope.max() + 1e-12 >= C or isinstance(link, Gamma)
    # The divergence by the mean value theorem, without cancellation.
    t, w = np.polynomial.legendre.leggauss(64)
    v = 0.5 * (t + 1.0)
    exact = sum(w[i] * (1.0 - v[i]) * np.asarray(link.slope(y + v[i] * (b - y))) for i in range(64))
    curvature = link.curvature(b, y, R)
    assert (curvature <= exact * (1.0 + 1e-9)).all()
    assert (slope <= ratio * exact * (1.0 + 1e-9)).all()
    away = np.abs(b - y) > 0.02
    assert (curvature[away] >= exact[away] * (1.0 - 3e-6)).all()
    assert ratio <= 1.005 * (slope / exact).max() or not link.is_unimodal
    assert 1.0 <= ratio <= 1.0 + R * bound + 1e-12


def test_the_ratio_of_known_links() -> None:
    """Numbers of the theory: logistic and Poisson, and 1 for the line."""
    for link, bound, value in (
        (Logistic(), 1.0, 1.055),
        (Logistic(), 2.0, 1.209),
        (Logistic(), 3.0, 1.442),
        (Logistic(), 5.0, 2.065),
        (Logistic(), 8.0, 3.222),
        (Poisson(), 1.0, 1.76),
        (Poisson(), 3.0, 3.60),
        (Poisson(), 8.0, 8.53),
    ):
        assert link.curvature_ratio(bound) == pytest.approx(value, rel=3e-3)
    assert Gaussian().curvature_ratio(7.0) == 1.0
    for bound in (700.0, 1000.0, 4000.0, 1e9):
        assert 0.5 * bound < Logistic().curvature_ratio(bound) <= 1.0 + bound


@pytest.mark.parametrize("link", LINKS, ids=str)
def test_divergences_do_not_cancel(link: Link) -> None:
    """In single precision, between points a hundredth to ten apart."""
    m = EXACT[type(link).__name__]
    y = torch.tensor([-3.0, -0.5, 0.0, 1.0, 2.5])
    for distance in (-10.0, -1.1, -0.3, 0.025, 0.5, 0.99, 4.0):
        b = y + distance
        with mpmath.workdps(40):
            exact = [
                m(mpmath.mpf(float(at)))
                - m(mpmath.mpf(float(of)))
                - mpmath.diff(m, float(of)) * (float(at) - float(of))
                for at, of in zip(b, y, strict=True)
            ]
        np.testing.assert_allclose(link.divergence(b, y).numpy(), [float(value) for value in exact], rtol=1e-3)


@pytest.mark.parametrize("link", LINKS, ids=str)
def test_samples_have_the_mean_and_variance_of_the_family(link: Link) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.tensor([-1.5, 0.0, 1.0], dtype=D)
    draws = link.sample(z.expand(200_000, 3), generator)
    assert draws.dtype == D
    assert torch.equal(link.possible(draws), draws)
    variance = link.noise_scale**2 * link.slope(z)
    assert bool(((draws.mean(0) - link.mean(z)).abs() < 4.0 * (variance / len(draws)).sqrt()).all())
    torch.testing.assert_close(draws.var(0), variance * torch.ones(3, dtype=D), rtol=0.03, atol=0.0)


@pytest.mark.parametrize("link", [*LINKS, *VARIANTS["link"]], ids=str)
def test_the_nearest_reward_is_a_reward(link: Link) -> None:
    values = torch.tensor([-7.3, -0.4, 0.0, 0.49, 0.51, 1.0, 2.0, 1e9, torch.nan], dtype=D)
    possible = link.possible(values)
    assert torch.equal(link.possible(possible[:-1]), possible[:-1])
    assert bool(possible[-1].isnan())
    assert possible[2] == 0.0
    assert possible[5] == 1.0


def test_custom_links_are_checked() -> None:
    def wrong_slope(z: torch.Tensor) -> torch.Tensor:
        return 1.001 * torch.cosh(z)

    def cube(z: torch.Tensor) -> torch.Tensor:
        return z**3

    def infinite(z: torch.Tensor) -> torch.Tensor:
        return torch.cosh(z) + torch.where(z > 0.5, torch.inf, 0.0)

    good: dict[str, Any] = {"m": cosh, "mu": sinh, "dmu": cosh, "R": 1.0}
    for changed, error, name in (
        ({"dmu": wrong_slope}, ValueError, "dmu: expected the derivative of mu"),
        ({"mu": cosh}, ValueError, "mu: expected the derivative of m "),
        ({"mu": cube}, ValueError, "mu: expected the derivative of m "),
        ({"dmu": sinh}, ValueError, "dmu: expected values above 0"),
        ({"m": infinite}, ValueError, "m: expected finite values"),
        ({"R": 0.5}, ValueError, r"R: expected at least 0\.76"),
        ({"R": -1.0}, ValueError, "R: expected a number of at least 0"),
        ({"R": "1"}, TypeError, "R: expected a number"),
        ({"C_mu": 1.2}, ValueError, r"C_mu: expected at least 1\.54"),
        ({"noise_scale": 0.0}, ValueError, "noise_scale: expected a number above 0"),
        ({"m": "cosh"}, TypeError, "m: expected a function"),
        ({"mu": lambda z: 1.0}, TypeError, "mu: expected a function that returns a tensor"),
        ({"mu": lambda z: z[:-1]}, TypeError, "mu: expected a function that returns a tensor"),
    ):
        with pytest.raises(error, match=f"^{name}"):
            CustomLink(**good | changed)
    CustomLink(**good)
    # What holds near 0 may not hold where a learner needs it: R of cosh is tanh.
    near = CustomLink(cosh, sinh, cosh, R=0.8)
    with pytest.raises(ValueError, match=r"^R: expected at least 0.99.*on \[-3, 3\], got 0.8"):
        near.check_bound(3.0)
    # Between two points of the grid, a slope may be above or below all that the grid has seen.
    peak = CustomLink(torch.nn.functional.softplus, torch.sigmoid, Logistic().slope, R=1.0)
    assert 0.25 <= peak.max_slope(8.0) <= 0.2503
    assert 0.999 <= CustomLink(**good).min_slope(8.0) <= 1.0
    with pytest.raises(NotImplementedError, match="CustomLink does not say"):
        near.sample(torch.zeros(2), torch.Generator())


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Gaussian(0.0), "noise_scale"),
        (lambda: Binomial(0), "trials"),
        (lambda: Binomial(2.5), "trials"),
        (lambda: Gamma(-1.0), "offset"),
        (lambda: Gamma(1.0, shape=0.0), "shape"),
    ],
)
def test_bad_parameters_are_refused_by_name(make: Any, name: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{name}: expected "):
        make()


def test_logistic_divergences_far_out() -> None:
    """Where the mean is 1 to the last digit: curvature is never claimed that is not there."""
    link = Logistic()
    y = torch.tensor([25.0, 30.0, 37.0, 44.87, 79.0, -30.0, -60.0], dtype=D)
    b = torch.tensor([25.05, 30.5, 37.5, 44.03, 60.0, -29.0, -79.0], dtype=D)
    with mpmath.workdps(80):
        m = EXACT["Logistic"]
        exact = [
            float(m(float(u)) - m(float(v)) - mpmath.diff(m, float(v)) * (float(u) - float(v)))
            for u, v in zip(b, y, strict=True)
        ]
    np.testing.assert_allclose(link.divergence(b, y).numpy(), exact, rtol=1e-10)
    for bound in (34.0, 100.0, 800.0, 3000.0):
        assert 1.0 <= link.curvature_ratio(bound) <= 1.0 + bound


def test_custom_links_are_checked_where_they_are_flat() -> None:
    """What is a small error beside the largest slope may be a large one where the slope is small."""

    def exp(z: torch.Tensor) -> torch.Tensor:
        return torch.exp(z)

    def flat(z: torch.Tensor) -> torch.Tensor:
        return torch.where(z < -2.0, torch.exp(torch.tensor(-2.0, dtype=D)) + 0.0 * z, torch.exp(z))

    lies = CustomLink(exp, exp, flat, R=1.0)
    for bound in (3.0, 8.0, 12.0):
        with pytest.raises(ValueError, match=r"^dmu: expected the derivative of mu"):
            lies.check_bound(bound)
    with pytest.raises(ValueError, match=r"^mu: expected the derivative of m "):
        CustomLink(exp, lambda z: torch.exp(z) + 1e-4, exp, R=1.0)
    right = CustomLink(lambda z: torch.nn.functional.softplus(z, threshold=1e9), torch.sigmoid, Logistic().slope, R=1.0)
    for bound in (1.0, 30.0, 250.0):
        right.check_bound(bound)


def test_counts_of_huge_means() -> None:
    z = torch.tensor([20.0, 40.0, 50.0, 79.0], dtype=D)
    draws = Poisson().sample(z.expand(200, 4), torch.Generator().manual_seed(0))
    assert bool(((draws.mean(0) / z.exp() - 1.0).abs() < 1e-4).all())
    assert torch.equal(Poisson().possible(draws), draws)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("cls", [LocalGLMRegression, GLMRegression])
def test_counts_keep_their_confidence_sets_up_to_the_reach(cls: Any, dim: int) -> None:
    """400 runs at S |x| = 34 and as many at 35, half of them with features on the sphere: misses are no more than delta."""
    runs, delta, generator = 200, 0.05, torch.Generator().manual_seed(0)
    for bound in (34.0, 35.0):
        learner = cls(dim, link=Poisson(), theta_bound=bound, delta=delta, batch_shape=(2, runs))
        theta = bound * torch.nn.functional.normalize(torch.randn(2, runs, dim, generator=generator, dtype=D), dim=-1)
        missed = has_missed(learner, theta)
        for _ in range(100):
            x = torch.nn.functional.normalize(torch.randn(2, runs, dim, generator=generator, dtype=D), dim=-1)
            x[1] *= torch.rand(runs, 1, generator=generator, dtype=D)
            learner.step(x, Poisson().sample((x * theta).sum(-1), generator))
            missed |= has_missed(learner, theta)
        limit = delta + 3.0 * math.sqrt(delta * (1.0 - delta) / runs)
        assert (missed.double().mean(-1) <= limit).all()


def test_counts_beyond_the_reach_are_refused_by_name() -> None:
    refused = r"^theta_bound: expected \|x'theta\| below 35, the reach of Poisson, got up to 36$"
    for cls in (LocalGLMRegression, GLMRegression):
        for bounds in ({"theta_bound": 36.0}, {"theta_bound": 18.0, "feature_bound": 2.0}):
            with pytest.raises(ValueError, match=refused):
                cls(2, link=Poisson(), **bounds)
    learner = LocalGLMRegression(2, link=Poisson(), theta_bound=18.0)
    with pytest.raises(ValueError, match=r"^x: expected features of norm at most 1, .*, got 2; scale"):
        learner.step(torch.tensor([2.0, 0.0]), torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"^theta_norm: expected below 35, the reach of Poisson, got 36"):
        GeneralizedLinearBandit(2, 3, link=Poisson(), theta_norm=36.0)
