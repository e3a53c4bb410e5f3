"""Matplotlib axes, and labels next to what they name."""

import math
from typing import Any

from torchonline.core.messages import install_extra

# Group ids of labels. Labels at the ends of lines move apart where they would overlap.
END, TOP = "torchonline: label at an end", "torchonline: label on top"
EMPTY = "torchonline: note on empty axes"
# The styles of the lines in one pair of axes, in turn, so that they differ without colour too.
LINE_STYLES = ("-", "--", "-.", ":")
# Neither black nor white, so that it shows on light and on dark backgrounds.
GREY = "0.5"


def axes_or_new(ax: Any = None, size: tuple[float, float] = (6.4, 4.0)) -> Any:
    """Return matplotlib axes, or raise; None gives the axes of a new pyplot figure.

    ``size`` is the width and height of a new figure, in inches. Pyplot figures, like those of torchmetrics, appear in notebooks
    and by ``pyplot.show()``. To draw many, close the figure or pass axes.

    Raises:
        TypeError: ``ax`` is anything else.
        ImportError: matplotlib is not installed.
    """
    if ax is not None:
        if not hasattr(ax, "transAxes"):
            raise TypeError(f"ax: expected matplotlib axes or None, got {type(ax).__name__}")
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"plot: expected matplotlib, got none; {install_extra('plots')}") from error
    return plt.subplots(figsize=size, layout="constrained")[1]


def axes_of_figure(size: tuple[float, float] = (6.4, 4.0)) -> Any:
    """Return axes of a figure outside pyplot, which nobody has to close.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").add_subplot()


def plain_label(text: str) -> str:
    """Return text to be drawn as it is, without formulas, in at most 40 characters."""
    short = text if len(text) <= 40 else f"{text[:37]}..."
    return short.replace("$", r"\$")


def note_if_empty(axes: Any) -> None:
    """Write "nothing recorded yet" on axes without data; remove it from others."""
    notes = [text for text in axes.texts if text.get_gid() == EMPTY]
    is_empty = not all(map(math.isfinite, axes.dataLim.intervalx))
    for note in notes:
        note.remove()
    if is_empty:
        place = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.text(0.5, 0.5, "nothing recorded yet", color=GREY, gid=EMPTY, **place)


def next_style(axes: Any) -> str:
    """Return the line style of the next line that gets a label."""
    return LINE_STYLES[sum(text.get_gid() in (END, TOP) for text in axes.texts) % len(LINE_STYLES)]


def label_end(axes: Any, line: Any, text: str) -> None:
    """Write a line's label right of the axes, at the height of its last point."""
    points = line.get_xydata()
    if len(points):
        label_right(axes, points[-1, 1], text, line.get_color())


def label_right(axes: Any, height: float, text: str, color: Any) -> None:
    """Write a label to the right of the axes. Labels that would overlap move apart."""
    place = {"xytext": (5.0, 0.0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
    axes.annotate(text, (1.0, float(height)), xycoords=axes.get_yaxis_transform(), color=color, gid=END, **place)
    _move_apart(axes)


def label_top(axes: Any, point: Any, text: str, color: Any) -> None:
    """Write a label above a point."""
    place = {"xytext": (0.0, 3.0), "textcoords": "offset points", "ha": "center", "va": "bottom"}
    axes.annotate(text, tuple(map(float, point)), color=color, gid=TOP, annotation_clip=False, **place)


def _ends(axes: Any) -> list[Any]:
    return [text for text in axes.texts if text.get_gid() == END]


def _move_apart(axes: Any) -> None:
    """Space out the labels at line ends, keeping their order."""
    labels = _ends(axes)
    axes.get_ylim()  # what was drawn has changed the limits
    points = 72.0 / axes.figure.dpi
    heights = [float(axes.transData.transform((1.0, label.xy[1]))[1]) * points for label in labels]
    order = sorted(range(len(labels)), key=heights.__getitem__)
    room = 1.2 * max((label.get_fontsize() * (1 + label.get_text().count("\n")) for label in labels), default=0.0)
    # Groups of neighbours: the sum of their heights, and their number.
    groups: list[list[float]] = []
    for i in order:
        groups.append([heights[i], 1.0])
        while len(groups) > 1 and _lowest(groups[-1], room) < _lowest(groups[-2], room) + groups[-2][1] * room:
            total, count = groups.pop()
            groups[-1][0] += total
            groups[-1][1] += count
    places = [_lowest(group, room) + room * i for group in groups for i in range(int(group[1]))]
    lowest = axes.bbox.y0 * points + 0.4 * room  # above the labels of the axis
    for i, place in zip(order, places, strict=True):
        place = max(place, lowest)
        labels[i].xyann = (5.0, place - heights[i])
        lowest = place + room


def _lowest(group: list[float], room: float) -> float:
    """Return the height of the lowest label of a group around its mean."""
    total, count = group
    return total / count - 0.5 * room * (count - 1.0)
