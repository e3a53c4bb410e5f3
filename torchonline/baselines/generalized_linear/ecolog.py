"""ECOLog: one-pass logistic regression by proximal steps (Faury et al., 2022)."""

import math
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from torchonline.core.backend import in_python, may_hold, on_arrays
from torchonline.core.ops import along, assign_, at_least, clip, dot, increase_, log, matvec, real, sqrt, where
from torchonline.linalg import plus_outer, project_ball
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.glm.base import GeneralizedEstimator, GLMOptions


class Problem(NamedTuple):
    """Minimise ``|theta - centre|^2 / 2 + rate (m(x'theta) - reward x'theta)``."""

    y: Tensor  # x'theta at the minimum without the ball, (*B)
    centre: Tensor  # (*B, d)
    matrix: Tensor  # V, of the norm, (*B, d, d)
    x: Tensor  # (*B, d)
    product: Tensor  # V^-1 x, (*B, d)
    rate: Tensor  # (*B)
    reward: Tensor  # (*B)


class ECOLogRegression(GeneralizedEstimator):
    r"""Logistic regression by a proximal step on each round's loss, solved exactly.

    Round t, with the loss :math:`l_r(\theta) = (\log(1+e^z) - rz)/g` at :math:`z = x^\top\theta`, the logistic mean
    :math:`\sigma`, g = ``noise_scale``\ :sup:`2` and D = 2LS:

    .. math:: \hat\theta_{t+1} &= \arg\min_{\|\theta\|\le S}\ \tfrac1{2+D}\|\theta-\hat\theta_t\|_V^2 + l_r(\theta), \qquad
              \bar\theta = \arg\min_{\|\theta\|\le S}\ \tfrac1{2+D}\|\theta-\hat\theta_t\|_V^2 + l_0(\theta) + l_1(\theta) \\
              V &\leftarrow V + \sigma'(x^\top\hat\theta_{t+1})\,xx^\top/g.

    Newton's method finds the minima to 12 digits, unless a round's :math:`\|x\|_{V^{-1}}^2/g` is many times
    :math:`L^2/\lambda`. The radius after t rounds is

    .. math:: \text{radius}^2 &= 4\lambda S^2 + 2(2+D)\Bigl(\tfrac{2+D}4\nu + \tfrac{D^2}{2+D}
              + \sum_{s\le t}\bigl(l_{r_s}(\bar\theta_s) - l_{r_s}(\hat\theta_{s+1})\bigr)_+\Bigr) + 4\log(1+t), \\
              \nu &= \tfrac12 + 2\log\bigl(\tfrac2\delta\sqrt{1+t/(4\lambda)}\bigr).

    Guarantee. If rewards are in [0, 1] with mean :math:`\sigma(x^\top\theta^*)` given the past, or averages of n such with
    g = 1/n, :math:`\|x\| \le L` and :math:`\|\theta^*\| \le S`, the confidence set of
    :class:`~torchonline.regression.estimator.Estimator` holds. The form of the radius is recalled; the proof is ours
    (docs/generalized_linear_theory.md).

    Cost of a round: O(d^2) time and two d x d matrices (three in float32); several times O(d^3) in the increasingly rare rounds
    with a minimum outside the ball. On an accelerator, the host waits in each round to know whether one is, even with
    ``validate=False``. :func:`~torchonline.export.to_program` takes a minute.

    Args:
        dim, theta_bound, feature_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.

    Shape:
        - ``excess_loss``, the sum above, ``(*B)``; the others as in :class:`~torchonline.regression.estimator.Estimator`.

    Example:
        >>> learner = ECOLogRegression(2)
        >>> learner.step(torch.tensor([0.6, 0.8]).expand(200, 2), torch.ones(200))
        >>> float(learner(torch.tensor([0.6, 0.8]))) > 0.7
        True

    Reference:
        Faury, Abeille, Jun and Calauzenes, Jointly Efficient and Optimal Algorithms for Logistic Bandits, AISTATS 2022
        (arXiv:2201.01985), ada-OFU-ECOLog. What differs: where :math:`\sigma'(x^\top\bar\theta)` is above
        :math:`2\sigma'(x^\top\hat\theta_{t+1})`, the paper shrinks the ball by a maximum-likelihood estimate of all such rounds,
        which its regret theorem needs and the guarantee above does not; a reward may be any number in [0, 1], for which a
        negative term of the sum counts as 0; a round's dispersion determines its weight; minima are not approximate. Published
        implementations have D = S, and add a width of predictors to a score of mean rewards.
    """

    renamed = {"excess": "excess_loss"}
    excess_loss: Tensor

    def __init__(self, dim: int, **options: Unpack[GLMOptions]) -> None:
        super().__init__(dim, None, **options)  # the logistic link only
        bound = self.predictor_bound
        self.inverse_rate = 2.0 + 2.0 * bound
        # Where the mean is flat, Newton's method moves by about 1 in a step, and the distance is at most logarithmic.
        largest = 0.5 * self.inverse_rate * self.feature_bound**2 / self.ridge
        self.newton_steps = 6 + math.ceil(math.log1p(largest))
        self.log_term = math.log(2.0 / self.delta)
        self.start = 4.0 * self.ridge * self.theta_bound**2 + 8.0 * bound * bound
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"excess_loss": torch.zeros((), dtype=torch.float64)}

    def radius(self) -> Tensor:
        rounds = real(self.rounds, self.theta_hat)
        nu = 0.5 + 2.0 * self.log_term + log(1.0 + 0.25 / self.ridge * rounds)
        by_noise = self.inverse_rate * (0.5 * self.inverse_rate * nu + 2.0 * self.excess_loss)
        return self.radius_scale * sqrt(self.start + by_noise + 4.0 * log(1.0 + rounds))

    def posterior_scale(self) -> Tensor:
        """Return the scale for steps of 1 + D / 2 times Newton's: ``(*B)``."""
        return self._scale_of_steps(0.5 * self.inverse_rate)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        weight, square = 1.0 / (noise_scale * noise_scale), dot(x, x)
        self._check_length(square)
        product = matvec(self.V_inv, x)
        # The sum of both losses is twice the loss of a reward of one half.
        half = 0.5 * self.inverse_rate * weight
        theta = self._minimum(x, product, half, reward)
        y, either = dot(x, theta), dot(x, self._minimum(x, product, 2.0 * half, 0.0 * reward + 0.5))
        link = self.link
        excess = weight * (link.log_partition(either) - link.log_partition(y) - reward * (either - y))
        gain = weight * link.slope(y)
        quadratic = gain * dot(x, product)
        self._check_growth(x, quadratic)

        self._count_curvature_(x, product, gain, quadratic)
        increase_(self.excess_loss, at_least(excess, 0.0))
        assign_(self.theta_hat, theta)

    def _minimum(self, x: Tensor, product: Tensor, rate: Tensor, reward: Tensor) -> Tensor:
        """Return the minimum of a round's :class:`Problem` around theta_hat: ``(*B, d)``."""
        link = self.link
        z, gain = dot(x, self.theta_hat), rate * dot(x, product)
        # Newton's method cannot overshoot if it starts between the root and the steepest point of the mean.
        y = where(z * (reward - link.mean(z)) > 0.0, z, 0.0 * z)
        for _ in range(self.newton_steps):
            y = y + (z - y + gain * (reward - link.mean(y))) / (1.0 + gain * link.slope(y))
        theta = self.theta_hat + along(rate * (reward - link.mean(y)), x) * product
        outside = sqrt(dot(theta, theta)) > self.theta_bound
        return self._inside(theta, outside, Problem(y, self.theta_hat, self.V, x, product, rate, reward))

    def _inside_of_arrays(self, theta: Any, outside: Any, problem: Problem) -> Any:
        if may_hold(outside):
            *vectors, rate, reward = problem
            values = (*vectors, rate + 0.0 * outside, reward + 0.0 * outside)
            some = Problem(*(np.asarray(value, dtype=theta.dtype)[outside] for value in values))
            theta[outside] = self._in_ball(some)
        return theta

    @on_arrays(_inside_of_arrays)
    def _inside_in_python(self, theta: Tensor, outside: Tensor, problem: Problem) -> Tensor:
        if not is_compiling():
            return self._inside_on_tensors(theta, outside, problem)
        return torch.cond(
            outside.any(),
            lambda theta, outside, *rest: torch.where(outside.unsqueeze(-1), self._in_ball(Problem(*rest)), theta),
            lambda theta, *_: theta.clone(),
            (theta, outside, *problem),
        )

    @in_python(_inside_in_python)
    def _inside(self, theta: Tensor, outside: Tensor, problem: Problem) -> Tensor:
        """Replace theta by the minimum over the ball where it is ``outside``, ``(*B)``."""
        return self._inside_on_tensors(theta, outside, problem)

    def _inside_on_tensors(self, theta: Tensor, outside: Tensor, problem: Problem) -> Tensor:
        if bool(outside.any()):
            d, which = self.dim, outside.view(-1)
            some = Problem(
                problem.y.reshape(-1)[which],
                problem.centre.view(-1, d)[which],
                problem.matrix.view(-1, d, d)[which],
                problem.x.reshape(-1, d)[which],
                problem.product.view(-1, d)[which],
                problem.rate.reshape(-1)[which],
                problem.reward.reshape(-1)[which],
            )
            theta.view(-1, d)[which] = self._in_ball(some)
        return theta

    def _in_ball(self, problem: Problem) -> Tensor:
        """Return the minimum over the ball of problems with a minimum outside."""
        link, x, rate, reward = self.link, problem.x, problem.rate, problem.reward
        z, quadratic = dot(x, problem.centre), dot(x, problem.product)
        y, theta = clip(problem.y, self.theta_bound * sqrt(dot(x, x))), problem.centre
        for _ in range(self.newton_steps):
            # The minimum over the ball with the mean's tangent at y in place of the mean.
            slope = rate * link.slope(y)
            pull = (slope * (z - y) + rate * (link.mean(y) - reward)) / (1.0 + slope * quadratic)
            theta = problem.centre - along(pull, x) * problem.product
            theta = project_ball(theta, plus_outer(problem.matrix, along(sqrt(slope), x) * x), self.theta_bound)
            # After a step from beyond the minimum, y is between the minimum and 0, or overshoots 0.
            after = dot(x, theta)
            overshoots = after * y < 0.0
            y, move = where(overshoots, 0.0 * after, after), after - y
            if not may_hold(abs(move) > 1e-6):  # the error is at most half the square of the last step
                break
        return theta


class ECOLog(UCB[ECOLogRegression]):
    r"""ECOLog: optimism over :class:`ECOLogRegression`, with the same arguments.

    Args:
        dim, theta_bound, feature_bound, ridge, delta, radius_scale, batch_shape, dtype: as in :class:`ECOLogRegression`.
        device, validate: as in :class:`ECOLogRegression`.

    Example:
        >>> ECOLog(2).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(ECOLogRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(ECOLogRegression(*arguments, **options))
