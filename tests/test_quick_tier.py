"""The quick tier, ``make test-fast``, is a small part of the suite and uses every public class."""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest

from tests import convex_learners, learners, private_learners
from tests.contract.matrix import BASELINES

ROOT = Path(__file__).parent.parent
# Packages with `__all__`, and modules in which every name without an underscore is public.
PACKAGES = (
    "torchonline",
    *(f"torchonline.{name}" for name in ("baselines", "distributed", "environments", "privacy", "models", "callbacks")),
)
MODULES = tuple(f"torchonline.{name}" for name in ("links", "metrics", "diagnostics", "datasets"))


def public() -> set[type]:
    """Return the public classes."""
    found = set()
    for name in (*PACKAGES, *MODULES):
        module = importlib.import_module(name)
        names = getattr(module, "__all__", [each for each in vars(module) if not each.startswith("_")])
        values = (getattr(module, each) for each in names)
        found |= {
            value for value in values if inspect.isclass(value) and (name in PACKAGES or value.__module__ == name)
        }
    return found


class Collected:
    """A pytest plugin that keeps the tests of a session."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


@pytest.fixture(scope="module")
def items() -> list[Any]:
    """Collect the tests of the quick tier."""
    found, tests = Collected(), ROOT / "tests"
    options = ["--collect-only", "--quiet", "-p", "no:cacheprovider", f"--ignore={tests / 'benchmarks'}"]
    assert pytest.main([str(tests), "-m", "fast and not slow", *options], plugins=[found]) == 0
    return found.items


def params(item: Any) -> dict[str, Any]:
    """Return the parameters of a test."""
    return item.callspec.params if hasattr(item, "callspec") else {}


class Named:
    """The classes that tests name: in their parameters, in their code, and in the helpers of the tests that they call."""

    def __init__(self) -> None:
        self.classes: set[type] = set()
        self.seen: set[Any] = set()

    def value(self, value: Any) -> None:
        """Add the classes of a parameter or of an object that some code names."""
        if inspect.isclass(value):
            self.classes.add(value)
        elif isinstance(value, FunctionType | MethodType):
            self.function(getattr(value, "__func__", value))
        elif isinstance(value, functools.partial):
            self.value((value.func, *value.args, *value.keywords.values()))
        elif isinstance(value, dict):
            self.value((*value.keys(), *value.values()))
        elif isinstance(value, list | tuple):
            for each in value:
                self.value(each)
        elif dataclasses.is_dataclass(value):
            self.classes.add(type(value))
            self.value([getattr(value, field.name) for field in dataclasses.fields(value)])
        else:
            self.classes.add(type(value))

    def function(self, function: Any) -> None:
        """Add the classes that a function of the tests names."""
        if function in self.seen or not is_ours(function):
            return
        self.seen.add(function)
        for name in names(function.__code__):
            value = function.__globals__.get(name)
            if isinstance(value, ModuleType) and value.__name__.startswith("torchonline"):
                self.value([vars(value).get(each) for each in names(function.__code__)])
            elif inspect.isclass(value) or isinstance(value, FunctionType):
                self.value(value)
        for cell in function.__closure__ or ():
            if isinstance(cell.cell_contents, FunctionType):
                self.value(cell.cell_contents)


def is_ours(function: Any) -> bool:
    """Return whether a function is defined in tests/."""
    return Path(function.__code__.co_filename).is_relative_to(ROOT / "tests")


def names(code: CodeType) -> Iterator[str]:
    """Yield the names in some code and in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names(constant)


def test_every_public_class_is_in_it(items: list[Any]) -> None:
    """A test has the class or a subclass as a parameter, or names it in its code."""
    named = Named()
    for item in items:
        named.function(item.function)
        named.value(params(item))
    missing = {cls.__name__ for cls in public() if not any(issubclass(each, cls) for each in named.classes)}
    assert missing == set()
    assert len(public()) > 80


def test_every_learner_keeps_its_quick_rules(items: list[Any]) -> None:
    """Looking changes nothing, a refused step changes nothing, a bad step is refused by name, a loaded state continues."""
    rules: dict[Any, set[int]] = {}
    for item in items:
        case, rule = (params(item).get(name) for name in ("case", "rule"))
        if hasattr(case, "cls"):
            rules.setdefault(case.cls, set()).update({rule.number} if rule else ())
    for case in (*learners.CASES, *convex_learners.CASES):
        assert rules[case.cls] == ({2, 3} if case.cls.__name__ in BASELINES else {1, 2, 3, 9}), case
    assert {case.cls for case in private_learners.CASES} <= set(rules)
    assert 1000 < len(items) < 5500
