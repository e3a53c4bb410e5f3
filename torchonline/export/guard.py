"""The guard of an exported learner: what must not be learnt is not learnt.

A program raises nothing. A round whose values the eager ``step`` would refuse changes no buffer, nor does one after which a
buffer would not be finite. :func:`learnt_where` says which rounds were learnt. There is no branch on a value, so that
torch.export can follow it all. :mod:`torchonline.export.scripts` does the same in TorchScript.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torchonline.core.learner import Learner
from torchonline.core.ops import along, in_type_of
from torchonline.policies.policy import Policy
from torchonline.regression.block_learner import BlockEstimator


def learnt_where(fit: Tensor, learners: Iterable[Learner], learn: Callable[[], None]) -> Tensor:
    """Call ``learn``, and put back the state of each learner that must not learn.

    They are those where ``fit``, ``(*B)``, is False, those whose round outweighs all others, and those of which a buffer would
    not be finite. Return the others, ``(*B)``.
    """
    parts = [part for learner in learners for part in learner.modules() if isinstance(part, Learner)]
    buffers = {part.get_buffer(name): name in part.unbounded for part in parts for name in evolving(part)}
    state = [(buffer, buffer.clone()) for buffer in buffers]
    with watched(parts, fit) as refused:
        learn()
        for each in refused():
            fit = fit & ~each
    for buffer, is_unbounded in buffers.items():
        if buffer.is_floating_point():
            fit = fit & is_finite(buffer, fit.dim(), is_unbounded)
    for buffer, before in state:
        buffer.copy_(torch.where(along(fit, buffer), buffer, before))
    return fit


def evolving(learner: Learner) -> list[str]:
    """Return the names of the learner's own buffers that a step may write."""
    return [name for name, value in learner._buffers.items() if value is not None and name not in learner.unchanging]


@contextmanager
def watched(learners: list[Learner], like: Tensor) -> Iterator[Callable[[], list[Tensor]]]:
    """Let the estimators in some learners note what they refuse, in a traced step.

    Yield a function that returns the notes, ``(*B)`` each, shaped as ``like``.
    """
    parts: list[Any] = [part for part in learners if isinstance(part, BlockEstimator)]
    try:
        for part in parts:
            part.__dict__["refused"] = torch.zeros(part.batch_shape, dtype=torch.bool, device=like.device)
        yield lambda: [any_of_rest(part.__dict__["refused"], like.dim()) for part in parts]
    finally:
        for part in parts:
            part.__dict__.pop("refused", None)


def any_of_rest(condition: Tensor, dims: int) -> Tensor:
    """Return whether any condition of a learner holds: ``(*B, ...)`` to ``(*B)``."""
    return condition.flatten(dims).any(-1) if condition.dim() > dims else condition


def is_finite(buffer: Tensor, dims: int, is_unbounded: bool) -> Tensor:
    """Return whether a learner's numbers are all finite: ``(*B, ...)`` to ``(*B)``.

    With ``is_unbounded``, they may be infinite, but not NaN.
    """
    if is_unbounded:
        return ~any_of_rest(buffer != buffer, dims)
    # Of one product and a sum. Infinity and NaN times 0 are NaN.
    nothing = 0.0 * buffer
    return (nothing.flatten(dims).sum(-1) if nothing.dim() > dims else nothing) == 0.0


def chosen(policy: Policy, inputs: Tensor, mask: Tensor) -> Tensor:
    """Return the choices of a policy, and -1 for a decision that cannot be made.

    That is one without an available arm, or with features that ``select`` refuses, also of an unavailable arm. The number K of
    arms may be 0 where each arm has inputs. Arguments and shapes are those of ``select``.
    """
    decider, x = policy._decider(inputs, False)
    possible = policy._can_score(inputs, x)
    x = in_type_of(x, policy._like())
    # A fixed number above 0 stays as it is.
    if decider.has_arm_inputs and (not isinstance(mask.size(-1), int) or mask.size(-1) == 0):
        x, mask = with_no_arm(x, mask)
    is_empty = ~mask.any(-1)
    return torch.where(possible & ~is_empty, decider.select(x, mask | is_empty.unsqueeze(-1)), -1)


def with_no_arm(arms: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Append an arm that is not available to each decision, so that there is one."""
    more = arms.new_zeros(arms.shape[:-2] + (1, arms.size(-1)))
    return torch.cat([arms, more], -2), torch.cat([mask, mask.new_zeros(mask.shape[:-1] + (1,))], -1)
