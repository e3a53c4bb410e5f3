"""Pages of the site with every table of the papers' experiments."""

import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results"


def write(app: Any) -> None:
    """Write docs/results from the saved results, in another process: the scripts' modules have names of one word."""
    command = [sys.executable, str(ROOT / "examples" / "papers" / "pages.py"), "--results", str(FOLDER)]
    subprocess.run(command, check=True)
