"""The default bandit and its rivals on sets on which no default was chosen.

``data.py`` names 24 sets and halves them at random. Half are for development, and the others are played once. A run has all rows
of a set in an order of its seed, or 10,000 of them; sets with 3000 rows or more have three orders, others five. Rewards have no
noise. Contexts and rewards are those of run.py: torchonline and the forest get raw features, others standardised ones.

Rivals play their defaults and some settings. "In hindsight" is the setting of all rivals with the least mean error on a set, by
the same runs. NumPy LinUCB, with and without magnitudes, has the whole grid of run.py. Slow rivals have fewer settings, on fewer
sets: ``RIVALS`` says which. MABWiser and river play LinUCB too, on the smallest sets.

    python examples/benchmarks/fresh.py    # the development half: about an hour on a core; seconds with --smoke
    python examples/benchmarks/fresh.py --role once
    python examples/benchmarks/fresh.py --tables docs/fresh_sets_runs.jsonl.gz    # the tables of finished runs, in seconds
    pip install ".[examples,benchmarks]" bayesianbandits contextualbandits mlxtend
    pip install --no-deps ISLP    # rivals and sets that are missing are left out
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import data
import rivals
from default import forest
from learners import LEARNERS, OURS_BY_DEFAULT, Learner, Options, setting
from play import Job, one_thread, play_batch, play_one
from run import BATCHED, Runs, exit_if_incomplete, file_of_runs, kept_runs
from tables import LEAST, cell, markdown, mean_ratio, publish

MOST, MANY = 10_000, 3000
# Rows of the sets, which say what is played on them, also where their packages are not installed.
ROWS = {
    "bird strikes": 11_571,
    "written digits": 5000,
    "pitches": 3402,
    "computing": 4331,
    "cells": 2019,
    "credit": 4039,
    "attrition": 1470,
    "olives": 572,
    "computers": 6259,
    "bicycles": 8645,
    "houses": 1728,
    "life expectancy": 1704,
    "telecom": 7032,
    "flights": 32_203,
    "britain": 1525,
    "chile": 2431,
    "leaves": 1265,
    "hawks": 891,
    "orange juice": 1070,
    "weather": 3655,
    "hotels": 15_402,
    "films": 58_788,
    "wages": 3000,
    "car mileage": 1108,
}
FOREST = "random forests"
MARK = "<!-- printed by examples/benchmarks/fresh.py -->\n"
SHORT = {role: f"In short: {role}" for role in (data.FRESH, data.ONCE)}


@dataclass(frozen=True)
class Rival:
    """A learner, its settings beside the default, and the most rows of a set that it plays by default and by these settings."""

    learner: Learner
    settings: tuple[Options, ...] = ()
    rows: float = math.inf
    tuned_rows: float = math.inf


VW, NEURAL = LEARNERS["VW"], LEARNERS["neural-linear"]
BAYESIAN = Learner(rivals.BayesianBandits, package="bayesianbandits")
CONTEXTUAL = Learner(rivals.ContextualBandits, package="contextualbandits", constant=False)
RIVALS = {
    "VW": Rival(VW, (*VW.shown[:3], *({**o, "rate": 2.0} for o in (VW.default, VW.shown[0]))), tuned_rows=5000),
    "MABWiser LinUCB": Rival(LEARNERS["MABWiser LinUCB"], rows=2500),
    "river LinUCB": Rival(LEARNERS["river LinUCB"], rows=2500),
    "NumPy LinUCB": Rival(LEARNERS["NumPy LinUCB"], LEARNERS["NumPy LinUCB"].grid),
    "LinUCB, magnitudes": Rival(LEARNERS["LinUCB, magnitudes"], LEARNERS["LinUCB, magnitudes"].grid),
    "neural-linear": Rival(NEURAL, ({"radius": 0.0},), tuned_rows=2500),
    FOREST: Rival(Learner(forest, package="sklearn", features="raw", constant=False)),
    "bayesianbandits": Rival(BAYESIAN, ({"alpha": 1.0, "beta": 10.0},), tuned_rows=2500),
    "contextualbandits": Rival(CONTEXTUAL, ({"alpha": 0.3},), tuned_rows=5000),
}
PLAYERS = {OURS_BY_DEFAULT: Rival(LEARNERS[OURS_BY_DEFAULT]), **RIVALS}


def rows_of(name: str) -> int:
    return ROWS[name] if name in ROWS else len(data.table(name).labels)


def played(job: Job, learner: Learner) -> list[float]:
    """Return the error of each member."""
    seeds = {seed for _, seed in job.members}
    streams = {seed: data.stream(job.set, seed, job.rounds, "none", job.features, learner.constant) for seed in seeds}
    if job.learner == FOREST:
        return [forest(streams[seed], seed) for _, seed in job.members]
    if learner.is_batched:
        return play_batch(learner, [streams[seed] for _, seed in job.members], "unit", job.members)
    return [play_one(learner, streams[seed], "unit", options, seed) for options, seed in job.members]


class Comparison:
    """All runs of some sets: without ``smoke``, all rounds and orders. With ``finished``, all rivals, installed or not."""

    def __init__(self, sets: Sequence[str], runs: Runs, smoke: bool = False, finished: bool = False) -> None:
        self.sets, self.runs, self.smoke = sets, runs, smoke
        self.players = {name: one for name, one in PLAYERS.items() if finished or one.learner.is_installed()}

    def orders(self, name: str) -> int:
        return 1 if self.smoke else 3 if rows_of(name) >= MANY else 5

    def job(self, name: str, player: str, options: Sequence[Options]) -> Job:
        members = tuple((one, seed) for one in options for seed in range(self.orders(name)))
        rounds = 60 if self.smoke else MOST
        return Job(name, "none", self.players[player].learner.features, player, members, rounds)

    def settings(self, name: str, player: str) -> list[Options]:
        """Return the settings that a player has on a set, the default first."""
        one, rows = self.players[player], rows_of(name)
        if rows > one.rows:
            return []
        return [one.learner.default, *(one.settings if rows <= one.tuned_rows else ())]

    def jobs(self) -> list[Job]:
        return [self.job(*case, self.settings(*case)) for case in product(self.sets, self.players)]

    def play(self) -> None:
        for every in self.jobs():
            job, player = every.without(self.runs.records), every.learner
            step = BATCHED if self.players[player].learner.is_batched else 1
            for first in range(0, len(job.members), step):
                part = replace(job, members=job.members[first : first + step])
                errors = played(part, self.players[player].learner)
                pairs = zip(part.keys, errors, strict=True)
                self.runs.add({"key": key, "learner": player, "error": error} for key, error in pairs)
            print(f"{job.set}: {player}", file=sys.stderr, flush=True)

    def errors(self, name: str, player: str, options: Options) -> list[float]:
        return self.runs.errors(self.job(name, player, [options]))

    def best(self, name: str, in_hindsight: bool) -> tuple[float, str]:
        """Return the least mean error of the rivals on a set, by default or in hindsight, and whose it is."""
        found = []
        for rival in self.players:
            options = [] if rival == OURS_BY_DEFAULT else self.settings(name, rival)[: None if in_hindsight else 1]
            for one in options:
                is_default = one == self.players[rival].learner.default
                title = rival if is_default else f"{rival}: {setting(one)}"
                found.append((statistics.mean(self.errors(name, rival, one)), title))
        return min(found)

    def ratio(self, name: str, error: float) -> float:
        """Return our mean error over another one."""
        return max(statistics.mean(self.errors(name, OURS_BY_DEFAULT, {})), LEAST) / max(error, LEAST)

    def in_short(self) -> str:
        """Return the three figures by which the sets are judged, for all sets, for classes and for graded sets."""
        kinds = {"all": self.sets} | {
            title: [name for name in self.sets if data.SETS[name].is_graded == graded]
            for title, graded in (("classes", False), ("graded", True))
        }
        rows = []
        for title, sets in kinds.items():
            if sets:
                default, tuned = (
                    [self.ratio(name, self.best(name, late)[0]) for name in sets] for late in (False, True)
                )
                above = sum(value > 1.1 for value in default)
                spread = [f"{statistics.median(default):.2f}", f"{max(default):.2f}", f"{above}"]
                rows.append([f"{title}, {len(sets)}", mean_ratio(default), mean_ratio(tuned), *spread])
        header = (
            "sets",
            "over best default rival",
            "over best rival in hindsight",
            "median over best default",
            "largest over best default",
            "above 1.10",
        )
        return markdown(header, rows)

    def against_best(self) -> str:
        rows = []
        for name in self.sets:
            row = [name, cell(self.errors(name, OURS_BY_DEFAULT, {}))]
            for in_hindsight in (False, True):
                error, title = self.best(name, in_hindsight)
                row += [title, f"{error:.3f}".replace("0.", "."), f"{self.ratio(name, error):.2f}"]
            rows.append(row)
        header = (
            "set",
            OURS_BY_DEFAULT,
            "best default rival",
            "error",
            "ratio",
            "best rival in hindsight",
            "error",
            "ratio",
        )
        return markdown(header, rows)

    def by_default(self) -> str:
        """Return the errors of all by default, and the mean ratio of ours to each rival's."""
        rows: list[list[str]] = []
        ratios: dict[str, list[float]] = {player: [] for player in self.players}
        for name in self.sets:
            row = [name]
            for player in self.players:
                found = [self.errors(name, player, one) for one in self.settings(name, player)[:1]]
                row.append(cell(found[0]) if found else "")
                ratios[player] += [self.ratio(name, statistics.mean(errors)) for errors in found]
            rows.append(row)
        rows.append(["ours over it, geometric mean", *(mean_ratio(values) for values in ratios.values())])
        return markdown(("set", *self.players), rows)

    def described(self) -> str:
        header = ["set", "used as", "package", "rows", "features", "arms", "error of the best single arm", "rounds"]
        return markdown(header, []) + "".join(f"{data.describe(name, MOST)}\n" for name in self.sets)

    def tables(self, role: str) -> dict[str, str]:
        """Return all tables by title; a run that is missing is a ValueError."""
        self.runs.require(key for job in self.jobs() for key in job.keys)
        found = {
            SHORT[role]: self.in_short(),
            f"Default against the best rival: {role}": self.against_best(),
            f"All by default: {role}": self.by_default(),
        }
        is_installed = all(data.SETS[name].is_installed() for name in self.sets)
        return found | ({f"Sets: {role}": self.described()} if is_installed else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", default=data.FRESH, choices=list(SHORT))
    parser.add_argument("--again", nargs="+", default=[], choices=list(PLAYERS), metavar="LEARNER", help="forget runs")
    parser.add_argument("--output", type=Path, default=Path("outputs/fresh"))
    parser.add_argument("--page", type=Path, help="a page whose tables to renew, with its runs: docs/fresh_sets.md")
    parser.add_argument("--tables", type=Path, metavar="RUNS", help="only print the tables of a file of finished runs")
    parser.add_argument("--smoke", action="store_true", help="60 rounds of digits, to see that it runs")
    options = parser.parse_args()
    one_thread()
    if options.tables:
        comparison = Comparison(data.chosen_sets([options.role]), Runs.of(options.tables), finished=True)
        with exit_if_incomplete(options.tables):
            found = comparison.tables(options.role)
        publish(found, options.output / "tables.md", options.page, MARK, SHORT.values())
        return
    file = file_of_runs(options.page) if options.page else None
    sets = ["digits"] if options.smoke else data.installed(data.chosen_sets([options.role]))
    runs = kept_runs(options.output, options.smoke, file, options.again, sets)
    comparison = Comparison(sets, runs, options.smoke)
    comparison.play()
    publish(comparison.tables(options.role), options.output / "tables.md", options.page, MARK, SHORT.values())
    if file:
        runs.save(file, runs.records)


if __name__ == "__main__":
    main()
