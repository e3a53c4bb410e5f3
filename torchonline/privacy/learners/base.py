"""What every private learner promises: a public clock, a budget that ends, a ledger, and which of its state is public."""

import inspect
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.jit import is_tracing

from torchonline.core.backend import without_cast
from torchonline.core.checks import one_of, positive, positive_integer, within
from torchonline.core.learner import Learner
from torchonline.privacy.accounting import ADJACENCIES, Event, Ledger, NonPrivateEvent, RepeatedEvent
from torchonline.privacy.noise import NoiseSource
from torchonline.privacy.noise import noise_source as make_source

SECRET = "secret"
SEEDED = "seeded: no protection against whoever knows the seed"

# What the noise is calibrated to, and cannot change after it.
FIXED = frozenset(
    ("horizon", "epsilon", "delta", "adjacency", "clip", "clip_norm", "scheme", "step_scale", "sensitivity")
    + ("feature_clip", "feature_norm", "reward_clip", "warmup")
)


class Clock(NamedTuple):
    """How far a learner has come, as its own object remembers it: nothing that writes buffers from outside writes this."""

    rounds: int
    furthest: int
    continuations: int
    process: int


# Compiling a learner is no harm; writing it to a file with its buffers is.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


class PrivateLearner(Learner):
    """Base of all private learners: everything that it publishes, over all its steps, tells little of any one record.

    *Protected* is one record: two streams are neighbours when they differ in one. The sequence of all public states is
    (epsilon, delta)-differentially private, even where later records are chosen by somebody who has seen the earlier states.

    *Public*, to be chosen without looking at the data, are all arguments of the constructor, the horizon, the number of steps,
    shapes and types, and which step a person gets. A record that is missing, refused or filtered out takes its step as
    ``step(None)``, for to skip it would shift all that come after. NaN and infinity count as nothing, in silence, because an
    error would tell of them; and ``validate`` changes none of it.

    *One step for each person.* A second epoch, the same person in two learners of a fleet, under two seeds, or at two points
    of a grid, spends more, and the learner cannot see it: B learners on one stream spend what ``continuations=B`` of
    :meth:`privacy_spent` says.

    *Secret* are the entries of ``state_dict()`` whose name begins with ``secret``, and with them every checkpoint, pickle and
    copy of the learner: as secret as the records. What may leave the machine is :meth:`public_state`, and :meth:`released`,
    which is also what TorchScript gets of it. What is computed from a record and is no public state (a loss, the norm of a
    gradient, a reward, a regret, and what is stopped, selected or logged by them) is not covered.

    *Noise is never replayed.* A learner that is loaded or copied draws new noise, for two runs from one state with the same noise
    and other records would release the difference exactly. Each run from a state that has been published past is one more
    release of everybody before: see :meth:`privacy_spent`. All sums and all noise are float64, whatever ``dtype`` says, and no
    cast touches them.

    *A step that fails on its way has been taken*: its person must not be given to ``step`` again. (A wrong shape, type or
    device is refused before.)

    Args:
        dim: number of features d.
        horizon: n, how many steps there will be; a step after the last raises, since the budget is spent.
        epsilon: of the whole run, above 0; ``inf`` for no privacy and no noise.
        delta: of the whole run, in (0, 1); much smaller than one over the number of people.
        adjacency: what a neighbouring stream is: ``"replace_one"``, one record in the place of another; or ``"zero_out"``, a
            record in the place of none, for half the noise and half the promise. Epsilons of the two are not comparable.
        max_participations: 1, and nothing else: in how many steps a person is.
        noise_source: a name, see :func:`torchonline.privacy.noise.noise_source`; or a source that is nobody else's.
        seed: of the source "torch", for tests: who knows it removes the noise.
        batch_shape: ``*B``, independent learners with one clock, each with other people.
        dtype: of the decisions.
        device: where the state lives; noise is drawn on the CPU. The clock is read in each step, for which the host waits.
        validate: of no effect: shapes, types and devices are always checked, and values never.
    """

    rounds: Tensor
    furthest: Tensor
    continuations: Tensor
    seeded: Tensor
    _memory: Clock

    # Far below the margin of the calibration, and above what another processor's logarithm may differ by.
    options_tolerance = 1e-10

    # Buffers in the dtype of the learner; all others are exact.
    decisions: tuple[str, ...] = ()

    def __init__(
        self,
        dim: int,
        *,
        horizon: int,
        epsilon: float,
        delta: float,
        adjacency: str = "replace_one",
        max_participations: int = 1,
        noise_source: str | NoiseSource = "torch",
        seed: int | None = None,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(dim, batch_shape=batch_shape, dtype=dtype, device=device, validate=validate)
        self.horizon = positive_integer("horizon", horizon)
        self.epsilon = math.inf if epsilon == math.inf else positive("epsilon", epsilon)
        self.delta = within("delta", delta, 0.0, 1.0)
        self.adjacency = one_of("adjacency", adjacency, ADJACENCIES)
        if positive_integer("max_participations", max_participations) != 1:
            raise ValueError(
                f"max_participations: expected 1, since what more would cost is not accounted for, got {max_participations}"
            )
        if isinstance(noise_source, NoiseSource):
            if seed is not None:
                raise ValueError("seed: expected None beside a noise source, which has its own, got a seed")
            self.source = noise_source
        else:
            self.source = make_source(noise_source, seed)

    def forward(self) -> Tensor:
        """The decision."""
        raise NotImplementedError

    def released(self) -> nn.Module:
        """A module that decides as this one does now, and holds nothing but what is public: for TorchScript and for serving."""
        raise NotImplementedError

    def _event(self, steps: int) -> Event | None:
        """What is released of a record in some steps of one run with noise; None if nothing is yet."""
        raise NotImplementedError

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        """The numbers that the noise in a state depends on, by name."""
        return []

    def privacy_ledger(self, continuations: int | None = None, *, steps: int | None = None) -> Ledger:
        """What has been released so far, for an accountant or a reader; see :meth:`privacy_spent`.

        Args:
            continuations: see :meth:`privacy_spent`.
            steps: what will have been released after so many steps, if they are more than there have been; up to the
                horizon.
        """
        if steps is not None and positive_integer("steps", steps) > self.horizon:
            raise ValueError(f"steps: expected at most {self.horizon}, the horizon, got {steps}")
        rounds, furthest, runs = self._counts()
        steps = max(rounds, furthest, steps or 0)
        if continuations is not None:
            runs = positive_integer("continuations", continuations)
        notes = (SEEDED,) if self._is_seeded() else ()
        if steps == 0:
            return Ledger(self.adjacency, (), notes)
        event = self._event(steps) if self.epsilon < math.inf else NonPrivateEvent()
        return Ledger(self.adjacency, () if event is None else (RepeatedEvent(event, runs),), notes)

    def privacy_spent(self, delta: float, continuations: int | None = None) -> float:
        r"""The epsilon of what has been released so far, at some delta.

        It holds after a number of steps that was *fixed in advance*. If it was chosen by looking at anything that comes from the
        data, the public states among it, quote the constructor's epsilon and delta, whatever the number of steps: to
        stop when this number crosses a threshold that depends on data pays more than it says.

        Every run that goes on from a state after another has gone on from it releases everybody before once more. With m runs,
        a mechanism of Gaussian privacy :math:`\mu` spends :math:`\mu\sqrt m`, one of :math:`\rho`-zCDP :math:`m\rho`. By default
        m is 1 and one more for each load or copy, in this learner's past, of a state that had seen a step. Of copies that it does
        not come from, a learner cannot know.

        Args:
            delta: in (0, 1).
            continuations: m, if you know better: 1 for a run that was resumed from the very last state that it had published;
                B for a fleet of B learners on one stream, all published.

        Returns:
            0 before the first step, infinity without noise.
        """
        return self.privacy_ledger(continuations).epsilon(within("delta", delta, 0.0, 1.0))

    def public_state(self) -> dict[str, Tensor]:
        """What has been released: copies of the buffers that are not secret."""
        return {name: value.clone() for name, value in self.state().items() if not name.startswith(SECRET)}

    def reset(self) -> None:
        """Refused: what has been released cannot be taken back, and its count must not be lost."""
        raise RuntimeError("reset: expected a new learner instead, since what this one has released stays released")

    def extra_repr(self) -> str:
        """Sizes, the promise, and a warning where a seed is known."""
        seeded = f", {SEEDED}" if self._is_seeded() else ""
        return (
            f"{self.dim}, horizon={self.horizon}, epsilon={self.epsilon:g}, delta={self.delta:g}, "
            f"adjacency={self.adjacency!r}{seeded}"
        )

    def _clip_bound(self, name: str, value: Any) -> float:
        """A bound that contributions are clipped to: above 0, and infinite only where nothing is private."""
        if value == math.inf and self.epsilon == math.inf:
            return math.inf
        return positive(name, value)

    def _next_step(self) -> int:
        """The number of the step that begins, from 1 on; nothing is written, unless the clock has been moved from outside."""
        self._refuse_tracing()
        rounds, memory = int(self.rounds), self._memory
        if rounds != memory.rounds or os.getpid() != memory.process:
            self._continue(self._counts(), 0)
        if rounds >= self.horizon:
            raise RuntimeError(
                f"step: expected at most {self.horizon} steps, the horizon, got one more; the privacy budget is spent"
            )
        return rounds + 1

    def _begin(self, step: int) -> None:
        """Move the clock, before anything else: a step that is interrupted has been taken, and its person is not asked again."""
        self.rounds.add_(1)
        self.__dict__["_memory"] = self._memory._replace(rounds=step)
        if self.source.is_seeded:
            self.seeded.fill_(1)

    def _is_seeded(self) -> bool:
        """Whether noise in the state, or to come, can be computed from a seed."""
        return self.source.is_seeded or bool(self.seeded)

    def _counts(self) -> tuple[int, int, int]:
        """Rounds, the furthest that any run has come, and the runs.

        The buffers say so, and what this object remembers: whoever has written the clock from outside (an average of weights, a
        broadcast, an older state), or has forked the process, has begun another run.
        """
        rounds, memory = int(self.rounds), self._memory
        furthest = max(int(self.furthest), memory.furthest, memory.rounds)
        is_other = rounds != memory.rounds or os.getpid() != memory.process
        another = is_other and max(rounds, memory.rounds) > 0
        return rounds, furthest, max(int(self.continuations), memory.continuations) + another

    def _continue(self, counts: tuple[int, int, int], another: int) -> None:
        """Go on from the state that is here, with these counts and perhaps one more run, and never with the same noise."""
        rounds, furthest, runs = int(self.rounds), counts[1], counts[2] + another
        with torch.no_grad():
            self.furthest.fill_(furthest)
            self.continuations.fill_(runs)
        self.__dict__["_memory"] = Clock(rounds, furthest, runs, os.getpid())
        self.source.renew()

    def _refuse_tracing(self) -> None:
        """A traced program takes all buffers along."""
        if is_tracing() or is_exporting():
            raise RuntimeError(
                "export: expected released(), which holds public values only, got a private learner with its secrets"
            )

    def _clock(self) -> dict[str, Tensor]:
        """The buffers that count."""
        zero = torch.zeros((), dtype=torch.int64)
        return {"rounds": zero, "furthest": zero, "continuations": zero + 1, "seeded": zero}

    def _create_buffers(self) -> None:
        super()._create_buffers()
        # A fleet has one clock.
        for name, value in self._clock().items():
            self.register_buffer(name, value.to(self._initial_options["device"], copy=True))
        self.__dict__["_memory"] = Clock(0, 0, 1, os.getpid())

    def _dtype_of(self, name: str) -> torch.dtype:
        return self._initial_options["dtype"] if name in self.decisions else torch.float64

    def _options(self) -> list[tuple[str, float]]:
        own = [("horizon", self.horizon), ("epsilon", self.epsilon), ("delta", self.delta)]
        own += [("adjacency", ADJACENCIES.index(self.adjacency))]
        return [(name, float(value)) for name, value in own] + super()._options() + self._parameters_of_noise()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PrivateLearner":
        super()._apply(without_cast(fn), recurse)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED and name in self.__dict__ and self.__dict__[name] != value:
            raise AttributeError(
                f"{name}: expected {self.__dict__[name]}, which the noise is made for, got {value}; build another learner"
            )
        super().__setattr__(name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        rounds, furthest, runs = int(self.rounds), int(self.furthest), int(self.continuations)
        self._continue((rounds, max(rounds, furthest), runs), int(rounds > 0))

    def _load_problems(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        problems = super()._load_problems(state_dict, prefix)
        if problems or f"{prefix}rounds" not in state_dict:
            return problems
        for name, buffer in self._buffers.items():
            if buffer is not None and (got := state_dict[prefix + name].dtype) is not buffer.dtype:
                problems.append(f"{prefix}{name}: expected {buffer.dtype}, got {got}")
        limits = {
            "rounds": (0, self.horizon),
            "furthest": (0, self.horizon),
            "continuations": (1, 2**40),
            "seeded": (0, 1),
        }
        for name, (low, high) in limits.items():
            if not low <= int(state_dict[prefix + name]) <= high:
                problems.append(f"{prefix}{name}: expected {low} to {high}, got {int(state_dict[prefix + name])}")
        return problems

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        before, seeded, problems = self._counts(), bool(self.seeded), len(error_msgs)
        # Copies: a state that is assigned must not be another learner's too.
        own = {name: value.clone() if isinstance(value, Tensor) else value for name, value in state_dict.items()}
        super()._load_from_state_dict(own, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        if len(error_msgs) == problems and f"{prefix}rounds" in state_dict:
            rounds = int(self.rounds)
            furthest = max(before[0], before[1], rounds, int(self.furthest))
            runs = max(before[2], int(self.continuations))
            self._continue((rounds, furthest, runs), int(max(before[0], rounds) > 0))
            self.seeded.fill_(int(seeded or bool(self.seeded)))

    def __prepare_scriptable__(self) -> nn.Module:
        # torch.jit.script compiles what this returns. Of a larger module it would put that into the module itself, in the
        # place of the learner, whose state and count would be lost: `memo` then has the module already.
        caller = inspect.currentframe()
        memo = caller.f_back.f_locals.get("memo") if caller is not None and caller.f_back is not None else None
        if memo != {}:
            raise RuntimeError(
                "export: expected torchonline.export.released(module), which holds public values only, got a module with a "
                f"{type(self).__name__} and its secrets"
            )
        return self.released()
