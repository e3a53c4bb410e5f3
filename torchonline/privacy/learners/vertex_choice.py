"""Private choice of a vertex by noisy scores."""

import math

import torch
from torch import Tensor

from torchonline.convex.domains import Vertices
from torchonline.core.write_once import WriteOnce
from torchonline.privacy.accounting import Event, SmallStepsEvent, ZCDPEvent
from torchonline.privacy.clipping import sum_rounding
from torchonline.privacy.mechanisms.base import State
from torchonline.privacy.noise import NoiseSource
from torchonline.privacy.small_steps import LARGEST_RHO, harmonic, harmonic_mu, largest_rho


class NoisyVertex(WriteOnce):
    r"""Noise on the scores of all vertices, fresh in every step.

    The vertex with the lowest score is released, and the sum stays secret. If a record is replaced, the differences of the
    scores move by at most :math:`\Delta_t = \Delta_1/t`, with :math:`\Delta_1 = \mathrm{diam}_1(V)\cdot 2C` for contributions
    clipped to C in the maximum norm. Gumbel noise of scale b is :math:`(\Delta_t/b)^2/8`-zCDP, by its bounded range, and Laplace
    noise :math:`(\Delta_t/b)^2/2`-zCDP. With :math:`b_t = \Delta_1/\sqrt{8\rho_1 t}`, and 2 instead of 8 for Laplace noise, step
    t is :math:`\rho_1/t`-zCDP. All steps together have two bounds: the sum of these, and the bound for small steps
    (``torchonline.privacy.small_steps``). :math:`\rho_1` is the largest number for which one of the bounds keeps the promise.
    :math:`\Delta_1` also allows for the rounding of sums and scores.

    Args:
        domain: the polytope V.
        law, source: ``"gumbel"`` or ``"laplace"``, and the source of this noise.
        horizon, epsilon, delta: n, the number of steps, and the promise for all of them.
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
        epsilon: float,
        delta: float,
        source: NoiseSource,
    ) -> None:
        source.require("highest")
        self.domain = domain
        self.name = law
        self.rho = largest_rho(epsilon, delta, harmonic_mu(1.0, horizon), harmonic(horizon))
        self.source = source
        share = {"gumbel": 8.0, "laplace": 2.0}[law]
        # Two scores of two streams are rounded, each d + 3 times at most.
        moved = domain.diameter * (sensitivity + sum_rounding(horizon) * longest)
        moved += 2.0**-50 * (domain.dim + 3) * horizon * domain.reach * longest
        self.scale = moved / math.sqrt(share * self.rho)

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
        rho = self.rho * harmonic(steps)
        return SmallStepsEvent(harmonic_mu(self.rho, steps), rho) if self.rho <= LARGEST_RHO else ZCDPEvent(rho)

    def parameters(self) -> list[tuple[str, float]]:
        return [("noise_scale", self.scale)]
