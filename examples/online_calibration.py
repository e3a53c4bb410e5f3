"""Online learning of an encoder's last layer without a learning rate.

A small encoder is trained on 300 labelled digits and frozen. Then digits come one by one, drawn from the other 1497. In each
round the layer predicts class probabilities, pays the logarithmic loss, sees the label and learns from it (prequential
evaluation: each prediction precedes its label). Meanwhile the data drift: the mix of the classes turns around twice, and the
images lose 60 % of their contrast. Two layers learn on the same streams:

- calibration: 10 x 10 weights and 10 biases on the encoder's own logits, from the identity, 110 parameters;
- new head: weights and biases on its 32 hidden features, from zero, 330 parameters.

All learners have one budget: a run with their defaults, and one for each value of the same grid, eleven numbers from 1e-4 to
10, in the place of their one number. That is a learning rate for SGD, Adam and schedule-free SGD; the length of the first step
for DoG and DoWG; the factor of all steps that their authors tune for D-Adaptation and Prodigy; the unit of length for FreeGrad
(by ParameterFree), CLA-OONS, coin betting (KT, which is also told the longest gradient, in hindsight), scale-free coin betting
and SOLO FTRL; and the unit of wealth for FreeGrad per coordinate. The tables show the default, and the best, the median and the
worst of the grid in hindsight, with the effect of one layer's best value on the other layer. The best values are not known before
the end. All play their last iterates, but schedule-free SGD, which plays an average by its nature. The theorems bound the regret
against fixed layers, which are not the best competitors in this drifting world.

The script prints logarithmic loss (mean and standard deviation over seeds), accuracy and calibration error. It draws the
losses over the grid and by round.

    python examples/online_calibration.py    # five minutes; seconds with --smoke
"""

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from torchonline import CLAOONS, FreeGrad, ParameterFree
from torchonline.baselines import (
    SOLOFTRL,
    CoinBetting,
    DAdaptation,
    DoG,
    DoWG,
    Prodigy,
    ScaleFreeCoinBetting,
    ScheduleFree,
)
from torchonline.convex.learner import ConvexLearner
from torchonline.datasets import digits

ROUNDS, SEEDS, CLASSES, HIDDEN = 3000, 5, 10, 32
# Grid of the one number of each learner.
GRID = [10.0 ** (k / 2) for k in range(-8, 3)]
TUNED: dict[str, Callable[..., torch.optim.Optimizer]] = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}


@dataclass(frozen=True)
class Rival:
    """A learner with one number: class, the number's name and default, options."""

    cls: type[ConvexLearner]
    number: str
    default: float
    options: tuple[tuple[str, object], ...] = ()


RIVALS = {
    "FreeGrad per coordinate": Rival(FreeGrad, "initial_wealth", 1.0, (("per_coordinate", True),)),
    # The sketch avoids a 330 x 330 eigendecomposition in each round.
    "CLA-OONS": Rival(CLAOONS, "length_scale", 1.0, (("form", "sketch"),)),
    "KT": Rival(CoinBetting, "length_scale", 1.0),
    "scale-free coin betting": Rival(ScaleFreeCoinBetting, "length_scale", 1.0),
    "SOLO FTRL": Rival(SOLOFTRL, "length_scale", 1.0),
    "DoG": Rival(DoG, "initial_distance", 1e-6),
    "DoWG": Rival(DoWG, "initial_distance", 1e-2),
    "D-Adaptation": Rival(DAdaptation, "step_scale", 1.0),
    "Prodigy": Rival(Prodigy, "step_scale", 1.0),
    "schedule-free SGD": Rival(ScheduleFree, "step_size", 1.0),
}
# The number of each learner, and its default. The defaults of SGD and Adam are those of torch.
NUMBERS = {"FreeGrad": ("length_scale", 1.0)}
NUMBERS |= {name: (rival.number, rival.default) for name, rival in RIVALS.items()}
NUMBERS |= {"SGD": ("lr", 1e-3), "Adam": ("lr", 1e-3)}


@dataclass
class Task:
    """Learning task of a layer: inputs ``(T, S, d)`` with a 1, start ``(10, d)``."""

    inputs: Tensor
    start: Tensor


@dataclass
class Run:
    """Predictions of a layer by round, number and seed, ``(T, R, S)``.

    The numbers are those of the grid, and then the default if the grid lacks it.
    """

    loss: Tensor
    confidence: Tensor
    hit: Tensor

    def losses(self) -> Tensor:
        """Return the mean loss over the stream, ``(R, S)``; infinite after a NaN."""
        return self.loss.nan_to_num(nan=math.inf).mean(0)

    def calibration_error(self, index: int) -> float:
        """Return the mean gap between hits and confidence, over ten bins and all seeds."""
        confidence, hit = self.confidence[:, index].flatten(), self.hit[:, index].flatten()
        bins = (10.0 * confidence).long().clamp(0, 9)
        gaps = torch.zeros(10, dtype=torch.float64).index_add(0, bins, (hit - confidence).double())
        return float(gaps.abs().sum() / len(confidence))


def train_encoder() -> tuple[nn.Module, nn.Module]:
    """Train a network on the labelled digits; return its hidden and output layers."""
    images, labels = digits(labelled=300)[0].tensors
    torch.manual_seed(0)
    hidden, output = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU()), nn.Linear(HIDDEN, CLASSES)
    optimizer = torch.optim.Adam([*hidden.parameters(), *output.parameters()], lr=1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        functional.cross_entropy(output(hidden(images)), labels).backward()
        optimizer.step()
    return hidden.requires_grad_(False), output.requires_grad_(False)


def stream(rounds: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw drifting images, ``(T, 64)``, and labels, ``(T)``; images may repeat."""
    images, labels = digits(labelled=300)[1].tensors
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(rounds).unsqueeze(-1) / rounds
    mix = 1.0 + 0.9 * torch.cos(2.0 * math.pi * (2.0 * time - torch.arange(CLASSES) / CLASSES))
    drawn = torch.multinomial(mix, 1, generator=generator).squeeze(-1)
    index = torch.empty(rounds, dtype=torch.int64)
    for digit in range(CLASSES):
        pool, here = (labels == digit).nonzero().squeeze(-1), drawn == digit
        index[here] = pool[torch.randint(len(pool), (int(here.sum()),), generator=generator)]
    return (1.0 - 0.6 * time) * images[index], drawn


def make_tasks(rounds: int, seeds: int) -> tuple[dict[str, Task], Tensor]:
    """Return the tasks of the two layers, and the labels, ``(T, S)``."""
    hidden, output = train_encoder()
    streams = [stream(rounds, seed) for seed in range(seeds)]
    images, labels = (torch.stack(values, 1) for values in zip(*streams, strict=True))
    ones, features = torch.ones(rounds, seeds, 1), hidden(images)
    tasks = {
        "calibration": Task(torch.cat([output(features), ones], -1), torch.eye(CLASSES, CLASSES + 1)),
        "new head": Task(torch.cat([features, ones], -1), torch.zeros(CLASSES, HIDDEN + 1)),
    }
    return tasks, labels


def play(
    task: Task,
    labels: Tensor,
    shape: tuple[int, ...],
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer | None],
    advance: Callable[[], None],
) -> Run:
    """Predict, then learn, round by round.

    ``shape`` is the number of parameter groups, then the number of layers in each.
    """
    groups = [nn.Parameter(task.start.expand(*shape[1:], *task.start.shape).clone()) for _ in range(shape[0])]
    optimizer = make(groups)
    notes: list[tuple[Tensor, ...]] = []
    for inputs, truth in zip(task.inputs, labels, strict=True):
        layers = torch.stack(groups).view(-1, len(truth), *task.start.shape)
        logits = torch.einsum("rsod,sd->rso", layers, inputs)
        truth = truth.expand(logits.shape[:-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), truth.flatten(), reduction="none").view(truth.shape)
        confidence, guess = logits.detach().softmax(-1).max(-1)
        notes.append((loss.detach(), confidence, (guess == truth).float()))
        if optimizer is not None:
            # Each copy only affects its own loss, so the gradient of the sum contains the gradient of each copy.
            optimizer.zero_grad()
            loss.sum().backward()
            optimizer.step()
        advance()
    return Run(*(torch.stack(values) for values in zip(*notes, strict=True)))


def with_rates(
    optimizer: Callable[..., torch.optim.Optimizer], groups: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """Return an optimizer with one group of all seeds for each rate.

    This is exact because SGD and Adam treat each entry separately.
    """
    return optimizer([{"params": [group], "lr": rate} for group, rate in zip(groups, GRID, strict=True)])


def with_scales(groups: Sequence[nn.Parameter]) -> ParameterFree:
    """Return FreeGrad with a group for each scale and seed."""
    scales = [scale for scale in GRID for _ in range(len(groups) // len(GRID))]
    return ParameterFree([{"params": [group], "length_scale": e} for group, e in zip(groups, scales, strict=True)])


def made(name: str, task: Task, seeds: int) -> list[ConvexLearner]:
    """Return a learner of all seeds for each number of the grid, and for the default."""
    rival, options = RIVALS[name], dict(RIVALS[name].options)
    if name == "KT":  # the length of the longest gradient that can come
        options["lipschitz"] = math.sqrt(2.0) * float(task.inputs.norm(dim=-1).max())
    numbers = GRID if rival.default in GRID else [*GRID, rival.default]
    dim = task.start.numel()
    return [rival.cls(dim, batch_shape=(seeds,), **{rival.number: number}, **options) for number in numbers]


def step_all(task: Task, labels: Tensor, learners: list[ConvexLearner], advance: Callable[[], None]) -> Run:
    """Predict with the learners' decisions, then learn, round by round.

    A learner has all seeds. It learns from the gradients at its queries.
    """
    shape = (len(learners), labels.size(1), *task.start.shape)
    start = task.start.double()
    notes: list[tuple[Tensor, ...]] = []
    for inputs, truth in zip(task.inputs.double(), labels, strict=True):
        target = functional.one_hot(truth, CLASSES).double()

        def shares(points: list[Tensor], inputs: Tensor = inputs) -> Tensor:
            """Return the logarithms of the predicted shares at points, ``(R, S, 10)``."""
            layers = start + torch.stack(points).view(shape)
            return torch.einsum("rsod,sd->rso", layers, inputs).log_softmax(-1)

        log_shares = shares([learner.predict() for learner in learners])
        confidence, guess = log_shares.exp().max(-1)
        # A share of 0 is a loss of infinity, and not of 0 times infinity.
        loss = -log_shares.gather(-1, truth.expand(shape[:2]).unsqueeze(-1)).squeeze(-1)
        notes.append((loss.float(), confidence.float(), (guess == truth).float()))
        residual = shares([learner.queries() for learner in learners]).exp() - target
        slopes = (residual.unsqueeze(-1) * inputs.unsqueeze(-2)).flatten(2)
        for learner, gradients in zip(learners, slopes, strict=True):
            learner.step(gradients)
        advance()
    return Run(*(torch.stack(values) for values in zip(*notes, strict=True)))


def play_all(task: Task, labels: Tensor, start: Callable[[str], Callable[[], None]]) -> dict[str, Run]:
    """Play one task with every learner and without learning."""
    seeds, grid = labels.size(1), len(GRID)
    kinds: dict[str, tuple[tuple[int, ...], Callable[..., torch.optim.Optimizer | None]]] = {
        "no learning": ((seeds,), lambda groups: None),
        "FreeGrad": ((grid * seeds,), with_scales),
    }
    kinds |= {name: ((grid, seeds), partial(with_rates, tuned)) for name, tuned in TUNED.items()}
    runs = {name: play(task, labels, shape, make, start(name)) for name, (shape, make) in kinds.items()}
    return runs | {name: step_all(task, labels, made(name, task, seeds), start(name)) for name in RIVALS}


def order(run: Run) -> list[int]:
    """Return the indices of the grid, from the least mean loss to the largest."""
    return run.losses()[: len(GRID)].mean(-1).argsort().tolist()


def picks(run: Run) -> dict[str, int]:
    """Return the indices of the best, the median and the worst grid value."""
    ranked = order(run)
    return {"best": ranked[0], "median": ranked[len(ranked) // 2], "worst": ranked[-1]}


def default_of(name: str) -> int:
    """Return the index of a learner's default among its runs."""
    default = NUMBERS[name][1]
    return GRID.index(default) if default in GRID else len(GRID)


def shown(name: str, runs: dict[str, Run], others: dict[str, Run]) -> dict[str, int]:
    """Return the indices of a learner's shown runs. ``others`` are on the other layer."""
    return {"default": default_of(name)} | picks(runs[name]) | {"other layer's best": order(others[name])[0]}


def make_table(name: str, results: dict[str, dict[str, Run]]) -> Table:
    table = Table(title=f"{name}: a prediction before each label, means over seeds")
    table.add_column("learnt by", no_wrap=True)
    for header in ("log loss", "± sd", "accuracy", "cal. error"):
        table.add_column(header, justify="right")

    def add(label: str, run: Run, index: int = 0) -> None:
        losses = run.losses()[index]
        spread = losses.std() if len(losses) > 1 else losses.new_zeros(())
        numbers = (losses.mean(), spread, run.hit[:, index].mean(), run.calibration_error(index))
        table.add_row(label, *(f"{number:.3f}" for number in numbers))

    runs, (other,) = results[name], (task for task in results if task != name)
    add("no learning", runs["no learning"])
    for learner in NUMBERS:
        for label, index in shown(learner, runs, results[other]).items():
            value = [*GRID, NUMBERS[learner][1]][index]
            add(f"{learner}, {label}: {value:.2g}", runs[learner], index)
    return table


def cell(losses: Tensor) -> str:
    """Return the mean of losses over seeds ± their standard deviation."""
    mean, spread = float(losses.mean()), float(losses.std()) if len(losses) > 1 else 0.0
    return f"{mean:.3f} ± {spread:.3f}" if mean < 10.0 else f"{mean:.0f} ± {spread:.0f}"


def markdown(name: str, results: dict[str, dict[str, Run]]) -> list[str]:
    """Return the losses as a table of a page."""
    runs, (other,) = results[name], (task for task in results if task != name)
    heads = [name, "its number", "default", "best", "median", "worst", "other layer's best"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines.append(f"| no learning | | {cell(runs['no learning'].losses()[0])} | | | | |")
    for learner, (number, default) in NUMBERS.items():
        losses = runs[learner].losses()
        cells = [cell(losses[index]) for index in shown(learner, runs, results[other]).values()]
        lines.append(f"| {learner} | `{number}`, {default:g} | {' | '.join(cells)} |")
    return lines


def summary(name: str, runs: dict[str, Run]) -> str:
    """Compare two defaults with all rates, and the best, of SGD and Adam."""
    parts = []
    for learner in ("FreeGrad", "CLA-OONS"):
        loss = runs[learner].losses()[default_of(learner)].mean()
        for tuned in TUNED:
            theirs = runs[tuned].losses().mean(-1)
            more, share = int((theirs > loss).sum()), float(theirs.min() / loss)
            parts.append(
                f"{more} of {len(GRID)} rates of {tuned} have more loss than {learner}, the best has {share:.2f} of it"
            )
    return f"{name}: " + "; ".join(parts) + "."


def plot(results: dict[str, dict[str, Run]], path: Path) -> None:
    figure, axes = plt.subplots(2, len(results), figsize=(11, 8), layout="constrained", squeeze=False)
    for column, (name, runs) in enumerate(results.items()):
        by_number, by_round = axes[:, column]
        for tried in ("SGD", "Adam", "FreeGrad", "DoG", "D-Adaptation", "Prodigy", "schedule-free SGD"):
            losses = runs[tried].losses()[: len(GRID)]
            (line,) = by_number.plot(GRID, losses.mean(-1), "o-", label=tried)
            by_number.fill_between(
                GRID, losses.amin(-1), losses.amax(-1), color=line.get_color(), alpha=0.2, linewidth=0
            )
        by_number.axhline(float(runs["no learning"].losses().mean()), color="k", linestyle="--", label="no learning")
        by_number.set(title=name, xlabel="number of the grid", ylabel="log loss", xscale="log", yscale="log")
        window = max(1, len(runs["SGD"].loss) // 15)
        lines = {f"SGD, {label}": ("SGD", index) for label, index in picks(runs["SGD"]).items() if label != "worst"}
        lines |= {single: (single, default_of(single)) for single in ("FreeGrad", "CLA-OONS", "DoG", "Prodigy")}
        lines |= {"no learning": ("no learning", 0)}
        for text, (single, index) in lines.items():
            means = runs[single].loss[:, index].mean(-1).unfold(0, window, window).mean(-1)
            by_round.plot(window * (torch.arange(len(means)) + 0.5), means, label=text)
        by_round.set(xlabel="round", ylabel=f"log loss, mean of {window} rounds", yscale="log")
        for axis in (by_number, by_round):
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few rounds, to see that it runs")
    options = parser.parse_args()
    if options.rounds < 1 or options.seeds < 1:
        parser.error(f"--rounds and --seeds: expected at least 1, got {options.rounds} and {options.seeds}")
    options.output.mkdir(parents=True, exist_ok=True)
    rounds, seeds = (40, 2) if options.smoke else (options.rounds, options.seeds)

    console = Console(width=100)
    tasks, labels = make_tasks(rounds, seeds)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:

        def start(text: str) -> Callable[[], None]:
            return partial(progress.advance, progress.add_task(text, total=rounds))

        results = {
            name: play_all(task, labels, lambda what, name=name: start(f"{name}: {what}"))
            for name, task in tasks.items()
        }
    console.print(f"{rounds} rounds, {seeds} seeds, a grid of {len(GRID)} from {GRID[0]:g} to {GRID[-1]:g}")
    for name in results:
        console.print(make_table(name, results))
    for name in results:
        print(*markdown(name, results), "", sep="\n")
    for name, runs in results.items():
        console.print(summary(name, runs))
    path = options.output / "online_calibration.png"
    plot(results, path)
    console.print(f"Losses on the grid and by round: {path}")


if __name__ == "__main__":
    main()
