"""RobustUCB: ridge regression on truncated rewards, and its truncated means of arms without features."""

import math

import numpy as np

from tests.reference.constants import Optimist


class RobustUCBReference(Optimist):
    """Sums of squares and products, solved anew."""

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        moment_order: float = 2.0,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        radius_scale: float = 1.0,
    ) -> None:
        self.p, self.scale, self.ridge = moment_order, radius_scale, ridge
        self.m, self.ell = theta_bound + noise_scale, math.log(2.0 * dim * horizon / delta)
        self.V, self.moment, self.theta = ridge * np.eye(dim), np.zeros(dim), np.zeros(dim)

    def width(self, x: np.ndarray) -> np.ndarray:
        eps = self.p - 1.0
        return super().width(x) ** (2.0 * eps / self.p)

    def radius(self) -> float:
        power = (self.p - 1.0) / self.p
        return self.scale * self.m * ((self.p + 2.0) * self.ell**power + self.ridge**power)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.V = self.V + np.outer(x, x)
        square = float(x @ np.linalg.solve(self.V, x))
        kept = square == 0.0 or abs(reward) <= self.m * (1.0 / (square * self.ell)) ** (1.0 / self.p)
        self.moment = self.moment + x * (reward if kept else 0.0)
        self.theta = np.linalg.solve(self.V, self.moment)


def truncated_mean(rewards: np.ndarray, p: float, m: float, ridge: float, ell: float) -> float:
    """Of the rewards of one arm: the paper's, with a ridge in its counts."""
    counts = ridge + np.arange(1, len(rewards) + 1)
    kept = np.abs(rewards) <= (m**p * counts / ell) ** (1.0 / p)
    return float((rewards * kept).sum() / (ridge + len(rewards)))
