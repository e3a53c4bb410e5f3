"""Prefix-sum mechanisms: the streams are the matrices, and the noise is what the promise needs, no less and no more."""

import functools
import math
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as losses
from scipy import stats

from tests.private_tools import KnownNoise, Recorded
from torchonline import DPHDB, DPPOFW, DPTOFW
from torchonline.baselines import LocalMD, NoisySFW
from torchonline.privacy import prefix_sum
from torchonline.privacy.calibration import gaussian_epsilon, gaussian_mu
from torchonline.privacy.clipping import MARGIN
from torchonline.privacy.mechanisms.blt import parameters, trace_lower_bound
from torchonline.privacy.mechanisms.discrete import EXCESS
from torchonline.privacy.mechanisms.generalized_gaussian import GeneralizedGaussianTree
from torchonline.privacy.mechanisms.prefix_sums import MECHANISMS, PrefixSum
from torchonline.privacy.mechanisms.toeplitz import BLT
from torchonline.privacy.noise import grid_of

pytestmark = pytest.mark.fast

NAMES = tuple(MECHANISMS)
EACH = pytest.mark.parametrize("name", NAMES)


def noise(name: str, horizon: int = 64, shape: tuple[int, ...] = (3,), **options: Any) -> PrefixSum:
    """A learner whose sums move by at most 1 if a record is replaced, but for the margin of clipping."""
    return prefix_sum(name, horizon, shape, **({"clip": 0.5, "epsilon": 1.0, "delta": 1e-3} | options))


def following(made: PrefixSum, summand: Any = None) -> torch.Tensor:
    """The sum that is published after one more summand."""
    made.step(summand)
    return made.predict()


@functools.cache
def oracle(noise_multiplier: float, delta: float) -> float:
    """The epsilon of one Gaussian mechanism, by an independent library."""
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    return PLDAccountant(relation).compose(dp_accounting.GaussianDpEvent(noise_multiplier)).get_epsilon(delta)


@EACH
@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_the_stream_is_the_matrix(name: str, n: int) -> None:
    """B times C is the prefix sums; C reads no later record; rows are those of C; what comes out is B times released rows."""
    made = noise(name, n)
    source = Recorded(made.source)
    object.__setattr__(made.noise, "source", source)
    decoder, encoder = made.materialize(n)
    ones = torch.ones((n, n), dtype=torch.float64).tril()
    torch.testing.assert_close(decoder @ encoder, ones, rtol=0.0, atol=1e-12)
    reads = encoder.abs() > 1e-12
    writes = decoder.abs() > 1e-12
    last_read = torch.where(reads, torch.arange(n), -1).amax(1)
    first_used = torch.where(writes, torch.arange(n).unsqueeze(-1), n).amin(0)
    assert bool((last_read <= first_used).all())
    summands = torch.randn(n, 3, generator=torch.Generator().manual_seed(1)).double() / 8.0
    seen = torch.stack([following(made, summand) for summand in summands])
    added, released = torch.stack(source.added), torch.stack(source.released)
    grid = grid_of(made.noise.noise_scale)
    assert torch.equal(released, (released / grid).round() * grid)
    torch.testing.assert_close(released - added, encoder @ summands, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(seen, decoder @ released, rtol=0.0, atol=1e-11)
    torch.testing.assert_close(seen, summands.cumsum(0) + decoder @ added, rtol=0.0, atol=1e-11)


@EACH
@pytest.mark.parametrize("n", [1, 3, 64, 100])
def test_norms_and_errors_are_those_of_the_matrix(name: str, n: int) -> None:
    made = noise(name, 128)
    decoder, encoder = made.materialize(n)
    norms = encoder.norm(dim=0)
    assert math.isclose(made.noise.column_norm(n), float(norms.max()), rel_tol=1e-12)
    variances = decoder.square().sum(1)
    rms, largest = made.noise.errors(n)
    assert math.isclose(rms, math.sqrt(variances.mean()), rel_tol=1e-9)
    assert math.isclose(largest, math.sqrt(variances.max()), rel_tol=1e-9)
    assert made.rms(n) == made.noise.noise_scale * rms
    assert made.largest(n) == made.noise.noise_scale * largest


@pytest.mark.slow
@EACH
@pytest.mark.parametrize(("horizon", "epsilon", "delta"), [(1000, 1.0, 1e-3), (37, 0.3, 1e-5), (100, 6.0, 1e-2)])
def test_noise_is_enough_and_two_thirds_of_it_is_not(name: str, horizon: int, epsilon: float, delta: float) -> None:
    """By the dense encoder, whose columns are what a record moves, and by another library's accountant."""
    made = noise(name, horizon, clip=1.25, epsilon=epsilon, delta=delta)
    column = float(made.materialize(horizon)[1].norm(dim=0).max())
    multiplier = made.noise.noise_scale / (2.5 * column)
    # Rounded, so that mechanisms of equal privacy are asked for once.
    assert abs(oracle(round(multiplier, 6), delta) - epsilon) < 1e-3 * epsilon
    assert oracle(round(multiplier * 2.0 / 3.0, 6), delta) > 1.2 * epsilon
    for _ in range(horizon):
        made.step(None)
    assert 0.999 * epsilon < made.privacy_spent(delta) <= epsilon


@functools.cache
def longest(name: str, n: int, count: int, apart: int, steps: int) -> float:
    """The largest norm of a sum of columns, of all people there may be: by trying all of them."""
    encoder = noise(name, n, participations=count, min_separation=apart).materialize(n)[1][:steps]
    assert bool((encoder >= 0.0).all())
    best = 0.0

    def try_all(start: int, left: int, total: torch.Tensor) -> None:
        nonlocal best
        best = max(best, float(total.norm()))
        for i in range(start, n if left else start):
            try_all(i + apart, left - 1, total + encoder[:, i])

    try_all(0, count, torch.zeros(steps, dtype=torch.float64))
    return best


@EACH
@pytest.mark.parametrize(
    ("n", "count", "apart"), [(9, 2, 1), (13, 3, 2), (16, 4, 4), (20, 2, 7), (8, 9, 1), (11, 3, 5)]
)
def test_no_person_moves_rows_farther_than_is_booked(name: str, n: int, count: int, apart: int) -> None:
    """Of Toeplitz encoders it is exactly so far, after any number of steps."""
    made = noise(name, n, participations=count, min_separation=apart)
    for steps in (1, n // 2, n):
        booked, true = made.noise.person_norm(steps), longest(name, n, count, apart, steps)
        assert booked >= true * (1.0 - 1e-12)
        if name in ("blt", "sqrt"):
            assert math.isclose(booked, true, rel_tol=1e-12)
        assert booked < 2.0 * true
    assert made.noise.moved(n) >= made.noise.sensitivity * longest(name, n, count, apart, n)


@pytest.mark.parametrize(("n", "count", "apart", "saved"), [(128, 16, 8, 0.22), (580, 10, 58, 0.16), (60, 2, 1, 0.0)])
def test_a_blt_of_several_participations_forgets_sooner(n: int, count: int, apart: int, saved: float) -> None:
    """By dense matrices, it has the least noise of the horizons tried, and less than the parameters of its own horizon."""
    made = noise("blt", n, participations=count, min_separation=apart)

    def of(decoder: torch.Tensor, encoder: torch.Tensor) -> tuple[float, float]:
        """The root mean square, and the mean that the parameters minimize."""
        moved = float(encoder[:, : count * apart : apart].sum(1).norm())
        variances = decoder.square().sum(1)
        rms, largest = math.sqrt(variances.mean()), math.sqrt(variances.max())
        return rms * moved, rms**0.75 * largest**0.25 * moved

    told: dict[str, Any] = {"sensitivity": 1.0, "noise_scale": 1.0, "source": made.source, "participations": count}
    horizons = [n, *(apart * 2**i for i in range(10) if apart * 2**i < n)]
    tried = [of(*BLT(n, parameters=parameters(m), min_separation=apart, **told).materialize(n)) for m in horizons]
    best = of(*made.materialize(n))
    assert math.isclose(best[1], min(mean for _, mean in tried), rel_tol=1e-9)
    assert best[0] <= (1.0 - saved) * tried[0][0]


@pytest.mark.slow
@EACH
def test_several_participations_are_enough_noise_by_another_accountant(name: str) -> None:
    """Five passes over twenty records; with the noise for one pass they spend several times the promise."""
    passes, people = 5, 20
    n = passes * people
    made = noise(name, n, participations=passes, min_separation=people)
    shift = float(made.materialize(n)[1][:, ::people].sum(1).norm())
    spent = oracle(made.noise.noise_scale / shift, 1e-3)
    assert (0.98 if name in ("blt", "sqrt") else 0.5) < spent < 1.001
    for _ in range(n):
        made.step(None)
    assert spent - 1e-3 < made.privacy_spent(1e-3) <= 1.0
    once = noise(name, n)
    shift = float(once.materialize(n)[1][:, ::people].sum(1).norm())
    assert oracle(once.noise.noise_scale / shift, 1e-3) > 2.5


def test_several_participations_are_refused_where_nothing_is_proved() -> None:
    told: dict[str, Any] = {"horizon": 20, "epsilon": 1.0, "delta": 1e-3, "participations": 2}
    for build in (
        lambda: DPPOFW(3, mechanism="gumbel", **told),
        lambda: DPTOFW(3, mechanism="paper", **told),
        lambda: DPTOFW(3, mechanism="tree", noise_source="discrete", **told),
        lambda: DPHDB(3, arms=2, warmup=2, mechanism="laplace", **told),
        lambda: NoisySFW(3, **told),
        lambda: LocalMD(3, **told),
    ):
        with pytest.raises(ValueError, match="participations: expected 1 with"):
            build()
    for name in ("participations", "min_separation"):
        with pytest.raises(ValueError, match=f"{name}: expected"):
            DPTOFW(3, **(told | {name: 0}))


def test_a_bandits_people_are_closer_on_the_clock_of_an_arm() -> None:
    """By the blocks of the other arms, which its learner does not see."""
    told: dict[str, Any] = {"horizon": 100, "epsilon": 1.0, "delta": 1e-3, "participations": 3}
    bandit = DPHDB(3, arms=3, warmup=10, min_separation=25, **told)
    assert [arm.min_separation for arm in bandit.arms] == [5, 5, 5]
    assert DPHDB(3, arms=3, warmup=10, min_separation=12, **told).arms[0].min_separation == 1
    for _ in range(100):
        bandit.step(None)
    assert 0.99 < bandit.privacy_spent(1e-3) <= 1.0


def test_discrete_noise_is_enough_and_two_thirds_of_it_is_not() -> None:
    """Each of the nodes that a record is in has discrete noise, which another library composes, on a coarser grid."""
    made = noise("tree", 1000, clip=1.25, epsilon=0.7, noise_source="discrete")
    nodes = int(made.materialize(1000)[1].sum(0).max())
    for factor, enough in ((1.0, True), (2.0 / 3.0, False)):
        moved = round(400 * 2.5 / (factor * made.noise.noise_scale))  # of a standard deviation of 400
        each = losses.from_discrete_gaussian_mechanism(400.0, sensitivity=moved, value_discretization_interval=1e-3)
        epsilon = each.self_compose(nodes).get_epsilon_for_delta(1e-3)
        assert (abs(epsilon - 0.7) < 0.01) == enough, epsilon
        assert (epsilon > 1.2 * 0.7) != enough


@pytest.mark.slow
@EACH
def test_spent_on_the_way_is_that_of_the_columns_so_far(name: str) -> None:
    made = noise(name, 50)
    assert made.privacy_spent(1e-3) == 0.0
    spent = []
    for step in range(1, 51):
        made.step(None)
        spent.append(made.privacy_spent(1e-3))
        if step in (1, 2, 17, 50):
            column = float(made.materialize(step)[1].norm(dim=0).max())
            assert abs(spent[-1] - oracle(made.noise.noise_scale / column, 1e-3)) < 2e-3
    assert spent == sorted(spent)
    assert spent[0] < spent[-1] <= 1.0


@EACH
def test_the_budget_ends(name: str) -> None:
    made = noise(name, 5)
    for _ in range(5):
        made.step(None)
    before = {key: value.clone() for key, value in made.state_dict().items()}
    with pytest.raises(RuntimeError, match="at most 5 steps"):
        made.step(None)
    assert all(torch.equal(value, before[key]) for key, value in made.state_dict().items())


@EACH
def test_a_batch_and_a_number(name: str) -> None:
    """Each learner of a batch has noise of its own; a shape of () is one number."""
    batched = noise(name, 8, (4, 2, 3))
    draws = torch.stack([following(batched) for _ in range(8)])
    assert draws.shape == (8, 4, 2, 3)
    assert len(draws.reshape(8, 24).unique(dim=1).T) == 24
    assert following(noise(name, 8, ()), 0.1).shape == ()
    one, several = noise(name, 8, (4, 2, 3), epsilon=math.inf), torch.full((4, 2, 3), 5.0)
    torch.testing.assert_close(following(one, several).norm(dim=-1), torch.full((4, 2), 0.5, dtype=torch.float64))


@EACH
def test_the_law_of_what_comes_out(name: str) -> None:
    """Normal, with the standard deviation that ``rms`` tells: accepted at that, rejected at 2/3 and 3/2 of it."""
    made = noise(name, 12, (2000,), seed=3)
    sample = torch.stack([following(made) for _ in range(12)])
    deviations = made.materialize(12)[0].norm(dim=1) * made.noise.noise_scale
    for step in (0, 6, 11):
        for factor, accepted in ((1.0, True), (2.0 / 3.0, False), (1.5, False)):
            p = stats.kstest(sample[step].numpy(), stats.norm(scale=factor * float(deviations[step])).cdf).pvalue
            assert (p > 1e-3) == accepted, (step, factor, p)


def test_no_noise_without_a_promise() -> None:
    made = noise("blt", 10, epsilon=math.inf)
    assert torch.equal(following(made, [0.1, 0.0, 0.2]), torch.tensor([0.1, 0.0, 0.2], dtype=torch.float64))
    assert made.privacy_spent(1e-3) == math.inf


def test_discrete_noise_is_on_its_grid_and_booked_as_what_it_is() -> None:
    made = noise("tree", 20, (50,), noise_source="discrete")
    grid = made.noise.grid
    steps = torch.stack([following(made) for _ in range(20)]) / grid
    assert torch.equal(steps, steps.round())
    assert made.secret_nodes.dtype == made.noisy_nodes.dtype == torch.int64
    assert math.log2(grid).is_integer()
    moved = made.noise.whole_sensitivity  # by a record, in units of the grid
    assert 1.0 <= moved * grid < 1.0 + 1e-5
    mu = math.sqrt((20).bit_length()) * moved / made.noise.sigma
    assert math.isclose(made.privacy_spent(1e-3), gaussian_epsilon((1.0 + EXCESS) * mu, 1e-3), rel_tol=1e-12)
    assert 0.99 < made.privacy_spent(1e-3) <= 1.0
    first = noise("tree", 1, (4000,), noise_source="discrete")
    for factor, accepted in ((1.0, True), (2.0 / 3.0, False), (1.5, False)):
        scale = factor * first.noise.noise_scale
        sample = following(noise("tree", 1, (4000,), noise_source="discrete")).numpy()
        assert (stats.kstest(sample, stats.norm(scale=scale).cdf).pvalue > 1e-9) == accepted


@pytest.mark.parametrize("name", ["blt", "sqrt", "honaker"])
def test_discrete_noise_is_for_the_tree(name: str) -> None:
    with pytest.raises(ValueError, match=f"noise_source: expected 'discrete' only.*{name}"):
        noise(name, noise_source="discrete")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"mechanism": "fft"}, ValueError, "mechanism: expected one of"),
        ({"mechanism": None}, TypeError, "mechanism: expected one of"),
        ({"horizon": 0}, ValueError, "horizon: expected an integer above 0"),
        ({"horizon": 2.5}, TypeError, "horizon: expected an integer"),
        ({"shape": 3}, TypeError, "shape: expected a tuple"),
        ({"clip": 0.0}, ValueError, "clip: expected a number above 0"),
        ({"clip": math.inf}, ValueError, "clip: expected a finite number"),
        ({"epsilon": 0.0}, ValueError, "epsilon: expected a number above 0"),
        ({"epsilon": math.nan}, ValueError, "epsilon: expected a finite number"),
        ({"delta": 0.0}, ValueError, "delta: expected a number in"),
        ({"delta": 1.0}, ValueError, "delta: expected a number in"),
        ({"noise_source": "dice"}, ValueError, "noise_source: expected one of"),
        ({"noise_source": "csprng", "seed": 3}, ValueError, "seed: expected"),
    ],
)
def test_bad_arguments_are_refused_by_name(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {"mechanism": "blt", "horizon": 8, "shape": (3,), "clip": 1.0, "epsilon": 1.0, "delta": 1e-3}
    with pytest.raises(error, match=message):
        prefix_sum(**(good | changes))


@EACH
def test_only_a_state_of_the_same_noise_is_taken(name: str) -> None:
    """Another horizon, promise or clip is refused, and nothing is loaded."""
    made = noise(name, 8)
    made.step(None)
    for changes in ({"horizon": 9}, {"clip": 0.55}, {"epsilon": 1.0 + 1e-9}, {"delta": 2e-3}):
        other = noise(name, **({"horizon": 8} | changes))
        before = {key: value.clone() for key, value in other.state_dict().items()}
        with pytest.raises(RuntimeError, match=r"learnt with|expected shape"):
            other.load_state_dict(made.state_dict())
        assert all(torch.equal(value, before[key]) for key, value in other.state_dict().items())


def test_calibration_is_the_formula() -> None:
    """Sigma = (s_2 * column norm + rounding) / mu, from the numbers in use."""
    for cls in MECHANISMS.values():
        made = noise(cls.name, 300, clip=1.5, epsilon=0.7, delta=1e-4).noise
        moved = 3.0 * (1.0 + MARGIN) * made.column_norm(300) + 1.5 * (1.0 + MARGIN) * made.rounding(300) * 2.0**-52
        assert math.isclose(made.noise_scale, moved / gaussian_mu(0.7, 1e-4), rel_tol=1e-12)


@pytest.mark.parametrize(("n", "less"), [(10**3, 13.0), (10**4, 15.0), (10**5, 15.0)])
def test_how_little_noise_there_is(n: int, less: float) -> None:
    """Of the BLT: at most 3.5 % above any matrix mechanism's, many times less than the paper's tree, in the memory of 5 sums."""
    made = noise("blt", n, (1,), delta=1.0 / n)
    bound = trace_lower_bound(n) / gaussian_mu(1.0, 1.0 / n)
    assert bound <= made.rms(n) <= 1.035 * bound
    tree = GeneralizedGaussianTree(
        n, order=2.0, dim=1, sensitivity=1.0, epsilon=1.0, delta=1.0 / n, source=KnownNoise()
    )
    assert tree.noise_scale * tree.errors(n)[0] >= less * made.rms(n)
    assert made.secret_memory.shape == (5, 1)


def test_without_a_promise_the_factors_are_those_of_the_sums() -> None:
    for name in NAMES:
        made = noise(name, 10, epsilon=math.inf)
        decoder, encoder = made.materialize(10)
        torch.testing.assert_close(decoder @ encoder, torch.ones((10, 10), dtype=torch.float64).tril())
        assert (made.rms(10), made.largest(10)) == (0.0, 0.0)
    with pytest.raises(ValueError, match="mechanism: expected one of"):
        noise("fft", epsilon=math.inf)


def test_the_ledger_says_which_neighbours() -> None:
    made = noise("blt", 8, adjacency="zero_out")
    made.step(None)
    assert made.privacy_ledger().adjacency == "zero_out"
    assert noise("blt", 8).privacy_ledger().adjacency == "replace_one"
    with pytest.raises(ValueError, match="steps: expected at most 8"):
        made.privacy_ledger(steps=9)


def test_summands_are_clipped_and_never_looked_at() -> None:
    made = noise("blt", 8, epsilon=math.inf)
    following(made, [3.0, 0.0, 4.0])
    torch.testing.assert_close(made.predict(), torch.tensor([0.3, 0.0, 0.4], dtype=torch.float64))
    for hostile in ([math.nan, 0.1, 0.1], [0.0, math.inf, 0.0], None):
        torch.testing.assert_close(following(made, hostile), torch.tensor([0.3, 0.0, 0.4], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"summand: expected shape \(3\), got \(2\)"):
        made.step([0.1, 0.2])
    assert int(made.rounds) == 4


def test_what_is_exported_is_the_sum() -> None:
    made = noise("tree", 8, (2, 3))
    made.step(torch.full((2, 3), 0.2))
    assert torch.equal(torch.jit.script(made.released())(), made.predict())
    assert torch.equal(made(), made.predict())


@EACH
@pytest.mark.parametrize("n", [1, 2, 9, 200])
def test_rows_are_rounded_by_less_than_the_noise_allows_for(name: str, n: int) -> None:
    """The error of all rows together, against the dense encoder in rational numbers or extended precision."""
    made = noise(name, n, (1,))
    source = Recorded(KnownNoise())
    object.__setattr__(made.noise, "source", source)
    encoder = made.materialize(n)[1]
    for kind in range(3):
        generator = torch.Generator().manual_seed(kind)
        size = torch.rand(n, generator=generator, dtype=torch.float64)
        summands = 0.5 * (size.sign() if kind == 0 else size if kind == 1 else (2.0 * size - 1.0).sign())
        state = {key: value.clone() for key, value in made.noise.initial_state(1).items()}
        source.released.clear()
        for step, summand in enumerate(summands, 1):
            made.noise.add(state, summand.reshape(1), step)
        rows = torch.cat(source.released).numpy()
        exact = encoder.numpy().astype(np.longdouble) @ summands.numpy().astype(np.longdouble)
        # The dense encoder is in float64 itself: an error of 2^-53 in each of its entries.
        own = 2.0**-53 * np.linalg.norm(abs(encoder.numpy()) @ abs(summands.numpy()))
        assert np.linalg.norm((rows - exact).astype(float)) <= 2.0**-53 * 0.5 * made.noise.rounding(n) + 8.0 * own


def test_a_source_of_its_own_has_no_seed() -> None:
    with pytest.raises(ValueError, match="seed: expected None with a noise source"):
        PrefixSum("blt", 8, (3,), clip=1.0, epsilon=1.0, delta=1e-3, noise_source=KnownNoise(), seed=3)
