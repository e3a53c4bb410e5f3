"""Arguments that a docstring documents by another class's docstring.

In the source, ``dim, dtype: as in :class:`Estimator`.`` saves a reader of the code from reading the same lines in every class.
A reader of the site has them in place.
"""

import textwrap
from typing import Any

from tests.policy_arguments import arguments_of


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
