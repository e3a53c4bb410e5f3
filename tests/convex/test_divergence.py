"""The warning of learners whose features are far from their unit of length."""

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learners import differences, snapshot
from torchonline import CAOONS, CLAOONS, OONS, DivergenceWarning
from torchonline.convex.learner import ConvexLearner

D = torch.float64
LEARNERS: dict[str, Callable[..., Any]] = {
    "CLAOONS": CLAOONS,
    "CLAOONS, told a scale": lambda dim, **options: CLAOONS(dim, gradient_scale=1.0, **options),
    "CLAOONS, sketch": lambda dim, **options: CLAOONS(dim, form="sketch", sketch_size=3, **options),
    "OONS": lambda dim, scale=1.0, **options: OONS(dim, lipschitz=4.0 * scale, **options),
    "OONS, short": lambda dim, scale=1.0, **options: OONS(dim, lipschitz=1.0, **options),
    "OONS, ball": lambda dim, scale=1.0, **options: OONS(dim, lipschitz=4.0 * scale, radius_bound=4.0, **options),
}
EACH = pytest.mark.parametrize("name", list(LEARNERS))


@contextmanager
def heard() -> Iterator[list[str]]:
    """The divergence warnings of a block."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    assert all(one.category is DivergenceWarning for one in caught)
    texts += [str(one.message) for one in caught]


def classify(learner: ConvexLearner, scales: Tensor, rounds: int = 400, noise: float = 1.0) -> None:
    """Rounds of a logistic model with standard features times scales."""
    random, shape = torch.Generator().manual_seed(0), learner.batch_shape
    truth = torch.randn(learner.dim, generator=random, dtype=D)
    for _ in range(rounds):
        x = torch.randn(*shape, learner.dim, generator=random, dtype=D)
        y = x @ truth + noise * torch.randn(shape, generator=random, dtype=D) > 0.0
        x = x * scales
        z = (learner.predict() * x).sum(-1)
        learner.step((torch.sigmoid(z) - y.double()).unsqueeze(-1) * x)


def build(name: str, dim: int, scale: float, **options: Any) -> Any:
    return LEARNERS[name](dim, **options, **({"scale": scale} if name.startswith("OONS") else {}))


@EACH
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_unscaled_features_are_warned_about_once(name: str, batch_shape: tuple[int, ...]) -> None:
    """Features of different scales, and features of one scale that is far off."""
    for scales in (torch.tensor([1e3, 1.0, 30.0, 1e-3], dtype=D), torch.full((4,), 1e3, dtype=D)):
        learner = build(name, 4, 1e3, batch_shape=batch_shape)
        with heard() as texts:
            classify(learner, scales)
        assert len(texts) == 1, texts
        for word in (type(learner).__name__, "scale the features (StandardScaler)", "FreeGrad(per_coordinate=True)"):
            assert word in texts[0]


@EACH
@pytest.mark.parametrize("noise", [0.1, 1.0, 1e6])
def test_well_scaled_features_are_not(name: str, noise: float) -> None:
    """Easy to tell, hard, and nothing to tell."""
    with heard() as texts:
        classify(build(name, 4, 1.0), torch.ones(4, dtype=D), noise=noise)
    assert texts == []


def test_other_losses_of_a_reasonable_scale_are_not() -> None:
    """A distance to a point far away, to the origin itself, and gradients of noise only."""
    random = np.random.default_rng(0)
    for build_one in (
        lambda: CLAOONS(2),
        lambda: OONS(2, lipschitz=2.0),
        lambda: OONS(2, lipschitz=2.0, radius_bound=5.0),
    ):
        for target in ([30.0, -4.0], [1.0, 0.1], [0.0, 0.0]):
            learner, centre = build_one(), torch.tensor(target, dtype=D)
            with heard() as texts:
                for _ in range(300):
                    noise = torch.from_numpy(random.uniform(-0.5, 0.5, 2))
                    learner.step((learner.predict() - centre + noise).clamp(-1.0, 1.0))
            assert texts == []


def test_a_warning_that_is_an_error_changes_nothing() -> None:
    learner = CLAOONS(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DivergenceWarning):
            classify(learner, torch.full((3,), 1e3, dtype=D))
    assert int(learner.rounds) == 100
    before = snapshot(learner)
    learner.step(torch.ones(3))
    assert differences(before, snapshot(learner)) != []


@pytest.mark.fast
def test_it_points_at_the_caller() -> None:
    learner = CLAOONS(3)
    with pytest.warns(DivergenceWarning) as caught:
        classify(learner, torch.full((3,), 1e3, dtype=D))
    assert caught[0].filename == __file__
    with heard() as texts:  # nor do copies say it again
        classify(copy.deepcopy(learner), torch.full((3,), 1e3, dtype=D))
    assert texts == []


def test_a_learner_that_does_not_validate_does_not_watch() -> None:
    learner = CLAOONS(3, validate=False)
    with heard() as texts:
        classify(learner, torch.full((3,), 1e3, dtype=D))
    assert texts == []
    assert learner.watch.rounds == 0


def test_it_is_no_part_of_the_state() -> None:
    """A refused step does not count, copies count anew, and states are those of a learner that does not watch."""
    learner = CLAOONS(2)
    with pytest.raises(ValueError, match="gradients: expected finite"):
        learner.step(torch.tensor([torch.inf, 0.0]))
    assert learner.watch.rounds == 0
    learner.step(torch.ones(2))
    for twin in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        twin.step(torch.ones(2))
        twin.step(torch.ones(2))
        assert (learner.watch.rounds, twin.watch.rounds) == (1, 2)
    fresh = CLAOONS(2)
    fresh.load_state_dict(learner.state_dict())
    assert differences(snapshot(fresh), snapshot(learner)) == []


def test_learners_inside_a_learner_are_silent() -> None:
    """Most of CAOONS's learners play much too far away, on purpose."""
    learner = CAOONS(3, lipschitz=1.0, horizon=400, meta="linear")
    with heard() as texts:
        classify(learner, torch.ones(3, dtype=D))
    assert texts == []
