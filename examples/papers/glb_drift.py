"""A parameter that moves: discounted estimates for clicks and counts beside LocalGLB.

An extension of ours: the paper of GLB-OMD (Zhang, Xu, Zhao and Sugiyama, 2025) has no drift. Here are 2 dimensions, 20 arms
redrawn in each round, |theta| = 3, clicks or counts, 4000 rounds and 40 trials. The parameter turns once around, or flips to its
negative every 1000 rounds. Regret is against the best arm of each round.

LocalGLB forgets nothing. DiscountedGLB, a heuristic, takes the best of five memories, 1 / (1 - discount), on 20 other trials.
"LocalGLB, tuned" has the same budget for ``radius_scale``. Both choices are heuristics.

    python examples/papers/glb_drift.py --workers 2    # five minutes; seconds with --quick
"""

import math
from typing import Any

import torch
from experiment import Experiment, Job, Results, best_of, short, spread, table

from torchonline import UCB, LocalGLB, Logistic, Poisson
from torchonline.baselines import DiscountedGLB
from torchonline.environments import GeneralizedLinearBandit
from torchonline.links import Link

DIM, ARMS, NORM = 2, 20, 3.0
LINKS: dict[str, Link] = {"clicks": Logistic(), "counts": Poisson()}
WORLDS = ("turns", "flips", "stays")
MEMORIES, SCALES = (60, 125, 250, 500, 1000), (1.0, 0.3, 0.1, 0.03, 0.01)
LEARNERS: dict[str, tuple[str, tuple[float, ...]]] = {
    "DiscountedGLB, tuned": ("memory", MEMORIES),
    "LocalGLB, tuned": ("radius_scale", SCALES),
    "LocalGLB": ("radius_scale", (1.0,)),
}


def make_policy(learner: str, link: Link, trials: int, value: float) -> UCB:
    common: dict[str, Any] = {"link": link, "theta_bound": NORM, "batch_shape": (trials,)}
    if learner == "DiscountedGLB, tuned":
        return DiscountedGLB(DIM, discount=1.0 - 1.0 / value, **common)
    return LocalGLB(DIM, radius_scale=value, **common)


def play_once(learner: str, rewards: str, world: str, value: float, rounds: int, trials: int, seed: int) -> list[float]:
    policy = make_policy(learner, LINKS[rewards], trials, value)
    environment = GeneralizedLinearBandit(
        DIM, ARMS, link=LINKS[rewards], theta_norm=NORM, redraw=True, batch_shape=(trials,), seed=seed
    )
    first = environment.theta.clone()
    across = torch.stack([-first[:, 1], first[:, 0]], -1)
    total = torch.zeros(trials, dtype=torch.float64)
    for t in range(1, rounds + 1):
        arms = environment.arms()
        index = policy.select(arms)
        share = {"turns": t / rounds, "flips": 0.5 * (4 * t // rounds), "stays": 0.0}[world]
        angle = 2.0 * math.pi * share
        environment.theta = math.cos(angle) * first + math.sin(angle) * across  # of the next round
        _, reward, regret = environment.pull(index)
        policy.step(arms, index, reward)
        total += regret
    return total.tolist()


def play(learner: str, rewards: str, world: str, rounds: int, trials: int, seed: int) -> dict[str, Any]:
    """Choose the option on other trials if there are several values, then play."""
    option, values = LEARNERS[learner]
    value, tried = values[0], []
    if len(values) > 1:
        value, tried = best_of(values, lambda v: play_once(learner, rewards, world, v, rounds, trials // 2, seed + 1))
    regret = play_once(learner, rewards, world, value, rounds, trials, seed)
    return {"regret": regret, "chosen": {option: value}, "tried": tried}


def jobs(quick: bool) -> dict[str, Job]:
    rounds, trials = (24, 4) if quick else (4000, 40)
    return {
        f"{rewards}, {world}, {learner}": Job(
            play,
            {"learner": learner, "rewards": rewards, "world": world, "rounds": rounds, "trials": trials, "seed": 1},
        )
        for rewards in LINKS
        for world in WORLDS
        for learner in LEARNERS
    }


def tables(results: Results) -> dict[str, str]:
    rows = []
    for name, one in results.items():
        (option, value), regret = next(iter(one["chosen"].items())), one["regret"]
        rows.append([*name.split(", ", 2), spread(regret), short(max(regret)), f"{option} {value:g}"])
    header = ("rewards", "the parameter", "learner", "regret", "worst", "option")
    return {"Regret with a parameter that moves, mean ± standard error": table(header, rows)}


EXPERIMENT = Experiment(__file__, jobs, tables)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
