"""AdaOFUL: pseudo-Huber regression over all rounds, by a multiplier for the ball and Newton's method for the rest."""

import math

import numpy as np

from tests.reference.constants import Optimist
from tests.reference.heavy_oful import Loss


class PseudoHuberLoss(Loss):
    """Ridge plus pseudo-Huber losses of scaled rounds, as a function of theta."""

    def value(self, theta: np.ndarray) -> float:
        z, tau = self.rewards - self.rows @ theta, self.thresholds
        return 0.5 * self.ridge * theta @ theta + (z**2 / (1.0 + np.sqrt(1.0 + (z / tau) ** 2))).sum()

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        z, tau = self.rewards - self.rows @ theta, self.thresholds
        return self.ridge * theta - self.rows.T @ (z / np.sqrt(1.0 + (z / tau) ** 2))

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        z, tau = self.rewards - self.rows @ theta, self.thresholds
        curvature = (1.0 + (z / tau) ** 2) ** -1.5
        return self.ridge * np.eye(len(theta)) + (self.rows * curvature[:, None]).T @ self.rows


class AdaOFULReference(Optimist):
    """Keeps the rounds in lists and solves anew."""

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        minimum_scale: float | None = None,
        scale_factor: float = 36.0,
        linear_factor: float = 42.0,
        ridge_factor: float = 5.0,
        radius_factor: float = 32.0,
        radius_scale: float = 1.0,
    ) -> None:
        T, d = horizon, dim
        self.noise_scale, self.bound, self.scale = noise_scale, theta_bound, radius_scale
        self.product = feature_bound * theta_bound
        self.ridge = d / theta_bound**2 if ridge is None else ridge
        self.sigma_min = 1.0 / math.sqrt(T) if minimum_scale is None else minimum_scale
        ell = math.log(2.0 * T**2 / delta)
        kappa = d * math.log(1.0 + feature_bound**2 * T / (d * self.ridge * self.sigma_min**2))
        self.c0 = 1.0 / math.sqrt(scale_factor * ell)
        self.c1, self.dim = 1.0 / (linear_factor * ell), d
        self.tau0 = max(math.sqrt(2.0 * kappa), 2.0 * math.sqrt(d)) / math.sqrt(ell)
        self.beta0 = math.sqrt(self.ridge) * theta_bound
        self.beta = radius_factor * (kappa / self.tau0 + math.sqrt(kappa * ell) + self.tau0 * ell)
        self.beta += ridge_factor * self.beta0
        self.V, self.theta = self.ridge * np.eye(d), np.zeros(d)
        self.rows, self.rewards, self.thresholds = [], [], []

    def radius(self) -> float:
        return self.scale * (self.beta if self.rows else self.beta0)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        nu = self.noise_scale if noise_scale is None else noise_scale
        q = float(self.width(x))
        sigma = max(nu, self.sigma_min, q / self.c0, math.sqrt(self.product * q) / (self.c1 * self.dim) ** 0.25)
        w = q / sigma
        self.V = self.V + np.outer(x, x) / sigma**2
        self.rows.append(x / sigma)
        self.rewards.append(reward / sigma)
        self.thresholds.append(self.tau0 * math.sqrt(1.0 + w**2) / w if w > 0.0 else math.inf)
        loss = PseudoHuberLoss(*map(np.array, (self.rows, self.rewards, self.thresholds)), self.ridge)
        self.theta = loss.minimum(self.bound, self.theta)
