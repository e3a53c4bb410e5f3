"""Checks that hold a learner of your own to the contract of the library's.

:func:`check_estimator` and :func:`check_decider` build a learner many times, feed it random rounds, and raise AssertionError with
all rules that it breaks. The library's own tests call them. In your own test, each rule is a separate case::

    @pytest.mark.parametrize("check", estimator_checks(partial(MyRegression, 3)), ids=str)
    def test_my_regression(check):
        check()

Rewards have heavy tails, noise scales vary, and the features of every 17th round are zeros. The rules, by number:

1. Looking changes no state, and answers are differentiable.
2. A refused step or log changes nothing.
3. The buffers are all that is learnt: state dicts, copies and pickles continue bit for bit, in place.
4. No gradient enters a buffer, and memory does not grow.
5. The cost of a step does not depend on the round.
6. The state keeps its type, and inputs of other types are converted.
7. A batch equals single learners, and many rounds at once equal rounds one by one.
8. TorchScript is the same learner.
9. A wrong argument is refused by name.
10. A learner is made and learns without values, on any device.
"""

import gc
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from torchonline.testing import (
    arguments,
    batches,
    gradients_and_cost,
    questions,
    state,
    torchscript,
    types,
    without_values,
)
from torchonline.testing.rules import RULES, Rule
from torchonline.testing.subject import DeciderSubject, EstimatorSubject, Subject

__all__ = ["Check", "check_decider", "check_estimator", "decider_checks", "estimator_checks"]

# The modules register their rules when they are imported.
GROUPS = (questions, state, gradients_and_cost, types, batches, torchscript, arguments, without_values)


class Check:
    """A rule for one kind of learner: call it to check.

    ``str`` returns the rule's name, and ``number`` is its number.

    Args:
        subject: builds the learner, and the rounds that it is fed.
        rule: the rule.
    """

    def __init__(self, subject: Subject, rule: Rule) -> None:
        self.subject, self.rule, self.number = subject, rule, rule.number
        self.__name__ = str(rule)

    def __call__(self) -> None:
        """Raise AssertionError if the learner breaks the rule."""
        frozen = gc.get_freeze_count()
        try:
            self.rule.check(self.subject)
        finally:
            if not frozen:  # what a check has frozen, and not its caller
                gc.unfreeze()

    def __str__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return f"<rule {self.number}, {self}, of {self.subject}>"


def checks_of(subject: Subject) -> list[Check]:
    """Return the checks of all rules that learners like the subject promise."""
    return [Check(subject, rule) for rule in RULES if rule.holds_for(subject)]


def estimator_checks(make: Callable[..., Any]) -> list[Check]:
    """Return the checks of :func:`check_estimator`, to parametrize a test."""
    return checks_of(EstimatorSubject(make))


def decider_checks(make: Callable[..., Any], inputs: Callable[..., Tensor] | None = None) -> list[Check]:
    """Return the checks of :func:`check_decider`, to parametrize a test."""
    return checks_of(DeciderSubject(make, inputs))


def check_estimator(make: Callable[..., Any], *, skip: Mapping[str, str] | None = None) -> None:
    """Check that a regression keeps the rules of the contract.

    It takes some seconds, most of them for TorchScript. The seed of torch changes.

    Args:
        make: builds the estimator; takes the options of all estimators, ``batch_shape``, ``dtype``, ``device`` and ``validate``,
            as ``functools.partial(MyRegression, 3)`` does. Two calls build equal learners.
        skip: names of rules that need not hold, each with its reason.

    Raises:
        AssertionError: a rule is broken. The message lists all broken rules; the error of the first is its cause.
        TypeError, ValueError: ``make`` builds no estimator, or ignores the options; ``skip`` names a rule that does not exist.

    Example:
        >>> from functools import partial
        >>> from torchonline import RidgeRegression
        >>> from torchonline.testing import check_estimator
        >>> check_estimator(partial(RidgeRegression, 3))
    """
    run(estimator_checks(make), skip)


def check_decider(
    make: Callable[..., Any],
    inputs: Callable[..., Tensor] | None = None,
    *,
    skip: Mapping[str, str] | None = None,
) -> None:
    """Check that a policy keeps the rules of the contract.

    It takes some seconds to a minute, most of them for TorchScript. The seed of torch changes.

    Args:
        make: builds the policy; takes ``batch_shape``, ``dtype``, ``device`` and ``validate``. Two calls build equal policies
            with two arms or more. A head with an encoder must be in evaluation mode, and its encoder needs float64 parameters.
        inputs: takes a shape ``*S``, as several integers, and returns random inputs of decisions, ``(*S, K, d)`` for arms with
            features or ``(*S, d)`` for a context. None draws them; an encoder needs inputs from here.
        skip: see :func:`check_estimator`.

    Raises:
        AssertionError, TypeError, ValueError: see :func:`check_estimator`.

    Example:
        >>> from torchonline import UCB, RidgeRegression
        >>> from torchonline.testing import check_decider
        >>> check_decider(lambda **options: UCB(RidgeRegression(3, **options)))
    """
    run(decider_checks(make, inputs), skip)


def run(checks: list[Check], skip: Mapping[str, str] | None) -> None:
    """Call the checks, or raise one AssertionError with all failures."""
    unknown = sorted(set(skip or ()) - {str(check) for check in checks})
    if unknown:
        raise ValueError(f"skip: expected names among {sorted(map(str, checks))}, got {unknown}")
    found: list[tuple[Check, Exception]] = []
    for check in checks:
        if skip is None or str(check) not in skip:
            try:
                check()
            except Exception as error:
                found.append((check, error))
    if found:
        lines = [f"{check} (rule {check.number}): {type(error).__name__}: {error}" for check, error in found]
        broken = f"{checks[0].subject} breaks {len(found)} of {len(checks)} rules:"
        raise AssertionError("\n".join([broken, *lines])) from found[0][1]
