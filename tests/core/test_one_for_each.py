"""Tests of options with a number for each of several things, and of former names of options."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from torchonline.core.checks import one_for_each, positive
from torchonline.core.options import renamed_option


@pytest.mark.parametrize(
    "value",
    [
        2,
        [[2.0, 2], [2.0, np.float64(2.0)], (2.0, 2.0)],
        torch.full((3, 2), 2.0, requires_grad=True),
        torch.full((3, 2), 2, dtype=torch.int32),
        np.full((3, 2), 2.0),
    ],
)
def test_a_number_for_all_or_one_for_each(value: Any) -> None:
    numbers = one_for_each("size", value, (3, 2), positive)
    assert torch.equal(numbers, torch.full((3, 2), 2.0, dtype=torch.float64))


def test_a_number_for_nothing_in_particular() -> None:
    assert one_for_each("size", 2.0, (), positive).tolist() == 2.0
    assert one_for_each("size", torch.tensor(2.0), (), positive).tolist() == 2.0


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.0, ValueError, "size: expected a number above 0, got 0.0"),
        ("1", TypeError, "size: expected a number, got str"),
        (None, TypeError, "size: expected a number, got NoneType"),
        ([1.0, True], TypeError, "size: expected a number, got bool"),
        ([1.0, "1"], TypeError, "size: expected a number, got str"),
        ([1.0, [1.0]], TypeError, "size: expected a number, got list"),
        ([1.0, math.nan], ValueError, "size: expected a finite number, got nan"),
        (torch.tensor([1.0, -1.0]), ValueError, "size: expected a number above 0, got -1.0"),
        (torch.tensor([True, True]), TypeError, "size: expected a number, got bool"),
        (torch.ones(2, dtype=torch.complex64), TypeError, "size: expected a number, got complex"),
        ([1.0], ValueError, "size: expected shape (2), got (1)"),
        (torch.ones(()), ValueError, "size: expected shape (2), got ()"),
        (torch.ones(2, 2), ValueError, "size: expected shape (2), got (2, 2)"),
        ([], ValueError, "size: expected shape (2), got (0)"),
    ],
)
def test_what_is_wrong_is_refused_by_name(value: Any, error: type, text: str) -> None:
    with pytest.raises(error) as caught:
        one_for_each("size", value, (2,), positive)
    assert str(caught.value) == text


def test_broadcasting_is_for_those_who_ask() -> None:
    column = torch.tensor([[1.0], [2.0]])
    numbers = one_for_each("size", column, (2, 2), positive, broadcasts=True)
    assert numbers.tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert numbers.is_contiguous()
    with pytest.raises(ValueError, match=r"^size: expected a shape that broadcasts to \(3, 2\), got \(2, 1\)$"):
        one_for_each("size", column, (3, 2), positive, broadcasts=True)


def test_a_former_name_is_moved_with_a_warning() -> None:
    options = {"old": 1.0, "other": 2.0}
    with pytest.warns(DeprecationWarning, match=r"^old: this option is called new now$") as caught:
        renamed_option(options, "old", "new", stacklevel=2)
    assert options == {"other": 2.0, "new": 1.0}
    assert caught[0].filename == __file__
    renamed_option(options, "old", "new")
    assert options == {"other": 2.0, "new": 1.0}
    with pytest.raises(TypeError, match=r"^old: expected this option only under its name new, got both$"):
        renamed_option({"old": 1.0, "new": 2.0}, "old", "new")
