"""Base class and argument checks of the metrics."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from torchonline.core.backend import without_cast
from torchonline.core.checks import mismatch, shape_text
from torchonline.core.inputs import as_plain, check_floats
from torchonline.core.options import described


def check_finite(name: str, value: Any) -> Tensor:
    """Return a finite floating-point tensor as a plain one, or raise."""
    value = check_floats(name, value)
    is_finite = torch.isfinite(value)
    if not bool(is_finite.all()):
        raise ValueError(f"{name}: expected finite values, got {value[~is_finite][0].item()}")
    return value


def check_rounds(name: str, value: Any, batch_shape: tuple[int, ...]) -> Tensor:
    """Return a finite tensor of one round ``(*B)`` or n rounds ``(n, *B)``, or raise."""
    value = check_finite(name, value)
    if value.shape != batch_shape and (value.dim() == 0 or value.shape[1:] != batch_shape):
        one, several = shape_text(batch_shape), shape_text(("n", *batch_shape))
        raise ValueError(f"{name}: expected shape {one} or {several}, got {shape_text(value.shape)}")
    return value


class ExactMetric(Metric):
    """Metric whose states keep their types and are in ``state_dict``.

    No cast rounds the states. One of them is ``rounds``.

    Raises:
        TypeError: an argument of ``update`` is not a floating-point tensor. No state has changed.
        ValueError: a shape is wrong, or a value is NaN or infinite. No state has changed.
        RuntimeError: a loaded state dict has another shape or type, or an impossible value. No state has changed.
    """

    is_differentiable = False
    full_state_update = True

    rounds: Tensor

    # The smallest possible values of some states. No state holds NaN.
    least: dict[str, float] = {"rounds": 0}

    def extra_repr(self) -> str:
        """Return the constructor options, and the device unless it is the CPU."""
        device = "" if self.device.type == "cpu" else f"device={str(self.device)!r}"
        return ", ".join(filter(None, (described(self, vars(self)), device)))

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> nn.Module:
        """Move the states without casting them: a cast would round them."""
        return super()._apply(without_cast(fn), *args, **kwargs)

    def _add_states(self, reduce: str | None = None, **states: Tensor) -> None:
        """Add states to the checkpoint, which processes combine by ``reduce``."""
        for name, value in states.items():
            self.add_state(name, value, dist_reduce_fx=reduce, persistent=True)

    def _problems(self, loaded: Mapping[str, Any]) -> list[str]:
        """Return the reasons why the loaded states, by name, do not fit."""
        states = {name: getattr(self, name) for name in self._defaults}
        problems = [why for name, x in states.items() if (why := mismatch(name, x, loaded, with_dtype=True))]
        return problems or [
            f"{name}: expected {'numbers' if low == -math.inf else f'at least {low}'}, got {value.min().item()}"
            for name, value in loaded.items()
            if not bool((value >= (low := self.least.get(name, -math.inf))).all())
        ]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        loaded = {name: state_dict[prefix + name] for name in self._defaults if prefix + name in state_dict}
        loaded = {name: as_plain(name, x) if isinstance(x, Tensor) else x for name, x in loaded.items()}
        problems = self._problems(loaded) if loaded else []  # without any state it is no checkpoint of this metric
        if problems:
            args[-1].extend(prefix + problem for problem in problems)  # error_msgs
            return
        super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[arg-type]
        for name, value in loaded.items():
            setattr(self, name, value)
        # Otherwise torchmetrics would return its cached result, or warn that `update` was never called.
        self._computed = None
        self._update_count = int(self.rounds)
