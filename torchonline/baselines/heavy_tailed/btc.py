"""BTC: separate truncation for each arm (Xue, Wang, Wang and Zhang, IJCAI 2020)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.baselines.heavy_tailed.base import HorizonEstimator, HorizonOptions
from torchonline.baselines.stored_rounds import append_, check_room, count_filled
from torchonline.core.checks import positive
from torchonline.core.ops import converted, dot, matvec, norms, rows_times, total, where
from torchonline.core.precision_matrix import add_outer_
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.arguments import on_rows


class BTCRegression(HorizonEstimator):
    r"""Ridge regression that truncates all rounds again for each x.

    A round adds :math:`xx^\top` to V and is stored. With p = ``moment_order``, the estimate at x after n rounds is

    .. math:: \hat r(x) = \sum_{s\le n}\beta_sr_s\,1\{|\beta_sr_s| \le g\,\|\beta\|_p\},\qquad \beta_s = x^\top V^{-1}x_s.

    Hence ``predictor(x)`` is not linear in x. ``theta_hat`` holds the estimates at the coordinate vectors, and no decision of
    :class:`BTC` uses it. With :math:`u = (LS + \nu)^p`, which bounds the p-th absolute moment of the reward, and
    :math:`\ell = \log(2T/\delta)`, the radius is

    .. math:: \bigl(\tfrac23g\ell + \sqrt{2ug^{2-p}\ell} + ug^{1-p}\bigr)\,n^{(2-p)/(2p)} + \sqrt\lambda S,

    and its last term before the first round. The ``noise_scale`` of ``step`` is not used.

    Guarantee: none that we can vouch for in a bandit. The paper's lemma, as we recall it, is for rounds whose rewards are
    independent given all their features. That holds inside a group of SupBTC. With arms that the learner chooses it is not
    proved.

    *Proved.* If all features are chosen without looking at rewards and have :math:`\|x\| \le L`, the noise is independent
    with mean 0 and :math:`E|\eta|^p \le \nu^p`, and :math:`\|\theta^*\| \le S`, then at one x after each round, also chosen
    without looking at rewards, :math:`|\hat r(x) - x^\top\theta^*| \le \text{radius}\cdot\text{width}(x)` in all T rounds, with
    probability 1 - ``delta``. For K arms per round, pass ``delta`` / K. Nothing is claimed for all x at once.
    :func:`~torchonline.metrics.has_missed` looks at ``theta_hat``, so it does not measure this.

    Proof: let :math:`h = \|\beta\|_p`. Truncation moves the mean of the sum by at most
    :math:`\sum_sE|\beta_sr_s|^p(gh)^{1-p} \le ug^{1-p}h`. Its terms are within :math:`\pm gh`, and their variances add up to at
    most :math:`ug^{2-p}h^2`. By Bernstein's inequality chance moves it by at most
    :math:`(\sqrt{2ug^{2-p}\ell} + \tfrac23g\ell)\,h`, with probability :math:`1 - 2e^{-\ell}`. By Hölder's inequality
    :math:`h \le n^{(2-p)/(2p)}\|\beta\|_2`, and :math:`\|\beta\|_2 \le \|x\|_{V^{-1}}`. The ridge moves it by
    :math:`\lambda|x^\top V^{-1}\theta^*| \le \sqrt\lambda S\|x\|_{V^{-1}}`.

    Cost after t rounds: O(t d^2) for a round, O(K (t d + d^2)) for a decision among K arms. Memory O(T d). ``step`` raises
    ValueError after ``horizon`` rounds. TorchScript and an exported program raise RuntimeError, and the program can then no
    longer choose. ``export`` runs a dozen rounds on a copy, which needs room for them.

    Args:
        dim, horizon, moment_order, noise_scale, theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate:
            as in :class:`HorizonEstimator`.
        feature_bound: L > 0, a bound on the norm of features.
        truncation: g > 0, in units of the reward; 1 in published code. The radius is of the least order in :math:`\ell` at
            :math:`g = (u/\ell)^{1/p}`.

    Shape:
        - ``history`` of x, ``(*B, T, d)``; ``history_reward``, ``(*B, T)``.

    Example:
        >>> learner = BTCRegression(2, horizon=100)
        >>> learner.step(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 1e9]))
        >>> learner(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        tensor([0.1667, 0.0000, 0.1667], dtype=torch.float64)

    Reference:
        Xue, Wang, Wang and Zhang, Nearly Optimal Regret for Stochastic Linear Bandits with Heavy-Tailed Payoffs, IJCAI 2020
        (arXiv:2004.13465). We have seen its abstract and two published programs, not its proofs. SupBTC divides the rounds into
        log T groups, by a rule that looks at all arms of a round, like SupLinUCB's. ``step`` sees the chosen arm only. Here,
        therefore, all rounds are one group, and the policy is optimistic. The first program does the same; it is for Zhong,
        Huang, Yang and Wang, Breaking the Moments Condition Barrier, NeurIPS 2021, and derives from the authors' own. It has
        :math:`\|\beta\|_2` instead of :math:`\|\beta\|_p`, and a radius of :math:`un^{(2-p)/(2p)}/300`. The second has the groups
        (github.com/kyungjaelee/proof_linear_bandit). The threshold, 2/3 and the radius are checked against it. In both, u is the
        moment of the noise. In the second, :math:`\ell = \log(2KT\log T/\delta)`, which also counts the groups, and 1 stands for
        :math:`\sqrt\lambda S`.
    """

    statistics_depend_on = ("horizon", "moment_order", "ridge", "truncation")
    runs_on_arrays = False  # passes over the history
    history: Tensor
    history_reward: Tensor

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        feature_bound: float = 1.0,
        truncation: float = 1.0,
        **options: Unpack[HorizonOptions],
    ) -> None:
        super().__init__(dim, horizon, **options)
        self.feature_bound = positive("feature_bound", feature_bound)
        self.truncation = positive("truncation", truncation)
        p, g = self.moment_order, self.truncation
        u = (self.feature_bound * self.theta_bound + self.noise_scale) ** p
        ell = math.log(2.0 * self.horizon / self.delta)
        self.slope = 2.0 / 3.0 * g * ell + math.sqrt(2.0 * u * g ** (2.0 - p) * ell) + u * g ** (1.0 - p)
        self.radius_start = math.sqrt(self.ridge) * self.theta_bound
        # A term at the threshold is kept in spite of rounding.
        self.limit = g * (1.0 + 16.0 * torch.finfo(self._initial_options["dtype"]).eps)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "history": torch.zeros(self.horizon, self.dim, dtype=torch.float64),
            "history_reward": torch.zeros(self.horizon, dtype=torch.float64),
        }

    @on_rows
    def predictor(self, x: Tensor) -> Tensor:
        """Return the estimate at x: ``(*B, ..., d)`` to ``(*B, ...)``."""
        x = converted(x, self.theta_hat)
        if self.batch_dims == 0:
            return self._estimate(rows_times(x, self.V_inv))
        return self._estimate(rows_times(self.grouped(x), self.V_inv)).reshape(x.shape[:-1])

    def _estimate(self, rows: Tensor) -> Tensor:
        """Return estimates, given ``V^-1 x`` in rows: ``(*B, m, d)`` to ``(*B, m)``."""
        n = count_filled(self.rounds, self.horizon)
        beta = rows_times(rows, self.history[..., :n, :].mT)
        rewards = self.history_reward[..., :n] if self.batch_dims == 0 else self.history_reward[..., None, :n]
        terms = beta * rewards
        is_kept = abs(terms) <= self.limit * norms(beta, self.moment_order)
        return total(where(is_kept, terms, 0.0 * terms))

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        check_room(self.rounds, self.horizon)
        product = matvec(self.V_inv, x)
        quadratic = dot(x, product)
        self._check_growth(x, quadratic)
        # The first write, because TorchScript fails here if the history is full.
        append_(self.history, self.rounds, x)
        append_(self.history_reward, self.rounds, reward)
        add_outer_(self._precision(), x.clone(), product, quadratic)
        self.theta_hat.copy_(self._estimate(self.V_inv))
        self._end_round_()


class BTC(UCB[BTCRegression]):
    r"""BTC: optimism over :class:`BTCRegression`, with the same arguments.

    Args:
        dim, horizon, feature_bound, truncation, moment_order, noise_scale, theta_bound, ridge: as in :class:`BTCRegression`.
        delta, radius_scale, batch_shape, dtype, device, validate: as in :class:`BTCRegression`.

    Example:
        >>> BTC(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(BTCRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(BTCRegression(*arguments, **options))
