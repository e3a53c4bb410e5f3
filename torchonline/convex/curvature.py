r"""What the losses so far say of their curvature, :math:`A = cI + \sum_s v_sv_s^\top`: solved with, and projected in.

Three ways to hold it, with the same methods: :class:`EigenCurvature` knows its eigenvectors, :class:`FrozenCurvature` follows
its inverse, for a multiple c that hardly moves, and :class:`SketchCurvature` keeps a few directions.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchonline.core.backend import may_hold
from torchonline.core.learner import Learner
from torchonline.core.ops import (
    along,
    assign_,
    at_least,
    column,
    count_,
    dot,
    fill_,
    increase_,
    joined,
    log,
    matvec,
    nonzero,
    number,
    roundoff,
    sqrt,
    where,
)
from torchonline.core.precision_matrix import (
    add_outer_,
    add_outer_product_,
    add_square_,
    is_time_to_refine,
    refine_,
)
from torchonline.linalg import (
    add_diagonal,
    ball_factors,
    coordinate_vector,
    diagonal,
    eigh,
    invert_where_,
    project_ball_,
    solve,
)


class Curvature(Learner):
    """Base of the three: a matrix for each learner, and what is asked of it.

    Args:
        dim: d.
        start: c before the first round, one for each learner, ``(*B)``, float64.
        batch_shape, dtype, device, validate: as in :class:`~torchonline.core.learner.Learner`.
    """

    shift: Tensor

    starts_apart: tuple[str, ...] = ("shift",)

    def __init__(
        self,
        dim: int,
        start: Tensor,
        *,
        batch_shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device | str | None,
        validate: bool,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.start = start
        # A float32 sum of many outer products needs compensation; a float64 one does not.
        self.compensated = dtype == torch.float32
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {"shift": self.start}

    def _no_matrix(self) -> Tensor:
        return torch.zeros(self.dim, self.dim, dtype=torch.float64)

    def add_(self, v: Tensor) -> None:
        """Add ``v v'``, of ``(*B, d)``."""
        raise NotImplementedError

    def shift_(self, shift: Tensor) -> None:
        """Set c, ``(*B)``."""
        assign_(self.shift, shift)

    def solve(self, x: Tensor) -> Tensor:
        """``A^-1 x``, of ``(*B, d)``."""
        raise NotImplementedError

    def project(self, point: Tensor, radius: Tensor) -> Tensor:
        """The point of the ball of radius ``(*B)`` that is nearest in the norm of A: ``(*B, d)`` to ``(*B, d)``.

        Those inside may come back with an error of rounding.
        """
        raise NotImplementedError

    def forget_(self, due: Tensor) -> None:
        """Forget the sum in the learners that are ``due``, ``(*B)``."""
        raise NotImplementedError


class EigenCurvature(Curvature):
    """The matrix by its eigenvectors: any c, exact, O(d^3) a round."""

    undetermined = ("vectors",)

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        lost: Tensor | None
    matrix: Tensor
    values: Tensor
    vectors: Tensor

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {
            "shift": self.start,
            "matrix": self._no_matrix(),
            "lost": self._no_matrix() if self.compensated else None,
            "values": torch.zeros(self.dim, dtype=torch.float64),
            "vectors": torch.eye(self.dim, dtype=torch.float64),
        }

    def add_(self, v: Tensor) -> None:
        add_square_(self.matrix, self.lost, v)
        values, vectors = eigh(self.matrix)
        assign_(self.values, at_least(values, 0.0))
        assign_(self.vectors, vectors)

    def solve(self, x: Tensor) -> Tensor:
        return matvec(self.vectors, matvec(self.vectors.mT, x) / (self.values + column(self.shift)))

    def project(self, point: Tensor, radius: Tensor) -> Tensor:
        rotated = matvec(self.vectors.mT, point / column(radius))
        nearest = rotated * ball_factors(rotated, self.values + column(self.shift), 1.0)
        return matvec(self.vectors, nearest) * column(radius)

    def forget_(self, due: Tensor) -> None:
        fill_(self.matrix, due[..., None, None], 0.0)
        if self.lost is not None:
            fill_(self.lost, due[..., None, None], 0.0)
        fill_(self.values, due[..., None], 0.0)


class FrozenCurvature(Curvature):
    r"""The matrix and its inverse, by rank-one updates: O(d^2) a round.

    A multiple of I is not of rank one. So c only ever grows: from :math:`c_1` to the next :math:`c_12^i`, when it has to, at
    O(d^3), and where the ridge is constant never. An eigendecomposition is made in a round that has to project.
    """

    if TYPE_CHECKING:
        lost: Tensor | None
    matrix: Tensor
    inverse: Tensor
    first: Tensor
    rounds: Tensor

    starts_apart = ("shift", "matrix", "inverse")

    def _initial_state(self) -> dict[str, Tensor | None]:
        identity, start = torch.eye(self.dim, dtype=torch.float64), self.start[..., None, None]
        return {
            "shift": self.start,
            "matrix": start * identity,
            "inverse": identity / start,
            "lost": self._no_matrix() if self.compensated else None,
            "rounds": torch.zeros((), dtype=torch.int64),
        }

    def _tables(self) -> dict[str, Tensor]:
        return {"first": self.start}

    def add_(self, v: Tensor) -> None:
        product = matvec(self.inverse, v)
        matrix = (self.matrix, self.inverse, self.lost)
        add_outer_(matrix, v, product, number(dot(v, product)))
        count_(self.rounds)
        rounds = number(self.rounds)
        if is_time_to_refine(rounds):
            refine_(matrix, rounds)

    def shift_(self, shift: Tensor) -> None:
        # Rounding must not pass for growth.
        due = shift > number(self.shift) * (1.0 + 1e-9)
        if may_hold(due):
            doublings = -((-log(shift / self.first) / math.log(2.0)) // 1.0)  # rounded up
            grown = where(due, self.first * 2.0**doublings, self.shift)
            entries = diagonal(self.matrix)
            entries += column(grown - self.shift)
            assign_(self.shift, grown)
            invert_where_(self.inverse, self.matrix, due)

    def solve(self, x: Tensor) -> Tensor:
        return matvec(self.inverse, x)

    def project(self, point: Tensor, radius: Tensor) -> Tensor:
        nearest = point / column(radius)
        project_ball_(nearest, self.matrix, 1.0, self.validate)
        return nearest * column(radius)


class SketchCurvature(Curvature):
    r"""A few directions, by compensated frequent directions: O(dr + r^3) a round for r = ``size``.

    In place of the sum stand 2r rows S, with :math:`S^\top S \le \sum_s v_sv_s^\top \le S^\top S + \text{extra}\cdot I`. The
    first r are filled one by one. When they are full, the squares of all singular values are lowered by the (r+1)-th, which
    empties them again, and ``extra`` is raised by as much, and counts in c: A is never less than without a sketch.

    Args:
        dim, start, batch_shape, dtype, device, validate: as in :class:`Curvature`.
        size: r.
    """

    undetermined = ("rows", "gram")

    size: int
    rows: Tensor
    gram: Tensor
    extra: Tensor
    count: Tensor

    def __init__(
        self,
        dim: int,
        start: Tensor,
        size: int,
        *,
        batch_shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device | str | None,
        validate: bool,
    ) -> None:
        self.size = size
        super().__init__(dim, start, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {
            "shift": self.start,
            "rows": torch.zeros(2 * self.size, self.dim, dtype=torch.float64),
            "gram": torch.zeros(2 * self.size, 2 * self.size, dtype=torch.float64),
            "extra": torch.zeros((), dtype=torch.float64),
            "count": torch.zeros((), dtype=torch.int64),
        }

    def add_(self, v: Tensor) -> None:
        products = matvec(self.rows, v)
        place = coordinate_vector(self.count % self.size, products)
        border = products + 0.5 * along(dot(v, v), place) * place
        add_outer_product_(self.rows, place, v)
        add_outer_product_(self.gram, place, border)
        add_outer_product_(self.gram, border, place)
        count_(self.count)
        # All learners of a fleet are full at once.
        if may_hold(self.count % self.size == 0):
            self._compress_()

    def _compress_(self) -> None:
        values, vectors = eigh(self.gram)  # ascending: the largest come to lie in the last rows
        lowest = at_least(values[..., self.size - 1], 0.0)
        kept = at_least(values - column(lowest), 0.0)
        assign_(self.rows, sqrt(kept / nonzero(values))[..., None] * (vectors.mT @ self.rows))
        assign_(self.gram, 0.0 * self.gram)
        entries = diagonal(self.gram)
        entries += kept
        increase_(self.extra, lowest)

    def solve(self, x: Tensor) -> Tensor:
        c = self.shift + self.extra
        inside = solve(add_diagonal(self.gram, c), matvec(self.rows, x))  # Woodbury's identity
        return (x - matvec(self.rows.mT, inside)) / column(c)

    def project(self, point: Tensor, radius: Tensor) -> Tensor:
        c, y = column(self.shift + self.extra), point / column(radius)
        values, vectors = eigh(self.gram)
        # In an orthonormal basis of the rows' span, and with all that is orthogonal to it as one more coordinate.
        known = values > roundoff(values) * values[..., -1:]
        weights = where(known, 1.0 / sqrt(nonzero(values)), 0.0 * values)
        inside = weights * matvec(vectors.mT, matvec(self.rows, y))
        rest = sqrt(at_least(dot(y, y) - dot(inside, inside), 0.0))
        factors = ball_factors(joined(inside, rest), joined(at_least(values, 0.0) + c, self.shift + self.extra), 1.0)
        outer = factors[..., -1:]
        turned = weights * (factors[..., :-1] - outer) * inside
        nearest = outer * y + matvec(self.rows.mT, matvec(vectors, turned))
        return nearest * column(radius)

    def forget_(self, due: Tensor) -> None:
        fill_(self.rows, due[..., None, None], 0.0)
        fill_(self.gram, due[..., None, None], 0.0)
        fill_(self.extra, due, 0.0)
