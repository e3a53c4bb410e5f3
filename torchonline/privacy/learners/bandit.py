"""Base class of the private contextual bandits."""

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.checks import check_shape, positive, positive_integer, shape_text
from torchonline.core.inputs import ArrayLike, check_mask
from torchonline.privacy.clipping import clipped
from torchonline.privacy.learners.base import PrivateLearner, PrivateOptions
from torchonline.privacy.learners.released import highest
from torchonline.privacy.records import record_actions, record_values


class PrivateBandit(PrivateLearner):
    r"""Base class of the private bandits: K arms, one context and person per round.

    A round, for the caller::

        k = bandit.select(x)
        bandit.step(x, k, reward)    # or bandit.step(None), if no reward has come

    Guarantee, joint differential privacy: two worlds differ in person i, in her context and in the reward that each arm would pay
    her. In both worlds an adversary who sees the public states may choose all later persons. The joint law of all public states
    and of all actions :math:`a_j,\ j \ne i`, is (epsilon, delta)-private in person i, even if all others collude.

    Her own action depends on her data, so there is no guarantee if her action, her reward or a log of :math:`(x_i, a_i, r_i)` is
    published. Besides the conditions of :class:`~torchonline.privacy.learners.base.PrivateLearner`, each person has one reward.
    The reward of person j must depend on her, on :math:`a_j` and on public states only, never on the action or the reward of
    another person (no shared stock, no interference).

    A step takes all rewards that arrived in its round, including late ones, clips the contribution of each at the present state,
    and adds them up. The sum is also clipped, to the length of 256 contributions. The clock counts rounds: one step per reward
    would shift everybody after it, and would not be private. A person moves one summand, even if the delay of her reward depends
    on her data.

    Values are never refused, because an error would reveal them. A context with NaN or infinity counts as 0 in a decision. Its
    record contributes 0, and so does a record with a non-finite reward or an invalid arm. A decision without an available arm is
    arm 0.

    Args:
        arms: K, the number of arms.
        feature_clip, reward_clip: the largest length of a context, to which longer ones are scaled down, and the largest
            magnitude of a reward, to which larger ones are clipped.
        dim, options: as in ``PrivateLearner``.
    """

    if TYPE_CHECKING:

        def __call__(self, inputs: ArrayLike) -> Tensor: ...

    feature_norm: float  # the order of the norm that contexts are clipped in
    statistics_depend_on: tuple[str, ...] = ("arm_count", "feature_clip", "reward_clip")
    argument_of = {"arm_count": "arms"}

    def __init__(
        self, dim: int, *, arms: int, feature_clip: float, reward_clip: float, **options: Unpack[PrivateOptions]
    ) -> None:
        super().__init__(dim, **options)
        if self.source.name == "discrete":  # contributions are not integers
            raise ValueError("noise_source: expected 'torch' or 'csprng', got 'discrete'")
        self.arm_count = positive_integer("arms", arms)
        self.feature_clip = positive("feature_clip", feature_clip)
        self.reward_clip = self._clip_bound("reward_clip", reward_clip)

    def _learn(self, x: Tensor, action: Tensor, reward: Tensor, step: int) -> None:
        """Learn from clipped contexts ``(*B, m, d)``, arms and rewards ``(*B, m)``."""
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the score of each arm, float64: ``(*B, ..., d)`` to ``(*B, ..., K)``."""
        self._refuse_tracing()
        x = self._checked_context(inputs, None)
        with torch.no_grad():
            return self.released()(x)

    @one_at_a_time
    def select(self, inputs: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
        """Choose an arm for each decision, the lowest of ties: int64, ``(*B, ...)``.

        The arm is for the decision's own person only. The state does not change.

        Args:
            inputs: contexts, ``(*B, ..., d)``: one decision, or many from the same state.
            mask: True where an arm is available, ``(*B, ..., K)``; None for all arms.
        """
        self._refuse_tracing()
        x = self._checked_context(inputs, None)
        if mask is not None:
            # Its values are never checked: a decision without an available arm is not an error.
            mask = check_mask("mask", mask, (*x.shape[:-1], self.arm_count), x, validate=False)
        with torch.no_grad():
            return self._select(x, mask)

    @one_at_a_time
    def step(self, inputs: ArrayLike | None, action: ArrayLike | None = None, reward: ArrayLike | None = None) -> None:
        """End a round: learn from the rewards that arrived, and publish the next state.

        Args:
            inputs: the context of the reward, ``(*B, d)``, or the contexts of all rewards that arrived, ``(*B, m, d)``, m >= 0.
                None if no reward has arrived.
            action: the arm of each reward, int64, ``(*B)`` or ``(*B, m)``.
            reward: the rewards, shaped like ``action``.
        """
        step = self._next_step()
        self._check_parts(step)
        with torch.no_grad(), np.errstate(all="ignore"):  # the step of a small arm runs on arrays
            arrived = self._arrived(inputs, action, reward)
            self._take(step, self._learn, *arrived, step)

    def _check_parts(self, step: int) -> None:
        """Raise unless the parts are at the step before this one."""

    def _arm_by_clock(self, step: int) -> int | None:
        """Return the arm that the clock decides; None if the statistics decide."""
        return None

    def _select(self, x: Tensor, mask: Tensor | None) -> Tensor:
        arm = self._arm_by_clock(int(self.rounds) + 1)
        if arm is None:
            return self.released().select(x, mask)
        preference = x.new_zeros((*x.shape[:-1], self.arm_count))
        preference[..., arm] = 1.0
        return highest(preference, mask)

    def _checked_context(self, x: ArrayLike, most: int | None) -> Tensor:
        """Return float64 contexts with at most ``most`` dimensions between ``*B`` and d."""
        x = record_values("inputs", x, self.constants)
        between = x.dim() - self.batch_dims - 1
        fits = between >= 0 and x.shape[: self.batch_dims] == self.batch_shape and x.size(-1) == self.dim
        if not fits or (most is not None and between > most):
            wanted = shape_text((*self.batch_shape, "..." if most is None else "[m]", self.dim))
            raise ValueError(f"inputs: expected shape {wanted}, got {shape_text(x.shape)}")
        return x

    def _arrived(self, x: ArrayLike | None, action: Any, reward: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return clipped contexts ``(*B, m, d)``, arms and rewards ``(*B, m)``, or raise."""
        if x is None and not (action is None and reward is None):
            raise ValueError("inputs: expected the context of the reward, got None")
        # Built in every step, so that a missing reward takes as long as any other. A context of 0 contributes nothing.
        none = self.constants.new_zeros((*self.batch_shape, self.dim))
        none_of_each = none, none[..., 0].to(torch.int64), none[..., 0]
        x, action, reward = none_of_each if x is None else (x, action, reward)
        x = self._checked_context(x, 1)
        action = record_actions("action", action, x.device)
        check_shape("action", action, x.shape[:-1])
        reward = record_values("reward", reward, self.constants)
        check_shape("reward", reward, x.shape[:-1])
        if x.dim() == self.batch_dims + 1:
            x, action, reward = x.unsqueeze(-2), action.unsqueeze(-1), reward.unsqueeze(-1)
        counts = reward.isfinite() & x.isfinite().all(-1)
        x = torch.where(counts.unsqueeze(-1), x, 0.0)
        reward = torch.where(counts, reward.clamp(-self.reward_clip, self.reward_clip), 0.0)
        return clipped(x, self.feature_clip, self.feature_norm), action, reward
