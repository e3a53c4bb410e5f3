"""Tests of NoiseDiagnostic: warnings, Hill's index and checkpoints."""

import copy
import io
import math
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torchmetrics import MetricCollection

from tests.learners import by_name
from torchonline import AnytimeHeavyTailUCB
from torchonline.diagnostics import BETS, NoiseDiagnostic, NoiseReport, NoiseScaleWarning, hill_index
from torchonline.environments import GaussianNoise, LinearBandit, Noise, Pareto, StudentT, TwoPoint

pytestmark = pytest.mark.fast

ALPHA = 0.05


def same(one: NoiseDiagnostic, other: NoiseDiagnostic) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def close(one: NoiseDiagnostic, other: NoiseDiagnostic) -> bool:
    """The same but for the rounding of logarithms, which may depend on how many are taken at once."""
    torch.testing.assert_close(dict(one.state_dict()), dict(other.state_dict()), rtol=1e-12, atol=1e-12)
    return True


def fed(diagnostic: NoiseDiagnostic, cut: int, *arguments: Tensor) -> NoiseDiagnostic:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseScaleWarning)
        for part in zip(*(values.split(cut) for values in arguments), strict=True):
            by_name(diagnostic.update, *part)
    return diagnostic


def stream(rounds: int, batch: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return heavy-tailed residuals, varying noise scales, and error bars."""
    random = np.random.default_rng(seed)
    values = random.standard_t(1.5, (rounds, *batch)), *random.uniform(0.5, 2.0, (2, rounds, *batch))
    return tuple(map(torch.from_numpy, values))


def share_warned(noise: Noise, order: float, told: float, rounds: int, runs: int, seed: int = 0) -> float:
    """Return the share of streams with a warning, for the noise scale ``told``."""
    diagnostic = NoiseDiagnostic(order, (runs,), ALPHA)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(rounds // 100):
        fed(diagnostic, 100, noise.sample((100, runs), generator), torch.full((100, runs), told, dtype=torch.float64))
    assert diagnostic.rounds == rounds
    return diagnostic.compute().noise_scale_is_small.double().mean().item()


# The rule: what the theorem promises, and what it does not promise.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "order"),
    [
        (GaussianNoise(), 2.0),
        (StudentT(2.1), 2.0),
        (StudentT(2.1), 1.99),
        (StudentT(1.5), 1.4),
        (Pareto(2.5), 2.0),
        (TwoPoint(0.01), 2.0),
    ],
)
def test_false_alarms_are_as_rare_as_promised(noise: Noise, order: float) -> None:
    runs = 1000
    limit = ALPHA + 3.0 * math.sqrt(ALPHA * (1.0 - ALPHA) / runs)
    assert share_warned(noise, order, noise.moment_norm(order), 2000, runs) <= limit
    # Power of the test: under Gaussian noise a noise_scale 10 % too small is detected.
    if noise == GaussianNoise():
        assert share_warned(noise, order, 0.9, 2000, runs) > 0.9


@pytest.mark.slow
def test_the_papers_mistake_is_seen() -> None:
    """The paper states a moment norm of 1.31 for Student-t noise; it is 4.388."""
    assert StudentT(2.1).moment_norm(1.99) == pytest.approx(4.388, abs=5e-4)
    assert share_warned(StudentT(2.1), 1.99, 1.31, 1000, 300) > 0.99


@pytest.mark.slow
def test_a_moment_that_sits_in_a_rare_jump_is_not_seen_early() -> None:
    """Most streams of 1000 rounds have no jump, so there is nothing to detect."""
    noise = TwoPoint(1e-4)
    jump = 1.0 - (1.0 - 1e-4) ** 1000
    warned = share_warned(noise, 2.0, 0.1, 1000, 1000)
    assert warned <= jump + 3.0 * math.sqrt(jump * (1.0 - jump) / 1000)
    # Streams with a jump are detected: the jump is a thousand times the noise scale given.
    assert warned > 0.5 * jump


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "low", "high"), [(1.0, 0.0, 0.1 + 3.0 * math.sqrt(0.1 * 0.9 / 300)), (0.3, 0.9, 1.0)]
)
def test_a_learner_in_the_loop(factor: float, low: float, high: float) -> None:
    """Few warnings with the true noise scale, nearly always one with a smaller one."""
    noise, runs = StudentT(3.0), 300
    told = factor * noise.moment_norm(2.0)
    policy = AnytimeHeavyTailUCB(2, noise_scale=told, delta=0.05, batch_shape=(runs,))
    environment = LinearBandit(2, 10, noise=noise, batch_shape=(runs,), seed=7)
    diagnostic, estimator = NoiseDiagnostic(2.0, (runs,), ALPHA), policy.estimator
    rows = []
    for _ in range(1500):
        arms = environment.arms()
        action = policy.select(arms)
        x, reward, _ = environment.pull(action)
        rows.append((reward - estimator(x), estimator.radius() * estimator.width(x)))
        policy.step(arms, action, reward)
    residual, error = map(torch.stack, zip(*rows, strict=True))
    fed(diagnostic, 500, residual, torch.full_like(residual, told), error)
    assert low <= diagnostic.compute().noise_scale_is_small.double().mean() <= high


def test_wealth_against_plain_products() -> None:
    residual, scale, error = (values[:, 0] for values in stream(60, (1,)))
    residual *= 0.1
    wealth, largest = np.ones(len(BETS)), 1.0
    for r, nu, e in zip(residual.tolist(), scale.tolist(), error.tolist(), strict=True):
        x = (max(abs(r) - 0.1 * e, 0.0) / nu) ** 1.7
        wealth = wealth * (1.0 + np.array([2.0**-i for i in range(1, 17)]) * (x - 1.0))
        largest = max(largest, wealth.mean())
    diagnostic = fed(NoiseDiagnostic(1.7), 60, residual, scale, 0.1 * error)
    np.testing.assert_allclose(diagnostic.log_wealth.exp(), wealth, rtol=1e-12)
    np.testing.assert_allclose(diagnostic.compute().evidence, math.log(largest), rtol=1e-10, atol=1e-12)
    ratio = np.mean((residual.abs() / scale).numpy() ** 1.7) ** (1.0 / 1.7)
    np.testing.assert_allclose(diagnostic.compute().moment_ratio, ratio, rtol=1e-12)


def test_no_bet_gains_on_average_when_the_promise_is_kept_exactly() -> None:
    """Noise of +-nu has X = 1 in every round, so no bet gains or loses."""
    noise = 2.0 * torch.tensor([1.0, -1.0, -1.0, 1.0])
    diagnostic = fed(NoiseDiagnostic(), 4, noise, torch.full_like(noise, 2.0))
    torch.testing.assert_close(diagnostic.log_wealth, torch.zeros(16, dtype=torch.float64), rtol=0.0, atol=1e-14)


def test_error_bars_are_taken_off() -> None:
    residual = torch.full((50,), 3.0)
    covered = fed(NoiseDiagnostic(), 50, residual, torch.ones(50), torch.full((50,), 3.0))
    assert covered.compute().evidence == 0.0
    assert not covered.compute().noise_scale_is_small
    assert fed(NoiseDiagnostic(), 50, residual, torch.ones(50)).compute().noise_scale_is_small


def test_outliers_beyond_all_numbers() -> None:
    residual = torch.tensor([1e300, 0.0, -1e200, 1.0], dtype=torch.float64)
    diagnostic = fed(NoiseDiagnostic(), 1, residual, torch.full((4,), 1e-40))
    report = diagnostic.compute()
    assert torch.isfinite(diagnostic.log_wealth).all()
    assert report.evidence > 1000.0
    assert torch.isfinite(report.tail_index)
    assert report.tail_index > 0.0


def test_warns_once_for_each_learner() -> None:
    diagnostic, residual = NoiseDiagnostic(batch_shape=(1, 2)), torch.tensor([[[0.1, 9.0]]]).expand(20, 1, 2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for row in residual:
            diagnostic.update(row, noise_scale=1.0)
        (first,) = seen
        # Then the other learner warns. Neither warns again, nor does a copy that has already warned.
        diagnostic.update(residual.flip(-1), noise_scale=1.0)
        _, second = seen
        diagnostic.update(9.0 * torch.ones(20, 1, 2), noise_scale=1.0)
        resumed = NoiseDiagnostic(batch_shape=(1, 2))
        resumed.load_state_dict(diagnostic.state_dict())
        resumed.update(residual, noise_scale=1.0)
    assert len(seen) == 2
    assert str(first.message).startswith("noise_scale looks too small for learner [0, 1]: within 2 rounds")
    assert str(second.message).startswith("noise_scale looks too small for learner [0, 0]: within 40 rounds")
    assert diagnostic.compute().noise_scale_is_small.all()
    # Two warnings at once, under the filter that shows a text only once.
    with warnings.catch_warnings(record=True) as both:
        warnings.simplefilter("default")
        NoiseDiagnostic(batch_shape=(2,)).update(torch.tensor([[9.0, 11.0]]).expand(3, 2), noise_scale=1.0)
    reached = [re.search(r"learner (\S+): within 3 rounds .* reached exp\((\S+)\)", str(w.message)) for w in both]
    assert [found[1] for found in reached if found] == ["[0]", "[1]"]
    assert len({found[2] for found in reached if found}) == 2
    with pytest.warns(NoiseScaleWarning, match="looks too small: within 20 rounds"):
        NoiseDiagnostic().update(residual[:, 0, 1], noise_scale=1.0)


def test_a_warning_names_the_callers_line() -> None:
    residual = torch.full((20,), 9.0)
    hooked, collection = NoiseDiagnostic(), MetricCollection([NoiseDiagnostic()])
    hooked.register_forward_hook(lambda *_: None)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        here = sys._getframe().f_lineno
        NoiseDiagnostic().update(residual, noise_scale=1.0)
        NoiseDiagnostic()(residual, noise_scale=1.0)
        hooked(residual, noise_scale=1.0)
        collection.update(residual, noise_scale=1.0)
        NoiseDiagnostic().forward(residual, noise_scale=1.0)
    assert [(warning.filename, warning.lineno) for warning in seen] == [(__file__, here + i) for i in range(1, 6)]
    assert {warning.category for warning in seen} == {NoiseScaleWarning}


@pytest.mark.slow
def test_small_stays_small_when_the_wealth_is_lost_again() -> None:
    diagnostic = fed(NoiseDiagnostic(), 7, torch.cat([torch.full((20,), 5.0), torch.zeros(20000)]), torch.ones(20020))
    assert diagnostic.log_wealth.max() < 0.0
    assert diagnostic.compute().noise_scale_is_small


# Hill's index.


def test_hill_against_its_formula() -> None:
    values = np.random.default_rng(0).pareto(1.7, (300, 2, 3)) + 1.0
    for k in (1, 17, 299):
        falling = -np.sort(-values, axis=0)
        expected = 1.0 / (np.log(falling[:k]).mean(0) - np.log(falling[k]))
        np.testing.assert_allclose(hill_index(torch.from_numpy(values), k), expected, rtol=1e-12)


def test_hill_is_the_maximum_likelihood_of_a_pareto_tail() -> None:
    values = -np.sort(-np.random.default_rng(1).pareto(2.2, 500) - 1.0)
    index, _, _ = stats.pareto.fit(values[:50], floc=0.0, fscale=values[50])
    assert hill_index(torch.from_numpy(values), 50).item() == pytest.approx(index, rel=1e-6)


def test_hill_on_exact_pareto_has_the_law_it_should() -> None:
    """For Pareto values, k a / index is Gamma(k): a Kolmogorov-Smirnov test."""
    a, k = 1.5, 20
    generator = torch.Generator().manual_seed(0)
    values = (1.0 - torch.rand(400, 2000, generator=generator, dtype=torch.float64)) ** (-1.0 / a)
    statistic = k * a / hill_index(values, k)
    assert stats.kstest(statistic.numpy(), stats.gamma(k).cdf).pvalue > 0.01
    assert stats.kstest(statistic.numpy(), stats.gamma(k + 3).cdf).pvalue < 1e-6


@pytest.mark.parametrize("rounds", [2, 9, 99, 100, 400])
def test_report_uses_the_stated_k(rounds: int) -> None:
    residual, scale, _ = stream(rounds, (3,))
    report = fed(NoiseDiagnostic(1.5, (3,), largest=17), 7, residual, scale).compute()
    k = min(math.isqrt(rounds), 16)
    expected = hill_index((residual / scale).abs(), k)
    torch.testing.assert_close(report.tail_index, expected, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(report.tail_index_error, expected / math.sqrt(k), rtol=1e-12, atol=0.0)
    below = expected * (1.0 + 2.0 / math.sqrt(k)) < 1.5
    assert torch.equal(report.moment_seems_infinite, below & (k >= 10))


def test_two_standard_errors_decide() -> None:
    residual, scale, _ = stream(400, ())
    index = float(hill_index((residual / scale).abs(), 20))
    for errors in (1.9, 2.1):
        order = index * (1.0 + errors / math.sqrt(20))
        assert bool(fed(NoiseDiagnostic(order), 400, residual, scale).compute().moment_seems_infinite) == (errors > 2.0)


def test_nine_values_have_no_say() -> None:
    """The first verdict comes at 100 rounds, however heavy the tail."""
    size = torch.linspace(0.0, 50.0, 100).exp()
    diagnostic = fed(NoiseDiagnostic(), 99, size[:99], torch.ones(99))
    report = diagnostic.compute()
    assert report.tail_index + 2.0 * report.tail_index_error < 1.0
    assert not report.moment_seems_infinite
    assert fed(diagnostic, 1, size[99:], torch.ones(1)).compute().moment_seems_infinite


@pytest.mark.slow
def test_an_infinite_moment_is_seen_and_a_finite_one_is_not() -> None:
    def share(noise: Noise) -> float:
        draws = noise.sample((5000, 200), torch.Generator().manual_seed(0))
        diagnostic = fed(NoiseDiagnostic(2.0, (200,)), 1000, draws, torch.ones_like(draws))
        return diagnostic.compute().moment_seems_infinite.double().mean().item()

    assert share(Pareto(1.2, symmetric=True)) > 0.95
    assert share(Pareto(3.0, symmetric=True)) < 0.01
    assert share(GaussianNoise()) == 0.0


def test_what_hill_cannot_say_is_nan() -> None:
    nothing = NoiseDiagnostic(batch_shape=(2,))
    nothing._update_count = 1  # otherwise torchmetrics warns that there was no update
    for name in ("tail_index", "tail_index_error", "moment_ratio"):
        assert getattr(nothing.compute(), name).isnan().all()
    assert not nothing.compute().moment_seems_infinite.any()
    zeros = torch.zeros(400)
    zeros[0] = 1.0
    assert fed(NoiseDiagnostic(), 50, zeros, torch.ones(400)).compute().tail_index.isnan()
    assert fed(NoiseDiagnostic(), 50, torch.ones(400), torch.ones(400)).compute().tail_index.isinf()
    assert hill_index(torch.zeros(5), 2).isnan()


# Properties of every metric of the library.


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_the_cut_into_updates_does_not_matter(batch: tuple[int, ...]) -> None:
    values = stream(200, batch)
    whole = fed(NoiseDiagnostic(1.5, batch, largest=10), 200, *values)
    for cut in (1, 3, 64):
        assert close(whole, fed(NoiseDiagnostic(1.5, batch, largest=10), cut, *values))
    single = NoiseDiagnostic(1.5, batch, largest=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseScaleWarning)
        for row in zip(*values, strict=True):
            by_name(single.update, *row)
    assert close(whole, single)
    report = whole.compute()
    assert isinstance(report, NoiseReport)
    assert {tuple(value.shape) for value in report[1:]} == {batch}


def test_a_batch_is_its_learners() -> None:
    values = stream(150, (4,))
    batched = fed(NoiseDiagnostic(1.5, (4,)), 50, *values).compute()
    for i in range(4):
        alone = fed(NoiseDiagnostic(1.5), 50, *(value[:, i] for value in values)).compute()
        for ours, theirs in zip(batched[1:], alone[1:], strict=True):
            torch.testing.assert_close(ours[i], theirs, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_number_for_the_noise_scale() -> None:
    residual = stream(50, ())[0]
    number = NoiseDiagnostic()
    with pytest.warns(NoiseScaleWarning):
        number.update(residual, noise_scale=0.3)
    assert same(number, fed(NoiseDiagnostic(), 50, residual, torch.full_like(residual, 0.3)))


def test_calling_it_reports_on_all_rounds() -> None:
    values = stream(60, (2,))
    called, updated = NoiseDiagnostic(1.2, (2,)), NoiseDiagnostic(1.2, (2,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseScaleWarning)
        for part in zip(*(value.split(20) for value in values), strict=True):
            report = called(part[0], noise_scale=part[1], error=part[2])
            by_name(updated.update, *part)
            for ours, theirs in zip(report, updated.compute(), strict=True):
                assert torch.equal(ours, theirs)
    assert same(called, updated)


def test_no_gradient_is_kept() -> None:
    values = [value.clone().requires_grad_() for value in stream(20, ())]
    diagnostic = fed(NoiseDiagnostic(), 20, *values)
    assert not any(value.requires_grad for value in [*diagnostic.state_dict().values(), *diagnostic.compute()])


def test_memory_is_bounded() -> None:
    diagnostic = fed(NoiseDiagnostic(1.5, (2,), largest=8), 50, *stream(1000, (2,)))
    shapes = {name: tuple(value.shape) for name, value in diagnostic.state_dict().items()}
    assert shapes.pop("constants") == (2,)
    assert shapes == {"rounds": (), "log_wealth": (16, 2), "evidence": (2,), "log_moment": (2,), "largest_logs": (8, 2)}
    kinds = {name: value.dtype for name, value in diagnostic.state_dict().items()}
    assert kinds.pop("rounds") == torch.int64
    assert set(kinds.values()) == {torch.float64}


@pytest.mark.parametrize("before", [1, 30, 199])
def test_state_dict_continues_bit_for_bit(before: int) -> None:
    values = stream(200, (2,))
    options: dict[str, Any] = {"moment_order": 1.5, "batch_shape": (2,), "largest": 12}
    whole = fed(NoiseDiagnostic(**options), 50, *(value[:before] for value in values))
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    whole = fed(whole, 50, *(value[before:] for value in values))
    file.seek(0)
    state = torch.load(file)
    resumed = fed(NoiseDiagnostic(**options), 5, *stream(5, (2,), seed=1))
    resumed.compute()
    resumed.load_state_dict(state)
    fresh = NoiseDiagnostic(**options)
    fresh.load_state_dict(state)
    # Loading drops the cached result, and the loaded result can be read without an update.
    assert all(torch.equal(*pair) for pair in zip(resumed.compute()[:4], fresh.compute()[:4], strict=True))
    kept = copy.deepcopy(state)
    assert same(fed(resumed, 50, *(value[before:] for value in values)), whole)
    assert all(torch.equal(kept[name], state[name]) for name in state)
    resumed.reset()
    assert same(resumed, NoiseDiagnostic(**options))


def test_a_state_of_another_shape_is_refused() -> None:
    diagnostic, other = NoiseDiagnostic(batch_shape=(2,)), fed(NoiseDiagnostic(batch_shape=(3,)), 4, *stream(4, (3,)))
    before = copy.deepcopy(diagnostic)
    with pytest.raises(RuntimeError, match=r"log_wealth: expected shape \(16, 2\), got \(16, 3\)"):
        diagnostic.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match=r"largest_logs: expected shape \(256, 2\), got \(8, 2\)"):
        diagnostic.load_state_dict(NoiseDiagnostic(batch_shape=(2,), largest=8).state_dict())
    assert same(diagnostic, before)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"moment_order": 1.99}, "metric.moment_order: expected a state made with 1.5, got one made with 1.99"),
        ({"alpha": 0.02}, "metric.alpha: expected a state made with 0.01, got one made with 0.02"),
    ],
)
def test_a_state_of_another_promise_is_refused(changes: dict[str, Any], text: str) -> None:
    options = {"moment_order": 1.5, "alpha": 0.01}
    model = nn.ModuleDict({"metric": fed(NoiseDiagnostic(**options), 4, *stream(4, ()))})
    before = copy.deepcopy(model["metric"])
    other = nn.ModuleDict({"metric": fed(NoiseDiagnostic(**(options | changes)), 4, *stream(4, (), seed=1))})
    with pytest.raises(RuntimeError, match=text):
        model.load_state_dict(other.state_dict())
    assert same(model["metric"], before)
    alike = nn.ModuleDict({"metric": fed(NoiseDiagnostic(**options), 4, *stream(4, (), seed=1))})
    model.load_state_dict(alike.state_dict())
    assert same(model["metric"], alike["metric"])


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("log_wealth", 3.0, "log_wealth: expected a torch.Tensor, got float"),
        ("rounds", None, "rounds: expected a torch.Tensor, got NoneType"),
        ("constants", "two", "constants: expected a torch.Tensor, got str"),
        ("rounds", torch.tensor(4.0), "rounds: expected torch.int64, got torch.float32"),
        ("evidence", torch.tensor(0.0), "evidence: expected torch.float64, got torch.float32"),
    ],
)
def test_a_state_that_is_none_is_refused(name: str, value: Any, text: str) -> None:
    diagnostic = fed(NoiseDiagnostic(), 4, *stream(4, ()))
    before, state = copy.deepcopy(diagnostic), NoiseDiagnostic().state_dict()
    with pytest.raises(RuntimeError, match=text):
        diagnostic.load_state_dict(state | {name: value})
    assert same(diagnostic, before)
    del state[name]
    with pytest.raises(RuntimeError, match=f"{name}: expected an entry, got none"):
        diagnostic.load_state_dict(state)
    assert same(diagnostic, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "convert",
    [
        lambda metric: metric.set_dtype(torch.float16),
        lambda metric: metric.set_dtype(torch.float32),
        lambda metric: metric.to(torch.float16),
        lambda metric: metric.half(),
        lambda metric: nn.Sequential(metric).to("cpu", torch.bfloat16),
        lambda metric: MetricCollection([metric]).set_dtype(torch.float16),
    ],
)
def test_no_conversion_rounds_what_was_counted(convert: Callable[[Any], object]) -> None:
    values = stream(3000, ())
    whole, converted = (fed(NoiseDiagnostic(1.2), 500, *(value[:500] for value in values)) for _ in range(2))
    fed(whole, 1, *(value[500:] for value in values))
    assert converted.compute().rounds == 500
    convert(converted)
    assert same(fed(converted, 1, *(value[500:] for value in values)), whole)
    assert converted.compute().rounds == 3000
    assert {value.dtype for value in converted.compute()} == {torch.int64, torch.float64, torch.bool}
    converted.reset()
    assert same(converted, NoiseDiagnostic(1.2))
    assert {value.dtype for value in converted.state_dict().values()} == {torch.int64, torch.float64}


def test_it_moves_to_another_device() -> None:
    elsewhere = NoiseDiagnostic().to("meta", torch.float16)
    assert {(value.device.type, value.dtype) for value in elsewhere.state_dict().values()} == {
        ("meta", torch.int64),
        ("meta", torch.float64),
    }


ONES = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("error", "text", "arguments"),
    [
        (ValueError, "residual: expected finite values, got nan", (ONES * torch.nan, 1.0)),
        (ValueError, "residual: expected finite values, got inf", (ONES * torch.inf, 1.0)),
        (ValueError, r"residual: expected shape \(3\) or \(n, 3\), got \(2\)", (torch.ones(2), 1.0)),
        (ValueError, r"residual: expected shape \(3\) or \(n, 3\), got \(\)", (torch.tensor(1.0), 1.0)),
        (ValueError, r"residual: expected shape \(3\) or \(n, 3\), got \(1, 2, 3\)", (ONES[None], 1.0)),
        (TypeError, "residual: expected a torch.Tensor, got list", ([1.0], 1.0)),
        (TypeError, "residual: expected a floating-point tensor, got torch.int64", (ONES.long(), 1.0)),
        (ValueError, "noise_scale: expected a number above 0, got 0", (ONES, 0.0)),
        (ValueError, "noise_scale: expected a finite number, got nan", (ONES, math.nan)),
        (TypeError, "noise_scale: expected a number, got str", (ONES, "1")),
        (ValueError, "noise_scale: expected values above 0, got 0", (ONES, 0.0 * ONES)),
        (ValueError, r"noise_scale: expected shape \(2, 3\), got \(3\)", (ONES, ONES[0])),
        (ValueError, "noise_scale: expected finite values, got nan", (ONES, ONES * torch.nan)),
        (ValueError, "error: expected values of at least 0, got -1", (ONES, 1.0, -ONES)),
        (ValueError, r"error: expected shape \(2, 3\), got \(2\)", (ONES, 1.0, ONES[:, 0])),
        (ValueError, "error: expected finite values, got inf", (ONES, 1.0, ONES / 0.0)),
        (TypeError, "error: expected a torch.Tensor, got float", (ONES, 1.0, 0.5)),
    ],
)
def test_bad_input_changes_nothing(error: type[Exception], text: str, arguments: tuple[Any, ...]) -> None:
    diagnostic = fed(NoiseDiagnostic(1.5, (3,)), 3, *stream(3, (3,)))
    before = copy.deepcopy(diagnostic)
    with pytest.raises(error, match=text):
        by_name(diagnostic.update, *arguments)
    assert same(diagnostic, before)


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (ValueError, "moment_order: expected a number above 0", {"moment_order": 0.0}),
        (ValueError, "batch_shape: expected", {"batch_shape": (0,)}),
        (TypeError, "batch_shape: expected a tuple of integers, got int", {"batch_shape": 3}),
        (ValueError, r"alpha: expected a number in \(0.0, 1.0\), got 1.0", {"alpha": 1.0}),
        (ValueError, "largest: expected an integer above 1, got 1", {"largest": 1}),
        (TypeError, "largest: expected an integer, got float", {"largest": 2.5}),
    ],
)
def test_constructor_errors(error: type[Exception], text: str, options: dict[str, Any]) -> None:
    with pytest.raises(error, match=text):
        NoiseDiagnostic(**options)


@pytest.mark.parametrize(
    ("error", "text", "values", "k"),
    [
        (TypeError, "values: expected a torch.Tensor, got list", [1.0, 2.0], 1),
        (ValueError, "values: expected finite values, got nan", torch.tensor([1.0, torch.nan]), 1),
        (ValueError, "values: expected values of at least 0, got -1", torch.tensor([1.0, -1.0]), 1),
        (ValueError, r"values: expected shape \(n, ...\), got \(\)", torch.tensor(1.0), 1),
        (ValueError, "k: expected an integer above 0, got 0", torch.ones(3), 0),
        (ValueError, "k: expected an integer below the number of values, 3, got 3", torch.ones(3), 3),
    ],
)
def test_hill_errors(error: type[Exception], text: str, values: Any, k: int) -> None:
    with pytest.raises(error, match=text):
        hill_index(values, k)


def test_repr_says_what_was_asked_for() -> None:
    assert repr(NoiseDiagnostic()) == "NoiseDiagnostic()"
    changed = NoiseDiagnostic(1.5, (3,), alpha=0.05, largest=64)
    assert repr(changed) == "NoiseDiagnostic(moment_order=1.5, batch_shape=(3,), alpha=0.05, largest=64)"
