"""Private online convex optimisation: experiments of the DP-TOFW paper.

The experiments are those of Section 5 of Han, Liang, Liang, Wang, Yao and Zhang (On private online convex optimization,
2022). Table 5.1 is linear regression on a stream, y = <x, theta*> + noise, with the squared loss. x is Gaussian divided by
its norm of order q = p/(p-1). Decisions are in the ball of radius 2 of the norm of order p = 1.5 or infinity. There are T =
1000 to 10,000 records, d = 5, 10, 20 features, and a promise of (1, 1/T)-differential privacy. *Suboptimality* is |theta -
theta*|^2 / |theta*|^2 for the last decision: its risk above the risk of theta*, relative to the same for the decision 0.
theta* is Gaussian divided by its norm of order p. For p = infinity it has random signs, which is implied by the scale of the
paper's figures, but differs from its text. The columns are:

- *paper*: the number printed in the paper for its algorithm, the best of several step scales;
- *as printed*: its algorithm with its two print errors. The squared radius of the noise has the law Gamma(d/2, scale 2
  sigma) where the proof has Gamma(d/2, scale 2 sigma^2); and for p < 2 the noise belongs to the norm of order min(q - 1, log
  d - 1), which is not a norm for few features. THIS IS NOT PRIVATE. It is only here, not in the library, because it comes
  near the paper's figures;
- *equation (3.2)*: the noise that the paper proves, drawn correctly, with gradients clipped so that the paper's assumption
  holds: 2 (beta D + L) = 28;
- *no privacy*: the same steps without noise;
- *default*: ``DPTOFW`` with its defaults, nothing chosen by looking at data;
- *tuned*: the best of five step scales and three clips, chosen on the data: not covered by epsilon.

The columns *as printed*, *equation (3.2)* and *no privacy* also have the best of five step scales, like the paper. A second
table has them without tuning, and one has the risks, E (y - x'theta)^2. A table has the epsilon of each learner's ledger. No
theorem covers the printed algorithm at p = 1.5; for it the table has a lower estimate, from the privacy losses of drawn
noise. Three learners are also audited, at p = 1.5: the attack sees only theta_1, ..., theta_T and tells which of two records
came first. The records' losses are linear, with gradients as long as promised.

The rivals have their own table, each at (1, 1/T)-privacy with exact accounting: NoisySFW; DP-FTRL, the average of its
decisions, only for p = infinity, because it does not support p = 1.5; and LocalMD, for p = 1.5. All have their defaults, and
the best of five step scales, which multiply their default rates, with a clip of 1. NoisySGD passes over the records many
times and is left out.

Figure 5.1 is a bandit, DP-HDB against DP-UCB, with K = 2 arms, d = 50 and T = 10,000. The paper does not state its
environment. Here contexts are uniform in [-1, 1]^d, theta_k has 5 nonzero entries and l1 norm 1, and rewards are x'theta_k
plus normal noise of standard deviation 0.05. *Printed* is the paper's Laplace noise, for beta D + L = 4, which clipping
enforces, and its preselection with h = 0.1. Each arm has its own clock, without which the algorithm is not private. *Tuned*
is the best of a few settings, chosen on the data: not covered by epsilon. DP-UCB is told the noise level of the rewards, and
that no context is longer than sqrt(d).

The script prints tables, draws figures, and writes all numbers to OUTPUT/private_oco.json. Finished runs are kept in
OUTPUT/private_oco and not repeated, even if the code has changed: empty that folder to start again.

    python examples/papers/private_oco.py --workers 2    # seconds with --smoke
"""

import argparse
import itertools
import json
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from private_streams import NOISE, seed_of
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

from torchonline import DPHDB, DPTOFW, OFUL
from torchonline.baselines import DPFTRL, DPUCB, LocalMD, NoisySFW
from torchonline.core.backend import beside
from torchonline.privacy.accounting import Event, Ledger, NonPrivateEvent
from torchonline.privacy.audit import AuditResult, epsilon_lower_bound
from torchonline.privacy.mechanisms.trees import Tree
from torchonline.privacy.noise import noise_source

# Runs are seeded to come again, and delta is 1 / T in the paper: the library warns of both.
warnings.filterwarnings("ignore", message="seed: expected None|delta: expected less")

TRIALS, BANDIT_TRIALS, EPSILON, RADIUS = 10, 5, 1.0, 2.0
# beta D + L for the squared loss: beta = 2 because |x|_q = 1; D = 4; and L = 2 (2 + 1) without the noise in y.
PROMISED = 14.0
ROUNDS, DIMS, NORMS = (1000, 2000, 5000, 10000), (5, 10, 20), (1.5, math.inf)
# The first of each are the defaults.
STEP_SCALES, CLIPS = (1.0, 0.125, 0.25, 0.5, 2.0), (1.0, 0.5, 2.0)
# Rows of OFW in Table 5.1, by p and T, for d = 5, 10, 20.
PAPER = {
    (1.5, 1000): (0.0172, 0.201, 0.775),
    (1.5, 2000): (0.00235, 0.0595, 0.406),
    (1.5, 5000): (0.000702, 0.0163, 0.185),
    (1.5, 10000): (0.000318, 0.00465, 0.0592),
    (math.inf, 1000): (0.112, 0.582, 0.982),
    (math.inf, 2000): (0.0432, 0.364, 0.82),
    (math.inf, 5000): (0.0145, 0.125, 0.637),
    (math.inf, 10000): (0.00293, 0.0467, 0.363),
}


@dataclass(frozen=True)
class Cell:
    """Cell of Table 5.1."""

    norm: float  # p
    rounds: int  # T
    dim: int  # d

    @property
    def dual(self) -> float:
        """Return the order q of the norm of features and gradients."""
        return 1.0 if self.norm == math.inf else self.norm / (self.norm - 1.0)

    @property
    def delta(self) -> float:
        return 1.0 / self.rounds

    def paper(self) -> float | None:
        """Return the suboptimality printed in the paper."""
        row = PAPER.get((self.norm, self.rounds))
        return None if row is None else row[DIMS.index(self.dim)]

    def __str__(self) -> str:
        return f"p = {self.norm:g}, T = {self.rounds}, d = {self.dim}"


@dataclass(frozen=True)
class Algorithm:
    """Maker of a learner with step scale 1, and the clips to try."""

    make: Callable[[Cell, float | None, tuple[int, ...], int], DPTOFW]
    clips: tuple[float | None, ...]  # the default first; None clips nothing


class AsPrinted(Tree):
    r"""NOT PRIVATE: tree with the noise of Algorithm 4 and Lemma 5.1 as printed.

    Let h = ceil(log2 n) + 1 be the number of levels and
    :math:`\sigma_+^2 = 8h^2\kappa\log(h/\delta)(\beta D + L)^2/\varepsilon^2`. The squared norm of the noise should have the law
    Gamma(d/2, scale :math:`2\sigma_+^2`). The paper prints the scale :math:`2\sigma_+`, which has another unit and makes the
    noise too small by a factor of :math:`\sqrt{\sigma_+}`. For q > 2 the printed norm has order min(q - 1, log d - 1). For
    q < 2 it is :math:`\sqrt\kappa\,\|z\|_2`, :math:`\kappa = d^{1-2/p}`.
    """

    name = "paper"

    def __init__(self, cell: Cell, seed: int) -> None:
        height = math.ceil(math.log2(cell.rounds)) + 1
        log_dim = math.log(cell.dim)
        if cell.dual > 2.0:
            kappa = min(cell.dual - 1.0, math.e**2 * (log_dim - 1.0))
            self.order, shrunk = min(cell.dual - 1.0, log_dim - 1.0), 1.0
        else:
            kappa = cell.dim ** (1.0 - 2.0 / cell.norm)
            self.order, shrunk = 2.0, math.sqrt(kappa)
        sigma = math.sqrt(8.0 * kappa * math.log(height / cell.delta)) * height * PROMISED / EPSILON
        super().__init__(
            cell.rounds,
            sensitivity=2.0 * PROMISED,
            noise_scale=math.sqrt(sigma) / shrunk,
            source=noise_source("torch", seed),
        )
        self.numbers = np.random.default_rng(seed)

    def event(self, steps: int) -> Event:
        """Return the exact event of normal noise; for other noise nothing is proved."""
        return super().event(steps) if self.order == 2.0 else NonPrivateEvent()

    def _release(self, row: Tensor) -> Tensor:
        if self.order == 2.0:
            return super()._release(row)
        return row + beside(self.draw(tuple(row.shape)), row)

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        """Draw with density proportional to exp(-|z|_r^2 / (2 scale^2)), for any r > 0."""
        size = self.numbers.standard_gamma(1.0 / self.order, shape)  # |e|^r
        size = (size / size.sum(-1, keepdims=True)) ** (1.0 / self.order)
        radius = np.sqrt(2.0 * self.numbers.standard_gamma(0.5 * shape[-1], (*shape[:-1], 1)))
        sign = 2.0 * self.numbers.integers(0, 2, shape) - 1.0
        return torch.from_numpy(self.noise_scale * radius * sign * size)

    def epsilon_at_least(self, cell: Cell, draws: int) -> float:
        """Estimate epsilon of all prefixes from below.

        The record moves its summand as far as promised, in one direction. It is in as many nodes as the tree has levels. Let l
        be the log-ratio of the densities at drawn noise. Then delta(eps) = E max(0, 1 - exp(eps - l)). The result is the epsilon
        at which the mean over the draws, less 3 standard errors, equals delta.
        """
        nodes, dim = cell.rounds.bit_length(), cell.dim
        shift = self.sensitivity * dim ** (-1.0 / cell.dual)
        loss = torch.zeros(draws, dtype=torch.float64)
        for _ in range(nodes):
            noise = self.draw((draws, dim))
            loss += (self._square(noise + shift) - self._square(noise)) / (2.0 * self.noise_scale**2)
        low, high = 0.0, float(loss.max().clamp(min=0.0))
        for _ in range(60):
            middle = (low + high) / 2.0
            excess = -torch.expm1((middle - loss).clamp(max=0.0))
            enough = float(excess.mean() - 3.0 * excess.std() / math.sqrt(draws)) >= cell.delta
            low, high = (middle, high) if enough else (low, middle)
        return low

    def _square(self, noise: Tensor) -> Tensor:
        return (noise.abs() ** self.order).sum(-1) ** (2.0 / self.order)


def promise(cell: Cell, clip: float | None, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
    """Return the options common to all learners."""
    told = {"horizon": cell.rounds, "epsilon": EPSILON, "delta": cell.delta, "norm": cell.norm, "radius_bound": RADIUS}
    return told | {"clip": clip, "batch_shape": shape, "seed": seed}


def dptofw(cell: Cell, clip: float | None, shape: tuple[int, ...], seed: int, **options: Any) -> DPTOFW:
    """Return the library's learner with the given options."""
    return DPTOFW(cell.dim, **promise(cell, clip, shape, seed) | options)


def as_printed(cell: Cell, clip: float | None, shape: tuple[int, ...], seed: int) -> DPTOFW:
    """Return the learner as printed. Not private: no clipping, too little noise."""
    learner: Any = dptofw(cell, 1e6, shape, seed, scheme="paper", mechanism="tree")
    vars(learner)["noise"] = AsPrinted(cell, seed)  # a plain assignment is refused
    return learner


def equation(cell: Cell, clip: float | None, shape: tuple[int, ...], seed: int) -> DPTOFW:
    return dptofw(cell, clip, shape, seed, scheme="paper", mechanism="paper")


def no_privacy(cell: Cell, clip: float | None, shape: tuple[int, ...], seed: int) -> DPTOFW:
    return dptofw(cell, math.inf, shape, seed, epsilon=math.inf)


ALGORITHMS = {
    "as printed, NOT PRIVATE": Algorithm(as_printed, (None,)),
    "equation (3.2)": Algorithm(equation, (PROMISED,)),
    "no privacy": Algorithm(no_privacy, (None,)),
    "DPTOFW": Algorithm(dptofw, CLIPS),
}
# Class, rate that a step scale multiplies, and supported norms of each rival.
RIVALS: dict[str, tuple[Any, str, tuple[float, ...]]] = {
    "NoisySFW": (NoisySFW, "step_size", NORMS),
    "DP-FTRL": (DPFTRL, "learning_rate", (math.inf,)),
    "LocalMD": (LocalMD, "learning_rate", (1.5,)),
}


class Stream:
    """Records of a cell: ``(T, trials, d)`` features and ``(T, trials)`` responses."""

    def __init__(self, cell: Cell, trials: int) -> None:
        generator = torch.Generator().manual_seed(seed_of(cell))
        normal = {"generator": generator, "dtype": torch.float64}
        theta = torch.randn(trials, cell.dim, **normal)
        theta = theta.sign() if cell.norm == math.inf else theta
        self.theta = theta / torch.linalg.vector_norm(theta, cell.norm, dim=-1, keepdim=True)
        x = torch.randn(cell.rounds, trials, cell.dim, **normal)
        self.x = x / torch.linalg.vector_norm(x, cell.dual, dim=-1, keepdim=True)
        self.y = (self.x * self.theta).sum(-1) + NOISE * torch.randn(cell.rounds, trials, **normal)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(self.x, self.y, strict=True))

    def suboptimality(self, theta: Tensor) -> Tensor:
        """Return the suboptimality, exact because E xx' is a multiple of the identity."""
        return (theta - self.theta).square().sum(-1) / self.theta.square().sum(-1)


def gradients(learner: Any, x: Tensor, y: Tensor) -> Tensor:
    """Return gradients of the squared loss at the learner's query points."""
    points = learner.secret_queries() if isinstance(learner, LocalMD) else learner.queries()
    residual = (points * x.unsqueeze(-2)).sum(-1) - y.unsqueeze(-1)
    return 2.0 * residual.unsqueeze(-1) * x.unsqueeze(-2)


def play(name: str, cell: Cell, trials: int) -> list[dict[str, Any]]:
    """Play all trials and step scales of one algorithm, for each clip."""
    torch.set_num_threads(1)
    stream, found = Stream(cell, trials), []
    scales = torch.tensor(STEP_SCALES, dtype=torch.float64)[:, None, None]
    for clip in ALGORITHMS[name].clips:
        learner = ALGORITHMS[name].make(cell, clip, (len(STEP_SCALES), trials), seed_of(name, cell, clip))
        for x, y in stream:
            before = learner.predict()
            learner.step(gradients(learner, x, y))
            # Rescale the learner's step of 1 / (t + 1) to c / (t + 1), which is at most 1.
            learner.theta.copy_(before.lerp(learner.theta, scales))
        final = stream.suboptimality(learner.predict())
        epsilon = spent_without_seed(learner, cell.delta)
        known = {"clip": clip, "epsilon": epsilon if epsilon < math.inf else None}
        found += [
            {"step_scale": scale, **known, "suboptimality": numbers.tolist()}
            for scale, numbers in zip(STEP_SCALES, final, strict=True)
        ]
    return found


def spent_without_seed(learner: Any, delta: float) -> float:
    """Return the epsilon of the same run without a seed; with one it is infinite."""
    ledger = learner.privacy_ledger()
    return Ledger(ledger.adjacency, ledger.events[:1]).epsilon(delta)


def play_rival(name: str, cell: Cell, trials: int) -> list[dict[str, Any]]:
    """Play all trials of a rival, for each step scale."""
    torch.set_num_threads(1)
    stream, found = Stream(cell, trials), []
    kind, rate, _ = RIVALS[name]
    for scale in STEP_SCALES:
        told = promise(cell, 1.0, (trials,), seed_of(name, cell, scale))
        default = getattr(kind(cell.dim, **told), rate)
        learner = kind(cell.dim, **told, **{rate: scale * default})
        for x, y in stream:
            learner.step(gradients(learner, x, y))
        final = stream.suboptimality(learner.average() if isinstance(learner, DPFTRL) else learner.predict())
        known = {"clip": 1.0, "epsilon": spent_without_seed(learner, cell.delta)}
        found.append({"step_scale": scale, **known, "suboptimality": final.tolist()})
    return found


def audit(name: str, cell: Cell, games: int) -> AuditResult:
    """Audit the first record by the decisions; all other records have loss 0.

    The statistics are the directions of d_t, which the decisions reveal, at t = 1, 2, 4, ..., where the tree uses one node.
    """
    record = torch.full((cell.dim,), PROMISED * cell.dim ** (-1.0 / cell.dual), dtype=torch.float64)
    seeds = itertools.count(seed_of("audit", name, cell))

    def play(world: int, games: int) -> Tensor:
        learner = ALGORITHMS[name].make(cell, ALGORITHMS[name].clips[0], (games,), next(seeds))
        nothing = torch.zeros_like(learner.queries())
        found = []
        for step in range(1, cell.rounds + 1):
            before = learner.predict()
            learner.step(nothing + (1 - 2 * world) * record if step == 1 else nothing)
            if step & (step - 1) == 0:
                vertex = before + (learner.predict() - before) * (step + 1)
                found.append((vertex.sign() * vertex.abs() ** (cell.norm - 1.0)).sum(-1))
        return torch.stack(found, -1)

    return epsilon_lower_bound(play, delta=cell.delta, games=games)


@dataclass(frozen=True)
class Game:
    """Bandit of Figure 5.1, with a number of trials."""

    rounds: int
    dim: int
    trials: int
    arms: int = 2
    sparsity: int = 5

    def promise(self, seed: int) -> dict[str, Any]:
        """Return the options common to all private bandits."""
        told = {"arms": self.arms, "horizon": self.rounds, "epsilon": EPSILON, "delta": 1.0 / self.rounds}
        return told | {"batch_shape": (self.trials,), "seed": seed}

    def __str__(self) -> str:
        return f"K = {self.arms}, d = {self.dim}, T = {self.rounds}"


class Uniform:
    """Uniform random choice of arms."""

    def __init__(self, game: Game, seed: int) -> None:
        self.game = game
        self.generator = torch.Generator().manual_seed(seed)

    def select(self, x: Tensor) -> Tensor:
        return torch.randint(self.game.arms, (self.game.trials,), generator=self.generator)

    def step(self, x: Tensor, arm: Tensor, reward: Tensor) -> None:
        """Learn nothing."""


class SharedContext:
    """OFUL with one context and a block per arm of a parameter of norm up to sqrt(K)."""

    def __init__(self, game: Game, seed: int) -> None:
        size, bound = game.arms * game.dim, math.sqrt(game.arms)
        self.policy = OFUL(size, theta_bound=bound, noise_scale=NOISE, batch_shape=(game.trials,), delta=0.01)
        self.arms = torch.eye(game.arms, dtype=torch.float64).unsqueeze(-1)

    def features(self, x: Tensor) -> Tensor:
        return (self.arms * x[:, None, None, :]).flatten(-2)

    def select(self, x: Tensor) -> Tensor:
        return self.policy.select(self.features(x))

    def step(self, x: Tensor, arm: Tensor, reward: Tensor) -> None:
        self.policy.step(torch.take_along_dim(self.features(x), arm[:, None, None], -2).squeeze(-2), reward)


def dphdb(game: Game, seed: int, **options: Any) -> DPHDB:
    """Return DPHDB with a warm-up of a fortieth of the rounds for each arm."""
    return DPHDB(game.dim, **{"warmup": max(1, game.rounds // 40)} | game.promise(seed) | options)


def dphdb_without_privacy(game: Game, seed: int) -> DPHDB:
    return dphdb(game, seed, epsilon=math.inf, clip=math.inf, reward_clip=math.inf)


def dphdb_printed(game: Game, seed: int) -> DPHDB:
    """Return DPHDB with the paper's Laplace noise.

    Its scale is 4 D (beta D + L) sqrt(log n log(1/delta)) / (epsilon sqrt(t)), with D = 2, beta = 1 and L = 2.
    """
    bandit: Any = dphdb(game, seed, mechanism="laplace", scheme="paper", clip=4.0, step_scale=1.0, gap=0.1)
    for arm in bandit.arms:
        scale = 4.0 * 2.0 * 4.0 * math.sqrt(math.log(arm.horizon) * math.log(game.rounds)) / EPSILON
        # No option of the library: it cannot be set.
        vars(arm.noise).update(rho=arm.noise.rho * (arm.noise.scale / scale) ** 2, scale=scale)
    return bandit


def dpucb(game: Game, seed: int, **options: Any) -> DPUCB:
    told = {"feature_clip": math.sqrt(game.dim), "noise_scale": NOISE}
    return DPUCB(game.dim, **told | game.promise(seed) | options)


def points(**values: tuple[float, ...]) -> tuple[dict[str, Any], ...]:
    """Return all combinations of option values."""
    return tuple(dict(zip(values, point, strict=True)) for point in itertools.product(*values.values()))


BANDITS: dict[str, tuple[Callable[..., Any], tuple[dict[str, Any], ...]]] = {
    "uniform": (Uniform, ({},)),
    "UCB, no privacy": (SharedContext, ({},)),
    "HDB, no privacy": (dphdb_without_privacy, ({},)),
    "DP-HDB, printed": (dphdb_printed, ({},)),
    "DP-HDB, Gumbel": (dphdb, ({"mechanism": "gumbel"},)),
    "DP-HDB": (dphdb, ({},)),
    "DP-HDB, tuned": (dphdb, points(step_scale=(0.5, 1.0), clip=(0.5, 1.0, 2.0))),
    "DP-UCB, original": (dpucb, ({"constants": "original"},)),
    "DP-UCB": (dpucb, ({},)),
    "DP-UCB, tuned": (dpucb, points(feature_clip=(7.0, 4.0), theta_bound=(1.0, 0.1))),
}


def play_bandit(name: str, game: Game) -> list[dict[str, Any]]:
    """Return the pseudo-regret of all trials, for each point of an algorithm's grid."""
    torch.set_num_threads(1)
    make, grid = BANDITS[name]
    return [{"options": options, **play_game(make(game, seed_of(name, options), **options), game)} for options in grid]


def play_game(bandit: Any, game: Game) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed_of(game))
    normal = {"generator": generator, "dtype": torch.float64}
    shape = (game.trials, game.arms, game.dim)
    where = torch.rand(shape, **normal).argsort(-1) < game.sparsity
    theta = torch.where(where, torch.randn(shape, **normal), 0.0)
    theta /= theta.abs().sum(-1, keepdim=True)
    total = torch.zeros(game.trials, dtype=torch.float64)
    at, curve = [], []
    for t in range(1, game.rounds + 1):
        x = 2.0 * torch.rand(game.trials, game.dim, **normal) - 1.0
        noise = NOISE * torch.randn(game.trials, **normal)
        means = (theta @ x.unsqueeze(-1)).squeeze(-1)
        arm = bandit.select(x)
        mean = torch.take_along_dim(means, arm.unsqueeze(-1), -1).squeeze(-1)
        bandit.step(x, arm, mean + noise)
        total += means.amax(-1) - mean
        if t % max(1, game.rounds // 100) == 0:
            at.append(t)
            curve.append(total.tolist())
    epsilon = spent_without_seed(bandit, 1.0 / game.rounds) if isinstance(bandit, (DPHDB, DPUCB)) else math.inf
    return {"epsilon": epsilon if epsilon < math.inf else None, "rounds": at, "regret": curve}


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """Load the contents of a file, or make and save them."""
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(make()))
        unfinished.replace(path)
    return json.loads(path.read_text())


def run(name: str, cell: Cell, trials: int, folder: Path) -> list[dict[str, Any]]:
    play_it = play_rival if name in RIVALS else play
    return kept(folder / f"{name}, {cell}, {trials}.json", lambda: play_it(name, cell, trials))


def run_losses(cell: Cell, draws: int, folder: Path) -> float:
    def estimate() -> float:
        return AsPrinted(cell, seed_of(cell)).epsilon_at_least(cell, draws)

    return kept(folder / f"losses, {cell}, {draws}.json", estimate)


def run_audit(name: str, cell: Cell, games: int, folder: Path) -> dict[str, Any]:
    def result() -> dict[str, Any]:
        found = audit(name, cell, games)
        return {"said": repr(found), **asdict(found)}

    return kept(folder / f"audit, {name}, {cell}, {games}.json", result)


def run_bandit(name: str, game: Game, folder: Path) -> list[dict[str, Any]]:
    return kept(folder / f"{name}, {game}, {game.trials}.json", lambda: play_bandit(name, game))


def mean(run: dict[str, Any]) -> float:
    return sum(run["suboptimality"]) / len(run["suboptimality"])


def spread(run: dict[str, Any]) -> str:
    numbers = torch.tensor(run["suboptimality"], dtype=torch.float64)
    return f"{short(numbers.mean())} ± {short(numbers.std())}"


def short(number: Any) -> str:
    """Return a number with three digits."""
    number = float(number)
    return f"{number:.3g}" if number < 0.001 else f"{number:.{max(0, 2 - math.floor(math.log10(number)))}f}"


Runs = list[dict[str, Any]]
Results = dict[Cell, dict[str, Runs]]


def best(runs: Runs) -> dict[str, Any]:
    return min(runs, key=mean)


def first(runs: Runs) -> dict[str, Any]:
    """Return the default run."""
    return runs[0]


def scales(run: dict[str, Any]) -> str:
    return f"{run['step_scale']:g}" + (f", {run['clip']:g}" if run["clip"] else "")


def main_table(results: Results, norm: float, trials: int) -> Table:
    """Return a table of the paper's numbers and ours, tuned in the same way."""
    title = f"p = {norm:g}: suboptimality after T records, mean ± sd of {trials} trials"
    table = Table(title=title, title_justify="left")
    for header in ("T", "d", "paper", "as printed, NOT PRIVATE", "equation (3.2)", "no privacy"):
        table.add_column(header, justify="right")
    for header in ("default", "tuned on the data", "its step scale, clip", "paper's is less than"):
        table.add_column(header, justify="right")
    for cell, runs in results.items():
        if cell.norm == norm:
            rivals = [spread(best(runs[name])) for name in list(ALGORITHMS)[:3]]
            ours, tuned, paper = runs["DPTOFW"][0], best(runs["DPTOFW"]), cell.paper()
            numbers = (mean(ours), mean(tuned))
            less = [
                what for what, number in zip(("default", "tuned"), numbers, strict=True) if paper and paper < number
            ]
            row = [str(cell.rounds), str(cell.dim), short(paper) if paper else "", *rivals]
            table.add_row(*row, spread(ours), spread(tuned), scales(tuned), " and ".join(less) or "neither")
    return table


def untuned_table(results: Results, trials: int) -> Table:
    table = Table(
        title=f"All with a step scale of 1, nothing tuned: mean ± sd of {trials} trials", title_justify="left"
    )
    for header in ("p", "T", "d", *ALGORITHMS):
        table.add_column(header, justify="right")
    for cell, runs in results.items():
        numbers = [spread(runs[name][0]) for name in ALGORITHMS]
        table.add_row(f"{cell.norm:g}", str(cell.rounds), str(cell.dim), *numbers)
    return table


def risks_table(results: Results, trials: int) -> Table:
    """Return a table of risks E (y - x'theta)^2, with the best steps as above."""
    table = Table(title=f"Risk, mean of {trials} trials", title_justify="left")
    others = [name for name in ALGORITHMS if name != "DPTOFW"]
    for header in ("p", "T", "d", "decision 0", *others, "default", "tuned on the data"):
        table.add_column(header, justify="right")
    for cell, runs in results.items():
        stream = Stream(cell, trials)
        of_0 = float(stream.x.square().mean()) * stream.theta.square().sum(-1)
        chosen = [*(best(runs[name]) for name in others), runs["DPTOFW"][0], best(runs["DPTOFW"])]
        parts = [torch.ones(trials), *(torch.tensor(run["suboptimality"]) for run in chosen)]
        numbers = [short(NOISE**2 + (of_0 * part).mean()) for part in parts]
        table.add_row(f"{cell.norm:g}", str(cell.rounds), str(cell.dim), *numbers)
    return table


def time_verdicts(results: Results) -> list[str]:
    """Return the times of a step, over that of DPTOFW: medians over all cells."""
    seconds = [times(cell, Stream(cell, 1)) for cell in results]
    ratios = {
        name: float(torch.tensor([found[name] / found["DPTOFW"] for found in seconds]).median())
        for name in ALGORITHMS
        if name != "DPTOFW"
    }
    return [f"A step takes {ratio:.2f} times as long as one of DPTOFW: {name}" for name, ratio in ratios.items()]


def times(cell: Cell, stream: Stream, steps: int = 300) -> dict[str, float]:
    """Return the time of some steps and their gradients, the least of five runs that take turns."""
    seconds = dict.fromkeys(ALGORITHMS, math.inf)
    for _ in range(5):
        for name, algorithm in ALGORITHMS.items():
            learner = algorithm.make(cell, algorithm.clips[0], (), 0)
            start = time.perf_counter()
            for x, y in zip(stream.x[:steps, 0], stream.y[:steps, 0], strict=True):
                learner.step(gradients(learner, x, y))
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def rivals_table(results: Results, trials: int) -> Table:
    """Return a table of private learners, all with exact accounting."""
    title = f"Rivals at (1, 1/T)-privacy: mean ± sd of {trials} trials; the second of two has the step scale tuned on the data"
    table = Table(title=title, title_justify="left")
    for header in ("p", "T", "d", "DPTOFW", "tuned", *(header for name in RIVALS for header in (name, "tuned"))):
        table.add_column(header, justify="right")
    for cell, runs in results.items():
        row = [f"{cell.norm:g}", str(cell.rounds), str(cell.dim)]
        for name in ("DPTOFW", *RIVALS):
            alike = [run for run in runs.get(name, []) if run["clip"] == 1.0]
            row += [spread(alike[0]), spread(best(alike))] if alike else ["", ""]
        table.add_row(*row)
    return table


def rivals_verdicts(results: Results) -> list[str]:
    """Count the cells in which DPTOFW is better, by default and tuned, with clip 1."""
    said = []
    for name in RIVALS:
        pairs = [(runs["DPTOFW"], runs[name]) for runs in results.values() if name in runs]
        pairs = [([run for run in ours if run["clip"] == 1.0], theirs) for ours, theirs in pairs]
        default, tuned = (sum(mean(of(ours)) < mean(of(theirs)) for ours, theirs in pairs) for of in (first, best))
        said.append(
            f"DPTOFW has less than {name} in {default} of {len(pairs)} cells by default, in {tuned} with step scales tuned"
        )
    return said


def privacy_table(results: Results, estimates: dict[Cell, float]) -> Table:
    table = Table(title="Epsilon at delta = 1/T, where all claim 1", title_justify="left")
    names = [name for name in ALGORITHMS if name != "no privacy"]
    for header in ("p", "T", "d", *names):
        table.add_column(header, justify="right")
    for cell, runs in results.items():
        row = [f"{cell.norm:g}", str(cell.rounds), str(cell.dim)]
        for name in names:
            known = runs[name][0]["epsilon"]
            row.append(short(known) if known is not None else f"at least {short(estimates[cell])}")
        table.add_row(*row)
    return table


def verdicts(results: Results, norm: float) -> list[str]:
    """Compare our runs with the paper's numbers, over all cells."""
    cells = [cell for cell in results if cell.norm == norm and cell.paper()]
    if not cells:
        return []
    ratios = {
        name: torch.tensor([mean(best(results[cell][name])) / (cell.paper() or math.nan) for cell in cells])
        for name in ("as printed, NOT PRIVATE", "equation (3.2)")
    }
    said = [
        f"p = {norm:g}: {name} / the paper's: {short(ratio.min())} to {short(ratio.max())}, median {short(ratio.quantile(0.5))}"
        for name, ratio in ratios.items()
    ]
    proved = [mean(best(results[cell]["equation (3.2)"])) for cell in cells]
    said.append(f"p = {norm:g}: equation (3.2), all cells: {short(min(proved))} to {short(max(proved))}")
    for what, choose in (("default", first), ("tuned", best)):
        count = sum(mean(choose(results[cell]["DPTOFW"])) < (cell.paper() or math.nan) for cell in cells)
        said.append(f"p = {norm:g}: DPTOFW, {what}, has less than the paper in {count} of {len(cells)} cells")
    return said


def plot(results: Results, norm: float, path: Path) -> None:
    dims = sorted({cell.dim for cell in results})
    figure, axes = plt.subplots(
        1, len(dims), figsize=(4.4 * len(dims), 4.0), squeeze=False, sharey=True, layout="constrained"
    )
    for axis, dim in zip(axes[0], dims, strict=True):
        cells = [cell for cell in results if (cell.norm, cell.dim) == (norm, dim)]
        rounds = [cell.rounds for cell in cells]
        lines = {f"{name}, best step": [best(results[cell][name]) for cell in cells] for name in list(ALGORITHMS)[:3]}
        lines |= {f"{name}, default": [results[cell][name][0] for cell in cells] for name in list(ALGORITHMS)[3:]}
        lines |= {
            f"{name}, tuned on the data": [best(results[cell][name]) for cell in cells] for name in list(ALGORITHMS)[3:]
        }
        for name, runs in lines.items():
            numbers = torch.tensor([run["suboptimality"] for run in runs], dtype=torch.float64)
            low, high = numbers.quantile(torch.tensor([0.1, 0.9], dtype=numbers.dtype), dim=1)
            (line,) = axis.plot(rounds, numbers.mean(1), label=name, marker="o", markersize=3)
            axis.fill_between(rounds, low, high, color=line.get_color(), alpha=0.1, linewidth=0)
        printed = [(cell.rounds, number) for cell in cells if (number := cell.paper())]
        if printed:
            axis.plot(*zip(*printed, strict=True), "kx--", label="the paper's numbers")
        axis.set(title=f"p = {norm:g}, d = {dim}", xlabel="T", xscale="log", yscale="log")
        axis.set_xticks(rounds, list(map(str, rounds)))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("suboptimality: mean, 10 % to 90 % of trials")
    figure.legend(*axes[0][0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def least_regret(runs: Runs) -> dict[str, Any]:
    return min(runs, key=lambda run: sum(run["regret"][-1]))


def bandit_table(results: dict[str, Runs], game: Game) -> Table:
    table = Table(title=f"{game}: pseudo-regret after T rounds, {game.trials} trials", title_justify="left")
    table.add_column("algorithm", no_wrap=True)
    for header in ("mean", "sd", "median", "epsilon at delta = 1/T", "chosen on the data"):
        table.add_column(header, justify="right")
    for name, runs in sorted(results.items(), key=lambda item: sum(least_regret(item[1])["regret"][-1])):
        run = least_regret(runs)
        final = torch.tensor(run["regret"][-1], dtype=torch.float64)
        chosen = ", ".join(f"{option} {value:g}" for option, value in run["options"].items()) if len(runs) > 1 else ""
        numbers = [f"{float(number):.0f}" for number in (final.mean(), final.std(), final.quantile(0.5))]
        epsilon = "" if run["epsilon"] is None else short(run["epsilon"])
        table.add_row(name, *numbers, epsilon if not chosen else f"{epsilon}, not for the choice", chosen)
    return table


def plot_bandits(results: dict[str, Runs], game: Game, path: Path) -> None:
    figure, axis = plt.subplots(figsize=(8.0, 4.8), layout="constrained")
    for name, runs in results.items():
        run = least_regret(runs)
        regret = torch.tensor(run["regret"], dtype=torch.float64)
        low, high = regret.quantile(torch.tensor([0.1, 0.9], dtype=regret.dtype), dim=1)
        (line,) = axis.plot(run["rounds"], regret.mean(1), label=f"{name} on the data" if len(runs) > 1 else name)
        axis.fill_between(run["rounds"], low, high, color=line.get_color(), alpha=0.1, linewidth=0)
    axis.set(title=str(game), xlabel="round", ylabel="pseudo-regret: mean, 10 % to 90 % of trials", yscale="log")
    axis.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--bandit-trials", type=int, default=BANDIT_TRIALS)
    parser.add_argument("--draws", type=int, default=300_000, help="of noise, for the epsilon that no theorem gives")
    parser.add_argument("--games", type=int, default=4000, help="of an audit, in each world")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few rounds of everything, to see that it runs")
    options = parser.parse_args()
    for name in ("trials", "bandit_trials", "draws", "games", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected at least 1, got {getattr(options, name)}")
    trials, draws, games, rounds, dims = options.trials, options.draws, options.games, ROUNDS, DIMS
    game = Game(10000, 50, options.bandit_trials)
    if options.smoke:
        trials, draws, games, rounds, dims = 2, 1000, 100, (40,), (5,)
        game = Game(40, 6, 2)

    console = Console()
    folder = options.output / "private_oco"
    folder.mkdir(parents=True, exist_ok=True)
    cells = [Cell(norm, length, dim) for norm in NORMS for length in rounds for dim in dims]
    results: Results = {cell: {} for cell in cells}
    bandits: dict[str, Runs] = {}
    unproved = [cell for cell in cells if cell.dual > 2.0]
    estimates: dict[Any, float] = {}
    audits: dict[Any, dict[str, Any]] = {}
    jobs: list[tuple[dict[Any, Any], Any, tuple[Any, ...]]] = [
        *((bandits, name, (run_bandit, name, game, folder)) for name in BANDITS),
        *((audits, name, (run_audit, name, unproved[0], games, folder)) for name in ALGORITHMS if name != "no privacy"),
        *((estimates, cell, (run_losses, cell, draws, folder)) for cell in unproved),
        *(
            (results[cell], name, (run, name, cell, trials, folder))
            for cell in reversed(cells)
            for name in (*ALGORITHMS, *(name for name, (_, _, norms) in RIVALS.items() if cell.norm in norms))
        ),
    ]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("runs", total=len(jobs))
        if options.workers == 1:
            for found, key, (make, *told) in jobs:
                found[key] = make(*told)
                progress.advance(task)
        else:
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
                futures = {pool.submit(*call): (found, key) for found, key, call in jobs}
                for future in as_completed(futures):
                    found, key = futures[future]
                    found[key] = future.result()
                    progress.advance(task)

    for norm in NORMS:
        console.print(main_table(results, norm, trials))
        for line in verdicts(results, norm):
            console.print(line)
    console.print(untuned_table(results, trials))
    console.print(risks_table(results, trials))
    for line in time_verdicts(results):
        console.print(line)
    console.print(rivals_table(results, trials))
    for line in rivals_verdicts(results):
        console.print(line)
    console.print(privacy_table(results, estimates))
    for name in (name for name in ALGORITHMS if name in audits):
        console.print(f"Audit of {name}, {unproved[0]}: {audits[name]['said']}")
    console.print(bandit_table({name: bandits[name] for name in BANDITS}, game))
    path = options.output / "private_oco.json"
    table = [
        {"cell": str(cell), "paper": cell.paper(), "epsilon as printed, at least": estimates.get(cell), **runs}
        for cell, runs in results.items()
    ]
    path.write_text(json.dumps({"regression": table, "audits": audits, "bandits": bandits}, indent=1))
    console.print(f"All numbers: {path}")
    for norm in NORMS:
        path = options.output / f"private_oco_{norm:g}.png"
        plot(results, norm, path)
        console.print(f"Suboptimality against T: {path}")
    path = options.output / "private_oco_bandit.png"
    plot_bandits({name: bandits[name] for name in BANDITS}, game, path)
    console.print(f"Regret curves: {path}")


if __name__ == "__main__":
    main()
