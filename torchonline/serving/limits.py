"""What one client may take from the others: time, connections and memory."""

import asyncio
import hmac
from typing import Any

from fastapi.responses import JSONResponse

from torchonline.serving.errors import OverloadedError

# Seconds until an overloaded service may be asked again.
RETRY_AFTER = 1


def answered(status: int, text: str, **headers: str) -> JSONResponse:
    """Return an error's answer: plain ASCII, whatever was in the request."""
    detail = text.encode("ascii", "backslashreplace").decode()
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)


def overloaded(error: OverloadedError) -> JSONResponse:
    """Return the answer of an overloaded service."""
    return answered(503, str(error), **{"Retry-After": str(RETRY_AFTER)})


class LimitedBody:
    """Middleware that reads the body of a POST: JSON of a known length, within a time.

    Args:
        app: what gets the request, with its body at once.
        largest: the most bytes of a body.
        seconds: the most seconds that a client takes to send it.
    """

    def __init__(self, app: Any, largest: int, seconds: float) -> None:
        self.app, self.largest, self.seconds = app, largest, seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        length, kind = headers.get(b"content-length", b""), headers.get(b"content-type", b"")
        refusal = None
        if not (length.isdigit() and int(length[:12]) <= self.largest):
            refusal = answered(413, f"body: expected a content-length up to {self.largest}", Connection="close")
        elif kind.split(b";")[0].strip().lower() != b"application/json":  # which no page of another site can send
            refusal = answered(415, "body: expected the content-type application/json", Connection="close")
        if refusal is None:
            try:
                async with asyncio.timeout(self.seconds):
                    body = await _body(receive)
            except TimeoutError:
                refusal = answered(408, f"body: expected all of it within {self.seconds:g} s", Connection="close")
            else:
                if body is None:  # the client has gone
                    return
                receive = _at_once(body, receive)
        await (self.app if refusal is None else refusal)(scope, receive, send)


async def _body(receive: Any) -> bytes | None:
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _at_once(body: bytes, receive: Any) -> Any:
    """Return a ``receive`` that begins with the whole body."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Any:
        return waiting.pop() if waiting else await receive()

    return next_message


class SharedSecret:
    """Middleware that asks for a bearer token, but at ``/health``.

    Args:
        app: what gets the request.
        secret: the token; "" asks for none.
    """

    def __init__(self, app: Any, secret: str) -> None:
        self.app, self.wanted = app, b"Bearer " + secret.encode() if secret else b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.wanted and scope["type"] == "http" and scope["path"] != "/health":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self.wanted):
                refusal = answered(401, "authorization: expected the bearer token of the service", Connection="close")
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)
