"""Time of a round against S, for counts: Figure 3c of the GLB-OMD paper with all rivals.

One learner of each kind plays the paper's experiment with Poisson rewards for each S = 3, 5, 7, 9, on 20 arms in the unit disk
that stay, and OFUGLB also on arms that are redrawn. All (learner, S) play round after round in turn, on one thread. The table
shows the processor time of choices and learning as a multiple of LocalGLB's at S = 3: over 500 rounds for all, and over 3000
rounds for those that do not solve a convex problem for each arm.

    python examples/papers/glb_omd_time.py    # ten minutes; seconds with --quick
"""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from experiment import Experiment, Job, Results, table
from glb_omd_learners import ALGORITHMS, Game, Problem

from torchonline import Poisson
from torchonline.environments import GeneralizedLinearBandit

DIM, ARMS, ROUNDS, EXACT_ROUNDS = 2, 20, 3000, 500
NORMS = (3, 5, 7, 9)
REDRAWN = "OFUGLB, redrawn arms"
EXACT = ("OFUGLB", REDRAWN)  # they solve a convex problem for each arm
LEARNERS = (*(name for name, algorithm in ALGORITHMS.items() if algorithm.poisson), REDRAWN)


def make_game(learner: str, norm: int, rounds: int) -> Game:
    link, redraw = Poisson(), learner == REDRAWN
    policy = ALGORITHMS["OFUGLB" if redraw else learner].build(Problem(DIM, link, float(norm), (), rounds))
    return Game(policy, GeneralizedLinearBandit(DIM, ARMS, link=link, theta_norm=norm, redraw=redraw, seed=3))


def measure(norms: list[int], rounds: int, exact_rounds: int) -> dict[str, Any]:
    """Return times as multiples of LocalGLB's with the first norm, by learner, for each number of rounds."""
    games = {name: [make_game(name, norm, rounds) for norm in norms] for name in LEARNERS}
    found: dict[str, dict[str, list[float]]] = {}
    for t in range(1, rounds + 1):
        # Learners take turns within a norm: a learner's second round in a row would find its code in the cache.
        for number in range(len(norms)):
            for name, each in games.items():
                if t <= exact_rounds or name not in EXACT:
                    each[number].round()
        if t in (exact_rounds, rounds):
            unit = games["LocalGLB"][0].seconds
            found[str(t)] = {
                name: [game.seconds / unit for game in each]
                for name, each in games.items()
                if t <= exact_rounds or name not in EXACT
            }
    return found


def jobs(quick: bool) -> dict[str, Job]:
    options = {"norms": list(NORMS[:2]), "rounds": 12, "exact_rounds": 6} if quick else {}
    full = {"norms": list(NORMS), "rounds": ROUNDS, "exact_rounds": EXACT_ROUNDS}
    return {"Poisson": Job(measure, options or full)}


def tables(results: Results) -> dict[str, str]:
    found = results["Poisson"]
    short, full = found.values()
    norms = NORMS[: len(short["LocalGLB"])]
    early, late = found
    header = ("learner", *(f"S = {norm}, {early} rounds" for norm in norms), *(f"S = {norm}, {late}" for norm in norms))
    rows = [
        (name, *(f"{value:.1f}" for value in short[name]), *(f"{value:.1f}" for value in full.get(name, [])))
        for name in sorted(short, key=lambda name: short[name][0])
    ]
    rows = [(*row, *["" for _ in range(len(header) - len(row))]) for row in rows]
    return {"Poisson rewards: time as a multiple of LocalGLB's at S = 3": table(header, rows)}


def figures(results: Results, folder: Path) -> list[Path]:
    """Draw time against S."""
    times = next(iter(results["Poisson"].values()))
    figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
    colours = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    for (name, values), colour in zip(times.items(), colours, strict=False):
        axis.plot(NORMS[: len(values)], values, marker="o", label=name, color=colour)
    axis.set(xlabel="S", ylabel="time, LocalGLB at S = 3 is 1", yscale="log")
    axis.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside right center")
    path = folder / "glb_omd_time_norms.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures, is_timed=True, seeds="3")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
