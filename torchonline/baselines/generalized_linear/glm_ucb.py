"""GLM-UCB: maximum likelihood and the worst curvature (Filippi et al., 2010)."""

import math
import warnings
from typing import Any, Unpack

import numpy as np
from torch import Tensor

from torchonline.baselines.generalized_linear.likelihood import HistoryOptions, LikelihoodEstimator, Member
from torchonline.baselines.generalized_linear.solvers import minimise
from torchonline.core.ops import along, log, sqrt
from torchonline.linalg import logdet
from torchonline.links import Link
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.glm.base import checked_min_slope


class GLMUCBRegression(LikelihoodEstimator):
    r"""Maximum likelihood over all rounds; the radius assumes the link's least slope.

    Round t, with :math:`c = \min\mu'` and :math:`C = \max\mu'` over :math:`|z| \le SL`, :math:`w_s = 1/\nu_s^2` for the round's
    ``noise_scale`` :math:`\nu_s`:

    .. math:: V = \lambda I + \sum_{s\le t} w_sx_sx_s^\top, \qquad
              \hat\theta = \arg\min_{\|\theta\|\le S}\ \tfrac{c\lambda}2\|\theta\|^2
              + \sum_{s\le t}w_s\bigl(m(x_s^\top\theta) - r_sx_s^\top\theta\bigr)

    Widths are :math:`\|x\|_{V^{-1}}`, and with :math:`\sigma`, the sub-Gaussian scale of a reward of ``noise_scale`` 1,

    .. math:: \text{radius} = \frac\sigma c\sqrt{2\log\tfrac1\delta + \log\det(V/\lambda)} + \sqrt\lambda S.

    Guarantee. If rewards are as the link says and :math:`\|\theta^*\| \le S`, the confidence set of
    :class:`~torchonline.regression.estimator.Estimator` holds. Gaussian, logistic and binomial rewards have
    :math:`\sigma^2 = \sup\mu'` over the whole line. **For other links** :math:`\sigma^2 = C` **is a heuristic**, and the
    constructor warns. Proof: docs/generalized_linear_theory.md. With ``ridge="growing"`` it holds in each single round, not in
    all at once.

    Cost of round t: about three passes over all rounds, O(t d^2) each. Memory O(T d).

    Args:
        dim, link, theta_bound, feature_bound, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        horizon: T, number of rounds that the history has room for.
        ridge: :math:`\lambda > 0`; None for d; or "growing" for :math:`\lambda_t = d\log(2+t)` after t rounds, as in the
            experiments of Zhang, Xu, Zhao and Sugiyama (2025).

    Shape:
        - as of :class:`~torchonline.baselines.generalized_linear.likelihood.LikelihoodEstimator`.

    Example:
        >>> learner = GLMUCBRegression(2, horizon=100)
        >>> learner.step(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1.0, 0.0]))
        >>> learner.theta_hat
        tensor([ 0.7071, -0.7071], dtype=torch.float64)

    Reference:
        Filippi, Cappe, Garivier and Szepesvari, Parametric Bandits: The Generalized Linear Case, NIPS 2010. What differs: the
        minimum is over the ball; the paper projects an unbounded minimum, which is not a convex problem. The radius follows from
        self-normalised sums; the paper's, as we recall it, has a further factor :math:`\sqrt{\log t}`.
    """

    def __init__(self, dim: int, *, horizon: int, link: Link | None = None, **options: Unpack[HistoryOptions]) -> None:
        super().__init__(dim, horizon, link, **options)
        link, bound = self.link, self.predictor_bound
        self.slowest, self.steepest = checked_min_slope(link, self.theta_bound, bound), link.max_slope(bound)
        is_sub_gaussian = link.is_global and math.isinf(link.reach)
        if not is_sub_gaussian:
            text = f"link: expected a link with sub-Gaussian rewards, got {type(link).__name__}; the radius is a heuristic here"
            warnings.warn(text, stacklevel=2)
        self.factor = math.sqrt(link.max_slope(math.inf) if is_sub_gaussian else self.steepest) / self.slowest
        self._create_buffers()

    def radius(self) -> Tensor:
        ridge = self.ridge_now()
        information = logdet(self.V) - self.dim * log(ridge)
        root = sqrt(information - 2.0 * math.log(self.delta))
        return self.radius_scale * (self.factor * root + sqrt(ridge) * self.theta_bound)

    def posterior_scale(self) -> Tensor:
        """Return the largest scale that Laplace's approximation may have: ``(*B)``.

        V counts no slopes, and the Fisher information is at least c V.
        """
        return self._for_each(1.0 / math.sqrt(self.slowest))

    def _fit(self, member: Member) -> None:
        ridge = self._ridge_of(member)
        loss = self._loss(member, self.slowest * ridge)
        self._write("theta_hat", member, minimise(loss, self._read("theta_hat", member), self.theta_bound))
        matrix = (loss.rows.T * loss.weights) @ loss.rows + ridge * np.eye(self.dim)
        self._write_with_inverse("V", member, matrix, ridge)


class GLMUCB(UCB[GLMUCBRegression]):
    r"""GLM-UCB: optimism over :class:`GLMUCBRegression`, in units of the reward.

    .. math:: \text{score}_k = \mu(x_k^\top\hat\theta) + C\cdot\text{radius}\cdot\|x_k\|_{V^{-1}}

    These scores rank arms as in the paper, not by the predictors' upper bounds. The estimator documents the guarantee and the
    cost.

    Args:
        dim, horizon, link, theta_bound, feature_bound, ridge, delta, radius_scale: as in :class:`GLMUCBRegression`.
        batch_shape, dtype, device, validate: as in :class:`GLMUCBRegression`.

    Example:
        >>> GLMUCB(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(GLMUCBRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(GLMUCBRegression(*arguments, **options))

    def _scores(self, features: Tensor) -> Tensor:
        """Return upper bounds of mean rewards: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        estimator = self.estimator
        mean = estimator.forward(features)
        return mean + estimator.steepest * along(estimator.radius(), mean) * estimator.width(features)
