"""Overlap of a target policy and a log."""

import math
import warnings
from typing import Any, NamedTuple

from torch import Tensor

from torchonline.core.messages import counted
from torchonline.off_policy.logs import BanditLog, of_actions, target_probabilities
from torchonline.off_policy.means import effective_sample_size

# Thresholds of the rule of `overlap`.
FEWEST, SHARE_OF_ROUNDS, LARGEST_SHARE, UNSEEN, ERRORS = 50.0, 0.01, 0.05, 0.01, 5.0


class OverlapWarning(UserWarning):
    """Warning of too little overlap, by the rule of :func:`overlap`."""


class Overlap(NamedTuple):
    """Overlap of a log and a target policy.

    Args:
        effective_sample_size: effective sample size of the weights; 0 if all are 0.
        largest_weight: the largest weight.
        largest_share: the largest weight's share of the sum of the weights; 1 if all are 0.
        mean_weight: the mean weight. It is about 1 if the logging probabilities are correct and above 0 where the target's are.
        error_of_mean: standard error of the mean weight.
        unseen: the target's mean probability of available arms that were never logged.
        problems: one sentence for each violated condition of the rule. Empty if the overlap is large enough.
    """

    effective_sample_size: float
    largest_weight: float
    largest_share: float
    mean_weight: float
    error_of_mean: float
    unseen: float
    problems: tuple[str, ...]


def overlap(log: BanditLog, target: Any) -> Overlap:
    """Measure the overlap of a log and a target policy.

    The rule: the overlap of a log of N rounds is too small if

    1. the effective sample size is below N / 2, and below the larger of 50 and N / 100;
    2. one round has more than 5 % of the sum of the weights, and more than five times the mean weight;
    3. the target gives arms that were never logged a mean probability above 1 %;
    4. the mean weight differs from 1 by more than 5 standard errors. Then logging probabilities are wrong, some are 0 where the
       target's are not, or heavy weights are too rare to be in the log.

    The rule is a heuristic and looks at rounds, not at groups. A log may pass it and still have too little overlap, because
    weights that were never drawn are unknown. A target probability above 0 for an unavailable arm is an error, not a warning.

    Args:
        log: the log.
        target: see :func:`target_probabilities`.

    Example:
        >>> log = BanditLog(arms=2, action=[0] * 90 + [1] * 10, reward=[1] * 100, probability=[0.9] * 90 + [0.1] * 10)
        >>> overlap(log, torch.tensor([[0.1, 0.9]]).expand(100, 2)).problems
        ('the effective sample size is 12.3, of 100 rounds', 'one round has 9% of the weight')
    """
    probability = target_probabilities(log, target)
    return _overlap(log, probability, of_actions(log, probability) / log.probability)


def warn_of_overlap(log: BanditLog, probability: Tensor, weights: Tensor) -> None:
    """Warn if the rule of :func:`overlap` is violated."""
    problems = _overlap(log, probability, weights).problems
    if problems:
        wanted = "a policy whose actions are in the log often enough"
        message = f"target: expected {wanted}, got too little overlap: {'; '.join(problems)}"
        warnings.warn(message, OverlapWarning, stacklevel=4)


def _overlap(log: BanditLog, probability: Tensor, weights: Tensor) -> Overlap:
    n, total, largest = len(log), float(weights.sum()), float(weights.max())
    size = float(effective_sample_size(weights)) if largest > 0.0 else 0.0
    share = largest / total if total > 0.0 else 1.0
    mean = total / n
    error = float(weights.std()) / math.sqrt(n) if n > 1 else math.inf
    never = log.action.bincount(minlength=log.arms) == 0
    unseen = float(probability[:, never].sum()) / n
    problems = []
    if size < min(n / 2.0, max(FEWEST, SHARE_OF_ROUNDS * n)):
        problems.append(f"the effective sample size is {size:.3g}, of {counted(n, 'round')}")
    if share > max(LARGEST_SHARE, 5.0 / n):
        problems.append(f"one round has {share:.0%} of the weight")
    if unseen > UNSEEN:
        problems.append(f"{unseen:.0%} of the actions are arms that were never logged")
    # The 1e-6 allows for rounding of the mean of equal weights.
    if abs(mean - 1.0) > ERRORS * error + 1e-6:
        problems.append(f"the mean weight is {mean:.3g}, where it should be 1")
    return Overlap(size, largest, share, mean, error, unseen, tuple(problems))
