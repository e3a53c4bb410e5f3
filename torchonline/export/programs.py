"""Modules for exported programs: learn a past round and decide, in one call.

Each call returns its decisions and ``learnt``: True for a round that was learnt. A round that must not be learnt leaves every
buffer of its learner unchanged (:mod:`torchonline.export.guard`). So does ``learn=False``, whatever values the round holds.
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
    """Round of a policy in one call: learn from an earlier round, then choose.

    An encoder is in evaluation mode.

    Shape:
        - past: inputs of an earlier decision as in ``select``, with at least one arm; action: the chosen arm, ``(*B)``, any
          number if ``learn`` is False; reward: its reward, ``(*B)``; learn: ``(*B)``, bool.
        - inputs: inputs of N decisions, ``(*B, N, ...)``, where K = 0 is allowed if each arm has inputs; mask: ``(*B, N, K)``,
          bool, True for available arms.
        - noise_scale: noise scale of the earlier round, ``(*B)``; None for the learner's own.
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
    """Round of a fixed catalogue of arms in one call.

    Shape:
        - action, reward, learn and noise_scale are as in :class:`Round`.
        - mask: ``(*B, K)``, bool, True for available arms.
        - Output: the choice, ``(*B)``, -1 if no arm is available; and learnt, ``(*B)``, bool.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(
        self, action: Tensor, reward: Tensor, learn: Tensor, mask: Tensor, noise_scale: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            learnt = learn_round(self.policy, None, action, reward, learn, noise_scale)
            return chosen(self.policy, None, mask), learnt


class BlockRound(nn.Module):
    """Block of a policy in one call: learn earlier rounds at once, then choose.

    The n rounds are learnt as by ``learn`` with ``block_size=n``. A round that must not be learnt is left out. If the other
    rounds exceed what the state can resolve, or would make it infinite, the learner learns none of the block.

    Shape:
        - past: inputs of n earlier decisions, ``(*B, n, ...)``; action: the chosen arms, ``(*B, n)``, any number if ``learn`` is
          False; reward: their rewards, ``(*B, n)``; learn: ``(*B, n)``, bool. A learner without a round does not change.
        - noise_scale: noise scale of each earlier round, ``(*B, n)``; None for the learner's own.
        - inputs, mask and choices are as in :class:`Round`; learnt, ``(*B, n)``, bool.
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
    """Round of a convex learner in one call: learn from gradients, then decide.

    The queries are N points, and ``*B`` is the learner's batch shape. The learner keeps the hint of its constructor.

    Shape:
        - gradients: gradients at the queries of the last call, ``(*B, N, d)``; values: losses there, ``(*B, N)``, any numbers if
          the learner does not need them; learn: ``(*B)``, bool.
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
    """Return rows, arm indices, rewards, noise scales, and which rounds to learn."""
    like = policy._like()
    given: Any = like if past is None else past
    is_arm, place = policy._found(action, policy._count(given))
    x, reward = policy._chosen(given, place), in_type_of(reward, like)
    scale = None if noise_scale is None else in_type_of(noise_scale, like)
    return x, place, reward, scale, learn & is_arm & policy._accepts(x, place, reward, scale)


def learn_round(
    policy: Policy, past: Tensor | None, action: Tensor, reward: Tensor, learn: Tensor, noise_scale: Tensor | None
) -> Tensor:
    """Learn a round where ``learn``, ``(*B)``, is True. Return where it was learnt."""
    x, place, reward, scale, learn = read(policy, past, action, reward, learn, noise_scale)
    # The other learners get a round of zeros, and their state is restored.
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
    """Learn a round in Python where ``learn``, ``(*B)``, is True, and only there.

    ``x``, ``(*B, d)``, are the chosen arms' features. ``step`` checks the values and raises.
    """
    # The other learners get a round of zeros, and their state is restored.
    with only_where(learn, policy.learner):
        x, reward = torch.where(learn.unsqueeze(-1), x, 0.0), torch.where(learn, reward, 0.0)
        policy.step(*policy._as_round(x, torch.zeros_like(learn, dtype=torch.int64)), reward)


@contextmanager
def only_where(learn: Tensor, *learners: Learner) -> Iterator[None]:
    """Restore the state after the ``with`` block where ``learn``, ``(*B)``, is False."""
    buffers = [buffer for learner in learners for buffer in (*learner.state().values(), *learner.scratch())]
    state = [(buffer, buffer.clone()) for buffer in buffers]
    yield
    for buffer, before in state:
        buffer.copy_(torch.where(along(learn, buffer), buffer, before))
