"""Base class of the prefix-sum mechanisms."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import on_arrays
from torchonline.privacy.accounting import Event, GaussianEvent
from torchonline.privacy.noise import NoiseSource, noise_source

State = dict[str, Any]

VERTEX_LAWS = ("gumbel", "laplace")  # of noise on the scores of vertices

# The place of a name is its number in a checkpoint, so the order stays.
MECHANISM_NAMES = ("none", "blt", "tree", "honaker", "sqrt", "paper", "discrete", *VERTEX_LAWS)


class Mechanism:
    """Base class of the mechanisms: a factorization A = BC of prefix sums, and noise.

    Its owner keeps as buffers what evolves: the noisy sum, which is public, and others, which are as secret as the records, and
    their names say so. Methods that compute run on tensors and on NumPy views of them alike.

    Args:
        horizon: n, the number of steps.
        sensitivity: s_2, how far a record can move its summand in the Euclidean norm.
        noise_scale, source: sigma, the standard deviation of the independent draws, and their source.
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
        """Return the buffers before the first step, for sums of size d."""
        return {"noisy_sum": torch.zeros(dim, dtype=torch.float64)}

    def add(self, state: State, summand: Tensor, step: int) -> Tensor:
        """Add a summand, ``(*B, d)``, and noise; return the noisy sum, float64."""
        noisy_sum = state["noisy_sum"]
        noisy_sum += self.change(state, summand, step)
        return self.value(noisy_sum)

    def change(self, state: State, summand: Tensor, step: int) -> Tensor:
        """Return what a step adds to the noisy sum, ``(*B, d)``.

        Call it once for each step, in order. Steps count from 1.
        """
        change = self._increment(state, step)
        change += summand
        return change

    def value(self, noisy_sum: Tensor) -> Tensor:
        """Return the noisy sum in the units of the summands, float64."""
        return noisy_sum

    def _increment(self, state: State, step: int) -> Tensor:
        """Return the noise of this prefix minus that of the prefix before: ``(*B, d)``."""
        raise NotImplementedError

    def column_norm(self, steps: int) -> float:
        """Return the largest norm of C's columns after ``steps`` steps."""
        raise NotImplementedError

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        """Return B and C for n steps: dense factors of the lower-triangular ones matrix."""
        raise NotImplementedError

    def errors(self, n: int) -> tuple[float, float]:
        """Return rms and maximum, over n steps, of the standard deviation for sigma = 1."""
        raise NotImplementedError

    def event(self, steps: int) -> Event:
        """Return what ``steps`` steps, a number fixed in advance, release of a record."""
        return GaussianEvent(self.noise_scale / (self.sensitivity * self.column_norm(steps)))

    def parameters(self) -> list[tuple[str, float]]:
        """Return the numbers that the noise in a state depends on, by name."""
        return [("sensitivity", self.sensitivity), ("noise_scale", self.noise_scale)]

    def _draw_array(self, memory: Any) -> Any:
        noise = self.source.normal_array(draw_shape(memory))
        noise *= self.noise_scale
        return noise

    @on_arrays(_draw_array)
    def _draw(self, memory: Tensor) -> Tensor:
        """Draw from N(0, sigma^2), ``(*B, d)``, in the form of a memory ``(*B, m, d)``."""
        noise = self.source.normal(draw_shape(memory)).to(memory.device)
        noise *= self.noise_scale
        return noise


def draw_shape(memory: Tensor | np.ndarray) -> tuple[int, ...]:
    """Return the shape of one draw for a memory ``(*B, m, d)``: ``(*B, d)``."""
    return (*memory.shape[:-2], memory.shape[-1])


class NoNoise(Mechanism):
    """The sums themselves, without noise and without privacy."""

    name = "none"

    def __init__(self, horizon: int) -> None:
        super().__init__(horizon, sensitivity=math.inf, noise_scale=0.0, source=noise_source("torch"))

    def change(self, state: State, summand: Tensor, step: int) -> Tensor:
        return summand

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        return factors(torch.eye(n, dtype=torch.float64))

    def errors(self, n: int) -> tuple[float, float]:
        return 0.0, 0.0


def factors(encoder: Tensor) -> tuple[Tensor, Tensor]:
    """Return B and C for a C that is square and lower-triangular."""
    ones = torch.ones_like(encoder).tril()
    return torch.linalg.solve_triangular(encoder, ones, upper=False, left=False), encoder


def summary(variances: Tensor) -> tuple[float, float]:
    """Return root mean square and maximum of standard deviations, from variances."""
    return math.sqrt(variances.mean()), math.sqrt(variances.max())


def number_of(name: str) -> tuple[str, float]:
    """Return the option that tells a checkpoint which mechanism a state belongs to."""
    return "mechanism", float(MECHANISM_NAMES.index(name))
