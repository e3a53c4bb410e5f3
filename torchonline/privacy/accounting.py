"""Privacy accounting: events, ledgers and accountants (docs/privacy.md)."""

import math
from dataclasses import dataclass

from torchonline.core.checks import instance_of, non_negative, one_of, positive, positive_integer
from torchonline.privacy import calibration
from torchonline.privacy.calibration import from_0, probability

ADJACENCIES = ("replace_one", "zero_out")


@dataclass(frozen=True)
class Event:
    """Base class of the events: releases under the adjacency of a :class:`Ledger`."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, non_negative(name, value))

    def costs(self) -> dict[str, float]:
        """Return the known costs, out of ``"mu_squared"``, ``"rho"`` and ``"epsilon"``."""
        return {}


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Gaussian noise, independent in all coordinates: mu-GDP and mu^2 / 2-zCDP.

    A matrix mechanism is one event. If each record is in one row of the input, the sensitivity is a record's sensitivity times
    the largest column norm of the encoder. The discrete Gaussian has the same rho and a slightly larger mu, so it is a
    :class:`SmallStepsEvent`. (Dong, Roth and Su 2022, Theorem 2.7; Bun and Steinke 2016, Proposition 1.6.)

    Args:
        noise_multiplier: 1 / mu, the standard deviation over the l2 sensitivity, above 0.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", positive("noise_multiplier", self.noise_multiplier))

    def costs(self) -> dict[str, float]:
        return {"mu_squared": self.noise_multiplier**-2, "rho": 0.5 * self.noise_multiplier**-2}


@dataclass(frozen=True)
class ZCDPEvent(Event):
    """Zero-concentrated privacy: Renyi divergence at most alpha rho for alpha > 1.

    (Bun and Steinke 2016, Definition 1.1.)

    Args:
        rho: at least 0.
    """

    rho: float

    def costs(self) -> dict[str, float]:
        return {"rho": self.rho}


@dataclass(frozen=True)
class PureEvent(Event):
    """Pure (epsilon, 0)-privacy, which implies epsilon^2 / 2-zCDP.

    The implication is Proposition 1.4 of Bun and Steinke 2016. Laplace noise of scale (l1 sensitivity) / epsilon is an example.

    Args:
        epsilon: at least 0.
    """

    epsilon: float

    def costs(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "rho": 0.5 * self.epsilon * self.epsilon}


@dataclass(frozen=True)
class BoundedRangeEvent(Event):
    """Exponential mechanism: bounded range epsilon, which implies epsilon^2 / 8-zCDP.

    The log-ratios of probabilities lie in an interval of length epsilon. An example is the argmax of scores with independent
    Gumbel noise of scale b, if only the argmax is released and the difference of two scores changes by at most epsilon b between
    neighbours. The mechanism is also (epsilon, 0)-private. (Cesar and Rogers 2021, on the bounded range of Dong, Durfee and
    Rogers 2020.)

    Args:
        epsilon: the length of the interval, at least 0.
    """

    epsilon: float

    def costs(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "rho": 0.125 * self.epsilon * self.epsilon}


@dataclass(frozen=True)
class SmallStepsEvent(Event):
    r"""Many small steps whose composition is mu-GDP and rho-zCDP.

    :func:`small_steps_mu` computes mu. It is slightly above the :math:`\sqrt{2\rho}` of Gaussian noise.

    Args:
        mu: at least 0.
        rho: at least 0.
    """

    mu: float
    rho: float

    def costs(self) -> dict[str, float]:
        return {"mu_squared": self.mu * self.mu, "rho": self.rho}


@dataclass(frozen=True)
class NonPrivateEvent(Event):
    """A release without privacy: no epsilon is large enough."""

    def costs(self) -> dict[str, float]:
        return dict.fromkeys(("mu_squared", "rho", "epsilon"), math.inf)


@dataclass(frozen=True)
class RepeatedEvent(Event):
    """Runs of one event with independent noise.

    ``count`` is fixed before the first release.

    Args:
        event: the event.
        count: number of runs, an integer above 0.
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        instance_of("event", self.event, Event, "an Event")
        positive("count", positive_integer("count", self.count))  # an integer that a float can hold

    def costs(self) -> dict[str, float]:
        return {name: self.count * cost for name, cost in self.event.costs().items()}


@dataclass(frozen=True)
class Ledger:
    """All releases about a stream, with their total privacy cost.

    Under ``"replace_one"`` neighbouring streams differ in one record, replaced by any other record. Under ``"zero_out"`` one
    record is replaced by the null record, which contributes 0. This halves the sensitivity: never compare epsilons of different
    adjacencies.

    Args:
        adjacency: ``"replace_one"`` or ``"zero_out"``, the relation that every event was computed for.
        events: the releases, in any order.
        notes: warnings as text.

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
        """Return the least epsilon of the accountants that apply, at a delta in [0, 1)."""
        accountants = [kind(self.adjacency) for kind in (GaussianAccountant, ZCDPAccountant, PureAccountant)]
        able = [accountant for accountant in accountants if all(map(accountant.supports, self.events))]
        if not able:
            raise TypeError(f"events: expected events that one accountant supports together, got {self.events}")
        for accountant in able:
            accountant.compose(self)
        return min(accountant.epsilon(delta) for accountant in able)


class Accountant:
    """Base class of the accountants: ``total`` sums one cost under one adjacency.

    Args:
        adjacency: "replace_one" or "zero_out", as in :class:`Ledger`.
    """

    cost: str  # a key of Event.costs()

    def __init__(self, adjacency: str) -> None:
        self.adjacency = one_of("adjacency", adjacency, ADJACENCIES)
        self.total = 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.adjacency!r}, total={self.total:g})"

    def supports(self, event: Event) -> bool:
        """Return whether the cost of an event is known."""
        return isinstance(event, Event) and self.cost in event.costs()

    def compose(self, spent: Event | Ledger) -> None:
        """Add an event or a ledger of the same adjacency. An error adds nothing."""
        if isinstance(spent, Ledger) and spent.adjacency != self.adjacency:
            raise ValueError(f"spent: expected a ledger for {self.adjacency!r}, got one for {spent.adjacency!r}")
        events = spent.events if isinstance(spent, Ledger) else (spent,)
        for event in events:
            if not self.supports(event):
                raise TypeError(f"spent: expected an event that {type(self).__name__} supports, got {event!r}")
        self.total = math.fsum([self.total, *(event.costs()[self.cost] for event in events)])

    def epsilon(self, delta: float) -> float:
        """Return an epsilon for all events together, at a delta in [0, 1)."""
        raise NotImplementedError

    def delta(self, epsilon: float) -> float:
        """Return a delta for all events together, at an epsilon of at least 0."""
        raise NotImplementedError


class GaussianAccountant(Accountant):
    """Accountant of Gaussian noise and small steps: the squares of mu add up.

    It is exact for Gaussian noise. (Dong, Roth and Su 2022, Corollary 3.3.)

    Args:
        adjacency: "replace_one" or "zero_out", as in :class:`Ledger`.

    Example:
        >>> accountant = GaussianAccountant("replace_one")
        >>> accountant.compose(RepeatedEvent(GaussianEvent(noise_multiplier=8.0), count=64))
        >>> accountant.total, f"{accountant.epsilon(delta=1e-5):.6f}"
        (1.0, '4.377178')
    """

    cost = "mu_squared"

    def epsilon(self, delta: float) -> float:
        return calibration.gaussian_epsilon(math.sqrt(self.total), delta)

    def delta(self, epsilon: float) -> float:
        return calibration.gaussian_delta(math.sqrt(self.total), epsilon)


class ZCDPAccountant(Accountant):
    """Accountant of all events: rho adds up (Bun and Steinke 2016, Lemma 2.3).

    Args:
        adjacency: "replace_one" or "zero_out", as in :class:`Ledger`.

    Example:
        >>> accountant = ZCDPAccountant("replace_one")
        >>> accountant.compose(Ledger("replace_one", [GaussianEvent(5.0), BoundedRangeEvent(0.4), PureEvent(0.2)]))
        >>> f"{accountant.total:.6f}, {accountant.epsilon(delta=1e-5):.6f}"
        '0.060000, 1.445408'
    """

    cost = "rho"

    def epsilon(self, delta: float) -> float:
        return calibration.zcdp_epsilon(self.total, delta)

    def delta(self, epsilon: float) -> float:
        return calibration.zcdp_delta(self.total, epsilon)


class PureAccountant(Accountant):
    r"""Accountant of pure privacy only: epsilon adds up.

    Randomized response is the worst of all :math:`(\varepsilon_0, 0)`-private mechanisms, with
    :math:`\delta = (e^{\varepsilon_0} - e^\varepsilon) / (1 + e^{\varepsilon_0})` (Kairouz, Oh and Viswanath 2015).

    Args:
        adjacency: "replace_one" or "zero_out", as in :class:`Ledger`.

    Example:
        >>> accountant = PureAccountant("replace_one")
        >>> accountant.compose(RepeatedEvent(PureEvent(epsilon=0.25), count=2))
        >>> accountant.epsilon(delta=0.0)
        0.5
    """

    cost = "epsilon"

    def epsilon(self, delta: float) -> float:
        share = probability(delta) * (1.0 + math.exp(-self.total))
        return max(0.0, self.total + math.log1p(-share)) if share < 1.0 else 0.0

    def delta(self, epsilon: float) -> float:
        if from_0("epsilon", epsilon) >= self.total:
            return 0.0
        return -math.expm1(epsilon - self.total) / (1.0 + math.exp(-self.total))
