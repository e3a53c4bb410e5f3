"""One-pass heavy-tailed regression with a proved, computable radius."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torchonline.core.checks import one_of
from torchonline.core.ops import along, clip, dot, matvec, maximum, minimum, number, sqrt
from torchonline.core.options import LearnerOptions
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS, default_ridge
from torchonline.regression.heavy_tail_certificate import Forecast, HeavyTailCertificate


class HeavyTailRegression(HeavyTailCertificate):
    r"""Linear regression under heavy-tailed noise, with a certified radius.

    Let z be the centre of the interval :math:`x^\top\hat\theta \pm w`, :math:`w = \text{radius}\cdot\text{width}(x)`, clipped
    to the range that ``theta_bound`` allows. With the noise scale :math:`\nu` of the round,
    :math:`\sigma^2 = \nu^2 + \min(w, S\|x\|)^2` (``moment_order`` 2), :math:`\psi = \text{clip}((r - z)/\sigma, \pm\tau)` and
    :math:`a = x/\sigma`, a round is one step of ridge regression on the clipped pseudo-reward :math:`z + \sigma\psi`:

    .. math:: V \leftarrow V + aa^\top,\quad
              \hat\theta \leftarrow \hat\theta + V^{-1}a\,(\psi + (z - x^\top\hat\theta)/\sigma),\quad
              A \leftarrow A + \rho\,aa^\top,\quad \rho = \psi^2/3 + 2v/3,

    where :math:`v` bounds the mean of :math:`\psi^2`. Widths are in the norm of ``P`` :math:`= V^{-1}AV^{-1}`.

    Guarantee (``noise="moment"``). Assume that :math:`E[\eta_t \mid \text{past}, x_t] = 0`, that
    :math:`E[|\eta_t|^p \mid \text{past}, x_t] \le \nu_t^p` with p = ``moment_order`` and :math:`\nu_t` known before the reward,
    and that :math:`\|\theta^*\| \le` ``theta_bound``. Then with probability at least 1 - ``delta``, for all rounds and all x at
    once,

    .. math:: |x^\top(\hat\theta - \theta^*)| \le \text{radius}\cdot\text{width}(x),\qquad
              \text{radius} = \sqrt{2\log\tfrac1\delta + \log\det\tfrac{A}{\lambda} + \lambda S^2} + \text{bias}.

    Features may be of any size and chosen in any way, and no horizon is needed. With ``noise="symmetric"`` the same holds for
    noise that is symmetric given the past and x, without any moment; skewed noise breaks it. Up to ``corrupted_rounds`` rounds
    may break these assumptions and have any reward, if it is settled before a round's noise whether it is one of them. UCB has
    expected regret :math:`\tilde O(d\sqrt{\sum\nu_t^2} + d^2 S L)` over T rounds at ``moment_order`` 2, ``delta`` = 1/T and the
    default ``ridge``, for features of norm at most L, :math:`\nu_t` bounded away from 0 and no corrupted rounds. Proofs, and the
    formulas for other moment orders, corrupted rounds and delays: docs/heavy_tail_regression.md.

    Cost of a round: O(d^2) time and five d x d matrices (seven in float32), the same in every round. With ``noise="symmetric"``,
    which does not clip, ``step`` refuses an outlier of some 10^7 error bars in float64.

    Args:
        dim, theta_bound, restart_every, batch_shape, device, validate: as in :class:`Estimator`.
        dtype: torch.float64 or torch.float32, of the state. The proof is for float64.
        radius_scale: multiplies the radius, and changes the update too. Other than 1 it is a heuristic.
        noise: "moment", or "symmetric" (uses neither ``noise_scale`` nor ``moment_order``).
        moment_order: p in (1, 2]. Use 2 for finite variance. A smaller p is for noise without a variance, and is more cautious.
        noise_scale: :math:`\nu \ge 0`, the p-norm :math:`(E|\eta|^p)^{1/p}` of the noise, in units of the reward; the standard
            deviation at p = 2. 1/2 holds for rewards in [0, 1]; larger noise needs a larger number. Too large costs regret; too
            small voids the guarantee, often without a trace in the data.
        ridge: :math:`\lambda > 0`; None for d / S^2.
        delta: probability in (0, 1) that the confidence set ever fails.
        corrupted_rounds: K, a bound on the number of rounds whose reward may be false, as from fraud or a broken sensor. ``bias``
            starts at :math:`\sqrt{4.5K}`, and residuals are clipped at a lower level (docs/corrupted_rewards.md).

    Shape:
        - ``A``, ``A_inv``, ``P``, ``(*B, d, d)``; ``logdet``, ``bias``, ``(*B)``.

    Example:
        >>> learner, ridge = HeavyTailRegression(2, noise_scale=0.5), RidgeRegression(2, noise_scale=0.5)
        >>> x = torch.tensor([1.0, 0.0])
        >>> for reward in [0.5] * 100 + [1e9] + [0.5] * 100:
        ...     learner.step(x, torch.tensor(reward))
        ...     ridge.step(x, torch.tensor(reward))
        >>> print(f"{learner(x):.2f} where ridge regression says {ridge(x):.0f}")
        0.59 where ridge regression says 4950496

    Reference:
        Wang, Zhang, Zhao and Zhou, Heavy-Tailed Linear Bandits: Huber Regression with One-Pass Update, ICML 2025
        (arXiv:2503.00419), whose estimator is :class:`HuberRegression`. What differs: the clip level, which grows with the error
        bar; the matrix A, which makes the certificate; no horizon and no projection. ``corrupted_rounds`` and its proof are ours.
    """

    guarantee = "in all rounds"
    statistics_depend_on: tuple[str, ...] = ("is_symmetric", "moment_order", "theta_bound", "ridge", "delta")
    statistics_depend_on += ("radius_scale", "restart_every")
    later_options = {"corrupted_rounds": 0}

    def __init__(
        self,
        dim: int,
        *,
        noise: str = "moment",
        moment_order: float = 2.0,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        corrupted_rounds: int = 0,
        radius_scale: float = 1.0,
        restart_every: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        ridge = default_ridge(dim, theta_bound) if ridge is None else ridge
        super().__init__(dim, ridge, radius_scale, noise_scale, theta_bound, restart_every, **options)
        self.noise = one_of("noise", noise, ("moment", "symmetric"))
        self.is_symmetric = noise == "symmetric"
        self._set_certificate(moment_order, delta, corrupted_rounds)
        self.log_term = -2.0 * math.log(self.delta) + self.ridge * self.theta_bound**2
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        # What a corrupted round adds to the square of the bias, at most.
        most = 1.0 if self.is_symmetric else 4.5
        bias = torch.tensor(math.sqrt(most * self.corrupted_rounds), dtype=torch.float64)
        return super()._initial_state() | {"bias": bias}

    def radius(self) -> Tensor:
        return self.radius_scale * (sqrt(number(self.logdet) + self.log_term) + number(self.bias))

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, forecast = self.theta_hat, self._forecast(x)
        least = self._least_noise(number(self.rounds) + 1, forecast.square, 0.0)
        scale, rho, b, pull = self._weigh(forecast, dot(x, theta_hat), reward, noise_scale, least)
        h = self._absorb_(forecast, scale, rho, b)
        theta_hat += along(pull, x) * h

    def _observe_block(self, x: Tensor, reward: Tensor, noise_scale: Tensor, count: Tensor) -> None:
        theta_hat, forecast = self.theta_hat, self._forecast_rows(x)
        mean = matvec(x, theta_hat)
        # Rounding is worse than in a single round, because all rounds of the block are weighed before any is learnt.
        least = self._least_noise(self.rounds + count, mean, 1e-6)
        scale, rho, b, pull = self._weigh(forecast, mean, reward, noise_scale, least)
        theta_hat += self._absorb_block_(forecast, scale, rho, b, pull, count)

    def _weigh(
        self, forecast: Forecast, mean: Tensor, reward: Tensor, noise_scale: Tensor, least: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return sigma, rho, b, and the factor of a in theta_hat's move.

        Shapes are ``(*B)``, or ``(*B, n)`` for a block. ``least`` is that of :meth:`_least_noise`.
        """
        bound = self.theta_bound * sqrt(forecast.square)
        width = along(self.radius(), mean) * self._error_bar(forecast)
        error = minimum(width, bound)
        centre = clip(0.5 * (maximum(mean - width, -bound) + minimum(mean + width, bound)), bound)

        if self.is_symmetric:
            scale, b = 0.0 * mean + 1.0, 0.0 * mean
            innovation = reward - centre
            rho = (abs(innovation) + error) ** 2
        else:
            scale, tau, v, b = self._clip_level(maximum(least * bound, noise_scale), error, forecast)
            innovation = clip((reward - centre) / scale, tau)
            rho = (innovation * innovation + 2.0 * v) / 3.0
        return scale, rho, b, innovation + (centre - mean) / scale
