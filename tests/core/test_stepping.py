"""Steps, resets and loads that are interrupted: what was torn stays torn until it is put right."""

from typing import Any

import pytest
import torch

from torchonline import RidgeRegression


def interrupted(*arguments: Any) -> None:
    raise KeyboardInterrupt


def torn() -> RidgeRegression:
    learner = RidgeRegression(2)
    learner.step(torch.tensor([1.0, 0.0]), torch.tensor(2.0))
    vars(learner)["_is_torn"] = True
    return learner


def test_an_interrupted_reset_does_not_mend_a_torn_state() -> None:
    learner = torn()
    vars(learner)["_reset"] = interrupted
    with pytest.raises(KeyboardInterrupt):
        learner.reset()
    vars(learner).pop("_reset")
    with pytest.raises(RuntimeError, match="half written; call reset"):
        learner.step(torch.tensor([1.0, 0.0]), torch.tensor(2.0))
    learner.reset()
    learner.step(torch.tensor([1.0, 0.0]), torch.tensor(2.0))


@pytest.mark.parametrize("assign", [False, True])
def test_an_interrupted_load_does_not_mend_a_torn_state(assign: bool) -> None:
    learner, state = torn(), RidgeRegression(2).state_dict()
    vars(learner)["_load_own"] = interrupted
    with pytest.raises(KeyboardInterrupt):
        learner.load_state_dict(state, assign=assign)
    vars(learner).pop("_load_own")
    with pytest.raises(RuntimeError, match="half written; call reset"):
        learner.state_dict()
    learner.load_state_dict(state, assign=assign)
    learner.step(torch.tensor([1.0, 0.0]), torch.tensor(2.0))


def test_a_load_that_replaces_buffers_is_not_undone_by_halves() -> None:
    """With assign=True the old buffers are gone: after an interruption the learner refuses."""
    learner, state = RidgeRegression(2), RidgeRegression(2).state_dict()
    load = learner._load_own

    def halfway(*arguments: Any) -> None:
        load(*arguments)
        raise KeyboardInterrupt

    vars(learner)["_load_own"] = halfway
    with pytest.raises(KeyboardInterrupt):
        learner.load_state_dict(state, assign=True)
    with pytest.raises(RuntimeError, match="half written"):
        learner.state_dict()
