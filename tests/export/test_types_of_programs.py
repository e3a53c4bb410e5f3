"""A program converts the features, the reward and the noise scale of a round to the type of its state."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch.export import ExportedProgram

from torchonline import OFUL, FixedArms
from torchonline.export import to_program

D = torch.float64
ARMS = torch.eye(3, dtype=D)[:, :2]


@pytest.mark.parametrize("kind", ["policy", "fixed"])
def test_a_program_converts_a_round_of_another_type(kind: str, oful_program: Callable[..., ExportedProgram]) -> None:
    fixed = FixedArms(OFUL(2), ARMS)
    exported = oful_program(noise_scale=True) if kind == "policy" else to_program(fixed, noise_scale=True)
    program = exported.module()
    learn, reward, scale = torch.tensor(True), 0.75, 0.5
    for dtype in (torch.float32, D, torch.bfloat16):
        twin = copy.deepcopy(program)
        past = (ARMS.to(dtype), torch.tensor(0)) if kind == "policy" else (torch.tensor(0),)
        mask = torch.ones(1, 3, dtype=torch.bool)
        offered = (ARMS[None], mask) if kind == "policy" else (mask[0],)
        _, learnt = twin(*past, torch.tensor(reward, dtype=dtype), learn, *offered, torch.tensor(scale, dtype=dtype))
        assert bool(learnt)
        wanted = OFUL(2)
        wanted.step(ARMS, 0, reward, noise_scale=scale)
        theta = next(value for name, value in twin.named_buffers() if name.endswith("theta_hat"))
        torch.testing.assert_close(theta, wanted.theta_hat, rtol=1e-12, atol=1e-12)
