"""From a CSV file to a service, by the command line alone, with the time of each command.

The file is the log of the RAND Health Insurance Experiment (statsmodels), written as tables come: text, gaps, dates, amounts with
a currency, yes and no, and an id. A row is one person in one year. The action is whether care was free or its cost was shared.
The reward is whether the year was cheap: less than half of all years. Probabilities are counts within site and year.

    pip install ".[cli,examples,serving]"
    python examples/serving/from_csv_to_service.py [--output outputs/from_csv_to_service]    # a minute
    python examples/serving/from_csv_to_service.py --table visits.csv    # the file alone, for docs/from_log_to_service.md
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import statsmodels

HEALTH = ("excellent", "good", "fair", "poor")


def write_csv(path: Path, rows: int | None) -> None:
    """Write the log as a messy table."""
    source = Path(statsmodels.__file__).parent / "datasets" / "randhie" / "src" / "randhie.csv"
    found = pandas.read_csv(source)
    found = found.sample(len(found), random_state=0)[:rows]
    plan = np.where(found["coins"] == 0, "free", "shared")
    counts = found.assign(plan=plan).groupby(["site", "year", "plan"])["plan"].transform("size")
    probability = counts / found.groupby(["site", "year"])["plan"].transform("size")
    health = found[["hlthg", "hlthf", "hlthp"]].to_numpy() @ np.array([1, 2, 3])
    born = pandas.to_datetime("1976-01-01") - pandas.to_timedelta((365.25 * found["xage"]).round(), unit="D")
    table = pandas.DataFrame(
        {
            "person": [f"P{id:06d}-{year}" for id, year in zip(found["zper"], found["year"].astype(int), strict=True)],
            "born": born.dt.strftime("%d/%m/%Y"),
            "income": [f"${income:,.2f}" for income in found["income"]],
            "sex": np.where(found["female"] == 1, "female", "male"),
            "child": np.where(found["child"] == 1, "yes", "no"),
            "education": found["educdec"],
            "health": np.array(HEALTH)[health.astype(int)],
            "index": found["ghindx"],  # a quarter is missing
            "diseases": found["disea"].round(1),
            "limited": ["" if one != one else "yes" if one > 0 else "no" for one in found["physlm"]],
            "family": found["num"].astype(int),
            "plan": plan,
            "cheap": np.where(found["meddol"] < found["meddol"].median(), "yes", "no"),
            "probability": probability.round(6),
        }
    )
    table.to_csv(path, index=False)
    print(f"{path.name}: {len(table)} rows, {table.shape[1]} columns")


def run(folder: Path, *words: str) -> str:
    """Run a command of torchonline, print it with its output and its time, and return the output."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "torchonline", *words], cwd=folder, capture_output=True, text=True, check=True
    )
    print(f"\n$ python -m torchonline {' '.join(words)}\n{done.stdout.rstrip()}\n({time.perf_counter() - start:.0f} s)")
    return done.stdout


def ask(port: int, path: str, body: Any) -> Any:
    """Return the service's answer."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


@contextlib.contextmanager
def service(folder: Path) -> Iterator[int]:
    """Serve what was learnt, and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    start = time.perf_counter()
    words = [sys.executable, "-m", "torchonline", "serve", "--port", str(port)]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            while process.stdout is not None and "http://" not in (line := process.stdout.readline()):
                if not line:
                    raise RuntimeError("serve: expected an address, got the end of the process")
            print(f"\n$ python -m torchonline serve\n({time.perf_counter() - start:.0f} s until it answers)")
            yield port
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/from_csv_to_service"))
    parser.add_argument("--table", type=Path, help="write the CSV file here, and run nothing")
    parser.add_argument("--smoke", action="store_true", help="1500 rows, and no service")
    options = parser.parse_args()
    if options.table is not None:
        write_csv(options.table, 1500 if options.smoke else None)
        return
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "outputs", ignore_errors=True)  # of an earlier run
    write_csv(folder / "visits.csv", 1500 if options.smoke else None)
    roles = ["--data.action", "plan", "--data.reward", "cheap", "--data.probability", "probability"]
    run(folder, "fit", "--data.files", "visits.csv", *roles, "--data.part", "[0,0.8]")
    run(folder, "evaluate", "--data.part", "[0.8,1]")
    run(folder, "export", "--path", "plans.pt")
    if options.smoke:
        return
    with service(folder) as port:
        visitor = {"born": "24/12/1944", "sex": "female", "income": "$21,000", "health": "good", "index": None}
        answer = ask(port, "/decide", {"id": "visit 1", "context": visitor})
        print(answer)
        print(ask(port, "/reward", {"id": answer["id"], "value": 1}))


if __name__ == "__main__":
    main()
