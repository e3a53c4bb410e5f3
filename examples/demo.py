"""Offers on pictures, paid in real money: the default bandit beside Greedy, epsilon-greedy, LinUCB and Vowpal Wabbit.

A picture of a digit comes, and the learner makes one of several offers. One offer suits each digit: it is bought one time in
two, and each other offer one time in twenty. A purchase pays a real amount of money, one of the 15,737 medical bills of the RAND
Health Insurance Experiment. In units of their mean, the standard deviation is 3.6 and the largest bill is 178. The learner sees
what its own offer earned, and nothing else.

The pictures are scikit-learn's digits. A small encoder was trained on labelled old pictures of 0 to 6, and is frozen. For 1000
rounds, pictures of 0 to 6 come, with an offer for each. Then 7, 8 and 9 come too, and three new offers are there, which are as
unknown to the encoder as to the learner. Each seed trains an encoder of its own, so that standard errors include what another
processor changes by rounding.

torchonline.bandit has its default arguments. The settings of the other libraries and methods come from grids, on other seeds than
the table's: --tune chooses them again, and plays with what it has found. The script prints a table and draws a figure. Then it
writes encoder and learner to one file, and loads the file in a process where torchonline cannot be imported.

    python examples/demo.py [--smoke] [--tune [5]] [--all] [--bills equal] [--known 10] [--output outputs/demo]
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
import vowpalwabbit
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import torchonline
from torchonline.core.options import rebuilt
from torchonline.datasets import digits, health_insurance
from torchonline.export import to_torchscript
from torchonline.models import BanditHead

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OFFERS, WIDTH = 10, 32
SUITS, OTHERWISE = 0.5, 0.05  # chances of a purchase
ROUNDS, NEW_AT, KNOWN = 3000, 1000, 7
SEEDS, TUNING_SEEDS = tuple(range(20)), tuple(range(100, 140))
BIN = 100  # rounds for each point of a curve
RNG = np.random.default_rng


@dataclass(frozen=True)
class Stream:
    """Rounds that are the same for all learners: features (T, m), the digit, luck and bill of each, and when offers come."""

    features: Tensor
    digits: np.ndarray
    luck: np.ndarray
    bills: np.ndarray
    known: int
    new_at: int

    def chance(self, t: int, offer: int) -> float:
        return SUITS if offer == self.digits[t] else OTHERWISE

    def earned(self, t: int, offer: int) -> float:
        return float(self.bills[t]) if self.luck[t] < self.chance(t, offer) else 0.0


class Game:
    """The pictures that come, the bills, and what a seed makes of them. ``known`` offers and digits are there from the start."""

    def __init__(self, rounds: int, new_at: int, known: int, equal_bills: bool) -> None:
        self.rounds, self.new_at, self.known = rounds, new_at, known
        self.old, coming = digits(labelled=300)
        self.images, labels = coming.tensors
        self.labels = labels.numpy()
        costs = health_insurance().tensors[2].numpy()
        self.bills = costs[costs > 0] / costs[costs > 0].mean()
        # Without heavy tails, a user says that rewards are 0 or 1.
        self.rewards = "binary" if equal_bills else "heavy"
        if equal_bills:
            self.bills = np.ones(1)
        self.world = cache(partial(World, self))  # of a seed


class World:
    """The encoder and the rounds of a seed."""

    def __init__(self, game: Game, seed: int) -> None:
        self.known, self.rewards = game.known, game.rewards
        images, labels = game.old.tensors
        self.encoder = trained_encoder(images[labels < game.known], labels[labels < game.known], game.known, seed)
        with torch.no_grad():
            features = self.encoder(game.images)
            # What rivals standardise their features with; torchonline.bandit gets them raw.
            past = self.encoder(images).double().numpy()
        self.mean, self.spread = past.mean(0), past.std(0) + 1e-9
        rng = RNG([seed, 0])
        first = passes(np.flatnonzero(game.labels < game.known), game.new_at, rng)
        order = np.concatenate([first, passes(np.arange(len(game.labels)), game.rounds - game.new_at, rng)])
        luck, bills = rng.random(game.rounds), rng.choice(game.bills, game.rounds)
        self.stream = Stream(features[order], game.labels[order], luck, bills, game.known, game.new_at)


def passes(items: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return ``count`` items: passes through all, each in a new order."""
    return np.concatenate([rng.permutation(items) for _ in range(-(-count // len(items)))])[:count]


def trained_encoder(images: Tensor, labels: Tensor, classes: int, seed: int) -> nn.Module:
    """Return a small encoder, trained to tell the classes apart and frozen."""
    torch.manual_seed(seed)
    encoder, readout = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU()), nn.Linear(WIDTH, classes)
    optimizer = torch.optim.Adam([*encoder.parameters(), *readout.parameters()], lr=1e-2, weight_decay=1e-4)
    for _ in range(200):
        loss = functional.cross_entropy(readout(encoder(images)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return encoder.eval().requires_grad_(False)


class Ridge:
    """A ridge regression for each offer, as one writes it: the largest estimate + alpha width, or chance with epsilon."""

    def __init__(
        self, world: World, seed: int, *, alpha: float = 0.0, epsilon: float = 0.0, ridge: float = 1.0
    ) -> None:
        self.world, self.alpha, self.epsilon, self.ridge = world, alpha, epsilon, ridge
        self.inverse, self.theta = np.empty((0, WIDTH + 1, WIDTH + 1)), np.empty((0, WIDTH + 1))
        self.rng = RNG([seed, 1])
        self.add_actions(world.known)

    def add_actions(self, count: int) -> None:
        fresh = np.broadcast_to(np.eye(WIDTH + 1) / self.ridge, (count, WIDTH + 1, WIDTH + 1))
        self.inverse = np.concatenate([self.inverse, fresh])
        self.theta = np.concatenate([self.theta, np.zeros((count, WIDTH + 1))])

    def select(self, features: Tensor) -> int:
        self.x = np.append((features.numpy() - self.world.mean) / self.world.spread, 1.0)
        if self.rng.random() < self.epsilon:
            return int(self.rng.integers(len(self.theta)))
        score = self.theta @ self.x
        if self.alpha:
            score += self.alpha * np.sqrt((self.inverse @ self.x @ self.x).clip(0.0))
        return int(self.rng.choice(np.flatnonzero(score == score.max())))

    def step(self, features: Tensor, offer: int, reward: float) -> None:
        direction = self.inverse[offer] @ self.x
        scale = 1.0 + direction @ self.x
        self.theta[offer] += direction * ((reward - self.theta[offer] @ self.x) / scale)
        self.inverse[offer] -= np.outer(direction, direction / scale)


class VowpalWabbit:
    """Vowpal Wabbit's contextual bandit: a linear model of each offer, offers drawn as it asks. Costs are ``most`` - reward."""

    def __init__(self, world: World, seed: int, *, explore: str, rate: float, most: float) -> None:
        options = f"--cb_explore_adf -q sa {explore} --learning_rate {rate} --random_seed {seed + 1} --quiet"
        self.world, self.offers, self.rng = world, world.known, RNG([seed, 1])
        self.most, self.workspace = most, vowpalwabbit.Workspace(options)

    def add_actions(self, count: int) -> None:
        self.offers += count

    def select(self, features: Tensor) -> int:
        x = ((features.numpy() - self.world.mean) / self.world.spread).tolist()
        shared = "shared |s " + " ".join(map("%d:%.7g".__mod__, enumerate(x)))
        self.lines = [shared, *(f"|a {k}" for k in range(self.offers))]
        shares = np.cumsum(self.workspace.predict(self.lines))
        offer = int((shares < self.rng.random() * shares[-1]).sum())
        self.probability = np.diff(shares, prepend=0.0)[offer]
        return offer

    def step(self, features: Tensor, offer: int, reward: float) -> None:
        self.lines[1 + offer] = f"0:{self.most - reward}:{self.probability} {self.lines[1 + offer]}"
        self.workspace.learn(self.lines)


class OfLogarithms:
    """A learner that is shown log(1 + reward)."""

    def __init__(self, world: World, seed: int, *, make: Callable[..., Any], **options: Any) -> None:
        self.learner = make(world, seed, **options)
        self.select, self.add_actions = self.learner.select, self.learner.add_actions

    def step(self, features: Tensor, offer: int, reward: float) -> None:
        self.learner.step(features, offer, np.log1p(reward))


def default(world: World, seed: int, **options: Any) -> torchonline.DisjointArms:
    """Return what this library recommends, at its defaults but for what a row of --all is about."""
    torch.manual_seed(seed)
    return torchonline.bandit(WIDTH, **{"rewards": world.rewards, "actions": world.known, **options})


def under(policy: Callable[..., Any], world: World, seed: int) -> torchonline.DisjointArms:
    """Return the estimators and the scaler of ``default`` under another policy."""
    made = default(world, seed)
    return torchonline.DisjointArms(policy(rebuilt(made.estimator, batch_shape=())), world.known, scaler=made.scaler)


def grid(**options: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(options, values, strict=True)) for values in product(*options.values()))


RIDGES = (1.0, 10.0, 100.0)
LINUCB = grid(alpha=(0.01, 0.03, 0.1, 0.3, 1.0), ridge=RIDGES)
EPSILON = grid(epsilon=(0.01, 0.03, 0.1, 0.3), ridge=RIDGES)
VW_RULES = ("--epsilon 0.05", "--squarecb", "--bag 5", "--softmax --lambda 10")
VW = grid(explore=VW_RULES, rate=(0.1, 0.5, 2.0, 10.0), most=(0.0, 1.0))


@dataclass(frozen=True)
class Learner:
    """A row of the table: ``make(world, seed, **options)``, the options that --tune chose, and the grid that it chose from.

    ``label`` is its name in the figure, or empty. Rows ``in_full`` are in the table of --all only.
    """

    make: Callable[..., Any]
    options: dict[str, Any]
    grid: tuple[dict[str, Any], ...] = ()
    label: str = ""
    in_full: bool = False


OURS, WABBIT = "torchonline.bandit", "Vowpal Wabbit"
LEARNERS = {
    OURS: Learner(default, {}, label="torchonline.bandit"),
    "LinUCB on log(1 + reward)": Learner(
        partial(OfLogarithms, make=Ridge), {"alpha": 0.3, "ridge": 100.0}, LINUCB, label="LinUCB on log"
    ),
    "Greedy, estimators of torchonline.bandit": Learner(partial(under, torchonline.Greedy), {}, label="Greedy, robust"),
    "LinUCB": Learner(Ridge, {"alpha": 0.1, "ridge": 10.0}, LINUCB, label="LinUCB"),
    "Greedy": Learner(Ridge, {"ridge": 10.0}, grid(ridge=RIDGES)),
    "epsilon-greedy": Learner(Ridge, {"epsilon": 0.01, "ridge": 10.0}, EPSILON, label="epsilon-greedy"),
    "Vowpal Wabbit on log(1 + reward)": Learner(
        partial(OfLogarithms, make=VowpalWabbit), {"explore": "--squarecb", "rate": 0.1, "most": 0.0}, VW
    ),
    WABBIT: Learner(VowpalWabbit, {"explore": "--squarecb", "rate": 0.1, "most": 0.0}, VW, label="Vowpal Wabbit"),
    "epsilon-greedy, estimators of torchonline.bandit": Learner(
        partial(under, torchonline.EpsilonGreedy), {}, in_full=True
    ),
    f"{OURS}, scale=False": Learner(default, {"scale": False}, in_full=True),
    f'{OURS}, rewards="real"': Learner(default, {"rewards": "real"}, in_full=True),
}


@dataclass
class Run:
    """What one learner achieved: regret of each round (seeds, T), choices that were right, time, and the last learner."""

    regret: np.ndarray
    late: float  # share of right offers for 7, 8 and 9 in the last sixth
    seconds: float  # processor time of a round
    learner: Any

    @property
    def total(self) -> np.ndarray:
        return self.regret.sum(1)


def play(learner: Any, stream: Stream) -> np.ndarray:
    """Play one learner; return its offers (T)."""
    offers = np.zeros(len(stream.digits), dtype=int)
    for t, features in enumerate(stream.features):
        if t == stream.new_at and stream.known < OFFERS:
            learner.add_actions(OFFERS - stream.known)
        offers[t] = offer = int(learner.select(features))
        learner.step(features, offer, stream.earned(t, offer))
    return offers


def play_seeds(
    game: Game, learner: Learner, options: dict[str, Any], seeds: Sequence[int], done: Callable[[], None]
) -> Run:
    """Play one learner on each seed; call ``done`` after each."""
    right, late, seconds = [], [], 0.0
    for seed in seeds:
        world = game.world(seed)
        made, stream = learner.make(world, seed, **options), world.stream
        start = time.process_time()
        right.append(play(made, stream) == stream.digits)
        seconds += time.process_time() - start
        late.append(right[-1][(stream.digits >= KNOWN) & (np.arange(game.rounds) >= game.rounds * 5 // 6)])
        done()
    regret = (SUITS - OTHERWISE) * ~np.stack(right)
    return Run(regret, float(np.concatenate(late).mean()), seconds / regret.size, made)


def play_all(
    game: Game, names: Sequence[str], seeds: Sequence[int], tuning: Sequence[int], console: Console
) -> dict[str, Run]:
    """Play all learners, under one display of progress. With seeds for ``tuning``, choose their options first."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    runs: dict[str, Run] = {}
    with Progress(*columns, console=console) as progress:
        tasks = {
            name: progress.add_task(name, total=len(seeds) + len(LEARNERS[name].grid) * len(tuning), start=False)
            for name in names
        }
        for name, task in tasks.items():
            learner, done = LEARNERS[name], partial(progress.advance, task)
            progress.start_task(task)
            options = learner.options
            if tuning and learner.grid:
                trials = [play_seeds(game, learner, each, tuning, done).total.mean() for each in learner.grid]
                options = learner.grid[int(np.argmin(trials))]
                console.print(
                    f"{name}: {options} of {len(trials)} settings, regret {min(trials):.0f} on the tuning seeds"
                )
            runs[name] = play_seeds(game, learner, options, seeds, done)
    return runs


def make_table(runs: dict[str, Run], game: Game) -> Table:
    """Return a table, best first. The best possible policy earns half a bill in each round."""
    best = SUITS * game.rounds
    table = Table(box=box.MARKDOWN)
    table.add_column("learner", no_wrap=True)
    for header in ("regret", "earned", "right on 7, 8, 9", "time of a round"):
        table.add_column(header, justify="right")
    for name, run in sorted(runs.items(), key=lambda item: item[1].total.mean()):
        error = run.total.std(ddof=1) / len(run.total) ** 0.5
        table.add_row(
            name,
            f"{run.total.mean():.0f} ± {error:.0f}",
            f"{1.0 - run.total.mean() / best:.0%}",
            f"{run.late:.0%}",
            f"{run.seconds / runs[WABBIT].seconds:.1f}",
        )
    return table


# Colours that the colour-blind can tell apart, and dashes for print in grey.
LOOKS = (
    ("#0072B2", "-"),
    ("#555555", (0, (1, 1))),
    ("#D55E00", (0, (5, 1))),
    ("#009E73", (0, (4, 1, 1, 1))),
    ("#CC79A7", (0, (2, 1))),
    ("#000000", (0, (6, 2, 1, 2))),
)


def draw(runs: dict[str, Run], game: Game, path: Path) -> None:
    """Draw what is earned along the stream: the mean over the seeds, with bands of one standard error."""
    figure, axes = plt.subplots(figsize=(6.6, 4.6), layout="constrained")
    size = min(BIN, game.new_at, game.rounds - game.new_at)
    middle = np.arange(size / 2, game.rounds, size)
    drawn = [name for name in runs if LEARNERS[name].label]
    ends = []
    for name, (colour, dashes) in zip(drawn, LOOKS, strict=True):
        lost = runs[name].regret.reshape(len(runs[name].regret), -1, size).mean(2) / SUITS
        earned, error = 100.0 * (1.0 - lost.mean(0)), 100.0 * lost.std(0, ddof=1) / len(lost) ** 0.5
        for part in (middle < game.new_at, middle > game.new_at):
            axes.plot(
                middle[part], earned[part], color=colour, linestyle=dashes, linewidth=3.0 if name == OURS else 1.8
            )
            axes.fill_between(
                middle[part], (earned - error)[part], (earned + error)[part], color=colour, alpha=0.15, linewidth=0
            )
        ends.append(earned[-3:].mean())
    for name, (colour, _), height in zip(drawn, LOOKS, spread(np.array(ends), 5.0), strict=True):
        weight = "bold" if name == OURS else "normal"
        axes.annotate(
            LEARNERS[name].label,
            (game.rounds, height),
            xytext=(4, 0),
            textcoords="offset points",
            color=colour,
            weight=weight,
            va="center",
            fontsize=12,
        )
    axes.axvline(game.new_at, color="#999999", linewidth=1)
    axes.set(xlim=(0, game.rounds), ylim=(20, 90), xticks=range(0, game.rounds + 1, game.new_at))
    axes.set_xlabel("round", fontsize=12)
    axes.set_ylabel("earned, in % of what could be earned", fontsize=12)
    axes.tick_params(labelsize=12)
    axes.text(game.new_at + 25, 87, "new pictures,\nthree new offers", va="top", fontsize=12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def spread(heights: np.ndarray, gap: float) -> np.ndarray:
    """Return heights that are at least ``gap`` apart, in the same order, about where they were."""
    order = heights.argsort()
    steps = gap * np.arange(len(heights))
    lifted = np.maximum.accumulate(heights[order] - steps) + steps
    placed = np.empty_like(heights)
    placed[order] = lifted - (lifted - heights[order]).mean()
    return placed


FRESH_PROCESS = """
import sys, torch
sys.modules["torchonline"] = None  # makes `import torchonline` fail
bandit = torch.jit.load(sys.argv[1])
images, choices = torch.load(sys.argv[2], weights_only=True)
same = sum(int(bandit.select(image)) == choice for image, choice in zip(images, choices.tolist()))
print(f"The file, in a process without torchonline, chooses the same offer for {same} of {len(choices)} pictures.")
sys.exit(same != len(choices))
"""


def serve_from_file(encoder: nn.Module, policy: torchonline.DisjointArms, images: Tensor, output: Path) -> str:
    """Write encoder and learner to one file; return what a process without torchonline says of its choices."""
    head = BanditHead(encoder, policy).eval()
    to_torchscript(head, output / "bandit.pt", example=images[0])
    torch.save((images, torch.stack([head.select(image) for image in images])), output / "pictures.pt")
    command = [sys.executable, "-c", FRESH_PROCESS, str(output / "bandit.pt"), str(output / "pictures.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the file does not do what the learner does: {done.stdout}{done.stderr}")
    return done.stdout.rstrip()


def main() -> None:
    """Train the encoder, play all learners, print, draw, export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="two seeds of 180 rounds, to see that it runs")
    help_tune = "choose the settings of all rivals again, on so many seeds of 40: half a minute of a core for each seed"
    parser.add_argument("--tune", type=int, nargs="?", const=len(TUNING_SEEDS), default=0, help=help_tune)
    parser.add_argument("--all", action="store_true", help="more rows: other estimators and options")
    parser.add_argument("--bills", choices=("real", "equal"), default="real", help="equal: every purchase pays 1")
    parser.add_argument("--known", type=int, choices=(7, 10), default=KNOWN, help="10: all offers from the start")
    parser.add_argument("--output", type=Path, default=Path("outputs/demo"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    # A round has many tiny products, which more threads only slow down.
    torch.set_num_threads(1)
    console = Console(width=130)
    rounds, new_at, seeds = (180, 60, SEEDS[:2]) if options.smoke else (ROUNDS, NEW_AT, SEEDS)

    game = Game(rounds, new_at, options.known, options.bills == "equal")
    names = [name for name, learner in LEARNERS.items() if options.all or not learner.in_full]
    runs = play_all(game, names, seeds, TUNING_SEEDS[: options.tune], console)

    console.print(
        f"\n{rounds} rounds, mean ± standard error over {len(seeds)} seeds. Regret: in mean bills. Earned: of what could be"
        "\nearned. Right on 7, 8, 9: in the last sixth of the rounds. Time: processor time, in rounds of Vowpal Wabbit."
    )
    console.print(make_table(runs, game))
    figure = options.output / "demo.png"
    draw(runs, game, figure)
    console.print(f"\nFigure: {figure}")
    console.print(serve_from_file(game.world(seeds[-1]).encoder, runs[OURS].learner, game.images[:200], options.output))
    console.print("\nNext: read how this was measured, and where the default does not win: docs/demo.md")
    console.print("      put a bandit on features of your own: the first example of README.md")
    console.print("      put it on an encoder of your own: docs/encoders.md")


if __name__ == "__main__":
    main()
