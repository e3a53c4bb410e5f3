"""Names of actions: which are accepted, and how a buffer holds them."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from torchonline.core.action_names import (
    LONGEST,
    checked_names,
    holds_text,
    ids_of_names,
    names_in_script,
    number_and_names,
    packed_names,
    unpacked_names,
)

ODD = ["home", 'a "b"', "back\\slash", "\\", '"', "日本", "é", "naïve café", "x" * LONGEST, "]}", "{0: 1}", " "]


@pytest.mark.parametrize("names", [["a"], ODD, [f"page {k}" for k in range(2000)]], ids=["one", "odd", "many"])
def test_a_buffer_holds_names(names: list[str]) -> None:
    known = dict(enumerate(names)) | {10**6: "late"}
    buffer = packed_names(known)
    assert (buffer.dtype, buffer.dim()) == (torch.uint8, 1)
    assert len(buffer).bit_count() == 1
    assert unpacked_names(buffer) == known
    assert torch.jit.script(names_in_script)(buffer) == known
    assert torch.jit.script(names_in_script)(None) == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[1]",
        b'["a"]',
        b'{"a": "b"}',
        b'{"0": 1}',
        b'{"0": ""}',
        b'{"-1": "a"}',
        b'{"0": "a", "1": "a"}',
        b"[" * 100_000,
    ],
)
def test_other_bytes_are_no_names(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^expected "):
        unpacked_names(torch.tensor(list(data), dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"^expected bytes"):
        unpacked_names(torch.zeros(3))


@pytest.mark.parametrize("value", [["a", "b"], ("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], dtype=object)])
def test_names_come_in_lists_and_arrays(value: Any) -> None:
    found = checked_names("actions", value)
    assert found == ["a", "b"]
    assert {type(one) for one in found} == {str}
    assert number_and_names("actions", value) == (2, ["a", "b"])
    assert number_and_names("actions", 3) == (3, None)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (["a", "a"], ValueError, "distinct names, got 'a' more than once"),
        ([], ValueError, "at least one name, got none"),
        (["a", 1], TypeError, "names that are text, got 1 of type int"),
        (["a", None], TypeError, "names that are text, got None"),
        ([""], ValueError, "1 to 200 characters, got an empty text"),
        (["x" * 201], ValueError, "1 to 200 characters, got 'xxx.* with 201"),
        (["a\nb"], ValueError, "with a control character"),
        (["\ud800"], ValueError, "with a control character"),
        ("home", TypeError, "a list of names, got the single text 'home'"),
        ([["a"], ["b"]], ValueError, "got an array with 2 dimensions"),
        ({"a", "b"}, TypeError, "an integer or a list of names, got set"),
        (2.5, TypeError, "an integer or a list of names, got float"),
        (b"ab", TypeError, "an integer or a list of names, got bytes"),
        (0, ValueError, "an integer above 0, got 0"),
    ],
)
def test_wrong_names_are_refused(value: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=rf"^actions: expected .*{message}"):
        number_and_names("actions", value)


def test_text_is_told_from_numbers() -> None:
    text: list[Any] = ["a", ["a"], [["a"], ["b"]], [None, "a"], np.array(["a"]), np.array("a"), np.str_("a")]
    assert all(map(holds_text, text))
    numbers: list[Any] = [1, [1], [], torch.tensor(1), np.int64(1), np.array([1]), [np.int64(1)], None, b"a", {"a": 1}]
    assert not any(map(holds_text, numbers))


def test_many_names_become_ids_in_their_shape() -> None:
    ids = {"a": 5, "b": 7}
    assert ids_of_names("action", "b", ids, ids) == 7
    found = ids_of_names("action", [["a", "b"], ["b", "b"]], ids, ids)
    assert found.tolist() == [[5, 7], [7, 7]]
    assert found.dtype == np.int64
    for bad, message in (
        (["a", "c"], "one of 'a', 'b', got 'c'"),
        (["a", 3], "only, got 3"),
        (["a", ["b"]], "only, got"),
    ):
        with pytest.raises((TypeError, ValueError), match=rf"^action: expected .*{re.escape(message)}"):
            ids_of_names("action", bad, ids, ids)
    known = dict.fromkeys(map(str, range(20)), 0)
    with pytest.raises(ValueError, match=r"and 10 more, got 'zz'$"):
        ids_of_names("action", "zz", known, known)
