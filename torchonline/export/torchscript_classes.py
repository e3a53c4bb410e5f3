"""Mixins that protect the state of a learner in a TorchScript file.

The classes below are mixed into the class of the scripted module. Their ``step`` and ``learn`` return which rounds were learnt. A
round changes no buffer if the eager ``step`` would refuse its values, or if a buffer would not be finite afterwards. Their
``select`` returns -1 if no choice can be made. Only TorchScript runs them. :mod:`torchonline.export.guard` is the counterpart for
programs.
"""

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchonline.convex.learner import ConvexLearner, HintedLearner
from torchonline.core.checks import passes
from torchonline.core.learner import Learner
from torchonline.core.ops import along
from torchonline.export.guard import any_of_rest, evolving, is_finite
from torchonline.policies.disjoint import DisjointArms
from torchonline.policies.policy import drawn, masked
from torchonline.regression.block_learner import BlockEstimator
from torchonline.regression.estimator import Estimator

# Methods of the module that a mixin calls under a prefixed name.
PLAIN = ("step", "set_hint", "set_available")


def stacked(learnt: list[Tensor], is_one: bool, like: Tensor) -> Tensor:
    """Stack which rounds were learnt: ``(*B)`` for one round, else like ``like``."""
    if is_one:
        return learnt[0]
    return torch.zeros_like(like, dtype=torch.bool) if len(learnt) == 0 else torch.stack(learnt, -1)


def drawn_if_possible(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Draw an index and its probability from each row: -1 and 0 if the row is 0."""
    possible = probabilities.sum(-1) > 0.0
    if probabilities.size(-1) == 0:
        return torch.full_like(possible, -1, dtype=torch.int64), torch.zeros_like(probabilities.sum(-1))
    index = torch.where(possible, drawn(probabilities), 0)
    probability = probabilities.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return torch.where(possible, index, -1), torch.where(possible, probability, 0.0)


def flat(parts: list[Tensor]) -> Tensor:
    """Return a copy of all numbers."""
    return torch.zeros(0) if len(parts) == 0 else torch.cat(parts)


class Guarded:
    """Base class of the mixins: copies the state and restores it.

    Each learner in the module has constant lists of names of its buffers: ``guarded``, the evolving ones; of these,
    ``kept_in_step`` and ``checked_in_step``, which a step copies and checks, and ``guarded_integers``; and ``unbounded_names``.
    It has an attribute ``refused``, where it marks rounds that outweigh all others. A :class:`DisjointArms` with an attribute
    ``gathered`` notes there what a step overwrites, while ``is_noting``, so that the step need not copy the statistics of all
    arms.
    """

    if TYPE_CHECKING:
        modules: Any

    def _guard_copies(self, of_step: bool = False) -> list[Tensor]:
        """Return copies of the evolving buffers, flat: real numbers, and integers."""
        reals: list[Tensor] = []
        integers: list[Tensor] = []
        for part in self.modules():
            if hasattr(part, "gathered"):
                part.gathered.clear()
                part.is_noting = of_step
            if hasattr(part, "guarded"):
                for name, buffer in part.named_buffers():
                    if buffer is not None and (name in part.kept_in_step if of_step else name in part.guarded):
                        if name in part.guarded_integers:
                            integers.append(buffer.reshape(-1))
                        else:
                            reals.append(buffer.reshape(-1))
        return [flat(reals), flat(integers)]

    def _guard_settle_(self, before: list[Tensor], fit: Tensor, of_step: bool = False) -> Tensor:
        """Restore the learners that must not learn. Return the others.

        A learner must not learn if ``fit`` is False, if its round outweighs all others, or if one of its buffers would not be
        finite.
        """
        small: list[Tensor] = []
        total = 0.0
        for part in self.modules():
            if hasattr(part, "refused"):
                if bool(part.refused.any()):
                    fit = fit & ~any_of_rest(part.refused, fit.dim())
                    part.refused = torch.zeros_like(part.refused)
            if hasattr(part, "guarded"):
                for name, buffer in part.named_buffers():
                    if buffer is not None and (name in part.checked_in_step if of_step else name in part.guarded):
                        if name not in part.guarded_integers:
                            if buffer.numel() <= 4096:
                                small.append(buffer.reshape(-1))
                            else:
                                total += float(buffer.sum())
            if hasattr(part, "gathered"):
                if len(part.gathered) > 1:  # the copy holds only the last of the arms
                    for statistics in part.policy.estimator._statistics(part.copied).values():
                        total += float(statistics.sum())
        total += float(flat(small).sum())
        if total - total != 0.0:  # rare: usually all are finite
            fit = self._guard_finite(fit)
        if not bool(fit.all()):
            self._guard_keep_(before, fit, of_step)
        for part in self.modules():
            if hasattr(part, "gathered"):
                part.gathered.clear()
        return fit

    def _guard_finite(self, fit: Tensor) -> Tensor:
        """Return which learners are ``fit``, ``(*B)``, and have finite buffers."""
        for part in self.modules():
            if hasattr(part, "guarded"):
                for name, buffer in part.named_buffers():
                    if buffer is not None and name in part.guarded:
                        if name not in part.guarded_integers:
                            fit = fit & is_finite(buffer, fit.dim(), name in part.unbounded_names)
        return fit

    def _guard_keep_(self, before: list[Tensor], fit: Tensor, of_step: bool) -> None:
        """Restore the state where ``fit``, ``(*B)``, is False."""
        done = [0, 0]
        for part in self.modules():
            if hasattr(part, "guarded"):
                for name, buffer in part.named_buffers():
                    if buffer is not None and (name in part.kept_in_step if of_step else name in part.guarded):
                        i = int(name in part.guarded_integers)
                        old = before[i].narrow(0, done[i], buffer.numel()).view_as(buffer)
                        buffer.copy_(torch.where(along(fit, buffer), buffer, old.to(buffer.dtype)))
                        done[i] += buffer.numel()
            if hasattr(part, "gathered"):
                for i in range(len(part.gathered)):
                    index, statistics = part.gathered[len(part.gathered) - 1 - i]
                    part.policy.estimator._write_chosen_(index, statistics, part.pooled)


class PolicyFile(Guarded):
    """Mixin for the file of a policy."""

    if TYPE_CHECKING:
        item_dims: int
        steps_by_itself: bool
        width: int
        choice: Any
        _given: Any
        _read: Any
        _scored: Any
        _mixture: Any
        _can_score: Any
        _chosen: Any
        _count: Any
        _found: Any
        _named_if_any: Any
        _names_now: Any
        _name_of_each: Any
        _as_round: Any
        _accepts: Any
        _learn_round: Any
        _learn_rounds: Any
        _check_mask_of_log: Any
        _like: Any
        _clock: Any
        _untied: Any
        _dims: Any
        _own_scale: Any
        _plain_step: Any

    def _guard_given(self, inputs: Tensor | None) -> Tensor:
        """Return the inputs, of the right number of features: others may broadcast."""
        given = self._given(inputs)
        if self.width >= 0 and given.size(-1) != self.width:
            raise ValueError(f"inputs: expected {self.width} features in the last dimension, got {given.size(-1)}")
        return given

    def _decisions(self, inputs: Tensor) -> list[int]:
        """Return the shape of the decisions if each arm has inputs."""
        return list(inputs.shape[: inputs.dim() - self.item_dims])

    @torch.jit.export
    def select(self, inputs: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            given = self._guard_given(inputs)
            if self._count(given) == 0:
                return torch.full(self._decisions(given), -1, dtype=torch.int64, device=given.device)
            x = self._read(given)
            possible, scores = self._can_score(given, x), masked(self._scored(x), mask)
            if mask is not None:
                possible = possible & mask.any(-1)
            scores = self._untied(scores, given)
            return self._named_if_any(torch.where(possible, self.choice(scores, self._clock()), -1))

    @torch.jit.export
    def probabilities(self, inputs: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            given = self._guard_given(inputs)
            if self._count(given) == 0:
                return torch.zeros(self._decisions(given) + [0], dtype=self._like().dtype, device=given.device)
            x = self._read(given)
            possible = self._can_score(given, x)
            if mask is not None:
                possible = possible & mask.any(-1)
            return torch.where(possible.unsqueeze(-1), self._mixture(x, mask), 0.0)

    @torch.jit.export
    def select_with_probability(
        self, inputs: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        place, probability = drawn_if_possible(self.probabilities(inputs, mask))
        return self._named_if_any(place), probability

    @torch.jit.export
    def names(self) -> list[str]:
        return self._names_now()

    @torch.jit.export
    def name_of(self, action: Tensor) -> list[str]:
        return self._name_of_each(action)

    def _guard_values(self, reward: Tensor, noise_scale: Tensor | None) -> tuple[Tensor, Tensor]:
        like = self._like()
        reward = reward.detach().to(like.dtype)
        return reward, self._own_scale(reward) if noise_scale is None else noise_scale.detach().to(like.dtype)

    @torch.jit.export
    def step(self, inputs: Tensor | None, action: Tensor, reward: Tensor, noise_scale: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            given, rows = self._guard_given(inputs), self._dims()
            count, is_one = self._count(given), action.dim() == rows
            if count == 0:
                return torch.zeros_like(action, dtype=torch.bool)
            reward, scale = self._guard_values(reward, noise_scale)
            found, places = self._found(action, count)
            chosen = self._chosen(given, places).detach()
            learnt: list[Tensor] = []
            for i in range(1 if is_one else action.size(rows)):
                x, place, pay, noise, fit = chosen, places, reward, scale, found
                if not is_one:
                    x, place, fit = chosen.select(rows, i), places.select(rows, i), found.select(rows, i)
                    pay, noise = reward.select(rows, i), scale.select(rows, i)
                fit = fit & self._accepts(x, place, pay, None if noise_scale is None else noise)
                is_fit = bool(fit.all())
                if is_fit or bool(fit.any()):
                    before = self._guard_copies(True)
                    if not is_fit:
                        if x.is_floating_point():
                            x = torch.where(along(fit, x), x, 0.0)
                        pay, noise = torch.where(fit, pay, 0.0), torch.where(fit, noise, self._own_scale(pay))
                    if self.steps_by_itself:
                        past, k = self._as_round(x, place)
                        self._plain_step(past, k, pay, noise)
                    else:
                        self._learn_round(x, place, pay, noise)
                    fit = self._guard_settle_(before, fit, True)
                learnt.append(fit)
            return stacked(learnt, is_one, action)

    @torch.jit.export
    def learn(
        self,
        inputs: Tensor | None,
        action: Tensor,
        reward: Tensor,
        noise_scale: Tensor | None = None,
        block_size: int | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        with torch.no_grad():
            self._check_mask_of_log(mask)
            given, rows = self._guard_given(inputs), self._dims()
            count, is_one = self._count(given), action.dim() == rows
            if count == 0:
                return torch.zeros_like(action, dtype=torch.bool)
            reward, scale = self._guard_values(reward, noise_scale)
            good, places = self._found(action, count)
            x = self._chosen(given, places).detach()
            if is_one:
                x, places, good = x.unsqueeze(rows), places.unsqueeze(rows), good.unsqueeze(rows)
                reward, scale = reward.unsqueeze(rows), scale.unsqueeze(rows)
                mask = None if mask is None else mask.unsqueeze(rows)
            good = good & self._accepts(x, places, reward, None if noise_scale is None else scale)
            fit = good if mask is None else good & mask
            learnt = torch.zeros_like(fit)
            # A single learner drops refused rounds. A batch learns round by round if one of its learners refuses a round.
            at = torch.arange(good.size(-1), device=good.device)
            size = at.size(0)
            if not bool(good.all()):
                if rows == 0:
                    at = torch.nonzero(good).squeeze(-1)
                    size = at.size(0)
                else:
                    size = 1
            done = 0
            while done < at.size(0) and bool(fit.any()):
                some = at.narrow(0, done, size)
                may = fit.index_select(rows, some)
                before = self._guard_copies()
                pay, noise, one = reward.index_select(rows, some), scale.index_select(rows, some), x
                if size < fit.size(-1):
                    one = x.index_select(rows, some)
                if one.is_floating_point() and not bool(may.all()):
                    one = torch.where(along(may, one), one, 0.0)
                pay, noise = torch.where(may, pay, 0.0), torch.where(may, noise, self._own_scale(pay))
                place = places.index_select(rows, some)
                part = None if mask is None else mask.index_select(rows, some)
                if self.steps_by_itself:
                    past, k = self._as_round(one, place)
                    self._plain_step(past, k, pay, noise)
                else:
                    self._learn_rounds(one, place, pay, noise, block_size, part)
                learnt.index_copy_(rows, some, may & self._guard_settle_(before, may.any(-1)).unsqueeze(-1))
                done += size
            return learnt.squeeze(rows) if is_one else learnt


class ConvexFile(Guarded):
    """Mixin for the file of a convex learner; ``asks_values`` is ``needs_values``."""

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
    """Mixin for the file of a convex learner that takes hints."""

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
    """Mixin for the file of a learner of experts."""

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
    """Add the protecting mixin to a module's class in place, and return the module.

    The module must be a copy that is not used elsewhere. Its buffers keep their names.
    """
    mixin, told = _kind(module)
    cls = type(module)
    plain = {f"_plain_{name}": _renamed(getattr(cls, name), f"_plain_{name}") for name in PLAIN if hasattr(cls, name)}
    # TorchScript reads only the annotations of the class itself.
    own = plain | {"__annotations__": dict(inspect.get_annotations(cls)), "__module__": cls.__module__}
    # Searches for subclasses by name, as in jsonargparse, skip classes of a function.
    own["__qualname__"] = f"as_file.<locals>.{cls.__name__}"
    object.__setattr__(module, "__class__", type(cls.__name__, (mixin, cls), own))
    module.__dict__.update(told)
    lean = [part for part in module.modules() if not told.get("steps_by_itself", True) and _writes_chosen_arms(part)]
    for part in lean:
        part.__dict__.update(gathered=[], is_noting=False)
    # A step writes the batch of the arms by way of the copy of the chosen one, whose values between steps do not matter.
    not_checked = {part.policy.estimator for part in lean}
    not_kept = not_checked | {part.arm for part in lean}
    for part in module.modules():
        if not isinstance(part, Learner):
            continue
        names = evolving(part)
        lists = {
            "guarded": names,
            "guarded_integers": [name for name in names if not part.get_buffer(name).is_floating_point()],
            "kept_in_step": [] if part in not_kept else names,
            "checked_in_step": [] if part in not_checked else names,
            "unbounded_names": list(part.unbounded),
        }
        # The "" gives TorchScript a type: an empty list has none. It evaluates conditions on constants when it compiles.
        part.__dict__.update({name: ["", *some] for name, some in lists.items()})
        part.__dict__["__constants__"] = (*getattr(part, "__constants__", ()), *lists)
        if isinstance(part, BlockEstimator):
            place = part.theta_hat.device
            part.__dict__["refused"] = torch.zeros(part.batch_shape, dtype=torch.bool, device=place)
        if isinstance(part, Estimator):
            part.__dict__["smallest_noise_scale"] = float(part.smallest_noise_scale)
    return module


def _writes_chosen_arms(part: nn.Module) -> bool:
    """Return whether a step writes only the chosen arms of one :class:`DisjointArms`."""
    if not isinstance(part, DisjointArms) or part.batch_shape:
        return False
    restarts = part.scaler is not None and part.scaler.freeze_after is not None
    own = ("_learn_round", "_learn_arm", "_learn_gathered", "_replace_", "_replace_gathered", "_copy_chosen_")
    return not restarts and all(getattr(type(part), name) is getattr(DisjointArms, name) for name in own)


def _renamed(method: Any, name: str) -> Any:
    """Return the function that TorchScript compiles of a method, under another name."""
    function = inspect.unwrap(method)
    twin = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    twin.__annotations__ = function.__annotations__
    return twin


def _kind(module: nn.Module) -> tuple[type, dict[str, Any]]:
    """Return the mixin for a module and the attributes that the mixin needs."""
    if isinstance(module, ConvexLearner):
        mixin: type = HintedFile if isinstance(module, HintedLearner) else ConvexFile
        return ExpertsFile if hasattr(module, "set_available") else mixin, {"asks_values": module.needs_values}
    policy: Any = module
    # An encoder checks its inputs itself, and fixed arms have none.
    width = policy._learner().dim if policy.takes_inputs and not policy.has_encoder else -1
    return PolicyFile, {"steps_by_itself": policy.has_own_step, "width": width}
