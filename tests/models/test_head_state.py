"""Loads and resets of heads, which have several parts, are all or nothing."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.interruption import interrupted
from torchonline import DisjointArms, LocalGLMRegression, Logistic, RidgeRegression, StandardScaler
from torchonline.export import to_torchscript
from torchonline.models import BanditHead


def head_of(**options: Any) -> BanditHead:
    return BanditHead(nn.Linear(4, 4), DisjointArms(RidgeRegression(4, **options), 2), scaler=StandardScaler(3))


def learnt() -> BanditHead:
    head = head_of()
    for action in (0, 1, 0):
        head.step(torch.rand(3), action, 1.0)
    return head


def state_of(head: BanditHead) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in head.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("assign", [False, True])
def test_a_refused_load_of_a_head_changes_nothing(assign: bool) -> None:
    """The encoder would come first, and the policy refuse its part."""
    head, other = learnt(), head_of(ridge=7.0)
    before, given = state_of(head), state_of(other)
    with pytest.raises(RuntimeError, match="ridge: the state was learnt with 7, this learner has 1"):
        head.load_state_dict(other.state_dict(), assign=assign)
    assert same(before, state_of(head))
    assert same(given, state_of(other))


@pytest.mark.parametrize("what", ["load", "reset"])
def test_an_interrupted_load_or_reset_of_a_head_is_all_or_nothing(what: str) -> None:
    head, target = learnt(), learnt()
    before = state_of(head)
    if what == "reset":
        target.load_state_dict(before)
        target.reset()
    after, line = state_of(target), 0
    while interrupted(head.reset if what == "reset" else lambda: head.load_state_dict(after), line):
        now = state_of(head)
        assert same(now, before) or same(now, after), f"torn at line {line}"
        head.load_state_dict(before)
        line += 7  # each load takes a thousand lines
    assert line > 50
    assert same(state_of(head), after)


def test_arms_with_bounded_features_are_exported_without_an_example() -> None:
    """The rounds that an export tries are no longer than the features that a learner takes."""
    for link in (Logistic(), None):
        options: dict[str, Any] = {} if link is None else {"link": link}
        file: Any = to_torchscript(DisjointArms(LocalGLMRegression(3, **options), 2))
        assert int(file.select(torch.zeros(3, dtype=torch.float64))) == 0
