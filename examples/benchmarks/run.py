r"""Contextual bandits on real data: torchonline, three libraries, LinUCB in NumPy and a neural-linear bandit.

A classification set is a bandit: the context is a row's features, the arms are the classes, and the reward is 1 for the right
class and 0 for another. A run has 1500 rounds, or all rows of a smaller set, in an order of its seed. With noise "pareto", each
reward has 0.25 (Pareto(1.5) - 3) added, which has mean 0, infinite variance and a long right tail; it is the same for all
learners and arms. The error is the share of rounds with a wrong class; the noise does not count.

torchonline gets raw features. All others get features that are standardised over the whole set beforehand, which no online
learner could do, and a constant. One table shows them on raw features.

Each library plays with its defaults and tuned: the setting of its grid with the least mean error on other seeds, for each set and
noise. All grids have the same number of settings. ``data.py`` says which sets were used for development.

Runs are kept in OUTPUT/runs.jsonl and not repeated, even if the code has changed: ``--again LEARNER`` plays a learner anew. With
``--runs docs/benchmark_runs.jsonl.gz``, the runs of docs/benchmark.md are not repeated either. ``--tables`` plays nothing: it
prints all tables of these runs in seconds, and needs neither the sets nor the other libraries.

    python examples/benchmarks/run.py    # the development sets: some 40 minutes on a core; seconds with --smoke
    python examples/benchmarks/run.py --sets all --runs docs/benchmark_runs.jsonl.gz --tables    # all tables of finished runs
    pip install ".[examples,benchmarks]"    # the other libraries; those that are missing are left out
"""

import argparse
import gzip
import json
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import data
import plot
import tables
from learners import LEARNERS, Options, setting
from play import Job, play, processor_times

ROUNDS, SEEDS, TUNING_SEEDS = 1500, 10, (100, 101, 102)
# The sets on which processor time is measured, if they are among the chosen ones.
TIMED = ("segment", "digits", "letter")
# Members of a batch that play at once: more would leave the processor's cache.
BATCHED = 30


class Runs:
    """Finished cells, in a file with one JSON record a line; without a path, in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.records = path, {}
        if path and path.exists():
            # A line that an interrupt has cut off is played again.
            lines = [line for line in path.read_text().splitlines() if line.endswith("}")]
            self.records = {record["key"]: record for record in map(json.loads, lines)}
            self.write()

    @classmethod
    def of(cls, file: Path) -> "Runs":
        """Return the finished cells of a file that :meth:`save` has written, in memory only."""
        runs = cls()
        runs.read(file)
        return runs

    def read(self, file: Path) -> None:
        """Take over the finished cells of a file that :meth:`save` has written."""
        for record in map(json.loads, gzip.decompress(file.read_bytes()).decode().splitlines()):
            self.records.setdefault(record["key"], record)
        self.write()

    def save(self, file: Path, keys: Iterable[str], *more: str) -> None:
        """Write some cells to a compressed file: their keys, learners and errors, and what else is named."""
        names = ("key", "learner", "error", *more)
        records = ({name: self.records[key][name] for name in names} for key in keys)
        file.write_bytes(gzip.compress(as_lines(records).encode(), mtime=0))

    def write(self) -> None:
        if self.path:
            self.path.write_text(as_lines(self.records.values()))

    def forget(self, learners: Sequence[str], sets: Sequence[str] | None = None) -> None:
        """Forget the cells of some learners: on some sets, or on all."""

        def is_forgotten(record: dict[str, Any]) -> bool:
            return record["learner"] in learners and (sets is None or record["key"].split(" | ")[0] in sets)

        self.records = {key: record for key, record in self.records.items() if not is_forgotten(record)}
        self.write()

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        records = list(records)
        self.records |= {record["key"]: record for record in records}
        if self.path:
            with self.path.open("a") as file:
                file.write(as_lines(records))

    def require(self, keys: Iterable[str]) -> None:
        """Raise a ValueError if a cell is not finished."""
        if missing := [key for key in keys if key not in self.records]:
            raise ValueError(f"expected finished runs, but {len(missing)} are missing, such as {missing[0]}")

    def errors(self, job: Job) -> list[float]:
        return [self.records[key]["error"] for key in job.keys]


@contextmanager
def exit_if_incomplete(file: Path) -> Iterator[None]:
    """Exit, and say why, if ``--tables`` finds that runs are missing in a file."""
    try:
        yield
    except ValueError as error:
        sys.exit(f"--tables: {file}: {error}")


def file_of_runs(page: Path) -> Path:
    """Return the file of the runs behind a page."""
    return page.with_name(f"{page.stem}_runs.jsonl.gz")


def kept_runs(
    output: Path, smoke: bool, file: Path | None, again: Sequence[str], sets: Sequence[str] | None = None
) -> Runs:
    """Return the finished cells of a folder and of a page's file, if there is one, without those of the learners ``again``.

    With ``sets``, cells of these learners on other sets stay.
    """
    output.mkdir(parents=True, exist_ok=True)
    runs = Runs(output / ("smoke.jsonl" if smoke else "runs.jsonl"))
    if file and file.exists():
        runs.read(file)
    runs.forget(again, sets)
    return runs


def as_lines(records: Iterable[dict[str, Any]]) -> str:
    """Return one JSON record a line."""
    return "".join(json.dumps(record) + "\n" for record in records)


def run(jobs: Iterable[Job], runs: Runs, workers: int, title: str) -> None:
    """Play the cells of the jobs that are not finished, and keep them."""
    parts = [part for job in jobs for part in split(job.without(runs.records))]
    for done, records in enumerate(played(parts, workers), start=1):
        runs.add(records)
        if done % 100 == 0 or done == len(parts):
            print(f"{title}: {done} of {len(parts)}", file=sys.stderr, flush=True)


def played(parts: list[Job], workers: int) -> Iterator[list[dict[str, Any]]]:
    if workers == 1:
        yield from map(play, parts)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(play, part) for part in parts]):
            yield future.result()


def split(job: Job) -> list[Job]:
    """Split a job into single runs, or into batches that fit the processor's cache."""
    size = BATCHED if LEARNERS[job.learner].is_batched else 1
    starts = range(0, len(job.members), size)
    return [replace(job, members=job.members[start : start + size]) for start in starts]


class Benchmark:
    """All cells of some sets and learners."""

    def __init__(self, sets: list[str], learners: list[str], seeds: tuple[int, ...], rounds: int, runs: Runs) -> None:
        self.sets, self.learners, self.seeds, self.rounds, self.runs = sets, learners, seeds, rounds, runs

    def job(
        self, name: str, noise: str, learner: str, options: Sequence[Options], seeds: Sequence[int], features: str = ""
    ) -> Job:
        features = features or LEARNERS[learner].features
        members = tuple((one, seed) for one in options for seed in seeds)
        return Job(name, noise, features, learner, members, self.rounds)

    def cases(self) -> list[tuple[str, str, str]]:
        """Return all (set, noise, learner)."""
        every = product(self.sets, self.learners, data.NOISES)
        return [(name, noise, learner) for name, learner, noise in every if self.is_played(name, noise, learner)]

    def is_played(self, name: str, noise: str, learner: str) -> bool:
        entry = LEARNERS[learner]
        return noise in entry.noises and not (entry.by_theory and data.SETS[name].role != data.DEVELOPMENT)

    def tuning(self) -> list[Job]:
        return [self.job(*case, LEARNERS[case[2]].grid, TUNING_SEEDS) for case in self.cases()]

    def tuned(self, name: str, noise: str, learner: str) -> Options | None:
        """Return the options with the least mean error on the tuning seeds; None without a grid."""
        options = LEARNERS[learner].grid
        means = [sum(self.runs.errors(self.job(name, noise, learner, [one], TUNING_SEEDS))) for one in options]
        return options[means.index(min(means))] if options else None

    def final(self) -> list[Job]:
        """Return the jobs on the test seeds: default, shown and tuned settings, and defaults on the other features."""
        jobs = []
        for name, noise, learner in self.cases():
            entry, best = LEARNERS[learner], self.tuned(name, noise, learner)
            options = [entry.default, *entry.shown]
            if best is not None and setting(best) not in map(setting, options):
                options.append(best)
            jobs.append(self.job(name, noise, learner, options, self.seeds))
            if noise == "none" and not (entry.by_theory or entry.standard_only):
                other = "standard" if entry.features == "raw" else "raw"
                jobs.append(self.job(name, noise, learner, [entry.default], self.seeds, other))
        return jobs

    def errors(self, name: str, noise: str, learner: str, options: Options | None, features: str = "") -> list[float]:
        """Return the errors on the test seeds; none without a setting, or if the learner does not play here."""
        if options is None or not self.is_played(name, noise, learner):
            return []
        return self.runs.errors(self.job(name, noise, learner, [options], self.seeds, features))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["dev"], help=f"{', '.join(data.ROLES)}, all, or names")
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS), metavar="LEARNER")
    parser.add_argument("--again", nargs="+", default=[], choices=list(LEARNERS), metavar="LEARNER", help="forget runs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="test seeds, from 0 on")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"))
    parser.add_argument("--runs", type=Path, help="finished runs to start from, such as docs/benchmark_runs.jsonl.gz")
    parser.add_argument("--tables", action="store_true", help="play nothing: print the tables of the runs of --runs")
    parser.add_argument("--page", type=Path, help="a page whose tables, figure and runs to renew: docs/benchmark.md")
    parser.add_argument("--smoke", action="store_true", help="30 rounds of digits and 2 seeds, to see that it runs")
    options = parser.parse_args()
    if not 1 <= options.seeds <= TUNING_SEEDS[0]:
        parser.error(f"--seeds: expected 1 to {TUNING_SEEDS[0]}, got {options.seeds}")
    if min(options.rounds, options.workers) < 1:
        parser.error(f"--rounds and --workers: expected at least 1, got {options.rounds} and {options.workers}")
    if options.page and not options.page.is_file():
        parser.error(f"--page: expected a file, got {options.page}")
    if options.runs and not options.runs.is_file():
        parser.error(f"--runs: expected a file, got {options.runs}")
    if options.tables and not options.runs:
        parser.error("--tables: expected --runs, a file of finished runs")
    if options.smoke:
        options.sets, options.seeds, options.rounds = ["digits"], 2, 30
    try:
        options.sets = data.chosen_sets(options.sets)
    except ValueError as error:
        parser.error(str(error))
    return options


def finished(file: Path, sets: list[str], learners: list[str], seeds: tuple[int, ...], rounds: int) -> Benchmark:
    """Return the benchmark of a file of finished runs; a cell that is missing there is a ValueError."""
    benchmark = Benchmark(sets, learners, seeds, rounds, Runs.of(file))
    for jobs in (benchmark.tuning, benchmark.final):  # what is final depends on what tuning chose
        benchmark.runs.require(key for job in jobs() for key in job.keys)
    return benchmark


def main() -> None:
    options = parsed()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.tables:
        seeds = tuple(range(options.seeds))
        with exit_if_incomplete(options.runs):
            benchmark = finished(options.runs, options.sets, options.learners, seeds, options.rounds)
        publish(benchmark, {}, options.output, options.page)
        return
    runs = Runs(options.output / "runs.jsonl")
    if options.runs:
        runs.read(options.runs)
    runs.forget(options.again)
    learners = [name for name in options.learners if LEARNERS[name].is_installed()]
    sets = data.installed(options.sets)
    for missing in set(options.learners) - set(learners):
        print(f"{missing}: left out, because the package {LEARNERS[missing].package} is not installed")
    benchmark = Benchmark(sets, learners, tuple(range(options.seeds)), options.rounds, runs)
    run(benchmark.tuning(), runs, options.workers, "tuning")
    run(benchmark.final(), runs, options.workers, "test seeds")
    timed, repeats = (sets, 1) if options.smoke else ([name for name in TIMED if name in sets], 3)
    times = {name: processor_times(name, learners, options.rounds, repeats) for name in timed}
    publish(benchmark, times, options.output, options.page)
    print(f"Tables, figure and runs: {options.output}")
    if options.page:
        keys = (key for job in (*benchmark.tuning(), *benchmark.final()) for key in job.keys)
        runs.save(file_of_runs(options.page), dict.fromkeys(keys))


def publish(benchmark: Benchmark, times: tables.Times, output: Path, page: Path | None) -> None:
    """Print the tables, keep them and the figure in a folder, and renew those of a page."""
    tables.publish(tables.all_tables(benchmark, times), output / "tables.md", page, others=[tables.TIMES])
    plot.ratios(benchmark, output / "benchmark.png")
    if page:
        plot.ratios(benchmark, page.with_suffix(".png"))


if __name__ == "__main__":
    main()
