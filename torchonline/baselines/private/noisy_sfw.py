"""Noisy stochastic Frank-Wolfe on a stream (Bassily et al., COLT 2021)."""

import math
from typing import Unpack

from torch import Tensor

from torchonline.baselines.private.private_optimizer import DisjointBatches
from torchonline.convex.domains import LpBall
from torchonline.core.checks import within
from torchonline.privacy.clipping import clipped, sum_rounding
from torchonline.privacy.learners.base import PrivateOptions
from torchonline.privacy.learners.point import DEFAULT_RADIUS


class NoisySFW(DisjointBatches):
    r"""Private Frank-Wolfe with a recursive gradient: one noisy step for each batch.

    Rounds are as in :class:`~torchonline.DPTOFW`, with gradients at the two points of ``queries()``, this decision and the
    previous one, which do not move within a batch. The first batch has :math:`b_0 = n/2` records, the others
    :math:`b = \sqrt n/2`, and the last batch also has the remaining records. At the end of batch k, over its records,

    .. math::
        u_z &= \frac{\nabla f(w_k; z) - (1-\rho_k)\,\nabla f(w_{k-1}; z)}{\rho_k},\qquad \rho_0 = 1,\quad \rho_k = \eta, \\
        d_k &= (1 - \rho_k)\,d_{k-1} + \frac{\rho_k}{b_k}\Big(\sum_z u_z + Z_k\Big),\qquad
        w_{k+1} = w_k + \eta\,(\arg\min_{\|v\|_p \le R}\langle d_k, v\rangle - w_k),

    each :math:`u_z` clipped to C in the Euclidean norm, :math:`Z_k \sim N(0, (2C/\mu)^2 I)`. :meth:`predict` returns the start
    for n/2 steps, and then moves once per batch.

    Guarantee: the sequence of all decisions and of all :math:`d_k` is (epsilon, delta)-differentially private under the
    conditions of :class:`~torchonline.privacy.learners.base.PrivateLearner`. Proof: docs/private_baselines_theory.md. Cost of a
    step: O(d).

    Args:
        norm, radius_bound: p and R, the order of the ball's norm, from 1 to infinity, and its radius, whose default is explained
            at :class:`~torchonline.DPTOFW`.
        clip: C, for u, which has about the size of one gradient. ``inf`` only if epsilon is.
        step_size: eta, in (0, 1]; None for :math:`\min\{1, \log(n+1)/(2\sqrt n)\}`. We recall the order and chose the constant.
        noise_source, seed: ``"torch"`` or ``"csprng"``, and a seed for tests.
        dim, horizon, epsilon, delta, adjacency, participations, min_separation, batch_shape, dtype, device, validate: see
            :class:`~torchonline.privacy.learners.base.PrivateLearner`.

    Shape: gradients ``(*B, 2, d)``; theta, theta_prev, direction ``(*B, d)``, public; secret_sum ``(*B, d)``, over the batch.

    Example:
        >>> learner = NoisySFW(2, radius_bound=1.0, horizon=1000, epsilon=2.0, delta=1e-4)
        >>> target = torch.tensor([0.6, 0.0]).double()
        >>> for _ in range(1000):
        ...     learner.step(learner.queries() - target)  # the gradient of |theta - target|^2 / 2
        >>> len(learner.ends), bool((learner.predict() - target).norm() < 0.6)
        (34, True)

    Reference: Bassily, Guzman and Nandi, Non-Euclidean differentially private stochastic convex optimization, COLT 2021. What
    differs: increments are clipped instead of assumed to be short; the noise is Gaussian for every p, and calibrated exactly; and
    the decisions within the stream, which the paper does not release, are public.
    """

    direction: Tensor
    secret_sum: Tensor
    decisions: tuple[str, ...] = ("theta", "theta_prev")
    points = 2
    statistics_depend_on = (*DisjointBatches.statistics_depend_on, "step_size")

    def __init__(
        self,
        dim: int,
        *,
        norm: float = 2.0,
        radius_bound: float = DEFAULT_RADIUS,
        clip: float = 1.0,
        step_size: float | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(dim, norm=norm, radius_bound=radius_bound, clip=clip, **options)
        first, size = max(1, self.horizon // 2), max(1, math.isqrt(self.horizon) // 2)
        self._cut([first] + [size] * ((self.horizon - first) // size))
        self.domain = LpBall(self.dim, norm=self.norm, radius=self.radius_bound)
        if step_size is None:
            step_size = min(1.0, math.log(self.horizon + 1.0) / (2.0 * math.sqrt(self.horizon)))
        self.step_size = within("step_size", step_size, 0.0, 1.0, closed=True)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return dict.fromkeys(("theta", "theta_prev", "direction", "secret_sum"), self.domain.start())

    def _rate(self, step: int) -> float:
        """Return rho of a step's batch."""
        return 1.0 if step <= self.ends[0] else self.step_size

    def _contribution(self, gradients: Tensor, step: int) -> Tensor:
        rate = self._rate(step)
        now, before = gradients.unbind(-2)
        return clipped(now.sub(before, alpha=1.0 - rate) / rate, self.clip, self.clip_norm)

    def _learn(self, contribution: Tensor, step: int) -> None:
        self.secret_sum += contribution
        if (size := self._sizes.get(step)) is None:
            return
        noisy_sum = self._with_noise(self.secret_sum, self._moved() + sum_rounding(size) * self._longest())
        self.direction.lerp_(noisy_sum / size, self._rate(step))
        vertex = self.domain.minimizer(self.direction)
        self.theta_prev.copy_(self.theta)
        self.theta.lerp_(vertex.to(self.theta.dtype), self.step_size)
        self.secret_sum.zero_()
