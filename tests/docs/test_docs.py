"""What docs/ tells a reader to run does run, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))
BLOCKS = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in DOCUMENTS
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
]


def test_there_are_code_blocks() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", BLOCKS)
def test_code_block_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs", "exec"), {})


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_links_and_scripts_exist(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (path.parent / target).exists(), target
    for script in re.findall(r"<!-- printed by (\S+)", text):
        assert (ROOT / script).is_file(), script
