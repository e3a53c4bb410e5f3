"""Predictions, intervals and propensities of the chosen arms."""

import torch
from torch import Tensor

from torchonline.core.ops import of_chosen
from torchonline.policies.policy import Policy


def predicted(policy: Policy, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the predicted mean rewards of the chosen arms, and their bounds.

    Return the prediction and the lower and upper confidence bound under the present state, ``(*B, ...)`` each; see
    :meth:`Estimator.interval`. Changes no state and draws nothing.

    Args:
        policy: a policy without an encoder, whose arms are not fixed.
        x: inputs of the policy's ``select``: arms ``(*B, ..., K, d)``, or contexts ``(*B, ..., d)``.
        action: chosen arms, ``(*B, ...)``.

    Example:
        >>> policy = OFUL(2, theta_bound=3.0)
        >>> predicted(policy, torch.eye(2), torch.tensor(1))
        (tensor(0., dtype=torch.float64), tensor(-3., dtype=torch.float64), tensor(3., dtype=torch.float64))
    """
    with torch.no_grad():
        return policy._known_of_chosen(x.detach().to(policy._like().dtype), policy._placed(action))


def chosen_probability(policy: Policy, x: Tensor, action: Tensor) -> Tensor | None:
    """Return the propensity of the chosen arms, or None.

    The propensity is 1 for a deterministic policy. It is None if scores are drawn, because the probabilities are then
    estimates. Arguments are as in :func:`predicted`.
    """
    if policy._rule.draws > 1:
        return None
    if policy.is_deterministic():
        return torch.ones(action.shape, dtype=policy._like().dtype, device=action.device)
    return of_chosen(policy.probabilities(x), policy._placed(action))
