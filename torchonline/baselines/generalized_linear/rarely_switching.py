"""Rarely switching GLB: statistics of each round, decisions that seldom change."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.core.checks import finite_number
from torchonline.core.ops import (
    along,
    assign_,
    at_least,
    dot,
    increase_,
    log,
    matvec,
    row_dots,
    rows_times,
    sqrt,
    where,
)
from torchonline.links import Link
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.glm.base import GLMOptions
from torchonline.regression.glm.local import LocalGLMRegression


class RarelySwitchingRegression(LocalGLMRegression):
    r"""LocalGLMRegression with a rarely renewed copy of its statistics for decisions.

    The estimator learns from every round. After a round, if :math:`\det V > \text{growth}\cdot\det V_\tau`, the copy is renewed:
    :math:`\theta_\tau, V_\tau, \beta_\tau \leftarrow \hat\theta, V, \text{radius}`. :class:`RarelySwitchingGLB` decides by the
    copy. ``forward``, ``width``, ``radius`` and ``interval`` use the newest statistics.

    Guarantee. Under the conditions of :class:`~torchonline.LocalGLMRegression`, with probability at least 1 - ``delta``, for all
    rounds and all x at once, :math:`|x^\top(\theta_\tau - \theta^*)| \le \beta_\tau\|x\|_{V_\tau^{-1}}`, since the confidence
    sets of all rounds hold at once. Since no eigenvalue of :math:`V_\tau^{-1}V` is above the growth, :math:`\|x\|_{V_\tau^{-1}}
    \le \sqrt{\text{growth}}\,\|x\|_{V^{-1}}`. Up to any round the copy is renewed at most :math:`\log(\det V/\lambda^d) /
    \log(\text{growth})` times, at most :math:`d\log(1 + tCL^2/(d\lambda g)) / \log(\text{growth})` after t rounds with slopes of
    at most C. The scores depend only on the rounds before the last renewal, so arms may be computed in advance.

    Cost of a round: as for :class:`~torchonline.LocalGLMRegression`, and O(d^2) more. Three d x d matrices (four in float32).

    Args:
        dim, link, theta_bound, feature_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.LocalGLMRegression`.
        growth: factor of the determinant, above 1; the literature uses 2.

    Shape:
        - ``decision_theta``, :math:`\theta_\tau`, ``(*B, d)``; ``decision_V_inv``, :math:`V_\tau^{-1}`, ``(*B, d, d)``;
          ``decision_radius``, :math:`\beta_\tau` before ``radius_scale``, ``log_growth``, :math:`\log(\det V/\det V_\tau)`,
          and ``switches``, how often the copy was renewed, ``(*B)``; the others as in
          :class:`~torchonline.LocalGLMRegression`.

    Example:
        >>> learner = RarelySwitchingRegression(2, theta_bound=3.0)
        >>> learner.step(torch.tensor([0.6, 0.8]).expand(1000, 2), torch.tensor([1.0, 0.0]).repeat(500))
        >>> int(learner.switches)
        8

    Reference:
        Abbasi-Yadkori, Pal and Szepesvari, Improved Algorithms for Linear Stochastic Bandits, NIPS 2011, section 5.1, for the
        rule, recalled. Zhang, Xu, Zhao and Sugiyama, Generalized Linear Bandits: Almost Optimal Regret with One-Pass Update,
        2025, name it for generalized linear bandits. What differs: the estimator learns in all rounds, not only when the copy is
        renewed.
    """

    statistics_depend_on = (*LocalGLMRegression.statistics_depend_on, "growth")
    positive_definite = (*LocalGLMRegression.positive_definite, "decision_V_inv")
    decision_theta: Tensor
    decision_V_inv: Tensor
    decision_radius: Tensor
    log_growth: Tensor
    switches: Tensor

    def __init__(
        self, dim: int, *, link: Link | None = None, growth: float = 2.0, **options: Unpack[GLMOptions]
    ) -> None:
        # Set before the base class creates the buffers.
        self.growth = finite_number("growth", growth)
        if not self.growth > 1.0:
            raise ValueError(f"growth: expected a number above 1, got {growth}")
        self.log_limit = math.log(self.growth)
        super().__init__(dim, link=link, **options)

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, zero = super()._initial_state(), torch.zeros((), dtype=torch.float64)
        return state | {
            "decision_theta": state["theta_hat"],
            "decision_V_inv": state["V_inv"],
            "decision_radius": zero + math.sqrt(self._squared_start(self.theta_bound)),
            "log_growth": zero,
            "switches": torch.zeros((), dtype=torch.int64),
        }

    def _learn_round(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        # A copy, because x may be a view of a buffer that the round changes.
        row = 1.0 * x
        # det V grows by the factor by which the squared width of x shrinks.
        before = at_least(dot(row, matvec(self.V_inv, row)), 1e-30)
        self._observe(x, reward, noise_scale)
        after = at_least(dot(row, matvec(self.V_inv, row)), 1e-30)
        increase_(self.log_growth, at_least(log(before / after), 0.0))
        due = self.log_growth > self.log_limit
        radius = sqrt(at_least(self.squared_radius, 0.0))
        theta, matrix = self.decision_theta, self.decision_V_inv
        assign_(theta, where(along(due, theta), self.theta_hat, theta))
        assign_(matrix, where(along(due, matrix), self.V_inv, matrix))
        assign_(self.decision_radius, where(due, radius, self.decision_radius))
        assign_(self.switches, where(due, self.switches + 1, self.switches))
        assign_(self.log_growth, where(due, 0.0 * self.log_growth, self.log_growth))

    def warm_start(self, theta: Tensor, distance: float | None = None) -> None:
        with self._lock, torch.no_grad():
            super().warm_start(theta, distance)
            self.decision_theta.copy_(self.theta_hat)
            self.decision_radius.copy_(self.squared_radius.clamp(min=0.0).sqrt())


class RarelySwitchingGLB(UCB[RarelySwitchingRegression]):
    r"""Optimism over the copy in :class:`RarelySwitchingRegression`.

    .. math:: \text{score}_k = x_k^\top\theta_\tau + \text{radius\_scale}\cdot\beta_\tau\,\|x_k\|_{V_\tau^{-1}}

    The guarantee is the estimator's. The scores of an arm change only when the copy is renewed. No regret bound is proved, as for
    :class:`~torchonline.LocalGLB`; widths are at most :math:`\sqrt{\text{growth}}` times as large as with the newest statistics.

    Args:
        dim, link, growth, theta_bound, feature_bound, ridge, delta, radius_scale: as in :class:`RarelySwitchingRegression`.
        batch_shape, dtype, device, validate: as in :class:`RarelySwitchingRegression`.

    Example:
        >>> RarelySwitchingGLB(2).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(RarelySwitchingRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(RarelySwitchingRegression(*arguments, **options))

    def _scores(self, features: Tensor) -> Tensor:
        """Return the scores of the copy: ``(*B, ..., K, d)`` to ``(*B, ..., K)``."""
        estimator = self.estimator
        x = features.to(estimator.theta_hat.dtype)
        rows = estimator.grouped(x)
        predictor = rows_times(rows, estimator.decision_theta.unsqueeze(-1)).reshape(x.shape[:-1])
        square = row_dots(rows_times(rows, estimator.decision_V_inv), rows).reshape(x.shape[:-1])
        radius = estimator.radius_scale * estimator.decision_radius
        return predictor + along(radius, predictor) * sqrt(at_least(square, 1e-38))
