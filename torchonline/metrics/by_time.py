"""Mean, smallest and largest value over time."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchonline.core.axes import axes_or_new
from torchonline.metrics.base import check_rounds
from torchonline.metrics.curve import TotalsByRound
from torchonline.metrics.plots import draw_band, extremes, finished


class ValuesByTime(NamedTuple):
    """Means and extremes of a value, from one point of a curve to the next.

    Attributes:
        rounds: number of rounds at the end of each interval, ``(p)``, int64.
        mean: mean of the interval, ``(p, *B)``.
        least: smallest value of the interval, ``(p, *B)``.
        largest: largest value of the interval, ``(p, *B)``.
    """

    rounds: Tensor
    mean: Tensor
    least: Tensor
    largest: Tensor


class ValueByTime(TotalsByRound):
    """Mean, smallest and largest value over time, in bounded memory.

    The value may be a reward, the width of a confidence set or a probability. For the curve and several processes see
    :class:`~torchonline.metrics.TotalsByRound`; the extremes are exact too, except after a load on another number of ranks, where
    an interval may have the extremes of a neighbour.

    Args:
        name: of the value, for the plot.
        batch_shape: ``*B``, batch shape of the measured learners.
        points: largest number of points of the curve, even.

    Shape:
        - ``update(value)``: one round ``(*B)``, or n rounds in order ``(n, *B)``; floating point.
        - ``compute()``: the means over all rounds ``(*B)``, float64; NaN before the first round.

    Example:
        >>> widths = ValueByTime("width of the confidence interval")
        >>> widths.update(torch.tensor([4.0, 2.0, 1.0, 1.0]))
        >>> widths.compute()
        tensor(2., dtype=torch.float64)
        >>> widths.by_time().largest
        tensor([4., 2., 1., 1.], dtype=torch.float64)
    """

    higher_is_better = None
    least = TotalsByRound.least | {"extremes": -torch.inf}

    extremes: Tensor

    def __init__(self, name: str = "value", batch_shape: tuple[int, ...] = (), *, points: int = 512) -> None:
        super().__init__(batch_shape, points=points)
        self.name, self.batch_shape = name, self._shape
        self.named = name
        # extremes[:, i] are the largest values of -x and of x in rounds i * spacing + 1 to (i + 1) * spacing.
        self._add_states(extremes=torch.full((2, points, *self._shape), -torch.inf, dtype=torch.float64))

    def update(self, value: Tensor) -> None:
        """Add one or more rounds of this process."""
        self._refuse_synced()
        value = check_rounds("value", value, self._shape).detach().to(self.total).reshape(-1, *self._shape)
        before, spacing = int(self.rounds), int(self.spacing)
        self._add(value)
        extremes = _merged(self.extremes, int(self.spacing) // spacing, self.points)
        place = (before + torch.arange(len(value), device=value.device)) // int(self.spacing)
        both = torch.stack([-value, value])
        place = place.reshape(1, -1, *[1] * len(self._shape)).expand(both.shape)
        self.extremes = extremes.scatter_reduce(1, place, both, "amax")

    def compute(self) -> Tensor:
        """Return the mean over all rounds, ``(*B)``, on all ranks."""
        return self._of_ranks(self.total).sum(0) / self._of_ranks(self.rounds).sum()

    def by_time(self) -> ValuesByTime:
        """Return means and extremes between the points of the curve, on all ranks."""
        return self._over_ranks(lambda states: ValuesByTime(*self._means(states), *self._extremes(states)))

    def plot(self, val: Any = None, ax: Any = None, *, label: str | None = None) -> tuple[Any, Any]:
        """Draw means over time in a band from least to largest, or results.

        For a batch of learners it is the mean over the learners. Values over time are gathered from all ranks.

        Args:
            val: a result of :meth:`compute` or of a call, or a list of them; None for the means over time.
            ax: matplotlib axes; None for a new figure of pyplot.
            label: of the curve, written at its end.

        Returns:
            The figure and the axes.
        """
        if val is not None:
            return super().plot(val, ax, label=label)
        axes = axes_or_new(ax)
        found = self.by_time()
        mean, least, largest = (part.cpu().unsqueeze(-1).flatten(1) for part in found[1:])
        draw_band(axes, found.rounds, mean.mean(1), extremes(least)[0], extremes(largest)[1], label)
        axes.set_xlabel("round")
        axes.set_ylabel(self.name)
        return finished(axes)

    def _extremes(self, states: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the smallest and largest value of each interval of all ranks."""
        step, last = int(states["spacing"].max()), int(states["rounds"].max())
        parts = [
            _merged(extremes, step // spacing, self.points)
            for spacing, extremes in zip(states["spacing"].tolist(), states["extremes"], strict=True)
        ]
        negative, positive = torch.stack(parts).amax(0)[:, : -(-last // step)]
        return -negative, positive

    def _dealt(
        self, loaded: Mapping[str, Tensor], at: Tensor, totals: Tensor, rank: int, ranks: int
    ) -> dict[str, Tensor]:
        states = super()._dealt(loaded, at, totals, rank, ranks)
        least, largest = self._extremes(loaded)
        known = torch.stack([-least, largest])
        extremes = known.new_full((2, self.points, *self._shape), -torch.inf)
        rounds, spacing = int(states["rounds"]), int(states["spacing"])
        for i in range(-(-rounds // spacing)):
            # The rounds of all ranks that are played in laps i * spacing + 1 to (i + 1) * spacing.
            played = at.new_tensor([ranks * i * spacing + 1, ranks * min((i + 1) * spacing, rounds)]).clamp(
                max=int(at[-1])
            )
            first, last = torch.searchsorted(at, played).tolist()
            extremes[:, i] = known[:, first : last + 1].amax(1)
        return states | {"extremes": extremes}


def _merged(extremes: Tensor, intervals: int, points: int) -> Tensor:
    """Merge each ``intervals`` intervals into one, in the shape ``(2, points, ...)``."""
    if intervals == 1:
        return extremes
    rest = [0, 0] * (extremes.dim() - 2)
    filled = pad(extremes, [*rest, 0, -points % intervals], value=-torch.inf)
    merged = filled.reshape(2, -1, intervals, *extremes.shape[2:]).amax(2)
    return pad(merged, [*rest, 0, points - merged.size(1)], value=-torch.inf)
