"""Constructor options: the four that all learners share, former names, the repr."""

import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, get_args, is_typeddict

import numpy as np
import torch
from torch import Tensor, nn

from torchonline.core.checks import kind

F = TypeVar("F", bound=Callable[..., None])


def is_ours(of: Any) -> bool:
    """Return whether a class or function is this library's, not a user's."""
    # Code that is run by `exec` may have no module.
    return (of.__module__ or "").startswith("torchonline.")


def described(instance: object, arguments: Mapping[str, Any]) -> str:
    """Return constructor arguments as ``name=value`` pairs, for a ``repr``.

    Required arguments come first. Optional arguments with values other than their defaults follow, in the constructor's order.
    Names that are not arguments are ignored. A class whose attributes have the names of its arguments can pass
    ``vars(instance)``.

    Example:
        >>> class Stream:
        ...     def __init__(self, dim, *, scale=1.0, batch_shape=()):
        ...         self.dim, self.scale, self.batch_shape = dim, scale, batch_shape
        >>> described(Stream(3, batch_shape=(2,)), {"dim": 3, "scale": 1.0, "batch_shape": (2,)})
        'dim=3, batch_shape=(2,)'
    """
    required, changed = [], []
    for name, parameter in inspect.signature(type(instance)).parameters.items():
        if name not in arguments:
            continue
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        elif differs(arguments[name], parameter.default):
            changed.append(name)
    return ", ".join(f"{name}={_text(arguments[name])}" for name in (*required, *changed))


def differs(value: Any, default: Any) -> bool:
    """Return whether a value is not the default: tensors and arrays by identity."""
    if value is default:
        return False
    return not {type(value), type(default)}.isdisjoint((Tensor, np.ndarray)) or bool(value != default)


def _text(value: Any) -> str:
    """Return a value as one short line."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Tensor):
        return f"<{kind(value)}{'' if value.is_cpu else f' on {value.device}'}>"
    if isinstance(value, torch.device):
        return repr(str(value))
    if type(value) in (tuple, list):
        items = ", ".join(map(_text, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, (FunctionType, BuiltinFunctionType, MethodType, type)):
        return value.__name__
    text = repr(value)
    if isinstance(value, nn.Module) and "\n" in text:  # the tree of its parts
        return f"{type(value).__name__}(...)"
    return text


class LearnerOptions(TypedDict, total=False):
    """The four options of all learners, for ``Unpack``; ``Learner`` explains them."""

    batch_shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device | str | None
    validate: bool


COMMON = ("batch_shape", "dtype", "device", "validate")
DEFAULTS: dict[str, Any] = {"batch_shape": (), "dtype": torch.float64, "device": None, "validate": True}


def expanded_signature(cls: Any) -> inspect.Signature:
    """Return a constructor's signature with its ``**options`` written out.

    The options are :class:`LearnerOptions` or a family's. Required keywords come first. Defaults come from the base class whose
    constructor names the options. Options that no base class names stay ``**options``.
    """
    own = list(inspect.signature(cls.__init__).parameters.values())[1:]
    if (options := family_of(own)) is None:
        return inspect.Signature(own)
    shared = options.__annotations__.keys() - {parameter.name for parameter in own}
    # Mixins have no such signature.
    bases = (vars(base)["__signature__"].parameters for base in cls.__mro__[1:] if "__signature__" in vars(base))
    if (theirs := next((parameters for parameters in bases if shared <= parameters.keys()), None)) is None:
        return inspect.Signature(own)
    own.pop()
    own += [theirs[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in theirs if name in shared]
    return inspect.Signature(sorted(own, key=lambda one: (one.kind, one.default is not inspect.Parameter.empty)))


def family_of(parameters: Iterable[inspect.Parameter]) -> Any:
    """Return the TypedDict of a constructor's ``**options``, or None."""
    found = (get_args(one.annotation) for one in parameters if one.kind is inspect.Parameter.VAR_KEYWORD)
    return next((of[0] for of in found if of and is_typeddict(of[0])), None)


def passed(cls: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return a constructor's arguments by name; a TypeError names the class."""
    names = former_names(cls)
    named = {names.get(name, name): value for name, value in named.items()}
    try:
        bound = inspect.signature(cls).bind(*arguments, **named)
        found = dict(bound.arguments)
        for name, parameter in bound.signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                found |= found.pop(name, {})
        return found
    except TypeError as error:
        if family_of(inspect.signature(cls.__init__).parameters.values()) is not None:
            raise TypeError(f"{cls.__name__}() {error}") from None
        return dict(named)  # a constructor of another style raises its own error


class WithOptions:
    """Base of learners and environments: keeps the full signature and arguments."""

    if TYPE_CHECKING:
        __signature__: inspect.Signature

    _arguments: Mapping[str, Any] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # For help and inspect, which should show the keywords in place of `**options`.
        cls.__signature__ = expanded_signature(cls)

    def __new__(cls, /, *arguments: Any, **named: Any) -> Self:
        instance = super().__new__(cls)
        # For repr. A copy is made without arguments, and gets them with the state.
        if arguments or named:
            instance.__dict__["_arguments"] = passed(cls, arguments, named)
        return instance


def rebuilt(instance: Any, **changes: Any) -> Any:
    """Construct another instance of the same class, with some arguments changed."""
    arguments = {name: copy.deepcopy(value) for name, value in instance._arguments.items()}
    try:
        return type(instance)(**arguments | changes)
    except TypeError as error:
        wanted = f"a class whose constructor takes {' and '.join(changes)}"
        raise TypeError(f"{type(instance).__name__}: expected {wanted}, got one that does not ({error})") from None


@functools.cache
def fixed_options(cls: Any) -> frozenset[str]:
    """Return the attributes of a learner that cannot be set after construction."""
    own = frozenset(inspect.signature(cls).parameters) - {"validate"}
    return own.union(cls.statistics_depend_on, cls.later_options, cls.fixed_besides)


@functools.cache
def added_options(cls: Any) -> frozenset[str]:
    """Return the arguments that a user's subclass adds to the library's."""
    ours = [base for base in cls.__mro__ if is_ours(base) and "__signature__" in vars(base)]
    return fixed_options(cls).difference(
        *(base.__signature__.parameters for base in ours),
        cls.statistics_depend_on,
        cls.later_options,
        cls.fixed_besides,
    )


def arguments_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a method's arguments from its ``locals()``, to pass them all on."""
    return {name: value for name, value in values.items() if name not in ("self", "__class__")}


def renamed_option(options: dict[str, Any], old: str, new: str, stacklevel: int = 3) -> None:
    """Move an option from its former name to its name, with a DeprecationWarning.

    Nothing happens if ``old`` is not among the options. Both names together are a TypeError. The warning points ``stacklevel``
    calls up: 2 is the caller of this function, 3 the caller's caller.
    """
    if old not in options:
        return
    if new in options:
        raise TypeError(f"{old}: expected this option only under its name {new}, got both")
    warnings.warn(f"{old}: this option is called {new} now", DeprecationWarning, stacklevel)
    options[new] = options.pop(old)


def with_former_names(**names: str) -> Callable[[F], F]:
    """Decorate a constructor so that former names of its keywords keep working.

    Former names warn (:func:`renamed_option`). ``names`` maps former names to names; :func:`former_names` returns it.
    """

    def decorate(constructor: F) -> F:
        @functools.wraps(constructor)
        def construct(self: Any, *arguments: Any, **named: Any) -> None:
            if not names.keys().isdisjoint(named):
                for old, new in names.items():
                    renamed_option(named, old, new)
            constructor(self, *arguments, **named)

        construct.former_names = names  # type: ignore[attr-defined]
        return construct  # type: ignore[return-value]

    return decorate


def former_names(cls: Any) -> Mapping[str, str]:
    """Return the map from former names to names of a class's options."""
    return getattr(cls.__init__, "former_names", {})
