"""GLOC: ridge regression on an online learner's predictions (Jun et al., 2017)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.core.ops import along, at_least, dot, increase_, log1p, matvec, sqrt
from torchonline.linalg import project_ball_
from torchonline.links import Link
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.glm.base import GeneralizedEstimator, GLMOptions, checked_min_slope


class GLOCRegression(GeneralizedEstimator):
    r"""Ridge regression on the predictions of an online Newton method.

    Round t predicts with the iterate :math:`\theta`, then, with g = ``noise_scale``\ :sup:`2`, the link's mean :math:`\mu` and
    its smallest slope :math:`\kappa` where :math:`|z| \le LS`:

    .. math:: V &\leftarrow V + xx^\top/g, \qquad z = x^\top\theta, \qquad \rho = (\mu(z) - r)/g \\
              \theta &\leftarrow \Pi_{\|\theta\|\le S}\bigl(\theta - V^{-1}x\,\rho/\kappa\bigr), \qquad
              \hat\theta \leftarrow V^{-1}\textstyle\sum_{s\le t} x_sz_s/g_s

    with the projection in the norm of V. With the largest slope :math:`R^2` where :math:`|z| \le LS`,

    .. math:: B &= 2\kappa\lambda S^2 + \frac1{2\kappa}\sum_{s\le t} \rho_s^2\,\|x_s\|^2_{V_s^{-1}}, \qquad
              E = \min_u\,\lambda\|u\|^2 + \sum_{s\le t}(z_s - x_s^\top u)^2/g_s \\
              \text{radius}^2 &= 1 + \frac{4B}\kappa + \frac{8R^2}{\kappa^2}\log\Bigl(\frac2\delta\sqrt{1 + \frac{2B}\kappa
              + \frac{4R^4}{\kappa^4\delta^2}}\Bigr) + \lambda S^2 - E.

    Guarantee (Theorem 1 of the reference). With Gaussian, logistic and binomial links, if rewards are as the link says,
    :math:`\|x\| \le L` and :math:`\|\theta^*\| \le S`, the confidence set of
    :class:`~torchonline.regression.estimator.Estimator` holds. With other links, whose rewards are not
    sub-Gaussian, the radius is a heuristic. The radius is recalled. We have checked its proof, for all ``delta`` below 1.

    Cost of a round: O(d^2) time and two d x d matrices (three in float32); O(d^3) in the increasingly rare rounds in which the
    step leaves the ball.

    Args:
        dim, link, feature_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        theta_bound: S > 0, a bound on the norm of the true parameter. A bound that makes :math:`\kappa` less than 1e-12 is
            refused.

    Shape:
        - ``iterate``, ``(*B, d)``; ``gradient_sum`` (the sum in B), ``residual_sum`` (E), ``(*B)``; the others as in
          :class:`~torchonline.regression.estimator.Estimator`.

    Example:
        >>> learner = GLOCRegression(2)
        >>> learner.step(torch.tensor([0.6, 0.8]).expand(200, 2), torch.ones(200))
        >>> float(learner(torch.tensor([0.6, 0.8]))) > 0.7
        True

    Reference:
        Jun, Bhargava, Nowak and Willett, Scalable Generalized Linear Bandits: Online Computation and Hashing, NeurIPS 2017
        (arXiv:1706.00136). What differs: a round's dispersion determines its weight. Published implementations differ further:
        the iterate, scaled to the norm S, is the centre, and a width of predictors is added to a score of mean rewards.
    """

    renamed = {"loss": "gradient_sum", "residual": "residual_sum"}
    iterate: Tensor
    gradient_sum: Tensor
    residual_sum: Tensor

    def __init__(self, dim: int, *, link: Link | None = None, **options: Unpack[GLMOptions]) -> None:
        super().__init__(dim, link, **options)
        self.smallest_slope = checked_min_slope(self.link, self.theta_bound, self.predictor_bound)
        self.noise_term = self.link.max_slope(self.predictor_bound) / self.smallest_slope**2
        prior = self.ridge * self.theta_bound**2
        self.start = 1.0 + 9.0 * prior
        # Split off the logarithm of the largest term, which single precision may not hold.
        noise_root = 2.0 * self.noise_term / self.delta
        self.log_term = math.log(2.0 / self.delta) + math.log(noise_root)
        self.log_start, self.log_rate = 1.0 + 4.0 * prior, noise_root**-2
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, zero = super()._initial_state(), torch.zeros((), dtype=torch.float64)
        return state | {"iterate": state["theta_hat"], "gradient_sum": zero, "residual_sum": zero}

    def radius(self) -> Tensor:
        regret = self.gradient_sum / (2.0 * self.smallest_slope * self.smallest_slope)
        log_term = self.log_term + 0.5 * log1p(self.log_rate * (self.log_start + 2.0 * regret))
        square = self.start + 4.0 * regret + 8.0 * self.noise_term * log_term - self.residual_sum
        return self.radius_scale * sqrt(at_least(square, 0.0))

    def posterior_scale(self) -> Tensor:
        r"""Return the largest scale that Laplace's approximation may have: ``(*B)``.

        V counts no slopes, and the Fisher information is at least :math:`\kappa V`.
        """
        return self._for_each(1.0 / math.sqrt(self.smallest_slope))

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, iterate = self.theta_hat, self.iterate
        self._check_length(dot(x, x))
        # From here on in units of the round's noise.
        a = x / along(noise_scale, x)
        product = matvec(self.V_inv, a)
        quadratic = dot(a, product)
        self._check_growth(x, quadratic)
        share = 1.0 / (1.0 + quadratic)
        gradient = (self.link.mean(dot(x, iterate)) - reward) / noise_scale
        residual = dot(a, iterate) - dot(a, theta_hat)
        self._check_cost(gradient * gradient / self.smallest_slope)

        increase_(self.gradient_sum, gradient * gradient * quadratic * share)
        increase_(self.residual_sum, residual * residual * share)
        theta_hat += along(residual * share, x) * product
        iterate -= along(gradient * share / self.smallest_slope, x) * product
        self._add_outer_(a, product, quadratic)
        project_ball_(iterate, self.V, self.theta_bound, self.validate)


class GLOC(UCB[GLOCRegression]):
    r"""GLOC: optimism over :class:`GLOCRegression`, with the same arguments.

    Args:
        dim, link, theta_bound, feature_bound, ridge, delta, radius_scale, batch_shape, dtype: as in :class:`GLOCRegression`.
        device, validate: as in :class:`GLOCRegression`.

    Example:
        >>> GLOC(2).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(GLOCRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(GLOCRegression(*arguments, **options))
