"""OFUL-MLogB for two outcomes, from its equations."""

import math

import numpy as np
from scipy.special import expit

from tests.reference.constants import Optimist
from tests.reference.huber import project


class MLogBReference(Optimist):
    """One reward at a time, with a dense inverse."""

    def __init__(
        self,
        dim: int,
        *,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
    ) -> None:
        self.bound, self.L, self.delta, self.scale = theta_bound, feature_bound, delta, radius_scale
        S = theta_bound * feature_bound
        self.eta = math.log(2) / 2 + S + 1
        self.ridge = 84 * math.sqrt(2) * dim * (S + 1) * feature_bound**2 if ridge is None else ridge
        self.V, self.theta, self.rounds, self.active = self.ridge * np.eye(dim), np.zeros(dim), 0, 0

    def radius(self) -> float:
        t, eta, d = self.rounds, self.eta, len(self.theta)
        by_noise = 11 * (3 * math.log(1 + 2 * t) + 3) * math.log(2 * math.sqrt(1 + 2 * t) / self.delta) + 2
        by_dimension = 6 * d * eta * math.log(1 + (t + 1) * self.L**2 / (2 * self.ridge))
        return self.scale * math.sqrt(4 * self.ridge * self.bound**2 + 2 * eta * (by_noise + by_dimension))

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        weight = 1.0 if noise_scale is None else 1.0 / noise_scale**2
        mean = float(expit(x @ self.theta))
        norm = self.V + self.eta * weight * mean * (1 - mean) * np.outer(x, x)
        moved = self.theta - self.eta * np.linalg.solve(norm, x) * weight * (mean - reward)
        self.active += bool(np.linalg.norm(moved) > self.bound)
        self.theta = project(moved, norm, self.bound)
        after = float(expit(x @ self.theta))
        self.V = self.V + weight * after * (1 - after) * np.outer(x, x)
        self.rounds += 1
