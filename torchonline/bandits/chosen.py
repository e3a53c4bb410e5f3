"""What a policy says of the arms that were chosen: predictions and intervals."""

from typing import Any

import torch
from torch import Tensor

from torchonline.bandits.arm_ids import places_of
from torchonline.bandits.composed import ComposedPolicy, learner_of
from torchonline.bandits.disjoint import DisjointArms, arms_last, for_each_arm
from torchonline.bandits.policies import Policy
from torchonline.core.ops import of_chosen


def predicted(policy: Policy | ComposedPolicy, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the predicted mean rewards of the chosen arms, and their bounds.

    These are the prediction, the lower and the upper confidence bound by the present state, ``(*B, ...)`` each; see
    :meth:`Estimator.interval`. No state changes, and nothing is drawn.

    Args:
        policy: a :class:`Policy`, or one with a scaler or with a model for each arm.
        x: as the policy's ``select`` takes them: arms ``(*B, ..., K, d)``, or contexts ``(*B, ..., d)``.
        action: chosen arms, ``(*B, ...)``.

    Example:
        >>> policy = OFUL(2, theta_bound=3.0)
        >>> predicted(policy, torch.eye(2), torch.tensor(1))
        (tensor(0., dtype=torch.float64), tensor(-3., dtype=torch.float64), tensor(3., dtype=torch.float64))
    """
    estimator = policy.estimator
    x = x.detach().to(estimator.theta_hat.dtype)
    with torch.no_grad():
        if isinstance(policy, ComposedPolicy):
            x = policy._features(x)
        if isinstance(policy, DisjointArms):
            dims = learner_of(policy).batch_dims
            rows = for_each_arm(x, dims, policy.actions, False)
            found = [arms_last(value, dims) for value in (estimator(rows), *estimator.interval(rows))]
            mean, low, high = (of_chosen(value, places_of(policy, action)) for value in found)
        else:
            x = of_chosen(x, action)
            mean, (low, high) = estimator(x), estimator.interval(x)
    return mean, low, high


def chosen_probability(policy: Any, x: Tensor, action: Tensor) -> Tensor | None:
    """Return the probability with which the chosen arms were chosen, or None.

    It is 1 for a policy without random choices, and None for one whose scores are drawn, of which probabilities are estimates.
    Arguments are those of :func:`predicted`.
    """
    inner = policy.policy if isinstance(policy, ComposedPolicy) else policy
    if inner.draws > 1:
        return None
    if not inner.is_random and getattr(policy, "is_ucb", True):
        return torch.ones(action.shape, dtype=policy.estimator.theta_hat.dtype, device=action.device)
    return of_chosen(policy.probabilities(x), places_of(policy, action))
