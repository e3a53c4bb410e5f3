"""Arguments that a docstring documents by another class's docstring.

In the source, ``dim, dtype: as in :class:`Estimator`.`` saves a reader of the code from reading the same lines in every class.
A reader of the site has them in place.
"""

import inspect
import re
from typing import Any

import torchonline
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import Policy
from torchonline.convex.learner import ConvexLearner
from torchonline.core.learner import Learner

BASES = {cls.__name__: cls for cls in (Estimator, Policy, ConvexLearner, Learner)}
POINTER = re.compile(r"(?:as in|those of|options of all learners, see) :class:`~?(?:\w+\.)*(\w+)`(.*)", re.DOTALL)


def expand(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace pointers to another class's arguments by what stands there, and sort arguments as in the signature."""
    if what == "class" and "Args:" in lines:
        start, end = _section(lines)
        order = {parameter: place for place, parameter in enumerate(inspect.signature(obj).parameters)}
        entries = sorted(
            _entries(lines[start:end]), key=lambda entry: order.get(entry[0].partition(",")[0], len(order))
        )
        lines[start:end] = [*(f"    {names}: {text}" for names, text in entries), ""]


def _section(lines: list[str]) -> tuple[int, int]:
    """Return where the section of arguments begins and ends."""
    start = lines.index("Args:") + 1
    return start, next((n for n in range(start, len(lines)) if lines[n] and not lines[n].startswith(" ")), len(lines))


def _entries(lines: list[str]) -> list[tuple[str, str]]:
    """Return the names and the text of each entry of a section, without pointers."""
    entries: list[tuple[str, str]] = []
    for line in lines:
        match = re.fullmatch(r" {4}(\*{0,2}\w+(?:, \w+)*): (.*)", line)
        if match:
            entries.append((match[1], match[2]))
        elif line.strip() and entries:
            names, text = entries[-1]
            entries[-1] = names, f"{text} {line.strip()}"
    return [entry for names, text in entries for entry in _of_other_class(names, text)]


def _of_other_class(names: str, text: str) -> list[tuple[str, str]]:
    """Return an entry for each name if the text points to a class that documents them, or the entry as it is."""
    match = POINTER.match(text)
    cls = match and (
        BASES.get(match[1]) or getattr(torchonline, match[1], None) or getattr(torchonline.baselines, match[1], None)
    )
    if not cls:
        return [(names, text)]
    lines = (inspect.getdoc(cls) or "").splitlines()
    if "Args:" not in lines:
        return [(names, text)]
    start, end = _section(lines)
    known = {name: there for all_names, there in _entries(lines[start:end]) for name in all_names.split(", ")}
    if any(name not in known for name in names.split(", ")):
        return [(names, text)]
    rest = match[2].lstrip(".,; ")
    return [(name, f"{known[name]} {rest}".strip()) for name in names.split(", ")]
