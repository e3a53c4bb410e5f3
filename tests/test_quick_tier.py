"""The quick tier, ``make test-fast``: it is a small part of the suite, and every public class is in it."""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
# Those that name what is public, and those of which all is that does not begin with an underscore.
PACKAGES = (
    "torchonline",
    *(f"torchonline.{name}" for name in ("baselines", "environments", "privacy", "models", "callbacks")),
)
MODULES = tuple(f"torchonline.{name}" for name in ("links", "metrics", "diagnostics", "datasets"))


def public() -> set[type]:
    """The public classes."""
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
    """Keeps what a session would run."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def collected(*arguments: str) -> list[Any]:
    """The tests that pytest would run."""
    found = Collected()
    options = ["--collect-only", "--quiet", "-p", "no:cacheprovider", f"--ignore={ROOT / 'tests' / 'benchmarks'}"]
    assert pytest.main([str(ROOT / "tests"), *options, *arguments], plugins=[found]) == 0
    return found.items


class Named:
    """The classes that are named by parameters of tests, in the code of tests, and in that of the tests' functions they call."""

    def __init__(self) -> None:
        self.classes: set[type] = set()
        self.seen: set[Any] = set()

    def value(self, value: Any) -> None:
        """A parameter, or what a name in some code stands for."""
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
        """The names in a function's code, if it is the tests' own."""
        if function in self.seen or "torchonline" in function.__module__.split(".")[0]:
            return
        self.seen.add(function)
        for name in names(function.__code__):
            value = function.__globals__.get(name)
            if isinstance(value, ModuleType):
                inside = (getattr(value, each, None) for each in names(function.__code__))
                self.value([each for each in inside if inspect.isclass(each)])
            elif inspect.isclass(value) or (isinstance(value, FunctionType) and is_ours(value)):
                self.value(value)
        for cell in function.__closure__ or ():
            if isinstance(cell.cell_contents, FunctionType) and is_ours(cell.cell_contents):
                self.value(cell.cell_contents)


def is_ours(function: Any) -> bool:
    """Whether a function is defined in a test or beside it."""
    return Path(function.__code__.co_filename).is_relative_to(ROOT / "tests")


def names(code: CodeType) -> Iterator[str]:
    """All names in some code, and in that of the functions inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names(constant)


def test_every_public_class_is_in_it() -> None:
    """By itself, or by one that derives from it where it is abstract: as a parameter, or in the code of a test."""
    named = Named()
    items = collected("-m", "fast")
    for item in items:
        named.function(item.function)
        named.value(list(getattr(item, "callspec", None).params.values()) if hasattr(item, "callspec") else [])
    missing = {cls.__name__ for cls in public() if not any(issubclass(each, cls) for each in named.classes)}
    assert missing == set()
    assert len(public()) > 80
    assert len(items) < 3000
