"""Mean of a value for each arm, with its standard error."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.action_names import number_and_names
from torchonline.core.checks import check_shape, check_values
from torchonline.metrics.base import ExactMetric, check_finite
from torchonline.metrics.plots import axes_for, draw_results, finished, results_of
from torchonline.metrics.shares import checked_actions, names_of_actions


class ArmMeans(NamedTuple):
    """Report of :class:`MeanByArm`.

    Attributes:
        rounds: number of rounds of each arm, ``(K)``, int64.
        mean: mean value of each arm, ``(K)``, float64; NaN for an arm without rounds.
        standard_error: of the mean, ``(K)``; NaN for an arm with less than two rounds.
    """

    rounds: Tensor
    mean: Tensor
    standard_error: Tensor


class MeanByArm(ExactMetric):
    r"""Count, mean and standard error of a value, for each arm.

    The value may be a reward or a regret. The standard error is :math:`s_k / \sqrt{n_k}`. It describes the observed rounds, and
    does not give a confidence interval for an arm's mean: a learner that drops an arm after bad luck leaves the arm's mean too
    low, and different arms are played in different contexts. For a comparison of arms or policies use
    :mod:`torchonline.off_policy`.

    The results do not depend on the split into updates or on the ranks, up to rounding. The sums are taken around each arm's
    first value, so a mean far from 0 loses no digits. Cost of n rounds: O(n + K).

    Args:
        actions: K, number of arms, including all future ones if arms come and go; or their names, for the plot. The row of an arm
            is its id.
        name: of the value, for the plot.

    Shape:
        - ``update(action, value)``: int64 and floating point, one shape.
        - ``compute()``: an :class:`ArmMeans`.

    Example:
        >>> metric = MeanByArm(2)
        >>> metric.update(torch.tensor([0, 0, 1]), torch.tensor([1.0, 2.0, 5.0]))
        >>> metric.compute().mean
        tensor([1.5000, 5.0000], dtype=torch.float64)
    """

    higher_is_better = None

    sums: Tensor

    def __init__(self, actions: int | Sequence[str], name: str = "reward") -> None:
        super().__init__()
        (self.actions, self.names), self.name = number_and_names("actions", actions), name
        self._add_states("sum", rounds=torch.zeros((), dtype=torch.int64))
        # For each arm: count, first value, and the sums of differences from it and of their squares.
        self._add_states(_merged, sums=torch.zeros((self.actions, 4), dtype=torch.float64))

    def update(self, action: Any, value: Tensor) -> None:
        """Add rounds."""
        self._refuse_synced()
        value = check_finite("value", value).detach().to(self.sums)
        action = checked_actions(action, self.actions).to(self.sums.device)
        check_shape("value", value.reshape(-1), action.shape)
        value = value.reshape(-1)
        check_values("value", value)
        n = len(value)
        place = torch.arange(n, device=value.device)
        first = torch.full((self.actions,), n, device=value.device).scatter_reduce(0, action, place, "amin")
        count, start, total, squares = self.sums.clone().unbind(-1)
        is_new = (count == 0) & (first < n)
        start = torch.where(is_new, torch.cat([value, value.new_zeros(1)])[first], start)
        difference = value - start[action]
        count = count.index_add(0, action, torch.ones_like(value))
        total = total.index_add(0, action, difference)
        squares = squares.index_add(0, action, difference.square())
        self.sums, self.rounds = torch.stack([count, start, total, squares], -1), self.rounds + n

    def compute(self) -> ArmMeans:
        """Return the report on the rounds of all ranks."""
        count, _, total, squares = self.sums.unbind(-1)
        variance = (squares - total.square() / count).clamp(min=0.0) / (count - 1.0)
        error = torch.where(count > 1, (variance / count).sqrt(), torch.nan)
        return ArmMeans(count.long(), self.means(), error)

    def means(self) -> Tensor:
        """Return the mean of each arm, ``(K)``, from the current states; gathers nothing."""
        count, start, total, _ = self.sums.unbind(-1)
        return start + total / count

    def plot(self, val: Any = None, ax: Any = None, *, labels: Sequence[str] | None = None) -> tuple[Any, Any]:
        """Draw each arm's mean with its standard error, or lines of means of reports.

        Arms without rounds are left out.

        Args:
            val: an :class:`ArmMeans`, or a list of them; None for ``compute()``.
            ax: matplotlib axes; None for a new figure of pyplot.
            labels: names of the K actions; None for the metric's own.

        Returns:
            The figure and the axes.
        """
        axes = axes_for(val, ax)
        names = names_of_actions(labels, self.actions, self.names)
        reports = results_of(val)
        if reports is not None:
            draw_results(axes, [report.mean.reshape(-1) for report in reports], f"mean {self.name}", names)
            return finished(axes)
        if val is not None or self.update_called:
            report = self.compute() if val is None else val
            count, mean, error = (part.cpu().reshape(-1) for part in report)  # torchmetrics squeezes a single arm
            shown = count.nonzero().squeeze(-1)
            bars = error[shown].nan_to_num(0.0).numpy()  # an arm with one round has no bar
            axes.errorbar(range(len(shown)), mean[shown].numpy(), bars, fmt="o", capsize=3)
            axes.set_xticks(range(len(shown)), [names[k] for k in shown.tolist()])
        axes.set_xlabel("mean and one standard error of each action")
        axes.set_ylabel(f"mean {self.name}")
        return finished(axes)

    def _problems(self, loaded: Any) -> list[str]:
        if problems := super()._problems(loaded):
            return problems
        sums, rounds = loaded["sums"], loaded["rounds"]
        if bool((sums[:, 0] < 0).any()) or int(sums[:, 0].sum()) != int(rounds) or bool((sums[:, 3] < 0).any()):
            return [f"sums: expected counts of {int(rounds)} rounds and squares of at least 0, got others"]
        return []


def _merged(states: Tensor) -> Tensor:
    """Merge the sums of all ranks around one rank's first value: ``(ranks, K, 4)``."""
    count, start, total, squares = states.unbind(-1)
    # The first rank that has rounds of the arm.
    rank = (count > 0).to(torch.int64).argmax(0)
    common = start.gather(0, rank.unsqueeze(0))[0]
    shift = torch.where(count > 0, start - common, 0.0)
    squares = squares + 2.0 * shift * total + count * shift.square()
    total = total + count * shift
    return torch.stack([count.sum(0), common, total.sum(0), squares.sum(0)], -1)
