"""Blocks of rounds and steps under `torch.compile`, as one graph."""

from typing import Any

import pytest
import torch
from torch import Tensor

from torchonline import OFUL, AnytimeHeavyTailUCB, DisjointArms, RidgeRegression


def rounds(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, dtype=torch.float64), (torch.rand(count) < 0.5).double()


def assert_equal_states(one: Any, other: Any) -> None:
    theirs = other.state()
    for name, buffer in one.state().items():
        torch.testing.assert_close(theirs[name], buffer, rtol=1e-7, atol=1e-9)


def compiled(function: Any) -> Any:
    """Compile by the backend that ends where those with machine code begin: it has lost writes to single numbers too."""
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("make", [lambda: OFUL(3), lambda: AnytimeHeavyTailUCB(3, restart_every=25)])
def test_compiled_blocks_and_steps_agree(make: Any) -> None:
    def play(policy: Any, x: Tensor, reward: Tensor, mask: Tensor) -> None:
        action = torch.zeros_like(reward, dtype=torch.int64)
        policy.learn(x[:, None], action, reward, block_size=20, mask=mask)
        policy.step(x, torch.tensor(3), reward[0])

    policy, twin, same = make(), make(), compiled(play)
    for _ in range(3):
        arguments = (*rounds(20), torch.rand(20) < 0.8)
        play(policy, *arguments)
        same(twin, *arguments)
    assert_equal_states(policy.estimator, twin.estimator)


def test_compiled_blocks_and_steps_of_arms_agree() -> None:
    def play(policy: Any, x: Tensor, action: Tensor, reward: Tensor) -> None:
        policy.learn(x, action, reward, block_size=20)
        policy.step(x[0], action[0], reward[0])

    (policy, twin), same = (DisjointArms(RidgeRegression(3), actions=4) for _ in range(2)), compiled(play)
    for _ in range(3):
        x, reward = rounds(20)
        arguments = (x, torch.randint(4, (20,)), reward)
        play(policy, *arguments)
        same(twin, *arguments)
    assert_equal_states(policy, twin)
