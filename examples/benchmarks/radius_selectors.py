r"""Masters over the radius of UCB, on real data: which of them costs least against the best radius?

A classification set is a bandit as in ``run.py``: reward 1 for the right class, in an order of the seed, without noise or with
centred Pareto noise. Each arm has a ridge regression on standardised features. Without noise the radius follows the residuals,
as in ``AdaptiveRidgeRegression``; with noise, residuals are cut too, as in ``RobustRidgeRegression``. Radii are multiples of 2.7
root mean square residuals, or of 27. In each round, every multiple names an arm, and a master plays one of them. All masters have
the same statistics, multiples, streams and rewards cut to [0, 1]. Each has one constant, tuned over three values on other seeds,
for each set and noise. Beside them, two masters know no range: their gains are ranks, of rewards in two units.

All runs are NumPy, many seeds at once. ``RadiusSelector`` of the library plays one set beside its NumPy twin.

    python examples/benchmarks/radius_selectors.py    # some minutes on a core; seconds with --smoke
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
from masters import MASTERS, SCALES, UCB1, Exp4IX, Fixed, Master, Range, Ranks
from play import error_of
from ridges import ArmRidges
from twins import Cut, Early, Following, Scaler

from torchonline import AdaptiveRidgeRegression, RadiusSelector, RobustRidgeRegression, StandardScaler

ROUNDS, SEEDS, TUNING_SEEDS = 1500, 10, (100, 101, 102)
# The radius at multiple 1, in root mean square residuals: moderate, and far too large, as certified radii are.
UNIT, LARGE_UNIT = 2.7, 27.0
# Rewards in another unit: so many times the reward, plus a number.
OTHER = (1000.0, 300.0)
MARK = "<!-- printed by examples/benchmarks/radius_selectors.py -->\n"


def play(
    kind: type[Master],
    rate: float,
    unit: float,
    seeds: Sequence[int],
    name: str,
    noise: str,
    rounds: int,
    gains: type[Range] = Range,
    line: tuple[float, float] = (1.0, 0.0),
) -> list[float]:
    """Play members of one kind at once, whose rewards are mapped by a line; return their errors."""
    streams = [data.stream(name, seed, rounds, noise, "raw", False) for seed in seeds]
    contexts, payoffs, noises = (
        np.stack([getattr(one, what) for one in streams], axis=1) for what in ("contexts", "payoffs", "noise")
    )
    (count, members, dim), actions = contexts.shape, streams[0].actions
    ridges = ArmRidges(np.full(members, (dim + 1) / 5.0), actions, dim + 1)
    scaler, residuals = Scaler(members, dim), (Following if noise == "none" else Cut)(members, line[0])
    early, gain = Early(), gains(members)
    master = kind(np.full(members, rate), actions, count, seeds)
    lost, each = np.zeros(members), np.arange(members)
    is_played, learnt = np.zeros((members, actions), bool), np.zeros(members)
    for t, (x, paid, added) in enumerate(zip(contexts, payoffs, noises, strict=True)):
        z = scaler(x)
        mean, width = ridges.predict(z)
        radius = unit * residuals.scale()[:, None, None] * np.array(SCALES)[:, None]
        raised = np.where(is_played, mean, np.maximum(mean, learnt[:, None] / max(t, 1)))
        named = (raised[:, None] + radius * width[:, None]).argmax(-1)
        multiple = master.play()
        arm = named[each, multiple]
        reward = line[0] * (paid[each, arm] + added) + line[1]
        guess = 1.0 - np.clip(np.take_along_axis(mean, named, 1), 0.0, 1.0)
        master.step(multiple, 1.0 * (named == arm[:, None]), 1.0 - gain(reward), guess)
        predicted = mean[each, arm]
        target = predicted + residuals.keep(reward - predicted)
        ridges.learn(z, arm, target)
        is_played[each, arm] = True
        learnt += target
        scaler.step(x)
        early.step(scaler, ridges, x, z, arm, target)
        lost += 1.0 - paid[each, arm]
    return (lost / count).tolist()


def play_library(
    rule: str, seeds: Sequence[int], name: str, noise: str, rounds: int, reward_range: tuple[float, float] | None
) -> list[float]:
    """Play ``RadiusSelector``, one seed after another."""
    errors = []
    for seed in seeds:
        torch.manual_seed(seed)
        stream = data.stream(name, seed, rounds, noise, "raw", False)
        scaler = StandardScaler(stream.contexts.shape[1])
        estimator = (AdaptiveRidgeRegression if noise == "none" else RobustRidgeRegression)(
            scaler.features, radius_scale=UNIT
        )
        master = RadiusSelector(
            estimator, stream.actions, scales=SCALES, rule=rule, reward_range=reward_range, scaler=scaler
        )
        errors.append(error_of(master, stream))
    return errors


# The masters of the library and their constants.
BY_RANKS: dict[type[Master], float] = {UCB1: 0.3, Exp4IX: 1.0}


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

        self.ranked = {kind: self.errors(kind, rate, seeds, Ranks) for kind, rate in BY_RANKS.items()}
        other = [self.errors(Fixed, i, seeds, Range, OTHER) for i in range(len(SCALES))]
        self.other = [min(other, key=statistics.mean)]
        self.other += [self.errors(UCB1, 0.3, seeds, gains, OTHER) for gains in (Range, Ranks)]

    def errors(
        self,
        kind: type[Master],
        rate: float,
        seeds: Sequence[int],
        gains: type[Range] = Range,
        line: tuple[float, float] = (1.0, 0.0),
    ) -> list[float]:
        return play(kind, rate, self.unit, seeds, self.name, self.noise, self.rounds, gains, line)

    def tuned(self, master: str) -> float:
        """Return the rate with the least mean error on the tuning seeds."""
        runs = self.masters[master]
        return min(runs, key=lambda rate: sum(runs[rate][len(self.seeds) :]))

    def of(self, master: str, rate: float) -> list[float]:
        """Return the errors on the test seeds."""
        return self.masters[master][rate][: len(self.seeds)]

    def ratios(self, errors: Sequence[float]) -> np.ndarray:
        """Return errors of each seed in units of those of the best radius in hindsight."""
        return ratios(errors, self.fixed[self.best])


def ratios(errors: Sequence[float], best: Sequence[float]) -> np.ndarray:
    """Return the ratio of each seed's errors, which may be 0 in a short run."""
    return np.maximum(errors, 1e-3) / np.maximum(best, 1e-3)


SHOWN = (*(f"multiple {scale:g}" for scale in SCALES[:2]), "uniform", *MASTERS)


def shown_errors(cell: Cell) -> list[Sequence[float]]:
    """Return the errors of the contenders SHOWN: of two multiples, of uniform draws and of the tuned masters."""
    fixed = [cell.fixed[scale] for scale in SCALES[:2]]
    return [*fixed, cell.uniform, *(cell.of(name, cell.tuned(name)) for name in MASTERS)]


def short_table(cells: Sequence[Cell], large: Sequence[Cell]) -> str:
    """Return the ratio to the best multiple of each contender, at both units and noises."""
    columns, header = [], ["contender"]
    for unit, of_unit in ((UNIT, cells), (LARGE_UNIT, large)):
        for noise, some in by_noise(of_unit).items():
            header.append(f"{unit:g}, {noise}")
            columns.append([against_best(some, errors) for errors in zip(*map(shown_errors, some), strict=True)])
    return tables.markdown(header, list(zip(SHOWN, *columns, strict=True)))


def tuned_table(cells: Sequence[Cell]) -> str:
    """Return errors of the tuned masters beside the best radius and choices that learn nothing."""
    header = ["set, noise", "best multiple in hindsight", *SHOWN]
    shown = [shown_errors(cell) for cell in cells]
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
    return summary([cell.ratios(of_cell) for cell, of_cell in zip(cells, errors, strict=True)])


def summary(found: Sequence[np.ndarray]) -> str:
    """Return the geometric mean over sets of ratios of seeds, its standard error over seeds, and the worst set."""
    ratios = np.array(found)
    means = np.exp(np.log(ratios).mean(0))
    deviation = means.std(ddof=1) / math.sqrt(len(means))
    return f"{means.mean():.2f} ± {deviation:.2f}, worst {ratios.mean(1).max():.2f}"


def ranks_table(cells: Sequence[Cell]) -> str:
    """Return errors of masters that know the range of rewards, know a wrong one, or know none."""
    slope, shift = OTHER
    other = f"{slope:g} r + {shift:g}"
    header = [
        "set, noise",
        *(f"{rule}, {gains}" for rule in ('"ucb"', '"exp4"') for gains in ("range [0, 1]", "ranks")),
        f"best multiple, {other}",
        *(f'"ucb", {gains}, {other}' for gains in ("range [0, 1]", "ranks")),
    ]
    rows = []
    for noise, some in by_noise(cells).items():
        shown = []
        for cell in some:
            known = (cell.of("ucb", 0.3), cell.of("EXP4-IX", 1.0))
            one = [errors for pair in zip(known, cell.ranked.values(), strict=True) for errors in pair]
            rows.append([f"{cell.name}, {noise}", *map(tables.cell, (*one, *cell.other))])
            shown.append([*map(cell.ratios, one), *(ratios(errors, cell.other[0]) for errors in cell.other)])
        rows.append([f"ratio to best, {noise}", *(summary(column) for column in zip(*shown, strict=True))])
    return tables.markdown(header, rows)


def constants_table(cells: Sequence[Cell]) -> str:
    """Return the ratio of each master to the best radius, at each constant."""
    rows = []
    for name, (_, rates) in MASTERS.items():
        for noise, some in by_noise(cells).items():
            ratios = [against_best(some, [cell.of(name, rate) for cell in some]) for rate in rates]
            rows.append([f"{name}, {noise}", ", ".join(f"{rate:g}" for rate in rates), *ratios])
    return tables.markdown(["master, noise", "constants", "small", "middle", "large"], rows)


def check_table(cells: Sequence[Cell]) -> str:
    """Return errors of the library's RadiusSelector beside those of its twins."""
    rows = []
    for cell in cells:
        known = (cell.of("ucb", 0.3), cell.of("EXP4-IX", 1.0))
        for rule, of_range, of_ranks in zip(("ucb", "exp4"), known, cell.ranked.values(), strict=True):
            for reward_range, twin in (((0.0, 1.0), of_range), (None, of_ranks)):
                ours = play_library(rule, cell.seeds, cell.name, cell.noise, cell.rounds, reward_range)
                row = f'{cell.name}, {cell.noise}, "{rule}", reward_range={reward_range}'
                rows.append([row, *map(tables.cell, (ours, twin))])
    return tables.markdown(["set, noise, rule, range", "RadiusSelector", "NumPy twin"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"))
    parser.add_argument("--smoke", action="store_true", help="30 rounds of digits and 2 seeds, to see that it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = ["digits"] if options.smoke else data.chosen_sets([data.DEVELOPMENT])
    seeds, rounds = (2, 30) if options.smoke else (SEEDS, ROUNDS)
    cells, large = [], []
    for name in data.installed(chosen):
        for noise in data.NOISES:
            cells.append(Cell(name, noise, UNIT, range(seeds), rounds))
            large.append(Cell(name, noise, LARGE_UNIT, range(seeds), rounds))
            print(f"{name}, {noise}: played", file=sys.stderr, flush=True)
    # The set with the fewest rounds, if it is there.
    checked = "led7digit" if "led7digit" in [cell.name for cell in cells] else "digits"
    found = {
        "In short": short_table(cells, large),
        f"Multiples of {UNIT:g}": tuned_table(cells),
        f"Multiples of {LARGE_UNIT:g}": tuned_table(large),
        f"Rewards of unknown range, multiples of {UNIT:g}": ranks_table(cells),
        f"Rewards of unknown range, multiples of {LARGE_UNIT:g}": ranks_table(large),
        f"All constants, multiples of {UNIT:g}": constants_table(cells),
        f"All constants, multiples of {LARGE_UNIT:g}": constants_table(large),
        "The library and its twin": check_table([cell for cell in cells if cell.name == checked]),
    }
    tables.publish(found, options.output / "radius_selectors.md", mark=MARK)


if __name__ == "__main__":
    main()
