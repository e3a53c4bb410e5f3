"""Coverage of heavy-tailed confidence sets, counted over 500 runs.

Each learner plays 2000 rounds on 20 fixed unit arms and chooses the arms itself. It is told the exact moment norm of the
noise: order 2 for the four laws with a variance, order 1.4 for the two without. OFUL, whose theorem needs sub-Gaussian
noise, gets the same number. HeavyTailUCB has the radius of its theorem, which promises at most a share delta = 0.05 of
failures. HvtUCB has a radius of practical size, 1e-3 times the paper's, which promises nothing. A set fails if |x'(theta_hat
- theta)| > radius * width(x) for some x after some round.

The script prints and draws the failures of 500. At delta = 0.05, 39 failures are three standard errors above the expected
25.

    python examples/papers/hvt_ucb_coverage.py    # a quarter of an hour; seconds with --smoke
"""

import argparse
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from torchonline import OFUL, UCB, HeavyTailUCB, HvtUCB
from torchonline.environments import GaussianNoise, LinearBandit, Noise, Pareto, StudentT, TwoPoint
from torchonline.metrics import has_missed

ARMS, DELTA = 20, 0.05
LEARNERS = ("HeavyTailUCB", "OFUL", "HvtUCB x 0.001")
# Each law with the moment order for the learners.
LAWS: dict[str, tuple[Noise, float]] = {
    "Gaussian": (GaussianNoise(), 2.0),
    "Student-t 2.1": (StudentT(2.1), 2.0),
    "one-sided Pareto 2.5": (Pareto(2.5), 2.0),
    "two-point 0.01": (TwoPoint(0.01), 2.0),
    "Student-t 1.5": (StudentT(1.5), 1.4),
    "one-sided Pareto 1.5": (Pareto(1.5), 1.4),
}


def make_policy(name: str, dim: int, law: Noise, order: float, rounds: int, runs: int) -> UCB:
    norm = law.moment_norm(order)
    if name == "HeavyTailUCB":
        return HeavyTailUCB(dim, moment_order=order, noise_scale=norm, delta=DELTA, batch_shape=(runs,))
    if name == "OFUL":
        return OFUL(dim, noise_scale=norm, ridge=dim, delta=DELTA, batch_shape=(runs,))
    return HvtUCB(dim, horizon=rounds, moment_order=order, noise_scale=norm, radius_scale=1e-3, batch_shape=(runs,))


def failures(policy: UCB, law: Noise, rounds: int, runs: int, seed: int) -> int:
    """Count the runs whose confidence set missed the truth."""
    environment = LinearBandit(policy.estimator.dim, ARMS, noise=law, batch_shape=(runs,), seed=seed)
    failed = torch.zeros(runs, dtype=torch.bool)
    for _ in range(rounds):
        x, reward, _ = environment.pull(policy.select(environment.arms()))
        policy.step(x, reward)
        failed |= has_missed(policy.estimator, environment.theta)
    return int(failed.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few rounds and runs, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rounds, runs = (30, 20) if options.smoke else (2000, 500)
    dims = (2, 5, 20)
    limit = math.floor(runs * (DELTA + 3.0 * math.sqrt(DELTA * (1.0 - DELTA) / runs)))
    console = Console()
    counts: dict[tuple[str, int, str], int] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("fleets", total=len(LAWS) * len(dims) * len(LEARNERS))
        for i, (title, (law, order)) in enumerate(LAWS.items()):
            for dim in dims:
                for name in LEARNERS:
                    policy = make_policy(name, dim, law, order, rounds, runs)
                    counts[title, dim, name] = failures(policy, law, rounds, runs, seed=100 * dim + i)
                    progress.advance(task)

    table = Table(title=f"Confidence sets that failed, of {runs} ({rounds} rounds; a promise kept allows {limit})")
    table.add_column("noise")
    table.add_column("d", justify="right")
    for name in LEARNERS:
        table.add_column(name, justify="right")
    for title in LAWS:
        for dim in dims:
            table.add_row(title, str(dim), *(str(counts[title, dim, name]) for name in LEARNERS))
    console.print(table)
    most = {name: max(count for key, count in counts.items() if key[2] == name) for name in LEARNERS}
    kept = most["HeavyTailUCB"] <= limit
    console.print(f"HeavyTailUCB: at most {most['HeavyTailUCB']}, never above {limit}: {'yes' if kept else 'NO'}")

    path = options.output / "hvt_ucb_coverage.png"
    figure, axes = plt.subplots(1, len(dims), figsize=(13, 4.5), sharey=True, layout="constrained")
    for axis, dim in zip(axes, dims, strict=True):
        for j, name in enumerate(LEARNERS):
            heights = [counts[title, dim, name] / runs for title in LAWS]
            axis.bar([i + 0.28 * (j - 1) for i in range(len(LAWS))], heights, width=0.26, label=name)
        axis.axhline(DELTA, color="black", linewidth=0.8, linestyle="--")
        axis.set(title=f"d = {dim}")
        axis.set_xticks(range(len(LAWS)), list(LAWS), rotation=40, ha="right")
    axes[0].set_ylabel("share of runs whose set failed")
    axes[0].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    console.print(f"Failures: {path}")


if __name__ == "__main__":
    main()
