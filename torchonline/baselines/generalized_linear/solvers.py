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

# At most; three or four steps are usual for the estimate, and sixteen for an end of a confidence set.
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
        self.rows, self.weights = rows, weights
        # A column of them, where one loss stands for several.
        self.ridge: Any = ridge
        self.score = (weights * rewards) @ rows
        self.diagonal = np.eye(rows.shape[1])

    def merged(self) -> "Loss":
        """The same function, written with each different row once."""
        loss = copy.copy(self)
        loss.rows, index = np.unique(self.rows, axis=0, return_inverse=True)
        loss.weights = np.bincount(index.reshape(-1), self.weights, len(loss.rows))
        return loss

    def predictors(self, theta: Array) -> Array:
        """The predictors of all rounds at a theta."""
        return (self.rows @ theta[..., None])[..., 0]

    def rise(self, z: Array, theta: Array, partition: Array, start: Array) -> Array:
        """How much more the loss is at theta, or rows, where predictors are z, than at ``start``, of a known log-partition."""
        risen = ((self.link.log_partition(z) - partition) * self.weights).sum(-1)
        return risen + ((theta - start) * (0.5 * self.ridge * (theta + start) - self.score)).sum(-1)

    def gradient(self, z: Array, theta: Array) -> Array:
        """The gradient at one theta, or at each of several rows."""
        pull = (self.weights * self.link.mean(z))[..., None, :] @ self.rows
        return pull[..., 0, :] - self.score + self.ridge * theta

    def hessian(self, z: Array) -> Array:
        """The matrix of second derivatives where the predictors are z, ``(n)``."""
        return (self.rows.T * (self.weights * self.link.slope(z))) @ self.rows + self.ridge * self.diagonal


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
    theta, z = start, loss.predictors(start)
    if not np.isfinite(loss.score).all():
        return np.full_like(start, math.nan)
    with np.errstate(all="ignore"):
        for _ in range(NEWTON_STEPS):
            gradient, hessian = loss.gradient(z, theta), loss.hessian(z)
            step = ball_minimum(hessian, gradient, theta, bound) - theta
            change = loss.predictors(step)
            decrement = float(step @ hessian @ step)
            largest = loss.concordance * float(abs(change).max(initial=0.0))
            share, slope = 1.0, float(gradient @ step)
            if largest > 0.5:
                partition = loss.link.log_partition(z)
                while share > 1e-12 and not (
                    loss.rise(z + share * change, theta + share * step, partition, theta) <= 1e-4 * share * slope
                ):
                    share *= 0.5
            theta = theta + share * step
            z = loss.predictors(theta)
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


def furthest(losses: list[Loss], centres: Array, levels: Array, bound: float, directions: Array) -> Array:
    r"""Where :math:`x^\top\theta` is largest for :math:`\|\theta\| \le S` and a loss at most a level above that at a centre.

    For several losses, each with its centre, its level, and as many directions: ``(M, K, d)`` to ``(M, K, d)``. By the barrier
    method (Boyd and Vandenberghe, Convex Optimization, 2004, section 11.3), for all directions at once. It stays strictly
    inside the sets, and ends where :math:`x^\top\theta` is some :data:`GAP_TOLERANCE` :math:`\|x\|S` below its maximum.

    Args:
        losses: convex, of one link.
        centres: a point of the ball for each, ``(M, d)``.
        levels: ``(M)``. A set whose level is not above 0 is empty, and its centre stands for it; of an infinite one the ball is
            all there is.
        bound: S > 0.
        directions: the rows x. Where one is 0, any point of the set will do: it is the centre.
    """
    ends = np.empty_like(directions)
    members, count, dim = directions.shape
    longest = max(1, *(len(loss.rows) for loss in losses))
    across, together = (max(1, CHUNK // (longest * size)) for size in (1, max(1, count) * dim * dim))
    for first in range(0, members, together):
        some = slice(first, first + together)
        # Where there is more than one set, all directions are looked along at once.
        sets = Sets(losses[some], centres[some], levels[some], bound)
        sets = sets.take(np.repeat(np.arange(len(sets.level)), count))
        for start in range(0, count, across):
            part = (some, slice(start, start + across))
            ends[part] = _ends(sets, directions[part].reshape(-1, dim)).reshape(directions[part].shape)
    return ends


class Sets:
    """The confidence sets in which directions are looked along: a row for each, or one row that all share.

    Args:
        losses: their losses, which may have numbers of rounds of their own.
        centres: ``(M, d)``.
        levels: ``(M)``.
        bound: S.
    """

    def __init__(self, losses: list[Loss], centres: Array, levels: Array, bound: float) -> None:
        loss, longest = copy.copy(losses[0]), max(len(each.rows) for each in losses)
        # Rounds that a shorter history has not have weight 0.
        loss.rows = np.zeros((len(losses), longest, centres.shape[1]))
        loss.weights = np.zeros((len(losses), longest))
        for member, each in enumerate(losses):
            loss.rows[member, : len(each.rows)] = each.rows
            loss.weights[member, : len(each.rows)] = each.weights
        loss.score = np.stack([each.score for each in losses])
        loss.ridge = np.array([[each.ridge] for each in losses])
        self.loss, self.centre, self.level, self.bound = loss, centres, levels, bound
        self.partition = loss.link.log_partition(loss.predictors(centres))
        products = loss.rows[:, :, :, None] * loss.rows[:, :, None, :]
        self.products = products.reshape(*loss.rows.shape[:2], centres.shape[1] ** 2)

    def take(self, which: Array) -> "Sets":
        """The sets of some of the directions, or each as often as it is named; a set that all share stays one."""
        if len(self.level) == 1:
            return self
        taken = copy.copy(self)
        taken.loss = copy.copy(self.loss)
        for name in ("rows", "weights", "score", "ridge"):
            setattr(taken.loss, name, getattr(self.loss, name)[which])
        for name in ("centre", "level", "partition", "products"):
            setattr(taken, name, getattr(self, name)[which])
        return taken

    def room(self, z: Array, theta: Array) -> Array:
        """How far each theta, with predictors z, is inside the loss's set and inside the ball: ``(K, 2)``."""
        inside = np.empty((len(theta), 2))
        inside[:, 0] = 1.0 - self.loss.rise(z, theta, self.partition, self.centre) / self.level
        inside[:, 1] = 0.5 * (1.0 - (theta * theta).sum(-1) / self.bound**2)
        return inside

    def interior(self) -> tuple[Array, Array]:
        """A point of each set between 0 and its centre where the loss is low, ``(K, d)``, and whether one could be found."""
        inside, found = self.centre, np.zeros(len(self.level), bool)
        for share in 0.5 ** np.arange(1, 50):
            inside = np.where(found[:, None], inside, (1.0 - share) * self.centre)
            found |= self.room(self.loss.predictors(inside), inside)[:, 0] > 0.75
            if found.all():
                break
        return inside, found


def _ends(sets: Sets, directions: Array) -> Array:
    """:func:`furthest` for rows of directions. The ball, the losses and what is maximised are scaled to be about 1."""
    bound, (count, dim) = sets.bound, directions.shape
    with np.errstate(all="ignore"):
        # By their largest entries first, whose squares may be out of range.
        largest = abs(directions).max(-1)
        unit = directions / np.where(largest > 0.0, largest, 1.0)[:, None]
        unit = unit / np.maximum(np.sqrt((unit * unit).sum(-1)), 1.0)[:, None]
        # The end of the ball, where the loss lets it; what is no number, where something is none; or the centre.
        ends = bound * unit
        known = ~np.isnan(sets.level) & np.isfinite(sets.centre).all(-1) & np.isfinite(largest)
        inside, is_deep = sets.interior()
        is_empty = (largest == 0.0) | (sets.level <= 0.0)
        is_thin = known & ~is_empty & ~is_deep
        if is_thin.any():
            warnings.warn(
                "score: the confidence set is too thin to be resolved, its centre stands for it", stacklevel=3
            )
        free = sets.room(sets.loss.predictors(ends), ends)[:, 0] >= 0.0
        ends = np.where((is_empty | is_thin)[:, None], sets.centre, ends)
        ends = np.where(known[:, None], ends, math.nan)

        rest = np.flatnonzero(known & ~is_empty & ~is_thin & ~free)
        theta = np.broadcast_to(inside, (count, dim))[rest]
        goals, sharpness, sets = unit[rest] / bound, np.full(len(rest), 4.0), sets.take(rest)
        z = sets.loss.predictors(theta)
        rooms = sets.room(z, theta)
        for _ in range(NEWTON_STEPS):
            if not len(rest):
                return ends
            loss, level = sets.loss, sets.level[:, None]
            # A Newton step on the barrier function -sharpness goal'theta - log room - log room, whose minimum is at most
            # 2 / sharpness below the maximum of goal'theta.
            walls = np.stack([loss.gradient(z, theta) / level, theta / bound**2], 1) / rooms[..., None]
            gradient = walls.sum(1) - sharpness[:, None] * goals
            weights = loss.weights * loss.link.slope(z) / (level * rooms[:, :1])
            matrix = (weights[:, None, :] @ sets.products).reshape(-1, dim, dim) + walls.swapaxes(1, 2) @ walls
            diagonal = loss.ridge[:, 0] / (sets.level * rooms[:, 0]) + 1.0 / (bound**2 * rooms[:, 1])
            # Where the maximum is no single point the matrix tends to a singular one.
            diagonal = diagonal + 1e-15 * matrix.trace(axis1=1, axis2=2)
            step = -np.linalg.solve(matrix + diagonal[:, None, None] * loss.diagonal, gradient[..., None])[..., 0]
            decrease, change = -(gradient * step).sum(-1), loss.predictors(step)
            # The whole step near the minimum of the barrier function, and what is likely to be inside far from it.
            share = np.minimum(1.0, 2.0 / (1.0 + np.sqrt(decrease)))
            gain = sharpness * (goals * step).sum(-1)
            moved, at_moved = theta + share[:, None] * step, z + share[:, None] * change
            left = sets.room(at_moved, moved)
            for _ in range(80):
                risen = -share * gain - np.log(left / rooms).sum(-1)
                is_fine = (left > 0.0).all(-1) & (risen <= 1e-12 - 0.1 * share * decrease)
                short = np.flatnonzero(~is_fine)
                if not len(short):
                    break
                share[short] *= 0.5
                moved[short] = theta[short] + share[short, None] * step[short]
                at_moved[short] = z[short] + share[short, None] * change[short]
                left[short] = sets.take(short).room(at_moved[short], moved[short])
            theta, z, rooms = moved, at_moved, left
            ends[rest] = theta
            is_centred = decrease < 0.5
            going = ~(is_centred & (2.0 / sharpness <= GAP_TOLERANCE))
            sharpness = np.where(is_centred, 10.0 * sharpness, sharpness)
            if not going.all():
                sets = sets.take(going)
                rest, theta, goals, sharpness, z, rooms = (v[going] for v in (rest, theta, goals, sharpness, z, rooms))
    warnings.warn(f"score: not at the maximum after {NEWTON_STEPS} Newton steps", stacklevel=3)
    return ends
