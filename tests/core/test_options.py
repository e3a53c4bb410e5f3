"""Tests of the text of constructor options."""

from typing import Any

import pytest
import torch
from torch import nn

from torchonline.core.options import described


class Anything:
    """Class with options of all kinds."""

    def __init__(self, dim: int, *rest: float, link: object, scale: Any = 1.0, device: Any = None) -> None:
        self.dim, self.rest, self.link, self.scale, self.device = dim, rest, link, scale, device


def test_required_arguments_come_first_and_defaults_are_left_out() -> None:
    class LateRequired:
        def __init__(self, *, scale: float = 1.0, horizon: int) -> None:
            self.scale, self.horizon, self.other = scale, horizon, "no argument"

    assert described(LateRequired(horizon=7), vars(LateRequired(horizon=7))) == "horizon=7"
    changed = LateRequired(scale=0.5, horizon=7)
    assert described(changed, vars(changed)) == "horizon=7, scale=0.5"
    # Only names that are given are shown, and 1 is the default 1.0.
    assert described(changed, {"scale": 0.5}) == "scale=0.5"
    assert described(changed, {"horizon": 7, "scale": 1}) == "horizon=7"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (float("inf"), "inf"),
        (True, "True"),
        ("theory", "'theory'"),
        ((3,), "(3,)"),
        ((2, 0.5), "(2, 0.5)"),
        ([1.5], "[1.5]"),
        (torch.ones(2, 3), "<torch.float32 of shape (2, 3)>"),
        (torch.ones(2, device="meta"), "<torch.float32 of shape (2) on meta>"),
        (torch.float32, "torch.float32"),
        (torch.device("cuda", 1), "'cuda:1'"),
        (torch.sigmoid, "sigmoid"),
        (nn.Linear, "Linear"),
        (nn.Tanh(), "Tanh()"),
        (nn.Sequential(nn.Tanh()), "Sequential(...)"),
        (None, "None"),
    ],
)
def test_values_are_one_short_line(value: Any, text: str) -> None:
    anything = Anything(2, link=value)
    assert described(anything, {"link": value}) == f"link={text}"


def test_tensors_equal_a_default_only_if_they_are_it() -> None:
    default = torch.ones(2)

    class WithTensor:
        def __init__(self, x: Any = default, y: Any = None) -> None:
            self.x, self.y = x, y

    assert described(WithTensor(), vars(WithTensor())) == ""
    both = WithTensor(torch.ones(2), torch.ones(2))
    assert described(both, vars(both)) == "x=<torch.float32 of shape (2)>, y=<torch.float32 of shape (2)>"
