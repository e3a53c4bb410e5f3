"""Time of a private step, by mechanism, relative to no noise and to plain NumPy.

One DPTOFW of each kind, with 100 features, learns records with given gradients. Blocks of 50 steps of all learners are timed
in alternation on one thread. The script prints the medians relative to the step without noise. Then one learner makes 100,000
steps, during which the script counts the memory of the learner and of Python. Last, learners of all kinds take steps with a
record or without one, in random order, and the script prints how well the time tells the two apart: the area under the ROC
curve, 1/2 if not at all.

    OMP_NUM_THREADS=1 python examples/papers/private_oco_speed.py    # a minute; seconds with --quick
"""

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
from experiment import Experiment, Job, Results, listed, table

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
        "DPTOFW, BLT, batch of 64 (one of them)": DPTOFW(epsilon=1.0, batch_shape=(64,), **told),
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


def measure(blocks: int) -> dict[str, float]:
    """Return median seconds of a step of each contender."""
    contenders = steppers((blocks + 1) * BLOCK)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(blocks):
        for name, (step, learners) in contenders.items():
            start = time.perf_counter()
            for _ in range(BLOCK):
                step()
            times[name].append((time.perf_counter() - start) / BLOCK / learners)
    return {name: float(np.median(values)) for name, values in times.items()}


def long_run(steps: int) -> list[tuple[int, int, int, float]]:
    """Return steps, buffer bytes, Python's memory blocks and seconds of a step, ten times."""
    learner = DPTOFW(DIM, horizon=steps, epsilon=1.0, delta=0.1 / steps)
    gradients, points = torch.zeros(2, DIM, dtype=torch.float64).requires_grad_(), []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(steps // 10):
            learner.step(1.0 * gradients)
        seconds = (time.perf_counter() - start) / (steps // 10)
        held = sum(value.numel() * value.element_size() for value in learner.buffers())
        points.append((int(learner.rounds), held, sys.getallocatedblocks(), seconds))
    return points


def missing_records(steps: int) -> dict[str, float]:
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
    for name, learner in learners.items():
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


def jobs(quick: bool) -> dict[str, Job]:
    return {
        "steps in turn": Job(measure, {"blocks": 4 if quick else 60}),
        "a long run": Job(long_run, {"steps": 1000 if quick else 100_000}),
        "missing records": Job(missing_records, {"steps": 200 if quick else 10_000}),
    }


def tables(results: Results) -> dict[str, str]:
    times = results["steps in turn"]
    ratios = [(name, f"{seconds / times[WITHOUT]:.2f}") for name, seconds in times.items() if name != WITHOUT]
    (_, early, first, quick), *_, (steps, late, last, slow) = results["a long run"]
    said = (
        f"BLT after {steps} steps: {late} bytes of buffers, {early} after the first tenth; {last - first:+d} blocks of "
        f"Python's since; a step takes {slow / quick:.2f} times as long"
    )
    areas = [(name, f"{value:.3f}") for name, value in results["missing records"].items()]
    return {
        f"Time of a step, {DIM} features: medians": table(("learner", "of the step without noise"), ratios),
        "A long run": listed([said]),
        "How well the time tells a record from None": table(("learner", "area under the curve"), areas),
    }


def figures(results: Results, folder: Path) -> list[Path]:
    times, path = results["steps in turn"], folder / "private_oco_speed.png"
    figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
    axis.barh(list(times)[::-1], [seconds / times[WITHOUT] for seconds in times.values()][::-1])
    axis.set(xlabel=f"time of a step; {WITHOUT} has 1")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures, is_timed=True, seeds="0")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
