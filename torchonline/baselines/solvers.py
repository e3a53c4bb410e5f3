"""The two convex programs of maximum likelihood, by Newton's method in NumPy: the estimate, and the ends of a confidence set.

Both stop by themselves at a stated precision and say so, by a UserWarning, should they not get there.
"""

import copy
import math
import warnings
from typing import Any

import numpy as np

from torchonline.links import Link

Array = Any

# At most; three or four steps are usual for the estimate, and thirty for an end of a confidence set.
NEWTON_STEPS = 100
# How far the loss may be above its minimum over the ball.
LOSS_TOLERANCE = 1e-24
# How far the end of a confidence set may be from where it is found, as a part of ||x|| S.
GAP_TOLERANCE = 1e-7
# Numbers in a pass over all rounds for many directions at once.
CHUNK = 1 << 18


class Loss:
    r"""The loss :math:`\sum_s w_s(m(x_s^\top\theta) - r_sx_s^\top\theta) + \tfrac\lambda2\|\theta\|^2`, for maximum likelihood.

    Args:
        link: says what m is.
        concordance: a number R with :math:`|\mu''| \le R\mu'` where the predictors are.
        rows: the features :math:`x_s`, ``(n, d)``.
        rewards: :math:`r_s`, ``(n)``.
        weights: :math:`w_s > 0`, ``(n)``.
        ridge: :math:`\lambda \ge 0`.
    """

    def __init__(
        self, link: Link, concordance: float, rows: Array, rewards: Array, weights: Array, ridge: float
    ) -> None:
        self.link: Any = link
        self.concordance = concordance
        self.rows, self.weights, self.ridge = rows, weights, ridge
        self.score = (weights * rewards) @ rows
        self.diagonal = np.eye(rows.shape[1])

    def merged(self) -> "Loss":
        """The same function, written with each different row once."""
        loss = copy.copy(self)
        loss.rows, index = np.unique(self.rows, axis=0, return_inverse=True)
        loss.weights = np.bincount(index.reshape(-1), self.weights, len(loss.rows))
        return loss

    def rise(self, z: Array, theta: Array, at: Array, start: Array) -> Array:
        """How much more the loss is at theta, or rows, where predictors are z, than at ``start``, where they are ``at``."""
        partition = (self.link.log_partition(z) - self.link.log_partition(at)) @ self.weights
        return partition + ((theta - start) * (0.5 * self.ridge * (theta + start) - self.score)).sum(-1)

    def gradient(self, z: Array, theta: Array) -> Array:
        """The gradient at one theta, or at each of several rows."""
        return (self.weights * self.link.mean(z)) @ self.rows - self.score + self.ridge * theta

    def hessian(self, z: Array) -> Array:
        """The matrix of second derivatives where the predictors are z, ``(n)``."""
        return (self.rows.T * (self.weights * self.link.slope(z))) @ self.rows + self.ridge * self.diagonal

    def products(self) -> Array:
        """The outer product of each row with itself, ``(n, d d)``."""
        n, dim = self.rows.shape
        return (self.rows[:, :, None] * self.rows[:, None, :]).reshape(n, dim * dim)


def inverse(matrix: Array, least: float) -> Array:
    """The inverse of a symmetric matrix with no eigenvalue below ``least``, but for rounding; NaN of one that is not finite."""
    if not np.isfinite(matrix).all():
        return np.full_like(matrix, math.nan)
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / np.maximum(values, least)) @ vectors.T


def minimise(loss: Loss, start: Array, bound: float) -> Array:
    r"""The minimum of a loss over the ball :math:`\|\theta\| \le S`, from a start in it: NaN if the history holds one.

    Each step goes to the minimum over the ball of the loss's quadratic, :func:`ball_minimum`, or only part of the way where
    that is far and too far. It ends where the next one, which is shorter by the square of ``concordance`` times the largest
    change of a predictor, could not lower the loss by :data:`LOSS_TOLERANCE`.
    """
    theta, z = start, loss.rows @ start
    if not np.isfinite(loss.score).all():
        return np.full_like(start, math.nan)
    with np.errstate(all="ignore"):
        for _ in range(NEWTON_STEPS):
            gradient, hessian = loss.gradient(z, theta), loss.hessian(z)
            step = ball_minimum(hessian, gradient, theta, bound) - theta
            change = loss.rows @ step
            decrement = float(step @ hessian @ step)
            largest = loss.concordance * float(abs(change).max(initial=0.0))
            share, slope = 1.0, float(gradient @ step)
            if largest > 0.5:
                while share > 1e-12 and not (
                    loss.rise(z + share * change, theta + share * step, z, theta) <= 1e-4 * share * slope
                ):
                    share *= 0.5
            theta = theta + share * step
            z = loss.rows @ theta
            is_short = float(np.abs(step).max()) <= 1e-14 * float(np.abs(theta).max())
            if share == 1.0 and (decrement * largest * largest <= LOSS_TOLERANCE or is_short):
                return theta
    warnings.warn(f"theta_hat: not at the minimum after {NEWTON_STEPS} Newton steps", stacklevel=2)
    return theta


def ball_minimum(hessian: Array, gradient: Array, at: Array, bound: float) -> Array:
    r"""The minimum over :math:`\|u\| \le S` of :math:`g^\top(u-\theta) + \tfrac12\|u-\theta\|_H^2`, for ``at`` :math:`= \theta`.

    H may be singular: directions that it does not know stay as they are. On the sphere, Newton's method finds the multiplier,
    as in :func:`torchonline.linalg.project_ball`.
    """
    known = hessian.copy()
    known.flat[:: len(at) + 1] += 1e-13 * hessian.trace() + 1e-150
    target = at - np.linalg.solve(known, gradient)
    if math.sqrt(target @ target) <= bound:
        return target
    values, vectors = np.linalg.eigh(known)
    values = np.maximum(values, 1e-16 * values[-1])
    rotated = vectors.T @ (known @ at - gradient)
    multiplier = 0.0
    for _ in range(NEWTON_STEPS):
        solution = rotated / (values + multiplier)
        norm = math.sqrt(solution @ solution)
        if norm <= bound * (1.0 + 1e-15):
            break
        multiplier += (norm / bound - 1.0) * norm * norm / float((solution * solution / (values + multiplier)).sum())
    return vectors @ (solution * min(1.0, bound / norm))


def furthest(loss: Loss, centre: Array, level: float, bound: float, directions: Array) -> Array:
    r"""Where :math:`x^\top\theta` is largest for :math:`\|\theta\| \le S` and a loss at most ``level`` above that at ``centre``.

    For several directions, ``(K, d)`` to ``(K, d)``, by the barrier method (Boyd and Vandenberghe, Convex Optimization, 2004,
    section 11.3), which goes over all rounds for all directions at once. It stays strictly inside the set, and ends where
    :math:`x^\top\theta` is some :data:`GAP_TOLERANCE` :math:`\|x\|S` below its maximum.

    Args:
        loss: convex.
        centre: a point of the ball, ``(d)``.
        level: above 0.
        bound: S > 0.
        directions: the rows x. Where one is 0, any point of the set will do: it is the centre.
    """
    ends = np.repeat(centre[None], len(directions), 0)
    length = np.sqrt((directions * directions).sum(-1))
    if not (math.isfinite(level) and np.isfinite(centre).all() and np.isfinite(length).all()):
        return np.full_like(ends, math.nan)
    moving = np.flatnonzero(length)
    chunk = max(1, CHUNK // max(1, len(loss.rows)))
    for first in range(0, len(moving), chunk):
        part = moving[first : first + chunk]
        ends[part] = _ends(loss, centre, level, bound, directions[part] / length[part, None])
    return ends


def _ends(loss: Loss, centre: Array, level: float, bound: float, unit: Array) -> Array:
    """:func:`furthest` for directions of length 1. The ball, the loss and what is maximised are scaled to be about 1."""
    at, products, goals = loss.rows @ centre, loss.products() / level, unit / bound

    def room(z: Array, theta: Array) -> Array:
        """How far theta, or rows of them, are inside the loss's set and inside the ball, ``(K, 2)``."""
        inside = np.empty((len(theta), 2))
        inside[:, 0] = 1.0 - loss.rise(z, theta, at, centre) / level
        inside[:, 1] = 0.5 * (1.0 - (theta * theta).sum(-1) / bound**2)
        return inside

    with np.errstate(all="ignore"):
        # The end of the ball, where the loss lets it.
        ends = bound * unit
        rest = np.flatnonzero(~(room(ends @ loss.rows.T, ends)[:, 0] >= 0.0))
        if not len(rest):
            return ends
        inside = 0.5 * centre[None]
        for _ in range(60):
            if room(inside @ loss.rows.T, inside)[0, 0] > 0.75:
                break
            inside = 0.5 * (inside + centre)
        else:
            warnings.warn(
                "score: the confidence set is too thin to be resolved, its centre stands for it", stacklevel=2
            )
            ends[rest] = centre
            return ends
        theta, goals, sharpness = np.repeat(inside, len(rest), 0), goals[rest], np.full(len(rest), 4.0)
        z = theta @ loss.rows.T
        rooms = room(z, theta)
        for _ in range(NEWTON_STEPS):
            # A Newton step on the barrier function -sharpness goal'theta - log room - log room, whose minimum is at most
            # 2 / sharpness below the maximum of goal'theta.
            walls = np.empty((len(rest), 2, len(centre)))
            walls[:, 0], walls[:, 1] = loss.gradient(z, theta) / level, theta / bound**2
            walls /= rooms[..., None]
            gradient = walls.sum(1) - sharpness[:, None] * goals
            weights = loss.weights * loss.link.slope(z) / rooms[:, :1]
            matrix = (weights @ products).reshape(-1, len(centre), len(centre)) + walls.swapaxes(1, 2) @ walls
            diagonal = loss.ridge / (level * rooms[:, 0]) + 1.0 / (bound**2 * rooms[:, 1])
            # Where the maximum is no single point the matrix tends to a singular one.
            diagonal += 1e-15 * matrix.trace(axis1=1, axis2=2)
            matrix += diagonal[:, None, None] * loss.diagonal
            step = -np.linalg.solve(matrix, gradient[..., None])[..., 0]
            slope = (gradient * step).sum(-1)
            # The whole step near the minimum of the barrier function, and what is likely to be inside far from it.
            share, change = np.minimum(1.0, 2.0 / (1.0 + np.sqrt(-slope))), step @ loss.rows.T
            for _ in range(80):
                moved, at_moved = theta + share[:, None] * step, z + share[:, None] * change
                left = room(at_moved, moved)
                risen = -share * sharpness * (goals * step).sum(-1) - np.log(left / rooms).sum(-1)
                short = ~((left > 0.0).all(-1) & (risen <= 0.1 * share * slope + 1e-12))
                if not short.any():
                    break
                share = np.where(short, 0.5 * share, share)
            theta, z, rooms = moved, at_moved, left
            ends[rest] = theta
            centred = -slope < 0.5
            going = ~(centred & (2.0 / sharpness <= GAP_TOLERANCE))
            sharpness = np.where(centred, 10.0 * sharpness, sharpness)
            if not going.all():
                rest, theta, goals, sharpness, z, rooms = (v[going] for v in (rest, theta, goals, sharpness, z, rooms))
                if not len(rest):
                    return ends
    warnings.warn(f"score: not at the maximum after {NEWTON_STEPS} Newton steps", stacklevel=2)
    return ends
