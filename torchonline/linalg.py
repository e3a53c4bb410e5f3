"""Linear algebra of one-pass learners: solvers, projections, prox of the entropy.

All functions take ``*B`` independent problems at once, on tensors or NumPy views. A trailing underscore means that the first
argument is written in place.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from torchonline.core.backend import in_python, may_hold, on_arrays
from torchonline.core.ops import (
    along,
    at_least,
    at_most,
    column,
    dot,
    exp,
    largest,
    log,
    matvec,
    minimum,
    nonzero,
    norms,
    number,
    or_one,
    roundoff,
    row_dots,
    smallest,
    sqrt,
    trace,
    where,
)


@on_arrays(lambda index, like: (np.arange(like.shape[-1]) == index[..., None]).astype(like.dtype))
def coordinate_vector(index: Tensor, like: Tensor) -> Tensor:
    """Return coordinate vectors in the type of ``like``: ``(*B)`` to ``(*B, d)``."""
    return (torch.arange(like.size(-1), device=like.device) == index.unsqueeze(-1)).to(like.dtype)


@on_arrays(lambda matrix: matrix.reshape(*matrix.shape[:-2], -1)[..., :: matrix.shape[-1] + 1])
def diagonal(matrix: Tensor) -> Tensor:
    """Return a view of the diagonals, ``(*B, d)``."""
    return matrix.diagonal(dim1=-2, dim2=-1)


def _add_diagonal_to_array(matrix: Any, scalar: Any) -> Any:
    result = matrix.copy()
    entries = result.reshape(-1)[:: len(matrix) + 1] if matrix.ndim == 2 else diagonal(result)
    entries += along(number(scalar), entries)
    return result


@on_arrays(_add_diagonal_to_array)
def add_diagonal(matrix: Tensor, scalar: Tensor) -> Tensor:
    """Return ``matrix + scalar I``, a new matrix: ``(*B, d, d)`` and ``(*B)``."""
    return matrix + torch.diag_embed(scalar.unsqueeze(-1).expand(matrix.shape[:-1]))


@on_arrays(lambda matrix: np.linalg.slogdet(matrix)[1])
def logdet(matrix: Tensor) -> Tensor:
    """Return ``log det`` of positive definite ``(*B, d, d)``, ``(*B)``, at O(d^3)."""
    return torch.linalg.slogdet(matrix)[1]


@on_arrays(
    lambda matrix, x: np.linalg.solve(matrix, x) if x.ndim == 1 else np.linalg.solve(matrix, x[..., None])[..., 0]
)
def solve(matrix: Tensor, x: Tensor) -> Tensor:
    """Return ``matrix^-1 x`` at O(d^3): ``(*B, d, d)``, ``(*B, d)`` to ``(*B, d)``."""
    return torch.linalg.solve_ex(matrix, x.unsqueeze(-1))[0].squeeze(-1)  # without a check, for which a host waits


@on_arrays(lambda matrix: tuple(np.linalg.eigh(matrix)))
def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return ascending eigenvalues, and eigenvectors in columns, at O(d^3).

    Symmetric ``(*B, d, d)`` to ``(*B, d)`` and ``(*B, d, d)``.
    """
    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors


def _invert_arrays_where_(inverse: Any, matrix: Any, due: Any) -> None:
    rows = due.nonzero() if matrix.ndim > 2 else ()
    inverse[rows] = np.linalg.inv(matrix[rows])


@on_arrays(_invert_arrays_where_)
def _invert_where_in_python_(inverse: Tensor, matrix: Tensor, due: Tensor) -> None:
    if is_compiling():
        inverse.copy_(torch.cond(due.any(), _inverted_where, lambda i, m, d: i.clone(), (inverse, matrix, due)))
    else:
        inverse.copy_(_inverted_where(inverse, matrix, due))


@in_python(_invert_where_in_python_)
def invert_where_(inverse: Tensor, matrix: Tensor, due: Tensor) -> None:
    """Invert symmetric ``(*B, d, d)`` where ``due``, ``(*B)``; O(d^3) if any is due."""
    inverse.copy_(_inverted_where(inverse, matrix, due))


def _inverted_where(inverse: Tensor, matrix: Tensor, due: Tensor) -> Tensor:
    # LAPACK returns columns first; both branches of a program need the same layout.
    return torch.where(due.unsqueeze(-1).unsqueeze(-1), torch.linalg.inv(matrix), inverse).contiguous()


def entropy_prox(log_weights: Tensor, cost: Tensor, rates: Tensor) -> Tensor:
    r"""Return the log-weights :math:`\ln w` of the entropy's prox over the simplex.

    With :math:`\varphi(w) = \sum_j w_j\ln w_j/\beta_j`, :math:`w = \arg\min_w \langle w, c\rangle + D_\varphi(w, w')` is
    :math:`w_j = w'_j e^{\beta_j(\nu - c_j)}`, where :math:`\nu` makes the sum 1: the root of an increasing convex function.
    Newton's method converges to it from the right, in at most about 15 steps.

    Args:
        log_weights: :math:`\ln w'`, which sum to 1, ``(*B, N)``, as the result; minus infinity where a weight is 0.
        cost: c, ``(*B, N)``, finite.
        rates: :math:`\beta > 0`, ``(N)`` or ``(*B, N)``.
    """
    highest = column(largest(where(log_weights > -math.inf, cost, log_weights)))
    pull = exp(log_weights) * rates
    level = column((pull * cost).sum(-1) / pull.sum(-1))  # the root, if all changes are small
    logs, excess = log_weights, level
    for _ in range(24):
        logs = log_weights + rates * (level - cost)
        top = column(largest(logs))
        weights = exp(logs - top)
        total = column(weights.sum(-1))
        excess = top + log(total)
        if not may_hold(abs(excess) > 16.0 * roundoff(cost)):
            break
        # A step from the left of the root may overshoot; a step from the right cannot.
        level = minimum(level - excess * total / column((weights * rates).sum(-1)), highest)
    return logs - excess


def with_length_at_most(x: Tensor, length: Tensor, bound: float) -> Tensor:
    """Scale vectors of given lengths, ``(*B)``, down to length at most ``bound``."""
    return x * along(bound / at_least(length, bound), x)


def in_ball(point: Tensor, bound: float) -> Tensor:
    """Project onto a Euclidean ball: ``(*B, d)`` to ``(*B, d)``."""
    return with_length_at_most(point, sqrt(dot(point, point)), bound)


def no_longer(x: Tensor, bound: Tensor) -> Tensor:
    """Scale vectors longer than their learner's bound, ``(*B)``, down to the bound."""
    square = dot(x, x)
    if not may_hold(square > bound * bound):  # the cost is one inner product
        return x
    return x * along(at_most(bound / nonzero(sqrt(square)), 1.0), x)


def ball_factors(point: Tensor, weights: Tensor, bound: float) -> Tensor:
    r"""Return the factors ``u / p`` of a weighted projection onto a ball, ``(*B, d)``.

    With :math:`u = \arg\min_{\|u\| \le S} \sum_i w_i(u_i - p_i)^2` for p = ``point``, ``(*B, d)``, and S = ``bound``, the
    factors are :math:`w_i/(w_i + \mu)` with the multiplier :math:`\mu` at which :math:`\|u\| = S`. Newton's method on
    :math:`1/\|u(\mu)\| - 1/S`, which is increasing and concave in :math:`\mu`, converges to the root from the left, in fewer
    than sixteen steps for all weights that we have tried. Weights are at least 0, ``(*B, d)``; a weight below the roundoff
    times the largest weight is raised to it. For a point in the ball the factors are 1, up to rounding. Cost: O(d), about a
    hundred operations.
    """
    top = column(largest(weights))
    weights = at_least(weights / or_one(top), roundoff(weights))
    mu = column(smallest(weights)) * at_least(norms(point, 2.0) / bound - 1.0, 0.0)
    for _ in range(16):
        solution = weights / (weights + mu) * point
        norm = norms(solution, 2.0)
        slope = column(row_dots(solution, solution / (weights + mu)))
        rise = at_least((norm / bound - 1.0) * norm * norm / or_one(slope), 0.0)
        mu = mu + rise
        if not may_hold(rise > 4.0 * roundoff(weights) * mu):
            break
    factors = weights / (weights + mu)
    return factors * (bound / at_least(norms(factors * point, 2.0), bound))


def project_ball_weighted(point: Tensor, weights: Tensor, bound: float) -> Tensor:
    """Project onto a ball by :func:`ball_factors`. A point inside is unchanged."""
    return where(norms(point, 2.0) > bound, ball_factors(point, weights, bound) * point, point)


def project_ball(point: Tensor, matrix: Tensor, bound: float) -> Tensor:
    r"""Project onto a ball: :math:`u = \arg\min_{\|u\| \le S} \|u - p\|_V`.

    A point inside is unchanged. Outside, :math:`u(\mu) = (V + \mu I)^{-1}Vp` with the multiplier :math:`\mu` at which
    :math:`\|u\| = S`. It is the root of :math:`1/\|u(\mu)\| - 1/S`, which is increasing and concave. So Newton's method
    converges from the left: in three steps for most matrices. It takes at most sixteen. Cost: O(d^3), two linear systems a
    step. Points are ``(*B, d)``; matrices are symmetric positive definite, or singular up to rounding, ``(*B, d, d)``.
    """
    # In units of the trace, no square overflows. The least multiplier makes a singular matrix regular.
    unit = matrix / along(or_one(trace(matrix)), matrix)
    target = matvec(unit, point)
    mu = at_least(sqrt(dot(target, target)) / bound - 1.0, roundoff(point))
    for _ in range(16):
        shifted = add_diagonal(unit, mu)
        u = solve(shifted, target)
        square = dot(u, u)
        rise = at_least((sqrt(square) / bound - 1.0) * square / or_one(dot(u, solve(shifted, u))), 0.0)
        mu = mu + rise
        # The next rise would be of the order of the square of this one.
        if not may_hold(rise > roundoff(point) ** 0.5 * mu):
            break
    u = solve(add_diagonal(unit, mu), target)
    return where(norms(point, 2.0) > bound, with_length_at_most(u, sqrt(dot(u, u)), bound), point)


def plus_outer(matrix: Tensor, a: Tensor | None) -> Tensor:
    """Return ``matrix + aa'``, ``(*B, d, d)``; ``matrix`` itself if ``a`` is None."""
    return matrix if a is None else matrix + a[..., :, None] * a[..., None, :]


def _project_arrays_(point: Any, matrix: Any, bound: float, may_wait: bool, a: Any = None) -> None:
    if point.ndim > 1:
        point, matrix = point.reshape(-1, point.shape[-1]), matrix.reshape(-1, *matrix.shape[-2:])  # views
        outside = np.vecdot(point, point) > bound * bound
        if outside.any():
            added = None if a is None else a.reshape(point.shape)[outside]
            point[outside] = project_ball(point[outside], plus_outer(matrix[outside], added), bound)
    elif point.dot(point) > bound * bound:
        point[...] = project_ball(point, plus_outer(matrix, a), bound)


@on_arrays(_project_arrays_)
def _project_ball_in_python_(
    point: Tensor, matrix: Tensor, bound: float, may_wait: bool, a: Tensor | None = None
) -> None:
    if is_compiling():
        outside = (torch.linalg.vector_norm(point, dim=-1) > bound).any()

        def project(p: Tensor, m: Tensor, a: Tensor) -> Tensor:
            return project_ball(p, plus_outer(m, a), bound)

        added = torch.zeros_like(point) if a is None else a
        point.copy_(torch.cond(outside, project, lambda p, m, a: p.clone(), (point, matrix, added)))
    elif may_wait or point.is_cpu:
        _project_outside_(point, matrix, bound, a)
    else:
        point.copy_(project_ball(point, plus_outer(matrix, a), bound))


@in_python(_project_ball_in_python_)
def project_ball_(point: Tensor, matrix: Tensor, bound: float, may_wait: bool, a: Tensor | None = None) -> None:
    """Write :func:`project_ball` over ``point``, in the norm of V or ``V + aa'``.

    Cost: O(d) where the host knows that every point is inside: on the CPU, in TorchScript and, by :func:`torch.cond`, in an
    exported program. On an accelerator the host would have to wait. With ``may_wait=False`` it does not wait, and every round
    projects.
    """
    _project_outside_(point, matrix, bound, a)


def _project_outside_(point: Tensor, matrix: Tensor, bound: float, a: Tensor | None) -> None:
    rows, matrices = point.view(-1, point.size(-1)), matrix.view(-1, point.size(-1), point.size(-1))
    outside = torch.linalg.vector_norm(rows, dim=-1) > bound
    if bool(outside.any()):
        added = None if a is None else a.view(-1, point.size(-1))[outside]
        rows[outside] = project_ball(rows[outside], plus_outer(matrices[outside], added), bound)
