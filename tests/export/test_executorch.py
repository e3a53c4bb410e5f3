"""ExecuTorch files: they play like the policy on ExecuTorch's runtime, and say which operations it lacks."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchonline import GLBOMD, OFUL, DisjointArms, FixedArms, RidgeRegression, ThompsonSampling, bandit
from torchonline.export import to_executorch
from torchonline.export.executorch import REWRITTEN
from torchonline.export.runner import Runner
from torchonline.models import BanditHead

aten = torch.ops.aten
DOUBLE = torch.float64


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


POLICIES: dict[str, tuple[Any, tuple[int, ...] | None]] = {
    "OFUL": (lambda: OFUL(3), (4, 3)),
    "the default with arms": (lambda: bandit(3), (4, 3)),
    "the default with actions": (lambda: bandit(3, actions=3), (3,)),
    "fixed arms": (lambda: FixedArms(OFUL(3), normal(5, 3)), None),
    "a head": (lambda: BanditHead(nn.Linear(3, 2), DisjointArms(RidgeRegression(2), actions=3)), (3,)),
}


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_file_plays_200_rounds_like_its_policy(name: str, tmp_path: Path) -> None:
    make, shape = POLICIES[name]
    torch.manual_seed(0)
    policy = make()
    dtype = torch.float32 if name == "a head" else DOUBLE

    def decision(t: int) -> Tensor | None:
        return None if shape is None else normal(*shape, seed=t).to(dtype)

    def play(policies: list[Any], rounds: range) -> None:
        for t in rounds:
            inputs = decision(t)
            choices = [int(one.select(inputs)) for one in policies]
            assert len(set(choices)) == 1, t
            for one in policies:
                one.step(inputs, torch.tensor(choices[0]), normal(seed=1000 + t).sigmoid())

    play([policy], range(50))
    example = None if name != "a head" else decision(0)
    to_executorch(policy, tmp_path / "policy.pte", example=example, most_decisions=3, most_arms=5)
    runner = Runner.load(tmp_path / "policy.pte")
    play([policy, runner], range(50, 250))

    before, inputs = copy.deepcopy(runner.state), decision(0)
    for t in range(20):
        bad = (torch.nan, torch.inf, -torch.inf, 1e300)[t % 4]
        assert not runner.step(inputs, torch.tensor(0), torch.tensor(bad, dtype=DOUBLE))
        assert all(torch.equal(before[name], value) for name, value in runner.state.items())
    assert not runner.step(inputs, torch.tensor(99), torch.tensor(1.0, dtype=DOUBLE))
    if inputs is not None:
        assert int(runner.select(torch.full_like(inputs, torch.nan))) == -1

    again = make()
    again.load_state_dict(again.state_dict() | policy.state_dict() | runner.state)
    play([policy, again], range(250, 260))


def test_what_executorch_lacks_is_listed() -> None:
    for policy, operator in ((GLBOMD(2), "_linalg_solve_ex"), (ThompsonSampling(RidgeRegression(2)), "randn_like")):
        with pytest.raises(ValueError, match=rf"got a {type(policy).__name__}, which needs .*aten\.{operator}"):
            to_executorch(policy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"module": nn.Linear(2, 1)}, "module: expected a policy, got"),
        ({"path": "policy.pt2"}, r"path: expected a file name that ends in \.pte, got 'policy\.pt2'"),
        ({"most_decisions": 2}, "most_decisions: expected an integer of at least 3, got 2"),
        ({"most_arms": 4}, "most_arms: expected an integer of at least 5, got 4"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        to_executorch(**{"module": OFUL(2)} | options)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "executorch", None)
    with pytest.raises(ImportError, match=r'^to_executorch: expected executorch, .*pip install "\.\[executorch\]"'):
        to_executorch(OFUL(2))


BITS = torch.tensor([0, 1, -1, 2**62 + 1, -(2**62) - 5, 123456789012345678])
SPREAD = torch.cat(
    [torch.tensor([0.0, -0.0, 5e-324, 1.0, 2.0, -0.5, 1.7e308, torch.inf]).double(), normal(50).exp() ** 300]
)
IDS = torch.tensor([1, 4, 9])
CALLS = {
    aten.frexp.Tensor: (SPREAD,),
    aten.__rshift__.Scalar: (BITS, 30),
    aten.take.default: (normal(2, 3), torch.tensor([[0, 5], [3, 1]])),
    aten.searchsorted.Tensor: (IDS, torch.tensor([0, 4, 5, 10])),
    aten.sort.default: (normal(2, 5),),
    torch.ops.prims.convert_element_type.default: (normal(3), torch.float32),
    aten.sum.dim_IntList: (normal(2, 3), [-1], True),
    aten.diagonal_scatter.default: (normal(2, 3, 3), normal(2, 3), 0, -2, -1),
    aten.cat.default: ([normal(3), torch.arange(2)],),
    aten.add.Tensor: (normal(3), 0.1),
    aten.sub.Tensor: (0.1, normal(3)),
    aten.mul.Tensor: (0.1, normal(3)),
    aten.div.Tensor: (normal(3), 0.1),
}


def test_rewritten_operators_compute_the_same() -> None:
    assert set(CALLS) == set(REWRITTEN)
    for operator, arguments in CALLS.items():
        if any(isinstance(one, (int, float)) for one in arguments[:1]):  # a number first: torch wraps it
            wanted = operator(torch.tensor(arguments[0], dtype=DOUBLE), *arguments[1:])
        else:
            wanted = operator(*arguments)
        found = REWRITTEN[operator](*arguments)
        for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (wanted, found)), strict=True):
            assert one.dtype == other.dtype, operator
            assert torch.equal(one, other), operator


def test_calls_beyond_the_bounds_are_named(tmp_path: Path) -> None:
    runner = to_executorch(OFUL(2), tmp_path / "policy.pte", most_decisions=3, most_arms=5)
    with pytest.raises(ValueError, match="inputs: expected at most 5 arms, got 6"):
        runner.select(torch.zeros(6, 2))
    with pytest.raises(ValueError, match="inputs: expected at most 3 decisions, got 4"):
        runner.select(torch.zeros(4, 5, 2))
    with pytest.raises(ValueError, match="inputs: expected at most 5 arms, got 6"):
        runner.step(torch.zeros(6, 2), 0, 1.0)
