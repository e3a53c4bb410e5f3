"""Rewards that come late, in batches of 1, 40, 80 and 200: the default bandit, LinUCB, linear Thompson and random forests.

All rewards of a batch are learnt after its last decision. A run has 1500 rounds. torchonline and the forests get raw features,
the others standardised ones and a constant. LinUCB has alpha 1 and ridge 1; Thompson takes 0.5 as the deviation of the noise.

    python examples/benchmarks/late.py    # some ten minutes on a core; seconds with --smoke
    python examples/benchmarks/late.py --tables docs/late_rewards_runs.jsonl.gz    # the table of finished runs, in seconds
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import data
import numpy as np
from default import forest
from learners import LEARNERS, OURS_BY_DEFAULT
from play import error_of, errors_of, one_thread
from ridges import LinUCB
from run import Runs, exit_if_incomplete, kept_runs
from tables import cell, markdown, publish

SETS, BATCHES, ROUNDS = ("segment", "digits", "spambase", "diamonds"), (1, 40, 80, 200), 1500
MARK = "<!-- printed by examples/benchmarks/late.py -->\n"
FOREST = "random forests"
# The table that a page shows: some sets, without delay and with the longest.
SHORT, SHORT_SETS = "Rewards that come late", ("segment", "diamonds")


class Thompson(LinUCB):
    """Thompson sampling of ridge regressions: an arm's score is drawn from N(estimate, (width / 2)^2).

    1/2 is the deviation of a reward that is 0 or 1 with chance 1/2.
    """

    def select(self, contexts: np.ndarray) -> np.ndarray:
        estimate, width = self.ridges.predict(contexts)
        drawn = np.stack([generator.normal(size=width.shape[1]) for generator in self.ties.generators])
        return (estimate + 0.5 * width * drawn).argmax(-1)


def delayed(name: str, player: str, batch: int, seeds: Sequence[int], rounds: int) -> list[float]:
    """Return the errors on a set whose rewards come in batches."""
    raw = player in (OURS_BY_DEFAULT, FOREST)
    features = "raw" if raw else "standard"
    streams = [data.stream(name, seed, rounds, "none", features, not raw) for seed in seeds]
    if player == FOREST:
        return [forest(stream, seed, batch) for seed, stream in zip(seeds, streams, strict=True)]
    dim, actions = streams[0].contexts.shape[1], streams[0].actions
    if player == OURS_BY_DEFAULT:
        make = partial(LEARNERS[player].make, dim, actions, "unit")
        return [error_of(make(seed), stream, batch) for seed, stream in zip(seeds, streams, strict=True)]
    made = PLAYERS[player](dim, actions, "unit", seeds, [{}] * len(seeds))
    return errors_of(made, streams, batch)


PLAYERS: dict[str, Any] = {OURS_BY_DEFAULT: None, "LinUCB": LinUCB, "linear Thompson": Thompson, FOREST: None}


class Comparison:
    """All runs on some sets."""

    def __init__(self, sets: Sequence[str], runs: Runs, smoke: bool = False) -> None:
        self.sets, self.runs, self.seeds, self.rounds = sets, runs, range(1 if smoke else 5), 60 if smoke else ROUNDS

    def keys(self, name: str, batch: int, player: str) -> list[str]:
        return [f"{name} | batches of {batch} | {player} | {seed} | {self.rounds}" for seed in self.seeds]

    def play(self) -> None:
        """Play what is missing."""
        for name, batch, player in product(self.sets, BATCHES, PLAYERS):
            keys = self.keys(name, batch, player)
            if not set(keys) <= set(self.runs.records):
                errors = delayed(name, player, batch, self.seeds, self.rounds)
                self.runs.add({"key": k, "learner": player, "error": e} for k, e in zip(keys, errors, strict=True))
                print(f"{name}, batches of {batch}: {player}", file=sys.stderr, flush=True)

    def tables(self) -> dict[str, str]:
        """Return all tables by title; a run that is missing is a ValueError."""
        self.runs.require(key for case in product(self.sets, BATCHES, PLAYERS) for key in self.keys(*case))
        shown = [name for name in self.sets if name in SHORT_SETS]
        found = {SHORT: self.table(shown, (BATCHES[0], BATCHES[-1]))} if shown else {}
        return found | {"Rewards that come late, all delays": self.table(self.sets, BATCHES)}

    def table(self, sets: Sequence[str], batches: Sequence[int]) -> str:
        """Return the errors at each delay."""
        rows = []
        for name, batch in product(sets, batches):
            found = [[self.runs.records[key]["error"] for key in self.keys(name, batch, player)] for player in PLAYERS]
            rows.append([name, f"{batch}", *map(cell, found)])
        return markdown(("set", "rewards a batch", *PLAYERS), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", nargs="+", default=[], choices=list(PLAYERS), metavar="LEARNER", help="forget runs")
    parser.add_argument("--output", type=Path, default=Path("outputs/late"))
    parser.add_argument("--page", type=Path, help="a page whose table to renew, with its runs: docs/fresh_sets.md")
    parser.add_argument("--tables", type=Path, metavar="RUNS", help="only print the table of a file of finished runs")
    parser.add_argument("--smoke", action="store_true", help="60 rounds of one set and seed, to see that it runs")
    options = parser.parse_args()
    one_thread()
    if options.tables:
        with exit_if_incomplete(options.tables):
            found = Comparison(SETS, Runs.of(options.tables)).tables()
        publish(found, options.output / "late.md", options.page, MARK)
        return
    file = options.page.with_name("late_rewards_runs.jsonl.gz") if options.page else None
    runs = kept_runs(options.output, options.smoke, file, options.again)
    comparison = Comparison(["digits"] if options.smoke else data.installed(list(SETS)), runs, options.smoke)
    comparison.play()
    publish(comparison.tables(), options.output / "late.md", options.page, MARK)
    if file:
        runs.save(file, runs.records)


if __name__ == "__main__":
    main()
