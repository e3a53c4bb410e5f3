"""Base of objects whose attributes are set once."""

from typing import Any


class WriteOnce:
    """Base of objects from which others derive what they hold for good.

    A public attribute cannot be set again or deleted, and no method can be replaced, by an AttributeError.
    """

    why_fixed = "which others derive from"

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and (name in self.__dict__ or callable(getattr(type(self), name, None))):
            cls = type(self).__name__
            raise AttributeError(
                f"{name}: expected no change, {self.why_fixed}, got {value!r}; construct another {cls}"
            )
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: expected no change, {self.why_fixed}, got a deletion")
