"""MENU: parallel ridge regressions, and the one that is nearest to most."""

import math

import numpy as np

from tests.reference.constants import Optimist, power


class MENUReference(Optimist):
    """Takes an epoch when its rewards are in; another arm drops what has come."""

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
        moment_factor: float = 9.0,
        radius_factor: float = 3.0,
        radius_scale: float = 1.0,
    ) -> None:
        self.p, self.scale, self.repeats, self.factor = moment_order, radius_scale, repeats, radius_factor
        ridge = float(dim) if ridge is None else ridge
        self.V, self.theta, self.sums = ridge * np.eye(dim), np.zeros(dim), np.zeros((repeats, dim))
        self.slope = (moment_factor * dim * noise_scale**moment_order) ** (1.0 / moment_order)
        self.start = math.sqrt(ridge) * theta_bound
        self.arm, self.rewards, self.epochs = np.zeros(dim), [], 0

    def radius(self) -> float:
        growing = self.slope * self.epochs ** power(self.p) if self.epochs else 0.0
        return self.scale * self.factor * (growing + self.start)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        if (x != self.arm).any():
            self.rewards = []
        self.arm = x
        self.rewards.append(reward)
        if len(self.rewards) < self.repeats:
            return
        self.epochs += 1
        self.V = self.V + np.outer(x, x)
        self.sums += np.outer(self.rewards, x)
        self.rewards = []
        each = np.linalg.solve(self.V, self.sums.T).T
        medians = []
        for theta in each:
            apart = [(theta - other) @ self.V @ (theta - other) for other in each]
            medians.append(sorted(apart)[(len(apart) - 1) // 2])
        self.theta = each[int(np.argmin(medians))]
