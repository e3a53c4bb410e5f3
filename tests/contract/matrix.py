"""Cases x rules, without exemptions, and the table that a test run ends with."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import torchonline.baselines
import torchonline.testing
from tests.contract.fake_devices import ON_ANOTHER_DEVICE
from torchonline.testing.rules import Check, Rule

BASELINES = frozenset(torchonline.baselines.__all__)
# The numbers of the rules that baselines keep too.
OF_BASELINES = (2, 3)

RULES: list[Rule] = [*torchonline.testing.RULES, ON_ANOTHER_DEVICE]
CONVEX_RULES: list[Rule] = []

# (class name, rule name) to the reason why that class need not keep that rule.
EXEMPTIONS: dict[tuple[str, str], str] = {
    (
        "CatalogueArms",
        "script_agrees_with_eager",
    ): "it calls an index in Python; tests/policies/test_catalogue_arms.py tests that exports refuse it",
    (
        "FixedArms",
        "script_agrees_with_eager",
    ): "largest_image differs after a block; tests/policies/test_fixed_arms.py compares the rest",
}
CONVEX_EXEMPTIONS: dict[tuple[str, str], str] = {}


def convex_rule(number: int, *, quick: bool = False) -> Callable[[Check], Check]:
    """Decorate a check of convex learners, to make it part of their contract under one of the ten numbers."""

    def register(check: Check) -> Check:
        CONVEX_RULES.append(Rule(number, check, of_estimators=False, of_deciders=False, quick=quick))
        return check

    return register


def quick_params(cases: Sequence[Any]) -> list[Any]:
    """Return cases as parameters of a test. The quick tier runs the first case of each class."""
    first = {case.cls: case for case in reversed(cases)}
    return [pytest.param(case, id=str(case), marks=[pytest.mark.fast] * (first[case.cls] is case)) for case in cases]


def pairs(cases: Sequence[Any], rules: Sequence[Rule], exemptions: dict[tuple[str, str], str]) -> list[Any]:
    """Return the parameters ``(case, rule)`` of a test, without exemptions. The quick tier runs the quick rules.

    Baselines promise less: a step is all or nothing, and a state dict continues bit for bit.
    """
    found = []
    for case in quick_params(cases):
        one = case.values[0]
        name = one.cls.__name__
        for rule in rules:
            is_promised = name not in BASELINES or rule.number in OF_BASELINES
            is_promised &= rules is CONVEX_RULES or (rule.of_deciders if one.decides else rule.of_estimators)
            if is_promised and (name, str(rule)) not in exemptions:
                marks = case.marks if rule.quick else []
                found.append(pytest.param(*case.values, rule, id=f"{case.id}-{rule}", marks=marks))
    return found


def table(outcomes: dict[str, bool]) -> Iterator[str]:
    """Lines of learners x numbers: ``+`` kept, ``-`` broken, ``.`` not run; from ``"number learner"`` to whether it passed."""
    numbers = range(1, 11)
    learners = list(dict.fromkeys(key.split(" ", 1)[1] for key in outcomes))
    width = max(map(len, learners))
    yield " " * width + "".join(f"{number:3}" for number in numbers)
    for learner in learners:
        marks = [outcomes.get(f"{number} {learner}") for number in numbers]
        yield learner.ljust(width) + "".join({None: "  .", True: "  +", False: "  -"}[mark] for mark in marks)
    exemptions = EXEMPTIONS | CONVEX_EXEMPTIONS
    yield f"{len(learners)} learners, {len(exemptions)} exemptions"
    for (name, broken), reason in exemptions.items():
        yield f"exempt: {name} from {broken}: {reason}"
