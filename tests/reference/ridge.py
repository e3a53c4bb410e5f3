"""OFUL from its normal equations (Abbasi-Yadkori, Pal and Szepesvari, 2011), for rounds of unequal noise."""

import math

import numpy as np


class RidgeReference:
    """Weighted least squares, solved anew in each round."""

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = 0.5,
        theta_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        radius: str = "mixture",
        radius_scale: float = 1.0,
    ) -> None:
        self.noise_scale, self.theta_bound, self.ridge = noise_scale, theta_bound, ridge
        self.delta, self.kind, self.radius_scale = delta, radius, radius_scale
        self.V = ridge * np.eye(dim)
        self.moment = np.zeros(dim)

    @property
    def theta(self) -> np.ndarray:
        return np.linalg.solve(self.V, self.moment)

    def radius(self) -> float:
        logdet = np.linalg.slogdet(self.V / self.ridge)[1]
        noise = self.noise_scale * math.sqrt(logdet + 2.0 * math.log(1.0 / self.delta))
        bias = math.sqrt(self.ridge) * self.theta_bound
        return self.radius_scale * (noise + bias if self.kind == "classic" else math.hypot(noise, bias))

    def width(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("...i,ij,...j->...", x, np.linalg.inv(self.V), x))

    def scores(self, arms: np.ndarray) -> np.ndarray:
        return arms @ self.theta + self.radius() * self.width(arms)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        # A round of another noise scale counts as one of the usual scale after division by their ratio.
        weight = 1.0 if noise_scale is None else (self.noise_scale / noise_scale) ** 2
        self.V = self.V + weight * np.outer(x, x)
        self.moment = self.moment + weight * reward * x
