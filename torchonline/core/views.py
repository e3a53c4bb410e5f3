"""NumPy views of a learner's buffers."""

from collections.abc import Callable
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _increment_version as increment_version  # torch.autograd.graph's without a call

from torchonline.core.backend import bound_to_arrays, is_readable
from torchonline.core.undo_journal import Journal

if TYPE_CHECKING:
    from torchonline.core.learner import Learner

# The classes of plain_twin, by the identities of their methods, which they keep alive.
TWINS: dict[tuple[int, ...], type] = {}


def can_be_viewed(buffer: Tensor | None) -> bool:
    """Return whether a buffer is plain, dense and of a learner's type, or None."""
    if buffer is None:
        return True
    is_half = buffer.is_floating_point() and buffer.dtype not in (torch.float64, torch.float32)
    return is_readable(buffer) and buffer.is_cpu and buffer.is_contiguous() and not is_half


class NumpyView:
    """A copy of a learner that computes on NumPy views of the learner's buffers.

    Args:
        learner: the learner, with contiguous buffers on the CPU.
        parts: the views of the learner's parts, by name.

    Attributes:
        learner: the copy. Only methods that are written against :mod:`torchonline.core.ops` work on it. An attribute that such a
            method sets is lost.
        state: the arrays that evolve.
    """

    def __init__(self, learner: "Learner", parts: "dict[str, Any]") -> None:
        # The attributes and the view of each learner inside this one, and all buffers. A reference to this one would be a
        # cycle.
        self.members: list[tuple[Any, NumpyView]] = []
        self.buffers = list(learner._buffers.values())
        self.places: list[dict[str, Any]] = []  # where the parts are found
        for name, view in parts.items():
            self.places += view.places
            self.members += [(learner.parts()[name].__dict__, view), *view.members]
            self.buffers += view.buffers
        self.places += _places_of(learner, parts)
        self.modules = list(chain.from_iterable(map(dict.values, self.places)))
        self.tensors = list(learner.state().values())
        self.wide = [tensor for tensor in self.tensors if tensor.dim() > 1]
        self.saved = [tensor for tensor in self.tensors if tensor.is_floating_point()]  # what autograd may have saved
        self.addresses = [tensor.data_ptr() for tensor in self.tensors]
        twin: Any = plain_twin(learner)
        buffers = learner._buffers.items()
        arrays = {name: None if buffer is None else buffer.detach().numpy() for name, buffer in buffers}
        # Modules become plain attributes; nn.Module would search for them.
        twin.__dict__.update(learner.__dict__ | learner._modules | arrays)
        twin.__dict__.update(is_view=True, named_buffers=arrays.items)
        self.learner = twin
        self.state: list[Any] = [arrays[name] for name in learner.state() if "." not in name]
        for path, view in parts.items():
            _place(twin, path, view.learner)
            self.state += view.state
        self.policies: dict[type, Any] = {}  # stand-ins for the policies on the learner
        self.bytes: int = sum(array.nbytes for array in self.state)
        self.journal = Journal(self.tensors)

    def is_current(self, learner: "Learner") -> bool:
        """Return whether buffers, their memory, parts and their views are the same."""
        found: Any = learner._buffers.values()
        if self.members:
            if list(chain.from_iterable(map(dict.values, self.places))) != self.modules:  # compares identities
                return False
            found = [*found]
            for member, view in self.members:
                if member["_view"] is not view:
                    return False
                found += member["_buffers"].values()
        return (
            all(map(is_, self.buffers, found))
            and list(map(Tensor.data_ptr, self.tensors)) == self.addresses
            and all(map(Tensor.is_contiguous, self.wide))
        )

    def run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of :attr:`learner`, or of a policy on it."""
        if not self.learner.batch_dims:
            return method(*arguments)
        with np.errstate(all="ignore"):  # as on tensors, a batch overflows without a warning
            return method(*arguments)

    def mark_written(self) -> None:
        """Bump the buffers' version counters: autograd does not see NumPy's writes."""
        increment_version(self.saved)
        if self.journal.entries:
            self.journal.close()


def plain_twin(module: nn.Module) -> Any:
    """Return an empty object with a module's methods, without nn.Module's own.

    ``nn.Module`` has a ``__getattr__``, which makes reading attributes in a method five times as slow. Methods that check their
    arguments come without the checks.
    """
    known = module.__dict__.get("_plain_class")
    if known is not None:  # that of the learner that a stand-in is for
        return object.__new__(known)
    cls = type(module)
    bases = [base for base in cls.__mro__ if base not in nn.Module.__mro__]
    found = {name: value for base in reversed(bases) for name, value in vars(base).items() if not name.startswith("__")}
    methods = {name: getattr(value, "on_views", value) for name, value in found.items()}
    # Twins with the same methods have one class, which the interpreter's caches need.
    key = (id(cls), *map(id, methods.values()))
    if key not in TWINS:
        names: dict[int, dict[str, Any]] = {}
        methods = {name: bound_to_arrays(method, names) for name, method in methods.items()}
        TWINS[key] = type(cls.__name__, (), methods | {"__class__": cls})  # for isinstance() and super()
    return object.__new__(TWINS[key])


def with_attributes(twin: Any, **attributes: Any) -> Any:
    """Return a copy of an object on NumPy views, with other attributes."""
    found = object.__new__(type(twin))
    found.__dict__.update(twin.__dict__, **attributes)
    return found


def _places_of(learner: "Learner", parts: "dict[str, Any]") -> list[dict[str, Any]]:
    """Return the dicts of modules in which a learner's parts are found."""
    paths = {".".join(steps[:i]) for steps in (path.split(".") for path in parts) for i in range(len(steps))}
    return [learner.get_submodule(path)._modules for path in sorted(paths)]


def _place(twin: Any, path: str, part: Any) -> None:
    """Put the copy of a part into the copy of a learner, or of a module in it."""
    holder, _, name = path.rpartition(".")
    if holder and not isinstance(twin.__dict__[holder], (nn.ModuleList, nn.ModuleDict)):
        module = twin.__dict__[holder]
        if not module.__dict__.get("is_view", False):
            copy: Any = plain_twin(module)
            copy.__dict__.update(module.__dict__ | {"is_view": True})
            twin.__dict__[holder] = module = copy
        module.__dict__[name] = part
        return
    twin.__dict__[path] = part
