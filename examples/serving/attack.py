"""Attack the service: large lists, slow headers and bodies, many connections; how long does another client's /health take?

A replica runs in a process of its own, with 256 file descriptors and a policy of ``--dim`` features. During an attack
another client asks for ``/health`` fifty times a second, each time on a new connection.

    python examples/serving/attack.py [--seconds 5] [--dim 16]
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from client import Client
from fleet import HERE, folder_in, free_port

# A body of 1 MiB with 349,000 items, of which none is a number.
ITEMS = 349_000
LISTS = b'{"context": [' + b",".join([b'""'] * ITEMS) + b"]}"
NESTED = b'{"context": ' + b"[" * 500_000 + b"]" * 500_000 + b"}"
CONNECTIONS = 300


@contextlib.contextmanager
def replica(folder: Path, dim: int, protocol: str) -> Iterator[int]:
    """Run a replica that has 256 file descriptors, and give its port."""
    port = free_port()
    command = f"ulimit -n 256; exec {sys.executable} -m uvicorn app:create_app --factory --no-access-log --port {port}"
    command += f" --timeout-graceful-shutdown 1 --log-level critical --http {protocol}"
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    own = {"PYTHONPATH": paths, "SERVING_FOLDER": str(folder), "SERVING_DIM": str(dim), "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(["bash", "-c", command], cwd=HERE, env={**os.environ, **own}, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


async def is_up(port: int) -> None:
    """Wait until the service answers."""
    async with asyncio.timeout(120.0):
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await Client(port).get("/health")
                return
            await asyncio.sleep(0.1)


async def health(port: int, seconds: float) -> tuple[list[float], int]:
    """Ask for /health on new connections, and return the times in milliseconds and the number of failures."""
    times, failed, end = list[float](), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        start, client = time.monotonic(), Client(port)
        try:
            async with asyncio.timeout(10.0):
                failed += (await client.get("/health"))[0] != 200
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            failed += 1
        times.append(1000.0 * (time.monotonic() - start))
        client.close()
        await asyncio.sleep(0.02)
    return times, failed


async def post(port: int, body: bytes, answers: dict[str, int]) -> None:
    """Send a body again and again."""
    while True:
        client = Client(port)
        try:
            status = str((await client.post("/decide", body))[0])
        except (OSError, asyncio.IncompleteReadError):
            status = "closed"
        client.close()
        answers[status] = answers.get(status, 0) + 1


async def trickle(port: int, start: bytes, answers: dict[str, int]) -> None:
    """Hold a connection by one byte a second."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(OSError):
                writer.write(start)
                while not reader.at_eof():
                    writer.write(b"a")
                    await writer.drain()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1.0):
                            if not await reader.read(1000):
                                break
            writer.close()
            answers["closed"] = answers.get("closed", 0) + 1
        await asyncio.sleep(0.1)


HEAD = b"POST /decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
Attack = Callable[[int, dict[str, int]], list[Awaitable[None]]]
ATTACKS: dict[str, Attack] = {
    "none": lambda port, answers: [],
    "1 MiB, 349,000 items": lambda port, answers: [post(port, LISTS, answers)],
    "1 MiB, nested lists": lambda port, answers: [post(port, NESTED, answers)],
    "unknown names": lambda port, answers: [post(port, json.dumps({str(i): 1 for i in range(1500)}).encode(), answers)],
    "300 slow headers": lambda port, answers: [trickle(port, HEAD + b"X: ", answers) for _ in range(CONNECTIONS)],
    "300 slow bodies": lambda port, answers: [
        trickle(port, HEAD + b'Content-Length: 9000\r\n\r\n{"', answers) for _ in range(CONNECTIONS)
    ],
}


async def measure(port: int, attack: Attack, seconds: float) -> str:
    """Run an attack, and return a table's cells."""
    await is_up(port)
    answers: dict[str, int] = {}
    tasks = [asyncio.ensure_future(one) for one in attack(port, answers)]
    await asyncio.sleep(0.5)
    times, failed = await health(port, seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    said = ", ".join(f"{status}: {count} times" for status, count in sorted(answers.items())) or "none"
    return f"{len(times)} | {failed} | {sorted(times)[len(times) // 2]:.1f} | {max(times):.1f} | {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each attack")
    parser.add_argument("--dim", type=int, default=16, help="features; a large one lets a body of 1 MiB in")
    parser.add_argument(
        "--http", default="torchonline.serving.protocol:LimitedProtocol", help="protocol; auto is uvicorn's own"
    )
    parser.add_argument("--output", type=Path, default=Path("outputs/serving"), help="folder for the files of the run")
    parser.add_argument("--smoke", action="store_true", help="half a second of each attack")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print("| attack | /health asked | failed | p50, ms | most, ms | the attacker got |\n|---|---|---|---|---|---|")
    folder = folder_in(options.output)
    try:
        for name, attack in ATTACKS.items():
            with replica(folder, options.dim, options.http) as port:
                seconds = 0.5 if options.smoke else options.seconds
                print(f"| {name} | {asyncio.run(measure(port, attack, seconds))} |", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
