"""Prefix sums with the noise of a BLT whose horizon has no end: the noise is that of the inverse encoder, computed in full."""

import numpy as np


def coefficients(decay: np.ndarray, weight: np.ndarray, n: int) -> np.ndarray:
    """The first n coefficients of the encoder's columns."""
    return np.array([1.0] + [float(weight @ decay ** (k - 1)) for k in range(1, n)])


def encoder(decay: np.ndarray, weight: np.ndarray, n: int, period: int) -> np.ndarray:
    """The matrix C of n steps; no column reaches into a later period."""
    column = coefficients(decay, weight, n)
    matrix = np.zeros((n, n))
    for row in range(n):
        for start in range(row + 1):
            if row // period == start // period:
                matrix[row, start] = column[row - start]
    return matrix


def noisy_sums(
    summands: np.ndarray, noise: np.ndarray, decay: np.ndarray, weight: np.ndarray, period: int
) -> np.ndarray:
    """All sums with noise, (n, d), from the draws of each step, (n, d)."""
    increments = np.linalg.solve(encoder(decay, weight, len(noise), period), noise)
    return np.cumsum(summands + increments, 0)
