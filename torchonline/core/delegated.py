"""Attributes of a module that are read from one of its parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from torchonline.core.options import is_ours

# Where a module keeps its own members, besides its plain attributes.
REGISTRIES = ("_parameters", "_buffers", "_modules")

if TYPE_CHECKING:
    delegated = cached_property
else:

    class delegated(cached_property):
        """Property for a value that another object holds.

        Nothing is cached. Two things differ from a property. TorchScript compiles properties, and does not see this. And the
        instance's own attribute, parameter, buffer or module of this name comes first.

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
            if instance is None:
                return self
            for registry in REGISTRIES:
                own = vars(instance).get(registry)
                if own and self.attrname in own:
                    return own[self.attrname]
            return self.func(instance)


class WithDelegated(nn.Module):
    """Base of modules with :class:`delegated` attributes.

    On a class of this library these names cannot be set, because the part would not change. A user's subclass may have its own
    attribute, parameter, buffer or module under these names.
    """

    # The name in errors of the part that holds the delegated attributes.
    held_by = "policy.estimator"

    def __setattr__(self, name: str, value: Any) -> None:
        self._refuse_delegated(name)
        super().__setattr__(name, value)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        with self._room_for(name, "_buffers"):
            super().register_buffer(name, tensor, persistent)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        with self._room_for(name, "_parameters"):
            super().register_parameter(name, param)

    def add_module(self, name: str, module: nn.Module | None) -> None:
        with self._room_for(name, "_modules"):
            super().add_module(name, module)

    def _is_delegated(self, name: Any) -> bool:
        return isinstance(name, str) and isinstance(getattr(type(self), name, None), delegated)

    def _refuse_delegated(self, name: Any) -> None:
        cls = type(self)
        if is_ours(cls) and self._is_delegated(name):
            wanted = f"expected an assignment to {self.held_by}.{name}"
            raise AttributeError(f"{name}: {wanted}, got one to the {cls.__name__}, which only reads it")

    @contextmanager
    def _room_for(self, name: Any, registry: str) -> Iterator[None]:
        """Let a user's subclass register its own member under a delegated name.

        ``nn.Module`` refuses a name that can be read, unless the name is in the registry already.
        """
        self._refuse_delegated(name)
        own: dict[str, Any] = vars(self)
        is_free = self._is_delegated(name) and not any(name in own.get(one, ()) for one in REGISTRIES)
        if not is_free or name in own or registry not in own:
            yield
            return
        own[registry][name] = None
        try:
            yield
        except BaseException:
            del own[registry][name]
            raise
