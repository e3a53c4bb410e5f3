"""The column encoder: proposals, schemas, state, names, dtypes and errors."""

import copy
import importlib
import io
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.features import tables
from tests.features.texts import bits
from torchonline import bandit
from torchonline.export import to_torchscript
from torchonline.features import ColumnEncoder
from torchonline.features.schema import KINDS, make_schema
from torchonline.models import BanditHead, table_head

pytestmark = pytest.mark.fast

DOUBLE = torch.float64
SMALL: dict[str, Any] = {"age": "number", "town": {"kind": "category", "values": ["Bern", "Basel"], "buckets": 2}}


def proposal(values: list[Any], **options: Any) -> dict[str, Any]:
    """Return the proposed column of values, beside another one."""
    frame = {"x": values, "other": [float(i) for i in range(len(values))]}
    encoder = ColumnEncoder.from_frame(frame, **options)
    return next((column for column in encoder.columns if column["name"] == "x"), {"kind": encoder.dropped.get("x")})


def names(encoder: ColumnEncoder, column: str) -> list[str]:
    return [name for name, owner in zip(encoder.names, encoder.owners, strict=True) if owner == column]


# Proposals.


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, 2, 3, 4], {"kind": "number", "fill": 2.5, "gaps": False}),
        ([1.5, None, 2.5, math.nan], {"kind": "number", "gaps": True}),
        (["1", "2.5", "-3e2"], {"kind": "number", "decimal": ".", "gaps": False}),
        (["1", "2.5", ""], {"kind": "number", "gaps": True}),
        (["1", "2", "NA", "3"], {"kind": "number", "gaps": True}),
        (["1,5", "2,25", "3,125", "1.000,5"], {"kind": "number", "decimal": ","}),
        (["1,234.5", "2,000", "17", "1"], {"kind": "number", "decimal": "."}),
        (["$1,234.50", "$3", "-$4.25", "($5)"], {"kind": "number", "unit": "$", "decimal": "."}),
        (["1.234,50 \u20ac", "3 \u20ac", "4,25 \u20ac"], {"kind": "number", "unit": "\u20ac", "decimal": ","}),
        (["CHF 5", "CHF 6.50", "CHF 1'000"], {"kind": "number", "unit": "CHF"}),
        (["5 kg", "6.5 kg", "7kg"], {"kind": "number", "unit": "kg"}),
        (["5 kg", "6.5 kg", "NA", "7kg"], {"kind": "number", "unit": "kg", "gaps": True}),
        (["-5 \u00b0C", "10 \u00b0C", "(2) \u00b0C"], {"kind": "number", "unit": "\u00b0C"}),
        (
            ["1\u202f234,50\u00a0\u20ac", "3,25\u00a0\u20ac", "9\u00a0\u20ac"],
            {"kind": "number", "unit": "\u20ac", "decimal": ","},
        ),
        (["5 \u00c5", "6.5 \u00c5", "7 \u00c5"], {"kind": "number", "unit": "\u00c5"}),
        (["12b", "14", "15a", "16"], {"kind": "category"}),
        (["10%", "12.5%", "99%"], {"kind": "number", "unit": "%"}),
        (["08001", "8002", "08003", "08001"] * 5, {"kind": "category"}),
        (["u1", "u2", "u1", "u2"], {"kind": "category", "values": ["u1", "u2"]}),
        ([True, False, True], {"kind": "boolean", "fill": 1.0}),
        (["yes", "no", "No", None], {"kind": "boolean", "gaps": True, "fill": 0.0}),
        (["T", "F", "T", "NA"], {"kind": "boolean", "gaps": True}),
        (["2024-01-02", "2024-03-04", "2024-02-01"], {"kind": "date", "order": "ymd"}),
        (["31/12/2023", "01/02/2024", "15/03/2024"], {"kind": "date", "order": "dmy"}),
        (["12/31/2023", "01/02/2024", "03/15/2024"], {"kind": "date", "order": "mdy"}),
        (["31.12.23", "1.2.24", "15.3.24"], {"kind": "date", "order": "dmy"}),
        (["2024-01-02 10:20:30.5", "2024-01-02 11:00", "2024-01-02 09:00"], {"kind": "date", "parts": ["age", "day"]}),
        (["2024-01-02 09:00", "2024-01-02 10:00", "2024-01-02 11:00"], {"kind": "date", "parts": ["day"]}),
        ([f"row{i}" for i in range(30)], {"kind": "nearly each row has a text of its own"}),
        ([f"{i:05}" for i in range(30)], {"kind": "nearly each row has a text of its own"}),
        (["one"] * 5, {"kind": "one value only"}),
        ([7] * 5, {"kind": "one value only"}),
        ([None, math.nan, None], {"kind": "no value"}),
        ([f"this is a note with number {i % 25} in it" for i in range(50)], {"kind": "text"}),
        (["CH", "DE", "CH", "AT", "DE"], {"kind": "category", "values": ["CH", "DE"], "buckets": 1}),
        (["a", 1, "a", 1, True, True], {"kind": "category", "values": ["1", "a"]}),
        ([" a", "a ", "\u00a0a", "\u00a0a"], {"kind": "category", "values": ["a", "\u00a0a"]}),
        (["\u00a0", "\u00a0", "x", "x"], {"kind": "category", "values": ["x", "\u00a0"]}),
    ],
)
def test_proposals(values: list[Any], wanted: dict[str, Any]) -> None:
    assert wanted.items() <= proposal(values).items()


def test_each_frequent_value_has_its_own_feature() -> None:
    values = ["a", "\u00a0b", " c ", "Z\u00fcrich", "\U0001f600"] * 3
    encoder = ColumnEncoder.from_frame({"x": values})
    found = encoder([{"x": value} for value in values])
    assert torch.equal(found.sum(1), torch.ones(15, dtype=DOUBLE))
    assert not found[:, encoder.names.index("x other")].any()


def test_text_with_one_bad_value_in_ten_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"^rows: expected numbers in 'x', got 'old' in row 3; mend the values, name them"
    ):
        proposal(["1", "2", "5", "old", *"67890123456"])
    assert proposal(["1", "2", "5", "old", *"67890123456"], missing=["OLD"])["gaps"]
    assert proposal(["1", "2", "old", "new"])["kind"] == "category"
    frame = {"x": [*"aab", *map(str, range(40))], "y": ["?!", *["2024-01-02", "2024-01-03"] * 21]}
    with pytest.raises(
        ValueError, match=r"expected numbers in 'x', got 'a' in row 0 and 2 other values; .*dates in 'y'"
    ):
        ColumnEncoder.from_frame(frame)


def test_words_for_gaps_that_are_numbers() -> None:
    """They are gaps in text, by all readers."""
    frame = {"x": ["1", "2", "999", "3"], "y": [1, 2, 999, 3]}
    encoder = ColumnEncoder.from_frame(frame, missing=["999"])
    x, y = encoder.columns
    assert (x["fill"], x["gaps"], y["gaps"]) == (2.0, True, False)
    tables_of = [importlib.import_module(one).DataFrame(frame) for one in ("pandas", "polars")]
    for rows in ([dict(zip(frame, row, strict=True)) for row in zip(*frame.values(), strict=True)], *tables_of):
        assert encoder.lookup(rows)[:, 0].isnan().tolist() == [False, False, True, False]
        assert encoder.lookup(rows)[2, 1] == 999.0


def test_kinds_replace_the_proposal() -> None:
    frame = {
        "zip": [8001, 8002, 8001],
        "n": ["1", "2", "1"],
        "id": ["a", "b", "c"],
        "d": [1.0, 2.0, 3.0],
        "one": [5, 5, 5],
    }
    kinds = {
        "zip": "category",
        "n": {"kind": "number", "fill": 7, "edges": [1.5]},
        "id": None,
        "d": {"fill": 9},
        "one": "number",
    }
    encoder = ColumnEncoder.from_frame(frame, kinds=kinds)
    columns = {column["name"]: column for column in encoder.columns}
    assert columns["zip"]["values"] == ["8001"]
    assert (columns["n"]["fill"], columns["n"]["edges"]) == (7.0, [1.5])
    assert columns["d"]["fill"] == 9.0
    assert columns["one"]["kind"] == "number"
    assert encoder.dropped == {"id": "left out"}
    assert "dropped: left out" in repr(encoder)
    only = ColumnEncoder.from_frame(frame, ["d"])
    assert only.reader.names == ["d"]
    for options in ({"columns": ["nope"]}, {"kinds": {"nope": "number"}}):
        with pytest.raises(ValueError, match=r"^columns: expected columns of the table, .*, got 'nope'$"):
            ColumnEncoder.from_frame(frame, **options)
    with pytest.raises(ValueError, match=r"one of .* as the kind of 'n', got 'nubmer'"):
        ColumnEncoder.from_frame(frame, kinds={"n": "nubmer"})
    with pytest.raises(ValueError, match=r"^rows: expected numbers in 'id', got 'a' in row 0 and 2 other values"):
        ColumnEncoder.from_frame(frame, kinds={"id": "number"})
    with pytest.raises(ValueError, match=r"^columns: expected a column to encode, got none: one: one value only"):
        ColumnEncoder.from_frame({"one": [5, 5]})


def test_bins_and_the_number_of_values() -> None:
    frame = {"x": list(range(100)), "c": [f"v{i % 20}" for i in range(100)]}
    assert len(ColumnEncoder.from_frame(frame).columns[0]["edges"]) == 7
    assert ColumnEncoder.from_frame(frame, bins=1).columns[0]["edges"] == []
    few = ColumnEncoder.from_frame(frame, most_values=3)
    assert (len(few.columns[1]["values"]), few.columns[1]["buckets"]) == (3, 8)
    wide = ColumnEncoder.from_frame({f"x{k}": list(range(100)) for k in range(20)})
    assert {len(column["edges"]) for column in wide.columns} == {0}
    for name, value in (("bins", 0), ("most_values", 0), ("bins", 1.5)):
        with pytest.raises((TypeError, ValueError), match=rf"^{name}: expected"):
            ColumnEncoder.from_frame(frame, **{name: value})


@pytest.mark.parametrize("kind", ["pandas", "pandas types", "polars", "pyarrow", "dicts"])
def test_all_tables_have_one_proposal(kind: str) -> None:
    rows = tables.typed_rows(400)
    columns: Any = tables.frame_of(rows)
    frame: Any = rows
    if kind in ("pandas", "pandas types"):
        frame = importlib.import_module("pandas").DataFrame(columns)
        frame = frame.convert_dtypes() if kind == "pandas types" else frame
    elif kind == "polars":
        frame = importlib.import_module("polars").DataFrame(columns)
    elif kind == "pyarrow":
        frame = importlib.import_module("pyarrow").table(columns)
    options: Any = {"kinds": {"price": {"kind": "number", "unit": "$"}, "pay": "text"}}
    assert ColumnEncoder.from_frame(frame, **options).columns == ColumnEncoder.from_frame(columns, **options).columns


def test_typed_columns_of_tables() -> None:
    """Integers with gaps, decimals, categories, dates and zones, in each kind of table."""
    pandas, polars, pyarrow = map(importlib.import_module, ("pandas", "polars", "pyarrow"))
    decimal, datetime = importlib.import_module("decimal"), importlib.import_module("datetime")
    utc = datetime.UTC
    columns = {
        "i": [1, None, 3],
        "u": [decimal.Decimal("1.10"), None, decimal.Decimal("-2.25")],
        "b": [True, None, False],
        "c": ["x", None, "y"],
        "d": [datetime.date(2020, 1, 2), None, datetime.date(1960, 1, 2)],
        "t": [datetime.datetime(2020, 1, 2, 3, 4, 5, 678901), None, datetime.datetime(1950, 1, 2, 3, 4, 5, 1)],
        "z": [
            datetime.datetime(2020, 1, 2, 3, 4, 5, 678901, utc),
            None,
            datetime.datetime(1950, 1, 2, 3, 4, 5, 1, utc),
        ],
    }
    kinds = {"i": "number", "u": "number", "b": "boolean", "c": "category", "d": "date", "t": "date", "z": "date"}
    encoder = ColumnEncoder(kinds)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    wanted = encoder.lookup(rows)
    assert bits(wanted[1]) == bits([math.nan] * 7)
    arrow = pyarrow.table(columns)
    frames = {
        "polars": polars.DataFrame(columns),
        "polars categories": polars.DataFrame(columns).with_columns(polars.col("c").cast(polars.Categorical)),
        "polars zone": polars.DataFrame(columns).with_columns(polars.col("z").dt.convert_time_zone("Asia/Kathmandu")),
        "polars ms": polars.DataFrame(columns).with_columns(polars.col("d").cast(polars.Datetime("ms"))),
        "pandas": pandas.DataFrame(columns),
        "pandas types": pandas.DataFrame(columns).convert_dtypes(),
        "pandas categories": pandas.DataFrame(columns).astype({"c": "category"}),
        "pandas arrow": arrow.to_pandas(types_mapper=pandas.ArrowDtype),
        "pandas zone": pandas.DataFrame(columns).assign(z=lambda frame: frame["z"].dt.tz_convert("America/New_York")),
        "pandas ns": pandas.DataFrame(columns).assign(t=lambda frame: frame["t"].astype("datetime64[ns]")),
        "pandas s": pandas.DataFrame(columns).assign(
            d=lambda frame: pandas.to_datetime(frame["d"]).astype("datetime64[s]")
        ),
        "arrow": arrow,
        "arrow dictionary": arrow.set_column(3, "c", arrow["c"].dictionary_encode()),
    }
    for name, frame in frames.items():
        assert bits(encoder.lookup(frame)) == bits(wanted), name


def test_moments_out_of_range_are_refused() -> None:
    frames = {"pandas": np.array(["12000-01-01", "NaT"], dtype="datetime64[s]"), "polars": [10**16, None]}
    for kind, values in frames.items():
        module = importlib.import_module(kind)
        frame = module.DataFrame({"d": values})
        if kind == "polars":
            frame = frame.with_columns(module.col("d").cast(module.Datetime("ms")))
        code = ColumnEncoder({"d": "date"}).reader.codes_of_table(
            importlib.import_module("narwhals").from_native(frame)
        )
        assert bits(code[:, 0]) == bits([math.inf, math.nan])


# Schemas and state.


def test_a_declared_schema_needs_no_data() -> None:
    encoder = ColumnEncoder(SMALL)
    assert encoder.columns[0] == {"name": "age", "kind": "number", **KINDS["number"]}
    assert encoder.names == [
        "age",
        "age missing",
        "town missing",
        "town = Bern",
        "town = Basel",
        "town other 0",
        "town other 1",
    ]
    assert encoder.places("town") == [2, 3, 4, 5, 6]
    assert encoder({"town": " Bern\t"}).tolist() == [0, 1, 0, 1, 0, 0, 0]
    assert encoder({"age": "1e1", "town": "Chur"})[5:].sum() == 1
    assert ColumnEncoder(encoder.columns).columns == encoder.columns
    with pytest.raises(ValueError, match=r"^columns: expected some of 'age', 'town', got 'twon'"):
        encoder.places("twon")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_names_owners_and_places_cover_all_features(dtype: torch.dtype) -> None:
    encoder = ColumnEncoder(tables.COLUMNS, dtype=dtype)
    assert len(encoder.names) == len(encoder.owners) == encoder.dim == encoder({}).size(-1)
    assert len(set(encoder.names)) == encoder.dim
    places = [place for name in tables.COLUMNS for place in encoder.places(name)]
    assert sorted([*places, encoder.names.index("gaps")]) == list(range(encoder.dim))
    assert encoder({}).dtype == dtype
    assert encoder({})[-1] == 4.0  # gaps without a column of their own
    assert encoder.number_places().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "columns: expected kinds of columns by name, got None"),
        ({}, "columns: expected kinds"),
        ([], "columns: expected kinds"),
        ({"a": 5}, "as the kind of 'a', got 5"),
        ({"a": ["number"]}, r"as the kind of 'a', got \['number'\]"),
        ({"a": "nubmer"}, "as the kind of 'a', got 'nubmer'"),
        ({"a": {"kind": "number", "fil": 3}}, "options .* of the number 'a', got 'fil'"),
        ({"a": {"kind": "number", "fill": math.nan}}, "a finite number as fill of 'a', got nan"),
        ({"a": {"kind": "number", "fill": True}}, "a finite number as fill of 'a', got True"),
        ({"a": {"kind": "number", "edges": [2, 1]}}, "ascending finite numbers as edges of 'a'"),
        ({"a": {"kind": "number", "edges": [1, math.inf]}}, "ascending finite numbers as edges of 'a'"),
        ({"a": {"kind": "number", "decimal": ";"}}, "as decimal of 'a', got ';'"),
        ({"a": {"kind": "number", "unit": 5}}, "a text as unit of 'a', got 5"),
        ({"a": {"kind": "number", "gaps": 1}}, "True or False as gaps of 'a', got 1"),
        ({"a": {"kind": "date", "order": "ydm"}}, "as order of 'a', got 'ydm'"),
        ({"a": {"kind": "date", "parts": []}}, r"as parts of 'a', got \[\]"),
        ({"a": {"kind": "date", "parts": [["day"]]}}, "as parts of 'a'"),
        ({"a": {"kind": "category", "values": [1]}}, r"a list of texts as values of 'a', got \[1\]"),
        ({"a": {"kind": "category", "values": [" "]}}, "a list of texts as values of 'a'"),
        ({"a": {"kind": "category", "values": "CH"}}, "a list of texts as values of 'a', got 'CH'"),
        ({"a": {"kind": "category", "buckets": 0}}, "values or buckets of the category 'a', got none"),
        ({"a": {"kind": "category", "buckets": -1}}, "an integer from 0 to 1048576 as buckets of 'a', got -1"),
        ({"a": {"kind": "category", "buckets": True}}, "as buckets of 'a', got True"),
        ({"a": {"kind": "text", "buckets": 1 << 21}}, "as buckets of 'a', got 2097152"),
        ({"a": {"kind": "text", "buckets": 0}}, "buckets of the text 'a', got none"),
        ({"": "number"}, "a name of text for each column, got ''"),
        ({3: "number"}, "a name of text for each column, got 3"),
        ([{"name": "a", "kind": "number"}] * 2, "each column once, got 'a' more than once"),
        ([5], "columns: expected options of each column, got "),
        (
            {"a": "x", "b": {"kind": "number", "fill": "y"}, "c": {"kind": "text", "z": 1}},
            "'a', got 'x'; a finite.*'b', got 'y'; .*'c', got 'z'",
        ),
    ],
)
def test_a_wrong_schema_is_refused_as_a_whole(columns: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^columns: expected") as caught:
        ColumnEncoder(columns)
    assert re.search(message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize("missing", [["a,b"], ["\u00fc"], [5], "NA", None])
def test_wrong_words_for_gaps(missing: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^missing: expected"):
        ColumnEncoder(SMALL, missing=missing)


def test_values_that_differ_by_blanks_are_one() -> None:
    encoder = ColumnEncoder({"x": {"kind": "category", "values": ["a", " a", "a\t"], "buckets": 1, "gaps": False}})
    assert encoder.names == ["x = a", "x other", "gaps"]
    assert encoder({"x": "a "}).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("missing", [(), ("OLD", " x "), ("", "?")])
def test_state_round_trip(missing: tuple[str, ...], tmp_path: Path) -> None:
    encoder = ColumnEncoder(tables.COLUMNS, missing=missing)
    other = ColumnEncoder(SMALL)
    torch.save(encoder.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert list(state) == ["schema"]
    other.load_state_dict(state)
    rows = [row for row in tables.messy_rows(50) if not {"NA", "?", "n/a", "-", "NULL"} & set(map(str, row.values()))]
    assert other.columns == encoder.columns
    assert other.missing == encoder.missing
    assert other.names == encoder.names
    assert (other.dim, other.code_count) == (encoder.dim, encoder.code_count)
    assert bits(other(rows)) == bits(encoder(rows))
    assert torch.equal(other.state_dict()["schema"], state["schema"])
    whole = io.BytesIO()
    torch.save(encoder, whole)
    whole.seek(0)
    for one in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder)), torch.load(whole, weights_only=False)):
        assert repr(one) == repr(encoder)
        assert bits(one(rows)) == bits(encoder(rows))
        one.load_state_dict(ColumnEncoder(SMALL).state_dict())
        assert one.dim == 7
    assert encoder.dim != 7


@pytest.mark.parametrize(
    "schema",
    [
        torch.zeros(0, dtype=torch.uint8),
        torch.zeros(5),
        torch.tensor(3, dtype=torch.uint8),
        torch.tensor(list(b"[]"), dtype=torch.uint8),
        torch.tensor(list(b'{"columns": [], "missing": ","}'), dtype=torch.uint8),
        torch.tensor(list(b'{"columns": [{"name": "a", "kind": "x"}], "missing": ","}'), dtype=torch.uint8),
        torch.tensor(list(b'{"columns": [{"name": "a", "kind": "number"}], "missing": 5}'), dtype=torch.uint8),
        torch.tensor(list(b'{"columns": [{"name": "a", "kind": "number"}]}'), dtype=torch.uint8),
        torch.full((3,), 1000.0),
        b"no tensor",
        None,
    ],
)
def test_a_wrong_state_changes_nothing(schema: Any) -> None:
    encoder = ColumnEncoder(SMALL)
    with pytest.raises(RuntimeError, match="expected the schema of a ColumnEncoder"):
        encoder.load_state_dict({"schema": schema})
    assert encoder.columns == ColumnEncoder(SMALL).columns
    with pytest.raises(RuntimeError, match="Missing key"):
        encoder.load_state_dict({})
    encoder.load_state_dict({}, strict=False)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        encoder.load_state_dict({"schema": ColumnEncoder({"x": "text"}).schema, "junk": torch.zeros(1)})
    assert encoder.columns == ColumnEncoder(SMALL).columns
    assert encoder({"age": 1}).size(-1) == encoder.dim == 7


def test_a_head_refuses_the_state_of_other_columns() -> None:
    head, other = table_head(SMALL, "binary", actions=2), table_head({"x": "number"}, "binary", actions=2)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    choice = head.select({"age": 3})
    with pytest.raises(RuntimeError):
        head.load_state_dict(other.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
    assert head.encoder.names == ColumnEncoder(SMALL).names  # type: ignore[union-attr]
    assert torch.equal(head.select({"age": 3}), choice)
    head.step({"age": 3, "town": "Bern"}, 1, 1.0)
    again = table_head(SMALL, "binary", actions=2)
    again.load_state_dict(head.state_dict())
    assert torch.equal(again.select(tables_rows()), head.select(tables_rows()))


def tables_rows() -> list[dict[str, Any]]:
    return [{"age": i, "town": town} for i in range(5) for town in ("Bern", "Basel", "Chur", None)]


@pytest.mark.parametrize("move", ["float", "half", "bfloat16", "to", "double"])
def test_tables_stay_float64(move: str) -> None:
    encoder = tables.encoder()
    rows = tables.messy_rows(50)
    wanted = encoder(rows)
    model = torch.nn.Sequential(encoder, torch.nn.Linear(encoder.dim, 2))
    model.to(torch.float32) if move == "to" else getattr(model, move)()
    assert {buffer.dtype for buffer in encoder.buffers()} == {DOUBLE, torch.int64, torch.uint8}
    assert bits(encoder(rows)) == bits(wanted)
    single = ColumnEncoder(tables.COLUMNS, dtype=torch.float32)
    assert torch.nn.Sequential(single, torch.nn.Linear(single.dim, 2))(rows).shape == (50, 2)
    assert torch.equal(single(rows), wanted.float())


def test_another_dtype_is_refused() -> None:
    for dtype in (torch.float16, torch.int64, "float32"):
        with pytest.raises((TypeError, ValueError), match=r"^dtype: expected"):
            ColumnEncoder(SMALL, dtype=dtype)  # type: ignore[arg-type]


# Errors.


def test_one_error_names_every_bad_column() -> None:
    rows = [
        {"age": "old", "member": "perhaps", "since": "yesterday", "country": 1.5, "note": 0.5},
        {"age": "older", "price": math.inf, "zip": [1, 2], "born": "2024-01-01", "new": 2},
    ]
    with pytest.raises(ValueError, match=r"^rows: expected ") as caught:
        tables.encoder()(rows)
    text = str(caught.value)
    for part in (
        "numbers in 'age', got 'old' in row 0 and 1 other value",
        "numbers in 'price', got inf in row 1",
        "booleans in 'member', got 'perhaps' in row 0",
        "booleans in 'new', got 2 in row 1",
        "dates in 'since', got 'yesterday' in row 0",
        "dates in 'born', got '2024-01-01' in row 1",
        "text, booleans or integers in 'country', got 1.5 in row 0",
        "text, booleans or integers in 'zip', got [1, 2] in row 1",
        "text in 'note', got 0.5 in row 0",
        "mend the values, name them in missing=, or choose another kind for the column",
        "mend or leave out infinite numbers",
        "give each entry of a list a column",
        "convert the values to text",
    ):
        assert part in text
    with pytest.raises(ValueError, match=r"^rows: expected numbers in 'age', got 'old'; mend") as caught:
        tables.encoder()({"age": "old"})
    assert "row 0" not in str(caught.value)
    with pytest.raises(ValueError, match=re.escape("got 'xxxxxxxx")) as caught:
        tables.encoder()({"age": "x" * 10_000})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_one_error_for_a_table(kind: str) -> None:
    frame = importlib.import_module(kind).DataFrame
    encoder = ColumnEncoder({"a": "number", "b": "boolean", "c": "category"})
    with pytest.raises(
        ValueError, match=r"numbers in 'a', got 'x' in row 1; booleans in 'b', got 2 in row 2; .*'c', got 0\.5"
    ):
        encoder(frame({"a": ["1", "x", "3"], "b": [0, 1, 2], "c": [0.5, 1.0, 2.0]}))
    with pytest.raises(ValueError, match=r"^rows: expected columns 'b', 'c', got a table with 'a', 'd'$"):
        encoder(frame({"a": [1], "d": [2]}))
    with pytest.raises(ValueError, match=r"'c', got .*give each entry of a list a column"):
        encoder(frame({"a": [1, 2], "b": [0, 1], "c": [[1, 2], [3, 4]]}))
    assert (
        encoder(frame({"a": [1], "b": [True], "c": ["x"], "d": [object()] if kind == "pandas" else [1]})).shape[0] == 1
    )


def test_arrays_in_a_frame_are_refused_by_name() -> None:
    """Parquet files with lists are frames of arrays."""
    frame = importlib.import_module("pandas").DataFrame({"a": [np.array([1.0, 2.0]), np.array([])]})
    for kind in ("number", "boolean", "date", "category", "text"):
        with pytest.raises(ValueError, match=r"^rows: expected .* in 'a', got array.* in row 0 and 1 other value"):
            ColumnEncoder({"a": kind})(frame)
    with pytest.raises(ValueError, match=r"^rows: expected .* in 'a', got array"):
        ColumnEncoder.from_frame(frame, kinds={"a": "category"})


def test_names_of_columns_are_texts_and_unique() -> None:
    pandas = importlib.import_module("pandas")
    for name, error, message in (
        ("a", ValueError, "rows: expected unique names of columns, got 'a', 'a'"),
        (0, TypeError, "columns: expected names of text, got 0, 1"),
    ):
        frame = pandas.DataFrame([[1, 2], [3, 4]], columns=[name, name if name else 1])
        with pytest.raises(error, match=f"^{message}"):
            ColumnEncoder.from_frame(frame)
    with pytest.raises(ValueError, match=r"^rows: expected unique names"):
        ColumnEncoder(SMALL)(pandas.DataFrame([[1, 2, "x"]], columns=["age", "age", "town"]))


def test_names_of_dicts() -> None:
    encoder = ColumnEncoder(SMALL)
    with pytest.raises(ValueError, match=r"^rows: expected columns 'age', 'town', got 'twon'; did you mean 'town'\?$"):
        encoder({"twon": "Bern"})
    with pytest.raises(ValueError, match=r"got 'aeg', 'twon'; did you mean 'age', 'town'\?$"):
        encoder([{"aeg": 1.0, "twon": "a"}])
    with pytest.raises(ValueError, match=r"got 'aeg', 'q', 5; did you mean 'age'\?$"):
        encoder([{"age": 3}, {"aeg": 1, "q": 2, 5: 1}])
    assert encoder({}).tolist() == [0, 1, 1, 0, 0, 0, 0]
    assert encoder([]).shape == (0, 7)
    for rows, message in (
        ([{"age": 1}, 5], "rows: expected a table or dicts of values by column, got int"),
        (
            "age",
            "rows: expected a dict, a list of dicts, a pandas or polars frame, or an Arrow table in memory, got str",
        ),
        (None, "rows: expected a dict.*, got NoneType"),
    ):
        with pytest.raises(TypeError, match=f"^{message}"):
            encoder(rows)
    with pytest.raises(ValueError, match=r"^rows: expected lists of equal lengths, got \[1, 2\]"):
        encoder([[{"age": 1}], [{"age": 1}, {"age": 2}]])


def test_codes_are_checked() -> None:
    encoder = ColumnEncoder(SMALL)
    with pytest.raises(TypeError, match=r"^codes: expected torch.float64, as lookup returns them, got torch.float32"):
        encoder(torch.zeros(2))
    for shape in ((), (3,), (2, 0)):
        with pytest.raises(ValueError, match=r"^codes: expected 2 in the last dimension"):
            encoder(torch.zeros(shape, dtype=DOUBLE))
    assert encoder(torch.zeros(0, 2, dtype=DOUBLE)).shape == (0, 7)
    for bad in (math.inf, -math.inf):
        found = encoder(torch.tensor([[1.0, 2.0], [1.0, bad]], dtype=DOUBLE))
        assert found[0].isfinite().all()
        assert found[1].isnan().all()


def test_infinite_codes_are_neither_chosen_nor_learnt() -> None:
    head = table_head(SMALL, "binary", actions=2)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    bad = torch.tensor([3.0, math.inf], dtype=DOUBLE)
    with pytest.raises(ValueError, match="expected"):
        head.select(bad)
    with pytest.raises(ValueError, match="expected"):
        head.step(bad, 0, 1.0)
    with pytest.raises(ValueError, match=r"'age', got 'old'"):
        head.step({"age": "old"}, 0, 1.0)
    with pytest.raises(ValueError, match=r"'age', got 'old' in row 2"):
        head.learn([{"age": 1}, {"age": 2}, {"age": "old"}], [0, 1, 0], [1.0, 0.0, 1.0])
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
    script = to_torchscript(head, example=torch.zeros(2, dtype=DOUBLE))
    assert script.select(bad) == -1
    assert not script.step(bad, torch.tensor(0), torch.tensor(1.0))
    gap = torch.full((2,), math.nan, dtype=DOUBLE)
    assert script.select(gap) == head.select({})
    assert script.step(gap, torch.tensor(0), torch.tensor(1.0))


def test_rows_with_arms_of_their_own() -> None:
    head = table_head({"price": "number", "shop": {"kind": "category", "values": ["a"], "buckets": 1}}, "real")
    arms = [{"price": 1, "shop": "a"}, {"price": 2, "shop": "b"}, {"price": None}]
    head.step(arms, 1, 5.0)
    assert head.select(arms) in (0, 1, 2)
    assert head.select([arms, arms]).shape == (2,)
    with pytest.raises(ValueError, match="'price', got 'x'"):
        head.select([{"price": 1}, {"price": "x"}])


def test_products_and_layers_on_top() -> None:
    head = table_head(SMALL, "unit", actions=2, products={"who": ["age"], "where": ["town"]})
    head.step({"age": 1, "town": "Bern"}, 1, 1.0)
    with pytest.raises(ValueError, match="expected some of 'age', 'town', got 'twon'"):
        table_head(SMALL, "unit", actions=2, products={"who": ["age"], "where": ["twon"]})
    encoder = ColumnEncoder(SMALL, dtype=torch.float32)
    network = torch.nn.Sequential(encoder, torch.nn.Linear(encoder.dim, 3), torch.nn.ReLU())
    deep = BanditHead(network, bandit(3, "unit", actions=2))
    k = deep.select({"age": 1, "town": "Bern"})
    deep.step({"age": 1, "town": "Bern"}, k, 1.0)
    assert deep.select(tables_rows()).shape == (20,)


def test_the_columns_of_an_encoder_are_a_copy() -> None:
    encoder = ColumnEncoder(SMALL)
    encoder.columns[0]["fill"] = 7.0
    assert encoder.columns[0]["fill"] == 0.0
    assert make_schema(encoder.columns) == encoder.reader.schema


def test_a_long_description_names_all_columns() -> None:
    text = repr(tables.encoder())
    assert all(f"{name} " in text for name in tables.COLUMNS)
    assert "12 columns, 118 features" in text
