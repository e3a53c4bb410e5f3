"""The multiplier of the constraint that keeps a minimum in a ball."""

from collections.abc import Callable

from scipy.optimize import brentq


def multiplier(length: Callable[[float], float], radius: float, low: float, high: float) -> float:
    """Where a length that falls as the multiplier grows is the radius, by Brent's method.

    A point may be outside of its ball by rounding alone. Whether its length, computed otherwise, is above the radius too is up
    to the last digit: then the multiplier is the end of the range.
    """
    for end, sign in ((low, 1.0), (high, -1.0)):
        excess = sign * (length(end) - radius)
        if excess <= 0.0:
            if excess < -1e-9 * radius:
                raise ValueError(f"expected a length of {radius} between {low} and {high}, got {length(end)} at {end}")
            return end
    return brentq(lambda mu: length(mu) - radius, low, high, xtol=1e-300, rtol=1e-15)
