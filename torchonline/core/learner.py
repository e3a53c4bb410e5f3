"""What every learner promises: buffers that hold all that evolves, NumPy views of them, and a reset."""

import math
from collections.abc import Callable, Mapping
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from torchonline.core.checks import check_state_dtype, device_or_none, mismatch, positive_integer, sizes

# Up to here NumPy calls on views beat torch calls, whose overhead is some ten times larger: multiplications in the matrix
# product of a choice, and entries of a matrix of the state, over all learners, in a step.
SMALL_PRODUCT = 1 << 22
SMALL_STEP = 1 << 17

try:
    increment_version(())
    INCREMENTS_MANY = True
except (RuntimeError, TypeError):  # torch 2.4 takes one tensor a call, and none of inference mode
    INCREMENTS_MANY = False


class Learner(nn.Module):
    """Base of all learners: an ``nn.Module`` whose statistics are buffers.

    A subclass sets its options, then calls :meth:`_create_buffers` once; :meth:`_initial_state` says what they hold
    before the first round. All that evolves is a buffer and is written in place, so that ``state_dict``, ``deepcopy``,
    ``.to()``, TorchScript and torch.export see the whole learner.

    Args:
        dim: number of features d.
        batch_shape: ``*B``, independent learners that live in one module.
        dtype: ``torch.float64`` or ``torch.float32``, of the state.
        device: where the state lives.
        validate: whether values (NaN, infinity, ranges) are checked in each call. Shapes and types always are. On an
            accelerator a value check makes the host wait for the device.
    """

    if TYPE_CHECKING:
        _view: "NumpyView | None"
    constants: Tensor

    # Whether torch.export can follow a step, and TorchScript.
    is_exportable = True
    is_scriptable = True

    # Options that the statistics depend on: loading a checkpoint made with others is refused.
    statistics_depend_on: tuple[str, ...] = ()
    options_tolerance = 1e-6
    # The arguments that those come from, where they have other names.
    argument_of: dict[str, str] = {}

    # Buffers that rounding decides, such as eigenvectors, which have any sign: what is made of them, it does not.
    undetermined: tuple[str, ...] = ()

    # Buffers that are not the same in all learners of a fleet before the first round.
    starts_apart: tuple[str, ...] = ()

    def __init__(
        self,
        dim: int,
        *,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__()
        self.dim = positive_integer("dim", dim)
        self.batch_shape = sizes("batch_shape", batch_shape)
        self.batch_dims = len(self.batch_shape)
        check_state_dtype(dtype)
        if not isinstance(validate, bool):
            raise TypeError(f"validate: expected True or False, got {type(validate).__name__}")
        self.validate = validate
        self._initial_options: dict[str, Any] = {"dtype": dtype, "device": device_or_none(device)}

    def _initial_state(self) -> dict[str, Tensor | None]:
        """The buffers before the first round, float64 and without ``batch_shape``; None where one is not in use.

        Those that ``starts_apart`` names come with it.
        """
        raise NotImplementedError

    def _tables(self) -> dict[str, Tensor]:
        """Numbers that never change, float64 and without ``batch_shape``: buffers so that they move with the learner."""
        return {}

    def _create_buffers(self) -> None:
        options = self._initial_options
        for name, value in self._initial_state().items():
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
            value = value.to(dtype=options["dtype"], device=options["device"])
            self.register_buffer(name, value.clone(memory_format=torch.contiguous_format))

    def _dtype_of(self, name: str) -> torch.dtype:
        """The type of a buffer of real numbers."""
        return self._initial_options["dtype"]

    def _options(self) -> list[tuple[str, float]]:
        """The options that the statistics depend on; the name of several numbers comes once for each.

        None counts as 0, since what may be None may not be 0.
        """
        values = [(name, getattr(self, name) or 0.0) for name in self.statistics_depend_on]
        return [(name, float(number)) for name, v in values for number in (v if isinstance(v, tuple) else (v,))]

    def _argument(self, name: str) -> str:
        """What an error calls an option: by its argument."""
        return f"{self.argument_of[name]} ({name})" if name in self.argument_of else name

    def _constants(self) -> Tensor:
        """The options that the statistics depend on, for checkpoints."""
        return torch.tensor([number for _, number in self._options()], dtype=torch.float64)

    def parts(self) -> "dict[str, Learner]":
        """The learners that this one is made of, by name; each has buffers of its own."""
        return {name: part for name, part in self._modules.items() if isinstance(part, Learner)}

    def state(self) -> dict[str, Tensor]:
        """The buffers that evolve, by name, and those of the parts."""
        buffers = self._buffers.items()
        own = {name: buffer for name, buffer in buffers if buffer is not None and name not in self.unchanging}
        theirs = {
            f"{path}.{name}": buffer for path, part in self.parts().items() for name, buffer in part.state().items()
        }
        return own | theirs

    def reset(self) -> None:
        """Forget everything: put each buffer back to its value before the first round, in place."""
        for part in self.parts().values():
            part.reset()
        with torch.no_grad():
            for name, value in self._initial_state().items():
                if value is not None:
                    getattr(self, name).copy_(value)
            self.constants.copy_(self._constants())

    def numpy_view(self) -> "NumpyView | None":
        """This learner on NumPy views of its buffers, which are on the CPU; None if they are not contiguous.

        Making a view costs more than using it, so one is kept for as long as each buffer and its memory are where they
        were; setting an attribute drops it.
        """
        view: NumpyView | None = self._view
        if view is not None and all(map(is_, view.buffers, self._buffers.values())):
            if list(map(Tensor.data_ptr, view.tensors)) == view.addresses and all(map(Tensor.is_contiguous, view.wide)):
                if not view.parts or all(part.numpy_view() is theirs for part, theirs in view.parts):
                    return view
        self.__dict__["_view"] = None
        parts = {name: part.numpy_view() for name, part in self.parts().items()}
        if all(buffer is None or buffer.is_contiguous() for buffer in self._buffers.values()) and all(parts.values()):
            self.__dict__["_view"] = NumpyView(self, parts)
        return self._view

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        # A view holds the options too.
        self.__dict__["_view"] = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy has memory of its own.
        return self.__dict__ | {"_view": None}

    def _load_problems(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        """Why the entries of a state dict whose names begin so are not a state of this learner and its parts."""
        entries = {name: value for name, value in state_dict.items() if name.startswith(prefix)}
        if not entries:  # a state dict without this learner is for nn.Module to judge
            return []
        buffers = {prefix + name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        # Of the names with dots, those that lead nowhere: nn.Module would load all others before it refused them.
        loaded = {
            name: x for name, x in entries.items() if name.removeprefix(prefix).split(".")[0] not in self._modules
        }
        problems = [problem for name in buffers | loaded if (problem := _mismatch(name, buffers, loaded))]
        problems = problems or [
            f"{prefix}{self._argument(name)}: the state was learnt with {theirs:.12g}, this learner has {mine:.12g}"
            for (name, mine), theirs in zip(self._options(), loaded[prefix + "constants"].tolist(), strict=True)
            if not math.isclose(mine, theirs, rel_tol=self.options_tolerance)
        ]
        for name, part in self.parts().items():
            theirs_too = f"{prefix}{name}."
            if any(entry.startswith(theirs_too) for entry in entries):
                problems += part._load_problems(state_dict, theirs_too)
            else:
                problems.append(f"{prefix}{name}: expected the entries of this part, got none")
        return problems

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # All or nothing: nn.Module would load the buffers that fit before it raised for the others, and then the parts.
        if self.__dict__.pop("_whole_is_refused", False):
            return
        problems = self._load_problems(state_dict, prefix)
        if problems:
            error_msgs.extend(problems)
            for part in self.parts().values():
                part._refuse_load()
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _refuse_load(self) -> None:
        """Let the load that is under way pass by this learner and its parts."""
        self.__dict__["_whole_is_refused"] = True
        for part in self.parts().values():
            part._refuse_load()


class NumpyView:
    """A learner with NumPy views of its buffers in their place: the same memory, a fraction of the call overhead.

    Args:
        learner: whose buffers are on the CPU and contiguous.
        parts: the views of its parts, by name.

    Attributes:
        learner: a copy of the learner that runs on arrays, and so do its parts. Only methods that are written against
            :mod:`torchonline.core.ops` work on it.
        state: the arrays that evolve.
    """

    def __init__(self, learner: Learner, parts: "dict[str, Any]") -> None:
        self.buffers = tuple(learner._buffers.values())
        self.tensors = list(learner.state().values())
        self.wide = [tensor for tensor in self.tensors if tensor.dim() > 1]
        self.addresses = [tensor.data_ptr() for tensor in self.tensors]
        self.parts = [(learner.parts()[name], view) for name, view in parts.items()]
        self.learner: Any = object.__new__(type(learner))
        self.learner.__dict__.update(learner.__dict__)
        self.learner.__dict__.update(learner._modules)  # at hand, where nn.Module would search
        for name, buffer in learner._buffers.items():
            self.learner.__dict__[name] = None if buffer is None else buffer.detach().numpy()
        self.state = [self.learner.__dict__[name] for name in learner.state() if "." not in name]
        for name, view in parts.items():
            self.learner.__dict__[name] = view.learner
            self.state += view.state

    def run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of :attr:`learner`, or of what stands on it.

        A fleet's arrays overflow without a warning, as tensors do; the checks of one learner's numbers forestall it.
        """
        if not self.learner.batch_dims:
            return method(*arguments)
        with np.errstate(all="ignore"):
            return method(*arguments)

    def mark_written(self) -> None:
        """Tell autograd, which did not see NumPy write, to refuse a backward pass through what has changed."""
        if INCREMENTS_MANY:
            increment_version(self.tensors)
            return
        for tensor in self.tensors:
            if not tensor.is_inference():
                increment_version(tensor)


def _mismatch(name: str, buffers: Mapping[str, Tensor], loaded: Mapping[str, Any]) -> str | None:
    """Why a loaded value cannot become the buffer of that name."""
    if name not in buffers:
        return f"{name}: expected no such entry; a learner of another dtype or option may have it"
    if (why := mismatch(name, buffers[name], loaded)) is not None:
        return why
    buffer, value = buffers[name], loaded[name]
    if value.is_floating_point() != buffer.is_floating_point() or value.is_complex():
        return f"{name}: expected {buffer.dtype}, got {value.dtype}"
    return None
