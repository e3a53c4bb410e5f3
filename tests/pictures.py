"""Pictures that are compared with the ones in tests/data/plots.

Text is left out and the layout is fixed, because both depend on fonts. What is compared is the mean of blocks of 5 x 5 pixels, so
another way to smooth edges does not matter. ``python -m tests.pictures`` draws the files anew: look at them before a commit.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.text import Text

from torchonline import DPTOFW, OFUL, EpsilonGreedy
from torchonline.diagnostics import NoiseDiagnostic
from torchonline.metrics import ActionShares, CumulativeRegret, LogHistogram

FOLDER = Path(__file__).parent / "data" / "plots"
BLOCK = 5
# Root of the mean square of differences, of values from 0 to 255. Versions 3.8 and 3.11 of matplotlib differ by 0.001.
TOLERANCE = 1.0


def pixels(figure: Figure) -> np.ndarray:
    """Return the picture without its text: 120 x 160 pixels of three values from 0 to 255."""
    figure.set_layout_engine("none")
    figure.set_size_inches(3.2, 2.4)
    figure.set_dpi(50)
    for text in figure.findobj(Text):
        text.set_visible(False)
    for axes in figure.axes:
        for part in (axes.xaxis, axes.yaxis, *axes.child_axes):
            part.set_visible(False)
        axes.set_position((0.05, 0.05, 0.9, 0.9))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(np.float64)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the root of the mean square of differences between two pictures, in blocks."""
    rows, columns, colours = one.shape
    difference = (one - other).reshape(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK, colours).mean((1, 3))
    return float(np.sqrt(np.square(difference).mean()))


def kept(name: str) -> np.ndarray:
    """Return the pixels of a picture in tests/data/plots."""
    return 255.0 * np.asarray(pyplot.imread(FOLDER / f"{name}.png"))[..., :3].astype(np.float64)


def arms() -> torch.Tensor:
    return torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-0.6, 0.8]], dtype=torch.float64)


def learnt(rounds: int = 40) -> OFUL:
    """Return a policy after rounds of the first two arms in turn."""
    policy = OFUL(2)
    x = arms()[:2].repeat(rounds, 1)[:rounds]
    noise = 0.3 * torch.sin(torch.arange(rounds, dtype=torch.float64))
    reward = x @ torch.tensor([0.6, 0.3], dtype=torch.float64) + noise
    policy.step(x.unsqueeze(-2), torch.zeros(rounds, dtype=torch.int64), reward)
    return policy


def quantiles(n: int) -> torch.Tensor:
    """Return n quantiles of the uniform law on (0, 1), in an order without a pattern."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return ((torch.arange(n, dtype=torch.float64) + 0.5) / n)[order]


def confidence(**options: Any) -> Figure:
    return learnt().plot_confidence(arms(), **options)[0]


def probabilities() -> Figure:
    policy = EpsilonGreedy(learnt().estimator, epsilon=0.2)
    return policy.plot_confidence(arms(), mask=[True, False, True, True])[0]


def confidence_set() -> Figure:
    figure, axes = learnt(8).estimator.plot_confidence_set(label="after 8 rounds", truth=[0.6, 0.3])
    learnt(400).estimator.plot_confidence_set(axes, label="after 400 rounds")
    return figure


def regret() -> Figure:
    metric, other = CumulativeRegret((3,)), CumulativeRegret()
    metric.update(torch.tensor([1.0, 1.2, 1.6]) / (1.0 + torch.arange(200.0)).sqrt().unsqueeze(-1))
    other.update(torch.full((200,), 0.12))
    figure, axes = metric.plot(label="a learner")
    other.plot(ax=axes, label="a constant")
    return figure


def shares() -> Figure:
    metric = ActionShares(3)
    metric.update((quantiles(400) < torch.linspace(0.2, 0.9, 400)).long() + (quantiles(399).sum() < 0.0).long())
    metric.update(torch.full((40,), 2))
    return metric.plot()[0]


def histogram() -> Figure:
    metric = LogHistogram(0.01, 100.0)
    metric.update(torch.special.ndtri(quantiles(500)).exp())
    return metric.plot()[0]


def noise_tail() -> Figure:
    diagnostic = NoiseDiagnostic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        diagnostic.update(quantiles(400) ** (-1.0 / 1.5), noise_scale=1.0)
    return diagnostic.plot()[0]


def privacy() -> Figure:
    learner = DPTOFW(2, horizon=64, epsilon=1.0, delta=1e-3)
    for _ in range(20):
        learner.step(None)
    return learner.plot_privacy()[0]


PICTURES = [confidence, probabilities, confidence_set, regret, shares, histogram, noise_tail, privacy]


if __name__ == "__main__":
    for draw in PICTURES:
        imsave(FOLDER / f"{draw.__name__}.png", pixels(draw()).astype(np.uint8))
