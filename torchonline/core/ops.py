"""Functions with one meaning on tensors and on NumPy arrays.

Learners are written against these functions; :mod:`torchonline.core.backend` chooses between the two versions. Shapes are for
``*B`` independent learners. The numbers of a single learner are NumPy scalars or Python numbers, not arrays.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling, is_exporting

from torchonline.core.backend import ARRAY_TYPES, in_python, is_readable, on_arrays

# Products and sums.


def _matmul_in_python(a: Any, b: Any) -> Any:
    if type(a) in ARRAY_TYPES:
        return a @ b
    if a.dtype is torch.float32 and is_exporting():
        return torch.matmul(a.double(), b.double()).float()
    return torch.matmul(a, b)


@in_python(_matmul_in_python)
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a @ b`` of tensors, without automatic mixed precision even in files.

    In files, autocast would round float32 factors, and no context prevents it. It leaves float64 alone.
    """
    if a.dtype == torch.float32:
        return torch.matmul(a.to(torch.float64), b.to(torch.float64)).to(torch.float32)
    return torch.matmul(a, b)


def _matvec_of_arrays(matrix: Any, x: Any) -> Any:
    if x.ndim > 1:
        return np.matmul(matrix, x[..., None])[..., 0]
    # One product of BLAS, also where all learners get one row.
    return matrix.dot(x) if matrix.ndim == 2 else matrix.reshape(-1, x.size).dot(x).reshape(matrix.shape[:-1])


@on_arrays(_matvec_of_arrays)
def matvec(matrix: Tensor, x: Tensor) -> Tensor:
    """Return ``matrix @ x``: ``(*B, m, d)`` and ``(*B, d)`` to ``(*B, m)``."""
    if x.dim() == 1:
        return matmul(matrix, x)
    # A batch of rows times matrices takes half the time of matrices times columns.
    return matmul(x.unsqueeze(-2), matrix.mT).squeeze(-2)


def _dot_of_arrays(x: Any, y: Any) -> Any:
    if x.ndim > 1:
        return np.vecdot(x, y)
    value = x.dot(y)
    # Arithmetic on Python's numbers takes a third of the time of NumPy's.
    return float(value) if isinstance(value, float) else value


@on_arrays(_dot_of_arrays)
def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return each learner's inner product: ``(*B, d)`` twice to ``(*B)``."""
    if x.dim() == 1:
        return torch.dot(x, y)
    return (x * y).sum(-1)


@on_arrays(lambda x, y: x.dot(y) if y.ndim <= 2 else np.matmul(x, y))
def rows_times(x: Tensor, y: Tensor) -> Tensor:
    """Return ``x @ y`` for rows.

    Shapes: ``(..., d)`` and ``(d)`` or ``(d, d)``; or ``(*B, n, d)`` and ``(*B, d, m)``.
    """
    return matmul(x, y)


@on_arrays(np.vecdot)
def row_dots(x: Tensor, y: Tensor) -> Tensor:
    """Return the inner products of rows: ``(..., d)`` twice to ``(...)``."""
    return (x * y).sum(-1)


def _trace_of_array(matrix: Any) -> Any:
    if matrix.ndim == 2 and len(matrix) <= 64 and matrix.itemsize == 8:
        return sum(matrix.reshape(-1)[:: len(matrix) + 1].tolist())  # half the time of NumPy's
    return matrix.trace(axis1=-2, axis2=-1)


@on_arrays(_trace_of_array)
def trace(matrix: Tensor) -> Tensor:
    """Return the traces of matrices: ``(*B, d, d)`` to ``(*B)``."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def _norms_of_arrays(x: Any, order: float) -> Any:
    if order == 2.0:
        return np.sqrt(np.vecdot(x, x))[..., None]
    if order == math.inf:
        return np.maximum.reduce(abs(x), -1, keepdims=True)
    return (abs(x) ** order).sum(-1, keepdims=True) ** (1.0 / order)


@on_arrays(_norms_of_arrays)
def norms(x: Tensor, order: float) -> Tensor:
    """Return norms of order 1 to infinity of rows: ``(..., d)`` to ``(..., 1)``."""
    return torch.linalg.vector_norm(x, order, dim=-1, keepdim=True)


def _logsumexp_of_arrays(x: Any) -> Any:
    top = np.maximum.reduce(x, -1)  # x.max(-1) without a detour
    return top + np.log(np.add.reduce(np.exp(x - column(top)), -1))


@on_arrays(_logsumexp_of_arrays)
def logsumexp(x: Tensor) -> Tensor:
    """Return ``log(sum(exp(x)))`` of each learner's numbers: ``(*B, n)`` to ``(*B)``."""
    return torch.logsumexp(x, -1)


@on_arrays(lambda x: x.max(-1))
def largest(x: Tensor) -> Tensor:
    """Return the largest of each learner's numbers: ``(*B, n)`` to ``(*B)``."""
    return x.amax(-1)


@on_arrays(lambda x: x.min(-1))
def smallest(x: Tensor) -> Tensor:
    """Return the smallest of each learner's numbers: ``(*B, n)`` to ``(*B)``."""
    return x.amin(-1)


@on_arrays(lambda x: x.argmax(-1))
def argmax(x: Tensor) -> Tensor:
    """Return the index of the largest number of each row: ``(..., n)`` to ``(...)``."""
    return x.argmax(-1)


@on_arrays(lambda x: np.sort(x, -1))
def ascending(x: Tensor) -> Tensor:
    """Sort each learner's numbers: ``(*B, n)`` twice."""
    return x.sort(-1).values


def _entry_of_arrays(x: Any, index: Any) -> Any:
    if x.ndim == 1:
        return float(x[int(index)]) if x.itemsize == 8 else x[int(index)]
    return np.take_along_axis(x, np.asarray(index, np.int64)[..., None], -1)[..., 0]


@on_arrays(_entry_of_arrays)
def entry(x: Tensor, index: Tensor) -> Tensor:
    """Return one of each learner's numbers: ``(*B, n)`` and a real index ``(*B)``."""
    return x.gather(-1, index.to(torch.int64).unsqueeze(-1)).squeeze(-1)


def _row_of_arrays(x: Any, index: Any) -> Any:
    if x.ndim == 2:
        return x[int(index)]
    return np.take_along_axis(x, np.asarray(index, np.int64)[..., None, None], -2)[..., 0, :]


@on_arrays(_row_of_arrays)
def row_at(x: Tensor, index: Tensor) -> Tensor:
    """Return one of each learner's rows: ``(*B, n, d)`` and ``(*B)`` to ``(*B, d)``."""
    index = index.unsqueeze(-1).unsqueeze(-1)
    return x.gather(-2, index.expand(x.shape[:-2] + (1, x.size(-1)))).squeeze(-2)


@on_arrays(lambda values, action: values[action])
def of_chosen(values: Tensor, action: Tensor) -> Tensor:
    """Select the chosen arms: ``(..., K, *rest)`` and ``(...)`` to ``(..., *rest)``.

    Arrays must belong to a single decision.
    """
    lead = action.dim()
    index = action.reshape(list(action.shape) + [1] * (values.dim() - lead))
    return values.gather(lead, index.expand_as(values.narrow(lead, 0, 1))).squeeze(lead)


@on_arrays(lambda x: np.add.reduce(x, -1))
def total(x: Tensor) -> Tensor:
    """Return the sum of each learner's numbers: ``(*B, n)`` to ``(*B)``."""
    return x.sum(-1)


def _in_type_of_in_python(x: Tensor, like: Tensor) -> Tensor:
    # A no-op `to` would be exported as an assertion of the type.
    return x.to(like.dtype) if is_readable(x) else torch.ops.prims.convert_element_type.default(x, like.dtype)


@in_python(_in_type_of_in_python)
def in_type_of(x: Tensor, like: Tensor) -> Tensor:
    """Convert a tensor to the type of another one, in programs too."""
    return x.to(like.dtype)


# Elementary functions, each as torch defines it.


def _sqrt_in_python(x: Any) -> Any:
    if isinstance(x, float) and x >= 0.0:
        return math.sqrt(x)
    return np.sqrt(x) if type(x) in ARRAY_TYPES else torch.sqrt(x)


@in_python(_sqrt_in_python)
def sqrt(x: Tensor) -> Tensor:
    return torch.sqrt(x)


@on_arrays(np.log)
def log(x: Tensor) -> Tensor:
    return torch.log(x)


@on_arrays(np.exp)
def exp(x: Tensor) -> Tensor:
    return torch.exp(x)


@on_arrays(lambda x: math.log1p(x) if isinstance(x, float) and x > -1.0 else np.log1p(x))  # a fifth of NumPy's time
def log1p(x: Tensor) -> Tensor:
    return torch.log1p(x)


@on_arrays(np.expm1)
def expm1(x: Tensor) -> Tensor:
    return torch.expm1(x)


@on_arrays(np.floor)
def floor(x: Tensor) -> Tensor:
    return torch.floor(x)


@on_arrays(np.sign)
def sign(x: Tensor) -> Tensor:
    return torch.sign(x)


def _sigmoid_of_arrays(x: Any) -> Any:
    if isinstance(x, float):
        e = math.exp(-abs(x))
        return 1.0 / (1.0 + e) if x >= 0.0 else e / (1.0 + e)
    # The largest exponents whose exponentials are finite, rounded down.
    return 1.0 / (1.0 + np.exp(np.minimum(-x, 709.0 if x.itemsize == 8 else 88.0)))


@on_arrays(_sigmoid_of_arrays)
def sigmoid(x: Tensor) -> Tensor:
    """Return ``1 / (1 + exp(-x))``, to full relative precision on both sides."""
    return torch.sigmoid(x)


def sigmoid_slope(x: Tensor) -> Tensor:
    """Return the slope of :func:`sigmoid`, to full relative precision on both sides."""
    e = exp(-abs(x))
    return e / ((1.0 + e) * (1.0 + e))


def _softplus_of_arrays(x: Any) -> Any:
    if isinstance(x, float):
        return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
    return np.maximum(x, 0.0) + np.log1p(np.exp(-abs(x)))


@on_arrays(_softplus_of_arrays)
def softplus(x: Tensor) -> Tensor:
    """Return ``log(1 + exp(x))``, to full relative precision on both sides."""
    return at_least(x, 0.0) + log1p(exp(-abs(x)))


# Comparisons. For Python numbers, a branch costs less than a NumPy call; a NaN stays NaN.


@on_arrays(lambda x, y: np.minimum(x, y) if isinstance(x, np.ndarray) else x if x <= y or x != x else y)
def minimum(x: Tensor, y: Tensor) -> Tensor:
    return torch.minimum(x, y)


@on_arrays(lambda x, y: np.maximum(x, y) if isinstance(x, np.ndarray) else x if x >= y or x != x else y)
def maximum(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(x, y)


@on_arrays(lambda x, floor: np.maximum(x, floor) if isinstance(x, np.ndarray) else floor if x < floor else x)
def at_least(x: Tensor, floor: float) -> Tensor:
    """Return ``max(x, floor)`` for a plain number ``floor``."""
    return x.clamp(min=floor)


@on_arrays(lambda x, ceiling: np.minimum(x, ceiling) if isinstance(x, np.ndarray) else ceiling if x > ceiling else x)
def at_most(x: Tensor, ceiling: float) -> Tensor:
    """Return ``min(x, ceiling)`` for a plain number ``ceiling``."""
    return x.clamp(max=ceiling)


@on_arrays(
    lambda condition, x, y: np.where(condition, x, y) if isinstance(condition, np.ndarray) else x if condition else y
)
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)


def clip(x: Tensor, bound: Tensor) -> Tensor:
    """Clip ``x`` to ``[-bound, bound]``."""
    return maximum(minimum(x, bound), -bound)


def nonzero(x: Tensor) -> Tensor:
    """Replace 0 in ``x >= 0`` by 1e-37, a divisor in either precision."""
    return at_least(x, 1e-37)


def or_one(x: Tensor) -> Tensor:
    """Replace 0 in ``x >= 0`` by 1, the divisor of a numerator that is 0 there too."""
    return x + (x == 0.0)


# Shapes and types.


def _number_in_python(x: Any) -> Any:
    if type(x) is np.ndarray and x.ndim == 0:
        x = x[()]
    return float(x) if isinstance(x, float) else x  # Python's number takes a third of NumPy's time


@in_python(_number_in_python)
def number(x: Tensor) -> Tensor:
    """Return one number per learner; for a single float64 learner, Python's own."""
    return x


def _converted_in_python(x: Any, like: Any) -> Any:
    return x if type(x) in ARRAY_TYPES else x.to(like.dtype)


@in_python(_converted_in_python)
def converted(x: Tensor, like: Tensor) -> Tensor:
    """Convert ``x`` to the floating-point type of ``like``. Arrays come converted."""
    return x.to(like.dtype)


def _real_of_array(count: Any, like: Any) -> Any:
    if isinstance(count, np.ndarray) and count.ndim:
        return count.astype(like.dtype)
    return float(count) if isinstance(like, float) or like.itemsize == 8 else like.dtype.type(count)


@on_arrays(_real_of_array)
def real(count: Tensor, like: Tensor) -> Tensor:
    """Convert an integer count to the floating-point type of ``like``."""
    return count.to(like.dtype)


def _along_in_python(scalar: Any, x: Any) -> Any:
    if type(scalar) is float:
        return scalar
    if isinstance(scalar, np.ndarray):
        missing = x.ndim - scalar.ndim  # the usual 1 in a third of the time
        return scalar[..., None] if missing == 1 else scalar[(..., *(None,) * missing)]
    return scalar.reshape(scalar.shape + (1,) * (x.dim() - scalar.dim())) if isinstance(scalar, Tensor) else scalar


@in_python(_along_in_python)
def along(scalar: Tensor, x: Tensor) -> Tensor:
    """Shape each learner's number to scale ``x``: ``(*B)`` to ``(*B, 1, ..., 1)``."""
    while scalar.dim() < x.dim():
        scalar = scalar.unsqueeze(-1)
    return scalar


def _weighted_array(x: Any, weight: Any) -> Any:
    # A product with 1 takes three times as long as a copy.
    return x.copy() if type(weight) is float and weight == 1.0 else _along_in_python(weight, x) * x


@on_arrays(_weighted_array)
def weighted(x: Tensor, weight: Tensor) -> Tensor:
    """Return a copy of features times weights: ``(*B, d)``, ``(*B)``."""
    return along(weight, x) * x


@on_arrays(lambda scalar: scalar[..., None] if isinstance(scalar, np.ndarray) else scalar)
def column(scalar: Tensor) -> Tensor:
    """Shape each learner's number to go with a list: ``(*B)`` to ``(*B, 1)``."""
    return scalar.unsqueeze(-1)


@on_arrays(lambda x, y: np.concatenate([x, np.reshape(y, (*x.shape[:-1], 1))], -1))
def joined(x: Tensor, y: Tensor) -> Tensor:
    """Append to each learner's list: ``(*B, n)`` and ``(*B)`` to ``(*B, n + 1)``."""
    return torch.cat([x, y.unsqueeze(-1)], -1)


@on_arrays(lambda x, y: np.concatenate([x, y], -1))
def beside_each_other(x: Tensor, y: Tensor) -> Tensor:
    """Join rows: ``(*B, n)`` and ``(*B, m)`` to ``(*B, n + m)``."""
    return torch.cat([x, y], -1)


@on_arrays(lambda x: 2.0**-52 if isinstance(x, float) or x.itemsize == 8 else 2.0**-23)
def roundoff(x: Tensor) -> float:
    """Return the spacing of floating-point numbers at 1 in the type of ``x``."""
    if x.element_size() == 8:
        return 2.0**-52
    return 2.0**-23


@on_arrays(lambda x: 1e150 if x.itemsize == 8 else 1e18)
def squarable(x: Tensor) -> float:
    """Return a size up to which numbers in the type of ``x`` have finite squares."""
    if x.element_size() == 8:
        return 1e150
    return 1e18


def started_power(count: Tensor, power: float) -> Tensor:
    """Return ``count^power`` for a real count; 0 for count 0, even with power 0."""
    return count / at_least(count, 1.0) * count**power


# Writes. A trailing underscore marks a function that writes its first argument in place.


def _written_in_python(x: Tensor) -> Tensor:
    return x.unsqueeze(0) if is_dynamo_compiling() and x.dim() == 0 else x


@in_python(_written_in_python)
def written(x: Tensor) -> Tensor:
    """Return a tensor to write to. For one number under torch.compile, it is a view.

    torch 2.13 loses the writes of compiled code to a float64 number on the CPU. It keeps writes through a view.
    """
    return x


def _assign_array_(x: Any, y: Any) -> None:
    x[...] = y


@on_arrays(_assign_array_)
def assign_(x: Tensor, y: Tensor) -> None:
    """Write ``y`` over ``x``, of the same shape."""
    written(x).copy_(y)


def _put_array_(x: Any, index: Any, value: Any) -> None:
    if x.ndim == 1:
        x[int(index)] = value
    else:
        np.put_along_axis(x, np.asarray(index, np.int64)[..., None], np.asarray(value)[..., None], -1)


@on_arrays(_put_array_)
def put_(x: Tensor, index: Tensor, value: Tensor) -> None:
    """Write one of each learner's numbers: ``(*B, n)``, index and value ``(*B)``."""
    x.scatter_(-1, index.to(torch.int64).unsqueeze(-1), value.unsqueeze(-1))


def _put_row_of_array_(x: Any, index: Any, row: Any) -> None:
    if x.ndim == 2:
        x[int(index)] = row
    else:
        np.put_along_axis(x, np.asarray(index, np.int64)[..., None, None], row[..., None, :], -2)


@on_arrays(_put_row_of_array_)
def put_row_(x: Tensor, index: Tensor, row: Tensor) -> None:
    """Write one of each learner's rows: ``(*B, n, d)``, ``(*B)`` and ``(*B, d)``."""
    row = row.unsqueeze(-2)
    x.scatter_(-2, index.unsqueeze(-1).unsqueeze(-1).expand(row.shape), row)


def _increase_array_(x: Any, y: Any) -> None:
    x[()] = x[()] + y  # NumPy's own += takes three times as long on an array without axes


@on_arrays(_increase_array_)
def increase_(x: Tensor, y: Tensor) -> None:
    """Add ``y`` to ``x`` in place, for one number of each learner."""
    written(x).add_(y)


def _count_array_(x: Any) -> None:
    x[()] = x[()] + 1


@on_arrays(_count_array_)
def count_(x: Tensor) -> None:
    """Add 1 to ``x`` in place, for one count of each learner."""
    x += 1


@on_arrays(lambda x, mask, value: np.copyto(x, value, where=mask, casting="unsafe"))
def fill_(x: Tensor, mask: Tensor, value: float) -> None:
    """Write ``value`` where a mask, shaped to go with ``x``, is True."""
    written(x).masked_fill_(mask, value)
