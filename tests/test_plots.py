"""What all plots have in common, and pictures of them: see tests/pictures.py."""

import inspect
import itertools
import sys
import warnings
from typing import Any

import matplotlib
import pytest
import torch
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torchmetrics import Metric

import torchonline.metrics
from tests.pictures import PICTURES, TOLERANCE, arms, distance, kept, learnt, pixels, regret
from torchonline import DPTOFW
from torchonline.core.axes import GREY, axes_or_new, label_right
from torchonline.diagnostics import NoiseDiagnostic
from torchonline.metrics import ActionShares, CumulativeRegret, LogHistogram

EACH = pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)


@EACH
def test_the_picture_is_as_it_was_looked_at(draw: Any) -> None:
    assert distance(pixels(draw()), kept(draw.__name__)) < TOLERANCE


@EACH
def test_a_wrong_picture_is_found(draw: Any) -> None:
    """Another picture, and the right one without its first curve, marks or bars."""
    assert all(distance(kept(other.__name__), kept(draw.__name__)) > 4.0 for other in PICTURES if other is not draw)
    figure = draw()
    (figure.axes[0].patches or figure.axes[0].lines)[0].set_visible(False)
    assert distance(pixels(figure), kept(draw.__name__)) > 1.2 * TOLERANCE


def test_no_global_state_changes_and_new_figures_are_pyplots() -> None:
    before = dict(matplotlib.rcParams)
    figure = regret()
    assert dict(matplotlib.rcParams) == before
    assert figure.number in pyplot.get_fignums()


@EACH
@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_marks_and_text_differ_from_the_background(draw: Any, style: str) -> None:
    def light(colour: Any) -> float:
        red, green, blue = to_rgb(colour)
        return 0.3 * red + 0.59 * green + 0.11 * blue

    with pyplot.style.context(style):
        figure = draw()
    paper = light(figure.get_facecolor())
    axes = figure.axes[0]
    shown = [text.get_color() for text in [*axes.texts, axes.xaxis.label, axes.yaxis.label]]
    shown += [line.get_color() for line in axes.lines]
    assert all(abs(light(colour) - paper) > 0.25 for colour in shown)


@EACH
def test_labels_lie_within_the_figure_and_apart(draw: Any) -> None:
    figure = draw()
    figure.draw_without_rendering()
    axes = figure.axes[0]
    ticks = [
        label
        for axis in (part for one in (axes, *axes.child_axes) for part in (one.xaxis, one.yaxis))
        for label, place in zip(axis.get_ticklabels(), axis.get_ticklocs(), strict=True)
        if min(axis.get_view_interval()) <= place <= max(axis.get_view_interval())
    ]
    labels = [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label]
    boxes = {text: text.get_window_extent() for text in [*labels, *ticks] if text.get_text()}
    paper = figure.bbox.padded(1.0)
    for text in filter(boxes.__contains__, labels):
        box = boxes[text]
        assert paper.contains(box.x0, box.y0), text
        assert paper.contains(box.x1, box.y1), text
        inner = box.padded(-1.0)
        assert [other for other, its in boxes.items() if other is not text and inner.overlaps(its)] == []


def test_lines_in_the_same_axes_differ_without_colour() -> None:
    first, second = regret().axes[0].lines
    assert first.get_linestyle() != second.get_linestyle()


def test_every_public_metric_has_a_plot_by_torchmetrics_convention() -> None:
    public = [getattr(torchonline.metrics, name) for name in torchonline.metrics.__all__]
    metrics = [one for one in public if inspect.isclass(one) and issubclass(one, Metric)]
    assert len(metrics) >= 13
    for cls in [*metrics, NoiseDiagnostic]:
        assert cls.plot is not Metric.plot
        parameters = list(inspect.signature(cls.plot).parameters.values())
        assert [(one.name, one.default) for one in parameters[1:3]] == [("val", None), ("ax", None)], cls
        assert all(one.kind is one.KEYWORD_ONLY for one in parameters[3:]), cls


def test_labels_that_would_overlap_move_apart_in_order() -> None:
    axes = Figure(figsize=(4.0, 3.0)).add_subplot()
    axes.set_ylim(0.0, 1.0)
    for height, text in ((0.5, "middle"), (0.51, "above"), (0.1, "far"), (0.49, "below")):
        label_right(axes, height, text, GREY)
    axes.figure.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    order = ["far", "below", "middle", "above"]
    for low, high in itertools.pairwise(order):
        assert boxes[low].y1 <= boxes[high].y0 + 0.5
    center = axes.transData.transform((0.0, 0.1))[1]
    assert 0.5 * (boxes["far"].y0 + boxes["far"].y1) == pytest.approx(center, abs=3.0)


def test_wrong_axes_and_a_missing_matplotlib_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"^ax: expected matplotlib axes or None, got str"):
        axes_or_new("axes")
    with pytest.raises(TypeError, match=r"^val: expected a result of compute\(\) or None, got axes; .* plot\(ax=...\)"):
        torchonline.metrics.CumulativeRegret().plot(Figure().add_subplot())
    for name in ["matplotlib", *(name for name in sys.modules if name.startswith("matplotlib."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"^plot: expected matplotlib, got none; pip install .\.\[plots\]"):
        learnt().plot_confidence(arms())


def test_plots_change_no_state() -> None:
    policy = learnt()
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    policy.plot_confidence(arms())
    policy.estimator.plot_confidence_set()
    assert all(torch.equal(value, policy.state_dict()[name]) for name, value in before.items())


def test_plots_do_not_depend_on_the_default_device() -> None:
    """What a plot makes stays beside what it draws, also after ``torch.set_default_device("cuda")``."""
    learner, diagnostic, metrics = (
        learnt(),
        NoiseDiagnostic(),
        (ActionShares(3), CumulativeRegret((3,)), LogHistogram(0.01, 100.0)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        diagnostic.update(torch.linspace(0.01, 1.0, 400) ** -1.0, noise_scale=1.0)
    metrics[0].update(torch.arange(60) % 3)
    metrics[1].update(torch.ones(5, 3))
    metrics[2].update(torch.linspace(0.1, 9.0, 50))
    results = [metric.compute() for metric in metrics]
    private, shown = DPTOFW(2, horizon=64, epsilon=1.0, delta=1e-3), arms()
    with torch.device("meta"):  # a tensor that is made there has no values to draw
        for metric, result in zip(metrics, results, strict=True):
            metric.plot()
            metric.plot([result, result])
        diagnostic.plot()
        learner.plot_confidence(shown)
        learner.estimator.plot_confidence_set()
        private.plot_privacy()
