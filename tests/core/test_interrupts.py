"""Ctrl-C in the middle of a step: the step has not happened, or has.

An exception is raised at every line that a step runs, by a trace function, as a signal handler or a thread may raise one. Nothing
depends on time.
"""

import copy
import pickle
import signal
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor

import torchonline
from tests.interruption import Interrupt, interrupted, is_free
from tests.learners import differences, round_of, snapshot
from torchonline import (
    CAOONS,
    OFUL,
    AnytimeHeavyTailUCB,
    DisjointArms,
    FixedArms,
    FreeGrad,
    HvtUCB,
    LocalGLB,
    MsMwC,
    ParameterFree,
    RidgeRegression,
    StandardScaler,
    SystemIdentification,
)
from torchonline.core import learner as core
from torchonline.core import undo_journal
from torchonline.core.all_or_nothing import SNAPSHOT_BYTES, all_or_nothing
from torchonline.core.checks import refusal
from torchonline.core.undo_journal import MOST_ROUNDS
from torchonline.policies import disjoint

D = torch.float64


def features(dim: int) -> Tensor:
    return torch.linspace(0.1, 0.7, dim, dtype=D)


BANDITS: dict[str, Callable[[], Any]] = {
    "OFUL": lambda: OFUL(8),
    "AnytimeHeavyTailUCB": lambda: AnytimeHeavyTailUCB(8),
    "HvtUCB": lambda: HvtUCB(8, horizon=None),
    "LocalGLB": lambda: LocalGLB(8, feature_bound=3.0),
    "SystemIdentification": lambda: SystemIdentification(8, 2),
    "OFUL on tensors": lambda: on_tensors(OFUL(8)),
    "FreeGrad": lambda: FreeGrad(8),
    "MsMwC": lambda: MsMwC(8, rate=0.1),
    "CAOONS": lambda: CAOONS(2, lipschitz=1.0, horizon=64),
}


def on_tensors(made: Any) -> Any:
    policy = made() if isinstance(made, partial | FunctionType) else made
    for learner in (policy, policy.estimator):
        vars(learner)["is_small"] = False
    return policy


def step(learner: Any, scale: float = 1.0, arm: int = 1) -> None:
    own = getattr(learner, "estimator", learner)
    if isinstance(learner, DisjointArms):
        learner.step(scale * features(learner.dim), arm, 1.0)
        return
    if isinstance(learner, FixedArms):
        learner.step(None, arm, scale)
        return
    if own.batch_shape:
        x = scale * features(own.dim).expand(own.features_shape)
        learner.step(*round_of(learner, x, torch.ones(own.batch_shape)))
        return
    if hasattr(own, "queries"):
        learner.step(
            scale * features(own.points * own.dim).reshape(own.gradients_shape), torch.zeros(own.gradients_shape[:-1])
        )
    elif own.output_shape:
        learner.step(scale * features(8), torch.ones(2, dtype=D))
    else:
        learner.step(*round_of(learner, scale * features(own.dim), torch.tensor(1.0, dtype=D)))


@pytest.mark.parametrize("name", BANDITS)
def test_an_interrupted_step_is_all_or_nothing(name: str) -> None:
    """At every line of a step: bit for bit the state before, or that after. Then the learner goes on."""
    learner, done = BANDITS[name](), BANDITS[name]()
    step(learner)
    start = snapshot(learner)
    done.load_state_dict(start)
    step(done, 0.5)
    after = snapshot(done)
    line = 0
    while interrupted(lambda: step(learner, 0.5), line):
        now = snapshot(learner)
        assert differences(start, now) == [] or differences(after, now) == [], f"torn at line {line}"
        learner.load_state_dict(start)
        line += 1
    assert line > 50
    assert differences(after, snapshot(learner)) == []


JOURNALED = BANDITS | {
    "arms with a model each": lambda: DisjointArms(RidgeRegression(8), 3, scaler=StandardScaler(7)),
    "arms that start anew": lambda: DisjointArms(RidgeRegression(8), 3, scaler=StandardScaler(7, freeze_after=4)),
    "the default for arms": lambda: torchonline.bandit(4, rewards="unit", actions=3),
    "a batch": lambda: OFUL(8, batch_shape=(2,)),
    "fixed arms": lambda: FixedArms(OFUL(2), torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])),
}
JOURNALED |= {f"{name}, on tensors": partial(on_tensors, make) for name, make in JOURNALED.items() if "arms" in name}


@pytest.mark.parametrize("name", JOURNALED)
def test_a_journal_undoes_an_interrupted_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every line of a step of a large state, some rounds after the copy: bit for bit the state before, or that after."""
    for module in (core, disjoint):
        monkeypatch.setattr(module, "SNAPSHOT_BYTES", 0)
    learner, done = JOURNALED[name](), JOURNALED[name]()
    # Other arms move what all share, such as a scaler, after the last round of the arm of the interrupted step.
    rounds = [step, partial(step, scale=0.5), partial(step, scale=2.0, arm=0), partial(step, scale=1.5, arm=2)]
    for play in rounds:
        play(learner)
        play(done)
    start = snapshot(learner)
    step(done, 0.5)
    after, line = snapshot(done), 0
    while interrupted(partial(step, learner, 0.5), line):
        now = snapshot(learner)
        if differences(start, now):
            assert differences(after, now) == [], f"torn at line {line}"
            learner = JOURNALED[name]()
            for play in rounds:
                play(learner)
        line += 1
    assert line > 50
    assert differences(after, snapshot(learner)) == []


def large() -> OFUL:
    policy = OFUL(150)
    assert policy.estimator.V.nbytes > SNAPSHOT_BYTES
    return policy


def fail_after_writes(learner: Any, call: Callable[[], object]) -> None:
    """Interrupt a call behind the last write of a step."""
    view = learner.numpy_view().learner

    def observe(*arguments: Any) -> None:
        view.__dict__.pop("_observe", None)  # once: an undo learns the rounds before again
        view._observe(*arguments)
        raise Interrupt

    view.__dict__["_observe"] = observe
    with pytest.raises(Interrupt):
        call()


@pytest.mark.parametrize(
    "write",
    [
        lambda policy: policy.estimator.V.mul_(2.0),
        lambda policy: policy.estimator.theta_hat.zero_(),
        lambda policy: policy.reset(),
        lambda policy: policy.load_state_dict(policy.state_dict()),
        lambda policy: policy.learn(*round_of(policy, torch.eye(150), torch.zeros(150))),
        lambda policy: policy.step(*round_of(policy, torch.eye(150)[:2], torch.zeros(2))),
        lambda policy: policy.to(torch.float64),
        lambda policy: None,
    ],
)
def test_a_journal_notices_writes_by_others(write: Callable[[OFUL], Any]) -> None:
    """What was written between two steps is not undone with the second."""
    policy, twin = large(), large()
    for each in (policy, twin):
        for _ in range(3):
            step(each)
        write(each)
    fail_after_writes(policy.estimator, lambda: step(policy, 0.5))
    assert differences(snapshot(twin), snapshot(policy)) == []
    step(policy, 0.5)
    step(twin, 0.5)
    assert differences(snapshot(twin), snapshot(policy)) == []


def test_a_journal_is_copied_anew_in_time_and_is_part_of_no_copy() -> None:
    policy, twin = large(), large()
    for _ in range(150):
        step(policy)
        step(twin)
    twin = copy.deepcopy(twin)
    journal = policy.estimator.numpy_view().journal
    assert len(journal.entries[None].rounds) == 150 - 2 * MOST_ROUNDS
    fail_after_writes(policy.estimator, lambda: step(policy))
    assert differences(snapshot(twin), snapshot(policy)) == []
    assert len(pickle.dumps(policy)) < 1.1 * len(pickle.dumps(large()))


def test_an_undo_that_is_interrupted_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second and a third Ctrl-C do not tear the state."""
    policy, interrupts = large(), iter([1, 2])
    step(policy)
    start, restore_ = snapshot(policy), undo_journal.restore_

    def restored(state: list[Any], copies: list[Any]) -> None:
        restore_(state, copies)
        for _ in interrupts:
            raise Interrupt

    monkeypatch.setattr(undo_journal, "restore_", restored)
    fail_after_writes(policy.estimator, lambda: step(policy))
    assert differences(start, snapshot(policy)) == []
    assert next(interrupts, None) is None


def test_a_refusal_of_a_large_learner_undoes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before the first write, and costs no round of the journal."""
    policy = large()
    for _ in range(10):
        step(policy)
    start = snapshot(policy)
    monkeypatch.setattr(undo_journal, "restore_", lambda *_: pytest.fail("an undo"))
    with pytest.raises(ValueError, match=r"^inputs: expected"):
        policy.step(1e200 * features(100)[None], 0, 1.0)
    assert differences(start, snapshot(policy)) == []
    step(policy)


def test_a_refused_round_does_not_come_back_with_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does a round that was interrupted before it was noted."""
    monkeypatch.setattr(disjoint, "SNAPSHOT_BYTES", 0)
    policy = DisjointArms(RidgeRegression(8), 3, scaler=StandardScaler(7))
    for arm in (0, 0, 1, 2):
        step(policy, 2.0, arm)
    with pytest.raises(ValueError, match=r"^inputs: expected"):
        policy.step(1e200 * features(policy.dim), 0, 1.0)
    step(policy, 3.0, 1)
    start = snapshot(policy)

    def interrupt(_: Any) -> None:
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(undo_journal, "_copied", interrupt)
        with pytest.raises(Interrupt):
            step(policy)
    assert differences(start, snapshot(policy)) == []


@pytest.mark.parametrize("dim", [100, 200])
def test_a_journal_takes_at_most_twice_the_memory_of_the_state(dim: int) -> None:
    """What all arms share counts too."""
    policy = DisjointArms(RidgeRegression(dim + 1), 3, scaler=StandardScaler(dim))
    for i in range(300):
        step(policy, 1.0 + i % 7, i % 3)
    entries = policy.numpy_view().journal.entries.values()
    kept = [
        *(copy for entry in entries for copy in entry.copies),
        *(copy for entry in entries for _, _, _, copies in entry.rounds for copy in copies),
        *(value for entry in entries for _, own, _, _ in entry.rounds for value in own),
    ]
    state = sum(value.nbytes for value in policy.state().values())
    size = sum(len(value) if isinstance(value, bytes) else getattr(value, "nbytes", 0) for value in kept)
    assert 1 < size / state < 2


def test_a_learner_that_cannot_undo_refuses_until_it_is_loaded_or_reset() -> None:
    """As on an accelerator, where a journal would take too much memory."""
    policy = OFUL(8)
    saved = policy.state_dict()

    def write() -> None:
        policy.estimator.V.mul_(2.0)
        raise Interrupt

    for mend in (policy.reset, lambda: policy.load_state_dict(saved)):
        with pytest.raises(Interrupt):
            all_or_nothing(policy.estimator, None, write)
        looks = [lambda look=look: look(torch.ones(2, 8)) for look in (policy, policy.predict, policy.select)]
        for look in [*looks, lambda: step(policy), policy.state_dict]:
            with pytest.raises(RuntimeError, match=r"^state: expected the whole state of .* reset\(\)"):
                look()
        mend()
        assert differences(saved, snapshot(policy)) == []


def test_several_rounds_loads_and_resets_are_all_or_nothing() -> None:
    """Also with state and learners of parts."""
    policy = AnytimeHeavyTailUCB(3)
    rounds = round_of(policy, torch.randn(4, 3, dtype=D), torch.randn(4, dtype=D))
    master = CAOONS(2, lipschitz=1.0, horizon=64)
    step(master)
    other = snapshot(CAOONS(2, lipschitz=1.0, horizon=64))
    for learner, call in (
        (policy, lambda: policy.step(*rounds)),
        (master, lambda: master.load_state_dict(other)),
        (master, master.reset),
    ):
        start, line = snapshot(learner), 0
        while interrupted(call, line):
            now = snapshot(learner)
            if differences(start, now):
                call()
                assert differences(now, snapshot(learner)) == [] or learner is policy
                if learner is policy:
                    assert int(learner.estimator.rounds) in (4, 8)
                learner.load_state_dict(start)
            line += 7


def two_groups(size: int, learner: str = "freegrad") -> tuple[ParameterFree, list[Tensor]]:
    """An optimizer after three steps, with gradients for the next, and all that a step writes."""
    generator = torch.Generator().manual_seed(0)
    params = [
        torch.nn.Parameter(torch.randn(size, generator=generator, dtype=dtype)) for dtype in (D, torch.float32, D)
    ]
    optimizer = ParameterFree([{"params": params[:1]}, {"params": params[1:]}], learner=learner)
    for _ in range(3):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        optimizer.step()
    return optimizer, [buffer for each in optimizer.learners for buffer in each.state().values()] + [
        p.detach() for p in params
    ]


def fail_in_second_group(optimizer: ParameterFree, error: BaseException) -> None:
    """Let the next step of the second group's learner raise."""

    def observe(*_: Any) -> None:
        raise error

    optimizer.learners[1].__dict__["_observe"] = observe
    optimizer.learners[1].__dict__["_view"] = None


@pytest.mark.parametrize("learner", ["freegrad", "cla"])
def test_an_interrupted_optimizer_has_moved_all_groups_or_none(learner: str) -> None:
    size, line, middle = 3, 0, 0
    stepped, after = two_groups(size, learner)
    stepped.step()
    while True:
        optimizer, values = two_groups(size, learner)
        before = [value.clone() for value in values]
        if not interrupted(optimizer.step, line):
            break
        # A few lines after a learner's own step the mark may still be set, as in a learner.
        if not (optimizer._is_torn or any(each._is_torn for each in optimizer.learners)):
            is_old, is_new = (all(map(torch.equal, values, other)) for other in (before, after))
            assert is_old or is_new, line
            middle += is_old
            if is_old:
                optimizer.step()
                assert all(map(torch.equal, values, after)), line
        line += 1
    assert middle > 0.9 * line


def test_a_group_that_refuses_leaves_the_others_where_they_were() -> None:
    optimizer, values = two_groups(3)
    before = [value.clone() for value in values]
    for error in (refusal("gradients: expected something else"), ValueError("no"), Interrupt()):
        fail_in_second_group(optimizer, error)
        with pytest.raises(type(error)):
            optimizer.step()
        assert all(map(torch.equal, values, before))
    optimizer.learners[1].__dict__.pop("_observe")
    optimizer.learners[1].__dict__["_view"] = None
    optimizer.step()
    assert [int(each.rounds) for each in optimizer.learners] == [4, 4]


@pytest.mark.parametrize("error", [refusal("gradients: expected something else"), Interrupt()])
def test_large_groups_that_an_exception_parts_are_refused_until_a_load(error: BaseException) -> None:
    """A snapshot of a large group would cost more than a tenth of a step."""
    optimizer, _ = two_groups(2 * SNAPSHOT_BYTES)
    saved = optimizer.state_dict()
    fail_in_second_group(optimizer, error)
    with pytest.raises(type(error)):
        optimizer.step()
    for call in (optimizer.step, optimizer.state_dict, copy.deepcopy(optimizer).step):
        with pytest.raises(RuntimeError, match=r"^state: expected the whole state of ParameterFree.*load a state dict"):
            call()
    optimizer.learners[1].__dict__.pop("_observe")
    optimizer.load_state_dict(saved)
    optimizer.step()
    assert [int(each.rounds) for each in optimizer.learners] == [4, 4]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals of Unix")
def test_real_signals_leave_no_torn_state() -> None:
    """Signals of a timer, 400 or more in the steps of each of five learners: no state is torn, and no lock stays held.

    Which instruction a signal hits depends on the machine, and no assertion does. Where timers are coarse, fewer hit.
    """
    makers = {name: BANDITS[name] for name in ("OFUL", "AnytimeHeavyTailUCB", "LocalGLB", "FreeGrad", "MsMwC")}

    def handler(*_: Any) -> None:
        raise Interrupt

    previous = signal.signal(signal.SIGALRM, handler)
    hits = dict.fromkeys(makers, 0)
    try:
        for name, make in makers.items():
            learner, twin, attempts = make(), make(), 0
            own = getattr(learner, "estimator", learner)
            step(learner)
            start = snapshot(learner)
            twin.load_state_dict(start)
            step(twin, 0.5)
            after = snapshot(twin)
            while hits[name] < 400 and attempts < 4000:
                attempts += 1
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + 37 * attempts % 211))
                    step(learner, 0.5)
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
                except Interrupt:
                    hits[name] += 1
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                assert not own._is_torn
                now = snapshot(learner)
                assert differences(start, now) == [] or differences(after, now) == []
                assert is_free(own._lock)
                learner.load_state_dict(start)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
    print(f"interrupts that hit a step: {hits}")
    assert sum(hits.values()) > 0


def without(learner: Any, arm: int) -> Any:
    remove = learner.remove_actions if isinstance(learner, DisjointArms) else learner.remove_arms
    remove([arm])
    return learner


LOADED: dict[str, Callable[[], Any]] = {
    "arms with a model each": lambda: DisjointArms(RidgeRegression(8), 4, scaler=StandardScaler(7)),
    "fixed arms": lambda: FixedArms(OFUL(2), torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.0, 2.0]])),
}


@pytest.mark.parametrize("name", LOADED)
def test_an_interrupted_load_is_all_or_nothing(name: str) -> None:
    """Buffers that no step changes, such as ids and arms, come with the others."""
    saved, learner = without(LOADED[name](), 0), without(LOADED[name](), 3)
    step(saved, 2.0, 3)
    step(learner)
    state, before, line = saved.state_dict(), learner.state_dict(), 0
    while interrupted(lambda: learner.load_state_dict(state), line):
        now = learner.state_dict()
        is_old = now.keys() == before.keys() and all(torch.equal(now[key], before[key]) for key in now)
        assert is_old or all(torch.equal(now[key], state[key]) for key in state), f"torn at line {line}"
        learner.load_state_dict(before)
        line += 1
    assert line > 50
    assert learner.action_ids == [1, 2, 3]


def test_a_refused_assignment_leaves_fixed_arms_as_they_were() -> None:
    learner = LOADED["fixed arms"]()
    step(learner)
    before = snapshot(learner)
    with pytest.raises(RuntimeError, match="arms: expected no assignment"):
        learner.load_state_dict(learner.state_dict(), assign=True)
    assert differences(before, snapshot(learner)) == []
    step(learner)
