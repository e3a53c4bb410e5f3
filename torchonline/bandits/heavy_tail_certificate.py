"""The certificate of heavy-tailed regressions: how far to clip, and the matrix A and the bias that the radius is made of."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.jit import is_scripting

from torchonline.bandits.linear_model import LinearModel
from torchonline.core.checks import within
from torchonline.core.ops import (
    along,
    at_least,
    at_most,
    dot,
    exp,
    fill_,
    increase_,
    log,
    log1p,
    matvec,
    maximum,
    minimum,
    real,
    roundoff,
    row_dots,
    rows_times,
    sqrt,
    trace,
    where,
)
from torchonline.linalg import add_diagonal, fill_identity_, grow_, subtract_outers_


class HeavyTailCertificate(LinearModel):
    r"""What heavy-tailed regressions of one output and of several share: the clip level, and the matrix A of the radius.

    A round, for the subclass: predict, and bound the error of the prediction; :meth:`_clip_level`; clip what came, weigh it
    by :math:`\rho`; :meth:`_absorb_`, which returns the direction in which theta_hat moves. docs/heavy_tail_regression.md
    has the proof.
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        A_lost: Tensor | None
    A: Tensor
    A_inv: Tensor
    P: Tensor
    logdet: Tensor
    bias: Tensor

    def _set_moment_order(self, moment_order: float) -> None:
        self.moment_order = within("moment_order", moment_order, 1.0, 2.0, closed=True)
        # The clip level is at most tau0 * growth * sqrt(t) scales.
        self.growth = 3.0
        eps = self.moment_order - 1.0
        self.eps = eps
        self.bias_factor = eps**eps / (1.0 + eps) ** (1.0 + eps)
        self.tau0 = 3.0 if eps == 1.0 else min(3.0, 1.75 * self.bias_factor * eps / (1.0 - eps))

    def _initial_state(self) -> dict[str, Tensor | None]:
        state = super()._initial_state()
        zero = torch.zeros((), dtype=torch.float64)
        return state | {
            "A": state["V"],
            "A_lost": state["V_lost"],
            "A_inv": state["V_inv"],
            "P": state["V_inv"],
            "logdet": zero,
            "bias": zero,
        }

    def _forget_(self, due: Tensor) -> None:
        self._forget_regression_(due)
        fill_identity_(self.A, self.A_lost, due, self.ridge)
        fill_identity_(self.A_inv, None, due, 1.0 / self.ridge)
        fill_identity_(self.P, None, due, 1.0 / self.ridge)
        fill_(self.logdet, due, 0.0)
        fill_(self.bias, due, 0.0)

    def width_matrix(self) -> Tensor:
        return self.P

    def _squared_width(self, x: Tensor) -> Tensor:
        # Most of what rounding may have taken from P is given back.
        matrix = add_diagonal(self.P, 8.0 * roundoff(x) * trace(self.P))
        return row_dots(rows_times(x, matrix), x)

    def _clip_level(
        self, noise_scale: Tensor, bound: Tensor, error: Tensor, xWx: Tensor, unit: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is known of a round before its response.

        Args:
            noise_scale: the p-norm of the noise.
            bound: the largest mean that theta_bound allows.
            error: how far the prediction may be from the mean.
            xWx: x'V^-1x.
            unit: the spacing of floating-point numbers at 1.

        Returns:
            Its scale sigma and, in units of sigma, the clip level tau of what is left over the prediction, a bound on the
            second moment of what is clipped, and one on how much clipping moves its mean.
        """
        eps, p, tau0 = self.eps, self.moment_order, self.tau0
        sqrt_t = sqrt(real(self.rounds + 1, xWx))
        # Below this noise scale, rounding decides.
        nu = maximum(math.sqrt(45.0 * unit) * bound * sqrt_t, noise_scale)
        q = sqrt(at_least(xWx, 0.0))
        # Only x = 0 has no scale, and there any will do.
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
        """sigma^2, which balances the noise against the error of the prediction and the clip level."""
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

    def _absorb_(
        self,
        x: Tensor,
        Wx: Tensor,
        Px: Tensor,
        xWx: Tensor,
        xPx: Tensor,
        slack: Tensor,
        inverse: Tensor,
        rho: Tensor,
        b: Tensor,
    ) -> Tensor:
        """Add a round of scale 1 / ``inverse`` and weight ``rho`` to all but theta_hat; the direction in which that moves.

        ``slack``, 8 roundoffs times x'x, times a matrix's trace, is most of what rounding may have taken from x'Mx.
        Refuses before it writes. Writes before it returns: ``x`` may be a view of what is written.
        """
        V_inv, A_inv, bias = self.V_inv, self.A_inv, self.bias
        Rx = matvec(A_inv, x)
        xRx = dot(x, Rx)
        squared_inverse = inverse * inverse
        quadratic = xWx * squared_inverse
        if not is_scripting():
            self._check_quadratic(x, quadratic)
        # A rounded a'Ra may be too small, even negative: never let it make the radius smaller.
        aRa = (at_least(xRx, 0.0) + slack * trace(A_inv)) * squared_inverse
        rho_aRa = rho * aRa
        if not is_scripting():
            self._check_quadratic(x, rho_aRa, self.response)
        root = sqrt(aRa)
        near = sqrt(bias * bias + b * b / at_least(rho, 1e-30))
        far = (bias + b * root) / sqrt(1.0 + rho_aRa)

        rows_inverse = along(inverse, x)
        a, g = rows_inverse * x, rows_inverse * Wx

        bias[...] = where(b <= rho * bias * root, near, far)
        increase_(self.logdet, log1p(rho_aRa))
        h = g / along(1.0 + quadratic, x)
        # Joseph's form, expanded: P <- (I - h a') P (I - a h') + rho h h'.
        half = 0.5 * (xPx * squared_inverse + rho)
        subtract_outers_(self.P, h, rows_inverse * Px - along(half, x) * h)
        root_rho = along(sqrt(rho), x)
        grow_(self.V, self.V_lost, V_inv, a, g, quadratic)
        grow_(self.A, self.A_lost, A_inv, root_rho * a, root_rho * rows_inverse * Rx, rho_aRa)
        if self._count_round():
            self._refine_(V_inv, self.V)
            self._refine_(A_inv, self.A)
        return h
