"""Arguments that a docstring documents by another class's docstring.

In the source, ``dim, dtype: as in :class:`Estimator`.`` saves a reader of the code from reading the same lines in every class.
A reader of the site has them in place.
"""

import inspect
import re
import textwrap
from typing import Any

import torchonline
import torchonline.baselines

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
    public = (getattr(package, name) for package in (torchonline, torchonline.baselines) for name in package.__all__)
    known = {other.__name__: other for other in (*cls.__mro__, *public) if inspect.isclass(other)}
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


def expand(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace pointers to another class's arguments by what stands there, and sort arguments as in the signature."""
    if what != "class" or "Args:" not in lines:
        return
    try:
        section = textwrap.dedent(arguments_of(obj)).splitlines()
    except LookupError:  # an argument is explained in words, or by a class that is not public
        return
    start = lines.index("Args:")
    end = next((n for n in range(start + 1, len(lines)) if lines[n] and not lines[n].startswith(" ")), len(lines))
    lines[start:end] = [*section, ""]
