"""The ranks of a process group, and their collective messages."""

import hashlib
import io
import pickle
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed

# Tensors of these types are sent as NumPy arrays, in a fifth of the time of torch's own pickles.
NUMPY_TYPES = (torch.float64, torch.float32, torch.int64, torch.int32, torch.bool, torch.uint8)


class Ranks:
    """The ranks of a process group, or a single rank without torch.distributed.

    The first rank is the leader. All methods are collective: all ranks must call them in the same order. Python objects are sent
    as pickles, as in torch's own object collectives, so the ranks must trust one another.

    Args:
        group: a process group; None for the default group.
    """

    def __init__(self, group: Any = None) -> None:
        has_group = distributed.is_available() and distributed.is_initialized()
        if group is not None and not has_group:
            raise ValueError("group: expected None without torch.distributed.init_process_group(), got a group")
        self.group = group
        self.rank: int = distributed.get_rank(group) if has_group else 0
        self.size: int = distributed.get_world_size(group) if has_group else 1
        if self.rank < 0:
            raise ValueError("group: expected one that this process belongs to, got another")
        self.leader: int = distributed.get_global_rank(group, 0) if group is not None else 0
        # The device of tensors in messages.
        self.device = torch.device("cpu")
        if self.size > 1 and distributed.get_backend(group) == "nccl":
            self.device = torch.device("cuda", torch.cuda.current_device())

    def __deepcopy__(self, memo: dict[int, Any]) -> "Ranks":
        return self  # a copy of a learner stays in its process group

    def __reduce__(self) -> Any:
        raise TypeError(
            "pickle: expected a learner without a process group, which stays in its process; save state_dict()"
        )

    def agree(self, error: str | None, *numbers: int) -> tuple[str | None, list[list[int]]]:
        """Return the first error of any rank, and the numbers of all ranks.

        Cost: one message of a few bytes, if no rank has an error. Numbers are taken modulo 2^64.
        """
        length = 0 if error is None else len(error)
        if self.size == 1:
            return error, [[_int64(number) for number in numbers]]
        own = torch.tensor([length, *map(_int64, numbers)], device=self.device)
        found = [torch.empty_like(own) for _ in range(self.size)]
        distributed.all_gather(found, own, group=self.group)
        rows = torch.stack(found).tolist()
        if any(row[0] for row in rows):
            error = next(text for text in self._gather_all_objects(error) if text is not None)
        return error, [row[1:] for row in rows]

    def gather(self, value: Any) -> list[Any] | None:
        """Return the values of all ranks on the leader, None on the others."""
        message = packed(value)
        parts = self.gather_messages(message, self._sizes(message))
        return None if parts is None else [unpacked(part) for part in parts]

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""
        message = packed(value)
        return [unpacked(part) for part in self.all_gather_messages(message, self._sizes(message))]

    def gather_messages(self, message: Tensor, sizes: Sequence[int]) -> list[Tensor] | None:
        """Return the messages of all ranks, of these sizes, on the leader; else None."""
        if self.size == 1:
            return [message]
        own, room = self._padded(message, max(sizes)), None
        if self.rank == 0:
            room = [torch.empty_like(own) for _ in sizes]
        distributed.gather(own, room, dst=self.leader, group=self.group)
        return None if room is None else [part[:size] for part, size in zip(room, sizes, strict=True)]

    def all_gather_messages(self, message: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """Return the messages of all ranks, of these sizes."""
        if self.size == 1:
            return [message]
        own = self._padded(message, max(sizes))
        room = [torch.empty_like(own) for _ in sizes]
        distributed.all_gather(room, own, group=self.group)
        return [part[:size] for part, size in zip(room, sizes, strict=True)]

    def broadcast_object(self, value: Any) -> Any:
        """Return the leader's value."""
        if self.size == 1:
            return value
        message = packed(value if self.rank == 0 else None)
        size = self.broadcast([torch.tensor(message.numel())])[0]
        room = message if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
        return unpacked(self.broadcast([room])[0])

    def broadcast(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the leader's tensors, of the same shapes and types. One message."""
        if self.size == 1:
            return list(tensors)
        parts = [as_bytes(tensor).to(self.device) for tensor in tensors]
        flat = torch.cat(parts)
        distributed.broadcast(flat, src=self.leader, group=self.group)
        pieces = zip(flat.split([part.numel() for part in parts]), tensors, strict=True)
        return [piece.clone().view(like.dtype).reshape(like.shape).to(like.device) for piece, like in pieces]

    def sum(self, flat: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors."""
        return self._reduced(flat, "SUM")

    def largest(self, flat: Tensor) -> Tensor:
        """Return the largest of the ranks' tensors, entry by entry."""
        return self._reduced(flat, "MAX")

    def _reduced(self, flat: Tensor, operation: str) -> Tensor:
        if self.size == 1:
            return flat
        moved = flat.to(self.device, copy=True)
        distributed.all_reduce(moved, getattr(distributed.ReduceOp, operation), group=self.group)
        return moved.to(flat.device)

    def _sizes(self, message: Tensor) -> list[int]:
        return [size for (size,) in self.agree(None, message.numel())[1]]

    def _padded(self, message: Tensor, size: int) -> Tensor:
        own = torch.zeros(size, dtype=torch.uint8, device=self.device)
        own[: message.numel()] = message
        return own

    def _gather_all_objects(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, value, group=self.group)
        return found


def text_of_error(error: BaseException, rank: int | None = None) -> str:
    """Return an error as text, the reverse of :func:`error_from_text`."""
    name = type(error).__name__
    text = str(error) if isinstance(error, Exception) else f"interrupted by {name}"
    return f"{name}: {text}" if rank is None else f"{name}: rank {rank}: {text}"


def error_from_text(text: str) -> Exception:
    """Return an error from its text, the reverse of :func:`text_of_error`."""
    kind, _, message = text.partition(": ")
    known: dict[str, type[Exception]] = {"ValueError": ValueError, "TypeError": TypeError}
    return known.get(kind, RuntimeError)(message)


def digest(tensors: Sequence[Tensor]) -> int:
    """Return a 64-bit digest of tensors. Collisions have probability 2^-64."""
    found = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        memory: Any = as_bytes(tensor).cpu().numpy()
        found.update(memory)
    return int.from_bytes(found.digest(), "little", signed=True)


def digest_of_text(text: str) -> int:
    """Return a 64-bit digest of a text. Collisions have probability 2^-64."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def as_bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's memory, uint8, in one dimension."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def packed(value: Any) -> Tensor:
    """Return a value as a message, uint8 on the CPU."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8)


def unpacked(message: Tensor) -> Any:
    """Return the value of a message, its tensors on the CPU."""
    memory: Any = message.cpu().numpy()
    return pickle.loads(memory)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor and value.dtype in NUMPY_TYPES and value.layout is torch.strided:
            return torch.from_numpy, (value.detach().cpu().contiguous().numpy(),)
        return NotImplemented


def _int64(number: int) -> int:
    """Return a number modulo 2^64, in the range of int64."""
    return (number + 2**63) % 2**64 - 2**63
