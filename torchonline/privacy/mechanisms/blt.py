"""Buffered linear Toeplitz (BLT) matrices for prefix sums.

Proofs: docs/privacy_proofs.md.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchonline.core.checks import positive, positive_integer, within

# The table has a row for each of these horizons: log(decay / (1 - decay)) of every vector, then log(weight) of every vector.
HORIZONS = tuple(2**e for e in (3, 4, 5, 6, 8, 10, 12, 15, 18, 21, 24, 27, 30))

# Printed by examples/fit_blt.py. Two decimals are enough, because near a minimum the errors are quadratic in the rounding.
TABLE = {
    1: """1.12 -0.75 1.70 -0.78 2.24 -0.88 2.75 -1.02 3.75 -1.37 4.71 -1.77 5.65 -2.20 7.05 -2.86 8.44 -3.54 9.83 -4.23 11.21
    -4.92 12.60 -5.61 13.99 -6.30""",
    2: """1.27 -1.68 -0.85 -2.84 2.01 -0.55 -1.02 -1.96 2.70 0.11 -1.25 -1.53 3.35 0.59 -1.49 -1.31 4.58 1.36 -1.98 -1.12 5.76
    2.03 -2.49 -1.11 6.93 2.66 -3.00 -1.20 8.65 3.56 -3.79 -1.44 10.35 4.44 -4.59 -1.75 12.04 5.30 -5.40 -2.10 13.72 6.14
    -6.21 -2.47 15.39 6.99 -7.03 -2.86 17.06 7.83 -7.86 -3.26""",
    3: """1.65 0.94 -1.84 -1.72 -1.35 -3.06 2.36 1.72 -0.69 -1.96 -1.46 -2.06 3.08 2.30 -0.02 -2.08 -1.71 -1.62 3.43 1.23
    -0.71 -1.58 -1.69 -2.17 4.80 2.42 0.21 -2.20 -1.80 -1.50 6.10 3.39 0.81 -2.79 -2.01 -1.23 7.37 4.28 1.33 -3.36 -2.26 -1.12
    9.24 5.57 2.03 -4.22 -2.70 -1.11 11.08 6.82 2.68 -5.07 -3.18 -1.21 12.92 8.07 3.32 -5.94 -3.69 -1.37 14.74 9.30 3.94 -6.80
    -4.21 -1.57 16.54 10.52 4.56 -7.68 -4.76 -1.80 18.34 11.73 5.17 -8.55 -5.32 -2.04""",
    4: """1.65 0.94 -1.81 -5.11 -1.72 -1.35 -3.06 -7.75 2.36 1.72 -0.62 -3.12 -1.95 -1.47 -2.11 -5.11 3.07 2.44 0.30 -1.83
    -2.22 -1.70 -1.73 -3.34 3.77 3.15 1.12 -0.82 -2.53 -1.99 -1.69 -2.26 4.84 2.72 1.13 -0.72 -2.24 -2.13 -1.80 -2.19 6.21
    3.95 2.10 0.01 -2.90 -2.53 -1.80 -1.61 7.55 5.05 2.86 0.50 -3.54 -2.90 -1.90 -1.35 9.51 6.58 3.91 1.12 -4.45 -3.46 -2.16
    -1.16 11.43 8.07 4.91 1.67 -5.35 -4.04 -2.47 -1.10 13.34 9.52 5.88 2.20 -6.25 -4.63 -2.82 -1.13 15.24 10.97 6.85 2.70
    -7.15 -5.25 -3.19 -1.21 17.13 12.41 7.81 3.19 -8.06 -5.88 -3.58 -1.33 19.01 13.83 8.76 3.67 -8.96 -6.52 -3.98 -1.48""",
    5: """1.65 0.94 -1.81 -5.05 -8.24 -1.72 -1.35 -3.06 -7.64 -12.44 2.36 1.72 -0.61 -3.08 -5.52 -1.95 -1.47 -2.11 -4.97 -8.62
    3.07 2.44 0.32 -1.67 -3.81 -2.22 -1.70 -1.75 -3.29 -6.27 3.77 3.15 1.14 -0.66 -2.77 -2.53 -1.99 -1.71 -2.30 -4.81 5.18
    4.53 2.60 1.03 -0.81 -3.17 -2.65 -2.10 -1.81 -2.27 6.58 5.77 3.79 1.98 -0.07 -3.70 -3.33 -2.49 -1.79 -1.67 7.61 5.40 3.67
    1.92 -0.11 -3.61 -3.27 -2.49 -1.79 -1.69 9.63 7.14 4.99 2.84 0.49 -4.58 -3.94 -2.90 -1.90 -1.35 11.62 8.79 6.24 3.68 0.99
    -5.53 -4.60 -3.34 -2.09 -1.18 13.58 10.40 7.45 4.50 1.45 -6.46 -5.27 -3.79 -2.33 -1.11 15.53 11.98 8.64 5.29 1.88 -7.38
    -5.94 -4.27 -2.60 -1.10 17.47 13.56 9.82 6.08 2.30 -8.30 -6.62 -4.76 -2.89 -1.14 19.40 15.12 10.99 6.86 2.71 -9.23 -7.32
    -5.26 -3.19 -1.21""",
    6: """1.65 0.94 -1.81 -5.04 -8.22 -11.41 -1.72 -1.35 -3.06 -7.64 -12.40 -17.20 2.36 1.72 -0.61 -3.09 -5.56 -8.03 -1.95
    -1.47 -2.12 -4.96 -8.59 -12.36 3.07 2.44 0.33 -1.67 -3.74 -5.81 -2.22 -1.70 -1.75 -3.29 -6.11 -9.26 3.77 3.15 1.14 -0.60
    -2.46 -4.33 -2.53 -1.99 -1.72 -2.33 -4.42 -7.18 5.18 4.53 2.61 1.08 -0.58 -2.60 -3.18 -2.65 -2.12 -1.85 -2.28 -4.61 6.59
    5.90 4.01 2.53 1.04 -0.77 -3.84 -3.33 -2.73 -2.20 -1.83 -2.24 7.99 7.20 5.24 3.55 1.83 -0.17 -4.45 -4.01 -3.22 -2.46 -1.78
    -1.74 9.69 7.45 5.65 3.88 2.07 -0.01 -4.64 -4.26 -3.41 -2.55 -1.79 -1.62 11.72 9.23 7.10 4.97 2.82 0.48 -5.62 -4.99 -3.94
    -2.89 -1.89 -1.36 13.72 10.96 8.48 6.01 3.53 0.90 -6.59 -5.71 -4.48 -3.25 -2.05 -1.21 15.71 12.65 9.84 7.03 4.22 1.29
    -7.54 -6.44 -5.04 -3.63 -2.25 -1.13 17.68 14.32 11.17 8.03 4.89 1.66 -8.48 -7.17 -5.60 -4.03 -2.46 -1.10 19.64 15.98 12.50
    9.03 5.56 2.02 -9.42 -7.90 -6.16 -4.43 -2.70 -1.11""",
}


def parameters(horizon: int, degree: int = 5) -> tuple[tuple[float, ...], tuple[float, ...]]:
    r"""Return decays and weights of a BLT for a horizon.

    Both are interpolated, linearly in the logarithm of the horizon, in a table of numerical minima of
    :math:`\tfrac34\log\mathrm{rms} + \tfrac14\log\max + \log\|c\|` (:func:`errors` and :func:`column_norm` at n = horizon). Fewer
    than 8 rounds use the values for 8, and more than :math:`2^{30}` rounds the values for :math:`2^{30}`: still private, with
    more noise than needed. ``degree`` is b, the number of memory vectors, from 1 to 6. The b decays are in (0, 1), in decreasing
    order, and the weights above 0.

    Example:
        >>> decay, weight = parameters(1000, degree=2)
        >>> [round(value, 3) for value in decay + weight]
        [0.997, 0.883, 0.084, 0.33]
    """
    n, b = positive_integer("horizon", horizon), positive_integer("degree", degree)
    if b not in TABLE:
        raise ValueError(f"degree: expected an integer from 1 to {len(TABLE)}, got {degree}")
    table = np.array(TABLE[b].split(), float).reshape(len(HORIZONS), 2 * b)
    values = [float(np.interp(math.log(n), np.log(HORIZONS), column)) for column in table.T]
    return tuple(1.0 / (1.0 + math.exp(-value)) for value in values[:b]), tuple(map(math.exp, values[b:]))


def column_norm(decay: Sequence[float], weight: Sequence[float], rounds: int) -> float:
    r"""Return C's largest column norm: the sensitivity for rows of norm at most 1.

    .. math:: \|c\|^2 = \sum_{k<n} c_k^2 = 1 + \sum_{ij} w_iw_j\frac{1 - (\lambda_i\lambda_j)^{n-1}}{1 - \lambda_i\lambda_j}

    with :math:`\lambda_j` in ``decay`` and :math:`w_j` in ``weight``, to a few units in the last place.

    Example:
        >>> column_norm((0.5,), (1.0,), 3)  # c = (1, 1, 1/2)
        1.5
    """
    lam, w, n = *_checked(decay, weight), positive_integer("rounds", rounds)
    log, gap = np.log(lam), 1.0 - lam
    gaps = gap[:, None] + lam[:, None] * gap
    return math.sqrt(1.0 - float((np.outer(w, w) * np.expm1((n - 1) * (log[:, None] + log)) / gaps).sum()))


class ColumnNorms:
    """Norms of C's first column after any number of rounds, for many calls.

    The arguments are as in :func:`column_norm`.
    """

    def __init__(self, decay: Sequence[float], weight: Sequence[float]) -> None:
        lam, w = _checked(decay, weight)
        log, gap = np.log(lam), 1.0 - lam
        self._decay_log, self._next_weight = log, w / lam
        self._finished: tuple[tuple[int, int], np.ndarray] = ((0, 0), np.zeros(0))
        self._log = (log[:, None] + log).ravel()
        self._share = (np.outer(w, w) / (gap[:, None] + lam[:, None] * gap)).ravel()

    def after(self, rounds: Any) -> Any:
        """Return the norm after ``rounds`` rounds, a number or an array of any shape."""
        return np.sqrt(1.0 - np.expm1(np.multiply.outer(rounds - 1, self._log)) @ self._share)

    def of_sum(self, rounds: int, count: int, separation: int) -> float:
        """Return the norm of the sum of the columns 1, 1 + b, ..., 1 + (k - 1) b.

        b is ``separation`` and k is ``count``. More than (k - 1) b ``rounds``.
        """
        finished = self._finished_before(separation, 1 << (count - 1).bit_length())[count - 1]
        memory = np.expm1(count * separation * self._decay_log) / np.expm1(separation * self._decay_log)
        return math.sqrt(finished + float(self._squares(memory, rounds - (count - 1) * separation)))

    def _squares(self, memory: np.ndarray, rounds: int) -> np.ndarray:
        """Return the sums of squares of rows, of which the first adds a column.

        ``memory`` (..., b) is what the columns have left there, the new one included.
        """
        following = (-np.expm1((rounds - 1) * self._log) * self._share).reshape(memory.shape[-1], -1)
        return (1.0 + (memory - 1.0) @ self._next_weight) ** 2 + (memory @ following * memory).sum(-1)

    def _finished_before(self, separation: int, count: int) -> np.ndarray:
        """Return the sums of squares of the rows before each of ``count`` columns."""
        if self._finished[0] != (separation, count):  # a ledger asks after each step
            log = separation * self._decay_log
            memory = np.expm1(np.multiply.outer(np.arange(1, count), log)) / np.expm1(log)
            self._finished = (separation, count), np.append(0.0, self._squares(memory, separation).cumsum())
        return self._finished[1]


def errors(
    decay: Sequence[float], weight: Sequence[float], rounds: int, shares: np.ndarray | None = None
) -> tuple[float, float]:
    r"""Return root mean square and maximum of the prefix sums' noise, for unit draws.

    With b the first column of :math:`AC^{-1}`, so that :math:`N_t = \sum_{k<t} b_k z_{t-k}`,

    .. math:: \mathrm{rms}^2 = \frac1n\sum_{t=1}^n\sum_{k<t} b_k^2,\qquad \max{}^2 = \sum_{k<n} b_k^2.

    Multiplied by :func:`column_norm` they are the noise at a sensitivity of 1, for any scale of C. ``shares`` holds each round's
    factor of the increment :math:`N_t - N_{t-1}`; None for no factors. Cost: about :math:`\log_2 n` products of matrices of order
    b + 1, or O(b^2 n) with shares. With the decays and weights of the table, the relative error is below 1e-12 up to 2e4 rounds,
    1e-10 up to 1e6 and 1e-7 up to 1e9.

    Example:
        >>> [round(error, 3) for error in errors(*parameters(1000), 1000)]
        [1.735, 1.875]
    """
    lam, w, n = *_checked(decay, weight), positive_integer("rounds", rounds)
    if shares is not None:
        variances = _variances(lam, w, np.asarray(shares, np.float64)[:n])
        return math.sqrt(variances.mean()), math.sqrt(variances.max())
    step = np.diag([1.0, *lam]) - np.array([0.0, *w])
    ones = np.ones_like(step)
    # The state x = (N, s) evolves as x <- M x + 1 z. The covariance after 2n rounds follows from that after n rounds. After
    # `done` rounds: M to that power, the covariance of the state, and the sum of the covariances of all rounds so far.
    done, power, covariance, total = 1, step, ones, ones
    for bit in f"{n:b}"[1:]:
        total = total + done * covariance + power @ total @ power.T
        covariance = covariance + power @ covariance @ power.T
        done, power = 2 * done, power @ power
        if bit == "1":
            covariance = ones + step @ covariance @ step.T
            total = total + covariance
            done, power = done + 1, step @ power
    return math.sqrt(total[0, 0] / n), math.sqrt(covariance[0, 0])


def _variances(lam: np.ndarray, w: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the variance after each round, for unit draws and given shares."""
    # In the eigenbasis the memory is h <- D h + a z, with D diagonal, and the increment is z - a'h.
    root = np.sqrt(w)
    d, basis = np.linalg.eigh(np.diag(lam) - np.outer(root, root))
    a = basis.T @ root
    before = np.arange(len(shares))  # rounds before each round
    # E h_i h_j = a_i a_j (1 + d_i d_j + ... ), with as many terms as there were rounds.
    of_increment, with_memory = np.ones(len(shares)), np.zeros((len(d), len(shares)))
    for i in range(len(d)):
        for j in range(len(d)):
            x = d[i] * d[j]
            moment = a[i] * a[j] * (before if x == 1.0 else (1.0 - x**before) / (1.0 - x))
            of_increment += a[i] * a[j] * moment
            with_memory[j] -= a[i] * moment
    # E N_{t-1} y_t = -a' E N_{t-1} h_t, and E N_t h_{t+1} follows from E N_{t-1} h_t.
    crossed = np.zeros(len(shares))
    for j in range(len(d)):
        new = (shares * (a[j] + d[j] * with_memory[j])).tolist()
        moments = itertools.accumulate(new[:-1], functools.partial(_decayed, decay=d[j]), initial=0.0)
        crossed -= a[j] * np.fromiter(moments, float, len(shares))
    return np.cumsum(shares * (shares * of_increment + 2.0 * crossed))


def _decayed(old: float, new: float, *, decay: float) -> float:
    return decay * old + new


def trace_lower_bound(rounds: int) -> float:
    r"""Return a lower bound on rms error times column norm of any matrix mechanism.

    .. math::
        \mathrm{rms}\cdot\max_i\|C_{\cdot i}\| \ge \frac{\|A\|_*}{n} = \frac1n\sum_{k=1}^n\frac1{2\sin\frac{(2k-1)\pi}{4n+2}},

    A the n x n lower-triangular matrix of ones, n = ``rounds``. This bounds noise that is linear in independent rows, not all
    mechanisms. Cost: O(n). (Li and Miklau, ICDT 2013; Henzinger, Upadhyay and Upadhyay, SODA 2023.)

    Example:
        >>> trace_lower_bound(1000)
        2.9020633622530028
    """
    n, chunk = positive_integer("rounds", rounds), 1 << 20
    odd = (np.arange(start, min(start + chunk, n)) * 2 + 1 for start in range(0, n, chunk))
    return math.fsum(float((0.5 / np.sin(math.pi / (4 * n + 2) * part)).sum()) for part in odd) / n


def _checked(decay: Sequence[float], weight: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return decays and weights as arrays of equal length, or raise."""
    lam = np.array([within("decay", value, 0.0, 1.0) for value in decay])
    w = np.array([positive("weight", value) for value in weight])
    if not 0 < len(lam) == len(w):
        raise ValueError(f"decay and weight: expected equal numbers of both, above 0, got {len(lam)} and {len(w)}")
    return lam, w
