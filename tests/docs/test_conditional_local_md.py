"""The experiment of LocalMD under a promise: its noise is enough if the promise is kept, and only then."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.docs.script_modules import script_modules

PAIRS, DIM, ROUNDS = 300, 3, 40


@pytest.fixture(scope="module")
def learner_class() -> Iterator[Any]:
    with script_modules("papers", "conditional_local_md") as modules:
        yield modules.conditional_local_md.ConditionalLocalMD


class Records:
    """Logistic losses log(1 + exp(k(<x, theta> - b)))/k - y <x, theta>, one for each pair."""

    def __init__(self, steepness: float, seed: int) -> None:
        self.steepness = steepness
        self.generator = torch.Generator().manual_seed(seed)

    def _unit(self) -> Tensor:
        return torch.nn.functional.normalize(
            torch.randn(PAIRS, 1, DIM, generator=self.generator, dtype=torch.float64), dim=-1
        )

    def draw(self, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x, b and y. Of odd pairs the loss bends between the points, across their difference."""
        x, apart = self._unit(), one - other
        across = x - (x * apart).sum(-1, keepdim=True) * apart / apart.square().sum(-1, keepdim=True).clamp(min=1e-300)
        across = torch.nn.functional.normalize(across + 0.01 * apart, dim=-1)
        bend = (across * (one + other) / 2.0).sum(-1, keepdim=True)
        is_odd = torch.arange(PAIRS)[:, None, None] % 2 == 1
        y = torch.randint(2, (PAIRS, 1, 1), generator=self.generator).double()
        return torch.where(is_odd, across, x), torch.where(is_odd, bend, 0.0), torch.where(is_odd, 0.0, y)

    def gradient(self, point: Tensor, x: Tensor, b: Tensor, y: Tensor) -> Tensor:
        return ((self.steepness * ((x * point).sum(-1, keepdim=True) - b)).sigmoid() - y) * x


def largest_move(cls: Any, steepness: float, adjacency: str, radius: float, seed: int) -> tuple[float, Any, int]:
    """Return by how much a replaced record moves a phase's average, without noise: the worst pair of streams."""
    told = {"horizon": ROUNDS, "epsilon": math.inf, "delta": 1e-3, "clip": 1.0, "radius_bound": radius}
    told |= {"smoothness": 2.0, "learning_rate": 1.0, "adjacency": adjacency, "batch_shape": (PAIRS,)}
    pair, records = [cls(DIM, **told) for _ in range(2)], Records(steepness, seed)
    replaced = 1 + seed % 2 * int(torch.randint(0, 30, (), generator=records.generator))
    for step in range(1, ROUNDS + 1):
        points = [learner.secret_queries() for learner in pair]
        answers = [records.gradient(point, *record) for record in [records.draw(*points)] for point in points]
        if step == replaced:
            answers[0] = records.gradient(points[0], *records.draw(*points)).sign() / math.sqrt(DIM)
            answers[1] = -answers[0] if adjacency == "replace_one" else torch.zeros_like(answers[0])
        for learner, answer in zip(pair, answers, strict=True):
            learner.step(answer)
        if step in pair[0].ends and step >= replaced:
            moved = float((pair[0].theta - pair[1].theta).norm(dim=-1).max())
            return moved, pair[0], pair[0].ends.index(step) + 1
    raise AssertionError


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
@pytest.mark.parametrize("radius", [2.0, 50.0])
def test_smooth_losses_move_a_phase_by_no_more_than_the_noise_is_for(
    learner_class: Any, radius: float, adjacency: str
) -> None:
    """Losses of smoothness k/4 = 2, the promise, in 6 x 300 pairs of streams."""
    shares = []
    for seed in range(6):
        moved, learner, phase = largest_move(learner_class, 8.0, adjacency, radius, seed)
        m = (20, 10, 5, 3, 2)[phase - 1]
        claimed = (2.0 if adjacency == "replace_one" else 1.0) * 4.0 ** (1 - phase) * (m - 1) / m
        assert math.isclose(learner.sensitivity(phase), claimed, rel_tol=1e-5)
        assert moved <= claimed * (1.0 + 1e-6)
        shares.append(moved / claimed)
    # The projection onto a small ball brings points together.
    assert max(shares) > (0.99 if radius > 2.0 else 0.5)


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_losses_that_break_the_promise_move_it_by_more(learner_class: Any, adjacency: str) -> None:
    """Losses 100 times less smooth than promised, which are convex and no steeper."""
    found = [largest_move(learner_class, 800.0, adjacency, 50.0, seed) for seed in range(6)]
    assert max(moved / learner.sensitivity(phase) for moved, learner, phase in found) > 1.5


def test_a_step_is_one_of_projected_gradient_descent(learner_class: Any) -> None:
    told = {"horizon": 8, "epsilon": math.inf, "delta": 1e-3, "radius_bound": 1.0, "smoothness": 1.0}
    learner = learner_class(DIM, **told, learning_rate=0.7)
    generator = torch.Generator().manual_seed(0)
    point, total = torch.zeros(DIM, dtype=torch.float64), torch.zeros(DIM, dtype=torch.float64)
    for _ in range(4):
        assert torch.allclose(learner.secret_queries()[0], point, rtol=0.0, atol=1e-12)
        gradient = torch.nn.functional.normalize(torch.randn(DIM, generator=generator, dtype=torch.float64), dim=0)
        learner.step(gradient)
        total += point
        moved = point - 0.7 * gradient
        point = moved / max(1.0, float(moved.norm()))
    assert torch.allclose(learner.theta, total / 4, rtol=0.0, atol=1e-12)


def test_the_rate_is_refused_if_steps_are_too_long(learner_class: Any) -> None:
    told = {"horizon": 8, "epsilon": 1.0, "delta": 1e-3, "smoothness": 4.0}
    assert learner_class(DIM, **told).learning_rate <= 0.5
    with pytest.raises(ValueError, match="learning_rate: expected at most 2 / smoothness"):
        learner_class(DIM, **told, learning_rate=0.6)
