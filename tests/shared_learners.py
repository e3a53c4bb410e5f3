"""What the ranks of a process group learn, and what one process learns of the same rounds, for tests/ranks.py."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests import composed_policies, convex_learners, learners, private_learners
from torchonline import SharedRadiusSelector, StandardScaler
from torchonline.distributed import SharedLearner
from torchonline.distributed.rounds import few
from torchonline.distributed.sums import shares_of
from torchonline.policies.composed import ComposedPolicy
from torchonline.policies.disjoint import DisjointArms
from torchonline.policies.scaled import ScaledPolicy
from torchonline.privacy import prefix_sum

D = torch.float64
# The numbers of rounds of four ranks between syncs: equal, unequal, some without, all without, one alone, many.
SHARES = ((3, 3, 3, 3), (5, 2, 0, 7), (0, 4, 1, 0), (0, 0, 0, 0), (0, 9, 0, 0), (40, 11, 30, 2))

# The arguments of `step` for one round or several.
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Shared:
    """A learner to share, and its rounds.

    ``build`` takes the options of all learners. ``draw`` returns rounds, ``(*B, n, ...)``, from a generator and their number.
    ``is_log`` says that one process may join rounds, and learn them by ``learn``.
    """

    name: str
    build: Callable[..., Any]
    draw: Callable[..., Arguments]
    is_log: bool = True

    def rounds(self, sync: int, rank: int, rows: int, batch_shape: tuple[int, ...] = ()) -> Arguments:
        """The rounds of a rank before a sync, the same whoever asks. Every other rank names no noise scales."""
        found = self.draw(torch.Generator().manual_seed(1000 * sync + rank), rows, batch_shape)
        if sync == 1 and rank % 2:
            found.pop("noise_scale", None)
        return found


def calls(shared: Shared, rounds: Arguments, dims: int) -> Iterator[Arguments]:
    """Yield the arguments of calls of ``observe``: two rounds one by one, and the others at once where that may be."""
    rows = next(iter(rounds.values())).size(dims)
    single = rows if shared.name.startswith("convex") else min(2, rows)
    for i in range(single):
        yield {name: value.select(dims, i) for name, value in rounds.items()}
    if rows > single:
        yield {name: value.narrow(dims, single, rows - single) for name, value in rounds.items()}


def together(case: Shared, rank: int, world: int, way: str, batch_shape: tuple[int, ...] = (), **options: Any) -> Any:
    """The learner that the ranks share, after all syncs."""
    shared = SharedLearner(case.build(batch_shape=batch_shape, **options), learn_on=way)
    for sync, shares in enumerate(SHARES):
        rows = shares[rank]
        for arguments in calls(case, case.rounds(sync, rank, rows, batch_shape), len(batch_shape)):
            shared.observe(**arguments)
        expect(shared.pending, rows)
        expect(shared.sync(), sum(shares[:world]))
        expect(shared.pending, 0)
    return shared.policy


def alone(case: Shared, world: int, batch_shape: tuple[int, ...] = (), **options: Any) -> Any:
    """A learner that learns in one process what the ranks learn by ``"leader"`` or ``"all"``."""
    policy, dims = case.build(batch_shape=batch_shape, **options), len(batch_shape)
    for sync, shares in enumerate(SHARES):
        parts = [case.rounds(sync, rank, shares[rank], batch_shape) for rank in range(world)]
        if case.is_log:
            learn = (
                policy.step if sum(shares[:world]) <= few(getattr(policy, "estimator", policy).dim) else policy.learn
            )
            learn(**joined(policy, parts, dims))
            continue
        for part in parts:
            for arguments in calls(case, part, dims):
                policy.step(**arguments)
    return policy


def alone_in_blocks(case: Shared, world: int, batch_shape: tuple[int, ...] = (), **options: Any) -> Any:
    """A learner that learns in one process what the ranks learn by ``"sums"``: the same blocks."""
    policy, dims = case.build(batch_shape=batch_shape, **options), len(batch_shape)
    for sync, shares in enumerate(SHARES):
        parts = [case.rounds(sync, rank, shares[rank], batch_shape) for rank in range(world)]
        left, first = list(shares[:world]), [0] * world
        while sum(left) > 0:
            size = min(rows_of_block(policy), sum(left))
            own = shares_of(left, size)
            block = [
                {name: value.narrow(dims, start, rows) for name, value in part.items()}
                for part, start, rows in zip(parts, first, own, strict=True)
            ]
            policy.learn(**joined(policy, block, dims), block_size=size)
            first = [start + rows for start, rows in zip(first, own, strict=True)]
            left = [rest - rows for rest, rows in zip(left, own, strict=True)]
    return policy


def rows_of_block(policy: Any) -> int:
    """The size of the next block: of an eighth of the rounds, at least d for each model, and no longer than an epoch."""
    estimator = learners.estimator_of(policy)
    learnt = int((policy if isinstance(policy, DisjointArms) else estimator).rounds.min())
    models = policy.actions if isinstance(policy, DisjointArms) else 1
    size = max(models * estimator.dim, learnt // 8)
    return size if estimator.restart_every is None else min(size, estimator.restart_every - int(estimator.rounds.max()))


def joined(policy: Any, parts: Sequence[Arguments], dims: int) -> Arguments:
    """Rounds of several ranks in order. Noise scales that some ranks have not named are the constructor's."""
    learner, found = learner_of(policy), {}
    for name in dict.fromkeys(name for part in parts for name in part):
        columns = [part[name] if name in part else learner._own_scale(part[learner.response]) for part in parts]
        found[name] = torch.cat(columns, dims)
    return found


def learner_of(policy: Any) -> Any:
    """The learner whose buffers are a policy's state."""
    return getattr(policy, "learner", policy)


def difference(one: Any, other: Any) -> float:
    """The largest difference of two states, relative where numbers are large; 0 if they are equal bit for bit."""
    worst = 0.0
    pairs = zip(learner_of(one).state().items(), learner_of(other).state().values(), strict=True)
    for (name, mine), theirs in pairs:
        if not torch.equal(mine, theirs) and name.rpartition(".")[-1] != "tag":
            gap = (mine.double() - theirs.double()).abs() / theirs.double().abs().clamp(min=1.0)
            worst = max(worst, float(gap.max()))
    return worst


def expect(found: Any, wanted: Any) -> None:
    """Raise unless two values are equal, in every process alike."""
    if found != wanted:
        raise AssertionError(f"{found!r}, not {wanted!r}")


# Bandits on features.


def rows_for(case: learners.Case) -> Any:
    """What draws rounds of an estimator, or of a policy over it: then the features are those of the only arms."""

    def draw(generator: torch.Generator, rows: int, batch_shape: tuple[int, ...]) -> Arguments:
        x = 0.5 * torch.randn(*batch_shape, rows, learners.DIM, generator=generator, dtype=D)
        shape = (*batch_shape, rows, *case.output_shape)
        response = case.possible(torch.randn(shape, generator=generator, dtype=D))
        scale = 0.5 + torch.rand(shape, generator=generator, dtype=D)
        rest = {case.response: response, "noise_scale": scale}
        if not case.decides:
            return {"x": x} | rest
        return {"inputs": x.unsqueeze(-2), "action": torch.zeros(*batch_shape, rows, dtype=torch.int64)} | rest

    return draw


def bandits(cases: Sequence[learners.Case]) -> list[Shared]:
    return [Shared(str(case), case.build, rows_for(case)) for case in cases]


ESTIMATORS = bandits(learners.MODELS)
# Each policy once: they share the update of their estimator.
POLICIES = bandits(list({case.cls: case for case in learners.POLICIES}.values()))


# Learners made of a policy and a scaler.


def contexts_for(case: composed_policies.Case) -> Any:
    possible = case.build().estimator.possible_reward
    shape = case.item

    def draw(generator: torch.Generator, rows: int, batch_shape: tuple[int, ...]) -> Arguments:
        context = 0.5 * torch.randn(*batch_shape, rows, *shape, generator=generator, dtype=D)
        action = torch.randint(composed_policies.ARMS, (*batch_shape, rows), generator=generator)
        reward = possible(torch.randn(*batch_shape, rows, generator=generator, dtype=D))
        scale = 0.5 + torch.rand(*batch_shape, rows, generator=generator, dtype=D)
        return {"inputs": context, "action": action, "reward": reward, "noise_scale": scale}

    return draw


COMPOSED = [
    Shared(str(case), case.build, contexts_for(case), not issubclass(case.cls, SharedRadiusSelector))
    for case in composed_policies.CASES
]


def frozen(case: composed_policies.Case, **options: Any) -> Any:
    """A composed policy whose features no longer move."""
    policy = case.build(**options)
    batch_shape = options.get("batch_shape", ())
    rounds = contexts_for(case)(torch.Generator().manual_seed(7), 6, batch_shape)
    policy.learn(**rounds)
    return policy


FROZEN = [
    Shared(f"{case} after its freeze", lambda case=case, **options: frozen(case, **options), contexts_for(case))
    for case in composed_policies.CASES
    if case.cls in (ScaledPolicy, DisjointArms) and (case.scaler is None or "freeze_after" in case.scaler)
]


# Learners of convex losses.


def gradients_for(case: convex_learners.ConvexCase) -> Any:
    """What draws gradients and values, which some learners need."""

    def draw(generator: torch.Generator, rows: int, batch_shape: tuple[int, ...]) -> Arguments:
        shape = case.build(batch_shape=batch_shape).gradients_shape[len(batch_shape) :]
        gradients = 0.3 * torch.randn(*batch_shape, rows, *shape, generator=generator, dtype=D)
        return {"gradients": gradients, "values": torch.rand(gradients.shape[:-1], generator=generator, dtype=D)}

    return draw


CONVEX = [Shared(f"convex {case}", case.build, gradients_for(case), False) for case in convex_learners.CASES]


def draw_rows(generator: torch.Generator, rows: int, batch_shape: tuple[int, ...]) -> Arguments:
    return {"x": torch.randn(*batch_shape, rows, 3, generator=generator, dtype=D)}


SCALER = Shared("StandardScaler", lambda **options: StandardScaler(3, **options), draw_rows, False)


# Private learners, whose records do not depend on a learner here.


def record_of(learner: Any, seed: int) -> Arguments:
    """The arguments of a private learner's step."""
    generator = torch.Generator().manual_seed(seed)
    if hasattr(learner, "shape"):
        return {"summand": torch.randn(learner.shape, generator=generator, dtype=D)}
    if hasattr(learner, "select"):
        x = torch.randn(learner.dim, generator=generator, dtype=D)
        action = torch.randint(learner.arm_count, (), generator=generator)
        return {"inputs": x, "action": action, "reward": x.sum().clamp(-1.0, 1.0)}
    return {"gradients": torch.randn(learner.points, learner.dim, generator=generator, dtype=D)}


@dataclass(frozen=True)
class Sums:
    """A private prefix sum, as the private cases build it."""

    options: tuple[tuple[str, Any], ...] = ()

    def build(self, **common: Any) -> Any:
        return prefix_sum("tree", 30, (3,), clip=1.0, epsilon=1.0, delta=1e-3, **common)

    def __str__(self) -> str:
        return "prefix_sum(tree)"


PRIVATE: list[Any] = [*private_learners.CASES, Sums()]


def has_blocks(policy: Any) -> bool:
    """Whether a policy learns in sums."""
    learner = learner_of(policy)
    return bool(getattr(learner, "has_blocks", False)) and not (
        isinstance(learner, ComposedPolicy) and not learner._learns_blocks_now()
    )
