"""Sensitivity that is enforced: whatever a record holds, its contribution is a vector of a ball."""

import math

import torch
from torch import Tensor

from torchonline.core.backend import on_arrays
from torchonline.core.ops import fill_, minimum, norms

# Noise is calibrated to a bound that is larger by this: far more than rounding, in float64, lets a clipped norm exceed it.
MARGIN = 1e-6


def _clipped(contribution: Tensor, bound: float, order: float) -> Tensor:
    largest = norms(contribution, math.inf)
    unit = contribution / largest
    length = norms(unit, order)
    result = unit * minimum(largest, bound / length)
    fill_(result, length != length, 0.0)  # NaN, as it is if the largest entry is 0, infinite or NaN
    return result


@on_arrays(_clipped)
def clipped(contribution: Tensor, bound: float, order: float = 2.0) -> Tensor:
    r"""A contribution, scaled to a norm of at most ``bound``; 0 where an entry is NaN or infinite.

    .. math:: g \mapsto g\,\min\{1, C/\|g\|_a\}

    over the last dimension. A contribution with an entry that is no number becomes 0 as a whole: to raise, or to leave
    the record out, would tell of it. The entries are scaled by the largest before the norm is taken, without which
    powers of small ones underflow, and vectors longer than the bound pass: float32 entries of 1e-4 in the norm of order 12.

    Cost: O(d), and no branch on a value.

    Args:
        contribution: g, shape ``(..., d)``, floating point.
        bound: C > 0, or infinity.
        order: a of the norm, from 1 to infinity.

    Returns:
        ``(..., d)``, float64, a new tensor (a NumPy array, which is float64, gives another); of norm at most C but for
        rounding, some 1e-16 sqrt(d) of it, which :data:`MARGIN` covers.

    Example:
        >>> clipped(torch.tensor([[3.0, 4.0], [0.3, 0.4], [1.0, torch.nan]]), 1.0)
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000],
                [0.0000, 0.0000]], dtype=torch.float64)
    """
    return _clipped(contribution.to(torch.float64), bound, order)
