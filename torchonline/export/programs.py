"""Rounds in one call for exported programs: learn from the past, then decide.

Each round returns ``learnt`` beside its decisions: True where a round was learnt. A round that must not be learnt leaves every
buffer of its learner as it was (:mod:`torchonline.export.guard`). So do ``learn=False`` and whatever the round then holds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import passes
from torchonline.core.learner import Learner
from torchonline.core.ops import along, converted, in_type_of
from torchonline.export.guard import chosen, learnt_where
from torchonline.policies.policy import Policy


class Round(nn.Module):
    """One round of a policy in one call: learn from an earlier one, then choose.

    An encoder is in evaluation mode.

    Shape:
        - past: the inputs of an earlier decision, as ``select`` takes them, with at least one arm; action: the chosen arm,
          ``(*B)``, any number where nothing is to be learnt; reward: what it paid, ``(*B)``; learn: ``(*B)``, bool.
        - inputs: those of N decisions, ``(*B, N, ...)``; K = 0 is included where each arm has inputs; mask: ``(*B, N, K)``, bool,
          True where an arm is available.
        - noise_scale: of the earlier round, ``(*B)``; None for the learner's own.
        - Output: the choices, ``(*B, N)``, -1 for a decision that cannot be made; and learnt, ``(*B)``, bool.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(
        self,
        past: Tensor,
        action: Tensor,
        reward: Tensor,
        learn: Tensor,
        inputs: Tensor,
        mask: Tensor,
        noise_scale: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            learnt = learn_round(self.policy, past, action, reward, learn, noise_scale)
            return chosen(self.policy, inputs, mask), learnt


class FixedRound(nn.Module):
    """One round of a fixed catalogue of arms in one call.

    Shape:
        - action, reward, learn and noise_scale are those of :class:`Round`.
        - mask: ``(*B, K)``, bool, True where an arm is available.
        - Output: the choice, ``(*B)``, -1 if no arm is available; and learnt, ``(*B)``, bool.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(
        self, action: Tensor, reward: Tensor, learn: Tensor, mask: Tensor, noise_scale: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        policy = self.policy
        with torch.no_grad():
            learnt = learn_round(policy, None, action, reward, learn, noise_scale)
            is_empty = ~mask.any(-1)
            return torch.where(is_empty, -1, policy.select(None, mask | is_empty.unsqueeze(-1))), learnt


class BlockRound(nn.Module):
    """A block of a policy in one call: learn earlier rounds at once, then choose.

    The n rounds are learnt as by ``learn`` with ``block_size=n``. A round that must not be learnt is left out. If the other
    rounds outweigh all that the state can resolve, or would make it infinite, the learner learns none of the block.

    Shape:
        - past: the inputs of n earlier decisions, ``(*B, n, ...)``; action: the chosen arms, ``(*B, n)``, any number where
          ``learn`` is False; reward: what they paid, ``(*B, n)``; learn: ``(*B, n)``, bool. A learner without a round does not
          change.
        - noise_scale: of each earlier round, ``(*B, n)``; None for the learner's own.
        - inputs, mask and choices are those of :class:`Round`; learnt, ``(*B, n)``, bool.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(
        self,
        past: Tensor,
        action: Tensor,
        reward: Tensor,
        learn: Tensor,
        inputs: Tensor,
        mask: Tensor,
        noise_scale: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        policy = self.policy
        with torch.no_grad():
            x, place, reward, scale, learn = read(policy, past, action, reward, learn, noise_scale)
            scale = policy._own_scale(reward) if scale is None else scale
            learnt = learnt_where(
                learn.any(-1), policy._learners(), lambda: policy._learn_block(x, place, reward, scale, learn)
            )
            return chosen(policy, inputs, mask), learn & learnt.unsqueeze(-1)


class ConvexRound(nn.Module):
    """One round of a convex learner in one call: learn from gradients, then decide.

    The queries are N points, and ``*B`` is the learner's batch shape. The learner keeps the hint of its constructor.

    Shape:
        - gradients: ``(*B, N, d)``, at the queries of the last call; values: of the loss there, ``(*B, N)``, anything where the
          learner needs none; learn: ``(*B)``, bool.
        - Output: the next decision, ``(*B, d)``, the next queries, ``(*B, N, d)``, and learnt, ``(*B)``, bool.
    """

    def __init__(self, learner: ConvexLearner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, gradients: Tensor, values: Tensor, learn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        learner = self.learner
        with torch.no_grad():
            gradients, values = converted(gradients, learner.decision), converted(values, learner.decision)
            learn = learn & passes(gradients).flatten(learn.dim()).all(-1)
            if learner.needs_values:
                learn = learn & passes(values).all(-1)
            gradients, values = (torch.where(along(learn, v), v, 0.0) for v in (gradients, values))
            learnt = learnt_where(learn, [learner], lambda: learner.step(gradients, values))
            return learner.predict(), learner.queries(), learnt


def read(
    policy: Policy, past: Tensor | None, action: Tensor, reward: Tensor, learn: Tensor, noise_scale: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Any, Tensor]:
    """Return rows, places, rewards and noise scales of rounds, and where to learn."""
    like = policy._like()
    given: Any = like if past is None else past
    is_arm, place = policy._found(action, policy._count(given))
    x, reward = policy._chosen(given, place), in_type_of(reward, like)
    scale = None if noise_scale is None else in_type_of(noise_scale, like)
    return x, place, reward, scale, learn & is_arm & policy._accepts(x, place, reward, scale)


def learn_round(
    policy: Policy, past: Tensor | None, action: Tensor, reward: Tensor, learn: Tensor, noise_scale: Tensor | None
) -> Tensor:
    """Learn from a round where ``learn``, ``(*B)``; return where it was learnt."""
    x, place, reward, scale, learn = read(policy, past, action, reward, learn, noise_scale)
    # The other learners get a round of zeros, and forget it.
    x, reward = torch.where(along(learn, x), x, 0.0), torch.where(learn, reward, 0.0)
    own = policy._own_scale(reward)
    noise = own if scale is None else torch.where(learn, scale, own)

    def learn_it() -> None:
        if policy.has_own_step:
            policy.step(*policy._as_round(x, place), reward, noise_scale=noise)
        else:
            with policy._exactly(x):
                policy._learn_round(x, place, reward, noise)

    return learnt_where(learn, policy._learners(), learn_it)


def no_blocks(module: nn.Module) -> str | None:
    """Return why a module has no program that learns blocks, or None if it has one."""
    if not isinstance(module, Policy):
        return f"{type(module).__name__} has no block form"
    return module._why_no_blocks()


def step_where(learn: Tensor, policy: Policy, x: Tensor, reward: Tensor) -> None:
    """Learn in Python from a round where ``learn``, ``(*B)``, and only there.

    ``x``, ``(*B, d)``, are the chosen arms' features. Values are checked as in ``step``, which raises.
    """
    # The other learners get a round of zeros, and forget it.
    with only_where(learn, policy.learner):
        x, reward = torch.where(learn.unsqueeze(-1), x, 0.0), torch.where(learn, reward, 0.0)
        policy.step(*policy._as_round(x, torch.zeros_like(learn, dtype=torch.int64)), reward)


@contextmanager
def only_where(learn: Tensor, *learners: Learner) -> Iterator[None]:
    """Restore the state, after the block, where ``learn``, ``(*B)``, is False."""
    buffers = [buffer for learner in learners for buffer in (*learner.state().values(), *learner.scratch())]
    state = [(buffer, buffer.clone()) for buffer in buffers]
    yield
    for buffer, before in state:
        buffer.copy_(torch.where(along(learn, buffer), buffer, before))
