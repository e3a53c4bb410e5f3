"""Learners as arguments of new processes, and learners that are built in inference mode."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import torchonline
from tests import golden
from tests.core.test_golden import FILES
from tests.learners import differences, snapshot
from tests.process_groups import CONTEXT
from torchonline import UCB, DisjointArms, RidgeRegression, StandardScaler
from torchonline.models import BanditHead
from torchonline.privacy import PrivateLearner

OPTIONS = {name: entry["options"] for file in FILES.values() for name, entry in file.items() if name != "ParameterFree"}


def every_learner() -> dict[str, Any]:
    """One of each public class with a state."""
    return {name: golden.build(name, options) for name, options in OPTIONS.items()}


def sums(modules: dict[str, nn.Module]) -> dict[str, list[float]]:
    """The sums of all buffers, as plain numbers: a tensor would be mapped from the child's memory."""
    return {name: [float(buffer.double().sum()) for buffer in module.buffers()] for name, module in modules.items()}


def answer(send: Any, modules: dict[str, nn.Module]) -> None:
    send.send(sums(modules))


class Rows(Dataset[Tensor]):
    """A dataset that holds a learner."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Tensor:
        return self.policy.predict(torch.eye(2)[index])


def ask_child(context: Any, modules: dict[str, nn.Module]) -> dict[str, list[float]]:
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(send, modules))
    process.start()
    send.close()
    try:
        assert receive.poll(240.0)
        return receive.recv()
    finally:
        process.join()


def test_every_learner_can_be_an_argument_of_a_new_process() -> None:
    """The memory of its copies lives until the child has mapped it."""
    # Each buffer takes a file descriptor, of which Python sends at most 250 at once.
    groups: list[dict[str, nn.Module]] = [{}]
    for name, learner in every_learner().items():
        if sum(len(list(each.buffers())) for each in [*groups[-1].values(), learner]) > 200:
            groups.append({})
        groups[-1][name] = learner
    for group in groups:
        assert ask_child(CONTEXT, group) == sums(group)


def test_a_dataset_of_a_worker_that_is_not_forked_may_hold_a_learner() -> None:
    policy = DisjointArms(RidgeRegression(3), 3, scaler=StandardScaler(2))
    for k in range(3):
        policy.step(torch.ones(2), k, 1.0)
    loader = DataLoader(Rows(policy), num_workers=1, multiprocessing_context=CONTEXT)
    assert torch.equal(torch.cat(list(loader)), policy.predict(torch.eye(2)))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_learner_that_is_built_in_inference_mode_learns_outside(name: str) -> None:
    """It can be written, loaded, reset, moved and copied like any other."""
    plain = golden.build(name, OPTIONS[name])
    with torch.inference_mode():
        learner = golden.build(name, OPTIONS[name])
        twin = copy.deepcopy(learner).to(torch.float32).to(torch.float64)
        assert not any(buffer.is_inference() for each in (learner, twin) for buffer in each.buffers())
    if isinstance(plain, PrivateLearner):
        return  # a load counts as a continuation
    learner.load_state_dict(plain.state_dict())
    assert differences(snapshot(plain), snapshot(learner)) == []
    learner.policy.reset() if isinstance(learner, BanditHead) else learner.reset()
    twin.state_dict(keep_vars=True).popitem()[1].zero_()


def test_arms_that_are_added_in_inference_mode_learn_outside() -> None:
    """As in the validation of Lightning."""
    arms, fixed = torchonline.bandit(2, actions=2), torchonline.FixedArms(UCB(RidgeRegression(2)), torch.eye(2))
    with torch.inference_mode():
        arms.add_actions(1)
        fixed.add_arms(torch.ones(1, 2))
        head = BanditHead(nn.Identity(), UCB(RidgeRegression(2)), actions=torch.eye(2))
        head.to(torch.float64)
    arms.step(torch.ones(2), 2, 1.0)
    fixed.step(None, 2, 1.0)
    head.step(torch.ones(2, 2), [0, 1], [1.0, 0.0])
    for policy in (arms, fixed, head):
        assert not any(buffer.is_inference() for buffer in policy.buffers())
        policy.reset()
