"""MENU: median of means under a designed allocation (Shao et al., NeurIPS 2018)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.baselines.heavy_tailed.base import EpochEstimator, HorizonOptions
from torchonline.core.checks import positive
from torchonline.core.ops import dot, matmul, matvec
from torchonline.core.precision_matrix import add_outer_
from torchonline.policies.rules import UCB, takes_arguments_of


class MENURegression(EpochEstimator):
    r"""Ridge regression of least median distance to others (:class:`EpochEstimator`).

    At the end of an epoch of the arm x, the j-th of its ``repeats`` = k rewards goes to the j-th regression,
    :math:`\hat\theta_j`. All regressions share V:

    .. math:: V \leftarrow V + xx^\top,\qquad
              \hat\theta_j \leftarrow \hat\theta_j + V^{-1}x\,(r_j - x^\top\hat\theta_j),\qquad
              \hat\theta = \hat\theta_{j^*},\quad j^* = \arg\min_j\,\text{median}_s\,\|\hat\theta_j-\hat\theta_s\|_V,

    where the median, over all s, is the lower of the two middle values if k is even. With p =
    ``moment_order`` :math:`= 1+\varepsilon`, the radius after n >= 1 epochs is
    :math:`c\,\bigl((m\,d)^{1/p}\,\nu\,n^{(1-\varepsilon)/(2(1+\varepsilon))} + \sqrt\lambda S\bigr)`, and :math:`c\sqrt\lambda S`
    before.

    Guarantee, recalled: the confidence set holds with probability 1 - ``delta`` for noise that is independent given the arms.
    The paper does not consider interruptions.

    Cost: O(d^2) for a round; O(d^3 + k d^2 + k^2 d) at the end of an epoch. Memory O(k d + d^2 + k^2).

    Args:
        dim, horizon, moment_order, noise_scale, theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate:
            as in :class:`HorizonEstimator`.
        repeats: k, rewards in an epoch and regressions; None for :math:`\lceil 24\log(eT/\delta)\rceil`.
        moment_factor, radius_factor: m > 0 and c > 0.

    Shape:
        - ``theta_candidates``, the estimates :math:`\hat\theta_j`, ``(*B, k, d)``.

    Example:
        >>> learner = MENURegression(2, horizon=1000, repeats=3)
        >>> for reward in (0.3, 1e9, 0.1):
        ...     learner.step(torch.tensor([1.0, 0.0]), torch.tensor(reward))
        >>> learner.theta_hat
        tensor([0.1000, 0.0000], dtype=torch.float64)

    Reference:
        Shao, Yu, King and Lyu, Almost Optimal Algorithms for Linear Stochastic Bandits with Heavy-Tailed Payoffs, NeurIPS 2018
        (arXiv:1810.10895). Not checked against its proofs. k, m, c and the radius are checked against published code for Zhong,
        Huang, Yang and Wang, Breaking the Moments Condition Barrier, NeurIPS 2021. That code uses a fiftieth of the radius and 51
        rewards per epoch.
    """

    statistics_depend_on = ("ridge", "repeats")
    renamed = EpochEstimator.renamed | {"theta_each": "theta_candidates"}
    theta_candidates: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        repeats: int | None = None,
        moment_factor: float = 9.0,
        radius_factor: float = 3.0,
        **options: Unpack[HorizonOptions],
    ) -> None:
        super().__init__(dim, horizon, **options)
        self._set_repeats(repeats, 24.0 * math.log(math.e * self.horizon / self.delta))
        self.moment_factor = positive("moment_factor", moment_factor)
        self.radius_factor = positive("radius_factor", radius_factor)
        self.slope = self.radius_factor * (self.moment_factor * dim) ** (1.0 / self.moment_order) * self.noise_scale
        self.radius_start = self.radius_factor * math.sqrt(self.ridge) * self.theta_bound
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"theta_candidates": torch.zeros(self.repeats, self.dim, dtype=torch.float64)}

    def _learn_epoch(self, x: Tensor, rewards: Tensor) -> None:
        product = matvec(self.V_inv, x)
        quadratic = dot(x, product)
        residuals = rewards - matvec(self.theta_candidates, x)
        add_outer_(self._precision(), x, product, quadratic)
        step = product / (1.0 + quadratic).unsqueeze(-1)
        self.theta_candidates += residuals.unsqueeze(-1) * step.unsqueeze(-2)
        # Distances in the norm of V, from differences, so that the two distances of a pair are equal to the last bit.
        values, vectors = torch.linalg.eigh(self.V)
        points = matmul(self.theta_candidates, vectors * values.clamp(min=self.ridge).sqrt().unsqueeze(-2))
        distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = distances.median(-1).values.argmin(-1)
        index = nearest.unsqueeze(-1).unsqueeze(-1).expand(self.theta_hat.unsqueeze(-2).shape)
        self.theta_hat.copy_(self.theta_candidates.gather(-2, index).squeeze(-2))


class MENU(UCB[MENURegression]):
    r"""MENU on fixed arms: optimism over :class:`MENURegression`, with its arguments.

    Args:
        dim, horizon, repeats, moment_factor, radius_factor, moment_order, noise_scale: as in :class:`MENURegression`.
        theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in :class:`MENURegression`.

    Example:
        >>> MENU(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(MENURegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(MENURegression(*arguments, **options))
