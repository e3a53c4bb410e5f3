"""The audit: how often its bound is above the truth, and that of an event chosen on its own games; what it sees and refuses."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor

from torchonline.privacy import AuditResult, clopper_pearson, epsilon_lower_bound

Play = Callable[[int, int], Tensor]
AUDITS = 400
# A bound that is wrong in 5 % of the audits is wrong more often than this with probability below 1e-3.
MOST_WRONG = int(stats.binom.isf(1e-3, AUDITS, 0.05))


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of a count are computed once: only for speed."""
    monkeypatch.setattr("torchonline.privacy.audit.clopper_pearson", remembered_bounds)


remembered_bounds = lru_cache(None)(clopper_pearson)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The delta of two normal laws of variance 1 whose means are mu apart."""
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


def gaussian(mu: float, random: np.random.Generator) -> Play:
    return lambda world, games: torch.from_numpy(random.normal(world * mu, 1.0, games))


def laplace(epsilon: float, random: np.random.Generator) -> Play:
    return lambda world, games: torch.from_numpy(random.laplace(world * epsilon, 1.0, games))


def randomized_response(epsilon: float, random: np.random.Generator) -> Play:
    """The bit that is the world, told truly with probability e^epsilon / (1 + e^epsilon)."""
    truly = 1.0 / (1.0 + math.exp(-epsilon))
    return lambda world, games: torch.from_numpy((random.random(games) < (truly if world else 1.0 - truly)) * 1.0)


# Mechanisms that are exactly (epsilon, delta)-private, and no better.
MECHANISMS = [
    (gaussian, 1.0, 0.05),
    (laplace, 1.0, 0.0),
    (randomized_response, 1.0, 0.0),
    (randomized_response, 3.0, 0.0),
]


@pytest.mark.parametrize(("mechanism", "epsilon", "delta"), MECHANISMS)
def test_bounds_are_above_the_truth_as_rarely_as_promised(mechanism: Any, epsilon: float, delta: float) -> None:
    random = np.random.default_rng(0)
    size = epsilon
    if mechanism is gaussian:
        size = optimize.brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 1e-3, 20.0, xtol=1e-13)
    play = mechanism(size, random)
    for confidence, most in ((0.95, MOST_WRONG), (0.5, stats.binom.isf(1e-3, AUDITS, 0.5))):
        audits = (epsilon_lower_bound(play, delta=delta, games=100, confidence=confidence) for _ in range(AUDITS))
        assert sum(audit.epsilon > epsilon for audit in audits) <= most


def bound_on_its_own_games(play: Play, games: int, confidence: float) -> float:
    """What is no audit: the largest bound of all statistics, thresholds and directions on the games that count them."""
    ends = np.array([remembered_bounds(hits, games, (1.0 - confidence) / 2.0) for hits in range(games + 1)])
    values = torch.stack([play(0, games), play(1, games)]).reshape(2, games, -1).numpy()
    above = (values[:, None] >= values.reshape(1, -1, 1, values.shape[-1])).sum(2)  # (world, threshold, statistic)
    hits = np.stack([above, games - above])
    ratios = ends[hits, 0] / ends[hits[:, ::-1], 1]
    return max(0.0, math.log(ratios.max()))


def test_choosing_the_threshold_on_the_games_that_count_it_gives_no_bound() -> None:
    """One statistic, at a confidence at which the slack of the two halves does not hide it: accept and reject."""
    play, most = laplace(1.0, np.random.default_rng(10)), stats.binom.isf(1e-3, AUDITS, 0.5)
    audits = (epsilon_lower_bound(play, delta=0.0, games=100, confidence=0.5) for _ in range(AUDITS))
    assert sum(audit.epsilon > 1.0 for audit in audits) <= most
    assert sum(bound_on_its_own_games(play, 100, 0.5) > 1.0 for _ in range(AUDITS)) > most


def test_choosing_the_statistic_on_the_games_that_count_it_gives_no_bound() -> None:
    """Forty statistics of a release, one of which tells the worlds apart with epsilon 0.1: accept and reject."""
    random = np.random.default_rng(1)
    release = laplace(0.1, random)

    def play(world: int, games: int) -> Tensor:
        return torch.cat([release(world, games).unsqueeze(-1), torch.from_numpy(random.normal(size=(games, 39)))], -1)

    audits = 100
    most = stats.binom.isf(1e-3, audits, 0.05)
    assert sum(epsilon_lower_bound(play, delta=0.0, games=40).epsilon > 0.1 for _ in range(audits)) <= most
    assert sum(bound_on_its_own_games(play, 40, 0.95) > 0.1 for _ in range(audits)) > most


def test_the_largest_of_several_audits_pays_for_them() -> None:
    """With ``pairs`` the best of 20 is as rarely wrong as one; without, it is not."""
    random = np.random.default_rng(2)
    play = randomized_response(0.1, random)
    rounds, wrong = 30, {1: 0, 20: 0}
    for pairs in wrong:
        for _ in range(rounds):
            audits = (epsilon_lower_bound(play, delta=0.0, games=40, confidence=0.5, pairs=pairs) for _ in range(20))
            wrong[pairs] += max(audit.epsilon for audit in audits) > 0.1
    assert wrong[20] <= stats.binom.isf(1e-3, rounds, 0.5) < wrong[1]


# Power.

LIMIT = math.log((0.025 ** (1 / 4000) - 1e-3) / (1.0 - 0.025 ** (1 / 4000)))


def gaussian_audits(epsilon: float, audits: int, noise: float = 1.0) -> list[float]:
    """Bounds for a Gaussian mechanism whose noise is this often what (epsilon, 1e-3) needs."""
    random = np.random.default_rng(3)
    mu = optimize.brentq(lambda mu: gaussian_delta(mu, epsilon) - 1e-3, 1e-3, 20.0)
    results = [epsilon_lower_bound(gaussian(mu / noise, random), delta=1e-3) for _ in range(audits)]
    assert all(result.epsilon <= result.limit for result in results)
    assert all(result.limit == pytest.approx(LIMIT, abs=1e-9) for result in results)
    return [result.epsilon for result in results]


# The docstring's, to two digits.
@pytest.mark.parametrize(("epsilon", "median"), [(1.0, 0.48), (2.0, 1.12), (3.0, 1.76), (5.0, 2.81), (8.0, 4.00)])
def test_what_the_best_test_shows(epsilon: float, median: float) -> None:
    """A bound's standard deviation is at most 0.3, that of the median of 21 then 0.08: three of them."""
    assert np.median(gaussian_audits(epsilon, 21)) == pytest.approx(median, abs=0.25)


def test_the_gaussian_curve_shows_more_and_is_wrong_as_rarely_as_promised() -> None:
    """Of a Gaussian mechanism it is near the truth; it is above it in one audit of forty at most."""
    mu = optimize.brentq(lambda mu: gaussian_delta(mu, 1.0) - 1e-3, 1e-3, 20.0)
    random = np.random.default_rng(5)
    told: dict[str, Any] = {"delta": 1e-3, "curve": "gaussian"}
    found = [epsilon_lower_bound(gaussian(mu, random), games=4000, **told).epsilon for _ in range(21)]
    assert 0.7 < np.median(found) < 1.0  # 0.48 for any curve
    play, bounds = gaussian(mu, random), []
    for _ in range(AUDITS):
        bounds.append(epsilon_lower_bound(play, games=100, **told).epsilon)
    assert sum(bound > 1.0 for bound in bounds) <= MOST_WRONG
    assert epsilon_lower_bound(gaussian(0.0, random), games=100, **told).epsilon < 1.0
    assert "if the curve is gaussian" in repr(epsilon_lower_bound(play, games=100, **told))


def test_a_fifth_of_the_noise_is_seen_and_two_thirds_are_not() -> None:
    assert min(gaussian_audits(1.0, 10, noise=0.2)) > 1.0
    assert max(gaussian_audits(1.0, 10, noise=1.0)) < 1.0
    assert np.median(gaussian_audits(3.0, 10, noise=2 / 3)) < 3.0


def test_nothing_shows_more_than_the_limit() -> None:
    assert round(LIMIT, 2) == 6.99
    for play in (lambda world, games: torch.full((games,), 5.0 - world), gaussian(100.0, np.random.default_rng(4))):
        result = epsilon_lower_bound(play, delta=1e-3)
        assert result.epsilon == result.limit == pytest.approx(LIMIT, abs=1e-9)
    # More games, or less confidence, raise it.
    limits = [
        epsilon_lower_bound(play, delta=0.0, games=n, confidence=c).limit for n, c in ((9, 0.9), (99, 0.9), (99, 0.5))
    ]
    assert limits == sorted(set(limits))


@pytest.mark.parametrize("likely", [0, 1])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_every_direction_is_found(likely: int, sign: float) -> None:
    """A value that is rare in either world, far out on either side."""
    random = np.random.default_rng(5)

    def play(world: int, games: int) -> Tensor:
        rare = random.random(games) < (0.3 if world == likely else 0.001)
        return torch.from_numpy(np.where(rare, 7.0 * sign, random.normal(size=games)))

    result = epsilon_lower_bound(play, delta=1e-3, games=1000)
    assert (result.likely, result.direction) == (likely, ">=" if sign > 0 else "<")
    assert 2.0 < sign * result.threshold < 7.0
    assert result.epsilon > 2.0
    rate = [hits / 1000 for hits in result.hits]
    assert rate[likely] == pytest.approx(0.3, abs=0.06)
    assert rate[1 - likely] < 0.02


def test_the_column_that_tells_most_is_chosen() -> None:
    """Under Cauchy noise, which has no covariance, a sum of columns is worse than the one that moves."""
    random = np.random.default_rng(6)
    shift = np.array([0.0, 0.0, 9.0, 0.0])

    def play(world: int, games: int) -> Tensor:
        return torch.from_numpy(random.standard_cauchy((games, 4)) + world * shift)

    result = epsilon_lower_bound(play, delta=1e-3, games=500)
    assert result.statistic == "column 2"
    assert result.epsilon > 2.0


def test_noise_that_is_used_twice_is_found_by_the_discriminant() -> None:
    """Neither column shows anything; their difference is free of noise."""
    random = np.random.default_rng(7)

    def play(world: int, games: int) -> Tensor:
        noise, other = torch.from_numpy(random.normal(0.0, 100.0, size=(2, games)))
        return torch.stack([noise + world, other, noise - world, torch.zeros(games)], -1)

    result = epsilon_lower_bound(play, delta=1e-3, games=1000)
    assert result.statistic == "discriminant"
    assert result.epsilon == result.limit
    for column in range(4):
        assert epsilon_lower_bound(lambda *game, c=column: play(*game)[:, c], delta=1e-3, games=1000).epsilon < 0.1


def test_the_discriminant_adds_up_many_small_columns() -> None:
    random = np.random.default_rng(8)
    result = epsilon_lower_bound(lambda w, n: torch.from_numpy(random.normal(0.5 * w, 1.0, (n, 25))), delta=1e-3)
    assert result.statistic == "discriminant"
    assert result.epsilon > 3.0  # one column, mu 0.5, has epsilon 1.35


def test_the_games_are_played_in_four_calls_and_the_pilot_ones_not_counted() -> None:
    """The pilot games tell the worlds apart, the fresh ones do not: their count is what is reported."""
    calls, random = [], np.random.default_rng(9)

    def play(world: int, games: int) -> Tensor:
        calls.append((world, games))
        return torch.from_numpy(random.normal(9.0 * world * (len(calls) <= 2), 1.0, games)).float()

    result = epsilon_lower_bound(play, delta=1e-3, games=300)
    assert calls == [(0, 300), (1, 300)] * 2
    assert result.epsilon == 0.0
    assert abs(result.hits[0] - result.hits[1]) < 10


@pytest.mark.fast
def test_the_result_is_readable() -> None:
    fresh = iter([torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 0.0, 1.0])] * 2)
    result = epsilon_lower_bound(lambda world, games: next(fresh), delta=0.01, games=4, confidence=0.9, pairs=2)
    expected = AuditResult(
        epsilon=0.0,
        limit=result.limit,
        delta=0.01,
        confidence=0.9,
        pairs=2,
        games=4,
        statistic="column 0",
        direction="<",
        threshold=0.5,
        likely=0,
        hits=(3, 1),
    )
    assert result == expected
    assert repr(result) == (
        "AuditResult(epsilon >= 0 at delta = 0.01, confidence 0.9 for 2 pairs; "
        "column 0 < 0.5 in 3 of 4 games of world 0, 1 of world 1; no result is above 0)"
    )


# Clopper and Pearson.


@pytest.mark.parametrize("miss", [1e-9, 0.00125, 0.025, 0.4])
@pytest.mark.parametrize("games", [1, 2, 10, 400, 4000])
def test_clopper_pearson_against_scipy(games: int, miss: float) -> None:
    for hits in sorted({0, 1, 3, games // 3, games // 2, games - 1, games} & set(range(games + 1))):
        low, high = clopper_pearson(hits, games, miss)
        # Quantiles of the beta law, and none where nothing or all was hit.
        truth = stats.beta.ppf(miss, hits, games - hits + 1), stats.beta.isf(miss, hits + 1, games - hits)
        assert low == pytest.approx(truth[0] if hits > 0 else 0.0, rel=1e-9)
        assert high == pytest.approx(truth[1] if hits < games else 1.0, rel=1e-9)
        # What they are defined by; 1 - 1e-9 is known to 1e-7 of 1e-9.
        assert hits == 0 or stats.binom.sf(hits - 1, games, low) == pytest.approx(miss, rel=1e-7)
        assert hits == games or stats.binom.cdf(hits, games, high) == pytest.approx(miss, rel=1e-7)


# What is refused.


@pytest.mark.parametrize(
    ("error", "name", "options"),
    [
        (ValueError, "delta", {"delta": 1.0}),
        (ValueError, "delta", {"delta": -0.1}),
        (ValueError, "delta", {"delta": math.nan}),
        (TypeError, "delta", {"delta": "0.1"}),
        (ValueError, "games", {"games": 1}),
        (ValueError, "games", {"games": 0}),
        (TypeError, "games", {"games": 10.0}),
        (ValueError, "confidence", {"confidence": 1.0}),
        (ValueError, "confidence", {"confidence": 0.0}),
        (TypeError, "confidence", {"confidence": True}),
        (ValueError, "pairs", {"pairs": 0}),
        (TypeError, "pairs", {"pairs": 1.5}),
        (TypeError, "play", {"play": 3}),
        (ValueError, "curve", {"curve": "laplace"}),
    ],
)
def test_options_are_refused_before_any_game(error: type[Exception], name: str, options: dict[str, Any]) -> None:
    def never(world: int, games: int) -> Tensor:
        raise AssertionError("played")

    with pytest.raises(error, match=f"^{name}: expected .* got "):
        epsilon_lower_bound(**{"play": never, "delta": 0.1, **options})


@pytest.mark.parametrize(
    ("error", "release"),
    [
        (TypeError, lambda world, games: [0.0] * games),
        (TypeError, lambda world, games: torch.zeros(games, dtype=torch.int64)),
        (ValueError, lambda world, games: torch.zeros(())),
        (ValueError, lambda world, games: torch.zeros(games + 1)),
        (ValueError, lambda world, games: torch.zeros(games, 2, 1)),
        (ValueError, lambda world, games: torch.zeros(games, 0)),
        (ValueError, lambda world, games: torch.zeros(games, 2 + world)),
        (ValueError, lambda world, games: torch.full((games,), math.nan)),
        (ValueError, lambda world, games: torch.full((games,), math.inf if world else 0.0)),
        (ValueError, lambda world, games: world + torch.randn(games, generator=torch.Generator().manual_seed(0))),
    ],
)
def test_releases_are_refused(error: type[Exception], release: Any) -> None:
    with pytest.raises(error, match=r"^play: expected .* got "):
        epsilon_lower_bound(release, delta=0.1, games=50)


def test_fresh_games_of_another_width_are_refused() -> None:
    widths = iter((2, 2, 3, 3))
    with pytest.raises(ValueError, match=r"^play: expected shape \(5, 2\), got \(5, 3\)"):
        epsilon_lower_bound(lambda world, games: torch.randn(games, next(widths)), delta=0.1, games=5)


@pytest.mark.parametrize(
    ("error", "name", "arguments"),
    [
        (ValueError, "hits", (-1, 10, 0.1)),
        (ValueError, "hits", (11, 10, 0.1)),
        (TypeError, "hits", (1.0, 10, 0.1)),
        (ValueError, "games", (0, 0, 0.1)),
        (ValueError, "miss", (1, 10, 0.0)),
        (ValueError, "miss", (1, 10, 0.5)),
    ],
)
def test_counts_are_refused(error: type[Exception], name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(error, match=f"^{name}: expected .* got "):
        clopper_pearson(*arguments)
