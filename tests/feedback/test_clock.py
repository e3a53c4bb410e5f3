"""What a log decides by time, while the wall clock jumps."""

import sqlite3
import time
from pathlib import Path

import pytest
import torch

from torchonline.feedback import Decision, DecisionLog
from torchonline.feedback import clock as log_clock

ARMS = torch.eye(2, dtype=torch.float64)
HOUR = 3600.0


class Clocks:
    """The wall clock, which can be set, and the time since the boot, which passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.since_boot = 1.7e9, 5000.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(log_clock, "since_boot", lambda: self.since_boot)

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.since_boot += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.mark.parametrize("hold", [False, True], ids=["at once", "held"])
@pytest.mark.parametrize("reopened", [False, True], ids=["one process", "a restart"])
@pytest.mark.parametrize("jump", [-5 * HOUR, 5 * HOUR])
def test_jumps_of_the_wall_clock_decide_nothing(
    tmp_path: Path, clocks: Clocks, jump: float, reopened: bool, hold: bool
) -> None:
    """A timely reward counts, a late one does not, and a window ends when it is over."""
    log = DecisionLog(tmp_path / "log.db", window=60.0, hold=hold)
    for name in "abc":
        log.decide(name, ARMS, 0, 1.0)
    clocks.wait(30.0)
    clocks.wall += jump
    if reopened:
        log = DecisionLog(tmp_path / "log.db")
    log.decide("d", ARMS, 0, 1.0)
    assert log.reward("a", 1.0) == "joined"
    assert log.close_due() == 0
    clocks.wall -= jump
    clocks.wait(31.0)
    assert log.reward("b", 1.0) == "late"
    assert log.close_due() == (2 if hold else 1)
    assert log.reward("d", 1.0) == "joined"
    clocks.wait(30.0)
    assert log.close_due() == (1 if hold else 0)
    assert log.counts()["open"] == 0


def test_a_reward_before_its_decision_is_not_late(clocks: Clocks) -> None:
    """Rows decide, whatever the clock did in between."""
    log = DecisionLog(":memory:", window=60.0)
    assert log.reward("a", 1.0) == "unknown"
    clocks.wall -= 5 * HOUR
    log.decide_many([Decision("a", ARMS, 0, 1.0)])
    assert [(row.reward, row.is_default) for row in log.read()] == [(1.0, False)]


def test_times_that_are_told_are_taken_as_they_are(clocks: Clocks) -> None:
    log = DecisionLog(":memory:", window=60.0)
    log.decide("a", ARMS, 0, 1.0, time=100.0)
    assert log.reward("a", 1.0, time=161.0) == "late"


def test_after_a_boot_no_decision_is_in_the_future(
    tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock was ahead when it was made. Its window begins anew, and is not hours longer."""
    log = DecisionLog(tmp_path / "log.db", window=60.0)
    log.decide("a", ARMS, 0, 1.0)
    monkeypatch.setattr(log_clock, "_boot", lambda: "another")
    clocks.wall, clocks.since_boot = clocks.wall - 5 * HOUR, 20.0
    log = DecisionLog(tmp_path / "log.db")
    assert log.close_due() == 0
    clocks.wait(61.0)
    assert log.close_due() == 1


def test_a_machine_that_does_not_tell_its_boot_has_a_clock_too(
    tmp_path: Path, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_clock, "BOOT_ID", tmp_path / "missing")
    monkeypatch.setattr(log_clock, "START_OF_PROCESS", clocks.wall - clocks.since_boot)
    log = DecisionLog(tmp_path / "log.db", window=60.0)
    log.decide("a", ARMS, 0, 1.0)
    clocks.wall += 5 * HOUR
    again = DecisionLog(tmp_path / "log.db")
    assert again.reward("a", 1.0) == "joined"
    rows = sqlite3.connect(tmp_path / "log.db").execute("SELECT name FROM settings WHERE name LIKE 'clock%'").fetchall()
    assert rows == []  # each process would leave one


def test_the_record_has_the_time_of_the_wall_clock(clocks: Clocks) -> None:
    log = DecisionLog(":memory:", window=60.0)
    clocks.wall += 5 * HOUR
    log.decide("a", ARMS, 0, 1.0)
    log.reward("a", 1.0)
    (row,) = log.read()
    assert row.time == row.known_at == clocks.wall


def test_nanoseconds_become_seconds() -> None:
    """time.time_ns() and time.time() are one time."""
    log = DecisionLog(":memory:")
    assert log.decide("a", ARMS, 0, 1.0, time=1_700_000_000_500_000_000).time == 1_700_000_000.5
