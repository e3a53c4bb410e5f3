"""Ridge regression on cut residuals, from the docstring of RobustRidgeRegression."""

import math

import numpy as np


class RobustReference:
    """All residuals in a list, NumPy's quantile, and a dense inverse in each round."""

    def __init__(
        self,
        dim: int,
        *,
        ridge: float = 1.0,
        radius_scale: float = 0.4,
        cut: float = 1.5,
        quantile: float = 0.95,
        window: int = 256,
        warmup: int = 10,
    ) -> None:
        self.cut, self.quantile, self.window, self.warmup = cut, quantile, window, warmup
        self.radius_scale = radius_scale
        self.V = ridge * np.eye(dim)
        self.theta = np.zeros(dim)
        self.residuals: list[float] = []

    def spread(self) -> float:
        """The root mean square of the residuals in the window, each cut."""
        if not self.residuals:
            return 1.0
        last = np.array(self.residuals[-self.window :])
        return math.sqrt(np.mean(np.minimum(last, self.limit()) ** 2))

    def limit(self) -> float:
        """Where the last residual is cut."""
        if len(self.residuals) <= self.warmup:
            return math.inf
        return self.cut * float(np.quantile(self.residuals[-self.window :], self.quantile))

    def radius(self) -> float:
        return self.radius_scale * self.spread()

    def width(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("...i,ij,...j->...", x, np.linalg.inv(self.V), x))

    def scores(self, arms: np.ndarray) -> np.ndarray:
        return arms @ self.theta + self.radius() * self.width(arms)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        scale = 1.0 if noise_scale is None else noise_scale
        x, reward = x / scale, reward / scale
        residual = reward - x @ self.theta
        self.residuals.append(abs(residual))
        kept = float(np.clip(residual, -self.limit(), self.limit()))
        self.V = self.V + np.outer(x, x)
        self.theta = self.theta + np.linalg.solve(self.V, x) * kept
