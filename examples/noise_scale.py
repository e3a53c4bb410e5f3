"""Effect of a wrong noise_scale, and detection by NoiseDiagnostic.

AnytimeHeavyTailUCB plays on fixed arms (dimension 2, 10 unit arms, 40 trials). It is told the noise's exact standard deviation
times 0.1, 0.3, 1, 3 and 10. The noise is Student-t with 2.1 degrees of freedom, or a two-point law whose variance sits in
jumps of probability 0.01 or 0.0001. All factors and trials of a law are one batched learner.

For each factor the script prints the regret, the number of trials whose confidence set ever failed, and the number of trials
with a warning of NoiseDiagnostic, after a tenth of the rounds and at the end. A last table has warnings for pure noise
without a learner, including the wrong noise scale of the paper behind HvtUCB.

The diagnostic tests the part of the residuals beyond the learner's error bars. A false warning has probability at most alpha
plus delta. The absence of a warning proves nothing.

    python examples/noise_scale.py    # a few minutes; seconds with --smoke
"""

import argparse
import warnings
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

from torchonline import AnytimeHeavyTailUCB
from torchonline.diagnostics import NoiseDiagnostic, NoiseReport, NoiseScaleWarning
from torchonline.environments import LinearBandit, Noise, StudentT, TwoPoint
from torchonline.metrics import has_missed

DIM, ARMS, ROUNDS, DELTA, ALPHA = 2, 10, 10000, 0.05, 0.01
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)
LAWS = {
    "Student-t, df 2.1": StudentT(2.1),
    "two-point, q 0.01": TwoPoint(0.01),
    "two-point, q 0.0001": TwoPoint(0.0001),
}


@dataclass
class Run:
    """Results for one law; the factor is the first dimension after the rounds."""

    regret: Tensor  # cumulative, (rounds, factors, trials)
    missed: Tensor  # (factors, trials)
    early: NoiseReport  # after a tenth of the rounds
    final: NoiseReport


def play(noise: Noise, rounds: int, trials: int, advance: Callable[[int], None]) -> Run:
    """Play all factors of one law, with the same parameters, arms and noise."""
    shape = (len(FACTORS), trials)
    environment = LinearBandit(DIM, ARMS, noise=noise, batch_shape=(trials,), seed=1)
    environments = [LinearBandit(DIM, ARMS, noise=noise, batch_shape=(trials,), seed=1) for _ in FACTORS]
    arms, theta = (value.expand(len(FACTORS), *value.shape) for value in (environment.arms(), environment.theta))
    told = noise.moment_norm(2.0) * torch.tensor(FACTORS, dtype=torch.float64).unsqueeze(-1).expand(shape)
    policy = AnytimeHeavyTailUCB(DIM, delta=DELTA, batch_shape=shape)
    estimator, diagnostic = policy.estimator, NoiseDiagnostic(2.0, shape, ALPHA)
    regret = torch.empty((rounds, *shape), dtype=torch.float64)
    missed = torch.zeros(shape, dtype=torch.bool)
    look_every = rounds // 100
    seen: list[tuple[Tensor, Tensor]] = []
    for t in range(rounds):
        chosen = policy.select(arms)
        outcomes = [world.pull(k) for world, k in zip(environments, chosen, strict=True)]
        x, reward, regret[t] = map(torch.stack, zip(*outcomes, strict=True))
        # Residual and error bar of the prediction, before the learner sees the reward.
        seen.append((reward - estimator(x), estimator.radius() * estimator.width(x)))
        policy.step(arms, chosen, reward, noise_scale=told)
        missed |= has_missed(estimator, theta)
        if len(seen) == look_every:
            residual, error = map(torch.stack, zip(*seen, strict=True))
            diagnostic.update(residual, noise_scale=told.expand_as(residual), error=error)
            seen.clear()
            advance(look_every)
        if t + 1 == rounds // 10:
            early = diagnostic.compute()
    return Run(regret.cumsum(0), missed, early, diagnostic.compute())


def make_table(run: Run, title: str, rounds: int) -> Table:
    headers = (
        "mean regret",
        "sd",
        "median",
        "max",
        "sets that failed",
        f"warned by {rounds // 10}",
        f"by {rounds}",
        "tail index",
        "moment seems infinite",
    )
    table = Table(title=title)
    table.add_column("noise_scale / truth", justify="right")
    for header in headers:
        table.add_column(header, justify="right")
    for i, factor in enumerate(FACTORS):
        final = run.regret[-1, i]
        row = [f"{number:.0f}" for number in (final.mean(), final.std(), final.median(), final.max())]
        warned = (run.missed[i], run.early.noise_scale_is_small[i], run.final.noise_scale_is_small[i])
        row += [f"{int(flags.sum())} of {len(final)}" for flags in warned]
        row.append(f"{run.final.tail_index[i].median():.2f}")
        row.append(f"{int(run.final.moment_seems_infinite[i].sum())} of {len(final)}")
        table.add_row(f"{factor:g}", *row)
    return table


def shares_of_pure_noise(noise: Noise, order: float, told: float, marks: tuple[int, ...], streams: int) -> list[float]:
    """Return the share of streams of pure noise with a warning by given rounds."""
    diagnostic, generator = NoiseDiagnostic(order, (streams,), ALPHA), torch.Generator().manual_seed(0)
    shares = []
    for first, last in zip((0, *marks), marks, strict=False):
        for rounds in torch.arange(first, last).split(100):
            diagnostic.update(noise.sample((len(rounds), streams), generator), noise_scale=told)
        shares.append(diagnostic.compute().noise_scale_is_small.double().mean().item())
    return shares


def noise_table(rounds: tuple[int, ...], streams: int, advance: Callable[[], None]) -> Table:
    """Return a table of warnings for pure noise, told the truth or less."""
    table = Table(title=f"Share of {streams} streams of pure noise that were warned of, alpha = {ALPHA:g}")
    table.add_column("noise")
    for header in ("order", "truth", "told", *(f"by round {mark}" for mark in rounds)):
        table.add_column(header, justify="right")
    law = StudentT(2.1)
    rows = [("Student-t, df 2.1", law, 1.99, law.moment_norm(1.99)), ("Student-t, df 2.1", law, 1.99, 1.31)]
    rows += [("two-point, q 0.01", TwoPoint(0.01), 2.0, told) for told in (1.0, 0.1)]
    rows += [("two-point, q 0.0001", TwoPoint(0.0001), 2.0, told) for told in (1.0, 0.1)]
    for name, noise, order, told in rows:
        shares = shares_of_pure_noise(noise, order, told, rounds, streams)
        table.add_row(
            name, f"{order:g}", f"{noise.moment_norm(order):.3f}", f"{told:.3f}", *(f"{100 * s:.1f} %" for s in shares)
        )
        advance()
    return table


def plot(runs: dict[str, Run], path: Path) -> None:
    """Plot regret, failures and warnings against the factor."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for name, run in runs.items():
        final = run.regret[-1]
        low, high = final.quantile(torch.tensor([0.1, 0.9], dtype=final.dtype), dim=1)
        (line,) = axes[0].plot(FACTORS, final.mean(1), marker="o", label=name)
        axes[0].fill_between(FACTORS, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        axes[1].plot(FACTORS, run.missed.double().mean(1), "--", marker="x", color=line.get_color())
        warned = run.final.noise_scale_is_small.double().mean(1)
        axes[1].plot(FACTORS, warned, marker="o", color=line.get_color(), label=name)
    axes[0].set(xscale="log", xlabel="noise_scale / truth", ylabel="regret: mean, 10 % to 90 % of trials")
    axes[1].set(xscale="log", xlabel="noise_scale / truth", ylabel="share of trials", ylim=(-0.03, 1.03))
    axes[1].plot([], [], color="grey", marker="o", label="warned of")
    axes[1].plot([], [], "--", color="grey", marker="x", label="confidence set failed")
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few hundred rounds, to see that it runs")
    options = parser.parse_args()
    if min(options.rounds, options.trials) < 1:
        parser.error(f"--rounds and --trials: expected at least 1, got {options.rounds} and {options.trials}")
    options.output.mkdir(parents=True, exist_ok=True)
    rounds, trials = (300, 5) if options.smoke else (options.rounds, options.trials)
    marks, streams = ((100, 300), 20) if options.smoke else ((1000, 18000), 1000)
    # The script counts the warnings.
    warnings.simplefilter("ignore", NoiseScaleWarning)

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        runs = {}
        for name, noise in LAWS.items():
            task = progress.add_task(name, total=rounds)
            runs[name] = play(noise, rounds, trials, partial(progress.advance, task))
        task = progress.add_task("pure noise", total=6)
        alone = noise_table(marks, streams, partial(progress.advance, task))

    for name, run in runs.items():
        truth = LAWS[name].moment_norm(2.0)
        title = f"{name}: standard deviation {truth:.3f}; {rounds} rounds, {trials} trials, delta = {DELTA:g}"
        console.print(make_table(run, title, rounds))
    console.print(alone)
    path = options.output / "noise_scale.png"
    plot(runs, path)
    console.print(f"Regret, failures and warnings: {path}")


if __name__ == "__main__":
    main()
