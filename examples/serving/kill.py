"""Kill the service's processes at random under load, fill its disk, and look for what is lost.

Sixteen clients play without a pause. Each call has an id and is repeated until it is answered. Meanwhile the learner or a replica
is killed with signal 9, again and again, and started anew. At the end everything that a client was told must be in the log,
once, and the learner's state must be, bit for bit, that of a policy which learns the whole log in one go.

    python examples/serving/kill.py [--kills 20] [--database URL]

The disk is filled where the script may mount a small file system, that is, as root on Linux.
"""

import argparse
import asyncio
import random
import shutil
import subprocess
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from client import Client, patiently
from fleet import Fleet, folder_in, running
from load import is_replayed
from settings import Settings

from torchonline.feedback import FeedbackLog, follow

CLIENTS = 16
SMALL, LARGE = "1500k", "64m"
# Looks at the disk, ten a second, until it must be full.
LOOKS = 400


class Told:
    """What the clients have been told."""

    def __init__(self) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.actions: dict[str, int] = {}
        self.rewards: dict[str, float] = {}
        self.statuses: dict[int, int] = {}
        self.stop = False


async def play(client: Client, number: int, told: Told) -> None:
    """Play one client, which repeats each call until it is answered."""
    generator, settings, i = random.Random(number), Settings(), 0
    while not told.stop:
        i += 1
        name = f"{told.run}/{number}/{i}"
        context = [generator.gauss(0.0, 1.0) for _ in range(settings.dim)]
        status, answer = await patiently(client, "/decide", {"id": name, "context": context})
        told.statuses[status] = told.statuses.get(status, 0) + 1
        if status != 200:
            await asyncio.sleep(0.02)
            continue
        told.actions[name] = answer["action"]
        value = float(generator.random() < 0.5)
        status, answer = await patiently(client, "/reward", {"id": name, "value": value})
        told.statuses[status] = told.statuses.get(status, 0) + 1
        if status == 200:
            told.rewards[name] = value
            # A repeated call finds the reward of the first.
            if answer["outcome"] not in ("joined", "duplicate"):
                raise RuntimeError(f"reward: {answer}")


async def while_playing(fleet: Fleet, trouble: Callable[[], Awaitable[None]]) -> Told:
    """Play all clients while there is trouble, and a little longer."""
    told = Told()
    people = [Client(fleet.port) for _ in range(CLIENTS)]
    tasks = [asyncio.create_task(play(person, i, told)) for i, person in enumerate(people)]
    await trouble()
    await asyncio.sleep(1.0)
    told.stop = True
    await asyncio.gather(*tasks)
    for person in people:
        person.close()
    return told


async def kill_learner(fleet: Fleet, generator: random.Random) -> None:
    """Kill the learner at a random time, in the middle of a save too, and start another."""
    await asyncio.sleep(generator.uniform(0.2, 4.0))
    fleet.learner.kill()
    fleet.learner.wait()
    fleet.learner = fleet.start_learner()


async def kill_replica(fleet: Fleet, generator: random.Random) -> None:
    """Kill a replica in the middle of its answers, and start another."""
    await asyncio.sleep(generator.uniform(0.2, 2.0))
    number = generator.randrange(len(fleet.servers))
    fleet.servers[number].kill()
    fleet.servers[number].wait()
    fleet.servers[number] = fleet.start_replica()


async def fill_disk(folder: Path) -> None:
    """Wait until the disk is full, then make room."""
    for _ in range(LOOKS):
        await asyncio.sleep(0.1)
        if shutil.disk_usage(folder).free < 4096 * 8:
            break
    await asyncio.sleep(2.0)
    subprocess.run(["mount", "-o", f"remount,size={LARGE}", str(folder)], check=True)


def verdict(log: FeedbackLog, told: Told, snapshot: Path) -> str:
    """Return a table's cells: what was told, lost or joined twice, and whether the bits are equal."""
    stored = {decision.id: decision.action for decision in log.decisions(limit=10**7)}
    known = [(entry.id, entry.reward) for entry in log.read(limit=10**7)]
    lost = sum(stored.get(name) != action for name, action in told.actions.items())
    rewards = dict(known)
    lost += sum(rewards.get(name) != value for name, value in told.rewards.items())
    twice = len(known) - len(rewards)
    policy = Settings().make_policy()
    found = follow(policy, log, snapshot, encoder=Settings().encoder)  # as the next learner does
    lost += len(known) - found.learnt
    refused = sum(count for status, count in told.statuses.items() if status != 200)
    same = "yes" if is_replayed(policy, log) else "NO"
    return f"{len(told.actions)} | {len(told.rewards)} | {refused} | {lost} | {twice} | {same}"


def run(name: str, kills: int, place: Path, database: str = "", seed: int = 0) -> str:
    """Play one kind of trouble, and return its verdict."""
    folder, generator = folder_in(place), random.Random(seed)
    is_small = name == "full disk"
    if is_small:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)], check=True)
    try:
        with running(folder, 2, SERVING_DATABASE=database) as fleet:

            async def trouble() -> None:
                if is_small:
                    await fill_disk(folder)
                    return
                kill = kill_learner if name == "learner" else kill_replica
                for _ in range(kills):
                    await kill(fleet, generator)

            told = asyncio.run(while_playing(fleet, trouble))
        with Settings(folder=folder, database=database).open_log() as log:
            return verdict(log, told, folder / "policy-v1.pt")
    finally:
        if is_small:
            subprocess.run(["umount", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of the learner, and of replicas")
    parser.add_argument("--database", default="", help="URL of a PostgreSQL log; a SQLite file if empty")
    parser.add_argument("--output", type=Path, default=Path("outputs/serving"), help="folder for the files of the run")
    parser.add_argument("--smoke", action="store_true", help="one kill of each kind")
    options = parser.parse_args()
    kills = 1 if options.smoke else options.kills
    print(
        "| trouble | decisions told | rewards told | refused | lost | twice | bits equal |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name in ("learner", "replica"):
        print(f"| {name}, {kills} kills | {run(name, kills, options.output, options.database)} |", flush=True)
    if not options.smoke and not options.database:
        try:
            print(f"| full disk | {run('full disk', 1, options.output)} |")
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"full disk: not tried, {error}")


if __name__ == "__main__":
    main()
