"""HTTP of uvicorn with a limit on the time of a request's head."""

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedProtocol(H11Protocol):
    """HTTP for uvicorn that closes a connection whose request does not come within a time.

    ``uvicorn.Config(..., http=TimedProtocol)``. uvicorn's own limit of an idle connection begins after the first answer.
    """

    seconds = 10.0

    def connection_made(self, transport: Any) -> None:
        """Give the first request its time."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self.deadline.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        self.deadline = self.loop.call_later(self.seconds, self._close_if_late, is_idle, self.cycle)

    def _close_if_late(self, was_idle: bool, before: Any) -> None:
        if was_idle and self.cycle is before:  # no request has come since
            self.transport.close()
        else:
            self._wait()
