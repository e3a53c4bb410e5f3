"""What a decision and its reward cost: a bare FastAPI application beside the parts of the service.

    python examples/serving/service_speed.py [--seconds 1] [--blocks 10] [--clients 16]

Four servers, each one process without a learner, are played in turns. "FastAPI alone" takes and gives the same JSON, and
checks only types. "requests" is the service with a policy that always plays action 0 and a log that keeps nothing, "and the
log" has the log on the disk, and "and the policy" is the whole replica. The time is that of one client process with a server,
the processor time that of the server. Clients and servers share this machine.
"""

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import torch
from client import Client
from fastapi import FastAPI
from fleet import HERE, folder_in, free_port
from load import visit
from pydantic import BaseModel, Field
from settings import Settings
from torch import Tensor, nn

from torchonline.serving import application


class DecideBody(BaseModel):
    """A request for a decision."""

    context: Annotated[list[float], Field(min_length=16, max_length=16)]


class RewardBody(BaseModel):
    """A request with a reward."""

    id: str
    value: float


def bare() -> FastAPI:
    """Return an application that answers the same for every request."""
    app = FastAPI()

    @app.post("/decide")
    async def decide(body: DecideBody) -> dict[str, Any]:
        return {"id": 32 * "0", "action": 1, "probability": 0.95}

    @app.post("/reward")
    async def reward(body: RewardBody) -> dict[str, Any]:
        return {"outcome": "joined"}

    return app


class FirstAction(nn.Module):
    """Policy that always plays action 0."""

    def select_with_probability(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(inputs), dtype=torch.int64), torch.ones(len(inputs))

    def with_ids(self) -> None:
        """Say that the actions have no ids."""


class NoLog:
    """Log that keeps nothing."""

    def write(self, decisions: list[Any], rewards: list[Any]) -> tuple[list[Any], list[str]]:
        return decisions, ["joined"] * len(rewards)

    def close(self) -> None:
        """Do nothing."""


class FirstActionSettings(Settings):
    """Settings of a service that always plays action 0."""

    def make_policy(self) -> Any:
        return FirstAction()


class RequestSettings(FirstActionSettings):
    """Settings of a service that keeps nothing."""

    def open_log(self) -> Any:
        return NoLog()


def requests() -> Any:
    return application(RequestSettings())


def with_log() -> Any:
    return application(FirstActionSettings())


def whole() -> Any:
    return application(Settings())


NAMES = {"bare": "FastAPI alone", "requests": "requests", "with_log": "and the log", "whole": "and the policy"}


class Server:
    """A process of uvicorn with one of the applications."""

    def __init__(self, name: str, folder: Path) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "uvicorn", f"service_speed:{name}", "--factory", "--no-access-log"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment |= {"SERVING_FOLDER": str(folder / name), "PYTHONPATH": str(HERE)}
        self.process = subprocess.Popen(
            [*command, "--log-level", "warning", "--port", str(self.port)], cwd=HERE, env=environment
        )
        self.seconds: list[float] = []
        self.processor: list[float] = []

    async def wait_until_ready(self) -> None:
        """Wait until the port is open."""
        while self.process.poll() is None:
            try:
                (await asyncio.open_connection("127.0.0.1", self.port))[1].close()
                return
            except OSError:
                await asyncio.sleep(0.05)
        raise RuntimeError(f"service: ended with code {self.process.returncode}")

    async def play(self, clients: int, seconds: float) -> None:
        """Play clients for a while, and note the seconds and the processor seconds of a pair of requests."""
        people, times = [Client(self.port) for _ in range(clients)], {"decide": [], "reward": [], "value": []}
        start, used = time.perf_counter(), self._processor_seconds()
        await asyncio.gather(*(visit(one, i, start + seconds, 0.0, times) for i, one in enumerate(people)))
        pairs = len(times["decide"])
        self.seconds.append((time.perf_counter() - start) / pairs)
        self.processor.append((self._processor_seconds() - used) / pairs)
        for one in people:
            one.close()

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


async def measure(servers: dict[str, Server], blocks: int, clients: int, seconds: float) -> None:
    """Play all servers in turns. The first turn warms them up and does not count."""
    for server in servers.values():
        await server.wait_until_ready()
        await server.play(clients, seconds)
        server.seconds.clear()
        server.processor.clear()
    for _ in range(blocks):
        for server in servers.values():
            await server.play(clients, seconds)


def cell(values: list[float], base: list[float], part: Any) -> str:
    """Return microseconds, and the ratio to those of the first server."""
    return f"{1e6 * part(values):.0f} ({part(values) / part(base):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a block")
    parser.add_argument("--blocks", type=int, default=10, help="for each server")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--output", type=Path, default=Path("outputs/serving"), help="folder for the files of the run")
    parser.add_argument("--smoke", action="store_true", help="one block of a fifth of a second")
    options = parser.parse_args()
    blocks, seconds = (1, 0.2) if options.smoke else (options.blocks, options.seconds)
    folder = folder_in(options.output)
    servers = {name: Server(name, folder) for name in NAMES}
    try:
        asyncio.run(measure(servers, blocks, options.clients, seconds))
    finally:
        for server in servers.values():
            server.stop()
        shutil.rmtree(folder)
    print(f"Microseconds of a decision and its reward (ratio), {options.clients} clients\n")
    print("| server | time: least | median | processor time: least | median |\n|---|---|---|---|---|")
    base = servers["bare"]
    for name, server in servers.items():
        rows = [(server.seconds, base.seconds), (server.processor, base.processor)]
        found = [cell(*row, part) for row in rows for part in (min, statistics.median)]
        print(f"| {NAMES[name]} | {' | '.join(found)} |")


if __name__ == "__main__":
    main()
