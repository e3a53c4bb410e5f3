"""Base of the policies that combine a rule of choice with a scaler."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchonline.core.backend import may_hold
from torchonline.core.checks import check_values, passes
from torchonline.core.learner import Learner
from torchonline.core.ops import along, beside_each_other, count_, number, real, where
from torchonline.policies.early_rounds import KEPT, EarlyRounds
from torchonline.policies.policy_learner import PolicyLearner
from torchonline.policies.rules import Rule
from torchonline.policies.scaler import WINDOW, StandardScaler, check_scaler
from torchonline.regression.block_learner import BlockLearner
from torchonline.regression.blocks import learns_at_once, rows_of_block
from torchonline.regression.estimator import Estimator


class ComposedPolicy(PolicyLearner, BlockLearner):
    """Base of the policies that combine a rule of choice with an optional scaler.

    The scaler, the estimator and the count of rounds change together or not at all. By default the rule scores each arm's own
    features. A subclass with another transform overrides :meth:`_features`.

    Shape:
        - ``rounds``, ``(*B)``: rounds learnt from. The other buffers belong to the parts, ``policy.estimator`` and ``scaler``.
    """

    if TYPE_CHECKING:
        scaler: StandardScaler | None
        early: EarlyRounds | None

    rounds: Tensor
    can_open = True

    def __init__(self, policy: Rule, scaler: StandardScaler | None, batch_shape: tuple[int, ...], dim: int) -> None:
        super().__init__(policy, batch_shape, dim)
        estimator, state = policy.estimator, policy.estimator.theta_hat
        check_scaler(scaler, estimator.dim, batch_shape, state)
        self.scaler = scaler
        # Guarantees after a freeze, and epochs, need fixed coordinates.
        is_endless = (scaler is None or scaler.freeze_after is None) and estimator.restart_every is None
        options: Any = {"dtype": state.dtype, "device": state.device, "validate": estimator.validate}
        can_renew = scaler is not None and is_endless and estimator.can_replace
        self.early = EarlyRounds(dim, estimator.dim, batch_shape=batch_shape, **options) if can_renew else None
        # Whether `learn` learns many rounds at once while the features are fixed.
        are_rounds = self._blocks_are_rounds() and not self.has_own_step
        self.has_blocks = estimator.has_blocks and are_rounds
        # Whether `learn` learns rounds of all arms at once, also while the scaler moves.
        self.has_pooled_blocks = is_endless and estimator.has_pooled_blocks and are_rounds and not batch_shape
        # Whether residuals are clipped, which makes blocks differ from rounds in order.
        self.clips = estimator.rounds_before_blocks > 0
        # Early rounds are renewed in order. TorchScript does not see a module's constants.
        self.first_block = max(0 if self.early is None else 2 * KEPT, estimator.rounds_before_blocks)
        self.scaler_window = 1 if scaler is None else WINDOW
        # Whether features are finite, which suffices for the estimator, if the row is: those of a scaler are clipped.
        takes_all = type(estimator)._accepts_features is Estimator._accepts_features
        is_plain = type(self)._features is ComposedPolicy._features
        self.has_bounded_features = scaler is not None and scaler.clip < 1e6 and takes_all and is_plain
        # Multiplications of a decision for each entry of its context.
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

    def _features(self, x: Tensor) -> Tensor:
        """Return the rule's features: ``(*B, ..., d)`` to ``(*B, ..., m)``."""
        return x if self.scaler is None else self.scaler._scaled(x)

    def _scores(self, features: Tensor) -> Tensor:
        return self.policy._scores(features)

    def _clock(self) -> Tensor:
        return self.rounds

    def _accepts(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        estimator = self.policy.estimator
        if self.has_bounded_features:
            return passes(x).all(-1) & estimator._accepts_payoffs(reward, noise_scale)
        return passes(x).all(-1) & estimator._accepts(self._features(x), reward, noise_scale)

    def _learn_rounds(
        self,
        x: Tensor,
        place: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None,
        block_size: int | None,
        mask: Tensor | None,
    ) -> None:
        self._learn_log(self.policy.estimator.theta_hat, x, place, reward, noise_scale, mask, block_size)

    def _rows_of_next_part(self, done: int, block_size: int | None, mask: Tensor | None) -> int:
        if mask is None and self._may_pool():
            return self._rows_of_pooled_block(block_size)
        moving = self._rounds_until_freeze()
        if moving > 0:
            return min(moving, 8192)
        return self.policy.estimator._rows_of_next_part(done, block_size, mask)

    def _rows_of_pooled_block(self, block_size: int | None) -> int:
        """Return how many rounds of all arms to learn next, in order or at once."""
        rounds = int(self.rounds)
        before = self._rounds_before_blocks(rounds)
        if before > 0:
            return before
        size = rows_of_block(rounds, self.dim) if self.clips else 8192
        if block_size is not None:
            size = block_size
        return max(size // self.scaler_window, 1) * self.scaler_window

    def _rounds_before_blocks(self, rounds: int) -> int:
        """Return how many rounds to learn in order first.

        They are the first ones, and those to the end of the scaler's window.
        """
        scaler = self.scaler
        rows = rounds if scaler is None else int(scaler.rounds)
        few = self.first_block - min(rounds, rows)
        return few if few > 0 else -rows % self.scaler_window

    def _may_pool(self) -> bool:
        """Return whether rounds of all arms may be learnt at once."""
        return self.has_pooled_blocks and self.policy.estimator._can_ask(self.rounds)

    def _learn_part(
        self,
        x: Tensor,
        action: Tensor | None,
        reward: Tensor,
        noise_scale: Tensor,
        mask: Tensor | None,
        block_size: int | None,
    ) -> None:
        rows, done = self.batch_dims, 0
        if self._learns_blocks_now() and not self._is_in_order(x.size(rows), block_size):
            self._learn_at_once(x, action, reward, noise_scale, mask, block_size)
        else:
            if mask is None and self._is_pooled_block(x.size(rows)):
                done = self._learn_pooled(x, action, reward, noise_scale)
            for i in range(done, x.size(rows)):
                pay = reward.select(rows, i)
                # A policy that learns from the chosen row alone has no use for the place.
                place = pay if action is None else action.select(rows, i)
                self._learn_round(x.select(rows, i), place, pay, noise_scale.select(rows, i))

    def _is_in_order(self, rows: int, block_size: int | None) -> bool:
        return not (self._learns_blocks_now() or self._is_pooled_block(rows))

    def _is_pooled_block(self, rows: int) -> bool:
        """Return whether the next rounds, of all arms, are learnt at once."""
        if rows < self.scaler_window or not self._may_pool():
            return False
        rounds, estimator = int(self.rounds), self.policy.estimator
        # With few rounds for each arm, its Cholesky factor takes more time than rounds in order.
        is_worth_it = 8 * rows >= estimator.dim * estimator.rounds.numel()
        return is_worth_it and self._rounds_before_blocks(rounds) == 0

    def _learn_pooled(self, x: Tensor, action: Tensor | None, reward: Tensor, noise_scale: Tensor) -> int:
        """Learn rounds of all arms at once; return how many were learnt.

        With a scaler, these are whole windows.
        """
        scaler, features, done = self.scaler, [self._features(x[:0])], 0
        if scaler is None:
            features, done = [self._features(x)], x.size(0)
        else:
            end = x.size(0) // self.scaler_window * self.scaler_window
            while done < end:
                # So many rows stay in the processor's cache.
                part = scaler._observe_windows_(x[done : min(done + 32 * self.scaler_window, end)])
                features.append(part)
                done += part.size(0)
        if done > 0:
            rows, place = torch.cat(features), torch.zeros_like(reward, dtype=torch.int64)
            # Without a model for each arm, the rows are those of the chosen arms, and there is one model.
            if action is not None and self.policy.estimator.theta_hat.dim() > 1:
                place = action
            self.policy.estimator._observe_arms_(rows, place[:done], reward[:done], noise_scale[:done])
            self.rounds.add_(done)
        return done

    def _learn_at_once(
        self,
        x: Tensor,
        action: Tensor | None,
        reward: Tensor,
        noise_scale: Tensor,
        mask: Tensor | None,
        block_size: int | None,
    ) -> None:
        """Learn n rounds of each learner at once, or only the rounds in a mask.

        The mask is ``(*B, n)``. The scaler must have frozen.
        """
        self.policy.estimator._learn_block(self._features(x), reward, noise_scale, mask)
        self._count_block_(self.policy.estimator._count_rows(x), mask)

    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        features = self._features(x)
        self.policy.estimator._learn_round(features, reward, noise_scale)
        # One estimator learns all arms, so the arm does not matter.
        self._end_round_(x, features, 0 * self.rounds, noise_scale)

    def _end_round_(self, x: Tensor, features: Tensor, arm: Tensor, noise_scale: Tensor) -> None:
        """Update the scaler with a round, count the round, and renew an early round.

        ``x`` is ``(*B, d)``. ``features``, ``(*B, m)``, are those the estimator has learnt from. The arm and the noise scale
        are ``(*B)``.
        """
        scaler, early, are_early = self.scaler, self.early, False
        if early is not None:
            are_early = may_hold(early.are_early(self.rounds))
            if are_early and may_hold(early.is_kept(self.rounds)):
                # On NumPy views, the learners of a batch may share one scale.
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
        """Move an early round to the scaler's coordinates where ``due``, ``(*B)``."""
        scaler, early = self.scaler, self.early
        if early is not None and scaler is not None:
            place = early.place(self.rounds)
            x, old, weight, target, arm = early.recall(place)
            new = along(weight, x) * scaler._scaled_again(x)
            factor = along(real(due, x), x)
            due_weight = number(real(due, x)) * weight
            is_safe = self._replace_(arm, factor * old, factor * new, target, due_weight)
            early.renew_(place, x, where(along(due & is_safe, old), new, old), weight, target, arm)

    def _replace_(self, arm: Tensor, old: Tensor, new: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Replace features in an arm's estimator: see :meth:`Estimator._replace_`."""
        return self.policy.estimator._replace_(old, new, target, weight)

    def _last_target(self) -> Tensor:
        """Return the target of the last round, ``(*B)``."""
        return number(self.policy.estimator.target)

    def _start_anew_(self, due: Tensor) -> None:
        """Reset the estimators where ``due``, ``(*B)``."""
        self.policy.estimator._forget_(due)

    def _learns_blocks_now(self) -> bool:
        """Return whether rounds can be learnt at once: features must be fixed."""
        return self.has_blocks and self._rounds_until_freeze() == 0

    def _rounds_until_freeze(self) -> int:
        """Return the number of rounds until the features are fixed.

        8192 stands for never, and for a number that the host cannot read.
        """
        scaler = self.scaler
        if scaler is None:
            return 0
        if scaler.freeze_after is None or not self.policy.estimator._can_ask(scaler.rounds):
            return 8192
        return max(scaler.freeze_after - int(scaler.rounds.min()), 0)

    def _count_block_(self, learnt: int, mask: Tensor | None) -> None:
        """Count rounds that were learnt at once, with fixed features.

        Each learner counts ``learnt`` rounds, over all workers, or the rounds in its mask, ``(*B, n)``.
        """
        rounds, scaler = self.rounds, self.scaler
        count = torch.zeros_like(rounds) + learnt if mask is None else mask.sum(-1)
        if scaler is not None:
            rows = scaler.rounds
            rows += count
        rounds += count

    # TorchScript does not compile the methods below.

    def _whole_windows(self, rows: int) -> int:
        # A block has whole windows of the scaler. The rest of a log is learnt in order.
        return (rows // self.scaler_window * self.scaler_window or rows) if self.has_pooled_blocks else rows

    def _open_round(self, x: Any, place: Any, noise_scale: Any) -> Any:
        """Open a decision of each learner, ``(*B, d)`` and ``(*B)`` twice.

        The record holds the raw features, and then that of the estimator: ``(*B, d + m + 2)``.
        """
        return beside_each_other(x, self._open_arm(self._features(x), place, noise_scale))

    def _drop_round(self, opened: Any, place: Any) -> None:
        self._drop_arm(opened[..., self.dim :], place)

    def _learn_opened(self, opened: Any, place: Any, reward: Any) -> None:
        """Learn the reward of a dropped decision, in today's features."""
        self._learn_round(opened[..., : self.dim], place, reward, number(opened[..., -2]))

    def _open_arm(self, features: Any, place: Any, noise_scale: Any) -> Any:
        return self.policy.estimator._open_round(features, place, noise_scale)

    def _drop_arm(self, opened: Any, place: Any) -> None:
        self.policy.estimator._drop_round(opened, place)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Checkpoints of version 0.1 learn in order while their scaler moves.
        later = {
            "has_bounded_features": False,
            "has_pooled_blocks": False,
            "clips": False,
            "first_block": 0,
            "scaler_window": WINDOW,
        }
        super().__setstate__(later | state)

    def _why_not_open(self) -> str | None:
        if self.scaler is not None and self.scaler.freeze_after is not None:
            why = "because the arms start anew when the scaler freezes"
            return f"freeze_after: expected None, {why}, got {self.scaler.freeze_after}"
        return super()._why_not_open()

    def _learn_block(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor) -> None:
        self._learn_at_once(x, place, reward, noise_scale, mask, x.size(-2))

    def _blocks_are_rounds(self) -> bool:
        return learns_at_once(type(self), "_learn_at_once", ("_learn_round",))

    def _to_score(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.policy._to_score(x, mask)

    def estimator_of_blocks(self) -> Any:
        """Return the estimator that learns the blocks. Python only."""
        return self.policy.estimator

    def _why_no_sums(self) -> str | None:
        why = super()._why_no_sums()
        return why or (None if self._learns_blocks_now() else "whose features move")

    def _means(self, x: Tensor) -> Tensor:
        return self.policy._means(self._features(x))

    def _bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy._bounds(self._features(x))

    def _check_features(self, name: str, x: Tensor) -> None:
        if self.validate:
            check_values(name, x)
