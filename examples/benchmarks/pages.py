"""Pages of the site with every table of the finished runs: the benchmark, graded rewards, encoders and fresh sets.

A build of the site writes them by docs/site_parts/results.py. Neither the sets nor the other libraries have to be installed. This
prints them as JSON, in seconds::

    python examples/benchmarks/pages.py --results
"""

import argparse
import json
from functools import cache
from pathlib import Path

import data
import fresh
import late
import neural_linear
import run
import tables
from learners import LEARNERS

DOCS = Path(__file__).parents[2] / "docs"
TITLES = {
    "benchmark": "Bandits on real data",
    "graded": "Graded rewards",
    "encoders_measured": "Encoders, measured",
    "fresh_sets": "Fresh sets",
}


def runs_of(page: str) -> run.Runs:
    """Return the finished runs beside a page of docs."""
    return run.Runs.of(run.file_of_runs(DOCS / f"{page}.md"))


@cache
def benchmark_of(page: str, sets: str) -> run.Benchmark:
    """Return the finished benchmark of run.py beside a page of docs, on some sets."""
    file, seeds = run.file_of_runs(DOCS / f"{page}.md"), tuple(range(run.SEEDS))
    return run.finished(file, data.chosen_sets([sets]), list(LEARNERS), seeds, run.ROUNDS)


def of_encoders() -> dict[str, str]:
    sets = data.chosen_sets(["all"])
    return neural_linear.Comparison(sets, run.SEEDS, run.ROUNDS, runs_of("encoders_measured")).all_tables()


def of_fresh_sets() -> dict[str, str]:
    runs, found = runs_of("fresh_sets"), {}
    for role in (data.ONCE, data.FRESH):
        found |= fresh.Comparison(data.chosen_sets([role]), runs, finished=True).tables(role)
    return found | late.Comparison(late.SETS, runs_of("late_rewards")).tables()


@cache
def all_tables() -> dict[str, dict[str, str]]:
    """Return the tables of each page by title."""
    return {
        "benchmark": tables.all_tables(benchmark_of("benchmark", "all"), {}),
        "graded": tables.all_tables(benchmark_of("graded", "graded"), {}),
        "encoders_measured": of_encoders(),
        "fresh_sets": of_fresh_sets(),
    }


def result_pages() -> dict[str, str]:
    """Return the pages by name: one for each page of docs with runs beside it, and an index of them."""
    pages = {}
    for name, found in all_tables().items():
        head = (
            f"# {TITLES[name]}: all tables\n\nWhat was measured, and what follows, is on [its page](../../{name}.md)."
        )
        parts = [f"## {title}\n\n{table.rstrip()}" for title, table in found.items()]
        pages[name] = "\n\n".join([head, *parts]) + "\n"
    links = "\n".join(f"- [{TITLES[name]}]({name}.md)" for name in pages)
    text = "Every table of the finished runs: each learner, setting and set. The site's build makes these pages."
    return {"index": f"# Complete tables\n\n{text}\n\n{links}\n"} | pages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", action="store_true", required=True, help="print the pages as JSON")
    parser.parse_args()
    print(json.dumps(result_pages()))


if __name__ == "__main__":
    main()
