"""`torchonline fit` on a CSV file of a million rows, beside VW: processor time and memory.

    pip install ".[benchmarks,cli]"
    python examples/benchmarks/csv_speed.py    # a minute

20 numbers, one of three actions, a click. VW learns the same rows, written in its own format beforehand (`--cb 3` at its
defaults). The times are of whole processes: those of torchonline include the import of PyTorch and Lightning, whose share the
table has too.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas

VW = """
from vowpalwabbit import pyvw
learner = pyvw.Workspace("--cb 3 -d {path} --quiet")
learner.run_parser()
learner.finish()
"""


# A small process: a child's largest memory begins with that of its parent.
LAUNCHER = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def write(folder: Path, rows: int) -> None:
    """Write the log as CSV and in VW's format."""
    generator = np.random.default_rng(0)
    x, action = generator.normal(size=(rows, 20)).round(4), generator.integers(0, 3, rows)
    chance = 1.0 / (1.0 + np.exp(-(x * 0.3 * generator.normal(size=(3, 20))[action]).sum(1)))
    frame = pandas.DataFrame(x, columns=[f"x{i}" for i in range(20)])
    frame = frame.assign(arm=action, click=(generator.random(rows) < chance).astype(int), p=0.3333)
    frame.to_csv(folder / "log.csv", index=False)
    with open(folder / "log.vw", "w") as file:
        for row in frame.itertuples(index=False):
            numbers = " ".join(f"x{i}:{value}" for i, value in enumerate(row[:20]))
            file.write(f"{row.arm + 1}:{-row.click}:{row.p} | {numbers}\n")


def cost(words: list[str], folder: Path) -> tuple[float, float]:
    """Return the processor time of a command in seconds, and its largest memory in MB."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    seconds, memory = done.stdout.split()[-2:]
    return float(seconds), float(memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/csv_speed"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--smoke", action="store_true", help="1000 rows")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    write(options.output, 1000 if options.smoke else options.rows)
    roles = ["--data.action", "arm", "--data.reward", "click", "--data.probability", "p"]
    fit = [sys.executable, "-m", "torchonline", "fit", "--data.files", "log.csv", *roles, "--trainer.logger", "false"]
    commands = {
        "VW": [sys.executable, "-c", VW.format(path="log.vw")],
        "fit": fit,
        "imports alone": [sys.executable, "-c", "import torchonline.command_line.parser"],
    }
    cost(commands["VW"], options.output)  # so that all read a file that is in memory
    found = {name: cost(words, options.output) for name, words in commands.items()}
    print("| process | CPU, VW = 1 | memory, MB |\n|---|---|---|")
    for name, (seconds, memory) in found.items():
        print(f"| {name} | {seconds / found['VW'][0]:.1f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
