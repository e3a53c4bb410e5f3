"""Experiments: jobs that are kept and resumed, saved results, and tables made of them.

A script of this folder names its jobs and says how to tabulate what they return::

    from experiment import Experiment, Job, Results, spread, table

    def play(learner: str, rounds: int, trials: int, seed: int) -> dict[str, Any]:
        ...
        return {"regret": regret.tolist()}  # what JSON can hold

    def jobs(quick: bool) -> dict[str, Job]:
        rounds, trials = (20, 2) if quick else (3000, 40)
        return {name: Job(play, {"learner": name, "rounds": rounds, "trials": trials, "seed": 1}) for name in LEARNERS}

    def tables(results: Results) -> dict[str, str]:
        rows = [(name, spread(one["regret"])) for name, one in results.items()]
        return {"Regret after 3000 rounds, mean ± standard error": table(("learner", "regret"), rows)}

    EXPERIMENT = Experiment(__file__, jobs, tables)

    if __name__ == "__main__":
        EXPERIMENT.main(__doc__)

The name of a job says its setting, and its function can be imported. A job that has finished with the same options is kept
in OUTPUT/<script>, so that an interrupted run goes on where it stopped. It is kept even if the code has changed: empty that
folder to start again. All results, rounded to seven digits, go to OUTPUT/<script>.json with seeds and versions. ``--save`` also
writes them to ``results``, from where a test makes the tables of docs again, and replaces the figures that docs show.
"""

import argparse
import json
import math
import multiprocessing
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[2] / "docs"
PROOFS = "\n## Proofs\n"  # the heading of a docstring's last part
Results = dict[str, Any]  # what the jobs returned, by the name of the job


@dataclass(frozen=True)
class Job:
    """A function that can be imported, and its options, which JSON can hold."""

    play: Callable[..., Any]
    options: dict[str, Any]

    def run(self) -> dict[str, Any]:
        """Return the options, the result and the seconds of processor time."""
        import torch

        torch.set_num_threads(1)
        start = time.process_time()
        result = self.play(**self.options)
        found = {"options": self.options, "seconds": time.process_time() - start, "result": result}
        return json.loads(json.dumps(rounded(found), allow_nan=True))


@dataclass(frozen=True)
class Experiment:
    """A script's jobs, its tables, and, if it draws, its figures.

    Attributes:
        file: the script's ``__file__``.
        jobs: maps ``quick`` to the jobs by name, the longest first. Quick jobs take less than a minute together.
        tables: maps the results to texts in Markdown, by title.
        figures: draws the results into a folder, and returns the files.
        is_timed: whether jobs measure time. Then they run one after the other.
        seeds: of the random numbers.
    """

    file: str
    jobs: Callable[[bool], dict[str, Job]]
    tables: Callable[[Results], dict[str, str]]
    figures: Callable[[Results, Path], list[Path]] | None = None
    is_timed: bool = False
    seeds: str = "those of the options"

    @property
    def name(self) -> str:
        return Path(self.file).stem

    def main(self, description: str | None, arguments: Sequence[str] | None = None) -> None:
        """Run the jobs, print the tables, save the results, and draw. ``--help`` leaves out the proofs."""
        description = (description or "").partition(PROOFS)[0]
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--workers", type=int, default=1, help="processes")
        parser.add_argument("--output", type=Path, default=Path("outputs"))
        parser.add_argument("--quick", "--smoke", action="store_true", help="a little of everything, in a minute")
        parser.add_argument("--save", action="store_true", help="replace the results that the docs are made of")
        options = parser.parse_args(arguments)
        if options.workers < 1:
            parser.error(f"--workers: expected at least 1, got {options.workers}")
        if options.save and options.quick:
            parser.error("--save: expected a full run, got --quick")
        console = Console(soft_wrap=True)
        jobs = self.jobs(options.quick)
        folder = options.output / (f"{self.name}_quick" if options.quick else self.name)
        folder.mkdir(parents=True, exist_ok=True)
        runs = self._runs(jobs, folder, 1 if self.is_timed else options.workers, console)
        paths = [options.output / f"{self.name}.json", *([RESULTS / f"{self.name}.json"] if options.save else [])]
        for path in paths:
            path.write_text(self._text(runs))
        results = {name: run["result"] for name, run in runs.items()}
        for title, text in self.tables(results).items():
            console.print(f"{title}\n\n{text}\n", markup=False, highlight=False)
        figures = self.figures(results, options.output) if self.figures else []
        shown = [DOCS / path.name for path in figures if options.save and (DOCS / path.name).exists()]
        for path in shown:
            path.write_bytes((options.output / path.name).read_bytes())
        for path in [*paths, *figures, *shown]:
            console.print(f"Written: {path}", highlight=False)

    def _runs(self, jobs: dict[str, Job], folder: Path, workers: int, console: Console) -> dict[str, Any]:
        """Return what each job returned, its options and its seconds: kept, or made and kept."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        found: dict[str, Any] = {}
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(self.name, total=len(jobs))
            for name, run in self._each(jobs, folder, workers):
                found[name] = run
                progress.advance(task)
        return {name: found[name] for name in jobs}

    def _each(self, jobs: dict[str, Job], folder: Path, workers: int) -> Iterator[tuple[str, Any]]:
        if workers == 1:
            for name, job in jobs.items():
                yield name, kept(name, job, folder)
            return
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            futures = {pool.submit(kept, name, job, folder): name for name, job in jobs.items()}
            for future in as_completed(futures):
                yield futures[future], future.result()

    def _text(self, runs: dict[str, Any]) -> str:
        """Return the saved form of the results, one job a line."""
        packages = ("torchonline", "torch", "numpy")
        head = {
            "script": f"examples/papers/{Path(self.file).name}",
            "seeds": self.seeds,
            "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
            "seconds": round(sum(run["seconds"] for run in runs.values())),
        }
        lines = [f"{json.dumps(name)}: {json.dumps(run)}" for name, run in runs.items()]
        return f'{json.dumps(head)[:-1]}, "runs": {{\n' + ",\n".join(lines) + "\n}}\n"


def kept(name: str, job: Job, folder: Path) -> dict[str, Any]:
    """Load what a job with these options came to, or run it and keep that."""
    path = folder / f"{re.sub(r'[^A-Za-z0-9.,=+ -]', '_', name)}.json"
    if path.exists():
        found = json.loads(path.read_text())
        if found["options"] == json.loads(json.dumps(rounded(job.options))):
            return found
    found = job.run()
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found))
    unfinished.replace(path)
    return found


def load(name: str) -> dict[str, Any]:
    """Return the saved file of a script: its versions, its seconds and its runs."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def saved(name: str) -> Results:
    """Return the saved results of a script, by the name of the job."""
    return {job: run["result"] for job, run in load(name)["runs"].items()}


def rounded(value: Any) -> Any:
    """Round all numbers in lists and dicts to seven digits."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def listed(lines: Iterable[str]) -> str:
    """Return a list in Markdown."""
    return "\n".join(f"- {line}" for line in lines)


def short(number: float) -> str:
    """Return a number with three digits, or all digits before the point."""
    number = float(number)
    size = float(f"{abs(number):.3g}")  # 99.96 is shown as 100
    if size == 0.0 or not math.isfinite(size):
        return f"{number:zg}"
    return f"{number:.{max(0, 2 - math.floor(math.log10(size)))}f}" if size >= 0.001 else f"{number:.2e}"


def standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def spread(values: Sequence[float]) -> str:
    """Return the mean ± its standard error."""
    return f"{short(statistics.fmean(values))} ± {short(standard_error(values))}"


def scatter(values: Sequence[float]) -> str:
    """Return the mean ± the standard deviation."""
    return f"{short(statistics.fmean(values))} ± {short(statistics.stdev(values))}"


def best_of(values: Iterable[float], regrets: Callable[[float], Sequence[float]]) -> tuple[float, list[float]]:
    """Return the value of an option with the least mean regret, and the means of all."""
    means = {value: statistics.fmean(regrets(value)) for value in values}
    return min(means, key=lambda value: means[value]), list(means.values())


@dataclass(frozen=True)
class Slope:
    """Slope of a log-log line with its 95 % interval; NaN without positive regrets."""

    value: float
    low: float
    high: float

    @classmethod
    def fit(cls, x: Sequence[float], regrets: Iterable[Any]) -> "Slope":
        """Fit a line to mean regrets, by x; trials are resampled as a whole, since they share noise at all x."""
        table = np.stack([np.asarray(regret, dtype=float) for regret in regrets], -1)  # (trials, points)
        draws = np.random.default_rng(1).integers(0, len(table), (2000, len(table)))
        means = np.concatenate([table.mean(0)[None], table[draws].mean(1)])
        if not (means > 0.0).all():
            return cls(math.nan, math.nan, math.nan)
        offset = np.log(x) - np.mean(np.log(x))
        slopes = np.log(means) @ offset / (offset @ offset)
        return cls(float(slopes[0]), *map(float, np.quantile(slopes[1:], (0.025, 0.975))))

    def within(self, low: float, high: float) -> bool:
        """Return whether the whole interval is within bounds."""
        return low <= self.low and self.high <= high

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "none"
        return f"{self.value:z.2f} ({self.low:z.2f} to {self.high:z.2f})"
