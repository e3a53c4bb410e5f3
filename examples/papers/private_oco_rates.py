"""Private online convex optimisation: rates of the DP-TOFW paper, measured.

The paper is that of ``private_oco.py``. The experiments, with which the names of the jobs begin:

- *rates*: excess risk of ``DPTOFW`` on the paper's linear regression (Section 5.1), against the number n of records, the number d
  of features, epsilon, and the order p of the norm. Features are Gaussian divided by their norm of order q, and theta* has norm 1
  in the ball of radius 2. The excess is E<x, theta - theta*>^2 for the last decision. The table has the exponents that a line
  through the logarithms fits. Beside them are the exponents of the rate's two terms, of the records and of the noise:
  kappa^(1/2) / n^(1/2) and (kappa d)^(1/2) / (n epsilon), kappa = d^(1 - 2/p) for p > 2 and no power of d for 1 < p <= 2. This
  is the rate for convex losses. The rate for strongly convex ones with theta* inside has the squares of the terms.
- *interior*: excess and regret within one run, with theta* inside the ball (radius 2) and on its sphere (radius 1). The regret
  at t is the sum of the excesses of the first t decisions.
- *hard*: ``DPTOFW`` on linear losses whose mean is so short that noise can hide it, in the ball of radius 1. The mean's
  length changes with n, d and epsilon; the worst of five lengths counts. Beside it is a lower bound of any learner's worst
  excess, over all linear losses. The rate is that for convex losses.
- *entry*: the same for p = 1 and ``DPPOFW``, where one entry of the losses has a mean, against d.
- *p1*: p = 1 with many features, which are random signs, in the ball of radius 1. theta* has l1 norm 1 and one or five entries
  that are not 0. ``DPPOFW`` with each noise, and ``NoisySFW``; and the ratio of the excesses of Gumbel noise and of the BLT over
  a grid, for one entry.
- *bandit*: regret of ``DPHDB`` against d, in the environment of ``private_oco.py``.
- *logistic*: the same with binary rewards and a logistic link.
- *sgd*: ``NoisySGD``, over many passes, in Table 5.1's setting at p = infinity.
- *smooth*: ``LocalMD`` with the noise that smooth losses need (``conditional_local_md.py``), on losses that are smooth: the
  logistic loss, with theta* of norm 5 in the ball of radius 10; and the squared loss of Table 5.1 with bounded noise. p is 2.

*Tuned* is the best of five step scales and three clips, chosen on the data: not covered by epsilon. All have delta = 0.1/n,
except Table 5.1 with its 1/n. Noise has seeds here, so that the script repeats; a seeded run is private to nobody. An exponent's
95 % interval is of trials that are resampled.

    python examples/papers/private_oco_rates.py --workers 2    # half an hour of processor time; seconds with --quick

## Proofs

**LocalMD, smooth losses.** *Claim*: s = 2ηᵢC(m - 1)/m is enough, and half of it under `zero_out`, some m/2 times less than
[without the promise](private_baselines_theory.md#proofs). *Conditions*: p = 2; each record's loss is convex and β-smooth on
all of R^d; its gradients in the ball are no longer than C, so that clipping changes none; ηᵢ ≤ 2/β; and a step is x ← Π(x -
ηᵢ∇f(x)), with the gradient at x and the Euclidean projection Π onto the ball. *Proof*: the gradients of a convex β-smooth
loss have ⟨∇f(x) - ∇f(y), x - y⟩ ≥ ‖∇f(x) - ∇f(y)‖²/β. So

‖x - η∇f(x) - (y - η∇f(y))‖² ≤ ‖x - y‖² - η(2/β - η)‖∇f(x) - ∇f(y)‖² ≤ ‖x - y‖²

(Hardt, Recht and Singer, ICML 2016, Lemma 3.7): a step brings no two points further apart, and neither does Π. Replace record
k of a phase. The iterates up to x_k are the same, x_(k+1) moves by at most 2ηᵢC, and all later iterates by no more. A null
record has the loss 0, which keeps the promise, and there it is ηᵢC. So the average over m iterates moves by at most (m - k)/m
times as much, which is s for k = 1. ∎
"""

import math
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from conditional_local_md import ConditionalLocalMD
from experiment import Experiment, Job, Results, Slope, listed, scatter, short, table
from private_streams import (
    NOISE,
    BoundedStream,
    HardStream,
    LogisticStream,
    OneEntry,
    Setting,
    Stream,
    entries,
    seed_of,
    sparse_parameters,
)
from torch import Tensor

from torchonline import DPHDB, DPPOFW, DPTOFW
from torchonline.baselines import DPFTRL, LocalMD, NoisySFW, NoisySGD
from torchonline.links import Logistic
from torchonline.privacy.learners.vertex_choice import NoisyVertex

# Runs are seeded to come again, and delta is 1 / T in Table 5.1: the library warns of both.
warnings.filterwarnings("ignore", message="seed: expected None|delta: expected less")

TRIALS, SPARSITY = 10, 5  # entries of theta* that are not 0, where they are few
# The first of each are the defaults.
STEP_SCALES, CLIPS = (1.0, 0.125, 0.25, 0.5, 2.0), (1.0, 0.5, 2.0)
NORMS = (1.5, 2.0, math.inf)
VERTEX_NOISE = ("gumbel", "laplace", "blt")
RATE_SCALES, SGD_SCALES = (1.0, 0.25, 4.0), (1.0, 2.0, 4.0)  # of the conditional LocalMD, of NoisySGD
# Of the hard instances: entries of the mean over the standard deviation of the noisy mean's entries.
SIGNALS, HARD_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0), (1.0, 4.0, 8.0)
HARD_EPSILONS = (math.inf, 4.0, 1.0, 0.25)


@dataclass
class Run:
    """Excess and regret at some times, ``(times, clips, scales, trials)``."""

    excess: Tensor
    regret: Tensor

    def default(self, what: str = "excess") -> Tensor:
        """Return the numbers with the default clip and step, ``(times, trials)``."""
        return getattr(self, what)[:, 0, 0]

    def choice(self, at: int = -1, what: str = "excess") -> tuple[int, int]:
        """Return clip and step scale that are the best at a time, by the data."""
        means = getattr(self, what)[at].mean(-1)
        clip, scale = divmod(int(means.argmin()), means.shape[-1])
        return clip, scale

    def tuned(self, what: str = "excess") -> Tensor:
        """Return the numbers with the best choice for each time, ``(times, trials)``."""
        numbers = getattr(self, what)
        return torch.stack([row[self.choice(at, what)] for at, row in enumerate(numbers)])


def learn(
    learner: Any,
    stream: Stream,
    at: Sequence[int],
    clips: Sequence[float] = (),
    scales: Sequence[float] = (),
    with_regret: bool = False,
) -> Run:
    """Play a stream on a batch ``(clips, scales, trials)``.

    A clip C is applied as the clip 1 of gradients divided by C. Decisions depend on the direction of a sum only, so they have the
    same law. A scale c makes steps of 1/(t + 1) steps of c/(t + 1). The regret is 0 unless it is asked for.
    """
    clip = torch.tensor(clips or (1.0,), dtype=torch.float64)[:, None, None, None, None]
    scale = torch.tensor(scales or (1.0,), dtype=torch.float64)[:, None, None]
    excess, regret, total = [], [], torch.zeros(())
    for t, record in enumerate(stream, 1):
        before = learner.predict()
        total = total + stream.excess(before) if with_regret else total
        points = learner.secret_queries() if isinstance(learner, LocalMD) else learner.queries()
        learner.step(stream.gradients(points, *record) / clip)
        if scales:
            learner.theta.copy_(before.lerp(learner.theta, scale))
        if t in at:
            excess.append(stream.excess(learner.average() if isinstance(learner, DPFTRL) else learner.predict()))
            regret.append(total)
    return Run(torch.stack(excess), torch.stack(regret))


def dptofw(setting: Setting, trials: int, at: Sequence[int] = (), stream: Stream | None = None) -> Run:
    """Play DPTOFW with all clips and step scales; without clips if epsilon is infinite.

    The regret is that at the given times, if any are given.
    """
    private = setting.epsilon < math.inf
    clips = CLIPS if private else (1.0,)
    shape = (len(clips), len(STEP_SCALES), trials)
    told: Any = {"clip": 1.0 if private else math.inf, "batch_shape": shape, "seed": seed_of("DPTOFW", setting)}
    learner = DPTOFW(setting.dim, **setting.promise(), **setting.ball(), **told)
    return learn(learner, stream or Stream(setting, trials), at or (setting.rounds,), clips, STEP_SCALES, bool(at))


@dataclass
class Worst:
    """Excess of the worst hard instance, per trial, its signal and the step scale."""

    excess: Tensor
    signal: float
    scale: float


def noise_of_mean(noise: Any, n: int) -> float:
    """Return the scale of the noise on a score, or of that on an entry of the mean, after n steps."""
    if isinstance(noise, NoisyVertex):
        return noise.scale / math.sqrt(n)
    return noise.noise_scale * noise.errors(n)[1] / n


def hardest(setting: Setting, trials: int) -> tuple[Worst, Worst]:
    """Play DPTOFW on hard instances; return the worst, default and tuned.

    Tuned is the step scale whose worst instance is the mildest. The clip is the Euclidean norm of a record, so it cuts nothing.
    """
    n, (size, share) = setting.rounds, entries(setting)
    private = setting.epsilon < math.inf
    told: Any = {"clip": size * math.sqrt(share * setting.dim) if private else math.inf}
    told |= {"seed": seed_of("hard", setting), "batch_shape": (1, len(HARD_SCALES), trials * len(SIGNALS))}
    learner = DPTOFW(setting.dim, **setting.promise(), **setting.ball(), **told)
    unit = math.hypot(size * math.sqrt(share / n), noise_of_mean(learner.noise, n)) / (share * size)
    stream = HardStream(setting, trials, [min(1.0, signal * unit) for signal in SIGNALS])
    run = learn(learner, stream, (n,), scales=HARD_SCALES)
    excess = run.excess[0, 0].unflatten(-1, (len(SIGNALS), trials))
    worst, where = excess.mean(-1).max(-1)
    found = [Worst(excess[i, where[i]], SIGNALS[where[i]], HARD_SCALES[i]) for i in (0, int(worst.argmin()))]
    return found[0], found[1]


def hardest_entry(setting: Setting, noise: str, trials: int) -> Tensor:
    """Return the excess of DPPOFW where one entry has the worst of some means, per trial."""
    n, d = setting.rounds, setting.dim
    told: Any = {"clip": 1.0 if setting.epsilon < math.inf else math.inf, "mechanism": noise, "radius_bound": 1.0}
    told |= {"seed": seed_of("entry", noise, setting), "batch_shape": (1, 1, trials * len(SIGNALS))}
    learner = DPPOFW(d, **setting.promise(), **told)
    largest = math.hypot(math.sqrt(2.0 * math.log(2.0 * d) / n), noise_of_mean(learner.noise, n) * math.log(2.0 * d))
    stream = OneEntry(setting, trials, [min(1.0, signal * largest / 4.0) for signal in SIGNALS])
    excess = learn(learner, stream, (n,)).excess[0, 0, 0].unflatten(-1, (len(SIGNALS), trials))
    return excess[int(excess.mean(-1).argmax())]


def relative(learner: Any, stream: Stream) -> Tensor:
    """Return the last decision's excess over that of the decision 0, per trial."""
    excess = learn(learner, stream, (stream.setting.rounds,)).default()[0]
    return excess / stream.excess(torch.zeros_like(stream.theta))


def conditional(stream: Any, scale: float = 1.0) -> Tensor:
    """Return the relative excess of LocalMD under the promise that the stream keeps."""
    setting = stream.setting
    told: Any = {"radius_bound": setting.radius, "clip": stream.longest, "smoothness": stream.smoothness}
    told |= setting.promise() | {"batch_shape": (1, 1, stream.trials), "seed": seed_of("conditional", setting, scale)}
    rate = ConditionalLocalMD(setting.dim, **told).learning_rate
    rate = min(scale * rate, 2.0 / stream.smoothness)
    return relative(ConditionalLocalMD(setting.dim, **told, learning_rate=rate), stream)


def least_worst_excess(setting: Setting) -> float:
    """Return a lower bound of any learner's worst excess over all linear losses."""
    bias = torch.logspace(-5, -0.01, 2000, dtype=torch.float64)
    distance = (0.5 * setting.rounds * (entries(setting)[1] * bias * ((1.0 + bias) / (1.0 - bias)).log())).sqrt()
    return float((bias * (1.0 - distance)).max())


Runs = Sequence[Sequence[float]]  # numbers by value and trial


def exponent(values: Sequence[float], runs: Runs) -> str:
    """Return a fitted exponent with its interval; nothing for a single value."""
    return "" if len(values) < 2 else str(Slope.fit(values, runs))


def claimed(axis: str, norm: float) -> tuple[str, str]:
    """Return the exponents of the rate's terms, of the records and the noise, and squared."""
    kappa = max(0.0, 0.5 - 1.0 / norm)
    pairs = {"n": (-0.5, -1.0), "d": (kappa, kappa + 0.5), "epsilon": (0.0, -1.0)}
    once, twice = ([f"{times * exponent:g}" for exponent in pairs[axis]] for times in (1, 2))
    return ", ".join(once), ", ".join(twice)


class Records:
    """Records that were drawn before, as a stream."""

    def __init__(self, stream: Stream, records: list[tuple[Tensor, Tensor]]) -> None:
        self.records, self.excess, self.gradients = records, stream.excess, stream.gradients

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.records)


def table_dptofw(setting: Setting, stream: Stream, records: list[tuple[Tensor, Tensor]], single: bool = False) -> Run:
    """Play DPTOFW at (1, 1/T), all clips, scales and trials, or a single run."""
    told = setting.promise() | {"delta": 1.0 / setting.rounds, "seed": seed_of("table", setting)} | setting.ball()
    if single:
        learner = DPTOFW(setting.dim, **told)
        for x, y in records:
            learner.step(stream.gradients(learner.queries(), x[0], y[0]))
        return Run(torch.empty(0), torch.empty(0))
    learner = DPTOFW(setting.dim, batch_shape=(len(CLIPS), len(STEP_SCALES), stream.trials), **told)
    again: Any = Records(stream, records)
    return learn(learner, again, (setting.rounds,), CLIPS, STEP_SCALES)


def noisy_sgd(setting: Setting, records: list[tuple[Tensor, Tensor]], trial: int, scale: float) -> tuple[Tensor, float]:
    """Return the average of NoisySGD on one trial's records, and the seconds it took.

    It takes at most 1000 steps, of n/32 records. The rate is a multiple of the default.
    """
    steps = min(setting.rounds, 1000)
    told = {"records": setting.rounds, "epsilon": 1.0, "delta": 1.0 / setting.rounds, "steps": steps} | setting.ball()
    told |= {"batch_size": max(1.0, setting.rounds / 32), "seed": seed_of("SGD", setting, trial, scale)}
    rate = NoisySGD(setting.dim, **told).learning_rate
    sgd = NoisySGD(setting.dim, **told, learning_rate=scale * rate)
    x, y = (torch.stack([record[i][trial] for record in records]) for i in (0, 1))
    start = time.perf_counter()
    average, _ = sgd.fit(lambda theta, x, y: ((theta * x).sum() - y) ** 2, x, y)
    return average, time.perf_counter() - start


@dataclass(frozen=True)
class Game:
    """Bandit with K = 2 arms: uniform contexts, sparse parameters of l1 norm 1."""

    rounds: int
    dim: int
    trials: int
    epsilon: float
    binary: bool = False

    def __str__(self) -> str:
        return f"T = {self.rounds}, d = {self.dim}, epsilon = {self.epsilon:g}"

    def play(self, options: dict[str, Any] | None) -> Tensor:
        """Return the pseudo-regret of DPHDB, or of arms at random without options."""
        bandit = None
        if options is not None:
            told: dict[str, Any] = {"horizon": self.rounds, "epsilon": self.epsilon, "delta": 0.1 / self.rounds}
            told |= {
                "warmup": max(1, self.rounds // 40),
                "batch_shape": (self.trials,),
                "seed": seed_of(self),
            } | options
            bandit = DPHDB(self.dim, arms=2, **told)
        generator = torch.Generator().manual_seed(seed_of(self.rounds, self.dim, self.binary))
        chance = torch.Generator().manual_seed(0)
        theta = sparse_parameters((self.trials, 2, self.dim), SPARSITY, generator)
        total = torch.zeros(self.trials, dtype=torch.float64)
        for _ in range(self.rounds):
            x = 2.0 * torch.rand(self.trials, self.dim, generator=generator, dtype=torch.float64) - 1.0
            luck = torch.rand(self.trials, generator=generator, dtype=torch.float64)
            noise = NOISE * torch.randn(self.trials, generator=generator, dtype=torch.float64)
            means = (theta @ x.unsqueeze(-1)).squeeze(-1)
            means = means.sigmoid() if self.binary else means
            arm = torch.randint(2, (self.trials,), generator=chance) if bandit is None else bandit.select(x)
            mean = torch.take_along_dim(means, arm.unsqueeze(-1), -1).squeeze(-1)
            if bandit is not None:
                bandit.step(x, arm, (luck < mean).double() if self.binary else mean + noise)
            total += means.amax(-1) - mean
        return total


@dataclass(frozen=True)
class Plan:
    """Settings of all experiments, of their full size or small."""

    quick: bool = False

    @property
    def trials(self) -> int:
        return 2 if self.quick else TRIALS

    def rates(self) -> dict[str, list[Setting]]:
        """Return the settings by what they change."""
        long, rounds = 5000, [500, 1000, 2000, 4000, 8000, 16000]
        dims, epsilons = [5, 10, 20, 40, 80], [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
        if self.quick:
            long, rounds, dims, epsilons = 40, [20, 40], [5, 6], [1.0, 4.0]
        return {
            "n": [Setting(norm, n, 10, 1.0) for norm in NORMS for n in rounds],
            "d": [Setting(norm, long, dim, 4.0) for norm in NORMS for dim in dims],
            "epsilon": [Setting(norm, long, 10, epsilon) for norm in NORMS for epsilon in epsilons],
            "p": [Setting(norm, long, 20, 4.0) for norm in (1.25, 1.5, 2.0, 3.0, 5.0, math.inf)],
        }

    def times(self) -> tuple[int, ...]:
        return (10, 20, 40) if self.quick else (500, 1000, 2000, 4000, 8000, 16000)

    def interior(self) -> list[Setting]:
        return [
            Setting(norm, self.times()[-1], 10, epsilon, radius)
            for radius in (2.0, 1.0)
            for norm in NORMS
            for epsilon in (math.inf, 8.0, 1.0)
        ]

    def hard(self) -> dict[str, list[list[Setting]]]:
        """Return rows of settings by what they change."""
        long, less, rounds = 4000, 2000, (500, 1000, 2000, 4000, 8000, 16000)
        dims, epsilons = (5, 10, 20, 40), (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
        if self.quick:
            long, less, rounds, dims, epsilons = 20, 20, (20, 40), (5, 6), (1.0, 4.0)
        return {
            "n": [[Setting(norm, n, 10, e, 1.0) for n in rounds] for e in HARD_EPSILONS for norm in NORMS],
            "d": [[Setting(norm, long, dim, e, 1.0) for dim in dims] for e in (math.inf, 0.5) for norm in NORMS],
            "epsilon": [[Setting(norm, less, 10, e, 1.0) for e in epsilons] for norm in NORMS],
        }

    def entry(self) -> dict[tuple[float, str], list[Setting]]:
        """Return the settings against d by epsilon and noise."""
        n, dims = (20, (5, 6)) if self.quick else (4000, (20, 63, 200, 632, 2000))
        rows = [(math.inf, "blt"), *((epsilon, noise) for epsilon in (64.0, 16.0) for noise in ("gumbel", "blt"))]
        return {(epsilon, noise): [Setting(1.0, n, dim, epsilon, 1.0) for dim in dims] for epsilon, noise in rows}

    def epsilons(self) -> list[float]:
        return [10.0, 200.0] if self.quick else [1.0, 4.0, 10.0, 50.0, 200.0]

    def vertices(self) -> list[Setting]:
        """Return the settings with many features and one entry that is not 0."""
        dims, rounds = ([20, 50], [20]) if self.quick else ([200, 500, 1000, 2000, 5000], [500, 1000, 2000])
        return [Setting(1.0, n, dim, epsilon, 1.0, 1) for dim in dims for n in rounds for epsilon in self.epsilons()]

    def all_vertices(self) -> list[Setting]:
        """Return the settings in which all learners play, with one entry and with some."""
        sizes = [(50, 20)] if self.quick else [(2000, 1000), (5000, 2000)]
        few = [Setting(1.0, n, dim, epsilon, 1.0, 1) for dim, n in sizes for epsilon in self.epsilons()]
        some = [Setting(1.0, n, dim, e, 1.0, SPARSITY) for dim, n in sizes for e in self.epsilons()[-2:]]
        return few + some

    def vertex_trials(self, setting: Setting) -> int:
        return min(self.trials, 5 if setting.dim <= 2000 and setting.sparsity == 1 else 3)

    def bandit(self) -> list[Game]:
        rounds, dims = (40, (10, 12)) if self.quick else (10000, (10, 20, 50, 100, 200, 500))
        return [Game(rounds, dim, self.trials, 1.0) for dim in dims]

    def logistic(self) -> list[Game]:
        rounds = 40 if self.quick else 10000
        return [Game(rounds, 10, self.trials, epsilon, binary=True) for epsilon in (1.0, 4.0, math.inf)]

    def sgd(self) -> list[Setting]:
        rounds, dims = ((200,), (5,)) if self.quick else ((1000, 2000, 5000, 10000), (5, 10, 20))
        return [Setting(math.inf, n, dim, 1.0) for n in rounds for dim in dims]

    def sgd_trials(self, setting: Setting) -> int:
        return self.trials if setting.rounds <= 1000 else 5

    def smooth(self) -> list[tuple[str, Setting]]:
        """Return losses with settings at both epsilons."""
        rounds, dims = ((20, 40), (5, 6)) if self.quick else ((1000, 3000, 10000), (5, 10, 20))
        problems = [("logistic", 10.0, n, dim) for n in rounds for dim in dims]
        problems += [("squared", 2.0, n, dims[1]) for n in rounds]
        return [(loss, Setting(2.0, n, dim, e, radius)) for loss, radius, n, dim in problems for e in (1.0, 4.0)]


def without(setting: Setting) -> Setting:
    """Return the same setting without privacy."""
    return replace(setting, epsilon=math.inf)


def play_rates(trials: int, **options: Any) -> dict[str, Any]:
    """Return the excess of DPTOFW at the end, and of the decision 0."""
    setting = Setting(**options)
    run, stream = dptofw(setting, trials), Stream(setting, trials)
    clip, scale = run.choice()
    return {
        "zero": float(stream.excess(torch.zeros_like(stream.theta)).mean()),
        "default": run.default()[0].tolist(),
        "tuned": run.tuned()[0].tolist(),
        "step scale": STEP_SCALES[scale],
        "clip": CLIPS[clip],
    }


def play_interior(trials: int, times: list[int], **options: Any) -> dict[str, Any]:
    """Return excess and regret of DPTOFW on its way, tuned for each time and for the last."""
    run = dptofw(Setting(**options), trials, times)
    return {"excess": run.tuned().tolist(), "regret": run.regret[:, *run.choice(what="regret")].tolist()}


def play_hard(trials: int, **options: Any) -> dict[str, Any]:
    """Return the worst excess over hard linear losses, default and tuned."""
    found = zip(("default", "tuned"), hardest(Setting(**options), trials), strict=True)
    return {name: {**vars(worst), "excess": worst.excess.tolist()} for name, worst in found}


def play_entry(noise: str, trials: int, **options: Any) -> list[float]:
    return hardest_entry(Setting(**options), noise, trials).tolist()


def play_vertices(learner: str, trials: int, **options: Any) -> list[float]:
    """Return the relative excess of DPPOFW with a noise, or of NoisySFW, at p = 1."""
    setting = Setting(**options)
    told: dict[str, Any] = setting.promise() | {"batch_shape": (1, 1, trials)}
    if learner == "NoisySFW":
        told |= setting.ball() | {"clip": math.sqrt(setting.dim), "seed": seed_of("SFW", setting)}
        return relative(NoisySFW(setting.dim, **told), Stream(setting, trials)).tolist()
    clip = 1.0 if setting.epsilon < math.inf else math.inf
    told |= {"radius_bound": setting.radius, "clip": clip, "mechanism": learner, "seed": seed_of(learner, setting)}
    return relative(DPPOFW(setting.dim, **told), Stream(setting, trials)).tolist()


# Options of DPHDB; None for arms at random.
BANDITS: dict[str, dict[str, Any] | None] = {
    "uniform": None,
    "DPHDB": {},
    "DPHDB, Gumbel": {"mechanism": "gumbel"},
    "no privacy": {"epsilon": math.inf, "clip": math.inf, "reward_clip": math.inf},
}


def play_game(name: str, **options: Any) -> list[float]:
    """Return the pseudo-regret of a bandit."""
    game, told = Game(**options), BANDITS[name]
    if told is not None and game.binary:
        told = told | {"link": Logistic()} | ({"clip": math.inf} if game.epsilon == math.inf else {})
    return game.play(told).tolist()


def play_sgd(trials: int, **options: Any) -> dict[str, Any]:
    """Return the excess of DPTOFW and NoisySGD, that of the decision 0, and the time of NoisySGD over that of DPTOFW."""
    setting = Setting(**options)
    stream = Stream(setting, trials)
    records = list(stream)
    run = table_dptofw(setting, stream, records)
    start = time.perf_counter()
    table_dptofw(setting, stream, records, single=True)
    time_of_ours = time.perf_counter() - start
    theirs, times = {}, []
    for scale in SGD_SCALES:
        fits = [noisy_sgd(setting, records, i, scale) for i in range(trials)]
        theirs[f"{scale:g}"] = stream.excess(torch.stack([fitted for fitted, _ in fits])).tolist()
        times += [seconds for _, seconds in fits]
    return {
        "zero": stream.excess(torch.zeros_like(stream.theta)).tolist(),
        "default": run.default()[0].tolist(),
        "tuned": run.tuned()[0].tolist(),
        "NoisySGD": theirs,
        "time": statistics.fmean(times) / time_of_ours,
    }


LOSSES: dict[str, Any] = {"logistic": LogisticStream, "squared": BoundedStream}
RIVALS: dict[str, Any] = {"DPTOFW": DPTOFW, "DP-FTRL": DPFTRL, "LocalMD": LocalMD}


def play_smooth(loss: str, trials: int, **options: Any) -> dict[str, list[float]]:
    """Return the relative excess of the conditional LocalMD by its rate, and of its rivals if there is privacy."""
    setting = Setting(**options)
    private = setting.epsilon < math.inf
    scales = RATE_SCALES if private else RATE_SCALES[:1]
    found = {f"{scale:g}": conditional(LOSSES[loss](setting, trials), scale).tolist() for scale in scales}
    for name, rival in RIVALS.items() if private else ():
        told: Any = setting.promise() | setting.ball() | {"batch_shape": (1, 1, trials), "seed": seed_of(name, setting)}
        found[name] = relative(rival(setting.dim, **told), LOSSES[loss](setting, trials)).tolist()
    return found


def jobs(quick: bool) -> dict[str, Job]:
    plan = Plan(quick)
    told = {"trials": plan.trials}
    found = {}
    for setting in reversed(plan.sgd()):
        found[f"sgd, {setting}"] = Job(play_sgd, {"trials": plan.sgd_trials(setting)} | asdict(setting))
    for game in reversed(plan.bandit()):
        found |= {f"bandit, {name}, {game}": Job(play_game, {"name": name} | asdict(game)) for name in BANDITS}
    for game in plan.logistic():
        for name in ("uniform", "DPHDB", "DPHDB, Gumbel")[: 3 if game.epsilon < math.inf else 2]:
            found[f"logistic, {name}, {game}"] = Job(play_game, {"name": name} | asdict(game))
    for setting in plan.interior():
        found[f"interior, {setting}"] = Job(play_interior, told | {"times": plan.times()} | asdict(setting))
    for setting in (setting for rows in plan.hard().values() for row in rows for setting in row):
        found[f"hard, {setting}"] = Job(play_hard, {"trials": 2 * plan.trials} | asdict(setting))
    for (_, noise), settings in plan.entry().items():
        for setting in settings:
            found[f"entry, {noise}, {setting}"] = Job(play_entry, told | {"noise": noise} | asdict(setting))
    for setting in (setting for axis in plan.rates().values() for setting in axis):
        for each in (setting, without(setting)):
            found[f"rates, {each}"] = Job(play_rates, told | asdict(each))
    for loss, setting in plan.smooth():
        for each in (setting, without(setting)):
            found[f"smooth, {loss}, {each}"] = Job(play_smooth, told | {"loss": loss} | asdict(each))
    shown = [(setting, learner) for setting in plan.vertices() for learner in ("gumbel", "blt")]
    for setting in plan.all_vertices():
        shown += [*((setting, learner) for learner in (*VERTEX_NOISE, "NoisySFW")), (without(setting), "blt")]
    for setting, learner in shown:
        options = {"learner": learner, "trials": plan.vertex_trials(setting)} | asdict(setting)
        found[f"p1, {learner}, {setting}"] = Job(play_vertices, options)
    return found


def mean_of(numbers: Runs) -> list[float]:
    """Return the mean over trials for each value."""
    return list(map(statistics.fmean, numbers))


def setting_of(axis: str, setting: Setting) -> float:
    """Return the number of a setting that an axis changes."""
    return getattr(setting, {"n": "rounds", "d": "dim", "epsilon": "epsilon", "p": "norm"}[axis])


def rates_table(results: Results, settings: Sequence[Setting]) -> str:
    rows = []
    for setting in settings:
        run, free = results[f"rates, {setting}"], results[f"rates, {without(setting)}"]
        numbers = [f"{setting.norm:g}", setting.rounds, setting.dim, f"{setting.epsilon:g}", short(run["zero"])]
        chosen = f"{run['step scale']:g}, {run['clip']:g}"
        rows.append([*numbers, scatter(run["default"]), scatter(run["tuned"]), chosen, scatter(free["tuned"])])
    header = ("p", "n", "d", "epsilon", "decision 0", "default", "tuned", "its step scale, clip", "no privacy, tuned")
    return table(header, rows)


def fits_table(results: Results, axes: dict[str, list[Setting]]) -> str:
    """Return exponents, fitted where the tuned excess is below half of the decision 0's."""
    rows = []
    for axis in ("n", "d", "epsilon"):
        for norm in NORMS:
            line = [setting for setting in axes[axis] if setting.norm == norm]
            found = {setting: results[f"rates, {setting}"] for setting in line}
            learnt = [s for s in line if statistics.fmean(found[s]["tuned"]) < 0.5 * found[s]["zero"]]
            values = [setting_of(axis, setting) for setting in learnt]
            fits = [exponent(values, [found[s][kind] for s in learnt]) for kind in ("default", "tuned")]
            free = [results[f"rates, {without(s)}"]["tuned"] for s in learnt]
            fits.append("" if axis == "epsilon" else exponent(values, free))
            rows.append((axis, f"{norm:g}", f"{len(learnt)} of {len(line)}", *fits, *claimed(axis, norm)))
    header = ("against", "p", "points", "default", "tuned", "no privacy, tuned", "rate: records, noise", "its square")
    return table(header, rows)


def place_of(setting: Setting) -> str:
    return "inside" if setting.radius > 1.0 else "on the sphere"


def interior_table(results: Results, plan: Plan, what: str) -> str:
    """Return a table of excess or regret at some times."""
    rows, times = [], plan.times()
    for setting in plan.interior():
        numbers = results[f"interior, {setting}"][what]
        means = mean_of(numbers)
        row = [place_of(setting), f"{setting.norm:g}", f"{setting.epsilon:g}", *map(short, means)]
        row += [exponent(times, numbers), exponent(times[-3:], numbers[-3:])]
        grown = (means[-1] - means[-2]) / (means[-2] - means[-3])
        rows.append([*row, short(grown)] if what == "regret" else row)
    header = ["theta*", "p", "epsilon", *(f"t = {t}" for t in times), "exponent", "of the last three"]
    return table([*header, "last / former increase"] if what == "regret" else header, rows)


def hard_table(results: Results, axis: str, lines: list[list[Setting]]) -> str:
    rows, values = [], [setting_of(axis, setting) for setting in lines[0]]
    end, part = ("first", slice(3)) if axis == "epsilon" else ("last", slice(-3, None))
    skip = int(axis == "epsilon")
    for line in lines:
        first = line[0]
        where = [f"{first.epsilon:g}", f"{first.norm:g}"][skip:]
        for kind in ("default", "tuned"):
            worst = [results[f"hard, {setting}"][kind] for setting in line]
            runs = [one["excess"] for one in worst]
            fits = (exponent(values, runs), exponent(values[part], runs[part]), claimed(axis, first.norm)[0])
            chosen = [", ".join(f"{one[name]:g}" for one in worst) for name in ("signal", "scale")]
            rows.append([*where, kind, *map(short, mean_of(runs)), *fits, *chosen])
        if first.epsilon == math.inf:
            least = [least_worst_excess(setting) for setting in line]
            fitted = f"{Slope.fit(values, [[number] for number in least]).value:z.2f}"
            rows.append([*where, "any learner, all losses", *map(short, least), fitted, "", "", "", ""])
    header = [*["epsilon", "p"][skip:], "steps", *(f"{axis} = {value:g}" for value in values)]
    header += ["exponent", f"of the {end} three", "rate: records, noise", "signals", "step scales"]
    return table(header, rows)


def entry_table(results: Results, plan: Plan) -> str:
    rows, dims = [], [setting.dim for setting in plan.entry()[math.inf, "blt"]]
    for (epsilon, noise), settings in plan.entry().items():
        runs = [results[f"entry, {noise}, {setting}"] for setting in settings]
        means = mean_of(runs)
        name = "none" if epsilon == math.inf else noise
        rows.append([f"{epsilon:g}", name, *map(scatter, runs), f"{means[-1] / means[0]:.2f}"])
    log, root = math.log(2.0 * dims[-1]) / math.log(2.0 * dims[0]), math.sqrt(dims[-1] / dims[0])
    for name, ratio in {"log(2d)": log, "its root": math.sqrt(log), "root of d": root}.items():
        rows.append(["", name, *[""] * len(dims), f"{ratio:.2f}"])
    return table(["epsilon", "noise", *(f"d = {dim}" for dim in dims), "last / first"], rows)


def automatic(setting: Setting) -> str:
    """Return the noise that DPPOFW takes by default."""
    return DPPOFW(setting.dim, horizon=setting.rounds, epsilon=1.0, delta=0.1 / setting.rounds).mechanism


def vertices_table(results: Results, plan: Plan) -> str:
    """Return the table with all learners."""
    rows = []
    for setting in plan.all_vertices():
        found = {learner: results[f"p1, {learner}, {setting}"] for learner in (*VERTEX_NOISE, "NoisySFW")}
        free = results[f"p1, blt, {without(setting)}"]
        best = min(found, key=lambda learner: statistics.fmean(found[learner]))
        numbers = (setting.sparsity, setting.dim, setting.rounds, f"{setting.epsilon:g}", len(free))
        rows.append([*numbers, *map(scatter, found.values()), scatter(free), best, automatic(setting)])
    header = (
        "entries",
        "d",
        "n",
        "epsilon",
        "trials",
        "Gumbel",
        "Laplace",
        "BLT",
        "NoisySFW",
        "no privacy",
        "best",
        "auto",
    )
    return table(header, rows)


def gumbel_over_blt(results: Results, setting: Setting) -> tuple[float, bool]:
    """Return a ratio of means, and whether anything was learnt."""
    gumbel, blt = mean_of([results[f"p1, {noise}, {setting}"] for noise in ("gumbel", "blt")])
    return gumbel / blt, min(gumbel, blt) < 0.9


def ratios_table(results: Results, plan: Plan) -> str:
    rows: dict[tuple[int, int], list[Any]] = {}
    for setting in plan.vertices():
        size = (setting.dim, setting.rounds)
        if size not in rows:
            trials = plan.vertex_trials(setting)
            rows[size] = [*size, f"{setting.dim / setting.rounds:g}", trials, automatic(setting)]
        ratio, learnt = gumbel_over_blt(results, setting)
        rows[size].append(short(ratio) + ("" if learnt else "*"))
    header = ["d", "n", "d / n", "trials", "auto", *(f"epsilon = {epsilon:g}" for epsilon in plan.epsilons())]
    return table(header, rows.values())


def learnt_ratios(results: Results, plan: Plan) -> list[tuple[Setting, float]]:
    """Return the ratios of Gumbel noise to the BLT where something was learnt."""
    found = [(setting, *gumbel_over_blt(results, setting)) for setting in plan.vertices()]
    return [(setting, ratio) for setting, ratio, learnt in found if learnt]


def choices(results: Results, plan: Plan) -> list[str]:
    """Return how often Gumbel noise from a share of d / n on is the better choice."""
    found, said = learnt_ratios(results, plan), []
    for least in (1.3, 2.0, 3.0, 4.0, math.inf):
        right = sum((ratio < 1.0) == (setting.dim / setting.rounds > least) for setting, ratio in found)
        said.append(
            f"Gumbel noise if d > {least:g} n is the better choice in {right} of {len(found)} cells without a *"
        )
    return said


def bandit_table(results: Results, plan: Plan) -> str:
    games = plan.bandit()
    found = {name: [results[f"bandit, {name}, {game}"] for game in games] for name in BANDITS}
    shares = [
        ours / chance for ours, chance in zip(*(mean_of(found[name]) for name in ("DPHDB", "uniform")), strict=True)
    ]
    rows = [
        [game.dim, *(scatter(numbers[i]) for numbers in found.values()), short(shares[i])]
        for i, game in enumerate(games)
    ]
    rows.append(["exponent", *(exponent([game.dim for game in games], numbers) for numbers in found.values()), ""])
    return table(["d", *BANDITS, "DPHDB / uniform"], rows)


def logistic_table(results: Results, plan: Plan) -> str:
    rows = []
    for game in plan.logistic():
        ours, chance = (results[f"logistic, {name}, {game}"] for name in ("DPHDB", "uniform"))
        gumbel = results.get(f"logistic, DPHDB, Gumbel, {game}")
        share = short(statistics.fmean(ours) / statistics.fmean(chance))
        rows.append([f"{game.epsilon:g}", scatter(ours), scatter(gumbel) if gumbel else "", scatter(chance), share])
    return table(["epsilon", "DPHDB", "DPHDB, Gumbel", "uniform", "DPHDB / uniform"], rows)


def sgd_table(results: Results, plan: Plan) -> str:
    rows = []
    for setting in plan.sgd():
        one = results[f"sgd, {setting}"]
        scale, tuned = min(one["NoisySGD"].items(), key=lambda item: statistics.fmean(item[1]))
        four = (one["default"], one["tuned"], one["NoisySGD"]["1"], tuned)
        shares = [scatter([a / b for a, b in zip(numbers, one["zero"], strict=True)]) for numbers in four]
        risks = [short(NOISE**2 + statistics.fmean(numbers)) for numbers in four]
        rows.append([setting.rounds, setting.dim, len(tuned), *shares, scale, *risks, short(one["time"])])
    names = ["DPTOFW", "tuned", "NoisySGD", "tuned"]
    return table(["T", "d", "trials", *names, "its rate", "risk: DPTOFW", *names[1:], "time"], rows)


def smooth_table(results: Results, plan: Plan) -> str:
    rows = []
    for loss, setting in plan.smooth():
        found, free = (results[f"smooth, {loss}, {each}"] for each in (setting, without(setting)))
        numbers = [scatter(found[name]) for name in (*RIVALS, "1")]
        rows.append([loss, setting.rounds, setting.dim, f"{setting.epsilon:g}", *numbers, scatter(free["1"])])
    return table(["loss", "n", "d", "epsilon", *RIVALS, "LocalMD, conditional", "the same, no privacy"], rows)


def smooth_verdicts(results: Results, plan: Plan) -> list[str]:
    found = [
        {name: statistics.fmean(numbers) for name, numbers in results[f"smooth, {loss}, {setting}"].items()}
        for loss, setting in plan.smooth()
    ]
    said = [
        f"LocalMD, conditional, has less than {name} in {sum(each['1'] < each[name] for each in found)} of {len(found)} cells"
        for name in RIVALS
    ]
    scales = [f"{scale:g}" for scale in sorted(RATE_SCALES)]
    best = sum(each["1"] == min(each[scale] for scale in scales) for each in found)
    said.append(
        f"Of {', '.join(scales)} times its default rate the default is the best in {best} of {len(found)} cells"
    )
    return said


def plan_of(results: Results) -> Plan:
    return Plan(results.keys() != jobs(False).keys())


def tables(results: Results) -> dict[str, str]:
    plan = plan_of(results)
    trials, axes = plan.trials, plan.rates()
    rounds, (entry, *_) = plan.bandit()[0].rounds, plan.entry()[math.inf, "blt"]
    made = {
        f"Excess risk against {axis}: mean ± sd of {trials} trials": rates_table(results, settings)
        for axis, settings in axes.items()
    }
    title = "Fitted exponents of the excess, where the tuned one is below half of the decision 0's"
    made[title] = fits_table(results, axes)
    title = f"Excess at time t within one run, tuned for each t: mean of {trials} trials"
    made[title] = interior_table(results, plan, "excess")
    made[f"Regret at time t, tuned for the last t: mean of {trials} trials"] = interior_table(results, plan, "regret")
    for axis, lines in plan.hard().items():
        title = f"Worst excess over linear losses against {axis}: mean of {2 * trials} trials"
        made[title] = hard_table(results, axis, lines)
    title = f"Worst excess over linear losses with one entry, p = 1, n = {entry.rounds}: mean ± sd of {trials} trials"
    made[title] = entry_table(results, plan)
    made["p = 1: suboptimality, the decision 0 has 1: mean ± sd, defaults"] = vertices_table(results, plan)
    title = "p = 1: suboptimality with Gumbel noise / with the BLT; * where both have at least 0.9"
    made[title] = ratios_table(results, plan)
    made["p = 1: Gumbel noise or the BLT"] = listed(choices(results, plan))
    title = f"DPHDB: pseudo-regret after T = {rounds} rounds, K = 2, epsilon = 1: mean ± sd of {trials} trials"
    made[title] = bandit_table(results, plan)
    title = f"Logistic DPHDB: pseudo-regret after T = {rounds} rounds, K = 2, d = 10: mean ± sd of {trials} trials"
    made[title] = logistic_table(results, plan)
    title = "Table 5.1, p = infinity, (1, 1/T): suboptimality, mean ± sd; risk; seconds of a run over DPTOFW's"
    made[title] = sgd_table(results, plan)
    title = f"p = 2: suboptimality, the decision 0 has 1: mean ± sd of {trials} trials, defaults"
    made[title] = smooth_table(results, plan)
    return made | {"p = 2: LocalMD under a promise": listed(smooth_verdicts(results, plan))}


def label_ticks(panel: Any, x: Sequence[float]) -> None:
    panel.set_xticks(x, [f"{value:g}" for value in x])
    panel.minorticks_off()
    panel.grid(alpha=0.3)


def write(figure: Any, panels: Any, path: Path) -> None:
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_rates(results: Results, plan: Plan, path: Path) -> None:
    figure, panels = plt.subplots(1, 3, figsize=(13.0, 4.2), layout="constrained")
    for panel, (axis, settings) in zip(panels, plan.rates().items(), strict=False):
        for color, norm in zip(("C0", "C1", "C2"), NORMS, strict=True):
            line = [setting for setting in settings if setting.norm == norm]
            x = [setting_of(axis, setting) for setting in line]
            for style, kind in (("-", "tuned"), (":", "default")):
                means = mean_of([results[f"rates, {setting}"][kind] for setting in line])
                label = f"p = {norm:g}, {kind}"
                panel.loglog(x, means, f"{color}{style}", marker="o", markersize=3, label=label)
        panel.set(xlabel=axis, ylabel="excess risk")
        label_ticks(panel, x)
    write(figure, panels, path)


def plot_interior(results: Results, plan: Plan, path: Path) -> None:
    figure, panels = plt.subplots(1, 2, figsize=(11.0, 4.4), layout="constrained")
    for panel, what in zip(panels, ("excess", "regret"), strict=True):
        for setting in (setting for setting in plan.interior() if setting.norm == 2.0):
            means = mean_of(results[f"interior, {setting}"][what])
            label = f"theta* {place_of(setting)}, epsilon = {setting.epsilon:g}"
            panel.loglog(plan.times(), means, marker="o", markersize=3, label=label)
        panel.set(xlabel="t", ylabel=f"{'excess risk' if what == 'excess' else what}, p = 2")
        label_ticks(panel, plan.times())
    write(figure, panels, path)


def plot_hard(results: Results, plan: Plan, path: Path) -> None:
    """Draw the worst excess against n, and the lower bound."""
    figure, panels = plt.subplots(1, len(HARD_EPSILONS), figsize=(14.0, 4.4), layout="constrained", sharey=True)
    lines = plan.hard()["n"]
    x = [setting.rounds for setting in lines[0]]
    for line in lines:
        first = line[0]
        panel, color = panels[HARD_EPSILONS.index(first.epsilon)], f"C{NORMS.index(first.norm)}"
        for style, kind in ((":", "default"), ("-", "tuned")):
            means = mean_of([results[f"hard, {setting}"][kind]["excess"] for setting in line])
            label = f"p = {first.norm:g}, {kind}"
            panel.loglog(x, means, color + style, marker="o", markersize=3, label=label)
        if first.norm >= 2.0:
            least, style = [least_worst_excess(setting) for setting in line], ":" if first.norm > 2.0 else "--"
            panel.loglog(x, least, f"k{style}", linewidth=0.8, label=f"least, p = {first.norm:g}")
        panel.set(xlabel="n", ylabel="worst excess", title=f"epsilon = {first.epsilon:g}")
        label_ticks(panel, x)
    write(figure, panels, path)


def plot_vertices(results: Results, plan: Plan, path: Path) -> None:
    figure, axis = plt.subplots(figsize=(7.0, 4.4), layout="constrained")
    found = learnt_ratios(results, plan)
    for epsilon in plan.epsilons():
        points = sorted((s.dim / s.rounds, ratio) for s, ratio in found if s.epsilon == epsilon)
        if points:
            axis.loglog(*zip(*points, strict=True), "o-", label=f"epsilon = {epsilon:g}")
    axis.axhline(1.0, color="k", linewidth=0.8)
    axis.axvline(3.0, color="k", linewidth=0.8, linestyle=":", label="auto changes here")
    axis.set(xlabel="d / n", ylabel="suboptimality, Gumbel / BLT")
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_bandits(results: Results, plan: Plan, path: Path) -> None:
    figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    games = plan.bandit()
    dims = [game.dim for game in games]
    for name in BANDITS:
        axis.loglog(dims, mean_of([results[f"bandit, {name}, {game}"] for game in games]), "o-", label=name)
    axis.set(xlabel="d", ylabel="pseudo-regret")
    label_ticks(axis, dims)
    write(figure, [axis], path)


def figures(results: Results, folder: Path) -> list[Path]:
    plan = plan_of(results)
    draw = {
        "rates": plot_rates,
        "interior": plot_interior,
        "hard": plot_hard,
        "p1": plot_vertices,
        "bandit_dims": plot_bandits,
    }
    paths = {name: folder / f"private_oco_{name}.png" for name in draw}
    for name, path in paths.items():
        draw[name](results, plan, path)
    return list(paths.values())


EXPERIMENT = Experiment(__file__, jobs, tables, figures, seeds="the checksum of each setting (private_streams.seed_of)")

if __name__ == "__main__":
    EXPERIMENT.main(__doc__)
