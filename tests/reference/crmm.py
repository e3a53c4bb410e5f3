"""CRMM: an online Newton step on the median of each epoch."""

import math
from collections.abc import Callable

import numpy as np

from tests.reference.constants import Optimist
from tests.reference.huber import project


class CRMMReference(Optimist):
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
        radius_scale: float = 1.0,
        mean: Callable[[float], float] = float,
        kappa: float = 1.0,
    ) -> None:
        self.mean, self.kappa = mean, kappa
        self.bound, self.scale, self.repeats = theta_bound, radius_scale, repeats
        ridge = float(dim) if ridge is None else ridge
        self.V, self.theta = ridge * np.eye(dim), np.zeros(dim)
        limit = 4.0 ** (1.0 / moment_order) * noise_scale
        self.square = ridge * theta_bound**2 + 4.0 / (3.0 * kappa) * limit**2 * math.log(1.0 / delta)
        self.arm, self.rewards = np.zeros(dim), []

    def radius(self) -> float:
        return self.scale * math.sqrt(self.square)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        if (x != self.arm).any():
            self.rewards = []
        self.arm = x
        self.rewards.append(reward)
        if len(self.rewards) < self.repeats:
            return
        residual = float(np.median(self.rewards)) - self.mean(x @ self.theta)
        self.rewards = []
        self.V = self.V + 0.5 * self.kappa * np.outer(x, x)
        self.square += residual**2 * float(self.width(x)) ** 2
        self.theta = project(self.theta + np.linalg.solve(self.V, x) * residual, self.V, self.bound)
