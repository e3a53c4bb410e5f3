"""The rules of the contract, by number and name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Check = Callable[[Any], None]


@dataclass(frozen=True)
class Rule:
    """A property of learners.

    ``check`` raises AssertionError for a subject that lacks it.
    """

    number: int
    check: Check
    of_estimators: bool
    of_deciders: bool
    # Whether the quick tier of the project's tests checks the rule.
    quick: bool = False

    def __str__(self) -> str:
        return self.check.__name__

    def holds_for(self, subject: Any) -> bool:
        """Return whether learners like the subject promise the rule."""
        return self.of_deciders if subject.decides else self.of_estimators


RULES: list[Rule] = []


def rule(number: int, of: str = "estimators and deciders", *, quick: bool = False) -> Callable[[Check], Check]:
    """Decorate a check, to add it to the contract under one of its ten numbers."""

    def register(check: Check) -> Check:
        RULES.append(Rule(number, check, "estimators" in of, "deciders" in of, quick))
        return check

    return register
