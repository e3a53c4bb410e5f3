"""Running totals and their curve, in bounded memory."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import positive_integer, sizes
from torchonline.core.processes import rank_and_world_size
from torchonline.metrics.base import ExactMetric
from torchonline.metrics.plots import axes_for, draw_curve, draw_results, finished


class TotalsByRound(ExactMetric):
    r"""Base class of the metrics that keep running totals and their curve.

    A subclass checks its arguments and calls :meth:`_add` with each round's increments of the totals.

    The curve has at most ``points`` points, equally spaced in rounds. When all points are used, every second one is dropped and
    the spacing doubles. The results do not depend on the split into updates. Cost of n rounds: O(n + points) for each total.

    *Several processes.* Each rank updates with its own rounds, any number of them, possibly none. ``compute`` and ``curve`` then
    cover the rounds of all ranks, gather O(points) numbers from each rank, and must be called on all ranks. The curve counts
    rounds of all ranks, in laps: in lap k each rank with at least k rounds plays its k-th. With :math:`n_i` rounds and total
    :math:`S^{(i)}` on rank i, its points are

    .. math:: \Big(\sum_i \min(k, n_i),\ \sum_i S^{(i)}_{\min(k, n_i)}\Big)

    for the multiples k of the largest spacing of a rank, and for the last lap. The points are exact, without interpolation.

    *States of several ranks.* In ``sync_context()`` the states of all ranks are stacked along a new first dimension, in
    ``state_dict`` too. Load such a state dict on all ranks: each takes the states of its own rank. If the number of ranks has
    changed, the rounds are distributed evenly: the total stays, up to rounding, and the curve of the loaded rounds is linear
    between its points.

    Args:
        totals_shape: shape of the totals.
        points: largest number of points of the curve, even.
    """

    least = {"rounds": 0, "spacing": 1}
    named = "total"

    total: Tensor
    spacing: Tensor
    history: Tensor

    def __init__(self, totals_shape: tuple[int, ...] = (), *, points: int = 512) -> None:
        super().__init__()
        self._shape = sizes("batch_shape", totals_shape)
        self.points = positive_integer("points", points)
        if points % 2:
            raise ValueError(f"points: expected an even number, got {points}")
        total, count = torch.zeros(self._shape, dtype=torch.float64), torch.zeros((), dtype=torch.int64)
        # history[i] is the total after (i + 1) * spacing rounds. The spacing is a power of 2.
        history = torch.zeros((points, *self._shape), dtype=torch.float64)
        self._add_states(total=total, rounds=count, spacing=count + 1, history=history)

    def curve(self) -> tuple[Tensor, Tensor]:
        """Return the curve: p rounds, ``(p,)``, and the totals after them, ``(p, ...)``.

        The curve covers all ranks. If the metric is already synced, nothing is gathered.
        """
        return self._over_ranks(self._laps)

    def means(self) -> tuple[Tensor, Tensor]:
        """Return the rounds of the curve, ``(p,)``, and means between them, ``(p, ...)``.

        A mean is over the increments of the rounds from one point of the curve to the next.
        """
        return self._over_ranks(self._means)

    def plot(self, val: Any = None, ax: Any = None, *, label: str | None = None) -> tuple[Any, Any]:
        """Draw the curve, or results of :meth:`compute`.

        The curve, which is gathered from all ranks, is the mean over the learners, with a band from least to largest.

        Args:
            val: a result of :meth:`compute` or of a call, or a list of them; None for the curve.
            ax: matplotlib axes; None for a new figure of pyplot.
            label: of the curve, written at its end.

        Returns:
            The figure and the axes.
        """
        axes = axes_for(val, ax)
        if val is not None:
            draw_results(axes, val, self.named, None if label is None else [label])
            return finished(axes)
        draw_curve(axes, *self.curve(), self.named, label)
        return finished(axes)

    def _add(self, values: Tensor) -> None:
        """Add rounds of this process, ``(n, ...)``, float64."""
        # Adding to the old total round by round makes the result independent of the split into updates.
        totals = torch.cat([self.total.unsqueeze(0), values]).cumsum(0)
        before, after, spacing = int(self.rounds), int(self.rounds) + len(values), int(self.spacing)
        history = self.history.clone()
        while after > self.points * spacing:
            history = torch.cat([history[1::2], torch.zeros_like(history[1::2])])
            spacing *= 2
        first, last = before // spacing, after // spacing
        rounds = spacing * torch.arange(first + 1, last + 1, device=values.device)
        history[first:last] = totals[rounds - before]
        self.total, self.history = totals[-1].clone(), history
        self.rounds = self.rounds + len(values)
        self.spacing = torch.full_like(self.spacing, spacing)

    def _over_ranks(self, read: Any) -> Any:
        """Apply ``read`` to the stacked states of all ranks."""
        is_new = not self._is_synced
        with self.sync_context(should_sync=is_new and self.sync_on_compute, should_unsync=is_new):
            return read({name: self._of_ranks(getattr(self, name)) for name in self._defaults})

    def _of_ranks(self, state: Tensor) -> Tensor:
        """Return a state of all ranks or of this one, with a first dimension of ranks."""
        return state if self.rounds.dim() else state.unsqueeze(0)

    def _laps(self, states: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the curve of the ranks whose states are stacked."""
        ranks = list(zip(*(states[name].tolist() for name in ("rounds", "spacing")), strict=True))
        step, last = max(spacing for _, spacing in ranks), max(rounds for rounds, _ in ranks)
        # Spacings are powers of 2, so that the largest is a multiple of each.
        laps = step * torch.arange(1, last // step + 1, device=states["total"].device)
        if last % step:
            laps = torch.cat([laps, laps.new_tensor([last])])
        at, totals = torch.zeros_like(laps), states["total"].new_zeros(len(laps), *self._shape)
        for (rounds, spacing), total, history in zip(ranks, states["total"], states["history"], strict=True):
            goes_on = int((laps < rounds).sum())
            at = at + laps.clamp(max=rounds)
            known = history[laps[:goes_on] // spacing - 1]
            totals = totals + torch.cat([known, total.expand(len(laps) - goes_on, *self._shape)])
        return at, totals

    def _means(self, states: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the rounds of the curve and the means between its points."""
        rounds, totals = self._laps(states)
        counts = rounds.diff(prepend=rounds.new_zeros(1)).reshape(-1, *[1] * len(self._shape))
        return rounds, totals.diff(dim=0, prepend=torch.zeros_like(totals[:1])) / counts

    def _expected(self, loaded: Mapping[str, Any]) -> dict[str, Tensor]:
        rounds = loaded.get("rounds")
        if isinstance(rounds, Tensor) and rounds.dim() == 1 and len(rounds):  # of several ranks
            return {name: state.expand(len(rounds), *state.shape) for name, state in super()._expected(loaded).items()}
        return super()._expected(loaded)

    def _problems(self, loaded: Mapping[str, Any]) -> list[str]:
        if problems := super()._problems(loaded):
            return problems
        rounds, spacing = loaded["rounds"], loaded["spacing"]
        if bool((spacing & (spacing - 1)).any()):
            return [f"spacing: expected powers of 2, got {spacing.tolist()}"]
        if bool((rounds > 0).logical_and((rounds - 1) // spacing >= self.points).any()):
            return [
                f"rounds: expected at most {self.points} times the spacing {spacing.tolist()}, got {rounds.tolist()}"
            ]
        return []

    def _own(self, loaded: dict[str, Tensor]) -> dict[str, Tensor]:
        if loaded["rounds"].dim() == 0:
            return loaded
        rank, ranks = rank_and_world_size()
        if len(loaded["rounds"]) == ranks:
            return {name: state[rank].clone() for name, state in loaded.items()}
        at, totals = self._laps(loaded)
        if len(at) == 0:
            return {name: state.detach().clone() for name, state in self._defaults.items() if isinstance(state, Tensor)}
        return self._dealt(loaded, at, totals, rank, ranks)

    def _dealt(
        self, loaded: Mapping[str, Tensor], at: Tensor, totals: Tensor, rank: int, ranks: int
    ) -> dict[str, Tensor]:
        """Return a rank's states after distributing the rounds of a curve evenly."""
        at = torch.cat([at.new_zeros(1), at])
        totals = torch.cat([totals.new_zeros(1, *self._shape), totals])
        # In the last lap only some ranks have a round.
        whole_laps, in_the_last = divmod(int(at[-1]), ranks)
        rounds, spacing = whole_laps + (rank < in_the_last), 1
        while rounds > self.points * spacing:
            spacing *= 2
        laps = torch.cat([spacing * torch.arange(1, rounds // spacing + 1), torch.tensor([rounds])]).to(at)
        played = ranks * laps.clamp(max=whole_laps)
        after = torch.searchsorted(at, played).clamp(min=1)
        weight = (played - at[after - 1]) / (at[after] - at[after - 1]).double()
        known = torch.lerp(totals[after - 1], totals[after], weight.reshape(-1, *[1] * len(self._shape)))
        shares = known / ranks
        if rank < in_the_last:  # then the last entries of all ranks are after the same lap
            shares[laps > whole_laps] += (totals[-1] - known[-1]) / in_the_last
        history = torch.cat([shares[:-1], shares.new_zeros(self.points - len(shares) + 1, *self._shape)])
        return {
            "total": shares[-1],
            "rounds": at.new_tensor(rounds),
            "spacing": at.new_tensor(spacing),
            "history": history,
        }
