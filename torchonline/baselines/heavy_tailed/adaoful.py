"""AdaOFUL: adaptive pseudo-Huber regression (Li and Sun, 2023)."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.baselines.heavy_tailed.history import ScaledHistoryEstimator
from torchonline.baselines.stored_rounds import check_room, nonzero_norm
from torchonline.core.checks import positive
from torchonline.core.ops import dot, matmul, matvec
from torchonline.core.options import LearnerOptions
from torchonline.policies.rules import UCB, takes_arguments_of
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS, default_ridge


class AdaOFULRegression(ScaledHistoryEstimator):
    r"""Adaptive pseudo-Huber regression over all rounds, solved by Newton's method.

    Round t, with the noise's standard deviation :math:`\nu_t` = ``noise_scale``, :math:`q = \|x\|_{V^{-1}}` and
    :math:`\ell = \log(2T^2/\delta)`:

    .. math:: \sigma_t &= \max\Bigl(\nu_t,\ \sigma_{\min},\ q/c_0,\ \sqrt{LSq}/(c_1d)^{1/4}\Bigr), \qquad
              w_t = q/\sigma_t,\qquad \tau_t = \tau_0\sqrt{1+w_t^2}/w_t \\
              V &\leftarrow V + xx^\top/\sigma_t^2,\qquad
              \hat\theta = \arg\min_{\|\theta\|\le S} \tfrac\lambda2\|\theta\|^2
              + \sum_{s\le t} \rho_{\tau_s}\Bigl(\frac{r_s - x_s^\top\theta}{\sigma_s}\Bigr)

    where :math:`\rho_\tau(z) = \tau(\sqrt{\tau^2+z^2} - \tau)` is the pseudo-Huber loss and
    :math:`\tau_0\sqrt\ell = \max(\sqrt{2\kappa}, 2\sqrt d)`, with :math:`\kappa = d\log(1 + L^2T/(d\lambda\sigma_{\min}^2))`. The
    radius after t >= 1 rounds is :math:`b_2(\kappa/\tau_0 + \sqrt{\kappa\ell} + \tau_0\ell) + b_1\sqrt\lambda S`, and
    :math:`\sqrt\lambda S` before.

    Guarantee: none that we can vouch for. The paper states that the confidence set holds for noise with mean 0 and standard
    deviation at most :math:`\nu_t` given the past.

    Cost of round t: O(t d^2 + d^3), for each of usually two to five Newton steps; it warns if it ends before the minimum. Memory
    O(T d). The host decides when to stop, so it waits for an accelerator. torch.export cannot trace a step; TorchScript can
    compile it. ``step`` raises ValueError after ``horizon`` rounds, TorchScript RuntimeError. ``export`` runs a dozen rounds on a
    copy, which needs room for them.

    Args:
        dim, horizon, theta_bound, delta, radius_scale, batch_shape, dtype, device, validate: as in :class:`HorizonEstimator`.
        noise_scale: :math:`\nu \ge 0`, the standard deviation of the noise, in units of the reward. A round's own value is the
            ``noise_scale`` of its ``step``. 1/2 holds for rewards in [0, 1]; larger noise needs a larger number.
        feature_bound: L > 0, a bound on the norm of features.
        ridge: :math:`\lambda > 0`; None for d / S^2.
        minimum_scale: :math:`\sigma_{\min} > 0`; None for 1 / sqrt(T).
        scale_factor, linear_factor: 36 in :math:`c_0 = (36\,\ell)^{-1/2}` and 42 in :math:`c_1 = 1/(42\,\ell)`.
        ridge_factor, radius_factor: :math:`b_1` and :math:`b_2`.

    Shape:
        - ``history`` of :math:`x/\sigma`, ``(*B, T, d)``; ``history_reward`` of :math:`r/\sigma` and ``history_threshold`` of
          :math:`\tau`, ``(*B, T)``.

    Example:
        >>> learner = AdaOFULRegression(2, horizon=100)
        >>> learner.step(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1.0, 1e9]), noise_scale=torch.tensor([0.1, 10.0]))
        >>> int(learner.rounds), bool(learner.theta_hat.norm() <= 1.0)
        (2, True)

    Reference:
        Li and Sun, Variance-aware robust reinforcement learning with linear function approximation under heavy-tailed rewards
        (arXiv:2303.05606). The loss, :math:`\ell`, :math:`\kappa`, the form of :math:`\sigma_t` and 42 are as in published code
        for its extension to links (Yu et al., UAI 2025; github.com/qyu214/GAdaOFUL), which sets the other constants to 1. 36, 32,
        5, :math:`\tau_0` and the default of ``ridge`` are recalled. With them :math:`|x^\top(\theta-\theta^*)|/\sigma_t` is at
        most :math:`\tau_t/\sqrt{42}` in the ball, which is what :math:`c_1` is for.
    """

    statistics_depend_on: tuple[str, ...] = (
        "horizon",
        "theta_bound",
        "feature_bound",
        "ridge",
        "delta",
        "minimum_scale",
    )
    statistics_depend_on += ("scale_factor", "linear_factor")

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        feature_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        minimum_scale: float | None = None,
        scale_factor: float = 36.0,
        linear_factor: float = 42.0,
        ridge_factor: float = 5.0,
        radius_factor: float = 32.0,
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        ridge = default_ridge(dim, theta_bound) if ridge is None else ridge
        super().__init__(dim, horizon, 2.0, noise_scale, theta_bound, ridge, delta, radius_scale, **options)
        self._set_scales(feature_bound, minimum_scale)
        self._set_solver()
        # Newton's method converges quadratically: after a step as short as this, the rest is rounding.
        self.resolution = torch.finfo(self._initial_options["dtype"]).eps ** 0.6 * self.theta_bound
        self.scale_factor = positive("scale_factor", scale_factor)
        self.linear_factor = positive("linear_factor", linear_factor)
        self.ridge_factor = positive("ridge_factor", ridge_factor)
        self.radius_factor = positive("radius_factor", radius_factor)
        ell, kappa = self.log_term, self.kappa
        self.tau0 = max(math.sqrt(2.0 * kappa), 2.0 * math.sqrt(dim)) / math.sqrt(ell)
        self.inverse_c0 = math.sqrt(self.scale_factor * ell)
        c1 = 1.0 / (self.linear_factor * ell)
        self.root_factor = math.sqrt(self.feature_bound * self.theta_bound) / (c1 * dim) ** 0.25
        self.radius_start = math.sqrt(self.ridge) * self.theta_bound
        of_noise = self.radius_factor * (kappa / self.tau0 + math.sqrt(kappa * ell) + self.tau0 * ell)
        self.slope = of_noise + (self.ridge_factor - 1.0) * self.radius_start
        self._create_buffers()

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        check_room(self.rounds, self.horizon)
        product = matvec(self.V_inv, x)
        q = dot(x, product).clamp(min=0.0).sqrt()
        sigma = torch.maximum(self.inverse_c0 * q, self.root_factor * q.sqrt())
        sigma = torch.maximum(sigma.clamp(min=self.minimum_scale), noise_scale)
        self._learn_scaled_(x, reward, product, q, sigma, torch.full_like(q, self.tau0))
        self._minimise(torch.ones_like(self.rounds, dtype=torch.bool))
        self._end_round_()

    def _pull(self, z: Tensor, thresholds: Tensor) -> Tensor:
        return z / _stretch(z, thresholds)

    def _hessian(self, rows: Tensor, z: Tensor, thresholds: Tensor) -> Tensor:
        kept = rows * (_stretch(z, thresholds) ** -1.5).unsqueeze(-1)
        return matmul(kept.mT, kept) + torch.diag_embed(torch.full_like(kept[..., 0, :], self.ridge))

    def _arrives(self, z: Tensor, change: Tensor, thresholds: Tensor, direction: Tensor) -> Tensor:
        return nonzero_norm(direction) <= self.resolution

    def _share(
        self, z: Tensor, change: Tensor, thresholds: Tensor, theta: Tensor, direction: Tensor, arrives: Tensor
    ) -> Tensor:
        """Return the fraction of a step, at most 1, with the lowest loss: ``(*B)``."""
        low = torch.zeros_like(direction[..., 0])
        high = torch.ones_like(low)
        # A step that hardly changes the loss's curvature converges, and its slope may be rounding.
        is_short = (change.abs() <= 1e-3 * thresholds).all(-1)
        too_far = (self._slope(high, z, change, thresholds, theta, direction) > 0.0) & ~arrives & ~is_short
        if not bool(too_far.any()):
            return high
        for _ in range(40):
            middle = 0.5 * (low + high)
            rises = self._slope(middle, z, change, thresholds, theta, direction) > 0.0
            low, high = torch.where(rises, low, middle), torch.where(rises, middle, high)
        return torch.where(too_far, low, torch.ones_like(low))

    def _slope(
        self, share: Tensor, z: Tensor, change: Tensor, thresholds: Tensor, theta: Tensor, direction: Tensor
    ) -> Tensor:
        """Return the slope of the loss along a step, after a fraction of it: ``(*B)``."""
        share = share.unsqueeze(-1)
        pull = self._pull(z - share * change, thresholds)
        return self.ridge * dot(theta + share * direction, direction) - dot(pull, change)


def _stretch(z: Tensor, thresholds: Tensor) -> Tensor:
    """Return sqrt(1 + (z / threshold)^2), which is 1 in empty rows."""
    return torch.hypot(torch.ones_like(z), z / thresholds.clamp(min=1e-30))


class AdaOFUL(UCB[AdaOFULRegression]):
    r"""AdaOFUL: optimism over :class:`AdaOFULRegression`, with the same arguments.

    Args:
        dim, horizon, noise_scale, theta_bound, feature_bound, ridge, delta, minimum_scale: as in :class:`AdaOFULRegression`.
        scale_factor, linear_factor, ridge_factor, radius_factor, radius_scale, batch_shape: as in :class:`AdaOFULRegression`.
        dtype, device, validate: as in :class:`AdaOFULRegression`.

    Example:
        >>> AdaOFUL(2, horizon=1000).select(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
        tensor(0)
    """

    @takes_arguments_of(AdaOFULRegression)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(AdaOFULRegression(*arguments, **options))
