"""The rivals of Table 1.1 that release one decision hide one record as they say."""

import math
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.docs.script_modules import script_modules

ROUNDS, DIM, TRIALS = 200, 3, 4


@pytest.fixture(scope="module")
def rivals() -> Iterator[SimpleNamespace]:
    with script_modules("papers", "offline_rivals", "private_streams") as modules:
        yield SimpleNamespace(**vars(modules.offline_rivals), BoundedStream=modules.private_streams.BoundedStream)


class OneOther:
    """A stream with one record replaced by its opposite."""

    def __init__(self, stream: Any, place: int | None) -> None:
        self.stream, self.place = stream, place
        self.trials, self.gradients = stream.trials, stream.gradients

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for place, (x, y) in enumerate(self.stream):
            yield (x, -y) if place == self.place else (x, y)


def problem(rivals: SimpleNamespace, norm: float, place: int | None, longest: float = 6.1) -> Any:
    setting = rivals.Setting(norm, ROUNDS, DIM, 1.0)
    stream = rivals.BoundedStream(setting, TRIALS)
    return rivals.Problem(OneOther(stream, place), setting, longest, stream.smoothness)


@pytest.mark.parametrize("norm", [2.0, math.inf])
@pytest.mark.parametrize("longest", [6.1, 0.5])
@pytest.mark.parametrize("place", [0, 50, 99, 120])
def test_a_record_moves_an_average_of_phased_sgd_by_two_steps(
    rivals: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, norm: float, place: int, longest: float
) -> None:
    """Without noise and after one phase, the decisions of two streams are at most 2 L eta apart, or equal."""
    monkeypatch.setattr(rivals.Problem, "normal", lambda self, *_: lambda: torch.zeros(TRIALS, DIM).double())
    monkeypatch.setattr(rivals.Problem, "rate", lambda self, best, scale: 0.05)
    monkeypatch.setitem(rivals.phased_sgd.__globals__, "phases", lambda rounds: [rounds // 2])
    ours, theirs = (rivals.phased_sgd(problem(rivals, norm, at, longest)) for at in (None, place))
    apart = torch.linalg.vector_norm(ours - theirs, dim=-1)
    assert bool((apart <= 2.0 * longest * 0.05).all())
    assert bool((apart > 0.0).all()) == (place < 99)  # the last iterate of a phase is not in its average


@pytest.mark.parametrize("norm", [2.0, math.inf])
def test_noise_is_as_large_as_it_is_said_to_be(
    rivals: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, norm: float
) -> None:
    """Noise of ones moves the last point by the scale of the noise, without projections and gradients."""
    monkeypatch.setattr(rivals.Problem, "normal", lambda self, *_: lambda: torch.ones(TRIALS, DIM).double())
    monkeypatch.setattr(rivals.Problem, "project", lambda self, points: points)
    monkeypatch.setattr(rivals.Problem, "gradient", lambda self, point, record: torch.zeros_like(point))
    monkeypatch.setattr(rivals.Problem, "rate", lambda self, best, scale: 0.05)
    one, mu = problem(rivals, norm, None, 0.5), rivals.gaussian_mu(1.0, 0.1 / ROUNDS)
    # The average of a phase without gradients is its start, so the noise of all phases adds up.
    moved = sum(2.0 * 0.5 * 0.05 / 4.0**phase / mu for phase in range(len(rivals.phases(ROUNDS))))
    torch.testing.assert_close(rivals.phased_sgd(one), torch.full((TRIALS, DIM), moved).double())
    steps = len(rivals.snowball(ROUNDS, DIM, rivals.zcdp_rho(1.0, 0.1 / ROUNDS)))
    moved = -sum(0.05 * (steps - step) / steps * 0.5 / math.sqrt(DIM) for step in range(steps))
    torch.testing.assert_close(rivals.snowball_sgd(one), torch.full((TRIALS, DIM), moved).double())


def test_a_vertex_is_chosen_as_often_as_the_exponential_mechanism_says(rivals: SimpleNamespace) -> None:
    choice = rivals.Choice(problem(rivals, 1.0, None), "test")
    direction = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).expand(40_000, DIM)
    chosen = choice.vertex(direction, 2.0)
    weights = torch.tensor([-2.0, 2.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64).div(2.0).exp()
    share = float((chosen[:, 0] == -2.0).double().mean())
    assert abs(share - float(weights[1] / weights.sum())) < 0.015
    assert choice.scale(2.0) == pytest.approx(4.0 * 2.0 * 6.1 * math.sqrt(2.0 / (8.0 * choice.rho)))


@pytest.mark.parametrize("rho", [0.04, 0.5, 4.0])
def test_snowball_batches_keep_the_budget(rivals: SimpleNamespace, rho: float) -> None:
    sizes = rivals.snowball(2000, 10, rho)
    steps = len(sizes)
    rates = [(steps - t) / steps for t in range(steps)]
    spent = [
        (2.0 * rates[t] / size) ** 2 / (2.0 / 10.0 * sum(rate**2 for rate in rates[t:])) for t, size in enumerate(sizes)
    ]
    assert sum(sizes) <= 2000
    assert max(spent) <= rho * (1.0 + 1e-12)
    assert all(first <= second for first, second in pairwise(sizes[: steps // 2]))
    with pytest.raises(ValueError, match="rounds: expected at least"):
        rivals.snowball(3, 10, 0.04)


@pytest.mark.parametrize("algorithm", ["polyhedral_sfw", "tree_fw"])
@pytest.mark.parametrize("place", [0, 25, 60, 110, 150, 190])
def test_choices_of_vertices_keep_the_budget(
    rivals: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, algorithm: str, place: int
) -> None:
    """With the same vertices chosen, the scores of two streams differ by what rho allows, over all choices."""
    seen: list[tuple[Tensor, float]] = []

    def vertex(self: Any, direction: Tensor, scale: float) -> Tensor:
        seen.append((direction, scale))
        chosen = torch.zeros(DIM, dtype=torch.float64)
        chosen[len(seen) % DIM] = 2.0
        return chosen.expand(TRIALS, DIM)

    monkeypatch.setattr(rivals.Choice, "vertex", vertex)
    option = {"polyhedral_sfw": 1.0, "tree_fw": 3}[algorithm]
    runs = []
    for at in (None, place):
        seen = []
        vars(rivals)[algorithm](problem(rivals, 1.0, at), option)
        runs.append(seen)
    spent = sum(
        (2.0 * 2.0 * (ours - theirs).abs().amax(-1) / scale) ** 2 / 8.0
        for (ours, scale), (theirs, _) in zip(*runs, strict=True)
    )
    assert bool((torch.as_tensor(spent) <= rivals.Choice(problem(rivals, 1.0, None), "").rho * (1.0 + 1e-9)).all())


def test_a_tree_that_is_too_deep_is_refused(rivals: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="depth: expected fewer phases for 200 records, got 5"):
        rivals.tree_fw(problem(rivals, 1.0, None), 5)
