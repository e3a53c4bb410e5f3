"""Encoders and policies from numbers and words."""

import pytest
import torch

import torchonline
from torchonline.models import mlp, recommended_policy


def test_layers() -> None:
    assert mlp([4, 8, 2], activation="tanh")(torch.rand(5, 4)).shape == (5, 2)
    with pytest.raises(ValueError, match="widths: expected the width of the input and of at least one layer"):
        mlp([4])
    with pytest.raises(ValueError, match="activation: expected"):
        mlp([4, 2], activation="elu")


@pytest.mark.parametrize("actions", [None, 3])
def test_it_is_the_recommended_bandit(actions: int | None) -> None:
    assert repr(recommended_policy(4, "heavy", actions)) == repr(torchonline.bandit(4, "heavy", actions))
