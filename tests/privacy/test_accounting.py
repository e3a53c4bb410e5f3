"""Privacy accounting: formulas against mpmath, bounds against dp-accounting, and noise that is seen to be too little."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as losses
from dp_accounting.rdp import RdpAccountant

from torchonline.privacy import (
    Accountant,
    BoundedRangeEvent,
    Event,
    GaussianAccountant,
    GaussianEvent,
    Ledger,
    NonPrivateEvent,
    PureAccountant,
    PureEvent,
    RepeatedEvent,
    ZCDPAccountant,
    ZCDPEvent,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "private_accounting.json").read_text())
MARGIN = 1e-9
GRID = 1e-3
BUDGETS = [(0.1, 1e-6), (1.0, 1e-3), (1.0, 1e-6), (6.0, 1e-5)]
ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def pld_epsilon(delta: float, *events: dp_accounting.DpEvent) -> float:
    """What dp-accounting says of some events, by their privacy losses on a grid, rounded up."""
    accountant = PLDAccountant(ADD_OR_REMOVE, value_discretization_interval=GRID)
    for event in events:
        accountant.compose(event)
    return accountant.get_epsilon(delta)


def rdp_epsilon(delta: float, rho: float) -> float:
    """What dp-accounting says of rho-zCDP, by Renyi divergences of many orders."""
    accountant = RdpAccountant(orders=1.0 + np.geomspace(1e-2, 1e6, 4000))
    return accountant.compose(dp_accounting.ZCDpEvent(rho)).get_epsilon(delta)


# --- the formulas ---------------------------------------------------------------------------------------------------------


def exact_delta(mu: Any, epsilon: Any) -> Any:
    """The two normal probabilities, to 80 digits, of which at most 40 cancel."""
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    second = mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - second


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-3, 0.1, 1.0, 30.0, 1e3])
def test_gaussian_delta_is_that_of_two_normal_laws(epsilon: float) -> None:
    checked = 0
    with mpmath.workdps(80):
        for mu in (1e-12, 1e-6, 1e-3, 0.05, 0.5, 1.0, 2.0, 2.3, 5.0, 9.0, 30.0, 44.0, 46.0, 60.0):
            exact = exact_delta(mu, epsilon)
            if exact > 1e-300:
                checked += 1
                assert gaussian_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-12)
            else:
                assert gaussian_delta(mu, epsilon) <= 1e-300
    assert checked >= 4


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.03, 1.0, 20.0, 1e3])
@pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-6, 1e-30, 1e-300])
def test_gaussian_calibration_is_the_largest_that_the_budget_allows(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    with mpmath.workdps(80 if epsilon else 340):  # without epsilon, the two differ by delta alone
        assert exact_delta(mu, epsilon) <= delta
        assert exact_delta(mu * (1.0 + 1.1 * MARGIN), epsilon) > delta
        assert gaussian_epsilon(mu, delta) <= epsilon
        assert gaussian_delta(mu, gaussian_epsilon(mu, delta)) <= delta
        if epsilon:
            found = gaussian_epsilon(mu * (1.0 + MARGIN), delta)
            assert found == pytest.approx(epsilon, rel=1e-11)
            assert exact_delta(mu * (1.0 + MARGIN), found * (1.0 - 1e-11)) > delta


def exact_zcdp(rho: float, delta: float) -> Any:
    """The minimum over the order, by golden section in mpmath over its logarithm."""

    def bound(y: Any) -> Any:
        x = mpmath.exp(y)
        return (1 + x) * rho + mpmath.log(x / (1 + x)) - mpmath.log(delta * (1 + x)) / x

    ratio = (mpmath.sqrt(5) - 1) / 2
    low, high = mpmath.mpf(-20), mpmath.mpf(25)
    for _ in range(90):
        one, other = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, other) if bound(one) < bound(other) else (one, high)
    return bound((low + high) / 2)


@pytest.mark.parametrize(("rho", "delta"), [(1e-6, 1e-5), (0.01, 0.02), (0.1, 1e-6), (3.0, 1e-12), (50.0, 0.5)])
def test_zcdp_conversions_are_one_minimum(rho: float, delta: float) -> None:
    with mpmath.workdps(40):
        expected = max(0.0, float(exact_zcdp(rho, delta)))
    epsilon = zcdp_epsilon(rho, delta)
    assert epsilon == pytest.approx(expected, rel=1e-11)
    assert zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-9)
    assert zcdp_rho(epsilon, delta) == pytest.approx(rho * (1.0 - MARGIN), rel=1e-11)
    assert zcdp_epsilon(zcdp_rho(epsilon, delta), delta) <= epsilon
    assert zcdp_epsilon(zcdp_rho(epsilon, delta) * (1.0 + 1.1 * MARGIN), delta) > epsilon
    # Bun and Steinke's is larger; the exact one for Gaussian noise, which is zCDP too, is smaller.
    assert gaussian_epsilon(math.sqrt(2.0 * rho), delta) < epsilon < rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


@pytest.mark.parametrize("delta", [0.5, 1e-10, 1e-300])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e3])
def test_zcdp_calibration_at_the_ends(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert rho > 0.0
    assert zcdp_epsilon(rho, delta) <= epsilon < zcdp_epsilon(rho * (1.0 + 1.1 * MARGIN), delta)
    assert zcdp_delta(rho, epsilon) <= delta
    assert math.sqrt(2.0 * rho) < gaussian_mu(epsilon, delta)


def test_vectors() -> None:
    for v in VECTORS["gauss_mu"]:
        assert gaussian_mu(v["eps"], v["delta"]) == pytest.approx(v["mu"] * (1.0 - MARGIN), rel=1e-10)
        assert gaussian_epsilon(v["mu"], v["delta"]) == pytest.approx(v["eps"], rel=2e-10)
    for v in VECTORS["tree"]:
        noise = v["s2"] * math.sqrt(v["n"].bit_length()) / gaussian_mu(v["eps"], v["delta"])
        assert noise == pytest.approx(v["node_sigma"] * (1.0 + MARGIN), rel=1e-10)
    for v in VECTORS["zcdp_eps"]:
        # Minimised over a grid of orders, so a little above the minimum.
        assert v["eps"] - 5e-9 <= zcdp_epsilon(v["rho"], v["delta"]) <= v["eps"] * (1.0 + 1e-12)


def test_the_vector_of_gumbel_noise_spends_its_rho() -> None:
    [v] = VECTORS["gumbel"]
    accountant = ZCDPAccountant("replace_one")
    for t in range(1, v["n"] + 1):
        accountant.compose(BoundedRangeEvent(v["range1"] / t / (v["b1"] / math.sqrt(t))))
    assert v["b100"] == pytest.approx(v["b1"] / 10.0, rel=1e-12)
    assert accountant.total == pytest.approx(v["rho"], rel=1e-10)


def test_a_formula_with_simpler_constants_is_within_its_budget_by_zcdp() -> None:
    """Generalized Gaussian noise on a tree, kappa s^2 / (2 sigma^2)-zCDP: of a sigma with simpler constants far less is spent."""
    for v in VECTORS["paper_sigma_plus"]:
        rho = v["kappa"] * (2.0 * v["bDL"]) ** 2 / (2.0 * v["sigma"] ** 2)
        ledger = Ledger("replace_one", [RepeatedEvent(ZCDPEvent(rho), v["n"].bit_length())])
        assert 0.05 < ledger.epsilon(v["delta"]) / v["eps"] < 0.3


# --- what dp-accounting says ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_gaussian_noise_is_enough_and_two_thirds_of_it_is_not(epsilon: float, delta: float) -> None:
    noise = 1.0 / gaussian_mu(epsilon, delta)
    for scale, ours in ((noise, epsilon), (2.0 / 3.0 * noise, None), (3.0 * noise, None)):
        ledger = Ledger("replace_one", [RepeatedEvent(GaussianEvent(2.0 * scale), 4)])
        spent = ledger.epsilon(delta)
        assert pld_epsilon(delta, dp_accounting.GaussianDpEvent(scale)) == pytest.approx(spent, rel=1e-3, abs=1e-4)
        assert ours is None or spent == pytest.approx(ours, rel=1e-8)
    assert pld_epsilon(delta, dp_accounting.GaussianDpEvent(noise)) <= epsilon + 2e-4
    assert pld_epsilon(delta, dp_accounting.GaussianDpEvent(2.0 / 3.0 * noise)) > 1.4 * epsilon


def test_a_matrix_mechanism_is_one_gaussian_event() -> None:
    """An encoder with columns of several norms, and replaced records of norm at most 1: the sensitivity is 2 x the largest."""
    encoder = np.tril(np.ones((5, 5)) + np.diag(np.full(4, 0.5), -1))
    norm = np.linalg.norm(encoder, axis=0).max()
    sigma = 2.0 * norm / gaussian_mu(1.0, 1e-5)
    # The first record's columns: rows are released one by one, each as an event of its own.
    rows = [GaussianEvent(sigma / (2.0 * abs(entry))) for entry in encoder[:, 0]]
    assert np.linalg.norm(encoder[:, 0]) == norm
    assert Ledger("replace_one", rows).epsilon(1e-5) == pytest.approx(1.0, rel=1e-8)
    assert Ledger("replace_one", [GaussianEvent(sigma / (2.0 * norm))]).epsilon(1e-5) <= 1.0
    assert Ledger("replace_one", [GaussianEvent(sigma / (2.0 * norm) * 2.0 / 3.0)]).epsilon(1e-5) > 1.4


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_zcdp_noise_is_enough_and_two_thirds_of_it_is_not(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    for times in (1.0, 2.25, 0.25):
        ours = Ledger("zero_out", [ZCDPEvent(0.5 * rho * times), ZCDPEvent(0.5 * rho * times)]).epsilon(delta)
        assert rdp_epsilon(delta, rho * times) == pytest.approx(ours, rel=1e-3)
    assert rdp_epsilon(delta, rho) <= epsilon + 1e-4
    assert rdp_epsilon(delta, 2.25 * rho) > 1.4 * epsilon  # rho goes with the inverse square of the noise
    # Of the mechanism itself, Gaussian noise of that rho, the same is true.
    noise = 1.0 / math.sqrt(2.0 * rho)
    assert pld_epsilon(delta, dp_accounting.GaussianDpEvent(noise)) <= epsilon
    assert pld_epsilon(delta, dp_accounting.GaussianDpEvent(2.0 / 3.0 * noise)) > 1.2 * epsilon


@pytest.mark.parametrize(("count", "least"), [(1, 0.9), (50, 0.8)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (2.0, 1e-5)])
def test_laplace_noise_is_enough_and_two_thirds_of_it_is_not(
    count: int, least: float, epsilon: float, delta: float
) -> None:
    """Our bounds are of all pure privacy, and of all zCDP, so they may be above what Laplace noise spends; never below."""

    def theirs(each: float) -> float:
        event = dp_accounting.LaplaceDpEvent(1.0 / each)
        return pld_epsilon(delta, dp_accounting.SelfComposedDpEvent(event, count))

    def ours(each: float) -> float:
        return Ledger("replace_one", [RepeatedEvent(PureEvent(each), count)]).epsilon(delta)

    each = max(epsilon / count, math.sqrt(2.0 * zcdp_rho(epsilon, delta) / count))
    assert ours(each) <= epsilon * (1.0 + 1e-12)
    for factor in (1.0, 1.5, 0.3):
        assert theirs(factor * each) <= ours(factor * each) + GRID
    assert least * epsilon < theirs(each) <= epsilon + 1e-4
    assert theirs(1.5 * each) > 1.3 * epsilon


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return float(np.log(np.sum(p**order * q ** (1.0 - order))) / (order - 1.0))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_bounded_range_has_the_renyi_divergence_that_its_event_says(epsilon: float) -> None:
    """The worst pair of laws takes two values of privacy loss, epsilon apart; an eighth is reached, and less is not enough."""
    q = np.linspace(1e-3, 1.0 - 1e-3, 999)
    first, rho = [], ZCDPAccountant("replace_one")
    rho.compose(BoundedRangeEvent(epsilon))
    for share in q:
        worst = np.array([share, 1.0 - share])
        other = worst * np.exp([epsilon, 0.0])
        other /= other.sum()
        for order in (1.0 + 1e-4, 1.5, 2.0, 8.0, 60.0):
            assert renyi(other, worst, order) <= order * rho.total * (1.0 + 1e-9)
        first.append(renyi(other, worst, 1.0 + 1e-4))
    if epsilon == 0.1:
        assert max(first) > 0.998 * rho.total
    # Scores of many candidates, changed by at most a range in all.
    generator = np.random.default_rng(3)
    for _ in range(200):
        scores, change = generator.normal(size=6) * 3.0, generator.uniform(0.0, epsilon, size=6)
        p, q_ = softmax(scores), softmax(scores + change)
        assert renyi(p, q_, 3.0) <= 3.0 * rho.total


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (2.0, 1e-6)])
def test_gumbel_noise_is_enough_and_two_thirds_of_it_is_not(epsilon: float, delta: float) -> None:
    """Rounds of the exponential mechanism between two candidates of equal probability, whose difference of scores changes."""
    count = 100
    each = math.sqrt(8.0 * zcdp_rho(epsilon, delta) / count)

    def theirs(each: float) -> float:
        p = 1.0 / (1.0 + math.exp(-0.5 * each))
        lower, upper = {0: math.log(p), 1: math.log1p(-p)}, {0: math.log1p(-p), 1: math.log(p)}
        grid = losses.from_two_probability_mass_functions(lower, upper, value_discretization_interval=each / 1000.0)
        return grid.self_compose(count).get_epsilon_for_delta(delta)

    def ours(each: float) -> float:
        return Ledger("replace_one", [RepeatedEvent(BoundedRangeEvent(each), count)]).epsilon(delta)

    assert ours(each) <= epsilon
    for factor in (1.0, 1.5):
        assert theirs(factor * each) <= ours(factor * each)
    assert theirs(each) > 0.85 * epsilon
    assert theirs(1.5 * each) > 1.2 * epsilon


def test_randomized_response_spends_what_the_pure_accountant_says() -> None:
    for total in (0.3, 2.0, 9.0):
        accountant = PureAccountant("replace_one")
        accountant.compose(PureEvent(total))
        p = 1.0 / (1.0 + math.exp(-total))
        for epsilon in (0.0, 0.1, 1.0, 8.0, 10.0):
            exact = max(0.0, p - math.exp(epsilon) * (1.0 - p))
            assert accountant.delta(epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-15)
            if exact:
                assert accountant.epsilon(accountant.delta(epsilon)) == pytest.approx(epsilon, rel=1e-9, abs=1e-12)
        assert accountant.epsilon(0.0) == total
        assert accountant.epsilon(0.9999) == 0.0


# --- ledgers and accountants ----------------------------------------------------------------------------------------------


def test_delta_and_epsilon_are_inverse() -> None:
    events = {GaussianAccountant: GaussianEvent(0.8), ZCDPAccountant: ZCDPEvent(0.7), PureAccountant: PureEvent(1.5)}
    for kind, event in events.items():
        accountant = kind("replace_one")
        accountant.compose(RepeatedEvent(event, 3))
        for delta in (1e-2, 1e-8):
            assert accountant.delta(accountant.epsilon(delta)) == pytest.approx(delta, rel=1e-6)


def test_a_ledger_takes_the_best_accountant_that_supports_all() -> None:
    gaussian, pure = GaussianEvent(1.0), PureEvent(0.25)
    assert Ledger("replace_one", [gaussian]).epsilon(1e-5) == gaussian_epsilon(1.0, 1e-5) < zcdp_epsilon(0.5, 1e-5)
    assert Ledger("replace_one", [gaussian, pure]).epsilon(1e-5) == zcdp_epsilon(0.53125, 1e-5)
    few, many = Ledger("replace_one", [pure]), Ledger("replace_one", [RepeatedEvent(pure, 1000)])
    assert few.epsilon(0.0) == 0.25
    assert few.epsilon(1e-5) == pytest.approx(0.25, abs=1e-4)
    assert many.epsilon(0.0) == 250.0
    assert many.epsilon(1e-5) == zcdp_epsilon(31.25, 1e-5) < 250.0
    assert Ledger("replace_one", [gaussian]).epsilon(0.0) == math.inf
    assert Ledger("replace_one").epsilon(0.0) == Ledger("replace_one").epsilon(1e-5) == 0.0


def test_repetition_is_composition() -> None:
    for event in (GaussianEvent(3.0), ZCDPEvent(0.1), PureEvent(0.2), BoundedRangeEvent(0.2)):
        listed = Ledger("zero_out", [event] * 6)
        counted = Ledger("zero_out", [RepeatedEvent(RepeatedEvent(event, 2), 3)])
        assert counted.epsilon(1e-4) == pytest.approx(listed.epsilon(1e-4), rel=1e-11)
        assert counted.epsilon(1e-4) > Ledger("zero_out", [event] * 5).epsilon(1e-4)
    one_by_one = GaussianAccountant("zero_out")
    for _ in range(6):
        one_by_one.compose(GaussianEvent(3.0))
    assert one_by_one.total == pytest.approx(6.0 / 9.0, rel=1e-12)


@pytest.mark.parametrize("kind", [GaussianAccountant, ZCDPAccountant, PureAccountant])
def test_what_is_not_private_is_infinite(kind: type[Accountant]) -> None:
    accountant = kind("replace_one")
    assert accountant.epsilon(0.0) == accountant.delta(0.0) == 0.0
    accountant.compose(RepeatedEvent(NonPrivateEvent(), 2))
    assert accountant.epsilon(0.0) == accountant.epsilon(0.5) == math.inf
    assert accountant.delta(0.0) == accountant.delta(1e30) == 1.0
    assert accountant.delta(math.inf) == 0.0
    assert Ledger("replace_one", [NonPrivateEvent(), PureEvent(0.1)]).epsilon(0.1) == math.inf


def test_the_ends_of_the_ranges() -> None:
    assert gaussian_mu(math.inf, 1e-5) == zcdp_rho(math.inf, 1e-5) == math.inf
    assert gaussian_epsilon(0.0, 0.0) == zcdp_epsilon(0.0, 0.0) == 0.0
    assert gaussian_epsilon(math.inf, 0.5) == zcdp_epsilon(math.inf, 0.5) == math.inf
    assert gaussian_delta(0.0, 0.0) == zcdp_delta(0.0, 0.0) == 0.0
    assert gaussian_delta(math.inf, 3.0) == zcdp_delta(math.inf, 3.0) == 1.0
    assert gaussian_epsilon(1e-3, 0.1) == 0.0  # a total variation of 4e-4
    assert zcdp_epsilon(1e-8, 0.1) == 0.0
    assert zcdp_delta(1e4, 1.0) == 1.0
    assert PureAccountant("replace_one").epsilon(0.5) == 0.0
    assert 0.0 < zcdp_rho(0.0, 0.1) < 0.5 * gaussian_mu(0.0, 0.1) ** 2
    for size in (1e-200, 1e-30, 1e30, 1e150):
        assert gaussian_delta(size, 1.0) == zcdp_delta(size, 1.0) == (0.0 if size < 1.0 else 1.0)
        assert 0.0 <= gaussian_epsilon(size, 1e-40) <= zcdp_epsilon(0.5 * size**2, 1e-40) * (1.0 + 1e-12)
        assert 0.0 < gaussian_mu(size, 1e-5) <= max(1e-4, 2.0 * math.sqrt(size))


class Unknown(Event):
    pass


@pytest.mark.parametrize(
    ("kind", "unknown"),
    [
        (GaussianAccountant, (ZCDPEvent(1.0), PureEvent(1.0), BoundedRangeEvent(1.0), Unknown())),
        (ZCDPAccountant, (Unknown(), RepeatedEvent(Unknown(), 2))),
        (PureAccountant, (GaussianEvent(1.0), ZCDPEvent(1.0), RepeatedEvent(GaussianEvent(1.0), 2), Unknown())),
    ],
)
def test_a_failed_compose_changes_nothing(kind: type[Accountant], unknown: tuple[Event, ...]) -> None:
    known = (
        GaussianEvent(1.0)
        if kind is GaussianAccountant
        else PureEvent(1.0)
        if kind is PureAccountant
        else ZCDPEvent(1.0)
    )
    accountant = kind("replace_one")
    accountant.compose(known)
    before = dict(vars(accountant))
    for event in unknown:
        assert not accountant.supports(event)
        with pytest.raises(
            TypeError, match=rf"^spent: expected what {kind.__name__} supports, got .*{type(event).__name__}"
        ):
            accountant.compose(event)
        with pytest.raises(TypeError, match=r"^spent"):
            accountant.compose(Ledger("replace_one", [known, event]))
        assert vars(accountant) == before
    with pytest.raises(ValueError, match=r"^spent: expected a ledger for 'replace_one', got one for 'zero_out'$"):
        accountant.compose(Ledger("zero_out", [known]))
    with pytest.raises(TypeError, match=r"^spent"):
        accountant.compose(1.0)  # type: ignore[arg-type]
    assert vars(accountant) == before
    accountant.compose(Ledger("replace_one", [known]))
    assert accountant.total == 2.0 * before["total"]


def test_a_ledger_with_events_that_nobody_adds_up_says_so() -> None:
    with pytest.raises(
        TypeError, match=r"^events: expected ones that some accountant supports together, got .*Unknown"
    ):
        Ledger("replace_one", [GaussianEvent(1.0), Unknown()]).epsilon(1e-5)


def test_events_and_ledgers_are_values() -> None:
    ledger = Ledger("zero_out", [GaussianEvent(4), RepeatedEvent(ZCDPEvent(0), 7)], ["seeded"])
    assert repr(ledger) == (
        "Ledger(adjacency='zero_out', events=(GaussianEvent(noise_multiplier=4.0), "
        "RepeatedEvent(event=ZCDPEvent(rho=0.0), count=7)), notes=('seeded',))"
    )
    assert ledger == dataclasses.replace(ledger)
    assert hash(ledger) == hash(dataclasses.replace(ledger))
    assert repr(GaussianAccountant("zero_out")) == "GaussianAccountant('zero_out', total=0)"
    for value in (ledger, *ledger.events):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, 1.0)


PROBABILITIES: dict[str, Callable[[Any], Any]] = {
    "gaussian_epsilon": lambda delta: gaussian_epsilon(1.0, delta),
    "gaussian_mu": lambda delta: gaussian_mu(1.0, delta),
    "zcdp_epsilon": lambda delta: zcdp_epsilon(1.0, delta),
    "zcdp_rho": lambda delta: zcdp_rho(1.0, delta),
    "Ledger": Ledger("replace_one", [PureEvent(1.0)]).epsilon,
    "GaussianAccountant": GaussianAccountant("replace_one").epsilon,
    "PureAccountant": PureAccountant("replace_one").epsilon,
    "ZCDPAccountant": ZCDPAccountant("replace_one").epsilon,
}
SIZES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "gaussian_delta of mu": ("mu", lambda mu: gaussian_delta(mu, 1.0)),
    "gaussian_delta": ("epsilon", lambda epsilon: gaussian_delta(1.0, epsilon)),
    "gaussian_epsilon": ("mu", lambda mu: gaussian_epsilon(mu, 0.1)),
    "gaussian_mu": ("epsilon", lambda epsilon: gaussian_mu(epsilon, 0.1)),
    "zcdp_delta of rho": ("rho", lambda rho: zcdp_delta(rho, 1.0)),
    "zcdp_delta": ("epsilon", lambda epsilon: zcdp_delta(1.0, epsilon)),
    "zcdp_epsilon": ("rho", lambda rho: zcdp_epsilon(rho, 0.1)),
    "zcdp_rho": ("epsilon", lambda epsilon: zcdp_rho(epsilon, 0.1)),
    "PureAccountant": ("epsilon", PureAccountant("replace_one").delta),
    "GaussianEvent": ("noise_multiplier", GaussianEvent),
    "ZCDPEvent": ("rho", ZCDPEvent),
    "PureEvent": ("epsilon", PureEvent),
    "BoundedRangeEvent": ("epsilon", BoundedRangeEvent),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_a_delta_is_a_probability(name: str) -> None:
    for bad in (-1e-9, 1.0, 2.0, math.nan, math.inf, *((0.0,) if name in ("gaussian_mu", "zcdp_rho") else ())):
        with pytest.raises(ValueError, match=r"^delta: expected a number .*, got "):
            PROBABILITIES[name](bad)
    for bad in ("0.1", None, True, 1j):
        with pytest.raises(TypeError, match=r"^delta: expected a number, got "):
            PROBABILITIES[name](bad)
    assert PROBABILITIES[name](np.float64(0.1)) >= 0.0


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_numbers_from_0_on(name: str) -> None:
    argument, call = SIZES[name]
    for value in (-1.0, -math.inf, math.nan, *((0.0, math.inf) if name == "GaussianEvent" else ())):
        with pytest.raises(ValueError, match=rf"^{argument}: expected a (finite )?number.*, got "):
            call(value)
    for value in ("1", None, True, 1j):
        with pytest.raises(TypeError, match=rf"^{argument}: expected a number, got "):
            call(value)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "adjacency: expected one of 'replace_one', 'zero_out', got 'add'", lambda: Ledger("add")),
        (TypeError, "adjacency: expected one of", lambda: Ledger(None)),
        (ValueError, "adjacency: expected one of", lambda: ZCDPAccountant("REPLACE_ONE")),
        (TypeError, "events: expected a tuple of Event, got", lambda: Ledger("zero_out", PureEvent(1.0))),
        (TypeError, "events: expected a tuple of Event, got", lambda: Ledger("zero_out", [0.1])),
        (TypeError, "notes: expected a tuple of str, got 'seeded'", lambda: Ledger("zero_out", (), "seeded")),
        (ValueError, "epsilon: expected at most 1.8e308, or infinity", lambda: gaussian_mu(10**400, 0.1)),
        (TypeError, "event: expected an Event, got float", lambda: RepeatedEvent(0.1, 2)),
        (TypeError, "count: expected an integer, got float", lambda: RepeatedEvent(PureEvent(0.1), 2.0)),
        (ValueError, "count: expected an integer above 0, got 0", lambda: RepeatedEvent(PureEvent(0.1), 0)),
        (ValueError, "count: expected a magnitude", lambda: RepeatedEvent(PureEvent(0.1), 10**400)),
    ],
)
def test_what_is_refused(error: type[Exception], message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=rf"^{message}"):
        call()
    for needed in (Ledger, GaussianAccountant, ZCDPAccountant, PureAccountant):
        with pytest.raises(TypeError, match="adjacency"):
            needed()
