"""Rounds in one call for exported programs: learn from the past, then decide."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.bandits.composed import ComposedPolicy, learner_of
from torchonline.bandits.disjoint import DisjointArms
from torchonline.bandits.fixed_arms import FixedArms
from torchonline.bandits.policies import Policy
from torchonline.bandits.scaled import ScaledPolicy
from torchonline.convex.learner import ConvexLearner
from torchonline.core.learner import Learner
from torchonline.core.ops import along, converted


class Round(nn.Module):
    """One round of a policy in one call: learn from an earlier one, then choose.

    Shape:
        - x: features of an arm chosen earlier, ``(*B, d)``; reward: what it paid, ``(*B)``; learn: ``(*B)``, bool. Where
          ``learn`` is False, no buffer of that learner changes, whatever x and reward hold.
        - arms: ``(*B, N, K, d)``, N decisions among K arms; mask: ``(*B, N, K)``, bool, True where an arm is available.
        - Output: the choices, ``(*B, N)``, for a policy of batch shape ``*B``.
    """

    def __init__(self, policy: Policy | ScaledPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, x: Tensor, reward: Tensor, learn: Tensor, arms: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad():
            step_where(learn, self.policy, x, reward)
        return self.policy.select(arms, mask)


class HeadRound(nn.Module):
    """One round of a policy on an encoder, or of arms with a model each, in one call.

    Shape:
        - past: the inputs of an earlier decision, as ``select`` takes them; action: the chosen arm, ``(*B)``.
        - inputs: those of N decisions, ``(*B, N, ...)``; reward, learn, mask and output are those of :class:`Round`.
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head: Any = head  # has select(inputs, mask) and step(inputs, action, reward)
        self.learners: list[Learner] = _learners_of(head)

    def forward(
        self, past: Tensor, action: Tensor, reward: Tensor, learn: Tensor, inputs: Tensor, mask: Tensor
    ) -> Tensor:
        with torch.no_grad(), only_where(learn, *self.learners):
            self.head.step(past, action, reward)
        return self.head.select(inputs, mask)


class FixedRound(nn.Module):
    """One round of a fixed catalogue of arms in one call.

    Shape:
        - action: the arm chosen earlier, ``(*B)``; reward and learn are those of :class:`Round`.
        - mask: ``(*B, K)``, bool, True where an arm is available.
        - Output: the choice, ``(*B)``.
    """

    def __init__(self, arms: FixedArms) -> None:
        super().__init__()
        self.arms = arms

    def forward(self, action: Tensor, reward: Tensor, learn: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad(), only_where(learn, self.arms):
            self.arms.step(action, torch.where(learn, reward, 0.0))
        return self.arms.select(mask)


class BlockRound(nn.Module):
    """A block of a policy in one call: learn earlier rounds at once, then choose.

    The n rounds are learnt as by ``learn`` with ``block_size=n``.

    Shape:
        - x: features of arms chosen earlier, ``(*B, n, d)``; reward: what they paid, ``(*B, n)``; learn: ``(*B, n)``, bool.
          Where ``learn`` is False, there is no round, whatever x and reward hold. A learner without a round does not change.
        - arms, mask and output are those of :class:`Round`.
    """

    def __init__(self, policy: Policy | ScaledPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, x: Tensor, reward: Tensor, learn: Tensor, arms: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad():
            learn_block_where(learn, self.policy, x, None, reward)
        return self.policy.select(arms, mask)


class BlockHeadRound(nn.Module):
    """A block of a policy on an encoder, or of arms with a model each, in one call.

    The encoder of the head is in evaluation mode.

    Shape:
        - past: the inputs of n earlier decisions, ``(*B, n, ...)``; action: the chosen arms, ``(*B, n)``, any number where
          ``learn`` is False; reward and learn are those of :class:`BlockRound`.
        - inputs, mask and output are those of :class:`HeadRound`.
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head: Any = head

    def forward(
        self, past: Tensor, action: Tensor, reward: Tensor, learn: Tensor, inputs: Tensor, mask: Tensor
    ) -> Tensor:
        head = self.head
        with torch.no_grad():
            action = torch.where(learn, action, 0)
            if isinstance(head, ComposedPolicy):
                learn_block_where(learn, head, past, action, reward)
            else:
                learn_block_where(learn, head.policy, head.chosen_features(past, action), action, reward)
        return head.select(inputs, mask)


class ConvexRound(nn.Module):
    """One round of a convex learner in one call: learn from gradients, then decide.

    The queries are N points, and ``*B`` is the learner's batch shape. The learner keeps the hint of its constructor.

    Shape:
        - gradients: ``(*B, N, d)``, at the queries of the last call; values: of the loss there, ``(*B, N)``, anything where the
          learner needs none; learn: ``(*B)``, bool, as for :class:`Round`.
        - Output: the next decision, ``(*B, d)``, and the next queries, ``(*B, N, d)``.
    """

    def __init__(self, learner: ConvexLearner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, gradients: Tensor, values: Tensor, learn: Tensor) -> tuple[Tensor, Tensor]:
        each = learn.unsqueeze(-1)
        with torch.no_grad(), only_where(learn, self.learner):
            self.learner.step(torch.where(each.unsqueeze(-1), gradients, 0.0), torch.where(each, values, 0.0))
        return self.learner.predict(), self.learner.queries()


def _learners_of(head: Any) -> list[Learner]:
    """Return the learners that a step of a head, or of a composed policy, changes."""
    if isinstance(head, ComposedPolicy):
        return [head]
    return [learner_of(head.policy), *([] if head.scaler is None else [head.scaler])]


def step_where(learn: Tensor, policy: Policy | ScaledPolicy, x: Tensor, reward: Tensor) -> None:
    """Learn from a round where ``learn``, ``(*B)``, is True, and only there."""
    # The other learners get a round of zeros, and forget it.
    with only_where(learn, learner_of(policy)):
        policy.step(torch.where(learn.unsqueeze(-1), x, 0.0), torch.where(learn, reward, 0.0))


def learn_block_where(learn: Tensor, policy: Any, x: Tensor, action: Any, reward: Tensor) -> None:
    """Learn as one block from the rounds where ``learn``, ``(*B, n)``, is True.

    Features must not move, and the estimator must have a block form: see :func:`no_blocks`. Only arms with a model each use
    ``action``, ``(*B, n)``; for others it may be None.
    """
    state = policy.estimator.theta_hat
    x, reward = converted(x, state), converted(reward, state)
    scale = policy.estimator._own_scale(reward)
    if isinstance(policy, DisjointArms):
        policy._learn_at_once(x, action, reward, scale, learn, x.size(-2))
    elif isinstance(policy, ScaledPolicy):
        policy._learn_at_once(x, reward, scale, learn)
    else:
        policy.estimator._learn_block(x, reward, scale, learn)


def no_blocks(module: nn.Module) -> str | None:
    """Return why a module has no program that learns blocks, or None if it has one."""
    policy = module if isinstance(module, (Policy, Learner)) else getattr(module, "policy", None)
    if not isinstance(policy, (Policy, ComposedPolicy)):
        return f"{type(module).__name__} has no block form"
    if policy.has_own_step:
        return f"{type(policy).__name__} has a step of its own"
    learner: Any = learner_of(policy)
    for part in (policy.estimator, learner):
        if not part.has_blocks:
            return f"{type(part).__name__} has no block form"
    if module is not policy and getattr(module, "scaler", None) is not None:
        return "a head with a scaler learns rounds in order"
    return None if learner._learns_blocks_now() else "the scaler has not frozen, until when rounds are learnt in order"


@contextmanager
def only_where(learn: Tensor, *learners: Learner) -> Iterator[None]:
    """Restore the state, after the block, where ``learn``, ``(*B)``, is False."""
    buffers = [buffer for learner in learners for buffer in (*learner.state().values(), *learner.scratch())]
    state = [(buffer, buffer.clone()) for buffer in buffers]
    yield
    for buffer, before in state:
        buffer.copy_(torch.where(along(learn, buffer), buffer, before))
