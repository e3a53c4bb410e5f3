"""Kill ``torchonline serve`` and its learner by signal 9, and count what starts again and what is lost.

A client sends decisions and rewards, each again until it is answered. First the service is killed and started anew on the same
folder; then its learner is killed while the service goes on.

    python examples/serving/kill_serve.py [--kills 10]
"""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from client import Client, patiently
from fleet import folder_in, free_port

from torchonline.feedback import DecisionLog

ROOT = Path(__file__).parents[2]
CONTEXT = [35.0, 18.5, 2.0]


class Service:
    """``torchonline serve`` on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.told = folder, free_port(), list[str]()
        self.output = folder / "serve.log"

    def start(self) -> None:
        config = ROOT / "examples" / "configs" / "clicks.yaml"
        words = ["serve", "--config", str(config), "--ckpt_path", "new", "--folder", str(self.folder / "serving")]
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "torchonline", *words, "--port", str(self.port), "--every", "0.2"],
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )

    def learners(self) -> int:
        """Return how many learners have begun."""
        return self.output.read_text().count("learner: follows")

    @property
    def learner(self) -> int:
        """Return the process of the learner, whose number is in its lock; 0 before it is written."""
        lock = self.folder / "serving" / "policy-v1.pt.lock"
        return int((lock.read_text() if lock.exists() else "") or 0)

    async def play(self, rounds: int) -> None:
        """Make decisions, and send their rewards."""
        client = Client(self.port)
        for _ in range(rounds):
            name = f"visitor {len(self.told)}"
            for path, body in (("/decide", {"id": name, "context": CONTEXT}), ("/reward", {"id": name, "value": 1.0})):
                status, answer = await patiently(client, path, body, tries=2000)
                if status != 200:
                    raise RuntimeError(f"{path}: {status} {answer}")
            self.told.append(name)
        client.close()

    async def until(self, learners: int, seconds: float = 120.0) -> None:
        """Wait until so many learners have begun, and the last one has written its number into the lock."""
        async with asyncio.timeout(seconds):
            while self.learners() < learners or is_gone(self.learner):
                await asyncio.sleep(0.02)


def is_gone(process: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return bool(re.search(r"^State:\s+Z", Path(f"/proc/{process}/status").read_text(), re.MULTILINE))
    return True


async def kill_service(service: Service, kills: int) -> str:
    """Kill the service, and start it again as soon as its port is free."""
    gone, began = [], 0
    for _ in range(kills):
        await service.play(20)
        learner, before = service.learner, service.learners()
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
        start = time.monotonic()
        service.start()
        while not is_gone(learner):
            await asyncio.sleep(0.005)
        gone.append(time.monotonic() - start)
        await service.play(20)
        await service.until(before + 1)
        began += 1
    return f"{began} restarts succeeded; the learner was gone after {max(gone):.2f} s at most"


async def kill_learner(service: Service, kills: int) -> str:
    """Kill the learner, and decide while there is none."""
    decided, waits = 0, []
    for _ in range(kills):
        before = service.learners()
        os.kill(service.learner, signal.SIGKILL)
        start, told = time.monotonic(), len(service.told)
        await service.play(20)
        decided += len(service.told) - told
        await service.until(before + 1)
        waits.append(time.monotonic() - start)
    seconds = f"{min(waits):.1f} to {max(waits):.1f} s"
    return f"{decided} decisions meanwhile; {len(waits)} learners restarted, {seconds} later"


async def run(folder: Path, kills: int) -> None:
    service = Service(folder)
    service.start()
    try:
        await service.play(1)
        await service.until(1)
        print(f"{kills} kills of serve: {await kill_service(service, kills)}", flush=True)
        print(f"{kills} kills of the learner: {await kill_learner(service, kills)}", flush=True)
    finally:
        service.process.terminate()
        service.process.wait()
    with DecisionLog(folder / "serving" / "decisions.db") as log:
        known = [entry.id for entry in log.read(limit=10**6)]
    lost = len(set(service.told) - set(known))
    position = re.findall(r"stopped at position (\d+), (\d+) learnt", service.output.read_text())[-1]
    print(f"{len(service.told)} rewards told: {lost} lost, {len(known) - len(set(known))} twice; learnt: {position[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of the service, and of the learner")
    parser.add_argument("--output", type=Path, default=Path("outputs/serving"), help="folder for the files of the run")
    parser.add_argument("--smoke", action="store_true", help="one kill of each kind")
    options = parser.parse_args()
    folder = folder_in(options.output)
    try:
        asyncio.run(run(folder, 1 if options.smoke else options.kills))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
