"""One learner that follows a feedback log."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchonline.core.checks import instance_of, positive, positive_integer
from torchonline.core.learner import Learner
from torchonline.core.messages import counted
from torchonline.feedback.log import FeedbackLog, LogStorageError
from torchonline.feedback.records import DamagedRowError, Feedback
from torchonline.feedback.snapshots import Snapshot, load_snapshot, save_snapshot, unfinished
from torchonline.policies.policy import Policy
from torchonline.privacy.composition import private_learners

# Rounds that are read in one go, and refusals that are remembered.
ROUNDS_AT_ONCE, REFUSALS = 1000, 100


class Follower:
    """The one writer that learns from a log and saves state and position together.

    It starts from the snapshot, if there is one. After a crash it learns again what came after its last snapshot: no round is
    lost and none is learnt twice. The state is then, bit for bit, that of a learner which was never interrupted, with the same
    ``blocks`` and ``name``, on the same kind of processor and with the same number of threads.

    A private learner goes on with fresh noise, and its ledger counts one more run from the snapshot on, see docs/privacy.md. The
    ledger of a snapshot is about what the snapshots have published. So decide from snapshots, not from the follower's learner,
    whose steps since the last one are lost in a crash.

    A round that the policy refuses, because its reward is out of the link's range or its arm was removed for example, is left out
    and counted. So is one whose features another encoder computed.

    A damaged row is never learnt. :meth:`advance` raises a :class:`DamagedRowError`, which names position and column, after it
    has learnt what comes before. Mend the row, or skip it: with ``skip_damaged``, it counts as a refused round, with the reason.

    Args:
        policy: whatever has ``step``: a policy, arms with a model each, a head, a private bandit. Without a batch shape.
        log: the log.
        path: file of the snapshots. A file beside it, ``.lock``, is locked while the follower lives.
        blocks: whether to learn what is known at once, by ``learn``, instead of one round after another, by ``step``. The log
            remembers where the blocks ended. A round costs less in a block, see docs/blocks.md; rounds of several shapes, or of
            which one is refused, are learnt one after another.
        encoder: version whose features fit the policy; None where logged inputs are raw.
        name: name of the learner in the log, for ``blocks``.
        skip_damaged: whether to go on after damaged rows.

    Raises:
        BlockingIOError: another process follows the log to the same snapshot.
        ValueError: the snapshot is of another log or encoder, or the log has lost or replaced its last round.

    Example:
        >>> from torchonline.feedback import DecisionLog
        >>> log, policy = DecisionLog(":memory:"), OFUL(2)
        >>> _ = log.decide("visitor", torch.eye(2), 0, 1.0), log.reward("visitor", 1.0)
        >>> with Follower(policy, log, folder / "policy.pt") as follower:
        ...     follower.advance()
        1
        >>> policy.estimator.rounds
        tensor(1)
    """

    def __init__(
        self,
        policy: nn.Module,
        log: FeedbackLog,
        path: str | Path,
        *,
        blocks: bool = False,
        encoder: str | None = None,
        name: str = "learner",
        skip_damaged: bool = False,
    ) -> None:
        self.policy = instance_of("policy", policy, nn.Module, "an nn.Module with step")
        if not callable(getattr(policy, "step", None)):
            raise TypeError(f"policy: expected a module with step, got {type(policy).__name__}")
        self.log, self.path = instance_of("log", log, FeedbackLog, "a FeedbackLog"), Path(os.path.realpath(path))
        self.blocks: bool = instance_of("blocks", blocks, bool, "True or False")
        self.encoder: str | None = None if encoder is None else instance_of("encoder", encoder, str, "a string or None")
        self.name: str = instance_of("name", name, str, "a string")
        self.skip_damaged: bool = instance_of("skip_damaged", skip_damaged, bool, "True or False")
        self._arguments = _arguments_of(policy)
        self._is_whole = True  # whether the position is that of the state
        if blocks and not hasattr(policy, "learn"):
            raise ValueError(f"blocks: expected False for {type(policy).__name__}, which has no learn, got True")
        self._lock = _locked(self.path.with_name(self.path.name + ".lock"))
        try:
            self.snapshot = self._start()
            if self.path.exists() and private_learners(policy):
                self.save()  # books the run before it takes a step
        except BaseException:
            self.close()
            raise

    def _start(self) -> Snapshot:
        """Load the snapshot, if there is one."""
        unfinished(self.path).unlink(missing_ok=True)
        if not self.path.exists():
            return Snapshot(log=self.log.name, encoder=self.encoder)
        snapshot = load_snapshot(self.path, self.policy)
        if snapshot.log != self.log.name:
            raise ValueError(
                f"log: expected the log {snapshot.log} of the snapshot {self.path}, got the log {self.log.name}"
            )
        if snapshot.position and snapshot.encoder != self.encoder:
            raise ValueError(
                f"encoder: expected {snapshot.encoder!r}, as in the snapshot, got {self.encoder!r}; it needs a new one"
            )
        try:
            last = self.log.read(snapshot.position - 1, 1) if snapshot.position else []
        except DamagedRowError:  # skipped before, or damaged since it was learnt
            return snapshot._replace(encoder=self.encoder)
        if snapshot.position and not last:
            known = self.log.counts()["known"]
            raise ValueError(
                f"log: expected at least {counted(snapshot.position, 'known round')}, as in the snapshot, got {known}"
            )
        if last and snapshot.last != last[0].id:  # an older copy that has grown since
            raise ValueError(
                f"log: expected {snapshot.last!r} at position {snapshot.position}, as in the snapshot, got {last[0].id!r}"
            )
        return snapshot._replace(encoder=self.encoder)

    @property
    def position(self) -> int:
        """The last position that was read."""
        return self.snapshot.position

    def advance(self, limit: int = ROUNDS_AT_ONCE) -> int:
        """Learn from what is known, and return how many rounds were read.

        The call reads ``limit`` rounds at most. First it closes decisions whose window is over. An error that is no refusal, such
        as that of a private learner whose budget is spent, or of an encoder that gets inputs of another shape, is raised with
        a note of the position; the rounds before it are learnt. So is a DamagedRowError without ``skip_damaged``.
        """
        self.log.close_due()
        before = self.position
        if self.blocks:
            limit = self.log.block_end(self.name, before, limit) - before
            if limit == 0:
                return 0
        rounds = self._read(before, limit)
        parts = [rounds] if self.blocks else [[entry] for entry in rounds]
        failure: Exception | None = None
        self._is_whole = False
        try:
            for part in parts:
                self.snapshot = self._learnt(part)
        except Exception as error:  # the step of this part has left the state as it was
            error.add_note(f"log: while learning positions {part[0].position} to {_end_of(part[-1])}")
            failure = error
        self._is_whole = True
        if failure is not None:
            raise failure
        return len(rounds)

    def save(self) -> None:
        """Save state and position.

        Raises:
            OSError: the file could not be written. The old snapshot is as it was, and the learner may go on.
            RuntimeError: a call of :meth:`advance` was interrupted. The state may be ahead of the position; a new follower starts
                from the last snapshot.
        """
        if not self._is_whole:
            raise RuntimeError(
                "save: expected a follower whose advance() has ended, got one that was interrupted in it"
            )
        save_snapshot(self.path, self.policy, self.snapshot)

    def close(self) -> None:
        """Let another process follow. Saves nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, after: int, limit: int) -> list[Feedback | DamagedRowError]:
        """Return rows of the log; of a block, all of them. Damage that is skipped is one."""
        rows: list[Feedback | DamagedRowError] = []
        end = after + limit
        while after < end:
            try:
                rows += self.log.read(after, end - after)
            except DamagedRowError as error:
                if not self.skip_damaged or error.last <= after:
                    raise
                rows.append(error)
            if not rows or _end_of(rows[-1]) == after:
                break
            after = _end_of(rows[-1])
            if not self.blocks:  # the next call reads on
                break
        return rows

    def _learnt(self, rows: Sequence[Feedback | DamagedRowError]) -> Snapshot:
        """Learn from rows at once, and return the facts about the new state."""
        last = self.snapshot
        if not rows:
            return last
        damaged = [row for row in rows if isinstance(row, DamagedRowError)]
        rounds = [row for row in rows if not isinstance(row, DamagedRowError)]
        fitting = [entry for entry in rounds if self.encoder is None or entry.encoder == self.encoder]
        refusals = self._learn(fitting)
        told = sorted([*refusals, *((row.position, str(row)) for row in damaged)])
        return last._replace(
            position=_end_of(rows[-1]),
            last=rows[-1].id if isinstance(rows[-1], Feedback) else "",
            learnt=last.learnt + len(fitting) - len(refusals),
            skipped=last.skipped + len(rounds) - len(fitting),
            refused=last.refused + len(refusals) + sum(row.last - row.position + 1 for row in damaged),
            refusals=(*last.refusals, *told)[-REFUSALS:],
        )

    def _learn(self, rounds: Sequence[Feedback]) -> list[tuple[int, str]]:
        """Learn from rounds, and return positions and reasons of refusals."""
        try:
            rows = [self._arguments(entry) for entry in rounds]
            if len({tuple(part.shape for part in row if part is not None) for row in rows}) > 1:
                raise ValueError("inputs: expected one shape in a block, got several")
            if len(rows) == 1:
                self.policy.step(*rows[0])
            elif rows:
                columns = zip(*rows, strict=True)  # without inputs, where the arms are fixed
                self.policy.learn(*(None if column[0] is None else torch.stack(column) for column in columns))
        except (ValueError, TypeError) as error:
            if len(rounds) == 1:
                return [(rounds[0].position, str(error))]
            return [refusal for entry in rounds for refusal in self._learn([entry])]
        return []


def follow(
    policy: nn.Module,
    log: FeedbackLog,
    path: str | Path,
    *,
    every: float = 1.0,
    poll: float = 0.02,
    limit: int = ROUNDS_AT_ONCE,
    stop: Callable[[], bool] | None = None,
    on_save: Callable[[Follower], None] | None = None,
    **options: Any,
) -> Snapshot:
    """Learn from a log, now or for as long as it grows, and save snapshots.

    Without ``stop``, the call learns what is known, saves and returns. With it, the call learns what comes until ``stop()`` is
    True. A snapshot that cannot be written, because the disk is full for example, is tried again until the end, and so is a log
    that cannot be read, because its server restarts.

    Args:
        policy: the learner, see :class:`Follower`.
        log: the log.
        path: file of the snapshots.
        every: seconds between snapshots, above 0.
        poll: seconds between looks at a log in which nothing is new, above 0.
        limit: the most rounds to read at once, which must fit in memory.
        stop: whether to stop; ``threading.Event().is_set`` for example.
        on_save: called with the follower after each snapshot.
        **options: keyword arguments of :class:`Follower`.

    Returns:
        What the last snapshot says.

    Raises:
        OSError: the last snapshot could not be written.
        LogStorageError: the log could not be read at the end.
        DamagedRowError: a row of the log is damaged, and ``skip_damaged`` is False.
        Exception: an error of the learner that is no refusal. What was learnt before it is saved.

    Example:
        >>> from torchonline.feedback import DecisionLog
        >>> log = DecisionLog(":memory:")
        >>> _ = log.decide("visitor", torch.eye(2), 0, 1.0), log.reward("visitor", 1.0)
        >>> snapshot = follow(OFUL(2), log, folder / "policy.pt")
        >>> snapshot.position, load_snapshot(folder / "policy.pt", OFUL(2)).learnt
        (1, 1)
    """
    every, poll, limit = positive("every", every), positive("poll", poll), positive_integer("limit", limit)
    with Follower(policy, log, path, **options) as follower:
        saved, due = -1, time.monotonic() + every
        while True:
            is_last = stop is None or stop()
            try:
                found = follower.advance(limit)
            except LogStorageError as error:  # before anything was learnt
                if is_last or error.is_damage:
                    raise
                found = 0
            except Exception:  # what was learnt before it is not lost
                follower.save()
                raise
            is_last = is_last and (found == 0 or stop is not None)
            if is_last or (time.monotonic() >= due and follower.position != saved):
                try:
                    follower.save()
                except OSError:
                    if is_last:
                        raise
                else:
                    saved = follower.position
                    if on_save is not None:
                        on_save(follower)
                due = time.monotonic() + every
            if is_last:
                return follower.snapshot
            if found == 0 and stop is not None:
                time.sleep(poll)


def _arguments_of(policy: Any) -> Callable[[Feedback], tuple[Tensor, ...]]:
    """Return the function from a logged round to arguments of a policy's ``step``."""
    learner = next((part for part in policy.modules() if isinstance(part, Learner)), None)
    if learner is not None and learner.batch_shape:
        raise ValueError(f"policy: expected one without a batch shape, got {learner.batch_shape}")
    buffer = next(
        (buffer for buffer in policy.buffers() if buffer.is_floating_point()), torch.zeros((), dtype=torch.float64)
    )

    def arguments(entry: Feedback) -> tuple[Any, ...]:
        inputs = entry.inputs.to(buffer.device)
        action = torch.tensor(entry.action, device=buffer.device)
        reward = torch.tensor(entry.reward, dtype=torch.float64, device=buffer.device)
        if not isinstance(policy, Policy):
            return inputs, action, reward
        if not policy.takes_inputs:
            return None, action, reward
        if policy.has_arm_inputs and inputs.dim() == policy.item_dims - 1:  # of the chosen arm alone
            return inputs.unsqueeze(0), torch.zeros_like(action), reward
        if policy.has_arm_inputs and not 0 <= entry.action < len(inputs):
            raise ValueError(f"action: expected one of {len(inputs)} arms, got {entry.action}")
        return *policy._alone(inputs, policy._placed(action)), reward

    return arguments


def _end_of(row: Feedback | DamagedRowError) -> int:
    """Return the last position of a row, or of damage."""
    return row.last if isinstance(row, DamagedRowError) else row.position


def _locked(path: Path) -> int | None:
    """Return a locked file. Closing it, or the end of the process, unlocks it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(file, 20).decode("ascii", "replace").strip()
        os.close(file)
        who = f"process {owner}, which has locked {path}" if owner.isdigit() else f"one that has locked {path}"
        raise BlockingIOError(f"path: expected no other follower, got {who}") from error
    os.ftruncate(file, 0)
    os.write(file, str(os.getpid()).encode())
    return file
