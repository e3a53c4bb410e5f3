"""Schemas of columns: checks, defaults and JSON."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torchonline.core.checks import instance_of
from torchonline.core.messages import listed
from torchonline.features.reader import SPACES, without_point

# The options of each kind of column, with their defaults.
KINDS: dict[str, dict[str, Any]] = {
    "number": {"fill": 0.0, "edges": [], "gaps": True, "decimal": ".", "unit": ""},
    "boolean": {"fill": 0.0, "gaps": True},
    "category": {"values": [], "buckets": 16, "gaps": True},
    "date": {"fill": 0.0, "gaps": True, "order": "ymd", "parts": ["age", "day", "week", "year"]},
    "text": {"buckets": 32},
}
PARTS = ("age", "day", "week", "year")
ORDERS = ("ymd", "dmy", "mdy")
# Words for a gap in columns of numbers, dates and booleans, in any case.
MISSING = ("na", "n/a", "nan", "null", "none", "nil", "?", "-", ".")
MOST_BUCKETS = 1 << 20
# Types of columns by name in a configuration. Its parser would take the text "08001" for a number if they were Any.
Option = str | bool | int | float | list[str] | list[float]
Kinds = dict[str, str | dict[str, Option] | None]


def make_schema(columns: Any, missing: Sequence[str] = MISSING) -> dict[str, Any]:
    """Return a schema with all options, or raise one error for all columns.

    Args:
        columns: kinds by name, such as ``{"age": "number"}``, or options by name, such as ``{"age": {"kind": "number", "fill":
            40}}``; or a list of options that have a ``name``.
        missing: words that stand for a gap, see MISSING.
    """
    if isinstance(columns, Mapping):
        columns = [
            {"name": name, **(one if isinstance(one, Mapping) else {"kind": one})} for name, one in columns.items()
        ]
    if not isinstance(columns, (list, tuple)) or not columns:
        raise TypeError(f"columns: expected kinds of columns by name, got {columns!r}")
    words = words_of_gaps(missing)
    problems: list[str] = []
    found = [_with_defaults(column, problems) for column in columns]
    names = [column["name"] for column in found]
    if twice := sorted({str(name) for name in names if names.count(name) > 1}):
        problems.append(f"each column once, got {listed(twice)} more than once")
    if problems:
        raise ValueError(f"columns: expected {'; '.join(problems)}")
    return {"columns": found, "missing": words}


def words_of_gaps(missing: Sequence[str] = MISSING) -> str:
    """Return the words for a gap, each between commas, or raise."""
    words = instance_of("missing", missing, (list, tuple), "a list of words")
    if any(not isinstance(word, str) or "," in word or not word.isascii() for word in words):
        raise ValueError(f"missing: expected words of ASCII characters without a comma, got {list(words)}")
    return "".join(f",{word.strip().lower()}" for word in words if word.strip()) + ","


def _with_defaults(column: Any, problems: list[str]) -> dict[str, Any]:
    """Return a column with all options. Append what is wrong with it to a list."""
    column = dict(instance_of("columns", column, Mapping, "options of each column"))
    name, kind = column.pop("name", None), column.pop("kind", None)
    if not isinstance(name, str) or not name:
        problems.append(f"a name of text for each column, got {name!r}")
    if not isinstance(kind, str) or kind not in KINDS:
        problems.append(f"one of {listed(KINDS)} as the kind of {name!r}, got {kind!r}")
        return {"name": name, "kind": kind}
    options = KINDS[kind]
    if unknown := sorted(set(column) - set(options)):
        problems.append(f"options {listed(options)} of the {kind} {name!r}, got {listed(unknown)}")
    full = {"name": name, "kind": kind, **options, **{key: column[key] for key in options if key in column}}
    for key, value in full.items():
        if why := _reason(key, value):
            problems.append(f"{why} as {key} of {name!r}, got {value!r}")
            return full
    if kind == "category":
        full["values"] = list(dict.fromkeys(without_point(value.strip(SPACES)) for value in full["values"]))
        if not full["values"] and not full["buckets"]:
            problems.append(f"values or buckets of the category {name!r}, got none")
    if kind == "text" and not full["buckets"]:
        problems.append(f"buckets of the text {name!r}, got none")
    if kind in ("number", "boolean", "date"):
        full["fill"] = float(full["fill"])
    if kind == "number":
        full["edges"] = [float(edge) for edge in full["edges"]]
    if kind == "date":
        full["parts"] = [part for part in PARTS if part in full["parts"]]
    return full


def _reason(key: str, value: Any) -> str:
    """Return what is expected of an option, or "" if the value is right."""
    if key == "fill" and not _is_finite(value):
        return "a finite number"
    if key == "edges":
        is_list = isinstance(value, (list, tuple)) and all(map(_is_finite, value))
        if not is_list or any(low >= high for low, high in pairwise(value)):
            return "ascending finite numbers"
    if key == "gaps" and not isinstance(value, bool):
        return "True or False"
    if key == "decimal" and value not in (".", ","):
        return "'.' or ','"
    if key == "unit" and not isinstance(value, str):
        return "a text"
    if key == "order" and value not in ORDERS:
        return f"one of {listed(ORDERS)}"
    if key == "parts" and (
        not isinstance(value, (list, tuple)) or not value or any(part not in PARTS for part in value)
    ):
        return f"some of {listed(PARTS)}"
    if key == "values" and (
        not isinstance(value, (list, tuple)) or any(not isinstance(one, str) or not one.strip(SPACES) for one in value)
    ):
        return "a list of texts"
    if key == "buckets" and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_BUCKETS):
        return f"an integer from 0 to {MOST_BUCKETS}"
    return ""


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value - value == 0


def to_json(schema: Mapping[str, Any]) -> str:
    """Return a schema as JSON."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def width_of(column: Mapping[str, Any]) -> int:
    """Return the number of codes of a column."""
    return int(column["buckets"]) if column["kind"] == "text" else 1
