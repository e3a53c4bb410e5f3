r"""Curvature of the losses so far, :math:`A = cI + \sum_s v_sv_s^\top`."""

import math
from typing import TYPE_CHECKING, Any, Unpack

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
    matmul,
    matvec,
    nonzero,
    number,
    roundoff,
    sqrt,
    where,
)
from torchonline.core.options import LearnerOptions
from torchonline.core.precision_matrix import add_outer_, add_outer_product_, add_square_, is_time_to_refine, refine_
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
    """Base class of the curvatures: one matrix A for each learner.

    ``start`` is c before the first round, one number for each learner, ``(*B)``, float64. ``size`` is for sketches only.
    """

    if TYPE_CHECKING:  # an annotation of None would hide the buffer from TorchScript
        lost: Tensor | None
    identity_multiple: Tensor

    renamed = {"shift": "identity_multiple"}
    starts_apart: tuple[str, ...] = ("identity_multiple",)

    def __init__(self, dim: int, start: Tensor, size: int = 0, **options: Unpack[LearnerOptions]) -> None:
        super().__init__(dim, **options)
        self.start, self.size = start, size
        # A float32 sum of many outer products needs compensation; a float64 one does not.
        self.compensated = self._initial_options["dtype"] == torch.float32
        self._create_buffers()

    def add_(self, v: Tensor) -> None:
        """Add ``v v'`` to A: ``(*B, d)``."""
        raise NotImplementedError

    def set_multiple_(self, multiple: Tensor) -> None:
        """Set c, ``(*B)``."""
        assign_(self.identity_multiple, multiple)

    def solve(self, x: Tensor) -> Tensor:
        """Return ``A^-1 x``: ``(*B, d)`` to ``(*B, d)``."""
        raise NotImplementedError

    def project(self, point: Tensor) -> Tensor:
        """Project a point, ``(*B, d)``, onto the unit ball, in the norm of A.

        The result is inside the ball by a rounding error. The method may overwrite the point.
        """
        raise NotImplementedError

    def forget_(self, due: Tensor) -> None:
        """Remove all added terms where ``due``, ``(*B)``. The caller sets c afterwards."""
        raise NotImplementedError

    def dense(self) -> Any:
        """Return A, ``(*B, d, d)``. This method is for Python only."""
        raise NotImplementedError


class EigenCurvature(Curvature):
    """A as its sum and c: exact for any c, by linear systems, at O(d^3) per round.

    The form's name is from a version that kept the eigenvectors of the sum.
    """

    dropped = ("eigenvalues", "eigenvectors", "values", "vectors")

    matrix: Tensor

    def _initial_state(self) -> dict[str, Tensor | None]:
        nothing = torch.zeros(self.dim, self.dim, dtype=torch.float64)
        return {"identity_multiple": self.start, "matrix": nothing, "lost": nothing if self.compensated else None}

    def add_(self, v: Tensor) -> None:
        add_square_(self.matrix, self.lost, v)

    def solve(self, x: Tensor) -> Tensor:
        return solve(self._whole(), x)

    def project(self, point: Tensor) -> Tensor:
        project_ball_(point, self._whole(), 1.0, self.validate)
        return point

    def forget_(self, due: Tensor) -> None:
        fill_(self.matrix, due[..., None, None], 0.0)
        if self.lost is not None:
            fill_(self.lost, due[..., None, None], 0.0)

    def dense(self) -> Any:
        return self._whole()

    def _whole(self) -> Tensor:
        """Return A, ``(*B, d, d)``, a new matrix."""
        return add_diagonal(self.matrix, self.identity_multiple)


class FrozenCurvature(Curvature):
    r"""A and its inverse by rank-one updates: O(d^2) per round.

    c only grows, and only when needed, from :math:`c_1` to the next :math:`c_12^i`. Growing costs O(d^3), as does a round that
    projects.
    """

    matrix: Tensor
    inverse: Tensor
    first_multiple: Tensor
    rounds: Tensor

    dropped = ("first",)
    starts_apart = ("identity_multiple", "matrix", "inverse")
    positive_definite = ("matrix", "inverse")
    inverses = (("matrix", "inverse"),)

    def _initial_state(self) -> dict[str, Tensor | None]:
        identity, start = torch.eye(self.dim, dtype=torch.float64), self.start[..., None, None]
        return {
            "identity_multiple": self.start,
            "matrix": start * identity,
            "inverse": identity / start,
            "lost": torch.zeros_like(identity) if self.compensated else None,
            "rounds": torch.zeros((), dtype=torch.int64),
        }

    def _tables(self) -> dict[str, Tensor]:
        return {"first_multiple": self.start}

    def add_(self, v: Tensor) -> None:
        product = matvec(self.inverse, v)
        matrix = (self.matrix, self.inverse, self.lost)
        add_outer_(matrix, v, product, dot(v, product))
        count_(self.rounds)
        rounds = number(self.rounds)
        if is_time_to_refine(rounds):
            refine_(matrix, rounds)

    def set_multiple_(self, multiple: Tensor) -> None:
        # Rounding must not count as growth.
        due = multiple > number(self.identity_multiple) * (1.0 + 1e-9)
        if may_hold(due):
            doublings = -((-log(multiple / self.first_multiple) / math.log(2.0)) // 1.0)  # rounded up
            grown = where(due, self.first_multiple * 2.0**doublings, self.identity_multiple)
            entries = diagonal(self.matrix)
            entries += column(grown - self.identity_multiple)
            assign_(self.identity_multiple, grown)
            invert_where_(self.inverse, self.matrix, due)

    def solve(self, x: Tensor) -> Tensor:
        return matvec(self.inverse, x)

    def project(self, point: Tensor) -> Tensor:
        project_ball_(point, self.matrix, 1.0, self.validate)
        return point

    def dense(self) -> Any:
        return self.matrix


class SketchCurvature(Curvature):
    r"""Low-rank sketch of A, by compensated frequent directions.

    For r = ``size``, 2r rows S replace the sum, with
    :math:`S^\top S \le \sum_s v_sv_s^\top \le S^\top S + \text{removed}\cdot I`. The first r rows are filled one by one. When
    they are full, a compression lowers the squares of all singular values by the (r+1)-th. This empties the first rows, and
    ``removed_spectrum``, which is part of c, grows by the same amount. Cost of a round: O(dr + r^3).
    """

    sketch: Tensor
    gram: Tensor
    removed_spectrum: Tensor
    rounds: Tensor

    renamed = Curvature.renamed | {"rows": "sketch", "extra": "removed_spectrum", "count": "rounds"}
    undetermined = ("sketch", "gram")

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {
            "identity_multiple": self.start,
            "sketch": torch.zeros(2 * self.size, self.dim, dtype=torch.float64),
            "gram": torch.zeros(2 * self.size, 2 * self.size, dtype=torch.float64),
            "removed_spectrum": torch.zeros((), dtype=torch.float64),
            "rounds": torch.zeros((), dtype=torch.int64),
        }

    def add_(self, v: Tensor) -> None:
        products = matvec(self.sketch, v)
        place = coordinate_vector(self.rounds % self.size, products)
        border = products + 0.5 * along(dot(v, v), place) * place
        add_outer_product_(self.sketch, place, v)
        add_outer_product_(self.gram, place, border)
        add_outer_product_(self.gram, border, place)
        count_(self.rounds)
        # The sketches of all learners of a batch fill up, and are compressed, at the same time.
        if may_hold(self.rounds % self.size == 0):
            values, vectors = eigh(self.gram)  # ascending, so that the largest are in the last rows
            lowest = at_least(values[..., self.size - 1], 0.0)
            kept = at_least(values - column(lowest), 0.0)
            assign_(self.sketch, sqrt(kept / nonzero(values))[..., None] * matmul(vectors.mT, self.sketch))
            assign_(self.gram, 0.0 * self.gram)
            entries = diagonal(self.gram)
            entries += kept
            increase_(self.removed_spectrum, lowest)

    def solve(self, x: Tensor) -> Tensor:
        c = self.identity_multiple + self.removed_spectrum
        inside = solve(add_diagonal(self.gram, c), matvec(self.sketch, x))  # Woodbury's identity
        return (x - matvec(self.sketch.mT, inside)) / column(c)

    def project(self, point: Tensor) -> Tensor:
        c = self.identity_multiple + self.removed_spectrum
        values, vectors = eigh(self.gram)
        # Coordinates in an orthonormal basis of the span of the rows, and one more for the part orthogonal to it.
        known = values > roundoff(values) * values[..., -1:]
        weights = where(known, 1.0 / sqrt(nonzero(values)), 0.0 * values)
        inside = weights * matvec(vectors.mT, matvec(self.sketch, point))
        rest = sqrt(at_least(dot(point, point) - dot(inside, inside), 0.0))
        factors = ball_factors(joined(inside, rest), joined(at_least(values, 0.0) + column(c), c), 1.0)
        outer = factors[..., -1:]
        turned = weights * (factors[..., :-1] - outer) * inside
        return outer * point + matvec(self.sketch.mT, matvec(vectors, turned))

    def forget_(self, due: Tensor) -> None:
        fill_(self.sketch, due[..., None, None], 0.0)
        fill_(self.gram, due[..., None, None], 0.0)
        fill_(self.removed_spectrum, due, 0.0)

    def dense(self) -> Any:
        return add_diagonal(matmul(self.sketch.mT, self.sketch), self.identity_multiple + self.removed_spectrum)
