"""Base class of the private online Frank-Wolfe learners."""

import math
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.convex.domains import Domain
from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.backend import SMALL_STEP, as_array, is_readable
from torchonline.core.checks import kind, one_of, positive
from torchonline.core.ops import assign_
from torchonline.core.views import NumpyView
from torchonline.privacy.clipping import REWARDS_A_ROUND, clipped
from torchonline.privacy.learners.base import PrivateOptions
from torchonline.privacy.learners.point import PrivatePoint
from torchonline.privacy.learners.vertex_choice import NoisyVertex
from torchonline.privacy.mechanisms.base import VERTEX_LAWS, Mechanism, NoNoise, number_of
from torchonline.privacy.mechanisms.prefix_sums import calibrated

SCHEMES = ("unbiased", "paper")


class PrivateFrankWolfe(PrivatePoint):
    r"""Base class of private Frank-Wolfe, with noise on the sum or the vertex choice.

    Let :math:`\theta_0 = \theta_1`. In step t = 1, 2, ... the loss of record :math:`z_t` has gradients at two points, and

    .. math::
        g_t &= t\,\nabla f(\theta_t; z_t) - (t-1)\,\nabla f(\theta_{t-1}; z_t), \qquad
        d_t = \tfrac1t\,(g_1 + ... + g_t), \\
        v_t &\approx \arg\min_{v \in \mathcal D}\langle d_t, v\rangle, \qquad
        \theta_{t+1} = \theta_t + \eta_t(v_t - \theta_t), \quad \eta_t = \min\{1, c/(t+1)\}.

    :math:`g_t` is clipped as a whole, so that the sum moves by at most 2C if one record is replaced. For independent records
    :math:`E\,d_t = \nabla F(\theta_t)`, with an error that shrinks as t grows. The arguments are as in
    :class:`~torchonline.DPPOFW`; ``domain``, the decision set, must be a polytope if the vertex choice gets noise.
    """

    decisions = ("theta", "theta_prev")
    points = 2

    def __init__(
        self,
        dim: int,
        *,
        domain: Domain,
        clip: float,
        mechanism: str,
        scheme: str,
        step_scale: float,
        clip_norm: float = 2.0,
        records_a_step: int = 1,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(dim, clip=clip, clip_norm=clip_norm, records_a_step=records_a_step, **options)
        self.domain = checked_domain(domain)
        automatic = "gumbel" if self.dim > 3.0 * self.horizon and self.participations == 1 else "blt"
        self.mechanism = automatic if mechanism == "auto" else mechanism
        self.scheme = one_of("scheme", scheme, SCHEMES)
        self.step_scale = positive("step_scale", step_scale)
        self.noise = self._new_noise()
        takes_arrays = domain.takes_arrays and not isinstance(self.noise, NoisyVertex)
        self.is_small = takes_arrays and math.prod(self.batch_shape) * self.dim < SMALL_STEP
        self._create_buffers()

    def _new_noise(self) -> Mechanism | NoisyVertex:
        """Return the mechanism that adds noise to the sum or to the choice of a vertex."""
        if self.epsilon == math.inf:
            return NoNoise(self.horizon)
        if self.mechanism not in VERTEX_LAWS:
            return calibrated(self.mechanism, self, self._moved(), self._longest_sum())
        self._refuse_several(f"mechanism={self.mechanism!r}")
        self._refuse_endless(f"mechanism={self.mechanism!r}")
        domain: Any = self.domain
        return NoisyVertex(
            domain,
            self.mechanism,
            horizon=self.horizon,
            sensitivity=self._moved(math.inf),
            longest=self._longest_sum(math.inf),
            **self._promise(),
        )

    def _initial_state(self) -> dict[str, Tensor | None]:
        start = self.domain.start()
        return {"theta": start, "theta_prev": start, **self.noise.initial_state(self.dim)}

    def _advance(self, gradients: Tensor, step: int) -> None:
        view = self._arrays()
        with np.errstate(all="ignore"):
            self._add(self._sum(gradients if view is None else as_array(gradients), step), step, view)

    def _arrays(self) -> NumpyView | None:
        """Return the view that a small step on the CPU runs on; None for tensors."""
        return self.view_for(self.theta) if self.is_small else None

    def _contribution(self, gradients: Tensor, step: int) -> Tensor:
        weight = step if self.scheme == "unbiased" else step + 1
        g = weight * gradients[..., 0, :] - (weight - 1) * gradients[..., 1, :]
        return clipped(g, self.clip, self.clip_norm)

    def _add(self, contribution: Tensor, step: int, view: NumpyView | None) -> None:
        """Take a step on a view, with an array, or on tensors if ``view`` is None."""
        self._take(step, self._move, contribution, step, self._buffers if view is None else view.learner.__dict__)
        if view is not None:
            view.mark_written()

    def _move(self, contribution: Tensor, step: int, state: Any) -> None:
        """Add a contribution and move the decision, in tensors or arrays by name."""
        divisor = step if self.scheme == "unbiased" else step + 1
        noise: Mechanism | NoisyVertex = self.noise
        direction = noise.add(state, contribution, step) / divisor
        vertex = noise.vertex(direction, step) if isinstance(noise, NoisyVertex) else self.domain.minimizer(direction)
        theta = state["theta"]
        assign_(state["theta_prev"], theta)
        theta += min(1.0, self.step_scale / (step + 1)) * (vertex - theta)

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        own = [("clip", self.clip), ("scheme", float(SCHEMES.index(self.scheme))), ("step_scale", self.step_scale)]
        return own + self.domain.parameters() + [number_of(self.noise.name)] + self.noise.parameters()


class BanditArm(PrivateFrankWolfe):
    """Learner of a bandit's arm. The bandit takes and books its steps."""

    warns_of_delta = False  # the bandit does

    def step(self, gradients: Any, values: Any = None) -> None:
        """Raise a RuntimeError: the bandit would not know of the step."""
        raise RuntimeError("step: expected a call of the bandit's step, got a call of its arm's")

    def _longest_sum(self, order: float = 2.0) -> float:
        return REWARDS_A_ROUND * self._longest(order)

    @one_at_a_time
    def _step_together(self, gradients: Tensor) -> None:
        """Take one step on the m records of a round, float64, ``(*B, m, 2, d)``."""
        self._advance(gradients, self._next_step())

    def _sum(self, gradients: Tensor, step: int) -> Tensor:
        # Clipping never increases the distance of two sums, in the norm of an inner product or entry by entry.
        most = self._longest_sum(self.clip_norm)
        total = self._contribution(gradients, step).sum(-2)
        return total.clip(-most, most) if self.clip_norm == math.inf else clipped(total, most)


def checked_domain(domain: Domain) -> Domain:
    """Return the domain. Raise unless its points are finite float64 of its size."""
    directions = torch.ones((2, domain.dim), dtype=torch.float64)
    points = {"start": (domain.start(), (domain.dim,)), "minimizer": (domain.minimizer(directions), (2, domain.dim))}
    for name, (point, shape) in points.items():
        is_right = isinstance(point, Tensor) and point.dtype == torch.float64 and tuple(point.shape) == shape
        if not is_right or (is_readable(point) and not bool(point.isfinite().all())):
            raise ValueError(f"domain: expected {name}() to return finite float64 values, {shape}, got {kind(point)}")
    return domain
