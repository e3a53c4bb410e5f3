"""Kill learners, savers and writers at random, and look at what is left.

    python -m tests.feedback.kills KIND FOLDER [KILLS] [SEED]

Processes are forked from this one, which has imported everything and has one thread. The last line printed is a dictionary.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.feedback.logs import ARMS, fill, learnt_from
from torchonline import DPHDB, OFUL
from torchonline.feedback import DecisionLog, FeedbackLog, Follower, follow, load_snapshot


def forked(work: Callable[[], None]) -> int:
    """Run a function in a child process, and return the child's number."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(f"child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def killed(child: int, after: float | None) -> bool:
    """Kill a child after some seconds, or wait until it kills itself, and return whether it was killed."""
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("child: failed")
    return os.WIFSIGNALED(status)


def same_bits(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def kill_learners(folder: Path, kills: int, chance: random.Random, blocks: bool = False) -> dict[str, Any]:
    """Kill a learner that follows a growing log."""
    log, path = DecisionLog(folder / "log.db", window=50.0), folder / "policy.pt"
    alive = positions = 0

    def learn() -> None:
        policy = OFUL(2)
        follow(policy, DecisionLog(folder / "log.db"), path, every=0.004, poll=0.001, stop=lambda: False, blocks=blocks)

    for number in range(kills):
        log.close()  # no connection crosses a fork
        child = forked(learn)
        fill(log, 30, seed=number, start=30 * number)
        alive += killed(child, chance.uniform(0.0, 0.06))
        positions += path.exists()
    policy, whole = OFUL(2), OFUL(2)
    snapshot = follow(policy, log, path, blocks=blocks)
    if blocks:  # the same blocks, from the start
        follow(whole, log, folder / "whole.pt", blocks=True)
    expected = whole.state_dict() if blocks else learnt_from(log)
    return outcome(log, snapshot.learnt, policy.estimator.rounds) | {
        "killed": alive,
        "bits equal": same_bits(policy.state_dict(), expected),
        "snapshots found": positions,
    }


def kill_savers(folder: Path, kills: int, chance: random.Random) -> dict[str, Any]:
    """Kill a learner in the middle of a save: at a random byte, before or after the rename."""
    log, path = DecisionLog(folder / "log.db", window=50.0), folder / "policy.pt"
    alive = torn = 0

    def save(stage: str, part: float) -> None:
        die = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
        replace, fsync = os.replace, os.fsync

        def half_written(file: int) -> None:
            os.truncate(file, int(part * os.fstat(file).st_size))  # what a crash may leave
            fsync(file)
            die()

        if stage == "write":
            os.fsync = half_written
        elif stage == "before":
            os.replace = lambda *paths: die()
        else:
            os.replace = lambda *paths: (replace(*paths), die())
        with Follower(OFUL(2), DecisionLog(folder / "log.db"), path) as follower:
            follower.advance(1 + int(part * 40))
            follower.save()

    for number in range(kills):
        fill(log, 30, seed=number, start=30 * number)
        log.close()
        stage, part = chance.choice(["write", "before", "after"]), chance.random()
        alive += killed(forked(lambda stage=stage, part=part: save(stage, part)), None)  # type: ignore[misc]
        torn += path.with_name("policy.pt.new").exists()
        if path.exists():
            load_snapshot(path, OFUL(2))
    policy = OFUL(2)
    snapshot = follow(policy, log, path)
    return outcome(log, snapshot.learnt, policy.estimator.rounds) | {
        "killed": alive,
        "bits equal": same_bits(policy.state_dict(), learnt_from(log)),
        "half-written files left": torn,
    }


def kill_writers(folder: Path, kills: int, chance: random.Random) -> dict[str, Any]:
    """Kill processes that log decisions and rewards, and compare with what they were told was stored."""
    log = DecisionLog(folder / "log.db")
    alive, told = 0, []

    def serve(number: int, pipe: int) -> None:
        own = DecisionLog(folder / "log.db")
        for i in range(100_000):
            own.decide(f"{number}/{i}", ARMS, i % 3, 1 / 3)
            os.write(pipe, f"d {number}/{i}\n".encode())
            own.reward(f"{number}/{i}", float(i))
            os.write(pipe, f"r {number}/{i}\n".encode())

    for number in range(kills):
        log.close()
        output, pipe = os.pipe()
        child = forked(lambda number=number, pipe=pipe: serve(number, pipe))  # type: ignore[misc]
        os.close(pipe)
        alive += killed(child, chance.uniform(0.02, 0.1))
        with os.fdopen(output) as lines:
            told += lines.read().split("\n")[:-1]
    decided = {decision.id for decision in log.decisions(limit=10**6)}
    known = [entry.id for entry in log.read(limit=10**6)]
    policy = OFUL(2)
    snapshot = follow(policy, log, folder / "policy.pt")
    return outcome(log, snapshot.learnt, policy.estimator.rounds) | {
        "killed": alive,
        "stored calls": len(told),
        "stored calls lost": sum(line[2:] not in (decided if line[0] == "d" else known) for line in told),
        "joined twice": len(known) - len(set(known)),
        "bits equal": same_bits(policy.state_dict(), learnt_from(log)),
    }


def kill_private(folder: Path, kills: int, chance: random.Random) -> dict[str, Any]:
    """Kill a private learner: it goes on with fresh noise, and counts each start as a run."""
    log, path = DecisionLog(folder / "log.db", window=50.0), folder / "policy.pt"
    alive = runs = 0

    def learner() -> DPHDB:
        return DPHDB(2, arms=3, horizon=30 * kills, warmup=1, epsilon=1.0, delta=1e-6)

    def learn() -> None:
        own = DecisionLog(folder / "log.db")
        follow(learner(), own, path, every=0.004, poll=0.001, stop=lambda: False)

    for number in range(kills):
        first = 30 * number
        log.decide_many([decision(i) for i in range(first, first + 30)])
        log.reward_many([(f"{i}", 0.5) for i in range(first, first + 30)])
        log.close()
        runs = max(runs, runs_of(path))
        alive += killed(forked(learn), chance.uniform(0.0, 0.4))
    before, policy = runs_of(path), learner()
    snapshot = follow(policy, log, path)
    return outcome(log, snapshot.learnt, policy.rounds) | {
        "killed": alive,
        "runs never fall": before >= runs,
        "runs booked": int(policy.continuations),
        "last start booked": int(policy.continuations) == before + (before > 0),
    }


def runs_of(path: Path) -> int:
    """Return how many runs a snapshot has booked; 0 without a snapshot."""
    return int(torch.load(path)["state"]["continuations"]) if path.exists() else 0


def decision(number: int) -> Any:
    from torchonline.feedback import Decision

    context = torch.tensor([0.5, 0.5], dtype=torch.float64)
    return Decision(f"{number}", context, number % 3, 1 / 3, time=float(number))


def outcome(log: FeedbackLog, learnt: int, rounds: torch.Tensor) -> dict[str, Any]:
    """Return how many rounds were lost or learnt twice."""
    known = log.counts()["known"]
    return {"known": known, "lost": max(0, known - learnt), "learnt twice": max(0, int(rounds) - known)}


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "learner": kill_learners,
    "blocks": lambda *arguments: kill_learners(*arguments, blocks=True),
    "save": kill_savers,
    "writer": kill_writers,
    "private": kill_private,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, place, kill_count, first_seed = [*sys.argv[1:], "20", "0"][:4]
    print(KINDS[kind](Path(place), int(kill_count), random.Random(int(first_seed))))
