"""Interface of a feedback log."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor

from torchonline.core.inputs import ArrayLike
from torchonline.feedback.records import Decision, Feedback, mask_by_id


class LogStorageError(RuntimeError):
    """Error of a log that could not be written: the call stored nothing.

    Only if a commit was interrupted may the call have been stored. It is always safe to repeat the call: a decision or reward is
    not stored twice.

    Args:
        message: text of the error.
        is_damage: whether a file is damaged, so that the next call fails, too.
    """

    def __init__(self, message: str, *, is_damage: bool = False) -> None:
        super().__init__(message)
        self.is_damage = is_damage


class ConflictError(ValueError):
    """Error of a decision whose id belongs to another decision in the log."""


class FeedbackLog(ABC):
    """Base class of the logs of decisions and rewards.

    A subclass stores both in :meth:`write`. Its :meth:`read` returns the rounds to learn, in the same order for all readers;
    positions never change. :class:`DecisionLog` is a log in a file; docs/service.md lists the requirements for other logs.

    Attributes:
        name: a random word, stored in the log.
        window: seconds that a decision waits for its reward; None for no limit.
        default_reward: reward of a decision whose window is over.
        hold: whether rewards also wait for the end of the window.
    """

    name: str
    window: float | None
    default_reward: float
    hold: bool

    @abstractmethod
    def write(
        self,
        decisions: Iterable[Decision] = (),
        rewards: Iterable[tuple[str, float | Tensor]] = (),
        *,
        time: float | None = None,
    ) -> tuple[list[Decision | ConflictError], list[str]]:
        """Log decisions, then join rewards, in one transaction: all are stored, or none.

        Returns the results of :meth:`decide_many` and :meth:`reward_many`. It is for a service that collects the calls of many
        clients.
        """

    @abstractmethod
    def close_due(self, now: float | None = None, *, limit: int = 10_000) -> int:
        """Close decisions whose window is over. Return their number.

        A decision without a reward gets ``default_reward``. Without a window this is a no-op.

        Args:
            now: seconds since 1970; None for the present.
            limit: maximum number of decisions to close in one transaction.
        """

    @abstractmethod
    def read(self, after: int = 0, limit: int = 1000) -> list[Feedback]:
        """Return rounds with known rewards, in the order in which they became known.

        Args:
            after: the last position that the caller has read; 0 for the start.
            limit: maximum number of rounds to return.

        Raises:
            DamagedRowError: the first of these rows is damaged or missing. Rows before the damage are returned without an error.
                Continue after the error's attribute ``last``.
        """

    @abstractmethod
    def decisions(self, after: int = 0, limit: int = 1000) -> list[Decision]:
        """Return decisions in the order of logging, with or without a reward.

        Args:
            after: the number of the last decision that the caller has read; 0 for the start.
            limit: maximum number of decisions to return.

        Raises:
            DamagedRowError: the first of these rows is damaged, as in :meth:`read`.
        """

    def waiting(self, after: int = 0, limit: int = 1000) -> list[Decision]:
        """Return the latest decisions that a learner has not learnt, in their order.

        Their rewards are unknown, or known at a position above ``after``. A log that does not implement this returns none.

        Args:
            after: the last position that the learner has read.
            limit: maximum number of decisions to return.

        Raises:
            DamagedRowError: one of these rows is damaged.
        """
        return []

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return the number of decisions and rewards of each kind.

        - ``decisions``: logged decisions; ``known``: decisions that :meth:`read` returns; ``open``: all others.
        - ``defaults``: known decisions that got the default.
        - ``duplicates``, ``late``: ignored rewards; ``repeats``: repeated calls of :meth:`decide`.
        - ``unknown``: rewards that arrived before a decision; ``strays``: unknown rewards that still wait for one.
        """

    @abstractmethod
    def block_end(self, learner: str, after: int, limit: int) -> int:
        """Return and store the end of the block after a position.

        A learner that learns blocks calls this for each block, so that it gets the same blocks again after a restart from an
        earlier position. The end is ``after`` if no further round is known.

        Args:
            learner: name of the learner.
            after: end of the previous block.
            limit: maximum number of rounds in a block.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def __enter__(self) -> "FeedbackLog":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def decide(
        self,
        id: str,
        inputs: ArrayLike,
        action: int | Tensor,
        probability: float | Tensor,
        *,
        mask: ArrayLike | None = None,
        action_ids: Iterable[int] | None = None,
        encoder: str = "",
        time: float | None = None,
    ) -> Decision:
        """Log a decision, and return it as stored.

        If the log has a decision with the same id, inputs and mask, this is a repeated call: it stores nothing and returns the
        first decision, whose action counts. A reward that arrived before its decision is joined now.

        Args:
            id: the id under which the reward will arrive, 1 to 512 bytes.
            inputs: inputs of the policy's ``select`` for one decision: arms ``(K, d)``, a context ``(d)`` or raw inputs. For a
                policy on features, the chosen arm's features ``(d)`` suffice to learn, but not to evaluate other policies.
            action: the chosen arm as in the policy's ``select`` and ``step``, an integer of at least 0.
            probability: propensity of the chosen arm, in (0, 1]; ``policy.select_with_probability`` returns it.
            mask: arms that were available, ``(K)``, bool.
            action_ids: ids of the K arms, ``policy.action_ids`` of a policy whose arms change. The log stores a mask with an
                entry for each id. None if arm k of the mask has the id k.
            encoder: version of the encoder that computed ``inputs``, if any.
            time: seconds since 1970; None for now. If no times are given, windows are measured by a clock that is immune to jumps
                of the wall clock.

        Raises:
            TypeError, ValueError: an argument is invalid.
            ConflictError: the id belongs to a decision with other inputs or another mask.
            LogStorageError: the log could not be written.
        """
        if action_ids is not None:
            mask = mask_by_id(mask, action_ids)
        (found,) = self.decide_many(
            [Decision(id, inputs, action, probability, mask, encoder, time)]  # type: ignore[arg-type]
        )
        if isinstance(found, ConflictError):
            raise found
        return found

    def decide_many(self, decisions: Iterable[Decision]) -> list[Decision | ConflictError]:
        """Log decisions in one transaction: all are stored, or none.

        Returns for each decision the result of :meth:`decide`, or the :class:`ConflictError` that it would raise. The number of a
        given :class:`Decision` is ignored, and a time of None means now.
        """
        return self.write(decisions)[0]

    def reward(self, id: str, value: float | Tensor, *, time: float | None = None) -> str:
        """Join a reward to its decision. Return the outcome.

        - ``"joined"``: the reward counts. With ``hold``, :meth:`read` returns it when the window is over.
        - ``"duplicate"``: the decision already has a reward; this one is counted and ignored.
        - ``"late"``: the window is over and the default counts; this reward is counted and ignored.
        - ``"unknown"``: no decision has this id. The reward is kept aside, and joined if the decision arrives later.

        Args:
            id: id of the decision.
            value: a finite number.
            time: when the reward became known, in seconds since 1970; None for now.

        Raises:
            TypeError, ValueError: an argument is invalid.
            LogStorageError: the log could not be written.
        """
        return self.reward_many([(id, value)], time=time)[0]

    def reward_many(self, rewards: Iterable[tuple[str, float | Tensor]], *, time: float | None = None) -> list[str]:
        """Join rewards, pairs of id and value, in one transaction; see :meth:`reward`.

        With a window, ``time`` must be the time of the rewards: a later time makes rewards of old decisions late.
        """
        return self.write((), rewards, time=time)[1]


def pages(read: Callable[..., Any], key: str, size: int, last: int | None = None) -> Iterator[list[Any]]:
    """Yield the pages of a log, up to the entry with key ``last``, if given.

    Args:
        read: ``log.decisions`` with the key "number", or ``log.read`` with the key "position".
        key: attribute of an entry that the next page continues from.
        size: maximum number of entries of a page.
        last: the last number or position to yield.
    """
    after = 0
    while page := list(read(after=after, limit=size)):
        after = getattr(page[-1], key)
        yield page if last is None else [one for one in page if getattr(one, key) <= last]
        if last is not None and after >= last:
            return
