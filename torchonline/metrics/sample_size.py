"""Effective sample size of importance weights."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.axes import axes_or_new
from torchonline.core.checks import check_values
from torchonline.metrics.base import check_finite
from torchonline.metrics.curve import TotalsByRound
from torchonline.metrics.plots import check_result, draw_band, finished, results_of


class SampleSize(NamedTuple):
    r"""Report of :class:`EffectiveSampleSize`. All values are float64, ``()``.

    Attributes:
        effective: :math:`(\sum w_i)^2 / \sum w_i^2`, from 1 to the number of weights; 0 without a weight above 0.
        mean_weight: mean of the weights. Its expectation is 1 if every action that the target policy can choose had a probability
            above 0 in the log. A mean clearly below 1 shows that the log lacks actions of the target.
        weight_error: standard error of ``mean_weight``.
        largest_weight: the largest weight.
    """

    effective: Tensor
    mean_weight: Tensor
    weight_error: Tensor
    largest_weight: Tensor


class EffectiveSampleSize(TotalsByRound):
    r"""Effective sample size of importance weights, overall and over time.

    A weight is :math:`w = \pi(a \mid x) / p`: the probability of the logged action under a target policy, divided by the logged
    propensity. A mean of n weighted rewards has about the same standard error as a mean of :math:`(\sum w_i)^2 / \sum w_i^2`
    rewards under the target. The metric keeps running sums. For the curve and several processes see
    :class:`~torchonline.metrics.TotalsByRound`.

    Args:
        points: largest number of points of the curve, even.

    Shape:
        - ``update(weight)``: floating point, any shape, from 0 to 5.6e102.
        - ``compute()``: a :class:`SampleSize`.

    Example:
        >>> metric = EffectiveSampleSize()
        >>> metric.update(torch.tensor([1.0, 1.0, 0.0, 4.0]))
        >>> metric.compute().effective
        tensor(2., dtype=torch.float64)
    """

    higher_is_better = True
    named = "effective sample size"
    least = TotalsByRound.least | {"total": 0.0, "history": 0.0, "largest": 0.0}

    largest: Tensor

    def __init__(self, *, points: int = 512) -> None:
        super().__init__((2,), points=points)  # of weights and of squares
        self._add_states(largest=torch.zeros((), dtype=torch.float64))

    def update(self, weight: Tensor) -> None:
        """Add weights in order."""
        self._refuse_synced()
        weight = check_finite("weight", weight).detach().to(self.total).reshape(-1)
        check_values("weight", weight, 0.0)
        self._add(torch.stack([weight, weight.square()], -1))
        if len(weight):
            self.largest = self.largest.maximum(weight.max())

    def compute(self) -> SampleSize:
        """Return the report on the weights of all ranks."""
        return self.of_this_rank()

    def of_this_rank(self) -> SampleSize:
        """Return the report from the current states, without gathering."""
        total, squares = self._of_ranks(self.total).sum(0)
        n = self._of_ranks(self.rounds).sum()
        mean = total / n
        variance = (squares / n - mean.square()).clamp(min=0.0) / (n - 1)
        effective = _effective(total, squares)
        return SampleSize(effective, mean, variance.sqrt(), self._of_ranks(self.largest).max())

    def plot(self, val: Any = None, ax: Any = None, *, label: str | None = None) -> tuple[Any, Any]:
        """Draw the effective sample size over the weights, or results of reports.

        Args:
            val: a :class:`SampleSize`, or a list of them; None for the curve, which is gathered from all ranks.
            ax: matplotlib axes; None for a new figure of pyplot.
            label: of the curve, written at its end.

        Returns:
            The figure and the axes.
        """
        check_result(val)
        if val is not None:
            reports = results_of(val)
            sizes = val.effective if reports is None else [report.effective for report in reports]
            return super().plot(sizes, ax, label=label)
        axes = axes_or_new(ax)
        rounds, sums = self.curve()
        effective = _effective(*sums.T)
        draw_band(axes, rounds, effective, effective, effective, label)
        axes.set_xlabel("decision")
        axes.set_ylabel(self.named)
        return finished(axes)

    def _dealt(self, loaded: Any, *arguments: Any) -> dict[str, Tensor]:
        return super()._dealt(loaded, *arguments) | {"largest": loaded["largest"].max()}


def _effective(total: Tensor, squares: Tensor) -> Tensor:
    return torch.where(squares > 0.0, total.square() / squares, 0.0)
