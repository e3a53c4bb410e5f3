"""Feedback log in a file, on the standard library's sqlite3."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchonline.core.checks import instance_of, one_of
from torchonline.feedback.database_log import DatabaseLog, Execute
from torchonline.feedback.log import LogStorageError

# Longest wait for the transactions of other processes, in milliseconds.
PATIENCE = 60_000
# SQLite's error codes for a damaged file and for a file that is not a database.
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DecisionLog(DatabaseLog):
    """Durable log of decisions and rewards in one SQLite file.

    A service logs each decision before it answers, and each reward when it arrives. One learner reads and learns the known
    rounds, see :func:`follow`. Any number of threads and processes of one machine may use the file concurrently, each process
    through its own object. Concurrent calls share a transaction.

    Durability. When :meth:`decide` or :meth:`reward` has returned, the entry survives a crash of the process and, with
    ``synchronous="full"``, of the machine. A call that raises a :class:`LogStorageError`, for example because the disk is full,
    has stored nothing. A second delivery of a reward is counted and ignored. A reward of an unknown decision is kept aside.
    :meth:`read` returns each decision once, at a position that never changes.

    The window. A click is reported; its absence is not. With ``window``, :meth:`close_due` closes a decision without a reward at
    ``default_reward`` when the window is over. By default a reward counts when it arrives, and a default when the window ends, so
    for the length of one window too many clicks are learnt. With ``hold=True`` all rewards count when the window of their
    decision is over. The order of learning is then independent of the rewards, as the confidence sets require
    (docs/delayed_rewards.md).

    Cost. With ``synchronous="full"``, each transaction waits for the disk once; docs/service.md has measurements. The file grows
    by the inputs and about 200 bytes for each decision. Inputs are stored as the bytes of ``.npy`` files. The file must be on a
    disk of this machine: SQLite's locks do not work on network file systems.

    Args:
        path: the file, created if missing; or ``":memory:"``. While in use, it has two companion files, ``-wal`` and ``-shm``.
        window: seconds that a decision waits for its reward. None keeps the log's setting, which is unlimited in a new log.
        default_reward: reward of a decision whose window is over. None keeps the log's setting, which is 0 in a new log.
        hold: whether rewards also wait for the end of the window. None keeps the log's setting, which is False in a new log.
        undecided: number of rewards of unknown ids that are kept until their decision arrives; 0 keeps none. A reward beyond this
            number is ``"refused"`` and not stored. This option belongs to the object, not to the log.
        largest: largest magnitude of a feature that this object logs; decisions with a larger one are refused. None for no limit.
        synchronous: ``"full"``; or ``"normal"``, with which a crash of the machine, not of the process, may lose the last
            transactions.

    Raises:
        ValueError: the log was created with another window, default or hold.
        LogStorageError: the file is not a log, or cannot be opened.

    Example:
        >>> log = DecisionLog(folder / "decisions.db")
        >>> policy, arms = OFUL(2), torch.tensor([[1.0, 0.0], [0.0, 0.5]])
        >>> k, probability = policy.select_with_probability(arms)
        >>> _ = log.decide("first visitor", arms, k, probability)
        >>> log.reward("first visitor", 0.5), log.reward("first visitor", 0.5), log.reward("who?", 1.0)
        ('joined', 'duplicate', 'unknown')
        >>> [(round.id, round.action, round.reward) for round in log.read()]
        [('first visitor', 0, 0.5)]
    """

    types = {"blob": "BLOB", "real": "REAL", "integer": "INTEGER"}

    def __init__(
        self,
        path: str | Path,
        *,
        window: float | None = None,
        default_reward: float | None = None,
        hold: bool | None = None,
        undecided: int = 10_000,
        largest: float | None = None,
        synchronous: str = "full",
    ) -> None:
        super().__init__(window, default_reward, hold, undecided, largest)
        self.path = str(instance_of("path", path, (str, os.PathLike), "a path"))
        if not self.path:
            raise ValueError('path: expected a file or ":memory:", got an empty path')
        self.synchronous = one_of("synchronous", synchronous, ("full", "normal"))
        self.is_lasting = self.path != ":memory:"
        self._connections = threading.RLock()
        self._locks = (self._writer, self._connections)
        self._connection: sqlite3.Connection | None = None
        self._open()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "DecisionLog: expected another process to open the file itself, by its path, got a copy or pickle"
        )

    def close(self) -> None:
        """Close the file. The next call opens it again."""
        with self._connections:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self, is_write: bool = True) -> Iterator[Execute]:
        with self._connections:
            try:
                connection = self._connected()
                if connection.in_transaction:
                    raise LogStorageError("log: expected no call from within another, in a signal handler for example")
                try:
                    connection.execute("BEGIN IMMEDIATE" if is_write else "BEGIN")
                    yield lambda statement, **values: connection.execute(statement, values).fetchall()
                    connection.execute("COMMIT")
                except BaseException:
                    # SQLite may have rolled back already, for example if the disk is full.
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                raise LogStorageError(f"path: {self.path}: {error}", is_damage=code in DAMAGE) from error

    def _connected(self) -> sqlite3.Connection:
        """Return this process's connection."""
        if self._connection is None:
            connection = sqlite3.connect(
                self.path,
                timeout=PATIENCE / 1000.0,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            try:
                prepare(connection, self.synchronous)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def prepare(connection: sqlite3.Connection, synchronous: str) -> None:
    """Set up a new connection: write-ahead log, durability and patience."""
    # Damaged text is decoded here; the record's check then refuses it by name.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    connection.execute(f"PRAGMA busy_timeout = {PATIENCE}")
    end = time.monotonic() + PATIENCE / 1000.0
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself while several processes create one file.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
