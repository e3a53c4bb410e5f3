"""Convex domains with a linear minimization oracle, for Frank-Wolfe methods."""

import hashlib
import math
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import positive, positive_integer
from torchonline.core.inputs import check_floats
from torchonline.core.ops import at_least, norms, sign
from torchonline.core.write_once import WriteOnce
from torchonline.linalg import coordinate_vector

TINY = 1e-300


class Domain(WriteOnce):
    """Base class of the domains."""

    dim: int
    takes_arrays = False  # whether `minimizer` also takes NumPy arrays, and then returns one

    def start(self) -> Tensor:
        """Return a point of the domain to begin at, ``(d)``, float64."""
        raise NotImplementedError

    def minimizer(self, direction: Tensor) -> Tensor:
        """Return a minimizer v of <direction, v>: ``(*, d)`` to ``(*, d)``, float64."""
        raise NotImplementedError

    def parameters(self) -> list[tuple[str, float]]:
        """Return (name, value) pairs that tell this domain from others."""
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


class CrossPolytope(LpBall, Vertices):
    r"""Ball :math:`\|v\|_1 \le R` as a polytope.

    Its vertices are :math:`Re_1, ..., Re_d, -Re_1, ..., -Re_d`. Its arguments are those of :class:`LpBall`.

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
    """The convex hull of some points, which must not depend on the data.

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
        return direction @ self.points.to(direction.device).mT

    def vertex(self, index: Tensor) -> Tensor:
        return self.points.to(index.device)[index]

    def parameters(self) -> list[tuple[str, float]]:
        # A digest of the vertices. Other vertices have other digests.
        digest = hashlib.sha256(self.points.numpy().tobytes()).digest()
        return [(f"digest {i} of the vertices", float(int.from_bytes(digest[4 * i : 4 * i + 4]))) for i in range(8)]


def norm_order(name: str, value: Any) -> float:
    """Return the order of a norm, from 1 to infinity, as a float."""
    order = math.inf if value == math.inf else positive(name, value)
    if order < 1.0:
        raise ValueError(f"{name}: expected an order from 1 to infinity, got {value}")
    return order
