"""The list of long tests names tests that exist."""

import ast
import functools
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.long_tests import OPTIMIZED, ROOT, SMOKE, in_share, long_tests, measured


@functools.cache
def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_long_tests_exist() -> None:
    """Run ``python -m tests.long_tests`` with a report where they do not."""
    files = [*(ROOT / "torchonline" / "testing").glob("*.py"), ROOT / "tests" / "contract" / "fake_devices.py"]
    files += [ROOT / "tests" / "convex" / "test_convex_learners.py"]
    rules, lost = {name for path in files for name in functions(path)}, []
    for name in long_tests():
        path, test = name.split("::")
        function, _, rule = test.rstrip("]").partition("[")
        if not (ROOT / path).is_file() or function not in functions(ROOT / path) or (rule and rule not in rules):
            lost.append(name)
    assert lost == []


def test_named_cases_are_of_long_tests() -> None:
    for node in SMOKE | OPTIMIZED:
        test, _, ids = node.partition("[")
        rule = f"[{ids.rstrip(']').rpartition('-')[2]}]" if test.endswith("::test_rule") else ""
        assert test + rule in long_tests(), node


@pytest.mark.parametrize("share", ["0/7", "8/7", "2", "-1/7", "a/b"])
def test_a_wrong_share_is_refused(share: str) -> None:
    with pytest.raises(ValueError, match=r"^share: expected k/n with k from 1 to n"):
        in_share(SimpleNamespace(nodeid="tests/test_a.py::test_b"), share)


def test_each_case_is_in_one_share() -> None:
    for i in range(50):
        item = SimpleNamespace(nodeid=f"tests/test_a.py::test_b[{i}]")
        assert in_share(item, "1/1")
        assert sum(in_share(item, f"{weekday}/7") for weekday in range(1, 8)) == 1


def test_a_report_is_read(tmp_path: Path) -> None:
    cases = [("tests.test_long_tests", "test_a[x-y]", 1.0), ("tests.models.test_models.TestBanditHead", "test_b", 2.0)]
    cases += [("tests.contract.test_contract", "test_rule[OFUL()-memory_is_flat]", 3.0)]
    lines = [f'<testcase classname="{where}" name="{name}" time="{time}"/>' for where, name, time in cases]
    (tmp_path / "report.xml").write_text(f"<testsuite>{''.join(lines)}</testsuite>")
    assert measured(tmp_path / "report.xml") == {
        "tests/test_long_tests.py::test_a": [1.0],
        "tests/models/test_models.py::test_b": [2.0],
        "tests/contract/test_contract.py::test_rule[memory_is_flat]": [3.0],
    }
