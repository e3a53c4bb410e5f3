"""A full history refuses the next round."""

from typing import Any

import pytest
import torch

from tests.learners import differences, public_classes, snapshot
from torchonline.baselines import (
    AdaOFULRegression,
    BTCRegression,
    HeavyOFULRegression,
    HuberBanditRegression,
    TOFURegression,
)
from torchonline.baselines.generalized_linear.likelihood import LikelihoodEstimator
from torchonline.core.all_or_nothing import SNAPSHOT_BYTES


@pytest.mark.parametrize(
    "cls",
    [
        AdaOFULRegression,
        BTCRegression,
        HeavyOFULRegression,
        HuberBanditRegression,
        TOFURegression,
        *public_classes(LikelihoodEstimator),
    ],
)
def test_a_full_history_refuses_before_the_first_write(cls: Any) -> None:
    """The state is too large for a snapshot, and the learner is still whole."""
    learner, x, one = cls(2, horizon=9000), torch.tensor([0.6, 0.3], dtype=torch.float64), torch.tensor(1.0)
    assert sum(buffer.nbytes for buffer in learner.buffers()) > SNAPSHOT_BYTES
    learner.rounds.fill_(9000)
    before = snapshot(learner)
    with pytest.raises(ValueError, match=r"^horizon: expected at most 9000 rounds"):
        learner.step(x, one)
    assert differences(before, snapshot(learner)) == []
    learner.rounds.fill_(8999)
    learner.step(x, one)
    assert int(learner.rounds) == 9000
    learner.reset()
    learner.step(x, one)
    assert int(learner.rounds) == 1
