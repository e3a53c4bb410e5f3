"""Generalized linear regression with local curvature, the estimator of LocalGLB."""

from typing import Unpack

import torch
from torch import Tensor

from torchonline.core.checks import non_negative
from torchonline.core.ops import (
    along,
    at_least,
    clip,
    dot,
    log1p,
    matmul,
    matvec,
    maximum,
    minimum,
    number,
    row_dots,
    sqrt,
)
from torchonline.core.precision_matrix import add_squares_, gram
from torchonline.links import Link
from torchonline.regression.glm.base import GLMOptions, MixtureEstimator
from torchonline.regression.glm.proximal import ProximalStep

# Most Newton steps for a block; and their number where the host cannot read values, so that all are made.
BLOCK_STEPS, BLIND_STEPS = 20, 12


class LocalGLMRegression(ProximalStep, MixtureEstimator):
    r"""One-pass generalized linear regression with the curvature near the truth.

    For clicks, conversions, ratings in [0, 1], counts and waiting times: the mean reward is :math:`\mu(x^\top\theta^*)`, with
    the mean :math:`\mu = m'` of a link. A round, with :math:`z = x^\top\hat\theta`, :math:`u = V^{-1}x`, :math:`q = x^\top u`
    and the dispersion :math:`g = \text{noise\_scale}^2`, finds the new predictor :math:`y` by a proximal step:

    .. math:: y = \arg\min_{|y|\le S\|x\|} \frac{m(y) - ry}g + \frac{(y-z)^2}{2q},\qquad
              \hat\theta \leftarrow \hat\theta - \frac{z-y}q\,u,\qquad V \leftarrow V + c\,xx^\top,

    where c is the least curvature that the loss can have between y and the interval of the confidence set before the reward,
    :math:`z \pm \text{radius}\sqrt q` clipped to :math:`\pm S\|x\|`: :math:`c\,(b-y)^2 \le 2D_m(b, y)/g` for all b in it
    (:math:`D_m` is the divergence of m). The squared radius grows by the cost of the round. Widths are :math:`\|x\|_{V^{-1}}`.
    As the set shrinks, c tends to the slope :math:`\mu'(y)/g`, and V to the Fisher information, for any S.

    With ``corruption`` = C > 0, rewards may be false, and 1/g is replaced by

    .. math:: \min\Bigl\{\frac1g,\ \frac\alpha{\min\{(\text{radius}+6)\sqrt q,\ 2S\|x\|\}}\Bigr\},\qquad
              \alpha = \frac{3\,(\lambda S^2 + 2\log(1/\delta))}{2C}.

    So a round counts less if little is known of its predictor. The squared radius starts :math:`2\alpha C` higher, which doubles
    the first radius.

    Guarantee. If :math:`\|\theta^*\| \le` ``theta_bound`` and the reward, given the past and x, has the law of the link (or one
    whose exponential moments are not larger: see :mod:`torchonline.links`), then with probability at least 1 - ``delta``, for
    all rounds and all x at once, :math:`|x^\top(\hat\theta-\theta^*)| \le \text{radius}\cdot\text{width}(x)`. It holds from the
    first round, for any ``ridge``, any way of choosing x, and any horizon. An adversary who sees the past, x and the reward may
    add :math:`c_t` to it before the learner sees it, if :math:`\sum_t|c_t| \le C`. Proof: docs/generalized_linear_theory.md. No
    regret bound is proved for UCB over it; docs/glb_omd.md measures the regret.

    Cost of a round: O(d^2) time, ``NODES`` exponentials, at most 10 halvings and 6 Newton steps on one number, the same in
    every round; two d x d matrices (three in float32). If Newton's method stops before the root, the radius grows but the
    guarantee stays.

    Args:
        dim, link, theta_bound, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        feature_bound: L > 0, a bound on the norm of features. ``step`` refuses longer ones: where :math:`S\|x\|` is large, the
            interval of a predictor leaves no curvature, and the statistics would not grow. With a link whose self-concordance R
            is the same everywhere (all but ``Gamma`` and ``CustomLink``), an L that is too large costs nothing.
        ridge: :math:`\lambda > 0`; None for d / (1 + R S), which depends on L only with those two links.
        corruption: C >= 0, a bound on the sum of all changes that an adversary makes to rewards, in units of the reward: for
            clicks, the number of false and of suppressed ones. Too small voids the guarantee. Above 0 it costs regret, even if
            there is no adversary (docs/generalized_linear.md).

    Example:
        >>> learner = LocalGLMRegression(2, theta_bound=3.0)
        >>> x = torch.tensor([1.0, 0.0])
        >>> for reward in [1.0, 1.0, 1.0, 0.0] * 25:
        ...     learner.step(x, torch.tensor(reward))
        >>> low, high = learner.interval(x)
        >>> print(f"{learner(x):.2f}, between {low:.2f} and {high:.2f}")
        0.74, between 0.49 and 0.90

    Reference:
        Of this library, after two one-pass estimators: that of Zhang, Xu, Zhao and Sugiyama, Generalized Linear Bandits: Almost
        Optimal Regret with One-Pass Update, 2025, which is :class:`GLMRegression`; and that of Faury, Abeille, Jun and
        Calauzenes, Jointly Efficient and Optimal Algorithms for Logistic Bandits, AISTATS 2022. What differs: the local
        curvature, a radius that is evaluated instead of bounded, and no projection. The idea of
        weights against corruption is that of Kim, Lee and Yun, A Jointly Efficient and Optimal Algorithm for Heteroskedastic
        Generalized Linear Bandits with Adversarial Corruptions, 2026, of which we have read the introduction. The weights and
        the proof are ours.
    """

    guarantee = "in all rounds"
    statistics_depend_on: tuple[str, ...] = ("concordance", "theta_bound", "ridge", "delta", "noise_scale")
    later_options = {"corruption": 0.0}
    eta = 1.0

    def __init__(
        self, dim: int, *, link: Link | None = None, corruption: float = 0.0, **options: Unpack[GLMOptions]
    ) -> None:
        super().__init__(dim, link, **options)
        link = self.link
        self.corruption = non_negative("corruption", corruption)
        # 2 alpha C and alpha.
        self.is_weighted, self.allowance, self.influence = self.corruption > 0.0, 0.0, 0.0
        if self.is_weighted:
            self.allowance = 3.0 * self._squared_start(self.theta_bound)
            self.influence = 0.5 * self.allowance / self.corruption
        self.is_unimodal = link.is_unimodal
        self._set_proximal_step()
        # TorchScript does not see a module's constants.
        self.block_steps, self.blind_steps = BLOCK_STEPS, BLIND_STEPS
        # Newton's method for a block stops at this price, relative to the squared radius.
        self.tolerance = max(1e-12, 1e3 * torch.finfo(self._initial_options["dtype"]).eps)
        # With another link, a block's step could leave the interval on which the link is defined.
        self.has_blocks = self.has_blocks and link.is_global
        self._create_buffers()

    def _usual_ridge(self) -> float:
        return self.dim / (1.0 + self.concordance * self.theta_bound)

    def _squared_start(self, distance: float) -> float:
        return super()._squared_start(distance) + self.allowance

    def _weight(self, noise_scale: Tensor, q: Tensor, error: Tensor, bound: Tensor) -> Tensor:
        """Return the weights of rounds: 1 / g, less where a change could mislead."""
        weight = 1.0 / (noise_scale * noise_scale)
        if self.is_weighted:
            # No node of the mixture is further than this from the true predictor.
            farthest = minimum(error + 6.0 * sqrt(q), 2.0 * bound)
            weight = minimum(self.influence / at_least(farthest, 1e-30), weight)
        return weight

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, square = self.theta_hat, dot(x, x)
        self._check_length(square)
        product = matvec(self.V_inv, x)
        q = number(at_least(dot(x, product), 1e-30))
        z, bound = number(dot(x, theta_hat)), number(self.theta_bound * sqrt(square))
        # The confidence interval of the true predictor, slightly widened against rounding.
        error = number((1.0 + 1e-9) * sqrt(at_least(self.squared_radius, 0.0) * q))
        low, high = clip(z - error, bound), clip(z + error, bound)
        weight = self._weight(noise_scale, q, error, bound)

        move = self._move(z, q * weight, bound, reward)
        y, pull = z + move, -move / q
        excess = weight * (self.link.mean(y) - reward) - pull
        cost = 2.0 * self._regret_of_mixture(z, q, bound, y, reward, weight) - pull * pull * q
        cost = cost + 2.0 * maximum(excess * (y - low), excess * (y - high))
        self._absorb_(x, product, weight * self._curvature(y, low, high), q, cost)
        theta_hat -= along(pull, x) * product

    def _observe_block(self, x: Tensor, reward: Tensor, noise_scale: Tensor, count: Tensor) -> None:
        # The prior and the confidence interval of each round's predictor are those before the block.
        theta_hat, rounds, G = self.theta_hat, self.rounds, self.V
        square = row_dots(x, x)
        self._check_length(square)
        q = at_least(row_dots(matmul(x, self.V_inv), x), 1e-30)
        z, bound = matvec(x, theta_hat), self.theta_bound * sqrt(square)
        squared = at_least(self.squared_radius, 0.0)
        error = (1.0 + 1e-9) * sqrt(squared.unsqueeze(-1) * q)
        low, high = clip(z - error, bound), clip(z + error, bound)
        weight = self._weight(noise_scale, q, error, bound)

        move, residual, length = self._fit_block(x, z, reward, weight, G, sqrt(squared))
        y = z + matvec(x, move)
        gain = self._regret_of_mixture(z, q, bound, y, reward, weight)
        curvature = weight * self._curvature(y, low, high)
        gains, squares = self._totals([gain.sum(-1), gram(x, curvature.unsqueeze(-1) * x)])
        cost = 2.0 * gains - dot(move, matvec(G, move)) + 2.0 * (dot(residual, move) + length * sqrt(squared))
        self._check_cost(cost)
        self._check_block(add_squares_(self._precision(), squares)[1])
        self._count_cost_(cost)
        theta_hat += move
        rounds += count

    def _fit_block(
        self, x: Tensor, z: Tensor, reward: Tensor, weight: Tensor, G: Tensor, radius: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Minimise a block's loss plus half the squared norm of the move.

        The norm is that of G. Return the move and the gradient there, ``(*B, d)``, and the gradient's norm in ``G^-1``, ``(*B)``,
        which the confidence set pays for.
        """
        link, R = self.link, self.concordance
        move = torch.zeros_like(self.theta_hat)
        residual, length = move, radius
        steps = self.block_steps if self._can_ask(radius) else self.blind_steps
        for i in range(steps + 1):
            mean, slope = link.mean_and_slope(z + matvec(x, move))
            gradient, hessian = self._totals(
                [gram(x, (weight * (mean - reward)).unsqueeze(-1)), gram(x, (weight * slope).unsqueeze(-1) * x)]
            )
            G_move = matvec(G, move)
            residual = gradient.squeeze(-1) + G_move
            length = sqrt(at_least(dot(residual, matvec(self.V_inv, residual)), 0.0))
            # The price of stopping here, which the confidence set pays. A radius of 0 must not stop the learning.
            price = length * (sqrt(at_least(dot(move, G_move), 0.0)) + at_least(radius, 1.0))
            if i == steps or not self._is_any(price > self.tolerance * at_least(radius * radius, 1.0)):
                break
            step = torch.cholesky_solve(residual.unsqueeze(-1), torch.linalg.cholesky_ex(G + hessian)[0]).squeeze(-1)
            # Along the step, the second derivative grows by no more than exp(size). This share of the step is sure to descend.
            size = at_least(R * self._most(abs(matvec(x, step))), 1e-8)
            move = move - along(log1p(size) / size, step) * step
        return move, residual, length

    def _curvature(self, y: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return the largest curvature that is sure for a truth in [``low``, ``high``]."""
        R = self.concordance
        curvature = 2.0 * self.link.slope(y) / (2.0 + R * maximum(abs(low - y), abs(high - y)))
        if self.is_unimodal:
            curvature = maximum(curvature, minimum(self.link.curvature(low, y, R), self.link.curvature(high, y, R)))
        return curvature
