r"""NeuralLinearBandit at its defaults against a neural-linear bandit written by hand, on real data.

A classification set is a bandit as in ``run.py``: reward 1 for the right class, in an order of the seed, without noise or with
centred Pareto noise. The rival is the neural-linear learner of ``run.py`` at its defaults. All players get the same rounds, an
encoder with one hidden layer of 64, and the same features, which are standardised over the whole set beforehand, and a constant.
Heads are ``torchonline.bandit(64, ...)`` on the encoder's features, with and without its scaler.
The error is the share of rounds with a wrong class; the noise does not count.

Runs are kept in OUTPUT/neural_linear.jsonl and not repeated, even if the code has changed: ``--again PLAYER`` plays anew. With
``--runs docs/encoders_measured_runs.jsonl.gz``, the runs of docs/encoders_measured.md are not repeated either, and all tables are
printed in seconds, without the sets.

    python examples/benchmarks/neural_linear.py    # the development sets: half an hour on a core; seconds with --smoke
    python examples/benchmarks/neural_linear.py --sets all --runs docs/encoders_measured_runs.jsonl.gz    # finished runs
    python examples/benchmarks/neural_linear.py --parts --sets digits    # only seconds of training and of learning again
    pip install ".[examples,benchmarks]"    # the sets; those that are missing are left out
"""

import argparse
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import data
import numpy as np
import pytorch_lightning as pl
import tables
import torch
from learners import LEARNERS
from play import one_thread, play_one, rewards_of
from run import ROUNDS, SEEDS, Runs, file_of_runs
from torch import nn

import torchonline
from torchonline.models import BanditHead, NeuralLinearBandit, RoundLoader
from torchonline.models import neural_linear as bandits

MARK = "<!-- printed by examples/benchmarks/neural_linear.py -->\n"
TITLES = {noise: f"Against a hand-written rival, {text}" for noise, text in tables.NOISE_TITLES.items()}
SHORT = "Against a hand-written rival, in short"
WIDTH = 64
# Returns a policy, for a kind of rewards and a number of actions.
Build = Callable[[str, int], Any]


RIVAL = "neural-linear"
HEADS: dict[str, Build] = {
    "scale=False": lambda rewards, actions: torchonline.bandit(WIDTH, rewards, actions, scale=False),
    "scale=True": lambda rewards, actions: torchonline.bandit(WIDTH, rewards, actions),
}
PLAYERS = (RIVAL, *HEADS)


class Errors(pl.Callback):
    """Sum what the arms of a run pay less than the best ones."""

    lost = 0.0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *rest: Any) -> None:
        self.lost += float(outputs["regret"].sum())


def play_head(build: Build, rounds: data.Stream, rewards: str, seed: int) -> float:
    """Play a policy on an encoder by NeuralLinearBandit; return its error."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(rounds.contexts.shape[1], WIDTH), nn.ReLU())
    bandit = NeuralLinearBandit(BanditHead(encoder, build(rewards, rounds.actions)))
    rewards_of_arms = (rounds.payoffs + rounds.noise[:, None], rounds.payoffs)
    table = (torch.from_numpy(rounds.contexts).float(), *map(torch.from_numpy, rewards_of_arms))
    errors, quiet = Errors(), {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", max_epochs=1, enable_checkpointing=False, callbacks=[errors], **quiet)
    trainer.fit(bandit, RoundLoader(*table, batch_size=100))
    return errors.lost / len(rounds.noise)


def play(player: str, name: str, noise: str, seed: int, rounds: int) -> tuple[float, float]:
    """Return the error of a run, and the processor time of a round in seconds."""
    stream, rewards = data.stream(name, seed, rounds, noise, "standard", True), rewards_of(noise)
    start = time.process_time()
    if player == RIVAL:
        error = play_one(LEARNERS[RIVAL], stream, rewards, {}, seed)
    else:
        error = play_head(HEADS[player], stream, rewards, seed)
    return error, (time.process_time() - start) / len(stream.noise)


def seconds_of_parts(head: str, name: str, rounds: int) -> dict[str, float]:
    """Return the seconds of a run, of training its encoder, and of learning the replay again."""
    seconds = {"fit_encoder": 0.0, "relearn": 0.0}

    def timed(part: str, call: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any, **options: Any) -> None:
            start = time.perf_counter()
            call(*arguments, **options)
            seconds[part] += time.perf_counter() - start

        return run

    with ExitStack() as stack:
        for part in seconds:
            stack.enter_context(patch.object(bandits, part, timed(part, getattr(bandits, part))))
        start = time.perf_counter()
        play_head(HEADS[head], data.stream(name, 0, rounds, "none", "standard", True), rewards_of("none"), 0)
    return {"run": time.perf_counter() - start} | seconds


def table_of_parts(sets: Sequence[str], rounds: int, repeats: int) -> str:
    """Return a table of the least and the median seconds of a run's parts."""
    rows = []
    for name, head in product(sets, HEADS):
        runs = [seconds_of_parts(head, name, rounds) for _ in range(repeats)]
        columns = [[run[part] for run in runs] for part in runs[0]]
        ratios = [run["relearn"] / run["fit_encoder"] for run in runs]
        cells = [f"{min(column):.2f}, {statistics.median(column):.2f}" for column in (*columns, ratios)]
        rows.append([f"{name}, {head}", *cells])
    return tables.markdown(["set, head", "run, s", "training, s", "learning again, s", "in units of training"], rows)


class Comparison:
    """All runs on some sets."""

    def __init__(self, sets: Sequence[str], seeds: int, rounds: int, runs: Runs) -> None:
        self.sets, self.seeds, self.rounds, self.runs = sets, seeds, rounds, runs

    def keys(self, player: str, name: str, noise: str) -> list[str]:
        return [f"{name} | {noise} | {player} | {seed} | {self.rounds}" for seed in range(self.seeds)]

    def all_keys(self) -> list[str]:
        cases = product(PLAYERS, self.sets, data.NOISES)
        return [key for case in cases for key in self.keys(*case)]

    def play(self) -> None:
        """Play the runs that are not finished, and keep them."""
        for name, noise, player in product(self.sets, data.NOISES, PLAYERS):
            for seed, key in enumerate(self.keys(player, name, noise)):
                if key not in self.runs.records:
                    error, seconds = play(player, name, noise, seed, self.rounds)
                    self.runs.add([{"key": key, "learner": player, "error": error, "seconds": seconds}])
            print(f"{name}, {noise}, {player}: played", file=sys.stderr, flush=True)

    def found(self, what: str, player: str, name: str, noise: str) -> list[float]:
        return [self.runs.records[key][what] for key in self.keys(player, name, noise)]

    def ratio(self, player: str, name: str, noise: str) -> float:
        """Return the mean error in units of the rival's."""
        mine, other = (statistics.mean(self.found("error", one, name, noise)) for one in (player, RIVAL))
        return mine / max(other, 1e-3)

    def is_finished(self) -> bool:
        return set(self.all_keys()) <= set(self.runs.records)

    def all_tables(self) -> dict[str, str]:
        """Return all tables by their titles; a run that is missing is a ValueError."""
        self.runs.require(self.all_keys())
        return {SHORT: self.in_short()} | {TITLES[noise]: self.table(noise) for noise in data.NOISES}

    def in_short(self) -> str:
        """Return the ratios to the rival over all sets, and the times of a round."""
        rows = []
        for noise, head in product(data.NOISES, HEADS):
            ratios = [self.ratio(head, name, noise) for name in self.sets]
            near = f"{sum(ratio <= 1.05 for ratio in ratios)} of {len(ratios)}"
            times = " and ".join(self.time(player, noise) for player in (RIVAL, head))
            mean = f"{statistics.geometric_mean(ratios):.2f}"
            rows.append([f"{head}, {tables.NOISE_TITLES[noise]}", mean, near, f"{max(ratios):.2f}", times])
        header = ("head", "mean ratio", "sets at most 1.05", "largest ratio", "a round of the rival and of the head")
        return tables.markdown(header, rows)

    def time(self, player: str, noise: str) -> str:
        """Return the mean processor time of a round."""
        return f"{1e3 * np.mean([self.found('seconds', player, name, noise) for name in self.sets]):.1f} ms"

    def table(self, noise: str) -> str:
        """Return errors and ratios, the summary of each role, and times."""
        header = ["set", RIVAL, *(title for head in HEADS for title in (head, "ratio"))]
        rows = []
        for name in self.sets:
            cells = [tables.cell(self.found("error", player, name, noise)) for player in PLAYERS]
            ratios = [f"{self.ratio(head, name, noise):.2f}" for head in HEADS]
            rows.append([name, *alternating(cells, ratios)])
        for role in data.ROLES:
            names = [name for name in self.sets if data.SETS[name].role == role]
            if names:
                columns = [[self.ratio(head, name, noise) for name in names] for head in HEADS]
                ratios = [f"{statistics.geometric_mean(column):.2f}, {max(column):.2f}" for column in columns]
                rows.append([f"{role}: mean, worst ratio", *alternating([""] * len(PLAYERS), ratios)])
        cells = [self.time(player, noise) for player in PLAYERS]
        rows.append(["processor time of a round", *alternating(cells, [""] * len(HEADS))])
        return tables.markdown(header, rows)


def alternating(cells: Sequence[str], ratios: Sequence[str]) -> list[str]:
    """Return the rival's cell, then each head's cell and ratio."""
    return [cells[0], *(one for pair in zip(cells[1:], ratios, strict=True) for one in pair)]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["dev"], help=f"{', '.join(data.ROLES)}, all, or names")
    parser.add_argument("--again", nargs="+", default=[], choices=PLAYERS, metavar="PLAYER", help="forget runs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds, from 0 on")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"))
    parser.add_argument("--runs", type=Path, help="finished runs to start from: docs/encoders_measured_runs.jsonl.gz")
    parser.add_argument("--page", type=Path, help="a page whose tables and runs to renew: docs/encoders_measured.md")
    parser.add_argument("--parts", action="store_true", help="print only where a head's time goes: least, median")
    parser.add_argument("--smoke", action="store_true", help="60 rounds of digits and 2 seeds, to see that it runs")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error(f"--seeds: expected at least 1, got {options.seeds}")
    for name in ("page", "runs"):
        file = getattr(options, name)
        if file and not file.is_file():
            parser.error(f"--{name}: expected a file, got {file}")
    try:
        options.sets = data.chosen_sets(["digits"] if options.smoke else options.sets)
    except ValueError as error:
        parser.error(str(error))
    return options


def main() -> None:
    options = parsed()
    one_thread()
    # Lightning's hints on validation and worker processes do not apply here.
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    if options.parts:
        print(table_of_parts(data.installed(options.sets), *((60, 1) if options.smoke else (2000, 5))))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    runs = Runs(options.output / "neural_linear.jsonl")
    if options.runs:
        runs.read(options.runs)
    runs.forget(options.again)
    seeds, rounds = (2, 60) if options.smoke else (options.seeds, ROUNDS)
    comparison = Comparison(options.sets, seeds, rounds, runs)
    if not comparison.is_finished():
        comparison.sets = data.installed(options.sets)
        comparison.play()
    tables.publish(comparison.all_tables(), options.output / "neural_linear.md", options.page, MARK)
    if options.page:
        runs.save(file_of_runs(options.page), comparison.all_keys(), "seconds")


if __name__ == "__main__":
    main()
