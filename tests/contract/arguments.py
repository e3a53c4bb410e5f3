"""Rule 9: a wrong argument is refused by name, and changes nothing."""

from tests.bad_arguments import bad_looks, bad_selects, bad_steps, complaint
from tests.contract.matrix import rule
from tests.learners import BATCH_SHAPES, Case, differences, estimator_of, play, snapshot


@rule(9, quick=True)
def bad_steps_are_refused_by_name(case: Case) -> None:
    """ValueError or TypeError that names the argument, and every buffer bit-equal: one round and several, one and many."""
    for batch_shape in BATCH_SHAPES:
        learner = case.build(batch_shape=batch_shape)
        play(learner, case.stream(7, batch_shape=batch_shape))
        before, wrong = snapshot(learner), []
        for rows in ((), (3,)):
            options = (case.output_shape, case.response, case.possible, 4 * case.decides)
            for kind, name, arguments in bad_steps(batch_shape, rows, *options):
                wrong += complaint(
                    f"{name} {kind} {batch_shape} {rows}", name, lambda a=arguments, on=learner: on.step(**a)
                )
        assert wrong == []
        assert differences(before, snapshot(learner)) == []


@rule(9)
def bad_selects_are_refused_by_name(case: Case) -> None:
    """ValueError or TypeError that names the argument."""
    for batch_shape in BATCH_SHAPES:
        learner = case.build(batch_shape=batch_shape)
        if not hasattr(learner, "select"):
            continue
        play(learner, case.stream(7, batch_shape=batch_shape))
        before, wrong = snapshot(learner), []
        for kind, name, arguments in bad_selects(batch_shape):
            wrong += complaint(f"{name} {kind} {batch_shape}", name, lambda a=arguments, on=learner: on.select(**a))
        assert wrong == []
        assert differences(before, snapshot(learner)) == []


@rule(9)
def bad_looks_are_refused_by_name(case: Case) -> None:
    """The mean, width and interval of what is no features: ValueError or TypeError that names ``x``."""
    for batch_shape in BATCH_SHAPES:
        estimator, wrong = estimator_of(case.build(batch_shape=batch_shape)), []
        for look in (estimator.forward, estimator.width, estimator.interval):
            for kind, bad in bad_looks(batch_shape):
                wrong += complaint(f"{look.__name__} {kind} {batch_shape}", "x", lambda a=bad, at=look: at(a))
        assert wrong == []
