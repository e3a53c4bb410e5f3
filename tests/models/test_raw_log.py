"""Logs of raw columns: proposals, files of all kinds, chunks, order, actions, rewards, and errors for all columns at once."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from tests.features import tables
from tests.features.texts import bits
from torchonline.features import ColumnEncoder
from torchonline.models import BanditHead, LogDataModule, LoggedRounds, NeuralLinearBandit, raw_log, table_head

DOUBLE = torch.float64
ROLES: dict[str, Any] = {"action": "act", "reward": "click", "probability": "p"}
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "max_epochs": 1,
}
# A log by hand: quotes, gaps, words for gaps, and text that is not ASCII.
LOG = """\
when,age,town,note,act,click,p
2024-01-03 10:00,31,"Bern, city","said ""yes"" twice",call,yes,0.5
2024-01-01 09:30,NA,Z\u00fcrich,,write,no,0.25
2024-01-02 23:15,"1,044",NA,a b,call,no,0.5
2024-01-05 00:00,,Bern,x,stay,yes,1
"""
COLUMNS: dict[str, Any] = {"age": "number", "town": {"kind": "category", "values": ["Bern", "NA"]}, "when": "date"}


def write(folder: Path, text: str = LOG, name: str = "log.csv", **options: Any) -> Path:
    (folder / name).write_text(text, **{"encoding": "utf-8", **options})
    return folder / name


def rows_of(data: LogDataModule) -> LoggedRounds:
    batches = list(data.train_dataloader())
    return LoggedRounds(*(torch.cat(parts) for parts in zip(*batches, strict=True)))


def big_frame(count: int = 300) -> Any:
    """Return a frame of typed messy rows with actions, rewards, propensities and times."""
    pandas = importlib.import_module("pandas")
    frame = pandas.DataFrame(tables.frame_of(tables.typed_rows(count)))
    frame["born"] = frame["born"].dt.strftime("%d.%m.%Y %H:%M:%S.%f")
    numbers = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    act = ["stay", "call", "write"]
    return frame.assign(
        act=[act[k % 3] for k in range(count)], click=[k % 2 for k in range(count)], p=0.25, at=numbers.numpy()
    )


def test_a_log_by_hand(tmp_path: Path) -> None:
    encoder = ColumnEncoder(COLUMNS)
    data = LogDataModule(write(tmp_path), encoder=encoder, actions=["call", "stay", "write", "never"], **ROLES)
    rows = rows_of(data)
    wanted = [
        {"age": 31, "town": "Bern, city", "when": "2024-01-03 10:00"},
        {"age": None, "town": "Z\u00fcrich", "when": "2024-01-01 09:30"},
        {"age": 1044, "town": "NA", "when": "2024-01-02 23:15"},
        {"age": None, "town": "Bern", "when": "2024-01-05 00:00"},
    ]
    assert bits(rows.inputs) == bits(encoder.lookup(wanted))
    assert rows.action.tolist() == [0, 2, 0, 1]
    assert rows.reward.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert rows.probability is not None
    assert rows.probability.tolist() == [0.5, 0.25, 0.5, 1.0]
    log = data.bandit_log()
    assert (log.arms, len(log)) == (4, 4)
    assert bits(log.context) == bits(rows.inputs)
    in_time = rows_of(LogDataModule(write(tmp_path), encoder=encoder, time="when", actions=data.actions, **ROLES))
    assert bits(in_time.inputs) == bits(rows.inputs[[1, 2, 0, 3]])
    assert in_time.action.tolist() == [2, 0, 0, 1]
    assert data.raw_log().names == ["call", "stay", "write"]


def test_propose(tmp_path: Path) -> None:
    data = LogDataModule(write(tmp_path), kinds={"note": None, "when": "date"}, **ROLES)
    encoder = data.propose()
    kinds = {column["name"]: column["kind"] for column in encoder.columns}
    assert kinds == {"when": "date", "age": "number", "town": "category"}
    assert encoder.dropped == {"note": "left out"}
    assert LogDataModule(write(tmp_path), context=["a*"], **ROLES).propose().reader.names == ["age"]
    some = LogDataModule(
        write(tmp_path), context=["age", "town"], missing=["NA", "31"], kinds={"age": "number"}, **ROLES
    ).propose()
    assert some.columns[0]["fill"] == 1044.0
    in_time = LogDataModule(write(tmp_path), kinds={"note": None}, time="when", **ROLES).propose()
    assert in_time.reader.names == ["age", "town"]
    for options in ({"context": ["when", "*"], "kinds": {"note": None}}, {"kinds": {"note": None, "when": "date"}}):
        assert "when" in LogDataModule(write(tmp_path), time="when", **options, **ROLES).propose().reader.names
    with pytest.raises(ValueError, match=r"^files: expected the columns .*'nope'"):
        LogDataModule(write(tmp_path), context=["nope"], **ROLES).propose()
    with pytest.raises(ValueError, match=r"^context: expected '\*' to match only inputs, got 'p'"):
        LogDataModule(write(tmp_path), **(ROLES | {"probability": None})).propose()
    with pytest.raises(ValueError, match=r"^context: expected names of columns, to propose"):
        LogDataModule(write(tmp_path), context=[["age"], ["town"]], **ROLES).propose()
    with pytest.raises(ValueError, match=r"^files: expected at least one round, got none"):
        LogDataModule(write(tmp_path, "a,act,click,p\n"), **ROLES).propose()


@pytest.mark.parametrize(
    "kind", ["csv", "csv.gz", "tsv", "semicolon", "cp1252", "utf-16", "parquet", "several", "folder"]
)
@pytest.mark.parametrize("chunk", [1, 7, 50_000])
def test_files_of_all_kinds_and_chunks(kind: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = big_frame(60)
    latin = {"\U0001f600": "smile", "\u4e2d\u6587": "\u00e9", "\U0001f680": "up", "\u0130": "I", "\x00": "0"}
    frame = frame.map(
        lambda one: re.sub("|".join(latin), lambda found: latin[found[0]], one) if isinstance(one, str) else one
    )
    options: dict[str, Any] = {}
    files: Any = tmp_path / f"log.{kind}"
    if kind == "parquet":
        frame.to_parquet(files, row_group_size=11)
    elif kind in ("several", "folder"):
        frame[:20].to_csv(tmp_path / "1.csv", index=False)
        frame[20:41].to_parquet(tmp_path / "2.parquet")
        frame[41:].to_csv(tmp_path / "3.csv.gz", index=False)
        files = tmp_path if kind == "folder" else [tmp_path / "1.csv", tmp_path / "2.parquet", tmp_path / "3.csv.gz"]
    else:
        encoding = kind if kind in ("cp1252", "utf-16") else "utf-8"
        files = files if kind in ("csv", "csv.gz", "tsv") else tmp_path / "log.csv"
        separator = {"tsv": "\t", "semicolon": ";"}.get(kind, ",")
        frame.to_csv(files, index=False, sep=separator, encoding=encoding)
        options = {"encoding": encoding} | ({"separator": ";"} if kind == "semicolon" else {})
    encoder = tables.encoder()
    monkeypatch.setattr(raw_log, "CHUNK", chunk)
    data = LogDataModule(files, encoder=encoder, actions=["stay", "call", "write"], batch_size=13, **ROLES, **options)
    rows = rows_of(data)
    assert bits(rows.inputs) == bits(encoder.lookup(frame))
    assert rows.action.tolist() == [k % 3 for k in range(60)]
    assert rows.reward.tolist() == [float(k % 2) for k in range(60)]
    in_time = LogDataModule(
        files, encoder=encoder, actions=["stay", "call", "write"], time="at", part=(0.25, 0.75), **ROLES, **options
    )
    order = torch.argsort(torch.tensor(frame["at"].to_numpy()))[15:45]
    assert bits(rows_of(in_time).inputs) == bits(rows.inputs[order])
    assert torch.equal(rows_of(in_time).action, rows.action[order])


def test_a_large_log_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting writes the rows in parts, and batches can be read twice."""
    frame = big_frame(1000)
    frame.to_csv(tmp_path / "log.csv", index=False)
    monkeypatch.setattr(raw_log, "CHUNK", 37)
    data = LogDataModule(
        tmp_path / "log.csv", encoder=tables.encoder(), actions=["stay", "call", "write"], time="at", **ROLES
    )
    wanted = tables.encoder().lookup(frame.sort_values("at", kind="stable"))
    for _ in range(2):
        assert bits(rows_of(data).inputs) == bits(wanted)


def test_dates_in_another_order_sort_as_an_input(tmp_path: Path) -> None:
    lines = [f"{day}.01.2024,{31 + day},{day % 2},{day % 2},0.5" for day in (30, 12, 21)]
    path = write(tmp_path, "\n".join(["since,age,act,click,p", *lines]))
    data = LogDataModule(path, time="since", **ROLES)
    data.encoder = data.propose()
    with pytest.raises(
        ValueError, match=r"(?s)^time: expected .* ISO dates, .*; kinds can name it a date, as an input"
    ):
        data.raw_log()
    data = LogDataModule(path, time="since", kinds={"since": "date"}, **ROLES)
    data.encoder = data.propose()
    assert data.encoder.reader.names == ["since", "age"]
    assert data.raw_log().action.tolist() == [0, 1, 0]


@pytest.mark.parametrize("at", ["date", "zone", "text", "zoned text", "integers"])
def test_times_of_another_column(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dates and numbers that are no input sort over chunks and files, stably."""
    pandas = importlib.import_module("pandas")
    order = [3, 1, 2, 1, 0]
    times: Any = pandas.Series([pandas.Timestamp("2024-01-01") + pandas.Timedelta(hours=k) for k in order])
    if at == "zone":
        times = times.dt.tz_localize("Europe/Zurich")
    elif at == "text":
        times = times.dt.strftime("%Y-%m-%d %H:%M")
    elif at == "zoned text":
        times = times.dt.strftime("%Y-%m-%dT%H:%M:00+01:00")
    elif at == "integers":
        times = pandas.Series(order)
    frame = pandas.DataFrame({"age": [0, 1, 2, 3, 4], "act": 0, "click": 1.0, "p": 1.0, "at": times})
    frame.to_parquet(tmp_path / "log.parquet")
    monkeypatch.setattr(raw_log, "CHUNK", 2)
    data = LogDataModule(tmp_path / "log.parquet", encoder=ColumnEncoder({"age": "number"}), time="at", **ROLES)
    assert rows_of(data).inputs[:, 0].tolist() == [4.0, 1.0, 3.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("actions", "names", "ids"),
    [
        (["2", "0", "1"], ["0", "1", "2"], [2, 0, 1]),
        (["10", "9", "2"], ["2", "9", "10"], [10, 9, 2]),
        (["b", "10", "9"], ["9", "10", "b"], None),
        (["\u00b2", "--5", "1"], ["1", "--5", "\u00b2"], None),
        (["-1", "0", "1"], ["-1", "0", "1"], None),
        ([" a", "a ", "NA"], ["NA", "a"], None),
        (["True", "False", "True"], ["False", "True"], None),
        (["9" * 30, "0", "1"], ["0", "1", "9" * 30], None),
    ],
)
def test_names_of_actions(actions: list[str], names: list[str], ids: list[int] | None, tmp_path: Path) -> None:
    text = "age,act,click,p\n" + "".join(f"{i},{one},1,1\n" for i, one in enumerate(actions))
    data = LogDataModule(write(tmp_path, text), encoder=ColumnEncoder({"age": "number"}), **ROLES)
    assert data.raw_log().names == names
    if ids is None:
        with pytest.raises(ValueError, match=r"^actions: expected the names of the actions"):
            data.train_dataloader()
        data.actions = names
        ids = [names.index(one.strip()) for one in actions]
    assert rows_of(data).action.tolist() == ids
    data.actions = [name for name in names if name != names[0]]
    with pytest.raises(ValueError, match=f"^action: expected .*{re.escape(repr(names[0]))}"):
        data.train_dataloader()


def test_integers_of_parquet(tmp_path: Path) -> None:
    pandas = importlib.import_module("pandas")
    frame = pandas.DataFrame({"age": [1, 2], "act": [1, 0], "click": [True, False], "p": [1.0, 0.5]})
    frame.to_parquet(tmp_path / "log.parquet")
    rows = rows_of(LogDataModule(tmp_path / "log.parquet", encoder=ColumnEncoder({"age": "number"}), **ROLES))
    assert (rows.action.tolist(), rows.reward.tolist()) == ([1, 0], [1.0, 0.0])


@pytest.mark.parametrize(
    ("rewards", "wanted"),
    [
        (["yes", "no", "Yes"], [1.0, 0.0, 1.0]),
        (["TRUE", "FALSE", "TRUE"], [1.0, 0.0, 1.0]),
        (["True", "True", "True"], [1.0, 1.0, 1.0]),
        (["$1.50", "$2", "-$3.25"], [1.5, 2.0, -3.25]),
        (['"1,5 \u20ac"', '"2,25 \u20ac"', '"3,125 \u20ac"'], [1.5, 2.25, 3.125]),
        (['"1,234"', "5", "6.5"], [1234.0, 5.0, 6.5]),
        (["1", "1", "1"], [1.0, 1.0, 1.0]),
        (["0.1", "1e-3", "-7"], [0.1, 1e-3, -7.0]),
    ],
)
@pytest.mark.parametrize("chunk", [2, 50_000])
def test_rewards(
    rewards: list[str], wanted: list[float], chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "age,act,click,p\n" + "".join(f"1,0,{one},1\n" for one in rewards)
    monkeypatch.setattr(raw_log, "CHUNK", chunk)
    data = LogDataModule(write(tmp_path, text), encoder=ColumnEncoder({"age": "number"}), **ROLES)
    assert rows_of(data).reward.tolist() == wanted
    assert data.bandit_log().reward.tolist() == wanted


MESSY = """\
age,member,since,act,click,p
1,yes,2024-01-01,a,1,0.5
old,no,2024-01-02,b,0,0.5
3,perhaps,2024-01-03,,1,0.5
4,no,yesterday,a,lots,0.5
5,no,2024-01-05,b,,
6,no,2024-01-06,a,1,x
older,no,2024-01-07,a,1,0.5
"""
PROBLEMS = [
    "numbers in 'age', got 'old' in row 2 and 1 other value",
    "booleans in 'member', got 'perhaps' in row 3",
    "dates in 'since', got 'yesterday' in row 4",
    "integers, or names of 1 to 200 characters, in one line, in 'act', got nan in row 3",
    "in 'click', got ",
    "'p', got nan in row 5",
    "mend or leave out such rows",
    "mend the values, name them in missing=, or choose another kind for the column",
]


@pytest.mark.parametrize("chunk", [1, 3, 50_000])
def test_one_error_for_all_columns_and_nothing_is_learnt(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = ColumnEncoder({"age": "number", "member": "boolean", "since": "date"})
    monkeypatch.setattr(raw_log, "CHUNK", chunk)
    head = table_head(encoder, "binary", actions=["a", "b"])
    before = {name: value.clone() for name, value in head.state_dict().items()}
    data = LogDataModule(write(tmp_path, MESSY), encoder=encoder, actions=["a", "b"], **ROLES)
    trainer = pl.Trainer(default_root_dir=tmp_path / "fit", **QUIET)
    with pytest.raises(ValueError, match=r"^files: expected ") as caught:
        trainer.fit(NeuralLinearBandit(head), datamodule=data)
    for part in PROBLEMS:
        assert part in str(caught.value), str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
    assert list(tmp_path.rglob("*.ckpt")) == []


def test_gaps_of_times_are_in_the_same_error(tmp_path: Path) -> None:
    encoder = ColumnEncoder({"age": "number", "since": "date"})
    text = "age,since,act,click,p\nold,2024-01-01,0,1,1\n2,,0,1,1\n3,2024-01-02,0,1,1\n"
    data = LogDataModule(write(tmp_path, text), encoder=encoder, time="since", **ROLES)
    with pytest.raises(ValueError, match=r"'age', got 'old' in row 1; times in 'since', got nan in row 2"):
        data.setup()


@pytest.mark.parametrize("role", ["act", "click", "p"])
def test_an_input_has_no_other_role(role: str, tmp_path: Path) -> None:
    encoder = ColumnEncoder({"age": "number", role: "category"})
    with pytest.raises(ValueError, match=rf"^encoder: expected no column of the .*'{role}'"):
        LogDataModule(write(tmp_path), encoder=encoder, **ROLES).setup()


def test_lists_are_no_actions(tmp_path: Path) -> None:
    pandas = importlib.import_module("pandas")
    frame = pandas.DataFrame({"age": [1, 2], "act": [[1, 2], [3]], "click": [1.0, 0.0], "p": [1.0, 1.0]})
    frame.to_parquet(tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=r"in one line, in 'act', got array\(\[1, 2\]\) in row 1 and 1 other"):
        LogDataModule(tmp_path / "log.parquet", encoder=ColumnEncoder({"age": "number"}), **ROLES).setup()


def test_words_for_gaps_of_the_encoder(tmp_path: Path) -> None:
    """Also those that pandas takes for numbers, and not those that only pandas knows."""
    text = "age,act,click,p\n1,0,1,1\n999,0,1,1\n3,0,1,1\n"
    data = LogDataModule(write(tmp_path, text), missing=["999"], **ROLES)
    data.encoder = data.propose()
    assert (data.encoder.columns[0]["fill"], data.encoder.columns[0]["gaps"]) == (2.0, True)
    assert rows_of(data).inputs.isnan().tolist() == [[False], [True], [False]]
    other = LogDataModule(
        write(tmp_path, text.replace("999", "NA")), encoder=ColumnEncoder({"age": "number"}, missing=["x"]), **ROLES
    )
    with pytest.raises(ValueError, match="expected numbers in 'age', got 'NA' in row 2"):
        other.setup()


def test_columns_that_a_file_lacks(tmp_path: Path) -> None:
    encoder = ColumnEncoder({"age": "number", "nope": "text"})
    with pytest.raises(ValueError, match=r"^files: expected the columns .*, got none of 'nope' in log.csv"):
        LogDataModule(write(tmp_path), encoder=encoder, **ROLES).setup()
    write(tmp_path, "age;nope;act;click;p\n", "other.csv")
    with pytest.raises(ValueError, match=r"pass separator=';'"):
        LogDataModule(tmp_path / "other.csv", encoder=encoder, **ROLES).setup()
    with pytest.raises(ValueError, match=r"^files: expected at least one round, got none"):
        LogDataModule(tmp_path / "other.csv", encoder=encoder, separator=";", **ROLES).setup()
    with pytest.raises(ValueError, match=r"^part: expected at least one of 4 rounds, got none from 0 to 0.01"):
        LogDataModule(write(tmp_path), encoder=ColumnEncoder(COLUMNS), part=(0.0, 0.01), **ROLES).setup()
    with pytest.raises(ValueError, match=r"^encoder: expected a ColumnEncoder, to read raw columns, got None"):
        LogDataModule(write(tmp_path), **ROLES).raw_log()
    with pytest.raises(TypeError, match=r"^encoder: expected a ColumnEncoder or None"):
        LogDataModule(write(tmp_path), encoder=torch.nn.Identity(), **ROLES)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_size", [None, 1, 64])
def test_a_fit_learns_the_log_in_order(batch_size: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = big_frame(200)
    frame.to_csv(tmp_path / "log.csv", index=False)
    monkeypatch.setattr(raw_log, "CHUNK", 33)
    names = ["stay", "call", "write"]
    head = table_head(tables.COLUMNS, "binary", actions=names)
    data = LogDataModule(
        tmp_path / "log.csv", encoder=tables.encoder(), actions=names, batch_size=batch_size, time="at", **ROLES
    )
    trainer = pl.Trainer(default_root_dir=tmp_path, enable_checkpointing=False, **QUIET)
    trainer.fit(NeuralLinearBandit(head), datamodule=data)
    ordered = frame.sort_values("at", kind="stable")
    other = table_head(tables.COLUMNS, "binary", actions=names)
    other.learn(
        tables.encoder().lookup(ordered), list(ordered["act"]), torch.tensor(ordered["click"].to_numpy()).double()
    )
    assert isinstance(other, BanditHead)
    some = tables.messy_rows(50)
    torch.testing.assert_close(head.policy.theta_hat, other.policy.theta_hat, rtol=1e-9, atol=1e-12)
    assert torch.equal(head.select(some), other.select(some))


def test_row_numbers_and_columns_that_are_left_out(tmp_path: Path) -> None:
    """A column without a name is dropped, and `kinds` may drop any column before patterns are matched."""
    path = tmp_path / "log.csv"
    rows = [f"{i},{20 + i % 9},{i % 2},{i % 3 == 0:d},0.5" for i in range(60)]
    path.write_text("\n".join([",age,action,reward,p", *rows]) + "\n")
    data = LogDataModule(path, action="action", reward="reward", kinds={"p": None})
    encoder = data.propose()
    assert encoder.column_names == ["age"]
    assert encoder.dropped == {"Unnamed: 0": "no name, row numbers?", "p": "left out"}
    with pytest.raises(ValueError, match=r"'p' \(the logging probabilities\?\)"):
        LogDataModule(path, action="action", reward="reward").propose()
