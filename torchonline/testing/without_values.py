"""Rule 10: no constant and no reading of values ties a learner to the CPU."""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchonline.testing.rules import rule
from torchonline.testing.subject import EstimatorSubject, Subject
from torchonline.testing.tools import require, snapshot


@rule(10)
def is_made_without_values(subject: Subject) -> None:
    """A learner can be made under ``torch.device("meta")`` and in fake mode."""
    names = dict(subject.build().named_buffers()).keys()
    for place in (torch.device("meta"), FakeTensorMode()):
        with place:
            made = subject.build()
        require(dict(made.named_buffers()).keys() == names, f"made under {place}: the buffers have other names")
    with torch.device("meta"):
        empty = subject.build()
    real = [name for name, value in empty.state_dict().items() if value.is_cpu]
    require(not real, f"made under torch.device('meta'): {real} are on the CPU")


@rule(10, "estimators")
def blocks_need_no_values(subject: EstimatorSubject) -> None:
    """Blocks of tensors without values are learnt: no branch asks for a number."""
    if not subject.build().has_blocks:
        return
    shapes = {name: value.shape for name, value in snapshot(subject.build(batch_shape=(2,))).items()}
    for device, place in (("meta", torch.device("meta")), (None, FakeTensorMode())):
        with place:
            learner = subject.build(batch_shape=(2,), device=device, validate=False)
            log: tuple[Any, ...] = torch.randn(2, 7, subject.dim), torch.randn(2, 7, *subject.output_shape)
            learner.learn(*log)
            learner.learn(*log, block_size=4, mask=torch.ones(2, 7, dtype=torch.bool))
            state = learner.state_dict()
            require({name: value.shape for name, value in state.items()} == shapes, "a buffer has another shape")
