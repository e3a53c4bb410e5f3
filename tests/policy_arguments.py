"""Writes the arguments of an estimator into the docstrings of the policies that take the same ones.

    python -m tests.policy_arguments

An editor reads docstrings from the source, so the words stand there; they are written once, in the docstring of the estimator or
of its base class, and copied by this script. A test in test_architecture.py makes the sections again, and compares.
"""

import ast
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from tests.learners import public_classes
from torchonline.bandits.policies import Policy

# "as in :class:`Estimator`", alone: the words are there.
REFERENCE = re.compile(r"(?:as in|those of|options of all learners, see) :class:`~?([\w.]+)`\.?")
WIDTH = 128


def section(cls: Any) -> dict[tuple[str, ...], str]:
    """The entries of a class's ``Args:``, names to words."""
    lines = (inspect.getdoc(cls) or "").splitlines()
    found: dict[tuple[str, ...], str] = {}
    names: tuple[str, ...] = ()
    for line in lines[lines.index("Args:") + 1 :] if "Args:" in lines else []:
        if line and not line.startswith(" "):
            break
        if entry := re.fullmatch(r" {4}(\w+(?:, \w+)*): ?(.*)", line):
            names = tuple(entry[1].split(", "))
            found[names] = entry[2]
        elif line:
            found[names] += f" {line.strip()}"
    return {names: words.strip() for names, words in found.items()}


def words_for(cls: Any, name: str) -> tuple[tuple[str, ...], str]:
    """The names of the entry that explains an argument, and its words; references to base classes are followed.

    Raises LookupError if no entry names it.
    """
    names, words = next(((names, words) for names, words in section(cls).items() if name in names), ((), ""))
    if not names:
        raise LookupError(f"{cls.__name__}: {name} is not among the arguments of the docstring")
    reference = REFERENCE.fullmatch(words)
    if not reference:
        return names, words
    title = reference[1].rpartition(".")[2]
    known = {other.__name__: other for other in (*cls.__mro__, *public_classes(object))}
    return words_for(known[title], name)


def arguments_of(cls: Any) -> str:
    """The section ``Args:`` with all arguments of a class in the constructor's order, indented for a class's docstring."""
    lines, done = ["    Args:"], set()
    for name in inspect.signature(cls).parameters:
        names, words = words_for(cls, name)
        if name not in done:
            done |= set(names)
            lines += wrapped(f"{', '.join(names)}: {words}")
    return "\n".join(lines) + "\n"


def wrapped(entry: str) -> list[str]:
    """An entry as lines that break nowhere in a formula or a literal."""
    whole = re.sub(r"`[^`]*`", lambda quoted: quoted[0].replace(" ", "\0").replace("-", "\1"), entry)
    options: dict[str, Any] = {"initial_indent": " " * 8, "subsequent_indent": " " * 12, "break_long_words": False}
    lines = textwrap.wrap(whole, WIDTH, break_on_hyphens=False, **options)
    return [line.replace("\0", " ").replace("\1", "-") for line in lines]


def policies() -> dict[Any, Any]:
    """Each policy that takes an estimator's arguments, and the class of that estimator."""
    named = [cls for cls in public_classes(Policy) if "estimator" not in inspect.signature(cls).parameters]
    required: dict[str, Any] = {"horizon": 7, "discount": 0.9}
    wanted = {cls: inspect.signature(cls).parameters for cls in named}
    options = {cls: {name: value for name, value in required.items() if name in wanted[cls]} for cls in named}
    return {cls: type(cls(2, **options[cls]).estimator) for cls in named}


def rewritten(text: str, name: str, arguments: str) -> str:
    """A file's text with the section ``Args:`` of one of its classes replaced, or put before the example."""
    node = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name)
    first: Any = node.body[0]
    lines = text.splitlines(keepends=True)
    inside = lines[first.lineno - 1 : first.end_lineno]
    start = next((i for i, line in enumerate(inside) if line == "    Args:\n"), None)
    if start is None:
        start = end = next(
            i for i, line in enumerate(inside) if re.fullmatch(r"    (Shape|Example|Reference):\n", line)
        )
    else:
        end = next(i for i in range(start + 1, len(inside)) if re.match(r"    \S", inside[i]))
    inside[start:end] = [arguments + "\n"]
    if "\\" in arguments and inside[0].startswith('    """'):
        inside[0] = inside[0].replace('"""', 'r"""', 1)
    lines[first.lineno - 1 : first.end_lineno] = inside
    return "".join(lines)


def main() -> None:
    for cls, estimator in policies().items():
        path = Path(inspect.getsourcefile(cls) or "")
        text = path.read_text()
        new = rewritten(text, cls.__name__, arguments_of(estimator))
        if new != text:
            path.write_text(new)
            print(path, cls.__name__)


if __name__ == "__main__":
    main()
