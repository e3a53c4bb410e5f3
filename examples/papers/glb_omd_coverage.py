"""Coverage of the confidence sets of generalized linear learners.

GLBOMD (empirical radius) and LocalGLB play 500 rounds on 10 fixed arms in the unit disc, at delta = 0.05. In "policy" they
choose the arms themselves. In "adversary" the arms are chosen with knowledge of the truth: in every other round the arm with
the largest error relative to its width, in between the arm with the largest width. A set fails if |x'(theta_hat - theta)| >
radius * width(x) for some x after some round. "/ 5" counts failures with a fifth of the radius. The custom link has the mean
sinh(z), which differences of two counts have. The last two laws have the link's mean and a larger spread: there the sets should
fail.

The script prints and draws the failures of 1000. At delta = 0.05, 70 failures are three standard errors above the expected
50.

    python examples/papers/glb_omd_coverage.py    # three minutes; seconds with --smoke
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

from torchonline import GLBOMD, UCB, Binomial, CustomLink, Gamma, Gaussian, LocalGLB, Logistic, Poisson
from torchonline.environments import GeneralizedLinearBandit
from torchonline.links import Link
from torchonline.metrics import has_missed

DIM, ARMS, DELTA = 2, 10, 0.05
LEARNERS: dict[str, type[UCB]] = {"GLBOMD": GLBOMD, "LocalGLB": LocalGLB}
Law = Callable[[Tensor, torch.Generator], Tensor]


def burst(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw counts of mean exp(z) that are above 0 in only one of ten rounds."""
    now = torch.rand(z.shape, generator=generator, dtype=z.dtype) < 0.1
    return torch.poisson(z.exp() * torch.where(now, 10.0, 0.0), generator=generator)


def together(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw ten tries that succeed or fail together."""
    return 10.0 * torch.bernoulli(z.sigmoid(), generator=generator)


def difference(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the difference of two counts, of means exp(z) / 2 and exp(-z) / 2."""
    up, down = (torch.poisson(0.5 * (sign * z).exp(), generator=generator) for sign in (1.0, -1.0))
    return up - down


def sinh_link() -> CustomLink:
    """Return the link of :func:`difference`: log-moments cosh(z + t) - cosh(z)."""
    return CustomLink(torch.cosh, torch.sinh, torch.cosh, R=1.0)


# Link, norm of the true parameter (also theta_bound), and law of the rewards unless the link draws them.
LAWS: dict[str, tuple[Link, float, Law | None]] = {
    "logistic, S = 3": (Logistic(), 3.0, None),
    "logistic, S = 8": (Logistic(), 8.0, None),
    "Poisson, S = 2": (Poisson(), 2.0, None),
    "Gaussian, S = 1": (Gaussian(0.5), 1.0, None),
    "Binomial of 10, S = 2": (Binomial(10), 2.0, None),
    "Gamma of shape 2, S = 1": (Gamma(3.0, shape=2.0), 1.0, None),
    "custom (sinh), S = 2": (sinh_link(), 2.0, difference),
    "Poisson, in bursts": (Poisson(), 2.0, burst),
    "Binomial of 10, all or none": (Binomial(10), 2.0, together),
}
# Laws with the mean of the link and a larger spread.
WRONG = ("Poisson, in bursts", "Binomial of 10, all or none")
COLUMNS = ("policy", "adversary", "policy / 5", "adversary / 5")


def failures(make: type[UCB], link: Link, bound: float, law: Law | None, rounds: int, runs: int) -> list[int]:
    """Count the runs that missed the truth, in the order of ``COLUMNS``."""
    environment = GeneralizedLinearBandit(
        DIM, ARMS, link=link, rewards=law, theta_norm=bound, batch_shape=(2, runs), seed=7
    )
    policy = make(DIM, link=link, theta_bound=bound, delta=DELTA, batch_shape=(2, runs))  # type: ignore[call-arg]
    estimator, arms = policy.estimator, environment.arms()
    failed = torch.zeros(2, 2, runs, dtype=torch.bool)
    for t in range(rounds):
        index, width = policy.select(arms), estimator.width(arms)
        error = (arms @ (estimator.theta_hat - environment.theta).unsqueeze(-1)).squeeze(-1).abs()
        index[1] = (error / width if t % 2 else width)[1].argmax(-1)
        x, reward, _ = environment.pull(index)
        policy.step(x, reward)
        theta = environment.theta
        failed[0] |= has_missed(estimator, theta)
        # A fifth of the set misses theta if the whole set misses a point five times as far away.
        failed[1] |= has_missed(estimator, estimator.theta_hat + 5.0 * (theta - estimator.theta_hat))
    return failed.sum(-1).flatten().tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few rounds and runs, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rounds, runs = (20, 20) if options.smoke else (500, 1000)
    limit = math.floor(runs * (DELTA + 3.0 * math.sqrt(DELTA * (1.0 - DELTA) / runs)))
    console = Console()
    counts: dict[tuple[str, str], list[int]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("fleets", total=len(LAWS) * len(LEARNERS))
        for title, (link, bound, law) in LAWS.items():
            for name, make in LEARNERS.items():
                counts[title, name] = failures(make, link, bound, law, rounds, runs)
                progress.advance(task)

    table = Table(title=f"Confidence sets that failed, of {runs} ({rounds} rounds; a promise kept allows {limit})")
    table.add_column("rewards", no_wrap=True)
    table.add_column("learner", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for (title, name), row in counts.items():
        table.add_row(title, name, *map(str, row))
    console.print(table)
    right = {key: row for key, row in counts.items() if key[0] not in WRONG}
    wrong = {key: row for key, row in counts.items() if key[0] in WRONG}
    for name in LEARNERS:
        most = max(max(row[:2]) for key, row in right.items() if key[1] == name)
        least = min(min(row[2:]) for key, row in right.items() if key[1] == name)
        wide = min(max(row[:2]) for key, row in wrong.items() if key[1] == name)
        console.print(
            f"{name}: at most {most}, never above {limit}: {'yes' if most <= limit else 'NO'}; a fifth of the radius fails in "
            f"at least {least}, rewards that spread wider in at least {wide}"
        )

    path = options.output / "glb_omd_coverage.png"
    figure, axes = plt.subplots(1, len(LEARNERS), figsize=(11, 4.5), sharey=True, layout="constrained")
    for axis, name in zip(axes, LEARNERS, strict=True):
        for j, column in enumerate(COLUMNS[:2]):
            heights = [counts[title, name][j] / runs for title in LAWS]
            axis.bar([i + 0.4 * (j - 0.5) for i in range(len(LAWS))], heights, width=0.38, label=column)
        axis.axhline(DELTA, color="black", linewidth=0.8, linestyle="--")
        axis.set(title=name)
        axis.set_xticks(range(len(LAWS)), list(LAWS), rotation=40, ha="right")
    axes[0].set_ylabel("share of runs whose set failed")
    axes[0].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    console.print(f"Failures: {path}")


if __name__ == "__main__":
    main()
