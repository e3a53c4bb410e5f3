"""Ctrl-C in the middle of a step: the step has not happened, or has, or the learner knows that it is torn.

An exception is raised at every line that a step runs, by a trace function, as a signal handler or a thread may raise one. Nothing
depends on time.
"""

import copy
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.interruption import Interrupt, interrupted, is_free
from tests.learners import differences, snapshot
from torchonline import (
    CAOONS,
    OFUL,
    FreeGrad,
    HeavyTailUCB,
    HvtUCB,
    LocalGLB,
    MsMwC,
    ParameterFree,
    SystemIdentification,
)
from torchonline.core import learner as core
from torchonline.core.checks import refusal
from torchonline.core.stepping import SNAPSHOT_BYTES

D = torch.float64


def features(dim: int) -> Tensor:
    return torch.linspace(0.1, 0.7, dim, dtype=D)


BANDITS: dict[str, Callable[[], Any]] = {
    "OFUL": lambda: OFUL(8),
    "HeavyTailUCB": lambda: HeavyTailUCB(8),
    "HvtUCB": lambda: HvtUCB(8, horizon=None),
    "LocalGLB": lambda: LocalGLB(8, feature_bound=3.0),
    "SystemIdentification": lambda: SystemIdentification(8, 2),
    "OFUL on tensors": lambda: on_tensors(OFUL(8)),
    "FreeGrad": lambda: FreeGrad(8),
    "MsMwC": lambda: MsMwC(8, rate=0.1),
    "CAOONS": lambda: CAOONS(2, lipschitz=1.0, horizon=64),
}


def on_tensors(policy: Any) -> Any:
    policy.estimator.is_small = False
    return policy


def step(learner: Any, scale: float = 1.0) -> None:
    own = getattr(learner, "estimator", learner)
    if hasattr(own, "queries"):
        learner.step(
            scale * features(own.points * own.dim).reshape(own.gradients_shape), torch.zeros(own.gradients_shape[:-1])
        )
    elif own.output_shape:
        learner.step(scale * features(8), torch.ones(2, dtype=D))
    else:
        learner.step(scale * features(8), torch.tensor(1.0, dtype=D))


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


@pytest.mark.parametrize("name", ["OFUL", "HeavyTailUCB", "FreeGrad", "MsMwC", "LocalGLB", "OFUL on tensors"])
def test_without_a_snapshot_an_interrupted_learner_knows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses everything by name until it is reset or loaded, unless nothing was written yet or all was."""
    monkeypatch.setattr(core, "SNAPSHOT_BYTES", 0)
    learner, done = BANDITS[name](), BANDITS[name]()
    step(learner)
    start = snapshot(learner)
    done.load_state_dict(start)
    step(done, 0.5)
    after, torn, line = snapshot(done), 0, 0
    own = getattr(learner, "estimator", learner)
    while interrupted(lambda: step(learner, 0.5), line):
        buffers = {name: buffer.clone() for name, buffer in learner.named_buffers() if name in start}
        if own._is_torn:
            torn += 1
            looks = [lambda: step(learner), learner.state_dict]
            if hasattr(learner, "select"):
                looks += [
                    lambda look=look: look(torch.ones(2, 8)) for look in (learner, learner.predict, learner.select)
                ]
            else:
                looks.append(learner.predict)
            for look in looks:
                with pytest.raises(RuntimeError, match=r"^state: expected the whole state of .* reset\(\)"):
                    look()
        else:
            assert differences(start, buffers) == [] or differences(after, buffers) == [], f"torn in silence at {line}"
        learner.load_state_dict(start)
        assert differences(start, snapshot(learner)) == []
        line += 1
    assert torn > 0
    interrupted(lambda: step(learner, 0.5), line // 2)
    own.reset()
    step(learner)


def test_several_rounds_loads_and_resets_are_all_or_nothing() -> None:
    """Also with state and learners of parts."""
    policy = HeavyTailUCB(3)
    rows, rewards = torch.randn(4, 3, dtype=D), torch.randn(4, dtype=D)
    master = CAOONS(2, lipschitz=1.0, horizon=64)
    step(master)
    other = snapshot(CAOONS(2, lipschitz=1.0, horizon=64))
    for learner, call in (
        (policy, lambda: policy.step(rows, rewards)),
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
    makers = {name: BANDITS[name] for name in ("OFUL", "HeavyTailUCB", "LocalGLB", "FreeGrad", "MsMwC")}

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
