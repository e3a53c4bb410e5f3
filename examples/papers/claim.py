"""Claims of a paper with their verdicts, and the tables that list them.

A verdict is the first word of a row's cell "Reproduces?": *yes* (it holds as stated), *in part* (after a correction, under a
further condition, or in some settings), *no* (it does not hold, measurements contradict it, or nothing supports it), *run* (the
paper claims nothing of its own here: a rival or an extension that was run beside it), or *cited* (a result of another paper that
this one quotes and does not prove, and that we did not run). No other word is accepted, so no claim is left open.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from experiment import table

VERDICTS = ("yes", "in part", "no", "run", "cited")


class Claim(NamedTuple):
    """A row: item, what the paper says, where it is here, whether it reproduces, script and figure."""

    item: str
    says: str
    here: str
    reproduces: str
    script: str
    figure: str

    @property
    def verdict(self) -> str:
        """Return the verdict. Another first word is a ValueError."""
        found = re.match(rf"({'|'.join(VERDICTS)})\b", self.reproduces)
        if found is None:
            raise ValueError(f"{self.item}: expected a cell that begins with one of {VERDICTS}, got {self.reproduces}")
        return found[1]


def numbered(letter: str, claims: Iterable[Claim]) -> Iterator[tuple[str, Claim]]:
    """Yield the claims of a paper with their numbers: its letter and 1, 2, ..."""
    for number, claim in enumerate(claims, 1):
        yield f"{letter}{number}", claim


def claims_table(letter: str, claims: Iterable[Claim]) -> str:
    """Return the table of every claim of a paper."""
    header = ("Number", "Item", "What the paper says", "Here", "Reproduces?", "Script", "Figure")
    return table(header, [(number, *claim) for number, claim in numbered(letter, claims) if claim.verdict])
