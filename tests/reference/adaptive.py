"""Ridge regressions whose radius follows their residuals, from the docstrings of the two classes."""

import math

import numpy as np


class RobustReference:
    """All residuals in a list, NumPy's quantile, and a dense inverse in each round."""

    def __init__(
        self,
        dim: int,
        *,
        ridge: float | None = None,
        radius_scale: float = 0.8,
        cut: float = 1.0,
        quantile: float = 0.95,
        window: int = 256,
        warmup: int = 10,
    ) -> None:
        self.cut, self.quantile, self.window, self.warmup = cut, quantile, window, warmup
        self.radius_scale = radius_scale
        self.V = (dim / 5.0 if ridge is None else ridge) * np.eye(dim)
        self.theta = np.zeros(dim)
        self.residuals: list[float] = []
        self.learnt: list[float] = []  # arms may share this list and that of residuals
        self.rounds = 0

    def spread(self) -> float:
        """The root mean square of the residuals in the last window that is not all zeros, each cut; 1 if there is none."""
        for end in range(len(self.residuals), 0, -1):
            last = np.array(self.residuals[max(0, end - self.window) : end])
            if last.any():
                return math.sqrt(np.mean(np.minimum(last, self.limit(end)) ** 2))
        return 1.0

    def limit(self, end: int | None = None) -> float:
        """Where the last of the first ``end`` residuals, or of all, is cut."""
        end = len(self.residuals) if end is None else end
        if end <= self.warmup:
            before = self.residuals[max(0, end - 1 - self.window) : end - 1]
            return 3.0 * max(before, default=0.0) or math.inf
        limit = self.cut * float(np.quantile(self.residuals[max(0, end - self.window) : end], self.quantile))
        return limit if limit > 0.0 else math.inf

    def radius(self) -> float:
        return self.radius_scale * self.spread()

    def width(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("...i,ij,...j->...", x, np.linalg.inv(self.V), x))

    def scores(self, arms: np.ndarray) -> np.ndarray:
        means = arms @ self.theta
        if self.rounds == 0 and self.learnt:
            means = np.maximum(means, np.mean(self.learnt))
        return means + self.radius() * self.width(arms)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        scale = 1.0 if noise_scale is None else noise_scale
        x, reward = x / scale, reward / scale
        residual = reward - x @ self.theta
        self.residuals.append(abs(residual))
        kept = float(np.clip(residual, -self.limit(), self.limit()))
        self.learnt.append((x @ self.theta + kept) * scale)
        self.rounds += 1
        self.V = self.V + np.outer(x, x)
        self.theta = self.theta + np.linalg.solve(self.V, x) * kept


class AdaptiveReference:
    """All rounds in a list, and the normal equations in each."""

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = 0.5,
        ridge: float | None = None,
        radius_scale: float = 0.8,
        floor: float | None = None,
    ) -> None:
        self.noise_scale, self.radius_scale, self.floor = noise_scale, radius_scale, floor
        self.rewards: list[float] = []
        self.V = (dim / 5.0 if ridge is None else ridge) * np.eye(dim)
        self.moment = np.zeros(dim)
        self.residuals: list[float] = []

    @property
    def theta(self) -> np.ndarray:
        return np.linalg.solve(self.V, self.moment)

    def radius(self) -> float:
        sizes = np.array([self.noise_scale, *self.residuals])
        return self.radius_scale * math.sqrt(np.mean(sizes**2))

    def scores(self, arms: np.ndarray) -> np.ndarray:
        means = arms @ self.theta
        if self.floor is not None:
            means = np.maximum(means, min(self.floor, 0.5 * np.mean(self.rewards)) if self.rewards else 0.0)
        return means + self.radius() * np.sqrt(np.einsum("...i,ij,...j", arms, np.linalg.inv(self.V), arms))

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.rewards.append(reward)
        weight = 1.0 if noise_scale is None else self.noise_scale / noise_scale
        x, reward = weight * x, weight * reward
        self.residuals.append(reward - x @ self.theta)
        self.V = self.V + np.outer(x, x)
        self.moment = self.moment + reward * x
