r"""What a wrong promise costs: ``theta_bound``, ``noise_scale`` and ``feature_bound`` of the certified learners.

*On real data.* Each development set of ``run.py`` is a bandit without noise: reward 1 for the right class, 0 for another.
Features are standardised, with a constant. ``DisjointArms`` gives each class a model. One option differs from its default.

*On a simulated stream,* whose parameter is known. The mean reward is x'theta, with Gaussian noise of scale 1/2, or the logistic
function of x'theta, with clicks. The parameter has norm 1, and the 20 arms have norm 1 (clicks: at most 1). Counted are the runs
in which an interval of any arm ever missed the arm's mean reward; delta is 0.05.

    python examples/benchmarks/promises.py    # some ten minutes on a core; seconds with --smoke
    pip install ".[examples,benchmarks]"    # the sets; those that are missing are left out
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import data
import numpy as np
import play
import tables
import torch
from learners import Learner

from torchonline import GLBOMD, OFUL, AnytimeHeavyTailUCB, DisjointArms, LocalGLB, RidgeRegression, ThompsonSampling
from torchonline.environments import GaussianNoise, GeneralizedLinearBandit, LinearBandit
from torchonline.links import Logistic

ROUNDS, SEEDS = 1500, 5
RUNS, DIM, ARMS, DELTA = 200, 5, 20, 0.05
MARK = "<!-- printed by examples/benchmarks/promises.py -->\n"
Make = Callable[..., Any]


def thompson(dim: int, **options: Any) -> ThompsonSampling:
    return ThompsonSampling(RidgeRegression(dim, **options))


LINEAR: dict[str, Make] = {"OFUL": OFUL, "AnytimeHeavyTailUCB": AnytimeHeavyTailUCB}
LOGISTIC: dict[str, Make] = {"LocalGLB": LocalGLB, "GLBOMD": GLBOMD}
POLICIES: dict[str, Make] = LINEAR | {"Thompson sampling": thompson} | LOGISTIC
# Promises to compare: the learners, and what they are told. The first of these is compared on real data too.
THETA_BOUNDS, NOISE_SCALES, FEATURE_BOUNDS = (
    (0.1, 0.3, 1.0, 3.0, 10.0),
    (0.1, 0.25, 0.5, 1.0, 2.0),
    (1.0, 3.0, 10.0, 100.0),
)
PROMISES: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "theta_bound": (("OFUL", "AnytimeHeavyTailUCB", "LocalGLB"), THETA_BOUNDS),
    "noise_scale": (("OFUL", "AnytimeHeavyTailUCB"), NOISE_SCALES),
    "feature_bound": (("LocalGLB", "GLBOMD"), FEATURE_BOUNDS),
}
DEFAULTS = {"theta_bound": 1.0, "noise_scale": 0.5, "feature_bound": 1.0}


class Arms:
    """A model of a policy for each arm, in as many members as there are seeds."""

    def __init__(
        self, make: Make, dim: int, actions: int, rewards: str, seeds: Sequence[int], options: Sequence[dict[str, Any]]
    ) -> None:
        torch.manual_seed(seeds[0])
        self.arms = DisjointArms(make(dim, batch_shape=(len(seeds),), **options[0]), actions)

    def select(self, contexts: np.ndarray) -> np.ndarray:
        return self.arms.select(torch.from_numpy(contexts)).numpy()

    def step(self, contexts: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> None:
        self.arms.step(*map(torch.from_numpy, (contexts, actions, rewards)))


@cache
def error(name: str, policy: str, option: str, told: float, rounds: int, seeds: int) -> str:
    """Return the share of wrong arms on a set. A ``feature_bound`` is in units of the longest features."""
    longest = float(np.linalg.norm(data.contexts(name, "standard", True), axis=1).max())
    options = {"feature_bound": longest} if policy in LOGISTIC else {}
    options[option] = told * (longest if option == "feature_bound" else 1.0)
    streams = [data.stream(name, seed, rounds, "none", "standard", True) for seed in range(seeds)]
    learner = Learner(partial(Arms, POLICIES[policy]), is_batched=True)
    return tables.cell(play.play_batch(learner, streams, "unit", [(options, seed) for seed in range(seeds)]))


def on_real_data(sets: Sequence[str], rounds: int, seeds: int) -> dict[str, str]:
    """Return tables of errors: by default, and with each promise wrong."""

    def row(policy: str, option: str, told: float, label: str) -> list[str]:
        print(policy, label, "played", file=sys.stderr, flush=True)
        return [policy, label, *(error(name, policy, option, told, rounds, seeds) for name in sets)]

    start = [[policy, *row(policy, "theta_bound", 1.0, "default")[2:]] for policy in POLICIES]
    found = {"Errors by default": tables.markdown(["policy", *sets], start)}
    for option, (policies, values) in PROMISES.items():
        rows = [row(policy, option, told, f"{told:g}") for policy in policies for told in values]
        found[f"Errors by {option}"] = tables.markdown(["policy", option, *sets], rows)
    return found


def simulated(policy: str, option: str, told: float, rounds: int, runs: int) -> list[str]:
    """Return mean regret, the share of the runs in which an interval ever missed, and the mean width of the last intervals."""
    environment: GeneralizedLinearBandit | LinearBandit
    if policy in LOGISTIC:
        environment, link = GeneralizedLinearBandit(DIM, ARMS, link=Logistic(), batch_shape=(runs,)), Logistic()
    else:
        environment, link = LinearBandit(DIM, ARMS, noise=GaussianNoise(scale=0.5), batch_shape=(runs,)), None
    learner = POLICIES[policy](DIM, delta=DELTA, batch_shape=(runs,), **{option: told})
    arms = environment.arms()
    mean = (arms @ environment.theta.unsqueeze(-1)).squeeze(-1)
    mean = mean if link is None else link.mean(mean)
    missed, regret = torch.zeros(runs, dtype=torch.bool), torch.zeros(runs, dtype=torch.float64)
    for _ in range(rounds):
        k = learner.select(arms)
        outcome = environment.pull(k)
        learner.step(arms, k, outcome.reward)
        low, high = learner.estimator.interval(arms)
        missed |= ((mean < low - 1e-9) | (mean > high + 1e-9)).any(-1)
        regret += outcome.regret
    return [f"{regret.mean():.0f}", f"{100.0 * missed.double().mean():.1f} %", f"{(high - low).mean():.2f}"]


def on_a_known_stream(rounds: int, runs: int) -> dict[str, str]:
    """Return the table of regret and coverage."""
    rows = []
    for option, (policies, values) in PROMISES.items():
        for policy in policies:
            for told in values:
                label = f"{told:g}, right" if told == DEFAULTS[option] else f"{told:g}"
                rows.append([policy, option, label, *simulated(policy, option, told, rounds, runs)])
            print(policy, option, "simulated", file=sys.stderr, flush=True)
    header = ["policy", "option", "told", "mean regret", "runs with a miss", "mean length of an interval"]
    return {"A stream with a known parameter": tables.markdown(header, rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"))
    parser.add_argument("--smoke", action="store_true", help="20 rounds of digits and 2 runs, to see that it runs")
    options = parser.parse_args()
    play.one_thread()
    chosen = ["digits"] if options.smoke else data.chosen_sets([data.DEVELOPMENT])
    sets = data.installed(chosen)
    rounds, seeds, runs = (20, 2, 2) if options.smoke else (ROUNDS, SEEDS, RUNS)
    found = on_a_known_stream(20 if options.smoke else 1000, runs) | on_real_data(sets, rounds, seeds)
    tables.publish(found, options.output / "promises.md", mark=MARK)


if __name__ == "__main__":
    main()
