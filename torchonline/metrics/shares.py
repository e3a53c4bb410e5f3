"""Shares of the actions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchonline.core.action_names import number_and_names
from torchonline.core.axes import GREY, plain_label
from torchonline.core.inputs import as_indices, check_indices
from torchonline.metrics.curve import TotalsByRound
from torchonline.metrics.plots import axes_for, draw_bands, draw_results, finished, label_bands

# Up to this many actions have their own colour in a plot; the others share grey.
MOST_SHOWN = 10
# With more points, shares of few decisions would flicker.
MOST_POINTS = 50


def checked_actions(action: Any, actions: int) -> Tensor:
    """Return actions as a list of int64 from 0 to ``actions`` - 1, or raise."""
    action = as_indices("action", action, torch.device("cpu")).reshape(-1)
    return check_indices("action", action, actions) if len(action) else action


def names_of_actions(labels: Sequence[str] | None, actions: int, names: list[str] | None = None) -> list[str]:
    """Return the names of the actions in a plot, or raise.

    ``labels`` are the caller's, ``names`` the metric's.
    """
    if labels is None:
        return [f"action {k}" for k in range(actions)] if names is None else list(map(plain_label, names))
    if isinstance(labels, str) or len(labels) != actions:
        raise ValueError(f"labels: expected {actions} names, one for each action, got {labels!r}")
    return [str(label) for label in labels]


class ActionShares(TotalsByRound):
    """Share of each action in the decisions, overall and over time.

    A round of this metric is a decision. The decisions of a batch of learners count separately. Cost of n decisions: O(n K +
    points K). For the curve and several processes see :class:`~torchonline.metrics.TotalsByRound`.

    Args:
        actions: K, number of actions, including all future ones if arms come and go; or their names, for the plot. The row of an
            arm is its id.
        points: largest number of points of the curve, even.

    Shape:
        - ``update(action)``: int64, any shape; integers and lists are converted.
        - ``compute()``: the shares ``(K)``, float64; NaN before the first decision.

    Example:
        >>> metric = ActionShares(3)
        >>> metric.update(torch.tensor([0, 2, 2, 0]))
        >>> metric.compute()
        tensor([0.5000, 0.0000, 0.5000], dtype=torch.float64)
    """

    higher_is_better = None

    def __init__(self, actions: int | Sequence[str], *, points: int = 512) -> None:
        count, names = number_and_names("actions", actions)
        super().__init__((count,), points=points)
        self.actions, self.names = count, names

    def update(self, action: Any) -> None:
        """Add decisions in order."""
        self._refuse_synced()
        action = checked_actions(action, self.actions).to(self.total.device)
        self._add(torch.nn.functional.one_hot(action, self.actions).to(self.total))

    def compute(self) -> Tensor:
        """Return the share of each action, ``(K)``, on all ranks."""
        return self._of_ranks(self.total).sum(0) / self._of_ranks(self.rounds).sum()

    def plot(  # type: ignore[override]
        self, val: Any = None, ax: Any = None, *, labels: Sequence[str] | None = None
    ) -> tuple[Any, Any]:
        """Draw the shares over time as bands, or results of :meth:`compute`.

        The ten actions with the largest shares are shown separately, and the rest together.

        Args:
            val: a result of :meth:`compute` or of a call, or a list of them; None for the shares over time, which are
                gathered from all ranks.
            ax: matplotlib axes; None for a new figure of pyplot.
            labels: names of the K actions; None for the metric's own.

        Returns:
            The figure and the axes.
        """
        axes = axes_for(val, ax)
        names = names_of_actions(labels, self.actions, self.names)
        if val is not None:
            draw_results(axes, val, "share of decisions", names)
            return finished(axes)
        rounds, shares = self._few_means()
        order = shares.mean(0).argsort(descending=True, stable=True)[:MOST_SHOWN].sort().values.tolist()
        rows = shares.T.cpu()
        rest = rows.sum(0) - rows[order].sum(0)
        bands, shown, colours = rows[order], [names[k] for k in order], [f"C{i}" for i in range(len(order))]
        if self.actions > len(order):
            bands, shown, colours = torch.cat([bands, rest.unsqueeze(0)]), [*shown, "others"], [*colours, GREY]
        draw_bands(axes, rounds.cpu(), bands, shown, colours)
        label_bands(axes, rounds.cpu(), bands, shown, colours)
        return finished(axes)

    def _few_means(self) -> tuple[Tensor, Tensor]:
        """Return :meth:`means` between at most fifty points of the curve."""
        rounds, totals = self.curve()
        every = -(-len(rounds) // MOST_POINTS)
        kept = torch.arange(len(rounds) - 1, -1, -max(every, 1), device=rounds.device).flip(0)
        rounds, totals = rounds[kept], totals[kept]
        counts = rounds.diff(prepend=rounds.new_zeros(1)).unsqueeze(-1)
        return rounds, totals.diff(dim=0, prepend=torch.zeros_like(totals[:1])) / counts
