"""Copies of modules without the secrets of private learners."""

import copy
from typing import Any

from torch import nn

from torchonline.privacy.composition import private_learners


def released(module: nn.Module) -> Any:
    """Return a copy of a module with released values in place of private learners.

    ``torch.export``, ``torch.jit.trace``, ``torch.save`` and similar functions save all buffers of a module, the secrets of a
    private learner inside among them. Give them this copy. A private learner itself becomes its ``released()``.

    Example:
        >>> parent = torch.nn.ModuleDict({"learner": DPTOFW(2, horizon=10, epsilon=1.0, delta=0.01)})
        >>> list(released(parent).state_dict())
        ['learner.theta']
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected an nn.Module, got {type(module).__name__}")
    # deepcopy takes from its memo what replaces the learners.
    memo: dict[int, Any] = {id(learner): learner.released() for learner in private_learners(module).values()}
    return copy.deepcopy(module, memo)
