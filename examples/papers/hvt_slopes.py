"""How regret grows with the number of rounds, by the moment that the noise has, and without noise.

Corollary 1 of the paper of Hvt-UCB (Wang, Zhang, Zhao and Zhou, ICML 2025) bounds the regret by T^(1/p), up to logarithms, if
the noise has a moment of order p. It has no experiment on this. Here p is 1.2, 1.5 or 2, and the noise is Student-t with p +
0.1 degrees of freedom, which has hardly more than that moment. It is scaled so that its norm of order p is 1, and all learners
are told so. There are 2 dimensions, a parameter of norm 1, 20 unit arms redrawn in each round, and 20 trials.

HvtUCB, CRTM and TOFU depend on the horizon: each T is a run of its own. AnytimeHeavyTailUCB and OFUL do not: their runs are
prefixes of the longest. HvtUCB plays with the width of its theory and with a thousandth of it, CRTM and TOFU with the width of
this library and with 0.03 times it: then their radii are of the size of AnytimeHeavyTailUCB's, and no theorem covers them. OFUL
has no theorem under this noise. TOFU, whose rounds become dearer with t, stops at T = 8000. The slope is that of a least squares
line through log mean regret against log T, with a 95 % interval from resampled trials; the last slope is that of the last two T.
A slope compares with the exponent of the bound only where the widths are small enough for the learner to learn by the first T.

Without noise (a norm of 1e-6), the paper's bound does not grow with T. CRTM and TOFU cut rewards by their absolute moments,
which stay. All stop at T = 8000 there.

    python examples/papers/hvt_slopes.py --workers 2    # a quarter of an hour; half a minute with --quick
"""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Experiment, Job, Results, Slope, spread, table

from torchonline import OFUL, UCB, AnytimeHeavyTailUCB, HvtUCB
from torchonline.baselines import CRTM, TOFU
from torchonline.environments import GaussianNoise, LinearBandit, Noise, StudentT

DIM, ARMS, DELTA, QUIET, SEED = 2, 20, 0.05, 1e-6, 1
ORDERS = (1.2, 1.5, 2.0)
QUIET_ORDERS = (2.0,)
# The radius scales of each learner.
SCALES = {
    "AnytimeHeavyTailUCB": (1.0,),
    "OFUL": (1.0,),
    "HvtUCB": (1.0, 1e-3),
    "CRTM": (1.0, 0.03),
    "TOFU": (1.0, 0.03),
}
DEAR, SHORT = ("TOFU",), 8000
ANYTIME = ("AnytimeHeavyTailUCB", "OFUL")


def make_policy(name: str, order: float, norm: float, horizon: int, trials: int, radius_scale: float) -> UCB:
    common: dict[str, Any] = {"noise_scale": norm, "radius_scale": radius_scale, "batch_shape": (trials,)}
    match name:
        case "AnytimeHeavyTailUCB":
            return AnytimeHeavyTailUCB(DIM, moment_order=order, delta=DELTA, **common)
        case "OFUL":
            return OFUL(DIM, delta=DELTA, ridge=DIM, **common)
        case "HvtUCB":
            return HvtUCB(DIM, horizon=horizon, moment_order=order, **common)
        case "CRTM":
            return CRTM(DIM, horizon=horizon, moment_order=order, delta=DELTA, **common)
        case "TOFU":
            return TOFU(DIM, horizon=horizon, moment_order=order, delta=DELTA, **common)
        case _:
            raise ValueError(f"no learner is called {name}")


def play(
    learner: str, radius_scale: float, order: float, is_quiet: bool, rounds: list[int], trials: int, seed: int
) -> dict[str, Any]:
    """Play all trials to the last of ``rounds``, its horizon; return the regret at each."""
    law: Noise = GaussianNoise(scale=QUIET) if is_quiet else StudentT(order + 0.1)
    norm = QUIET if is_quiet else 1.0
    if isinstance(law, StudentT):
        law = StudentT(law.df, scale=1.0 / law.moment_norm(order))
    environment = LinearBandit(DIM, ARMS, noise=law, redraw=True, batch_shape=(trials,), seed=seed)
    policy = make_policy(learner, order, norm, rounds[-1], trials, radius_scale)
    total, found = torch.zeros(trials, dtype=torch.float64), {}
    for t in range(1, rounds[-1] + 1):
        arms = environment.arms()
        k = policy.select(arms)
        _, reward, regret = environment.pull(k)
        policy.step(arms, k, reward)
        total += regret
        if t in rounds:
            found[str(t)] = total.tolist()
    return {"regret": found, "radius": float(policy.estimator.radius().mean())}


def title_of(learner: str, radius_scale: float) -> str:
    return learner if radius_scale == 1.0 else f"{learner} x {radius_scale:g}"


def name_of(learner: str, scale: float, order: float, is_quiet: bool, horizon: int) -> str:
    kind = "no noise" if is_quiet else "Student-t"
    length = "" if learner in ANYTIME else f", T = {horizon}"
    return f"{title_of(learner, scale)}, order {order:g}, {kind}{length}"


def lengths_of(learner: str, is_quiet: bool, points: list[int]) -> list[int]:
    """Return the T of a learner: without noise, and where rounds become dearer, up to ``SHORT``."""
    return [T for T in points if T <= SHORT or not (is_quiet or learner in DEAR)]


def jobs(quick: bool) -> dict[str, Job]:
    points, trials = ([10, 20, 40], 3) if quick else ([500, 2000, 8000, 32000], 20)
    found = {}
    for is_quiet in (False, True):
        for order in QUIET_ORDERS if is_quiet else ORDERS:
            for learner, scales in SCALES.items():
                lengths = lengths_of(learner, is_quiet, points)
                for scale in scales:
                    runs = [lengths] if learner in ANYTIME else [[T] for T in reversed(lengths)]
                    for rounds in runs:
                        options = {"learner": learner, "radius_scale": scale, "order": order, "is_quiet": is_quiet}
                        options |= {"rounds": rounds, "trials": trials, "seed": SEED}
                        found[name_of(learner, scale, order, is_quiet, rounds[-1])] = Job(play, options)
    return found


def regrets(results: Results, learner: str, scale: float, order: float, is_quiet: bool) -> dict[int, list[float]]:
    """Return the regrets of one learner by T, in order."""
    start = name_of(learner, scale, order, is_quiet, 0).removesuffix(", T = 0")
    found = {}
    for name, one in results.items():
        if name == start or name.startswith(f"{start}, T = "):
            found |= {int(T): regret for T, regret in one["regret"].items()}
    return dict(sorted(found.items()))


def slope_of(by_length: dict[int, list[float]], last: int = 0) -> Slope:
    """Return the slope of the regrets by T, or of the last few."""
    points = list(by_length)[-last:]
    return Slope.fit(points, [by_length[T] for T in points])


def tables(results: Results) -> dict[str, str]:
    found = {}
    for is_quiet in (False, True):
        for order in QUIET_ORDERS if is_quiet else ORDERS:
            every = {
                title_of(learner, scale): regrets(results, learner, scale, order, is_quiet)
                for learner, scales in SCALES.items()
                for scale in scales
            }
            points = max(map(list, every.values()), key=len)
            rows = []
            for name, by_length in every.items():
                cells = [spread(by_length[T]) if T in by_length else "" for T in points]
                rows.append([name, *cells, str(slope_of(by_length)), str(slope_of(by_length, 2))])
            header = ["learner", *(f"T = {T}" for T in points), "slope", "last slope"]
            if is_quiet:
                title = f"No noise, told order {order:g} and a norm of {QUIET:g}: regret, mean ± standard error"
            else:
                title = f"Student-t {order + 0.1:g} noise, order {order:g}, bound T^{1.0 / order:.2f}: regret, "
                title += "mean ± standard error"
            found[title] = table(header, rows)
    return found


def figures(results: Results, folder: Path) -> list[Path]:
    panels = [(order, False) for order in ORDERS] + [(order, True) for order in QUIET_ORDERS]
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 4.2), layout="constrained")
    for axis, (order, is_quiet) in zip(axes, panels, strict=True):
        points = [1]
        for learner, scales in SCALES.items():
            for scale in scales:
                by_length = regrets(results, learner, scale, order, is_quiet)
                points = sorted({*points, *by_length})
                means = [np.mean(regret) for regret in by_length.values()]
                axis.plot(list(by_length), means, marker="o", label=title_of(learner, scale))
        if not is_quiet:
            axis.plot(points, [T ** (1.0 / order) for T in points], "k--", label="T^(1/p)")
        title = f"no noise, order {order:g}" if is_quiet else f"Student-t {order + 0.1:g}, order {order:g}"
        axis.set(title=title, xlabel="T", xscale="log", yscale="log")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    axes[0].set_ylabel("mean regret")
    path = folder / "hvt_slopes.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
