"""ada-OFU-ECOLog and OFU-ECOLog: ECOLog with a warm-up (Faury et al., 2022)."""

import math
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.baselines.generalized_linear.likelihood import (
    HISTORY,
    HistoryOptions,
    LikelihoodEstimator,
    Member,
    on_host,
)
from torchonline.baselines.generalized_linear.solvers import (
    LOSS_TOLERANCE,
    NEWTON_STEPS,
    Array,
    Loss,
    ball_minimum,
    minimise,
)
from torchonline.baselines.stored_rounds import check_room
from torchonline.core.checks import positive_integer
from torchonline.core.ops import along, at_least, dot, log, matvec, real, row_dots, rows_times, sqrt
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.glm.base import checked_min_slope


class Region(NamedTuple):
    r"""A ball and an ellipsoid, :math:`\|u\| \le S` and :math:`\|u-c\|_U \le \rho`."""

    bound: float
    centre: Array
    matrix: Array
    radius: float

    def excess(self, theta: Array) -> float:
        """Return how far a point is outside of the ellipsoid, relative to its radius."""
        move = theta - self.centre
        return math.sqrt(max(0.0, float(move @ self.matrix @ move))) / self.radius - 1.0

    def minimum(self, hessian: Array, gradient: Array, at: Array) -> Array:
        r"""Return the minimum of a quadratic function over the set.

        The function is :math:`g^\top(u-\theta) + \tfrac12\|u-\theta\|_H^2`, for :math:`\theta` = ``at``.
        """
        found = ball_minimum(hessian, gradient, at, self.bound)
        if self.excess(found) <= 0.0:
            return found
        # The ellipsoid alone, as a ball in other coordinates.
        values, vectors = np.linalg.eigh(self.matrix)
        back = vectors / np.sqrt(values)
        start = np.sqrt(values) * (vectors.T @ (at - self.centre))
        alone = self.centre + back @ ball_minimum(back.T @ hessian @ back, back.T @ gradient, start, self.radius)
        if math.sqrt(alone @ alone) <= self.bound:
            return alone
        # Both: the ellipsoid's multiplier, by bisection.
        pull, low, high = self.matrix @ (at - self.centre), 0.0, 1.0
        scale = float(hessian.trace() / self.matrix.trace())

        def at_multiplier(share: float) -> Array:
            nu = scale * share
            return ball_minimum(hessian + nu * self.matrix, gradient + nu * pull, at, self.bound)

        while self.excess(at_multiplier(high)) > 0.0 and high < 1e30:
            low, high = high, 4.0 * high
        for _ in range(NEWTON_STEPS):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            low, high = (middle, high) if self.excess(at_multiplier(middle)) > 0.0 else (low, middle)
        return at_multiplier(high)


class AdaECOLogRegression(LikelihoodEstimator):
    r"""ECOLog with a set of warm-up rounds that shrinks the ball.

    Round t, with the losses :math:`l_r` of :class:`~torchonline.baselines.ECOLogRegression`, weights w = 1 /
    ``noise_scale``\ :sup:`2`, a set :math:`\Theta` that is the ball of radius S at first, and its diameter D along features of
    length L:

    .. math:: \theta_r = \arg\min_{\theta\in\Theta}\ \tfrac1{2+D}\|\theta-\hat\theta\|_V^2 + l_r(\theta), \qquad
              \bar\theta = \arg\min_{\theta\in\Theta}\ \tfrac1{2+D}\|\theta-\hat\theta\|_V^2 + l_0(\theta) + l_1(\theta).

    If :math:`\sigma'(x^\top\bar\theta) \le 2\min(\sigma'(x^\top\theta_0), \sigma'(x^\top\theta_1))`, the round is learnt as in
    ECOLog: :math:`\hat\theta \leftarrow \theta_r` for the reward r, and :math:`V \leftarrow V +
    w\sigma'(x^\top\hat\theta)xx^\top`. Otherwise it is a warm-up round. It moves neither :math:`\hat\theta` nor V, and with
    :math:`c = \min\sigma'` over :math:`|z| \le SL`,

    .. math:: U &\leftarrow U + wxx^\top, \qquad \hat\theta_o = \arg\min_{\|\theta\|\le S}\ \tfrac{c\lambda}2\|\theta\|^2
              + \sum_{s\text{ of warm-up}} l_{r_s}(\theta), \\
              \rho &= \tfrac1{2c}\sqrt{2\log\tfrac2\delta + \log\det(U/\lambda)} + \sqrt\lambda S, \qquad
              \Theta = \{\|\theta\| \le S,\ \|\theta-\hat\theta_o\|_U \le \rho\}, \\
              D &= \min\bigl(2LS,\ 2L\rho/\lambda_{\min}(U)^{1/2}\bigr).

    With ``warm_up_rounds``, it is OFU-ECOLog: exactly the first ``warm_up_rounds`` rounds are warm-up rounds.

    After t rounds, of which the learnt ones had the diameters :math:`D_s`, and with the :math:`\nu` of ECOLog,

    .. math:: \text{radius}^2 = 4\lambda S^2 + \max\bigl(\tfrac12(2+D)^2\nu + 2D^2,\ (2+2LS)\log\tfrac2\delta\bigr)
              + 2\sum_{s\text{ learnt}}(2+D_s)\bigl(l_{r_s}(\bar\theta_s) - l_{r_s}(\hat\theta_{s+1})\bigr)_+ + 4\log(1+t).

    Guarantee. If rewards are in [0, 1] with mean :math:`\sigma(x^\top\theta^*)` given the past, or averages of n such with a
    ``noise_scale`` of :math:`1/\sqrt n`, :math:`\|x\| \le L` and :math:`\|\theta^*\| \le S`, then with probability at least 1 -
    ``delta``, in all rounds, :math:`\theta^*` is in :math:`\Theta` and the confidence set of
    :class:`~torchonline.regression.estimator.Estimator` holds. The structure is the paper's. The radii :math:`\rho` and
    ``radius`` are ours, after the paper's form; the proof is ours (docs/generalized_linear_theory.md). The paper's regret theorem
    is for its own constants.

    Cost of a round: O(d^2) time; several times O(d^3) if a minimum is outside of :math:`\Theta`; and three passes over the
    warm-up rounds in a warm-up round. Memory O(d^2) and room for T warm-up rounds.

    Args:
        dim, theta_bound, feature_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        horizon: T, number of rounds. The history has room for as many warm-up rounds.
        warm_up_rounds: number of rounds of pure exploration at the start (OFU-ECOLog); None for warm-up rounds that the data
            decide (ada-OFU-ECOLog). The paper asks for a number of order :math:`\kappa S^6d^2\log^2T`.

    Shape:
        - ``warm_up_theta``, :math:`\hat\theta_o`, ``(*B, d)``; ``warm_up_V``, U, and ``warm_up_V_inv``, ``(*B, d, d)``;
          ``warm_up_radius``, :math:`\rho`, ``diameter``, D, ``excess_sum``, the last sum without its factor 2, and ``warm_ups``,
          the number of warm-up rounds, ``(*B)``; the others as in
          :class:`~torchonline.baselines.generalized_linear.likelihood.LikelihoodEstimator`.

    Example:
        >>> learner = AdaECOLogRegression(2, horizon=200)
        >>> learner.step(torch.tensor([0.6, 0.8]).expand(200, 2), torch.ones(200))
        >>> float(learner(torch.tensor([0.6, 0.8]))) > 0.7, int(learner.warm_ups)
        (True, 0)

    Reference:
        Faury, Abeille, Jun and Calauzenes, Jointly Efficient and Optimal Algorithms for Logistic Bandits, AISTATS 2022
        (arXiv:2201.01985), Algorithms 1 and 2 and Procedure 1, as recalled. The condition with :math:`\theta_0, \theta_1` and
        :math:`\bar\theta` was checked in the authors' repository (louisfaury/logistic_bandit,
        misc/online_learning_hypothesis_test.py), whose bandit stops with an error where it fails, and has no warm-up set; the
        set, in a program by others that follows the paper (DisEcoLog). What differs: the diameter is along all features of length
        L, not along the arms; :math:`\rho` is that of :class:`~torchonline.baselines.GLMUCBRegression` for half of
        ``delta``, which is proved; minima are not approximate; rewards may be any numbers in [0, 1].
    """

    statistics_depend_on = ("horizon", "theta_bound", "feature_bound", "ridge", "delta", "warm_up_rounds")
    positive_definite = ("V", "V_inv", "warm_up_V", "warm_up_V_inv")
    inverses = (("V", "V_inv"), ("warm_up_V", "warm_up_V_inv"))
    can_grow = False
    warm_up_theta: Tensor
    warm_up_V: Tensor
    warm_up_V_inv: Tensor
    warm_up_radius: Tensor
    diameter: Tensor
    excess_sum: Tensor
    warm_ups: Tensor

    def __init__(
        self, dim: int, *, horizon: int, warm_up_rounds: int | None = None, **options: Unpack[HistoryOptions]
    ) -> None:
        super().__init__(dim, horizon, None, **options)  # the logistic link only
        self.warm_up_rounds = None if warm_up_rounds is None else positive_integer("warm_up_rounds", warm_up_rounds)
        self.slowest = checked_min_slope(self.link, self.theta_bound, self.predictor_bound)
        self.log_term = math.log(2.0 / self.delta)
        self.least_noise_term = (2.0 + 2.0 * self.predictor_bound) * self.log_term
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, zero = super()._initial_state(), torch.zeros((), dtype=torch.float64)
        return state | {
            "warm_up_theta": state["theta_hat"],
            "warm_up_V": state["V"],
            "warm_up_V_inv": state["V_inv"],
            "warm_up_radius": zero + self._warm_up_radius(0.0),
            "diameter": zero + 2.0 * self.predictor_bound,
            "excess_sum": zero,
            "warm_ups": torch.zeros((), dtype=torch.int64),
        }

    def _warm_up_radius(self, logdet: float) -> float:
        """Return rho, for the logarithm of the determinant of U / lambda."""
        noise = math.sqrt(2.0 * self.log_term + logdet) / (2.0 * self.slowest)
        return noise + math.sqrt(self.ridge) * self.theta_bound

    def radius(self) -> Tensor:
        rounds, D = real(self.rounds, self.theta_hat), self.diameter
        nu = 0.5 + 2.0 * self.log_term + log(1.0 + 0.25 / self.ridge * rounds)
        by_noise = at_least(0.5 * (2.0 + D) * (2.0 + D) * nu + 2.0 * D * D, self.least_noise_term)
        start = 4.0 * self.ridge * self.theta_bound**2
        return self.radius_scale * sqrt(start + by_noise + 2.0 * self.excess_sum + 4.0 * log(1.0 + rounds))

    def posterior_scale(self) -> Tensor:
        """Return the scale for steps of 1 + D / 2 times Newton's: ``(*B)``."""
        return (1.0 + 0.5 * self.diameter) / sqrt(1.0 + self.diameter)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        weight = 1.0 / (noise_scale * noise_scale)
        self._check_length(dot(x, x))
        check_room(self.rounds, self.horizon)
        for matrix in (self.V_inv, self.warm_up_V_inv):
            self._check_growth(x, weight * dot(x, matvec(matrix, x)))
        # Copies, because the arguments may be views of buffers that a round changes.
        rows = on_host(x).copy()
        rewards, weights = (np.broadcast_to(on_host(value), self.batch_shape).copy() for value in (reward, weight))
        with np.errstate(all="ignore"):
            for member in np.ndindex(self.batch_shape):
                self._learn_one(member, rows[member], rewards[member], weights[member])

    def _learn_one(self, member: Member, x: Array, reward: Any, weight: Any) -> None:
        """Learn one learner's round."""
        rounds, D = int(self._read("rounds", member)), float(self._read("diameter", member))
        self._write("rounds", member, rounds + 1)
        if self.warm_up_rounds is not None and rounds < self.warm_up_rounds:
            self._warm_up(member, x, reward, weight)
            return
        rate, slope = 0.5 * (2.0 + D) * weight, self.link.slope
        theta, either = self._minimum(member, x, rate, reward), self._minimum(member, x, 2.0 * rate, 0.5)
        if self.warm_up_rounds is None:
            ends = [theta if r == reward else self._minimum(member, x, rate, r) for r in (0.0, 1.0)]
            if slope(x @ either) > 2.0 * min(slope(x @ end) for end in ends):
                self._warm_up(member, x, reward, weight)
                return
        y, other = x @ theta, x @ either
        excess = weight * (self.link.log_partition(other) - self.link.log_partition(y) - reward * (other - y))
        matrix = self._read("V", member) + weight * slope(y) * np.outer(x, x)
        self._write("excess_sum", member, self._read("excess_sum", member) + (2.0 + D) * np.maximum(excess, 0.0))
        self._write("theta_hat", member, theta)
        self._write_with_inverse("V", member, matrix, self.ridge)

    def _warm_up(self, member: Member, x: Array, reward: float, weight: float) -> None:
        """Learn one learner's warm-up round, and shrink its set."""
        n = int(self._read("warm_ups", member))
        for name, value in zip(HISTORY, (x, reward, weight), strict=True):
            self._write(name, (*member, n), value)
        self._write("warm_ups", member, n + 1)
        rows, rewards, weights = (self._read(name, member)[: n + 1] for name in HISTORY)
        loss = Loss(self.link, self.concordance, rows, rewards, weights, self.slowest * self.ridge)
        matrix = self._read("warm_up_V", member) + weight * np.outer(x, x)
        self._write("warm_up_theta", member, minimise(loss, self._read("warm_up_theta", member), self.theta_bound))
        self._write_with_inverse("warm_up_V", member, matrix, self.ridge)
        values = np.linalg.eigvalsh(matrix) if np.isfinite(matrix).all() else np.full(self.dim, math.nan)
        radius = self._warm_up_radius(float(np.log(values / self.ridge).sum()))
        self._write("warm_up_radius", member, radius)
        wide = 2.0 * self.feature_bound * radius / math.sqrt(max(values[0], self.ridge))
        self._write("diameter", member, min(2.0 * self.predictor_bound, wide))

    def _minimum(self, member: Member, x: Array, rate: float, reward: float) -> Array:
        r"""Return the minimum of a round's problem over the set.

        The problem is to minimise :math:`\tfrac12\|\theta-\hat\theta\|_V^2 + \text{rate}\,l(\theta)`.
        """
        link, centre, product = self.link, self._read("theta_hat", member), self._read("V_inv", member) @ x
        z, gain = x @ centre, rate * (x @ product)
        # Without the set: a root between the ends of a bracket that Newton's method shortens.
        low, high = z + gain * min(reward - 1.0, 0.0), z + gain * max(reward, 0.0)
        y = min(max(0.0, low), high)
        for _ in range(NEWTON_STEPS):
            error = y - z - gain * (reward - link.mean(y))
            low, high = (low, y) if error > 0.0 else (y, high)
            following = y - error / (1.0 + gain * link.slope(y))
            following = following if low <= following <= high else 0.5 * (low + high)
            if not abs(following - y) > 1e-15 * abs(y):
                break
            y = following
        theta = centre + rate * (reward - link.mean(y)) * product
        region = Region(
            self.theta_bound,
            self._read("warm_up_theta", member),
            self._read("warm_up_V", member),
            float(self._read("warm_up_radius", member)),
        )
        if not np.isfinite(theta).all() or (
            math.sqrt(theta @ theta) <= self.theta_bound and region.excess(theta) <= 0.0
        ):
            return theta
        return self._minimum_inside(region, centre, self._read("V", member), x, rate, reward)

    def _minimum_inside(
        self, region: Region, centre: Array, matrix: Array, x: Array, rate: float, reward: float
    ) -> Array:
        """Return the same minimum if the set constrains it."""
        link, theta = self.link, region.minimum(matrix, np.zeros_like(centre), centre)
        for _ in range(NEWTON_STEPS):
            z = x @ theta
            gradient = matrix @ (theta - centre) + rate * (link.mean(z) - reward) * x
            hessian = matrix + rate * link.slope(z) * np.outer(x, x)
            step = region.minimum(hessian, gradient, theta) - theta
            change, share, slope = float(x @ step), 1.0, float(gradient @ step)
            decrement = float(step @ hessian @ step)
            while abs(change) > 0.5 and share > 1e-12:
                loss = link.log_partition(z + share * change) - link.log_partition(z) - reward * share * change
                square = 0.5 * share * share * float(step @ matrix @ step)
                rise = rate * loss + share * float((theta - centre) @ matrix @ step) + square
                if rise <= 1e-4 * share * slope:
                    break
                share *= 0.5
            theta = theta + share * step
            is_short = float(np.abs(step).max()) <= 1e-14 * float(np.abs(theta).max())
            if share == 1.0 and (decrement * change * change <= LOSS_TOLERANCE or is_short):
                break
        return theta


class AdaECOLog(UCB[AdaECOLogRegression]):
    r"""ada-OFU-ECOLog and OFU-ECOLog: optimism over :class:`AdaECOLogRegression`.

    In the first ``warm_up_rounds`` rounds, if given, the scores are :math:`\|x_k\|_{U^{-1}}`. The guarantee is the estimator's.

    Args:
        dim, horizon, warm_up_rounds, theta_bound, feature_bound, ridge, delta: as in :class:`AdaECOLogRegression`.
        radius_scale, batch_shape, dtype, device, validate: as in :class:`AdaECOLogRegression`.

    Example:
        >>> AdaECOLog(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(AdaECOLogRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(AdaECOLogRegression(*arguments, **options))

    def _scores(self, features: Tensor) -> Tensor:
        """Return the scores: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        estimator, scores = self.estimator, super()._scores(features)
        if estimator.warm_up_rounds is None:
            return scores
        rows = estimator.grouped(features)
        square = row_dots(rows_times(rows, estimator.warm_up_V_inv), rows).reshape(scores.shape)
        is_warm_up = along(estimator.rounds < estimator.warm_up_rounds, scores)
        return torch.where(is_warm_up, sqrt(at_least(square, 1e-38)), scores)
