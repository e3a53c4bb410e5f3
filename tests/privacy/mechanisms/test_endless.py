"""Prefix sums without a horizon: the noise is that of the matrix, it is enough for ever, and integers bound the rounding."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.private_tools import KnownNoise
from tests.reference.endless import encoder, noisy_sums
from torchonline import DPHDB, DPPOFW, DPTOFW
from torchonline.baselines import DPFTRL, DPUCB, FLIPHAT, LocalMD, NoisySFW
from torchonline.privacy import prefix_sum
from torchonline.privacy.calibration import gaussian_epsilon, gaussian_mu
from torchonline.privacy.clipping import MARGIN
from torchonline.privacy.learners.clock import NO_END
from torchonline.privacy.mechanisms import endless
from torchonline.privacy.mechanisms.blt import trace_lower_bound
from torchonline.privacy.mechanisms.endless import DECAY, LARGEST, PERIOD, WEIGHT, EndlessBLT
from torchonline.privacy.noise import NoiseSource, noise_source

pytestmark = pytest.mark.fast

PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-3}
LAM, W = np.array(DECAY), np.array(WEIGHT)


def mechanism(source: NoiseSource | None = None, dim: int = 3, **options: Any) -> EndlessBLT:
    told: dict[str, Any] = {"sensitivity": 1.0, "noise_scale": 2.0, "source": source or noise_source("torch")}
    return EndlessBLT(NO_END, dim=dim, **(told | options))


def squared_norm() -> float:
    """Of an infinite column, by exact fractions."""
    lam, w = list(map(Fraction, DECAY)), list(map(Fraction, WEIGHT))
    return float(1 + sum(w[i] * w[j] / (1 - lam[i] * lam[j]) for i in range(len(w)) for j in range(len(w))))


@pytest.mark.parametrize("period", [PERIOD, 50])
@pytest.mark.parametrize("arrays", [False, True])
def test_the_noise_is_that_of_the_inverse_encoder(period: int, arrays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "PERIOD", period)
    generator = torch.Generator().manual_seed(0)
    summands, noise = (torch.randn(120, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    made = mechanism(KnownNoise(iter(noise)))
    state: dict[str, Any] = made.initial_state(3)
    if arrays:
        state = {name: value.numpy() for name, value in state.items()}
    seen = [
        torch.as_tensor(made.add(state, summand.numpy() if arrays else summand, step)).clone()
        for step, summand in enumerate(summands, 1)
    ]
    expected = noisy_sums(summands.numpy(), 2.0 * noise.numpy(), LAM, W, period)
    np.testing.assert_allclose(torch.stack(seen).numpy(), expected, rtol=1e-9, atol=1e-9)


def test_the_noise_is_enough_for_ever_and_two_thirds_of_it_is_not() -> None:
    made = prefix_sum("blt", None, (3,), clip=0.5, **PROMISE)
    mu = math.sqrt(squared_norm()) / made.noise.noise_scale
    assert 0.999 < gaussian_epsilon(mu, 1e-3) <= 1.0
    assert gaussian_epsilon(1.5 * mu, 1e-3) > 1.2
    spent = [made.ledger_after(steps).epsilon(1e-3) for steps in (1, 2, 10, 10**3, 10**6, 10**12, NO_END)]
    assert spent == sorted(spent)
    assert 0.999 < spent[-1] <= 1.0
    for steps in (1, 2, 17, 300):
        column = np.linalg.norm(encoder(LAM, W, steps, PERIOD)[:, 0])
        shift = (1.0 + MARGIN) * float(column) / made.noise.noise_scale
        assert math.isclose(made.ledger_after(steps).epsilon(1e-3), gaussian_epsilon(shift, 1e-3), rel_tol=1e-3)


def test_several_participations_are_enough_noise() -> None:
    made = prefix_sum("blt", None, (3,), clip=0.5, participations=3, min_separation=20, **PROMISE)
    for steps in (1, 20, 21, 45, 300):
        columns = encoder(LAM, W, steps, PERIOD)[:, [start for start in (0, 20, 40) if start < steps]]
        assert math.isclose(made.noise.person_norm(steps), float(np.linalg.norm(columns.sum(1))), rel_tol=1e-12)
    far = encoder(LAM, W, 3000, PERIOD)[:, [0, 20, 40]].sum(1)
    assert made.noise.person_norm(NO_END) > np.linalg.norm(far)
    assert made.noise.moved(NO_END) / made.noise.noise_scale <= gaussian_mu(1.0, 1e-3)
    once = prefix_sum("blt", None, (3,), clip=0.5, **PROMISE)
    assert made.noise.noise_scale > 1.5 * once.noise.noise_scale


class Scripted(NoiseSource):
    """A source that releases given values, whatever the rows, which it remembers."""

    name = "scripted"

    def __init__(self, values: Tensor) -> None:
        self.values = iter(values)
        self.rows: list[Tensor] = []

    def add_normal(self, values: Any, scale: float) -> Any:
        self.rows.append(torch.as_tensor(values).clone())
        return next(self.values)


@pytest.mark.parametrize("size", [2.0, 1e3, 1e12], ids=["noise", "beyond the memory", "far beyond it"])
def test_rows_of_neighbours_differ_by_what_is_booked(size: float) -> None:
    """If both worlds release the same, whatever that is: the memory is clipped, and clipping brings worlds no further apart."""
    generator = torch.Generator().manual_seed(1)
    n = 3000
    summands = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    releases = size * torch.randn(n, 3, generator=generator, dtype=torch.float64)
    rows = []
    for first in (0.5, -0.5):
        source = Scripted(releases)
        made = mechanism(source, longest=10.0)
        state = made.initial_state(3)
        for step in range(1, n + 1):
            summand = torch.tensor([first, 0.0, 0.0]).double() if step == 1 else summands[step - 1]
            made.add(state, summand, step)
        assert int(state["secret_memory"].abs().max()) <= LARGEST
        rows.append(torch.stack(source.rows))
    moved = float((rows[0] - rows[1]).norm())
    assert moved <= made.moved(n)
    if size == 2.0:
        assert moved > 0.999 * made.column_norm(n)


def test_a_decay_brings_integers_no_further_apart_than_one_unit_a_step() -> None:
    """And never further apart than they were, wherever they are."""
    generator = np.random.default_rng(2)
    for shift in endless.SHIFTS:
        decay = 1.0 - 2.0**-shift
        low = generator.integers(-(2**60), 2**60, 20_000)
        gap = np.floor(2.0 ** generator.uniform(0.0, 50.0, 20_000)).astype(np.int64)
        high = low + gap
        for step in range(1, 6):
            low, high = low - (low >> shift), high - (high >> shift)
            assert bool(((high - low >= 0) & (high - low <= gap)).all())
            assert bool((high - low <= np.ceil(decay**step * gap) + step + 1e-9 * gap).all())


def test_the_memory_starts_again_after_a_period() -> None:
    made = mechanism()
    state = made.initial_state(3)
    for step in (1, 2, PERIOD - 1):
        made.add(state, torch.ones(3).double(), step)
        assert bool(state["secret_memory"].any())
    made.add(state, torch.ones(3).double(), PERIOD)
    assert not bool(state["secret_memory"].any())
    with pytest.raises(ValueError, match="n: expected at most"):
        made.errors(PERIOD + 1)


def test_the_noise_is_at_most_1_4_times_the_bound_for_any_number_of_steps() -> None:
    made, norm = mechanism(), math.sqrt(squared_norm())
    ratios = [norm * made.errors(2**e)[0] / trace_lower_bound(2**e) for e in range(4, 19)]
    # From 2^18 on the bound grows by log(2) / pi with each doubling, to 1e-6.
    last = trace_lower_bound(2**18)
    ratios += [norm * made.errors(2**e)[0] / (last + (e - 18) * math.log(2.0) / math.pi) for e in range(19, 35)]
    assert 1.3 < min(ratios) < max(ratios) < 1.4
    known = prefix_sum("blt", 1000, (3,), clip=0.5, **PROMISE)
    endless_sum = prefix_sum("blt", None, (3,), clip=0.5, **PROMISE)
    assert 1.25 < endless_sum.rms(1000) / known.rms(1000) < 1.4


def test_the_law_of_what_comes_out() -> None:
    made = prefix_sum("blt", None, (2000,), clip=0.5, seed=3, **PROMISE)
    for step in range(1, 33):
        made.step(None)
        if step in (1, 8, 32):
            for factor, accepted in ((1.0, True), (2.0 / 3.0, False), (1.5, False)):
                law = stats.norm(scale=factor * made.largest(step)).cdf
                assert (stats.kstest(made.predict().numpy(), law).pvalue > 1e-3) == accepted


def test_what_needs_a_horizon_says_so() -> None:
    told: dict[str, Any] = {"horizon": None, **PROMISE}
    for build in (
        *(lambda name=name: DPTOFW(3, mechanism=name, **told) for name in ("tree", "honaker", "sqrt")),
        lambda: DPTOFW(3, mechanism="paper", norm=1.5, **told),
        lambda: DPTOFW(3, mechanism="tree", noise_source="discrete", **told),
        lambda: DPPOFW(3, mechanism="gumbel", **told),
        lambda: DPHDB(3, arms=2, warmup=2, mechanism="laplace", **told),
        lambda: DPUCB(3, arms=2, **told),
        lambda: FLIPHAT(3, arms=2, **told),
        lambda: NoisySFW(3, **told),
        lambda: LocalMD(3, **told),
    ):
        with pytest.raises(ValueError, match="horizon: expected an integer with"):
            build()
    with pytest.raises(ValueError, match="epsilon: expected a larger number without a horizon"):
        DPTOFW(10**7, **(told | {"epsilon": 1e-6}))
    assert DPPOFW(3, **told).mechanism == "blt"
    with pytest.raises(TypeError, match="horizon"):
        DPTOFW(3, **PROMISE)  # without a horizon only if said so


def test_no_noise_and_no_end() -> None:
    learner = DPTOFW(2, horizon=None, epsilon=math.inf, delta=1e-3, clip=math.inf)
    learner.step(torch.ones(2, 2))
    assert learner.privacy_spent(1e-3) == math.inf


def test_the_rates_of_dp_ftrl_decrease_as_its_bound_needs() -> None:
    """1 / eta^2 is 2 t C (C + 2 sqrt(d) nu) / R^2, with a nu that no earlier noise exceeds."""
    learner = DPFTRL(4, horizon=None, radius_bound=2.0, clip=0.5, **PROMISE)
    total = torch.zeros(4, dtype=torch.float64)
    before = math.inf
    for step in range(1, 40):
        learner.step(torch.full((4,), 0.1))
        total = learner.noisy_sum.clone()
        largest = learner.noise.noise_scale * learner.noise.errors(2 ** (step + 1).bit_length())[1]
        rate = 2.0 / math.sqrt(2.0 * (step + 1) * 0.5 * (0.5 + 2.0 * 2.0 * largest))
        assert rate < before
        before = rate
        decision = -rate * total
        decision *= min(1.0, 2.0 / float(decision.norm()))
        torch.testing.assert_close(learner.predict(), decision, rtol=1e-12, atol=1e-12)
    assert learner.average().norm() <= 2.0
