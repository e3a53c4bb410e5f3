"""Base class and argument checks of the metrics."""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from torchonline.core.backend import without_cast
from torchonline.core.checks import mismatch, shape_text
from torchonline.core.inputs import as_plain, check_floats
from torchonline.core.options import described
from torchonline.core.processes import gathered, rank_and_world_size
from torchonline.metrics.plots import axes_for, draw_results, finished

# A warning points at the first line outside these packages.
WITHIN = ("torchonline", "torchmetrics", "torch")


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


def gather_state(value: Tensor, group: Any = None) -> list[Tensor]:
    """Gather a state of all ranks onto this rank's device, or raise on all ranks.

    States on the CPU are gathered with every backend, NCCL included.
    """
    states = gathered(value.cpu(), group)
    if len(shapes := sorted({tuple(state.shape) for state in states})) > 1:
        raise ValueError(f"sync: expected states of one shape on all ranks, got {', '.join(map(shape_text, shapes))}")
    return [state.to(value.device) for state in states]


def of_one_rank(states: Tensor) -> Tensor:
    """Return the state of the only rank, or raise.

    The states of several ranks belong to separate tests.
    """
    if len(states) > 1:
        raise RuntimeError(f"sync: expected the rounds of one process, got the rounds of {len(states)}")
    return states[0]


def level_of_caller() -> int:
    """Return the caller's ``stacklevel`` of the first frame outside ``WITHIN``."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].split(".")[0] in WITHIN:
        frame, level = frame.f_back, level + 1
    return level


class ExactMetric(Metric):
    """Metric whose states keep their types and are in ``state_dict``.

    No cast rounds the states. One of the states is ``rounds``.

    *Several processes.* In a process group of torch.distributed each rank has its own states. ``compute`` gathers the states of
    all ranks, so all ranks must call it, including ranks without rounds. ``sync`` keeps the gathered states until ``unsync``; in
    between the metric cannot be updated or loaded. ``state_dict`` holds this rank's states unless the metric is synced.

    Args:
        options: options of torchmetrics.Metric.

    Raises:
        TypeError: an argument of ``update`` is not a floating-point tensor. No state has changed.
        ValueError: a shape is wrong, or a value is NaN or infinite; or ranks with states of different shapes are synced. No
            state has changed.
        RuntimeError: a loaded state dict has another shape or type, or an impossible value; or a synced metric is updated. No
            state has changed.
    """

    is_differentiable = False
    full_state_update = True

    rounds: Tensor

    # The name of the values in a plot.
    named = "value"
    # The smallest possible values of some states. No state holds NaN.
    least: dict[str, float] = {"rounds": 0}

    def __init__(self, **options: Any) -> None:
        # A rank without an update since the last result would read a cache, and the other ranks would wait for it.
        super().__init__(compute_with_cache=False, dist_sync_fn=gather_state, **options)

    @property
    def update_called(self) -> bool:
        """Return whether there is something to compute: other ranks may have rounds."""
        return super().update_called or rank_and_world_size()[1] > 1

    def sync(self, dist_sync_fn: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> None:
        """Gather the states of all ranks. An error leaves the states unchanged."""
        states = {name: getattr(self, name) for name in self._defaults}
        try:
            super().sync(dist_sync_fn or self.dist_sync_fn, *args, **kwargs)
        except BaseException:
            for name, value in states.items():
                setattr(self, name, value)
            raise

    def extra_repr(self) -> str:
        """Return the constructor options, and the device unless it is the CPU."""
        device = "" if self.device.type == "cpu" else f"device={str(self.device)!r}"
        return ", ".join(filter(None, (described(self, vars(self)), device)))

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> nn.Module:
        """Move the states without casting them: a cast would round them."""
        return super()._apply(without_cast(fn), *args, **kwargs)

    def _add_states(self, reduce: str | Callable[[Tensor], Tensor] | None = None, **states: Tensor) -> None:
        """Add states to the checkpoint. ``reduce`` combines each of them over ranks.

        ``reduce`` gets a state of all ranks, stacked along a new first dimension. None keeps the stack, for states that are
        meaningless without one another.
        """
        for name, value in states.items():
            self.add_state(name, value, dist_reduce_fx=reduce, persistent=True)

    def plot(self, val: Any = None, ax: Any = None) -> tuple[Any, Any]:
        """Draw the result of :meth:`compute` as bars, or a list of results as lines.

        Without data, the axes say that nothing is recorded yet.

        Args:
            val: a result of :meth:`compute` or of a call, or a list of them; None for ``compute()``.
            ax: matplotlib axes; None for a new figure of pyplot.

        Returns:
            The figure and the axes.
        """
        axes = axes_for(val, ax)
        if val is not None or self.update_called:
            draw_results(axes, self.compute() if val is None else val, self.named)
        else:
            axes.set_xlabel(self.named)
        return finished(axes)

    def _refuse_synced(self) -> None:
        """Raise while the metric is synced, because ``unsync`` would lose a change."""
        if self._is_synced:
            raise RuntimeError(
                "update: expected the states of this rank, got the states of all ranks; call unsync() first"
            )

    def _expected(self, loaded: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return states of the shapes and types that a load needs."""
        return {name: getattr(self, name) for name in self._defaults}

    def _own(self, loaded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return this rank's part of loaded states that fit."""
        return loaded

    def _problems(self, loaded: Mapping[str, Any]) -> list[str]:
        """Return the reasons why the loaded states, by name, do not fit."""
        if self._is_synced:
            return ["sync: expected the states of this rank, got the states of all ranks; call unsync() before a load"]
        states = self._expected(loaded)
        problems = [why for name, x in states.items() if (why := mismatch(name, x, loaded, with_dtype=True))]
        return problems or [
            f"{name}: expected {'numbers' if low == -math.inf else f'at least {low}'}, got {value.min().item()}"
            for name, value in loaded.items()
            if not bool((value >= (low := self.least.get(name, -math.inf))).all())
        ]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        loaded = {name: state_dict[prefix + name] for name in self._defaults if prefix + name in state_dict}
        loaded = {name: as_plain(name, x) if isinstance(x, Tensor) else x for name, x in loaded.items()}
        problems = self._problems(loaded) if loaded else []  # without any state this is not a checkpoint of the metric
        if problems:
            args[-1].extend(prefix + problem for problem in problems)  # error_msgs
            return
        super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[arg-type]
        for name, value in (self._own(loaded) if loaded else loaded).items():
            setattr(self, name, value)
        # Without this, torchmetrics would warn that `update` was never called.
        self._update_count = int(self.rounds)
