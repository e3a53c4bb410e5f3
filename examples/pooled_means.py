"""Rewards that are means of a known number of observations: the noise scale of a round is sigma / sqrt(n).

A round is a group of n persons, such as the staff of a firm, who all get one health insurance plan. The reward is by how
much the group's mean number of visits to a doctor in a year is below that of all persons in the file, 2.86. If one person's
number has a standard deviation of at most sigma, the group's mean has one of at most sigma / sqrt(n), and n is known before
the reward. A policy takes it in ``step``::

    policy.step(arms, k, reward, noise_scale=sigma / n**0.5)

The visits are real: they are drawn, with replacement, from the persons of each of the six plans of the RAND experiment (a
file of statsmodels, 20,190 person-years). The groups are simulated: their size is log-uniform from 1 to 1000. So the mean of
each plan is known and the regret exact, and sigma, the largest standard deviation among the plans, is right. Features are
indicators of the plans, d = 6, and the learners get the norm of the six mean rewards as ``theta_bound``. 40 trials of 3000
groups are one batched learner, and all learners meet the same groups and draws.

Each learner plays told sigma / sqrt(n) in each round, and told the largest, sigma, in all rounds. HvtUCB has a thousandth of
its radius, a heuristic. OFUL's theorem needs a sub-Gaussian scale; for visits, which are skewed counts up to 77, sigma is
not shown to be one. The theorem of AnytimeHeavyTailUCB covers the stream. The least visits say nothing about health or welfare.

    python examples/pooled_means.py    # two minutes; seconds with --smoke
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

from torchonline import OFUL, UCB, AnytimeHeavyTailUCB, HvtUCB
from torchonline.datasets import health_insurance
from torchonline.metrics import has_missed

LARGEST_GROUP, DELTA = 1000, 0.05
LEARNERS = ("AnytimeHeavyTailUCB", "OFUL", "HvtUCB x 0.001")


class Visits:
    """Groups of persons and the visits of each plan, for a number of trials."""

    def __init__(self, trials: int, seed: int) -> None:
        context, plan, *_ = health_insurance(("mdvis",)).tensors
        self.visits = [context[plan == k, 0].double() for k in range(int(plan.max()) + 1)]
        self.counts = torch.tensor([len(values) for values in self.visits])
        self.means = torch.stack([values.mean() for values in self.visits])
        self.rewards = context.double().mean() - self.means
        self.sigma = float(max(values.std(correction=0) for values in self.visits))
        self.dim = len(self.means)
        self.table = torch.nn.utils.rnn.pad_sequence(self.visits, batch_first=True)  # (plans, largest count)
        self.trials, self.generator = trials, torch.Generator().manual_seed(seed)
        self.form_group()

    def form_group(self) -> None:
        """Draw the size of the next group of each trial, ``(trials)``."""
        uniform = torch.rand(self.trials, generator=self.generator, dtype=torch.float64)
        self.size = (LARGEST_GROUP**uniform).round()

    def pull(self, plan: Tensor) -> tuple[Tensor, Tensor]:
        """Give each trial's group a plan: reward and regret, ``(trials)``."""
        members = int(self.size.max())
        uniform = torch.rand(self.trials, LARGEST_GROUP, generator=self.generator, dtype=torch.float64)[:, :members]
        person = (uniform * self.counts[plan].unsqueeze(-1)).long()
        is_member = torch.arange(members) < self.size.unsqueeze(-1)
        below = self.means[plan] - (self.table[plan.unsqueeze(-1), person] * is_member).sum(-1) / self.size
        self.form_group()
        return self.rewards[plan] + below, self.rewards.max() - self.rewards[plan]


@dataclass
class Run:
    """Result of one learner that is told the scales in one way."""

    regret: Tensor  # cumulative, (groups, trials)
    missed: int  # trials whose confidence set ever missed the truth


def make_policy(name: str, world: Visits, groups: int) -> UCB:
    bound = float(world.rewards.norm())
    options = {"noise_scale": world.sigma, "theta_bound": bound, "batch_shape": (world.trials,)}
    if name == "AnytimeHeavyTailUCB":
        return AnytimeHeavyTailUCB(world.dim, delta=DELTA, **options)
    if name == "OFUL":
        return OFUL(world.dim, delta=DELTA, ridge=world.dim / bound**2, **options)
    ridge = world.dim / bound**2  # the paper's is for a bound of 1
    return HvtUCB(world.dim, horizon=groups, ridge=ridge, radius_scale=1e-3, **options)


def play(policy: UCB, told: bool, world: Visits, groups: int, advance: Callable[[], None]) -> Run:
    arms = torch.eye(world.dim, dtype=torch.float64).expand(world.trials, -1, -1)
    regret = torch.empty(groups, world.trials, dtype=torch.float64)
    missed = torch.zeros(world.trials, dtype=torch.bool)
    truth = world.rewards.expand(world.trials, -1)
    for t in range(groups):
        scale = world.sigma / world.size.sqrt() if told else None
        plan = policy.select(arms)
        reward, regret[t] = world.pull(plan)
        policy.step(arms, plan, reward, noise_scale=scale)
        missed |= has_missed(policy.estimator, truth)
        advance()
    return Run(regret.cumsum(0), int(missed.sum()))


def make_table(runs: dict[str, Run]) -> Table:
    groups, trials = next(iter(runs.values())).regret.shape
    table = Table(title=f"Regret in visits a person, {groups} groups, {trials} trials")
    table.add_column("learner", no_wrap=True)
    for header in ("mean", "standard error", "median", "worst", "sets that failed"):
        table.add_column(header, justify="right")
    for name, run in runs.items():
        final = run.regret[-1]
        error = final.std() / trials**0.5
        row = [f"{number:.1f}" for number in (final.mean(), error, final.median(), final.max())]
        table.add_row(name, *row, f"{run.missed} of {trials}")
    return table


def plot(runs: dict[str, Run], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for i, (name, run) in enumerate(runs.items()):
        at = torch.arange(1, len(run.regret) + 1)
        axis.plot(at, run.regret.mean(1), "--" if i % 2 else "-", color=f"C{i // 2}", label=name)
    axis.set(xlabel="group", ylabel="mean cumulative regret in visits a person")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=3000)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", "--quick", action="store_true", help="twenty groups, to see that it runs")
    options = parser.parse_args()
    if min(options.groups, options.trials) < 1:
        parser.error(f"--groups and --trials: expected at least 1, got {options.groups} and {options.trials}")
    options.output.mkdir(parents=True, exist_ok=True)
    groups, trials = (20, 4) if options.smoke else (options.groups, options.trials)

    console = Console()
    world = Visits(trials, seed=1)
    means = ", ".join(f"{mean:.2f}" for mean in world.means)
    console.print(f"Mean visits of the {world.dim} plans: {means}. Largest standard deviation: {world.sigma:.2f}.")
    runs: dict[str, Run] = {}
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console) as progress:
        for name in LEARNERS:
            for told in (True, False):
                title = f"{name}, told {'sigma / sqrt(n)' if told else 'sigma'}"
                task = progress.add_task(title, total=groups)
                # With the same seed every learner meets the same groups and draws.
                world = Visits(trials, seed=1)
                policy = make_policy(name, world, groups)
                runs[title] = play(policy, told, world, groups, partial(progress.advance, task))
    console.print(make_table(runs))
    path = options.output / "pooled_means.png"
    plot(runs, path)
    console.print(f"Regret curves: {path}")


if __name__ == "__main__":
    main()
