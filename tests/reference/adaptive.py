"""Ridge regressions whose radius follows their residuals, from the docstrings of the two classes."""

import math

import numpy as np


class Reference:
    """Two ridge regressions on all rounds, on rewards and on rewards minus their mean, and what each has lost.

    A subclass has ``spread`` and ``kept``, the residual that is learnt.
    """

    def __init__(self, dim: int, ridge: float | None, radius_scale: float, zero_odds: float) -> None:
        self.radius_scale, self.zero_odds, self.dim = radius_scale, zero_odds, dim
        self.ridge = dim / 5.0 if ridge is None else ridge
        self.V, self.moment, self.of_ones = self.ridge * np.eye(dim), np.zeros(dim), np.zeros(dim)
        self.rounds = 0
        self.gaps: list[float] = []
        # Arms may share these lists.
        self.targets: list[float] = []
        self.all_gaps: list[float] = []

    def fit(self, level: float) -> np.ndarray:
        """Return ridge regression on rewards minus a level."""
        return np.linalg.solve(self.V, self.moment - level * self.of_ones)

    @property
    def theta(self) -> np.ndarray:
        return self.fit(0.0)

    def mean(self) -> float:
        return float(np.mean(self.targets)) if self.targets else 0.0

    def weight_of_mean(self) -> float:
        if self.rounds == 0:
            return 1.0
        gap = sum(self.gaps) + sum(self.all_gaps) / (self.rounds + 1)
        odds = self.zero_odds * math.exp(min(gap / (2.0 * self.spread() ** 2), 700.0))
        return 1.0 / (1.0 + odds)

    def two_means(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both predictions at rows."""
        return x @ self.theta, self.mean() + x @ self.fit(self.mean())

    def predict(self, x: np.ndarray) -> np.ndarray:
        zero, centred = self.two_means(x)
        return zero + self.weight_of_mean() * (centred - zero)

    def spread(self) -> float:
        raise NotImplementedError

    def kept(self, residual: float) -> float:
        raise NotImplementedError

    def radius(self) -> float:
        return self.radius_scale * self.spread()

    def width(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("...i,ij,...j->...", x, np.linalg.inv(self.V), x))

    def scores(self, arms: np.ndarray) -> np.ndarray:
        return self.predict(arms) + self.radius() * self.width(arms)

    def learn(self, x: np.ndarray, reward: float, weight: float) -> None:
        """Learn a round. Predictions of the weighted round are those of the round, times its weight."""
        zero, centred = (weight * p for p in self.two_means(x))
        predicted = weight * self.predict(x)
        target = predicted + self.kept(weight * reward - predicted)
        most = 2.0 * self.spread()
        losses = [min(abs(target - p), most) ** 2 for p in (zero, centred)]
        x, self.rounds = weight * x, self.rounds + 1
        self.V = self.V + np.outer(x, x)
        self.moment, self.of_ones = self.moment + target * x, self.of_ones + weight * x
        self.targets.append(target / weight)
        self.gaps.append(losses[1] - losses[0])
        self.all_gaps.append(losses[1] - losses[0])


class RobustReference(Reference):
    """All residuals in a list, and NumPy's quantile."""

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
        zero_odds: float = 10.0,
    ) -> None:
        super().__init__(dim, ridge, radius_scale, zero_odds)
        self.cut, self.quantile, self.window, self.warmup = cut, quantile, window, warmup
        self.residuals: list[float] = []  # arms may share this list

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
        if end == 1:
            return math.inf
        if end <= self.warmup:
            before = self.residuals[max(0, end - 1 - self.window) : end - 1]
            return 3.0 * max(before, default=0.0) or math.inf
        limit = self.cut * float(np.quantile(self.residuals[max(0, end - self.window) : end], self.quantile))
        return limit if limit > 0.0 else math.inf

    def kept(self, residual: float) -> float:
        self.residuals.append(abs(residual) if self.residuals else 0.0)
        return float(np.clip(residual, -self.limit(), self.limit()))

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.learn(x, reward, 1.0 if noise_scale is None else 1.0 / noise_scale)


class AdaptiveReference(Reference):
    """All residuals in a list."""

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = 0.5,
        ridge: float | None = None,
        radius_scale: float = 0.8,
        floor: float | None = None,
        zero_odds: float = 10.0,
    ) -> None:
        super().__init__(dim, ridge, radius_scale, zero_odds)
        self.noise_scale, self.floor = noise_scale, floor
        self.residuals: list[float] = []

    def spread(self) -> float:
        return math.sqrt(np.mean(np.array([self.noise_scale, *self.residuals]) ** 2))

    def kept(self, residual: float) -> float:
        self.residuals.append(residual)
        return residual

    def scores(self, arms: np.ndarray) -> np.ndarray:
        means = self.predict(arms)
        if self.floor is not None:
            means = np.maximum(means, min(self.floor, 0.5 * self.mean()))
        return means + self.radius() * self.width(arms)

    def step(self, x: np.ndarray, reward: float, noise_scale: float | None = None) -> None:
        self.learn(x, reward, 1.0 if noise_scale is None else self.noise_scale / noise_scale)
