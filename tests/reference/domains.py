"""Projections onto polytopes, by all faces that their vertices may span, and what a polytope has in a ball."""

import itertools
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

Projection = Callable[[np.ndarray, np.ndarray], np.ndarray]


def by_faces(vertices: np.ndarray) -> Projection:
    """The projection ``(A, y)`` to the nearest x of the hull, in the norm of A.

    By Caratheodory's theorem x lies in the hull of at most d + 1 vertices, and it is nearest in their plane if no fewer will do.
    """
    count, dim = vertices.shape
    faces = [
        list(face) for size in range(1, min(count, dim + 1) + 1) for face in itertools.combinations(range(count), size)
    ]

    def project(A: np.ndarray, y: np.ndarray) -> np.ndarray:
        root = np.linalg.cholesky(A).T
        best, least = vertices[0], np.inf
        for face in faces:
            first, sides = vertices[face[0]], (vertices[face[1:]] - vertices[face[0]]).T
            # NumPy 2.0 knows no rank of a matrix without columns.
            if len(face) > 1 and np.linalg.matrix_rank(sides) < sides.shape[1]:
                continue
            weights = np.linalg.lstsq(root @ sides, root @ (y - first), rcond=None)[0]
            if (weights >= -1e-12).all() and weights.sum() <= 1.0 + 1e-12:
                x = first + sides @ weights
                distance = float(np.linalg.norm(root @ (x - y)))
                if distance < least:
                    best, least = x, distance
        return best

    return project


def in_ball(project: Projection, centre: np.ndarray, radius: float) -> Projection:
    """The projection onto what a set has in a ball around one of its points: the root of the multiplier."""

    def both(A: np.ndarray, y: np.ndarray) -> np.ndarray:
        def moved(mu: float) -> np.ndarray:
            held = A + mu * np.eye(len(y))
            return project(held, centre + np.linalg.solve(held, A @ (y - centre)))

        def excess(mu: float) -> float:
            return float(np.linalg.norm(moved(mu) - centre)) - radius

        if excess(0.0) <= 0.0:
            return moved(0.0)
        high = float(np.linalg.eigvalsh(A)[-1])
        while excess(high) > 0.0:
            high *= 4.0
        return moved(brentq(excess, 0.0, high, xtol=1e-15 * high, rtol=1e-14))

    return both
