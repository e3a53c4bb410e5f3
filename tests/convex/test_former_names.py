"""Options and states of version 0.1.0 under their former names."""

import inspect
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.convex_learners import CLASSES, ConvexCase, play, stream
from tests.learners import differences, snapshot
from torchonline import CAOONS, CLAOONS, OONS, FreeGrad, MsMwC, MsMwCMaster, ParameterFree
from torchonline.baselines import OFTRL, AdaGrad, CoinBetting, OptimisticOMD, ParameterFreeMirrorDescent

# Former options of each class, with their names now.
OPTIONS: dict[Any, dict[str, str]] = {
    OONS: {"initial_radius": "length_scale"},
    CAOONS: {"scale0": "length_scale"},
    CLAOONS: {"initial_scale": "gradient_scale", "initial_radius": "length_scale"},
    FreeGrad: {"initial_scale": "length_scale"},
    CoinBetting: {"initial_wealth": "length_scale"},
    ParameterFreeMirrorDescent: {"initial_scale": "length_scale"},
}
NEWTON = {"center": "centre", "energy": "error_square_sum", "clipped": "clipped_rounds"}
EIGEN = {"shift": "identity_multiple"}
EIGENVECTORS = ("curvature.values", "curvature.vectors", "curvature.eigenvalues", "curvature.eigenvectors")
SKETCH = {"shift": "identity_multiple", "rows": "sketch", "extra": "removed_spectrum", "count": "rounds"}
FROZEN = {"shift": "identity_multiple"}
MASTER = {
    "clipped": "clipped_rounds",
    "middle": "inner_log_weights",
    "inner": "inner_weights",
    "top": "outer_log_weights",
}


def inside(part: str, names: dict[str, str]) -> dict[str, str]:
    """Names of buffers in a part."""
    return {f"{part}.{old}": f"{part}.{new}" for old, new in names.items()}


# A learner, the former names of its buffers, and the constant tables that its state had.
STATES: list[tuple[ConvexCase, dict[str, str], tuple[str, ...]]] = [
    (
        ConvexCase(OONS, (("radius_bound", 0.5),)),
        NEWTON | inside("curvature", EIGEN),
        ("length", "scale", *EIGENVECTORS),
    ),
    (
        ConvexCase(OONS, (("form", "frozen"),)),
        NEWTON | {"reach": "decision_bound"} | inside("curvature", FROZEN),
        ("length", "scale", "curvature.first"),
    ),
    (ConvexCase(OONS, (("form", "sketch"),)), NEWTON | {"reach": "decision_bound"} | inside("curvature", SKETCH), ()),
    (
        ConvexCase(CLAOONS),
        NEWTON
        | inside("curvature", EIGEN)
        | {
            "scale": "error_bound",
            "first_scale": "first_error_bound",
            "longest": "largest_gradient_norm",
            "total": "relative_norm_sum",
            "starts": "restart_count",
        },
        ("length", *EIGENVECTORS),
    ),
    (
        ConvexCase(CAOONS),
        inside("bases", NEWTON | inside("curvature", EIGEN)) | inside("meta", MASTER),
        ("wakes", "bases.length", "bases.scale", "bases.curvature.vectors", "meta.rates", "meta.twice", "meta.spans"),
    ),
    (ConvexCase(MsMwC), {"clipped": "clipped_rounds"}, ("rates",)),
    (ConvexCase(MsMwCMaster), MASTER, ("rates", "twice", "spans")),
    (
        ConvexCase(FreeGrad),
        {
            "root_energy": "root_gradient_square_sum",
            "longest": "largest_gradient_norm",
            "first": "first_gradient_norm",
            "length_sum": "gradient_norm_sum",
            "clipped": "clipped_rounds",
        },
        (),
    ),
    (ConvexCase(AdaGrad), {"energy": "gradient_square_sum"}, ()),
    (ConvexCase(CoinBetting), {"total": "coin_sum", "clipped": "clipped_rounds"}, ()),
    (ConvexCase(OFTRL), {"total": "gradient_sum", "penalty": "regularization"}, ()),
    (ConvexCase(OptimisticOMD), {"center": "centre", "energy": "error_square_sum"}, ()),
    (
        ConvexCase(ParameterFreeMirrorDescent),
        {"total": "gradient_sum", "energy": "error_square_sum", "clipped": "clipped_rounds"},
        (),
    ),
]


@pytest.mark.parametrize(("cls", "names"), OPTIONS.items())
def test_a_former_option_works_and_warns_with_its_name(cls: Any, names: dict[str, str]) -> None:
    """The learner is the same, says the new name in its repr, and both names together are refused."""
    for old, new in names.items():
        with pytest.warns(DeprecationWarning, match=f"^{old}: this option is called {new} now$") as caught:
            learner = ConvexCase(cls).build(**{old: 0.25})
        assert [one.filename for one in caught] == [inspect.getsourcefile(ConvexCase)]
        expected = ConvexCase(cls).build(**{new: 0.25})
        assert getattr(learner, new) == 0.25
        assert repr(learner) == repr(expected)
        assert f"{new}=0.25" in repr(learner)
        assert differences(snapshot(expected), snapshot(learner)) == []
        with pytest.raises(TypeError, match=f"^{old}: expected this option only under its name {new}, got both"):
            ConvexCase(cls).build(**{old: 0.25, new: 0.25})
        assert old not in inspect.signature(cls).parameters


def test_new_names_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cls, names in OPTIONS.items():
            ConvexCase(cls).build(**dict.fromkeys(names.values(), 0.25))


@pytest.mark.parametrize(("case", "names", "tables"), STATES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_a_state_of_0_1_0_goes_on_bit_for_bit(
    case: ConvexCase, names: dict[str, str], tables: tuple[str, ...], batch_shape: tuple[int, ...]
) -> None:
    """It had the buffers under former names, and constant tables, whose values do not matter."""
    learner = case.build(batch_shape=batch_shape)
    play(learner, case.stream(20, batch_shape))
    formerly = {new: old for old, new in names.items()}
    state: dict[str, Tensor] = {formerly.get(name, name): value for name, value in snapshot(learner).items()}
    assert set(names) <= set(state)
    assert not set(formerly) & set(state) - set(names)
    given = state | {name: torch.full((3,), torch.nan) for name in tables}
    fresh = case.build(batch_shape=batch_shape)
    fresh.load_state_dict(given)
    assert differences(snapshot(learner), snapshot(fresh)) == []
    assert set(given) == set(state) | set(tables), "loading leaves the dict as it is"
    losses = case.stream(10, batch_shape, seed=1)
    for one, other in zip(play(learner, losses), play(fresh, losses), strict=True):
        assert torch.equal(one, other)


def test_every_learner_with_former_names_is_here() -> None:
    renamed = {cls for cls in CLASSES if getattr(cls, "renamed", {}) or getattr(cls, "dropped", ())}
    assert {case.cls for case, _, _ in STATES} == renamed | {MsMwC}
    assert set(OPTIONS) == {cls for cls in CLASSES if hasattr(cls.__init__, "former_names")}


def trained(**options: Any) -> tuple[list[nn.Parameter], ParameterFree]:
    """Two groups after some steps."""
    params = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    groups = [{"params": params[:1]}, {"params": params[1:], "learner": "cla"}]
    optimizer = ParameterFree([groups[0] | options["first"], groups[1] | options["second"]])
    step(params, optimizer, 5)
    return params, optimizer


def step(params: list[nn.Parameter], optimizer: ParameterFree, count: int) -> None:
    for loss in stream(count, (), 3, 0):
        params[0].grad, params[1].grad = loss.a[:2].float(), loss.a.float()
        optimizer.step()


def test_groups_of_0_1_0_go_on() -> None:
    """Their options warn, and a state that has them under former names loads."""
    options = {"first": {"length_scale": 0.5}, "second": {"gradient_scale": 0.1, "length_scale": 3.0}}
    former = {"first": {"initial_scale": 0.5}, "second": {"initial_scale": 0.1, "initial_radius": 3.0}}
    params, optimizer = trained(**options)
    with pytest.warns(DeprecationWarning, match="this option is called") as caught:
        again, twin = trained(**former)
    assert [str(one.message).split(":")[0] for one in caught] == ["initial_scale", "initial_scale", "initial_radius"]
    assert {one.filename for one in caught} == {__file__}
    assert [learner.length_scale for learner in twin.learners] == [0.5, 3.0]
    state = optimizer.state_dict()
    for group, names in zip(state["param_groups"], (OPTIONS[FreeGrad], OPTIONS[CLAOONS]), strict=True):
        for old, new in names.items():
            group[old] = group.pop(new)
    step(again, twin, 3)
    twin.load_state_dict(state)
    with torch.no_grad():
        for one, other in zip(params, again, strict=True):
            other.copy_(one)
    step(params, optimizer, 5)
    step(again, twin, 5)
    assert all(map(torch.equal, params, again))
    assert "initial_scale" not in twin.param_groups[0]
