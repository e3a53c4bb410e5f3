"""Shares of the actions."""

from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import positive_integer
from torchonline.core.inputs import as_indices, check_indices
from torchonline.metrics.curve import TotalsByRound
from torchonline.metrics.plots import axes_or_new

# Actions with a colour of their own in a plot; the others share grey.
MOST_SHOWN = 10


def checked_actions(action: Any, actions: int) -> Tensor:
    """Return actions as a list of int64 from 0 to ``actions`` - 1, or raise."""
    action = as_indices("action", action, torch.device("cpu")).reshape(-1)
    return check_indices("action", action, actions) if len(action) else action


class ActionShares(TotalsByRound):
    """Share of each action in the decisions, overall and over time.

    A round of this metric is a decision. The decisions of a fleet count one by one. Cost of n decisions: O(n K + points K). For
    the curve and several processes see :class:`~torchonline.metrics.TotalsByRound`.

    Args:
        actions: K, number of actions.
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

    def __init__(self, actions: int, *, points: int = 512) -> None:
        self.actions: int = positive_integer("actions", actions)
        super().__init__((actions,), points=points)

    def update(self, action: Any) -> None:
        """Add decisions in order."""
        self._refuse_synced()
        action = checked_actions(action, self.actions).to(self.total.device)
        self._add(torch.nn.functional.one_hot(action, self.actions).to(self.total))

    def compute(self) -> Tensor:
        """Return the share of each action, ``(K)``, on all ranks."""
        return self._of_ranks(self.total).sum(0) / self._of_ranks(self.rounds).sum()

    def plot(self, axes: Any = None, labels: list[str] | None = None) -> tuple[Any, Any]:
        """Draw the shares over time on matplotlib axes. Return the figure and the axes.

        The ten actions with the largest shares are shown by themselves, and the rest together.
        """
        axes = axes_or_new(axes)
        rounds, shares = self.means()
        order = shares.mean(0).argsort(descending=True, stable=True)[:MOST_SHOWN].sort().values.tolist()
        rows = shares.T.cpu()
        names = labels or [f"action {k}" for k in range(self.actions)]
        rest = rows.sum(0) - rows[order].sum(0)
        bands, labels, colours = rows[order], [names[k] for k in order], [f"C{i}" for i in range(len(order))]
        if self.actions > len(order):
            bands, labels, colours = torch.cat([bands, rest.unsqueeze(0)]), [*labels, "others"], [*colours, "0.75"]
        draw_bands(axes, rounds.cpu(), bands, labels, colours)
        return axes.figure, axes


def draw_bands(axes: Any, rounds: Tensor, bands: Tensor, labels: list[str], colours: list[str]) -> None:
    """Draw shares ``(bands, p)`` between p points, one on top of another."""
    ends = torch.cat([rounds.new_zeros(1), rounds]).numpy()
    bottom = torch.zeros(len(rounds), dtype=torch.float64)
    for band, label, colour in zip(bands, labels, colours, strict=False) if len(rounds) else ():
        axes.stairs((bottom + band).numpy(), ends, baseline=bottom.numpy(), fill=True, color=colour, label=label)
        bottom = bottom + band
    axes.set_xlabel("decision")
    axes.set_ylabel("share of decisions")
    axes.set_ylim(0.0, 1.0)
