"""Convex domains: linear minimization, and projections in the norm of a matrix."""

import hashlib
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.convex.projections import project_between, project_hull
from torchonline.core.checks import instance_of, kind, positive, positive_integer
from torchonline.core.inputs import check_floats
from torchonline.core.ops import at_least, matmul, norms, sign
from torchonline.core.write_once import WriteOnce
from torchonline.linalg import coordinate_vector, project_ball

TINY = 1e-300


class Domain(WriteOnce):
    """Base class of the domains: convex sets with a linear minimization oracle.

    A subclass sets ``dim`` and implements ``start``, ``minimizer`` and ``parameters``. OONS and its relatives need ``start``,
    ``parameters``, ``project`` and ``extent``. A domain must not depend on data.

    Example:
        >>> class Ball(Domain):
        ...     def __init__(self, dim, radius):
        ...         self.dim, self.radius = dim, radius
        ...
        ...     def start(self):
        ...         return torch.zeros(self.dim, dtype=torch.float64)
        ...
        ...     def minimizer(self, direction):
        ...         return -self.radius * torch.nn.functional.normalize(direction, dim=-1)
        ...
        ...     def parameters(self):
        ...         return [("radius", self.radius)]
        >>> learner = DPTOFW(2, domain=Ball(2, 3.0), horizon=10, epsilon=1.0, delta=0.01)
        >>> learner.step(None)
        >>> bool(learner.predict().norm() <= 3.0)
        True
    """

    dim: int
    takes_arrays = False  # whether `minimizer` also takes NumPy arrays, and then returns one

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim})"

    def start(self) -> Tensor:
        """Return a point of the domain to begin at, ``(d)``, float64."""
        raise NotImplementedError

    def minimizer(self, direction: Tensor) -> Tensor:
        """Return a minimizer v of <direction, v>: ``(*, d)`` to ``(*, d)``, float64."""
        raise NotImplementedError

    def parameters(self) -> list[tuple[str, float]]:
        """Return (name, value) pairs that identify this domain."""
        raise NotImplementedError

    def project(self, point: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        r"""Return the x of the domain that minimises :math:`(x - p)^\top A(x - p)`.

        Arrays are float64: p, ``(d)``, and A, symmetric positive definite, ``(d, d)``. The result is exact up to rounding.
        """
        raise NotImplementedError

    def extent(self) -> float:
        """Return the largest distance of a point of the domain from ``start()``."""
        raise NotImplementedError


class LpBall(Domain):
    r"""Ball of an l_p norm, :math:`\|v\|_p \le R`.

    The minimizer for a direction g is

    .. math:: v = -R\,\mathrm{sign}(g)\,\frac{|g|^{q-1}}{\||g|^{q-1}\|_p},\quad q = \frac{p}{p-1};\qquad
              \langle g, v\rangle = -R\|g\|_q .

    For p = infinity it is :math:`-R\,\mathrm{sign}(g)`; for p = 1, :math:`-R\,\mathrm{sign}(g_j)e_j` for the first largest
    :math:`|g_j|`. For g = 0 it is 0.

    Args:
        dim: number of coordinates d.
        norm: p, from 1 to infinity.
        radius: R > 0.

    Example:
        >>> LpBall(2, norm=2.0, radius=5.0).minimizer(torch.tensor([3.0, -4.0]).double())
        tensor([-3.,  4.], dtype=torch.float64)
    """

    takes_arrays = True

    def __init__(self, dim: int, *, norm: float, radius: float = 1.0) -> None:
        self.dim = positive_integer("dim", dim)
        self.norm = norm_order("norm", norm)
        self.radius = positive("radius_bound", radius)

    def start(self) -> Tensor:
        return torch.zeros(self.dim, dtype=torch.float64)

    def minimizer(self, direction: Tensor) -> Tensor:
        if self.norm == math.inf:
            return -self.radius * sign(direction)
        if self.norm == 1.0:
            return coordinate_vector(abs(direction).argmax(-1), direction) * sign(direction) * -self.radius
        # Scale the largest entry to 1, so that powers do not overflow. A direction of 0 stays 0.
        unit = direction / at_least(norms(direction, math.inf), TINY)
        if self.norm != 2.0:
            unit = sign(unit) * abs(unit) ** (1.0 / (self.norm - 1.0))
        return unit * (-self.radius / at_least(norms(unit, self.norm), TINY))

    def parameters(self) -> list[tuple[str, float]]:
        return [("norm", self.norm), ("radius_bound", self.radius)]

    def project(self, point: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """Project onto the ball, for the norms 1, 2 and infinity."""
        if self.norm == 2.0:
            project: Any = project_ball  # also takes arrays
            return project(point, matrix, self.radius)
        if self.norm == math.inf:
            ends = np.full(self.dim, self.radius)
            return project_between(point, matrix, -ends, ends)
        if self.norm == 1.0:
            sides = self.radius * np.eye(self.dim)
            return project_hull(point, matrix, np.concatenate([sides, -sides]))
        raise NotImplementedError

    def extent(self) -> float:
        return self.radius * self.dim ** max(0.0, 0.5 - 1.0 / self.norm)


class Vertices(Domain):
    """Base class of the polytopes: domains with a list of vertices."""

    count: int  # of vertices
    diameter: float  # largest l1 distance of two vertices
    reach: float  # largest l1 norm of a vertex

    def scores(self, direction: Tensor) -> Tensor:
        """Return <direction, v> for all vertices v: ``(*, d)`` to ``(*, count)``."""
        raise NotImplementedError

    def vertex(self, index: Tensor) -> Tensor:
        """Return vertices by index: ``(*)`` to ``(*, d)``, float64."""
        raise NotImplementedError

    def minimizer(self, direction: Tensor) -> Tensor:
        return self.vertex(self.scores(direction).argmin(-1))

    def project(self, point: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """Project onto the polytope by Wolfe's method, at O(md + d^3) for each vertex."""
        return project_hull(point, matrix, self._vertices())

    def extent(self) -> float:
        return float(np.linalg.norm(self._vertices() - self.start().cpu().numpy(), axis=-1).max())

    def _vertices(self) -> np.ndarray:
        """Return all vertices, ``(count, d)``."""
        return self.vertex(torch.arange(self.count, device="cpu")).numpy()


class CrossPolytope(LpBall, Vertices):
    r"""Ball :math:`\|v\|_1 \le R` as a polytope.

    Its vertices are :math:`Re_1, ..., Re_d, -Re_1, ..., -Re_d`. Its arguments are as in :class:`LpBall`.

    Example:
        >>> CrossPolytope(2, radius=5.0).minimizer(torch.tensor([-3.0, -4.0]).double())
        tensor([0., 5.], dtype=torch.float64)
    """

    def __init__(self, dim: int, *, radius: float = 1.0) -> None:
        super().__init__(dim, norm=1.0, radius=radius)
        self.count, self.diameter, self.reach = 2 * self.dim, 2.0 * self.radius, self.radius

    def scores(self, direction: Tensor) -> Tensor:
        return self.radius * torch.cat([direction, -direction], -1)

    def vertex(self, index: Tensor) -> Tensor:
        size = torch.where(index < self.dim, self.radius, -self.radius).to(torch.float64).unsqueeze(-1)
        zero = size.new_zeros((*index.shape, self.dim))
        return zero.scatter_(-1, (index % self.dim).unsqueeze(-1), size)


class Polytope(Vertices):
    """Convex hull of given points, which must not depend on the data.

    Args:
        vertices: ``(m, d)``, floating point, finite.

    Example:
        >>> Polytope(torch.eye(3)).minimizer(torch.tensor([3.0, 1.0, 2.0]).double())
        tensor([0., 1., 0.], dtype=torch.float64)
    """

    def __init__(self, vertices: Any) -> None:
        vertices = check_floats("vertices", vertices)
        if vertices.dim() != 2 or vertices.numel() == 0:
            raise ValueError(f"vertices: expected shape (m, d), got {tuple(vertices.shape)}")
        if not bool(torch.isfinite(vertices).all()):
            raise ValueError("vertices: expected finite values, got NaN or infinity")
        self.points = vertices.detach().to("cpu", torch.float64, copy=True)
        self.count, self.dim = self.points.shape
        self.reach = float(self.points.abs().sum(-1).max())
        self.diameter = max(float(torch.cdist(some, self.points, p=1.0).max()) for some in self.points.split(256))

    def start(self) -> Tensor:
        return self.points.mean(0)

    def scores(self, direction: Tensor) -> Tensor:
        return matmul(direction, self.points.to(direction.device).mT)

    def vertex(self, index: Tensor) -> Tensor:
        return self.points.to(index.device)[index]

    def parameters(self) -> list[tuple[str, float]]:
        return digests("the vertices", self.points)


class Simplex(Vertices):
    """Simplex: nonnegative entries with a given sum.

    Args:
        dim: number of coordinates d.
        radius: the sum of the entries, above 0.

    Example:
        >>> Simplex(3).minimizer(torch.tensor([3.0, 1.0, 2.0]).double())
        tensor([0., 1., 0.], dtype=torch.float64)
    """

    def __init__(self, dim: int, *, radius: float = 1.0) -> None:
        self.dim = self.count = positive_integer("dim", dim)
        self.radius = self.reach = positive("radius", radius)
        self.diameter = 2.0 * self.radius if self.dim > 1 else 0.0

    def start(self) -> Tensor:
        return torch.full((self.dim,), self.radius / self.dim, dtype=torch.float64)

    def scores(self, direction: Tensor) -> Tensor:
        return self.radius * direction

    def vertex(self, index: Tensor) -> Tensor:
        return self.radius * torch.nn.functional.one_hot(index, self.dim).to(torch.float64)

    def parameters(self) -> list[tuple[str, float]]:
        return [("radius", self.radius)]

    def project(self, point: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """Project onto the simplex by active sets, at O(d^3) for each change of a face."""
        return project_between(point, matrix, np.zeros(self.dim), np.full(self.dim, math.inf), self.radius)

    def extent(self) -> float:
        return self.radius * math.sqrt(1.0 - 1.0 / self.dim)


class Box(Domain):
    """Box: each coordinate between two bounds, which must not depend on the data.

    The minimizer takes the middle where the direction is 0.

    Args:
        lower, upper: ``(d)``, floating point, finite; ``lower`` is not above ``upper``.

    Example:
        >>> Box(torch.tensor([0.0, -1.0]), torch.tensor([1.0, 3.0])).minimizer(torch.tensor([2.0, -0.5]).double())
        tensor([0., 3.], dtype=torch.float64)
    """

    def __init__(self, lower: Any, upper: Any) -> None:
        ends = [check_floats(name, value) for name, value in {"lower": lower, "upper": upper}.items()]
        if ends[0].dim() != 1 or ends[0].numel() == 0 or ends[0].shape != ends[1].shape:
            got = " and ".join(str(tuple(end.shape)) for end in ends)
            raise ValueError(f"lower and upper: expected equal shapes (d), got {got}")
        self.lower, self.upper = (end.detach().to("cpu", torch.float64, copy=True) for end in ends)
        if not bool((self.upper - self.lower).isfinite().all()):
            raise ValueError("lower and upper: expected finite values with finite differences, got others")
        if not bool((self.lower <= self.upper).all()):
            raise ValueError("lower and upper: expected lower <= upper in all entries, got lower > upper in some")
        self.dim = len(self.lower)

    def start(self) -> Tensor:
        return self.lower.lerp(self.upper, 0.5)

    def minimizer(self, direction: Tensor) -> Tensor:
        lower, upper = (end.to(direction.device) for end in (self.lower, self.upper))
        return lower.lerp(upper, 0.5 - 0.5 * direction.sign())

    def parameters(self) -> list[tuple[str, float]]:
        return digests("the box", torch.stack([self.lower, self.upper]))

    def project(self, point: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """Project onto the box by active sets. Cost: O(d^3) for each change of a face."""
        return project_between(point, matrix, self.lower.numpy(), self.upper.numpy())

    def extent(self) -> float:
        return float((0.5 * (self.upper - self.lower)).norm())


class NuclearBall(Domain):
    """Nuclear-norm ball: matrices whose singular values sum to at most a radius.

    A vector of the domain holds such a matrix row by row. The minimizer has rank 1: minus the radius times the first singular
    vectors of the direction. Cost: a singular value decomposition.

    Args:
        rows, columns: of a matrix; d is their product.
        radius: the largest sum of the singular values.

    Example:
        >>> ball = NuclearBall(2, 2, radius=3.0)
        >>> ball.minimizer(torch.tensor([2.0, 0.0, 0.0, 1.0]).double()).reshape(2, 2).abs()
        tensor([[3., 0.],
                [0., 0.]], dtype=torch.float64)
    """

    def __init__(self, rows: int, columns: int, *, radius: float = 1.0) -> None:
        self.rows, self.columns = positive_integer("rows", rows), positive_integer("columns", columns)
        self.radius = positive("radius", radius)
        self.dim = self.rows * self.columns

    def start(self) -> Tensor:
        return torch.zeros(self.dim, dtype=torch.float64)

    def minimizer(self, direction: Tensor) -> Tensor:
        matrix = direction.unflatten(-1, (self.rows, self.columns))
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        vertex = (-self.radius * left[..., :1] * right[..., :1, :]).flatten(-2)
        return torch.where((direction == 0.0).all(-1, keepdim=True), 0.0, vertex)

    def parameters(self) -> list[tuple[str, float]]:
        return [("rows", float(self.rows)), ("columns", float(self.columns)), ("radius", self.radius)]


def projectable(domain: Any, dim: int) -> Domain:
    """Return the domain, or raise if it lacks projections or has another dimension."""
    instance_of("domain", domain, Domain, "None or a Domain")
    if domain.dim != dim:
        raise ValueError(f"domain: expected a domain of dimension {dim}, got {domain.dim}")
    try:
        start, extent = domain.start(), domain.extent()
        domain.parameters()
        if not isinstance(start, Tensor) or start.dtype != torch.float64 or tuple(start.shape) != (dim,):
            raise ValueError(f"domain: expected start() to return float64 values, ({dim},), got {kind(start)}")
        projected(domain, start.detach().cpu().numpy(), np.eye(dim))
    except NotImplementedError:
        wanted = (
            "a Box, a Simplex, a polytope, a ball of norm 1, 2 or infinity, or a Domain with project(), extent() and "
            "parameters()"
        )
        raise ValueError(f"domain: expected {wanted}, got {type(domain).__name__}") from None
    if not bool(start.isfinite().all()):
        raise ValueError("domain: expected start() to return finite values, got NaN or infinity")
    if not isinstance(extent, float | int):
        raise TypeError(f"domain: expected extent() to return a number, got {kind(extent)}")
    if not 0.0 < extent < math.inf:
        raise ValueError(f"domain: expected a bounded domain with more than one point, got extent {extent}")
    return domain


def projected(domain: Domain, point: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return a checked projection onto a domain, ``(d)``."""
    found = domain.project(point, matrix)
    if np.shape(found) != point.shape or not np.isfinite(found).all():
        raise ValueError(f"domain: expected project() to return finite values, {point.shape}, got {found!r}")
    return found


def digests(name: str, values: Tensor) -> list[tuple[str, float]]:
    """Return numbers that identify a tensor on the CPU, for ``parameters``."""
    digest = hashlib.sha256((values + 0.0).numpy().tobytes()).digest()  # -0 counts as 0
    return [(f"digest of {name}", float(int.from_bytes(digest[4 * i : 4 * i + 4]))) for i in range(8)]


def norm_order(name: str, value: Any) -> float:
    """Return the order of a norm, from 1 to infinity, as a float."""
    order = math.inf if value == math.inf else positive(name, value)
    if order < 1.0:
        raise ValueError(f"{name}: expected an order from 1 to infinity, got {value}")
    return order
