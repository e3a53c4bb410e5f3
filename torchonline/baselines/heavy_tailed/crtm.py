"""CRTM: one-pass regression on truncated rewards (Xue et al., NeurIPS 2023)."""

import math
from typing import Any, Unpack

from torch import Tensor

from torchonline.baselines.heavy_tailed.base import HorizonOptions, LinkedEstimator
from torchonline.core.checks import positive
from torchonline.core.ops import at_least, dot, matvec, real, sqrt, where
from torchonline.links import Link
from torchonline.policies.rules import UCB, takes_arguments_of


class CRTMRegression(LinkedEstimator):
    r"""Online Newton steps on truncated rewards: a large reward counts as 0.

    The mean reward is a link of the predictor, :math:`\mu(x^\top\theta^*)`, by default the predictor itself. Round t, with p =
    ``moment_order`` :math:`= 1+\varepsilon`, :math:`e = (1-\varepsilon)/(2(1+\varepsilon))`, the least slope :math:`\kappa` of
    :math:`\mu` where :math:`|z| \le LS`, and :math:`u = (\max_{|z|\le LS}|\mu(z)| + \nu)^p`, which bounds the p-th absolute
    moment of the reward:

    .. math:: \tilde r &= r\;1\{|r|\,\|x\|_{V^{-1}} \le g\,(u/\log(2T/\delta))^{1/p}\,t^e\} \\
              V &\leftarrow V + \tfrac\kappa2 xx^\top,\qquad
              \hat\theta \leftarrow \Pi_{\|\theta\|\le S}\bigl(\hat\theta
              + V^{-1}x\,(\tilde r - \mu(x^\top\hat\theta))\bigr)

    with the projection in the norm of V. The radius after t >= 1 rounds is
    :math:`c\sqrt{d/\kappa}\,u^{1/p}\log(2dT/\delta)^{\varepsilon/p}\,t^e + \sqrt\lambda S`, and its second term before. A round's
    own ``noise_scale`` sets its threshold.

    Guarantee: none that we can vouch for. The update is recalled. The constants are inferred: the threshold at g = 1 and, for the
    identity, the radius are TOFU's; :math:`\kappa^{-1/2}` is how the error of the Newton steps grows. Results depend strongly on
    g. The noise may be skewed.

    Cost of a round: O(d^2) time and two d x d matrices (three in float32); O(d^3) in the increasingly rare rounds in which the
    step leaves the ball.

    Args:
        dim, horizon, moment_order, noise_scale, theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate:
            as in :class:`HorizonEstimator`.
        link: how the mean reward depends on the predictor, see :class:`LinkedEstimator`: one of :mod:`torchonline.links`; None
            for the identity. A ``theta_bound`` that makes :math:`\kappa` less than 1e-12 is refused.
        feature_bound: L > 0, a bound on the norm of features.
        truncation, radius_factor: g > 0 and c > 0, inferred.

    Example:
        >>> learner = CRTMRegression(2, horizon=1000)
        >>> learner.step(torch.tensor([1.0, 0.0]), torch.tensor(1e9))
        >>> learner.theta_hat
        tensor([0., 0.], dtype=torch.float64)

    Reference:
        Xue, Wang, Wan, Yi and Zhang, Efficient Algorithms for Generalized Linear Bandits with Heavy-tailed Rewards, NeurIPS
        2023 (arXiv:2310.18701). Not checked against its text beyond the abstract; no code for it is known.
    """

    statistics_depend_on = ("horizon", "moment_order", "theta_bound", "feature_bound", "ridge", "delta", "truncation")

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        link: Link | None = None,
        feature_bound: float = 1.0,
        truncation: float = 1.0,
        radius_factor: float = 4.0,
        **options: Unpack[HorizonOptions],
    ) -> None:
        super().__init__(dim, horizon, **options)
        self.truncation = positive("truncation", truncation)
        self._set_link(link, feature_bound)
        self._set_truncation(self.largest_mean, radius_factor)
        self.slope /= math.sqrt(self.smallest_slope)
        self.threshold_factor = self.truncation * self.log_factor
        self._create_buffers()

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat = self.theta_hat
        growth = real(self.rounds + 1, theta_hat) ** self.power
        product = matvec(self.V_inv, x)
        square = at_least(dot(x, product), 0.0)
        quadratic = 0.5 * self.smallest_slope * square
        self._check_growth(x, quadratic)
        threshold = self.threshold_factor * (self.largest_mean + noise_scale) * growth
        kept = where(abs(reward) * sqrt(square) <= threshold, reward, 0.0 * reward)
        self._newton_step_(x, product, quadratic, kept - self._response(dot(x, theta_hat)))
        self._end_round_()


class CRTM(UCB[CRTMRegression]):
    r"""CRTM: optimism over :class:`CRTMRegression`, with the same arguments.

    Args:
        dim, horizon, link, feature_bound, truncation, radius_factor, moment_order, noise_scale: as in :class:`CRTMRegression`.
        theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in :class:`CRTMRegression`.

    Example:
        >>> CRTM(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(CRTMRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(CRTMRegression(*arguments, **options))
