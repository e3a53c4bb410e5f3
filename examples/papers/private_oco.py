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

The script prints tables and draws figures.

    python examples/papers/private_oco.py --workers 2    # some twenty minutes of processor time; seconds with --quick
"""

import itertools
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from experiment import Experiment, Job, Results, listed, scatter, short, table
from private_streams import NOISE, seed_of
from torch import Tensor

from torchonline import DPHDB, DPTOFW, OFUL
from torchonline.baselines import DPFTRL, DPUCB, LocalMD, NoisySFW
from torchonline.core.backend import beside
from torchonline.privacy.accounting import Event, Ledger, NonPrivateEvent
from torchonline.privacy.audit import epsilon_lower_bound
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

    def __init__(self, cell: Cell, seed: int, promised: float = PROMISED) -> None:
        height = math.ceil(math.log2(cell.rounds)) + 1
        log_dim = math.log(cell.dim)
        if cell.dual > 2.0:
            kappa = min(cell.dual - 1.0, math.e**2 * (log_dim - 1.0))
            self.order, shrunk = min(cell.dual - 1.0, log_dim - 1.0), 1.0
        else:
            kappa = cell.dim ** (1.0 - 2.0 / cell.norm)
            self.order, shrunk = 2.0, math.sqrt(kappa)
        sigma = math.sqrt(8.0 * kappa * math.log(height / cell.delta)) * height * promised / EPSILON
        super().__init__(
            cell.rounds,
            sensitivity=2.0 * promised,
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


def play(name: str, trials: int, **options: Any) -> list[dict[str, Any]]:
    """Play all trials and step scales of one algorithm, for each clip."""
    cell = Cell(**options)
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


def play_rival(name: str, trials: int, **options: Any) -> list[dict[str, Any]]:
    """Play all trials of a rival, for each step scale."""
    cell = Cell(**options)
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


def excess_of_0(trials: int, **options: Any) -> list[float]:
    """Return the risk of the decision 0 above that of theta*, per trial."""
    stream = Stream(Cell(**options), trials)
    return (float(stream.x.square().mean()) * stream.theta.square().sum(-1)).tolist()


def step_times(steps: int, **options: Any) -> dict[str, float]:
    """Return the time of a step and its gradients over that of DPTOFW.

    Times are of some steps, the least of five runs that take turns.
    """
    cell = Cell(**options)
    stream, seconds = Stream(cell, 1), dict.fromkeys(ALGORITHMS, math.inf)
    for _ in range(5):
        for name, algorithm in ALGORITHMS.items():
            learner = algorithm.make(cell, algorithm.clips[0], (), 0)
            start = time.perf_counter()
            for x, y in zip(stream.x[:steps, 0], stream.y[:steps, 0], strict=True):
                learner.step(gradients(learner, x, y))
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return {name: seconds[name] / seconds["DPTOFW"] for name in ALGORITHMS if name != "DPTOFW"}


def losses(draws: int, **options: Any) -> float:
    """Return a lower estimate of the epsilon of the algorithm as printed."""
    cell = Cell(**options)
    return AsPrinted(cell, seed_of(cell)).epsilon_at_least(cell, draws)


def audit(name: str, games: int, **options: Any) -> str:
    """Audit the first record by the decisions; all other records have loss 0.

    The statistics are the directions of d_t, which the decisions reveal, at t = 1, 2, 4, ..., where the tree uses one node.
    """
    cell = Cell(**options)
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

    return repr(epsilon_lower_bound(play, delta=cell.delta, games=games))


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
        self.policy.step(self.features(x), arm, reward)


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


def play_bandit(name: str, **options: Any) -> list[dict[str, Any]]:
    """Return the pseudo-regret of all trials, for each point of an algorithm's grid."""
    game, (make, grid) = Game(**options), BANDITS[name]
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
            curve.append([float(value) for value in (total.mean(), total.quantile(0.1), total.quantile(0.9))])
    epsilon = spent_without_seed(bandit, 1.0 / game.rounds) if isinstance(bandit, (DPHDB, DPUCB)) else math.inf
    known = {"epsilon": epsilon if epsilon < math.inf else None, "regret": total.tolist()}
    return known | {"rounds": at, "curve": curve}  # mean, and 10 % and 90 % of trials


def cells(quick: bool) -> list[Cell]:
    rounds, dims = ((40,), (5,)) if quick else (ROUNDS, DIMS)
    return [Cell(norm, length, dim) for norm in NORMS for length in rounds for dim in dims]


def game_of(quick: bool) -> Game:
    return Game(40, 6, 2) if quick else Game(10000, 50, BANDIT_TRIALS)


def players(cell: Cell) -> list[str]:
    """Return the learners of a cell; not every rival supports both norms."""
    return [*ALGORITHMS, *(name for name, (_, _, norms) in RIVALS.items() if cell.norm in norms)]


def jobs(quick: bool) -> dict[str, Job]:
    trials, draws, games, steps = (2, 1000, 100, 40) if quick else (TRIALS, 300_000, 4000, 300)
    game, every = game_of(quick), cells(quick)
    unproved = [cell for cell in every if cell.dual > 2.0]
    found = {f"{name}, {game}": Job(play_bandit, {"name": name} | asdict(game)) for name in BANDITS}
    for name in ALGORITHMS:
        if name != "no privacy":
            told = {"name": name, "games": games} | asdict(unproved[0])
            found[f"audit, {name}, {unproved[0]}"] = Job(audit, told)
    for cell in unproved:
        found[f"losses, {cell}"] = Job(losses, {"draws": draws} | asdict(cell))
    for cell in reversed(every):
        for name in players(cell):
            do = play_rival if name in RIVALS else play
            found[f"{name}, {cell}"] = Job(do, {"name": name, "trials": trials} | asdict(cell))
        found[f"decision 0, {cell}"] = Job(excess_of_0, {"trials": trials} | asdict(cell))
        found[f"times, {cell}"] = Job(step_times, {"steps": steps} | asdict(cell))
    return found


Runs = list[dict[str, Any]]


class Played:
    """Results by cell and game."""

    def __init__(self, results: Results) -> None:
        self.results = results
        is_quick = results.keys() != jobs(False).keys()
        self.cells = cells(is_quick)
        self.game = game_of(is_quick)

    def runs(self, name: str, cell: Cell) -> Runs:
        return self.results[f"{name}, {cell}"]

    def default(self, name: str, cell: Cell) -> list[float]:
        """Return the suboptimality of the first run, per trial."""
        return self.runs(name, cell)[0]["suboptimality"]

    def tuned(self, name: str, cell: Cell) -> list[float]:
        return best(self.runs(name, cell))["suboptimality"]

    def bandits(self) -> dict[str, Runs]:
        return {name: self.results[f"{name}, {self.game}"] for name in BANDITS}

    @property
    def trials(self) -> int:
        return len(self.default("DPTOFW", self.cells[0]))

    def epsilon(self, name: str, cell: Cell) -> str:
        known = self.runs(name, cell)[0]["epsilon"]
        return short(known) if known is not None else f"at least {short(self.results[f'losses, {cell}'])}"

    def of_paper(self, name: str, norm: float) -> list[float]:
        """Return the best mean suboptimality over the paper's number, for each cell that the paper has."""
        return [
            statistics.fmean(self.tuned(name, cell)) / paper
            for cell in self.cells
            if cell.norm == norm and (paper := cell.paper())
        ]

    def below_paper(self, norm: float) -> tuple[int, int]:
        """Count the cells in which DPTOFW has less than the paper, by default and tuned."""
        known = [(cell, paper) for cell in self.cells if cell.norm == norm and (paper := cell.paper())]
        default, tuned = (
            sum(statistics.fmean(of("DPTOFW", cell)) < paper for cell, paper in known)
            for of in (self.default, self.tuned)
        )
        return default, tuned

    def least_regret(self, name: str) -> dict[str, Any]:
        return min(self.bandits()[name], key=lambda run: sum(run["regret"]))


def mean(run: dict[str, Any]) -> float:
    return statistics.fmean(run["suboptimality"])


def best(runs: Runs) -> dict[str, Any]:
    return min(runs, key=mean)


def where(cell: Cell) -> list[str]:
    return [f"{cell.norm:g}", str(cell.rounds), str(cell.dim)]


def main_table(played: Played, norm: float) -> str:
    """Return a table of the paper's numbers and ours, tuned in the same way."""
    rows = []
    for cell in (cell for cell in played.cells if cell.norm == norm):
        rivals = [scatter(played.tuned(name, cell)) for name in list(ALGORITHMS)[:3]]
        default, tuned, paper = played.default("DPTOFW", cell), best(played.runs("DPTOFW", cell)), cell.paper()
        numbers = {"default": statistics.fmean(default), "tuned": mean(tuned)}
        less = [name for name, number in numbers.items() if paper and paper < number]
        chosen = f"{tuned['step_scale']:g}, {tuned['clip']:g}"
        row = [*where(cell)[1:], short(paper) if paper else "", *rivals, scatter(default)]
        rows.append([*row, scatter(tuned["suboptimality"]), chosen, " and ".join(less) or "neither"])
    header = ["T", "d", "paper", "as printed, NOT PRIVATE", "equation (3.2)", "no privacy", "default"]
    return table([*header, "tuned on the data", "its step scale, clip", "paper's is less than"], rows)


def comparison(played: Played) -> list[str]:
    """Compare our runs with the paper's numbers, over all cells."""
    said = []
    for norm in NORMS:
        if not played.of_paper("DPTOFW", norm):
            continue
        for name in ("as printed, NOT PRIVATE", "equation (3.2)"):
            ratios = played.of_paper(name, norm)
            middle = statistics.median(ratios)
            said.append(
                f"p = {norm:g}: {name} / the paper's: {short(min(ratios))} to {short(max(ratios))}, median {short(middle)}"
            )
        proved = [statistics.fmean(played.tuned("equation (3.2)", cell)) for cell in played.cells if cell.norm == norm]
        said.append(f"p = {norm:g}: equation (3.2), all cells: {short(min(proved))} to {short(max(proved))}")
        count = len(proved)
        for what, number in zip(("default", "tuned"), played.below_paper(norm), strict=True):
            said.append(f"p = {norm:g}: DPTOFW, {what}, has less than the paper in {number} of {count} cells")
    return said


def untuned_table(played: Played) -> str:
    rows = [[*where(cell), *(scatter(played.default(name, cell)) for name in ALGORITHMS)] for cell in played.cells]
    return table(["p", "T", "d", *ALGORITHMS], rows)


def risks_table(played: Played) -> str:
    """Return a table of risks E (y - x'theta)^2, with the best steps as above."""
    others, rows = [name for name in ALGORITHMS if name != "DPTOFW"], []
    for cell in played.cells:
        chosen = [*(played.tuned(name, cell) for name in others), played.default("DPTOFW", cell)]
        chosen = [[1.0] * played.trials, *chosen, played.tuned("DPTOFW", cell)]
        zero = played.results[f"decision 0, {cell}"]
        risks = (NOISE**2 + statistics.fmean(a * b for a, b in zip(zero, part, strict=True)) for part in chosen)
        rows.append([*where(cell), *map(short, risks)])
    return table(["p", "T", "d", "decision 0", *others, "default", "tuned on the data"], rows)


def time_verdicts(played: Played) -> list[str]:
    """Return the times of a step, over that of DPTOFW: medians over all cells."""
    found = [played.results[f"times, {cell}"] for cell in played.cells]
    return [
        f"A step takes {statistics.median(each[name] for each in found):.2f} times as long as one of DPTOFW: {name}"
        for name in found[0]
    ]


def with_clip_1(played: Played, name: str, cell: Cell) -> Runs:
    """Return the runs in which all private learners are alike."""
    return [run for run in played.results.get(f"{name}, {cell}", []) if run["clip"] == 1.0]


def rivals_table(played: Played) -> str:
    """Return a table of private learners, all with exact accounting."""
    rows = []
    for cell in played.cells:
        row = where(cell)
        for name in ("DPTOFW", *RIVALS):
            alike = with_clip_1(played, name, cell)
            row += [scatter(run["suboptimality"]) for run in (alike[0], best(alike))] if alike else ["", ""]
        rows.append(row)
    return table(["p", "T", "d", "DPTOFW", "tuned", *(header for name in RIVALS for header in (name, "tuned"))], rows)


def rivals_verdicts(played: Played) -> list[str]:
    """Count the cells in which DPTOFW is better, by default and tuned, with clip 1."""
    said = []
    for name in RIVALS:
        known = [cell for cell in played.cells if name in players(cell)]
        pairs = [(with_clip_1(played, "DPTOFW", cell), with_clip_1(played, name, cell)) for cell in known]
        default = sum(mean(ours[0]) < mean(theirs[0]) for ours, theirs in pairs)
        tuned = sum(mean(best(ours)) < mean(best(theirs)) for ours, theirs in pairs)
        said.append(
            f"DPTOFW has less than {name} in {default} of {len(pairs)} cells by default, in {tuned} with step scales tuned"
        )
    return said


def privacy_table(played: Played) -> str:
    names = [name for name in ALGORITHMS if name != "no privacy"]
    rows = [[*where(cell), *(played.epsilon(name, cell) for name in names)] for cell in played.cells]
    return table(["p", "T", "d", *names], rows)


def audits(played: Played) -> list[str]:
    """Return what the audits say."""
    found = {name: text for name, text in played.results.items() if name.startswith("audit, ")}
    return [f"{name.removeprefix('audit, ')}: {text}" for name, text in found.items()]


def bandit_table(played: Played) -> str:
    rows = []
    for name, runs in sorted(played.bandits().items(), key=lambda item: sum(played.least_regret(item[0])["regret"])):
        run = played.least_regret(name)
        regret = run["regret"]
        chosen = ", ".join(f"{option} {value:g}" for option, value in run["options"].items()) if len(runs) > 1 else ""
        numbers = (statistics.fmean(regret), statistics.stdev(regret), statistics.median(regret))
        epsilon = "" if run["epsilon"] is None else short(run["epsilon"])
        not_for = f"{epsilon}, not for the choice" if chosen else epsilon
        rows.append([name, *(f"{number:.0f}" for number in numbers), not_for, chosen])
    return table(["algorithm", "mean", "sd", "median", "epsilon at delta = 1/T", "chosen on the data"], rows)


def tables(results: Results) -> dict[str, str]:
    played = Played(results)
    trials = played.trials
    made = {
        f"p = {norm:g}: suboptimality after T records, mean ± sd of {trials} trials": main_table(played, norm)
        for norm in NORMS
    }
    if said := comparison(played):
        made["Against the paper's numbers"] = listed(said)
    made[f"All with a step scale of 1, nothing tuned: mean ± sd of {trials} trials"] = untuned_table(played)
    made[f"Risk, mean of {trials} trials"] = risks_table(played)
    made["Time"] = listed(time_verdicts(played))
    title = f"Rivals at (1, 1/T)-privacy: mean ± sd of {trials} trials; the second of two has the step scale tuned on the data"
    made[title] = rivals_table(played)
    made["Cells in which DPTOFW has less"] = listed(rivals_verdicts(played))
    made["Epsilon at delta = 1/T, where all claim 1"] = privacy_table(played)
    made["Audit"] = listed(audits(played))
    game = played.game
    return made | {f"{game}: pseudo-regret after T rounds, {game.trials} trials": bandit_table(played)}


def plot(played: Played, norm: float, path: Path) -> None:
    dims = sorted({cell.dim for cell in played.cells})
    figure, axes = plt.subplots(
        1, len(dims), figsize=(4.4 * len(dims), 4.0), squeeze=False, sharey=True, layout="constrained"
    )
    for axis, dim in zip(axes[0], dims, strict=True):
        found = [cell for cell in played.cells if (cell.norm, cell.dim) == (norm, dim)]
        rounds = [cell.rounds for cell in found]
        lines = {f"{name}, best step": [played.tuned(name, cell) for cell in found] for name in list(ALGORITHMS)[:3]}
        lines["DPTOFW, default"] = [played.default("DPTOFW", cell) for cell in found]
        lines["DPTOFW, tuned on the data"] = [played.tuned("DPTOFW", cell) for cell in found]
        for name, numbers in lines.items():
            low, high = np.quantile(numbers, (0.1, 0.9), axis=1)
            (line,) = axis.plot(rounds, np.mean(numbers, axis=1), label=name, marker="o", markersize=3)
            axis.fill_between(rounds, low, high, color=line.get_color(), alpha=0.1, linewidth=0)
        printed = [(cell.rounds, number) for cell in found if (number := cell.paper())]
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


def plot_bandits(played: Played, path: Path) -> None:
    figure, axis = plt.subplots(figsize=(8.0, 4.8), layout="constrained")
    for name, runs in played.bandits().items():
        run = played.least_regret(name)
        means, low, high = zip(*run["curve"], strict=True)
        (line,) = axis.plot(run["rounds"], means, label=f"{name} on the data" if len(runs) > 1 else name)
        axis.fill_between(run["rounds"], low, high, color=line.get_color(), alpha=0.1, linewidth=0)
    axis.set(title=str(played.game), xlabel="round", ylabel="pseudo-regret: mean, 10 % to 90 % of trials", yscale="log")
    axis.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def figures(results: Results, folder: Path) -> list[Path]:
    played = Played(results)
    paths = {norm: folder / f"private_oco_{norm:g}.png" for norm in NORMS}
    for norm, path in paths.items():
        plot(played, norm, path)
    bandit = folder / "private_oco_bandit.png"
    plot_bandits(played, bandit)
    return [*paths.values(), bandit]


EXPERIMENT = Experiment(__file__, jobs, tables, figures, seeds="the checksum of each setting (private_streams.seed_of)")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
