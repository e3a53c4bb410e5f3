"""Copies of modules without the wrappers of ``torch.compile``."""

import copy
from typing import Any

import torch  # noqa: F401, for the example
from torch import nn


def uncompiled(module: nn.Module) -> Any:
    """Return the module inside a wrapper of ``torch.compile``, or the module itself."""
    return getattr(module, "_orig_mod", module)


def uncompiled_copy(module: nn.Module, memo: dict[int, Any] | None = None) -> Any:
    """Return a copy without the wrappers of ``torch.compile``.

    TorchScript, torch.export and pickle refuse the wrapper ``OptimizedModule``, whose ``_orig_mod`` is the module.

    Args:
        module: any module.
        memo: as in ``copy.deepcopy``: maps ids to existing copies.

    Example:
        >>> compiled = torch.compile(nn.Linear(2, 1), backend="eager")
        >>> uncompiled_copy(nn.Sequential(compiled))
        Sequential(
          (0): Linear(in_features=2, out_features=1, bias=True)
        )
    """
    memo = {} if memo is None else memo
    for part in module.modules():
        if uncompiled(part) is not part:
            # deepcopy replaces the wrapper by its entry in the memo.
            memo[id(part)] = copy.deepcopy(uncompiled(part), memo)
    return copy.deepcopy(module, memo)
