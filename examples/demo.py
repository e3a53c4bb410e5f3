"""Offers on pictures, paid in real money: the default bandit beside Greedy, epsilon-greedy, LinUCB and Vowpal Wabbit.

A picture comes, and a learner makes one of several offers. Each offer suits the pictures of one digit. A suitable offer is
bought one time in two, another one one time in twenty. A purchase pays a bill drawn from the 15,737 bills of the RAND Health
Insurance Experiment, in units of their mean: their standard deviation is 3.6, and the largest is 178. The learner sees what its
own offer earned, and nothing else.

The pictures are scikit-learn's digits. A small encoder was trained on 210 old pictures of 0 to 6, with labels, and is frozen. For
the first 1000 rounds pictures of 0 to 6 come, with an offer for each. Then 7, 8 and 9 come too, and three offers are added, of which
no learner knows anything. The learner must notice that they are worth a try.

The bandit has default arguments. The settings of all others were chosen by --tune, on other seeds than the table's.

    python examples/demo.py [--smoke] [--tune] [--all] [--bills equal] [--known 10] [--output outputs/demo]
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
ROUNDS, NEW_AT = 3000, 1000
SEEDS, TUNING_SEEDS = tuple(range(10)), tuple(range(100, 105))
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


class World:
    """The encoder, the pictures that come, and the bills. ``known`` offers and digits are there from the start."""

    def __init__(self, rounds: int, new_at: int, known: int, equal_bills: bool) -> None:
        self.rounds, self.new_at, self.known = rounds, new_at, known
        old, coming = digits(labelled=300)
        self.images, labels = coming.tensors
        self.labels = labels.numpy()
        self.encoder = trained_encoder(*(part[old.tensors[1] < known] for part in old.tensors), known)
        with torch.no_grad():
            self.features = self.encoder(self.images)
            # What rivals standardise their features with; torchonline.bandit gets them raw.
            past = self.encoder(old.tensors[0]).double().numpy()
        self.mean, self.spread = past.mean(0), past.std(0) + 1e-9
        costs = health_insurance().tensors[2].numpy()
        self.bills = costs[costs > 0] / costs[costs > 0].mean()
        if equal_bills:
            self.bills = np.ones(1)

    def stream(self, seed: int) -> Stream:
        """Return the rounds of a seed: passes through all pictures in random order."""
        rng = RNG([seed, 0])
        old = passes(np.flatnonzero(self.labels < self.known), self.new_at, rng)
        order = np.concatenate([old, passes(np.arange(len(self.labels)), self.rounds - self.new_at, rng)])
        luck, bills = rng.random(self.rounds), rng.choice(self.bills, self.rounds)
        return Stream(self.features[order], self.labels[order], luck, bills, self.known, self.new_at)


def passes(items: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return ``count`` items: passes through all, each in a new order."""
    return np.concatenate([rng.permutation(items) for _ in range(-(-count // len(items)))])[:count]


def trained_encoder(images: Tensor, labels: Tensor, classes: int) -> nn.Module:
    """Return a small encoder, trained to tell the classes apart and frozen."""
    torch.manual_seed(0)
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

    def __init__(self, world: World, seed: int, *, alpha: float = 0.0, epsilon: float = 0.0, ridge: float = 1.0) -> None:
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
    """Vowpal Wabbit's contextual bandit: a linear model of each offer, offers drawn as it asks."""

    def __init__(self, world: World, seed: int, *, explore: str, rate: float) -> None:
        options = f"--cb_explore_adf -q sa {explore} --learning_rate {rate} --random_seed {seed + 1} --quiet"
        self.world, self.offers, self.rng = world, world.known, RNG([seed, 1])
        self.workspace = vowpalwabbit.Workspace(options)

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
        self.lines[1 + offer] = f"0:{1.0 - reward}:{self.probability} {self.lines[1 + offer]}"
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
    return torchonline.bandit(WIDTH, **{"rewards": "heavy", "actions": world.known, **options})


def under(policy: Callable[..., Any], world: World, seed: int) -> torchonline.DisjointArms:
    """Return the estimators and the scaler of ``default`` under another policy."""
    made = default(world, seed)
    return torchonline.DisjointArms(
        policy(rebuilt(made.estimator, batch_shape=())), world.known, scaler=made.scaler
    )


def grid(**options: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(options, values, strict=True)) for values in product(*options.values()))


RIDGES = (1.0, 10.0, 100.0)
LINUCB = grid(alpha=(0.03, 0.1, 0.3, 1.0), ridge=RIDGES)
VW = grid(explore=("--epsilon 0.05", "--squarecb", "--bag 5", "--softmax --lambda 10"), rate=(0.1, 0.5, 2.0, 10.0))


@dataclass(frozen=True)
class Learner:
    """A row of the table: ``make(world, seed, **options)``, what --tune chose, and what it chose from."""

    make: Callable[..., Any]
    options: dict[str, Any]
    grid: tuple[dict[str, Any], ...] = ()
    only_with_all: bool = False


OURS = "torchonline.bandit"
LEARNERS = {
    OURS: Learner(default, {}),
    "Greedy, same estimators": Learner(partial(under, torchonline.Greedy), {}),
    "LinUCB": Learner(Ridge, {"alpha": 0.1, "ridge": 10.0}, LINUCB),
    "Greedy": Learner(Ridge, {"ridge": 10.0}, grid(ridge=RIDGES)),
    "epsilon-greedy": Learner(
        Ridge, {"epsilon": 0.01, "ridge": 10.0}, grid(epsilon=(0.01, 0.03, 0.1, 0.3), ridge=RIDGES)
    ),
    "VW": Learner(VowpalWabbit, {"explore": "--squarecb", "rate": 2.0}, VW),
    "VW on log(1 + reward)": Learner(
        partial(OfLogarithms, make=VowpalWabbit), {"explore": "--squarecb", "rate": 2.0}, VW
    ),
    "LinUCB on log(1 + reward)": Learner(
        partial(OfLogarithms, make=Ridge), {"alpha": 0.1, "ridge": 10.0}, LINUCB, only_with_all=True
    ),
    "epsilon-greedy, same estimators": Learner(partial(under, torchonline.EpsilonGreedy), {}, only_with_all=True),
    OURS + ', scale=False': Learner(default, {"scale": False}, only_with_all=True),
    OURS + ', "real"': Learner(default, {"rewards": "real"}, only_with_all=True),
    OURS + ', "count"': Learner(default, {"rewards": "count"}, only_with_all=True),
}


@dataclass
class Run:
    """What came out for one learner: regret (seeds, T), seconds of a round, and the last seed's learner."""

    regret: np.ndarray
    right: float
    seconds: float
    learner: Any


def play(learner: Any, stream: Stream) -> tuple[np.ndarray, np.ndarray, float]:
    """Play one learner; return its offers (T), its regret after each round (T), and its processor time."""
    offers, regret = np.zeros(len(stream.digits), dtype=int), np.zeros(len(stream.digits))
    start = time.process_time()
    for t, features in enumerate(stream.features):
        if t == stream.new_at and stream.known < OFFERS:
            learner.add_actions(OFFERS - stream.known)
        offers[t] = offer = int(learner.select(features))
        learner.step(features, offer, stream.earned(t, offer))
        regret[t] = SUITS - stream.chance(t, offer)
    return offers, regret.cumsum(), time.process_time() - start


def play_seeds(world: World, learner: Learner, options: dict[str, Any], seeds: Sequence[int], done: Callable) -> Run:
    """Play one learner on all seeds."""
    regrets, right, seconds = [], [], 0.0
    for seed in seeds:
        made, stream = learner.make(world, seed, **options), world.stream(seed)
        offers, regret, spent = play(made, stream)
        regrets.append(regret)
        late = slice(-world.rounds // 6, None)
        right.append((offers == stream.digits)[late][stream.digits[late] >= 7].mean())
        seconds += spent
        done()
    return Run(np.stack(regrets), float(np.mean(right)), seconds / (len(seeds) * world.rounds), made)


def tune(world: World, names: Sequence[str], console: Console) -> None:
    """Print the mean regret of each setting, on the tuning seeds, and the best."""
    for name in names:
        learner = LEARNERS[name]
        found = {}
        for options in learner.grid:
            run = play_seeds(world, learner, options, TUNING_SEEDS, lambda: None)
            found[str(options)] = run.regret[:, -1].mean()
            console.print(f"{name}: {options}: {found[str(options)]:.0f}")
        if found:
            console.print(f"{name}: best {min(found, key=found.get)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--known", type=int, default=7)
    parser.add_argument("--bills", default="real")
    a = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=120)
    world = World(ROUNDS, NEW_AT, a.known, a.bills == "equal")
    names = [n for n, l in LEARNERS.items() if a.all or not l.only_with_all]
    if a.tune:
        return tune(world, names, console)
    runs = {}
    for n in names:
        t = time.time()
        runs[n] = r = play_seeds(world, LEARNERS[n], LEARNERS[n].options, SEEDS, lambda: None)
        f = r.regret[:, -1]
        print(f"{n:34s} {f.mean():6.0f} ± {f.std(ddof=1)/len(f)**.5:.0f} max {f.max():.0f} new right {r.right:.2f} us {1e6*r.seconds:.0f} {time.time()-t:.1f} s", flush=True)
    import pickle
    pickle.dump({n: r.regret for n, r in runs.items()}, open(f"/tmp/demo/runs{a.known}{a.bills}.pkl", "wb"))


if __name__ == "__main__":
    main()
