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
