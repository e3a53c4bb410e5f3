"""The notebook runs from top to bottom, and prints what it shows."""

import contextlib
import io
import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from tests.printed import check_printed

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_prints_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    names: dict[str, object] = {}
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("".join(cell["source"]), str(path), "exec"), names)
        shown = [line for output in cell["outputs"] for line in output.get("text", ())]
        # Another processor rounds otherwise, and its choices may differ.
        check_printed("".join(shown), printed.getvalue(), tolerance=0.2)
