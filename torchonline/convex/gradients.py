"""Gradients of a loss at all points where a learner wants one, in one call."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def gradients(loss: Callable[..., Tensor], learner: Any, *data: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients and values of a loss at a learner's query points, by one vectorised call.

    Args:
        loss: of a point ``(d)`` and one learner's data, a number; made of torch operations.
        learner: one with ``queries()``, ``(*B, N, d)``, and ``batch_shape``.
        data: what the loss takes besides, each shaped ``(*B, ...)``: every learner of a fleet has its own.

    Returns:
        Gradients ``(*B, N, d)`` and values ``(*B, N)``. A private learner takes the gradients only: values are not public.

    Example:
        >>> learner = DPTOFW(2, horizon=10, epsilon=1.0, delta=0.01)
        >>> x, y = torch.tensor([1.0, 2.0]).double(), torch.tensor(3.0).double()
        >>> gradients(lambda theta, x, y: 0.5 * (x @ theta - y) ** 2, learner, x, y)[0]
        tensor([[-3., -6.],
                [-3., -6.]], dtype=torch.float64)
    """
    call = torch.vmap(torch.func.grad_and_value(loss), in_dims=(0, *(None for _ in data)))
    for _ in learner.batch_shape:
        call = torch.vmap(call)
    slopes, values = call(learner.queries(), *data)
    return slopes, values
