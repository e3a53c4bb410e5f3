"""Tests of DriftAlarm: false alarms counted, changes found, and thresholds that would be wrong rejected."""

import copy
import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot
import numpy as np
import pytest
import torch
from torch import Tensor

from torchonline.environments import GaussianNoise, Noise, Pareto, StudentT
from torchonline.metrics import DriftAlarm, DriftWarning, StreamVariation

matplotlib.use("Agg")

ALPHA, WINDOW, STREAMS, WINDOWS = 0.05, 50, 2000, 41


def clicks(n: int, generator: torch.Generator, rate: float = 0.5) -> Tensor:
    return (torch.rand(n, STREAMS, generator=generator) < rate).double()


def of(noise: Noise) -> Callable[[int, torch.Generator], Tensor]:
    return lambda n, generator: noise.sample((n, STREAMS), generator)


def seasonal(n: int, generator: torch.Generator) -> Tensor:
    """Independent values whose mean and spread repeat with the window."""
    place = (torch.arange(n).double() % WINDOW / WINDOW).unsqueeze(-1)
    return 5.0 * place + (0.1 + place) * GaussianNoise().sample((n, STREAMS), generator)


LAWS = {
    "normal": of(GaussianNoise()),
    "Student-t, no variance": of(StudentT(1.5)),
    "one-sided Pareto": of(Pareto(1.1)),
    "clicks": clicks,
    "seasonal": seasonal,
}


def played(draw: Callable[[int, torch.Generator], Tensor]) -> tuple[DriftAlarm, Tensor]:
    """An alarm after streams without drift, and its statistics up to the first alarms."""
    generator = torch.Generator().manual_seed(0)
    alarm = DriftAlarm(WINDOW, ALPHA, (STREAMS,), warn=False)
    for _ in range(WINDOWS):
        alarm.update(draw(WINDOW, generator))
    thresholds = torch.tensor([alarm.threshold(j) for j in range(1, WINDOWS)], dtype=torch.float64)
    return alarm, alarm.recent()[1][1:] * thresholds.unsqueeze(-1)


@pytest.mark.parametrize("law", LAWS)
def test_false_alarms_are_rarer_than_alpha_and_wrong_thresholds_are_rejected(law: str) -> None:
    """2000 streams: alpha holds for all looks; windows reused without spending alpha, or a z-test, break it."""
    alarm, statistics = played(LAWS[law])
    # Three standard errors above alpha.
    most = ALPHA + 3.0 * math.sqrt(ALPHA * (1.0 - ALPHA) / STREAMS)
    assert (alarm.compute().alarms > 0).double().mean() <= most
    z_test = (statistics >= 1.96).any(0).double().mean()
    assert z_test > 4.0 * most
    if law != "clicks":  # whose statistics are as a few values apart
        unspent = (statistics >= math.sqrt(2.0 * math.log(4.0 / ALPHA))).any(0).double().mean()
        assert unspent > most
        too_low = (statistics >= 2.0 / 3.0 * alarm.threshold(1)).any(0).double().mean()
        assert too_low > most


@pytest.mark.parametrize(
    ("draw", "shift"),
    [(of(GaussianNoise()), 1.5), (of(StudentT(1.5)), 5.0), (of(Pareto(1.1)), 5.0), (clicks, -1.0), (seasonal, 3.0)],
)
def test_a_change_is_found_soon(draw: Callable[[int, torch.Generator], Tensor], shift: float) -> None:
    """Most streams have an alarm in the first window after a change; heavy tails do not hide it."""
    generator = torch.Generator().manual_seed(1)
    alarm = DriftAlarm(WINDOW, ALPHA, (STREAMS,), warn=False)
    alarm.update(draw(10 * WINDOW, generator))
    before = (alarm.compute().alarms > 0).double().mean()
    alarm.update(draw(WINDOW, generator) + shift)
    found = alarm.compute()
    assert before < ALPHA
    assert (found.last_at == 11 * WINDOW).double().mean() > 0.9
    # The window of the alarm is no reference: the next one is, and nothing changes from there on.
    alarm.update(draw(11 * WINDOW, generator) + shift)
    assert (alarm.compute().alarms > found.alarms).double().mean() < ALPHA
    assert bool((found.reference.isnan() == (found.last_at == 11 * WINDOW)).all())
    # It changes back.
    alarm.update(draw(WINDOW, generator))
    assert (alarm.compute().alarms >= 2).double().mean() > 0.8


@pytest.mark.fast
def test_statistics_against_numpy() -> None:
    generator = torch.Generator().manual_seed(2)
    values = torch.rand(200, generator=generator, dtype=torch.float64)
    alarm = DriftAlarm(WINDOW, ALPHA)
    alarm.update(values)
    x = values.numpy().reshape(4, WINDOW)
    rounds, ratios = alarm.recent()
    assert rounds.tolist() == [50, 100, 150, 200]
    assert ratios[0].isnan()
    for j in range(1, 4):
        d = x[j] - x[0]
        statistic = max(abs(d.sum()) / np.sqrt((d**2).sum()), abs(np.sign(d).sum()) / np.sqrt(WINDOW))
        threshold = math.sqrt(2.0 * math.log(4.0 * 2.0 * j * (j + 1) / ALPHA))
        assert ratios[j] == pytest.approx(statistic / threshold, rel=1e-12)
        assert alarm.threshold(j) == pytest.approx(threshold, rel=1e-12)
    assert alarm.threshold(3, 2) == pytest.approx(math.sqrt(2.0 * math.log(4.0 * 12.0 * 12.0 / ALPHA)), rel=1e-12)
    found = alarm.compute()
    assert found.reference == pytest.approx(x[0].mean())
    assert found.latest == pytest.approx(x[3].mean())
    assert found.ratio == ratios[3]
    assert (found.rounds, found.alarms, found.first_at, found.last_at) == (200, 0, 0, 0)


def test_constant_values_and_short_streams_raise_no_alarm() -> None:
    alarm = DriftAlarm(20)
    found = alarm(torch.ones(()))
    assert found.reference.isnan()
    assert found.latest.isnan()
    assert found.ratio.isnan()
    alarm.update(torch.ones(99))
    assert alarm.compute().ratio == 0.0


def fed(values: Tensor, size: int) -> DriftAlarm:
    alarm = DriftAlarm(30, 0.1, tuple(values.shape[1:]), warn=False)
    for part in values.split(size):
        alarm.update(part)
    return alarm


def same(one: DriftAlarm, other: DriftAlarm) -> bool:
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("batch", [(), (3,)])
def test_batches_and_checkpoints_change_nothing(batch: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(3)
    values = torch.rand(270, *batch, generator=generator)
    values[105:195] += 5.0
    whole = fed(values, 270)
    assert bool((whole.compute().alarms > 0).all())
    for size in (1, 7):
        assert same(fed(values, size), whole)
    for cut in (5, 100, 120, 141):
        file, resumed = io.BytesIO(), DriftAlarm(30, 0.1, batch, warn=False)
        torch.save(fed(values[:cut], 7).state_dict(), file)
        file.seek(0)
        resumed.load_state_dict(torch.load(file))
        resumed.update(values[cut:])
        assert same(resumed, whole)
    if batch:  # a batch is so many streams
        for i in range(3):
            assert int(fed(values[:, i], 270).compute().alarms) == int(whole.compute().alarms[i])
    whole.reset()
    assert same(whole, DriftAlarm(30, 0.1, batch))


def test_each_alarm_warns_once_where_the_caller_stands() -> None:
    alarm = DriftAlarm(20, 0.05, (2,))
    values = torch.rand(60, 2, generator=torch.Generator().manual_seed(4))
    values[20:, 1] += 5.0
    with pytest.warns(
        DriftWarning, match=r"^values have changed in stream \[1\]: after 40 of them, the mean"
    ) as record:
        alarm.update(values)
    assert len(record) == 1
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alarm.update(values[:20] + torch.tensor([0.0, 5.0]))
        DriftAlarm(20, 0.05, warn=False).update(values[:, 1])


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (torch.tensor([torch.nan]), ValueError, "value: expected finite values, got nan"),
        (torch.tensor([1e200], dtype=torch.float64), ValueError, "value: expected values of magnitude at most"),
        (torch.ones(2, 2), ValueError, r"value: expected shape \(\) or \(n\), got \(2, 2\)"),
        (torch.ones(2, dtype=torch.int64), TypeError, "value: expected a floating-point tensor"),
    ],
)
def test_bad_values_change_nothing(value: Any, error: type[Exception], text: str) -> None:
    alarm = fed(torch.rand(75), 75)
    before = copy.deepcopy(alarm)
    with pytest.raises(error, match=f"^{text}"):
        alarm.update(value)
    assert same(alarm, before)


def test_bad_options_and_states_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^alpha: expected a number in \(0.0, 1.0\), got 1"):
        DriftAlarm(alpha=1.0)
    with pytest.raises(ValueError, match=r"^window: expected an integer above 0, got 0"):
        DriftAlarm(0)
    with pytest.raises(ValueError, match=r"^window: expected at least 15 values for alpha = 0.01, got 14"):
        DriftAlarm(14)
    with pytest.raises(TypeError, match=r"^warn: expected True or False, got int"):
        DriftAlarm(warn=1)  # type: ignore[arg-type]
    state = DriftAlarm(30, 0.1).state_dict()
    with pytest.raises(RuntimeError, match=r"window: expected a state made with 20, got one made with 30"):
        DriftAlarm(20, 0.1).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"alpha: expected a state made with 0.2, got one made with 0.1"):
        DriftAlarm(30, 0.2).load_state_dict(state)
    with pytest.raises(RuntimeError, match="epoch: expected at least 0, got -1"):
        DriftAlarm(30, 0.1).load_state_dict(state | {"epoch": torch.tensor(-1)})


def test_the_plot_shows_the_ratios() -> None:
    alarm = fed(torch.rand(305, 2, generator=torch.Generator().manual_seed(5)), 305)
    figure, axes = alarm.plot()
    rounds, ratios = alarm.recent()
    assert axes.lines[0].get_xdata().tolist() == rounds[1:].tolist()
    np.testing.assert_allclose(axes.lines[0].get_ydata(), ratios[1:].amax(1))
    matplotlib.pyplot.close(figure)


def test_a_threshold_is_of_counts() -> None:
    alarm = DriftAlarm()
    wrong: Any
    for wrong in (0, 1.5, 10**30, torch.ones(2)):
        with pytest.raises((TypeError, ValueError), match=r"^comparison: expected"):
            alarm.threshold(wrong)
    for wrong in (-1, 0.5, 10**30, torch.ones(2)):
        with pytest.raises((TypeError, ValueError), match=r"^alarms: expected"):
            alarm.threshold(1, wrong)


def test_a_stream_has_gradients() -> None:
    with pytest.raises(TypeError, match=r"^stream: expected .*, got list$"):
        StreamVariation().update([], torch.zeros(3))
