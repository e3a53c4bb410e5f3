"""One rank of several: what a shared learner does in a process group, for tests/test_distributed.py.

python -m tests.ranks RANK WORLD FILE writes the findings of the rank to FILE.RANK, as JSON.
"""

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

import torchonline
from tests.learners import MODELS, Case, estimator_of, public_classes
from torchonline.distributed import SharedLearner
from torchonline.distributed.ranks import digest
from torchonline.privacy.learners.base import PrivateLearner

D = torch.float64
# The numbers of rounds of four ranks between syncs: equal, unequal, some without, all without.
SHARES = ((3, 3, 3, 3), (5, 2, 0, 7), (0, 4, 1, 0), (0, 0, 0, 0), (40, 11, 30, 2))


def rounds_of(case: Case, sync: int, rank: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rounds of a rank before a sync, the same whoever asks."""
    generator = torch.Generator().manual_seed(1000 * sync + rank)
    x = 0.5 * torch.randn(rows, 3, generator=generator, dtype=D)
    reward = case.possible(torch.randn(rows, *case.output_shape, generator=generator, dtype=D))
    return x, reward, 0.5 + torch.rand(rows, *case.output_shape, generator=generator, dtype=D)


def alone(case: Case, world: int) -> Any:
    """A learner that learns in one process what the ranks learn together."""
    learner = case.build()
    for sync, shares in enumerate(SHARES):
        parts = [rounds_of(case, sync, rank, shares[rank]) for rank in range(world)]
        learner.learn(*(torch.cat(column) for column in zip(*parts, strict=True)))
    return learner


def together(case: Case, rank: int, world: int, way: str) -> Any:
    """A learner that the ranks share."""
    shared = SharedLearner(case.build(), learn_on=way)
    for sync, shares in enumerate(SHARES):
        x, reward, noise = rounds_of(case, sync, rank, shares[rank])
        for i in range(min(2, len(x))):  # two one by one, the rest at once
            shared.observe(x[i], reward[i], noise[i])
        if len(x) > 2:
            shared.observe(x[2:], reward[2:], noise_scale=noise[2:])
        learnt = shared.sync()
        if learnt != sum(shares[:world]):
            raise AssertionError(f"{learnt} rounds, not {sum(shares[:world])}")
    return shared.policy


def difference(one: Any, other: Any) -> float:
    """The largest difference of two states, relative where numbers are large; 0 if they are equal bit for bit."""
    worst = 0.0
    for mine, theirs in zip(one.state().values(), other.state().values(), strict=True):
        if not torch.equal(mine, theirs):
            gap = (mine.double() - theirs.double()).abs() / theirs.double().abs().clamp(min=1.0)
            worst = max(worst, float(gap.max()))
    return worst


def estimators(rank: int, world: int) -> dict[str, Any]:
    """Every estimator, in every way that it can be shared."""
    found = {}
    for case in MODELS:
        single = alone(case, world)
        for way in ("leader", "all", "sums"):
            try:
                learner = together(case, rank, world, way)
            except ValueError as error:
                found[f"{case} {way}"] = str(error)
                continue
            states = [None] * world
            distributed.all_gather_object(states, digest(list(learner.state().values())))
            found[f"{case} {way}"] = (difference(learner, single), len(set(states)))
    return found


def main() -> None:
    rank, world, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=world, timeout=timedelta(seconds=120)
    )
    found = {name: SCENARIOS[name](rank, world) for name in sys.argv[4:] or SCENARIOS}
    Path(f"{file}.{rank}").write_text(json.dumps(found))
    distributed.destroy_process_group()


SCENARIOS: dict[str, Callable[[int, int], dict[str, Any]]] = {"estimators": estimators}

if __name__ == "__main__":
    main()
