"""Predicted rewards of all arms, from a regression that has not seen the round."""

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core import checks
from torchonline.core.checks import positive_integer
from torchonline.core.messages import counted
from torchonline.off_policy.logs import BanditLog
from torchonline.policies.policy import Policy
from torchonline.policies.rules import Greedy
from torchonline.regression.estimator import Estimator


class PredictedRewards(NamedTuple):
    """Predicted rewards of all arms in all rounds of a log.

    Args:
        values: ``(N, K)``, float64.
        from_past: whether the predictions of each round use earlier rounds of the log only, or none. Confidence sequences rely on
            this flag and cannot check it.
    """

    values: Tensor
    from_past: bool


def predicted_rewards(
    model: Estimator | Policy,
    log: BanditLog,
    *,
    folds: int | None = 5,
    block_size: int = 64,
    seed: int = 0,
) -> PredictedRewards:
    """Predict the rewards of all arms in each round from other rounds, ``(N, K)``.

    With ``folds``, groups are randomly divided into that many folds, and a model that has learnt all other folds predicts the
    rounds of a fold (cross-fitting). With ``folds=None``, a model predicts the rounds in order, each from earlier rounds only
    (progressive validation). :func:`confidence_sequence` needs this for an estimate with a model. The given model does not
    change. Its copies are reset, so its earlier learning has no effect.

    Cost: learning the log ``folds`` times, or once with ``folds=None``.

    Args:
        model: an :class:`Estimator`, for features of each arm, or a :class:`Policy`, without a batch shape. Predictions are its
            estimated mean rewards, without a bonus.
        log: the log, with ``context``.
        folds: number of folds, from 2 to the number of groups. None predicts in the order of the log.
        block_size: rounds that are predicted before the first of them is learnt, if ``folds`` is None.
        seed: seed of the division into folds.

    Raises:
        TypeError, ValueError: an argument is invalid, or the log has no context of the model's shape.

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
    fresh: Policy = _checked_model(model, log)
    fresh.reset()
    values = torch.zeros(len(log), log.arms, dtype=torch.float64)
    if folds is None:
        for rows in torch.arange(len(log)).split(block_size):
            values[rows] = _predict(fresh, log, rows)
            _learn(fresh, log, rows)
        return PredictedRewards(values, from_past=True)
    groups = torch.arange(len(log)) if log.groups is None else log.groups
    count, folds = int(groups.max()) + 1, positive_integer("folds", folds)
    if count < 2:
        raise ValueError(
            f"log: expected at least 2 groups of rounds, to learn from one and predict another, got {count}"
        )
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


def _checked_model(model: Any, log: BanditLog) -> Policy:
    """Return a copy of the model as a policy, or raise."""
    checks.instance_of("model", model, (Estimator, Policy), "an Estimator or a Policy")
    if isinstance(model, Policy) and (model.has_encoder or not model.takes_inputs):
        raise TypeError(f"model: expected a Policy on features, got {type(model).__name__}")
    if log.context is None:
        raise ValueError("log: expected a log with context, which a model needs, got none")
    if model.batch_shape or getattr(model, "output_shape", ()):
        raise ValueError(f"model: expected a single learner of one response, got batch_shape {model.batch_shape}")
    policy: Policy = copy.deepcopy(Greedy(model) if isinstance(model, Estimator) else model)
    shape = tuple(log.context.shape)
    right = (len(log), *(log.arms,) * (policy.item_dims - 1), policy.dim)
    if shape != right:
        raise ValueError(
            f"log: expected context of shape {checks.shape_text(right)} for this model, got {checks.shape_text(shape)}"
        )
    count, ids = policy.number_of_actions(log.context[:1].to(policy._like())), policy.action_ids
    if count != log.arms:
        raise ValueError(f"model: expected {counted(log.arms, 'action')}, as the log has arms, got {count}")
    if ids is not None and ids != list(range(log.arms)):
        raise ValueError(f"model: expected the arms 0 to {log.arms - 1}, as in the log, got {ids}")
    return policy


def _context(policy: Policy, log: BanditLog, rows: Tensor) -> Tensor:
    """Return the context of some rounds, in the model's dtype and on its device."""
    return log.context[rows].to(policy._like())  # type: ignore[index]


def _learn(policy: Policy, log: BanditLog, rows: Tensor) -> None:
    context = _context(policy, log, rows)
    policy.learn(context, log.action[rows].to(context.device), log.reward[rows].to(context))


def _predict(policy: Policy, log: BanditLog, rows: Tensor) -> Tensor:
    with torch.no_grad():
        return policy.predict(_context(policy, log, rows)).to("cpu", torch.float64)
