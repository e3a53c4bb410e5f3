"""DP-FTRL (Kairouz, McMahan, Song, Thakkar, Thakurta and Xu, ICML 2021): follow the regularised leader on a noisy sum."""

import math
from typing import Any

import torch
from torch import Tensor

from torchonline.baselines.private.private_optimizer import PrivateOptimizer
from torchonline.baselines.private.projections import euclidean_radius, projectable, projected
from torchonline.core.checks import one_of, positive
from torchonline.privacy.accounting import Event
from torchonline.privacy.learners.vertex_choice import MECHANISM_NAMES
from torchonline.privacy.mechanisms.prefix_sums import MECHANISMS, calibrated


class DPFTRL(PrivateOptimizer):
    r"""Private dual averaging: the sum of all gradients, with noise, and a Euclidean projection.

    A round, for one record, whose loss has a gradient at the one point of ``queries()``::

        gradients, _ = torchonline.gradients(loss, learner, x, y)
        learner.step(gradients)    # or learner.step(None), for a record that is missing
        learner.predict()          # public
        learner.average()          # public

    With :math:`g_t` the gradient at :math:`\theta_t`, clipped to C in the Euclidean norm, :math:`S_t = g_1 + ... + g_t`, and
    :math:`N_t` the noise of a prefix-sum mechanism,

    .. math:: \theta_{t+1} = \Pi(-\eta\,(S_t + N_t)),\qquad \theta_1 = 0,

    where :math:`\Pi` takes the nearest point of the ball :math:`\|\theta\|_p \le R`.

    Guarantee, privacy: the sequence of all decisions, averages and noisy sums is (epsilon, delta)-differentially private under
    the conditions of :class:`~torchonline.privacy.learners.base.PrivateLearner`: a record enters :math:`S_t` once, by a vector of
    norm at most C, whatever it is.

    Guarantee, regret: let :math:`R_2` be the largest Euclidean norm in the ball and :math:`\nu` the root mean square of the
    noise of a coordinate over n steps. For any records, even chosen with a view to earlier decisions,

    .. math::
        \mathrm E \max_{\|u\|_p \le R} \sum_{t=1}^n \langle g_t, \theta_t - u\rangle
        \le \frac{R_2^2}{2\eta} + \eta n C\left(\frac C2 + \sqrt d\,\nu\right)
        = R_2\sqrt{nC(C + 2\sqrt d\,\nu)}

    with the default :math:`\eta = R_2/\sqrt{nC(C + 2\sqrt d\,\nu)}`, which reads no data. Where losses are convex and nothing
    was clipped, the sum bounds the regret, and for independent records a share 1/n of it the excess risk of
    :meth:`average`. *Proof.* The points :math:`\tilde\theta_{t+1} = \Pi(-\eta S_t)` are those of follow the regularised
    leader on the same gradients, and have a sum of at most :math:`R_2^2/(2\eta) + \eta\sum_t\|g_t\|^2/2`. A projection brings
    no two points further apart, so :math:`\langle g_t, \theta_t - \tilde\theta_t\rangle \le C\eta\|N_{t-1}\|`, and
    :math:`\mathrm E\sum_t\|N_t\| \le n\sqrt d\,\nu`.

    Cost of a step: that of the mechanism, O(5 d) and as much memory for ``"blt"``; and O(d log d) for p = 1.

    Args:
        dim: number of features d.
        horizon: n, the number of steps.
        epsilon, delta: of the whole run; epsilon ``inf`` for no noise.
        norm: p, of the ball: 1, 2 or ``inf``.
        radius_bound: R, its radius.
        learning_rate: eta; None for the one above.
        clip: C. ``inf`` only where epsilon is, and with a learning rate.
        mechanism: ``"blt"``, ``"honaker"``, ``"tree"`` or ``"sqrt"`` (:mod:`torchonline.privacy.mechanisms.prefix_sums`).
        noise_source, seed, adjacency, max_participations: see :class:`~torchonline.privacy.learners.base.PrivateLearner`.
        batch_shape, dtype, device, validate: as in :class:`~torchonline.DPTOFW`.

    Shape:
        - queries: ``(*B, 1, d)``; gradients: the same, or ``(*B, d)``; predict, average: ``(*B, d)``.
        - theta, average_theta, noisy_sum: ``(*B, d)``, public; secret_memory: ``(*B, 5, d)``.

    Example:
        >>> learner = DPFTRL(2, horizon=1000, epsilon=1.0, delta=1e-3)
        >>> target = torch.tensor([0.6, 0.0]).double()
        >>> for _ in range(1000):
        ...     learner.step(learner.predict() - target)  # the gradient of |theta - target|^2 / 2
        >>> bool((learner.average() - target).norm() < 0.3)
        True

    Reference:
        Kairouz, McMahan, Song, Thakkar, Thakurta and Xu, Practical and private (deep) learning without sampling or shuffling,
        ICML 2021. They have the tree, and the noise of Honaker's estimate; here the noise is by default a BLT's, and the
        domain is projected onto.
    """

    average_theta: Tensor

    decisions: tuple[str, ...] = ("theta", "average_theta")

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        epsilon: float,
        delta: float,
        norm: float = 2.0,
        radius_bound: float = 1.0,
        learning_rate: float | None = None,
        clip: float = 1.0,
        mechanism: str = "blt",
        noise_source: str = "torch",
        seed: int | None = None,
        adjacency: str = "replace_one",
        max_participations: int = 1,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            dim,
            norm=projectable("norm", norm),
            radius_bound=radius_bound,
            clip=clip,
            horizon=horizon,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            max_participations=max_participations,
            noise_source=noise_source,
            seed=seed,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.prefix_sums = calibrated(
            one_of("mechanism", mechanism, tuple(MECHANISMS)),
            self.horizon,
            sensitivity=self._moved(),
            radius=self._longest(),
            epsilon=self.epsilon,
            delta=self.delta,
            source=self.source,
        )
        self.learning_rate = self._best_rate() if learning_rate is None else positive("learning_rate", learning_rate)
        self._create_buffers()

    def _best_rate(self) -> float:
        """The learning rate with the smallest bound on the regret."""
        if self.clip == math.inf:
            raise ValueError(
                "learning_rate: expected a number, since none is the best where clip is infinite, got None"
            )
        noise = self.prefix_sums.noise_scale
        if noise > 0.0:
            noise *= self.prefix_sums.errors(self.horizon)[0]
        radius = euclidean_radius(self.dim, self.norm, self.radius_bound)
        return radius / math.sqrt(self.horizon * self.clip * (self.clip + 2.0 * math.sqrt(self.dim) * noise))

    def average(self) -> Tensor:
        """The average of all decisions that records were met with, ``(*B, d)``: public; the first decision before any record."""
        return self.average_theta.clone()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros(self.dim, dtype=torch.float64)
        state: dict[str, Tensor | None] = {
            "theta": zero,
            "average_theta": zero,
            "noisy_sum": self.prefix_sums.zero(self.dim),
        }
        return state | self.prefix_sums.initial_state(self.dim)

    def _learn(self, contribution: Tensor, step: int) -> None:
        noisy_sum: Any = self.noisy_sum
        noisy_sum += self.prefix_sums.change(self._buffers, contribution, step)
        self.average_theta.lerp_(self.theta, 1.0 / step)
        point = projected(-self.learning_rate * self.prefix_sums.value(noisy_sum), self.norm, self.radius_bound)
        self.theta.copy_(point)

    def _event(self, steps: int) -> Event:
        return self.prefix_sums.event(steps)

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        name = float(MECHANISM_NAMES.index(self.prefix_sums.name))
        own = [("learning_rate", self.learning_rate), ("mechanism", name)]
        return super()._parameters_of_noise() + own + self.prefix_sums.parameters()
