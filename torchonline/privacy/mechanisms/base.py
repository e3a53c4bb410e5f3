"""What a prefix-sum mechanism is: a factorisation, a noise scale, and a source of noise."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.privacy.accounting import Event, GaussianEvent, NonPrivateEvent
from torchonline.privacy.noise import NoiseSource, noise_source

State = dict[str, Any]


class Mechanism:
    """Base of all mechanisms: a factorisation of the prefix sums, a noise scale, and a source of noise. It has no state.

    All methods that compute run on tensors and on NumPy views of them alike. What evolves is kept by its owner, as buffers:
    the noisy sum, which is public, and those that :meth:`initial_state` begins and :meth:`change` writes in, as secret as the
    records, which their names say.

    Args:
        horizon: n, the number of steps.
        sensitivity: s_2, how far a record can move its summand in the Euclidean norm.
        noise_scale: sigma, of the independent draws.
        source: of these draws.
    """

    name: str
    law = "normal"

    def __init__(self, horizon: int, *, sensitivity: float, noise_scale: float, source: NoiseSource) -> None:
        source.require(self.law)
        self.horizon = horizon
        self.sensitivity = sensitivity
        self.noise_scale = noise_scale
        self.source = source

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        """The secrets before the first step, for sums of one learner, which have size d."""
        raise NotImplementedError

    def zero(self, dim: int) -> Tensor:
        """The noisy sum before the first step."""
        return torch.zeros(dim, dtype=torch.float64)

    def change(self, state: State, summand: Tensor, step: int) -> Tensor:
        """What a step, counted from 1, adds to the noisy sum: ``(*B, d)``. It may be called once for each step, in order."""
        change = self._increment(state, step)
        change += summand
        return change

    def value(self, noisy_sum: Tensor) -> Tensor:
        """The noisy sum in the units of the summands: float64."""
        return noisy_sum

    def _increment(self, state: State, step: int) -> Tensor:
        """The noise of this prefix, less that of the prefix before: ``(*B, d)``."""
        raise NotImplementedError

    def column_norm(self, steps: int) -> float:
        """The largest norm of C's columns after some steps."""
        raise NotImplementedError

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        """B and C as dense matrices, for n steps: their product is the matrix of ones on and below the diagonal."""
        raise NotImplementedError

    def errors(self, n: int) -> tuple[float, float]:
        """Root mean square and maximum over n steps of the noise's standard deviation, one coordinate, at sigma = 1."""
        raise NotImplementedError

    def event(self, steps: int) -> Event:
        """What has been released of a record after some steps, a number fixed in advance."""
        return GaussianEvent(self.noise_scale / (self.sensitivity * self.column_norm(steps)))

    def parameters(self) -> list[tuple[str, float]]:
        """The numbers that the noise in a state depends on, by name."""
        return [("sensitivity", self.sensitivity), ("noise_scale", self.noise_scale)]

    def _draw(self, memory: Tensor) -> Tensor:
        """Independent normal numbers of standard deviation sigma, ``(*B, d)``, to go with a memory ``(*B, m, d)``."""
        shape = (*memory.shape[:-2], memory.shape[-1])
        is_array = isinstance(memory, np.ndarray)
        noise: Any = self.source.normal_array(shape) if is_array else self.source.normal(shape).to(memory.device)
        noise *= self.noise_scale
        return noise


class NoNoise(Mechanism):
    """The sums themselves."""

    name = "none"

    def __init__(self, horizon: int) -> None:
        super().__init__(horizon, sensitivity=math.inf, noise_scale=0.0, source=noise_source("torch"))

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        return {}

    def change(self, state: State, summand: Tensor, step: int) -> Tensor:
        return summand

    def column_norm(self, steps: int) -> float:
        return 1.0

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        return torch.ones((n, n), dtype=torch.float64).tril(), torch.eye(n, dtype=torch.float64)

    def errors(self, n: int) -> tuple[float, float]:
        return 0.0, 0.0

    def event(self, steps: int) -> Event:
        return NonPrivateEvent()


def summary(variances: Tensor) -> tuple[float, float]:
    """Root mean square and maximum of standard deviations."""
    return math.sqrt(variances.mean()), math.sqrt(variances.max())
