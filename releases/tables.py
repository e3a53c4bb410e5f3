"""The tables of the docs, what prints them, and whether they are still what was printed: ``make numbers``.

A table that a script prints stands under a mark, ``<!-- printed by examples/x.py -->``, up to the next empty line.

- With a title, ``... as TITLE``, it is made of saved results, and a test makes it again (``examples/papers/pages.py``).
- Without one, docs/tables.json holds a digest of it, and a test compares the page. A new table is recorded by a run of its
  script that prints exactly this table; or, if the run is too long or its numbers are times, by ``--accept``, which is noted.

    python releases/tables.py                                  # every table, its script, and how it is held
    python releases/tables.py --run examples/pooled_means.py   # run a script, compare, and record what agrees
    python releases/tables.py --run quick                      # the same for the scripts of QUICK
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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "tables.json"
MARK = re.compile(
    r"^<!-- printed by (\S+?)((?: --?\S+| \d+)*)(?: as ([^\n]+?))? -->\n(.*?)(?=\n\n|\n*\Z)", re.DOTALL | re.MULTILINE
)
# Scripts of a minute or two, whose numbers are not times.
QUICK = ("examples/fit_blt.py", "examples/lqr.py", "examples/monitoring.py", "examples/pooled_means.py")


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


def printed(script: str, options: tuple[str, ...]) -> list[str]:
    """Run a script and return the lines of what it printed and wrote as text."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(ROOT / script), *options]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return plain("\n".join([done.stdout, *(path.read_text() for path in Path(folder).rglob("*.md"))]))


def run(script: str) -> bool:
    """Run a script, record the tables that it printed, and say which it did not; whether all were."""
    mine = [table for table in tables() if table.script == script and not table.title]
    if not mine:
        sys.exit(f"{script}: expected a script of a table without a title; python releases/tables.py lists them")
    lines, entries = printed(script, mine[0].options), record()
    is_same = True
    for table in mine:
        missing = [line for line in plain(table.text) if line not in lines and not set(line) <= set("|-: ")]
        if missing:
            print(f"{table.key}: not printed any more:", *missing[:5], sep="\n  ")
            is_same = False
        else:
            print(f"{table.key}: as printed")
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
    return "a run, compared" if entry["by"] == "run" else "the page as it was accepted"


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
