"""TOFU: all terms of the regression are truncated again in each round."""

import math

import numpy as np
from scipy.linalg import sqrtm

from tests.reference.constants import Optimist, absolute_moment, power


class TOFUReference(Optimist):
    """Keeps the rounds in lists."""

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_factor: float = 4.0,
        radius_scale: float = 1.0,
    ) -> None:
        self.p, self.bound, self.scale = moment_order, theta_bound, radius_scale
        self.ridge = float(dim) if ridge is None else ridge
        self.V, self.theta, self.x, self.y = self.ridge * np.eye(dim), np.zeros(dim), [], []
        self.u = absolute_moment(moment_order, noise_scale, theta_bound, feature_bound)
        eps, p = moment_order - 1.0, moment_order
        self.log = math.log(2 * horizon / delta)
        self.slope = (
            radius_factor * math.sqrt(dim) * self.u ** (1 / p) * math.log(2 * dim * horizon / delta) ** (eps / p)
        )

    def radius(self) -> float:
        growing = self.slope * len(self.x) ** power(self.p) if self.x else 0.0
        return self.scale * (growing + math.sqrt(self.ridge) * self.bound)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.x.append(x)
        self.y.append(reward)
        self.V = self.V + np.outer(x, x)
        root = np.linalg.inv(sqrtm(self.V)).real
        limit = (self.u / self.log) ** (1 / self.p) * len(self.x) ** power(self.p)
        rows = root @ np.transpose(self.x)
        sums = [math.fsum(u * y for u, y in zip(row, self.y, strict=True) if abs(u * y) <= limit) for row in rows]
        self.theta = root @ np.array(sums)
