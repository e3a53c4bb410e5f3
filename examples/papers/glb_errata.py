"""Generalized linear bandits: counts for the errata of the GLB-OMD paper, each beside a proof.

The proofs are in docs/generalized_linear_theory.md, the paper is that of Zhang, Xu, Zhao and Sugiyama (Generalized linear
bandits: almost optimal regret with one-pass update, 2025).

- **Condition (43)** of its Appendix E, which restates what the proof of another paper needs: the integral of exp(-|u|^2 / 2)
  over a ball of radius 3 rho is at most that of exp(-C |u|^2 / 2) over the ball of radius rho, for a C >= 1. Here
  rho^2 = gamma^2 / (4 c) and u = H^(1/2) theta / sqrt(c). The script counts where it holds, and prints the largest C with which
  it does.
- **Lemma 3** has 3/2 d eta where Lemma 6 proves 3 d eta. The script plays GLB-OMD with the ridge and the radius of its theorem,
  and prints the largest quotient of the sum that the lemmas bound by d eta log(2 + 2 C t / (lambda g)), over rounds and trials.
- **Lemma 8**, left side of (37): the integral of (1 - v) mu'(z1 + v (z2 - z1)) is at least mu'(z) / (2 + R |z2 - z1|), for z = z1
  and for z = z2. The script counts the pairs of a grid where it fails.

    python examples/papers/glb_errata.py    # a minute; seconds with --quick
"""

import itertools
import math
from typing import Any

import numpy as np
import torch
from experiment import Experiment, Job, Results, listed, table
from glb_omd_learners import ALGORITHMS, Game, Problem

from torchonline import Logistic, Poisson
from torchonline.environments import GeneralizedLinearBandit
from torchonline.links import Link

DIMS, SHOWN = (1, 2, 5, 16), (0.5, 1.0, 2.0, 3.0, 4.0)
LINKS: dict[str, type[Link]] = {"logistic": Logistic, "Poisson": Poisson}
WORLDS = (("logistic", 3.0, 2), ("logistic", 3.0, 8), ("Poisson", 2.0, 2), ("Poisson", 2.0, 8))


def tails(dim: int, square: float) -> tuple[float, float]:
    """Return the chi-square distribution function and its complement."""
    a, x = (torch.tensor(0.5 * number, dtype=torch.float64) for number in (dim, square))
    return float(torch.special.gammainc(a, x)), float(torch.special.gammaincc(a, x))


def excess(dim: int, rho: float, constant: float) -> float:
    """Return the right side of (43) less its left side, both over (2 pi)^(d/2)."""
    share = constant ** (-0.5 * dim)
    (inside, outside), (larger, beyond) = tails(dim, constant * rho**2), tails(dim, 9.0 * rho**2)
    # From C = 1 on, complements tell what is left of two numbers close to 1.
    return share * inside - larger if constant < 1.0 else share - 1.0 - share * outside + beyond


def largest(dim: int, rho: float) -> float:
    """Return the largest C with (43), 0 if there is none above 1e-9. The right side falls with C."""
    low, high = 1e-9, 1.0
    if excess(dim, rho, low) < 0.0:
        return 0.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(dim, rho, middle) >= 0.0 else (low, middle)
    return low


def condition(points: int) -> dict[str, Any]:
    radii, constants = np.geomspace(0.1, 10.0, points), np.geomspace(1.0, 100.0, points)
    found = [excess(*case) >= 0.0 for case in itertools.product(DIMS, map(float, radii), map(float, constants))]
    return {"holds": sum(found), "of": len(found), "largest": [[largest(dim, rho) for rho in SHOWN] for dim in DIMS]}


def play(rewards: str, norm: float, dim: int, rounds: int, trials: int, seed: int) -> dict[str, Any]:
    """Return the largest quotient of Lemma 3's sum by d eta log(2 + 2 C t / lambda), by trial."""
    link = LINKS[rewards]()
    environment = GeneralizedLinearBandit(
        dim, 20, link=link, theta_norm=norm, redraw=True, batch_shape=(trials,), seed=seed
    )
    game = Game(ALGORITHMS["GLB-OMD, theorem"].build(Problem(dim, link, norm, (trials,), rounds)), environment)
    estimator: Any = game.policy.estimator
    eta, steepest = estimator.eta, link.max_slope(norm)
    nodes, weights = (torch.from_numpy(each) for each in np.polynomial.hermite_e.hermegauss(48))
    log_weights = (weights / weights.sum()).log()
    total, most = torch.zeros(trials, dtype=torch.float64), torch.full((trials,), -math.inf, dtype=torch.float64)
    for t in range(1, rounds + 1):
        arms = environment.arms()
        index = game.policy.select(arms)
        x, reward, _ = environment.pull(index)
        theta, V = estimator.theta_hat.clone(), estimator.V.clone()
        width = estimator.width(x)
        game.policy.step(arms, index, reward)
        z, y = (x * theta).sum(-1), (x * estimator.theta_hat).sum(-1)
        points = z.unsqueeze(-1) + (1.5 * eta) ** 0.5 * width.unsqueeze(-1) * nodes
        gain = link.log_partition(y).unsqueeze(-1) - link.log_partition(points)
        gain = gain + reward.unsqueeze(-1) * (points - y.unsqueeze(-1))
        move = estimator.theta_hat - theta
        squared = torch.einsum("bi,bij,bj->b", move, V, move)
        total -= torch.logsumexp(log_weights + gain, -1) + squared / (3.0 * eta)
        most = torch.maximum(most, total / (dim * eta * math.log(2.0 + 2.0 * steepest * t / estimator.ridge)))
    return {"most": most.tolist()}


def pairs(rewards: str, points: int) -> dict[str, Any]:
    """Return on how many pairs Lemma 8's lower bound fails, at the first end and at the second."""
    link = LINKS[rewards]()
    ends = torch.linspace(-10.0, 10.0, points, dtype=torch.float64)
    first, second = (each.flatten() for each in torch.meshgrid(ends, ends, indexing="ij"))
    which = first != second
    first, second = first[which], second[which]
    integral = link.divergence(second, first) / (second - first) ** 2
    bounds = (link.slope(end) / (2.0 + (second - first).abs()) for end in (first, second))
    return {"fails": [int((integral < bound * (1.0 - 1e-9)).sum()) for bound in bounds], "of": len(first)}


def jobs(quick: bool) -> dict[str, Job]:
    rounds, trials, points = (20, 2, 5) if quick else (2000, 20, 41)
    found = {"(43)": Job(condition, {"points": points})}
    for rewards in LINKS:
        found[f"Lemma 8, {rewards}"] = Job(pairs, {"rewards": rewards, "points": points})
    for rewards, norm, dim in WORLDS:
        told = {"rewards": rewards, "norm": norm, "dim": dim, "rounds": rounds, "trials": trials, "seed": 1}
        found[f"Lemma 3, {rewards}, d = {dim}"] = Job(play, told)
    return found


def shown(constant: float) -> str:
    if not constant:
        return "none"
    return f"{constant:.3g}" if constant < 0.999 else f"1 - {1.0 - constant:.1g}"


def tables(results: Results) -> dict[str, str]:
    one = results["(43)"]
    cells = ([shown(value) for value in row] for row in one["largest"])
    lines = [f"Condition (43) with C from 1 to 100: it holds in {one['holds']} of {one['of']} cases."]
    for rewards in LINKS:
        lemma = results[f"Lemma 8, {rewards}"]
        first, second = lemma["fails"]
        lines.append(f"Lemma 8, {rewards}: of {lemma['of']} pairs, {first} fail with z = z1 and {second} with z = z2.")
    for rewards, norm, dim in WORLDS:
        most = results[f"Lemma 3, {rewards}, d = {dim}"]["most"]
        lines.append(
            f"Lemma 3, {rewards}, S = {norm:g}, d = {dim}: at most {max(most):.2f} d eta log(...) in {len(most)} trials."
        )
    return {
        "Counts": listed(lines),
        "Largest C with condition (43)": table(
            ("d", *(f"rho = {rho:g}" for rho in SHOWN)), [(dim, *row) for dim, row in zip(DIMS, cells, strict=True)]
        ),
    }


EXPERIMENT = Experiment(__file__, jobs, tables, seeds="1")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
