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

# The colours differ in lightness too, and each library has its own shape.
OURS_STYLE = ("D", "#000000")
STYLES = {
    "VW": ("s", "#d55e00"),
    "MABWiser LinUCB": ("^", "#0072b2"),
    "river LinUCB": ("v", "#56b4e9"),
    "NumPy LinUCB": ("o", "#999999"),
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


def draw(axis: Axes, rows: list[dict[str, float]]) -> None:
    """Draw a row of dots for each set; ours is on top."""
    for y, found in enumerate(rows):
        axis.plot([min(found.values()), max(found.values())], [y, y], color="#cccccc", linewidth=1, zorder=1)
        for learner, error in reversed(found.items()):
            marker, colour = STYLES.get(learner, OURS_STYLE)
            size = 40 if learner in STYLES else 75
            axis.scatter(error, y, size, colour, marker, edgecolors="white", linewidths=0.6, zorder=3)


def name_dots(axis: Axes, found: dict[str, float], y: float) -> None:
    """Write the names of the learners above the dots of the top row, spread out, with a line to each dot."""
    ordered = sorted(found.items(), key=lambda item: item[1])
    low, high = axis.get_xlim()
    step = 0.155 * (high - low)
    middle = statistics.mean(found.values())
    start = min(max(middle - step * (len(ordered) - 1) / 2, low), high - step * (len(ordered) - 0.6))
    for i, (learner, error) in enumerate(ordered):
        is_ours = learner not in STYLES
        axis.annotate(
            f"{learner}, {'default' if is_ours else 'tuned'}",
            (error, y + 0.12),
            (start + step * i, y + 0.75),
            rotation=35,
            fontsize=8,
            fontweight="bold" if is_ours else "normal",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#666666", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0},
        )


def dots(benchmark: "Benchmark", path: Path) -> None:
    """Draw errors without and with noise; the set with the largest spread, where the names fit best, is on top."""
    found = {(name, noise): means(benchmark, name, noise) for name in benchmark.sets for noise in data.NOISES}
    if not all(found.values()):
        return
    spread = {name: max(found[name, "none"].values()) - min(found[name, "none"].values()) for name in benchmark.sets}
    sets = sorted(benchmark.sets, key=spread.__getitem__)
    height = 1.9 + 0.38 * len(sets)
    figure, axes = plt.subplots(1, 2, figsize=(11, height), sharey=True)
    for axis, noise in zip(axes, data.NOISES, strict=True):
        rows = [found[name, noise] for name in sets]
        draw(axis, rows)
        axis.set(xlim=(0.0, 1.0), ylim=(-0.6, len(sets) - 0.4), title=None)
        axis.set_xlabel(f"share of wrong choices {NOISE_TITLES[noise]}")
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(left=False)
    held_out = {name for name in sets if data.SETS[name].role == data.HELD_OUT}
    axes[0].set_yticks(range(len(sets)), [name if name in held_out or not held_out else f"{name} *" for name in sets])
    if held_out and len(held_out) < len(sets):
        figure.text(0.01, 0.01, "* used for development", fontsize=8, color="#444444")
    name_dots(axes[0], found[sets[-1], "none"], len(sets) - 1.0)
    figure.subplots_adjust(left=0.1, right=0.98, top=1.0 - 1.15 / height, bottom=0.55 / height, wspace=0.05)
    figure.savefig(path, dpi=150)
    plt.close(figure)
