r"""A precision matrix V that grows by rank-one terms, with its inverse.

The two matrices are the statistics of every linear learner. Cost: O(d^2) for each term. Three things keep the pair exact over
millions of terms.

- Both stay exactly symmetric, because each term is written as an outer product of one vector with itself.
- In float32, Kahan's summation keeps V's rounding error in ``lost``.
- In every eighth round, one column of the inverse is corrected (:func:`refine_inverse_`).

A block of rounds adds a sum of such terms at once, and recomputes the inverse by a Cholesky factor in float64
(:func:`add_squares_`).

A learner keeps the three matrices as its own buffers, so that they stay readable under their names in state dicts and in
TorchScript files, where one tensor cannot have two names. A ``PrecisionMatrix`` is a tuple of the three.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import in_python, is_at_hand, on_arrays
from torchonline.core.ops import along, dot, increase_, matmul, matvec, number, sqrt

# From this many entries on, torch's rank-one updates, which need no temporary, make up for their larger call overhead.
WIDE = 1 << 12

# Rounds between two corrections of an inverse, of one column each.
REFINE_EVERY = 8


# Rounds whose residuals take one Cholesky factor: fewer cost calls, more cost multiplications.
RESIDUALS_AT_ONCE = 64

# V, symmetric positive definite, (*B, d, d); its inverse, (*B, d, d); and Kahan's compensation, with which V - lost is the sum
# to twice the precision, or None without compensation. Making a NamedTuple would cost as much as a product.
PrecisionMatrix = tuple[Tensor, Tensor, Tensor | None]


# The largest d x d matrix: d = 46,340. Larger ones are more often a mistake than a plan, and their updates take seconds.
LARGEST_MATRIX = 1 << 34


def check_matrix(name: str, dim: int, count: int, learner: str) -> None:
    """Refuse a dimension whose d x d matrices in float64 are too large.

    ``name`` is the dimension's name in errors, and ``count`` the number of matrices that ``learner`` needs.
    """
    size = 8 * dim * dim
    if size > LARGEST_MATRIX:
        most = math.isqrt(LARGEST_MATRIX // 8)
        needs = f"{count} d x d matrices" if count > 1 else "a d x d matrix"
        raise ValueError(
            f"{name}: expected at most {most} for {learner}, which needs {needs}, got {dim}, for which these take "
            f"{count * size / 2**30:.0f} GiB; DiagonalRidgeRegression keeps 2 d numbers"
        )


def start_of(dim: int, ridge: float, name: str, compensated: bool) -> dict[str, Tensor | None]:
    """Return the three buffers of ``ridge * I``, by name: float64, ``(d, d)``."""
    identity = torch.eye(dim, dtype=torch.float64)
    return {
        name: ridge * identity,
        f"{name}_inv": identity / ridge,
        f"{name}_lost": torch.zeros_like(identity) if compensated else None,
    }


def _add_outer_in_python_(V: Any, a: Any, product: Any, quadratic: Any) -> None:
    matrix, inverse, lost = V
    if type(a) is not np.ndarray or a.ndim > 1 or lost is not None or matrix.size >= WIDE:
        _add_outer_anywhere_(V, a, product, quadratic)
        return
    # A small matrix of one learner: the same, without the calls in between.
    matrix += _outer_of_arrays(a, a)
    u = product / sqrt(1.0 + quadratic)
    inverse -= _outer_of_arrays(u, u)


@in_python(_add_outer_in_python_)
def add_outer_(V: PrecisionMatrix, a: Tensor, product: Tensor, quadratic: Tensor) -> None:
    r"""Add :math:`aa^\top` to V, and update the inverse by Sherman-Morrison.

    ``a`` is ``(*B, d)``, ``product`` :math:`V^{-1}a`, ``(*B, d)``, and ``quadratic`` :math:`a^\top V^{-1}a`, ``(*B)``.
    """
    _add_outer_anywhere_(V, a, product, quadratic)


def _add_outer_anywhere_(V: PrecisionMatrix, a: Tensor, product: Tensor, quadratic: Tensor) -> None:
    matrix, inverse, lost = V
    add_square_(matrix, lost, a)
    u = product / along(sqrt(1.0 + quadratic), product)
    subtract_outer_product_(inverse, u, u)


def add_squares_(V: PrecisionMatrix, squares: Tensor) -> tuple[Tensor, Tensor]:
    r"""Add a sum of terms ``aa'`` to V, and recompute the inverse. Not on arrays.

    Return the Cholesky factor of V, float64 ``(*B, d, d)``, and the largest variance inflation factor
    :math:`V_{ii}(V^{-1})_{ii}`, ``(*B)``. Rounding changes the inverse by about float64's roundoff times d times this factor.
    It does not depend on the units of the features. It is NaN where V has no Cholesky factor.
    """
    matrix, inverse, lost = V
    increase_compensated_(matrix, lost, symmetric(squares))
    exact, factor, anew = factored(matrix, lost)
    inverse.copy_(anew)
    inflation = exact.diagonal(dim1=-2, dim2=-1) * anew.diagonal(dim1=-2, dim2=-1)
    return factor, inflation.amax(-1)


def factored(matrix: Tensor, lost: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return V, its Cholesky factor and its inverse, float64 ``(*B, d, d)``.

    The last two are NaN where V has no factor. Not on arrays.
    """
    exact = matrix.to(torch.float64)
    if lost is not None:
        exact = exact - lost.to(torch.float64)
    factor, failed = torch.linalg.cholesky_ex(exact)
    factor.masked_fill_((failed != 0).unsqueeze(-1).unsqueeze(-1), float("nan"))
    return exact, factor, symmetric(torch.cholesky_inverse(factor))


def symmetric(matrix: Tensor) -> Tensor:
    """Return the symmetric part of a matrix, ``(*B, d, d)``."""
    return (matrix + matrix.mT).mul_(0.5)


def residuals_in_order(inverse: Tensor, a: Tensor, residuals: Tensor, at_once: int = RESIDUALS_AT_ONCE) -> Tensor:
    r"""Return the residuals of ridge regression in order, ``(n, m)``. Not on arrays.

    ``inverse``, ``(d, d)``, is that of V before the first of n rounds. ``a``, ``(n, d)``, holds the features, and ``residuals``,
    ``(n, m)``, the responses minus their predictions before the first round. In order, round i is predicted from the i - 1 rounds
    before it too. With the Cholesky factor L of :math:`I + AV^{-1}A^\top`, its residual is entry i of
    :math:`\mathrm{diag}(L)\,L^{-1}` times the given residuals.
    """
    inverse, a, residuals = inverse.to(torch.float64), a.to(torch.float64), residuals.to(torch.float64)
    change = torch.zeros_like(gram(a[:1], residuals[:1]))
    found: list[Tensor] = []
    done, n = 0, a.size(0)
    while done < n:
        rows = a[done : done + at_once]
        given = residuals[done : done + at_once] - matmul(rows, change)
        product = matmul(rows, inverse)
        growth = matmul(product, rows.mT)
        growth.diagonal().add_(1.0)
        factor, _ = torch.linalg.cholesky_ex(growth)
        given = torch.linalg.solve_triangular(factor, given, upper=False)
        found.append(factor.diagonal().unsqueeze(-1) * given)
        done += at_once
        if done < n:
            product = torch.linalg.solve_triangular(factor, product, upper=False)
            change, inverse = change + gram(product, given), inverse - gram(product, product)
    return torch.cat(found)


def log_det(factor: Tensor) -> Tensor:
    """Return ``log det`` of a matrix, ``(*B)``, from its Cholesky factor."""
    return 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def solved(factor: Tensor, b: Tensor) -> Tensor:
    """Return ``V^-1 b``, ``(*B, d, m)``, by V's Cholesky factor."""
    return torch.cholesky_solve(b.to(factor.dtype), factor).to(b.dtype)


def gram(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of ``a_i b_i'`` over rows, ``(*B, d, m)``."""
    return matmul(a.mT, b)


def remove_outer_(V: PrecisionMatrix, a: Tensor, product: Tensor, quadratic: Tensor) -> None:
    """Remove a term ``aa'`` from V: the reverse of :func:`add_outer_`.

    The quadratic must be below 1, as it is for a term in V.
    """
    matrix, inverse, lost = V
    subtract_square_(matrix, lost, a)
    u = product / along(sqrt(1.0 - quadratic), product)
    add_outer_product_(inverse, u, u)


def renew_inverse_(V: PrecisionMatrix) -> None:
    """Recompute the inverse from V, unless V has no Cholesky factor. Python only."""
    # as_tensor shares the memory of an array.
    parts: Any = [None if part is None else torch.as_tensor(part) for part in V]
    matrix, inverse, lost = parts
    anew = factored(matrix, lost)[2]
    is_known = anew.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
    inverse.copy_(torch.where(is_known, anew, inverse.to(anew.dtype)))


def scale_(V: PrecisionMatrix, factor: float) -> None:
    """Multiply V by a positive number, and divide the inverse by it."""
    matrix, inverse, lost = V
    matrix *= factor
    inverse *= 1.0 / factor
    if lost is not None:
        lost *= factor


def refine_(V: PrecisionMatrix, rounds: Tensor, every: int = REFINE_EVERY) -> None:
    """Correct one column of the inverse, chosen by the count of rounds, ``(*B)``."""
    matrix, inverse, _ = V
    refine_inverse_(inverse, matrix, number(rounds) // every)


def is_time_to_refine(rounds: Tensor, every: int = REFINE_EVERY) -> bool:
    """Return whether any inverse is due for correction; True if the host cannot tell."""
    return not is_at_hand(rounds) or bool((rounds % every == 0).any())


def _outer_of_arrays(u: Any, v: Any) -> Any:
    # BLAS takes a third to two thirds of the time of a product with broadcasting.
    return u[:, None].dot(v[None]) if u.ndim == 1 else u[..., None] * v[..., None, :]


@on_arrays(_outer_of_arrays)
def outer(u: Tensor, v: Tensor) -> Tensor:
    """Return ``u v'``: ``(*B, d)`` twice to ``(*B, d, d)``."""
    return u.unsqueeze(-1) * v.unsqueeze(-2)


def _add_outer_arrays_(matrix: Any, u: Any, v: Any) -> None:
    if matrix.size < WIDE:
        matrix += _outer_of_arrays(u, v)
    else:
        add_outer_product_(torch.from_numpy(matrix), torch.from_numpy(u), torch.from_numpy(v))


@on_arrays(_add_outer_arrays_)
def add_outer_product_(matrix: Tensor, u: Tensor, v: Tensor) -> None:
    """Add ``u v'`` to a matrix in place: ``(*B, d, m)``, ``(*B, d)``, ``(*B, m)``."""
    matrix.addcmul_(u.unsqueeze(-1), v.unsqueeze(-2))


def _subtract_outer_arrays_(matrix: Any, u: Any, v: Any) -> None:
    if matrix.size < WIDE:
        matrix -= _outer_of_arrays(u, v)
    else:
        subtract_outer_product_(torch.from_numpy(matrix), torch.from_numpy(u), torch.from_numpy(v))


@on_arrays(_subtract_outer_arrays_)
def subtract_outer_product_(matrix: Tensor, u: Tensor, v: Tensor) -> None:
    """Subtract ``u v'`` from a matrix in place."""
    matrix.addcmul_(u.unsqueeze(-1), v.unsqueeze(-2), value=-1.0)


def _subtract_outers_of_arrays_(matrix: Any, u: Any, v: Any) -> None:
    if matrix.size < WIDE:
        product = _outer_of_arrays(u, v)
        matrix -= product + product.swapaxes(-1, -2)
    else:
        subtract_outers_(torch.from_numpy(matrix), torch.from_numpy(u), torch.from_numpy(v))


@on_arrays(_subtract_outers_of_arrays_)
def subtract_outers_(matrix: Tensor, u: Tensor, v: Tensor) -> None:
    """Subtract ``u v' + v u'`` from a matrix in place."""
    subtract_outer_product_(matrix, u, v)
    subtract_outer_product_(matrix, v, u)


def increase_compensated_(x: Tensor, lost: Tensor | None, y: Tensor) -> None:
    """Add ``y`` to ``x`` in place, with Kahan's summation if ``lost`` is given.

    Then ``x - lost`` is the sum to twice the precision.
    """
    if lost is None:
        increase_(x, y)
        return
    term = y - lost
    total = x + term
    lost[...] = (total - x) - term
    x[...] = total


def add_square_(matrix: Tensor, lost: Tensor | None, a: Tensor) -> None:
    """Add ``a a'`` to a matrix in place, with Kahan's summation if ``lost`` is given."""
    if lost is not None:
        increase_compensated_(matrix, lost, outer(a, a))
    else:
        add_outer_product_(matrix, a, a)


def subtract_square_(matrix: Tensor, lost: Tensor | None, a: Tensor) -> None:
    """Subtract ``a a'`` from a matrix in place: the reverse of :func:`add_square_`."""
    if lost is not None:
        increase_compensated_(matrix, lost, -outer(a, a))
    else:
        subtract_outer_product_(matrix, a, a)


def _refine_arrays_(inverse: Any, matrix: Any, count: Any) -> None:
    j: Any
    if inverse.ndim == 2:
        j = int(count) % len(matrix)
    else:
        inverse, matrix = (array.reshape(-1, *array.shape[-2:]) for array in (inverse, matrix))
        j = np.arange(len(matrix)), count.reshape(-1) % matrix.shape[-1]
    column = matrix[j]  # a row, which is the same
    pivot = number(column[j])
    correction = matvec(inverse, column)
    correction[j] -= 1.0
    correction /= along(pivot, column)
    correction[j] -= 0.5 * dot(column, correction) / pivot
    inverse.swapaxes(-1, -2)[j] -= correction
    inverse[j] -= correction


@on_arrays(_refine_arrays_)
def refine_inverse_(inverse: Tensor, matrix: Tensor, count: Tensor) -> None:
    r"""Correct one column of a drifted inverse; ``d`` calls in turn correct all of it.

    With :math:`W \approx V^{-1}`, column :math:`j =` ``count`` mod d and residual :math:`\delta = WVe_j - e_j`,

    .. math:: W \leftarrow W - \frac{e_j\delta^\top + \delta e_j^\top}{V_{jj}}
              + \frac{e_j^\top V\delta}{V_{jj}^2} e_je_j^\top ,

    after which :math:`WVe_j = e_j`. This is the BFGS update of quasi-Newton methods with the step :math:`e_j`. It keeps W
    symmetric and positive definite. Taken over the columns in turn, it converges to the inverse linearly (Gower and Richtarik,
    Randomized quasi-Newton updates are linearly convergent matrix inversion algorithms, SIAM J. Matrix Anal. Appl. 38, 2017).

    Cost: one matrix-vector product. So errors of thousands of Sherman-Morrison steps never add up, and no round needs an O(d^3)
    refactorisation or a branch on data.
    """
    j = torch.remainder(count, matrix.size(-1)).unsqueeze(-1)
    index = j.unsqueeze(-1).expand(matrix.shape[:-1] + (1,))
    column = matrix.gather(-1, index).squeeze(-1)
    pivot = column.gather(-1, j)
    unit = torch.zeros_like(column).scatter_(-1, j, 1.0)
    correction = (matvec(inverse, column) - unit) / pivot
    correction = correction - unit * (0.5 * dot(column, correction).unsqueeze(-1) / pivot)
    inverse.scatter_add_(-1, index, -correction.unsqueeze(-1))
    inverse.scatter_add_(-2, index.mT, -correction.unsqueeze(-2))
