"""Intervals of an estimated value: by resampling, by normality, and at all times."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.checks import positive, positive_integer, within
from torchonline.off_policy.estimators import Estimate
from torchonline.off_policy.logs import BanditLog

# The mixture of a confidence sequence: lambda = 2^-(j + 1/2) / c with probability 1 / ((j + 1)(j + 2)), j = 0, ..., 23.
MIXTURE = 24
# By how much, relatively, weights and predictions in float32 may be beyond their bounds. Intervals take account of it.
SLACK = 1e-6
# Rounds whose bounds are computed at once.
CHUNK = 4096


class Interval(NamedTuple):
    """Lower and upper bound of a value.

    Args:
        lower: a float, or ``(N)``, float64: after each round.
        upper: likewise.
    """

    lower: Any
    upper: Any

    def __repr__(self) -> str:
        is_one = all(isinstance(end, float) for end in self)
        lower, upper = with_digits_of(self.upper - self.lower, *self) if is_one else map(repr, self)
        return f"Interval(lower={lower}, upper={upper})"


def with_digits_of(width: float, *numbers: float) -> list[str]:
    """Return numbers as text, down to the second digit of the width of an interval.

    Each has four significant digits at least, and no exponent between 0.0001 and 10^15.
    """
    return [f"{round(x, max(0, 1 - exponent(width), 3 - exponent(x))):.15g}" for x in numbers]


def exponent(number: float) -> int:
    """Return the power of ten of a number's first digit; 0 for 0, NaN and infinity."""
    return math.floor(math.log10(abs(number))) if math.isfinite(number) and number else 0


def bootstrap_values(estimate: Estimate, *, draws: int = 2000, seed: int = 0) -> Tensor:
    """Return estimates from resamples of whole groups, ``(draws)``, float64.

    A resample draws as many groups as there are, with replacement. Each resample has its own normaliser, where there is one.
    Estimates from one log get the same resamples by the same seed, so that their differences can be taken draw by draw.

    Args:
        estimate: the estimate, of a log with or without groups.
        draws: number of resamples.
        seed: seed of the resamples.

    Raises:
        ValueError: a self-normalised estimate has no weight in some resample.
    """
    log, count = checks.instance_of("estimate", estimate, Estimate, "an Estimate").log, positive_integer("draws", draws)
    weights = estimate.weights
    parts = torch.stack([estimate.base, weights * estimate.residuals, weights, torch.ones_like(weights)], 1)
    sums = log.group_sums(parts)
    generator, groups = torch.Generator().manual_seed(checks.seed_number(seed)), len(sums)
    values = []
    for start in range(0, count, size := max(1, 2_000_000 // groups)):
        rows = min(size, count - start)
        index = torch.randint(groups, (rows, groups), generator=generator)
        times = torch.zeros(rows, groups, dtype=torch.float64).scatter_add_(
            1, index, torch.ones_like(index, dtype=torch.float64)
        )
        base, weighted, total, rounds = (times @ sums).unbind(1)
        divisor = total if estimate.self_normalised else rounds
        if not bool((divisor > 0.0).all()):
            few = int((sums[:, 2] > 0.0).sum())
            raise ValueError(
                f"estimate: expected weight in each resample, got none in some; {few} of {groups} groups have weight"
            )
        values.append(base / rounds + weighted / divisor)
    return torch.cat(values)


def bootstrap_interval(estimate: Estimate, *, delta: float = 0.05, draws: int = 2000, seed: int = 0) -> Interval:
    """Return quantiles of the bootstrap of groups: delta / 2 and 1 - delta / 2.

    Asymptotic: the coverage tends to 1 - delta as the number of independent groups grows, if the weighted residuals have a
    variance. With few groups, rare rewards or heavy weights it is less (docs/off_policy_measured.md has counts). It does not hold
    at all times, and not for a log whose logging policy learns, or for a target that learns from the log: rounds are then not
    independent.

    Args:
        estimate: the estimate, of at least two groups.
        delta: probability of a miss, in (0, 1).
        draws: see :func:`bootstrap_values`.
        seed: see :func:`bootstrap_values`.

    Example:
        >>> from torchonline.off_policy import BanditLog, ips
        >>> log = BanditLog(arms=2, action=[0, 1] * 50, reward=[1.0, 0.0] * 50, probability=[0.5] * 100)
        >>> bounds = bootstrap_interval(ips(log, torch.tensor([[0.6, 0.4]]).expand(100, 2)))
        >>> bool(bounds.lower < 0.6 < bounds.upper)
        True
    """
    delta = within("delta", delta, 0.0, 1.0)
    _check_groups(checks.instance_of("estimate", estimate, Estimate, "an Estimate").log)
    values = bootstrap_values(estimate, draws=draws, seed=seed)
    bounds = values.quantile(torch.tensor([delta / 2.0, 1.0 - delta / 2.0], dtype=torch.float64))
    return Interval(*bounds.tolist())


def normal_interval(estimate: Estimate, *, delta: float = 0.05) -> Interval:
    r"""Return the estimate plus and minus a normal quantile times its standard error.

    Asymptotic: see :func:`bootstrap_interval`. The standard error is that of a mean of groups. A self-normalised estimate has the
    one of its linear approximation (delta method).

    Args:
        estimate: the estimate, of at least two groups.
        delta: probability of a miss, in (0, 1).
    """
    checks.instance_of("estimate", estimate, Estimate, "an Estimate")
    delta, log = within("delta", delta, 0.0, 1.0), estimate.log
    terms = estimate.terms
    if estimate.self_normalised:
        ratio = estimate.weights / estimate.weights.mean()
        corrected = (estimate.weights * estimate.residuals).mean() / estimate.weights.mean()
        terms = estimate.base + ratio * (estimate.residuals - corrected)
    _check_groups(log)
    sums = log.group_sums(terms - terms.mean())
    error = float((sums**2).sum().sqrt()) * math.sqrt(len(sums) / (len(sums) - 1)) / len(log)
    quantile = -float(torch.special.ndtri(torch.tensor(delta / 2.0, dtype=torch.float64)))
    return Interval(estimate.value - quantile * error, estimate.value + quantile * error)


def _check_groups(log: BanditLog) -> None:
    """Raise where there is one group, whose mean varies by an unknown amount."""
    if len(log) < 2 or (log.groups is not None and int(log.groups.max()) == 0):
        raise ValueError("estimate: expected at least two groups, got one")


def confidence_sequence(
    estimate: Estimate, *, reward_range: tuple[float, float], largest_weight: float | None = None, delta: float = 0.05
) -> Interval:
    r"""Return bounds of the value after each round, which hold in all rounds at once.

    .. math:: P\Bigl(\forall t:\ L_t \le \frac1t\sum_{i \le t} v_i \le U_t\Bigr) \ge 1 - \delta,\qquad
              v_i = E\Bigl[\sum_a \pi_i(a \mid x_i)\,r_i(a) \Bigm| \text{rounds before } i\Bigr]

    Here :math:`v_i` is the expected reward of the target in round i, given the past. If contexts and rewards are independent and
    identically distributed and the target is fixed, all :math:`v_i` are the target's value. The bounds hold for finite N, and
    however the number of rounds was chosen. The interval for the whole log is the last entry.

    Conditions:

    1. ``log.probability`` is the probability of the logged action given its context and all earlier rounds, and is above 0 where
       the target's probability is. The logging policy may learn.
    2. The target's probabilities in round i, and the predictions, depend on the context and on earlier rounds only. So the target
       may learn from the log. Predictions are refused unless :class:`PredictedRewards` says so.
    3. Rewards are in ``reward_range``. A logged reward outside is refused.
    4. With ``largest_weight`` W, no weight of any possible action is above W. One over the least logging probability is such a W.
       A logged weight above W is refused. That no logged weight is above W does not prove it.

    Without W, the estimate must be of :func:`ips` or :func:`clipped_ips`. The lower bound uses that weights and rewards above the
    least are at least 0, the upper bound uses :math:`w_i` times the largest reward less the reward. So no bound on the weights is
    needed, and clipping costs width, never coverage. Its upper bound is wide for rare rewards. With W it is narrow, and
    :func:`doubly_robust` is taken too. Estimates that are self-normalised have no such guarantee, and are refused.

    Proof: docs/confidence_sequence.md. In brief, let terms :math:`X_i` have conditional means :math:`v_i` and be at least
    :math:`\hat X_i - c` for a prediction :math:`\hat X_i` from the past. Then

    .. math:: \exp\Bigl(\lambda\sum(X_i - v_i) - \psi(\lambda)\sum(X_i - \hat X_i)^2\Bigr),\qquad
              \psi(\lambda) = \frac{-\log(1 - c\lambda) - c\lambda}{c^2},\quad 0 \le \lambda < 1/c

    is a supermartingale. So is a mixture over 24 values of :math:`\lambda`, which by Ville's inequality stays below
    :math:`2/\delta` for ever, with probability :math:`1 - \delta/2` on either side.

    Rounding: sums of N terms are wrong by at most :math:`N 2^{-52}` of the sum of magnitudes, and weights and
    predictions in float32 may be beyond their bounds by 1e-6 of them. Bounds are moved outwards by that.

    Cost: O(N) time and memory, about 24 exponentials a round and Newton step.

    Args:
        estimate: of a log in the order in which decisions were made, without groups of several rounds.
        reward_range: least and largest possible reward.
        largest_weight: W, a promise, at least 1; None if there is none.
        delta: probability of a miss, in (0, 1); half of it on either side.

    Returns:
        Bounds after each round, ``(N)``, within ``reward_range``. They are not monotone. Where all :math:`v_i` are equal, the
        running maximum of ``lower`` and the running minimum of ``upper`` hold too.

    Raises:
        TypeError, ValueError: an argument is something else, or a condition is seen to fail.

    Example:
        >>> from torchonline.off_policy import BanditLog, ips
        >>> generator = torch.Generator().manual_seed(0)
        >>> action = torch.randint(2, (5000,), generator=generator)
        >>> log = BanditLog(arms=2, action=action, reward=0.2 + 0.5 * action, probability=[0.5] * 5000)
        >>> estimate = ips(log, torch.tensor([[0.1, 0.9]]).expand(5000, 2))  # its value is 0.65
        >>> bounds = confidence_sequence(estimate, reward_range=(0.0, 1.0), largest_weight=2.0)
        >>> round(float(bounds.lower[-1]), 2), round(float(bounds.upper[-1]), 2)
        (0.63, 0.69)

    Reference:
        Waudby-Smith, Wu, Ramdas, Karampatziakis and Mineiro, Anytime-valid off-policy inference for contextual bandits, ACM / IMS
        Journal of Data Science 2024, have sequences for the same mean with other mixtures. Howard, Ramdas, McAuliffe and Sekhon,
        Time-uniform, nonparametric, nonasymptotic confidence sequences, Annals of Statistics 2021, Theorem 4. Fan, Grama and Liu,
        Exponential inequalities for martingales with applications, Electronic Journal of Probability 2015.
    """
    low, high = _checked_range(reward_range)
    delta = within("delta", delta, 0.0, 1.0)
    bound = None if largest_weight is None else positive("largest_weight", largest_weight)
    _check_conditions(estimate, low, high, bound)
    scale, w = high - low, estimate.weights
    if bound is None:
        reward = (estimate.residuals - low) / scale
        lower = _lower_bounds(w * reward, 0.0, 1.0, delta / 2.0)
        upper = 1.0 - _lower_bounds(w * (1.0 - reward), 0.0, 1.0, delta / 2.0)
    elif estimate.method == "ips":
        bound *= 1.0 + SLACK
        terms = w * (estimate.residuals - low) / scale
        lower = _lower_bounds(terms, 0.0, 1.0, delta / 2.0)
        upper = -_lower_bounds(-terms, -bound, 0.0, delta / 2.0)
    else:
        bound = bound * (1.0 + 2.0 * SLACK) + SLACK  # of weights, and of weighted predictions
        terms = (estimate.base - low + w * estimate.residuals) / scale
        lower = _lower_bounds(terms, -bound, 1.0, delta / 2.0)
        upper = -_lower_bounds(-terms, -1.0 - bound, 0.0, delta / 2.0)
    return Interval(low + scale * lower.clamp(0.0, 1.0), low + scale * upper.clamp(0.0, 1.0))


def _lower_bounds(terms: Tensor, floor: float, most: float, alpha: float) -> Tensor:
    r"""Return lower bounds of running means of conditional means, ``(N)``.

    With probability 1 - ``alpha`` all hold, if terms are at least ``floor``. ``most`` is the largest prediction of a term.
    """
    n, c = len(terms), most - floor
    count = torch.arange(1, n + 1, dtype=torch.float64)
    sums = terms.cumsum(0)
    # The prediction of a term is the mean of earlier terms, and of a first one in the middle.
    middle = min(max(0.0, floor), most)
    predicted = ((torch.cat([sums.new_zeros(1), sums[:-1]]) + middle) / count).clamp(floor, most)
    unit = n * 2.0**-52
    squares = ((terms - predicted) / c).pow(2).cumsum(0) * (1.0 + 4.0 * unit)
    # In units of c.
    excess = torch.cat([_excess(part, alpha) for part in squares.split(CHUNK)])
    return (sums - unit * terms.abs().cumsum(0) - c * excess * (1.0 + 4.0 * unit)) / count


def _excess(squares: Tensor, alpha: float) -> Tensor:
    r"""Return the largest sum of deviations that the mixture allows, ``(N)``.

    In units of c, it is the root s of

    .. math:: \log\sum_j p_j \exp(\lambda_j s - \psi(\lambda_j) V) = \log(1/\alpha)

    The left-hand side is convex and increases. So Newton's steps from above stay above the root, and the bound holds however many
    there are.
    """
    number = torch.arange(MIXTURE, dtype=torch.float64)
    weight = 2.0 ** -(number + 0.5)
    # -log(1 - x) - x loses digits for small x, where the series takes its place. Both are rounded up.
    series = weight**2 / 2.0 + weight**3 / 3.0 + weight**4 / 4.0 + weight**5
    psi = torch.where(weight < 1e-3, series, -torch.log1p(-weight) - weight) * (1.0 + 1e-9)
    target = -math.log(alpha) + 1e-9
    cost = psi * squares.unsqueeze(1) + torch.log((number + 1.0) * (number + 2.0))
    s = ((target + cost) / weight).amin(1)
    for _ in range(6):
        exponents = weight * s.unsqueeze(1) - cost
        value = exponents.logsumexp(1)
        slope = (exponents.softmax(1) * weight).sum(1)
        s = s - ((value - target) / slope).clamp(min=0.0)
    return s


def _checked_range(reward_range: Any) -> tuple[float, float]:
    if not isinstance(reward_range, (tuple, list)) or len(reward_range) != 2:
        raise TypeError(f"reward_range: expected the least and the largest reward, got {reward_range!r}")
    low, high = (checks.finite_number("reward_range", bound) for bound in reward_range)
    if low >= high:
        raise ValueError(f"reward_range: expected a least reward below the largest, got {reward_range}")
    return low, high


def _check_conditions(estimate: Any, low: float, high: float, bound: float | None) -> None:
    """Raise where a condition of :func:`confidence_sequence` is seen to fail."""
    log = checks.instance_of("estimate", estimate, Estimate, "an Estimate").log
    unbounded, bounded = ("ips", "clipped_ips"), ("ips", "doubly_robust")
    if estimate.method not in (unbounded if bound is None else bounded):
        names = "ips or clipped_ips without largest_weight, of ips or doubly_robust with it"
        raise ValueError(f"estimate: expected one of {names}, got one of {estimate.method}")
    if not estimate.from_past:
        wanted = "predictions from earlier rounds, as of predicted_rewards(..., folds=None)"
        raise ValueError(f"estimate: expected {wanted}, got others")
    if log.groups is not None and int(log.groups.max()) + 1 < len(log):
        wanted = "rounds each of whose actions was drawn given all before; then leave out groups"
        raise ValueError(f"estimate: expected {wanted}, got a log with groups of several rounds")
    if log.time is not None and bool((log.time.diff() < 0.0).any()):
        raise ValueError("estimate: expected a log in the order of its times, got another order")
    if bool(((log.reward < low) | (log.reward > high)).any()):
        worst = [float(value) for value in log.reward.aminmax()]
        raise ValueError(
            f"reward_range: expected one that holds all rewards, got rewards from {worst[0]:g} to {worst[1]:g}"
        )
    if bound is None:
        return
    largest = max(1.0, float(estimate.weights.max()))  # some weight is at least 1: probabilities of both sum to 1
    if largest > bound * (1.0 + SLACK):
        raise ValueError(f"largest_weight: expected at least {largest:.9g}, got {bound:.9g}")
    slack, predicted = 0.5 * SLACK * (high - low), estimate.predicted_range
    if predicted is not None and not low - slack <= predicted[0] <= predicted[1] <= high + slack:
        wanted = f"predicted rewards in reward_range, from {low:g} to {high:g}; clamp them"
        raise ValueError(f"estimate: expected {wanted}, got {predicted[0]:g} to {predicted[1]:g}")
