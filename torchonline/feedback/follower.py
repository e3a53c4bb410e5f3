"""Learner that follows a feedback log."""

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

# Number of rounds per read, and number of refusals to keep.
ROUNDS_AT_ONCE, REFUSALS = 1000, 100


class Follower:
    """Single writer that learns from a log and saves state and position together.

    It starts from the snapshot, if there is one. After a crash it learns the rounds since its last snapshot again: no round is
    lost, and none is learnt twice. The state then equals, bit for bit, the state of an uninterrupted learner with the same
    ``blocks`` and ``name``, on the same kind of processor and with the same number of threads.

    A private learner continues with fresh noise, and its ledger counts one more run from the snapshot on, see docs/privacy.md.
    The ledger of a snapshot covers the publication of snapshots only. So decide from snapshots, not from the follower's learner,
    whose steps since the last snapshot are lost in a crash.

    A round that the policy refuses, for example because its reward is out of the link's range or its arm was removed, is left out
    and counted. So is a round whose features come from another encoder.

    A damaged row is never learnt. :meth:`advance` learns the rounds before it, then raises a :class:`DamagedRowError` that names
    position and column. Repair the row, or skip it: with ``skip_damaged``, it counts as a refused round, with the reason.

    Args:
        policy: a module with ``step``: a policy, arms with separate models, a head or a private bandit, without a batch shape.
        log: the log.
        path: file of the snapshots. A ``.lock`` file beside it is locked for the lifetime of the follower.
        blocks: whether to learn all known rounds at once, by ``learn``, instead of one by one, by ``step``. The log stores where
            the blocks ended. A round costs less in a block, see docs/blocks.md. If the rounds of a block differ in shape, or one
            is refused, they are learnt one by one.
        encoder: version of the encoder whose features fit the policy; None if logged inputs are raw.
        name: name of the learner in the log, for ``blocks``.
        skip_damaged: whether to continue after damaged rows.

    Raises:
        BlockingIOError: another process follows the log to the same snapshot.
        ValueError: the snapshot belongs to another log or encoder, or the log has lost or replaced the snapshot's last round.

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
        self._is_whole = True  # whether position and state belong together
        if blocks and not hasattr(policy, "learn"):
            raise ValueError(f"blocks: expected False for {type(policy).__name__}, which has no learn, got True")
        self._lock = _locked(self.path.with_name(self.path.name + ".lock"))
        try:
            self.snapshot = self._start()
            if self.path.exists() and private_learners(policy):
                self.save()  # book the run before it takes a step
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
                f"encoder: expected {snapshot.encoder!r}, as in the snapshot, got {self.encoder!r}, which needs a new snapshot"
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
        if last and snapshot.last != last[0].id:  # the log is an older copy that has grown since
            raise ValueError(
                f"log: expected {snapshot.last!r} at position {snapshot.position}, as in the snapshot, got {last[0].id!r}"
            )
        return snapshot._replace(encoder=self.encoder)

    @property
    def position(self) -> int:
        """The last position read."""
        return self.snapshot.position

    def advance(self, limit: int = ROUNDS_AT_ONCE) -> int:
        """Learn known rounds. Return the number of rounds read.

        The call first closes decisions whose window is over, then reads at most ``limit`` rounds. Some errors are not refusals:
        a private learner's budget is spent, or an encoder gets inputs of another shape. Such an error is raised with a note of
        the position after the rounds before it are learnt. Without ``skip_damaged``, so is a DamagedRowError.
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
        except Exception as error:  # the failed step has not changed the state
            error.add_note(f"log: while learning positions {part[0].position} to {_end_of(part[-1])}")
            failure = error
        self._is_whole = True
        if failure is not None:
            raise failure
        return len(rounds)

    def save(self) -> None:
        """Save state and position.

        Raises:
            OSError: the file could not be written. The old snapshot is unchanged, and the learner may continue.
            RuntimeError: a call of :meth:`advance` was interrupted. The state may be ahead of the position; start a new follower
                from the last snapshot.
        """
        if not self._is_whole:
            raise RuntimeError(
                "save: expected a follower whose advance() has returned, got one with an interrupted advance()"
            )
        save_snapshot(self.path, self.policy, self.snapshot)

    def close(self) -> None:
        """Release the lock, so that another process can follow. This does not save."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, after: int, limit: int) -> list[Feedback | DamagedRowError]:
        """Return rows of the log, or all rows of a block, with skipped damage as entries."""
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
        """Learn rows at once. Return the facts about the new state."""
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
        """Learn rounds. Return positions and reasons of refusals."""
        try:
            rows = [self._arguments(entry) for entry in rounds]
            if len({tuple(part.shape for part in row if part is not None) for row in rows}) > 1:
                raise ValueError("inputs: expected one shape in a block, got several")
            if len(rows) == 1:
                self.policy.step(*rows[0])
            elif rows:
                columns = zip(*rows, strict=True)  # inputs are None if the arms are fixed
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
    """Learn from a log and save snapshots, once or continuously.

    Without ``stop``, the call learns the known rounds, saves and returns. With ``stop``, it keeps learning new rounds until
    ``stop()`` is True. Failed writes of a snapshot, for example because the disk is full, are retried until the end. So are
    failed reads of the log, for example while its server restarts.

    Args:
        policy: the learner, see :class:`Follower`.
        log: the log.
        path: file of the snapshots.
        every: seconds between snapshots, above 0.
        poll: seconds between reads of a log without new rounds, above 0.
        limit: maximum number of rounds to read at once, which must fit in memory.
        stop: returns whether to stop, for example ``threading.Event().is_set``.
        on_save: called with the follower after each snapshot.
        **options: keyword arguments of :class:`Follower`.

    Returns:
        The facts in the last snapshot.

    Raises:
        OSError: the last snapshot could not be written.
        LogStorageError: the log could not be read at the end.
        DamagedRowError: a row of the log is damaged, and ``skip_damaged`` is False.
        Exception: an error of the learner other than a refusal. The rounds learnt before it are saved.

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
            except LogStorageError as error:  # nothing was learnt in this call
                if is_last or error.is_damage:
                    raise
                found = 0
            except Exception:  # keep the rounds learnt before the error
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
    """Return the function from a logged round to the arguments of a policy's step."""
    learner = next((part for part in policy.modules() if isinstance(part, Learner)), None)
    if learner is not None and learner.batch_shape:
        raise ValueError(f"policy: expected no batch shape, got {learner.batch_shape}")
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
        if policy.has_arm_inputs and inputs.dim() == policy.item_dims - 1:  # only the chosen arm was logged
            return inputs.unsqueeze(0), torch.zeros_like(action), reward
        if policy.has_arm_inputs and not 0 <= entry.action < len(inputs):
            raise ValueError(f"action: expected one of {len(inputs)} arms, got {entry.action}")
        return *policy._alone(inputs, policy._placed(action)), reward

    return arguments


def _end_of(row: Feedback | DamagedRowError) -> int:
    """Return the last position of a row or of damage."""
    return row.last if isinstance(row, DamagedRowError) else row.position


def _locked(path: Path) -> int | None:
    """Return a locked file, or None on Windows.

    Closing it, or the end of the process, unlocks it.
    """
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
        who = f"process {owner}, which has locked {path}" if owner.isdigit() else f"a process that has locked {path}"
        raise BlockingIOError(f"path: expected no other follower, got {who}") from error
    os.ftruncate(file, 0)
    os.write(file, str(os.getpid()).encode())
    return file
