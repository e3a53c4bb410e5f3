"""Steps, resets and loads that are interrupted: what was torn stays torn until it is put right."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchonline import RidgeRegression
from torchonline.core.all_or_nothing import all_or_nothing_with


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


def test_a_load_that_replaces_buffers_is_undone() -> None:
    """With assign=True other tensors take their places: after an interruption the old ones are back."""
    learner, other = RidgeRegression(2), RidgeRegression(2)
    other.step(torch.ones(2), 1.0)
    load, before, state = learner._load_own, dict(learner.named_buffers()), other.state_dict()

    def halfway(*arguments: Any) -> None:
        load(*arguments)
        raise KeyboardInterrupt

    vars(learner)["_load_own"] = halfway
    with pytest.raises(KeyboardInterrupt):
        learner.load_state_dict(state, assign=True)
    assert all(buffer is before[name] for name, buffer in learner.named_buffers())
    assert int(learner.rounds) == 0


@pytest.mark.parametrize(("was_torn", "is_owner_torn"), [(False, False), (True, False), (False, True)])
def test_a_snapshot_of_an_owner_clears_no_older_mark(was_torn: bool, is_owner_torn: bool) -> None:
    """The learner is whole after an interrupt, unless it or its owner was torn before."""
    learner, owner = RidgeRegression(2), SimpleNamespace()
    learner.__dict__["_is_torn"] = was_torn
    if is_owner_torn:
        owner._is_torn = True
    with pytest.raises(KeyboardInterrupt):
        all_or_nothing_with(learner, owner, list(learner.state().values()), interrupted)
    assert learner._is_torn is (was_torn or is_owner_torn)


def test_an_error_in_the_snapshot_of_an_owner_is_raised_as_it_is() -> None:
    learner = RidgeRegression(2)
    with pytest.raises(TypeError, match="doesn't apply to"):
        all_or_nothing_with(learner, SimpleNamespace(), ["not a tensor"], interrupted)
    assert not learner._is_torn
