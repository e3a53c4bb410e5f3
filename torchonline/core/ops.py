"""Functions that mean the same on tensors and on NumPy arrays.

Every learner is written once, against these functions and the operators that torch and NumPy share. On tensors it
runs anywhere (accelerators, large fleets, TorchScript, torch.export). Where a round is small and on the CPU the same lines
run on NumPy views of the same buffers, because a NumPy call costs a fraction of a torch call and small rounds are nothing
but calls; :meth:`torchonline.core.learner.Learner.numpy_view` makes the views. TorchScript never sees the NumPy lines.

Shapes are written for ``*B`` independent learners. Where there is one, NumPy's numbers are scalars, not arrays.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.jit import is_scripting, is_tracing

# What a NumPy learner computes with. Python's own numbers only where there is one learner.
ARRAYS = (np.ndarray, np.generic, float, bool)
PLAIN = (Tensor, nn.Parameter)


def matvec(matrix: Tensor, x: Tensor) -> Tensor:
    """``matrix @ x`` for each learner: ``(*B, d, d)`` and ``(*B, d)`` to ``(*B, d)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return matrix.dot(x) if x.ndim == 1 else np.matmul(matrix, x[..., None])[..., 0]
    if x.dim() == 1:
        return torch.mv(matrix, x)
    # A batch of rows times matrices takes half the time of matrices times columns.
    return torch.matmul(x.unsqueeze(-2), matrix.mT).squeeze(-2)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """The inner product of each learner's vectors: ``(*B, d)`` twice to ``(*B)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return x.dot(y) if x.ndim == 1 else np.vecdot(x, y)
    if x.dim() == 1:
        return torch.dot(x, y)
    return (x * y).sum(-1)


def number(x: Tensor) -> Tensor:
    """One number for each learner; of one learner in double precision Python's, which takes a third of the time of NumPy's."""
    if not is_scripting():
        if isinstance(x, np.ndarray) and x.ndim == 0:  # a buffer
            x = x[()]
        if isinstance(x, float):
            return float(x)
    return x


def converted(x: Tensor, like: Tensor) -> Tensor:
    """``x`` in the floating-point type of ``like``; a NumPy learner gets its inputs converted."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return x
    return x.to(like.dtype)


def rows_times(x: Tensor, y: Tensor) -> Tensor:
    """``x @ y`` for rows: ``(..., d)`` and ``(d)`` or ``(d, d)``, or ``(*B, n, d)`` and ``(*B, d, m)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return x.dot(y) if y.ndim <= 2 else np.matmul(x, y)
    return x @ y


def row_dots(x: Tensor, y: Tensor) -> Tensor:
    """The inner products of rows: ``(..., d)`` twice to ``(...)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.vecdot(x, y)
    return (x * y).sum(-1)


def trace(matrix: Tensor) -> Tensor:
    """``(*B, d, d)`` to ``(*B)``."""
    if not is_scripting():
        if isinstance(matrix, ARRAYS):
            return matrix.trace(axis1=-2, axis2=-1)
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def largest(x: Tensor) -> Tensor:
    """The largest of each learner's numbers: ``(*B, n)`` to ``(*B)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return x.max(-1)
    return x.amax(-1)


def along(scalar: Tensor, x: Tensor) -> Tensor:
    """One number for each learner, shaped to scale its vectors or scores: ``(*B)`` to ``(*B, 1, ..., 1)`` like ``x``."""
    if not is_scripting():
        if isinstance(scalar, float):  # as NumPy's numbers in double precision are
            return scalar
        if isinstance(scalar, ARRAYS):
            return scalar[(..., *(None,) * (x.ndim - scalar.ndim))] if isinstance(scalar, np.ndarray) else scalar
    while scalar.dim() < x.dim():
        scalar = scalar.unsqueeze(-1)
    return scalar


def sqrt(x: Tensor) -> Tensor:
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.sqrt(x)
    return torch.sqrt(x)


def log(x: Tensor) -> Tensor:
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.log(x)
    return torch.log(x)


def exp(x: Tensor) -> Tensor:
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.exp(x)
    return torch.exp(x)


def log1p(x: Tensor) -> Tensor:
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.log1p(x)
    return torch.log1p(x)


def expm1(x: Tensor) -> Tensor:
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.expm1(x)
    return torch.expm1(x)


def sigmoid(x: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``, to full relative precision on both sides."""
    if not is_scripting():
        if isinstance(x, float):
            e = math.exp(-abs(x))
            return 1.0 / (1.0 + e) if x >= 0.0 else e / (1.0 + e)
        if isinstance(x, ARRAYS):
            e = np.exp(-abs(x))
            return np.where(x >= 0.0, 1.0, e) / (1.0 + e)
    return torch.sigmoid(x)


def sigmoid_slope(x: Tensor) -> Tensor:
    """The derivative of :func:`sigmoid`, to full relative precision on both sides."""
    e = exp(-abs(x))
    return e / ((1.0 + e) * (1.0 + e))


def logsumexp(x: Tensor) -> Tensor:
    """``log(sum(exp(x)))`` of each learner's numbers: ``(*B, n)`` to ``(*B)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            top = np.maximum.reduce(x, -1)  # x.max(-1) without a detour
            return top + np.log(np.add.reduce(np.exp(x - column(top)), -1))
    return torch.logsumexp(x, -1)


def norms(x: Tensor, order: float) -> Tensor:
    """The norms of rows, of an order from 1 to infinity: ``(..., d)`` to ``(..., 1)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            if order == 2.0:
                return np.sqrt(np.vecdot(x, x))[..., None]
            if order == math.inf:
                return np.maximum.reduce(abs(x), -1, keepdims=True)
            return (abs(x) ** order).sum(-1, keepdims=True) ** (1.0 / order)
    return torch.linalg.vector_norm(x, order, dim=-1, keepdim=True)


def sign(x: Tensor) -> Tensor:
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.sign(x)
    return torch.sign(x)


def beside(constant: Any, x: Tensor) -> Any:
    """An array, or a tensor on the CPU, as what goes with ``x``: an array, or a tensor on its device. Eager Python only."""
    if isinstance(x, np.ndarray):
        return constant if isinstance(constant, np.ndarray) else constant.numpy()
    return torch.as_tensor(constant, device=x.device)


def column(scalar: Tensor) -> Tensor:
    """One number for each learner, to go with its list of numbers: ``(*B)`` to ``(*B, 1)``."""
    if not is_scripting():
        if isinstance(scalar, ARRAYS):
            return scalar[..., None] if isinstance(scalar, np.ndarray) else scalar
    return scalar.unsqueeze(-1)


def pair(x: Tensor, y: Tensor) -> Tensor:
    """Two numbers of each learner as a list: ``(*B)`` twice to ``(*B, 2)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.stack([x, y], -1) if isinstance(x, np.ndarray) else np.array([x, y])
    return torch.stack([x, y], -1)


def joined(x: Tensor, y: Tensor) -> Tensor:
    """A list of numbers of each learner and one more: ``(*B, n)`` and ``(*B)`` to ``(*B, n + 1)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.concatenate([x, np.reshape(y, (*x.shape[:-1], 1))], -1)
    return torch.cat([x, y.unsqueeze(-1)], -1)


def smallest(x: Tensor) -> Tensor:
    """The smallest of each learner's numbers: ``(*B, n)`` to ``(*B)``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return x.min(-1)
    return x.amin(-1)


def minimum(x: Tensor, y: Tensor) -> Tensor:
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.minimum(x, y) if isinstance(x, np.ndarray) else x if x <= y or x != x else y
    return torch.minimum(x, y)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.maximum(x, y) if isinstance(x, np.ndarray) else x if x >= y or x != x else y
    return torch.maximum(x, y)


def at_least(x: Tensor, floor: float) -> Tensor:
    """``max(x, floor)`` for a plain number ``floor``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.maximum(x, floor) if isinstance(x, np.ndarray) else floor if x < floor else x
    return x.clamp(min=floor)


def nonzero(x: Tensor) -> Tensor:
    """``x >= 0`` as a divisor: something tiny, in either precision, in place of 0."""
    return at_least(x, 1e-37)


def or_one(x: Tensor) -> Tensor:
    """``x >= 0`` as a divisor of what is 0 where it is: 1 in place of 0."""
    return x + (x == 0.0)


def at_most(x: Tensor, ceiling: float) -> Tensor:
    """``min(x, ceiling)`` for a plain number ``ceiling``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.minimum(x, ceiling) if isinstance(x, np.ndarray) else ceiling if x > ceiling else x
    return x.clamp(max=ceiling)


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return np.where(condition, x, y) if isinstance(condition, np.ndarray) else x if condition else y
    return torch.where(condition, x, y)


def fill_(x: Tensor, mask: Tensor, value: float) -> None:
    """Write ``value`` where a mask, shaped to go with ``x``, is True."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            np.copyto(x, value, where=mask)
            return
    x.masked_fill_(mask, value)


def clip(x: Tensor, bound: Tensor) -> Tensor:
    """``x`` cut to ``[-bound, bound]``."""
    return maximum(minimum(x, bound), -bound)


def real(count: Tensor, like: Tensor) -> Tensor:
    """An integer count in the floating-point type of ``like``."""
    if not is_scripting():
        if isinstance(count, ARRAYS):
            return like.dtype.type(count)
    return count.to(like.dtype)


def started_power(count: Tensor, power: float) -> Tensor:
    """``count^power`` for a real count from 0 on, and 0 for a count of 0 even where the power is 0."""
    return count / at_least(count, 1.0) * count**power


def assign_(x: Tensor, y: Tensor) -> None:
    """Write ``y`` over ``x``, of the same shape."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            x[...] = y
            return
    x.copy_(y)


def increase_(x: Tensor, y: Tensor) -> None:
    """``x += y`` in place, for one number of each learner."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            x[()] = x[()] + y  # NumPy's own += takes three times as long on an array without axes
            return
    x += y


def count_(x: Tensor) -> None:
    """``x += 1`` in place, for one count of each learner."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            x[()] = x[()] + 1
            return
    x += 1


def increase_compensated_(x: Tensor, lost: Tensor | None, y: Tensor) -> None:
    """``x += y`` in place by Kahan's summation: ``x - lost`` is the sum to twice the precision; plainly, without ``lost``."""
    if lost is None:
        increase_(x, y)
        return
    term = y - lost
    total = x + term
    lost[...] = (total - x) - term
    x[...] = total


def roundoff(x: Tensor) -> float:
    """The spacing of floating-point numbers at 1, in the type of ``x``."""
    if not is_scripting():
        if isinstance(x, ARRAYS):
            return 2.0**-52 if isinstance(x, float) or x.itemsize == 8 else 2.0**-23
    if x.element_size() == 8:
        return 2.0**-52
    return 2.0**-23


def autocasts(x: Tensor) -> bool:
    """Whether automatic mixed precision would round the products of a float32 state with ``x``. Eager Python only."""
    return isinstance(x, Tensor) and not x.is_meta and torch.is_autocast_enabled(x.device.type)


def exactly(x: Tensor) -> torch.autocast:
    """A context without automatic mixed precision. Eager Python only."""
    return torch.autocast(x.device.type, enabled=False)


def without_cast(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """For ``nn.Module._apply``: what moves tensors as a function does, and leaves them their type. Eager Python only."""

    def move(value: Tensor) -> Tensor:
        moved = fn(value)
        return moved if moved.dtype is value.dtype else value.to(moved.device)

    return move


def as_array(x: Tensor) -> Any:
    """A tensor on the CPU as a NumPy array, without a copy where none is needed."""
    if x.requires_grad:
        x = x.detach()
    return x.numpy() if not x.is_neg() else x.resolve_neg().numpy()


def is_readable(tensor: Tensor) -> bool:
    """Whether a value of ``tensor`` can be read without leaving a constant behind in a traced program."""
    return type(tensor) in PLAIN and not is_compiling() and not is_tracing()


def is_at_hand(value: Tensor) -> bool:
    """Whether the host can branch on ``value`` without waiting for a device, or fixing the branch in a program."""
    if not is_scripting():
        return not isinstance(value, Tensor) or (value.is_cpu and is_readable(value))
    return True


def may_hold(condition: Tensor) -> bool:
    """Whether a condition holds for any learner, ``(*B)``; yes where that is not at hand."""
    if not is_scripting():
        if isinstance(condition, bool):  # of one learner's numbers
            return condition
    return not is_at_hand(condition) or bool(condition.any())
