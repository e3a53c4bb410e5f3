"""Euclidean projections onto balls."""

import math
from typing import Any

import torch
from torch import Tensor

from torchonline.convex.domains import norm_order


def projectable(name: str, value: Any) -> float:
    """Return the order of a ball with a simple Euclidean projection, or raise."""
    order = norm_order(name, value)
    if order not in (1.0, 2.0, math.inf):
        raise ValueError(f"{name}: expected 1, 2 or infinity, for a simple Euclidean projection, got {value}")
    return order


def euclidean_radius(dim: int, order: float, radius: float) -> float:
    """Return the largest Euclidean norm in a ball of order 1, 2 or infinity."""
    return radius * math.sqrt(dim) if order == math.inf else radius


def projected(point: Tensor, order: float, radius: float) -> Tensor:
    r"""Project points ``(*, d)`` onto the ball :math:`\|v\|_p \le R`.

    The projection is Euclidean (Duchi et al., ICML 2008). For p = 2, infinity and 1 in this order,

    .. math:: x\,\min\{1, R/\|x\|_2\}, \qquad \max\{-R, \min\{x, R\}\}, \qquad \mathrm{sign}(x)\,(|x| - \tau)_+,

    with :math:`\tau = \max\{0, \max_k (|x|_{(1)} + ... + |x|_{(k)} - R)/k\}` over the largest entries.
    Cost: O(d), and O(d log d) for p = 1.

    Example:
        >>> projected(torch.tensor([3.0, -1.0, 0.5]), 1.0, 3.0)
        tensor([ 2.5000, -0.5000,  0.0000])
    """
    if order == 2.0:
        length = torch.linalg.vector_norm(point, dim=-1, keepdim=True)
        return point * (radius / length).clamp(max=1.0)
    if order == math.inf:
        return point.clamp(-radius, radius)
    size = point.abs()
    largest = size.sort(-1, descending=True).values.cumsum(-1)
    count = torch.arange(1, size.shape[-1] + 1, dtype=size.dtype, device=size.device)
    threshold = ((largest - radius) / count).amax(-1, keepdim=True).clamp(min=0.0)
    return point.sign() * (size - threshold).clamp(min=0.0)
