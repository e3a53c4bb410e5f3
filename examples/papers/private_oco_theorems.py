"""Private online convex optimisation: the DP-TOFW paper's theorems with their constants, beside what was measured.

The paper is that of ``private_oco.py``. Its appendix states each theorem with constants. The experiments, with which the names of
the jobs begin:

- *bounds*, 1 < p: Proposition A.2 (of 3.1), Theorems A.1 (of 3.2) and A.2 (of 3.3) and their sums (Corollaries 3.1 and 3.2). The
  stream is linear regression with noise of +0.05 or -0.05, theta* of norm 1 in the ball of radius 2, so that beta = 2, D = 4,
  L = 6.1, G = 2 L and gamma = 1 are true. d is 10. *Proved* is Algorithm 1 with the noise of equation (3.2).
- *bounds*, p = 1: Theorems 3.5 and 3.6 and their sums, equations (3.12) and (3.13). Features are random signs, d is 20.
  *Printed* is Algorithm 2 with its Laplace noise.
- *curvature*: excess of p = 1 against d where mu is 2/d in the l1 norm, without privacy and with the printed noise.
- *arms*: Lemma 4.1 and Theorem 4.2, the errors of an arm's recursive gradient in the maximum norm and of its parameter in the l1
  norm, where the arms' own decisions choose the records, and where chance does.
- *margin*: what Theorem 4.2 needs of the environment of Figure 5.1.
- *horizon*: Theorems 4.1 to 4.3 in T. The warm-up has 2.2 log(T) log(dT) rounds for each arm, the order of Theorem 4.2.
- *last*: rivals of Table 1.1 that release one decision (``offline_rivals.py``), beside ``DPTOFW`` and ``DPPOFW``. *Tuned* is the
  best of five rates, or numbers of phases, and three clips for each, chosen on the data: not covered by epsilon.
- *regret*: Table 1.2: ``DPFTRL``, the algorithm behind two of its rows, beside ``DPTOFW``.
- *noise*: the epsilon of the noise as printed with the constants of the authors' program, beta D + L = 8.
- *audit*: Theorem 3.4: the first record of Algorithm 2 with the Laplace noise as printed.

delta is 0.1/n. A bound holds with a probability of 0.95, and the largest of the trials is compared with it. All streams are those
of ``private_streams.py``.

    python examples/papers/private_oco_theorems.py --workers 2    # some ten minutes of processor time; seconds with --quick

## Proofs

Numbers and letters are those of [the errata](private_oco_theory.md).

**Theorem A.2.** *Corrected.* Let ℓ = log n + 1. Then h_t ≤ A/(t+1) + B/(t+1)² with A = 200 C₁²/(γ²μ) and B = 61 C₂² ℓ²/(γ²μ),
for all t ≤ n, on the event that Proposition A.2, with α/n, holds at all t ≤ n. *Proof.* ∇F(θ*) = 0 by Assumption 3.1. C₁ ≥
βD² ≥ γ²μ and C₂ ≥ βD²/2 (Lemma A.1). So the bound holds at t = 1, and it holds at t + 1 if √h_t ≤ γ√(2μ)/(t+1), because then
h_{t+1} ≤ C₁/(t+1)^{3/2} + C₂/(t+1)². Otherwise the right side of (A.11) grows with h_t, and the bound at t gives

h_{t+1} - A/(t+2) - B/(t+2)² ≤ A/(t+1)² + 2B/(t+1)³ - 9 C₁/(t+1)^{3/2} - 4.5 C₂ ℓ/(t+1)²,

since γ√(2μA)/2 = 10 C₁ and γ√(2μB)/2 ≥ 5.5 C₂ ℓ. If A/(t+1) + 2B/(t+1)² ≤ 9 C₁/√(t+1) + 4.5 C₂ ℓ/(t+1), the bound holds at
t + 1. If not, then ((t+1)/(t+2))² ≥ 4/9 gives A/(t+2) + B/(t+2)² ≥ (4/9)(4.5 C₁/√(t+1) + 2.25 C₂ ℓ/(t+1)), which is at least
2 C₁/√(t+1) + C₂ ℓ/(t+1) ≥ h_{t+1} by the corrected Theorem A.1, because h₁ ≤ βD²/2 ≤ C₂. ∎

The induction for Theorem 3.6 has the same gap at t₀, but there the constants leave room, and it holds as printed: the bracket
may be 3.24 (βD² + A) where the proof uses 3, which is enough from t = 5 on, and before that B ≥ 113 (βD² + A).

**Smaller slips.**

- After Theorem 3.6 the text says log² d/(tε). The theorem and Table 1.1 have log² d/(tε²).
- Section 3.1 has κ_q² for the variance of the noise where (3.2) has κ_q. Section 1.1 has log d/(tε) for Algorithm 2, whose
  noise has a variance of the order log n log(1/δ)/(tε²). Section 1.2 has √(Td) + 1/ε for a rival where Table 1.2 has √T +
  d/ε.
- Proposition A.2 has 2d log(2⌈log₂ n⌉/α) where Lemma 3.1 gives 2 log(2⌈log₂ n⌉/α).
- Theorem 3.5 lists Assumption 3.1, θ* inside, and uses it only for h₁ ≤ βD²/2. Without it h₁ ≤ LD is enough if ε ≤ 33
  log(4dn/α) (log n log(1/δ))^½.
"""

import itertools
import math
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from experiment import Experiment, Job, Results, Slope, listed, scatter, short, table
from offline_rivals import Problem, phased_sgd, polyhedral_sfw, snowball_sgd, tree_fw
from private_oco import AsPrinted, Cell
from private_oco_rates import (
    CLIPS,
    SIGNALS,
    SPARSITY,
    STEP_SCALES,
    Game,
    exponent,
    learn,
    mean_of,
    noise_of_mean,
)
from private_streams import NOISE, BoundedStream, HardStream, Setting, seed_of, sparse_parameters
from torch import Tensor

from torchonline import DPHDB, DPPOFW, DPTOFW
from torchonline.baselines import DPFTRL
from torchonline.privacy.accounting import Ledger
from torchonline.privacy.audit import epsilon_lower_bound

# Runs are seeded to come again: the library warns of it.
warnings.filterwarnings("ignore", message="seed: expected None|delta: expected less")

TRIALS, ALPHA, DIM = 20, 0.05, 10
NORMS = (1.5, 2.0, math.inf)
BETA, DIAMETER, GAMMA = 2.0, 4.0, 1.0
LONGEST = BoundedStream.longest  # L = 2 (2 + 1 + 0.05)
PROMISED, SPREAD = BETA * DIAMETER + LONGEST, 2.0 * LONGEST  # beta D + L, and G
# Rivals that release one decision, for 1 < p and for p = 1: algorithm, and multiples of a rate or numbers of phases.
LAST: tuple[dict[str, tuple[Any, tuple[Any, ...]]], ...] = (
    {
        "phased SGD": (phased_sgd, (1.0, 0.0625, 0.25, 4.0, 16.0)),
        "snowball SGD": (snowball_sgd, (1.0, 0.0625, 0.25, 4.0, 16.0)),
    },
    {"polyhedral SFW": (polyhedral_sfw, (1.0, 0.0625, 0.125, 0.25, 0.5)), "tree FW": (tree_fw, (3, 1, 2, 4, 5))},
)
LAST_CLIPS = ((1.0, 0.5, 2.0), (LONGEST, 1.0, 2.0))  # of these; the default first


@dataclass(frozen=True)
class Bounds:
    """The bounds of Section 3 and Appendix A, with probability 1 - alpha, for 1 < p."""

    rounds: int
    dim: int
    kappa: float  # of the dual norm, as it should read
    sigma: float  # sigma_plus
    curvature: float  # mu, in the norm of order p

    def _records(self, alpha: float) -> float:
        spread = math.sqrt(2.0 * math.e * self.kappa) + 8.0 * math.sqrt(4.0 * math.log(2.0 / alpha))
        return 2.0 * spread * (BETA * DIAMETER + SPREAD)

    def _noise(self, alpha: float) -> float:
        height = math.ceil(math.log2(self.rounds))
        log = math.log(2.0 * height / alpha)
        return height * self.sigma * math.sqrt(self.dim + 2.0 * math.sqrt(self.dim * log) + 2.0 * self.dim * log)

    def gradient(self, t: int) -> float:
        """Return the bound of Proposition A.2 on the error of the gradient."""
        return self._records(ALPHA) / math.sqrt(t + 1) + self._noise(ALPHA) / (t + 1)

    def convex(self, t: int) -> float:
        """Return the bound of Theorem A.1 as printed; what its proof shows has twice the term of the records."""
        alpha = ALPHA / self.rounds
        records = DIAMETER * self._records(alpha) / math.sqrt(t)
        start = (math.log(t) + 1.0) * BETA * DIAMETER**2 / 2.0
        return records + (start + math.log(t) * DIAMETER * self._noise(alpha)) / t

    def strong(self, t: int) -> float:
        """Return the bound of Theorem A.2 as printed."""
        alpha, log = ALPHA / self.rounds, math.log(self.rounds)
        first, second = (
            DIAMETER * self._records(alpha),
            DIAMETER * self._noise(alpha) + BETA * DIAMETER**2 / 2.0,
        )
        return 18.0 / (GAMMA**2 * self.curvature) * (first**2 / (t + 1) + second**2 * log / (t + 1) ** 2)


@dataclass(frozen=True)
class VertexBounds:
    """The bounds of Theorems 3.5 and 3.6, with probability 1 - alpha, for p = 1."""

    rounds: int
    dim: int
    epsilon: float
    curvature: float

    @property
    def size(self) -> float:
        """Return beta D^2 + A."""
        log = math.log(8.0 * self.dim * self.rounds / ALPHA), math.log(4.0 * self.dim * self.rounds / ALPHA)
        noise = 16.0 * DIAMETER * PROMISED * log[1] * math.sqrt(logs(self.rounds)) / self.epsilon
        return BETA * DIAMETER**2 + 8.0 * DIAMETER * (BETA * DIAMETER + SPREAD) * math.sqrt(log[0]) + noise

    def convex(self, t: int) -> float:
        return 3.0 * self.size / math.sqrt(t + 1)

    def strong(self, t: int) -> float:
        return 9.0 * self.size**2 / (GAMMA**2 * self.curvature * (t + 1))


def logs(rounds: int) -> float:
    """Return log(n) log(1/delta)."""
    return math.log(rounds) * math.log(10.0 * rounds)


def proved(setting: Setting, trials: int) -> DPTOFW:
    """Return Algorithm 1 with the noise of equation (3.2), or without noise."""
    private = setting.epsilon < math.inf
    told: Any = setting.promise() | setting.ball() | {"scheme": "paper", "batch_shape": (trials,)}
    told |= {"mechanism": "paper", "clip": PROMISED} if private else {"clip": math.inf}
    return DPTOFW(setting.dim, **told, seed=seed_of("proved", setting))


def printed(setting: Setting, trials: int, seed: int = 0) -> DPPOFW:
    """Return Algorithm 2 with the Laplace noise as printed, or without noise."""
    private = setting.epsilon < math.inf
    told: Any = setting.promise() | {"radius_bound": setting.radius, "scheme": "paper", "batch_shape": (trials,)}
    told |= {"mechanism": "laplace", "clip": PROMISED} if private else {"clip": math.inf}
    learner: Any = DPPOFW(setting.dim, **told, seed=seed_of("printed", setting, seed))
    if private:
        scale = 4.0 * DIAMETER * PROMISED * math.sqrt(logs(setting.rounds)) / setting.epsilon
        vars(learner.noise)["scale"] = scale  # no option of the library
    return learner


def default(setting: Setting, trials: int) -> DPTOFW | DPPOFW:
    """Return the library's learner with its default options, in the ball of the setting."""
    clip = {} if setting.epsilon < math.inf else {"clip": math.inf}
    told: Any = setting.promise() | {"batch_shape": (trials,), "seed": seed_of("default", setting)} | clip
    return library(setting, **told)


def library(setting: Setting, **told: Any) -> DPTOFW | DPPOFW:
    """Return DPTOFW in the ball of the setting, or DPPOFW for p = 1."""
    if setting.norm == 1.0:
        return DPPOFW(setting.dim, radius_bound=setting.radius, **told)
    return DPTOFW(setting.dim, **setting.ball(), **told)


LEARNERS: dict[str, Callable[[Setting, int], Any]] = {"proved": proved, "printed": printed, "default": default}


def dual_norm(setting: Setting, vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors, setting.dual, dim=-1)


def play(learner: str, times: list[int], trials: int, **options: Any) -> dict[str, Any]:
    """Return the error of the gradient, the excess and the regret at some times, per trial, and the bounds."""
    setting = Setting(**options)
    batched, stream = LEARNERS[learner](setting, trials), BoundedStream(setting, trials)
    found: dict[str, list[list[float]]] = {"error": [], "excess": [], "regret": []}
    total = torch.zeros(trials, dtype=torch.float64)
    for t, (x, y) in enumerate(stream, 1):
        points, theta = batched.queries(), batched.predict()
        total += stream.excess(theta)
        batched.step(stream.gradients(points, x, y))
        if t in times:
            divisor = t if batched.scheme == "unbiased" else t + 1
            sums = batched.noisy_sum if hasattr(batched, "noisy_sum") else batched.secret_sum
            error = sums / divisor - 2.0 * stream.moment * (theta - stream.theta)
            for name, numbers in zip(found, (dual_norm(setting, error), stream.excess(theta), total), strict=True):
                found[name].append(numbers.tolist())
    return found | {"zero": float(stream.excess(torch.zeros_like(stream.theta)).mean()), "moment": stream.moment}


def bounds_of(setting: Setting, moment: float) -> Any:
    """Return the bounds of a setting, with kappa and the index of the norm as they should read."""
    if setting.norm == 1.0:
        return vertex_bounds(setting)
    dim, q = setting.dim, setting.dual
    order = min(q, max(2.0, math.log(dim)))
    kappa = (order - 1.0) * dim ** (2.0 / order - 2.0 / q) if q >= 2.0 else dim ** (1.0 - 2.0 / setting.norm)
    height = math.ceil(math.log2(setting.rounds)) + 1
    sigma = math.sqrt(8.0 * kappa * math.log(height * 10.0 * setting.rounds)) * height * PROMISED / setting.epsilon
    return Bounds(setting.rounds, dim, kappa, sigma, 2.0 * moment * dim ** min(0.0, 1.0 - 2.0 / setting.norm))


def vertex_bounds(setting: Setting) -> VertexBounds:
    """Return the bounds for p = 1; E xx' is the identity, so mu = 2/d in the l1 norm."""
    return VertexBounds(setting.rounds, setting.dim, setting.epsilon, 2.0 / setting.dim)


@dataclass(frozen=True)
class Environment:
    """The bandit of Figure 5.1: uniform contexts, two sparse parameters of l1 norm 1, rewards with noise of 0.05."""

    dim: int
    trials: int

    def parameters(self) -> Tensor:
        generator = torch.Generator().manual_seed(seed_of("environment", self))
        return sparse_parameters((self.trials, 2, self.dim), SPARSITY, generator)

    def contexts(self, count: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed_of("contexts", self, seed))
        return 2.0 * torch.rand(count, self.dim, generator=generator, dtype=torch.float64) - 1.0


def play_arms(
    dim: int, rounds: int, epsilon: float, times: list[int], draws: int, trials: int
) -> dict[str, dict[str, list[list[float]]]]:
    """Return an arm's error of the gradient and its squared l1 distance to the truth at some times, per trial.

    Records are chosen by the learner, or by chance.
    """
    environment = Environment(dim, trials)
    theta, draw = environment.parameters(), environment.contexts(draws, 0)
    told: Any = {"horizon": rounds, "epsilon": epsilon, "delta": 0.1 / rounds, "batch_shape": (trials,)}
    told |= {"clip": math.inf, "reward_clip": math.inf} if epsilon == math.inf else {}
    found: dict[str, dict[str, list[list[float]]]] = {}
    for name in ("greedy", "chance"):
        bandit = DPHDB(dim, arms=2, warmup=rounds // 40, seed=seed_of("bandit", dim, epsilon), **told)
        generator = torch.Generator().manual_seed(seed_of("arms", dim, name))
        found[name] = {"error": [], "distance": []}
        for t in range(1, rounds + 1):
            x = 2.0 * torch.rand(trials, dim, generator=generator, dtype=torch.float64) - 1.0
            noise = NOISE * torch.randn(trials, generator=generator, dtype=torch.float64)
            arm = bandit.select(x)
            if name == "chance" and t > 2 * bandit.warmup:
                arm = torch.randint(2, (trials,), generator=generator)
            means = (theta @ x.unsqueeze(-1)).squeeze(-1)
            before = torch.stack([learner.predict() for learner in bandit.arms], -2)
            bandit.step(x, arm, torch.take_along_dim(means, arm.unsqueeze(-1), -1).squeeze(-1) + noise)
            if t in times:
                best = (before @ draw.T).argmax(-2)  # (trials, draws)
                share: Any = torch.nn.functional.one_hot(best, 2).mT if name == "greedy" else 0.5
                gradient = (share * ((before - theta) @ draw.T)) @ draw / draws
                sums = torch.stack([learner.noisy_sum for learner in bandit.arms], -2) / (t - bandit.warmup)
                found[name]["error"].append((sums - gradient).abs().amax(-1).mean(-1).tolist())
                found[name]["distance"].append((before - theta).abs().sum(-1).square().mean(-1).tolist())
    return found


def play_margin(dim: int, draws: int, trials: int) -> dict[str, list[float]]:
    """Return lambda, u and nu of Assumptions 4.1 to 4.3 in the environment, per trial, with h_sub = 0.1."""
    environment = Environment(dim, trials)
    draw = environment.contexts(draws, 1)
    found: dict[str, list[float]] = {"u": [], "lambda": [], "nu": []}
    for theta in environment.parameters():
        gap = draw @ (theta[0] - theta[1])
        inside = draw[gap > 0.1]
        least = torch.linalg.eigvalsh(inside.T @ inside / len(inside))[0]
        sizes = gap.abs().sort().values[draws // 1000 :]
        shares = torch.arange(draws // 1000 + 1, draws + 1, dtype=torch.float64) / draws
        for name, number in zip(found, (len(inside) / draws, least, (shares / sizes).max()), strict=True):
            found[name].append(float(number))
    return found


def warmup(game: Game) -> int:
    return math.ceil(2.2 * math.log(game.rounds) * math.log(game.dim * game.rounds))


def play_horizon(name: str, **options: Any) -> list[float]:
    """Return the pseudo-regret of a bandit after T rounds, per trial."""
    game = Game(**options)
    told: dict[str, Any] | None = {"warmup": min(warmup(game), game.rounds // 4)}
    if name == "uniform":
        told = None
    elif game.epsilon == math.inf:
        told |= {"clip": math.inf, "reward_clip": math.inf}
    return game.play(told).tolist()


def play_last(trials: int, **options: Any) -> dict[str, list[list[float]]]:
    """Return the suboptimality of the last decisions, per trial: of our learner by clip and step scale, of rivals by option."""
    setting = Setting(**options)

    def stream() -> BoundedStream:
        return BoundedStream(setting, trials)

    truth = stream()
    zero = truth.excess(torch.zeros_like(truth.theta))
    shape = (len(CLIPS), len(STEP_SCALES), trials)
    batched = library(setting, **setting.promise(), seed=seed_of("last", setting), batch_shape=shape)
    run = learn(batched, stream(), (setting.rounds,), CLIPS, STEP_SCALES)
    found = {"ours": (run.excess[0].flatten(0, 1) / zero).tolist()}  # the first of each is the default
    is_vertex = setting.norm == 1.0
    for name, (algorithm, choices) in LAST[is_vertex].items():
        runs = [
            algorithm(Problem(stream(), setting, clip, BETA), choice)
            for clip, choice in itertools.product(LAST_CLIPS[is_vertex], choices)
        ]
        found[name] = [(truth.excess(theta) / zero).tolist() for theta in runs]
    return found


def play_regret(losses: str, learner: str, trials: int, **options: Any) -> list[float]:
    """Return the regret after T rounds, per trial: of regression, or of the worst linear losses."""
    setting = Setting(**options)
    kind: Any = {"DPTOFW": DPTOFW, "DP-FTRL": DPFTRL}[learner]
    count = trials * (len(SIGNALS) if losses == "linear" else 1)
    told: Any = setting.promise() | setting.ball() | {"batch_shape": (1, 1, count), "seed": seed_of(learner, setting)}
    batched = kind(setting.dim, **told, clip=1.0)
    stream: Any = BoundedStream(setting, trials)
    if losses == "linear":
        # Standard deviation of an entry of the noisy mean, in entries of a record, which are 1 over the root of d.
        noise = noise_of_mean(batched.noise, setting.rounds) * math.sqrt(setting.dim)
        unit = math.hypot(1.0 / math.sqrt(setting.rounds), noise)
        stream = HardStream(setting, trials, [min(1.0, signal * unit) for signal in SIGNALS])
    regret = learn(batched, stream, (setting.rounds,), with_regret=True).regret[0, 0, 0]
    worst = regret.unflatten(-1, (-1, trials))
    return worst[int(worst.mean(-1).argmax())].tolist()


def play_noise(draws: int, **options: Any) -> float:
    """Return the epsilon of the noise as printed, where beta D + L is the program's 8: exact at p = infinity, else from below."""
    cell = Cell(**options)
    noise = AsPrinted(cell, seed_of(cell), 8.0)
    if cell.norm == math.inf:
        return Ledger("replace_one", [noise.event(cell.rounds)]).epsilon(cell.delta)
    return noise.epsilon_at_least(cell, draws)


def play_audit(games: int, **options: Any) -> str:
    """Audit the first record of Algorithm 2 as printed, by the chosen vertices; all other records have loss 0."""
    setting = Setting(**options)
    record = torch.zeros(setting.dim, dtype=torch.float64)
    record[0] = LONGEST
    seeds = itertools.count(1)

    def play_world(world: int, games: int) -> Tensor:
        learner = printed(setting, games, next(seeds))
        nothing, found = torch.zeros_like(learner.queries()), []
        for step in range(1, setting.rounds + 1):
            before = learner.predict()
            learner.step(nothing + (1 - 2 * world) * record if step == 1 else nothing)
            found.append((before + (learner.predict() - before) * (step + 1))[..., 0] / math.sqrt(step))
        return torch.stack(found, -1).sum(-1, keepdim=True)

    return repr(epsilon_lower_bound(play_world, delta=0.1 / setting.rounds, games=games))


@dataclass(frozen=True)
class Plan:
    """Settings of all experiments, of their full size or small."""

    quick: bool = False

    def _full(self, full: Any, small: Any) -> Any:
        return small if self.quick else full

    @property
    def trials(self) -> int:
        return self._full(TRIALS, 2)

    @property
    def few(self) -> int:
        return max(2, self.trials // 2)

    @property
    def times(self) -> list[int]:
        return self._full([16, 62, 250, 1000, 4000, 16000], [10, 20, 40])

    def bounds(self) -> list[tuple[str, Setting]]:
        kinds = [("proved", math.inf), ("proved", 1.0), ("default", 1.0)]
        return [(name, Setting(p, self.times[-1], DIM, epsilon)) for p in NORMS for name, epsilon in kinds]

    def vertices(self) -> list[tuple[str, Setting]]:
        kinds = [("printed", math.inf), ("printed", 1.0), ("default", 1.0), ("printed", 64.0), ("default", 64.0)]
        return [(name, Setting(1.0, self.times[-1], 2 * DIM, epsilon)) for name, epsilon in kinds]

    def curvature(self) -> list[list[Setting]]:
        rounds, dims = self._full(4000, 40), self._full((10, 40, 160, 640), (5, 6))
        return [[Setting(1.0, rounds, dim, epsilon) for dim in dims] for epsilon in (math.inf, 64.0)]

    def arms(self) -> list[dict[str, Any]]:
        times, draws = self._full([2000, 4000, 8000, 16000], [20, 40]), self._full(10_000, 1000)
        told = {"dim": 20, "rounds": times[-1], "times": times, "draws": draws, "trials": self.few}
        return [{"epsilon": epsilon} | told for epsilon in (math.inf, 1.0)]

    def margin(self) -> list[dict[str, int]]:
        dims = self._full((10, 20, 50), (5, 6))
        return [{"dim": dim, "draws": self._full(100_000, 2000), "trials": self._full(10, 2)} for dim in dims]

    def horizon(self) -> dict[str, list[Game]]:
        rounds, trials = self._full((2500, 5000, 10000, 20000, 40000), (40, 80)), self._full(10, 2)
        kinds = {"uniform": 1.0, "DPHDB": 1.0, "DPHDB at epsilon 8": 8.0, "no privacy": math.inf}
        return {name: [Game(length, 20, trials, epsilon) for length in rounds] for name, epsilon in kinds.items()}

    def last(self, is_vertex: bool) -> list[Setting]:
        rounds = self._full((1000, 4000, 16000), (400,))
        norms, dim = ((1.0,), 2 * DIM) if is_vertex else ((2.0, math.inf), DIM)
        return [Setting(p, n, dim, epsilon) for p in norms for epsilon in (1.0, 8.0) for n in rounds]

    def regret(self) -> dict[tuple[str, str], list[Setting]]:
        rounds, dims = self._full((1000, 4000, 16000), (20, 40)), self._full((5, 20, 80), (5, 6))
        lines = {"T": [Setting(2.0, n, DIM, 1.0) for n in rounds], "d": [Setting(2.0, rounds[1], d, 1.0) for d in dims]}
        return {(losses, axis): line for losses in ("linear", "regression") for axis, line in lines.items()}

    def noise(self) -> list[Cell]:
        rounds, dims = self._full((1000, 2000, 5000, 10000), (40,)), self._full((5, 10, 20), (5, 6))
        return [Cell(norm, n, dim) for norm in (1.5, math.inf) for n in rounds for dim in dims]

    def audit(self) -> Setting:
        return Setting(1.0, self._full(200, 20), 5, 1.0)


def jobs(quick: bool) -> dict[str, Job]:
    plan = Plan(quick)
    found = {f"arms, epsilon = {told['epsilon']:g}": Job(play_arms, told) for told in plan.arms()}
    for name, games in plan.horizon().items():
        for game in games:
            found[f"horizon, {name}, {game}"] = Job(play_horizon, {"name": name} | asdict(game))
    for cell in plan.noise():
        found[f"noise, {cell}"] = Job(play_noise, {"draws": plan._full(300_000, 1000)} | asdict(cell))
    found["audit"] = Job(play_audit, {"games": plan._full(4000, 100)} | asdict(plan.audit()))
    for learner, setting in (*plan.bounds(), *plan.vertices()):
        told = {"learner": learner, "times": plan.times, "trials": plan.trials} | asdict(setting)
        found[f"bounds, {learner}, {setting}"] = Job(play, told)
    for setting in itertools.chain(*plan.curvature()):
        told = {"learner": "printed", "times": [setting.rounds], "trials": plan.few} | asdict(setting)
        found[f"curvature, {setting}"] = Job(play, told)
    for told in plan.margin():
        found[f"margin, d = {told['dim']}"] = Job(play_margin, told)
    for setting in (*plan.last(False), *plan.last(True)):
        found[f"last, {setting}"] = Job(play_last, {"trials": plan.few} | asdict(setting))
    for (losses, _), line in plan.regret().items():
        for learner, setting in itertools.product(("DPTOFW", "DP-FTRL"), line):
            told = {"losses": losses, "learner": learner, "trials": plan.few} | asdict(setting)
            found[f"regret, {losses}, {learner}, {setting}"] = Job(play_regret, told)
    return found


def plan_of(results: Results) -> Plan:
    return Plan(results.keys() != jobs(False).keys())


def rough(number: float) -> str:
    """Return a number with three digits up to 1000, and with two digits and a power of ten above."""
    return short(number) if number < 1000.0 else f"{number:.1e}".replace("e+0", "e").replace("e+", "e")


@dataclass(frozen=True)
class Checked:
    """Bounds of one setting at the last time, and over how much was measured they are."""

    results: Results
    learner: str
    setting: Setting
    times: list[int]

    @property
    def run(self) -> dict[str, Any]:
        return self.results[f"bounds, {self.learner}, {self.setting}"]

    @property
    def bounds(self) -> Any:
        return bounds_of(self.setting, self.run["moment"])

    def largest(self, what: str, at: int = -1) -> float:
        return max(self.run[what][at])

    def holds(self) -> bool:
        """Return whether no trial is above a bound: on the error and the excess at any time, on the regret at the last."""
        bounds = [("excess", self.bounds.convex), ("excess", self.bounds.strong)]
        bounds += [("error", self.bounds.gradient)] if self.setting.norm > 1.0 else []
        at_all = all(self.largest(what, i) <= bound(t) for what, bound in bounds for i, t in enumerate(self.times))
        return at_all and all(self.total(bound) >= 1.0 for _, bound in bounds[:2])

    def over(self, bound: Callable[[int], float], what: str) -> float:
        return bound(self.times[-1]) / self.largest(what)

    def total(self, bound: Callable[[int], float]) -> float:
        """Return the sum of a bound over all times, over the largest regret."""
        return sum(map(bound, range(1, self.times[-1] + 1))) / self.largest("regret")

    def useful_from(self, bound: str) -> str:
        """Return the least power of 10 of records from which a bound is below the excess of the decision 0."""
        for power in range(1, 40):
            setting = Setting(**asdict(self.setting) | {"rounds": 10**power})
            if getattr(bounds_of(setting, self.run["moment"]), bound)(10**power) < self.run["zero"]:
                return f"1e{power}"
        return "none"


def checks(results: Results, plan: Plan, is_vertex: bool) -> list[Checked]:
    return [Checked(results, *one, plan.times) for one in (plan.vertices() if is_vertex else plan.bounds())]


def loose_table(found: Sequence[Checked]) -> str:
    """Return the bounds at the last time over the largest of the trials."""
    rows = []
    for one in found:
        bounds = one.bounds
        row = [f"{one.setting.norm:g}", f"{one.setting.epsilon:g}", one.learner, short(one.largest("excess"))]
        if one.setting.norm > 1.0:
            row.insert(3, rough(one.over(bounds.gradient, "error")))
        row += [rough(one.over(bound, "excess")) for bound in (bounds.convex, bounds.strong)]
        row += [rough(one.total(bound)) for bound in (bounds.convex, bounds.strong)]
        rows.append([*row, one.useful_from("convex"), one.useful_from("strong")])
    theorems = ("A.1", "A.2") if found[0].setting.norm > 1.0 else ("3.5", "3.6")
    header = ["p", "epsilon", "learner", "excess", *(f"Theorem {name} / excess" for name in theorems)]
    if found[0].setting.norm > 1.0:
        header.insert(3, "Proposition A.2 / error")
    header += [f"sum of {name} / regret" for name in theorems]
    return table([*header, *(f"{name} is below the decision 0 from n =" for name in theorems)], rows)


def growth_table(found: Sequence[Checked]) -> str:
    """Return exponents in t of error, excess and regret, of the last four times."""
    rows = []
    for one in found:
        names = ("error", "excess", "regret")
        fits = [exponent(one.times[-4:], one.run[name][-4:]) for name in names]
        excess = [*map(short, mean_of(one.run["excess"]))]
        rows.append([f"{one.setting.norm:g}", f"{one.setting.epsilon:g}", one.learner, *excess, *fits])
    times = [f"t = {t}" for t in found[0].times]
    return table(["p", "epsilon", "learner", *times, "error", "excess", "regret"], rows)


def curvature_table(results: Results, plan: Plan) -> str:
    """Return the excess against d with its exponent, and the bound of Theorem 3.6."""
    rows = []
    for line in plan.curvature():
        runs = [results[f"curvature, {setting}"]["excess"][0] for setting in line]
        dims = [setting.dim for setting in line]
        rows.append([f"{line[0].epsilon:g}", *map(scatter, runs), exponent(dims, runs)])
        for name in ("strong", "convex"):
            bound = [[getattr(vertex_bounds(setting), name)(setting.rounds)] for setting in line]
            title = f"Theorem {'3.6' if name == 'strong' else '3.5'} at epsilon {line[0].epsilon:g}"
            rows.append([title, *(rough(one) for (one,) in bound), f"{Slope.fit(dims, bound).value:.2f}"])
    return table(["epsilon", *(f"d = {setting.dim}" for setting in plan.curvature()[0]), "exponent"], rows)


def arms_table(results: Results, plan: Plan) -> str:
    rows, times = [], plan.arms()[0]["times"]
    for told in plan.arms():
        for name, run in results[f"arms, epsilon = {told['epsilon']:g}"].items():
            for what, numbers in run.items():
                title = {"error": "gradient", "distance": "θ, squared"}[what]
                rows.append([f"{told['epsilon']:g}", name, title, *map(scatter, numbers), exponent(times, numbers)])
    return table(["epsilon", "arms by", "error of", *(f"t = {t}" for t in times), "exponent"], rows)


def margin_table(results: Results, plan: Plan) -> str:
    """Return what Theorem 4.2 asks of gamma, and the most that gamma can be; beta = M = 1 and D = 2."""
    rows = []
    for told in plan.margin():
        run = results[f"margin, d = {told['dim']}"]
        u, least, nu = (statistics.fmean(run[name]) for name in ("u", "lambda", "nu"))
        needed = []
        for mu in (1.0, u * least, u * least / told["dim"]):
            needed.append(short(3.0 / math.sqrt(2.0) * 4.0 * nu / mu))
        rows.append([told["dim"], *map(short, (u, least, least / told["dim"], nu)), *needed, 0, 1])
    header = ["d", "u", "lambda", "lambda / d", "nu", "gamma needed, mu of the link", "mu u lambda", "mu u lambda / d"]
    return table([*header, "gamma here", "gamma at most"], rows)


def horizon_table(results: Results, plan: Plan) -> str:
    rows = []
    for name, games in plan.horizon().items():
        runs = [results[f"horizon, {name}, {game}"] for game in games]
        rounds = [game.rounds for game in games]
        rows.append([name, *map(scatter, runs), exponent(rounds, runs), exponent(rounds[-3:], runs[-3:])])
    games = plan.horizon()["uniform"]
    for name, power in (("log(dT)² log(T)²", 2), ("the warm-up of an arm, rounds", 0)):
        sizes = [(math.log(g.dim * g.rounds) * math.log(g.rounds)) ** power if power else warmup(g) for g in games]
        fits = (Slope.fit([g.rounds for g in part], [[s] for s in sizes[-len(part) :]]) for part in (games, games[-3:]))
        rows.append([name, *(f"{size:.0f}" for size in sizes), *(f"{fit.value:.2f}" for fit in fits)])
    return table(["bandit", *(f"T = {game.rounds}" for game in games), "exponent", "of the last three"], rows)


def last_table(results: Results, plan: Plan, is_vertex: bool) -> str:
    rows = []
    for setting in plan.last(is_vertex):
        run = results[f"last, {setting}"]
        row = [f"{setting.norm:g}", f"{setting.epsilon:g}", setting.rounds]
        for numbers in run.values():
            row += [scatter(numbers[0]), scatter(min(numbers, key=statistics.fmean))]
        rows.append(row)
    names = ["DPPOFW" if is_vertex else "DPTOFW", *LAST[is_vertex]]
    return table(["p", "epsilon", "n", *itertools.chain(*((name, "tuned") for name in names))], rows)


def regret_table(results: Results, plan: Plan) -> str:
    rows = []
    for (losses, axis), line in plan.regret().items():
        for learner in ("DPTOFW", "DP-FTRL"):
            runs = [results[f"regret, {losses}, {learner}, {setting}"] for setting in line]
            values = [setting.rounds if axis == "T" else setting.dim for setting in line]
            shown = [f"{axis} = {value}: {scatter(run)}" for value, run in zip(values, runs, strict=True)]
            rows.append([losses, learner, axis, exponent(values, runs), *shown])
    return table(["losses", "learner", "against", "exponent", "least", "middle", "most"][: len(rows[0])], rows)


def tables(results: Results) -> dict[str, str]:
    plan = plan_of(results)
    balls, vertices, n = checks(results, plan, False), checks(results, plan, True), plan.times[-1]
    return {
        f"Bounds for 1 < p at n = {n}, d = {DIM}, over the largest of {plan.trials} trials": loose_table(balls),
        f"Excess for 1 < p at time t, and exponents of the last four times: mean of {plan.trials} trials": growth_table(
            balls
        ),
        f"Bounds for p = 1 at n = {n}, d = {2 * DIM}, over the largest of {plan.trials} trials": loose_table(vertices),
        f"Excess for p = 1 at time t, and exponents of the last four times: mean of {plan.trials} trials": growth_table(
            vertices
        ),
        f"Excess for p = 1 against d, where mu is 2/d: mean ± sd of {plan.few} trials": curvature_table(results, plan),
        f"Errors of an arm's gradient, maximum norm, and of its parameter, l1 norm: mean ± sd of {plan.few} trials": arms_table(
            results, plan
        ),
        "What Theorem 4.2 needs in the environment of Figure 5.1": margin_table(results, plan),
        f"Regret of DPHDB against T, K = 2, d = 20: mean ± sd of {plan.horizon()['uniform'][0].trials} trials": horizon_table(
            results, plan
        ),
        f"One decision at the end, d = {DIM}: suboptimality, mean ± sd of {plan.few} trials": last_table(
            results, plan, False
        ),
        f"One decision at the end, p = 1, d = {2 * DIM}: suboptimality, mean ± sd of {plan.few} trials": last_table(
            results, plan, True
        ),
        f"Regret at p = 2 and epsilon = 1: mean ± sd of {plan.few} trials": regret_table(results, plan),
        "Epsilon of the noise as printed with the program's constants, for a claimed 1": listed(
            noise_list(results, plan)
        ),
        "Audit of Theorem 3.4": f"- {results['audit']}",
    }


def noise_of(results: Results, plan: Plan, norm: float) -> list[tuple[float, Cell]]:
    """Return the epsilons of the noise as printed with the program's constants, the least first."""
    cells = [cell for cell in plan.noise() if cell.norm == norm]
    return sorted(((results[f"noise, {cell}"], cell) for cell in cells), key=lambda one: one[0])


def noise_list(results: Results, plan: Plan) -> list[str]:
    said = []
    for norm, kind in ((1.5, "at least "), (math.inf, "")):
        (least, at_least), *_, (most, at_most) = noise_of(results, plan, norm)
        where = (f"T = {cell.rounds}, d = {cell.dim}" for cell in (at_least, at_most))
        found = " to ".join(f"{short(number)} ({place})" for number, place in zip((least, most), where, strict=True))
        said.append(f"p = {norm:g}: {kind}{found}")
    return said


def lower_bound(setting: Setting, t: int) -> float:
    """Return the order of the lower bounds that the paper quotes for 1 < p, with a constant of 1."""
    if setting.norm > 2.0:
        return setting.dim ** (0.5 - 1.0 / setting.norm) / math.sqrt(t)
    return 1.0 / math.sqrt(t) + math.sqrt(setting.dim) / (t * setting.epsilon)


def figures(results: Results, folder: Path) -> list[Path]:
    """Draw the bounds with their constants, what was measured, and the order of the lower bounds."""
    plan = plan_of(results)
    times = plan.times
    figure, panels = plt.subplots(1, 4, figsize=(15.0, 4.4), layout="constrained", sharey=True)
    for panel, norm in zip(panels, (*NORMS, 1.0), strict=True):
        found = checks(results, plan, norm == 1.0)
        lines = [one for one in found if one.setting.norm == norm and one.setting.epsilon in (1.0, math.inf)]
        for one in lines:
            what = {"proved": "as proved", "printed": "as proved"}.get(one.learner, one.learner)
            label = f"{what}, epsilon = {one.setting.epsilon:g}"
            color = {"as proved, epsilon = inf": "C2", "as proved, epsilon = 1": "C3"}.get(label, "C0")
            panel.loglog(times, [max(row) for row in one.run["excess"]], color, marker="o", markersize=3, label=label)
            if one.learner != "default":
                for style, bound in (("--", one.bounds.convex), (":", one.bounds.strong)):
                    name = "convex" if style == "--" else "strongly convex"
                    panel.loglog(
                        times,
                        list(map(bound, times)),
                        color + style,
                        linewidth=0.9,
                        label=f"bound, {name}, epsilon = {one.setting.epsilon:g}",
                    )
        if norm > 1.0:
            least = [lower_bound(lines[-1].setting, t) for t in times]
            panel.loglog(times, least, "k", linewidth=0.9, label="lower bound, its order")
        panel.axhline(lines[0].run["zero"], color="gray", linewidth=0.6, label="decision 0")
        panel.set(xlabel="t", title=f"p = {norm:g}")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("excess risk, largest of the trials")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=5)
    path = folder / "private_oco_bounds.png"
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment(__file__, jobs, tables, figures, seeds="the checksum of each setting (private_streams.seed_of)")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
