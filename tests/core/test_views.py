"""Small rounds on the CPU run on NumPy views of the buffers: whatever moves these, the real ones are read and written."""

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learners import DIM, close, round_of
from torchonline import (
    OFUL,
    UCB,
    AnytimeHeavyTailUCB,
    HeavyTailRegression,
    RidgeRegression,
    ScaledPolicy,
    StandardScaler,
)

pytestmark = pytest.mark.fast

D = torch.float64
STEPS = 30
FACTOR = 1.0  # of an estimator that reads it


def data(*batch: int) -> tuple[Tensor, Tensor]:
    """A row and a reward for each step; the rows serve as arms too."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(STEPS, *batch, DIM, generator=generator, dtype=D)
    return x, torch.randn(STEPS, *batch, generator=generator, dtype=D)


def give_new_memory(policy: AnytimeHeavyTailUCB) -> AnytimeHeavyTailUCB:
    for buffer in policy.buffers():
        buffer.data = buffer.clone()
    return policy


def put_new_buffers(policy: AnytimeHeavyTailUCB) -> AnytimeHeavyTailUCB:
    for name, buffer in policy.estimator.named_buffers():
        policy.estimator.register_buffer(name, buffer.clone())
    return policy


def move_one(policy: AnytimeHeavyTailUCB) -> AnytimeHeavyTailUCB:
    policy.estimator.P.data = policy.estimator.P.clone()
    return policy


def assign(policy: AnytimeHeavyTailUCB) -> AnytimeHeavyTailUCB:
    policy.load_state_dict({name: value.clone() for name, value in policy.state_dict().items()}, assign=True)
    return policy


def load(policy: AnytimeHeavyTailUCB) -> AnytimeHeavyTailUCB:
    state = {name: value.clone() for name, value in policy.state_dict().items()}
    policy.estimator.reset()
    policy.load_state_dict(state)
    return policy


def save_and_load(policy: AnytimeHeavyTailUCB) -> AnytimeHeavyTailUCB:
    file = io.BytesIO()
    torch.save(policy, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def lay_out_otherwise(policy: AnytimeHeavyTailUCB) -> AnytimeHeavyTailUCB:
    """In memory of another order: the view has to go, and tensors take over."""
    for buffer in policy.estimator.state().values():
        buffer.data = buffer.mT.contiguous().mT if buffer.dim() > 1 else buffer.clone()
    return policy


def transpose(policy: AnytimeHeavyTailUCB) -> AnytimeHeavyTailUCB:
    """To other strides at the same address, and the symmetric matrices to themselves."""
    for matrix in (policy.estimator.V, policy.estimator.A):
        matrix.transpose_(-1, -2)
    return policy


MOVES: list[Callable[[AnytimeHeavyTailUCB], AnytimeHeavyTailUCB]] = [
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
    lay_out_otherwise,
    transpose,
]


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("move", MOVES)
def test_moved_buffers_are_found(
    move: Callable[[AnytimeHeavyTailUCB], AnytimeHeavyTailUCB], batch: tuple[int, ...]
) -> None:
    """A learner whose buffers move in the middle ends where one that was left alone does."""
    x, reward = data(*batch)
    arms = x.movedim(0, -2)
    policy, alone = AnytimeHeavyTailUCB(DIM, batch_shape=batch), AnytimeHeavyTailUCB(DIM, batch_shape=batch)
    for t in range(STEPS):
        if t == STEPS // 2:
            policy = move(policy)
        assert torch.equal(policy.select(arms), alone.select(arms))
        policy.step(*round_of(policy, x[t], reward[t]))
        alone.step(*round_of(alone, x[t], reward[t]))
    for name, buffer in policy.named_buffers():
        close(buffer, alone.get_buffer(name))


def test_overlapping_buffers_are_refused() -> None:
    """As torch does: two learners in the same memory would both learn from each other's rounds."""
    policy = OFUL(DIM, batch_shape=(2,))
    shared = {name: v[:1].expand_as(v) if v.dim() > 1 else v.clone() for name, v in policy.state_dict().items()}
    policy.load_state_dict(shared, assign=True)
    with pytest.raises(RuntimeError, match="single memory location"):
        policy.step(*round_of(policy, torch.ones(2, DIM, dtype=D), torch.ones(2, dtype=D)))


def test_a_view_that_is_replaced_is_freed() -> None:
    x, reward = data()
    estimator = OFUL(DIM).estimator
    estimator.step(x[0], reward[0])
    first = weakref.ref(estimator.numpy_view())
    for t in range(3):
        estimator._apply(torch.clone)
        estimator.step(x[t], reward[t])
    gc.collect()
    assert first() is None


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy)), save_and_load])
def test_a_copy_leaves_the_original_alone(duplicate: Callable[[AnytimeHeavyTailUCB], AnytimeHeavyTailUCB]) -> None:
    x, reward = data()
    policy = AnytimeHeavyTailUCB(DIM)
    policy.step(*round_of(policy, x[0], reward[0]))
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    other = duplicate(policy)
    other.step(*round_of(other, x[1], reward[1]))
    assert other.estimator.rounds == 2
    for name, value in policy.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_changed_option_is_seen() -> None:
    """Between two calls on the same buffers."""
    x, reward = data()
    policy, fresh = OFUL(DIM), OFUL(DIM, radius_scale=0.1)
    for learner in (policy, fresh):
        learner.step(*round_of(learner, x[:9], reward[:9]))
    policy.select(x)
    vars(policy.estimator)["radius_scale"] = 0.1  # an option may not be set
    policy.estimator.other = 1
    many = torch.randn(200, 5, DIM, generator=torch.Generator().manual_seed(0), dtype=D)
    assert torch.equal(policy.select(many), fresh.select(many))


def put_another_estimator(policy: ScaledPolicy, other: ScaledPolicy) -> None:
    policy.policy.estimator = other.policy.estimator


def put_another_scaler(policy: ScaledPolicy, other: ScaledPolicy) -> None:
    policy.add_module("scaler", other.scaler)


@pytest.mark.parametrize("put", [put_another_estimator, put_another_scaler])
def test_a_part_that_is_replaced_is_found(put: Callable[[ScaledPolicy, ScaledPolicy], None]) -> None:
    """A new part of a learner, or of a module in it, decides and learns from then on."""
    x, reward = data()
    policy, other, fresh = (ScaledPolicy(RidgeRegression(DIM + 1), StandardScaler(DIM)) for _ in range(3))
    policy.step(*round_of(policy, x[:9], reward[:9]))
    policy.select(x)
    other.step(*round_of(other, x[9:20], reward[9:20]))
    put(policy, other)
    fresh.load_state_dict(policy.state_dict())
    for t in range(20, STEPS):
        assert torch.equal(policy.select(x), fresh.select(x))
        policy.step(*round_of(policy, x[t], reward[t]))
        fresh.step(*round_of(fresh, x[t], reward[t]))
    for name, value in fresh.state_dict().items():
        assert torch.equal(policy.state_dict()[name], value), name


def test_a_view_is_kept() -> None:
    """Between rounds in which nothing moves: making one is most of what a small round would cost."""
    x, reward = data()
    estimator = AnytimeHeavyTailUCB(DIM).estimator
    estimator.step(x[0], reward[0])
    view = estimator.numpy_view()
    estimator.step(x[1], reward[1])
    assert estimator.numpy_view() is view
    estimator.validate = False
    assert estimator.numpy_view() is not view


class Counted(RidgeRegression):
    """Ridge regression that leaves a round to its base."""

    def _observe(self, x: Tensor, reward: Tensor, noise_scale: Tensor) -> None:
        assert isinstance(self, Counted)
        super()._observe(x, reward, noise_scale)


def test_a_method_on_views_may_call_its_base() -> None:
    """And one that is replaced in the class counts for all learners that are made later."""
    x, reward = data()
    learner, plain = Counted(DIM), RidgeRegression(DIM)
    learner.step(x, reward)
    plain.step(x, reward)
    close(learner.theta_hat, plain.theta_hat, 1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Counted, "_observe", lambda self, x, reward, noise_scale: None)
        other = Counted(DIM)
        other.step(x, reward)
        assert not other.theta_hat.any()
    learner = Counted(DIM)
    learner.step(x, reward)
    close(learner.theta_hat, plain.theta_hat, 1e-12)


@pytest.mark.parametrize(
    "convert",
    [
        lambda value: value.clone().requires_grad_(),
        lambda value: torch._neg_view(-value),
        lambda value: value.numpy(),
        lambda value: value.tolist(),
    ],
)
def test_plain_tensors_and_others_decide_and_learn_alike(convert: Callable[[Tensor], Any]) -> None:
    """Bit for bit: what needs no conversion takes a way of its own."""
    x, reward = data()
    one, other = AnytimeHeavyTailUCB(DIM), AnytimeHeavyTailUCB(DIM)
    for t in range(STEPS):
        one.step(*round_of(one, x[t], reward[t]))
        other.step(convert(x[t][None]), 0, convert(reward[t]))
        assert torch.equal(one.select(x), other.select(convert(x)))
    assert all(map(torch.equal, one.buffers(), other.buffers()))


def test_a_learner_on_another_device_refuses_what_is_on_the_cpu() -> None:
    x, reward = data()
    policy = OFUL(DIM)
    policy.step(*round_of(policy, x[0], reward[0]))
    policy.to("meta")
    with pytest.raises(ValueError, match="inputs: expected a tensor on meta, got one on cpu"):
        policy.select(x)
    with pytest.raises(ValueError, match="inputs: expected a tensor on meta, got one on cpu"):
        policy.step(*round_of(policy, x[0], reward[0]))


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
        policy = AnytimeHeavyTailUCB(DIM)
        policy.step(x, policy.select(x), reward[0])
    policy.step(*round_of(policy, x[1], reward[1]))
    assert policy.estimator.rounds == 2


def test_a_refused_round_among_several_on_inference_tensors() -> None:
    """What NumPy wrote NumPy puts back: torch may not write to such tensors any more."""
    with torch.inference_mode():
        policy = OFUL(2)
    before = [buffer.clone() for buffer in policy.buffers()]
    x = torch.ones(3, 2, dtype=D)
    x[2] = 1e99
    with pytest.raises(ValueError, match="inputs: expected a round"):
        policy.step(*round_of(policy, x, torch.ones(3, dtype=D)))
    assert all(map(torch.equal, before, policy.buffers()))


@pytest.mark.parametrize("batch", [(), (2,)])
def test_masks(batch: tuple[int, ...]) -> None:
    """The best of what is available, as the scores say."""
    x, reward = data(*batch)
    policy = OFUL(DIM, batch_shape=batch)
    policy.step(*round_of(policy, x.movedim(0, -2), reward.movedim(0, -1)))
    generator = torch.Generator().manual_seed(0)
    arms = torch.randn(*batch, 50, 7, DIM, generator=generator, dtype=D)
    mask = torch.rand(*batch, 50, 7, generator=generator) < 0.5
    mask[..., 0] = True
    assert torch.equal(policy.select(arms, mask), policy(arms).masked_fill(~mask, -torch.inf).argmax(-1))


def test_a_score_that_is_put_on_a_policy_is_used() -> None:
    policy = OFUL(2)
    policy._scores = lambda features: -features[..., 0]
    assert policy.select(torch.eye(2)) == 1
    policy = OFUL(2)
    policy.scores_of = lambda predictor, width: torch.tensor([0.0, 1.0])
    assert policy.select(torch.eye(2)) == 1


def test_scores_that_replace_those_of_a_class_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, x = OFUL(2), torch.ones(2, 2, dtype=D)
    policy.step(x, 0, 1.0)
    policy.select(x)
    monkeypatch.setattr(UCB, "scores_of", lambda self, predictor, width: torch.tensor([1.0, 2.0]))
    assert policy.select(x) == 1


def test_globals_of_a_user_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careful(RidgeRegression):
        def radius(self) -> Tensor:
            return FACTOR * super().radius()

        def _squared_width(self, x: Tensor) -> Tensor:
            return FACTOR * x[..., 1]

    policy, x = UCB(Careful(2)), torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=D)
    policy.select(x)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    view = policy.estimator.numpy_view()
    assert view is not None
    assert np.allclose(policy._on(view)._scored(x.numpy()), policy(x))


@pytest.mark.parametrize("names", [{}, {"__name__": None}])
def test_code_without_a_module_name_plays_on_arrays(names: dict[str, Any]) -> None:
    names["RidgeRegression"] = RidgeRegression
    exec("class Own(RidgeRegression):\n    def radius(self):\n        return 3.0 * RidgeRegression.radius(self)", names)
    policy, x = UCB(names["Own"](2)), np.eye(2)
    policy.step(x, 0, 1.0)
    view = policy.estimator.numpy_view()
    assert view is not None
    assert np.allclose(policy._on(view)._scored(x), policy(x))


def test_batches_overflow_without_a_warning() -> None:
    """Warnings are errors here: the refusal is the one that names the argument, and none comes where none is asked for."""
    huge, ones = torch.full((2, 2), 1e100, dtype=D), torch.ones(2, dtype=D)
    with pytest.raises(ValueError, match="x: expected a round"):
        RidgeRegression(2, noise_scale=1e50, batch_shape=(2,)).step(huge, ones, noise_scale=1e31 * ones)
    unchecked = OFUL(2, batch_shape=(2,), validate=False)
    unchecked.select(torch.full((2, 3, 2), torch.inf))
    unchecked.step(*round_of(unchecked, torch.full((2, 2), torch.inf), ones))
    assert bool(unchecked.estimator.theta_hat.isnan().all())


def test_learners_that_stand_still_do_not_keep_others_from_correction() -> None:
    """Rounds of one learner of a batch may run ahead; the inverse of the other stays exact all the same."""
    generator = torch.Generator().manual_seed(0)
    estimator = RidgeRegression(3, batch_shape=(2,), ridge=1e-6)
    for _ in range(5000):
        estimator.rounds[0] = 8_000_003
        x = torch.randn(2, 3, generator=generator, dtype=D) * torch.tensor([1.0, 1e-3, 1.0], dtype=D)
        estimator.step(x, torch.randn(2, generator=generator, dtype=D))
    assert (estimator.V_inv[1] @ estimator.V[1] - torch.eye(3, dtype=D)).abs().max() < 1e-12


def test_single_precision_at_its_ends() -> None:
    F = torch.float32
    for ridge in (1e50, 1e-50):
        with pytest.raises(ValueError, match=r"ridge: expected from .* for torch.float32, got 1e"):
            RidgeRegression(2, dtype=F, ridge=ridge)
    ridge = RidgeRegression(2, noise_scale=1.0, dtype=F)
    ridge.step(torch.zeros(2), torch.tensor(6e12), noise_scale=torch.tensor(1e-19))
    assert torch.equal(ridge.theta_hat, torch.zeros(2))
    with pytest.raises(ValueError, match="noise_scale: expected values of at least 1e-20"):
        ridge.step(torch.zeros(2), torch.tensor(1.0), noise_scale=torch.tensor(1e-21))
    heavy = AnytimeHeavyTailUCB(2, dtype=F)
    heavy.step(torch.zeros(1, 2), 0, torch.tensor(1.0), noise_scale=torch.tensor(0.0))
    assert heavy.estimator.rounds == 1


def test_features_may_be_a_view_of_any_buffer() -> None:
    x, reward = data()
    for name in ("logdet", "bias", "theta_hat"):
        learner = HeavyTailRegression(1)
        learner.step(x[:, :1], reward)
        twin = copy.deepcopy(learner)
        learner.step(getattr(learner, name).view(1), torch.tensor(1.0))
        twin.step(getattr(twin, name).clone().view(1), torch.tensor(1.0))
        assert all(map(torch.equal, learner.buffers(), twin.buffers()))
