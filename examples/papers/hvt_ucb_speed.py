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
often that of weighted least squares. The script prints how often all rounds had to be processed. It prints the median time
of a round relative to HvtUCB, and whether the times of our learners depend on the round.

All of this comes twice: with HvtUCB and HEAVY-OFUL at the widths of their theory, and at a thousandth of these, the size at
which both learn. Narrow widths pull the arms of the best direction, so the problem of all rounds is worse conditioned, and
gradient descent needs more iterations. HeavyTailUCB and OFUL are the same both times.

    OMP_NUM_THREADS=1 python examples/papers/hvt_ucb_speed.py    # four minutes; seconds with --quick
"""

import argparse
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
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy.optimize import minimize

from torchonline import OFUL, UCB, HeavyTailUCB, HvtUCB
from torchonline.baselines import HeavyOFUL
from torchonline.environments import LinearBandit, StudentT

DIM, ARMS, HORIZON, TUNED = 2, 50, 18000, 1e-3
NOISE = StudentT(2.1)
OURS = ("HeavyTailUCB", "HvtUCB", "OFUL")
SOLVERS = ("HEAVY-OFUL, warm Newton", "HEAVY-OFUL, cold gradient descent", "HEAVY-OFUL, scipy")


def make_policies(horizon: int, radius_scale: float) -> dict[str, UCB]:
    """Return the learners, HvtUCB and HEAVY-OFUL at ``radius_scale`` times the width of theory."""
    norm = NOISE.moment_norm(1.99)
    options: dict[str, Any] = {"moment_order": 1.99, "noise_scale": norm, "radius_scale": radius_scale}
    return {
        "HeavyTailUCB": HeavyTailUCB(DIM, noise_scale=NOISE.moment_norm(2.0), delta=0.05),
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
            x, reward, _ = world.pull(policy.select(world.arms()))
            expansion_point = estimator.expansion_point.clone() if name == "HEAVY-OFUL" else None
            policy.step(x, reward)
            passes += expansion_point is not None and not torch.equal(expansion_point, estimator.expansion_point)
    return passes


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def one_round(policy: UCB, arms: torch.Tensor, reward: torch.Tensor) -> None:
    policy.step(arms[policy.select(arms)], reward)


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


def report(
    console: Console,
    times: dict[int, dict[str, list[float]]],
    iterations: dict[int, list[int]],
    passes: int,
    radius_scale: float,
) -> None:
    """Print the times of one width."""
    widths = "at the widths of theory" if radius_scale == 1.0 else f"at {radius_scale:g} times the widths of theory"
    table = Table(title=f"Median time of a round, as a multiple of HvtUCB's, {widths}")
    table.add_column("learner", no_wrap=True)
    for t in times:
        table.add_column(f"t = {t}", justify="right")
    for name in next(iter(times.values())):
        ratios = [float(np.median(one[name]) / np.median(one["HvtUCB"])) for one in times.values()]
        table.add_row(name, *(f"{ratio:.1f}" for ratio in ratios))
    console.print(table)
    last = list(times)[-1]
    medians = ", ".join(f"{np.median(count):.0f}" for count in iterations.values())
    console.print(f"Iterations of gradient descent, median: {medians}")
    console.print(f"HEAVY-OFUL went over all rounds in {passes} of {last} rounds")
    console.print(f"HvtUCB at t = {last}: {1e6 * float(np.median(times[last]['HvtUCB'])):.0f} microseconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--quick", "--smoke", action="store_true", help="a few hundred rounds, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rounds, horizon, repeats = ((50, 100, 200), 200, 20) if options.quick else ((1000, 5000, 18000), HORIZON, 400)
    torch.set_num_threads(1)
    console = Console()
    environment = LinearBandit(DIM, ARMS, noise=NOISE, seed=1)
    times: dict[int, dict[str, list[float]]] = {}
    kept: dict[int, dict[str, UCB]] = {}
    early, late = rounds[0], rounds[-1] - rounds[0]
    for radius_scale in (TUNED, 1.0):  # theory last: the rest is about it
        policies = make_policies(horizon, radius_scale)
        world = copy.deepcopy(environment)
        counts: dict[int, list[int]] = {}
        with Progress(console=console) as progress:
            task = progress.add_task(f"rounds, {radius_scale:g} times the width of theory", total=rounds[-1])
            now = passes = 0
            for t in sorted({*rounds, late}):
                passes += play(policies, world, t - now)
                progress.advance(task, t - now)
                now = t
                if t in (early, late):
                    kept[t] = copy.deepcopy({name: policies[name] for name in OURS})
                if t in rounds:
                    times[t], counts[t] = compare(policies, horizon, repeats, seed=t)
        report(console, times, counts, passes, radius_scale)

    # In alternation, so that other load on the machine affects both.
    arms = environment.arms()
    reward = torch.tensor(0.1, dtype=torch.float64)
    for name in OURS:
        pairs = [
            [seconds(partial(one_round, kept[t][name], arms, reward)) for t in (late, early)]
            for _ in range(10 * repeats)
        ]
        ratio = float(np.median([a for a, _ in pairs]) / np.median([b for _, b in pairs]))
        console.print(f"{name}: a round at t = {late} takes {ratio:.2f} times as long as one at t = {early}")

    path = options.output / "hvt_ucb_speed.png"
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name in times[rounds[0]]:
        axis.plot(rounds, [1e6 * float(np.median(times[t][name])) for t in rounds], marker="o", label=name)
    axis.set(xlabel="round", ylabel="microseconds a round, median", xscale="log", yscale="log")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    console.print(f"Times: {path}")


if __name__ == "__main__":
    main()
