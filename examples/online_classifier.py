"""Online classifier for raw features: a running scaler, and logistic regression without a learning rate.

The stream is that of phishing websites of the package river; without river, the breast cancer data of scikit-learn. In each
round the classifier sees the features, standardises them by the mean and deviation so far, predicts the probability of the
label, sees the label and learns. It never sees a row twice, and nobody tells it a scale or a rate. ``theta_bound=3`` says that
standardised features have weights of length 3 at most together: larger for labels that are easier to tell.

The script prints the mean logarithmic loss and the accuracy of the predictions, each made before its label; the same for the
share of positive labels so far; and the probability of a row with its confidence interval. The classifier is compared with
others in examples/benchmarks/full_information.py.

    python examples/online_classifier.py    # seconds
"""

import argparse
import importlib.util
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchonline import LocalGLMRegression, StandardScaler

Data = tuple[Tensor, Tensor]


def phishing() -> Data:
    from river import datasets

    rows = list(datasets.Phishing())
    x = [[features[name] for name in sorted(features)] for features, _ in rows]
    return torch.tensor(x, dtype=torch.float64), torch.tensor([float(y) for _, y in rows]).double()


def breast_cancer() -> Data:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return torch.from_numpy(x[order]), torch.from_numpy(y[order]).double()


def log_loss(p: float, y: float) -> float:
    """Return the logarithmic loss in nats of a probability."""
    return -math.log(max(p if y else 1.0 - p, 1e-15))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the classifier's state")
    parser.add_argument("--smoke", action="store_true", help="200 rounds of scikit-learn's data")
    options = parser.parse_args()
    has_river = importlib.util.find_spec("river") is not None
    if not has_river:
        print("The package river is not installed (pip install river): scikit-learn's breast cancer data instead.")
    x, y = phishing() if has_river and not options.smoke else breast_cancer()
    if options.smoke:
        x, y = x[:200], y[:200]

    scaler = StandardScaler(x.size(1), clip=5.0)
    learner = LocalGLMRegression(scaler.features, theta_bound=3.0, feature_bound=scaler.bound)
    loss = of_share = hits = positives = 0.0
    for t, (row, label) in enumerate(zip(x, y.tolist(), strict=True)):
        z = scaler(row)
        scaler.step(row)
        p, share = float(learner(z)), (positives + 0.5) / (t + 1.0)
        loss += log_loss(p, label)
        of_share += log_loss(share, label)
        hits += (p > 0.5) == bool(label)
        learner.step(z, label)
        positives += label

    rounds = len(y)
    print(f"{rounds} rounds of {x.size(1)} raw features")
    print(
        f"log loss {loss / rounds:.3f} (share of labels so far: {of_share / rounds:.3f}), accuracy {hits / rounds:.3f}"
    )
    low, high = learner.interval(scaler(x[0]))
    print(f"first row: probability {float(learner(scaler(x[0]))):.3f}, between {float(low):.3f} and {float(high):.3f}")
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "online_classifier.pt"
    torch.save({"scaler": scaler.state_dict(), "learner": learner.state_dict()}, path)
    print(f"State, to go on from: {path}")


if __name__ == "__main__":
    main()
