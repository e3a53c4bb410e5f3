"""Rules 2 and 3: a step is all or nothing, and the buffers are all that a learner has learnt."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.contract.matrix import rule
from tests.learners import BATCH_SHAPES, DIM, Case, differences, estimator_of, play, round_of, same, snapshot


@rule(2, quick=True)
def a_refused_step_changes_nothing(case: Case) -> None:
    """NaN in the last of several rounds leaves every buffer bit-equal, and what follows is as if nothing had been."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        for each in (learner, twin):
            play(each, case.stream(12, batch_shape=batch_shape))
        before = snapshot(learner)
        for name in ("inputs" if case.decides else "x", case.response, "noise_scale"):
            features = torch.randn(*batch_shape, 5, *((1,) if case.decides else ()), DIM)
            good = {
                **(
                    {"inputs": features, "action": torch.zeros(*batch_shape, 5).long()}
                    if case.decides
                    else {"x": features}
                ),
                case.response: case.possible(torch.randn(*batch_shape, 5, *case.output_shape)),
                "noise_scale": torch.ones(*batch_shape, 5, *case.output_shape),
            }
            good[name][..., -1:] = torch.nan
            with pytest.raises(ValueError, match=name):
                learner.step(**good)
            assert differences(before, snapshot(learner)) == [], name
        rounds = case.stream(12, batch_shape=batch_shape, seed=1)
        assert all(map(same, play(learner, rounds), play(twin, rounds)))
        assert differences(snapshot(twin), snapshot(learner)) == []


@rule(2)
def a_learner_may_be_fed_its_own_buffers(case: Case) -> None:
    """Features and rewards that lie in the memory that a step writes mean what they were when it was called.

    What is in a buffer may be no reward that the learner takes; then it is refused whether it lies there or elsewhere.
    """
    for batch_shape in BATCH_SHAPES:
        learner, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        for each in (learner, twin):
            play(each, case.stream(12, batch_shape=batch_shape))
        own = estimator_of(learner)
        one = (own.theta_hat, own.V_inv[..., 0, 0])
        if case.output_shape:
            one = (own.V_inv[..., 0], own.theta_hat[..., 0, :])
        for x, reward in (one, (own.V_inv, own.theta_hat)):
            assert refusal(twin, x.clone(), reward.clone()) == refusal(learner, x, reward)
            assert differences(snapshot(twin), snapshot(learner)) == []


def refusal(learner: Any, x: Tensor, reward: Tensor) -> str | None:
    """Why a step is refused, if it is."""
    try:
        learner.step(*round_of(learner, x, reward))
    except ValueError as error:
        return str(error)
    return None


@rule(3, quick=True)
def a_loaded_state_continues_bit_for_bit(case: Case) -> None:
    """state_dict, through a file, into a fresh learner: the same decisions and the same bits from there on."""
    for batch_shape in BATCH_SHAPES:
        for dtype in (torch.float64, torch.float32):
            learner = case.build(batch_shape=batch_shape, dtype=dtype)
            play(learner, case.stream(21, batch_shape=batch_shape))
            file = io.BytesIO()
            torch.save(learner.state_dict(), file)
            file.seek(0)
            fresh = case.build(batch_shape=batch_shape, dtype=dtype)
            fresh.load_state_dict(torch.load(file, weights_only=True))
            rounds = case.stream(21, batch_shape=batch_shape, seed=1)
            assert all(map(same, play(learner, rounds), play(fresh, rounds)))
            assert differences(snapshot(learner), snapshot(fresh)) == []


@rule(3)
def copies_are_independent(case: Case) -> None:
    """A deepcopy and a pickle go on like the original and leave it alone."""
    for batch_shape in BATCH_SHAPES:
        learner = case.build(batch_shape=batch_shape)
        play(learner, case.stream(12, batch_shape=batch_shape))
        # What is made from the buffers, to reach them faster, is not copied: it would reach the wrong ones.
        assert abs(len(pickle.dumps(learner)) - len(pickle.dumps(case.build(batch_shape=batch_shape)))) < 100
        before, rounds = snapshot(learner), case.stream(12, batch_shape=batch_shape, seed=1)
        copies = [copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))]
        decisions = [play(each, rounds) for each in copies]
        assert differences(before, snapshot(learner)) == []
        own = play(learner, rounds)
        for each, theirs in zip(copies, decisions, strict=True):
            assert all(map(same, own, theirs))
            assert differences(snapshot(learner), snapshot(each)) == []


def addresses(learner: nn.Module) -> dict[str, tuple[int, int]]:
    """Which object holds each buffer, and where its memory is."""
    return {name: (id(buffer), buffer.data_ptr()) for name, buffer in learner.named_buffers()}


@rule(3)
def buffers_are_written_in_place(case: Case) -> None:
    """Steps, resets and loads keep each buffer's object and memory."""
    for batch_shape in BATCH_SHAPES:
        learner = case.build(batch_shape=batch_shape)
        before, start = addresses(learner), snapshot(learner)
        play(learner, case.stream(12, batch_shape=batch_shape))
        rows, responses = torch.randn(*batch_shape, 5, DIM), torch.randn(*batch_shape, 5, *case.output_shape)
        learner.step(*round_of(learner, rows, case.possible(responses)))
        assert differences(start, snapshot(learner)) != []
        learner.load_state_dict(start)
        play(learner, case.stream(12, batch_shape=batch_shape))
        getattr(learner, "estimator", learner).reset()
        assert addresses(learner) == before
        play(learner, case.stream(12, batch_shape=batch_shape))
        with torch.inference_mode():
            play(learner, case.stream(12, batch_shape=batch_shape))
        assert addresses(learner) == before


@rule(3)
def reset_forgets_everything(case: Case) -> None:
    """After a reset, a learner cannot be told from a new one."""
    for batch_shape in BATCH_SHAPES:
        learner, fresh = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        play(learner, case.stream(12, batch_shape=batch_shape))
        getattr(learner, "estimator", learner).reset()
        assert differences(snapshot(fresh), snapshot(learner)) == []
        rounds = case.stream(12, batch_shape=batch_shape, seed=1)
        assert all(map(same, play(learner, rounds), play(fresh, rounds)))
        assert differences(snapshot(fresh), snapshot(learner)) == []


@rule(3)
def nothing_but_buffers_evolves(case: Case) -> None:
    """No plain number of a learner changes as it learns: a state_dict would lose it."""
    for batch_shape in BATCH_SHAPES:
        learner = case.build(batch_shape=batch_shape)
        before = numbers(learner)
        play(learner, case.stream(20, batch_shape=batch_shape))
        assert numbers(learner) == before


def numbers(learner: nn.Module) -> dict[str, object]:
    """The plain attributes of a learner and its parts."""
    return {
        f"{path}.{name}": value
        for path, module in learner.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, (int, float, str, tuple))
    }


@rule(3)
def a_state_of_other_options_is_refused(case: Case) -> None:
    """Statistics mean nothing under other options, or in part: loading them raises and changes nothing."""
    learner = case.build()
    play(learner, case.stream(5))
    before = snapshot(learner)
    theta_hat = next(name for name in learner.state_dict() if name.endswith("theta_hat"))
    own = learner.state_dict()
    for blamed, state in (
        ("theta_hat: expected shape", case.build(batch_shape=(2,)).state_dict()),
        ("theta_hat: expected shape", case.build(dim=DIM + 1).state_dict()),
        ("V_lost: expected no such entry", case.build(dtype=torch.float32).state_dict()),
        ("theta_hat: expected an entry", {name: value for name, value in own.items() if name != theta_hat}),
        ("theta_hat: expected a torch.Tensor, got list", own | {theta_hat: [0.0] * DIM}),
        ("theta_hat: expected torch.float64, got torch.int64", own | {theta_hat: own[theta_hat].long()}),
    ):
        with pytest.raises(RuntimeError, match=blamed):
            learner.load_state_dict(state)
        assert differences(before, snapshot(learner)) == []
