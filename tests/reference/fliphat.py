"""FLIPHAT with one step of hard thresholding, from the paper's algorithm with clipping, in NumPy."""

import math
from collections.abc import Callable

import numpy as np


class FLIPHATReference:
    """Sums of an episode, and the few largest entries of them with noise.

    ``noise(law, count)`` returns the next draws of a law, before they are scaled.
    """

    def __init__(
        self,
        dim: int,
        arms: int,
        *,
        nonzeros: int,
        horizon: int,
        episodes: int,
        scale: float,
        feature_clip: float,
        reward_clip: float,
        noise: Callable[[str, int], np.ndarray],
    ) -> None:
        self.nonzeros, self.scale, self.noise = nonzeros, scale, noise
        self.feature_clip, self.reward_clip = feature_clip, reward_clip
        # Two thirds of the rounds, in episodes of c, 2c, 4c, ... rounds.
        shares = np.cumsum(2.0 ** np.arange(episodes)) / (2.0**episodes - 1.0)
        self.ends = [math.ceil(round(share * 2.0 * horizon / 3.0, 9)) for share in shares]
        self.theta, self.total = np.zeros((2, arms, dim))
        self.start = self.t = 0

    def clip(self, x: np.ndarray) -> np.ndarray:
        return x / max(1.0, np.abs(x).max() / self.feature_clip)

    def select(self, x: np.ndarray) -> int:
        if self.t < self.ends[0]:
            return self.t % len(self.theta)
        return int((self.theta @ self.clip(x)).argmax())

    def step(self, x: np.ndarray, action: int, reward: float) -> None:
        self.t += 1
        self.total[action] += self.clip(x) * min(max(reward, -self.reward_clip), self.reward_clip)
        if self.t not in self.ends:
            return
        flat = self.total.ravel()
        left, support = list(range(flat.size)), []
        for _ in range(self.nonzeros):
            draws = self.scale * self.noise("gumbel", flat.size)
            support.append(max(left, key=lambda j: abs(flat[j]) + draws[j]))
            left.remove(support[-1])
        values = flat[support] + self.scale * self.noise("normal", self.nonzeros)
        theta = np.zeros(flat.size)
        theta[support] = values / (self.t - self.start)
        self.theta, self.start = theta.reshape(self.theta.shape), self.t
        self.total[:] = 0.0
