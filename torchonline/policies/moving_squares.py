"""Squares x'Mx of many rows, updated when M changes along a few vectors."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from torchonline.core.backend import in_python, is_readable, may_hold, on_arrays
from torchonline.core.ops import along, dot, matvec, norms, or_one, roundoff, row_dots, rows_times, sqrt
from torchonline.core.precision_matrix import REFINE_EVERY


def orthonormal(vectors: list[Tensor]) -> list[Tensor]:
    """Return an orthonormal basis of the vectors, ``(*B, d)`` each.

    The method is Gram-Schmidt. A vector that depends on the ones before it adds a vector of another direction, or 0.
    """
    basis: list[Tensor] = []
    for vector in vectors:
        for _ in range(2):  # twice is enough for any vectors
            for q in basis:
                vector = vector - along(dot(q, vector), vector) * q
        basis.append(vector / along(or_one(sqrt(dot(vector, vector))), vector))
    return basis


def moved(
    squares: Tensor,
    image: Tensor,
    rows: Tensor,
    probe: Tensor,
    matrix: Tensor,
    basis: list[Tensor],
    before: list[Tensor],
) -> tuple[Tensor, Tensor]:
    r"""Return the squares and Mz after M has changed by :math:`QCQ^\top`.

    :math:`C = Q^\top(M - M_\text{old})Q`, for an orthonormal Q.

    Args:
        squares: the rows' squares under the old M, ``(*B, K)``.
        image: the old Mz, ``(*B, d)``.
        rows: ``(K, d)`` or ``(*B, K, d)``.
        probe: z, ``(d)``.
        matrix: the new M, ``(*B, d, d)``.
        basis: the columns of Q, ``(*B, d)`` each.
        before: the columns of the old MQ.
    """
    products = [matvec(rows, q) for q in basis]
    for i in range(len(basis)):
        change = matvec(matrix, basis[i]) - before[i]
        # Column i of C, times Q, and times the rows' products with Q.
        first = dot(basis[0], change)
        move, at_rows = along(first, change) * basis[0], along(first, products[0]) * products[0]
        for j in range(1, len(basis)):
            entry = dot(basis[j], change)
            move = move + along(entry, move) * basis[j]
            at_rows = at_rows + along(entry, at_rows) * products[j]
        squares = squares + products[i] * at_rows
        image = image + along(dot(basis[i], probe), move) * move
    return squares, image


def exact_squares(arms: Tensor, matrix: Tensor) -> Tensor:
    """Compute ``x'Mx`` of all rows from scratch: ``(*B, K)``.

    Rows are ``(K, d)`` or ``(*B, K, d)``; M is ``(*B, d, d)``.
    """
    return row_dots(rows_times(arms, matrix), arms)


@on_arrays(lambda arms, index: arms[index] if arms.ndim == 2 else np.take_along_axis(arms, index[..., None], -2))
def rows_of(arms: Tensor, index: Tensor) -> Tensor:
    """Return rows of ``(K, d)`` or ``(*B, K, d)``: ``(*B, n)`` to ``(*B, n, d)``."""
    if arms.dim() == 2:
        return arms.index_select(0, index.reshape(-1)).reshape(index.shape + (arms.size(-1),))
    return arms.gather(-2, index.unsqueeze(-1).expand(index.shape + (arms.size(-1),)))


def _with_some_exact_arrays(squares: Any, arms: Any, matrix: Any, rounds: Any, every: int) -> Any:
    count = -(-arms.shape[-2] // arms.shape[-1])
    index = (np.asarray(rounds)[..., None] // every * count + np.arange(count)) % arms.shape[-2]
    np.put_along_axis(squares, index, exact_squares(rows_of(arms, index), matrix), -1)
    return squares


@on_arrays(_with_some_exact_arrays)
def with_some_exact(squares: Tensor, arms: Tensor, matrix: Tensor, rounds: Tensor, every: int = REFINE_EVERY) -> Tensor:
    """Return the squares, recomputed for the next K / d arms."""
    count = (arms.size(-2) + arms.size(-1) - 1) // arms.size(-1)
    first = (rounds // every * count).unsqueeze(-1)
    index = (first + torch.arange(count, device=rounds.device)) % arms.size(-2)
    return squares.scatter(-1, index, exact_squares(rows_of(arms, index), matrix))


def are_off(seen: Tensor, expected: Tensor) -> Tensor:
    """Return whether images Mz differ by more than rounding, ``(*B)``; True for NaN."""
    limit = 64.0 * math.sqrt(seen.shape[-1]) * roundoff(seen)
    is_near = norms(seen - expected, math.inf) <= limit * norms(seen, math.inf)
    return ~is_near[..., 0]


def _squares_or_exact_in_python(is_off: Any, squares: Any, arms: Any, matrix: Any, may_wait: bool) -> Any:
    if is_compiling():
        return torch.cond(is_off.any(), _exact, lambda s, x, m: s.clone(), (squares, arms, matrix))
    is_known = may_wait and isinstance(is_off, Tensor) and is_readable(is_off)
    if bool(is_off.any()) if is_known else may_hold(is_off):
        return exact_squares(arms, matrix)
    return squares


@in_python(_squares_or_exact_in_python)
def squares_or_exact(is_off: Tensor, squares: Tensor, arms: Tensor, matrix: Tensor, may_wait: bool) -> Tensor:
    """Return the squares, or exact ones if any learner's, ``(*B)``, may be off.

    The host waits for an accelerator only with ``may_wait``. Without it, the squares on an accelerator are always exact.
    """
    if bool(is_off.any()):
        return exact_squares(arms, matrix)
    return squares


def _exact(squares: Tensor, arms: Tensor, matrix: Tensor) -> Tensor:
    return exact_squares(arms, matrix)
