"""Noisy SGD over many passes (Bassily et al., FOCS 2014; Abadi et al., CCS 2016)."""

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from torchonline.baselines.private.private_optimizer import rate_or_best
from torchonline.baselines.private.projections import euclidean_radius, projectable, projected
from torchonline.core.checks import kind, positive, positive_integer, sizes, within
from torchonline.core.citations import Citable
from torchonline.core.messages import counted, install_extra
from torchonline.core.write_once import WriteOnce
from torchonline.privacy.calibration import gaussian_mu
from torchonline.privacy.clipping import MARGIN, clipped, sum_rounding
from torchonline.privacy.learners.base import SEEDED, warn_of_delta
from torchonline.privacy.learners.clock import refuse_several_ranks
from torchonline.privacy.learners.point import DEFAULT_RADIUS
from torchonline.privacy.noise import NoiseSource
from torchonline.privacy.noise import noise_source as make_source

SPENT = "fit: expected one call, got another; the privacy budget is spent"
LEAST_NOISE = 0.1  # the smallest multiplier worth computing


class NoisySGD(Citable, WriteOnce):
    r"""Projected SGD on random batches with noise, for a fixed set of records.

    Let :math:`B_k` be a random subset that has each of the n records with probability q = b/n, independently. In step k

    .. math:: \theta_{k+1} = \Pi\Big(\theta_k - \frac{\eta}{b}\Big(\sum_{z\in B_k} g_z + N(0, \sigma^2 I)\Big)\Big),\qquad
              g_z = \mathrm{clip}_C(\nabla f(\theta_k; z)),\qquad \theta_1 = 0 .

    Guarantee, privacy: all :math:`\theta_k` together are (epsilon, delta)-differentially private when one record is replaced by
    any other. Google's dp-accounting computes epsilon for this relation, with errors on the safe side. (The epsilon for a record
    that is added or removed is a different, smaller number. Do not compare the two.) The drawn subsets are secret. The number of
    records, steps, sizes and all options are public.

    Guarantee, excess risk: if losses are convex and no gradient is longer than C, the excess of the average :math:`\bar\theta`
    over n given records is at most :math:`R_2G/\sqrt T` in the mean, :math:`G^2 = C^2(1 + 1/b) + d\sigma^2/b^2`, with the
    default :math:`\eta = R_2/(G\sqrt T)`, T steps, and :math:`R_2` the largest Euclidean norm in the ball.
    Needs dp-accounting, of the extra ``privacy``. Cost: T steps of O(bd) time, and O(n) draws in each for
    the subset; about a second for the noise level.

    Args:
        dim, records: the numbers d of features and n of records.
        epsilon, delta: of the whole fit; epsilon ``inf`` for no noise.
        norm, radius_bound: p and R, the order of the ball's norm, 1, 2 or ``inf``, and its radius, whose default is explained
            at :class:`~torchonline.DPTOFW`.
        learning_rate: eta; None for the default above.
        clip: C, the bound of each record's gradient. ``inf`` only if epsilon is, and with a learning rate.
        steps: T, the number of steps; None for n.
        batch_size: b, from 1 to n, the expected size of a batch; None for :math:`\sqrt n`.
        noise_source, seed: ``"torch"`` or ``"csprng"``, and a seed for tests. Anybody who knows the seed can remove the noise.
        batch_shape: ``*B``, runs on the same records with independent randomness. Publishing B of them spends more than epsilon.

    Example:
        >>> target = torch.tensor([0.6, 0.0]).double()
        >>> data = target + 0.1 * torch.randn(400, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> sgd = NoisySGD(2, records=400, epsilon=1.0, delta=1e-3)
        >>> average, last = sgd.fit(lambda theta, x: 0.5 * (theta - x).square().sum(), data)
        >>> bool((average - target).norm() < 0.2)
        True

    Reference: Bassily, Smith and Thakurta, Private empirical risk minimization: efficient algorithms and tight error bounds, FOCS
    2014: n^2 steps of one record. Abadi et al., Deep learning with differential privacy, CCS 2016. On accounting for
    replacement: Lebeda, Regehr, Kamath and Steinke, Avoiding pitfalls for privacy accounting of subsampled mechanisms, 2024.
    """

    def __init__(
        self,
        dim: int,
        *,
        records: int,
        epsilon: float,
        delta: float,
        norm: float = 2.0,
        radius_bound: float = DEFAULT_RADIUS,
        learning_rate: float | None = None,
        clip: float = 1.0,
        steps: int | None = None,
        batch_size: float | None = None,
        noise_source: str | NoiseSource = "torch",
        seed: int | None = None,
        batch_shape: tuple[int, ...] = (),
    ) -> None:
        self.dim = positive_integer("dim", dim)
        self.records = positive_integer("records", records)
        self.epsilon = math.inf if epsilon == math.inf else positive("epsilon", epsilon)
        self.delta = within("delta", delta, 0.0, 1.0)
        if self.epsilon < math.inf:
            warn_of_delta(self.delta, self.records)
        self.norm = projectable("norm", norm)
        self.radius_bound = positive("radius_bound", radius_bound)
        self.clip = math.inf if clip == math.inf == self.epsilon else positive("clip", clip)
        self.steps = self.records if steps is None else positive_integer("steps", steps)
        self.batch_size = math.sqrt(self.records) if batch_size is None else positive("batch_size", batch_size)
        if not 1.0 <= self.batch_size <= self.records:
            raise ValueError(f"batch_size: expected a number from 1 to {self.records}, got {batch_size}")
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.source = make_source(noise_source, seed)
        self.source.require("add_normal")
        self.rate = self.batch_size / self.records
        promise = (self.epsilon, self.delta, self.rate, self.steps)
        self.noise_multiplier = calibrated_multiplier(*promise) if self.epsilon < math.inf else 0.0
        self.learning_rate = rate_or_best(learning_rate, self.clip, self._best_rate)
        self._is_seeded = self.source.is_seeded  # a copy's source is not seeded, but its past noise is

    def __repr__(self) -> str:
        seeded = f", {SEEDED}" if self._is_seeded else ""
        return f"NoisySGD({self.dim}, records={self.records}, epsilon={self.epsilon:g}, delta={self.delta:g}{seeded})"

    def _best_rate(self) -> float:
        """Return the learning rate with the smallest bound."""
        noise = self.dim * (self.noise_multiplier / self.batch_size) ** 2
        size = self.clip * math.sqrt(1.0 + 1.0 / self.batch_size + noise)
        return euclidean_radius(self.dim, self.norm, self.radius_bound) / (size * math.sqrt(self.steps))

    def fit(self, loss: Callable[..., Tensor], *data: Tensor) -> tuple[Tensor, Tensor]:
        """Learn from all records, in one call.

        Args:
            loss: takes a point ``(d)`` and one record, and returns a number, by torch operations.
            data: the other arguments of the loss, each ``(n, ...)``, on the device that computes. Real numbers become float64.

        Returns:
            The average of the iterates, and the last iterate: ``(*B, d)``, float64, both public.

        Raises:
            RuntimeError: a second call, because the budget is spent.
        """
        refuse_several_ranks()
        if "_call" in vars(self):
            raise RuntimeError(SPENT)
        if not data or not all(isinstance(values, Tensor) for values in data):
            raise TypeError(f"data: expected tensors, got {', '.join(map(kind, data)) or 'none'}")
        if any(values.dim() == 0 or len(values) != self.records for values in data):
            raise ValueError(
                f"data: expected {counted(self.records, 'row')} in each, got shapes {[tuple(v.shape) for v in data]}"
            )
        call = object()
        if vars(self).setdefault("_call", call) is not call:  # another thread's call
            raise RuntimeError(SPENT)
        device = data[0].device
        data = tuple(values.to(torch.float64) if values.is_floating_point() else values for values in data)
        slopes = torch.vmap(torch.func.grad(loss))
        runs = math.prod(self.batch_shape)
        theta = torch.zeros((runs, self.dim), dtype=torch.float64, device=device)
        average = torch.zeros_like(theta)
        scale = 0.0
        if self.noise_multiplier > 0.0:
            scale = self.noise_multiplier * self.clip * (1.0 + MARGIN + sum_rounding(self.records))
        with torch.no_grad():
            for step in range(1, self.steps + 1):
                average.lerp_(theta, 1.0 / step)
                run, record = self.source.happens((runs, self.records), self.rate).to(device).nonzero(as_tuple=True)
                total = torch.zeros((runs, self.dim), dtype=torch.float64, device=device)
                if len(run):
                    contributions = clipped(slopes(theta[run], *(values[record] for values in data)), self.clip)
                    total.index_add_(0, run, contributions)
                if scale > 0.0:
                    total = self.source.add_normal(total, scale)
                theta = theta.sub(total, alpha=self.learning_rate / self.batch_size)
                theta = projected(theta, self.norm, self.radius_bound)
        return average.reshape(*self.batch_shape, self.dim), theta.reshape(*self.batch_shape, self.dim)

    def privacy_spent(self, delta: float) -> float:
        """Return a whole fit's epsilon at a delta in (0, 1), when a record is replaced.

        It is infinite if the noise comes from a seed.
        """
        if self.noise_multiplier == 0.0 or self._is_seeded:
            return math.inf
        return subsampled_epsilon(self.noise_multiplier, within("delta", delta, 0.0, 1.0), self.rate, self.steps)


def subsampled_epsilon(noise_multiplier: float, delta: float, rate: float, steps: int) -> float:
    """Return the epsilon of noisy sums over random subsets, if a record is replaced.

    A subset has a record with probability ``rate``. ``noise_multiplier`` is the standard deviation of the noise over C, the
    length of the longest summand. A replaced record moves a sum by 2C, which dp-accounting takes into account.
    """
    try:
        import dp_accounting as accounting
        import dp_accounting.pld
    except ImportError as error:
        raise ImportError(f"NoisySGD: expected dp-accounting, got none; {install_extra('privacy')}") from error
    event = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(noise_multiplier))
    accountant = accounting.pld.PLDAccountant(accounting.NeighboringRelation.REPLACE_ONE)
    return float(accountant.compose(accounting.SelfComposedDpEvent(event, steps)).get_epsilon(delta))


@lru_cache
def calibrated_multiplier(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return the least noise multiplier for epsilon, rounded up by at most 0.1%.

    It is at least ``LEAST_NOISE``, even if delta is so large that less is enough.
    """
    # The noise under full amplification by subsampling.
    high = rate * 2.0 * math.sqrt(steps) / gaussian_mu(epsilon, delta)
    while subsampled_epsilon(high, delta, rate, steps) > epsilon:
        high *= 1.25
    low = high / 1.25
    while high > LEAST_NOISE and subsampled_epsilon(low, delta, rate, steps) <= epsilon:
        low, high = low / 1.25, low
    while high > max(1.001 * low, LEAST_NOISE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if subsampled_epsilon(middle, delta, rate, steps) <= epsilon else (middle, high)
    return max(high, LEAST_NOISE)
