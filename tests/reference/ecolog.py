"""ada-OFU-ECOLog without its warm-up: the minima over the ball by bisection on the derivative of the loss."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from tests.reference.constants import Optimist
from tests.reference.huber import project


def minimum(
    centre: np.ndarray, V: np.ndarray, x: np.ndarray, rate: float, reward: float, bound: float
) -> tuple[np.ndarray, bool]:
    """The minimum of ``|theta - centre|_V^2 / 2 + rate (log(1 + exp(z)) - reward z)`` over a ball, and whether it is in the way.

    A minimum for the loss with the derivative p at it is that for the linear loss p z: the projection of
    ``centre - rate p V^-1 x``.
    """
    direction = rate * np.linalg.solve(V, x)

    def gap(p: float) -> float:
        return p + reward - float(expit(x @ project(centre - p * direction, V, bound)))

    moved = centre - brentq(gap, -1.0, 1.0, xtol=1e-16, rtol=1e-15) * direction
    return project(moved, V, bound), bool(np.linalg.norm(moved) > bound)


def loss(z: float, reward: float) -> float:
    return float(np.logaddexp(0.0, z)) - reward * z


class ECOLogReference(Optimist):
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
        self.bound, self.delta, self.scale = theta_bound, delta, radius_scale
        self.D = 2.0 * theta_bound * feature_bound
        self.ridge = float(dim) if ridge is None else ridge
        self.V, self.theta, self.rounds, self.losses, self.active = self.ridge * np.eye(dim), np.zeros(dim), 0, [], 0

    def radius(self) -> float:
        t, D, lam = self.rounds, self.D, self.ridge
        nu = 0.5 + 2 * math.log(2 * math.sqrt(1 + t / (4 * lam)) / self.delta)
        inside = (2 + D) * nu / 4 + D**2 / (2 + D) + math.fsum(self.losses)
        return self.scale * math.sqrt(4 * lam * self.bound**2 + 2 * (2 + D) * inside + 4 * math.log(1 + t))

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        weight = 1.0 if noise_scale is None else 1.0 / noise_scale**2
        half = (2 + self.D) / 2 * weight
        after, active = minimum(self.theta, self.V, x, half, reward, self.bound)
        either, _ = minimum(self.theta, self.V, x, 2 * half, 0.5, self.bound)
        self.losses.append(max(0.0, weight * (loss(x @ either, reward) - loss(x @ after, reward))))
        mean = float(expit(x @ after))
        self.V = self.V + weight * mean * (1 - mean) * np.outer(x, x)
        self.theta, self.rounds, self.active = after, self.rounds + 1, self.active + active
