"""The HTTP service: decide, reward, health, metrics and export.

Decisions and rewards are answered after they are on the disk. An id that is sent twice gets the first answer.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt

from torchonline.feedback import ConflictError, LogStorageError
from torchonline.feedback.records import LONGEST_ID, checked_id
from torchonline.serving.replica import Batcher, Replica, Watcher
from torchonline.serving.settings import LARGEST_BODY, ServiceSettings, one_thread

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Number = StrictFloat | StrictInt


class Body(BaseModel):
    """A request without unknown names: a misspelt mask must not be ignored."""

    model_config = ConfigDict(extra="forbid")


class DecideBody(Body):
    """A request for a decision.

    Without an id the service makes one up. With one, a repeated call gets the same answer.
    """

    id: Name | None = None
    context: list[Number]
    mask: list[StrictBool] | None = None


class RewardBody(Body):
    """A reward for a decision."""

    id: Name
    value: Number


class Metrics:
    """What Prometheus reads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        here: dict[str, Any] = {"registry": self.registry}
        self.decisions = Counter("decisions", "Decisions made", ["action"], **here)
        self.rewards = Counter("rewards", "Rewards received", ["outcome"], **here)
        self.refused = Counter("refused", "Requests refused", ["status"], **here)
        times = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
        self.seconds = Histogram("seconds", "Seconds to answer", ["endpoint"], buckets=times, **here)
        self.position = Gauge("snapshot_position", "Position of the snapshot that decides", **here)
        self.not_learnt = Gauge("snapshot_refused", "Rounds that the learner refused", **here)
        self.age = Gauge("snapshot_age_seconds", "Seconds since the snapshot was loaded", **here)
        self.entries = Gauge("log_entries", "Entries of the log", ["kind"], **here)


def create_app(settings: ServiceSettings) -> FastAPI:
    """Return the application of one replica."""
    one_thread()
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        log = settings.open_log()
        replica = Replica(settings, log)
        replica.refresh()
        watcher = Watcher(replica)
        watcher.start()
        app.state.replica, app.state.watcher, app.state.answer = replica, watcher, Batcher(replica.answer)
        app.state.exporting = asyncio.Lock()
        yield
        # What is under way is answered; then the files are closed.
        watcher.stopped.set()
        await app.state.answer.drain()
        log.close()

    app = FastAPI(title="A bandit that learns", lifespan=lifespan)

    @app.post("/decide")
    async def decide(body: DecideBody) -> dict[str, Any]:
        start = time.perf_counter()
        request = app.state.replica.checked(body.id, body.context, body.mask)
        decision = await app.state.answer(request)
        metrics.decisions.labels(decision.action).inc()
        metrics.seconds.labels("decide").observe(time.perf_counter() - start)
        return {"id": decision.id, "action": decision.action, "probability": decision.probability}

    @app.post("/reward")
    async def reward(body: RewardBody) -> dict[str, str]:
        start = time.perf_counter()
        if not settings.lowest <= body.value <= settings.highest:  # no NaN is
            raise ValueError(f"value: expected a number from {settings.lowest} to {settings.highest}")
        outcome = await app.state.answer((checked_id(body.id), float(body.value)))
        metrics.rewards.labels(outcome).inc()
        metrics.seconds.labels("reward").observe(time.perf_counter() - start)
        return {"outcome": outcome}

    @app.get("/health")
    async def health() -> JSONResponse:
        replica, error = app.state.replica, app.state.watcher.error
        facts = {"position": replica.snapshot.position, "encoder": settings.encoder, "error": error}
        return JSONResponse(facts, status_code=503 if error else 200)

    @app.get("/metrics")
    async def read_metrics() -> PlainTextResponse:
        replica = app.state.replica
        metrics.position.set(replica.snapshot.position)
        metrics.not_learnt.set(replica.snapshot.refused)
        metrics.age.set(time.time() - replica.loaded_at if replica.loaded_at else math.inf)
        for kind, count in (await asyncio.to_thread(replica.log.counts)).items():
            metrics.entries.labels(kind).set(count)
        return PlainTextResponse(generate_latest(metrics.registry).decode())

    @app.get("/export")
    async def export() -> Response:
        async with app.state.exporting:  # a file takes seconds
            data = await asyncio.to_thread(app.state.replica.exported)
        return Response(data, media_type="application/octet-stream")

    def refused(status: int, text: str) -> JSONResponse:
        metrics.refused.labels(status).inc()
        # An answer is plain ASCII, whatever was in the request.
        return JSONResponse({"detail": text.encode("ascii", "backslashreplace").decode()}, status_code=status)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return refused(422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")

    @app.exception_handler(ConflictError)
    async def conflict(request: Request, error: ConflictError) -> JSONResponse:
        return refused(409, str(error))

    @app.exception_handler(ValueError)
    async def bad_value(request: Request, error: ValueError) -> JSONResponse:
        return refused(422, str(error))

    @app.exception_handler(LogStorageError)
    async def not_stored(request: Request, error: LogStorageError) -> JSONResponse:
        return refused(507, "the log cannot be written; nothing was stored, and the call may be repeated")

    app.add_middleware(LimitedBody)
    return app


class LimitedBody:
    """Middleware that refuses a body of unknown or too great length unread."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
            if not (length.isdigit() and int(length) <= LARGEST_BODY):
                detail = {"detail": f"body: expected a content-length up to {LARGEST_BODY}"}
                await JSONResponse(detail, status_code=413)(scope, receive, send)
                return
        await self.app(scope, receive, send)
