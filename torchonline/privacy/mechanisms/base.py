"""Base class of the prefix-sum mechanisms."""

import math
from typing import Any

import torch
from torch import Tensor

from torchonline.core.ops import assign_
from torchonline.core.write_once import WriteOnce
from torchonline.privacy.accounting import Event, GaussianEvent
from torchonline.privacy.noise import NoiseSource, noise_source

State = dict[str, Any]

VERTEX_LAWS = ("gumbel", "laplace")  # of noise on the scores of vertices

# Checkpoints hold the index of a name, so never change the order.
MECHANISM_NAMES = ("none", "blt", "tree", "honaker", "sqrt", "paper", "discrete", *VERTEX_LAWS)


class Mechanism(WriteOnce):
    r"""Base class of the mechanisms: a factorization A = BC of prefix sums, and noise.

    In each step the encoder C combines the summands so far into a row. The noise source releases the row with noise, on a grid.
    The decoder B computes the prefix sum from released rows only, so its rounding reveals nothing.

    The owner keeps the state as buffers. The encoder's memory of summands is as secret as the records, and its names begin with
    ``secret``. The noisy sum and the decoder's memory are public. Methods that compute accept tensors and NumPy views of them.
    Between neighbouring streams, floating-point rows differ by more than real-valued rows would. :meth:`rounding` bounds the
    excess, and the noise allows for it (docs/privacy_proofs.md).

    Args:
        horizon: n, the number of steps.
        sensitivity: s_2, how far a record can move its summand in the Euclidean norm.
        longest: the largest Euclidean norm of a summand; None for the sensitivity.
        noise_scale, source: sigma, the standard deviation of the noise on each row, and its source.
        participations, min_separation: the most steps that a person takes part in, and the least distance between any two of
            them.
    """

    name: str
    law = "add_normal"

    def __init__(
        self,
        horizon: int,
        *,
        sensitivity: float,
        noise_scale: float,
        source: NoiseSource,
        longest: float | None = None,
        participations: int = 1,
        min_separation: int = 1,
    ) -> None:
        source.require(self.law)
        self.horizon = horizon
        self.sensitivity = sensitivity
        self.longest = sensitivity if longest is None else longest
        self.noise_scale = noise_scale
        self.source = source
        self.participations = participations
        self.min_separation = min_separation

    def initial_state(self, dim: int) -> dict[str, Tensor]:
        """Return the buffers before the first step, for sums of size d."""
        return {"noisy_sum": torch.zeros(dim, dtype=torch.float64)}

    def add(self, state: State, summand: Tensor, step: int) -> Tensor:
        """Add a summand, ``(*B, d)``, and return the noisy sum, which may be published.

        Call it once for each step, in order. Steps count from 1.
        """
        noisy_sum: Tensor = state["noisy_sum"]
        assign_(noisy_sum, self._decode(state, self._release(self._encode(state, summand, step)), step))
        return self.value(noisy_sum)

    def value(self, noisy_sum: Tensor) -> Tensor:
        """Return the noisy sum in the units of the summands, float64."""
        return noisy_sum

    def _encode(self, state: State, summand: Tensor, step: int) -> Tensor:
        """Return the encoder's secret row of a step, ``(*B, d)``."""
        raise NotImplementedError

    def _release(self, row: Tensor) -> Tensor:
        """Return a row with noise, which is public. Nothing else leaves a mechanism."""
        return self.source.add_normal(row, self.noise_scale)

    def _decode(self, state: State, row: Tensor, step: int) -> Tensor:
        """Return the noisy sum of a step from its released row, ``(*B, d)``."""
        raise NotImplementedError

    def column_norm(self, steps: int) -> float:
        """Return the largest norm of C's columns after ``steps`` steps."""
        raise NotImplementedError

    def person_norm(self, steps: int) -> float:
        """Return the largest norm of the sum of a person's columns after ``steps`` steps."""
        count = columns_of_a_person(steps, self.participations, self.min_separation)
        return self.column_norm(steps) if count == 1 else self._norm_of_several(steps, count)

    def _norm_of_several(self, steps: int, count: int) -> float:
        """Return a bound on the norm of the sum of ``count`` columns far enough apart."""
        raise NotImplementedError

    def rounding(self, steps: int) -> float:
        """Return a bound on the rounding errors of all rows, for summands of length 1.

        It bounds the root of the sum of squares over ``steps`` rows, in units of 2^-53.
        """
        raise NotImplementedError

    def moved(self, steps: int) -> float:
        """Return how far a person can move the rows of ``steps`` steps."""
        # The rows of both streams are rounded.
        return self.sensitivity * self.person_norm(steps) + 2.0**-52 * self.longest * self.rounding(steps)

    def scale_for(self, mu: float) -> float:
        """Return the noise scale that keeps all steps mu-Gaussian private."""
        return self.moved(self.horizon) / mu

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        """Return B and C for n steps: dense factors of the lower-triangular ones matrix."""
        raise NotImplementedError

    def errors(self, n: int) -> tuple[float, float]:
        """Return rms and maximum, over n steps, of the standard deviation for sigma = 1."""
        raise NotImplementedError

    def event(self, steps: int) -> Event:
        """Return a person's event of ``steps`` steps, a number fixed in advance."""
        return GaussianEvent(self.noise_scale / self.moved(steps))

    def parameters(self) -> list[tuple[str, float]]:
        """Return (name, value) pairs of the numbers that the noise in a state depends on."""
        return [("sensitivity", self.sensitivity), ("noise_scale", self.noise_scale)]


class NoNoise(Mechanism):
    """Exact prefix sums, without noise and without privacy."""

    name = "none"

    def __init__(self, horizon: int) -> None:
        super().__init__(horizon, sensitivity=math.inf, noise_scale=0.0, source=noise_source("torch"))

    def add(self, state: State, summand: Tensor, step: int) -> Tensor:
        total: Tensor = state["noisy_sum"]
        total += summand
        return total

    def materialize(self, n: int) -> tuple[Tensor, Tensor]:
        return factors(torch.eye(n, dtype=torch.float64))

    def errors(self, n: int) -> tuple[float, float]:
        return 0.0, 0.0


def columns_of_a_person(steps: int, participations: int, separation: int) -> int:
    """Return in how many of the first steps a person can take part."""
    return min(participations, 1 + (steps - 1) // separation)


def factors(encoder: Tensor) -> tuple[Tensor, Tensor]:
    """Return B and C for a C that is square and lower-triangular."""
    ones = torch.ones_like(encoder).tril()
    return torch.linalg.solve_triangular(encoder, ones, upper=False, left=False), encoder


def summary(variances: Tensor) -> tuple[float, float]:
    """Return the root mean square and the maximum of the standard deviations."""
    return math.sqrt(variances.mean()), math.sqrt(variances.max())


def number_of(name: str) -> tuple[str, float]:
    """Return the (name, number) option that identifies a checkpoint's mechanism."""
    return "mechanism", float(MECHANISM_NAMES.index(name))
