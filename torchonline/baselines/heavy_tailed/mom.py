"""MoM: ridge regression on medians of means (Medina and Yang, ICML 2016)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.baselines.heavy_tailed.base import EpochEstimator, HorizonOptions, medians
from torchonline.core.checks import positive_integer
from torchonline.core.ops import at_least, dot, matvec, number, real, sqrt
from torchonline.core.precision_matrix import add_outer_
from torchonline.policies.rules import UCB, takes_arguments_of


class MoMRegression(EpochEstimator):
    r"""Ridge regression on the median of means of an epoch (:class:`EpochEstimator`).

    At the end of an epoch of the arm x, its r = ``repeats`` rewards are split into k = ``groups`` groups of
    :math:`N = \lfloor r/k\rfloor` in order, and :math:`\tilde r` is the median of the groups' means:

    .. math:: V \leftarrow V + xx^\top,\qquad \hat\theta \leftarrow \hat\theta + V^{-1}x\,(\tilde r - x^\top\hat\theta).

    With p = ``moment_order`` :math:`= 1+\varepsilon`, :math:`\nu` = ``noise_scale``,
    :math:`\eta = 12^{1/p}\,\nu\,N^{-\varepsilon/p}` and :math:`m = \lceil T/r\rceil`, the radius after n epochs is
    :math:`\eta\,(\sqrt{2\log(m/\delta) + \log\det(V/\lambda)} + \sqrt n) + \sqrt\lambda S`, and its last term before the first.

    Guarantee. If rewards of an epoch are independent given the past, with noise of mean 0 and :math:`E|\eta|^p \le \nu^p`,
    whether an epoch is interrupted does not depend on its rewards, ``groups`` is at least the default and
    :math:`\|\theta^*\| \le` ``theta_bound``, then the confidence set holds for the first T rounds. Proof: a group's mean is
    further than :math:`\eta` from the arm's with probability at most 1/4 (Lemma 3 of the reference). By Hoeffding's inequality
    no median of m epochs is, with probability at least 1 - ``delta``. Then
    :math:`\|\hat\theta-\theta^*\|_V \le \eta\sqrt n + \sqrt\lambda S`: the first term of the bracket is not needed.

    Cost: O(d^2) for a round; O(d^2 + r) at the end of an epoch.

    Args:
        dim, horizon, moment_order, noise_scale, theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate:
            as in :class:`HorizonEstimator`.
        repeats: r, rewards in an epoch; None for :math:`\lceil T^{(1+\varepsilon)/(1+3\varepsilon)}\rceil`, or k if that is more.
        groups: k, at most r; None for :math:`\lceil 8\log(2m/\delta)\rceil`, or r if that is less. Fewer void the guarantee.

    Shape:
        - ``logdet``, :math:`\log\det(V/\lambda)`, ``(*B)``.

    Example:
        >>> learner = MoMRegression(2, horizon=1000, repeats=6, groups=3)
        >>> for reward in (0.2, 0.4, 1e9, 0.1, 0.0, 0.2):
        ...     learner.step(torch.tensor([1.0, 0.0]), torch.tensor(reward))
        >>> learner.theta_hat
        tensor([0.1000, 0.0000], dtype=torch.float64)

    Reference:
        Medina and Yang, No-regret Algorithms for Heavy-tailed Linear Bandits, ICML 2016, Algorithms 3 and 4. We have checked
        ``repeats``, 12, 8 and the radius of Proposition 6 there. What differs: N itself replaces its bound
        :math:`r/(8\log(2m/\delta))`, and k is rounded up.
    """

    statistics_depend_on = ("ridge", "repeats", "groups")
    logdet: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        repeats: int | None = None,
        groups: int | None = None,
        **options: Unpack[HorizonOptions],
    ) -> None:
        super().__init__(dim, horizon, **options)
        p, T = self.moment_order, self.horizon
        usual = math.ceil(T ** (p / (3.0 * p - 2.0)))
        self._set_repeats(repeats, max(usual, self._usual_groups(usual)))
        of_theory = min(self._usual_groups(self.repeats), self.repeats)
        self.groups = of_theory if groups is None else positive_integer("groups", groups)
        if self.groups > self.repeats:
            raise ValueError(f"groups: expected at most repeats = {self.repeats}, got {groups}")
        self.group_size = self.repeats // self.groups
        self.error = 12.0 ** (1.0 / p) * self.noise_scale * self.group_size ** (1.0 / p - 1.0)
        self.log_term = 2.0 * math.log(math.ceil(T / self.repeats) / self.delta)
        self.radius_start = math.sqrt(self.ridge) * self.theta_bound
        self._create_buffers()

    def _usual_groups(self, repeats: int) -> int:
        return math.ceil(8.0 * math.log(2.0 * math.ceil(self.horizon / repeats) / self.delta))

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"logdet": torch.zeros((), dtype=torch.float64)}

    def radius(self) -> Tensor:
        epochs = real(self.epochs, self.theta_hat)
        growth = sqrt(number(self.logdet) + self.log_term) + sqrt(epochs)
        started = epochs / at_least(epochs, 1.0)
        return self.radius_scale * (self.error * growth * started + self.radius_start)

    def _learn_epoch(self, x: Tensor, rewards: Tensor) -> None:
        used = rewards[..., : self.groups * self.group_size]
        means = used.unflatten(-1, [self.groups, self.group_size]).mean(-1)
        product = matvec(self.V_inv, x)
        quadratic = dot(x, product).clamp(min=0.0)
        residual = medians(means) - dot(x, self.theta_hat)
        self.logdet += quadratic.log1p()
        add_outer_(self._precision(), x, product, quadratic)
        self.theta_hat += (residual / (1.0 + quadratic)).unsqueeze(-1) * product


class MoM(UCB[MoMRegression]):
    r"""MoM on fixed arms: optimism over :class:`MoMRegression`, with its arguments.

    Args:
        dim, horizon, repeats, groups, moment_order, noise_scale, theta_bound, ridge, delta: as in :class:`MoMRegression`.
        radius_scale, batch_shape, dtype, device, validate: as in :class:`MoMRegression`.

    Example:
        >>> MoM(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(MoMRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(MoMRegression(*arguments, **options))
