"""Replica: decides from the last snapshot and logs its decisions."""

import asyncio
import io
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchonline.core.files import sealed
from torchonline.export import to_torchscript
from torchonline.feedback import Decision, FeedbackLog, Snapshot, load_snapshot
from torchonline.feedback.records import checked_id, mask_by_id
from torchonline.serving.settings import ServiceSettings


class OverloadError(Exception):
    """Error of an overloaded service. The call had no effect and may be repeated."""


class Request(NamedTuple):
    """Checked request for a decision."""

    id: str
    context: Tensor
    mask: Tensor


class Replica:
    """Policy of a process, and its log.

    Concurrent decisions are made in one call and logged in one transaction.

    Args:
        settings: settings of the service.
        log: log of the decisions and rewards.
    """

    def __init__(self, settings: ServiceSettings, log: FeedbackLog) -> None:
        self.settings, self.log = settings, log
        self.policy = settings.make_policy()
        self.snapshot, self.loaded_at, self._version = Snapshot(), 0.0, (0, 0.0)
        # Processes with the same seed would draw the same actions.
        torch.seed()

    def refresh(self) -> None:
        """Load the snapshot if there is a newer one."""
        try:
            facts = self.settings.snapshot.stat()
        except FileNotFoundError:  # nothing has been learnt yet
            return
        version = (facts.st_ino, facts.st_mtime)
        if version != self._version:
            self.snapshot = load_snapshot(self.settings.snapshot, self.policy)
            self.loaded_at, self._version = time.time(), version

    def checked(self, id: str | None, context: Any, mask: Any) -> Request:
        """Return a request with tensors, or raise a ValueError that names the field."""
        settings = self.settings
        try:
            values = torch.tensor(context, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            values = torch.zeros(0)
        if values.shape != (settings.dim,) or not bool((values.abs() <= settings.largest).all()):  # also refuses NaN
            raise ValueError(f"context: expected {settings.dim} finite numbers up to {settings.largest:g}")
        available = torch.ones(settings.actions, dtype=torch.bool)
        if mask is not None:
            if len(mask) != settings.actions or not any(mask):
                raise ValueError(f"mask: expected {settings.actions} booleans, at least one of them true")
            available = torch.tensor(mask)
        return Request(uuid.uuid4().hex if id is None else checked_id(id), values.to(settings.dtype), available)

    def answer(self, calls: Sequence[Request | tuple[str, float]]) -> list[Any]:
        """Answer many requests and rewards.

        They are decided from one state and logged in one transaction. A decision is on the disk before it is returned.
        """
        requests = [call for call in calls if isinstance(call, Request)]
        rewards = [call for call in calls if not isinstance(call, Request)]
        decisions, outcomes = self.log.write(self.decided(requests), rewards)
        found, joined = iter(decisions), iter(outcomes)
        return [next(found) if isinstance(call, Request) else next(joined) for call in calls]

    def decided(self, requests: Sequence[Request]) -> list[Decision]:
        """Decide many requests in one call of the policy."""
        if not requests:
            return []
        contexts = torch.stack([request.context for request in requests])
        actions, probabilities = self.policy.select_with_probability(
            contexts, torch.stack([request.mask for request in requests])
        )
        encoder, arms = self.settings.encoder, self.policy.with_ids()
        chosen = zip(requests, actions.tolist(), probabilities.tolist(), strict=True)
        ids = [] if arms is None or arms.ids_so_far == len(arms.action_ids) else arms.action_ids
        # The log keeps masks by id.
        masks = [mask_by_id(r.mask, ids) if ids else r.mask for r in requests]
        return [
            Decision(r.id, r.context, action, p, mask, encoder)
            for (r, action, p), mask in zip(chosen, masks, strict=True)
        ]

    def exported(self) -> bytes:
        """Return the present policy as a TorchScript file with its SHA-256."""
        file = io.BytesIO()
        example = torch.zeros(self.settings.dim, dtype=self.settings.dtype)
        torch.jit.save(to_torchscript(self.policy, example=example), file)
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
            except Exception as error:
                results = [error] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():  # the client may have disconnected
                    future.set_result(result)
        self.running = None

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
