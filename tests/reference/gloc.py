"""GLOC from its equations: every sum over all rounds, anew in each."""

import math
from collections.abc import Callable

import numpy as np

from tests.reference.constants import Optimist
from tests.reference.huber import project


class GLOCReference(Optimist):
    """For a mean function, its smallest slope and its largest, which is the variance proxy, of noise of scale 1."""

    def __init__(
        self,
        dim: int,
        *,
        mean: Callable[[float], float],
        kappa: float,
        variance: float,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
    ) -> None:
        self.mean, self.kappa, self.variance, self.noise_scale = mean, kappa, variance, noise_scale
        self.bound, self.delta, self.scale = theta_bound, delta, radius_scale
        self.ridge = float(dim) if ridge is None else ridge
        self.V, self.theta, self.iterate = self.ridge * np.eye(dim), np.zeros(dim), np.zeros(dim)
        self.rows, self.targets, self.losses = np.zeros((0, dim)), np.zeros(0), []

    def radius(self) -> float:
        k, R2, prior = self.kappa, self.variance, self.ridge * self.bound**2
        B = 2 * k * prior + math.fsum(self.losses) / (2 * k)
        inside = 1 + 2 * B / k + 4 * R2**2 / (k**4 * self.delta**2)
        beta = 1 + 4 * B / k + 8 * R2 / k**2 * math.log(2 / self.delta * math.sqrt(inside)) + prior
        beta -= self.targets @ self.targets - self.theta @ (self.rows.T @ self.targets)
        return self.scale * math.sqrt(beta)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        nu = self.noise_scale if noise_scale is None else noise_scale
        a, gap = x / nu, (self.mean(x @ self.iterate) - reward) / nu
        self.rows, self.targets = np.vstack([self.rows, a]), np.append(self.targets, a @ self.iterate)
        self.V = self.ridge * np.eye(len(x)) + self.rows.T @ self.rows
        self.losses.append(gap**2 * (a @ np.linalg.solve(self.V, a)))
        moved = self.iterate - gap / self.kappa * np.linalg.solve(self.V, a)
        self.iterate = project(moved, self.V, self.bound)
        self.theta = np.linalg.solve(self.V, self.rows.T @ self.targets)
