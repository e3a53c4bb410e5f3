"""What an exported module has to do like the eager one before it is handed out: some rounds, and a verdict."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.bandits.policies import Policy
from torchonline.convex.learner import ConvexLearner
from torchonline.core.learner import Learner
from torchonline.export.programs import ConvexRound, HeadRound, Round

# How far an exported module may be from the eager one after the rounds of the check, relative to the scale of what is
# compared: all in double precision, or with a part in a lower one.
DOUBLE, LOWER = 1e-8, 1e-2
ROUNDS_CHECKED = 12


class Trial:
    """Rounds that an eager and an exported module play side by side.

    Args:
        learner: what learns in the module.
        state: one of its buffers of real numbers.
    """

    def __init__(self, learner: Learner, state: Tensor) -> None:
        self.batch, self.dim = learner.batch_shape, learner.dim
        self.options: dict[str, Any] = {"dtype": state.dtype, "device": state.device}
        self.device = state.device
        self.tolerance = DOUBLE if state.dtype == torch.float64 else LOWER

    def compare(self, eager: Any, exported: Any) -> None:
        """Play on both modules, and raise where they differ."""
        raise NotImplementedError

    def compare_rounds(self, eager: Any, program: Any) -> None:
        """Play on a module with the round in one call and on the program made of it, and raise where they differ."""
        raise NotImplementedError

    def round(self, module: Any) -> nn.Module:
        """The round in one call."""
        raise NotImplementedError

    def round_arguments(self) -> tuple[Tensor, ...]:
        """Arguments to export the round with."""
        raise NotImplementedError

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        """Which of the arguments' dimensions vary from call to call."""
        raise NotImplementedError

    def learns(self, number: int) -> Tensor:
        """Whether to learn in a round, ``(*B)``."""
        return torch.full(self.batch, number % 3 > 0, device=self.device)


@dataclass
class Decision:
    """Decisions ``(*B, N, ...)`` as ``select`` takes them, and the reward ``(*B)`` of the first."""

    inputs: Tensor
    mask: Tensor
    reward: Tensor


class PolicyTrial(Trial):
    """Rounds for a policy: random arms, of varying number."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy.estimator, policy.estimator.theta_hat)
        self.estimator = policy.estimator

    def compare(self, eager: Any, exported: Any) -> None:
        for decision in self.decisions():
            choice = seeded(eager.select, decision.inputs, decision.mask)
            agree("a choice", choice, seeded(exported.select, decision.inputs, decision.mask))
            past = self.past(decision, choice)
            eager.step(*past, decision.reward)
            exported.step(*past, decision.reward)

    def compare_rounds(self, eager: Any, program: Any) -> None:
        past = self.no_past()
        for number, decision in enumerate(self.decisions()):
            learn = self.learns(number)
            arguments = (*past, decision.reward, learn, decision.inputs, decision.mask)
            choice = seeded(eager, *arguments)
            agree("a choice", choice, played(program, learn, *arguments))
            past = self.past(decision, choice)

    def decisions(self) -> Iterator[Decision]:
        """What is played, the same each time."""
        generator = torch.Generator().manual_seed(0)
        for number in range(ROUNDS_CHECKED):
            sizes = (*self.batch, 1 + number % 3, 2 + number % 4)
            arms = torch.randn(*sizes, self.dim, generator=generator, dtype=torch.float64)
            arms = (arms * min(1.0, self.estimator.longest / float(arms.norm(dim=-1).max()))).to(**self.options)
            mask = torch.rand(sizes, generator=generator) < 0.8
            mask[..., 0] = True
            reward = torch.randn(self.batch, generator=generator, dtype=torch.float64)
            reward = self.estimator.possible_reward(reward).to(**self.options)
            yield Decision(arms, mask.to(self.device), reward)

    def past(self, decision: Decision, choice: Tensor) -> tuple[Tensor, ...]:
        """What ``step`` takes besides the reward, for the first of the decisions."""
        first = len(self.batch)
        arms, index = decision.inputs.select(first, 0), choice.select(first, 0)
        return (arms.gather(first, index[..., None, None].expand(*self.batch, 1, self.dim)).squeeze(first),)

    def no_past(self) -> tuple[Tensor, ...]:
        """What ``step`` takes besides the reward where nothing is to be learnt."""
        return (torch.zeros(*self.batch, self.dim, **self.options),)

    def round(self, module: Any) -> nn.Module:
        return Round(module)

    def round_arguments(self) -> tuple[Tensor, ...]:
        decision = next(decision for decision in self.decisions() if decision.mask.size(-2) > 1)
        learn = torch.ones(self.batch, dtype=torch.bool, device=self.device)
        return (*self.no_past(), decision.reward, learn, decision.inputs, decision.mask)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        free = {
            len(self.batch): torch.export.Dim("decisions", min=1),
            len(self.batch) + 1: torch.export.Dim("arms", min=1),
        }
        return ({}, {}, {}, free, free)


class HeadTrial(PolicyTrial):
    """Rounds for an encoder with a policy on it: variations of an example decision."""

    def __init__(self, head: Any, example: Tensor) -> None:
        super().__init__(head.policy)
        if any(tensor.dtype != torch.float64 for tensor in (example, *head.encoder.parameters())):
            self.tolerance = LOWER
        self.has_actions = head.actions is not None
        dims = len(self.batch) + (not self.has_actions) + head.feature_dims
        if example.dim() < dims:
            raise ValueError(f"example: expected a decision's inputs with {dims} dimensions, got {example.dim()}")
        while example.dim() > dims:  # many decisions: take the first
            example = example.select(len(self.batch), 0)
        self.example = example
        self.actions = len(head.actions) if self.has_actions else 0

    def decisions(self) -> Iterator[Decision]:
        first = len(self.batch)
        generator = torch.Generator().manual_seed(1)
        for decision in super().decisions():
            mask, count = decision.mask, decision.mask.size(-2)
            inputs = self.example
            if self.has_actions:
                mask = mask[..., :1].expand(*mask.shape[:-1], self.actions)
            else:
                inputs = inputs.index_select(
                    first, torch.arange(mask.size(-1), device=self.device) % inputs.size(first)
                )
            inputs = inputs.unsqueeze(first).repeat_interleave(count, first)
            if inputs.is_floating_point():
                noise = torch.randn(inputs.shape, generator=generator, dtype=torch.float64).to(inputs)
                inputs = inputs + noise * self.example.abs().mean()
            yield Decision(inputs, mask, decision.reward)

    def past(self, decision: Decision, choice: Tensor) -> tuple[Tensor, ...]:
        first = len(self.batch)
        return decision.inputs.select(first, 0), choice.select(first, 0)

    def no_past(self) -> tuple[Tensor, ...]:
        return torch.zeros_like(self.example), torch.zeros(self.batch, dtype=torch.int64, device=self.device)

    def round(self, module: Any) -> nn.Module:
        return HeadRound(module)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        first = len(self.batch)
        decisions, arms = (torch.export.Dim(name, min=1) for name in ("decisions", "arms"))
        if self.has_actions:
            return ({}, {}, {}, {}, {first: decisions}, {first: decisions})
        past = {first: torch.export.Dim("past_arms", min=1)}
        return (past, {}, {}, {}, {first: decisions, first + 1: arms}, {first: decisions, first + 1: arms})


class ConvexTrial(Trial):
    """Rounds for a convex learner: quadratic losses about random points."""

    def __init__(self, learner: ConvexLearner) -> None:
        super().__init__(learner, learner.decision)
        self.points = learner.points

    def compare(self, eager: Any, exported: Any) -> None:
        for centre in self.centres():
            agree("a decision", eager.predict(), exported.predict(), self.tolerance)
            queries = eager.queries()
            agree("a query", queries, exported.queries(), self.tolerance)
            past = self.past(queries, centre)
            eager.step(*past)
            exported.step(*past)

    def compare_rounds(self, eager: Any, program: Any) -> None:
        queries = eager.learner.queries()
        for number, centre in enumerate(self.centres()):
            learn = self.learns(number)
            arguments = (*self.past(queries, centre), learn)
            decision, queries = eager(*arguments)
            theirs = played(program, learn, *arguments)
            agree("a decision", decision, theirs[0], self.tolerance)
            agree("a query", queries, theirs[1], self.tolerance)

    def centres(self) -> Iterator[Tensor]:
        """Where the losses are 0, ``(*B, 1, d)``, the same each time."""
        generator = torch.Generator().manual_seed(0)
        for _ in range(ROUNDS_CHECKED):
            yield torch.randn((*self.batch, 1, self.dim), generator=generator, dtype=torch.float64).to(**self.options)

    def past(self, queries: Tensor, centre: Tensor) -> tuple[Tensor, ...]:
        """The gradients and values of a loss at the queries."""
        gradients = queries - centre
        return gradients, 0.5 * (gradients * gradients).sum(-1)

    def round(self, module: Any) -> nn.Module:
        return ConvexRound(module)

    def round_arguments(self) -> tuple[Tensor, ...]:
        gradients = torch.zeros((*self.batch, self.points, self.dim), **self.options)
        return gradients, gradients[..., 0].clone(), torch.ones(self.batch, dtype=torch.bool, device=self.device)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        return ({}, {}, {})


def trial_of(module: nn.Module, example: Tensor | None) -> Trial:
    """The trial that fits a module; ``example`` is a decision's inputs, for a head."""
    if isinstance(module, Policy):
        return PolicyTrial(module)
    if isinstance(module, ConvexLearner):
        return ConvexTrial(module)
    if not isinstance(getattr(module, "policy", None), Policy):
        raise TypeError(
            f"module: expected a Policy, a head with a policy on it or a ConvexLearner, got {type(module).__name__}"
        )
    if example is None:
        raise ValueError("example: expected the inputs of a decision, which a head needs; got None")
    return HeadTrial(module, example)


def seeded(function: Any, *arguments: Tensor) -> Any:
    """Call with the same random draws each time, and leave the global ones alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return function(*arguments)


def played(program: Any, learn: Tensor, *arguments: Tensor) -> Any:
    """What a program returns; raise if it learns where nobody is to, by ``learn``."""
    before = {name: buffer.clone() for name, buffer in program.named_buffers()}
    result = seeded(program, *arguments)
    if not bool(learn.any()) and not all(torch.equal(before[name], buffer) for name, buffer in program.named_buffers()):
        raise RuntimeError("export: the program learnt in a round with learn=False")
    return result


def agree(what: str, ours: Tensor, theirs: Tensor, tolerance: float = 0.0) -> None:
    """Raise unless the two are equal, up to ``tolerance`` times their scale."""
    one, other = ours.double(), theirs.double()
    finite = one[one.isfinite()].abs()  # where infinity is meant, it is equal
    scale = 1.0 + (finite.max().item() if finite.numel() else 0.0)
    if one.shape != other.shape or not bool(((one == other) | ((one - other).abs() <= tolerance * scale)).all()):
        raise RuntimeError(f"export: {what} differs between the eager and the exported module: {ours} and {theirs}")


def agree_on_state(eager: nn.Module, theirs: dict[str, Tensor], tolerance: float) -> None:
    """Raise unless each buffer of the eager module is there, and equal where the rounds determine it."""
    loose = undetermined(eager)
    for name, buffer in eager.named_buffers():
        if name not in theirs:
            raise RuntimeError(f"export: the exported module has no buffer {name}")
        if name not in loose:
            agree(f"buffer {name}", buffer, theirs[name], tolerance if buffer.is_floating_point() else 0.0)


def undetermined(module: nn.Module) -> set[str]:
    """The names of a module's buffers that rounding decides."""
    learners = {path: part for path, part in module.named_modules() if isinstance(part, Learner)}
    return {f"{path}.{name}".lstrip(".") for path, part in learners.items() for name in part.undetermined}
