"""How a sum of private contributions becomes a vertex: by noise on the sum, or by noise on the choice."""

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from torchonline.convex.domains import Domain, Vertices
from torchonline.privacy.accounting import Event, ZCDPEvent
from torchonline.privacy.mechanisms.base import Mechanism
from torchonline.privacy.noise import NoiseSource

# Where a name stands here is what a checkpoint says of it.
MECHANISM_NAMES = ("none", "blt", "tree", "honaker", "sqrt", "paper", "discrete", "gumbel", "laplace")


class Choice(Protocol):
    """How a sum of contributions becomes a vertex: where the noise is.

    Attributes:
        takes_arrays: whether the state and the contribution may be NumPy arrays, and the vertex one.
    """

    takes_arrays: bool

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        """The buffers of one learner before the first step; those that are secret say so in their names."""

    def vertex(self, state: Any, contribution: Tensor, step: int, divisor: float) -> Tensor:
        """Add a contribution ``(*B, d)``, and choose ``(*B, d)``."""

    def event(self, steps: int) -> Event:
        """What some steps release of a record."""

    def parameters(self) -> list[tuple[str, float]]:
        """The numbers that the noise in a state depends on, by name."""


class NoisySum:
    """Noise on the sum: the vertex, and the direction with it, are functions of what a prefix-sum mechanism releases."""

    def __init__(self, domain: Domain, mechanism: Mechanism) -> None:
        self.domain = domain
        self.mechanism = mechanism
        self.takes_arrays = domain.takes_arrays

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        return {"noisy_sum": self.mechanism.zero(dim)} | self.mechanism.initial_state(dim)

    def vertex(self, state: Any, contribution: Tensor, step: int, divisor: float) -> Tensor:
        noisy_sum = state["noisy_sum"]
        noisy_sum += self.mechanism.change(state, contribution, step)
        return self.domain.minimizer(self.mechanism.value(noisy_sum) / divisor)

    def event(self, steps: int) -> Event:
        return self.mechanism.event(steps)

    def parameters(self) -> list[tuple[str, float]]:
        return [("mechanism", float(MECHANISM_NAMES.index(self.mechanism.name)))] + self.mechanism.parameters()


class NoisyVertex:
    r"""Noise on the scores of all vertices, fresh in every step; only the lowest is released, and the sum stays secret.

    When a record is replaced, the scores' differences move by at most :math:`\Delta_t = \Delta_1/t`,
    :math:`\Delta_1 = \mathrm{diam}_1(V)\cdot 2C` with the contributions clipped to C in the maximum norm.
    Gumbel noise of scale b makes the choice an exponential mechanism: bounded range :math:`\Delta_t/b`,
    hence :math:`(\Delta_t/b)^2/8`-zCDP; Laplace noise, :math:`(\Delta_t/b)^2/2`. With
    :math:`b_t = \Delta_1\sqrt{H_n/(8\rho)}/\sqrt t`, and 2 in the place of 8 for Laplace, n steps are :math:`\rho`-zCDP and
    t steps :math:`\rho H_t/H_n`.
    """

    takes_arrays = False

    def __init__(
        self, domain: Vertices, law: str, *, horizon: int, sensitivity: float, rho: float, source: NoiseSource
    ) -> None:
        source.require(law)
        self.domain = domain
        self.law = law
        self.horizon = horizon
        self.rho = rho
        self.source = source
        self.scale = (
            domain.diameter * sensitivity * math.sqrt(harmonic(horizon) / ({"gumbel": 8.0, "laplace": 2.0}[law] * rho))
        )

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        return {"secret_sum": torch.zeros(dim, dtype=torch.float64)}

    def vertex(self, state: Any, contribution: Tensor, step: int, divisor: float) -> Tensor:
        total = state["secret_sum"]
        total += contribution
        scores = self.domain.scores(total / divisor)
        draw = self.source.gumbel if self.law == "gumbel" else self.source.laplace
        noise = draw(tuple(scores.shape)).to(scores.device)
        return self.domain.vertex(scores.sub(noise, alpha=self.scale / math.sqrt(step)).argmin(-1))

    def event(self, steps: int) -> Event:
        return ZCDPEvent(self.rho * harmonic(steps) / harmonic(self.horizon))

    def parameters(self) -> list[tuple[str, float]]:
        return [("mechanism", float(MECHANISM_NAMES.index(self.law))), ("noise_scale", self.scale)]


def harmonic(n: int) -> float:
    """``1 + 1/2 + ... + 1/n``."""
    return float(torch.special.digamma(torch.tensor(n + 1.0, dtype=torch.float64))) + 0.57721566490153286
