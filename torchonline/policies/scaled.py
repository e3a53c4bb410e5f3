"""Policies on raw features, standardised online."""

from torchonline.policies.composed import ComposedPolicy
from torchonline.policies.rules import Rule, as_rule
from torchonline.policies.scaler import StandardScaler
from torchonline.regression.estimator import Estimator


class ScaledPolicy(ComposedPolicy):
    r"""A policy on standardised features: the arms' raw features may have any scale.

    A round::

        k = policy.select(arms)
        policy.step(arms, k, reward)

    The inner policy decides and learns on ``scaler(x)``. :meth:`step` then updates the scaler with x; a decision never does.
    The confidence set is a heuristic while the scaler moves, see :class:`StandardScaler`. With the scaler's ``freeze_after``,
    the estimator restarts when the scaler freezes, and has its guarantee from then on. Without it, the first 32 rounds of
    :class:`AdaptiveRidgeRegression` and :class:`RobustRidgeRegression` are converted to the scaler's new coordinates until
    round 63 (docs/disjoint_arms.md).

    Cost: the inner policy's, plus O(K d) for a decision and O(d) for a step.

    Args:
        policy: a rule of choice, or an estimator for :class:`UCB`, with as many features as the scaler returns.
        scaler: a :class:`StandardScaler` of the policy's ``batch_shape``, dtype and device.

    Shape:
        - inputs: the arms' raw features, ``(*B, ..., K, d)``; see :class:`Policy` for the rest.

    Example:
        >>> policy = ScaledPolicy(RidgeRegression(3), StandardScaler(2))
        >>> arms = torch.tensor([[1000.0, 0.1], [3000.0, 0.2]])
        >>> policy.step(arms, 1, 1.0)
        >>> policy(arms).shape
        torch.Size([2])
    """

    def __init__(self, policy: Rule | Estimator, scaler: StandardScaler) -> None:
        chosen = as_rule("policy", policy)
        if not isinstance(scaler, StandardScaler):
            raise TypeError(f"scaler: expected a StandardScaler, got {type(scaler).__name__}")
        super().__init__(chosen, scaler, chosen.estimator.batch_shape, scaler.dim)
        self._create_buffers()
