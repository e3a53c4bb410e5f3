"""BMM: a median for each arm (Xue, Wang, Wang and Zhang, IJCAI 2020)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.baselines.heavy_tailed.base import EpochEstimator, HorizonOptions, medians
from torchonline.core.checks import positive
from torchonline.core.ops import converted, dot, matvec, rows_times
from torchonline.core.precision_matrix import add_outer_
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.arguments import on_rows


class BMMRegression(EpochEstimator):
    r"""Median of several ridge regressions at each x (:class:`EpochEstimator`).

    At the end of an epoch of the arm x, the j-th of its ``repeats`` = r rewards goes to the j-th regression,
    :math:`\hat\theta_j`. All regressions share V:

    .. math:: V \leftarrow V + xx^\top,\qquad
              \hat\theta_j \leftarrow \hat\theta_j + V^{-1}x\,(r_j - x^\top\hat\theta_j),\qquad
              \hat r(x) = \text{median}_j\;x^\top\hat\theta_j,

    the mean of the two middle values if r is even. Hence ``predictor(x)`` is not linear in x. ``theta_hat`` holds the estimates
    at the coordinate vectors, and no decision of :class:`BMM` uses it. With p = ``moment_order``, the radius after n >= 1 epochs
    is :math:`m^{1/p}\,\nu\,n^{(2-p)/(2p)} + \sqrt\lambda S`, and its last term before.

    Guarantee: none that we can vouch for in a bandit. The paper's lemma, as we recall it, is for epochs whose rewards are
    independent given all their features. That holds inside a group of SupBMM. With arms that the learner chooses it is not
    proved.

    *Proved.* If all features and all interruptions of epochs are chosen without looking at rewards, the noise is
    independent with mean 0 and :math:`E|\eta|^p \le \nu^p`, :math:`\|\theta^*\| \le S`, r is at least the default and m at least
    8, then at one x after each round, also chosen without looking at rewards,
    :math:`|\hat r(x) - x^\top\theta^*| \le \text{radius}\cdot\text{width}(x)` in all T rounds, with probability 1 - ``delta``.
    For K arms per round, pass ``delta`` / K. Nothing is claimed for all x at once. :func:`~torchonline.metrics.has_missed` looks
    at ``theta_hat``, so it does not measure this.

    Proof: let :math:`\beta_i = x^\top V^{-1}x_i` for epoch i. Regression j errs by :math:`\sum_i\beta_i\eta_{ij}`, whose p-th
    moment is at most :math:`2\nu^p\|\beta\|_p^p` (von Bahr and Esseen), and by
    :math:`\lambda|x^\top V^{-1}\theta^*| \le \sqrt\lambda S\|x\|_{V^{-1}}`. By Markov's inequality the sum is further out than
    :math:`m^{1/p}\nu\|\beta\|_p` with probability at most 1/4. By Hoeffding's inequality this happens in half of the regressions
    with probability at most :math:`e^{-r/8}`. By Hölder's inequality :math:`\|\beta\|_p \le n^{(2-p)/(2p)}\|\beta\|_2`, and
    :math:`\|\beta\|_2 \le \|x\|_{V^{-1}}`.

    Cost: O(d^2) for a round; O(d^2 + r d log r) at the end of an epoch; O(K (r d + r log r + d^2)) for a decision among K arms.
    Memory O(r d + d^2).

    Args:
        dim, horizon, moment_order, noise_scale, theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate:
            as in :class:`HorizonEstimator`.
        repeats: r, rewards in an epoch and regressions; None for :math:`\lceil 8\log(2T/\delta)\rceil`.
        moment_factor: m > 0; 12 in published code.

    Shape:
        - ``theta_candidates``, the estimates :math:`\hat\theta_j`, ``(*B, r, d)``.

    Example:
        >>> learner = BMMRegression(2, horizon=1000, repeats=3)
        >>> for reward in (0.3, 1e9, 0.1):
        ...     learner.step(torch.tensor([1.0, 0.0]), torch.tensor(reward))
        >>> learner(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        tensor([0.1000, 0.1000], dtype=torch.float64)

    Reference:
        Xue, Wang, Wang and Zhang, Nearly Optimal Regret for Stochastic Linear Bandits with Heavy-Tailed Payoffs, IJCAI 2020
        (arXiv:2004.13465). We have seen its abstract and two published programs, not its proofs. SupBMM divides the epochs into
        log T groups, by a rule that looks at all arms of a round, like SupLinUCB's. ``step`` sees the chosen arm only. Here,
        therefore, all epochs are one group, and the policy is optimistic. The first program does the same; it is for Zhong,
        Huang, Yang and Wang, Breaking the Moments Condition Barrier, NeurIPS 2021, and derives from the authors' own. It uses 31
        rewards per epoch and a radius of :math:`(12\nu^p)^{1/p}n^{(2-p)/(2p)}/600`. The second has the groups
        (github.com/kyungjaelee/proof_linear_bandit). The median, 12, the 8 of r and the radius are checked against both; 1 stands
        for :math:`\sqrt\lambda S` in the second. Its r is :math:`8\log(2KT/\delta)`. A comment in the first has
        :math:`8\log(2KT\log T/\delta)`, which also counts the groups.
    """

    statistics_depend_on = ("ridge", "repeats")
    renamed: dict[str, str] = {}  # no state of version 0.1.0 has other names
    theta_candidates: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        repeats: int | None = None,
        moment_factor: float = 12.0,
        **options: Unpack[HorizonOptions],
    ) -> None:
        super().__init__(dim, horizon, **options)
        self._set_repeats(repeats, 8.0 * math.log(2.0 * self.horizon / self.delta))
        self.moment_factor = positive("moment_factor", moment_factor)
        self.slope = self.moment_factor ** (1.0 / self.moment_order) * self.noise_scale
        self.radius_start = math.sqrt(self.ridge) * self.theta_bound
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"theta_candidates": torch.zeros(self.repeats, self.dim, dtype=torch.float64)}

    @on_rows
    def predictor(self, x: Tensor) -> Tensor:
        """Return the estimate at x: ``(*B, ..., d)`` to ``(*B, ...)``."""
        x = converted(x, self.theta_hat)
        if self.batch_dims == 0:
            return medians(rows_times(x, self.theta_candidates.mT))
        return medians(rows_times(self.grouped(x), self.theta_candidates.mT)).reshape(x.shape[:-1])

    def _learn_epoch(self, x: Tensor, rewards: Tensor) -> None:
        product = matvec(self.V_inv, x)
        quadratic = dot(x, product).clamp(min=0.0)
        residuals = rewards - matvec(self.theta_candidates, x)
        add_outer_(self._precision(), x, product, quadratic)
        step = product / (1.0 + quadratic).unsqueeze(-1)
        self.theta_candidates += residuals.unsqueeze(-1) * step.unsqueeze(-2)
        self.theta_hat.copy_(medians(self.theta_candidates.mT))


class BMM(UCB[BMMRegression]):
    r"""BMM on fixed arms: optimism over :class:`BMMRegression`, with its arguments.

    Args:
        dim, horizon, repeats, moment_factor, moment_order, noise_scale, theta_bound, ridge: as in :class:`BMMRegression`.
        delta, radius_scale, batch_shape, dtype, device, validate: as in :class:`BMMRegression`.

    Example:
        >>> BMM(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(BMMRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(BMMRegression(*arguments, **options))
