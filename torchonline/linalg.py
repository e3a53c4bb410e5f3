"""The linear algebra of one-pass learners: rank-one updates of a matrix and of its inverse, and projections.

All functions take ``*B`` independent problems at once, cost O(d^2) unless they say otherwise, and run on tensors and on
NumPy views alike (see :mod:`torchonline.core.ops`). A trailing underscore means that the first argument is written in
place.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.jit import is_scripting

from torchonline.core.ops import (
    ARRAYS,
    along,
    at_least,
    at_most,
    column,
    dot,
    exp,
    fill_,
    largest,
    log,
    matvec,
    may_hold,
    minimum,
    nonzero,
    norms,
    number,
    or_one,
    roundoff,
    row_dots,
    smallest,
    sqrt,
    where,
)

# From this many entries on, torch's rank-one updates, which need no temporary, make up for their larger call overhead.
WIDE = 1 << 12


def outer(u: Any, v: Any) -> Any:
    """``u v'`` on NumPy arrays: ``(*B, d)`` twice to ``(*B, d, d)``."""
    return u[..., None] * (v if v.ndim == 1 else v[..., None, :])


def add_outer_(matrix: Tensor, u: Tensor, v: Tensor) -> None:
    """``matrix += u v'``."""
    if not is_scripting():
        if isinstance(u, ARRAYS):
            if matrix.size < WIDE:
                matrix += outer(u, v)
                return
            matrix, u, v = torch.from_numpy(matrix), torch.from_numpy(u), torch.from_numpy(v)
    matrix.addcmul_(u.unsqueeze(-1), v.unsqueeze(-2))


def coordinate_vector(index: Tensor, like: Tensor) -> Tensor:
    """The coordinate vectors :math:`e_j` of indices ``(*B)``, as ``(*B, d)`` of the type of ``like``."""
    if not is_scripting():
        if isinstance(like, ARRAYS):
            return (np.arange(like.shape[-1]) == index[..., None]).astype(like.dtype)
    return (torch.arange(like.size(-1), device=like.device) == index.unsqueeze(-1)).to(like.dtype)


def diagonal(matrix: Tensor) -> Tensor:
    """A view of the diagonals, ``(*B, d)``."""
    if not is_scripting():
        if isinstance(matrix, ARRAYS):
            return matrix.reshape(*matrix.shape[:-2], -1)[..., :: matrix.shape[-1] + 1]
    return matrix.diagonal(dim1=-2, dim2=-1)


def add_diagonal(matrix: Tensor, scalar: Tensor) -> Tensor:
    """``matrix + scalar I``, a new matrix: ``(*B, d, d)`` and ``(*B)``."""
    if not is_scripting():
        if isinstance(matrix, ARRAYS):
            result = matrix.copy()
            entries = diagonal(result)
            entries += along(scalar, entries)
            return result
    return matrix + torch.diag_embed(scalar.unsqueeze(-1).expand(matrix.shape[:-1]))


def logdet(matrix: Tensor) -> Tensor:
    """The logarithm of the determinant of positive definite matrices, ``(*B, d, d)`` to ``(*B)``, at O(d^3)."""
    if not is_scripting():
        if isinstance(matrix, ARRAYS):
            return np.linalg.slogdet(matrix)[1]
    return torch.linalg.slogdet(matrix)[1]


def fill_identity_(matrix: Tensor, lost: Tensor | None, mask: Tensor, multiple: float) -> None:
    """Write ``multiple * I`` over the learners' matrices where ``mask``, ``(*B)``, is True, and 0 over what they lost."""
    fill_(matrix, mask[..., None, None], 0.0)
    if lost is not None:
        fill_(lost, mask[..., None, None], 0.0)
    fill_(diagonal(matrix), mask[..., None], multiple)


def subtract_outer_(matrix: Tensor, u: Tensor, v: Tensor) -> None:
    """``matrix -= u v'``."""
    if not is_scripting():
        if isinstance(u, ARRAYS):
            if matrix.size < WIDE:
                matrix -= outer(u, v)
                return
            matrix, u, v = torch.from_numpy(matrix), torch.from_numpy(u), torch.from_numpy(v)
    matrix.addcmul_(u.unsqueeze(-1), v.unsqueeze(-2), value=-1.0)


def subtract_outers_(matrix: Tensor, u: Tensor, v: Tensor) -> None:
    """``matrix -= u v' + v u'``."""
    if not is_scripting():
        if isinstance(u, ARRAYS):
            if matrix.size < WIDE:
                product = outer(u, v)
                matrix -= product + product.swapaxes(-1, -2)
                return
    subtract_outer_(matrix, u, v)
    subtract_outer_(matrix, v, u)


def add_outer_compensated_(matrix: Tensor, lost: Tensor, u: Tensor, v: Tensor) -> None:
    """``matrix += u v'`` by Kahan's summation: ``matrix - lost`` is the sum to twice the working precision."""
    if not is_scripting():
        if isinstance(u, ARRAYS):
            term = outer(u, v) - lost
            total = matrix + term
            lost[...] = (total - matrix) - term
            matrix[...] = total
            return
    term = u.unsqueeze(-1) * v.unsqueeze(-2) - lost
    total = matrix + term
    lost.copy_((total - matrix) - term)
    matrix.copy_(total)


def add_square_(matrix: Tensor, lost: Tensor | None, a: Tensor) -> None:
    """``matrix += a a'``, by Kahan's summation where there is room for what is lost."""
    if lost is not None:
        add_outer_compensated_(matrix, lost, a, a)
    else:
        add_outer_(matrix, a, a)


def grow_(matrix: Tensor, lost: Tensor | None, inverse: Tensor, a: Tensor, product: Tensor, quadratic: Tensor) -> None:
    r"""Add :math:`aa^\top` to a matrix V and follow with its inverse, by Sherman and Morrison, exactly symmetric.

    Args:
        matrix: V, shape ``(*B, d, d)``.
        lost: what rounding has cost V so far (Kahan's summation), or None to add plainly.
        inverse: :math:`V^{-1}`, shape ``(*B, d, d)``.
        a: shape ``(*B, d)``.
        product: :math:`V^{-1}a`, shape ``(*B, d)``.
        quadratic: :math:`a^\top V^{-1}a`, shape ``(*B)``.
    """
    add_square_(matrix, lost, a)
    u = product / along(sqrt(1.0 + quadratic), product)
    subtract_outer_(inverse, u, u)


def refine_inverse_(inverse: Tensor, matrix: Tensor, count: Tensor) -> None:
    r"""Correct one column of an inverse that has drifted; ``d`` calls in turn correct all of it.

    With :math:`W \approx V^{-1}`, column :math:`j =` ``count`` mod d and residual :math:`\delta = WVe_j - e_j`,

    .. math:: W \leftarrow W - \frac{e_j\delta^\top + \delta e_j^\top}{V_{jj}}
              + \frac{e_j^\top V\delta}{V_{jj}^2} e_je_j^\top ,

    after which :math:`WVe_j = e_j`. This is the BFGS update of quasi-Newton methods with the step :math:`e_j`. It keeps W
    symmetric and positive definite and, taken over columns in turn, converges to the inverse linearly (Gower and
    Richtarik, Randomized quasi-Newton updates are linearly convergent matrix inversion algorithms, SIAM J. Matrix Anal.
    Appl. 38, 2017). One step costs a matrix-vector product, so a rank-one learner can afford it in every round: no
    O(d^3) refactorisation, no data-dependent branch, and errors of thousands of Sherman-Morrison steps never add up.
    """
    if not is_scripting():
        if isinstance(inverse, ARRAYS):
            learner: tuple[Any, ...] = ()
            if inverse.ndim > 2:
                inverse, matrix = (array.reshape(-1, *array.shape[-2:]) for array in (inverse, matrix))
                count, learner = count.reshape(-1), (np.arange(len(matrix)),)
            j: Any = count % matrix.shape[-1]
            column = matrix[(*learner, slice(None), j)]
            pivot = column[(*learner, j)]
            correction = matvec(inverse, column)
            correction[(*learner, j)] -= 1.0
            correction /= along(pivot, column)
            correction[(*learner, j)] -= 0.5 * dot(column, correction) / pivot
            inverse[(*learner, slice(None), j)] -= correction
            inverse[(*learner, j)] -= correction
            return
    j = torch.remainder(count, matrix.size(-1)).unsqueeze(-1)
    index = j.unsqueeze(-1).expand(matrix.shape[:-1] + (1,))
    column = matrix.gather(-1, index).squeeze(-1)
    pivot = column.gather(-1, j)
    unit = torch.zeros_like(column).scatter_(-1, j, 1.0)
    correction = (matvec(inverse, column) - unit) / pivot
    correction = correction - unit * (0.5 * dot(column, correction).unsqueeze(-1) / pivot)
    inverse.scatter_add_(-1, index, -correction.unsqueeze(-1))
    inverse.scatter_add_(-2, index.mT, -correction.unsqueeze(-2))


def entropy_prox(log_weights: Tensor, cost: Tensor, rates: Tensor) -> Tensor:
    r"""Weights moved by a cost, each at its own rate: :math:`\arg\min_w \langle w, c\rangle + D_\varphi(w, w')` on the simplex.

    With :math:`\varphi(w) = \sum_j w_j\ln w_j/\beta_j` it is :math:`w_j = w'_j e^{\beta_j(\nu - c_j)}`, where :math:`\nu` makes
    the sum 1: the root of an increasing convex function, to which Newton's method falls from the right. It takes some five steps,
    and never more than some fifteen.

    Args:
        log_weights: :math:`\ln w'`, which sum to 1, ``(*B, N)``; minus infinity where a weight is 0.
        cost: c, ``(*B, N)``, finite.
        rates: :math:`\beta > 0`, ``(N)`` or ``(*B, N)``.

    Returns:
        :math:`\ln w`, ``(*B, N)``.
    """
    highest = column(largest(where(log_weights > -math.inf, cost, log_weights)))
    pull = exp(log_weights) * rates
    level = column((pull * cost).sum(-1) / pull.sum(-1))  # the root, where all changes are small
    logs, excess = log_weights, level
    for _ in range(24):
        logs = log_weights + rates * (level - cost)
        top = column(largest(logs))
        weights = exp(logs - top)
        total = column(weights.sum(-1))
        excess = top + log(total)
        if not may_hold(abs(excess) > 16.0 * roundoff(cost)):
            break
        # From the left of the root a step may pass all that can be, from the right it cannot.
        level = minimum(level - excess * total / column((weights * rates).sum(-1)), highest)
    return logs - excess


def solve(matrix: Tensor, x: Tensor) -> Tensor:
    """``matrix^-1 x`` for each learner, ``(*B, d, d)`` and ``(*B, d)`` to ``(*B, d)``, at O(d^3)."""
    if not is_scripting():
        if isinstance(matrix, ARRAYS):
            return np.linalg.solve(matrix, x[..., None])[..., 0]
    return torch.linalg.solve(matrix, x.unsqueeze(-1)).squeeze(-1)


def invert_where_(inverse: Tensor, matrix: Tensor, due: Tensor) -> None:
    """Write the inverses of symmetric matrices, ``(*B, d, d)``, where ``due``, ``(*B)``, at O(d^3) if it is due anywhere."""
    if not is_scripting():
        if _invert_where_eagerly_(inverse, matrix, due):
            return
    inverse.copy_(_inverted_where(inverse, matrix, due))


@torch.jit.unused
def _invert_where_eagerly_(inverse: Tensor, matrix: Tensor, due: Tensor) -> bool:
    """The cases that TorchScript does not know; whether it was one of them."""
    if isinstance(matrix, ARRAYS):
        rows = due.nonzero() if isinstance(due, np.ndarray) else ()
        inverse[rows] = np.linalg.inv(matrix[rows])
    elif is_compiling():
        inverse.copy_(torch.cond(due.any(), _inverted_where, lambda i, m, d: i.clone(), (inverse, matrix, due)))
    else:
        return False
    return True


def _inverted_where(inverse: Tensor, matrix: Tensor, due: Tensor) -> Tensor:
    # LAPACK's result is by columns, and both branches of a program have one layout.
    return torch.where(due.unsqueeze(-1).unsqueeze(-1), torch.linalg.inv(matrix), inverse).contiguous()


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues ``(*B, d)``, ascending, and eigenvectors ``(*B, d, d)``, in columns, of symmetric matrices, at O(d^3)."""
    if not is_scripting():
        if isinstance(matrix, ARRAYS):
            values, vectors = np.linalg.eigh(matrix)
            return values, vectors
    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors


def shortened(x: Tensor, length: Tensor, bound: float) -> Tensor:
    """Vectors ``(*B, d)`` of some lengths ``(*B)``, and of the same direction and length ``bound`` where theirs is larger."""
    return x * along(bound / at_least(length, bound), x)


def in_ball(point: Tensor, bound: float) -> Tensor:
    """The nearest points of a Euclidean ball, ``(*B, d)``."""
    return shortened(point, sqrt(dot(point, point)), bound)


def no_longer(x: Tensor, bound: Tensor) -> Tensor:
    """:func:`shortened` to a bound for each, ``(*B)``, at the price of the lengths where all are shorter."""
    square = number(dot(x, x))
    if not may_hold(square > bound * bound):
        return x
    return x * along(at_most(bound / nonzero(sqrt(square)), 1.0), x)


def ball_factors(point: Tensor, weights: Tensor, bound: float) -> Tensor:
    r"""By how much each coordinate shrinks in :math:`\arg\min_{\|u\| \le S} \sum_i w_i(u_i - p_i)^2`: ``u / p``, ``(*B, d)``.

    The factors are :math:`w_i/(w_i + \mu)` with the multiplier :math:`\mu` at which :math:`\|u\| = S`. Newton's method on
    :math:`1/\|u(\mu)\| - 1/S`, which is increasing and concave in :math:`\mu`, rises to the root from the left without
    safeguards; sixteen steps are more than any weights have been seen to need. In the ball they are 1, to rounding.

    Cost: O(d), some hundred operations.

    Args:
        point: p, ``(*B, d)``.
        weights: w, not negative, ``(*B, d)``. Those below the largest by more than the precision count as that.
        bound: the radius S > 0.
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
    r"""The nearest point of a Euclidean ball in a weighted norm: :math:`\arg\min_{\|u\| \le S} \sum_i w_i(u_i - p_i)^2`.

    See :func:`ball_factors`. A point inside the ball is returned unchanged.
    """
    return where(norms(point, 2.0) > bound, ball_factors(point, weights, bound) * point, point)


def project_ball(point: Tensor, matrix: Tensor, bound: float) -> Tensor:
    r"""The nearest point of a Euclidean ball in the norm of a matrix: :math:`\arg\min_{\|u\| \le S} \|u - p\|_V`.

    In the eigenvectors of V it is :func:`project_ball_weighted` with the eigenvalues. A point inside the ball is returned
    unchanged.

    Cost: one eigendecomposition, O(d^3).

    Args:
        point: p, shape ``(*B, d)``.
        matrix: V, symmetric positive definite, shape ``(*B, d, d)``; as good as singular is no harm.
        bound: the radius S > 0.
    """
    values, vectors = eigh(matrix)
    # Of small ones eigh knows nothing, not even the sign.
    solution = project_ball_weighted(matvec(vectors.mT, point), at_least(values, 0.0), bound)
    return where(norms(point, 2.0) > bound, matvec(vectors, solution), point)


def project_ball_(point: Tensor, matrix: Tensor, bound: float, may_wait: bool, a: Tensor | None = None) -> None:
    """:func:`project_ball` in place, at O(d) while every point is inside the ball; with ``a``, in the norm of ``V + aa'``.

    Whether one is outside is known to the host on the CPU, in TorchScript and, by :func:`torch.cond`, in an exported
    program. On an accelerator the host would have to wait for the answer: with ``may_wait=False`` it does not, and the
    eigendecomposition runs in every round.
    """
    if not is_scripting():
        if _project_ball_eager_(point, matrix, bound, may_wait, a):
            return
    rows, matrices = point.view(-1, point.size(-1)), matrix.view(-1, point.size(-1), point.size(-1))
    outside = torch.linalg.vector_norm(rows, dim=-1) > bound
    if bool(outside.any()):
        added = None if a is None else a.view(-1, point.size(-1))[outside]
        rows[outside] = project_ball(rows[outside], _plus_outer(matrices[outside], added), bound)


def _plus_outer(matrix: Tensor, a: Tensor | None) -> Tensor:
    return matrix if a is None else matrix + a[..., :, None] * a[..., None, :]


@torch.jit.unused
def _project_ball_eager_(point: Tensor, matrix: Tensor, bound: float, may_wait: bool, a: Tensor | None) -> bool:
    """The cases that TorchScript does not know; whether it was one of them."""
    if isinstance(point, ARRAYS):
        if point.ndim > 1:
            point, matrix = point.reshape(-1, point.shape[-1]), matrix.reshape(-1, *matrix.shape[-2:])  # views
            outside = np.vecdot(point, point) > bound * bound
            if outside.any():
                added = None if a is None else a.reshape(point.shape)[outside]
                point[outside] = project_ball(point[outside], _plus_outer(matrix[outside], added), bound)
        elif point.dot(point) > bound * bound:
            point[...] = project_ball(point, _plus_outer(matrix, a), bound)
    elif is_compiling():
        outside = (torch.linalg.vector_norm(point, dim=-1) > bound).any()
        if a is None:
            a = torch.zeros_like(point)

        def project(p: Tensor, m: Tensor, a: Tensor) -> Tensor:
            return project_ball(p, _plus_outer(m, a), bound)

        point.copy_(torch.cond(outside, project, lambda p, m, a: p.clone(), (point, matrix, a)))
    elif not (may_wait or point.is_cpu):
        point.copy_(project_ball(point, _plus_outer(matrix, a), bound))
    else:
        return False
    return True
