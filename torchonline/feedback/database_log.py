"""Base class of the feedback logs in a database, in portable SQL."""

import json
import os
import secrets
import threading
import time as clock
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from torchonline.core.checks import finite_number, instance_of, positive, rounds_at_most
from torchonline.feedback.clock import LogClock
from torchonline.feedback.log import ConflictError, FeedbackLog, LogStorageError
from torchonline.feedback.records import (
    DamagedRowError,
    Decision,
    Feedback,
    checked_decision,
    checked_pairs,
    checked_text,
    checked_time,
    entries,
    integer_from_0,
    stored_decision,
    stored_feedback,
    to_bytes,
)

# Runs a statement with named parameters and returns its rows, if any.
Execute = Callable[..., list[Any]]

# {blob}, {real} and {integer} are the database's types. Decisions and outcomes are append-only.
TABLES = (
    """CREATE TABLE IF NOT EXISTS decisions (
        number {integer} PRIMARY KEY, id TEXT NOT NULL UNIQUE, time {real} NOT NULL, inputs {blob} NOT NULL, mask {blob},
        action {integer} NOT NULL, probability {real} NOT NULL, encoder TEXT NOT NULL)""",
    # A position of NULL marks a reward that waits for the end of its window.
    """CREATE TABLE IF NOT EXISTS outcomes (
        number {integer} PRIMARY KEY, position {integer} UNIQUE, value {real} NOT NULL, known_at {real} NOT NULL,
        is_default {integer} NOT NULL)""",
    # These times, unlike all others, are by the log's clock: they measure windows.
    "CREATE TABLE IF NOT EXISTS open_decisions (number {integer} PRIMARY KEY, time {real} NOT NULL)",
    "CREATE INDEX IF NOT EXISTS open_by_time ON open_decisions (time, number)",
    "CREATE TABLE IF NOT EXISTS strays (id TEXT PRIMARY KEY, value {real} NOT NULL, known_at {real} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS blocks (learner TEXT NOT NULL, last {integer} NOT NULL, PRIMARY KEY (learner, last))",
    "CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, value {integer} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)

FORMAT = 1
COUNTED = ("decisions", "known", "defaults", "duplicates", "unknown", "strays", "late", "repeats")
FIELDS = "d.id, d.inputs, d.action, d.probability, d.mask, d.encoder, d.time, d.number"
# A decision's number, its time by the log's clock while it is open, and the kind of its outcome.
LOOK_UP = """SELECT d.number, n.time, o.is_default FROM decisions d
    LEFT JOIN open_decisions n ON n.number = d.number LEFT JOIN outcomes o ON o.number = d.number WHERE d.id = :id"""


class DatabaseLog(FeedbackLog):
    """Base class of the feedback logs in a database.

    A subclass opens a database. Its :meth:`_transaction` runs statements with named parameters, one writer at a time, and stores
    all of them or none. It calls :meth:`_open` once it can run transactions.

    A fork first waits for the transactions of other threads and closes the connections: SQLite's locks do not protect a
    connection that a child inherits, and the child's writes would be lost.

    Windows are measured by a monotonic clock: the wall clock at the first opening of the log since the machine booted, plus the
    time since then. All processes of the machine share it, see :class:`LogClock`.
    """

    types: Mapping[str, str]
    _clock: LogClock
    # Whether the log survives close().
    is_lasting = True

    def __init__(
        self,
        window: float | None,
        default_reward: float | None,
        hold: bool | None,
        undecided: int,
        largest: float | None,
    ) -> None:
        self.undecided = integer_from_0("undecided", undecided)
        self.largest = None if largest is None else positive("largest", largest)
        self._given: dict[str, Any] = {}
        if window is not None:
            self._given["window"] = positive("window", window)
        if default_reward is not None:
            self._given["default_reward"] = finite_number("default_reward", default_reward)
        if hold is not None:
            self._given["hold"] = instance_of("hold", hold, bool, "True or False")
        self._waiting: deque[_Call] = deque()
        self._writer = threading.Lock()
        # Holding all of these gives exclusive access to this process's connections.
        self._locks: tuple[AbstractContextManager[Any], ...] = (self._writer,)

    @abstractmethod
    def _transaction(self, is_write: bool = True) -> AbstractContextManager[Execute]:
        """Return an atomic transaction.

        If it cannot be stored, it raises a LogStorageError. A writing transaction excludes all others, including those of other
        processes.
        """

    def write(
        self,
        decisions: Iterable[Decision] = (),
        rewards: Iterable[tuple[str, float | Tensor]] = (),
        *,
        time: float | None = None,
    ) -> tuple[list[Decision | ConflictError], list[str]]:
        known_at = clock.time() if time is None else checked_time("time", time)
        given = entries("decisions", decisions)
        checked = [checked_decision(decision, self.largest) for decision in given]
        joined = checked_pairs(rewards)
        if not checked and not joined:
            return [], []
        now = self._clock.now() if time is None else known_at
        # Work that can fail for one call is done before the call shares a transaction.
        stored = [
            (
                decision,
                None if own.time is None else decision.time,
                to_bytes(decision.inputs),
                None if decision.mask is None else to_bytes(decision.mask),
            )
            for own, decision in zip(given, checked, strict=True)
        ]
        return self._write(
            lambda execute, counts: (
                [self._decide(execute, counts, *entry) for entry in stored],
                [self._reward(execute, counts, id, value, known_at, now) for id, value in joined],
            )
        )

    def close_due(self, now: float | None = None, *, limit: int = 10_000) -> int:
        limit = rounds_at_most("limit", limit)
        known_at = clock.time() if now is None else checked_time("now", now)
        if self.window is None:
            return 0
        end = self._clock.now() if now is None else known_at
        due = {"before": end - self.window, "limit": limit}
        some = """SELECT n.number, n.time, o.value FROM open_decisions n LEFT JOIN outcomes o ON o.number = n.number
            WHERE n.time <= :before ORDER BY n.time, n.number LIMIT :limit"""
        with self._transaction(is_write=False) as execute:  # usually nothing is due
            if not execute(some, before=due["before"], limit=1):
                return 0

        def close(execute: Execute, counts: dict[str, int]) -> int:
            rows = execute(some, **due)
            for number, _, value in rows:
                self._close(execute, counts, number, value, known_at)
            return len(rows)

        return self._write(close)

    def read(self, after: int = 0, limit: int = 1000) -> list[Feedback]:
        bounds = {"after": integer_from_0("after", after), "limit": rounds_at_most("limit", limit)}
        with self._transaction(is_write=False) as execute:
            rows = execute(
                f"""SELECT o.position, {FIELDS}, o.value, o.known_at, o.is_default
                FROM outcomes o JOIN decisions d ON d.number = o.number
                WHERE o.position > :after ORDER BY o.position LIMIT :limit""",
                **bounds,
            )
        found: list[Feedback] = []
        for row in rows:
            position = (found[-1].position if found else after) + 1
            try:
                if type(row[0]) is int and row[0] > position:
                    raise DamagedRowError("expected a row, got none", position, last=row[0] - 1)
                found.append(stored_feedback(row, row[0] if type(row[0]) is int else position))
            except DamagedRowError:
                if found:  # return the rows before the damage; the next call raises
                    break
                raise
        return found

    def decisions(self, after: int = 0, limit: int = 1000) -> list[Decision]:
        bounds = {"after": integer_from_0("after", after), "limit": rounds_at_most("limit", limit)}
        with self._transaction(is_write=False) as execute:
            rows = execute(
                f"SELECT {FIELDS} FROM decisions d WHERE d.number > :after ORDER BY d.number LIMIT :limit", **bounds
            )
        found: list[Decision] = []
        for row in rows:
            try:
                found.append(stored_decision(row))
            except DamagedRowError:
                if found:
                    break
                raise
        return found

    def waiting(self, after: int = 0, limit: int = 1000) -> list[Decision]:
        bounds = {"after": integer_from_0("after", after), "limit": rounds_at_most("limit", limit)}
        with self._transaction(is_write=False) as execute:
            # Each part reads at most `limit` rows by an index, however many decisions the log has.
            rows = execute(
                f"""SELECT {FIELDS} FROM decisions d WHERE d.number IN (
                SELECT number FROM (SELECT number FROM open_decisions ORDER BY number DESC LIMIT :limit) AS without UNION
                SELECT number FROM (SELECT number FROM outcomes WHERE position > :after ORDER BY position DESC LIMIT :limit)
                AS unlearnt) ORDER BY d.number DESC LIMIT :limit""",
                **bounds,
            )
        return [stored_decision(row) for row in reversed(rows)]

    def counts(self) -> dict[str, int]:
        with self._transaction(is_write=False) as execute:
            found = _counts(execute)
        return found | {"open": found["decisions"] - found["known"]}

    def block_end(self, learner: str, after: int, limit: int) -> int:
        where = {"learner": checked_text("learner", learner), "after": integer_from_0("after", after)}
        limit = rounds_at_most("limit", limit)
        recorded = "SELECT MIN(last) FROM blocks WHERE learner = :learner AND last > :after"
        with self._transaction(is_write=False) as execute:
            (last,) = execute(recorded, **where)[0]
            known = _counts(execute)["known"]
        if last is not None or known <= after:
            return after if last is None else int(last)

        def add(execute: Execute, counts: dict[str, int]) -> int:
            """Store a new end, unless another process has done so."""
            (last,) = execute(recorded, **where)[0]
            if last is None:
                last = min(after + limit, counts["known"])
                execute("INSERT INTO blocks (learner, last) VALUES (:learner, :last)", learner=learner, last=last)
            return int(last)

        return self._write(add)

    def _open(self) -> None:
        """Create or check the log in the database."""
        try:
            with self._transaction() as execute:
                self._create(execute)
        except BaseException:
            self.close()
            raise
        with FORKING:
            LOGS.add(self)

    def _create(self, execute: Execute) -> None:
        """Create missing tables and check the given settings against the log's."""
        for table in TABLES:
            execute(table.format(**self.types))
        for name in COUNTED:
            execute("INSERT INTO counts (name, value) VALUES (:name, 0) ON CONFLICT DO NOTHING", name=name)
        first = {"format": FORMAT, "name": secrets.token_hex(8), "window": None, "default_reward": 0.0, "hold": False}
        for name, value in (first | self._given).items():
            values = {"name": name, "value": json.dumps(value)}
            execute("INSERT INTO settings (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING", **values)
        self._clock = LogClock(execute)
        settings = {name: json.loads(value) for name, value in execute("SELECT name, value FROM settings")}
        for name, value in {"format": FORMAT, **self._given}.items():
            if settings[name] != value:
                raise ValueError(
                    f"{name}: expected {settings[name]}, as the log was created, got {value}; another {name} needs a new log"
                )
        self.name, self.window, self.hold = settings["name"], settings["window"], settings["hold"]
        self.default_reward = settings["default_reward"]
        if self.hold and self.window is None:
            raise ValueError("hold: expected False, because there is no window to wait for, got True")

    def _write(self, write: Callable[[Execute, dict[str, int]], Any]) -> Any:
        """Run a call in a transaction, together with the calls of waiting threads.

        Calls that share a transaction wait for the disk only once.
        """
        call = _Call(write)
        self._waiting.append(call)
        with self._writer:
            if not call.is_done:
                self._commit()
        if not call.is_done:  # an interrupt removed it from the queue
            raise _interrupted()
        if call.error is not None:
            raise call.error
        return call.result

    def _commit(self) -> None:
        """Run all waiting calls in one transaction."""
        calls: list[_Call] = []
        error: BaseException | None = _interrupted()
        try:
            while self._waiting:
                calls.append(self._waiting.popleft())
            with self._transaction() as execute:
                before = _counts(execute)
                counts = dict(before)
                for call in calls:
                    call.result = call.write(execute, counts)
                for name, value in counts.items():
                    if value != before[name]:
                        execute("UPDATE counts SET value = :value WHERE name = :name", name=name, value=value)
            error = None
        except Exception as exception:
            error = exception
        finally:
            for call in calls:
                call.error, call.is_done = error, True

    def _decide(
        self,
        execute: Execute,
        counts: dict[str, int],
        decision: Decision,
        given: float | None,
        inputs: bytes,
        mask: bytes | None,
    ) -> Decision | ConflictError:
        """Store a decision. ``given`` is its time if the caller passed one."""
        rows = execute(f"SELECT {FIELDS} FROM decisions d WHERE d.id = :id", id=decision.id)
        if rows:
            (row,) = rows
            try:
                found = stored_decision(row)
            except DamagedRowError as error:  # return it: raising would stop the other calls
                return ConflictError(f"id: expected a new id, got {decision.id!r}, whose row in the log: {error}")
            same = bytes(row[1]) == inputs and (None if row[4] is None else bytes(row[4])) == mask
            if not same:
                return ConflictError(f"id: expected a new id, got {decision.id!r}, which belongs to another decision")
            counts["repeats"] += 1
            return found
        counts["decisions"] += 1
        decision = decision._replace(number=counts["decisions"])
        execute(
            """INSERT INTO decisions (number, id, time, inputs, mask, action, probability, encoder)
            VALUES (:number, :id, :time, :inputs, :mask, :action, :probability, :encoder)""",
            **decision._asdict() | {"inputs": inputs, "mask": mask},
        )
        execute(
            "INSERT INTO open_decisions (number, time) VALUES (:number, :time)",
            number=decision.number,
            time=self._clock.now() if given is None else given,
        )
        if counts["strays"]:
            for value, known_at in execute("SELECT value, known_at FROM strays WHERE id = :id", id=decision.id):
                execute("DELETE FROM strays WHERE id = :id", id=decision.id)
                counts["strays"] -= 1
                # A reward that was logged before its decision is late only if the given times say so.
                is_late = given is not None and self._is_late(given, known_at)
                self._join(execute, counts, decision.number, value, known_at, is_late)
        return decision

    def _reward(
        self, execute: Execute, counts: dict[str, int], id: str, value: float, known_at: float, now: float
    ) -> str:
        rows = execute(LOOK_UP, id=id)
        if not rows:
            if execute("SELECT 1 FROM strays WHERE id = :id", id=id):
                counts["duplicates"] += 1
                return "duplicate"
            counts["unknown"] += 1
            if counts["strays"] >= self.undecided:
                return "refused"
            counts["strays"] += 1
            execute(
                "INSERT INTO strays (id, value, known_at) VALUES (:id, :value, :known_at)",
                id=id,
                value=value,
                known_at=known_at,
            )
            return "unknown"
        number, time, is_default = rows[0]
        if is_default is None:
            return self._join(execute, counts, number, value, known_at, self._is_late(time, now))
        counts["late" if is_default else "duplicates"] += 1
        return "late" if is_default else "duplicate"

    def _is_late(self, time: Any, now: float) -> bool:
        """Return whether the window of a decision is over."""
        # Ignore a damaged time, such as text.
        return self.window is not None and isinstance(time, (int, float)) and now > time + self.window

    def _join(
        self, execute: Execute, counts: dict[str, int], number: int, value: float, known_at: float, is_late: bool
    ) -> str:
        """Join a reward to an open decision, or close it at the default if it is late."""
        if is_late:
            self._close(execute, counts, number, None, known_at)
            counts["late"] += 1
            return "late"
        if self.hold:
            _insert_outcome(execute, number, None, value, known_at, False)
        else:
            self._close(execute, counts, number, None, known_at, reward=value)
        return "joined"

    def _close(
        self,
        execute: Execute,
        counts: dict[str, int],
        number: int,
        held: float | None,
        known_at: float,
        reward: float | None = None,
    ) -> None:
        """Give a decision its position, with ``reward``, the held one or the default."""
        counts["known"] += 1
        if held is not None:
            execute(
                "UPDATE outcomes SET position = :position WHERE number = :number",
                position=counts["known"],
                number=number,
            )
        else:
            is_default = reward is None
            counts["defaults"] += is_default
            value = self.default_reward if reward is None else reward
            _insert_outcome(execute, number, counts["known"], value, known_at, is_default)
        execute("DELETE FROM open_decisions WHERE number = :number", number=number)


LOGS: "weakref.WeakSet[DatabaseLog]" = weakref.WeakSet()
FORKING = threading.Lock()
STOPPED: list[DatabaseLog] = []


def _stop() -> None:
    """Stop all logs before a fork.

    Close their connections, and keep other threads from opening new ones.
    """
    FORKING.acquire()
    for log in LOGS:
        if log.is_lasting:
            for lock in log._locks:
                lock.__enter__()
            STOPPED.append(log)
    for log in STOPPED:
        log.close()


def _go_on() -> None:
    """Resume all logs after a fork."""
    for log in STOPPED:
        for lock in reversed(log._locks):
            lock.__exit__(None, None, None)
    STOPPED.clear()
    FORKING.release()


def _go_on_in_child() -> None:
    """Resume all logs in a child, without the waiting calls of the parent's threads."""
    for log in STOPPED:
        log._waiting.clear()
    _go_on()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_stop, after_in_parent=_go_on, after_in_child=_go_on_in_child)


class _Call:
    """Call that waits for a transaction."""

    def __init__(self, write: Callable[[Execute, dict[str, int]], Any]) -> None:
        self.write, self.result, self.is_done = write, None, False
        self.error: BaseException | None = None


def _counts(execute: Execute) -> dict[str, int]:
    return {name: int(value) for name, value in execute("SELECT name, value FROM counts")}


def _insert_outcome(
    execute: Execute, number: int, position: int | None, value: float, known_at: float, is_default: bool
) -> None:
    execute(
        """INSERT INTO outcomes (number, position, value, known_at, is_default)
        VALUES (:number, :position, :value, :known_at, :is_default)""",
        number=number,
        position=position,
        value=value,
        known_at=known_at,
        is_default=int(is_default),
    )


def _interrupted() -> LogStorageError:
    return LogStorageError("log: the call was interrupted, and may not have been stored")
