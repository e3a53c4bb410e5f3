"""Private choice of a vertex by noisy scores."""

import math

import torch
from torch import Tensor

from torchonline.convex.domains import Vertices
from torchonline.core.write_once import WriteOnce
from torchonline.privacy.accounting import Event, ZCDPEvent
from torchonline.privacy.clipping import sum_rounding
from torchonline.privacy.mechanisms.base import State
from torchonline.privacy.noise import NoiseSource


class NoisyVertex(WriteOnce):
    r"""Noise on the scores of all vertices, new in every step.

    The vertex with the lowest score is released, and the sum stays secret. If a record is replaced, the differences of the
    scores move by at most :math:`\Delta_t = \Delta_1/t`, with :math:`\Delta_1 = \mathrm{diam}_1(V)\cdot 2C` for contributions
    clipped to C in the maximum norm. Gumbel noise of scale b is :math:`(\Delta_t/b)^2/8`-zCDP, by its bounded range, and Laplace
    noise :math:`(\Delta_t/b)^2/2`-zCDP. With :math:`b_t = \Delta_1\sqrt{H_n/(8\rho)}/\sqrt t`, and 2 in the place of 8 for
    Laplace noise, n steps are :math:`\rho`-zCDP and t steps are :math:`\rho H_t/H_n`-zCDP. :math:`\Delta_1` also allows for the
    rounding of sums and scores.

    Args:
        domain: the polytope V.
        law, source: ``"gumbel"`` or ``"laplace"``, and the source of this noise.
        horizon, rho: n, the number of steps, and the rho of all of them.
        sensitivity: 2C, or C under ``"zero_out"``: how far a record moves the sum in the maximum norm.
        longest: the largest maximum norm of a summand.
    """

    def __init__(
        self,
        domain: Vertices,
        law: str,
        *,
        horizon: int,
        sensitivity: float,
        longest: float,
        rho: float,
        source: NoiseSource,
    ) -> None:
        source.require("highest")
        self.domain = domain
        self.name = law
        self.horizon = horizon
        self.rho = rho
        self.source = source
        share = {"gumbel": 8.0, "laplace": 2.0}[law]
        # Two scores of two streams are rounded, each d + 3 times at most.
        moved = domain.diameter * (sensitivity + sum_rounding(horizon) * longest)
        moved += 2.0**-50 * (domain.dim + 3) * horizon * domain.reach * longest
        self.scale = moved * math.sqrt(harmonic(horizon) / (share * rho))

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        return {"secret_sum": torch.zeros(dim, dtype=torch.float64)}

    def add(self, state: State, summand: Tensor, step: int) -> Tensor:
        """Add a summand to the secret sum, and return the sum, both ``(*B, d)``."""
        total: Tensor = state["secret_sum"]
        total += summand
        return total

    def vertex(self, direction: Tensor, step: int) -> Tensor:
        """Return the vertex that noisy scores choose for a direction, both ``(*B, d)``."""
        scores = -self.domain.scores(direction)
        return self.domain.vertex(self.source.highest(scores, self.scale / math.sqrt(step), self.name))

    def event(self, steps: int) -> Event:
        return ZCDPEvent(self.rho * harmonic(steps) / harmonic(self.horizon))

    def parameters(self) -> list[tuple[str, float]]:
        return [("noise_scale", self.scale)]


def harmonic(n: int) -> float:
    """Return ``1 + 1/2 + ... + 1/n``."""
    return float(torch.special.digamma(torch.tensor(n + 1.0, dtype=torch.float64))) + 0.57721566490153286
