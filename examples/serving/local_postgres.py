"""A PostgreSQL server of its own for a script, from the programs of the machine's package archives.

    python examples/serving/local_postgres.py load.py --seconds 10

runs the script with ``--database URL`` on an empty server, which is gone afterwards.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLACES = [*map(Path, os.environ.get("PATH", "").split(":")), *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]


def programs_of_postgres() -> Path | None:
    """Return the folder with PostgreSQL's programs, or None."""
    return next((place for place in PLACES if (place / "initdb").exists() and (place / "postgres").exists()), None)


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server on a socket of its own, and yield the URL of its databases, without their name."""
    programs = programs_of_postgres()
    if programs is None:
        raise FileNotFoundError("PostgreSQL: expected its programs initdb, postgres and pg_ctl, got none")
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
        "bandit",
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
            url = f"postgresql+psycopg://bandit@/{{}}?host={folder}&port={port}"
            _wait_for(data / "postmaster.pid", server)
            yield url
        finally:
            subprocess.run(
                [*user, str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop"],
                cwd=folder,
                capture_output=True,
            )
            server.wait(timeout=60)
            shutil.rmtree(folder, ignore_errors=True)


def _wait_for(status: Path, server: "subprocess.Popen[bytes]") -> None:
    """Wait until a server says that it is ready: it takes connections before, and refuses them."""
    while server.poll() is None:
        lines = status.read_text().splitlines() if status.exists() else []
        if len(lines) > 7 and lines[7].strip() == "ready":
            return
        time.sleep(0.02)
    raise RuntimeError((status.parents[1] / "server.log").read_text())


def new_database(url: str, name: str) -> str:
    """Create a database on a server, and return its URL."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url.format("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return url.format(name)


def main() -> int:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if programs_of_postgres() is None:
        raise SystemExit(
            "PostgreSQL: expected its programs initdb, postgres and pg_ctl, got none; on Debian: apt install postgresql"
        )
    script = Path(__file__).with_name(sys.argv[1])
    with postgres() as url:
        version = subprocess.run(
            [str(programs_of_postgres() / "postgres"), "--version"], capture_output=True, text=True
        )
        print(version.stdout.strip(), flush=True)
        command = [sys.executable, str(script), *sys.argv[2:], "--database", url.format("postgres")]
        return subprocess.run(command).returncode


if __name__ == "__main__":
    raise SystemExit(main())
