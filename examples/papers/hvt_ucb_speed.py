"""How much faster one-pass learning is than solving for all rounds again, and how that depends on who solves.

The paper (Wang, Zhang, Zhao and Zhou, ICML 2025) reports that Hvt-UCB is some 800 times faster than HEAVY-OFUL, whose estimate
is the minimum of a loss over all rounds so far. Here one learner each plays 18000 rounds of the paper's experiment; at
rounds 1000, 5000 and 18000, rounds (select and step) of all contenders are timed in turn, on one thread:

- HEAVY-OFUL as this library has it, which goes over all rounds only where it must;
- with Newton's method from the last solution, over all rounds in every round;
- with projected gradient descent from 0 to the accuracy 1 / sqrt(T) that the paper asks for;
- with scipy's SLSQP from 0, at its default accuracy.

All four hold the same history and give the same estimate, to the accuracy of each. Prints the median time of a round
as a multiple of HvtUCB's, and whether ours depend on the round.

    OMP_NUM_THREADS=1 python examples/papers/hvt_ucb_speed.py    # two minutes; seconds with --smoke
"""

import argparse
import copy
import math
import time
from collections.abc import Callable
from pathlib import Path

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

DIM, ARMS, HORIZON = 2, 50, 18000
NOISE = StudentT(2.1)
OURS = ("HeavyTailUCB", "HvtUCB", "OFUL")


def make_policies(horizon: int) -> dict[str, UCB]:
    norm = NOISE.moment_norm(1.99)
    return {
        "HeavyTailUCB": HeavyTailUCB(DIM, noise_scale=NOISE.moment_norm(2.0), delta=0.05),
        "HvtUCB": HvtUCB(DIM, horizon=horizon, moment_order=1.99, noise_scale=norm),
        "OFUL": OFUL(DIM, noise_scale=NOISE.moment_norm(2.0), delta=0.05),
        "HEAVY-OFUL": HeavyOFUL(DIM, horizon=horizon + 1000, moment_order=1.99, noise_scale=norm),
    }


class Rival:
    """HEAVY-OFUL, with another solver over all rounds."""

    def __init__(self, policy: UCB, horizon: int) -> None:
        self.policy, self.horizon = policy, horizon

    def history(self) -> tuple[np.ndarray, ...]:
        estimator = self.policy.estimator
        n = int(estimator.rounds)
        return tuple(
            value[:n].numpy() for value in (estimator.history, estimator.history_reward, estimator.history_threshold)
        )

    def newton(self) -> None:
        """From the last solution."""
        self.policy.estimator.rounds -= 1  # it counts the round that is not yet over
        self.policy.estimator._minimise(torch.tensor(True))
        self.policy.estimator.rounds += 1

    def gradient_descent(self) -> None:
        """From 0, with steps of 1 / smoothness, until the minimum is at most 1 / sqrt(T) away by strong convexity."""
        rows, rewards, thresholds = self.history()
        estimator = self.policy.estimator
        bound, ridge = estimator.theta_bound, estimator.ridge
        smoothness = float(np.linalg.eigvalsh(estimator.V.numpy())[-1])
        theta = np.zeros(DIM)
        moved = math.inf
        # The distance to the minimum is at most 2 smoothness / ridge times the last move.
        while 2.0 * smoothness / ridge * moved > 1.0 / math.sqrt(self.horizon):
            residual = np.clip(rewards - rows @ theta, -thresholds, thresholds)
            there = theta - (ridge * theta - residual @ rows) / smoothness
            there *= min(1.0, bound / np.linalg.norm(there))
            moved = float(np.linalg.norm(there - theta))
            theta = there
        self.policy.estimator.theta_hat.copy_(torch.from_numpy(theta))

    def scipy(self) -> None:
        """From 0, by sequential quadratic programming."""
        rows, rewards, thresholds = self.history()
        bound, ridge = self.policy.estimator.theta_bound, self.policy.estimator.ridge

        def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
            size = rewards - rows @ theta
            cut = np.clip(size, -thresholds, thresholds)
            value = 0.5 * ridge * theta @ theta + float(np.abs(cut) @ (np.abs(size) - 0.5 * np.abs(cut)))
            return value, ridge * theta - cut @ rows

        inside = {"type": "ineq", "fun": lambda u: bound**2 - u @ u, "jac": lambda u: -2.0 * u}
        found = minimize(loss, np.zeros(DIM), jac=True, method="SLSQP", constraints=[inside])
        self.policy.estimator.theta_hat.copy_(torch.from_numpy(found.x))


def play(policies: dict[str, UCB], environment: LinearBandit, rounds: int) -> None:
    """Each learner on its own choices."""
    for policy in policies.values():
        world = copy.deepcopy(environment)
        for _ in range(rounds):
            x, reward, _ = world.pull(policy.select(world.arms()))
            policy.step(x, reward)


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def one_round(policy: UCB, arms: torch.Tensor, reward: torch.Tensor) -> None:
    policy.step(arms[policy.select(arms)], reward)


def compare(policies: dict[str, UCB], horizon: int, repeats: int, seed: int) -> dict[str, list[float]]:
    """Times of rounds, in turn, on copies that go on from where the learners are."""
    random = torch.Generator().manual_seed(seed)
    arms = torch.nn.functional.normalize(torch.randn(ARMS, DIM, generator=random, dtype=torch.float64), dim=-1)
    copies = {name: copy.deepcopy(policy) for name, policy in policies.items()}
    rival = Rival(copies["HEAVY-OFUL"], horizon)
    estimates = {}
    times: dict[str, list[float]] = {name: [] for name in copies}
    solvers = {
        "HEAVY-OFUL, warm Newton": rival.newton,
        "HEAVY-OFUL, cold gradient descent": rival.gradient_descent,
        "HEAVY-OFUL, scipy": rival.scipy,
    }
    times |= {name: [] for name in solvers}
    rewards = NOISE.sample((repeats,), random)
    for i in range(repeats):
        for name, policy in copies.items():
            times[name].append(seconds(lambda policy=policy, i=i: one_round(policy, arms, rewards[i])))
        exact = rival.policy.estimator.theta_hat.clone()
        for name, solve in solvers.items():
            # The slow ones are timed ten times.
            if i < 10 or name == "HEAVY-OFUL, warm Newton":
                times[name].append(times["HEAVY-OFUL"][-1] + seconds(solve))
                estimates[name] = float((rival.policy.estimator.theta_hat - exact).norm())
            rival.policy.estimator.theta_hat.copy_(exact)
    apart = max(estimates.values())
    if not apart <= 2.0 / math.sqrt(horizon):
        raise RuntimeError(f"the solvers disagree by {apart}")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few hundred rounds, to see that it runs")
    options = parser.parse_args()
    rounds, horizon, repeats = ((50, 100, 200), 200, 20) if options.smoke else ((1000, 5000, 18000), HORIZON, 400)
    torch.set_num_threads(1)
    console = Console()
    policies = make_policies(horizon)
    environment = LinearBandit(DIM, ARMS, noise=NOISE, seed=1)
    times: dict[int, dict[str, list[float]]] = {}
    kept: dict[int, dict[str, UCB]] = {}
    early, late = rounds[0], rounds[-1] - rounds[0]
    with Progress(console=console) as progress:
        task = progress.add_task("rounds", total=rounds[-1])
        now = 0
        for t in sorted({*rounds, late}):
            play(policies, environment, t - now)
            progress.advance(task, t - now)
            now = t
            if t in (early, late):
                kept[t] = copy.deepcopy({name: policies[name] for name in OURS})
            if t in rounds:
                times[t] = compare(policies, horizon, repeats, seed=t)

    table = Table(title="Median time of a round, as a multiple of HvtUCB's")
    table.add_column("learner", no_wrap=True)
    for t in rounds:
        table.add_column(f"t = {t}", justify="right")
    names = list(times[rounds[0]])
    ratios = {
        name: [float(np.median(times[t][name]) / np.median(times[t]["HvtUCB"])) for t in rounds] for name in names
    }
    for name in names:
        table.add_row(name, *(f"{ratio:.1f}" for ratio in ratios[name]))
    console.print(table)
    console.print(f"HvtUCB at t = {rounds[-1]}: {1e6 * float(np.median(times[rounds[-1]]['HvtUCB'])):.0f} microseconds")

    # In turn, so that what else the machine does meets both.
    arms = environment.arms()
    reward = torch.tensor(0.1, dtype=torch.float64)
    for name in OURS:
        pairs = [
            [seconds(lambda policy=kept[t][name]: one_round(policy, arms, reward)) for t in (late, early)]
            for _ in range(10 * repeats)
        ]
        ratio = float(np.median([a for a, _ in pairs]) / np.median([b for _, b in pairs]))
        console.print(f"{name}: a round at t = {late} takes {ratio:.2f} times as long as one at t = {early}")

    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "hvt_ucb_speed.png"
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name in names:
        axis.plot(rounds, [1e6 * float(np.median(times[t][name])) for t in rounds], marker="o", label=name)
    axis.set(xlabel="round", ylabel="microseconds a round, median", xscale="log", yscale="log")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    console.print(f"Times: {path}")


if __name__ == "__main__":
    main()
