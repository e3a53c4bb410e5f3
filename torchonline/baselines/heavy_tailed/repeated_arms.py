"""Estimators that learn from several rewards of the same arm at a time."""

import torch
from torch import Tensor

from torchonline.bandits.estimator import Estimator
from torchonline.core.backend import may_hold
from torchonline.core.checks import positive_integer
from torchonline.core.ops import dot, matvec


class EpochEstimator(Estimator):
    """Base of estimators that wait for ``repeats`` rewards of one arm, an epoch, and then learn from all of them.

    Within an epoch the statistics stand still, so a UCB or greedy policy on fixed arms plays the same arm all through an
    epoch of its own accord. An epoch that another arm interrupts is dropped: where arms change from round to round,
    such a learner never learns; and who leaves an epoch because of its rewards leaves the others biased. ``epochs`` counts
    those that it has learnt from.
    """

    epoch_x: Tensor
    epoch_reward: Tensor
    epochs: Tensor
    pulls: Tensor

    def _wait_for(self, repeats: int) -> None:
        """Set the length of an epoch, before the buffers are made."""
        self.repeats = positive_integer("repeats", repeats)
        self.is_small = False

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "epoch_x": torch.zeros(self.dim, dtype=torch.float64),
            "epoch_reward": torch.zeros(self.repeats, dtype=torch.float64),
            "epochs": torch.zeros((), dtype=torch.int64),
            "pulls": torch.zeros((), dtype=torch.int64),
        }

    def _learn_epoch(self, x: Tensor, rewards: Tensor, ends: Tensor) -> None:
        """Learn from an epoch, ``(*B, d)`` and ``(*B, repeats)``, where it ``ends``, ``(*B)`` of 0 and 1."""
        raise NotImplementedError

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._check_growth(x, dot(x, matvec(self.V_inv, x)))
        goes_on = (x == self.epoch_x).all(-1)
        pulls = self.pulls * goes_on + 1
        ends = pulls == self.repeats
        x = x.clone()
        rewards = self.epoch_reward.scatter(-1, pulls.unsqueeze(-1) - 1, reward.unsqueeze(-1))
        if may_hold(ends):
            self._learn_epoch(x, rewards, ends.to(x.dtype))
        self.epoch_x.copy_(x)
        self.epoch_reward.copy_(rewards)
        self.pulls.copy_(pulls * ~ends)
        self.epochs += ends
        self._end_round_()
