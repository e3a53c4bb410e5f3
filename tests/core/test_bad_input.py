"""What constructors refuse, what a bad row among good ones does, and switched-off checks. The rest is rule 9."""

import inspect
import math
from typing import Any

import pytest
import torch

from tests.bad_arguments import BAD_OPTIONS
from tests.learners import (
    BATCH_SHAPES,
    CASES,
    DIM,
    MODELS,
    REQUIRED,
    Case,
    differences,
    estimator_of,
    play,
    public_classes,
    required,
    round_of,
    snapshot,
    takes_none,
)
from torchonline import OFUL, RidgeRegression
from torchonline.core.checks import LONG
from torchonline.policies.rules import Rule
from torchonline.regression.estimator import Estimator
from torchonline.testing.arguments import bad_steps, no_masks

CLASSES = public_classes(Estimator, Rule)
OPTIONS = [
    pytest.param(cls, name, takes_none(parameter), id=f"{cls.__name__}-{name}")
    for cls in CLASSES
    for name, parameter in inspect.signature(cls).parameters.items()
]


def good_arguments(cls: Any) -> dict[str, Any]:
    """Return what a constructor needs. A number of features builds the estimator of a policy."""
    names = {*required(cls), *({"estimator"} & inspect.signature(cls).parameters.keys())}
    return {name: REQUIRED.get(name, DIM) for name in names}


@pytest.mark.parametrize(("cls", "name", "may_be_none"), OPTIONS)
def test_a_bad_option_is_refused_by_name(cls: Any, name: str, may_be_none: bool) -> None:
    good = good_arguments(cls)
    if name == "dim":  # in place of an estimator
        good.pop("estimator", None)
    for value in BAD_OPTIONS[name]:
        if value is None and may_be_none:
            continue
        with pytest.raises((ValueError, TypeError)) as caught:
            cls(**good | {name: value})
        assert caught.type in (ValueError, TypeError), value
        assert str(caught.value).startswith(f"{name}: expected "), value


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("name", ["noise_scale", "theta_bound", "feature_bound", "minimum_scale", "floor"])
@pytest.mark.parametrize("value", [1e-40, 1e40, 10**400])
def test_an_option_beyond_the_range_of_the_state_is_refused_by_name(cls: Any, name: str, value: float) -> None:
    """In float32 it would be infinite or 0; and a ridge that comes of it is not what is named."""
    if name in inspect.signature(cls).parameters:
        with pytest.raises(ValueError, match=f"^{name}: expected |^theta_bound / noise_scale: expected "):
            cls(**good_arguments(cls) | {name: value}, dtype=torch.float32)


@pytest.mark.parametrize("cls", CLASSES)
def test_what_is_required_is_required(cls: Any) -> None:
    for name in required(cls):
        rest = good_arguments(cls)
        del rest[name]
        with pytest.raises(TypeError, match=name):
            cls(**rest)
    with pytest.raises(TypeError, match="lambda_"):
        cls(**good_arguments(cls), lambda_=1.0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_numbers_may_come_as_integers_and_shapes_as_lists(case: Case) -> None:
    """An int where a float is meant, a list of sizes, and the widest ranges."""
    cls = case.cls if case.over is None else case.over.cls
    names = inspect.signature(cls).parameters
    whole = {
        name: 2 for name in ("theta_bound", "ridge", "radius_scale", "noise_scale", "moment_order") if name in names
    }
    estimator = cls(**{key: REQUIRED[key] for key in required(cls)} | whole, batch_shape=[2, 1])
    assert estimator_of(estimator).theta_hat.shape == (2, 1, DIM, *case.output_shape)


def test_there_are_enough_kinds() -> None:
    """More than 28 kinds of bad input to a learner, of more than 10 arguments and options."""
    estimator, policy = (Case(cls).subject for cls in (RidgeRegression, OFUL))
    kinds = {
        (name, kind)
        for subject in (estimator, policy)
        for layout in BATCH_SHAPES
        for kind, name, _ in bad_steps(subject, layout, (3,))
    }
    kinds |= {("mask", kind) for kind in no_masks(torch.ones(2, 4, dtype=torch.bool), DIM)}
    assert len(kinds) > 100
    assert len({kind for _, kind in kinds}) >= 28
    assert {name for name, _ in kinds} == {"x", "inputs", "action", "reward", "noise_scale", "mask"}
    options = {name for cls in CLASSES for name in inspect.signature(cls).parameters}
    assert options <= set(BAD_OPTIONS), "an option without bad values: name some in BAD_OPTIONS"


@pytest.mark.parametrize("case", MODELS, ids=str)
@pytest.mark.parametrize("batch_shape", BATCH_SHAPES)
@pytest.mark.parametrize("bad_row", [0, 3, 6])
def test_a_bad_row_among_good_ones(case: Case, batch_shape: tuple[int, ...], bad_row: int) -> None:
    """Seven rounds, one of them with a bad number: none of them is learnt."""
    learner = case.build(batch_shape=batch_shape)
    play(learner, case.stream(9, batch_shape=batch_shape))
    before = snapshot(learner)
    for name, values in {
        "x": (torch.nan, torch.inf, -torch.inf, 1e200),
        case.response: (torch.nan, torch.inf, -torch.inf, 1e200),
        "noise_scale": (torch.nan, torch.inf, -torch.inf, 1e200, -1.0),
    }.items():
        for value in values:
            rounds = {
                "x": torch.randn(*batch_shape, 7, DIM, dtype=torch.float64),
                case.response: case.possible(torch.randn(*batch_shape, 7, *case.output_shape, dtype=torch.float64)),
                "noise_scale": torch.ones(*batch_shape, 7, *case.output_shape, dtype=torch.float64),
            }
            if name == "x":
                rounds["x"][..., bad_row, 1] = value
            else:
                rounds[name].select(len(batch_shape), bad_row)[...] = value
            with pytest.raises(ValueError, match=f"^{name}: expected ") as caught:
                learner.step(**rounds)
            assert caught.type is ValueError
            assert differences(before, snapshot(learner)) == []


# Symmetric noise is not clipped, so a reward far below what can be squared is refused for its weight.
@pytest.mark.parametrize("case", [case for case in MODELS if "symmetric" not in str(case)], ids=str)
def test_single_precision_has_a_smaller_range(case: Case) -> None:
    """What float64 can square and float32 cannot is refused by the one and taken by the other."""
    one = torch.ones(case.output_shape)
    arguments = {"x": torch.ones(DIM), case.response: one, "noise_scale": 1e20 * one}
    double, single = case.build(), case.build(dtype=torch.float32)
    double.step(**arguments)
    assert double.rounds == 1
    before = snapshot(single)
    with pytest.raises(ValueError, match=r"^noise_scale: expected .*float32"):
        single.step(**arguments)
    assert differences(before, snapshot(single)) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_value_checks_shapes_and_types_still_are(case: Case) -> None:
    """validate=False is for accelerators: it lets NaN through, and nothing else."""
    learner, one = case.build(validate=False), torch.ones(case.output_shape)
    with pytest.raises(ValueError, match=r"^inputs: expected " if case.decides else r"^x: expected "):
        learner.step(*round_of(learner, torch.ones(DIM + 1), one))
    with pytest.raises(TypeError, match=f"^{case.response}: expected "):
        learner.step(*round_of(learner, torch.ones(DIM), one)[:-1], "1.0")
    if case.decides:
        with pytest.raises(ValueError, match=r"^inputs: expected "):
            learner.select(torch.ones(DIM))
        with pytest.raises(ValueError, match=r"^action: expected "):
            learner.step(torch.ones(2, DIM), 2, one)
    learner.step(*round_of(learner, torch.ones(DIM), torch.nan * one))
    assert any(bool(buffer.isnan().any()) for buffer in learner.buffers())


def test_errors_say_what_was_expected_and_what_came() -> None:
    learner = CASES[0].build(batch_shape=(2,))
    with pytest.raises(ValueError, match=r"^x: expected shape \(2, 3\) or \(2, n, 3\), got \(2, 4\)$"):
        learner.step(torch.ones(2, 4), torch.ones(2))
    with pytest.raises(ValueError, match=r"^reward: expected shape \(2\), got \(3\)$"):
        learner.step(torch.ones(2, 3), torch.ones(3))
    with pytest.raises(ValueError, match=r"^reward: expected finite values, got nan$"):
        learner.step(torch.ones(2, 3), torch.tensor([1.0, torch.nan]))
    with pytest.raises(
        TypeError, match=r"^x: expected a floating-point tensor, got torch.int64; convert it by \.float\(\)$"
    ):
        learner.step(torch.ones(2, 3, dtype=torch.int64), torch.ones(2))
    with pytest.raises(
        TypeError, match=r"^x: expected a torch.Tensor, a NumPy array or \(lists of\) real numbers, got str$"
    ):
        learner.step("x", torch.ones(2))
    with pytest.raises(ValueError, match=r"^x: expected a tensor on cpu, got one on meta$"):
        learner.step(torch.ones(2, 3, device="meta"), torch.ones(2))


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e200])
def test_long_arrays_are_checked_too(value: float) -> None:
    policy = OFUL(50)
    arms = torch.zeros(LONG // 50, 50, dtype=torch.float64)
    arms[0, 0] = 1.0  # so that no arms tie
    assert policy.select(arms) == 0
    arms[-1, -1] = value
    with pytest.raises(ValueError, match=r"^inputs: expected "):
        policy.select(arms)
