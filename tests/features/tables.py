"""Messy rows of a table of all kinds, and the encoder that reads them."""

import datetime
import random
from typing import Any

from torchonline.features import ColumnEncoder

UTC = datetime.UTC
COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "fill": 40.0, "edges": [-1.0, 18.0, 65.5]},
    "score": {"kind": "number", "fill": -0.25, "gaps": False},
    "pay": {"kind": "number", "decimal": ",", "unit": "\u20ac", "edges": [0.0, 1e3]},
    "price": {"kind": "number", "unit": "$"},
    "member": {"kind": "boolean", "fill": 1.0},
    "new": {"kind": "boolean", "gaps": False},
    "country": {"kind": "category", "values": ["CH", "DE", "Z\u00fcrich", "\U0001f600", "7", "True"], "buckets": 5},
    "zip": {"kind": "category", "values": ["08000", "8000"], "buckets": 0},
    "shop": {"kind": "category", "buckets": 64, "gaps": False},
    "since": {"kind": "date", "fill": 1.6e9},
    "born": {"kind": "date", "order": "dmy", "parts": ["week", "year"], "gaps": False},
    "note": {"kind": "text", "buckets": 11},
}
GAPS: list[Any] = [None, float("nan"), ""]


def messy_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows that the columns take, of as many types as they take."""
    dice = random.Random(seed)
    return [{name: one for name, one in _row(dice).items() if dice.random() > 0.02} for _ in range(count)]


def _row(dice: random.Random) -> dict[str, Any]:
    words = ["NA", "n/a", "-", "?", " ", "NULL"]
    number = dice.choice(
        [dice.uniform(-100, 100), dice.randint(-5, 99), 0.0, -0.0, dice.gauss(0, 1) * 10 ** dice.randint(-8, 8)]
    )
    amount = dice.uniform(-5e6, 5e6)
    german = f"{amount:,.2f}".translate(str.maketrans(",.", ".,"))
    moment = datetime.datetime(1900, 1, 1) + datetime.timedelta(
        dice.uniform(0, 9e4), microseconds=dice.randint(0, 10**6)
    )
    zone = datetime.timezone(datetime.timedelta(minutes=dice.choice([-570, 0, 60, 345])))
    town = dice.choice(
        ["CH", " DE ", "Z\u00fcrich", "\U0001f600", "Bern\u00a0", "\u0130zmir", "\x00", "x" * 300, 7, 7.0, "7", True]
    )
    tokens = dice.choices(
        ["red", "RED", "caf\u00e9", "\u4e2d\u6587", "a-b", "12", "\U0001f680", "\t", "x_y", "ZZ"], k=dice.randint(0, 9)
    )
    return {
        "age": dice.choice(
            [number, number, repr(number), f" {number:+.3e} ", "1'234", "(7)", *GAPS, dice.choice(words)]
        ),
        "score": dice.choice([number, int(number), f"{number:.2f}", True, *GAPS[:2]]),
        "pay": dice.choice(
            [f"\u20ac {german}", f"{german} \u20ac", german, f"-\u20ac{dice.randint(0, 9)}", "(1.234,5)", amount, *GAPS]
        ),
        "price": dice.choice(
            [f"${abs(amount):,.2f}", f"(${abs(amount):,.1f})", "$.5", "12", 3, *GAPS, dice.choice(words)]
        ),
        "member": dice.choice([True, False, 1, 0.0, "yes", "F", "On", "1.0", *GAPS, dice.choice(words)]),
        "new": dice.choice([True, False, "no", "TRUE", None]),
        "country": dice.choice([town, town, dice.randint(-3, 9), f"new {dice.randint(0, 50)}", *GAPS]),
        "zip": dice.choice(["08000", "8000", 8000, 8000.0, "8001", *GAPS]),
        "shop": dice.choice(
            [f"shop {dice.randint(0, 400)}", f"l\u00e4den/{dice.randint(0, 40)}", dice.randint(0, 2**53), *GAPS]
        ),
        "since": dice.choice(
            [
                f"{moment}",
                f"{moment:%Y-%m-%d}",
                moment.replace(tzinfo=zone).isoformat(),
                moment,
                moment.date(),
                moment.replace(tzinfo=zone),
                f"{moment:%Y/%m/%d %I:%M %p}",
                dice.uniform(-6e10, 2.5e11),
                *GAPS,
                dice.choice(words),
            ]
        ),
        "born": dice.choice(
            [f"{moment:%d.%m.%Y}", f"{moment:%d/%m/%Y %H:%M:%S.%f}", f"{moment:%d-%m-%Y} 7:05 pm +0200", moment, None]
        ),
        "note": dice.choice([" ".join(tokens), "".join(tokens), dice.randint(-10, 10), *GAPS]),
    }


def encoder() -> ColumnEncoder:
    """Return the encoder of the rows."""
    return ColumnEncoder(COLUMNS)


def frame_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as columns, whose values are of any type."""
    return {name: [row.get(name) for row in rows] for name in COLUMNS}


def typed_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows whose columns have one type each, as typed tables have: text if a column has some."""
    return [{name: _typed(name, row.get(name)) for name in COLUMNS} for row in messy_rows(count, seed)]


def _typed(name: str, value: Any) -> Any:
    """Return a value in the type of its column."""
    is_gap = value is None or value == "" or value != value
    if name == "score":
        return None if is_gap else float(value)
    if name == "new":
        return None if is_gap else str(value).lower() in ("true", "1")
    if name == "born":
        return value if isinstance(value, datetime.datetime) else None
    if name in ("since", "pay") and isinstance(value, (int, float)):
        return None
    return None if value is None or value != value else str(value)


def as_dictionaries(row: dict[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """Return the values of a row as a file takes them: numbers, and texts."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    for name, value in row.items():
        if value is None:
            continue
        if isinstance(value, str):
            texts[name] = value
        elif isinstance(value, bool) and COLUMNS[name]["kind"] == "category":
            texts[name] = str(value)
        elif isinstance(value, datetime.date):
            moment = (
                value if isinstance(value, datetime.datetime) else datetime.datetime(value.year, value.month, value.day)
            )
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            gone = zoned - datetime.datetime(1970, 1, 1, tzinfo=UTC)
            numbers[name] = 86400.0 * gone.days + gone.seconds + gone.microseconds / 1e6
        else:
            numbers[name] = float(value)
    return numbers, texts
