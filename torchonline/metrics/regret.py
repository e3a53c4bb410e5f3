"""Cumulative regret and its curve."""

from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import positive_integer, sizes
from torchonline.metrics.base import ExactMetric, check_rounds


class CumulativeRegret(ExactMetric):
    r"""Cumulative regret :math:`R_T = \sum_{t \le T} r_t` and its curve.

    The caller computes the regret of each round: in a bandit :math:`r_t = \max_k \mu_{t,k} - \mu_{t,k_t}`, for convex losses and
    a comparator u :math:`r_t = f_t(x_t) - f_t(u)`, which may be negative.

    The curve has at most ``points`` points, equally spaced in rounds. When all are used, every second one is dropped and the
    spacing doubles. The results do not depend on the split into updates. Cost of n rounds: O(n + points) for each learner.

    Args:
        batch_shape: ``*B``, batch shape of the measured learners.
        points: largest number of points of the curve, even.

    Shape:
        - ``update(regret)``: one round ``(*B)``, or n rounds in order ``(n, *B)``; floating point.
        - ``compute()``: the totals ``(*B)``, float64, in the units of the rewards.

    Example:
        >>> metric = CumulativeRegret()
        >>> metric.update(torch.tensor([0.5, 0.0, 0.25]))
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
        >>> metric.curve()
        (tensor([1, 2, 3]), tensor([0.5000, 0.5000, 0.7500], dtype=torch.float64))
    """

    higher_is_better = False
    least = {"rounds": 0, "spacing": 1}

    total: Tensor
    spacing: Tensor
    history: Tensor

    def __init__(self, batch_shape: tuple[int, ...] = (), *, points: int = 512) -> None:
        super().__init__()
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.points = positive_integer("points", points)
        if points % 2:
            raise ValueError(f"points: expected an even number, got {points}")
        total, count = torch.zeros(self.batch_shape, dtype=torch.float64), torch.zeros((), dtype=torch.int64)
        self._add_states("sum", total=total, rounds=count)
        # history[i] is the total after (i + 1) * spacing rounds.
        self._add_states("max", spacing=count + 1)
        self._add_states("sum", history=torch.zeros((points, *self.batch_shape), dtype=torch.float64))

    def update(self, regret: Tensor) -> None:
        """Add one or more rounds."""
        regret = check_rounds("regret", regret, self.batch_shape).detach().to(self.total).reshape(-1, *self.batch_shape)
        # Adding to the old total round by round makes the result independent of the split into updates.
        totals = torch.cat([self.total.unsqueeze(0), regret]).cumsum(0)
        before, after, spacing = int(self.rounds), int(self.rounds) + len(regret), int(self.spacing)
        history = self.history.clone()
        while after > self.points * spacing:
            history = torch.cat([history[1::2], torch.zeros_like(history[1::2])])
            spacing *= 2
        first, last = before // spacing, after // spacing
        rounds = spacing * torch.arange(first + 1, last + 1, device=regret.device)
        history[first:last] = totals[rounds - before]
        self.total, self.history = totals[-1].clone(), history
        self.rounds = self.rounds + len(regret)
        self.spacing = torch.full_like(self.spacing, spacing)

    def compute(self) -> Tensor:
        """Return the cumulative regret of each learner, ``(*B)``."""
        return self.total.clone()

    def curve(self) -> tuple[Tensor, Tensor]:
        """Return the curve: p rounds, ``(p,)``, and the totals after them, ``(p, *B)``."""
        spacing, rounds = int(self.spacing), int(self.rounds)
        known = rounds // spacing
        at = spacing * torch.arange(1, known + 1, device=self.total.device)
        totals = self.history[:known]
        if rounds > known * spacing:
            at = torch.cat([at, self.rounds.unsqueeze(0)])
            totals = torch.cat([totals, self.total.unsqueeze(0)])
        return at, totals.clone()

    def plot(self, axes: Any = None, label: str | None = None) -> tuple[Any, Any]:
        """Draw the curve on matplotlib axes, or new ones. Return the figure and the axes.

        The curve is the mean over the learners, with a band from best to worst.
        """
        import matplotlib.pyplot as plt

        axes = plt.subplots()[1] if axes is None else axes
        rounds, totals = (values.cpu().numpy() for values in self.curve())
        totals = totals.reshape(len(totals), -1)
        (line,) = axes.plot(rounds, totals.mean(1), label=label)
        if totals.shape[1] > 1:
            axes.fill_between(rounds, totals.min(1), totals.max(1), color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set_xlabel("round")
        axes.set_ylabel("cumulative regret")
        return axes.figure, axes
