"""HuberBandit: Huber regression with one threshold (Kang and Kim, UAI 2023)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.baselines.heavy_tailed.base import HorizonOptions
from torchonline.baselines.heavy_tailed.history import HistoryEstimator
from torchonline.baselines.stored_rounds import check_room
from torchonline.core.checks import positive
from torchonline.core.ops import at_least, dot, log, matvec, real, started_power
from torchonline.policies.rules import UCB, takes_arguments_of


class HuberBanditRegression(HistoryEstimator):
    r"""Huber regression over all rounds so far, with one growing threshold.

    Round t, with p = ``moment_order`` :math:`= 1+\varepsilon`, :math:`e = (1-\varepsilon)/(2(1+\varepsilon))` and
    :math:`\ell_t = \log(t^2(2d+1)/\delta)`:

    .. math:: V \leftarrow V + xx^\top,\qquad \tau_t = h\,\nu\,(t/\ell_t)^{1/p},\qquad
              \hat\theta = \arg\min_{\|\theta\|\le S} \tfrac\lambda2\|\theta\|^2 + \sum_{s\le t} h_{\tau_t}(r_s - x_s^\top\theta)

    where :math:`h_\tau` is the Huber loss, quadratic up to :math:`\tau` and linear beyond. The radius after t >= 1 rounds is
    :math:`c\sqrt d\,\nu\,\ell_t^{\varepsilon/p}\,t^e + \sqrt\lambda S`, and its second term before. The ``noise_scale`` of
    ``step`` is not used.

    Guarantee: none that we can vouch for. Lemma 2 of the reference bounds the error without ridge and ball: with h at least 1,
    :math:`\|\hat\theta-\theta^*\| \le 4\sqrt d\,h\,\nu\,(\ell_t/t)^{\varepsilon/p}/\gamma` with probability
    :math:`1-\delta/t^2`, if :math:`V-\lambda I` has no eigenvalue below :math:`\gamma t`. The radius is this bound in the norm of
    V if all eigenvalues are t. A policy that leaves directions unplayed has no such :math:`\gamma`.

    Cost of round t: O(t d^2 + d^3), for each of usually one or two Newton steps; it warns if it ends before the minimum. Memory
    O(T d). The host decides when to stop, so it waits for an accelerator. torch.export cannot trace a step; TorchScript can
    compile it. ``step`` raises ValueError after ``horizon`` rounds, TorchScript RuntimeError. ``export`` runs a dozen rounds on a
    copy, which needs room for them.

    Args:
        dim, horizon, moment_order, theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in
            :class:`HorizonEstimator`.
        noise_scale: :math:`\nu > 0`, the p-norm of the noise, in units of the reward. 1/2 holds for rewards in [0, 1]; larger
            noise needs a larger number.
        threshold_factor: h > 0; the paper's 1.
        radius_factor: c > 0; 4 as in the bound above.

    Shape:
        - ``history`` of x, ``(*B, T, d)``; ``history_reward``, ``(*B, T)``.

    Example:
        >>> learner = HuberBanditRegression(2, horizon=100)
        >>> learner.step(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.1, 1e9]))
        >>> learner.theta_hat
        tensor([0.0333, 0.1282], dtype=torch.float64)

    Reference:
        Kang and Kim, Heavy-tailed Linear Bandit with Huber Regression, UAI 2023 (PMLR 216), Algorithm 1, of which we have checked
        :math:`\tau_t` and Lemma 2. What differs: each of the paper's arms has its own parameter, as in
        ``DisjointArms(HuberBandit(d, horizon=T), K)``. The paper plays each arm at fixed times, drops arms that a second
        estimate, from these rounds alone, finds worse by a known margin, and is greedy among the others; here UCB explores. The
        ridge and the ball are ours.
    """

    statistics_depend_on = (
        "horizon",
        "moment_order",
        "noise_scale",
        "theta_bound",
        "ridge",
        "delta",
        "threshold_factor",
    )

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        threshold_factor: float = 1.0,
        radius_factor: float = 4.0,
        **options: Unpack[HorizonOptions],
    ) -> None:
        super().__init__(dim, horizon, **options)
        positive("noise_scale", self.noise_scale)  # with 0 the threshold is 0, and nothing is learnt
        self._set_solver()
        self.threshold_factor = positive("threshold_factor", threshold_factor)
        self.radius_factor = positive("radius_factor", radius_factor)
        self.log_term = math.log((2.0 * dim + 1.0) / self.delta)
        self.slope = self.radius_factor * math.sqrt(dim) * self.noise_scale
        self.radius_start = math.sqrt(self.ridge) * self.theta_bound
        self._create_buffers()

    def radius(self) -> Tensor:
        p, rounds = self.moment_order, real(self.rounds, self.theta_hat)
        logs = (self.log_term + 2.0 * log(at_least(rounds, 1.0))) ** ((p - 1.0) / p)
        return self.radius_scale * (self.slope * logs * started_power(rounds, self.power) + self.radius_start)

    def _thresholds(self, n: int) -> Tensor:
        rounds = real(self.rounds + 1, self.theta_hat)
        ratio = rounds / (self.log_term + 2.0 * log(rounds))
        threshold = self.threshold_factor * self.noise_scale * ratio ** (1.0 / self.moment_order)
        return threshold.unsqueeze(-1).expand_as(self.history_reward[..., :n])

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        check_room(self.rounds, self.horizon)
        product = matvec(self.V_inv, x)
        quadratic = dot(x, product)
        self._check_growth(x, quadratic)
        self._store_(x.clone(), product, quadratic, reward.clone())
        self._minimise(torch.ones_like(self.rounds, dtype=torch.bool))
        self._end_round_()


class HuberBandit(UCB[HuberBanditRegression]):
    r"""Optimism over :class:`HuberBanditRegression`, with the same arguments.

    Args:
        dim, horizon, threshold_factor, radius_factor, moment_order, noise_scale: as in :class:`HuberBanditRegression`.
        theta_bound, ridge, delta, radius_scale, batch_shape, dtype, device, validate: as in :class:`HuberBanditRegression`.

    Example:
        >>> HuberBandit(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(HuberBanditRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(HuberBanditRegression(*arguments, **options))
