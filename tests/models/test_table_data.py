"""The data module of tables: its batches, its parts, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch

from torchonline.models import LogDataModule, TableDataModule

TABLE = "day,a,b,r0,r1\n2024-01-03,1,10,0,1\n2024-01-01,2,20,1,0\n2024-01-02,3,30,0.5,0.25\n2024-01-04,4,40,1,1\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


def rows(data: TableDataModule) -> list[list[float]]:
    data.setup("fit")
    return [inputs.tolist() for batch, _ in data.train_dataloader() for inputs in batch]


def test_rewards_of_all_arms_in_the_order_of_time(table: Path) -> None:
    data = TableDataModule(table, inputs=["a", "b"], targets=["r0", "r1"], time="day", batch_size=3)
    assert rows(data) == [[2.0, 20.0], [3.0, 30.0], [1.0, 10.0], [4.0, 40.0]]
    _, rewards = next(iter(data.test_dataloader()))
    assert rewards.tolist() == [[1.0, 0.0], [0.5, 0.25], [0.0, 1.0]]


@pytest.mark.fast
def test_labels(table: Path) -> None:
    data = TableDataModule(table, inputs=["a"], targets="r0", batch_size=4, dtype=torch.float64)
    (_, labels) = next(iter(data.predict_dataloader()))
    assert (labels.shape, labels.dtype) == ((4,), torch.float64)


def test_patterns_match_what_is_left(table: Path) -> None:
    """In the order of the file, and no column that has another role."""
    data = TableDataModule(table, inputs=["*"], targets="r0", time="day")
    assert rows(data)[0] == [2.0, 20.0, 0.0]  # a, b, r1
    log = LogDataModule(table, context=["*", "a"], action="b", reward="r1", time="day")
    log.setup()
    assert next(iter(log.train_dataloader())).inputs.tolist() == [[1.0, 2.0]]  # r0, a


def test_learnt_rounds_are_known(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the path of the file, or by its name; in another order nobody knows which were learnt."""
    monkeypatch.chdir(table.parent)
    columns: dict[str, Any] = {"inputs": ["a"], "targets": "r0"}
    state = TableDataModule(table.name, part=(0.0, 0.5), **columns).state_dict()
    other = table.with_name("other.csv")
    for files, time, parts, may_be in (
        (table.name, None, [(0.25, 0.5)], False),
        (table, None, [(0.25, 0.5)], False),
        (table, "day", [], True),
        ([other, table], None, [], True),
        (other, "day", [], False),
    ):
        data = TableDataModule(files, time=time, part=(0.25, 1.0), **columns)
        data.load_state_dict(state)
        assert (data.learnt_parts(), data.may_be_learnt()) == (parts, may_be)
    monkeypatch.chdir(table.parent.parent)  # as a project that has moved
    data = TableDataModule(table.name, **columns)
    data.load_state_dict(state)
    assert data.learnt_parts() == [(0.0, 0.5)]


@pytest.mark.parametrize(("part", "first"), [((0.0, 0.5), [1.0, 2.0]), ([0.5, 1.0], [3.0, 4.0]), ((0.3, 0.6), [2.0])])
def test_parts_of_tables_and_logs(table: Path, part: Any, first: list[float]) -> None:
    """Parts that meet have all rounds between them, each once."""
    data = TableDataModule(table, inputs=["a", "b"], targets="r0", part=part)
    assert [row[0] for row in rows(data)] == first
    log = LogDataModule(table, context=["a"], action="b", reward="r0", part=part)
    assert [batch.inputs.item() for batch in log.train_dataloader()] == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": "a"}, "inputs: expected names of columns, got 'a'"),
        ({"targets": []}, "targets: expected names of columns"),
        ({"part": (0.5, 0.5)}, "part: expected 0 <= first < last <= 1"),
        ({"part": 0.5}, "part: expected two numbers"),
        ({"part": (0.0, 0.1)}, "part: expected at least one of 4 rounds"),
        ({"targets": "day"}, "targets: expected a column of finite numbers, got 'day' with dates"),
        ({"inputs": ["a", "r0"]}, r"inputs: expected no column of the targets, .* got \['r0'\]"),
        ({"inputs": ["c*"]}, r"files: expected columns that match 'c\*'"),
        (
            {"inputs": ["c"]},
            r"files: expected the columns .* got none of 'c' in table.csv, which has 'day', 'a', 'b', 'r0', 'r1'",
        ),
    ],
)
def test_bad_arguments(table: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        TableDataModule(table, **{"inputs": ["a"], "targets": "r0"} | options).setup()
