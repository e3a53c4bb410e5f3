"""Options of the constructors: one signature, a repr that shows them, and no change after construction."""

import copy
import inspect
from typing import Any

import pytest
import torch

import torchonline
from tests.learners import CASES, Case, estimator_of
from torchonline import (
    OFUL,
    UCB,
    FreeGrad,
    Greedy,
    HeavyTailRegression,
    HeavyTailUCB,
    LocalGLB,
    Poisson,
    RidgeRegression,
)
from torchonline.core.options import COMMON

pytestmark = pytest.mark.fast

PLAIN = [case for case in CASES if case.over is None]


def test_a_repr_says_what_was_built() -> None:
    assert repr(RidgeRegression(4)) == "RidgeRegression(dim=4, batch_shape=(), dtype=torch.float64, device='cpu')"
    policy = OFUL(4, noise_scale=0.1, batch_shape=(2,), dtype=torch.float32)
    assert repr(policy) == (
        "OFUL(\n  (estimator): RidgeRegression(dim=4, noise_scale=0.1, batch_shape=(2,), dtype=torch.float32, device='cpu')\n)"
    )
    assert "link=Poisson()" in repr(LocalGLB(3, link=Poisson()).estimator).replace("\n", "")
    assert repr(FreeGrad(3)).startswith("FreeGrad(dim=3, ")
    assert "dtype=torch.float32" in repr(OFUL(2).float())
    assert repr(copy.deepcopy(policy)) == repr(policy)


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_every_repr_names_the_dimension_and_what_differs(case: Case) -> None:
    learner = case.build(batch_shape=(2,))
    text = repr(learner)
    assert type(learner).__name__ in text
    assert "dim=3" in text
    assert "batch_shape=(2,)" in text
    assert "dtype=torch.float64" in text
    for name, _ in case.options:
        assert f"{name}=" in text


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_an_option_is_fixed_by_name(case: Case) -> None:
    """Setting one raises, says what it is, and changes nothing; setting what it is already is no change."""
    estimator = estimator_of(case.build())
    for name in inspect.signature(type(estimator)).parameters:
        if name in ("validate", "dtype", "device") or name not in vars(estimator):
            continue
        value = getattr(estimator, name)
        setattr(estimator, name, value)
        with pytest.raises(AttributeError, match=f"^{name}: expected .*construct another {type(estimator).__name__}"):
            setattr(estimator, name, object())
        assert getattr(estimator, name) is value
    estimator.validate = False


def test_the_option_of_the_issue() -> None:
    estimator = HeavyTailRegression(2)
    with pytest.raises(AttributeError, match=r"^radius_scale: expected 1\.0, .* got 0\.3"):
        estimator.radius_scale = 0.3


def test_an_option_set_on_a_policy_is_refused() -> None:
    """It would have no effect. A policy of one's own may keep what it passes on, and have options of its own."""
    policy = OFUL(2)
    with pytest.raises(
        AttributeError, match=r"^radius_scale: expected 1\.0, the estimator's, got 0\.3; construct another OFUL"
    ):
        policy.radius_scale = 0.3
    policy.radius_scale = 1.0

    class Mine(UCB):
        def __init__(self, estimator: Any, noise_scale: float) -> None:
            super().__init__(estimator)
            self.noise_scale = noise_scale

    assert Mine(RidgeRegression(2), 2.0).noise_scale == 2.0


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_the_common_options_are_the_same_everywhere(case: Case) -> None:
    """Declared once, and seen by help and inspect in every constructor."""
    parameters = inspect.signature(case.cls).parameters
    defaults = {"batch_shape": (), "dtype": torch.float64, "device": None, "validate": True}
    assert tuple(parameters)[-4:] == COMMON
    for name, default in defaults.items():
        assert parameters[name].default == default
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("cls", [RidgeRegression, OFUL, HeavyTailUCB, FreeGrad])
def test_an_unknown_option_is_refused_by_the_class_that_was_called(cls: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"^{cls.__name__}(\.__init__)?\(\) got an unexpected keyword argument 'ridges'"
    ):
        cls(2, ridges=1.0)


def test_policies_over_an_estimator_show_it() -> None:
    for cls in (UCB, Greedy):
        assert "RidgeRegression(dim=2" in repr(cls(RidgeRegression(2)))


@pytest.mark.slow
def test_submodules_load_when_asked_for() -> None:
    """`import torchonline` is enough for torchonline.baselines, .export and .models."""
    import subprocess
    import sys

    from tests.fake_device import environment

    program = (
        "import sys, torchonline; assert 'pytorch_lightning' not in sys.modules\n"
        "print(torchonline.baselines.CRTM.__name__, torchonline.export.to_program.__name__)\n"
        "print(torchonline.models.BanditHead.__name__)\n"
        "print(torchonline.callbacks.__name__, torchonline.environments.LinearBandit.__name__, 'models' in dir(torchonline))\n"
        "try: torchonline.nothing\nexcept AttributeError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True)
    assert run.stdout.splitlines() == [
        "CRTM to_program",
        "BanditHead",
        "torchonline.callbacks LinearBandit True",
        "module 'torchonline' has no attribute 'nothing'",
    ]
    assert not hasattr(torchonline, "nothing")
