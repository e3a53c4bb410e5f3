"""Errors of the parser of configurations, in one line."""

import re

# Lines about how the parser searched, and not about what is wrong.
FRAME = re.compile(
    r"Does not validate against any of the Union|Subtypes:|Errors:$|Given value|Problem with given class_path|"
    r"Expected a <class 'NoneType'>|Expected a dot import path string|Not a valid subclass|tip:"
)
KEY = re.compile(r"Parser key \"([^\"]+)\":\s*(.*)")


def one_line(message: str) -> str:
    r"""Return what is wrong, after the path of keys that leads to it.

    The parser prints a tree of what it tried, and repeats the values. Kept are the first branch and the first leaf of it.

    Example:
        >>> one_line('Parser key "model":\n  Problem with given class_path a.B:\n    Parser key "dim":\n      Expected a number')
        'model.dim: Expected a number'
    """
    keys: list[str] = []
    for line in (line.strip().removeprefix("- ") for line in message.splitlines()):
        found = KEY.match(line)
        if found:
            keys.append(found.group(1))
            line = found.group(2)
        if line and not FRAME.match(line):
            return f"{'.'.join(keys)}: {line}" if keys else line
    return " ".join(message.split())
