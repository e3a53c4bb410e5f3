"""Rule 1: looking never changes state, and what is seen has a gradient."""

from typing import Any

import torch
from torch import Tensor

from tests.contract.matrix import rule
from tests.learners import DIM, Case, decide, differences, estimator_of, play, snapshot


def look(learner: Any, arms: Tensor) -> None:
    """All that may be asked of a learner."""
    estimator = estimator_of(learner)
    estimator(arms)
    estimator.width(arms)
    estimator.radius()
    estimator.interval(arms)
    if learner is not estimator:
        learner(arms)
        learner.select(arms)
        learner.select(arms, torch.ones(arms.shape[:-1], dtype=torch.bool))
        learner.select(arms.unsqueeze(-3).expand(*arms.shape[:-2], 6, *arms.shape[-2:]))
        learner.predict(arms)
        learner.interval(arms)
        learner.probabilities(arms)
        learner.select_with_probability(arms)
        learner.number_of_actions(arms)


@rule(1, quick=True)
def looking_changes_nothing(case: Case) -> None:
    """The mean, width, radius, scores and choices leave every buffer bit-equal."""
    for batch_shape in ((), (2,)):
        learner = case.build(batch_shape=batch_shape)
        look(learner, case.stream(1, batch_shape=batch_shape)[0].arms)
        assert differences(snapshot(case.build(batch_shape=batch_shape)), snapshot(learner)) == []
        play(learner, case.stream(12, batch_shape=batch_shape))
        before = snapshot(learner)
        for round_ in case.stream(20, batch_shape=batch_shape, seed=1):
            look(learner, round_.arms)
            look(learner, round_.arms.clone().requires_grad_())
        assert differences(before, snapshot(learner)) == []


@rule(1)
def looking_twice_sees_the_same(case: Case) -> None:
    """Under one seed, the same question has the same answer."""
    learner = case.build()
    rounds = case.stream(12)
    play(learner, rounds)
    assert [decide(learner, round_).tolist() for round_ in rounds] == [decide(learner, r).tolist() for r in rounds]


@rule(1)
def looking_is_differentiable(case: Case) -> None:
    """The gradients of mean, width and scores in the features are those of finite differences."""
    for batch_shape in ((), (2,)):
        learner = case.build(batch_shape=batch_shape)
        play(learner, case.stream(12, batch_shape=batch_shape))
        estimator = estimator_of(learner)
        arms = case.stream(1, batch_shape=batch_shape, seed=2)[0].arms.requires_grad_()

        def seeded(x: Tensor, learner: Any = learner) -> Tensor:
            torch.manual_seed(0)
            return learner(x)

        for look_at in (seeded, estimator, estimator.width):
            assert torch.autograd.gradcheck(look_at, (arms,))


@rule(1)
def a_width_of_nothing_has_a_gradient(case: Case) -> None:
    """An encoder may return zeros: the width there is 0 for all purposes and its gradient is finite."""
    for dtype in (torch.float64, torch.float32):
        estimator = estimator_of(case.build(dtype=dtype))
        x = torch.zeros(DIM, dtype=dtype, requires_grad=True)
        width = estimator.width(x)
        width.backward()
        assert 0.0 <= width < 1e-7
        assert x.grad is not None
        assert bool(torch.isfinite(x.grad).all())
