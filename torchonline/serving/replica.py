"""Replica: decides from the last snapshot and logs its decisions."""

import asyncio
import io
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.files import sealed
from torchonline.core.messages import listed
from torchonline.export import to_torchscript
from torchonline.feedback import DamagedRowError, Decision, FeedbackLog, LogStorageError, Snapshot, load_snapshot
from torchonline.feedback.records import checked_id, mask_by_id
from torchonline.policies.policy import Policy
from torchonline.serving.settings import ServiceSettings


class OverloadError(Exception):
    """Error of an overloaded service. The call had no effect and may be repeated."""


class Request(NamedTuple):
    """Checked request for a decision.

    Attributes:
        id: id of the decision.
        inputs: inputs of the policy.
        mask: which arms are available, ``(K)``.
        is_ranked: whether the answer is a ``Ranking``.
    """

    id: str
    inputs: Tensor
    mask: Tensor
    is_ranked: bool = False


class Ranking(NamedTuple):
    """Decision with the probabilities of all arms.

    Attributes:
        decision: the logged decision.
        probabilities: the probability of each arm in the present state, K numbers.
    """

    decision: Decision
    probabilities: list[float]


class Replica:
    """Policy of a process, and its log.

    Concurrent decisions are made in one call and logged in one transaction.

    If the policy can open decisions (:meth:`Policy.open`), as :func:`torchonline.bandit` can, the replica opens each logged
    decision on its own copy of the policy. So the next choices differ while rewards are pending. After a newer snapshot, it opens
    the latest 1000 decisions, of all replicas, that the snapshot has not learnt. The learner opens no decision, so snapshots do
    not depend on this.

    Args:
        settings: settings of the service.
        log: log of the decisions and rewards.
    """

    def __init__(self, settings: ServiceSettings, log: FeedbackLog) -> None:
        self.settings, self.log = settings, log
        self.policy = settings.make_policy()
        self.snapshot, self.loaded_at = Snapshot(), 0.0
        self._version: tuple[int, float] | None = None
        self._opens = isinstance(self.policy, Policy) and self.policy._why_not_open() is None
        # The number of the last decision that is open or learnt here. A repeated call returns an older one.
        self._last = 0
        self._lock = threading.Lock()
        # Processes with the same seed would draw the same actions.
        torch.seed()

    def refresh(self) -> None:
        """Load the snapshot if there is a newer one."""
        try:
            facts = self.settings.snapshot.stat()
            version = (facts.st_ino, facts.st_mtime)
        except FileNotFoundError:  # nothing has been learnt yet
            if self._version is not None:
                return
            version = (0, 0.0)
        if version != self._version:
            with self._lock:
                if version != (0, 0.0):
                    self.snapshot, self.loaded_at = load_snapshot(self.settings.snapshot, self.policy), time.time()
                self._version = version
                self._open_waiting()

    def _open_waiting(self) -> None:
        """Open the decisions of the log that the snapshot has not learnt."""
        if self._opens:
            try:
                waiting = self.log.waiting(self.snapshot.position)
            except (LogStorageError, DamagedRowError):  # decide without them until the next snapshot
                waiting = []
            self._last = 0
            self._open(waiting)

    def _open(self, decisions: Sequence[Decision]) -> None:
        """Open logged decisions of this encoder, unless they are open."""
        new = [one for one in decisions if one.number > self._last and one.encoder == self.settings.encoder]
        if self._opens and new:
            self._last = max(one.number for one in new)
            try:
                inputs, actions = torch.stack([one.inputs for one in new]), torch.tensor([one.action for one in new])
                self.policy.open(inputs, actions)
            except (ValueError, RuntimeError):  # one cannot be opened, such as that of a removed arm; or shapes differ
                for one in new:
                    with suppress(ValueError):
                        self.policy.open(one.inputs, one.action)

    def checked(self, id: str | None, context: Any, mask: Any, actions: Any = None) -> Request:
        """Return a request with tensors, or raise a ValueError that names the field.

        Args:
            id: id of the decision, or None for a new one.
            context: numbers, or values by name.
            mask: whether each arm is available, or None.
            actions: the arms, if each has its own features; else names of the available actions, or None.
        """
        settings = self.settings
        if settings.has_arms:
            rows = actions if settings.columns is None else [{**(context or {}), **row} for row in actions]
            inputs, count = self._numbers("actions", rows), len(actions)
        else:
            inputs, count = self._numbers("context", context), settings.actions
        available = torch.ones(count, dtype=torch.bool)
        if mask is not None:
            if len(mask) != count or not any(mask):
                raise ValueError(f"mask: expected {count} booleans, at least one of them true")
            available = torch.tensor(mask)
        if actions is not None and not settings.has_arms:
            known = settings.names
            if unknown := [name for name in actions if name not in known]:
                raise ValueError(f"actions: expected names among {listed(known)}, got {listed(unknown)}")
            available &= torch.tensor([name in actions for name in known])
            if not bool(available.any()):
                raise ValueError("actions: expected an available action, got none under the mask")
        return Request(uuid.uuid4().hex if id is None else checked_id(id), inputs, available)

    def _numbers(self, name: str, values: Any) -> Tensor:
        """Return the numbers of a context, or of arms, or raise."""
        settings = self.settings
        if settings.columns is not None:
            try:
                found = settings.columns.lookup(values)
            except ValueError as error:
                raise ValueError(f"{name}: {str(error).removeprefix('rows: ')}") from error
            if bool((found[..., settings.bounded].abs() > settings.largest).any()):  # NaN is a gap
                raise ValueError(f"{name}: expected numbers up to {settings.largest:g}")
            return found
        try:
            found = torch.tensor(values, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            found = torch.zeros(0)
        is_right = found.dim() == 1 + settings.has_arms and found.size(-1) == settings.dim
        if not is_right or not bool((found.abs() <= settings.largest).all()):  # also refuses NaN
            raise ValueError(f"{name}: expected {settings.dim} finite numbers up to {settings.largest:g}")
        return found.to(settings.dtype)

    def name_of(self, action: int) -> str | None:
        """Return the name of an action, or None if it has none."""
        return str(self.policy.name_of(action)) if self.settings.names else None

    def answer(self, calls: Sequence[Request | tuple[str, float]]) -> list[Any]:
        """Answer many requests and rewards.

        They are decided from one state and logged in one transaction. A decision is on the disk before it is returned. A ranked
        request gets a ``Ranking``.
        """
        requests = [call for call in calls if isinstance(call, Request)]
        rewards = [call for call in calls if not isinstance(call, Request)]
        with self._lock:
            chosen = self.decided(requests)
            shares = [
                self.policy.probabilities(one.inputs, one.mask).tolist() if one.is_ranked else None for one in requests
            ]
            decisions, outcomes = self.log.write(chosen, rewards)
            self._open([one for one in decisions if isinstance(one, Decision)])
        answers = [
            Ranking(one, share) if isinstance(one, Decision) and share is not None else one
            for one, share in zip(decisions, shares, strict=True)
        ]
        found, joined = iter(answers), iter(outcomes)
        return [next(found) if isinstance(call, Request) else next(joined) for call in calls]

    def decided(self, requests: Sequence[Request]) -> list[Decision]:
        """Decide many requests in one call of the policy."""
        if not requests:
            return []
        encoder, arms = self.settings.encoder, self.policy.with_ids()
        ids = [] if arms is None or arms.ids_so_far == len(arms.action_ids) else arms.action_ids
        # The requests of one call have as many arms.
        groups: dict[Any, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(request.inputs.shape, []).append(i)
        found: dict[int, Decision] = {}
        for places in groups.values():
            inputs, mask = (torch.stack([getattr(requests[i], name) for i in places]) for name in ("inputs", "mask"))
            actions, probabilities = self.policy.select_with_probability(inputs, mask)
            for i, action, p in zip(places, actions.tolist(), probabilities.tolist(), strict=True):
                request = requests[i]
                # The log keeps masks by id.
                available = mask_by_id(request.mask, ids) if ids else request.mask
                found[i] = Decision(request.id, request.inputs, action, p, available, encoder)
        return [found[i] for i in range(len(requests))]

    def exported(self) -> bytes:
        """Return the newest snapshot's policy as a TorchScript file with its SHA-256.

        No decision is open in it.
        """
        file, policy = io.BytesIO(), self.settings.make_policy()
        if self.settings.snapshot.exists():
            load_snapshot(self.settings.snapshot, policy)
        sizes = (2, self.settings.dim) if self.settings.has_arms else (self.settings.dim,)
        example = torch.zeros(sizes, dtype=self.settings.dtype)
        torch.jit.save(to_torchscript(policy, example=example), file)
        return sealed(file.getvalue())


class Batcher:
    """Batcher that collects the calls of requests and runs them in a thread.

    The next batch collects while the present one runs. So batches grow with the load, and no call waits for a batch to fill.

    Args:
        call: runs the calls of a batch.
        largest: maximum number of calls in a batch.
        most: maximum number of waiting calls. A further call raises an OverloadError.
    """

    def __init__(self, call: Callable[[Sequence[Any]], Sequence[Any]], largest: int = 256, *, most: int = 1000) -> None:
        self.call, self.largest, self.most = call, largest, most
        self.waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self.thread = ThreadPoolExecutor(1)
        self.running: asyncio.Task[None] | None = None

    async def __call__(self, item: Any) -> Any:
        if len(self.waiting) >= self.most:
            raise OverloadError(
                f"expected at most {self.most} waiting calls; nothing was stored, and the call may be repeated"
            )
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((item, future))
        if self.running is None:
            self.running = asyncio.create_task(self._run())
        found = await future
        if isinstance(found, Exception):
            raise found
        return found

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self.waiting:
            batch, self.waiting = self.waiting[: self.largest], self.waiting[self.largest :]
            results: Sequence[Any]
            try:
                results = await loop.run_in_executor(self.thread, self.call, [item for item, _ in batch])
            except LogStorageError as error:
                results = [error] * len(batch)
            except Exception:  # one call may have failed for all: the others are answered without it
                results = [await self._alone(item) for item, _ in batch]
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():  # the client may have disconnected
                    future.set_result(result)
        self.running = None

    async def _alone(self, item: Any) -> Any:
        """Run one call. Return its result, or its error."""
        try:
            return (await asyncio.get_running_loop().run_in_executor(self.thread, self.call, [item]))[0]
        except Exception as error:
            return error

    async def drain(self) -> None:
        """Wait for the calls under way."""
        if self.running is not None:
            await self.running
        self.thread.shutdown()


class Watcher(threading.Thread):
    """Thread that loads newer snapshots until it is stopped."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(daemon=True)
        self.replica, self.stopped, self.error = replica, threading.Event(), ""

    def run(self) -> None:
        while not self.stopped.wait(self.replica.settings.every / 5):
            try:
                self.replica.refresh()
                self.error = ""
            except Exception as error:  # for example a file of another policy; keep the old state
                if str(error) != self.error:
                    print(f"replica: the newest snapshot cannot be loaded: {error}", file=sys.stderr, flush=True)
                self.error = str(error) or type(error).__name__
