"""FreeGrad with a learner for each coordinate: its reference, its bound, and its freedom from the features' scale."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.convex.test_freegrad import ROUNDS, SEQUENCES
from tests.learners import close, differences, snapshot
from tests.reference.freegrad import PerCoordinateReference
from torchonline import FreeGrad

D = torch.float64
KINDS: list[dict[str, Any]] = [{}, {"restarts": False}, {"lipschitz": 1.0}, {"initial_wealth": 0.1}]
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=["restarts", "once", "lipschitz", "wealth"])


def build(dim: int, **options: Any) -> FreeGrad:
    return FreeGrad(dim, per_coordinate=True, **options)


def mixed(make: Callable[..., np.ndarray], dim: int, seed: int) -> np.ndarray:
    """A sequence for each coordinate, which begin at different times, in different units, and pause."""
    random = np.random.default_rng(seed)
    g = np.concatenate([make(1, seed + i) for i in range(dim)], 1)
    g[random.random(g.shape) < 0.3] = 0.0
    for i in range(1, dim):
        g[: random.integers(0, 40), i] = 0.0
    return g * 10.0 ** random.uniform(-2, 2, dim) * 10.0 ** random.uniform(-1, 0, (ROUNDS, 1))


@EACH_KIND
@pytest.mark.parametrize("make", SEQUENCES)
def test_it_is_the_reference(make: Callable[..., np.ndarray], kind: dict[str, Any]) -> None:
    references = [PerCoordinateReference(3, **kind) for _ in range(2)]
    singles, batched = [build(3, **kind) for _ in range(2)], build(3, batch_shape=(2,), **kind)
    batched.is_small = False
    for pair in zip(mixed(make, 3, 0), mixed(make, 3, 1), strict=True):
        g = torch.from_numpy(np.stack(pair))
        batched.step(g)
        for i in range(2):
            references[i].step(pair[i])
            singles[i].step(g[i])
    for i, reference in enumerate(references):
        for learner, at in ((singles[i], ...), (batched, i)):
            close(learner.decision[at], torch.from_numpy(reference.x))
            for buffer, values in (
                ("root_gradient_square_sum", [math.sqrt(part.V) for part in reference.parts]),
                ("largest_gradient_norm", [part.h for part in reference.parts]),
                ("first_gradient_norm", [part.h_1 for part in reference.parts]),
            ):
                close(getattr(learner, buffer)[at], torch.tensor(values, dtype=D), tolerance=1e-12)
            assert learner.clipped_rounds[at] == reference.clipped


@EACH_KIND
@pytest.mark.parametrize("make", SEQUENCES)
def test_regret_is_below_the_sum_of_bounds(make: Callable[..., np.ndarray], kind: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    for seed in range(4):
        reference = PerCoordinateReference(3, **kind)
        for g in mixed(make, 3, seed):
            reference.step(g)
        best = -np.sign([part.sum[0] for part in reference.parts])
        for size in (0.0, 1e-3, 1.0, 1e3):
            for u in (size * best, size * best * random.random(3), size * random.standard_normal(3)):
                bound = reference.bound(u)
                assert reference.regret(u) <= bound + 1e-9 * abs(bound)


@pytest.mark.parametrize("dtype", [D, torch.float32])
@pytest.mark.parametrize("make", SEQUENCES)
def test_decisions_are_in_inverse_units_of_the_gradients(make: Callable[..., np.ndarray], dtype: torch.dtype) -> None:
    """Coordinate i of the gradients times c_i, of either sign: coordinate i of decisions over c_i, to rounding."""
    c = torch.tensor([1.0, -1e-3, 7e5], dtype=D)
    one, other = build(3, dtype=dtype), build(3, dtype=dtype)
    for g in torch.from_numpy(mixed(make, 3, 1)):
        one.step(g.to(dtype))
        other.step((c * g).to(dtype))
        ours, theirs = one.decision.double(), c * other.decision.double()
        assert bool(((ours - theirs).abs() <= (1e-11 if dtype == D else 1e-3) * ours.abs()).all())


def predictions(x: Tensor, y: Tensor) -> Tensor:
    """Predictors of a logistic model, which learns round by round."""
    learner, z = build(x.size(1)), torch.empty(len(x), dtype=D)
    for t, (row, label) in enumerate(zip(x, y, strict=True)):
        z[t] = row @ learner.predict()
        learner.step((torch.sigmoid(z[t]) - label) * row)
    return z


def test_predictions_of_a_linear_model_do_not_depend_on_the_features_scales() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((300, 6)) * (random.random((300, 6)) < 0.5)
    x[:, -1] = 1.0
    y = torch.from_numpy((x @ random.standard_normal(6) + random.standard_normal(300) > 0.0).astype(float))
    plain = predictions(torch.from_numpy(x), y)
    scaled = predictions(torch.from_numpy(x * 10.0 ** random.uniform(-30, 30, 6)), y)
    assert float(plain.abs().max()) > 1.0
    close(scaled, plain, tolerance=1e-10)


@pytest.mark.parametrize("views", [True, False])
def test_a_gradient_of_0_leaves_its_coordinate_alone(views: bool) -> None:
    """Bit for bit, before the coordinate's first gradient and after."""
    learner, random = build(4), torch.Generator().manual_seed(0)
    learner.is_small &= views
    for t in range(40):
        g = torch.randn(4, generator=random, dtype=D) * (torch.rand(4, generator=random) < 0.5)
        before = {name: value.clone() for name, value in learner.state().items() if value.shape == (4,)}
        learner.step(g)
        for name, value in before.items():
            assert torch.equal(learner.state()[name][g == 0.0], value[g == 0.0]), (t, name)


def test_a_first_gradient_in_a_round_of_short_ones_is_taken_for_longer() -> None:
    """A feature that appears where the slope of the loss is nearly 0 has the scale that other features say."""
    learner = build(2)
    for _ in range(3):
        learner.step(torch.tensor([1.0, 0.0]))
    for _ in range(5):
        learner.step(torch.tensor([1e-40, 3e-40], dtype=D))
    close(learner.first_gradient_norm, torch.tensor([1.0, 3.0], dtype=D), tolerance=1e-12)
    assert float(learner.decision.abs().max()) < 1.0


def test_a_coordinate_waits_for_a_scale() -> None:
    """A first gradient that is tiny by chance does not make for a long decision; nor does rounding decide ties."""
    learner = build(1)
    for g, begun in ((1e-3, False), (1.0, False), (0.5, False), (0.4, True), (0.4, True)):
        learner.step(torch.tensor([g], dtype=D))
        assert bool(learner.first_gradient_norm > 0.0) == begun
        assert float(learner.decision.abs()) < 1.0
    for c in (0.1, 0.7, 3.0, 1e-5):
        learner = build(1)
        for _ in range(3):
            assert float(learner.first_gradient_norm) == 0.0
            learner.step(torch.tensor([c], dtype=D))
        assert float(learner.first_gradient_norm) == c


@pytest.mark.parametrize("batch_shape", [(), (3,)])
def test_gradients_of_all_sizes_may_meet(batch_shape: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(1)
    for sizes in ((1e-300, 1e102), (1e102, 1e-300), (5e-324, 5e102)):
        learner = build(3, batch_shape=batch_shape)
        for t in range(60):
            g = (torch.randn(*batch_shape, 3, dtype=D, generator=random) + 1.0).clamp(-1.0, 1.0)
            learner.step(g * sizes[t // 20 % 2] * (torch.arange(3) <= t % 5))
            for name, value in learner.state().items():
                assert bool(value.isfinite().all()), (sizes, t, name)


def test_it_says_which_unit_is_whose() -> None:
    with pytest.raises(ValueError, match=r"length_scale: expected no value with per_coordinate=True, got 2\.0"):
        FreeGrad(2, per_coordinate=True, length_scale=2.0)
    with pytest.raises(ValueError, match=r"initial_wealth: expected no value with per_coordinate=False, got 2\.0"):
        FreeGrad(2, initial_wealth=2.0)
    with pytest.raises(TypeError, match="per_coordinate: expected True or False, got int"):
        FreeGrad(2, per_coordinate=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="initial_wealth: expected a number above 0, got 0"):
        build(2, initial_wealth=0.0)


def test_a_state_of_another_wealth_is_refused() -> None:
    learner = build(2)
    learner.step(torch.ones(2))
    with pytest.raises(RuntimeError, match="initial_wealth: the state was learnt with 1, this learner has 2"):
        build(2, initial_wealth=2.0).load_state_dict(learner.state_dict())
    twin = build(2)
    twin.load_state_dict(learner.state_dict())
    assert differences(snapshot(learner), snapshot(twin)) == []
