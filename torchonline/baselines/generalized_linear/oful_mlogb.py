"""OFUL-MLogB: logistic bandits by mirror descent (Zhang and Sugiyama, 2023)."""

import math
from typing import Any, Unpack

from torch import Tensor

from torchonline.core.ops import assign_, dot, log, log1p, matvec, real, sqrt
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.glm.base import GeneralizedEstimator, GLMOptions


class MLogBRegression(GeneralizedEstimator):
    r"""Online mirror descent on the logistic loss, for binary rewards.

    Round t, with the logistic mean :math:`\sigma`, g = ``noise_scale``\ :sup:`2` and :math:`\eta = \tfrac12\log2 + LS + 1`:

    .. math:: \tilde V &= V + \eta\,\sigma'(x^\top\hat\theta_t)\,xx^\top/g, \qquad
              \hat\theta_{t+1} = \Pi_{\|\theta\|\le S}\bigl(
              \hat\theta_t - \eta\,\tilde V^{-1}x\,(\sigma(x^\top\hat\theta_t) - r)/g\bigr) \\
              V &\leftarrow V + \sigma'(x^\top\hat\theta_{t+1})\,xx^\top/g

    with the projection in the norm of :math:`\tilde V`. After t rounds

    .. math:: \text{radius}^2 = 4\lambda S^2 + 2\eta\Bigl(33\,(1 + \log(1+2t))\log\tfrac{2\sqrt{1+2t}}\delta + 2
              + 6\eta d\log\bigl(1 + \tfrac{(t+1)L^2}{2\lambda}\bigr)\Bigr).

    Guarantee. If rewards are in [0, 1] with mean :math:`\sigma(x^\top\theta^*)` given the past, or averages of n such with
    g = 1/n, :math:`\|x\| \le L`, :math:`\|\theta^*\| \le S`, noise scales are at least 1 and
    :math:`\lambda \ge L^2\max(14\eta d,\ \tfrac32\eta LS,\ \tfrac12)`, as by default up to LS = 58 d, then the confidence set
    holds. The constants of the radius are recalled; those of :math:`\eta` and :math:`\lambda` are inferred. The guarantee follows
    from another theorem: this radius is above the radius "tight" of :class:`~torchonline.GLMRegression`, whose proof covers this
    update under the same condition for any :math:`\eta \ge 1 + LS`.

    Cost of a round: O(d^2) time and two d x d matrices (three in float32); O(d^3) in the increasingly rare rounds in which the
    step leaves the ball.

    Args:
        dim, theta_bound, feature_bound, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        ridge: :math:`\lambda > 0`; None for :math:`84\sqrt2\,d\,(1 + LS)L^2`. With less than the guarantee requires, the radius
            is a heuristic.

    Example:
        >>> learner = MLogBRegression(2, ridge=2.0)
        >>> learner.step(torch.tensor([0.6, 0.8]).expand(200, 2), torch.ones(200))
        >>> float(learner(torch.tensor([0.6, 0.8]))) > 0.7
        True

    Reference:
        Zhang and Sugiyama, Online (Multinomial) Logistic Bandit: Improved Regret and Constant Computation Cost, NeurIPS 2023.
        What differs: two outcomes only; any length of features; a round's dispersion determines its weight.
    """

    def __init__(self, dim: int, **options: Unpack[GLMOptions]) -> None:
        super().__init__(dim, None, **options)  # the logistic link only
        self.eta = 0.5 * math.log(2.0) + self.predictor_bound + 1.0
        self.log_term = math.log(2.0 / self.delta)
        self.growth = 0.5 * self.feature_bound**2 / self.ridge
        self.start = 4.0 * self.ridge * self.theta_bound**2 + 4.0 * self.eta
        self._create_buffers()

    def _usual_ridge(self) -> float:
        return 84.0 * math.sqrt(2.0) * self.dim * (1.0 + self.predictor_bound) * self.feature_bound**2

    def radius(self) -> Tensor:
        rounds = real(self.rounds, self.theta_hat)
        logarithm = log(1.0 + 2.0 * rounds)
        by_noise = 33.0 * (1.0 + logarithm) * (self.log_term + 0.5 * logarithm)
        by_dimension = 6.0 * self.eta * self.dim * log1p(self.growth * (rounds + 1.0))
        return self.radius_scale * sqrt(self.start + 2.0 * self.eta * (by_noise + by_dimension))

    def posterior_scale(self) -> Tensor:
        r"""Return :math:`\eta/\sqrt{2\eta-1}`, as mirror descent has it: ``(*B)``."""
        return self._scale_of_steps(self.eta)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        weight = 1.0 / (noise_scale * noise_scale)
        self._check_length(dot(x, x))
        product = matvec(self.V_inv, x)
        q = dot(x, product)
        theta = self._descend(x, reward, weight, dot(x, self.theta_hat), product, q)
        gain = weight * self.link.slope(dot(x, theta))
        quadratic = gain * q
        self._check_growth(x, quadratic)

        self._count_curvature_(x, product, gain, quadratic)
        assign_(self.theta_hat, theta)


class OFULMLogB(UCB[MLogBRegression]):
    r"""OFUL-MLogB: optimism over :class:`MLogBRegression`, with the same arguments.

    Args:
        dim, theta_bound, feature_bound, ridge, delta, radius_scale, batch_shape, dtype, device: as in :class:`MLogBRegression`.
        validate: as in :class:`MLogBRegression`.

    Example:
        >>> OFULMLogB(2).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(MLogBRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(MLogBRegression(*arguments, **options))
