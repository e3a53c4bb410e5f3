r"""Rivals of DP-TOFW in Table 1.1 of its paper that release one decision at the end.

A module of ``private_oco_theorems.py``. Each reads every record once.

*Phased and snowball SGD* (Feldman, Koren and Talwar, STOC 2020) are projected gradient descent. They are private *only if* every
loss is convex and beta-smooth, because then a projected step with a rate of at most 2/beta brings no two points farther apart.
Gradients are clipped to L. For a linear model and the squared loss the clipped gradient is that of Huber's loss, which is convex
and as smooth. For other losses clipping can break the condition, and nothing is checked.

- *Phased SGD*: phases of n/2, n/4, ... records with rates eta, eta/4, ... The average of a phase's iterates plus normal noise of
  standard deviation 2 L eta_i / mu is the start of the next phase. A record moves the average of its phase by at most 2 L eta_i,
  so that the release is mu-GDP.
- *Snowball SGD*: one noisy step per batch, w - eta_t (g_t + xi_t) projected, with xi_t ~ N(0, (L^2/d) I), and batches that grow
  towards the end. A record of batch t moves the point by at most 2 L eta_t / B_t, and the noise of the steps t, ..., T hides it
  (privacy amplification by iteration, Feldman, Mironov, Talwar and Thakurta 2018):
  rho_t = (2 L eta_t / B_t)^2 / (2 (L^2/d) sum_{s >= t} eta_s^2) of zCDP. B_t is the least size with rho_t <= rho. Rates fall
  linearly to 0, with which the last iterate has the optimal rate.

*Two Frank-Wolfe methods for p = 1* choose a vertex by scores with Gumbel noise. Contributions are clipped to L in the maximum
norm, so that nothing is promised.

- *Polyhedral SFW* (Bassily, Guzman and Nandi, COLT 2021, Theorem 3.2): n/2 records for the first gradient, then batches of
  sqrt(n)/2 with the recursive gradient of ``NoisySFW``. A record moves all later scores, by (1 - eta)^k.
- *Tree FW* (Asi, Feldman, Koren and Talwar, ICML 2021, Theorem 7): phases t = 1, ..., T with a binary tree of depth t. The
  root's gradient is of b records. A right child adds the difference of the gradients at two points, over b/2^k records at
  depth k. Every leaf is a step. A record at depth k moves the scores of 2^(t-k) leaves. Its noise is without amplification by
  shuffling, on which the rate of the theorem rests.

The constants of the default rates are ours.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from private_streams import Setting, seed_of
from torch import Tensor

from torchonline.privacy.calibration import gaussian_mu, zcdp_rho


@dataclass(frozen=True)
class Problem:
    """What all algorithms are told: a stream of convex losses, L, beta and the promise."""

    stream: Any  # trials, gradients(points, *record), and an iterator of records
    setting: Setting
    longest: float  # L
    smoothness: float  # beta

    @property
    def reach(self) -> float:
        """Return the Euclidean radius of the decisions: of the ball for p <= 2, of the box for p = infinity."""
        return self.setting.radius * (math.sqrt(self.setting.dim) if self.setting.norm == math.inf else 1.0)

    def project(self, points: Tensor) -> Tensor:
        """Return the nearest decisions, for p = 2 and infinity."""
        radius = self.setting.radius
        if self.setting.norm == math.inf:
            return points.clamp(-radius, radius)
        return points * (radius / torch.linalg.vector_norm(points, dim=-1, keepdim=True).clamp(min=radius))

    def rate(self, best: float, scale: float) -> float:
        return min(scale * best, 2.0 / self.smoothness)

    def gradient(self, point: Tensor, record: Any) -> Tensor:
        """Return the gradients at some points, no longer than L."""
        found: Tensor = self.stream.gradients(point.unsqueeze(-2), *record).squeeze(-2)
        return found * (self.longest / torch.linalg.vector_norm(found, dim=-1, keepdim=True).clamp(min=self.longest))

    def normal(self, name: str, scale: float) -> Callable[[], Tensor]:
        generator = torch.Generator().manual_seed(seed_of(name, self.setting, scale))
        shape = (self.stream.trials, self.setting.dim)
        return lambda: torch.randn(shape, generator=generator, dtype=torch.float64)


def phases(rounds: int) -> list[int]:
    """Return the sizes n/2, n/4, ..., 1 of the phases."""
    return [rounds >> i for i in range(1, rounds.bit_length())]


def phased_sgd(problem: Problem, scale: float = 1.0) -> Tensor:
    """Return the last decision of phased SGD, per trial; the rate is a multiple of the default."""
    setting, longest = problem.setting, problem.longest
    mu = gaussian_mu(setting.epsilon, 0.1 / setting.rounds)
    best = 2.0 * problem.reach / longest * min(4.0 / math.sqrt(setting.rounds), mu / math.sqrt(setting.dim))
    rate, noise = problem.rate(best, scale), problem.normal("phased", scale)
    records, start = iter(problem.stream), torch.zeros(problem.stream.trials, setting.dim, dtype=torch.float64)
    for size in phases(setting.rounds):
        point, total = problem.project(start), torch.zeros_like(start)
        for record in islice(records, size):
            total += point
            point = problem.project(point - rate * problem.gradient(point, record))
        start = total / size + 2.0 * longest * rate / mu * noise()
        rate /= 4.0
    return problem.project(start)


def snowball(rounds: int, dim: int, rho: float) -> list[int]:
    """Return the sizes of the batches, for as many steps as the records allow, with rates that fall linearly to 0."""

    def sizes(steps: int) -> Iterator[int]:
        rates = torch.arange(steps, 0, -1, dtype=torch.float64)
        later = rates.square().flip(0).cumsum(0).flip(0)
        return map(int, (rates * (2.0 * dim / rho / later).sqrt()).ceil().clamp(min=1.0))

    low, high = 1, rounds
    if sum(sizes(1)) > rounds:
        raise ValueError(f"rounds: expected at least {sum(sizes(1))} for dim={dim} and rho={rho:g}, got {rounds}")
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(sizes(middle)) <= rounds else (low, middle - 1)
    return list(sizes(low))


def snowball_sgd(problem: Problem, scale: float = 1.0) -> Tensor:
    """Return the last iterate of snowball SGD, per trial; the rate is a multiple of the default."""
    setting, longest = problem.setting, problem.longest
    batches = snowball(setting.rounds, setting.dim, zcdp_rho(setting.epsilon, 0.1 / setting.rounds))
    rate = problem.rate(problem.reach / (longest * math.sqrt(2.0 * len(batches))), scale)
    noise, spread = problem.normal("snowball", scale), longest / math.sqrt(setting.dim)
    records, point = iter(problem.stream), torch.zeros(problem.stream.trials, setting.dim, dtype=torch.float64)
    for step, size in enumerate(batches):
        gradient = sum(problem.gradient(point, record) for record in islice(records, size)) / size
        left = (len(batches) - step) / len(batches)
        point = problem.project(point - rate * left * (gradient + spread * noise()))
    return point


class Choice:
    """Vertices of the l1 ball chosen by scores with Gumbel noise, for a batch of trials."""

    def __init__(self, problem: Problem, name: str) -> None:
        self.radius, self.clip = problem.setting.radius, problem.longest
        self.rho = zcdp_rho(problem.setting.epsilon, 0.1 / problem.setting.rounds)
        self.generator = torch.Generator().manual_seed(seed_of(name, problem.setting))

    def scale(self, moves: float) -> float:
        """Return the scale of the noise if the squared moves of the gradient add up to this, per squared clip."""
        return 4.0 * self.radius * self.clip * math.sqrt(moves / (8.0 * self.rho))

    def vertex(self, direction: Tensor, scale: float) -> Tensor:
        scores = self.radius * torch.cat([direction, -direction], -1)
        luck = torch.rand(scores.shape, generator=self.generator, dtype=torch.float64).clamp(min=1e-300)
        best = (scores + scale * luck.log().neg().log()).argmin(-1)
        dim = direction.size(-1)
        sign = torch.where(best < dim, self.radius, -self.radius)
        return sign.unsqueeze(-1) * torch.nn.functional.one_hot(best % dim, dim)


class Batches:
    """The records of a stream in disjoint batches, and means of clipped gradients over them."""

    def __init__(self, problem: Problem) -> None:
        self.stream, self.clip = problem.stream, problem.longest
        self.records = iter(problem.stream)

    def mean(self, size: int, *terms: tuple[float, Tensor]) -> Tensor:
        """Return the mean over the next records of the clipped sum of weighted gradients at some points."""
        x, y = map(torch.stack, zip(*islice(self.records, size), strict=True))
        each = sum(weight * self.stream.gradients(point.unsqueeze(-2), x, y).squeeze(-2) for weight, point in terms)
        return torch.as_tensor(each).clamp(-self.clip, self.clip).mean(0)


def polyhedral_sfw(problem: Problem, scale: float = 1.0) -> Tensor:
    """Return the last decision of polyhedral SFW, per trial; the step size is a multiple of that of NoisySFW."""
    n, choice, batches = problem.setting.rounds, Choice(problem, "polyhedral"), Batches(problem)
    rate = min(1.0, scale * math.log(n + 1.0) / (2.0 * math.sqrt(n)))
    first, size = n // 2, math.isqrt(n) // 2
    steps = (n - first) // size
    kept = sum((1.0 - rate) ** (2 * k) for k in range(steps + 1))
    noise = choice.scale(kept * max(1.0 / first, rate / size) ** 2)
    before = point = torch.zeros(problem.stream.trials, problem.setting.dim, dtype=torch.float64)
    direction = batches.mean(first, (1.0, point))
    for step in range(steps + 1):
        if step > 0:
            mean = batches.mean(size, (1.0 / rate, point), (1.0 - 1.0 / rate, before))
            direction = (1.0 - rate) * direction + rate * mean
        before, point = point, point + rate * (choice.vertex(direction, noise) - point)
    return point


def tree_fw(problem: Problem, depth: int) -> Tensor:
    """Return the last decision of tree FW with so many phases, per trial."""
    choice, batches = Choice(problem, f"tree {depth}"), Batches(problem)
    size = int(problem.setting.rounds / sum(1.0 + t / 2.0 for t in range(1, depth + 1)))
    if size >> depth == 0:
        raise ValueError(f"depth: expected fewer phases for {problem.setting.rounds} records, got {depth}")
    point = torch.zeros(problem.stream.trials, problem.setting.dim, dtype=torch.float64)
    for t in range(1, depth + 1):
        noise = choice.scale(max(2.0 ** (t - k) / (size >> k) ** 2 for k in range(t + 1)))
        points, directions = [point] * (t + 1), [batches.mean(size, (1.0, point))] * (t + 1)
        for leaf in range(2**t):
            turn = t - ((leaf & -leaf).bit_length() - 1) if leaf else 1  # the depth of the new right child
            for k in range(turn, t + 1):
                points[k], directions[k] = points[k - 1], directions[k - 1]
                if leaf and k == turn:
                    change = batches.mean(size >> k, (1.0, point), (-1.0, points[k - 1]))
                    points[k], directions[k] = point, directions[k - 1] + change
            rate = min(1.0, 2.0 / (2 ** (t - 1) + leaf + 1))
            point = point + rate * (choice.vertex(directions[t], noise) - point)
    return point
