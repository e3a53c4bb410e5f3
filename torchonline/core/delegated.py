"""Attributes of a module that are read from one of its parts."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    delegated = cached_property
else:

    class delegated(cached_property):
        """Decorate a method as ``property`` does, for what another object holds.

        Nothing is cached. Two things differ from a property. TorchScript compiles properties, and does not see this. And an
        attribute of the instance comes first, so that a user's subclass may still set one of its own under the same name.

        Example:
            >>> class Wrapper:
            ...     def __init__(self, part):
            ...         self.part = part
            ...     @delegated
            ...     def real(self):
            ...         return self.part.real
            >>> Wrapper(3).real
            3
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return self if instance is None else self.func(instance)
