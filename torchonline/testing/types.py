"""Rule 6: the state keeps its type, and inputs of other types are converted."""

import copy
from typing import Any

import numpy as np
import torch

from torchonline.testing.rules import rule
from torchonline.testing.subject import BATCH_SHAPES, Round, Subject, mapped, on_reals, some_of, the_round_of
from torchonline.testing.tools import require, require_close_state, require_same, require_state, snapshot

STATE_TYPES = (torch.float64, torch.float32)
INPUT_TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@rule(6)
def inputs_are_converted_to_the_state(subject: Subject) -> None:
    """Inputs of any floating-point type are converted first, bit for bit."""
    for batch_shape in BATCH_SHAPES:
        for state_type in STATE_TYPES:
            for input_type in INPUT_TYPES:
                learner, twin = (subject.build(batch_shape=batch_shape, dtype=state_type) for _ in range(2))
                rounds = [subject.typed(round_, input_type) for round_ in subject.stream(7, batch_shape)]
                ours = subject.play(learner, rounds)
                theirs = subject.play(twin, [subject.typed(round_, state_type) for round_ in rounds])
                require_same(ours, theirs, f"rounds in {input_type}")
                log = subject.typed(subject.log(13, batch_shape), input_type)
                learner.learn(**log, block_size=4)
                twin.learn(**subject.typed(log, state_type), block_size=4)
                require_state(snapshot(twin), learner, f"rounds in {input_type}")
                kinds = {name: value.dtype for name, value in snapshot(learner).items()}
                fresh = snapshot(subject.build(batch_shape=batch_shape, dtype=state_type))
                require(kinds == {name: value.dtype for name, value in fresh.items()}, "a buffer has changed its type")
                theta_hat = next(name for name in kinds if name.endswith("theta_hat"))
                require(kinds[theta_hat] == state_type, f"{theta_hat} is {kinds[theta_hat]}, expected {state_type}")


@rule(6)
def sparse_features_are_as_dense_ones(subject: Subject) -> None:
    """Sparse tensors of features are learnt as dense ones, up to rounding."""
    if not (subject.takes_inputs and subject.checks_inputs):
        return
    name = subject.features
    for batch_shape in BATCH_SHAPES:
        learner, twin = (subject.build(batch_shape=batch_shape) for _ in range(2))
        log = subject.log(13, batch_shape)
        x = log[name].clone()
        x[..., 0] = 0.0
        learner.learn(**log | {name: x.to_sparse()}, block_size=4)
        twin.learn(**log | {name: x}, block_size=4)
        at = len(batch_shape)
        one, some = the_round_of(some_of(log, at, [2]), at), some_of(log, at, [5, 6, 9])
        for rounds in (one, some):
            learner.step(**rounds | {name: rounds[name].to_sparse()})
            twin.step(**rounds)
        require_close_state(snapshot(twin), snapshot(learner))


@rule(6)
def the_default_type_does_not_matter(subject: Subject) -> None:
    """Half precision as torch's default type changes no bit."""
    rounds, before = subject.stream(7), torch.get_default_dtype()
    learner = subject.build()
    ours = subject.play(learner, rounds)
    torch.set_default_dtype(torch.float16)
    try:
        twin = subject.build()
        theirs = subject.play(twin, rounds)
    finally:
        torch.set_default_dtype(before)
    require_same(ours, theirs, "with float16 as the default type")
    require_state(snapshot(twin), learner, "with float16 as the default type")


@rule(6)
def single_precision_follows_double(subject: Subject) -> None:
    """Statistics in float32 equal those in float64 to the precision of float32."""
    rounds = [subject.typed(round_, torch.float32) for round_ in subject.stream(40)]
    log = subject.typed(subject.log(40), torch.float32)
    for in_blocks in (False, True):
        single, double = subject.build(dtype=torch.float32), subject.build()
        for learner in (single, double):
            if in_blocks:
                learner.learn(**log, block_size=4)
                continue
            for t, round_ in enumerate(rounds):
                learner.step(**subject.arguments(round_, torch.tensor(t % 2)))
        state, tolerance = snapshot(single), 2e-3 if subject.decides else 5e-4
        for name, value in snapshot(double).items():
            if name in state:
                torch.testing.assert_close(state[name], value, rtol=tolerance, atol=tolerance, check_dtype=False)


@rule(6)
def half_precision_state_is_refused(subject: Subject) -> None:
    """A state in half precision is refused with an error that names ``dtype``."""
    round_ = subject.stream(1)[0]
    for learner in (copy.deepcopy(subject.build()).half(), copy.deepcopy(subject.build()).bfloat16()):
        before, arguments = snapshot(learner), subject.arguments(round_, torch.tensor(0))
        calls: list[Any] = [lambda a=arguments, on=learner: on.step(**a)]
        calls.append(lambda on=learner: on.learn(**subject.log(13)))
        if subject.decides:
            calls.append(lambda on=learner: on.select(round_["inputs"]))
        for call in calls:
            try:
                call()
            except ValueError as error:
                require("dtype" in str(error), f"expected an error of dtype, got {error}")
            else:
                require(False, "a state in half precision was used")
        require_state(before, learner, "in half precision")


@rule(6)
def autocast_does_not_reach_the_state(subject: Subject) -> None:
    """Autocast changes no bit, but for the features of an encoder."""
    for batch_shape in BATCH_SHAPES if subject.checks_inputs or not subject.takes_inputs else ():
        for state_type in STATE_TYPES:
            learner, twin = (subject.build(batch_shape=batch_shape, dtype=state_type) for _ in range(2))
            rounds = [subject.typed(round_, state_type) for round_ in subject.stream(12, batch_shape)]
            log = subject.typed(subject.log(13, batch_shape), state_type)
            theirs = subject.play(twin, rounds)
            twin.learn(**log)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                ours = subject.play(learner, rounds)
                learner.learn(**log)
            require_same(ours, theirs, "under autocast")
            require_state(snapshot(twin), learner, "under autocast")


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a copy that refuses writes."""
    array = array.copy()
    array.flags.writeable = False
    return array


def field(array: np.ndarray) -> np.ndarray:
    """Return a field of records, so that its values are not aligned."""
    records = np.zeros(len(array), dtype=[("flag", "i1"), ("value", array.dtype, array.shape[1:])])
    records["value"] = array
    return records["value"]


def given_as(way: Any, round_: Round) -> Round:
    """Return a round with arrays, or what ``way`` makes of them, in place of tensors."""
    return mapped(lambda value: way(value.cpu().numpy()), round_)


WAYS: dict[str, Any] = {
    "an array": np.copy,
    "a list": np.ndarray.tolist,
    "a read-only array": read_only,
    "an array with negative strides": lambda array: array[::-1].copy()[::-1],
    "a big-endian array": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "an array in Fortran order": np.asfortranarray,
    "a field of records": field,
    "a list of rows": list,
}


@rule(6)
def arrays_and_lists_are_converted(subject: Subject) -> None:
    """NumPy arrays of any layout and lists do what tensors do, bit for bit."""
    log, wanted = subject.log(13), subject.build()
    wanted.learn(**log)
    for name, way in WAYS.items():
        learner = subject.build()
        learner.learn(**given_as(way, log))
        require_state(snapshot(wanted), learner, f"a log as {name}")
    for batch_shape in BATCH_SHAPES:
        wanted, rounds = subject.build(batch_shape=batch_shape), subject.stream(5, batch_shape)
        decisions = subject.play(wanted, rounds)
        for way in (np.copy, np.ndarray.tolist, lambda array: array.astype(object).tolist()):
            learner = subject.build(batch_shape=batch_shape)
            for round_, decision in zip(rounds, decisions, strict=True):
                given = subject.arguments(round_, decision)
                learner.step(**given_as(way, given))
            require_state(snapshot(wanted), learner, "rounds as arrays or lists")
    rounded = on_reals(lambda value: value.clamp(-5.0, 5.0).round(), log)
    rounded |= {subject.response: subject.possible(rounded[subject.response]).round(), "noise_scale": None}
    if subject.takes_inputs:
        rounded[subject.features] = subject.short(rounded[subject.features]).trunc()
    whole = on_reals(lambda value: value.to(torch.int64).cpu().numpy(), rounded)
    learner, twin = subject.build(), subject.build()
    learner.learn(**whole)
    twin.learn(**rounded)
    require_state(snapshot(twin), learner, "a log of integers")
