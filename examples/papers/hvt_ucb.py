"""Heavy-tailed linear bandits: experiment of the HvtUCB paper with all rivals.

The experiment is that of Section 6 of Wang, Zhang, Zhao and Zhou (Heavy-tailed linear bandits: Huber regression with
one-pass update, ICML 2025): dimension 2, 50 unit arms, 18000 rounds, Student-t noise with 2.1 degrees of freedom or Gaussian
noise, on fixed arms and on arms redrawn in each round. The 40 trials are one batched learner. Every algorithm plays twice:

- with the width that its theory proves or claims ("theory"), and
- tuned: the best of ten candidates on ten other trials of a quarter of the length. A candidate is a ``radius_scale``; for
  CRTM, CRMM and MENU it is a scale and either the constant of their theory or a practical one (truncation 8, 20 repeats). A
  tuned width is a heuristic.

Student-t noise comes twice. First the learners are told its moment norm, 4.388 at order 1.99 (AnytimeHeavyTailUCB and OFUL: 4.583
at order 2, the standard deviation). Then they are told the 1.31 that the paper states. Two more laws have infinite variance:
Student-t with 1.5 degrees of freedom, and a one-sided Pareto law of index 1.5. There the learners are told the moment norms
of order 1.4, there are 100 trials, and all play by theory only. OFUL needs a sub-Gaussian scale, which exists for Gaussian
noise only. For other noise it gets the moment norm and has no theorem. CRMM and MENU need fixed arms.

The theories promise different probabilities: HvtUCB and HeavyOFUL have their papers' delta, 1 / (8 T) = 7e-6, all others
0.05.

The script prints tables and draws figures: regret (mean, sd, median, worst trial), the final radius, the number of trials
whose confidence set ever missed the truth ("failed"), and the processor time of a round relative to OFUL.

    python examples/papers/hvt_ucb.py --workers 2    # two hours of processor time; seconds with --quick
"""

import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from experiment import Experiment, Job, Results, standard_error, table

from torchonline import OFUL, UCB, AnytimeHeavyTailUCB, HvtUCB
from torchonline.baselines import CRMM, CRTM, MENU, TOFU, HeavyOFUL
from torchonline.environments import GaussianNoise, LinearBandit, Noise, Pareto, StudentT
from torchonline.metrics import has_missed

DIM, ARMS, ROUNDS, DELTA = 2, 50, 18000, 0.05
LAWS: dict[str, Noise] = {
    "Student-t 2.1": StudentT(2.1),
    "Gaussian": GaussianNoise(),
    "Student-t 1.5": StudentT(1.5),
    "Pareto 1.5": Pareto(1.5),
}
INFINITE_VARIANCE = ("Student-t 1.5", "Pareto 1.5")
STAY = ("CRMM", "MENU")
SCALES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
# Practical constants, tried beside those of theory, both with every second scale.
PRACTICAL = {"CRTM": {"truncation": 8.0}, "CRMM": {"repeats": 20}, "MENU": {"repeats": 20}}
ALGORITHMS = (
    "AnytimeHeavyTailUCB",
    "AnytimeHeavyTailUCB, symmetric",
    "OFUL",
    "HvtUCB",
    "HeavyOFUL",
    "CRTM",
    "CRMM",
    "MENU",
    "TOFU",
)


@dataclass(frozen=True)
class Setting:
    """Setting of an experiment."""

    law: str
    redrawn: bool
    tuned: bool
    rounds: int
    trials: int
    told: float | None = None

    def __str__(self) -> str:
        arms = "redrawn arms" if self.redrawn else "fixed arms"
        told = "" if self.told is None else f", told {self.told}"
        return f"{self.law} noise{told}, {arms}, {'tuned' if self.tuned else 'theory'}"


def make_policy(name: str, setting: Setting, rounds: int, trials: int, **options: Any) -> UCB:
    """Return a learner for a number of trials."""
    law = LAWS[setting.law]
    infinite = setting.law in INFINITE_VARIANCE
    # For Student-t 2.1 the paper uses order 1.99. OFUL and AnytimeHeavyTailUCB get the standard deviation if it exists.
    order = 1.4 if infinite else 2.0 if setting.law == "Gaussian" else 1.99
    exact = order if infinite or name not in ("OFUL", "AnytimeHeavyTailUCB") else 2.0
    scale = law.moment_norm(exact) if setting.told is None else setting.told
    common: dict[str, Any] = {"noise_scale": scale, "batch_shape": (trials,), "ridge": DIM, **options}
    rival = common | {"horizon": rounds, "moment_order": order}
    match name:
        case "OFUL":
            return OFUL(DIM, delta=DELTA, **common)
        case "AnytimeHeavyTailUCB":
            return AnytimeHeavyTailUCB(DIM, moment_order=exact, delta=DELTA, **common)
        case "AnytimeHeavyTailUCB, symmetric":
            return AnytimeHeavyTailUCB(DIM, noise="symmetric", delta=DELTA, **common)
        case "HvtUCB":
            return HvtUCB(DIM, **rival)
        case "HeavyOFUL":
            return HeavyOFUL(DIM, **rival)
        case "CRTM":
            return CRTM(DIM, delta=DELTA, **rival)
        case "CRMM":
            return CRMM(DIM, delta=DELTA, **rival)
        case "TOFU":
            return TOFU(DIM, delta=DELTA, **rival)
        case "MENU":
            return MENU(DIM, delta=DELTA, **rival)
        case _:
            raise ValueError(f"no algorithm is called {name}")


def play(name: str, setting: Setting, rounds: int, trials: int, seed: int, **options: Any) -> dict[str, Any]:
    """Play all trials of one learner; a seed fixes arms, parameters and noise."""
    policy = make_policy(name, setting, rounds, trials, **options)
    environment = LinearBandit(
        DIM, ARMS, noise=LAWS[setting.law], redraw=setting.redrawn, batch_shape=(trials,), seed=seed
    )
    every = max(1, rounds // 60)
    total = torch.zeros(trials, dtype=torch.float64)
    missed = torch.zeros(trials, dtype=torch.bool)
    at, curve, seconds = [], [], 0.0
    for t in range(1, rounds + 1):
        start = time.process_time()
        arms = environment.arms()
        index = policy.select(arms)
        seconds += time.process_time() - start
        _, reward, regret = environment.pull(index)
        start = time.process_time()
        policy.step(arms, index, reward)
        seconds += time.process_time() - start
        total += regret
        missed |= has_missed(policy.estimator, environment.theta)
        if t % every == 0 or t == rounds:
            at.append(t)
            curve.append([float(value) for value in (total.mean(), total.quantile(0.1), total.quantile(0.9))])
    return {
        "regret": total.tolist(),
        "rounds": at,
        "curve": curve,  # mean, and 10 % and 90 % of trials
        "radius": float(policy.estimator.radius().mean()),
        "missed": int(missed.sum()),
        "seconds": seconds / rounds,  # processor time of a round of all trials
        "options": options,
    }


def candidates(name: str) -> Iterator[dict[str, Any]]:
    """Yield ten sets of options."""
    if name not in PRACTICAL:
        yield from ({"radius_scale": scale} for scale in SCALES)
        return
    for scale, extra in itertools.product(SCALES[::2], ({}, PRACTICAL[name])):
        yield {"radius_scale": scale, **extra}


def run(name: str, **options: Any) -> dict[str, Any]:
    """Tune if asked for, then play."""
    setting = Setting(**options)
    chosen: dict[str, Any] = {}
    tried: list[dict[str, Any]] = []
    if setting.tuned:
        trials, rounds = min(10, setting.trials), max(1, setting.rounds // 4)
        for choice in candidates(name):
            tried.append({"options": choice, "regret": play(name, setting, rounds, trials, 2, **choice)["regret"]})
        chosen = min(tried, key=lambda one: sum(one["regret"]))["options"]
    return play(name, setting, setting.rounds, setting.trials, 1, **chosen) | {"tried": tried}


def all_settings(rounds: int, trials: int, infinite_trials: int) -> list[Setting]:
    """Return the settings: the paper's, then those with infinite variance."""
    found = []
    for law, told in (("Student-t 2.1", None), ("Gaussian", None), ("Student-t 2.1", 1.31)):
        for redrawn, tuned in itertools.product((False, True), (False, True)):
            found.append(Setting(law, redrawn, tuned, rounds, trials, told))
    for law, redrawn in itertools.product(INFINITE_VARIANCE, (False, True)):
        found.append(Setting(law, redrawn, False, rounds, infinite_trials))
    return found


def plays(name: str, setting: Setting) -> bool:
    """Return whether an algorithm's assumptions make sense in a setting."""
    if name in STAY:
        return not setting.redrawn
    # The symmetric learner takes no moment and does not support skewed noise.
    return name != "AnytimeHeavyTailUCB, symmetric" or (setting.told is None and setting.law != "Pareto 1.5")


def jobs(quick: bool) -> dict[str, Job]:
    settings = all_settings(*((24, 3, 3) if quick else (ROUNDS, 40, 100)))
    return {
        f"{name}, {setting}": Job(run, {"name": name} | asdict(setting))
        for name in ALGORITHMS
        for setting in settings
        if plays(name, setting)
    }


def by_setting(results: Results) -> dict[str, dict[str, Any]]:
    """Return the results of each setting by algorithm, in the order of their mean regret."""
    found: dict[str, dict[str, Any]] = {}
    for job, one in results.items():
        name = max((name for name in ALGORITHMS if job.startswith(f"{name}, ")), key=len)
        found.setdefault(job.removeprefix(f"{name}, "), {})[name] = one
    return {
        setting: dict(sorted(runs.items(), key=lambda item: statistics.fmean(item[1]["regret"])))
        for setting, runs in found.items()
    }


def summary(regret: list[float]) -> tuple[float, float, float, float]:
    """Return the mean, the standard deviation, the median and the worst."""
    return statistics.fmean(regret), statistics.stdev(regret), statistics.median(regret), max(regret)


def regret_table(runs: dict[str, Any], is_tuned: bool) -> str:
    header = ["algorithm", "mean", "sd", "median", "worst", "radius", "failed", "time"]
    rows = []
    for name, one in runs.items():
        regret = one["regret"]
        row = [name, *(f"{number:.0f}" for number in summary(regret)), f"{one['radius']:.3g}", str(one["missed"])]
        row.append(f"{one['seconds'] / runs['OFUL']['seconds']:.1f}")
        if is_tuned:
            row.append(
                ", ".join(
                    f"{value:g}" if key == "radius_scale" else f"{key} {value:g}"
                    for key, value in one["options"].items()
                )
            )
        rows.append(row)
    return table(header + ["radius_scale"] * is_tuned, rows)


def close_to_best(tried: list[dict[str, Any]]) -> str:
    """Return how many other candidates are within two standard errors of the best, on the trials of tuning."""
    ranked = sorted((one["regret"] for one in tried), key=statistics.fmean)
    gaps = [[a - b for a, b in zip(regret, ranked[0], strict=True)] for regret in ranked[1:]]
    return f"{sum(statistics.fmean(gap) <= 2.0 * standard_error(gap) for gap in gaps)} of {len(gaps)}"


def order_table(found: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name in ALGORITHMS:
        chosen = [runs[name]["tried"] if name in runs else None for runs in found.values()]
        rows.append([name, *("" if tried is None else close_to_best(tried) for tried in chosen)])
    return table(("algorithm", *(setting.replace(" noise", "").removesuffix(", tuned") for setting in found)), rows)


def safety_table(found: dict[str, dict[str, Any]]) -> str:
    """Return what the learners of this library, OFUL and HvtUCB do by theory on arms that are redrawn."""
    rows = []
    for law in LAWS:
        runs = found[f"{law} noise, redrawn arms, theory"]
        for name in ("AnytimeHeavyTailUCB", "AnytimeHeavyTailUCB, symmetric", "OFUL", "HvtUCB"):
            if name in runs:
                regret = runs[name]["regret"]
                failed = f"{runs[name]['missed']} of {len(regret)}"
                rows.append((law, name, *(f"{number:.0f}" for number in summary(regret)), failed))
    return table(("noise", "learner", "mean regret", "sd", "median", "worst", "sets that failed"), rows)


def norm_table() -> str:
    orders = (("Student-t 2.1", 2.0), ("Student-t 2.1", 1.99), ("Student-t 2.1", 1.0), ("Student-t 1.5", 1.4))
    rows = [(law, f"{p:g}", f"{LAWS[law].moment_norm(p):.3f}") for law, p in (*orders, ("Pareto 1.5", 1.4))]
    return table(("noise", "order", "norm"), rows)


def tables(results: Results) -> dict[str, str]:
    found = by_setting(results)
    made = {f"{setting}: regret": regret_table(runs, "tuned" in setting) for setting, runs in found.items()}
    tuned = {setting: runs for setting, runs in found.items() if "tuned" in setting}
    order = "Candidates within two standard errors of the best, in tuning"
    first = {"Norms of the noise": norm_table(), "Widths of theory, redrawn arms": safety_table(found)}
    return first | made | {order: order_table(tuned)}


FIGURES = {
    "student_t": lambda setting: setting.startswith("Student-t 2.1 noise, ") and "told" not in setting,
    "gaussian": lambda setting: setting.startswith("Gaussian"),
    "wrong_moment": lambda setting: "told" in setting,
    "infinite_variance": lambda setting: setting.startswith(INFINITE_VARIANCE),
}


def figures(results: Results, folder: Path) -> list[Path]:
    """Draw the regret curves."""
    colours = dict(zip(ALGORITHMS, plt.get_cmap("tab10").colors, strict=False))  # type: ignore[attr-defined]
    paths = []
    for figure_name, is_shown in FIGURES.items():
        shown = {setting: runs for setting, runs in by_setting(results).items() if is_shown(setting)}
        figure, axes = plt.subplots(1, len(shown), figsize=(5 * len(shown), 4.5), sharey=True, layout="constrained")
        for axis, (setting, runs) in zip(axes, shown.items(), strict=True):
            for name, one in sorted(runs.items()):
                mean, low, high = zip(*one["curve"], strict=True)
                axis.plot(one["rounds"], mean, label=name, color=colours[name])
                axis.fill_between(one["rounds"], low, high, color=colours[name], alpha=0.15, linewidth=0)
            axis.set(title=setting.replace(", ", "\n", 1), xlabel="round", yscale="log")
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("cumulative regret: mean, 10 % to 90 % of trials")
        axes[0].legend(fontsize=8)
        paths.append(folder / f"hvt_ucb_{figure_name}.png")
        figure.savefig(paths[-1], dpi=120)
        plt.close(figure)
    return paths


EXPERIMENT = Experiment(__file__, jobs, tables, figures, seeds="1, and 2 in tuning")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
