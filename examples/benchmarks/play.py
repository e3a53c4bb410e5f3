"""Play cells of the benchmark: a set, a noise, features, a learner, a setting and a seed."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import data
import numpy as np
import torch
from learners import LEARNERS, Learner, Options, setting
from threadpoolctl import threadpool_limits


@dataclass(frozen=True)
class Job:
    """Cells of one learner that run one after another, or as one batch: (options, seed) for each."""

    set: str
    noise: str
    features: str
    learner: str
    members: tuple[tuple[Options, int], ...]
    rounds: int

    @property
    def keys(self) -> list[str]:
        return [self.key(options, seed) for options, seed in self.members]

    def key(self, options: Options, seed: int) -> str:
        return " | ".join(
            (self.set, self.noise, self.features, self.learner, setting(options), str(seed), str(self.rounds))
        )

    def without(self, finished: Any) -> "Job":
        members = tuple(member for member in self.members if self.key(*member) not in finished)
        return replace(self, members=members)


def rewards_of(noise: str) -> str:
    """Return what the user of torchonline says of the rewards."""
    return "unit" if noise == "none" else "heavy"


def play_one(learner: Learner, rounds: data.Stream, rewards: str, options: Options, seed: int) -> float:
    """Play one learner; return its error."""
    return error_of(learner.make(rounds.contexts.shape[1], rounds.actions, rewards, seed, **options), rounds)


def error_of(player: Any, rounds: data.Stream, batch: int = 1) -> float:
    """Play one learner that is made; return its error: what a round pays less than the right arm, in the mean.

    All rewards of a batch are learnt after its last decision.
    """
    lost, played = 0.0, list(zip(rounds.contexts, rounds.payoffs.tolist(), rounds.noise.tolist(), strict=True))
    for first in range(0, len(played), batch):
        arms = [player.select(context) for context, _, _ in played[first : first + batch]]
        for arm, (context, payoffs, noise) in zip(arms, played[first : first + batch], strict=True):
            lost += 1.0 - payoffs[arm]
            player.step(context, arm, payoffs[arm] + noise)
    return lost / len(played)


def play_batch(learner: Learner, streams: Sequence[data.Stream], rewards: str, members: Sequence) -> list[float]:
    """Play all members at once; return their errors."""
    options, seeds = zip(*members, strict=True)
    dim, actions = streams[0].contexts.shape[1], streams[0].actions
    return errors_of(learner.make(dim, actions, rewards, seeds, options), streams)


def errors_of(batched: Any, streams: Sequence[data.Stream], batch: int = 1) -> list[float]:
    """Play a batch of learners that is made; return each member's error. Rewards are late as in :func:`error_of`."""
    contexts, payoffs, noise = (
        np.stack([getattr(rounds, name) for rounds in streams], axis=1) for name in ("contexts", "payoffs", "noise")
    )
    lost, members = np.zeros(len(streams)), np.arange(len(streams))
    for first in range(0, len(noise), batch):
        rows = range(first, min(first + batch, len(noise)))
        chosen = [batched.select(contexts[i]) for i in rows]
        for i, arms in zip(rows, chosen, strict=True):
            found = payoffs[i, members, arms]
            lost += 1.0 - found
            batched.step(contexts[i], arms, found + noise[i])
    return (lost / len(noise)).tolist()


def one_thread() -> None:
    torch.set_num_threads(1)
    threadpool_limits(1)


def play(job: Job) -> list[dict[str, Any]]:
    """Play the cells of a job; return a record of each."""
    one_thread()
    learner, rewards = LEARNERS[job.learner], rewards_of(job.noise)
    seeds = {seed for _, seed in job.members}
    streams = {
        seed: data.stream(job.set, seed, job.rounds, job.noise, job.features, learner.constant) for seed in seeds
    }
    if learner.is_batched:
        errors = play_batch(learner, [streams[seed] for _, seed in job.members], rewards, job.members)
    else:
        errors = [play_one(learner, streams[seed], rewards, options, seed) for options, seed in job.members]
    facts = {name: value for name, value in asdict(job).items() if name != "members"}
    return [
        {"key": job.key(options, seed), **facts, "setting": setting(options), "seed": seed, "error": error}
        for (options, seed), error in zip(job.members, errors, strict=True)
    ]


def processor_times(name: str, learners: Sequence[str], rounds: int, repeats: int) -> dict[str, float]:
    """Return the processor time of a round of each learner, alone and by default, in seconds: the least of some repeats.

    The learners take turns, so that a busy moment of the machine does not hit one alone.
    """
    one_thread()
    times = dict.fromkeys(learners, float("inf"))
    for _, learner in product(range(repeats), learners):
        times[learner] = min(times[learner], processor_time(name, LEARNERS[learner], rounds))
    return times


def processor_time(name: str, learner: Learner, rounds: int) -> float:
    """Return the processor time of a round. To make the learner takes no part of it."""
    stream = data.stream(name, 0, rounds, "none", learner.features, learner.constant)
    dim, actions = stream.contexts.shape[1], stream.actions
    if learner.is_batched:
        batched = learner.make(dim, actions, "unit", (0,), (learner.default,))
        play, arguments = errors_of, (batched, [stream])
    else:
        play, arguments = error_of, (learner.make(dim, actions, "unit", 0, **learner.default), stream)
    start = time.process_time()
    play(*arguments)
    return (time.process_time() - start) / len(stream.noise)
