"""Hostile tables on the command line: what fit proposes and saves must be what the other commands read."""

import csv
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonargparse")
pytest.importorskip("narwhals")
from torchonline.command_line import main
from torchonline.models import LogDataModule


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


def of_actions(path: str, names: str) -> None:
    """Write a log in which the action "b" is right."""
    rows: list[list[Any]] = []
    for row in range(120):
        name = names[row % len(names)]
        rows.append(["uvw"[row % 3], 0.5, name, int(name == "b")])
    write(Path(path), ["kind", "p", "action", "reward"], rows)


def test_a_fit_that_goes_on_keeps_the_actions_of_its_checkpoint(run: Any) -> None:
    of_actions("log.csv", "ab")
    of_actions("other.csv", "bc")  # as many actions, with other ids
    assert run("fit", *ROLES)[0] == 0
    saved = [Path("outputs", name).read_bytes() for name in ("last.ckpt", "config.yaml")]
    go_on = ("fit", "--ckpt_path", "outputs/last.ckpt", "--trainer.max_epochs", "2")
    for words in (
        (*go_on, "--data.files", "other.csv"),
        (*go_on, *ROLES[2:], "--data.files", "other.csv", "--model.head.rewards", "binary"),
        ("evaluate", *ROLES[2:], "--data.files", "other.csv", "--model.head.rewards", "binary"),
    ):
        code, text = run(*words)
        assert code == 2
        assert "action: expected one of 'a', 'b', got 'c'" in text
    # A refused fit changes neither the checkpoint nor the configuration beside it.
    assert saved == [Path("outputs", name).read_bytes() for name in ("last.ckpt", "config.yaml")]
    code, text = run(*go_on)
    assert code == 0, text
    assert "columns:" not in text  # they are those of the first fit
    assert "learnt 120 new rounds, 240 in all" in text


def test_a_number_that_stands_for_a_gap(run: Any) -> None:
    rows: list[list[Any]] = [[-999 if row % 4 == 0 else row % 9, 0.5, "ab"[row % 2], row % 3 % 2] for row in range(80)]
    write(Path("log.csv"), ["age", "p", "action", "reward"], rows)
    code, text = run("fit", *ROLES, "--data.missing", "[na, '-999']")
    assert code == 0, text
    data = LogDataModule("log.csv", action="action", reward="reward", probability="p", missing=["na", "-999"])
    data.encoder = data.propose()
    ages = data.raw_log().inputs[:, 0]
    assert int(ages.isnan().sum()) == 20
    assert float(ages.nan_to_num(0.0).min()) == 0.0


def test_replay_begins_with_the_saved_configuration(run: Any) -> None:
    of_actions("log.csv", "ab")
    assert run("fit", *ROLES)[0] == 0
    for words in ("replay",), ("replay", "--ckpt_path", "new"):
        code, text = run(*words)
        assert code == 0, text
        assert "120 rounds, 2 actions" in text


def test_a_service_has_no_log_to_propose_from(run: Any) -> None:
    words = ("serve", "--ckpt_path", "new", "--port", "0")
    for given, wanted in (
        ((), "from which columns are proposed"),
        (("--model.head.columns", "{age: number}"), "port: "),
    ):
        code, text = run(*words, *given)
        assert code == 2
        assert wanted in text
