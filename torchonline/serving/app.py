"""HTTP service: decide, reward, health, metrics and export.

Decisions and rewards are on the disk before they are answered. A repeated id gets the first answer.
"""

import asyncio
import gc
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import ValidationError
from starlette.middleware.trustedhost import TrustedHostMiddleware

from torchonline.feedback import ConflictError, Decision, LogStorageError
from torchonline.feedback.records import checked_id
from torchonline.serving.bodies import RewardBody, decide_body
from torchonline.serving.limits import RETRY_AFTER, JSONRoute, LimitedBody, SharedSecret
from torchonline.serving.personalizer import PREFIXES, PersonalizerDialect, personalizer_router
from torchonline.serving.replica import Batcher, OverloadError, Replica, Watcher
from torchonline.serving.settings import ServiceSettings, one_thread


class Metrics:
    """Metrics for Prometheus."""

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
    decide_seconds, reward_seconds = (metrics.seconds.labels(name) for name in ("decide", "reward"))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        log = settings.open_log()
        replica = Replica(settings, log)
        replica.refresh()
        watcher = Watcher(replica)
        watcher.start()
        app.state.replica, app.state.watcher = replica, watcher
        app.state.answer = Batcher(replica.answer, most=settings.most_waiting)
        app.state.exporting = asyncio.Lock()
        # A full garbage collection visits everything that torch has imported, and would stop all requests for 0.2 s.
        gc.collect()
        gc.freeze()
        try:
            yield
        finally:
            # Answer the requests under way, then close the files.
            watcher.stopped.set()
            await app.state.answer.drain()
            log.close()

    app = FastAPI(title="A bandit that learns", lifespan=lifespan)
    app.router.route_class = JSONRoute

    async def decided(body: Any, is_ranked: bool = False) -> tuple[Decision, str | None, list[float]]:
        """Return a decision, the name of its action, and for a ranked one the probabilities of all arms."""
        start = time.perf_counter()
        replica = app.state.replica
        request = replica.checked(body.id, body.context, body.mask, getattr(body, "actions", None))
        answer = await app.state.answer(request._replace(is_ranked=is_ranked))
        decision, probabilities = answer if is_ranked else (answer, [])
        name = replica.name_of(decision.action)
        metrics.decisions.labels(decision.action if name is None else name).inc()
        decide_seconds.observe(time.perf_counter() - start)
        return decision, name, probabilities

    async def decide(body: Any) -> dict[str, Any]:
        decision, name, _ = await decided(body)
        told = {"id": decision.id, "action": decision.action, "probability": decision.probability}
        return told if name is None else told | {"name": name}

    # Type checkers do not accept a type that is created at run time.
    decide.__annotations__["body"] = decide_body(settings)
    app.post("/decide")(decide)

    @app.post("/reward")
    async def reward(body: RewardBody) -> Any:
        start = time.perf_counter()
        if not settings.lowest <= body.value <= settings.highest:  # also refuses NaN
            raise ValueError(f"value: expected a number from {settings.lowest} to {settings.highest}")
        outcome = await app.state.answer((checked_id(body.id), float(body.value)))
        metrics.rewards.labels(outcome).inc()
        if outcome == "refused":
            detail = "id: expected the id of a decision, got an unknown id; nothing was stored"
            return refused(404, detail)
        reward_seconds.observe(time.perf_counter() - start)
        return {"outcome": outcome}

    @app.get("/health")
    async def health() -> JSONResponse:
        replica = app.state.replica
        # The error may name files, so only the service's output has it.
        error = "the newest snapshot cannot be loaded" if app.state.watcher.error else ""
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

    async def export() -> Response:
        if app.state.exporting.locked():
            raise OverloadError("export: expected one export at a time, got another request during one")
        async with app.state.exporting:  # a file takes seconds
            data = await asyncio.to_thread(app.state.replica.exported)
        return Response(data, media_type="application/octet-stream")

    if settings.export:
        app.get("/export")(export)
    if settings.personalizer:
        router = personalizer_router(app, settings, decided, reward)
        for prefix in PREFIXES:
            app.include_router(router, prefix=prefix, include_in_schema=prefix == PREFIXES[0])

    def refused(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
        metrics.refused.labels(status).inc()
        # An answer is always plain ASCII.
        detail = {"detail": text.encode("ascii", "backslashreplace").decode()}
        return JSONResponse(detail, status_code=status, headers=headers)

    @app.exception_handler(OverloadError)
    async def overloaded(request: Request, error: OverloadError) -> JSONResponse:
        return refused(503, str(error), {"Retry-After": RETRY_AFTER})

    @app.exception_handler(ValidationError)
    async def invalid(request: Request, error: ValidationError) -> JSONResponse:
        first = error.errors()[0]
        return refused(422, f"{'.'.join(map(str, ('body', *first['loc'])))}: {first['msg']}")

    @app.exception_handler(ConflictError)
    async def conflict(request: Request, error: ConflictError) -> JSONResponse:
        return refused(409, str(error))

    @app.exception_handler(ValueError)
    async def bad_value(request: Request, error: ValueError) -> JSONResponse:
        return refused(422, str(error))

    @app.exception_handler(LogStorageError)
    async def not_stored(request: Request, error: LogStorageError) -> JSONResponse:
        return refused(507, "the log cannot be written; nothing was stored, and the call may be repeated")

    # The middleware added last sees a request first.
    app.add_middleware(LimitedBody, settings=settings)
    if settings.secret:
        app.add_middleware(SharedSecret, secret=settings.secret)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(settings.hosts), www_redirect=False)
    if settings.personalizer:
        app.add_middleware(PersonalizerDialect)
    return app
