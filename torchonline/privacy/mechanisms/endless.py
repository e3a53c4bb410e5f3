"""Buffered linear Toeplitz mechanism for streams without an end.

Proofs: docs/privacy_proofs.md.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import beside
from torchonline.core.ops import assign_
from torchonline.privacy.mechanisms import blt
from torchonline.privacy.mechanisms.base import State
from torchonline.privacy.mechanisms.toeplitz import BLT

# The decays are 1 - 2^-shift, and the weights 2^(exponent - shift / 2). Printed by examples/noise_without_horizon.py.
SHIFTS = (32, 27, 22, 17, 12, 7, 2)
EXPONENTS = (-1.04, -1.48, -1.25, -1.09, -0.91, -0.65, -0.07)
DECAY = tuple(1.0 - 2.0**-shift for shift in SHIFTS)
WEIGHT = tuple(2.0 ** (exponent - shift / 2) for exponent, shift in zip(EXPONENTS, SHIFTS, strict=True))

PERIOD = 2**36  # steps after which the memory is cleared, eight for each person on earth
UNIT = 2.0**-52  # of the memory, as a share of sigma
LARGEST = 2**60  # in the memory, 256 sigma


class EndlessBLT(BLT):
    r"""Buffered linear Toeplitz mechanism whose columns have bounded norms for ever.

    With the coefficients :math:`c_k` of :class:`~torchonline.privacy.mechanisms.toeplitz.BLT`, unscaled, each column of the
    infinite encoder has the squared norm

    .. math:: \|c\|_\infty^2 = 1 + \sum_{ij} \frac{w_iw_j}{1 - \lambda_i\lambda_j} .

    Sigma is calibrated to this norm, and keeps the promise for any number of steps. For summands :math:`g_t` and noise
    :math:`z_t`, a step is

    .. math:: y_t = g_t + \sum_j w_j e_j + z_t,\qquad e_j \leftarrow \lambda_j e_j + g_t - y_t,\qquad P_t = P_{t-1} + y_t .

    :math:`y_t` is released. :math:`e_j` is the secret memory of a BLT minus its public one: past noise, whose size does not grow
    with the stream. It is kept in integers, which move between neighbouring streams by at most what :meth:`moved` says, for ever.
    After every ``PERIOD`` steps the memory starts at 0 again.

    From 16 to :math:`2^{34}` steps the root mean square of the noise is at most 1.40 times the lower bound of all matrix
    mechanisms that know the number of steps. A BLT for that number has 1.02 to 1.05 times the bound. (Jacobsen and Fawaz, Private
    continual counting of unbounded streams, NeurIPS 2025, calibrate to an infinite column too. Their matrices need a memory of t
    numbers at step t. What differs: docs/privacy_proofs.md.)

    Args:
        horizon: the largest number of steps that the clock holds.
        dim: d, the size of the sums.
        options: as in :class:`~torchonline.privacy.mechanisms.base.Mechanism`.
    """

    def __init__(self, horizon: int, *, dim: int, **options: Any) -> None:
        super().__init__(horizon, parameters=(DECAY, WEIGHT), **options)
        self.dim = dim
        self._shift = np.array(SHIFTS)[:, None]
        self._unit = UNIT * self.noise_scale
        self._weight_of_units = self._unit * np.array(WEIGHT)[:, None]

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        memory = torch.zeros((len(SHIFTS), dim), dtype=torch.int64)
        return {"noisy_sum": torch.zeros(dim, dtype=torch.float64), "secret_memory": memory}

    def add(self, state: State, summand: Tensor, step: int) -> Tensor:
        memory, noisy_sum = state["secret_memory"], state["noisy_sum"]
        released = self._release(summand + (beside(self._weight_of_units, memory) * memory).sum(-2))
        units = torch.as_tensor((summand - released) / self._unit).clip(-LARGEST, LARGEST)
        pushed = beside((units + 0.5).floor().to(torch.int64), memory)[..., None, :]
        memory -= memory >> beside(self._shift, memory)
        memory += pushed
        assign_(memory, memory.clip(-LARGEST, LARGEST) if step % PERIOD else 0 * memory)
        noisy_sum += released
        return noisy_sum

    def moved(self, steps: int) -> float:
        of_records, of_noise = self._moves(steps)
        return of_records + of_noise * self.noise_scale

    def scale_for(self, mu: float) -> float:
        of_records, of_noise = self._moves(self.horizon)
        return of_records / (mu - of_noise) if mu > of_noise else math.inf

    def _moves(self, steps: int) -> tuple[float, float]:
        """Return how far a person moves rows: the part without sigma, and a share of it."""
        # docs/privacy_proofs.md. Rows are rounded b + 4 times, entries of the memory to units.
        rows = math.sqrt(min(steps, self.participations * PERIOD))
        across = math.sqrt(self.dim)
        of_units = sum(w * min(steps, 2.0**shift) for w, shift in zip(WEIGHT, SHIFTS, strict=True))
        rounded = 2.0**-52 * (len(SHIFTS) + 4) * across * rows
        norm = self.person_norm(steps)
        of_noise = UNIT * across * (rows * of_units + 2.0**10 * norm) + rounded * UNIT * LARGEST * sum(WEIGHT)
        return self.sensitivity * norm + rounded * self.longest, of_noise

    def errors(self, n: int) -> tuple[float, float]:
        if n > PERIOD:
            raise ValueError(f"n: expected at most {PERIOD}, after which the memory is cleared, got {n}")
        return blt.errors(self.decay, self.weight, n)


@lru_cache(maxsize=64)
def largest_error(bits: int) -> float:
    """Return the largest standard deviation up to step 2^bits, for sigma = 1."""
    return blt.errors(DECAY, WEIGHT, min(2**bits, PERIOD))[1]
