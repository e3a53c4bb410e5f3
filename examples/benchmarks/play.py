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
    """Cells of one learner that run one after another, or as one fleet: (options, seed) for each."""

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
    """Play one learner; return the share of rounds with a wrong arm."""
    return share_of_wrong(learner.make(rounds.contexts.shape[1], rounds.actions, rewards, seed, **options), rounds)


def share_of_wrong(player: Any, rounds: data.Stream) -> float:
    """Play one learner that is made; return the share of rounds with a wrong arm."""
    wrong = 0
    for context, label, noise in zip(rounds.contexts, rounds.labels.tolist(), rounds.noise.tolist(), strict=True):
        arm = player.select(context)
        wrong += arm != label
        player.step(context, arm, float(arm == label) + noise)
    return wrong / len(rounds.labels)


def play_fleet(learner: Learner, streams: Sequence[data.Stream], rewards: str, members: Sequence) -> list[float]:
    """Play all members at once; return their shares of rounds with a wrong arm."""
    options, seeds = zip(*members, strict=True)
    dim, actions = streams[0].contexts.shape[1], streams[0].actions
    return shares_of_wrong(learner.make(dim, actions, rewards, seeds, options), streams)


def shares_of_wrong(fleet: Any, streams: Sequence[data.Stream]) -> list[float]:
    """Play a fleet that is made; return each member's share of rounds with a wrong arm."""
    contexts = np.stack([rounds.contexts for rounds in streams], axis=1)
    labels, noise = (np.stack([getattr(rounds, name) for rounds in streams], axis=1) for name in ("labels", "noise"))
    wrong = np.zeros(len(streams))
    for x, label, added in zip(contexts, labels, noise, strict=True):
        arms = fleet.select(x)
        wrong += arms != label
        fleet.step(x, arms, (arms == label) + added)
    return (wrong / len(labels)).tolist()


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
    if learner.is_fleet:
        errors = play_fleet(learner, [streams[seed] for _, seed in job.members], rewards, job.members)
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
    if learner.is_fleet:
        fleet = learner.make(dim, actions, "unit", (0,), (learner.default,))
        play, arguments = shares_of_wrong, (fleet, [stream])
    else:
        play, arguments = share_of_wrong, (learner.make(dim, actions, "unit", 0, **learner.default), stream)
    start = time.process_time()
    play(*arguments)
    return (time.process_time() - start) / len(stream.labels)
