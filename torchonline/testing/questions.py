"""Rule 1: looking never changes state, and answers are differentiable."""

from typing import Any

import torch
from torch import Tensor

from torchonline.policies.ties import are_best, shares_of_best
from torchonline.testing.rules import rule
from torchonline.testing.subject import (
    BATCH_SHAPES,
    DeciderSubject,
    EstimatorSubject,
    Subject,
    is_real,
    on_reals,
    with_gradients,
)
from torchonline.testing.tools import close, require, require_same, require_state, snapshot


@rule(1, quick=True)
def looking_changes_nothing(subject: Subject) -> None:
    """All questions leave every buffer bit-equal, before the first round and later."""
    for batch_shape in BATCH_SHAPES:
        learner = subject.build(batch_shape=batch_shape)
        before = snapshot(learner)
        subject.ask(learner, subject.stream(1, batch_shape)[0])
        require_state(before, learner, "after questions to a new learner")
        subject.play(learner, subject.stream(12, batch_shape))
        before = snapshot(learner)
        for round_ in subject.stream(5, batch_shape, seed=1):
            subject.ask(learner, round_)
            subject.ask(learner, on_reals(with_gradients, round_))
        require_state(before, learner, "after questions")


@rule(1)
def looking_twice_sees_the_same(subject: Subject) -> None:
    """Under one seed, the same question has the same answer."""
    learner = subject.taught()
    for round_ in subject.stream(5, seed=1):
        require_same(subject.ask(learner, round_), subject.ask(learner, round_), "asked twice")


@rule(1)
def looking_is_differentiable(subject: Subject) -> None:
    """Gradients in the features agree with finite differences."""
    if not subject.takes_inputs:
        return
    for batch_shape in BATCH_SHAPES:
        learner = subject.taught(batch_shape=batch_shape)
        x = subject.stream(1, batch_shape, seed=2)[0][subject.features]
        if not is_real(x) or x.dtype != torch.float64:
            return
        x = with_gradients(x)

        def seeded(x: Tensor, learner: Any = learner) -> Tensor:
            torch.manual_seed(0)
            return learner(x)

        for look_at in (seeded,) if subject.decides else (seeded, learner.width):
            is_right = torch.autograd.gradcheck(look_at, (x,), eps=1e-7, atol=1e-4, raise_exception=False)
            require(
                is_right, f"{'width' if look_at is not seeded else 'forward'}: the gradient is not that of differences"
            )


@rule(1, "estimators")
def a_width_of_nothing_has_a_gradient(subject: Subject) -> None:
    """At zero features, the width is 0 up to rounding and its gradient is finite."""
    for dtype in (torch.float64, torch.float32):
        estimator = subject.build(dtype=dtype)
        x = torch.zeros(estimator.dim, dtype=dtype, requires_grad=True)
        width = estimator.width(x)
        width.backward()
        seen = float(width.detach())
        require(0.0 <= seen < 1e-7, f"width of zeros: expected 0, got {seen}")
        require(x.grad is not None and torch.isfinite(x.grad).all(), "width of zeros: the gradient is not finite")


@rule(1, "estimators", quick=True)
def answers_have_the_promised_shapes(subject: EstimatorSubject) -> None:
    """Answers have the shape of the features, and bounds hold a new mean."""
    for batch_shape in BATCH_SHAPES:
        learner, shape = subject.build(batch_shape=batch_shape), (*batch_shape, 6)
        x = subject.stream(1, batch_shape)[0]["x"].unsqueeze(-2).expand(*shape, subject.dim)
        mean, width, (low, high) = learner(x), learner.width(x), learner.interval(x)
        for name, answer, outputs in (
            ("forward", mean, subject.output_shape),
            ("width", width, ()),
            ("interval", low, subject.output_shape),
            ("interval", high, subject.output_shape),
        ):
            wanted = (*shape, *outputs)
            require(answer.shape == wanted, f"{name}: expected shape {wanted}, got {tuple(answer.shape)}")
        require(((low <= mean + 1e-9) & (mean <= high + 1e-9)).all(), "interval: the mean of a new learner is outside")


@rule(1, "deciders", quick=True)
def choices_are_the_best_available(subject: DeciderSubject) -> None:
    """Choices, scores, probabilities and masks agree; one decision and many."""
    for batch_shape in ((), (2,), (2, 3)):
        policy = subject.taught(9, batch_shape=batch_shape)
        x = subject.stream(3, batch_shape, seed=1)[-1]["inputs"]
        for given in (x, subject.many(x)) if subject.takes_inputs else (x,):
            check_choices(policy, given, subject.is_deterministic)


@rule(1, "deciders")
def draws_have_their_probabilities(subject: DeciderSubject) -> None:
    """Arms are drawn as often as ``probabilities`` says, by both ways to select.

    ``select`` of a deterministic policy gives one of the arms that tie. A right policy fails by chance once in a hundred thousand
    checks.
    """
    policy = subject.taught(9)
    x, draws = subject.stream(3, seed=1)[-1]["inputs"], 2000
    if subject.takes_inputs:
        many = subject.many(x, draws)
        chosen = [policy.select(many), policy.select_with_probability(many)[0]]
    else:
        chosen = [torch.stack([policy.select() for _ in range(draws)])]
        chosen += [torch.stack([policy.select_with_probability()[0] for _ in range(draws)])]
    torch.manual_seed(0)
    p = policy.probabilities(x).to(torch.float64)
    # A policy with random scores averages p over draws, which adds their error.
    sampled = 1.0 / policy._draws() if policy._draws() > 1 else 0.0
    for name, action in zip(("select", "select_with_probability"), chosen, strict=True):
        require(action.shape == (draws,), f"{name}: expected shape {(draws,)}, got {tuple(action.shape)}")
        places = places_of(policy, action, p.size(-1)).squeeze(-1)
        if name == "select" and subject.is_deterministic:
            # In one state, equal inputs have the same arm of those that tie.
            arms = places.unique().tolist()
            require(len(arms) == 1 and p[arms[0]] > 0.0, f"{name}: draws arms {arms}, with probabilities {p.tolist()}")
            continue
        share = torch.bincount(places, minlength=p.size(-1)) / draws
        spread = (p * (1.0 - p)).clamp(min=1e-3) * (1.0 / draws + sampled)
        require(
            ((share - p).abs() < 5.5 * spread.sqrt()).all(), f"{name}: draws arms {share.tolist()}, not {p.tolist()}"
        )


def check_choices(policy: Any, x: Any, is_deterministic: bool) -> None:
    """Require that answers agree under a random mask with the last arm available."""
    mask = torch.rand(policy(x).shape) < 0.5
    mask[..., -1] = True
    torch.manual_seed(0)
    probabilities = policy.probabilities(x, mask=mask)
    torch.manual_seed(0)
    drawn, chance = policy.select_with_probability(x, mask=mask)
    action, mean, (low, high) = policy.select(x, mask=mask), policy.predict(x), policy.interval(x)
    shape = mask.shape[:-1]
    require(action.shape == drawn.shape == chance.shape == shape, f"expected choices of shape {tuple(shape)}")
    require(action.dtype == drawn.dtype == torch.int64, "expected choices of type int64")
    for answer in (policy(x), mean, low, high, probabilities):
        require(answer.shape == mask.shape, f"expected shape {tuple(mask.shape)}, got {tuple(answer.shape)}")
    if policy.has_arm_inputs and not policy.has_encoder and policy.learner is policy.estimator:
        own = (policy.estimator(x), *policy.estimator.interval(x))
        for name, mine, theirs in zip(("predict", "interval", "interval"), (mean, low, high), own, strict=True):
            close(mine, theirs, 1e-6, f"{name}, beside the estimator's")
    require(not probabilities[~mask].any(), "an unavailable arm has a positive probability")
    close(probabilities.sum(-1), torch.ones(shape, dtype=probabilities.dtype), 1e-6)
    place, drawn_place = places_of(policy, action, mask.size(-1)), places_of(policy, drawn, mask.size(-1))
    require(mask.gather(-1, place).all(), "an unavailable arm was chosen")
    close(probabilities.gather(-1, drawn_place).squeeze(-1), chance, 1e-12)
    require((chance > 0.0).all(), "an arm of probability 0 was drawn")
    if is_deterministic:
        scores = policy(x).masked_fill(~mask, -torch.inf)
        is_best = are_best(scores).gather(-1, place)
        require(is_best.all(), "the choice is not the available arm with the highest score")
        require(torch.equal(probabilities, shares_of_best(scores).to(probabilities)), "probabilities")


def places_of(policy: Any, action: Tensor, count: int) -> Tensor:
    """Return the places of actions among the arms, ``(*B, ..., 1)``."""
    ids = torch.arange(count) if policy.action_ids is None else torch.tensor(policy.action_ids)
    return (action.unsqueeze(-1) == ids).long().argmax(-1, keepdim=True)
