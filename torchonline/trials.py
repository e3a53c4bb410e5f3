"""What an exported module has to do like the eager one before it is handed out: decisions of varying size, and a verdict."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.bandits.policies import Policy
from torchonline.rounds import HeadRound, Round

# How far an exported module may be from the eager one after the rounds of the check, relative to the scale of what is
# compared: all in double precision, or with a part in a lower one.
DOUBLE, LOWER = 1e-8, 1e-2
ROUNDS_CHECKED = 12


@dataclass
class Decision:
    """Decisions ``(*B, N, ...)`` as ``select`` takes them, and the reward ``(*B)`` of the first."""

    inputs: Tensor
    mask: Tensor
    reward: Tensor


class PolicyTrial:
    """Rounds for a policy: random arms."""

    def __init__(self, policy: Policy) -> None:
        self.estimator = policy.estimator
        state = self.estimator.theta_hat
        self.batch, self.dim = self.estimator.batch_shape, self.estimator.dim
        self.options: dict[str, Any] = {"dtype": state.dtype, "device": state.device}
        self.device = state.device
        self.tolerance = DOUBLE if state.dtype == torch.float64 else LOWER

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

    def round(self, policy: Any) -> nn.Module:
        """The round in one call."""
        return Round(policy)

    def round_arguments(self) -> tuple[Tensor, ...]:
        """Arguments to export the round with."""
        decision = next(decision for decision in self.decisions() if decision.mask.size(-2) > 1)
        learn = torch.ones(self.batch, dtype=torch.bool, device=self.device)
        return (*self.no_past(), decision.reward, learn, decision.inputs, decision.mask)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        """Which of the arguments' dimensions vary from call to call."""
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

    def round(self, head: Any) -> nn.Module:
        return HeadRound(head)

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        first = len(self.batch)
        decisions, arms = (torch.export.Dim(name, min=1) for name in ("decisions", "arms"))
        if self.has_actions:
            return ({}, {}, {}, {}, {first: decisions}, {first: decisions})
        past = {first: torch.export.Dim("past_arms", min=1)}
        return (past, {}, {}, {}, {first: decisions, first + 1: arms}, {first: decisions, first + 1: arms})


def trial_of(module: nn.Module, example: Tensor | None) -> PolicyTrial:
    """The trial that fits a module; ``example`` is a decision's inputs, for a head."""
    if isinstance(module, Policy):
        return PolicyTrial(module)
    if not isinstance(getattr(module, "policy", None), Policy):
        raise TypeError(f"module: expected a Policy or a head with a policy on it, got {type(module).__name__}")
    if example is None:
        raise ValueError("example: expected the inputs of a decision, which a head needs; got None")
    return HeadTrial(module, example)


def seeded(function: Any, *arguments: Tensor) -> Tensor:
    """Call with the same random draws each time, and leave the global ones alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return function(*arguments)


def agree(what: str, ours: Tensor, theirs: Tensor, tolerance: float = 0.0) -> None:
    """Raise unless the two are equal, up to ``tolerance`` times their scale."""
    one, other = ours.double(), theirs.double()
    scale = 1.0 + one.abs().max().item()
    if one.shape != other.shape or not bool(((one - other).abs() <= tolerance * scale).all()):
        raise RuntimeError(f"export: {what} differs between the eager and the exported module: {ours} and {theirs}")


def agree_on_state(eager: nn.Module, theirs: dict[str, Tensor], tolerance: float) -> None:
    """Raise unless each buffer of the eager module is there and equal."""
    for name, buffer in eager.named_buffers():
        if name not in theirs:
            raise RuntimeError(f"export: the exported module has no buffer {name}")
        agree(f"buffer {name}", buffer, theirs[name], tolerance if buffer.is_floating_point() else 0.0)
