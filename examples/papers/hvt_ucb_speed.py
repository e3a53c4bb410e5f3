"""Speed of one-pass learning compared with solving over all rounds, by solver.

The paper (Wang, Zhang, Zhao and Zhou, ICML 2025) reports that Hvt-UCB is about 800 times faster than HEAVY-OFUL, whose
estimate minimises a loss over all rounds so far. Here one learner of each kind plays 18000 rounds of the paper's experiment.
At rounds 1000, 5000 and 18000, rounds (select and step) of all contenders are timed in alternation, on one thread:

- HEAVY-OFUL as in this library, which processes all rounds only if it must;
- the same, followed by Newton's method over all rounds, from the solution of the previous round;
- the same, followed by projected gradient descent from 0 to the paper's accuracy 1 / sqrt(T). It is told the solution and
  stops as soon as it is that close, which is generous;
- the same, followed by scipy's SLSQP from 0, at its default accuracy.

Each contender works on its own copy of the learner, with the same history and, up to the solvers' accuracy, the same
estimate. With theory's constants hardly any round of this experiment is in the linear part of the loss, so the minimum is
often that of weighted least squares. The script prints how often all rounds had to be processed, the median time of a round
relative to HvtUCB, and whether the times of our learners depend on the round.

All of this comes twice: with HvtUCB and HEAVY-OFUL at the widths of their theory, and at a thousandth of these, the size at
which both learn. Narrow widths pull the arms of the best direction, so the problem of all rounds is worse conditioned, and
gradient descent needs more iterations. AnytimeHeavyTailUCB and OFUL are the same both times.

    OMP_NUM_THREADS=1 python examples/papers/hvt_ucb_speed.py    # four minutes; seconds with --quick
"""

import copy
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Experiment, Job, Results, listed, table
from scipy.optimize import minimize

from torchonline import OFUL, UCB, AnytimeHeavyTailUCB, HvtUCB
from torchonline.baselines import HeavyOFUL
from torchonline.environments import LinearBandit, StudentT

DIM, ARMS, HORIZON, TUNED = 2, 50, 18000, 1e-3
NOISE = StudentT(2.1)
OURS = ("AnytimeHeavyTailUCB", "HvtUCB", "OFUL")
SOLVERS = ("HEAVY-OFUL, warm Newton", "HEAVY-OFUL, cold gradient descent", "HEAVY-OFUL, scipy")


def make_policies(horizon: int, radius_scale: float) -> dict[str, UCB]:
    """Return the learners, HvtUCB and HEAVY-OFUL at ``radius_scale`` times the width of theory."""
    norm = NOISE.moment_norm(1.99)
    options: dict[str, Any] = {"moment_order": 1.99, "noise_scale": norm, "radius_scale": radius_scale}
    return {
        "AnytimeHeavyTailUCB": AnytimeHeavyTailUCB(DIM, noise_scale=NOISE.moment_norm(2.0), delta=0.05),
        "HvtUCB": HvtUCB(DIM, horizon=horizon, **options),
        "OFUL": OFUL(DIM, noise_scale=NOISE.moment_norm(2.0), delta=0.05),
        "HEAVY-OFUL": HeavyOFUL(DIM, horizon=horizon + 1000, **options),
    }


class Solvers:
    """Three solvers of HEAVY-OFUL's problem over all rounds."""

    def __init__(self, policy: UCB, horizon: int) -> None:
        self.estimator: Any = policy.estimator
        self.accuracy = 1.0 / math.sqrt(horizon)
        self.iterations = 0  # of gradient descent

    def newton(self, before: torch.Tensor) -> None:
        """Solve by Newton's method, from the previous round's solution."""
        estimator = self.estimator
        estimator.theta_hat.copy_(before)
        estimator.rounds -= 1  # the counter already includes the current round
        estimator._minimise(torch.tensor(True))
        estimator.rounds += 1

    def history(self) -> tuple[np.ndarray, ...]:
        n = int(self.estimator.rounds)
        kept = (self.estimator.history, self.estimator.history_reward, self.estimator.history_threshold)
        return tuple(value[:n].numpy() for value in kept)

    def gradient_descent(self, solution: np.ndarray) -> None:
        """Solve by gradient descent from 0, with steps of 1 / smoothness."""
        rows, rewards, thresholds = self.history()
        bound, ridge = self.estimator.theta_bound, self.estimator.ridge
        smoothness = float(np.linalg.eigvalsh(self.estimator.V.numpy())[-1])
        theta = np.zeros(DIM)
        while np.linalg.norm(theta - solution) > self.accuracy:
            self.iterations += 1
            residual = np.clip(rewards - rows @ theta, -thresholds, thresholds)
            theta = theta - (ridge * theta - residual @ rows) / smoothness
            theta *= min(1.0, bound / max(np.linalg.norm(theta), 1e-300))
        self.estimator.theta_hat.copy_(torch.from_numpy(theta))

    def scipy(self) -> None:
        """Solve by sequential quadratic programming, from 0."""
        rows, rewards, thresholds = self.history()
        bound, ridge = self.estimator.theta_bound, self.estimator.ridge

        def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
            z = rewards - rows @ theta
            cut = np.clip(z, -thresholds, thresholds)
            value = 0.5 * ridge * theta @ theta + float(np.abs(cut) @ (np.abs(z) - 0.5 * np.abs(cut)))
            return value, ridge * theta - cut @ rows

        inside = {"type": "ineq", "fun": lambda u: bound**2 - u @ u, "jac": lambda u: -2.0 * u}
        found = minimize(loss, np.zeros(DIM), jac=True, method="SLSQP", constraints=[inside])
        self.estimator.theta_hat.copy_(torch.from_numpy(found.x))


def play(policies: dict[str, UCB], environment: LinearBandit, rounds: int) -> int:
    """Play each learner; count the rounds in which HEAVY-OFUL processed all rounds."""
    passes = 0
    for name, policy in policies.items():
        estimator: Any = policy.estimator
        world = copy.deepcopy(environment)
        for _ in range(rounds):
            arms = world.arms()
            k = policy.select(arms)
            reward = world.pull(k).reward
            expansion_point = estimator.expansion_point.clone() if name == "HEAVY-OFUL" else None
            policy.step(arms, k, reward)
            passes += expansion_point is not None and not torch.equal(expansion_point, estimator.expansion_point)
    return passes


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def one_round(policy: UCB, arms: torch.Tensor, reward: torch.Tensor) -> None:
    policy.step(arms, policy.select(arms), reward)


def compare(
    policies: dict[str, UCB], horizon: int, repeats: int, seed: int
) -> tuple[dict[str, list[float]], list[int]]:
    """Return times of rounds, in alternation, on copies of the learners, and gradient descent's iterations."""
    random = torch.Generator().manual_seed(seed)
    arms = torch.nn.functional.normalize(torch.randn(ARMS, DIM, generator=random, dtype=torch.float64), dim=-1)
    copies = {name: copy.deepcopy(policy) for name, policy in policies.items()}
    rivals = {name: copy.deepcopy(policies["HEAVY-OFUL"]) for name in SOLVERS}
    times: dict[str, list[float]] = {name: [] for name in (*copies, *rivals)}
    iterations = []
    for reward in NOISE.sample((repeats,), random):
        for name, policy in copies.items():
            times[name].append(seconds(partial(one_round, policy, arms, reward)))
        solution = copies["HEAVY-OFUL"].estimator.theta_hat
        for name, policy in rivals.items():
            before = policy.estimator.theta_hat.clone()
            solvers = Solvers(policy, horizon)
            solve = {
                "HEAVY-OFUL, warm Newton": partial(solvers.newton, before),
                "HEAVY-OFUL, cold gradient descent": partial(solvers.gradient_descent, solution.numpy()),
                "HEAVY-OFUL, scipy": solvers.scipy,
            }[name]
            times[name].append(seconds(partial(one_round, policy, arms, reward)) + seconds(solve))
            if name == "HEAVY-OFUL, cold gradient descent":
                iterations.append(solvers.iterations)
            apart = float((policy.estimator.theta_hat - solution).norm())
            if not apart <= 1.0 / math.sqrt(horizon):
                raise RuntimeError(f"{name} is {apart} from the solution")
            policy.estimator.theta_hat.copy_(solution)
    return times, iterations


def by_round(radius_scale: float, rounds: list[int], horizon: int, repeats: int) -> dict[str, Any]:
    """Return median seconds of a round, iterations of gradient descent and passes over all rounds, at one width."""
    policies, world = make_policies(horizon, radius_scale), LinearBandit(DIM, ARMS, noise=NOISE, seed=1)
    times: dict[str, dict[str, float]] = {}
    counts: dict[str, float] = {}
    kept: dict[int, dict[str, UCB]] = {}
    early, late = rounds[0], rounds[-1] - rounds[0]
    now = passes = 0
    for t in sorted({*rounds, late}):
        passes += play(policies, world, t - now)
        now = t
        if t in (early, late):
            kept[t] = copy.deepcopy({name: policies[name] for name in OURS})
        if t in rounds:
            seconds_of, iterations = compare(policies, horizon, repeats, seed=t)
            times[str(t)] = {name: float(np.median(each)) for name, each in seconds_of.items()}
            counts[str(t)] = float(np.median(iterations))
    return {"times": times, "iterations": counts, "passes": passes, "late": late_rounds(kept, early, late, repeats)}


def late_rounds(kept: dict[int, dict[str, UCB]], early: int, late: int, repeats: int) -> dict[str, float]:
    """Return the time of a late round over that of an early one, in alternation, by learner."""
    arms, reward = LinearBandit(DIM, ARMS, noise=NOISE, seed=1).arms(), torch.tensor(0.1, dtype=torch.float64)
    found = {}
    for name in OURS:
        pairs = [
            [seconds(partial(one_round, kept[t][name], arms, reward)) for t in (late, early)]
            for _ in range(10 * repeats)
        ]
        found[name] = float(np.median([a for a, _ in pairs]) / np.median([b for _, b in pairs]))
    return found


WIDTHS = {"theory": 1.0, "tuned": TUNED}


def jobs(quick: bool) -> dict[str, Job]:
    rounds, horizon, repeats = ([50, 100, 200], 200, 20) if quick else ([1000, 5000, 18000], HORIZON, 400)
    sizes = {"rounds": rounds, "horizon": horizon, "repeats": repeats}
    return {name: Job(by_round, {"radius_scale": scale} | sizes) for name, scale in WIDTHS.items()}


def tables(results: Results) -> dict[str, str]:
    made, said = {}, []
    for width, one in results.items():
        times, stops = one["times"], list(one["times"])
        rows = [
            (name, *(f"{times[t][name] / times[t]['HvtUCB']:.1f}" for t in stops))
            for name in next(iter(times.values()))
        ]
        rows.append(("iterations of gradient descent", *(f"{one['iterations'][t]:.0f}" for t in stops)))
        title = (
            f"Median time of a round, HvtUCB = 1, {'widths of theory' if width == 'theory' else '0.001 times those'}"
        )
        made[title] = table(("learner", *(f"t = {t}" for t in stops)), rows)
        said.append(f"HEAVY-OFUL, {width}: went over all rounds in {one['passes']} of {stops[-1]}")
        late, early = int(stops[-1]) - int(stops[0]), stops[0]
        said += [
            f"{name}, {width}: a round at t = {late} takes {ratio:.2f} times as long as one at t = {early}"
            for name, ratio in one["late"].items()
        ]
    return made | {"Passes and late rounds": listed(said)}


def figures(results: Results, folder: Path) -> list[Path]:
    figure, axes = plt.subplots(1, len(results), figsize=(13, 4.5), sharey=True, layout="constrained")
    for axis, (width, one) in zip(axes, results.items(), strict=True):
        for name in next(iter(one["times"].values())):
            axis.plot(
                [int(t) for t in one["times"]],
                [1e6 * row[name] for row in one["times"].values()],
                marker="o",
                label=name,
            )
        axis.set(title=width, xlabel="round", xscale="log", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("microseconds a round, median")
    axes[0].legend()
    path = folder / "hvt_ucb_speed.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(
    __file__, jobs, tables, figures, is_timed=True, seeds="1, and the round for the order of contenders"
)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
