"""What docs/limits.md says of exported files: values are refused by a flag, and rounds have a noise scale where asked to."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.export import ExportedProgram

from torchonline import OFUL
from torchonline.export import to_torchscript

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
ROUND = torch.tensor([[0.0, 0.0], [1.0, 0.5]]).double(), torch.tensor(1)
REWARD, LEARN = torch.tensor(1.0).double(), torch.tensor(True)
CHOICE = torch.eye(2).double().unsqueeze(0), torch.ones(1, 2, dtype=torch.bool)


def test_the_page_has_the_section() -> None:
    section = PAGE.partition("## Exported files\n")[2].partition("\n## ")[0]
    for words in (
        "returns `learnt` False",
        "`to_program(..., noise_scale=True)`",
        "TorchScript files take one in each call",
    ):
        assert words in section


def test_a_script_takes_a_noise_scale_and_refuses_values() -> None:
    policy = OFUL(2)
    script = to_torchscript(policy)
    assert not script.step(*ROUND, torch.nan * REWARD)
    assert torch.equal(script.estimator.V, policy.estimator.V)
    assert script.step(*ROUND, REWARD, torch.tensor(3.0).double())
    policy.step(*ROUND, REWARD, noise_scale=3.0)
    torch.testing.assert_close(script.estimator.V, policy.estimator.V)


@pytest.mark.parametrize("has_scale", [False, True])
def test_a_program_takes_a_noise_scale_where_asked_to(
    has_scale: bool, oful_program: Callable[..., ExportedProgram]
) -> None:
    policy = OFUL(2)
    program = oful_program(noise_scale=has_scale).module()
    scale = (torch.tensor(3.0).double(),) if has_scale else ()
    state = dict(program.named_buffers())
    _, learnt = program(*ROUND, torch.nan * REWARD, LEARN, *CHOICE, *scale)
    assert not learnt
    assert torch.equal(state["policy.estimator.V"], policy.estimator.V)
    assert program(*ROUND, REWARD, LEARN, *CHOICE, *scale)[1]
    policy.step(*ROUND, REWARD, noise_scale=3.0 if has_scale else None)
    torch.testing.assert_close(state["policy.estimator.V"], policy.estimator.V)
