"""DP-FTRL: regularized leader on a noisy sum (Kairouz et al., ICML 2021)."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.baselines.private.private_optimizer import PrivateOptimizer, rate_or_best
from torchonline.baselines.private.projections import euclidean_radius, projectable, projected
from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.privacy.learners.base import PrivateOptions
from torchonline.privacy.learners.point import DEFAULT_RADIUS
from torchonline.privacy.mechanisms.base import number_of
from torchonline.privacy.mechanisms.endless import largest_error
from torchonline.privacy.mechanisms.prefix_sums import calibrated


class DPFTRL(PrivateOptimizer):
    r"""Private dual averaging: a noisy sum of gradients, and a Euclidean projection.

    Rounds are as in :class:`~torchonline.DPTOFW`, with a gradient at the one point of ``queries()``. Let :math:`g_t` be the
    gradient at :math:`\theta_t`, clipped to C in the Euclidean norm, :math:`S_t = g_1 + ... + g_t`, :math:`N_t` the noise of a
    prefix-sum mechanism, and :math:`\Pi` the projection onto the ball :math:`\|\theta\|_p \le R`. Then

    .. math:: \theta_{t+1} = \Pi(-\eta\,(S_t + N_t)),\qquad \theta_1 = 0 .

    Guarantee, privacy: the sequence of all decisions, averages and noisy sums is (epsilon, delta)-differentially private under
    the conditions of :class:`~torchonline.privacy.learners.base.PrivateLearner`.

    Guarantee, regret: let :math:`R_2` be the largest Euclidean norm in the ball, and :math:`\nu` the root mean square of a
    coordinate's noise over n steps. For any records, even if they are chosen adaptively, given earlier decisions,

    .. math:: \mathrm E \max_{\|u\|_p \le R} \sum_{t=1}^n \langle g_t, \theta_t - u\rangle
        \le \frac{R_2^2}{2\eta} + \eta n C\left(\frac C2 + \sqrt d\,\nu\right) = R_2\sqrt{nC(C + 2\sqrt d\,\nu)}

    with the default :math:`\eta = R_2/\sqrt{nC(C + 2\sqrt d\,\nu)}`, which reads no data. If losses are convex and nothing
    was clipped, the sum bounds the regret. For independent records 1/n of the sum then bounds the excess risk of
    :meth:`average`. Proof: docs/private_baselines_theory.md.
    Cost of a step: the mechanism's, O(5 d) time and memory for ``"blt"``; and O(d log d) for p = 1.

    Args:
        norm, radius_bound: p and R, the order of the ball's norm, 1, 2 or ``inf``, and its radius, whose default is explained at
            :class:`~torchonline.DPTOFW`.
        learning_rate: eta; None for the default above. Without a horizon the default decreases: in step t it is that for 2t
            steps, with the largest noise so far in place of nu, for :math:`\sqrt2` times the bound with this noise. The attribute
            then is the first rate.
        clip: C. ``inf`` only if epsilon is, and with a learning rate.
        mechanism, records_a_step, noise_source, seed: as in :class:`~torchonline.DPTOFW`, without ``"paper"``. For m records a
            step, mC replaces C in the bound on the regret of the sums.
        dim, horizon, epsilon, delta, adjacency, participations, min_separation, batch_shape, dtype, device, validate: see
            :class:`~torchonline.privacy.learners.base.PrivateLearner`.

    Shape: gradients ``(*B, 1, d)`` or ``(*B, d)``; theta, average_theta, noisy_sum ``(*B, d)``, public.

    Example:
        >>> learner = DPFTRL(2, horizon=1000, epsilon=1.0, delta=1e-4)
        >>> target = torch.tensor([0.6, 0.0]).double()
        >>> for _ in range(1000):
        ...     learner.step(learner.predict() - target)  # the gradient of |theta - target|^2 / 2
        >>> bool((learner.average() - target).norm() < 0.3)
        True

    Reference: Kairouz, McMahan, Song, Thakkar, Thakurta and Xu, Practical and private (deep) learning without sampling or
    shuffling, ICML 2021. What differs: the paper uses the tree with Honaker's estimate; here the noise is by default a BLT's, and
    decisions are projected onto the domain.
    """

    average_theta: Tensor
    decisions: tuple[str, ...] = ("theta", "average_theta")
    statistics_depend_on = (*PrivateOptimizer.statistics_depend_on, "learning_rate")

    def __init__(
        self,
        dim: int,
        *,
        norm: float = 2.0,
        radius_bound: float = DEFAULT_RADIUS,
        learning_rate: float | None = None,
        clip: float = 1.0,
        mechanism: str = "blt",
        records_a_step: int = 1,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(
            dim,
            norm=projectable("norm", norm),
            radius_bound=radius_bound,
            clip=clip,
            records_a_step=records_a_step,
            **options,
        )
        self.noise = calibrated(mechanism, self, self._moved(), self._longest_sum())
        self.is_scheduled = learning_rate is None and self._is_endless
        self.learning_rate = rate_or_best(learning_rate, self.clip, self._best_rate)
        self._create_buffers()

    def _best_rate(self) -> float:
        """Return the rate with the best bound, or the first of a schedule."""
        return self._scheduled(1) if self.is_scheduled else self._rate(self.horizon, self.noise.errors(self.horizon)[0])

    def _rate(self, steps: float, error: float) -> float:
        """Return the rate for a number of steps with noise of that size."""
        noise = self.noise.noise_scale * error
        radius = euclidean_radius(self.dim, self.norm, self.radius_bound)
        longest = self.records_a_step * self.clip
        return radius / math.sqrt(steps * longest * (longest + 2.0 * math.sqrt(self.dim) * noise))

    def _scheduled(self, step: int) -> float:
        """Return the rate that decides in a step, if there is no horizon."""
        return self._rate(2.0 * step, largest_error(step.bit_length()))

    @one_at_a_time
    def average(self) -> Tensor:
        """Return the public average of past decisions, or the first one: ``(*B, d)``."""
        return self.average_theta.clone()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros(self.dim, dtype=torch.float64)
        return {"theta": zero, "average_theta": zero, **self.noise.initial_state(self.dim)}

    def _learn(self, contribution: Tensor, step: int) -> None:
        noisy_sum = self.noise.add(self._buffers, contribution, step)
        self.average_theta.lerp_(self.theta, 1.0 / step)
        rate = self._scheduled(step + 1) if self.is_scheduled else self.learning_rate
        self.theta.copy_(projected(-rate * noisy_sum, self.norm, self.radius_bound))

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        schedule = [("is_scheduled", float(self.is_scheduled))] if self._is_endless else []
        return [number_of(self.noise.name)] + self.noise.parameters() + schedule
