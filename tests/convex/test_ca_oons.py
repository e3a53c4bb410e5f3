"""CA-OONS: trajectories against the reference, the counter-example to the paper's losses, and a bound on every path."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.reference.ca_oons import CAOONSReference
from tests.reference.msmwc import MasterReference
from tests.reference.oons import bound
from torchonline import CAOONS, OONS

METAS = ("values", "linear", "paper")


def made(meta: str, dim: int = 2, **options: Any) -> CAOONS:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of meta="paper"
        return CAOONS(dim, meta=meta, **({"lipschitz": 1.0, "horizon": 60} | options))


def hyperbola(points: Tensor, target: Tensor, size: float = 1.0, unit: float = 1.0) -> tuple[Tensor, Tensor]:
    """Gradients and values of ``size sqrt(1 + |x / unit - target|^2)``: of slopes below size / unit."""
    off = points / unit - target
    values = (1.0 + (off * off).sum(-1)).sqrt()
    return size / unit * off / values[..., None], size * values


def targets(rounds: int, dim: int = 2) -> Tensor:
    return torch.randn(rounds, dim, dtype=torch.float64) + torch.tensor([3.0, -2.0])[:dim]


def decisions(learner: CAOONS, goals: Tensor, **loss: float) -> np.ndarray:
    rows = []
    for goal in goals:
        rows.append(learner.predict().numpy())
        learner.step(*hyperbola(learner.queries(), goal, **loss))
    return np.stack(rows)


@pytest.mark.parametrize("horizon", [60, None])
@pytest.mark.parametrize("meta", METAS)
def test_trajectories(meta: str, horizon: int | None) -> None:
    rounds = 60 if horizon else 20
    for preset, length_scale in (("default", 1.0), ("default", 0.1), ("paper", 3.0)):
        options: dict[str, Any] = {"lipschitz": 1.0, "horizon": horizon, "preset": preset, "length_scale": length_scale}
        learner, reference = made(meta, **options), CAOONSReference(2, meta=meta, **options)
        for t, goal in enumerate(targets(rounds)):
            np.testing.assert_allclose(learner.predict().numpy(), reference.play(), rtol=0.0, atol=1e-9)
            asleep = torch.from_numpy(~reference.awake)
            assert horizon is None or not asleep.any()
            assert not learner.bases.decision[asleep].any()
            assert t == 0 or not learner.meta.decision[asleep].any()
            # The j-th wakes in round 2^(j - 1).
            assert horizon is not None or int((~asleep).sum()) == (t + 1).bit_length()
            gradients, values = hyperbola(learner.queries(), goal)
            if meta == "values":
                gradients[-1] = 1e6  # at the origin: of no matter
            learner.step(gradients, values)
            f = values.numpy()
            told = (f[:-1], float(f[-1])) if meta == "values" else (None, 0.0)
            reference.learn(gradients.numpy()[:-1] if meta == "values" else gradients.numpy(), *told)
        assert int(learner.meta.clipped_rounds) == reference.clipped == 0
        assert float(learner.predict().norm()) > 0.3 * length_scale


def huber(points: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients and values of a loss that is lowest, 0, at 4."""
    off = points - 4.0
    return off.clamp(-1.0, 1.0), torch.where(off.abs() <= 1.0, off * off / 2.0, off.abs() - 0.5)[..., 0]


def regrets(meta: str, horizon: int) -> np.ndarray:
    """After each round."""
    learner, paid = made(meta, 1, horizon=horizon), []
    for _ in range(horizon):
        paid.append(float(huber(learner.predict())[1]))
        learner.step(*huber(learner.queries()))
    return np.cumsum(paid)


@pytest.mark.parametrize(("lipschitz", "dtype"), [(1e45, torch.float64), (1e4, torch.float32)])
def test_losses_too_large_for_the_state_are_refused_by_the_name_of_the_option(
    lipschitz: float, dtype: torch.dtype
) -> None:
    with pytest.raises(ValueError, match=r"^lipschitz\b.*: expected "):
        CAOONS(2, lipschitz=lipschitz, horizon=2**40, dtype=dtype)


def test_counter_example() -> None:
    """Equation (5) of the paper fails, and with its losses for the weights the regret is linear; with ours it is flat."""
    with pytest.warns(UserWarning, match="linear in the number of rounds"):
        CAOONS(1, lipschitz=1.0, horizon=9, meta="paper")
    paper = np.log2(regrets("paper", 1024)[[127, 255, 511, 1023]])
    assert np.all(np.abs(np.diff(paper) - 1.0) < 0.1)
    assert abs(np.log2(regrets("paper", 512)[-1]) - paper[-1] + 1.0) < 0.1
    for meta in ("values", "linear"):
        ours = np.log2(regrets(meta, 2048)[[1023, 2047]])
        assert 0.0 <= ours[1] - ours[0] < 0.1


@pytest.mark.parametrize("meta", ["values", "linear"])
def test_regret_is_within_the_bound(meta: str) -> None:
    """On each path: the bound of the weights against a learner, and that learner's, for convex losses and any comparator."""
    torch.manual_seed(1)
    rounds, batched, G = 60, 40, 1.0
    learner = made(meta, horizon=rounds, batch_shape=(batched,))
    drift = torch.where(torch.arange(batched) % 2 == 0, 0.0, 1.0)[:, None]  # half of the batch turns around
    kept: list[list[np.ndarray]] = [[] for _ in range(5)]
    goals, played = [], []
    for t in range(rounds):
        goals.append(4.0 * (1.0 - 2.0 * drift * (t % 20 >= 10)) + torch.randn(batched, 2, dtype=torch.float64))
        points, hints, expected = learner.bases.decision.clone(), learner.bases.hint.clone(), learner.meta.hint.clone()
        gradients, values = hyperbola(learner.queries(), goals[-1][:, None])
        own = gradients[:, :-1] if meta == "values" else gradients.expand_as(points)
        losses = values[:, :-1] - values[:, -1:] if meta == "values" else (own * points).sum(-1)
        for rows, each in zip(kept, (points, own, hints, losses, expected), strict=True):
            rows.append(each.numpy().copy())
        played.append(hyperbola(learner.predict()[:, None], goals[-1][:, None])[1][:, 0].numpy())
        learner.step(gradients, values)
    points, own, hints, losses, expected = (np.stack(rows) for rows in kept)
    radii = 2.0 ** np.arange(1, 7)
    master = MasterReference(G * radii, rounds)
    for u in ([0.0, 0.0], [1.0, -1.0], [4.0, 4.0], [-30.0, 9.0]):
        best = np.stack([hyperbola(torch.tensor(u, dtype=torch.float64), goal)[1].numpy() for goal in goals])
        regrets = (np.stack(played) - best).sum(0)
        bounds = np.full(batched, np.inf)
        for i, radius in enumerate(radii):
            if radius < np.linalg.norm(u):
                continue
            paths = (np.ascontiguousarray(each[:, :, i]) for each in (points, own, hints))
            free, curvature = bound(*paths, z=2.0 * G, radius=radius, preset="default")
            weights = np.array([master.regret_bounds(losses[:, b] - expected[:, b])[i] for b in range(batched)])
            bounds = np.minimum(bounds, weights + free + np.array(u) @ curvature @ np.array(u) / 2.0)
        assert (regrets <= bounds).all()


@pytest.mark.parametrize("meta", ["values", "linear"])
def test_scale_of_the_losses(meta: str) -> None:
    """Of no matter, but to the paper's constants; nor is the unit of length, which ``length_scale`` sets and decisions follow."""
    goals = targets(60)
    for size, unit in ((3.0, 1.0), (1e-5, 1.0), (2.0, 5.0)):
        for preset in ("default", "paper"):
            one = decisions(made(meta, preset=preset), goals)
            other = made(meta, preset=preset, lipschitz=size / unit, length_scale=unit)
            change = np.abs(decisions(other, goals, size=size, unit=unit) / unit - one).max()
            assert change > 1e-2 if preset == "paper" else change < 1e-10


def test_small_comparators_pay_little() -> None:
    """The regret to the origin, of gradients that point to where the learner is, goes with ``length_scale``."""
    paid = []
    for length_scale in (1.0, 0.01):
        learner, total = made("linear", length_scale=length_scale), 0.0
        for _ in range(60):
            x = learner.predict()
            gradient = (x + 1e-12) / (x + 1e-12).norm()
            total += float(x @ gradient)
            learner.step(gradient)
        paid.append(total)
    assert learner.bases.batch_shape == (13,)
    assert 0.0 < paid[1] < 0.02 * paid[0]


def test_what_is_cut_is_counted() -> None:
    """A squared loss is steeper, and larger, than ``lipschitz`` allows far away."""
    learner = made("values", 1, horizon=8)
    cut = 0
    for _ in range(40):
        points = learner.queries()
        values = (points - 3.0).square()[..., 0] / 2.0
        cut += bool(((values[:-1] - values[-1]).abs() > learner.bases.length_unit * 1.0).any())
        learner.step(points - 3.0, values)
        assert torch.isfinite(learner.predict()).all()
    assert int(learner.meta.clipped_rounds) == cut > 0


def test_one_learner_is_oons_of_its_radius() -> None:
    """With T = 1 there is one, of radius 2, and a weight of one."""
    alone, learner = OONS(2, lipschitz=1.0, radius_bound=2.0), made("linear", horizon=1)
    for goal in targets(30):
        alone.step(hyperbola(alone.queries(), goal)[0])
        learner.step(hyperbola(learner.queries(), goal)[0])
        np.testing.assert_allclose(learner.predict().numpy(), alone.predict().numpy(), rtol=0.0, atol=1e-12)
