"""Gradients of a loss at all points where a learner wants one, in one call."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import shape_text


def gradients(loss: Callable[..., Tensor], learner: Any, *data: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients and values of a loss at a learner's query points, by one vectorised call.

    The cost is that of ``torch.vmap``, some ten steps of a small learner's, for a fleet as for one. Where the gradient is a
    formula, write it: ``learner.queries()`` says where.

    Args:
        loss: of a point ``(d)`` and one learner's data, a number; made of torch operations.
        learner: one with ``queries()``, ``(*B, N, d)``, and ``batch_shape``.
        data: what the loss takes besides, each shaped ``(*B, ...)``: every learner of a fleet has its own.

    Returns:
        Gradients ``(*B, N, d)`` and values ``(*B, N)``. A private learner takes the gradients only: values are not public.

    Raises:
        TypeError: what is in ``data`` is no tensor, or what the loss returns is none.
        ValueError: a tensor of ``data`` does not begin with the learner's batch shape, or the loss is not one number.

    Example:
        >>> learner = DPTOFW(2, horizon=10, epsilon=1.0, delta=0.01)
        >>> x, y = torch.tensor([1.0, 2.0]).double(), torch.tensor(3.0).double()
        >>> gradients(lambda theta, x, y: 0.5 * (x @ theta - y) ** 2, learner, x, y)[0]
        tensor([[-3., -6.],
                [-3., -6.]], dtype=torch.float64)
    """
    batch, queries = learner.batch_shape, learner.queries().detach()
    dims, shape = len(batch), queries.shape
    points = queries.flatten(0, -2).requires_grad_()
    rows = []
    for x in data:
        if not isinstance(x, Tensor):
            raise TypeError(f"data: expected tensors, got {type(x).__name__}")
        if x.shape[:dims] != batch:
            raise ValueError(
                f"data: expected tensors of shape {shape_text((*batch, '...'))}, got {shape_text(x.shape)}"
            )
        rows.append(x.unsqueeze(dims).expand(*shape[:-1], *x.shape[dims:]).flatten(0, dims))
    with torch.enable_grad():
        values = torch.vmap(_of_one(loss))(points, *rows)
        if values.shape != points.shape[:1]:
            raise ValueError(f"loss: expected one number for each point, got shape {shape_text(values.shape[1:])}")
        # A point's value does not depend on the other points, so that the sum has each one's gradient; 0 if on none at all.
        (slopes,) = torch.autograd.grad(values.sum() + 0.0 * points.sum(), points)
    return slopes.reshape(shape), values.detach().reshape(shape[:-1])


def _of_one(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss of one point, which is refused by name if it is no tensor."""

    def call(*arguments: Tensor) -> Tensor:
        value = loss(*arguments)
        if not isinstance(value, Tensor):
            raise TypeError(f"loss: expected one number for each point, as a tensor, got {type(value).__name__}")
        return value

    return call
