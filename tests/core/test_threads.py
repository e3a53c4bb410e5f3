"""Several threads on one learner: steps, choices, loads and copies follow one another."""

import copy
import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learners import round_of, snapshot
from torchonline import (
    OFUL,
    AnytimeHeavyTailUCB,
    DisjointArms,
    FreeGrad,
    LocalGLB,
    MsMwC,
    RidgeRegression,
    StandardScaler,
)
from torchonline.models import BanditHead

pytestmark = pytest.mark.fast

D = torch.float64


@pytest.fixture(autouse=True)
def _switch_often() -> Any:
    """Let threads take turns within a step, as on a busy machine."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*calls: Callable[[], None]) -> None:
    """Run calls at once, each in a thread of its own, and raise the first error."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], None]) -> None:
        start.wait()
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def is_whole(estimator: Any) -> bool:
    """Whether V, its inverse and the count of rounds belong together, for rounds of features of length 1."""
    if not torch.equal(estimator.V, estimator.V.mT):
        return False
    identity = torch.eye(estimator.dim, dtype=D)
    return bool((estimator.V @ estimator.V_inv - identity).abs().max() < 1e-9)


@pytest.mark.parametrize(
    ("make", "rounds"),
    [
        (lambda: OFUL(128), 100),
        (lambda: OFUL(400), 20),  # on tensors
        (lambda: AnytimeHeavyTailUCB(4), 250),
        (lambda: AnytimeHeavyTailUCB(4, dtype=torch.float32), 100),
        (lambda: LocalGLB(4), 150),
        (lambda: OFUL(4, batch_shape=(2,)), 100),
    ],
)
def test_four_threads_lose_no_round(make: Callable[[], Any], rounds: int) -> None:
    policy = make()
    estimator = policy.estimator
    shape = (*estimator.batch_shape, estimator.dim)
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(4, rounds, *shape, generator=generator, dtype=D), dim=-1)
    reward = torch.ones(estimator.batch_shape, dtype=D)

    def learn(number: int) -> Callable[[], None]:
        def run() -> None:
            for x in rows[number]:
                arms = torch.stack([x, -x], -2)
                policy.step(arms, torch.zeros_like(policy.select(arms)), reward)

        return run

    together(*map(learn, range(4)))
    assert bool((estimator.rounds == 4 * rounds).all())
    if not estimator.batch_shape and estimator.V.dtype == D:
        assert is_whole(estimator)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy)), lambda p: by_file(p)]
)
def test_copies_of_a_learner_that_learns_are_whole(copied: Callable[[Any], Any]) -> None:
    """Each copy is a state that the learner was in between two steps, and has a lock of its own."""
    policy, stop, copies = AnytimeHeavyTailUCB(8), threading.Event(), []
    rows = torch.nn.functional.normalize(torch.randn(64, 8, dtype=D), dim=-1)

    def learn() -> None:
        number = 0
        while not stop.is_set():
            policy.step(rows, number % 64, torch.tensor(1.0))
            number += 1

    def take() -> None:
        try:
            for _ in range(40):
                copies.append(copied(policy))
        finally:
            stop.set()

    together(learn, take)
    assert all(is_whole(each.estimator) for each in copies)
    assert all(each.estimator._lock is not policy.estimator._lock for each in copies)
    twin = AnytimeHeavyTailUCB(8)
    by_rounds = {int(each.estimator.rounds): each for each in copies}
    for number in range(max(by_rounds) + 1):
        if number in by_rounds:
            assert torch.equal(by_rounds[number].estimator.theta_hat, twin.estimator.theta_hat)
        twin.step(rows, number % 64, torch.tensor(1.0))


def by_file(policy: Any) -> Any:
    file = io.BytesIO()
    torch.save(policy, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_loads_and_steps_follow_one_another() -> None:
    policy, other = OFUL(16), OFUL(16)
    rows = torch.nn.functional.normalize(torch.randn(200, 16, dtype=D), dim=-1)
    other.step(*round_of(other, rows, torch.ones(200, dtype=D)))
    states = [snapshot(OFUL(16)), snapshot(other)]

    def learn() -> None:
        for k in range(len(rows)):
            policy.step(rows, k, torch.tensor(1.0))

    def load() -> None:
        for number in range(60):
            policy.load_state_dict(states[number % 2])
            policy.estimator.reset() if number % 7 == 0 else None

    together(learn, load, learn)
    assert is_whole(policy.estimator)


def test_convex_learners_lose_no_round() -> None:
    for learner in (FreeGrad(5), MsMwC(5, rate=0.01)):

        def learn(learner: Any = learner) -> None:
            for number in range(150):
                learner.predict()
                learner.step(0.1 * torch.ones(5) * (number % 3 - 1))

        together(learn, learn, learn, learn)
        assert int(learner.rounds) == 600


def test_a_head_in_training_mode_is_shared() -> None:
    """Each thread runs the encoder in evaluation mode, and the mode is what it was when all are done."""
    encoder = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5))
    head = BanditHead(encoder, OFUL(3)).train()
    inputs = torch.randn(5, 4)
    expected = head.encode(inputs)
    seen: list[Tensor] = []

    def serve() -> None:
        for _ in range(50):
            head.step(inputs, head.select(inputs), 1.0)
            seen.append(head.encode(inputs))

    together(serve, serve, serve, serve)
    assert all(torch.allclose(value, expected) for value in seen)
    assert encoder[1].training
    assert int(head.policy.estimator.rounds) == 200


def test_files_and_copies_have_no_lock() -> None:
    policy = OFUL(2)
    assert b"RLock" not in pickle.dumps(policy)
    twin = pickle.loads(pickle.dumps(policy))
    with policy.estimator._lock:
        done: list[int] = []
        thread = threading.Thread(target=lambda: done.append(int(twin.select(torch.eye(2)))))
        thread.start()
        thread.join(300)
        assert done, "a copy waits for the lock of its original"


def test_shared_memory_stays_shared() -> None:
    """`share_memory` is for processes that learn together: pickling to one of them copies nothing."""
    learner = OFUL(2)
    learner.share_memory()
    assert learner.estimator.__getstate__()["_buffers"]["V"].data_ptr() == learner.estimator.V.data_ptr()
    assert OFUL(2).estimator.__getstate__()["_buffers"]["V"].is_shared() is False


@pytest.mark.parametrize("is_amid_a_step", [False, True])
def test_a_child_forked_while_another_thread_holds_the_lock_goes_on(is_amid_a_step: bool) -> None:
    """The child has a lock of its own, and knows whether the other thread's step was under way."""
    policy = OFUL(2)
    x, holds, done = torch.ones(2, dtype=D), threading.Event(), threading.Event()

    def hold() -> None:
        with policy.estimator._lock:
            policy.estimator.__dict__["_is_torn"] = is_amid_a_step
            holds.set()
            done.wait()
            policy.estimator.__dict__["_is_torn"] = False

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for the lock
        try:
            policy.step(x[None], 0, 1.0)
            os._exit(0)
        except RuntimeError as error:
            os._exit(1 if str(error).startswith("state: ") else 2)
        finally:
            os._exit(3)
    done.set()
    thread.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == int(is_amid_a_step)
    policy.step(x[None], 0, 1.0)
    assert int(policy.estimator.rounds) == 1


def test_a_head_with_a_scaler_is_shared() -> None:
    head = BanditHead(torch.nn.Linear(3, 2), OFUL(2), scaler=StandardScaler(3, intercept=False)).eval()
    inputs = torch.randn(5, 3)

    def serve() -> None:
        for _ in range(50):
            head.step(inputs, head.select(inputs), 1.0)
            head.probabilities(inputs)

    together(serve, serve, serve, serve)
    assert int(head.policy.estimator.rounds) == int(head.scaler.rounds) == 200


def test_arms_and_their_estimator_take_turns() -> None:
    """A thread that steps the estimator does not meet one that steps, or learns, through its policy."""
    arms = DisjointArms(RidgeRegression(5), 3)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 5, generator=generator, dtype=D)

    def step() -> None:
        for i in range(300):
            arms.step(x[i], i % 3, 1.0)

    def learn() -> None:
        for _ in range(20):
            arms.learn(x, torch.arange(300) % 3, x[:, 0])

    def step_estimator() -> None:
        for _ in range(300):
            arms.estimator.step(torch.ones(3, 5, dtype=D), torch.ones(3))

    together(step, learn, step_estimator)
    assert int(arms.estimator.rounds.sum()) == 300 + 20 * 300 + 3 * 300
    error = (arms.estimator.V @ arms.estimator.V_inv - torch.eye(5, dtype=D)).abs().max()
    assert float(error) < 1e-6
