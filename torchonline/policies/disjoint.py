"""Disjoint arms: one model for each arm."""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchonline.core.action_names import number_and_names
from torchonline.core.all_or_nothing import SNAPSHOT_BYTES, all_or_nothing, copied
from torchonline.core.backend import in_python, is_readable, may_hold, on_arrays
from torchonline.core.checks import positive_integer
from torchonline.core.compiled import LEFT, REVIEW, with_core
from torchonline.core.inputs import ArrayLike
from torchonline.core.messages import listed
from torchonline.core.ops import assign_, column, in_type_of, number, of_chosen
from torchonline.core.options import is_ours, rebuilt
from torchonline.core.undo_journal import copies_of, restore_
from torchonline.core.views import NumpyView, with_attributes
from torchonline.policies.arm_ids import WithArmIds
from torchonline.policies.arm_priors import prior_state
from torchonline.policies.compiled_arms import add_core
from torchonline.policies.composed import ComposedPolicy
from torchonline.policies.policy import in_turn
from torchonline.policies.rules import Rule, as_rule
from torchonline.policies.scaler import StandardScaler
from torchonline.policies.sparse_inputs import rule_over
from torchonline.regression.blocks import learns_at_once
from torchonline.regression.estimator import Estimator
from torchonline.regression.sparse_rows import in_columns, stand_in

# Larger batches of learners learn on tensors in less time.
MOST_ALONE = 16


@with_core
class DisjointArms(WithArmIds, ComposedPolicy):
    r"""Disjoint arms: one context, and a separate estimator for each arm.

    A round::

        k = arms.select(context)  # the id of an arm
        arms.step(context, k, reward)

    The K estimators are a batch, ``policy.estimator``, whose ``batch_shape`` ends with K. The policy scores each arm by the arm's
    own estimator, and only the chosen arm's estimator learns.

    Each arm has a permanent id: the first K arms have 0 to K - 1, and :meth:`add_actions` returns the ids of new arms.
    ``select`` returns ids, and ``step`` takes them and refuses rewards of removed arms. Scores, means, probabilities and masks
    have an entry for each arm, in the order of :attr:`action_ids`. Until an arm is removed, an arm's id is its position in that
    order.

    Guarantee, for an estimator whose confidence set holds in all rounds at once. Each arm's estimator gets ``delta`` /
    ``most_actions``, and its set holds under any rule of choice. So with probability at least 1 - ``delta``, the sets of all
    arms hold at once in all rounds, if each arm meets the estimator's conditions and at most ``most_actions`` arms ever exist.
    With N arms ever, the probability is at least 1 - ``delta`` N / ``most_actions`` (proof: docs/disjoint_arms_theory.md). The
    radius depends on the m features of one arm, not on K m. While a ``scaler`` moves, the sets are a heuristic, see
    :class:`StandardScaler`. With the scaler's ``freeze_after``, all arms restart when it freezes. Without it, the first 32
    rounds of :class:`AdaptiveRidgeRegression` and :class:`RobustRidgeRegression` are converted to the scaler's new coordinates
    until round 63 (docs/disjoint_arms.md).

    Cost: O(K m^2) for a decision, O(m^2) for a step, K times the memory of one estimator.

    Args:
        policy: the rule of choice over one arm's estimator of m features; or that estimator, for :class:`UCB`. It serves as a
            template: every arm gets a new estimator with the same options.
        actions: K, the number of arms at first, or their names.
        most_actions: number of arms that share ``delta``; None for ``actions``. Give a larger number if arms will be added.
        scaler: a :class:`StandardScaler` of the context with m outputs, shared by the arms; None to use the contexts as
            features.

    Shape:
        - context: ``(*B, ..., d)``, with d = m if there is no scaler; scores ``(*B, ..., K)``.
        - :meth:`step`: context ``(*B, d)``, action and reward ``(*B)``; or ``(*B, n, d)`` and ``(*B, n)`` for n rounds.
        - After a removal, ``ids``, ``(K)``, and ``ids_given``, ``()``: the ids, and the next id. A load replaces them.
        - With names, ``name_bytes``, uint8: the names by id, as JSON. A load replaces them if the state has names.

    Example:
        >>> arms = DisjointArms(RidgeRegression(2), actions=3)
        >>> arms.step(torch.eye(2), torch.tensor([0, 1]), torch.tensor([0.0, 1.0]))
        >>> arms.policy.estimator.rounds
        tensor([1, 1, 0])
        >>> arms = DisjointArms(RidgeRegression(2), actions=["home", "sale"])
        >>> arms.step(torch.eye(2), ["sale", "sale"], [0.0, 1.0])
        >>> arms.policy.estimator.rounds, arms.select_name(torch.eye(2))
        (tensor([0, 2]), ['home', 'sale'])
    """

    item_dims, has_arm_inputs, has_batch_views, can_open = 1, False, False, True
    # Whether one confidence set covers all arms, so that `delta` is not divided.
    has_joint_set = False
    # The policy's own buffers with a row for each arm.
    of_arms: tuple[str, ...] = ()
    copied: list[str]
    pooled: list[str]
    gathered: list[tuple[Tensor, dict[str, Tensor]]]
    is_noting: bool

    def __init__(
        self,
        policy: Rule | Estimator,
        actions: int | Sequence[str],
        *,
        most_actions: int | None = None,
        scaler: StandardScaler | None = None,
    ) -> None:
        pattern = as_rule("policy", policy)
        one, (count, names) = pattern.estimator, number_and_names("actions", actions)
        most = count if most_actions is None else positive_integer("most_actions", most_actions)
        if most < count:
            raise ValueError(f"most_actions: expected at least actions = {count}, got {most}")
        options: dict[str, Any] = {"dtype": one.theta_hat.dtype, "device": one.theta_hat.device}
        options["validate"] = one.validate
        delta: Any = getattr(one, "delta", None)
        if self.has_joint_set:
            most = 1
        if delta is not None:
            options["delta"] = delta / most
        one = rebuilt(one, **options)
        batch = rebuilt(one, batch_shape=(*one.batch_shape, count))
        dim = scaler.dim if isinstance(scaler, StandardScaler) else one.dim
        super().__init__(with_estimator(pattern, batch), scaler, one.batch_shape, dim)
        self.most_actions = most
        # What all arms share.
        self.delta: float | None = delta
        # Holds the chosen arm's statistics while it learns, except on NumPy views. Not part of the state.
        self.arm = one
        one._non_persistent_buffers_set.update(one._buffers)
        self.undetermined = tuple(f"arm.{name}" for name in one._buffers)
        self.copied = [name for name in one._buffers if name not in one.unchanging]
        self.pooled = list(batch.pooled)
        # TorchScript does not see class attributes.
        self.takes_one_row = batch.takes_one_row
        # Whether the learners of a batch learn one after another, on NumPy views.
        self.learns_alone = 1 <= math.prod(one.batch_shape) <= MOST_ALONE
        self._create_buffers()
        self._create_ids(names)

    # TorchScript does not compile properties.
    __jit_unused_properties__ = ("actions", "action_ids", "action_names", "ids_so_far")

    @property
    def actions(self) -> int:
        """The number of arms now. Python only."""
        return int(self._owners()[1].batch_shape[-1])

    def _template(self) -> Rule:
        arm, like = self.arm, self._like()
        options: dict[str, Any] = {"dtype": like.dtype, "device": like.device, "validate": arm.validate}
        if hasattr(arm, "delta"):  # checkpoints of version 0.1 hold only an arm's share
            options["delta"] = self.__dict__.get("delta", arm.delta * self.most_actions)
        return with_estimator(self.policy, rebuilt(arm, **options))

    def _params(self) -> dict[str, Any]:
        most = self.most_actions if self.most_actions > self.actions else None
        return super()._params() | {"actions": self.action_names or self.actions, "most_actions": most}

    def extra_repr(self) -> str:
        """Return the sizes, and why the policy was recommended."""
        names = self.action_names
        named = "" if names is None else f" ({listed(names)})"
        return f"actions={self.actions}{named}, {super().extra_repr()}"

    @in_turn
    def add_actions(
        self, actions: int | Sequence[str] = 1, *, prior: ArrayLike | str | None = None, rounds: float | None = None
    ) -> list[int]:
        r"""Add arms at the end, and return their ids.

        The other arms keep what they have learnt. The new ones are untrained, or start from a prior that counts for ``rounds``
        rounds, s:

        - ``"pooled"``: as if the arm had learnt all rounds of the others, each with the weight s / n, where n is their number.
          That is, :math:`V = \lambda I + \frac sn\sum_k(V_k - \lambda I)`, and :math:`V\hat\theta` is the sum of
          :math:`\frac sn V_k\hat\theta_k`.
        - a parameter :math:`\theta_0`: the estimate is :math:`\theta_0`, with :math:`V = (\lambda + s)I`, as after s rounds of
          features with variance 1.

        A prior does not count as a round of the arm, and a restart forgets it. Guarantee, of :class:`RidgeRegression`, for the
        estimate :math:`\theta_0` and the matrix :math:`V_0` of the prior: the arm's set holds as without a prior, if
        :math:`\|\theta^* - \theta_0\|_{V_0} \le \sqrt\lambda` ``theta_bound`` (proof: docs/disjoint_arms_theory.md). Data cannot
        tell whether this holds, so treat the set as a heuristic.

        Args:
            actions: number of new arms; or their names, if the other arms have names. A name is never given twice, not even
                after a removal.
            prior: "pooled", a parameter ``(m)`` for all new arms, or None. Needs :class:`RidgeRegression`; "pooled" also takes
                :class:`AdaptiveRidgeRegression` and :class:`RobustRidgeRegression`, as in :func:`torchonline.bandit`.
            rounds: above 0, the number of rounds that the prior counts for; None without a prior.

        Raises:
            TypeError, ValueError: an argument is invalid. Nothing has changed.

        Example:
            >>> arms = DisjointArms(RidgeRegression(1), actions=["home", "sale"])
            >>> arms.add_actions(["promo"]), arms.action_names
            ([2], ['home', 'sale', 'promo'])
            >>> arms.learn([[1.0], [1.0]], ["home", "sale"], [1.0, 0.5])
            >>> arms.add_actions(["news"], prior="pooled", rounds=4)
            [3]
            >>> arms.predict([1.0])
            tensor([0.5000, 0.2500, 0.0000, 0.6000], dtype=torch.float64)
        """
        added, names = self._added("actions", actions)
        with torch.no_grad():
            start = prior_state(self.policy.estimator, prior, rounds)
        return self._append(added, names, {}, start)

    def _append(
        self, added: int, names: list[str] | None, of_arms: dict[str, Tensor], start: dict[str, Tensor]
    ) -> list[int]:
        """Add arms, and return their ids.

        ``of_arms`` holds their rows of the buffers in :attr:`of_arms`, and ``start``, ``(*B, 1, ...)``, the statistics that are
        not those of an untrained arm.
        """
        first, count, dims = self.ids_so_far, self.actions, self.batch_dims
        with torch.inference_mode(False), torch.no_grad():
            rooms = self._rooms_for(added)
            buffers = {name: room.narrow(dims, 0, count + added) for name, room in rooms.items()}
            for name, value in start.items():
                buffers[name].narrow(dims, count, added).copy_(value)
            own: dict[str, Any] = {name: torch.cat([self.get_buffer(name), rows]) for name, rows in of_arms.items()}
            self._take_over(buffers, own | self._ids_after(range(count), added, names), {}, rooms)
        return list(range(first, first + added))

    @in_turn
    def remove_actions(self, actions: Iterable[int] | Iterable[str]) -> None:
        """Remove arms. The other arms keep their ids and what they have learnt.

        Scores and masks lose the entries of removed arms. :meth:`step` refuses a late reward of a removed arm.

        Args:
            actions: ids or names of the arms to remove, without repetition and not all of them. ``arms.action_ids[k]`` is the id
                of the arm whose score is the k-th.

        Raises:
            TypeError, ValueError: ``actions`` is invalid. Nothing has changed.

        Example:
            >>> arms = DisjointArms(RidgeRegression(1), actions=3)
            >>> arms.remove_actions([0])
            >>> arms.add_actions(), arms.action_ids
            ([3], [1, 2, 3])
            >>> arms.step([1.0], 2, 0.5)
            >>> arms.step([1.0], 0, 0.5)
            Traceback (most recent call last):
            ValueError: action: expected the id of an arm, one of 1, 2, 3, got 0, which was removed
        """
        kept, batch = self._staying("actions", actions), self.policy.estimator
        with torch.inference_mode(False), torch.no_grad():
            index = torch.tensor(kept, device=batch.theta_hat.device)
            buffers = {name: buffer.index_select(self.batch_dims, index) for name, buffer in batch.state().items()}
            own: dict[str, Any] = {name: self.get_buffer(name).index_select(0, index) for name in self.of_arms}
            early = {} if self.early is None else {"early": self.early.with_arms(kept)}
            self._take_over(buffers, own | self._ids_after(kept, 0), early, {})

    def _rows_of_next_part(self, done: int, block_size: int | None, mask: Tensor | None) -> int:
        if mask is None and self._may_pool():
            return self._rows_of_pooled_block(block_size)
        moving = self._rounds_until_freeze()
        if moving > 0:
            return min(moving, 8192)
        if block_size is not None:
            return max(block_size, 1)
        if self._can_count():
            return 8192
        # One arm may have all the rounds, and every arm gets as much memory.
        return self.policy.estimator._rows_at_once()

    def _is_in_order(self, rows: int, block_size: int | None) -> bool:
        # With fewer than d / 8 rounds for each arm, blocks take more time than rounds in order.
        rounds = self.policy.estimator.rounds
        is_short = block_size is None and 8 * rows < self.policy.estimator.dim * rounds.size(-1)
        return not self._is_pooled_block(rows) and (is_short or not self._learns_blocks_now())

    def _learn_at_once(
        self,
        x: Tensor,
        action: Tensor | None,
        reward: Tensor,
        noise_scale: Tensor,
        mask: Tensor | None,
        block_size: int | None,
    ) -> None:
        if action is None:  # TorchScript needs this to rule out None
            raise TypeError("action: expected integers, got None")
        features = self._features(x)
        if mask is None and self._can_count():
            self._learn_by_counts(features, action, reward, noise_scale, block_size)
        else:
            self._learn_beside(features, action, reward, noise_scale, mask, block_size)
        self._count_block_(self.policy.estimator._count_rows(x), mask)

    def _can_count_in_python(self) -> bool:
        batch = self.policy.estimator
        is_known = is_readable(batch.rounds) and batch.rounds.is_cpu
        return not self.batch_dims and is_known and batch.__dict__.get("_workers") is None

    @in_python(_can_count_in_python)
    def _can_count(self) -> bool:
        """Return whether the host knows how many rounds each arm has."""
        return self.batch_dims == 0

    def _learn_by_counts(
        self, x: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor, block_size: int | None
    ) -> None:
        """Learn the arms with many rounds one by one, and the other arms together.

        Learning together costs time for every arm, and memory for the longest block.
        """
        batch, arm = self.policy.estimator, self.arm
        arms, n = batch.rounds.size(0), action.size(0)
        counts = torch.bincount(action, minlength=arms)
        has_few = (counts > 0) & (counts * arms <= 4 * n)
        if 4 * int(has_few.sum()) < arms:
            has_few = torch.zeros_like(has_few)
        order, first = action.argsort(stable=True), 0
        numbers: list[int] = counts.tolist()
        has_many: list[bool] = (~has_few).tolist()
        for k in range(arms):
            count, done = numbers[k], 0
            if count > 0 and has_many[k]:
                index = self._copy_chosen_(action[order[first]])
                while done < count:
                    size = count if block_size is not None else arm._rows_of_next_part(done, None, None)
                    size = min(arm._at_most_an_epoch(size), count - done)
                    rows = order.narrow(0, first + done, size)
                    arm._learn_block(x[rows], reward[rows], noise_scale[rows], None)
                    done += size
                self.policy.estimator._write_chosen_(index, arm._statistics(self.copied), self.pooled)
            first += count
        rows = torch.nonzero(has_few[action]).squeeze(-1)
        if rows.size(0) == n:  # in the usual case, without copies
            self._learn_beside(x, action, reward, noise_scale, None, block_size)
        elif rows.size(0) > 0:
            self._learn_beside(x[rows], action[rows], reward[rows], noise_scale[rows], None, block_size)

    def _learn_beside(
        self,
        x: Tensor,
        action: Tensor,
        reward: Tensor,
        noise_scale: Tensor,
        mask: Tensor | None,
        block_size: int | None,
    ) -> None:
        """Learn all arms together, each in blocks of its own rounds."""
        batch = self.policy.estimator
        x, rewards, scales, taken = self._by_arm(x, action, reward, noise_scale, mask)
        if block_size is None:
            batch._learn_own_blocks(x, rewards, scales, taken)
            return
        done, most, is_first = 0, x.size(-2), True
        while done < most or is_first:  # once even without rounds, for the sums of other workers
            size, is_first = min(batch._at_most_an_epoch(most), most - done), False
            batch._learn_block(
                x.narrow(-2, done, size),
                rewards.narrow(-1, done, size),
                scales.narrow(-1, done, size),
                taken.narrow(-1, done, size),
            )
            done += size

    def _by_arm(
        self, x: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Group rounds by arm, keeping their order.

        Features ``(*B, n, m)`` become ``(*B, K, most, m)``; rewards and noise scales likewise. ``most`` is the largest number
        of rounds of an arm. The last result is True where there is a round; with a mask, where the round is in the mask.
        """
        batch, n = self.policy.estimator, x.size(-2)
        sizes, arms = list(batch.rounds.shape), batch.rounds.numel()
        place = action.reshape(arms // sizes[-1], n)
        learner = torch.arange(place.size(0), device=place.device).unsqueeze(-1)
        arm = (place + sizes[-1] * learner).reshape(-1)
        order = arm.argsort(stable=True)
        arm = arm[order]
        count = torch.zeros(arms, dtype=arm.dtype, device=arm.device).scatter_add(0, arm, torch.ones_like(arm))
        most = int(count.max()) if batch._can_ask(count) else n
        slot = most * arm + torch.arange(arm.size(0), device=arm.device) - (count.cumsum(0) - count)[arm]
        room = x.new_zeros(arms * most)
        rows = x.new_zeros((arms * most, x.size(-1))).index_copy_(0, slot, x.flatten(0, -2)[order])
        rewards = room.index_copy(0, slot, reward.reshape(-1)[order])
        scales = (room + 1.0).index_copy(0, slot, noise_scale.reshape(-1)[order])
        taken = torch.arange(most, device=arm.device) < count.unsqueeze(-1)
        if mask is not None:
            taken = torch.zeros_like(room, dtype=torch.bool).index_copy(0, slot, mask.reshape(-1)[order])
        sizes = sizes + [most]
        return rows.reshape(sizes + [x.size(-1)]), rewards.reshape(sizes), scales.reshape(sizes), taken.reshape(sizes)

    def _scores_of_arms_in_python(self, features: Any) -> Any:
        rule: Any = self.__dict__.get("rule_of_scores", self.policy)
        rows = for_each_arm(features, self.batch_dims, self.policy.estimator.rounds.shape[-1], self.takes_one_row)
        return arms_last(rule._scores(rows), self.batch_dims)

    @in_python(_scores_of_arms_in_python)
    def _scores(self, features: Tensor) -> Tensor:
        arms = self.policy.estimator.rounds.shape[-1]
        rows = for_each_arm(features, self.batch_dims, arms, self.takes_one_row)
        return arms_last(self.policy._scores(rows), self.batch_dims)

    def _count(self, inputs: Tensor) -> int:
        return self.policy.estimator.rounds.shape[-1]

    def _as_round(self, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        return x, self._named(place)

    def _chosen(self, inputs: Tensor, place: Tensor) -> Tensor:
        return in_type_of(inputs, self.policy.estimator.theta_hat)

    def _learn_round_in_python(self, x: Any, place: Any, reward: Any, noise_scale: Any) -> None:
        core = self.__dict__.get("_core")  # on NumPy views alone
        done = LEFT if core is None else core.learn(x, place, reward, noise_scale)
        if done == LEFT:
            self._learn_in_full(x, place, reward, noise_scale)
        elif done == REVIEW:
            self.scaler._review_(True)  # type: ignore[union-attr, arg-type]

    @in_python(_learn_round_in_python)
    def _learn_round(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._learn_in_full(x, place, reward, noise_scale)

    def _learn_in_full(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        features = self._features(x)
        self._learn_arm(features, place, reward, noise_scale)
        self._end_round_(x, features, place, noise_scale)

    def _learn_arm_in_python(self, x: Any, action: Any, reward: Any, noise_scale: Any) -> None:
        if not self.is_view:
            self._learn_gathered(x, action, reward, noise_scale)
            return
        arm = self.__dict__["of_arm"][action]
        self.__dict__["arm"] = arm.learner
        self._learn_chosen_(x, action, reward, noise_scale)
        for buffer, own in arm.pooled:
            buffer[...] = own

    @in_python(_learn_arm_in_python)
    def _learn_arm(self, x: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Update the chosen arms' estimators: ``(*B, m)``, ``(*B)`` three times."""
        self._learn_gathered(x, action, reward, noise_scale)

    def _learn_gathered(self, x: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Update copies of the chosen arms' statistics, and write them back."""
        index = self._copy_chosen_(action)
        self._learn_chosen_(x, action, reward, noise_scale)
        self.policy.estimator._write_chosen_(index, self.arm._statistics(self.copied), self.pooled)

    def _learn_chosen_(self, x: Tensor, place: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        """Learn a round of the chosen arms in ``arm``."""
        self.arm._learn_round(x, reward, noise_scale)

    def _copy_chosen_(self, action: Tensor) -> Tensor:
        """Copy the chosen arms' statistics out of the batch, and return their indices."""
        batch = self.policy.estimator
        index = action.reshape(-1)
        if self.batch_dims > 0:
            index = index + batch.rounds.shape[-1] * torch.arange(index.size(0), device=index.device)
        statistics = self.arm._statistics(self.copied)
        before: dict[str, Tensor] = {}
        for name, chosen in batch._of_chosen(index, self.copied).items():
            before[name] = chosen.reshape(statistics[name].shape)
            assign_(statistics[name], before[name])
        self._remember(index, before)
        return index

    def _remember_in_python(self, index: Tensor, before: dict[str, Tensor]) -> None:
        if (gathered := self.__dict__.get("gathered")) is not None:
            gathered.append((index, before))

    @in_python(_remember_in_python)
    def _remember(self, index: Tensor, before: dict[str, Tensor]) -> None:
        """Record the statistics that an interrupted or refused step must restore."""
        if hasattr(self, "gathered"):
            if self.is_noting:
                self.gathered.append((index, before))

    def _replace_in_python(self, arm: Any, old: Any, new: Any, target: Any, weight: Any) -> Any:
        if not self.is_view:
            return self._replace_gathered(arm, old, new, target, weight)
        return self.__dict__["of_arm"][int(arm)].learner._replace_(old, new, target, weight)

    @in_python(_replace_in_python)
    def _replace_(self, arm: Tensor, old: Tensor, new: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return self._replace_gathered(arm, old, new, target, weight)

    def _replace_gathered(self, arm: Tensor, old: Tensor, new: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        index = self._copy_chosen_(arm.to(torch.int64))
        is_safe = self.arm._replace_(old, new, target, weight)
        self.policy.estimator._write_chosen_(index, self.arm._statistics(self.copied), self.pooled)
        return is_safe

    def _last_target(self) -> Tensor:
        target: Tensor = self.policy.estimator.target  # type: ignore[assignment]
        return number(target[..., 0])

    def _start_anew_(self, due: Tensor) -> None:
        self.policy.estimator._forget_(column(due))

    # TorchScript does not compile the methods below.

    def _open_arm(self, features: Any, place: Any, noise_scale: Any) -> Any:
        return self._call_arm("_open_round", place, features, place, noise_scale)

    def _drop_arm(self, opened: Any, place: Any) -> None:
        self._call_arm("_drop_round", place, opened, place)

    def _call_arm(self, method: str, place: Any, *arguments: Any) -> Any:
        """Call a method of the chosen arms' estimator that writes no pooled statistics."""
        if self.is_view:
            return getattr(self.__dict__["of_arm"][place].learner, method)(*arguments)
        index = self._copy_chosen_(place)
        found = getattr(self.arm, method)(*arguments)
        self.policy.estimator._write_chosen_(index, self.arm._statistics(self.copied), self.pooled)
        return found

    def _rows_of_shared_block(self, done: int, block_size: int | None) -> int:
        # Each arm gets a part of the block.
        most, numbers = self._rows_of_next_part(done, None, None), self.estimator.dim * self.actions
        return block_size or min(max(numbers, int(self.rounds.min()) // 8), most)

    def _why_no_sums(self) -> str | None:
        restarts = self.estimator.restart_every is not None
        return super()._why_no_sums() or ("whose arms restart at different rounds" if restarts else None)

    def _in_columns(self, columns: Tensor) -> Any:
        """Return a stand-in with some columns of the features. Python only."""
        batch, rule = self.policy.estimator, self.policy
        modules = {"policy": rule_over(rule, in_columns(batch, columns)), "arm": in_columns(self.arm, columns)}
        twin = stand_in(self, len(columns), _modules=self._modules | modules)
        twin.__dict__["multiplications"] = len(columns) * self.actions
        return twin

    def _known_of_chosen(self, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low, high = self._bounds(x)
        return of_chosen(self._means(x), place), of_chosen(low, place), of_chosen(high, place)

    def _plain_row(self, rows: Any, k: int) -> Any:
        is_arm = self._buffers["ids"] is None and k < self._owners()[1].batch_shape[-1]
        return rows if is_arm else None

    def _means(self, x: Tensor) -> Tensor:
        return arms_last(self.policy._means(self._rows(x)), self.batch_dims)

    def _bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low, high = self.policy._bounds(self._rows(x))
        return arms_last(low, self.batch_dims), arms_last(high, self.batch_dims)

    def _rows(self, context: Tensor) -> Tensor:
        """Return the features of a context for each arm."""
        return for_each_arm(self._features(context), self.batch_dims, self.actions, self.takes_one_row)

    def _blocks_are_rounds(self) -> bool:
        return learns_at_once(type(self), "_learn_at_once", ("_learn_round", "_learn_arm", "_learn_chosen_"))

    def scratch(self) -> list[Tensor]:
        return list(self.arm.state().values())

    def _complete(self, view: NumpyView) -> None:
        if self.batch_dims:
            if self.learns_alone:
                twins = [_alone(view.learner, self, index) for index in np.ndindex(self.batch_shape)]
                view.learner.__dict__["_learn_round"] = partial(_learn_alone, [twin._learn_round for twin in twins])
                if twins[0]._core is not None:
                    view.learner.__dict__["_score"] = partial(_scores_alone, twins, self.batch_dims)
            return
        view.learner.__dict__["of_arm"] = _ArmViews(view.learner, self)
        add_core(self, view.learner)
        if self.pooled:
            # For scores, what the arms share is one number, with which NumPy takes a third of the time.
            rule = view.learner.policy
            first = {name: rule.estimator.__dict__[name][0, ...] for name in self.pooled}
            rule = with_attributes(rule, estimator=with_attributes(rule.estimator, **first))
            view.learner.__dict__["rule_of_scores"] = rule

    def _run(self, view: NumpyView | None, learn: Callable[..., None], rounds: list[tuple[Any, ...]]) -> None:
        if view is not None and len(rounds) == 1 and not self.batch_dims:
            self._run_on_arrays(view, learn, rounds[0])
            return
        batch, state = self.policy.estimator, self.state()
        is_plain = (
            view is None and len(rounds) == 1 and all(map(is_readable, state.values())) and batch.theta_hat.is_cpu
        )
        if not is_plain or self._starts_anew_next():
            super()._run(view, learn, rounds)
            return
        # The step copies the chosen arms' statistics before it writes them. All other buffers are small.
        others = [buffer for name, buffer in state.items() if not name.startswith("policy.estimator.")]
        copies: list[Any] = copies_of(others)
        gathered: list[tuple[Tensor, dict[str, Tensor]]] = []

        def undo() -> None:
            restore_(others, copies)
            for index, before in reversed(gathered):
                batch._write_chosen_(index, before, self.pooled)

        try:
            self.__dict__["gathered"] = gathered
            all_or_nothing(self, undo, learn, *rounds[0])
        finally:
            self.__dict__.pop("gathered", None)

    def _run_on_arrays(self, view: NumpyView, learn: Callable[..., None], round: tuple[Any, ...]) -> None:
        """Learn one round on NumPy views, all or nothing. Its second argument is the arm."""
        early, k, of_arm = view.learner.early, round[1], view.learner.of_arm
        own, shared, size = of_arm[k].written
        if view.learner._starts_anew_next():
            own, size = view.state, 0
        elif early is not None and early.are_early(view.learner.rounds):
            *_, arm = early.recall(early.place(view.learner.rounds + 1))
            own, size = [*own, *of_arm[int(arm)].written[0], early.records], 0
        if size > SNAPSHOT_BYTES:
            entry = view.journal.entry(k, own)
            all_or_nothing(self, entry.undo, entry.learn, shared, learn, *round)
        else:
            if size == 0:
                view.journal.forget()
            all_or_nothing(self, copied([*shared, *own]), learn, *round)
        view.mark_written()

    def _starts_anew_next(self) -> bool:
        """Return whether the scaler freezes, and all arms restart, after the next round."""
        scaler = self.scaler
        return (
            scaler is not None
            and scaler.freeze_after is not None
            and may_hold(scaler.rounds + 1 == scaler.freeze_after)
        )

    def _arm_count(self) -> int:
        return self.actions

    def _take_over(
        self,
        buffers: dict[str, Tensor],
        ids: dict[str, Tensor | None],
        modules: dict[str, Any],
        rooms: dict[str, Tensor],
    ) -> None:
        """Replace the arms' statistics and ids, other modules, and room for new arms."""
        old, count = self.policy.estimator, buffers["rounds"].size(-1)
        # On no device, so that no memory is written; but a user's constructor may read buffers.
        place, constant = ("meta", old._buffers) if is_ours(type(old)) else (old.theta_hat.device, {})
        # With the original dtype, which decides on the buffers.
        new = rebuilt(old, batch_shape=(*self.batch_shape, count), validate=old.validate, device=place)
        new.to(old.theta_hat.dtype)
        new._initial_options["device"] = old._initial_options["device"]
        new._buffers.update(constant | buffers)
        modules = modules | {"policy": with_estimator(self.policy, new)}
        # In one update: an interrupt in between would leave wrong ids or a stale view.
        changed = {"_buffers": self._buffers | ids, "_modules": self._modules | modules, "_rooms": rooms}
        each = self.multiplications // old.rounds.size(-1)
        self.__dict__.update(changed, _view=None, multiplications=each * count)

    def _rooms_for(self, added: int) -> dict[str, Tensor]:
        """Return the arms' statistics with those of new arms behind them, and room.

        The room grows by an eighth, so that to add an arm costs O(m^2) on average.
        """
        batch, dims, count = self.policy.estimator, self.batch_dims, self.actions
        first: dict[str, Any] = batch._initial_state()
        rooms: dict[str, Tensor] = {}
        for name, buffer in batch.state().items():
            room = self.__dict__.get("_rooms", {}).get(name)
            if room is None or room.data_ptr() != buffer.data_ptr() or room.size(dims) < count + added:
                # A part of a room is contiguous only without batches.
                size = count + added + (0 if dims else count // 8)
                room = buffer.new_empty((*self.batch_shape, size, *buffer.shape[dims + 1 :]))
                room.narrow(dims, 0, count).copy_(buffer)
            rows = room.narrow(dims, count, added)
            new = buffer.narrow(dims, 0, 1) if name in self.pooled else first[name]
            rows.copy_(new.expand_as(rows))
            rooms[name] = room
        return rooms

    def _apply(self, fn: Callable[[Tensor], Tensor], *arguments: Any, **options: Any) -> Any:
        self.__dict__["_rooms"] = {}  # of memory that may be left
        return super()._apply(fn, *arguments, **options)

    def _load_problems(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        problems = super()._load_problems(state_dict, prefix)
        if self.early is not None and not problems:
            arms = state_dict[f"{prefix}early.records"][..., -1]
            if not bool(torch.isin(arms, torch.arange(self.actions, device=arms.device)).all()):
                wanted = f"expected arms from 0 to {self.actions - 1} in its last column"
                problems.append(f"{prefix}early.records: {wanted}, got {float(arms.min()):g} to {float(arms.max()):g}")
        return problems

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        # TorchScript also saves the buffers of `arm`, which are not part of the state.
        for name in [name for name in state_dict if name.startswith(f"{prefix}arm.")]:
            del state_dict[name]
        self.arm.__dict__["_is_loaded"] = True
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class _ArmViews(dict[int, "_ArmView"]):
    """The arms of a batch on NumPy views, each made when it is first asked for."""

    def __init__(self, policy: Any, arms: DisjointArms) -> None:
        super().__init__()
        self.batch = policy.policy.estimator
        self.single: dict[str, Any] = {
            "batch_dims": 0,
            "batch_shape": (),
            "features_shape": (self.batch.dim,),
            "response_shape": (),
        }
        self.copied, self.pooled = arms.copied, arms.pooled
        # What the rounds of all arms write.
        self.shared = [policy.__dict__[name] for name in arms.state() if "." not in name]
        self.shared += [self.batch.__dict__[name] for name in arms.pooled]
        for path, part in arms.parts().items():
            if path not in ("policy.estimator", "early"):
                self.shared += [policy.__dict__[path].__dict__[name] for name in part.state()]

    def __missing__(self, k: int) -> "_ArmView":
        found = self[k] = _ArmView(self, k)
        return found


class _ArmView:
    """One arm of a batch on NumPy views: a learner on slices of its arrays."""

    def __init__(self, arms: _ArmViews, k: int) -> None:
        own = arms.batch.__dict__
        slices = {name: own[name][k, ...] for name in arms.copied if own[name] is not None}
        self.learner: Any = with_attributes(arms.batch, **slices, **arms.single, named_buffers=slices.items)
        self.pooled = [(own[name], slices[name]) for name in arms.pooled]
        written = [array for name, array in slices.items() if name not in arms.pooled]
        # What only this arm's rounds write, what all rounds write, and the size of the first.
        self.written = (written, arms.shared, sum(array.nbytes for array in written))


def _alone(twin: Any, arms: DisjointArms, index: tuple[int, ...]) -> Any:
    """Return one learner of a batch on NumPy views: its arrays are slices."""

    def slices(part: Any, names: Iterable[str]) -> dict[str, Any]:
        return {name: part.__dict__[name][(*index, ...)] for name in names}

    batch: Any = twin.policy.estimator
    single: dict[str, Any] = {"batch_dims": 0, "batch_shape": ()}
    arrays = slices(batch, arms.estimator.state())
    shapes: dict[str, Any] = {"batch_dims": 1, "batch_shape": (arms.actions,), "response_shape": (arms.actions,)}
    shapes["features_shape"] = (arms.actions, batch.dim)
    batch = with_attributes(batch, **arrays, **shapes, named_buffers=arrays.items)
    parts = {"policy": with_attributes(twin.policy, estimator=batch)}
    for name, part in (("scaler", arms.scaler), ("early", arms.early)):
        if part is not None:
            view = twin.__dict__[name]
            parts[name] = with_attributes(view, **slices(view, part.state()), **single)
    own = slices(twin, [name for name in arms.state() if "." not in name])
    found = with_attributes(twin, **own, **parts, **single)
    found.__dict__["of_arm"] = _ArmViews(found, arms)
    add_core(arms, found)
    return found


def _learn_alone(learners: list[Any], x: Any, place: Any, reward: Any, noise_scale: Any) -> None:
    """Learn a round of each learner of a batch.

    Shapes are ``(*B, d)`` and ``(*B)`` three times, or one noise scale for all.
    """
    numbers = [np.broadcast_to(value, place.shape).reshape(-1).tolist() for value in (place, reward, noise_scale)]
    for learn, *round in zip(learners, x.reshape(len(learners), -1), *numbers, strict=True):
        learn(*round)


def _scores_alone(learners: list[Any], dims: int, x: Any) -> Any:
    """Return the scores of one decision of each learner of a batch.

    For other inputs, return None. Shapes are ``(*B, d)`` and ``(*B, K)``.
    """
    if x.ndim != dims + 1:
        return None
    scores = [twin._scored(row) for twin, row in zip(learners, x.reshape(len(learners), -1), strict=True)]
    return np.stack(scores).reshape(*x.shape[:-1], -1)


def with_estimator(policy: Rule, estimator: Estimator) -> Rule:
    """Return a copy of a policy over another estimator."""
    twin = copy.copy(policy)
    twin.__dict__["_modules"] = policy._modules | {"estimator": estimator}
    return twin


def _for_each_arm_of_arrays(x: Any, dims: int, arms: int, takes_one_row: bool) -> Any:
    if x.ndim == 1:
        return x if takes_one_row else x[None, None].repeat(arms, 0)
    x = x[(*(slice(None),) * dims, None, ..., None, slice(None))]
    return x.repeat(arms, dims)


@on_arrays(_for_each_arm_of_arrays)
def for_each_arm(x: Tensor, dims: int, arms: int, takes_one_row: bool) -> Tensor:
    """Repeat features for each arm: ``(*B, ..., m)`` to ``(*B, K, ..., 1, m)``.

    On arrays, the row of one decision is not repeated if the estimator applies it to all arms.
    """
    x = x.unsqueeze(dims).unsqueeze(-2)
    return x.expand(list(x.shape[:dims]) + [arms] + list(x.shape[dims + 1 :]))


def _arms_last_of_arrays(scores: Any, dims: int) -> Any:
    if scores.ndim <= 2:
        return scores if scores.ndim == 1 else scores[:, 0]
    return np.moveaxis(scores[..., 0], dims, -1)


@on_arrays(_arms_last_of_arrays)
def arms_last(scores: Tensor, dims: int) -> Tensor:
    """Move the arms to the end: ``(*B, K, ..., 1)`` to ``(*B, ..., K)``.

    On arrays, the scores of one row, ``(K)``, stay as they are.
    """
    return scores.squeeze(-1).movedim(dims, -1)
