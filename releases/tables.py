"""The tables of the docs, what prints them, and whether they are still what was printed: ``make numbers``.

A table that a script prints stands under a mark, ``<!-- printed by examples/x.py -->``, up to the next empty line. The mark has
the script's options, if it was run with any.

- With a title, ``... as TITLE``, it is made of saved results, and a test makes it again (``examples/papers/pages.py``).
- Without one, docs/tables.json holds a digest of it, and a test compares the page. A table is recorded by a run of its script
  that prints exactly this table, but for columns of times; or, if the run is too long or all its numbers are times, by
  ``--accept``, which is noted. Words of a table are edited by hand: a row of the page has numbers of one printed row,
  perhaps rounded, and the rows have the order of the printed ones. Columns may be left out, and stand in another order.

    python releases/tables.py                                  # every table, its script, and how it is held
    python releases/tables.py --run examples/pooled_means.py   # run a script, compare, and record what agrees
    python releases/tables.py --run quick                      # the same for the scripts of QUICK, one after the other
    python releases/tables.py --accept examples/blocks.py      # record the pages as they are

Numbers in sentences are not held by this: they are copied by hand from the tables beside them, but for those that a test of
tests/docs/test_tables.py computes.
"""

import argparse
import hashlib
import json
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
RECORD = ROOT / "docs" / "tables.json"
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
# Columns that are times, which no two runs have in common. If it is the first one, all of the table is times.
TIMES = {
    "examples/benchmarks/run.py": "a round, in rounds of VW",
    "examples/demo.py": "time of a round",
    "examples/distributed/sweep.py": "rounds/s",
}
# Scripts that print times and rates alone.
ALL_TIMES = (
    "examples/benchmarks/devices.py",
    "examples/benchmarks/scaling.py",
    "examples/serving/attack.py",
    "examples/serving/load.py",
    "examples/serving/log_speed.py",
    "tests/benchmarks/test_speed.py",
)


class Table(NamedTuple):
    """A table of a page: its script with options, its title among saved results if it has one, and its text."""

    page: str
    number: int
    script: str
    options: tuple[str, ...]
    title: str
    text: str

    @property
    def key(self) -> str:
        """Return what the record calls it."""
        return f"{self.page} {self.script} {self.number}"

    @property
    def digest(self) -> str:
        """Return a digest of the text, without what only lays it out."""
        return hashlib.sha256("\n".join(plain(self.text)).encode()).hexdigest()[:16]


def tables() -> Iterator[Table]:
    """Yield the tables of README and docs."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        counts: dict[str, int] = {}
        for script, options, title, text in MARK.findall(path.read_text()):
            counts[script] = counts.get(script, 0) + 1
            name = path.relative_to(ROOT).as_posix()
            # A picture is no number.
            if not text.startswith("!["):
                yield Table(name, counts[script], script, tuple(options.split()), title, text)


def record() -> dict[str, dict[str, str]]:
    """Return the record: by table, its digest and how it came there."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def write(entries: dict[str, dict[str, str]]) -> None:
    """Write the record, without tables that are gone."""
    keys = {table.key for table in tables()}
    RECORD.write_text(json.dumps({key: entries[key] for key in sorted(entries) if key in keys}, indent=1) + "\n")


def plain(text: str) -> list[str]:
    """Return the lines of a text without what only lays it out."""
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


def command(table: Table) -> tuple[str, ...]:
    """Return what prints a table: its script and options."""
    if table.script not in STARTERS:
        return (table.script, *table.options)
    return (table.script, "--sets", SETS[table.page], "--runs", table.page.replace(".md", "_runs.jsonl.gz"))


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


def is_times(table: Table) -> bool:
    """Return whether all numbers of a table are times, which no two runs have in common."""
    return table.script in ALL_TIMES or table.text.startswith(f"| {TIMES.get(table.script)} |")


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
    """Run a script with each page's options, record the tables that it printed, and say which it did not; whether all were."""
    mine = [table for table in tables() if table.script == script and not table.title]
    if not mine:
        sys.exit(f"{script}: expected a script of a table without a title; python releases/tables.py lists them")
    is_same = True
    for call in dict.fromkeys(command(table) for table in mine):
        start = time.monotonic()
        lines = printed(*call)
        print(f"{' '.join(call)}: {time.monotonic() - start:.0f} s", flush=True)
        entries = record()
        for table in mine:
            if command(table) != call or is_times(table):
                continue
            if rows := missing(table, lines):
                print(f"{table.key}: not printed any more:", *rows[:5], sep="\n  ", flush=True)
                is_same = False
            else:
                print(f"{table.key}: as printed", flush=True)
                entries[table.key] = {"digest": table.digest, "by": "run"}
        write(entries)
    return is_same


def accept(script: str) -> None:
    """Record the pages' tables of a script as they are."""
    entries = record()
    for table in tables():
        if (
            script in (table.script, "all")
            and not table.title
            and entries.get(table.key, {}).get("digest") != table.digest
        ):
            entries[table.key] = {"digest": table.digest, "by": "hand"}
    write(entries)


def held(table: Table, entries: dict[str, dict[str, str]]) -> str:
    """Return how a table is held."""
    entry = entries.get(table.key, {})
    if table.title:
        return "saved results"
    if entry.get("digest") != table.digest:
        return "CHANGED" if entry else "NEW"
    if entry["by"] == "run":
        return "a run, compared"
    return "the page as it was accepted" + (" (times)" if is_times(table) else "")


def main() -> None:
    """List, run or record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", nargs="*", default=[], metavar="SCRIPT", help="run, compare and record; quick: QUICK")
    parser.add_argument(
        "--accept", nargs="*", default=[], metavar="SCRIPT", help="record the pages as they are; all: of all"
    )
    options = parser.parse_args()
    for script in options.accept:
        accept(script)
    scripts = [each for script in options.run for each in (QUICK if script == "quick" else (script,))]
    differ = [script for script in scripts if not run(script)]
    if not options.run and not options.accept:
        entries, counts = record(), dict[str, int]()
        for table in tables():
            how = held(table, entries)
            counts[how] = counts.get(how, 0) + 1
            print(f"{table.page:32} {table.script:45} {how}{': ' + table.title if table.title else ''}")
        print(", ".join(f"{count} by {how}" for how, count in sorted(counts.items())))
    if differ:
        sys.exit(f"not as printed: {', '.join(differ)}")


if __name__ == "__main__":
    main()
