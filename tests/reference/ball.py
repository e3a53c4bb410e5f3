"""The Lagrange multiplier of a ball constraint."""

from collections.abc import Callable

from scipy.optimize import brentq


def multiplier(length: Callable[[float], float], radius: float, low: float, high: float) -> float:
    """Return the multiplier between ``low`` and ``high`` at which a decreasing length equals the radius.

    A point may lie outside its ball by rounding alone. Its length, computed in another order, may then not exceed the radius,
    and the excess does not change sign between the ends. In that case return the end.
    """
    for end, sign in ((low, 1.0), (high, -1.0)):
        excess = sign * (length(end) - radius)
        if excess <= 0.0:
            if excess < -1e-9 * radius:
                raise ValueError(f"expected a length of {radius} between {low} and {high}, got {length(end)} at {end}")
            return end
    return brentq(lambda mu: length(mu) - radius, low, high, xtol=1e-300, rtol=1e-15)
