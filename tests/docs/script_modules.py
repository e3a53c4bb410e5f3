"""Modules of an example, imported as its script imports them."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def script_modules(folder: str, *names: str) -> Iterator[SimpleNamespace]:
    """Import modules of a folder of ``examples`` by name, and leave no trace."""
    path, before = str(EXAMPLES / folder), set(sys.modules)
    sys.path.insert(0, path)
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(path)
        for name in set(sys.modules) - before:
            if path in (getattr(sys.modules[name], "__file__", "") or ""):
                del sys.modules[name]
