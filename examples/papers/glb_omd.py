"""Generalized linear bandits: experiments of the GLB-OMD paper with all rivals.

The experiments are those of Section 5 and Appendices F.2 and F.3 of Zhang, Xu, Zhao and Sugiyama (Generalized linear
bandits: almost optimal regret with one-pass update, 2025). Rewards are logistic with parameters of norm S = 3, 5, 7, 9, or
Poisson with S = 3, 5, 7. The dimension is 2. The 20 arms are drawn in the unit ball and are fixed or redrawn in each round.
There are 3000 rounds and delta = 0.01. All algorithms play the same 10 trials; the cheap ones also play 100 others. Each has
the width of its theory. GLB-OMD plays four times:

- "empirical": with the radius of this library, which is proved for any ridge;
- "tight" and "paper": with the paper's radius, sharpened and as printed, and ridge = d, as in the paper's experiments. The
  paper's theorem needs a far larger ridge, so both are heuristics;
- "theorem": with the paper's radius and the ridge of its theorem.

LocalGLB plays twice: unchanged, and "in the ball", with the highest predictor over the part of its ellipsoid inside the ball
of radius S, like OFUGLB. This separates the effect of the ball from that of the ellipsoid.

The rivals are GLOC, ECOLog, OFUL-MLogB, GLM-UCB, RS-GLinCB, OFUGLB-e, OFUGLB and OFULog-r, with the constants of
``torchonline.baselines``. ECOLog, OFUL-MLogB and OFULog-r need logistic rewards. The last five keep all rounds and are not
cheap. OFUGLB and OFULog-r solve a convex problem for each arm; they end after 1000 rounds, where the tables show the regret
of all algorithms. For Poisson rewards the radii of GLOC and GLM-UCB are heuristics. We cannot vouch for a confidence set of
RS-GLinCB; its scale also multiplies its warm-up constant. OFUL's linear model is wrong here, and Greedy and Thompson
sampling have no theorem. In three settings, fixed arms with logistic S = 3 and 5 and Poisson S = 3, OFUGLB plays all rounds,
and OFUGLB and GLM-UCB also play the 100 trials. For these settings the script prints a verdict on LocalGLB.

With ``--covertype PATH``, the file of ``torchonline.datasets.covertype``, the script also runs Appendix F.3. The ten
quantitative columns of the UCI Covertype data are standardised and clustered by k-means into 32 arms. An arm's features are
its centroid and a constant, divided by the norm of the longest. Its reward is 1 if a random member of the cluster, drawn
with replacement, is spruce or fir, and 0 otherwise. The best cluster is known, the parameter is unknown, and the model is
not exact: learners are told the norm of the best logistic fit, rounded up, which is unknown in practice. All play twice, by
theory and tuned: the best of ten ``radius_scale`` on other trials of a quarter of the length. A tuned width is a heuristic.
(The paper shrinks all radii by a factor that it does not state.)

The script prints tables and draws figures: regret (mean, sd, median), the final radius, the number of trials whose
confidence set ever missed the truth ("failed"), and the processor time of one learner's round relative to LocalGLB, measured
in alternation. Finished runs are kept in OUTPUT/glb_omd and not repeated, even if the code has changed: empty that folder to
start again.

    python examples/papers/glb_omd.py --workers 2 --covertype covtype.csv    # seconds with --smoke
"""

import argparse
import itertools
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

from torchonline import GLBOMD, OFUL, UCB, Greedy, LocalGLB, LocalGLMRegression, Logistic, Poisson, ThompsonSampling
from torchonline.bandits.estimator import Estimator
from torchonline.bandits.policies import Policy
from torchonline.baselines import GLMUCB, GLOC, OFUGLB, ECOLog, OFUGLBRegression, OFULMLogB, OFULogR, RSGLinCB
from torchonline.datasets import covertype
from torchonline.environments import GeneralizedLinearBandit, Outcome
from torchonline.links import Link
from torchonline.metrics import has_missed

DIM, ARMS, ROUNDS, TRIALS, MANY, DELTA = 2, 20, 3000, 10, 100, 0.01
NORMS = {"logistic": (3, 5, 7, 9), "Poisson": (3, 5, 7)}
SMOKE_NORMS = {"logistic": (3,), "Poisson": (7,)}
# Rounds of OFUGLB and OFULog-r, which take some minutes.
EXACT_ROUNDS = 1000
# Settings of fixed arms in which OFUGLB plays all rounds, and OFUGLB and GLM-UCB all trials, for the verdict.
COMPARED = {("logistic", 3), ("logistic", 5), ("Poisson", 3)}
THOROUGH = ("GLM-UCB", "OFUGLB")
CLUSTERS = 32
SCALES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


@dataclass(frozen=True)
class Setting:
    """Setting of an experiment."""

    rewards: str  # a key of NORMS, or "Covertype"
    norm: int
    redrawn: bool
    rounds: int
    trials: int
    tuned: bool = False

    def is_compared(self) -> bool:
        return (self.rewards, self.norm) in COMPARED and not self.redrawn

    def __str__(self) -> str:
        if self.rewards == "Covertype":
            return f"Covertype, {'tuned (heuristic)' if self.tuned else 'theory'}"
        return f"{self.rewards}, S = {self.norm}, {'redrawn' if self.redrawn else 'fixed'} arms"


@dataclass(frozen=True)
class Problem:
    """Options of the learners; ``options`` has all but ``horizon``."""

    dim: int
    link: Link
    theta_bound: float
    trials: tuple[int, ...]
    horizon: int
    radius_scale: float

    def options(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("dim", "link", "theta_bound", "radius_scale")}
        return told | {"batch_shape": self.trials, "delta": DELTA}


@dataclass(frozen=True)
class Algorithm:
    """Learner with its properties."""

    make: Callable[[Problem], Policy]
    has_set: bool = True  # whether it has a confidence set for the parameter
    poisson: bool = True  # whether it supports Poisson rewards
    cheap: bool = True  # whether it plays the additional trials
    rounds: float = math.inf  # largest number of rounds

    def build(self, problem: Problem) -> Policy:
        """Return the learner, without its warning about heuristic radii."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* heuristic", UserWarning)
            return self.make(problem)


class InTheBall(Policy):
    """Optimism over the part of an ellipsoid inside the ball; O(d^3) per round.

    If (theta - theta_hat)'V(theta - theta_hat) <= radius^2 and |theta|^2 <= S^2 both hold, so does any weighted mean of the two
    inequalities, which is again an ellipsoid. The score is the least, over 17 weights, of the highest predictors in these
    ellipsoids. With all weights it would be the highest predictor in the intersection.
    """

    def __init__(self, estimator: Estimator) -> None:
        super().__init__(estimator)
        self.weight = torch.linspace(0.0, 1.0, 17, dtype=torch.float64).unsqueeze(-1)

    def forward(self, arms: Tensor) -> Tensor:
        estimator: Any = self.estimator
        values, vectors = torch.linalg.eigh(estimator.V)
        centre = (estimator.theta_hat.unsqueeze(-2) @ vectors).squeeze(-2)
        scaled = values / estimator.radius().square().clamp(min=1e-12).unsqueeze(-1)
        # (*B, weights, d), in the eigenbasis of V: the mean matrix, and its linear term, to which only the first set contributes.
        matrix = (1.0 - self.weight) * scaled.unsqueeze(-2) + self.weight / estimator.theta_bound**2
        force = (1.0 - self.weight) * (scaled * centre).unsqueeze(-2)
        room = 1.0 - (force * centre.unsqueeze(-2)).sum(-1) + (force * force / matrix).sum(-1)
        rows = arms @ vectors
        width = (rows * rows @ (1.0 / matrix).mT) * room.clamp(min=0.0).unsqueeze(-2)
        return (rows @ (force / matrix).mT + width.sqrt()).amin(-1)


def glb_omd(radius: str) -> Callable[[Problem], GLBOMD]:
    return lambda problem: GLBOMD(**problem.options(), radius=radius)


def theorem(problem: Problem) -> GLBOMD:
    """Return GLB-OMD with the radius and the ridge of its theorem."""
    ridge = glb_omd("paper")(problem).estimator.theory_ridge()
    return GLBOMD(**problem.options(), radius="paper", ridge=ridge)


def oful(problem: Problem) -> OFUL:
    """Return OFUL, told the largest slope times S and a bound on the noise's sd."""
    options = problem.options()
    slope = options.pop("link").max_slope(problem.theta_bound)
    scale = 0.5 if isinstance(problem.link, Logistic) else math.sqrt(slope)
    return OFUL(**options | {"theta_bound": problem.theta_bound * slope, "noise_scale": scale})


def rival(kind: Callable[..., Policy], *, any_link: bool = True, keeps: bool = False) -> Callable[[Problem], Policy]:
    """Return a maker of a baseline.

    Some baselines support only the logistic link. Those that keep all rounds need the horizon.
    """

    def make(problem: Problem) -> Policy:
        options = problem.options() | ({"horizon": problem.horizon} if keeps else {})
        if not any_link:
            del options["link"]
        return kind(**options)

    return make


def ofuglb_e(**options: Any) -> UCB:
    """Return OFUGLB with an ellipsoidal set."""
    return UCB(OFUGLBRegression(**options))


def rs_glincb(problem: Problem) -> RSGLinCB:
    """Return RS-GLinCB; the scale also multiplies its warm-up constant."""
    factor = 25.0 * problem.radius_scale
    return RSGLinCB(**problem.options(), horizon=problem.horizon, warm_up_factor=factor)


ALGORITHMS: dict[str, Algorithm] = {
    "LocalGLB": Algorithm(lambda problem: LocalGLB(**problem.options())),
    "LocalGLB, in the ball": Algorithm(lambda problem: InTheBall(LocalGLMRegression(**problem.options()))),
    "GLB-OMD, empirical": Algorithm(glb_omd("empirical")),
    "GLB-OMD, tight": Algorithm(glb_omd("tight")),
    "GLB-OMD, paper": Algorithm(glb_omd("paper")),
    "GLB-OMD, theorem": Algorithm(theorem),
    "Thompson": Algorithm(lambda problem: ThompsonSampling(LocalGLMRegression(**problem.options()))),
    "Greedy": Algorithm(lambda problem: Greedy(LocalGLMRegression(**problem.options())), has_set=False),
    "OFUL": Algorithm(oful, has_set=False),
    "GLOC": Algorithm(rival(GLOC)),
    "ECOLog": Algorithm(rival(ECOLog, any_link=False), poisson=False),
    "OFUL-MLogB": Algorithm(rival(OFULMLogB, any_link=False), poisson=False),
    "GLM-UCB": Algorithm(rival(GLMUCB, keeps=True), cheap=False),
    "RS-GLinCB": Algorithm(rs_glincb, has_set=False, cheap=False),
    "OFUGLB-e": Algorithm(rival(ofuglb_e, keeps=True), cheap=False),
    "OFUGLB": Algorithm(rival(OFUGLB, keeps=True), cheap=False, rounds=EXACT_ROUNDS),
    "OFULog-r": Algorithm(rival(OFULogR, any_link=False, keeps=True), poisson=False, cheap=False, rounds=EXACT_ROUNDS),
}


class ClusterBandit:
    """Bernoulli bandit with known features, in independent trials."""

    def __init__(self, arms: Tensor, means: Tensor, trials: tuple[int, ...], seed: int) -> None:
        self._arms, self._means = arms.expand(*trials, *arms.shape), means
        self._generator = torch.Generator().manual_seed(seed)

    def arms(self) -> Tensor:
        return self._arms

    def pull(self, index: Tensor) -> Outcome:
        x = torch.take_along_dim(self._arms, index[..., None, None], dim=-2).squeeze(-2)
        mean = self._means[index]
        uniform = torch.rand(index.shape, generator=self._generator, dtype=torch.float64)
        return Outcome(x, (uniform < mean).double(), self._means.max() - mean)


def cluster_covertype(path: Path, kept: Path) -> dict[str, Tensor]:
    """Return and keep features and means of the 32 arms, and the best logistic fit."""
    size = path.stat().st_size
    if not kept.exists() or torch.load(kept).get("bytes", size) != size:  # computed from another file
        from sklearn.cluster import KMeans
        from sklearn.linear_model import LogisticRegression

        features, label = covertype(path).tensors
        numbers = features[:, :10].double()
        spread = numbers.std(0)
        numbers = (numbers - numbers.mean(0)) / torch.where(spread > 0.0, spread, 1.0)
        found = KMeans(CLUSTERS, n_init=1, random_state=0).fit(numbers.numpy())
        cluster = torch.from_numpy(found.labels_).long()
        sizes = cluster.bincount(minlength=CLUSTERS)
        means = cluster.bincount(weights=(label == 0).double(), minlength=CLUSTERS) / sizes
        arms = torch.cat([torch.from_numpy(found.cluster_centers_), torch.ones(CLUSTERS, 1)], 1).double()
        arms /= arms.norm(dim=1).max()
        # Each cluster enters the fit as a success of weight p and a failure of weight 1 - p.
        fit = LogisticRegression(C=1e8, fit_intercept=False, solver="newton-cholesky", tol=1e-9)
        fit.fit(arms.repeat(2, 1).numpy(), [1] * CLUSTERS + [0] * CLUSTERS, torch.cat([means, 1.0 - means]).numpy())
        torch.save(
            {"arms": arms, "means": means, "sizes": sizes, "bytes": size, "fit": torch.from_numpy(fit.coef_[0])}, kept
        )
    return torch.load(kept)


@dataclass
class Run:
    """Result of one algorithm in one setting."""

    rounds: Tensor  # rounds of the regret curve, (points)
    regret: Tensor  # (points, trials)
    radius: float
    missed: int  # trials whose set ever missed the truth; -1 without a set or a truth
    time: float  # processor time of one learner's round, relative to LocalGLB
    radius_scale: float

    def at(self, rounds: int) -> float:
        """Return the mean regret after a number of rounds."""
        return float(self.regret[self.rounds >= rounds][0].mean())


def shortest_of(runs: dict[str, Run]) -> int:
    return min(int(one.rounds[-1]) for one in runs.values())


def problem_for(setting: Setting, rounds: int, trials: tuple[int, ...], scale: float = 1.0, dim: int = DIM) -> Problem:
    link = Poisson() if setting.rewards == "Poisson" else Logistic()
    return Problem(dim, link, float(setting.norm), trials, rounds, scale)


class Play:
    """Learner with its environment; a seed fixes arms and parameters."""

    def __init__(
        self,
        name: str,
        setting: Setting,
        rounds: int,
        trials: tuple[int, ...],
        seed: int,
        folder: Path,
        scale: float = 1.0,
    ) -> None:
        self.environment: Any
        if setting.rewards == "Covertype":
            data = torch.load(folder / "covertype.pt")
            problem = problem_for(setting, rounds, trials, scale, data["arms"].size(-1))
            self.environment = ClusterBandit(data["arms"], data["means"], trials, seed)
        else:
            problem = problem_for(setting, rounds, trials, scale)
            self.environment = GeneralizedLinearBandit(
                DIM,
                ARMS,
                link=problem.link,
                theta_norm=problem.theta_bound,
                redraw=setting.redrawn,
                batch_shape=trials,
                seed=seed,
            )
        self.policy = ALGORITHMS[name].build(problem)
        self.seconds = 0.0  # processor time of choices and of learning

    def round(self) -> Tensor:
        """Play a round and return its regret."""
        arms = self.environment.arms()
        start = time.process_time()
        index = self.policy.select(arms)
        self.seconds += time.process_time() - start
        x, reward, regret = self.environment.pull(index)
        start = time.process_time()
        self.policy.step(x, reward)
        self.seconds += time.process_time() - start
        return regret


def play(name: str, setting: Setting, rounds: int, trials: int, seed: int, scale: float, folder: Path) -> Run:
    """Play all trials of one learner."""
    torch.manual_seed(seed)
    game = Play(name, setting, rounds, (trials,), seed, folder, scale)
    checked = ALGORITHMS[name].has_set and setting.rewards != "Covertype"
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
    return Run(torch.tensor(at), torch.stack(curve), radius, int(missed.sum()) if checked else -1, math.nan, scale)


def time_of_a_round(name: str, setting: Setting, rounds: int, scale: float, folder: Path) -> float:
    """Return a round's time relative to LocalGLB, in alternation over one more trial."""
    games = [Play(each, setting, rounds, (), 3, folder, its) for each, its in ((name, scale), ("LocalGLB", 1.0))]
    for _ in range(rounds):
        for game in games:
            game.round()
    return games[0].seconds / games[1].seconds


def run(name: str, setting: Setting, folder: Path) -> Run:
    """Tune if asked for, then play, then measure the time."""
    torch.set_num_threads(1)
    scale, rounds = 1.0, setting.rounds
    if not (name in THOROUGH and setting.is_compared()):
        rounds = int(min(rounds, ALGORITHMS[name].rounds))
    if setting.tuned:
        short, few = max(1, rounds // 4), min(10, setting.trials)

        def final_regret(scale: float) -> float:
            return float(play(name, setting, short, few, 2, scale, folder).regret[-1].mean())

        scale = min(SCALES, key=final_regret)
    one = play(name, setting, rounds, setting.trials, 1, scale, folder)
    return replace(one, time=time_of_a_round(name, setting, rounds, scale, folder))


def kept_run(name: str, setting: Setting, folder: Path) -> Run:
    """Load a run from the folder, or make and save it."""
    path = folder / f"{name}, {setting}, {setting.rounds} x {setting.trials}.pt"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        torch.save(vars(run(name, setting, folder)), unfinished)
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
    if setting.tuned:
        table.add_column("radius_scale", justify="right")
    for name, one in sorted(runs.items(), key=lambda item: (-item[1].rounds[-1], item[1].regret[-1].mean())):
        final = one.regret[-1]
        row = [f"{one.rounds[-1]}", *(short(one.at(shortest)) for _ in early)]
        row += [*map(short, (final.mean(), final.std(), final.quantile(0.5), one.radius))]
        row += ["" if one.missed < 0 else f"{one.missed} of {len(final)}", f"{one.time:.1f}"]
        table.add_row(name, *row, *([f"{one.radius_scale:g}"] if setting.tuned else []))
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


def all_settings(
    norms: dict[str, tuple[int, ...]], rounds: int, many: int, covertype_norm: int | None
) -> list[Setting]:
    """Return the settings: the paper's, those with more trials, then Covertype."""
    found = [
        Setting(rewards, norm, redrawn, rounds, trials)
        for trials in (min(TRIALS, many), many)
        for rewards in norms
        for redrawn, norm in itertools.product((False, True), norms[rewards])
    ]
    if covertype_norm is not None:
        theory = Setting("Covertype", covertype_norm, False, rounds, min(TRIALS, many))
        found += [theory, replace(theory, tuned=True)]
    return list(dict.fromkeys(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--many", type=int, default=MANY, help="trials of the cheap algorithms")
    parser.add_argument("--covertype", type=Path, help="the file of torchonline.datasets.covertype")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few rounds of everything, to see that it runs")
    options = parser.parse_args()
    for name in ("rounds", "many", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: expected at least 1, got {getattr(options, name)}")
    if options.covertype is not None and not options.covertype.is_file():
        parser.error(f"--covertype: expected a file, found none at {options.covertype}")
    norms, rounds, many = (SMOKE_NORMS, 4, 2) if options.smoke else (NORMS, options.rounds, options.many)

    console = Console()
    folder = options.output / "glb_omd"
    folder.mkdir(parents=True, exist_ok=True)
    norm = None
    if options.covertype is None:
        console.print("Covertype is left out: no --covertype PATH.")
    else:
        data = cluster_covertype(options.covertype, folder / "covertype.pt")
        norm = math.ceil(float(data["fit"].norm()))
        fitted = torch.sigmoid(data["arms"] @ data["fit"])
        console.print(
            f"Covertype: {int(data['sizes'].sum())} rows, clusters of {int(data['sizes'].min())} to "
            f"{int(data['sizes'].max())} with means {float(data['means'].min()):.3f} to {float(data['means'].max()):.3f}; "
            f"the best logistic fit has norm {float(data['fit'].norm()):.2f} (told: {norm}) and is off by up to "
            f"{float((fitted - data['means']).abs().max()):.3f}"
        )
    settings = all_settings(norms, rounds, many, norm)
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
    figures = {name.lower(): [setting for setting in few if setting.rewards == name] for name in (*NORMS, "Covertype")}
    for name, shown in figures.items():
        if shown:
            path = options.output / f"glb_omd_{name}.png"
            plot_curves({setting: results[setting] for setting in shown}, path)
            console.print(f"Regret curves: {path}")
    path = options.output / "glb_omd_time.png"
    shown = [setting for setting in few if not setting.redrawn and setting.rewards in NORMS]
    plot_time({setting: results[setting] for setting in shown}, path)
    console.print(f"Regret against time: {path}")


if __name__ == "__main__":
    main()
