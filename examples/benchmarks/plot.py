"""Figure of the benchmark: the default's errors over those of the best tuned rival, a dot a set, for a page of 390 pixels."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import data
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from learners import LEARNERS, OURS_BY_DEFAULT
from matplotlib.axes import Axes
from tables import NOISE_TITLES, all_ratios, least, rivals

if TYPE_CHECKING:
    from run import Benchmark

# Full dots are sets with fewer errors than the rival, hollow ones the others: readable without colours.
FEWER, MORE = "#0072b2", "#d55e00"
# Dots are stacked in bins of the logarithm, one of which begins at 1. A dot has this height, where a lane has 1.
BIN, HIGH, LANE = 0.075, 0.058, 1.5
TICKS = {"1/8": 0.125, "1/4": 0.25, "1/2": 0.5, "1": 1.0, "2": 2.0}


def found(benchmark: "Benchmark", noise: str, names: Sequence[str]) -> list[float]:
    """Return the default's mean error on each set over that of the best of some tuned rivals."""
    tuned = [
        [
            statistics.mean(benchmark.errors(name, noise, rival, benchmark.tuned(name, noise, rival)))
            for name in benchmark.sets
        ]
        for rival in names
    ]
    ours = [statistics.mean(benchmark.errors(name, noise, OURS_BY_DEFAULT, {})) for name in benchmark.sets]
    return all_ratios(ours, least(tuned))


def stacked(ratios: Sequence[float]) -> list[tuple[float, float]]:
    """Return a place and a height for the dot of each ratio: those of a bin stand on each other."""
    dots, full = [], Counter[int]()
    for ratio in sorted(ratios):
        number = math.floor(math.log(ratio) / BIN)
        dots.append((math.exp((number + 0.5) * BIN), HIGH * (full[number] + 0.6)))
        full[number] += 1
    return dots


def draw(axis: Axes, ratios: Sequence[float], floor: float, title: str) -> None:
    """Draw the dots of a noise on a line, and below it their geometric mean."""
    axis.axhline(floor, color="#bbbbbb", linewidth=0.8, zorder=1)
    for place, height in stacked(ratios):
        colour, inside = (FEWER, FEWER) if place < 1.0 else (MORE, "white")
        axis.scatter(place, floor + height, 21, inside, edgecolors=colour, linewidths=1.2, zorder=3)
    mean, ahead = statistics.geometric_mean(ratios), sum(ratio < 1.0 for ratio in ratios)
    axis.scatter(mean, floor - 0.08, 48, "black", marker="^", zorder=4)
    side, align = (-7, "right") if mean < 1.0 else (7, "left")
    text, at = f"mean {mean:.2f}", (mean, floor - 0.12)
    place = {"xytext": (side, 0), "textcoords": "offset points", "ha": align, "va": "center"}
    axis.annotate(text, at, fontsize=10, fontweight="bold", **place)
    text = f"{title}:\nahead on {ahead} of {len(ratios)} sets"
    axis.text(0.0, floor + 0.6, text, fontsize=10, va="center", transform=axis.get_yaxis_transform())


def ratios(benchmark: "Benchmark", path: Path) -> None:
    """Draw the ratio to the best tuned linear rival and to the best of all tuned rivals, without and with noise."""
    every = rivals(benchmark)
    linear = [name for name in every if LEARNERS[name].is_linear_rival]
    if OURS_BY_DEFAULT not in benchmark.learners or not linear:
        return
    panels = {"Against the best tuned linear rival": linear, "Against the best of all tuned rivals": every}
    values = {
        (title, noise): found(benchmark, noise, names) for title, names in panels.items() for noise in data.NOISES
    }
    everything = [value for of_lane in values.values() for value in of_lane]
    limits = min(0.4, *everything) / 1.12, max(2.0, *everything) * 1.12
    figure, axes = plt.subplots(2, 1, figsize=(4.4, 6.4))
    for axis, title in zip(axes, panels, strict=True):
        for lane, noise in enumerate(reversed(data.NOISES)):
            draw(axis, values[title, noise], LANE * lane, NOISE_TITLES[noise])
        shown = {label: place for label, place in TICKS.items() if limits[0] < place}
        axis.set_xscale("log")
        axis.set_xticks(list(shown.values()), list(shown))
        axis.set_xticks([], minor=True)
        axis.set(xlim=limits, ylim=(-0.3, 2.0 * LANE - 0.18), yticks=[])
        axis.set_title(title, fontsize=11.5, fontweight="bold", loc="left")
        axis.axvline(1.0, color="#777777", linewidth=1, zorder=1)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(labelsize=10)
    axes[1].set_xlabel("errors of torchonline.bandit over the rival's", fontsize=10.5)
    figure.subplots_adjust(left=0.03, right=0.97, top=0.955, bottom=0.085, hspace=0.24)
    figure.savefig(path, dpi=160)
    plt.close(figure)
