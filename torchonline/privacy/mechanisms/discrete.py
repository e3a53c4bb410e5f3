"""Binary tree in integers: exact sums and exact noise."""

import math

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import beside
from torchonline.privacy.accounting import Event, SmallStepsEvent
from torchonline.privacy.calibration import gaussian_mu
from torchonline.privacy.mechanisms.base import State
from torchonline.privacy.mechanisms.trees import Tree
from torchonline.privacy.noise import NoiseSource

RESOLUTION = 20  # the standard deviation of a node's noise is at least two to this power, in units of the grid

# Above a standard deviation of 2^20, the mu of discrete Gaussian noise exceeds the continuous one by at most this fraction.
EXCESS = 1e-8


class DiscreteTree(Tree):
    r"""Binary tree of integers, in units of ``grid``, with discrete Gaussian noise.

    For integers that move by at most s the noise is :math:`s^2/(2\sigma^2)`-zCDP, as the continuous noise is (Canonne, Kamath
    and Steinke, NeurIPS 2020), and for a :math:`\sigma` of at least :math:`2^{20}` it is :math:`(1 + 10^{-8})s/\sigma`-GDP
    (docs/privacy_proofs.md). No release is computed with real numbers. ``grid`` is a power of two. Summands are rounded towards
    0. A rounded summand that is too long, which only rounding can cause, counts as 0.

    Args:
        horizon, source, sensitivity, longest: see :class:`~torchonline.privacy.mechanisms.base.Mechanism`. The sensitivity
            is once or twice the length of the longest summand.
        epsilon, delta: of the whole run.
    """

    name = "discrete"
    law = "discrete_normal"

    def __init__(
        self, horizon: int, *, sensitivity: float, longest: float, epsilon: float, delta: float, source: NoiseSource
    ) -> None:
        mu = gaussian_mu(epsilon, delta) / (math.sqrt(horizon.bit_length()) * (1.0 + EXCESS))
        records = round(sensitivity / longest)  # a record moves the sum by the length of 1 or 2 summands
        # Division of a floating-point number by a power of two is exact.
        self.grid = 2.0 ** (math.floor(math.log2(sensitivity / mu)) - RESOLUTION)
        self.longest_whole = math.ceil(longest / self.grid)
        if self.longest_whole > 1 << 30:
            raise ValueError(f"epsilon: expected a smaller number, whose noise a grid can resolve, got {epsilon:g}")
        self.whole_sensitivity = records * self.longest_whole
        self.sigma = math.ceil(self.whole_sensitivity / mu)
        super().__init__(
            horizon, sensitivity=sensitivity, longest=longest, noise_scale=self.sigma * self.grid, source=source
        )

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        return {name: value.to(torch.int64) for name, value in super().initial_state(dim).items()}

    def _encode(self, state: State, summand: Tensor, step: int) -> Tensor:
        whole = (torch.as_tensor(summand) / self.grid).trunc().to(torch.int64)
        fits = whole.square().sum(-1, keepdim=True) <= self.longest_whole**2
        return super()._encode(state, beside(torch.where(fits, whole, 0), summand), step)

    def _release(self, row: Tensor) -> Tensor:
        return row + beside(self.source.discrete_normal(tuple(row.shape), self.sigma), row)

    def value(self, noisy_sum: Tensor) -> Tensor:
        return noisy_sum * beside(np.array([self.grid]), noisy_sum)  # with a Python number torch would return float32

    def event(self, steps: int) -> Event:
        mu = math.sqrt(steps.bit_length()) * self.whole_sensitivity / self.sigma
        return SmallStepsEvent((1.0 + EXCESS) * mu, 0.5 * mu * mu)
