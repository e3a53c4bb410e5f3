"""Heads whose actions come and go: embeddings at the end, or models of their own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchonline
from tests.learners import close, differences, snapshot
from torchonline import OFUL, HybridArms, RidgeRegression
from torchonline.export import to_torchscript
from torchonline.models import BanditHead

pytestmark = pytest.mark.fast

EMBEDDINGS = torch.tensor([[1.0, 0.0], [0.5, -1.0], [0.0, 2.0]], dtype=torch.float64)


def head(combine: str, rows: int = 3, **options: Any) -> BanditHead:
    torch.manual_seed(0)
    encoder = nn.Linear(3, 2, dtype=torch.float64)
    policy = OFUL(2 if combine == "product" else 4, **options)
    return BanditHead(encoder, policy, actions=EMBEDDINGS[:rows], combine=combine).eval()


@pytest.mark.parametrize("combine", ["product", "outer"])
def test_a_head_with_added_embeddings_is_one_that_began_with_them(combine: str) -> None:
    grown, whole = head(combine, 2), head(combine)
    x = torch.randn(5, 3, dtype=torch.float64)
    grown.step(x[0], 1, 1.0)
    whole.step(x[0], 1, 1.0)
    assert grown.add_actions(EMBEDDINGS[2:].numpy()) == [2]
    assert grown.number_of_actions() == 3
    for each in (grown, whole):
        each.step(x[1:3], [2, 0], [0.5, 0.0])
    assert differences(snapshot(grown), snapshot(whole)) == []
    close(grown(x), whole(x), 0.0)
    mask = [True, False, True]
    assert grown.select(x, mask).tolist() == whole.select(x, mask).tolist()
    script = to_torchscript(grown, example=x)
    close(script(x), whole(x), 1e-12)
    again = head(combine)
    again.load_state_dict(grown.state_dict())
    close(again(x), grown(x), 0.0)
    with pytest.raises(RuntimeError, match="actions"):
        head(combine, 2).load_state_dict(grown.state_dict())


@pytest.mark.parametrize("wrong", [2, [1.0, 2.0], [[1.0, 2.0, 3.0]], [[1.0, np.nan]], ["news"], torch.zeros(0, 2)])
def test_wrong_embeddings_are_refused_by_name(wrong: Any) -> None:
    one = head("product")
    with pytest.raises((TypeError, ValueError), match=r"^actions: expected "):
        one.add_actions(wrong)
    with pytest.raises(TypeError, match=r"^prior: expected None, because the head has embeddings"):
        one.add_actions(EMBEDDINGS, prior="pooled", rounds=2.0)
    with pytest.raises(TypeError, match=r"^remove_actions: expected .*got one in which its actions have embeddings$"):
        one.remove_actions([0])
    assert one.number_of_actions() == 3


def test_models_of_their_own_come_and_go() -> None:
    one = BanditHead(nn.Identity(), torchonline.bandit(2, actions=["home", "sale"], scale=False))
    one.step(torch.ones(2), "sale", 1.0)
    assert one.add_actions(["news"], prior="pooled", rounds=3.0) == [2]
    one.remove_actions(["home"])
    assert (one.action_ids, one.action_names) == ([1, 2], ["sale", "news"])
    hybrid = BanditHead(nn.Identity(), HybridArms(RidgeRegression(2), 2, embeddings=EMBEDDINGS[:2]))
    assert hybrid.add_actions(embeddings=EMBEDDINGS[2:]) == [2]
    assert hybrid.policy.embeddings.shape == (3, 2)


def test_inputs_for_each_arm_have_no_actions_to_add() -> None:
    one = BanditHead(nn.Identity(), OFUL(2))
    calls: list[Callable[[], Any]] = [one.add_actions, lambda: one.remove_actions([0])]
    for call in calls:
        with pytest.raises(TypeError, match=r"got one in which each action has its own inputs$"):
            call()
