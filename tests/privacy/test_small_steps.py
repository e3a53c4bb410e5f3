"""Small steps: the lemma against exact means, the bound against the exact adaptive composition, and the discrete Gaussian."""

import math
import re
from typing import Any

import mpmath
import numpy as np
import pytest

from torchonline.privacy import SmallStepsEvent, gaussian_delta, small_steps_mu
from torchonline.privacy.mechanisms.discrete import EXCESS, RESOLUTION
from torchonline.privacy.small_steps import LARGEST_RHO, harmonic, harmonic_mu

pytestmark = pytest.mark.fast


def time_value(s: float, x: mpmath.mpf) -> mpmath.mpf:
    """E(e^(x + L) - 1)+ less (e^x - 1)+, for Gaussian privacy of mu^2 = s, whose L is N(-s/2, s)."""
    root = mpmath.sqrt(s)
    if x > 0:
        return mpmath.ncdf(root / 2 - x / root) - mpmath.exp(x) * mpmath.ncdf(-root / 2 - x / root)
    return mpmath.exp(x) * mpmath.ncdf(x / root + root / 2) - mpmath.ncdf(x / root - root / 2)


def intrinsic(x: mpmath.mpf) -> mpmath.mpf:
    return max(mpmath.mpf(0), mpmath.expm1(x))


def two_points(low: float, high: float) -> list[tuple[mpmath.mpf, float]]:
    """Weights and values of a log-ratio that takes two values and whose exponential has mean 1."""
    share = (1 - mpmath.exp(low)) / (mpmath.exp(high) - mpmath.exp(low))
    return [(share, high), (1 - share, low)]


def after_a_step(law: list[tuple[Any, Any]], s: float, x: mpmath.mpf) -> mpmath.mpf:
    """The mean of E(e^(x + L) - 1)+ over a first step of that law, less (e^x - 1)+."""
    terms = [weight * (time_value(s, x + value) + intrinsic(x + value)) for weight, value in law]
    return mpmath.fsum([*terms, -intrinsic(x)])


@pytest.mark.parametrize("span", [0.05, 0.5, 2.0, 4.8])
def test_a_step_before_gaussian_steps_adds_what_the_lemma_says(span: float) -> None:
    """For bounded ranges at all places, at all distances from the middle; and a twentieth of the excess is not enough."""
    worst = mpmath.mpf(0)
    with mpmath.workdps(130):
        a = mpmath.mpf(span) ** 2 / 4
        for s in (2 * a, 3 * a, 10 * a, 100 * a):
            excess = a * a / (s - a)
            for share in (0.02, 0.3, 0.5, 0.7, 0.98):
                law = two_points(-share * span, (1.0 - share) * span)
                for z in (-9.0, -5.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 9.0):
                    x = z * mpmath.sqrt(s)
                    mean = after_a_step(law, s, x)
                    assert mean <= time_value(s + a + excess, x)
                    worst = max(worst, mean / time_value(s + a + excess / 20, x))
    assert (worst > 1) == (span < 1.0)


def exact_delta(spans: list[float], epsilons: np.ndarray) -> np.ndarray:
    """The delta of adaptive steps of bounded range: the adversary places each range where it is worst, given the past."""
    grid = np.linspace(-14.0, 14.0, 8001)
    delta = np.maximum(0.0, -np.expm1(grid))  # by what is left of epsilon
    for span in reversed(spans):
        best = delta
        for low in np.linspace(0.0, span, 33)[1:-1]:
            share = -math.expm1(-low) / (math.exp(span - low) - math.exp(-low))
            up = np.interp(grid + span - low, grid, delta, right=0.0)
            down = np.where(grid - low < grid[0], -np.expm1(grid - low), np.interp(grid - low, grid, delta))
            best = np.maximum(best, share * up + (1.0 - share) * down)
        delta = best
    return np.interp(epsilons, grid, delta)


@pytest.mark.parametrize(("span", "steps"), [(0.5, 60), (1.5, 40), (2.0, 5), (3.0, 1)])
def test_adaptive_steps_spend_no_more_than_the_bound(span: float, steps: int) -> None:
    mu = harmonic_mu(span * span / 8.0, steps)
    epsilons = np.linspace(0.0, 3.5, 15) * mu
    exact = exact_delta([span / math.sqrt(k) for k in range(1, steps + 1)], epsilons)
    bound = np.array([gaussian_delta(mu, epsilon) for epsilon in epsilons])
    assert (exact <= bound * (1.0 + 1e-6) + 1e-12).all()
    # Gaussian noise of the same rho spends less than such steps do, so the excess is needed.
    gaussian = np.array([gaussian_delta(span / 2.0 * math.sqrt(harmonic(steps)), epsilon) for epsilon in epsilons])
    assert (exact[:3] > gaussian[:3]).all()


@pytest.mark.parametrize("rho", [1e-8, 0.01, LARGEST_RHO])
def test_a_harmonic_series_costs_little_more_than_its_terms_one_by_one(rho: float) -> None:
    before = 0.0
    for steps in [*range(1, 300), 511, 512, 513, 1023, 1024, 1025, 5000, 100_000]:
        together = harmonic_mu(rho, steps)
        assert together >= before  # to spend less by another step would be wrong, and would confuse a budget
        before = together
        if steps <= 5000:
            exact = small_steps_mu([rho / k for k in range(1, steps + 1)])
            assert exact * (1.0 - 1e-12) <= together <= 1.004 * exact
    assert 1.0 < together / math.sqrt(2.0 * rho * harmonic(100_000)) < 1.01


def test_many_equal_steps_are_nearly_gaussian() -> None:
    assert small_steps_mu([]) == small_steps_mu([0.0, 0.0]) == 0.0
    assert small_steps_mu([0.5]) == pytest.approx(2.0)  # a single step gets nothing
    assert small_steps_mu([0.1, 0.1]) == small_steps_mu(iter([0.1, 0.1])) == small_steps_mu(np.full(2, 0.1))
    for count, excess in ((10, 0.25), (1000, 0.006), (100_000, 1e-4)):
        assert 1.0 < small_steps_mu([0.5 / count] * count) < 1.0 + excess


@pytest.mark.parametrize(
    ("rhos", "error", "message"),
    [
        ([0.1, 3.01], ValueError, "rhos: expected numbers of at most 3, got 3.01"),
        ([-1e-9], ValueError, "rhos: expected a number of at least 0, got -1e-09"),
        ([math.nan], ValueError, "rhos: expected a number of at least 0, got nan"),
        (["0.1"], TypeError, "rhos: expected a number, got str"),
        (0.1, TypeError, "rhos: expected an iterable of numbers, got float"),
    ],
)
def test_steps_that_the_proof_does_not_cover_are_refused(rhos: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        small_steps_mu(rhos)


def test_the_second_half_of_the_condition_is_needed() -> None:
    """A step whose rho holds outside of [0, 1] only, as zCDP has it, costs more than the lemma says."""
    # Weights and values of the log-ratio under the second neighbour, found by a search.
    law = [(1.0 - 4.97e-7 - 0.0725, -2.718), (4.97e-7, -5.146), (0.0725, 2.561)]
    total = math.fsum(weight * math.exp(value) for weight, value in law)
    law = [(weight, value - math.log(total)) for weight, value in law]

    def psi(theta: float) -> float:
        return math.log(math.fsum(weight * math.exp(theta * value) for weight, value in law))

    outside = [*np.linspace(-60.0, -1e-3, 4000), *np.linspace(1.0 + 1e-3, 60.0, 4000)]
    inside = np.linspace(1e-3, 1.0 - 1e-3, 999)
    rho = max(psi(theta) / (theta * (theta - 1.0)) for theta in outside)
    full = max(rho, max(psi(theta) / (theta * (theta - 1.0)) for theta in inside))
    assert rho < 0.9 * full
    with mpmath.workdps(30):
        excesses = []
        for a in (2.0 * rho, 2.0 * full):
            s = 10.0 * a
            v = a / (1.0 - a / s)
            ratios = []
            for z in np.linspace(-3.0, 3.0, 61):
                x = mpmath.mpf(z) * mpmath.sqrt(s)
                ratios.append(after_a_step(law, s, x) / time_value(s + v, x))
            excesses.append(max(ratios))
    assert excesses[0] > 1.0 > excesses[1]


@pytest.mark.parametrize("shift", [1, 2, 12_345, 1 << 19, 1 << 21])
def test_a_fine_discrete_gaussian_spends_what_the_continuous_one_does(shift: int) -> None:
    """At the least standard deviation that is used: without the excess, one unit of the grid would spend more."""
    sigma = 1 << RESOLUTION
    y = np.arange(-9 * sigma, 9 * sigma + 1, dtype=np.float64)
    weights = np.exp(-0.5 * (y / sigma) ** 2)
    weights /= weights.sum()
    mu = shift / sigma
    for z in (0.0, 0.5, 2.0):
        epsilon = z * mu
        # The first record's output is more likely, by more than e^epsilon, below this.
        turn = shift / 2.0 - epsilon * sigma * sigma / shift
        first = weights[y < turn]
        exact = float((-np.expm1(epsilon + (shift * y[y < turn] - shift * shift / 2.0) / sigma**2) * first).sum())
        assert exact <= gaussian_delta((1.0 + EXCESS) * mu, epsilon) * (1.0 + 1e-9)
        assert exact == pytest.approx(gaussian_delta(mu, epsilon), rel=2e-6)


def test_an_event_of_small_steps_has_both_costs() -> None:
    assert SmallStepsEvent(mu=0.5, rho=0.1).costs() == {"mu_squared": 0.25, "rho": 0.1}
    with pytest.raises(ValueError, match=r"^mu: "):
        SmallStepsEvent(mu=-0.5, rho=0.1)
