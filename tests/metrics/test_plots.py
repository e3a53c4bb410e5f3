"""The plots of the metrics: what is drawn of results, of lists of them and of histories."""

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import pyplot

from torchonline import DPTOFW
from torchonline.diagnostics import NoiseDiagnostic, NoiseScaleWarning
from torchonline.environments import SEAStream
from torchonline.metrics import (
    ActionShares,
    CumulativeRegret,
    DriftAlarm,
    EffectiveSampleSize,
    GradientVariation,
    LogHistogram,
    MeanByArm,
    PrivacySpent,
    StreamVariation,
    ValueByTime,
)


def bars(axes: Any) -> list[float]:
    return [bar.get_width() for bar in axes.containers[0]]


def names(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_a_result_is_bars_and_a_list_of_them_lines_with_names() -> None:
    metric = CumulativeRegret((3,))
    metric.update(torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]]))
    axes = metric.plot(metric.compute())[1]
    assert bars(axes) == [1.5, 2.5, 3.5]
    assert names(axes.yaxis) == ["learner 0", "learner 1", "learner 2"]
    assert texts(axes) == ["1.5", "2.5", "3.5"]
    figure, axes = pyplot.subplots()
    assert metric.plot([metric.compute(), 2.0 * metric.compute()], axes) == (figure, axes)
    assert [line.get_ydata().tolist() for line in axes.lines] == [[1.5, 3.0], [2.5, 5.0], [3.5, 7.0]]
    assert texts(axes) == ["learner 0", "learner 1", "learner 2"]
    assert len({line.get_linestyle() for line in axes.lines}) == 3
    one = CumulativeRegret()
    axes = one.plot([one(torch.tensor(1.0)), one(torch.tensor(2.0))])[1]
    assert axes.lines[0].get_ydata().tolist() == [1.0, 2.0]
    assert texts(axes) == []


def test_a_large_batch_is_a_mean_with_a_band() -> None:
    metric = CumulativeRegret((4, 5))
    metric.update(torch.arange(20.0).reshape(4, 5))
    axes = metric.plot([metric.compute(), metric.compute()])[1]
    assert axes.lines[0].get_ydata().tolist() == [9.5, 9.5]
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == 19.0


def test_empty_lists_are_empty_plots() -> None:
    for metric in (CumulativeRegret(), EffectiveSampleSize(), LogHistogram(1.0, 10.0), MeanByArm(2), DriftAlarm()):
        assert all(len(line.get_xdata()) == 0 or line.get_linestyle() == ":" for line in metric.plot([])[1].lines)


def test_metrics_without_rounds_say_so_until_there_are_some() -> None:
    for metric in (
        CumulativeRegret(),
        ActionShares(3),
        ValueByTime(),
        LogHistogram(1.0, 10.0),
        DriftAlarm(),
        NoiseDiagnostic(),
        GradientVariation(),
        StreamVariation(),
        PrivacySpent(delta=1e-3),
        MeanByArm(3),
        EffectiveSampleSize(),
    ):
        axes = metric.plot()[1]
        assert "nothing recorded yet" in texts(axes), metric
    empty, full = CumulativeRegret(), CumulativeRegret()
    full.update(torch.tensor([1.0, 2.0]))
    axes = full.plot(ax=empty.plot()[1])[1]
    assert texts(axes) == []
    empty.plot(ax=axes)
    assert texts(axes) == []


def test_labels_stand_at_the_ends_of_curves() -> None:
    metric = ValueByTime("width")
    metric.update(torch.tensor([4.0, 2.0, 1.0]))
    axes = metric.plot(label="mine")[1]
    metric.plot(ax=axes, label="other")
    assert [text.xy for text in axes.texts] == [(1.0, 1.0), (1.0, 1.0)]
    assert texts(axes) == ["mine", "other"]
    assert axes.get_ylabel() == "width"


def test_shares_and_means_name_their_actions() -> None:
    shares, means = ActionShares(3), MeanByArm(3, "regret")
    action = torch.tensor([0, 2, 2, 0])
    shares.update(action)
    means.update(action, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    axes = shares.plot(shares.compute(), labels=["a", "b", "c"])[1]
    assert (bars(axes), names(axes.yaxis)) == ([0.5, 0.0, 0.5], ["a", "b", "c"])
    assert sorted(texts(shares.plot()[1])) == ["action 0", "action 2"]
    axes = means.plot(means.compute(), labels=["a", "b", "c"])[1]
    assert names(axes.xaxis) == ["a", "c"]
    axes = means.plot([means.compute()])[1]
    assert texts(axes) == ["action 0", "action 1", "action 2"]


def test_metrics_take_names_of_actions() -> None:
    shares, means = ActionShares(["a", "b$", "c"]), MeanByArm(["a", "b$", "c"])
    assert (shares.actions, means.actions) == (3, 3)
    shares.update([0, 1])
    means.update([0, 1], torch.tensor([1.0, 2.0]))
    assert names(shares.plot(shares.compute())[1].yaxis) == ["a", r"b\$", "c"]
    assert names(means.plot()[1].xaxis) == ["a", r"b\$"]
    assert names(means.plot(labels=["x", "y", "z"])[1].xaxis) == ["x", "y"]


def test_a_wrong_number_of_names_is_refused() -> None:
    for metric in (ActionShares(3), MeanByArm(3)):
        with pytest.raises(ValueError, match=r"^labels: expected 3 names, one for each action, got \['a'\]"):
            metric.plot([], labels=["a"])


def test_many_decisions_are_shown_between_at_most_fifty_points() -> None:
    shares = ActionShares(2)
    shares.update(torch.arange(1000) % 2)
    first = shares.plot()[1].patches[0].get_data()
    assert 25 <= len(first.values) <= 50
    assert first.edges[-1] == 1000
    np.testing.assert_allclose(first.values, 0.5, atol=0.03)


def test_sample_sizes_and_spreads() -> None:
    size = EffectiveSampleSize()
    size.update(torch.tensor([1.0, 1.0, 0.0, 4.0]))
    assert bars(size.plot(size.compute())[1]) == [2.0]
    assert size.plot([size.compute()] * 2)[1].lines[0].get_ydata().tolist() == [2.0, 2.0]
    spread = LogHistogram(1e-3, 1e3, name="delay")
    spread.update(torch.tensor([0.5, 2.0, 2.0, 30.0]))
    report = spread.compute()
    axes = spread.plot(report)[1]
    assert list(axes.lines[0].get_xdata()) == [0.5, 30.0]
    assert texts(axes)[0] == f"median {float(report.quantiles[2]):.3g}"
    axes = spread.plot([report, report])[1]
    assert axes.lines[0].get_ydata().tolist() == [float(report.quantiles[2])] * 2
    (median,) = spread.plot()[1].lines
    assert list(median.get_xdata()) == [float(report.quantiles[2])] * 2


def test_drift_reports_are_drawn_at_their_rounds_with_one_threshold() -> None:
    alarm, reports = DriftAlarm(50, 0.1, warn=False), []
    for i in range(4):
        alarm.update(torch.rand(50, generator=torch.Generator().manual_seed(i)))
        reports.append(alarm.compute())
    axes = alarm.plot(reports, label="mine")[1]
    assert axes.lines[0].get_xdata().tolist() == [100, 150, 200]
    assert axes.lines[0].get_ydata().tolist() == [float(report.ratio) for report in reports[1:]]
    alarm.plot(ax=axes)
    assert texts(axes) == ["mine", "alarm"]
    assert alarm.plot(reports[-1])[1].lines[0].get_xdata().tolist() == [200]


def test_numbers_by_name_and_privacy() -> None:
    stream = SEAStream(3, loss="logistic", sigma=0.5, drift=0.1)
    metric, variation, x = StreamVariation(), GradientVariation(), torch.zeros(3)
    metric.update(stream, x)
    variation.update(stream.gradients(x), stream.expected_gradients(x))
    found = metric.compute()
    axes = metric.plot()[1]
    assert names(axes.yaxis) == list(found)
    assert bars(axes) == pytest.approx([float(value) for value in found.values()])
    assert texts(metric.plot([found, found])[1]) == list(found)
    assert bars(variation.plot()[1]) == pytest.approx([float(variation.compute())])
    learner, spent = DPTOFW(2, horizon=100, epsilon=1.0, delta=1e-3), PrivacySpent(delta=1e-3)
    learner.step(None)
    spent.update(learner)
    axes = spent.plot()[1]
    assert bars(axes) == [float(spent.compute())]
    assert axes.get_xlabel() == "epsilon at delta = 0.001"


def test_the_tail_has_the_largest_residuals_hills_line_and_the_bound() -> None:
    diagnostic = NoiseDiagnostic(1.5, largest=64)
    u = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
    with pytest.warns(NoiseScaleWarning):
        diagnostic.update(2.0 * u ** (-1.0 / 1.2), noise_scale=2.0)
    figure, axes = diagnostic.plot()
    points, bound, hill = axes.lines
    sizes, shares = points.get_xydata().T
    np.testing.assert_allclose(sizes, u[:64] ** (-1.0 / 1.2))
    np.testing.assert_allclose(shares, np.arange(1, 65) / 400)
    x, y = bound.get_xydata().T
    np.testing.assert_allclose(y, np.minimum(1.0, x**-1.5))
    (x0, x1), (y0, y1) = hill.get_xydata().T
    assert np.log(y0 / y1) / np.log(x1 / x0) == pytest.approx(float(diagnostic.compute().tail_index))
    assert (x0, y0) == (pytest.approx(sizes[20]), 20 / 400)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert texts(axes) == ["promise: at most $x^{-1.5}$", "Hill: $x^{-1.2}$"]
    assert axes.figure is figure


def test_the_evidence_of_reports_and_batches() -> None:
    diagnostic, reports = NoiseDiagnostic(batch_shape=(2,)), []
    for _ in range(3):
        reports.append(diagnostic(torch.tensor([[0.5, 1.1]] * 10), noise_scale=1.0))
    axes = diagnostic.plot(reports, index=1)[1]
    assert axes.lines[0].get_xydata().tolist() == [[10 * i + 10, float(reports[i].evidence[1])] for i in range(3)]
    assert axes.lines[1].get_ydata()[0] == pytest.approx(np.log(100.0))
    assert texts(axes) == ["too small\n(alpha = 0.01)"]
    with pytest.raises(ValueError, match=r"^index: expected one of the \(2\) learners, such as index=0, got None"):
        diagnostic.plot()
    assert diagnostic.plot(index=0)[1].get_xscale() == "log"
    assert len(NoiseDiagnostic().plot()[1].lines) == 0
