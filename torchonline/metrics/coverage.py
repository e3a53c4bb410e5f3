"""Coverage of confidence sets."""

from typing import Any

import torch
from torch import Tensor

from torchonline.core.inputs import check_tensor


def has_missed(estimator: Any, theta: Tensor) -> Tensor:
    r"""Return whether the confidence set misses the parameter: ``(*B)``; True for NaN.

    The set misses it if :math:`|x^\top(\hat\theta-\theta)| > \text{radius}\cdot\text{width}(x)` for some x.

    Args:
        estimator: an object with ``theta_hat``, ``radius()`` and ``width_matrix()``.
        theta: true parameter, ``(*B, d)``, known in simulations.

    Example:
        >>> has_missed(OFUL(2).estimator, torch.tensor([0.6, 0.8]).double())
        tensor(False)
    """
    difference = (estimator.theta_hat - check_tensor("theta", theta, estimator.theta_hat)).unsqueeze(-1)
    square = difference.mT @ torch.linalg.solve(estimator.width_matrix(), difference)
    return ~(square.squeeze((-2, -1)).sqrt() <= estimator.radius())
