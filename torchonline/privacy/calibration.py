"""Calibration of real-number mechanisms: from noise to (epsilon, delta) and back."""

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

# Calibration stays below the budget by this fraction, to allow for rounding. The error of the roots below is a thousandth of it.
MARGIN = 1e-9

# The trapezoidal rule on log t for integrals of exp(-t^2 / 2) f(t) over t > 0: its error is below roundoff.
NODES = np.exp(np.arange(-320, 21) / 8.0)
WEIGHTS = NODES * np.exp(-0.5 * NODES * NODES) / 8.0


def gaussian_delta(mu: float, epsilon: float) -> float:
    r"""Return the smallest delta that mu-GDP guarantees at an epsilon.

    Gaussian noise attains it. With :math:`a = \varepsilon/\mu - \mu/2` and :math:`b = \varepsilon/\mu + \mu/2` it is
    (Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13)

    .. math:: \Phi(-a) - e^\varepsilon\,\Phi(-b) = \varphi(a) \int_0^\infty e^{-t^2/2}\,(e^{-at} - e^{-bt})\,dt,

    computed from the integral, which has no cancellation, to 12 digits for an epsilon up to 1000. A delta below 1e-308 is 0.
    ``mu``, the distance of the two Gaussians in standard deviations, and ``epsilon`` are at least 0, or infinity.

    Example:
        >>> f"{gaussian_delta(mu=1.0, epsilon=2.0):.6f}"
        '0.020924'
    """
    mu, epsilon = from_0("mu", mu), from_0("epsilon", epsilon)
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
    """Return the smallest epsilon that mu-GDP guarantees at a delta.

    It is the root of :func:`gaussian_delta`, approximated from above to 11 digits. It is infinite for a delta of 0, unless mu is
    0. ``mu`` is at least 0, and ``delta`` in [0, 1).

    Example:
        >>> f"{gaussian_epsilon(mu=1.0, delta=1e-5):.6f}"
        '4.377178'
    """
    mu, delta = from_0("mu", mu), probability(delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if delta == 0.0 or mu == math.inf:
        return math.inf
    return _turn(lambda epsilon: gaussian_delta(mu, epsilon) > delta)[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for (epsilon, delta)-privacy, minus one part in 10^9.

    The least Gaussian noise with this privacy has standard deviation (l2 sensitivity) / mu: mu is the largest number whose
    :func:`gaussian_delta` at epsilon is at most ``delta``. For an infinite epsilon mu is infinite. ``delta`` is in (0, 1).

    Example:
        >>> f"{gaussian_mu(epsilon=1.0, delta=1e-3):.6f}"
        '0.388401'
    """
    epsilon, delta = from_0("epsilon", epsilon), probability(delta, above_0=True)
    if epsilon == math.inf:
        return math.inf
    return (1.0 - MARGIN) * _turn(lambda mu: gaussian_delta(mu, epsilon) <= delta)[0]


def zcdp_delta(rho: float, epsilon: float) -> float:
    r"""Return a delta that holds for all rho-zCDP mechanisms, at an epsilon.

    It is :math:`\min_{\alpha>1} e^{(\alpha-1)(\alpha\rho-\varepsilon)}(1-1/\alpha)^{\alpha-1}/\alpha`, and at most 1
    (Canonne, Kamath and Steinke 2020, Corollary 13). ``rho`` and ``epsilon`` are at least 0, or infinity.

    Example:
        >>> f"{zcdp_delta(rho=0.5, epsilon=4.0):.6f}"
        '0.000196'
    """
    rho, epsilon = from_0("rho", rho), from_0("epsilon", epsilon)
    if rho == 0.0 or epsilon == math.inf:
        return 0.0
    if rho - epsilon > 700.0:  # there the minimum is 1, to the last digit
        return 1.0
    # x = alpha - 1. Any x gives a delta that holds. The derivative of the logarithm rises, so its root is the minimum.
    x = _turn(lambda x: rho * (1.0 + 2.0 * x) - math.log1p(1.0 / x) <= epsilon)[0]
    return math.exp(min(0.0, x * ((1.0 + x) * rho - epsilon - math.log1p(1.0 / x)) - math.log1p(x)))


def zcdp_epsilon(rho: float, delta: float) -> float:
    r"""Return an epsilon at which rho-zCDP implies (epsilon, delta)-privacy.

    It is :math:`\min_{\alpha>1} \alpha\rho + \log(1-1/\alpha) - \log(\delta\alpha)/(\alpha-1)`,
    or 0 if that is negative. :func:`zcdp_delta` is the inverse. At delta = 0 it is infinite, unless rho is 0. ``rho`` is at
    least 0, and ``delta`` in [0, 1).

    Example:
        >>> f"{zcdp_epsilon(rho=0.1, delta=1e-6):.6f}"
        '2.141939'
    """
    rho, delta = from_0("rho", rho), probability(delta)
    if rho == 0.0:
        return 0.0
    if delta == 0.0 or rho == math.inf:
        return math.inf
    log_delta = math.log(delta)
    # x = alpha - 1. Any x gives an epsilon that holds. The minimum is where rho x^2 + log(alpha) = log(1 / delta).
    x = _turn(lambda x: rho * x * x + math.log1p(x) <= -log_delta)[0]
    return max(0.0, (1.0 + x) * rho - math.log1p(1.0 / x) - (log_delta + math.log1p(x)) / x)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the rho whose :func:`zcdp_epsilon` is epsilon, minus one part in 10^9.

    It is the largest such rho. ``delta`` is in (0, 1).

    Example:
        >>> f"{zcdp_rho(epsilon=1.0, delta=1e-3):.6f}"
        '0.059390'
    """
    epsilon, delta = from_0("epsilon", epsilon), probability(delta, above_0=True)
    if epsilon == math.inf:
        return math.inf
    return (1.0 - MARGIN) * _turn(lambda rho: zcdp_epsilon(rho, delta) <= epsilon)[0]


def _turn(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Bisect to two numbers equal to 13 digits: ``holds`` is True at the first only."""
    low = high = 1.0
    while not holds(low):
        low, high = low / 16.0, low
    while holds(high):
        low, high = high, 16.0 * high
    for _ in range(45):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def from_0(name: str, value: Any) -> float:
    """Return ``value`` as a float of at least 0, possibly infinite, or raise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected at most 1.8e308, or infinity, got an integer beyond it") from None
    if not number >= 0.0:
        raise ValueError(f"{name}: expected a number of at least 0, got {value}")
    return number


def probability(value: Any, *, above_0: bool = False) -> float:
    """Return ``value`` as a delta in [0, 1), or in (0, 1), or raise."""
    delta = from_0("delta", value)
    if delta >= 1.0 or (above_0 and delta == 0.0):
        raise ValueError(f"delta: expected a number in {'(' if above_0 else '['}0, 1), got {value}")
    return delta
