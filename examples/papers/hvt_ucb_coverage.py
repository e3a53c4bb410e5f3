"""Coverage of heavy-tailed confidence sets, counted over 500 runs.

Each learner plays 2000 rounds on 20 fixed unit arms and chooses the arms itself. It is told the exact moment norm of the
noise: order 2 for the four laws with a variance, order 1.4 for the two without. OFUL, whose theorem needs sub-Gaussian
noise, gets the same number. AnytimeHeavyTailUCB has the radius of its theorem, which promises at most a share delta = 0.05 of
failures. HvtUCB has a radius of practical size, 1e-3 times the paper's, which promises nothing. A set fails if |x'(theta_hat
- theta)| > radius * width(x) for some x after some round.

The script prints and draws the failures of 500. At delta = 0.05, 39 failures are three standard errors above the expected
25.

    python examples/papers/hvt_ucb_coverage.py    # a quarter of an hour; seconds with --quick
"""

import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from experiment import Experiment, Job, Results, listed, table

from torchonline import OFUL, UCB, AnytimeHeavyTailUCB, HvtUCB
from torchonline.environments import GaussianNoise, LinearBandit, Noise, Pareto, StudentT, TwoPoint
from torchonline.metrics import has_missed

ARMS, DELTA, DIMS, RUNS = 20, 0.05, (2, 5, 20), 500
LEARNERS = ("AnytimeHeavyTailUCB", "OFUL", "HvtUCB x 0.001")
# Each law with the moment order for the learners.
LAWS: dict[str, tuple[Noise, float]] = {
    "Gaussian": (GaussianNoise(), 2.0),
    "Student-t 2.1": (StudentT(2.1), 2.0),
    "one-sided Pareto 2.5": (Pareto(2.5), 2.0),
    "two-point 0.01": (TwoPoint(0.01), 2.0),
    "Student-t 1.5": (StudentT(1.5), 1.4),
    "one-sided Pareto 1.5": (Pareto(1.5), 1.4),
}


def make_policy(name: str, dim: int, law: Noise, order: float, rounds: int, runs: int) -> UCB:
    norm = law.moment_norm(order)
    if name == "AnytimeHeavyTailUCB":
        return AnytimeHeavyTailUCB(dim, moment_order=order, noise_scale=norm, delta=DELTA, batch_shape=(runs,))
    if name == "OFUL":
        return OFUL(dim, noise_scale=norm, ridge=dim, delta=DELTA, batch_shape=(runs,))
    return HvtUCB(dim, horizon=rounds, moment_order=order, noise_scale=norm, radius_scale=1e-3, batch_shape=(runs,))


def failures(name: str, law: str, dim: int, rounds: int, runs: int, seed: int) -> int:
    """Count the runs whose confidence set missed the truth."""
    noise, order = LAWS[law]
    policy = make_policy(name, dim, noise, order, rounds, runs)
    environment = LinearBandit(dim, ARMS, noise=noise, batch_shape=(runs,), seed=seed)
    failed = torch.zeros(runs, dtype=torch.bool)
    for _ in range(rounds):
        arms = environment.arms()
        k = policy.select(arms)
        policy.step(arms, k, environment.pull(k).reward)
        failed |= has_missed(policy.estimator, environment.theta)
    return int(failed.sum())


def key(name: str, law: str, dim: int) -> str:
    return f"{name}, {law}, d = {dim}"


def jobs(quick: bool) -> dict[str, Job]:
    rounds, runs = (30, 20) if quick else (2000, RUNS)
    sizes = {"rounds": rounds, "runs": runs}
    return {
        key(name, law, dim): Job(failures, {"name": name, "law": law, "dim": dim, "seed": 100 * dim + i} | sizes)
        for i, law in enumerate(LAWS)
        for dim in DIMS
        for name in LEARNERS
    }


def tables(results: Results) -> dict[str, str]:
    rows = [(law, dim, *(results[key(name, law, dim)] for name in LEARNERS)) for law in LAWS for dim in DIMS]
    sums = [(law, *(sum(results[key(name, law, dim)] for dim in DIMS) for name in LEARNERS)) for law in LAWS]
    most = max(results[key("AnytimeHeavyTailUCB", law, dim)] for law in LAWS for dim in DIMS)
    limit = math.floor(RUNS * (DELTA + 3.0 * math.sqrt(DELTA * (1.0 - DELTA) / RUNS)))
    verdict = f"AnytimeHeavyTailUCB: at most {most}, never above {limit}: {'yes' if most <= limit else 'NO'}"
    return {
        "Confidence sets that failed": table(("noise", "d", *LEARNERS), rows),
        f"Confidence sets that failed, of {len(DIMS) * RUNS}": table(("noise", *LEARNERS), sums),
        f"A promise kept allows {limit} of {RUNS}": listed([verdict]),
    }


def figures(results: Results, folder: Path) -> list[Path]:
    figure, axes = plt.subplots(1, len(DIMS), figsize=(13, 4.5), sharey=True, layout="constrained")
    for axis, dim in zip(axes, DIMS, strict=True):
        for j, name in enumerate(LEARNERS):
            heights = [results[key(name, law, dim)] / RUNS for law in LAWS]
            axis.bar([i + 0.28 * (j - 1) for i in range(len(LAWS))], heights, width=0.26, label=name)
        axis.axhline(DELTA, color="black", linewidth=0.8, linestyle="--")
        axis.set(title=f"d = {dim}")
        axis.set_xticks(range(len(LAWS)), list(LAWS), rotation=40, ha="right")
    axes[0].set_ylabel("share of runs whose set failed")
    axes[0].legend()
    path = folder / "hvt_ucb_coverage.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures)

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
