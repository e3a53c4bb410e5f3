"""Hybrid arms are ridge regression in the joint parameter; arms come with embeddings, and start at the shared model."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchonline
from tests.golden import numbers
from tests.interruption import interrupted
from tests.learners import close, differences, snapshot
from tests.reference.ridge import RidgeReference
from torchonline import (
    UCB,
    DisjointArms,
    HybridArms,
    RidgeRegression,
    StandardScaler,
    ThompsonSampling,
)
from torchonline.export import to_program, to_torchscript

pytestmark = pytest.mark.fast

D = torch.float64
DIM, ARMS, SIZE = 3, 4, 2
OPTIONS: dict[str, Any] = {"noise_scale": 0.7, "theta_bound": 1.5, "ridge": 2.0, "delta": 0.1}
every_size = pytest.mark.parametrize("size", [None, SIZE], ids=["without embeddings", "with embeddings"])


def hybrid(size: int | None, **options: Any) -> HybridArms:
    embeddings = None if size is None else numbers(9, ARMS, size)
    return HybridArms(RidgeRegression(DIM, **OPTIONS | options), ARMS, embeddings=embeddings)


def rounds(count: int, *batch: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Contexts, actions, rewards and noise scales."""
    action = torch.from_numpy(np.random.default_rng(seed + 1).integers(0, ARMS, (count, *batch)))
    scales = 0.3 + numbers(seed + 3, count, *batch).abs()
    return numbers(seed, count, *batch, DIM), action, numbers(seed + 2, count, *batch), scales


def joint(x: Tensor, embeddings: Tensor) -> np.ndarray:
    """The features of each arm in the joint model, (K, k + K d)."""
    own = np.kron(np.eye(len(embeddings)), x.numpy())
    shared = np.einsum("d,ke->kde", x.numpy(), embeddings.numpy()).reshape(len(embeddings), -1)
    return np.concatenate([shared, own], 1)


def reference(policy: HybridArms, played: Any) -> RidgeReference:
    """Ridge regression in the joint parameter."""
    learner = RidgeReference(joint(torch.ones(DIM), policy.embeddings).shape[1], **OPTIONS)
    for x, k, reward, scale in zip(*played, strict=True):
        learner.step(joint(x, policy.embeddings)[int(k)], float(reward), float(scale))
    return learner


def play(policy: HybridArms, played: Any) -> HybridArms:
    for x, k, reward, scale in zip(*played, strict=True):
        policy.step(x, k, reward, noise_scale=scale)
    return policy


def check(policy: HybridArms, learner: RidgeReference, x: Tensor, tolerance: float = 1e-9) -> None:
    rows = joint(x, policy.embeddings)
    mean, error = rows @ learner.theta, learner.radius() * learner.width(rows)
    close(policy.predict(x), torch.from_numpy(mean), tolerance)
    close(policy(x), torch.from_numpy(mean + error), tolerance)
    bound = OPTIONS["theta_bound"] * np.linalg.norm(rows, axis=1)
    low, high = policy.interval(x)
    close(low, torch.from_numpy(np.maximum(mean - error, -bound)), tolerance)
    close(high, torch.from_numpy(np.minimum(mean + error, bound)), tolerance)
    assert int(policy.select(x)) == int((mean + error).argmax())


@every_size
@pytest.mark.parametrize("is_small", [True, False], ids=["on arrays", "on tensors"])
def test_it_is_ridge_regression_in_the_joint_parameter(size: int | None, is_small: bool) -> None:
    played, policy = rounds(60), hybrid(size)
    policy.__dict__["is_small"] = is_small
    play(policy, played)
    learner = reference(policy, played)
    for x in numbers(5, 3, DIM):
        check(policy, learner, x)
    many = numbers(6, 2, 5, DIM)
    close(policy(many), torch.stack([torch.stack([policy(x) for x in row]) for row in many]), 1e-12)
    log = hybrid(size)
    log.learn(played[0], played[1], played[2], noise_scale=played[3])
    close(log(many), policy(many), 1e-12)


@every_size
def test_each_learner_of_a_batch_is_one(size: int | None) -> None:
    played, policy = rounds(30, 2), hybrid(size, batch_shape=(2,))
    play(policy, played)
    x = numbers(5, 2, DIM)
    for i in range(2):
        one = play(hybrid(size), [value[:, i] for value in played])
        close(policy(x)[i], one(x[i]), 1e-10)
        assert int(policy.select(x)[i]) == int(one.select(x[i]))


@every_size
def test_float32_keeps_up_over_many_rounds(size: int | None) -> None:
    x, action, _, _ = rounds(5000)
    x = x * torch.tensor([1.0, 0.1, 0.01])
    embeddings = torch.ones(ARMS, 1, dtype=D) if size is None else numbers(9, ARMS, size)
    truth = numbers(7, DIM * embeddings.size(-1) + ARMS * DIM)
    rows = np.stack([joint(one, embeddings)[int(k)] for one, k in zip(x, action, strict=True)])
    reward = torch.from_numpy(rows) @ truth
    both = [hybrid(size, dtype=dtype) for dtype in (D, torch.float32)]
    for policy in both:
        policy.learn(x, action, reward)
    near, exact = both[1](x[:50].float()).double(), both[0](x[:50])
    assert float((near - exact).abs().max()) < 1e-2
    assert float((both[1].predict(x[:50].float()).double() - both[0].predict(x[:50])).abs().max()) < 2e-3


def test_a_new_arm_starts_at_the_shared_model() -> None:
    policy = play(hybrid(None), rounds(40))
    x = numbers(5, DIM)
    assert policy.add_actions() == [ARMS]
    close(policy.predict(x)[-1], x @ policy.shared.theta_hat, 1e-12)
    variance = float(x @ policy.shared.V_inv @ x + x @ x / OPTIONS["ridge"])
    close(policy(x)[-1] - policy.predict(x)[-1], policy.estimator.radius()[0] * variance**0.5, 1e-12)
    policy.step(x, ARMS, 1.0)
    assert policy.estimator.rounds.tolist()[-1] == 1


@every_size
def test_arms_come_and_go(size: int | None) -> None:
    """Those that stay are learnt as before, and what a removed arm taught the others stays."""
    policy = play(hybrid(size), rounds(30))
    more = {} if size is None else {"embeddings": numbers(8, 2, size)}
    before, x = policy(numbers(5, DIM)), numbers(5, DIM)
    assert policy.add_actions(2, **more) == [4, 5]
    close(policy(x)[:ARMS], before, 1e-12)
    policy.remove_actions([0, 4])
    assert policy.action_ids == [1, 2, 3, 5]
    close(policy(x)[:3], before[1:], 1e-12)
    close(policy.embeddings[:3], hybrid(size).embeddings[1:], 0.0)
    twin = HybridArms(RidgeRegression(DIM, **OPTIONS), 4, embeddings=None if size is None else torch.zeros(4, size))
    twin.load_state_dict(policy.state_dict())
    for each in (policy, twin, again := copy.deepcopy(policy)):
        each.step(x, 5, 1.0)
    assert differences(snapshot(policy), snapshot(twin)) == differences(snapshot(policy), snapshot(again)) == []


def test_arms_have_names() -> None:
    policy = HybridArms(RidgeRegression(1), ["home", "sale"], embeddings=[[1.0], [2.0]])
    policy.step([1.0], "sale", 1.0)
    policy.add_actions(["news"], embeddings=[[3.0]])
    policy.remove_actions(["home"])
    assert (policy.action_names, policy.embeddings.tolist()) == (["sale", "news"], [[2.0], [3.0]])
    assert policy.select_name([1.0]) == "news"


def test_delta_is_not_divided_and_the_template_stays() -> None:
    template = RidgeRegression(DIM, **OPTIONS).float()
    policy = HybridArms(template, ARMS)
    assert (policy.estimator.delta, policy.shared.delta, policy.most_actions) == (0.1, 0.1, 1)
    policy.step(torch.ones(DIM), 0, 1.0)
    assert int(template.rounds) == 0
    assert {value.dtype for value in policy.state().values()} == {torch.float32, torch.int64}


def test_all_starts_anew_when_the_scaler_freezes() -> None:
    scaler = StandardScaler(DIM - 1, freeze_after=6)
    policy = HybridArms(RidgeRegression(DIM), ARMS, scaler=scaler)
    for x, k, reward, _ in zip(*rounds(6), strict=True):
        assert policy.rounds == 0 or bool(policy.shared.rounds > 0)
        policy.step(x[1:], k, reward)
    state = policy.state()
    fresh = HybridArms(RidgeRegression(DIM), ARMS).state()
    assert all(torch.equal(state[name], value) for name, value in fresh.items() if name != "rounds")


def test_files_learn(tmp_path: Path) -> None:
    policy = HybridArms(UCB(RidgeRegression(DIM, **OPTIONS)), ARMS, embeddings=numbers(9, ARMS, 2))
    policy.remove_actions([1])
    file = to_torchscript(policy, tmp_path / "arms.pt")
    x, _, reward, scale = rounds(12)
    for t in range(12):
        k = torch.tensor([0, 2, 3][t % 3])
        policy.step(x[t], k, reward[t], noise_scale=scale[t])
        assert bool(file.step(x[t], k, reward[t], scale[t]))
    assert not bool(file.step(x[0], torch.tensor(1), reward[0]))
    assert not bool(file.step(x[0], torch.tensor(0), torch.tensor(float("nan"), dtype=D)))
    close(file(x), policy(x), 1e-12)


def test_a_program_learns() -> None:
    policy = hybrid(SIZE)
    program = to_program(policy).module()
    mask, learn = torch.ones(1, ARMS, dtype=torch.bool), torch.tensor(True)
    for x, k, reward, _ in zip(*rounds(12), strict=True):
        policy.step(x, k, reward)
        assert int(program(x, k, reward, learn, x.unsqueeze(0), mask)[0]) == int(policy.select(x))


def test_an_interrupted_change_of_arms_happens_or_does_not() -> None:
    policy, line = play(hybrid(SIZE), rounds(9)), 0
    start = snapshot(policy)
    while True:
        twin = copy.deepcopy(policy)
        if not interrupted(lambda twin=twin: twin.add_actions(1, embeddings=[[1.0, 2.0]]), line):
            break
        assert len(twin.action_ids) == twin.actions == len(twin.embeddings)
        assert twin.actions > ARMS or differences(start, snapshot(twin)) == []
        line += 7
    assert line > 50


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "another estimator": (
        lambda: HybridArms(torchonline.AdaptiveRidgeRegression(2), 2),
        TypeError,
        "policy: expected Ridge",
    ),
    "Thompson": (lambda: HybridArms(ThompsonSampling(2), 2), TypeError, "policy: expected one that scores arms"),
    "restarts": (lambda: HybridArms(UCB(2, restart_every=5), 2), ValueError, "restart_every: expected None"),
    "one row": (lambda: HybridArms(UCB(2), 2, embeddings=[1.0, 2.0]), ValueError, "embeddings: expected shape"),
    "no features": (
        lambda: HybridArms(UCB(2), 2, embeddings=torch.zeros(2, 0)),
        ValueError,
        r"embeddings: expected shape \(K, e\), got \(2, 0\)",
    ),
    "count": (lambda: HybridArms(UCB(2), 2, embeddings=[[1.0]]), ValueError, "embeddings: expected shape"),
    "NaN": (lambda: HybridArms(UCB(2), 1, embeddings=[[np.nan]]), ValueError, "embeddings: expected finite"),
    "none for new": (lambda: hybrid(SIZE).add_actions(), TypeError, "embeddings: expected those"),
    "some for new": (lambda: hybrid(None).add_actions(embeddings=[[1.0]]), TypeError, "embeddings: expected None"),
    "width": (lambda: hybrid(SIZE).add_actions(embeddings=[[1.0]]), ValueError, "embeddings: expected shape"),
    "size": (lambda: hybrid(SIZE).load_state_dict(hybrid(3).state_dict()), RuntimeError, "shared.theta_hat"),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_refused_by_name(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_rewards_of_one_arm_teach_the_others() -> None:
    separate, policy = DisjointArms(RidgeRegression(DIM), ARMS), HybridArms(RidgeRegression(DIM), ARMS)
    x = torch.ones(DIM)
    for each in (separate, policy):
        each.step(x, 0, 1.0)
    assert float(separate.predict(x)[1]) == 0.0
    assert float(policy.predict(x)[0]) > float(policy.predict(x)[1]) > 0.0
