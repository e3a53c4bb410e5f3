"""What durability costs: decisions logged a second, by how the disk is waited for and how many call at a time.

    python examples/serving/log_speed.py [--seconds 2] [--database URL]

With ``synchronous="full"`` each transaction waits until the disk has it. Calls of threads that wait share a transaction, and so
does a batch. The ratios are to one thread that waits alone, in the same run; the disk decides the rest.
"""

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from fleet import folder_in

from torchonline.feedback import Decision, DecisionLog, FeedbackLog, SQLDecisionLog

CONTEXT = torch.ones(16, dtype=torch.float64)
BATCH = 256


def rate(log: FeedbackLog, seconds: float, threads: int, batch: int) -> float:
    """Return the decisions that threads log in a second, one or a batch in a call."""
    counts, end = [0] * threads, time.perf_counter() + seconds

    def call(number: int) -> None:
        while time.perf_counter() < end:
            first = counts[number]
            log.decide_many(
                [Decision(f"{threads}/{batch}/{number}/{first + i}", CONTEXT, 0, 1.0, time=1.0) for i in range(batch)]
            )
            counts[number] += batch

    start = time.perf_counter()
    workers = [threading.Thread(target=call, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each cell")
    parser.add_argument("--database", default="", help="URL of a PostgreSQL log, besides SQLite")
    parser.add_argument("--output", type=Path, default=Path("outputs/serving"), help="folder for the files of the run")
    parser.add_argument("--smoke", action="store_true", help="a twentieth of a second for each cell")
    options = parser.parse_args()
    seconds = 0.05 if options.smoke else options.seconds
    folder = folder_in(options.output)
    logs: dict[str, Callable[[], FeedbackLog]] = {
        "SQLite, full": lambda: DecisionLog(folder / "full.db"),
        "SQLite, normal": lambda: DecisionLog(folder / "normal.db", synchronous="normal"),
    }
    if options.database:
        logs["PostgreSQL"] = lambda: SQLDecisionLog(options.database)
    print(f"| log | one thread | 16 threads | one thread, {BATCH} in a call |\n|---|---|---|---|")
    base = 0.0
    for name, make in logs.items():
        with make() as log:
            found = [rate(log, seconds, threads, batch) for threads, batch in ((1, 1), (16, 1), (1, BATCH))]
        base = base or found[0]
        print(f"| {name} | " + " | ".join(f"{value:.0f} ({value / base:.1f})" for value in found) + " |")


if __name__ == "__main__":
    main()
