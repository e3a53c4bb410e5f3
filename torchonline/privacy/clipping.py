"""Clipping of contributions to a ball, for any record."""

import math

import torch
from torch import Tensor

from torchonline.core.backend import on_arrays
from torchonline.core.ops import fill_, minimum, norms

# Noise is calibrated to a bound larger by this fraction, which far exceeds the rounding of a clipped norm in float64.
MARGIN = 1e-6
# The sum over a round's rewards is clipped to the length of this many contributions, so that its rounding error is small.
REWARDS_A_ROUND = 256


def sum_rounding(count: int) -> float:
    """Return how much rounding may add to the distance of two sums.

    Each sum has ``count`` terms of length 1. Its rounding error is at most 2^-54 count^2, in any order of summation.
    """
    return 2.0**-52 * count**2


def _clipped(contribution: Tensor, bound: float, order: float) -> Tensor:
    largest = norms(contribution, math.inf)
    unit = contribution / largest
    length = norms(unit, order)
    result = unit * minimum(largest, bound / length)
    fill_(result, length != length, 0.0)  # NaN, as it is if the largest entry is 0, infinite or NaN
    return result


@on_arrays(_clipped)
def clipped(contribution: Tensor, bound: float, order: float = 2.0) -> Tensor:
    r"""Scale contributions to a norm of at most ``bound``.

    The map is :math:`g \mapsto g\,\min\{1, C/\|g\|_a\}` over the last dimension. A contribution with a NaN or infinite entry
    becomes 0 as a whole, because an error or a skipped record would reveal it. Entries are divided by the largest before the norm
    is taken. Without this, powers of small entries would underflow, and vectors longer than the bound would pass. The result's
    norm exceeds C by rounding only, about 1e-16 sqrt(d) C, which ``MARGIN`` covers. Cost: O(d), without branches on values.

    Args:
        contribution: g, shape ``(..., d)``, floating point.
        bound: C > 0, or infinity.
        order: a of the norm, from 1 to infinity.

    Returns:
        ``(..., d)``, float64, a new tensor (for a float64 NumPy array, a new array).

    Example:
        >>> clipped(torch.tensor([[3.0, 4.0], [1.0, torch.nan]]), 1.0)
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]], dtype=torch.float64)
    """
    return _clipped(contribution.to(torch.float64), bound, order)
