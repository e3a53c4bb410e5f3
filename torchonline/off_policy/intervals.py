"""Intervals for an estimated value: bootstrap, normal and anytime-valid."""

import math
import warnings
from typing import Any, Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.checks import positive, positive_integer, within
from torchonline.off_policy.estimators import Estimate, deviations
from torchonline.off_policy.logs import BanditLog

# The mixture of a confidence sequence: lambda = 2^-(j + 1/2) / c with probability 1 / ((j + 1)(j + 2)), j = 0, ..., 23.
MIXTURE = 24
# Relative amount by which weights and predictions in float32 may exceed their bounds. Intervals allow for it.
SLACK = 1e-6
# Number of rounds whose bounds are computed at once.
CHUNK = 4096
# A larger share of one term in the variance is taken for a heavy tail.
HEAVY = 0.1
# Methods whose weights are smaller than the ratio of the probabilities in some rounds.
TRUNCATED = ("clipped_ips", "direct_method", "switch", "switch_doubly_robust")


class TailWarning(UserWarning):
    """Warning of an asymptotic interval of an estimate with a heavy tail.

    ``Estimate.tail_share`` is the diagnostic.
    """


Bound = TypeVar("Bound")


class _Bounds(NamedTuple, Generic[Bound]):
    lower: Bound
    upper: Bound


class Interval(_Bounds[Bound]):
    """Lower and upper bound of a value.

    It is a tuple of the two bounds.

    Args:
        lower: a float; or the bounds after each round, ``(N)``, float64.
        upper: as ``lower``.
        method: how it was computed: "normal", "bootstrap" or "confidence_sequence"; "none" for infinite bounds.
        note: why :func:`confidence_interval` did not take the normal interval, and its assumption.
    """

    method: str = ""
    note: str = ""

    def __new__(cls, lower: Bound, upper: Bound, *, method: str = "", note: str = "") -> Self:
        self = super().__new__(cls, lower, upper)  # type: ignore[type-var]  # mypy knows no Self of a named tuple
        self.method, self.note = method, note
        return self

    def __repr__(self) -> str:
        lower, upper = map(repr, self)
        if isinstance(self.lower, float) and isinstance(self.upper, float):
            lower, upper = with_digits_of(self.upper - self.lower, self.lower, self.upper)
        told = "".join(f", {name}={getattr(self, name)!r}" for name in ("method", "note") if getattr(self, name))
        return f"Interval(lower={lower}, upper={upper}{told})"


def with_digits_of(width: float, *numbers: float) -> list[str]:
    """Format numbers down to the second digit of the width of an interval.

    Each has at least four significant digits, and no exponent between 0.0001 and 10^15.
    """
    return [f"{round(x, max(0, 1 - exponent(width), 3 - exponent(x))):.15g}" for x in numbers]


def exponent(number: float) -> int:
    """Return the power of ten of a number's first digit; 0 for 0, NaN and infinity."""
    return math.floor(math.log10(abs(number))) if math.isfinite(number) and number else 0


def bootstrap_values(estimate: Estimate, *, draws: int = 2000, seed: int = 0) -> Tensor:
    """Return estimates from resamples of whole groups, ``(draws)``, float64.

    A resample draws G of the G groups with replacement. A self-normalised estimate is normalised in each resample. Estimates from
    one log get the same resamples under the same seed, so their differences can be computed draw by draw.

    Args:
        estimate: the estimate, from a log with or without groups.
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
                f"estimate: expected a weight above 0 in each resample, got none in some; {few} of {groups} groups have one"
            )
        values.append(base / rounds + weighted / divisor)
    return torch.cat(values)


def bootstrap_interval(estimate: Estimate, *, delta: float = 0.05, draws: int = 2000, seed: int = 0) -> Interval[float]:
    """Return the delta / 2 and 1 - delta / 2 quantiles of the bootstrap of groups.

    Asymptotic: the coverage tends to 1 - delta as the number of independent groups grows, if the weighted residuals have finite
    variance. With few groups, rare rewards or heavy weights it is smaller (docs/off_policy_measured.md has counts). The function
    warns if the diagnostic of :func:`confidence_interval` detects this. The interval is not anytime-valid. It does not hold if
    the logging policy learns, or if the target learns from the log, because rounds are then not independent.

    Args:
        estimate: the estimate, of at least two groups.
        delta: probability of a miss, in (0, 1).
        draws: see :func:`bootstrap_values`.
        seed: see :func:`bootstrap_values`.

    Warns:
        TailWarning: one group has more than 10 % of the variance.

    Example:
        >>> from torchonline.off_policy import BanditLog, ips
        >>> log = BanditLog(arms=2, action=[0, 1] * 50, reward=[1.0, 0.0] * 50, probability=[0.5] * 100)
        >>> bounds = bootstrap_interval(ips(log, torch.tensor([[0.6, 0.4]]).expand(100, 2)))
        >>> bool(bounds.lower < 0.6 < bounds.upper)
        True
    """
    delta = within("delta", delta, 0.0, 1.0)
    _check_groups(checks.instance_of("estimate", estimate, Estimate, "an Estimate").log)
    _warn_of_tail(estimate)
    values = bootstrap_values(estimate, draws=draws, seed=seed)
    bounds = values.quantile(torch.tensor([delta / 2.0, 1.0 - delta / 2.0], dtype=torch.float64))
    lower, upper = bounds.tolist()
    return Interval(lower, upper, method="bootstrap")


def normal_interval(estimate: Estimate, *, delta: float = 0.05) -> Interval[float]:
    r"""Return the estimate plus and minus a normal quantile times its standard error.

    Asymptotic: see :func:`bootstrap_interval`. The standard error is computed over groups; for a self-normalised estimate, by its
    linear approximation (delta method).

    Args:
        estimate: the estimate, of at least two groups.
        delta: probability of a miss, in (0, 1).

    Warns:
        TailWarning: one group has more than 10 % of the variance.
    """
    checks.instance_of("estimate", estimate, Estimate, "an Estimate")
    delta = within("delta", delta, 0.0, 1.0)
    _check_groups(estimate.log)
    _warn_of_tail(estimate)
    return _normal_interval(estimate, delta)


def confidence_interval(
    estimate: Estimate,
    *,
    reward_range: tuple[float, float] | None = None,
    largest_weight: float | None = None,
    delta: float = 0.05,
) -> Interval[float]:
    """Return a normal interval, or another one if the tail of the terms is heavy.

    The interval is for a number of rounds that was fixed in advance.

    The diagnostic is ``estimate.tail_share``, the share of the largest term in the variance.

    - Up to 10 %, the result is :func:`normal_interval`.
    - Above 10 %, the normal interval is too short: the weighted rewards have a heavy tail, or hardly any are above 0. Then the
      result is the last one of :func:`confidence_sequence` for the weights of the estimate, without its reward model. It holds
      for finite N if rewards are in ``reward_range``, and is wider. If rounds are in groups, its terms are sums over groups,
      which must be independent, and their sizes are treated as fixed.
    - Above 10 % and without ``reward_range``, rewards that are all 0 or 1 are assumed to be in [0, 1]. Other rewards have no
      known range, and the bounds are infinite: no finite interval of a mean holds for all tails.

    Clipped and switched estimates have lighter tails and a bias, and the direct method has the bias of its model. The normal
    interval ignores bias.

    ``method`` and ``note`` of the result, and its repr, say which interval it is and why. The choice between the two depends on
    the log, and the normal interval is asymptotic; docs/off_policy_measured.md has the coverage of the whole rule.

    Args:
        estimate: any estimate, also an :func:`improvement`.
        reward_range: smallest and largest possible reward.
        largest_weight: an assumed bound W on all weights, as for :func:`confidence_sequence`. For rare rewards it makes the
            second interval much narrower. Estimates with clipped, switched or no weights do not use it.
        delta: probability of a miss, in (0, 1).

    Raises:
        TypeError, ValueError: an argument is invalid, or a logged reward or weight is outside its bounds.

    Example:
        >>> from torchonline.off_policy import BanditLog, ips
        >>> action = [0] * 990 + [1] * 10
        >>> log = BanditLog(arms=2, action=action, reward=[0.0, 1.0] * 500, probability=[0.99] * 990 + [0.01] * 10)
        >>> confidence_interval(ips(log, torch.tensor([[1.0, 0.0]]).expand(1000, 2)))
        Interval(lower=0.4687, upper=0.5313, method='normal')
    """
    log = checks.instance_of("estimate", estimate, Estimate, "an Estimate").log
    delta = within("delta", delta, 0.0, 1.0)
    bound = None if largest_weight is None else positive("largest_weight", largest_weight)
    if reward_range is not None:
        _check_rewards(log, *_checked_range(reward_range))
    if bound is not None:
        _check_largest(estimate.weights, bound)
    _check_groups(log)
    if estimate.tail_share <= HEAVY:
        return _normal_interval(estimate, delta)
    if bool((estimate.weights < 0.0).any()):
        raise ValueError(f"estimate: expected weights of at least 0, got {float(estimate.weights.min()):g}")
    note = _tail_of(estimate)
    if reward_range is None:
        if not bool(((log.reward == 0.0) | (log.reward == 1.0)).all()):
            return Interval(-math.inf, math.inf, method="none", note=f"{note}; give reward_range for finite bounds")
        reward_range, note = (0.0, 1.0), f"{note}; rewards are assumed to be in [0, 1]"
    low, high = _checked_range(reward_range)
    bounds = _weighted_bounds(estimate, low, high, None if estimate.method in TRUNCATED else bound, delta)
    return Interval(float(bounds.lower[-1]), float(bounds.upper[-1]), method="confidence_sequence", note=note)


def _normal_interval(estimate: Estimate, delta: float) -> Interval[float]:
    """Return the normal interval, without a check or a warning."""
    sums = deviations(estimate)
    error = float((sums**2).sum().sqrt()) * math.sqrt(len(sums) / (len(sums) - 1)) / len(estimate.log)
    quantile = -float(torch.special.ndtri(torch.tensor(delta / 2.0, dtype=torch.float64)))
    return Interval(estimate.value - quantile * error, estimate.value + quantile * error, method="normal")


def _tail_of(estimate: Estimate) -> str:
    share, one = estimate.tail_share, "round" if estimate.log.groups is None else "group"
    if share == 1.0:
        return f"heavy tail: all terms of {one}s are equal, so that their variance is unknown"
    return f"heavy tail: one {one} has {share:.0%} of the variance"


def _warn_of_tail(estimate: Estimate) -> None:
    """Warn if the share of one term in the variance is above 10 %."""
    if estimate.tail_share > HEAVY:
        wanted = "terms with a light tail, for an asymptotic interval"
        message = f"estimate: expected {wanted}, got a {_tail_of(estimate)}; take confidence_interval"
        warnings.warn(message, TailWarning, stacklevel=3)


def _check_groups(log: BanditLog) -> None:
    """Raise if there is one group only, because its variance is unknown."""
    if len(log) < 2 or (log.groups is not None and int(log.groups.max()) == 0):
        raise ValueError("estimate: expected at least two groups, got one")


def confidence_sequence(
    estimate: Estimate, *, reward_range: tuple[float, float], largest_weight: float | None = None, delta: float = 0.05
) -> Interval[Tensor]:
    r"""Return anytime-valid bounds of the value: they hold after all rounds at once.

    .. math:: P\Bigl(\forall t:\ L_t \le \frac1t\sum_{i \le t} v_i \le U_t\Bigr) \ge 1 - \delta,\qquad
              v_i = E\Bigl[\sum_a \pi_i(a \mid x_i)\,r_i(a) \Bigm| \text{rounds before } i\Bigr]

    Here :math:`v_i` is the expected reward of the target in round i, given the past. If contexts and rewards are independent and
    identically distributed and the target is fixed, all :math:`v_i` equal the target's value. The bounds hold for finite N and
    under optional stopping. The last entry is the interval for the whole log.

    Conditions:

    1. ``log.probability`` is the probability of the logged action given its context and all earlier rounds, and is above 0 where
       the target's probability is. The logging policy may learn.
    2. The target's probabilities in round i, and the predictions, depend on the context and on earlier rounds only. So the target
       may learn from the log. Predictions are refused unless ``from_past`` of :class:`PredictedRewards` is True.
    3. Rewards are in ``reward_range``. A logged reward outside is refused.
    4. With ``largest_weight`` W, no weight of any possible action is above W. The inverse of the smallest logging probability is
       such a W. A logged weight above W is refused. But logged weights below W do not prove the condition.

    Without W, the estimate must come from :func:`ips` or :func:`clipped_ips`. The lower bound uses that weights, and rewards
    minus the smallest reward, are non-negative; the upper bound uses :math:`w_i` times the largest reward minus the reward. So no
    bound on the weights is needed, and clipping costs width, never coverage. The upper bound is wide for rare rewards. With W it
    is narrow, and :func:`doubly_robust` is accepted, too. Self-normalised estimates have no such guarantee and are refused.

    Proof: docs/confidence_sequence.md. In brief, let terms :math:`X_i` have conditional means :math:`v_i` and be at least
    :math:`\hat X_i - c` for a prediction :math:`\hat X_i` from the past. Then

    .. math:: \exp\Bigl(\lambda\sum(X_i - v_i) - \psi(\lambda)\sum(X_i - \hat X_i)^2\Bigr),\qquad
              \psi(\lambda) = \frac{-\log(1 - c\lambda) - c\lambda}{c^2},\quad 0 \le \lambda < 1/c

    is a supermartingale. So is a mixture over 24 values of :math:`\lambda`, which by Ville's inequality always stays below
    :math:`2/\delta`, with probability :math:`1 - \delta/2` on either side.

    Rounding: the error of a sum of N terms is at most :math:`N 2^{-52}` times the sum of magnitudes, and weights and predictions
    in float32 may exceed their bounds by a relative 1e-6. The bounds are widened by these amounts.

    Cost: O(N) time and memory, about 24 exponentials for each round and Newton step.

    Args:
        estimate: estimate from a log in the order of decisions, without groups of several rounds.
        reward_range: smallest and largest possible reward.
        largest_weight: W, an assumed bound, at least 1; or None.
        delta: probability of a miss, in (0, 1), half of it on either side.

    Returns:
        Bounds after each round, ``(N)``, within ``reward_range``; for an :func:`improvement`, of the mean difference of the
        expected rewards under the target and under the logging policy. They are not monotone. If all :math:`v_i` are equal, the
        running maximum of ``lower`` and the running minimum of ``upper`` are also valid bounds.

    Raises:
        TypeError, ValueError: an argument is invalid, or a condition is found to fail.

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
    if bound is None or estimate.method == "ips":
        return _weighted_bounds(estimate, low, high, bound, delta)
    scale, bound = high - low, bound * (1.0 + 2.0 * SLACK) + SLACK  # slack of weights and of weighted predictions
    terms = (estimate.base - low + estimate.weights * estimate.residuals) / scale
    lower = _lower_bounds(terms, -bound, 1.0, delta / 2.0)
    upper = -_lower_bounds(-terms, -1.0 - bound, 0.0, delta / 2.0)
    lower, upper = (low + scale * end.clamp(0.0, 1.0) for end in (lower, upper))
    return Interval(lower, upper, method="confidence_sequence")


def _weighted_bounds(
    estimate: Estimate, low: float, high: float, bound: float | None, delta: float
) -> Interval[Tensor]:
    """Return the confidence sequence of weighted rewards, after each group.

    Bounds after each group but the last are in units of the mean group size, for the groups so far.
    """
    log, scale = estimate.log, high - low
    reward, logged = (log.reward - low) / scale, float(estimate.minus_logged)
    groups = len(log) if log.groups is None else int(log.groups.max()) + 1

    def by_group(values: Tensor) -> Tensor:
        # Groups of one round keep the order of the log.
        return values if groups == len(log) else log.group_sums(values) * (groups / len(log))

    size = float(by_group(torch.ones_like(reward)).max())  # of the largest group, in units of the mean size
    ratio = estimate.weights - logged
    lower = _lower_bounds(by_group(ratio * reward), -logged * size, 1.0 - logged, delta / 2.0)
    if bound is None:
        rest = by_group(ratio * (1.0 - reward))
        upper = 1.0 - logged - _lower_bounds(rest, -logged * size, 1.0 - logged, delta / 2.0)
    else:
        floor = (logged - bound * (1.0 + SLACK)) * size
        upper = -_lower_bounds(by_group(-ratio * reward), floor, logged, delta / 2.0)
    lower, upper = ((1.0 - logged) * low + scale * end.clamp(-logged, 1.0) for end in (lower, upper))
    return Interval(lower, upper, method="confidence_sequence")


def _lower_bounds(terms: Tensor, floor: float, most: float, alpha: float) -> Tensor:
    r"""Return lower bounds of running means of conditional means, ``(N)``.

    All hold simultaneously with probability 1 - ``alpha``, if terms are at least ``floor``. ``most`` is the largest prediction of
    a term.
    """
    n, c = len(terms), most - floor
    count = torch.arange(1, n + 1, dtype=torch.float64)
    sums = terms.cumsum(0)
    # The prediction of a term is the mean of the earlier terms and one pseudo-term, ``middle``.
    middle = min(max(0.0, floor), most)
    predicted = ((torch.cat([sums.new_zeros(1), sums[:-1]]) + middle) / count).clamp(floor, most)
    unit = n * 2.0**-52
    squares = ((terms - predicted) / c).pow(2).cumsum(0) * (1.0 + 4.0 * unit)
    # Excesses are in units of c.
    excess = torch.cat([_excess(part, alpha) for part in squares.split(CHUNK)])
    return (sums - unit * terms.abs().cumsum(0) - c * excess * (1.0 + 4.0 * unit)) / count


def _excess(squares: Tensor, alpha: float) -> Tensor:
    r"""Return the largest sum of deviations that the mixture allows, ``(N)``.

    In units of c, it is the root s of

    .. math:: \log\sum_j p_j \exp(\lambda_j s - \psi(\lambda_j) V) = \log(1/\alpha)

    The left-hand side is convex and increasing. So Newton steps from above stay above the root, and the bound holds after any
    number of steps.
    """
    number = torch.arange(MIXTURE, dtype=torch.float64)
    weight = 2.0 ** -(number + 0.5)
    # -log(1 - x) - x loses digits for small x, so the series replaces it there. Both are rounded up.
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
        raise TypeError(f"reward_range: expected the smallest and the largest reward, got {reward_range!r}")
    low, high = (checks.finite_number("reward_range", bound) for bound in reward_range)
    if low >= high:
        raise ValueError(f"reward_range: expected a smallest reward below the largest, got {reward_range}")
    return low, high


def _check_conditions(estimate: Any, low: float, high: float, bound: float | None) -> None:
    """Raise if a condition of :func:`confidence_sequence` is found to fail."""
    log = checks.instance_of("estimate", estimate, Estimate, "an Estimate").log
    unbounded, bounded = ("ips", "clipped_ips"), ("ips", "doubly_robust")
    if estimate.minus_logged and estimate.method == "doubly_robust":
        raise ValueError("estimate: expected an improvement by ips or clipped_ips, got one by doubly_robust")
    if estimate.method not in (unbounded if bound is None else bounded):
        names = "ips or clipped_ips without largest_weight, by ips or doubly_robust with it"
        raise ValueError(f"estimate: expected an estimate by {names}, got one by {estimate.method}")
    if not estimate.from_past:
        wanted = "predictions from earlier rounds, such as predicted_rewards(..., folds=None)"
        raise ValueError(f"estimate: expected {wanted}, got other predictions")
    if log.groups is not None and int(log.groups.max()) + 1 < len(log):
        wanted = "actions that were drawn one by one given all earlier rounds (if they were, pass no groups)"
        raise ValueError(f"estimate: expected {wanted}, got a log with groups of several rounds")
    if log.time is not None and bool((log.time.diff() < 0.0).any()):
        raise ValueError("estimate: expected a log in the order of its times, got another order")
    _check_rewards(log, low, high)
    if bound is None:
        return
    _check_largest(estimate.weights, bound)
    slack, predicted = 0.5 * SLACK * (high - low), estimate.predicted_range
    if predicted is not None and not low - slack <= predicted[0] <= predicted[1] <= high + slack:
        wanted = f"predicted rewards in reward_range, from {low:g} to {high:g}; clamp them"
        raise ValueError(f"estimate: expected {wanted}, got {predicted[0]:g} to {predicted[1]:g}")


def _check_rewards(log: BanditLog, low: float, high: float) -> None:
    if bool(((log.reward < low) | (log.reward > high)).any()):
        worst = [float(value) for value in log.reward.aminmax()]
        raise ValueError(
            f"reward_range: expected a range of all rewards, got rewards from {worst[0]:g} to {worst[1]:g}"
        )


def _check_largest(weights: Tensor, bound: float) -> None:
    largest = max(1.0, float(weights.max()))  # some action's weight is at least 1: both policies sum to 1
    if largest > bound * (1.0 + SLACK):
        raise ValueError(f"largest_weight: expected at least {largest:.9g}, got {bound:.9g}")
