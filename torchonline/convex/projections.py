"""Projections onto polytopes in the norm of a matrix, by active sets in NumPy."""

from collections.abc import Callable

import numpy as np

ROUNDOFF = 2.0**-52
# A multiplier counts as wrong if it is on the wrong side by more than this many rounding errors of its terms.
SLACK = 64.0

Projection = Callable[[np.ndarray, np.ndarray], np.ndarray]


def project_between(
    point: np.ndarray, matrix: np.ndarray, lower: np.ndarray, upper: np.ndarray, total: float | None = None
) -> np.ndarray:
    r"""Project onto bounds: :math:`\arg\min\|x - p\|_A` over :math:`l \le x \le u`.

    With ``total``, the entries of x also sum to it. The lower bounds must then be 0 and the upper bounds infinite.

    This is an active-set method. It solves for the free coordinates, and holds a coordinate at a bound that it would pass. When
    none would, it frees the held coordinates whose multipliers point inwards. Each time it frees some, the distance is smaller
    than at all such times before. Therefore no set of held coordinates repeats, and the result is exact up to rounding. If the
    matrix is diagonal and there is no ``total``, the result is the clipped point, at once. Cost: O(d^3) for each change of the
    set.

    Args:
        point: p, ``(d)``.
        matrix: A, symmetric positive definite, ``(d, d)``.
        lower: l, ``(d)``.
        upper: u, ``(d)``.
        total: the sum of the entries, above 0; None for any sum.
    """
    x = np.clip(point, lower, upper) if total is None else _on_simplex(point, total)
    held = (x <= lower) | (x >= upper)
    for _ in range(100 + 20 * len(point)):
        free = np.flatnonzero(~held)
        if total is not None and len(free) == 1:  # it equals the sum; the rounding of a far point may exceed the sum
            x[free] = total
        elif len(free):
            move = point[free] - x[free] + _answer(matrix, free, held, point - x, total is not None)
            room = np.where(move > 0.0, upper[free] - x[free], x[free] - lower[free])
            share = np.full(len(free), np.inf)
            np.divide(room, np.abs(move), out=share, where=move != 0.0)
            if (least := share.min()) < 1.0:
                x[free] += least * move
                stopped = share <= least
                if total is not None:  # up to rounding, not all fall
                    stopped[move.argmax()] = False
                x[free[stopped]] = np.where(move > 0.0, upper[free], lower[free])[stopped]
                held[free[stopped]] = True
                continue
            x[free] += move
        # All free coordinates are optimal. Which held coordinates should move inwards?
        offset = x - point
        slope, rounding = matrix @ offset, SLACK * ROUNDOFF * (np.abs(matrix) @ np.abs(offset))
        if total is not None:
            slope, rounding = slope - slope[free].mean(), rounding + rounding[free].max()
        inwards = np.where(x <= lower, slope < -rounding, slope > rounding) & held & (lower < upper)
        if not inwards.any():
            break
        held &= ~inwards
    return x if total is None else x * (total / x.sum())  # the moves have rounded the sum


def _answer(matrix: np.ndarray, free: np.ndarray, held: np.ndarray, back: np.ndarray, has_sum: bool) -> np.ndarray:
    """Return the optimal free coordinates, minus the point's.

    The other coordinates stay held. ``back`` is the point minus x. With a sum, the sum of x does not change.
    """
    inner, pull = matrix[np.ix_(free, free)], matrix[np.ix_(free, held)] @ back[held]
    if not has_sum:
        return np.linalg.solve(inner, pull)
    best, level = np.linalg.solve(inner, np.stack([pull, np.ones(len(free))], -1)).T
    return best - (best.sum() + back[free].sum()) / level.sum() * level


def _on_simplex(point: np.ndarray, total: float) -> np.ndarray:
    """Project onto nonnegative entries with a sum, in the Euclidean norm."""
    # The shift changes no projection, and keeps the digits of a sum that is small beside the point.
    point = point - point.max()
    falling = np.sort(point)[::-1]
    levels = (np.cumsum(falling) - total) / np.arange(1, len(point) + 1)
    return np.maximum(point - levels[np.flatnonzero(falling > levels)[-1]], 0.0)


def project_hull(point: np.ndarray, matrix: np.ndarray, vertices: np.ndarray) -> np.ndarray:
    r"""Project onto the convex hull of points: :math:`\arg\min\|x - p\|_A`.

    Wolfe's method keeps a few affinely independent vertices, and projects onto their plane. If the projection leaves their hull,
    it stops at the boundary and drops a vertex. If the projection is in their hull, it adds the vertex that lies deepest on the
    point's side, if any does. The distance decreases with each addition, so the method ends after finitely many, exact up to
    rounding. Cost: O(md + d^3) per addition.

    Args:
        point: p, ``(d)``.
        matrix: A, symmetric positive definite, ``(d, d)``.
        vertices: ``(m, d)``.
    """
    root = np.linalg.cholesky(matrix)
    offsets = (vertices - point) @ root  # lengths are Euclidean in these coordinates, and the point is 0
    chosen, weights = [int((offsets**2).sum(-1).argmin())], np.ones(1)
    shortest = np.inf
    for _ in range(100 + 20 * len(vertices)):
        nearest = weights @ offsets[chosen]
        depths, length = offsets @ nearest, float(nearest @ nearest)
        deepest = int(depths.argmin())
        rounding = SLACK * ROUNDOFF * np.abs(offsets[[deepest, *chosen]]).max(0) @ np.abs(nearest)
        if length - depths[deepest] <= rounding or deepest in chosen or length >= shortest:
            break
        shortest = length
        chosen, weights = [*chosen, deepest], np.append(weights, 0.0)
        while True:
            aim = _in_plane(offsets[chosen])
            if aim.min() > 0.0:
                weights = aim
                break
            falling = aim <= 0.0
            lost = weights[falling] - aim[falling]  # 0 for a vertex whose weight is 0 and stays 0: it is dropped
            share = np.divide(weights[falling], lost, out=np.zeros_like(lost), where=lost > 0.0).min()
            weights = weights + share * (aim - weights)
            weights[falling & (weights <= 1e-15)] = 0.0
            kept = weights > 0.0
            if kept.all():  # rounding has kept the vertex to drop
                kept[np.where(falling, weights, np.inf).argmin()] = False
            elif not kept.any():  # rounding has dropped all vertices
                kept[aim.argmax()], weights = True, np.ones_like(weights)
            chosen, weights = [each for each, stays in zip(chosen, kept, strict=True) if stays], weights[kept]
            weights = weights / weights.sum()
    return weights @ vertices[chosen]


def _in_plane(points: np.ndarray) -> np.ndarray:
    """Return weights, of sum 1, of the point nearest to 0 in the plane of the points."""
    sides = points[1:] - points[0]
    others = np.linalg.lstsq(sides.T, -points[0], rcond=None)[0]
    return np.concatenate([[1.0 - others.sum()], others])


def project_within(
    project: Projection, point: np.ndarray, matrix: np.ndarray, centre: np.ndarray, radius: float
) -> np.ndarray:
    r"""Project onto a convex set within a ball around one of its points.

    With the multiplier :math:`\mu \ge 0` of the ball, the solution is the projection of :math:`(A + \mu I)^{-1}(Ap + \mu c)` onto
    the set, in the norm of :math:`A + \mu I`. Its distance from the centre c decreases in :math:`\mu`. The root is found by a
    bracket and the secant method on one over the distance. Cost: about ten projections.

    Args:
        project: projects a point onto the set, in the norm of a matrix.
        point: p, ``(d)``.
        matrix: A, ``(d, d)``.
        centre: c, a point of the set, ``(d)``.
        radius: of the ball, above 0.
    """
    identity = np.eye(len(point))

    def solution(multiplier: float) -> np.ndarray:
        if multiplier == 0.0:
            return project(point, matrix)
        moved = matrix + multiplier * identity
        return project(centre + np.linalg.solve(moved, matrix @ (point - centre)), moved)

    def excess(x: np.ndarray) -> float:
        """Return radius / distance - 1, below 0 outside the ball."""
        return radius / max(float(np.linalg.norm(x - centre)), 1e-300) - 1.0

    x = solution(0.0)
    below, at_below = 0.0, excess(x)
    if at_below >= 0.0:
        return x
    above = float(np.linalg.eigvalsh(matrix)[-1]) * max(float(np.linalg.norm(point - centre)) / radius, 1.0)
    at_above = excess(solution(above))
    while at_above < 0.0:
        below, at_below, above = above, at_above, 4.0 * above
        at_above = excess(solution(above))
    side = 0
    for _ in range(100):
        middle = below - at_below * (above - below) / (at_above - at_below)
        if not below < middle < above:
            middle = 0.5 * (below + above)
        x = solution(middle)
        value = excess(x)
        if abs(value) <= 1e-13 or above - below <= 4.0 * ROUNDOFF * above:
            break
        # The Illinois rule: an end that stays twice counts half.
        if value < 0.0:
            below, at_below, at_above, side = middle, value, at_above * (0.5 if side < 0 else 1.0), -1
        else:
            above, at_above, at_below, side = middle, value, at_below * (0.5 if side > 0 else 1.0), 1
    # A point between the centre and x is also in the set.
    return centre + (x - centre) * min(1.0, 1.0 + excess(x))
