"""Noise sources: every law, at the right scale and at no other; noise that is never drawn twice; what a seed is good for."""

import copy
import math
import os
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from torchonline.privacy import NoiseSource, noise, noise_source
from torchonline.privacy.exact_draws import Probability, normal_probability, rounded_normal
from torchonline.privacy.noise import grid_of

pytestmark = pytest.mark.fast

# Below this p-value a law is refused. With the operating system's randomness a right one is, once in 1e10 tests.
LEVEL = 1e-10
COUNT = 20_000

LAWS = {"normal": stats.norm, "laplace": stats.laplace, "gumbel": stats.gumbel_r}
DRAWS: dict[str, Callable[[NoiseSource], Tensor]] = {
    "torch": lambda source: source.normal((8,)),
    "csprng": lambda source: source.normal((8,)),
    "discrete": lambda source: source.discrete_normal((8,), 2**20),
}
EACH_SOURCE = pytest.mark.parametrize("name", list(DRAWS))


def fits(sample: Tensor, law: Any) -> bool:
    """Whether a Kolmogorov-Smirnov test lets a law pass."""
    return bool(stats.kstest(sample.numpy(), law.cdf).pvalue > LEVEL)


def source_of(name: str) -> NoiseSource:
    return noise_source(name, seed=11 if name == "torch" else None)


# The laws


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("name", ["torch", "csprng"])
def test_each_law_has_its_scale_and_no_other(name: str, law: str) -> None:
    sample = getattr(source_of(name), law)((COUNT // 4, 2, 2))
    assert sample.dtype == torch.float64
    assert sample.shape == (COUNT // 4, 2, 2)
    flat = sample.flatten()
    assert fits(flat, LAWS[law]())
    assert not fits(flat * 2 / 3, LAWS[law]())
    assert not fits(flat * 3 / 2, LAWS[law]())
    # One number does not know the next: rank correlation, standard deviation 1 / sqrt(n).
    assert abs(stats.spearmanr(flat[:-1], flat[1:]).statistic) < 6.5 / COUNT**0.5


@pytest.mark.parametrize("order", [1.0, 2.0, 3.5, 40.0])
def test_generalized_gaussian(order: float) -> None:
    dim = 5
    z = noise_source("torch", seed=3).generalized_gaussian((COUNT, dim), order)
    powers = (z.abs() / z.abs().amax(-1, keepdim=True)) ** order
    norm = z.abs().amax(-1) * powers.sum(-1) ** (1.0 / order)
    share = powers[:, 0] / powers.sum(-1)
    radius_law, share_law = stats.gamma(dim / 2, scale=2.0), stats.beta(1 / order, (dim - 1) / order)
    assert fits(norm**2, radius_law)
    for factor in (2 / 3, 3 / 2):
        assert not fits((factor * norm) ** 2, radius_law)
    assert fits(share, share_law)
    assert not fits(share, stats.beta(1 / order, dim / order))
    # Independent: the radius has the same law wherever the direction points, and the signs are fair.
    near = share > share.median()
    assert stats.ks_2samp(norm[near].numpy(), norm[~near].numpy()).pvalue > 1e-4
    assert abs(stats.spearmanr(norm, z[:, 0].abs() / norm).statistic) < 4 / COUNT**0.5
    assert abs((z > 0).double().mean(0) - 0.5).max() < 4 * 0.5 / COUNT**0.5
    assert abs(np.corrcoef(z.sign().numpy().T) - np.eye(dim)).max() < 4.5 / COUNT**0.5


def test_a_large_order_underflows_nowhere() -> None:
    """At infinity: a uniform point of the cube, over its largest coordinate. Powers of 1/r of Gamma(1/r) are often 0 there."""
    order, dim = 1e6, 5
    z = noise_source("torch", seed=6).generalized_gaussian((COUNT, dim), order)
    root = (z.abs() / z.abs().amax(-1, keepdim=True))[:, 0]
    assert fits(z.abs().amax(-1) ** 2, stats.gamma(dim / 2, scale=2.0))
    assert abs((root == 1).double().mean() - 1 / dim) < 0.015
    assert fits(root[root < 1], stats.uniform())
    assert (np.random.default_rng(0).standard_gamma(1 / order, COUNT) == 0).mean() > 0.9


def test_the_printed_radius_is_another_law() -> None:
    """Han et al. print Gamma(d/2, scale 2 sigma) where the square of the radius needs 2 sigma^2."""
    sigma, dim, order = 50.0, 5, 3.0
    square = (sigma * noise_source("torch", seed=4).generalized_gaussian((COUNT, dim), order)).norm(order, -1) ** 2
    assert fits(square, stats.gamma(dim / 2, scale=2 * sigma**2))
    assert not fits(square, stats.gamma(dim / 2, scale=2 * sigma))


def test_a_generalized_gaussian_of_order_two_or_of_one_dimension_is_normal() -> None:
    source = noise_source("torch", seed=5)
    assert fits(source.generalized_gaussian((COUNT // 4, 4), 2).flatten(), stats.norm())
    assert fits(source.generalized_gaussian((COUNT, 1), 7.0).flatten(), stats.norm())
    assert not fits(source.generalized_gaussian((COUNT // 4, 4), 3.0).flatten(), stats.norm())


@pytest.mark.parametrize("sigma", [1, 2, 7])
def test_the_discrete_normal_has_its_probabilities(sigma: int) -> None:
    sample = noise_source("discrete").discrete_normal((COUNT, 2), sigma)
    assert sample.dtype == torch.int64
    assert sample.shape == (COUNT, 2)
    values = np.arange(-50 * sigma, 50 * sigma + 1)
    reach = int(3.2 * sigma)

    def p_value(scale: float) -> float:
        weight = np.exp(-(values**2) / (2 * scale**2))
        # The tails are a cell each.
        cells = np.clip(values, -reach, reach) + reach
        expected = np.bincount(cells, weight / weight.sum()) * sample.numel()
        seen = np.bincount(np.clip(sample.numpy().ravel(), -reach, reach) + reach, minlength=expected.size)
        return float(stats.chisquare(seen, expected).pvalue)

    assert p_value(sigma) > LEVEL
    for wrong in (2 / 3, 0.9, 1.1, 3 / 2):
        assert p_value(wrong * sigma) < LEVEL


def test_the_discrete_normal_of_a_fine_grid() -> None:
    sigma = 2**20
    sample = noise_source("discrete").discrete_normal((COUNT,), sigma).double() / sigma
    # The distance of the two laws is 2e-7, a ten-thousandth of what the test resolves.
    assert fits(sample, stats.norm())
    assert not fits(sample * 2 / 3, stats.norm())
    assert not fits(sample * 3 / 2, stats.norm())
    assert int(noise_source("discrete").discrete_normal((200,), 2**40).abs().max()) > 2**39


# Releases


def cells(offset: float, scale: float, grid: float) -> tuple[np.ndarray, np.ndarray]:
    """The values that a release may take, and their probabilities."""
    values = grid * np.arange(-400, 401)
    ends = np.append(values - 0.5 * grid, values[-1] + 0.5 * grid)
    return values, np.diff(stats.norm.cdf(ends, loc=offset, scale=scale))


@pytest.mark.parametrize("name", ["torch", "csprng"])
@pytest.mark.parametrize("scale", [1.0, 1.9, 300.0])
def test_a_release_has_the_law_of_the_rounded_sum(name: str, scale: float) -> None:
    grid = grid_of(scale)
    assert scale / 32.0 <= grid < scale / 16.0 * (1.0 + 1e-15)
    assert math.log2(grid).is_integer()
    offset = 0.37 * grid
    released = source_of(name).add_normal(np.full((COUNT, 2), offset), scale).ravel()
    whole = np.rint(released / grid).astype(int)
    assert np.array_equal(whole * grid, released)
    assert not np.signbit(released[released == 0.0]).any()

    def p_value(offset: float, scale: float) -> float:
        _, probability = cells(offset, scale, grid)
        # Cells on the flanks are one each.
        reach = int(3.0 * scale / grid)
        kept = np.clip(np.arange(-400, 401), -reach, reach) + reach
        expected = np.bincount(kept, probability) * len(whole) / probability.sum()
        return float(stats.chisquare(np.bincount(np.clip(whole, -reach, reach) + reach), expected).pvalue)

    assert p_value(offset, scale) > LEVEL
    assert p_value(offset + 4.0 * grid, scale) < LEVEL
    assert p_value(offset, 0.9 * scale) < LEVEL


def test_tensors_and_arrays_are_released_alike() -> None:
    values = torch.randn(4, 3, dtype=torch.float64)
    one, other = noise_source("torch", seed=2), noise_source("torch", seed=2)
    released = one.add_normal(values, 2.5)
    assert isinstance(released, Tensor)
    assert np.array_equal(released.numpy(), other.add_normal(values.numpy(), 2.5))


def test_what_is_decided_exactly_is_what_is_decided_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """All roundings and choices by decimal numbers, from the same bits: none differs."""
    values = 3.0 * np.random.default_rng(0).normal(size=(200,))
    scores = torch.from_numpy(values.reshape(40, 5))
    for scale in (1.0, 1.3, 1.99):
        fast, exact = (noise_source("torch", seed=8) for _ in range(2))
        by_floats = [
            fast.add_normal(values, scale),
            *(fast.highest(scores, scale, law) for law in ("gumbel", "laplace")),
        ]
        with monkeypatch.context() as patched:
            patched.setattr(noise, "SURE", 0.5)
            patched.setattr(noise, "CLOSE", 100.0)
            release = exact.add_normal(values, scale)
            chosen = [exact.highest(scores, scale, law) for law in ("gumbel", "laplace")]
        assert np.array_equal(by_floats[0], release)
        assert all(torch.equal(a, b) for a, b in zip(by_floats[1:], chosen, strict=True))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
def test_exact_decisions_of_any_shape(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A single learner has no batch: its choices and releases are decided in decimals too."""
    values = torch.full(shape, 0.3, dtype=torch.float64)
    scores = torch.arange(4.0).double().expand(*shape, 4)
    fast = noise_source("torch", seed=8)
    expected = [fast.add_normal(values, 1.5), fast.highest(scores, 1.0, "gumbel")]
    monkeypatch.setattr(noise, "SURE", 0.5)
    monkeypatch.setattr(noise, "CLOSE", 100.0)
    exact = noise_source("torch", seed=8)
    found = [exact.add_normal(values, 1.5), exact.highest(scores, 1.0, "gumbel")]
    assert all(a.shape == shape and torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 1e-300])
def test_no_release_with_a_scale_that_is_none(scale: float) -> None:
    with pytest.raises(ValueError, match="scale: expected a number from"):
        noise_source("torch").add_normal(torch.ones(3).double(), scale)


@pytest.mark.parametrize("more", [0, 2**64 - 1])
def test_bits_that_are_drawn_later_decide_between_neighbours(more: int) -> None:
    """A midpoint within the interval that 64 bits leave: the sum is below it, or above, as the next bits say."""
    first = 2**42 + 12345
    with mpmath.workdps(60):
        middle = (mpmath.mpf(first) + mpmath.mpf("0.5")) / 2**64
        z = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * middle)
        offset = float(mpmath.mpf("0.5") - 20 * z - 100)  # 0.5 - offset is exact
        inside = mpmath.ncdf((mpmath.mpf("0.5") - 100 - mpmath.mpf(offset)) / 20) * 2**64
    assert first < inside < first + 1
    tail = Probability(first, lambda: more)
    assert rounded_normal(offset, 20.0, -100, tail) == (-100 if more == 0 else -99)
    assert tail.bits == 128


def test_the_error_of_the_inverse_is_far_below_the_guard() -> None:
    """Against 40 digits: what is rounded is off by less than a five-hundredth of the distance at which floats decide."""
    tails = np.append(np.random.default_rng(3).random(1500) / 2.0, 2.0 ** -np.linspace(1.0, 25.0, 500))
    z = torch.special.ndtri(torch.from_numpy(tails)).numpy()
    with mpmath.workdps(40):
        exact = [-mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(tail)) for tail in tails.tolist()]
        error = max(abs(mpmath.mpf(float(a)) - b) for a, b in zip(z, exact, strict=True))
    assert float(error) * 2.0**noise.FINENESS < noise.SURE / 512.0


@pytest.mark.parametrize("x", [-29.0, -8.5, -3.0, -0.1, 0.0, 0.7, 6.0])
def test_the_distribution_function_in_decimals(x: float) -> None:
    with mpmath.workdps(130):
        expected = mpmath.ncdf(mpmath.mpf(x))
        assert abs(mpmath.mpf(str(normal_probability(Decimal(x)))) - expected) < mpmath.mpf(10) ** -110
    assert (normal_probability(Decimal(-31)), normal_probability(Decimal(31))) == (0, 1)


@pytest.mark.parametrize("name", ["torch", "csprng"])
def test_choices_have_their_probabilities(name: str) -> None:
    """Gumbel's are those of the exponential mechanism; Laplace's come from an integral; ties are fair."""
    scores, scale = torch.tensor([0.0, 1.0, 1.0, -2.0], dtype=torch.float64), 1.5
    grid = np.linspace(-60.0, 60.0, 240_001)
    laplace = [stats.laplace(loc=float(score), scale=scale) for score in scores]
    of_laplace = [
        np.trapezoid(law.pdf(grid) * np.prod([other.cdf(grid) for other in laplace if other is not law], 0), grid)
        for law in laplace
    ]
    of_gumbel = torch.softmax(scores / scale, 0).numpy()
    for law, probability in (("gumbel", of_gumbel), ("laplace", np.array(of_laplace))):
        chosen = source_of(name).highest(scores.expand(COUNT, 4), scale, law)
        assert chosen.dtype == torch.int64
        counts = np.bincount(chosen.numpy(), minlength=4)
        assert stats.chisquare(counts, probability / probability.sum() * COUNT).pvalue > LEVEL
        assert stats.chisquare(counts, np.full(4, COUNT / 4)).pvalue < LEVEL


@pytest.mark.parametrize("name", ["torch", "csprng"])
def test_events_happen_with_their_probability(name: str) -> None:
    source = source_of(name)
    for probability in (0.0, 0.03, 0.5, 1.0):
        happened = source.happens((COUNT, 2), probability)
        assert happened.shape == (COUNT, 2)
        assert happened.dtype == torch.bool
        assert stats.binomtest(int(happened.sum()), 2 * COUNT, probability).pvalue > LEVEL


# Noise is never drawn twice


@EACH_SOURCE
def test_the_global_seed_does_nothing(name: str) -> None:
    source = noise_source(name)
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        draws += [DRAWS[name](source), DRAWS[name](noise_source(name))]
    state = torch.get_rng_state()
    DRAWS[name](source)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(not torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda source: pickle.loads(pickle.dumps(source)),
    "nested": lambda source: copy.deepcopy({"learner": [source]})["learner"][0],
}


@pytest.mark.parametrize("duplicate", list(COPIES))
@EACH_SOURCE
def test_a_copy_draws_other_noise(name: str, duplicate: str) -> None:
    source = source_of(name)
    other = COPIES[duplicate](source)
    assert type(other) is type(source)
    assert not other.is_seeded
    assert source.is_seeded == (name == "torch")
    assert not torch.equal(DRAWS[name](source), DRAWS[name](other))


def in_child(program: Callable[[], bytes]) -> bytes:
    """What a program answers in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, program())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read()


@EACH_SOURCE
def test_a_fork_draws_other_noise(name: str) -> None:
    source = source_of(name)

    def program() -> bytes:
        return bytes([source.is_seeded]) + DRAWS[name](source).numpy().tobytes()

    children = [in_child(program) for _ in range(2)] + [in_child(lambda: in_child(program))]
    assert source.is_seeded == (name == "torch")
    answers = [*(answer[1:] for answer in children), DRAWS[name](source).numpy().tobytes()]
    assert [answer[0] for answer in children] == [False] * 3
    assert [len(answer) for answer in answers] == [64] * 4
    assert len(set(answers)) == 4
    # The parent's seed still says what it draws.
    if name == "torch":
        assert answers[3] == DRAWS[name](source_of(name)).numpy().tobytes()


def test_a_plain_generator_is_seen_to_draw_it_twice() -> None:
    generator = np.random.default_rng(0)

    def program() -> bytes:
        return generator.standard_normal(8).tobytes()

    other = copy.deepcopy(generator)
    assert in_child(program) == program() == other.standard_normal(8).tobytes()


# Seeds


def test_a_seed_gives_the_same_numbers_again() -> None:
    def numbers(source: NoiseSource) -> Tensor:
        parts = [source.normal((3,)), source.laplace((3,)), source.gumbel((3,)), source.generalized_gaussian((3,), 4.0)]
        return torch.cat(parts)

    first, second = noise_source("torch", seed=7), noise_source("torch", seed=7)
    assert first.is_seeded
    assert torch.equal(numbers(first), numbers(second))
    assert torch.equal(numbers(noise_source("torch", seed=-1)), numbers(noise_source("torch", seed=2**64 - 1)))
    # torch's own generator reads 32 bits of a seed.
    assert not torch.equal(numbers(noise_source("torch", seed=7)), numbers(noise_source("torch", seed=7 + 2**32)))
    low, high = (torch.Generator().manual_seed(seed) for seed in (7, 7 + 2**32))
    assert torch.equal(torch.rand(9, generator=low), torch.rand(9, generator=high))


def test_children_differ_and_those_of_a_seeded_source_come_again() -> None:
    parents = [noise_source("torch", seed=7) for _ in range(2)]
    families = [[parent.spawn(), parent.spawn(), parent] for parent in parents]
    families[0].append(families[0][0].spawn())
    families[1].append(families[1][0].spawn())
    assert all(source.is_seeded for family in families for source in family)
    draws, again = ([source.normal((8,)) for source in family] for family in families)
    assert all(torch.equal(a, b) for a, b in zip(draws, again, strict=True))
    assert all(not torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])
    # To spawn does not move the parent's own numbers.
    assert torch.equal(draws[2], noise_source("torch", seed=7).normal((8,)))


@EACH_SOURCE
def test_children_without_a_seed(name: str) -> None:
    source = noise_source(name)
    children = [source.spawn(), source.spawn()]
    assert [child.name for child in children] == [name, name]
    assert not any(child.is_seeded for child in children)
    draws = [DRAWS[name](each) for each in (source, *children)]
    assert all(not torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])


@EACH_SOURCE
def test_renewal_drops_the_seed(name: str) -> None:
    source = source_of(name)
    source.renew()
    assert not source.is_seeded
    assert not source.spawn().is_seeded
    assert not torch.equal(DRAWS[name](source), DRAWS[name](source_of(name)))


def test_the_seed_is_not_shown() -> None:
    source = noise_source("torch", seed=271828)
    assert repr(source) == str(source) == "noise_source('torch', seed=...)"
    assert repr(noise_source("torch")) == "noise_source('torch')"
    assert pickle.dumps(source) == pickle.dumps(noise_source("torch"))
    with pytest.raises(ValueError, match=r"^seed: expected None") as error:
        noise_source("csprng", seed=271828)
    assert "271828" not in str(error.value)


# The ends of the range


@pytest.mark.parametrize("word", [b"\x00" * 8, b"\xff" * 8, b"\x00" * 7 + b"\x80", b"\xff" * 7 + b"\x7f"])
def test_no_bytes_give_an_infinite_number(word: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: word * (size // 8))
    source = noise_source("csprng")
    normal, laplace, gumbel = (getattr(source, law)((1,)).item() for law in LAWS)
    # The ends that the docstring states are reached: little-endian, the highest bit says which tail.
    sign = 1.0 if word[7] >= 0x80 else -1.0
    if word[0] == 0:
        assert (normal, laplace) == pytest.approx((sign * 9.16, sign * 44.36), abs=5e-3)
        assert gumbel == pytest.approx(45.05 if sign > 0 else -3.81, abs=5e-3)
        # 2^-64 lies beyond them.
        assert 2 * stats.norm.sf(9.16) < 2.0**-64 < 2 * stats.norm.sf(9.155)
    else:
        assert (normal, laplace) == (0.0, 0.0)
        assert gumbel == pytest.approx(-np.log(np.log(2.0)), rel=1e-12)


def test_inverse_distribution_functions_are_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(0).integers(-(2**63), 2**63, 2000, dtype=np.int64)
    words[::2] >>= np.arange(1000) % 60
    monkeypatch.setattr(os, "urandom", lambda size: words.tobytes())
    source = noise_source("csprng")
    upper, tail = words < 0, ((words & (2**63 - 1)).astype(float) + 0.5) / 2.0**64
    for name, law in LAWS.items():
        expected = np.where(upper, law.isf(tail), law.ppf(tail))
        np.testing.assert_allclose(getattr(source, name)((2000,)).numpy(), expected, rtol=1e-12, atol=1e-14)


# What is refused


def test_a_source_draws_its_own_laws_only() -> None:
    with pytest.raises(ValueError, match="noise_source: expected 'torch' to draw generalized_gaussian, got 'csprng'"):
        noise_source("csprng").generalized_gaussian((2,), 2.0)
    with pytest.raises(ValueError, match="noise_source: expected 'torch' or 'csprng' to draw normal, got 'discrete'"):
        noise_source("discrete").normal((2,))
    for name in ("torch", "csprng"):
        with pytest.raises(ValueError, match="noise_source: expected 'discrete' to draw discrete_normal"):
            noise_source(name).discrete_normal((2,), 3)
    refused: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("add_normal", (np.zeros(2), 1.0)),
        ("highest", (torch.zeros(2), 1.0, "gumbel")),
        ("happens", ((2,), 0.5)),
    )
    for method, arguments in refused:
        with pytest.raises(ValueError, match=f"to draw {method}, got 'discrete'"):
            getattr(noise_source("discrete"), method)(*arguments)


def test_bad_arguments_are_named() -> None:
    source, discrete = noise_source("torch", seed=1), noise_source("discrete")
    refused: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ValueError, "noise_source: ", lambda: noise_source("numpy")),
        (TypeError, "noise_source: ", lambda: noise_source(None)),  # type: ignore[arg-type]
        (TypeError, "seed: ", lambda: noise_source("torch", seed=1.0)),  # type: ignore[arg-type]
        (ValueError, "seed: ", lambda: noise_source("torch", seed=2**64)),
        (ValueError, "seed: ", lambda: noise_source("discrete", seed=1)),
        (TypeError, "shape: ", lambda: source.normal(3)),  # type: ignore[arg-type]
        (ValueError, "shape: ", lambda: noise_source("csprng").gumbel((2, 0))),
        (ValueError, "shape: ", lambda: source.generalized_gaussian((), 2.0)),
        (ValueError, "order: ", lambda: source.generalized_gaussian((3,), 0.5)),
        (ValueError, "order: ", lambda: source.generalized_gaussian((3,), float("nan"))),
        (TypeError, "sigma: ", lambda: discrete.discrete_normal((3,), 2.5)),  # type: ignore[arg-type]
        (ValueError, "sigma: ", lambda: discrete.discrete_normal((3,), 0)),
        (ValueError, "sigma: ", lambda: discrete.discrete_normal((3,), 2**40 + 1)),
    ]
    for kind, message, call in refused:
        with pytest.raises(kind, match=f"^{message}"):
            call()
    # No refused call has moved the numbers.
    assert torch.equal(source.normal((4,)), noise_source("torch", seed=1).normal((4,)))


@EACH_SOURCE
def test_one_number(name: str) -> None:
    source = source_of(name)
    number = source.discrete_normal((), 5) if name == "discrete" else source.normal(())
    assert number.shape == ()
