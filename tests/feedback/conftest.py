"""A log on each database."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.script_modules import script_modules
from torchonline.feedback import DecisionLog, FeedbackLog, SQLDecisionLog

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def new_database() -> Iterator[Callable[[str], str]]:
    """Create an empty database on a PostgreSQL server of the tests, and return its URL."""
    with script_modules("serving", "local_postgres") as modules:
        server = modules.local_postgres
    if server.programs_of_postgres() is None:
        pytest.skip("needs PostgreSQL's programs initdb, postgres and pg_ctl")
    with server.postgres() as url:
        yield lambda name: server.new_database(url, name)


@pytest.fixture(params=["sqlite3", "sqlalchemy", "postgresql"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., FeedbackLog]]:
    """Open the same log, empty at first, as often as it is called."""
    logs: list[FeedbackLog] = []
    if request.param == "postgresql":
        url = request.getfixturevalue("new_database")(f"log_{next(NUMBERS)}")
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
