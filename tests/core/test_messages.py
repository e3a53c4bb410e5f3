"""Messages: numbers with their nouns, and how to install what is missing from a clone."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import torchonline
from torchonline.core.axes import axes_or_new
from torchonline.core.messages import counted, install_extra
from torchonline.datasets import digits
from torchonline.export import to_executorch, to_onnx
from torchonline.off_policy import BanditLog

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("torchonline", "models", "callbacks") for path in (ROOT / folder).rglob("*.py")]
# Numbers that are never 1, in messages that say so.
PLURAL = re.compile(r"\{[^{}]*\} (?:\w+ )?(?:rounds|steps|batches|gaps)\b")
NEVER_ONE = (
    "newton_steps",
    "NEWTON_STEPS}",
    "memory}",
    "horizon}",
    "expected} steps",
    "most} rounds",
    "int(rounds)}",
    "alarm.window",
    "+ 1}",
)


def test_a_number_has_its_noun() -> None:
    assert [counted(n, "round") for n in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]
    assert [counted(2, noun) for noun in ("batch", "query", "known round")] == [
        "2 batches",
        "2 queries",
        "2 known rounds",
    ]
    assert repr(BanditLog(arms=1, action=[0], reward=[1.0], probability=[1.0])).startswith("BanditLog(1 round, ")


def test_no_message_counts_by_itself() -> None:
    lines = [line for path in SOURCES for line in path.read_text().splitlines() if PLURAL.search(line)]
    assert [line for line in lines if not any(known in line for known in NEVER_ONE)] == []


def test_extras_exist_and_are_installed_from_a_clone() -> None:
    """The package index does not have torchonline: no message sends anybody there."""
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    named = [name for path in SOURCES for name in re.findall(r"install_extra\(['\"](\w+)", path.read_text())]
    assert len(named) >= 7
    assert set(named) <= set(extras)
    for path in [*SOURCES, *(ROOT / "examples").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        assert not re.search(r"pip install ['\"]?torchonline", path.read_text()), path
    assert install_extra("cli") == 'pip install ".[cli]" in a clone of torchonline'


MISSING: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "matplotlib.pyplot": ("plot: expected matplotlib, got none", lambda _: axes_or_new()),
    "sklearn.datasets": ("digits: expected scikit-learn, got none", lambda _: digits()),
    "onnx": (
        "to_onnx: expected onnx, onnxscript, onnxruntime, got no onnx",
        lambda folder: to_onnx(torchonline.OFUL(2), folder / "a.onnx"),
    ),
    "onnxscript": (
        "to_onnx: expected onnx, onnxscript, onnxruntime, got no onnxscript",
        lambda folder: to_onnx(torchonline.OFUL(2), folder / "a.onnx"),
    ),
    "executorch": (
        "to_executorch: expected executorch, got no executorch",
        lambda folder: to_executorch(torchonline.OFUL(2), folder / "a.pte"),
    ),
}


@pytest.mark.parametrize("module", list(MISSING))
def test_what_is_missing_is_named(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in MISSING:  # an import that failed midway would leave half a package
        importlib.import_module(each)
    monkeypatch.setitem(sys.modules, module, None)
    wanted, act = MISSING[module]
    with pytest.raises(ImportError, match=rf'^{wanted}.*; pip install "\.\[\w+\]" in a clone of torchonline$'):
        act(tmp_path)
