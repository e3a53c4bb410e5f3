"""Pages of the site with every table of the papers' experiments and of the benchmarks."""

import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results"
FOLDERS = {"papers": FOLDER, "benchmarks": FOLDER / "benchmarks"}


def write(app: Any) -> None:
    """Write docs/results from the saved results, in other processes: the scripts' modules have names of one word."""
    for name, folder in FOLDERS.items():
        command = [sys.executable, str(ROOT / "examples" / name / "pages.py"), "--results", str(folder)]
        subprocess.run(command, check=True)
