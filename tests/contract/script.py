"""Rule 8: TorchScript is the same learner."""

import copy
import functools
import io
from typing import Any

import torch

from tests.contract.matrix import rule
from tests.learners import (
    BATCH_SHAPES,
    Case,
    close,
    differences,
    estimator_of,
    play,
    round_of,
    same,
    snapshot,
    snapshot_of_script,
)


@functools.lru_cache(maxsize=4)
def compiled(case: Case, batch_shape: tuple[int, ...]) -> Any:
    """A new learner as TorchScript: compiling takes most of the time of these checks."""
    return torch.jit.script(case.build(batch_shape=batch_shape))


def script(case: Case, batch_shape: tuple[int, ...]) -> Any:
    """The same, to be taught."""
    return copy.deepcopy(compiled(case, batch_shape))


def saved_and_loaded(learner: Any) -> Any:
    """A scripted learner, by way of a file."""
    file = io.BytesIO()
    torch.jit.save(learner, file)
    file.seek(0)
    return torch.jit.load(file)


@rule(8)
def script_agrees_with_eager(case: Case) -> None:
    """A hundred rounds with two to five arms (30 of a batch): the same choices and state, half of it from a saved file."""
    for batch_shape in BATCH_SHAPES:
        eager = case.build(batch_shape=batch_shape)
        scripted = script(case, batch_shape)
        for seed in (0, 1):
            rounds = case.stream(50 if batch_shape == () else 15, batch_shape=batch_shape, seed=seed)
            assert all(map(same, play(eager, rounds), play(scripted, rounds)))
            assert list(snapshot(eager)) == list(snapshot_of_script(scripted, eager))
            for name, value in snapshot(eager).items():
                close(value, snapshot(scripted)[name])
            arms = rounds[0].arms
            close(estimator_of(eager).width(arms), estimator_of(scripted).width(arms))
            close(estimator_of(eager).radius(), estimator_of(scripted).radius())
            close(estimator_of(eager).interval(arms)[1], estimator_of(scripted).interval(arms)[1])
            assert not any(buffer.requires_grad for buffer in scripted.buffers())
            scripted = saved_and_loaded(scripted)


@rule(8)
def script_looks_and_learns_like_eager(case: Case) -> None:
    """Masks, several rounds at once, gradients that stay outside, and a state_dict that goes either way."""
    for batch_shape in BATCH_SHAPES:
        eager = case.build(batch_shape=batch_shape)
        scripted = script(case, batch_shape)
        round_ = case.stream(1, batch_shape=batch_shape)[0]
        x = torch.randn(*batch_shape, 6, eager_dim(eager), requires_grad=True)
        for learner in (eager, scripted):
            ones = torch.ones(*batch_shape, 6, *case.output_shape, requires_grad=True)
            learner.step(*round_of(learner, x * 2.0, ones * 1.0))
            learner.step(*round_of(learner, round_.arms[..., 0, :], round_.reward))
        assert not any(buffer.requires_grad for buffer in scripted.buffers())
        for name, value in snapshot(eager).items():
            close(value, snapshot(scripted)[name])
        before = snapshot_of_script(scripted, eager)
        if hasattr(eager, "select"):
            mask = torch.ones(round_.arms.shape[:-1], dtype=torch.bool)
            mask[..., int(eager.select(round_.arms).reshape(-1)[0])] = False
            for learner in (eager, scripted):
                torch.manual_seed(1)
                assert bool(mask.gather(-1, learner.select(round_.arms, mask).unsqueeze(-1)).all())
        assert differences(before, snapshot_of_script(scripted, eager)) == []
        fresh = case.build(batch_shape=batch_shape)
        fresh.load_state_dict(scripted.state_dict())
        assert differences(before, snapshot(fresh)) == []


def eager_dim(learner: Any) -> int:
    return estimator_of(learner).dim
