r"""The tree of the paper of DP-TOFW, with generalized Gaussian noise: kept to compare with, and dominated by plain Gaussian
noise.

The law :math:`\mathcal G_r(\sigma^2)` has the density :math:`\propto \exp(-\|z\|_r^2/(2\sigma^2))`. For r at least 2,
:math:`\|\cdot\|_r^2` is (r-1)-smooth, and noise of that law on what a record can move by s in the norm of order q is
:math:`\kappa s^2/(2\sigma^2)`-zCDP, :math:`\kappa = (r-1)\,d^{2(1/r-1/q)}`, r in [2, q].
"""

import math

from torch import Tensor

from torchonline.core.backend import beside
from torchonline.privacy.accounting import Event, ZCDPEvent
from torchonline.privacy.mechanisms.trees import Tree
from torchonline.privacy.noise import NoiseSource


def smoothness(order: float, dim: int) -> tuple[float, float]:
    r"""The index r in [2, q] that the paper's rule :math:`\min\{q, \max\{2, \log d\}\}` gives, and its kappa; 2 and 1 for q
    below 2.

    The paper prints :math:`\min\{q-1, \log d - 1\}`, which is below 2, and no norm's, for few features.
    """
    if order < 2.0:
        return 2.0, 1.0
    r = min(order, max(2.0, math.log(dim)))
    return r, (r - 1.0) * dim ** (2.0 / r - 2.0 / order)


class GeneralizedGaussianTree(Tree):
    r"""The tree with the noise scale that the paper prints, :math:`\sigma^2 = 2h^2\kappa\log(h/\delta)s^2/\varepsilon^2` with
    h = ceil(log2 n) + 1.

    That is five times what its own zCDP needs, and more beside exact accounting. It is booked as the zCDP that it has, not as
    the formula says.

    Args:
        horizon: n.
        order: q, of the norm in which ``sensitivity`` is measured; the Euclidean one for q below 2, where the noise is normal.
        dim: d.
        epsilon, delta: as in the formula, which does what it says for n at least 2 and epsilon up to a limit.
    """

    name = "paper"

    def __init__(
        self,
        horizon: int,
        *,
        order: float,
        dim: int,
        sensitivity: float,
        epsilon: float,
        delta: float,
        source: NoiseSource,
    ) -> None:
        if horizon < 2:
            raise ValueError(f"horizon: expected at least 2, where the paper's noise is enough, got {horizon}")
        height = math.ceil(math.log2(horizon)) + 1
        limit = 4.0 * height * math.log(height / delta) * (1.0 - 1.0 / math.sqrt(height))
        if epsilon > limit:
            raise ValueError(
                f"epsilon: expected at most {limit:.4g}, where the paper's noise is enough, got {epsilon:g}"
            )
        self.order, self.kappa = smoothness(order, dim)
        scale = math.sqrt(2.0 * self.kappa * math.log(height / delta)) * height * sensitivity / epsilon
        self.law = "normal" if self.order == 2.0 else "generalized_gaussian"
        super().__init__(horizon, sensitivity=sensitivity, noise_scale=scale, source=source)

    def event(self, steps: int) -> Event:
        return ZCDPEvent(steps.bit_length() * self.kappa * (self.sensitivity / self.noise_scale) ** 2 / 2.0)

    def _draw(self, memory: Tensor) -> Tensor:
        if self.law == "normal":
            return super()._draw(memory)
        shape = (*memory.shape[:-2], memory.shape[-1])
        return beside(self.source.generalized_gaussian(shape, self.order), memory) * self.noise_scale
