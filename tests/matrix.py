"""Run the quick tier on pairs of Python and torch, and write docs/versions.md: ``make matrix``.

For each pair of ``PAIRS`` the script makes a virtual environment, installs the package with that torch, runs
``pytest -m "fast and not slow"`` there, keeps the outcome in docs/versions.json, and removes the environment. A pair that has
an outcome of the whole tier is not run again, so an interrupted run goes on; ``--again`` runs it all the same. A pair whose
Python is not found is left out, and named at the end.

    python tests/matrix.py                                   # all pairs without an outcome
    python tests/matrix.py --only 3.11-2.10.0 --again         # one pair
    python tests/matrix.py --python 3.14=/opt/bin/python     # where to find an interpreter
    python tests/matrix.py --page                            # only write the page

An environment takes up to 8 GB, because torch of the Python package index brings CUDA with it on Linux. The script needs the
standard library alone, so that it also runs inside a container that has nothing but Python.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "versions.json"
PAGE = ROOT / "docs" / "versions.md"
MARK = "<!-- printed by tests/matrix.py as The pairs -->\n"
# The least versions that pyproject.toml names, all at once.
FLOORS = ("numpy==2.0.0", "pytorch-lightning==2.5.0", "torchmetrics==1.3.1")
# Python, torch, and what else is pinned. Each minor version of torch once, each Python with the newest torch.
PAIRS: dict[str, tuple[str, ...]] = {
    "3.11-2.10.0": FLOORS,
    "3.11-2.13.0": (),
    "3.14-2.13.0": (),
    "3.12-2.13.0": (),
    "3.13-2.13.0": (),
    "3.13-2.10.0": (),
    "3.11-2.11.0": (),
    "3.14-2.12.1": (),
}
SHOWN = ("torch", "numpy", "pytorch-lightning", "torchmetrics")
# Other versions of torch, NumPy, Lightning and Python bring warnings of their own; only ours matter here.
QUIET = (
    "-W",
    "default::DeprecationWarning",
    "-W",
    "default::FutureWarning",
    "-W",
    "default::PendingDeprecationWarning",
    # torch's hint that its compiler may be slower on Python 3.13.0 than on later ones.
    "-W",
    "default:Guards may run slower on Python:RuntimeWarning",
)
ASK = (
    "import importlib.metadata as m, json, platform;"
    f"print(json.dumps({{'python': platform.python_version()}} | {{n: m.version(n) for n in {SHOWN!r}}}))"
)


def interpreter(version: str, given: dict[str, str]) -> str | None:
    """Return the path of a Python of this version: a given one, one on the PATH, or pyenv's."""
    if version in given:
        return given[version]
    if found := shutil.which(f"python{version}"):
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run([found, "--version"], check=True, capture_output=True)
            return found
    known = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(known[-1]) if known else None


@contextlib.contextmanager
def environment(python: str, pair: str, keep: Path | None) -> Iterator[Path]:
    """Yield the Python of a new virtual environment with the package and the versions of a pair; then remove it."""
    folder = Path(tempfile.mkdtemp(prefix=f"torchonline-{pair}-", dir=keep))
    try:
        subprocess.run([python, "-m", "venv", folder], check=True)
        inside = folder / "bin" / "python"
        install = [
            inside,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--no-cache-dir",
            "--disable-pip-version-check",
        ]
        torch = f"torch=={pair.partition('-')[2]}"
        # In one go, so that pip finds one set of versions for all that pyproject.toml asks for.
        subprocess.run([*install, torch, *PAIRS[pair], "--editable", f"{ROOT}[test]"], check=True)
        yield inside
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def outcome(python: Path, workers: int, arguments: list[str]) -> dict[str, Any]:
    """Run the quick tier and return the versions, the counts and the names of the tests that failed."""
    one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            python,
            "-m",
            "pytest",
            "-m",
            "fast and not slow",
            "--ignore=tests/benchmarks",
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        command += [
            "--tb=short",
            f"--numprocesses={workers}",
            "--dist=worksteal",
            f"--junitxml={report}",
            *QUIET,
            *arguments,
        ]
        # Tests start many processes: what Python has compiled is kept, even if the environment says not to.
        subprocess.run(command, cwd=ROOT, env=os.environ | one_thread | {"PYTHONDONTWRITEBYTECODE": ""}, check=False)
        cases = list(ElementTree.parse(report).iter("testcase"))
    by_kind = {
        kind: [f"{case.get('classname')}::{case.get('name')}" for case in cases if case.find(kind) is not None]
        for kind in ("failure", "error", "skipped")
    }
    reasons: dict[str, int] = {}
    for why in (case.find("skipped") for case in cases):
        if why is not None:
            reasons[why.get("message", "")] = reasons.get(why.get("message", ""), 0) + 1
    bad = sorted({*by_kind["failure"], *by_kind["error"]})
    asked = subprocess.run([python, "-c", ASK], check=True, capture_output=True, text=True)
    return {
        "versions": json.loads(asked.stdout),
        "platform": f"{platform.system()} {platform.machine()}",
        "passed": len(cases) - len(bad) - len(by_kind["skipped"]),
        "skipped": len(by_kind["skipped"]),
        "reasons": reasons,
        "failed": bad,
        "only": arguments,
    }


def read() -> dict[str, Any]:
    """Return the outcomes so far, by pair."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def order(pair: str) -> list[list[int]]:
    """Return a key that sorts pairs by torch, then by Python."""
    python, _, torch = pair.partition("-")
    return [[int(part) for part in text.split(".")] for text in (torch, python)]


def extent(arguments: list[str]) -> str:
    """Return what was run, in a word that the page explains."""
    if not arguments:
        return "quick tier"
    return "part"


def table(results: dict[str, Any]) -> str:
    """Return the table of the page."""
    lines = ["| torch | Python | NumPy | Lightning | torchmetrics | platform | passed | failed | skipped | tests |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for pair in sorted(results, key=order):
        found = results[pair]
        versions, bad = found["versions"], len(found["failed"])
        cells = [versions[name] for name in ("torch", "python", "numpy", "pytorch-lightning", "torchmetrics")]
        cells += [found["platform"], found["passed"], bad, found["skipped"], extent(found["only"])]
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def page(text: str, results: dict[str, Any]) -> str:
    """Return the page with the table of these outcomes after its mark, up to the next empty line."""
    before, _, after = text.partition(MARK)
    rest = after[1:] if after.startswith("\n") else after.partition("\n\n")[2]
    return before + MARK + table(results) + "\n" + rest


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", nargs="*", choices=list(PAIRS), default=list(PAIRS), metavar="PAIR", help="such as 3.11-2.10.0"
    )
    parser.add_argument("--again", action="store_true", help="run pairs that have an outcome, too")
    parser.add_argument("--python", nargs="*", default=[], metavar="VERSION=PATH", help="where interpreters are")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="a folder in which environments stay")
    parser.add_argument("--page", action="store_true", help="write the page from the outcomes, and run nothing")
    parser.add_argument("--list", action="store_true", help="print the pairs as JSON, and run nothing")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --: such as tests/contract")
    options = parser.parse_args()
    if options.list:
        print(json.dumps(list(PAIRS)))
        return
    given = dict(item.split("=", 1) for item in options.python)
    missing, failed = [], []
    for pair in () if options.page else options.only:
        if not (options.again or options.arguments) and read().get(pair, {"only": True})["only"] == []:
            continue
        python = interpreter(pair.partition("-")[0], given)
        if python is None:
            missing.append(pair)
            continue
        print(f"{pair}: {python}", flush=True)
        with environment(python, pair, options.keep) as inside:
            found = outcome(inside, options.workers, options.arguments)
        print(
            f"{pair}: {found['passed']} passed, {len(found['failed'])} failed, {found['skipped']} skipped", flush=True
        )
        failed += [pair] if found["failed"] else []
        results = read() | {pair: found}
        RESULTS.write_text(json.dumps({name: results[name] for name in sorted(results, key=order)}, indent=1) + "\n")
    if PAGE.exists():
        PAGE.write_text(page(PAGE.read_text(), read()))
    if failed:
        sys.exit(f"tests failed with {', '.join(failed)}")
    if missing:
        sys.exit(f"no interpreter for {', '.join(missing)}: name one with --python VERSION=PATH")


if __name__ == "__main__":
    main()
