"""What protects the state of a learner in a TorchScript file.

The classes below are mixed into the class of the module that is scripted. Their ``step`` and ``learn`` return which rounds were
learnt. A round whose values the eager ``step`` would refuse changes no buffer, nor does one after which a buffer would not be
finite. Their ``select`` returns -1 where no choice can be made. Only TorchScript runs them. For programs,
:mod:`torchonline.export.guard` does the same.
"""

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchonline.bandits.arm_ids import found_places
from torchonline.bandits.block_learner import BlockEstimator
from torchonline.bandits.composed import ComposedPolicy
from torchonline.bandits.disjoint import DisjointArms
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.fixed_arms import FixedArms
from torchonline.bandits.moving_squares import rows_of
from torchonline.bandits.policies import Policy, drawn
from torchonline.bandits.scaled import ScaledPolicy
from torchonline.bandits.shared_radius_master import SharedRadiusMaster
from torchonline.convex.learner import ConvexLearner, HintedLearner
from torchonline.core.checks import passes
from torchonline.core.learner import Learner
from torchonline.core.ops import along, of_chosen
from torchonline.export.guard import any_of_rest, evolving, is_finite

# The methods of the module itself, which a mixin calls by these names.
PLAIN = ("select", "probabilities", "step", "learn", "set_hint", "set_available")


def stacked(learnt: list[Tensor], is_one: bool, like: Tensor) -> Tensor:
    """Return what was learnt: ``(*B)`` of one round, or shaped as ``like``."""
    if is_one:
        return learnt[0]
    return torch.zeros_like(like, dtype=torch.bool) if len(learnt) == 0 else torch.stack(learnt, -1)


def drawn_if_possible(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Draw an index from each row, with its probability: -1 and 0 where all are 0."""
    possible = probabilities.sum(-1) > 0.0
    if probabilities.size(-1) == 0:
        return torch.full_like(possible, -1, dtype=torch.int64), torch.zeros_like(probabilities.sum(-1))
    index = torch.where(possible, drawn(probabilities), 0)
    probability = probabilities.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return torch.where(possible, index, -1), torch.where(possible, probability, 0.0)


class Guarded:
    """Base of the mixins: keeps copies of all state, and puts them back.

    Each learner in the module has attributes ``guarded``, the names of its buffers that evolve, and ``refused``, where it notes
    what outweighs all other rounds.
    """

    if TYPE_CHECKING:
        modules: Any

    def _guard_copies(self) -> list[Tensor]:
        """Return copies of all buffers that evolve."""
        found: list[Tensor] = []
        for part in self.modules():
            if hasattr(part, "guarded"):
                for name, buffer in part.named_buffers():
                    if buffer is not None and name in part.guarded:
                        found.append(buffer.clone())
        return found

    def _guard_settle_(self, before: list[Tensor], fit: Tensor) -> Tensor:
        """Put back the state of the learners that must not learn; return the others.

        Those that must not are the ones where ``fit`` is False, whose round outweighs all others, or of which a buffer would not
        be finite.
        """
        for part in self.modules():
            if hasattr(part, "refused"):
                if bool(part.refused.any()):
                    fit = fit & ~any_of_rest(part.refused, fit.dim())
                    part.refused = torch.zeros_like(part.refused)
            if hasattr(part, "guarded"):
                for name, buffer in part.named_buffers():
                    if buffer is not None and name in part.guarded:
                        if buffer.is_floating_point():
                            total = float(buffer.sum())
                            if total - total != 0.0:  # in the usual case, all are finite
                                fit = fit & is_finite(buffer, fit.dim(), name in part.unbounded_names)
        if not bool(fit.all()):
            self._guard_keep_(before, fit)
        return fit

    def _guard_keep_(self, before: list[Tensor], fit: Tensor) -> None:
        """Put back the state where ``fit``, ``(*B)``, is False."""
        i = 0
        for part in self.modules():
            if hasattr(part, "guarded"):
                for name, buffer in part.named_buffers():
                    if buffer is not None and name in part.guarded:
                        buffer.copy_(torch.where(along(fit, buffer), buffer, before[i]))
                        i += 1


class OfPolicy(Guarded):
    """The estimator of a policy."""

    if TYPE_CHECKING:
        estimator: Any

    def _guard_like(self) -> Tensor:
        return self.estimator.theta_hat

    def _guard_scale(self, reward: Tensor) -> Tensor:
        return self.estimator._own_scale(reward)

    def _guard_accepts(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        """Return whether the values of rounds may be learnt."""
        return self.estimator._accepts(x, reward, noise_scale)

    def _guard_named(self, place: Tensor) -> Tensor:
        return place


class OfComposed(Guarded):
    """The estimator of a policy with a scaler, or with a model for each arm."""

    if TYPE_CHECKING:
        policy: Any
        _features: Any
        _found: Any
        _named_if_any: Any

    def _guard_like(self) -> Tensor:
        return self.policy.estimator.theta_hat

    def _guard_scale(self, reward: Tensor) -> Tensor:
        return self.policy.estimator._own_scale(reward)

    def _guard_accepts(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        return passes(x).all(-1) & self.policy.estimator._accepts(self._features(x), reward, noise_scale)

    def _guard_found(self, action: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return whether actions are those of arms, and places that there are."""
        return self._found(action, count)

    def _guard_named(self, place: Tensor) -> Tensor:
        """Return the actions that some places stand for; -1 stays."""
        return self._named_if_any(place)


class OfInner(Guarded):
    """The estimator of a policy inside the module."""

    if TYPE_CHECKING:
        policy: Any

    def _guard_like(self) -> Tensor:
        return self.policy.estimator.theta_hat

    def _guard_scale(self, reward: Tensor) -> Tensor:
        return self.policy.estimator._own_scale(reward)

    def _guard_accepts(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        return self.policy.estimator._accepts(x, reward, noise_scale)

    def _guard_found(self, action: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return found_places(action, count)

    def _guard_named(self, place: Tensor) -> Tensor:
        return place


class OfComposedHead(Guarded):
    """The estimator of a head on such a policy."""

    if TYPE_CHECKING:
        policy: Any

    def _guard_like(self) -> Tensor:
        return self.policy.policy.estimator.theta_hat

    def _guard_scale(self, reward: Tensor) -> Tensor:
        return self.policy.policy.estimator._own_scale(reward)

    def _guard_accepts(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> Tensor:
        return passes(x).all(-1) & self.policy.policy.estimator._accepts(self.policy._features(x), reward, noise_scale)

    def _guard_found(self, action: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return self.policy._found(action, count)

    def _guard_named(self, place: Tensor) -> Tensor:
        return self.policy._named_if_any(place)


class Chooses:
    """Mixin of the files that choose arms.

    ``arm_axis`` says at which dimension from the end the arms of a decision are, or is 0 if their number, ``arm_count``, is
    fixed.
    """

    if TYPE_CHECKING:
        arm_axis: int
        arm_count: int
        _guard_like: Any
        _plain_select: Any
        _plain_probabilities: Any
        _guard_named: Any
        _guard_possible: Any

    def _guard_arms(self, inputs: Tensor) -> int:
        """Return the number of arms of a decision."""
        return inputs.size(inputs.dim() - self.arm_axis) if self.arm_axis > 0 else self.arm_count

    def _guard_decisions(self, inputs: Tensor) -> list[int]:
        """Return the shape of decisions without arms."""
        return list(inputs.shape[: inputs.dim() - self.arm_axis])

    @torch.jit.export
    def select(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            if self._guard_arms(inputs) == 0:
                return torch.full(self._guard_decisions(inputs), -1, dtype=torch.int64, device=inputs.device)
            possible = self._guard_possible(inputs)
            if mask is not None:
                possible = possible & mask.any(-1)
            return torch.where(possible, self._plain_select(inputs, mask), -1)

    @torch.jit.export
    def probabilities(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            if self._guard_arms(inputs) == 0:
                return torch.zeros(
                    self._guard_decisions(inputs) + [0], dtype=self._guard_like().dtype, device=inputs.device
                )
            possible = self._guard_possible(inputs)
            if mask is not None:
                possible = possible & mask.any(-1)
            return torch.where(possible.unsqueeze(-1), self._plain_probabilities(inputs, mask), 0.0)

    @torch.jit.export
    def decide(self, inputs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        place, probability = drawn_if_possible(self.probabilities(inputs, mask))
        return self._guard_named(place), probability


class LearnsRows(Chooses):
    """Mixin of the files that learn from features and rewards."""

    if TYPE_CHECKING:
        learner_dims: int
        _guard_like: Any
        _guard_scale: Any
        _guard_accepts: Any
        _guard_copies: Any
        _guard_settle_: Any
        _guard_learn: Any
        _guard_block: Any
        _plain_learn: Any

    def _guard_possible(self, arms: Tensor) -> Tensor:
        return passes(arms.to(self._guard_like().dtype)).all(-1).all(-1)

    def _guard_values(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the values of rounds in the type of the state."""
        like = self._guard_like()
        x, reward = x.detach().to(like.dtype), reward.detach().to(like.dtype)
        scale = self._guard_scale(reward) if noise_scale is None else noise_scale.detach().to(like.dtype)
        return x, reward, scale

    @torch.jit.export
    def step(self, x: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            # Each call in a script becomes a copy of what is called, so there is one.
            rows = self.learner_dims
            is_one = x.dim() == rows + 1
            x, reward, scale = self._guard_values(x, reward, noise_scale)
            learnt: list[Tensor] = []
            for i in range(1 if is_one else x.size(rows)):
                one, pay, noise = x, reward, scale
                if not is_one:
                    one, pay, noise = x.select(rows, i), reward.select(rows, i), scale.select(rows, i)
                fit = self._guard_accepts(one, pay, None if noise_scale is None else noise)
                is_fit = bool(fit.all())
                if is_fit or bool(fit.any()):
                    before = self._guard_copies()
                    if not is_fit:
                        one, pay = torch.where(fit.unsqueeze(-1), one, 0.0), torch.where(fit, pay, 0.0)
                        noise = torch.where(fit, noise, self._guard_scale(pay))
                    self._guard_learn(one, pay, noise)
                    fit = self._guard_settle_(before, fit)
                learnt.append(fit)
            return stacked(learnt, is_one, reward)

    def _guard_log(
        self, x: Tensor, reward: Tensor, noise_scale: Tensor | None, block_size: int | None, mask: Tensor | None
    ) -> Tensor:
        """Learn a log in blocks, without what must not be learnt; return what was learnt."""
        with torch.no_grad():
            rows = self.learner_dims
            is_one = x.dim() == rows + 1
            x, reward, scale = self._guard_values(x, reward, noise_scale)
            if is_one:
                x, reward, scale = x.unsqueeze(rows), reward.unsqueeze(rows), scale.unsqueeze(rows)
                mask = None if mask is None else mask.unsqueeze(rows)
            good = self._guard_accepts(x, reward, None if noise_scale is None else scale)
            fit = good if mask is None else good & mask
            learnt = torch.zeros_like(fit)
            # A single learner leaves rounds out. Those of a fleet learn round by round if one of them must leave one out.
            place = torch.arange(good.size(-1), device=good.device)
            size = place.size(0)
            if not bool(good.all()):
                if rows == 0:
                    place = torch.nonzero(good).squeeze(-1)
                    size = place.size(0)
                else:
                    size = 1
            done = 0
            while done < place.size(0) and bool(fit.any()):
                at = place.narrow(0, done, size)
                may = fit.index_select(rows, at)
                before = self._guard_copies()
                pay, noise = reward.index_select(rows, at), scale.index_select(rows, at)
                self._guard_block(
                    torch.where(may.unsqueeze(-1), x.index_select(rows, at), 0.0),
                    torch.where(may, pay, 0.0),
                    torch.where(may, noise, self._guard_scale(pay)),
                    block_size,
                    None if mask is None else mask.index_select(rows, at),
                )
                learnt.index_copy_(rows, at, may & self._guard_settle_(before, may.any(-1)).unsqueeze(-1))
                done += size
            return learnt.squeeze(rows) if is_one else learnt


class PolicyFile(LearnsRows, OfPolicy):
    """Mixin of the file of a policy."""

    def _guard_learn(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self.estimator._learn_round(x, reward, noise_scale)

    def _guard_block(
        self, x: Tensor, reward: Tensor, noise_scale: Tensor, block_size: int | None, mask: Tensor | None
    ) -> None:
        self._plain_learn(x, reward, noise_scale, block_size, mask)

    @torch.jit.export
    def learn(
        self,
        x: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None = None,
        block_size: int | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        return self._guard_log(x, reward, noise_scale, block_size, mask)


class OwnStepFile(PolicyFile):
    """Mixin of the file of a policy with a step of its own."""

    if TYPE_CHECKING:
        _plain_step: Any

    def _guard_learn(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._plain_step(x, reward, noise_scale)


class ScaledFile(LearnsRows, OfComposed):
    """Mixin of the file of a policy with a scaler."""

    if TYPE_CHECKING:
        _learn_round: Any

    def _guard_learn(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._learn_round(x, reward, noise_scale)

    def _guard_block(
        self, x: Tensor, reward: Tensor, noise_scale: Tensor, block_size: int | None, mask: Tensor | None
    ) -> None:
        self._plain_learn(x, reward, noise_scale, block_size)

    @torch.jit.export
    def learn(
        self, x: Tensor, reward: Tensor, noise_scale: Tensor | None = None, block_size: int | None = None
    ) -> Tensor:
        return self._guard_log(x, reward, noise_scale, block_size, None)


class LearnsActions(Chooses):
    """Mixin of the files that learn from inputs, actions and rewards.

    ``checks_inputs`` says whether all inputs of a round are checked, besides the features of the chosen arm.
    """

    if TYPE_CHECKING:
        learner_dims: int
        checks_inputs: bool
        _guard_like: Any
        _guard_scale: Any
        _guard_accepts: Any
        _guard_found: Any
        _guard_named: Any
        _guard_copies: Any
        _guard_settle_: Any
        _guard_features: Any
        _guard_learn: Any
        _plain_learn: Any

    def _guard_values(self, reward: Tensor, noise_scale: Tensor | None) -> tuple[Tensor, Tensor]:
        like = self._guard_like()
        reward = reward.detach().to(like.dtype)
        return reward, self._guard_scale(reward) if noise_scale is None else noise_scale.detach().to(like.dtype)

    def _guard_fit(
        self, inputs: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return whether rounds may be learnt, the action of an arm, and its features."""
        fit, place = self._guard_found(action, self._guard_arms(inputs))
        action = self._guard_named(place)
        x = self._guard_features(inputs, action).detach().to(self._guard_like().dtype)
        fit = fit & self._guard_accepts(x, reward, noise_scale)
        if self.checks_inputs:
            fit = fit & passes(inputs.to(self._guard_like().dtype)).flatten(fit.dim()).all(-1)
        return fit, action, x

    @torch.jit.export
    def step(self, inputs: Tensor, action: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            rows = self.learner_dims
            is_one = action.dim() == rows
            if self._guard_arms(inputs) == 0:
                return torch.zeros_like(action, dtype=torch.bool)
            reward, scale = self._guard_values(reward, noise_scale)
            learnt: list[Tensor] = []
            for i in range(1 if is_one else action.size(rows)):
                one, k, pay, noise = inputs, action, reward, scale
                if not is_one:
                    one, k = inputs.select(rows, i), action.select(rows, i)
                    pay, noise = reward.select(rows, i), scale.select(rows, i)
                fit, k, x = self._guard_fit(one, k, pay, None if noise_scale is None else noise)
                is_fit = bool(fit.all())
                if is_fit or bool(fit.any()):
                    before = self._guard_copies()
                    if not is_fit:
                        x, pay = torch.where(fit.unsqueeze(-1), x, 0.0), torch.where(fit, pay, 0.0)
                        noise = torch.where(fit, noise, self._guard_scale(pay))
                        if one.is_floating_point():
                            one = torch.where(along(fit, one), one, 0.0)
                    self._guard_learn(one, k, x, pay, noise)
                    fit = self._guard_settle_(before, fit)
                learnt.append(fit)
            return stacked(learnt, is_one, action)

    @torch.jit.export
    def learn(
        self,
        inputs: Tensor,
        action: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None = None,
        block_size: int | None = None,
    ) -> Tensor:
        with torch.no_grad():
            rows = self.learner_dims
            is_one = action.dim() == rows
            learnt = torch.zeros_like(action, dtype=torch.bool)
            if self._guard_arms(inputs) > 0:
                reward, scale = self._guard_values(reward, noise_scale)
                if is_one:
                    inputs, action, learnt = inputs.unsqueeze(rows), action.unsqueeze(rows), learnt.unsqueeze(rows)
                    reward, scale = reward.unsqueeze(rows), scale.unsqueeze(rows)
                told = None if noise_scale is None else scale
                fit, index, _ = self._guard_fit(inputs, action, reward, told)
                # As in LearnsRows.
                place = torch.arange(fit.size(-1), device=fit.device)
                size = place.size(0)
                if not bool(fit.all()):
                    if rows == 0:
                        place = torch.nonzero(fit).squeeze(-1)
                        size = place.size(0)
                    else:
                        size = 1
                done = 0
                while done < place.size(0):
                    at = place.narrow(0, done, size)
                    may = fit.index_select(rows, at)
                    before = self._guard_copies()
                    pay, noise, some = reward.index_select(rows, at), scale.index_select(rows, at), inputs
                    if size < fit.size(-1):
                        some = inputs.index_select(rows, at)
                    if some.is_floating_point() and not bool(may.all()):
                        some = torch.where(along(may, some), some, 0.0)
                    self._plain_learn(
                        some,
                        index.index_select(rows, at),
                        torch.where(may, pay, 0.0),
                        torch.where(may, noise, self._guard_scale(pay)),
                        block_size,
                    )
                    learnt.index_copy_(rows, at, may & self._guard_settle_(before, may.any(-1)).unsqueeze(-1))
                    done += size
            return learnt.squeeze(rows) if is_one and learnt.dim() > rows else learnt


class ArmsFile(LearnsActions, OfComposed):
    """Mixin of the file of arms with a model each."""

    if TYPE_CHECKING:
        _learn_round: Any
        _placed: Any

    def _guard_possible(self, context: Tensor) -> Tensor:
        return passes(context.to(self._guard_like().dtype)).all(-1)

    def _guard_features(self, context: Tensor, action: Tensor) -> Tensor:
        return context

    def _guard_learn(self, inputs: Tensor, action: Tensor, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._learn_round(x, self._placed(action), reward, noise_scale)


class SharedFile(LearnsActions, OfComposed):
    """Mixin of the file of a master over radii that learns from all arms."""

    if TYPE_CHECKING:
        _learn_round: Any

    def _guard_possible(self, arms: Tensor) -> Tensor:
        return passes(arms.to(self._guard_like().dtype)).all(-1).all(-1)

    def _guard_features(self, arms: Tensor, action: Tensor) -> Tensor:
        return of_chosen(arms, action)

    def _guard_learn(self, inputs: Tensor, action: Tensor, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        self._learn_round(inputs.to(x.dtype), action, reward, noise_scale)


class LearnsOnEncoder(LearnsActions):
    """Mixin of the files of a head on an encoder."""

    if TYPE_CHECKING:
        item_dims: int
        encode: Any
        chosen_features: Any
        scaler: Any
        has_models: bool
        _learn: Any
        _plain_step: Any

    def _guard_possible(self, inputs: Tensor) -> Tensor:
        possible = passes(self.encode(inputs).to(self._guard_like().dtype)).all(-1)
        possible = possible if self.has_models else possible.all(-1)
        if self.checks_inputs:  # the scaler would clip infinity
            items = inputs.to(self._guard_like().dtype).flatten(inputs.dim() - self.item_dims)
            possible = possible & passes(items).all(-1)
        return possible

    def _guard_features(self, inputs: Tensor, action: Tensor) -> Tensor:
        return self.chosen_features(inputs, action)

    def _guard_learn(self, inputs: Tensor, action: Tensor, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        if self.scaler is None:
            self._learn(x, action, reward, noise_scale)
        else:
            self._plain_step(inputs, action, reward, noise_scale)


class HeadFile(LearnsOnEncoder, OfInner):
    """Mixin of the file of a head on a policy."""


class ComposedHeadFile(LearnsOnEncoder, OfComposedHead):
    """Mixin of the file of a head on a composed policy."""


class FixedFile(OfInner):
    """Mixin of the file of arms that stay."""

    if TYPE_CHECKING:
        arms: Tensor
        _found: Any
        _named_if_any: Any
        learner_dims: int
        _plain_select: Any
        _plain_probabilities: Any
        _learn_round: Any

    @torch.jit.export
    def select(self, mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            choice = self._plain_select(mask)
            return choice if mask is None else torch.where(mask.any(-1), choice, -1)

    @torch.jit.export
    def probabilities(self, mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            found = self._plain_probabilities(mask)
            return found if mask is None else torch.where(mask.any(-1, keepdim=True), found, 0.0)

    @torch.jit.export
    def decide(self, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        place, probability = drawn_if_possible(self.probabilities(mask))
        return self._named_if_any(place), probability

    @torch.jit.export
    def step(self, action: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            rows, like = self.learner_dims, self._guard_like()
            is_one = action.dim() == rows
            reward = reward.detach().to(like.dtype)
            scale = self._guard_scale(reward) if noise_scale is None else noise_scale.detach().to(like.dtype)
            learnt: list[Tensor] = []
            for i in range(1 if is_one else action.size(rows)):
                k, pay, noise = action, reward, scale
                if not is_one:
                    k, pay, noise = action.select(rows, i), reward.select(rows, i), scale.select(rows, i)
                fit, place = self._found(k, self.arms.size(-2))
                x = rows_of(self.arms, place.unsqueeze(-1)).squeeze(-2)
                fit = fit & self._guard_accepts(x, pay, None if noise_scale is None else noise)
                is_fit = bool(fit.all())
                if is_fit or bool(fit.any()):
                    before = self._guard_copies()
                    if not is_fit:
                        pay, noise = torch.where(fit, pay, 0.0), torch.where(fit, noise, self._guard_scale(pay))
                    self._learn_round(x, pay, noise)
                    fit = self._guard_settle_(before, fit)
                learnt.append(fit)
            return stacked(learnt, is_one, action)


class ConvexFile(Guarded):
    """Mixin of the file of a convex learner. ``asks_values`` is its ``needs_values``."""

    if TYPE_CHECKING:
        decision: Tensor
        rounds: Tensor
        asks_values: bool
        _plain_step: Any

    @torch.jit.export
    def step(self, gradients: Tensor, values: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            sizes = list(self.rounds.shape) + [-1]
            gradients = gradients.detach().to(self.decision.dtype)
            fit = passes(gradients).reshape(sizes).all(-1)
            if values is not None:
                values = values.detach().to(self.decision.dtype)
                if self.asks_values:
                    fit = fit & passes(values).reshape(sizes).all(-1)
            if not bool(fit.any()):
                return fit
            before = self._guard_copies()
            if not bool(fit.all()):
                gradients = torch.where(along(fit, gradients), gradients, 0.0)
                values = None if values is None else torch.where(along(fit, values), values, 0.0)
            self._plain_step(gradients, values)
            return self._guard_settle_(before, fit)


class HintedFile(ConvexFile):
    """Mixin of the file of a convex learner that takes hints."""

    if TYPE_CHECKING:
        _plain_set_hint: Any

    @torch.jit.export
    def set_hint(self, hint: Tensor) -> Tensor:
        with torch.no_grad():
            hint = hint.detach().to(self.decision.dtype)
            fit = passes(hint).all(-1)
            before = self._guard_copies()
            self._plain_set_hint(torch.where(fit.unsqueeze(-1), hint, 0.0))
            return self._guard_settle_(before, fit)


class ExpertsFile(HintedFile):
    """Mixin of the file of a learner of experts."""

    if TYPE_CHECKING:
        available: Tensor
        _plain_set_available: Any

    @torch.jit.export
    def set_available(self, mask: Tensor) -> Tensor:
        with torch.no_grad():
            fit = mask.any(-1)
            before = self._guard_copies()
            self._plain_set_available(torch.where(fit.unsqueeze(-1), mask, self.available))
            return self._guard_settle_(before, fit)


def as_file(module: Any) -> Any:
    """Turn a module into one that protects its state in TorchScript, and return it.

    The module is a copy that nobody else uses. It has the same buffers, by the same names.
    """
    mixin, told = _kind(module)
    cls = type(module)
    plain = {f"_plain_{name}": _renamed(getattr(cls, name), f"_plain_{name}") for name in PLAIN if hasattr(cls, name)}
    # TorchScript reads the annotations of the class itself alone.
    own = plain | {"__annotations__": dict(inspect.get_annotations(cls)), "__module__": cls.__module__}
    # Whatever looks for subclasses by name, such as jsonargparse, leaves out those of a function.
    own["__qualname__"] = f"as_file.<locals>.{cls.__name__}"
    object.__setattr__(module, "__class__", type(cls.__name__, (mixin, cls), own))
    module.__dict__.update(told)
    for part in module.modules():
        if not isinstance(part, Learner):
            continue
        # Lists of strings, of which an empty one has no type.
        part.__dict__.update(guarded=evolving(part), unbounded_names=["", *part.unbounded])
        if isinstance(part, BlockEstimator):
            place = part.theta_hat.device
            part.__dict__["refused"] = torch.zeros(part.batch_shape, dtype=torch.bool, device=place)
        if isinstance(part, Estimator):
            part.__dict__["smallest_noise_scale"] = float(part.smallest_noise_scale)
    return module


def _renamed(method: Any, name: str) -> Any:
    """Return what TorchScript compiles of a method, by another name."""
    function = inspect.unwrap(method)
    twin = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    twin.__annotations__ = function.__annotations__
    return twin


def _kind(module: nn.Module) -> tuple[type, dict[str, Any]]:
    """Return the mixin for a module, and the attributes that it needs."""
    if isinstance(module, ConvexLearner):
        mixin: type = HintedFile if isinstance(module, HintedLearner) else ConvexFile
        return ExpertsFile if hasattr(module, "set_available") else mixin, {"asks_values": module.needs_values}
    head: Any = module
    policy: Any = module if isinstance(module, (Policy, ComposedPolicy, FixedArms)) else head.policy
    owner = policy if isinstance(policy, (ComposedPolicy, FixedArms)) else policy.estimator
    told: dict[str, Any] = {"learner_dims": owner.batch_dims}
    if isinstance(module, FixedArms):
        return FixedFile, told
    told |= {"arm_axis": 2, "arm_count": 0, "checks_inputs": isinstance(module, SharedRadiusMaster)}
    if isinstance(policy, DisjointArms):
        told |= {"arm_axis": 0, "arm_count": policy.actions}
    if policy is module:
        usual = OwnStepFile if isinstance(module, Policy) and module.has_own_step else PolicyFile
        for cls, mixin in ((Policy, usual), (ScaledPolicy, ScaledFile), (DisjointArms, ArmsFile)):
            if isinstance(module, cls):
                return mixin, told
        return SharedFile, told
    told["checks_inputs"] = head.scaler is not None
    if head.actions is not None:
        told |= {"arm_axis": 0, "arm_count": len(head.actions)}
    elif not isinstance(policy, DisjointArms):
        told["arm_axis"] = head.feature_dims + 1
    return ComposedHeadFile if isinstance(policy, ComposedPolicy) else HeadFile, told
