"""Generalized linear bandits: regret against rounds, kappa*, S and d, beside the GLB-OMD paper's Theorem 2 and Tables 1 and 2.

Theorem 2 of Zhang, Xu, Zhao and Sugiyama (Generalized linear bandits: almost optimal regret with one-pass update, 2025) bounds
the regret of GLB-OMD by a leading term of order S^2 d sqrt(T / kappa*), up to logarithms. There 1 / kappa* is the mean slope of
the link at the best arms. So on a hard instance the regret should have the slopes 1/2 in T, 1/2 in 1 / kappa* and at most 2 in
S and 1 in d (of regret / sqrt(T / kappa*)), on logarithmic scales. This script measures them for GLB-OMD with the theorem's
ridge and radius, GLB-OMD with this library's empirical radius, and LocalGLB, for which no regret bound is proved.

- **Rounds.** T = 500 to 16000. Arms are 128 points on the unit circle, where regret of order sqrt(T) is unavoidable; or, as in
  the paper's experiments, 20 in the unit disk, fixed or redrawn. There the gap to the second best arm, or its law, makes less
  regret possible. The learners do not know T, so one run has all T.
- **kappa*.** Arms are the circle and a constant, x = (cos, sin, 1) / sqrt(2), and x'theta = cos(angle to the best) + c. The
  offset c moves kappa* and nothing else. S = 6, T = 4000.
- **S.** The circle again, with a parameter of norm S = 2 to 9, T = 4000.
- **d.** d = 2 to 16, S = 3, T = 4000. Arms are 20 in the unit ball, redrawn in each round; or circles: d / 2 planes that share
  the parameter equally and take turns, each with its 128 points. There every plane has to be learnt.
- **Rivals.** Tables 1 and 2 of the paper bound the regret of the rivals. They play the circle with S = 3, the offsets 0, 2 and 4,
  and the circle with a parameter of norm 1 where the learner is told a larger S. The last moves kappa and leaves kappa* as it
  is. Rivals that keep all rounds have fewer trials and rounds, which the table shows.

The tables show the mean regret ± standard error of 40 trials; against kappa*, means alone. A slope is the least-squares slope of
the logarithm of the mean regret, with a 95 % interval over resampled trials. A theorem's bound may hold although a slope
differs from its exponents: constants and logarithms may rule in the range that is shown.

    python examples/papers/glb_rates.py    # half an hour of one core; less than a minute with --quick
"""

import math
import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from experiment import Experiment, Job, Results, Slope, short, spread, table
from glb_omd_learners import ALGORITHMS, VARIANTS, Game, Problem
from torch import Tensor

from torchonline import Logistic, Poisson
from torchonline.environments import GeneralizedLinearBandit, Outcome
from torchonline.links import Link

LEARNERS = ("LocalGLB", "GLB-OMD, empirical", "GLB-OMD, theorem")
POINTS = 128  # arms on the circle
LINKS: dict[str, type[Link]] = {"logistic": Logistic, "Poisson": Poisson}
# Of the runs against T: rewards, arms and S.
WORLDS = (
    ("logistic", "circle", 3.0),
    ("logistic", "fixed disk", 3.0),
    ("logistic", "redrawn disk", 3.0),
    ("Poisson", "circle", 2.0),
)
OFFSETS = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0)
# Offsets with which the circle lies on one side of the logistic link's steepest point, so that kappa* grows with c.
RISING, SOME = (0.0, 1.0, 2.0, 3.0, 4.0), (0.0, 2.0, 4.0)
NORMS = (2.0, 3.0, 5.0, 7.0, 9.0)
DIMS = (2, 4, 8, 16)
SPACES = ("redrawn ball", "circles")
TOLD = (1.0, 2.0, 3.0)  # S of the learners where the parameter has norm 1
# Of Tables 1 and 2 of the paper: the bound, its power of log T, and the trials and rounds that fit into some minutes. OFUGLB
# solves a convex problem in each round. RS-GLinCB with the constants of its theory is all warm-up, and plays for T only.
LOCAL, WORST = "log T √(T / kappa*)", "kappa {} √T"
RIVALS = {
    "GLOC": (WORST.format("log T"), 1.0, 40, 4000),
    "GLM-UCB": (WORST.format("(log T)^1.5"), 1.5, 4, 2000),
    "ECOLog": (LOCAL, 1.0, 40, 4000),
    "ada-OFU-ECOLog": (LOCAL, 1.0, 4, 2000),
    "OFUL-MLogB": ("(log T)^1.5 √(T / kappa*)", 1.5, 40, 4000),
    "RS-GLinCB": (LOCAL, 1.0, 4, 2000),
    "RS-GLinCB, program": (LOCAL, 1.0, 4, 2000),
    "OFUGLB-e": (LOCAL, 1.0, 4, 2000),
    "OFUGLB": (LOCAL, 1.0, 4, 640),
}
BOUNDED = dict.fromkeys(LEARNERS, (LOCAL, 1.0, 40, 4000)) | RIVALS


class CircleBandit:
    """Arms on a circle, turned at random in each trial; with an offset, a constant is their third feature."""

    def __init__(self, link: Link, norm: float, offsets: list[float], trials: int, seed: int) -> None:
        self._link, self._generator = link, torch.Generator().manual_seed(seed)
        shape = (len(offsets), trials) if offsets else (trials,)
        start = torch.rand(trials, 1, generator=self._generator, dtype=torch.float64)
        angle = 2.0 * math.pi * (start + torch.arange(POINTS, dtype=torch.float64) / POINTS)
        arms = torch.stack((angle.cos(), angle.sin()), -1)
        self.theta = torch.tensor([norm, 0.0], dtype=torch.float64)
        if offsets:
            arms = torch.cat((arms, torch.ones(trials, POINTS, 1, dtype=torch.float64)), -1) / math.sqrt(2.0)
            self.theta = math.sqrt(2.0) * torch.tensor([[[1.0, 0.0, c]] for c in offsets], dtype=torch.float64)
        self._arms = arms.expand(*shape, *arms.shape[1:])
        self._predictor = (self._arms @ self.theta.unsqueeze(-1)).squeeze(-1)
        self._best = self._predictor.amax(-1)

    def kappa_star(self) -> Tensor:
        return 1.0 / self._link.slope(self._best)

    def arms(self) -> Tensor:
        return self._arms

    def pull(self, index: Tensor) -> Outcome:
        x = torch.take_along_dim(self._arms, index[..., None, None], dim=-2).squeeze(-2)
        z = torch.take_along_dim(self._predictor, index[..., None], dim=-1).squeeze(-1)
        reward = self._link.sample(z, self._generator)
        return Outcome(x, reward, self._link.mean(self._best) - self._link.mean(z))


class CirclesBandit(CircleBandit):
    """Circles in d / 2 planes, a plane a round, with a parameter that has the same norm in each plane."""

    def __init__(self, link: Link, norm: float, dim: int, trials: int, seed: int) -> None:
        planes = dim // 2
        super().__init__(link, norm / math.sqrt(planes), [], trials, seed)
        self.theta = self.theta.repeat(planes)
        self._circle, self._planes, self._round = self._arms, planes, 0

    def arms(self) -> Tensor:
        plane = self._round % self._planes
        self._arms = torch.nn.functional.pad(self._circle, (2 * plane, 2 * (self._planes - 1 - plane)))
        return self._arms

    def pull(self, index: Tensor) -> Outcome:
        self._round += 1
        return super().pull(index)


def play(
    learner: str,
    rewards: str,
    arms: str,
    norm: float,
    offsets: list[float],
    at: list[int],
    trials: int,
    seed: int,
    dim: int = 2,
    told: float | None = None,
) -> dict[str, Any]:
    """Return kappa* and the regret at some rounds, by trial: with offsets, that of the last round by offset.

    ``told`` is the S of the learner, where it is not the parameter's norm.
    """
    torch.manual_seed(seed)
    link = LINKS[rewards]()
    shape = (len(offsets), trials) if offsets else (trials,)
    environment: Any
    if arms == "circle":
        environment = CircleBandit(link, norm, offsets, trials, seed)
    elif arms == "circles":
        environment = CirclesBandit(link, norm, dim, trials, seed)
    else:
        environment = GeneralizedLinearBandit(
            dim, 20, link=link, theta_norm=norm, redraw=arms.startswith("redrawn"), batch_shape=shape, seed=seed
        )
    problem = Problem(environment.arms().size(-1), link, norm if told is None else told, shape, at[-1])
    game = Game((ALGORITHMS | VARIANTS)[learner].build(problem), environment)
    total, found = torch.zeros(shape, dtype=torch.float64), []
    for t in range(1, at[-1] + 1):
        total += game.round()
        if t in at:
            found.append(total.tolist())
    kappa = environment.kappa_star().reshape(len(offsets) or 1, trials).mean(1)
    return {"kappa": kappa.tolist(), "regret": found[-1] if offsets else found}


def jobs(quick: bool) -> dict[str, Job]:
    trials, at, rounds = (3, [8, 16], 12) if quick else (40, [500 * 2**k for k in range(6)], 4000)
    norms = NORMS[:2] if quick else NORMS
    found = {}
    for learner in LEARNERS:
        common = {"learner": learner, "trials": trials, "seed": 1}
        for rewards, arms, norm in WORLDS:
            told = {"rewards": rewards, "arms": arms, "norm": norm, "offsets": [], "at": at}
            found[f"T, {rewards}, {arms}, {learner}"] = Job(play, common | told)
        for rewards in LINKS:
            told = {"rewards": rewards, "arms": "circle", "norm": 6.0, "offsets": list(OFFSETS), "at": [rounds]}
            found[f"kappa, {rewards}, {learner}"] = Job(play, common | told)
        for norm in norms:
            told = {"rewards": "logistic", "arms": "circle", "norm": norm, "offsets": [], "at": [rounds]}
            found[f"S = {norm:g}, {learner}"] = Job(play, common | told)
        for arms in SPACES:
            for dim in DIMS[:2] if quick else DIMS:
                told = {"rewards": "logistic", "arms": arms, "norm": 3.0, "offsets": [], "at": [rounds], "dim": dim}
                found[f"d = {dim}, {arms}, {learner}"] = Job(play, common | told)
    for learner, (_, _, count, longest) in BOUNDED.items():
        common = {"learner": learner, "trials": min(count, trials), "seed": 1, "rewards": "logistic", "arms": "circle"}
        ends = [4, 8] if quick else [longest // 8, longest // 4, longest // 2, longest]
        if learner in RIVALS:
            found[f"T, logistic, circle, {learner}"] = Job(play, common | {"norm": 3.0, "offsets": [], "at": ends})
        if learner == "RS-GLinCB":
            continue
        if learner in RIVALS:
            found[f"kappa, logistic, {learner}"] = Job(
                play, common | {"norm": 6.0, "offsets": list(SOME), "at": ends[-1:]}
            )
        for bound in TOLD[:2] if quick else TOLD:
            told = {"norm": 1.0, "offsets": [], "at": ends[-1:], "told": bound}
            found[f"told S = {bound:g}, {learner}"] = Job(play, common | told)
    return found


def against_rounds(results: Results) -> str:
    first = results[f"T, logistic, circle, {LEARNERS[0]}"]["regret"]
    at = [500 * 2**k for k in range(6)] if len(first) == 6 else [8, 16]
    shown = [0, len(at) // 2, len(at) - 1]
    rows = []
    for rewards, arms, norm in WORLDS:
        for learner in LEARNERS:
            regret = results[f"T, {rewards}, {arms}, {learner}"]["regret"]
            late = Slope.fit([float(t) for t in at[-3:]], regret[-3:])
            row = (f"{rewards}, {arms}, S = {norm:g}", learner, *(spread(regret[i]) for i in shown))
            rows.append((*row, Slope.fit([float(t) for t in at], regret), late))
    header = ("world", "learner", *(f"T = {at[i]}" for i in shown), "slope in T", f"from T = {at[-3:][0]}")
    return table(header, rows)


def kappa_slope(results: Results, rewards: str, learner: str) -> Slope:
    """Return the slope in 1 / kappa*, for clicks over the offsets that only move it."""
    one = results[f"kappa, {rewards}, {learner}"]
    played = OFFSETS if len(one["kappa"]) == len(OFFSETS) else SOME
    which = [k for k, c in enumerate(played) if c in RISING or rewards != "logistic"]
    return Slope.fit([1.0 / one["kappa"][i] for i in which], [one["regret"][i] for i in which])


def against_kappa(results: Results) -> str:
    rows = []
    for rewards in LINKS:
        kappas = results[f"kappa, {rewards}, {LEARNERS[0]}"]["kappa"]
        rows.append((f"{rewards}: kappa*", *(f"{value:.3g}" for value in kappas), ""))
        for learner in LEARNERS:
            means = (short(statistics.fmean(regret)) for regret in results[f"kappa, {rewards}, {learner}"]["regret"])
            rows.append((learner, *means, kappa_slope(results, rewards, learner)))
    return table(("", *(f"c = {c:g}" for c in OFFSETS), "slope in 1 / kappa*"), rows)


def norm_slope(results: Results, learner: str) -> Slope:
    """Return the slope in S of regret / sqrt(T / kappa*)."""
    norms = [norm for norm in NORMS if f"S = {norm:g}, {learner}" in results]
    found = [results[f"S = {norm:g}, {learner}"] for norm in norms]
    return Slope.fit(norms, [[value * math.sqrt(one["kappa"][0]) for value in one["regret"][-1]] for one in found])


def against_norm(results: Results) -> str:
    norms = [norm for norm in NORMS if f"S = {norm:g}, {LEARNERS[0]}" in results]
    kappas = [results[f"S = {norm:g}, {LEARNERS[0]}"]["kappa"][0] for norm in norms]
    rows = [("kappa*", *(short(kappa) for kappa in kappas), "")]
    for learner in LEARNERS:
        regret = [results[f"S = {norm:g}, {learner}"]["regret"][-1] for norm in norms]
        rows.append((learner, *map(spread, regret), norm_slope(results, learner)))
    return table(("", *(f"S = {norm:g}" for norm in norms), "slope in S of regret / sqrt(T / kappa*)"), rows)


def dim_slope(results: Results, arms: str, learner: str) -> Slope:
    """Return the slope in d of regret / sqrt(T / kappa*)."""
    dims = [dim for dim in DIMS if f"d = {dim}, {arms}, {learner}" in results]
    found = [results[f"d = {dim}, {arms}, {learner}"] for dim in dims]
    scaled = [[value * math.sqrt(one["kappa"][0]) for value in one["regret"][-1]] for one in found]
    return Slope.fit([float(dim) for dim in dims], scaled)


def against_dim(results: Results) -> str:
    dims = [dim for dim in DIMS if f"d = {dim}, {SPACES[0]}, {LEARNERS[0]}" in results]
    rows = []
    for arms in SPACES:
        kappas = (short(results[f"d = {dim}, {arms}, {LEARNERS[0]}"]["kappa"][0]) for dim in dims)
        rows.append((f"{arms}: kappa*", *kappas, ""))
        for learner in LEARNERS:
            regret = (spread(results[f"d = {dim}, {arms}, {learner}"]["regret"][-1]) for dim in dims)
            rows.append((learner, *regret, dim_slope(results, arms, learner)))
    return table(("", *(f"d = {dim}" for dim in dims), "slope in d of regret / sqrt(T / kappa*)"), rows)


def round_slope(results: Results, learner: str) -> Slope:
    """Return the slope in T on the circle with S = 3, over the rounds that the rivals play."""
    regret = results[f"T, logistic, circle, {learner}"]["regret"][:4]
    return Slope.fit([2.0**k for k in range(len(regret))], regret)


def told_slope(results: Results, learner: str) -> Slope:
    """Return the slope in kappa, which the told S moves."""
    told = [bound for bound in TOLD if f"told S = {bound:g}, {learner}" in results]
    kappas = [1.0 / float(Logistic().slope(torch.tensor(bound, dtype=torch.float64))) for bound in told]
    return Slope.fit(kappas, [results[f"told S = {bound:g}, {learner}"]["regret"][-1] for bound in told])


def of_rivals(results: Results) -> str:
    rows = []
    for learner, (bound, power, _, longest) in BOUNDED.items():
        regret = results[f"T, logistic, circle, {learner}"]["regret"][:4]
        logs = power * math.log(math.log(longest) / math.log(longest / 8.0)) / math.log(8.0)
        row = [
            learner,
            bound,
            len(regret[0]),
            longest,
            spread(regret[-1]),
            round_slope(results, learner),
            f"{0.5 + logs:.2f}",
        ]
        is_learning = learner != "RS-GLinCB"
        row += [kappa_slope(results, "logistic", learner), told_slope(results, learner)] if is_learning else ["", ""]
        rows.append(row)
    header = ("learner", "bound of the paper", "trials", "T", "regret, S = 3", "slope in T", "of the bound")
    return table((*header, "slope in 1 / kappa*", "slope in kappa"), rows)


def tables(results: Results) -> dict[str, str]:
    return {
        "Regret against T": against_rounds(results),
        "Regret against kappa*": against_kappa(results),
        "Regret against S": against_norm(results),
        "Regret against d": against_dim(results),
        "Rates of the rivals": of_rivals(results),
    }


def figures(results: Results, folder: Path) -> list[Path]:
    """Draw regret against T and against 1 / kappa*."""
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.5), layout="constrained")
    for learner, colour in zip(LEARNERS, ("C0", "C1", "C2"), strict=True):
        for (rewards, arms, _), style in zip(WORLDS, ("-", "--", ":", "-."), strict=True):
            means = [statistics.fmean(each) for each in results[f"T, {rewards}, {arms}, {learner}"]["regret"]]
            at = [500 * 2**k for k in range(len(means))]
            label = f"{learner}; {rewards}, {arms}"
            axes[0].plot(at, means, style, color=colour, label=label, marker=".")
        for axis, rewards in zip(axes[1:], LINKS, strict=True):
            one = results[f"kappa, {rewards}, {learner}"]
            axis.plot(
                [1.0 / k for k in one["kappa"]], [statistics.fmean(each) for each in one["regret"]], ".-", color=colour
            )
            axis.set(xlabel="1 / kappa*", title=f"{rewards}, S = 6", xscale="log", yscale="log")
    axes[0].set(xlabel="T", ylabel="regret", xscale="log", yscale="log")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=7, loc="outside right center")
    path = folder / "glb_rates.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
