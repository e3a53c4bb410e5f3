"""Files under automatic mixed precision: statistics in float32 stay exact."""

import io
from typing import Any

import pytest
import torch

from torchonline import OFUL, OONS, DisjointArms, HeavyTailUCB, LocalGLB, RidgeRegression
from torchonline.export import to_program, to_torchscript

F = torch.float32
MAKERS: dict[str, Any] = {
    "OFUL": lambda: OFUL(8, dtype=F),
    "a fleet": lambda: OFUL(8, dtype=F, batch_shape=(2,)),
    "HeavyTailUCB": lambda: HeavyTailUCB(8, dtype=F),
    "LocalGLB": lambda: LocalGLB(8, dtype=F),
    "arms with a model each": lambda: DisjointArms(RidgeRegression(8, dtype=F), 3),
    "OONS": lambda: OONS(8, lipschitz=1.0, dtype=F, form="frozen"),
}


def rounds_of(learner: Any, count: int) -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    shape = learner.batch_shape
    found: list[tuple[torch.Tensor, ...]] = []
    for t in range(count):
        x = torch.nn.functional.normalize(torch.randn(*shape, 8, generator=generator), dim=-1)
        reward = torch.rand(shape, generator=generator)
        action = (torch.full(shape, t % 3),) if isinstance(learner, DisjointArms) else ()
        found.append((x,) if isinstance(learner, OONS) else (x, *action, reward))
    return found


def buffers_after(module: Any, rounds: list[tuple[torch.Tensor, ...]], is_autocast: bool) -> dict[str, torch.Tensor]:
    with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast), torch.no_grad():
        for arguments in rounds:
            module.step(*arguments)
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


@pytest.mark.parametrize("name", MAKERS)
def test_a_script_learns_the_same_under_autocast(name: str) -> None:
    learner = MAKERS[name]()
    rounds, file = rounds_of(learner, 30), io.BytesIO()
    torch.jit.save(to_torchscript(learner), file)
    found = []
    for is_autocast in (False, True):
        file.seek(0)
        found.append(buffers_after(torch.jit.load(file), rounds, is_autocast))
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=1e-5, atol=1e-5, msg=lambda text, k=key: f"{k}: {text}")


@pytest.mark.parametrize("name", ["OFUL", "a fleet", "HeavyTailUCB", "LocalGLB"])
def test_a_program_learns_the_same_under_autocast(name: str) -> None:
    learner = MAKERS[name]()
    program = to_program(learner)
    shape, found = learner.batch_shape, []
    arms, mask = torch.eye(8).expand(*shape, 1, 8, 8), torch.ones(*shape, 1, 8, dtype=torch.bool)
    for is_autocast in (False, True):
        module: Any = program.module()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            for x, reward in rounds_of(learner, 30):
                module(x, reward, torch.ones(shape, dtype=torch.bool), arms, mask)
        found.append({key: value.clone() for key, value in module.named_buffers()})
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=1e-5, atol=1e-5, msg=lambda text, k=key: f"{k}: {text}")
