"""Tests of CumulativeRegret, GradientVariation and has_missed."""

import copy
import io
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from torch import Tensor

from torchonline import OFUL, HeavyTailRegression, Logistic, RidgeRegression
from torchonline.diagnostics import NoiseDiagnostic
from torchonline.environments import GaussianNoise, GeneralizedLinearBandit, LinearBandit, SEAStream
from torchonline.metrics import CumulativeRegret, ExactMetric, GradientVariation, PrivacySpent, has_missed
from torchonline.off_policy import bootstrap_means, effective_sample_size, propensities, replay, self_normalised_mean

pytestmark = pytest.mark.fast

matplotlib.use("Agg")


def same(one: ExactMetric, other: ExactMetric) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def fed(regret: Tensor, cut: int, **options: Any) -> CumulativeRegret:
    metric = CumulativeRegret(tuple(regret.shape[1:]), **options)
    for part in regret.split(cut):
        metric.update(part)
    return metric


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 17, 100, 1000])
def test_total_and_curve_against_numpy(batch: tuple[int, ...], n: int) -> None:
    regret = torch.rand(n, *batch, dtype=torch.float64)
    expected = np.cumsum(regret.numpy(), axis=0)
    metrics = [fed(regret, cut, points=8) for cut in (1, 3, n)]
    for metric in metrics:
        np.testing.assert_allclose(metric.compute(), expected[-1], rtol=1e-12)
        rounds, totals = metric.curve()
        assert rounds[-1] == n
        assert len(rounds) <= 8 + 1
        assert len(rounds) >= min(n, 8 // 2)
        np.testing.assert_allclose(totals, expected[rounds.numpy() - 1], rtol=1e-12)
        spacing = rounds.diff()[:-1]
        assert len(spacing.unique()) <= 1
    # The split into updates does not matter, to the last bit.
    assert same(metrics[0], metrics[1])
    assert same(metrics[0], metrics[2])


def test_single_rounds_without_a_leading_dimension() -> None:
    regret = torch.rand(5, 2)
    metric = CumulativeRegret((2,))
    for row in regret:
        metric.update(row)
    assert same(metric, fed(regret, 5))
    scalar = CumulativeRegret()
    scalar.update(torch.tensor(0.5))
    assert scalar.compute() == 0.5


def test_memory_is_bounded_and_counts_are_int64() -> None:
    metric = fed(torch.rand(5000), 50, points=16)
    assert {name: tuple(value.shape) for name, value in metric.state_dict().items()} == {
        "total": (),
        "rounds": (),
        "spacing": (),
        "history": (16,),
    }
    assert metric.rounds.dtype == metric.spacing.dtype == torch.int64
    assert metric.total.dtype == torch.float64
    metric.rounds = torch.tensor(2**40)
    metric.spacing = torch.tensor(2**36)
    metric.update(torch.rand(3))
    assert metric.rounds == 2**40 + 3


def test_no_gradient_is_kept() -> None:
    metric = CumulativeRegret()
    metric.update(torch.rand(3, requires_grad=True))
    assert not metric.compute().requires_grad
    assert not any(value.requires_grad for value in metric.state_dict().values())


@pytest.mark.parametrize("before", [1, 5, 8, 21])
def test_state_dict_continues_bit_for_bit(before: int) -> None:
    regret = torch.rand(60, 2)
    whole = fed(regret, 60, points=8)
    file = io.BytesIO()
    torch.save(fed(regret[:before], 60, points=8).state_dict(), file)
    file.seek(0)
    resumed = CumulativeRegret((2,), points=8)
    resumed.update(torch.rand(2, 2))
    resumed.compute()
    state = torch.load(file)
    resumed.load_state_dict(state)
    # Loading drops the cached result, and the loaded result can be read without an update.
    np.testing.assert_allclose(resumed.compute(), regret[:before].double().sum(0), rtol=1e-12)
    fresh = CumulativeRegret((2,), points=8)
    fresh.load_state_dict(state)
    assert torch.equal(fresh.compute(), resumed.compute())
    kept = copy.deepcopy(state)
    resumed.update(regret[before:])
    assert same(resumed, whole)
    assert all(torch.equal(kept[name], state[name]) for name in state)


def test_a_state_of_another_shape_is_refused() -> None:
    metric, other = CumulativeRegret((2,)), fed(torch.rand(4, 3), 4)
    before = copy.deepcopy(metric)
    with pytest.raises(RuntimeError, match=r"total: expected shape \(2\), got \(3\)"):
        metric.load_state_dict(other.state_dict())
    assert same(metric, before)


def test_a_state_with_another_number_of_points_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"history: expected shape \(512\), got \(8\)"):
        CumulativeRegret().load_state_dict(CumulativeRegret(points=8).state_dict())


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", ["total", "rounds", "spacing", "history"])
def test_a_part_of_a_state_is_refused_and_so_is_another_type(name: str, strict: bool) -> None:
    metric, state = CumulativeRegret((2,)), fed(torch.rand(4, 2), 4).state_dict()
    whole, value = copy.deepcopy(metric), state.pop(name)
    with pytest.raises(RuntimeError, match=f"{name}: expected an entry, got none"):
        metric.load_state_dict(state, strict=strict)
    assert same(metric, whole)
    with pytest.raises(RuntimeError, match=f"{name}: expected {value.dtype}, got torch.float32"):
        metric.load_state_dict(state | {name: value.float()}, strict=strict)
    assert same(metric, whole)


def test_forward_and_reset() -> None:
    metric = CumulativeRegret(points=4)
    assert metric(torch.tensor([1.0, 2.0])) == 3.0
    assert metric(torch.tensor([4.0])) == 4.0
    assert metric.compute() == 7.0
    assert same(metric, fed(torch.tensor([1.0, 2.0, 4.0]), 1, points=4))
    metric.reset()
    assert same(metric, CumulativeRegret(points=4))


@pytest.mark.parametrize(
    ("error", "text", "regret"),
    [
        (ValueError, "regret: expected finite values, got nan", torch.tensor([[0.0, torch.nan]])),
        (ValueError, "regret: expected finite values, got inf", torch.tensor([[0.0, torch.inf]])),
        (ValueError, r"regret: expected shape \(2\) or \(n, 2\), got \(3\)", torch.ones(3)),
        (ValueError, r"regret: expected shape .*, got \(4, 3\)", torch.ones(4, 3)),
        (ValueError, r"regret: expected shape .*, got \(\)", torch.tensor(1.0)),
        (TypeError, "regret: expected a floating-point tensor, got torch.int64", torch.ones(2, dtype=torch.int64)),
        (TypeError, "regret: expected a torch.Tensor, got float", 1.0),
    ],
)
def test_bad_regret_changes_nothing(error: type[Exception], text: str, regret: Any) -> None:
    metric = fed(torch.rand(3, 2), 3)
    before = copy.deepcopy(metric)
    with pytest.raises(error, match=text):
        metric.update(regret)
    assert same(metric, before)


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (ValueError, "points: expected an even number, got 7", {"points": 7}),
        (ValueError, "points: expected an integer above 0", {"points": 0}),
        (ValueError, "batch_shape: expected", {"batch_shape": (0,)}),
    ],
)
def test_constructor_errors(error: type[Exception], text: str, options: dict[str, Any]) -> None:
    with pytest.raises(error, match=text):
        CumulativeRegret(**options)


def test_plot_draws_mean_and_band() -> None:
    import matplotlib.pyplot as plt

    regret = torch.rand(100, 3)
    metric = fed(regret, 10, points=8)
    figure, axes = metric.plot(label="three")
    rounds, totals = metric.curve()
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), rounds)
    np.testing.assert_allclose(line.get_ydata(), totals.mean(1))
    (band,) = axes.collections
    edge = band.get_paths()[0].vertices[:, 1]
    assert np.isclose(edge.max(), totals[-1].max())
    assert axes.figure is figure
    assert (axes.get_xlabel(), axes.get_ylabel(), line.get_label()) == ("round", "cumulative regret", "three")
    fed(regret[:, 0], 10).plot(ax=axes)
    assert len(axes.lines) == 2
    assert len(axes.collections) == 1
    plt.close(figure)


def test_a_change_of_precision_rounds_nothing() -> None:
    """Casts of the metric, and of a module that contains it, round no state."""
    metric = CumulativeRegret()
    holder = torch.nn.ModuleList([metric])
    metric.set_dtype(torch.float16)
    holder.to(torch.float16)
    metric.update(torch.full((5000,), 0.1, dtype=torch.float64))
    assert metric.rounds.dtype == metric.spacing.dtype == torch.int64
    assert int(metric.rounds) == 5000
    assert float(metric.compute()) == pytest.approx(500.0, rel=1e-12)


def test_what_is_no_shape_or_no_tensor_is_named() -> None:
    with pytest.raises(TypeError, match=r"^batch_shape: expected a tuple of integers, got int"):
        CumulativeRegret(3)  # type: ignore[arg-type]
    metric = CumulativeRegret()
    with pytest.raises(RuntimeError, match=r"total: expected a torch.Tensor, got list"):
        metric.load_state_dict(metric.state_dict() | {"total": [1.0]})


@pytest.mark.parametrize("cls", [RidgeRegression, HeavyTailRegression])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_set_has_missed_where_an_error_bar_is_too_short(cls: Any, batch: tuple[int, ...]) -> None:
    """Errors exceed their bars just outside the set, and not just inside."""
    estimator = cls(4, batch_shape=batch)
    estimator.step(torch.randn(*batch, 30, 4) * torch.tensor([0.1, 1.0, 2.0, 3.0]), torch.randn(*batch, 30))
    matrix, radius = estimator.width_matrix(), estimator.radius()[..., None]
    unit = torch.nn.functional.normalize(torch.randn(*batch, 4, dtype=torch.float64), dim=-1)
    edge = radius * (torch.linalg.cholesky(matrix) @ unit.unsqueeze(-1)).squeeze(-1)
    probes = torch.randn(*batch, 1000, 4, dtype=torch.float64)
    for share, missed in ((0.999, False), (1.001, True)):
        theta = estimator.theta_hat + share * edge
        assert torch.equal(has_missed(estimator, theta), torch.full(batch, missed))
        worst = torch.linalg.solve(matrix, edge.unsqueeze(-1)).mT
        x = torch.cat([probes, worst], -2)
        error = (x @ (theta - estimator.theta_hat).unsqueeze(-1)).squeeze(-1).abs()
        assert torch.equal((error > radius * estimator.width(x)).any(-1), torch.full(batch, missed))
    assert has_missed(estimator, estimator.theta_hat * torch.nan).all()


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("points", [(), (1,), (5,), (2, 4)])
def test_gradient_variation_against_numpy(batch: tuple[int, ...], points: tuple[int, ...]) -> None:
    first, second = torch.randn(2, 20, *batch, *points, 3)
    metric = GradientVariation(batch)
    for one, other in zip(first, second, strict=True):
        metric.update(one.requires_grad_(), other)
    squares = ((first.double() - second.double()).detach().numpy() ** 2).sum(-1).reshape(20, *batch, -1)
    np.testing.assert_allclose(metric.compute(), squares.max(-1).sum(0), rtol=1e-12)
    assert metric.compute().dtype == torch.float64
    assert metric.compute().shape == batch
    assert metric.rounds == 20
    assert not metric.compute().requires_grad


@pytest.mark.parametrize("loss", ["linear", "quadratic", "huber", "logistic"])
def test_variation_of_a_stream_is_what_was_set(loss: str) -> None:
    """The sums are exact up to rounding, at one or many points."""
    rounds, sigma, drift = 50, torch.tensor([0.0, 0.3, 2.0]).double(), torch.tensor([1.5, 0.0, 0.1]).double()
    stream = SEAStream(4, loss=loss, sigma=sigma, drift=drift, period=5, batch_shape=(3,))
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, 4), (3, 6, 4)):
        stochastic, adversarial = GradientVariation((3,)), GradientVariation((3,))
        for _ in range(rounds):
            x = torch.randn(shape, generator=generator)
            stochastic.update(stream.gradients(x), stream.expected_gradients(x))
            adversarial.update(stream.expected_gradients(x), stream.expected_gradients(x, lag=1))
            stream.advance()
        torch.testing.assert_close(stochastic.compute(), rounds * sigma**2, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(adversarial.compute(), rounds * drift**2, rtol=1e-12, atol=1e-12)


def test_regret_against_a_comparator() -> None:
    """The comparator has regret 0, a point favoured by the noise less than 0."""
    stream, metric, lucky = SEAStream(2, loss="huber", batch_shape=(3,)), CumulativeRegret((3,)), CumulativeRegret((3,))
    for _ in range(10):
        metric.update(stream.regret(stream.comparator))
        lucky.update(stream.regret(stream.comparator - 0.1 * stream.noise))
        stream.advance()
    assert torch.equal(metric.compute(), torch.zeros(3).double())
    torch.testing.assert_close(lucky.compute(), torch.full((3,), 10 * (0.5 * 0.1**2 - 0.1), dtype=torch.float64))


@pytest.mark.parametrize("before", [1, 7])
def test_gradient_variation_continues_bit_for_bit(before: int) -> None:
    first, second = torch.randn(2, 12, 2, 3)
    whole, part, resumed = GradientVariation((2,)), GradientVariation((2,)), GradientVariation((2,))
    for t in range(12):
        whole.update(first[t], second[t])
        if t < before:
            part.update(first[t], second[t])
    resumed.update(first[0], second[1])
    resumed.compute()
    file = io.BytesIO()
    torch.save(part.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file))
    assert torch.equal(resumed.compute(), part.total)
    resumed.to(torch.float16)
    for t in range(before, 12):
        resumed.update(first[t], second[t])
    assert same(resumed, whole)
    resumed.reset()
    assert same(resumed, GradientVariation((2,)))
    with pytest.raises(RuntimeError, match=r"total: expected shape \(3\), got \(2\)"):
        GradientVariation((3,)).load_state_dict(whole.state_dict())


@pytest.mark.parametrize(
    ("error", "text", "gradients", "reference"),
    [
        (TypeError, "gradients: expected a torch.Tensor, got float", 1.0, torch.ones(2, 3)),
        (TypeError, "reference: expected a floating-point tensor", torch.ones(2, 3), torch.ones(2, 3).long()),
        (ValueError, "gradients: expected finite values, got nan", torch.full((2, 3), torch.nan), torch.ones(2, 3)),
        (ValueError, "reference: expected finite values, got inf", torch.ones(2, 3), torch.full((2, 3), torch.inf)),
        (ValueError, r"gradients: expected shape \(2, ..., d\), got \(2\)", torch.ones(2), torch.ones(2)),
        (ValueError, r"gradients: expected shape .*, got \(3, 2\)", torch.ones(3, 2), torch.ones(3, 2)),
        (ValueError, r"gradients: expected shape .*, got \(2, 0, 3\)", torch.ones(2, 0, 3), torch.ones(2, 0, 3)),
        (ValueError, r"reference: expected shape \(2, 3\), got \(2, 1, 3\)", torch.ones(2, 3), torch.ones(2, 1, 3)),
    ],
)
def test_bad_gradients_change_nothing(error: type[Exception], text: str, gradients: Any, reference: Any) -> None:
    metric = GradientVariation((2,))
    metric.update(torch.ones(2, 3), torch.zeros(2, 3))
    before = copy.deepcopy(metric)
    with pytest.raises(error, match=f"^{text}"):
        metric.update(gradients, reference)
    assert same(metric, before)
    with pytest.raises(TypeError, match=r"^batch_shape: expected a tuple of integers, got int"):
        GradientVariation(2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (CumulativeRegret(), "CumulativeRegret()"),
        (CumulativeRegret((2, 3), points=8), "CumulativeRegret(batch_shape=(2, 3), points=8)"),
        (CumulativeRegret((3,)).to("meta"), "CumulativeRegret(batch_shape=(3,), device='meta')"),
        (GradientVariation((4,)), "GradientVariation(batch_shape=(4,))"),
        (PrivacySpent(1e-5), "PrivacySpent(delta=1e-05)"),
        (PrivacySpent(1e-3, continuations=2), "PrivacySpent(delta=0.001, continuations=2)"),
    ],
)
def test_repr_says_what_was_asked_for(made: ExactMetric, text: str) -> None:
    assert repr(made) == text


class Named(Tensor):
    """A subclass without behaviour of its own."""


class Blind(Tensor):
    """A subclass that finds every value finite."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return torch.ones_like(result) if func is torch.isfinite else result


def plain(value: Any) -> bool:
    """Whether a tensor, or each tensor of a tuple, is of no subclass."""
    return all(map(plain, value)) if isinstance(value, tuple) else type(value) is Tensor


@pytest.mark.parametrize("cls", [Named, Blind])
def test_a_subclass_stays_outside(cls: type[Tensor]) -> None:
    """States stay plain tensors, which can be copied and saved, and NaN is refused."""
    ones, bad = torch.ones(3).as_subclass(cls), torch.full((3,), torch.nan).as_subclass(cls)
    regret, variation, noise = CumulativeRegret(), GradientVariation(), NoiseDiagnostic()
    calls: dict[Any, Any] = {
        regret: lambda x: regret.update(x),
        variation: lambda x: variation.update(ones, x),
        noise: lambda x: noise.update(x, noise_scale=ones, error=ones),
    }
    for metric, update in calls.items():
        update(ones)
        with pytest.raises(ValueError, match=r"^(regret|reference|residual): expected finite values, got nan"):
            update(bad)
        assert all(type(getattr(metric, name)) is Tensor for name in metric._defaults)
        twin = copy.deepcopy(metric)
        assert same(twin, metric)
        # A state of subclasses becomes plain too.
        twin.load_state_dict({name: value.as_subclass(cls) for name, value in metric.state_dict().items()})
        assert all(type(getattr(twin, name)) is Tensor for name in metric._defaults)
        assert same(copy.deepcopy(twin), metric)
    assert plain(tuple(noise.compute()))
    estimator = RidgeRegression(3)
    assert plain(has_missed(estimator, ones.double()))
    assert plain(has_missed(estimator, [1.0, 2.0, 3.0]))


def test_environments_and_evaluation_return_plain_tensors() -> None:
    one, index = torch.ones(3).as_subclass(Named), torch.tensor([0, 1, 0]).as_subclass(Named)
    bandit = LinearBandit(2, 2, noise=GaussianNoise(), batch_shape=(3,))
    assert plain(tuple(bandit.pull(index)))
    general = GeneralizedLinearBandit(
        2, 2, link=Logistic(), rewards=lambda z, generator: torch.sigmoid(z).as_subclass(Named), batch_shape=(3,)
    )
    assert plain(tuple(general.pull(index)))
    assert plain(SEAStream(3).gradients(one))
    assert plain(propensities(index, index, 2))
    assert plain(self_normalised_mean(one, one))
    assert plain(effective_sample_size(one))
    assert plain(bootstrap_means(one, one, index, draws=2))
    policy = OFUL(2)
    arms = torch.randn(3, 2, 2).as_subclass(Named)
    assert plain(
        replay(policy, arms, index, one, torch.arange(3).as_subclass(Named), torch.arange(3).as_subclass(Named))
    )
    assert all(map(plain, policy.buffers()))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("total", torch.tensor(torch.nan, dtype=torch.float64), "total: expected numbers, got nan"),
        ("history", torch.full((512,), torch.nan, dtype=torch.float64), "history: expected numbers, got nan"),
        ("rounds", torch.tensor(-5), "rounds: expected at least 0, got -5"),
        ("spacing", torch.tensor(0), "spacing: expected at least 1, got 0"),
    ],
)
def test_an_impossible_state_is_refused(name: str, value: Tensor, text: str) -> None:
    metric, twin = fed(torch.rand(5), 5), fed(torch.rand(4), 4)
    before = {key: state.clone() for key, state in twin.state_dict().items()}
    with pytest.raises(RuntimeError, match=text):
        twin.load_state_dict(metric.state_dict() | {name: value})
    assert all(torch.equal(before[key], state) for key, state in twin.state_dict().items())
