"""ada-OFU-ECOLog and OFU-ECOLog: minima over a ball and an ellipsoid by roots of their multipliers, one within the other."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from tests.reference.constants import Optimist
from tests.reference.ecolog import loss
from tests.reference.huber import project
from tests.reference.likelihood import LOGISTIC, History


def nearest(goal: np.ndarray, A: np.ndarray, bound: float, centre: np.ndarray, U: np.ndarray, rho: float) -> np.ndarray:
    """The point of the ball and of the ellipsoid that is nearest to a goal, in the norm of A."""

    def within(nu: float) -> np.ndarray:
        matrix = A + nu * U
        return project(np.linalg.solve(matrix, A @ goal + nu * (U @ centre)), matrix, bound)

    def excess(nu: float) -> float:
        move = within(nu) - centre
        return float(move @ U @ move) / rho**2 - 1.0

    if excess(0.0) <= 0.0:
        return within(0.0)
    top = 1.0
    while excess(top) > 0.0:
        top *= 10.0
    return within(brentq(excess, 0.0, top, xtol=1e-300, rtol=1e-14))


class AdaECOLogReference(Optimist):
    """One reward at a time, with dense inverses and all warm-up rounds in a list."""

    def __init__(
        self,
        dim: int,
        *,
        theta_bound: float,
        feature_bound: float = 1.0,
        ridge: float,
        delta: float,
        warm_up_rounds: int | None = None,
    ) -> None:
        self.S, self.L, self.lam, self.delta, self.planned = theta_bound, feature_bound, ridge, delta, warm_up_rounds
        self.scale, self.slowest = 1.0, float(expit(theta_bound * feature_bound) * expit(-theta_bound * feature_bound))
        self.V, self.U = ridge * np.eye(dim), ridge * np.eye(dim)
        self.theta, self.theta_o = np.zeros(dim), np.zeros(dim)
        self.warm = History(LOGISTIC, dim, self.slowest * ridge)
        self.rounds, self.sum, self.D = 0, 0.0, 2.0 * theta_bound * feature_bound
        self.held = 0

    def rho(self) -> float:
        growth = np.linalg.slogdet(self.U / self.lam)[1]
        return math.sqrt(2 * math.log(2 / self.delta) + growth) / (2 * self.slowest) + math.sqrt(self.lam) * self.S

    def radius(self) -> float:
        t, D, lam = self.rounds, self.D, self.lam
        nu = 0.5 + 2 * math.log(2 * math.sqrt(1 + t / (4 * lam)) / self.delta)
        noise = max((2 + D) ** 2 * nu / 2 + 2 * D**2, (2 + 2 * self.L * self.S) * math.log(2 / self.delta))
        return self.scale * math.sqrt(4 * lam * self.S**2 + noise + 2 * self.sum + 4 * math.log(1 + t))

    def minimum(self, x: np.ndarray, rate: float, reward: float) -> np.ndarray:
        """The minimum for the linear loss p z with the derivative p that it has there."""
        direction = rate * np.linalg.solve(self.V, x)

        def at(p: float) -> np.ndarray:
            return nearest(self.theta - p * direction, self.V, self.S, self.theta_o, self.U, self.rho())

        found = at(brentq(lambda p: p + reward - float(expit(x @ at(p))), -1.0, 1.0, xtol=1e-15, rtol=1e-14))
        move = found - self.theta_o
        self.held += bool(move @ self.U @ move > self.rho() ** 2 * (1.0 - 1e-9))
        return found

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        w = 1.0 if noise_scale is None else 1.0 / noise_scale**2
        rate = w * (2 + self.D) / 2
        self.rounds += 1

        def slope(theta: np.ndarray) -> float:
            return float(expit(x @ theta) * expit(-x @ theta))

        if self.planned is not None:
            is_warm_up = self.rounds <= self.planned
        else:
            ends = [self.minimum(x, rate, r) for r in (0.0, 1.0)]
            is_warm_up = slope(self.minimum(x, 2 * rate, 0.5)) > 2 * min(map(slope, ends))
        if is_warm_up:
            self.warm.add(x, reward, w)
            self.U = self.U + w * np.outer(x, x)
            self.theta_o = self.warm.minimum(self.S)
            wide = 2 * self.L * self.rho() / math.sqrt(np.linalg.eigvalsh(self.U)[0])
            self.D = min(2 * self.L * self.S, wide)
            return
        either, after = self.minimum(x, 2 * rate, 0.5), self.minimum(x, rate, reward)
        self.sum += (2 + self.D) * max(0.0, w * (loss(x @ either, reward) - loss(x @ after, reward)))
        self.theta, self.V = after, self.V + w * slope(after) * np.outer(x, x)
