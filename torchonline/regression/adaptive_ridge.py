"""Ridge regressions whose radius follows their residuals."""

import math
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from torchonline.core.backend import on_arrays
from torchonline.core.checks import LARGEST, non_negative, passes, positive, positive_integer, within
from torchonline.core.compiled import with_core
from torchonline.core.ops import (
    along,
    ascending,
    assign_,
    at_least,
    at_most,
    clip,
    column,
    count_,
    dot,
    entry,
    floor,
    increase_,
    joined,
    largest,
    matmul,
    matvec,
    maximum,
    minimum,
    number,
    put_,
    real,
    roundoff,
    sigmoid,
    sqrt,
    total,
    weighted,
    where,
)
from torchonline.core.options import LearnerOptions
from torchonline.core.precision_matrix import (
    add_outer_,
    add_squares_,
    gram,
    remove_outer_,
    renew_inverse_,
    residuals_in_order,
    solved,
)
from torchonline.regression.arguments import check_can_be_removed, check_is_open
from torchonline.regression.blocks import learns_at_once
from torchonline.regression.estimator import NOISE_OF_UNIT_REWARDS, Estimator

# Because of rounding, a round is not replaced if it holds more than this share of the information in its direction.
MOST_OF_A_DIRECTION = {torch.float64: 0.999, torch.float32: 0.99}

# The odds, before the first round, of predictions that shrink to 0 against those that shrink to the mean reward.
ZERO_ODDS = 10.0

# The tolerance for rewards below 0 and, in units of the ceiling, for rewards above it.
ROUNDING = 1e-6


# The numbers 1, and the largest with a finite exponential, rounded down, by the size of a number in bytes.
ONE_AND_MOST = {
    8: (np.array(1.0), np.array(709.0)),
    4: (np.array(1.0, np.float32), np.array(88.0, np.float32)),
}


def _weight_in_python(own: Any, pooled: Any, spread: Any, rounds: Any, log_odds: float) -> Any:
    if own.ndim == 0:
        count, size = rounds.item(), 2.0 * spread.item() * spread.item()
        x = -(own.item() + pooled.item() / (count + 1.0)) / at_least(size, 1e-37) - log_odds
        return sigmoid(x) if count else 1.0
    # In place and with arrays as constants, which takes half the time.
    one, most = ONE_AND_MOST[own.itemsize]
    x = rounds.astype(own.dtype)
    x += one
    np.divide(pooled, x, out=x)
    x += own
    x /= at_least(2.0 * number(spread) ** 2, 1e-37)
    x += log_odds
    np.minimum(x, most, out=x)
    np.exp(x, out=x)
    x += one
    np.reciprocal(x, out=x)
    if np.count_nonzero(rounds) < rounds.size:
        x[rounds == 0] = 1.0
    return x


@on_arrays(_weight_in_python)
def weight_of_mean(own: Tensor, pooled: Tensor, spread: Tensor, rounds: Tensor, log_odds: float) -> Tensor:
    """Return the weight of predictions that shrink to the mean reward: ``(*B)``.

    ``own`` and ``pooled`` are the sums of losses in the weight of :class:`AdaptiveRidgeRegression`.
    """
    counts = rounds.to(own.dtype)
    gap = own + pooled / (counts + 1.0)
    weight = torch.sigmoid(-gap / (2.0 * spread * spread).clamp(min=1e-37) - log_odds)
    return torch.where(counts > 0.0, weight, torch.ones_like(weight))


class AdaptiveEstimator(Estimator):
    """Base of the ridge regressions whose radius follows their residuals.

    A prediction is a mean of two: ridge regression on rewards, and ridge regression on rewards minus the mean reward of all
    rounds, plus that mean. See :class:`AdaptiveRidgeRegression`. A subclass implements :meth:`_keep_`: how a residual updates
    the spread, and what the parameter learns.
    """

    takes_one_row = True
    pooled: tuple[str, ...] = ("seen", "spread", "gain", "target", "pooled_loss_gap")
    ones_hat: Tensor
    loss_gap: Tensor
    pooled_loss_gap: Tensor
    seen: Tensor
    spread: Tensor
    gain: Tensor
    target: Tensor
    can_replace, can_open, has_pooled_blocks = True, True, True

    def __init__(
        self,
        dim: int,
        ridge: float | None,
        radius_scale: float,
        zero_odds: float,
        noise_scale: float = 1.0,
        restart_every: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        ridge = positive_integer("dim", dim) / 5.0 if ridge is None else ridge
        super().__init__(dim, ridge, radius_scale, noise_scale, restart_every=restart_every, **options)
        self.zero_odds = non_negative("zero_odds", zero_odds)
        self.log_odds = math.log(self.zero_odds) if self.zero_odds > 0.0 else 0.0
        # A round without noise would outweigh all others forever.
        self.smallest_noise_scale = 1e-20 * self.noise_scale
        # TorchScript does not see a module's constants.
        self.most_of_a_direction = MOST_OF_A_DIRECTION[self._initial_options["dtype"]]
        # No bound on the parameter's norm is known that could clip an interval.
        self.theta_bound = LARGEST[self._initial_options["dtype"]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A subclass may learn from other features than the given ones, which would then stay in its statistics.
        if "_observe" in cls.__dict__:
            cls.can_replace, cls.can_open = (cls.__dict__.get(name, False) for name in ("can_replace", "can_open"))
        of_residual = ("_keep_", "_mean_reward", "_weight_of_mean")
        if not (
            learns_at_once(cls, "_observe_arms_", ("_observe",)) and learns_at_once(cls, "_keep_all_", of_residual)
        ):
            cls.has_pooled_blocks = False

    def _initial_state(self) -> dict[str, Tensor | None]:
        spread = torch.tensor(self.noise_scale, dtype=torch.float64)
        zero = torch.zeros((), dtype=torch.float64)
        own = {"seen": torch.zeros((), dtype=torch.int64), "spread": spread, "gain": zero, "target": zero.clone()}
        own |= {"ones_hat": torch.zeros(self.dim, dtype=torch.float64), "loss_gap": zero.clone()}
        return super()._initial_state() | own | {"pooled_loss_gap": zero.clone()}

    def radius(self) -> Tensor:
        return self.radius_scale * number(self.spread)

    def posterior_scale(self) -> Tensor:
        """Return the spread, which estimates the noise scale: ``(*B)``."""
        return number(self.spread)

    def affine(self) -> tuple[Tensor, Tensor | None]:
        shift = self._weight_of_mean() * self._mean_reward()
        return self.theta_hat - along(shift, self.ones_hat) * self.ones_hat, shift

    def _predictor_of_row(self, x: Tensor) -> Tensor:
        # As with affine(), in two thirds of the time.
        shift = self._weight_of_mean() * self._mean_reward()
        return matvec(self.theta_hat, x) + shift * (1.0 - matvec(self.ones_hat, x))

    def _mean_reward(self) -> Tensor:
        """Return the mean reward of all arms, or 0 before the first round: ``(*B)``."""
        gain = number(self.gain)
        return gain / at_least(real(self.seen, gain), 1.0)

    def _weight_of_mean(self) -> Tensor:
        """Return the weight of the predictions that shrink to the mean reward: ``(*B)``."""
        if self.zero_odds == 0.0:
            return 1.0 + 0.0 * number(self.loss_gap)
        return weight_of_mean(self.loss_gap, self.pooled_loss_gap, self.spread, self.rounds, self.log_odds)

    def _keep_(self, residual: Tensor) -> Tensor:
        """Update the spread, and return the residual that the parameter learns from."""
        raise NotImplementedError

    def _keep_all_(
        self, rows: list[Tensor], order: Tensor, arm: Tensor, weight: Tensor, reward: Tensor, residuals: Tensor
    ) -> Tensor:
        """Update the spread and the losses by the n rounds of :meth:`_observe_arms_`.

        Not on arrays. ``rows`` are the weighted features of each arm, and ``order``, ``(n)``, sorts the rounds by arm.
        ``residuals``, ``(n, 2)``, are those of weighted rewards and of weights under the parameters before the block. Return the
        responses that the parameter learns, ``(n)``.
        """
        raise NotImplementedError

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        theta_hat, ones_hat, weight = self.theta_hat, self.ones_hat, self.noise_scale / noise_scale
        a = weighted(x, weight)
        V_inv_a = matvec(self.V_inv, a)
        quadratic = dot(a, V_inv_a)
        self._check_growth(x, quadratic)
        to_zero, short = dot(a, theta_hat), weight - dot(a, ones_hat)
        correction = self._mean_reward() * short
        predictor = to_zero + self._weight_of_mean() * correction
        residual = self._keep_(weight * reward - predictor)
        count_(self.seen)
        target = predictor + residual
        increase_(self.gain, target / weight)
        assign_(self.target, target)
        error = target - to_zero
        most = 2.0 * number(self.spread)
        # Products, because the power of a float raises an error where it overflows.
        of_mean, of_zero = minimum(abs(error - correction), most), minimum(abs(error), most)
        gap = of_mean * of_mean - of_zero * of_zero
        increase_(self.loss_gap, gap)
        increase_(self.pooled_loss_gap, gap)
        theta_hat += V_inv_a * along(error / (1.0 + quadratic), x)
        ones_hat += V_inv_a * along(short / (1.0 + quadratic), x)
        self._add_outer_(a, V_inv_a, quadratic)

    @torch.jit.export
    def _observe_arms_(self, x: Tensor, arm: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn n rounds at once.

        Shapes are ``(n, d)`` and ``(n)`` three times. The learner is one without ``batch_shape``, whose rounds are of arm 0, or
        the batch of the arms. Not on arrays. All statistics are those of rounds in order, up to rounding, except for what
        follows clipped residuals.
        """
        theta_hat, ones_hat = self.theta_hat.view(-1, self.dim), self.ones_hat.view(-1, self.dim)
        V, V_inv, lost = self._precision()
        arms, weight = theta_hat.size(0), self.noise_scale / noise_scale
        a = x if bool((weight == 1.0).all()) else weight.unsqueeze(-1) * x
        if arms <= 2 * self.dim:
            products = matmul(a, torch.cat([theta_hat, ones_hat]).mT)
            to_zero = products.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
            short = weight - products.gather(-1, arm.unsqueeze(-1) + arms).squeeze(-1)
        else:
            to_zero, short = (a * theta_hat[arm]).sum(-1), weight - (a * ones_hat[arm]).sum(-1)
        counts = torch.bincount(arm, minlength=arms)
        numbers: list[int] = counts.tolist()
        order = arm.argsort(stable=True)
        rows = a[order].split(numbers)
        residuals = torch.stack([weight * reward - to_zero, short], -1)
        target = self._keep_all_(rows, order, arm, weight, reward, residuals)
        self.gain.add_((target / weight).sum())
        self.target.copy_(target[-1].expand_as(self.target))
        self.seen.add_(arm.size(0))
        self.rounds.view(-1).add_(counts)
        squares, moved = torch.zeros_like(V).view(-1, self.dim, self.dim), []
        sums = torch.stack([target - to_zero, short], -1)[order].split(numbers)
        for k in range(arms):
            moved.append(gram(rows[k], sums[k]))
            squares[k] = gram(rows[k], rows[k])
        factor, inflation = add_squares_((V, V_inv, lost), squares.view_as(V))
        self._check_block(inflation)
        change = solved(factor.view(-1, self.dim, self.dim), torch.stack(moved))
        theta_hat += change[..., 0]
        ones_hat += change[..., 1]

    @torch.jit.export
    def _replace_(self, old: Tensor, new: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        theta_hat, ones_hat, V = self.theta_hat, self.ones_hat, self._precision()
        V_inv_a = matvec(self.V_inv, old)
        quadratic, cross, growth = dot(old, V_inv_a), dot(new, V_inv_a), dot(new, matvec(self.V_inv, new))
        most = self.most_of_a_direction
        is_safe = (quadratic >= 0.0) & (quadratic < most)
        # The new features' quadratic without the old ones. The same limit holds for them.
        growth = growth + cross * cross / (1.0 - real(is_safe, quadratic) * quadratic)
        is_safe = is_safe & (growth >= 0.0) & (growth < most / (1.0 - most))
        factor = real(is_safe, quadratic)
        a, V_inv_a, quadratic = along(factor, old) * old, along(factor, old) * V_inv_a, factor * quadratic
        self._remove_(a, target, weight, V_inv_a, quadratic)
        a = along(factor, new) * new
        V_inv_a = matvec(self.V_inv, a)
        quadratic = dot(a, V_inv_a)
        theta_hat += V_inv_a * along((target - dot(a, theta_hat)) / (1.0 + quadratic), a)
        ones_hat += V_inv_a * along((weight - dot(a, ones_hat)) / (1.0 + quadratic), a)
        add_outer_(V, a, V_inv_a, quadratic)
        return is_safe

    def _remove_(self, a: Tensor, target: Tensor, weight: Tensor, V_inv_a: Tensor, quadratic: Tensor) -> None:
        """Take weighted features and their responses out of the statistics."""
        theta_hat, ones_hat = self.theta_hat, self.ones_hat
        theta_hat -= V_inv_a * along((target - dot(a, theta_hat)) / (1.0 - quadratic), a)
        ones_hat -= V_inv_a * along((weight - dot(a, ones_hat)) / (1.0 - quadratic), a)
        remove_outer_(self._precision(), a, V_inv_a, quadratic)

    # TorchScript does not compile the methods below.

    def _open_round(self, x: Any, place: Any, noise_scale: Any) -> Any:
        ones_hat, weight = self.ones_hat, self.noise_scale / noise_scale
        a = weighted(x, weight)
        V_inv_a = matvec(self.V_inv, a)
        quadratic = dot(a, V_inv_a)
        check_can_be_removed(self, x, quadratic)
        target = dot(a, self.theta_hat)
        ones_hat += V_inv_a * along((weight - dot(a, ones_hat)) / (1.0 + quadratic), x)
        add_outer_(self._precision(), a, V_inv_a, quadratic)
        # On NumPy views, the learners of a batch may share one scale.
        return joined(joined(x, noise_scale + 0.0 * target), target)

    def _drop_round(self, opened: Any, place: Any) -> None:
        dim = self.dim
        weight = self.noise_scale / number(opened[..., dim])
        a = weighted(opened[..., :dim], weight)
        V_inv_a = matvec(self.V_inv, a)
        quadratic = dot(a, V_inv_a)
        check_is_open(self, quadratic)
        self._remove_(a, number(opened[..., dim + 1]), weight, V_inv_a, quadratic)
        if roundoff(self.V_inv) > 1e-12:
            # Removing a term divides the rounding of the inverse by 1 less the quadratic.
            renew_inverse_(self._precision())

    def _migrate_(self, state_dict: dict[str, Any], prefix: str) -> None:
        # A state of an earlier version: its predictions go on shrinking to 0, because nothing tells its fit of ones.
        names, rounds = ("ones_hat", "loss_gap", "pooled_loss_gap"), state_dict.get(f"{prefix}rounds")
        if isinstance(rounds, Tensor) and not any(f"{prefix}{name}" in state_dict for name in names):
            state_dict[f"{prefix}ones_hat"] = torch.zeros_like(state_dict[f"{prefix}theta_hat"])
            for name in names[1:]:
                state_dict[f"{prefix}{name}"] = torch.full_like(state_dict[f"{prefix}gain"], 1e30)


@with_core
class AdaptiveRidgeRegression(AdaptiveEstimator):
    r"""Ridge regression for bounded rewards, whose radius follows the residuals.

    .. math:: V \leftarrow V + xx^\top,\quad \hat\theta \leftarrow \hat\theta + V^{-1}x\,(r - x^\top\hat\theta),\qquad
              \text{radius}^2 = \text{radius\_scale}^2\,\frac{\text{noise\_scale}^2 + \sum_{s<t}(r_s - p_s)^2}t

    in round t, with predictions p before learning. The sum starts with one residual of ``noise_scale``, which is 1/2 for rewards
    in [0, 1].

    A prediction is a weighted mean of two predictions. The weights follow the losses of each. With u, the ridge fit of the
    response 1 on the same rounds, and m, the mean reward of all rounds (of all arms in :class:`DisjointArms`),

    .. math:: p_0 = x^\top\hat\theta,\qquad p_1 = m + x^\top(\hat\theta - m u),\qquad p = p_0 + w\,(p_1 - p_0)

    The first shrinks to 0, as ridge regression does. The second is ridge regression on rewards minus m, plus m, exactly: it
    shrinks to the mean reward. Where a wrong arm pays 0, the first saves exploration. Where rewards have a level, the first
    would give up good arms that were seldom played. The weight is

    .. math:: w = \frac{1}{1 + \text{zero\_odds}\,\exp\bigl(G/(2\,\text{spread}^2)\bigr)}

    where G sums :math:`(r - p_1)^2 - (r - p_0)^2` over rounds, each square cut at :math:`4\,\text{spread}^2`: the sum over the
    arm's rounds, plus the sum over the rounds of all arms divided by 1 + the arm's rounds. The estimate of an arm without rounds
    is the mean reward.

    With a ``floor``, for rewards of at least 0, :class:`UCB` and the radius selectors raise every estimate to at least the
    smaller of the floor and half of the mean reward, before they add the radius times the width. Far from the contexts in which
    an arm was played, ridge regression may predict rewards far below 0. The floor helps while the other arms pay little more
    than the floor. Other policies use the estimates without this floor.

    Guarantee: none. The radius is a heuristic. It has no factor of the dimension, and shrinks as predictions improve. Radius
    and default ridge, d / 5, were tuned on real data, with d standardised features and no magnitudes. :class:`RidgeRegression`
    has a theorem. A round with its own noise scale is learnt as x and r, each multiplied by ``noise_scale`` and divided by the
    round's.

    Cost of a round: O(d^2) time and two d x d matrices (three in float32).

    Args:
        dim, restart_every, batch_shape, dtype, device, validate: as in :class:`Estimator`.
        noise_scale: above 0, a first guess of the residuals' size, in units of the reward.
        ridge: above 0; None for d / 5.
        radius_scale: above 0, the radius in units of the residuals' root mean square.
        floor: above 0, in units of the reward; rewards below 0 are then refused. None for no floor.
        ceiling: above 0; rewards above it are refused. It changes no estimate. None for no limit.
        zero_odds: at least 0, the odds before the first round of predictions that shrink to 0; 0 for always to the mean reward.

    Shape:
        - ``theta_hat`` and ``ones_hat``, which is u: ``(*B, d)``. :meth:`affine` gives the prediction p.
        - ``squares``, the sum of squared residuals; ``seen``, their number; ``spread``, their root mean square; ``gain``, the
          sum of rewards; ``target``, the response learnt in the last round; ``loss_gap`` and ``pooled_loss_gap``, the two
          sums in G: ``(*B)``.

    Example:
        >>> learner, x = AdaptiveRidgeRegression(1), torch.ones(1)
        >>> for reward in [0.4, 0.6] * 50:
        ...     learner.step(x, torch.tensor(reward))
        >>> print(f"{learner(x):.2f}, radius {learner.radius():.2f}")
        0.50, radius 0.10

    Reference:
        Of this library.
    """

    guarantee = "none"
    statistics_depend_on = ("noise_scale", "ridge", "restart_every")
    takes_one_row = True  # raised() does too
    pooled = (*AdaptiveEstimator.pooled, "squares")
    squares: Tensor

    def __init__(
        self,
        dim: int,
        *,
        noise_scale: float = NOISE_OF_UNIT_REWARDS,
        ridge: float | None = None,
        radius_scale: float = 0.8,
        floor: float | None = None,
        ceiling: float | None = None,
        zero_odds: float = ZERO_ODDS,
        restart_every: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        noise_scale = positive("noise_scale", noise_scale)
        super().__init__(dim, ridge, radius_scale, zero_odds, noise_scale, restart_every, **options)
        self.squared_noise = self.noise_scale**2
        self.floor = None if floor is None else positive("floor", floor)
        self.ceiling = None if ceiling is None else positive("ceiling", ceiling)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"squares": torch.zeros((), dtype=torch.float64)}

    def raised(self, predictor: Tensor) -> Tensor:
        if self.floor is None:
            return predictor
        return maximum(predictor, along(at_most(0.5 * self._mean_reward(), self.floor), predictor))

    def possible_reward(self, values: Tensor) -> Tensor:
        values = values if self.floor is None else values.clamp(min=0.0)
        return values if self.ceiling is None else values.clamp(max=self.ceiling)

    def _check_rewards(self, reward: Tensor, noise_scale: Tensor | None) -> None:
        super()._check_rewards(reward, noise_scale)
        if self.validate and self.floor is not None and bool((reward < -ROUNDING).any()):
            expected = f"at least 0, because floor is set ({self.floor:g})"
            instead = 'pass floor=None, or rewards="real" to bandit()'
            raise ValueError(f"reward: expected {expected}, got {float(reward.min()):g}; {instead}")
        if self.validate and self.ceiling is not None and bool((reward > self.ceiling * (1.0 + ROUNDING)).any()):
            expected = f"at most the ceiling, {self.ceiling:g}"
            instead = 'pass ceiling=None, or rewards="count" or "real" to bandit()'
            raise ValueError(f"reward: expected {expected}, got {float(reward.max()):g}; {instead}")

    def _accepts_rewards(self, reward: Tensor) -> Tensor:
        accepted = passes(reward)
        if self.floor is not None:
            accepted = accepted & (reward >= -1e-6)
        if self.ceiling is not None:
            accepted = accepted & (reward <= self.ceiling * (1.0 + 1e-6))
        return accepted

    def _is_ordinary(self, reward: Any) -> bool:
        is_possible = True
        if self.floor is not None:
            is_possible = reward >= -ROUNDING
        if self.ceiling is not None:
            is_possible = is_possible & (reward <= self.ceiling)
        if not (is_possible if isinstance(is_possible, bool) else is_possible.all()):
            return False
        return super()._is_ordinary(reward)

    def _keep_(self, residual: Tensor) -> Tensor:
        squares = number(self.squares) + residual * residual
        assign_(self.squares, squares)
        assign_(self.spread, sqrt((squares + self.squared_noise) / (real(self.seen, squares) + 2.0)))
        return residual

    def _keep_all_(
        self, rows: list[Tensor], order: Tensor, arm: Tensor, weight: Tensor, reward: Tensor, residuals: Tensor
    ) -> Tensor:
        errors, shorts = self._in_order(rows, order, residuals).unbind(-1)
        earlier = torch.arange(errors.size(0), device=errors.device)
        gain = self.gain.reshape(-1)[:1] + reward.cumsum(0, dtype=errors.dtype) - reward
        corrections = gain / (self.seen.reshape(-1)[:1] + earlier).clamp(min=1) * shorts
        # The weight of the mean follows the losses of earlier rounds, and these follow it: one round after another.
        counts: list[int] = self.rounds.view(-1).tolist()
        gaps: list[float] = self.loss_gap.view(-1).tolist()
        seen, spread = int(self.seen.reshape(-1)[0]), float(self.spread.reshape(-1)[0])
        squares, pooled = float(self.squares.reshape(-1)[0]), float(self.pooled_loss_gap.reshape(-1)[0])
        arms: list[int] = arm.tolist()
        pairs: list[list[float]] = torch.stack([errors, corrections], -1).tolist()
        has_odds = self.zero_odds > 0.0
        most, log_odds, squared_noise = 4.0 * spread * spread, self.log_odds, self.squared_noise
        for t in range(len(arms)):
            k, error, correction = arms[t], pairs[t][0], pairs[t][1]
            to_mean = error - correction
            residual = to_mean
            if has_odds and counts[k] > 0:
                odds = 2.0 * (gaps[k] + pooled / (counts[k] + 1)) / max(most, 2e-37) + log_odds
                residual = error - correction / (1.0 + math.exp(min(odds, 700.0)))
            squares += residual * residual
            counts[k] += 1
            seen += 1
            most = 4.0 * (squares + squared_noise) / (seen + 1)
            gap = min(to_mean * to_mean, most) - min(error * error, most)
            gaps[k] += gap
            pooled += gap
        loss_gap = self.loss_gap.view(-1)
        for k in range(len(rows)):  # a script would round torch.tensor(gaps), and loss_gap[k] = gaps[k], to float32
            if rows[k].size(0) > 0:
                loss_gap[k].fill_(gaps[k])
        self.pooled_loss_gap.fill_(pooled)
        self.squares.fill_(squares)
        self.spread.fill_(0.5 * math.sqrt(most))
        return weight * reward

    def _in_order(self, rows: list[Tensor], order: Tensor, residuals: Tensor) -> Tensor:
        """Return the residuals in order of each arm's rounds, ``(n, 2)``."""
        V_inv, found = self.V_inv.view(-1, self.dim, self.dim), torch.empty_like(residuals, dtype=torch.float64)
        places = order.split([part.size(0) for part in rows])
        for k in range(len(rows)):
            if rows[k].size(0) > 0:
                found[places[k]] = residuals_in_order(V_inv[k], rows[k], residuals[places[k]])
        return found


@with_core
class RobustRidgeRegression(AdaptiveEstimator):
    r"""Ridge regression on clipped residuals, for rewards in any unit, with outliers.

    Let q be the quantile of the last ``window`` residuals :math:`|r - p|`, this round's included, where p is the prediction of
    :class:`AdaptiveRidgeRegression`. A round is one step of ridge regression on the target, which is the prediction plus the
    clipped residual. The radius follows the root mean square of the clipped residuals, ``spread``:

    .. math:: y = p + \text{clip}(r - p,\ \pm\text{cut}\cdot q),\quad V \leftarrow V + xx^\top,\quad
              \hat\theta \leftarrow \hat\theta + V^{-1}x\,(y - x^\top\hat\theta),\qquad
              \text{radius} = \text{radius\_scale}\cdot\text{spread}

    In the first ``warmup`` rounds, a residual is clipped at three times the largest earlier one instead; the first residual other
    than 0 is not clipped. The first reward sets the level: it is not clipped, and its residual counts as 0. The spread starts at
    1. If all residuals in the window are 0, the spread is kept; otherwise exploration would stop on arms that never pay. If all
    rewards are multiplied by a number, so are predictions, and radii after the first residual other than 0. With ``zero_odds=0``,
    a number that is added to all rewards is added to all predictions, and changes nothing else.

    Guarantee: none. The radius is a heuristic. It needs neither the noise scale nor the parameter's norm, and plays well on
    real data under heavy-tailed noise (docs/benchmark.md). Do not use it for bounded rewards that are rarely above 0: it clips
    their successes. :class:`HeavyTailRegression` has a theorem. A round with its own ``noise_scale`` is learnt as x and r
    divided by it.

    Cost of a round: O(d^2 + w log w) time for a window of w, and two d x d matrices (three in float32).

    Args:
        dim, restart_every, batch_shape, dtype, device, validate: as in :class:`Estimator`.
        ridge: above 0; None for d / 5.
        radius_scale: above 0, the radius in units of the spread.
        quantile: in (0, 1); 0.9 clips more than 0.95.
        cut: above 0, the clip level of residuals in units of the quantile.
        window: number of residuals that are kept.
        warmup: rounds before the quantile is used.
        zero_odds: as in :class:`AdaptiveRidgeRegression`.

    Shape:
        - ``residuals``, ``(*B, window)``; ``spread``; ``seen``, number of residuals so far; ``gain``, the sum of targets;
          ``target``, ``theta_hat``, ``ones_hat``, ``loss_gap`` and ``pooled_loss_gap`` as in :class:`AdaptiveRidgeRegression`.

    Example:
        >>> learner, x = RobustRidgeRegression(1), torch.ones(1)
        >>> for reward in [3.0, 5.0] * 50 + [1e6] + [3.0, 5.0] * 50:
        ...     learner.step(x, torch.tensor(reward))
        >>> print(f"{learner(x):.1f}")
        4.0

    Reference:
        Of this library. Huber (Robust estimation of a location parameter, 1964) cuts residuals at a known scale.
    """

    guarantee = "none"
    statistics_depend_on = ("ridge", "restart_every", "cut", "quantile", "window", "warmup")
    pooled = (*AdaptiveEstimator.pooled, "residuals")
    residuals: Tensor

    def __init__(
        self,
        dim: int,
        *,
        ridge: float | None = None,
        radius_scale: float = 0.8,
        quantile: float = 0.95,
        cut: float = 1.0,
        window: int = 256,
        warmup: int = 10,
        zero_odds: float = ZERO_ODDS,
        restart_every: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, ridge, radius_scale, zero_odds, restart_every=restart_every, **options)
        self.quantile = within("quantile", quantile, 0.0, 1.0)
        self.cut = positive("cut", cut)
        self.window, self.warmup = positive_integer("window", window), positive_integer("warmup", warmup)
        # Before that, no quantile is known, or it moves much within a block.
        self.rounds_before_blocks = max(256, self.warmup)
        self._create_buffers()

    def _initial_state(self) -> dict[str, Tensor | None]:
        return super()._initial_state() | {"residuals": torch.zeros(self.window, dtype=torch.float64)}

    def _keep_(self, residual: Tensor) -> Tensor:
        residuals = self.residuals
        size, seen = abs(residual), real(self.seen, residuals)
        # The first reward sets the level, and tells nothing of the spread.
        size = where(seen > 0.0, size, 0.0 * size)
        first = 3.0 * number(largest(residuals))
        put_(residuals, number(self.seen) % self.window, size)
        count = at_most(seen + 1.0, float(self.window))
        ordered = ascending(residuals)
        # The quantile, by linear interpolation. A quantile of 0 clips nothing. The zeros of unused slots come first.
        unused = self.window - count
        position = self.quantile * (count - 1.0)
        low = floor(position)
        below, above = entry(ordered, unused + low), entry(ordered, unused + minimum(low + 1.0, count - 1.0))
        limit = self.cut * (below + (position - low) * (above - below))
        limit = where(seen < self.warmup, first, limit)
        limit = number(where((limit <= 0.0) | (seen == 0.0), size + math.inf, limit))
        kept = minimum(residuals, column(limit))
        square = number(total(kept * kept) / count)
        # A spread of 0 would end exploration on an arm that never pays.
        assign_(self.spread, where(square == 0.0, number(self.spread), sqrt(square)))
        return clip(residual, limit)

    def _keep_all_(
        self, rows: list[Tensor], order: Tensor, arm: Tensor, weight: Tensor, reward: Tensor, residuals: Tensor
    ) -> Tensor:
        # All residuals come from predictions before the block, and are clipped at the quantile of those before it.
        error, short = residuals.unbind(-1)
        correction = self._mean_reward().reshape(-1)[0] * short
        residual = error - self._weight_of_mean().reshape(-1)[arm] * correction
        window, spread = self.residuals.view(-1, self.window), self.spread
        seen, size = int(self.seen.reshape(-1)[0]), residual.abs()
        limit = self.cut * torch.quantile(window[0, : min(seen, self.window)], self.quantile)
        limit = torch.where(limit > 0.0, limit, torch.full_like(limit, math.inf))
        last = min(size.size(0), self.window)
        place = (seen + size.size(0) - last + torch.arange(last, device=size.device)) % self.window
        window[:, place] = size[size.size(0) - last :].to(window.dtype)
        square = (torch.minimum(window[0, : min(seen + size.size(0), self.window)], limit) ** 2).mean()
        spread.copy_(torch.where(square > 0.0, square.sqrt(), spread.reshape(-1)[0]).expand_as(spread))
        excess = residual - torch.minimum(torch.maximum(residual, -limit), limit)
        error, most = error - excess, 2.0 * spread.reshape(-1)[0]
        gap = torch.minimum((error - correction).abs(), most) ** 2 - torch.minimum(error.abs(), most) ** 2
        self.loss_gap.view(-1).index_add_(0, arm, gap)
        # Not +=, which sets the attribute too, and so drops the view.
        self.pooled_loss_gap.add_(gap.sum())
        return weight * reward - excess
