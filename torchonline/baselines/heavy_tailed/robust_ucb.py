"""RobustUCB: truncated means of arms without features (Bubeck et al., 2013)."""

import math
from typing import Any, Unpack

from torch import Tensor

from torchonline.baselines.heavy_tailed.base import HorizonEstimator, HorizonOptions
from torchonline.core.ops import along, at_least, dot, matvec, row_dots, rows_times, where
from torchonline.policies.rules import UCB, takes_arguments_of


class RobustUCBRegression(HorizonEstimator):
    r"""Truncated means of arms: ridge regression on one-hot features.

    An arm is a coordinate vector, and its mean reward a coordinate of :math:`\theta^*`. With p = ``moment_order``
    :math:`= 1+\varepsilon`, :math:`m = S + \nu`, which bounds the p-norm of rewards, and :math:`\ell = \log(2dT/\delta)`, a round
    is

    .. math:: V \leftarrow V + xx^\top,\qquad \tilde r = r\;1\{|r| \le m\,(N/\ell)^{1/p}\},\qquad N = \|x\|^{-2}_{V^{-1}}, \qquad
              \hat\theta \leftarrow \hat\theta + V^{-1}x\,(\tilde r - x^\top\hat\theta)

    N is :math:`\lambda` plus the number of rounds of the arm. Widths are :math:`\|x\|_{V^{-1}}^{2\varepsilon/p}`, which is
    :math:`N^{-\varepsilon/p}`, and the radius is :math:`m\,((p+2)\,\ell^{\varepsilon/p} + \lambda^{\varepsilon/p})` at all times.
    The ``noise_scale`` of ``step`` is not used.

    Guarantee. If all features are coordinate vectors, mean rewards are within :math:`\pm S`, and the noise has mean 0 and
    :math:`E|\eta|^p \le \nu^p` given the past, then the confidence set holds in the first T rounds. Proof: a reward of an arm has
    :math:`E|r|^p \le m^p`. Truncation moves the mean by at most :math:`p\,m\,(\ell/N)^{\varepsilon/p}`. With probability
    :math:`1 - 2e^{-\ell}` chance moves it by at most :math:`2m\,(\ell/N)^{\varepsilon/p}`. Both are as in Lemma 1 of the
    reference, whose steps hold with :math:`\lambda` in the count, and for rewards that depend on the past. The ridge moves it by
    at most :math:`m\lambda/N`. An arm has at most T counts. With other features nothing is proved.

    K arms without contexts are ``DisjointArms(RobustUCB(1, horizon=T), actions=K)``, whose context is always 1: O(K) memory, O(1)
    for a step, and ``delta`` divided among the arms. ``RobustUCB(K, horizon=T)`` with ``torch.eye(K)`` for arms makes the same
    choices, at O(K^2).

    Cost of a round: O(d^2) time and two d x d matrices (three in float32), the same in every round.

    Args:
        dim: d, 1 or the number of arms.
        horizon, moment_order, noise_scale, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`HorizonEstimator`.
        theta_bound: S > 0, a bound on the size of every mean reward.
        ridge: :math:`\lambda > 0`; None for 1.

    Example:
        >>> arms = DisjointArms(RobustUCB(1, horizon=1000), actions=3)
        >>> context = torch.ones(1)
        >>> for action, reward in ((0, 0.2), (1, 0.5), (2, -1e9), (1, 0.4)):
        ...     arms.step(context, action, reward)
        >>> arms.policy.estimator.theta_hat.squeeze(-1), arms.select(context)
        (tensor([0.1000, 0.3000, 0.0000], dtype=torch.float64), tensor(0))

    Reference:
        Bubeck, Cesa-Bianchi and Lugosi, Bandits with Heavy Tail, IEEE Transactions on Information Theory 59(11), 2013. What
        differs: one level of confidence for T rounds, where the paper has :math:`t^{-2}` in round t. The paper's level would
        truncate all earlier rewards again, and so need them. A ridge, whose cost is in the set. The paper's constant is 4 instead
        of p + 2.
    """

    statistics_depend_on = ("horizon", "moment_order", "noise_scale", "theta_bound", "ridge", "delta")
    takes_one_row = True

    def __init__(  # type: ignore[misc]  # mypy refuses an option that is named here too
        self, dim: int, *, horizon: int, ridge: float | None = None, **options: Unpack[HorizonOptions]
    ) -> None:
        super().__init__(dim, horizon, ridge=1.0 if ridge is None else ridge, **options)
        p, m = self.moment_order, self.theta_bound + self.noise_scale
        ell = math.log(2.0 * self.dim * self.horizon / self.delta)
        self.width_power = (p - 1.0) / p
        self.truncation_power = 1.0 / p
        self.threshold = m * ell**-self.truncation_power
        self.constant_radius = m * ((p + 2.0) * ell**self.width_power + self.ridge**self.width_power)
        self._create_buffers()

    def radius(self) -> Tensor:
        return self._for_each(self.radius_scale * self.constant_radius)

    def _squared_width(self, x: Tensor) -> Tensor:
        square = row_dots(rows_times(x, self.V_inv), x)
        # Above 0, because a root has no slope at 0.
        return at_least(square, 1e-38) ** (2.0 * self.width_power)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, x = self.theta_hat, 1.0 * x
        product = matvec(self.V_inv, x)
        quadratic = at_least(dot(x, product), 0.0)
        self._check_growth(x, quadratic)
        # |r| <= m (N / ell)^(1/p), with 1 / N after this round.
        size = abs(reward) * (quadratic / (1.0 + quadratic)) ** self.truncation_power
        kept = where(size <= self.threshold, reward, 0.0 * reward)
        step = along((kept - dot(x, theta_hat)) / (1.0 + quadratic), x) * product
        self._add_outer_(x, product, quadratic)
        theta_hat += step


class RobustUCB(UCB[RobustUCBRegression]):
    r"""RobustUCB: optimism over :class:`RobustUCBRegression`, with its arguments.

    Args:
        dim, horizon, ridge, moment_order, noise_scale, theta_bound, delta, radius_scale: as in :class:`RobustUCBRegression`.
        batch_shape, dtype, device, validate: as in :class:`RobustUCBRegression`.

    Example:
        >>> RobustUCB(3, horizon=1000).select(torch.diag(torch.tensor([1.0, 0.5, 0.5])))
        tensor(0)
    """

    @takes_arguments_of(RobustUCBRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(RobustUCBRegression(*arguments, **options))
