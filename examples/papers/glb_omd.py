"""Generalized linear bandits: simulations of the GLB-OMD paper with all rivals.

The experiments are those of Section 5 and Appendix F.2 of Zhang, Xu, Zhao and Sugiyama (Generalized linear bandits: almost
optimal regret with one-pass update, 2025); ``glb_omd_covertype.py`` has those of Appendix F.3. Rewards are logistic or Poisson,
with parameters of norm S = 3, 5, 7, 9. The dimension is 2. The 20 arms are drawn in the unit ball and are fixed or redrawn in
each round. There are 3000 rounds and delta = 0.01. All algorithms play the same 10 trials; the cheap ones also play 100 others.
Each has the width of its theory; ``glb_omd_learners.py`` says what they are.

LocalGLB plays twice: unchanged, and "in the ball", like OFUGLB. This separates the effect of the ball from that of the
ellipsoid. GLM-UCB, RS-GLinCB, OFUGLB-e, OFUGLB and OFULog-r keep all rounds and are not cheap. OFUGLB and OFULog-r solve a
convex problem for each arm; they end after 1000 rounds, where the tables show the regret of all algorithms. In three settings,
fixed arms with logistic S = 3 and 5 and Poisson S = 3, OFUGLB plays all rounds, and OFUGLB and GLM-UCB also play the 100 trials.
For these settings the script prints a verdict on LocalGLB.

The script prints tables and draws figures: regret (mean, sd, median), the final radius, the number of trials whose
confidence set ever missed the truth ("failed"), and the processor time of one learner's round relative to LocalGLB, measured
in alternation. Finished runs are kept in OUTPUT/glb_omd and not repeated, even if the code has changed: empty that folder to
start again.

    python examples/papers/glb_omd.py --workers 2    # two or three hours on two cores; seconds with --quick
"""

import argparse
import itertools
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from glb_omd_learners import ALGORITHMS, Game, Problem, in_turn
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

from torchonline import Logistic, Poisson
from torchonline.environments import GeneralizedLinearBandit
from torchonline.metrics import has_missed

DIM, ARMS, ROUNDS, TRIALS, MANY = 2, 20, 3000, 10, 100
NORMS = {"logistic": (3, 5, 7, 9), "Poisson": (3, 5, 7, 9)}
SMOKE_NORMS = {"logistic": (3,), "Poisson": (7,)}
# Settings of fixed arms in which OFUGLB plays all rounds, and OFUGLB and GLM-UCB all trials, for the verdict.
COMPARED = {("logistic", 3), ("logistic", 5), ("Poisson", 3)}
THOROUGH = ("GLM-UCB", "OFUGLB")


@dataclass(frozen=True)
class Setting:
    """Setting of an experiment."""

    rewards: str  # a key of NORMS
    norm: int
    redrawn: bool
    rounds: int
    trials: int

    def is_compared(self) -> bool:
        return (self.rewards, self.norm) in COMPARED and not self.redrawn

    def __str__(self) -> str:
        return f"{self.rewards}, S = {self.norm}, {'redrawn' if self.redrawn else 'fixed'} arms"


@dataclass
class Run:
    """Result of one algorithm in one setting."""

    rounds: Tensor  # rounds of the regret curve, (points)
    regret: Tensor  # (points, trials)
    radius: float
    missed: int  # trials whose set ever missed the truth; -1 without a set
    time: float  # processor time of one learner's round, relative to LocalGLB

    def at(self, rounds: int) -> float:
        """Return the mean regret after a number of rounds."""
        return float(self.regret[self.rounds >= rounds][0].mean())


def shortest_of(runs: dict[str, Run]) -> int:
    return min(int(one.rounds[-1]) for one in runs.values())


def problem_for(setting: Setting, rounds: int, trials: tuple[int, ...]) -> Problem:
    link = Poisson() if setting.rewards == "Poisson" else Logistic()
    return Problem(DIM, link, float(setting.norm), trials, rounds)


def make_game(name: str, setting: Setting, rounds: int, trials: tuple[int, ...], seed: int) -> Game:
    """Return a learner with its environment; a seed fixes arms and parameters."""
    problem = problem_for(setting, rounds, trials)
    environment = GeneralizedLinearBandit(
        DIM,
        ARMS,
        link=problem.link,
        theta_norm=problem.theta_bound,
        redraw=setting.redrawn,
        batch_shape=trials,
        seed=seed,
    )
    return Game(ALGORITHMS[name].build(problem), environment)


def play(name: str, setting: Setting, rounds: int, trials: int, seed: int) -> Run:
    """Play all trials of one learner."""
    torch.manual_seed(seed)
    game = make_game(name, setting, rounds, (trials,), seed)
    checked = ALGORITHMS[name].has_set
    every = max(1, rounds // 300)
    total = torch.zeros(trials, dtype=torch.float64)
    missed = torch.zeros(trials, dtype=torch.bool)
    at, curve = [], []
    for t in range(1, rounds + 1):
        total += game.round()
        if checked:
            missed |= has_missed(game.policy.estimator, game.environment.theta)
        if t % every == 0 or t == rounds:
            at.append(t)
            curve.append(total.clone())
    radius = float(game.policy.estimator.radius().mean())
    return Run(torch.tensor(at), torch.stack(curve), radius, int(missed.sum()) if checked else -1, math.nan)


def run(name: str, setting: Setting) -> Run:
    """Play, then measure the time in alternation with LocalGLB over one more trial."""
    torch.set_num_threads(1)
    rounds = setting.rounds
    if not (name in THOROUGH and setting.is_compared()):
        rounds = int(min(rounds, ALGORITHMS[name].rounds))
    one = play(name, setting, rounds, setting.trials, 1)
    games = [make_game(each, setting, rounds, (), 3) for each in (name, "LocalGLB")]
    return replace(one, time=in_turn(games, rounds)[0])


def kept_run(name: str, setting: Setting, folder: Path) -> Run:
    """Load a run from the folder, or make and save it."""
    path = folder / f"{name}, {setting}, {setting.rounds} x {setting.trials}.pt"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        torch.save(vars(run(name, setting)), unfinished)
        unfinished.replace(path)
    return Run(**torch.load(path))


def plays(name: str, setting: Setting) -> bool:
    """Return whether an algorithm supports a setting and is cheap enough for it."""
    algorithm = ALGORITHMS[name]
    cheap = algorithm.cheap or (name in THOROUGH and setting.is_compared())
    return (algorithm.poisson or setting.rewards != "Poisson") and (cheap or setting.trials <= TRIALS)


def verdict(runs: dict[str, Run], setting: Setting) -> str:
    """Compare LocalGLB's mean regret with ECOLog, GLOC, GLM-UCB and OFUGLB."""
    ours = float(runs["LocalGLB"].regret[-1].mean())
    final = runs["OFUGLB"].regret[-1]
    error = float(final.std()) / math.sqrt(len(final))
    others = [name for name in ("ECOLog", "GLOC", "GLM-UCB") if name in runs]
    multiples = {name: float(runs[name].regret[-1].mean()) / ours for name in others}
    # For counts, where OFUGLB has more to lose, LocalGLB must not exceed OFUGLB's mean at all.
    allowed = float(final.mean()) + (0.0 if setting.rewards == "Poisson" else error)
    asked = setting.rewards == "Poisson" or min(multiples.values()) >= 2.0
    times = "".join(f"; {name} {multiple:.1f} times" for name, multiple in multiples.items())
    return (
        f"{setting}, {setting.trials} trials: LocalGLB {ours:.1f}{times}; OFUGLB {float(final.mean()):.1f} +- {error:.1f}. "
        f"Rivals at least twice as much and OFUGLB not less: {'yes' if asked and ours <= allowed else 'NO'}"
    )


def short(number: Any) -> str:
    size = abs(float(number))
    return f"{float(number):.3g}" if size < 10 else f"{float(number):.{1 if size < 1000 else 0}f}"


def make_table(runs: dict[str, Run], setting: Setting) -> Table:
    title = f"{setting}: regret after {setting.rounds} rounds, {setting.trials} trials"
    if left_out := [name for name, algorithm in ALGORITHMS.items() if not algorithm.poisson]:
        if setting.rewards == "Poisson":
            title += f"\nFor logistic rewards only, and left out: {', '.join(left_out)}"
    table = Table(title=title, title_justify="left")
    table.add_column("algorithm", no_wrap=True)
    shortest = shortest_of(runs)
    early = [f"mean at {shortest}"] if shortest < setting.rounds else []
    for header in ("rounds", *early, "mean", "sd", "median", "radius", "failed", "time"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, one in sorted(runs.items(), key=lambda item: (-item[1].rounds[-1], item[1].regret[-1].mean())):
        final = one.regret[-1]
        row = [f"{one.rounds[-1]}", *(short(one.at(shortest)) for _ in early)]
        row += [*map(short, (final.mean(), final.std(), final.quantile(0.5), one.radius))]
        row += ["" if one.missed < 0 else f"{one.missed} of {len(final)}", f"{one.time:.1f}"]
        table.add_row(name, *row)
    return table


def constants_table() -> Table:
    """Return a table of the instances' constants and of the radii that follow."""
    table = Table(title=f"The instances: means over {TRIALS} trials of fixed arms", title_justify="left")
    headers = ("rewards", "S", "longest arm", "kappa of the arms", "of the ball", "kappa*")
    for header in (*headers, "ridge of the theorem", "its first radius", "first radius, ridge d", "LocalGLB's"):
        table.add_column(header, justify="right")
    for rewards, norms in NORMS.items():
        for norm in norms:
            problem = problem_for(Setting(rewards, norm, False, 1, TRIALS), 1, (TRIALS,))
            environment = GeneralizedLinearBandit(
                DIM, ARMS, link=problem.link, theta_norm=norm, batch_shape=(TRIALS,), seed=1
            )
            longest = environment.arms().norm(dim=-1).amax(-1)
            of_arms = 1.0 / problem.link.slope(-norm * longest)
            estimators = [
                ALGORITHMS[name].build(problem).estimator for name in ("GLB-OMD, theorem", "GLB-OMD, paper", "LocalGLB")
            ]
            numbers = [of_arms.mean(), environment.kappa(), environment.kappa_star().mean(), estimators[0].ridge]
            numbers += [estimator.radius()[0] for estimator in estimators]
            table.add_row(rewards, str(norm), f"{longest.mean():.3f}", *map(short, numbers))
    return table


COLOURS = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]


def grid(count: int, rows: int) -> tuple[Any, list[Any]]:
    columns = -(-count // rows)
    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.8 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[count:]:
        axis.remove()
    return figure, list(axes.flat[:count])


def plot_curves(results: dict[Setting, dict[str, Run]], path: Path) -> None:
    figure, axes = grid(len(results), 2 if len(results) > 2 else 1)
    for axis, (setting, runs) in zip(axes, results.items(), strict=True):
        for colour, name in zip(COLOURS, ALGORITHMS, strict=False):
            if name in runs:
                rounds, regret = runs[name].rounds, runs[name].regret
                low, high = regret.quantile(torch.tensor([0.1, 0.9], dtype=regret.dtype), dim=1)
                axis.plot(rounds, regret.mean(1), label=name, color=colour)
                axis.fill_between(rounds, low, high, color=colour, alpha=0.08, linewidth=0)
        lowest = min(float(one.regret[-1].mean()) for one in runs.values())
        axis.set(title=str(setting), xlabel="round", yscale="log")
        axis.set_ylim(bottom=0.2 * lowest if lowest > 0.0 else None)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("cumulative regret: mean, 10 % to 90 % of trials")
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_time(results: dict[Setting, dict[str, Run]], path: Path) -> None:
    figure, axes = grid(len(results), 2)
    for axis, (setting, runs) in zip(axes, results.items(), strict=True):
        shortest = shortest_of(runs)
        for colour, name in zip(COLOURS, ALGORITHMS, strict=False):
            if name in runs:
                axis.scatter(runs[name].time, runs[name].at(shortest), label=name, color=colour)
        axis.set(title=str(setting), xlabel="time of a round, LocalGLB = 1", xscale="log", yscale="log")
        axis.set_ylabel(f"mean regret after {shortest} rounds")
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def all_settings(norms: dict[str, tuple[int, ...]], rounds: int, many: int) -> list[Setting]:
    """Return the settings: the paper's, then those with more trials."""
    found = [
        Setting(rewards, norm, redrawn, rounds, trials)
        for trials in (min(TRIALS, many), many)
        for rewards in norms
        for redrawn, norm in itertools.product((False, True), norms[rewards])
    ]
    return list(dict.fromkeys(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--many", type=int, default=MANY, help="trials of the cheap algorithms")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument(
        "--quick", "--smoke", action="store_true", help="a few rounds of everything, to see that it runs"
    )
    options = parser.parse_args()
    for name in ("rounds", "many", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: expected at least 1, got {getattr(options, name)}")
    norms, rounds, many = (SMOKE_NORMS, 4, 2) if options.quick else (NORMS, options.rounds, options.many)

    console = Console()
    folder = options.output / "glb_omd"
    folder.mkdir(parents=True, exist_ok=True)
    settings = all_settings(norms, rounds, many)
    jobs = [(name, setting) for setting in settings for name in ALGORITHMS if plays(name, setting)]
    results: dict[Setting, dict[str, Run]] = {setting: {} for setting in settings}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("runs", total=len(jobs))
        if options.workers == 1:
            for name, setting in jobs:
                results[setting][name] = kept_run(name, setting, folder)
                progress.advance(task)
        else:
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
                futures = {pool.submit(kept_run, name, setting, folder): (name, setting) for name, setting in jobs}
                for future in as_completed(futures):
                    name, setting = futures[future]
                    results[setting][name] = future.result()
                    progress.advance(task)

    console.print(constants_table())
    for setting, runs in results.items():
        console.print(make_table(runs, setting))
    for setting, runs in results.items():
        if setting.is_compared() and setting.trials == many:
            console.print(verdict(runs, setting))
    few = [setting for setting in settings if setting.trials == min(TRIALS, many)]
    figures = {name.lower(): [setting for setting in few if setting.rewards == name] for name in NORMS}
    for name, shown in figures.items():
        if shown:
            path = options.output / f"glb_omd_{name}.png"
            plot_curves({setting: results[setting] for setting in shown}, path)
            console.print(f"Regret curves: {path}")
    path = options.output / "glb_omd_time.png"
    shown = [setting for setting in few if not setting.redrawn]
    plot_time({setting: results[setting] for setting in shown}, path)
    console.print(f"Regret against time: {path}")


if __name__ == "__main__":
    main()
