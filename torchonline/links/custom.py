"""Links with user-defined functions, checked on a grid."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import on_arrays
from torchonline.core.checks import non_negative, positive
from torchonline.links.base import GRID, Link


def by_tensors(function: Callable[[Tensor], Tensor], z: Any) -> Any:
    """Apply a function of tensors to a NumPy array or number."""
    with torch.no_grad():
        values = function(torch.from_numpy(np.asarray(z))).numpy()
    return values if isinstance(z, np.ndarray) else values[()]


class CustomLink(Link):
    r"""Link with user-defined functions, checked on a grid.

    The constructor checks the functions on [-1, 1], and a learner on all allowed z. The functions take and return tensors of
    any shape. To export the learner, TorchScript must be able to compile them (``def`` or a module, not ``lambda``).

    Args:
        m: :math:`m(z)`, strictly convex.
        mu: :math:`\mu = m'`, the mean of the reward.
        dmu: :math:`\mu'`, above 0.
        R: at least 0, with :math:`|\mu''| \le R\mu'` for all z that may occur.
        C_mu: the largest :math:`\mu'` for all z that may occur; None to find it on the grid.
        noise_scale: square root of the dispersion.

    Example:
        >>> def m(z: torch.Tensor) -> torch.Tensor:
        ...     return torch.cosh(z)
        >>> def mu(z: torch.Tensor) -> torch.Tensor:
        ...     return torch.sinh(z)
        >>> CustomLink(m, mu, m, R=1.0).max_slope(1.0) >= 1.543
        True
    """

    is_global = False
    is_unimodal = False

    def __init__(
        self,
        m: Callable[[Tensor], Tensor],
        mu: Callable[[Tensor], Tensor],
        dmu: Callable[[Tensor], Tensor],
        R: float,
        C_mu: float | None = None,
        *,
        noise_scale: float = 1.0,
    ) -> None:
        super().__init__()
        for name, function in (("m", m), ("mu", mu), ("dmu", dmu)):
            if not callable(function):
                raise TypeError(f"{name}: expected a function of a tensor, got {type(function).__name__}")
        self.m, self.mu, self.dmu = m, mu, dmu
        self.R = non_negative("R", R)
        self.C_mu = None if C_mu is None else positive("C_mu", C_mu)
        self.noise_scale = positive("noise_scale", noise_scale)
        self.check_bound(1.0)
        self._signature = super().signature()

    def signature(self) -> list[tuple[str, float]]:
        return self._signature

    @on_arrays(lambda self, z: by_tensors(self.m, z))
    def log_partition(self, z: Tensor) -> Tensor:
        return self.m(z)

    @on_arrays(lambda self, z: by_tensors(self.mu, z))
    def mean(self, z: Tensor) -> Tensor:
        return self.mu(z)

    @on_arrays(lambda self, z: by_tensors(self.dmu, z))
    def slope(self, z: Tensor) -> Tensor:
        return self.dmu(z)

    def self_concordance(self, bound: float) -> float:
        return self.R

    def max_slope(self, bound: float) -> float:
        if self.C_mu is not None:
            return self.C_mu
        # Between two grid points the logarithm of mu' changes by at most R times their distance.
        return float(self.dmu(grid(bound)).max()) * math.exp(self.R * bound / (GRID - 1))

    def min_slope(self, bound: float) -> float:
        slopes = self.dmu(grid(bound))
        if type(slopes) is not Tensor:  # a fake tensor, without values
            return 1.0
        return float(slopes.min()) * math.exp(-self.R * bound / (GRID - 1))

    def check_bound(self, bound: float) -> None:
        z, h = grid(bound), 2.0 * bound / (GRID - 1)
        if type(z) is not Tensor:  # a fake tensor, without values
            return
        with torch.no_grad():
            m, mu, dmu = (self._values(name, z) for name in ("m", "mu", "dmu"))
        interval = f"[{-bound:g}, {bound:g}]"
        if not bool((dmu > 0.0).all()):
            raise ValueError(f"dmu: expected values above 0 on {interval}, got {float(dmu.min()):g}")
        # Self-concordance bounds the error of central differences relative to the local slope.
        slope = dmu[1:-1]
        for name, lower, values, derivative, allowed in (
            ("mu", "m", m, mu, slope * (self.R * h * h + 1e-7) + 1e-7 * mu[1:-1].abs()),
            ("dmu", "mu", mu, dmu, slope * ((self.R * h) ** 2 + 1e-4)),
        ):
            rounding = 1e-15 * (values[2:].abs() + values[:-2].abs()) / h
            error = ((values[2:] - values[:-2]) / (2.0 * h) - derivative[1:-1]).abs()
            excess = error - allowed - rounding
            if bool((excess > 0.0).any()):
                worst = int(excess.argmax())
                off = f"{float(error[worst]):.2g} off at {float(z[worst + 1]):g}"
                raise ValueError(f"{name}: expected the derivative of {lower} on {interval}, got one that is {off}")
        ratio = float(((dmu[2:] - dmu[:-2]) / (2.0 * h)).abs().div(slope).max())
        if ratio > self.R * (1.001 + (self.R * h) ** 2) + 1e-6:
            least = f"{ratio:.6g}, the largest |mu''| / mu' on {interval}"
            raise ValueError(f"R: expected at least {least}, got {self.R:g}")
        steepest = float(dmu.max())
        if self.C_mu is not None and steepest > self.C_mu * (1.0 + 1e-9):
            least = f"{steepest:.6g}, the largest mu' on {interval}"
            raise ValueError(f"C_mu: expected at least {least}, got {self.C_mu:g}")

    def _values(self, name: str, z: Tensor) -> Tensor:
        values = getattr(self, name)(z)
        if not isinstance(values, Tensor) or values.shape != z.shape or not values.is_floating_point():
            raise TypeError(f"{name}: expected a function that returns a tensor of floats of the shape of its argument")
        if not bool(torch.isfinite(values).all()):
            bad = int((~torch.isfinite(values)).int().argmax())
            raise ValueError(f"{name}: expected finite values, got {float(values[bad])} at {float(z[bad]):g}")
        return values.double()


def grid(bound: float) -> Tensor:
    """Return the grid points of [-bound, bound] for the checks, ``(GRID)``."""
    return torch.linspace(-bound, bound, GRID, dtype=torch.float64, device="cpu")
