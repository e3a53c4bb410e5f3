"""Errors of the parser of configurations, in one line."""

import re

# Lines about how the parser searched, and not about what is wrong.
FRAME = re.compile(
    r"Does not validate against any of the Union|Subtypes:|Errors:$|Given value|Problem with given class_path|"
    r"Expected a <class 'NoneType'>|Expected a path but .* either not accessible|Not a valid subclass"
)
KEY = re.compile(r"Parser key \"([^\"]+)\":\s*(.*)")
NO_CLASS = re.compile(r"Expected a dot import path string: (.*)")

OTHER_KIND = re.compile(r"Import path .* does not correspond to a subclass of|Expected a <class '(list|dict)'>")


def one_line(message: str) -> str:
    r"""Return what is wrong, after the path of keys that leads to it.

    The parser prints a tree of all that it tried. Kept is the leaf below the most keys, and of several the first.

    Example:
        >>> one_line('Parser key "model":\n  Problem with given class_path a.B:\n    Parser key "dim":\n      Expected a number')
        'model.dim: Expected a number'
    """
    found: tuple[list[str], str, int] | None = None
    keys: list[tuple[int, str]] = []  # with their indentation
    for whole in filter(str.strip, message.splitlines()):
        line = whole.strip().removeprefix("- ")
        indent = len(whole) - len(whole.lstrip())
        keys = [(depth, key) for depth, key in keys if depth < indent]
        if key := KEY.match(line):
            keys.append((indent, key.group(1)))
            line = key.group(2)
        if not line or FRAME.match(line):
            continue
        # Of what was tried for one key, a class of another kind says least, and an unknown name most.
        rank = -1 if OTHER_KIND.match(line) else 0
        if unknown := NO_CLASS.match(line):
            line = f"expected a class, got {unknown.group(1)}: no known name, and no path such as package.Class"
            rank = 1
        if found is None or (len(keys), rank) > (len(found[0]), found[2]):
            found = [key for _, key in keys], line, rank
    if found is None or not found[0]:
        return " ".join(message.split())
    return f"{'.'.join(found[0])}: {found[1]}"
