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
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    ValidationError,
    create_model,
)

from torchonline.feedback import ConflictError, LogStorageError
from torchonline.feedback.records import LONGEST_ID, checked_id
from torchonline.serving.errors import OverloadedError, UnknownIdError
from torchonline.serving.limits import LimitedBody, SharedSecret, answered, overloaded
from torchonline.serving.replica import Batcher, Replica, Watcher
from torchonline.serving.settings import ServiceSettings, one_thread


def short_id(value: str) -> str:
    """Return an id of at most so many bytes, or raise."""
    if len(value.encode(errors="surrogatepass")) > LONGEST_ID:
        raise ValueError(f"expected at most {LONGEST_ID} bytes of UTF-8")
    return value


Name = Annotated[str, Field(min_length=1, max_length=LONGEST_ID), AfterValidator(short_id)]
Number = StrictFloat | StrictInt
# Longer bodies are parsed in a thread.
LONG_BODY = 1 << 10


class Body(BaseModel):
    """A request without unknown names: a misspelt mask must not be ignored."""

    model_config = ConfigDict(extra="forbid")


class RewardBody(Body):
    """A reward for a decision."""

    id: Name
    value: Number


def decide_body(settings: ServiceSettings) -> type[Body]:
    """Return the model of a request for a decision.

    Without an id the service makes one up. With one, a repeated call gets the same answer. Validation ends with the first wrong
    entry of a list.
    """
    context = Annotated[list[Number], Field(min_length=settings.dim, max_length=settings.dim), FailFast()]
    # FailFast cannot be part of a union; the length bounds the errors of a mask.
    mask = Annotated[list[StrictBool], Field(min_length=settings.actions, max_length=settings.actions)]
    return create_model("DecideBody", __base__=Body, id=(Name | None, None), context=context, mask=(mask | None, None))


def described(body: type[Body]) -> dict[str, Any]:
    """Return what OpenAPI says of a request."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": body.model_json_schema()}}}}


async def parsed(body: type[Body], request: Request) -> Any:
    """Return a request's body, or raise a ValueError that names what is wrong first."""

    def parse(data: bytes) -> Any:
        try:
            return body.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, ('body', *first['loc'])))}: {first['msg']}") from None

    data = await request.body()
    return parse(data) if len(data) <= LONG_BODY else await asyncio.to_thread(parse, data)


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
        app.state.replica, app.state.watcher, app.state.answer = (
            replica,
            watcher,
            Batcher(replica.answer, most=settings.most_waiting),
        )
        app.state.exporting = asyncio.Lock()
        yield
        # What is under way is answered; then the files are closed.
        watcher.stopped.set()
        await app.state.answer.drain()
        log.close()

    app = FastAPI(title="A bandit that learns", lifespan=lifespan)
    DecideBody = decide_body(settings)

    @app.post("/decide", openapi_extra=described(DecideBody))
    async def decide(request: Request) -> dict[str, Any]:
        start, body = time.perf_counter(), await parsed(DecideBody, request)
        decision = await app.state.answer(app.state.replica.checked(body.id, body.context, body.mask))
        metrics.decisions.labels(decision.action).inc()
        metrics.seconds.labels("decide").observe(time.perf_counter() - start)
        return {"id": decision.id, "action": decision.action, "probability": decision.probability}

    @app.post("/reward", openapi_extra=described(RewardBody))
    async def reward(request: Request) -> dict[str, str]:
        start, body = time.perf_counter(), await parsed(RewardBody, request)
        if not settings.lowest <= body.value <= settings.highest:  # no NaN is
            raise ValueError(f"value: expected a number from {settings.lowest} to {settings.highest}")
        outcome = await app.state.answer((checked_id(body.id), float(body.value)))
        metrics.rewards.labels(outcome).inc()
        metrics.seconds.labels("reward").observe(time.perf_counter() - start)
        if outcome == "refused":
            raise UnknownIdError("id: expected that of a decision, got an unknown one; nothing was stored")
        return {"outcome": outcome}

    @app.get("/health")
    async def health() -> JSONResponse:
        replica, error = app.state.replica, app.state.watcher.error
        # What is wrong names files; it is on stderr, and not for everybody.
        facts = {
            "position": replica.snapshot.position,
            "encoder": settings.encoder,
            "error": "snapshot" if error else "",
        }
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

    async def export() -> Response:
        if app.state.exporting.locked():
            raise OverloadedError("export: expected one call at a time, got another")
        async with app.state.exporting:  # a file takes seconds
            data = await asyncio.to_thread(app.state.replica.exported)
        return Response(data, media_type="application/octet-stream")

    if settings.export:
        app.get("/export")(export)

    def refused(status: int, text: str) -> JSONResponse:
        metrics.refused.labels(status).inc()
        return answered(status, text)

    @app.exception_handler(OverloadedError)
    async def busy(request: Request, error: OverloadedError) -> JSONResponse:
        metrics.refused.labels(503).inc()
        return overloaded(error)

    @app.exception_handler(UnknownIdError)
    async def unknown_id(request: Request, error: UnknownIdError) -> JSONResponse:
        return refused(404, str(error))

    @app.exception_handler(ConflictError)
    async def conflict(request: Request, error: ConflictError) -> JSONResponse:
        return refused(409, str(error))

    @app.exception_handler(ValueError)
    async def bad_value(request: Request, error: ValueError) -> JSONResponse:
        return refused(422, str(error))

    @app.exception_handler(LogStorageError)
    async def not_stored(request: Request, error: LogStorageError) -> JSONResponse:
        return refused(507, "the log cannot be written; nothing was stored, and the call may be repeated")

    app.add_middleware(LimitedBody, largest=settings.largest_body, seconds=settings.body_seconds)
    app.add_middleware(SharedSecret, secret=settings.secret)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(settings.hosts), www_redirect=False)
    return app
