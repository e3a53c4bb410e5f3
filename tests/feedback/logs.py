"""Logs with decisions in them, and a PostgreSQL server of the tests' own."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from torchonline import OFUL
from torchonline.feedback import FeedbackLog

ARMS = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
PLACES = [*map(Path, os.environ.get("PATH", "").split(":")), *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]


def postgres_programs() -> Path | None:
    """Return the folder with PostgreSQL's programs, or None."""
    return next((place for place in PLACES if (place / "initdb").exists() and (place / "postgres").exists()), None)


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server on a socket of its own, and yield the URL of its databases, without their name."""
    programs = postgres_programs()
    assert programs is not None
    # A socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    # The server refuses to run as root.
    user = ["runuser", "-u", "nobody", "--"] if os.getuid() == 0 else []
    if user:
        shutil.chown(folder, "nobody")
        folder.chmod(0o755)
    data, port = folder / "data", 5432
    quiet = {"check": True, "capture_output": True, "cwd": folder}
    make = [
        programs / "initdb",
        "-D",
        data,
        "-A",
        "trust",
        "-U",
        "tests",
        "--no-instructions",
        "-E",
        "UTF8",
        "--no-locale",
    ]
    subprocess.run([*user, *map(str, make)], **quiet)  # type: ignore[call-overload]
    options = ["-k", str(folder), "-h", "", "-p", str(port)]
    with open(folder / "server.log", "wb") as output:
        server = subprocess.Popen(
            [*user, str(programs / "postgres"), "-D", str(data), *options], stdout=output, stderr=output, cwd=folder
        )
        try:
            url = f"postgresql+psycopg://tests@/{{}}?host={folder}&port={port}"
            _wait_for(folder / f".s.PGSQL.{port}", server)
            yield url
        finally:
            subprocess.run(
                [*user, str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop"],
                cwd=folder,
                capture_output=True,
            )
            server.wait(timeout=60)
            shutil.rmtree(folder, ignore_errors=True)


def _wait_for(place: Path, server: "subprocess.Popen[bytes]") -> None:
    """Wait until a server takes connections on its socket."""
    while server.poll() is None:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(place))
                return
            except OSError:
                pass
    raise RuntimeError((place.parent / "server.log").read_text())


def new_database(url: str, name: str) -> str:
    """Create a database on a server, and return its URL."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url.format("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return url.format(name)


def fill(log: FeedbackLog, rounds: int, seed: int = 0, start: int = 0) -> None:
    """Log decisions and rewards of 0 or 1, of which a tenth never comes."""
    generator = torch.Generator().manual_seed(seed)
    for i in range(start, start + rounds):
        action = int(torch.randint(3, (), generator=generator))
        log.decide(f"decision {i}", ARMS, action, 1 / 3, time=float(i))
        value = float(torch.rand((), generator=generator))
        if value > 0.1:
            log.reward(f"decision {i}", value, time=float(i))


def learnt_from(log: FeedbackLog) -> dict[str, torch.Tensor]:
    """Return the state of a learner that has learnt all rounds of a log without a stop."""
    policy = OFUL(2)
    for entry in log.read(limit=10**6):
        policy.step(entry.inputs[entry.action], torch.tensor(entry.reward, dtype=torch.float64))
    return policy.state_dict()
