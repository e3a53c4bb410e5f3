"""Discounted ridge regression and normalised LMS as sums over all rounds, written from the formulas."""

import math

import numpy as np


class DiscountedRidgeReference:
    """All rounds are kept. The ridge is renewed in one coordinate of a round, in turn."""

    def __init__(
        self,
        dim: int,
        *,
        discount: float,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
    ) -> None:
        self.dim, self.discount, self.noise_scale, self.theta_bound = dim, discount, noise_scale, theta_bound
        self.ridge, self.delta = ridge, delta
        self.rows: list[np.ndarray] = []
        self.targets: list[float] = []

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        weight = self.noise_scale / (self.noise_scale if noise_scale is None else noise_scale)
        self.rows.append(weight * x)
        self.targets.append(weight * reward)

    def prior(self, power: int) -> np.ndarray:
        """The diagonal of what the ridge has in V (power 1) or in its square (power 2)."""
        t, g = len(self.rows), self.discount**power
        diagonal = np.full(self.dim, g**t * self.ridge)
        for s in range(t):
            diagonal[s % self.dim] += g ** (t - 1 - s) * (1.0 - g) * self.ridge * self.dim
        return diagonal

    def matrix(self, power: int) -> np.ndarray:
        t = len(self.rows)
        terms = [self.discount ** (power * (t - 1 - s)) * np.outer(a, a) for s, a in enumerate(self.rows)]
        return np.diag(self.prior(power)) + sum(terms, np.zeros((self.dim, self.dim)))

    @property
    def theta_hat(self) -> np.ndarray:
        t = len(self.rows)
        b = sum(
            (self.discount ** (t - 1 - s) * a * self.targets[s] for s, a in enumerate(self.rows)), np.zeros(self.dim)
        )
        return np.linalg.solve(self.matrix(1), b)

    def width(self, x: np.ndarray) -> float:
        y = np.linalg.solve(self.matrix(1), x)
        return float(math.sqrt(y @ self.matrix(2) @ y))

    def radius(self) -> float:
        squared = self.prior(2)
        growth = self.dim * math.log(np.trace(self.matrix(2)) / (self.dim * squared.min()))
        bias = float((self.prior(1) / np.sqrt(squared)).max())
        return self.noise_scale * math.sqrt(growth + 2.0 * math.log(1.0 / self.delta)) + self.theta_bound * bias


def normalized_lms(
    rows: np.ndarray, rewards: np.ndarray, step_size: float, ridge: float, weights: np.ndarray
) -> np.ndarray:
    """The estimates before each round and after the last, (T + 1, d); weights multiply rows and rewards."""
    estimates = [np.zeros(rows.shape[1])]
    for x, reward, weight in zip(rows, rewards, weights, strict=True):
        a, error = weight * x, weight * (reward - x @ estimates[-1])
        estimates.append(estimates[-1] + step_size * error * a / (ridge + a @ a))
    return np.array(estimates)
