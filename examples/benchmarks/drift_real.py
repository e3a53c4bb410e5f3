"""Prediction of a number that drifts slowly: what forgetting is worth on a real stream.

Two streams are passed once. In each round a learner predicts a number from features, sees it and learns. The score is the mean
absolute error of the predictions.

- trump: the approval rating of a president over 1001 days, from five polls and the date (the package river);
- walk: a simulated linear model of 5 features whose parameter takes a small random step in each round, 4 seeds.

Features are standardised over the stream, which is known in hindsight only, and come with a column of ones, so that a level
can be tracked. Every learner predicts the number less the first one of the stream, from the second round on. A learner's
option (memory in rounds, step, rate) is the best in hindsight of its grid, for each stream, and is printed. The last value
needs no features.

Without the package river, or vowpalwabbit, its stream or learner is left out, and the script says so.

    python examples/benchmarks/drift_real.py    # about two minutes; seconds with --smoke
"""

import argparse
import importlib.util
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from torchonline import (
    DiscountedHeavyTailRegression,
    DiscountedRidgeRegression,
    HeavyTailRegression,
    NormalizedLMS,
    RidgeRegression,
)

MEMORIES = (10, 30, 100, 300, 1000)
STEPS = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
RATES = tuple(10.0 ** (k / 2) for k in range(-8, 1))

Stream = tuple[np.ndarray, np.ndarray]
# Of rows (n, d) and numbers (n): the predictions.
Learner = Callable[[np.ndarray, np.ndarray], np.ndarray]


def standardised(x: np.ndarray) -> np.ndarray:
    return np.column_stack([(x - x.mean(0)) / x.std(0), np.ones(len(x))])


def trump() -> list[Stream]:
    from river import datasets

    rows = list(datasets.TrumpApproval())
    names = sorted(rows[0][0])
    x = np.array([[features[name] for name in names] for features, _ in rows], dtype=float)
    y = np.array([y for _, y in rows])
    return [(standardised(x)[1:], y[1:] - y[0])]


def walk(rounds: int = 1000) -> list[Stream]:
    streams = []
    for seed in range(4):
        random = np.random.default_rng(seed)
        theta = random.standard_normal(6) + np.cumsum(0.03 * random.standard_normal((rounds, 6)), 0)
        x = standardised(random.standard_normal((rounds, 5)))
        streams.append((x, (x * theta).sum(1) + 0.3 * random.standard_normal(rounds)))
    return streams


def ours(build: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the predictions of an estimator of this library."""
    learner, seen = build(x.shape[1]), np.empty(len(y))
    for t, (row, number) in enumerate(zip(x, y, strict=True)):
        seen[t] = learner(row)
        learner.step(row, number)
    return seen


def last_value(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], y[:-1]])


def descent(rate: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the predictions of stochastic gradient descent on half the squared error, with a constant rate."""
    theta, seen = np.zeros(x.shape[1]), np.empty(len(y))
    for t, row in enumerate(x):
        seen[t] = row @ theta
        theta -= np.clip(rate * (seen[t] - y[t]), -1e6, 1e6) * row
    return seen


def vowpal_wabbit(options: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    import vowpalwabbit

    workspace, seen = vowpalwabbit.Workspace(f"{options} --noconstant --quiet"), np.empty(len(y))
    for t, row in enumerate(x):
        features = " ".join(f"{i}:{value:.9g}" for i, value in enumerate(row))
        seen[t] = workspace.predict(f"| {features}")
        workspace.learn(f"{y[t]} | {features}")
    workspace.finish()
    return seen


def over(make: Callable[[Any], Learner], grid: Iterable[Any]) -> dict[str, Learner]:
    return {f"{value:.3g}": make(value) for value in grid}


def restarted(cls: Any, memory: int) -> Learner:
    return partial(ours, lambda d: cls(d, restart_every=memory, ridge=0.1))


def discounted(cls: Any, memory: int) -> Learner:
    return partial(ours, lambda d: cls(d, discount=1.0 - 1.0 / max(memory, d), ridge=0.1))


def tracker(constant: float, step: float) -> Learner:
    """Return NormalizedLMS with a column of a constant in place of the ones."""

    def run(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        rows = np.column_stack([x[:, :-1], np.full(len(x), constant)])
        return ours(lambda d: NormalizedLMS(d, step_size=step, ridge=0.1), rows, y)

    return run


# By name: the runs of a learner, by the value of its option.
LEARNERS: dict[str, dict[str, Learner]] = {
    "last value": {"-": last_value},
    "RidgeRegression": {"-": partial(ours, lambda d: RidgeRegression(d, ridge=0.1))},
    "RidgeRegression, restarted": over(partial(restarted, RidgeRegression), MEMORIES),
    "HeavyTailRegression, restarted": over(partial(restarted, HeavyTailRegression), MEMORIES),
    "DiscountedHeavyTailRegression": over(partial(discounted, DiscountedHeavyTailRegression), MEMORIES),
    "DiscountedRidgeRegression": over(partial(discounted, DiscountedRidgeRegression), MEMORIES),
    "NormalizedLMS": over(partial(tracker, 1.0), STEPS),
    "NormalizedLMS, ones times 10": over(partial(tracker, 10.0), STEPS),
    "SGD": over(lambda rate: partial(descent, rate), RATES),
    "Vowpal Wabbit": {"-": partial(vowpal_wabbit, "")},
    "Vowpal Wabbit -l 2 --power_t 0": {"-": partial(vowpal_wabbit, "-l 2 --power_t 0")},
}


def is_there(module: str, package: str, what: str) -> bool:
    """Return whether a module is installed, and say if it is not."""
    if importlib.util.find_spec(module) is not None:
        return True
    print(f"{what}: left out, because the package {package} is not installed (pip install {package})")
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the table")
    parser.add_argument("--smoke", action="store_true", help="150 rounds of the simulated stream")
    options = parser.parse_args()
    streams: dict[str, list[Stream]] = {}
    if not options.smoke and is_there("river", "river", "trump"):
        streams["trump"] = trump()
    streams["walk"] = walk(150)[:1] if options.smoke else walk()
    learners = dict(LEARNERS)
    if not is_there("vowpalwabbit", "vowpalwabbit", "Vowpal Wabbit"):
        learners = {name: runs for name, runs in learners.items() if not name.startswith("Vowpal")}
    print("Mean absolute error of one pass, and the option that is best in hindsight.")
    lines = ["| learner |" + "".join(f" {name} | option |" for name in streams), "|---|" + "---|---|" * len(streams)]
    print(*lines, sep="\n")
    for name, runs in learners.items():
        cells = []
        for pairs in streams.values():
            errors = {
                option: float(np.mean([np.abs(run(x, y) - y).mean() for x, y in pairs])) for option, run in runs.items()
            }
            best = min(errors, key=lambda option: errors[option])
            cells.append(f" {errors[best]:.3f} | {best} |")
        lines.append(f"| {name} |{''.join(cells)}")
        print(lines[-1], flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "drift_real.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
