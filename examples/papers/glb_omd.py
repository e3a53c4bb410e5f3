"""Generalized linear bandits: simulations of the GLB-OMD paper with all rivals.

The experiments are those of Section 5 and Appendix F.2 of Zhang, Xu, Zhao and Sugiyama (Generalized linear bandits: almost
optimal regret with one-pass update, 2025); ``glb_omd_covertype.py`` has those of Appendix F.3. Rewards are logistic or Poisson,
with parameters of norm S = 3, 5, 7, 9; a gamma and a custom link have one S each. The dimension is 2. The 20 arms are drawn in
the unit ball and are fixed or redrawn in each round. There are 3000 rounds and delta = 0.01. All algorithms play the same 10
trials; the cheap ones also play 100 others. Each has the width of its theory; ``glb_omd_learners.py`` says what they are.

LocalGLB plays twice: unchanged, and "in the ball", like OFUGLB. This separates the effect of the ball from that of the
ellipsoid. Some rivals play in several variants. GLM-UCB and RS-GLinCB also play as in the paper's experiment with Poisson
rewards, told that rewards are at most 100; a table counts how often they are more. GLM-UCB, RS-GLinCB, OFUGLB-e, OFUGLB and
OFULog-r keep all rounds and are not cheap. OFUGLB and OFULog-r solve a convex problem for each arm; they end after 1000
rounds, where the tables show the regret of all algorithms. In three settings, fixed arms with logistic S = 3 and 5 and Poisson
S = 3, OFUGLB plays all rounds, and OFUGLB and GLM-UCB also play the 100 trials. For these settings the script prints a verdict
on LocalGLB.

The script prints tables and draws figures: regret (mean, sd, median), the final radius, the number of trials whose
confidence set ever missed the truth ("failed"), and the processor time of one learner's round relative to LocalGLB, measured
in alternation.

    python examples/papers/glb_omd.py --workers 2    # five hours of processor time; seconds with --quick
"""

import itertools
import math
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from experiment import Experiment, Job, Results, listed, scatter, short, standard_error, table
from glb_omd_coverage import difference, sinh_link
from glb_omd_learners import ALGORITHMS, BOUNDED, EXACT_ROUNDS, REWARD_BOUND, VARIANTS, Game, Problem, in_turn
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from torchonline import Gamma, Logistic, Poisson
from torchonline.environments import GeneralizedLinearBandit
from torchonline.links import Link
from torchonline.metrics import has_missed

DIM, ARMS, ROUNDS, TRIALS, MANY = 2, 20, 3000, 10, 100
NORMS = {"logistic": (3, 5, 7, 9), "Poisson": (3, 5, 7, 9)}
QUICK_NORMS = {"logistic": (3,), "Poisson": (7,)}
# Two more links, for learners that take any, in the many trials. The rewards of the custom one are differences of two counts.
MORE = {"Gamma": (1,), "custom (sinh)": (2,)}
TAKE_ANY = (
    "LocalGLB",
    "LocalGLB, in the ball",
    "GLB-OMD, empirical",
    "Thompson",
    "Greedy",
    "OFUL",
    "GLOC",
    "Rarely switching",
)
LINKS: dict[str, Link] = {
    "logistic": Logistic(),
    "Poisson": Poisson(),
    "Gamma": Gamma(3.0, shape=2.0),
    "custom (sinh)": sinh_link(),
}
# Settings of fixed arms in which OFUGLB plays all rounds, and OFUGLB and GLM-UCB all trials, for the verdict.
COMPARED = {("logistic", 3), ("logistic", 5), ("Poisson", 3)}
THOROUGH = ("GLM-UCB", "OFUGLB")
CONSTANTS, ABOVE = "The instances", "Poisson rewards above 100"
EVERY = ALGORITHMS | VARIANTS | BOUNDED  # figures show the first


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
        arms = "redrawn arms" if self.redrawn else "fixed arms"
        return f"{self.rewards}, S = {self.norm}, {arms}, {self.trials} trials"


Runs = dict[str, dict[str, Any]]  # the results in one setting, by algorithm


def shortest_of(runs: Runs) -> int:
    return min(one["rounds"][-1] for one in runs.values())


def regret_at(one: dict[str, Any], rounds: int) -> list[float]:
    """Return the mean regret after a number of rounds, and that of 10 % and of 90 % of trials."""
    return next(values for t, values in zip(one["rounds"], one["curve"], strict=True) if t >= rounds)


def problem_for(setting: Setting, rounds: int, trials: tuple[int, ...]) -> Problem:
    return Problem(DIM, LINKS[setting.rewards], float(setting.norm), trials, rounds)


def make_game(name: str, setting: Setting, rounds: int, trials: tuple[int, ...], seed: int) -> Game:
    """Return a learner with its environment; a seed fixes arms and parameters."""
    problem = problem_for(setting, rounds, trials)
    environment = GeneralizedLinearBandit(
        DIM,
        ARMS,
        link=problem.link,
        rewards=difference if setting.rewards == "custom (sinh)" else None,
        theta_norm=problem.theta_bound,
        redraw=setting.redrawn,
        batch_shape=trials,
        seed=seed,
    )
    return Game(EVERY[name].build(problem), environment)


def play(name: str, setting: Setting, rounds: int, trials: int, seed: int) -> dict[str, Any]:
    """Play all trials of one learner."""
    torch.manual_seed(seed)
    game = make_game(name, setting, rounds, (trials,), seed)
    checked = EVERY[name].has_set
    every = max(1, rounds // 60)
    total = torch.zeros(trials, dtype=torch.float64)
    missed = torch.zeros(trials, dtype=torch.bool)
    at, curve = [], []
    for t in range(1, rounds + 1):
        total += game.round()
        if checked:
            missed |= has_missed(game.policy.estimator, game.environment.theta)
        if t % every == 0 or t == rounds:
            at.append(t)
            curve.append([float(value) for value in (total.mean(), total.quantile(0.1), total.quantile(0.9))])
    return {
        "regret": total.tolist(),
        "rounds": at,
        "curve": curve,  # mean, and 10 % and 90 % of trials
        "radius": float(game.policy.estimator.radius().mean()),
        "missed": int(missed.sum()) if checked else None,
    }


def run(name: str, **options: Any) -> dict[str, Any]:
    """Play, then measure the time in alternation with LocalGLB over one more trial."""
    setting = Setting(**options)
    rounds = setting.rounds
    if not (name in THOROUGH and setting.is_compared()):
        rounds = int(min(rounds, EVERY[name].rounds))
    one = play(name, setting, rounds, setting.trials, 1)
    games = [make_game(each, setting, rounds, (), 3) for each in (name, "LocalGLB")]
    return one | {"time": in_turn(games, rounds)[0]}


def plays(name: str, setting: Setting, many: int) -> bool:
    """Return whether an algorithm supports a setting and is cheap enough for it."""
    if setting.rewards in MORE:
        return name in TAKE_ANY
    if name in BOUNDED and (setting.rewards, setting.norm) not in (("Poisson", 3), ("Poisson", 5), ("Poisson", 7)):
        return False
    algorithm = EVERY[name]
    cheap = algorithm.cheap or (name in THOROUGH and setting.is_compared())
    return (algorithm.poisson or setting.rewards != "Poisson") and (cheap or setting.trials < many)


def verdict(runs: Runs, title: str) -> str:
    """Compare LocalGLB's mean regret with ECOLog, GLOC, GLM-UCB and OFUGLB."""
    mean = {name: statistics.fmean(one["regret"]) for name, one in runs.items()}
    ours, other, error = mean["LocalGLB"], mean["OFUGLB"], standard_error(runs["OFUGLB"]["regret"])
    multiples = {name: mean[name] / ours for name in ("ECOLog", "GLOC", "GLM-UCB") if name in runs}
    # For counts, where OFUGLB has more to lose, LocalGLB must not exceed OFUGLB's mean at all.
    is_count = title.startswith("Poisson")
    holds = (is_count or min(multiples.values()) >= 2.0) and ours <= other + (0.0 if is_count else error)
    times = "".join(f"; {name} {multiple:.1f} times" for name, multiple in multiples.items())
    return (
        f"{title}: LocalGLB {ours:.1f}{times}; OFUGLB {other:.1f} ± {error:.1f} (standard error). Rivals at least twice as "
        f"much, and OFUGLB not less: {'yes' if holds else 'no'}"
    )


def regret_table(runs: Runs) -> str:
    shortest, longest = shortest_of(runs), max(one["rounds"][-1] for one in runs.values())
    early = [f"mean at {shortest}"] if shortest < longest else []
    rows = []
    for name, one in sorted(
        runs.items(), key=lambda item: (-item[1]["rounds"][-1], statistics.fmean(item[1]["regret"]))
    ):
        regret = one["regret"]
        row = [name, one["rounds"][-1], *(short(regret_at(one, shortest)[0]) for _ in early)]
        numbers = (statistics.fmean(regret), statistics.stdev(regret), statistics.median(regret), one["radius"])
        failed = "" if one["missed"] is None else f"{one['missed']} of {len(regret)}"
        rows.append([*row, *map(short, numbers), failed, f"{one['time']:.1f}"])
    return table(("learner", "rounds", *early, "mean", "sd", "median", "radius", "failed", "time"), rows)


def mean_table(found: dict[str, Runs], names: list[str]) -> str:
    """Return the means and standard deviations of some learners, a setting a row."""
    rows = []
    for title, runs in found.items():
        regrets = [runs[name]["regret"] if name in runs else None for name in names]
        cells = ("" if regret is None else scatter(regret) for regret in regrets)
        rows.append((title, *cells))
    return table(("rewards, arms, trials", *names), rows)


def early_table(found: dict[str, Runs], names: list[str]) -> str:
    """Return the means after the rounds of the shortest run, with 10 % and 90 % of trials, a setting a row."""
    rows = []
    for title, runs in found.items():
        numbers = [regret_at(runs[name], shortest_of(runs)) if name in runs else None for name in names]
        rows.append((title, *("" if n is None else "{} ({} to {})".format(*map(short, n)) for n in numbers)))
    return table(("rewards, arms, trials", *names), rows)


def failures(found: dict[str, Runs]) -> str:
    """Return a list of the learners whose confidence sets ever failed, by setting."""
    lines = []
    for title, runs in found.items():
        failed = {name: one["missed"] for name, one in runs.items() if one["missed"]}
        if failed:
            lines.append(f"{title}: " + ", ".join(f"{name} {count}" for name, count in failed.items()))
    return listed(lines or ["none"])


def constants() -> list[list[Any]]:
    """Return the instances' constants, means over trials of fixed arms, and the radii that follow."""
    rows = []
    for rewards, norms in NORMS.items():
        for norm in norms:
            problem = problem_for(Setting(rewards, norm, False, 1, TRIALS), 1, (TRIALS,))
            environment = GeneralizedLinearBandit(
                DIM, ARMS, link=problem.link, theta_norm=norm, batch_shape=(TRIALS,), seed=1
            )
            longest = environment.arms().norm(dim=-1).amax(-1)
            of_arms = 1.0 / problem.link.slope(-norm * longest)
            estimators = [
                EVERY[name].build(problem).estimator for name in ("GLB-OMD, theorem", "GLB-OMD, paper", "LocalGLB")
            ]
            numbers = [of_arms.mean(), environment.kappa(), environment.kappa_star().mean(), estimators[0].ridge]
            numbers += [estimator.radius()[0] for estimator in estimators]
            rows.append([rewards, norm, float(longest.mean()), *map(float, numbers)])
    return rows


def constants_table(numbers: list[list[Any]]) -> str:
    rows = [(rewards, norm, f"{longest:.3f}", *map(short, rest)) for rewards, norm, longest, *rest in numbers]
    header = ("rewards", "S", "longest arm", "kappa of the arms", "of the ball", "kappa*")
    return table((*header, "ridge of the theorem", "its first radius", "first radius, ridge d", "LocalGLB's"), rows)


def above() -> list[list[Any]]:
    """Return how often the best arm pays more than REWARD_BOUND, for Poisson rewards, in the trials of fixed arms."""
    rows = []
    for norm in NORMS["Poisson"]:
        environment = GeneralizedLinearBandit(
            DIM, ARMS, link=LINKS["Poisson"], theta_norm=norm, batch_shape=(TRIALS,), seed=1
        )
        mean = (environment.arms() @ environment.theta.unsqueeze(-1)).squeeze(-1).amax(-1).exp()
        more = torch.special.gammainc(torch.full_like(mean, math.floor(REWARD_BOUND) + 1.0), mean)
        rows.append([norm, float(mean.mean()), int((mean > REWARD_BOUND).sum()), float(more.mean())])
    return rows


def above_table(numbers: list[list[Any]]) -> str:
    rows = [(norm, short(mean), f"{trials} of {TRIALS}", f"{share:.0%}") for norm, mean, trials, share in numbers]
    return table(
        ("S", "mean reward of the best arm", "trials where it exceeds 100", "rewards of that arm above 100"), rows
    )


COLOURS = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]


def grid(count: int, rows: int) -> tuple[Any, list[Any]]:
    columns = -(-count // rows)
    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.8 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[count:]:
        axis.remove()
    return figure, list(axes.flat[:count])


def plot_curves(results: dict[str, Runs], path: Path) -> None:
    figure, axes = grid(len(results), 2 if len(results) > 2 else 1)
    for axis, (title, runs) in zip(axes, results.items(), strict=True):
        for colour, name in zip(COLOURS, ALGORITHMS, strict=False):
            if name in runs:
                mean, low, high = zip(*runs[name]["curve"], strict=True)
                axis.plot(runs[name]["rounds"], mean, label=name, color=colour)
                axis.fill_between(runs[name]["rounds"], low, high, color=colour, alpha=0.08, linewidth=0)
        lowest = min(statistics.fmean(one["regret"]) for one in runs.values())
        axis.set(title=title, xlabel="round", yscale="log")
        axis.set_ylim(bottom=0.2 * lowest if lowest > 0.0 else None)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("cumulative regret: mean, 10 % to 90 % of trials")
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_time(results: dict[str, Runs], path: Path) -> None:
    figure, axes = grid(len(results), 2)
    for axis, (title, runs) in zip(axes, results.items(), strict=True):
        shortest = shortest_of(runs)
        for colour, name in zip(COLOURS, ALGORITHMS, strict=False):
            if name in runs:
                axis.scatter(runs[name]["time"], regret_at(runs[name], shortest)[0], label=name, color=colour)
        axis.set(title=title, xlabel="time of a round, LocalGLB = 1", xscale="log", yscale="log")
        axis.set_ylabel(f"mean regret after {shortest} rounds")
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def jobs(quick: bool) -> dict[str, Job]:
    """Return the jobs in the paper's settings, then those with more trials."""
    norms, rounds, many = (QUICK_NORMS, 4, 3) if quick else (NORMS, ROUNDS, MANY)
    found = {CONSTANTS: Job(constants, {}), ABOVE: Job(above, {})}
    for trials, played in ((min(TRIALS, many - 1), norms), (many, norms | MORE)):
        for rewards, of_rewards in played.items():
            for redrawn, norm in itertools.product((False, True), of_rewards):
                setting = Setting(rewards, norm, redrawn, rounds, trials)
                for name in EVERY:
                    if plays(name, setting, many):
                        found[f"{name}: {setting}"] = Job(run, {"name": name} | asdict(setting))
    return found


def by_setting(results: Results) -> dict[str, Runs]:
    found: dict[str, Runs] = {}
    for job, one in results.items():
        if job not in (CONSTANTS, ABOVE):
            name, setting = job.split(": ", 1)
            found.setdefault(setting, {})[name] = one
    return found


def split(found: dict[str, Runs]) -> tuple[dict[str, Runs], dict[str, Runs]]:
    """Return the settings with few trials and those with many."""
    sizes = {title: len(runs["LocalGLB"]["regret"]) for title, runs in found.items()}
    few = min(sizes.values())
    return (
        {title: runs for title, runs in found.items() if sizes[title] == few},
        {title: runs for title, runs in found.items() if sizes[title] > few},
    )


def tables(results: Results) -> dict[str, str]:
    found = by_setting(results)
    few, many = split(found)
    cheap = [name for name, algorithm in EVERY.items() if algorithm.cheap]
    others = ["LocalGLB", *(name for name, one in EVERY.items() if not one.cheap and one.rounds > ROUNDS)]
    early = ["LocalGLB", "LocalGLB, in the ball", *(name for name, one in EVERY.items() if one.rounds <= EXACT_ROUNDS)]
    compared = {title: runs for title, runs in many.items() if "OFUGLB" in runs}
    return {
        CONSTANTS: constants_table(results[CONSTANTS]),
        ABOVE: above_table(results[ABOVE]),
        "Many trials, cheap learners": mean_table(many, cheap),
        "Few trials, learners that keep all rounds": mean_table(few, others),
        "Few trials, after the rounds of the shortest run": early_table(few, early),
        "Confidence sets that failed": failures(found),
        **{f"{title}: regret": regret_table(runs) for title, runs in found.items()},
        "LocalGLB beside rivals": listed(verdict(runs, title) for title, runs in compared.items()),
    }


def figures(results: Results, folder: Path) -> list[Path]:
    few = split(by_setting(results))[0]
    paths = []
    for rewards in NORMS:
        shown = {title: runs for title, runs in few.items() if title.startswith(rewards)}
        paths.append(folder / f"glb_omd_{rewards.lower()}.png")
        plot_curves(shown, paths[-1])
    paths.append(folder / "glb_omd_time.png")
    plot_time({title: runs for title, runs in few.items() if "fixed" in title}, paths[-1])
    return paths


EXPERIMENT = Experiment(__file__, jobs, tables, figures, seeds="1, and 3 for times")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
