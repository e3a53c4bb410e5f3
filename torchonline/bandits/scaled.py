"""Policies on features as they come."""

import torch
from torch import Tensor

from torchonline.bandits.arguments import checked_rounds, rounds_of_arrays
from torchonline.bandits.blocks import learns_at_once
from torchonline.bandits.composed import ComposedPolicy, as_policy, learn_blocks_in_turn
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import Policy
from torchonline.bandits.policy_learner import in_turn
from torchonline.bandits.scaler import RunningScaler
from torchonline.core.backend import in_python
from torchonline.core.inputs import ArrayLike


class ScaledPolicy(ComposedPolicy):
    r"""A policy on standardised features: the arms' raw features may have any scale.

    A round::

        k = policy.select(arms)
        policy.step(arms[k], reward)

    The inner policy decides and learns on ``scaler(x)``. :meth:`step` then updates the scaler with x; deciding never does. The
    confidence set is a heuristic while the scaler moves, see :class:`RunningScaler`: with the scaler's ``freeze_after``, the
    estimator starts anew when the scaler freezes, and has its guarantee from then on. Without it, the first 32 rounds of
    :class:`AdaptiveRidgeRegression` and :class:`RobustRidgeRegression` are put into the scaler's new coordinates until round 63
    (docs/disjoint_arms.md).

    Cost: that of the inner policy, O(K d) more for a decision and O(d) more for a step.

    Args:
        policy: a :class:`Policy`, or an estimator to play by :class:`UCB`, of as many features as the scaler returns.
        scaler: a :class:`RunningScaler` of the policy's ``batch_shape``, dtype and device.

    Shape:
        - arms: ``(*B, ..., K, d)``; x: ``(*B, d)`` for one round, ``(*B, n, d)`` for n; reward: ``(*B)`` or ``(*B, n)``.

    Example:
        >>> policy = ScaledPolicy(RidgeRegression(3), RunningScaler(2))
        >>> arms = torch.tensor([[1000.0, 0.1], [3000.0, 0.2]])
        >>> policy.step(arms, torch.tensor([0.0, 1.0]))
        >>> policy(arms).shape
        torch.Size([2])
    """

    context_name, item_dims = "arms", 2

    def __init__(self, policy: Policy | Estimator, scaler: RunningScaler) -> None:
        chosen = as_policy("policy", policy)
        if not isinstance(scaler, RunningScaler):
            raise TypeError(f"scaler: expected a RunningScaler, got {type(scaler).__name__}")
        super().__init__(chosen, scaler, chosen.estimator.batch_shape, scaler.dim)
        self._create_buffers()

    def _scores(self, context: Tensor) -> Tensor:
        return self.policy.forward(self._features(context))

    @in_turn
    def _step_in_python(self, x: ArrayLike, reward: ArrayLike, *, noise_scale: ArrayLike | None = None) -> None:
        x, reward, scale, is_one = checked_rounds(self, self._state(), x, reward, noise_scale)
        view = self.view_for(x) if self.is_small else None
        if view is not None:
            rounds = rounds_of_arrays(self, view.learner, x, reward, scale, is_one)
            self._run(view, view.learner._learn_round, rounds)
            return
        self._learn_tensors("x", (x, reward, scale, is_one))

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the rewards of decisions, in order: see :meth:`Estimator.step`."""
        with torch.no_grad():
            x, reward = x.detach().to(self.policy.estimator.theta_hat.dtype), reward.detach()
            reward = reward.to(x.dtype)
            scale = self._own_scale(reward) if noise_scale is None else noise_scale.detach().to(x.dtype)
            rows = self.batch_dims
            if x.dim() == rows + 1:
                self._learn_round(x, reward, scale)
            else:
                for i in range(x.size(rows)):
                    self._learn_round(x.select(rows, i), reward.select(rows, i), scale.select(rows, i))

    def _learn_blocks_in_python(
        self, x: ArrayLike, reward: ArrayLike, *, noise_scale: ArrayLike | None = None, block_size: int | None = None
    ) -> None:
        learn_blocks_in_turn(self, x, reward, noise_scale, block_size)

    @torch.jit.export
    @in_python(_learn_blocks_in_python)
    def learn(
        self, x: Tensor, reward: Tensor, noise_scale: Tensor | None = None, block_size: int | None = None
    ) -> None:
        """Learn from the rewards of many decisions: see :meth:`Estimator.learn`.

        While the scaler moves, the rounds are learnt in order, as by :meth:`step`. Blocks begin when the scaler has frozen.
        """
        self._learn_log(self.policy.estimator.theta_hat, x, None, reward, noise_scale, None, block_size)

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
                self._learn_round(x.select(rows, i), reward.select(rows, i), noise_scale.select(rows, i))

    def _learn_at_once(self, x: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor | None) -> None:
        """Learn from n rounds of each learner at once, or from those in a mask.

        The scaler must have frozen.
        """
        self.policy.estimator._learn_block(self._features(x), reward, noise_scale, mask)
        self._count_block_(self.policy.estimator._count_rows(x), mask)

    def _learn_round(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn from a round of each learner; start anew where the scaler freezes."""
        features = self._features(x)
        self.policy.estimator._learn_round(features, reward, noise_scale)
        # One estimator learns them all: the arm says nothing.
        self._end_round_(x, features, 0 * self.rounds, noise_scale)

    # TorchScript does not compile the methods below.

    def _blocks_are_rounds(self) -> bool:
        return learns_at_once(type(self), "_learn_part", ("_learn_round",))

    def _to_score(self, context: Tensor, mask: Tensor | None) -> Tensor:
        return context.detach() if mask is None else self.policy._arms_to_score(context.detach(), mask)
