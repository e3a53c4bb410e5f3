"""Loads, saves and moves that must not hurt a state, and constructors of users' subclasses."""

import dataclasses
import math
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.interruption import interrupted
from tests.learners import differences, snapshot
from torchonline import (
    CAOONS,
    OFUL,
    OONS,
    AnytimeHeavyTailUCB,
    HeavyTailRegression,
    LocalGLB,
    LocalGLMRegression,
    MsMwC,
    RidgeRegression,
)
from torchonline.models import BanditHead

pytestmark = pytest.mark.fast

D = torch.float64


def torn() -> Any:
    learner = RidgeRegression(2)
    vars(learner)["_is_torn"] = True
    return learner


def test_a_load_without_entries_leaves_a_torn_learner_torn() -> None:
    learner = torn()
    with pytest.raises(RuntimeError, match="Missing key"):
        learner.load_state_dict({})
    nn.ModuleDict({"linear": nn.Linear(2, 2), "learner": learner}).load_state_dict(
        {f"linear.{name}": value for name, value in nn.Linear(2, 2).state_dict().items()}, strict=False
    )
    with pytest.raises(RuntimeError, match=r"^state: "):
        learner(torch.ones(2))
    learner.load_state_dict(RidgeRegression(2).state_dict())
    assert float(learner(torch.ones(2))) == 0.0


@pytest.mark.parametrize("bad", [lambda V: V.to("meta"), lambda V: V.to_sparse()])
def test_an_entry_that_cannot_be_copied_changes_nothing(bad: Any) -> None:
    learner, other = RidgeRegression(2), RidgeRegression(2)
    other.step(torch.ones(2), 1.0)
    before = learner.state_dict()
    with pytest.raises(RuntimeError, match="V: expected a dense tensor with values"):
        learner.load_state_dict(other.state_dict() | {"V": bad(other.V)})
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())


def test_a_copy_that_fails_in_the_middle_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """nn.Module notes such an error and goes on."""
    learner, other = RidgeRegression(2), RidgeRegression(2)
    other.step(torch.ones(2), 1.0)
    before, copy_ = learner.state_dict(), Tensor.copy_

    def fails(self: Tensor, value: Tensor, *arguments: Any) -> Tensor:
        if self is learner.V:
            raise RuntimeError("no memory")
        return copy_(self, value, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "copy_", fails)
        with pytest.raises(RuntimeError):
            learner.load_state_dict(other.state_dict())
    monkeypatch.undo()
    assert vars(learner)["_is_torn"] or all(
        torch.equal(value, before[name]) for name, value in learner.state_dict().items()
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: MsMwC(2, rate=0.1, **o),
        lambda **o: OONS(2, lipschitz=1.0, **o),
        lambda **o: CAOONS(2, lipschitz=1.0, horizon=100, **o),
        lambda **o: LocalGLB(2, **o),
    ],
)
@pytest.mark.parametrize("assign", [False, True])
def test_deferred_initialisation_makes_the_tables_anew(make: Any, assign: bool) -> None:
    one, other = make(), make(device="meta")
    if not assign:
        other = other.to_empty(device="cpu")
    other.load_state_dict(one.state_dict(), assign=assign)
    x = torch.tensor([0.1, 0.2], dtype=D)
    for learner in (one, other):
        if hasattr(learner, "select"):
            learner.step(x[None], 0, 1.0)
        else:
            learner.step(x.expand(learner.queries().shape).clone(), torch.ones(learner.queries().shape[:-1]).double())
    theirs = other.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in one.state_dict().items())


def test_a_state_dict_is_a_copy_of_one_round() -> None:
    learner = RidgeRegression(2)
    state = learner.state_dict()
    learner.step(torch.ones(2), 1.0)
    assert int(state["rounds"]) == 0
    assert learner.state_dict(keep_vars=True)["V"] is learner.V


def test_moves_wait_for_the_step_of_another_thread() -> None:
    policy, inside, moved = OFUL(2), threading.Event(), threading.Event()

    def step() -> None:
        with policy.estimator._lock:
            inside.set()
            assert not moved.wait(0.2)

    thread = threading.Thread(target=step)
    thread.start()
    inside.wait()
    policy.to(torch.float32)
    moved.set()
    thread.join()
    assert policy.estimator.V.dtype == torch.float32


def test_an_interrupted_first_choice_does_not_break_the_next() -> None:
    arms, line = torch.eye(2, dtype=D), 0
    while True:
        policy = OFUL(2)
        is_interrupted = interrupted(lambda policy=policy: policy.select(arms), line)
        assert int(policy.select(arms)) in (0, 1)
        if not is_interrupted:
            break
        line += 1
    assert line > 20


def test_an_interrupted_head_encodes_as_before() -> None:
    torch.manual_seed(0)
    head = BanditHead(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), OFUL(3))
    inputs, line = torch.randn(2, 3), 0
    reference = head.train().encode(inputs)
    while interrupted(lambda: head.encode(inputs), line):
        head.train()
        assert torch.equal(head.encode(inputs), reference)
        line += 1
    assert line > 5


class WithOptions(RidgeRegression):
    """Has arguments that are called like the library's own."""

    def __init__(self, dim: int, options: Any = None, cls: Any = None) -> None:
        super().__init__(dim)
        self.mine = options


class Anything(RidgeRegression):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)


def test_subclasses_may_have_arguments_of_any_name() -> None:
    assert WithOptions(2, options=[1], cls=3).mine == [1]
    assert WithOptions(2, {"a": 1}).mine == {"a": 1}
    assert "Anything(" in repr(Anything(2, noise_scale=0.5))

    @dataclasses.dataclass(eq=False)
    class Data(nn.Module):
        size: int = 2

    assert Data(size=3).size == 3


def test_options_that_share_a_name_with_a_method_cannot_be_set() -> None:
    with pytest.raises(AttributeError, match=r"^radius: "):
        RidgeRegression(2).radius = "classic"  # type: ignore[assignment, method-assign]
    with pytest.raises(AttributeError, match=r"^noise_scale: "):
        AnytimeHeavyTailUCB(2).estimator.noise_scale = torch.ones(2)


@pytest.mark.parametrize("name", ["theta_hat", "V", "V_inv", "logdet"])
def test_infinity_is_no_state(name: str) -> None:
    """Nothing is loaded of a state that no learner has."""
    learner = RidgeRegression(2)
    state = learner.state_dict()
    state[name].fill_(math.inf)
    before = snapshot(learner)
    with pytest.raises(RuntimeError, match=rf"{name}: expected finite numbers, got infinity"):
        learner.load_state_dict(state)
    assert differences(before, snapshot(learner)) == []


def played(make: Any, rounds: int, seed: int) -> Any:
    """A learner of three features after rounds with features of very different units."""
    random = torch.Generator().manual_seed(seed)
    learner = make()
    for _ in range(rounds):
        x = torch.randn(3, generator=random, dtype=torch.float64) * torch.tensor([1.0, 1e-2, 30.0])
        if hasattr(learner, "queries"):
            learner.step(x / x.norm())
        else:
            learner.step(x, 1.0)
    return learner


WITH_INVERSES = {
    "ridge": lambda: RidgeRegression(3),
    "float32": lambda: RidgeRegression(3, dtype=torch.float32),
    "heavy tails": lambda: HeavyTailRegression(3),
    "link": lambda: LocalGLMRegression(3, feature_bound=1e3),
    "convex": lambda: OONS(3, lipschitz=1.0, form="frozen"),
}


@pytest.mark.parametrize("name", WITH_INVERSES)
def test_a_mean_of_states_is_no_state(name: str) -> None:
    """The inverse of a mean is not the mean of the inverses; a state itself is loaded."""
    one, other = (played(WITH_INVERSES[name], rounds, seed) for rounds, seed in ((5, 0), (400, 1)))
    for each in (one, other):
        WITH_INVERSES[name]().load_state_dict(each.state_dict())
    theirs = other.state_dict()
    mean = {key: value if key == "constants" else (value + theirs[key]) / 2 for key, value in one.state_dict().items()}
    mean = {key: value.to(theirs[key].dtype) for key, value in mean.items()}
    before = snapshot(one)
    with pytest.raises(
        RuntimeError, match=r"expected the inverse of \w+, got a matrix whose product with it is off by"
    ):
        one.load_state_dict(mean)
    assert differences(before, snapshot(one)) == []


def test_an_inverse_may_be_as_far_off_as_rounding_takes_it() -> None:
    """Features that differ in the eighth digit alone, in float32."""
    learner = RidgeRegression(2, dtype=torch.float32, ridge=1e-3)
    for i in range(1000):
        learner.step(torch.tensor([1.0, 1.0 + 1e-6 * (i % 2)]), 1.0)
    RidgeRegression(2, dtype=torch.float32, ridge=1e-3).load_state_dict(learner.state_dict())
