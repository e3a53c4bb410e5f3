"""What the references of several papers share."""

import numpy as np


class Optimist:
    """Scores of an upper confidence bound over ``theta``, ``V`` and ``radius()``."""

    theta: np.ndarray
    V: np.ndarray

    def radius(self) -> float:
        raise NotImplementedError

    def width(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("...i,ij,...j->...", x, np.linalg.inv(self.V), x))

    def predictor(self, x: np.ndarray) -> np.ndarray:
        return x @ self.theta

    def scores(self, arms: np.ndarray) -> np.ndarray:
        return self.predictor(arms) + self.radius() * self.width(arms)


def power(moment_order: float) -> float:
    """(1 - eps) / (2 (1 + eps)), with moment order 1 + eps."""
    eps = moment_order - 1.0
    return (1.0 - eps) / (2.0 * (1.0 + eps))


def absolute_moment(moment_order: float, noise_scale: float, theta_bound: float, feature_bound: float) -> float:
    """A bound on E|r|^p by Minkowski's inequality."""
    return (feature_bound * theta_bound + noise_scale) ** moment_order
