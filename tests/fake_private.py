"""Runs private learners on a device that does not exist, alone: ``python -m tests.fake_private`` prints what fails.

A private learner reads the clock from its buffers, and noise is added on the host. Here the clock is told, and noise is none.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.fake_device import DEVICE, install
from tests.private_learners import CASES, DIM
from torchonline import DPHDB
from torchonline.privacy.learners.bandit import PrivateBandit
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.noise import noise_source


def fake_record(learner: Any) -> tuple[torch.Tensor, ...]:
    """A record in half precision, for each learner of a batch."""
    half = {"dtype": torch.bfloat16, "device": DEVICE}
    if isinstance(learner, PrivateBandit):
        action = torch.zeros(learner.batch_shape, dtype=torch.int64, device=DEVICE)
        return torch.zeros(*learner.batch_shape, DIM, **half), action, torch.zeros(learner.batch_shape, **half)
    return (torch.zeros(*learner.batch_shape, learner.points, DIM, **half),)


def on_the_device(self: Any, values: torch.Tensor, scale: float, law: str = "normal") -> torch.Tensor:
    """What comes back when noise has been added, or the place of the highest score."""
    if not scale > 0.0 or values.dtype != torch.float64:
        raise ValueError("expected float64 values, and noise")
    return values + 0.0 if law == "normal" else values.argmax(-1)


def problems(build: Any) -> Iterator[str]:
    """What goes wrong with a learner that is alone or a batch, moved to the device or made there."""
    for batch_shape, moved in itertools.product(((), (3,)), (False, True)):
        steps = itertools.count(1)
        PrivateLearner._next_step = lambda self, steps=steps: next(steps)  # type: ignore[method-assign]
        DPHDB._check_parts = lambda self, step: None  # type: ignore[method-assign]
        try:
            learner = build(batch_shape=batch_shape, device=None if moved else DEVICE)
            if moved:
                learner.to(DEVICE)
            record = fake_record(learner)
            for arguments in (record, (None,), record, record):
                learner.step(*arguments)
            tensors = list(learner.buffers())
            strangers = {str(tensor.device) for tensor in tensors} - {f"{DEVICE}:0"}
            if strangers:
                yield f"{batch_shape}: found tensors on {sorted(strangers)}"
        except Exception as error:
            yield f"{batch_shape}: {type(error).__name__}: {str(error).splitlines()[0]}"


def main() -> None:
    """Print what fails, by learner."""
    install()
    for source in (type(noise_source("torch")), type(noise_source("csprng"))):
        source.add_normal = source.highest = on_the_device  # type: ignore[method-assign]
    with FakeTensorMode(allow_non_fake_inputs=True):
        print(json.dumps({str(case): list(problems(case.build)) for case in CASES}))


if __name__ == "__main__":
    main()
