"""Online standardisation of features."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.backend import as_array, in_python, is_readable, may_hold, on_arrays
from torchonline.core.checks import check_values, instance_of, positive, positive_integer, shape_text
from torchonline.core.compiled import with_core
from torchonline.core.inputs import ArrayLike, check_tensor
from torchonline.core.learner import Learner
from torchonline.core.ops import (
    along,
    ascending,
    assign_,
    at_least,
    at_most,
    clip,
    column,
    converted,
    count_,
    number,
    or_one,
    put_row_,
    real,
    row_at,
    smallest,
    sqrt,
    squarable,
    total,
    where,
)
from torchonline.core.options import LearnerOptions

# The mean of |z| is about 0.8 for normal z.
MAGNITUDE_WEIGHT, MEAN_MAGNITUDE = 0.7, 0.8
# A ridge shrinks parameters of products a hundred times as much as the others: products of noise cost little.
PRODUCT_WEIGHT = 0.1
# The same for the steps at the edges of bins: eleven times.
STEP_WEIGHT = 0.3

Interactions = bool | Literal["features", "all"] | Sequence[Sequence[int]] | Mapping[str, Sequence[int]]

# Number of rows that are kept. After each window, the moments are compared with the rows.
WINDOW = 32
# Rows are clipped at this many deviations. An outlier code in a share p of the rows multiplies the variance by 1 / (1 - p
# REACH^2).
REACH = 6.0
# Of 32 normal rows, the 21st distance from the median is about one deviation. Eleven outliers do not reach it.
RANK = 20
# This many far rows among the kept ones are a change, not outliers.
NEEDED = 12


def magnitude(z: Tensor, weight: float = MAGNITUDE_WEIGHT, centre: float = MEAN_MAGNITUDE) -> Tensor:
    """Return the magnitudes of standardised features: tensors, arrays or numbers."""
    return weight * (abs(z) - centre)


@cache
def _arrays_of(constants: tuple[float, ...], dtype: Any) -> list[Any]:
    """Return numbers as arrays without axes, with which NumPy takes half the time."""
    return [np.array(constant, dtype) for constant in constants]


def _standardised_arrays(
    x: Any,
    mean: Any,
    squares: Any,
    share: Any,
    factor: Any,
    clip: float,
    magnitudes: bool,
    pairs: Any,
    edges: Any,
    intercept: float,
    weight: float,
    step_weight: float,
) -> Any:
    dim, most = x.shape[-1], squarable(x)
    columns, products, steps = dim * (1 + magnitudes), pairs.shape[-1], dim * edges.shape[-1]
    features: Any = np.empty((*x.shape[:-1], columns + products + steps + (intercept > 0.0)), x.dtype)
    features[..., -1] = intercept
    z = features[..., :dim]
    # Takes three quarters of the time of operators, which allocate.
    np.subtract(x, mean, out=z)
    # For one row, a sum of squares takes less time than a maximum and a minimum. vdot overflows without a warning.
    if z.ndim > 1 or not np.vdot(z, z) <= most:
        np.maximum(z, -most, out=z)
        np.minimum(z, most, out=z)
    size = z * z
    size *= share
    size += squares
    # The squares can be 0 with an offset other than 0 only where the row has no share in them. The share of a single float64
    # learner is a float.
    if type(share) is not float or share == 0.0:
        z *= size > 0.0
    if np.count_nonzero(size) < size.size:
        size += size == 0.0
    np.sqrt(size, out=size)
    z *= factor
    z /= size
    low, high, mean_magnitude, magnitude_weight = _arrays_of((-clip, clip, MEAN_MAGNITUDE, MAGNITUDE_WEIGHT), x.dtype)
    np.maximum(z, low, out=z)
    np.minimum(z, high, out=z)
    if magnitudes:
        part = features[..., dim:columns]
        np.abs(z, out=part)
        part -= mean_magnitude
        part *= magnitude_weight
    if products:
        factors = features.take(pairs, -1)
        part = features[..., columns : columns + products]
        np.multiply(factors[..., 0, :], factors[..., 1, :], out=part)
        part *= weight
    if steps:
        is_above = (x[..., None] > edges).reshape(*x.shape[:-1], steps)
        np.multiply(is_above, step_weight, out=features[..., columns + products : columns + products + steps])
    return features


@on_arrays(_standardised_arrays)
def standardised(
    x: Tensor,
    mean: Tensor,
    squares: Tensor,
    share: Tensor,
    factor: Tensor,
    clip: float,
    magnitudes: bool,
    pairs: Tensor,
    edges: Tensor,
    intercept: float,
    weight: float = PRODUCT_WEIGHT,
    step_weight: float = STEP_WEIGHT,
) -> Tensor:
    """Standardise and clip rows; append the columns that are asked for.

    ``share`` weighs the row's squared offset in the sum of squares; ``factor`` multiplies the offset. ``pairs``, ``(2, P)``, are
    the columns of the products' factors. ``edges``, ``(d, n)``, are where features step.
    """
    most = squarable(mean)
    offset = (x - mean).clamp(-most, most)
    size = squares + share * (offset * offset)
    z = (factor * offset * (size > 0.0) / or_one(size).sqrt()).clamp(-clip, clip)
    features = [z]
    if magnitudes:
        features.append(magnitude(z))
    if pairs.size(-1) > 0:
        columns = torch.cat(features, -1)
        first, second = pairs.unbind()
        features.append(weight * (columns.index_select(-1, first) * columns.index_select(-1, second)))
    if edges.size(-1) > 0:
        features.append(step_weight * (x.unsqueeze(-1) > edges).to(z.dtype).flatten(-2))
    if intercept > 0.0:
        features.append(torch.full_like(z[..., :1], intercept))
    return torch.cat(features, -1) if len(features) > 1 else z


def is_far(offset: Tensor, squares: Tensor, share: Tensor) -> Tensor:
    """Return whether ``share`` times the squared offset exceeds the sum of squares."""
    return offset * offset * share > squares


def _has_far_of_arrays(offset: Any, squares: Any, share: Any) -> bool:
    if type(share) is float and share == 0.0:
        return False
    size = offset * offset
    size *= share
    return b"\1" in (size > squares).tobytes()  # a fifth of the time of any()


@on_arrays(_has_far_of_arrays)
def has_far(offset: Tensor, squares: Tensor, share: Tensor) -> bool:
    """Return whether an offset is far; True if the host cannot tell."""
    return may_hold(is_far(offset, squares, share))


def cut(offset: Tensor, squares: Tensor, share: Tensor) -> Tensor:
    """Clip far offsets, if the feature has a scale."""
    bound = sqrt(squares / or_one(share))
    return where(is_far(offset, squares, share) & (squares > 0.0), clip(offset, bound), offset)


@with_core
class StandardScaler(Learner):
    r"""Standardisation of features by their running mean and standard deviation.

    .. math:: z = \text{clip}\bigl((x - \text{mean}) / \text{deviation}, \pm\text{clip}\bigr)

    Mean and standard deviation (divisor n - 1) are computed from n rows: x, and the rows that :meth:`step` has seen, clipped as
    below. Welford's algorithm updates them. Because x is among the rows, z is small in the first rows: before a freeze, abs(z) is
    at most :math:`(n-1)/\sqrt n`. Scale a row before you pass it to ``step``; afterwards it would count twice. Until two rows
    have been seen, z is 0. A feature that is the same in all n rows also has z = 0.

    Options append columns to z:

    - ``magnitudes``: 0.7 (abs(z) - 0.8) for each feature, so that a linear model can prefer or avoid the middle of a feature's
      range. The magnitude of a constant feature is -0.56.
    - ``interactions``: a tenth of the product of two columns, for pairs of features, so that the effect of a feature can depend
      on another one. A ridge shrinks the parameters of these columns a hundred times as much, so products that do not matter
      cost little.
    - ``bins``: 0.3 for each edge between two bins that the feature exceeds, and 0 for each other edge. So a linear model can
      approximate any effect of a feature by steps. Each bin holds the same number of the first 32 rows, if their values differ.
      Edges stay fixed, unless a feature counts as changed, as below: then they are computed from the last 32 rows.
    - ``intercept``: a constant. The larger the constant, the less a ridge shrinks the intercept of an estimate.

    No single row ruins the scale of a feature that varies. ``step`` clips each feature of a row at 6 deviations from the mean
    before it learns from the row. It keeps the last 32 rows unclipped. The first 32 rows enter unclipped. Then, if some are
    outliers, mean and deviation are recomputed from these rows, clipped at 6 robust deviations from their median. After each
    further 32 rows, a feature counts as changed if 12 of the 32 are more than 6 deviations from the mean. Mean and deviation then
    become the moments of a mixture, half of the earlier rows and half of the last 32. So they adapt within 63 rows to a scale
    that is at least 20 times larger. To smaller changes, smaller scales or another level they adapt like plain moments. Without
    outliers, they are plain moments. A constant feature has no scale: the first other value enters unclipped, even if it is an
    outlier.

    Effect on guarantees. The coordinates move while the scaler learns, so an estimator's statistics refer to other coordinates
    than its next decision: a confidence set over moving coordinates is a heuristic. With ``freeze_after``, mean and deviation
    depend only on the first ``freeze_after`` rows, for every x. An estimator that starts after the freeze, or restarts as in
    :class:`DisjointArms`, keeps its guarantee from then on, for a mean reward that is linear in the output.

    Cost of a row: O(d bins + P) with P products, and memory for 32 rows.

    Args:
        dim: d, number of features.
        clip: largest magnitude of a standardised feature.
        magnitudes: whether to append a magnitude for each feature.
        interactions: the products to append. False for none. "features" for z_i z_j of all d (d - 1) / 2 pairs of features.
            "all", or True, for four products of each pair, with the magnitudes m: z_i z_j, z_i m_j, m_i z_j and m_i m_j; without
            magnitudes, it is "features". A list such as ``[(0, 1), (0, 4)]`` for the products of "all", of these pairs. A dict of
            groups such as ``{"user": [0, 1], "page": [2, 3, 4]}`` for the products of "all", of the pairs of features from
            different groups.
        bins: number of bins of each feature: 1 for no steps, 2, 4, 8, 16 or 32. Steps are 0 before 32 rows have been seen.
        intercept: the constant to append, above 0; True for 1, False for none.
        freeze_after: number of rows after which mean and deviation are fixed; None for never. Use at least 2: after 1 row, all
            features stay 0. With fewer than 32, outliers among these rows are not clipped.
        batch_shape, dtype, device, validate: options of all learners, see :class:`~torchonline.core.learner.Learner`.

    Shape:
        - Input ``(*B, ..., d)``, output ``(*B, ..., features)`` with ``features`` = d, and d more with ``magnitudes``, P more
          with ``interactions``, d (bins - 1) more with ``bins``, and 1 more with ``intercept``, in this order. The attribute
          ``bound`` is at least the largest norm of an output, up to rounding.
        - ``mean``, ``squares`` (of deviations from the mean, summed): ``(*B, d)``; ``rounds``, the rows seen, ``(*B)``;
          ``recent``, the last 32 rows, ``(*B, 32, d)``; ``edges`` between bins, ``(*B, d, bins - 1)``, infinite at first.

    Example:
        >>> scaler = StandardScaler(2)
        >>> scaler.step(torch.tensor([[1.0, 100.0], [3.0, 500.0]]))
        >>> scaler(torch.tensor([2.0, 1100.0]))
        tensor([0.0000, 1.0596, 1.0000], dtype=torch.float64)

    Reference:
        Welford, Note on a method for calculating corrected sums of squares and products, Technometrics 1962.
    """

    if TYPE_CHECKING:

        def __call__(self, x: ArrayLike) -> Tensor: ...

    # A policy's statistics on the scaled features depend on all but the first.
    statistics_depend_on = ("freeze_after", "clip", "magnitudes", "intercept")
    later_options = {"factors": (), "edge_count": 0}
    argument_of = {"factors": "interactions", "edge_count": "bins"}
    unbounded = ("edges",)
    mean: Tensor
    squares: Tensor
    rounds: Tensor
    recent: Tensor
    edges: Tensor
    pairs: Tensor

    def __init__(
        self,
        dim: int,
        *,
        clip: float = 2.5,
        magnitudes: bool = False,
        interactions: Interactions = False,
        bins: int = 1,
        intercept: bool | float = True,
        freeze_after: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        self.clip = positive("clip", clip)
        self.magnitudes: bool = instance_of("magnitudes", magnitudes, bool, "True or False")
        self.intercept: float = float(intercept) if isinstance(intercept, bool) else positive("intercept", intercept)
        self.freeze_after = None if freeze_after is None else positive_integer("freeze_after", freeze_after)
        # A copy, which the caller's list cannot change.
        self.interactions: Interactions = checked_interactions(interactions, self.dim)
        if "interactions" in self._arguments:
            self.__dict__["_arguments"] = {**self._arguments, "interactions": self.interactions}
        # The columns of the first factors of all products, and of the second ones.
        self.factors = factors_of(self.interactions, self.dim, self.magnitudes)
        products = len(self.factors) // 2
        self.bins = positive_integer("bins", bins)
        if WINDOW % self.bins:
            raise ValueError(f"bins: expected 1, 2, 4, 8, 16 or {WINDOW}, got {bins}")
        # The number of edges between the bins of a feature.
        self.edge_count = self.bins - 1
        if self.edge_count and self.freeze_after is not None and self.freeze_after < WINDOW:
            wanted = f"at least {WINDOW} with bins, whose edges are set after so many rows"
            raise ValueError(f"freeze_after: expected {wanted}, got {self.freeze_after}")
        steps = self.dim * self.edge_count
        self.features = self.dim * (1 + self.magnitudes) + products + steps + (self.intercept > 0.0)
        # The largest norm of a standardised row, for an estimator's feature_bound.
        square = self._largest_square()
        appended = products * (PRODUCT_WEIGHT * square) ** 2 + steps * STEP_WEIGHT**2 + self.intercept**2
        self.bound = math.sqrt(self.dim * square + appended)
        # TorchScript does not see a module's constants.
        self.window, self.rank, self.needed, self.reach, self.squared_reach = WINDOW, RANK, NEEDED, REACH, REACH**2
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        zeros = torch.zeros(self.dim, dtype=torch.float64)
        rounds = torch.zeros((), dtype=torch.int64)
        recent = torch.zeros((WINDOW, self.dim), dtype=torch.float64)
        # Nothing is above an edge that is not yet set.
        edges = torch.full((self.dim, self.edge_count), math.inf, dtype=torch.float64)
        return {"mean": zeros, "squares": zeros.clone(), "rounds": rounds, "recent": recent, "edges": edges}

    def _tables(self) -> dict[str, Tensor]:
        return {"pairs": torch.tensor(self.factors, dtype=torch.int64).view(2, -1)}

    def _largest_square(self) -> float:
        """Return the largest z^2 plus magnitude^2: a convex function of abs(z)."""
        if not self.magnitudes:
            return self.clip**2
        ends: tuple[Any, ...] = (0.0, self.clip)
        return float(max(z**2 + magnitude(z) ** 2 for z in ends))

    @one_at_a_time
    def _forward_in_python(self, x: ArrayLike) -> Tensor:
        return self._scaled(self._checked(x))

    @in_python(_forward_in_python)
    def forward(self, x: Tensor) -> Tensor:
        """Return the standardised features, differentiable in x."""
        return self._scaled(x)

    def _scaled_in_python(self, x: Any) -> Any:
        if not self.is_view or self.batch_dims or x.ndim > 1:
            return self._standardised(x)
        # A step standardises the row of its decision again: cache one row, with all that its result depends on.
        own: dict[str, Any] = self.__dict__
        row = x.tobytes(), own["mean"].tobytes(), own["squares"].tobytes(), own["edges"].tobytes(), int(own["rounds"])
        features: Any
        last, features = own.get("last", (None, None))
        if row != last:
            features = self._standardised(x)
            features.flags.writeable = False
            own["last"] = row, features
        return features

    @in_python(_scaled_in_python)
    def _scaled(self, x: Tensor) -> Tensor:
        """Standardise checked rows."""
        return self._standardised(x)

    def _standardised(self, x: Tensor) -> Tensor:
        x = converted(x, self.mean)
        share, factor = self._weights(x)
        return self._weighed(x, share, factor)

    @torch.jit.export
    def _scaled_again(self, x: Tensor) -> Tensor:
        """Standardise rows seen before, ``(*B, d)``, with a scaler that does not freeze."""
        count = real(self.rounds, x)
        return self._weighed(x, 0.0 * count, sqrt(at_least(count - 1.0, 0.0)))

    def _weighed(self, x: Tensor, share: Tensor, factor: Tensor) -> Tensor:
        """Standardise rows with a given share and factor: see :func:`standardised`."""
        mean, squares, edges = self.mean, self.squares, self.edges
        if self.batch_dims:
            share, factor = along(share, x), along(factor, x)
            for _ in range(len(x.shape) - len(mean.shape)):
                mean, squares, edges = mean[..., None, :], squares[..., None, :], edges[..., None, :, :]
        return standardised(
            x, mean, squares, share, factor, self.clip, self.magnitudes, self.pairs, edges, self.intercept
        )

    def _weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a row's share and factor in :func:`standardised`, ``(*B)`` each."""
        # Counting a row as the n-th shrinks its offset from the mean to (n - 1) / n. With two rows, abs(z) would not depend on
        # x.
        before, rounds = real(self.rounds, x), self.rounds
        if self.freeze_after is None:
            return self._weights_after(before)
        counts, before = real(rounds < self.freeze_after, x), at_most(before, float(self.freeze_after))
        share = before / (before + counts)
        return counts * share, (before > 1.0) * share * sqrt(before + counts - 1.0)

    def _weights_after(self, count: Tensor) -> tuple[Tensor, Tensor]:
        """Return the share and the factor of a row after ``count`` unfrozen rows."""
        share = count / (count + 1.0)
        return share, (count > 1.0) * share * sqrt(count)

    @one_at_a_time
    def _step_in_python(self, x: ArrayLike) -> None:
        x = self._checked(x)
        if x.dim() > self.batch_dims + 2:
            wanted = f"{shape_text((*self.batch_shape, self.dim))} or {shape_text((*self.batch_shape, 'n', self.dim))}"
            raise ValueError(f"x: expected shape {wanted}, got {shape_text(x.shape)}")
        if self.validate and is_readable(x):
            check_values("x", x)
        is_one = x.dim() == self.batch_dims + 1
        view = self.view_for(x)
        with torch.no_grad():
            x = x.detach()
            rows = [x] if is_one else list(x.clone().unbind(self.batch_dims))
            if view is None:
                self._run(None, self._observe, [(row,) for row in rows])
            else:
                self._run(view, view.learner._observe, [(as_array(row),) for row in rows])

    @torch.jit.export
    @in_python(_step_in_python)
    def step(self, x: Tensor) -> None:
        """Learn from a row of each learner, or from several.

        Args:
            x: ``(*B, d)`` or ``(*B, n, d)``.

        Raises:
            TypeError: ``x`` does not hold real numbers, or is a tensor of integers.
            ValueError: a shape, device or value is wrong. No buffer has changed.
        """
        with torch.no_grad():
            x = x.detach().to(self.mean.dtype)
            if x.dim() == self.batch_dims + 1:
                self._observe(x)
            else:
                for i in range(x.size(self.batch_dims)):
                    self._observe(x.select(self.batch_dims, i))

    def _observe(self, x: Tensor) -> None:
        """Learn from one row of each learner, ``(*B, d)``."""
        rounds, mean, squares = self.rounds, self.mean, self.squares
        before = number(rounds)
        place, row = before % self.window, x
        due = place == self.window - 1
        offset = x - mean
        if self.freeze_after is not None:
            is_moving = before < self.freeze_after
            due = due & is_moving
            is_moving = along(is_moving, x)
            offset = where(is_moving, offset, 0.0 * offset)
            row = where(is_moving, x, row_at(self.recent, place))
        count = along(real(rounds, x), x)
        share = self._share(count)
        if has_far(offset, squares, share):
            offset = cut(offset, squares, share)
        put_row_(self.recent, place, row)
        # Welford's update.
        move = offset / (count + 1.0)
        mean += move
        squares += offset * (offset - move)
        count_(rounds)
        if may_hold(due):
            self._review_(due)

    @torch.jit.export
    def _observe_windows_(self, x: Tensor) -> Tensor:
        """Learn from whole windows of rows; return the features of those learnt.

        Shapes: ``(n, d)`` to ``(n', m)``, with n' at most n, of at least one window.

        Each row is standardised by the rows before it, as in order. The scaler is one without ``batch_shape`` that does not
        freeze, at the start of a window. After a window in which a feature has changed, the rest is left. Not on arrays.
        """
        origin, squares, first = self.mean, self.squares, int(self.rounds)
        offset, n = x - origin, x.size(0)
        before = (first + torch.arange(n + 1, device=x.device)).to(x.dtype).unsqueeze(-1)
        share, kept = self._share(before), offset
        was_cut = has_far(offset, squares, share[:1])
        if was_cut:
            kept = cut(offset, squares, share[:1])
        shift, sums = torch.zeros_like(offset), torch.zeros_like(offset)
        # Clipped rows change the moments of later rows: each pass settles one more row at least, and mostly all.
        for _ in range(64):
            shift = torch.cat([torch.zeros_like(kept[:1]), kept.cumsum(0)]) / before
            sums = torch.cat([torch.zeros_like(kept[:1]), (kept * kept).cumsum(0)]) + squares - before * shift * shift
            sums = sums.clamp(min=0.0)
            gap = offset - shift[:-1]
            again, is_cut = offset, has_far(gap, sums[:-1], share[:-1])
            if is_cut:
                again = shift[:-1] + cut(gap, sums[:-1], share[:-1])
            has_moved = abs(again - kept) > 1e-12 * abs(kept)
            has_settled = not (was_cut or is_cut) or not may_hold(has_moved)
            # The windows before the first row that moved.
            n = (
                x.size(0)
                if has_settled
                else int(has_moved.any(-1).to(torch.uint8).argmax()) // self.window * self.window
            )
            kept, was_cut = again, is_cut
            if has_settled:
                break
        windows = x[:n].view(-1, self.window, x.size(-1))
        ends = shift[self.window : n + 1 : self.window].unsqueeze(-2) + origin
        squares_then = sums[self.window : n + 1 : self.window]
        scale = share[self.window : n + 1 : self.window].unsqueeze(-2)
        far = is_far(windows - ends, squares_then.unsqueeze(-2), scale).sum(-2)
        has_changed = ((far >= self.needed) & (squares_then > 0.0)).any(-1)
        is_changed = bool(has_changed.any())
        last = self.window * (int(has_changed.to(torch.uint8).argmax()) + 1) if is_changed else n
        row_share, factor = self._weights_after(before[:last])
        features = standardised(
            x[:last],
            origin + shift[:last],
            sums[:last],
            row_share,
            factor,
            self.clip,
            self.magnitudes,
            self.pairs,
            self.edges,
            self.intercept,
        )
        self.mean.copy_(origin + shift[last])
        self.squares.copy_(sums[last])
        self.recent.copy_(x[last - self.window : last])
        self.rounds.add_(last)
        if is_changed:
            self._review_(self.rounds > 0)
        return features

    def _share(self, count: Tensor) -> Tensor:
        """Return the factor of a squared offset in the clip level, 0 in the first rows."""
        return (count >= self.window) * (count - 1.0) / self.squared_reach

    def _review_(self, due: Tensor) -> None:
        """Compare the moments with the kept rows where ``due``, ``(*B)``."""
        mean, squares, rows = self.mean, self.squares, self.recent.mT
        share = self._share(along(real(self.rounds, mean), mean))
        far = is_far(rows - column(mean), column(squares), column(share))
        has_changed = along(due, mean) & (total(real(far, rows)) >= self.needed) & (squares > 0.0)
        # The first rows entered unclipped: with outliers, the moments become those of the clipped rows.
        is_first = along(due & (number(self.rounds) == self.window), mean)
        if may_hold(is_first | has_changed):
            self._renew_(is_first, has_changed)

    def _renew_(self, is_first: Tensor, has_changed: Tensor) -> None:
        """Recompute moments from the kept rows, after outliers in the first or a change."""
        mean, squares = self.mean, self.squares
        most = 0.01 * squarable(mean)
        rows, half = self.recent.mT, self.window // 2
        ordered = ascending(rows)
        middle = 0.5 * ordered[..., half - 1] + 0.5 * ordered[..., half]
        offset = at_most(at_least(rows - column(middle), -most), most)
        # A robust deviation; for a feature that is mostly constant, the smallest distance other than 0.
        distance = ascending(abs(offset))
        spread = distance[..., self.rank]
        spread = where(spread > 0.0, spread, smallest(where(distance > 0.0, distance, most + 0.0 * distance)))
        bound = column(self.reach * spread)
        is_start = is_first & (abs(offset) > bound).any(-1)
        offset = clip(offset, bound)
        centre = total(offset) / self.window
        offset = offset - column(centre)
        variance = total(offset * offset) / (self.window - 1.0)
        start = middle + centre
        gap = at_most(at_least(start - mean, -most), most)
        is_new = is_start | has_changed
        if self.edge_count > 0:
            # Each bin holds the same number of the kept rows.
            size = self.window // (self.edge_count + 1)
            edges = ordered[..., size - 1 : -1 : size]
            assign_(self.edges, where(column(is_first | has_changed), edges, self.edges))
        # After a change, the earlier rows and the kept rows weigh one half each, so that both fit.
        count = along(real(self.rounds - 1, mean), mean)
        mixed = 0.5 * (squares / count) + 0.5 * variance + 0.25 * gap * gap
        squares_now = count * where(is_start, variance, mixed)
        # Not mean + gap: after a huge outlier, the gap has lost the digits of the start.
        assign_(mean, where(is_new, where(is_start, start, mean + 0.5 * gap), mean))
        assign_(squares, where(is_new, squares_now, squares))

    # TorchScript does not compile the methods below.

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "edge_count" not in state:
            # Checkpoints of version 0.1 have no products and no bins.
            mean, tables = state["_buffers"]["mean"], state["_non_persistent_buffers_set"]
            none = {"edges": mean.new_zeros((*mean.shape, 0)), "pairs": mean.new_zeros((2, 0), dtype=torch.int64)}
            earlier: dict[str, Any] = {"interactions": False, "factors": (), "bins": 1, "edge_count": 0}
            state = earlier | state
            state |= {"_buffers": state["_buffers"] | none, "_non_persistent_buffers_set": {*tables, "pairs"}}
        super().__setstate__(state)

    def _migrate_(self, state_dict: dict[str, Any], prefix: str) -> None:
        # An older state without rows: fill in the mean.
        mean = state_dict.get(f"{prefix}mean")
        if f"{prefix}recent" not in state_dict and isinstance(mean, Tensor) and mean.shape == self.mean.shape:
            state_dict[f"{prefix}recent"] = mean.detach().unsqueeze(-2).repeat_interleave(WINDOW, -2)
        if self.edge_count == 0 and isinstance(mean, Tensor):
            state_dict.setdefault(f"{prefix}edges", torch.full_like(self.edges, math.inf))

    def _checked(self, x: Any) -> Tensor:
        x = check_tensor("x", x, self.mean)
        if x.dim() <= self.batch_dims or x.size(-1) != self.dim or x.shape[: self.batch_dims] != self.batch_shape:
            wanted = shape_text((*self.batch_shape, "...", self.dim))
            raise ValueError(f"x: expected shape {wanted}, got {shape_text(x.shape)}")
        return x


def checked_interactions(interactions: Any, dim: int) -> Interactions:
    """Return the argument of :class:`StandardScaler`, in tuples, or raise an error."""
    if isinstance(interactions, (bool, str)) and interactions in (False, True, "features", "all"):
        return interactions  # type: ignore[return-value]
    if isinstance(interactions, Mapping):
        groups = {name: _features_of(group, dim) for name, group in interactions.items()}
        if len(set().union(*groups.values())) < sum(map(len, groups.values())):
            raise ValueError(f"interactions: expected groups without a feature in common, got {interactions!r}")
        if sum(map(bool, groups.values())) < 2:
            raise ValueError(f"interactions: expected at least two groups with features, got {interactions!r}")
        return groups
    if isinstance(interactions, Sequence) and not isinstance(interactions, str):
        pairs = tuple(_features_of(pair, dim) for pair in interactions)
        if not pairs:
            raise ValueError("interactions: expected at least one pair, or False for no products, got none")
        for pair in pairs:
            if len(pair) != 2 or pair[0] == pair[1]:
                raise ValueError(f"interactions: expected pairs of two different features, got {pair!r}")
        return pairs
    wanted = 'True, False, "features", "all", a list of pairs of features, or a dict of groups of features'
    raise (ValueError if isinstance(interactions, str) else TypeError)(
        f"interactions: expected {wanted}, got {interactions!r}"
    )


def _features_of(features: Any, dim: int) -> tuple[int, ...]:
    """Return the indices of a pair or a group, or raise."""
    if not isinstance(features, Sequence) or isinstance(features, str):
        raise TypeError(f"interactions: expected a list of features in each pair or group, got {features!r}")
    for feature in features:
        if isinstance(feature, bool) or not isinstance(feature, (int, np.integer)) or not 0 <= feature < dim:
            raise ValueError(f"interactions: expected features from 0 to {dim - 1}, got {feature!r}")
    return tuple(map(int, features))


def factors_of(interactions: Interactions, dim: int, magnitudes: bool) -> tuple[int, ...]:
    """Return the columns of the products' first factors, then of the second.

    The columns are ``dim`` features, then their magnitudes. ``interactions`` is a checked argument.
    """
    found: Iterable[Sequence[int]]
    if isinstance(interactions, (bool, str)):
        found = combinations(range(dim), 2) if interactions else ()
    elif isinstance(interactions, Mapping):
        found = ((i, j) for one, other in combinations(interactions.values(), 2) for i in one for j in other)
    else:
        found = interactions
    pairs = sorted({(min(pair), max(pair)) for pair in found})
    if magnitudes and interactions != "features":
        pairs = [(i + a, j + b) for a in (0, dim) for b in (0, dim) for i, j in pairs]
    return tuple(i for i, _ in pairs) + tuple(j for _, j in pairs)


def check_scaler(scaler: Any, features: int, batch_shape: tuple[int, ...], state: Tensor) -> None:
    """Raise unless a policy's scaler is None or fits its features and its state."""
    if scaler is None:
        return
    if not isinstance(scaler, StandardScaler):
        raise TypeError(f"scaler: expected a StandardScaler, got {type(scaler).__name__}")
    if scaler.features != features:
        raise ValueError(
            f"scaler: expected {features} features, the policy's dim, got one that returns {scaler.features}"
        )
    if scaler.batch_shape != batch_shape:
        raise ValueError(
            f"scaler: expected batch_shape {shape_text(batch_shape)}, got {shape_text(scaler.batch_shape)}"
        )
    if scaler.mean.dtype != state.dtype or scaler.mean.device != state.device:
        wanted, got = f"{state.dtype} on {state.device}", f"{scaler.mean.dtype} on {scaler.mean.device}"
        raise ValueError(f"scaler: expected {wanted}, like the policy, got {got}")
