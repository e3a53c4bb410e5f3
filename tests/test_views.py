"""One learner on the CPU runs on NumPy views of its buffers: whatever moves the buffers, it reads and writes the real ones."""

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.learners import DIM
from torchonline import OFUL, HeavyTailUCB

D = torch.float64
STEPS = 30


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(STEPS, DIM, generator=generator, dtype=D), torch.randn(STEPS, generator=generator, dtype=D)


def give_new_memory(policy: HeavyTailUCB) -> HeavyTailUCB:
    for buffer in policy.buffers():
        buffer.data = buffer.clone()
    return policy


def put_new_buffers(policy: HeavyTailUCB) -> HeavyTailUCB:
    for name, buffer in policy.estimator.named_buffers():
        policy.estimator.register_buffer(name, buffer.clone())
    return policy


def move_one(policy: HeavyTailUCB) -> HeavyTailUCB:
    policy.estimator.P.data = policy.estimator.P.clone()
    return policy


def assign(policy: HeavyTailUCB) -> HeavyTailUCB:
    policy.load_state_dict({name: value.clone() for name, value in policy.state_dict().items()}, assign=True)
    return policy


def load(policy: HeavyTailUCB) -> HeavyTailUCB:
    state = {name: value.clone() for name, value in policy.state_dict().items()}
    policy.estimator.reset()
    policy.load_state_dict(state)
    return policy


def save_and_load(policy: HeavyTailUCB) -> HeavyTailUCB:
    file = io.BytesIO()
    torch.save(policy, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


MOVES: list[Callable[[HeavyTailUCB], HeavyTailUCB]] = [
    give_new_memory,
    put_new_buffers,
    move_one,
    assign,
    load,
    save_and_load,
    copy.deepcopy,
    lambda policy: pickle.loads(pickle.dumps(policy)),
    lambda policy: policy.share_memory(),
    lambda policy: policy._apply(torch.clone),
    lambda policy: policy.train(),
]


@pytest.mark.parametrize("move", MOVES)
def test_moved_buffers_are_found(move: Callable[[HeavyTailUCB], HeavyTailUCB]) -> None:
    """A learner whose buffers move in the middle ends where one that was left alone does."""
    x, reward = data()
    policy, alone = HeavyTailUCB(DIM), HeavyTailUCB(DIM)
    for t in range(STEPS):
        if t == STEPS // 2:
            policy = move(policy)
        assert torch.equal(policy.select(x), alone.select(x))
        policy.step(x[t], reward[t])
        alone.step(x[t], reward[t])
    for name, buffer in policy.named_buffers():
        assert torch.equal(buffer, alone.get_buffer(name)), name


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy)), save_and_load])
def test_a_copy_leaves_the_original_alone(duplicate: Callable[[HeavyTailUCB], HeavyTailUCB]) -> None:
    x, reward = data()
    policy = HeavyTailUCB(DIM)
    policy.step(x[0], reward[0])
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    other = duplicate(policy)
    other.step(x[1], reward[1])
    assert other.estimator.rounds == 2
    for name, value in policy.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_changed_option_is_seen() -> None:
    """Between two calls on the same buffers."""
    x, reward = data()
    policy, fresh = OFUL(DIM), OFUL(DIM, radius_scale=0.1)
    for learner in (policy, fresh):
        learner.step(x[:9], reward[:9])
    policy.select(x)
    policy.estimator.radius_scale = 0.1
    many = torch.randn(200, 5, DIM, generator=torch.Generator().manual_seed(0), dtype=D)
    assert torch.equal(policy.select(many), fresh.select(many))


def test_a_view_is_kept() -> None:
    """Between rounds in which nothing moves: making one is most of what a small round would cost."""
    x, reward = data()
    estimator = HeavyTailUCB(DIM).estimator
    estimator.step(x[0], reward[0])
    view = estimator.numpy_view()
    estimator.step(x[1], reward[1])
    assert estimator.numpy_view() is view
    estimator.radius_scale = 2.0
    assert estimator.numpy_view() is not view


def test_autograd_notices_what_numpy_wrote() -> None:
    x, reward = data()
    estimator = OFUL(DIM).estimator
    estimator.step(x[0], reward[0])
    score = estimator.width(x[:3].clone().requires_grad_()).sum()
    estimator.step(x[1], reward[1])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        score.backward()


def test_inference_tensors_learn() -> None:
    x, reward = data()
    with torch.inference_mode():
        policy = HeavyTailUCB(DIM)
        policy.step(x[policy.select(x)], reward[0])
    policy.step(x[1], reward[1])
    assert policy.estimator.rounds == 2
