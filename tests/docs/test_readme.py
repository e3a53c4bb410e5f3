"""The README's code runs, its make targets exist, and it stays short."""

import re
from pathlib import Path

import pytest

from tests.printed import blocks_of, check_printed

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = blocks_of(README)


def test_there_is_a_code_block() -> None:
    assert BLOCKS


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 90


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.fast), len(BLOCKS)])
def test_code_runs_in_order(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, (code, shown) in enumerate(BLOCKS[:count]):
        exec(compile(code, f"README.md, block {number}", "exec"), names)
        check_printed(shown, capsys.readouterr().out)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make (\w+)", README)) <= targets


def test_printed_by_names_a_script() -> None:
    for script in re.findall(r"<!-- printed by (\S+)", README):
        assert (ROOT / script).is_file(), script
