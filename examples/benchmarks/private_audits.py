"""Audits of all private learners: membership games against what they publish.

Two streams differ in their first record only, which is as long as the clip allows and points to the one side or to the other.
All later records are missing. 20,000 games are played in each world, and as many pilot games choose the event. What is seen are
the public numbers of each step: decisions, noisy sums, the decoder's memory, and the sums of their entries. Each learner claims
epsilon 1 at delta 1e-3. Its noise is then divided by 2, and the same games are played again. The table has two lower bounds on
epsilon, each right with a confidence of 95 %: Clopper and Pearson's for any mechanism, and the one for Gaussian curves, for
learners that claim those.

    OMP_NUM_THREADS=1 python examples/benchmarks/private_audits.py    # some minutes; seconds with --smoke
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from torchonline import DPHDB, DPPOFW, DPTOFW
from torchonline.baselines import DPFTRL, DPUCB, FLIPHAT, LocalMD, NoisySFW, NoisySGD
from torchonline.privacy import PrivateLearner, epsilon_lower_bound, prefix_sum
from torchonline.privacy.learners.bandit import PrivateBandit
from torchonline.privacy.learners.clock import NO_END
from torchonline.privacy.mechanisms.discrete import DiscreteTree

DIM, HORIZON, DELTA = 3, 16, 1e-3
SMOKE = ("prefix sums, blt", "DPTOFW, blt", "DPPOFW, gumbel", "DPHDB, blt", "LocalMD")
Play = Callable[[int, int], Tensor]


def weaken(learner: Any, divided: float) -> Any:
    """Divide all noise of a learner, which no option does."""
    for part in learner.modules():
        for holder in (part, vars(part).get("noise")):
            for name in ("noise_scale", "scale", "noise_multiplier"):
                is_noise = isinstance(vars(holder).get(name) if holder is not None else None, float)
                if is_noise and not (isinstance(holder, DPUCB) and name == "noise_scale"):  # which is that of rewards
                    vars(holder)[name] /= divided
            if isinstance(holder, DiscreteTree):
                vars(holder)["sigma"] = round(holder.sigma / divided)
    return learner


def records(learner: Any, world: int) -> Callable[[int], tuple[Any, ...]]:
    """Return the record of each step: the first one has a direction, the others are missing."""
    sign = 1.0 - 2.0 * world
    batched = learner.batch_shape
    if isinstance(learner, PrivateBandit):
        x = torch.zeros((*batched, DIM), dtype=torch.float64)
        x[..., 0] = 1.0
        first: tuple[Any, ...] = (
            x,
            torch.zeros(batched, dtype=torch.int64),
            torch.full(batched, sign, dtype=torch.float64),
        )
    elif isinstance(learner, (DPTOFW, DPPOFW, DPFTRL, NoisySFW, LocalMD)):
        direction = torch.zeros(DIM, dtype=torch.float64)
        direction[: DIM if learner.clip_norm == math.inf else 1] = 1.0
        first = ((sign * learner.clip * direction).expand(*batched, learner.points, DIM),)
    else:
        direction = torch.zeros(DIM, dtype=torch.float64)
        direction[0] = sign * learner.clip
        first = (direction.expand(*batched, DIM),)
    return lambda step: first if step == 1 else (None,)


def seen(learner: Any) -> Tensor:
    """Return the public real numbers of a batch, ``(games, k)``, each sum of several directions included."""
    columns = []
    for name, value in learner.public_state().items():
        if value.dim() and (value.is_floating_point() or name.endswith("noisy_sum")):
            flat = value.double().flatten(1)
            columns += [flat, flat.sum(-1, keepdim=True)] if flat.size(-1) <= 2 * DIM else [flat[:, : 2 * DIM]]
    return torch.cat(columns, -1)


def online(build: Callable[..., Any], divided: float) -> Play:
    """Return the games against a learner that takes a step for each record."""

    def play(world: int, games: int) -> Tensor:
        learner = weaken(build(batch_shape=(games,)), divided)
        record = records(learner, world)
        found = []
        for step in range(1, (HORIZON if learner.horizon == NO_END else learner.horizon) + 1):
            learner.step(*record(step))
            found.append(seen(learner))
        columns = torch.cat(found, -1)
        return columns[:, columns.std(0) > 0.0]

    return play


def offline(divided: float) -> Play:
    """Return the games against NoisySGD, whose records are all at hand."""

    def play(world: int, games: int) -> Tensor:
        learner = NoisySGD(DIM, records=HORIZON, steps=HORIZON, epsilon=1.0, delta=DELTA, batch_shape=(games,))
        vars(learner)["noise_multiplier"] /= divided
        slopes = torch.zeros((HORIZON, DIM), dtype=torch.float64)
        slopes[0, 0] = 1.0 - 2.0 * world
        average, last = learner.fit(lambda theta, slope: theta @ slope, slopes)
        return torch.cat([average, last], -1)

    return play


def contenders() -> dict[str, tuple[Callable[[float], Play], bool]]:
    """Return the games against each learner, and whether it claims a Gaussian curve."""
    told: dict[str, Any] = {"horizon": HORIZON, "epsilon": 1.0, "delta": DELTA}

    def learner(cls: Callable[..., PrivateLearner], **options: Any) -> Callable[[float], Play]:
        return lambda divided: online(lambda **batched: cls(DIM, **(told | options | batched)), divided)

    def sums(name: str) -> Callable[[float], Play]:
        promise = {"clip": 1.0, "epsilon": 1.0, "delta": DELTA}
        return lambda divided: online(
            lambda batch_shape: prefix_sum(name, HORIZON, (*batch_shape, DIM), **promise), divided
        )

    found: dict[str, tuple[Callable[[float], Play], bool]] = {}
    for name in ("blt", "sqrt", "honaker", "tree"):
        found[f"prefix sums, {name}"] = sums(name), True
        found[f"DPTOFW, {name}"] = learner(DPTOFW, mechanism=name), True
    found |= {
        "DPTOFW, p = 1.5": (learner(DPTOFW, norm=1.5), True),
        "DPTOFW, p = infinity": (learner(DPTOFW, norm=math.inf), True),
        "DPTOFW, csprng": (learner(DPTOFW, noise_source="csprng"), True),
        "DPTOFW, tree, integers": (learner(DPTOFW, mechanism="tree", noise_source="discrete"), True),
        "DPTOFW, paper": (learner(DPTOFW, mechanism="paper", norm=1.5), False),
        "DPTOFW, no horizon": (learner(DPTOFW, horizon=None), True),
        "DPPOFW, blt": (learner(DPPOFW, mechanism="blt"), True),
        "DPPOFW, gumbel": (learner(DPPOFW, mechanism="gumbel"), False),
        "DPPOFW, laplace": (learner(DPPOFW, mechanism="laplace"), False),
        # From 23 steps on this noise is calibrated as small steps.
        "DPPOFW, gumbel, 100 steps": (learner(DPPOFW, mechanism="gumbel", horizon=100), True),
        "DPPOFW, laplace, 100 steps": (learner(DPPOFW, mechanism="laplace", horizon=100), True),
        "DPHDB, blt": (learner(DPHDB, arms=2, warmup=1), True),
        "DPHDB, no horizon": (learner(DPHDB, arms=2, warmup=1, horizon=None), True),
        "DPHDB, gumbel": (learner(DPHDB, arms=2, warmup=1, mechanism="gumbel"), False),
        "DPUCB": (learner(DPUCB, arms=2), True),
        "FLIPHAT": (learner(FLIPHAT, arms=1), False),
        "DPFTRL": (learner(DPFTRL), True),
        "DPFTRL, no horizon": (learner(DPFTRL, horizon=None), True),
        "NoisySFW": (learner(NoisySFW), True),
        "LocalMD": (learner(LocalMD), True),
        "NoisySGD": (offline, False),
    }
    return found


def main() -> None:
    """Play all games, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=20_000)
    parser.add_argument("--smoke", action="store_true", help="200 games, of a few learners")
    parser.add_argument("--learners", nargs="*", help="names in the table; all by default")
    parser.add_argument("--output", type=Path, default=Path("outputs/private_audits"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    games = 200 if arguments.smoke else arguments.games
    console, rows = Console(), []
    for name, (against, is_gaussian) in track(contenders().items(), description="audits", console=console):
        if name not in (arguments.learners or (SMOKE if arguments.smoke else (name,))):
            continue
        row: dict[str, Any] = {"learner": name}
        for key, divided in (("all", 1.0), ("half", 2.0)):
            for curve in ("any", "gaussian") if is_gaussian else ("any",):
                bound = epsilon_lower_bound(against(divided), delta=DELTA, games=games, curve=curve)
                row[f"{key}, {curve}"] = bound.epsilon
        rows.append(row)
    table = Table(title=f"lower bounds on epsilon, {games} games in a world; claimed is 1")
    for header in ("learner", "any curve", "Gaussian", "half the noise, any curve", "Gaussian"):
        table.add_column(header, justify="left" if header == "learner" else "right")
    for row in rows:
        columns = ("all, any", "all, gaussian", "half, any", "half, gaussian")
        table.add_row(row["learner"], *(f"{row[column]:.2f}" if column in row else "" for column in columns))
    console.print(table)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "private_audits.json").write_text(json.dumps(rows, indent=1))
    console.print(f"Numbers: {arguments.output / 'private_audits.json'}")


if __name__ == "__main__":
    main()
