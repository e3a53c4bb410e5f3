"""Identification of a linear system under heavy-tailed noise.

The state has 4 components and one input drives it: x' = A x + B u + w. The spectral radius of A is below 1, u is standard
normal times 3, and w is Student-t with 2.1 degrees of freedom. 500 runs of 10000 rounds are one batched learner. Three kinds
of learners get the same streams: SystemIdentification; one HeavyTailRegression for each output, at delta / 4; and least
squares with its Gaussian radius. No theorem covers the last here: a sub-Gaussian scale does not exist, so it gets the
standard deviation instead.

The script prints the number of runs in which each column's confidence set ever failed; radius, intervals, smallest
eigenvalue and error at several rounds; and the slope of the error on a log-log scale. It draws the errors.

    python examples/system_identification.py    # a few minutes; seconds with --smoke
"""

import argparse
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from torchonline import HeavyTailRegression, RidgeRegression, SystemIdentification
from torchonline.environments import StudentT

ROUNDS, RUNS, DELTA, THETA_BOUND, INPUT_SCALE = 10000, 500, 0.05, 1.5, 3.0
NOISE = StudentT(2.1)
A = torch.tensor(
    [[0.8, -0.4, 0.1, 0.0], [0.4, 0.8, 0.0, 0.1], [0.0, 0.1, 0.5, -0.3], [0.1, 0.0, 0.3, 0.5]], dtype=torch.float64
)
B = torch.tensor([[1.0], [0.0], [0.5], [0.5]], dtype=torch.float64)
# Column i has the coefficients of output i: first of the state, then of the input.
THETA = torch.cat([A, B], -1).T
DIM, OUTPUTS = THETA.shape

Model = SystemIdentification | HeavyTailRegression | RidgeRegression


class Record:
    """Learner with its results at selected rounds, and the columns ever missed."""

    def __init__(self, model: Model, rounds: list[int], runs: int) -> None:
        self.model = model
        self.rounds = rounds
        self.missed = torch.zeros(runs, OUTPUTS, dtype=torch.bool)
        self.error: list[Tensor] = []  # norm of the error of Theta, (runs)
        self.bound: list[Tensor] = []  # bound on `error` from the confidence sets, (runs)
        self.radius: list[Tensor] = []  # in noise scales, (runs, outputs)
        self.interval: list[Tensor] = []  # half the width of each entry's interval, (runs, outputs, d)
        self.smallest: list[Tensor] = []  # smallest eigenvalue of V, (runs)

    def step(self, t: int, x: Tensor, next_state: Tensor) -> None:
        """Learn, check the confidence sets, and record results at selected rounds."""
        model, noise_scale = self.model, NOISE.moment_norm(2.0)
        together = isinstance(model, SystemIdentification)
        model.step(x if together else x.unsqueeze(-2).expand(*next_state.shape, DIM), next_state)
        # (runs, outputs, d), and matrices of (runs, 1 or outputs, d, d)
        difference = (model.theta_hat.mT if together else model.theta_hat) - THETA.T
        V, P = (M.unsqueeze(-3) if together else M for M in (model.V, model.width_matrix()))
        if isinstance(model, RidgeRegression):
            square = (difference.unsqueeze(-2) @ V @ difference.unsqueeze(-1)).squeeze((-2, -1))
        else:
            # The theorem bounds the norm of V (theta_hat - theta) in A^-1 by the radius.
            moved = V @ difference.unsqueeze(-1)
            A_inv = model.A_inv.unsqueeze(-3) if together else model.A_inv
            square = (moved.mT @ A_inv @ moved).squeeze((-2, -1))
        radius = model.radius()
        self.missed |= ~(square.sqrt() <= radius)
        if t not in self.rounds:
            return
        self.error.append(difference.square().sum((-2, -1)).sqrt())
        bounds = radius * torch.linalg.eigvalsh(P)[..., -1].sqrt()
        self.bound.append(bounds.square().sum(-1).sqrt())
        self.radius.append(radius if isinstance(model, HeavyTailRegression) else radius / noise_scale)
        self.interval.append(radius.unsqueeze(-1) * P.diagonal(dim1=-2, dim2=-1).sqrt())
        smallest = torch.linalg.eigvalsh(V)[..., 0].amin(-1)
        # V of HeavyTailRegression is in units of the output. The other V are in noise scales or without unit.
        self.smallest.append(smallest * noise_scale**2 if isinstance(model, HeavyTailRegression) else smallest)


def make_models(runs: int) -> dict[str, Model]:
    """Return the learners by name; single outputs are a batch of runs x outputs."""
    scale = NOISE.moment_norm(2.0)
    apart = {
        "noise_scale": scale,
        "theta_bound": THETA_BOUND,
        "delta": DELTA / OUTPUTS,
        "batch_shape": (runs, OUTPUTS),
    }
    return {
        "SystemIdentification": SystemIdentification(
            DIM, OUTPUTS, noise_scale=scale, theta_bound=THETA_BOUND, delta=DELTA, batch_shape=(runs,)
        ),
        "4 x HeavyTailRegression": HeavyTailRegression(DIM, **apart),
        "least squares": RidgeRegression(DIM, **apart),
    }


def simulate(records: list[Record], rounds: int, runs: int, progress: Progress) -> None:
    """Simulate all runs; every learner sees the same streams."""
    generator = torch.Generator().manual_seed(1)
    state = torch.zeros(runs, OUTPUTS, dtype=torch.float64)
    task = progress.add_task(f"{runs} runs", total=rounds)
    for t in range(1, rounds + 1):
        entered = INPUT_SCALE * torch.randn(runs, 1, generator=generator, dtype=torch.float64)
        x = torch.cat([state, entered], -1)
        state = x @ THETA + NOISE.sample((runs, OUTPUTS), generator)
        for record in records:
            record.step(t, x, state)
        progress.advance(task)


def slope(record: Record, since: int) -> float:
    """Return the slope of log mean error against log t, from round ``since`` on."""
    first = next(i for i, t in enumerate(record.rounds) if t >= since)
    u = torch.tensor(record.rounds[first:], dtype=torch.float64).log()
    v = torch.stack(record.error[first:]).mean(-1).log()
    return float(((u - u.mean()) * (v - v.mean())).sum() / (u - u.mean()).square().sum())


def make_table(records: dict[str, Record], shown: list[int], runs: int) -> Table:
    table = Table(title=f"Means over {runs} runs; intervals of the entries of Theta relative to SystemIdentification's")
    table.add_column("learner", no_wrap=True)
    for header in ("t", "error", "proved", "radius", "intervals", "lambda_min(V)"):
        table.add_column(header, justify="right")
    ours = next(iter(records.values()))
    for name, record in records.items():
        for t in shown:
            i = record.rounds.index(t)
            relative = (record.interval[i] / ours.interval[i]).mean()
            row = [f"{record.error[i].mean():.4f}", f"{record.bound[i].mean():.3f}", f"{record.radius[i].mean():.2f}"]
            table.add_row(name, str(t), *row, f"{relative:.3f}", f"{record.smallest[i].mean():.1f}")
    return table


def make_coverage(records: dict[str, Record], runs: int, since: int) -> Table:
    table = Table(title=f"Runs of {runs} whose confidence set ever failed, delta = {DELTA:g} for all columns together")
    table.add_column("learner", no_wrap=True)
    for header in (*(f"column {i + 1}" for i in range(OUTPUTS)), "any", f"slope of the error from t = {since}"):
        table.add_column(header, justify="right")
    for name, record in records.items():
        missed = record.missed
        counts = [*missed.sum(0).tolist(), int(missed.any(-1).sum())]
        table.add_row(name, *map(str, counts), f"{slope(record, since):.3f}")
    return table


def plot(records: dict[str, Record], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(7, 5), layout="constrained")
    for name, record in records.items():
        errors = torch.stack(record.error)
        low, high = errors.quantile(torch.tensor([0.1, 0.9], dtype=errors.dtype), dim=1)
        (line,) = axis.plot(record.rounds, errors.mean(1), label=f"{name}: error")
        axis.fill_between(record.rounds, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        label = "its Gaussian bound" if isinstance(record.model, RidgeRegression) else "its proved bound"
        axis.plot(record.rounds, torch.stack(record.bound).mean(1), "--", color=line.get_color(), label=label)
    axis.set(
        xlabel="round", ylabel="norm of the error of Theta: mean, 10 % to 90 % of runs", xscale="log", yscale="log"
    )
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few hundred rounds, to see that it runs")
    options = parser.parse_args()
    if options.rounds < 100 or options.runs < 1:
        parser.error(f"--rounds and --runs: expected at least 100 and 1, got {options.rounds} and {options.runs}")
    options.output.mkdir(parents=True, exist_ok=True)
    rounds, runs = (300, 20) if options.smoke else (options.rounds, options.runs)

    console = Console()
    console.print(
        f"Spectral radius of A: {torch.linalg.eigvals(A).abs().max():.3f}. Longest column of Theta: "
        f"{THETA.norm(dim=0).max():.3f}, told {THETA_BOUND}. Student-t noise, df = {NOISE.df}: standard deviation "
        f"{NOISE.moment_norm(2.0):.3f}."
    )
    noted = sorted({round(10.0 ** (k / 8)) for k in range(8 * 8)} & set(range(1, rounds + 1)) | {rounds})
    records = {name: Record(model, noted, runs) for name, model in make_models(runs).items()}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        simulate(list(records.values()), rounds, runs, progress)

    powers = [10**k for k in range(2, 1 + math.floor(math.log10(rounds)))]
    console.print(make_table(records, powers, runs))
    console.print(make_coverage(records, runs, since=powers[-2:][0]))
    path = options.output / "system_identification.png"
    plot(records, path)
    console.print(f"Errors: {path}")


if __name__ == "__main__":
    main()
