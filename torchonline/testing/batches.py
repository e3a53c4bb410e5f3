"""Rule 7: batches equal single learners, and many rounds equal one after another."""

import itertools
from typing import Any

import torch

from torchonline.testing.rules import rule
from torchonline.testing.subject import BATCH_SHAPES, Shape, Subject, member_of, some_of, the_round_of
from torchonline.testing.tools import (
    State,
    close,
    differences,
    require,
    require_close,
    require_close_state,
    require_refused_mask,
    require_state,
    snapshot,
)


def state_of(batched: State, member: Shape, single: State) -> State:
    """Return the state of one learner of a batch.

    Entries without ``batch_shape`` belong to all.
    """
    return {name: value[member] if value.dim() > single[name].dim() else value for name, value in batched.items()}


@rule(7)
def a_batch_equals_single_learners(subject: Subject) -> None:
    """Each learner of a batch has the state and answers that it would have alone."""
    for batch_shape in ((3,), (2, 3)):
        batched = subject.build(batch_shape=batch_shape)
        members = list(itertools.product(*map(range, batch_shape)))
        singles = {member: subject.build() for member in members}
        for t, round_ in enumerate(subject.stream(12, batch_shape)):
            torch.manual_seed(t)
            decision = subject.decide(batched, round_)
            answers = deterministic_answers(subject, batched, round_)
            for member, single in singles.items():
                own = member_of(round_, member)
                require_close(deterministic_answers(subject, single, own), [answer[member] for answer in answers])
                if subject.decides and subject.is_deterministic:
                    require(
                        subject.decide(single, own) == decision[member], "a batch chooses as no single learner does"
                    )
                single.step(**subject.arguments(own, decision[member]))
            batched.step(**subject.arguments(round_, decision))
        for member, single in singles.items():
            alone = snapshot(single)
            require_close_state(alone, state_of(snapshot(batched), member, alone))


def deterministic_answers(subject: Subject, learner: Any, round_: dict[str, Any]) -> list[torch.Tensor]:
    """Return a learner's answers that do not depend on chance."""
    if not subject.decides:
        return subject.ask(learner, round_)[:5]
    x = round_["inputs"]
    if not subject.is_deterministic:
        return [learner.predict(x), *learner.interval(x)]
    return [learner(x), learner.probabilities(x), learner.predict(x), *learner.interval(x)]


@rule(7)
def several_rounds_equal_one_by_one(subject: Subject) -> None:
    """Several rounds in one step are learnt in order; no round is a no-op."""
    for batch_shape in BATCH_SHAPES:
        for scaled in (True, False):
            at_once, in_turn = (subject.build(batch_shape=batch_shape) for _ in range(2))
            rounds = subject.stream(12, batch_shape)
            decisions = [torch.full(batch_shape, t % 2) for t in range(12)]
            log, at = subject.stack(rounds, decisions), len(batch_shape)
            scale = {} if scaled else {"noise_scale": None}
            at_once.step(**log | scale)
            for round_, decision in zip(rounds, decisions, strict=True):
                in_turn.step(**subject.arguments(round_, decision) | scale)
            after = snapshot(at_once)
            for name, value in snapshot(in_turn).items():
                torch.testing.assert_close(value, after[name], rtol=1e-12, atol=1e-12)
            at_once.step(**some_of(log, at, []))
            require_state(after, at_once, "after no round")
            require_rounds(at_once, subject.rounds_after(12))


@rule(7)
def a_log_without_blocks_is_its_rounds_in_order(subject: Subject) -> None:
    """Without blocks, ``learn`` is bit-equal to ``step``. No round is a no-op."""
    for batch_shape in BATCH_SHAPES:
        for size in (None, 4):
            learner, twin = (subject.build(batch_shape=batch_shape) for _ in range(2))
            log, at = subject.log(13, batch_shape), len(batch_shape)
            learner.learn(**log, block_size=size)
            one = the_round_of(subject.log(1, batch_shape, 1), at)
            learner.learn(**one)
            if not has_blocks(learner):
                twin.step(**log)
                twin.step(**one)
                require_state(snapshot(twin), learner, "learn, and step")
            require_rounds(learner, subject.rounds_after(14))
            before = snapshot(learner)
            learner.learn(**some_of(log, at, []), block_size=size)
            require_state(before, learner, "after no round")


@rule(7)
def a_log_moves_the_estimate(subject: Subject) -> None:
    """``learn`` changes the estimate, in blocks and without."""
    for size in (None, 4):
        learner = subject.build()
        before = snapshot(learner)
        learner.learn(**subject.log(13), block_size=size)
        changed = differences(before, snapshot(learner))
        require(any(name.endswith("theta_hat") for name in changed), f"learn changed {changed}, and no theta_hat")


@rule(7)
def predictions_follow_rewards(subject: Subject) -> None:
    """Predictions are higher where rewards were; bounds hold a new learner's mean."""
    other, round_ = (each | {"noise_scale": None} for each in subject.stream(3, seed=2)[1:])
    x, predictions = round_[subject.features], []
    for reward in (0.0, 2.0):
        learner = subject.build()
        ask = learner.predict if subject.decides else learner
        (low, high), mean = learner.interval(x), ask(x)
        require(((low <= mean + 1e-6) & (mean <= high + 1e-6)).all(), "interval: the mean of a new learner is outside")
        for _ in range(20 if subject.rounds_after(40) else 21):  # some learners have just begun anew
            for each, response in ((other, 0.0), (round_, reward)):
                possible = subject.possible(torch.full(subject.output_shape, response, dtype=torch.float64))
                learner.step(**subject.arguments(each | {subject.response: possible}, torch.tensor(0)))
        predictions.append(ask(x)[0] if subject.decides else ask(x))
    said = f"the mean is {predictions[0].tolist()} after rewards of 0, and {predictions[1].tolist()} after rewards of 2"
    require((predictions[0] < predictions[1]).all(), f"{said}, or what is possible next to them")


def require_rounds(learner: Any, count: int) -> None:
    """Require the given count of rounds of all learners of a batch."""
    require((learner.rounds == count).all(), f"rounds: expected {count}, got {learner.rounds}")


def has_blocks(learner: Any) -> bool:
    """Return whether a learner learns logs in blocks."""
    return learner._why_no_blocks() is None if hasattr(learner, "select") else learner.has_blocks


@rule(7)
def a_log_of_a_batch_is_the_logs_of_its_learners(subject: Subject) -> None:
    """Each learner of a batch learns its part of a log as it would alone.

    With a mask it learns its own rounds, and without any round it keeps all bits.
    """
    for batch_shape in ((3,), (1, 3)):
        log, batched = subject.log(13, batch_shape), subject.build(batch_shape=batch_shape)
        members = list(itertools.product(*map(range, batch_shape)))
        batched.learn(**log, block_size=4)
        for member in members:
            single = subject.build()
            single.learn(**member_of(log, member), block_size=4)
            alone = snapshot(single)
            require_close_state(alone, state_of(snapshot(batched), member, alone))
        masked = subject.build(batch_shape=batch_shape)
        start, mask = snapshot(masked), torch.rand(*batch_shape, 13) < 0.6
        mask[..., 0, :], mask[..., 2, :] = True, False
        if not subject.takes_mask:
            require_refused_mask(masked, log, mask)
            continue
        masked.learn(**log, block_size=4, mask=mask)
        for member in members:
            single, own = subject.build(), member_of(log, member)
            for first in range(0, 13, 4):
                rows = torch.arange(13)[first : first + 4]
                single.learn(**some_of(own, 0, rows[mask[member][rows]]), block_size=4)
            alone = snapshot(single)
            require_close_state(alone, state_of(snapshot(masked), member, alone))
        for name, value in snapshot(masked).items():
            if value.dim() >= len(batch_shape) and value.shape[: len(batch_shape)] == batch_shape:
                at = len(batch_shape) - 1
                close(value.select(at, 2), start[name].select(at, 2), 0.0)
