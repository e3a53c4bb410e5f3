"""Time of a private step, by mechanism, relative to no noise and to plain NumPy.

One DPTOFW of each kind, with 100 features, learns records with given gradients. Blocks of 50 steps of all learners are timed
in alternation on one thread. The script prints the medians in microseconds and relative to the step without noise. Then one
learner makes 100,000 steps, during which the script counts the memory of the learner and of Python. Last, learners of all kinds
take steps with a record or without one, in random order, and the script prints how well the time tells the two apart: the area
under the ROC curve, 1/2 if not at all.

    OMP_NUM_THREADS=1 python examples/papers/private_oco_speed.py    # a minute; seconds with --smoke
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from torchonline import DPHDB, DPPOFW, DPTOFW
from torchonline.baselines import DPFTRL, DPUCB, LocalMD, NoisySFW

DIM, BLOCK = 100, 50
WITHOUT = "DPTOFW, no noise"


def make_learners(horizon: int) -> dict[str, Any]:
    told: dict[str, Any] = {"dim": DIM, "horizon": horizon, "delta": 0.1 / horizon}
    return {
        WITHOUT: DPTOFW(epsilon=math.inf, **told),
        "DPTOFW, BLT": DPTOFW(epsilon=1.0, **told),
        "DPTOFW, tree": DPTOFW(epsilon=1.0, mechanism="tree", **told),
        "DPTOFW, Honaker's tree": DPTOFW(epsilon=1.0, mechanism="honaker", **told),
        "DPTOFW, BLT, noise of the operating system": DPTOFW(epsilon=1.0, noise_source="csprng", **told),
        "DPTOFW, tree, integers": DPTOFW(epsilon=1.0, mechanism="tree", noise_source="discrete", **told),
        "DPPOFW, BLT": DPPOFW(epsilon=1.0, mechanism="blt", **told),
        "DPPOFW, Gumbel": DPPOFW(epsilon=1.0, mechanism="gumbel", **told),
        "DPTOFW, BLT, fleet of 64 (one of them)": DPTOFW(epsilon=1.0, batch_shape=(64,), **told),
    }


def numpy_frank_wolfe() -> Callable[[np.ndarray], None]:
    """Return the step without noise in NumPy, without checks."""
    theta, before, total, t = np.zeros(DIM), np.zeros(DIM), np.zeros(DIM), 0

    def step(gradients: np.ndarray) -> None:
        nonlocal theta, before, total, t
        t += 1
        g = t * gradients[0] - (t - 1) * gradients[1]
        total = total + g * min(1.0, 1.0 / math.sqrt(g @ g))
        d = total / t
        before, theta = theta, theta + (-d / math.sqrt(d @ d) - theta) / (t + 1)

    return step


def steppers(horizon: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """Return a step of each contender, and its number of learners."""
    gradients = 0.1 * torch.randn(2, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found: dict[str, tuple[Callable[[], Any], int]] = {}
    for name, learner in make_learners(horizon).items():
        given = gradients.expand(*learner.batch_shape, 2, DIM).contiguous()
        found[name] = (lambda learner=learner, given=given: learner.step(given), max(1, math.prod(learner.batch_shape)))
    plain, rows = numpy_frank_wolfe(), gradients.numpy()
    found["the same in NumPy, no noise, no checks"] = (lambda: plain(rows), 1)
    return found


def measure(blocks: int, progress: Progress) -> dict[str, float]:
    """Return median seconds of a step of each contender."""
    contenders = steppers((blocks + 1) * BLOCK)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in progress.track(range(blocks), description="steps in turn"):
        for name, (step, learners) in contenders.items():
            start = time.perf_counter()
            for _ in range(BLOCK):
                step()
            times[name].append((time.perf_counter() - start) / BLOCK / learners)
    return {name: float(np.median(values)) for name, values in times.items()}


def long_run(steps: int, progress: Progress) -> list[tuple[int, int, int, float]]:
    """Return steps, buffer bytes, Python's memory blocks and seconds, ten times."""
    learner = DPTOFW(DIM, horizon=steps, epsilon=1.0, delta=0.1 / steps)
    gradients, points = torch.zeros(2, DIM, dtype=torch.float64).requires_grad_(), []
    for _ in progress.track(range(10), description="a long run"):
        start = time.perf_counter()
        for _ in range(steps // 10):
            learner.step(1.0 * gradients)
        seconds = (time.perf_counter() - start) / (steps // 10)
        held = sum(value.numel() * value.element_size() for value in learner.buffers())
        points.append((int(learner.rounds), held, sys.getallocatedblocks(), seconds))
    return points


def missing_records(steps: int, progress: Progress) -> dict[str, float]:
    """Return how well a step's time tells a record from None, for each learner."""
    told: dict[str, Any] = {"horizon": steps, "epsilon": 1.0, "delta": 0.1 / steps}
    learners: dict[str, Any] = {
        "DPTOFW": DPTOFW(10, **told),
        "DPPOFW, Gumbel": DPPOFW(10, mechanism="gumbel", **told),
        "DPHDB": DPHDB(10, arms=2, warmup=10, **told),
        "DPUCB": DPUCB(10, arms=2, **told),
        "DPFTRL": DPFTRL(10, **told),
        "NoisySFW": NoisySFW(10, **told),
        "LocalMD": LocalMD(10, **told),
    }
    generator, found = torch.Generator().manual_seed(0), {}
    for name, learner in progress.track(learners.items(), description="missing records"):
        is_there = (torch.rand(steps, generator=generator) < 0.5).tolist()
        times = np.empty(steps)
        for step in range(steps):
            x = torch.randn(10, generator=generator, dtype=torch.float64)
            arm = torch.randint(2, (), generator=generator)
            record = (x, arm, x[0]) if isinstance(learner, (DPHDB, DPUCB)) else (x.expand(learner.points, 10).clone(),)
            record = record if is_there[step] else (None,)
            start = time.perf_counter()
            learner.step(*record)
            times[step] = time.perf_counter() - start
        found[name] = area(times[steps // 10 :], np.array(is_there)[steps // 10 :])
    return found


def area(values: np.ndarray, is_positive: np.ndarray) -> float:
    """Return the share of pairs in which the positive one has the larger value."""
    negative = np.sort(values[~is_positive])
    below, up_to = (np.searchsorted(negative, values[is_positive], side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2.0 * len(negative)))


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few steps")
    parser.add_argument(
        "--output", type=Path, default=Path("outputs/private_oco_speed"), help="where to write the plot"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        times = measure(4 if arguments.smoke else 60, progress)
        points = long_run(1000 if arguments.smoke else 100_000, progress)
        areas = missing_records(200 if arguments.smoke else 10_000, progress)

    table = Table(title=f"one step, {DIM} features: medians")
    for name in ("learner", "microseconds", "of the step without noise", "noise, microseconds"):
        table.add_column(name, justify="left" if name == "learner" else "right")
    for name, seconds in times.items():
        more = 1e6 * (seconds - times[WITHOUT])
        table.add_row(
            name, f"{1e6 * seconds:.0f}", f"{seconds / times[WITHOUT]:.2f}", f"{more:.0f}" if "DP" in name else ""
        )
    console.print(table)
    (_, early, first, quick), (steps, late, last, slow) = points[0], points[-1]
    console.print(
        f"BLT after {steps} steps: {late} bytes of buffers, {early} after the first tenth; {last - first:+d} blocks of Python's "
        f"since; a step takes {slow / quick:.2f} times as long"
    )

    areas_text = ", ".join(f"{name} {value:.3f}" for name, value in areas.items())
    console.print(f"The time tells a record from None, area under the curve: {areas_text}")

    arguments.output.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(8, 4))
    names = list(times)[::-1]
    axes.barh(names, [1e6 * times[name] for name in names])
    axes.set_xlabel("microseconds of a step")
    figure.tight_layout()
    figure.savefig(arguments.output / "private_oco_speed.png", dpi=120)
    console.print(f"Plot: {arguments.output / 'private_oco_speed.png'}")


if __name__ == "__main__":
    main()
