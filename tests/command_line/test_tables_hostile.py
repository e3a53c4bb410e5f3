"""Hostile tables on the command line: what fit proposes and saves must be what the other commands read."""

import csv
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonargparse")
pytest.importorskip("narwhals")
from torchonline.command_line import main


def write(path: Path, names: list[str], rows: list[list[Any]]) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command in a folder of its own, and returns its code and its output."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        code = main(words)
        found = capsys.readouterr()
        return code, found.out + found.err

    return run


ROLES = ("--data.files", "log.csv", "--data.action", "action", "--data.reward", "reward", "--data.probability", "p")


def test_texts_that_yaml_takes_for_something_else(run: Any) -> None:
    words = ["08001", "8001", "1e5", "null", "yes", "~", "- z", "12:30:45", "x: y"]
    rows = [[word, number % 2, 0.5, word] for number in range(10) for word in words]
    write(Path("log.csv"), ["1e3", "reward", "p", "action"], rows)
    code, text = run("fit", *ROLES)
    assert code == 0, text
    assert "1e3  category  9 values" in text
    code, text = run("export", "--path", "head.pt")
    assert code == 0, text


def test_one_error_for_all_columns_of_all_rows(run: Any) -> None:
    rows: list[list[Any]] = [[row, f"{row % 28 + 1}/12/2024", 0.5, "ab"[row % 2], row % 2] for row in range(60)]
    rows[7][0] = "old"
    rows[8][1] = "31/02/2024"
    rows[9][2] = "half"
    rows[10][3] = "two\nlines"
    rows[11][4] = ""
    write(Path("log.csv"), ["age", "born", "p", "action", "reward"], rows)
    code, text = run("fit", *ROLES)
    assert code == 2
    error = text[text.index("error: ") :]
    for fact in (
        "numbers in 'age', got 'old' in row 8",
        "dates in 'born', got '31/02/2024' in row 9",
        "numbers in 'p', got 'half' in row 10",
        "in 'action', got 'two\\nlines' in row 11",
        "numbers in 'reward', got nan in row 12",
        "mend or leave out such rows",
    ):
        assert fact in error
    assert not Path("outputs").exists()


def test_columns_of_no_kind_are_dropped(run: Any) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    columns = {"age": range(40), "action": [0, 1] * 20, "reward": [0, 1, 1, 0] * 10, "p": [0.5] * 40}
    frame = pandas.DataFrame(columns | {"path": [[1, 2], [3]] * 20, "raw": [b"a", b"b"] * 20})
    frame.to_parquet("log.parquet")
    code, text = run("fit", "--data.files", "log.parquet", *ROLES[2:])
    assert code == 0, text
    assert text.count("dropped: lists, or other values of no kind") == 2
