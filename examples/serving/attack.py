"""Floods and kills: how long others wait, and whether a service comes back.

Three tables: the longest answer of /health for another client while requests of 1 MiB arrive, or connections that send half a
request; kills of `torchonline serve` by signal 9, after which it is started again at once; and kills of its learner.

    python examples/serving/attack.py            # about three minutes
    python examples/serving/attack.py --smoke    # one of each
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import torch
from client import Client
from fleet import Fleet, free_port, running
from settings import Settings

import torchonline
from torchonline.feedback import DecisionLog, load_snapshot

CONFIG = """
model:
  class_path: torchonline.models.NeuralLinearBandit
  init_args:
    head:
      class_path: torchonline.models.BanditHead
      init_args:
        encoder: torch.nn.Identity
        policy:
          class_path: torchonline.bandits.recommended.recommended_policy
          init_args: {dim: 2, actions: 2}
"""


async def longest_health(fleet: Fleet, attack: Any, seconds: float) -> float:
    """Return the longest wait of a client that asks for the health, in ms."""
    client, longest = Client(fleet.port), 0.0
    await client.get("/health")
    running_attack = asyncio.create_task(attack(fleet.port))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        status, _ = await client.get("/health")
        assert status == 200
        longest = max(longest, time.perf_counter() - start)
        await asyncio.sleep(0.002)
    running_attack.cancel()
    client.close()
    return 1e3 * longest


async def nothing(port: int) -> None:
    await asyncio.sleep(60.0)


def flood(body: bytes) -> Any:
    """Return an attack that posts a body again and again."""

    async def attack(port: int) -> None:
        client = Client(port)
        while True:
            try:
                status, _ = await client.post("/decide", body)
                assert 400 <= status < 500, status
            except (OSError, asyncio.IncompleteReadError):
                client.close()

    return attack


def halves(count: int) -> Any:
    """Return an attack of connections that send half a request."""

    async def attack(port: int) -> None:
        streams = []
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            streams.append(writer)
        await asyncio.sleep(60.0)

    return attack


def floods(seconds: float) -> None:
    dim = Settings().dim
    longest = Settings().largest_body
    attacks = {
        "none": nothing,
        "349,000 numbers, 1 MiB": flood(json.dumps({"context": [0] * 349_000}).encode()),
        "the longest body that is read": flood(b'{"context": [' + b"1," * ((longest - 20) // 2) + b"1]}"),
        "unknown names": flood(json.dumps({f"x{i}": 0 for i in range(350)}).encode()),
        "wrong numbers": flood(json.dumps({"context": ["x"] * dim}).encode()),
        "300 halves of requests": halves(300),
    }
    print("| attack | longest answer of /health, ms |\n|---|---|")
    for name, attack in attacks.items():
        with tempfile.TemporaryDirectory() as folder, running(Path(folder), replicas=1) as fleet:
            print(f"| {name} | {asyncio.run(longest_health(fleet, attack, seconds)):.0f} |", flush=True)


class Served:
    """`torchonline serve` as a process."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        config = folder / "config.yaml"
        config.write_text(CONFIG)
        words = ["serve", "--config", str(config), "--folder", str(folder / "serving"), "--port", str(self.port)]
        self.output = (folder / "output.txt").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torchonline", *words], stdout=self.output, stderr=self.output, cwd=folder
        )
        end = time.monotonic() + 120.0
        while not self.answers("/health"):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((folder / "output.txt").read_text()[-2000:])
            time.sleep(0.05)

    def answers(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.loads(answer.read())
        except OSError:
            return None

    def learner(self) -> int | None:
        """Return the process of the learner, a child of the service."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None


def wait_for(what: Any, seconds: float = 60.0) -> float:
    """Return after how many seconds a condition holds."""
    start = time.monotonic()
    while not what():
        if time.monotonic() > start + seconds:
            return float("nan")
        time.sleep(0.01)
    return time.monotonic() - start


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def play(service: Served, rounds: int) -> int:
    """Ask for decisions and tell their rewards; return how many were answered."""
    answered = 0
    for _ in range(rounds):
        decision = service.answers("/decide", {"context": [1.0, 2.0]})
        answered += decision is not None and service.answers("/reward", {"id": decision["id"], "value": 1}) is not None
    return answered


def kills(times: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gone, told = [], 0
        for _ in range(times):
            service = Served(folder)
            told += play(service, 20)
            learner = service.learner()
            assert learner is not None
            os.kill(service.process.pid, signal.SIGKILL)
            service.process.wait()
            gone.append(wait_for(lambda pid=learner: is_gone(pid)))
        service = Served(folder)
        print("\n| kills of serve | starts again | the learner was gone after, most, s |\n|---|---|---|")
        print(f"| {times} | {times} | {max(gone):.2f} |", flush=True)
        back = []
        for _ in range(times):
            learner = service.learner()
            assert learner is not None
            os.kill(learner, signal.SIGKILL)
            told += play(service, 20)  # decisions go on
            back.append(wait_for(lambda old=learner: service.learner() not in (None, old)))
        snapshot = folder / "serving" / "policy-v1.pt"
        log = DecisionLog(folder / "serving" / "decisions.db")
        policy = torchonline.models.BanditHead(torch.nn.Identity(), torchonline.bandit(2, actions=2))
        wait_for(lambda: snapshot.exists() and load_snapshot(snapshot, policy).position == told)
        service.process.terminate()
        service.process.wait()
        learnt = load_snapshot(snapshot, policy).learnt
        print(
            "\n| kills of the learner | starts again after, most, s | rewards told | in the log | learnt |\n|---|---|---|---|---|"
        )
        print(f"| {times} | {max(back):.1f} | {told} | {log.counts()['known']} | {learnt} |")
        log.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="one of each, to see that it runs")
    options = parser.parse_args()
    floods(1.0 if options.smoke else 10.0)
    kills(1 if options.smoke else 5)


if __name__ == "__main__":
    main()
