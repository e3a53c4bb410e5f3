"""One learner over several processes."""

import functools
import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from torchonline.core.all_or_nothing import all_or_nothing, all_or_nothing_with, copied, torn_error
from torchonline.core.backend import check_keywords
from torchonline.core.checks import one_of, positive_integer
from torchonline.core.learner import Learner
from torchonline.distributed.ranks import (
    Ranks,
    digest,
    digest_of_text,
    error_from_text,
    packed,
    text_of_error,
    unpacked,
)
from torchonline.distributed.rounds import Arguments, Logs, copy_of, rounds_for
from torchonline.distributed.sums import learn_shares
from torchonline.policies.policy import Policy
from torchonline.privacy.learners.base import PrivateLearner
from torchonline.privacy.learners.clock import ClockedLearner

WAYS = ("leader", "all", "sums")
# Size of the first rank's note on a sync.
NOTE_BYTES = 1024


class SharedLearner(nn.Module):
    r"""One learner over several processes that all decide, observe and learn.

    A round of a rank, and from time to time a sync of all ranks::

        k = shared.select(arms)             # from the state of the last sync
        shared.observe(arms, k, reward)     # queued
        shared.sync()                       # collective: all ranks learn all queued rounds

    After each sync, all ranks have the same state, bit for bit. Ranks exchange rounds, or sums over rounds, but never
    differences of states, because a confidence set holds for rounds that are learnt once each. :meth:`sync` learns in one of
    three ways:

    - ``"leader"``: the first rank gets the rounds of all ranks, learns them in the order of the ranks, and sends its state to
      the others. This works for every learner, and for processors of different kinds. A few rounds are learnt by
      ``policy.step``, more rounds by ``policy.learn``.
    - ``"all"``: every rank gets and learns all rounds in the same order. The ranks compare digests of their new states, because
      processors of different kinds round differently. If the digests differ, all ranks raise, and nothing has been learnt.
    - ``"sums"``: each rank sums the terms of its own rounds, block by block from a common state, and the sums are added. A
      block costs one message of 2 d^2 + d + 2 numbers (d^2 + d for ridge regression, several messages for links), for any
      number of ranks and rounds. This needs a learner with blocks (``has_blocks``) and fixed coordinates.

    Guarantee: as for :meth:`Estimator.learn`, for all rounds of all ranks in one order. Conditions, besides the learner's: no row
    of data goes to two ranks; the noise of a round is independent of all other rounds; no arm depends on another rank's reward
    before that reward is learnt; the times of syncs depend on no reward that is not yet learnt; and no round is dropped because
    of its reward. Proof and traps: docs/distributed.md.

    A private learner learns only on the first rank, and draws its noise there. Records go to that rank, which sends back its
    :meth:`~torchonline.privacy.learners.base.PrivateLearner.public_state`. Each queued record takes its step, a refused record
    as ``step(None)``; the sync then raises after all records have taken their steps. ``state_dict()`` of another rank holds no
    secret state, and no learner loads it.

    Errors in the rounds of one rank are raised by the sync of all ranks and name the rank. Then no state has changed, and all
    rounds stay queued; :meth:`discard` drops the rounds of a rank. If a rank dies or does not call ``sync``, the sync of the
    others raises when the connection breaks, or after the timeout of the process group. The constructor, :meth:`broadcast` and
    :meth:`sync` are collective: all ranks call them in the same order, from one thread. Without a process group there is one
    rank.

    Cost of a sync: docs/distributed.md has a model and measurements.

    Args:
        policy: any learner of the library: a policy, an estimator, disjoint arms, a convex or a private learner, constructed
            alike on each rank. The constructor sends the first rank's state to all.
        learn_on: ``"leader"``, ``"all"`` or ``"sums"``.
        block_size: rounds in a block, of all ranks together, as in :meth:`Estimator.learn`.
        group: a process group; None for the default group.

    Raises:
        TypeError, ValueError: an argument is wrong, the learner does not support ``learn_on``, or the ranks' learners differ.

    Example:
        >>> from torchonline import OFUL
        >>> shared = SharedLearner(OFUL(2))
        >>> shared.observe(torch.eye(2), 1, 1.0)
        >>> shared.sync(), shared.pending
        (1, 0)
        >>> shared.select(torch.eye(2))
        tensor(0)
    """

    def __init__(
        self, policy: nn.Module, *, learn_on: str = "leader", block_size: int | None = None, group: Any = None
    ) -> None:
        super().__init__()
        if not isinstance(policy, (Policy, Learner)):
            raise TypeError(f"policy: expected a policy or another learner, got {type(policy).__name__}")
        self.policy: Any = policy
        self.learn_on = one_of("learn_on", learn_on, WAYS)
        self.block_size = None if block_size is None else positive_integer("block_size", block_size)
        self.ranks = Ranks(group)
        self._rounds = rounds_for(policy, self.learner)
        self._queue: list[Arguments] = []
        # Whether the rounds of an interrupted sync may have been learnt.
        self._is_in_doubt = False
        self.broadcast()

    def extra_repr(self) -> str:
        return f"learn_on={self.learn_on!r}, rank={self.ranks.rank} of {self.ranks.size}, pending={self.pending}"

    @property
    def learner(self) -> Any:
        """The learner whose buffers are the state, the policy's estimator or the policy."""
        return self.policy.learner if isinstance(self.policy, Policy) else self.policy

    @property
    def pending(self) -> int:
        """The number of this rank's queued rounds, judged by their shapes."""
        return sum(map(self._rounds.count, self._queue))

    def forward(self, *arguments: Any) -> Any:
        """Return the policy's scores, or a convex learner's decision."""
        return self.policy(*arguments)

    def select(self, *arguments: Any, **named: Any) -> Tensor:
        """Return the index of the chosen arm, from the state of the last sync.

        Arguments are as in the policy's ``select``.
        """
        index: Tensor = self.policy.select(*arguments, **named)
        return index

    def select_with_probability(self, *arguments: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """Choose an arm, and return its propensity.

        Arguments are as in the policy's ``select_with_probability``; see :meth:`select`.
        """
        decision: tuple[Tensor, Tensor] = self.policy.select_with_probability(*arguments, **named)
        return decision

    def observe(self, *arguments: Any, **named: Any) -> None:
        """Queue a round, or several in order, with the arguments of ``policy.step``.

        The arguments are copied. :meth:`sync` checks the values, so that all ranks learn of a wrong one.

        Raises:
            TypeError: the arguments are not those of ``step``.
        """
        signature = _signature_of_step(self.policy.__class__)
        check_keywords("observe", signature, arguments)
        try:
            bound = signature.bind(self.policy, *arguments, **named)
        except TypeError as error:
            raise TypeError(f"observe() {error}") from None
        self._queue.append({name: copy_of(value) for name, value in list(bound.arguments.items())[1:]})

    def discard(self) -> int:
        """Drop this rank's queued rounds, and return their number."""
        dropped = self.pending
        self._queue.clear()
        self._is_in_doubt = False
        return dropped

    def broadcast(self) -> None:
        """Send the first rank's state to all ranks. Collective.

        Call it after loading a state only on the first rank.

        Raises:
            ValueError: the ranks' learners differ in class, options or sizes, or the learner does not support ``learn_on``.
        """
        error = self._why_not() if self.ranks.rank == 0 else None
        error, rows = self.ranks.agree(error, digest_of_text(self._description()))
        if error is None and (other := _first_other(rows)) is not None:
            error = (
                "ValueError: policy: expected the same class, options and sizes on all ranks, and the same learn_on and "
                f"block_size, got others on rank {other} than on rank 0"
            )
        if error is not None:
            raise error_from_text(error)
        self._hear(_Outcome())

    def sync(self) -> int:
        """Learn the queued rounds of all ranks, and return their number. Collective.

        Raises:
            TypeError, ValueError: a queued round of some rank is wrong. All ranks raise, and no state has changed, except that of
                a private learner, which takes a step for each record.
            RuntimeError: the ranks' states differ, because one was written from outside or learnt with different rounding; or
                the privacy budget is spent; or a rank was interrupted. All ranks raise. Also if the connection to another rank
                is lost: then rounds of this rank may have been learnt, and are refused until :meth:`discard`.
        """
        queue = list(self._queue)
        own = sum(map(self._rounds.count, queue))
        rounds, message, error = self._checked(queue)
        error, rows = self.ranks.agree(error, digest(self._shared_state()), own, message.numel())
        states, counts, sizes = ([row[i] for row in rows] for i in range(3))
        if error is None and (other := _first_other(states)) is not None:
            error = (
                f"RuntimeError: state: expected the same on all ranks, got another on rank {other} than on rank 0; call "
                "broadcast() on all ranks to go on from that of rank 0"
            )
        outcome = _Outcome() if error is None else _Outcome(error, False, False)
        if error is None and sum(counts) > 0:
            self._is_in_doubt = own > 0
            outcome = self._learn_together(rounds, message, counts, sizes)
        if outcome.is_over:
            del self._queue[: len(queue)]
        if error is None:
            self._is_in_doubt = False
        outcome.raise_error()
        return sum(counts)

    def _learn_together(self, rounds: Any, message: Tensor, counts: list[int], sizes: list[int]) -> "_Outcome":
        """Learn the rounds of all ranks, or nothing, as ``learn_on`` says."""
        if self.learn_on == "leader":
            messages = self.ranks.gather_messages(message, sizes)
            return self._hear(_Outcome() if messages is None else self._attempt(messages))
        messages = self.ranks.all_gather_messages(message, sizes) if self.learn_on == "all" else []
        state = self._shared_state()
        try:
            with torch.no_grad(), _locks(self.policy):
                if self.learn_on == "sums":
                    all_or_nothing(self.learner, copied(state), self._learn_shares, rounds, counts)
                else:  # the learner steps, which it would refuse if it were marked as torn
                    all_or_nothing_with(self.learner, self._rounds, state, self._learn_alike, messages)
        except _UndoneError as undone:
            return undone.outcome
        return _Outcome()

    def _learn_alike(self, messages: list[Tensor]) -> None:
        """Learn the rounds of all ranks on each, and compare the states."""
        outcome = self._attempt(messages)
        error, states = self.ranks.agree(outcome.error, digest(self._shared_state()))
        if error is None and _first_other(states) is not None:
            error = (
                "RuntimeError: state: expected the same on all ranks after learning the same rounds, got others, since "
                'processors of different kinds round differently; use learn_on="leader"'
            )
        if error is not None:
            raise _UndoneError(_Outcome(error, False, False, outcome.failure))

    def _learn_shares(self, rounds: Any, counts: list[int]) -> None:
        """Learn the rounds of this rank, summed with those of the others."""
        logs: Any = self._rounds
        refused = learn_shares(logs, self.ranks, rounds, counts, self.block_size)
        outcome = self._hear(_Outcome() if refused is None else _Outcome(text_of_error(refused), False, False, refused))
        if outcome.error is not None:
            raise _UndoneError(outcome)

    def _attempt(self, messages: list[Tensor]) -> "_Outcome":
        """Learn the rounds of all ranks, and return the outcome."""
        failure: BaseException | None = None
        try:
            error = self._rounds.learn([unpacked(message) for message in messages], self.block_size)
        except Exception as caught:
            failure, error = caught, text_of_error(caught)
        except BaseException as caught:  # an interrupt, which the other ranks must learn of
            failure, error = caught, text_of_error(caught, self.ranks.rank)
        is_over = error is None or isinstance(self.learner, PrivateLearner)
        return _Outcome(error, is_over and not self.learner._is_torn, is_over, failure)

    def _hear(self, outcome: "_Outcome") -> "_Outcome":
        """Return the first rank's outcome; take over its state if changed. One message."""
        state = self._shared_state()
        # A state that is not whole is not sent.
        sent = state if outcome.is_learnt else list(map(torch.zeros_like, state))
        note, *values = self.ranks.broadcast([outcome.as_note(), *sent])
        if self.ranks.rank == 0:
            return outcome
        heard = _Outcome.of_note(note)
        if heard.is_learnt:
            self._take_over(state, values)
        return heard

    def _take_over(self, state: list[Tensor], values: list[Tensor]) -> None:
        """Overwrite this rank's state by the first rank's."""
        with torch.no_grad(), _locks(self.policy):
            clocks = [part for part in self.learner.modules() if isinstance(part, ClockedLearner)]
            before = [clock._counts() for clock in clocks]
            all_or_nothing(self.learner, copied(state), _write, state, values)
            for clock, counts in zip(clocks, before, strict=True):
                clock._follow(*counts)

    def _shared_state(self) -> list[Tensor]:
        """Return the tensors that all ranks share."""
        learner = self.learner
        return list((learner.public_buffers() if isinstance(learner, PrivateLearner) else learner.state()).values())

    def _description(self) -> str:
        """Return what must agree on all ranks: classes, options, sizes and types."""
        parts = [part for part in self.learner.modules() if isinstance(part, Learner)]
        options = [(type(part).__qualname__, *_described(part._arguments)) for part in parts]
        buffers = [(tuple(tensor.shape), tensor.dtype) for tensor in self._shared_state()]
        arms = [getattr(self.learner, name, None) for name in ("action_ids", "action_names")]
        return repr((self.learn_on, self.block_size, options, buffers, arms))

    def _why_not(self) -> str | None:
        """Return why the learner does not support ``learn_on``, or None."""
        learner, way = self.learner, self.learn_on
        allowed, why = '"leader" or "all"', None
        if learner._is_torn:
            return text_of_error(torn_error(learner), self.ranks.rank)
        if isinstance(learner, PrivateLearner):
            allowed, why = '"leader"', None if way == "leader" else "whose noise one rank draws once"
        elif way == "sums":
            is_log = isinstance(self._rounds, Logs)
            why = learner._why_no_sums() if is_log else "which has no sums over rounds to add"
        name = type(learner).__name__
        return None if why is None else f"ValueError: learn_on: expected {allowed} for {name}, {why}, got {way!r}"

    def _checked(self, queue: list[Arguments]) -> tuple[Any, Tensor, str | None]:
        """Return this rank's rounds, their message, and their error or None."""
        rounds, message, error = None, torch.empty(0, dtype=torch.uint8), self._why_not()
        if self._is_in_doubt:
            error = (
                f"RuntimeError: rank {self.ranks.rank}: queue: expected rounds that wait for a sync, got some that an "
                "interrupted sync may have learnt"
            )
        if error is None:
            try:
                rounds = self._rounds.checked(queue, self.ranks.rank)
                message = message if self.learn_on == "sums" else packed(rounds)
            except Exception as caught:
                error = text_of_error(caught, self.ranks.rank)
        return rounds, message, error


class _Outcome(NamedTuple):
    """The outcome of a sync."""

    error: str | None = None
    is_learnt: bool = True  # whether the state has changed
    is_over: bool = True  # whether the rounds leave the queues
    failure: BaseException | None = None  # of this rank

    def raise_error(self) -> None:
        """Raise the error, if any; re-raise an interrupt of this rank."""
        if self.failure is not None and not isinstance(self.failure, Exception):
            raise self.failure
        if self.error is not None:
            what = "" if self.is_over else "; no rank has learnt anything, and discard() drops a rank's queued rounds"
            raise error_from_text(f"{self.error}{what}") from self.failure

    def as_note(self) -> Tensor:
        """Return all but the failure, in a fixed number of bytes."""
        text = (self.error or "").encode()[: NOTE_BYTES - 2]
        note = bytes([self.is_learnt, self.is_over]) + text.ljust(NOTE_BYTES - 2, b"\0")
        return torch.frombuffer(bytearray(note), dtype=torch.uint8)

    @classmethod
    def of_note(cls, note: Tensor) -> Self:
        """Return the outcome of a note."""
        is_learnt, is_over, *text = note.tolist()
        error = bytes(text).rstrip(b"\0").decode(errors="ignore")
        return cls(error or None, bool(is_learnt), bool(is_over))


class _UndoneError(Exception):
    """Report that a sync has been undone, and its outcome."""

    def __init__(self, outcome: _Outcome) -> None:
        super().__init__(outcome.error)
        self.outcome = outcome


@functools.cache
def _signature_of_step(cls: Any) -> inspect.Signature:
    return inspect.signature(cls.step)


def _first_other(values: Sequence[Any]) -> int | None:
    """Return the first rank whose value differs from rank 0's, or None."""
    return next((rank for rank, value in enumerate(values) if value != values[0]), None)


def _described(arguments: Any) -> list[tuple[str, Any]]:
    """Return arguments as plain values that are the same in all processes."""
    plain = (int, float, str, bool, tuple, type(None))
    named = sorted((name, value) for name, value in arguments.items() if name != "device")
    return [(name, value if type(value) in plain else type(value).__name__) for name, value in named]


def _write(tensors: list[Tensor], values: list[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


@contextmanager
def _locks(policy: Any) -> Iterator[None]:
    """Hold the locks of a policy's learners."""
    with ExitStack() as stack:
        for learner in (part for part in policy.modules() if isinstance(part, Learner)):
            stack.enter_context(learner._lock)
        yield
