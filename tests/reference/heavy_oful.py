"""HEAVY-OFUL: Huber regression over all rounds, by a multiplier for the ball and Newton's method for the rest."""

import math

import numpy as np
from scipy.optimize import brentq

from tests.reference.ball import multiplier
from tests.reference.constants import Optimist, power


class Loss:
    """Ridge plus Huber losses of scaled rounds, as a function of theta."""

    def __init__(self, rows: np.ndarray, rewards: np.ndarray, thresholds: np.ndarray, ridge: float) -> None:
        self.rows, self.rewards, self.thresholds, self.ridge = rows, rewards, thresholds, ridge

    def value(self, theta: np.ndarray) -> float:
        z = np.abs(self.rewards - self.rows @ theta)
        cut = np.minimum(z, self.thresholds)
        return 0.5 * self.ridge * theta @ theta + (cut * (z - 0.5 * cut)).sum()

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        z = self.rewards - self.rows @ theta
        return self.ridge * theta - self.rows.T @ np.clip(z, -self.thresholds, self.thresholds)

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        quadratic = self.rows[np.abs(self.rewards - self.rows @ theta) <= self.thresholds]
        return self.ridge * np.eye(len(theta)) + quadratic.T @ quadratic

    def free_minimum(self, extra: float, start: np.ndarray) -> np.ndarray:
        """Of the loss plus ``extra / 2 ||theta||^2``, by Newton's method with a line search on the slope."""
        theta = start
        for _ in range(200):
            step = -np.linalg.solve(
                self.hessian(theta) + extra * np.eye(len(theta)), self.gradient(theta) + extra * theta
            )

            def slope(share: float, theta: np.ndarray = theta, step: np.ndarray = step) -> float:
                there = theta + share * step
                return float((self.gradient(there) + extra * there) @ step)

            share = brentq(slope, 0.0, 1.0, xtol=1e-15) if slope(0.0) < 0.0 < slope(1.0) else 1.0
            theta = theta + share * step
            if np.abs(share * step).max() <= 1e-15 * np.abs(theta).max():
                break
        return theta

    def minimum(self, bound: float, start: np.ndarray) -> np.ndarray:
        """Over the ball of radius ``bound``: by the multiplier of the constraint."""
        theta = self.free_minimum(0.0, start)
        if np.linalg.norm(theta) <= bound:
            return theta
        upper = np.linalg.norm(self.gradient(np.zeros_like(theta))) / bound
        found = multiplier(lambda mu: float(np.linalg.norm(self.free_minimum(mu, start))), bound, 0.0, upper)
        return self.free_minimum(found, start)


class HeavyOFULReference(Optimist):
    """Keeps the rounds in lists and solves anew."""

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
        delta: float | None = None,
        minimum_scale: float | None = None,
        scale_factor: float = 23.0,
        linear_factor: float = 48.0,
        ridge_factor: float = 3.0,
        radius_factor: float = 24.0,
        radius_scale: float = 1.0,
    ) -> None:
        T, eps, p = horizon, moment_order - 1.0, moment_order
        self.p, self.noise_scale, self.bound, self.scale = p, noise_scale, theta_bound, radius_scale
        self.largest_mean = feature_bound * theta_bound
        self.ridge = dim / theta_bound**2 if ridge is None else ridge
        self.sigma_min = 1.0 / math.sqrt(T) if minimum_scale is None else minimum_scale
        ell = math.log(2.0 * T**2 / (1.0 / (8.0 * T) if delta is None else delta))
        self.kappa = dim * math.log(1.0 + feature_bound**2 * T / (dim * self.ridge * self.sigma_min**2))
        log = math.log(3.0 * T)
        self.c0 = 1.0 / math.sqrt(scale_factor * ell)
        self.c1 = log ** ((1.0 - eps) / p) / (linear_factor * ell ** (2.0 / p))
        self.tau0 = math.sqrt(2.0 * self.kappa) * log ** power(p) / ell ** (1.0 / p)
        self.start = ridge_factor * math.sqrt(self.ridge) * theta_bound
        self.slope = radius_factor * math.sqrt(2.0 * self.kappa) * log ** power(p) * ell ** (eps / p)
        self.V, self.theta = self.ridge * np.eye(dim), np.zeros(dim)
        self.rows, self.rewards, self.thresholds = [], [], []

    def radius(self) -> float:
        growing = self.slope * len(self.rows) ** power(self.p) if self.rows else 0.0
        return self.scale * (growing + self.start)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        nu = self.noise_scale if noise_scale is None else noise_scale
        q = float(self.width(x))
        sigma = max(
            nu,
            self.sigma_min,
            q / self.c0,
            math.sqrt(self.largest_mean) * math.sqrt(q) / (self.c1 * 2.0 * self.kappa) ** 0.25,
        )
        w, t = q / sigma, len(self.rows) + 1
        tau = self.tau0 * t ** power(self.p) * math.sqrt(1.0 + w**2) / w if w > 0.0 else math.inf
        self.V = self.V + np.outer(x, x) / sigma**2
        self.rows.append(x / sigma)
        self.rewards.append(reward / sigma)
        self.thresholds.append(tau)
        self.theta = self.loss().minimum(self.bound, self.theta)

    def loss(self) -> Loss:
        return Loss(np.array(self.rows), np.array(self.rewards), np.array(self.thresholds), self.ridge)
