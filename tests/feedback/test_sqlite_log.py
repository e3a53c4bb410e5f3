"""What is SQLite's own: full disks, other files, forks and what is on the disk."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.fake_device import environment
from tests.feedback.logs import ARMS, fill
from torchonline.feedback import DecisionLog, LogStorageError

ROOT = Path(__file__).parents[2]


def test_durability_is_full_by_default(tmp_path: Path) -> None:
    for synchronous, level in (("full", 2), ("normal", 1)):
        log = DecisionLog(tmp_path / "log.db", synchronous=synchronous)
        connection = log._connected()
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        log.close()
    with pytest.raises(ValueError, match="synchronous: expected one of 'full', 'normal', got 'off'"):
        DecisionLog(tmp_path / "log.db", synchronous="off")


def test_a_full_disk_stores_nothing_and_loses_nothing(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db")
    fill(log, 20)
    before = log.counts()
    pages = log._connected().execute("PRAGMA page_count").fetchone()[0]
    log._connected().execute(f"PRAGMA max_page_count = {pages + 2}")
    stored, error = 0, None
    while error is None:
        try:
            log.decide(f"more {stored}", torch.ones(8, 100), 0, 1.0)
            stored += 1
        except LogStorageError as full:
            error = full
    assert "full" in str(error)
    assert log.counts()["decisions"] == before["decisions"] + stored
    log._connected().execute("PRAGMA max_page_count = 1000000")
    assert log.decide(f"more {stored}", torch.ones(8, 100), 0, 1.0).number == before["decisions"] + stored + 1
    assert log._connected().execute("PRAGMA integrity_check").fetchone() == ("ok",)


FULL = """
import resource, signal, sys
from pathlib import Path
import torch
from tests.feedback.logs import ARMS, fill
from torchonline import OFUL
from torchonline.feedback import DecisionLog, LogStorageError, follow, load_snapshot
folder = Path(sys.argv[1])
log, policy = DecisionLog(folder / "log.db"), OFUL(64)
fill(log, 20)
follow(OFUL(2), log, folder / "p.pt")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))  # files grow no further
try:
    log.decide("too much", torch.ones(2000), 0, 1.0)
except LogStorageError as error:
    print("log:", error)
try:
    follow(policy, log, folder / "q.pt")
except OSError as error:
    print("snapshot:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(log.counts()["decisions"], log.decide("too much", torch.ones(2000), 0, 1.0).number, (folder / "q.pt").exists())
print(sorted(path.name for path in folder.glob("q.pt*")))
"""


def test_files_that_cannot_grow(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FULL, str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    log, snapshot, counts, files = run.stdout.splitlines()
    assert log.startswith("log: path: ")
    assert snapshot.startswith("snapshot: [Errno 27]")
    assert counts == "20 21 False"
    assert files == "['q.pt.lock']"


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("some text, long enough to be no empty file" * 100)
    with pytest.raises(LogStorageError, match="file is not a database"):
        DecisionLog(tmp_path / "text")
    with pytest.raises(ValueError, match="path: expected a file"):
        DecisionLog("")
    with pytest.raises(TypeError, match="path: expected a path, got NoneType"):
        DecisionLog(None)  # type: ignore[arg-type]
    with pytest.raises(LogStorageError, match="unable to open"):
        DecisionLog(tmp_path / "no folder" / "log.db")


def test_a_log_from_a_later_format_is_refused(tmp_path: Path) -> None:
    DecisionLog(tmp_path / "log.db").close()
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("UPDATE settings SET value = '2' WHERE name = 'format'")
    connection.close()
    with pytest.raises(ValueError, match="format: expected 2"):
        DecisionLog(tmp_path / "log.db")


def test_a_closed_log_opens_again(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        fill(log, 5)
    assert len(log.decisions()) == 5
    log.close()
    assert not (tmp_path / "log.db-wal").exists()


def test_a_log_in_memory() -> None:
    log = DecisionLog(":memory:")
    fill(log, 5)
    assert log.counts()["decisions"] == 5
    log.close()


def test_an_interrupted_call_tells_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DecisionLog(tmp_path / "log.db")

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "_decide", interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.decide("a", ARMS, 0, 1.0)
    monkeypatch.undo()
    assert log.counts()["decisions"] == 0
    assert log.decide("a", ARMS, 0, 1.0).number == 1


FORK = """
import os, sys
from tests.feedback.logs import fill
from torchonline.feedback import DecisionLog, SQLDecisionLog
place, kind = sys.argv[1:]
def opened():
    return DecisionLog(place) if kind == "sqlite3" else SQLDecisionLog("sqlite:///" + place)
log = opened()
fill(log, 5)
is_open, write = os.pipe()
wait, is_closed = os.pipe()
if os.fork() == 0:
    own = opened()
    fill(log, 5, start=5)
    fill(own, 5, start=10)
    os.write(write, b"x")
    os.read(wait, 1)
    fill(log, 5, start=15)
    fill(own, 5, start=20)
    os._exit(0)
os.read(is_open, 1)
log.close()  # deletes the write-ahead log, unless SQLite knows that the child is there
os.write(is_closed, b"x")
os.wait()
print(log.counts()["decisions"])
"""


@pytest.mark.parametrize("kind", ["sqlite3", "sqlalchemy"])
def test_a_forked_child_loses_nothing(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "log.db"), kind]
    run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert run.stdout.strip() == "25", run.stderr


TOGETHER = """
import os, sys
from torchonline.feedback import DecisionLog
for i in range(20):
    wait, go = os.pipe()
    children = []
    for _ in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            os.close(go)
            os.read(wait, 1)  # until the parent has closed its end
            DecisionLog(f"{sys.argv[1]}/{i}.db")
            os._exit(0)
    os.close(go)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
print("made")
"""


def test_processes_make_a_log_together(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", TOGETHER, str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert run.stdout.strip() == "made", run.stderr


def test_an_interrupted_start_of_a_transaction_leaves_none_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DecisionLog(tmp_path / "log.db")
    connection = log._connected()

    class Interrupted:
        in_transaction = property(lambda self: connection.in_transaction)

        def execute(self, statement: str) -> object:
            found = connection.execute(statement)
            if statement.startswith("BEGIN"):  # Ctrl-C while it waited for another process
                raise KeyboardInterrupt
            return found

    with monkeypatch.context() as change:
        change.setattr(log, "_connected", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.decide("a", ARMS, 0, 1.0)
    assert not connection.in_transaction
    assert log.decide("a", ARMS, 0, 1.0).number == 1


def test_a_call_from_within_another_is_refused(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db")
    with log._transaction() as execute:
        execute("INSERT INTO settings (name, value) VALUES ('a', '1')")
        with pytest.raises(LogStorageError, match="log: expected no call from within another"):
            log.counts()
    with log._transaction() as execute:
        assert execute("SELECT value FROM settings WHERE name = 'a'") == [("1",)]
