"""Rounds in one call for exported programs: learn from the past, then decide.

Each round returns ``learnt`` beside its decisions: True where a round was learnt. A round that must not be learnt leaves every
buffer of its learner as it was (:mod:`torchonline.export.guard`). So do ``learn=False`` and whatever the round then holds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.bandits.arm_ids import WithArmIds
from torchonline.bandits.composed import ComposedPolicy, learner_of
from torchonline.bandits.disjoint import DisjointArms
from torchonline.bandits.fixed_arms import FixedArms
from torchonline.bandits.moving_squares import rows_of
from torchonline.bandits.policies import Policy
from torchonline.bandits.scaled import ScaledPolicy
from torchonline.bandits.shared_radius_master import SharedRadiusMaster
from torchonline.convex.learner import ConvexLearner
from torchonline.core.checks import passes
from torchonline.core.learner import Learner
from torchonline.core.ops import along, converted, of_chosen
from torchonline.export.guard import accepted, chosen, in_type_of, learnt_where


class Round(nn.Module):
    """One round of a policy in one call: learn from an earlier one, then choose.

    Shape:
        - x: features of an arm chosen earlier, ``(*B, d)``; reward: what it paid, ``(*B)``; learn: ``(*B)``, bool.
        - arms: ``(*B, N, K, d)``, N decisions among K arms, K = 0 included; mask: ``(*B, N, K)``, bool, True where an arm is
          available.
        - noise_scale: of the earlier round, ``(*B)``; None for the learner's own.
        - Output: the choices, ``(*B, N)``, -1 for a decision that cannot be made; and learnt, ``(*B)``, bool.
    """

    def __init__(self, policy: Policy | ScaledPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(
        self, x: Tensor, reward: Tensor, learn: Tensor, arms: Tensor, mask: Tensor, noise_scale: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        policy = self.policy
        with torch.no_grad():
            x, reward, scale = as_state(policy, x, reward, noise_scale)
            learn = learn & accepted(policy, x, reward, scale)
            learnt = learn_round(learn, policy, x, None, reward, scale)
            return chosen(policy, arms, mask), learnt


class HeadRound(nn.Module):
    """One round of a policy on an encoder, or of arms with a model each, in one call.

    The encoder of the head is in evaluation mode. Its features of a round are checked as x of :class:`Round` is.

    Shape:
        - past: the inputs of an earlier decision, as ``select`` takes them, with at least one arm; action: the chosen arm,
          ``(*B)``, any number where nothing is to be learnt.
        - inputs: those of N decisions, ``(*B, N, ...)``; the rest is as in :class:`Round`.
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head: Any = head  # has encode and chosen_features, if it is no ComposedPolicy

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
        head = self.head
        policy = policy_of(head)
        with torch.no_grad():
            learn, action = with_action(policy, learn, action, arms_of(head, past))
            x = features_of_chosen(head, past, action)
            x, reward, scale = as_state(policy, x, reward, noise_scale)
            learn = learn & accepted(policy, x, reward, scale)
            if policy is not head and head.scaler is not None:
                # The scaler learns too, from the inputs.
                learn = learn & passes(converted(past, head.scaler.mean)).flatten(learn.dim()).all(-1)
                past = torch.where(along(learn, past), past, 0.0)
                reward, scale = cleared(policy, learn, reward, scale)
                parts = [learner_of(policy), head.scaler]
                learnt = learnt_where(learn, parts, lambda: head.step(past, action, reward, noise_scale=scale))
            else:
                if isinstance(policy, SharedRadiusMaster):  # which learns from all arms of the decision
                    x = converted(past, x)
                    learn = learn & passes(x).flatten(learn.dim()).all(-1)
                learnt = learn_round(learn, policy, x, action, reward, scale)
            return chosen_by(head, inputs, mask), learnt


class FixedRound(nn.Module):
    """One round of a fixed catalogue of arms in one call.

    Shape:
        - action: the arm chosen earlier, ``(*B)``, any number where nothing is to be learnt; reward, learn and noise_scale are
          those of :class:`Round`.
        - mask: ``(*B, K)``, bool, True where an arm is available.
        - Output: the choice, ``(*B)``, -1 if no arm is available; and learnt, ``(*B)``, bool.
    """

    def __init__(self, arms: FixedArms) -> None:
        super().__init__()
        self.arms = arms

    def forward(
        self, action: Tensor, reward: Tensor, learn: Tensor, mask: Tensor, noise_scale: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        arms = self.arms
        with torch.no_grad():
            learn, action = with_action(arms, learn, action, mask.size(-1))
            x = rows_of(arms.arms, arms._placed(action).unsqueeze(-1)).squeeze(-2)
            x, reward, scale = as_state(arms, x, reward, noise_scale)
            learn = learn & accepted(arms.policy, x, reward, scale)
            reward, scale = cleared(arms, learn, reward, scale)
            learnt = learnt_where(learn, [arms], lambda: arms.step(action, reward, noise_scale=scale))
            is_empty = ~mask.any(-1)
            return torch.where(is_empty, -1, arms.select(mask | is_empty.unsqueeze(-1))), learnt


class BlockRound(nn.Module):
    """A block of a policy in one call: learn earlier rounds at once, then choose.

    The n rounds are learnt as by ``learn`` with ``block_size=n``. A round that must not be learnt is none. If the other rounds
    outweigh all that the state can resolve, or would make it infinite, the learner learns none of the block.

    Shape:
        - x: features of arms chosen earlier, ``(*B, n, d)``; reward: what they paid, ``(*B, n)``; learn: ``(*B, n)``, bool.
          Where ``learn`` is False, there is no round. A learner without a round does not change.
        - noise_scale: of each earlier round, ``(*B, n)``; None for the learner's own.
        - arms, mask and choices are those of :class:`Round`; learnt, ``(*B, n)``, bool.
    """

    def __init__(self, policy: Policy | ScaledPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(
        self, x: Tensor, reward: Tensor, learn: Tensor, arms: Tensor, mask: Tensor, noise_scale: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            learnt = learn_block(self.policy, learn, x, None, reward, noise_scale)
            return chosen(self.policy, arms, mask), learnt


class BlockHeadRound(nn.Module):
    """A block of a policy on an encoder, or of arms with a model each, in one call.

    The encoder of the head is in evaluation mode.

    Shape:
        - past: the inputs of n earlier decisions, ``(*B, n, ...)``; action: the chosen arms, ``(*B, n)``, any number where
          ``learn`` is False; reward, learn, noise_scale and learnt are those of :class:`BlockRound`.
        - inputs, mask and choices are those of :class:`HeadRound`.
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head: Any = head

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
        head = self.head
        policy = policy_of(head)
        with torch.no_grad():
            learn, action = with_action(policy, learn, action, arms_of(head, past))
            x = features_of_chosen(head, past, action)
            learnt = learn_block(policy, learn, x, action, reward, noise_scale)
            return chosen_by(head, inputs, mask), learnt


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


def policy_of(head: Any) -> Policy | ComposedPolicy:
    """Return the policy of a head, or a composed policy itself."""
    return head if isinstance(head, ComposedPolicy) else head.policy


def chosen_by(head: Any, inputs: Tensor, mask: Tensor) -> Tensor:
    """Return the choices of a head or composed policy: see :func:`chosen`."""
    if isinstance(head, ComposedPolicy):
        return chosen(head, inputs, mask)
    besides = None
    if head.scaler is not None:  # which would clip infinity
        besides = passes(converted(inputs, head.scaler.mean)).flatten(mask.dim() - 1).all(-1)
    return chosen(head.policy, head.encode(inputs), mask, besides)


def arms_of(head: Any, past: Tensor) -> Any:
    """Return the number of arms of an earlier decision."""
    policy = policy_of(head)
    if isinstance(policy, DisjointArms):
        return policy.actions
    if policy is head:
        return past.size(-2)
    return past.size(past.dim() - head.feature_dims - 1) if head.actions is None else len(head.actions)


def features_of_chosen(head: Any, past: Tensor, action: Tensor) -> Tensor:
    """Return what the policy of a head learns from: ``(*B, [n], d)``."""
    if not isinstance(head, ComposedPolicy):
        return head.chosen_features(past, action)
    return past if isinstance(head, DisjointArms) else of_chosen(past, action)


def with_action(policy: Any, learn: Tensor, action: Tensor, count: Any) -> tuple[Tensor, Tensor]:
    """Return where to learn, the action being that of an arm, and such an action."""
    if isinstance(policy, WithArmIds):
        is_arm, place = policy._found(action, count)
        return learn & is_arm, policy._named(place)
    learn = learn & (action >= 0) & (action < count)
    return learn, torch.where(learn, action, 0)


def as_state(policy: Any, x: Tensor, reward: Tensor, noise_scale: Any) -> tuple[Tensor, Tensor, Any]:
    """Return the values of rounds in the type of the state."""
    state = policy.estimator.theta_hat
    scale = None if noise_scale is None else in_type_of(state, noise_scale)
    return in_type_of(state, x), in_type_of(state, reward), scale


def cleared(policy: Any, learn: Tensor, reward: Tensor, noise_scale: Any) -> tuple[Tensor, Any]:
    """Return rewards and noise scales, with usual ones where nothing is learnt."""
    if noise_scale is not None:
        noise_scale = torch.where(learn, noise_scale, policy.estimator._own_scale(reward))
    return torch.where(learn, reward, 0.0), noise_scale


def learn_round(
    learn: Tensor, policy: Any, x: Tensor, action: Tensor | None, reward: Tensor, noise_scale: Any
) -> Tensor:
    """Learn from a round where ``learn``, ``(*B)``, is True; return where it was.

    A policy that learns from all arms of the decision gets them for ``x``.
    """
    # The other learners get a round of zeros, and forget it.
    x = torch.where(along(learn, x), x, 0.0)
    reward, noise_scale = cleared(policy, learn, reward, noise_scale)
    takes_action = isinstance(policy, (DisjointArms, SharedRadiusMaster))
    arguments = (x, action, reward) if takes_action else (x, reward)
    return learnt_where(learn, [learner_of(policy)], lambda: policy.step(*arguments, noise_scale=noise_scale))


def learn_block(
    policy: Any, learn: Tensor, x: Tensor, action: Any, reward: Tensor, noise_scale: Tensor | None
) -> Tensor:
    """Learn a block of the rounds where ``learn``, ``(*B, n)``; return which were.

    Features must not move, and the estimator must have a block form: see :func:`no_blocks`. Only arms with a model each use
    ``action``, ``(*B, n)``; for others it may be None.
    """
    x, reward, scale = as_state(policy, x, reward, noise_scale)
    learn = learn & accepted(policy, x, reward, scale)
    scale = policy.estimator._own_scale(reward) if scale is None else scale

    def learn_them() -> None:
        if isinstance(policy, DisjointArms):
            policy._learn_at_once(x, policy._placed(action), reward, scale, learn, x.size(-2))
        elif isinstance(policy, ScaledPolicy):
            policy._learn_at_once(x, reward, scale, learn)
        else:
            policy.estimator._learn_block(x, reward, scale, learn)

    return learn & learnt_where(learn.any(-1), [learner_of(policy)], learn_them).unsqueeze(-1)


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


def step_where(learn: Tensor, policy: Policy | ScaledPolicy, x: Tensor, reward: Tensor) -> None:
    """Learn in Python from a round where ``learn``, ``(*B)``, and only there.

    Values are checked as in ``step``, which raises.
    """
    # The other learners get a round of zeros, and forget it.
    with only_where(learn, learner_of(policy)):
        policy.step(torch.where(learn.unsqueeze(-1), x, 0.0), torch.where(learn, reward, 0.0))


@contextmanager
def only_where(learn: Tensor, *learners: Learner) -> Iterator[None]:
    """Restore the state, after the block, where ``learn``, ``(*B)``, is False."""
    buffers = [buffer for learner in learners for buffer in (*learner.state().values(), *learner.scratch())]
    state = [(buffer, buffer.clone()) for buffer in buffers]
    yield
    for buffer, before in state:
        buffer.copy_(torch.where(along(learn, buffer), buffer, before))
