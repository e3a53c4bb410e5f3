"""Base of the learners made of a policy and a scaler."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchonline.bandits.arguments import checked_actions, rounds_of_arrays
from torchonline.bandits.arm_ids import found_places
from torchonline.bandits.block_learner import BlockLearner
from torchonline.bandits.blocks import learn_blocks
from torchonline.bandits.default_estimator import suggestion
from torchonline.bandits.early_rounds import EarlyRounds
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import ON_ARRAYS, UCB, Policy, best_of, drawn_with_probability
from torchonline.bandits.policy_learner import PolicyLearner, in_turn
from torchonline.bandits.scaler import RunningScaler, check_scaler
from torchonline.core.backend import (
    SMALL_PRODUCT,
    as_array,
    in_python,
    is_readable,
    may_hold,
)
from torchonline.core.checks import check_array, check_values, shape_text
from torchonline.core.inputs import ArrayLike, as_indices, check_mask, check_tensor
from torchonline.core.learner import Learner
from torchonline.core.ops import along, count_, number, real, where
from torchonline.core.views import NumpyView

# Of a policy whose estimator other threads may use.
learn_blocks_in_turn = in_turn(learn_blocks)


class ComposedPolicy(PolicyLearner, BlockLearner):
    """Base of the learners made of a policy and, if wanted, a scaler of its features.

    The scaler, the estimator and the count of rounds change together or not at all. A subclass says how contexts are scored, in
    :meth:`_scores`, and learns from a round. ``item_dims`` is the number of trailing dimensions of a decision's context.

    Shape:
        - ``rounds``, ``(*B)``: rounds learnt from. The other buffers are those of the parts, ``policy.estimator`` and ``scaler``.
    """

    if TYPE_CHECKING:
        scaler: RunningScaler | None
        early: EarlyRounds | None

        def __call__(self, context: ArrayLike) -> Tensor: ...

    rounds: Tensor

    # What errors call the context, and what stands in its shape before d.
    context_name, item_dims = "context", 1
    __constants__ = ("item_dims",)

    def __init__(self, policy: Policy, scaler: RunningScaler | None, batch_shape: tuple[int, ...], dim: int) -> None:
        super().__init__(policy, batch_shape, dim)
        estimator, state = policy.estimator, policy.estimator.theta_hat
        check_scaler(scaler, estimator.dim, batch_shape, state)
        self.scaler = scaler
        # A guarantee after a freeze, and an epoch, are about rounds in coordinates that stay.
        moves = scaler is not None and scaler.freeze_after is None and estimator.restart_every is None
        options: Any = {"dtype": state.dtype, "device": state.device, "validate": estimator.validate}
        can_renew = moves and estimator.can_replace
        self.early = EarlyRounds(dim, estimator.dim, batch_shape=batch_shape, **options) if can_renew else None
        # Whether `learn` learns from many rounds at once, while features do not move.
        self.has_blocks = estimator.has_blocks and self._blocks_are_rounds() and not self.has_own_step
        # Why this policy was recommended, for its repr.
        self.note = ""
        # Of a decision, for each number of its context.
        self.multiplications: int = estimator.dim * math.prod(estimator.batch_shape[len(batch_shape) :])

    def extra_repr(self) -> str:
        """Return the sizes, and why the policy was recommended."""
        sizes = f"dim={self.dim}, batch_shape={self.batch_shape}"
        return f"{sizes}\n# {self.note}" if self.note else sizes

    def _initial_state(self) -> dict[str, Tensor | None]:
        return {"rounds": torch.zeros((), dtype=torch.int64)}

    def parts(self) -> dict[str, Learner]:
        more = {"scaler": self.scaler, "early": self.early}
        return super().parts() | {name: part for name, part in more.items() if part is not None}

    def _scores(self, context: Tensor) -> Tensor:
        """Return the policy's score of each arm: ``(*B, ..., K)``."""
        raise NotImplementedError

    def _features(self, x: Tensor) -> Tensor:
        """Return the features that the policy gets: ``(*B, ..., d)`` to ``(*B, ..., m)``."""
        return x if self.scaler is None else self.scaler._scaled(x)

    @in_turn
    def _forward_in_python(self, context: ArrayLike) -> Tensor:
        return self._scores(self._checked(context, None)[0])

    @in_python(_forward_in_python)
    def forward(self, context: Tensor) -> Tensor:
        """Return the policy's score of each arm, ``(*B, ..., K)``, differentiable."""
        return self._scores(context)

    @in_turn
    def predict(self, context: ArrayLike) -> Tensor:
        """Return the estimated mean reward of each arm, ``(*B, ..., K)``, differentiable.

        This is ``policy.estimator`` on the scaled features. ``policy(context)`` returns scores instead, by which arms are chosen.
        Changes no state. Python only.
        """
        return self._means(self._checked(context, None)[0])

    def _means(self, context: Tensor) -> Tensor:
        """Return the estimated mean reward of each arm: ``(*B, ..., K)``. Python only."""
        return self.policy.predict(self._features(context))

    @in_turn
    def interval(self, context: ArrayLike) -> tuple[Tensor, Tensor]:
        """Return lower and upper confidence bounds of each arm's mean reward.

        Shapes: ``(*B, ..., K)`` twice. See :meth:`Policy.interval`. The bounds are a heuristic while a scaler moves. With a model
        for each arm, an estimator with a guarantee covers the bounds of all arms at once. Changes no state. Python only.
        """
        return self._intervals(self._checked(context, None)[0])

    def _intervals(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds of the mean rewards: ``(*B, ..., K)`` twice. Python only."""
        return self.policy.interval(self._features(context))

    @in_turn
    def _select_in_python(self, context: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
        policy: Any = self._modules["policy"]  # a fifth of the time of self.policy
        context, available = self._checked(context, mask)
        view = self.view_for(context) if self._is_on_arrays() else None
        if view is not None and context.numel() * self.multiplications < SMALL_PRODUCT:
            rows = as_array(context)
            if self.validate:
                check_array(self.context_name, rows)
            scores: Any = view.run(view.learner._scores, rows)
            if available is not None:
                scores = np.where(as_array(available), scores, -math.inf)
            if not policy.is_random:
                return self._named(best_of(scores))
            return self._named(policy.choice(torch.from_numpy(scores), self.rounds))
        if self.validate and is_readable(context):
            check_values(self.context_name, context)
        with torch.no_grad():
            scores = self._scores(self._to_score(context, available))
            scores = scores if available is None else scores.masked_fill(~available, -math.inf)
            return self._named(policy.choice(scores, self.rounds))

    @torch.jit.export
    @in_python(_select_in_python)
    def select(self, context: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the chosen arm of each decision: int64, ``(*B, ...)``.

        It is an index; with a model for each arm, the id of the arm. Changes no state. Of equal scores the first is chosen. So
        until a first reward is learnt, a policy that does not draw chooses the first arm in all decisions of a batch.

        Args:
            context: the features of one decision or of many, see the class.
            mask: True where an arm is available, ``(*B, ..., K)``, or ``(K)`` for all decisions.

        Raises:
            TypeError: ``context`` holds no real numbers or is a tensor of integers, or ``mask`` holds no booleans.
            ValueError: a shape, device or value is wrong, or a decision has no available arm.
        """
        with torch.no_grad():
            scores = self._scores(context.detach())
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf)
            return self._named(self.policy.choice(scores, self.rounds))

    @in_turn
    def _probabilities_in_python(self, context: ArrayLike, mask: ArrayLike | None = None) -> Tensor:
        context, available = self._checked(context, mask)
        if self.validate and is_readable(context):
            check_values(self.context_name, context)
        with torch.no_grad():
            return self._mixture(self._to_score(context, available), available)

    @torch.jit.export
    @in_python(_probabilities_in_python)
    def probabilities(self, context: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the probability with which each arm is chosen, ``(*B, ..., K)``.

        See :meth:`Policy.probabilities`; arguments and errors are those of :meth:`select`.
        """
        with torch.no_grad():
            return self._mixture(context.detach(), mask)

    @in_turn
    def _decide_in_python(self, context: ArrayLike, mask: ArrayLike | None = None) -> tuple[Tensor, Tensor]:
        place, probability = drawn_with_probability(self.probabilities(context, mask))
        return self._named(place), probability

    @torch.jit.export
    @in_python(_decide_in_python)
    def decide(self, context: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Choose an arm in each decision, and return its probability too, for a log.

        See :meth:`Policy.decide`; arguments and errors are those of :meth:`select`.
        """
        place, probability = drawn_with_probability(self.probabilities(context, mask))
        return self._named(place), probability

    def plot_confidence(
        self,
        context: ArrayLike,
        ax: Any = None,
        *,
        names: Sequence[str] | None = None,
        mask: ArrayLike | None = None,
        index: Any = None,
        label: str | None = None,
    ) -> tuple[Any, Any]:
        """Draw each arm's estimated mean reward and its confidence interval.

        See :meth:`Policy.plot_confidence`. ``context`` is that of :meth:`select`. While a scaler moves, the intervals are a
        heuristic, and the label of the axis says so.
        """
        from torchonline.bandits.pictures import draw_confidence

        return draw_confidence(self, (context,), ax, names, mask, index, label)

    def _named(self, place: Tensor) -> Tensor:
        """Return what actions call the arms at some places: see :class:`WithArmIds`."""
        return place

    def _named_if_any(self, place: Tensor) -> Tensor:
        """Return what actions call the arms at some places; -1, of no arm, stays."""
        return place

    def _found(self, action: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return whether actions are those of ``count`` arms, and right places."""
        return found_places(action, count)

    def _mixture(self, context: Tensor, mask: Tensor | None) -> Tensor:
        """Return the probabilities of arms, the mean over draws of the scores."""
        first = context.dim() - self.item_dims
        sizes = list(context.shape[:first]) + [self.policy.draws] + list(context.shape[first:])
        scores = self._scores(context.unsqueeze(first).expand(sizes))
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(-2), -math.inf)
        return self.policy.distribution(scores, self.rounds).mean(-2)

    def _end_round_(self, x: Tensor, features: Tensor, arm: Tensor, noise_scale: Tensor) -> None:
        """Show the scaler a round's features, count the round, and renew an early one.

        ``x`` is ``(*B, d)``. ``features``, ``(*B, m)``, are what the estimator has learnt from. The arm and the noise scale are
        ``(*B)``.
        """
        scaler, early, are_early = self.scaler, self.early, False
        if early is not None:
            are_early = may_hold(early.are_early(self.rounds))
            if are_early and may_hold(early.is_kept(self.rounds)):
                # On NumPy views, the learners of a fleet may have one scale in common.
                weight = self.noise_scale / noise_scale + 0.0 * real(self.rounds, features)
                a = along(weight, features) * features
                early.keep_(self.rounds, x, a, weight, self._last_target(), arm)
        if scaler is not None:
            scaler._observe(x)
            if scaler.freeze_after is not None:
                due = scaler.rounds == scaler.freeze_after
                if may_hold(due):
                    self._start_anew_(due)
        count_(self.rounds)
        if are_early and early is not None:
            due = early.is_due(self.rounds)
            if may_hold(due):
                self._renew_(due)

    def _renew_(self, due: Tensor) -> None:
        """Put an early round into the scaler's coordinates, where ``due``, ``(*B)``."""
        scaler, early = self.scaler, self.early
        if early is not None and scaler is not None:
            place = early.place(self.rounds)
            x, old, weight, target, arm = early.recall(place)
            new = along(weight, x) * scaler._scaled_again(x)
            factor = along(real(due, x), x)
            is_safe = self._replace_(arm, factor * old, factor * new, target)
            early.renew_(place, x, where(along(due & is_safe, old), new, old), weight, target, arm)

    def _replace_(self, arm: Tensor, old: Tensor, new: Tensor, target: Tensor) -> Tensor:
        """Let an arm's estimator replace features: see :meth:`Estimator._replace_`."""
        return self.policy.estimator._replace_(old, new, target)

    def _last_target(self) -> Tensor:
        """Return what the estimator has learnt the last round from, ``(*B)``."""
        return number(self.policy.estimator.target)

    def _start_anew_(self, due: Tensor) -> None:
        """Let the estimators forget what they have learnt, where ``due``, ``(*B)``."""
        self.policy.estimator._forget_(due)

    def _learn_actions(self, context: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None) -> None:
        """Learn from one round or several in TorchScript, where rounds have actions."""
        with torch.no_grad():
            x = context.detach().to(self.policy.estimator.theta_hat.dtype)
            reward = reward.detach().to(x.dtype)
            scale = self._own_scale(reward) if noise_scale is None else noise_scale.detach().to(x.dtype)
            rows = self.batch_dims
            if x.dim() == rows + self.item_dims:
                self._learn_round(x, action, reward, scale)
            else:
                for i in range(x.size(rows)):
                    self._learn_round(
                        x.select(rows, i), action.select(rows, i), reward.select(rows, i), scale.select(rows, i)
                    )

    def _learns_blocks_now(self) -> bool:
        """Return whether rounds can be learnt at once: features must not move."""
        return self.has_blocks and self._rounds_until_freeze() == 0

    def _rounds_until_freeze(self) -> int:
        """Return after how many rounds features stay as they are.

        8192 stands for never, and for what the host cannot know.
        """
        scaler = self.scaler
        if scaler is None:
            return 0
        if scaler.freeze_after is None or not self.policy.estimator._can_ask(scaler.rounds):
            return 8192
        return max(scaler.freeze_after - int(scaler.rounds.min()), 0)

    def _count_block_(self, learnt: int, mask: Tensor | None) -> None:
        """Count rounds that were learnt at once, while the features did not move.

        They are ``learnt`` rounds of each learner, of all workers together, or those in its mask, ``(*B, n)``.
        """
        rounds, scaler = self.rounds, self.scaler
        count = torch.zeros_like(rounds) + learnt if mask is None else mask.sum(-1)
        if scaler is not None:
            rows = scaler.rounds
            rows += count
        rounds += count

    # TorchScript does not compile the methods below.

    def _blocks_are_rounds(self) -> bool:
        """Return whether the class learns a block by the update of its rounds."""
        return False

    def _learn_decisions(self, rounds: tuple[Any, ...], action: Any) -> None:
        """Learn from results of ``checked_rounds``, and from the actions of the rounds."""
        context, reward, noise_scale, is_one = rounds
        name, shape = self.context_name, context.shape[: -self.item_dims]
        action = self._placed(action)
        known = checked_actions(action, shape, context.device, self._arms_of(context), self.validate)
        view = self.view_for(context) if self.is_small and not self.batch_dims else None
        if view is not None and known:
            arrays = rounds_of_arrays(self, view.learner, context, reward, noise_scale, is_one, name)
            self._learn_on_arrays(view, arrays, known)
            return
        self._learn_tensors(name, rounds, as_indices("action", action, context.device))

    def _learn_on_arrays(self, view: NumpyView, rounds: list[tuple[Any, ...]], actions: list[int]) -> None:
        """Learn from rounds in order, all or nothing."""
        chosen = [(x, k, *rest) for (x, *rest), k in zip(rounds, actions, strict=True)]
        self._run(view, view.learner._learn_round, chosen)

    def _placed(self, action: Any) -> Any:
        """Return the places of actions: see :class:`WithArmIds`."""
        return action

    def _to_score(self, context: Tensor, mask: Tensor | None) -> Tensor:
        """Return what :meth:`_scores` gets where some arms are unavailable."""
        return context.detach()

    def _arms_of(self, context: Tensor) -> int:
        """Return K, the number of arms of a decision."""
        return context.size(-2)

    def _is_on_arrays(self) -> bool:
        """Return whether NumPy can compute the scores: a user's subclass may call torch."""
        policy: Any = self._modules["policy"]
        return type(policy).forward in ON_ARRAYS and "forward" not in policy.__dict__

    def _checked(self, context: Any, mask: Any) -> tuple[Tensor, Tensor | None]:
        """Return the context of decisions and the mask as tensors, or raise."""
        context = check_tensor(self.context_name, context, self._state())
        dims, shape = self.batch_dims, context.shape
        is_short = len(shape) < dims + self.item_dims
        if is_short or shape[-1] != self.dim or (dims and shape[:dims] != self.batch_shape):
            wanted = shape_text((*self.batch_shape, "...", *("K",) * (self.item_dims - 1), self.dim))
            raise ValueError(f"{self.context_name}: expected shape {wanted}, got {shape_text(shape)}")
        arms = self._arms_of(context)
        if arms == 0:
            raise ValueError(f"{self.context_name}: expected at least one arm, got shape {shape_text(shape)}")
        if mask is not None:
            sizes = (*shape[: len(shape) - self.item_dims], arms)
            mask = check_mask("mask", mask, sizes, context, self.validate)
        return context, mask

    def _check_features(self, name: str, x: Tensor) -> None:
        if self.validate:
            check_values(name, x)


def as_policy(name: str, value: Any) -> Policy:
    """Return a policy, or UCB over an estimator; or raise."""
    if isinstance(value, Estimator) and not value.output_shape:
        return UCB(value)
    if not isinstance(value, Policy):
        wanted = f"expected a Policy or an Estimator{suggestion(value)}"
        raise TypeError(f"{name}: {wanted}, got {type(value).__name__}")
    return value


def learner_of(policy: Policy | ComposedPolicy) -> Learner:
    """Return the learner whose ``dim`` and ``batch_shape`` a policy's decisions have."""
    return policy if isinstance(policy, ComposedPolicy) else policy.estimator
