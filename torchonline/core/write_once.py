"""Base of objects whose attributes are set once."""

from collections.abc import Iterable
from typing import Any, NoReturn

from torch import nn


class WriteOnce:
    """Base of objects with write-once attributes, from which others derive values.

    An AttributeError refuses to set a public attribute again, to delete one, and to replace a member of the class, such as a
    method.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        is_set = name in self.__dict__ and not name.startswith("_")
        if is_set or hasattr(type(self), name):
            cls = type(self).__name__
            raise AttributeError(
                f"{name}: expected no change after construction, got {value!r}; construct another {cls}"
            )
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: expected no change after construction, got a deletion")


class FixedList(nn.ModuleList):
    """A list of modules that cannot be changed."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        super().__init__()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        raise AttributeError("modules: expected no change after construction, got one")

    __setitem__ = __delitem__ = __iadd__ = append = extend = insert = pop = _refuse
