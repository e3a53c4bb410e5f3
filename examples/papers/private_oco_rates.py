"""Private online convex optimisation: rates of the DP-TOFW paper, measured.

The paper is that of ``private_oco.py``. The experiments, each a name for ``--only``:

- *rates*: excess risk of ``DPTOFW`` on the paper's linear regression (Section 5.1), against the number n of records, the number d
  of features, epsilon, and the order p of the norm. Features are Gaussian divided by their norm of order q, and theta* has norm 1
  in the ball of radius 2. The excess is E<x, theta - theta*>^2 for the last decision. The table has the exponents that a line
  through the logarithms fits. Beside them are the exponents of the rate's two terms, of the records and of the noise:
  kappa^(1/2) / n^(1/2) and (kappa d)^(1/2) / (n epsilon), kappa = d^(1 - 2/p) for p > 2 and no power of d for 1 < p <= 2. This
  is the rate for convex losses. The rate for strongly convex ones with theta* inside has the squares of the terms.
- *interior*: excess and regret within one run, with theta* inside the ball (radius 2) and on its sphere (radius 1). The regret
  at t is the sum of the excesses of the first t decisions.
- *hard*: ``DPTOFW`` on linear losses whose mean is so short that noise can hide it, in the ball of radius 1. The mean's
  length changes with n, d and epsilon; the worst of five lengths counts. Beside it is a lower bound of any learner's worst
  excess, over all linear losses. The rate is that for convex losses.
- *entry*: the same for p = 1 and ``DPPOFW``, where one entry of the losses has a mean, against d.
- *p1*: p = 1 with many features, which are random signs, in the ball of radius 1. theta* has l1 norm 1 and one or five entries
  that are not 0. ``DPPOFW`` with each noise, and ``NoisySFW``; and the ratio of the excesses of Gumbel noise and of the BLT over
  a grid, for one entry.
- *bandit*: regret of ``DPHDB`` against d, in the environment of ``private_oco.py``.
- *logistic*: the same with binary rewards and a logistic link.
- *sgd*: ``NoisySGD``, over many passes, in Table 5.1's setting at p = infinity.
- *smooth*: ``LocalMD`` with the noise that smooth losses need (``conditional_local_md.py``), on losses that are smooth: the
  logistic loss, with theta* of norm 5 in the ball of radius 10; and the squared loss of Table 5.1 with bounded noise. p is 2.

*Tuned* is the best of five step scales and three clips, chosen on the data: not covered by epsilon. All have delta = 0.1/n,
except Table 5.1 with its 1/n. Noise has seeds here, so that the script repeats; a seeded run is private to nobody. An exponent's
standard error is by the jackknife over trials.

    python examples/papers/private_oco_rates.py    # some 33 minutes; seconds with --smoke
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from conditional_local_md import ConditionalLocalMD
from private_streams import (
    NOISE,
    BoundedStream,
    HardStream,
    LogisticStream,
    OneEntry,
    Setting,
    Stream,
    entries,
    seed_of,
)
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from torchonline import DPHDB, DPPOFW, DPTOFW
from torchonline.baselines import DPFTRL, LocalMD, NoisySFW, NoisySGD
from torchonline.links import Logistic
from torchonline.privacy.learners.vertex_choice import NoisyVertex

SPARSITY = 5  # entries of theta* that are not 0, where they are few
WIDTH = 220  # of the printed tables, in characters
# The first of each are the defaults.
STEP_SCALES, CLIPS = (1.0, 0.125, 0.25, 0.5, 2.0), (1.0, 0.5, 2.0)
NORMS = (1.5, 2.0, math.inf)
VERTEX_NOISE = ("gumbel", "laplace", "blt")
RATE_SCALES = (1.0, 0.25, 4.0)  # of the conditional LocalMD
# Of the hard instances: entries of the mean over the standard deviation of the noisy mean's entries.
SIGNALS, HARD_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0), (1.0, 4.0, 8.0)
HARD_EPSILONS = (math.inf, 4.0, 1.0, 0.25)


@dataclass
class Run:
    """Excess and regret at some times, ``(times, clips, scales, trials)``."""

    excess: Tensor
    regret: Tensor

    def default(self, what: str = "excess") -> Tensor:
        """Return the numbers with the default clip and step, ``(times, trials)``."""
        return getattr(self, what)[:, 0, 0]

    def choice(self, at: int = -1, what: str = "excess") -> tuple[int, int]:
        """Return clip and step scale that are the best at a time, by the data."""
        means = getattr(self, what)[at].mean(-1)
        clip, scale = divmod(int(means.argmin()), means.shape[-1])
        return clip, scale

    def tuned(self, what: str = "excess") -> Tensor:
        """Return the numbers with the best choice for each time, ``(times, trials)``."""
        numbers = getattr(self, what)
        return torch.stack([row[self.choice(at, what)] for at, row in enumerate(numbers)])


def learn(
    learner: Any,
    stream: Stream,
    at: Sequence[int],
    clips: Sequence[float] = (),
    scales: Sequence[float] = (),
    with_regret: bool = False,
) -> Run:
    """Play a stream on a fleet ``(clips, scales, trials)``.

    A clip C is applied as the clip 1 of gradients divided by C. Decisions depend on the direction of a sum only, so they have the
    same law. A scale c makes steps of 1/(t + 1) steps of c/(t + 1). The regret is 0 unless it is asked for.
    """
    clip = torch.tensor(clips or (1.0,), dtype=torch.float64)[:, None, None, None, None]
    scale = torch.tensor(scales or (1.0,), dtype=torch.float64)[:, None, None]
    excess, regret, total = [], [], torch.zeros(())
    for t, record in enumerate(stream, 1):
        before = learner.predict()
        total = total + stream.excess(before) if with_regret else total
        points = learner.secret_queries() if isinstance(learner, LocalMD) else learner.queries()
        learner.step(stream.gradients(points, *record) / clip)
        if scales:
            learner.theta.copy_(before.lerp(learner.theta, scale))
        if t in at:
            excess.append(stream.excess(learner.average() if isinstance(learner, DPFTRL) else learner.predict()))
            regret.append(total)
    return Run(torch.stack(excess), torch.stack(regret))


def dptofw(setting: Setting, trials: int, at: Sequence[int] = (), stream: Stream | None = None) -> Run:
    """Play DPTOFW with all clips and step scales; without clips if epsilon is infinite.

    The regret is that at the given times, if any are given.
    """
    private = setting.epsilon < math.inf
    clips = CLIPS if private else (1.0,)
    shape = (len(clips), len(STEP_SCALES), trials)
    told: Any = {"clip": 1.0 if private else math.inf, "batch_shape": shape, "seed": seed_of("DPTOFW", setting)}
    learner = DPTOFW(setting.dim, **setting.promise(), **setting.ball(), **told)
    return learn(learner, stream or Stream(setting, trials), at or (setting.rounds,), clips, STEP_SCALES, bool(at))


@dataclass
class Worst:
    """Excess of the worst hard instance, per trial, its signal and the step scale."""

    excess: Tensor
    signal: float
    scale: float


def noise_of_mean(noise: Any, n: int) -> float:
    """Return the scale of the noise on a score, or of that on an entry of the mean, after n steps."""
    if isinstance(noise, NoisyVertex):
        return noise.scale / math.sqrt(n)
    return noise.noise_scale * noise.errors(n)[1] / n


def hardest(setting: Setting, trials: int) -> tuple[Worst, Worst]:
    """Play DPTOFW on hard instances; return the worst, default and tuned.

    Tuned is the step scale whose worst instance is the mildest. The clip is the Euclidean norm of a record, so it cuts nothing.
    """
    n, (size, share) = setting.rounds, entries(setting)
    private = setting.epsilon < math.inf
    told: Any = {"clip": size * math.sqrt(share * setting.dim) if private else math.inf}
    told |= {"seed": seed_of("hard", setting), "batch_shape": (1, len(HARD_SCALES), trials * len(SIGNALS))}
    learner = DPTOFW(setting.dim, **setting.promise(), **setting.ball(), **told)
    unit = math.hypot(size * math.sqrt(share / n), noise_of_mean(learner.noise, n)) / (share * size)
    stream = HardStream(setting, trials, [min(1.0, signal * unit) for signal in SIGNALS])
    run = learn(learner, stream, (n,), scales=HARD_SCALES)
    excess = run.excess[0, 0].unflatten(-1, (len(SIGNALS), trials))
    worst, where = excess.mean(-1).max(-1)
    found = [Worst(excess[i, where[i]], SIGNALS[where[i]], HARD_SCALES[i]) for i in (0, int(worst.argmin()))]
    return found[0], found[1]


def hardest_entry(setting: Setting, noise: str, trials: int) -> Tensor:
    """Return the excess of DPPOFW where one entry has the worst of some means, per trial."""
    n, d = setting.rounds, setting.dim
    told: Any = {"clip": 1.0 if setting.epsilon < math.inf else math.inf, "mechanism": noise, "radius_bound": 1.0}
    told |= {"seed": seed_of("entry", noise, setting), "batch_shape": (1, 1, trials * len(SIGNALS))}
    learner = DPPOFW(d, **setting.promise(), **told)
    largest = math.hypot(math.sqrt(2.0 * math.log(2.0 * d) / n), noise_of_mean(learner.noise, n) * math.log(2.0 * d))
    stream = OneEntry(setting, trials, [min(1.0, signal * largest / 4.0) for signal in SIGNALS])
    excess = learn(learner, stream, (n,)).excess[0, 0, 0].unflatten(-1, (len(SIGNALS), trials))
    return excess[int(excess.mean(-1).argmax())]


def relative(learner: Any, stream: Stream) -> Tensor:
    """Return the last decision's excess over that of the decision 0, per trial."""
    excess = learn(learner, stream, (stream.setting.rounds,)).default()[0]
    return excess / stream.excess(torch.zeros_like(stream.theta))


def conditional(stream: Any, scale: float = 1.0) -> Tensor:
    """Return the relative excess of LocalMD under the promise that the stream keeps."""
    setting = stream.setting
    told: Any = {"radius_bound": setting.radius, "clip": stream.longest, "smoothness": stream.smoothness}
    told |= setting.promise() | {"batch_shape": (1, 1, stream.trials), "seed": seed_of("conditional", setting, scale)}
    rate = ConditionalLocalMD(setting.dim, **told).learning_rate
    rate = min(scale * rate, 2.0 / stream.smoothness)
    return relative(ConditionalLocalMD(setting.dim, **told, learning_rate=rate), stream)


def least_worst_excess(setting: Setting) -> float:
    """Return a lower bound of any learner's worst excess over all linear losses."""
    bias = torch.logspace(-5, -0.01, 2000, dtype=torch.float64)
    distance = (0.5 * setting.rounds * (entries(setting)[1] * bias * ((1.0 + bias) / (1.0 - bias)).log())).sqrt()
    return float((bias * (1.0 - distance)).max())


def slope(values: Sequence[float], runs: Tensor) -> tuple[float, float]:
    """Fit an exponent to means ``(values, trials)``; return it and its standard error."""
    x = torch.tensor(values, dtype=torch.float64).log()
    x = x - x.mean()

    def fit(numbers: Tensor) -> float:
        return float((x * numbers.mean(-1).log()).sum() / x.square().sum())

    trials = runs.shape[-1]
    left_out = torch.tensor([fit(torch.cat((runs[:, :i], runs[:, i + 1 :]), -1)) for i in range(trials)])
    return fit(runs), float(left_out.std(correction=0)) * math.sqrt(trials - 1)


def short(number: Any) -> str:
    """Return a number with three digits."""
    number = float(number)
    if number == 0.0 or not math.isfinite(number):
        return f"{number:g}"
    return f"{number:.{max(0, 2 - math.floor(math.log10(abs(number))))}f}" if abs(number) >= 0.001 else f"{number:.2e}"


def spread(numbers: Tensor) -> str:
    return f"{short(numbers.mean())} ± {short(numbers.std())}"


def exponent(values: Sequence[float], runs: Tensor) -> str:
    """Return a fitted exponent with its standard error; nothing for a single value."""
    if len(values) < 2:
        return ""
    fitted, error = slope(values, runs)
    return f"{fitted:.2f} ± {error:.2f}"


def new_table(title: str, *headers: str) -> Table:
    table = Table(title=title, box=box.MARKDOWN)
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    return table


class Experiments:
    """All experiments, their tables, figures and numbers."""

    def __init__(self, console: Console, output: Path, smoke: bool) -> None:
        self.console, self.output, self.smoke = console, output, smoke
        self.trials = 2 if smoke else 10
        self.numbers: dict[str, Any] = {}

    def show(self, table: Table) -> None:
        title, table.title = table.title, None  # a title is not wrapped to the width of its table
        self.console.print(f"\n{title}", soft_wrap=True, highlight=False)
        self.console.print(table)

    def save(self, figure: Any, name: str) -> None:
        path = self.output / f"private_oco_{name}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        self.console.print(f"Figure: {path}")

    def keep(self, name: str, setting: Any, **runs: Tensor) -> None:
        found = {key: numbers.tolist() for key, numbers in runs.items()}
        self.numbers.setdefault(name, []).append({**asdict(setting), **found})

    def rates(self) -> None:
        """Measure the excess against n, d, epsilon and p."""
        long, rounds = 5000, [500, 1000, 2000, 4000, 8000, 16000]
        dims, epsilons = [5, 10, 20, 40, 80], [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
        if self.smoke:
            long, rounds, dims, epsilons = 40, [20, 40], [5, 6], [1.0, 4.0]
        axes: dict[str, list[Setting]] = {
            "n": [Setting(norm, n, 10, 1.0) for norm in NORMS for n in rounds],
            "d": [Setting(norm, long, dim, 4.0) for norm in NORMS for dim in dims],
            "epsilon": [Setting(norm, long, 10, epsilon) for norm in NORMS for epsilon in epsilons],
            "p": [Setting(norm, long, 20, 4.0) for norm in (1.25, 1.5, 2.0, 3.0, 5.0, math.inf)],
        }
        names = {"n": "rounds", "d": "dim", "epsilon": "epsilon", "p": "norm"}
        settings = list(dict.fromkeys(setting for axis in axes.values() for setting in axis))
        found = {setting: dptofw(setting, self.trials) for setting in track(settings, "rates", console=self.console)}
        free = {}
        for setting in track(
            list(dict.fromkeys(replace(s, epsilon=math.inf) for s in settings)), "no privacy", console=self.console
        ):
            free[setting] = dptofw(setting, self.trials)
        fits = new_table(
            "Fitted exponents of the excess, where the tuned one is below half of the decision 0's",
            *("against", "p", "points", "default", "tuned", "no privacy, tuned", "rate: records, noise", "its square"),
        )
        figure, panels = plt.subplots(1, 3, figsize=(13.0, 4.2), layout="constrained")
        for axis, rows in axes.items():
            table = new_table(
                f"Excess risk against {axis}: mean ± sd of {self.trials} trials",
                *(
                    "p",
                    "n",
                    "d",
                    "epsilon",
                    "decision 0",
                    "default",
                    "tuned",
                    "its step scale, clip",
                    "no privacy, tuned",
                ),
            )
            for setting in rows:
                run, without = found[setting], free[replace(setting, epsilon=math.inf)]
                clip, scale = run.choice()
                zero = self.zero(setting)
                where = (
                    f"{setting.norm:g}",
                    f"{setting.rounds}",
                    f"{setting.dim}",
                    f"{setting.epsilon:g}",
                    short(zero),
                )
                chosen = f"{STEP_SCALES[scale]:g}, {CLIPS[clip]:g}"
                table.add_row(
                    *where, spread(run.default()[0]), spread(run.tuned()[0]), chosen, spread(without.tuned()[0])
                )
                self.keep(
                    f"rates, {axis}", setting, default=run.default()[0], tuned=run.tuned()[0], free=without.tuned()[0]
                )
            self.show(table)
            if axis == "p":
                continue
            panel = panels[list(axes).index(axis)]
            for color, norm in zip(("C0", "C1", "C2"), NORMS, strict=True):
                line = [setting for setting in rows if setting.norm == norm]
                learnt = [s for s in line if float(found[s].tuned()[0].mean()) < 0.5 * self.zero(s)]
                values = [getattr(setting, names[axis]) for setting in learnt]
                fitted = []
                for kind, runs in (
                    ("default", [found[s].default()[0] for s in learnt]),
                    ("tuned", [found[s].tuned()[0] for s in learnt]),
                    ("no privacy", [free[replace(s, epsilon=math.inf)].tuned()[0] for s in learnt]),
                ):
                    flat = axis == "epsilon" and kind == "no privacy"
                    fitted.append("" if flat or not runs else exponent(values, torch.stack(runs)))
                fits.add_row(axis, f"{norm:g}", f"{len(learnt)} of {len(line)}", *fitted, *claimed(axis, norm))
                x = [getattr(setting, names[axis]) for setting in line]
                for style, runs in (
                    ("-", [found[s].tuned()[0] for s in line]),
                    (":", [found[s].default()[0] for s in line]),
                ):
                    label = f"p = {norm:g}, {'tuned' if style == '-' else 'default'}"
                    panel.loglog(
                        x, torch.stack(runs).mean(-1), f"{color}{style}", marker="o", markersize=3, label=label
                    )
            panel.set(xlabel=axis, ylabel="excess risk")
            panel.set_xticks(x, [f"{value:g}" for value in x])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
        self.show(fits)
        self.save(figure, "rates")

    def zero(self, setting: Setting) -> float:
        """Return the mean excess of the decision 0 over the trials."""
        stream = Stream(setting, self.trials)
        return float(stream.excess(torch.zeros_like(stream.theta)).mean())

    def interior(self) -> None:
        """Measure excess and regret in one run, theta* inside or on the sphere."""
        times: tuple[int, ...] = (500, 1000, 2000, 4000, 8000, 16000)
        times = (10, 20, 40) if self.smoke else times
        settings = [
            Setting(norm, times[-1], 10, epsilon, radius)
            for radius in (2.0, 1.0)
            for norm in NORMS
            for epsilon in (math.inf, 8.0, 1.0)
        ]
        headers = ("theta*", "p", "epsilon", *(f"t = {t}" for t in times), "exponent", "of the last three")
        excess = new_table(f"Excess at time t within one run, tuned for each t: mean of {self.trials} trials", *headers)
        regret = new_table(
            f"Regret at time t, tuned for the last t: mean of {self.trials} trials",
            *headers,
            "last increase / the one before",
        )
        figure, panels = plt.subplots(1, 2, figsize=(11.0, 4.4), layout="constrained")
        for setting in track(settings, "interior", console=self.console):
            run = dptofw(setting, self.trials, times)
            sums = run.regret[:, *run.choice(what="regret")]
            where = ("inside" if setting.radius > 1.0 else "on the sphere", f"{setting.norm:g}", f"{setting.epsilon:g}")
            for table, numbers in ((excess, run.tuned()), (regret, sums)):
                means = [short(row.mean()) for row in numbers]
                fits = [exponent(times, numbers), exponent(times[-3:], numbers[-3:])]
                grown = sums.mean(-1).diff()
                more = [short(grown[-1] / grown[-2])] if table is regret else []
                table.add_row(*where, *means, *fits, *more)
            self.keep("interior", setting, excess=run.tuned(), regret=sums)
            if setting.norm == 2.0:
                label = f"theta* {where[0]}, epsilon = {where[2]}"
                for panel, numbers in zip(panels, (run.tuned(), sums), strict=True):
                    panel.loglog(times, numbers.mean(-1), marker="o", markersize=3, label=label)
        for panel, name in zip(panels, ("excess risk, p = 2", "regret, p = 2"), strict=True):
            panel.set(xlabel="t", ylabel=name)
            panel.set_xticks(times, list(map(str, times)))
            panel.minorticks_off()
            panel.grid(alpha=0.3)
        figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
        self.show(excess)
        self.show(regret)
        self.save(figure, "interior")

    def hard(self) -> None:
        """Measure the worst excess over linear losses, against n, d and epsilon."""
        long, short_run, rounds, trials = 4000, 2000, (500, 1000, 2000, 4000, 8000, 16000), 2 * self.trials
        dims, epsilons = (5, 10, 20, 40), (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
        if self.smoke:
            long, short_run, rounds, dims, epsilons = 20, 20, (20, 40), (5, 6), (1.0, 4.0)
        axes = {
            "n": [[Setting(norm, n, 10, e, 1.0) for n in rounds] for e in HARD_EPSILONS for norm in NORMS],
            "d": [[Setting(norm, long, dim, e, 1.0) for dim in dims] for e in (math.inf, 0.5) for norm in NORMS],
            "epsilon": [[Setting(norm, short_run, 10, e, 1.0) for e in epsilons] for norm in NORMS],
        }
        names = {"n": "rounds", "d": "dim", "epsilon": "epsilon"}
        settings = list(dict.fromkeys(setting for rows in axes.values() for row in rows for setting in row))
        found = {setting: hardest(setting, trials) for setting in track(settings, "hard", console=self.console)}
        figure, panels = plt.subplots(1, len(HARD_EPSILONS), figsize=(14.0, 4.4), layout="constrained", sharey=True)
        for axis, rows in axes.items():
            values = [getattr(setting, names[axis]) for setting in rows[0]]
            end, part = ("first", slice(3)) if axis == "epsilon" else ("last", slice(-3, None))
            table = new_table(
                f"Worst excess over linear losses against {axis}: mean of {trials} trials",
                *("p", "steps") if axis == "epsilon" else ("epsilon", "p", "steps"),
                *(*(f"{axis} = {value:g}" for value in values), "exponent", f"of the {end} three"),
                *("rate: records, noise", "signals", "step scales"),
            )
            for row in rows:
                first = row[0]
                where = [f"{first.epsilon:g}", f"{first.norm:g}"][axis == "epsilon" :]
                for kind in (0, 1):
                    worst = [found[setting][kind] for setting in row]
                    runs = torch.stack([one.excess for one in worst])
                    fits = (exponent(values, runs), exponent(values[part], runs[part]), claimed(axis, first.norm)[0])
                    means = [short(one.mean()) for one in runs]
                    chosen = [", ".join(f"{getattr(one, name):g}" for one in worst) for name in ("signal", "scale")]
                    table.add_row(*where, ("default", "tuned")[kind], *means, *fits, *chosen)
                    if axis == "n":
                        self.draw_hard(panels, row, runs.mean(-1), kind)
                least = torch.tensor([[least_worst_excess(setting)] for setting in row], dtype=torch.float64)
                if first.epsilon == math.inf:
                    fitted = f"{round(slope(values, least)[0], 2) + 0.0:.2f}"
                    table.add_row(*where, "any learner, all losses", *map(short, least), fitted, "", "", "", "")
                for setting, one in zip(row, least, strict=True):
                    default, tuned = found[setting]
                    self.keep(f"hard, {axis}", setting, default=default.excess, tuned=tuned.excess, least=one)
            self.show(table)
        figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
        self.save(figure, "hard")

    def draw_hard(self, panels: Any, row: Sequence[Setting], means: Tensor, kind: int) -> None:
        """Draw one line of the worst excess against n, and the lower bound."""
        first, x = row[0], [setting.rounds for setting in row]
        panel, color = panels[HARD_EPSILONS.index(first.epsilon)], f"C{NORMS.index(first.norm)}"
        label = f"p = {first.norm:g}, {('default', 'tuned')[kind]}"
        panel.loglog(x, means, color + ":-"[kind], marker="o", markersize=3, label=label)
        if kind and first.norm >= 2.0:
            least = [least_worst_excess(setting) for setting in row]
            panel.loglog(
                x, least, "k" + (":" if first.norm > 2.0 else "--"), linewidth=0.8, label=f"least, p = {first.norm:g}"
            )
        panel.set(xlabel="n", ylabel="worst excess", title=f"epsilon = {first.epsilon:g}")
        panel.set_xticks(x, list(map(str, x)))
        panel.minorticks_off()
        panel.grid(alpha=0.3)

    def entry(self) -> None:
        """Measure the worst excess over linear losses of one entry, for p = 1, against d."""
        n, dims, trials = 4000, (20, 63, 200, 632, 2000), self.trials
        if self.smoke:
            n, dims = 20, (5, 6)
        table = new_table(
            f"Worst excess over linear losses with one entry, p = 1, n = {n}: mean ± sd of {trials} trials",
            *("epsilon", "noise", *(f"d = {dim}" for dim in dims), "last / first"),
        )
        for epsilon, noise in [(math.inf, "blt"), *((e, noise) for e in (64.0, 16.0) for noise in ("gumbel", "blt"))]:
            settings = [Setting(1.0, n, dim, epsilon, 1.0) for dim in dims]
            runs = [hardest_entry(setting, noise, trials) for setting in settings]
            means = [float(run.mean()) for run in runs]
            name = "none" if epsilon == math.inf else noise
            table.add_row(f"{epsilon:g}", name, *map(spread, runs), f"{means[-1] / means[0]:.2f}")
            for setting, run in zip(settings, runs, strict=True):
                self.keep("entry", setting, **{name: run})
        log, root = math.log(2.0 * dims[-1]) / math.log(2.0 * dims[0]), math.sqrt(dims[-1] / dims[0])
        for name, ratio in {"log(2d)": log, "its root": math.sqrt(log), "root of d": root}.items():
            table.add_row("", name, *([""] * len(dims)), f"{ratio:.2f}")
        self.show(table)

    def p1(self) -> None:
        """Compare noises at p = 1 with many features."""
        dims, rounds, epsilons = [200, 500, 1000, 2000, 5000], [500, 1000, 2000], [1.0, 4.0, 10.0, 50.0, 200.0]
        shown = [(2000, 1000), (5000, 2000)]
        if self.smoke:
            dims, rounds, epsilons, shown = [20, 50], [20], [10.0, 200.0], [(50, 20)]
        ratios = new_table(
            "p = 1: suboptimality with Gumbel noise / with the BLT; * where both have at least 0.9",
            *("d", "n", "d / n", "trials", "auto", *(f"epsilon = {epsilon:g}" for epsilon in epsilons)),
        )
        cells = new_table(
            "p = 1: suboptimality, the decision 0 has 1: mean ± sd, defaults",
            *(
                "entries",
                "d",
                "n",
                "epsilon",
                "trials",
                "Gumbel",
                "Laplace",
                "BLT",
                "NoisySFW",
                "no privacy",
                "best",
                "auto",
            ),
        )
        logs: dict[float, list[tuple[float, float]]] = {epsilon: [] for epsilon in epsilons}
        for dim, n in track([(dim, n) for dim in dims for n in rounds], "p = 1", console=self.console):
            trials = min(self.trials, 5 if dim <= 2000 else 3)
            auto, row = DPPOFW(dim, horizon=n, epsilon=1.0, delta=0.1 / n).mechanism, []
            for epsilon in epsilons:
                setting = Setting(1.0, n, dim, epsilon, radius=1.0, sparsity=1)
                found = {noise: self.pofw(setting, noise, trials) for noise in ("gumbel", "blt")}
                ratio = float(found["gumbel"].mean() / found["blt"].mean())
                nothing = min(float(numbers.mean()) for numbers in found.values()) >= 0.9
                row.append(short(ratio) + ("*" if nothing else ""))
                if not nothing:
                    logs[epsilon].append((dim / n, ratio))
                self.keep("p1", setting, **found)
                if (dim, n) in shown:
                    self.add_all(cells, setting, trials, auto, found)
            ratios.add_row(str(dim), str(n), f"{dim / n:g}", str(trials), auto, *row)
        for dim, n in shown:
            for epsilon in epsilons[-2:]:
                setting = Setting(1.0, n, dim, epsilon, radius=1.0, sparsity=SPARSITY)
                auto = DPPOFW(dim, horizon=n, epsilon=1.0, delta=0.1 / n).mechanism
                self.add_all(cells, setting, min(self.trials, 3), auto, {})
        self.show(cells)
        self.show(ratios)
        learnt = [point for points in logs.values() for point in points]
        for least in (1.3, 2.0, 3.0, 4.0, math.inf):
            right = sum((ratio < 1.0) == (share > least) for share, ratio in learnt)
            self.console.print(
                f"Gumbel noise if d > {least:g} n is the better choice in {right} of {len(learnt)} cells without a *"
            )
        figure, axis = plt.subplots(figsize=(7.0, 4.4), layout="constrained")
        for epsilon, points in logs.items():
            if points:
                axis.loglog(*zip(*sorted(points), strict=True), "o-", label=f"epsilon = {epsilon:g}")
        axis.axhline(1.0, color="k", linewidth=0.8)
        axis.axvline(3.0, color="k", linewidth=0.8, linestyle=":", label="auto changes here")
        axis.set(xlabel="d / n", ylabel="suboptimality, Gumbel / BLT")
        axis.legend(fontsize=8)
        self.save(figure, "p1")

    def add_all(self, table: Table, setting: Setting, trials: int, auto: str, found: dict[str, Tensor]) -> None:
        """Add a row with all learners, those found already among them."""
        for noise in VERTEX_NOISE:
            found[noise] = found[noise] if noise in found else self.pofw(setting, noise, trials)
        told: Any = {"clip": math.sqrt(setting.dim), "batch_shape": (1, 1, trials), "seed": seed_of("SFW", setting)}
        rival = NoisySFW(setting.dim, **setting.promise(), **setting.ball(), **told)
        found["NoisySFW"] = relative(rival, Stream(setting, trials))
        free = self.pofw(replace(setting, epsilon=math.inf), "blt", trials)
        best = min(found, key=lambda name: float(found[name].mean()))
        where = (setting.sparsity, setting.dim, setting.rounds, f"{setting.epsilon:g}", trials)
        order = [spread(found[name]) for name in (*VERTEX_NOISE, "NoisySFW")]
        table.add_row(*map(str, where), *order, spread(free), best, auto)
        self.keep("p1, all", setting, **found, free=free)

    def pofw(self, setting: Setting, noise: str, trials: int) -> Tensor:
        clip = 1.0 if setting.epsilon < math.inf else math.inf
        told: Any = {"clip": clip, "mechanism": noise, "batch_shape": (1, 1, trials), "seed": seed_of(noise, setting)}
        learner = DPPOFW(setting.dim, radius_bound=setting.radius, **setting.promise(), **told)
        return relative(learner, Stream(setting, trials))

    def smooth(self) -> None:
        """Compare LocalMD under a promise of smooth losses with learners that need none."""
        rounds, dims = ((20, 40), (5, 6)) if self.smoke else ((1000, 3000, 10000), (5, 10, 20))
        rivals: dict[str, Any] = {"DPTOFW": DPTOFW, "DP-FTRL": DPFTRL, "LocalMD": LocalMD}
        table = new_table(
            f"p = 2: suboptimality, the decision 0 has 1: mean ± sd of {self.trials} trials, defaults",
            *("loss", "n", "d", "epsilon", *rivals, "LocalMD, conditional", "the same, no privacy"),
        )
        less, best = dict.fromkeys(rivals, 0), 0
        problems = [("logistic", LogisticStream, 10.0, n, dim) for n in rounds for dim in dims]
        problems += [("squared", BoundedStream, 2.0, n, dims[1]) for n in rounds]
        for loss, kind, radius, n, dim in track(problems, "smooth", console=self.console):
            free = conditional(kind(Setting(2.0, n, dim, math.inf, radius), self.trials))
            for epsilon in (1.0, 4.0):
                setting, found = Setting(2.0, n, dim, epsilon, radius), {}
                for name, rival in rivals.items():
                    told = {**setting.promise(), **setting.ball(), "batch_shape": (1, 1, self.trials)}
                    learner = rival(dim, **told, seed=seed_of(name, setting))
                    found[name] = relative(learner, kind(setting, self.trials))
                ours = torch.stack([conditional(kind(setting, self.trials), scale) for scale in RATE_SCALES])
                cells = [spread(numbers) for numbers in (*found.values(), ours[0], free)]
                table.add_row(loss, str(n), str(dim), f"{epsilon:g}", *cells)
                less = {name: less[name] + bool(ours[0].mean() < found[name].mean()) for name in rivals}
                best += int(ours.mean(-1).argmin()) == 0
                self.keep(f"smooth, {loss}", setting, **found, conditional=ours, free=free)
        self.show(table)
        count = 2 * len(problems)
        for name, number in less.items():
            self.console.print(f"LocalMD, conditional, has less than {name} in {number} of {count} cells")
        scales = ", ".join(f"{scale:g}" for scale in sorted(RATE_SCALES))
        self.console.print(f"Of {scales} times its default rate the default is the best in {best} of {count} cells")

    def bandit(self) -> None:
        """Measure the regret of DPHDB against d."""
        dims, rounds = ((10, 12), 40) if self.smoke else ((10, 20, 50, 100, 200, 500), 10000)
        options: dict[str, dict[str, Any]] = {
            "DPHDB": {},
            "DPHDB, Gumbel": {"mechanism": "gumbel"},
            "no privacy": {"epsilon": math.inf, "clip": math.inf, "reward_clip": math.inf},
        }
        title = f"DPHDB: pseudo-regret after T = {rounds} rounds, K = 2, epsilon = 1: mean ± sd of {self.trials} trials"
        table = new_table(title, "d", "uniform", *options, "DPHDB / uniform")
        found: dict[str, list[Tensor]] = {name: [] for name in ("uniform", *options)}
        for dim in track(dims, "bandit", console=self.console):
            game = Game(rounds, dim, self.trials, 1.0)
            for name, numbers in found.items():
                numbers.append(game.play(options.get(name)))
            share = found["DPHDB"][-1].mean() / found["uniform"][-1].mean()
            table.add_row(str(dim), *(spread(numbers[-1]) for numbers in found.values()), short(share))
            self.keep("bandit", game, **{name: numbers[-1] for name, numbers in found.items()})
        table.add_row("exponent", *(exponent(dims, torch.stack(numbers)) for numbers in found.values()), "")
        self.show(table)
        figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
        for name, numbers in found.items():
            axis.loglog(dims, torch.stack(numbers).mean(-1), "o-", label=name)
        axis.set(xlabel="d", ylabel="pseudo-regret")
        axis.set_xticks(dims, list(map(str, dims)))
        axis.minorticks_off()
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
        self.save(figure, "bandit_dims")

    def logistic(self) -> None:
        """Measure the regret of DPHDB with a logistic link."""
        rounds = 40 if self.smoke else 10000
        title = (
            f"Logistic DPHDB: pseudo-regret after T = {rounds} rounds, K = 2, d = 10: mean ± sd of {self.trials} trials"
        )
        table = new_table(title, "epsilon", "DPHDB", "DPHDB, Gumbel", "uniform", "DPHDB / uniform")
        for epsilon in (1.0, 4.0, math.inf):
            game = Game(rounds, 10, self.trials, epsilon, binary=True)
            free: dict[str, Any] = {"clip": math.inf} if epsilon == math.inf else {}
            told: dict[str, Any] = {"link": Logistic()} | free
            ours, uniform = game.play(told), game.play(None)
            gumbel = "" if free else spread(game.play(told | {"mechanism": "gumbel"}))
            table.add_row(f"{epsilon:g}", spread(ours), gumbel, spread(uniform), short(ours.mean() / uniform.mean()))
            self.keep("logistic", game, ours=ours, uniform=uniform)
        self.show(table)

    def sgd(self) -> None:
        """Compare NoisySGD with DPTOFW in Table 5.1's setting at p = infinity."""
        rounds = (200,) if self.smoke else (1000, 2000, 5000, 10000)
        title = "Table 5.1, p = infinity, (1, 1/T): suboptimality, mean ± sd; risk; seconds of a run over DPTOFW's"
        columns = ("DPTOFW", "tuned", "NoisySGD", "tuned", "its rate")
        risks = ("risk: DPTOFW", "tuned", "NoisySGD", "tuned")
        table = new_table(title, "T", "d", "trials", *columns, *risks, "time")
        for n in track(rounds, "NoisySGD", console=self.console):
            trials = self.trials if n == rounds[0] else 5
            for dim in (5,) if self.smoke else (5, 10, 20):
                setting = Setting(math.inf, n, dim, 1.0)
                stream = Stream(setting, trials)
                records = list(stream)
                zero = stream.excess(torch.zeros_like(stream.theta))
                run = table_dptofw(setting, stream, records)
                ours, tuned = run.default()[0], run.tuned()[0]
                start = time.perf_counter()
                table_dptofw(setting, stream, records, single=True)
                time_of_ours = time.perf_counter() - start
                theirs, times = [], 0.0
                for scale in (1.0, 2.0, 4.0):
                    points = []
                    for i in range(trials):
                        fitted, seconds = noisy_sgd(setting, records, i, scale)
                        points.append(fitted)
                        times += seconds / (3 * trials)
                    theirs.append(stream.excess(torch.stack(points)))
                best = min(range(3), key=lambda i: float(theirs[i].mean()))
                four = (ours, tuned, theirs[0], theirs[best])
                cells = [spread(numbers / zero) for numbers in four]
                where = (str(n), str(dim), str(trials))
                risk = [short(NOISE**2 + numbers.mean()) for numbers in four]
                table.add_row(*where, *cells, f"{(1, 2, 4)[best]}", *risk, short(times / time_of_ours))
                self.keep("sgd", setting, ours=ours / zero, tuned=tuned / zero, sgd=torch.stack(theirs) / zero)
        self.show(table)


def claimed(axis: str, norm: float) -> tuple[str, str]:
    """Return the exponents of the rate's terms, of the records and the noise, and squared."""
    kappa = max(0.0, 0.5 - 1.0 / norm)
    pairs = {"n": (-0.5, -1.0), "d": (kappa, kappa + 0.5), "epsilon": (0.0, -1.0)}
    once, twice = ([f"{times * exponent:g}" for exponent in pairs[axis]] for times in (1, 2))
    return ", ".join(once), ", ".join(twice)


class Records:
    """Records that were drawn before, as a stream."""

    def __init__(self, stream: Stream, records: list[tuple[Tensor, Tensor]]) -> None:
        self.records, self.excess, self.gradients = records, stream.excess, stream.gradients

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.records)


def table_dptofw(setting: Setting, stream: Stream, records: list[tuple[Tensor, Tensor]], single: bool = False) -> Run:
    """Play DPTOFW at (1, 1/T), all clips, scales and trials, or a single run."""
    told = setting.promise() | {"delta": 1.0 / setting.rounds, "seed": seed_of("table", setting)} | setting.ball()
    if single:
        learner = DPTOFW(setting.dim, **told)
        for x, y in records:
            learner.step(stream.gradients(learner.queries(), x[0], y[0]))
        return Run(torch.empty(0), torch.empty(0))
    learner = DPTOFW(setting.dim, batch_shape=(len(CLIPS), len(STEP_SCALES), stream.trials), **told)
    again: Any = Records(stream, records)
    return learn(learner, again, (setting.rounds,), CLIPS, STEP_SCALES)


def noisy_sgd(setting: Setting, records: list[tuple[Tensor, Tensor]], trial: int, scale: float) -> tuple[Tensor, float]:
    """Return the average of NoisySGD on one trial's records, and the seconds it took.

    It takes at most 1000 steps, of n/32 records. The rate is a multiple of the default.
    """
    steps = min(setting.rounds, 1000)
    told = {"records": setting.rounds, "epsilon": 1.0, "delta": 1.0 / setting.rounds, "steps": steps} | setting.ball()
    told |= {"batch_size": max(1.0, setting.rounds / 32), "seed": seed_of("SGD", setting, trial, scale)}
    rate = NoisySGD(setting.dim, **told).learning_rate
    sgd = NoisySGD(setting.dim, **told, learning_rate=scale * rate)
    x, y = (torch.stack([record[i][trial] for record in records]) for i in (0, 1))
    start = time.perf_counter()
    average, _ = sgd.fit(lambda theta, x, y: ((theta * x).sum() - y) ** 2, x, y)
    return average, time.perf_counter() - start


@dataclass(frozen=True)
class Game:
    """Bandit with K = 2 arms: uniform contexts, sparse parameters of l1 norm 1."""

    rounds: int
    dim: int
    trials: int
    epsilon: float
    binary: bool = False

    def play(self, options: dict[str, Any] | None) -> Tensor:
        """Return the pseudo-regret of DPHDB, or of arms at random without options."""
        bandit = None
        if options is not None:
            told: dict[str, Any] = {"horizon": self.rounds, "epsilon": self.epsilon, "delta": 0.1 / self.rounds}
            told |= {
                "warmup": max(1, self.rounds // 40),
                "batch_shape": (self.trials,),
                "seed": seed_of(self),
            } | options
            bandit = DPHDB(self.dim, arms=2, **told)
        generator = torch.Generator().manual_seed(seed_of(self.rounds, self.dim, self.binary))
        chance = torch.Generator().manual_seed(0)
        shape = (self.trials, 2, self.dim)
        where = torch.rand(*shape, generator=generator).argsort(-1) < SPARSITY
        theta = torch.where(where, torch.randn(*shape, generator=generator, dtype=torch.float64), 0.0)
        theta /= theta.abs().sum(-1, keepdim=True)
        total = torch.zeros(self.trials, dtype=torch.float64)
        for _ in range(self.rounds):
            x = 2.0 * torch.rand(self.trials, self.dim, generator=generator, dtype=torch.float64) - 1.0
            luck = torch.rand(self.trials, generator=generator, dtype=torch.float64)
            noise = NOISE * torch.randn(self.trials, generator=generator, dtype=torch.float64)
            means = (theta @ x.unsqueeze(-1)).squeeze(-1)
            means = means.sigmoid() if self.binary else means
            arm = torch.randint(2, (self.trials,), generator=chance) if bandit is None else bandit.select(x)
            mean = torch.take_along_dim(means, arm.unsqueeze(-1), -1).squeeze(-1)
            if bandit is not None:
                bandit.step(x, arm, (luck < mean).double() if self.binary else mean + noise)
            total += means.amax(-1) - mean
        return total


def main() -> None:
    names = ("rates", "interior", "hard", "entry", "p1", "bandit", "logistic", "sgd", "smooth")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="experiments")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few rounds of everything, to see that it runs")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="seed: expected None")
    warnings.filterwarnings("ignore", message="delta: expected less than 1")  # Table 5.1's delta is 1/T
    torch.set_num_threads(1)
    options.output.mkdir(parents=True, exist_ok=True)
    experiments = Experiments(Console(width=WIDTH), options.output, options.smoke)
    for name in options.only:
        start = time.perf_counter()
        getattr(experiments, name)()
        experiments.console.print(f"{name}: {time.perf_counter() - start:.0f} s")
    path = options.output / "private_oco_rates.json"
    path.write_text(json.dumps(experiments.numbers, indent=1))
    experiments.console.print(f"All numbers: {path}")


if __name__ == "__main__":
    main()
