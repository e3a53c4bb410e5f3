"""Records of a feedback log, and tensors as bytes."""

import ast
import io
import math
import time as clock
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchonline.core.checks import finite_number, instance_of, kind, refusal, within
from torchonline.core.inputs import as_dense, as_tensor
from torchonline.core.times import as_time

MAGIC, LENGTH = b"\x93NUMPY\x01\x00", 10
CPU = torch.device("cpu")
LARGEST_ACTION = 2**63 - 1
LONGEST_ID = 512
# Rounding error of a probability in float32 that is a sum of several.
ROUNDING = 1e-6
# Types that NumPy lacks: half-precision complex numbers and 8-bit floats.
NOT_STORED = {getattr(torch, name) for name in dir(torch) if name.startswith("float8")} | {torch.complex32}


class DamagedRowError(ValueError):
    """Error of a corrupted or missing row of a log.

    Args:
        reason: description of the damage, beginning with the column.
        position: position of the row among the known rounds, as in :class:`Feedback`; 0 if decisions are read.
        number: number of the decision; 0 if unknown.
        last: last damaged position: the position of the row, or of the last missing row.
    """

    def __init__(self, reason: str, position: int = 0, number: int = 0, last: int = 0) -> None:
        self.position, self.number, self.last = position, number, max(position, last)
        rows = f"position {position}" if self.last == position else f"positions {position} to {self.last}"
        places = [rows if position else "", f"decision number {number}" if number else ""]
        super().__init__(f"log: damaged at {', '.join(filter(None, places))}: {reason}")


class Decision(NamedTuple):
    """A logged decision.

    Attributes:
        id: id of the decision, unique in the log.
        inputs: inputs of the policy's ``select`` for one decision, on the CPU: arms ``(K, d)``, a context ``(d)`` or raw inputs.
        action: the chosen arm: its index, or its id if the set of arms changes.
        probability: propensity of the chosen arm, in (0, 1].
        mask: arms that were available, ``(K)``, bool, with an entry for each action; None if all were. If the set of arms
            changes, entry k belongs to the arm with id k (:meth:`FeedbackLog.decide` makes such a mask).
        encoder: version of the encoder that computed ``inputs``; ``""`` if there was none.
        time: seconds since 1970; None for the time of logging.
        number: number in the order of logging, from 1; 0 before the decision is logged.
    """

    id: str
    inputs: Tensor
    action: int
    probability: float
    mask: Tensor | None = None
    encoder: str = ""
    time: float = None  # type: ignore[assignment]
    number: int = 0


class Feedback(NamedTuple):
    """A decision whose reward is known.

    Attributes:
        position: number in the order in which rewards became known, from 1.
        id, inputs, action, probability, mask, encoder, time, number: as in :class:`Decision`.
        reward: the reward, or the default of the log.
        known_at: when the reward became known, in seconds since 1970.
        is_default: whether no reward came within the window.
    """

    position: int
    id: str
    inputs: Tensor
    action: int
    probability: float
    mask: Tensor | None
    encoder: str
    time: float
    number: int
    reward: float
    known_at: float
    is_default: bool


def checked_decision(decision: Decision, largest: float | None = None) -> Decision:
    """Return a decision with plain values, or raise an error that names the field.

    ``largest`` is the largest accepted magnitude of a feature; None for no limit.
    """
    instance_of("decisions", decision, Decision, "Decisions")
    inputs = _plain("inputs", decision.inputs)
    if largest is not None and inputs.numel():
        size = float((inputs if inputs.is_complex() else inputs.double()).abs().max())
        if not size <= largest:
            raise refusal(f"inputs: expected magnitudes up to largest={largest:g}, got {size:g}")
    action = integer_from_0("action", decision.action)
    mask = decision.mask
    if mask is not None:
        mask = _plain("mask", mask)
        if mask.dtype != torch.bool or mask.dim() != 1 or not len(mask):
            raise refusal(f"mask: expected booleans of shape (K), got {kind(mask)}")
        if action >= len(mask) or not bool(mask[action]):
            hint = "; after a removal of arms, give action_ids" if action >= len(mask) else ""
            raise refusal(f"action: expected an available arm, got {action} with mask {mask.tolist()}{hint}")
    return Decision(
        checked_id(decision.id),
        inputs,
        action,
        _checked_probability(_one("probability", decision.probability)),
        mask,
        checked_text("encoder", decision.encoder),
        clock.time() if decision.time is None else checked_time("time", decision.time),
    )


def mask_by_id(mask: Any, action_ids: Iterable[int]) -> Tensor:
    """Return a mask with an entry for each id, False for ids without an arm.

    Args:
        mask: an entry for each arm, ``(K)``, bool; None if all were available.
        action_ids: ids of the K arms.
    """
    ids = [integer_from_0("action_ids", one) for one in action_ids]
    if not ids or len(set(ids)) < len(ids):
        raise refusal(f"action_ids: expected the ids of the arms, each once, got {ids}")
    found = torch.ones(len(ids), dtype=torch.bool) if mask is None else _plain("mask", mask)
    if found.dtype != torch.bool or found.shape != (len(ids),):
        raise refusal(f"mask: expected booleans of shape ({len(ids)}), one for each of action_ids, got {kind(found)}")
    return torch.zeros(max(ids) + 1, dtype=torch.bool).index_copy(0, torch.tensor(ids), found)


def stored_decision(row: Sequence[Any], position: int = 0) -> Decision:
    """Build a decision from its columns, or raise a DamagedRowError.

    ``position`` is the position of its reward, if it is read with one.
    """
    id, inputs, action, probability, mask, encoder, time, number = row
    try:
        found = checked_decision(
            Decision(
                id,
                from_bytes("inputs", inputs),
                _of_type("action", action, int),
                _of_type("probability", probability, float),
                None if mask is None else from_bytes("mask", mask),
                encoder,
                _of_type("time", time, float),
            )
        )
        return found._replace(number=integer_from_0("number", number))
    except (ValueError, TypeError) as error:
        raise DamagedRowError(str(error), position, number if type(number) is int else 0) from error


def stored_feedback(row: Sequence[Any], position: int) -> Feedback:
    """Build a round with a known reward from its columns, or raise a DamagedRowError."""
    own, *fields, value, known_at, is_default = row
    decision = stored_decision(fields, position)
    try:
        if own != position:
            raise ValueError(f"position: expected {position}, got {own!r}")
        reward = checked_reward(_of_type("value", value, float))
        known_at = checked_time("known_at", _of_type("known_at", known_at, float))
        if is_default not in (0, 1):
            raise ValueError(f"is_default: expected 0 or 1, got {is_default!r}")
    except (ValueError, TypeError) as error:
        raise DamagedRowError(str(error), position, decision.number) from error
    return Feedback(position, *decision, reward, known_at, bool(is_default))


def _of_type(name: str, value: Any, cls: type) -> Any:
    """Return a stored number, or raise: a database may hold text, bytes or NULL."""
    if type(value) is cls or (cls is float and type(value) is int):
        return value
    raise TypeError(f"{name}: expected {'an integer' if cls is int else 'a number'}, got {value!r:.40}")


def _checked_probability(value: Any) -> float:
    """Return a probability, or raise. Values just above 1 in float32 become 1."""
    if isinstance(value, float) and 1.0 < value <= 1.0 + ROUNDING:
        return 1.0
    return within("probability", value, 0.0, 1.0, closed=True)


def checked_id(value: Any) -> str:
    """Return an id, or raise."""
    return checked_text("id", value, shortest=1)


def checked_text(name: str, value: Any, shortest: int = 0) -> str:
    """Return a string that every database can store, or raise."""
    try:
        length = len(instance_of(name, value, str, "a string")[: LONGEST_ID + 1].encode())
    except UnicodeEncodeError as error:
        raise refusal(f"{name}: expected a string that UTF-8 can encode, got {value[:40]!r}") from error
    if not shortest <= length <= LONGEST_ID or "\0" in value:
        raise refusal(f"{name}: expected {shortest} to {LONGEST_ID} bytes of UTF-8 without NUL, got {value[:40]!r}")
    return value


def checked_pairs(rewards: Any) -> list[tuple[str, float]]:
    """Return pairs of id and reward, or raise."""
    checked = []
    for pair in entries("rewards", rewards):
        try:
            if isinstance(pair, (str, bytes)):
                raise TypeError
            id, value = pair
        except (TypeError, ValueError):
            raise TypeError(f"rewards: expected pairs (id, value), got {type(pair).__name__} among them") from None
        checked.append((checked_id(id), checked_reward(value)))
    return checked


def entries(name: str, values: Any) -> list[Any]:
    """Return the entries of an iterable that is not a string, or raise."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise TypeError(f"{name}: expected an iterable, got {type(values).__name__}")
    return list(values)


def checked_time(name: str, value: Any) -> float:
    """Convert a time in seconds or nanoseconds to seconds since 1970, or raise."""
    return finite_number(name, as_time(name, value))


def checked_reward(value: Any) -> float:
    """Return a finite reward as a float. A tensor or array of one number is accepted."""
    number = _one("value", value)
    if isinstance(number, bool):
        number = float(number)
    if not isinstance(number, (int, float)):
        raise TypeError(f"value: expected a number, got {type(value).__name__}")
    try:
        reward = float(number)
    except OverflowError:
        reward = math.inf
    if not math.isfinite(reward):
        raise refusal(f"value: expected a finite number, got {number}")
    return reward


def integer_from_0(name: str, value: Any) -> int:
    """Return an integer of at least 0, or raise."""
    value = _one(name, value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
    if not 0 <= value <= LARGEST_ACTION:
        raise refusal(f"{name}: expected an integer of at least 0, got {value}")
    return value


def _one(name: str, value: Any) -> Any:
    """Return the number in a tensor or array of one entry, and other values as is."""
    if not isinstance(value, (Tensor, np.ndarray, np.generic)):
        return value
    if math.prod(value.shape) != 1 or (isinstance(value, Tensor) and value.is_meta):
        raise TypeError(f"{name}: expected one number, got {kind(value)}")
    return value.item()


def _plain(name: str, value: Any) -> Tensor:
    """Convert numbers to a tensor for storage: dense, on the CPU, without gradient."""
    if isinstance(value, Tensor):
        value = as_dense(name, value).detach()
        if value.is_meta or value.dtype in NOT_STORED:
            raise TypeError(f"{name}: expected a tensor that NumPy can hold, got {kind(value)} on {value.device}")
        return value.cpu().resolve_conj().resolve_neg()
    if isinstance(value, (list, tuple, np.ndarray)) and np.asarray(value).dtype.kind == "b":
        return torch.from_numpy(np.array(value))
    return as_tensor(name, value, CPU)


def to_bytes(tensor: Tensor) -> bytes:
    """Return a tensor as the bytes of a ``.npy`` file; bfloat16 becomes float32."""
    array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()
    return _header(array.dtype.str, array.shape) + array.tobytes()


def from_bytes(name: str, data: Any) -> Tensor:
    """Return the tensor of :func:`to_bytes`, or raise an error that names ``name``."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name}: expected the bytes of a .npy file, got {type(data).__name__}")
    data = bytes(data)
    start = LENGTH + int.from_bytes(data[8:LENGTH], "little")
    try:
        dtype, shape = _parsed(data[:start])
        return torch.from_numpy(np.frombuffer(data, dtype, offset=start).reshape(shape).copy())
    except Exception as error:
        raise ValueError(f"{name}: expected the bytes of a .npy file, got other bytes: {error}") from error


@lru_cache(maxsize=256)
def _header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of a ``.npy`` file."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


@lru_cache(maxsize=256)
def _parsed(header: bytes) -> tuple[np.dtype, tuple[int, ...]]:
    """Return dtype and shape of the array after a header."""
    if header[:8] != MAGIC:
        raise ValueError("expected version 1.0")
    found = ast.literal_eval(header[LENGTH:].decode("latin1"))
    dtype, shape = np.dtype(found["descr"]), tuple(found["shape"])
    if _header(dtype.str, shape) != header:
        raise ValueError(f"expected the header of an array of {dtype} and shape {shape}")
    return dtype, shape
