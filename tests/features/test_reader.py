"""The reader of values: known answers, the same as Python and zlib, and the same bits in TorchScript."""

import datetime
import math
import random
import zlib
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from tests.features import texts
from tests.features.texts import bits
from torchonline.features import ColumnEncoder, reader
from torchonline.features.reader import (
    as_bytes,
    code_of,
    days_of,
    is_missing,
    parsed_boolean,
    parsed_date,
    parsed_number,
)
from torchonline.features.rows import plain_numbers
from torchonline.features.schema import make_schema

pytestmark = pytest.mark.fast

WORDS = make_schema({"x": "number"})["missing"]
INF, NAN = math.inf, math.nan


def number(text: str, decimal: str = ".", unit: str = "") -> float:
    return parsed_number(as_bytes(text), decimal, as_bytes(unit), WORDS)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        *((gap, NAN) for gap in ("", "  ", "\t\n", "NA", "n/A", "NaN", "null", "NONE", "nil", "?", "-", ".", " - ")),
        ("0", 0.0),
        ("-0", -0.0),
        ("007", 7.0),
        (" +5\n", 5.0),
        ("12.", 12.0),
        (".5", 0.5),
        ("-.5", -0.5),
        ("- 5", -5.0),
        ("(5)", -5.0),
        ("( 1,234.5 )", -1234.5),
        ("1,234,567", 1234567.0),
        ("1 234 567.25", 1234567.25),
        ("1'234", 1234.0),
        ("1\u00a0234", 1234.0),
        ("1\u202f234\u2009567", 1234567.0),
        ("\u00a05\u00a0", 5.0),
        ("-\u00a05", -5.0),
        ("\u00a0", INF),
        ("1\u00a023", INF),
        ("5\xc2", INF),
        ("1.2e3", 1200.0),
        ("1E-05", 1e-5),
        ("1e+99", 1e99),
        *(
            (bad, INF)
            for bad in ("12,", "1.2e", "1.2e+", "e5", "--3", "+-3", "-+3", "-(3)", "(3", "3)", "5-", "..5", "5..")
        ),
        *(
            (bad, INF)
            for bad in ("12,34", "1,23,456", "1,2345", "1,234,", "1.2.3", "1.234,5", "1.5,000", "1e1e1", "1e1.5")
        ),
        *(
            (bad, INF)
            for bad in ("1e400", "1e100", "1e-400", "inf", "-Infinity", "0x10", "1_000", "5 6", "1-2", "$5", "5%")
        ),
        *((bad, INF) for bad in ("5\x00", "\u0661\u0662", "\u00b2", "1\u2003234", "5\x1c", "9" * 65, "a", "1,,234")),
    ],
)
def test_numbers(text: str, wanted: float) -> None:
    assert bits([number(text)]) == bits([wanted])


@pytest.mark.parametrize(
    ("text", "decimal", "unit", "wanted"),
    [
        ("1.234.567,5", ",", "", 1234567.5),
        ("12,5", ",", "", 12.5),
        ("12.5", ",", "", INF),
        ("1.234", ",", "", 1234.0),
        ("1,234.5", ",", "", INF),
        ("12,", ",", "", 12.0),
        ("$5", ".", "$", 5.0),
        ("-$5", ".", "$", -5.0),
        ("$-5", ".", "$", -5.0),
        ("($5.00)", ".", "$", -5.0),
        ("$(5.00)", ".", "$", -5.0),
        ("5 $", ".", "$", 5.0),
        ("5", ".", "$", 5.0),
        ("$5$", ".", "$", INF),
        ("\u20ac 5,50", ",", "\u20ac", 5.5),
        ("5 \u00a3", ".", "\u20ac", INF),
        ("5 kg", ".", "kg", 5.0),
        ("1\u202f234,50\u00a0\u20ac", ",", "\u20ac", 1234.5),
        ("5\u00a0\u00c5", ".", "\u00c5", 5.0),
        ("5 KG", ".", "kg", INF),
        ("5e3 kg", ".", "kg", 5000.0),
        ("5e", ".", "e", 5.0),
        ("CHF 1'234.50", ".", "CHF", 1234.5),
        # The mark after letters belongs to them, and not to the number.
        ("CHF.500", ".", "CHF", INF),
        ("Rs.500", ".", "Rs.", 500.0),
        ("Rs. 500", ".", "Rs.", 500.0),
        ("$.50", ".", "$", 0.5),
    ],
)
def test_numbers_with_a_unit(text: str, decimal: str, unit: str, wanted: float) -> None:
    assert bits([number(text, decimal, unit)]) == bits([wanted])


def test_plain_numbers_are_those_of_python() -> None:
    """What Python reads as a finite number is the same number here, or refused, and conversely."""
    found = 0
    for text in [*texts.numbers(3000, 1), *texts.noise(3000, 2)]:
        mine = number(text)
        try:
            theirs = float(text)
        except ValueError:
            continue
        if math.isfinite(theirs) and math.isfinite(mine):
            found += 1
            assert bits([mine]) == bits([theirs]), text
    assert found > 500


def test_the_fast_path_reads_what_the_parser_reads() -> None:
    found = 0
    for text in [*texts.numbers(3000, 3), *texts.noise(3000, 4)]:
        fast = plain_numbers([text], WORDS)
        if fast is not None:
            found += 1
            assert bits(fast) == bits([number(text)]), repr(text)
    assert found > 500
    assert plain_numbers(["1", None], WORDS) is None
    assert plain_numbers(["1", "999"], ",999,") is None


def test_booleans() -> None:
    for word in ("true", "YES", " t ", "Y", "1", "on", "1.0"):
        assert parsed_boolean(word, WORDS) == 1.0
    for word in ("False", "no", "F", "n", "0", "OFF", "0.0"):
        assert parsed_boolean(word, WORDS) == 0.0
    for word in ("", "NA", "-"):
        assert math.isnan(parsed_boolean(word, WORDS))
    for word in (",", "true,", ",yes,", "true,yes", "yess", "2", "01", "tr\u00fce", "e", "\x00"):
        assert parsed_boolean(as_bytes(word), WORDS) == INF


def test_days_are_those_of_python() -> None:
    epoch = datetime.date(1970, 1, 1)
    for year in [*range(1, 9999, 7), 1900, 2000, 2024, 9999]:
        for month in range(-1, 15):
            for day in (-1, 0, 1, 28, 29, 30, 31, 32):
                try:
                    wanted = (datetime.date(year, month, day) - epoch).days
                except ValueError:
                    wanted = -1000000000
                assert days_of(year, month, day) == wanted
    assert days_of(0, 1, 1) == days_of(10000, 1, 1) == -1000000000


@pytest.mark.parametrize("order", ["ymd", "dmy", "mdy"])
def test_dates_are_those_of_python(order: str) -> None:
    dice, epoch = random.Random(0), datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    form = {"ymd": "{0:%Y}-{0:%m}-{0:%d}", "dmy": "{0:%d}.{0:%m}.{0:%Y}", "mdy": "{0:%m}/{0:%d}/{0:%Y}"}[order]
    for _ in range(2000):
        zone = datetime.timezone(datetime.timedelta(minutes=dice.choice([0, 60, -330, 839, -1439])))
        when = datetime.datetime(dice.randint(1000, 9998), 1, 1, tzinfo=zone) + datetime.timedelta(
            seconds=dice.randint(0, 366 * 86400), microseconds=dice.choice([0, 1, 999999, dice.randint(0, 999999)])
        )
        gone = when - epoch
        wanted = 86400.0 * gone.days + gone.seconds + gone.microseconds / 1e6
        stamp = f"{form.format(when)} {when:%H:%M:%S.%f}{when:%z}"
        assert parsed_date(stamp, order, WORDS) == wanted
        clock = f"{form.format(when)}T{when:%I:%M:%S}.{when:%f}123 {when:%p} {when:%z}"
        assert parsed_date(clock, order, WORDS) == wanted
        assert code_of(when, {"kind": "date"}, WORDS) == wanted
        assert (
            code_of(when.replace(tzinfo=None), {"kind": "date"}, WORDS) == wanted + zone.utcoffset(None).total_seconds()
        )
        assert code_of(when.date(), {"kind": "date"}, WORDS) % 86400.0 == 0.0


@pytest.mark.parametrize(
    ("text", "order", "wanted"),
    [
        ("1970-01-01", "ymd", 0.0),
        ("1969-12-31 23:59:59.5", "ymd", -0.5),
        ("1970/1/2T", "ymd", 86400.0),
        ("1.1.70", "dmy", 0.0),
        ("1.1.69", "dmy", -31536000.0),
        ("1.1.68", "dmy", 3092601600.0),
        ("2/1/1970", "dmy", 86400.0),
        ("1/2/1970", "mdy", 86400.0),
        ("1970-01-01 12:00 am", "ymd", 0.0),
        ("1970-01-01 12:00pm", "ymd", 43200.0),
        ("1970-01-01 0:0:0,25", "ymd", 0.25),
        ("1970-01-01 01:00+01", "ymd", 0.0),
        ("1970-01-01 00:00 -01:30", "ymd", 5400.0),
        ("1970-01-01 1:00 pm +0100", "ymd", 43200.0),
        ("1970-01-01 00:00Z", "ymd", 0.0),
        *((gap, "ymd", NAN) for gap in ("", "NaN", "-", " ")),
        *(
            (bad, "ymd", INF)
            for bad in ("2023-02-29", "1900-02-29", "2023-13-01", "2023-00-01", "2023-01-00", "0000-01-01")
        ),
        *(
            (bad, "ymd", INF)
            for bad in ("70-01-01", "10000-01-01", "1970-01", "1970-01-", "19700101", "1970-01/01", "1970")
        ),
        *(
            (bad, "ymd", INF)
            for bad in ("1970-01-01 00", "1970-01-01 24:00", "1970-01-01 00:60", "1970-01-01 00:00:61")
        ),
        *(
            (bad, "ymd", INF)
            for bad in ("1970-01-01 13:00 pm", "1970-01-01 0:00 am", "1970-01-01 am", "1970-01-01 00:00:00.")
        ),
        *(
            (bad, "ymd", INF)
            for bad in ("1970-01-01 00:00 EST", "1970-01-01 00:00 +1", "1970-01-01 00:00 +24:00", "1970-01-01Z")
        ),
        *(
            (bad, "ymd", INF)
            for bad in ("1970-01-01 00:00 +00:60", "1970-01-01 00:00 +1:234", "1970-001-01", "-1970-01-01")
        ),
        *(
            (bad, "ymd", INF)
            for bad in ("1970-01-01\x00", "1970-01-01 x", "197\u0660-01-01", "1970-01-01" + " " * 60 + "x")
        ),
        ("13/13/1970", "mdy", INF),
        ("31/12/1970", "mdy", INF),
        ("1/1/170", "dmy", INF),
    ],
)
def test_dates(text: str, order: str, wanted: float) -> None:
    assert bits([parsed_date(as_bytes(text), order, WORDS)]) == bits([wanted])


def test_hashes_are_those_of_zlib() -> None:
    encoder = ColumnEncoder({"c": "category", "t": {"kind": "text", "buckets": 7}})
    script = torch.jit.script(encoder)
    for text in ["a", "Z\u00fcrich", "\U0001f600", "a\x00b", "x" * 5000, *texts.noise(300, 5)]:
        stripped = text.strip(" \t\n\v\f\r")
        wanted = float(zlib.crc32(reader.without_point(stripped).encode())) if stripped else NAN
        tokens = "".join(c if (c.isascii() and c.isalnum()) or ord(c) > 127 else " " for c in text)
        lower = "".join(c.lower() if c.isascii() else c for c in tokens).split(" ")
        counts = Counter(reader.bucket_of(zlib.crc32(word.encode()), 7) for word in lower if word)
        codes = [wanted, *(float(counts[place]) for place in range(7))]
        assert bits(reader.codes_of({"c": text, "t": text}, encoder.reader.schema)) == bits(codes)
        assert bits(script.lookup_row({}, {"c": text, "t": text})) == bits(codes)


def test_lone_surrogates_are_hashed() -> None:
    """Only Python can hold one."""
    schema = make_schema({"c": "category", "t": "text", "n": "number"})
    codes = reader.codes_of({"c": "\ud800", "t": "a \udfff", "n": "\ud800"}, schema)
    assert codes[0] == zlib.crc32(b"\xed\xa0\x80")
    assert sum(codes[1:-1]) == 2.0
    assert codes[-1] == INF


@pytest.mark.parametrize("buckets", [1, 2, 7, 16, 1 << 20])
def test_buckets_are_in_range_and_even(buckets: int) -> None:
    found = [reader.bucket_of(zlib.crc32(str(i).encode()), buckets) for i in range(2000)]
    assert 0 <= min(found) <= max(found) < buckets
    assert {reader.bucket_of(code, buckets) for code in (0, 0xFFFFFFFF)} <= set(range(buckets))
    if buckets <= 16:
        assert max(Counter(found).values()) < 2 * 2000 / buckets + 1


def test_text_readers_are_the_same_in_torchscript() -> None:
    script: dict[str, Callable[..., float]] = {
        name: torch.jit.script(getattr(reader, name)) for name in ("parsed_number", "parsed_boolean", "parsed_date")
    }
    some = [*texts.noise(2500, 6), *texts.numbers(500, 7), *texts.dates(1500, 8)]
    for text in some:
        given = as_bytes(text)
        for decimal, unit in ((".", "$"), (",", "\u20ac"), (".", "CHF")):
            options = (decimal, as_bytes(unit), WORDS)
            assert bits([parsed_number(given, *options)]) == bits(
                [script["parsed_number"](text, decimal, unit, WORDS)]
            ), text
        assert bits([parsed_boolean(given, WORDS)]) == bits([script["parsed_boolean"](text, WORDS)]), text
        for order in ("ymd", "dmy", "mdy"):
            assert bits([parsed_date(given, order, WORDS)]) == bits([script["parsed_date"](text, order, WORDS)]), text


@pytest.mark.parametrize("value", [None, NAN, np.nan, np.float32("nan"), np.datetime64("NaT"), Decimal("NaN")])
def test_missing_values(value: Any) -> None:
    assert is_missing(value)
    for kind in ("number", "boolean", "date", "category"):
        assert math.isnan(code_of(value, make_schema({"x": kind})["columns"][0], WORDS))


def test_gaps_of_pandas() -> None:
    import pandas

    assert is_missing(pandas.NA)
    assert is_missing(pandas.NaT)


@pytest.mark.parametrize(
    "value", [[], [1, 2], {}, (1,), np.zeros(0), np.zeros(1), np.zeros(2), np.full(1, np.nan), b"5", bytearray(b"5")]
)
def test_lists_arrays_and_bytes_are_of_no_kind(value: Any) -> None:
    assert not is_missing(value)
    for kind in ("number", "boolean", "date", "category"):
        assert code_of(value, make_schema({"x": kind})["columns"][0], WORDS) == INF
    assert set(reader.codes_of({"x": value}, make_schema({"x": "text"}))) == {INF}


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("number", True, 1.0),
        ("number", np.float32(0.1), float(np.float32(0.1))),
        ("number", Decimal("1.5"), 1.5),
        ("number", 10**400, INF),
        ("number", 2j, INF),
        ("number", -INF, -INF),
        ("number", datetime.date(2020, 1, 1), INF),
        ("boolean", np.True_, 1.0),
        ("boolean", 0, 0.0),
        ("boolean", 2, INF),
        ("boolean", 0.5, INF),
        ("date", 1.5, 1.5),
        ("date", 253402300799, 253402300799.0),
        ("date", 1.7e12, INF),
        ("date", -INF, INF),
        ("date", datetime.timedelta(1), INF),
        ("category", 3, zlib.crc32(b"3")),
        ("category", 3.0, zlib.crc32(b"3")),
        ("category", -0.0, zlib.crc32(b"0")),
        ("category", "3.0", zlib.crc32(b"3")),
        ("category", np.int8(-3), zlib.crc32(b"-3")),
        ("category", True, zlib.crc32(b"True")),
        ("category", np.False_, zlib.crc32(b"False")),
        ("category", 1.5, INF),
        ("category", 2**60, INF),
        ("category", INF, INF),
        ("category", " NA ", zlib.crc32(b"NA")),
        ("category", " \t", NAN),
        ("category", "\u00a0", zlib.crc32(b"\xc2\xa0")),
    ],
)
def test_codes_of_values(kind: str, value: Any, wanted: float) -> None:
    assert bits([code_of(value, make_schema({"x": kind})["columns"][0], WORDS)]) == bits([wanted])


def test_schemas_are_read_from_text_bytes_and_tensors() -> None:
    encoder = ColumnEncoder({"Z\u00fcrich": "number"})
    data = bytes(encoder.schema.tolist())
    assert reader.read_schema(data) == reader.read_schema(data.decode()) == reader.read_schema(encoder.schema)
    assert reader.codes_of({}, reader.read_schema(data))[0] != 0.0


def test_integers_with_a_point_are_integers() -> None:
    """Programs write integers with gaps among them as floating-point numbers."""
    encoder = ColumnEncoder({"c": {"kind": "category", "values": ["3", "3.0", "1.50"], "buckets": 2}})
    assert encoder.columns[0]["values"] == ["3", "1.50"]
    script = torch.jit.script(encoder)
    for text, wanted in {
        "3.0": "3",
        " 3.00 ": "3",
        "-12.0": "-12",
        "08.0": "08",
        "1.5": "1.5",
        "1.50": "1.50",
        "3.": "3.",
        ".0": ".0",
        "-.0": "-.0",
        "1.2.0": "1.2.0",
        "v3.0": "v3.0",
        "\u0663.0": "\u0663.0",
    }.items():
        code = float(zlib.crc32(wanted.encode()))
        assert reader.codes_of({"c": text}, encoder.reader.schema) == [code], text
        assert script.lookup_row({}, {"c": text}).tolist() == [code], text
