"""A state dict that version 0.1.0 wrote loads, and its learner goes on as 0.1.0 did; those of private learners are refused.

tests/data/states_0_1_0.json.gz was written by 0.1.0 before buffers were renamed. Each entry names a public class, the options it
was built with, the state after some rounds, further rounds and what the learner knew after them. Numbers are hexadecimal.
"""

import gzip
import inspect
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import torchonline
from tests.learners import by_name
from torchonline import CLAOONS, OFUL, AnytimeHeavyTailUCB, LocalGLMRegression, RidgeRegression, baselines
from torchonline.privacy import PrivateLearner

pytestmark = pytest.mark.fast

STATES = json.loads(gzip.decompress((Path(__file__).parents[1] / "data" / "states_0_1_0.json.gz").read_bytes()))
PROBE = torch.tensor([[0.5, -0.25, 1.0], [0.0, 1.0, -0.5]], dtype=torch.float64)


def tensor(entry: list[Any]) -> Tensor:
    """A tensor from its dtype, shape and values."""
    dtype, shape, values = entry
    numbers = [float.fromhex(value) if isinstance(value, str) else value for value in values]
    return torch.tensor(numbers, dtype=getattr(torch, dtype)).reshape(shape)


def name_of(entry: dict[str, Any]) -> str:
    return f"{entry['class']}({', '.join(f'{name}={value}' for name, value in entry['options'].items())})"


def built(entry: dict[str, Any]) -> Any:
    cls = getattr(torchonline, entry["class"], None) or getattr(baselines, entry["class"])
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in entry["options"].items()}
    if issubclass(cls, RidgeRegression):
        options["radius"] = "classic"
    if "noise_scale" in inspect.signature(cls).parameters:
        options.setdefault("noise_scale", 1.0)  # the default of 0.1.0
    if cls is LocalGLMRegression and "link" not in options:
        options.setdefault("ridge", 3.0 / (1.0 + options.get("feature_bound", 1.0)))  # the default of 0.1.0
    if cls is CLAOONS:
        options.setdefault("initial_scale", 1.0)  # the default of 0.1.0
    if issubclass(cls, PrivateLearner):
        options.setdefault("dim", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # options that have a new name, and radii of theory
        return cls(**options)


PRIVATE = [entry for entry in STATES if isinstance(built(entry), PrivateLearner)]


@pytest.mark.parametrize("entry", PRIVATE, ids=name_of)
def test_a_private_state_of_0_1_0_is_refused_by_name(entry: dict[str, Any]) -> None:
    """What 0.1.0 released gives records away in its last bits, so nothing goes on from there."""
    learner = built(entry)
    before = learner.state_dict()
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=r"(tag|noisy_\w+): expected an entry, got none"):
            learner.load_state_dict({name: tensor(value) for name, value in entry["state"].items()}, strict=strict)
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())


@pytest.mark.parametrize("entry", [entry for entry in STATES if entry not in PRIVATE], ids=name_of)
def test_a_state_of_0_1_0_loads_and_goes_on(entry: dict[str, Any]) -> None:
    learner = built(entry)
    learner.load_state_dict({name: tensor(value) for name, value in entry["state"].items()})
    for round_ in entry["next"]:
        by_name(learner.step, *(tensor(value) for value in round_.values()))
    looks = {"decision": lambda: learner.predict(), "theta_hat": lambda: learner.theta_hat}
    looks |= {"radius": lambda: learner.radius(), "width": lambda: learner.width(PROBE)}
    for name, look in looks.items():
        if name in entry:
            torch.testing.assert_close(look(), tensor(entry[name]), rtol=1e-9, atol=1e-11)


def test_every_public_learner_has_an_old_state() -> None:
    """But for those that did not exist in 0.1.0."""
    new = {"CustomLink", "DisjointArms", "RadiusSelector", "StandardScaler", "ScaledPolicy", "SharedRadiusSelector"}
    new |= {
        "AdaptiveRidgeRegression",
        "DiagonalRidgeRegression",
        "DiscountedRidgeRegression",
        "FLIPHAT",
        "FixedArms",
        "HybridArms",
        "MultinomialLogisticBandit",
        "NormalizedLMS",
        "RobustRidgeRegression",
    }
    new |= {
        "AdaECOLogRegression",
        "AdaOFULRegression",
        "BMMRegression",
        "BTCRegression",
        "CRTRegression",
        "DAdaptation",
        "DiscountedGLMRegression",
        "DoG",
        "DoWG",
        "ExpertEnsemble",
        "HuberBanditRegression",
        "MoMRegression",
        "Prodigy",
        "RarelySwitchingRegression",
        "RobustUCBRegression",
        "SOLOFTRL",
        "ScaleFreeCoinBetting",
        "ScheduleFree",
    }
    covered = {entry["class"] for entry in STATES}
    for package in (torchonline, baselines):
        for name in package.__all__:
            cls = getattr(package, name)
            if inspect.isclass(cls) and hasattr(cls, "state") and hasattr(cls, "step"):
                assert name in covered | new


def test_a_policy_loads_the_state_of_its_estimator() -> None:
    entry = next(entry for entry in STATES if entry["class"] == "RidgeRegression")
    policy = OFUL(3, radius="classic", noise_scale=1.0)
    policy.load_state_dict({f"estimator.{name}": tensor(value) for name, value in entry["state"].items()})
    assert int(policy.estimator.rounds) == 12


def test_a_state_dict_has_a_version() -> None:
    state = AnytimeHeavyTailUCB(2).state_dict()
    assert state._metadata["estimator"]["version"] == 2
    constants = [name for name in torchonline.LocalGLB(2).state_dict() if "nodes" in name]
    assert constants == [], "tables of constants are no part of a state dict"
