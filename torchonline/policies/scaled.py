"""Policies on features as they come."""

from torch import Tensor

from torchonline.policies.composed import ComposedPolicy
from torchonline.policies.rules import Rule, as_rule
from torchonline.policies.scaler import StandardScaler
from torchonline.regression.blocks import learns_at_once
from torchonline.regression.estimator import Estimator


class ScaledPolicy(ComposedPolicy):
    r"""A policy on standardised features: the arms' raw features may have any scale.

    A round::

        k = policy.select(arms)
        policy.step(arms, k, reward)

    The inner policy decides and learns on ``scaler(x)``. :meth:`step` then updates the scaler with x; deciding never does. The
    confidence set is a heuristic while the scaler moves, see :class:`StandardScaler`: with the scaler's ``freeze_after``, the
    estimator starts anew when the scaler freezes, and has its guarantee from then on. Without it, the first 32 rounds of
    :class:`AdaptiveRidgeRegression` and :class:`RobustRidgeRegression` are put into the scaler's new coordinates until round 63
    (docs/disjoint_arms.md).

    Cost: that of the inner policy, O(K d) more for a decision and O(d) more for a step.

    Args:
        policy: a rule of choice, or an estimator to play by :class:`UCB`, of as many features as the scaler returns.
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

    def _rows_of_next_part(self, done: int, block_size: int | None, mask: Tensor | None) -> int:
        moving = self._rounds_until_freeze()
        if moving > 0:
            return min(moving, 8192)
        return self.policy.estimator._rows_of_next_part(done, block_size, mask)

    def _learn_part(
        self,
        x: Tensor,
        action: Tensor | None,
        reward: Tensor,
        noise_scale: Tensor,
        mask: Tensor | None,
        block_size: int | None,
    ) -> None:
        rows = self.batch_dims
        if self._learns_blocks_now():
            self._learn_at_once(x, reward, noise_scale, mask)
        else:
            for i in range(x.size(rows)):
                pay = reward.select(rows, i)
                self._learn_round(x.select(rows, i), pay, pay, noise_scale.select(rows, i))

    def _learn_at_once(self, x: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor | None) -> None:
        """Learn from n rounds of each learner at once, or from those in a mask.

        The scaler must have frozen.
        """
        self.policy.estimator._learn_block(self._features(x), reward, noise_scale, mask)
        self._count_block_(self.policy.estimator._count_rows(x), mask)

    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        features = self._features(x)
        self.policy.estimator._learn_round(features, reward, noise_scale)
        # One estimator learns them all: the arm says nothing.
        self._end_round_(x, features, 0 * self.rounds, noise_scale)

    # TorchScript does not compile the methods below.

    def _learn_block(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor) -> None:
        self._learn_at_once(x, reward, noise_scale, mask)

    def _blocks_are_rounds(self) -> bool:
        return learns_at_once(type(self), "_learn_part", ("_learn_round",))

    def _to_score(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.policy._to_score(x, mask)
