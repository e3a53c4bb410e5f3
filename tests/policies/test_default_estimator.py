"""A number of features in place of an estimator: ridge regression, with its options, under every policy."""

import inspect
import pickle
import re
from typing import Any, get_type_hints

import pytest
import torch
from torch import Tensor, nn

from tests.learners import same
from torchonline import (
    OFUL,
    UCB,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    Greedy,
    HeavyTailRegression,
    RadiusSelector,
    RidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    Softmax,
    SquareCB,
    StandardScaler,
    SystemIdentification,
    ThompsonSampling,
)
from torchonline.models import BanditHead
from torchonline.policies.default_estimator import RidgeOptions

RULE = "policy: expected a rule of choice, such as UCB, or an Estimator"
POLICIES = (UCB, Greedy, ThompsonSampling, EpsilonGreedy, SquareCB, Softmax)
OPTIONS: dict[str, Any] = {"noise_scale": 0.2, "ridge": 2.0, "delta": 0.1, "radius": "classic", "restart_every": 9}
OPTIONS |= {"theta_bound": 3.0, "radius_scale": 0.5, "batch_shape": (2,), "dtype": torch.float32, "validate": False}


@pytest.mark.parametrize("cls", POLICIES)
def test_a_number_of_features_builds_ridge_regression(cls: Any) -> None:
    """With the options given, and OFUL's defaults for the others."""
    policy, ridge = cls(3, **OPTIONS), RidgeRegression(3, **OPTIONS)
    assert type(policy.estimator) is RidgeRegression
    assert repr(policy.estimator) == repr(ridge)
    assert repr(cls(3).estimator) == repr(cls(dim=3).estimator) == repr(OFUL(3).estimator)
    assert repr(cls(dim=3, **OPTIONS).estimator) == repr(ridge)
    arms = torch.eye(3).expand(2, 3, 3)
    assert policy.select(arms).shape == (2,)
    for name, buffer in ridge.named_buffers():
        assert same(policy.get_buffer(f"estimator.{name}"), buffer)
    loaded = cls(RidgeRegression(3, **OPTIONS))
    loaded.load_state_dict(policy.state_dict())
    assert type(pickle.loads(pickle.dumps(policy)).estimator) is RidgeRegression


def test_a_policy_has_its_own_options_beside_them() -> None:
    assert ThompsonSampling(3, draws=7, noise_scale=0.3).draws == 7
    policy = EpsilonGreedy(3, epsilon=0.1, noise_scale=0.3)
    assert (policy.epsilon, policy.estimator.noise_scale) == (0.1, 0.3)


@pytest.mark.parametrize("cls", POLICIES)
def test_help_and_inspect_see_the_words(cls: Any) -> None:
    parameters, theirs = inspect.signature(cls).parameters, inspect.signature(RidgeRegression).parameters
    assert next(iter(parameters)) == "estimator"
    assert list(parameters)[-len(theirs) + 1 :] == list(theirs)[1:]
    assert {name: parameters[name].default for name in list(theirs)[1:]} == {
        name: one.default for name, one in theirs.items() if name != "dim"
    }
    assert "noise_scale: float = 0.5" in str(inspect.signature(cls))


def test_the_options_are_those_of_ridge_regression() -> None:
    """By name and type: type checkers read the one, and the other is what is called."""
    theirs = inspect.signature(RidgeRegression).parameters
    assert get_type_hints(RidgeOptions) == {name: one.annotation for name, one in theirs.items()}


class Mine(UCB):
    """A policy with a constructor of its own."""

    def __init__(self, dim: int, *, share: float = 0.5) -> None:
        super().__init__(dim, delta=0.1)
        self.share = share


def test_the_signature_of_a_policy_of_ones_own_is_its_constructors() -> None:
    assert tuple(inspect.signature(Mine).parameters) == ("dim", "share")
    assert Mine(3).estimator.delta == 0.1
    with pytest.raises(AttributeError):  # an instance is called with arms
        _ = Mine(3).__signature__


@pytest.mark.parametrize("cls", POLICIES)
def test_an_option_beside_an_estimator_is_refused(cls: Any) -> None:
    wanted = r"^noise_scale: expected .* the constructor of the HeavyTailRegression, got 0\.2 beside an estimator that is already"
    with pytest.raises(TypeError, match=wanted):
        cls(HeavyTailRegression(3), noise_scale=0.2)


@pytest.mark.parametrize("cls", POLICIES)
@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("3", "str"),
        (3.0, "float"),
        (True, "bool"),
        (None, "NoneType"),
        (torch.eye(3), r"torch\.float32 of shape \(3, 3\)"),
        (nn.Linear(3, 1), "Linear"),
        (SystemIdentification(3, outputs=2), "SystemIdentification"),
        (OFUL(3), "OFUL"),
    ],
    ids=repr,
)
def test_a_wrong_type_is_refused(cls: Any, value: Any, got: str) -> None:
    with pytest.raises(TypeError, match=rf"^estimator: expected an Estimator or a number of features, got {got}$"):
        cls(value)


@pytest.mark.parametrize("cls", POLICIES)
def test_wrong_values_and_unknown_options_are_refused(cls: Any) -> None:
    with pytest.raises(ValueError, match=r"^estimator: expected an integer above 0, got 0$"):
        cls(0)
    with pytest.raises(ValueError, match=r"^delta: expected"):
        cls(3, delta=2.0)
    with pytest.raises(ValueError, match=r"^dim: expected an integer above 0, got 0$"):
        cls(dim=0)
    with pytest.raises(TypeError, match=r"^dim: expected one number of features, got estimator=3 and dim=3$"):
        cls(3, dim=3)
    with pytest.raises(
        TypeError, match=r"^dim: expected this option in the constructor of the RidgeRegression, got 3 "
    ):
        cls(RidgeRegression(3), dim=3)
    for over in (3, RidgeRegression(3)):
        with pytest.raises(TypeError, match=rf"^{cls.__name__}\(\) got an unexpected keyword argument 'ridges'$"):
            cls(over, ridges=1.0)


def test_an_option_set_on_a_policy_is_refused_under_every_policy() -> None:
    """It would have no effect, as in OFUL."""
    policy = Greedy(3)
    with pytest.raises(AttributeError, match=r"^radius_scale: expected 1\.0, the estimator's, got 0\.3"):
        policy.radius_scale = 0.3  # type: ignore[assignment]


def test_files_are_those_of_a_policy_over_a_finished_estimator() -> None:
    def learnt(policy: Any) -> Tensor:
        scripted = torch.jit.script(policy)
        scripted.step(torch.eye(3).unsqueeze(-2), torch.zeros(3, dtype=torch.int64), torch.tensor([0.0, 1.0, 0.5]))
        return scripted(torch.eye(3))

    assert same(learnt(UCB(3, delta=0.1)), learnt(UCB(RidgeRegression(3, delta=0.1))))


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda: DisjointArms(3, 2), f"{RULE} such as RidgeRegression(3), got int"),
        (lambda: ScaledPolicy(3, StandardScaler(3)), f"{RULE} such as RidgeRegression(3)"),
        (lambda: FixedArms(3, torch.eye(3)), f"{RULE} such as RidgeRegression(3)"),
        (lambda: BanditHead(nn.Identity(), 3), f"{RULE} such as RidgeRegression(3)"),
        (lambda: RadiusSelector(3, 2), "estimator: expected an Estimator such as RidgeRegression(3), got int"),
        (lambda: SharedRadiusSelector(3), "estimator: expected an Estimator such as RidgeRegression(3), got int"),
        (lambda: DisjointArms("3", 2), f"{RULE}, got str"),
    ],
)
def test_what_is_made_of_an_estimator_says_which_to_give(build: Any, wanted: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(wanted)}"):
        build()
