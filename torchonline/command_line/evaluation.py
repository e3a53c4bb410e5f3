"""Tables of what a policy would have earned on a log."""

import math
from typing import Any

import torch
from torch import Tensor

from torchonline.bandits.disjoint import DisjointArms
from torchonline.bandits.ridge import RidgeRegression
from torchonline.bandits.scaled import ScaledPolicy
from torchonline.bandits.scaler import RunningScaler
from torchonline.core.checks import within
from torchonline.models.encoding import typed_like
from torchonline.off_policy import (
    BanditLog,
    Estimate,
    bootstrap_interval,
    confidence_sequence,
    doubly_robust,
    ips,
    predicted_rewards,
    snips,
    target_probabilities,
)


def evaluation(head: Any, log: BanditLog, delta: float, reward_range: tuple[float, float] | None) -> str:
    """Return a table of estimates of a head's mean reward in its present state."""
    within("delta", delta, 0.0, 1.0)
    target = target_probabilities(log, head)
    estimates = {"IPS": ips(log, target), "SNIPS": snips(log, target)}
    if len(log) > 1:  # for cross-fitting
        predicted = predicted_rewards(_regression(log), log, folds=min(5, len(log)))
        estimates["doubly robust"] = doubly_robust(log, target, predicted)
    lines = [_facts(log, estimates["IPS"]), *_table(log, estimates, delta)]
    if reward_range is not None:
        sequence = confidence_sequence(estimates["IPS"], reward_range=reward_range, delta=delta)
        value = estimates["IPS"].value
        low, high = (float(end[-1]) for end in sequence)
        lines.append(_row("IPS, at all times", value, low, high))
    return "\n".join(lines)


def replayed(head: Any, log: BanditLog, delta: float) -> str:
    """Return a table of estimates of a head's mean reward while it learns a log.

    The head learns the rounds in which its choice is the logged action.
    """
    within("delta", delta, 0.0, 1.0)
    choices = replay_head(head, log)
    target = torch.zeros(len(log), log.arms, dtype=torch.float64).scatter_(1, choices.unsqueeze(1), 1.0)
    estimates = {"IPS": ips(log, target), "SNIPS": snips(log, target)}
    matches = int((choices == log.action).sum())
    facts = f"{_facts(log, estimates['IPS'])}; {matches} choices were those of the log, and were learnt"
    return "\n".join([facts, *_table(log, estimates, delta)])


def replay_head(head: Any, log: BanditLog) -> Tensor:
    """Let a head choose in each round and learn where it chose as logged.

    Returns:
        Its choices, ``(N)``.
    """
    if log.context is None:
        raise ValueError("log: expected one with context, got none")
    context = log.context.to(typed_like(head.encoder, head.policy.estimator.theta_hat).dtype)
    choices = torch.empty_like(log.action)
    for i in range(len(log)):
        mask = None if log.mask is None else log.mask[i]
        choices[i] = head.select(context[i], mask)
        if choices[i] == log.action[i]:
            head.step(context[i], log.action[i], log.reward[i])
    return choices


def _regression(log: BanditLog) -> Any:
    """Return a linear model of rewards on scaled features."""
    if log.context is None:
        raise ValueError("log: expected one with context, got none")
    scaler = RunningScaler(log.context.size(-1), intercept=1.0)
    model = RidgeRegression(scaler.features)
    return DisjointArms(model, log.arms, scaler=scaler) if log.context.dim() == 2 else ScaledPolicy(model, scaler)


def _facts(log: BanditLog, estimate: Estimate) -> str:
    size = estimate.effective_sample_size
    return f"log: {len(log)} rounds, {log.arms} actions; effective sample size {size:.0f}"


def _table(log: BanditLog, estimates: dict[str, Estimate], delta: float) -> list[str]:
    """Return the lines of a table, the logged mean first."""
    lines = [f"{'':<18} {'mean reward':>11}   {100 * (1 - delta):g} % interval"]
    mean, error = log.reward.mean(), log.reward.std() / math.sqrt(len(log))
    half = float(error) * float(torch.special.ndtri(torch.tensor(1.0 - delta / 2.0, dtype=torch.float64)))
    lines.append(_row("as logged", float(mean), float(mean) - half, float(mean) + half))
    for name, estimate in estimates.items():
        try:
            low, high = map(float, bootstrap_interval(estimate, delta=delta))
        except ValueError:  # resamples without any weight
            low, high = -math.inf, math.inf
        lines.append(_row(name, estimate.value, low, high))
    return lines


def _row(name: str, value: float, low: float, high: float) -> str:
    return f"{name:<18} {value:>11.4g}   {low:.4g} to {high:.4g}"
