"""The learner that CONTRIBUTING adds keeps every rule of the contract, files included, with what the page says."""

import doctest
import functools
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fake_device import class_of, failures
from torchonline import UCB, DisjointArms, RidgeRegression, StandardScaler
from torchonline.export import to_program, to_torchscript
from torchonline.testing import Check, estimator_checks
from torchonline.testing.subject import EstimatorSubject

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page's code block as a file of its own."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    path = tmp_path_factory.mktemp("contributing") / "forgetful.py"
    path.write_text(blocks[0])
    return str(path)


@pytest.fixture(scope="module")
def cls(path: str) -> Any:
    """The class that the page adds."""
    return class_of(f"{path}:ForgetfulRegression")


@pytest.mark.parametrize("check", estimator_checks(lambda **options: RidgeRegression(3, **options)), ids=str)
def test_the_learner_of_the_page_keeps_the_contract(cls: Any, check: Check) -> None:
    """The rules are those of any regression."""
    check.rule.check(EstimatorSubject(functools.partial(cls, 3)))


def test_it_runs_on_another_device(path: str) -> None:
    """In a process that has the device, by file."""
    assert failures(f"{path}:ForgetfulRegression") == []


def test_its_example_runs(cls: Any) -> None:
    test = doctest.DocTestFinder().find(cls, globs={"torch": torch, "ForgetfulRegression": cls})[0]
    assert doctest.DocTestRunner().run(test).failed == 0
    for name in inspect.signature(cls).parameters:
        assert f"{name}:" in cls.__doc__


def test_its_files_learn(cls: Any) -> None:
    policy = UCB(cls(3))
    to_torchscript(policy)
    to_program(policy)


def test_arms_may_have_one_each(cls: Any) -> None:
    """On raw features, with a share of delta each; the arm that is played learns, alone."""
    arms = DisjointArms(cls(4, delta=0.3), actions=3, scaler=StandardScaler(3, freeze_after=2))
    assert arms.estimator.delta == pytest.approx(0.1)
    context = torch.tensor([[50.0, 3e4, 0.1], [20.0, 1e4, 0.2], [30.0, 2e4, 0.3], [40.0, 5e4, 0.4]])
    arms.step(context, [0, 1, 1, 2], [0.0, 1.0, 1.0, 0.0])
    assert arms.estimator.rounds.tolist() == [0, 1, 1]  # all start anew at the freeze
    start = cls(4).theta_hat
    assert torch.equal(arms.estimator.theta_hat[0], start)
    assert not torch.equal(arms.estimator.theta_hat[1], start)


def test_it_follows_a_parameter_that_jumps(cls: Any) -> None:
    learner, generator = cls(2, discount=0.95), torch.Generator().manual_seed(0)
    for theta in ((1.0, 0.0), (0.0, 1.0)):
        truth = torch.tensor(theta)
        for _ in range(300):
            x = torch.randn(2, generator=generator)
            learner.step(x, x @ truth)
        assert float((learner.theta_hat - truth).norm()) < 0.2


def test_it_is_recursive_least_squares(cls: Any) -> None:
    """The statistics are those of weighted least squares, computed anew."""
    learner, generator = cls(3, discount=0.9, ridge=2.0), torch.Generator().manual_seed(1)
    V, b = 2.0 * torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for t in range(40):
        x, reward = torch.randn(3, generator=generator, dtype=torch.float64), torch.randn((), generator=generator)
        learner.step(x, reward)
        V, b = 0.9 * V + torch.outer(x, x), 0.9 * b + reward * x
        V[t % 3, t % 3] += 0.1 * 2.0 * 3
    torch.testing.assert_close(learner.V, V, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(learner.theta_hat, torch.linalg.solve(V, b), rtol=1e-9, atol=1e-9)
