"""What is the database's own: lost connections, readers behind writers, other databases."""

import sqlite3
import threading
from collections.abc import Callable

import pytest

from tests.feedback.logs import ARMS, fill
from torchonline.feedback import LogStorageError, SQLDecisionLog


def test_lost_connections_are_replaced(new_database: Callable[[str], str]) -> None:
    import sqlalchemy

    url = new_database("lost")
    with SQLDecisionLog(url) as log, SQLDecisionLog(url) as other:
        fill(log, 5)
        with other.engine.begin() as connection:
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'lost'"
            connection.execute(sqlalchemy.text(end))
        fill(log, 5, start=5)
        assert log.counts()["decisions"] == 10


def test_a_slow_writer_is_not_passed_by(new_database: Callable[[str], str]) -> None:
    """A reader that goes on from the last position misses nothing, because a later writer waits for an earlier one."""
    url = new_database("slow")
    with SQLDecisionLog(url) as slow, SQLDecisionLog(url) as fast:
        slow.decide("a", ARMS, 0, 1.0)
        slow.decide("b", ARMS, 0, 1.0)
        with slow._transaction() as execute:
            execute("UPDATE counts SET value = value + 0 WHERE name = 'known'")
            other = threading.Thread(target=fast.reward, args=("b", 1.0))
            other.start()
            assert slow.read() == []
            other.join(timeout=0.2)
            assert other.is_alive()
        other.join()
        slow.reward("a", 1.0)
        assert [(entry.position, entry.id) for entry in fast.read()] == [(1, "b"), (2, "a")]


def test_a_transaction_sees_what_was_stored_before_its_turn(new_database: Callable[[str], str]) -> None:
    url = new_database("levels")
    strict = {"connect_args": {"options": "-c default_transaction_isolation=serializable"}}
    for options in (strict, {"isolation_level": "AUTOCOMMIT"}):
        with SQLDecisionLog(url, **options) as log, SQLDecisionLog(url, **options) as other:
            with log._transaction() as execute:
                assert execute("SHOW transaction_isolation")[0][0] == "read committed"
            threads = [threading.Thread(target=fill, args=(part, 20)) for part in (log, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert log.counts()["decisions"] == 20


def test_other_databases_are_refused() -> None:
    with pytest.raises(ValueError, match="url: expected a database of sqlite or postgresql, got mssql"):
        SQLDecisionLog("mssql+pyodbc://", module=sqlite3)
    with pytest.raises(ValueError, match="url: expected a file, got SQLite in memory"):
        SQLDecisionLog("sqlite://")
    with pytest.raises(LogStorageError, match="url: "):
        SQLDecisionLog("sqlite:////no/such/folder/log.db")
