"""Cumulative regret and its curve."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import positive_integer, sizes
from torchonline.core.processes import rank_and_world_size
from torchonline.metrics.base import ExactMetric, check_rounds


class CumulativeRegret(ExactMetric):
    r"""Cumulative regret :math:`R_T = \sum_{t \le T} r_t` and its curve.

    The caller computes the regret of each round: in a bandit :math:`r_t = \max_k \mu_{t,k} - \mu_{t,k_t}`, for convex losses and
    a comparator u :math:`r_t = f_t(x_t) - f_t(u)`, which may be negative.

    The curve has at most ``points`` points, equally spaced in rounds. When all are used, every second one is dropped and the
    spacing doubles. The results do not depend on the split into updates. Cost of n rounds: O(n + points) for each learner.

    *Several processes.* Each rank updates with the rounds that it has played itself, any number of them, perhaps none. Then
    ``compute``, ``curve`` and ``plot`` are about the rounds of all ranks, gather O(points) numbers from each, and must be called
    on all ranks. The total is the sum over ranks. The curve counts rounds of all ranks, in laps: in lap k each rank that has k
    rounds or more plays its k-th. With :math:`n_i` rounds and regret :math:`R^{(i)}` on rank i, its points are

    .. math:: \Big(\sum_i \min(k, n_i),\ \sum_i R^{(i)}_{\min(k, n_i)}\Big)

    for the multiples k of the largest spacing of a rank, and for the last lap. They are exact. Nothing is interpolated.

    *States of several ranks.* In ``sync_context()`` the states of all ranks are stacked along a new first dimension, in
    ``state_dict`` too. Load such a state dict on all ranks: each takes the states of its own rank. If the number of ranks has
    changed, the rounds are dealt out evenly: the total stays, up to rounding, and the curve of the loaded rounds is linear
    between the points that it had.

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

        Two ranks, with regrets 1, 1, 1 and 2, 2, 2, 2, 2 (each calls ``curve``)::

            (tensor([2, 4, 6, 7, 8]), tensor([ 3.,  6.,  9., 11., 13.], dtype=torch.float64))
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
        # history[i] is the total after (i + 1) * spacing rounds. The spacing is a power of 2.
        history = torch.zeros((points, *self.batch_shape), dtype=torch.float64)
        self._add_states(total=total, rounds=count, spacing=count + 1, history=history)

    def update(self, regret: Tensor) -> None:
        """Add one or more rounds of this process."""
        self._refuse_synced()
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
        """Return the cumulative regret of each learner, ``(*B)``, on all ranks."""
        return self._of_ranks(self.total).sum(0)

    def curve(self) -> tuple[Tensor, Tensor]:
        """Return the curve: p rounds, ``(p,)``, and the totals after them, ``(p, *B)``.

        They are of all ranks. If the metric is synced already, nothing is gathered.
        """
        is_new = not self._is_synced
        with self.sync_context(should_sync=is_new and self.sync_on_compute, should_unsync=is_new):
            return self._laps({name: self._of_ranks(getattr(self, name)) for name in self._defaults})

    def plot(self, axes: Any = None, label: str | None = None) -> tuple[Any, Any]:
        """Draw the curve on matplotlib axes, or new ones. Return the figure and the axes.

        The curve, which is gathered from all ranks, is the mean over the learners, with a band from best to worst.
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
        at, totals = torch.zeros_like(laps), states["total"].new_zeros(len(laps), *self.batch_shape)
        for (rounds, spacing), total, history in zip(ranks, states["total"], states["history"], strict=True):
            goes_on = int((laps < rounds).sum())
            at = at + laps.clamp(max=rounds)
            known = history[laps[:goes_on] // spacing - 1]
            totals = totals + torch.cat([known, total.expand(len(laps) - goes_on, *self.batch_shape)])
        return at, totals

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
        return self._dealt(*self._laps(loaded), rank, ranks)

    def _dealt(self, at: Tensor, totals: Tensor, rank: int, ranks: int) -> dict[str, Tensor]:
        """Return the states of a rank to which the rounds of a curve are dealt out."""
        if len(at) == 0:
            return {name: state.detach().clone() for name, state in self._defaults.items() if isinstance(state, Tensor)}
        at = torch.cat([at.new_zeros(1), at])
        totals = torch.cat([totals.new_zeros(1, *self.batch_shape), totals])
        # In the last lap only some ranks have a round.
        whole_laps, in_the_last = divmod(int(at[-1]), ranks)
        rounds, spacing = whole_laps + (rank < in_the_last), 1
        while rounds > self.points * spacing:
            spacing *= 2
        laps = torch.cat([spacing * torch.arange(1, rounds // spacing + 1), torch.tensor([rounds])]).to(at)
        played = ranks * laps.clamp(max=whole_laps)
        after = torch.searchsorted(at, played).clamp(min=1)
        weight = (played - at[after - 1]) / (at[after] - at[after - 1]).double()
        known = torch.lerp(totals[after - 1], totals[after], weight.reshape(-1, *[1] * len(self.batch_shape)))
        shares = known / ranks
        if rank < in_the_last:  # then the last entries of all are after the same lap
            shares[laps > whole_laps] += (totals[-1] - known[-1]) / in_the_last
        history = torch.cat([shares[:-1], shares.new_zeros(self.points - len(shares) + 1, *self.batch_shape)])
        return {
            "total": shares[-1],
            "rounds": at.new_tensor(rounds),
            "spacing": at.new_tensor(spacing),
            "history": history,
        }
