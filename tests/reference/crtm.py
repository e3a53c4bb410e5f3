"""CRTM as the comparison needs it: the reward is truncated, then an online Newton step."""

import math
from collections.abc import Callable

import numpy as np

from tests.reference.constants import Optimist, absolute_moment, power
from tests.reference.huber import project


class CRTMReference(Optimist):
    """One reward at a time, with a dense inverse."""

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
        radius_factor: float = 4.0,
        radius_scale: float = 1.0,
        mean: Callable[[float], float] = float,
        kappa: float = 1.0,
    ) -> None:
        self.p, self.noise_scale, self.bound = moment_order, noise_scale, theta_bound
        self.g, self.scale, self.log = truncation, radius_scale, math.log(2.0 * horizon / delta)
        self.ridge = float(dim) if ridge is None else ridge
        self.V, self.theta, self.rounds = self.ridge * np.eye(dim), np.zeros(dim), 0
        self.mean, self.kappa = mean, kappa
        # The mean reward is at its largest at an end of what the bounds allow.
        self.largest = max(abs(mean(end * feature_bound * theta_bound)) for end in (-1.0, 1.0))
        u = absolute_moment(moment_order, noise_scale, self.largest, 1.0)
        eps, p = moment_order - 1.0, moment_order
        self.slope = radius_factor * math.sqrt(dim) * u ** (1 / p) * math.log(2 * dim * horizon / delta) ** (eps / p)
        self.slope /= math.sqrt(kappa)

    def radius(self) -> float:
        growing = self.slope * self.rounds ** power(self.p) if self.rounds else 0.0
        return self.scale * (growing + math.sqrt(self.ridge) * self.bound)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        nu = self.noise_scale if noise_scale is None else noise_scale
        self.rounds += 1
        u = absolute_moment(self.p, nu, self.largest, 1.0)
        gamma = self.g * (u / self.log) ** (1 / self.p) * self.rounds ** power(self.p)
        y = reward if abs(reward) * float(self.width(x)) <= gamma else 0.0
        self.V = self.V + 0.5 * self.kappa * np.outer(x, x)
        moved = self.theta + np.linalg.solve(self.V, x) * (y - self.mean(x @ self.theta))
        self.theta = project(moved, self.V, self.bound)
