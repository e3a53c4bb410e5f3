"""On a GPU: no path waits for it with validate=False, it agrees with the CPU, and CUDA graphs replay rounds.

These tests need ``--device cuda``. Elsewhere, rule 10 of the contract stands in for them, on an imaginary device.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learners import round_of
from torchonline import (
    OFUL,
    AnytimeHeavyTailUCB,
    DisjointArms,
    HeavyTailRegression,
    LocalGLB,
    LocalGLMRegression,
    RidgeRegression,
)

pytestmark = [
    pytest.mark.any_device,
    pytest.mark.skipif("torch.get_default_device().type != 'cuda'", reason="needs --device cuda"),
]
DIM = 16
POLICIES = [OFUL, AnytimeHeavyTailUCB, LocalGLB]
MODELS = [RidgeRegression, HeavyTailRegression, LocalGLMRegression]


@contextmanager
def without_waiting() -> Iterator[None]:
    """Raise where the host waits for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def rounds(count: int) -> tuple[Tensor, Tensor]:
    x = torch.nn.functional.normalize(torch.randn(count, DIM, dtype=torch.float64), dim=-1)
    return x, torch.rand(count, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.parametrize("options", [{}, {"restart_every": 40}], ids=str)
@pytest.mark.parametrize("cls", POLICIES)
def test_no_path_waits_for_the_gpu(cls: Any, options: dict[str, Any]) -> None:
    if cls is LocalGLB and options:
        pytest.skip("it has no restarts")
    policy, (x, reward) = cls(DIM, validate=False, **options), rounds(64)
    arms = x.reshape(8, 8, DIM)
    log = round_of(policy, x, reward)
    with without_waiting():
        policy.step(x, log[1][0], reward[0])
        policy.learn(*log)
        policy.learn(*log, block_size=32)
        policy.select(arms)
    assert policy.estimator.rounds.is_cuda


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.parametrize("cls", MODELS)
def test_arms_with_a_model_each_do_not_wait_either(cls: Any) -> None:
    arms, (x, reward) = DisjointArms(cls(DIM, validate=False), 4), rounds(64)
    action = torch.randint(0, 4, (64,))
    with without_waiting():
        arms.learn(x, action, reward)
        arms.step(x[0], action[0], reward[0])
        arms.select(x)
    assert int(arms.rounds) == 65


@pytest.mark.parametrize("cls", MODELS)
def test_gpu_and_cpu_learn_the_same(cls: Any) -> None:
    here, there = cls(DIM, device="cpu"), cls(DIM)
    x, reward = rounds(3000)
    here.learn(x.cpu(), reward.cpu())
    there.learn(x, reward)
    torch.testing.assert_close(there.theta_hat.cpu(), here.theta_hat, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(there.radius().cpu(), here.radius(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cls", POLICIES)
def test_a_graph_replays_rounds(cls: Any) -> None:
    policy, twin, (x, reward) = cls(DIM, validate=False), cls(DIM, validate=False), rounds(20)
    arms, one, first, pay = x[:10].clone(), x[:1].clone(), torch.tensor(0), reward[0].clone()

    def play() -> Tensor:
        choice: Tensor = policy.select(arms)
        policy.step(one, first, pay)
        return choice

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        play()  # a first round, outside of the graph
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        choice = play()
    twin.load_state_dict(policy.state_dict())
    for features, number in zip(x, reward, strict=True):
        expected = twin.select(arms)
        twin.step(features[None], first, number)
        one.copy_(features[None])
        pay.copy_(number)
        graph.replay()
        assert torch.equal(choice, expected)
    torch.testing.assert_close(policy.estimator.theta_hat, twin.estimator.theta_hat, rtol=1e-9, atol=1e-9)
