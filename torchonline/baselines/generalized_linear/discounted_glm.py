"""Discounted generalized linear regression, for drift: a heuristic."""

from typing import Any, Unpack

from torch import Tensor

from torchonline.core.ops import along, at_least, dot, matvec, number, sqrt
from torchonline.links import Link
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.discounted import DiscountedEstimator, learn_weighted_
from torchonline.regression.glm.base import GLMOptions
from torchonline.regression.glm.proximal import ProximalStep


class DiscountedGLMRegression(DiscountedEstimator, ProximalStep):
    r"""One-pass generalized linear regression that forgets exponentially: a heuristic.

    It is for clicks and counts whose parameter drifts. A round first forgets, with :math:`\gamma` = ``discount``, :math:`\lambda`
    = ``ridge`` and :math:`j = t \bmod d`, as in :class:`~torchonline.DiscountedRidgeRegression`:

    .. math:: V \leftarrow \gamma V + (1-\gamma)\lambda d\,e_je_j^\top, \qquad
              \tilde V \leftarrow \gamma^2\tilde V + (1-\gamma^2)\lambda d\,e_je_j^\top, \qquad
              \hat\theta \leftarrow \hat\theta - (1-\gamma)\lambda d\,\hat\theta_j V^{-1}e_j.

    Then it takes the proximal step of :class:`~torchonline.LocalGLMRegression`, with the mean :math:`\mu = m'` of the link, the
    dispersion g = ``noise_scale``\ :sup:`2` and :math:`q = x^\top V^{-1}x`:

    .. math:: y &= \arg\min_{|y|\le S\|x\|} \frac{m(y) - ry}g + \frac{(y-x^\top\hat\theta)^2}{2q}, \qquad
              \hat\theta \leftarrow \hat\theta + \frac{y-x^\top\hat\theta}q\,V^{-1}x, \\
              V &\leftarrow V + \mu'(y)xx^\top/g, \qquad \tilde V \leftarrow \tilde V + \mu'(y)xx^\top/g.

    A round of age n has weight :math:`\gamma^n`, so the memory is 1 / (1 - ``discount``) rounds. Widths are
    :math:`\|x\|_{V^{-1}\tilde VV^{-1}}`. With :math:`\Lambda, \tilde\Lambda` for the ridge's part of V and :math:`\tilde V`,

    .. math:: \text{radius} = \sqrt{d\log\frac{\operatorname{tr}\tilde V}{d\min_i\tilde\Lambda_{ii}} + 2\log\tfrac1\delta}
              + S\max_i\Lambda_{ii}/\tilde\Lambda_{ii}^{1/2},

    the radius of :class:`~torchonline.DiscountedRidgeRegression` in units of the Fisher information.

    Guarantee: none, with or without drift of the parameter. The step is linear in the past, as if losses had been quadratic.

    Cost of a round: O(d^2) time and three d x d matrices (four in float32), the same in every round.

    Args:
        dim, link, theta_bound, feature_bound, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        discount: :math:`\gamma`, below 1 and at least 1 - 1/d, which is a memory of d rounds; at least 1/2 for d = 1.
        ridge: :math:`\lambda > 0`; None for d / (1 + R S), as in :class:`~torchonline.LocalGLMRegression`.

    Shape:
        - as of :class:`~torchonline.DiscountedRidgeRegression`.

    Example:
        >>> learner, x = DiscountedGLMRegression(2, discount=0.95, theta_bound=3.0), torch.tensor([1.0, 0.0])
        >>> for reward in [1.0] * 200 + [0.0] * 60:
        ...     learner.step(x, reward)
        >>> bool(learner(x) < 0.2)
        True

    Reference:
        Russac, Cappe and Garivier, Algorithms for Non-Stationary Generalized Linear Bandits, 2020 (arXiv:2003.10113, D-GLUCB),
        and Russac, Faury, Cappe and Garivier, Self-Concordant Analysis of Generalized Linear Bandits with Forgetting, AISTATS
        2021 (arXiv:2011.00819), recalled: discounts of :math:`\gamma` and :math:`\gamma^2` and widths of this form. What
        differs: the papers refit all rounds by weighted maximum likelihood, and then project; their radii have a worst slope, or
        a factor of 1 + 2S; their ridge is renewed in all coordinates at once.
    """

    guarantee = "none"
    statistics_depend_on = ("noise_scale", "theta_bound", "ridge", "discount")

    def __init__(self, dim: int, *, discount: float, link: Link | None = None, **options: Unpack[GLMOptions]) -> None:
        super().__init__(dim, link, **options)
        self._set_discount(discount, self.delta)
        self.max_slope = self.link.max_slope(self.predictor_bound)
        self._set_proximal_step()
        self._create_buffers()

    def _usual_ridge(self) -> float:
        return self.dim / (1.0 + self.concordance * self.theta_bound)

    def radius(self) -> Tensor:
        return self.radius_scale * (self._root_growth() + self._bias())

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, weight, fading = self.theta_hat, 1.0 / (noise_scale * noise_scale), self.discount
        # Copies, because the arguments may be views of buffers that the round changes.
        x, reward = 1.0 * x, 1.0 * reward
        square = dot(x, x)
        self._check_length(square)
        # Raise before the first write.
        self._check_growth(x, weight * self.max_slope * dot(x, matvec(self.V_inv, x)) / fading)

        e = self._fade_()

        # Learn, and end the round.
        product = matvec(self.V_inv, x)
        q = number(at_least(dot(x, product), 1e-30))
        z, bound = number(dot(x, theta_hat)), number(self.theta_bound * sqrt(square))
        move = self._move(z, q * weight, bound, reward)
        curvature = weight * self.link.slope(z + move)
        root = along(sqrt(curvature), x)
        a, V_inv_a, quadratic = root * x, root * product, curvature * q
        learn_weighted_(theta_hat, self.P, a, V_inv_a, quadratic, 0.0 * quadratic, 1.0)
        theta_hat += along(move / q, x) * product
        self._count_squares_(a, e)
        self._add_outer_(a, V_inv_a, quadratic)


class DiscountedGLB(UCB[DiscountedGLMRegression]):
    r"""Optimism over :class:`DiscountedGLMRegression`: a heuristic.

    Args:
        dim, discount, link, theta_bound, feature_bound, ridge, delta, radius_scale: as in :class:`DiscountedGLMRegression`.
        batch_shape, dtype, device, validate: as in :class:`DiscountedGLMRegression`.

    Example:
        >>> DiscountedGLB(2, discount=0.99).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(DiscountedGLMRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(DiscountedGLMRegression(*arguments, **options))
