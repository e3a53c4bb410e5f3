"""RS-GLinCB: warm-up rounds, rare fits, eliminated arms (Sawarni et al., 2024)."""

import math
import warnings
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.baselines.generalized_linear.likelihood import LikelihoodEstimator, Member
from torchonline.baselines.generalized_linear.solvers import minimise
from torchonline.core.checks import one_of, positive
from torchonline.core.ops import along, at_least, row_dots, rows_times, sqrt
from torchonline.links import Link
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.glm.base import GLMOptions, checked_min_slope


class RSGLinCBRegression(LikelihoodEstimator):
    r"""Two likelihood fits: of the warm-up rounds and, rarely, of the others.

    With :math:`\ell = d\log(T/\delta)`, :math:`\lambda = \ell L^2`, :math:`\kappa = 1/\min\mu'` over :math:`|z| \le SL`, R with
    :math:`|\mu''| \le R\mu'` there, :math:`\gamma = 25RSL\sqrt\ell` and :math:`w = 1/\nu^2` for the round's ``noise_scale``
    :math:`\nu`, a round is a warm-up round if :math:`\|x\|^2_{V_o^{-1}} \ge 1/(\gamma^2\kappa R^2)`. Then

    .. math:: V_o \leftarrow V_o + wxx^\top, \qquad \hat\theta_o = \arg\min_{\|\theta\|\le S} \tfrac\lambda2\|\theta\|^2 +
              \sum_{s\text{ of warm-up}} w_s\bigl(m(x_s^\top\theta) - r_sx_s^\top\theta\bigr).

    In all other rounds :math:`H \leftarrow H + \tfrac we\mu'(x^\top\hat\theta_o)xx^\top`. If this makes :math:`\det H > 2\det V`,
    then :math:`V \leftarrow H`, and :math:`\hat\theta` becomes the same minimum for the rounds that are not warm-up rounds. All
    three matrices start from :math:`\lambda I`. ``radius`` is :math:`150\sqrt\ell` and widths are :math:`\|x\|_{V^{-1}}`.

    Guarantee: none that we can vouch for. The rules and the constants are recalled, and agree with programs by others. The
    paper's theorems assume bounded rewards of a canonical link. **With these constants, all rounds of a usual horizon are warm-up
    rounds:** for S = 3 and T = 3000, :math:`\|x\|^2_{V_o^{-1}}` has to fall below 3e-7.

    ``constants="program"`` follows the program of the paper's experiments. **It is a heuristic**, and the constructor warns. In
    the program, with L = 1: :math:`\lambda = L^2/2`; :math:`\gamma = RSL\sqrt\ell`; a warm-up round has
    :math:`\|x\|^2_{V_o^{-1}} > 100/(\kappa R^4S^2L^2d)`; V becomes H when :math:`\det H \ge 1.5\det V`; H grows by
    :math:`w\mu'(x^\top\hat\theta_o)xx^\top`, without e; :math:`\hat\theta` is fitted to all rounds, including the warm-up, and is
    :math:`\hat\theta_o` until there are others; the policy scores arms at :math:`(\hat\theta_o + \hat\theta)/2`; and ``radius``
    is :math:`4\sqrt\ell`.

    Cost of round t: about three passes over all rounds, O(t d^2) each, in a warm-up round and in the rare rounds that fit; O(d^3)
    in the others. Memory O(T d).

    Args:
        dim, link, theta_bound, feature_bound, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        horizon: T, number of rounds that the constants and the history are for.
        ridge: :math:`\lambda > 0`; None for the value above, by ``constants``.
        constants: "theory", or "program" for the constants of the paper's experiments.
        warm_up_factor: factor of :math:`\gamma`, whose square is in the bound for warm-up rounds; None for 25 in theory,
            recalled, and for 1 in the program.
        radius_factor: factor of the radius; None for 150 in theory, recalled, and for 4 in the program.

    Shape:
        - as of :class:`~torchonline.baselines.generalized_linear.likelihood.LikelihoodEstimator`; ``warm_up_theta``,
          :math:`\hat\theta_o`, ``(*B, d)``; ``next_V``, which is H, ``warm_up_V``, :math:`V_o`, and ``warm_up_V_inv``,
          ``(*B, d, d)``; ``fits``, how often :math:`\hat\theta` has been fitted, ``(*B)``; ``is_warm_up``, ``(*B, T)``.

    Example:
        >>> learner = RSGLinCBRegression(2, horizon=100, ridge=1.0, warm_up_factor=0.358)
        >>> learner.step(torch.tensor([1.0, 0.0]).expand(60, 2), torch.tensor([1.0, 0.0, 1.0]).repeat(20))
        >>> int(learner.fits), int(learner.is_warm_up.sum())
        (2, 12)

    Reference:
        Sawarni, Das, Barman and Sinha, Generalized Linear Bandits with Limited Adaptivity, NeurIPS 2024 (arXiv:2404.06831).
        What differs: minima are over the ball; the paper projects unbounded minima. A fit that is due in a round happens at the
        end of the round before, from the same rounds. The constants of "program" were checked in the authors' repository
        (nirjhar-das/GLBandit_Limited_Adaptivity, rs_glinucb.py). What differs from that program: there, V is the same array as H
        after the first fit, so that it grows in each round and no second fit ever happens; minima are unbounded; and
        :math:`\kappa` is that of the true parameter at the arms.
    """

    statistics_depend_on = ("horizon", "theta_bound", "feature_bound", "ridge", "delta", "warm_up_factor")
    later_options = {"is_program": False}
    can_grow = False
    renamed = {"warm_theta": "warm_up_theta", "warm_V": "warm_up_V", "warm_V_inv": "warm_up_V_inv"}
    renamed |= {"H": "next_V", "is_warm": "is_warm_up"}
    positive_definite = ("V", "V_inv", "next_V", "warm_up_V", "warm_up_V_inv")
    inverses = (("V", "V_inv"), ("warm_up_V", "warm_up_V_inv"))
    warm_up_theta: Tensor
    warm_up_V: Tensor
    warm_up_V_inv: Tensor
    next_V: Tensor
    is_warm_up: Tensor
    fits: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        link: Link | None = None,
        constants: str = "theory",
        warm_up_factor: float | None = None,
        radius_factor: float | None = None,
        **options: Unpack[GLMOptions],
    ) -> None:
        self.is_program = one_of("constants", constants, ("theory", "program")) == "program"
        super().__init__(dim, horizon, link, **options)
        if self.is_program:
            text = "constants: 'program' has the constants of the paper's experiments; the warm-up and the radius are heuristics"
            warnings.warn(text, stacklevel=2)
        logarithm, bound = self.dim * math.log(self.horizon / self.delta), self.predictor_bound
        usual = (1.0, 4.0) if self.is_program else (25.0, 150.0)
        self.warm_up_factor = positive("warm_up_factor", usual[0] if warm_up_factor is None else warm_up_factor)
        self.radius_factor = positive("radius_factor", usual[1] if radius_factor is None else radius_factor)
        kappa, R = 1.0 / checked_min_slope(self.link, self.theta_bound, bound), self.concordance
        gamma = self.warm_up_factor * R * bound * math.sqrt(logarithm)
        # A linear model has R = 0 and needs no warm-up.
        # The program has 0.01 d instead of ell.
        square = 0.01 * self.dim * (gamma**2 / logarithm) if self.is_program else gamma**2
        self.warm_up_from = 1.0 / (square * kappa * R**2) if R > 0.0 else math.inf
        self.switch_factor, self.share = (1.5, 1.0) if self.is_program else (2.0, 1.0 / math.e)
        self.warm_up_radius = gamma * math.sqrt(kappa)
        self.constant_radius = self.radius_factor * math.sqrt(logarithm)
        self._create_buffers()

    def _usual_ridge(self) -> float:
        if self.is_program:
            return 0.5 * self.feature_bound**2
        return self.dim * math.log(self.horizon / self.delta) * self.feature_bound**2

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = super()._initial_state()
        return state | {
            "warm_up_theta": state["theta_hat"],
            "warm_up_V": state["V"],
            "warm_up_V_inv": state["V_inv"],
            "next_V": state["V"],
            "is_warm_up": torch.zeros(self.horizon, dtype=torch.bool),
            "fits": torch.zeros((), dtype=torch.int64),
        }

    def radius(self) -> Tensor:
        return self.radius_scale * self.constant_radius + 0.0 * self.V[..., 0, 0]

    def _fit(self, member: Member) -> None:
        loss = self._loss(member, self.ridge)
        x, weight, n = loss.rows[-1], loss.weights[-1], len(loss.rows)
        warm_up_theta = self._read("warm_up_theta", member)
        square = x @ self._read("warm_up_V_inv", member) @ x
        if square > self.warm_up_from if self.is_program else square >= self.warm_up_from:
            matrix = self._read("warm_up_V", member) + weight * np.outer(x, x)
            self._write("is_warm_up", (*member, n - 1), True)
            loss = self._loss(member, self.ridge, self._read("is_warm_up", member)[:n] > 0.0)
            theta = minimise(loss, warm_up_theta, self.theta_bound)
            self._write("warm_up_theta", member, theta)
            self._write_with_inverse("warm_up_V", member, matrix, self.ridge)
            if self.is_program and len(loss.rows) == n:
                self._write("theta_hat", member, theta)
            return
        slope = float(loss.link.slope(x @ warm_up_theta))
        matrix = self._read("next_V", member) + weight * slope * self.share * np.outer(x, x)
        self._write("next_V", member, matrix)
        growth = np.linalg.slogdet(matrix)[1] - np.linalg.slogdet(self._read("V", member))[1]
        limit = math.log(self.switch_factor)
        if growth >= limit if self.is_program else growth > limit:
            if not self.is_program:
                loss = self._loss(member, self.ridge, self._read("is_warm_up", member)[:n] == 0.0)
            self._write("theta_hat", member, minimise(loss, self._read("theta_hat", member), self.theta_bound))
            self._write_with_inverse("V", member, matrix, self.ridge)
            self._write("fits", member, self._read("fits", member) + 1.0)


class RSGLinCB(UCB[RSGLinCBRegression]):
    r"""RS-GLinCB: warm-up, elimination and optimism on :class:`RSGLinCBRegression`.

    If an arm of the decision has :math:`\|x\|^2_{V_o^{-1}} \ge 1/(\gamma^2\kappa R^2)`, the scores are
    :math:`\|x_k\|_{V_o^{-1}}`, and the round of the highest score is a warm-up round. Otherwise,

    .. math:: \text{score}_k = x_k^\top\hat\theta + \text{radius}\cdot\|x_k\|_{V^{-1}}, \text{ but } -\infty \text{ where }
              x_k^\top\hat\theta_o + \gamma\sqrt\kappa\|x_k\|_{V_o^{-1}}
              < \max_j\bigl(x_j^\top\hat\theta_o - \gamma\sqrt\kappa\|x_j\|_{V_o^{-1}}\bigr),

    for the arms that the warm-up has ruled out. ``constants="program"`` has :math:`(\hat\theta_o+\hat\theta)/2` instead of
    :math:`\hat\theta` in the scores, and the program's bound for a warm-up. An unavailable arm starts no warm-up and rules out no
    other arm. The estimator documents the status of its constants and the cost.

    Args:
        dim, horizon, link, constants, warm_up_factor, radius_factor, theta_bound: as in :class:`RSGLinCBRegression`.
        feature_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in :class:`RSGLinCBRegression`.

    Example:
        >>> RSGLinCB(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(RSGLinCBRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(RSGLinCBRegression(*arguments, **options))

    def _scores(self, features: Tensor) -> Tensor:
        """Return the scores: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        estimator = self.estimator
        scores = super()._scores(features)
        rows = estimator.grouped(features)
        if estimator.is_program:
            other = rows_times(rows, 0.5 * (estimator.warm_up_theta - estimator.theta_hat).unsqueeze(-1))
            scores = scores + other.reshape(scores.shape)
        square = row_dots(rows_times(rows, estimator.warm_up_V_inv), rows).reshape(scores.shape)
        width = sqrt(at_least(square, 1e-38))
        centre = rows_times(rows, estimator.warm_up_theta.unsqueeze(-1)).reshape(scores.shape)
        error = estimator.warm_up_radius * width
        is_ruled_out = centre + error < (centre - error).amax(-1, keepdim=True)
        bound = estimator.warm_up_from
        is_warm_up = (square > bound if estimator.is_program else square >= bound).any(-1, keepdim=True)
        return torch.where(is_warm_up, width, scores.masked_fill(is_ruled_out, -math.inf))

    def _to_score(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return x
        # The first available arm replaces each unavailable arm.
        first = along(mask.to(torch.int64).argmax(-1), x).expand_as(x[..., :1, :])
        return torch.where(mask.unsqueeze(-1), x, x.gather(-2, first))
