"""Load on the service: decisions a second, times to answer, feedback lag, and the state against the log replayed.

Sixteen clients ask for a decision, and send its reward at once. The script starts the service, sends as fast as the clients get
answers, and then at half of that rate. At the end it stops the service, replays the log with a fresh policy, and compares the
state bit for bit with that of the service's last snapshot. Clients, replicas, learner and disk share this machine.

    python examples/serving/load.py [--seconds 20] [--replicas 2] [--clients 16] [--database URL]
"""

import argparse
import asyncio
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from client import Client
from fleet import Fleet, folder_in, running
from settings import Settings

from torchonline.feedback import FeedbackLog, load_snapshot


async def visit(client: Client, number: int, end: float, pause: float, times: dict[str, list[float]]) -> None:
    """Play one client until the end: a decision, its reward, and a pause."""
    generator, settings = random.Random(number), Settings()
    due = time.perf_counter() + pause * generator.random()
    while time.perf_counter() < end:
        context = [generator.gauss(0.0, 1.0) for _ in range(settings.dim)]
        start = time.perf_counter()
        status, answer = await client.post("/decide", {"context": context})
        middle = time.perf_counter()
        if status != 200:
            raise RuntimeError(f"decide: {status} {answer}")
        # An action pays if its feature is above 0.
        value = float(generator.random() < (0.8 if context[answer["action"]] > 0.0 else 0.2))
        status, answer = await client.post("/reward", {"id": answer["id"], "value": value})
        if status != 200:
            raise RuntimeError(f"reward: {status} {answer}")
        times["decide"].append(middle - start)
        times["reward"].append(time.perf_counter() - middle)
        times["value"].append(value)
        if pause:
            due += pause
            await asyncio.sleep(max(0.0, due - time.perf_counter()))


async def watch(snapshot: Path, seen: list[tuple[float, int]]) -> None:
    """Note when which position was in the snapshot."""
    policy, last = Settings().make_policy(), 0.0
    while True:
        await asyncio.sleep(0.05)
        if snapshot.exists() and (changed := snapshot.stat().st_mtime) != last:
            last = changed
            found = load_snapshot(snapshot, policy)
            seen.append((found.time, found.position))


async def play(fleet: Fleet, clients: int, seconds: float, rate: float) -> dict[str, Any]:
    """Play all clients at a rate of decisions a second, or as fast as they get answers if it is 0."""
    times: dict[str, list[float]] = {"decide": [], "reward": [], "value": []}
    seen: list[tuple[float, int]] = []
    watcher = asyncio.create_task(watch(fleet.folder / "policy-v1.pt", seen))
    people = [Client(fleet.port) for _ in range(clients)]
    before, start = cpu_seconds(fleet), time.perf_counter()
    pause = clients / rate if rate else 0.0
    await asyncio.gather(*(visit(person, i, start + seconds, pause, times) for i, person in enumerate(people)))
    took = time.perf_counter() - start
    used = {name: (value - before[name]) / took for name, value in cpu_seconds(fleet).items()}
    await asyncio.sleep(2.0)  # the learner catches up
    watcher.cancel()
    for person in people:
        person.close()
    return {
        "rate": len(times["decide"]) / took,
        "times": times,
        "seen": seen,
        "cores": used,
        "since": time.time() - took - 2.0,
    }


def cpu_seconds(fleet: Fleet) -> dict[str, float]:
    """Return the processor time of each kind of process so far."""
    found = {"clients": sum(os.times()[:2])}
    for kind, processes in {"replicas": fleet.servers, "learner": [fleet.learner]}.items():
        found[kind] = 0.0
        for process in processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            found[kind] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def quantiles(values: list[float]) -> str:
    """Return median, 99th percentile and maximum in milliseconds."""
    ordered = torch.tensor(values, dtype=torch.float64).sort().values
    parts = [ordered[int(q * (len(ordered) - 1))].item() for q in (0.5, 0.99, 1.0)]
    return " | ".join(f"{1e3 * part:.1f}" for part in parts)


def lags(log: FeedbackLog, seen: list[tuple[float, int]], since: float) -> list[float]:
    """Return the seconds from each reward to the first snapshot that has learnt it."""
    found, after = [], 0
    while entries := log.read(after, 5000):
        after = entries[-1].position
        for entry in entries:
            saved = next((moment for moment, position in seen if position >= entry.position), None)
            if entry.known_at >= since and saved is not None:
                found.append(saved - entry.known_at)
    return found


def replayed(log: FeedbackLog) -> torch.nn.Module:
    """Return a policy that has learnt the whole log, one round after another."""
    policy, after = Settings().make_policy(), 0
    while entries := log.read(after, 5000):
        after = entries[-1].position
        for entry in entries:
            policy.step(entry.inputs, torch.tensor(entry.action), torch.tensor(entry.reward, dtype=torch.float64))
    return policy


def is_replayed(policy: torch.nn.Module, log: FeedbackLog) -> bool:
    """Return whether a policy's state is, bit for bit, that of one which has learnt the whole log."""
    theirs = replayed(log).state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in policy.state_dict().items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--database", default="", help="URL of a PostgreSQL log; a SQLite file if empty")
    parser.add_argument("--output", type=Path, default=Path("outputs/serving"), help="folder for the files of the run")
    parser.add_argument("--smoke", action="store_true", help="two seconds")
    options = parser.parse_args()
    seconds = 2.0 if options.smoke else options.seconds
    folder = folder_in(options.output)
    print(f"{options.clients} clients, {options.replicas} replicas, one learner, {os.cpu_count()} cores\n")
    print(
        "| load | decisions a second | decide: p50 | p99 | most, ms | reward: p50 | p99 | most, ms | lag: p50 | p99 | most, ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    found = {}
    with running(folder, options.replicas, SERVING_DATABASE=options.database) as fleet:
        log = Settings(folder=folder, database=options.database).open_log()
        asyncio.run(play(fleet, options.clients, min(2.0, seconds), 0.0))  # warm
        for name in ("full", "half"):
            rate = 0.5 * found["full"]["rate"] if name == "half" else 0.0
            found[name] = run = asyncio.run(play(fleet, options.clients, seconds, rate))
            lag = quantiles(lags(log, run["seen"], run["since"]))
            times = run["times"]
            print(
                f"| {name} | {run['rate']:.0f} | {quantiles(times['decide'])} | {quantiles(times['reward'])} | {lag} |"
            )
    print("\n| cores in use | clients | replicas | learner |\n|---|---|---|---|")
    for name, run in found.items():
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in run["cores"].values()) + " |")
    policy = Settings().make_policy()
    snapshot = load_snapshot(folder / "policy-v1.pt", policy)
    counts = log.counts()
    print(
        f"\n{counts['decisions']} decisions, {counts['known']} rewards, {snapshot.learnt} learnt, {snapshot.refused} refused"
    )
    print(f"state equal to the log replayed, bit for bit: {is_replayed(policy, log)}")
    rewards = torch.tensor([value for run in found.values() for value in run["times"]["value"]])
    first, last = rewards[: len(rewards) // 10].mean(), rewards[-len(rewards) // 2 :].mean()
    print(f"mean reward: {first:.3f} in the first tenth, {last:.3f} in the second half")
    log.close()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
