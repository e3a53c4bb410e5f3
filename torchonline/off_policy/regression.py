"""Predicted rewards of all arms, by a regression that has not seen the round."""

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.bandits.composed import ComposedPolicy
from torchonline.bandits.disjoint import DisjointArms, arms_last, for_each_arm
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import Policy
from torchonline.core import checks
from torchonline.core.checks import positive_integer
from torchonline.off_policy.logs import BanditLog


class PredictedRewards(NamedTuple):
    """Predicted rewards of all arms in all rounds of a log.

    Args:
        values: ``(N, K)``, float64.
        from_past: whether the predictions of each round use earlier rounds of the log only, or none. Whoever makes this object
            promises it: confidence sequences rely on it.
    """

    values: Tensor
    from_past: bool


def predicted_rewards(
    model: Estimator | Policy | ComposedPolicy,
    log: BanditLog,
    *,
    folds: int | None = 5,
    block_size: int = 64,
    seed: int = 0,
) -> PredictedRewards:
    """Return predicted rewards of all arms, from other rounds: ``(N, K)``.

    With ``folds``, groups are divided at random into as many folds, and the rounds of a fold are predicted by a model that has
    learnt all others (cross-fitting). With ``folds=None``, the rounds are predicted in order, each by a model that has learnt
    earlier rounds only: this is progressive validation, and what :func:`confidence_sequence` needs for an estimate with a model.
    The given model is not changed. Copies of it are reset, so what it has learnt before does not count.

    Cost: ``folds`` times that of learning the log, or once with ``folds=None``.

    Args:
        model: a regression, without a batch shape: an :class:`Estimator` or the policy over it, for features of each arm; or a
            :class:`DisjointArms`, for one context. Its predictions are its estimated mean rewards, without a bonus.
        log: the log, with ``context``.
        folds: number of folds, at least 2 and at most that of the groups. None for the order of the log.
        block_size: rounds that are predicted before the first of them is learnt, if ``folds`` is None.
        seed: seed of the division into folds.

    Raises:
        TypeError, ValueError: an argument is something else, or the log has no context of the model's shape.

    Example:
        >>> context = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> action = torch.arange(200) % 2
        >>> reward = context[:, 0] * (action - 0.5)
        >>> log = BanditLog(arms=2, action=action, reward=reward, probability=[0.5] * 200, context=context)
        >>> predicted = predicted_rewards(DisjointArms(RidgeRegression(3), actions=2), log)
        >>> predicted.values.shape, bool((predicted.values[0] - context[0, 0] * torch.tensor([-0.5, 0.5])).abs().max() < 0.05)
        (torch.Size([200, 2]), True)

    Reference:
        Cross-fitting: Chernozhukov and others, Double/debiased machine learning, Econometrics Journal 2018.
    """
    positive_integer("block_size", block_size)
    _check_model(model, log)
    values = torch.zeros(len(log), log.arms, dtype=torch.float64)
    fresh = copy.deepcopy(model)
    fresh.reset() if not isinstance(fresh, Policy) else fresh.estimator.reset()
    if folds is None:
        for rows in torch.arange(len(log)).split(block_size):
            values[rows] = _predict(fresh, log, rows)
            _learn(fresh, log, rows)
        return PredictedRewards(values, from_past=True)
    groups = torch.arange(len(log)) if log.groups is None else log.groups
    count, folds = int(groups.max()) + 1, positive_integer("folds", folds)
    if not 2 <= folds <= count:
        raise ValueError(f"folds: expected None or an integer from 2 to {count}, the number of groups, got {folds}")
    generator = torch.Generator().manual_seed(checks.seed_number(seed))
    fold = (torch.randperm(count, generator=generator) % folds)[groups]
    for number in range(folds):
        fitted = copy.deepcopy(fresh)
        _learn(fitted, log, (fold != number).nonzero().squeeze(1))
        rows = (fold == number).nonzero().squeeze(1)
        values[rows] = _predict(fitted, log, rows)
    return PredictedRewards(values, from_past=False)


def _check_model(model: Any, log: BanditLog) -> None:
    wanted = "an Estimator, a Policy or a DisjointArms"
    checks.instance_of("model", model, (Estimator, Policy, ComposedPolicy), wanted)
    if log.context is None:
        raise ValueError("log: expected one with context, which a model needs, got none")
    learner = model.estimator if isinstance(model, Policy) else model
    if learner.batch_shape or getattr(learner, "output_shape", ()):
        raise ValueError(f"model: expected one learner of one response, got batch_shape {learner.batch_shape}")
    shape = tuple(log.context.shape)
    right = (len(log), learner.dim) if isinstance(model, DisjointArms) else (len(log), log.arms, learner.dim)
    if shape != right:
        raise ValueError(
            f"log: expected context of shape {checks.shape_text(right)} for this model, got {checks.shape_text(shape)}"
        )
    if isinstance(model, DisjointArms) and model.actions != log.arms:
        raise ValueError(f"model: expected {log.arms} actions, as the log has arms, got {model.actions}")
    if isinstance(model, DisjointArms) and model.arm_ids != list(range(log.arms)):
        raise ValueError(f"model: expected the arms 0 to {log.arms - 1}, as in the log, got {model.arm_ids}")


def _context(model: Any, log: BanditLog, rows: Tensor) -> Tensor:
    """Return the context of some rounds in the type of the model."""
    estimator = model if isinstance(model, Estimator) else model.estimator
    return log.context[rows].to(estimator.theta_hat.device, estimator.theta_hat.dtype)  # type: ignore[index]


def _learn(model: Any, log: BanditLog, rows: Tensor) -> None:
    context, action = _context(model, log, rows), log.action[rows]
    reward = log.reward[rows].to(context.device, context.dtype)
    if isinstance(model, DisjointArms):
        model.learn(context, action.to(context.device), reward)
    else:
        model.learn(context[torch.arange(len(rows)), action], reward)


def _predict(model: Any, log: BanditLog, rows: Tensor) -> Tensor:
    context = _context(model, log, rows)
    with torch.no_grad():
        if isinstance(model, ComposedPolicy):
            features = model._features(context)
            if isinstance(model, DisjointArms):
                features = for_each_arm(features, 0, model.actions, model.takes_one_row)
                return arms_last(model.estimator(features), 0).to("cpu", torch.float64)
            return model.estimator(features).to("cpu", torch.float64)
        estimator = model if isinstance(model, Estimator) else model.estimator
        return estimator(context).to("cpu", torch.float64)
