"""The certificate of heavy-tailed regressions: clip level, matrix A and bias."""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchonline.core.checks import non_negative_integer, within
from torchonline.core.ops import (
    along,
    assign_,
    at_least,
    at_most,
    dot,
    exp,
    increase_,
    log,
    log1p,
    matmul,
    matvec,
    maximum,
    minimum,
    number,
    real,
    roundoff,
    row_dots,
    sqrt,
    trace,
    where,
)
from torchonline.core.precision_matrix import (
    PrecisionMatrix,
    add_outer_,
    add_squares_,
    gram,
    log_det,
    refine_,
    solved,
    start_of,
    subtract_outers_,
)
from torchonline.regression.estimator import Estimator


class Forecast(NamedTuple):
    """The statistics of a round's features before the response.

    For a block of n rounds, each field has a dimension n after ``*B``.
    """

    x: Tensor  # the features, (*B, d)
    Wx: Tensor  # V^-1 x, (*B, d)
    Px: Tensor  # P x, (*B, d)
    xWx: Tensor  # x'V^-1 x, (*B)
    xPx: Tensor  # x'P x, (*B)
    square: Tensor  # x'x, (*B)
    slack: Tensor  # 8 roundoffs times x'x, (*B). Times trace(M), it bounds most of what x'Mx has lost to rounding.


class HeavyTailCertificate(Estimator):
    """Base of the heavy-tailed regressions, of one output and of several.

    A round calls :meth:`_forecast`, :meth:`_clip_level` and :meth:`_absorb_`, in this order. A block of rounds calls
    :meth:`_forecast_rows`, :meth:`_clip_level` and :meth:`_absorb_block_` (docs/heavy_tail_regression.md).
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        A_lost: Tensor | None
    A: Tensor
    A_inv: Tensor
    P: Tensor
    logdet: Tensor
    bias: Tensor
    positive_definite = ("V", "V_inv", "A", "A_inv", "P")
    inverses = (("V", "V_inv"), ("A", "A_inv"))

    def _set_certificate(self, moment_order: float, delta: float, corrupted_rounds: int = 0) -> None:
        self.moment_order = within("moment_order", moment_order, 1.0, 2.0, closed=True)
        self.corrupted_rounds = non_negative_integer("corrupted_rounds", corrupted_rounds)
        self.delta = within("delta", delta, 0.0, 1.0)
        self.growth = 3.0  # the clip level is at most tau0 * growth * sqrt(t) scales
        self.eps = eps = self.moment_order - 1.0
        self.bias_factor = eps**eps / (1.0 + eps) ** (1.0 + eps)
        tau0 = 3.0 if eps == 1.0 else min(3.0, 1.75 * self.bias_factor * eps / (1.0 - eps))
        # All corrupted rounds together then add a bounded multiple of V to A.
        self.tau0 = tau0 / math.sqrt(1.0 + 4.0 * self.corrupted_rounds)

    def _initial_state(self) -> dict[str, Tensor | None]:
        state, zero = super()._initial_state(), torch.zeros((), dtype=torch.float64)
        A = start_of(self.dim, self.ridge, "A", self.compensated)
        return state | A | {"P": state["V_inv"], "logdet": zero, "bias": zero}

    def width_matrix(self) -> Tensor:
        return self.P

    def posterior_scale(self) -> Tensor:
        """Return 1, because P estimates the covariance of the estimate: ``(*B)``."""
        return self._for_each(1.0)

    def width_allowance(self) -> Tensor | None:
        # It makes up for most of what P may have lost to rounding.
        return 8.0 * roundoff(self.P) * trace(self.P)

    def moves_of_width(self, x: Tensor) -> list[Tensor]:
        return [matvec(self.P, x), matvec(self.V_inv, x)]

    def _forecast(self, x: Tensor) -> Forecast:
        Wx, Px = matvec(self.V_inv, x), matvec(self.P, x)
        square = dot(x, x)
        return Forecast(x, Wx, Px, dot(x, Wx), dot(x, Px), square, 8.0 * roundoff(x) * square)

    def _forecast_rows(self, x: Tensor) -> Forecast:
        """Return the forecasts of a block's rounds, ``(*B, n, d)``."""
        Wx, Px = matmul(x, self.V_inv), matmul(x, self.P)
        square = row_dots(x, x)
        return Forecast(x, Wx, Px, row_dots(x, Wx), row_dots(x, Px), square, 8.0 * roundoff(x) * square)

    def _least_noise(self, rounds: Tensor, like: Tensor, factor: float) -> Tensor:
        """Return the least noise scale, in units of the bound of a mean.

        ``rounds``, ``(*B)``, counts the rounds learnt, the present ones included.
        """
        least = max(factor, math.sqrt(45.0 * roundoff(like)))
        return along(least * sqrt(real(rounds, like)), like)

    def _error_bar(self, forecast: Forecast) -> Tensor:
        """Return the norm that the radius multiplies, at the round's features: ``(*B)``."""
        slack = forecast.slack
        return sqrt(at_least(forecast.xPx, 0.0) + slack * along(trace(self.P), slack))

    def _clip_level(self, nu: Tensor, error: Tensor, forecast: Forecast) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Choose scale and clip level for noise nu and a mean known to ``error``.

        Shapes are ``(*B)``, or ``(*B, n)`` for a block of rounds. nu is not below :meth:`_least_noise`. Return sigma, in units of
        the response; and in units of sigma, the clip level tau of the residual, a bound v on the second moment of the clipped
        residual, and a bound b on how far clipping moves the mean.
        """
        eps, p, tau0, xWx = self.eps, self.moment_order, self.tau0, forecast.xWx
        sqrt_t = along(sqrt(real(number(self.rounds) + 1, xWx)), xWx)
        q = sqrt(at_least(xWx, 0.0))
        # Only x = 0 has no scale, and there any scale will do.
        scale = at_least(sqrt(self._squared_scale(nu, q, error, sqrt_t)), 1e-18)
        k, c = nu / scale, error / scale
        # m = tau0 min(scale / q, growth sqrt t)
        m = tau0 * scale / maximum(q, scale / (self.growth * sqrt_t))
        tau = m + c
        if eps == 1.0:
            kk = k * k
            v = at_most(tau * tau, 1.0)  # k^2 + c^2 is 1
            b = 0.5 * kk / (m + sqrt(m * m + kk))
        else:
            v = minimum((m + 2.0 * c) ** (1.0 - eps) * k**p + c * c, tau * tau)
            b = minimum(self.bias_factor * k**p / m**eps, 0.5 * k)
        return scale, tau, v, b

    def _squared_scale(self, nu: Tensor, q: Tensor, error: Tensor, sqrt_t: Tensor) -> Tensor:
        """Return sigma^2, which balances noise against prediction error and clip level."""
        if self.eps == 1.0:
            return nu * nu + error * error
        eps, p, tau0, growth = self.eps, self.moment_order, self.tau0, self.growth
        log_nu = log(at_least(nu, 1e-30))
        s1 = (p * log_nu + (1.0 - eps) * (math.log(tau0) - log(at_least(q, 1e-30)))) / eps
        s2 = 2.0 * log_nu + 2.0 * (1.0 - eps) / p * log(tau0 * growth * sqrt_t)
        s3 = nu**p * (2.0 * error) ** (1.0 - eps)
        s = maximum(maximum(exp(minimum(s1, s2)), s3), error * error)
        # min(s / q, sqrt(s) growth sqrt t)
        reach = s / at_least(maximum(q, sqrt(s) / (growth * sqrt_t)), 1e-30)
        return nu**p * (tau0 * reach + 2.0 * error) ** (1.0 - eps) + error * error

    def _absorb_(self, forecast: Forecast, scale: Tensor, rho: Tensor, b: Tensor) -> Tensor:
        """Update all but theta_hat by a round; return the direction of theta_hat's move."""
        # rho is the weight of the round in A, b the bias of its clipping.
        x, Wx, Px, xWx, xPx, _, slack = forecast
        bias, inverse = number(self.bias), 1.0 / scale
        Rx = matvec(self.A_inv, x)
        squared_inverse = inverse * inverse
        quadratic = xWx * squared_inverse
        self._check_growth(x, quadratic)
        # Rounding may make a'Ra too small, even negative. That must not make the radius smaller.
        aRa = (at_least(dot(x, Rx), 0.0) + slack * trace(self.A_inv)) * squared_inverse
        rho_aRa = rho * aRa
        self._check_growth(x, rho_aRa, True)
        root = sqrt(aRa)
        near = sqrt(bias * bias + b * b / at_least(rho, 1e-30))
        far = (bias + b * root) / sqrt(1.0 + rho_aRa)

        rows_inverse = along(inverse, x)
        a, g = rows_inverse * x, rows_inverse * Wx

        # From here on x may change, because it may be a view of a written buffer.
        self.bias[...] = where(b <= rho * bias * root, near, far)
        increase_(self.logdet, log1p(rho_aRa))
        h = g / along(1.0 + quadratic, x)
        # Joseph's form, expanded: P <- (I - h a') P (I - a h') + rho h h'.
        half = 0.5 * (xPx * squared_inverse + rho)
        subtract_outers_(self.P, h, rows_inverse * Px - along(half, x) * h)
        root_rho = along(sqrt(rho), x)
        add_outer_(self._weighted_precision(), root_rho * a, root_rho * rows_inverse * Rx, rho_aRa)
        self._add_outer_(a, g, quadratic)
        return h

    def _absorb_block_(
        self, forecast: Forecast, scale: Tensor, rho: Tensor, b: Tensor, pull: Tensor, count: Tensor
    ) -> Tensor:
        """Update all but theta_hat by a block of rounds; return theta_hat's move.

        ``pull``, ``(*B, n)`` or ``(*B, n, outputs)``, multiplies a in the move. ``count``, ``(*B)``, is the number of rounds, of
        all workers together.
        """
        x, slack = forecast.x, forecast.slack
        a = x / scale.unsqueeze(-1)
        aRa = (at_least(row_dots(matmul(x, self.A_inv), x), 0.0) + slack * along(trace(self.A_inv), slack)) / (
            scale * scale
        )
        # A round with x = 0 moves nothing.
        b = where(forecast.square > 0.0, b, 0.0 * b)
        near, far = (b * b / at_least(rho, 1e-30)).sum(-1), (b * sqrt(aRa)).sum(-1)
        moves = pull if pull.dim() > rho.dim() else pull.unsqueeze(-1)
        squares, weighted, moved, biases = self._totals(
            [gram(a, a), gram(rho.unsqueeze(-1) * a, a), gram(a, moves), torch.stack([near, far], -1)]
        )
        bias, rounds = self.bias, self.rounds
        near, far = sqrt(bias * bias + biases[..., 0]), bias + biases[..., 1]

        V_factor, inflation = add_squares_(self._precision(), squares)
        self._check_block(inflation)
        A_factor, inflation = add_squares_(self._weighted_precision(), weighted)
        self._check_block(inflation, True)
        # P = V^-1 A V^-1 from its root: W A W would lose digits.
        root = torch.cholesky_solve(A_factor, V_factor)
        self.P.copy_(matmul(root, root.mT))
        assign_(bias, minimum(near, far))
        assign_(self.logdet, at_least(log_det(A_factor) - self.dim * math.log(self.ridge), 0.0))
        rounds += count
        move = solved(V_factor, moved)
        return move if pull.dim() > rho.dim() else move.squeeze(-1)

    def _weighted_precision(self) -> PrecisionMatrix:
        """Return A with its inverse."""
        return (self.A, self.A_inv, self.A_lost)

    def _end_round_(self) -> None:
        if self._count_round():
            refine_(self._precision(), self.rounds)
            refine_(self._weighted_precision(), self.rounds)
