"""Copies of modules in which each private learner is replaced by its public values."""

import copy
from typing import Any

from torch import nn

from torchonline.privacy.composition import private_learners


def released(module: nn.Module) -> Any:
    """A copy of a module in which each private learner is what it has released: the door for modules of your own.

    ``torch.export``, ``torch.jit.trace``, ``torch.save`` and their like take all buffers of a module along, used or not, and
    with them the secrets of a private learner inside. Give them this copy. ``torch.jit.script`` refuses a module with a private
    learner in it.

    Args:
        module: any; a private learner itself becomes what it has released, which has ``forward`` and, where there was one,
            ``predict`` or ``select``.

    Example:
        >>> parent = torch.nn.ModuleDict({"learner": DPTOFW(2, horizon=10, epsilon=1.0, delta=0.01)})
        >>> list(released(parent).state_dict())
        ['learner.theta']
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected an nn.Module, got {type(module).__name__}")
    # A copy finds in its memo what takes the place of the learners.
    memo: dict[int, Any] = {id(learner): learner.released() for learner in private_learners(module).values()}
    return copy.deepcopy(module, memo)
