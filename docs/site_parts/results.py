"""Pages of the site with every table of the papers' experiments and of the benchmarks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results"
FOLDERS = {"papers": FOLDER, "benchmarks": FOLDER / "benchmarks"}


def write(app: Any) -> None:
    """Write docs/results from the saved results, made in other processes: the scripts' modules have names of one word."""
    for name, folder in FOLDERS.items():
        command = [sys.executable, str(ROOT / "examples" / name / "pages.py"), "--results"]
        pages = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        update(folder, json.loads(pages))


def update(folder: Path, pages: dict[str, str]) -> None:
    """Write pages into a folder, where they have changed, and remove others. The page ``index`` gets a table of contents."""
    folder.mkdir(parents=True, exist_ok=True)
    names = "\n".join(name for name in pages if name != "index")
    contents = f"\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    made = {folder / f"{name}.md": text + contents if name == "index" else text for name, text in pages.items()}
    for path in set(folder.glob("*.md")) - set(made):
        path.unlink()
    for path, text in made.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
