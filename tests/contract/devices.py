"""Rule 10: no constant and no reading of values ties a learner to the CPU."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.contract.matrix import rule
from tests.fake_device import failures
from tests.learners import Case


@rule(10)
def runs_on_a_device_of_its_own(case: Case) -> None:
    """Nothing meets a tensor of another device, and no value is asked for, on a device that only shapes exist on."""
    assert failures(str(case)) == []


@rule(10)
def is_made_without_values(case: Case) -> None:
    """A learner is made under ``torch.device("meta")``, as a model is that is to be loaded, and in fake mode."""
    names = dict(case.build().named_buffers()).keys()
    for place in (torch.device("meta"), FakeTensorMode()):
        with place:
            made = case.build()
        assert dict(made.named_buffers()).keys() == names
    with torch.device("meta"):
        empty = case.build()
    assert not any(value.is_cpu for value in empty.buffers())
