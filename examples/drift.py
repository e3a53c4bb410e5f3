"""Comparison of learners on drifting linear bandits with heavy-tailed noise.

Setting: dimension 4, 20 fixed unit arms, 8000 rounds, Student-t noise with 2.1 degrees of freedom, and 40 trials as one
batched learner. In the first world the parameter flips its sign every 1700 rounds. In the second it turns steadily, once
around in 8000 rounds.

Learners: OFUL and AnytimeHeavyTailUCB, each without forgetting and with ``restart_every``, and the discounted heuristic. A
learner that forgets has a memory in rounds: H for ``restart_every=H`` and 1 / (1 - gamma) for ``discount=gamma``. For each world
its memory is the best of the same seven values, by mean regret over as many trials with another seed.

The script prints the final regret against the best arm of each round, and draws the regret curves.

All learners are told the noise's standard deviation and have ridge = d. No theorem covers OFUL under this noise,
AnytimeHeavyTailUCB while the parameter turns, or the heuristic in any setting. docs/drift_theory.md says what is proved.

    python examples/drift.py    # a few minutes; seconds with --smoke
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from torchonline import OFUL, UCB, AnytimeHeavyTailUCB, DiscountedHeavyTailRegression
from torchonline.environments import DriftingBandit, StudentT

DIM, ARMS, ROUNDS, TRIALS = 4, 20, 8000, 40
NOISE = StudentT(2.1, scale=0.1)
MEMORIES = (30, 60, 125, 250, 500, 1000, 2000)
TUNING_SEED, SEED = 2, 1

COMMON = {"noise_scale": NOISE.moment_norm(2.0), "ridge": DIM, "delta": 0.05}
NEVER_FORGET: dict[str, Callable[..., UCB]] = {
    "OFUL": partial(OFUL, DIM, **COMMON),
    "AnytimeHeavyTailUCB": partial(AnytimeHeavyTailUCB, DIM, **COMMON),
}


def discounted(memory: int, batch_shape: tuple[int, ...]) -> UCB:
    estimator = DiscountedHeavyTailRegression(DIM, discount=1.0 - 1.0 / memory, batch_shape=batch_shape, **COMMON)
    return UCB(estimator)


FORGET: dict[str, Callable[[int, tuple[int, ...]], UCB]] = {
    "OFUL, restarted": lambda memory, batch: OFUL(DIM, restart_every=memory, batch_shape=batch, **COMMON),
    "AnytimeHeavyTailUCB, restarted": lambda memory, batch: AnytimeHeavyTailUCB(
        DIM, restart_every=memory, batch_shape=batch, **COMMON
    ),
    "discounted (heuristic)": discounted,
}


@dataclass
class Run:
    """Result of one learner in one world."""

    memory: int | None
    regret: Tensor  # cumulative, (rounds, trials)


def make_worlds(rounds: int) -> dict[str, Callable[..., DriftingBandit]]:
    """Return the two worlds for a number of rounds."""
    drifting = partial(DriftingBandit, DIM, ARMS, noise=NOISE)
    return {
        "flips": partial(drifting, angle=math.pi, every=rounds * 17 // 80),
        "turns": partial(drifting, angle=2.0 * math.pi / rounds),
    }


def play(policy: UCB, environment: DriftingBandit, rounds: int, advance: Callable[[], None]) -> Tensor:
    """Return the cumulative regret of all trials."""
    regret = torch.empty((rounds, *environment.batch_shape), dtype=torch.float64)
    for t in range(rounds):
        arms = environment.arms()
        k = policy.select(arms)
        _, reward, regret[t] = environment.pull(k)
        policy.step(arms, k, reward)
        advance()
    return regret.cumsum(0)


def make_table(runs: dict[str, Run], title: str) -> Table:
    table = Table(title=title)
    table.add_column("learner", no_wrap=True)
    for header in ("memory", "mean", "sd", "max"):
        table.add_column(header, justify="right")
    for name, run in runs.items():
        final = run.regret[-1]
        numbers = [f"{number:.0f}" for number in (final.mean(), final.std(), final.max())]
        table.add_row(name, "-" if run.memory is None else str(run.memory), *numbers)
    return table


def plot(results: dict[str, dict[str, Run]], path: Path) -> None:
    figure, axes = plt.subplots(1, len(results), figsize=(11, 4.5), sharey=True, layout="constrained")
    for axis, (title, runs) in zip(axes, results.items(), strict=True):
        for name, run in runs.items():
            every = max(1, len(run.regret) // 500)
            rounds = torch.arange(1, len(run.regret) + 1)[every - 1 :: every]
            curves = run.regret[every - 1 :: every]
            low, high = curves.quantile(torch.tensor([0.1, 0.9], dtype=curves.dtype), dim=1)
            label = name if run.memory is None else f"{name}, memory {run.memory}"
            (line,) = axis.plot(rounds, curves.mean(1), label=label)
            axis.fill_between(rounds, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        axis.set(title=f"the parameter {title}", xlabel="round")
        axis.grid(alpha=0.3)
        axis.legend()
    axes[0].set_ylabel("cumulative regret: mean, 10 % to 90 % of trials")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few hundred rounds, to see that it runs")
    options = parser.parse_args()
    if min(options.rounds, options.trials) < 1:
        parser.error(f"--rounds and --trials: expected at least 1, got {options.rounds} and {options.trials}")
    options.output.mkdir(parents=True, exist_ok=True)
    rounds, trials = (200, 5) if options.smoke else (options.rounds, options.trials)
    memories = MEMORIES[1:3] if options.smoke else MEMORIES
    batch = (trials,)

    console = Console()
    console.print(f"Student-t noise, df = {NOISE.df}, with a standard deviation of {NOISE.moment_norm(2.0):.3f}.")
    results: dict[str, dict[str, Run]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:

        def regret(world: Callable[..., DriftingBandit], policy: UCB, seed: int, task: object) -> Tensor:
            # With the same seed every learner meets the same arms, parameters and noise.
            environment = world(batch_shape=batch, seed=seed)
            return play(policy, environment, rounds, partial(progress.advance, task))

        for kind, world in make_worlds(rounds).items():
            runs: dict[str, Run] = {}
            for name, make in NEVER_FORGET.items():
                task = progress.add_task(f"{kind}: {name}", total=rounds)
                runs[name] = Run(None, regret(world, make(batch_shape=batch), SEED, task))
            for name, remember in FORGET.items():
                task = progress.add_task(f"{kind}: {name}", total=(len(memories) + 1) * rounds)
                tuned = {
                    memory: regret(world, remember(memory, batch), TUNING_SEED, task)[-1].mean().item()
                    for memory in memories
                }
                best = min(tuned, key=lambda memory: tuned[memory])
                runs[name] = Run(best, regret(world, remember(best, batch), SEED, task))
                seen = ", ".join(f"{memory}: {mean:.0f}" for memory, mean in tuned.items())
                console.print(f"{kind}, {name}, mean regret at each memory, on the tuning seed: {seen}")
            results[kind] = runs

    for kind, runs in results.items():
        console.print(make_table(runs, f"Regret after {rounds} rounds, {trials} trials, the parameter {kind}"))
    path = options.output / "drift.png"
    plot(results, path)
    console.print(f"Regret curves: {path}")


if __name__ == "__main__":
    main()
