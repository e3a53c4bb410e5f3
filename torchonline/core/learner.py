"""Base class of all learners: buffers, reset, copies, loading and NumPy views."""

import copy
import inspect
import threading
from collections.abc import Callable, Mapping
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from torchonline.core.all_or_nothing import SNAPSHOT_BYTES, all_or_nothing, copied, give_lock_, in_order, torn_error
from torchonline.core.averages import refuse_averages
from torchonline.core.backend import is_eager, is_readable, writable
from torchonline.core.checks import check_state_dtype, device_or_none, instance_of, positive_integer, sizes
from torchonline.core.citations import Citable
from torchonline.core.options import COMMON, WithOptions, added_options, described, differs, fixed_options
from torchonline.core.params import WithParams
from torchonline.core.state_dict_checks import load_, load_problems
from torchonline.core.undo_journal import Journal
from torchonline.core.views import NumpyView, can_be_viewed

# Attributes that copies do not share: the lock, and what is found again when it is needed.
OF_OBJECT = ("_lock", "_view", "_journal", "_names", "_plain_classes", "_rooms")


class Learner(WithParams, Citable, WithOptions, nn.Module):
    """Base of all learners: an ``nn.Module`` whose statistics are buffers.

    A subclass sets its options, then calls :meth:`_create_buffers` once. Everything that evolves is a buffer and is written in
    place, so that ``state_dict``, ``deepcopy``, ``.to()``, TorchScript and torch.export see the whole learner. Options cannot
    be set after construction, because constants and statistics derive from them.

    Args:
        dim: number of features d.
        batch_shape: ``*B``, independent learners in one module.
        dtype: torch.float64 or torch.float32, of the state. Use float32 where the last digits do not matter.
        device: where the state lives.
        validate: whether each call checks values (NaN, infinity, ranges). Shapes and types are always checked. On an
            accelerator, a check of values makes the host wait for the device.
    """

    if TYPE_CHECKING:
        _view: NumpyView | None
        _journal: Journal | None
        _lock: threading.RLock
        _is_torn: bool
    constants: Tensor

    # The version of the state dict's layout. 0.1.0 had none; `renamed` and `dropped` list the changes since.
    _version = 2
    renamed: dict[str, str] = {}
    dropped: tuple[str, ...] = ()

    # Whether torch.export can follow a step, and TorchScript.
    is_exportable, is_scriptable = True, True
    # Options that the statistics depend on: a checkpoint made with others is refused.
    statistics_depend_on: tuple[str, ...] = ()
    # The same for options added later, with the values that older states imply. All are stored once one of them differs.
    later_options: Mapping[str, bool | int | float | tuple[int, ...]] = {}
    # Arguments that add a varying number of values to a checkpoint, such as a domain.
    sized_options: tuple[str, ...] = ()
    options_tolerance = 1e-6
    # The constructor arguments that these options come from, where the names differ.
    argument_of: dict[str, str] = {}
    # Buffers compared loosely, because they are unique only up to rounding (for example the sign of an eigenvector).
    undetermined: tuple[str, ...] = ()
    # Buffers that differ between the learners of a batch before the first round.
    starts_apart: tuple[str, ...] = ()
    # Buffers that may hold infinity, such as the logarithm of a weight of 0.
    unbounded: tuple[str, ...] = ()
    # Buffers that are symmetric positive definite matrices.
    positive_definite: tuple[str, ...] = ()
    # Pairs of buffers, a matrix and its inverse: a load refuses pairs that are not inverse.
    inverses: tuple[tuple[str, str], ...] = ()
    # Attributes that cannot be set after construction, besides the constructor's arguments, and why, for the error.
    fixed_besides: tuple[str, ...] = ()
    why_fixed = "which constants and statistics derive from"

    # True in the copies that compute on NumPy arrays.
    is_view = False

    # Editors show this docstring where any subclass is constructed; without it, that of nn.Module.
    def __init__(
        self,
        dim: int,
        *,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        """Build the learner; the docstring of the class explains the arguments."""
        super().__init__()
        give_lock_(self)
        self.__dict__["_is_torn"] = False
        self.dim = positive_integer("dim", dim)
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.batch_dims = len(self.batch_shape)
        check_state_dtype(dtype)
        self.validate: bool = instance_of("validate", validate, bool, "True or False")
        self._initial_options: dict[str, Any] = {"dtype": dtype, "device": device_or_none(device)}

    def _initial_state(self) -> dict[str, Tensor | None]:
        """Return the buffers before the first round, float64, without ``batch_shape``.

        An unused buffer is None. Only the buffers in ``starts_apart`` have ``batch_shape``.
        """
        raise NotImplementedError

    def _tables(self) -> dict[str, Tensor]:
        """Return the constant tables, float64 or int64, without ``batch_shape``."""
        # They are buffers only so that .to() moves them.
        return {}

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a buffer, which can be written outside of inference mode too."""
        super().register_buffer(name, writable(tensor), persistent)

    def _create_buffers(self) -> None:
        options = self._initial_options
        initial = self._initial_state()
        for name, value in initial.items():
            if value is None:
                self.register_buffer(name, None)
                continue
            if value.is_floating_point():
                value = value.to(self._dtype_of(name))
            if name not in self.starts_apart:
                value = value.expand((*self.batch_shape, *value.shape))
            self.register_buffer(name, value.to(device=options["device"]).clone(memory_format=torch.contiguous_format))
        self.register_buffer("constants", self._constants().to(options["device"]))
        tables = self._tables()
        self.unchanging = ("constants", *tables)
        for name, value in tables.items():
            # On the device of the other buffers: without an option, torch's default device, which a NumPy table does not
            # follow.
            dtype = options["dtype"] if value.is_floating_point() else value.dtype
            value = value.to(dtype=dtype, device=self.constants.device)
            self.register_buffer(name, value.clone(memory_format=torch.contiguous_format), persistent=False)

    def _dtype_of(self, name: str) -> torch.dtype:
        """Return the type of a buffer of real numbers."""
        return self._initial_options["dtype"]

    def _options(self) -> list[tuple[str, float]]:
        """Return the options that the statistics depend on, as pairs (name, value).

        A tuple yields one pair for each entry. None counts as 0, since an option that may be None may not be 0.
        """
        values = [(name, getattr(self, name) or 0.0) for name in self.statistics_depend_on]
        later = [(name, getattr(self, name)) for name in self.later_options]
        values += later if any(value != self.later_options[name] for name, value in later) else []
        return [(name, float(number)) for name, v in values for number in (v if isinstance(v, tuple) else (v,))]

    def _argument(self, name: str) -> str:
        """Return an option's name in errors: its constructor argument."""
        return f"{self.argument_of[name]} ({name})" if name in self.argument_of else name

    def _constants(self) -> Tensor:
        """Return the values of :meth:`_options`, for checkpoints."""
        return torch.tensor([number for _, number in self._options()], dtype=torch.float64)

    def parts(self) -> "dict[str, Learner]":
        """Return the learners in this learner by path, each with its own buffers."""
        found: dict[str, Learner] = {}
        for name, module in self._modules.items():
            if isinstance(module, Learner):
                found[name] = module
            elif isinstance(module, (nn.ModuleList, nn.ModuleDict)):
                found |= {f"{name}.{key}": part for key, part in module.named_children() if isinstance(part, Learner)}
        return found

    def state(self) -> dict[str, Tensor]:
        """Return the buffers that evolve, by name, and the buffers of the parts."""
        buffers = self._buffers.items()
        own = {name: buffer for name, buffer in buffers if buffer is not None and name not in self.unchanging}
        return own | {
            f"{path}.{name}": buffer for path, part in self.parts().items() for name, buffer in part.state().items()
        }

    def scratch(self) -> list[Tensor]:
        """Return the buffers that a step writes but that are not part of the state."""
        return []

    def reset(self) -> None:
        """Reset each buffer to its value before the first round, in place."""
        with self._lock, torch.no_grad():
            all_or_nothing(self, copied(list(self.state().values())), self._reset)

    def _reset(self) -> None:
        for part in self.parts().values():
            part._reset()
        for name, value in self._initial_state().items():
            if value is not None:
                getattr(self, name).copy_(value)
        self.constants.copy_(self._constants())
        self._fill_tables_()

    def numpy_view(self) -> NumpyView | None:
        """Return this learner on NumPy views of its buffers, or None.

        A view costs more to make than to use, so it is kept until a buffer or its memory moves or an attribute is set.
        """
        view: NumpyView | None = self._view
        if view is not None and view.is_current(self):
            return view
        self.__dict__["_view"] = None
        parts = {name: part.numpy_view() for name, part in self.parts().items()}
        if all(map(can_be_viewed, self._buffers.values())) and all(parts.values()):
            view = NumpyView(self, parts)
            self._complete(view)
            self.__dict__["_view"] = view
        return self._view

    def _complete(self, view: NumpyView) -> None:
        """Add what a subclass needs to a new view."""

    def view_for(self, x: Any) -> NumpyView | None:
        """Return the view for a call on a tensor or an array; or None.

        There is one on the CPU and in eager mode.
        """
        is_here = is_eager() if type(x) is np.ndarray else is_readable(x) and x.is_cpu
        return self.numpy_view() if is_here else None

    def _run(self, view: NumpyView | None, learn: Callable[..., None], rounds: list[tuple[Any, ...]]) -> None:
        """Learn from rounds in order, all or nothing.

        ``learn`` learns from the arguments of one round, on ``view`` or, if that is None, on the tensors of this learner.
        """
        if view is not None:
            if view.bytes > SNAPSHOT_BYTES and len(rounds) == 1:
                entry = view.journal.entry(None, view.state)
                run = (view.run, learn) if self.batch_dims else (learn,)
                all_or_nothing(self, entry.undo, entry.learn, [], *run, *rounds[0])
            elif len(rounds) == 1 and not self.batch_dims:
                all_or_nothing(self, copied(view.state), learn, *rounds[0])
            else:
                view.journal.forget()
                all_or_nothing(self, copied(view.state), view.run, in_order, learn, rounds)
            view.mark_written()
            return
        state = list(self.state().values())
        if not all(map(is_readable, state)):  # a traced step
            in_order(learn, rounds)
            return
        if len(rounds) != 1:
            all_or_nothing(self, copied(state), in_order, learn, rounds)
        elif not state[0].is_cpu:  # copies would slow the step, and a journal would take the accelerator's memory
            all_or_nothing(self, None, learn, *rounds[0])
        elif sum(buffer.nbytes for buffer in state) <= SNAPSHOT_BYTES:
            all_or_nothing(self, copied(state), learn, *rounds[0])
        else:
            journal = self._journal_of(state)
            entry = journal.entry(None, state)
            all_or_nothing(self, entry.undo, entry.learn, [], learn, *rounds[0])
            journal.close()

    def _journal_of(self, state: list[Tensor]) -> Journal:
        """Return the journal of these buffers, a new one if the buffers have changed."""
        journal: Journal | None = self.__dict__.get("_journal")
        if journal is None or not journal.is_of(state):
            journal = self.__dict__["_journal"] = Journal(state)
        return journal

    def _params(self) -> dict[str, Any]:
        parameters = inspect.signature(type(self)).parameters.values()
        found: dict[str, Any] = {one.name: one.default for one in parameters if one.default is not one.empty}
        found |= self._arguments
        # The learner may have moved since.
        for name, buffer in self.state().items():
            if buffer.is_floating_point() and self._dtype_of(name) == self._initial_options["dtype"]:
                moved = {"dtype": buffer.dtype, "device": buffer.device}
                return found | {name: value for name, value in moved.items() if name in found}
        return found

    def extra_repr(self) -> str:
        """Return the options changed from their defaults, batch shape, dtype and device."""
        arguments = {name: value for name, value in self._arguments.items() if name not in COMMON}
        state = next((buffer for buffer in self.state().values() if buffer.is_floating_point()), self.constants)
        place = f"batch_shape={self.batch_shape}, dtype={state.dtype}, device={str(state.device)!r}"
        return ", ".join(filter(None, (described(self, arguments), place)))

    def __setattr__(self, name: str, value: Any) -> None:
        cls: Any = type(self)
        if name in fixed_options(cls):
            self._refuse_change(cls, name, value)
        super().__setattr__(name, value)
        # A view holds the options too.
        self.__dict__["_view"] = None

    def _refuse_change(self, cls: Any, name: str, value: Any) -> None:
        """Raise if an option of the library is set, or a subclass's option set again."""
        own = self.__dict__
        if name in own:
            wanted, is_change = repr(own[name]), differs(value, own[name])
        else:  # an option that is kept under another name is set once there are buffers
            has_buffers = "constants" in own.get("_buffers", ()) and name not in own["_buffers"]
            wanted, is_change = "no change", has_buffers and name not in added_options(cls)
        if is_change:
            why = f"expected {wanted}, {self.why_fixed}, got {value!r}"
            raise AttributeError(f"{name}: {why}; construct another {cls.__name__}")

    def __prepare_scriptable__(self) -> nn.Module:
        """Refuse ``torch.jit.script`` where it would silently drop a part."""
        if not self.is_scriptable:
            raise ValueError(
                f"torch.jit.script: expected learners that can be compiled, got {type(self).__name__}, Python alone"
            )
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A copy has its own lock and views. Buffers are copied under the lock, unless their memory is shared on purpose.
        with self._lock:
            state = {name: value for name, value in self.__dict__.items() if name not in OF_OBJECT}
            state["_buffers"] = {
                name: buffer if buffer is None or buffer.is_shared() else buffer.detach().clone()
                for name, buffer in self._buffers.items()
            }
            state["_modules"] = {name: _as_it_is(module) for name, module in self._modules.items()}
        _keep_while_spawning(state["_buffers"])
        return state | {"_view": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_is_torn" not in state:
            raise RuntimeError(
                f"{type(self).__name__}: expected a module pickled by this version, got one of version 0.1.0; "
                "load its state dict into a new learner instead"
            )
        super().__setstate__(state)
        self._buffers.update({name: writable(buffer) for name, buffer in self._buffers.items()})
        give_lock_(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        refuse_averages()
        with self._lock:
            twin = type(self).__new__(type(self))
            memo[id(self)] = twin
            kept = {name: value for name, value in self.__dict__.items() if name not in OF_OBJECT}
            twin.__setstate__(copy.deepcopy(kept, memo) | {"_view": None})
        return twin

    def _apply(self, fn: Callable[[Tensor], Tensor], *arguments: Any, **options: Any) -> Any:
        with self._lock:
            return super()._apply(lambda value: writable(fn(value)), *arguments, **options)

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        """Return copies of the buffers, all from one round; no copies with ``keep_vars``."""
        with self._lock:
            return super().state_dict(*arguments, **options)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        if self._is_torn:
            raise torn_error(self)
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not keep_vars:  # the next step writes the buffers in place
            for name in self._buffers.keys() - self._non_persistent_buffers_set:
                if (value := destination.get(prefix + name)) is not None:
                    destination[prefix + name] = value.clone()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        # A learner loads with all of its parts or not at all. nn.Module calls this method for the parts afterwards.
        if not self.__dict__.pop("_is_loaded", False):
            load_(self, state_dict, prefix, *arguments)

    def _migrate_(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Add the entries that an older version did not write, in place."""

    def _load_problems(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        """Return why the entries under a prefix are not a state of this learner."""
        return load_problems(self, state_dict, prefix)

    def _load_own(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        """Load checked buffers into this learner, not its parts, and rebuild its tables."""
        nn.Module._load_from_state_dict(self, state_dict, prefix, *arguments)
        self._fill_tables_()

    def _fill_tables_(self) -> None:
        """Write the constant tables again: ``to_empty()`` leaves them without values."""
        for name, value in self._tables().items():
            table: Any = self._buffers[name]
            if table.is_meta:
                self._buffers[name] = value.to(dtype=table.dtype, device=self.constants.device)
            else:
                table.copy_(value)

    def _with_parts(self, prefix: str) -> "list[tuple[Learner, str]]":
        """Return this learner and its parts, each with its prefix in a state dict."""
        own: list[tuple[Learner, str]] = [(self, prefix)]
        return own + [both for name, part in self.parts().items() for both in part._with_parts(f"{prefix}{name}.")]


def _keep_while_spawning(copies: Any) -> None:
    """Keep copies passed to a starting process, which maps their memory later."""
    process: Any = get_spawning_popen()
    if process is not None:
        process.__dict__.setdefault("copies_of_learners", []).append(copies)


def _as_it_is(module: nn.Module | None) -> nn.Module | None:
    """Return a module with a stand-in for each learner in it."""
    if isinstance(module, Learner):
        learner: Learner = type(module).__new__(type(module))
        learner.__dict__.update(module.__getstate__())
        give_lock_(learner)
        return learner
    if module is not None and any(isinstance(part, Learner) for part in module.modules()):
        twin = copy.copy(module)
        twin.__dict__["_modules"] = {name: _as_it_is(part) for name, part in module._modules.items()}
        return twin
    return module
