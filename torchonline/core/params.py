"""Constructor arguments of learners and policies, for scikit-learn's tools."""

import copy
from typing import Any, Self

from torch import nn

from torchonline.core.checks import instance_of
from torchonline.core.messages import listed


class WithParams:
    """Mixin with ``get_params``, ``set_params`` and scikit-learn's ``clone``."""

    def _params(self) -> dict[str, Any]:
        """Return the constructor's arguments by name."""
        raise NotImplementedError

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name. Python only.

        For scikit-learn's tools and for loggers. ``type(learner)(**learner.get_params(deep=False))`` has the same arguments.
        Parts, such as a policy's estimator, are the parts themselves; but :class:`~torchonline.DisjointArms` returns an
        untrained template as its ``policy``.

        Args:
            deep: whether to add the arguments of the parts, as ``estimator__ridge``.

        Raises:
            TypeError: ``deep`` is not a bool.

        Example:
            >>> UCB(RidgeRegression(3, ridge=2.0)).get_params()["estimator__ridge"]
            2.0
        """
        found = self._params()
        if instance_of("deep", deep, bool, "True or False"):
            for name, part in list(found.items()):
                if isinstance(part, WithParams):
                    found |= {f"{name}__{key}": value for key, value in part.get_params().items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set arguments of the constructor, in place, and start anew. Python only.

        The state is that before the first round, and the parts are new objects. Modules without ``set_params``, such as an
        encoder, stay. Set an option of a part on the whole, which derives values from its parts, and never on the part.

        Args:
            **params: values by name, as :meth:`get_params` returns them; ``estimator__ridge=2.0`` for an option of a part.

        Returns:
            The object itself.

        Raises:
            TypeError, ValueError: a name or a value is wrong. Nothing has changed.

        Example:
            >>> policy = UCB(RidgeRegression(3)).set_params(estimator__ridge=2.0)
            >>> policy.estimator.ridge
            2.0
        """
        if not params:
            return self
        own = {name: _untrained(value) for name, value in self._params().items()}
        of_parts: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, dots, rest = key.partition("__")
            if name not in own:
                raise ValueError(
                    f"{key}: expected arguments of {type(self).__name__}, {listed(own, str)}, got another name"
                )
            if dots:
                of_parts.setdefault(name, {})[rest] = value
            else:
                own[name] = value
        for name, values in of_parts.items():
            if not isinstance(own[name], WithParams):
                wanted = f"expected {name} to have arguments that can be set"
                raise ValueError(f"{name}__{next(iter(values))}: {wanted}, got {type(own[name]).__name__}")
            own[name].set_params(**values)
        state = type(self)(**own).__dict__
        if "_lock" in self.__dict__:  # threads may wait for the lock of a learner
            state |= {"_lock": self.__dict__["_lock"], "_view": None}
        # One assignment, so that an interrupt changes all or nothing.
        object.__setattr__(self, "__dict__", state)
        return self

    def __sklearn_clone__(self) -> Self:
        """Return an untrained copy, for ``sklearn.base.clone``.

        Other modules in it, such as an encoder, are copied with their parameters.
        """
        arguments = {name: _untrained(value) for name, value in self._params().items()}
        return type(self)(**{name: _copied(value) for name, value in arguments.items()})


def _untrained(value: Any) -> Any:
    """Return an untrained copy of a part, and any other value itself."""
    return value.__sklearn_clone__() if isinstance(value, WithParams) else value


def _copied(value: Any) -> Any:
    return copy.deepcopy(value) if isinstance(value, nn.Module) and not isinstance(value, WithParams) else value
