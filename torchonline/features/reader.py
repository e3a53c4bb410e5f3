"""Reader of rows of a table: each value becomes one number, its code.

The module needs only Python: copy it to where torchonline is not installed. TorchScript compiles the functions that read a text.
There a text is a string of bytes, so Python passes them a string with one character for each byte of UTF-8.
"""

import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

TOKEN = re.compile(rb"[0-9a-z\x80-\xff]+")
# What stripped() takes off.
SPACES = " \t\n\v\f\r"
# Dates lie in the years 1 to 9999. A number above is often in milliseconds, and its features would swamp all others.
LAST_SECOND = 253402300800.0


def bucket_of(code: int, buckets: int) -> int:
    """Return the bucket of a hash: 0 to ``buckets`` - 1."""
    # The odd multiplier is 2^21 over the golden ratio, so that products with a hash are exact in float64.
    return (((code * 1296111) & 0xFFFFFFFF) * buckets) >> 32


def is_digit(text: str, i: int) -> bool:
    """Return whether there is a digit at a place of a text."""
    return i >= 0 and i < len(text) and ord(text[i]) >= 48 and ord(text[i]) <= 57


def stripped(text: str) -> str:
    """Return a text without blanks, tabs and line breaks at its ends."""
    first, last = 0, len(text)
    while first < last and (ord(text[first]) == 32 or (ord(text[first]) >= 9 and ord(text[first]) <= 13)):
        first += 1
    while first < last and (ord(text[last - 1]) == 32 or (ord(text[last - 1]) >= 9 and ord(text[last - 1]) <= 13)):
        last -= 1
    return text[first:last]


def with_plain_blanks(text: str) -> str:
    """Return a text with thin and non-breaking spaces replaced by plain ones."""
    found = ""
    i = 0
    while i < len(text):
        c = ord(text[i])
        after = ord(text[i + 1]) if i + 1 < len(text) else 0
        last = ord(text[i + 2]) if i + 2 < len(text) else 0
        if c == 194 and after == 160:
            found += " "
            i += 2
        elif c == 226 and after == 128 and (last == 137 or last == 175):
            found += " "
            i += 3
        else:
            found += text[i]
            i += 1
    return found


def without_point(text: str) -> str:
    """Return "3" for "3.0", which programs write for integers with gaps among them."""
    point = text.find(".")
    if point < 1 or point == len(text) - 1:
        return text
    for i in range(len(text)):
        is_sign = i == 0 and point > 1 and text[0] == "-"
        if (i < point and not is_sign and not is_digit(text, i)) or (i > point and text[i] != "0"):
            return text
    return text[:point]


def is_gap(text: str, missing: str) -> bool:
    """Return whether a text is empty or one of the words, each between commas."""
    return len(text) == 0 or (text.find(",") < 0 and missing.find("," + text.lower() + ",") >= 0)


def parsed_number(text: str, decimal: str, unit: str, missing: str) -> float:
    """Return the number in a text: NaN for a gap, infinity for anything else.

    Args:
        text: digits, with an optional sign or accounting parentheses, separators of thousands, a decimal mark, an exponent, and
            the unit before or after the number.
        decimal: decimal mark, ``"."`` or ``","``. The other one separates thousands, like a blank and an apostrophe.
        unit: the only currency or unit that a text may have, without blanks; "" for none.
        missing: words that stand for a gap, as in :func:`is_gap`.
    """
    text = stripped(text)
    if is_gap(text, missing):
        return math.nan
    if len(text) > 64:
        return math.inf
    text = stripped(with_plain_blanks(text))
    size = len(text)
    first = 0
    while first < size and not is_digit(text, first):
        first += 1
    last = size - 1
    while last >= 0 and not is_digit(text, last):
        last -= 1
    if first >= size:
        return math.inf
    # A mark after a letter is that of an abbreviation.
    if first > 0 and text[first - 1] == decimal and (first == 1 or not text[first - 2].isalpha()):
        first -= 1
    if last + 1 < size and text[last + 1] == decimal:
        last += 1
    before, after = text[:first], stripped(text[last + 1 :])
    is_negative = before.find("-") >= 0
    if before.find("(") >= 0 and after.find(")") >= 0:
        is_negative = True
        after = stripped(after.replace(")", ""))
        before = before.replace("(", "")
    elif is_negative:
        before = before.replace("-", "", 1)
    else:
        before = before.replace("+", "", 1)
    found = stripped(before) + after
    if len(found) > 0 and found != unit:
        return math.inf
    # Copy the digits. A separator of thousands needs three digits after it.
    number, since, places, exponent = "", -1, -1, -1
    i = first
    while i <= last:
        c = text[i]
        if is_digit(text, i):
            number += c
            if exponent >= 0:
                exponent += 1
            elif places >= 0:
                places += 1
            elif since >= 0:
                since += 1
        elif exponent >= 0:
            return math.inf
        elif c == decimal:
            if places >= 0 or (since >= 0 and since != 3):
                return math.inf
            number += "."
            places = 0
        elif (c == "e" or c == "E") and is_digit(text, last):
            if i + 1 <= last and (text[i + 1] == "-" or text[i + 1] == "+"):
                number += "e" + text[i + 1]
                i += 1
            else:
                number += "e"
            exponent = 0
        elif places < 0 and (since < 0 or since == 3) and (c == "," or c == "." or c == " " or c == "'"):
            since = 0
        else:
            return math.inf
        i += 1
    if (since >= 0 and since != 3) or exponent > 2 or exponent == 0 or number == ".":
        return math.inf
    value = float(number)
    return -value if is_negative else value


def parsed_boolean(text: str, missing: str) -> float:
    """Return 1 or 0 for a word such as "yes" or "F"; NaN for a gap, else infinity."""
    text = stripped(text)
    if is_gap(text, missing):
        return math.nan
    if text.find(",") >= 0:
        return math.inf
    word = "," + text.lower() + ","
    if ",true,yes,t,y,1,on,1.0,".find(word) >= 0:
        return 1.0
    if ",false,no,f,n,0,off,0.0,".find(word) >= 0:
        return 0.0
    return math.inf


def days_of(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a date; -10^9 if there is no such date."""
    if month < 1 or month > 12 or day < 1 or year < 1 or year > 9999:
        return -1000000000
    is_leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    longest = 31
    if month == 4 or month == 6 or month == 9 or month == 11:
        longest = 30
    elif month == 2:
        longest = 29 if is_leap else 28
    if day > longest:
        return -1000000000
    # Years begin in March, so that the leap day is the last day.
    y = year - 1 if month <= 2 else year
    m = month + 9 if month <= 2 else month - 3
    return 365 * y + y // 4 - y // 100 + y // 400 + (153 * m + 2) // 5 + day - 1 - 719468


def parsed_date(text: str, order: str, missing: str) -> float:
    """Return the seconds from 1970 to a date, in UTC: NaN for a gap, else infinity.

    Args:
        text: a date, with an optional time, fraction of a second, "am" or "pm", and zone; no zone means UTC.
        order: ``"ymd"``, ``"dmy"`` or ``"mdy"``. A year has four digits, or two for 1969 to 2068 if it is last.
        missing: words that stand for a gap, as in :func:`is_gap`.
    """
    text = stripped(text)
    if is_gap(text, missing):
        return math.nan
    size = len(text)
    if size > 64:
        return math.inf
    # Read up to three numbers of the date and three of the time.
    numbers = [0, 0, 0, 0, 0, 0]
    digits = [0, 0, 0, 0, 0, 0]
    i, n = 0, 0
    separator = ""
    while n < 6 and i < size:
        start = i
        while is_digit(text, i) and i - start < 5:
            numbers[n] = 10 * numbers[n] + ord(text[i]) - 48
            i += 1
        digits[n] = i - start
        if digits[n] == 0:
            return math.inf
        n += 1
        if i >= size or n == 6:
            break
        c = text[i]
        if n < 3:
            if c != "-" and c != "/" and c != ".":
                return math.inf
            if n == 2 and c != separator:
                return math.inf
            separator = c
            i += 1
        elif n == 3:
            if c != "T" and c != "t" and c != " ":
                return math.inf
            while i < size and (text[i] == "T" or text[i] == "t" or text[i] == " "):
                i += 1
        elif c == ":":
            i += 1
        else:
            break
    if n < 3 or n == 4:
        return math.inf
    place = 2
    if order == "ymd":
        place = 0
    year = numbers[place]
    if digits[place] == 2 and place == 2:
        year = year + 1900 if year > 68 else year + 2000
    elif digits[place] != 4:
        return math.inf
    month, day = numbers[1], numbers[2]
    if order == "dmy":
        day = numbers[0]
    elif order == "mdy":
        month, day = numbers[0], numbers[1]
    for k in range(6):
        if k != place and digits[k] > 2:
            return math.inf
    days = days_of(year, month, day)
    fraction = 0.0
    if i < size and n == 6 and (text[i] == "." or text[i] == ","):
        i += 1
        start = i
        micro = 0
        while is_digit(text, i):
            if i - start < 6:
                micro = 10 * micro + ord(text[i]) - 48
            i += 1
        if i == start:
            return math.inf
        for _ in range(6 - (i - start)):
            micro *= 10
        fraction = micro / 1e6
    rest = stripped(text[i:]).lower()
    hour = numbers[3]
    if rest.startswith("am") or rest.startswith("pm"):
        if n < 5 or hour < 1 or hour > 12:
            return math.inf
        hour = hour % 12 + (12 if rest.startswith("pm") else 0)
        rest = stripped(rest[2:])
    offset = 0
    if rest == "z" or rest == "utc" or rest == "+00" or rest == "gmt":
        rest = ""
    elif len(rest) > 0:
        sign = rest[0]
        clock = rest[1:]
        if len(clock) == 5 and clock[2] == ":":
            clock = clock[:2] + clock[3:]
        if (sign != "+" and sign != "-") or n < 5 or (len(clock) != 2 and len(clock) != 4):
            return math.inf
        for k in range(len(clock)):
            if not is_digit(clock, k):
                return math.inf
        hours, minutes = int(clock[:2]), int(clock[2:]) if len(clock) == 4 else 0
        if hours > 23 or minutes > 59:
            return math.inf
        offset = 3600 * hours + 60 * minutes
        if sign == "-":
            offset = -offset
    if days == -1000000000 or hour > 23 or numbers[4] > 59 or numbers[5] > 60:
        return math.inf
    return float(86400 * days + 3600 * hour + 60 * numbers[4] + numbers[5] - offset) + fraction


def as_bytes(text: str) -> str:
    """Return a text with one character for each byte of its UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


def hashed(text: str) -> int:
    """Return the hash of a category or token: the CRC-32 of its UTF-8."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or NA."""
    if hasattr(value, "__len__"):  # a text, or an array, which cannot be compared
        return False
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA is neither equal nor not
        return True


def number_in(value: Any) -> float | None:
    """Return a value as a float, or None if it is not a number."""
    if hasattr(value, "__len__"):  # Python reads text and bytes, and arrays of one number
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def code_of_number(value: Any, column: Mapping[str, Any], missing: str) -> float:
    """Return the code of a number: itself, NaN for a gap, infinity if it is none."""
    if isinstance(value, str):
        return parsed_number(as_bytes(value), column["decimal"], as_bytes(column["unit"]), missing)
    number = number_in(value)
    return math.inf if number is None else number


def code_of_boolean(value: Any, column: Mapping[str, Any], missing: str) -> float:
    """Return the code of a boolean: 1 or 0, NaN for a gap, infinity if it is none."""
    if isinstance(value, str):
        return parsed_boolean(as_bytes(value), missing)
    number = number_in(value)
    return number if number is not None and number in (0.0, 1.0) else math.inf


def code_of_date(value: Any, column: Mapping[str, Any], missing: str) -> float:
    """Return the code of a date: seconds since 1970 in UTC."""
    if isinstance(value, str):
        return parsed_date(as_bytes(value), column["order"], missing)
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        whole = moment.replace(microsecond=0) - datetime(1970, 1, 1, tzinfo=UTC)
        return float(86400 * whole.days + whole.seconds) + moment.microsecond / 1e6
    number = number_in(value)
    return math.inf if number is None or abs(number) > LAST_SECOND else number


def text_of(value: Any) -> str | None:
    """Return the text of a category: a text, a boolean's word or an integer; or None."""
    if isinstance(value, str):
        return value.strip(SPACES)
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return str(bool(value))
    number = number_in(value)
    if number is None or number != number // 1 or abs(number) > 2.0**53:
        return None
    return str(int(number))


def category_of(value: Any) -> str | None:
    """Return the text of a category or an action; or None."""
    text = text_of(value)
    return None if text is None else without_point(text)


def code_of_category(value: Any, column: Mapping[str, Any], missing: str) -> float:
    """Return the code of a category: its hash, NaN for an empty text."""
    text = category_of(value)
    if text is None:
        return math.inf
    return float(hashed(text)) if text else math.nan


def buckets_of_text(value: Any, buckets: int) -> list[int] | None:
    """Return the bucket of each token of a text, or None if it is not text."""
    text = text_of(value)
    if text is None:
        return None
    return [
        bucket_of(zlib.crc32(word), buckets) for word in TOKEN.findall(text.encode("utf-8", "surrogatepass").lower())
    ]


CODES: dict[str, Callable[[Any, Mapping[str, Any], str], float]] = {
    "number": code_of_number,
    "boolean": code_of_boolean,
    "date": code_of_date,
    "category": code_of_category,
}


def code_of(value: Any, column: Mapping[str, Any], missing: str) -> float:
    """Return the code of a value in a column of any kind but text."""
    return math.nan if is_missing(value) else CODES[column["kind"]](value, column, missing)


def counts_of(value: Any, column: Mapping[str, Any]) -> list[float]:
    """Return the number of tokens of a text in each bucket."""
    tokens = [] if is_missing(value) else buckets_of_text(value, column["buckets"])
    counts = [0.0 if tokens is not None else math.inf] * column["buckets"]
    for place in tokens or ():
        counts[place] += 1.0
    return counts


def codes_of(row: Mapping[str, Any], schema: Mapping[str, Any]) -> list[float]:
    """Return the codes of a row. A missing name is a gap.

    A value that its column does not take has the code infinity, with which an exported file neither decides nor learns.

    Args:
        row: values by the name of the column.
        schema: the schema of a :class:`~torchonline.features.ColumnEncoder`, as from :func:`read_schema`.
    """
    codes: list[float] = []
    for column in schema["columns"]:
        value = row.get(column["name"])
        if column["kind"] == "text":
            codes += counts_of(value, column)
        else:
            codes.append(code_of(value, column, schema["missing"]))
    return codes


def read_schema(schema: Any) -> dict[str, Any]:
    """Return a schema from its JSON: a text, bytes, or a tensor of bytes."""
    found: dict[str, Any] = json.loads(bytes(schema.tolist()) if hasattr(schema, "tolist") else schema)
    return found
