"""Huber regression with one growing threshold, solved anew in each round."""

import math

import numpy as np

from tests.reference.constants import Optimist, power
from tests.reference.heavy_oful import Loss


class HuberBanditReference(Optimist):
    """Keeps the rounds in lists."""

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        threshold_factor: float = 1.0,
        radius_factor: float = 4.0,
        radius_scale: float = 1.0,
    ) -> None:
        self.p, self.bound, self.scale = moment_order, theta_bound, radius_scale
        self.ridge = float(dim) if ridge is None else ridge
        self.dim, self.delta = dim, delta
        self.height = threshold_factor * noise_scale
        self.slope = radius_factor * math.sqrt(dim) * noise_scale
        self.V, self.theta = self.ridge * np.eye(dim), np.zeros(dim)
        self.rows, self.rewards = [], []

    def ell(self) -> float:
        return math.log(len(self.rows) ** 2 * (2 * self.dim + 1) / self.delta)

    def radius(self) -> float:
        growing = 0.0
        if self.rows:
            growing = self.slope * self.ell() ** (1.0 - 1.0 / self.p) * len(self.rows) ** power(self.p)
        return self.scale * (growing + math.sqrt(self.ridge) * self.bound)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.V = self.V + np.outer(x, x)
        self.rows.append(x)
        self.rewards.append(reward)
        tau = self.height * (len(self.rows) / self.ell()) ** (1.0 / self.p)
        loss = Loss(np.array(self.rows), np.array(self.rewards), np.full(len(self.rows), tau), self.ridge)
        self.theta = loss.minimum(self.bound, self.theta)
