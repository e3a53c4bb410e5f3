r"""What differential privacy costs: events, the ledger that lists them, accountants that add them up, and calibration.

A mechanism is :math:`(\varepsilon,\delta)`-differentially private for a relation of neighbouring streams if for any two
neighbours and any set A of outputs :math:`P(A) \le e^\varepsilon P'(A) + \delta`. Three measures add up under adaptive
composition, where what a mechanism does may depend on the outputs before it, though its own measure may not:

====================  ==========================================  ===========================================================
measure               of whom                                     to :math:`(\varepsilon,\delta)`
====================  ==========================================  ===========================================================
:math:`\mu^2`         Gaussian noise                              exact: Balle and Wang 2018; Dong, Roth and Su 2022
:math:`\rho`, zCDP    all                                         Canonne, Kamath and Steinke 2020, after Bun and Steinke 2016
:math:`\varepsilon`   Laplace noise, the exponential mechanism    Kairouz, Oh and Viswanath 2015
====================  ==========================================  ===========================================================

All is computed with plain floating-point numbers, and speaks of mechanisms in real arithmetic.
"""

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchonline.checks import non_negative, one_of, positive, positive_integer

# replace_one: one record becomes any other. zero_out: one record becomes the null record, which contributes 0.
ADJACENCIES = ("replace_one", "zero_out")

# Calibration stops short of the budget by this share, for rounding: that of the roots below is a thousandth of it.
MARGIN = 1e-9

# The trapezoidal rule on log t for integrals of exp(-t^2 / 2) f(t) over t > 0: its error is below roundoff.
NODES = np.exp(np.arange(-320, 21) / 8.0)
WEIGHTS = NODES * np.exp(-0.5 * NODES * NODES) / 8.0


def gaussian_delta(mu: float, epsilon: float) -> float:
    r"""The smallest delta at which a mu-GDP mechanism is sure to be (epsilon, delta)-private; Gaussian noise attains it.

    With :math:`a = \varepsilon/\mu - \mu/2` and :math:`b = \varepsilon/\mu + \mu/2` it is

    .. math:: \Phi(-a) - e^\varepsilon\,\Phi(-b) = \varphi(a) \int_0^\infty e^{-t^2/2}\,(e^{-at} - e^{-bt})\,dt,

    computed from the integral, in which nothing cancels: to 12 digits for an epsilon up to 1000, and 0 below 1e-308.

    Args:
        mu: at least 0, or infinity: the distance of the two Gaussians in standard deviations.
        epsilon: at least 0, or infinity.

    Example:
        >>> f"{gaussian_delta(mu=1.0, epsilon=2.0):.6f}"
        '0.020924'

    Reference: Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13.
    """
    mu, epsilon = _from_0("mu", mu), _from_0("epsilon", epsilon)
    if mu == 0.0 or epsilon == math.inf:
        return 0.0
    a, b = epsilon / mu - 0.5 * mu, epsilon / mu + 0.5 * mu
    density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
    if density == 0.0:
        return 0.0 if a > 0.0 else 1.0
    if a > -1.0:
        return density * float(WEIGHTS @ (-np.expm1(-mu * NODES) * np.exp(-a * NODES)))
    return 1.0 - density * float(WEIGHTS @ (np.exp(a * NODES) + np.exp(-b * NODES)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon at which a mu-GDP mechanism is sure to be (epsilon, delta)-private, to 11 digits.

    It is the root of :func:`gaussian_delta`, from above; infinite for a delta of 0, unless mu is 0.

    Args:
        mu: at least 0, or infinity.
        delta: in [0, 1).

    Example:
        >>> f"{gaussian_epsilon(mu=1.0, delta=1e-5):.6f}"
        '4.377178'
    """
    mu, delta = _from_0("mu", mu), _probability(delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if delta == 0.0 or mu == math.inf:
        return math.inf
    return _turn(lambda epsilon: gaussian_delta(mu, epsilon) > delta)[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    r"""The largest mu whose mu-GDP mechanisms are (epsilon, delta)-private, less one part in 10^9.

    Gaussian noise of standard deviation (l2 sensitivity) / mu is the least that has this privacy:
    :math:`\mu = \sup\{m : \Phi(m/2 - \varepsilon/m) - e^\varepsilon\,\Phi(-m/2 - \varepsilon/m) \le \delta\}`.

    Args:
        epsilon: at least 0, or infinity, for which mu is.
        delta: in (0, 1).

    Example:
        >>> f"{gaussian_mu(epsilon=1.0, delta=1e-3):.6f}"
        '0.388401'

    Reference: Balle and Wang 2018, Theorem 8.
    """
    epsilon, delta = _from_0("epsilon", epsilon), _probability(delta, above_0=True)
    if epsilon == math.inf:
        return math.inf
    return (1.0 - MARGIN) * _turn(lambda mu: gaussian_delta(mu, epsilon) <= delta)[0]


def zcdp_delta(rho: float, epsilon: float) -> float:
    r"""A delta at which all rho-zCDP mechanisms are (epsilon, delta)-private.

    It is :math:`\min_{\alpha>1} e^{(\alpha-1)(\alpha\rho-\varepsilon)}(1-1/\alpha)^{\alpha-1}/\alpha`, and at most 1. The
    derivative of the logarithm, :math:`(2\alpha-1)\rho + \log(1-1/\alpha) - \varepsilon`, rises, so one root is the minimum.

    Args:
        rho: at least 0, or infinity.
        epsilon: at least 0, or infinity.

    Example:
        >>> f"{zcdp_delta(rho=0.5, epsilon=4.0):.6f}"
        '0.000196'

    Reference: Canonne, Kamath and Steinke 2020, Corollary 13.
    """
    rho, epsilon = _from_0("rho", rho), _from_0("epsilon", epsilon)
    if rho == 0.0 or epsilon == math.inf:
        return 0.0
    if rho - epsilon > 700.0:  # there the minimum is 1, to the last digit
        return 1.0
    # x = alpha - 1. Any x gives a delta that holds.
    x = _turn(lambda x: rho * (1.0 + 2.0 * x) - math.log1p(1.0 / x) <= epsilon)[0]
    return math.exp(min(0.0, x * ((1.0 + x) * rho - epsilon - math.log1p(1.0 / x)) - math.log1p(x)))


def zcdp_epsilon(rho: float, delta: float) -> float:
    r"""An epsilon at which all rho-zCDP mechanisms are (epsilon, delta)-private.

    It is :math:`\min_{\alpha>1} \alpha\rho + \log(1-1/\alpha) - \log(\delta\alpha)/(\alpha-1)`, and at least 0. The minimum is
    where :math:`\rho(\alpha-1)^2 + \log\alpha = \log(1/\delta)`, whose left side rises. At a delta of 0 it is infinite.

    Args:
        rho: at least 0, or infinity.
        delta: in [0, 1).

    Example:
        >>> f"{zcdp_epsilon(rho=0.1, delta=1e-6):.6f}"
        '2.141939'

    Reference: Canonne, Kamath and Steinke 2020, Corollary 13, smaller than the :math:`\rho + 2\sqrt{\rho\log(1/\delta)}` of Bun
    and Steinke 2016.
    """
    rho, delta = _from_0("rho", rho), _probability(delta)
    if rho == 0.0:
        return 0.0
    if delta == 0.0 or rho == math.inf:
        return math.inf
    log_delta = math.log(delta)
    # x = alpha - 1. Any x gives an epsilon that holds.
    x = _turn(lambda x: rho * x * x + math.log1p(x) <= -log_delta)[0]
    return max(0.0, (1.0 + x) * rho - math.log1p(1.0 / x) - (log_delta + math.log1p(x)) / x)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho of which :func:`zcdp_epsilon` makes no more than epsilon, less one part in 10^9.

    Args:
        epsilon: at least 0, or infinity, for which rho is.
        delta: in (0, 1).

    Example:
        >>> f"{zcdp_rho(epsilon=1.0, delta=1e-3):.6f}"
        '0.059390'
    """
    epsilon, delta = _from_0("epsilon", epsilon), _probability(delta, above_0=True)
    if epsilon == math.inf:
        return math.inf
    return (1.0 - MARGIN) * _turn(lambda rho: zcdp_epsilon(rho, delta) <= epsilon)[0]


@dataclass(frozen=True)
class Event:
    """Base of what a mechanism did; for which neighbours, the :class:`Ledger` says. Parameters are numbers of at least 0."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, non_negative(name, value))

    def costs(self) -> dict[str, float]:
        """What it adds to ``"mu_squared"``, to ``"rho"`` and to ``"epsilon"``; a measure that does not apply is left out."""
        return {}


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Gaussian noise, independent in all coordinates: mu-GDP, with mu = 1 / noise_multiplier, and mu^2 / 2-zCDP.

    ``noise_multiplier``, above 0, is standard deviation over l2 sensitivity. A matrix mechanism, which releases prefix sums with
    correlated noise, is one event: its sensitivity is that of a record times the largest column norm of the encoder, if each
    record is in one row of its input. The discrete Gaussian is a :class:`ZCDPEvent` of the same rho, not mu-GDP.

    Reference: Dong, Roth and Su 2022, Theorem 2.7; Bun and Steinke 2016, Proposition 1.6.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", positive("noise_multiplier", self.noise_multiplier))

    def costs(self) -> dict[str, float]:
        return {"mu_squared": self.noise_multiplier**-2, "rho": 0.5 * self.noise_multiplier**-2}


@dataclass(frozen=True)
class ZCDPEvent(Event):
    """Anything whose Renyi divergence of each order alpha > 1 is at most alpha rho (Bun and Steinke 2016, Definition 1.1)."""

    rho: float

    def costs(self) -> dict[str, float]:
        return {"rho": self.rho}


@dataclass(frozen=True)
class PureEvent(Event):
    """Anything (epsilon, 0)-private, as Laplace noise of scale (l1 sensitivity) / epsilon is; it is epsilon^2 / 2-zCDP.

    Reference: Bun and Steinke 2016, Proposition 1.4.
    """

    epsilon: float

    def costs(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "rho": 0.5 * self.epsilon * self.epsilon}


@dataclass(frozen=True)
class BoundedRangeEvent(Event):
    """The exponential mechanism: log-ratios of probabilities lie in an interval of length epsilon. It is epsilon^2 / 8-zCDP.

    Only the winner of scores with independent Gumbel noise of scale b is released; epsilon b is the most by which the
    difference of two scores changes between neighbours. It is (epsilon, 0)-private too.

    Reference: Cesar and Rogers 2021, on the bounded range of Dong, Durfee and Rogers 2020.
    """

    epsilon: float

    def costs(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "rho": 0.125 * self.epsilon * self.epsilon}


@dataclass(frozen=True)
class NonPrivateEvent(Event):
    """Records were released: no epsilon is large enough."""

    def costs(self) -> dict[str, float]:
        return dict.fromkeys(("mu_squared", "rho", "epsilon"), math.inf)


@dataclass(frozen=True)
class RepeatedEvent(Event):
    """An event that happened ``count`` times, a number fixed in advance, each with noise of its own."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise TypeError(f"event: expected an Event, got {type(self.event).__name__}")
        positive("count", positive_integer("count", self.count))  # the first of which has a largest number

    def costs(self) -> dict[str, float]:
        return {name: self.count * cost for name, cost in self.event.costs().items()}


@dataclass(frozen=True)
class Ledger:
    """All that was released about a stream, for which neighbours, and what it spends.

    Under ``"replace_one"`` two streams differ in one record, which may be any; under ``"zero_out"`` one record is replaced by the
    null record, which contributes 0. The second halves the sensitivity: never compare epsilons of different relations.

    Args:
        adjacency: ``"replace_one"`` or ``"zero_out"``, for which every event was computed.
        events: what was done, in any order.
        notes: warnings in words.

    Example:
        >>> ledger = Ledger("replace_one", [GaussianEvent(noise_multiplier=2.0), PureEvent(epsilon=0.1)])
        >>> f"{ledger.epsilon(delta=1e-5):.4f}"
        '2.2133'
    """

    adjacency: str
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of("adjacency", self.adjacency, ADJACENCIES)
        for name, kind in {"events": Event, "notes": str}.items():
            values = getattr(self, name)
            if not isinstance(values, (tuple, list)) or not all(isinstance(value, kind) for value in values):
                raise TypeError(f"{name}: expected a tuple of {kind.__name__}, got {values!r}")
            object.__setattr__(self, name, tuple(values))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon over the accountants that support all events, for a delta in [0, 1)."""
        accountants = [kind(self.adjacency) for kind in (GaussianAccountant, ZCDPAccountant, PureAccountant)]
        able = [accountant for accountant in accountants if all(map(accountant.supports, self.events))]
        if not able:
            raise TypeError(f"events: expected ones that some accountant supports together, got {self.events}")
        for accountant in able:
            accountant.compose(self)
        return min(accountant.epsilon(delta) for accountant in able)


class Accountant:
    """Base of the accountants: ``total`` is the sum of one kind of cost.

    Args:
        adjacency: ``"replace_one"`` or ``"zero_out"``, for which every event was computed.
    """

    cost: str  # of those that events name

    def __init__(self, adjacency: str) -> None:
        self.adjacency = one_of("adjacency", adjacency, ADJACENCIES)
        self.total = 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.adjacency!r}, total={self.total:g})"

    def supports(self, event: Event) -> bool:
        """Whether the cost of an event is known."""
        return isinstance(event, Event) and self.cost in event.costs()

    def compose(self, spent: Event | Ledger) -> None:
        """Add an event, or all of a ledger for the same relation of neighbours; or raise, and add nothing."""
        if isinstance(spent, Ledger) and spent.adjacency != self.adjacency:
            raise ValueError(f"spent: expected a ledger for {self.adjacency!r}, got one for {spent.adjacency!r}")
        events = spent.events if isinstance(spent, Ledger) else (spent,)
        for event in events:
            if not self.supports(event):
                raise TypeError(f"spent: expected what {type(self).__name__} supports, got {event!r}")
        self.total = math.fsum([self.total, *(event.costs()[self.cost] for event in events)])

    def epsilon(self, delta: float) -> float:
        """An epsilon at which all of it together is (epsilon, delta)-private, for a delta in [0, 1)."""
        raise NotImplementedError

    def delta(self, epsilon: float) -> float:
        """A delta at which all of it together is (epsilon, delta)-private, for an epsilon of at least 0."""
        raise NotImplementedError


class GaussianAccountant(Accountant):
    """Gaussian noise alone, exactly: the squares of mu add up (Dong, Roth and Su 2022, Corollary 3.3).

    Example:
        >>> accountant = GaussianAccountant("replace_one")
        >>> accountant.compose(RepeatedEvent(GaussianEvent(noise_multiplier=8.0), count=64))
        >>> accountant.total, f"{accountant.epsilon(delta=1e-5):.6f}"
        (1.0, '4.377178')
    """

    cost = "mu_squared"

    def epsilon(self, delta: float) -> float:
        return gaussian_epsilon(math.sqrt(self.total), delta)

    def delta(self, epsilon: float) -> float:
        return gaussian_delta(math.sqrt(self.total), epsilon)


class ZCDPAccountant(Accountant):
    """Every kind of event here: rho adds up (Bun and Steinke 2016, Lemma 2.3).

    Example:
        >>> accountant = ZCDPAccountant("replace_one")
        >>> accountant.compose(Ledger("replace_one", [GaussianEvent(5.0), BoundedRangeEvent(0.4), PureEvent(0.2)]))
        >>> f"{accountant.total:.6f}, {accountant.epsilon(delta=1e-5):.6f}"
        '0.060000, 1.445408'
    """

    cost = "rho"

    def epsilon(self, delta: float) -> float:
        return zcdp_epsilon(self.total, delta)

    def delta(self, epsilon: float) -> float:
        return zcdp_delta(self.total, epsilon)


class PureAccountant(Accountant):
    r"""Pure privacy alone: epsilon adds up, to :math:`\varepsilon_0`, and :math:`\varepsilon_0` is enough at a delta of 0.

    At any other :math:`\varepsilon` randomized response is the worst of all that is :math:`(\varepsilon_0, 0)`-private, with
    :math:`\delta = (e^{\varepsilon_0} - e^\varepsilon) / (1 + e^{\varepsilon_0})` (Kairouz, Oh and Viswanath 2015).

    Example:
        >>> accountant = PureAccountant("replace_one")
        >>> accountant.compose(RepeatedEvent(PureEvent(epsilon=0.25), count=2))
        >>> accountant.epsilon(delta=0.0)
        0.5
    """

    cost = "epsilon"

    def epsilon(self, delta: float) -> float:
        share = _probability(delta) * (1.0 + math.exp(-self.total))
        return max(0.0, self.total + math.log1p(-share)) if share < 1.0 else 0.0

    def delta(self, epsilon: float) -> float:
        if _from_0("epsilon", epsilon) >= self.total:
            return 0.0
        return -math.expm1(epsilon - self.total) / (1.0 + math.exp(-self.total))


def _turn(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Two numbers, equal to 13 digits: a condition that holds for small positive numbers still does at the first only."""
    low = high = 1.0
    while not holds(low):
        low, high = low / 16.0, low
    while holds(high):
        low, high = high, 16.0 * high
    for _ in range(45):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _from_0(name: str, value: Any) -> float:
    """A number of at least 0, or infinity."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected at most 1.8e308, or infinity, got an integer beyond it") from None
    if not number >= 0.0:
        raise ValueError(f"{name}: expected a number of at least 0, got {value}")
    return number


def _probability(value: Any, *, above_0: bool = False) -> float:
    """A delta, in [0, 1) or in (0, 1)."""
    delta = _from_0("delta", value)
    if delta >= 1.0 or (above_0 and delta == 0.0):
        raise ValueError(f"delta: expected a number in {'(' if above_0 else '['}0, 1), got {value}")
    return delta
