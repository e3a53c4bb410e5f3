"""What py.typed promises: type checkers see the library as it is, on an installed copy."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

import torchonline
from tests.composed_policies import CASES as COMPOSED
from tests.convex_learners import CASES as CONVEX
from tests.learners import CASES
from tests.private_learners import CASES as PRIVATE

ROOT = Path(__file__).parents[1]
PACKAGE = Path(torchonline.__file__).parent
USER_CODE = ROOT / "tests" / "typing" / "library.py"


def modules() -> dict[type, nn.Module]:
    """An instance of each public learner's class, and the modules in it that are the library's."""
    plain = [case for case in CASES if case.over is None]
    built = [case.build() for case in (*plain, *COMPOSED, *CONVEX, *PRIVATE)]
    parts = [part for module in built for part in module.modules()]
    return {type(part): part for part in parts if type(part).__module__.startswith("torchonline.")}


def questions() -> Iterator[tuple[str, str, str]]:
    """Module and name of each class, and a line that asks for a type: of its call, or of a buffer that is in use."""
    for cls, module in modules().items():
        name = cls.__qualname__
        asked = [key for key, buffer in module._buffers.items() if buffer is not None]
        if cls.forward is not nn.Module.forward:
            asked.append("__call__")
        for attribute in asked:
            yield cls.__module__, name, f"def of_{name}_{attribute}(x: {name}) -> None: reveal_type(x.{attribute})"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says, on a copy of the package as it is installed, of a user's code and of all classes."""
    folder = tmp_path_factory.mktemp("installed")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, folder / "torchonline", ignore=ignored)
    for name in ("models", "callbacks"):
        if not (folder / "torchonline" / name).exists():
            shutil.copytree(PACKAGE.parent / name, folder / "torchonline" / name, ignore=ignored)
    asked = sorted(questions())
    lines = sorted({f"from {module} import {name}" for module, name, _ in asked}) + [line for *_, line in asked]
    (folder / "every_class.py").write_text("\n".join(lines) + "\n")
    shutil.copy(USER_CODE, folder)
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--follow-imports", "silent", "--no-pretty"]
    command = [sys.executable, "-m", "mypy", *options, USER_CODE.name, "every_class.py"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.stderr == ""
    return run.stdout.splitlines()


def test_a_users_code_is_understood(told: list[str]) -> None:
    """Every `assert_type` of the file holds, and every mistake in it is one."""
    assert [line for line in told if "error:" in line] == []


def test_no_call_returns_any_and_all_buffers_are_tensors(told: list[str]) -> None:
    answers = [line.partition('Revealed type is "')[2].rstrip('"') for line in told if "Revealed type" in line]
    expected = [line for *_, line in sorted(questions())]
    assert len(answers) == len(expected) > 300
    is_right = re.compile(r"def \(.*\) -> (?!Any).*|torch\._tensor\.Tensor( \| None)?")
    found = zip(expected, answers, strict=True)
    assert [f"{line}: {answer}" for line, answer in found if not is_right.fullmatch(answer)] == []


def test_submodules_that_load_when_asked_for_are_seen() -> None:
    """By type checkers, as submodules of the package: those of `dir`, and those that the package itself imports."""
    text = (PACKAGE / "__init__.py").read_text()
    seen = set(re.findall(r"^    from torchonline import (\w+) as \1$", text, re.M))
    functions = set(re.findall(r"^    from torchonline\.\w+ import (\w+) as \1$", text, re.M))
    assert seen - {"convex", "links", "policies", "regression"} == set(torchonline._SUBMODULES)
    assert functions == set(torchonline._FUNCTIONS)
