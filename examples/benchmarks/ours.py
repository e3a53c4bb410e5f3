"""torchonline behind the interface of the rivals, and the recipe of its default bandit in NumPy."""

from collections.abc import Sequence

import numpy as np
import torch
from ridges import ArmRidges, Options, Ties, random_argmax
from torch import nn

import torchonline
from torchonline.models import BanditHead


class TorchOnline:
    """The library's ``torchonline.bandit``, on raw features. Options are its own."""

    def __init__(self, dim: int, actions: int, rewards: str, seed: int, **options: object) -> None:
        torch.manual_seed(seed)
        self.bandit = torchonline.bandit(dim, rewards=rewards, actions=actions, **options)

    def select(self, context: np.ndarray) -> int:
        return int(self.bandit.select(torch.from_numpy(context)))

    def step(self, context: np.ndarray, action: int, reward: float) -> None:
        self.bandit.step(torch.from_numpy(context), action, reward)


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


class RunningScaler:
    """Mean and standard deviation of all contexts so far, by Welford's recursion, for B members."""

    def __init__(self, members: int, dim: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros((members, dim)), np.zeros((members, dim))

    def __call__(self, contexts: np.ndarray) -> np.ndarray:
        """Learn contexts (B, m); return them scaled, cut to [-5, 5] and with an intercept, (B, m + 1)."""
        self.count += 1
        centred = contexts - self.mean
        self.mean += centred / self.count
        self.squares += centred * (contexts - self.mean)
        sd = np.sqrt(self.squares / max(self.count - 1, 1))
        z = np.divide(contexts - self.mean, sd, out=np.zeros_like(sd), where=sd > 0.0)
        return np.column_stack([z.clip(-5.0, 5.0), np.ones(len(z))])


class ResidualCut:
    """Cut residuals at 1.5 times the 95 % quantile of the last 256 absolute residuals, for B members."""

    def __init__(self, members: int, cut: float = 1.5) -> None:
        self.ring, self.rounds, self.cut = np.zeros((members, 256)), 0, cut
        self.bound = np.full(members, np.inf)
        self.scale = np.ones(members)

    def __call__(self, residual: np.ndarray) -> np.ndarray:
        """Insert residuals (B) into the ring, return them cut, and renew the scale."""
        self.ring[:, self.rounds % 256] = np.abs(residual)
        self.rounds += 1
        seen = self.ring[:, : self.rounds]
        is_early = self.rounds <= 10
        if not is_early and (self.rounds <= 64 or self.rounds % 8 == 0):
            self.bound = self.cut * np.quantile(seen, 0.95, axis=1)
        bound = np.full_like(self.bound, np.inf) if is_early else self.bound
        self.scale = np.sqrt((np.minimum(seen, bound[:, None]) ** 2).mean(1))
        return residual.clip(-bound, bound)


class Recipe:
    """The recipe in NumPy: running scaler, a ridge regression for each arm, and a small radius.

    Rewards ``"unit"``: radius 0.2. Rewards ``"real"``: residuals are cut, and the radius is 0.4 times their scale. Options of a
    member: ``radius``, in units of the noise scale (0.4; the scale of unit rewards is 1/2), and ``ridge`` (1).
    """

    def __init__(self, dim: int, actions: int, rewards: str, seeds: Sequence[int], options: Sequence[Options]) -> None:
        self.radius = np.array([float(o.get("radius", 0.4)) for o in options])
        ridge = np.array([float(o.get("ridge", 1.0)) for o in options])
        self.ridges, self.scaler = ArmRidges(ridge, actions, dim + 1), RunningScaler(len(seeds), dim)
        self.ties = Ties(seeds, actions)
        self.cut = ResidualCut(len(seeds)) if rewards == "real" else None

    def select(self, contexts: np.ndarray) -> np.ndarray:
        self.x = self.scaler(contexts)
        self.estimate, width = self.ridges.predict(self.x)
        scale = 0.5 if self.cut is None else self.cut.scale
        return random_argmax(self.estimate + (self.radius * scale)[:, None] * width, self.ties.draw())

    def step(self, contexts: np.ndarray, arms: np.ndarray, rewards: np.ndarray) -> None:
        if self.cut is not None:
            estimate = self.estimate[np.arange(len(arms)), arms]
            rewards = estimate + self.cut(rewards - estimate)
        self.ridges.learn(self.x, arms, rewards)
