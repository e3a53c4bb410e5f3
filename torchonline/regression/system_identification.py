"""Identification of linear systems under heavy-tailed noise, with proved radii."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.backend import in_python
from torchonline.core.checks import check_state_dtype, positive, positive_integer, positive_size
from torchonline.core.ops import (
    along,
    clip,
    largest,
    matmul,
    matvec,
    maximum,
    minimum,
    number,
    roundoff,
    row_dots,
    sqrt,
    trace,
)
from torchonline.core.options import LearnerOptions
from torchonline.core.precision_matrix import add_outer_product_
from torchonline.regression.arguments import on_rows, step_rounds
from torchonline.regression.blocks import learn_in_blocks
from torchonline.regression.estimator import default_ridge
from torchonline.regression.heavy_tail_certificate import Forecast, HeavyTailCertificate


class SystemIdentification(HeavyTailCertificate):
    r"""Identification of the system :math:`y = \Theta^\top x + w` under heavy tails.

    The next state y depends on the features x, such as the state and the input side by side. A round,
    ``learner.step(x, next_state)``, is one of :class:`HeavyTailRegression` on each of y's n components, the outputs, which
    share all but :math:`\hat\Theta`. Output i has a centre :math:`z_i` and a prediction error :math:`c_i` in units of its noise
    scale :math:`\nu_i`. With :math:`\sigma^2 = 1 + \max_i c_i^2` (``moment_order`` 2), :math:`a = x/\sigma` and
    :math:`\psi_i = \text{clip}((y_i - z_i)/(\nu_i\sigma), \pm\tau)`,

    .. math:: V \leftarrow V + aa^\top,\quad \hat\theta_i \leftarrow \hat\theta_i + V^{-1}a\,(\nu_i\psi_i +
              (z_i - x^\top\hat\theta_i)/\sigma),\quad A \leftarrow A + \rho\,aa^\top,\quad \rho = \max_i\psi_i^2/3 + 2v/3.

    Widths are in the norm of ``P`` :math:`= V^{-1}AV^{-1}`.

    Guarantee. Assume for each output i that :math:`E[w_{t,i} \mid \text{past}, x_t] = 0`, that
    :math:`E[|w_{t,i}|^p \mid \text{past}, x_t] \le \nu_i^p` with p = ``moment_order``, and that its column of :math:`\Theta`
    has :math:`\|\theta_i\| \le S_i`. Then with probability at least 1 - ``delta``, for all rounds, all outputs and all x at
    once,

    .. math:: |x^\top(\hat\theta_i - \theta_i)| \le \text{radius}_i\cdot\text{width}(x),\qquad
              \text{radius}_i = \nu_i\Bigl(\sqrt{2\log\tfrac n\delta + \log\det\tfrac{A}{\lambda}
              + \lambda S_i^2/\nu_i^2} + \text{bias}\Bigr).

    The noises of the outputs may depend on each other. Features may be of any size and depend on the past in any way, so closed
    loops are allowed, stable or not. The error need not go to 0: :meth:`error_bound` bounds it, and shrinks if
    :meth:`smallest_eigenvalue` grows. Proof, and the price compared with n learners: docs/heavy_tail_regression.md.

    Cost of a round: O(d^2 + dn) time and memory, the same in every round; five d x d matrices (seven in float32).

    Args:
        dim, moment_order, radius_scale, batch_shape, dtype, device, validate: as in :class:`HeavyTailRegression`.
        outputs: n, number of components of the next state.
        noise_scale: :math:`\nu_i > 0`, as in :class:`HeavyTailRegression`, in units of output i: a number for all outputs or a
            sequence of n.
        theta_bound: :math:`S_i > 0`, a bound on the norm of column i of :math:`\Theta`: a number or a sequence of n.
        ridge: :math:`\lambda > 0`, with outputs measured in noise scales; None for d / max (S_i / nu_i)^2.
        delta: probability in (0, 1) that the confidence set of any output ever fails.

    Shape:
        - ``theta_hat``, ``(*B, d, n)``, in the units of the outputs; ``A``, ``A_inv``, ``P``, ``(*B, d, d)``; ``logdet``,
          ``bias``, ``(*B)``; ``noise_scale``, ``theta_bound``, ``(*B, n)``, which do not change.

    Example:
        >>> learner = SystemIdentification(1, 2, noise_scale=(0.1, 1.0), theta_bound=2.0)
        >>> state = torch.tensor([1.0])
        >>> for _ in range(500):
        ...     learner.step(state, torch.tensor([0.5, -1.0]) * state)
        >>> lower, upper = learner.interval(state)
        >>> print(*(f"{a:.2f} to {b:.2f}" for a, b in zip(lower, upper)))
        0.48 to 0.52 -1.21 to -0.79

    Reference:
        Wang, Zhang, Zhao and Zhou, Heavy-Tailed Linear Bandits: Huber Regression with One-Pass Update, ICML 2025
        (arXiv:2503.00419), section 5.2, names this problem and claims no theorem for it.
    """

    guarantee = "in all rounds"
    statistics_depend_on = ("moment_order", "noise_scales", "theta_bounds", "ridge", "delta", "radius_scale")
    response = "next_state"
    noise_scale: Tensor
    theta_bound: Tensor

    def __init__(
        self,
        dim: int,
        outputs: int,
        *,
        moment_order: float = 2.0,
        noise_scale: float | tuple[float, ...] | list[float] = 1.0,
        theta_bound: float | tuple[float, ...] | list[float] = 1.0,
        ridge: float | None = None,
        delta: float = 0.01,
        radius_scale: float = 1.0,
        **options: Unpack[LearnerOptions],
    ) -> None:
        outputs, dtype = positive_integer("outputs", outputs), options.get("dtype", torch.float64)
        check_state_dtype(dtype)

        def each(name: str, value: Any) -> tuple[float, ...]:
            numbers = value if isinstance(value, (tuple, list)) else (value,) * outputs
            if len(numbers) != outputs:
                raise ValueError(f"{name}: expected a number, or one for each of {outputs} outputs, got {len(numbers)}")
            return tuple(positive_size(name, number, dtype) for number in numbers)

        noise_scales, theta_bounds = each("noise_scale", noise_scale), each("theta_bound", theta_bound)
        pairs = zip(theta_bounds, noise_scales, strict=True)
        ratios = [positive("theta_bound / noise_scale", bound / scale) for bound, scale in pairs]
        ridge = default_ridge(dim, max(ratios)) if ridge is None else ridge
        super().__init__(dim, ridge, radius_scale, output_shape=(outputs,), **options)
        self.outputs, self.noise_scales, self.theta_bounds = outputs, noise_scales, theta_bounds
        self._set_certificate(moment_order, delta)
        self.log_term = 2.0 * math.log(outputs / self.delta)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {
            "noise_scale": torch.tensor(self.noise_scales, dtype=torch.float64),
            "theta_bound": torch.tensor(self.theta_bounds, dtype=torch.float64),
        }

    @on_rows
    def forward(self, x: Tensor) -> Tensor:
        """Return the predicted next state: ``(*B, ..., d)`` to ``(*B, ..., n)``."""
        x = x.to(self.theta_hat.dtype)
        if self.batch_dims == 0:
            return matmul(x, self.theta_hat)
        return matmul(self.grouped(x), self.theta_hat).reshape(list(x.shape[:-1]) + [self.outputs])

    @torch.jit.export
    @on_rows
    def interval(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Bound the mean next state, ``(*B, ..., n)``: see :meth:`Estimator.interval`."""
        x = x.to(self.theta_hat.dtype)
        mean = self.forward(x)
        radius, bound = self.radius(), self.theta_bound
        while radius.dim() < mean.dim():
            radius, bound = radius.unsqueeze(-2), bound.unsqueeze(-2)
        error = radius * self.width(x).unsqueeze(-1)
        bound = bound * sqrt(row_dots(x, x)).unsqueeze(-1)
        return maximum(mean - error, -bound), minimum(mean + error, bound)

    def radius(self) -> Tensor:
        """Return each output's radius, in its units, times ``radius_scale``: ``(*B, n)``."""
        ratio = self.theta_bound / self.noise_scale
        root = sqrt(self.logdet[..., None] + (self.log_term + self.ridge * ratio * ratio))
        return self.noise_scale * (self.radius_scale * (root + self.bias[..., None]))

    def posterior_scale(self) -> Tensor:
        """Return each output's noise scale, the unit of P: ``(*B, n)``."""
        return 1.0 * self.noise_scale

    @torch.jit.export
    @one_at_a_time
    def error_bound(self) -> Tensor:
        r"""Bound each :math:`\|\hat\theta_i - \theta_i\|`, ``(*B, n)``. Costs O(d^3)."""
        with torch.no_grad():
            square = torch.linalg.eigvalsh(self.P)[..., -1] + 8.0 * roundoff(self.P) * trace(self.P)
            return self.radius() * sqrt(square).unsqueeze(-1)

    @torch.jit.export
    @one_at_a_time
    def smallest_eigenvalue(self) -> Tensor:
        """Return lambda_min(V), the least excitation: ``(*B)``. Costs O(d^3)."""
        with torch.no_grad():
            return torch.linalg.eigvalsh(self.V)[..., 0]

    def _step_in_python(self, x: Any, next_state: Any, *, noise_scale: Any = None) -> None:
        step_rounds(self, x, next_state, noise_scale=noise_scale)

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, x: Tensor, next_state: Tensor, noise_scale: Tensor | None = None) -> None:
        """Learn from a transition, or from several in order: see :meth:`Estimator.step`.

        A transition is ``(*B, d)`` and ``(*B, n)``. The largest ``noise_scale``, ``(*B, n)``, in units of the constructor's,
        counts for all outputs.
        """
        self._learn(x, next_state, noise_scale)

    def _learn_blocks_in_python(
        self, x: Any, next_state: Any, *, noise_scale: Any = None, block_size: int | None = None, mask: Any = None
    ) -> None:
        learn_in_blocks(self, x, next_state, noise_scale, block_size, mask)

    @torch.jit.export
    @in_python(_learn_blocks_in_python)
    def learn(
        self,
        x: Tensor,
        next_state: Tensor,
        noise_scale: Tensor | None = None,
        block_size: int | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """Learn from many transitions, in blocks: see :meth:`Estimator.learn`.

        Shapes are as in :meth:`step`: ``(*B, n, d)`` and ``(*B, n, outputs)``.
        """
        self._learn_log(self.theta_hat, x, None, next_state, noise_scale, mask, block_size)

    def _own_scale(self, next_state: Tensor) -> Tensor:
        scale = self.noise_scale
        return (scale if scale.dim() == next_state.dim() else scale.unsqueeze(-2)).expand_as(next_state)

    def _observe(self, x: Tensor, next_state: Tensor, noise_scale: Tensor) -> None:
        theta_hat, own, forecast = self.theta_hat, self.noise_scale, self._forecast(x)
        least = self._least_noise(number(self.rounds) + 1, forecast.square, 0.0)
        mean = matvec(theta_hat.mT, x)
        scale, rho, b, pull = self._weigh(
            forecast, mean, next_state, noise_scale, least, own, self.theta_bound, self.radius()
        )
        h = self._absorb_(forecast, scale, rho, b)
        add_outer_product_(theta_hat, h, pull)

    def _observe_block(self, x: Tensor, next_state: Tensor, noise_scale: Tensor, count: Tensor) -> None:
        theta_hat, forecast = self.theta_hat, self._forecast_rows(x)
        least = self._least_noise(self.rounds + count, forecast.square, 1e-6)
        own, bounds, radii = self.noise_scale[..., None, :], self.theta_bound[..., None, :], self.radius()[..., None, :]
        scale, rho, b, pull = self._weigh(
            forecast, matmul(x, theta_hat), next_state, noise_scale, least, own, bounds, radii
        )
        theta_hat += self._absorb_block_(forecast, scale, rho, b, pull, count)

    def _weigh(
        self,
        forecast: Forecast,
        mean: Tensor,
        next_state: Tensor,
        noise_scale: Tensor,
        least: Tensor,
        own: Tensor,
        bounds: Tensor,
        radii: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return sigma, rho, b, and the factors of a in theta_hat's move.

        Shapes are ``(*B)``, or ``(*B, n)`` for a block, and one dimension more for values of each output. ``least`` is that of
        :meth:`_least_noise`. ``own``, ``bounds`` and ``radii`` are noise scales, bounds and radii of the outputs.
        """
        bound = bounds * along(sqrt(forecast.square), mean)
        width = radii * along(self._error_bar(forecast), mean)
        centre = clip(0.5 * (maximum(mean - width, -bound) + minimum(mean + width, bound)), bound)

        error = largest(minimum(width, bound) / own)
        nu = maximum(least * largest(bound / own), largest(noise_scale / own))
        scale, tau, v, b = self._clip_level(nu, error, forecast)
        # Clipped before it is divided, because an outlier must not overflow.
        scales = along(scale, mean) * own
        innovation = clip(next_state - centre, along(tau, mean) * scales) / scales
        rho = (largest(innovation * innovation) + 2.0 * v) / 3.0
        return scale, rho, b, own * innovation + (centre - mean) / along(scale, mean)
