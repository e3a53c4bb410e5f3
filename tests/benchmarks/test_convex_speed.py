"""A step of the convex learners against plain NumPy and torch's Adam: ``make bench``.

Both sides of a ratio take turns in one run on one thread, as in :mod:`tests.benchmarks.test_speed`.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.benchmarks.test_speed import Round, in_turn
from torchonline import CAOONS, CLAOONS, OONS, FreeGrad, ParameterFree
from torchonline.baselines import Prodigy

DIM, RADIUS = 32, 2.0
LEARNERS: dict[str, Callable[[], Any]] = {
    "OONS, eigen": lambda: OONS(DIM, lipschitz=1.0, radius_bound=RADIUS),
    "OONS, frozen": lambda: OONS(DIM, lipschitz=1.0, radius_bound=RADIUS, form="frozen"),
    "OONS, sketch": lambda: OONS(DIM, lipschitz=1.0, radius_bound=RADIUS, form="sketch"),
    "CLAOONS": lambda: CLAOONS(DIM),
    "CAOONS, eigen": lambda: CAOONS(DIM, lipschitz=1.0, horizon=2**14, meta="linear"),
    "CAOONS, frozen": lambda: CAOONS(DIM, lipschitz=1.0, horizon=2**14, meta="linear", form="frozen"),
    "FreeGrad": lambda: FreeGrad(DIM),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "ParameterFree": ParameterFree,
    "ParameterFree, per coordinate": lambda params: ParameterFree(params, per_coordinate=True),
    "ParameterFree, Prodigy": lambda params: ParameterFree(params, learner=Prodigy),
}


def mlp(*sizes: int) -> nn.Module:
    """Linear layers with ReLUs between them."""
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def cnn() -> nn.Module:
    """Two convolutions of 10 x 10 images and two linear layers: 39,700 parameters."""
    convolutions = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(1152, 30), nn.ReLU(), nn.Linear(30, 10))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "head": lambda: nn.Linear(10, 1),
    "small MLP": lambda: mlp(64, 96, 48, 10, 10),
    "MLP": lambda: mlp(128, 256, 192, 64, 10),
    "CNN": cnn,
}


def gradients() -> list[torch.Tensor]:
    """Random unit gradients."""
    rows = torch.randn(997, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return list(nn.functional.normalize(rows, dim=-1))


def numpy_ogd() -> Round:
    """Online gradient descent in a ball, in four lines of NumPy, with no checks."""
    rows, x, t = [row.numpy() for row in gradients()], np.zeros(DIM), 0

    def play() -> None:
        nonlocal x, t
        t += 1
        x -= 0.5 / np.sqrt(t) * rows[t % 997]
        norm = np.linalg.norm(x)
        if norm > RADIUS:
            x *= RADIUS / norm

    return play


def played(learner: Any) -> Round:
    """One round of a learner that has played a thousand."""
    rows, t = gradients(), 0

    def play() -> None:
        nonlocal t
        t += 1
        learner.predict()
        learner.step(rows[t % 997])

    for _ in range(1000):
        play()
    return play


def stepped(model: nn.Module, make: Callable[[Any], torch.optim.Optimizer]) -> Round:
    """One step of an optimizer, with gradients of noise."""
    for p in model.parameters():
        p.grad = 0.01 * torch.randn_like(p)
    return make(model.parameters()).step


@pytest.mark.parametrize("name", LEARNERS)
def test_round(benchmark: Any, name: str) -> None:
    report(benchmark, "NumPy's gradient descent, d=32", played(LEARNERS[name]()), numpy_ogd())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_step(benchmark: Any, model: str, name: str) -> None:
    made = MODELS[model]
    size = sum(p.numel() for p in made().parameters())
    report(
        benchmark,
        f"Adam, {model} of {size} parameters",
        stepped(made(), OPTIMIZERS[name]),
        stepped(made(), torch.optim.Adam),
    )


def report(benchmark: Any, rival: str, play: Round, baseline: Round) -> None:
    """Time a round in turn with a rival's, and report the ratio."""
    ours, theirs = in_turn(play, baseline)
    benchmark.group = rival
    benchmark.extra_info["microseconds"] = 1e6 * ours
    benchmark.extra_info["ratio"] = ours / theirs
    benchmark.pedantic(play, rounds=5)
