"""Columns of frames: all kinds of tables, errors that name all columns, and a cost in proportion to their number."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from torchonline.off_policy import BanditLog, from_frame, ips, target_probabilities
from torchonline.off_policy.columns import check_columns

ROLES = {"action": "item", "reward": "click", "probability": "p"}
VALUES: dict[str, Any] = {"item": [0, 1, 2], "click": [0.0, 1.0, 1.0], "p": [0.5, 0.25, 0.25], "age": [31, 27, 44]}


def arrow(values: Any) -> Any:
    return importlib.import_module("pyarrow").table(values)


LIBRARIES: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda values: importlib.import_module("pandas").DataFrame(values),
    "pandas, nullable": lambda values: importlib.import_module("pandas").DataFrame(values).convert_dtypes(),
    "polars": lambda values: importlib.import_module("polars").DataFrame(values),
    "Arrow table": arrow,
    "Arrow batch": lambda values: arrow(values).to_batches()[0],
}


@pytest.fixture(params=list(LIBRARIES))
def make(request: Any) -> Callable[[Any], Any]:
    return LIBRARIES[request.param]


def test_tables_of_all_libraries(make: Callable[[Any], Any]) -> None:
    log = from_frame(make(VALUES), context=["age"], **ROLES)
    assert (log.action.tolist(), log.context.tolist()) == ([0, 1, 2], [[31.0], [27.0], [44.0]])


def test_gaps_are_called_gaps(make: Callable[[Any], Any]) -> None:
    frame = make(VALUES | {"item": [0, None, 1], "click": [0.0, None, None]})
    message = (
        "^action: expected integers from 0, got 'item' with 1 gap; "
        "reward: expected a column of finite numbers, got 'click' with 2 gaps; fill gaps, or drop their rows$"
    )
    with pytest.raises(ValueError, match=message):
        from_frame(frame, context=["age"], **ROLES)


def test_missing_columns_are_listed_with_those_that_are_there(make: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match=r"action: .* got 'a'; it has 'item', 'click', 'p', 'age'; reward: .* got 'r'"):
        from_frame(make(VALUES), action="a", reward="r", probability="p")


def test_frames_out_of_memory_are_named() -> None:
    lazy = importlib.import_module("polars").DataFrame(VALUES).lazy()
    with pytest.raises(
        TypeError, match=r"^frame: expected a pandas or polars frame or an Arrow table in memory, got LazyFrame"
    ):
        from_frame(lazy, **ROLES)
    twice = importlib.import_module("pyarrow").Table.from_arrays([[0]] * 2, names=["item", "item"])
    with pytest.raises(ValueError, match=r"action: expected one column of the name 'item', got several"):
        from_frame(twice, **ROLES)


BAD: dict[str, tuple[Any, str]] = {
    "text": (["a", "b", "c"], r"text \('a'\)"),
    "amounts": (["1.5", "1,200.50", "3"], r"amounts as text \('1,200.50'\)"),
    "decimal commas": (["1,5", "2,5", "3,5"], r"amounts as text \('1,5'\)"),
    "percentages": (["5 %", "6 %", "7 %"], r"amounts as text \('5 %'\)"),
    "currencies": (["EUR 5", "EUR 6", "EUR 7"], r"amounts as text \('EUR 5'\)"),
    "dates": (["2024-01-02", "2024-01-03", "2024-01-04"], r"dates \('2024-01-02'\)"),
    "dates of another order": (["02.01.2024", "3.1.2024", "4.1.24"], r"dates \('02.01.2024'\)"),
    "times": (np.array(["2024-01-02"] * 3, dtype="datetime64[s]"), r"dates \('2024-01-02"),
    "numbers as text": (["1", "2", "3"], r"numbers as text \('1'\)"),
    "infinity": ([1.0, np.inf, 2.0], r"inf$"),
    "marks of gaps": (["1", "-", "3"], r"text among numbers \('-'\)"),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_what_is_wrong_with_a_column_is_named(kind: str) -> None:
    values, reason = BAD[kind]
    frame = importlib.import_module("pandas").DataFrame(VALUES | {"bad": values})
    with pytest.raises(
        (TypeError, ValueError), match=rf"^context: expected columns of finite numbers, got 'bad' with {reason}"
    ):
        from_frame(frame, context=["age", "bad"], **ROLES)


def test_long_lists_are_cut() -> None:
    frame = importlib.import_module("pandas").DataFrame(VALUES | {f"x{i}": ["a"] * 3 for i in range(500)})
    with pytest.raises(TypeError, match="and 490 more") as caught:
        from_frame(frame, context=[f"x{i}" for i in range(500)], **ROLES)
    assert len(str(caught.value)) < 1000


class Name(str):
    """A name that counts comparisons."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_cost_is_linear_in_the_number_of_columns() -> None:
    """Names are looked up, not searched: no pass over all columns for each."""
    width = 500
    names = [Name(f"x{i}") for i in range(width)]

    class Frame:
        looks = 0

        @property
        def columns(self) -> list[str]:
            Frame.looks += 1
            return [*names, *VALUES]

        def __getitem__(self, name: str) -> Any:
            class Series:
                def to_numpy(self) -> Any:
                    return np.array(VALUES.get(name, [0.5, 0.5, 0.5]))

            return Series()

    Name.compared = 0
    log: Any = from_frame(Frame(), context=[Name(name) for name in names], **ROLES)
    assert log.context.shape == (3, width)
    assert Frame.looks < 10
    assert Name.compared < 20 * width
    check_columns("context", names, reward=["click"])
    assert Name.compared < 30 * width


@pytest.mark.parametrize("above", [1e-7, 9e-6])
def test_rounding_above_1_is_1_for_the_log_and_for_the_target(above: float) -> None:
    probability = torch.tensor([1.0 + above, 0.5], dtype=torch.float64)
    log = BanditLog(arms=2, action=[0, 1], reward=[1, 0], probability=probability)
    assert log.probability.tolist() == [1.0, 0.5]
    target = torch.tensor([[1.0 + above, 0.0], [0.5, 0.5]], dtype=torch.float64)
    assert target_probabilities(log, target).tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert ips(log, target).value == 0.5


def test_a_probability_above_1_is_shown_with_all_digits() -> None:
    with pytest.raises(ValueError, match=r"^probability: expected values in \[1e-50, 1\], got 0.5 to 1.00002$"):
        BanditLog(arms=2, action=[0, 1], reward=[1, 0], probability=[1.00002, 0.5])
    log = BanditLog(arms=2, action=[0], reward=[1], probability=[0.5])
    with pytest.raises(ValueError, match=r"^target: expected probabilities"):
        target_probabilities(log, [[1.00002, 0.0]])
