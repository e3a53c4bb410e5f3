"""Gradients of a loss at all queries of a learner, in one call."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import shape_text


def gradients(loss: Callable[..., Tensor], learner: Any, *data: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients and values of a loss at a learner's queries.

    Cost: one ``torch.vmap`` call, about ten steps of a small learner. A formula at ``learner.queries()`` is cheaper.

    Args:
        loss: function of a point ``(d)`` and one learner's data, in torch operations, that returns one number.
        learner: a learner with ``queries()`` or ``secret_queries()``, ``(*B, N, d)``, and ``batch_shape``.
        data: further arguments of the loss, tensors of shape ``(*B, ...)``: each learner of a batch has its own. For m records
            a step of a private learner, ``(*B, m, ...)``.

    Returns:
        Gradients ``(*B, N, d)`` and values ``(*B, N)``, or ``(*B, m, N, d)`` and ``(*B, m, N)``. Give a private learner the
        gradients only: values are not public.

    Example:
        >>> learner = DPTOFW(2, horizon=10, epsilon=1.0, delta=0.01)
        >>> x, y = torch.tensor([1.0, 2.0]).double(), torch.tensor(3.0).double()
        >>> gradients(lambda theta, x, y: 0.5 * (x @ theta - y) ** 2, learner, x, y)[0]
        tensor([[-3., -6.],
                [-3., -6.]], dtype=torch.float64)
    """
    # The queries of some private learners must not be published, which the method's name says.
    queries = getattr(learner, "secret_queries", learner.queries)().detach()
    batch = learner.batch_shape
    if (records := getattr(learner, "records_a_step", 1)) > 1:
        batch, queries = (*batch, records), queries.unsqueeze(-3).expand(*batch, records, *queries.shape[-2:])
    dims, shape = len(batch), queries.shape
    points = queries.flatten(0, -2).requires_grad_()
    rows = []
    for x in data:
        if not isinstance(x, Tensor):
            raise TypeError(f"data: expected tensors, got {type(x).__name__}")
        if x.shape[:dims] != batch:
            wanted = shape_text((*batch, "..."))
            raise ValueError(f"data: expected tensors of shape {wanted}, got {shape_text(x.shape)}")
        # A copy, because the loss may work in place.
        rows.append(x.unsqueeze(dims).expand(*shape[:-1], *x.shape[dims:]).clone().flatten(0, dims))

    def value(*arguments: Tensor) -> Tensor:
        result = loss(*arguments)
        if not isinstance(result, Tensor):
            raise TypeError(f"loss: expected one number for each point, as a tensor, got {type(result).__name__}")
        return result

    with torch.enable_grad():
        values = torch.vmap(value)(points, *rows)
        if values.shape != points.shape[:1]:
            raise ValueError(f"loss: expected one number for each point, got shape {shape_text(values.shape[1:])}")
        # A value depends on its own point only. 0.0 * points is for a loss that ignores the point.
        (slopes,) = torch.autograd.grad(values.sum() + 0.0 * points.sum(), points)
    return slopes.reshape(shape), values.detach().reshape(shape[:-1])
