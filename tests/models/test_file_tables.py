"""Text files as vendors write them: read right, or refused with the columns that are there and a remedy."""

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchonline.models import LogDataModule, TableDataModule

ROLES: dict[str, Any] = {"action": "item", "reward": "click", "probability": "p"}
ROWS = [[54, 20, 2, 1, 0.5], [33, 15, 0, 0, 0.25], [61, 9, 1, 1, 0.25]]
HEADER = ["age", "hour", "item", "click", "p"]


def text_of(separator: str = ",", end: str = "", header_end: str = "") -> str:
    lines = [separator.join(map(str, row)) for row in ROWS]
    return "\n".join([separator.join(HEADER) + header_end, *(line + end for line in lines)]) + "\n"


def read(path: Path, context: Any = ("age", "hour"), **options: Any) -> list[list[float]]:
    """Return context, action, reward and probability of each round, as fit and evaluate read them."""
    data = LogDataModule(path, context=list(context), batch_size=9, **(ROLES | options))
    (batch,) = data.train_dataloader()
    log = data.bandit_log()
    assert batch.inputs.tolist() == log.context.tolist()
    assert batch.action.tolist() == log.action.tolist()
    parts = zip(
        batch.inputs.tolist(), batch.action.tolist(), batch.reward.tolist(), batch.probability.tolist(), strict=True
    )
    return [[*inputs, *others] for inputs, *others in parts]


# What is in a file, by its name.
FILES: dict[str, str | bytes] = {
    "plain.csv": text_of(),
    "trailing.csv": text_of(end=","),
    "trailing, in the header too.csv": text_of(end=",", header_end=","),
    "trailing blank.csv": text_of(end=", "),
    "blanks.csv": text_of(", "),
    "tabs.tsv": text_of("\t"),
    "trailing tab.TSV": text_of("\t", end="\t"),
    "UPPER.CSV": text_of(),
    "small.csv.gz": gzip.compress(text_of(end=",").encode()),
    "SMALL.TSV.GZ": gzip.compress(text_of("\t").encode()),
    "mark of Excel.csv": b"\xef\xbb\xbf" + text_of().encode(),
    "windows.csv": text_of().replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", list(FILES))
def test_each_way_of_writing_a_table_is_read_alike(name: str, tmp_path: Path) -> None:
    content = FILES[name]
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    for path in (tmp_path / name, tmp_path):  # also as a file of a folder
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert read(path) == ROWS
    data = TableDataModule(tmp_path / name, inputs=["age", "hour"], targets=["click", "p"], batch_size=9)
    ((inputs, targets),) = data.train_dataloader()
    assert inputs.tolist() == [row[:2] for row in ROWS]
    assert targets.tolist() == [row[3:] for row in ROWS]


def test_a_pattern_takes_no_empty_last_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text_of(end=",", header_end=","))
    assert read(tmp_path / "a.csv", ["*"]) == ROWS


def test_more_values_than_names_are_refused(tmp_path: Path) -> None:
    """Row names of R: nobody knows which column has no name."""
    for number, text in enumerate(
        ["age,item,click,p\nx,31,0,1,0.5\n", "age,item,click,p\n31,0,1,0.5,\n31,0,1,0.5,7\n"]
    ):
        path = tmp_path / f"{number}.csv"
        path.write_text(text)
        with pytest.raises(
            ValueError, match=r"^files: expected as many names as values in a row, got more values in .*csv"
        ):
            read(path, ["age"])
    path.write_text("age,item,click,p,age\n31,0,1,0.5,2\n")
    with pytest.raises(ValueError, match=r"^files: expected unique column names, got 'age' more than once in 1.csv$"):
        read(path, ["age"])


@pytest.mark.parametrize(("separator", "seen"), [(";", ";"), ("|", r"\|"), ("\t", r"\\t")])
def test_another_separator_is_guessed_and_an_option(separator: str, seen: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text_of(separator))
    message = (
        rf"^files: expected the columns 'age', .* in a.csv, which has 'age{seen}+hour{seen}.*pass separator='{seen}'$"
    )
    with pytest.raises(ValueError, match=message.replace(r"\\t+", r"\\t")):
        read(path)
    assert read(path, separator=separator) == ROWS


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_another_encoding_is_guessed_and_an_option(encoding: str, tmp_path: Path) -> None:
    text = text_of().replace("age", "\u00e2ge")
    for path, content in (
        (tmp_path / "a.csv", text.encode(encoding)),
        (tmp_path / "a.csv.gz", gzip.compress(text.encode(encoding))),
    ):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=rf"^files: expected .* got '.*', which is not utf-8: pass encoding='{encoding}'$"
        ):
            read(path, ["\u00e2ge", "hour"])
        assert read(path, ["\u00e2ge", "hour"], encoding=encoding) == ROWS


def test_the_error_shows_the_columns_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text_of())
    with pytest.raises(
        ValueError, match=r"got none of 'aeg', 'howr' in a.csv, which has 'age', 'hour', 'item', 'click', 'p'$"
    ):
        read(path, ["aeg", "howr"])


ROW_NUMBERS = ",age,item,click,prob\n0,31,0,0,0.9\n1,27,1,1,0.1\n"


def test_a_pattern_takes_no_row_numbers_and_no_probabilities(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ROW_NUMBERS)
    columns: dict[str, Any] = {"action": "item", "reward": "click"}
    with pytest.raises(
        ValueError, match=r"^context: expected '\*' .* got 'Unnamed: 0' without a name .*; 'prob' \(the logging"
    ):
        LogDataModule(path, context=["*"], **columns).setup()
    with pytest.raises(
        ValueError, match=r"^context: expected '\*' to match only inputs, got 'Unnamed: 0' without a name"
    ):
        LogDataModule(path, context=["*"], probability="prob", **columns).setup()
    with pytest.raises(
        ValueError, match=r"^inputs: expected '\*' to match only inputs, got 'Unnamed: 0' without a name"
    ):
        TableDataModule(path, inputs=["*"], targets="click").setup()
    for name in ("p", "P", "pscore", "propensity", "propensity_score", "logging_prob", "action_probability"):
        path.write_text(f"age,item,click,{name}\n31,0,0,0.9\n")
        with pytest.raises(
            ValueError, match=rf"^context: expected '\*' to match only inputs, got '{name}' \(the logging"
        ):
            LogDataModule(path, context=["*"], **columns).setup()
        # What is named is taken.
        data = LogDataModule(path, context=[name, "*"], **columns)
        assert next(iter(data.train_dataloader())).inputs.tolist() == [[0.9, 31.0]]


@pytest.mark.parametrize("make", [LogDataModule, TableDataModule])
def test_options_of_text(make: Callable[..., Any], tmp_path: Path) -> None:
    columns: Any = ROLES | {"context": ["age"]} if make is LogDataModule else {"inputs": ["age"], "targets": "click"}
    for name, options in {"encoding": {"encoding": "latin-none"}, "separator": {"separator": ";;"}}.items():
        with pytest.raises(ValueError, match=rf"^{name}: expected "):
            make(tmp_path / "a.csv", **columns, **options)
    (tmp_path / "a.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(ValueError, match=r"^files: expected files that pandas can read, got '.*a.csv.gz'"):
        make(tmp_path / "a.csv.gz", **columns).setup()
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text_of().encode())[:-20])
    with pytest.raises(ValueError, match=r"^files: expected files that pandas can read, got '.*b.csv.gz'"):
        make(tmp_path / "b.csv.gz", **columns).setup()


def test_all_bad_columns_are_listed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        'city,fee,day,age,item,click,p\nRome,"$1,200",2024-01-02,31,0,1,0.5\nPisa,"$900",2024-01-03,,,?,0.5\n'
    )
    data = LogDataModule(path, context=["city", "fee", "day", "age"], **ROLES)
    for act in (data.train_dataloader, data.bandit_log):
        with pytest.raises(TypeError) as caught:
            act()
        message = str(caught.value)
        for part in (
            "'city' with text ('Rome')",
            "'fee' with amounts as text ('$1,200')",
            "'day' with dates ('2024-01-02')",
            "'age' with 1 gap",
            "action: expected integers from 0, got 'item' with 1 gap",
            "reward: expected a column of finite numbers, got 'click' with text among numbers ('?')",
            "fill gaps, or drop their rows",
            "write amounts as plain numbers",
        ):
            assert part in message
        assert message.count("fill gaps") == 1
