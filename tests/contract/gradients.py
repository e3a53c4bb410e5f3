"""Rule 4: no gradient enters a buffer, and memory does not grow with the rounds."""

import gc
import sys
import weakref
from typing import Any

import torch
from torch import Tensor

from tests.contract.matrix import rule
from tests.learners import (
    BATCH_SHAPES,
    DIM,
    Case,
    chosen,
    decide,
    differences,
    estimator_of,
    play,
    round_of,
    same,
    snapshot,
    teach,
)


class Encoder(torch.autograd.Function):
    """The identity, with a record of the graphs that are still alive."""

    alive: weakref.WeakSet = weakref.WeakSet()

    class Token:
        """Lives as long as the graph it was made for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.token = Encoder.Token()
        Encoder.alive.add(ctx.token)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def collect() -> None:
    """Collect garbage, and leave what still lives out of later collections, which would go over all that tests have imported."""
    gc.collect()
    gc.freeze()


@rule(4)
def no_gradient_enters(case: Case) -> None:
    """Fed from a graph, a learner keeps none of it and learns the same as without."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        rounds = case.stream(10, batch_shape=batch_shape)
        play(twin, rounds)
        for round_ in rounds:
            arms, reward, noise_scale = (
                Encoder.apply(value.requires_grad_(value.is_floating_point()))
                for value in (round_.arms.clone(), round_.reward.clone(), round_.noise_scale.clone())
            )
            fed = type(round_)(arms, reward, noise_scale)
            index = decide(learner, fed)
            teach(learner, fed, index)
            several = chosen(arms, index).unsqueeze(-2).expand(*batch_shape, 2, DIM)
            learner.select(arms) if hasattr(learner, "select") else learner(several)
        del arms, reward, noise_scale, fed, several
        collect()
        assert len(Encoder.alive) == 0
        assert [name for name, buffer in learner.named_buffers() if buffer.requires_grad] == []
        assert differences(snapshot(twin), snapshot(learner)) == []


@rule(4)
def memory_is_flat(case: Case) -> None:
    """Three thousand steps fed with tensors that require grad leave no more behind than Python's own free lists."""
    learner = case.build()
    # A policy's step is its estimator's, and an option's nearly the same: a thousand calls show that it adds nothing.
    calls = 3_000 if learner is estimator_of(learner) and not case.options else 1_000
    # As a new learner expects it: no iterate has to be brought back into its ball.
    reward = case.possible(estimator_of(learner)(torch.zeros(DIM)).detach()).requires_grad_()
    x = torch.randn(DIM, requires_grad=True)

    def steps(number: int) -> int:
        """Learn, and count the blocks of memory that Python holds afterwards."""
        for _ in range(number):
            learner.step(*round_of(learner, 0.2 * x, 1.0 * reward))
        collect()
        return sys.getallocatedblocks()

    before = steps(200)
    assert steps(calls) - before < calls // 10


@rule(4)
def a_graph_from_before_a_step_is_never_wrong(case: Case) -> None:
    """A backward pass through buffers that have changed since is refused by autograd, or right for the old ones."""
    for batch_shape in BATCH_SHAPES:
        learner = case.build(batch_shape=batch_shape)
        play(learner, case.stream(5, batch_shape=batch_shape))
        estimator = estimator_of(learner)
        for look in (estimator, estimator.width):
            x = torch.randn(*batch_shape, 4, DIM, dtype=torch.float64, requires_grad=True)
            (expected,) = torch.autograd.grad(look(x).sum(), x)
            seen = look(x)
            learner.step(
                *round_of(learner, x[..., 0, :], case.possible(torch.randn((*batch_shape, *case.output_shape))))
            )
            assert_right_or_refused(seen, x, expected)


def assert_right_or_refused(seen: Tensor, x: Tensor, expected: Tensor) -> None:
    """A backward pass from ``seen`` gives x its expected gradient, or autograd refuses it."""
    try:
        seen.sum().backward()
    except RuntimeError as error:
        assert "inplace operation" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert same(expected, x.grad)


@rule(4)
def inference_mode_leaves_ordinary_buffers(case: Case) -> None:
    """Served under inference_mode, then trained through: the buffers are still ordinary tensors."""
    for batch_shape in BATCH_SHAPES:
        learner, twin = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
        rounds = case.stream(12, batch_shape=batch_shape)
        with torch.inference_mode():
            play(learner, rounds)
        play(twin, rounds)
        assert differences(snapshot(twin), snapshot(learner)) == []
        assert not any(buffer.is_inference() for buffer in learner.buffers())
        x = torch.randn(*batch_shape, DIM, dtype=torch.float64, requires_grad=True)
        estimator_of(learner)(x).sum().backward()
        play(learner, rounds)
