"""Contract of the private learners: horizon, budget, ledger, public state."""

import inspect
import math
import warnings
from typing import TYPE_CHECKING, Any, Required, Self, Unpack

import torch
from torch import Tensor, nn

from torchonline.core.all_or_nothing import one_at_a_time
from torchonline.core.backend import without_cast
from torchonline.core.checks import integer, one_of, positive, positive_integer, within
from torchonline.core.options import LearnerOptions
from torchonline.privacy.accounting import ADJACENCIES, Event, Ledger, NonPrivateEvent, RepeatedEvent
from torchonline.privacy.learners.clock import NO_END, ClockedLearner
from torchonline.privacy.noise import NoiseSource
from torchonline.privacy.noise import noise_source as make_source

SECRET = "secret"
SEEDED = "seeded: no protection against anybody who knows the seed"


def warn_of_delta(delta: float, people: float) -> None:
    """Warn if a delta is one over the number of people, or more."""
    if delta * people >= 1.0:
        warnings.warn(
            f"delta: expected less than one over the number of people, {1.0 / people:g}, got {delta:g}; a mechanism that "
            "publishes one random record in full keeps this promise",
            stacklevel=3,
        )


class PrivateOptions(LearnerOptions, total=False):
    """Options of all private learners: meaning and defaults as in ``PrivateLearner``."""

    horizon: Required[int | None]
    epsilon: Required[float]
    delta: Required[float]
    adjacency: str
    participations: int
    min_separation: int
    noise_source: str | NoiseSource
    seed: int | None


class PrivateLearner(ClockedLearner):
    """Base class of the learners whose releases reveal little about any one record.

    Guarantee: the sequence of all public states is (epsilon, delta)-differentially private for streams that differ in one record,
    even if an adversary who sees the earlier states chooses the later records. Nothing else that is computed from a record (a
    loss, a reward, a regret) is covered, nor is stopping, selecting or logging based on it. Conditions (more in docs/privacy.md):

    - All arguments, the number of steps, shapes and types, and the step that each person takes are public. They do not depend on
      data.
    - Each person takes one step, or as many as ``participations`` says. A record that is missing, refused or filtered out takes
      its step as ``step(None)``, because skipping the step would shift all later records. A further epoch spends more, and so
      does the same person in two learners of a batch, under two seeds or at two points of a grid. The learner cannot detect this.
      B learners on one stream spend :meth:`privacy_spent` with ``continuations=B``.
    - The entries of ``state_dict()`` whose names begin with ``secret`` are as secret as the records, and so is every checkpoint,
      pickle and copy. :meth:`public_state` and :meth:`released` may leave the machine. TorchScript compiles :meth:`released`
      only.

    NaN and infinity count as zero contributions, because an error would reveal them. A loaded or copied learner draws fresh
    noise. All sums and all noise are float64 for any ``dtype``, and no cast changes them. **A step that fails halfway counts as
    taken**: do not pass its person to ``step`` again. Until a state is loaded, all calls that read or write the learner's state
    then raise a RuntimeError. A wrong shape, type or device raises a ValueError or TypeError before the step begins, and changes
    no buffer.

    Args:
        dim: number of features d.
        horizon: n, the number of steps. A step after the last raises RuntimeError, because the budget is spent. None for no end:
            the promise holds for any number of steps, with about 1.3 times the noise.
        epsilon: of the whole run, above 0; ``inf`` for no privacy and no noise.
        delta: of the whole run, in (0, 1). Choose it much smaller than one over the number of people; a delta of 1 / n or more
            warns, if there is a horizon.
        adjacency: which streams are neighbours. ``"replace_one"``: one record is replaced by another. ``"zero_out"``: one record
            is replaced by none, for about half the noise. Never compare epsilons of the two: at the same noise, ``"replace_one"``
            has about twice the epsilon, or more.
        participations, min_separation: k and b. A person takes part in at most k steps, of which any two are at least b apart.
            For E passes over N records in one order: k = E, b = N, ``horizon`` = E N. If each pass has a different order, b is 1.
            For real-valued prefix-sum mechanisms only.
        noise_source: a name, see :func:`torchonline.privacy.noise.noise_source`; or a source that no other learner uses.
        seed: of the source "torch", for tests. Anybody who guesses it can remove the noise, so :meth:`privacy_spent` is infinite.
        batch_shape: ``*B``, independent learners with one clock, each for a stream of different people.
        dtype: of the decisions.
        device: where the state lives. Noise is drawn on the CPU. Each step reads the clock, so the host waits for the device.
        validate: no effect. Shapes, types and devices are always checked, values never.
    """

    # Far below the margin of the calibration, and above the differences of logarithms between processors.
    options_tolerance = 1e-10

    if TYPE_CHECKING:  # the state of the mechanism, if it has one
        noisy_sum: Tensor
        noisy_memory: Tensor
        noisy_nodes: Tensor
        secret_sum: Tensor
        secret_memory: Tensor
        secret_nodes: Tensor
    noise: Any  # a mechanism, unless the subclass overrides `_event`
    warns_of_delta = True
    records_a_step = 1
    decisions: tuple[str, ...] = ()  # buffers in the dtype of the learner; all others are float64
    why_fixed = "which the noise is made for"

    def __init__(
        self,
        dim: int,
        *,
        horizon: int | None,
        epsilon: float,
        delta: float,
        adjacency: str = "replace_one",
        participations: int = 1,
        min_separation: int = 1,
        noise_source: str | NoiseSource = "torch",
        seed: int | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        super().__init__(dim, **options)
        # The seed is neither stored nor shown. extra_repr always shows the adjacency.
        for name in ("seed", "adjacency", "domain"):
            self.__dict__.get("_arguments", {}).pop(name, None)
        self.horizon = NO_END if horizon is None else positive_integer("horizon", horizon)
        if horizon is not None and self.horizon >= NO_END:
            raise ValueError(f"horizon: expected None or an integer below 2^62, got {horizon}")
        self.epsilon = math.inf if epsilon == math.inf else positive("epsilon", epsilon)
        self.delta = within("delta", delta, 0.0, 1.0)
        self.adjacency = one_of("adjacency", adjacency, ADJACENCIES)
        self.participations = positive_integer("participations", participations)
        self.min_separation = positive_integer("min_separation", min_separation)
        if self.warns_of_delta and self.epsilon < math.inf and not self._is_endless:
            warn_of_delta(self.delta, self.horizon * self.records_a_step / self.participations)
        self.source = make_source(noise_source, seed)

    def __setattr__(self, name: str, value: Any) -> None:
        # Refuse to change attributes of the class or the constructor: noise and sensitivity depend on most of them.
        is_option = not name.startswith("_") and name != "training" and "constants" in self._buffers
        if is_option and (name in self.__dict__ or name in self._modules):
            self._refuse_change(type(self), name, value)
        elif is_option and name not in self._buffers and hasattr(type(self), name):
            raise AttributeError(f"{name}: expected the initial value, {self.why_fixed}, got {value!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: expected the initial value, {self.why_fixed}, got a deletion")

    def _promise(self) -> dict[str, Any]:
        """Return the promise that a mechanism is calibrated to, and its source."""
        return {"epsilon": self.epsilon, "delta": self.delta, "source": self.source}

    def _records_moved(self) -> float:
        """Return how many contributions a neighbour changes: 2, or 1 under zero-out."""
        return 2.0 if self.adjacency == "replace_one" else 1.0

    def released(self) -> Any:
        """Return a module of the public values, for export: it decides, but never learns."""
        raise NotImplementedError

    def _event(self, steps: int) -> Event | None:
        """Return the event of ``steps`` steps of a run with noise; None for no release."""
        return self.noise.event(steps)

    def _parameters_of_noise(self) -> list[tuple[str, float]]:
        """Return (name, value) pairs of the numbers that the noise in a state depends on."""
        return []

    def privacy_ledger(self, continuations: int | None = None, *, steps: int | None = None) -> Ledger:
        """Return the ledger of all releases so far.

        With ``steps``, return the ledger after that many steps, if they are more than the steps taken. If noise came from a seed,
        the ledger ends with a ``NonPrivateEvent``. For ``continuations`` see :meth:`privacy_spent`.
        """
        if steps is not None and positive_integer("steps", steps) > self.horizon:
            raise ValueError(f"steps: expected at most {self.horizon}, the horizon, got {steps}")
        with self._lock:
            rounds, furthest, _ = self._counts()
            notes = self._notes()
            ledger = self.ledger_after(max(rounds, furthest, steps or 0), continuations)
        more = (NonPrivateEvent(),) if notes and ledger.events else ()
        return Ledger(self.adjacency, ledger.events + more, notes)

    def steps_released(self) -> int:
        """Return the largest number of steps among this run and the runs it continues."""
        with self._lock:
            rounds, furthest, _ = self._counts()
        return max(rounds, furthest)

    def ledger_after(self, steps: int, continuations: int | None = None) -> Ledger:
        """Return the ledger of ``steps`` steps, taken or planned, with secret noise.

        It ignores seeds. :meth:`privacy_ledger` counts noise from a seed as no noise.

        Raises:
            TypeError, ValueError: ``steps`` is not an integer of at least 0, or ``continuations`` not an integer above 0.
        """
        if integer("steps", steps) < 0:
            raise ValueError(f"steps: expected an integer of at least 0, got {steps}")
        with self._lock:
            # The parts may have been loaded one by one.
            parts: list[Any] = [self, *self.parts().values()]
            runs = max(part._counts()[2] for part in parts)
        if continuations is not None:
            runs = positive_integer("continuations", continuations)
        if steps == 0:
            return Ledger(self.adjacency)
        event = self._event(steps) if self.epsilon < math.inf else NonPrivateEvent()
        return Ledger(self.adjacency, () if event is None else (RepeatedEvent(event, runs),))

    def _notes(self) -> tuple[str, ...]:
        """Return the notes of a ledger."""
        parts: list[Any] = [self, *self.parts().values()]
        return (SEEDED,) if any(part._is_seeded() for part in parts) else ()

    def plot_privacy(
        self, ax: Any = None, *, delta: float | None = None, continuations: int | None = None
    ) -> tuple[Any, Any]:
        """Draw the epsilon spent against steps, with the learner's budget as a line.

        Past steps are a solid line, and future steps a dotted one: up to the horizon, or, without a horizon, up to twice the
        steps taken. The curve is computed from options and the clock, never from a record; see :meth:`privacy_spent` for when it
        holds. If noise comes from a seed, the curve assumes secret noise, and the title says so. Needs matplotlib.

        Args:
            ax: matplotlib axes; None for a new figure of pyplot.
            delta: in (0, 1); None for the constructor's. The budget line is drawn for the constructor's delta only.
            continuations: see :meth:`privacy_spent`.

        Returns:
            The figure and the axes.

        Raises:
            ImportError: matplotlib is not installed.
            TypeError: ``ax`` is something else, such as a delta passed by position.
            ValueError: ``delta`` or ``continuations`` is out of range, or the learner's epsilon is infinite.
        """
        from torchonline.privacy.plots import draw_spending

        if isinstance(ax, (int, float)):
            raise TypeError(f"ax: expected matplotlib axes or None, got {ax}; if it is delta, plot_privacy(delta={ax})")
        own = self.delta if delta is None else within("delta", delta, 0.0, 1.0)
        budgets = {"budget": self.epsilon} if own == self.delta else {}
        return draw_spending([self], ax, own, continuations, budgets)

    def privacy_spent(self, delta: float, continuations: int | None = None) -> float:
        r"""Return the epsilon of all releases so far, at a delta.

        It is infinite without noise, and with noise from a seed. It holds if the number of steps was *fixed in advance*. If the
        run was stopped because of anything that depends on the data, such as a public state or this epsilon, quote
        ``privacy_ledger(continuations, steps=self.horizon).epsilon(delta)`` instead: the constructor's epsilon, if no state was
        loaded. If m runs continue from one state, all earlier records are released m times: :math:`\mu\sqrt m` of Gaussian
        privacy, or :math:`m\rho` of zCDP.

        Args:
            delta: in (0, 1).
            continuations: m. The default is 1, plus 1 for each load or copy, in this learner's past, of a state with at least one
                step. The learner cannot know of other copies: if one state is loaded m times, pass m, or m + 1 if the run that
                saved it went on. Pass 1 for a run that was resumed, once, from the very last state that it had published, and B
                for a batch of B learners on one stream, all published.
        """
        return self.privacy_ledger(continuations).epsilon(within("delta", delta, 0.0, 1.0))

    @one_at_a_time
    def public_state(self) -> dict[str, Tensor]:
        """Return copies of all buffers that are not secret, which have been released."""
        return {name: value.clone() for name, value in self.public_buffers().items()}

    def public_buffers(self) -> dict[str, Tensor]:
        """Return the buffers that are not secret, by name, without copies."""
        return {name: value for name, value in self.state().items() if not name.rpartition(".")[-1].startswith(SECRET)}

    def reset(self) -> None:
        """Raise a RuntimeError, because a release cannot be undone, and stays counted."""
        raise RuntimeError("reset: expected a new learner instead, because a release cannot be undone")

    def set_params(self, **params: Any) -> Self:
        """Set arguments before the first step, as for any learner.

        Raises:
            RuntimeError: a step has been taken, and a release cannot be undone.
        """
        if self.steps_released():
            raise RuntimeError("set_params: expected a new learner instead, because a release cannot be undone")
        return super().set_params(**params)

    def _params(self) -> dict[str, Any]:
        found = super()._params()
        if isinstance(source := found.get("noise_source"), NoiseSource):  # which no other learner may use
            found["noise_source"] = source.spawn()
        return found

    def extra_repr(self) -> str:
        """Return the options that differ, the sizes, and a warning if there is a seed."""
        adjacency = f"adjacency={self.adjacency!r}"
        return ", ".join(filter(None, (super().extra_repr(), adjacency, SEEDED if self._is_seeded() else "")))

    def _refuse_several(self, name: str) -> None:
        """Raise if a person may take part several times. ``name`` is what forbids it."""
        if self.participations > 1:
            raise ValueError(f"participations: expected 1 with {name}, got {self.participations}")

    @property
    def _is_endless(self) -> bool:
        return self.horizon == NO_END

    def _refuse_endless(self, name: str) -> None:
        """Raise if there is no horizon. ``name`` is what needs one."""
        if self._is_endless:
            raise ValueError(f"horizon: expected an integer with {name}, got None")

    def _clip_bound(self, name: str, value: Any) -> float:
        """Return a clipping bound: above 0, and infinite only if epsilon is."""
        return math.inf if value == math.inf == self.epsilon else positive(name, value)

    def _dtype_of(self, name: str) -> torch.dtype:
        return self._initial_options["dtype"] if name in self.decisions else torch.float64

    def _options(self) -> list[tuple[str, float]]:
        own = [("horizon", float(self.horizon)), ("epsilon", self.epsilon), ("delta", self.delta)]
        own.append(("adjacency", float(ADJACENCIES.index(self.adjacency))))
        own.append(("records_a_step", float(self.records_a_step)))
        own += [("participations", float(self.participations)), ("min_separation", float(self.min_separation))]
        return own + super()._options() + self._parameters_of_noise()

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return super()._apply(without_cast(fn), recurse)

    def __prepare_scriptable__(self) -> nn.Module:
        # torch.jit.script compiles the module that this method returns. If the learner is part of another module, it puts the
        # returned one in the learner's place, and state and counts would be lost. `memo` then holds the outer module.
        caller = inspect.currentframe()
        memo = caller.f_back.f_locals.get("memo") if caller is not None and caller.f_back is not None else None
        if memo != {}:
            raise RuntimeError(
                "export: expected torchonline.export.released(module), which holds public values only, got a "
                f"{type(self).__name__} with its secrets"
            )
        return self.released()
