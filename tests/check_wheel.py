"""Build the wheel, install it far from the checkout, and check what is there: run by ``make wheel``."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = {
    "torchonline/__init__.py",
    "torchonline/py.typed",
    "torchonline/core/papers.bib",
    "torchonline/regression/heavy_tail.py",
    "torchonline/report.html.j2",
    "torchonline/privacy/learners/frank_wolfe.py",
    "torchonline/environments/linear.py",
    "torchonline/privacy/mechanisms/blt.py",
    "torchonline/models/bandit_head.py",
    "torchonline/callbacks/regret.py",
}
USE = """
import torch, torchonline, torchonline.models, torchonline.callbacks
policy = torchonline.AnytimeHeavyTailUCB(2)
arms = torch.eye(2)
policy.step(arms, policy.select(arms), 1.0)
assert torchonline.__file__.startswith({folder!r}), torchonline.__file__
assert policy.estimator.rounds == 1
policy.cite()
assert torchonline.core.compiled.is_on is {is_on}
"""


def run(*command: str, cwd: str, **environment: str) -> None:
    """Run a command, or stop with what it printed."""
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def check(is_on: bool, **environment: str) -> None:
    """Check the wheel that is built with these variables, or exit with what is wrong.

    ``is_on`` is whether it has the compiled core.
    """
    with tempfile.TemporaryDirectory() as folder:
        # A folder of its own: what another build has compiled would be used again.
        Path(folder, "folders.cfg").write_text(f"[build]\nbuild_base = {folder}/build\n")
        environment["DIST_EXTRA_CONFIG"] = f"{folder}/folders.cfg"
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT), cwd=folder, **environment)
        (wheel,) = Path(folder).glob("*.whl")
        names = set(zipfile.ZipFile(wheel).namelist())
        top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
        if top != {"torchonline"}:
            sys.exit(f"the wheel's top-level names are {sorted(top)}, expected only torchonline")
        if missing := NEEDED - names:
            sys.exit(f"the wheel lacks {sorted(missing)}")
        sources = {p.relative_to(ROOT).as_posix() for p in (ROOT / "torchonline").rglob("*.py")}
        sources |= {
            f"torchonline/{p.relative_to(ROOT).as_posix()}"
            for d in ("models", "callbacks")
            for p in (ROOT / d).rglob("*.py")
        }
        if missing := sources - names:
            sys.exit(f"the wheel lacks {sorted(missing)}")
        target = f"{folder}/site"
        run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", target, str(wheel), cwd=folder)
        use = f"import sys; sys.path.insert(0, {target!r})\n{USE.format(folder=target, is_on=is_on)}"
        run(sys.executable, "-c", use, cwd=folder)
        print(f"{wheel.name}: top-level names {sorted(top)}, {len(names)} files, works where it is installed")


def main() -> None:
    """Check the wheels with the compiled core, without a compiler, and without the core on purpose."""
    check(True)
    check(False, CC="false")
    check(False, TORCHONLINE_COMPILED="0")


if __name__ == "__main__":
    main()
