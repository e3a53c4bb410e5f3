"""Requests: their parsing, and limits on size, time and authorization."""

import asyncio
import hmac
import json
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from torchonline.serving.settings import ServiceSettings

# Bodies above this number of bytes are parsed in a thread.
LARGE_BODY = 1 << 15
# Seconds after which a client may retry a request that was refused for overload.
RETRY_AFTER = "1"


class JSONRoute(APIRoute):
    """Route that checks a JSON body once, and sends the answer unchanged.

    The endpoint's argument ``body`` is a pydantic model, and its other arguments come from the path. FastAPI's own handler also
    resolves dependencies and checks answers, which costs more than the check of the body; it still handles routes without a body.
    Large bodies are parsed in a thread.
    """

    def get_route_handler(self) -> Any:
        endpoint: Any = self.endpoint
        model = endpoint.__annotations__.get("body")
        if model is None:
            return super().get_route_handler()

        async def handle(request: Request) -> Response:
            # A browser asks before it sends JSON to another site, but not before it sends text.
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
                raise ValueError(f"body: expected the content type application/json, got {kind[:40]!r}")
            body = await request.body()
            try:
                values = await asyncio.to_thread(json.loads, body) if len(body) > LARGE_BODY else json.loads(body)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"body: expected JSON, got other text: {error}") from error
            answer = await endpoint(model.model_validate(values), **request.path_params)
            return answer if isinstance(answer, Response) else JSONResponse(answer)

        return handle


class LimitedBody:
    """Middleware that refuses bodies that are too long or arrive too slowly.

    Args:
        app: the application.
        settings: settings of the service.
    """

    def __init__(self, app: Any, settings: ServiceSettings) -> None:
        self.app, self.largest, self.seconds = app, settings.largest_body, settings.request_seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        found = [value for name, value in scope["headers"] if name == b"content-length"]
        length = found[0] if found else b"0"
        chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        if chunked or not (length.isdigit() and len(length) < 20 and int(length) <= self.largest):
            await self._refuse_body(scope, receive, send)
            return
        messages: list[Any] = []
        size = 0
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    messages.append(await receive())
                    size += len(messages[-1].get("body", b""))
                    if size > int(length):  # HTTP/2 has bodies without a length
                        await self._refuse_body(scope, receive, send)
                        return
                    if not messages[-1].get("more_body"):
                        break
        except TimeoutError:
            refusal = _refuse(408, f"body: expected all of it within {self.seconds:g} seconds", {"Connection": "close"})
            await refusal(scope, receive, send)
            return

        async def read() -> Any:
            return messages.pop(0) if messages else await receive()

        await self.app(scope, read, send)

    async def _refuse_body(self, scope: Any, receive: Any, send: Any) -> None:
        await _refuse(413, f"body: expected a content-length up to {self.largest}")(scope, receive, send)


class SharedSecret:
    """Middleware that requires a bearer token, except at ``/health``.

    Args:
        app: the application.
        secret: the secret.
    """

    def __init__(self, app: Any, secret: str) -> None:
        self.app, self.wanted = app, f"Bearer {secret}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self.wanted):
                headers = {"WWW-Authenticate": "Bearer"}
                await _refuse(401, "authorization: expected the service's secret", headers)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _refuse(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)
