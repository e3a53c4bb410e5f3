"""Coverage of the confidence sets of generalized linear learners.

GLBOMD (empirical radius) and LocalGLB play 500 rounds on 10 fixed arms in the unit disc, at delta = 0.05. In "policy" they
choose the arms themselves. In "adversary" the arms are chosen with knowledge of the truth: in every other round the arm with
the largest error relative to its width, in between the arm with the largest width. A set fails if |x'(theta_hat - theta)| >
radius * width(x) for some x after some round. "/ 5" counts failures with a fifth of the radius. The custom link has the mean
sinh(z), which differences of two counts have. The last two laws have the link's mean and a larger spread: there the sets should
fail.

The script prints and draws the failures of 1000. At delta = 0.05, 70 failures are three standard errors above the expected
50.

    python examples/papers/glb_omd_coverage.py    # three minutes; seconds with --smoke
"""

import math
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from experiment import Experiment, Job, Results, listed, table
from torch import Tensor

from torchonline import GLBOMD, UCB, Binomial, CustomLink, Gamma, Gaussian, LocalGLB, Logistic, Poisson
from torchonline.environments import GeneralizedLinearBandit
from torchonline.links import Link
from torchonline.metrics import has_missed

DIM, ARMS, DELTA, RUNS = 2, 10, 0.05, 1000
LEARNERS: dict[str, type[UCB]] = {"GLBOMD": GLBOMD, "LocalGLB": LocalGLB}
Law = Callable[[Tensor, torch.Generator], Tensor]


def burst(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw counts of mean exp(z) that are above 0 in only one of ten rounds."""
    now = torch.rand(z.shape, generator=generator, dtype=z.dtype) < 0.1
    return torch.poisson(z.exp() * torch.where(now, 10.0, 0.0), generator=generator)


def together(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw ten tries that succeed or fail together."""
    return 10.0 * torch.bernoulli(z.sigmoid(), generator=generator)


def difference(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the difference of two counts, of means exp(z) / 2 and exp(-z) / 2."""
    up, down = (torch.poisson(0.5 * (sign * z).exp(), generator=generator) for sign in (1.0, -1.0))
    return up - down


def sinh_link() -> CustomLink:
    """Return the link of :func:`difference`: log-moments cosh(z + t) - cosh(z)."""
    return CustomLink(torch.cosh, torch.sinh, torch.cosh, R=1.0)


# Link, norm of the true parameter (also theta_bound), and law of the rewards unless the link draws them.
LAWS: dict[str, tuple[Link, float, Law | None]] = {
    "logistic, S = 3": (Logistic(), 3.0, None),
    "logistic, S = 8": (Logistic(), 8.0, None),
    "Poisson, S = 2": (Poisson(), 2.0, None),
    "Gaussian, S = 1": (Gaussian(0.5), 1.0, None),
    "Binomial of 10, S = 2": (Binomial(10), 2.0, None),
    "Gamma of shape 2, S = 1": (Gamma(3.0, shape=2.0), 1.0, None),
    "custom (sinh), S = 2": (sinh_link(), 2.0, difference),
    "Poisson, in bursts": (Poisson(), 2.0, burst),
    "Binomial of 10, all or none": (Binomial(10), 2.0, together),
}
# Laws with the mean of the link and a larger spread.
WRONG = ("Poisson, in bursts", "Binomial of 10, all or none")
COLUMNS = ("policy", "adversary", "policy / 5", "adversary / 5")


def failures(learner: str, law_name: str, rounds: int, runs: int) -> list[int]:
    """Count the runs that missed the truth, in the order of ``COLUMNS``."""
    link, bound, law = LAWS[law_name]
    environment = GeneralizedLinearBandit(
        DIM, ARMS, link=link, rewards=law, theta_norm=bound, batch_shape=(2, runs), seed=7
    )
    policy = LEARNERS[learner](DIM, link=link, theta_bound=bound, delta=DELTA, batch_shape=(2, runs))  # type: ignore[call-arg]
    estimator, arms = policy.estimator, environment.arms()
    failed = torch.zeros(2, 2, runs, dtype=torch.bool)
    for t in range(rounds):
        index, width = policy.select(arms), estimator.width(arms)
        error = (arms @ (estimator.theta_hat - environment.theta).unsqueeze(-1)).squeeze(-1).abs()
        index[1] = (error / width if t % 2 else width)[1].argmax(-1)
        policy.step(arms, index, environment.pull(index).reward)
        theta = environment.theta
        failed[0] |= has_missed(estimator, theta)
        # A fifth of the set misses theta if the whole set misses a point five times as far away.
        failed[1] |= has_missed(estimator, estimator.theta_hat + 5.0 * (theta - estimator.theta_hat))
    return failed.sum(-1).flatten().tolist()


def jobs(quick: bool) -> dict[str, Job]:
    rounds, runs = (20, 20) if quick else (500, RUNS)
    return {
        f"{name}, {law}": Job(failures, {"learner": name, "law_name": law, "rounds": rounds, "runs": runs})
        for law in LAWS
        for name in LEARNERS
    }


def tables(results: Results) -> dict[str, str]:
    limit = math.floor(RUNS * (DELTA + 3.0 * math.sqrt(DELTA * (1.0 - DELTA) / RUNS)))
    rows = [
        (f"{law} (wrong)" if law in WRONG else law, name, *results[f"{name}, {law}"])
        for law in LAWS
        for name in LEARNERS
    ]
    said = []
    for name in LEARNERS:
        right = [results[f"{name}, {law}"] for law in LAWS if law not in WRONG]
        wrong = [results[f"{name}, {law}"] for law in WRONG]
        most = max(max(row[:2]) for row in right)
        said.append(
            f"{name}: at most {most}, never above {limit}: {'yes' if most <= limit else 'NO'}; a fifth of the radius fails in "
            f"at least {min(min(row[2:]) for row in right)}, rewards that spread wider in at least "
            f"{min(max(row[:2]) for row in wrong)}"
        )
    return {
        "Confidence sets that failed": table(("rewards", "learner", *COLUMNS), rows),
        "Promises kept": listed(said),
    }


def figures(results: Results, folder: Path) -> list[Path]:
    figure, axes = plt.subplots(1, len(LEARNERS), figsize=(11, 4.5), sharey=True, layout="constrained")
    for axis, name in zip(axes, LEARNERS, strict=True):
        for j, column in enumerate(COLUMNS[:2]):
            heights = [results[f"{name}, {law}"][j] / RUNS for law in LAWS]
            axis.bar([i + 0.4 * (j - 0.5) for i in range(len(LAWS))], heights, width=0.38, label=column)
        axis.axhline(DELTA, color="black", linewidth=0.8, linestyle="--")
        axis.set(title=name)
        axis.set_xticks(range(len(LAWS)), list(LAWS), rotation=40, ha="right")
    axes[0].set_ylabel("share of runs whose set failed")
    axes[0].legend()
    path = folder / "glb_omd_coverage.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures, seeds="7")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
