"""Rule 7: a batch is so many single learners, and several rounds in a step are so many steps."""

import itertools

import torch

from tests.contract.matrix import rule
from tests.learners import BATCH_SHAPES, Case, Round, close, decide, estimator_of, round_of, snapshot, teach


@rule(7)
def a_batch_equals_single_learners(case: Case) -> None:
    """batch_shape (3,) and (2, 3): each member's state, mean, width and radius are those of a learner of its own."""
    for batch_shape in ((3,), (2, 3)):
        batched = case.build(batch_shape=batch_shape)
        members = list(itertools.product(*map(range, batch_shape)))
        singles = {member: case.build() for member in members}
        for round_ in case.stream(12, batch_shape=batch_shape):
            index = decide(batched, round_)
            for member in members:
                one = Round(round_.arms[member], round_.reward[member], round_.noise_scale[member])
                single, whole = estimator_of(singles[member]), estimator_of(batched)
                close(single(one.arms), whole(round_.arms)[member])
                close(single.width(one.arms), whole.width(round_.arms)[member])
                close(single.radius(), whole.radius()[member])
                for bound, bounds in zip(single.interval(one.arms), whole.interval(round_.arms), strict=True):
                    close(bound, bounds[member])
                teach(singles[member], one, index[member])
            teach(batched, round_, index)
        for member in members:
            for name, value in snapshot(singles[member]).items():
                whole_value = snapshot(batched)[name]
                close(value, whole_value[member] if whole_value.dim() > value.dim() else whole_value)


@rule(7)
def a_batch_chooses_like_single_learners(case: Case) -> None:
    """Where a policy does not draw, each member of a batch scores and chooses as it would alone."""
    batched = case.build(batch_shape=(3,))
    rounds = case.stream(30, batch_shape=(3,))
    if not hasattr(batched, "select"):
        return
    singles = [case.build() for _ in range(3)]
    drawn = not torch.equal(batched(rounds[0].arms), batched(rounds[0].arms))
    is_random = drawn or batched.is_random
    for round_ in rounds:
        index, scores, probabilities = (
            batched.select(round_.arms),
            batched(round_.arms),
            batched.probabilities(round_.arms),
        )
        assert index.shape == (3,)
        assert scores.shape == round_.arms.shape[:-1]
        for i, single in enumerate(singles):
            if not drawn:
                close(single(round_.arms[i]), scores[i])
                close(single.probabilities(round_.arms[i]), probabilities[i])
            if not is_random:
                assert single.select(round_.arms[i]) == index[i]
            single.step(round_.arms[i], 0, round_.reward[i])
        batched.step(round_.arms, torch.zeros(3, dtype=torch.int64), round_.reward)


@rule(7)
def several_rounds_equal_one_by_one(case: Case) -> None:
    """Features of n rows and n rewards are n rounds in order; no row is no round."""
    for batch_shape in BATCH_SHAPES:
        for scaled in (True, False):
            at_once, in_turn = case.build(batch_shape=batch_shape), case.build(batch_shape=batch_shape)
            rounds = case.stream(12, batch_shape=batch_shape)
            rows = torch.stack([round_.arms[..., 0, :] for round_ in rounds], -2)
            responses = torch.stack([round_.reward for round_ in rounds], len(batch_shape))
            scales = torch.stack([round_.noise_scale for round_ in rounds], len(batch_shape)) if scaled else None
            at_once.step(*round_of(at_once, rows, responses), noise_scale=scales)
            for round_ in rounds:
                one = round_of(in_turn, round_.arms[..., 0, :], round_.reward)
                in_turn.step(*one, noise_scale=round_.noise_scale if scaled else None)
            before = snapshot(at_once)
            for name, value in snapshot(in_turn).items():
                close(value, before[name], tolerance=1e-12)
            nothing = torch.zeros(*batch_shape, 0, 3), torch.zeros(*batch_shape, 0, *case.output_shape)
            at_once.step(*round_of(at_once, *nothing))
            for name, value in snapshot(at_once).items():
                close(value, before[name], tolerance=0.0)
            epoch = estimator_of(at_once).restart_every or len(rounds) + 1
            assert int(estimator_of(at_once).rounds.max()) == len(rounds) % epoch
