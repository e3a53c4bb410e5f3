"""Words of messages: numbers with nouns, names, and how to install."""

import difflib
import importlib.util
from collections.abc import Callable, Iterable
from typing import Any

# How many names a message lists.
SHOWN = 10


def counted(count: int | None, noun: str) -> str:
    """Return a number with its noun: ``1 round``, ``2 rounds``."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def listed(names: Iterable[Any], show: Callable[[Any], str] = repr) -> str:
    """Return names as text, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(show, names[:SHOWN])) + more if names else "none"


def did_you_mean(words: Iterable[str], names: Iterable[str]) -> str:
    """Return ``; did you mean 'count'?`` with the name that is closest to each word.

    Return nothing if no name is close to a word.
    """
    alike = {one.casefold(): one for one in names}
    close = [alike[one] for word in words for one in difflib.get_close_matches(word.casefold(), list(alike), 1)]
    return f"; did you mean {listed(close)}?" if close else ""


def install_extra(extra: str) -> str:
    """Return how to install the packages of an extra.

    The command needs a clone, because the package index does not have torchonline.
    """
    return f'pip install ".[{extra}]" in a clone of torchonline'


def needs(caller: str, extra: str, *packages: str) -> None:
    """Raise an ImportError if a package of an extra is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"{caller}: expected {', '.join(packages)}, got no {package}; {install_extra(extra)}")
