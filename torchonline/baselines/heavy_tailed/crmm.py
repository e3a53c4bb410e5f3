"""CRMM: one-pass regression on medians of rewards (Xue et al., NeurIPS 2023)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.baselines.heavy_tailed.base import EpochEstimator, HorizonOptions, LinkedEstimator, medians
from torchonline.core.ops import dot, increase_, matvec, sqrt
from torchonline.links import Link
from torchonline.policies.rules import UCB, takes_arguments_of


class CRMMRegression(LinkedEstimator, EpochEstimator):
    r"""Online Newton steps on the median reward of an epoch (:class:`EpochEstimator`).

    The mean reward is a link of the predictor, :math:`\mu(x^\top\theta^*)`, by default the predictor itself. At the end of an
    epoch of the arm x, with :math:`\tilde r` the median of its rewards and :math:`\kappa` the least slope of :math:`\mu` where
    :math:`|z| \le LS`:

    .. math:: V \leftarrow V + \tfrac\kappa2 xx^\top,\qquad
              \hat\theta \leftarrow \Pi_{\|\theta\|\le S}\bigl(\hat\theta
              + V^{-1}x\,(\tilde r - \mu(x^\top\hat\theta))\bigr)

    with the projection in the norm of V. With p = ``moment_order``, :math:`\nu` = ``noise_scale``, n epochs so far and
    :math:`\hat\theta_s` the estimate before epoch s,

    .. math:: \text{radius}^2 = \lambda S^2 + \tfrac4{3\kappa}\,4^{2/p}\nu^2\log\tfrac1\delta
              + \sum_{s\le n}(\tilde r_s - \mu(x_s^\top\hat\theta_s))^2\,\|x_s\|^2_{V_s^{-1}}.

    Guarantee. If rewards of an epoch are independent given the past, their noise is symmetric with
    :math:`E|\eta|^p \le \nu^p`, whether an epoch is interrupted does not depend on its rewards, ``repeats`` is at least the
    default, :math:`\|\theta^*\| \le` ``theta_bound`` and, with a link other than the identity, :math:`\|x\| \le L`, then the
    confidence set holds for the first T rounds, with probability at least 1 - 1.01 ``delta`` (proof:
    docs/heavy_tail_regression.md). Skewed noise voids the guarantee.

    Cost: O(d^2) for a round; O(d^2 + repeats log(repeats)) at the end of an epoch, and O(d^3) if its step leaves the ball.

    Args:
        dim, horizon, moment_order, noise_scale, theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate:
            as in :class:`HorizonEstimator`.
        link: how the mean reward depends on the predictor, see :class:`LinkedEstimator`: one of :mod:`torchonline.links`; None
            for the identity. A ``theta_bound`` that makes :math:`\kappa` less than 1e-12 is refused.
        feature_bound: L > 0, a bound on the norm of features, not used for the identity. Longer features are not refused.
        repeats: rewards in an epoch; None for :math:`\lceil 8\log(4T/\delta)\rceil`, which is inferred (the paper says
            O(log T)). Fewer void the guarantee.

    Shape:
        - ``residual_sum``, the sum above, ``(*B)``.

    Example:
        >>> learner = CRMMRegression(2, horizon=1000, repeats=3)
        >>> for reward in (0.3, 1e9, 0.1):
        ...     learner.step(torch.tensor([1.0, 0.0]), torch.tensor(reward))
        >>> learner.theta_hat
        tensor([0.1200, 0.0000], dtype=torch.float64)

    Reference:
        Xue, Wang, Wan, Yi and Zhang, Efficient Algorithms for Generalized Linear Bandits with Heavy-tailed Rewards, NeurIPS
        2023 (arXiv:2310.18701). Not checked against its text beyond the abstract; no code for it is known.
        What differs: the radius, because we do not have the paper's constant.
    """

    statistics_depend_on = ("theta_bound", "ridge", "repeats")
    renamed = EpochEstimator.renamed | {"spread": "residual_sum"}
    residual_sum: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        link: Link | None = None,
        feature_bound: float = 1.0,
        repeats: int | None = None,
        **options: Unpack[HorizonOptions],
    ) -> None:
        super().__init__(dim, horizon, **options)
        self._set_link(link, feature_bound)
        self._set_repeats(repeats, 8.0 * math.log(4.0 * self.horizon / self.delta))
        bound = 4.0 ** (1.0 / self.moment_order) * self.noise_scale
        self.start = self.ridge * self.theta_bound**2 - 4.0 / (3.0 * self.smallest_slope) * bound**2 * math.log(
            self.delta
        )
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"residual_sum": torch.zeros((), dtype=torch.float64)}

    def radius(self) -> Tensor:
        return self.radius_scale * sqrt(self.residual_sum + self.start)

    def _learn_epoch(self, x: Tensor, rewards: Tensor) -> None:
        product = matvec(self.V_inv, x)
        quadratic = 0.5 * self.smallest_slope * dot(x, product)
        residual = medians(rewards) - self._response(dot(x, self.theta_hat))
        increase_(self.residual_sum, residual * residual * (2.0 / self.smallest_slope) * quadratic / (1.0 + quadratic))
        self._newton_step_(x, product, quadratic, residual)


class CRMM(UCB[CRMMRegression]):
    r"""CRMM on fixed arms: optimism over :class:`CRMMRegression`, with its arguments.

    Args:
        dim, horizon, link, feature_bound, repeats, moment_order, noise_scale, theta_bound: as in :class:`CRMMRegression`.
        ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in :class:`CRMMRegression`.

    Example:
        >>> CRMM(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(CRMMRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(CRMMRegression(*arguments, **options))
