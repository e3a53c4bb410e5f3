"""Localized mirror descent on a stream (Asi et al., ICML 2021)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.baselines.private.private_optimizer import DisjointBatches, rate_or_best
from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.checks import integer, within
from torchonline.privacy.learners.base import PrivateOptions
from torchonline.privacy.learners.point import DEFAULT_RADIUS


class LocalMD(DisjointBatches):
    r"""Private mirror descent in phases, with noise for arbitrary gradients.

    Each phase starts at the noisy result of the last phase, and takes much shorter steps. Rounds are as in
    :class:`~torchonline.DPTOFW`, with a gradient at the one point of ``secret_queries()``. Within a phase that point moves with
    every record and is *secret*: nothing that is computed from it (a loss, a regret, a plot) may be published. :meth:`predict`
    returns the centre c of the phase, which is public. Phase i has :math:`m = n/2^i` records, and the last phase also has the
    remaining records. With :math:`q = p/(p-1)`, gradients clipped to C in the norm of order q, and
    :math:`h(u) = \|u\|_p^2/(2(p-1))`,

    .. math::
        \theta_t = c + \nabla h^*(-\eta_i(g_1 + ... + g_{t-1})),\qquad
        c \leftarrow \Pi\Big(\frac1m\sum_{t=1}^m\theta_t + N(0, (s_i/\mu)^2 I)\Big),\qquad \eta_i = 16^{-(i-1)}\,\eta .

    Gradients are taken at :math:`\Pi(\theta_t)`, where :math:`\Pi` shrinks a point outside of the ball
    :math:`\|\theta\|_p \le R` to the ball's surface.

    Guarantee: the sequence of all decisions is (epsilon, delta)-differentially private under the conditions of
    :class:`~torchonline.privacy.learners.base.PrivateLearner`, with :math:`s_i = \eta_i C(m-1)`, and under
    ``"zero_out"`` :math:`s_i = \eta_i C(m-1)^2/m`.
    Proof: docs/private_baselines_theory.md. *No rate is claimed.* The noise is as large as the distance that a phase can move,
    for any n, so unless epsilon is far above 1 the result is worse than the start. Cost of a step: O(d).

    Args:
        norm, radius_bound: p and R, the order of the ball's norm, in (1, 2], and its radius, whose default is explained
            at :class:`~torchonline.DPTOFW`.
        learning_rate: eta, of the first phase; None for :math:`R/(C\sqrt{(p-1)\,m\,(1 + 2(m-1)\,d^{1/p}/\mu)})`, a heuristic that
            balances a phase's reach with its noise.
        clip: C, in the norm of order q. ``inf`` only if epsilon is, and with a learning rate.
        noise_source, seed: ``"torch"`` or ``"csprng"``, and a seed for tests.
        dim, horizon, epsilon, delta, adjacency, participations, min_separation, batch_shape, dtype, device, validate: see
            :class:`~torchonline.privacy.learners.base.PrivateLearner`.

    Shape: secret_queries ``(*B, 1, d)``; gradients the same, or ``(*B, d)``; theta ``(*B, d)``, public.

    Example:
        >>> learner = LocalMD(2, horizon=100, epsilon=50.0, delta=1e-3)
        >>> learner.step(learner.secret_queries() - torch.tensor([0.6, 0.0]))  # the gradient of |theta - target|^2 / 2
        >>> learner.ends
        (50, 75, 87, 93, 96, 100)

    Reference: Asi, Feldman, Koren and Talwar, Private stochastic convex optimization: optimal rates in l1 geometry, ICML 2021,
    Algorithm 6, as we recall it. What differs: the steps within a phase are those of dual averaging without a constraint, whose
    iterates are Lipschitz in the sum of gradients for every p; and the noise is for arbitrary gradients.
    """

    secret_gradient_sum: Tensor
    secret_iterate_sum: Tensor
    statistics_depend_on = (*DisjointBatches.statistics_depend_on, "learning_rate")
    renamed = {"secret_gradients": "secret_gradient_sum", "secret_path": "secret_iterate_sum"}

    def __init__(
        self,
        dim: int,
        *,
        norm: float = 2.0,
        radius_bound: float = DEFAULT_RADIUS,
        learning_rate: float | None = None,
        clip: float = 1.0,
        **options: Unpack[PrivateOptions],
    ) -> None:
        norm = within("norm", norm, 1.0, 2.0, closed=True)
        super().__init__(dim, norm=norm, radius_bound=radius_bound, clip=clip, clip_norm=norm / (norm - 1.0), **options)
        self._cut([self.horizon >> phase for phase in range(1, max(2, self.horizon.bit_length()))])
        self.learning_rate = rate_or_best(learning_rate, self.clip, self._best_rate)
        self._create_buffers()

    def _best_rate(self) -> float:
        """Return the rate of the first phase that balances its reach with its noise."""
        m = self.ends[0]
        noise = (m - 1) * self.noise_multiplier * self.dim ** (1.0 / self.norm)
        return self.radius_bound / (self.clip * math.sqrt((self.norm - 1.0) * m * (1.0 + 2.0 * noise)))

    def queries(self) -> Tensor:
        """Raise a RuntimeError: the point for gradients is secret, see secret_queries."""
        raise RuntimeError(
            "queries: expected secret_queries(), because the point moves with every record and is secret"
        )

    @one_at_a_time
    def secret_queries(self) -> Tensor:
        """Return the point for the next record's gradient, ``(*B, 1, d)``. It is secret."""
        with torch.no_grad():
            point = self._shrunk(self.theta.to(torch.float64) + self._offset(self._memory.rounds + 1))
            return point.to(self.theta.dtype).unsqueeze(-2)

    def sensitivity(self, phase: int) -> float:
        """Return the l_2 sensitivity of a phase's average. Phases count from 1."""
        if not 1 <= integer("phase", phase) <= len(self.ends):
            raise ValueError(f"phase: expected an integer from 1 to {len(self.ends)}, got {phase}")
        m = self._sizes[self.ends[phase - 1]]
        share = 1.0 if self.adjacency == "replace_one" else (m - 1) / m
        return self._rate(phase) * self._longest(self.clip_norm) * (m - 1) * share

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros(self.dim, dtype=torch.float64)
        return dict.fromkeys(("theta", "secret_gradient_sum", "secret_iterate_sum"), zero)

    def _phase(self, step: int) -> int:
        """Return the number of a step's phase, from 1 on; after the end the last phase."""
        return min(1 + sum(end < step for end in self.ends), len(self.ends))

    def _rate(self, phase: int) -> float:
        return self.learning_rate * 16.0 ** (1 - phase)

    def _offset(self, step: int) -> Tensor:
        """Return the iterate of a step minus the centre: the gradient of h's conjugate."""
        g = -self._rate(self._phase(step)) * self.secret_gradient_sum
        largest = g.abs().amax(-1, keepdim=True)
        unit = g / torch.where(largest > 0.0, largest, 1.0)
        length = torch.linalg.vector_norm(unit, self.clip_norm, dim=-1, keepdim=True)
        power = unit.sign() * unit.abs() ** (self.clip_norm - 1.0)
        return (self.norm - 1.0) * largest * torch.where(length > 0.0, length, 1.0) ** (2.0 - self.clip_norm) * power

    def _shrunk(self, point: Tensor) -> Tensor:
        """Shrink points outside of the ball to its surface."""
        length = torch.linalg.vector_norm(point, self.norm, dim=-1, keepdim=True)
        return point * (self.radius_bound / length).clamp(max=1.0)

    def _learn(self, contribution: Tensor, step: int) -> None:
        self.secret_iterate_sum += self._offset(step)
        self.secret_gradient_sum += contribution
        if (size := self._sizes.get(step)) is None:
            return
        # The rounding of sums and iterates is at most this fraction of the sensitivity.
        rounding = 2.0**-51 * (size + self.clip_norm + 12.0)
        sensitivity = self.sensitivity(self._phase(step)) * (1.0 + rounding)
        change = self._with_noise(self.secret_iterate_sum / size, sensitivity)
        self.theta.copy_(self._shrunk(self.theta.to(torch.float64) + change))
        self.secret_iterate_sum.zero_()
        self.secret_gradient_sum.zero_()
