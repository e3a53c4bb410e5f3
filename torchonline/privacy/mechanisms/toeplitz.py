"""Prefix-sum mechanisms with Toeplitz factors: the least noise."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import beside
from torchonline.privacy.mechanisms import blt
from torchonline.privacy.mechanisms.base import Mechanism, State, columns_of_a_person, factors, summary

Parameters = tuple[tuple[float, ...], tuple[float, ...]]  # decays and weights


class BLT(Mechanism):
    r"""Buffered linear Toeplitz mechanism, whose memory is a few decaying sums.

    C has the columns of a Toeplitz matrix, each scaled to the norm of the first. With the column norms :math:`\|c\|_m` after m
    steps, and :math:`\alpha_t = \|c\|_n/\|c\|_{n-t+1}`,

    .. math:: c_0 = 1,\quad c_k = \sum_j w_j\lambda_j^{k-1};\qquad
              \text{row}_t = \alpha_t g_t + \sum_j w_j s_j,\quad s_j \leftarrow \lambda_j s_j + \alpha_t g_t .

    The decoder undoes this on the released rows :math:`r_t`:

    .. math:: y_t = r_t - \sum_j w_j p_j,\quad p_j \leftarrow \lambda_j p_j + y_t,\quad P_t = P_{t-1} + y_t/\alpha_t .

    If a person takes part several times, C is the Toeplitz matrix itself, :math:`\alpha_t = 1`.

    Any :math:`0 < \lambda_j < 1` and :math:`w_j > 0` that do not depend on data are private, because sigma is computed from the
    numbers in use. The defaults, from :func:`torchonline.privacy.mechanisms.blt.parameters`, are fitted to the horizon. If a
    person takes part several times, they are the best of those for the horizon and for shorter ones, b, 2b, 4b, ...: C then
    forgets sooner, and a person's columns overlap less.
    (Dvijotham, McMahan, Pillutla, Steinke and Thakurta, FOCS 2024. What differs: docs/privacy_proofs.md.)
    """

    name = "blt"

    def __init__(self, horizon: int, *, parameters: Parameters | None = None, **options: Any) -> None:
        super().__init__(horizon, **options)
        if parameters is None:
            parameters = _best_parameters(horizon, self.participations, self.min_separation)
        self.decay, self.weight = parameters
        self._decay = np.array(self.decay)[:, None]
        self._weight = np.array(self.weight)
        self._norms = blt.ColumnNorms(self.decay, self.weight)
        self._is_scaled = self.participations == 1
        self._largest_norm = float(self._norms.after(horizon)) if self._is_scaled else 1.0
        self._last_share: list[Any] = [0, 1.0]

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        memory = torch.zeros((len(self.decay), dim), dtype=torch.float64)
        return super().initial_state(dim) | {"secret_memory": memory, "noisy_memory": memory}

    def _encode(self, state: State, summand: Tensor, step: int) -> Tensor:
        memory: Tensor = state["secret_memory"]
        scaled = summand / self._share(step)
        row = beside(self._weight, memory) @ memory + scaled
        self._push_(memory, scaled)
        return row

    def _decode(self, state: State, row: Tensor, step: int) -> Tensor:
        memory: Tensor = state["noisy_memory"]
        scaled = row - beside(self._weight, memory) @ memory
        self._push_(memory, scaled)
        return state["noisy_sum"] + scaled * self._share(step)

    def _push_(self, memory: Tensor, number: Tensor) -> None:
        memory *= beside(self._decay, memory)
        memory += number[..., None, :]

    def _share(self, step: int) -> float:
        """Return the norm of a step's unscaled column, divided by the largest norm."""
        if not self._is_scaled:
            return 1.0
        last = self._last_share  # the encoder and the decoder call this in turn
        if last[0] != step:
            last[:] = step, float(self._norms.after(self.horizon - step + 1)) / self._largest_norm
        return last[1]

    def _shares(self, n: int) -> np.ndarray:
        """Return the shares of the first n steps."""
        if n > self.horizon:
            raise ValueError(f"n: expected at most {self.horizon}, the horizon, got {n}")
        if not self._is_scaled:
            return np.ones(n)
        return self._norms.after(self.horizon + 1 - np.arange(1, n + 1)) / self._largest_norm

    def column_norm(self, steps: int) -> float:
        # The first column is not scaled. Every other column has a smaller share in the first steps.
        return blt.column_norm(self.decay, self.weight, steps)

    def _norm_of_several(self, steps: int, count: int) -> float:
        return self._norms.of_sum(steps, count, self.min_separation)

    def rounding(self, steps: int) -> float:
        # A summand of k steps ago has been rounded 2 k + b + 5 times.
        least_share = 1.0 / self._largest_norm
        sums = [len(self.decay) + 5.0]
        for decay, weight in zip(self.decay, self.weight, strict=True):
            count = min(steps - 1.0, 1.0 / (1.0 - decay))  # at least the sum of the powers
            sums.append(weight * count * (2.0 * count + len(self.decay) + 7.0))
        return 1.01 * math.sqrt(steps) * math.fsum(sums) / least_share

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        column = torch.from_numpy(_blt_coefficients(n, self.decay, self.weight))
        return factors(_toeplitz(column) / torch.from_numpy(self._shares(n)))

    def errors(self, n: int) -> tuple[float, float]:
        return blt.errors(self.decay, self.weight, n, self._shares(n))

    def parameters(self) -> list[tuple[str, float]]:
        own = super().parameters()
        for j, (decay, weight) in enumerate(zip(self.decay, self.weight, strict=True)):
            own += [(f"decay {j}", decay), (f"weight {j}", weight)]
        return own


class SquareRoot(Mechanism):
    r"""Square-root factorization, :math:`C = B,\ c_k = \binom{2k}{k}/4^k`.

    Its memory holds all summands and all rows. (Fichtenberger et al., ICML 2023.)
    """

    name = "sqrt"

    def __init__(self, horizon: int, **options: Any) -> None:
        super().__init__(horizon, **options)
        self._coefficients = _root_coefficients(horizon)
        self._backwards = self._coefficients[::-1].copy()

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        all_rows = torch.zeros((self.horizon, dim), dtype=torch.float64)
        return super().initial_state(dim) | {"secret_summands": all_rows, "noisy_rows": all_rows}

    def _encode(self, state: State, summand: Tensor, step: int) -> Tensor:
        return self._convolved(state["secret_summands"], summand, step)

    def _decode(self, state: State, row: Tensor, step: int) -> Tensor:
        return self._convolved(state["noisy_rows"], row, step)

    def _convolved(self, rows: Tensor, row: Tensor, step: int) -> Tensor:
        """Store a step's row, and return the weighted sum of all rows so far."""
        rows[..., step - 1, :] = row
        return beside(self._backwards, rows)[-step:] @ rows[..., :step, :]

    def column_norm(self, steps: int) -> float:
        return float(np.linalg.norm(self._coefficients[:steps]))

    def _norm_of_several(self, steps: int, count: int) -> float:
        return float(_norms_of_several(self.horizon, self.participations, self.min_separation)[steps - 1])

    def rounding(self, steps: int) -> float:
        return math.sqrt(steps) * (2.0 * steps + 4.0) * float(self._coefficients[:steps].sum())

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        return factors(_toeplitz(torch.from_numpy(self._coefficients[:n])))

    def errors(self, n: int) -> tuple[float, float]:
        return summary(torch.from_numpy(self._coefficients[:n] ** 2).cumsum(0))


@lru_cache(maxsize=8)  # a learner calls this twice, and so do all arms of a bandit
def _best_parameters(horizon: int, count: int, separation: int) -> Parameters:
    """Return the parameters of a BLT with the least noise for a person's columns.

    They are those for the horizon or, if a person takes part several times, for the separation, twice that, and so on.
    """
    if count == 1:
        return blt.parameters(horizon)

    def noise(parameters: Parameters) -> float:
        # The mean of the errors that the table of parameters minimizes.
        rms, largest = blt.errors(*parameters, horizon)
        taken = columns_of_a_person(horizon, count, separation)
        return rms**0.75 * largest**0.25 * blt.ColumnNorms(*parameters).of_sum(horizon, taken, separation)

    doublings = range(((horizon - 1) // separation).bit_length())
    horizons = [horizon, *(separation << i for i in doublings)]
    return min(map(blt.parameters, horizons), key=noise)


def _blt_coefficients(n: int, decay: tuple[float, ...], weight: tuple[float, ...]) -> np.ndarray:
    """Return the first n coefficients of a BLT's encoder."""
    powers = np.log(decay)[:, None] * np.arange(n - 1)
    return np.concatenate([[1.0], np.array(weight) @ np.exp(powers)])


def _root_coefficients(n: int) -> np.ndarray:
    """Return the first n coefficients of the square root."""
    k = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


@lru_cache(maxsize=8)  # a budget calls this after each step
def _norms_of_several(horizon: int, count: int, separation: int) -> np.ndarray:
    """Return the norm of a sum of columns of the square root, after each step.

    The columns are 1, 1 + b, 1 + 2b, ... No other columns that are b apart have a longer sum, if the coefficients are nonnegative
    and decreasing from index b on (docs/privacy_proofs.md). A column is 0 before its first row.
    """
    column = _root_coefficients(horizon)
    total = column.copy()
    for start in range(separation, min(count * separation, horizon), separation):
        total[start:] += column[: horizon - start]
    return np.sqrt(np.cumsum(total * total))


def _toeplitz(column: Tensor) -> Tensor:
    """Return the lower-triangular Toeplitz matrix with that first column."""
    step = torch.arange(len(column))
    return column[(step.unsqueeze(-1) - step).clamp(min=0)].tril()
