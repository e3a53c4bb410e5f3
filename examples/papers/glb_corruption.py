"""Clicks under click fraud: what LocalGLB loses, and what a budget for changed rewards buys.

Kim, Lee and Yun (2026, arXiv 2602.10971) weigh the rounds of a generalized linear bandit against an adversary who changes
rewards. ``LocalGLB(corruption=C)`` has such weights, and a confidence set that holds if the changes sum to at most C.

An adversary sees the choice and the click before the learner does, and changes up to C clicks:

- noise: clicks of random rounds are flipped, C of them on average, never more;
- deny: the best arm is never clicked;
- pay: the worst arm is always clicked, and no other arm is;
- turn: an arm is clicked if its true predictor is negative.

Regret is that of the arms, whatever the adversary makes of the clicks. There are two worlds. "Simulated" has 20 fixed arms in
three dimensions, S = 3. "Covertype" has the 60 arms of ``glb_omd_covertype.py`` (d = 11, S = 6), whose clicks are labels of real
rows; its model is not exact. All learners but the default bandit are told S. "x 3" and "x 0.3" are values of ``radius_scale``, a
heuristic. Some learners are told the budget C = 100, a quarter, the square root of the horizon, or four times of it.

"Sets that failed" counts, at delta = 0.05, runs of 1000 rounds whose set ever missed the truth, with arms in two dimensions. The
last table has Gaussian noise of known scale, 0.02 in nine rounds of ten, else 1, as in ``instance_noise.py``.

    python examples/papers/glb_corruption.py    # some ten minutes; less than a minute with --smoke
"""

import math
from typing import Any

import torch
from experiment import Experiment, Job, Results, short, spread, table
from glb_omd_covertype import ARMS, ClusterBandit, load_arms
from instance_noise import play_once
from torch import Tensor

from torchonline import GLBOMD, OFUL, Gaussian, LocalGLB, Logistic, bandit
from torchonline.environments import GeneralizedLinearBandit
from torchonline.metrics import has_missed

BUDGET, DELTA = 100, 0.05
WORLDS = {"simulated": (6000, 20), "covertype": (4000, 10)}
ATTACKS = {"none": 0, "noise": BUDGET, "deny 20": 20, "deny": BUDGET, "pay": BUDGET}
SET_ATTACKS = {"none": 0, "noise": BUDGET, "deny": BUDGET, "pay": BUDGET, "turn 10": 10, "turn": BUDGET}
OPTIONS: dict[str, dict[str, Any]] = {
    "LocalGLB": {},
    "LocalGLB x 0.3": {"radius_scale": 0.3},
    "LocalGLB x 3": {"radius_scale": 3.0},
    "told C": {"corruption": BUDGET},
    "told C / 4": {"corruption": BUDGET / 4},
    "told 4 C": {"corruption": 4 * BUDGET},
    "told the root of T": {"corruption": "root"},
    "told C, x 0.3": {"corruption": BUDGET, "radius_scale": 0.3},
}
LEARNERS = (*OPTIONS, "GLBOMD", "bandit, default")
SETS = ("LocalGLB", "LocalGLB x 3", "told C", "told C / 4", "told the root of T")
RUNS = 200
NOISES = ("LocalGLB", "OFUL")


class Adversary:
    """Changes clicks of a game, within a budget for each trial."""

    def __init__(self, attack: str, budget: float, rounds: int, shape: tuple[int, ...], seed: int) -> None:
        self.attack, self.share = attack.split(" ")[0], budget / rounds
        self.left = torch.full(shape, float(budget), dtype=torch.float64)
        self.generator = torch.Generator().manual_seed(seed)

    def change(self, click: Tensor, index: Tensor, means: Tensor) -> Tensor:
        """Return the click that the learner sees; ``means`` are those of the arms, ``(*B, K)``."""
        mean = means.gather(-1, index.unsqueeze(-1)).squeeze(-1)
        match self.attack:
            case "noise":
                hit = torch.rand(click.shape, generator=self.generator, dtype=click.dtype) < self.share
                wanted = torch.where(hit, 1.0 - click, click)
            case "deny":
                wanted = torch.where(index == means.argmax(-1), 0.0, click)
            case "pay":
                wanted = (index == means.argmin(-1)).to(click)
            case "turn":
                wanted = (mean < 0.5).to(click)
            case _:
                return click
        change = torch.where(self.left >= 1.0, wanted - click, 0.0)
        self.left -= change.abs()
        return click + change


def make_policy(learner: str, dim: int, bound: float, rounds: int, trials: int, delta: float = 0.01) -> Any:
    shape = (trials,)
    if learner == "bandit, default":
        return bandit(dim, "binary", batch_shape=shape)
    options = OPTIONS.get(learner, {})
    if options.get("corruption") == "root":
        options = {"corruption": math.sqrt(rounds)}
    return (GLBOMD if learner == "GLBOMD" else LocalGLB)(
        dim, theta_bound=bound, delta=delta, batch_shape=shape, **options
    )


def play(learner: str, world: str, attack: str, budget: float, rounds: int, trials: int) -> dict[str, Any]:
    """Play all trials of one learner in one world against one adversary."""
    torch.manual_seed(1)
    game: Any
    if world == "simulated":
        bound = 3.0
        game = GeneralizedLinearBandit(3, 20, link=Logistic(), theta_norm=bound, batch_shape=(trials,), seed=1)
        arms = game.arms()
        means = (arms @ game.theta.unsqueeze(-1)).squeeze(-1).sigmoid()
    else:
        bound = 6.0
        features, shares = load_arms(ARMS)
        game = ClusterBandit(features, shares, (trials,), 1)
        arms, means = game.arms(), shares.expand(trials, -1)
    policy = make_policy(learner, arms.size(-1), bound, rounds, trials)
    adversary = Adversary(attack, budget, rounds, (trials,), 2)
    late = total = torch.zeros(trials, dtype=torch.float64)
    for t in range(rounds):
        index = policy.select(arms)
        _, click, regret = game.pull(index)
        policy.step(arms, index, adversary.change(click, index, means))
        total = total + regret
        late = late + regret if t >= rounds // 2 else late
    return {"regret": total.tolist(), "late": late.tolist()}


def count_lost(learner: str, attack: str, budget: float, rounds: int, runs: int) -> int:
    """Count the runs whose set ever missed the truth."""
    game = GeneralizedLinearBandit(2, 10, link=Logistic(), theta_norm=3.0, batch_shape=(runs,), seed=3)
    policy = make_policy(learner, 2, 3.0, rounds, runs, DELTA)
    arms, adversary = game.arms(), Adversary(attack, budget, rounds, (runs,), 4)
    means = (arms @ game.theta.unsqueeze(-1)).squeeze(-1).sigmoid()
    lost = torch.zeros(runs, dtype=torch.bool)
    for _ in range(rounds):
        index = policy.select(arms)
        policy.step(arms, index, adversary.change(game.pull(index).reward, index, means))
        lost |= has_missed(policy.estimator, game.theta)
    return int(lost.sum())


def play_noise(learner: str, told: bool, rounds: int, trials: int) -> dict[str, Any]:
    """Play with noise whose scale is known in each round, and told or not."""
    shape = (trials,)
    policy = (
        OFUL(3, noise_scale=1.0, batch_shape=shape)
        if learner == "OFUL"
        else LocalGLB(3, link=Gaussian(1.0), batch_shape=shape)
    )
    return play_once(policy, "Gaussian", told, False, rounds, trials, 1)


def jobs(quick: bool) -> dict[str, Job]:
    found = {}
    for world, (rounds, trials) in WORLDS.items():
        for attack, budget in ATTACKS.items():
            for name in LEARNERS:
                options = {"learner": name, "world": world, "attack": attack, "budget": budget}
                options |= {"rounds": 10, "trials": 2} if quick else {"rounds": rounds, "trials": trials}
                found[f"{world}, {attack}, {name}"] = Job(play, options)
    for attack, budget in SET_ATTACKS.items():
        for name in SETS:
            options = {"learner": name, "attack": attack, "budget": budget}
            options |= {"rounds": 10, "runs": 4} if quick else {"rounds": 1000, "runs": RUNS}
            found[f"sets, {attack}, {name}"] = Job(count_lost, options)
    for name in NOISES:
        for told in (True, False):
            options = {"learner": name, "told": told} | (
                {"rounds": 10, "trials": 2} if quick else {"rounds": 3000, "trials": 20}
            )
            found[f"noise, {name}, {told}"] = Job(play_noise, options)
    return found


def tables(results: Results) -> dict[str, str]:
    found = {}
    for world in WORLDS:
        runs = {name: [results[f"{world}, {attack}, {name}"] for attack in ATTACKS] for name in LEARNERS}
        found[f"Regret, {world}"] = table(
            ("learner", *ATTACKS),
            [(name, *(spread(run["regret"]) for run in of)) for name, of in runs.items()],
        )
        found[f"Worst trial and regret of the second half, {world}"] = table(
            ("learner", *ATTACKS),
            [
                (name, *(f"{short(max(run['regret']))}, {spread(run['late'])}" for run in of))
                for name, of in runs.items()
            ],
        )
    found[f"Sets that failed, of {RUNS}"] = table(
        ("learner", *SET_ATTACKS),
        [(name, *(results[f"sets, {attack}, {name}"] for attack in SET_ATTACKS)) for name in SETS],
    )
    found["Gaussian noise of varying scale, fixed arms: regret"] = table(
        ("learner", "told each round's", "told the largest", "failed"),
        [
            (name, *(spread(run["regret"]) for run in of), ", ".join(str(run["missed"]) for run in of))
            for name in NOISES
            for of in [[results[f"noise, {name}, {told}"] for told in (True, False)]]
        ],
    )
    return found


EXPERIMENT = Experiment(__file__, jobs, tables, seeds="1 to 4")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
