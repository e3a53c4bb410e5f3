"""The rivals of parameter-free online learning: against NumPy, against their regret bounds, and at the ends of the range."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import gammaln
from torch import Tensor

from tests.reference import convex_baselines as reference
from torchonline.baselines import (
    OFTRL,
    OGD,
    SOLOFTRL,
    AdaGrad,
    CoinBetting,
    DAdaptation,
    DoG,
    DoWG,
    ExpertEnsemble,
    OptimisticOMD,
    ParameterFreeMirrorDescent,
    Prodigy,
    ScaleFreeCoinBetting,
    ScheduleFree,
)

D = torch.float64
DIM, ROUNDS = 3, 200
REFERENCES: dict[Any, Callable[..., reference.Decide]] = {
    OGD: reference.ogd,
    AdaGrad: reference.adagrad,
    CoinBetting: reference.coin_betting,
    OptimisticOMD: reference.optimistic_omd,
    OFTRL: reference.oftrl,
    ParameterFreeMirrorDescent: reference.parameter_free_mirror_descent,
    SOLOFTRL: reference.solo_ftrl,
    DoG: reference.dog,
    DoWG: reference.dowg,
    DAdaptation: reference.d_adaptation,
    Prodigy: reference.prodigy,
    ScheduleFree: reference.schedule_free,
    ScaleFreeCoinBetting: reference.scale_free_coin_betting,
    ExpertEnsemble: reference.expert_ensemble,
}
CASES: list[tuple[Any, dict[str, Any]]] = [
    (OGD, {}),
    (OGD, {"step_size": 0.3, "schedule": "constant"}),
    (OGD, {"step_size": 2.0, "radius_bound": 1.5}),
    (AdaGrad, {}),
    (AdaGrad, {"form": "diagonal", "step_size": 0.5}),
    (AdaGrad, {"radius_bound": 1.5, "step_size": 3.0}),
    (AdaGrad, {"form": "diagonal", "radius_bound": 1.5, "step_size": 3.0}),
    (CoinBetting, {"lipschitz": 1.0}),
    (CoinBetting, {"lipschitz": 7.0, "length_scale": 0.1}),
    (OptimisticOMD, {"radius_bound": 1.5, "lipschitz": 1.0}),
    (OptimisticOMD, {"radius_bound": 0.2, "lipschitz": 7.0, "smoothness": 3.0}),
    (OFTRL, {"radius_bound": 1.5, "lipschitz": 1.0}),
    (OFTRL, {"radius_bound": 0.2, "lipschitz": 7.0, "smoothness": 3.0}),
    (ParameterFreeMirrorDescent, {"lipschitz": 1.0}),
    (ParameterFreeMirrorDescent, {"hint": "zero", "lipschitz": 0.5}),
    (ParameterFreeMirrorDescent, {"lipschitz": 7.0, "length_scale": 0.1}),
    (ParameterFreeMirrorDescent, {"hint": "zero", "lipschitz": 1.0, "length_scale": 5.0, "radius_bound": 0.01}),
    (OFTRL, {"radius_bound": 1.5, "lipschitz": 0.3, "schedule": "minimum"}),
    (SOLOFTRL, {}),
    (SOLOFTRL, {"length_scale": 3.0, "radius_bound": 1.5}),
    (DoG, {"initial_distance": 0.1}),
    (DoWG, {"step_scale": 0.5}),
    (DAdaptation, {"initial_distance": 0.01, "step_scale": 0.1}),
    (Prodigy, {"initial_distance": 0.01}),
    (ScheduleFree, {"step_size": 0.3}),
    (ScaleFreeCoinBetting, {}),
    (ScaleFreeCoinBetting, {"length_scale": 0.1, "lipschitz": 1.0}),
    (ScaleFreeCoinBetting, {"length_scale": 30.0, "lipschitz": 3.0, "radius_bound": 0.5}),
    (ExpertEnsemble, {"lipschitz": 2.0, "horizon": 8, "length_scale": 0.5}),
]
# What a state of the others depends on.
CHANGED: dict[Any, dict[str, float]] = {
    **{cls: {"step_size": 9.0} for cls in (OGD, AdaGrad, ScheduleFree)},
    **{cls: {"initial_distance": 9.0} for cls in (DoG, DoWG, DAdaptation, Prodigy)},
    **{cls: {"length_scale": 9.0} for cls in (SOLOFTRL, ScaleFreeCoinBetting)},
}


def named(value: Any) -> str:
    """A class or its options, as the names of tests have them."""
    return str(getattr(value, "__name__", value))


EACH = pytest.mark.parametrize(("cls", "options"), CASES, ids=named)


def gradients(seed: int, size: float = 3.0) -> np.ndarray:
    """Gradients of many lengths with a drift, some 0, some equal, of coordinates of unequal size, one of which begins late."""
    random = np.random.default_rng(seed)
    lengths = 10.0 ** random.uniform(-2.0, 0.0, (ROUNDS, 1))
    rows = size * lengths * (random.standard_normal((ROUNDS, DIM)) + [0.7, -0.1, 0.0]) * [1.0, 0.1, 1.0]
    rows[::17] = 0.0
    rows[5:9] = rows[5]
    rows[:20, 2] = 0.0
    return rows


def run(learner: Any, rows: np.ndarray) -> np.ndarray:
    """All decisions, ``(T + 1, *B, d)``."""
    decisions = [learner.predict()]
    for row in rows:
        learner.step(torch.tensor(row, dtype=decisions[0].dtype))
        decisions.append(learner.predict())
    return torch.stack(decisions).numpy()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@EACH
def test_decisions_are_those_of_the_paper(cls: Any, options: dict[str, Any]) -> None:
    """One learner and a batch, on NumPy views, as tensors, and compiled."""
    streams = np.stack([gradients(0), gradients(1, 0.5), gradients(2, 20.0)], 1)
    wanted = np.stack([reference.trajectory(streams[:, i], REFERENCES[cls](**options)) for i in range(3)], 1)
    close = {"rtol": 1e-9, "atol": 1e-9 * min(1.0, np.abs(wanted).max())}
    batched = cls(DIM, batch_shape=(3,), **options)
    learners = {
        "batch": batched,
        "batch of tensors": as_tensors(cls(DIM, batch_shape=(3,), **options)),
        "compiled batch": torch.jit.script(cls(DIM, batch_shape=(3,), **options)),
    }
    for name, learner in learners.items():
        np.testing.assert_allclose(run(learner, streams), wanted, err_msg=name, **close)
    singles = {
        "single": cls(DIM, **options),
        "single of tensors": as_tensors(cls(DIM, **options)),
        "compiled": torch.jit.script(cls(DIM, **options)),
    }
    for name, learner in singles.items():
        np.testing.assert_allclose(run(learner, streams[:, 0]), wanted[:, 0], err_msg=name, **close)
    assert batched.rounds.tolist() == [ROUNDS] * 3
    if hasattr(batched, "clipped_rounds"):
        lengths = np.linalg.norm(streams, axis=-1)
        records = np.maximum.accumulate(lengths)[:-1]
        bounds = batched.lipschitz or np.where(records > 0.0, records, np.inf)
        longer = lengths > bounds if batched.lipschitz else lengths[1:] > bounds
        assert batched.clipped_rounds.tolist() == longer.sum(0).tolist()
        assert int(batched.clipped_rounds[2]) > 0


class Round(torch.nn.Module):
    """One round of a learner, as a program is exported."""

    def __init__(self, learner: Any) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, row: Tensor) -> Tensor:
        self.learner.step(row)
        decision: Tensor = self.learner.predict()
        return decision


@EACH
def test_an_exported_round_learns(cls: Any, options: dict[str, Any]) -> None:
    rows = torch.tensor(gradients(7)[:40]).unsqueeze(1).repeat(1, 2, 1)
    learner = cls(DIM, batch_shape=(2,), **options)
    program = torch.export.export(Round(cls(DIM, batch_shape=(2,), **options)), (rows[0],)).module()
    for row in rows:
        learner.step(row)
        torch.testing.assert_close(program(row), learner.predict(), rtol=1e-10, atol=1e-13)


def as_tensors(learner: Any) -> Any:
    """A learner that never takes NumPy views."""
    learner.is_small = False
    return learner


BOUNDED = [(cls, options) for cls, options in CASES if "radius_bound" in options]


@pytest.mark.parametrize("dtype", [D, torch.float32])
@pytest.mark.parametrize(("cls", "options"), BOUNDED, ids=named)
def test_decisions_stay_in_the_ball(cls: Any, options: dict[str, Any], dtype: torch.dtype) -> None:
    """And reach its sphere, or it would not be tested."""
    rows = gradients(3, 20.0) + [3.0, 0.0, 0.0]
    lengths = np.linalg.norm(run(cls(DIM, dtype=dtype, **options), rows), axis=-1) / options["radius_bound"]
    assert 1.0 - 1e-6 < lengths.max() <= 1.0 + 16.0 * torch.finfo(dtype).eps


def adversaries(lipschitz: float) -> list[np.ndarray]:
    """Gradients that make life hard: random, one way, turning round, alternating, rare, and of unequal coordinates."""
    random = np.random.default_rng(0)
    t = np.arange(ROUNDS)[:, None]
    axis = np.array([1.0, 0.0, 0.0])
    rows = [
        random.standard_normal((ROUNDS, DIM)),
        np.tile(axis, (ROUNDS, 1)),
        np.where(t < ROUNDS // 2, axis, -axis),
        np.where(t < 3 * ROUNDS // 4, axis, -axis),
        np.where(t % 2 == 0, axis, -axis),
        np.where(t % 50 == 49, random.standard_normal((ROUNDS, DIM)), 0.0),
        random.standard_normal((ROUNDS, DIM)) * [1.0, 1e-3, 0.0] + [0.3, 1e-3, 0.0],
        np.sign(random.standard_normal((ROUNDS, 1)) + 0.3) * axis,
    ]
    return [lipschitz * r / np.maximum(np.linalg.norm(r, axis=1, keepdims=True), 1e-9) for r in rows[:-2]] + [
        lipschitz * r / 4.0 for r in rows[-2:]
    ]


def regrets(learner: Any, rows: np.ndarray, radii: tuple[float, ...]) -> list[tuple[np.ndarray, float]]:
    """Regret at the worst and at random comparators of some lengths, less what rounding may have added."""
    random = np.random.default_rng(1)
    losses = (run(learner, rows)[:-1] * rows).sum(1)
    loss = float(losses.sum() - 1e-12 * np.abs(losses).sum())
    total = rows.sum(0)
    directions = [-total / max(float(np.linalg.norm(total)), 1e-300), *random.standard_normal((3, DIM)) / 4.0]
    points = [np.zeros(DIM), *(radius * direction for radius in radii for direction in directions)]
    # A direction of length 1 may be longer by rounding, and is the one that matters.
    return [(u, loss - float(total @ u)) for u in points if np.linalg.norm(u) <= max(radii) * (1.0 + 1e-9)]


def variation(rows: np.ndarray) -> float:
    return sum(reference.errors(list(rows)))


RADII = (1e-3, 0.1, 1.0)


@pytest.mark.parametrize("lipschitz", [1.0, 30.0])
@pytest.mark.parametrize("step_size", [0.01, 1.0])
def test_regret_of_gradient_descent(step_size: float, lipschitz: float) -> None:
    roots = np.sqrt(np.arange(1, ROUNDS + 1))
    for rows in adversaries(lipschitz):
        squares = np.square(rows).sum(1)
        for u, regret in regrets(OGD(DIM, step_size=step_size, schedule="constant"), rows, (0.1, 1.0, 100.0)):
            assert regret <= (float(u @ u) / (2.0 * step_size) + 0.5 * step_size * squares.sum())
        for _, regret in regrets(OGD(DIM, step_size=step_size, radius_bound=1.0), rows, RADII):
            bound = 2.0 * roots[-1] / step_size + 0.5 * step_size * (squares / roots).sum()
            assert regret <= bound


@pytest.mark.parametrize("lipschitz", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("step_size", [0.1, math.sqrt(2.0), 5.0])
def test_regret_of_adagrad(step_size: float, lipschitz: float) -> None:
    factor = 2.0 / step_size + step_size
    for rows in adversaries(lipschitz):
        bounds = {
            "norm": factor * math.sqrt(np.square(rows).sum()),
            "diagonal": factor * np.sqrt(np.square(rows).sum(0)).sum(),
        }
        for form, bound in bounds.items():
            learner = AdaGrad(DIM, step_size=step_size, form=form, radius_bound=1.0)
            assert all(regret <= bound for _, regret in regrets(learner, rows, RADII))


@pytest.mark.parametrize("length_scale", [1e-3, 1.0])
@pytest.mark.parametrize("lipschitz", [1.0, 30.0])
def test_wealth_and_regret_of_coin_betting(lipschitz: float, length_scale: float) -> None:
    """The wealth is what was won, is no less than the potential after each round, and bounds the regret."""
    for rows in adversaries(lipschitz):
        learner = CoinBetting(DIM, lipschitz=lipschitz, length_scale=length_scale)
        won, most, total = length_scale, length_scale, np.zeros(DIM)
        for T, row in enumerate(rows, 1):
            won -= float(row @ learner.predict().numpy()) / lipschitz
            learner.step(torch.tensor(row))
            most = max(most, won)
            np.testing.assert_allclose(float(learner.wealth), won, rtol=0.0, atol=1e-12 * most)
            total += row
            n = float(np.linalg.norm(total)) / lipschitz
            potential = T * math.log(2.0) + gammaln((T + 1 + n) / 2) + gammaln((T + 1 - n) / 2)
            potential += math.log(length_scale / math.pi) - gammaln(T + 1)
            assert math.log(float(learner.wealth)) >= potential - 1e-9
        learner.reset()
        for u, regret in regrets(learner, rows, (1e-3, 1.0, 1e3)):
            squared = float(u @ u)
            root = math.sqrt(squared * ROUNDS * math.log1p(24.0 * ROUNDS**2 * squared / length_scale**2))
            assert regret <= lipschitz * (root + length_scale)


@pytest.mark.parametrize("smoothness", [0.0, 2.0])
@pytest.mark.parametrize("lipschitz", [1.0, 30.0])
def test_regret_of_the_optimistic(lipschitz: float, smoothness: float) -> None:
    options = {"radius_bound": 1.0, "lipschitz": lipschitz, "smoothness": smoothness}
    for rows in adversaries(lipschitz):
        V, Z = variation(rows), math.sqrt(max(reference.errors(list(rows))))
        delta, nu = 40.0 * smoothness**2, 2.0 * lipschitz + smoothness
        bound = 3.0 * math.sqrt(delta + 4.0 * lipschitz**2 + V)
        assert all(regret <= bound for _, regret in regrets(OptimisticOMD(DIM, **options), rows, RADII))
        bound = 3.0 / math.sqrt(2.0) * math.sqrt(V) + nu + 1.5 * Z**2 / nu
        assert all(regret <= bound for _, regret in regrets(OFTRL(DIM, **options), rows, RADII))
        bound = (1.0 + 1.0 / math.sqrt(2.0)) * math.sqrt(V) + nu
        learner = OFTRL(DIM, schedule="minimum", **options)
        assert all(regret <= bound for _, regret in regrets(learner, rows, RADII))


def test_what_optimism_is_for() -> None:
    """Gradients that hardly change, of a length that others pay for: regret that does not grow with the rounds."""
    rows = np.tile([1.0, 0.0, 0.0], (ROUNDS, 1))
    rows[:, 1] = 0.01 * np.sin(np.arange(ROUNDS))
    worst = {
        cls: max(r for _, r in regrets(cls(DIM, radius_bound=1.0, lipschitz=1.0), rows, (1.0,)))
        for cls in (OptimisticOMD, OFTRL)
    }
    assert max(worst.values()) < 5.0
    assert max(r for _, r in regrets(OGD(DIM, radius_bound=1.0, step_size=0.1), rows, (1.0,))) > 10.0


@pytest.mark.parametrize("length_scale", [1e-3, 1.0])
@pytest.mark.parametrize("hint", ["last", "zero"])
@pytest.mark.parametrize("lipschitz", [1.0, 30.0])
def test_regret_of_parameter_free_mirror_descent(lipschitz: float, hint: str, length_scale: float) -> None:
    Z = 2.0 * lipschitz if hint == "last" else lipschitz
    for rows in adversaries(lipschitz):
        V = 4.0 * Z**2 + (variation(rows) if hint == "last" else float(np.square(rows).sum()))
        alpha = length_scale * Z / (math.sqrt(V) * math.log(V / Z**2) ** 2)
        learner = ParameterFreeMirrorDescent(DIM, lipschitz=lipschitz, hint=hint, length_scale=length_scale)
        for u, regret in regrets(learner, rows, (1e-3, 1.0, 1e3)):
            length = float(np.linalg.norm(u))
            depth = math.log1p(length / alpha)
            bound = 4.0 * Z * length_scale + 6.0 * length * max(math.sqrt(V * depth), Z * depth)
            assert regret <= bound


def test_the_terms_of_the_proof_for_hints() -> None:
    """``<e, x - y> - D(y, x) - (psi' - psi)(y)``, at any two points of a line: no more than the share of 4 Z epsilon."""
    Z = epsilon = 1.0
    for V in (4.0, 6.0, 50.0, 1e4):
        for e in (0.1, 0.5, 1.0):
            scales = [(v, epsilon * Z / (math.sqrt(v) * math.log(v / Z**2) ** 2)) for v in (V, V + e * e)]
            depth = np.linspace(0.0, math.sqrt(min(3.0 * V, 40.0)), 2000) ** 2
            r = scales[0][1] * np.expm1(depth)
            slopes = [np.array([reference.slope(s, v, alpha, Z) for s in r]) for v, alpha in scales]
            psi, next_psi = (np.concatenate([[0.0], np.cumsum(0.5 * (f[1:] + f[:-1]) * np.diff(r))]) for f in slopes)
            x = np.arange(0, len(r), 25)
            for y in (r, -r):
                divergence = psi - psi[x, None] - slopes[0][x, None] * (y - r[x, None])
                term = e * np.abs(r[x, None] - y) - divergence - (next_psi - psi)
                share = 2.0 * math.e / 3.0 * epsilon * Z * e * e / (V * math.log(V / Z**2) ** 2)
                assert term.max() <= share


@EACH
def test_gradients_of_all_sizes(cls: Any, options: dict[str, Any]) -> None:
    """Up to 1e100, and 1e12 in float32: finite decisions, the same in a batch, without a warning."""
    for dtype, largest, smallest in ((D, 1e100, 1e-300), (torch.float32, 1e12, 1e-30)):
        rows = gradients(4)
        rows[10:20] *= largest / np.abs(rows).max()
        rows[60:80] *= smallest
        for learner in (cls(DIM, dtype=dtype, **options), as_tensors(cls(DIM, dtype=dtype, **options))):
            decisions = run(learner, rows)
            assert np.isfinite(decisions).all()
            # The weights of experts that are too large for a rate are 0.
            finite = {name: value for name, value in learner.state().items() if "log_weights" not in name}
            assert all(bool(torch.isfinite(value).all()) for value in finite.values())
        batched = run(cls(DIM, batch_shape=(2,), dtype=dtype, **options), np.stack([rows, rows], 1))
        assert np.isfinite(batched).all()


@pytest.mark.parametrize("cls", [AdaGrad, CoinBetting, ParameterFreeMirrorDescent])
@pytest.mark.parametrize("factor", [1e-40, 1e40])
def test_the_size_of_losses_does_not_matter(cls: Any, factor: float) -> None:
    """Losses multiplied by a number, and the Lipschitz constant with them: the same decisions."""
    rows = gradients(5)
    pairs = [({}, {})] if cls is AdaGrad else [({"lipschitz": 2.0}, {"lipschitz": 2.0 * factor})]
    if cls is AdaGrad:
        pairs.append(({"form": "diagonal", "radius_bound": 0.5},) * 2)
    for mine, theirs in pairs:
        plain = run(cls(DIM, **mine), rows)
        np.testing.assert_allclose(run(cls(DIM, **theirs), factor * rows), plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [D, torch.float32])
@pytest.mark.parametrize("cls", [CoinBetting, ParameterFreeMirrorDescent])
def test_what_grows_without_bounds_ends_somewhere(cls: Any, dtype: torch.dtype) -> None:
    """A gradient that never changes: thousands of rounds without overflow, and the way back is open."""
    learner = cls(2, lipschitz=1.0, dtype=dtype)
    lengths = []
    for t in range(4000):
        learner.step(torch.tensor([1.0 if t < 3000 else -1.0, 0.0], dtype=dtype))
        lengths.append(float(learner.predict().abs().max()))
    end = 1e200 if dtype == D else 1e24
    assert 0.9 * end < max(lengths) <= 1.001 * end
    assert all(bool(torch.isfinite(value).all()) for value in learner.state().values())
    if cls is CoinBetting:
        assert lengths[-1] < 1e-3 * max(lengths)


def test_no_gradient_no_step() -> None:
    """From rounds of zeros, in any form, nothing follows."""
    for cls, options in CASES:
        learner = cls(DIM, **options)
        decisions = run(learner, np.zeros((5, DIM)))
        assert not decisions.any()
        assert int(learner.rounds) == 5


@EACH
def test_refused_steps_and_states(cls: Any, options: dict[str, Any]) -> None:
    """A refused step leaves each buffer as it was; a state goes on bit for bit; one of other options is refused."""
    rows = gradients(6)
    learner = cls(DIM, **options)
    run(learner, rows[:100])
    before = copy.deepcopy(learner.state_dict())
    for bad in (
        torch.tensor([1.0, math.nan, 0.0]),
        torch.full((3,), 1e150, dtype=D),
        torch.zeros(2),
        torch.zeros(2, 3),
    ):
        with pytest.raises(ValueError, match=r"^gradients: expected "):
            learner.step(bad)
        assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())
    other = cls(DIM, **options)
    other.load_state_dict(before)
    np.testing.assert_array_equal(run(learner, rows[100:]), run(other, rows[100:]))
    changed = CHANGED.get(cls, {"lipschitz": 9.0})
    with pytest.raises(RuntimeError, match="|".join(changed)):
        cls(DIM, **options | changed).load_state_dict(before)
    learner.reset()
    np.testing.assert_array_equal(run(learner, rows), run(cls(DIM, **options), rows))
