"""What the private rivals share: a decision in a ball, a contribution of each record that is clipped, and a clock."""

import math
from typing import Any

import torch
from torch import Tensor

from torchonline.convex.domains import norm_order
from torchonline.core.checks import positive
from torchonline.privacy.accounting import Event, GaussianEvent
from torchonline.privacy.calibration import gaussian_mu
from torchonline.privacy.clipping import clipped
from torchonline.privacy.learners.point import PrivatePoint


class PrivateOptimizer(PrivatePoint):
    r"""Base of the private rivals that learn online: the round, without the rule.

    A round is that of :class:`~torchonline.DPTOFW`. A subclass says at which points it wants gradients (:meth:`queries`), what of
    them is a record's contribution (:meth:`_combined`), which is then clipped, and what is learnt from it (:meth:`_learn`).

    Args:
        dim: number of features d.
        norm: p, of the ball :math:`\|\theta\|_p \le R`, 1 to infinity.
        radius_bound: R > 0.
        options: those of :class:`~torchonline.privacy.learners.point.PrivatePoint`.
    """

    # At how many points it wants gradients.
    points = 1

    def __init__(self, dim: int, *, norm: float, radius_bound: float, **options: Any) -> None:
        super().__init__(dim, **options)
        self.norm = norm_order("norm", norm)
        self.radius_bound = positive("radius_bound", radius_bound)

    def queries(self) -> Tensor:
        """The points at which the next record's gradients are wanted, ``(*B, N, d)``."""
        return self.theta.unsqueeze(-2).clone()

    def step(self, gradients: Tensor | None, values: Tensor | None = None) -> None:
        """Learn from one record, or from None.

        Args:
            gradients: of the record's loss, at the points of :meth:`queries` in their order, ``(*B, N, d)``; or ``(*B, d)`` if
                there is one. None for a record that is missing: it takes its step all the same. What is NaN, infinite or long is
                cut, not refused.
            values: of the loss, which are not looked at.

        Raises:
            RuntimeError: the horizon is over, and the budget spent.
            TypeError: ``gradients`` is no floating-point tensor.
            ValueError: its shape or device is wrong. No buffer has changed.
        """
        step = self._next_step()
        with torch.no_grad():
            contribution = self._contribution(gradients, step)
            self._begin(step)
            self._learn(contribution, step)

    def _contribution(self, gradients: Tensor | None, step: int) -> Tensor:
        """What a record adds in its step: ``(*B, d)``, float64, of norm at most ``clip``."""
        if gradients is None:
            return self._nothing()
        return clipped(self._combined(self._checked(gradients, self.points), step), self.clip, self.clip_norm)

    def _combined(self, gradients: Tensor, step: int) -> Tensor:
        """The contribution before it is clipped: ``(*B, N, d)`` to ``(*B, d)``."""
        return gradients.squeeze(-2)

    def _learn(self, contribution: Tensor, step: int) -> None:
        """Take a contribution, ``(*B, d)``, in the step of that number."""
        raise NotImplementedError

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return [("norm", self.norm), ("radius_bound", self.radius_bound), ("clip", self.clip)]


class DisjointBatches(PrivateOptimizer):
    r"""Base of those that cut the stream into batches, and release one vector with Gaussian noise after each.

    Within a batch nothing is released. At its end comes a vector that its records determine, given what was released before, of
    which one record moves at most s in the Euclidean norm, plus :math:`N(0, (s/\mu)^2 I)`; all that is public is a
    function of these vectors.

    *Each batch gets the whole budget.* Let record i be replaced, in batch k. The batches before k have the same law in both
    worlds. Given what they released, the other records of batch k are the same in both, for a record may depend on what is
    public only; so the vector of batch k moves by at most s, and its release is :math:`\mu`-GDP. What follows is a function of
    what was released, the same in both worlds, and of fresh noise: post-processing. Averaged over what came before, the
    trade-off between the worlds stays above the curve of :math:`\mu`, since that is convex. So all of it is :math:`\mu`-GDP, and
    (epsilon, delta)-private for :math:`\mu` of :func:`~torchonline.privacy.calibration.gaussian_mu`. In the words of
    :mod:`torchonline.privacy.mechanisms.prefix_sums`, C has one row for each batch, with entries 1, and columns of norm 1.

    Args:
        ends: the numbers of the steps that end a batch, rising, up to the horizon: functions of the horizon.
    """

    def __init__(self, dim: int, *, ends: tuple[int, ...], **options: Any) -> None:
        super().__init__(dim, **options)
        self.source.require("normal")
        self.ends = ends
        self._sizes = {end: end - start for start, end in zip((0, *ends[:-1]), ends, strict=True)}
        # The standard deviation of the noise, in units of the sensitivity.
        self.noise_multiplier = 0.0 if self.epsilon == math.inf else 1.0 / gaussian_mu(self.epsilon, self.delta)

    def _noise(self, sensitivity: float) -> Tensor:
        """Noise for a vector that one record moves by so much: ``(*B, d)``, where the state is."""
        if self.noise_multiplier == 0.0:
            return torch.zeros_like(self.theta, dtype=torch.float64)
        draw = self.source.normal(tuple(self.theta.shape)) * (self.noise_multiplier * sensitivity)
        return draw.to(self.theta.device)

    def _event(self, steps: int) -> Event | None:
        return None if steps < self.ends[0] else GaussianEvent(self.noise_multiplier)

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        return super()._parameters_of_noise() + [("noise_multiplier", self.noise_multiplier)]
