r"""Links of generalized linear models: how the mean of a reward depends on :math:`z = x^\top\theta`.

Each is a canonical exponential family: given the past, the reward has the density
:math:`\exp\{(rz - m(z))/g + h(r)\}`, hence the mean :math:`\mu(z) = m'(z)` and the variance :math:`g\,\mu'(z)`.

=================  =======================  =================  ==========================  ==============
link               mean                     slope              rewards                     dispersion g
=================  =======================  =================  ==========================  ==============
:class:`Gaussian`  z                        1                  any                         noise_scale^2
:class:`Logistic`  1 / (1 + exp(-z))        p (1 - p)          in [0, 1]                   1
:class:`Binomial`  trials x logistic        trials p (1 - p)   0, 1, ..., trials           1
:class:`Poisson`   exp(z)                   exp(z)             0, 1, 2, ...                1
:class:`Gamma`     1 / (offset - z)         the mean squared   at least 0                  1 / shape
=================  =======================  =================  ==========================  ==============

A link is an ``nn.Module`` without state. Its ``log_partition``, ``mean`` and ``slope`` run on tensors and on NumPy views.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit import is_scripting

from torchonline.core.checks import non_negative, positive, positive_integer
from torchonline.core.ops import ARRAYS, at_least, exp, expm1, log, log1p, sigmoid, sigmoid_slope, where

# Points of the grids on which a maximum over an interval is looked for.
GRID = 1 << 13


class Link(nn.Module):
    r"""Base of all links.

    What a confidence set needs of one, besides the functions: a constant R with :math:`|\mu''| \le R\mu'`
    (:meth:`self_concordance`), the largest :math:`\mu'` (:meth:`max_slope`), and a lower bound of
    :math:`2D_m(b, y)/(b-y)^2` for the divergence :math:`D_m(b, y) = m(b) - m(y) - \mu(y)(b - y)` (:meth:`curvature`).

    Attributes:
        noise_scale: the square root of the dispersion g.
        reach: the functions can be computed where :math:`|z|` is below it.
        is_global: whether :meth:`self_concordance` is one number for all of the line.
        is_unimodal: whether :math:`\mu'` rises up to a point and falls from there on.
        steepest: that point.
    """

    noise_scale: float = 1.0
    reach: float = math.inf
    is_global: bool = True
    is_unimodal: bool = True
    steepest: float = 0.0

    def log_partition(self, z: Tensor) -> Tensor:
        """m(z), of any shape."""
        raise NotImplementedError

    def mean(self, z: Tensor) -> Tensor:
        """The mean reward mu(z), of any shape."""
        raise NotImplementedError

    def slope(self, z: Tensor) -> Tensor:
        """The derivative of the mean, of any shape; times g it is the variance of the reward."""
        raise NotImplementedError

    def mean_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Both, for less than the price of both; far from the steepest point the slope may have lost its last digits."""
        return self.mean(z), self.slope(z)

    def forward(self, z: Tensor) -> Tensor:
        """What :meth:`mean` returns."""
        return self.mean(z)

    def divergence(self, b: Tensor, y: Tensor) -> Tensor:
        """``D_m(b, y)``, of any shape."""
        return self.log_partition(b) - self.log_partition(y) - self.mean(y) * (b - y)

    def curvature(self, b: Tensor, y: Tensor, concordance: float) -> Tensor:
        r"""No more than :math:`2D_m(b, y)/(b-y)^2`, of any shape, for R = ``concordance`` between b and y.

        It is that number, but for points so close that rounding would spoil it.
        """
        size = abs(b - y)
        close = size <= 0.02
        away = where(close, 0.0 * size + 1.0, size)
        at_hand = 2.0 * self.slope(y) / (2.0 + concordance * size)
        # A little less than it is, for rounding.
        return (1.0 - 1e-6) * where(close, at_hand, 2.0 * self.divergence(b, y) / (away * away))

    # What follows is eager Python only.

    def self_concordance(self, bound: float) -> float:
        """R, for :math:`|z|` up to ``bound``."""
        raise NotImplementedError

    def max_slope(self, bound: float) -> float:
        """The largest derivative of the mean where :math:`|z|` is at most ``bound``."""
        raise NotImplementedError

    def min_slope(self, bound: float) -> float:
        """The smallest derivative of the mean where :math:`|z|` is at most ``bound``, or a little less."""
        if not self.is_unimodal:
            raise NotImplementedError(f"{type(self).__name__} does not say where its mean is flattest")
        ends: Any = np.array([-bound, bound])
        return float(self.slope(ends).min())

    def possible(self, values: Tensor) -> Tensor:
        """The rewards nearest to any numbers; rewards themselves, among them 0 and 1, are left as they are."""
        return values

    def rewards(self) -> str:
        """Which rewards are possible, in words."""
        return "any"

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Independent rewards of the family at each z: float64, on the CPU."""
        raise NotImplementedError(f"{type(self).__name__} does not say by which law rewards are drawn")

    def signature(self) -> list[tuple[str, float]]:
        """Numbers that tell one link from another, by name, for checkpoints."""
        points: Any = min(1.0, self.reach) * np.array([-0.5, -0.25, 0.25, 0.5])
        means = zip(points.tolist(), self.mean(points).tolist(), strict=True)
        return [(f"the link's mean at {z:g}", mean) for z, mean in means]

    def check_bound(self, bound: float) -> None:
        """Refuse a link that does not hold what it promises where :math:`|z|` is at most ``bound``."""
        if bound >= self.reach:
            raise ValueError(
                f"theta_bound: expected |x'theta| below {self.reach:g}, the reach of {type(self).__name__}, "
                f"got up to {bound:g}"
            )

    def curvature_ratio(self, bound: float) -> float:
        r"""At least the largest :math:`\mu'(y)(b-y)^2/(2D_m(b,y))` for b and y in [-bound, bound]; at least 1.

        For a unimodal slope the maximum over b is at an end. Over y it is that of a grid, times what the logarithm of the
        ratio, whose derivative is at most 2R, may rise between two of its points. Otherwise self-concordance gives
        :math:`u^2/(2(u-1+e^{-u}))` with u = 2 R bound.
        """
        concordance = self.self_concordance(bound)
        u = 2.0 * concordance * bound
        if u < 1e-6:
            return 1.0 + u
        by_concordance = u * u / (2.0 * (u + math.expm1(-u)))
        # A grid must not be too coarse, nor slopes too small for floating-point numbers.
        if not self.is_unimodal or u > GRID or self.min_slope(bound) < 1e-290:
            return by_concordance
        y: Any = np.linspace(-bound, bound, GRID)
        ratios = [self.slope(y) / self.curvature(0.0 * y + b, y, concordance) for b in (-bound, bound)]
        return min(float(np.max(ratios)) * math.exp(u / (GRID - 1)), by_concordance)


class Gaussian(Link):
    """Rewards with noise that is sub-Gaussian of scale ``noise_scale``, the Gaussian law being one: the mean is z.

    Args:
        noise_scale: sigma > 0, in units of the reward.

    Example:
        >>> Gaussian(0.5).mean(torch.tensor([1.0, -2.0]))
        tensor([ 1., -2.])
    """

    def __init__(self, noise_scale: float = 1.0) -> None:
        super().__init__()
        self.noise_scale = positive("noise_scale", noise_scale)

    def extra_repr(self) -> str:
        return f"{self.noise_scale:g}"

    def log_partition(self, z: Tensor) -> Tensor:
        return 0.5 * z * z

    def mean(self, z: Tensor) -> Tensor:
        return z + 0.0

    def slope(self, z: Tensor) -> Tensor:
        return 0.0 * z + 1.0

    def divergence(self, b: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (b - y) * (b - y)

    def self_concordance(self, bound: float) -> float:
        return 0.0

    def max_slope(self, bound: float) -> float:
        return 1.0

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        return z + self.noise_scale * torch.randn(z.shape, generator=generator, dtype=torch.float64)


class Logistic(Link):
    """Clicks and other yes or no, 1 or 0; and any reward in [0, 1]: the mean is 1 / (1 + exp(-z)).

    For a reward in [0, 1] nothing but its mean need be as said: its exponential moments are below those of a yes or no of
    the same mean, and that is all that the confidence sets ask for.

    Example:
        >>> Logistic().mean(torch.tensor([0.0, 80.0, -80.0], dtype=torch.float64))
        tensor([5.0000e-01, 1.0000e+00, 1.8049e-35], dtype=torch.float64)
    """

    def log_partition(self, z: Tensor) -> Tensor:
        return softplus(z)

    def mean(self, z: Tensor) -> Tensor:
        return sigmoid(z)

    def slope(self, z: Tensor) -> Tensor:
        return sigmoid_slope(z)

    def mean_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mean = sigmoid(z)
        return mean, mean * (1.0 - mean)

    def divergence(self, b: Tensor, y: Tensor) -> Tensor:
        return logistic_divergence(b, y)

    def self_concordance(self, bound: float) -> float:
        return 1.0

    def max_slope(self, bound: float) -> float:
        return 0.25

    def possible(self, values: Tensor) -> Tensor:
        return values.clamp(0.0, 1.0)

    def rewards(self) -> str:
        return "in [0, 1]"

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        # From one uniform number each, whatever z is.
        uniform = torch.rand(z.shape, generator=generator, dtype=torch.float64)
        return (uniform < self.mean(z)).to(torch.float64)


class Binomial(Link):
    """How many of a number of independent tries succeeded, each with probability 1 / (1 + exp(-z)).

    Tries that succeed together are not independent: their number spreads wider, and the confidence sets fail. Their share,
    a reward in [0, 1], is for :class:`Logistic`.

    Args:
        trials: n, how many tries make a reward.

    Example:
        >>> Binomial(10).mean(torch.tensor(0.0))
        tensor(5.)
    """

    def __init__(self, trials: int) -> None:
        super().__init__()
        self.trials = float(positive_integer("trials", trials))

    def extra_repr(self) -> str:
        return f"{self.trials:.0f}"

    def log_partition(self, z: Tensor) -> Tensor:
        return self.trials * softplus(z)

    def mean(self, z: Tensor) -> Tensor:
        return self.trials * sigmoid(z)

    def slope(self, z: Tensor) -> Tensor:
        return self.trials * sigmoid_slope(z)

    def mean_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        share = sigmoid(z)
        return self.trials * share, self.trials * share * (1.0 - share)

    def divergence(self, b: Tensor, y: Tensor) -> Tensor:
        return self.trials * logistic_divergence(b, y)

    def self_concordance(self, bound: float) -> float:
        return 1.0

    def max_slope(self, bound: float) -> float:
        return 0.25 * self.trials

    def possible(self, values: Tensor) -> Tensor:
        return values.round().clamp(0.0, self.trials)

    def rewards(self) -> str:
        return f"whole numbers from 0 to {self.trials:.0f}"

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        count = torch.full(z.shape, self.trials, dtype=torch.float64)
        return torch.binomial(count, torch.sigmoid(z.double()), generator=generator)


class Poisson(Link):
    """Counts: the mean is exp(z), and so is the variance.

    Counts that vary more than that (over-dispersed ones) break the confidence sets. ``|z|`` up to 80 can be computed.

    Example:
        >>> Poisson().slope(torch.tensor([0.0, 1.0]))
        tensor([1.0000, 2.7183])
    """

    reach = 80.0 + 1e-9
    steepest = math.inf

    def log_partition(self, z: Tensor) -> Tensor:
        return exp(z)

    def mean(self, z: Tensor) -> Tensor:
        return exp(z)

    def slope(self, z: Tensor) -> Tensor:
        return exp(z)

    def mean_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mean = exp(z)
        return mean, mean

    def divergence(self, b: Tensor, y: Tensor) -> Tensor:
        return exp(y) * (expm1(b - y) - (b - y))

    def self_concordance(self, bound: float) -> float:
        return 1.0

    def max_slope(self, bound: float) -> float:
        return math.exp(bound)

    def possible(self, values: Tensor) -> Tensor:
        return values.round().clamp(min=0.0)

    def rewards(self) -> str:
        return "whole numbers from 0 on"

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        mean = z.double().exp()
        counts = torch.poisson(mean.clamp(max=1e12), generator=generator)
        if bool((mean > 1e12).any()):  # beyond the integers of torch's sampler: the normal law of the same variance
            normal = (mean + mean.sqrt() * torch.randn(z.shape, generator=generator, dtype=torch.float64)).round()
            counts = torch.where(mean > 1e12, normal, counts)
        return counts


class Gamma(Link):
    r"""Waiting times and amounts, of shape k and mean 1 / (offset - z); the exponential law is shape 1.

    The natural parameter of this family is negative, so a known offset has to keep it there: :math:`|z|` must stay below
    it. The constants depend on how near it comes: :math:`R = 2/(\text{offset} - \text{bound})`.

    Args:
        offset: above every :math:`|z|` that may occur.
        shape: k > 0; the dispersion is 1 / k.

    Example:
        >>> Gamma(offset=2.0).mean(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([0.3333, 0.5000, 1.0000])
    """

    is_global = False
    steepest = math.inf

    def __init__(self, offset: float, shape: float = 1.0) -> None:
        super().__init__()
        self.offset = self.reach = positive("offset", offset)
        self.noise_scale = 1.0 / math.sqrt(positive("shape", shape))

    def extra_repr(self) -> str:
        return f"{self.offset:g}, shape={self.noise_scale**-2:g}"

    def log_partition(self, z: Tensor) -> Tensor:
        return -log(self.offset - z)

    def mean(self, z: Tensor) -> Tensor:
        return 1.0 / (self.offset - z)

    def slope(self, z: Tensor) -> Tensor:
        mean = 1.0 / (self.offset - z)
        return mean * mean

    def mean_and_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mean = 1.0 / (self.offset - z)
        return mean, mean * mean

    def divergence(self, b: Tensor, y: Tensor) -> Tensor:
        share = (b - y) / (self.offset - y)
        return -log1p(-share) - share

    def self_concordance(self, bound: float) -> float:
        return 2.0 / (self.offset - bound)

    def max_slope(self, bound: float) -> float:
        return (self.offset - bound) ** -2

    def possible(self, values: Tensor) -> Tensor:
        return values.clamp(min=0.0)

    def rewards(self) -> str:
        return "at least 0"

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        shape = self.noise_scale**-2
        draws = torch._standard_gamma(torch.full(z.shape, shape, dtype=torch.float64), generator=generator)
        return draws / shape * self.mean(z.double())


class CustomLink(Link):
    r"""A link of one's own, checked on a grid.

    The functions take and return tensors of any shape. A module with ``forward`` will do; a function must be one that
    TorchScript can compile (``def``, not ``lambda``) if the learner is to become a file.

    Args:
        m: :math:`m(z)`, strictly convex.
        mu: :math:`\mu = m'`, the mean of the reward.
        dmu: :math:`\mu'`, above 0.
        R: at least 0, with :math:`|\mu''| \le R\mu'` for all :math:`|z|` that may occur.
        C_mu: the largest :math:`\mu'` there; None to find it on the grid.
        noise_scale: the square root of the dispersion.

    The checks run over [-1, 1] at once, and over all :math:`|z|` that a learner allows when it is built.

    Raises:
        ValueError: one of the functions is not the derivative of the one before, is not finite, not above 0, or breaks R or C_mu.

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

    def log_partition(self, z: Tensor) -> Tensor:
        if not is_scripting():
            if isinstance(z, ARRAYS):
                return on_tensors(self.m, z)
        return self.m(z)

    def mean(self, z: Tensor) -> Tensor:
        if not is_scripting():
            if isinstance(z, ARRAYS):
                return on_tensors(self.mu, z)
        return self.mu(z)

    def slope(self, z: Tensor) -> Tensor:
        if not is_scripting():
            if isinstance(z, ARRAYS):
                return on_tensors(self.dmu, z)
        return self.dmu(z)

    def self_concordance(self, bound: float) -> float:
        return self.R

    def max_slope(self, bound: float) -> float:
        if self.C_mu is not None:
            return self.C_mu
        # Between two points of the grid the logarithm of mu' may rise by R for each unit of the way.
        return float(self.dmu(grid(bound)).max()) * math.exp(self.R * bound / (GRID - 1))

    def min_slope(self, bound: float) -> float:
        # As with the largest, it may fall by as much.
        slopes = self.dmu(grid(bound))
        if type(slopes) is not Tensor:  # one that has a shape and no values
            return 1.0
        return float(slopes.min()) * math.exp(-self.R * bound / (GRID - 1))

    def check_bound(self, bound: float) -> None:
        z, h = grid(bound), 2.0 * bound / (GRID - 1)
        if type(z) is not Tensor:  # one that has a shape and no values
            return
        with torch.no_grad():
            m, mu, dmu = (self._values(name, z) for name in ("m", "mu", "dmu"))
        interval = f"[{-bound:g}, {bound:g}]"
        if not bool((dmu > 0.0).all()):
            raise ValueError(f"dmu: expected values above 0 on {interval}, got {float(dmu.min()):g}")
        # By central differences, which self-concordance keeps near the derivative, relative to the slope of that place.
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
                raise ValueError(
                    f"{name}: expected the derivative of {lower} on {interval}, got one that is {float(error[worst]):.2g} off "
                    f"at {float(z[worst + 1]):g}"
                )
        ratio = float(((dmu[2:] - dmu[:-2]) / (2.0 * h)).abs().div(slope).max())
        if ratio > self.R * (1.001 + (self.R * h) ** 2) + 1e-6:
            raise ValueError(
                f"R: expected at least {ratio:.6g}, the largest |mu''| / mu' on {interval}, got {self.R:g}"
            )
        if self.C_mu is not None and float(dmu.max()) > self.C_mu * (1.0 + 1e-9):
            raise ValueError(
                f"C_mu: expected at least {float(dmu.max()):.6g}, the largest mu' on {interval}, got {self.C_mu:g}"
            )

    def _values(self, name: str, z: Tensor) -> Tensor:
        values = getattr(self, name)(z)
        if not isinstance(values, Tensor) or values.shape != z.shape or not values.is_floating_point():
            raise TypeError(f"{name}: expected a function that returns a tensor of floats of the shape of its argument")
        if not bool(torch.isfinite(values).all()):
            bad = float(z[~torch.isfinite(values)][0])
            raise ValueError(
                f"{name}: expected finite values, got {float(values[~torch.isfinite(values)][0])} at {bad:g}"
            )
        return values.double()


def grid(bound: float) -> Tensor:
    """The points of an interval at which a custom link is looked at, ``(GRID)``."""
    return torch.linspace(-bound, bound, GRID, dtype=torch.float64, device="cpu")


def logistic_divergence(b: Tensor, y: Tensor) -> Tensor:
    """The divergence of ``log(1 + exp(z))``, without cancellation where the two are close or far out."""
    # It is the same for -b and -y; where y is below 0 the mean is no difference of 1.
    b, y = where(y > 0.0, -b, b), where(y > 0.0, -y, y)
    distance, mean = b - y, sigmoid(y)
    near = abs(distance) <= 1.0
    small = where(near, distance, 0.0 * distance)
    close = log1p(mean * expm1(small)) - mean * small
    return where(near, close, softplus(b) - softplus(y) - mean * distance)


def softplus(z: Tensor) -> Tensor:
    """``log(1 + exp(z))``."""
    if not is_scripting():
        if isinstance(z, float):
            return max(z, 0.0) + math.log1p(math.exp(-abs(z)))
    return at_least(z, 0.0) + log1p(exp(-abs(z)))


@torch.jit.unused
def on_tensors(function: Callable[[Tensor], Tensor], z: Any) -> Any:
    """A function of tensors on a NumPy array or number."""
    with torch.no_grad():
        values = function(torch.from_numpy(np.asarray(z))).numpy()
    return values if isinstance(z, np.ndarray) else values[()]
