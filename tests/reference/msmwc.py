"""Multi-scale multiplicative weights with correction, and the master over many rates, with their bounds on the regret."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp


def prox(logs: np.ndarray, costs: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Log-weights of the w of the simplex that minimises ``<w, costs> + D(w, exp(logs))``: ``logs + rates (nu - costs)``."""
    inside = np.isfinite(logs)
    held, c, beta = logs[inside], costs[inside], rates[inside]

    def excess(nu: float) -> float:
        moved = held + beta * (nu - c)
        return float(moved.max() + np.log(np.exp(moved - moved.max()).sum()))

    low, high = c.min(), c.max()
    if excess(low) >= 0.0 or excess(high) <= 0.0:  # all costs are equal, to rounding
        nu = low if abs(excess(low)) < abs(excess(high)) else high
    else:
        nu = brentq(excess, low, high, xtol=1e-300, rtol=1e-15)
    result = np.full(logs.shape, -np.inf)
    result[inside] = held + beta * (nu - c)
    return result


def prox_among(logs: np.ndarray, costs: np.ndarray, rates: np.ndarray, there: np.ndarray) -> np.ndarray:
    """The same of the weights that are there, whose sum stays; the others stay."""
    some = np.where(there, logs, -np.inf)
    if not np.isfinite(some).any():
        return logs
    share = logsumexp(some)
    return np.where(there, share + prox(some - share, costs, rates), logs)


class MsMwCReference:
    """Experts of rates ``beta``: :meth:`play` with a hint, then :meth:`learn` from the losses, of those who are ``there``."""

    def __init__(self, prior: np.ndarray, rates: np.ndarray, *, kappa: float) -> None:
        with np.errstate(divide="ignore"):
            self.logs = np.log(prior)
        self.prior, self.rates, self.kappa = prior, rates, kappa

    def play(self, hint: np.ndarray, there: np.ndarray | bool = True) -> np.ndarray:
        self.hint, self.there = hint, np.broadcast_to(there, self.logs.shape)
        weights = np.where(self.there, np.exp(prox_among(self.logs, hint, self.rates, self.there)), 0.0)
        self.weights = weights / (weights.sum() or 1.0)
        return self.weights

    def learn(self, losses: np.ndarray) -> None:
        corrected = losses + self.kappa * self.rates * (losses - self.hint) ** 2
        self.logs = prox_among(self.logs, corrected, self.rates, self.there)


def regret_bounds(
    prior: np.ndarray, rates: np.ndarray, errors: np.ndarray, weights: np.ndarray, kappa: float
) -> np.ndarray:
    """Of the regret to each expert, from the weights played and the errors of the hints, ``(T, N)``.

    Where ``kappa rates |errors| <= 1`` throughout, and ``kappa >= 4``::

        (ln(1 / prior_i) - 1) / rate_i + sum_j prior_j / rate_j
            + kappa rate_i sum_t e_ti^2 - kappa / 2 sum_t sum_j rate_j w_tj e_tj^2
    """
    with np.errstate(divide="ignore"):
        start = (np.log(1.0 / prior) - 1.0) / rates + (prior / rates).sum()
    return start + kappa * rates * (errors**2).sum(0) - kappa / 2.0 * (rates * weights * errors**2).sum()


def paper_grid(ranges: np.ndarray, horizon: int) -> np.ndarray:
    """The powers of two between each range and sqrt(T) times it; the next one above where there is none."""
    reach = math.sqrt(horizon)
    powers = set()
    for span in ranges:
        exponents = range(math.floor(math.log2(span)) - 1, math.ceil(math.log2(span * reach)) + 2)
        inside = [k for k in exponents if span * (1 - 1e-12) <= 2.0**k <= span * reach * (1 + 1e-12)]
        powers |= set(inside or [math.ceil(math.log2(span) - 1e-12)])
    return np.array([2.0**k for k in sorted(powers)])


def anchored_grid(ranges: np.ndarray, horizon: int) -> np.ndarray:
    """The same, of the smallest range times powers of two."""
    return ranges.min() * paper_grid(ranges / ranges.min(), horizon)


# kappa of the correction, the power of the rate in the prior, and the grid of ranges.
META_PRESETS = {"default": (6.0, 1, anchored_grid), "paper": (32.0, 2, paper_grid)}


class MasterReference:
    """One :class:`MsMwCReference` for each range of the grid, and one over these."""

    def __init__(self, ranges: np.ndarray, horizon: int, *, preset: str = "default") -> None:
        kappa, power, grid = META_PRESETS[preset]
        spans = grid(ranges, horizon)
        # beta_k = 1 / (kappa 2^k), where 2^(k - 2) is the range.
        self.rates = 1.0 / (4.0 * kappa * spans)
        self.kappa = kappa
        self.members = ranges[None, :] <= spans[:, None] * (1 + 1e-12)
        prior = self.rates**power / (self.rates**power).sum()
        self.top = MsMwCReference(prior, self.rates, kappa=kappa)
        self.middle = [
            MsMwCReference(members / members.sum(), np.full(len(ranges), 2.0 * rate), kappa=kappa)
            for members, rate in zip(self.members, self.rates, strict=True)
        ]

    def play(self, hint: np.ndarray, there: np.ndarray | bool = True) -> np.ndarray:
        self.rows = np.stack([middle.play(hint, there) for middle in self.middle])
        self.shares = self.top.play(self.rows @ hint, (self.members & there).any(1))
        self.weights = self.shares @ self.rows
        return self.weights

    def learn(self, losses: np.ndarray) -> None:
        for middle in self.middle:
            middle.learn(losses)
        self.top.learn(self.rows @ losses)

    def regret_bounds(self, errors: np.ndarray) -> np.ndarray:
        """Of the regret to each expert, from the errors of the hints, ``(T, N)``.

        The correction of the top, of what the middle mixes, is at most half of what the middle's gives back; for each k that
        has the expert::

            (ln(1 / prior_k) - 1) / beta_k + sum_l prior_l / beta_l + ln(members_k) / (2 beta_k) + 2 kappa beta_k sum_t e_ti^2
        """
        start = (np.log(1.0 / self.top.prior) - 1.0) / self.rates + (self.top.prior / self.rates).sum()
        start += np.log(self.members.sum(1)) / (2.0 * self.rates)
        bounds = start[:, None] + 2.0 * self.kappa * self.rates[:, None] * (errors**2).sum(0)
        return np.where(self.members, bounds, np.inf).min(0)
