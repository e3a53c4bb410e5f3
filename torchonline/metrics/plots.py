"""Plots of the results of metrics."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from torchonline.core.axes import axes_or_new, label_end, label_right, next_style, note_if_empty

# Up to this many values of a batch of learners are shown one by one; more are shown as their mean and range.
MOST_LINES = 8
# Lines of up to this many points have markers.
MOST_MARKERS = 30


def check_result(val: Any) -> None:
    """Raise if axes are given in place of a result."""
    if hasattr(val, "transAxes"):
        raise TypeError("val: expected a result of compute() or None, got axes; give them by plot(ax=...)")


def axes_for(val: Any, ax: Any) -> Any:
    """Return the axes to draw on. Raise if axes are given as a result."""
    check_result(val)
    return axes_or_new(ax)


def finished(axes: Any) -> tuple[Any, Any]:
    """Return the figure and the axes, with a note if nothing was drawn."""
    note_if_empty(axes)
    return axes.figure, axes


def results_of(val: Any) -> list[Any] | None:
    """Return a list of results, or None for a single result.

    A report, which is a named tuple, is a single result.
    """
    return list(val) if isinstance(val, (list, tuple)) and not hasattr(val, "_fields") else None


def draw_results(axes: Any, val: Any, named: str, names: list[str] | None = None) -> None:
    """Draw a tensor, numbers by name, or the lines of a list of such results."""
    results = results_of(val)
    first = val if results is None else next(iter(results), torch.zeros(0))
    if isinstance(first, Mapping):
        names = list(first)
        results = None if results is None else [_stacked(result) for result in results]
        val = _stacked(first)
    if results is None:
        draw_values(axes, torch.as_tensor(val, device="cpu"), named, names)
    else:
        steps = torch.arange(len(results), device="cpu")
        values = [torch.as_tensor(result, device="cpu").double() for result in results]
        draw_lines(axes, steps, torch.stack(values) if values else torch.zeros(0), named, names)
        axes.set_xlabel("step")


def draw_values(axes: Any, values: Tensor, named: str, names: list[str] | None = None) -> None:
    """Draw one number or several, as bars with their values."""
    numbers = values.detach().double().cpu().reshape(-1).tolist()
    names = _names(values.shape) if names is None else names
    bars = axes.barh(range(len(numbers)), numbers, height=0.6)
    axes.bar_label(bars, [f"{number:.4g}" for number in numbers], padding=4)
    axes.set_yticks(range(len(numbers)), names if len(numbers) == len(names) else [""] * len(numbers))
    axes.tick_params(axis="y", length=0)
    room = max(0.0, 0.5 * (4 - len(numbers)))  # so that few bars are not thick
    axes.set_ylim(len(numbers) - 0.4 + room, -0.6 - room)
    axes.margins(x=0.15)
    axes.set_xlabel(named)


def draw_lines(axes: Any, x: Tensor, values: Tensor, named: str, names: list[str] | None = None) -> None:
    """Draw lines of values ``(p, ...)`` at p points, each with its name at its end.

    More than eight unnamed lines are drawn as their mean, with a band from least to largest.
    """
    rows = values.detach().double().cpu().reshape(len(x), -1).T if len(x) else torch.zeros(0, 0)
    at = x.cpu().numpy()
    if names is None and len(rows) > MOST_LINES:
        draw_band(axes, x, values.mean(tuple(range(1, values.dim()))), rows.amin(0), rows.amax(0))
    else:
        names = _names(values.shape[1:]) if names is None else names
        for row, name in zip(rows, names, strict=True) if len(rows) else ():
            (line,) = axes.plot(at, row.numpy(), next_style(axes), marker="." if len(x) <= MOST_MARKERS else "")
            if name:
                label_end(axes, line, name)
    axes.set_ylabel(named)


def draw_band(axes: Any, x: Tensor, middle: Tensor, low: Tensor, high: Tensor, label: str | None = None) -> None:
    """Draw a line and its band, ``(p)`` each, with a label at the line's end."""
    at, mean, least, largest = (part.detach().cpu().numpy() for part in (x, middle, low, high))
    (line,) = axes.plot(at, mean, next_style(axes), label=label)
    if len(at) and bool((largest > least).any()):
        axes.fill_between(at, least, largest, color=line.get_color(), alpha=0.2, linewidth=0)
    if label is not None:
        label_end(axes, line, label)


def draw_curve(axes: Any, rounds: Tensor, totals: Tensor, named: str, label: str | None = None) -> None:
    """Draw the mean of a curve ``(p, ...)``, in a band from least to largest."""
    rows = totals.unsqueeze(-1).flatten(1)
    draw_band(axes, rounds, rows.mean(1), *extremes(rows), label)
    axes.set_xlabel("round")
    axes.set_ylabel(named)


def draw_bands(axes: Any, rounds: Tensor, bands: Tensor, labels: list[str], colours: list[str]) -> None:
    """Draw shares ``(bands, p)`` between p points, one on top of another."""
    ends = torch.cat([rounds.new_zeros(1), rounds]).numpy()
    bottom = bands.new_zeros(len(rounds))
    for band, label, colour in zip(bands, labels, colours, strict=False) if len(rounds) else ():
        axes.stairs((bottom + band).numpy(), ends, baseline=bottom.numpy(), fill=True, color=colour, label=label)
        bottom = bottom + band
    axes.set_xlabel("decision")
    axes.set_ylabel("share of decisions")
    axes.set_ylim(0.0, 1.0)


def label_bands(axes: Any, rounds: Tensor, bands: Tensor, labels: list[str], colours: list[str]) -> None:
    """Separate the bands by lines, and write each label to the right of its band."""
    tops = bands.cumsum(0)
    ends = torch.cat([rounds.new_zeros(1), rounds]).numpy()
    for band, top, label, colour in zip(bands, tops, labels, colours, strict=False) if len(rounds) else ():
        axes.stairs(top.numpy(), ends, baseline=None, color=axes.get_facecolor(), linewidth=1.0)
        if bool((band > 0.0).any()):
            label_right(axes, float(top[-1] - 0.5 * band[-1]), label, colour)
    if len(rounds):
        axes.set_xlim(0, ends[-1])


def extremes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value of each row: ``(p, n)`` to ``(p)``."""
    return (rows.amin(1), rows.amax(1)) if rows.numel() else (rows.sum(1), rows.sum(1))


def _stacked(numbers: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([torch.as_tensor(value, device="cpu").double().mean() for value in numbers.values()])


def _names(shape: tuple[int, ...]) -> list[str]:
    """Return a name for each learner of a batch; "" for a single one."""
    if len(shape) == 0:
        return [""]
    places = product(*(range(n) for n in shape))
    return [f"learner {place[0]}" if len(place) == 1 else f"learner {place}" for place in places]
