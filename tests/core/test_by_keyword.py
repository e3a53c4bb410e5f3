"""Noise scales are keyword-only in every public method: by position, an action would be learnt as a reward."""

import importlib
import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchonline
from tests import composed_policies
from tests.learners import CASES, Case, snapshot
from torchonline import OFUL, DisjointArms, FixedArms, RidgeRegression
from torchonline.diagnostics import NoiseDiagnostic
from torchonline.distributed import SharedLearner
from torchonline.models import BanditHead

BY_POSITION = r"^\w+: expected noise_scale( and \w+)* by keyword, \w+\(.*noise_scale=.*\), got \d positional arguments"


# What users import, but for files and programs, of which the arguments are positional.
PACKAGES = (
    "baselines", "callbacks", "convex", "diagnostics", "distributed", "environments", "feedback", "metrics", "models",
    "off_policy", "policies", "privacy", "regression",
)  # fmt: skip


def methods() -> dict[str, Any]:
    """Return the methods with a noise scale of all public classes and of their bases."""
    modules = [torchonline, *(importlib.import_module(f"torchonline.{name}") for name in PACKAGES)]
    public = [getattr(module, name) for module in modules for name in getattr(module, "__all__", vars(module))]
    classes = {base for value in public if isinstance(value, type) for base in value.__mro__}
    found = {
        f"{cls.__name__}.{name}": method
        for cls in classes
        if cls.__module__.startswith("torchonline.")
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }
    return {name: each for name, each in found.items() if "noise_scale" in inspect.signature(each).parameters}


@pytest.mark.fast
def test_every_public_method_refuses_a_noise_scale_by_position() -> None:
    found = methods()
    assert {
        "Estimator.step",
        "UCB.learn",
        "FixedArms.step",
        "BanditHead.learn",
        "NoiseDiagnostic.update",
    } <= found.keys()
    for name, method in found.items():
        parameters = inspect.signature(method).parameters.values()
        assert {each.kind for each in parameters if each.name == "noise_scale"} == {inspect.Parameter.KEYWORD_ONLY}, (
            name
        )
        by_position = [each for each in parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        with pytest.raises(TypeError, match=BY_POSITION):
            method(*by_position, 0.3)  # before it looks at any


def refuses(policy: Any) -> None:
    before, takes = snapshot(policy), len(inspect.signature(policy.step).parameters)
    arguments = (torch.ones(3), *[1] * (takes - 2), 0.3)
    for name in ("step", "learn"):
        if hasattr(policy, name):
            with pytest.raises(TypeError, match=rf"^{name}: expected noise_scale by keyword, {name}\("):
                getattr(policy, name)(*arguments)
    assert all(torch.equal(value, before[key]) for key, value in snapshot(policy).items())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_learner_that_refuses_one_by_position_does_not_change(case: Case) -> None:
    refuses(case.build())


@pytest.mark.parametrize("case", composed_policies.CASES, ids=str)
def test_a_composed_policy_that_refuses_one_by_position_does_not_change(case: Any) -> None:
    refuses(case.build())


@pytest.mark.fast
def test_the_error_shows_the_right_call() -> None:
    def error(call: Any, *arguments: Any) -> str:
        with pytest.raises(TypeError) as caught:
            call(*arguments)
        return str(caught.value)

    x = np.ones(2)
    wanted = "step: expected noise_scale by keyword, step(x, reward, noise_scale=0.3), got 3 positional arguments"
    hint = "; this step takes no action, x is the features of the chosen arm"
    assert error(RidgeRegression(2).step, x, 1, 0.3) == wanted + hint
    head = BanditHead(nn.Identity(), OFUL(2))
    of_arms, of_actions = torchonline.bandit(2), torchonline.bandit(2, actions=3)
    wanted = "step: expected noise_scale by keyword, step(inputs, action, reward, noise_scale=0.3), got 4 positional arguments"
    for policy in (OFUL(2), of_arms, DisjointArms(OFUL(2), 3), of_actions, FixedArms(OFUL(2), np.eye(2)), head):
        assert error(policy.step, np.eye(2), 1, 1.0, 0.3) == wanted
    rows = SharedLearner(RidgeRegression(2)), SharedLearner(OFUL(2))
    assert "observe(x, reward, noise_scale=0.3), got 3" in error(rows[0].observe, x, 1, 0.3)
    assert "observe(inputs, action, reward, noise_scale=0.3), got 4" in error(rows[1].observe, x[None], 0, 1, 0.3)
    many = error(OFUL(2).learn, x[None, None], [0], [1.0], None, 40)
    assert (
        "noise_scale and block_size by keyword, learn(inputs, action, reward, noise_scale=None, block_size=40)" in many
    )
    residual = torch.ones(3)
    for call in (NoiseDiagnostic().update, NoiseDiagnostic()):
        assert "(residual, noise_scale=1.0), got 2 positional" in error(call, residual, 1.0)
        assert "(residual, noise_scale=...), got 1 positional" in error(call, residual)


@pytest.mark.fast
def test_a_call_without_the_action_shows_the_right_one() -> None:
    """The former call of a policy on arms, with the chosen arm's features and the reward, is not learnt as something else."""
    x = torch.ones(2)
    whole = "with all arms of the decision, or pass the chosen arm's features as the only arm: step(x.unsqueeze(-2), 0, reward)"
    log = "with all arms of each decision, or pass the chosen arms' features as the only arms: learn(rows.unsqueeze(-2), zeros,"
    head, arms = BanditHead(nn.Identity(), OFUL(2)), torchonline.bandit(2, actions=3)
    for policy, how in (
        (OFUL(2), f"step(arms, action, reward) {whole}"),
        (torchonline.bandit(2), f"step(arms, action, reward) {whole}"),
        (head, f"step(arms, action, reward) {whole}"),
        (arms, "step(context, action, reward)"),
        (FixedArms(OFUL(2), np.eye(2)), "call step(None, action, reward)"),
    ):
        before = snapshot(policy)
        with pytest.raises(TypeError) as caught:
            policy.step(x, 1.0)
        assert str(caught.value).startswith("step() takes (inputs, action, reward), got no reward; ")
        assert str(caught.value).endswith(how)
        with pytest.raises(TypeError, match=r"^learn\(\) takes \(inputs, action, reward\), got no reward; ") as caught:
            policy.learn(x[None], [1.0])
        assert (log in str(caught.value)) == (how.endswith(whole))
        assert all(torch.equal(value, before[key]) for key, value in snapshot(policy).items())
    with pytest.raises(
        ValueError, match=r"^inputs: expected shape .*, got \(2\); call step\(arms, action, reward\) with all arms"
    ):
        OFUL(2).step(x, 0, 1.0)
    with pytest.raises(TypeError, match=r"^step\(\) takes \(inputs, action, reward\), got no action; "):
        OFUL(2).step(x, reward=1.0)
    rows = torch.ones(5, 2)
    for call in (OFUL(2).learn, OFUL(2).step):  # the chosen arms' features, without their dimension of arms
        with pytest.raises(
            ValueError, match=r"^inputs: expected shape \(n, K, 2\) for n actions and rewards, got \(5, 2\); "
        ):
            call(rows, [0] * 5, torch.ones(5))
