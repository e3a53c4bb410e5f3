"""OFUGLB: optimism over a level set of the likelihood (Lee, Yun and Jun, 2024)."""

import math
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.baselines.generalized_linear.likelihood import HistoryOptions, LevelSetEstimator, LevelSetUCB, Member
from torchonline.baselines.generalized_linear.solvers import minimise
from torchonline.core.ops import at_least, at_most, dot, increase_, log, maximum, sqrt
from torchonline.links import Link
from torchonline.policies.rules import takes_arguments_of


class OFUGLBRegression(LevelSetEstimator):
    r"""Maximum likelihood over all rounds, with a level set of the likelihood.

    Round t, with :math:`w_s = 1/\nu_s^2` for the round's ``noise_scale`` :math:`\nu_s`:

    .. math:: L(\theta) = \sum_{s\le t}w_s\bigl(m(x_s^\top\theta) - r_sx_s^\top\theta\bigr), \qquad
              \hat\theta = \arg\min_{\|\theta\|\le S} L(\theta), \qquad
              C = \{\|\theta\|\le S,\ L(\theta) - L(\hat\theta) \le b^2\}

    with :math:`b^2 = \log(1/\delta) + \min_{0<c\le1}(d\log(1/c) + 2S\ell c)`, and with a Lipschitz constant of L on the ball,
    :math:`\ell = \sum_sw_s\|x_s\|\max_{|z|\le S\|x_s\|}|\mu(z)-r_s|`. :meth:`upper_bound` is the largest :math:`x^\top\theta` in
    C; ``radius``, ``width`` and ``interval`` are those of the ellipsoid

    .. math:: \|\theta-\hat\theta\|_V^2 \le 2(1+RSL)b^2 + 4\lambda S^2, \qquad
              V = \lambda I + \sum_{s\le t} w_s\mu'(x_s^\top\hat\theta)x_sx_s^\top.

    Guarantee. If rewards are as the link says and :math:`\|\theta^*\| \le S`, then with probability at least 1 - ``delta``,
    in all rounds, :math:`\theta^*` is in C, and C is in the ellipsoid. Proof: docs/generalized_linear_theory.md.

    Cost of round t: about three passes over all rounds, O(t d^2) each. Memory O(T d), and O(t d^2) during :meth:`upper_bound`.

    Args:
        dim, link, theta_bound, feature_bound, delta, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        horizon: T, number of rounds that the history has room for.
        ridge: :math:`\lambda > 0`, of the ellipsoid only; None for :math:`(1+RSL)/(2S^2)`; or "growing" for
            :math:`\lambda_t = d\log(2+t)` after t rounds, as in the experiments of Zhang, Xu, Zhao and Sugiyama (2025). The
            guarantee holds for any of them.
        radius_scale: multiplies b and the radius; other than 1 it is a heuristic.

    Shape:
        - as of :class:`~torchonline.baselines.generalized_linear.likelihood.LikelihoodEstimator`; ``lipschitz``,
          :math:`\ell`, ``(*B)``.

    Example:
        >>> learner = OFUGLBRegression(2, horizon=100, delta=0.5)
        >>> learner.step(torch.tensor([1.0, 0.0]).expand(40, 2), torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(10))
        >>> learner.theta_hat
        tensor([-1.,  0.], dtype=torch.float64)
        >>> learner.upper_bound(torch.eye(2))
        tensor([0.3603, 1.0000], dtype=torch.float64)

    Reference:
        Lee, Yun and Jun, A Unified Confidence Sequence for Generalized Linear Models, with Applications to Bandits, NeurIPS
        2024 (arXiv:2407.13977). What differs: the Lipschitz constant is that of the observed losses, which the proof allows. For
        logistic rewards it is below the paper's :math:`(1+S/2)(t-1)`. For count rewards, the paper's constant holds with high
        probability and uses up a share of delta; this one does not.
    """

    lipschitz: Tensor

    def __init__(self, dim: int, *, horizon: int, link: Link | None = None, **options: Unpack[HistoryOptions]) -> None:
        super().__init__(dim, horizon, link, **options)
        self.spread = 1.0 + self.concordance * self.predictor_bound
        self._create_buffers()

    def _usual_ridge(self) -> float:
        return (1.0 + self.concordance * self.predictor_bound) / (2.0 * self.theta_bound**2)

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"lipschitz": torch.zeros((), dtype=torch.float64)}

    def _squared_level(self) -> Tensor:
        """Return b squared."""
        price = 2.0 * self.theta_bound / self.dim * self.lipschitz
        return self.dim * (at_most(price, 1.0) + log(at_least(price, 1.0))) - math.log(self.delta)

    def level(self) -> Tensor:
        return self.radius_scale**2 * self._squared_level()

    def radius(self) -> Tensor:
        square = 2.0 * self.spread * self._squared_level() + 4.0 * self.theta_bound**2 * self.ridge_now()
        return self.radius_scale * sqrt(square)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        length = sqrt(dot(x, x))
        bound = self.theta_bound * length
        error = maximum(self.link.mean(bound) - reward, reward - self.link.mean(-bound))
        steepness = length * error / (noise_scale * noise_scale)
        super()._observe(x, reward, noise_scale)
        increase_(self.lipschitz, steepness)

    def _fit(self, member: Member) -> None:
        loss = self._loss(member, 0.0)
        theta = minimise(loss, self._read("theta_hat", member), self.theta_bound)
        self._write("theta_hat", member, theta)
        ridge = self._ridge_of(member)
        matrix = loss.hessian(loss.predictors(theta)) + ridge * np.eye(self.dim)
        self._write_with_inverse("V", member, matrix, ridge)


class OFUGLB(LevelSetUCB):
    r"""OFUGLB: optimism over the exact confidence set of :class:`OFUGLBRegression`.

    The guarantee is the estimator's. The paper's OFUGLB-e, over the ellipsoid, is
    ``UCB(OFUGLBRegression(...))``. It is less sharp; a decision costs O(K d^2).

    Args:
        dim, horizon, link, theta_bound, feature_bound, ridge, delta, radius_scale: as in :class:`OFUGLBRegression`.
        batch_shape, dtype, device, validate: as in :class:`OFUGLBRegression`.

    Example:
        >>> OFUGLB(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    if TYPE_CHECKING:  # TorchScript knows no such annotation
        estimator: OFUGLBRegression

    @takes_arguments_of(OFUGLBRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(OFUGLBRegression(*arguments, **options))
