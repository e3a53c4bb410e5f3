"""Confidence sets that rounding loses, in float64.

Batches learn rewards that meet every condition of the guarantee at delta = 0.05. A set fails if |x'(theta_hat - theta)| >
radius * width(x) for some x after some round. Three things are counted:

- one direction: RidgeRegression, features of one direction and great length, Gaussian noise;
- one arm: the estimator of LocalGLB, Poisson counts of one arm, whose mean is as large as theta_bound allows;
- own choices: LocalGLB among ten random arms, at the largest theta_bound that it takes for Poisson counts.

    python examples/rounding.py    # half a minute; seconds with --smoke
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from torchonline import LocalGLB, LocalGLMRegression, Poisson, RidgeRegression
from torchonline.metrics import has_missed
from torchonline.regression.estimator import Estimator

DIMS, NOISE = (1, 2, 5), 0.5
LENGTHS = (1e5, 1e6, 1e7)
BOUNDS = (24.0, 26.0, 28.0)
LARGEST_BOUND = 35.0


def units(*shape: int) -> Tensor:
    """Return random unit vectors."""
    return normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


def lost(estimator: Estimator, theta: Tensor, rounds: int, play: Callable[[], tuple[Tensor, Tensor]]) -> str:
    """Count the learners of a batch whose set has ever missed ``theta``, up to the first round that is refused.

    ``play`` returns the features and rewards of a round.
    """
    failed = torch.zeros(len(theta), dtype=torch.bool)
    for t in range(rounds):
        x, reward = play()
        try:
            estimator.step(x, reward)
        except ValueError:
            return f"{failed.sum()}, refuses round {t + 1}"
        failed |= has_missed(estimator, theta)
    return str(int(failed.sum()))


def one_direction(dim: int, length: float, rounds: int, runs: int) -> str:
    theta, x = units(runs, dim), length * units(runs, dim)
    mean = (x * theta).sum(-1)
    estimator = RidgeRegression(dim, noise_scale=NOISE, batch_shape=(runs,))
    return lost(estimator, theta, rounds, lambda: (x, mean + NOISE * torch.randn_like(mean)))


def one_arm(dim: int, bound: float, rounds: int, runs: int) -> str:
    x = units(runs, dim)
    theta, mean = bound * x, torch.full((runs,), bound, dtype=torch.float64).exp()
    estimator = LocalGLMRegression(dim, link=Poisson(), theta_bound=bound, batch_shape=(runs,))
    return lost(estimator, theta, rounds, lambda: (x, torch.poisson(mean)))


def own_choices(dim: int, bound: float, rounds: int, runs: int) -> str:
    theta, arms = bound * units(runs, dim), units(runs, 10, dim)
    policy = LocalGLB(dim, link=Poisson(), theta_bound=bound, batch_shape=(runs,))

    def play() -> tuple[Tensor, Tensor]:
        x = arms.take_along_dim(policy.select(arms)[:, None, None], dim=1).squeeze(1)
        return x, torch.poisson((x * theta).sum(-1).exp())

    return lost(policy.estimator, theta, rounds, play)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few rounds and runs, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    rounds, runs = (10, 5) if options.smoke else (2000, 200)

    cases: list[tuple[str, Callable[[int, float, int, int], str], float]] = []
    cases += [(f"one direction, length {length:.0e}", one_direction, length) for length in LENGTHS]
    cases += [(f"one arm, mean count exp({bound:g})", one_arm, bound) for bound in BOUNDS]
    cases += [(f"own choices, theta_bound {LARGEST_BOUND:g}", own_choices, LARGEST_BOUND)]
    rows = [[f"sets lost of {runs} in {rounds} rounds", *(f"d = {dim}" for dim in DIMS)], ["---"] * (1 + len(DIMS))]
    rows += [[name, *(count(dim, size, rounds, runs) for dim in DIMS)] for name, count, size in cases]
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    (options.output / "rounding.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
