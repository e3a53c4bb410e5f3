"""Comparisons of states and answers, which raise AssertionError."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

State = dict[str, Tensor]


def require(holds: Any, message: str) -> None:
    """Raise AssertionError with a message, unless a condition holds."""
    if not bool(holds):
        raise AssertionError(message)


def snapshot(module: nn.Module) -> State:
    """Return a copy of the state dict."""
    return {name: value.clone() for name, value in module.state_dict().items()}


def snapshot_of_script(scripted: nn.Module, eager: nn.Module) -> State:
    """Return a copy of a scripted learner's state, without the constant tables."""
    state = snapshot(scripted)
    return {name: state[name] for name in eager.state_dict()}


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal bit for bit, in shape and type too."""
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def differences(before: State, after: State) -> list[str]:
    """Return the names of the entries that are not equal bit for bit."""
    names = sorted(set(before) | set(after))
    return [name for name in names if name not in before or name not in after or not same(before[name], after[name])]


def close(one: Tensor, other: Tensor, tolerance: float = 1e-9, name: str = "") -> None:
    """Require equal shapes and types, and close values.

    The tolerance is relative for values above 1.
    """
    said = None if not name else lambda text: f"{name}: {text}"
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, msg=said)


def require_state(expected: State, learner: nn.Module, when: str) -> None:
    """Require that a learner's state is bit-equal to ``expected``."""
    require(not (names := differences(expected, snapshot(learner))), f"{when}: {names} are not bit-equal")


def require_close_state(expected: State, state: State, tolerance: float = 1e-9) -> None:
    """Require that two states are equal within ``tolerance``."""
    for name, value in expected.items():
        require(name in state, f"{name}: missing")
        close(state[name], value, tolerance, name)


def require_same(ours: Iterable[Tensor], theirs: Iterable[Tensor], when: str) -> None:
    """Require that answers are equal bit for bit."""
    require(all(map(same, ours, theirs)), f"{when}: the answers are not bit-equal")


def require_close(ours: Iterable[Tensor], theirs: Iterable[Tensor], tolerance: float = 1e-9) -> None:
    """Require that answers are equal within ``tolerance``, and integers exactly."""
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, tolerance if one.is_floating_point() else 0.0)


def refusal(call: Callable[..., object], *arguments: Any, **named: Any) -> str | None:
    """Return the message of the ValueError or TypeError that a call raises, or None."""
    try:
        call(*arguments, **named)
    except (ValueError, TypeError) as error:
        return str(error)
    return None


def require_refused_mask(learner: Any, log: dict[str, Any], mask: Tensor) -> None:
    """Require that a policy, or its script, refuses a mask of rounds unchanged."""
    before = snapshot(learner)
    try:
        learner.learn(**log, mask=mask)
    except (TypeError, torch.jit.Error) as error:
        require("mask: expected None" in str(error), f"expected an error of mask, got {error}")
    else:
        raise AssertionError("mask: accepted by a policy with takes_mask = False")
    require_state(before, learner, "after a refused mask")


def complaint(label: str, name: str, call: Callable[..., object], *arguments: Any, **named: Any) -> list[str]:
    """Return how a call failed to raise an error that begins with ``name: expected``."""
    try:
        result = call(*arguments, **named)
    except (ValueError, TypeError) as error:
        return [] if str(error).startswith(f"{name}: expected ") else [f"{label}: {type(error).__name__}: {error}"]
    except Exception as error:
        return [f"{label}: {type(error).__name__}: {str(error).splitlines()[0]}"]
    return [f"{label}: accepted, returned {result}"]
