"""Dot plot of the benchmark: a row a set, a colour and shape a library."""

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import data
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from learners import LEARNERS
from matplotlib.axes import Axes
from tables import NOISE_TITLES, ours, rivals

if TYPE_CHECKING:
    from run import Benchmark

# Height of a line of text, in rows.
LINE = 0.45
# The colours differ in lightness too, and each library has its own shape.
OURS_STYLE = ("D", "#000000")
STYLES = {
    "VW": ("s", "#d55e00"),
    "MABWiser LinUCB": ("^", "#0072b2"),
    "river LinUCB": ("v", "#56b4e9"),
    "NumPy LinUCB": ("o", "#999999"),
    "LinUCB, magnitudes": ("X", "#009e73"),
    "neural-linear": ("P", "#f0c000"),
}


def means(benchmark: "Benchmark", name: str, noise: str) -> dict[str, float]:
    """Return the mean error of our default and of each tuned rival."""
    found = {}
    mine = ours(benchmark)
    if mine:
        found[mine] = statistics.mean(benchmark.errors(name, noise, mine, LEARNERS[mine].default))
    for rival in rivals(benchmark):
        found[rival] = statistics.mean(benchmark.errors(name, noise, rival, benchmark.tuned(name, noise, rival)))
    return found


def lane(found: dict[str, float], learner: str) -> float:
    """Return a learner's height within a row, so that equal errors stay visible."""
    return 0.1 * ((len(found) - 1) / 2 - list(found).index(learner))


def draw(axis: Axes, rows: list[dict[str, float]]) -> None:
    """Draw a row of dots for each set; ours is on top."""
    for y, found in enumerate(rows):
        axis.plot([min(found.values()), max(found.values())], [y, y], color="#cccccc", linewidth=1, zorder=1)
        for learner, error in reversed(found.items()):
            marker, colour = STYLES.get(learner, OURS_STYLE)
            size = 36 if learner in STYLES else 60
            height = y + lane(found, learner)
            axis.scatter(error, height, size, colour, marker, edgecolors="white", linewidths=0.6, zorder=3)


def name_dots(axis: Axes, found: dict[str, float], y: float) -> None:
    """Write the names above the top row: the dot furthest to the left has the highest name, so that no line crosses one."""
    ordered = sorted(found, key=found.__getitem__, reverse=True)
    for i, learner in enumerate(ordered):
        is_ours = learner not in STYLES
        x, top = found[learner], y + 0.75 + LINE * i
        axis.plot([x, x], [y + lane(found, learner), top], color="#888888", linewidth=0.6, clip_on=False, zorder=2)
        text, weight = f" {learner}, {'default' if is_ours else 'tuned'}", "bold" if is_ours else "normal"
        axis.text(x, top, text, fontsize=8, fontweight=weight, va="center", clip_on=False)


def dots(benchmark: "Benchmark", path: Path) -> None:
    """Draw errors without and with noise, a row for each set, in the order of our error without noise."""
    found = {(name, noise): means(benchmark, name, noise) for name in benchmark.sets for noise in data.NOISES}
    if not all(found.values()):
        return
    sets = sorted(benchmark.sets, key=lambda name: -next(iter(found[name, "none"].values())))
    names = LINE * len(found[sets[0], "none"]) + 0.6
    height = 0.36 * (len(sets) + names) + 0.8
    figure, axes = plt.subplots(1, 2, figsize=(11, height), sharey=True)
    for axis, noise in zip(axes, data.NOISES, strict=True):
        draw(axis, [found[name, noise] for name in sets])
        axis.set(xlim=(0.0, 1.0), ylim=(-0.6, len(sets) - 0.5))
        axis.set_xlabel(f"error {NOISE_TITLES[noise]}")
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(left=False)
        name_dots(axis, found[sets[-1], noise], len(sets) - 1.0)
    held_out = {name for name in sets if data.SETS[name].role == data.HELD_OUT}
    is_mixed = 0 < len(held_out) < len(sets)
    axes[0].set_yticks(range(len(sets)), [f"{name} *" if is_mixed and name not in held_out else name for name in sets])
    if is_mixed:
        figure.text(0.01, 0.01, "* defaults were chosen on it", fontsize=8, color="#444444")
    top = (0.36 * (len(sets) + 0.1) + 0.6) / height
    widest = max(label.get_window_extent().width for label in axes[0].get_yticklabels()) / figure.bbox.width
    figure.subplots_adjust(left=widest + 0.02, right=0.97, top=top, bottom=0.6 / height, wspace=0.08)
    figure.savefig(path, dpi=150)
    plt.close(figure)
