"""Blocks of rounds that are learnt at once: coverage, width, regret, time, and what breaks them.

- coverage, of 2000 runs. A run has failed if its set missed the parameter after any block. Features are the
  policy's own choices among 5 new unit arms in each round ("own choices"), the unit vector along which the set is worst, known
  only to an adversary ("against it"), or random directions that grow ("growing": linear rewards have features of any length,
  so a block's squared widths add up to 0.2; with a link, lengths grow to 1 over the run). A block has 1 round, an eighth of the
  rounds before it ("1/8", the default), or 1000 rounds from the start on.
- broken: the same, where a condition of the theorem does not hold.
- width: radius times width of a learner that learnt a stream in blocks, over that of one that took steps, after 5000 rounds.
- regret: policies on the experiments of the papers of Hvt-UCB and GLB-OMD, that learn by steps, in blocks of an eighth of the
  rounds so far, or in such blocks with steps on a copy in between.
- time: microseconds of a round in `step` and in `learn`, after 5000 rounds, medians of repeats in alternation; and 10^6 rounds of
  64 features, each in a process of its own, with the memory above that of the data. Processor time of one thread.
- warm: a log of a uniform policy on one half of scikit-learn's digits, learnt by a policy that then plays on the other half.

    OMP_NUM_THREADS=1 python examples/blocks.py    # about two hours; seconds with --smoke
    OMP_NUM_THREADS=1 python examples/blocks.py --only time warm
"""

import argparse
import copy
import math
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from torchonline import (
    UCB,
    AnytimeHeavyTailUCB,
    DisjointArms,
    HeavyTailRegression,
    LocalGLB,
    LocalGLMRegression,
    Logistic,
    Poisson,
    RidgeRegression,
)
from torchonline.datasets import ClassificationBandit, digits
from torchonline.environments import (
    GaussianNoise,
    GeneralizedLinearBandit,
    LinearBandit,
    Noise,
    Pareto,
    StudentT,
    TwoPoint,
)
from torchonline.links import Link
from torchonline.metrics import has_missed
from torchonline.regression.blocks import rows_of_block
from torchonline.regression.estimator import Estimator

DELTAS, ARMS = (0.5, 0.1, 0.05), 5
# Of each size of blocks: its name, the rounds of a run, and the runs that are one batch, whose arrays have a moderate size.
SIZES: dict[int | None, tuple[str, int, int]] = {
    1: ("1", 200, 2000),
    None: ("1/8", 1000, 2000),
    1000: ("1000", 3000, 500),
}
FEATURES = ("own choices", "against it", "growing")
# A share of the radius that promises nothing.
TOO_LITTLE = 2.0 / 3.0


@dataclass(frozen=True)
class Rewards:
    """A law of rewards, and the estimator that is told the truth about it.

    Args:
        make: the estimator, of ``dim`` and options.
        norm: of the parameter.
        draw: rewards at predictors, ``(..., n)``, the rounds of a block.
    """

    make: Callable[..., Estimator]
    norm: float
    draw: Callable[[Tensor, torch.Generator], Tensor]

    @property
    def is_linear(self) -> bool:
        return "link" not in getattr(self.make, "keywords", {})


def linear(law: Noise, order: float = 2.0, noise: str = "moment") -> Rewards:
    scale = law.moment_norm(order)
    make = partial(HeavyTailRegression, noise=noise, moment_order=order, noise_scale=scale)
    return Rewards(make, 1.0, lambda z, generator: z + law.sample(tuple(z.shape), generator))


def linked(link: Link, norm: float) -> Rewards:
    return Rewards(partial(LocalGLMRegression, link=link, theta_bound=norm), norm, link.sample)


LAWS = {
    "Gaussian": linear(GaussianNoise()),
    "Student-t 2.1": linear(StudentT(2.1)),
    "two-point 0.01": linear(TwoPoint(0.01)),
    "Pareto 1.5": linear(Pareto(1.5), 1.4),
    "symmetric, Student-t 1.5": linear(StudentT(1.5), 1.4, "symmetric"),
    "logistic, S = 1": linked(Logistic(), 1.0),
    "logistic, S = 3": linked(Logistic(), 3.0),
    "Poisson, S = 1": linked(Poisson(), 1.0),
    "Poisson, S = 2": linked(Poisson(), 2.0),
}


def rows_of(
    kind: str,
    estimator: Estimator,
    theta: Tensor,
    rows: int,
    progress: Tensor,
    is_linear: bool,
    random: torch.Generator,
) -> Tensor:
    """Return the features of the next rounds, ``(*B, rows, d)``. ``progress``, ``(rows)``, is the share of the run so far."""
    shape = (*theta.shape[:-1], rows)
    if kind == "own choices":
        arms = units((*shape, ARMS, theta.shape[-1]), random)
        index = UCB(estimator).select(arms)
        return arms.take_along_dim(index[..., None, None], dim=-2).squeeze(-2)
    if kind == "against it":
        error = (estimator.theta_hat - theta).unsqueeze(-1)
        worst = normalize(torch.linalg.solve(estimator.width_matrix(), error).squeeze(-1), dim=-1)
        return worst.unsqueeze(-2).expand(*shape, theta.shape[-1])
    x = units((*shape, theta.shape[-1]), random)
    lengths = math.sqrt(min(0.05, 0.2 / rows)) / estimator.width(x) if is_linear else progress
    return x * lengths.unsqueeze(-1)


def units(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Draw unit vectors."""
    return normalize(torch.randn(shape, generator=random, dtype=torch.float64), dim=-1)


def failures(
    rewards: Rewards, kind: str, size: int | None, delta: float, rounds: int, runs: int, dim: int = 2, seed: int = 0
) -> tuple[int, int]:
    """Count the runs whose set ever failed, and those in which 2/3 of its radius did."""
    random = torch.Generator().manual_seed(seed)
    estimator = rewards.make(dim, delta=delta, batch_shape=(runs,))
    theta = rewards.norm * units((runs, dim), random)
    failed = torch.zeros(2, runs, dtype=torch.bool)
    done = 0
    while done < rounds:
        rows = min(rows_of_block(done, dim) if size is None else size, rounds - done)
        progress = torch.arange(done + 1, done + rows + 1, dtype=torch.float64) / rounds
        x = rows_of(kind, estimator, theta, rows, progress, rewards.is_linear, random)
        estimator.learn(x, rewards.draw((x * theta.unsqueeze(-2)).sum(-1), random), block_size=rows)
        failed |= missed(estimator, theta)
        done += rows
    return int(failed[0].sum()), int(failed[1].sum())


def missed(estimator: Estimator, theta: Tensor) -> Tensor:
    """Return which learners' sets miss the parameter, with all of the radius and with 2/3 of it: ``(2, *B)``."""
    # A part of the radius misses theta if all of it misses a point that is so much farther away.
    farther = estimator.theta_hat + (theta - estimator.theta_hat) / TOO_LITTLE
    return torch.stack([has_missed(estimator, theta), has_missed(estimator, farther)])


def in_batches(count: Callable[..., tuple[int, ...]], runs: int, most: int) -> tuple[int, ...]:
    """Sum counts over batches of at most ``most`` runs."""
    sizes = [min(most, runs - first) for first in range(0, runs, most)]
    return tuple(map(sum, zip(*(count(runs=size, seed=i) for i, size in enumerate(sizes)), strict=True)))


def allowed(delta: float, runs: int) -> float:
    """Return the largest number of failures that a promise kept allows: three standard errors above the expected."""
    return runs * delta + 3.0 * math.sqrt(runs * delta * (1.0 - delta))


def coverage(smoke: bool) -> Iterator[str]:
    runs, shrink = (4, 100) if smoke else (2000, 1)
    headers = [f"{name}: {delta:g}" for name, *_ in SIZES.values() for delta in DELTAS]
    for dim, deltas in ((2, DELTAS), (5, DELTAS[:1])):
        chosen = [header for header in headers if float(header.split()[-1]) in deltas]
        most, power = dict.fromkeys(deltas, 0), dict.fromkeys(LAWS, 0)
        rows = []
        for name, rewards in LAWS.items():
            for kind in FEATURES:
                cells = []
                for size, (_, rounds, members) in SIZES.items():
                    for delta in deltas:
                        one = partial(failures, rewards, kind, size, delta, max(1, rounds // shrink), dim=dim)
                        full, part = in_batches(one, runs, members)
                        cells.append(str(full))
                        most[delta] = max(most[delta], full)
                        # At a large delta, 2/3 of the radius may be too little before the first round.
                        power[name] = max(power[name], part if delta == DELTAS[-1] else 0)
                rows.append([name, kind, *cells])
                print("coverage", dim, *rows[-1], sep=", ", file=sys.stderr, flush=True)
        yield f"Sets that failed, of {runs}, d = {dim}, by size of blocks and delta\n\n" + table(
            ["rewards", "features", *chosen], rows
        )
        limits = {delta: math.floor(allowed(delta, runs)) for delta in deltas}
        yield f"d = {dim}: " + "; ".join(
            f"at delta = {delta:g} at most {most[delta]}, allowed {limits[delta]}: "
            f"{'yes' if most[delta] <= limits[delta] else 'NO'}"
            for delta in deltas
        )
        if DELTAS[-1] in deltas:
            failing = ", ".join(f"{name} {count}" for name, count in power.items())
            yield f"d = {dim}, delta = {DELTAS[-1]}: 2/3 of the radius fails in up to: {failing}"


def broken_failures(name: str, fault: str, delta: float, rounds: int, runs: int, seed: int = 0) -> tuple[int]:
    """Count the runs whose set ever failed where rounds have a fault. All rounds of a block have one arm."""
    rewards = LAWS[name]
    random, dim, rows = torch.Generator().manual_seed(seed), 2, 20
    estimator = rewards.make(dim, delta=delta, batch_shape=(runs,))
    policy, theta, arms = UCB(estimator), rewards.norm * units((runs, dim), random), units((runs, ARMS, dim), random)
    failed = torch.zeros(runs, dtype=torch.bool)
    for _ in range(rounds // rows):
        x = arms.take_along_dim(policy.select(arms)[..., None, None], dim=-2).expand(runs, rows, dim)
        z = (x @ theta.unsqueeze(-1)).squeeze(-1)
        reward, mask = (SHOCKED[name] if fault == "common shock" else rewards.draw)(z, random), None
        if fault == "every row four times":
            x, reward = x.repeat_interleave(4, dim=-2), reward.repeat_interleave(4, dim=-1)
        elif fault == "bad blocks skipped":
            mask = ((reward - estimator(x)).mean(-1, keepdim=True) >= 0.0).expand(reward.shape)
        estimator.learn(x, reward, block_size=x.shape[-2], mask=mask)
        failed |= has_missed(estimator, theta)
    return (int(failed.sum()),)


def shocked(z: Tensor, random: torch.Generator) -> Tensor:
    """Draw Gaussian rewards of the right law each, half of whose variance a block has in common."""
    own, common = (torch.randn((*z.shape[:-1], n), generator=random, dtype=torch.float64) for n in (z.shape[-1], 1))
    return z + math.sqrt(0.5) * (own + common)


def shocked_clicks(z: Tensor, random: torch.Generator) -> Tensor:
    """Draw clicks of the right probabilities, half of which come from one uniform number of the block."""
    shape, draw = z.shape, partial(torch.rand, generator=random, dtype=torch.float64)
    uniform = torch.where(draw(shape) < 0.5, draw((*shape[:-1], 1)), draw(shape))
    return (uniform < torch.sigmoid(z)).double()


FAULTS = ("none", "common shock", "every row four times", "bad blocks skipped")
SHOCKED = {"Gaussian": shocked, "logistic, S = 1": shocked_clicks}


def broken(smoke: bool) -> Iterator[str]:
    runs, rounds = (4, 40) if smoke else (2000, 3000)
    rows = []
    for fault in FAULTS:
        counts = [
            in_batches(partial(broken_failures, name, fault, delta, rounds), runs, 2000)[0]
            for name in SHOCKED
            for delta in DELTAS
        ]
        rows.append([fault, *map(str, counts)])
    limits = ", ".join(f"{math.floor(allowed(delta, runs))}" for delta in DELTAS)
    yield f"Sets that failed, of {runs}, by delta (a promise kept allows {limits})\n\n" + table(
        ["what is wrong", *(f"{name}: {delta:g}" for name in SHOCKED for delta in DELTAS)], rows
    )


def width(smoke: bool) -> Iterator[str]:
    streams, rounds = (3, 20) if smoke else (50, 5000)
    sizes: dict[str, int | None] = {"1/8": None, "1000": 1000}
    rows = []
    for dim in (2, 8, 32):
        for name in ("Gaussian", "Student-t 2.1", "Pareto 1.5", "logistic, S = 1", "logistic, S = 3", "Poisson, S = 2"):
            rewards, random = LAWS[name], torch.Generator().manual_seed(1)
            theta = rewards.norm * units((streams, dim), random)
            x, probes = units((streams, rounds, dim), random), units((streams, 200, dim), random)
            reward = rewards.draw((x * theta.unsqueeze(-2)).sum(-1), random)

            def widths(
                learn: Callable[[Estimator], None], make: Any = rewards.make, d: int = dim, at: Tensor = probes
            ) -> Tensor:
                estimator = make(d, batch_shape=(streams,))
                learn(estimator)
                return (estimator.radius().unsqueeze(-1) * estimator.width(at)).mean(-1)

            steps = widths(lambda estimator, x=x, r=reward: estimator.step(x, r))
            cells = []
            for size in sizes.values():
                ratio = widths(lambda e, x=x, r=reward, n=size: e.learn(x, r, block_size=n)) / steps
                cells.append(f"{ratio.mean():.3f} ({ratio.min():.3f} to {ratio.max():.3f})")
            rows.append([name, str(dim), *cells])
    yield f"Width over that of steps after {rounds} rounds: mean (least to largest) of {streams} streams\n\n" + table(
        ["rewards", "d", *(f"blocks of {name}" for name in sizes)], rows
    )


# How a policy learns; the first is that of the other examples.
WAYS = ("step", "blocks, steps in between", "blocks")


def play(policy: UCB, environment: Any, rounds: int, way: str) -> Tensor:
    """Return the regret of each trial.

    With "blocks", decisions come from the state at the start of a block. With "blocks, steps in between", they come from a copy
    of that state that has learnt the rewards since then by steps, so that nothing is late.
    """
    total, done, shown = torch.zeros(()), 0, copy.deepcopy(policy)
    first = torch.zeros(environment.batch_shape, dtype=torch.int64)
    while done < rounds:
        rows = min(rows_of_block(done, policy.estimator.dim), rounds - done)
        seen = []
        for _ in range(rows):
            x, reward, regret = environment.pull(shown.select(environment.arms()))
            total = total + regret
            seen.append((x.unsqueeze(-2), first, reward))  # the chosen arm alone
            if way != "blocks":
                shown.step(*seen[-1])
        if way != "step":
            policy.learn(*(torch.stack(values, 1) for values in zip(*seen, strict=True)), block_size=rows)
            shown.load_state_dict(policy.state_dict())
        done += rows
    return total


def regret(smoke: bool) -> Iterator[str]:
    trials, shrink = (3, 300) if smoke else (400, 1)
    rows = []
    for redrawn in (False, True):
        for name in ("Student-t 2.1", "Gaussian", "logistic, S = 3", "logistic, S = 5", "Poisson, S = 3"):
            options: dict[str, Any] = {"redraw": redrawn, "batch_shape": (trials,), "seed": 1}
            if "S" in name and "=" in name:
                kind, bound = name.split(", S = ")
                link, norm = {"logistic": Logistic, "Poisson": Poisson}[kind](), float(bound)
                build = partial(LocalGLB, 2, link=link, theta_bound=norm, delta=0.01, batch_shape=(trials,))
                world = partial(GeneralizedLinearBandit, 2, 20, link=link, theta_norm=norm, **options)
                rounds = 3000 // shrink
            else:
                law: Noise = {"Student-t 2.1": StudentT(2.1), "Gaussian": GaussianNoise()}[name]
                build = partial(
                    AnytimeHeavyTailUCB, 2, noise_scale=law.moment_norm(2.0), delta=0.05, batch_shape=(trials,)
                )
                world = partial(LinearBandit, 2, 50, noise=law, **options)
                rounds = 18_000 // shrink
            found = [play(build(), world(), rounds, way) for way in WAYS]
            error = float(found[0].std()) / math.sqrt(trials)
            cells = [f"{one.mean():.1f} ± {float(one.std()) / math.sqrt(trials):.1f}" for one in found]
            cells += [f"{float(one.mean() - found[0].mean()) / error:+.1f}" for one in found[1:]]
            rows.append([name, "redrawn" if redrawn else "fixed", str(rounds), *cells])
            print("regret", *rows[-1], sep=", ", file=sys.stderr, flush=True)
    headers = ["rewards", "arms", "rounds", *WAYS, "first difference", "second"]
    yield f"Regret, mean ± standard error of {trials} trials\n\n" + table(headers, rows)


# Of the times: what a learner is made of, and the rewards of predictors.
TIMED: dict[str, Rewards] = {
    "RidgeRegression": Rewards(partial(RidgeRegression, noise_scale=1.0), 1.0, LAWS["Gaussian"].draw),
    "HeavyTailRegression": LAWS["Student-t 2.1"],
    "HeavyTailRegression, order 1.4": LAWS["Pareto 1.5"],
    "LocalGLMRegression, logistic": LAWS["logistic, S = 3"],
    "LocalGLMRegression, Poisson": LAWS["Poisson, S = 2"],
}


def rows_and_rewards(rewards: Rewards, dim: int, rounds: int) -> tuple[Tensor, Tensor]:
    """Return features and rewards, drawn in small parts, so that their temporary arrays are small."""
    random = torch.Generator().manual_seed(0)
    theta = rewards.norm * units((dim,), random)
    x, reward = torch.empty(rounds, dim, dtype=torch.float64), torch.empty(rounds, dtype=torch.float64)
    for rows, part in zip(x.split(1000), reward.split(1000), strict=True):
        rows.copy_(units(tuple(rows.shape), random))
        part.copy_(rewards.draw(rows @ theta, random))
    return x, reward


def seconds(work: Callable[[], None]) -> float:
    """Return the processor time of one thread, which is the time where nothing else runs."""
    start = time.process_time()
    work()
    return time.process_time() - start


def of_a_million(name: str, dim: int, rounds: int) -> tuple[float, float, float]:
    """Return the seconds that a log takes, and would take in steps, and the most memory above that of the data, in MiB."""
    torch.set_num_threads(1)
    x, reward = rows_and_rewards(TIMED[name], dim, rounds)
    learner = TIMED[name].make(dim)
    TIMED[name].make(dim).learn(x[:100], reward[:100])  # what only the first call does
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = seconds(lambda: learner.learn(x, reward))
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024.0
    some = min(rounds, 5000)
    return taken, seconds(lambda: learner.step(x[:some], reward[:some])) * rounds / some, memory


def times(smoke: bool) -> Iterator[str]:
    first, steps, blocks, repeats, million = (50, 5, 50, 2, 1000) if smoke else (5000, 1000, 50_000, 7, 1_000_000)
    rows = []
    for name, rewards in TIMED.items():
        for dim in (8, 32, 128):
            x, reward = rows_and_rewards(rewards, dim, first + blocks)
            found = []
            for _ in range(repeats):
                one, other = rewards.make(dim), rewards.make(dim)
                for learner in (one, other):
                    learner.learn(x[:first], reward[:first])
                part = slice(first, first + steps)
                a = seconds(lambda learner=one, part=part, x=x, r=reward: learner.step(x[part], r[part])) / steps
                b = seconds(lambda learner=other, x=x, r=reward: learner.learn(x[first:], r[first:])) / blocks
                found.append((1e6 * a, 1e6 * b, a / b))
            a, b, ratio = map(statistics.median, zip(*found, strict=True))
            rows.append([name, str(dim), f"{a:.1f}", f"{b:.2f}", f"{ratio:.0f}"])
    yield "Microseconds of a round, one thread\n\n" + table(["learner", "d", "step", "learn", "ratio"], rows)
    rows = []
    for name in list(TIMED)[: 1 if smoke else None]:
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # in a new process, whose most memory is its own
            taken, in_steps, memory = pool.apply(of_a_million, (name, 64, million))
        rows.append([name, f"{taken:.1f}", f"{in_steps:.0f}", f"{in_steps / taken:.0f}", f"{memory:.0f}"])
    yield f"{million} rounds of 64 features, one thread; steps from the time of 5000\n\n" + table(
        ["learner", "learn: seconds", "step: seconds", "ratio", "MiB above the data"], rows
    )


def warm(smoke: bool) -> Iterator[str]:
    logged, rounds, seeds = (500, 20, 2) if smoke else (100_000, 5000, 5)
    log, later = (part.tensors for part in digits(897))
    batched: dict[str, Any] = {"batch_shape": (seeds,)}
    clicks = partial(LocalGLB, 65, feature_bound=1.5, **batched)
    starts: dict[str, tuple[Callable[[], UCB], bool]] = {
        "AnytimeHeavyTailUCB, noisy": (
            partial(AnytimeHeavyTailUCB, 65, noise_scale=0.5, theta_bound=2.0, **batched),
            True,
        ),
        "LocalGLB, theta_bound 2": (partial(clicks, theta_bound=2.0), False),
        "LocalGLB, theta_bound 5": (partial(clicks, theta_bound=5.0), False),
    }

    def features(images: Tensor) -> Tensor:
        return pad(images.double(), (0, 1), value=1.0) / 4.0  # of length 1, more or less

    def stream(tensors: Any, count: int, seed: int) -> Sequence[tuple[Tensor, Tensor, Tensor]]:
        images, labels = tensors
        options: dict[str, Any] = {"rounds": count, "noise": GaussianNoise(scale=0.5), "seed": seed, **batched}
        return ClassificationBandit(features(images), labels, 10, **options)

    rows = []
    for name, (make, is_noisy) in starts.items():
        context, reward, mean = stream(log, logged, 1)[torch.arange(logged)]
        action = torch.randint(10, (logged, seeds), generator=torch.Generator().manual_seed(0))
        reward = (reward if is_noisy else mean).gather(-1, action.unsqueeze(-1)).squeeze(-1)
        past = [value.movedim(0, 1).contiguous() for value in (context, action, reward)]
        for way in ("none", "step", "learn"):
            policy = DisjointArms(make(), 10)
            taken = 0.0 if way == "none" else seconds(partial(getattr(policy, way), *past))
            total = torch.zeros(seeds, dtype=torch.float64)
            for inputs, pays, means in stream(later, rounds, 2):
                k = policy.select(inputs)
                of_choice = [values.gather(-1, k.unsqueeze(-1)).squeeze(-1) for values in (pays, means)]
                policy.step(inputs, k, of_choice[0 if is_noisy else 1])
                total += 1.0 - of_choice[1]
            error = float(total.std()) / math.sqrt(seeds)
            rows.append([name, way, f"{taken / seeds:.2f}", f"{total.mean():.0f} ± {error:.0f}"])
    yield (
        f"Digits: {logged} logged decisions, then the regret of {rounds} rounds on new images, mean ± standard error of "
        f"{seeds} seeds\n\n" + table(["policy", "log is learnt by", "seconds", "regret"], rows)
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


PARTS: dict[str, Callable[[bool], Iterator[str]]] = {
    "time": times,
    "warm": warm,
    "broken": broken,
    "width": width,
    "regret": regret,
    "coverage": coverage,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to run")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--smoke", action="store_true", help="a few rounds and runs, to see that it runs")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    found = []
    for name in options.only:
        for text in PARTS[name](options.smoke):
            print(f"{text}\n", flush=True)
            found.append(f"{text}\n\n")
    (options.output / "blocks.md").write_text("".join(found))


if __name__ == "__main__":
    main()
