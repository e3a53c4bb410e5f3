"""Processes of torch.distributed: their number, and the values of all of them."""

from typing import Any

from torch import distributed


def rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks: 0 and 1 without a group."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def gathered(value: Any, group: Any = None) -> list[Any]:
    """Return the values that all ranks pass, in the order of ranks.

    All ranks must call this function. Values are pickled, so they may be None on some ranks. Tensors should be on the CPU, which
    works with every backend.
    """
    values: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(values, value, group=group)
    return values
