"""Clock of the private learners: no copy, load or interruption turns it back."""

import copy
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.jit import is_tracing

from torchonline.core.learner import Learner
from torchonline.core.messages import counted
from torchonline.core.processes import rank_and_world_size
from torchonline.privacy.noise import NoiseSource, this_process

# Compiling a learner is harmless. An exported file would hold its secret buffers.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
TAG_BITS = 63
# The horizon of a learner without an end: no clock gets there.
NO_END = 2**62
# The tag of a state dict without the secret state, which no learner loads.
FOLLOWED = -1
# Whether the caller ensures that no other rank steps.
_ONE_RANK_STEPS: ContextVar[bool] = ContextVar("one_rank_steps", default=False)


class Clock(NamedTuple):
    """The object's own counters. Loading or overwriting buffers does not change them."""

    rounds: int
    tag: int
    furthest: int  # the largest number of steps of any earlier run
    continuations: int
    process: object  # the process that draws the noise
    seeded: bool  # whether noise in the state was drawn from a seed
    follows: bool = False  # whether the state is the public part of another process's learner


class ClockedLearner(Learner):
    """Base class that counts steps and runs, and never draws noise twice.

    All learners of a batch share the counts. A subclass sets ``horizon`` and ``source`` before it creates the buffers.
    CONTRIBUTING.md says what a step does.
    """

    rounds: Tensor  # the steps of this run
    tag: Tensor  # identifies this state: a random number, new in each step; 0 before the first
    furthest: Tensor  # the largest number of steps of any run that this state comes from
    continuations: Tensor  # the number of runs: 1, plus 1 for each load or copy of a state with at least one step
    seeded: Tensor  # 1 if noise in the state was drawn from a seed
    horizon: int
    source: NoiseSource
    _memory: Clock
    remedy_of_torn = "call load_state_dict() or construct a new learner; an interrupted step counts as taken"

    def _next_step(self) -> int:
        """Return the number of the next step, from 1 on, up to the horizon."""
        self._refuse_tracing()
        refuse_several_ranks()
        if self._memory.follows:
            raise RuntimeError(
                f"state: expected a state with its secret part, got the public part of a {type(self).__name__} that another "
                "process steps; call load_state_dict() with that process's state, which counts one more run"
            )
        if self._is_written():
            # The secret memory may not match the clock, and no ledger would book its release.
            raise RuntimeError(
                f"state: expected the last state of this {type(self).__name__}, got buffers that were written from "
                "outside; call load_state_dict(), which counts one more run"
            )
        if self._memory.process is not this_process():  # the only place that records a fork
            _, furthest, runs = self._counts()
            self._continue(furthest, runs)
        rounds = self._memory.rounds
        if rounds >= self.horizon:
            raise RuntimeError(
                f"step: expected at most {counted(self.horizon, 'step')}, got one more; the privacy budget is spent"
            )
        return rounds + 1

    def _take(self, step: int, learn: Callable[..., None], *arguments: Any) -> None:
        """Count the step, then call ``learn``, whose failure leaves the learner torn."""
        if is_dynamo_compiling():  # no compiler can trace the noise, which comes from NumPy or the operating system
            torch.compiler.disable(self._take)(step, learn, *arguments)
            return
        marks = self.__dict__
        try:
            marks["_is_torn"] = True
            self.rounds.add_(1)  # first, so that an interrupted step still counts as spent
            self._remember(step)
            learn(*arguments)
            marks["_is_torn"] = False
        except BaseException:
            if int(self.rounds) < step:  # nothing has been written
                marks["_is_torn"] = False
            else:
                self._remember(step)
            raise

    def _remember(self, step: int) -> None:
        """Record that a step was taken, and whether its noise comes from a seed."""
        tag = secrets.randbits(TAG_BITS)
        seeded = self._memory.seeded or self.source.is_seeded
        self.__dict__["_memory"] = self._memory._replace(rounds=step, tag=tag, seeded=seeded)
        self.tag.fill_(tag)
        if seeded:
            self.seeded.fill_(1)

    def _is_seeded(self) -> bool:
        """Return whether past or future noise can be computed from a seed."""
        return self.source.is_seeded or self._memory.seeded or bool(self.seeded)

    def _is_written(self) -> bool:
        """Return whether the clock's buffers were written from outside."""
        return int(self.tag) != self._memory.tag or int(self.rounds) != self._memory.rounds

    def _counts(self) -> tuple[int, int, int]:
        """Return the rounds, the most steps of any run, and the number of runs."""
        rounds, memory = int(self.rounds), self._memory
        furthest = max(int(self.furthest), memory.furthest, memory.rounds)
        is_other = self._is_written() or memory.process is not this_process()
        another = is_other and max(rounds, memory.rounds) > 0
        return rounds, furthest, max(int(self.continuations), memory.continuations) + another

    def _follow(self, rounds: int, furthest: int, runs: int) -> None:
        """Record that the public buffers are now those of another process's learner.

        From now on this learner releases nothing itself, and its ledger is the other learner's. The arguments are the counts
        before. If this learner had taken steps itself, one run is added.
        """
        if not self._memory.follows and rounds > 0:
            furthest, runs = max(rounds, furthest), max(runs, int(self.continuations)) + 1
        self.__dict__["_memory"] = self._memory._replace(
            rounds=int(self.rounds), tag=int(self.tag), furthest=furthest, continuations=runs, follows=True
        )

    def _resume(self, rounds: int, furthest: int, runs: int) -> None:
        """Continue from a copied or loaded state: one more run, if any step was taken."""
        furthest = max(rounds, furthest, int(self.rounds), int(self.furthest))
        another = max(rounds, int(self.rounds)) > 0
        self._continue(furthest, max(runs, int(self.continuations)) + another)

    def _continue(self, furthest: int, runs: int) -> None:
        """Continue from the present state with fresh noise and these counts."""
        self.source.renew()
        with torch.no_grad():
            self.furthest.fill_(furthest)
            self.continuations.fill_(runs)
        # Last: the next step repeats a call that is interrupted before this line.
        self.__dict__["_memory"] = self._memory._replace(
            rounds=int(self.rounds), tag=int(self.tag), furthest=furthest, continuations=runs, process=this_process()
        )

    def _refuse_tracing(self) -> None:
        """Raise while a program is traced, because the trace would hold all buffers."""
        if is_tracing() or is_exporting():
            raise RuntimeError("export: expected released(), with public values only, got a learner with its secrets")

    def _create_buffers(self) -> None:
        super()._create_buffers()
        # Without batch_shape: a batch has one clock.
        for name, start in {"rounds": 0, "tag": 0, "furthest": 0, "continuations": 1, "seeded": 0}.items():
            self.register_buffer(name, torch.tensor(start, device=self._initial_options["device"]))
        self.__dict__["_memory"] = Clock(0, 0, 0, 1, this_process(), False)

    def __copy__(self) -> "ClockedLearner":
        # A shallow copy would share the noise source.
        return copy.deepcopy(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        memory = self._memory
        self._resume(memory.rounds, memory.furthest, memory.continuations)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._memory.follows and not keep_vars:
            destination[prefix + "tag"].fill_(FOLLOWED)

    def _load_problems(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        tag = state_dict.get(f"{prefix}tag")
        if isinstance(tag, Tensor) and tag.numel() == 1 and int(tag) == FOLLOWED:
            return [
                f"{prefix}tag: expected the state of the process that takes the steps, got the state of a process that follows it"
            ]
        problems = super()._load_problems(state_dict, prefix)
        if problems:
            return problems
        for name, buffer in self._buffers.items():
            if buffer is not None and (got := state_dict[prefix + name].dtype) is not buffer.dtype:
                problems.append(f"{prefix}{name}: expected {buffer.dtype}, got {got}")
        steps = (0, self.horizon)
        limits = {"rounds": steps, "tag": (0, 2**TAG_BITS - 1), "furthest": steps}
        limits |= {"continuations": (1, 2**40), "seeded": (0, 1)}
        for name, (low, high) in limits.items():
            if not low <= int(state_dict[prefix + name]) <= high:
                problems.append(f"{prefix}{name}: expected {low} to {high}, got {int(state_dict[prefix + name])}")
        return problems

    def _load_own(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        with self._lock:
            before, seeded = self._counts(), self._memory.seeded or bool(self.seeded)
            # Copies, so that assigned buffers are not shared with another learner.
            entries = [name for name in map(prefix.__add__, self._buffers) if name in state_dict]
            copies = {name: state_dict[name].clone() for name in entries}
            super()._load_own({**state_dict, **copies}, prefix, *arguments)
            self.seeded.fill_(int(seeded or bool(self.seeded)))
            self._resume(*before)
            self.__dict__["_memory"] = self._memory._replace(follows=False)


@contextmanager
def one_rank_steps() -> Iterator[None]:
    """Allow steps in a process group, for a caller that lets one rank step."""
    token = _ONE_RANK_STEPS.set(True)
    try:
        yield
    finally:
        _ONE_RANK_STEPS.reset(token)


def refuse_several_ranks() -> None:
    """Raise in a process group of several ranks, each of which would publish a run."""
    if _ONE_RANK_STEPS.get():
        return
    if (ranks := rank_and_world_size()[1]) > 1:
        raise RuntimeError(
            f"step: expected a process group of one rank, got one of {ranks}; a private learner belongs to one process, because "
            "each rank that continues from the same state would spend the budget again"
        )
