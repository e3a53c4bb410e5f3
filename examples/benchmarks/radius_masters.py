r"""Masters over the radius of UCB, on real data: which of them costs least against the best radius?

A classification set is a bandit as in ``run.py``: reward 1 for the right class, in an order of the seed, without noise or with
centred Pareto noise. Each arm has a ridge regression on standardised features. Without noise the radius follows the residuals,
as in ``AdaptiveRidgeRegression``; with noise, residuals are cut too, as in ``RobustRidgeRegression``. Radii are multiples of 2.7
root mean square residuals, or of 27. In each round, every multiple names an arm, and a master plays one of them. All masters have
the same statistics, multiples, streams and rewards cut to [0, 1]. Each has one constant, tuned over three values on other seeds,
for each set and noise.

All runs are NumPy, many seeds at once. ``RadiusMaster`` of the library plays one set beside its NumPy twin.

    python examples/benchmarks/radius_masters.py    # some minutes on a core; seconds with --smoke
    pip install ".[examples,benchmarks]"    # the sets; those that are missing are left out
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import data
import numpy as np
import tables
import torch
from masters import MASTERS, SCALES, Fixed, Master
from ridges import ArmRidges

from torchonline import AdaptiveRidgeRegression, RadiusMaster, RobustRidgeRegression, RunningScaler

ROUNDS, SEEDS, TUNING_SEEDS = 1500, 10, (100, 101, 102)
# The radius at multiple 1, in root mean square residuals: moderate, and far too large, as certified radii are.
UNIT, LARGE_UNIT = 2.7, 27.0
MARK = "<!-- printed by examples/benchmarks/radius_masters.py -->\n"


class Scaler:
    """Running means and deviations of B members: the twin of ``RunningScaler``."""

    def __init__(self, members: int, dim: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros((members, dim)), np.zeros((members, dim))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        deviation = np.sqrt(self.squares / max(self.count - 1, 1))
        inverse = np.where(deviation > 0.0, 1.0 / np.where(deviation > 0.0, deviation, 1.0), 0.0)
        return np.column_stack([np.clip((x - self.mean) * inverse, -2.5, 2.5), np.ones(len(x))])

    def step(self, x: np.ndarray) -> None:
        self.count += 1
        offset = x - self.mean
        self.mean += offset / self.count
        self.squares += offset * (x - self.mean)


class Following:
    """Root mean square of all residuals: the twin of ``AdaptiveRidgeRegression``."""

    def __init__(self, members: int) -> None:
        self.squares, self.count = np.full(members, 0.25), 1

    def scale(self) -> np.ndarray:
        return np.sqrt(self.squares / self.count)

    def keep(self, residual: np.ndarray) -> np.ndarray:
        self.squares, self.count = self.squares + residual**2, self.count + 1
        return residual


class Cut:
    """Cut residuals, and their root mean square: the twin of ``RobustRidgeRegression``."""

    def __init__(self, members: int) -> None:
        self.window, self.count, self.spread = np.zeros((members, 256)), 0, np.ones(members)

    def scale(self) -> np.ndarray:
        return self.spread

    def keep(self, residual: np.ndarray) -> np.ndarray:
        self.window[:, self.count % 256] = abs(residual)
        used = self.window[:, : self.count + 1]
        ordered, position = np.sort(used), 0.95 * (used.shape[1] - 1)
        low = math.floor(position)
        high = min(low + 1, used.shape[1] - 1)
        limit = ordered[:, low] + (position - low) * (ordered[:, high] - ordered[:, low])
        limit = np.where((limit <= 0.0) | (self.count < 10), np.inf, limit)
        self.spread = np.sqrt((np.minimum(used, limit[:, None]) ** 2).mean(1))
        self.count += 1
        return np.clip(residual, -limit, limit)


def play(
    kind: type[Master], rate: float, unit: float, seeds: Sequence[int], name: str, noise: str, rounds: int
) -> list[float]:
    """Play members of one kind at once; return their shares of rounds with a wrong arm."""
    streams = [data.stream(name, seed, rounds, noise, "raw", False) for seed in seeds]
    contexts = np.stack([one.contexts for one in streams], axis=1)
    labels, noises = (np.stack([getattr(one, what) for one in streams], axis=1) for what in ("labels", "noise"))
    (count, members, dim), actions = contexts.shape, streams[0].actions
    ridges = ArmRidges(np.full(members, (dim + 1) / 5.0), actions, dim + 1)
    scaler, residuals = Scaler(members, dim), Following(members) if noise == "none" else Cut(members)
    master = kind(np.full(members, rate), actions, count, seeds)
    wrong, each = np.zeros(members), np.arange(members)
    for x, label, added in zip(contexts, labels, noises, strict=True):
        z = scaler(x)
        mean, width = ridges.predict(z)
        radius = unit * residuals.scale()[:, None, None] * np.array(SCALES)[:, None]
        named = (mean[:, None] + radius * width[:, None]).argmax(-1)
        multiple = master.play()
        arm = named[each, multiple]
        reward = (arm == label) + added
        guess = 1.0 - np.clip(np.take_along_axis(mean, named, 1), 0.0, 1.0)
        master.step(multiple, 1.0 * (named == arm[:, None]), 1.0 - np.clip(reward, 0.0, 1.0), guess)
        predicted = mean[each, arm]
        ridges.learn(z, arm, predicted + residuals.keep(reward - predicted))
        scaler.step(x)
        wrong += arm != label
    return (wrong / count).tolist()


def play_library(rule: str, seeds: Sequence[int], name: str, noise: str, rounds: int) -> list[float]:
    """Play ``RadiusMaster``, one seed after another."""
    errors = []
    for seed in seeds:
        torch.manual_seed(seed)
        stream = data.stream(name, seed, rounds, noise, "raw", False)
        scaler = RunningScaler(stream.contexts.shape[1])
        estimator = (AdaptiveRidgeRegression if noise == "none" else RobustRidgeRegression)(
            scaler.features, radius_scale=UNIT
        )
        master = RadiusMaster(estimator, stream.actions, scales=SCALES, rule=rule, scaler=scaler)
        wrong = 0
        for x, label, added in zip(stream.contexts, stream.labels.tolist(), stream.noise.tolist(), strict=True):
            arm = int(master.select(x))
            wrong += arm != label
            master.step(x, arm, float(arm == label) + added)
        errors.append(wrong / len(stream.labels))
    return errors


class Cell:
    """All runs on one set with one noise."""

    def __init__(self, name: str, noise: str, unit: float, seeds: Sequence[int], rounds: int) -> None:
        self.name, self.noise, self.unit, self.seeds, self.rounds = name, noise, unit, seeds, rounds
        self.uniform = self.errors(Master, 0.0, seeds)
        self.fixed = {scale: self.errors(Fixed, i, seeds) for i, scale in enumerate(SCALES)}
        self.best = min(self.fixed, key=lambda scale: statistics.mean(self.fixed[scale]))
        self.masters = {
            master: {rate: self.errors(kind, rate, (*seeds, *TUNING_SEEDS)) for rate in rates}
            for master, (kind, rates) in MASTERS.items()
        }

    def errors(self, kind: type[Master], rate: float, seeds: Sequence[int]) -> list[float]:
        return play(kind, rate, self.unit, seeds, self.name, self.noise, self.rounds)

    def tuned(self, master: str) -> float:
        """Return the rate with the least mean error on the tuning seeds."""
        runs = self.masters[master]
        return min(runs, key=lambda rate: sum(runs[rate][len(self.seeds) :]))

    def of(self, master: str, rate: float) -> list[float]:
        """Return the errors on the test seeds."""
        return self.masters[master][rate][: len(self.seeds)]

    def ratios(self, errors: Sequence[float]) -> np.ndarray:
        """Return errors of each seed in units of those of the best radius in hindsight, which may be 0 in a short run."""
        return np.maximum(errors, 1e-3) / np.maximum(self.fixed[self.best], 1e-3)


def tuned_table(cells: Sequence[Cell]) -> str:
    """Return errors of the tuned masters beside the best radius and choices that learn nothing."""
    fixed = SCALES[:2]
    header = [
        "set, noise",
        "best multiple in hindsight",
        *(f"multiple {scale:g}" for scale in fixed),
        "uniform",
        *MASTERS,
    ]
    shown = [
        [*(cell.fixed[scale] for scale in fixed), cell.uniform, *(cell.of(name, cell.tuned(name)) for name in MASTERS)]
        for cell in cells
    ]
    rows = []
    for cell, errors in zip(cells, shown, strict=True):
        best = f"{tables.cell(cell.fixed[cell.best])} ({cell.best:g})"
        rows.append([f"{cell.name}, {cell.noise}", best, *map(tables.cell, errors)])
    for noise, some in by_noise(cells).items():
        columns = zip(*(errors for cell, errors in zip(cells, shown, strict=True) if cell.noise == noise), strict=True)
        rows.append([f"ratio to best, {noise}", "", *(against_best(some, column) for column in columns)])
    return tables.markdown(header, rows)


def by_noise(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    return {noise: [cell for cell in cells if cell.noise == noise] for noise in data.NOISES}


def against_best(cells: Sequence[Cell], errors: Sequence[Sequence[float]]) -> str:
    """Return the geometric mean over sets of the ratio to the best radius, its standard error over seeds, and the worst set."""
    ratios = np.array([cell.ratios(of_cell) for cell, of_cell in zip(cells, errors, strict=True)])
    means = np.exp(np.log(ratios).mean(0))
    deviation = means.std(ddof=1) / math.sqrt(len(means))
    return f"{means.mean():.2f} ± {deviation:.2f}, worst {ratios.mean(1).max():.2f}"


def constants_table(cells: Sequence[Cell]) -> str:
    """Return the ratio of each master to the best radius, at each constant."""
    rows = []
    for name, (_, rates) in MASTERS.items():
        for noise, some in by_noise(cells).items():
            ratios = [against_best(some, [cell.of(name, rate) for cell in some]) for rate in rates]
            rows.append([f"{name}, {noise}", ", ".join(f"{rate:g}" for rate in rates), *ratios])
    return tables.markdown(["master, noise", "constants", "small", "middle", "large"], rows)


def check_table(cells: Sequence[Cell]) -> str:
    """Return errors of the library's RadiusMaster beside those of its twins."""
    rows = []
    for cell in cells:
        for rule, master, rate in (("balancing", "balancing", 0.3), ("exp4", "EXP4-IX", 1.0)):
            ours = play_library(rule, cell.seeds, cell.name, cell.noise, cell.rounds)
            rows.append([f'{cell.name}, {cell.noise}, "{rule}"', *map(tables.cell, (ours, cell.of(master, rate)))])
    return tables.markdown(["set, noise, rule", "RadiusMaster", "NumPy twin"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"))
    parser.add_argument("--smoke", action="store_true", help="30 rounds of digits and 2 seeds, to see that it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = ["digits"] if options.smoke else data.chosen_sets([data.DEVELOPMENT])
    seeds, rounds = (2, 30) if options.smoke else (SEEDS, ROUNDS)
    cells, large = [], []
    for name in chosen:
        if not data.SETS[name].is_installed():
            print(f"Left out, because {data.SETS[name].package} is not installed: {name}")
            continue
        for noise in data.NOISES:
            cells.append(Cell(name, noise, UNIT, range(seeds), rounds))
            large.append(Cell(name, noise, LARGE_UNIT, range(seeds), rounds))
            print(f"{name}, {noise}: played", file=sys.stderr, flush=True)
    # The set with the fewest rounds, if it is there.
    checked = "led7digit" if "led7digit" in [cell.name for cell in cells] else "digits"
    found = {
        f"Multiples of {UNIT:g}": tuned_table(cells),
        f"Multiples of {LARGE_UNIT:g}": tuned_table(large),
        f"All constants, multiples of {UNIT:g}": constants_table(cells),
        f"All constants, multiples of {LARGE_UNIT:g}": constants_table(large),
        "The library and its twin": check_table([cell for cell in cells if cell.name == checked]),
    }
    page = "\n".join(f"### {title}\n\n{MARK}{table}" for title, table in found.items())
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "radius_masters.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
