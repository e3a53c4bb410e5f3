"""Arms with features of their own, and a master that learns which radius pays."""

from typing import Any

import torch
from torch import Tensor

from torchonline.bandits.arguments import checked_responses
from torchonline.bandits.blocks import learn_by_step
from torchonline.bandits.composed import ComposedPolicy
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import UCB
from torchonline.bandits.policy_learner import in_turn
from torchonline.bandits.radius_multiples import RadiusMultiples
from torchonline.bandits.scaler import RunningScaler
from torchonline.core.backend import in_python
from torchonline.core.checks import shape_text
from torchonline.core.inputs import ArrayLike
from torchonline.core.ops import of_chosen


class SharedRadiusMaster(RadiusMultiples, ComposedPolicy):
    r"""Arms with features, one estimator, and a master that learns which radius pays.

    It is the master of :class:`RadiusMaster`. A round::

        k = policy.select(arms)
        policy.step(arms, k, reward)

    :meth:`step` needs all arms of the decision, because it computes which multiples named the played arm. Everything else is as
    in :class:`RadiusMaster`: the rules, the gains, what is a heuristic, and the guarantee of ``"exp4"``, with M in place of
    min(K, M): 4 sqrt(T M log M). K may vary from round to round.

    Cost: O(K m^2) for a decision and for a step.

    Args:
        estimator: of m features; its radius is what the multiples multiply.
        scales: the M multiples, above 0. Keep 1, so that the estimator's own choice is never out of reach.
        rule: "ucb" or "exp4".
        reward_range: lowest and highest reward; None for gains that are ranks.
        scaler: a :class:`RunningScaler` of the arms' features with m outputs; None if they need none.

    Shape:
        - arms: ``(*B, ..., K, d)``, with d = m if there is no scaler; scores ``(*B, ..., K)``.
        - :meth:`step`: arms ``(*B, K, d)``, action and reward ``(*B)``; or ``(*B, n, K, d)`` and ``(*B, n)`` for n rounds.
        - ``plays``, ``gains``, ``losses``, ``recent``: as in :class:`RadiusMaster`.

    Example:
        >>> policy = SharedRadiusMaster(RidgeRegression(2))
        >>> arms = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
        >>> policy.step(arms, policy.select(arms), 1.0)
        >>> int(policy.rounds)
        1

    Reference:
        That of :class:`RadiusMaster`, for EXP4-IX.
    """

    context_name, item_dims = "arms", 2

    def __init__(
        self,
        estimator: Estimator,
        *,
        scales: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01),
        rule: str = "ucb",
        reward_range: tuple[float, float] | None = None,
        scaler: RunningScaler | None = None,
    ) -> None:
        self._set_options(estimator, scales, rule, reward_range)
        dim = scaler.dim if isinstance(scaler, RunningScaler) else estimator.dim
        super().__init__(UCB(estimator), scaler, estimator.batch_shape, dim)
        self._create_buffers()

    def _most_named(self) -> int:
        return len(self.scales)

    def _estimates(self, context: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy.estimator.estimate_and_bonus(self._features(context))

    @in_turn
    def _step_in_python(
        self, arms: ArrayLike, action: ArrayLike, reward: ArrayLike, *, noise_scale: ArrayLike | None = None
    ) -> None:
        self._learn_decisions(self._checked_decisions(arms, reward, noise_scale), action)

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, arms: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from the rewards of decisions, in order.

        Args:
            arms: all arms of the decision, ``(*B, K, d)``; or ``(*B, n, K, d)`` for n rounds.
            action: the chosen arm, ``(*B)`` or ``(*B, n)``; an integer, a list or an int64 tensor.
            reward: shaped like ``action``, in the units of the estimator's ``noise_scale``.
            noise_scale: see :meth:`Estimator.step`; shaped like ``action``.

        Raises:
            TypeError: an argument holds no real numbers, or ``action`` no integers.
            ValueError: a shape, device or value is wrong. No buffer has changed.
        """
        self._learn_actions(arms, action, reward, noise_scale)

    def _learn_blocks_in_python(
        self,
        arms: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        *,
        noise_scale: ArrayLike | None = None,
        block_size: int | None = None,
    ) -> None:
        learn_by_step(self, block_size, None, arms, action, reward, noise_scale=noise_scale)

    @torch.jit.export
    @in_python(_learn_blocks_in_python)
    def learn(
        self,
        arms: Tensor,
        action: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None = None,
        block_size: int | None = None,
    ) -> None:
        """Learn from the rewards of many decisions, in order, as :meth:`step` does."""
        self._learn_actions(arms, action, reward, noise_scale)

    def _learn_round(self, arms: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        agree, x = self._agreement(arms, action), of_chosen(arms, action)
        # The estimator may refuse the round, so it learns before anything else is written.
        features = self._features(x)
        self.policy.estimator._learn_round(features, reward, noise_scale)
        self._credit_(agree, reward)
        self._end_round_(x, features, action, noise_scale)

    # TorchScript does not compile the method below.

    def _checked_decisions(self, arms: Any, reward: Any, noise_scale: Any) -> tuple[Tensor, Any, Tensor | None, bool]:
        """Return a step's arguments, as ``checked_rounds`` does."""
        arms, state = self._checked(arms, None)[0], self._state()
        extra = arms.dim() - self.batch_dims - 2
        if extra > 1:
            wanted = shape_text((*self.batch_shape, "n", "K", self.dim))
            raise ValueError(f"arms: expected shape {wanted}, got {shape_text(arms.shape)}")
        reward, noise_scale = checked_responses("reward", reward, noise_scale, state, arms.shape[:-2])
        return arms, reward, noise_scale, extra == 0
