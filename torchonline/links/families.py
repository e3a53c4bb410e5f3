"""Links for Gaussian, Bernoulli, binomial, Poisson and gamma rewards."""

import math

import torch
from torch import Tensor

from torchonline.core.checks import positive, positive_integer
from torchonline.core.ops import exp, expm1, log, log1p, sigmoid, sigmoid_slope, softplus, where
from torchonline.links.base import Link


class Gaussian(Link):
    """Link for linear models: the mean is z, and the noise is sub-Gaussian.

    Args:
        noise_scale: sigma > 0, the sub-Gaussian scale of the noise, in units of the reward.

    Example:
        >>> Gaussian(0.5).mean(torch.tensor([1.0, -2.0]))
        tensor([ 1., -2.])
    """

    takes_fractions = True

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

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        return z + self.noise_scale * torch.randn(z.shape, generator=generator, dtype=torch.float64)


class Logistic(Link):
    """Link for clicks and any reward in [0, 1]: the mean is 1 / (1 + exp(-z)).

    A reward in [0, 1] needs only the right mean: its exponential moments are at most those of a click with the same mean.

    Example:
        >>> Logistic().mean(torch.tensor([0.0, 80.0, -80.0], dtype=torch.float64))
        tensor([5.0000e-01, 1.0000e+00, 1.8049e-35], dtype=torch.float64)
    """

    possible_rewards, takes_fractions = "in [0, 1]", True

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

    def possible(self, values: Tensor) -> Tensor:
        return values.clamp(0.0, 1.0)

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        # One uniform number for each reward, so that draws for other z use the same random numbers.
        uniform = torch.rand(z.shape, generator=generator, dtype=torch.float64)
        return (uniform < self.mean(z)).to(torch.float64)


class Binomial(Link):
    """Link for success counts: n independent trials of probability 1 / (1 + exp(-z)).

    If trials are correlated, the confidence sets fail; use the share of successes and :class:`Logistic` instead.

    Args:
        trials: n, number of trials in a reward.

    Example:
        >>> Binomial(10).mean(torch.tensor(0.0))
        tensor(5.)
    """

    def __init__(self, trials: int) -> None:
        super().__init__()
        self.trials = float(positive_integer("trials", trials))
        self.possible_rewards = f"whole numbers from 0 to {self.trials:.0f}"

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

    def possible(self, values: Tensor) -> Tensor:
        return values.round().clamp(0.0, self.trials)

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        count = torch.full(z.shape, self.trials, dtype=torch.float64)
        return torch.binomial(count, torch.sigmoid(z.double()), generator=generator)


class Poisson(Link):
    """Link for counts: the mean is exp(z), and the variance equals the mean.

    Overdispersed counts break the confidence sets. Learners refuse predictors with ``|z|`` above 35, where the mean is 1.6e15
    and rounding in float64 loses the confidence sets.

    Example:
        >>> Poisson().slope(torch.tensor([0.0, 1.0]))
        tensor([1.0000, 2.7183])
    """

    reach = 35.0 + 1e-9  # 35 itself is allowed
    steepest = math.inf
    possible_rewards = "whole numbers from 0 on"

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

    def possible(self, values: Tensor) -> Tensor:
        return values.round().clamp(min=0.0)

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        mean = z.double().exp()
        counts = torch.poisson(mean.clamp(max=1e12), generator=generator)
        # Such means are beyond torch's sampler: draw from the normal law with the same mean and variance.
        if bool((mean > 1e12).any()):
            normal = (mean + mean.sqrt() * torch.randn(z.shape, generator=generator, dtype=torch.float64)).round()
            counts = torch.where(mean > 1e12, normal, counts)
        return counts


class Gamma(Link):
    r"""Link for gamma waiting times and amounts: the mean is 1 / (offset - z).

    The natural parameter of the family, z - offset, must be negative, so :math:`|z|` must stay below the known offset. The
    constant :math:`R = 2/(\text{offset} - \text{bound})` grows as the bound of :math:`|z|` approaches the offset.

    Args:
        offset: larger than every :math:`|z|` that may occur.
        shape: k > 0, shape of the law; the dispersion is 1 / k. The exponential law has shape 1.

    Example:
        >>> Gamma(offset=2.0).mean(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([0.3333, 0.5000, 1.0000])
    """

    is_global = False
    steepest = math.inf
    possible_rewards, takes_fractions = "at least 0", True

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

    def possible(self, values: Tensor) -> Tensor:
        return values.clamp(min=0.0)

    def sample(self, z: Tensor, generator: torch.Generator) -> Tensor:
        shape = self.noise_scale**-2
        draws = torch._standard_gamma(torch.full(z.shape, shape, dtype=torch.float64), generator=generator)
        return draws / shape * self.mean(z.double())


def logistic_divergence(b: Tensor, y: Tensor) -> Tensor:
    """Return the divergence of softplus, accurate for close and for large arguments."""
    # The divergence at -b and -y is the same. For y below 0 no mean is near 1, where 1 - mean would cancel.
    b, y = where(y > 0.0, -b, b), where(y > 0.0, -y, y)
    distance, mean = b - y, sigmoid(y)
    near = abs(distance) <= 1.0
    small = where(near, distance, 0.0 * distance)
    close = log1p(mean * expm1(small)) - mean * small
    return where(near, close, softplus(b) - softplus(y) - mean * distance)
