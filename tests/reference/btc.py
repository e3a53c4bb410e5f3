"""BTC: the rounds are truncated anew for each arm."""

import math

import numpy as np

from tests.reference.constants import Optimist, absolute_moment, power


class BTCReference(Optimist):
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
        truncation: float = 1.0,
        radius_scale: float = 1.0,
    ) -> None:
        self.p, self.g, self.scale = moment_order, truncation, radius_scale
        ridge = float(dim) if ridge is None else ridge
        self.V, self.theta, self.x, self.y = ridge * np.eye(dim), np.zeros(dim), [], []
        u, ell = absolute_moment(moment_order, noise_scale, theta_bound, feature_bound), math.log(2 * horizon / delta)
        bias = u / self.g ** (self.p - 1.0)
        deviation = math.sqrt(2.0 * ell * u * self.g ** (2.0 - self.p)) + 2.0 * self.g * ell / 3.0
        self.slope, self.start = bias + deviation, math.sqrt(ridge) * theta_bound

    def radius(self) -> float:
        n = len(self.x)
        return self.scale * ((self.slope * n ** power(self.p) if n else 0.0) + self.start)

    def predictor(self, x: np.ndarray) -> np.ndarray:
        return np.array([self.estimate(row) for row in x])

    def estimate(self, x: np.ndarray) -> float:
        if not self.x:
            return 0.0
        beta = np.array(self.x) @ np.linalg.solve(self.V, x)
        limit = self.g * math.fsum(abs(b) ** self.p for b in beta) ** (1.0 / self.p)
        return math.fsum(b * y for b, y in zip(beta, self.y, strict=True) if abs(b * y) <= limit)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.x.append(x)
        self.y.append(reward)
        self.V = self.V + np.outer(x, x)
        self.theta = self.predictor(np.eye(len(x)))
