"""Ties among the best arms: how they are found, and which arm of them is chosen."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import in_python, is_readable, may_hold
from torchonline.core.compiled import best_of
from torchonline.core.ops import column, largest, minimum, roundoff

# Large inputs are hashed in parts of so many entries, 2 MiB.
MOST_AT_ONCE = 1 << 18


def best_of_arrays(scores: Any) -> Any:
    """Return the index of the largest score of each row; None if arms tie in a row."""
    if scores.ndim > 1:
        best = scores.argmax(-1)
        return None if np.count_nonzero(are_best(scores)) > best.size else best
    if (index := best_of(scores)) >= 0:
        return np.array(index)
    best = scores.argmax(keepdims=True)  # an array, which becomes a tensor
    has_tie = np.count_nonzero(scores >= least_of_best(scores.item(best.item()), scores)) > 1
    return None if has_tie else best[0, ...]


def has_tie(scores: Tensor) -> bool:
    """Return whether several arms tie in a decision; True if the host cannot tell."""
    return may_hold(are_best(scores).sum(-1) > 1)


def are_best(scores: Tensor) -> Tensor:
    """Return which arms have the largest score, up to rounding: ``(..., K)`` twice."""
    return scores >= least_of_best(column(largest(scores)), scores)


def least_of_best(best: Tensor, scores: Tensor) -> Tensor:
    """Return the least score that ties with the best score."""
    rounding = 8.0 * roundoff(scores)
    # Products, because the difference of infinities is NaN.
    return minimum(best * (1.0 - rounding), best * (1.0 + rounding))


def shares_of_best(scores: Tensor) -> Tensor:
    """Return equal shares of the best arms, and 0 for the others: ``(..., K)``."""
    best = are_best(scores).to(scores.dtype)
    return best / best.sum(-1, keepdim=True)


def untied(scores: Tensor, inputs: Tensor) -> Tensor:
    """Return scores in which one of the best arms of each decision is left.

    The arm is drawn by a hash of the inputs and the arm. So equal inputs have the same arm, other inputs usually another one, and
    no state changes. ``scores`` are ``(*B, ..., K)``. The first dimensions of ``inputs`` are those of the decisions.
    """
    if not has_tie(scores):
        return scores
    best, lead = are_best(scores), scores.dim() - 1
    x = inputs.detach().to(torch.float64).flatten(lead) if inputs.dim() > lead else torch.zeros(1).to(scores)
    arms = torch.arange(scores.size(-1), device=scores.device)
    rank = mixed(hashes(x, 0) + arms)
    # Half of a rank is above the least number, which the other arms have.
    rank = torch.where(best, rank >> 1, torch.full_like(rank, -0x4000000000000001))
    is_left = torch.zeros_like(best).scatter_(-1, rank.argmax(-1, keepdim=True), True)
    return scores.masked_fill(best & ~is_left, -math.inf)


def _hashes_in_python(x: Tensor, first: int) -> Tensor:
    if not is_readable(x) or x.numel() <= MOST_AT_ONCE:
        return _hashes_at_once(x, first)
    if x.size(-1) > MOST_AT_ONCE:
        parts = x.split(MOST_AT_ONCE, -1)
        sums = [_hashes_in_python(part, first + i * MOST_AT_ONCE) for i, part in enumerate(parts)]
        return torch.stack(sums).sum(0)
    rows = x.flatten(0, -2).split(MOST_AT_ONCE // x.size(-1))
    return torch.cat([_hashes_at_once(part, first) for part in rows]).unflatten(0, x.shape[:-1])


@in_python(_hashes_in_python)
def hashes(x: Tensor, first: int) -> Tensor:
    """Return a hash of each row of float64 numbers: ``(..., n)`` to ``(..., 1)``.

    The entries are those from the place ``first`` on: hashes of parts of a row add up.
    """
    return _hashes_at_once(x, first)


def _hashes_at_once(x: Tensor, first: int) -> Tensor:
    # TorchScript cannot view the bits of an entry, and programs not its power of two. The digits of x + sqrt(2) tell 1 from 2.
    digits = digits_of(x) + digits_of(x + 1.4142135623730951) * (x != 0.0)
    # Odd numbers, one for each entry. They do not overflow, which compilers of programs refuse in an index.
    factors = 0x9E3779B1 * (2 * torch.arange(x.size(-1), device=x.device) + (2 * first + 1))
    # Zeros add nothing: programs append an arm of zeros.
    return (mixed(digits + factors) * (digits != 0)).sum(-1, keepdim=True)


def digits_of(x: Tensor) -> Tensor:
    """Return the binary digits of float64 numbers, without their powers of two."""
    return (9007199254740992.0 * torch.frexp(x)[0]).to(torch.int64)


def mixed(bits: Tensor) -> Tensor:
    """Return integers each of whose bits depends on all bits of the given ones.

    The generator SplitMix64 of Steele, Lea and Flood (OOPSLA 2014), with shifts that keep the sign.
    """
    bits = bits * -7046029254386353131 + 1
    bits = (bits ^ (bits >> 30)) * -4658895280553007687
    bits = (bits ^ (bits >> 27)) * -7723592293110705685
    return bits ^ (bits >> 31)
