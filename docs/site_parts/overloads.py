"""One signature for a function with overloads: that of its implementation."""

from typing import Any

from sphinx.pycode import ModuleAnalyzer

MODULES = ("torchonline.policies.recommended",)


def forget(app: Any) -> None:
    """Forget the overloads, which only type checkers need, in Sphinx's analysis of the modules."""
    for name in MODULES:
        analyzer = ModuleAnalyzer.for_module(name)
        analyzer.analyze()
        analyzer.overloads.clear()
