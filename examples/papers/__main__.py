"""List the experiments of the papers, or run some of them.

python examples/papers                                # what there is, and how long it takes
python examples/papers glb_omd hvt_ucb --workers 2    # runs two; an interrupted run goes on where it stopped
python examples/papers --all --quick                  # a little of each
python examples/papers hvt_ucb --tables               # prints all tables of the saved results, in seconds
python examples/papers claims_hvt_ucb --tables        # the same for the claims of a paper
"""

import argparse
import subprocess
import sys
from pathlib import Path

from experiment import RESULTS, load
from pages import CLAIMS, SAVED, tables_of
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent


def scripts() -> dict[str, str]:
    """Return the first line of each script's docstring, by its name."""
    texts = {
        path.stem: path.read_text() for path in sorted(FOLDER.glob("*.py")) if path.stem not in ("__main__", "pages")
    }
    return {
        name: text.lstrip("r").removeprefix('"""').splitlines()[0]
        for name, text in texts.items()
        if '\nif __name__ == "__main__":' in text
    }


def minutes(name: str) -> str:
    """Return how long the saved run took on one core."""
    if not (RESULTS / f"{name}.json").exists():
        return ""
    seconds = load(name)["seconds"]
    return "< 1" if seconds < 60 else f"{seconds / 60:.0f}"


def print_tables(names: list[str]) -> None:
    """Print all tables of some scripts, made of their saved results."""
    for name in names:
        for title, text in tables_of(name).items():
            print(f"{title}\n\n{text}\n")


def main() -> int:
    found = scripts()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to run")
    parser.add_argument("--all", action="store_true", help="run all")
    parser.add_argument("--workers", help="processes")
    parser.add_argument("--output", help="a folder, where finished jobs are kept")
    parser.add_argument("--quick", "--smoke", action="store_true", help="a little of everything, in a minute")
    parser.add_argument("--save", action="store_true", help="replace the results that the docs are made of")
    parser.add_argument("--tables", action="store_true", help="print the tables of the saved results, and run nothing")
    options = parser.parse_args()
    if options.tables:
        known = [*CLAIMS, *SAVED]
        if unknown := [name for name in options.names if name not in known]:
            parser.error(f"--tables: expected some of {', '.join(known)}, got {', '.join(unknown)}")
        if not (options.names or options.all):
            parser.error(f"--tables: expected --all or some of {', '.join(known)}")
        print_tables(known if options.all else options.names)
        return 0
    given = {name: getattr(options, name) for name in ("workers", "output") if getattr(options, name) is not None}
    others = [word for name, value in given.items() for word in (f"--{name}", value)]
    others += [f"--{name}" for name in ("quick", "save") if getattr(options, name)]
    if unknown := [name for name in options.names if name not in found]:
        parser.error(f"expected some of {', '.join(found)}, got {', '.join(unknown)}")
    if not options.names and not options.all:
        table = Table("script", "minutes", "what it does", title="Experiments; minutes of processor time")
        for name, text in found.items():
            table.add_row(name, minutes(name), text)
        Console().print(table)
        return 0
    failed = []
    for name in found if options.all else options.names:
        print(f"{name}: {found[name]}", flush=True)
        if subprocess.run([sys.executable, FOLDER / f"{name}.py", *others]).returncode != 0:
            failed.append(name)
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
