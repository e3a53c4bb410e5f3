"""Names of actions.

A name becomes an id where it is given, and everything else works on ids.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.checks import positive_integer
from torchonline.core.messages import did_you_mean, listed

# The longest name, in characters.
LONGEST = 200
# The buffer's size is a power of two from here on, so that a file can load most newer states.
LEAST_BYTES = 1024
# A list that begins with one of these holds no names.
NUMBERS = (int, float, np.number, Tensor)
# Among more names, an error suggests none, because the search takes long.
MOST_SEARCHED = 1000


class NameTable:
    """The names in a buffer, by id, and the ids by name.

    Args:
        buffer: the bytes, as :func:`packed_names` returns them.
    """

    def __init__(self, buffer: Tensor) -> None:
        self.buffer, self.version = buffer, buffer._version
        self.names = unpacked_names(buffer)
        self.ids = {name: one for one, name in self.names.items()}

    def is_of(self, buffer: Tensor) -> bool:
        """Return whether the buffer is the same, not written since."""
        return buffer is self.buffer and buffer._version == self.version


def ids_of_names(name: str, value: Any, ids: Mapping[str, int], known: Iterable[str]) -> Any:
    """Return the ids of names: an integer, or an array of the same shape.

    Args:
        name: the argument's name in errors.
        value: a name, or names in a list, a tuple, an array or a column of a frame.
        ids: the ids by name.
        known: the names to list in an error.
    """
    if isinstance(value, str):
        if value not in ids:
            raise _unknown_name(name, value, list(known))
        return ids[value]
    array = _array_of_names(value)
    found = array.reshape(-1).tolist()
    try:  # without a loop in Python
        numbers = np.fromiter(map(ids.__getitem__, found), np.int64, len(found))
    except (KeyError, TypeError):
        for one in found:
            if not isinstance(one, str):
                raise TypeError(f"{name}: expected names of actions only, got {_shown(one)} among them") from None
            if one not in ids:
                raise _unknown_name(name, one, list(known)) from None
        raise
    return numbers.reshape(array.shape)


def checked_names(name: str, value: Any) -> list[str]:
    """Return distinct names of actions as a list, or raise.

    ``name`` is the argument's name in errors.
    """
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name}: expected a list of names, got the single text {_shown(value)}")
    is_ordered = isinstance(value, (list, tuple, np.ndarray)) or hasattr(value, "__array__")
    if not is_ordered or isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a list of names, got {type(value).__name__}")
    found = _array_of_names(value)
    if found.ndim != 1 or not found.size:
        got = "none" if not found.size else f"an array with {found.ndim} dimensions"
        raise ValueError(f"{name}: expected a list of at least one name, got {got}")
    names = found.tolist()
    for one in names:
        if not isinstance(one, str):
            raise TypeError(f"{name}: expected names that are text, got {_shown(one)} of type {type(one).__name__}")
        if (why := why_no_name(one)) is not None:
            raise ValueError(f"{name}: expected names of 1 to {LONGEST} characters, got {why}")
    if len(set(names)) < len(names):
        twice = next(one for one, count in Counter(names).items() if count > 1)
        raise ValueError(f"{name}: expected distinct names, got {twice!r} more than once")
    return [str(one) for one in names]  # numpy.str_ too


def number_and_names(name: str, value: Any) -> tuple[int, list[str] | None]:
    """Return K and the names of K actions, given as a number or as names; or raise."""
    if holds_text(value) or (isinstance(value, (list, tuple)) and not value):
        names = checked_names(name, value)
        return len(names), names
    try:
        return positive_integer(name, value), None
    except TypeError as error:
        raise TypeError(str(error).replace("an integer", "an integer or a list of names", 1)) from None


def holds_text(value: Any) -> bool:
    """Return whether a value is text, or a list, an array or a column with text."""
    if isinstance(value, (list, tuple)):
        is_of_numbers = not value or isinstance(value[0], NUMBERS)
        return not is_of_numbers and any(map(holds_text, value))
    if isinstance(value, str):
        return True
    if isinstance(value, NUMBERS) or not hasattr(value, "__array__"):
        return False
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    return array.dtype.kind in "UT" or (array.dtype.kind == "O" and any(isinstance(one, str) for one in array.flat))


def refuse_names(name: str, value: Any) -> None:
    """Refuse text where actions have no names. ``name`` is the argument's name."""
    if holds_text(value):
        sample = value if isinstance(value, str) else _array_of_names(value).flat[0]
        raise TypeError(
            f"{name}: expected integers, because the actions of this policy have no names, got {_shown(sample)}; give names "
            'when the policy is made, as in torchonline.bandit(dim, actions=["home", "sale"])'
        )


def _unknown_name(name: str, value: str, known: list[str]) -> ValueError:
    """Return the error for a name that no action has."""
    hint = did_you_mean([value], known) if len(known) <= MOST_SEARCHED else ""
    return ValueError(f"{name}: expected one of {listed(known)}, got {_shown(value)}{hint}")


def packed_names(names: Mapping[int, str]) -> Tensor:
    """Return names by id as bytes of JSON in UTF-8, padded with spaces: uint8."""
    data = json.dumps({str(one): names[one] for one in sorted(names)}, ensure_ascii=False).encode()
    size = max(LEAST_BYTES, 1 << (len(data) - 1).bit_length())
    return torch.frombuffer(bytearray(data.ljust(size)), dtype=torch.uint8)


def unpacked_names(buffer: Tensor) -> dict[int, str]:
    """Return the names by id, or raise a ValueError if the bytes hold no names."""
    if buffer.dtype != torch.uint8 or buffer.dim() != 1:
        raise ValueError(f"expected bytes, got {buffer.dtype} with {buffer.dim()} dimensions")
    try:
        found = json.loads(buffer.detach().cpu().numpy().tobytes())
    except (ValueError, RecursionError) as error:  # of UTF-8 too
        raise ValueError(f"expected names as JSON, got other bytes ({error})") from None
    is_right = isinstance(found, dict) and all(one.isascii() and one.isdigit() for one in found)
    if not is_right or not all(isinstance(one, str) and why_no_name(one) is None for one in found.values()):
        raise ValueError("expected a name for each id, got other JSON")
    if len(set(found.values())) < len(found):
        raise ValueError("expected distinct names, got a name more than once")
    return {int(one): name for one, name in found.items()}


def names_in_script(buffer: Tensor | None) -> dict[int, str]:
    """Return the names by id, for TorchScript, which has no JSON.

    The bytes are those of :func:`packed_names`: keys and names in turn, with a backslash before each quote and each backslash.
    """
    names: dict[int, str] = {}
    if buffer is not None:
        codes: list[int] = buffer.to(torch.int64).tolist()
        one, part, is_key, is_inside, is_escaped = 0, "", True, False, False
        for code in codes:
            if code == 34 and not is_escaped:  # a quote
                if is_inside:
                    if is_key:
                        one = int(part)
                    else:
                        names[one] = part
                    is_key = not is_key
                is_inside, part = not is_inside, ""
            elif is_inside:
                is_escaped = code == 92 and not is_escaped  # a backslash
                if not is_escaped:
                    part = part + chr(code)
    return names


def _array_of_names(value: Any) -> np.ndarray:
    """Return names as an array of objects."""
    array = np.asarray(value, dtype=object) if isinstance(value, (list, tuple)) else np.asarray(value)
    return array if array.dtype.kind == "O" else array.astype(object)


def why_no_name(text: str) -> str | None:
    """Return why a text is no name, or None."""
    if not text:
        return "an empty text"
    if len(text) > LONGEST:
        return f"{_shown(text)} with {len(text)}"
    if any(ord(letter) < 32 or 0xD800 <= ord(letter) < 0xE000 for letter in text):
        return f"{_shown(text)} with a control character"
    return None


def _shown(value: Any) -> str:
    """Return a value as short text."""
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
