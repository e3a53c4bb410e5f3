"""The rivals that need no rate: against their bounds, on hard sequences, and against their authors' code."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.baselines.test_convex import DIM, ROUNDS, adversaries, gradients, regrets, run, variation
from tests.reference.convex_baselines import Bets
from torchonline.baselines import (
    SOLOFTRL,
    AdaGrad,
    DAdaptation,
    DoG,
    DoWG,
    ExpertEnsemble,
    Prodigy,
    ScaleFreeCoinBetting,
    ScheduleFree,
)

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "convex_baselines.json").read_text())
RADII = (1e-3, 0.1, 1.0, 30.0)
# The options that the authors' code was run with.
OPTIONS: dict[Any, dict[str, float]] = {
    DoG: {},
    DoWG: {},
    DAdaptation: {},
    Prodigy: {},
    ScheduleFree: {"step_size": 0.5},
}


@pytest.mark.parametrize("cls", OPTIONS)
def test_decisions_are_those_of_the_authors(cls: Any) -> None:
    """On a smooth convex stream, after up to 300 rounds."""
    learner, wanted = cls(DIM, **OPTIONS[cls]), VECTORS[cls.__name__]
    seen = 0
    for t in range(1, 301):
        a = np.sin(np.array([1.0, 2.0, 3.0]) * t)
        r = float(a @ (learner.queries()[0].numpy() - [2.0, -3.0, 1.0])) - 0.3 * math.sin(7.0 * t)
        learner.step(torch.tensor(r / math.sqrt(1.0 + r * r) * a))
        for kind, look in {"decisions": learner.predict, "queries": learner.queries}.items():
            if str(t) in wanted.get(kind, {}):
                np.testing.assert_allclose(look().flatten().numpy(), wanted[kind][str(t)], rtol=1e-6, atol=1e-12)
                seen += 1
    assert seen == (8 if cls is ScheduleFree else 4)


def growing(lipschitz: float) -> list[np.ndarray]:
    """Hard sequences, and the same with gradients that grow, shrink, and grow at once."""
    rows = adversaries(lipschitz)
    t = np.arange(ROUNDS)[:, None]
    ramps = [10.0 ** (4.0 * t / ROUNDS - 4.0), 10.0 ** (-4.0 * t / ROUNDS), np.where(t == ROUNDS // 2, 1.0, 1e-2)]
    return rows + [row * ramp for row in rows[:4] for ramp in ramps]


def weighted(learner: Any, rows: np.ndarray, weight: str) -> tuple[np.ndarray, np.ndarray]:
    """All decisions, and the buffer that weighs rounds, before each round and after the last."""
    decisions, before = [], []
    for row in [*rows, None]:
        decisions.append(learner.predict().numpy())
        before.append(float(getattr(learner, weight)))
        if row is not None:
            learner.step(torch.tensor(row))
    return np.array(decisions), np.array(before)


@pytest.mark.parametrize("step_scale", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("cls", [DoG, DoWG])
def test_weighted_regret_of_distances_over_gradients(cls: Any, step_scale: float) -> None:
    power = 1 if cls is DoG else 2
    for rows in growing(1.0):
        learner = cls(DIM, initial_distance=0.01, step_scale=step_scale)
        x, r = weighted(learner, rows, "largest_distance")
        squares = np.square(rows).sum(1)
        total = math.sqrt((squares * (r[:-1] ** 2 if cls is DoWG else 1.0)).sum())
        for u in comparators(rows):
            regret = float((r[:-1] ** power * ((x[:-1] - u) * rows).sum(1)).sum())
            D = float(np.linalg.norm(x - u, axis=1).max())
            bound = (2.0 * D / step_scale + step_scale * r[-1]) * r[-1] * total
            assert regret <= bound * (1.0 + 1e-9)


def comparators(rows: np.ndarray) -> list[np.ndarray]:
    """0, and points along and across minus the sum of gradients, near and far."""
    total, random = rows.sum(0), np.random.default_rng(1)
    directions = [-total / max(float(np.linalg.norm(total)), 1e-300), *random.standard_normal((3, DIM)) / 4.0]
    return [np.zeros(DIM), *(radius * direction for radius in RADII for direction in directions)]


@pytest.mark.parametrize("step_scale", [0.1, 1.0])
def test_weighted_regret_of_d_adaptation(step_scale: float) -> None:
    for rows in growing(1.0):
        learner = DAdaptation(DIM, initial_distance=0.01, step_scale=step_scale)
        x, d = weighted(learner, rows, "distance")
        first = next(float(np.linalg.norm(row)) for row in rows if row.any())
        rates = step_scale * d[:-1] / first
        if np.abs(x).max() > 1e70:  # the cut of decisions ends the guarantee
            continue
        for u in comparators(rows):
            terms = rates * ((x[:-1] - u) * rows).sum(1)
            bound = 0.5 * float(u @ u) + 0.5 * float((rates**2 * np.square(rows).sum(1)).sum())
            assert terms.sum() <= bound + 1e-9 * np.abs(terms).sum()


@pytest.mark.parametrize("radius_bound", [math.inf, 0.5])
@pytest.mark.parametrize("length_scale", [1e-2, 1.0, 30.0])
def test_regret_of_solo_ftrl(length_scale: float, radius_bound: float) -> None:
    for rows in growing(7.0):
        root, longest = math.sqrt(np.square(rows).sum()), float(np.linalg.norm(rows, axis=1).max())
        radii = tuple(min(radius, radius_bound) for radius in RADII)
        reach = min(length_scale * math.sqrt(ROUNDS - 1), 2.0 * radius_bound)
        learner = SOLOFTRL(DIM, length_scale=length_scale, radius_bound=radius_bound)
        for u, regret in regrets(learner, rows, radii):
            bound = (float(u @ u) / (2.0 * length_scale) + 2.75 * length_scale) * root + 3.5 * reach * longest
            assert regret <= bound


def test_scale_free_mirror_descent_loses_what_solo_ftrl_does_not() -> None:
    """Half of the rounds one way, half the other: the best comparator is as good as 0, and AdaGrad without a ball far behind."""
    lost: dict[Any, list[float]] = {AdaGrad: [], SOLOFTRL: []}
    for count in (200, 800):
        rows = np.zeros((count, DIM))
        rows[:, 0] = np.where(np.arange(count) < count // 2, -1.0, 1.0)
        for cls, losses in lost.items():
            losses.append(float((run(cls(DIM), rows)[:-1] * rows).sum()))
    assert lost[AdaGrad][0] > 200.0
    assert lost[AdaGrad][1] > 4.0 * lost[AdaGrad][0]
    assert max(lost[SOLOFTRL]) < 0.0


SETTINGS = [
    {},
    {"length_scale": 0.03},
    {"length_scale": 10.0},
    {"lipschitz": 7.0},
    {"lipschitz": 7.0, "length_scale": 0.03},
    {"lipschitz": 7.0, "radius_bound": 1.0},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_regret_of_scale_free_coin_betting(options: dict[str, float]) -> None:
    epsilon, beta = options.get("length_scale", 1.0), (2.0 - math.log(3.0)) / 2.0
    for rows in growing(7.0):
        bets = Bets(**options)
        for row in rows:
            bets.learn(row)
        norms, cut = np.linalg.norm(rows, axis=1), np.linalg.norm(bets.cut, axis=1)
        learner = ScaleFreeCoinBetting(DIM, **options)
        lengths = np.linalg.norm(run(learner, rows)[:-1], axis=1)
        learner.reset()
        h, Q = bets.h, float(np.square(bets.learnt).sum())
        fractions = np.geomspace(1e-6 / h, 0.5 / h, 400)
        depth = beta / 8.0 + math.log1p(4.0 * Q / bets.first**2) / (2.0 * beta) - 1.0
        radii = tuple(radius for radius in RADII if radius <= options.get("radius_bound", math.inf))
        for u, regret in regrets(learner, rows, radii):
            U = float(np.linalg.norm(u))
            price = float(((norms - cut) * (lengths + U)).sum())
            price += 2.0 * float((cut * np.maximum(U - np.array(bets.radii), 0.0)).sum())
            if "lipschitz" not in options:
                reach = epsilon * math.sqrt(ROUNDS) + U + 2.0 * U * (U**2 / epsilon**2 + 1.0)
                assert price <= h * reach * (1.0 + 1e-9)
            bound = epsilon * bets.first + 2.0 * math.sqrt(2.0 * Q) * U + price
            if U > 0.0:
                logs = np.log(U / (epsilon * bets.first * fractions))
                bound += U * float(((logs + depth) / fractions + fractions * Q).min())
            assert regret <= bound


@pytest.mark.parametrize("lipschitz", [1.0, 30.0])
@pytest.mark.parametrize("length_scale", [0.01, 1.0])
def test_regret_of_the_ensemble(length_scale: float, lipschitz: float) -> None:
    for rows in adversaries(lipschitz):
        learner = ExpertEnsemble(DIM, lipschitz=lipschitz, horizon=ROUNDS, length_scale=length_scale)
        N, K, V = learner.levels, len(learner.meta.grid), variation(rows)
        for u, regret in regrets(learner, rows, (1e-3, 0.1, 1.0)):
            D = next(D for D in learner.lengths if np.linalg.norm(u) <= D * (1.0 + 1e-9))
            depth = math.log(math.sqrt(N) * max(2.0, math.sqrt(ROUNDS)) * D / length_scale)
            bound = 3.0 * D * math.sqrt(4.0 * lipschitz**2 + V) + 96.0 * lipschitz * D * depth
            bound += D * math.sqrt(108.0 * depth * V) + 24.0 * K * lipschitz * length_scale
            assert regret <= bound


@pytest.mark.parametrize("momentum", [0.1, 0.9])
@pytest.mark.parametrize("step_size", [0.01, 0.3])
def test_the_loss_of_the_last_decision_of_schedule_free_descent(step_size: float, momentum: float) -> None:
    """On convex functions without noise, smooth or not."""
    random = np.random.default_rng(0)
    rows, offsets = random.standard_normal((8, DIM)), random.standard_normal(8)

    def norm(x: np.ndarray) -> tuple[float, np.ndarray]:
        residual = rows @ x - offsets
        return float(np.abs(residual).sum()), np.sign(residual) @ rows

    def softplus(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = rows @ x - offsets
        return float(np.logaddexp(0.0, z).sum()), (1.0 / (1.0 + np.exp(-z))) @ rows

    def peak(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = rows @ x - offsets
        return float(z.max()), rows[int(z.argmax())]

    for function in (norm, softplus, peak):
        learner = ScheduleFree(DIM, step_size=step_size, momentum=momentum)
        squares, z = 0.0, np.zeros(DIM)
        for t in range(1, 202):
            x = learner.predict().numpy()
            gradient = function(learner.queries()[0].numpy())[1]
            squares += float(gradient @ gradient) if t > 1 else 0.0
            if t in (2, 11, 201):  # x is the decision after T = t - 1 rounds, and squares has gradients 2 to T + 1
                for u in [np.zeros(DIM), *random.standard_normal((20, DIM))]:
                    bound = (float((z - u) @ (z - u)) / (2.0 * step_size) + 0.5 * step_size * squares) / (t - 1)
                    assert function(x)[0] - function(u)[0] <= bound
            learner.step(torch.tensor(gradient))
            if t == 1:
                z = learner.base.numpy().copy()


@pytest.mark.parametrize("cls", [SOLOFTRL, DoG, DoWG, DAdaptation, ScaleFreeCoinBetting])
@pytest.mark.parametrize("factor", [1e-40, 1e40])
def test_the_unit_of_the_loss_does_not_matter(cls: Any, factor: float) -> None:
    rows = gradients(5)
    options = {"step_scale": 0.01} if cls is DAdaptation else {}
    plain = run(cls(DIM, **options), rows)
    np.testing.assert_allclose(run(cls(DIM, **options), factor * rows), plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("cls", [DoG, DoWG, DAdaptation, Prodigy, ScaleFreeCoinBetting])
def test_a_gradient_that_never_changes(cls: Any, dtype: torch.dtype) -> None:
    """Thousands of rounds without overflow, and the way back is open."""
    learner = cls(2, dtype=dtype)
    for t in range(4000):
        learner.step(torch.tensor([1.0 if t < 3000 else -1.0, 0.0], dtype=dtype))
        if t == 2999:
            far = float(learner.predict()[0])
    assert all(bool(torch.isfinite(value).all()) for value in learner.state().values())
    assert far < 0.0
    assert float(learner.predict()[0]) > far


def test_a_ball_needs_a_bound_on_gradients() -> None:
    with pytest.raises(ValueError, match=r"^radius_bound: expected inf without lipschitz"):
        ScaleFreeCoinBetting(DIM, radius_bound=1.0)
