"""One-pass regression under heavy tails with a proved, computable radius, and UCB over it."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.jit import is_scripting

from torchonline.arrays import (
    along,
    at_least,
    at_most,
    clip,
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
from torchonline.bandits.estimator import Estimator, LinearModel, default_ridge
from torchonline.bandits.policies import UCB
from torchonline.checks import non_negative, one_of, within
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


class HeavyTailRegression(HeavyTailCertificate, Estimator):
    r"""Linear regression from rewards whose noise has barely a finite moment, with a certified confidence radius.

    Round :math:`t`, with prediction :math:`x^\top\hat\theta` and its error bar :math:`w = \text{radius}\cdot\text{width}(x)`:

    1. ``x`` and ``noise_scale`` are known; the prediction is cut to what ``theta_bound`` allows, which leaves an interval
       around a centre :math:`z`, and the scale :math:`\sigma^2 = \nu^2 + \min(w, S\|x\|)^2` is set (``moment_order`` 2);
    2. the reward comes, and :math:`\psi = \text{clip}((r - z)/\sigma, \pm\tau)`;
    3. with :math:`a = x/\sigma`, one step of ridge regression on the clipped pseudo-reward :math:`z + \sigma\psi`,

       .. math:: V \leftarrow V + aa^\top,\quad
                 \hat\theta \leftarrow \hat\theta + V^{-1}a\,(\psi + (z - x^\top\hat\theta)/\sigma),\quad
                 A \leftarrow A + \rho\,aa^\top,

       where :math:`\rho = \psi^2/3 + 2v/3` weighs the round by what was seen (:math:`\psi^2`) and by the bound :math:`v` on
       what could have been. Widths are in the norm of ``P`` :math:`= V^{-1}AV^{-1}`; no horizon and no projection is needed.

    Guarantee (``noise="moment"``). If :math:`E[\eta_t \mid \text{past}, x_t] = 0`,
    :math:`E[|\eta_t|^p \mid \text{past}, x_t] \le \nu_t^p` with p = ``moment_order`` and :math:`\nu_t` = ``noise_scale`` known
    before the reward, and :math:`\|\theta^*\| \le` ``theta_bound``, then with probability at least 1 - ``delta``, for all
    rounds and all x at once,

    .. math:: |x^\top(\hat\theta - \theta^*)| \le \text{radius}\cdot\text{width}(x),\qquad
              \text{radius} = \sqrt{2\log\tfrac1\delta + \log\det\tfrac{A}{\lambda} + \lambda S^2} + \text{bias}.

    It holds for features of any size, any way of choosing them, and with ``noise="symmetric"`` for noise that is
    symmetric given the past and x, with no moment at all (skewed noise breaks it). It holds for delayed rewards if what is
    late or lost does not depend on the reward. The proof, with every constant of the algorithm, is in
    docs/heavy_tail_regression.md; it mixes the supermartingale of Delyon's inequality
    :math:`e^{y - y^2/6} \le 1 + y + y^2/3` over a Gaussian prior. At ``moment_order`` 2 and ``delta`` = 1/T, UCB over it
    has an expected regret of :math:`\tilde O(d\sqrt{\sum\nu_t^2} + d^2 S L)` over T rounds, at the default ``ridge``, for
    features no longer than L and :math:`\nu_t` bounded away from 0 (Theorem 2 there).

    ``noise_scale`` or ``theta_bound`` too large is valid and costs regret; too small voids the guarantee, often without a trace
    in the data. ``radius_scale`` other than 1 is a heuristic.

    With ``restart_every`` the guarantee holds in each epoch in which the parameter does not move, with probability at least
    1 - ``delta`` for that epoch alone, and says nothing of an epoch in which it does: there the clip is centred on a stale
    prediction. For a parameter that jumps now and then docs/drift.md has a regret bound; for one that drifts without a rest
    it is the recipe of :class:`OFUL` without its theorem.

    Cost of a round: O(d^2) time and five d x d matrices (seven in float32), whatever the round.

    Raises, from ``step`` besides what the contract says: ValueError if one round outweighs all that the state's dtype can
    resolve. With ``noise="symmetric"``, which must not clip, that is an outlier of some 10^7 error bars in float64.

    Args:
        dim: d, number of features.
        noise: "moment", or "symmetric" (uses neither ``noise_scale`` nor ``moment_order``).
        moment_order: p in (1, 2]. 2 is finite variance; less is for noise without one, and more cautious.
        noise_scale: :math:`\nu \ge 0`, the p-norm :math:`(E|\eta|^p)^{1/p}` of the noise, in units of the reward; ``step`` takes
            each round's own where it is known. At ``moment_order`` 2 it is the standard deviation.
        theta_bound: S > 0, a bound on the norm of the true parameter.
        ridge: :math:`\lambda > 0`; None for d / S^2.
        delta: probability in (0, 1) that the confidence set ever fails.
        radius_scale: multiplies the radius, in the choice and in the update alike.
        restart_every: rounds after which everything is forgotten, for a parameter that moves; None never forgets.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64, or torch.float32 where the last digits do not matter: a radius of proof needs float64.
        device: where the state lives.
        validate: whether values are checked in each call.

    Shape:
        - ``theta_hat``, ``(*B, d)``; ``V``, ``V_inv``, ``A``, ``A_inv``, ``P``, ``(*B, d, d)``; ``logdet``, ``bias``,
          ``rounds``, ``(*B)``. ``rounds`` counts from the last start.

    Example:
        >>> learner, ridge = HeavyTailRegression(2, noise_scale=0.5), RidgeRegression(2, noise_scale=0.5)
        >>> x = torch.tensor([1.0, 0.0])
        >>> for reward in [0.5] * 100 + [1e9] + [0.5] * 100:
        ...     learner.step(x, torch.tensor(reward))
        ...     ridge.step(x, torch.tensor(reward))
        >>> print(f"{learner(x):.2f} where ridge regression says {ridge(x):.0f}")
        0.59 where ridge regression says 4950496

    Reference:
        The estimator is of the family of Wang, Zhang, Zhao and Zhou, Heavy-Tailed Linear Bandits: Huber Regression with
        One-Pass Update, ICML 2025 (arXiv:2503.00419), :class:`HuberRegression` here. It differs in the clip level, which
        grows with the error bar instead of shrinking with a radius of thousands; in the matrix A, which makes the
        certificate; and in having neither horizon nor projection.
    """

    statistics_depend_on: tuple[str, ...] = (
        "is_symmetric",
        "moment_order",
        "theta_bound",
        "ridge",
        "delta",
        "radius_scale",
        "restart_every",
    )

    def __init__(
        self,
        dim: int,
        *,
        noise: str = "moment",
        moment_order: float = 2.0,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        restart_every: int | None = None,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            dim,
            noise_scale=non_negative("noise_scale", noise_scale),
            theta_bound=theta_bound,
            ridge=default_ridge(dim, theta_bound) if ridge is None else ridge,
            radius_scale=radius_scale,
            restart_every=restart_every,
            batch_shape=batch_shape,
            dtype=dtype,
            device=device,
            validate=validate,
        )
        self.noise = one_of("noise", noise, ("moment", "symmetric"))
        self.is_symmetric = noise == "symmetric"
        self._set_moment_order(moment_order)
        self.delta = within("delta", delta, 0.0, 1.0)
        self.log_term = -2.0 * math.log(self.delta) + self.ridge * self.theta_bound**2
        self._create_buffers()

    @torch.jit.export
    def radius(self) -> Tensor:
        return self.radius_scale * (sqrt(self.logdet + self.log_term) + self.bias)

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, unit = self.theta_hat, roundoff(x)
        # What is known before the reward: the prediction, its error bar, and the interval that theta_bound leaves.
        Wx, Px = matvec(self.V_inv, x), matvec(self.P, x)
        xWx, xPx, xx = dot(x, Wx), dot(x, Px), dot(x, x)
        mean = dot(x, theta_hat)
        bound = self.theta_bound * sqrt(xx)
        slack = 8.0 * unit * xx
        width = self.radius() * sqrt(at_least(xPx, 0.0) + slack * trace(self.P))
        error = minimum(width, bound)
        centre = clip(0.5 * (maximum(mean - width, -bound) + minimum(mean + width, bound)), bound)

        if self.is_symmetric:
            scale = 0.0 * xx + 1.0
            innovation = reward - centre
            rho = (abs(innovation) + error) ** 2
            b = 0.0 * xx
        else:
            scale, tau, v, b = self._clip_level(noise_scale, bound, error, xWx, unit)
            innovation = clip((reward - centre) / scale, tau)
            rho = (innovation * innovation + 2.0 * v) / 3.0

        inverse = 1.0 / scale
        h = self._absorb_(x, Wx, Px, xWx, xPx, slack, inverse, rho, b)
        theta_hat += along(innovation + (centre - mean) * inverse, x) * h


class HeavyTailUCB(UCB):
    """Optimism over :class:`HeavyTailRegression`: the library's bandit for heavy-tailed rewards.

    The arguments, the guarantee and the cost are the estimator's.

    Example:
        >>> policy = HeavyTailUCB(2, noise_scale=4.5, delta=0.05)  # Student-t rewards with 2.1 degrees of freedom
        >>> arms = torch.eye(2)
        >>> choice = policy.select(arms)
        >>> policy.step(arms[choice], torch.tensor(0.7))
        >>> int(policy.estimator.rounds)
        1
    """

    def __init__(
        self,
        dim: int,
        *,
        noise: str = "moment",
        moment_order: float = 2.0,
        noise_scale: float = 1.0,
        theta_bound: float = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        restart_every: int | None = None,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            HeavyTailRegression(
                dim,
                noise=noise,
                moment_order=moment_order,
                noise_scale=noise_scale,
                theta_bound=theta_bound,
                ridge=ridge,
                delta=delta,
                radius_scale=radius_scale,
                restart_every=restart_every,
                batch_shape=batch_shape,
                dtype=dtype,
                device=device,
                validate=validate,
            )
        )
