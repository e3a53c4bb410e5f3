"""What a service refuses so that one client cannot hurt the others."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from torchonline import DisjointArms, RidgeRegression
from torchonline.feedback import DecisionLog
from torchonline.serving import ServiceSettings, application
from torchonline.serving.protocol import TimedProtocol
from torchonline.serving.replica import Batcher

SECRET = "a word"


class Settings(ServiceSettings):
    """A service of two arms."""

    def make_policy(self) -> Any:
        return DisjointArms(RidgeRegression(self.dim), self.actions)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("service")
    settings = Settings(
        folder=folder,
        dim=2,
        actions=2,
        window=None,
        default_reward=None,
        secret=SECRET,
        most_unknown=1,
        body_seconds=0.5,
    )
    TimedProtocol.seconds, before = 0.5, TimedProtocol.seconds
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(application(settings), http=TimedProtocol, log_level="error", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()
    TimedProtocol.seconds = before


def ask(port: int, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    own = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"} | headers
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("GET" if body is None else "POST", path, data, {k.replace("_", "-"): v for k, v in own.items()})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_the_host_is_one_of_those_that_are_named(port: int) -> None:
    """A page of another site reaches a local service by a name of its own."""
    assert ask(port, "/health", Host="evil.example")[0] == 400
    assert ask(port, "/health", Host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer a wor", "Bearer a words", "Basic a word"])
def test_a_secret_is_asked_for(port: int, given: str) -> None:
    """But not by the health check, which names no file."""
    for path, body in (("/decide", {"context": [1, 2]}), ("/metrics", None), ("/export", None), ("/docs", None)):
        assert ask(port, path, body, Authorization=given)[0] == 401
    assert ask(port, "/health", Authorization=given) == (200, '{"position":0,"encoder":"v1","error":""}')


def test_a_body_is_json_and_says_so(port: int) -> None:
    """No page of another site can send this content type without asking."""
    for kind in ("", "text/plain", "application/x-www-form-urlencoded"):
        status, text = ask(port, "/decide", {"context": [1, 2]}, Content_Type=kind)
        assert (status, "application/json" in text) == (415, True)
    assert ask(port, "/decide", {"context": [1, 2]}, Content_Type="application/json; charset=utf-8")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        {"context": [1.0] * 100_000},
        {"context": ["x"] * 4000},
        {"context": [1, 2], "mask": [1] * 8000},
        {f"x{i}": 0 for i in range(1500)},
        b"[" * 15_000,
        b'{"context": ' + b"[" * 15_000,
        {"context": [1, 2], "id": "\N{SNOWMAN}" * 200},
        {"context": [10**400, 1]},
    ],
)
def test_what_a_request_may_weigh(port: int, body: Any) -> None:
    """The answer names what is wrong, and is short."""
    status, text = ask(port, "/decide", body)
    assert status in (413, 422)
    assert "body" in text or "context" in text
    assert len(text) < 300


def test_rewards_of_unknown_ids_are_bounded(port: int) -> None:
    assert ask(port, "/reward", {"id": "first", "value": 1})[1] == '{"outcome":"unknown"}'
    assert ask(port, "/reward", {"id": "first", "value": 1})[1] == '{"outcome":"duplicate"}'
    status, text = ask(port, "/reward", {"id": "second", "value": 1})
    assert (status, "nothing was stored" in text) == (404, True)
    assert ask(port, "/decide", {"context": [1, 2], "id": "second"})[0] == 200
    assert ask(port, "/reward", {"id": "second", "value": 1})[1] == '{"outcome":"joined"}'
    assert ask(port, "/decide", {"context": [1, 2], "id": "first"})[0] == 200
    assert ask(port, "/reward", {"id": "third", "value": 1})[1] == '{"outcome":"unknown"}'


def test_no_reward_comes_before_its_decision_where_none_may_wait(tmp_path: Path) -> None:
    """Nobody takes the place of the true reward."""
    with DecisionLog(tmp_path / "log.db") as log:
        assert log.write([], [("a", 1.0)], most_unknown=0)[1] == ["refused"]
        assert log.counts()["unknown"] == 0
        log.decide("a", [1.0, 2.0], 0, 1.0)
        assert log.write([], [("a", 0.5)], most_unknown=0)[1] == ["joined"]
        with pytest.raises(ValueError, match="most_unknown: expected an integer of at least 0"):
            log.write([], [("a", 1.0)], most_unknown=-1)


def test_an_export_is_off_by_default(port: int) -> None:
    assert ask(port, "/export")[0] == 404


def until_closed(place: socket.socket) -> bytes:
    """Return what a server says before it closes a connection."""
    place.settimeout(30.0)
    said = b""
    while part := place.recv(1000):
        said += part
    return said


@pytest.mark.parametrize("sent", [b"", b"POST /decide HTTP/1.1\r\nHost: localhost\r\nX-A: "])
def test_a_head_that_does_not_come_ends_the_connection(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as place:
        place.sendall(sent)
        assert until_closed(place) == b""


def test_a_body_that_does_not_come_ends_the_connection(port: int) -> None:
    head = f"POST /decide HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {SECRET}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as place:
        place.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert until_closed(place).startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_answers_in_time_stays(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(4):
        connection.request("GET", "/health")
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
        place = connection.sock
        time.sleep(0.2)
    assert connection.sock is place
    connection.close()


def test_an_overloaded_service_says_when_to_ask_again(tmp_path: Path) -> None:
    """No queue grows without an end."""
    import asyncio

    from torchonline.serving.errors import OverloadedError

    gate = threading.Event()

    def wait(items: Any) -> Any:
        gate.wait(60.0)
        return items

    async def run() -> list[Any]:
        batcher = Batcher(wait, most=3)
        calls = [asyncio.create_task(batcher(number)) for number in range(6)]
        await asyncio.sleep(0.01)
        gate.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        await batcher.drain()
        return found

    found = asyncio.run(run())
    assert sum(isinstance(one, OverloadedError) for one in found) == 3
    assert [one for one in found if isinstance(one, int)] == [0, 1, 2]
