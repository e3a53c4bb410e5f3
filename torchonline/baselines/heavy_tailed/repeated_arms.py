"""Base of the estimators that learn from several rewards of one arm at a time."""

from typing import Any

import torch
from torch import Tensor

from torchonline.bandits.estimator import Estimator
from torchonline.core.backend import may_hold
from torchonline.core.checks import non_negative, positive_integer, within
from torchonline.core.ops import dot, matvec


class EpochEstimator(Estimator):
    """Base of the estimators that learn from an epoch of rewards at a time.

    An epoch is ``repeats`` rewards of one arm. The statistics stay constant during an epoch. So a UCB or greedy policy on fixed
    arms plays one arm throughout each epoch. If another arm interrupts an epoch, the learner drops the epoch. So it never learns
    when arms change in every round, and a caller who leaves epochs because of their rewards biases the remaining ones. ``epochs``
    counts the completed epochs.
    """

    renamed = {"epoch_reward": "epoch_rewards", "pulls": "epoch_pulls"}

    epoch_x: Tensor
    epoch_rewards: Tensor
    epoch_pulls: Tensor
    epochs: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float,
        noise_scale: float,
        ridge: float | None,
        delta: float,
        **options: Any,
    ) -> None:
        super().__init__(
            dim,
            noise_scale=non_negative("noise_scale", noise_scale),
            ridge=dim if ridge is None else ridge,
            **options,
        )
        self.horizon = positive_integer("horizon", horizon)
        self.moment_order = within("moment_order", moment_order, 1.0, 2.0, closed=True)
        self.delta = within("delta", delta, 0.0, 1.0)
        # Sorting, medians and distances run on tensors.
        self.is_small = False

    def _set_repeats(self, repeats: int) -> None:
        """Set the length of an epoch, before the buffers are created."""
        self.repeats = positive_integer("repeats", repeats)

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "epoch_x": torch.zeros(self.dim, dtype=torch.float64),
            "epoch_rewards": torch.zeros(self.repeats, dtype=torch.float64),
            "epochs": torch.zeros((), dtype=torch.int64),
            "epoch_pulls": torch.zeros((), dtype=torch.int64),
        }

    def _learn_epoch(self, x: Tensor, rewards: Tensor, ends: Tensor) -> None:
        """Learn from an epoch in the learners where it ends.

        Args:
            x: the arm, ``(*B, d)``.
            rewards: ``(*B, repeats)``.
            ends: 1 where the epoch ends, otherwise 0, ``(*B)``.
        """
        raise NotImplementedError

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._check_growth(x, dot(x, matvec(self.V_inv, x)))
        goes_on = (x == self.epoch_x).all(-1)
        pulls = self.epoch_pulls * goes_on + 1
        ends = pulls == self.repeats
        x = x.clone()
        rewards = self.epoch_rewards.scatter(-1, pulls.unsqueeze(-1) - 1, reward.unsqueeze(-1))
        if may_hold(ends):
            self._learn_epoch(x, rewards, ends.to(x.dtype))
        self.epoch_x.copy_(x)
        self.epoch_rewards.copy_(rewards)
        self.epoch_pulls.copy_(pulls * ~ends)
        self.epochs += ends
        self._end_round_()
