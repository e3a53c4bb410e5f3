"""uvicorn's protocol with limits on connections and time."""

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from torchonline.serving.limits import RETRY_AFTER
from torchonline.serving.settings import ServiceSettings

BUSY_BODY = b'{"detail": "too many connections"}'
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: " + RETRY_AFTER.encode() + b"\r\n"
    b"Content-Type: application/json\r\nContent-Length: " + str(len(BUSY_BODY)).encode() + b"\r\n"
    b"Connection: close\r\n\r\n" + BUSY_BODY
)


# uvicorn's class uses httptools if installed, else h11.
Protocol: Any = AutoHTTPProtocol


def _most_connections() -> int:
    """Return a number of connections that uses at most half of the file descriptors."""
    try:
        import resource
    except ImportError:  # Windows
        return 500
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1000 if descriptors == resource.RLIM_INFINITY else max(16, min(1000, descriptors // 2))


class LimitedProtocol(Protocol):
    """Protocol of uvicorn that limits connections and the time of a header.

    At the limit, a new connection replaces the one whose header or body the service has waited for the longest. If all others
    wait for answers, the new connection gets status 503.

    Attributes:
        most: maximum number of connections.
        seconds: maximum time for a header to arrive.
    """

    most = _most_connections()
    seconds = ServiceSettings.request_seconds
    since = 0.0
    timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the service waits for a header or the rest of a body."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    @property
    def is_in_header(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        others = list(self.connections)
        super().connection_made(transport)
        self.since = time.monotonic()
        if len(others) >= self.most:
            waiting = [one for one in others if isinstance(one, LimitedProtocol) and one.is_waiting]
            if not waiting:
                self.transport.write(BUSY)
                self.transport.close()
                return
            oldest = min(waiting, key=lambda one: one.since)
            self.connections.discard(oldest)
            oldest.transport.abort()
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        if self.is_in_header and self.timer is None:  # the next request of a kept-alive connection
            self.since = time.monotonic()
            self._start_timer()
        super().data_received(data)
        if not self.is_in_header:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(self.seconds, self._end)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _end(self) -> None:
        self.timer = None
        if self.is_in_header and not self.transport.is_closing():
            self.transport.abort()


def limited(settings: ServiceSettings) -> type[LimitedProtocol]:
    """Return the protocol class with the time limits of a service's settings."""

    class Limited(LimitedProtocol):
        seconds = settings.request_seconds

    return Limited
