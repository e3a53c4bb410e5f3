"""Writes the arguments of an estimator into the docstrings of the policies that take the same ones.

    python -m tests.policy_arguments

An editor reads docstrings from the source, so the words stand there; they are written once, in the docstring of the estimator or
of its base class, and copied by this script. Baselines refer to their estimators instead. A test in test_architecture.py makes
the sections again, and compares.
"""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

from docs.site_parts.arguments import WIDTH, arguments_of
from tests.learners import public_classes
from torchonline.policies.rules import Rule


def policies() -> dict[Any, Any]:
    """Each policy that takes an estimator's arguments, and the class of that estimator."""
    named = [cls for cls in public_classes(Rule) if "estimator" not in inspect.signature(cls).parameters]
    required: dict[str, Any] = {"horizon": 7, "discount": 0.9}
    wanted = {cls: inspect.signature(cls).parameters for cls in named}
    options = {cls: {name: value for name, value in required.items() if name in wanted[cls]} for cls in named}
    return {cls: type(cls(2, **options[cls]).estimator) for cls in named}


def arguments(cls: Any, estimator: Any) -> str:
    """The section ``Args:`` of a policy: the estimator's, or of a baseline, a reference to it."""
    if not cls.__module__.startswith("torchonline.baselines"):
        return arguments_of(estimator)
    text, lines = f": as in :class:`{estimator.__name__}`.", [""]
    for name in inspect.signature(estimator).parameters:
        longer = f"{lines[-1]}, {name}" if lines[-1] else name
        if len(longer + text) > WIDTH - 8:
            lines.append(name)
        else:
            lines[-1] = longer
    return "".join(["    Args:\n", *(f"        {names}{text}\n" for names in lines)])


def rewritten(text: str, name: str, section: str) -> str:
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
    inside[start:end] = [section + "\n"]
    if "\\" in section and inside[0].startswith('    """'):
        inside[0] = inside[0].replace('"""', 'r"""', 1)
    lines[first.lineno - 1 : first.end_lineno] = inside
    return "".join(lines)


def main() -> None:
    for cls, estimator in policies().items():
        path = Path(inspect.getsourcefile(cls) or "")
        text = path.read_text()
        new = rewritten(text, cls.__name__, arguments(cls, estimator))
        if new != text:
            path.write_text(new)
            print(path, cls.__name__)


if __name__ == "__main__":
    main()
