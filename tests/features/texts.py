"""Messy texts for tests: numbers, dates, words and noise."""

import random
from typing import Any

import numpy as np

# Pieces that readers trip over.
PIECES = [
    *"0123456789",
    *"+-.,'() \t\n/:%$eETzZ?_",
    "\u00a0",
    "\u2009",
    "\u202f",
    "\u2003",
    "\u20ac",
    "\u00c0",
    "\u0660",
    "\u00b2",
    "\U0001f600",
    "\x00",
    "\x1c",
    "am",
    "PM",
    "nan",
    "N/A",
    "null",
    "inf",
    "true",
    "No",
    "CHF",
    "kg",
    "UTC",
    "1e",
    "e-5",
    "E+12",
    "1,234",
    "1.234,5",
    "2024-02-29",
    "31/12/1999",
    "23:59:59",
    ".123456789",
    "+02:00",
    "-0530",
]
KNOWN = [
    *(
        "",
        " ",
        "-",
        ".",
        "NA",
        "n/A",
        "nan",
        "?",
        "None",
        "0",
        "-0",
        "+5",
        "--3",
        "+-3",
        "(3)",
        "-(3)",
        "((3))",
        "(3",
        "3)",
    ),
    *(
        "12,",
        "12.",
        ".5",
        "-.5",
        "..5",
        "5..",
        "1.2e",
        "1.2e3",
        "1.2E-03",
        "1e400",
        "1e100",
        "1e-400",
        "1e99",
        "1e",
        "e5",
    ),
    *(
        "1,234",
        "12,34",
        "1,23,456",
        "1'234'567.89",
        "1 234,5",
        "1\u00a0234",
        "1\u2009234",
        "\u00a05",
        "5\u00a0",
        "$5",
        "5 $",
    ),
    *(
        "$-5",
        "-$5",
        "($5)",
        "5 kg",
        "CHF 1'234.50",
        "CHF.500",
        "12%",
        "1_000",
        "0x1a",
        "infinity",
        "\u0661\u0662",
        "5\x00",
    ),
    *(
        "true",
        "T",
        "YES",
        "1.0",
        "off",
        "0.0",
        "yes,no",
        ",yes,",
        "2020-02-30",
        "2020-02-29",
        "1900-02-29",
        "2000-02-29",
    ),
    *(
        "1/2/2020",
        "13/2/2020",
        "2/13/2020",
        "1.2.69",
        "1.2.68",
        "2020-1-2",
        "2020/1-2",
        "20200102",
        "0000-01-01",
        "10000-01-01",
    ),
    *(
        "2020-01-02T",
        "2020-01-02T3",
        "2020-01-02T3:4",
        "2020-01-02 3:4:5",
        "2020-01-02 3:4:5.",
        "2020-01-02 3:4:5.6789012",
    ),
    *("2020-01-02 12:00 am", "2020-01-02 12:00PM", "2020-01-02 13:00 pm", "2020-01-02 0:00 am", "2020-01-02 24:00"),
    *("2020-01-02 3:4Z", "2020-01-02 3:4 +0230", "2020-01-02 3:4-02", "2020-01-02 3:4 +2", "2020-01-02 3:4 +25:00"),
    *(
        "2020-01-02 3:4 +00:60",
        "2020-01-02 3:4 EST",
        "2020-01-02Z",
        "2020-01-02 3:4:60",
        "2020-01-02 3:4:61",
        "9" * 64,
        "9" * 65,
    ),
    *("1" * 5000, "\U0001f600", "a\x00b", "\u0130", "\u212a", "0" * 30 + "1" + "0" * 30),
]


def noise(count: int, seed: int) -> list[str]:
    """Return known texts, and random ones of pieces."""
    dice = random.Random(seed)
    made = ["".join(dice.choices(PIECES, k=dice.randint(1, 7))) for _ in range(count)]
    return [*KNOWN, *made, *(dice.choice(KNOWN) + dice.choice(PIECES) for _ in range(count // 4))]


def numbers(count: int, seed: int) -> list[str]:
    """Return texts of numbers, in many styles."""
    dice = random.Random(seed)
    found = []
    for _ in range(count):
        value = dice.choice(
            [dice.uniform(-1e6, 1e6), dice.gauss(0, 1), dice.randint(-(10**9), 10**9), dice.random() * 1e-9]
        )
        style = dice.choice(
            ["{!r}", "{:,}", "{:,.2f}", "{:.3e}", "{:+.1f}", " {:.4g}\t", "${:,.2f}", "{:.1f} kg", "({:.2f})"]
        )
        found.append(style.format(value))
    return found


def dates(count: int, seed: int) -> list[str]:
    """Return texts of dates, some of which do not exist."""
    dice = random.Random(seed)
    found = []
    for _ in range(count):
        year, month, day = dice.randint(1, 2100), dice.randint(0, 13), dice.randint(0, 32)
        text = dice.choice(
            [
                f"{year:04}-{month:02}-{day:02}",
                f"{day}/{month}/{year:04}",
                f"{month}.{day}.{year:04}",
                f"{month}/{day}/{year % 100:02}",
            ]
        )
        if dice.random() < 0.7:
            text += dice.choice([" ", "T", "  "]) + f"{dice.randint(0, 25)}:{dice.randint(0, 61):02}"
            text += dice.choice(
                ["", f":{dice.randint(0, 61):02}", f":{dice.randint(0, 59):02}.{dice.randint(0, 10**9)}"]
            )
            text += dice.choice(["", " am", "PM", "Z", " +01:00", "-0545", " utc", "+14", " +24:00", " pm +01:00"])
        found.append(text)
    return found


def bits(values: Any) -> list[int]:
    """Return numbers as integers, with one NaN."""
    numbers = np.array(values.tolist() if hasattr(values, "tolist") else values, dtype=np.float64)
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.int64).tolist()
