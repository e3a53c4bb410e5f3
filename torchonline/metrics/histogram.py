"""Histograms with fixed, logarithmic bins."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.axes import GREY
from torchonline.core.checks import finite_number, positive, positive_integer
from torchonline.metrics.base import ExactMetric, check_finite
from torchonline.metrics.plots import axes_for, draw_band, finished, results_of

QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)


class Spread(NamedTuple):
    """Report of a :class:`LogHistogram`. All values are float64; NaN without values.

    Attributes:
        smallest: the smallest value, ``()``.
        quantiles: at 1, 10, 50, 90 and 99 percent, ``(5)``.
        largest: the largest value, ``()``.
        mean: the mean, ``()``.
    """

    smallest: Tensor
    quantiles: Tensor
    largest: Tensor
    mean: Tensor


class LogHistogram(ExactMetric):
    r"""Histogram of positive values, such as delays, with fixed bins.

    The bins are logarithmic. Counts, extremes and the mean are exact, over batches and over the ranks of a process group. A
    quantile is the upper end of its bin: between ``low`` and ``high`` it is at least the sample quantile, and at most
    :math:`10^{1/b}` times it for b bins per decade. All values up to ``low``, including zero and negative ones, share a bin, and
    so do all values above ``high``. Cost of n values: O(n log(bins) + bins).

    Args:
        low: upper end of the first bin, above 0.
        high: upper end of the last bin but one, above ``low``.
        bins_per_decade: b, number of bins from a value to its tenfold.
        name: of the value, for the plot.

    Shape:
        - ``update(value)``: floating point, any shape.
        - ``compute()``: a :class:`Spread`.

    Example:
        >>> delays = LogHistogram(1e-3, 1e6, name="delay in seconds")
        >>> delays.update(torch.tensor([0.5, 2.0, 2.0, 30.0]))
        >>> delays.compute().largest
        tensor(30., dtype=torch.float64)
    """

    higher_is_better = None
    least = {"rounds": 0, "counts": 0}

    counts: Tensor
    total: Tensor
    smallest: Tensor
    largest: Tensor

    def __init__(self, low: float, high: float, *, bins_per_decade: int = 20, name: str = "value") -> None:
        super().__init__()
        self.low, self.high = positive("low", low), positive("high", high)
        if not low < high:
            raise ValueError(f"high: expected a number above low = {low:g}, got {finite_number('high', high):g}")
        self.bins_per_decade, self.name = positive_integer("bins_per_decade", bins_per_decade), name
        bins = math.ceil(self.bins_per_decade * math.log10(high / low) - 1e-9)
        ends = [low * 10.0 ** (i / self.bins_per_decade) for i in range(bins)]
        self.ends = torch.tensor([*ends, high], dtype=torch.float64)
        zero = torch.zeros((), dtype=torch.float64)
        self._add_states(
            "sum", rounds=zero.long(), counts=torch.zeros(len(self.ends) + 1, dtype=torch.int64), total=zero
        )
        self._add_states("min", smallest=zero + torch.inf)
        self._add_states("max", largest=zero - torch.inf)

    def update(self, value: Tensor) -> None:
        """Add values."""
        self._refuse_synced()
        value = self._checked(value)
        if len(value) == 0:
            return
        place = torch.bucketize(value, self.ends.to(value.device))
        self.counts = self.counts + torch.bincount(place, minlength=len(self.counts))
        self.total = torch.cat([self.total.reshape(1), value]).cumsum(0)[-1]
        self.smallest, self.largest = self.smallest.minimum(value.min()), self.largest.maximum(value.max())
        self.rounds = self.rounds + len(value)

    def compute(self) -> Spread:
        """Return the report on the values of all ranks."""
        nothing = torch.full_like(self.total, torch.nan)
        if int(self.rounds) == 0:
            return Spread(nothing, nothing.expand(len(QUANTILES)).clone(), nothing, nothing)
        # The q-quantile is the smallest value that at least q n values do not exceed.
        wanted = (torch.tensor(QUANTILES, dtype=torch.float64, device=self.total.device) * self.rounds).ceil()
        place = torch.searchsorted(self.counts.cumsum(0).to(wanted), wanted.clamp(min=1.0))
        ends = torch.cat([self.ends.to(self.total.device), self.largest.reshape(1)])
        quantiles = ends[place].clamp(min=self.smallest, max=self.largest)
        return Spread(self.smallest.clone(), quantiles, self.largest.clone(), self.total / self.rounds)

    def plot(self, val: Any = None, ax: Any = None) -> tuple[Any, Any]:
        """Draw the histogram with its median, or the quantiles of reports.

        The counts of the two outer bins are added to the bins next to them. Over several processes the histogram covers all
        ranks. A report is drawn as a line from the smallest to the largest value, with a thick part from 10 to 90 percent and the
        median; a list of reports as the medians, with a band from 10 to 90 percent.

        Args:
            val: a :class:`Spread`, or a list of them; None for the histogram.
            ax: matplotlib axes; None for a new figure of pyplot.

        Returns:
            The figure and the axes.
        """
        axes = axes_for(val, ax)
        if val is None:
            _draw_median(axes, self.draw_bars(axes))
        elif (reports := results_of(val)) is None:
            _draw_spread(axes, val, self.name)
        else:
            quantiles = torch.stack([report.quantiles for report in reports]) if reports else self.ends.new_zeros(0, 5)
            draw_band(axes, torch.arange(len(reports), device="cpu"), quantiles[:, 2], quantiles[:, 1], quantiles[:, 3])
            axes.set_yscale("log")
            axes.set_xlabel("step")
            axes.set_ylabel(f"{self.name}: median, 10 to 90 %")
        return finished(axes)

    def draw_bars(self, axes: Any) -> float:
        """Draw the histogram on matplotlib axes, and return the median."""
        with self.sync_context(should_sync=not self._is_synced, should_unsync=not self._is_synced):
            counts, report = self.counts.cpu().clone(), LogHistogram.compute(self)
        # At most five bars in a decade.
        group = max(1, self.bins_per_decade // 5)
        inner = counts[1:-1]
        inner[:1] += counts[0]
        inner[-1:] += counts[-1]
        missing = -len(inner) % group
        bars = torch.nn.functional.pad(inner, (0, missing)).reshape(-1, group).sum(1)
        ends = [*self.ends[:-1:group].tolist(), self.high]
        axes.set_xscale("log")
        if used := bars.nonzero().squeeze(-1).tolist():
            axes.stairs(bars.numpy(), ends, fill=True)
            axes.set_xlim(ends[used[0]], ends[used[-1] + 1])
        axes.set_xlabel(self.name)
        axes.set_ylabel("count")
        return float(report.quantiles[2])

    def _checked(self, value: Tensor) -> Tensor:
        return check_finite("value", value).detach().to(self.total).reshape(-1)


class LoggedProbabilities(LogHistogram):
    """Histogram, quantiles and smallest of the probabilities of logged decisions.

    Small probabilities make large importance weights: a log whose smallest probability is p gives weights up to 1 / p. All
    probabilities up to 1e-6 share a bin. Everything else is as for :class:`LogHistogram`.

    Args:
        bins_per_decade: number of bins from a probability to its tenfold.

    Shape:
        - ``update(probability)``: floating point, any shape, in (0, 1].
        - ``compute()``: a :class:`Spread`.

    Raises:
        ValueError: a probability is not in (0, 1]. No state has changed.

    Example:
        >>> metric = LoggedProbabilities()
        >>> metric.update(torch.tensor([1.0, 0.5, 0.01]))
        >>> metric.compute().smallest
        tensor(0.0100, dtype=torch.float64)
    """

    def __init__(self, *, bins_per_decade: int = 20) -> None:
        super().__init__(1e-6, 1.0, bins_per_decade=bins_per_decade, name="logged probability")

    def _checked(self, value: Tensor) -> Tensor:
        value = check_finite("probability", value).detach().to(self.total).reshape(-1)
        is_right = (value > 0.0) & (value <= 1.0)
        if not bool(is_right.all()):
            raise ValueError(f"probability: expected values in (0, 1], got {value[~is_right][0].item():g}")
        return value


def _draw_median(axes: Any, median: float) -> None:
    """Mark the median of a histogram, or the end of the axes if it lies beyond."""
    if math.isnan(median):
        return
    first, last = axes.get_xlim()
    at = min(max(median, first), last)
    is_left = at**2 < first * last  # on the logarithmic axis
    side, shift = ("left", 4.0) if is_left else ("right", -4.0)
    axes.axvline(at, color=GREY, linestyle="--", linewidth=1.5)
    place: Any = {"textcoords": "offset points", "ha": side, "va": "top", "xytext": (shift, -4.0)}
    axes.annotate(f"median {median:.3g}", (at, 1.0), xycoords=axes.get_xaxis_transform(), **place)
    axes.margins(y=0.15)


def _draw_spread(axes: Any, spread: Spread, name: str) -> None:
    """Draw the range of values, its middle eighty percent and the median."""
    _, low, median, high, _ = spread.quantiles.tolist()
    (line,) = axes.plot([float(spread.smallest), float(spread.largest)], [0.0, 0.0], "|-", linewidth=1.0, markersize=10)
    axes.plot([low, high], [0.0, 0.0], color=line.get_color(), linewidth=6, solid_capstyle="butt", alpha=0.5)
    axes.plot(median, 0.0, "o", color=line.get_color())
    above = {"textcoords": "offset points", "ha": "center", "annotation_clip": False}
    axes.annotate(f"median {median:.3g}", (median, 0.0), xytext=(0.0, 8.0), va="bottom", **above)
    for value, text in ((low, f"10 %\n{low:.3g}"), (high, f"90 %\n{high:.3g}")):
        axes.annotate(text, (value, 0.0), xytext=(0.0, -8.0), va="top", **above)
    axes.set_xscale("log")
    axes.set_yticks([])
    axes.set_ylim(-1.0, 1.0)
    axes.set_xlabel(name)
