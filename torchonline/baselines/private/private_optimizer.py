"""Base classes of the private baselines that learn online from gradients."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.convex.domains import norm_order
from torchonline.core.checks import positive
from torchonline.core.stepping import one_at_a_time
from torchonline.privacy.accounting import Event, GaussianEvent
from torchonline.privacy.calibration import gaussian_mu
from torchonline.privacy.clipping import clipped
from torchonline.privacy.learners.options import PrivateOptions
from torchonline.privacy.learners.point import PrivatePoint


class PrivateOptimizer(PrivatePoint):
    r"""Base class of the private online baselines: the round, without the rule.

    A round is that of :class:`~torchonline.DPTOFW`. A subclass says at which points it wants gradients (:meth:`queries`), how a
    record's contribution follows from them before it is clipped (:meth:`_combined`), and how to learn from it (:meth:`_learn`).

    Args:
        dim: number of features d.
        norm: p, of the ball :math:`\|\theta\|_p \le R`, from 1 to infinity.
        radius_bound: R > 0.
        clip: C, the bound that contributions are clipped to; ``inf`` only if epsilon is.
        clip_norm: the order of the norm that contributions are clipped in.
        options: those of :class:`~torchonline.privacy.learners.base.PrivateLearner`.
    """

    # The number of points at which it wants gradients.
    points = 1

    def __init__(
        self,
        dim: int,
        *,
        norm: float,
        radius_bound: float,
        clip: float,
        clip_norm: float = 2.0,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(dim, clip=clip, clip_norm=clip_norm, **options)
        self.norm = norm_order("norm", norm)
        self.radius_bound = positive("radius_bound", radius_bound)

    @one_at_a_time
    def queries(self) -> Tensor:
        """Return the points for the next record's gradients, ``(*B, N, d)``."""
        return self.theta.unsqueeze(-2).clone()

    @one_at_a_time
    def step(self, gradients: Tensor | None, values: Any = None) -> None:
        """Learn from one record, or from None.

        Args:
            gradients: of the record's loss, at the points of :meth:`queries` in their order, ``(*B, N, d)``; or ``(*B, d)`` for
                one point. None for a missing record, which takes its step all the same. NaN, infinite and long gradients are
                clipped, not refused.
            values: of the loss. Ignored.

        Raises:
            RuntimeError: the horizon is over and the budget spent, or an interrupted step has left the state half written.
            TypeError: ``gradients`` holds no floating-point numbers. No buffer has changed.
            ValueError: the shape or device of ``gradients`` is wrong. No buffer has changed.
        """
        step = self._next_step()
        with torch.no_grad():
            contribution = self._contribution(gradients, step)
            self._take(step, self._learn, contribution, step)

    def _contribution(self, gradients: Tensor | None, step: int) -> Tensor:
        """Return what a record adds: ``(*B, d)``, float64, of norm at most ``clip``."""
        return clipped(self._combined(self._checked(gradients, self.points), step), self.clip, self.clip_norm)

    def _combined(self, gradients: Tensor, step: int) -> Tensor:
        """Return the contribution before it is clipped: ``(*B, N, d)`` to ``(*B, d)``."""
        return gradients.squeeze(-2)

    def _learn(self, contribution: Tensor, step: int) -> None:
        """Learn from a contribution, ``(*B, d)``, in the step of that number."""
        raise NotImplementedError

    def _best_rate(self) -> float:
        """Return the learning rate for a finite clip."""
        raise NotImplementedError

    def _rate_or_best(self, learning_rate: float | None) -> float:
        """Return the learning rate, or :meth:`_best_rate` for None."""
        if learning_rate is not None:
            return positive("learning_rate", learning_rate)
        if self.clip == math.inf:
            raise ValueError(
                "learning_rate: expected a number, since none is the best where clip is infinite, got None"
            )
        return self._best_rate()

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return [("norm", self.norm), ("radius_bound", self.radius_bound), ("clip", self.clip)]


class DisjointBatches(PrivateOptimizer):
    r"""Base class of the baselines that release one noisy vector after each batch.

    The stream is cut into batches. Within a batch nothing is released. At its end a vector is released with noise
    :math:`N(0, (s/\mu)^2 I)`. Given the earlier releases, the vector is a function of the batch's records, of which one record
    moves it by at most s in the Euclidean norm. All public values are functions of these releases.

    *Each batch gets the whole budget*, because each record is in one batch only: the run is (epsilon, delta)-private for the
    :math:`\mu` of :func:`~torchonline.privacy.calibration.gaussian_mu`. Proof: docs/privacy.md.

    Args:
        options: those of :class:`PrivateOptimizer`.

    Attributes:
        ends: the last steps of the batches, rising, up to the horizon.
        noise_multiplier: :math:`1/\mu`, the standard deviation of the noise in units of the sensitivity.
    """

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.source.require("normal")
        self.ends = self._last_steps(self.horizon)
        self._sizes = {end: end - start for start, end in zip((0, *self.ends[:-1]), self.ends, strict=True)}
        self.noise_multiplier = 0.0 if self.epsilon == math.inf else 1.0 / gaussian_mu(self.epsilon, self.delta)

    def _last_steps(self, horizon: int) -> tuple[int, ...]:
        """Return the last steps of the batches, a function of the horizon only."""
        raise NotImplementedError

    def _noise(self, sensitivity: float) -> Tensor:
        """Return noise, ``(*B, d)``, for a vector of a given sensitivity."""
        if self.noise_multiplier == 0.0:
            return torch.zeros_like(self.theta, dtype=torch.float64)
        draw = self.source.normal(tuple(self.theta.shape)) * (self.noise_multiplier * sensitivity)
        return draw.to(self.theta.device)

    def _event(self, steps: int) -> Event | None:
        return None if steps < self.ends[0] else GaussianEvent(self.noise_multiplier)

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return super()._parameters_of_noise() + [("noise_multiplier", self.noise_multiplier)]
