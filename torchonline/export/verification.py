"""Verification of an exported module against its eager original, round by round."""

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim

from torchonline.convex.learner import ConvexLearner
from torchonline.core.generators import OwnDraws
from torchonline.core.learner import Learner
from torchonline.core.ops import of_chosen
from torchonline.export.programs import BlockRound, ConvexRound, FixedRound, Round
from torchonline.export.runner import Runner
from torchonline.policies.catalogue_arms import CatalogueArms
from torchonline.policies.fixed_arms import FixedArms
from torchonline.policies.policy import Policy
from torchonline.regression.glm.local import LocalGLMRegression

# Tolerances relative to the scale of the compared values: all in double precision, or some in lower precision.
DOUBLE, LOWER = 1e-8, 1e-2
ROUNDS_CHECKED = 12


class Decision(NamedTuple):
    """Decisions ``(*B, N, ...)`` for ``select``, and their rewards ``(*B, N)``."""

    inputs: Tensor
    mask: Tensor
    reward: Tensor


class Trial:
    """Base class of trials: rounds that an eager and an exported module both play."""

    round: type[nn.Module]  # the module that one call of a program runs

    def __init__(self, learner: Learner, state: Tensor) -> None:
        self.batch, self.dim, self.device = learner.batch_shape, learner.dim, state.device
        self.options: dict[str, Any] = {"dtype": state.dtype, "device": state.device}
        self.tolerance = DOUBLE if state.dtype == torch.float64 else LOWER

    def learns(self, number: int = 1) -> Tensor:
        """Return whether to learn in a round, ``(*B)``."""
        return torch.full(self.batch, number % 3 > 0, device=self.device)

    def named(self, values: tuple[Any, ...]) -> dict[str, Any]:
        """Return what belongs to each argument of a round, by the argument's name."""
        names = list(inspect.signature(self.round.forward).parameters)[1:]
        return dict(zip(names, values, strict=False))


class PolicyTrial(Trial):
    """Rounds for a policy: variations of an example decision.

    Args:
        policy: the policy.
        example: the inputs of a decision; None for arms or contexts of its ``dim``.
        blocks: whether programs learn a block of rounds in a call.
        noise_scale: whether programs take the noise scale of each round.
    """

    def __init__(
        self, policy: Policy, example: Tensor | None = None, blocks: bool = False, noise_scale: bool = False
    ) -> None:
        super().__init__(policy.learner, policy.estimator.theta_hat)
        self.estimator, self.blocks, self.has_scales = policy.estimator, blocks, noise_scale
        self.round = BlockRound if blocks else Round
        # A program restarts at most once in a call.
        self.longest_block = policy.estimator.restart_every
        self.longest = self.estimator.longest if example is None else math.inf
        if example is None:
            sizes = (*self.batch, *(3,) * (policy.item_dims - 1), self.dim)
            generator = torch.Generator().manual_seed(2)
            example = torch.randn(sizes, generator=generator, dtype=torch.float64).to(**self.options)
        if any(part.dtype != torch.float64 for part in (example, *policy.parameters())):
            self.tolerance = LOWER
        dims = len(self.batch) + policy.item_dims
        if example.dim() < dims:
            raise ValueError(f"example: expected a decision's inputs with {dims} dimensions, got {example.dim()}")
        while example.dim() > dims:  # several decisions: take the first
            example = example.select(len(self.batch), 0)
        self.example = example
        # K, or None if it varies.
        self.actions = None if policy.has_arm_inputs else policy._count(example)
        # Dimensions of one item that vary if the encoder allows it, such as the length of a text.
        # Those of vectors do not; and with K = 0, torch's guards on varying sizes of arms fail.
        is_text, is_image = not example.is_floating_point(), policy.item_dims > 1 and not policy.has_arm_inputs
        sizes = example.shape[len(self.batch) :] if policy.has_encoder and (is_text or is_image) else ()
        self.axes = [axis for axis, size in enumerate(sizes) if size > 1]
        # Whether the length of an item varies.
        self.pads = getattr(policy, "pads", False)

    def items(self) -> Tensor:
        """Return the example as a batch of the encoder, which may have an axis of arms."""
        lead = len(self.batch) + (self.actions is None)
        return self.example.flatten(0, lead - 1) if lead else self.example.unsqueeze(0)

    def compare(self, eager: Any, exported: Any) -> None:
        """Play both modules. Raise a RuntimeError if their results differ."""
        for number, decision in enumerate(self.decisions()):
            if self.pads:
                length = max(3, decision.inputs.size(-1)) - number % 3
                decision = decision._replace(inputs=torch.cat([decision.inputs] * 3, -1)[..., :length])
            choice = seeded(eager.select, decision.inputs, decision.mask)
            if isinstance(exported, Runner):
                shares = seeded(eager.probabilities, decision.inputs, decision.mask)
                theirs = seeded(exported.probabilities, decision.inputs, decision.mask)
                agree("a probability", shares, theirs, self.tolerance)
            if not isinstance(exported, Runner) or "select" in exported.functions:
                agree("a choice", choice, seeded(exported.select, decision.inputs, decision.mask))
            past = self.past(decision, choice)
            first = self.first(past)
            scales = by_name(self.scales(first[-1], number))
            eager.step(*first, **scales)
            agree_on_all(exported.step(*first, **scales))
            if number % 2 and hasattr(exported, "learn"):
                eager.learn(*past)
                agree_on_all(exported.learn(*past))
        nan = self.first((*past[:-1], torch.full_like(past[-1], torch.nan)))
        check_poison(exported, lambda: exported.step(*nan, **scales))

    def compare_rounds(self, eager: Any, program: Any) -> None:
        """Play an eager round module and its program. Raise if their results differ."""
        make_blind(eager)
        past = self.no_past(1)
        for number, decision in enumerate(self.decisions()):
            learn = self.learns(number, past[-1])
            arguments = (*past, learn, decision.inputs, decision.mask, *self.scales(past[-1], number))
            choice, learnt = seeded(eager, *arguments)
            theirs = played(program, learn, *arguments)
            agree("a choice", choice, theirs[0])
            agree("what was learnt", learnt, theirs[1])
            past = self.past(decision, choice)
            past = self.most(past) if self.blocks else self.first(past)
        check_refusal(program, arguments)

    def decisions(self) -> Iterator[Decision]:
        """Yield the decisions of the trial, the same each time."""
        first, generator = len(self.batch), torch.Generator().manual_seed(0)
        for number in range(ROUNDS_CHECKED):
            count, arms = 1 + (7 if self.blocks else 1) * (number % 3), self.actions or 2 + number % 4
            inputs = self.example
            if self.actions is None:
                inputs = inputs.index_select(first, torch.arange(arms, device=self.device) % inputs.size(first))
            inputs = inputs.unsqueeze(first).repeat_interleave(count, first)
            if inputs.is_floating_point():
                noise = torch.randn(inputs.shape, generator=generator, dtype=torch.float64).to(inputs)
                inputs = inputs + noise * self.example.abs().nanmean().nan_to_num()  # NaN is a gap, and stays
                inputs = inputs * min(1.0, self.longest / max(float(inputs.norm(dim=-1).max()), 1e-300))
            mask = torch.rand((*self.batch, count, arms), generator=generator) < 0.8
            mask[..., 0] = True
            reward = torch.randn(mask.shape[:-1], generator=generator, dtype=torch.float64)
            reward = self.estimator.possible_reward(reward).to(**self.options)
            yield Decision(inputs, mask.to(self.device), reward)

    def learns(self, number: int = 1, reward: Tensor | None = None) -> Tensor:
        """Return whether to learn in a round, shaped like its rewards if it is a block."""
        learn = super().learns(number)
        if reward is None or not self.blocks:
            return learn
        generator = torch.Generator().manual_seed(number)
        return learn.unsqueeze(-1) & (torch.rand(reward.shape, generator=generator) < 0.8).to(self.device)

    def past(self, decision: Decision, choice: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments of ``learn`` for all decisions."""
        return decision.inputs, choice, decision.reward

    def first(self, past: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the first of the rounds, as arguments of ``step``."""
        return tuple(value.select(len(self.batch), 0) for value in past)

    def most(self, past: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return as many of the rounds as a block may have."""
        first = len(self.batch)
        rows = min(past[-1].size(-1), self.longest_block or past[-1].size(-1))
        return tuple(value.narrow(first, 0, rows) for value in past)

    def scales(self, reward: Tensor, number: int = 0) -> tuple[Tensor, ...]:
        """Return the noise scales of rounds, if the program takes them."""
        return ((1.0 + number % 3) * self.estimator._own_scale(reward),) if self.has_scales else ()

    def no_past(self, rounds: int) -> tuple[Tensor, ...]:
        """Return arguments of ``learn`` for rounds that are not learnt."""
        past, first = torch.zeros_like(self.example), len(self.batch)
        reward = torch.zeros((*self.batch, rounds) if self.blocks else self.batch, **self.options)
        if self.blocks:
            past = past.unsqueeze(first).repeat_interleave(rounds, first)
        return past, torch.zeros_like(reward, dtype=torch.int64), reward

    def round_arguments(self) -> tuple[Tensor, ...]:
        """Return example arguments for the export of a round."""
        decision = next(decision for decision in self.decisions() if decision.mask.size(-2) > 1)
        past = self.no_past(7)
        past = self.most(past) if self.blocks else past
        return (*past, self.learns(1, past[-1]), decision.inputs, decision.mask, *self.scales(past[-1]))

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        """Return the dimensions of the arguments that vary between calls."""
        first = len(self.batch)
        past: dict[int, Any] = {first + self.blocks + i: Dim.AUTO for i in self.axes} | self.rounds_vary()
        free: dict[int, Any] = {first + 1 + i: Dim.AUTO for i in self.axes} | {first: Dim("decisions", min=1)}
        if self.actions is None:
            past[first + self.blocks] = Dim("past_arms", min=1)
            free[first + 1] = Dim("arms", min=0)
        of_mask = {dim: size for dim, size in free.items() if size is not Dim.AUTO}
        return (past, *3 * (self.rounds_vary(),), free, of_mask, *self.scale_shapes())

    def scale_shapes(self) -> tuple[dict[int, Any], ...]:
        """Return the dimensions of noise scales that vary between calls."""
        return (self.rounds_vary(),) if self.has_scales else ()

    def rounds_vary(self) -> dict[int, Any]:
        """Return the dimension of a block's rounds if it varies."""
        varies = self.blocks and self.longest_block != 1
        return {len(self.batch): Dim("rounds", min=1, max=self.longest_block)} if varies else {}


class FixedTrial(Trial):
    """Rounds for a fixed catalogue of arms."""

    round = FixedRound

    def __init__(self, arms: FixedArms, noise_scale: bool = False) -> None:
        super().__init__(arms, arms.arms)
        self.count, self.estimator, self.has_scales = arms.arms.size(-2), arms.estimator, noise_scale

    def compare(self, eager: Any, exported: Any) -> None:
        for number, (mask, reward) in enumerate(self.decisions()):
            choice = seeded(eager.select, None, mask)
            agree("a score", eager(), exported(), self.tolerance)
            self.agree_on_choice(eager, eager(), choice, seeded(exported.select, None, mask))
            scales = by_name(self.scales(reward, number))
            eager.step(None, choice, reward, **scales)
            agree_on_all(exported.step(None, choice, reward, **scales))
        check_poison(exported, lambda: exported.step(None, choice, torch.full_like(reward, torch.nan), **scales))

    def compare_rounds(self, eager: Any, program: Any) -> None:
        choice = self.round_arguments()[0]
        for number, (mask, reward) in enumerate(self.decisions()):
            learn = self.learns(number)
            arguments = (choice, reward, learn, mask, *self.scales(reward, number))
            choice, learnt = seeded(eager, *arguments)
            theirs = played(program, learn, *arguments)
            self.agree_on_choice(eager.policy, eager.policy(), choice, theirs[0])
            agree("what was learnt", learnt, theirs[1])
        check_refusal(program, arguments)

    def agree_on_choice(self, arms: FixedArms, scores: Tensor, ours: Tensor, theirs: Tensor) -> None:
        """Raise if choices differ, unless their scores agree up to rounding."""
        # At first, arms of equal length have equal scores.
        chosen = (of_chosen(scores, arms._placed(choice)) for choice in (ours, theirs))
        one, other = (torch.where(ours == theirs, 0.0, score) for score in chosen)
        agree("a choice", one, other, self.tolerance)

    def decisions(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield masks and rewards, the same each time."""
        generator = torch.Generator().manual_seed(0)
        for _ in range(ROUNDS_CHECKED):
            mask = torch.rand((*self.batch, self.count), generator=generator) < 0.8
            mask[..., 0] = True
            reward = torch.randn(self.batch, generator=generator, dtype=torch.float64)
            yield mask.to(self.device), self.estimator.possible_reward(reward).to(**self.options)

    def round_arguments(self) -> tuple[Tensor, ...]:
        """Return example arguments for the export of a round."""
        mask, reward = next(self.decisions())
        action = torch.zeros(self.batch, dtype=torch.int64, device=self.device)
        return action, reward, self.learns(), mask, *self.scales(reward)

    def scales(self, reward: Tensor, number: int = 0) -> tuple[Tensor, ...]:
        """Return the noise scales of a round, if the program takes them."""
        return ((1.0 + number % 3) * self.estimator._own_scale(reward),) if self.has_scales else ()

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        return ({}, {}, {}, {}, *(({},) if self.has_scales else ()))


class ConvexTrial(Trial):
    """Rounds for a convex learner: quadratic losses about random points."""

    round = ConvexRound

    def __init__(self, learner: ConvexLearner) -> None:
        super().__init__(learner, learner.decision)
        self.points = learner.points

    def compare(self, eager: Any, exported: Any) -> None:
        for centre in self.centres():
            agree("a decision", eager.predict(), exported.predict(), self.tolerance)
            queries = eager.queries()
            agree("a query", queries, exported.queries(), self.tolerance)
            eager.step(*self.past(queries, centre))
            agree_on_all(exported.step(*self.past(queries, centre)))
        check_poison(exported, lambda: exported.step(*self.past(queries, torch.full_like(centre, torch.nan))))

    def compare_rounds(self, eager: Any, program: Any) -> None:
        queries = eager.learner.queries()
        for number, centre in enumerate(self.centres()):
            learn = self.learns(number)
            arguments = (*self.past(queries, centre), learn)
            decision, queries, learnt = eager(*arguments)
            theirs = played(program, learn, *arguments)
            agree("a decision", decision, theirs[0], self.tolerance)
            agree("a query", queries, theirs[1], self.tolerance)
            agree("what was learnt", learnt, theirs[2])
        check_refusal(program, arguments)

    def centres(self) -> Iterator[Tensor]:
        """Yield the minimisers of the losses, ``(*B, 1, d)``, the same each time."""
        generator = torch.Generator().manual_seed(0)
        for _ in range(ROUNDS_CHECKED):
            yield torch.randn((*self.batch, 1, self.dim), generator=generator, dtype=torch.float64).to(**self.options)

    def past(self, queries: Tensor, centre: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients and values of a loss at the queries."""
        gradients = queries - centre
        return gradients, 0.5 * (gradients * gradients).sum(-1)

    def round_arguments(self) -> tuple[Tensor, ...]:
        gradients = torch.zeros((*self.batch, self.points, self.dim), **self.options)
        return gradients, gradients[..., 0].clone(), self.learns()

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        return ({}, {}, {})


def trial_of(
    module: nn.Module, example: Tensor | None, blocks: bool = False, noise_scale: bool = False
) -> PolicyTrial | FixedTrial | ConvexTrial:
    """Return the trial for a module. An encoder needs ``example``, raw inputs."""
    if isinstance(module, ConvexLearner):
        if noise_scale:
            got = type(module).__name__
            raise ValueError(f"noise_scale: expected False, got True, but {got} takes no noise scale")
        return ConvexTrial(module)
    check_kind(module)
    policy: Any = module
    if not policy.takes_inputs:
        return FixedTrial(policy, noise_scale)
    if policy.has_encoder and example is None:
        raise ValueError("example: expected the inputs of a decision, which an encoder needs; got None")
    if policy.has_encoder and not isinstance(example, Tensor):
        example = policy._given_tensor(example)
    return PolicyTrial(policy, example, blocks, noise_scale)


def check_kind(module: Any) -> None:
    """Refuse a module that is not a policy or convex learner. Name a part that is."""
    if not isinstance(module, (Policy, ConvexLearner)):
        parts = module.named_modules() if isinstance(module, nn.Module) else ()
        path = next((path for path, part in parts if isinstance(part, (Policy, ConvexLearner))), None)
        instead = "" if path is None else f"; give its .{path}"
        raise TypeError(f"module: expected a Policy or a ConvexLearner, got {type(module).__name__}{instead}")


def by_name(scales: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Return a round's noise scale, if there is one, by its argument's name."""
    return {"noise_scale": scales[0]} if scales else {}


def make_blind(eager: nn.Module) -> None:
    """Give an eager module the fixed number of Newton steps of programs.

    These may be too few far from the minimum.
    """
    for part in eager.modules():
        if isinstance(part, LocalGLMRegression):
            part.block_steps = part.blind_steps


def refuse_python(module: Any, name: str, is_program: bool = False) -> None:
    """Refuse learners that cannot be compiled or, for a program, exported."""
    for part in module.modules() if isinstance(module, nn.Module) else ():
        if not isinstance(part, (Learner, CatalogueArms)):
            continue
        got = type(part).__name__
        if is_program and not part.is_exportable:
            way_out = "to_torchscript accepts it" if part.is_scriptable else "it runs in Python only"
            raise ValueError(f"{name}: expected learners that torch.export can trace, got {got}; {way_out}")
        if not part.is_scriptable:
            raise ValueError(f"{name}: expected learners that can be compiled, got {got}, which runs in Python only")


def seeded(function: Any, *arguments: Any) -> Any:
    """Call a function with a fixed seed and a separate generator."""
    with OwnDraws():
        return function(*arguments)


def played(program: Any, learn: Tensor, *arguments: Tensor) -> Any:
    """Return a program's result. Raise if it learns although ``learn`` is all False."""
    before = {name: buffer.clone() for name, buffer in program.named_buffers()}
    result = seeded(program, *arguments)
    if not bool(learn.any()) and not all(_same(before[name], buffer) for name, buffer in program.named_buffers()):
        raise RuntimeError("export: the program learnt in a round with learn=False")
    return result


def check_refusal(program: Any, arguments: tuple[Tensor, ...]) -> None:
    """Raise unless a program ignores a round of NaN and reports it as not learnt."""
    poison = [torch.full_like(x, torch.nan) if x.is_floating_point() else x | x.new_ones(()) for x in arguments]
    check_poison(program, lambda: seeded(program, *poison)[-1])


def state_of_file(module: Any) -> dict[str, Tensor]:
    """Return the buffers of an exported module, or the state of a runner."""
    return module.state if isinstance(module, Runner) else dict(module.named_buffers())


def check_poison(module: Any, learn: Callable[[], Tensor]) -> None:
    """Raise unless ``learn`` changes no buffer and returns all False."""
    before = {name: buffer.clone() for name, buffer in state_of_file(module).items()}
    learnt = learn()
    after = state_of_file(module)
    if bool(learnt.any()) or not all(_same(old, after[name]) for name, old in before.items()):
        raise RuntimeError("export: the exported module learnt from NaN")


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal, also where they are NaN."""
    return bool(((one == other) | ((one != one) & (other != other))).all())


def agree_on_all(learnt: Tensor) -> None:
    """Raise unless the exported module learnt every round of the eager module."""
    if not bool(learnt.all()):
        raise RuntimeError("export: the exported module refused a round that the eager module learnt")


def agree(what: str, ours: Tensor, theirs: Tensor, tolerance: float = 0.0) -> None:
    """Raise unless the two are equal up to ``tolerance`` times their scale."""
    one, other = ours.double(), theirs.double()
    finite = one[one.isfinite()].abs()  # infinite entries must be equal
    scale = 1.0 + (finite.max().item() if finite.numel() else 0.0)
    # An encoder's buffers may be NaN.
    options: Any = {"rtol": 0.0, "atol": tolerance * scale, "equal_nan": True}
    if one.shape != other.shape or not bool(torch.isclose(one, other, **options).all()):
        raise RuntimeError(f"export: {what} differs between the eager and the exported module: {ours} and {theirs}")


def agree_on_state(eager: nn.Module, theirs: dict[str, Tensor], tolerance: float) -> None:
    """Raise if a buffer is missing, or differs although the rounds determine it."""
    loose = undetermined(eager)
    for name, buffer in eager.named_buffers():
        if name not in theirs:
            raise RuntimeError(f"export: the exported module has no buffer {name}")
        if name not in loose:
            agree(f"buffer {name}", buffer, theirs[name], tolerance if buffer.is_floating_point() else 0.0)


def undetermined(module: nn.Module) -> set[str]:
    """Return the names of buffers that the rounds do not determine uniquely."""
    learners = {path: part for path, part in module.named_modules() if isinstance(part, Learner)}
    return {f"{path}.{name}".lstrip(".") for path, part in learners.items() for name in part.undetermined}
