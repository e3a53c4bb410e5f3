"""Feedback log in PostgreSQL or SQLite, through SQLAlchemy."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from torchonline.feedback.database_log import DatabaseLog, Execute
from torchonline.feedback.log import LogStorageError
from torchonline.feedback.sqlite_log import DecisionLog, prepare

TYPES = {
    "sqlite": DecisionLog.types,
    "postgresql": {"blob": "BYTEA", "real": "DOUBLE PRECISION", "integer": "BIGINT"},
}
# Key of the advisory lock, one for all logs of a database.
LOCK = 7_308_327_783_614_081_121


class SQLDecisionLog(DatabaseLog):
    """Log of decisions and rewards in PostgreSQL or SQLite, through SQLAlchemy.

    It is a :class:`DecisionLog` for services on several machines. The database determines durability: PostgreSQL's
    ``synchronous_commit`` is on by default. Writers take turns under an advisory lock that lasts until the end of a transaction.
    So positions follow the order of commits, and a reader never misses a row that commits late.

    It needs SQLAlchemy 2 and the database's driver.

    Args:
        url: URL of the database, such as ``"postgresql+psycopg://user@host/name"`` or ``"sqlite:///decisions.db"``.
        window, default_reward, hold, undecided, largest: as in :class:`DecisionLog`.
        **options: keyword arguments of ``sqlalchemy.create_engine``.

    Raises:
        ValueError: the URL is invalid or of another kind of database, or the log was created with another window, default or
            hold.
        LogStorageError: the database cannot be reached or written.

    Example:
        >>> log = SQLDecisionLog(f"sqlite:///{folder}/decisions.db")  # doctest: +SKIP
        >>> log.decide("first visitor", [[1.0, 0.0], [0.0, 1.0]], 1, 0.5).number  # doctest: +SKIP
        1
    """

    def __init__(
        self,
        url: str,
        *,
        window: float | None = None,
        default_reward: float | None = None,
        hold: bool | None = None,
        undecided: int = 10_000,
        largest: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(window, default_reward, hold, undecided, largest)
        try:
            import sqlalchemy
        except ImportError as error:
            raise ImportError("SQLDecisionLog: expected SQLAlchemy 2, got none; pip install sqlalchemy") from error

        # pool_pre_ping replaces connections that a restart of the server has closed.
        try:
            self.engine = sqlalchemy.create_engine(url, **{"pool_pre_ping": True, **options})
        except sqlalchemy.exc.ArgumentError as error:  # do not show the URL, which may contain a password
            raise ValueError(
                f"url: expected a URL such as postgresql+psycopg://user@host/name, got another: {error}"
            ) from error
        database = self.engine.dialect.name
        if database not in TYPES:
            raise ValueError(f"url: expected a database of {' or '.join(TYPES)}, got {database}")
        if database == "sqlite" and self.engine.url.database in (None, "", ":memory:"):  # one for each thread
            raise ValueError('url: expected a file, got SQLite in memory; use DecisionLog(":memory:") instead')
        if database == "postgresql":  # other levels, such as SERIALIZABLE, read the data before they have the lock
            self.engine = self.engine.execution_options(isolation_level="READ COMMITTED")
        self.types = TYPES[database]
        self._begin = "SELECT pg_advisory_xact_lock(:key)" if database == "postgresql" else ""
        if database == "sqlite":
            sqlalchemy.event.listen(self.engine, "connect", _prepare_sqlite)
            sqlalchemy.event.listen(self.engine, "begin", _begin_sqlite)
        self._open()

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        self.engine.dispose()

    @contextmanager
    def _transaction(self, is_write: bool = True) -> Iterator[Execute]:
        import sqlalchemy.exc

        try:
            with self.engine.begin() as connection:

                def execute(statement: str, **values: Any) -> list[Any]:
                    result = connection.execute(_text(statement), values)
                    return list(result.all()) if result.returns_rows else []

                if is_write and self._begin:
                    execute(self._begin, key=LOCK)
                yield execute
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise LogStorageError(f"url: {self.engine.url!r}: {error}") from error


def _prepare_sqlite(connection: Any, record: Any) -> None:
    """Let the log control transactions, and make them durable."""
    connection.isolation_level = None
    prepare(connection, "full")


def _begin_sqlite(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@lru_cache(maxsize=64)
def _text(statement: str) -> Any:
    import sqlalchemy

    return sqlalchemy.text(statement)
