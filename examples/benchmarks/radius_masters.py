r"""Masters over the radius of UCB, on real data: which of them costs least against the best radius?

A classification set is a bandit as in ``run.py``: reward 1 for the right class, in an order of the seed, without noise or with
centred Pareto noise. Each arm has a ridge regression on standardised features. Without noise the radius follows the residuals, as
in ``AdaptiveRidgeRegression``; with noise, residuals are cut too, as in ``RobustRidgeRegression``. Radii are multiples of 2.7 root
mean square residuals. In each round, every multiple names an arm, and a master plays one of them. All masters have the same
statistics, multiples, streams and rewards cut to [0, 1]. Each has one constant, tuned over three values on other seeds, for each
set and noise.

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
from ridges import ArmRidges

from torchonline import AdaptiveRidgeRegression, RadiusMaster, RobustRidgeRegression, RunningScaler

ROUNDS, SEEDS, TUNING_SEEDS = 1500, 10, (100, 101, 102)
# Members that play at once: more would leave the processor's cache.
FLEET = 30
SCALES, UNIT = (1.0, 0.3, 0.1, 0.03, 0.01), 2.7
CHECKED = ("led7digit", "digits")


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


class Master:
    """Exp3 over M multiples, for B members: only the played multiple learns from its loss.

    Args:
        rates: multiply the rate sqrt(log M / (options t)), (B).
        actions, rounds, seeds: K, T, and a seed of each member.
    """

    def __init__(self, rates: np.ndarray, actions: int, rounds: int, seeds: Sequence[int]) -> None:
        self.rates, self.rounds, self.options = rates, rounds, len(SCALES)
        self.draws = np.stack([np.random.default_rng([seed, 3]).random(rounds) for seed in seeds], axis=1)
        self.members, self.count = np.arange(len(seeds)), 1
        self.losses = np.zeros((len(seeds), len(SCALES)))

    def rate(self) -> np.ndarray:
        return self.rates * math.sqrt(math.log(len(SCALES)) / (self.options * self.count))

    def shares(self) -> np.ndarray:
        exponent = -self.rate()[:, None] * self.losses
        weights = np.exp(exponent - exponent.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def play(self) -> np.ndarray:
        """Return the played multiple of each member."""
        up_to = self.shares().cumsum(1)
        return (self.draws[self.count - 1][:, None] * up_to[:, -1:] >= up_to).sum(1)

    def step(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        """Learn: ``agree`` says which multiples named the played arm, ``guess`` the predicted losses of the named arms."""
        self.credit(1.0 * (np.arange(len(SCALES)) == played[:, None]), agree, loss, guess)
        self.count += 1

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.add(played, loss[:, None], 0.0)

    def add(self, credited: np.ndarray, loss: np.ndarray, floor: float) -> None:
        """Add the loss over the probability of the credited multiples, which is raised by ``floor`` rates."""
        chance = (self.shares() * credited).sum(1) + floor * self.rate()
        self.losses += credited * loss / chance[:, None]


class Exp3IX(Master):
    """Exp3 with implicit exploration."""

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.add(played, loss[:, None], 0.5)


class Exp4IX(Master):
    """EXP4-IX: every multiple that named the played arm learns. The twin of ``rule="exp4"``, whose rates are 1."""

    def __init__(self, rates: np.ndarray, actions: int, rounds: int, seeds: Sequence[int]) -> None:
        super().__init__(rates, actions, rounds, seeds)
        self.options = min(actions, len(SCALES))

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.add(agree, loss[:, None], 0.5)


class DoublyRobust(Exp4IX):
    """EXP4-IX on the difference from the predicted loss of the named arm, plus that prediction."""

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.add(agree, loss[:, None] - guess, 0.5)
        self.losses += guess


class Corral(Master):
    """CORRAL (Agarwal et al., COLT 2017): mirror descent by the log barrier, with rates that grow as shares fall."""

    def __init__(self, rates: np.ndarray, actions: int, rounds: int, seeds: Sequence[int]) -> None:
        super().__init__(rates, actions, rounds, seeds)
        self.p = np.full(self.losses.shape, 1.0 / len(SCALES))
        self.each = rates[:, None] * np.full(self.losses.shape, math.sqrt(len(SCALES) / rounds))
        self.bound = np.full(self.losses.shape, 2.0 * len(SCALES))

    def shares(self) -> np.ndarray:
        return (1.0 - 1.0 / self.rounds) * self.p + 1.0 / (self.rounds * len(SCALES))

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        estimate = played * loss[:, None] / self.shares()
        low, high = np.zeros(len(loss)), estimate.max(1)
        for _ in range(50):
            middle = 0.5 * (low + high)
            total = (1.0 / (1.0 / self.p + self.each * (estimate - middle[:, None]))).sum(1)
            is_high = total > 1.0
            low, high = np.where(is_high, low, middle), np.where(is_high, middle, high)
        self.p = 1.0 / (1.0 / self.p + self.each * (estimate - low[:, None]))
        self.p /= self.p.sum(1, keepdims=True)
        is_rare = 1.0 / self.shares() > self.bound
        self.bound = np.where(is_rare, 2.0 / self.shares(), self.bound)
        self.each = np.where(is_rare, self.each * math.exp(1.0 / math.log(self.rounds)), self.each)


class Balancing(Master):
    """The twin of ``rule="balancing"``, whose constant is 0.3."""

    def __init__(self, rates: np.ndarray, actions: int, rounds: int, seeds: Sequence[int]) -> None:
        super().__init__(rates, actions, rounds, seeds)
        self.plays, self.gains = np.zeros(self.losses.shape), np.zeros(self.losses.shape)

    def play(self) -> np.ndarray:
        plays = np.maximum(self.plays, 1.0)
        bonus = self.rates[:, None] * np.sqrt(math.log(1.0 + self.count) / plays)
        return np.where(self.plays == 0.0, np.inf, self.gains / plays + bonus).argmax(1)

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        self.plays += agree
        self.gains += agree * (1.0 - loss[:, None])


class Fixed(Master):
    """One multiple in all rounds: the constant is its index."""

    def play(self) -> np.ndarray:
        return self.rates.astype(int)

    def credit(self, played: np.ndarray, agree: np.ndarray, loss: np.ndarray, guess: np.ndarray) -> None:
        return


# Each master, three values of its constant from small to large, and what the constant multiplies.
MASTERS: dict[str, tuple[type[Master], tuple[float, float, float]]] = {
    "Exp3": (Master, (1.0, 3.0, 9.0)),
    "Exp3-IX": (Exp3IX, (1.0, 3.0, 9.0)),
    "EXP4-IX": (Exp4IX, (1.0, 3.0, 9.0)),
    "doubly robust EXP4-IX": (DoublyRobust, (1.0, 3.0, 9.0)),
    "CORRAL": (Corral, (1.0, 3.0, 9.0)),
    "balancing": (Balancing, (0.1, 0.3, 0.9)),
}
Results = dict[tuple[str, float, int], float]


def play(
    kind: type[Master], rates: Sequence[float], seeds: Sequence[int], name: str, noise: str, rounds: int
) -> list[float]:
    """Play members of one kind at once; return their shares of rounds with a wrong arm."""
    streams = [data.stream(name, seed, rounds, noise, "raw", False) for seed in seeds]
    contexts = np.stack([one.contexts for one in streams], axis=1)
    labels, noises = (np.stack([getattr(one, what) for one in streams], axis=1) for what in ("labels", "noise"))
    (count, members, dim), actions = contexts.shape, streams[0].actions
    ridges = ArmRidges(np.full(members, (dim + 1) / 5.0), actions, dim + 1)
    scaler, residuals = Scaler(members, dim), Following(members) if noise == "none" else Cut(members)
    master = kind(np.array(rates), actions, count, seeds)
    wrong, each = np.zeros(members), np.arange(members)
    for x, label, added in zip(contexts, labels, noises, strict=True):
        z = scaler(x)
        mean, width = ridges.predict(z)
        radius = UNIT * residuals.scale()[:, None, None] * np.array(SCALES)[:, None]
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

    def __init__(self, name: str, noise: str, seeds: Sequence[int], rounds: int) -> None:
        self.name, self.noise, self.seeds, self.rounds = name, noise, seeds, rounds
        self.fixed = {scale: self.errors(Fixed, i, seeds) for i, scale in enumerate(SCALES)}
        self.best = min(self.fixed, key=lambda scale: statistics.mean(self.fixed[scale]))
        self.masters = {
            master: {rate: self.errors(kind, rate, (*seeds, *TUNING_SEEDS)) for rate in rates}
            for master, (kind, rates) in MASTERS.items()
        }

    def errors(self, kind: type[Master], rate: float, seeds: Sequence[int]) -> list[float]:
        return play(kind, [rate] * len(seeds), seeds, self.name, self.noise, self.rounds)

    def tuned(self, master: str) -> float:
        """Return the rate with the least mean error on the tuning seeds."""
        runs = self.masters[master]
        return min(runs, key=lambda rate: sum(runs[rate][len(self.seeds) :]))

    def of(self, master: str, rate: float) -> list[float]:
        """Return the errors on the test seeds."""
        return self.masters[master][rate][: len(self.seeds)]

    def ratio(self, errors: Sequence[float]) -> float:
        """Return mean errors in units of those of the best radius in hindsight."""
        return statistics.mean(errors) / statistics.mean(self.fixed[self.best])


def tuned_table(cells: Sequence[Cell]) -> str:
    """Return errors of the tuned masters beside the best radius and radii fixed beforehand."""
    fixed = SCALES[:2]
    header = ["set, noise", "best multiple in hindsight", *(f"multiple {scale:g}" for scale in fixed), *MASTERS]
    rows = []
    for cell in cells:
        shown = [cell.fixed[scale] for scale in fixed] + [cell.of(master, cell.tuned(master)) for master in MASTERS]
        best = f"{tables.cell(cell.fixed[cell.best])} ({cell.best:g})"
        rows.append([f"{cell.name}, {cell.noise}", best, *map(tables.cell, shown)])
    for noise in dict.fromkeys(cell.noise for cell in cells):
        some = [cell for cell in cells if cell.noise == noise]
        ratios = [[cell.ratio(cell.fixed[scale]) for cell in some] for scale in fixed]
        ratios += [[cell.ratio(cell.of(master, cell.tuned(master))) for cell in some] for master in MASTERS]
        rows.append([f"ratio to best, noise {noise}: mean, worst", "", *map(mean_and_worst, ratios)])
    return tables.markdown(header, rows)


def mean_and_worst(ratios: Sequence[float]) -> str:
    # One set without errors, in a short run, has no ratio.
    return f"{statistics.geometric_mean([max(r, 1e-3) for r in ratios]):.2f}, {max(ratios):.2f}"


def constants_table(cells: Sequence[Cell]) -> str:
    """Return the ratio of each master to the best radius, at each constant."""
    rows = []
    for master, (_, rates) in MASTERS.items():
        for noise in dict.fromkeys(cell.noise for cell in cells):
            ratios = [[cell.ratio(cell.of(master, rate)) for cell in cells if cell.noise == noise] for rate in rates]
            names = ", ".join(f"{rate:g}" for rate in rates)
            rows.append([f"{master}, noise {noise}", names, *map(mean_and_worst, ratios)])
    return tables.markdown(["master", "constants", "small", "middle", "large"], rows)


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
    parser.add_argument("--page", type=Path, help="a page whose tables to renew, such as docs/radius_master.md")
    parser.add_argument("--smoke", action="store_true", help="30 rounds of digits and 2 seeds, to see that it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen, seeds, rounds = (["digits"], 2, 30) if options.smoke else (data.chosen_sets([data.DEVELOPMENT]), SEEDS, ROUNDS)
    cells = []
    for name in chosen:
        if not data.SETS[name].is_installed():
            print(f"Left out, because {data.SETS[name].package} is not installed: {name}")
            continue
        for noise in data.NOISES:
            cells.append(Cell(name, noise, range(seeds), rounds))
            print(f"{name}, {noise}: played", file=sys.stderr, flush=True)
    checked = CHECKED[0] if any(cell.name == CHECKED[0] for cell in cells) else CHECKED[1]
    found = {
        "Masters, tuned": tuned_table(cells),
        "What the constants matter": constants_table(cells),
        "The library and its twin": check_table([cell for cell in cells if cell.name == checked]),
    }
    mark = "<!-- printed by examples/benchmarks/radius_masters.py -->\n"
    print("\n".join(f"## {title}\n\n{mark}{table}" for title, table in found.items()))


if __name__ == "__main__":
    main()
