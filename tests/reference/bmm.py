"""BMM: parallel ridge regressions, and the median of what they say of an arm."""

import math

import numpy as np

from tests.reference.constants import Optimist, power


class BMMReference(Optimist):
    """Keeps the epochs in lists; another arm drops the rewards of an epoch that has not ended."""

    def __init__(
        self,
        dim: int,
        *,
        repeats: int,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        moment_factor: float = 12.0,
        radius_scale: float = 1.0,
    ) -> None:
        self.p, self.scale, self.repeats = moment_order, radius_scale, repeats
        ridge = float(dim) if ridge is None else ridge
        self.V, self.theta = ridge * np.eye(dim), np.zeros(dim)
        self.slope = (moment_factor * noise_scale**moment_order) ** (1.0 / moment_order)
        self.start = math.sqrt(ridge) * theta_bound
        self.arm, self.rewards, self.x, self.y = np.zeros(dim), [], [], []

    def radius(self) -> float:
        n = len(self.x)
        return self.scale * ((self.slope * n ** power(self.p) if n else 0.0) + self.start)

    def predictor(self, x: np.ndarray) -> np.ndarray:
        if not self.x:
            return np.zeros(len(x))
        each = np.linalg.solve(self.V, np.transpose(self.x) @ np.array(self.y))
        return np.median(x @ each, axis=-1)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        if (x != self.arm).any():
            self.rewards = []
        self.arm = x
        self.rewards.append(reward)
        if len(self.rewards) < self.repeats:
            return
        self.x.append(x)
        self.y.append(self.rewards)
        self.rewards = []
        self.V = self.V + np.outer(x, x)
        self.theta = self.predictor(np.eye(len(x)))
