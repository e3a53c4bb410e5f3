"""Proposal of the kinds of columns of a table."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from torchonline.core.checks import positive_integer
from torchonline.core.messages import listed
from torchonline.features.reader import (
    SPACES,
    as_bytes,
    category_of,
    code_of,
    code_of_boolean,
    is_missing,
    parsed_date,
    parsed_number,
    text_of,
    with_plain_blanks,
)
from torchonline.features.rows import RowReader, native, plain_numbers
from torchonline.features.schema import make_schema, words_of_gaps

# Text with this many words, and a value of its own in half of the rows, is a text too.
WORDS_OF_TITLE, SHARE_OF_TITLES = 2.0, 0.5
# A text column is a number, boolean or date if this share of its values is; the others are then errors.
ENOUGH = 0.9
# A category has a column for at most so many values.
MOST_VALUES = 16
# Text with this many words on average, and more values than most_values, is a text and not a category.
WORDS_OF_TEXT = 4.0
# If none of the first values is a number or date, the column is something else.
FIRST = 100
# A text of its own in this share of so many rows is an id.
ROWS_OF_ID, SHARE_OF_IDS = 20, 0.9
# Columns for rare and new values of a category with more values than have a column each, and with fewer.
BUCKETS, BUCKETS_OF_NEW = 8, 1
# A value needs this many rows, and this share of them, to get a column.
ROWS_OF_VALUE, SHARE_OF_VALUE = 2, 0.001
# Bins of a number, if there are at most so many features.
BINS, MOST_FEATURES = 8, 128
NUMBER = re.compile(r"[0-9.,' +()-]+|(?<=[0-9.])[eE](?=[-+0-9])")
LEADING_ZERO = re.compile(r"^\s*0[0-9]")


def proposed(
    frame: Any,
    columns: Sequence[str] | None,
    kinds: Mapping[str, Any],
    missing: Sequence[str],
    most_values: int,
    bins: int | None,
    *,
    is_checked: bool = True,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the columns of a schema for a table, and why others were dropped.

    If ``is_checked``, a value that its column does not take is an error, which names all columns.
    """
    if isinstance(frame, (list, tuple)):
        frame = {name: [row.get(name) for row in frame] for name in dict.fromkeys(key for row in frame for key in row)}
    table = frame if isinstance(frame, Mapping) else native(frame)
    names = list(table) if isinstance(table, Mapping) else table.columns
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"columns: expected names of text, got {listed(wrong)}")
    chosen = list(names) if columns is None else list(columns)
    if unknown := [name for name in (*chosen, *kinds) if name not in names]:
        raise ValueError(f"columns: expected columns of the table, {listed(names)}, got {listed(unknown)}")
    positive_integer("most_values", most_values)
    words = words_of_gaps(missing)
    found: list[dict[str, Any]] = []
    dropped: dict[str, str] = {}
    for name in chosen:
        if name in kinds and kinds[name] is None:
            dropped[name] = "left out"
            continue
        rows = table[name] if isinstance(table, Mapping) else table[name].to_list()
        values = [value for value in rows if not is_missing(value)]
        has_gaps = len(values) < len(rows)
        given = kinds.get(name)
        options: dict[str, Any] = {} if given is None else {"kind": given} if isinstance(given, str) else dict(given)
        column, why = proposed_column(values, options.get("kind"), words, most_values, given is not None)
        if why:
            dropped[name] = why
            continue
        has_gaps = column.pop("has_gaps", False) or has_gaps
        full = {"name": name, **column}
        if column["kind"] != "text":
            full["gaps"] = has_gaps
        found.append(full | options)
    if not found:
        raise ValueError(f"columns: expected a column to encode, got none: {listed(dropped.items(), ': '.join)}")
    reader = RowReader(make_schema(found, missing))
    encoded = _rows(table, reader.names) if isinstance(table, Mapping) else frame
    codes = reader.codes(encoded) if is_checked else reader.codes_of_table(table)
    numbers = [(c, s) for c, s in zip(found, reader.starts, strict=True) if c["kind"] == "number" and "edges" not in c]
    if bins is None:
        bins = BINS if _features(found) + (BINS - 1) * len(numbers) <= MOST_FEATURES else 1
    for column, start in numbers:
        column["edges"] = _edges(codes[:, start], positive_integer("bins", bins))
    return found, dropped


def _features(columns: list[dict[str, Any]]) -> int:
    """Return about how many features columns have, without edges."""
    sizes = {"category": lambda c: len(c["values"]) + c["buckets"], "date": lambda c: 2 * len(c["parts"])}
    return sum(
        int(column.get("gaps", False)) + sizes.get(column["kind"], lambda c: c.get("buckets", 1))(full)
        for column, full in zip(columns, make_schema(columns)["columns"], strict=True)
    )


def _edges(values: np.ndarray, bins: int) -> list[float]:
    """Return edges between bins of about as many values each."""
    known = np.sort(values[np.isfinite(values)])
    # An edge at the largest value has nothing above it.
    places = [len(known) * i // bins for i in range(1, bins)]
    return sorted({float(known[place]) for place in places if known[place] < known[-1]}) if len(known) else []


def _rows(frame: Mapping[str, Any], names: list[str]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in zip(*(frame[name] for name in names), strict=True)]


def proposed_column(
    values: list[Any], kind: str | None, missing: str, most_values: int, is_wanted: bool
) -> tuple[dict[str, Any], str]:
    """Return the options of a column, or why it should be dropped.

    Args:
        values: the values that are not gaps.
        kind: the kind, if it is given.
        missing: words for a gap.
        most_values: number of values of a category with a column each.
        is_wanted: whether the column must be kept.
    """
    counts: Counter[Any] = Counter(value if isinstance(value, str) else _key(value) for value in values)
    if not is_wanted and len(counts) < 2:
        return {}, "no value" if not counts else "one value only"
    is_text = any(isinstance(value, str) for value in counts)
    if kind is None or kind in ("number", "date"):
        for one in ("number", "date") if kind is None else (kind,):
            column = _of_text(counts, one, missing) if is_text else _of_type(values, one)
            if column is not None:
                return column, ""
        if kind is not None:
            return {"kind": kind, "fill": 0.0}, ""
    if kind in (None, "boolean") and (
        is_text or kind is not None or all(isinstance(v, (bool, np.bool_)) for v in values)
    ):
        codes = {value: code_of_boolean(value, {}, missing) for value in counts}
        known = sum(counts[value] for value, code in codes.items() if code in (0.0, 1.0) or code != code)
        if kind is not None or known >= ENOUGH * len(values):
            share = sum(counts[value] for value, code in codes.items() if code == 1.0) / max(1, len(values))
            has_gaps = any(code != code for code in codes.values())
            return {"kind": "boolean", "fill": float(share >= 0.5), "has_gaps": has_gaps}, ""
    texts = Counter[Any]()
    for value, count in counts.items():
        texts[text_of(value) if kind == "text" else category_of(value)] += count
    if kind is None and texts[None] > (1.0 - ENOUGH) * len(values):
        return {}, "lists, or other values of no kind"
    del texts[None], texts[""]
    words = sum(count * len(text.split()) for text, count in texts.items()) / max(1, sum(texts.values()))
    rows = len(values)
    is_title = words >= WORDS_OF_TITLE and len(texts) >= SHARE_OF_TITLES * rows
    if kind == "text" or (kind is None and (words >= WORDS_OF_TEXT or is_title) and len(texts) > most_values):
        return {"kind": "text"}, ""
    if not is_wanted and rows >= ROWS_OF_ID and len(texts) >= SHARE_OF_IDS * rows:
        return {}, "nearly each row has a text of its own"
    fewest = max(ROWS_OF_VALUE, SHARE_OF_VALUE * rows)
    frequent = [text for text, count in texts.most_common(most_values) if count >= fewest]
    buckets = BUCKETS if len(texts) > len(frequent) + 1 else BUCKETS_OF_NEW
    return {"kind": "category", "values": sorted(frequent), "buckets": buckets}, ""


def _key(value: Any) -> Any:
    """Return a value that can be counted."""
    try:
        hash(value)
    except TypeError:
        return (repr(value),)
    return value


def _of_type(values: list[Any], kind: str) -> dict[str, Any] | None:
    """Return the options of a column of numbers or dates that are not text."""
    if not values or any(isinstance(value, (bool, np.bool_)) for value in values):
        return None
    column = {"kind": kind, "order": "ymd", "decimal": ".", "unit": ""}
    is_date = [hasattr(value, "year") for value in values]
    if (kind == "date" and not all(is_date)) or (kind == "number" and any(is_date)):
        return None
    codes = [code_of(value, column, "") for value in values]
    finite = [code for code in codes if code - code == 0]
    if len(finite) < ENOUGH * len(codes):
        return None
    options: dict[str, Any] = {"kind": kind, "fill": float(median(finite))}
    return options | ({"parts": _parts(finite)} if kind == "date" else {})


def _of_text(counts: Counter[Any], kind: str, missing: str) -> dict[str, Any] | None:
    """Return the options of a column of texts that are numbers or dates; else None."""
    texts = {as_bytes(text if isinstance(text, str) else str(text)): count for text, count in counts.items()}
    if kind == "date":
        return _of_dates(texts, missing)
    if any(LEADING_ZERO.match(text) for text in texts):  # a code, such as a postcode
        return None
    plain = _plain(texts, missing)
    if plain is not None:
        return {"kind": "number", "fill": plain}
    units = Counter[str]()
    for text, count in texts.items():
        if any(c.isdigit() for c in text):
            units[NUMBER.sub("", with_plain_blanks(text)).strip(SPACES)] += count
    unit = next((one for one, _ in units.most_common() if one and _is_unit(one, texts)), "")
    parsers = {decimal: partial(parsed_number, decimal=decimal, unit=unit, missing=missing) for decimal in (".", ",")}
    best = _best(texts, parsers)
    if best is None:
        return None
    decimal, finite, has_gaps = best
    unit = unit.encode("latin-1").decode("utf-8", "replace")
    return {"kind": "number", "fill": float(median(finite)), "decimal": decimal, "unit": unit, "has_gaps": has_gaps}


def _plain(texts: Mapping[str, int], missing: str) -> float | None:
    """Return the median of texts that are all plain numbers, else None."""
    numbers = plain_numbers(list(texts), missing)
    return None if numbers is None else float(np.median(np.repeat(numbers, list(texts.values()))))


def _best(
    texts: Mapping[str, int], parsers: Mapping[str, Callable[[str], float]]
) -> tuple[str, list[float], bool] | None:
    """Return the parser that reads most texts, the numbers, and if there are gaps.

    Return None if it does not read enough.
    """
    best: tuple[int, str, dict[str, float]] = (0, "", {})
    for name, parse in parsers.items():
        codes: dict[str, float] = {}
        for i, text in enumerate(texts):
            codes[text] = parse(text)
            if i == FIRST and not any(code - code == 0 for code in codes.values()):
                break  # text of another kind
        known = sum(texts[text] for text, code in codes.items() if code - code == 0)
        if known > best[0]:
            best = known, name, codes
    gaps = sum(texts[text] for text, code in best[2].items() if code != code)
    if best[0] == 0 or best[0] < ENOUGH * (sum(texts.values()) - gaps):
        return None
    return best[1], [code for text, code in best[2].items() if code - code == 0 for _ in range(texts[text])], gaps > 0


def _is_unit(unit: str, texts: Mapping[str, int]) -> bool:
    """Return whether letters are a unit, not part of a name such as "u12"."""
    is_currency = len(unit) == 3 and unit.isupper()
    numbers = [text.lstrip("+-( ") for text in texts if any(map(str.isdigit, text))]
    return (
        is_currency or not any(c.isalpha() and c.isascii() for c in unit) or all(one[:1].isdigit() for one in numbers)
    )


def _of_dates(texts: Mapping[str, int], missing: str) -> dict[str, Any] | None:
    # A month first is preferred, as pandas does, where both orders can be read.
    parsers = {order: partial(parsed_date, order=order, missing=missing) for order in ("ymd", "mdy", "dmy")}
    best = _best(texts, parsers)
    if best is None:
        return None
    order, finite, has_gaps = best
    parts = _parts(finite)
    return {"kind": "date", "fill": float(median(finite)), "order": order, "parts": parts, "has_gaps": has_gaps}


def _parts(codes: list[float]) -> list[str]:
    """Return the parts of dates, in the order of their rows, that can be learnt."""
    span = max(codes) - min(codes)
    lengths = {"day": 0.0 if any(code % 86400.0 != 0.0 for code in codes) else math.inf, "week": 14.0, "year": 730.0}
    parts = [part for part, days in lengths.items() if span >= days * 86400.0]
    ascends = all(first <= later for first, later in pairwise(codes))
    return parts if parts and ascends else ["age", *parts]
