"""Metrics for an operator: right by NumPy, whatever the batches, over ranks, in checkpoints and in pictures."""

import copy
import io
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import matplotlib.pyplot
import numpy as np
import pytest
import torch
from torch import Tensor, distributed

from tests.process_groups import on_ranks
from torchonline.metrics import (
    ActionShares,
    DriftAlarm,
    EffectiveSampleSize,
    ExactMetric,
    LoggedProbabilities,
    LogHistogram,
    MeanByArm,
    ValueByTime,
)
from torchonline.off_policy import effective_sample_size

matplotlib.use("Agg")

ARMS, POINTS = 3, 8

MAKE: dict[str, Callable[[], Any]] = {
    "shares": lambda: ActionShares(ARMS, points=POINTS),
    "values": lambda: ValueByTime("reward", points=POINTS),
    "batch": lambda: ValueByTime("reward", (2,), points=POINTS),
    "size": lambda: EffectiveSampleSize(points=POINTS),
    "means": lambda: MeanByArm(ARMS),
    "probabilities": lambda: LoggedProbabilities(),
    "delays": lambda: LogHistogram(0.01, 100.0),
}


def data(name: str, n: int, seed: int = 0) -> tuple[Tensor, ...]:
    """The arguments of one update with n rounds. Sums of multiples of 1/256 are exact."""
    generator = torch.Generator().manual_seed(seed)
    action = torch.randint(ARMS, (n,), generator=generator)
    value = torch.randint(-64, 256, (n,), generator=generator).double() / 256
    positive = value.abs() + 1 / 256
    pair = torch.stack([value, -2.0 * value], -1)
    arguments = {"shares": (action,), "values": (value,), "batch": (pair,), "means": (action, value)}
    return arguments.get(name, (positive.clamp(max=1.0),))


def fed(name: str, parts: list[tuple[Tensor, ...]]) -> Any:
    metric = MAKE[name]()
    for part in parts:
        metric.update(*part)
    return metric


def split(arguments: tuple[Tensor, ...], size: int) -> list[tuple[Tensor, ...]]:
    return list(zip(*(one.split(size) for one in arguments), strict=True))


def flat(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


def same(one: ExactMetric, other: ExactMetric) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def assert_equal(one: Any, other: Any) -> None:
    for a, b in zip(flat(one), flat(other), strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("n", [1, 8, 9, 33, 300])
def test_batches_checkpoints_and_resets_change_nothing(name: str, n: int) -> None:
    arguments = data(name, n)
    whole = fed(name, [arguments])
    for size in (1, 7):
        assert same(fed(name, split(arguments, size)), whole)
    file, parts = io.BytesIO(), split(arguments, 7)
    torch.save(fed(name, parts[: len(parts) // 2]).state_dict(), file)
    file.seek(0)
    resumed = MAKE[name]()
    resumed.load_state_dict(torch.load(file))
    for part in parts[len(parts) // 2 :]:
        resumed.update(*part)
    assert same(resumed, whole)
    assert_equal(resumed.compute(), whole.compute())
    resumed.to(torch.float16)
    assert same(resumed, whole)
    resumed.reset()
    assert same(resumed, MAKE[name]())
    assert not any(state.requires_grad for state in whole.state_dict().values())


@pytest.mark.parametrize("name", MAKE)
def test_nothing_is_known_before_the_first_round_or_by_empty_updates(name: str) -> None:
    metric = MAKE[name]()
    empty = tuple(one[:0] for one in data(name, 3))
    metric.update(*empty)
    assert same(metric, MAKE[name]())
    assert all(not bool((value > 0).any()) for value in flat(metric.compute()))
    figure, axes = metric.plot()
    assert axes.figure is figure
    matplotlib.pyplot.close(figure)


BAD: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("shares", (torch.tensor([0, 3]),), ValueError, "action: expected values from 0 to 2, got 0 to 3"),
    ("shares", (torch.tensor([0.0]),), TypeError, "action: expected torch.int64"),
    ("values", (torch.tensor([torch.nan]),), ValueError, "value: expected finite values, got nan"),
    ("batch", (torch.zeros(3),), ValueError, r"value: expected shape \(2\) or \(n, 2\), got \(3\)"),
    ("size", (torch.tensor([-1.0]),), ValueError, "weight: expected values of at least 0, got -1"),
    ("size", (torch.tensor([1e200], dtype=torch.float64),), ValueError, "weight: expected .* magnitude"),
    ("means", (torch.tensor([0, 1]), torch.zeros(3)), ValueError, r"value: expected shape \(2\), got \(3\)"),
    ("means", (torch.tensor([-1]), torch.zeros(1)), ValueError, "action: expected values from 0 to 2"),
    ("means", (torch.tensor([0]), torch.tensor([torch.inf])), ValueError, "value: expected finite values, got inf"),
    ("probabilities", (torch.tensor([0.5, 0.0]),), ValueError, r"probability: expected values in \(0, 1\], got 0"),
    ("probabilities", (torch.tensor([1.5]),), ValueError, r"probability: expected values in \(0, 1\], got 1.5"),
    ("delays", (torch.tensor([torch.nan]),), ValueError, "value: expected finite values, got nan"),
]


@pytest.mark.parametrize(("name", "arguments", "error", "text"), BAD)
def test_bad_input_changes_nothing(name: str, arguments: tuple[Any, ...], error: type[Exception], text: str) -> None:
    metric = fed(name, [data(name, 20)])
    before = copy.deepcopy(metric)
    with pytest.raises(error, match=f"^{text}"):
        metric.update(*arguments)
    assert same(metric, before)


def test_bad_options_and_states_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^points: expected an even number, got 3"):
        ActionShares(2, points=3)
    with pytest.raises(ValueError, match=r"^actions: expected an integer above 0, got 0"):
        MeanByArm(0)
    with pytest.raises(ValueError, match=r"^high: expected a number above low = 2, got 1"):
        LogHistogram(2.0, 1.0)
    for name, state, value in (
        ("means", "sums", torch.full((ARMS, 4), -1.0).double()),
        ("probabilities", "counts", torch.full((122,), -1)),
        ("size", "largest", torch.tensor(-1.0).double()),
        ("values", "extremes", torch.full((2, POINTS), torch.nan).double()),
        ("shares", "spacing", torch.tensor(3)),
    ):
        metric = MAKE[name]()
        with pytest.raises(RuntimeError, match=f"{state}: expected"):
            metric.load_state_dict(metric.state_dict() | {state: value})


def test_shares_against_counts() -> None:
    (action,) = data("shares", 300)
    metric = fed("shares", [(action,)])
    np.testing.assert_allclose(metric.compute(), np.bincount(action) / 300, rtol=1e-15)
    rounds, shares = metric.means()
    ends = [0, *rounds.tolist()]
    for (first, last), share in zip(pairwise(ends), shares, strict=True):
        np.testing.assert_allclose(share, np.bincount(action[first:last], minlength=ARMS) / (last - first), rtol=1e-12)
    metric.update([[0, 1], [2, 2]])  # of a batch
    assert metric.rounds == 304


def test_values_by_time_against_numpy() -> None:
    (value,) = data("values", 300)
    metric = fed("values", split((value,), 11))
    found = metric.by_time()
    assert found.rounds[-1] == 300
    assert POINTS // 2 <= len(found.rounds) <= POINTS + 1
    ends = [0, *found.rounds.tolist()]
    parts = [value[first:last].numpy() for first, last in pairwise(ends)]
    np.testing.assert_allclose(found.mean, [part.mean() for part in parts], rtol=1e-12)
    np.testing.assert_array_equal(found.least, [part.min() for part in parts])
    np.testing.assert_array_equal(found.largest, [part.max() for part in parts])
    np.testing.assert_allclose(metric.compute(), value.mean(), rtol=1e-12)


def test_effective_sample_size_against_the_function() -> None:
    (weight,) = data("size", 300)
    found = fed("size", split((weight,), 13)).compute()
    assert found.effective == pytest.approx(float(effective_sample_size(weight)), rel=1e-12)
    assert found.mean_weight == pytest.approx(float(weight.mean()), rel=1e-12)
    assert found.weight_error == pytest.approx(float(weight.std() / 300**0.5), rel=1e-9)
    assert found.largest_weight == weight.max()
    metric = EffectiveSampleSize()
    metric.update(torch.zeros(3))
    assert metric.compute().effective == 0.0


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_means_by_arm_against_numpy(offset: float) -> None:
    """A mean far from 0 costs no digits of the standard error."""
    action, value = data("means", 300)
    action = action.clamp(max=1)  # the last arm has no rounds
    metric = fed("means", split((action, offset + value), 7))
    count, mean, error = metric.compute()
    for k in range(2):
        mine = value[action == k].numpy()
        assert count[k] == len(mine)
        assert mean[k] == pytest.approx(offset + mine.mean(), rel=1e-15)
        assert error[k] == pytest.approx(mine.std(ddof=1) / len(mine) ** 0.5, rel=1e-6 if offset else 1e-12)
    assert count[2] == 0
    assert mean[2].isnan()
    assert error[2].isnan()
    one = fed("means", [(torch.tensor([1]), torch.tensor([2.0]))]).compute()
    assert one.mean[1] == 2.0
    assert one.standard_error[1].isnan()


def test_quantiles_are_rounded_up_by_less_than_a_bin() -> None:
    generator = torch.Generator().manual_seed(0)
    value = (3.0 * torch.randn(1000, generator=generator, dtype=torch.float64)).exp()
    metric = LogHistogram(1e-4, 1e5)
    for part in value.split(17):
        metric.update(part)
    found = metric.compute()
    exact = value.quantile(torch.tensor([0.01, 0.1, 0.5, 0.9, 0.99]).double(), interpolation="lower")
    assert bool((found.quantiles >= exact).all())
    assert bool(
        (found.quantiles <= 10**0.05 * value.quantile(torch.tensor([0.01, 0.1, 0.5, 0.9, 0.99]).double())).all()
    )
    assert (found.smallest, found.largest) == (value.min(), value.max())
    assert found.mean == pytest.approx(float(value.mean()), rel=1e-12)
    metric.reset()
    metric.update(torch.tensor([-1.0, 0.0, 1e9]))  # outside all bins
    assert int(metric.counts[0]) == 2
    assert int(metric.counts[-1]) == 1
    assert metric.compute().largest == 1e9


COUNTS = [(40, 100), (0, 30), (9, 9), (0, 0), (5, 300)]


def of_ranks() -> list[Any]:
    """What each metric says of the rounds of both ranks."""
    rank, found = distributed.get_rank(), []
    alarm = DriftAlarm(20)
    alarm.update(torch.rand(40))
    alarm.compute()  # gathers nothing: each rank has alarms of its own
    with pytest.raises(RuntimeError, match=r"^sync: expected the rounds of one process, got the rounds of 2"):
        alarm.sync()
    for counts in COUNTS:
        for name in MAKE:
            metric = fed(name, [data(name, counts[rank], seed=rank)])
            before = copy.deepcopy(metric)
            extra = metric.by_time() if hasattr(metric, "by_time") else metric.plot()[1].dataLim.bounds
            found.append((flat(metric.compute()), extra))
            assert same(metric, before)
            with metric.sync_context():
                state = metric.state_dict()
                if hasattr(metric, "by_time"):
                    assert_equal(metric.by_time(), extra)
            if "spacing" in state:  # loads on as many ranks
                metric.reset()
                metric.load_state_dict(state)
                assert same(metric, before)
        matplotlib.pyplot.close("all")
    return found


def test_several_ranks_are_one_process_with_all_rounds() -> None:
    one, other = on_ranks(2, of_ranks)
    cases = [(counts, name) for counts in COUNTS for name in MAKE]
    for (counts, name), (first, by_time), (second, _) in zip(cases, one, other, strict=True):
        assert_equal(tuple(first), tuple(second))
        parts = [data(name, n, seed=rank) for rank, n in enumerate(counts)]
        expected = flat(fed(name, parts).compute())
        for a, b in zip(first, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15, equal_nan=True)
        if name == "values" and sum(counts):
            values, step = [part[0] for part in parts], 1
            while max(counts) > POINTS * step:
                step *= 2
            for i, last in enumerate(range(step, max(counts) + step, step)):
                played = torch.cat([value[last - step : last] for value in values])
                assert by_time.least[i] == played.min()
                assert by_time.largest[i] == played.max()
                assert by_time.mean[i] == pytest.approx(float(played.mean()), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["shares", "values", "batch", "size"])
def test_states_of_several_ranks_are_dealt_out_to_another_number(name: str) -> None:
    parts = [data(name, n, seed=n) for n in (70, 33)]
    states = [fed(name, [part]).state_dict() for part in parts]
    together = {key: torch.stack([state[key] for state in states]) for key in states[0]}
    alone = MAKE[name]()
    alone.load_state_dict(together)
    assert alone.rounds == 103
    for a, b in zip(flat(alone.compute()), flat(fed(name, parts).compute()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    alone.update(*data(name, 1))
    assert alone.rounds == 104
    if name == "values":
        found = alone.by_time()
        assert found.least.min() == min(part[0].min() for part in parts)
        assert found.largest.max() == max(part[0].max() for part in parts)
        assert bool((found.least <= found.mean).all())
        assert bool((found.mean <= found.largest).all())


def test_plots_show_the_numbers() -> None:
    shares, means, size = (fed(name, [data(name, 40)]) for name in ("shares", "means", "size"))
    _, axes = shares.plot(labels=["a", "b", "c"])
    bands = [patch.get_data() for patch in axes.patches]
    assert axes.get_legend_handles_labels()[1] == ["a", "b", "c"]
    np.testing.assert_allclose(bands[0].values, shares.means()[1][:, 0])
    np.testing.assert_allclose(bands[-1].values, np.ones(len(shares.means()[0])))
    _, axes = means.plot()
    np.testing.assert_allclose(axes.lines[0].get_ydata(), means.compute().mean)
    assert axes.get_ylabel() == "mean reward"
    _, axes = size.plot()
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(float(size.compute().effective))
    probabilities = fed("probabilities", [data("probabilities", 40)])
    _, axes = probabilities.plot()
    assert sum(axes.patches[0].get_data().values) == 40
    values = fed("values", [data("values", 40)])
    _, axes = values.plot(label="reward")
    np.testing.assert_allclose(axes.lines[0].get_ydata(), values.by_time().mean)
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == float(values.by_time().largest.max())
    many = ActionShares(12)
    many.update(torch.arange(12).repeat(3))
    _, axes = many.plot()
    assert axes.get_legend_handles_labels()[1] == [*(f"action {k}" for k in range(10)), "others"]
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("shares", "ActionShares(actions=3, points=8)"),
        ("batch", "ValueByTime(name='reward', batch_shape=(2,), points=8)"),
        ("size", "EffectiveSampleSize(points=8)"),
        ("means", "MeanByArm(actions=3)"),
        ("probabilities", "LoggedProbabilities()"),
        ("delays", "LogHistogram(low=0.01, high=100)"),
    ],
)
def test_repr_says_what_was_asked_for(name: str, text: str) -> None:
    assert repr(MAKE[name]()) == text
