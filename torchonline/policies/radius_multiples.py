"""Multiples of a radius, and a selector that learns the best one."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchonline.core.checks import finite_number, one_of, positive
from torchonline.core.ops import (
    along,
    argmax,
    assign_,
    at_least,
    at_most,
    column,
    exp,
    log,
    logsumexp,
    number,
    or_one,
    put_,
    real,
    row_dots,
    sqrt,
    total,
    where,
)
from torchonline.policies.default_estimator import suggestion
from torchonline.policies.policy import drawn
from torchonline.policies.ties import shares_of_best
from torchonline.regression.estimator import Estimator

RULES = ("ucb", "exp4")
# Number of last rewards among which a reward is ranked.
WINDOW = 256


class RadiusMultiples:
    """Mixin for policies that choose among multiples of the radius.

    A subclass implements :meth:`_estimates`, which scores arms, and :meth:`_most_named`, the largest number of arms that the
    multiples can name. It calls :meth:`_agreement` before it learns a round, and :meth:`_credit_` after.
    """

    if TYPE_CHECKING:
        _features: Any
        _template: Any
        policy: Any
        batch_dims: int
        recent: Tensor | None
    rounds: Tensor
    plays: Tensor
    gains: Tensor
    losses: Tensor
    multiples: Tensor
    slots: Tensor
    places: Tensor

    # Checkpoints with other values of these are refused.
    statistics_depend_on: tuple[str, ...] = ("is_ucb", "scales", "lowest", "highest")
    argument_of: dict[str, str] = {"is_ucb": "rule", "lowest": "reward_range", "highest": "reward_range"}

    def _set_options(self, estimator: Any, scales: Any, rule: Any, reward_range: Any) -> None:
        """Check and set the options, which the base class needs to create the buffers."""
        if not isinstance(estimator, Estimator):
            wanted = f"expected an Estimator{suggestion(estimator)}"
            raise TypeError(f"estimator: {wanted}, got {type(estimator).__name__}")
        if not isinstance(scales, (tuple, list)) or not scales:
            raise TypeError(f"scales: expected a tuple of numbers above 0, got {scales!r}")
        self.scales = tuple(positive("scales", value) for value in scales)
        self.rule = one_of("rule", rule, RULES)
        self.is_ucb = self.rule == "ucb"
        self.has_range = reward_range is not None
        self.lowest, self.highest = _checked_range(reward_range) if self.has_range else (0.0, 0.0)
        self.window = 0 if self.has_range else WINDOW
        self.reward_range = (self.lowest, self.highest) if self.has_range else None

    def _params(self) -> dict[str, Any]:
        return super()._params() | {"estimator": self._template().estimator}  # type: ignore[misc]

    def _initial_state(self) -> dict[str, Tensor | None]:
        zeros = torch.zeros(len(self.scales), dtype=torch.float64)
        recent = None if self.has_range else torch.zeros(self.window, dtype=torch.float64)
        own = {"plays": zeros, "gains": zeros.clone(), "losses": zeros.clone(), "recent": recent}
        return super()._initial_state() | own  # type: ignore[misc]

    def _tables(self) -> dict[str, Tensor]:
        multiples = torch.tensor(self.scales, dtype=torch.float64)
        slots, places = (torch.arange(n, dtype=torch.float64) for n in (len(self.scales), self.window))
        return {"multiples": multiples, "slots": slots, "places": places}

    def shares(self) -> Tensor:
        """Return the probability with which each multiple is played, ``(*B, M)``."""
        count = real(self.rounds, self.plays) + 1.0
        if self.is_ucb:
            plays = or_one(self.plays)
            value = self.gains / plays + 0.3 * sqrt(column(log(1.0 + count)) / plays)
            best = argmax(where(self.plays == 0.0, value + math.inf, value))
            return real(self.slots == column(best), self.plays)
        exponent = -column(self._rate(count)) * self.losses
        return exp(exponent - column(logsumexp(exponent)))

    def _rate(self, count: Tensor) -> Tensor:
        """Return the rate of EXP4-IX in a round: ``(*B)`` twice."""
        # A single multiple needs no rate, but one above 0 keeps the estimates finite.
        return sqrt(math.log(max(len(self.scales), 2)) / (self._most_named() * count))

    def _most_named(self) -> int:
        """Return the largest number of arms that multiples can name in a round."""
        raise NotImplementedError

    def _estimates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of each arm and its error at multiple 1, ``(*B, ..., K)``."""
        raise NotImplementedError

    def _at_multiples(self, x: Tensor) -> Tensor:
        """Return the scores of the arms at each multiple, ``(*B, ..., M, K)``."""
        mean, error = self._estimates(self._features(x))
        return mean[..., None, :] + self.multiples[:, None] * error[..., None, :]

    def _scores(self, features: Tensor) -> Tensor:
        mean, error = self._estimates(features)
        shares = self.shares()
        if self.is_ucb:
            return mean + along(row_dots(shares, self.multiples), mean) * error
        # Each decision draws its own multiple.
        shares = shares.reshape(list(shares.shape[:-1]) + [1] * (mean.dim() - shares.dim()) + [shares.size(-1)])
        index = drawn(shares.expand(list(mean.shape[:-1]) + [shares.size(-1)]))
        return mean + self.multiples.take(index).unsqueeze(-1) * error

    def _mixture(self, x: Tensor, mask: Tensor | None) -> Tensor:
        bounds = self._at_multiples(x)
        if mask is not None:
            bounds = bounds.masked_fill(~mask.unsqueeze(-2), -math.inf)
        named = shares_of_best(bounds)
        shares = self.shares()
        shares = shares.reshape(list(shares.shape[:-1]) + [1] * (named.dim() - shares.dim() - 1) + [shares.size(-1), 1])
        return (shares * named).sum(-2).clamp(max=1.0)  # a sum of shares may be rounded up

    def _agreement(self, x: Tensor, place: Tensor) -> Tensor:
        """Return 1 for each multiple that names the played arm, else 0: ``(*B, M)``."""
        return real(argmax(self._at_multiples(x)) == column(1.0 * place), self.plays)

    def _credit_(self, agree: Tensor, reward: Tensor) -> None:
        """Credit the multiples that named the played arm with its reward, ``(*B)``."""
        gain = self._gain_(reward)
        if self.is_ucb:
            assign_(self.plays, self.plays + agree)
            assign_(self.gains, self.gains + column(gain) * agree)
        else:
            floor = 0.5 * self._rate(real(self.rounds, self.plays) + 1.0)
            played = row_dots(self.shares(), agree)
            assign_(self.losses, self.losses + column((1.0 - gain) / (played + floor)) * agree)

    def _gain_(self, reward: Tensor) -> Tensor:
        """Scale a reward to [0, 1], or rank and remember it: ``(*B)`` twice."""
        recent = self.recent
        if recent is None:
            return at_most(at_least((reward - self.lowest) / (self.highest - self.lowest), 0.0), 1.0)
        places, one = self.places, column(reward)
        put_(recent, number(self.rounds) % self.window, reward)
        # Half of the equal rewards count as below, this one included.
        count = at_most(real(self.rounds, places) + 1.0, float(self.window))
        is_used = real(places < column(count), places)
        below = total(is_used * (real(recent < one, places) + real(recent <= one, places)))
        return 0.5 * below / count

    # TorchScript does not compile the methods below.

    def _is_on_arrays(self) -> bool:
        return self.is_ucb  # the other rule draws

    def is_deterministic(self) -> bool:
        """Return whether equal inputs and statistics give equal choices. Python only."""
        return self.is_ucb


def _checked_range(reward_range: Any) -> tuple[float, float]:
    """Return the lowest and the highest reward, or raise."""
    if not isinstance(reward_range, (tuple, list)) or len(reward_range) != 2:
        raise TypeError(f"reward_range: expected None or a tuple of two numbers, got {reward_range!r}")
    low, high = (finite_number("reward_range", value) for value in reward_range)
    if low >= high:
        raise ValueError(f"reward_range: expected low < high, got {reward_range}")
    return low, high
