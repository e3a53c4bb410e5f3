"""The statistics of new arms that start from a prior."""

import math
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import check_values, positive, shape_text
from torchonline.core.inputs import check_tensor
from torchonline.core.ops import along, at_least, matvec, real
from torchonline.core.precision_matrix import factored, log_det, solved
from torchonline.regression.adaptive_ridge import AdaptiveRidgeRegression, RobustRidgeRegression
from torchonline.regression.estimator import Estimator
from torchonline.regression.ridge import RidgeRegression

# The estimators whose arms can have a prior, with their solutions: the buffers that are V^-1 times a sum over rounds.
SOLUTIONS: dict[type, tuple[str, ...]] = {
    RidgeRegression: ("theta_hat",),
    AdaptiveRidgeRegression: ("theta_hat", "ones_hat"),
    RobustRidgeRegression: ("theta_hat", "ones_hat"),
}


def prior_state(batch: Estimator, prior: Any, rounds: Any) -> dict[str, Tensor]:
    """Return the buffers of an arm with a prior, ``(*B, 1, ...)``, by name; or raise.

    ``batch`` has the arms' estimators. The arguments are as in :meth:`DisjointArms.add_actions`.
    """
    if prior is None:
        if rounds is not None:
            raise TypeError(f"rounds: expected None without a prior, got {rounds!r}")
        return {}
    solutions, arms = SOLUTIONS.get(type(batch)), batch.batch_dims - 1
    if solutions is None:
        known = ", ".join(one.__name__ for one in SOLUTIONS)
        raise TypeError(f"prior: expected arms over one of {known}, got {type(batch).__name__}")
    if rounds is None:
        raise TypeError("rounds: expected the number of rounds that the prior counts for, got None")
    count = positive("rounds", rounds)
    start = batch.ridge * torch.eye(batch.dim, dtype=batch.V.dtype, device=batch.V.device)
    if isinstance(prior, str):
        if prior != "pooled":
            raise ValueError(f"prior: expected 'pooled', a parameter or None, got {prior!r}")
        weight = count / at_least(real(batch.rounds.sum(arms), start), 1.0)
        squares = (batch.V - start).sum(arms)
        V = start + along(weight, squares) * squares
        sums = {name: matvec(batch.V, batch.get_buffer(name)).sum(arms) for name in solutions}
        sums = {name: along(weight, one) * one for name, one in sums.items()}
    else:
        if len(solutions) > 1:
            wanted = "expected 'pooled' or None, because predictions also depend on the mean reward of all arms,"
            raise TypeError(f"prior: {wanted} for {type(batch).__name__}, got a parameter")
        theta = check_tensor("prior", prior, start).detach()
        if theta.shape != (batch.dim,):
            raise ValueError(f"prior: expected shape {shape_text((batch.dim,))}, got {shape_text(theta.shape)}")
        check_values("prior", theta)
        V = ((1.0 + count / batch.ridge) * start).expand(*batch.batch_shape[:arms], -1, -1)
        sums = {"theta_hat": matvec(V, theta.expand(V.shape[:-1]))}
    exact, factor, inverse = factored(V, None)
    found = {"V": exact, "V_inv": inverse}
    found |= {name: solved(factor, one.unsqueeze(-1)).squeeze(-1) for name, one in sums.items()}
    if "logdet" in batch._buffers:
        found["logdet"] = at_least(log_det(factor) - batch.dim * math.log(batch.ridge), 0.0)
    return {name: value.unsqueeze(arms) for name, value in found.items()}
