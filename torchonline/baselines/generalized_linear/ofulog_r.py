"""OFULog-r: a level set of the penalised logistic loss (Abeille et al., 2021)."""

import math
import warnings
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.baselines.generalized_linear.likelihood import HistoryOptions, LevelSetEstimator, LevelSetUCB, Member
from torchonline.baselines.generalized_linear.solvers import minimise
from torchonline.core.checks import one_of
from torchonline.core.ops import dot, minimum, sqrt
from torchonline.policies.rules import takes_arguments_of


class OFULogRRegression(LevelSetEstimator):
    r"""Penalised logistic regression on all rounds, with a level set of the loss.

    After t rounds, with :math:`\lambda_t = d\log(2+t)` or a fixed ``ridge``, and :math:`w_s = 1/\nu_s^2` for the round's
    ``noise_scale`` :math:`\nu_s`:

    .. math:: L(\theta) &= \tfrac{\lambda_t}2\|\theta\|^2
              + \sum_{s\le t}w_s\bigl(m(x_s^\top\theta) - r_sx_s^\top\theta\bigr), \qquad \hat\theta = \arg\min L(\theta) \\
              C &= \{\|\theta\|\le S,\ L(\theta) - L(\hat\theta) \le b^2\},

    with no bound on :math:`\hat\theta`. With :math:`B = \sqrt{\lambda_t}/(2L)` and :math:`\chi^2_d` the distribution function of
    d degrees of freedom,

    .. math:: \iota &= \log\tfrac1\delta + \tfrac12\log\det\Bigl(I + \tfrac1{4\lambda_t}\sum_{s\le t}w_sx_sx_s^\top\Bigr)
              + \log\frac{\chi^2_d(2\lambda_t/L^2)}{\chi^2_d(\lambda_t/(2L^2))} \\
              \gamma &= \sqrt{\lambda_t}S + \min_{0<\beta\le B}(\beta + \iota/\beta), \qquad
              b^2 = (1+D)\gamma^2, \quad D = \min\bigl(Lb/\sqrt{\lambda_t},\ L(S + \|\hat\theta\|)\bigr).

    :meth:`upper_bound` is the largest :math:`x^\top\theta` in C; ``radius``, ``width`` and ``interval`` are those of the
    ellipsoid :math:`\|\theta-\hat\theta\|_V \le b\sqrt{1+D}`, for V the Hessian of the loss at its minimum.

    With ``constants="program"``, b is that of the authors' program, which has L = 1. **It is a heuristic**, and the constructor
    warns:

    .. math:: \iota = \log\tfrac1\delta + \tfrac12\log\det(V/\lambda_t)
              + \log\frac{\chi^2_d(2\lambda_t/L^2)}{\chi^2_d(\lambda_t/L^2)}, \qquad
              \gamma = \sqrt{\lambda_t}S
              + \min\Bigl(\iota, \frac{\sqrt{\lambda_t}}{2L} + \frac{2L\iota}{\sqrt{\lambda_t}}\Bigr), \qquad
              b = \gamma + \frac{L^2\gamma^2}{\lambda_t}.

    Guarantee of the default constants. If rewards are in [0, 1] with the logistic mean, or averages of n such with a
    ``noise_scale`` of :math:`1/\sqrt n`, and :math:`\|\theta^*\| \le S`, then with probability at least 1 - ``delta``,
    :math:`\theta^*` is in C and in the ellipsoid: in all rounds at once for a fixed ``ridge``, and in each single round for the
    default. A ``noise_scale`` above 1 does no harm. Proof: docs/generalized_linear_theory.md.

    Cost of round t: about three passes over all rounds, O(t d^2) each. Memory O(T d), and O(t d^2) during :meth:`upper_bound`.

    Args:
        dim, theta_bound, feature_bound, delta, batch_shape, dtype, device, validate: as in
            :class:`~torchonline.regression.glm.base.GeneralizedEstimator`.
        horizon: T, number of rounds that the history has room for.
        ridge: :math:`\lambda > 0`, the same in all rounds; None or "growing" for the paper's growing ridge, as in its authors'
            program.
        constants: "theory", or "program" for the radius of the authors' program.
        radius_scale: multiplies b and the radius; other than 1 it is a heuristic.

    Shape:
        - as of :class:`~torchonline.baselines.generalized_linear.likelihood.LikelihoodEstimator`; ``logdet``, the
          logarithm of the determinant in :math:`\iota`, and ``root_level``, b, ``(*B)``.

    Example:
        >>> learner = OFULogRRegression(2, horizon=100)
        >>> learner.step(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1.0, 0.0]))
        >>> learner.theta_hat
        tensor([ 0.1655, -0.1655], dtype=torch.float64)

    Reference:
        Abeille, Faury and Calauzenes, Instance-Wise Minimax-Optimal Algorithms for Logistic Bandits, AISTATS 2021
        (arXiv:2010.12642). The form of the radius is from their program (louisfaury/logistic_bandit, ofulogr.py), where the
        constants of "program" were checked. What differs by default, because the proof needs it: the determinant of the steepest
        slopes, :math:`\beta`, the second :math:`\chi^2`, and b. What differs from the program in either case: the program gives
        each arm at most 20 evaluations of a solver that starts at the estimate, so that its scores end far below the maxima.
    """

    statistics_depend_on = ("horizon", "theta_bound", "feature_bound", "ridge", "grows", "delta")
    later_options = {"is_program": False}
    grows_by_default = True
    renamed = {"information": "logdet"}
    logdet: Tensor
    root_level: Tensor

    def __init__(self, dim: int, *, horizon: int, constants: str = "theory", **options: Unpack[HistoryOptions]) -> None:
        super().__init__(dim, horizon, None, **options)  # the logistic link only
        self.is_program = one_of("constants", constants, ("theory", "program")) == "program"
        if self.is_program:
            warnings.warn(
                "constants: 'program' has the authors' constants; the radius is a heuristic here", stacklevel=2
            )
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zero = torch.zeros((), dtype=torch.float64)
        return super()._initial_state() | {"logdet": zero, "root_level": zero + self._root_level(self.ridge, 0.0, 0.0)}

    def _root_level(self, ridge: float, logdet: float, length: float) -> float:
        """Return b for an estimate of norm ``length``."""
        L, root = self.feature_bound, math.sqrt(ridge)
        # A chi-squared law is a gamma law.
        half = torch.tensor(0.5 * self.dim, dtype=torch.float64, device="cpu")
        second = 0.5 if self.is_program else 0.25
        ends = torch.tensor([1.0, second], dtype=torch.float64, device="cpu") * ridge / L**2
        wide, narrow = torch.special.gammainc(half, ends).tolist()
        if narrow == 0.0:  # underflow
            return math.inf
        cost = 0.5 * logdet + math.log(wide / narrow) - math.log(self.delta)
        if self.is_program:
            gamma = root * self.theta_bound + min(cost, 0.5 * root / L + 2.0 * L * cost / root)
            return gamma + L**2 * gamma**2 / ridge
        beta = min(math.sqrt(cost), 0.5 * root / L)
        gamma = root * self.theta_bound + beta + cost / beta
        a = L * gamma**2 / root
        farthest = L * (self.theta_bound + length)
        return min(0.5 * (a + math.sqrt(a**2 + 4.0 * gamma**2)), gamma * math.sqrt(1.0 + farthest))

    def level(self) -> Tensor:
        return (self.radius_scale * self.root_level) ** 2

    def radius(self) -> Tensor:
        by_ridge, by_ball = self.root_level / sqrt(self.ridge_now()), sqrt(dot(self.theta_hat, self.theta_hat))
        stretch = 1.0 + self.feature_bound * minimum(by_ridge, by_ball + self.theta_bound)
        return self.radius_scale * self.root_level * sqrt(stretch)

    def _penalty(self, member: Member) -> float:
        return self._ridge_of(member)

    def _fit(self, member: Member) -> None:
        ridge = self._penalty(member)
        loss = self._loss(member, ridge)
        theta = minimise(loss, self._read("theta_hat", member), math.inf)
        hessian = loss.hessian(loss.predictors(theta))
        gram = (loss.rows.T * (0.25 / ridge * loss.weights)) @ loss.rows
        within = hessian / ridge if self.is_program else gram + np.eye(self.dim)
        logdet = float(np.linalg.slogdet(within)[1])
        self._write("theta_hat", member, theta)
        self._write("logdet", member, logdet)
        self._write("root_level", member, self._root_level(ridge, logdet, float(np.linalg.norm(theta))))
        self._write_with_inverse("V", member, hessian, ridge)


class OFULogR(LevelSetUCB):
    r"""OFULog-r: optimism over the exact confidence set of :class:`OFULogRRegression`.

    The guarantee is the estimator's.

    Args:
        dim, horizon, constants, theta_bound, feature_bound, ridge, delta, radius_scale: as in :class:`OFULogRRegression`.
        batch_shape, dtype, device, validate: as in :class:`OFULogRRegression`.

    Example:
        >>> OFULogR(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    if TYPE_CHECKING:  # TorchScript knows no such annotation
        estimator: OFULogRRegression

    @takes_arguments_of(OFULogRRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(OFULogRRegression(*arguments, **options))
