r"""The tree in integers: sums and noise without rounding, so that what is proved of it is proved of the program.

Floating-point noise has holes: which numbers can come out depends on the secret (Mironov, CCS 2012), and no theorem about real
numbers speaks of them. Here a contribution is rounded to a grid, summed in int64, and each node of the tree gets the discrete
Gaussian of Canonne, Kamath and Steinke (The discrete Gaussian for differential privacy, NeurIPS 2020), which is
:math:`s^2/(2\sigma^2)`-zCDP for integers that move by at most s, as the continuous one is.
"""

import math

import torch
from torch import Tensor

from torchonline.core.backend import beside
from torchonline.privacy.accounting import Event, ZCDPEvent
from torchonline.privacy.calibration import zcdp_rho
from torchonline.privacy.mechanisms.base import State
from torchonline.privacy.mechanisms.trees import Tree
from torchonline.privacy.noise import NoiseSource

# The standard deviation of a node's noise is about two to this power, in units of the grid.
RESOLUTION = 20


class DiscreteTree(Tree):
    """The tree whose sums are integers: multiples of ``grid``.

    Args:
        horizon: n.
        sensitivity: how far a record can move its summand, in the Euclidean norm.
        radius: the longest summand; ``sensitivity`` is once or twice that.
        epsilon, delta: of the whole run.
        source: one that draws discrete normal numbers.

    Attributes:
        grid: the spacing of the sums, a power of two. Summands are rounded towards 0, and one that would then be too long, as
            none is but by rounding, counts as 0.
    """

    name = "discrete"
    law = "discrete_normal"

    def __init__(
        self, horizon: int, *, sensitivity: float, radius: float, epsilon: float, delta: float, source: NoiseSource
    ) -> None:
        rho = zcdp_rho(epsilon, delta) / horizon.bit_length()
        records = round(sensitivity / radius)  # how many summands' lengths a record moves: 2 or 1
        # A power of two, by which floating-point numbers are divided exactly.
        self.grid = 2.0 ** (math.floor(math.log2(sensitivity / math.sqrt(2.0 * rho))) - RESOLUTION)
        self.longest = math.ceil(radius / self.grid)
        if self.longest > 1 << 30:
            raise ValueError(f"epsilon: expected one that needs more noise for a grid to resolve, got {epsilon:g}")
        self.moved = records * self.longest
        self.sigma = math.ceil(self.moved / math.sqrt(2.0 * rho))
        super().__init__(horizon, sensitivity=sensitivity, noise_scale=self.sigma * self.grid, source=source)

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        return {name: value.to(torch.int64) for name, value in super().initial_state(dim).items()}

    def zero(self, dim: int) -> Tensor:
        return torch.zeros(dim, dtype=torch.int64)

    def change(self, state: State, summand: Tensor, step: int) -> Tensor:
        whole = (torch.as_tensor(summand) / self.grid).trunc().to(torch.int64)
        fits = whole.square().sum(-1, keepdim=True) <= self.longest**2
        return super().change(state, beside(torch.where(fits, whole, 0), summand), step)

    def value(self, noisy_sum: Tensor) -> Tensor:
        if isinstance(noisy_sum, Tensor):
            noisy_sum = noisy_sum.to(torch.float64)  # torch would make it float32
        return noisy_sum * self.grid

    def event(self, steps: int) -> Event:
        return ZCDPEvent(steps.bit_length() * (self.moved / self.sigma) ** 2 / 2.0)

    def _draw(self, memory: Tensor) -> Tensor:
        return beside(self.source.discrete_normal((*memory.shape[:-2], memory.shape[-1]), self.sigma), memory)
