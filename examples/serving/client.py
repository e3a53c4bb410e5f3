"""A client with one connection, which costs the load test little time of its own."""

import asyncio
import json
from typing import Any


class Client:
    """One connection to the service, kept open; it connects again when the service has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Send a body, JSON or bytes, and return the status and the answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        return await self._send(head.encode() + data)

    async def get(self, path: str) -> tuple[int, Any]:
        """Return the status and the answer of a GET."""
        return await self._send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    async def _send(self, data: bytes) -> tuple[int, Any]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        try:
            writer.write(data)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]
            answer = await reader.readexactly(int(length or b"0"))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        if b"connection: close" in head:
            self.close()
        is_json = b"application/json" in head
        return int(head.split(b" ", 2)[1]), json.loads(answer) if is_json else answer

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def patiently(client: Client, path: str, body: Any, tries: int = 100) -> tuple[int, Any]:
    """Send until there is an answer: to repeat a call with an id is harmless."""
    for _ in range(tries - 1):
        try:
            return await client.post(path, body)
        except OSError:
            await asyncio.sleep(0.05)
        except asyncio.IncompleteReadError:
            pass
    return await client.post(path, body)
