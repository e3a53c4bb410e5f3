"""RS-GLinCB: a warm-up by need, rare fits, and arms that are ruled out (Sawarni, Das, Barman and Sinha, NeurIPS 2024)."""

import math

import numpy as np
import torch
from torch import Tensor

from torchonline.bandits.glm.base import checked_link, checked_min_slope
from torchonline.bandits.policies import UCB
from torchonline.baselines.generalized_linear.likelihood import LikelihoodEstimator
from torchonline.baselines.generalized_linear.solvers import minimise
from torchonline.core.backend import autocasts, exactly, is_readable
from torchonline.core.checks import check_values, positive, positive_integer, within
from torchonline.core.inputs import check_mask
from torchonline.core.ops import (
    along,
    at_least,
    row_dots,
    rows_times,
    sqrt,
)
from torchonline.links import Link


class RSGLinCBRegression(LikelihoodEstimator):
    r"""Two maximum likelihood estimates, one of warm-up rounds and one of the others that is rarely fitted, as in RS-GLinCB.

    With :math:`\ell = d\log(T/\delta)`, :math:`\lambda = \ell L^2`, :math:`\kappa = 1/\min\mu'` over :math:`|z| \le SL`, R with
    :math:`|\mu''| \le R\mu'` there, :math:`\gamma = 25RSL\sqrt\ell` and :math:`w = 1/\nu^2` for the round's ``noise_scale``
    :math:`\nu`, a round is one of warm-up where :math:`\|x\|^2_{V_o^{-1}} \ge 1/(\gamma^2\kappa R^2)`. Then

    .. math:: V_o \leftarrow V_o + wxx^\top, \qquad \hat\theta_o = \arg\min_{\|\theta\|\le S} \tfrac\lambda2\|\theta\|^2 +
              \sum_{s\text{ of warm-up}} w_s\bigl(m(x_s^\top\theta) - r_sx_s^\top\theta\bigr);

    and otherwise :math:`H \leftarrow H + \tfrac we\mu'(x^\top\hat\theta_o)xx^\top`, and where that makes
    :math:`\det H > 2\det V`, :math:`V \leftarrow H` and :math:`\hat\theta` is the same minimum for the rounds that are not of
    warm-up. All three matrices start from :math:`\lambda I`. ``radius`` is :math:`150\sqrt\ell` and widths are
    :math:`\|x\|_{V^{-1}}`.

    Guarantee: none that we can vouch for. The rules and the constants (25 = ``warm_up_factor``, 150 = ``radius_factor``) are
    recalled, and are those of programs by others; the paper's theorems ask for bounded rewards of a canonical link. **With these
    constants all of a usual horizon is warm-up:** for S = 3 and T = 3000, :math:`\|x\|^2_{V_o^{-1}}` has to fall below
    3e-7. The paper's own experiments, by their program, take far smaller ones.

    Cost of round t: some three passes over all rounds in warm-up, O(t d^2) each, and in the rare rounds that fit; O(d^3) in
    the others. Memory O(T d).

    Raises, from ``step`` besides what the contract says: ValueError after ``horizon`` rounds, when the history of a learner is
    full. A UserWarning says so should Newton's method end short of the minimum.

    Args:
        dim: d, number of features.
        horizon: T, number of rounds that the constants and the history are for.
        link: how the mean depends on the predictor; None for :class:`~torchonline.links.Logistic`.
        theta_bound: S > 0, a bound on the norm of the true parameter.
        feature_bound: L > 0, a bound on the norm of features; longer ones are refused.
        ridge: :math:`\lambda > 0`; None for :math:`\ell L^2`.
        delta: in (0, 1).
        warm_up_factor: 25 in :math:`\gamma`, recalled.
        radius_factor: 150 in the radius, recalled.
        radius_scale: multiplies the radius.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``theta_hat`` and ``warm_theta``, :math:`\hat\theta_o`, ``(*B, d)``; ``V``, ``V_inv``, ``H``, ``warm_V``,
          :math:`V_o`, and ``warm_V_inv``, ``(*B, d, d)``; ``rounds`` and ``fits``, how often :math:`\hat\theta` has been fitted,
          ``(*B)``; ``history``, ``(*B, T, d)``; ``history_reward``, ``history_weight`` and ``is_warm``, ``(*B, T)``.

    Example:
        >>> learner = RSGLinCBRegression(2, horizon=100, ridge=1.0, warm_up_factor=0.358)
        >>> learner.step(torch.tensor([1.0, 0.0]).expand(60, 2), torch.tensor([1.0, 0.0, 1.0]).repeat(20))
        >>> int(learner.fits), int(learner.is_warm.sum())
        (2, 12)

    Reference:
        Sawarni, Das, Barman and Sinha, Generalized Linear Bandits with Limited Adaptivity, NeurIPS 2024 (arXiv:2404.06831).
        What differs: minima are over the ball, where the paper projects unbounded ones; and the fit that is due in a round is
        made at the end of the one before, from the same rounds.
    """

    statistics_depend_on = (
        "horizon",
        "theta_bound",
        "feature_bound",
        "ridge",
        "delta",
        "warm_up_factor",
    )

    warm_theta: Tensor
    warm_V: Tensor
    warm_V_inv: Tensor
    H: Tensor
    is_warm: Tensor
    fits: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        link: Link | None = None,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        warm_up_factor: float = 25.0,
        radius_factor: float = 150.0,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        link, bound = checked_link(link, theta_bound, feature_bound)
        length, delta = positive_integer("horizon", horizon), within("delta", delta, 0.0, 1.0)
        logarithm = positive_integer("dim", dim) * math.log(length / delta)
        super().__init__(
            dim,
            link=link,
            theta_bound=theta_bound,
            feature_bound=feature_bound,
            ridge=logarithm * float(feature_bound) ** 2 if ridge is None else ridge,
            delta=delta,
            radius_scale=radius_scale,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self._keep(horizon)
        self.warm_up_factor = positive("warm_up_factor", warm_up_factor)
        self.radius_factor = positive("radius_factor", radius_factor)
        kappa, R = 1.0 / checked_min_slope(link, theta_bound, bound), self.concordance
        gamma = self.warm_up_factor * R * bound * math.sqrt(logarithm)
        # A linear model, which has R = 0, needs no warm-up.
        self.warm_up_from = 1.0 / (gamma**2 * kappa * R**2) if R > 0.0 else math.inf
        self.warm_radius = gamma * math.sqrt(kappa)
        self.constant_radius = self.radius_factor * math.sqrt(logarithm)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = super()._initial_state()
        return state | {
            "warm_theta": state["theta_hat"],
            "warm_V": state["V"],
            "warm_V_inv": state["V_inv"],
            "H": state["V"],
            "is_warm": torch.zeros(self.horizon, dtype=torch.bool),
            "fits": torch.zeros((), dtype=torch.int64),
        }

    @torch.jit.export
    def radius(self) -> Tensor:
        return self.radius_scale * self.constant_radius + 0.0 * self.V[..., 0, 0]

    def _fit(self, member: int) -> None:
        loss = self._loss(member, self.ridge)
        x, weight = loss.rows[-1], loss.weights[-1]
        n, warm_theta = len(loss.rows), self._read("warm_theta", member)
        if x @ self._read("warm_V_inv", member) @ x >= self.warm_up_from:
            matrix = self._read("warm_V", member) + weight * np.outer(x, x)
            self._write("is_warm", member, True, n - 1)
            loss = self._loss(member, self.ridge, self._read("is_warm", member, n) > 0.0)
            self._write("warm_theta", member, minimise(loss, warm_theta, self.theta_bound))
            self._write_with_inverse("warm_V", member, matrix, self.ridge)
            return
        slope = float(loss.link.slope(x @ warm_theta))
        matrix = self._read("H", member) + weight * slope / math.e * np.outer(x, x)
        self._write("H", member, matrix)
        if np.linalg.slogdet(matrix)[1] > math.log(2.0) + np.linalg.slogdet(self._read("V", member))[1]:
            loss = self._loss(member, self.ridge, self._read("is_warm", member, n) == 0.0)
            self._write("theta_hat", member, minimise(loss, self._read("theta_hat", member), self.theta_bound))
            self._write_with_inverse("V", member, matrix, self.ridge)
            self._write("fits", member, self._read("fits", member) + 1.0)


class RSGLinCB(UCB):
    r"""RS-GLinCB: over :class:`RSGLinCBRegression`.

    Where an arm of the decision has :math:`\|x\|^2_{V_o^{-1}} \ge 1/(\gamma^2\kappa R^2)`, the scores are
    :math:`\|x_k\|_{V_o^{-1}}`, of which the highest is played as warm-up. Where none has,

    .. math:: \text{score}_k = x_k^\top\hat\theta + \text{radius}\cdot\|x_k\|_{V^{-1}}, \text{ but } -\infty \text{ where }
              x_k^\top\hat\theta_o + \gamma\sqrt\kappa\|x_k\|_{V_o^{-1}}
              < \max_j\bigl(x_j^\top\hat\theta_o - \gamma\sqrt\kappa\|x_j\|_{V_o^{-1}}\bigr),

    the arms that the warm-up has ruled out. The arguments, what is known of them and the cost are the estimator's.

    Example:
        >>> policy = RSGLinCB(2, horizon=1000)
        >>> arms = torch.eye(2)
        >>> choice = policy.select(arms)
        >>> policy.step(arms[choice], torch.tensor(1.0))
        >>> int(policy.estimator.rounds)
        1
    """

    estimator: RSGLinCBRegression

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        link: Link | None = None,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        warm_up_factor: float = 25.0,
        radius_factor: float = 150.0,
        radius_scale: float = 1.0,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            RSGLinCBRegression(
                dim,
                horizon=horizon,
                link=link,
                theta_bound=theta_bound,
                feature_bound=feature_bound,
                ridge=ridge,
                delta=delta,
                warm_up_factor=warm_up_factor,
                radius_factor=radius_factor,
                radius_scale=radius_scale,
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
                validate=validate,
            )
        )

    def forward(self, arms: Tensor) -> Tensor:
        """Scores, as above: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        if autocasts(arms):
            with exactly(arms):
                return self.forward(arms)
        estimator = self.estimator
        scores = super().forward(arms)
        rows = estimator.grouped(arms.to(scores.dtype))
        square = row_dots(rows_times(rows, estimator.warm_V_inv), rows).reshape(scores.shape)
        width = sqrt(at_least(square, 1e-38))
        centre = rows_times(rows, estimator.warm_theta.unsqueeze(-1)).reshape(scores.shape)
        error = estimator.warm_radius * width
        is_ruled_out = centre + error < (centre - error).amax(-1, keepdim=True)
        is_warm_up = (square >= estimator.warm_up_from).any(-1, keepdim=True)
        return torch.where(is_warm_up, width, scores.masked_fill(is_ruled_out, -math.inf))

    def select(self, arms: Tensor, mask: Tensor | None = None) -> Tensor:
        """:meth:`Policy.select`, in which an arm that is not available starts no warm-up and rules out no other."""
        if mask is not None:
            arms = self._checked_arms(self.estimator, arms)
            mask = check_mask("mask", mask, arms.shape[:-1], arms, self.estimator.validate)
            if self.estimator.validate and is_readable(arms):
                check_values("arms", arms)
            # In its place is the first one that is.
            first = along(mask.to(torch.int64).argmax(-1), arms).expand_as(arms[..., :1, :])
            arms = torch.where(mask.unsqueeze(-1), arms, arms.gather(-2, first))
        return super().select(arms, mask)
