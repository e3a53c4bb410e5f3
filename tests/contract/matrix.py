"""The rules by name and number, the exemptions, and the table that a test run ends with."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

Check = Callable[[Any], None]


@dataclass(frozen=True)
class Rule:
    """A property of all learners: ``check``, of a case, raises AssertionError where a learner lacks it."""

    number: int
    check: Check
    # Whether the quick tier checks the rule, on the first case of each class.
    quick: bool = False

    def __str__(self) -> str:
        return self.check.__name__


RULES: list[Rule] = []
CONVEX_RULES: list[Rule] = []

# (class name, rule name) to the reason why that class need not keep that rule.
EXEMPTIONS: dict[tuple[str, str], str] = {
    (
        name,
        broken,
    ): "it goes over the history of all rounds in each, by definition, and has room for a stated number of them"
    for name in ("HeavyOFULRegression", "AdaOFULRegression", "HuberBanditRegression", "TOFURegression", "BTCRegression")
    for broken in ("memory_is_flat", "cost_does_not_depend_on_the_round")
} | {
    (name, "runs_on_a_device_of_its_own"): "its solver stops when it has arrived, and has to ask for that"
    for name in ("HeavyOFULRegression", "AdaOFULRegression", "HuberBanditRegression")
}
EXEMPTIONS |= {
    (
        name,
        "runs_on_a_device_of_its_own",
    ): "it asks whether a minimum is outside of its ball, and solves again only then"
    for name in ("ECOLogRegression",)
}
EXEMPTIONS["GLOCRegression", "cost_does_not_depend_on_the_round"] = (
    "where the link is flat its steps are so long that any round may have to bring its iterate back into the ball"
)
EXEMPTIONS |= {
    (name, broken): reason
    for name in (
        "AdaECOLogRegression",
        "AdaECOLog",
        "GLMUCBRegression",
        "GLMUCB",
        "OFUGLBRegression",
        "OFUGLB",
        "OFULogRRegression",
        "OFULogR",
        "RSGLinCBRegression",
        "RSGLinCB",
    )
    for reason, rules in {
        "it is fitted to the history of all rounds anew, by definition, and has room for a stated number of them": (
            "memory_is_flat",
            "cost_does_not_depend_on_the_round",
        ),
        "it solves a convex program in NumPy in each round, which no compiler can follow and no accelerator runs": (
            "script_agrees_with_eager",
            "script_looks_and_learns_like_eager",
            "script_learns_logs_like_eager",
            "runs_on_a_device_of_its_own",
        ),
    }.items()
    for broken in rules
}
EXEMPTIONS |= {
    (
        name,
        "is_made_without_values",
    ): "its first level is computed by a function of torch that fake tensors have no value of"
    for name in ("OFULogRRegression", "OFULogR")
}


CONVEX_EXEMPTIONS: dict[tuple[str, str], str] = {}


def rule(number: int, rules: list[Rule] = RULES, *, quick: bool = False) -> Callable[[Check], Check]:
    """Make a check part of a contract, the bandits' unless another is named, under one of its ten numbers."""

    def register(check: Check) -> Check:
        rules.append(Rule(number, check, quick))
        return check

    return register


def quick_params(cases: Sequence[Any]) -> list[Any]:
    """Return cases as parameters of a test. The quick tier runs the first case of each class."""
    first = {case.cls: case for case in reversed(cases)}
    return [pytest.param(case, id=str(case), marks=[pytest.mark.fast] * (first[case.cls] is case)) for case in cases]


def pairs(cases: Sequence[Any], rules: Sequence[Rule], exemptions: dict[tuple[str, str], str]) -> list[Any]:
    """Return the parameters ``(case, rule)`` of a test, without exemptions. The quick tier runs the quick rules."""
    found = []
    for case in quick_params(cases):
        for rule in rules:
            if (case.values[0].cls.__name__, str(rule)) not in exemptions:
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
