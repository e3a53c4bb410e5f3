"""Start and stop the service: one learner and several replicas, each a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


def folder_in(place: Path) -> Path:
    """Return a new folder in another one."""
    place.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=place.resolve()))


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@dataclass
class Fleet:
    """The processes of the service.

    Replicas listen on one port; the kernel gives each connection to one of them.
    """

    folder: Path
    replicas: int = 2
    options: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.output = open(self.folder / "service.log", "ab")  # noqa: SIM115, closed in stop
        self.learner = self.start_learner()
        # A socket of the parent's, so that a replica can be replaced while the others answer.
        self.socket = socket.create_server(("127.0.0.1", self.port), backlog=1024)
        # uvicorn takes a socket that it is given for a local one, and would let small answers wait for each other.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.servers = [self.start_replica() for _ in range(self.replicas)]

    def start_learner(self) -> "subprocess.Popen[bytes]":
        return self._start([sys.executable, str(HERE / "learner.py")])

    def start_replica(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "uvicorn", "app:create_app", "--factory", "--no-access-log"]
        command += ["--timeout-graceful-shutdown", "10"]  # else a client that sends half a request keeps it up
        return self._start([*command, "--fd", str(self.socket.fileno())], (self.socket.fileno(),))

    def _start(self, command: list[str], files: tuple[int, ...] = ()) -> "subprocess.Popen[bytes]":
        own = {"OMP_NUM_THREADS": "1", "SERVING_FOLDER": str(self.folder), "PYTHONWARNINGS": "ignore"} | self.options
        paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": paths, **own}
        return subprocess.Popen(
            command, cwd=HERE, env=environment, stdout=self.output, stderr=self.output, pass_fds=files
        )

    def wait_until_ready(self, seconds: float = 120.0) -> None:
        """Wait until every replica has started."""
        end = time.monotonic() + seconds
        while (self.folder / "service.log").read_text().count("Application startup complete") < self.replicas:
            if time.monotonic() > end or any(server.poll() is not None for server in self.servers):
                raise RuntimeError("service: not ready\n" + (self.folder / "service.log").read_text()[-2000:])
            time.sleep(0.05)

    def stop(self) -> list[int | None]:
        """Stop replicas, then the learner, as SIGTERM does, and return their exit codes."""
        for process in (*self.servers, self.learner):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        self.socket.close()
        self.output.close()
        return [process.returncode for process in (*self.servers, self.learner)]


@contextmanager
def running(folder: Path, replicas: int = 2, **options: str) -> Iterator[Fleet]:
    """Run a fleet, and stop it at the end."""
    fleet = Fleet(folder, replicas, options)
    try:
        fleet.wait_until_ready()
        yield fleet
    finally:
        fleet.stop()
