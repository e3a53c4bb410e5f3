"""Guard of an exported learner: it skips rounds that must not be learnt.

A program does not raise. A round changes no buffer if the eager ``step`` would refuse its values, or if a buffer would not be
finite afterwards. :func:`learnt_where` returns which rounds were learnt. The code does not branch on values, so torch.export can
trace it. :mod:`torchonline.export.torchscript_classes` is the counterpart in TorchScript.
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
    """Call ``learn``, restore the learners that must not learn, return the others.

    A learner must not learn if ``fit``, ``(*B)``, is False, if its round outweighs all others, or if one of its buffers would not
    be finite. The result has shape ``(*B)``.
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
    """Record the refusals of the learners' estimators during a traced step.

    Yield a function that returns the records, ``(*B)`` each, with as many dimensions as ``like``.
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
    """Reduce the conditions of each learner with any: ``(*B, ...)`` to ``(*B)``."""
    return condition.flatten(dims).any(-1) if condition.dim() > dims else condition


def is_finite(buffer: Tensor, dims: int, is_unbounded: bool) -> Tensor:
    """Return which learners' numbers are all finite: ``(*B, ...)`` to ``(*B)``.

    With ``is_unbounded``, infinity is allowed, but not NaN.
    """
    if is_unbounded:
        return ~any_of_rest(buffer != buffer, dims)
    # One product and one sum suffice: infinity and NaN times 0 are NaN.
    nothing = 0.0 * buffer
    return (nothing.flatten(dims).sum(-1) if nothing.dim() > dims else nothing) == 0.0


def chosen(policy: Policy, inputs: Tensor | None, mask: Tensor) -> Tensor:
    """Return the choices of a policy, and -1 for a decision that cannot be made.

    A decision cannot be made if no arm is available, or if ``select`` would refuse the features of any arm, available or not. If
    each arm has inputs, the number K of arms may be 0. Arguments and shapes are as in ``select``.
    """
    decider, x, usable, possible = _decision(policy, inputs, mask)
    # Ties are broken by the inputs before an encoder, as in `select`.
    given = None if decider is policy else inputs
    return torch.where(possible, decider._choice_now(x, usable, given), -1)


def shares(policy: Policy, inputs: Tensor | None, mask: Tensor) -> Tensor:
    """Return the probability of each arm; 0 if a decision cannot be made.

    Arguments, shapes and decisions that cannot be made are as in :func:`chosen`.
    """
    decider, x, usable, possible = _decision(policy, inputs, mask)
    probabilities = decider.probabilities(x, usable)
    return torch.where(possible.unsqueeze(-1), probabilities, 0.0).narrow(-1, 0, mask.size(-1))


def _decision(policy: Policy, inputs: Tensor | None, mask: Tensor) -> tuple[Policy, Tensor | None, Tensor, Tensor]:
    """Return what decides, its features and mask, and which decisions can be made."""
    is_empty = ~mask.any(-1)
    if inputs is None:
        return policy, None, mask | is_empty.unsqueeze(-1), ~is_empty
    decider, x = policy._decider(inputs, False)
    possible = policy._can_score(inputs, x) & ~is_empty
    x = in_type_of(x, policy._like())
    # A static number of arms above 0 needs no padding.
    if decider.has_arm_inputs and (not isinstance(mask.size(-1), int) or mask.size(-1) == 0):
        x, mask = with_no_arm(x, mask)
    return decider, x, mask | is_empty.unsqueeze(-1), possible


def with_no_arm(arms: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Append an unavailable arm to each decision, so that K is above 0."""
    more = arms.new_zeros(arms.shape[:-2] + (1, arms.size(-1)))
    return torch.cat([arms, more], -2), torch.cat([mask, mask.new_zeros(mask.shape[:-1] + (1,))], -1)
