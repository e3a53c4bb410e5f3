"""Names of a package that are imported on first access."""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: dict[str, Any], names: Mapping[str, str], submodules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package with lazy names.

    Type checkers do not follow them: the package also imports these names under ``typing.TYPE_CHECKING``.

    Args:
        package: ``globals()`` of the package.
        names: classes and functions, each with the submodule that defines it.
        submodules: submodules that are names of the package.
    """
    own = package["__name__"]

    def get(name: str) -> Any:
        if name in submodules:
            return import_module(f"{own}.{name}")
        if name not in names:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(f"{own}.{names[name]}"), name)
        return value

    return get, lambda: sorted({*package, *names, *submodules})
