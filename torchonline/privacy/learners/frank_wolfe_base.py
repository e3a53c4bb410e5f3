r"""Private online Frank-Wolfe: one record, one step, one public decision, over and over.

All learners here play the same round. With :math:`\theta_0 = \theta_1`, t = 1, 2, ... and the gradients of the loss of record
:math:`z_t` at two points,

.. math::
    g_t &= t\,\nabla f(\theta_t; z_t) - (t-1)\,\nabla f(\theta_{t-1}; z_t), \qquad
    d_t = \tfrac1t\,(g_1 + ... + g_t), \\
    v_t &\approx \arg\min_{v \in \mathcal D}\langle d_t, v\rangle, \qquad
    \theta_{t+1} = \theta_t + \eta_t(v_t - \theta_t), \quad \eta_t = \min\{1, c/(t+1)\}.

For independent records :math:`E\,d_t = \nabla F(\theta_t)`, with an error that shrinks as t grows, and :math:`g_t` stays bounded
because :math:`t\|\theta_t - \theta_{t-1}\|` does. It is clipped as a whole (:func:`torchonline.privacy.clipping.clipped`), so
that the sum of all moves by at most 2C when one record is replaced. They differ in where the noise is: on the sum, or on the
choice of a vertex.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.convex.domains import Domain, Vertices
from torchonline.core.backend import SMALL_STEP, as_array, is_readable
from torchonline.core.checks import one_of, positive
from torchonline.core.ops import assign_
from torchonline.core.views import NumpyView
from torchonline.privacy.accounting import Event
from torchonline.privacy.calibration import zcdp_rho
from torchonline.privacy.clipping import clipped
from torchonline.privacy.learners.point import PrivatePoint
from torchonline.privacy.learners.vertex_choice import Choice, NoisySum, NoisyVertex
from torchonline.privacy.mechanisms.base import Mechanism, NoNoise
from torchonline.privacy.mechanisms.prefix_sums import calibrated

SCHEMES = ("unbiased", "paper")


class PrivateFrankWolfe(PrivatePoint):
    """Base of the private Frank-Wolfe learners: the round, without the noise. A subclass says where that is: :meth:`_choice`.

    Args:
        dim: number of features d.
        domain: of the decisions.
        clip: C, of the contributions.
        clip_norm: the order of the norm that contributions are clipped in.
        mechanism: the name of the noise.
        scheme, step_scale: see :class:`~torchonline.DPTOFW`.
        options: those of :class:`~torchonline.privacy.learners.base.PrivateLearner`.
    """

    theta_prev: Tensor

    decisions = ("theta", "theta_prev")

    def __init__(
        self,
        dim: int,
        *,
        domain: Domain,
        clip: float,
        clip_norm: float,
        mechanism: str,
        scheme: str,
        step_scale: float,
        **options: Any,
    ) -> None:
        super().__init__(dim, clip=clip, clip_norm=clip_norm, **options)
        self.domain = domain
        self.mechanism = mechanism
        self.scheme = one_of("scheme", scheme, SCHEMES)
        self.step_scale = positive("step_scale", step_scale)
        self.is_small = math.prod(self.batch_shape) * self.dim < SMALL_STEP
        self.choice: Choice = self._choice()
        self._create_buffers()

    def _choice(self) -> Choice:
        """Where the noise is."""
        raise NotImplementedError

    def _prefix_sum(self) -> Mechanism:
        """The prefix-sum mechanism, with the least noise that this learner's promise needs."""
        if self.epsilon == math.inf:
            return NoNoise(self.horizon)
        return calibrated(
            self.mechanism,
            self.horizon,
            sensitivity=self._moved(),
            radius=self._longest(),
            epsilon=self.epsilon,
            delta=self.delta,
            source=self.source,
        )

    def _initial_state(self) -> dict[str, Tensor | None]:
        start = self.domain.start()
        return {"theta": start, "theta_prev": start, **self.choice.initial_state(self.dim)}

    def queries(self) -> Tensor:
        """The two points at which the next record's gradients are wanted, this decision and the one before: ``(*B, 2, d)``."""
        self._refuse_tracing()
        return torch.stack([self.theta, self.theta_prev], -2)

    def step(self, gradients: Tensor | None, values: Tensor | None = None) -> None:
        """Learn from one record, or from None, and publish the next decision.

        Args:
            gradients: of the record's loss, at the two points of :meth:`queries` in their order, ``(*B, 2, d)``. None for a
                record that is missing: it takes its step all the same. What is NaN, infinite or long is cut, not refused.
            values: of the loss, which are not looked at.

        Raises:
            RuntimeError: the horizon is over, and the budget spent.
            TypeError: ``gradients`` is no floating-point tensor.
            ValueError: its shape or device is wrong. No buffer has changed.
        """
        step = self._next_step()
        if gradients is not None:
            gradients = self._checked(gradients, 2)
        view = self._arrays()
        with torch.no_grad(), np.errstate(all="ignore"):
            if gradients is None:
                contribution = self._nothing()
            else:
                contribution = self._combined(gradients if view is None else as_array(gradients), step)
            self._advance(contribution, step, view)

    def step_together(self, gradients: Tensor) -> None:
        """One step on several records, of another learner's making: each contribution is clipped, and their sum is learnt.

        Args:
            gradients: of all of them, at the two points of :meth:`queries`, ``(*B, m, 2, d)``, float64, m >= 0.
        """
        step = self._next_step()
        self._advance(self._combined(gradients, step).sum(-2), step, self._arrays())

    def _arrays(self) -> NumpyView | None:
        """What a small step on the CPU runs on in place of tensors."""
        if self.is_small and self.choice.takes_arrays and self.theta.is_cpu and is_readable(self.theta):
            return self.numpy_view()
        return None

    def _combined(self, gradients: Tensor, step: int) -> Tensor:
        """What a record adds, by its gradients at both points and clipped: ``(..., 2, d)`` to ``(..., d)``, float64."""
        weight = step if self.scheme == "unbiased" else step + 1
        g = weight * gradients[..., 0, :] - (weight - 1) * gradients[..., 1, :]
        return clipped(g, self.clip, self.clip_norm)

    def _advance(self, contribution: Tensor, step: int, view: NumpyView | None) -> None:
        """Take the step that begins: add what its records contribute, ``(*B, d)``, and publish the next decision."""
        self._begin(step)
        if view is None:
            self._move(contribution, step, self._buffers)
        else:
            added = as_array(contribution) if isinstance(contribution, Tensor) else contribution
            self._move(added, step, view.learner.__dict__)
            view.mark_written()

    def _move(self, contribution: Tensor, step: int, state: Any) -> None:
        """:meth:`_advance` on buffers by name, tensors or arrays, but for the clock."""
        divisor = step if self.scheme == "unbiased" else step + 1
        vertex = self.choice.vertex(state, contribution, step, divisor)
        theta = state["theta"]
        assign_(state["theta_prev"], theta)
        theta += min(1.0, self.step_scale / (step + 1)) * (vertex - theta)

    def _event(self, steps: int) -> Event:
        return self.choice.event(steps)

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        own = [("clip", self.clip), ("scheme", float(SCHEMES.index(self.scheme))), ("step_scale", self.step_scale)]
        return own + self.domain.parameters() + self.choice.parameters()


class PrivateVertexFrankWolfe(PrivateFrankWolfe):
    """Base of those on a polytope, whose noise is on the sum (``MECHANISMS``), or on the choice of a vertex."""

    domain: Vertices

    def _choice(self) -> Choice:
        if self.mechanism not in ("gumbel", "laplace") or self.epsilon == math.inf:
            return NoisySum(self.domain, self._prefix_sum())
        return NoisyVertex(
            self.domain,
            self.mechanism,
            horizon=self.horizon,
            sensitivity=self._moved(math.inf),
            rho=zcdp_rho(self.epsilon, self.delta),
            source=self.source,
        )
