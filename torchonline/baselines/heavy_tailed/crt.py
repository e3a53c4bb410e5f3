"""CRT: ridge regression on truncated rewards (Medina and Yang, ICML 2016)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.core.checks import positive, within
from torchonline.core.ops import along, dot, increase_, log1p, matvec, number, real, sqrt, where
from torchonline.core.options import LearnerOptions
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS, Estimator


class CRTRegression(Estimator):
    r"""Ridge regression on truncated rewards: a large reward counts as 0.

    Round t, with p = ``moment_order`` :math:`= 1+\varepsilon` and :math:`u = (LS + \nu)^p`, which bounds the p-th absolute moment
    of the reward:

    .. math:: \tilde r = r\;1\{|r| \le \alpha_t\},\quad \alpha_t = g\,t^{1/(2p)},\qquad V \leftarrow V + xx^\top,\qquad
              \hat\theta \leftarrow \hat\theta + V^{-1}x\,(\tilde r - x^\top\hat\theta)

    The radius after t >= 1 rounds is :math:`c\,\alpha_t\sqrt{\log\det(V/\lambda) + 2\log(1/\delta)} +
    u\,g^{-\varepsilon}\sqrt{p\,t^{1/p}} + \sqrt\lambda S`, and its last term before. The ``noise_scale`` of ``step`` is not used.

    Guarantee. If the noise has mean 0 and :math:`E|\eta|^p \le \nu^p` given the past, :math:`\|x\| \le L`,
    :math:`\|\theta^*\| \le S` and c is at least 2, then for every T the confidence set holds with probability at least 1 -
    ``delta`` in all rounds from :math:`T/4^p` to T at once. Proof: up to round T, truncated rewards are
    :math:`\alpha_T`-sub-Gaussian, and :math:`\alpha_T \le 2\alpha_t` from round :math:`T/4^p` on; the second term bounds the bias
    of truncation (Proposition 3 of the reference). Regret is :math:`\tilde O(T^{1/2+1/(2p)})`.

    Cost of a round: O(d^2) time and two d x d matrices (three in float32), the same in every round.

    Args:
        dim, theta_bound, ridge, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.estimator.Estimator`.
        moment_order: p in (1, 2].
        noise_scale: :math:`\nu \ge 0`, the p-norm of the noise, in units of the reward. 1/2 holds for rewards in [0, 1]; larger
            noise needs a larger number.
        feature_bound: L > 0, a bound on the norm of features.
        delta: in (0, 1).
        truncation: g > 0, in units of the reward; the paper's 1.
        radius_factor: c > 0; less than the paper's 2 voids the guarantee.

    Shape:
        - ``logdet``, :math:`\log\det(V/\lambda)`, ``(*B)``.

    Example:
        >>> learner = CRTRegression(2)
        >>> learner.step(torch.tensor([1.0, 0.0]), torch.tensor(1e9))
        >>> learner.theta_hat
        tensor([0., 0.], dtype=torch.float64)

    Reference:
        Medina and Yang, No-regret Algorithms for Heavy-tailed Linear Bandits, ICML 2016, Algorithms 1 and 2. We have checked
        :math:`\alpha_t`, c and the terms of Proposition 3 there. What differs: u bounds the reward, not the noise alone, and the
        sum in the bias has its exact order, where Theorem 1 has :math:`2v\sqrt{2t^{1/p}\log T}`.
    """

    statistics_depend_on = ("ridge", "moment_order", "truncation")
    logdet: Tensor

    def __init__(
        self,
        dim: int,
        *,
        moment_order: float = 2.0,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float = 1.0,
        delta: float = 0.01,
        truncation: float = 1.0,
        radius_factor: float = 2.0,
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, ridge, radius_scale, noise_scale, theta_bound, **options)
        self.moment_order = within("moment_order", moment_order, 1.0, 2.0, closed=True)
        self.feature_bound = positive("feature_bound", feature_bound)
        self.delta = within("delta", delta, 0.0, 1.0)
        self.truncation = positive("truncation", truncation)
        self.radius_factor = positive("radius_factor", radius_factor)
        p = self.moment_order
        self.growth_power = 0.5 / p
        self.log_term = -2.0 * math.log(self.delta)
        u = (self.feature_bound * self.theta_bound + self.noise_scale) ** p
        self.bias_scale = u * self.truncation ** (1.0 - p) * math.sqrt(p)
        self.radius_start = math.sqrt(self.ridge) * self.theta_bound
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"logdet": torch.zeros((), dtype=torch.float64)}

    def radius(self) -> Tensor:
        chance = self.radius_factor * self.truncation * sqrt(number(self.logdet) + self.log_term)
        growth = real(self.rounds, self.theta_hat) ** self.growth_power  # of chance and bias alike
        return self.radius_scale * ((chance + self.bias_scale) * growth + self.radius_start)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, x = self.theta_hat, 1.0 * x
        product = matvec(self.V_inv, x)
        quadratic = dot(x, product)
        self._check_growth(x, quadratic)
        threshold = self.truncation * real(self.rounds + 1, theta_hat) ** self.growth_power
        kept = where(abs(reward) <= threshold, reward, 0.0 * reward)
        step = along((kept - dot(x, theta_hat)) / (1.0 + quadratic), x) * product
        increase_(self.logdet, log1p(quadratic))  # det(V + xx') = det V (1 + x'V^-1 x)
        self._add_outer_(x, product, quadratic)
        theta_hat += step


class CRT(UCB[CRTRegression]):
    r"""CRT: optimism over :class:`CRTRegression`, with the same arguments.

    Args:
        dim, moment_order, noise_scale, theta_bound, feature_bound, ridge, delta, truncation: as in :class:`CRTRegression`.
        radius_factor, radius_scale, batch_shape, dtype, device, validate: as in :class:`CRTRegression`.

    Example:
        >>> CRT(2).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(CRTRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(CRTRegression(*arguments, **options))
