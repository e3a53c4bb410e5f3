"""torchonline behind the interface of the rivals."""

from typing import Any

import numpy as np
import torch
from torch import nn

import torchonline
from torchonline.core.options import rebuilt
from torchonline.models import BanditHead
from torchonline.regression.estimator import Estimator


class TorchOnline:
    """The library's ``torchonline.bandit``, on raw features, in a ``BanditHead`` without an encoder.

    With options, it is put together from the same parts: ``ridge``, in units of the default's; ``radius_scale``; and
    ``magnitudes`` and ``kind``, which are ``magnitudes`` and ``rewards`` of ``torchonline.bandit``.
    """

    def __init__(
        self,
        dim: int,
        actions: int,
        rewards: str,
        seed: int,
        magnitudes: bool | None = None,
        kind: str | None = None,
        **options: Any,
    ) -> None:
        torch.manual_seed(seed)
        self.bandit = torchonline.bandit(dim, rewards=kind or rewards, actions=actions, magnitudes=magnitudes)
        if options:
            self.bandit = torchonline.DisjointArms(self.estimator(**options), actions, scaler=self.bandit.scaler)
        self.head = BanditHead(nn.Identity(), self.bandit).eval()

    def estimator(self, ridge: float = 1.0, **options: Any) -> Estimator:
        """Return the estimator of an arm, like the default's but for some options."""
        default: Any = self.bandit.estimator
        return rebuilt(default, ridge=ridge * default.ridge, batch_shape=(), **options)

    def select(self, context: np.ndarray) -> int:
        return int(self.head.select(torch.from_numpy(context)))

    def step(self, context: np.ndarray, action: int, reward: float) -> None:
        self.head.step(torch.from_numpy(context), action, reward)


class Greedy(TorchOnline):
    """The estimators and the scaler of ``torchonline.bandit`` under a policy that does not explore."""

    def __init__(self, dim: int, actions: int, rewards: str, seed: int) -> None:
        super().__init__(dim, actions, rewards, seed)
        policy = torchonline.Greedy(self.estimator())
        self.head = BanditHead(
            nn.Identity(), torchonline.DisjointArms(policy, actions, scaler=self.bandit.scaler)
        ).eval()


class ScalesKnown(TorchOnline):
    """``torchonline.bandit`` on features that were standardised beforehand, as the rivals get them, and knows it."""

    def __init__(self, dim: int, actions: int, rewards: str, seed: int) -> None:
        super().__init__(dim, actions, rewards, seed)
        scaler = self.bandit.scaler
        rows = 10**15  # so many of mean 0 and deviation 1 that the rounds change neither
        scaler.rounds.fill_(rows)
        scaler.squares.fill_(rows)


class Head:
    """A policy of the library with a block of parameters for each action, by its theory: ``BanditHead`` with ``outer``."""

    def __init__(self, dim: int, actions: int, rewards: str, seed: int, *, policy: str, **options: object) -> None:
        torch.manual_seed(seed)
        made = getattr(torchonline, policy)(dim * actions, **options)
        self.head = BanditHead(nn.Identity(), made, actions=torch.eye(actions), combine="outer").eval()

    def select(self, context: np.ndarray) -> int:
        return int(self.head.select(torch.from_numpy(context)))

    def step(self, context: np.ndarray, action: int, reward: float) -> None:
        self.head.step(torch.from_numpy(context), action, reward)
