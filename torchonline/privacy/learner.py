"""What every private learner promises: a public clock, a budget that ends, a ledger, and which of its state is public."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import is_tracing

from torchonline.arrays import without_cast
from torchonline.checks import one_of, positive, positive_integer, within
from torchonline.learner import Learner
from torchonline.privacy.accounting import ADJACENCIES, Event, Ledger, NonPrivateEvent, RepeatedEvent
from torchonline.privacy.noise import NoiseSource
from torchonline.privacy.noise import noise_source as make_source

SECRET = "secret"

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

    Args:
        dim: number of features d.
        horizon: n, how many steps there will be; a step after the last raises, since the budget is spent.
        epsilon: of the whole run, above 0; ``inf`` for no privacy and no noise.
        delta: of the whole run, in (0, 1); much smaller than one over the number of people.
        adjacency: what a neighbouring stream is: ``"replace_one"``, one record in the place of another; or ``"zero_out"``, a
            record in the place of none, for half the noise and half the promise. Epsilons of the two are not comparable.
        max_participations: 1, and nothing else: in how many steps a person is.
        noise_source, seed: see :func:`torchonline.privacy.noise.noise_source`; or a source of its own. A seed is for tests:
        who knows it removes the noise.
    """

    rounds: Tensor
    furthest: Tensor
    continuations: Tensor

    options_tolerance = 0.0

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
        self.source = noise_source if isinstance(noise_source, NoiseSource) else make_source(noise_source, seed)

    def forward(self) -> Tensor:
        """The decision."""
        raise NotImplementedError

    def released(self) -> nn.Module:
        """A module that decides as this one does now, and holds nothing but what is public: for TorchScript and for serving."""
        raise NotImplementedError

    def _event(self, steps: int) -> Event:
        """What is released of a record in some steps of one run with noise."""
        raise NotImplementedError

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        """The numbers that the noise in a state depends on, by name."""
        return []

    def privacy_ledger(self, continuations: int | None = None, *, steps: int | None = None) -> Ledger:
        """What has been released so far, for an accountant or a reader; see :meth:`privacy_spent`.

        Args:
            continuations: see :meth:`privacy_spent`.
            steps: what will have been released after so many steps, if they are more than there have been.
        """
        steps = max(int(self.rounds), int(self.furthest), 0 if steps is None else positive_integer("steps", steps))
        runs = int(self.continuations) if continuations is None else positive_integer("continuations", continuations)
        notes = ("seeded: no protection against whoever knows the seed",) if self.source.is_seeded else ()
        if steps == 0:
            return Ledger(self.adjacency, (), notes)
        event = self._event(steps) if self.epsilon < math.inf else NonPrivateEvent()
        return Ledger(self.adjacency, (RepeatedEvent(event, runs),), notes)

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
        seeded = ", seeded: no protection against whoever knows the seed" if self.source.is_seeded else ""
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
        """The number of the step that begins, from 1 on."""
        step = int(self.rounds) + 1
        if step > self.horizon:
            raise RuntimeError(
                f"step: expected at most {self.horizon} steps, the horizon, got one more; the privacy budget is spent"
            )
        return step

    def _refuse_tracing(self) -> None:
        """A traced program takes all buffers along."""
        if is_tracing() or is_exporting():
            raise RuntimeError(
                "export: expected released(), which holds public values only, got a private learner with its secrets"
            )

    def _clock(self) -> dict[str, Tensor]:
        """The buffers that count."""
        zero = torch.zeros((), dtype=torch.int64)
        return {"rounds": zero, "furthest": zero, "continuations": zero + 1}

    def _secrets(self) -> dict[str, Tensor | None]:
        """The secret buffers, by the names that they have elsewhere."""
        start = len(SECRET) + 1
        return {name[start:]: value for name, value in self._buffers.items() if name.startswith(SECRET)}

    def _create_buffers(self) -> None:
        super()._create_buffers()
        # A fleet has one clock.
        for name, value in self._clock().items():
            self.register_buffer(name, value.to(self._initial_options["device"], copy=True))

    def _dtype_of(self, name: str) -> torch.dtype:
        return self._initial_options["dtype"] if name in self.decisions else torch.float64

    def _options(self) -> list[tuple[str, float]]:
        own = [("horizon", self.horizon), ("epsilon", self.epsilon), ("delta", self.delta)]
        own += [("adjacency", ADJACENCIES.index(self.adjacency))]
        return [(name, float(value)) for name, value in own] + super()._options() + self._parameters_of_noise()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PrivateLearner":
        super()._apply(without_cast(fn), recurse)
        return self

    def _continue(self, rounds: int, furthest: int, continuations: int) -> None:
        """Count a run that goes on from the state that is here now, by what was here before, and never repeat its noise."""
        with torch.no_grad():
            begun = max(rounds, int(self.rounds)) > 0
            self.continuations.fill_(max(continuations, int(self.continuations)) + begun)
            self.furthest.fill_(max(rounds, furthest, int(self.furthest)))
        self.source.renew()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._continue(0, 0, 1)

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
        before, problems = (int(self.rounds), int(self.furthest), int(self.continuations)), len(error_msgs)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if len(error_msgs) == problems and f"{prefix}rounds" in state_dict:
            self._continue(*before)

    def __prepare_scriptable__(self) -> nn.Module:
        # torch.jit.script compiles what this returns.
        return self.released()
