"""A log on each database."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.feedback.logs import new_database, postgres, postgres_programs
from torchonline.feedback import DecisionLog, FeedbackLog, SQLDecisionLog

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server's databases."""
    if postgres_programs() is None:
        pytest.skip("needs PostgreSQL's programs initdb, postgres and pg_ctl")
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite3", "sqlalchemy", "postgresql"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., FeedbackLog]]:
    """Open the same log, empty at first, as often as it is called."""
    logs: list[FeedbackLog] = []
    if request.param == "postgresql":
        url = new_database(request.getfixturevalue("postgres_url"), f"log_{next(NUMBERS)}")
    else:
        url = f"sqlite:///{tmp_path}/decisions.db"

    def open_(**options: object) -> FeedbackLog:
        is_own = request.param == "sqlite3"
        log = DecisionLog(tmp_path / "decisions.db", **options) if is_own else SQLDecisionLog(url, **options)  # type: ignore[arg-type]
        logs.append(log)
        return log

    yield open_
    for log in logs:
        log.close()
