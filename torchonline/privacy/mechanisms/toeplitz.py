"""Prefix-sum mechanisms with Toeplitz factors: the least noise."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import beside
from torchonline.privacy.mechanisms import blt
from torchonline.privacy.mechanisms.base import Mechanism, State, factors, summary


class BLT(Mechanism):
    r"""Buffered linear Toeplitz mechanism: its memory is decaying sums of past noise.

    .. math:: c_0 = 1,\quad c_k = \sum_j w_j\lambda_j^{k-1};\qquad
              y_t = z_t - \sum_j w_j s_j,\quad s_j \leftarrow \lambda_j s_j + y_t,\quad N_t = N_{t-1} + y_t .

    Any :math:`0 < \lambda_j < 1` and :math:`w_j > 0` that do not depend on data are private, because sigma is computed from the
    numbers in use. The default numbers, of :func:`torchonline.privacy.mechanisms.blt.parameters`, are fitted to the horizon.
    (Dvijotham, McMahan, Pillutla, Steinke and Thakurta, FOCS 2024. What differs: docs/privacy.md.)
    """

    name = "blt"

    def __init__(
        self, horizon: int, *, parameters: tuple[tuple[float, ...], tuple[float, ...]] | None = None, **options: Any
    ) -> None:
        super().__init__(horizon, **options)
        self.decay, self.weight = blt.parameters(horizon) if parameters is None else parameters
        self._decay = np.array(self.decay)[:, None]
        self._weight = np.array(self.weight)

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        memory = torch.zeros((len(self.decay), dim), dtype=torch.float64)
        return super().initial_state(dim) | {"secret_memory": memory}

    def _increment(self, state: State, step: int) -> Tensor:
        memory: Tensor = state["secret_memory"]
        noise = self._draw(memory)
        noise -= beside(self._weight, memory) @ memory
        memory *= beside(self._decay, memory)
        memory += noise[..., None, :]
        return noise

    def column_norm(self, steps: int) -> float:
        return blt.column_norm(self.decay, self.weight, steps)

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        powers = torch.tensor(self.decay, dtype=torch.float64) ** torch.arange(n - 1).unsqueeze(-1)
        return _factors(torch.cat([torch.ones(1, dtype=torch.float64), powers @ torch.from_numpy(self._weight)]))

    def errors(self, n: int) -> tuple[float, float]:
        return blt.errors(self.decay, self.weight, n)

    def parameters(self) -> list[tuple[str, float]]:
        own = super().parameters()
        for j, (decay, weight) in enumerate(zip(self.decay, self.weight, strict=True)):
            own += [(f"decay {j}", decay), (f"weight {j}", weight)]
        return own


class SquareRoot(Mechanism):
    r"""Square-root factorization, :math:`C = B,\ c_k = \binom{2k}{k}/4^k`.

    It keeps all draws. (Fichtenberger et al., ICML 2023.)
    """

    name = "sqrt"

    def __init__(self, horizon: int, **options: Any) -> None:
        super().__init__(horizon, **options)
        k = np.arange(1, horizon)
        self._coefficients = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
        self._backwards = np.diff(self._coefficients, prepend=0.0)[::-1].copy()

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        return super().initial_state(dim) | {"secret_draws": torch.zeros((self.horizon, dim), dtype=torch.float64)}

    def _increment(self, state: State, step: int) -> Tensor:
        draws: Tensor = state["secret_draws"]
        draws[..., step - 1, :] = self._draw(draws)
        return beside(self._backwards, draws)[-step:] @ draws[..., :step, :]

    def column_norm(self, steps: int) -> float:
        return float(np.linalg.norm(self._coefficients[:steps]))

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        return _factors(torch.from_numpy(self._coefficients[:n]))

    def errors(self, n: int) -> tuple[float, float]:
        return summary(torch.from_numpy(self._coefficients[:n] ** 2).cumsum(0))


def _factors(coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """Return B and C for a lower-triangular Toeplitz C, given by its first column."""
    step = torch.arange(len(coefficients))
    return factors(coefficients[(step.unsqueeze(-1) - step).clamp(min=0)].tril())
