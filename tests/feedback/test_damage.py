"""Damaged rows of a log: each is named by its position and column, and none is learnt."""

import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch

from torchonline import OFUL
from torchonline.feedback import ConflictError, DamagedRowError, DecisionLog, Follower, LogStorageError, follow
from torchonline.off_policy import from_decisions

ARMS = torch.eye(2, dtype=torch.float64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with DecisionLog(tmp_path / "log.db") as log:
        for i in range(6):
            log.decide(f"{i}", ARMS, i % 2, 0.5, mask=[True, True])
            log.reward(f"{i}", 1.0)
    return tmp_path / "log.db"


def damage(path: Path, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


# Of the third row: the column, what the disk or a hand made of it, and what the error says.
DAMAGED = [
    ("action", -1, "action: expected an integer of at least 0, got -1"),
    ("action", 2, "action: expected an available arm, got 2"),
    ("action", 0.5, "action: expected an integer, got 0.5"),
    ("action", "one", "action: expected an integer, got 'one'"),
    ("inputs", b"", "inputs: expected the bytes of a .npy file"),
    ("inputs", b"\x93NUMPY\x01\x00\xff\xff", "inputs: expected the bytes of a .npy file"),
    ("inputs", "text", "inputs: expected the bytes of a .npy file, got str"),
    ("mask", b"\x93NUMPY", "mask: expected the bytes of a .npy file"),
    ("probability", 0.0, r"probability: expected a number in \(0"),
    ("probability", 1.5, r"probability: expected a number in \(0"),
    ("probability", "p", "probability: expected a number, got 'p'"),
    ("id", "", "id: expected 1 to 512 bytes"),
    ("encoder", b"v1", "encoder: expected a string"),
    ("time", "noon", "time: expected a number, got 'noon'"),
    ("time", math.inf, "time: expected a finite number"),
    ("value", math.inf, "value: expected a finite number"),
    ("value", "much", "value: expected a number, got 'much'"),
    ("known_at", "noon", "known_at: expected a number, got 'noon'"),
    ("is_default", 7, "is_default: expected 0 or 1, got 7"),
]
every_damage = pytest.mark.parametrize(("column", "value", "message"), DAMAGED)


def table_of(column: str) -> str:
    return "outcomes" if column in ("value", "known_at", "is_default") else "decisions"


@every_damage
@pytest.mark.parametrize("blocks", [False, True], ids=["rounds", "blocks"])
def test_a_damaged_row_is_named_and_never_learnt(
    path: Path, tmp_path: Path, column: str, value: Any, message: str, blocks: bool
) -> None:
    damage(path, f"UPDATE {table_of(column)} SET {column} = ? WHERE number = 3", value)
    log, policy = DecisionLog(path), OFUL(2)
    where = r"^log: damaged at position 3, decision number 3: "
    with pytest.raises(DamagedRowError, match=where + message) as caught:
        follow(policy, log, tmp_path / "policy.pt", blocks=blocks)
    assert (caught.value.position, caught.value.last, caught.value.number) == (3, 3, 3)
    assert int(policy.rounds) == (0 if blocks else 2)  # what comes before it is learnt and saved, in whole blocks
    again = OFUL(2)
    snapshot = follow(again, log, tmp_path / "policy.pt", blocks=blocks, skip_damaged=True)
    assert (snapshot.position, snapshot.learnt, snapshot.refused) == (6, 5, 1)
    assert snapshot.refusals[0][0] == 3
    assert message[:10] in snapshot.refusals[0][1]
    assert int(again.rounds) == 5


@every_damage
def test_readers_get_what_comes_before_the_damage(path: Path, column: str, value: Any, message: str) -> None:
    damage(path, f"UPDATE {table_of(column)} SET {column} = ? WHERE number = 3", value)
    log = DecisionLog(path)
    assert [row.position for row in log.read()] == [1, 2]
    with pytest.raises(DamagedRowError, match=message):
        log.read(2)
    assert [row.position for row in log.read(3)] == [4, 5, 6]
    if table_of(column) == "decisions":
        assert [row.number for row in log.decisions()] == [1, 2]
        with pytest.raises(DamagedRowError, match="^log: damaged at decision number 3: " + message):
            log.decisions(2)
        assert [row.number for row in log.decisions(3)] == [4, 5, 6]
        with pytest.raises(DamagedRowError):
            from_decisions(log)


@pytest.mark.parametrize("table", ["outcomes", "decisions"])
@pytest.mark.parametrize("blocks", [False, True], ids=["rounds", "blocks"])
def test_rows_that_are_gone_are_missed(path: Path, tmp_path: Path, table: str, blocks: bool) -> None:
    damage(path, f"DELETE FROM {table} WHERE number IN (3, 4)")
    log = DecisionLog(path)
    with pytest.raises(DamagedRowError, match=r"^log: damaged at positions 3 to 4: expected a row, got none$"):
        follow(OFUL(2), log, tmp_path / "policy.pt", blocks=blocks)
    snapshot = follow(OFUL(2), log, tmp_path / "policy.pt", blocks=blocks, skip_damaged=True)
    assert (snapshot.position, snapshot.learnt, snapshot.refused) == (6, 4, 2)


def test_a_learner_goes_on_from_a_damaged_row(path: Path, tmp_path: Path) -> None:
    """The row where a snapshot was taken may be damaged itself."""
    damage(path, "UPDATE decisions SET action = -1 WHERE number = 6")
    log = DecisionLog(path)
    assert follow(OFUL(2), log, tmp_path / "policy.pt", skip_damaged=True).position == 6
    log.decide("late", ARMS, 0, 0.5)
    log.reward("late", 1.0)
    with Follower(OFUL(2), log, tmp_path / "policy.pt") as follower:
        assert follower.advance() == 1
        assert follower.snapshot.learnt == 6


def test_a_text_that_is_no_utf_8_is_named(path: Path) -> None:
    damage(path, "UPDATE decisions SET id = CAST(X'66ff' AS TEXT) WHERE number = 3")
    log = DecisionLog(path)
    assert len(log.read()) == 2
    with pytest.raises(
        DamagedRowError, match="position 3, decision number 3: id: expected a string that UTF-8 can encode"
    ):
        log.read(2)


def test_a_damaged_file_ends_the_learner(path: Path, tmp_path: Path) -> None:
    """To try again would be in vain, unlike where a server restarts."""
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xaa" * (len(data) - 4096)
    with DecisionLog(tmp_path / "other.db") as log:
        log.close()
        (tmp_path / "other.db").write_bytes(data)
        with pytest.raises(LogStorageError, match="malformed") as caught:
            follow(OFUL(2), log, tmp_path / "policy.pt", stop=lambda: False)
    assert caught.value.is_damage


def test_damage_does_not_stop_the_calls_of_others(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db", window=10.0) as log:
        log.decide("a", ARMS, 0, 1.0)
    damage(tmp_path / "log.db", "UPDATE open_decisions SET time = 'noon'")
    damage(tmp_path / "log.db", "UPDATE decisions SET inputs = 'x', mask = 3.5")
    log = DecisionLog(tmp_path / "log.db")
    with pytest.raises(ConflictError, match=r"^id: expected a new id, got 'a', whose row in the log: log: damaged"):
        log.decide("a", ARMS, 0, 1.0)
    assert log.reward("a", 1.0) == "joined"
    assert log.decide("b", ARMS, 0, 1.0).number == 2


def test_a_negative_action_of_any_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a log that does not look at what it reads."""
    log = DecisionLog(":memory:")
    log.decide("a", ARMS, 0, 1.0)
    log.reward("a", 1.0)
    rows = [log.read()[0]._replace(action=-1)]
    monkeypatch.setattr(log, "read", lambda after=0, limit=1: rows[after:])
    policy = OFUL(2)
    snapshot = follow(policy, log, tmp_path / "policy.pt")
    assert (snapshot.learnt, snapshot.refused) == (0, 1)
    assert "action: expected one of 2 arms, got -1" in snapshot.refusals[0][1]
