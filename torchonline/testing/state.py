"""Rules 2 and 3: a step is all or nothing, and all that is learnt is in buffers."""

import copy
import io
import pickle
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.testing.rules import rule
from torchonline.testing.subject import BATCH_SHAPES, EstimatorSubject, Shape, Subject, numbers_of
from torchonline.testing.tools import (
    complaint,
    differences,
    refusal,
    require,
    require_same,
    require_state,
    snapshot,
)


@rule(2, quick=True)
def a_refused_step_changes_nothing(subject: Subject) -> None:
    """A bad value in one of several rounds leaves every buffer bit-equal.

    The rounds after it have the effect that they have without it.
    """
    for batch_shape in BATCH_SHAPES:
        learner, twin = (subject.taught(batch_shape=batch_shape) for _ in range(2))
        before, wrong = snapshot(learner), []
        for at in (0, -1):
            for name, bad in with_a_bad_round(subject, subject.log(5, batch_shape, 1), batch_shape, at):
                wrong += complaint(f"{name} in round {at}", name, learner.step, **bad)
                require_state(before, learner, f"after a refused {name}")
        require(not wrong, "\n".join(wrong))
        rounds = subject.stream(12, batch_shape, seed=1)
        require_same(subject.play(learner, rounds), subject.play(twin, rounds), "after refused steps")
        require_state(snapshot(twin), learner, "after refused steps")


def with_a_bad_round(subject: Subject, log: dict[str, Any], batch_shape: Shape, at: int) -> list[tuple[str, Any]]:
    """Return pairs of an argument and the log with a bad value of it in one round."""
    found = []
    for name, values in bad_values(subject, log).items():
        for value in values:
            spoilt = log[name].clone()
            row = spoilt.select(len(batch_shape), at)
            if name == subject.features:
                row[..., -1] = value
            else:
                row[(-1,) * row.dim()] = value
            found.append((name, log | {name: spoilt}))
    return found


def bad_values(subject: Subject, log: dict[str, Any]) -> dict[str, list[float]]:
    """Return the values that no argument may hold, by argument."""
    values: dict[str, list[float]] = {name: [torch.nan, torch.inf, 1e200] for name in (subject.response, "noise_scale")}
    values["noise_scale"].append(-1.0)
    if subject.decides:
        values["action"] = [-1, 10**6]
    if not subject.decides or subject.checks_inputs:
        values[subject.features] = [torch.nan, torch.inf, 1e200]
        if subject.longest < 1e6 and not subject.output_shape:
            values[subject.features].append(1.1 * subject.longest)
    if not torch.equal(subject.possible(torch.full((1,), -0.5)), torch.full((1,), -0.5)):
        values[subject.response].append(-0.5)
    return {name: each for name, each in values.items() if log[name] is not None}


@rule(2, quick=True)
def a_refused_log_changes_nothing(subject: Subject) -> None:
    """A bad value in the last block of a log leaves every buffer bit-equal."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = (subject.taught(batch_shape=batch_shape) for _ in range(2))
        log, wrong = subject.log(13, batch_shape), []
        for each in (learner, twin):
            each.learn(**log)
        before = snapshot(learner)
        for name, bad in with_a_bad_round(subject, log, batch_shape, -1):
            wrong += complaint(f"{name} in a log", name, learner.learn, **bad, block_size=4)
            require_state(before, learner, f"after a refused log with a bad {name}")
        require(not wrong, "\n".join(wrong))
        for each in (learner, twin):
            each.learn(**log, block_size=4)
        require_state(snapshot(twin), learner, "after refused logs")


@rule(2, "estimators")
def a_learner_may_be_fed_its_own_buffers(subject: EstimatorSubject) -> None:
    """Arguments in the memory of the buffers keep their values during the call.

    A value of a buffer may not be a possible response; then it is refused, wherever it lies.
    """
    for batch_shape in BATCH_SHAPES:
        learner, twin = (subject.taught(batch_shape=batch_shape) for _ in range(2))
        if not learner.keeps_matrices:
            copies, own = (learner.theta_hat.clone(), learner.theta_hat[..., 0].clone()), learner.theta_hat
            twin.step(*copies)
            learner.step(own, own[..., 0])
            require_state(snapshot(twin), learner, "after a step on its own buffers")
            continue
        one = (learner.theta_hat, learner.V_inv[..., 0, 0])
        if subject.output_shape:
            one = (learner.V_inv[..., 0], learner.theta_hat[..., 0, :])
        for x, response in (one, (learner.V_inv, learner.theta_hat)):
            copies = x.clone(), response.clone()
            refused = (
                refusal(twin.step, *copies),
                refusal(learner.step, x, response),
            )
            require(refused[0] == refused[1], f"own buffers: {refused[1]}; copies of them: {refused[0]}")
            require_state(snapshot(twin), learner, "after a step on its own buffers")
        x, response = learner.V_inv, learner.theta_hat
        for form in (Tensor.detach, Tensor.numpy)[: 1 + x.is_cpu]:
            copies, own = (x.clone(), response.clone()), (form(x), form(response))
            first = refusal(twin.learn, *copies, block_size=1)
            second = refusal(learner.learn, *own, block_size=1)
            require(first == second, f"own buffers as a log: {second}; copies of them: {first}")
            require_state(snapshot(twin), learner, "after a log on its own buffers")


@rule(3, quick=True)
def a_loaded_state_continues_bit_for_bit(subject: Subject) -> None:
    """A new learner that loads a state dict from a file continues bit for bit."""
    for batch_shape in BATCH_SHAPES:
        # Early, and late in both precisions; a batch late.
        for dtype, count in ((torch.float64, 3), (torch.float64, 21), (torch.float32, 21))[bool(batch_shape) :]:
            learner = subject.taught(count, batch_shape=batch_shape, dtype=dtype)
            if count > 3:
                learner.learn(**subject.log(13, batch_shape), block_size=5)
            fresh = subject.build(batch_shape=batch_shape, dtype=dtype)
            fresh.load_state_dict(through_a_file(learner.state_dict()))
            rounds, log = subject.stream(9, batch_shape, seed=1), subject.log(13, batch_shape, 2)
            require_same(subject.play(learner, rounds), subject.play(fresh, rounds), "a loaded learner")
            for each in (learner, fresh):
                each.learn(**log)
            require_state(snapshot(learner), fresh, "a loaded learner")


def through_a_file(state: Any) -> Any:
    """Return a state dict that was saved and loaded."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@rule(3)
def copies_are_independent(subject: Subject) -> None:
    """A deepcopy and a pickle go on like the original and leave it alone."""
    for batch_shape in BATCH_SHAPES:
        learner, fresh = subject.taught(batch_shape=batch_shape), subject.build(batch_shape=batch_shape)
        # Views of the buffers are not copied: they would reach the wrong ones.
        grown = len(pickle.dumps(learner)) - len(pickle.dumps(fresh))
        require(abs(grown) < 300, f"a pickle has grown by {grown} bytes in 12 rounds")
        before, rounds = snapshot(learner), subject.stream(12, batch_shape, seed=1)
        log = subject.log(13, batch_shape, 2)
        copies = [copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))]
        decisions = [subject.play(each, rounds) for each in copies]
        for each in copies:
            each.learn(**log)
        require_state(before, learner, "after its copies have learnt")
        own = subject.play(learner, rounds)
        learner.learn(**log)
        for each, theirs in zip(copies, decisions, strict=True):
            require_same(own, theirs, "a copy")
            require_state(snapshot(learner), each, "a copy")
            require(repr(each) == repr(learner), f"the repr of a copy is {each!r}")


def addresses(learner: nn.Module) -> dict[str, tuple[int, int]]:
    """Return the object that holds each buffer, and the address of its memory."""
    return {name: (id(buffer), buffer.data_ptr()) for name, buffer in learner.named_buffers()}


@rule(3)
def buffers_are_written_in_place(subject: Subject) -> None:
    """Steps, logs, resets and loads keep each buffer's object and memory."""
    for batch_shape in BATCH_SHAPES:
        learner = subject.build(batch_shape=batch_shape)
        before, start, rounds = addresses(learner), snapshot(learner), subject.stream(12, batch_shape)
        subject.play(learner, rounds)
        learner.step(**subject.log(5, batch_shape, 1))
        learner.learn(**subject.log(13, batch_shape, 2), block_size=5)
        require(differences(start, snapshot(learner)), "nothing was learnt")
        learner.load_state_dict(start)
        subject.play(learner, rounds)
        learner.reset()
        require(addresses(learner) == before, "a buffer has moved")
        subject.play(learner, rounds)
        with torch.inference_mode():
            subject.play(learner, rounds)
            learner.learn(**subject.log(13, batch_shape, 2))
        require(addresses(learner) == before, "a buffer has moved under inference_mode")


@rule(3)
def reset_forgets_everything(subject: Subject) -> None:
    """After a reset, a learner is equal to a new one."""
    for batch_shape in BATCH_SHAPES:
        learner, fresh = subject.taught(batch_shape=batch_shape), subject.build(batch_shape=batch_shape)
        for _ in range(2):
            learner.reset()
            require_state(snapshot(fresh), learner, "after a reset")
            learner.learn(**subject.log(13, batch_shape), block_size=4)
        learner.reset()
        rounds = subject.stream(12, batch_shape, seed=1)
        require_same(subject.play(learner, rounds), subject.play(fresh, rounds), "after a reset")
        require_state(snapshot(fresh), learner, "after a reset and 12 rounds")


@rule(3)
def nothing_but_buffers_evolves(subject: Subject) -> None:
    """No plain attribute changes as a learner learns: a state dict would lose it."""
    for batch_shape in BATCH_SHAPES:
        learner = subject.build(batch_shape=batch_shape)
        before = numbers_of(learner)
        subject.play(learner, subject.stream(20, batch_shape))
        after = numbers_of(learner)
        require(
            after == before,
            f"{[name for name in after if after[name] != before.get(name)]} changed, but is not a buffer",
        )


@rule(3)
def a_state_of_other_options_is_refused(subject: Subject) -> None:
    """Loading a partial state, or one of other shapes or types, changes nothing."""
    learner = subject.taught(5)
    before, own = snapshot(learner), learner.state_dict()
    name = next(name for name in own if name.endswith("theta_hat"))
    value = own[name]
    cases = [
        (f"{name}: expected shape", subject.build(batch_shape=(2,)).state_dict()),
        (f"{name}: expected shape", own | {name: value[..., 1:]}),
        (f"{name}: expected an entry", {key: each for key, each in own.items() if key != name}),
        (f"{name}: expected a torch.Tensor, got list", own | {name: value.tolist()}),
        (f"{name}: expected torch.float64, got torch.int64", own | {name: value.long()}),
        (f"{name}: expected numbers, got NaN", own | {name: value * torch.nan}),
    ]
    other = subject.build(dtype=torch.float32).state_dict()
    if other.keys() != own.keys():
        cases.append(("V_lost: expected no such entry", other))
    for blamed, state in cases:
        try:
            learner.load_state_dict(state)
        except RuntimeError as error:
            require(blamed in str(error), f"expected an error with {blamed!r}, got {error}")
        else:
            require(False, f"loaded a state that must be refused with {blamed!r}")
        require_state(before, learner, "after a refused state")
