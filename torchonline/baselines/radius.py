"""The radius that most of the papers here have: a power of the number of rounds."""

from torch import Tensor


def growing_radius(count: Tensor, slope: float, power: float, start: float) -> Tensor:
    """``slope * t^power + start`` after t rounds, and ``start`` before the first."""
    positive = count / count.clip(min=1.0)
    return slope * positive * count**power + start
