"""Tests of the noise laws, the linear and the generalized linear bandits."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from tests.learners import round_of
from torchonline import OFUL, LocalGLB, environments
from torchonline.environments import (
    DriftingBandit,
    GaussianNoise,
    GeneralizedLinearBandit,
    LinearBandit,
    Noise,
    Outcome,
    Pareto,
    StudentT,
    TwoPoint,
    VaryingNoiseBandit,
)
from torchonline.environments.simulated import SimulatedBandit
from torchonline.links import Binomial, CustomLink, Gamma, Gaussian, Link, Logistic, Poisson

pytestmark = pytest.mark.fast

CONTINUOUS = [
    GaussianNoise(),
    GaussianNoise(scale=0.3),
    StudentT(2.1),
    StudentT(1.5, scale=2.0),
    StudentT(7.0),
    Pareto(1.5),
    Pareto(1.05, scale=4.0),
    Pareto(3.0),
    Pareto(12.0),
    Pareto(1.5, symmetric=True),
    Pareto(4.0, symmetric=True, scale=0.5),
]
LAWS = [*CONTINUOUS, TwoPoint(0.01), TwoPoint(0.7, scale=3.0)]


def magnitude(noise: Noise) -> list[tuple[stats.rv_continuous, float, float]]:
    """Return the standard law as a mixture of sign * (X - shift), X from scipy."""
    if isinstance(noise, GaussianNoise):
        return [(stats.norm(), 0.0, 1.0)]
    if isinstance(noise, StudentT):
        return [(stats.t(noise.df), 0.0, 1.0)]
    assert isinstance(noise, Pareto)
    law = stats.pareto(noise.index)
    return [(law, 0.0, 1.0), (law, 0.0, -1.0)] if noise.symmetric else [(law, law.mean(), 1.0)]


def cdf(noise: Noise, values: np.ndarray) -> np.ndarray:
    pieces = magnitude(noise)
    total = np.zeros_like(values)
    for law, shift, sign in pieces:
        edge = shift + sign * values / noise.scale
        total += law.cdf(edge) if sign > 0 else law.sf(edge)
    return total / len(pieces)


def moment_by_quadrature(noise: Noise, order: float) -> float:
    """Integrate E|eta|^order; with x = +-e^u, power tails fall exponentially."""
    pieces = magnitude(noise)
    total = 0.0
    for law, shift, _ in pieces:
        for side in (1.0, -1.0):

            def integrand(u: float, law=law, shift=shift, side=side) -> float:
                return math.exp((order + 1.0) * u + float(law.logpdf(shift + side * math.exp(u))))

            # The density of Pareto's law starts at 1, where |X - shift| = shift - 1.
            breaks = [-60.0, math.log(shift - 1.0)] if shift > 1.0 and side < 0 else [-60.0, 0.0, 10.0, 300.0]
            for low, high in pairwise(breaks):
                part, _ = integrate.quad(integrand, low, high, epsabs=1e-12, epsrel=1e-11, limit=500)
                total += part
    return noise.scale * (total / len(pieces)) ** (1.0 / order)


@pytest.mark.parametrize("noise", CONTINUOUS, ids=repr)
@pytest.mark.parametrize("share", [0.3, 0.7, 0.9])
def test_moment_norm_is_the_integral(noise: Noise, share: float) -> None:
    tail = getattr(noise, "df", getattr(noise, "index", math.inf))
    order = share * min(tail, 2.2)
    assert noise.moment_norm(order) == pytest.approx(moment_by_quadrature(noise, order), rel=1e-8)


@pytest.mark.parametrize("index", [2.5, 3.0, 6.0])
def test_moment_norm_of_the_centred_pareto_at_even_orders(index: float) -> None:
    variance, kurtosis = stats.pareto(index).stats("vk")
    assert Pareto(index).moment_norm(2.0) == pytest.approx(variance**0.5, rel=1e-12)
    if index > 4.0:
        assert Pareto(index).moment_norm(4.0) == pytest.approx(((kurtosis + 3.0) * variance**2) ** 0.25, rel=1e-12)


@pytest.mark.parametrize("index", [1.001, 1.05, 1.5, 4.0, 30.0])
def test_moment_norm_of_the_centred_pareto_at_order_one(index: float) -> None:
    # Half of E|X - mean| lies above the mean, where it is the integral of the tail.
    mean = index / (index - 1.0)
    assert Pareto(index).moment_norm(1.0) == pytest.approx(2.0 * mean ** (1.0 - index) / (index - 1.0), rel=1e-12)


@pytest.mark.parametrize("order", [0.5, 1.0, 1.4, 2.0, 40.0])
def test_moment_norm_of_two_points_is_a_sum(order: float) -> None:
    q = 0.03
    high, low = math.sqrt((1.0 - q) / q), math.sqrt(q / (1.0 - q))
    expected = (q * high**order + (1.0 - q) * low**order) ** (1.0 / order)
    assert TwoPoint(q, scale=2.0).moment_norm(order) == pytest.approx(2.0 * expected, rel=1e-12)


def test_moment_norms_that_papers_quote() -> None:
    # Wang et al. (ICML 2025), section 6, give 1.31 for the first law.
    assert StudentT(2.1).moment_norm(1.99) == pytest.approx(4.388, abs=5e-4)
    assert StudentT(2.1).moment_norm(2.0) == pytest.approx(math.sqrt(21.0), rel=1e-12)
    assert GaussianNoise(scale=3.0).moment_norm(2) == pytest.approx(3.0, rel=1e-12)
    assert GaussianNoise().moment_norm(1) == pytest.approx(math.sqrt(2.0 / math.pi), rel=1e-12)


@pytest.mark.parametrize("noise", [StudentT(1.5), Pareto(1.5), Pareto(1.5, symmetric=True)], ids=repr)
def test_moments_that_do_not_exist_are_infinite(noise: Noise) -> None:
    assert noise.moment_norm(1.5) == math.inf
    assert noise.moment_norm(2.0) == math.inf
    assert noise.moment_norm(1.49) < math.inf


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_samples_are_float64_of_the_shape_and_of_the_generator(noise: Noise) -> None:
    before = torch.get_rng_state()
    draws = [noise.sample((3, 50), torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert draws[0].shape == (3, 50)
    assert draws[0].dtype == torch.float64
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.isfinite(draws[0]).all()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("noise", CONTINUOUS, ids=repr)
def test_samples_follow_the_law_and_no_law_of_another_scale(noise: Noise) -> None:
    sample = noise.sample((20000,), torch.Generator().manual_seed(7)).numpy()
    distance = {factor: stats.kstest(sample * factor, lambda x: cdf(noise, x)).pvalue for factor in (1.0, 1.5, 2 / 3)}
    assert distance[1.0] > 1e-3
    assert distance[1.5] < 1e-9
    assert distance[2 / 3] < 1e-9


@pytest.mark.parametrize("noise", [TwoPoint(0.01), TwoPoint(0.7, scale=3.0)], ids=repr)
def test_two_points_have_their_probability_and_mean_zero(noise: TwoPoint) -> None:
    sample = noise.sample((100_000,), torch.Generator().manual_seed(3))
    q = noise.probability
    assert len(sample.unique()) == 2
    jumps = int((sample > 0).sum())
    assert stats.binomtest(jumps, len(sample), q).pvalue > 1e-3
    assert stats.binomtest(jumps, len(sample), 1.5 * q if q < 0.5 else q / 1.5).pvalue < 1e-9
    high, low = sample.max().item(), sample.min().item()
    assert q * high + (1.0 - q) * low == pytest.approx(0.0, abs=1e-12)
    assert q * high**2 + (1.0 - q) * low**2 == pytest.approx(noise.scale**2, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "error", "name"),
    [
        (lambda: GaussianNoise(scale=0.0), ValueError, "scale"),
        (lambda: GaussianNoise(scale="1"), TypeError, "scale"),
        (lambda: StudentT(1.0), ValueError, "df"),
        (lambda: StudentT(math.nan), ValueError, "df"),
        (lambda: StudentT(2.1, scale=-1.0), ValueError, "scale"),
        (lambda: Pareto(0.9), ValueError, "index"),
        (lambda: TwoPoint(1.0), ValueError, "probability"),
        (lambda: TwoPoint(0.1).moment_norm(0.0), ValueError, "order"),
        (lambda: LinearBandit(0, 5, noise=GaussianNoise()), ValueError, "dim"),
        (lambda: LinearBandit(2, 0, noise=GaussianNoise()), ValueError, "arms"),
        (lambda: LinearBandit(2, 5, noise=1.0), TypeError, "noise"),
        (lambda: LinearBandit(2, 5, noise=GaussianNoise(), redraw="no"), TypeError, "redraw"),
        (lambda: LinearBandit(2, 5, noise=GaussianNoise(), theta_norm=0.0), ValueError, "theta_norm"),
        (lambda: LinearBandit(2, 5, noise=GaussianNoise(), batch_shape=(0,)), ValueError, "batch_shape"),
        (lambda: LinearBandit(2, 5, noise=GaussianNoise(), seed=1.0), TypeError, "seed"),
        (lambda: LinearBandit(2, 5, noise=GaussianNoise(), seed=2**64), ValueError, "seed"),
        (lambda: LinearBandit(2, 5, noise=GaussianNoise(), dtype=torch.float16), ValueError, "dtype"),
        (lambda: LinearBandit(2, 5, noise=GaussianNoise(), dtype="float64"), TypeError, "dtype"),
    ],
)
def test_bad_options_are_refused_by_name(make, error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=f"^{name}: expected"):
        make()


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (torch.zeros(4, dtype=torch.int32), TypeError),
        ([0, 0, 0, 0], TypeError),
        (torch.zeros(3, dtype=torch.int64), ValueError),
        (torch.tensor([0, 1, 2, 5]), ValueError),
        (torch.tensor([0, -1, 2, 4]), ValueError),
    ],
)
def test_a_bad_pull_is_refused_and_leaves_the_round_as_it_was(index, error: type[Exception]) -> None:
    environment, same = (LinearBandit(3, 5, noise=GaussianNoise(), redraw=True, batch_shape=(4,)) for _ in range(2))
    with pytest.raises(error, match=r"^index: expected"):
        environment.pull(index)
    good = torch.tensor([0, 1, 2, 4])
    for ours, theirs in zip(environment.pull(good), same.pull(good), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("batch_shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("redraw", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_round_is_what_it_says(batch_shape: tuple[int, ...], redraw: bool, dtype: torch.dtype) -> None:
    environment = LinearBandit(
        3, 7, noise=GaussianNoise(scale=1e-9), theta_norm=2.0, redraw=redraw, batch_shape=batch_shape, dtype=dtype
    )
    torch.testing.assert_close(environment.theta.norm(dim=-1), torch.full(batch_shape, 2.0, dtype=dtype))
    generator = torch.Generator().manual_seed(0)
    previous = environment.arms()
    for _ in range(5):
        arms = environment.arms()
        assert environment.arms() is arms
        assert arms.shape == (*batch_shape, 7, 3)
        torch.testing.assert_close(arms.norm(dim=-1), torch.ones((*batch_shape, 7), dtype=dtype))
        index = torch.randint(7, batch_shape, generator=generator)
        means = torch.einsum("...kd,...d->...k", arms, environment.theta)
        outcome = environment.pull(index)
        assert isinstance(outcome, Outcome)
        x, reward, regret = outcome
        chosen = torch.nn.functional.one_hot(index, 7).to(dtype)
        torch.testing.assert_close(x, torch.einsum("...k,...kd->...d", chosen, arms))
        torch.testing.assert_close(reward, (chosen * means).sum(-1))
        torch.testing.assert_close(regret, means.amax(-1) - (chosen * means).sum(-1))
        assert {x.dtype, reward.dtype, regret.dtype} == {dtype}
        assert torch.equal(environment.arms(), previous) is not redraw
        previous = environment.arms()
    assert environment.pull(means.argmax(-1) if not redraw else index).regret.min() >= 0.0


@pytest.mark.parametrize("redraw", [False, True])
def test_what_is_pulled_changes_neither_noise_nor_arms(redraw: bool) -> None:
    first, second, other = (
        LinearBandit(2, 4, noise=StudentT(2.1), redraw=redraw, batch_shape=(6,), seed=seed) for seed in (5, 5, 6)
    )
    before = torch.get_rng_state()
    assert torch.equal(first.theta, second.theta)
    assert not torch.equal(first.theta, other.theta)
    for t in range(20):
        assert torch.equal(first.arms(), second.arms())
        noise = []
        for environment, k in ((first, t % 4), (second, 3 - t % 4)):
            x, reward, _ = environment.pull(torch.full((6,), k))
            noise.append(reward - (x * environment.theta).sum(-1))
        torch.testing.assert_close(noise[0], noise[1], rtol=1e-9, atol=1e-12)
    assert torch.equal(torch.get_rng_state(), before)


def test_arms_and_parameters_are_uniform_on_the_sphere_and_rewards_follow_the_noise() -> None:
    environment = LinearBandit(3, 2, noise=Pareto(1.5, scale=2.0), batch_shape=(4000,), seed=11)
    for directions in (environment.theta, environment.arms()[:, 0], environment.arms()[:, 1]):
        # By Archimedes, a coordinate of a uniform point on the sphere in three dimensions is uniform on [-1, 1].
        for coordinate in directions.T:
            assert stats.kstest(coordinate.numpy(), stats.uniform(-1.0, 2.0).cdf).pvalue > 1e-3
    x, reward, _ = environment.pull(torch.zeros(4000, dtype=torch.int64))
    noise = (reward - (x * environment.theta).sum(-1)).numpy()
    assert stats.kstest(noise, lambda values: cdf(environment.noise, values)).pvalue > 1e-3
    assert stats.kstest(noise, lambda values: cdf(Pareto(1.5, scale=3.0), values)).pvalue < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("batch_shape", [(), (20,)])
@pytest.mark.parametrize("redraw", [False, True])
def test_a_learner_beats_uniform_play(batch_shape: tuple[int, ...], redraw: bool) -> None:
    regret = {}
    for name in ("oful", "uniform"):
        environment = LinearBandit(
            2, 20, noise=GaussianNoise(scale=0.1), redraw=redraw, batch_shape=batch_shape, seed=1
        )
        policy = OFUL(2, noise_scale=0.1, batch_shape=batch_shape)
        generator = torch.Generator().manual_seed(0)
        total = torch.zeros(batch_shape, dtype=torch.float64)
        for _ in range(300):
            uniform = torch.randint(20, batch_shape, generator=generator)
            index = policy.select(environment.arms()) if name == "oful" else uniform
            x, reward, lost = environment.pull(index)
            policy.step(*round_of(policy, x, reward))
            total += lost
        regret[name] = total
    assert (regret["oful"] < 0.15 * regret["uniform"]).all()


def test_a_drifting_parameter_turns_in_a_plane() -> None:
    """Check the angle, the norm and the rounds of the turns."""
    environment = DriftingBandit(
        5, 7, noise=GaussianNoise(), angle=0.3, every=4, theta_norm=2.0, batch_shape=(3,), seed=1
    )
    before = environment.theta
    for t in range(1, 41):
        arms = environment.arms()
        means = arms @ environment.theta[..., None]
        index = torch.full((3,), t % 7)
        outcome = environment.pull(index)
        torch.testing.assert_close(outcome.regret, (means.amax(-2) - means[:, t % 7]).squeeze(-1))
        assert torch.equal(environment.arms(), arms)
        cosine = (environment.theta * before).sum(-1) / 4.0
        torch.testing.assert_close(cosine, torch.full_like(cosine, math.cos(0.3 * (t // 4))))
        torch.testing.assert_close(environment.theta.norm(dim=-1), torch.full((3,), 2.0, dtype=torch.float64))


def test_a_drifting_bandit_starts_as_a_linear_one() -> None:
    """One seed gives the same start, and redrawn arms do not stop the turns."""
    options = {"noise": GaussianNoise(), "batch_shape": (2,), "seed": 3}
    still, drifting = LinearBandit(3, 5, **options), DriftingBandit(3, 5, angle=1.0, **options)
    assert torch.equal(still.theta, drifting.theta)
    assert torch.equal(still.arms(), drifting.arms())
    redrawn = DriftingBandit(3, 5, angle=1.0, redraw=True, **options)
    arms = redrawn.arms()
    redrawn.pull(torch.zeros(2, dtype=torch.int64))
    assert not torch.equal(redrawn.arms(), arms)
    with pytest.raises(ValueError, match="dim: expected at least 2"):
        DriftingBandit(1, 5, angle=1.0, noise=GaussianNoise())
    with pytest.raises(ValueError, match="angle: expected a finite number"):
        DriftingBandit(2, 5, angle=math.nan, noise=GaussianNoise())
    with pytest.raises(ValueError, match="every: expected an integer above 0"):
        DriftingBandit(2, 5, angle=1.0, every=0, noise=GaussianNoise())


def two_scales(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.where(torch.rand(shape, generator=generator, dtype=torch.float64) < 0.9, 0.03125, 1.0)


def silence(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.zeros(shape)


@pytest.mark.parametrize("batch_shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("redraw", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_noise_of_varying_scale_is_that_of_a_linear_bandit_times_the_scale(batch_shape, redraw: bool, dtype) -> None:
    options = {"noise": StudentT(2.1), "redraw": redraw, "batch_shape": batch_shape, "seed": 5, "dtype": dtype}
    plain, varying = LinearBandit(3, 7, **options), VaryingNoiseBandit(3, 7, noise_scales=two_scales, **options)
    same, quiet = (VaryingNoiseBandit(3, 7, noise_scales=law, **options) for law in (two_scales, silence))
    before, generator = torch.get_rng_state(), torch.Generator().manual_seed(0)
    for _ in range(30):
        told, index = varying.noise_scale, torch.randint(7, batch_shape, generator=generator)
        assert told.shape == batch_shape
        assert told.dtype == dtype
        assert torch.equal(varying.arms(), plain.arms())
        assert varying.noise_scale is told  # looking changes nothing
        assert torch.equal(told, same.noise_scale)
        same.pull(6 - index)  # nor does the choice
        x, reward, regret = varying.pull(index)
        standard, silent = plain.pull(index), quiet.pull(index)
        assert {reward.dtype, regret.dtype} == {dtype}
        assert torch.equal(regret, standard.regret)
        torch.testing.assert_close(silent.reward, (x * varying.theta).sum(-1))
        rounding = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-5}
        torch.testing.assert_close(reward - silent.reward, told * (standard.reward - silent.reward), **rounding)
    assert torch.equal(torch.get_rng_state(), before)
    assert varying.noise_scale is not told


def test_scales_follow_their_law_anew_in_each_round_and_trial() -> None:
    environment = VaryingNoiseBandit(2, 3, noise=GaussianNoise(), noise_scales=two_scales, batch_shape=(50,), seed=1)
    other = VaryingNoiseBandit(2, 3, noise=GaussianNoise(), noise_scales=two_scales, batch_shape=(50,), seed=2)
    seen = []
    for _ in range(100):
        seen.append(environment.noise_scale)
        environment.pull(torch.zeros(50, dtype=torch.int64))
    scales = torch.stack(seen)
    assert set(scales.unique().tolist()) == {0.03125, 1.0}
    assert stats.binomtest(int((scales == 1.0).sum()), scales.numel(), 0.1).pvalue > 1e-3
    assert not torch.equal(seen[0], other.noise_scale)


@pytest.mark.parametrize(
    ("law", "error"),
    [
        (1.0, TypeError),
        (lambda shape, _: 1.0, TypeError),
        (lambda shape, _: torch.ones(3), ValueError),
        (lambda shape, _: -torch.ones(shape), ValueError),
        (lambda shape, _: torch.full(shape, math.nan), ValueError),
        (lambda shape, _: torch.full(shape, math.inf), ValueError),
    ],
)
def test_a_law_of_scales_that_is_none_is_refused(law, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^noise_scales: expected"):
        VaryingNoiseBandit(2, 3, noise=GaussianNoise(), noise_scales=law, batch_shape=(2,))


def test_a_learner_that_is_told_each_scale_has_less_regret() -> None:
    totals = []
    for told in (True, False):
        environment = VaryingNoiseBandit(
            2, 10, noise=GaussianNoise(), noise_scales=two_scales, redraw=True, batch_shape=(10,), seed=3
        )
        policy, total = OFUL(2, noise_scale=1.0, batch_shape=(10,)), torch.zeros(10)
        for _ in range(200):
            scale = environment.noise_scale if told else None
            x, reward, regret = environment.pull(policy.select(environment.arms()))
            policy.step(*round_of(policy, x, reward), noise_scale=scale)
            total += regret
        totals.append(total)
    assert (totals[0] < 0.5 * totals[1]).all()


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (GaussianNoise(), "GaussianNoise()"),
        (StudentT(2.1), "StudentT(df=2.1)"),
        (StudentT(2.1, scale=0.5), "StudentT(df=2.1, scale=0.5)"),
        (Pareto(1.5, symmetric=True), "Pareto(index=1.5, symmetric=True)"),
        (TwoPoint(0.01, scale=1.0), "TwoPoint(probability=0.01)"),
        (LinearBandit(3, 10, noise=StudentT(2.1)), "LinearBandit(dim=3, arms=10, noise=StudentT(df=2.1))"),
        (
            VaryingNoiseBandit(2, 5, noise=GaussianNoise(), noise_scales=two_scales, seed=7),
            "VaryingNoiseBandit(dim=2, arms=5, noise=GaussianNoise(), noise_scales=two_scales, seed=7)",
        ),
        (
            DriftingBandit(2, 5, noise=GaussianNoise(), angle=0.25, batch_shape=(4,), seed=7, dtype=torch.float32),
            "DriftingBandit(dim=2, arms=5, noise=GaussianNoise(), angle=0.25, batch_shape=(4,), seed=7, "
            "dtype=torch.float32)",
        ),
        (
            GeneralizedLinearBandit(2, 3, link=Logistic(), rewards=torch.special.expit, theta_norm=3.0, redraw=True),
            "GeneralizedLinearBandit(dim=2, arms=3, link=Logistic(), rewards=special_expit, theta_norm=3, redraw=True)",
        ),
    ],
)
def test_repr_says_what_was_asked_for(made: object, text: str) -> None:
    assert repr(made) == text


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (LinearBandit, {"noise": GaussianNoise()}),
        (DriftingBandit, {"noise": GaussianNoise(), "angle": 0.1}),
        (GeneralizedLinearBandit, {"link": Logistic()}),
    ],
)
def test_an_unknown_option_is_refused_by_the_class_that_was_called(cls, options: dict) -> None:
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\(\) got an unexpected keyword argument 'sed'"):
        cls(2, 3, sed=1, **options)
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\(\) missing a required argument: 'arms'"):
        cls(2, **options)


def test_a_bandit_of_ones_own_has_the_signature_of_its_constructor() -> None:
    class Mine(LinearBandit):
        def __init__(self, dim: int, arms: int, flip: bool) -> None:
            self.flip = flip
            super().__init__(dim, arms, noise=GaussianNoise())

    class Plain(SimulatedBandit):
        def _mean(self, predictor: torch.Tensor) -> torch.Tensor:
            return predictor

    class Tagged:
        def __init_subclass__(cls, tag: str) -> None:
            cls.tag = tag

    class Mixed(LinearBandit, Tagged, tag="a"):
        pass

    assert repr(Mine(2, 3, True)) == "Mine(dim=2, arms=3, flip=True)"
    assert repr(copy.deepcopy(Plain(2, 3, seed=4))) == "Plain(dim=2, arms=3, seed=4)"
    mixed = Mixed(2, 3, noise=TwoPoint(0.5))
    assert repr(mixed) == "Mixed(dim=2, arms=3, noise=TwoPoint(probability=0.5))"
    mixed.noise = TwoPoint(0.2)
    assert repr(mixed) == "Mixed(dim=2, arms=3, noise=TwoPoint(probability=0.2))"


def test_the_former_name_of_gaussian_noise_warns() -> None:
    with pytest.warns(DeprecationWarning, match="Gaussian is now GaussianNoise"):
        assert environments.Gaussian is GaussianNoise
    assert "Gaussian" not in environments.__all__
    with pytest.raises(AttributeError, match="no attribute 'Laplace'"):
        _ = environments.Laplace


def cube(z: torch.Tensor) -> torch.Tensor:
    return 0.25 * z**4 + 0.5 * z**2


def cube_mean(z: torch.Tensor) -> torch.Tensor:
    return z**3 + z


def cube_slope(z: torch.Tensor) -> torch.Tensor:
    return 3.0 * z**2 + 1.0


def no_rewards(z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.zeros_like(z)


def fractions(z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw from Beta(3 p, 3 (1 - p)) by a ratio of gamma draws."""
    p = torch.sigmoid(z.double())
    heads, tails = (torch._standard_gamma(3.0 * share, generator=generator) for share in (p, 1.0 - p))
    return heads / (heads + tails)


# A link, a law of rewards if the link has none, and formulas of the mean, the slope and the variance of a reward.
LINKS = [
    (Gaussian(0.5), None, lambda z: z, lambda z: 1.0 + 0.0 * z, lambda z: 0.25 + 0.0 * z),
    (Logistic(), None, stats.logistic.cdf, stats.logistic.pdf, stats.logistic.pdf),
    (Binomial(4), None, lambda z: 4 * stats.logistic.cdf(z), lambda z: 4 * stats.logistic.pdf(z), None),
    (Poisson(), None, np.exp, np.exp, np.exp),
    (Gamma(4.0, shape=2.0), None, lambda z: 1 / (4 - z), lambda z: (4 - z) ** -2.0, lambda z: 0.5 * (4 - z) ** -2.0),
    (CustomLink(cube, cube_mean, cube_slope, R=2.0), no_rewards, lambda z: z**3 + z, lambda z: 3 * z**2 + 1, None),
]


@pytest.mark.parametrize(("link", "law", "mean", "slope", "_"), LINKS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("redraw", [False, True])
def test_a_generalized_round_is_what_it_says(link: Link, law, mean, slope, _, redraw: bool) -> None:
    environment = GeneralizedLinearBandit(
        3, 7, link=link, rewards=law, theta_norm=2.5, redraw=redraw, batch_shape=(2, 3)
    )
    theta = environment.theta.numpy()
    np.testing.assert_allclose(np.linalg.norm(theta, axis=-1), 2.5)
    best_slopes = []
    for t in range(5):
        arms = environment.arms()
        assert environment.arms() is arms
        assert arms.shape == (2, 3, 7, 3)
        assert arms.norm(dim=-1).max() <= 1.0 + 1e-12
        z = np.einsum("...kd,...d->...k", arms.numpy(), theta)
        best_slopes.append(slope(z.max(-1)))
        np.testing.assert_allclose(environment.kappa_star(), 1.0 / np.mean(best_slopes, 0), rtol=1e-10)
        index = torch.from_numpy(z.argmax(-1)) if t == 4 else torch.full((2, 3), t)
        x, reward, regret = environment.pull(index)
        assert torch.equal(x, torch.take_along_dim(arms, index[..., None, None], -2).squeeze(-2))
        chosen = np.take_along_axis(z, index.numpy()[..., None], -1)[..., 0]
        np.testing.assert_allclose(regret, mean(z.max(-1)) - mean(chosen), rtol=1e-10, atol=1e-12)
        if t == 4:
            assert (regret == 0.0).all()
        assert torch.equal(link.possible(reward), reward)
        assert torch.equal(environment.arms(), arms) is not redraw
    # The slope is least at an end of the range. The cubic link is the exception: its minimum is 1 at 0, found on a grid.
    least = 1.0 if law is no_rewards else min(slope(np.array(-2.5)), slope(np.array(2.5)))
    assert environment.kappa() == pytest.approx(1.0 / least, rel=1e-3 if law is no_rewards else 1e-10)


@pytest.mark.parametrize(("link", "law", "mean", "slope", "variance"), LINKS, ids=lambda value: type(value).__name__)
def test_rewards_have_the_mean_and_variance_of_the_link(link: Link, law, mean, slope, variance) -> None:
    """Standardised rewards of 20,000 trials agree within 4.5 standard errors."""
    count = 20000
    environment = GeneralizedLinearBandit(2, 1, link=link, rewards=law, theta_norm=2.0, batch_shape=(count,), seed=4)
    x, reward, regret = environment.pull(torch.zeros(count, dtype=torch.int64))
    assert (regret == 0.0).all()
    z = (x * environment.theta).sum(-1).numpy()
    variance = slope if variance is None else variance
    errors = (reward.numpy() - mean(z)) / np.sqrt(variance(z))
    if law is no_rewards:
        assert (reward == 0.0).all()
        return
    assert abs(errors.mean()) < 4.5 / math.sqrt(count)
    assert abs((errors**2).mean() - 1.0) < 4.5 * (errors**2).std() / math.sqrt(count)
    assert abs((reward.numpy() - mean(z + 0.2)).mean()) > 4.5 * reward.std() / math.sqrt(count)


def test_fractional_rewards_have_the_mean_of_the_link_and_less_variance() -> None:
    count = 20000
    environment = GeneralizedLinearBandit(
        2, 1, link=Logistic(), rewards=fractions, batch_shape=(count,), theta_norm=3.0
    )
    x, reward, _ = environment.pull(torch.zeros(count, dtype=torch.int64))
    p = torch.sigmoid((x * environment.theta).sum(-1))
    assert ((reward > 0.0) & (reward < 1.0)).float().mean() > 0.9
    errors = (reward - p) / (p * (1.0 - p)).sqrt()
    assert abs(errors.mean()) < 4.5 * 0.5 / math.sqrt(count)
    assert float(errors.square().mean()) == pytest.approx(0.25, abs=0.02)


def test_arms_are_uniform_in_the_ball() -> None:
    environment = GeneralizedLinearBandit(2, 5, link=Logistic(), batch_shape=(1000,), seed=2)
    for arms in (environment.arms()[:, 0], environment.arms()[:, 4]):
        assert stats.kstest(arms.norm(dim=-1).numpy() ** 2, stats.uniform.cdf).pvalue > 1e-3
        angle = torch.atan2(arms[:, 1], arms[:, 0]).numpy()
        assert stats.kstest(angle, stats.uniform(-math.pi, 2.0 * math.pi).cdf).pvalue > 1e-3
    assert not torch.equal(environment.arms()[:, 0], environment.arms()[:, 4])


@pytest.mark.parametrize("link", [Logistic(), Poisson(), Gamma(4.0)], ids=lambda link: type(link).__name__)
def test_what_is_pulled_changes_no_arms_of_a_generalized_bandit(link: Link) -> None:
    """Poisson and gamma draws take a random number of random numbers."""
    first, second, other = (
        GeneralizedLinearBandit(2, 4, link=link, theta_norm=3.0, redraw=True, batch_shape=(6,), seed=seed)
        for seed in (5, 5, 6)
    )
    before = torch.get_rng_state()
    assert torch.equal(first.theta, second.theta)
    assert not torch.equal(first.theta, other.theta)
    for t in range(20):
        assert torch.equal(first.arms(), second.arms())
        rewards = [
            environment.pull(torch.full((6,), k)).reward for environment, k in ((first, t % 4), (second, 3 - t % 4))
        ]
    assert not torch.equal(*rewards)
    assert torch.equal(first.kappa_star(), second.kappa_star())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"link": "logistic"}, TypeError, "link: expected a torchonline.links.Link, got str"),
        ({"theta_norm": -1.0}, ValueError, "theta_norm: expected a number above 0"),
        ({"link": Gamma(2.0), "theta_norm": 2.0}, ValueError, "theta_norm: expected below 2, the reach of Gamma"),
        ({"link": Poisson(), "theta_norm": 36.0}, ValueError, "theta_norm: expected below 35, the reach of Poisson"),
        ({"link": LINKS[-1][0]}, ValueError, "rewards: expected a law, since CustomLink has none"),
        ({"rewards": 1.0}, TypeError, "rewards: expected a function of z and a generator, got float"),
        ({"redraw": 1}, TypeError, "redraw: expected True or False, got int"),
        ({"seed": None}, TypeError, "seed: expected an integer, got NoneType"),
        ({"dtype": torch.int64}, ValueError, "dtype: expected"),
    ],
)
def test_bad_options_of_a_generalized_bandit_are_refused_by_name(options: dict, error, said: str) -> None:
    with pytest.raises(error, match=f"^{said}"):
        GeneralizedLinearBandit(2, 3, **({"link": Logistic()} | options))


@pytest.mark.parametrize(("law", "error"), [(lambda z, _: 1.0, TypeError), (lambda z, _: torch.zeros(3), ValueError)])
def test_a_law_that_is_none_is_refused_and_leaves_the_round_as_it_was(law, error: type[Exception]) -> None:
    environment = GeneralizedLinearBandit(2, 3, link=Logistic(), rewards=law, redraw=True, batch_shape=(2,))
    arms = environment.arms()
    with pytest.raises(error, match=r"^rewards: expected"):
        environment.pull(torch.tensor([0, 1]))
    assert environment.arms() is arms


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_generalized_learner_beats_uniform_play(dtype: torch.dtype) -> None:
    environment = GeneralizedLinearBandit(2, 20, link=Logistic(), theta_norm=5.0, batch_shape=(20,), dtype=dtype)
    policy = LocalGLB(2, theta_bound=5.0, batch_shape=(20,), dtype=dtype)
    played, uniform = torch.zeros(20), torch.zeros(20)
    for t in range(300):
        for total, index in ((played, policy.select(environment.arms())), (uniform, torch.full((20,), t % 20))):
            x, reward, regret = environment.pull(index)
            assert {x.dtype, reward.dtype, regret.dtype} == {dtype}
            total += regret
            if total is played:
                policy.step(*round_of(policy, x, reward))
    assert (played < 0.3 * uniform).all()
