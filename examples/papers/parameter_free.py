r"""Parameter-free learners: regret against T, noise, drift and the comparator.

The learners of Wang, Barik, Zhao and Tan (Parameter-free algorithms for the Stochastically Extended Adversarial model),
FreeGrad and baselines play ``SEAStream``, where the length of the noise, sigma, the length of the adversary's steps,
drift, and the best point u are known. The rate in theory is |u| sqrt((sigma^2 + drift^2) T), up to logarithms and terms that
do not grow with T. Regret is measured on expected losses, :math:`\sum_t F_t(x_t) - F_t(u)`, which has the same mean as on
the drawn losses and less spread. All learners play the same 20 trials in 5 dimensions, each as one batch. They are told:

- *G and R*: the largest possible length of a gradient, and a radius: 2|u|, or |u| for linear losses. OGD has the step size
  R/(G sqrt(t)) and AdaGrad sqrt(2) R, as in their theory. Optimistic OMD and OFTRL are also told the smoothness;
- *G*: CA-OONS, which is also told T, coin betting (KT) and parameter-free mirror descent;
- *nothing*: CLA-OONS, FreeGrad, and in the last experiment six rivals;
- *hindsight*: the best point of a grid, by the mean over the trials, and the median point: OGD over 15 step sizes and two
  schedules, AdaGrad over 17. Three parameter-free learners also have their only number, the unit of length, tuned over 5
  values.

There are four experiments:

1. Growth in T. *Fixed noise*: Huber losses with sigma = 1; the problem is fixed and T grows. *Constant noise*: the same with
   sigma = 8/sqrt(T), so that sigma^2_{1:T} is 64 for every T. *Hardest*: linear losses of slope 1/sqrt(T) on the ball, with
   sigma = 1. There T rounds are just enough to locate u, so no learner's regret grows more slowly than sqrt(T). Slopes are
   those of log-log lines, with 95 % intervals from 2000 resamples of the trials.
2. Counter-example to equation (5): f(x) = Huber(x - 4) on the line, without noise. CA-OONS as printed (meta="paper") against
   the two metas that replace equation (5), with the paper's constants and with the default ones.
3. Noise and drift, each alone and beside the other: Huber losses, |u| = 1, T = 2048. The adversary goes to and fro, so that
   each hint is wrong by the whole drift; or round a polygon of 16 corners, where following it pays: regret falls below 0.
4. Comparator: |u| = 0.1, 1, 10, 100, Huber losses, sigma = 0.5, drift = 0.1, T = 4096. The regret of CA-OONS should be at
   most twice that of the best OGD plus G sqrt(T), the price of a unit ball. If it exceeds this, the last table shows why:
   the regret of the best of its learners; that of the weights over the learners, whose rate for the j-th is at most 1/(24 G
   R_j); and that other learners in a ball of radius 2|u| also have several times the regret of the best OGD, which knows in
   hindsight that the worst case does not occur.

The script prints tables and verdicts and draws figures.

    python examples/papers/parameter_free.py --workers 2    # some twenty minutes of processor time; seconds with --quick
"""

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Experiment, Job, Results, Slope, listed, short, table

from torchonline import CAOONS, CLAOONS, OONS, FreeGrad
from torchonline.baselines import (
    OFTRL,
    OGD,
    SOLOFTRL,
    AdaGrad,
    CoinBetting,
    DAdaptation,
    DoG,
    DoWG,
    ExpertEnsemble,
    OptimisticOMD,
    ParameterFreeMirrorDescent,
    Prodigy,
    ScaleFreeCoinBetting,
)
from torchonline.environments import SEAStream

TRIALS, DIM, SEED = 20, 5, 1
ROUNDS, SWEEP_ROUNDS, NORM_ROUNDS = (1024, 2048, 4096, 8192, 16384), 2048, 4096
LENGTHS, NORMS = (0.0, 0.03, 0.1, 0.3, 1.0), (0.1, 1.0, 10.0, 100.0)
STEP_SIZES, UNITS = tuple(2.0**k for k in range(-8, 7)), (0.01, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Setting:
    """Setting of an experiment: a stream and its length."""

    loss: str
    rounds: int  # T
    sigma: float
    drift: float = 0.0
    norm: float = 1.0  # |u|
    scale: float = 1.0
    period: int = 2
    dim: int = DIM

    def stream(self, trials: int) -> SEAStream:
        return SEAStream(
            self.dim,
            loss=self.loss,
            sigma=self.sigma,
            drift=self.drift,
            comparator_norm=self.norm,
            scale=self.scale,
            period=self.period,
            batch_shape=(trials,),
            seed=SEED,
        )

    def __str__(self) -> str:
        return (
            f"{self.loss}, T = {self.rounds}, sigma = {self.sigma:.4g}, drift = {self.drift:g}, u = {self.norm:g}, "
            f"scale = {self.scale:.4g}, period = {self.period}, d = {self.dim}"
        )


class Told:
    """Constants of a setting that learners may be told."""

    def __init__(self, setting: Setting, trials: int) -> None:
        stream = setting.stream(trials)
        self.dim, self.rounds, self.trials = setting.dim, setting.rounds, trials
        self.lipschitz, self.smoothness = stream.lipschitz, stream.smoothness
        self.radius = setting.norm if setting.loss == "linear" else 2.0 * setting.norm
        self.nothing = {"batch_shape": (trials,)}
        self.slopes = self.nothing | {"lipschitz": self.lipschitz}
        self.ball = self.nothing | {"radius_bound": self.radius}
        self.both = self.slopes | self.ball


Grid = dict[str, Any]  # learners by point of the grid


def one(make: Callable[[Told], Any]) -> Callable[[Told], Grid]:
    """Return a maker of a grid with one point."""
    return lambda told: {"": make(told)}


def oons(told: Told, **options: Any) -> OONS:
    return OONS(told.dim, radius_bound=(told.radius,) * told.trials, **told.slopes, **options)


def ca_oons(told: Told, **options: Any) -> CAOONS:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "meta: 'paper' has regret linear", UserWarning)
        return CAOONS(told.dim, **{"horizon": told.rounds} | told.slopes | options)


def tuned_ogd(told: Told) -> Grid:
    return {
        f"{step:g}{'' if schedule == 'constant' else ' / sqrt(t)'}": OGD(
            told.dim, step_size=step, schedule=schedule, **told.nothing
        )
        for schedule in ("constant", "sqrt")
        for step in STEP_SIZES
    }


def tuned_adagrad(told: Told) -> Grid:
    return {f"{step:g}": AdaGrad(told.dim, step_size=step, **told.nothing) for step in (*STEP_SIZES, 128.0, 256.0)}


def over_units(make: Callable[[Told, float], Any]) -> Callable[[Told], Grid]:
    return lambda told: {f"{unit:g}": make(told, unit) for unit in UNITS}


# The contenders, by the constants that they are told.
IN_BALL: dict[str, Callable[[Told], Grid]] = {
    "OONS": one(oons),
    "OONS, paper": one(lambda told: oons(told, preset="paper")),
    "OONS, tight": one(lambda told: oons(told, preset="tight")),
    "Optimistic OMD": one(lambda told: OptimisticOMD(told.dim, smoothness=told.smoothness, **told.both)),
    "OFTRL": one(lambda told: OFTRL(told.dim, smoothness=told.smoothness, **told.both)),
    "OGD": one(lambda told: OGD(told.dim, step_size=told.radius / told.lipschitz, **told.ball)),
    "AdaGrad": one(lambda told: AdaGrad(told.dim, step_size=math.sqrt(2.0) * told.radius, **told.ball)),
}
TOLD_G: dict[str, Callable[[Told], Grid]] = {
    "CA-OONS": one(ca_oons),
    "CA-OONS, linear": one(lambda told: ca_oons(told, meta="linear")),
    "CA-OONS, no horizon": one(lambda told: ca_oons(told, horizon=None)),
    "CA-OONS, paper's constants": one(lambda told: ca_oons(told, preset="paper")),
    "KT": one(lambda told: CoinBetting(told.dim, **told.slopes)),
    "Mirror descent": one(lambda told: ParameterFreeMirrorDescent(told.dim, **told.slopes)),
    "Expert ensemble": one(lambda told: ExpertEnsemble(told.dim, horizon=told.rounds, **told.slopes)),
}
TOLD_NOTHING: dict[str, Callable[[Told], Grid]] = {
    "CLA-OONS": one(lambda told: CLAOONS(told.dim, **told.nothing)),
    "CLA-OONS, paper": one(lambda told: CLAOONS(told.dim, preset="paper", **told.nothing)),
    "FreeGrad": one(lambda told: FreeGrad(told.dim, **told.nothing)),
    "Scale-free coin betting": one(lambda told: ScaleFreeCoinBetting(told.dim, **told.nothing)),
    "SOLO FTRL": one(lambda told: SOLOFTRL(told.dim, **told.nothing)),
    "DoG": one(lambda told: DoG(told.dim, **told.nothing)),
    "DoWG": one(lambda told: DoWG(told.dim, **told.nothing)),
    "D-Adaptation": one(lambda told: DAdaptation(told.dim, **told.nothing)),
    "Prodigy": one(lambda told: Prodigy(told.dim, **told.nothing)),
}
HINDSIGHT: dict[str, Callable[[Told], Grid]] = {
    "OGD, tuned": tuned_ogd,
    "AdaGrad, tuned": tuned_adagrad,
    "KT, tuned": over_units(lambda told, unit: CoinBetting(told.dim, length_scale=unit, **told.slopes)),
    "FreeGrad, tuned": over_units(lambda told, unit: FreeGrad(told.dim, length_scale=unit, **told.nothing)),
    "CA-OONS, linear, tuned": over_units(lambda told, unit: ca_oons(told, meta="linear", length_scale=unit)),
}
GROUPS = {"G and R": IN_BALL, "G": TOLD_G, "nothing": TOLD_NOTHING, "hindsight": HINDSIGHT}
TOLD = {name: what for what, group in GROUPS.items() for name in group}
# The contenders of the counter-example.
EXAMPLES: dict[str, Callable[[Told], Grid]] = {
    f"{meta}, preset {preset}": one(lambda told, meta=meta, preset=preset: ca_oons(told, meta=meta, preset=preset))
    for preset in ("paper", "default")
    for meta in ("paper", "values", "linear")
}
CONTENDERS = IN_BALL | TOLD_G | TOLD_NOTHING | HINDSIGHT | EXAMPLES
FREE = ("CA-OONS", "CA-OONS, linear", "KT", "Mirror descent", "CLA-OONS", "FreeGrad")
SWEPT = ("OONS", "Optimistic OMD", "OFTRL", "OGD", "AdaGrad", *FREE)


def play(name: str, trials: int, **options: Any) -> dict[str, Any]:
    """Play all trials and the whole grid of one contender on one stream.

    Return the regret of each trial by point of the grid, and for CA-OONS also the mean regret of each of its learners.
    """
    setting = Setting(**options)
    stream = setting.stream(trials)
    grid = CONTENDERS[name](Told(setting, trials))
    total = {choice: torch.zeros(trials, dtype=torch.float64) for choice in grid}
    bases: Any = 0.0
    for _ in range(setting.rounds):
        for choice, learner in grid.items():
            total[choice] += stream.expected_regret(learner.predict())
            if isinstance(learner, CAOONS) and len(grid) == 1:
                bases = bases + stream.expected_regret(learner.bases.decision)
            points = learner.queries()
            learner.step(stream.gradients(points), stream.values(points) if learner.needs_values else None)
        stream.advance()
    found: dict[str, Any] = {"regret": {choice: regret.tolist() for choice, regret in total.items()}}
    return found | {"bases": bases.mean(0).tolist()} if isinstance(bases, torch.Tensor) else found


class Regrets:
    """Lookup of the regrets."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def run(self, name: str, setting: Setting) -> dict[str, Any]:
        return self.results[f"{name}, {setting}"]

    def grid(self, name: str, setting: Setting) -> dict[str, np.ndarray]:
        return {choice: np.array(regret) for choice, regret in self.run(name, setting)["regret"].items()}

    def choice(self, name: str, setting: Setting) -> str:
        """Return the best point of the grid."""
        grid = self.grid(name, setting)
        return min(grid, key=lambda choice: grid[choice].mean())

    def of(self, name: str, setting: Setting) -> np.ndarray:
        """Return the regret of each trial at the best point."""
        return self.grid(name, setting)[self.choice(name, setting)]

    def mean(self, name: str, setting: Setting) -> float:
        return float(self.of(name, setting).mean())

    def median(self, name: str, setting: Setting) -> float:
        """Return the mean regret at the median point."""
        return float(np.median([regret.mean() for regret in self.grid(name, setting).values()]))

    def cell(self, name: str, setting: Setting) -> str:
        return spread(self.of(name, setting))


def spread(regret: np.ndarray) -> str:
    error = regret.std(ddof=1) / math.sqrt(len(regret)) if len(regret) > 1 else 0.0
    return f"{short(regret.mean())} ± {short(error)}"


def yes(holds: bool) -> str:
    return "yes" if holds else "NO"


# The settings by T, and the slope that theory predicts.
GROWTHS: dict[str, tuple[Callable[[int], Setting], float]] = {
    "fixed noise": (lambda rounds: Setting("huber", rounds, 1.0), 0.5),
    "constant noise": (lambda rounds: Setting("huber", rounds, 8.0 / math.sqrt(rounds)), 0.0),
    "hardest": (lambda rounds: Setting("linear", rounds, 1.0, scale=1.0 / math.sqrt(rounds)), 0.5),
}


def example_setting(rounds: int) -> Setting:
    return Setting("huber", rounds, 0.0, norm=4.0, dim=1)


def sweeps(rounds: int) -> dict[str, list[Setting]]:
    """Return the settings of each sweep."""
    base = Setting("huber", rounds, 0.0)
    return {
        "sigma, without drift": [replace(base, sigma=x) for x in LENGTHS],
        "sigma, drift 0.3": [replace(base, sigma=x, drift=0.3) for x in LENGTHS],
        "drift to and fro, without noise": [replace(base, drift=x) for x in LENGTHS],
        "drift to and fro, sigma 0.3": [replace(base, drift=x, sigma=0.3) for x in LENGTHS],
        "drift round 16 corners, without noise": [replace(base, drift=x, period=16) for x in LENGTHS],
    }


def comparator_settings(rounds: int) -> list[Setting]:
    return [Setting("huber", rounds, 0.5, drift=0.1, norm=norm) for norm in NORMS]


def growth_players(growth: str) -> list[str]:
    """Return the contenders; losses without a minimum need learners in a ball."""
    return [*IN_BALL] if growth == "hardest" else [*IN_BALL, *FREE]


def growth_slope(regrets: Regrets, growth: str, name: str, rounds: Sequence[int]) -> Slope:
    return Slope.fit(rounds, [regrets.of(name, GROWTHS[growth][0](length)) for length in rounds])


def growth_table(regrets: Regrets, growth: str, rounds: Sequence[int]) -> str:
    make, _ = GROWTHS[growth]
    rows = [
        (
            name,
            *(regrets.cell(name, make(length)) for length in rounds),
            growth_slope(regrets, growth, name, rounds),
        )
        for name in growth_players(growth)
    ]
    return table(("learner", *(f"T = {length}" for length in rounds), "slope"), rows)


def growth_verdicts(regrets: Regrets, rounds: Sequence[int]) -> list[str]:
    asked = {"constant noise": (-math.inf, 0.1), "fixed noise": (0.25, 0.5)}
    said = []
    for growth, (low, high) in asked.items():
        slope = growth_slope(regrets, growth, "OONS", rounds)
        limits = f"{low:g} to {high:g}" if low > 0.0 else f"below {high:g}"
        said.append(f"OONS, {growth}: slope in T {slope}; {limits}: {yes(slope.within(low, high))}")
    for growth, (_, theory) in GROWTHS.items():
        slopes = {name: growth_slope(regrets, growth, name, rounds) for name in growth_players(growth)}
        above = [f"{name} {slope}" for name, slope in slopes.items() if slope.low > theory + 0.1]
        said.append(f"{growth}: slopes that are surely 0.1 above the theory's: {'; '.join(above) or 'none'}")
    return said


def example_table(regrets: Regrets, rounds: Sequence[int]) -> str:
    rows = []
    for name in EXAMPLES:
        found = [regrets.mean(name, example_setting(length)) for length in rounds]
        rows.append((name, *map(short, found), f"{example_slope(regrets, name, rounds):.3f}"))
    return table(("CA-OONS, meta", *rounds, "slope"), rows)


def example_slope(regrets: Regrets, name: str, rounds: Sequence[int]) -> float:
    return Slope.fit(rounds, [regrets.of(name, example_setting(length)) for length in rounds]).value


def example_verdicts(regrets: Regrets, rounds: Sequence[int]) -> list[str]:
    said = []
    for name in EXAMPLES:
        slope = example_slope(regrets, name, rounds)
        fails = name.startswith("paper")
        holds = abs(slope - 1.0) < 0.05 if fails else slope < 0.1
        said.append(f"CA-OONS, meta {name}: slope in T {slope:.3f}; {'1.0' if fails else 'below 0.1'}: {yes(holds)}")
    return said


def swept(setting: Setting, sweep: str) -> float:
    return setting.sigma if sweep.startswith("sigma") else setting.drift


def sweep_table(regrets: Regrets, sweep: str, settings: Sequence[Setting]) -> str:
    large = [setting for setting in settings if swept(setting, sweep) >= 0.1]
    rows = []
    for name in SWEPT:
        slope = Slope.fit([swept(setting, sweep) for setting in large], [regrets.of(name, each) for each in large])
        rows.append((name, *(regrets.cell(name, setting) for setting in settings), slope))
    return table(("learner", *(f"{swept(setting, sweep):g}" for setting in settings), "slope from 0.1 on"), rows)


def comparator_table(regrets: Regrets, settings: Sequence[Setting]) -> str:
    rows = []
    for name in TOLD:
        cells = []
        for setting in settings:
            cells.append(regrets.cell(name, setting))
            if len(regrets.grid(name, setting)) > 1:
                cells[-1] += f"; at {regrets.choice(name, setting)}; median {short(regrets.median(name, setting))}"
        rows.append((name, TOLD[name], *cells))
    return table(("learner", "told", *(f"‖u‖ = {setting.norm:g}" for setting in settings)), rows)


def allowance(setting: Setting) -> float:
    """Return the additive constant G sqrt(T)."""
    return Told(setting, 1).lipschitz * math.sqrt(setting.rounds)


def comparator_verdicts(regrets: Regrets, settings: Sequence[Setting]) -> list[str]:
    said = [f"The additive constant is G√T = {allowance(settings[0]):.0f}."]
    for name in ("CA-OONS", *FREE[1:]):
        parts, excess = [], []
        for setting in settings:
            ours, best = regrets.mean(name, setting), regrets.mean("OGD, tuned", setting)
            excess.append(ours - 2.0 * best)
            holds = excess[-1] <= allowance(setting)
            parts.append(f"{setting.norm:g}: {short(ours / best)} times, {yes(holds)}")
        said.append(
            f"{name}, at most 2 x the best OGD and the constant, by |u|: {'; '.join(parts)}; "
            f"least constant with which it holds: {short(max(0.0, *excess))}"
        )
    return said


def why_table(regrets: Regrets, settings: Sequence[Setting]) -> str:
    """Return a table of CA-OONS's costs: its learners, its weights, and rivals.

    Only the meta with values chooses by the learners' own regrets. Linear losses are those at the mean decision.
    """
    rivals = ("OONS", "OFTRL", "OGD", "OGD, tuned")
    rows = []
    for setting in settings:
        bases = regrets.run("CA-OONS", setting)["bases"]
        ours, best = regrets.mean("CA-OONS", setting), min(bases)
        radius = 2.0 ** (1 + bases.index(best))
        others = (regrets.mean(rival, setting) for rival in rivals)
        bounds = (Told(setting, 1).smoothness * setting.norm**2, setting.norm * allowance(setting))
        numbers = map(short, (*others, *bounds))
        rows.append((f"{setting.norm:g}", short(ours), short(best), f"{radius:g}", short(ours - best), *numbers))
    header = ("‖u‖", "CA-OONS", "its best learner's", "of radius", "the weights'", *rivals)
    return table((*header, "L‖u‖²", "G‖u‖√T"), rows)


COLOURS = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
ORDER = (*IN_BALL, *FREE, "OGD, tuned", "AdaGrad, tuned")


def draw(axis: Any, name: str, x: Sequence[float], found: Sequence[np.ndarray]) -> None:
    low, high = np.quantile(found, (0.1, 0.9), axis=1)
    colour = COLOURS[ORDER.index(name)] if name in ORDER else None
    axis.plot(x, np.mean(found, axis=1), label=name, color=colour, marker="o", markersize=3)
    axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def draw_theory(axis: Any, x: Sequence[float], slope: float, at: float, label: str) -> None:
    axis.plot(x, at * (np.array(x) / x[0]) ** slope, "k--", label=label)


def finish(figure: Any, axes: Any, path: Path) -> None:
    for axis in axes:
        axis.grid(alpha=0.3)
    lines = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_growth(regrets: Regrets, rounds: Sequence[int], path: Path) -> None:
    figure, axes = plt.subplots(1, 4, figsize=(18.0, 4.6), layout="constrained")
    for axis, (growth, (make, theory)) in zip(axes, GROWTHS.items(), strict=False):
        for name in growth_players(growth):
            draw(axis, name, rounds, [regrets.of(name, make(length)) for length in rounds])
        at = float(np.abs(regrets.of("OONS", make(rounds[0]))).mean())
        draw_theory(axis, rounds, theory, at, "the theory's slope")
        axis.set(title=growth, xlabel="T", xscale="log", yscale="log")
    for name, style in zip(EXAMPLES, ("r-", "r--", "r:", "b-", "b--", "b:"), strict=True):
        axes[-1].plot(rounds, [regrets.mean(name, example_setting(length)) for length in rounds], style, label=name)
    axes[-1].set(title="the counter-example", xlabel="T", xscale="log", yscale="log")
    axes[0].set_ylabel("regret: mean, 10 % to 90 % of trials")
    finish(figure, axes, path)


def plot_sweeps(regrets: Regrets, found: dict[str, list[Setting]], path: Path) -> None:
    figure, axes = plt.subplots(1, len(found), figsize=(4.0 * len(found) + 2.0, 4.6), layout="constrained")
    for axis, (sweep, settings) in zip(axes, found.items(), strict=True):
        x = [swept(setting, sweep) for setting in settings]
        for name in SWEPT:
            draw(axis, name, x, [regrets.of(name, setting) for setting in settings])
        axis.set(title=sweep, xlabel="drift" if "drift " in sweep[:6] else "sigma")
        axis.set_xscale("symlog", linthresh=0.01)
        axis.set_yscale("symlog", linthresh=1.0)
    axes[0].set_ylabel("regret: mean, 10 % to 90 % of trials")
    finish(figure, axes, path)


def plot_comparator(regrets: Regrets, settings: Sequence[Setting], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(9.0, 5.4), layout="constrained")
    norms = [setting.norm for setting in settings]
    for name in ORDER:
        draw(axis, name, norms, [regrets.of(name, setting) for setting in settings])
    draw_theory(axis, norms, 1.0, allowance(settings[0]) * norms[0], "G|u| sqrt(T)")
    axis.set(xlabel="|u|", ylabel="regret: mean, 10 % to 90 % of trials", xscale="log", yscale="log")
    finish(figure, [axis], path)


def sizes(quick: bool) -> tuple[int, Sequence[int], int, int]:
    """Return the trials, the lengths of growth, and the lengths of the sweeps and of the comparators."""
    return (2, (8, 16), 4, 4) if quick else (TRIALS, ROUNDS, SWEEP_ROUNDS, NORM_ROUNDS)


def jobs(quick: bool) -> dict[str, Job]:
    """Return each job once, the longest first."""
    trials, rounds, sweep_rounds, norm_rounds = sizes(quick)
    growth = [
        (name, GROWTHS[kind][0](length)) for kind in GROWTHS for length in rounds for name in growth_players(kind)
    ]
    example = [(name, example_setting(length)) for length in rounds for name in EXAMPLES]
    noise = [(name, each) for settings in sweeps(sweep_rounds).values() for each in settings for name in SWEPT]
    comparator = [(name, each) for each in comparator_settings(norm_rounds) for name in TOLD]
    every = dict.fromkeys((*growth, *example, *noise, *comparator))
    return {
        # Without noise all trials of the counter-example are equal up to the sign.
        f"{name}, {setting}": Job(play, {"name": name, "trials": 1 if name in EXAMPLES else trials} | asdict(setting))
        for name, setting in sorted(every, key=lambda job: -job[1].rounds)
    }


def lengths(results: Results) -> tuple[Sequence[int], int, int]:
    """Return the lengths of growth, of the sweeps and of the comparators that results are of."""
    is_full = f"OONS, {GROWTHS['fixed noise'][0](ROUNDS[-1])}" in results
    return sizes(not is_full)[1:]


def tables(results: Results) -> dict[str, str]:
    regrets, (rounds, sweep_rounds, norm_rounds) = Regrets(results), lengths(results)
    settings = comparator_settings(norm_rounds)
    made = {}
    for growth, (_, theory) in GROWTHS.items():
        made[f"{growth}: regret after T rounds; the slope in theory is {theory:g}"] = growth_table(
            regrets, growth, rounds
        )
    made["Growth in T"] = listed(growth_verdicts(regrets, rounds))
    made["The counter-example to equation (5): regret after T rounds, without noise"] = example_table(regrets, rounds)
    made["The counter-example"] = listed(example_verdicts(regrets, rounds))
    for sweep, swept_settings in sweeps(sweep_rounds).items():
        title = f"{sweep}: regret after {sweep_rounds} rounds; the slope of the bound is 1"
        made[title] = sweep_table(regrets, sweep, swept_settings)
    title = f"The comparator: regret after {norm_rounds} rounds; of a grid, that of the best, and the median"
    made[title] = comparator_table(regrets, settings)
    made["The comparator"] = listed(comparator_verdicts(regrets, settings))
    title = "What CA-OONS pays for, beside learners that are told R, and two terms of bounds"
    return made | {title: why_table(regrets, settings)}


def figures(results: Results, folder: Path) -> list[Path]:
    regrets, (rounds, sweep_rounds, norm_rounds) = Regrets(results), lengths(results)
    draw_into = {
        "growth": functools.partial(plot_growth, regrets, rounds),
        "noise": functools.partial(plot_sweeps, regrets, sweeps(sweep_rounds)),
        "comparator": functools.partial(plot_comparator, regrets, comparator_settings(norm_rounds)),
    }
    paths = {name: folder / f"parameter_free_{name}.png" for name in draw_into}
    for name, path in paths.items():
        draw_into[name](path)
    return list(paths.values())


EXPERIMENT = Experiment(__file__, jobs, tables, figures, seeds="1")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
