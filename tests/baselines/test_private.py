"""The private rivals: their equations in NumPy, noise that is enough and no more, and records that try to be seen."""

import copy
import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from scipy import integrate, stats
from torch import Tensor

from tests.learners import snapshot
from tests.private_learners import differences, without_tags
from tests.private_tools import KnownNoise, feed, queries_of, records, squared_loss
from torchonline import gradients
from torchonline.baselines import DPFTRL, LocalMD, NoisySFW, NoisySGD
from torchonline.baselines.private.noisy_sgd import subsampled_epsilon
from torchonline.baselines.private.projections import euclidean_radius, projected
from torchonline.privacy.accounting import Ledger
from torchonline.privacy.calibration import gaussian_epsilon, gaussian_mu

pytestmark = pytest.mark.fast

D = torch.float64
CLASSES = (DPFTRL, NoisySFW, LocalMD)
EACH = pytest.mark.parametrize("cls", CLASSES)
BOTH = pytest.mark.parametrize("cls", [NoisySFW, LocalMD])
NORMS: dict[Any, tuple[float, ...]] = {
    DPFTRL: (1.0, 2.0, math.inf),
    NoisySFW: (1.0, 1.5, 2.0, math.inf),
    LocalMD: (1.2, 1.5, 2.0),
}
CASES = [(cls, norm) for cls in CLASSES for norm in NORMS[cls]]


def build(cls: Any, dim: int = 3, **options: Any) -> Any:
    return cls(dim, **({"horizon": 40, "epsilon": 1.0, "delta": 1e-3} | options))


@functools.cache
def oracle(noise_multiplier: float, delta: float) -> float:
    """The epsilon of one Gaussian mechanism, by an independent library."""
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    return PLDAccountant(relation).compose(dp_accounting.GaussianDpEvent(noise_multiplier)).get_epsilon(delta)


# ---------------------------------------------------------------------------------------------------------------------
# The equations, in NumPy: one learner, with the noise that is handed in.


def clip(g: np.ndarray, bound: float, order: float = 2.0) -> np.ndarray:
    length = np.linalg.norm(g, order)
    return g if length <= bound else g * bound / length


def nearest(x: np.ndarray, norm: float, radius: float) -> np.ndarray:
    """The projection, for p = 1 by bisection."""
    if norm == 2.0:
        return clip(x, radius)
    if norm == math.inf:
        return np.minimum(radius, np.maximum(-radius, x))
    low, high = 0.0, np.abs(x).max()
    if np.abs(x).sum() <= radius:
        return x
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.maximum(np.abs(x) - middle, 0.0).sum() > radius else (low, middle)
    return np.sign(x) * np.maximum(np.abs(x) - high, 0.0)


def lowest(d: np.ndarray, norm: float, radius: float) -> np.ndarray:
    """The point of the ball with the least inner product."""
    if norm == math.inf:
        return -radius * np.sign(d)
    if norm == 1.0:
        v = np.zeros_like(d)
        j = np.abs(d).argmax()
        v[j] = -radius * np.sign(d[j])
        return v
    v = -np.sign(d) * np.abs(d) ** (1.0 / (norm - 1.0))
    return radius * v / np.linalg.norm(v, norm)


def slope(theta: np.ndarray, x: np.ndarray, y: float) -> np.ndarray:
    return 2.0 * (x @ theta - y) * x


def ftrl(stream: Any, made: Any, noise: np.ndarray) -> list[np.ndarray]:
    theta, total, path = np.zeros(made.dim), np.zeros(made.dim), []
    for t, (x, y) in enumerate(stream):
        path.append(theta)
        total = total + clip(slope(theta, x, y), made.clip)
        theta = nearest(-made.learning_rate * (total + noise[t]), made.norm, made.radius_bound)
    return [*path, theta]


def sfw(stream: Any, made: Any, noise: np.ndarray) -> list[np.ndarray]:
    n, rate, w, before, batch = made.horizon, made.step_size, np.zeros(made.dim), np.zeros(made.dim), 0
    b0, b = n // 2, max(1, int(math.sqrt(n)) // 2)
    d, parts, path = np.zeros(made.dim), [], []
    for t, (x, y) in enumerate(stream):
        path.append(w)
        rho = rate if batch else 1.0
        parts.append(clip((slope(w, x, y) - (1.0 - rho) * slope(before, x, y)) / rho, made.clip))
        left = n - (t + 1)
        if (len(parts) >= (b if batch else b0) and left >= b) or left == 0:
            # As the paper has it: the old direction, corrected by the difference of two means, and a share of the new.
            d = (1.0 - rho) * d + rho * (sum(parts) + noise[batch]) / len(parts)
            before, w = w, w + rate * (lowest(d, made.norm, made.radius_bound) - w)
            parts, batch = [], batch + 1
    return [*path, w]


def md(stream: Any, made: Any, noise: np.ndarray) -> list[np.ndarray]:
    n, p, radius = made.horizon, made.norm, made.radius_bound
    q = p / (p - 1.0)

    def shrink(v: np.ndarray) -> np.ndarray:
        return v * min(1.0, radius / max(np.linalg.norm(v, p), 1e-300))

    sizes = [n // 2**i for i in range(1, max(2, int(math.log2(n)) + 1))]
    sizes[-1] += n - sum(sizes)
    centre, path, rows = np.zeros(made.dim), [], iter(stream)
    for i, m in enumerate(sizes):
        eta, total, iterates = made.learning_rate / 16**i, np.zeros(made.dim), []
        for _ in range(m):
            path.append(centre)
            v = -eta * total
            length = np.linalg.norm(v, q)
            move = (p - 1.0) * length * np.sign(v) * (np.abs(v) / length) ** (q - 1.0) if length > 0.0 else v
            iterates.append(centre + move)
            total = total + clip(slope(shrink(iterates[-1]), *next(rows)), made.clip, q)
        centre = shrink(np.mean(iterates, 0) + noise[i])
    return [*path, centre]


REFERENCES: dict[Any, Callable[..., list[np.ndarray]]] = {DPFTRL: ftrl, NoisySFW: sfw, LocalMD: md}


def scales(made: Any) -> np.ndarray:
    """The standard deviations of the noise on what is released, one after another, from the guarantee."""
    mu = gaussian_mu(made.epsilon, made.delta)
    if isinstance(made, NoisySFW):
        return np.full(len(made.ends), 2.0 * made.clip / mu)
    sizes = np.diff([0, *made.ends])
    return made.learning_rate / 16.0 ** np.arange(len(sizes)) * made.clip * (sizes - 1) / mu


@pytest.mark.parametrize(("cls", "norm"), CASES)
@pytest.mark.parametrize("horizon", [1, 2, 3, 40, 41])
def test_without_noise_it_is_the_equations(cls: Any, norm: float, horizon: int) -> None:
    """Some of the contributions are clipped, and some are not."""
    made = build(cls, horizon=horizon, epsilon=math.inf, norm=norm, radius_bound=0.7, clip=1.5)
    rows = list(records(horizon, 3, seed=3))
    seen = feed(made, rows)
    expected = REFERENCES[cls]([(x.numpy(), float(y)) for x, y in rows], made, np.zeros((horizon, 3)))
    np.testing.assert_allclose(seen.numpy(), np.stack(expected), rtol=0.0, atol=1e-9)
    if cls is DPFTRL:
        np.testing.assert_allclose(made.average().numpy(), np.mean(expected[:-1], 0), atol=1e-12)
    assert made.privacy_spent(1e-3) == math.inf


@pytest.mark.parametrize(("cls", "norm"), [(DPFTRL, 2.0), (NoisySFW, 1.5), (LocalMD, 1.5)])
def test_noise_enters_where_the_equations_say(cls: Any, norm: float) -> None:
    draws = torch.randn((60, 3), generator=torch.Generator().manual_seed(5), dtype=D)
    made = build(cls, norm=norm, noise_source=KnownNoise(draws))
    if cls is DPFTRL:
        decoder, encoder = made.noise.materialize(40)
        sigma = 2.0 * made.clip * float(encoder.norm(dim=0).max()) / gaussian_mu(1.0, 1e-3)
        noise = sigma * (decoder @ draws[: decoder.shape[1]]).numpy()
    else:
        noise = draws[: len(made.ends)].numpy() * scales(made)[:, None]
    rows = list(records(40, 3, seed=3))
    expected = REFERENCES[cls]([(x.numpy(), float(y)) for x, y in rows], made, noise)
    np.testing.assert_allclose(feed(made, rows).numpy(), np.stack(expected), rtol=0.0, atol=1e-5)


@EACH
def test_a_batch_is_its_learners(cls: Any) -> None:
    rows = list(records(40, 3, batch_shape=(2, 2), seed=1))
    batched = build(cls, epsilon=math.inf, batch_shape=(2, 2))
    seen = feed(batched, rows)
    one = build(cls, epsilon=math.inf)
    alone = feed(one, [(x[1, 0], y[1, 0]) for x, y in rows])
    torch.testing.assert_close(seen[:, 1, 0], alone, rtol=0.0, atol=1e-12)
    noisy = build(cls, batch_shape=(4,))
    for _ in range(40):
        noisy.step(None)
    assert len({tuple(row) for row in noisy.predict().tolist()}) == 4


@EACH
def test_gradients_come_from_the_loss(cls: Any) -> None:
    rows = list(records(40, 3, batch_shape=(2,), seed=2))
    one, other = (build(cls, epsilon=math.inf, batch_shape=(2,)) for _ in range(2))
    feed(one, rows)
    for x, y in rows:
        slopes, values = gradients(squared_loss, other, x, y)
        other.step(slopes, values)
    torch.testing.assert_close(one.predict(), other.predict(), rtol=0.0, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# Noise: as much as the promise needs.


@pytest.mark.slow
@EACH
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (0.3, 1e-5), (3.0, 1e-2)])
def test_noise_is_enough_and_two_thirds_of_it_is_not(cls: Any, epsilon: float, delta: float) -> None:
    """By another library's accountant."""
    made = build(cls, epsilon=epsilon, delta=delta, clip=0.3)
    multiplier = made.noise_multiplier if cls is not DPFTRL else 0.0
    if cls is DPFTRL:
        column = float(made.noise.materialize(40)[1].norm(dim=0).max())
        multiplier = made.noise.noise_scale / (2.0 * 0.3 * column)
    multiplier = round(multiplier, 5)
    assert abs(oracle(multiplier, delta) - epsilon) < 1e-3 * epsilon
    assert oracle(multiplier * 2.0 / 3.0, delta) > 1.2 * epsilon
    for _ in range(40):
        made.step(None)
    assert 0.999 * epsilon < made.privacy_spent(delta) <= epsilon


@EACH
@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_the_noise_that_comes_out_has_the_scale_of_the_guarantee(cls: Any, adjacency: str) -> None:
    """Of 8000 numbers from learners that saw nothing: the law is accepted, and that of two thirds of the noise rejected."""
    made = build(
        cls,
        4,
        horizon=8,
        batch_shape=(2000,),
        clip=0.5,
        radius_bound=1e9,
        adjacency=adjacency,
        seed=7,
        **fixed_rate(cls),
    )
    moved = 1.0 if adjacency == "replace_one" else 0.5
    for _ in range(4):
        made.step(None)
    if cls is DPFTRL:
        rows = made.noise.materialize(8)
        released = made.noisy_sum
        scale = 2.0 * 0.5 * moved * rows[1].norm(dim=0).max() * rows[0][3].norm()
    elif cls is NoisySFW:
        released, scale = 4.0 * made.direction, 2.0 * 0.5 * moved
    else:
        # Under zero_out a record's own contribution moves by half, and those after it by as much as before.
        released, scale = made.theta, 0.1 * 0.5 * (3.0 if adjacency == "replace_one" else 9.0 / 4.0)
    released = released.flatten().numpy() / float(scale) * gaussian_mu(1.0, 1e-3)
    assert stats.kstest(released, "norm").pvalue > 1e-3
    assert stats.kstest(released * 2.0 / 3.0, "norm").pvalue < 1e-9


def fixed_rate(cls: Any) -> dict[str, float]:
    return {"learning_rate": 0.1} if cls is LocalMD else {}


@BOTH
def test_nothing_is_spent_before_something_is_released(cls: Any) -> None:
    made = build(cls)
    spent = []
    for step in range(1, 41):
        made.step(torch.ones(3, dtype=D).expand(made.points, 3))
        spent.append(made.privacy_spent(1e-3))
        assert (spent[-1] > 0.0) == (step >= 20)
        assert bool((made.predict() != 0.0).any()) == (step >= 20)
    assert len(set(spent)) == 2


# ---------------------------------------------------------------------------------------------------------------------
# Sensitivity: records that do what they like.


def worlds(
    cls: Any, answers: int, *, seed: int = 0, adjacency: str = "replace_one", **options: Any
) -> tuple[Any, Any, int]:
    """Two batches that differ in one record, and the step of it; a record answers a query in any way.

    Of ``answers`` pairs each has a fixed random piecewise constant gradient in each step, but for the first, which pushes
    away from 0. Some gradients are far too long, and some are no numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    pair = [
        build(cls, noise_source=KnownNoise(), batch_shape=(answers,), adjacency=adjacency, radius_bound=1e6, **options)
        for _ in range(2)
    ]
    replaced = 1 + seed % 2 * int(torch.randint(0, 30, (), generator=generator))
    for step in range(1, 41):
        normals, shifts = (torch.randn((answers, 1, 3), generator=generator, dtype=D) for _ in range(2))
        long = 10.0 ** torch.randint(-1, 7, (answers, 1, 1), generator=generator)
        long[3] = math.nan if step % 3 else math.inf
        for world, made in enumerate(pair):
            query = queries_of(made)
            sides = torch.sign(((query - 0.01 * shifts) * normals).sum(-1, keepdim=True))
            answer = long * normals * sides
            away = -query.sign() * torch.tensor([9.0, 0.0, 0.0])
            answer = torch.where(torch.arange(answers)[:, None, None] < 2, away, answer)
            if step == replaced:
                answer = long[:1] * torch.tensor([1.0, 0.0, 0.0]) * (1.0 - 2.0 * world) + 0.0 * answer.nan_to_num()
                if world and adjacency == "zero_out":
                    made.step(None)
                    continue
            made.step(answer)
        if step in pair[0].ends and step >= replaced:
            return (*pair, step)
    raise AssertionError


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
@pytest.mark.parametrize("norm", [1.2, 1.5, 2.0])
def test_no_record_moves_a_phase_by_more_than_the_noise_is_for(adjacency: str, norm: float) -> None:
    """Of 6 x 200 pairs none; one attains it, which is far above what steps that bring nothing apart would allow."""
    for seed in range(6):
        one, other, end = worlds(LocalMD, 200, seed=seed, adjacency=adjacency, norm=norm, learning_rate=0.02, clip=0.7)
        phase = one.ends.index(end) + 1
        moved = (one.theta - other.theta).norm(dim=-1)
        rate, m = 0.02 / 16 ** (phase - 1), int(np.diff([0, *one.ends])[phase - 1])
        claimed = rate * 0.7 * (m - 1) * (1.0 if adjacency == "replace_one" else (m - 1) / m)
        assert math.isclose(one.sensitivity(phase), claimed, rel_tol=1e-5)
        assert float(moved.max()) <= claimed * (1.0 + 1e-6)
        if seed % 2 == 0 and norm == 2.0 and adjacency == "replace_one":
            # The first record of the first phase.
            assert float(moved.max()) > 0.999 * claimed
            assert claimed > 9.0 * (2.0 * rate * 0.7)


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_no_record_moves_a_batch_by_more_than_the_noise_is_for(adjacency: str, norm: float) -> None:
    """Seen in the released direction of the batch that it is in."""
    largest = 0.0
    for seed in range(6):
        one, other, end = worlds(NoisySFW, 200, seed=seed, adjacency=adjacency, norm=norm, clip=0.7)
        batch = one.ends.index(end)
        size = int(np.diff([0, *one.ends])[batch])
        rho = one.step_size if batch else 1.0
        moved = (one.direction - other.direction).norm(dim=-1) * size / rho
        largest = max(largest, float(moved.max()))
    claimed = 1.4 if adjacency == "replace_one" else 0.7
    assert 0.999 * claimed < largest <= claimed * (1.0 + 1e-6)


@EACH
def test_bad_records_count_as_little_as_good_ones(cls: Any) -> None:
    """NaN and infinity as None does; long ones as their directions; bfloat16 as the numbers that it holds."""
    good = torch.randn((2, 3), generator=torch.Generator().manual_seed(0), dtype=D)[: cls.points]

    def after(record: Tensor | None, **options: Any) -> Any:
        made = build(cls, **({"epsilon": math.inf, "horizon": 2} | options))
        for _ in range(2):
            made.step(record)
        return snapshot(made)

    nothing = after(None)
    for value in (math.nan, math.inf, -math.inf):
        bad = good.clone()
        bad[0, 1] = value
        assert differences(nothing, after(bad)) == []
    for name, value in without_tags(after(1e6 * good)).items():
        torch.testing.assert_close(value, after(1e9 * good)[name], rtol=0.0, atol=1e-12)
    half = good.to(torch.bfloat16)
    assert differences(after(half), after(half.to(D))) == []
    state = after(1e300 * good)
    assert all(bool(value.isfinite().all()) for name, value in state.items() if name != "constants")


@EACH
def test_bad_shapes_and_types_leave_no_trace(cls: Any) -> None:
    made = build(cls)
    made.step(None)
    before = snapshot(made)
    for bad, error in (
        (torch.zeros(2, 3, 3, dtype=D), ValueError),
        (torch.zeros(made.points, 4, dtype=D), ValueError),
        (torch.zeros(made.points, 3, dtype=torch.int64), TypeError),
        (["0.0", "0.0", "0.0"], TypeError),
        ([[0.0], [0.0, 0.0]], TypeError),
    ):
        with pytest.raises(error, match="gradients: expected"):
            made.step(bad)
    assert differences(before, snapshot(made)) == []
    if made.points == 1:
        made.step(torch.zeros(3, dtype=D))


# ---------------------------------------------------------------------------------------------------------------------
# The contract of private learners.


@EACH
def test_the_budget_ends(cls: Any) -> None:
    made = build(cls, horizon=5)
    for _ in range(5):
        made.step(None)
    before = snapshot(made)
    with pytest.raises(RuntimeError, match="at most 5 steps"):
        made.step(None)
    assert differences(before, snapshot(made)) == []


def epsilon_of_noise(learner: Any) -> float:
    """What a seeded learner would have spent without a seed."""
    return Ledger("replace_one", learner.privacy_ledger().events[:1]).epsilon(1e-3)


@EACH
def test_a_fork_draws_new_noise_and_is_counted(cls: Any) -> None:
    made = build(cls, seed=1)
    for _ in range(25):
        made.step(None)
    copied, loaded = copy.deepcopy(made), build(cls)
    loaded.load_state_dict(made.state_dict())
    for _ in range(15):
        for learner in (made, copied, loaded):
            learner.step(None)
    assert len({tuple(learner.predict().tolist()) for learner in (made, copied, loaded)}) == 3
    twice = gaussian_epsilon(math.sqrt(2.0) * gaussian_mu(1.0, 1e-3), 1e-3)
    for learner in (made, copied, loaded):
        assert learner.privacy_spent(1e-3) == math.inf
    assert epsilon_of_noise(made) <= 1.0
    for learner in (copied, loaded):
        assert int(learner.continuations) == 2
        assert math.isclose(epsilon_of_noise(learner), twice, rel_tol=1e-5)
    assert "seeded" in repr(made)
    assert "seeded" in repr(copied)  # its past noise is


def test_the_queries_of_local_md_are_named_secret() -> None:
    learner = build(LocalMD)
    with pytest.raises(RuntimeError, match=r"queries: expected secret_queries\(\), because the point"):
        learner.queries()
    x, y = torch.ones(3, dtype=D), torch.tensor(1.0, dtype=D)
    slopes, _ = gradients(squared_loss, learner, x, y)
    assert slopes.shape == learner.secret_queries().shape == (1, 3)


SECRETS = {DPFTRL: ["secret_memory"], NoisySFW: ["secret_sum"], LocalMD: ["secret_gradient_sum", "secret_iterate_sum"]}


@EACH
def test_public_state_is_what_was_released(cls: Any) -> None:
    """It does not tell of a record whose batch is not over, and of noise and sums in the making nothing at all."""
    one, other = (build(cls, noise_source=KnownNoise()) for _ in range(2))
    assert sorted(name for name in one.state() if name.startswith("secret")) == SECRETS[cls]
    assert not any(name.startswith("secret") for name in one.public_state())
    one.step(torch.ones((one.points, 3), dtype=D))
    other.step(None)
    told = sorted(differences(one.public_state(), other.public_state()))
    assert told == (["noisy_memory", "noisy_sum", "theta"] if cls is DPFTRL else [])
    assert [name for name, _ in one.released().named_buffers()] == ["theta"]
    script = torch.jit.script(one)
    assert torch.equal(script(), one.predict())


@EACH
def test_another_learner_state_is_refused(cls: Any) -> None:
    state = build(cls).state_dict()
    for options in ({"clip": 0.5}, {"epsilon": 2.0}, {"horizon": 41}, {"radius_bound": 2.0}):
        with pytest.raises(RuntimeError, match="the state was learnt with"):
            build(cls, **options).load_state_dict(state)


@EACH
def test_decisions_in_float32_and_noise_in_float64(cls: Any) -> None:
    made, exact = (build(cls, dtype=dtype, noise_source=KnownNoise()) for dtype in (torch.float32, D))
    rows = list(records(40, 3, seed=4))
    for learner in (made, exact):
        feed(learner, rows)
    assert made.predict().dtype == torch.float32
    assert all(made.state()[name].dtype == D for name in SECRETS[cls])
    before = snapshot(exact)
    assert differences(before, snapshot(exact.half())) == []
    torch.testing.assert_close(made.predict().double(), exact.predict(), rtol=0.0, atol=1e-5)


@EACH
def test_bad_options_are_refused_by_name(cls: Any) -> None:
    refused: list[dict[str, Any]] = [
        {"clip": math.inf},
        {"clip": 0.0},
        {"norm": 0.5},
        {"radius_bound": -1.0},
        {"horizon": 0},
    ]
    if cls is not NoisySFW:
        refused += [{"learning_rate": 0.0}, {"norm": 3.0}]
    else:
        refused += [{"step_size": 1.5}]
    for options in refused:
        with pytest.raises(ValueError, match=f"{next(iter(options))}: expected"):
            build(cls, **options)
    with pytest.raises(ValueError, match="noise_source: expected"):
        build(cls, noise_source="discrete")
    if cls is not NoisySFW:
        with pytest.raises(ValueError, match="learning_rate: expected"):
            build(cls, clip=math.inf, epsilon=math.inf)


def test_ftrl_in_integers() -> None:
    made = build(DPFTRL, mechanism="tree", noise_source="discrete", horizon=16)
    for _ in range(16):
        made.step(torch.ones(3, dtype=D))
    assert made.noisy_sum.dtype == torch.int64
    assert 0.9 < made.privacy_spent(1e-3) <= 1.0


def test_ftrl_regret_is_within_its_bound() -> None:
    """Of gradients that look at the decision, and push away from where it is; a thousandth of the learning rate breaks it."""
    n, d = 200, 3

    def regret(factor: float) -> tuple[float, float]:
        told = {"horizon": n, "radius_bound": 1.0}
        plain = build(DPFTRL, d, **told)
        made = build(
            DPFTRL, d, batch_shape=(100,), learning_rate=factor * plain.learning_rate, epsilon=1.0, seed=3, **told
        )
        total, sums = torch.zeros(100, dtype=D), torch.zeros((100, d), dtype=D)
        for step in range(n):
            g = made.predict().sign() / math.sqrt(d)
            g = torch.where(torch.tensor(step % 4 == 0), g, torch.tensor([-1.0, 0.0, 0.0], dtype=D).expand(100, d))
            total += (g * made.predict()).sum(-1)
            sums += g
            made.step(g)
        noise = plain.noise.noise_scale * plain.noise.errors(n)[0]
        return float((total + sums.norm(dim=-1)).mean()), math.sqrt(n * (1.0 + 2.0 * math.sqrt(d) * noise))

    reached, bound = regret(1.0)
    assert 0.1 * bound < reached < bound
    reached, bound = regret(1e-3)
    assert reached > 0.9 * 0.6 * n


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_projections_are_the_nearest_points(norm: float) -> None:
    """The angle to every point of the ball is obtuse, which says so; and what is inside stays."""
    generator = torch.Generator().manual_seed(0)
    point, inside = (torch.randn((500, 4), generator=generator, dtype=D) for _ in range(2))
    inside *= 0.8 / inside.norm(norm, dim=-1, keepdim=True) * torch.rand((500, 1), generator=generator)
    here = projected(point, norm, 0.8)
    assert float(here.norm(norm, dim=-1).max()) <= 0.8 + 1e-12
    assert float((here.norm(dim=-1)).max()) <= euclidean_radius(4, norm, 0.8) + 1e-12
    assert float(((point - here) @ (inside - here).mT).diagonal().max()) <= 1e-12
    assert float(((point - here).unsqueeze(1) * (inside.unsqueeze(0) - here.unsqueeze(1))).sum(-1).max()) <= 1e-12
    torch.testing.assert_close(projected(inside, norm, 0.8), inside, rtol=0.0, atol=1e-15)
    assert not bool(projected(torch.zeros(4), norm, 1.0).any())


# ---------------------------------------------------------------------------------------------------------------------
# Many passes.


def sgd(**options: Any) -> NoisySGD:
    return NoisySGD(3, **({"records": 30, "epsilon": 0.5, "delta": 1e-3, "steps": 40} | options))


def rows_of(count: int) -> tuple[Tensor, Tensor]:
    rows = list(records(count, 3, seed=8))
    return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_sgd_is_its_equations(norm: float) -> None:
    """With the draws that it asks for, of the batch and of the noise, in turn."""
    generator = torch.Generator().manual_seed(2)
    draws = [torch.randn((1, size), generator=generator, dtype=D) for _ in range(40) for size in (30, 3)]
    made = sgd(norm=norm, radius_bound=0.4, noise_source=KnownNoise(draws))
    x, y = rows_of(30)
    average, last = made.fit(squared_loss, x, y)
    theta, path = np.zeros(3), []
    for batch, noise in zip(draws[::2], draws[1::2], strict=True):
        path.append(theta)
        drawn = stats.norm.cdf(batch[0].numpy()) < math.sqrt(30.0) / 30.0
        total = sum((clip(slope(theta, x[i].numpy(), float(y[i])), 1.0) for i in np.flatnonzero(drawn)), np.zeros(3))
        total = total + made.noise_multiplier * noise[0].numpy()
        theta = nearest(theta - made.learning_rate / math.sqrt(30.0) * total, norm, 0.4)
    np.testing.assert_allclose(last.numpy(), theta, rtol=0.0, atol=1e-5)
    np.testing.assert_allclose(average.numpy(), np.mean(path, 0), rtol=0.0, atol=1e-5)


def test_sgd_on_all_records_without_noise_is_gradient_descent() -> None:
    made = sgd(epsilon=math.inf, clip=math.inf, learning_rate=0.02, batch_size=30, steps=600, radius_bound=10.0)
    x, y = rows_of(30)
    _, last = made.fit(squared_loss, x, y)
    torch.testing.assert_close(last, torch.linalg.lstsq(x, y.unsqueeze(-1)).solution.squeeze(-1), rtol=0.0, atol=1e-6)
    assert made.privacy_spent(1e-3) == math.inf


def test_sgd_noise_is_enough_and_two_thirds_of_it_is_not() -> None:
    made = sgd()
    assert 0.495 < made.privacy_spent(1e-3) <= 0.5
    assert subsampled_epsilon(made.noise_multiplier * 2.0 / 3.0, 1e-3, made.rate, 40) > 0.65
    # All records in each step: a Gaussian mechanism, of which a record moves each sum by 2C.
    assert math.isclose(subsampled_epsilon(9.0, 1e-3, 1.0, 4), gaussian_epsilon(4.0 / 9.0, 1e-3), rel_tol=1e-3)


@pytest.mark.slow
def test_the_accountant_of_sgd_knows_of_replacement() -> None:
    """One step: the mixtures' own divergence, by quadrature. Of a record that is added or removed it is less."""
    z, q, epsilon = 2.0, 0.3, 0.5

    def excess(x: float) -> float:
        rest, one, other = (stats.norm.pdf(x, loc=shift, scale=z) for shift in (0.0, 1.0, -1.0))
        return max(0.0, (1.0 - q) * rest + q * one - math.exp(epsilon) * ((1.0 - q) * rest + q * other))

    delta = integrate.quad(excess, -12.0, 12.0, limit=500, points=(0.0, 1.0))[0]
    assert abs(subsampled_epsilon(z, delta, q, 1) - epsilon) < 2e-3
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    assert (
        PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event).get_epsilon(delta)
        < 0.9 * epsilon
    )


def test_sgd_draws_each_record_with_its_probability() -> None:
    """And independently: the number of records in a batch is binomial, and no pair is drawn too often."""

    class Counting(KnownNoise):
        def normal(self, shape: tuple[int, ...]) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=D) if shape[-1] == 50 else torch.zeros(shape, dtype=D)

    generator = torch.Generator().manual_seed(4)
    made = NoisySGD(
        1, records=50, epsilon=math.inf, delta=1e-3, steps=1, batch_size=10, batch_shape=(400,),
        learning_rate=10.0, radius_bound=1e9, noise_source=Counting(),
    )  # fmt: skip
    _, last = made.fit(lambda theta, x: -theta.sum() * x, torch.full((50,), 0.5))
    counts = 2.0 * last.squeeze(-1)
    assert abs(float(counts.mean()) - 10.0) < 4.0 * math.sqrt(8.0 / 400.0)
    assert abs(float(counts.var()) - 8.0) < 4.0 * 8.0 * math.sqrt(2.0 / 400.0)


def test_sgd_takes_any_records_and_seeds_do_not_meet() -> None:
    x, y = rows_of(30)
    bad = x.clone()
    bad[3], bad[4], bad[5] = math.nan, 1e6, math.inf
    runs = torch.stack(sgd(batch_shape=(3,), seed=0).fit(squared_loss, bad.to(torch.bfloat16), y))
    assert runs.shape == (2, 3, 3)
    assert bool(runs.isfinite().all())
    assert bool((runs[:, 0] != runs[:, 1]).all())
    again = torch.stack(sgd(batch_shape=(3,), seed=0).fit(squared_loss, bad.to(torch.bfloat16), y))
    assert torch.equal(runs, again)
    assert "seeded" in repr(sgd(seed=0, epsilon=math.inf))
    sgd(noise_source="csprng").fit(squared_loss, x, y)


def test_sgd_refuses_a_second_fit_and_bad_arguments() -> None:
    x, y = rows_of(30)
    made = sgd(epsilon=math.inf)
    with pytest.raises(ValueError, match="data: expected 30 rows"):
        made.fit(squared_loss, x[:20], y)
    with pytest.raises(TypeError, match="data: expected tensors"):
        made.fit(squared_loss, x, [1.0])
    made.fit(squared_loss, x, y)
    with pytest.raises(RuntimeError, match="budget is spent"):
        made.fit(squared_loss, x, y)
    for options in ({"batch_size": 31}, {"clip": math.inf}, {"norm": 1.5}, {"steps": 0}, {"noise_source": "discrete"}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}: expected"):
            sgd(**options)
    with pytest.raises(ValueError, match="seed: expected None with a noise source"):
        sgd(noise_source=KnownNoise(), seed=3)


def test_without_dp_accounting_sgd_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match="\\[privacy\\]"):
        sgd(epsilon=0.7)
    sgd(epsilon=math.inf)  # where there is no noise, there is nothing to account for
