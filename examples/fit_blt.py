"""Fit of the table in torchonline.privacy.mechanisms.blt.

For each degree b the script minimises 3/4 log(rms) + 1/4 log(max) + log(column norm) by BFGS, from 2^30 rounds down to 2^3.
Each fit starts from the one before. The unknowns are the decays of the encoder C and of its inverse, which interlace. In
these unknowns all errors are sums of positive terms, and the weights are positive automatically. If there are more buffers
than the horizon needs, a small penalty keeps the decays about evenly spaced in log odds, which allows interpolation: 1e-5
times the squared differences of the logarithms of neighbouring gaps.

The script prints

- the table, in the form used in the source;
- rms and max error with the decays and weights that the library ships, in units of the lower bound of any matrix mechanism;
- the noise at epsilon 1, delta 1/n and unit replace-one sensitivity, beside that of binary trees calibrated by eq. (3.2) of
  the paper on private online Frank-Wolfe.

    python examples/fit_blt.py    # about a minute; seconds with --smoke
"""

import argparse
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from scipy.optimize import minimize
from torch import Tensor

from torchonline.privacy import gaussian_epsilon, gaussian_mu, noise_source
from torchonline.privacy.mechanisms.blt import HORIZONS, TABLE, parameters, trace_lower_bound
from torchonline.privacy.mechanisms.generalized_gaussian import GeneralizedGaussianTree
from torchonline.privacy.mechanisms.toeplitz import BLT, SquareRoot
from torchonline.privacy.mechanisms.trees import Tree

SHARE_OF_MAX, PENALTY = 0.25, 1e-5


def gaps(theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return 1 - decay of the encoder and of its inverse, which interlace."""
    log_odds = torch.cat([theta[:1], theta[1:].exp()]).cumsum(0)
    return torch.sigmoid(log_odds[0::2]), torch.sigmoid(log_odds[1::2])


def differences(values: Tensor) -> Tensor:
    """Return the product of each value's differences to all others."""
    return (values - values.unsqueeze(1) + torch.eye(len(values), dtype=values.dtype)).prod(1)


def weights(theta: Tensor) -> Tensor:
    """Return the weights of the encoder, by partial fractions."""
    encoder, inverse = gaps(theta)
    return (inverse - encoder.unsqueeze(1)).prod(1) / differences(encoder)


def loss(theta: Tensor, n: int) -> Tensor:
    """Return the minimised function; c_k and b_k are positive sums of powers."""
    encoder, inverse = gaps(theta)

    def powers(gap: Tensor, terms: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return products of decays, 1 minus the products, and sums of their powers."""
        log = torch.log1p(-gap)
        away = gap.unsqueeze(1) + gap - gap.unsqueeze(1) * gap
        return 1.0 - away, away, -torch.expm1(terms * (log.unsqueeze(1) + log)) / away

    weight = weights(theta)
    norm = 1.0 + weight @ powers(encoder, n - 1)[2] @ weight
    # b_k = limit + sum_j share_j decay_j^k; the constant part is summed separately.
    limit = (encoder.log() - inverse.log()).sum().exp()
    share = -(encoder - inverse.unsqueeze(1)).prod(1) / (inverse * differences(inverse))
    decays, away, sums = powers(inverse, n)
    single = -torch.expm1(n * torch.log1p(-inverse)) / inverse
    largest = n * limit**2 + 2.0 * limit * share @ single + share @ sums @ share
    mean = limit**2 * (n + 1) / 2.0 + 2.0 * limit * share @ ((1.0 - (1.0 - inverse) * single / n) / inverse)
    mean = mean + share @ ((1.0 - decays * sums / n) / away) @ share
    return (norm.log() + (1.0 - SHARE_OF_MAX) * mean.log() + SHARE_OF_MAX * largest.log()) / 2.0


def fit(degree: int, advance: Callable[[], None]) -> str:
    """Fit one entry of the table."""
    log_odds = np.linspace(-math.log(HORIZONS[-1]), 1.0, 2 * degree)
    theta, rows = np.concatenate([log_odds[:1], np.log(np.diff(log_odds))]), []

    def objective(point: np.ndarray, n: int) -> tuple[float, np.ndarray]:
        variable = torch.tensor(point, requires_grad=True)
        value = loss(variable, n) + PENALTY * variable[1:].diff().square().sum()
        value.backward()
        return value.item(), variable.grad.numpy()

    n = HORIZONS[-1]
    while n >= HORIZONS[0]:
        theta = minimize(objective, theta, (n,), method="BFGS", jac=True, options={"gtol": 1e-7, "maxiter": 3000}).x
        if n in HORIZONS:
            found = torch.from_numpy(theta)
            row = torch.cat([-torch.logit(gaps(found)[0]), weights(found).log()])
            rows.append(" ".join(f"{value:.2f}" for value in row.tolist()))
        n //= 2
        advance()
    return " ".join(reversed(rows))


def tree_noise(n: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Return rms and largest noise of a tree under eq. (3.2), unit sensitivity."""
    promise = {"sensitivity": 1.0, "epsilon": epsilon, "delta": delta}
    tree = GeneralizedGaussianTree(n, order=2.0, dim=1, source=noise_source("torch"), **promise)
    rms, largest = tree.errors(n)
    return tree.noise_scale * rms, tree.noise_scale * largest


def noise_table() -> Table:
    """Return a table of errors and noise with the library's values of degree 5."""
    table = Table(title="Degree 5: error x column norm, and noise at epsilon 1, delta 1/n, sensitivity 1")
    headers = (
        "n",
        "rms / bound",
        "max / bound",
        "rms noise",
        "tree, eq. (3.2)",
        "below it",
        "max noise",
        "tree",
        "below",
    )
    for header in headers:
        table.add_column(header, justify="right")
    for n in (10**3, 10**4, 10**5):
        blt = BLT(n, sensitivity=1.0, noise_scale=1.0, source=noise_source("torch"))
        bound, mu = trace_lower_bound(n), gaussian_mu(1.0, 1.0 / n)
        scaled = [blt.moved(n) * error for error in blt.errors(n)]
        row = [f"{value / bound:.4f}" for value in scaled]
        for value, tree in zip(scaled, tree_noise(n, 1.0, 1.0 / n), strict=True):
            row += [f"{value / mu:.2f}", f"{tree:.1f}", f"{tree * mu / value:.1f}x"]
        table.add_row(str(n), *row)
    return table


def passes_table(people: int) -> Table:
    """Return a table of the noise of several passes, and of what one pass's noise would spend."""
    table = Table(
        title=f"{people} people: rms noise / passes at epsilon 1, delta 1e-5, and epsilon with the noise of one pass"
    )
    for header in ("passes", "BLT, one order", "tree", "BLT, any order", "tree", "noise of one pass"):
        table.add_column(header, justify="right")
    mu, told = gaussian_mu(1.0, 1e-5), {"sensitivity": 1.0, "noise_scale": 1.0, "source": noise_source("torch")}
    for passes in (1, 2, 5, 10):
        n, row = passes * people, []
        for apart in (people, 1):
            for kind in (BLT, Tree):
                mechanism = kind(n, participations=passes, min_separation=apart, **told)
                row.append(f"{mechanism.moved(n) / mu * mechanism.errors(n)[0] / passes:.2f}")
        once = BLT(n, **told)
        # The rows that a person moves who contributes 1 in each pass.
        state, ones = once.initial_state(1), torch.ones(1, dtype=torch.float64)
        rows = [once._encode(state, ones * (step % people == 1), step) for step in range(1, n + 1)]
        moved = float(torch.stack(rows).norm())
        table.add_row(str(passes), *row, f"{gaussian_epsilon(mu * moved / once.moved(n), 1e-5):.2f}")
    return table


def square_root(n: int) -> float:
    """Return rms error times column norm of the square-root factorisation."""
    mechanism = SquareRoot(n, sensitivity=1.0, noise_scale=1.0, source=noise_source("torch"))
    return mechanism.column_norm(n) * mechanism.errors(n)[0]


def plot(rounds: list[int], path: Path) -> Table:
    """Plot rms error times column norm over n, and return the largest values."""
    table = Table(title=f"rms x column norm / bound, over {len(rounds)} horizons from {rounds[0]} to {rounds[-1]}")
    for header in ("degree", "largest", "at n", "largest from 100 on", "at n"):
        table.add_column(header, justify="right")
    bounds = np.array([trace_lower_bound(n) for n in rounds])
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for degree in TABLE:
        told = {"sensitivity": 1.0, "noise_scale": 1.0, "source": noise_source("torch")}
        blts = [BLT(n, parameters=parameters(n, degree), **told) for n in rounds]
        ratios = np.array([blt.moved(blt.horizon) * blt.errors(blt.horizon)[0] for blt in blts]) / bounds
        axes.plot(rounds, ratios, label=f"degree {degree}")
        start = next(i for i, n in enumerate(rounds) if n >= 100)
        at = [int(ratios.argmax()), start + int(ratios[start:].argmax())]
        table.add_row(str(degree), *(text for i in at for text in (f"{ratios[i]:.4f}", str(rounds[i]))))
    axes.plot(rounds, [square_root(n) for n in rounds] / bounds, "k--", label="square root (memory n)")
    axes.axhline(1.07, color="grey", linewidth=0.8)
    axes.set(xscale="log", ylim=(1.0, 1.3), xlabel="rounds n", ylabel="rms x column norm / lower bound")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="fit degrees 1 and 2 only, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    degrees, last = (2, 14) if options.smoke else (len(TABLE), 20)

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    fitted = {}
    with Progress(*columns, console=console) as progress:
        for degree in range(1, degrees + 1):
            horizons = int(math.log2(HORIZONS[-1] // HORIZONS[0])) + 1
            task = progress.add_task(f"degree {degree}", total=horizons)
            fitted[degree] = fit(degree, partial(progress.advance, task))
    for degree, text in fitted.items():
        console.print(f"degree {degree}: {text}", soft_wrap=True, highlight=False)
        away = np.array(text.split(), float) - np.array(TABLE[degree].split(), float)
        console.print(f"Largest difference from the table that is shipped: {abs(away).max():.2f}")
    console.print(noise_table())
    console.print(passes_table(100 if options.smoke else 1000))
    path = options.output / "fit_blt.png"
    rounds = sorted({round(2 ** (e / 4)) for e in range(4 * last + 1)})
    console.print(plot(rounds, path))
    console.print(f"Noise over n: {path}")


if __name__ == "__main__":
    main()
