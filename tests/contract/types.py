"""Rule 6: the state has its type, and inputs of other floating-point types are converted."""

import pytest
import torch

from tests.contract.matrix import rule
from tests.learners import BATCH_SHAPES, Case, differences, play, round_of, same, snapshot, teach

STATE_TYPES = (torch.float64, torch.float32)
INPUT_TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@rule(6)
def inputs_are_converted_to_the_state(case: Case) -> None:
    """An input of any floating-point type does what the same numbers do in the state's type, bit for bit."""
    for batch_shape in BATCH_SHAPES:
        for state_type in STATE_TYPES:
            for input_type in INPUT_TYPES:
                learner = case.build(batch_shape=batch_shape, dtype=state_type)
                twin = case.build(batch_shape=batch_shape, dtype=state_type)
                rounds = [round_.to(input_type) for round_ in case.stream(7, batch_shape=batch_shape)]
                decisions = play(learner, rounds)
                theirs = play(twin, [round_.to(state_type) for round_ in rounds])
                assert all(map(same, decisions, theirs))
                assert differences(snapshot(twin), snapshot(learner)) == []
                kinds = {name: value.dtype for name, value in snapshot(learner).items()}
                assert kinds == {name: value.dtype for name, value in snapshot(case.build(dtype=state_type)).items()}
                assert kinds[next(name for name in kinds if name.endswith("theta_hat"))] == state_type


@rule(6)
def torchs_default_type_is_no_option(case: Case) -> None:
    """Half precision as torch's default type changes no bit."""
    rounds, before = case.stream(7), torch.get_default_dtype()
    learner = case.build()
    decisions = play(learner, rounds)
    torch.set_default_dtype(torch.float16)
    try:
        twin = case.build()
        theirs = play(twin, rounds)
    finally:
        torch.set_default_dtype(before)
    assert all(map(same, decisions, theirs))
    assert differences(snapshot(twin), snapshot(learner)) == []


@rule(6)
def single_precision_follows_double(case: Case) -> None:
    """float32 is float64 to the precision of float32."""
    rounds = [round_.to(torch.float32) for round_ in case.stream(40)]
    single, double = case.build(dtype=torch.float32), case.build()
    for round_ in rounds:
        for learner in (single, double):
            teach(learner, round_, torch.tensor(0))
    for name, value in snapshot(double).items():
        if name in single.state_dict():
            torch.testing.assert_close(single.state_dict()[name], value, rtol=2e-4, atol=2e-5, check_dtype=False)


@rule(6)
def half_precision_state_is_refused(case: Case) -> None:
    """A state moved to float16 or bfloat16 can be looked at by nobody and taught by nobody."""
    round_ = case.stream(1)[0]
    for learner in (case.build().half(), case.build().bfloat16()):
        before = snapshot(learner)
        with pytest.raises(ValueError, match="dtype"):
            learner.step(*round_of(learner, round_.arms[0], round_.reward))
        if hasattr(learner, "select"):
            with pytest.raises(ValueError, match="dtype"):
                learner.select(round_.arms)
        assert differences(before, snapshot(learner)) == []


@rule(6)
def autocast_does_not_reach_the_state(case: Case) -> None:
    """Inside a mixed-precision training step, where Lightning calls a head, a learner computes as it does outside."""
    for batch_shape in BATCH_SHAPES:
        for state_type in STATE_TYPES:
            learner = case.build(batch_shape=batch_shape, dtype=state_type)
            twin = case.build(batch_shape=batch_shape, dtype=state_type)
            rounds = [round_.to(state_type) for round_ in case.stream(12, batch_shape=batch_shape)]
            theirs = play(twin, rounds)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                decisions = play(learner, rounds)
            assert all(map(same, decisions, theirs))
            assert differences(snapshot(twin), snapshot(learner)) == []
