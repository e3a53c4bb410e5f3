"""Links of the exponential families: Gaussian, Bernoulli, binomial, Poisson and gamma rewards."""

import math

import torch
from torch import Tensor

from torchonline.core.checks import positive, positive_integer
from torchonline.core.ops import exp, expm1, log, log1p, sigmoid, sigmoid_slope, softplus, where
from torchonline.links.base import Link


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


def logistic_divergence(b: Tensor, y: Tensor) -> Tensor:
    """The divergence of ``log(1 + exp(z))``, without cancellation where the two are close or far out."""
    # It is the same for -b and -y; where y is below 0 the mean is no difference of 1.
    b, y = where(y > 0.0, -b, b), where(y > 0.0, -y, y)
    distance, mean = b - y, sigmoid(y)
    near = abs(distance) <= 1.0
    small = where(near, distance, 0.0 * distance)
    close = log1p(mean * expm1(small)) - mean * small
    return where(near, close, softplus(b) - softplus(y) - mean * distance)
