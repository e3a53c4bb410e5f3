"""Errors of the configuration parser in one line."""

import re

from torchonline.command_line import COMMANDS

# Lines about the parser's search, which do not name the error.
FRAME = re.compile(
    r"Does not validate against any of the Union|Subtypes:|Errors:$|Given value type:|Problem with given class_path|"
    r"Expected (a )?<class 'NoneType'>|Expected a path but .* either not accessible|Not a valid subclass|"
    r"Subclass types expect one of:|a class path \(str\)$|a dict with(out)? "
)
# `Parser key "a":`, possibly followed by a message.
KEY = re.compile(r"Parser key \"([^\"]+)\":\s*(.*)")
# Among the attempts for one key, a class of another kind is the least informative, and an unknown name the most.
OTHER_KIND = re.compile(r"Import path (.* )?does not correspond to a subclass of|Expected a <class '(list|dict)'>")
NO_CLASS = re.compile(r"Expected a dot import path string: (.*)")
# Arguments of a command, which begin with its name.
MISSING = re.compile(rf"\b({'|'.join(COMMANDS)})\.(\w+)")
# The value that fits no alternative is printed after them. The message of one alternative may also name it.
GIVEN = re.compile(r"Given value: (?!NestedArg|Namespace)(.*)")
WITHOUT_VALUE = re.compile(r"Expected (?!.*[Gg]ot )|Import path does not")


def one_line(message: str) -> str:
    r"""Reduce a parser's message to the path of keys and the error there.

    The parser prints a tree of all its attempts. The result is the deepest leaf, and the first of several.

    Example:
        >>> one_line('Parser key "model":\n  Problem with given class_path a.B:\n    Parser key "dim":\n      Expected a number')
        'model.dim: Expected a number'
    """
    found: tuple[list[str], str, int] | None = None
    keys: list[tuple[int, str]] = []  # with their indentation
    is_tree = False
    for whole in filter(str.strip, message.splitlines()):
        line = whole.strip().removeprefix("- ")
        indent = len(whole) - len(whole.lstrip())
        keys = [(depth, key) for depth, key in keys if depth < indent]
        if key := KEY.match(line):
            keys.append((indent, key.group(1)))
            line = key.group(2)
        if line.startswith("Given value:"):
            given = GIVEN.match(line)
            if given and found and WITHOUT_VALUE.match(found[1]):
                found = found[0], f"{found[1]}, got {given.group(1)}", found[2]
            continue
        if not line or FRAME.match(line):
            is_tree = is_tree or bool(line)
            continue
        rank = -1 if OTHER_KIND.match(line) else 0
        if unknown := NO_CLASS.match(line):
            line = f"expected a class, got {unknown.group(1)}: no known name, and no path such as package.Class"
            rank = 1
        if found is None or (len(keys), rank) > (len(found[0]), found[2]):
            found = [key for _, key in keys], line, rank
    if found is None or not (found[0] or is_tree):
        text = " ".join(message.split())
        return MISSING.sub(r"--\2", text) if text.startswith("the following arguments are required") else text
    return ": ".join(filter(None, (".".join(found[0]), found[1])))
