"""Files under automatic mixed precision: statistics in float32 stay exact."""

import ast
import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch

import torchonline
from tests.learners import round_of
from torchonline import OFUL, OONS, AnytimeHeavyTailUCB, DisjointArms, LocalGLB, RidgeRegression
from torchonline.baselines import TOFU
from torchonline.export import to_program, to_torchscript
from torchonline.models import BanditHead

F = torch.float32
MAKERS: dict[str, Any] = {
    "OFUL": lambda: OFUL(8, dtype=F),
    "a batch": lambda: OFUL(8, dtype=F, batch_shape=(2,)),
    "AnytimeHeavyTailUCB": lambda: AnytimeHeavyTailUCB(8, dtype=F),
    "LocalGLB": lambda: LocalGLB(8, dtype=F),
    "arms with a model each": lambda: DisjointArms(RidgeRegression(8, dtype=F), 3),
    "TOFU": lambda: TOFU(8, horizon=40, dtype=F),
    "OONS": lambda: OONS(8, lipschitz=1.0, dtype=F, form="frozen"),
}


def rounds_of(learner: Any, count: int) -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    shape = learner.batch_shape
    found: list[tuple[torch.Tensor, ...]] = []
    for t in range(count):
        x = torch.nn.functional.normalize(torch.randn(*shape, 8, generator=generator), dim=-1)
        reward = torch.rand(shape, generator=generator)
        if isinstance(learner, OONS):
            found.append((x,))
        elif isinstance(learner, DisjointArms):
            found.append((x, torch.full(shape, t % 3), reward))
        else:
            found.append(round_of(learner, x, reward))
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


@pytest.mark.parametrize("name", ["OFUL", "a batch", "AnytimeHeavyTailUCB", "LocalGLB", "TOFU"])
def test_a_program_learns_the_same_under_autocast(name: str) -> None:
    learner = MAKERS[name]()
    program = to_program(learner)
    shape, found = learner.batch_shape, []
    arms, mask = torch.eye(8).expand(*shape, 1, 8, 8), torch.ones(*shape, 1, 8, dtype=torch.bool)
    for is_autocast in (False, True):
        module: Any = copy.deepcopy(program).module()  # modules of one program share its state
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            for round_ in rounds_of(learner, 30):
                module(*round_, torch.ones(shape, dtype=torch.bool), arms, mask)
        found.append({key: value.clone() for key, value in module.named_buffers()})
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=1e-5, atol=1e-5, msg=lambda text, k=key: f"{k}: {text}")


@pytest.mark.parametrize("form", ["script", "program"])
def test_only_the_encoder_of_a_head_is_under_autocast(form: str) -> None:
    """V V_inv = I holds beyond the seven digits of features in bfloat16."""
    torch.manual_seed(0)
    head = BanditHead(torch.nn.Linear(4, 8), OFUL(8, dtype=F))
    generator = torch.Generator().manual_seed(0)
    arms = torch.randn(30, 3, 4, generator=generator)
    file: Any = (
        to_torchscript(head, example=arms[0]) if form == "script" else to_program(head, example=arms[0]).module()
    )
    with torch.autocast("cpu", torch.bfloat16):
        for inputs in arms:
            action, reward = torch.tensor(1), torch.tensor(0.5)
            if form == "script":
                file.step(inputs, action, reward)
            else:
                mask = torch.ones(1, 3, dtype=torch.bool)
                file(inputs, action, reward, torch.tensor(True), inputs.unsqueeze(0), mask)
    found = {name.rpartition(".")[2]: buffer.double() for name, buffer in file.named_buffers()}
    assert int(found["rounds"]) == 30
    torch.testing.assert_close(found["V"] @ found["V_inv"], torch.eye(8).double(), rtol=0.0, atol=1e-4)


def test_products_of_learners_are_those_that_autocast_leaves_alone() -> None:
    """Files and programs keep products in float32 by ops.matmul alone; learners of Python alone have a context."""
    root, names = Path(torchonline.__file__).parent, {"matmul", "mm", "bmm", "mv", "addmm", "addmv", "addr", "einsum"}
    allowed = {"core/ops.py", "baselines/generalized_linear/multinomial.py"}
    # Files of these folders hold "@" in code that no file or program has: of NumPy, of constructors, of Python alone.
    free = ("baselines/generalized_linear", "convex", "environments", "metrics", "off_policy", "privacy/mechanisms")
    free += ("privacy/audit.py", "privacy/calibration.py", "regression/plots.py", "core/state_dict_checks.py")
    found = []
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            place = path.relative_to(root).as_posix()
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and not place.startswith(free):
                if place not in allowed:
                    found.append(f"{path.name}:{node.lineno}: @")
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
                if node.attr in names and place not in allowed:
                    found.append(f"{path.name}:{node.lineno}: torch.{node.attr}")
    assert found == []
