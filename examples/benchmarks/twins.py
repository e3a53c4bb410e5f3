"""NumPy twins of parts of the library, for many seeds at once."""

import math

import numpy as np
from ridges import ArmRidges


class Scaler:
    """Running means and deviations of B members, their row included: the twin of ``StandardScaler`` where it cuts no row."""

    def __init__(self, members: int, dim: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros((members, dim)), np.zeros((members, dim))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        offset = (x - self.mean) * self.count / (self.count + 1)
        deviation = np.sqrt((self.squares + offset * (x - self.mean)) / max(self.count, 1))
        return self.clipped((self.count > 1) * offset, deviation)

    def again(self, x: np.ndarray) -> np.ndarray:
        """Standardise rows that were seen."""
        return self.clipped(x - self.mean, np.sqrt(self.squares / (self.count - 1)))

    @staticmethod
    def clipped(offset: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        z = offset / np.where(deviation > 0.0, deviation, 1.0)
        return np.column_stack([np.clip(z, -2.5, 2.5), np.ones(len(z))])

    def step(self, x: np.ndarray) -> None:
        self.count += 1
        offset = x - self.mean
        self.mean += offset / self.count
        self.squares += offset * (x - self.mean)


class Early:
    """The first 32 rounds, in the coordinates that the scaler has now: the twin of ``EarlyRounds``."""

    def __init__(self) -> None:
        self.rounds: list[tuple[np.ndarray, ...]] = []

    def step(
        self, scaler: Scaler, ridges: ArmRidges, x: np.ndarray, z: np.ndarray, arm: np.ndarray, target: np.ndarray
    ) -> None:
        """Remember a round that ridges and scaler have learnt, and renew another."""
        count = scaler.count
        if count <= 32:
            self.rounds.append((x, z, arm, target))
        if 3 <= count < 64:
            place = count - 2 ** (count.bit_length() - 1)
            x, old, arm, target = self.rounds[place]
            z = scaler.again(x)
            ridges.learn(z, arm, target)
            ridges.learn(old, arm, target, -1.0)
            self.rounds[place] = x, z, arm, target


class Following:
    """Root mean square of all residuals: the twin of ``AdaptiveRidgeRegression``."""

    def __init__(self, members: int, unit: float) -> None:
        self.squares, self.count = np.full(members, (0.5 * unit) ** 2), 1

    def scale(self) -> np.ndarray:
        return np.sqrt(self.squares / self.count)

    def keep(self, residual: np.ndarray) -> np.ndarray:
        self.squares, self.count = self.squares + residual**2, self.count + 1
        return residual


class Cut:
    """Cut residuals, and their root mean square: the twin of ``RobustRidgeRegression``."""

    def __init__(self, members: int, unit: float) -> None:
        self.window, self.count, self.spread = np.zeros((members, 256)), 0, np.full(members, unit)

    def scale(self) -> np.ndarray:
        return self.spread

    def keep(self, residual: np.ndarray) -> np.ndarray:
        largest = self.window.max(1)
        self.window[:, self.count % 256] = abs(residual)
        used = self.window[:, : self.count + 1]
        ordered, position = np.sort(used), 0.95 * (used.shape[1] - 1)
        low = math.floor(position)
        high = min(low + 1, used.shape[1] - 1)
        limit = ordered[:, low] + (position - low) * (ordered[:, high] - ordered[:, low])
        limit = 3.0 * largest if self.count < 10 else limit
        limit = np.where(limit <= 0.0, np.inf, limit)
        spread = np.sqrt((np.minimum(used, limit[:, None]) ** 2).mean(1))
        self.spread = np.where(spread == 0.0, self.spread, spread)
        self.count += 1
        return np.clip(residual, -limit, limit)
