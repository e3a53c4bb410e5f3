"""Tables of a policy's estimated earnings on a log."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchonline.core.checks import within
from torchonline.core.messages import counted
from torchonline.models.encoding import column_encoder, input_type
from torchonline.off_policy import (
    BanditLog,
    Estimate,
    Interval,
    confidence_interval,
    confidence_sequence,
    doubly_robust,
    improvement,
    ips,
    predicted_rewards,
    snips,
    target_probabilities,
)
from torchonline.off_policy.intervals import with_digits_of
from torchonline.policies.arm_ids import by_place
from torchonline.policies.disjoint import DisjointArms
from torchonline.policies.scaled import ScaledPolicy
from torchonline.policies.scaler import StandardScaler
from torchonline.regression.ridge import RidgeRegression


class Table:
    """Table of estimates, one per line.

    An estimator that fails gets a line with the reason, and does not stop the others.

    Args:
        log: the log.
        delta: probability that an interval misses.
        reward_range: smallest and largest possible reward, or None, for the intervals where the tail is heavy.
        note: note on the normal intervals in the lines of IPS and SNIPS.
    """

    def __init__(
        self, log: BanditLog, delta: float, reward_range: tuple[float, float] | None = None, note: str = ""
    ) -> None:
        if len(log) < 2:
            raise ValueError(f"log: expected at least 2 rounds, to estimate a spread, got {len(log)}")
        self.delta, self.reward_range, self.note = within("delta", delta, 0.0, 1.0), reward_range, note
        self.facts = f"log: {counted(len(log), 'round')}, {counted(log.arms, 'action')}"
        self.failed: list[str] = []
        self.lines = [f"{'':<18} {'mean reward':>11}   {100 * (1 - delta):g} % interval"]
        logged = Estimate("ips", log, torch.zeros_like(log.reward), torch.ones_like(log.reward), log.reward)
        self.add_row("as logged", lambda: logged, self.interval)

    def __str__(self) -> str:
        return "\n".join([self.facts, *self.lines])

    def add(self, name: str, estimator: Callable[[], Estimate]) -> Estimate | None:
        """Add the line of an estimator, with :meth:`interval`.

        Returns:
            The estimate, or None if the estimator fails.
        """
        return self.add_row(name, estimator, self.interval, self.note)

    def interval(self, estimate: Estimate) -> Interval[float]:
        """Return a normal interval, or another one with a note if the tail is heavy.

        The reason why there is none is a note, too.
        """
        try:
            return confidence_interval(estimate, reward_range=self.reward_range, delta=self.delta)
        except ValueError as error:  # rewards outside their range
            return Interval(-math.inf, math.inf, method="none", note=str(error))

    def add_row(
        self,
        name: str,
        estimator: Callable[[], Estimate],
        interval: Callable[[Estimate], Interval[float]],
        note: str = "",
    ) -> Estimate | None:
        """Add the line of an estimator, with its interval.

        The line ends with the interval's note, or with ``note`` if it has none.
        """
        try:
            estimate = estimator()
            bounds = interval(estimate)
        except (ValueError, RuntimeError) as error:  # from a check or from linear algebra
            self.failed.append(name)
            self.lines.append(f"{name:<18} failed: {' '.join(str(error).split())[:200]}")
            return None
        note = bounds.note or note
        self.lines.append(_row(name, estimate.value, *bounds) + (note and f"   {note}"))
        return estimate

    def add_weighted(self, log: BanditLog, target: Tensor) -> Estimate | None:
        """Add the lines of IPS and SNIPS.

        Returns:
            The estimate of IPS, or None if it fails.
        """
        estimate = self.add("IPS", lambda: ips(log, target))
        if estimate is not None:
            self.facts += f"; effective sample size {estimate.effective_sample_size:.0f}"
        self.add("SNIPS", lambda: snips(log, target))
        return estimate

    def add_at_all_times(self, log: BanditLog, target: Tensor) -> None:
        """Add a line of IPS with an anytime-valid interval.

        It holds for rewards in ``reward_range``, also if the target learns. Without a range this is a no-op.
        """
        reward_range = self.reward_range
        if reward_range is None:
            return

        def last(estimate: Estimate) -> Interval[float]:
            low, high = confidence_sequence(estimate, reward_range=reward_range, delta=self.delta)
            return Interval(float(low[-1]), float(high[-1]))

        self.add_row("IPS, at all times", lambda: ips(log, target), last)


def evaluate_head(head: Any, log: BanditLog, delta: float, reward_range: tuple[float, float] | None) -> Table:
    """Return a table of estimates of the mean reward of a head in its present state.

    The line "new minus old" is the doubly robust estimate, or IPS if that fails, minus the mean logged reward.
    """
    table, target = Table(log, delta, reward_range), target_probabilities(log, head)
    weighted = table.add_weighted(log, target)
    folds = min(5, len(log))  # for cross-fitting
    columns = column_encoder(head.encoder)
    if columns is not None and log.context is not None:  # a regression on codes would make no sense
        log = dataclasses.replace(log, context=columns(log.context))
    robust = table.add(
        "doubly robust", lambda: doubly_robust(log, target, predicted_rewards(_regression(log), log, folds=folds))
    )
    table.add_at_all_times(log, target)
    estimate = weighted if robust is None else robust
    if estimate is not None:
        table.add("new minus old", lambda: improvement(estimate))
    return table


def evaluate_replay(head: Any, log: BanditLog, delta: float, reward_range: tuple[float, float] | None) -> Table:
    """Return a table of estimates of a head's mean reward while it learns a log.

    The head learns the rounds in which its choice is the logged action. Its choices depend on earlier rounds, so the normal
    interval is a heuristic, and the table says so. The anytime-valid interval for rewards in a range holds.
    """
    table, choices = Table(log, delta, reward_range, "heuristic: the policy learns"), replay_head(head, log)
    target = torch.zeros(len(log), log.arms, dtype=torch.float64).scatter_(1, choices.unsqueeze(1), 1.0)
    table.add_weighted(log, target)
    table.add_at_all_times(log, target)
    table.facts += f"; {int((choices == log.action).sum())} choices were the logged actions, and were learnt"
    return table


def replay_head(head: Any, log: BanditLog) -> Tensor:
    """Let a head choose in each round, and learn where it chose the logged action.

    Returns:
        The head's choices, ``(N)``.
    """
    if log.context is None:
        raise ValueError("log: expected a log with context, got none")
    context = log.context.to(input_type(head).dtype)
    choices, arms = torch.empty_like(log.action), head.with_ids()
    available = log.mask if log.mask is None or arms is None else by_place(log.mask, arms)
    for i in range(len(log)):
        mask = None if available is None else available[i]
        choices[i] = head.select(context[i], mask)
        if choices[i] == log.action[i]:
            head.step(context[i], log.action[i], log.reward[i])
    return choices


def _regression(log: BanditLog) -> Any:
    """Return a linear model of rewards on scaled features."""
    if log.context is None:
        raise ValueError("log: expected a log with context, got none")
    scaler = StandardScaler(log.context.size(-1), intercept=1.0)
    model = RidgeRegression(scaler.features)
    return DisjointArms(model, log.arms, scaler=scaler) if log.context.dim() == 2 else ScaledPolicy(model, scaler)


def _row(name: str, value: float, low: float, high: float) -> str:
    mean, lower, upper = with_digits_of(high - low, value, low, high)
    return f"{name:<18} {mean:>11}   {lower} to {upper}"
