"""Coverage and regret of OFUL's two radii.

Coverage: 2000 runs of 600 rounds are one batch. The noise is Gaussian, uniform or Rademacher, and sub-Gaussian with scale
exactly R = 1. The parameter has norm exactly S = 1. The features are

- "own choices": OFUL's own choices among 10 fixed unit arms;
- "against it": V (theta_hat - theta*), the direction in which the estimate is worst, known only to an adversary;
- "growing": random directions;
- "scales": random directions, and a random noise scale of 0.3, 1 or 3 in each round, which the learner is told.

All but OFUL's own choices get longer and longer: each has a squared width of 0.05 before its round. A set fails if
|x'(theta_hat - theta*)| > radius * width(x) for some x after some round. Besides the two radii, the script counts the default
radius of a learner that is told 2/3 of each noise scale, which promises nothing.

Regret: 20 fixed unit arms, 2000 rounds, Gaussian noise of scale 0.5, 200 trials, default ridge and delta.

    python examples/oful_radius.py    # some minutes; seconds with --smoke
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
from torch import Tensor
from torch.nn.functional import normalize

from torchonline import OFUL
from torchonline.environments import GaussianNoise, LinearBandit
from torchonline.metrics import has_missed

DIMS, DELTAS, SQUARED_WIDTH = (2, 5), (0.5, 0.1, 0.05), 0.05
NOISE = 0.5  # of the regret
FEATURES = ("own choices", "against it", "growing", "scales")
LAWS = ("Gaussian", "uniform", "Rademacher")
# The radius, and the share of each noise scale that the learner is told.
CLAIMS = {"mixture": ("mixture", 1.0), "classic": ("classic", 1.0), "mixture, 2/3 R": ("mixture", 2.0 / 3.0)}


def draw_noise(runs: int, generator: torch.Generator) -> Tensor:
    """Return noise of each law with sub-Gaussian scale 1, (laws, runs)."""
    normal = torch.randn(runs, generator=generator, dtype=torch.float64)
    uniform = math.sqrt(3.0) * (2.0 * torch.rand(runs, generator=generator, dtype=torch.float64) - 1.0)
    sign = 2.0 * torch.randint(2, (runs,), generator=generator).double() - 1.0
    return torch.stack([normal, uniform, sign])


def failures(claim: str, dim: int, features: str, delta: float, rounds: int, runs: int) -> list[int]:
    """Count the runs of each law whose confidence set ever failed."""
    generator = torch.Generator().manual_seed(0)
    batch = (len(LAWS), runs)
    radius, share = CLAIMS[claim]
    policy = OFUL(dim, noise_scale=share, delta=delta, radius=radius, batch_shape=batch)
    estimator = policy.estimator
    theta = normalize(torch.randn(*batch, dim, generator=generator, dtype=torch.float64), dim=-1)
    arms = normalize(torch.randn(*batch, 10, dim, generator=generator, dtype=torch.float64), dim=-1)
    scale = torch.ones(batch, dtype=torch.float64)
    failed = torch.zeros(batch, dtype=torch.bool)
    for _ in range(rounds):
        if features == "own choices":
            x = arms.take_along_dim(policy.select(arms)[..., None, None], dim=-2).squeeze(-2)
        else:
            x = torch.randn(*batch, dim, generator=generator, dtype=torch.float64)
            if features == "against it":
                x = (estimator.V @ (estimator.theta_hat - theta).unsqueeze(-1)).squeeze(-1)
            elif features == "scales":
                scale = torch.tensor([0.3, 1.0, 3.0]).double()[torch.randint(3, batch, generator=generator)]
            x = x * (scale * math.sqrt(SQUARED_WIDTH) / estimator.width(x)).unsqueeze(-1)
        reward = (x * theta).sum(-1) + scale * draw_noise(runs, generator)
        policy.step(x.unsqueeze(-2), torch.zeros(batch, dtype=torch.int64), reward, noise_scale=share * scale)
        failed |= has_missed(estimator, theta)
    return failed.sum(-1).tolist()


def regret_curve(radius: str, dim: int, rounds: int, trials: int) -> Tensor:
    """Return the cumulative regret, (rounds, trials)."""
    environment = LinearBandit(dim, 20, noise=GaussianNoise(scale=NOISE), batch_shape=(trials,), seed=1)
    policy = OFUL(dim, noise_scale=NOISE, radius=radius, batch_shape=(trials,))
    regret = torch.empty(rounds, trials, dtype=torch.float64)
    for t in range(rounds):
        arms = environment.arms()
        k = policy.select(arms)
        _, reward, regret[t] = environment.pull(k)
        policy.step(arms, k, reward)
    return regret.cumsum(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few rounds and runs, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rounds, runs, long, trials = (30, 20, 50, 5) if options.smoke else (600, 2000, 2000, 200)

    console = Console()
    cases = [(dim, features, delta) for dim in DIMS for features in FEATURES for delta in DELTAS]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    table = Table(title=f"Confidence sets that failed, of {runs} ({rounds} rounds): {', '.join(LAWS)} noise")
    for header in ("d", "features", "delta", "delta x runs", *CLAIMS):
        table.add_column(header, justify="left" if header == "features" else "right", no_wrap=True)
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("batches", total=len(cases) * len(CLAIMS))
        for case in cases:
            dim, features, delta = case
            cells = []
            for claim in CLAIMS:
                cells.append(", ".join(map(str, failures(claim, *case, rounds, runs))))
                progress.advance(task)
            table.add_row(str(dim), features, f"{delta:g}", f"{delta * runs:.0f}", *cells)
    console.print(table)

    table = Table(title=f"Regret after {long} rounds, {trials} trials")
    for header in ("d", "radius", "mean", "sd", "max"):
        table.add_column(header, justify="left" if header == "radius" else "right")
    figure, axes = plt.subplots(1, len(DIMS), figsize=(10, 4.5), layout="constrained")
    for axis, dim in zip(axes, DIMS, strict=True):
        for radius in ("mixture", "classic"):
            regret = regret_curve(radius, dim, long, trials)
            final = regret[-1]
            table.add_row(str(dim), radius, *(f"{number:.1f}" for number in (final.mean(), final.std(), final.max())))
            low, high = regret.quantile(torch.tensor([0.1, 0.9], dtype=regret.dtype), dim=1)
            (line,) = axis.plot(regret.mean(1), label=radius)
            axis.fill_between(range(long), low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        axis.set(title=f"d = {dim}", xlabel="round", ylabel="cumulative regret: mean, 10 % to 90 % of trials")
        axis.legend()
    console.print(table)
    path = options.output / "oful_radius.png"
    figure.savefig(path, dpi=120)
    console.print(f"Regret curves: {path}")


if __name__ == "__main__":
    main()
