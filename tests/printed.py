"""What pages say that a program prints, compared with what it prints."""

import re

import pytest

NUMBER = re.compile(r"\d+\.?\d*")
# A page shows figures of more digits than this keeps, so that a stale one is found and the last bit of a sum is not.
TOLERANCE = 0.01
PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
# A comment after a call of print that begins with a number or a tensor is what it prints.
COMMENT = re.compile(r"^ *print\(.*\)  # (tensor\([^)]*\)|[\d.]+\b)", re.MULTILINE)


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Return the blocks of Python of a page, each with the block of text that follows it at once, or with nothing."""
    return [(code, shown) for code, shown in PYTHON.findall(page)]


def check_printed(shown: str, printed: str, tolerance: float = TOLERANCE) -> None:
    """Compare lines: words letter by letter, numbers within a relative ``tolerance``."""
    lines, found = shown.rstrip().splitlines(), printed.rstrip().splitlines()
    assert [NUMBER.sub("#", line).split() for line in found] == [NUMBER.sub("#", line).split() for line in lines], (
        printed
    )
    for line, expected in zip(found, lines, strict=True):
        numbers = [float(number) for number in NUMBER.findall(expected)]
        assert [float(number) for number in NUMBER.findall(line)] == pytest.approx(numbers, rel=tolerance), line


def check_comments(code: str, printed: str) -> None:
    """Find what comments say that is printed."""
    for shown in COMMENT.findall(code):
        assert {shown, f"tensor({shown})"} & {*printed.splitlines()}, f"{shown} is not printed"
