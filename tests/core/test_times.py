"""Times are one thing in tables and logs: numbers in any unit, dates and nanoseconds in seconds since 1970."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

from torchonline.core.times import as_time, as_times
from torchonline.feedback import DecisionLog
from torchonline.models import LogDataModule
from torchonline.off_policy import BanditLog, from_frame

SECONDS = [1_700_000_000.25, 1_700_000_030.5]
NANOSECONDS = np.array([1_700_000_000_250_000_000, 1_700_000_030_500_000_000])
DATES = NANOSECONDS.astype("datetime64[ns]")
COLUMNS: dict[str, Any] = {
    "seconds": np.array(SECONDS),
    "nanoseconds": NANOSECONDS,
    "nanoseconds, unsigned": NANOSECONDS.astype(np.uint64),
    "nanoseconds, floats": NANOSECONDS.astype(np.float64),
    "dates": DATES,
    "dates in milliseconds": DATES.astype("datetime64[ms]"),
    "dates with a zone": np.array([datetime.fromtimestamp(one, UTC) for one in SECONDS], dtype=object),
}
every_column = pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)


@every_column
def test_all_that_names_a_time_becomes_seconds(column: np.ndarray) -> None:
    assert as_times("time", column).tolist() == pytest.approx(SECONDS, abs=1e-6)
    frame = pandas.DataFrame({"time": column, "action": [0, 1], "reward": [0.0, 1.0], "p": [0.5, 0.5]})
    options: dict[str, Any] = {"action": "action", "reward": "reward", "probability": "p"}
    for log in (
        from_frame(frame, time="time", **options),
        BanditLog(arms=2, action=[0, 1], reward=[0, 1], probability=[0.5, 0.5], time=column),
    ):
        assert log.time.tolist() == pytest.approx(SECONDS, abs=1e-6)


@pytest.mark.parametrize("name", ["nanoseconds", "dates", "seconds"])
def test_tables_are_sorted_and_kept_alike(tmp_path: Path, name: str) -> None:
    """A log that a table can be sorted by is one that its times can be taken from."""
    path = tmp_path / "log.csv"
    columns = {"time": COLUMNS[name][::-1], "x": [1.0, 2.0], "action": [0, 1], "reward": [0.0, 1.0], "p": [0.5, 0.5]}
    pandas.DataFrame(columns).to_csv(path, index=False)
    data = LogDataModule(
        files=str(path), context=["x"], action="action", reward="reward", probability="p", time="time", part=(0.0, 1.0)
    )
    log = data.bandit_log()
    assert log.context.flatten().tolist() == [2.0, 1.0]
    assert log.time.tolist() == pytest.approx(SECONDS, abs=1e-6)


def test_one_time_is_read_as_one_of_many() -> None:
    for value in (5, -3.5, 2**53, 2**53 - 1, 1_700_000_000_250_000_000, 2**63, 2**63 + 2**12):
        assert as_times("time", np.array([5, value])).tolist() == [5.0, as_time("time", value)]


def test_missing_dates_are_refused_by_name() -> None:
    for gap in (np.array(["2026-01-01", "NaT"], dtype="datetime64[s]"), np.array([pandas.NaT, DATES[0]], dtype=object)):
        with pytest.raises((ValueError, TypeError), match=r"^time: expected "):
            as_times("time", gap)
    with pytest.raises(ValueError, match=r"^time: expected times without gaps, got 1 without a date"):
        as_times("time", np.array([pandas.NaT, pandas.Timestamp("2026-01-01")], dtype=object))


def test_other_numbers_keep_their_unit() -> None:
    for values in ([0, 1, 2], [1.7e9, 1.7e12], [1_700_000_000_250_000], [-5.0, 0.5], []):
        assert as_times("time", np.array(values)).tolist() == list(map(float, values))
    assert [as_time("time", value) for value in (5, 1.5, True, None, "noon")] == [5, 1.5, True, None, "noon"]


def test_a_log_of_decisions_takes_either() -> None:
    log = DecisionLog(":memory:")
    for i, time in enumerate((1_700_000_000.25, 1_700_000_000_250_000_000, np.int64(1_700_000_000_250_000_000))):
        assert log.decide(f"{i}", torch.eye(2), 0, 0.5, time=time).time == 1_700_000_000.25


def test_what_is_no_time_is_named() -> None:
    with pytest.raises(ValueError, match="time: expected times without gaps, got 1 without a date"):
        as_times("time", np.array(["2026-01-01", "NaT"], dtype="datetime64[s]"))
    for values in (np.array([True]), np.array(["noon"]), np.array([1j])):
        with pytest.raises(TypeError, match="time: expected numbers or dates"):
            as_times("time", values)
