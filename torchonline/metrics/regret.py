"""Cumulative regret and its curve."""

from torch import Tensor

from torchonline.metrics.base import check_rounds
from torchonline.metrics.curve import TotalsByRound


class CumulativeRegret(TotalsByRound):
    r"""Cumulative regret :math:`R_T = \sum_{t \le T} r_t` and its curve.

    The caller computes the regret of each round: in a bandit :math:`r_t = \max_k \mu_{t,k} - \mu_{t,k_t}`, for convex losses and
    a comparator u :math:`r_t = f_t(x_t) - f_t(u)`, which may be negative.

    The curve has at most ``points`` points, equally spaced in rounds. When all points are used, every second one is dropped and
    the spacing doubles. The results do not depend on the split into updates. Cost of n rounds: O(n + points) for each learner.

    *Several processes.* Each rank updates with its own rounds, any number of them, possibly none. ``compute``, ``curve`` and
    ``plot`` then cover the rounds of all ranks, gather O(points) numbers from each rank, and must be called on all ranks. The
    total is the sum over ranks. The curve counts rounds of all ranks, in laps: in lap k each rank with at least k rounds plays
    its k-th. With :math:`n_i` rounds and regret :math:`R^{(i)}` on rank i, its points are

    .. math:: \Big(\sum_i \min(k, n_i),\ \sum_i R^{(i)}_{\min(k, n_i)}\Big)

    for the multiples k of the largest spacing of a rank, and for the last lap. The points are exact, without interpolation.

    *States of several ranks.* In ``sync_context()`` the states of all ranks are stacked along a new first dimension, in
    ``state_dict`` too. Load such a state dict on all ranks: each takes the states of its own rank. If the number of ranks has
    changed, the rounds are distributed evenly: the total stays, up to rounding, and the curve of the loaded rounds is linear
    between its points.

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
    named = "cumulative regret"

    def __init__(self, batch_shape: tuple[int, ...] = (), *, points: int = 512) -> None:
        super().__init__(batch_shape, points=points)
        self.batch_shape = self._shape

    def update(self, regret: Tensor) -> None:
        """Add one or more rounds of this process."""
        self._refuse_synced()
        regret = check_rounds("regret", regret, self.batch_shape)
        self._add(regret.detach().to(self.total).reshape(-1, *self.batch_shape))

    def compute(self) -> Tensor:
        """Return the cumulative regret of each learner, ``(*B)``, on all ranks."""
        return self._of_ranks(self.total).sum(0)
