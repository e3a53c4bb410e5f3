"""Newton's method, in NumPy, for maximum likelihood and its confidence sets."""

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
# How far below the maximum of x'theta over a confidence set the end may be, relative to ||x|| S.
GAP_TOLERANCE = 1e-7
# Numbers in one pass over all rounds for many directions at once.
CHUNK = 1 << 18


class Loss:
    r"""The penalised negative log-likelihood of a history.

    .. math:: L(\theta) = \sum_s w_s(m(x_s^\top\theta) - r_sx_s^\top\theta) + \tfrac\lambda2\|\theta\|^2

    Args:
        link: defines m.
        concordance: a number R with :math:`|\mu''| \le R\mu'` at the predictors.
        rows: the features :math:`x_s`, ``(n, d)``.
        rewards: :math:`r_s`, ``(n)``.
        weights: :math:`w_s > 0`, ``(n)``.
        ridge: :math:`\lambda \ge 0`.
    """

    def __init__(
        self, link: Link, concordance: float, rows: Array, rewards: Array, weights: Array, ridge: float
    ) -> None:
        self.link: Any = link
        self.concordance, self.rows, self.weights = concordance, rows, weights
        # A column of ridges if one loss represents several.
        self.ridge: Any = ridge
        self.score = (weights * rewards) @ rows
        self.diagonal = np.eye(rows.shape[1])

    def merged(self) -> "Loss":
        """Return the same function with equal rows merged into one."""
        loss = copy.copy(self)
        loss.rows, index = np.unique(self.rows, axis=0, return_inverse=True)
        loss.weights = np.bincount(index.reshape(-1), self.weights, len(loss.rows))
        return loss

    def predictors(self, theta: Array) -> Array:
        """Return the predictors of all rounds at theta."""
        return (self.rows @ theta[..., None])[..., 0]

    def rise(self, z: Array, theta: Array, partition: Array, start: Array) -> Array:
        """Return the loss at theta, with predictors z, minus the loss at ``start``."""
        risen = ((self.link.log_partition(z) - partition) * self.weights).sum(-1)
        return risen + ((theta - start) * (0.5 * self.ridge * (theta + start) - self.score)).sum(-1)

    def gradient(self, z: Array, theta: Array) -> Array:
        """Return the gradient at theta, with predictors z."""
        pull = (self.weights * self.link.mean(z))[..., None, :] @ self.rows
        return pull[..., 0, :] - self.score + self.ridge * theta

    def hessian(self, z: Array) -> Array:
        """Return the Hessian at predictors z, ``(n)``."""
        return (self.rows.T * (self.weights * self.link.slope(z))) @ self.rows + self.ridge * self.diagonal


def inverse(matrix: Array, least: float) -> Array:
    """Invert a symmetric matrix of eigenvalues at least ``least``; NaN if not finite."""
    if not np.isfinite(matrix).all():
        return np.full_like(matrix, math.nan)
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / np.maximum(values, least)) @ vectors.T


def minimise(loss: Loss, start: Array, bound: float) -> Array:
    r"""Return the minimiser of a loss over the ball, :math:`\|\theta\| \le S`.

    The start is in the ball. The minimiser is NaN if the loss's score is not finite. Each step goes to the minimum over the ball
    of the loss's quadratic model, or part of the way if the full step does not lower the loss enough. The method stops when its
    next step, which is shorter by the square of ``concordance`` times the largest change of a predictor, could not lower the loss
    by ``LOSS_TOLERANCE``. It warns if it has not stopped after ``NEWTON_STEPS`` steps.
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
    r"""Return the minimiser of a quadratic function over the ball :math:`\|u\| \le S`.

    The function is :math:`g^\top(u-\theta) + \tfrac12\|u-\theta\|_H^2`. u equals :math:`\theta` = ``at`` in the null directions
    of H. On the sphere, Newton's method finds the multiplier.
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
    r"""Return the maximisers of x'theta over confidence sets: ``(M, K, d)``.

    A set holds all :math:`\|\theta\| \le S` with a loss at most a level above the loss at the set's centre. The barrier method
    (Boyd and Vandenberghe, Convex Optimization, 2004, section 11.3) treats all directions at once. It stops inside the sets,
    where :math:`x^\top\theta` is at most about ``GAP_TOLERANCE`` :math:`\|x\|S` below its maximum. It warns if a set is too
    thin to be resolved, or a maximum is not reached after ``NEWTON_STEPS`` steps.

    Args:
        losses: M convex losses, of one link.
        centres: a point of the ball for each set, ``(M, d)``.
        levels: ``(M)``; infinite for the whole ball. A set without a level above 0 is empty, and its centre is returned.
        bound: S > 0.
        directions: K rows x for each set. For x = 0, where every point is a maximum, the centre is returned.
    """
    ends = np.empty_like(directions)
    members, count, dim = directions.shape
    longest = max(1, *(len(loss.rows) for loss in losses))
    across, together = (max(1, CHUNK // (longest * size)) for size in (1, max(1, count) * dim * dim))
    for first in range(0, members, together):
        some = slice(first, first + together)
        # One row for each direction, unless a single set serves all directions.
        sets = Sets(losses[some], centres[some], levels[some], bound)
        sets = sets.rows_at(np.repeat(np.arange(len(sets.level)), count))
        for start in range(0, count, across):
            part = (some, slice(start, start + across))
            ends[part] = _ends(sets, directions[part].reshape(-1, dim)).reshape(directions[part].shape)
    return ends


class Sets(Loss):
    """Losses of the sets of :func:`furthest`: a row each, or one for all directions."""

    def __init__(self, losses: list[Loss], centres: Array, levels: Array, bound: float) -> None:
        self.link, self.diagonal, longest = losses[0].link, losses[0].diagonal, max(len(each.rows) for each in losses)
        # A shorter history is padded with rounds of weight 0.
        self.rows = np.zeros((len(losses), longest, centres.shape[1]))
        self.weights = np.zeros((len(losses), longest))
        for member, each in enumerate(losses):
            self.rows[member, : len(each.rows)] = each.rows
            self.weights[member, : len(each.rows)] = each.weights
        self.score = np.stack([each.score for each in losses])
        self.ridge = np.array([[each.ridge] for each in losses])
        self.centre, self.level, self.bound = centres, levels, bound
        self.partition = self.link.log_partition(self.predictors(centres))
        products = self.rows[:, :, :, None] * self.rows[:, :, None, :]
        self.products = products.reshape(*self.weights.shape, centres.shape[1] ** 2)

    def rows_at(self, which: Array) -> "Sets":
        """Return some of the rows, perhaps repeatedly. A single row stays single."""
        if len(self.level) == 1:
            return self
        taken = copy.copy(self)
        for name in ("rows", "weights", "score", "ridge", "centre", "level", "partition", "products"):
            setattr(taken, name, getattr(self, name)[which])
        return taken

    def slack(self, z: Array, theta: Array) -> Array:
        """Return how far each theta is inside the loss's set and the ball, ``(K, 2)``."""
        inside = np.empty((len(theta), 2))
        inside[:, 0] = 1.0 - self.rise(z, theta, self.partition, self.centre) / self.level
        inside[:, 1] = 0.5 * (1.0 - (theta * theta).sum(-1) / self.bound**2)
        return inside

    def interior(self) -> tuple[Array, Array]:
        """Return a deep point of each set, ``(K, d)``, and whether there is one, ``(K)``."""
        inside, found = self.centre, np.zeros(len(self.level), bool)
        for share in 0.5 ** np.arange(1, 50):
            inside = np.where(found[:, None], inside, (1.0 - share) * self.centre)
            found |= self.slack(self.predictors(inside), inside)[:, 0] > 0.75
            if found.all():
                break
        return inside, found


class Barrier:
    r"""Barrier functions, one for each direction, at points inside the sets.

    The function of a direction g, a row of ``goals``, is :math:`-s\,g^\top\theta - \sum\log\text{slack}`, with the sharpness s.
    At its minimum, :math:`g^\top\theta` is at most 2 / s below the maximum.
    """

    def __init__(self, sets: Sets, goals: Array, theta: Array) -> None:
        self.sets, self.goals, self.theta = sets, goals, theta
        self.sharpness = np.full(len(goals), 4.0)
        self.z = sets.predictors(theta)
        self.slack = sets.slack(self.z, theta)

    def keep(self, which: Array) -> None:
        """Keep some of the rows."""
        self.sets = self.sets.rows_at(which)
        for name in ("goals", "theta", "sharpness", "z", "slack"):
            setattr(self, name, getattr(self, name)[which])

    def newton_step(self) -> tuple[Array, Array]:
        """Return a Newton step, ``(K, d)``, and its squared Newton decrement, ``(K)``."""
        sets, slack, dim = self.sets, self.slack, self.goals.shape[1]
        level, bound = sets.level[:, None], sets.bound
        walls = np.stack([sets.gradient(self.z, self.theta) / level, self.theta / bound**2], 1) / slack[..., None]
        gradient = walls.sum(1) - self.sharpness[:, None] * self.goals
        weights = sets.weights * sets.link.slope(self.z) / (level * slack[:, :1])
        matrix = (weights[:, None, :] @ sets.products).reshape(-1, dim, dim) + walls.swapaxes(1, 2) @ walls
        diagonal = sets.ridge[:, 0] / (sets.level * slack[:, 0]) + 1.0 / (bound**2 * slack[:, 1])
        # The matrix tends to a singular one if the maximum is not a single point.
        diagonal = diagonal + 1e-15 * matrix.trace(axis1=1, axis2=2)
        step = -np.linalg.solve(matrix + diagonal[:, None, None] * sets.diagonal, gradient[..., None])[..., 0]
        return step, -(gradient * step).sum(-1)

    def move(self, step: Array, decrement: Array) -> None:
        """Take the fraction of a step that stays inside and lowers the barriers."""
        theta, z, change = self.theta, self.z, self.sets.predictors(step)
        # Near the minimum of the barrier function the whole step, far from it a fraction that is likely to stay inside.
        share = np.minimum(1.0, 2.0 / (1.0 + np.sqrt(decrement)))
        gain = self.sharpness * (self.goals * step).sum(-1)
        moved, at_moved = theta + share[:, None] * step, z + share[:, None] * change
        left = self.sets.slack(at_moved, moved)
        for _ in range(80):
            risen = -share * gain - np.log(left / self.slack).sum(-1)
            is_fine = (left > 0.0).all(-1) & (risen <= 1e-12 - 0.1 * share * decrement)
            short = np.flatnonzero(~is_fine)
            if not len(short):
                break
            share[short] *= 0.5
            moved[short] = theta[short] + share[short, None] * step[short]
            at_moved[short] = z[short] + share[short, None] * change[short]
            left[short] = self.sets.rows_at(short).slack(at_moved[short], moved[short])
        self.theta, self.z, self.slack = moved, at_moved, left


def _ends(sets: Sets, directions: Array) -> Array:
    """Return :func:`furthest` for rows of directions, in units of about 1."""
    with np.errstate(all="ignore"):
        # Divide by the largest entry first, because the squares may be out of range.
        largest = abs(directions).max(-1)
        unit = directions / np.where(largest > 0.0, largest, 1.0)[:, None]
        unit = unit / np.maximum(np.sqrt((unit * unit).sum(-1)), 1.0)[:, None]
        # The end of the ball, if the loss allows it; NaN, if an argument is NaN; or the centre.
        ends = sets.bound * unit
        known = ~np.isnan(sets.level) & np.isfinite(sets.centre).all(-1) & np.isfinite(largest)
        inside, is_deep = sets.interior()
        is_empty = (largest == 0.0) | (sets.level <= 0.0)
        is_thin = known & ~is_empty & ~is_deep
        if is_thin.any():
            text = "score: the confidence set is too thin to be resolved, so its centre is used instead"
            warnings.warn(text, stacklevel=3)
        free = sets.slack(sets.predictors(ends), ends)[:, 0] >= 0.0
        ends = np.where((is_empty | is_thin)[:, None], sets.centre, ends)
        ends = np.where(known[:, None], ends, math.nan)

        rest = np.flatnonzero(known & ~is_empty & ~is_thin & ~free)
        theta = np.broadcast_to(inside, directions.shape)[rest]
        barrier = Barrier(sets.rows_at(rest), unit[rest] / sets.bound, theta)
        for _ in range(NEWTON_STEPS):
            if not len(rest):
                return ends
            step, decrement = barrier.newton_step()
            barrier.move(step, decrement)
            ends[rest] = barrier.theta
            is_centred = decrement < 0.5
            going = ~(is_centred & (2.0 / barrier.sharpness <= GAP_TOLERANCE))
            barrier.sharpness = np.where(is_centred, 10.0 * barrier.sharpness, barrier.sharpness)
            if not going.all():
                rest = rest[going]
                barrier.keep(going)
    warnings.warn(f"score: not at the maximum after {NEWTON_STEPS} Newton steps", stacklevel=3)
    return ends
