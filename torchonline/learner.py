"""What every learner promises: buffers that hold all that evolves, argument checks, and a reset."""

import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

# Below this many multiplications a NumPy call on a view beats a torch call, whose overhead is some ten times larger: in
# the matrix product of a choice, and in the many small products of a step.
SMALL_PRODUCT = 1 << 22
SMALL_STEP = 1 << 15


def finite_number(name: str, value: Any) -> float:
    """``value`` as a float, or an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {value}")
    # Beyond this, squares and ratios of options overflow.
    number = float(value)
    if number != 0 and not 1e-50 <= abs(number) <= 1e50:
        raise ValueError(f"{name}: expected a magnitude from 1e-50 to 1e50, got {value}")
    return number


def positive(name: str, value: Any) -> float:
    """A number above 0."""
    number = finite_number(name, value)
    if number <= 0:
        raise ValueError(f"{name}: expected a number above 0, got {value}")
    return number


def non_negative(name: str, value: Any) -> float:
    """A number of at least 0."""
    number = finite_number(name, value)
    if number < 0:
        raise ValueError(f"{name}: expected a number of at least 0, got {value}")
    return number


def within(name: str, value: Any, low: float, high: float, *, closed: bool = False) -> float:
    """A number in (low, high), or in (low, high] when ``closed``."""
    number = finite_number(name, value)
    if not (low < number < high or (closed and number == high)):
        raise ValueError(f"{name}: expected a number in ({low}, {high}{']' if closed else ')'}, got {value}")
    return number


def positive_integer(name: str, value: Any) -> int:
    """An integer above 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name}: expected an integer above 0, got {value}")
    return int(value)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of some words."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {type(value).__name__}")
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def is_readable(tensor: Tensor) -> bool:
    """Whether a value of ``tensor`` can be read without leaving a constant behind in a traced program."""
    return type(tensor) in (Tensor, nn.Parameter) and not torch.compiler.is_compiling() and not torch.jit.is_tracing()


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

    constants: Tensor

    # Options that the statistics depend on: loading a checkpoint made with others is refused.
    statistics_depend_on: tuple[str, ...] = ()

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
        if not isinstance(batch_shape, (tuple, list)):
            raise TypeError(f"batch_shape: expected a tuple of integers, got {type(batch_shape).__name__}")
        self.batch_shape = tuple(positive_integer("batch_shape", size) for size in batch_shape)
        self.batch_dims = len(self.batch_shape)
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype: expected a torch.dtype, got {type(dtype).__name__}")
        check_state_dtype(dtype)
        if not isinstance(validate, bool):
            raise TypeError(f"validate: expected True or False, got {type(validate).__name__}")
        self.validate = validate
        self._initial_options: dict[str, Any] = {"dtype": dtype, "device": _device(device)}
        self._arrays: dict[str, tuple[Tensor, int, Any]] = {}

    def _initial_state(self) -> dict[str, Tensor | None]:
        """The buffers before the first round, float64 and without ``batch_shape``; None where one is not in use."""
        raise NotImplementedError

    def _create_buffers(self) -> None:
        options = self._initial_options
        for name, value in self._initial_state().items():
            if value is None:
                self.register_buffer(name, None)
                continue
            if value.is_floating_point():
                value = value.to(options["dtype"])
            value = value.expand((*self.batch_shape, *value.shape))
            self.register_buffer(name, value.to(device=options["device"]).clone(memory_format=torch.contiguous_format))
        self.register_buffer("constants", self._constants().to(options["device"]))

    def _constants(self) -> Tensor:
        """The options that the statistics depend on, for checkpoints."""
        return torch.tensor([float(getattr(self, name)) for name in self.statistics_depend_on], dtype=torch.float64)

    def state(self) -> dict[str, Tensor]:
        """The buffers that evolve, by name."""
        return {name: getattr(self, name) for name, value in self._initial_state().items() if value is not None}

    def reset(self) -> None:
        """Forget everything: put each buffer back to its value before the first round, in place."""
        with torch.no_grad():
            for name, value in self._initial_state().items():
                if value is not None:
                    getattr(self, name).copy_(value)
            self.constants.copy_(self._constants())

    def numpy_view(self) -> Self:
        """This learner with NumPy views of its buffers in their place: the same memory, a fraction of the call overhead.

        It lives for one call. Only methods that are written against :mod:`torchonline.arrays` work on it.
        """
        view = object.__new__(type(self))
        attributes = view.__dict__
        attributes.update(self.__dict__)
        known = self._arrays
        for name, buffer in self._buffers.items():
            entry = known.get(name)
            # Making a view costs more than using it, so views are kept for as long as the memory stays where it is.
            if entry is None or entry[0] is not buffer or entry[1] != buffer.data_ptr():
                if buffer is None:
                    attributes[name] = None
                    continue
                entry = known[name] = (buffer, buffer.data_ptr(), buffer.numpy())
            attributes[name] = entry[2]
        return view

    def _apply(self, *arguments: Any, **options: Any) -> Self:
        self._arrays.clear()
        return super()._apply(*arguments, **options)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has memory of its own.
        return self.__dict__ | {"_arrays": {}}

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
        loaded = state_dict.get(prefix + "constants")
        if isinstance(loaded, Tensor) and len(loaded) == len(self.statistics_depend_on):
            differences = [
                f"{prefix}{name}: the state was learnt with {theirs:g}, this learner has {getattr(self, name):g}"
                for name, theirs in zip(self.statistics_depend_on, loaded.tolist(), strict=True)
                if not math.isclose(getattr(self, name), theirs, rel_tol=1e-6)
            ]
            if differences:
                error_msgs.extend(differences)
                return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def _device(device: Any) -> torch.device | None:
    if device is None:
        return None
    if not isinstance(device, (str, int, torch.device)) or isinstance(device, bool):
        raise TypeError(f"device: expected a torch.device or its name, got {type(device).__name__}")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device: expected a torch.device or its name, got {device!r}") from error


def check_state_dtype(dtype: torch.dtype) -> None:
    """Refuse a state in half precision, or in none."""
    if dtype not in (torch.float64, torch.float32):
        raise ValueError(f"dtype: expected the state in torch.float64 or torch.float32, got {dtype}")


def check_tensor(name: str, value: Any, state: Tensor) -> Tensor:
    """A floating-point tensor on the state's device, converted to the state's type."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    if value.layout is not torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got one of layout {value.layout}")
    if value.device != state.device:
        raise ValueError(f"{name}: expected a tensor on {state.device}, got one on {value.device}")
    if state.dtype is not torch.float64:
        check_state_dtype(state.dtype)
    if value.dtype == state.dtype:
        return value
    if not value.is_floating_point():
        raise TypeError(f"{name}: expected a floating-point tensor, got {value.dtype}")
    return value.to(state.dtype)


# Inputs up to here can be squared and multiplied without overflow: 5.6e102 in float64, 7.0e12 in float32.
LARGEST = {dtype: torch.finfo(dtype).max ** (1 / 3) for dtype in (torch.float64, torch.float32)}


def check_values(name: str, value: Tensor, minimum: float = -math.inf) -> None:
    """Refuse NaN, infinity, values too large to square, and values below ``minimum``."""
    if value.numel() == 0:
        return
    largest = LARGEST[value.dtype]
    if value.dim() == 0:
        low = high = value.item()
    else:
        low, high = (bound.item() for bound in value.aminmax())
    if low >= max(minimum, -largest) and high <= largest:
        return
    if not bool(torch.isfinite(value).all()):
        bad = value[~torch.isfinite(value)][0].item()
        raise ValueError(f"{name}: expected finite values, got {bad}")
    if low < minimum:
        raise ValueError(f"{name}: expected values of at least {minimum:g}, got {low:g}")
    raise ValueError(
        f"{name}: expected values of magnitude at most {largest:.1e} ({value.dtype}), got {max(-low, high):.1e}"
    )


def check_array(name: str, value: Any) -> None:
    """:func:`check_values` for a NumPy array that is not empty."""
    largest = LARGEST[torch.float64 if value.itemsize == 8 else torch.float32]
    if value.size and not (value.max() <= largest and value.min() >= -largest):
        check_values(name, torch.from_numpy(value))


def check_shape(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a tensor of another shape."""
    if value.shape != shape:
        raise ValueError(f"{name}: expected shape {shape_text(shape)}, got {shape_text(value.shape)}")


def shape_text(sizes: Iterable[object]) -> str:
    """``(2, K, 3)``, as the errors write it."""
    return f"({', '.join(map(str, sizes))})"
