"""The interface of a feedback log."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor

from torchonline.core.inputs import ArrayLike
from torchonline.feedback.records import Decision, Feedback, mask_by_id


class LogStorageError(RuntimeError):
    """Error of a log that could not be written: nothing of the call was stored.

    An interruption in the middle of a commit is the one case in which the call may have been stored. To repeat the call is right
    in any case: a decision or reward that is there already is not stored twice.

    Args:
        message: the text.
        is_damage: whether a file is damaged, so that the next call fails, too.
    """

    def __init__(self, message: str, *, is_damage: bool = False) -> None:
        super().__init__(message)
        self.is_damage = is_damage


class ConflictError(ValueError):
    """Error of a decision whose id stands for another decision in the log."""


class FeedbackLog(ABC):
    """Base of the logs of decisions and rewards.

    A subclass stores both in :meth:`write`, and gives what may be learnt, in one order for all readers, in :meth:`read`. What has
    a position keeps it. :class:`DecisionLog` is one in a file; docs/service.md says what others need.

    Attributes:
        name: a random word, the same for all who open the log.
        window: seconds that a decision waits for its reward; None for ever.
        default_reward: reward of a decision whose window is over.
        hold: whether rewards that come wait for the end of the window too.
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

        Returns what :meth:`decide_many` and :meth:`reward_many` return. For a service that collects the calls of many clients.
        """

    @abstractmethod
    def close_due(self, now: float | None = None, *, limit: int = 10_000) -> int:
        """Close decisions whose window is over, and return how many.

        A decision without a reward gets ``default_reward``. Without a window nothing is ever due.

        Args:
            now: seconds since 1970; the present if None.
            limit: the most decisions to close in one transaction.
        """

    @abstractmethod
    def read(self, after: int = 0, limit: int = 1000) -> list[Feedback]:
        """Return what may be learnt, in the order in which it became known.

        Args:
            after: the last position that the caller has read; 0 for the start.
            limit: the most rounds to return.

        Raises:
            DamagedRowError: the first of these rows is damaged, or is gone. Rows before the damage are returned without an error.
                Read on after its attribute ``last``.
        """

    @abstractmethod
    def decisions(self, after: int = 0, limit: int = 1000) -> list[Decision]:
        """Return decisions in the order of logging, with or without a reward.

        Args:
            after: the number of the last decision that the caller has read; 0 for the start.
            limit: the most decisions to return.

        Raises:
            DamagedRowError: the first of these rows is damaged, as in :meth:`read`.
        """

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return how many decisions and rewards there are of each kind.

        - ``decisions``: logged; ``known``: those that :meth:`read` gives; ``open``: the others.
        - ``defaults``: those of the known that got the default.
        - ``duplicates``, ``late``: rewards that were ignored; ``repeats``: repeated calls of :meth:`decide`.
        - ``unknown``: rewards that came without a decision; ``strays``: those of them that still wait for one.
        """

    @abstractmethod
    def block_end(self, learner: str, after: int, limit: int) -> int:
        """Return where the block after a position ends, and remember it.

        A learner that learns blocks asks for the next one here, so that it gets the same blocks again if it has to start from an
        earlier position. The end is ``after`` if nothing more is known.

        Args:
            learner: the name of the learner.
            after: the position at which the block before ended.
            limit: the largest number of rounds in a block.
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
        """Log a decision, and return it as it is stored.

        A decision with this id that has the same inputs and mask is a repeated call: nothing is stored, and the decision of the
        first call is returned, whose action counts. A reward that has come before its decision is joined now.

        Args:
            id: the name under which the reward will come, 1 to 512 bytes.
            inputs: what the policy's ``select`` took for one decision: arms ``(K, d)``, a context ``(d)`` or raw inputs. For a
                policy on features, the chosen arm's alone, ``(d)``, will do to learn, but not to evaluate other policies.
            action: the chosen arm, as the policy's ``select`` and ``step`` call it: an integer of at least 0.
            probability: probability with which it was chosen, in (0, 1]; ``policy.select_with_probability`` returns it.
            mask: arms that were available, ``(K)``, bool.
            action_ids: ids of the K arms, ``policy.action_ids`` of a policy whose arms come and go. The log keeps a mask with an
                entry for each id. None if arm k of the mask has the id k.
            encoder: version of the encoder that computed ``inputs``, if one did.
            time: seconds since 1970; now if None. Windows are measured by a clock that jumps of the wall clock do not move, as
                long as no times are given.

        Raises:
            TypeError, ValueError: an argument is wrong.
            ConflictError: the id stands for a decision with other inputs or another mask.
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

        Returns what :meth:`decide` returns for each of them, or the :class:`ConflictError` that it raises. The number of a
        given :class:`Decision` is ignored, and a time of None is now.
        """
        return self.write(decisions)[0]

    def reward(self, id: str, value: float | Tensor, *, time: float | None = None) -> str:
        """Join a reward to its decision, and return what became of it.

        - ``"joined"``: the reward counts. With ``hold``, :meth:`read` gives it when the window is over.
        - ``"duplicate"``: the decision has a reward; this one is counted and ignored.
        - ``"late"``: the window was over; the default counts, and this reward is counted and ignored.
        - ``"unknown"``: no decision has this id. The reward is kept aside, and is joined if the decision comes later.

        Args:
            id: the name of the decision.
            value: a finite number.
            time: when the reward became known, in seconds since 1970; now if None.

        Raises:
            TypeError, ValueError: an argument is wrong.
            LogStorageError: the log could not be written.
        """
        return self.reward_many([(id, value)], time=time)[0]

    def reward_many(self, rewards: Iterable[tuple[str, float | Tensor]], *, time: float | None = None) -> list[str]:
        """Join rewards, pairs of id and value, in one transaction; see :meth:`reward`.

        Where there is a window, ``time`` is to be that of the rewards: with a later one, those of old decisions are late.
        """
        return self.write((), rewards, time=time)[1]


def pages(read: Callable[..., Any], key: str, size: int, last: int | None = None) -> Iterator[list[Any]]:
    """Read the pages of a log, up to the entry with key ``last``, if given.

    Args:
        read: ``log.decisions`` with the key "number", or ``log.read`` with the key "position".
        key: attribute of an entry by which the log is read on.
        size: the most entries of a page.
        last: the last number or position to yield.
    """
    after = 0
    while page := list(read(after=after, limit=size)):
        after = getattr(page[-1], key)
        yield page if last is None else [one for one in page if getattr(one, key) <= last]
        if last is not None and after >= last:
            return
