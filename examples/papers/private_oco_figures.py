"""Private online convex optimisation: Figures 5.2 and 5.3 of the DP-TOFW paper, and the printed rows of its rivals.

The paper and the setting are those of ``private_oco.py``. The experiments are:

- *Figure 5.2*: suboptimality against the records, at (1, 1/T)-privacy, T = 2000 and d = 10, for step scales from 1/8 to 4. A
  step scale multiplies the learner's default rate; a Frank-Wolfe step is at most 1. The learners are ``DPTOFW``, ``NoisySFW``
  (p = 1.5) and ``NoisySGD`` (p = infinity), with a clip of 1 and exact accounting, and the paper's algorithm *as printed*,
  which is NOT PRIVATE. ``NoisySGD`` passes over the records 31 times; its curve is that of the average of its iterates.
  *Worst / best* is the largest mean over the smallest. *Within a factor of 2* is the same for the best step scale and its two
  neighbours. Step scales of 1/16 and 8 are there as neighbours only.
- *Figure 5.3*: suboptimality against time at p = 1.5, for T = 1000 and d = 5, and for T = 2000 and d = 10. Every learner has
  its best step scale from 1/8 to 4, chosen on the data: not covered by epsilon. Seconds are of processor time on one thread
  and include computing gradients. Runs of the learners take turns. They have the step scale 1, which does not change the time.
  The tables have ratios of times only. ``NoisySFW`` learns record by record, as from a stream, or batch by batch: then it
  computes a batch's gradients at once, as one with all records at hand would do.
- *Table 5.1*: the rows that the paper prints for its rivals, beside the saved runs of ``private_oco.py`` and
  ``private_oco_rates.py``. The printed (risk - 0.0025) / suboptimality is the risk of the decision 0 above that of theta*. It
  depends on |theta*|^2 only, and so tells which theta* a row has. At p = 1.5 the rows imply that all entries of theta* are
  equal up to signs. The learners of Figure 5.2 play this too, with the best step scale from 1/8 to 4.

The figures of the docs are drawn with ``--save``.

    python examples/papers/private_oco_figures.py    # some minutes of processor time; seconds with --quick
"""

import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Experiment, Job, Results, listed, saved, scatter, short, table
from private_oco import (
    DIMS,
    EPSILON,
    NOISE,
    NORMS,
    RADIUS,
    ROUNDS,
    TRIALS,
    Cell,
    Played,
    Stream,
    as_printed,
    dptofw,
    gradients,
    promise,
    where,
    with_clip_1,
)
from private_oco import best as best_run
from private_streams import Setting, drawn_moment, seed_of
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchonline.baselines import NoisySFW, NoisySGD

# The grid of all learners, between two more that are neighbours of its ends.
SCALES = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
GRID = range(1, len(SCALES) - 1)
POINTS = 40  # of a curve
LEVELS = (0.5, 0.2)  # of suboptimality, to be reached
SHARED = 32.0  # NoisySGD has a step of n / 32 records in the mean
PRINTED = "DP-TOFW as printed, NOT PRIVATE"
BY_BATCH = "NoisySFW, by batch"
# Table 5.1 of the paper: T, d, p, algorithm; risk, suboptimality and seconds, each mean and standard deviation.
TABLE = """
1000 5 1.5 NoisySFW 0.0885 0.00907 0.522 0.0565 0.0189 0.00216
1000 5 1.5 OFW 0.00536 0.00155 0.0172 0.00987 0.0929 0.00157
1000 5 inf NoisySGD 0.0259 0.0176 0.0802 0.0613 30.2 0.805
1000 5 inf OFW 0.0357 0.0216 0.112 0.0727 0.0765 0.00345
1000 10 1.5 NoisySFW 0.0771 0.0107 0.953 0.0947 0.0216 0.000514
1000 10 1.5 OFW 0.0183 0.00332 0.201 0.0483 0.105 0.0124
1000 10 inf NoisySGD 0.0525 0.0149 0.636 0.186 31.2 0.516
1000 10 inf OFW 0.0915 0.0209 0.582 0.157 0.0852 0.0109
1000 20 1.5 NoisySFW 0.0414 0.000302 1.05 0.0108 0.0217 0.0027
1000 20 1.5 OFW 0.0307 0.00344 0.775 0.128 0.108 0.00901
1000 20 inf NoisySGD 0.0202 0.00262 0.955 0.111 31.4 0.945
1000 20 inf OFW 0.0766 0.00464 0.982 0.0768 0.0825 0.0114
2000 5 1.5 NoisySFW 0.0746 0.00644 0.44 0.0287 0.0376 0.000492
2000 5 1.5 OFW 0.00285 0.000197 0.00235 0.00106 0.222 0.0184
2000 5 inf NoisySGD 0.0127 0.00371 0.0344 0.0133 119 0.962
2000 5 inf OFW 0.0152 0.00585 0.0432 0.02 0.156 0.00851
2000 10 1.5 NoisySFW 0.0701 0.00493 0.887 0.0691 0.0366 0.00502
2000 10 1.5 OFW 0.00704 0.00247 0.0595 0.0321 0.189 0.00384
2000 10 inf NoisySGD 0.0382 0.0133 0.484 0.178 124 2.36
2000 10 inf OFW 0.0582 0.0113 0.364 0.0795 0.159 0.00928
2000 20 1.5 NoisySFW 0.0376 0.00262 0.957 0.0673 0.0397 0.00427
2000 20 1.5 OFW 0.018 0.00374 0.406 0.106 0.2 0.00776
2000 20 inf NoisySGD 0.0209 0.00148 0.947 0.0672 125 0.345
2000 20 inf OFW 0.067 0.00799 0.82 0.114 0.164 0.0098
5000 5 1.5 NoisySFW 0.0587 0.0212 0.35 0.135 0.0979 0.0143
5000 5 1.5 OFW 0.00258 1.58e-05 0.000702 0.00051 0.469 0.00995
5000 5 inf NoisySGD 0.00538 0.000982 0.00989 0.00378 742 3.35
5000 5 inf OFW 0.00667 0.000392 0.0145 0.00153 0.397 0.0291
5000 10 1.5 NoisySFW 0.0659 0.00926 0.808 0.115 0.0867 0.00326
5000 10 1.5 OFW 0.00376 0.000479 0.0163 0.0053 0.477 0.0189
5000 10 inf NoisySGD 0.0201 0.00175 0.115 0.0118 747 2.4
5000 10 inf OFW 0.022 0.00347 0.125 0.0204 0.38 0.0117
5000 20 1.5 NoisySFW 0.0401 0.000848 1 0.0264 0.0834 0.0121
5000 20 1.5 OFW 0.00962 0.00209 0.185 0.0558 0.527 0.0121
5000 20 inf NoisySGD 0.049 0.00585 0.602 0.0571 755 2.89
5000 20 inf OFW 0.0535 0.00736 0.637 0.105 0.413 0.004
10000 5 1.5 NoisySFW 0.0607 0.027 0.351 0.161 0.163 0.00869
10000 5 1.5 OFW 0.00255 4.72e-05 0.000318 0.000179 1.04 0.0295
10000 5 inf OFW 0.00337 0.000336 0.00293 0.00106 0.76 0.0157
10000 10 1.5 NoisySFW 0.0646 0.00522 0.789 0.0744 0.175 0.0253
10000 10 1.5 OFW 0.00282 0.00025 0.00465 0.00184 1.07 0.0987
10000 10 inf NoisySGD 0.0103 0.000748 0.0505 0.00514 3.03e+03 8.8
10000 10 inf OFW 0.00976 0.00259 0.0467 0.0159 0.803 0.013
10000 20 1.5 NoisySFW 0.0391 0.00178 0.937 0.0303 0.153 0.0194
10000 20 1.5 OFW 0.00487 0.000584 0.0592 0.0155 1.04 0.102
10000 20 inf NoisySGD 0.0409 0.00362 0.482 0.0453 3.12e+03 27.6
10000 20 inf OFW 0.0316 0.00192 0.363 0.0283 0.844 0.0464
"""
CELLS = [Cell(norm, rounds, dim) for norm in NORMS for rounds in ROUNDS for dim in DIMS]


@dataclass(frozen=True)
class Row:
    """Row of the printed table."""

    cell: Cell
    algorithm: str
    risk: float
    suboptimality: float
    spread: float  # its standard deviation
    seconds: float

    @classmethod
    def read(cls, line: str) -> "Row":
        rounds, dim, norm, algorithm, *numbers = line.split()
        risk, _, suboptimality, spread, seconds, _ = map(float, numbers)
        return cls(Cell(float(norm), int(rounds), int(dim)), algorithm, risk, suboptimality, spread, seconds)

    def of_0(self) -> float:
        """Return the risk of the decision 0 above that of theta*, as the row implies it."""
        return (self.risk - NOISE**2) / self.suboptimality

    def error_of_0(self) -> float:
        """Return two standard errors of it, of the risk of theta* on 10,000 test records."""
        return 2.0 * NOISE**2 * math.sqrt(2.0 / 10_000) / self.suboptimality


ROWS = {(row.algorithm, row.cell): row for row in map(Row.read, TABLE.strip().splitlines())}
RIVAL = {1.5: "NoisySFW", math.inf: "NoisySGD"}


class Averages(TorchFunctionMode):
    """Records of what ``lerp_`` made while the mode is on: the averages of ``NoisySGD``, one a step."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.lerp_:
            self.found.append(result[0].clone())
        return result


def times(steps: int) -> list[int]:
    """Return the steps of a curve's points."""
    return sorted({math.ceil(steps * i / POINTS) for i in range(1, POINTS + 1)})


def follow(learner: Any, stream: Stream, scales: Tensor | None = None) -> Tensor:
    """Return the suboptimality of a batch on its way, ``(points, *B)``, with rescaled steps of 1/(t + 1)."""
    found, at = [], times(len(stream.x))
    for t, (x, y) in enumerate(stream, 1):
        before = learner.predict()
        learner.step(gradients(learner, x, y))
        if scales is not None:
            learner.theta.copy_(before.lerp(learner.theta, scales.clamp(max=t + 1.0)))
        if t in at:
            found.append(stream.suboptimality(learner.predict()))
    return torch.stack(found)


def noisy_sfw(cell: Cell, shape: tuple[int, ...], seed: int, scale: float = 1.0) -> NoisySFW:
    told = promise(cell, 1.0, shape, seed)
    return NoisySFW(cell.dim, **told, step_size=min(1.0, scale * NoisySFW(cell.dim, **told).step_size))


def follow_sgd(cell: Cell, stream: Stream, scale: float, epsilon: float) -> Tensor:
    """Return the suboptimality of NoisySGD's averages, ``(points, trials)``."""
    told: dict[str, Any] = {"records": cell.rounds, "epsilon": epsilon, "delta": cell.delta}
    told |= {"norm": cell.norm, "radius_bound": RADIUS, "steps": sgd_steps(cell), "batch_size": cell.rounds / SHARED}
    rate, runs = scale * NoisySGD(cell.dim, **told).learning_rate, []
    for trial in range(len(stream.theta)):
        sgd = NoisySGD(cell.dim, **told, learning_rate=rate, seed=seed_of("figures", "NoisySGD", cell, trial, scale))
        with Averages() as averages:
            sgd.fit(lambda theta, x, y: ((theta * x).sum() - y) ** 2, stream.x[:, trial], stream.y[:, trial])
        runs.append(torch.stack([averages.found[t - 1] for t in times(sgd.steps)]))
    return stream.suboptimality(torch.stack(runs, 1))


def sgd_steps(cell: Cell) -> int:
    return cell.rounds // 2


def play(name: str, cell: Cell, stream: Stream, epsilon: float = EPSILON) -> Tensor:
    """Return the suboptimality of a learner with all step scales, ``(points, scales, trials)``."""
    trials, seed = len(stream.theta), seed_of("figures", name, cell)
    if name in MAKERS:
        scales = torch.tensor(SCALES, dtype=torch.float64)[:, None, None]
        return follow(MAKERS[name](cell, 1.0, (len(SCALES), trials), seed), stream, scales)
    if name == "NoisySFW":
        return torch.stack([follow(noisy_sfw(cell, (trials,), seed, scale), stream) for scale in SCALES], 1)
    return torch.stack([follow_sgd(cell, stream, scale, epsilon) for scale in SCALES], 1)


def curves(name: str, trials: int, epsilon: float, **options: Any) -> dict[str, Any]:
    """Return means and standard deviations on the way, and the end per trial, for all step scales."""
    cell = Cell(**options)
    found = play(name, cell, Stream(cell, trials), epsilon)
    return {"mean": brief(found.mean(-1).T), "sd": brief(found.std(-1).T), "end": brief(found[-1])}


class EqualEntries(Stream):
    """The stream with a theta* whose entries are equal up to their signs."""

    def __init__(self, cell: Cell, trials: int) -> None:
        super().__init__(cell, trials)
        theta = self.theta.sign() * cell.dim ** (-1.0 / cell.norm)
        self.y += (self.x * (theta - self.theta)).sum(-1)
        self.theta = theta


def equal_entries(name: str, trials: int, **options: Any) -> list[float]:
    """Return the end per trial with the best step scale of the grid."""
    cell = Cell(**options)
    end = play(name, cell, EqualEntries(cell, trials))[-1, 1:-1]
    return brief(end[end.mean(-1).argmin()][None])[0]


def brief(numbers: Tensor) -> list[Any]:
    """Return numbers with four digits, by row."""
    return [[float(f"{value:.4g}") for value in row] for row in numbers.tolist()]


MAKERS: dict[str, Any] = {"DPTOFW": dptofw, PRINTED: as_printed}


def seconds_by_record(learner: Any, x: Tensor, y: Tensor) -> list[float]:
    """Return the seconds since the start at each point of a curve."""
    found, at, start = [], times(len(x)), time.process_time()
    for t, record in enumerate(zip(x, y, strict=True), 1):
        learner.step(gradients(learner, *record))
        if t in at:
            found.append(time.process_time() - start)
    return found


def seconds_by_batch(learner: Any, x: Tensor, y: Tensor) -> list[float]:
    """Return the seconds at which NoisySFW has learnt all batches up to each point of a curve.

    A batch's gradients are computed at once; its decisions are the same as record by record. The learner's clock is left out.
    """
    start, done = time.process_time(), [0.0]
    for first, end in zip((0, *learner.ends), learner.ends, strict=False):
        with torch.no_grad():
            residual = x[first:end] @ learner.queries().T - y[first:end, None]
            rows = 2.0 * residual.unsqueeze(-1) * x[first:end, None]
            learner._learn(learner._contribution(rows, end).sum(0), end)
        done.append(time.process_time() - start)
    return [done[int(np.searchsorted(learner.ends, t, side="right"))] for t in times(len(x))]


def race(trials: int, **options: Any) -> dict[str, Any]:
    """Return the seconds of single runs, which take turns: means and standard deviations on the way, and each whole run."""
    cell = Cell(**options)
    stream, found = Stream(cell, trials), {}
    for trial in (0, *range(trials)):  # the first run warms up
        seed, x, y = seed_of("race", cell, trial), stream.x[:, trial], stream.y[:, trial]
        for name, make in MAKERS.items():
            found.setdefault(name, []).append(seconds_by_record(make(cell, 1.0, (), seed), x, y))
        found.setdefault("NoisySFW", []).append(seconds_by_record(noisy_sfw(cell, (), seed), x, y))
        found.setdefault(BY_BATCH, []).append(seconds_by_batch(noisy_sfw(cell, (), seed), x, y))
    numbers = {name: np.array(runs[1:]) for name, runs in found.items()}
    return {
        name: {"mean": runs.mean(0).tolist(), "sd": runs.std(0, ddof=1).tolist(), "run": runs[:, -1].tolist()}
        for name, runs in numbers.items()
    }


def cells(quick: bool) -> tuple[list[Cell], list[Cell]]:
    """Return the cells of Figure 5.2, one for each p, and of Figure 5.3."""
    sizes = [(30, 3), (40, 5)] if quick else [(1000, 5), (2000, 10)]
    return [Cell(norm, *sizes[1]) for norm in NORMS], [Cell(1.5, *size) for size in sizes]


def players(norm: float) -> tuple[str, ...]:
    return (RIVAL[norm], "DPTOFW", PRINTED)


def jobs(quick: bool) -> dict[str, Job]:
    told, (first, second) = {"trials": 2 if quick else TRIALS}, cells(quick)
    found = {}
    for cell in dict.fromkeys([*reversed(first), *second]):
        for name in players(cell.norm):
            # The noise level of NoisySGD takes long for few records: a quick run has none.
            epsilon = math.inf if quick and name == "NoisySGD" else EPSILON
            found[f"curves, {name}, {cell}"] = Job(curves, {"name": name, "epsilon": epsilon} | told | asdict(cell))
    for cell in second[:1] if quick else [cell for cell in reversed(CELLS) if cell.norm == 1.5]:
        for name in players(cell.norm):
            found[f"equal, {name}, {cell}"] = Job(equal_entries, {"name": name} | told | asdict(cell))
    return found | {f"race, {cell}": Job(race, told | asdict(cell)) for cell in second}


class Drawn:
    """Results of the figures."""

    def __init__(self, results: Results) -> None:
        self.results = results
        is_quick = results.keys() != jobs(False).keys()
        self.first, self.second = cells(is_quick)
        self.equal = self.second[:1] if is_quick else [cell for cell in CELLS if cell.norm == 1.5]

    def end(self, name: str, cell: Cell) -> list[list[float]]:
        return self.results[f"curves, {name}, {cell}"]["end"]

    def means(self, name: str, cell: Cell) -> list[float]:
        return [statistics.fmean(numbers) for numbers in self.end(name, cell)]

    def best(self, name: str, cell: Cell) -> int:
        """Return the index of the best step scale of the grid."""
        return min(GRID, key=self.means(name, cell).__getitem__)

    def curve(self, name: str, cell: Cell, scale: int, what: str = "mean") -> np.ndarray:
        name = "NoisySFW" if name == BY_BATCH else name
        return np.array(self.results[f"curves, {name}, {cell}"][what][scale])

    def seconds(self, name: str, cell: Cell, what: str = "mean") -> np.ndarray:
        return np.array(self.results[f"race, {cell}"][name][what])

    @property
    def trials(self) -> int:
        return len(self.end("DPTOFW", self.first[0])[0])

    def robustness(self, name: str, cell: Cell) -> tuple[float, float]:
        """Return the largest mean over that of the best step scale: of the grid, and of the best one and its neighbours."""
        means, best = self.means(name, cell), self.best(name, cell)
        return max(means[i] for i in GRID) / means[best], max(means[best - 1 : best + 2]) / means[best]


def scales_table(drawn: Drawn) -> str:
    rows = []
    for cell in drawn.first:
        for name in players(cell.norm):
            numbers, best = drawn.end(name, cell), drawn.best(name, cell)
            ratios = map(short, drawn.robustness(name, cell))
            rows.append([f"{cell.norm:g}", name, *map(scatter, numbers), f"{SCALES[best]:g}", *ratios])
    return table(
        ["p", "learner", *(f"{scale:g}" for scale in SCALES), "best", "worst / best, 1/8 to 4", "within a factor of 2"],
        rows,
    )


def scales_verdicts(drawn: Drawn) -> list[str]:
    """Compare both forms of DP-TOFW with the rival, and name the learners whose grid is too short."""
    said, ends = [], []
    for cell in drawn.first:
        rival = RIVAL[cell.norm]
        for name in (PRINTED, "DPTOFW"):
            both = [drawn.means(each, cell)[1:-1] for each in (name, rival)]
            far, near = zip(*(drawn.robustness(each, cell) for each in (name, rival)), strict=True)
            less = sum(a < b for a, b in zip(*both, strict=True))
            said.append(
                f"p = {cell.norm:g}, {name} and {rival}: worst / best {shorts(far)}; within a factor of 2 {shorts(near)}; "
                f"best {shorts(map(min, both))}; worst {shorts(map(max, both))}; the first has less at {less} of {len(GRID)} "
                "step scales"
            )
        for name in players(cell.norm):
            best, means = drawn.best(name, cell), drawn.means(name, cell)
            beyond = {GRID[0]: 0, GRID[-1]: len(SCALES) - 1}.get(best)
            if beyond is not None:
                numbers = f"{short(means[best])} at {SCALES[best]:g}, {short(means[beyond])} at {SCALES[beyond]:g}"
                ends.append(f"p = {cell.norm:g}, {name}: the best step scale is at an end of the grid: {numbers}")
    return said + ends


def shorts(numbers: Iterable[float]) -> str:
    return " and ".join(map(short, numbers))


def reached(drawn: Drawn, name: str, cell: Cell, level: float) -> float:
    """Return the seconds until the mean suboptimality stays below a level; infinity if it does not."""
    scale = drawn.best("NoisySFW" if name == BY_BATCH else name, cell)
    above = np.flatnonzero(drawn.curve(name, cell, scale) >= level)
    first = int(above[-1]) + 1 if len(above) else 0
    seconds = drawn.seconds(name, cell)
    return float(seconds[first]) if first < len(seconds) else math.inf


def ratio(a: float, b: float) -> str:
    """Return a ratio of times that were reached, or which was not."""
    return short(a / b) if max(a, b) < math.inf else "not reached"


def by_then(drawn: Drawn, name: str, rival: str, cell: Cell) -> float:
    """Return the mean suboptimality of a learner when a run of its rival ends; 1 before its first point."""
    done = np.searchsorted(drawn.seconds(name, cell), drawn.seconds(rival, cell)[-1], side="right")
    return float(drawn.curve(name, cell, drawn.best(name, cell))[done - 1]) if done else 1.0


def race_table(drawn: Drawn) -> str:
    """Return a table of NoisySFW against both forms of DP-TOFW."""
    rows = []
    for cell in drawn.second:
        theirs, end = drawn.best("NoisySFW", cell), drawn.end("NoisySFW", cell)
        for name in MAKERS:
            ours = drawn.best(name, cell)
            for rival in ("NoisySFW", BY_BATCH):
                run = statistics.median(drawn.seconds(rival, cell, "run") / drawn.seconds(name, cell, "run"))
                levels = [ratio(reached(drawn, rival, cell, x), reached(drawn, name, cell, x)) for x in LEVELS]
                chosen = [f"{SCALES[ours]:g}, {SCALES[theirs]:g}", scatter(drawn.end(name, cell)[ours])]
                times_of = [short(run), *levels, short(by_then(drawn, name, rival, cell))]
                rows.append([*where(cell)[1:], name, rival, *chosen, scatter(end[theirs]), *times_of])
    header = ["T", "d", "DP-TOFW", "rival", "step scales", "DP-TOFW ends at", "rival ends at", "time of a run"]
    return table([*header, *(f"time to {level:g}" for level in LEVELS), "DP-TOFW when the rival ends"], rows)


def race_verdicts(drawn: Drawn) -> list[str]:
    said = []
    for name in MAKERS:
        for rival in ("NoisySFW", BY_BATCH):
            runs = [
                statistics.median(drawn.seconds(rival, cell, "run") / drawn.seconds(name, cell, "run"))
                for cell in drawn.second
            ]
            ends = [min(drawn.means("NoisySFW", cell)) / min(drawn.means(name, cell)) for cell in drawn.second]
            said.append(
                f"{rival} takes {shorts(runs)} times as long as {name}, and ends at "
                f"{shorts(ends)} times its suboptimality"
            )
    return said


class Rivals:
    """Printed rows of the rivals, beside our runs."""

    def __init__(self) -> None:
        self.played, self.rates = Played(saved("private_oco")), saved("private_oco_rates")

    def ours(self, cell: Cell) -> tuple[list[float], list[float]]:
        """Return the suboptimality of our rival, default and tuned, per trial."""
        if cell.norm < math.inf:
            return self.played.default("NoisySFW", cell), self.played.tuned("NoisySFW", cell)
        one = self.rates[f"sgd, {Setting(math.inf, cell.rounds, cell.dim, 1.0)}"]
        tuned = min(one["NoisySGD"].values(), key=statistics.fmean)
        default, tuned = (
            [a / b for a, b in zip(part, one["zero"], strict=True)] for part in (one["NoisySGD"]["1"], tuned)
        )
        return default, tuned

    def tuned(self, cell: Cell) -> float:
        return statistics.fmean(self.ours(cell)[1])

    def dptofw(self, cell: Cell) -> float:
        """Return the mean suboptimality of DPTOFW, tuned: at p = 1.5 by the rival's grid, else by its own."""
        if cell.norm < math.inf:
            return statistics.fmean(best_run(with_clip_1(self.played, "DPTOFW", cell))["suboptimality"])
        one = self.rates[f"sgd, {Setting(math.inf, cell.rounds, cell.dim, 1.0)}"]
        return statistics.fmean(a / b for a, b in zip(one["tuned"], one["zero"], strict=True))


def known(norm: float) -> list[tuple[Cell, Row, Row]]:
    """Return the cells of a norm with the rows of the rival and OFW, where both are printed and of one theta*."""
    pairs = [(cell, ROWS.get((RIVAL[norm], cell)), ROWS[("OFW", cell)]) for cell in CELLS if cell.norm == norm]
    return [(cell, rival, ofw) for cell, rival, ofw in pairs if rival and not is_off(rival)]


def printed(row: Row | None) -> str:
    return f"{short(row.suboptimality)} ± {short(row.spread)}" if row else ""


def rivals_table(rivals: Rivals, norm: float) -> str:
    rows = []
    for cell in (cell for cell in CELLS if cell.norm == norm):
        rival, ofw = ROWS.get((RIVAL[norm], cell)), ROWS[("OFW", cell)]
        default, tuned = rivals.ours(cell)
        share = (
            [short(rival.suboptimality / statistics.fmean(tuned)), short(rival.seconds / ofw.seconds)]
            if rival
            else ["", ""]
        )
        rows.append([*where(cell)[1:], printed(rival), scatter(default), scatter(tuned), printed(ofw), *share])
    header = ["T", "d", f"{RIVAL[norm]}, printed", "ours, default", "ours, tuned", "OFW, printed"]
    return table([*header, "printed / ours tuned", f"printed seconds, {RIVAL[norm]} / OFW"], rows)


def between(numbers: Iterable[float]) -> str:
    found = list(numbers)
    return f"{short(min(found))} to {short(max(found))} times, median {short(statistics.median(found))}"


def rivals_verdicts(rivals: Rivals) -> list[str]:
    said = []
    for norm in NORMS:
        name, rows = RIVAL[norm], known(norm)
        count = len([cell for cell in CELLS if cell.norm == norm])
        weak = [rival.suboptimality / rivals.tuned(cell) for cell, rival, _ in rows]
        below = sum(rivals.tuned(cell) < ROWS[("OFW", cell)].suboptimality for cell in CELLS if cell.norm == norm)
        ours = between(rivals.tuned(cell) / rivals.dptofw(cell) for cell, _, _ in rows)
        said += [
            f"p = {norm:g}: printed {name} / ours tuned: {between(weak)}, in {len(rows)} cells",
            f"p = {norm:g}: our {name}, tuned and private, has less than the printed OFW in {below} of {count} cells",
            f"p = {norm:g}: {name} / OFW, printed: {between(a.suboptimality / b.suboptimality for _, a, b in rows)}",
            f"p = {norm:g}: {name} / DPTOFW, ours, both tuned: {ours}",
            f"p = {norm:g}: printed seconds, {name} / OFW: {between(a.seconds / b.seconds for _, a, b in rows)}",
        ]
    return said


def equal_table(drawn: Drawn) -> str:
    """Return a table of the printed rows and our runs on the theta* that they imply."""
    rows = []
    for cell in drawn.equal:
        theirs, ofw = ROWS.get(("NoisySFW", cell)), ROWS.get(("OFW", cell))
        sfw, ours, as_it_is = (drawn.results[f"equal, {name}, {cell}"] for name in players(cell.norm))
        shares = [
            short(row.suboptimality / statistics.fmean(numbers)) if row else ""
            for row, numbers in ((theirs, sfw), (ofw, as_it_is))
        ]
        rows.append([*where(cell)[1:], printed(theirs), *map(scatter, (sfw, ours, as_it_is)), printed(ofw), *shares])
    header = ["T", "d", "NoisySFW, printed", "NoisySFW", "DPTOFW", PRINTED, "OFW, printed"]
    return table([*header, "printed NoisySFW / ours", "printed OFW / as printed"], rows)


def equal_verdicts(drawn: Drawn) -> list[str]:
    """Compare printed rows and our runs, with the best step scales."""
    cells = [cell for cell in drawn.equal if ("OFW", cell) in ROWS]
    if not cells:
        return []
    means = {
        name: [statistics.fmean(drawn.results[f"equal, {name}, {cell}"]) for cell in cells] for name in players(1.5)
    }
    theirs, ofw = ([ROWS[(name, cell)].suboptimality for cell in cells] for name in ("NoisySFW", "OFW"))

    def over(a: list[float], b: list[float]) -> str:
        return between(x / y for x, y in zip(a, b, strict=True))

    below = sum(a < b for a, b in zip(means["NoisySFW"], ofw, strict=True))
    return [
        f"printed NoisySFW / ours: {over(theirs, means['NoisySFW'])}",
        f"printed OFW / {PRINTED}, ours: {over(ofw, means[PRINTED])}",
        f"NoisySFW / DPTOFW, ours: {over(means['NoisySFW'], means['DPTOFW'])}",
        f"our NoisySFW has less than the printed OFW in {below} of {len(cells)} cells",
    ]


def instances_table() -> str:
    """Return a table of the risks of the decision 0 that the printed rows imply."""
    rows = []
    for cell in CELLS:
        rival, ofw = ROWS.get((RIVAL[cell.norm], cell)), ROWS[("OFW", cell)]
        implied = [short(row.of_0()) if row else "" for row in (rival, ofw)]
        candidates = (of_equal(cell, cell.dim), of_equal(cell, 5), of_gaussian(cell))
        off = [row.algorithm for row in (rival, ofw) if row and is_off(row)]
        rows.append([*where(cell), *implied, *map(short, candidates), ", ".join(off)])
    return table(
        ["p", "T", "d", "rival", "OFW", "all entries equal", "five equal", "Gaussian", "other than its p and d"], rows
    )


def usual(cell: Cell) -> float:
    """Return the median of the implied risk over all rows of the same p and d."""
    return statistics.median(
        row.of_0() for (_, other), row in ROWS.items() if (other.norm, other.dim) == (cell.norm, cell.dim)
    )


def is_off(row: Row) -> bool:
    """Return whether a row differs by a tenth and by two standard errors from the median of its p and d."""
    away = abs(row.of_0() - usual(row.cell))
    return away > 0.1 * usual(row.cell) and away > row.error_of_0()


def of_equal(cell: Cell, entries: int) -> float:
    """Return the risk of the decision 0 above that of a theta* of norm 1 with equal entries, up to signs, and zeros."""
    return drawn_moment(cell.norm, cell.dim) * entries ** (1.0 - 2.0 / cell.norm)


def of_gaussian(cell: Cell) -> float:
    """Return the same for theta* Gaussian divided by its norm, by 4000 draws."""
    theta = torch.randn(4000, cell.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theta /= torch.linalg.vector_norm(theta, cell.norm, dim=-1, keepdim=True)
    return drawn_moment(cell.norm, cell.dim) * float(theta.square().sum(-1).mean())


def instances_verdicts() -> list[str]:
    said = []
    for row in filter(is_off, ROWS.values()):
        share = row.of_0() / usual(row.cell)
        said.append(
            f"{row.algorithm}, {row.cell}: {short(row.of_0())} is {share:.2f} times the median {short(usual(row.cell))}"
        )
    rest = [row.of_0() / usual(row.cell) for row in ROWS.values() if not is_off(row)]
    return [*said, f"the other {len(rest)} rows: {min(rest):.2f} to {max(rest):.2f} times the median of their p and d"]


def tables(results: Results) -> dict[str, str]:
    drawn, rivals = Drawn(results), Rivals()
    size = f"T = {drawn.first[0].rounds}, d = {drawn.first[0].dim}"
    ends = f"mean ± sd of {drawn.trials} trials"
    made = {
        f"Figure 5.2: suboptimality by step scale, {size}, {ends}": scales_table(drawn),
        "Figure 5.2: robustness": listed(scales_verdicts(drawn)),
        f"Figure 5.3: p = 1.5, best step scales, {ends}; times of the rival over those of DP-TOFW": race_table(drawn),
        "Figure 5.3: who is faster": listed(race_verdicts(drawn)),
    }
    for norm in NORMS:
        made[f"Table 5.1, p = {norm:g}: {RIVAL[norm]} as printed and ours, suboptimality"] = rivals_table(rivals, norm)
    made["Table 5.1: what the printed rivals are worth"] = listed(rivals_verdicts(rivals))
    made["Table 5.1: risk of the decision 0 above that of theta*, as the printed rows imply it"] = instances_table()
    made["Table 5.1: rows of other instances"] = listed(instances_verdicts())
    made[f"p = 1.5, all entries of theta* equal, best step scales: suboptimality, {ends}"] = equal_table(drawn)
    if said := equal_verdicts(drawn):
        made["p = 1.5, all entries of theta* equal"] = listed(said)
    return made


def plot_scales(drawn: Drawn, path: Path) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(9.6, 5.6), sharey=True, layout="constrained")
    for line, cell in zip(axes, drawn.first, strict=True):
        for axis, name in zip(line, players(cell.norm), strict=True):
            for i in GRID:
                mean = drawn.curve(name, cell, i)
                steps = np.array(times(sgd_steps(cell) if name == "NoisySGD" else cell.rounds))
                x = (steps - 1.0) / SHARED if name == "NoisySGD" else steps
                axis.plot(x, mean, label=f"{SCALES[i]:g}", linewidth=1.2)
            unit = f"passes over {cell.rounds} records" if name == "NoisySGD" else "records"
            axis.set_title(f"p = {cell.norm:g}: {name}", fontsize=9)
            axis.set(xlabel=unit, yscale="log")
            axis.grid(alpha=0.3)
        line[0].set_ylabel("suboptimality, mean")
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, title="step scale", fontsize=8, loc="outside lower center", ncols=len(GRID))
    figure.savefig(path, dpi=90, pil_kwargs={"optimize": True})
    plt.close(figure)


def plot_race(drawn: Drawn, path: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(9.0, 6.4), sharey=True, layout="constrained")
    for line, ours in zip(axes, MAKERS, strict=True):
        for axis, cell in zip(line, drawn.second, strict=True):
            for name in (ours, "NoisySFW", BY_BATCH):
                scale = drawn.best("NoisySFW" if name == BY_BATCH else name, cell)
                mean, sd = (drawn.curve(name, cell, scale, what) for what in ("mean", "sd"))
                seconds = drawn.seconds(name, cell)
                (curve,) = axis.plot(seconds, mean, label=f"{name}, step scale {SCALES[scale]:g}")
                color = curve.get_color()
                axis.fill_between(seconds, np.maximum(mean - sd, 1e-3), mean + sd, color=color, alpha=0.15, linewidth=0)
            axis.set(
                title=f"T = {cell.rounds}, d = {cell.dim}",
                xlabel="seconds of processor time",
                xscale="log",
                yscale="log",
            )
            axis.grid(alpha=0.3)
            axis.legend(fontsize=7, loc="lower left")
        line[0].set_ylabel("suboptimality, mean ± sd")
    figure.savefig(path, dpi=90, pil_kwargs={"optimize": True})
    plt.close(figure)


def figures(results: Results, folder: Path) -> list[Path]:
    drawn, paths = Drawn(results), [folder / f"private_oco_{name}.png" for name in ("5_2", "5_3")]
    plot_scales(drawn, paths[0])
    plot_race(drawn, paths[1])
    return paths


EXPERIMENT = Experiment(
    __file__,
    jobs,
    tables,
    figures,
    is_timed=True,
    seeds="the checksum of each setting (private_streams.seed_of)",
)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
