"""MsMwC and its master: the prox against scipy, trajectories against the references, and the bounds on the regret."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from tests.reference.msmwc import MasterReference, MsMwCReference, prox, regret_bounds
from torchonline import MsMwC, MsMwCMaster
from torchonline.linalg import entropy_prox

KAPPAS = {"default": 6.0, "paper": 32.0}
RANGES = np.array([0.5, 1.0, 1.5, 6.0, 40.0])


def test_prox() -> None:
    """On 200 problems of up to 30 weights, some of them 0, of rates from 1e-4 to 1e2 and costs of up to 1e4."""
    rng, worst = np.random.default_rng(0), 0.0
    for trial in range(200):
        n = 1 + trial % 30
        weights = rng.dirichlet(np.full(n, (1.0, 0.05)[trial % 2]))
        weights[rng.random(n) < 0.1] = 0.0
        weights[0] += 0.1
        with np.errstate(divide="ignore"):
            logs = np.log(weights / weights.sum())
        rates = 10.0 ** rng.uniform(-4.0, 2.0, n)
        costs = rng.standard_normal(n) * 10.0 ** rng.uniform(-3.0, 4.0)
        found = entropy_prox(*(torch.from_numpy(each) for each in (logs, costs, rates))).numpy()
        expected = prox(logs, costs, rates)
        np.testing.assert_allclose(np.exp(found), np.exp(expected), rtol=0.0, atol=1e-7)
        # All that has weight has one multiplier.
        inside = found > -20.0
        multipliers = (found[inside] - logs[inside]) / rates[inside] + costs[inside]
        worst = max(worst, float(np.ptp(multipliers)) * rates.min() / (1.0 + float(np.abs(costs).max() * rates.max())))
    assert worst < 1e-10


def test_prox_is_a_minimum() -> None:
    """SLSQP finds no better point of the simplex, and the same one."""
    rng = np.random.default_rng(1)
    for n in (2, 3, 5):
        for _ in range(5):
            before, rates, costs = rng.dirichlet(np.ones(n)), rng.uniform(0.2, 3.0, n), rng.standard_normal(n)

            def objective(w: np.ndarray) -> float:
                moved = (w * np.log(w / before) - w + before) / rates  # noqa: B023
                return float(w @ costs + moved.sum())  # noqa: B023

            found = np.exp(entropy_prox(*(torch.from_numpy(each) for each in (np.log(before), costs, rates))).numpy())
            best = minimize(
                objective,
                before,
                jac=lambda w: costs + np.log(w / before) / rates,  # noqa: B023
                method="SLSQP",
                bounds=[(1e-9, 1.0)] * n,
                constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like},
                options={"ftol": 1e-15, "maxiter": 300},
            )
            np.testing.assert_allclose(found, best.x, rtol=0.0, atol=1e-7)


def losses_of(
    kind: int, rng: np.random.Generator, t: int, weights: np.ndarray, hint: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Losses within ``size``, ``(B, N)``: random, drawn at the ends, against the play, against the hint, or ever the same."""
    ends = size * rng.choice([-1.0, 1.0], weights.shape)
    turned = size * np.where(weights >= np.median(weights, axis=-1, keepdims=True), 1.0, -1.0)
    kinds = (size * rng.uniform(-1.0, 1.0, weights.shape), ends, turned, np.where(hint > 0.0, -size, size))
    steady = np.where(np.arange(weights.shape[-1]) == 1, -1.0, (-1.0) ** t)
    return kinds[kind] if kind < len(kinds) else size * steady * np.ones_like(weights)


def played(learner: Any, size: np.ndarray, rounds: int, kind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, losses and hints, ``(T, B, N)``, of a batch."""
    rng, rows = np.random.default_rng(kind), []
    for t in range(rounds):
        weights, hint = learner.predict().numpy(), learner.hint.numpy().copy()
        losses = losses_of(kind, rng, t, weights, hint, size)
        learner.step(torch.from_numpy(losses))
        rows.append((weights, losses, hint))
    weights, losses, hints = (np.stack(each) for each in zip(*rows, strict=True))
    return weights, losses, hints


@pytest.mark.parametrize("preset", list(KAPPAS))
def test_trajectories(preset: str) -> None:
    rng = np.random.default_rng(0)
    prior, rates = rng.dirichlet(np.ones(5)), 1.0 / (2.0 * KAPPAS[preset] * RANGES)
    learner = MsMwC(5, rate=rates.tolist(), prior=prior.tolist(), preset=preset)
    reference, hint = MsMwCReference(prior, rates, kappa=KAPPAS[preset]), np.zeros(5)
    for t in range(200):
        np.testing.assert_allclose(learner.predict().numpy(), reference.play(hint), rtol=0.0, atol=1e-9)
        losses = losses_of(t % 5, rng, t, reference.weights, hint, RANGES)
        learner.step(torch.from_numpy(losses))
        reference.learn(losses)
        hint = losses
        if t % 7 == 0:
            hint = rng.uniform(-1.0, 1.0, 5) * RANGES
            learner.set_hint(torch.from_numpy(hint))
    assert int(learner.clipped_rounds) == 0


@pytest.mark.parametrize("ranges", [[1.0], [2.0, 4.0, 8.0, 16.0], RANGES.tolist(), [3.0, 1.0, 700.0]])
@pytest.mark.parametrize("horizon", [2, 100])
@pytest.mark.parametrize("preset", list(KAPPAS))
def test_trajectories_of_the_master(preset: str, horizon: int, ranges: list[float]) -> None:
    rng, size = np.random.default_rng(0), np.array(ranges)
    learner = MsMwCMaster(ranges, horizon=horizon, preset=preset)
    reference, hint = MasterReference(size, horizon, preset=preset), np.zeros(len(ranges))
    for t in range(60):
        np.testing.assert_allclose(learner.predict().numpy(), reference.play(hint), rtol=0.0, atol=1e-9)
        losses = losses_of(t % 5, rng, t, reference.weights, hint, size)
        learner.step(torch.from_numpy(losses))
        reference.learn(losses)
        hint = losses
    assert int(learner.clipped_rounds) == 0


def least_slack(preset: str, kappa: float) -> float:
    """Bound minus regret, in units of 1 / rate, where it is least over 1000 sequences and all experts."""
    rates, least = 1.0 / (2.0 * KAPPAS[preset] * RANGES), np.inf
    prior = np.array([0.1, 0.3, 0.2, 0.3, 0.1])
    for kind in range(5):
        learner = MsMwC(5, rate=rates.tolist(), prior=prior.tolist(), preset=preset, batch_shape=(200,))
        vars(learner)["kappa"] = kappa
        weights, losses, hints = played(learner, RANGES, 200, kind)
        assert int(learner.clipped_rounds.sum()) == 0
        regrets = ((weights * losses).sum(-1, keepdims=True) - losses).sum(0)
        for b in range(200):
            bounds = regret_bounds(prior, rates, losses[:, b] - hints[:, b], weights[:, b], KAPPAS[preset])
            least = min(least, float(((bounds - regrets[b]) * rates).min()))
    return least


@pytest.mark.parametrize("preset", list(KAPPAS))
def test_regret_is_within_the_bound(preset: str) -> None:
    """Of 1000 sequences; without its correction a learner leaves it."""
    assert least_slack(preset, KAPPAS[preset]) > 0.0
    assert least_slack(preset, 1e-3) < 0.0


@pytest.mark.parametrize("preset", list(KAPPAS))
def test_regret_of_the_master_is_within_the_bound(preset: str) -> None:
    reference = MasterReference(RANGES, 200, preset=preset)
    for kind in range(5):
        learner = MsMwCMaster(RANGES.tolist(), horizon=200, preset=preset, batch_shape=(100,))
        weights, losses, hints = played(learner, RANGES, 200, kind)
        regrets = ((weights * losses).sum(-1, keepdims=True) - losses).sum(0)
        bounds = np.stack([reference.regret_bounds(losses[:, b] - hints[:, b]) for b in range(100)])
        assert (regrets < bounds).all()


def test_scale_of_the_losses() -> None:
    """Of no matter to the master, but to the paper's grid of powers of two."""
    ranges = RANGES.tolist()
    for preset in KAPPAS:
        for scale in (3.0, 1e-5):
            one = played(MsMwCMaster(ranges, horizon=200, preset=preset, batch_shape=(2,)), RANGES, 200, 1)[0]
            scaled = MsMwCMaster([scale * r for r in ranges], horizon=200, preset=preset, batch_shape=(2,))
            change = np.abs(played(scaled, scale * RANGES, 200, 1)[0] - one).max()
            assert change > 1e-4 if preset == "paper" else change < 1e-10


def test_what_is_cut_is_counted() -> None:
    master = MsMwCMaster([1.0, 2.0], horizon=10)
    same = MsMwCMaster([1.0, 2.0], horizon=10)
    for losses, cut in (([0.5, 3.0], [0.5, 2.0]), ([-7.0, 1.0], [-1.0, 1.0]), ([1.0, -2.0], [1.0, -2.0])):
        master.step(torch.tensor(losses))
        same.step(torch.tensor(cut))
    assert int(master.clipped_rounds) == 2
    assert torch.equal(master.predict(), same.predict())
    experts = MsMwC(2, rate=1.0 / 6.0)
    for losses in ([0.9, -0.9], [-0.2, -1.5], [0.0, -1.0]):  # of the second, the first error is above 1
        experts.step(torch.tensor(losses, dtype=torch.float64))
    assert int(experts.clipped_rounds) == 1


def test_experts_that_are_not_available() -> None:
    """They weigh nothing, and come back with the share of the sum that they left with; the others go on as if alone."""
    rng, ranges = np.random.default_rng(2), [2.0, 2.0, 2.0]
    mask, all_of_them = torch.tensor([True, False, True]), torch.ones(3, dtype=torch.bool)
    for learner in (MsMwC(3, rate=[0.01, 0.02, 0.04]), MsMwCMaster(ranges, horizon=50)):
        alone: Any = MsMwC(2, rate=[0.01, 0.04])
        if isinstance(learner, MsMwCMaster):
            alone = MsMwCMaster(ranges[:2], horizon=50)
        learner.set_available(mask)
        for _ in range(40):
            assert float(learner.predict()[1]) == 0.0
            np.testing.assert_allclose(learner.predict()[mask].numpy(), alone.predict().numpy(), rtol=0.0, atol=1e-12)
            losses = torch.from_numpy(rng.uniform(-2.0, 2.0, 3))
            learner.step(losses)
            alone.step(losses[mask])
        learner.set_hint(torch.zeros(3))
        learner.set_available(all_of_them)
        alone.set_hint(torch.zeros(2))
        assert abs(float(learner.predict()[1]) - 1.0 / 3.0) < 1e-12
        np.testing.assert_allclose(1.5 * learner.predict()[mask].numpy(), alone.predict().numpy(), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_weights_of_those_far_behind_sum_to_one(batch_shape: tuple[int, ...]) -> None:
    learner = MsMwC(3, rate=10.0, batch_shape=batch_shape, dtype=torch.float32)
    losses = torch.tensor([-1e9, 0.0, 0.0]).expand(*batch_shape, 3)
    learner.set_hint(losses)
    for _ in range(4):
        learner.step(losses)
    learner.set_available(torch.tensor([False, True, True]).expand(*batch_shape, 3))
    torch.testing.assert_close(learner.predict(), torch.tensor([0.0, 0.5, 0.5]).expand(*batch_shape, 3))


def test_who_is_absent_is_not_counted_as_cut() -> None:
    learner = MsMwC(2, rate=0.1)
    learner.set_available(torch.tensor([True, False]))
    learner.step(torch.tensor([0.1, 1e6]))
    assert learner.clipped_rounds.item() == 0
    learner.step(torch.tensor([1e6, 0.0]))
    assert learner.clipped_rounds.item() == 1
