"""Options of the constructors: one signature, a repr that shows them, and no change after construction."""

import copy
import inspect
from typing import Any, Unpack

import pytest
import torch

import torchonline
from tests.learners import CASES, Case, estimator_of
from torchonline import (
    OFUL,
    UCB,
    AnytimeHeavyTailUCB,
    FreeGrad,
    Greedy,
    HeavyTailRegression,
    LocalGLB,
    Poisson,
    RidgeRegression,
)
from torchonline.core.options import COMMON, LearnerOptions

pytestmark = pytest.mark.fast

PLAIN = [case for case in CASES if case.over is None]


def test_the_usual_noise_scale_is_that_of_rewards_from_0_to_1() -> None:
    """Half of the range, by Hoeffding's lemma: of [0, 1], and of [-1, 1] for DPUCB, which cuts rewards to it."""
    ones = {"SystemIdentification", "DPUCB"}
    learners = {case.cls for case in PLAIN} | {OFUL, AnytimeHeavyTailUCB}
    options = {cls.__name__: inspect.signature(cls).parameters for cls in learners}
    usual = {name: found["noise_scale"].default for name, found in options.items() if "noise_scale" in found}
    assert {"RidgeRegression", "AnytimeHeavyTailUCB", "HuberRegression", "NormalizedLMS"} <= set(usual)
    assert usual == {name: 1.0 if name in ones else 0.5 for name in usual}


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

    class Half(OFUL):
        """A policy that makes its estimator with another value than its own."""

        def __init__(self, dim: int, *, delta: float = 0.1) -> None:
            super().__init__(dim, delta=delta / 2.0)
            self.delta = delta

    assert (Half(2).delta, Half(2).estimator.delta) == (0.1, 0.05)


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_the_common_options_are_the_same_everywhere(case: Case) -> None:
    """Declared once, and seen by help and inspect in every constructor."""
    parameters = inspect.signature(case.cls).parameters
    defaults = {"batch_shape": (), "dtype": torch.float64, "device": None, "validate": True}
    assert tuple(parameters)[-4:] == COMMON
    for name, default in defaults.items():
        assert parameters[name].default == default
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("cls", [RidgeRegression, OFUL, AnytimeHeavyTailUCB, FreeGrad])
def test_an_unknown_option_is_refused_by_the_class_that_was_called(cls: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"^{cls.__name__}(\.__init__)?\(\) got an unexpected keyword argument 'ridges'"
    ):
        cls(2, ridges=1.0)


def test_a_subclass_may_set_an_option_of_its_own_after_the_buffers_are_made() -> None:
    """Once. Options of the class below it, and what its constants derive from, are as fixed as before."""

    class Tagged(HeavyTailRegression):
        def __init__(self, dim: int, tag: str = "a", **options: Any) -> None:
            super().__init__(dim, **options)
            self.tag = tag.upper()

    learner = Tagged(2, "b")
    assert (learner.tag, copy.deepcopy(learner).tag) == ("B", "B")
    for name, wanted in {"tag": "'B'", "moment_order": "2.0"}.items():
        with pytest.raises(AttributeError, match=f"^{name}: expected {wanted}, .*construct another Tagged"):
            setattr(learner, name, 1.5)
    with pytest.raises(AttributeError, match=r"^radius: expected no change, .*construct another RidgeRegression"):
        RidgeRegression(2).radius = "paper"  # type: ignore[assignment, method-assign]


class OwnOptions(LearnerOptions, total=False):
    """Options of a user's, besides the common ones."""

    offset: float


def test_a_learner_of_ones_own_may_have_options_of_its_own() -> None:
    """Nobody knows their defaults, so help shows them as they were written. A mixin may have no signature at all."""

    class Mine(RidgeRegression):
        def __init__(self, dim: int, **options: Unpack[OwnOptions]) -> None:
            self.offset = options.pop("offset", 0.0)
            super().__init__(dim, **options)

    class Mixed(dict, RidgeRegression):  # type: ignore[misc]
        def __init__(self, dim: int, **options: Unpack[LearnerOptions]) -> None:
            RidgeRegression.__init__(self, dim, **options)

    assert tuple(inspect.signature(Mine).parameters) == ("dim", "options")
    learner = Mine(2, offset=3.0, dtype=torch.float32)
    assert (learner.offset, learner.theta_hat.dtype) == (3.0, torch.float32)
    assert tuple(inspect.signature(Mixed).parameters) == ("dim", *COMMON)


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
