"""The tables of the docs, and whether their scripts still print them: ``make numbers``.

A table that a script prints stands under a mark, ``<!-- printed by examples/x.py -->``, up to the next empty line. The mark has
the script's options, if it was run with any.

- With a title, ``... as TITLE``, it is made of saved results, and a test makes it again (``examples/papers/pages.py``).
- Without one, ``--run`` compares it with what its script prints now. Words of a table are edited by hand: a row of the page has
  numbers of one printed row, perhaps rounded, and the rows have the order of the printed ones. Columns may be left out, and stand
  in another order. Columns of times are not compared.

    python releases/tables.py                                  # every table and its script
    python releases/tables.py --run examples/pooled_means.py   # run a script and compare
    python releases/tables.py --run quick                      # the same for the scripts of QUICK, one after the other

Numbers in sentences are copied by hand from the tables beside them, but for those that a test of tests/docs/test_tables.py
computes.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(
    r"^<!-- printed by (\S+?)((?: (?!as |-->)\S+)*)(?: as ([^\n]+?))? -->\n(.*?)(?=\n\n|\n*\Z)",
    re.DOTALL | re.MULTILINE,
)
# What parts the cells of a row and the rows of a table, in Markdown and in boxes; and a number.
BAR = re.compile("[│┃]")
RULES = set("|-: ━─┏┳┓┡╇┩└┴┘├┼┤╞╪╡╭┬╮╰╯═")
NUMBER = re.compile(r"(?:(?<![\w.])-)?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?|\binf\b")
# Scripts of at most some minutes on an idle core, whose numbers are not times but for single columns and tables.
QUICK = (
    "examples/benchmarks/drift_real.py",
    "examples/benchmarks/neural_linear.py",
    "examples/benchmarks/private_radius.py",
    "examples/benchmarks/run.py",
    "examples/counts.py",
    "examples/drift.py",
    "examples/fit_blt.py",
    "examples/lqr.py",
    "examples/monitoring.py",
    "examples/noise_scale.py",
    "examples/oful_radius.py",
    "examples/outliers.py",
    "examples/pooled_means.py",
    "examples/system_identification.py",
)
# Scripts that start from the finished runs beside a page, so that they do not play for hours; and the sets of a page.
STARTERS = ("examples/benchmarks/neural_linear.py", "examples/benchmarks/run.py")
SETS = {"docs/benchmark.md": "all", "docs/graded.md": "graded", "docs/encoders_measured.md": "all"}
# Columns that are times, which no two runs have in common.
TIMES = {
    "examples/benchmarks/run.py": "a round, in rounds of VW",
    "examples/demo.py": "time of a round",
    "examples/distributed/sweep.py": "rounds/s",
}


class Table(NamedTuple):
    """A table of a page: its script with options, its title among saved results if it has one, and its text."""

    page: str
    script: str
    options: tuple[str, ...]
    title: str
    text: str


def tables() -> Iterator[Table]:
    """Yield the tables of README and docs."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for script, options, title, text in MARK.findall(path.read_text()):
            # Pictures are skipped.
            if not text.startswith("!["):
                yield Table(path.relative_to(ROOT).as_posix(), script, tuple(options.split()), title, text)


def plain(text: str) -> list[str]:
    """Return the lines of a text without what only lays it out."""
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


def command(table: Table) -> tuple[str, ...]:
    """Return what prints a table: its script and options."""
    if table.script not in STARTERS:
        return (table.script, *table.options)
    only_tables = ("--tables",) if table.script == "examples/benchmarks/run.py" else ()
    return (
        table.script,
        "--sets",
        SETS[table.page],
        "--runs",
        table.page.replace(".md", "_runs.jsonl.gz"),
        *only_tables,
    )


def printed(script: str, *options: str) -> list[str]:
    """Run a script and return the lines of what it printed and wrote as text."""
    with tempfile.TemporaryDirectory() as folder:
        one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        environment = os.environ | one_thread | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        paths = [str(ROOT / option) if option.startswith("docs/") else option for option in options]
        call = [sys.executable, str(ROOT / script), *paths]
        done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(call)}\n{done.stdout}{done.stderr}")
        return plain("\n".join([done.stdout, *(path.read_text() for path in Path(folder).rglob("*.md"))]))


def rows_of(lines: list[str], script: str) -> list[list[str]]:
    """Return the cells of the rows among some lines, without a column of times; a line that is no row has one cell."""
    rows, times = [], None
    for line in lines:
        cells = [cell.strip() for cell in BAR.sub("|", line).strip("|").split("|")]
        if TIMES.get(script) in cells:
            times = cells.index(TIMES[script])
        if not set(line) <= RULES:
            rows.append([cell for number, cell in enumerate(cells) if number != times or len(cells) == 1])
    return rows


def numbers(cells: list[str]) -> list[str]:
    """Return the numbers of some cells, without commas that part thousands."""
    return [number.replace(",", "") for cell in cells for number in NUMBER.findall(cell.replace("infinite", "inf"))]


def is_rounded(theirs: str, ours: str) -> bool:
    """Return whether a number of a page is a printed one, or that with fewer digits."""
    if theirs == ours:
        return True
    if "inf" in (theirs, ours) or "e" in theirs + ours:
        return False
    digits, ours_digits = (len(number.partition(".")[2]) for number in (theirs, ours))
    return ours_digits < digits and abs(float(theirs) - float(ours)) <= 0.5 * 10.0**-ours_digits + 1e-9


def has(printed_row: list[str], row: list[str]) -> bool:
    """Return whether a printed row says what a row of a page does: the same text, or its numbers after the first cell."""
    if printed_row == row:
        return True
    theirs, ours = numbers(printed_row), numbers(row[1:])
    for our in ours:
        rounded = [their for their in theirs if is_rounded(their, our)]
        if not rounded:
            return False
        theirs.remove(our if our in rounded else rounded[0])
    return len(ours) > 0


def missing(table: Table, lines: list[str]) -> list[str]:
    """Return the lines of a table that were not printed, or in another order. The header of a table is not looked for."""
    rows, found = rows_of(plain(table.text), table.script), rows_of(lines, table.script)
    if table.text.startswith("|"):
        rows = rows[1:]
    absent, place = [], 0
    for row in rows:
        where = next((i for i in range(place, len(found)) if has(found[i], row)), None)
        if where is None:
            absent.append(" | ".join(row))
        else:
            place = where + 1
    return absent


def run(script: str) -> bool:
    """Run a script with each page's options, say which tables it did not print, and return whether it printed all."""
    # Where the first column is of times, all numbers are.
    mine = [
        table
        for table in tables()
        if table.script == script and not table.title and not table.text.startswith(f"| {TIMES.get(script)} |")
    ]
    if not mine:
        sys.exit(f"{script}: expected a script of a table without a title; python releases/tables.py lists them")
    is_same = True
    for call in dict.fromkeys(command(table) for table in mine):
        start = time.monotonic()
        lines = printed(*call)
        print(f"{' '.join(call)}: {time.monotonic() - start:.0f} s", flush=True)
        for table in (table for table in mine if command(table) == call):
            rows = missing(table, lines)
            print(
                f"{table.page}: {'not printed any more:' if rows else 'as printed'}", *rows[:5], sep="\n  ", flush=True
            )
            is_same = is_same and not rows
    return is_same


def main() -> None:
    """List the tables, or run scripts and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", nargs="+", default=[], metavar="SCRIPT", help="run and compare; quick: QUICK")
    options = parser.parse_args()
    if not options.run:
        for table in tables():
            print(f"{table.page:32} {table.script:45} {table.title}")
    scripts = [each for script in options.run for each in (QUICK if script == "quick" else (script,))]
    if differ := [script for script in scripts if not run(script)]:
        sys.exit(f"not as printed: {', '.join(differ)}")


if __name__ == "__main__":
    main()
