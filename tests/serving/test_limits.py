"""What strangers may send to the service: hosts, secrets, lists, bodies, connections, rewards and calls that wait."""

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from torchonline import DisjointArms, RidgeRegression
from torchonline.feedback import DecisionLog
from torchonline.feedback.follower import Follower
from torchonline.serving import ServiceSettings, application
from torchonline.serving.limits import LimitedBody
from torchonline.serving.protocol import LimitedProtocol
from torchonline.serving.replica import Batcher, OverloadError

SECRET = "0123456789abcdef"
CONTEXT = [1, 2, 3]


class Settings(ServiceSettings):
    def make_policy(self) -> DisjointArms:
        return DisjointArms(RidgeRegression(self.dim), self.actions)


def client(folder: Path, **options: Any) -> TestClient:
    settings = Settings(**{"folder": folder, "dim": 3, "actions": 2, **options})
    return TestClient(application(settings), base_url="http://localhost")


def test_a_full_garbage_collection_leaves_out_what_is_imported(tmp_path: Path) -> None:
    with client(tmp_path):
        assert gc.get_freeze_count() > 100_000


def test_a_foreign_host_is_refused(tmp_path: Path) -> None:
    with client(tmp_path) as service:
        assert service.get("/health", headers={"Host": "evil.example"}).status_code == 400
        assert service.get("/health", headers={"Host": "localhost:8000"}).status_code == 200


def test_all_but_health_ask_for_the_secret(tmp_path: Path) -> None:
    with client(tmp_path, secret=SECRET, export=True) as service:
        assert service.get("/health").status_code == 200
        for path in ("/metrics", "/export", "/docs", "/openapi.json"):
            assert service.get(path).status_code == 401
        for given in ("", "Bearer", f"Bearer {SECRET}x", f"bearer {SECRET}", b"Bearer \xff"):
            refused = service.post("/decide", json={"context": CONTEXT}, headers={"Authorization": given})
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        given = {"Authorization": f"Bearer {SECRET}"}
        assert service.post("/decide", json={"context": CONTEXT}, headers=given).status_code == 200
    assert SECRET not in repr(Settings(secret=SECRET))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("most_waiting", -1),
        ("request_seconds", float("nan")),
        ("undecided", -1),
        ("dim", 0),
        ("every", 0.0),
        ("encoder", "../x"),
        ("lowest", 1.0),
        ("largest", 1e200),
    ],
)
def test_settings_out_of_their_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: expected "):
        Settings(**{name: value})


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"context": [""] * 5000}, "body.context.0"),
        ({"context": [1] * 5000}, "body.context"),
        ({"context": CONTEXT, "mask": [True] * 2000}, "body.mask"),
        ({str(i): 1 for i in range(1000)}, "body: Value error, expected the names id, context, mask, got 1000 names"),
        ({"context": CONTEXT, "id": "\u00e9" * 300}, "id: expected 1 to 512 bytes of UTF-8"),
    ],
)
def test_every_list_and_id_has_a_bound(tmp_path: Path, body: Any, detail: str) -> None:
    with client(tmp_path) as service:
        answer = service.post("/decide", json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(detail)


def test_a_body_is_bounded_by_the_policy_and_has_a_type(tmp_path: Path) -> None:
    with client(tmp_path) as service:
        for body in (b'{"context": [' + b",".join([b'""'] * 349_000) + b"]}", b"[" * 1_000_000):
            headers = {"Content-Type": "application/json"}
            assert service.post("/decide", content=body, headers=headers).status_code == 413
        assert service.post("/decide", content=b'{"context": [1, 2, 3]}').status_code == 422
    with client(tmp_path / "large", dim=1000) as service:  # parsed in a thread
        body = b'{"context": [' + b",".join([b"1"] * 35_000) + b"]}"
        answer = service.post("/decide", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        assert "at most 1000" in answer.json()["detail"]
        assert (
            service.post("/decide", json={"context": [0.123456789012345678901234567890123456789] * 1000}).status_code
            == 200
        )


@pytest.mark.parametrize(
    ("kind", "body", "detail"),
    [
        ("text/plain", b'{"context": [1, 2, 3]}', "body: expected the content type application/json, got 'text/plain'"),
        ("application/json", b"", "body: expected JSON, got other text: "),
        ("application/json", b'{"context": [1, 2, 3]', "body: expected JSON, got other text: "),
        ("application/json", b'{"context": "\xff"}', "body: expected JSON, got other text: "),
        ("application/json", b"[" * 10_000, "body: expected JSON, got other text: "),
        ("application/json", b"[1, 2, 3]", "body: Input should be a valid dictionary"),
    ],
)
def test_a_body_that_is_no_json_is_refused(tmp_path: Path, kind: str, body: bytes, detail: str) -> None:
    with client(tmp_path) as service:
        answer = service.post("/decide", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(detail)
        as_json = {"Content-Type": "Application/JSON; charset=utf-8"}
        assert service.post("/decide", content=b'{"context": [1, 2, 3]}', headers=as_json).status_code == 200


def test_a_slow_body_is_ended(tmp_path: Path) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(60.0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "headers": [(b"content-length", b"9")]}
    asyncio.run(LimitedBody(None, Settings(folder=tmp_path, request_seconds=0.01))(scope, receive, send))
    assert sent[0]["status"] == 408


@pytest.mark.parametrize(("sent", "refused"), [([b""], None), ([b"{}"], 413), ([b"", b"[" * 99], 413)])
def test_a_body_without_a_length_is_empty(sent: list[bytes], refused: int | None, tmp_path: Path) -> None:
    """As HTTP/1.1 says. A server of HTTP/2 might pass one on."""
    parts = [{"type": "http.request", "body": body, "more_body": True} for body in sent]
    parts[-1]["more_body"] = False
    found: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        found.append(message.get("status"))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.append((await receive())["body"])

    limited = LimitedBody(application, Settings(folder=tmp_path))
    asyncio.run(limited({"type": "http", "method": "POST", "headers": []}, receive, send))
    assert found[0] == (refused or b"")


def test_export_is_off_unless_asked_for(tmp_path: Path) -> None:
    with client(tmp_path / "off") as service:
        assert service.get("/export").status_code == 404
    with client(tmp_path / "on", export=True) as service:
        assert service.get("/export").status_code == 200


def test_health_names_no_path(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with client(tmp_path, every=0.05) as service:
        (tmp_path / "policy-v1.pt").write_bytes(b"no snapshot")
        end = time.monotonic() + 60.0
        while (answer := service.get("/health")).status_code == 200 and time.monotonic() < end:
            time.sleep(0.01)
        assert answer.status_code == 503
        assert answer.json()["error"] == "the newest snapshot cannot be loaded"
        assert str(tmp_path) not in answer.text
    assert "replica: the newest snapshot cannot be loaded: " in capfd.readouterr().err


def test_a_reward_cannot_be_forged_before_its_decision(tmp_path: Path) -> None:
    with client(tmp_path, undecided=0) as service:
        assert service.post("/reward", json={"id": "a", "value": 0}).status_code == 404
        assert service.post("/decide", json={"id": "a", "context": CONTEXT}).status_code == 200
        assert service.post("/reward", json={"id": "a", "value": 1}).json() == {"outcome": "joined"}


def test_undecided_rewards_are_bounded() -> None:
    with DecisionLog(":memory:", undecided=2) as log:
        assert [log.reward(name, 1.0) for name in "abac"] == ["unknown", "unknown", "duplicate", "refused"]
        assert log.counts()["strays"] == 2


def test_calls_that_wait_are_bounded() -> None:
    async def ask() -> list[Any]:
        batcher = Batcher(lambda calls: list(calls), most=2)
        found = await asyncio.gather(*(batcher(i) for i in range(4)), return_exceptions=True)
        await batcher.drain()
        return found

    found = asyncio.run(ask())
    assert found[:2] == [0, 1]
    assert all(isinstance(one, OverloadError) for one in found[2:])


def test_a_call_that_fails_leaves_the_others_of_its_batch_alone() -> None:
    def answer(calls: Any) -> list[Any]:
        if 3 in calls:
            raise ValueError("three")
        return list(calls)

    async def ask() -> list[Any]:
        batcher = Batcher(answer)
        found = await asyncio.gather(*(batcher(i) for i in range(6)), return_exceptions=True)
        await batcher.drain()
        return found

    found = asyncio.run(ask())
    assert [one for one in found if not isinstance(one, Exception)] == [0, 1, 2, 4, 5]
    assert str(found[3]) == "three"


def test_overload_says_when_to_try_again(tmp_path: Path) -> None:
    with client(tmp_path, most_waiting=0) as service:
        answer = service.post("/decide", json={"context": CONTEXT})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_silent_connections_make_room_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    monkeypatch.setattr(LimitedProtocol, "most", 4)
    app = application(Settings(folder=tmp_path, dim=3, actions=2))
    config = uvicorn.Config(app, port=0, http=LimitedProtocol, ws="none", log_level="critical", lifespan="on")

    async def attack() -> tuple[bytes, list[bytes]]:
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for _, writer in held:
            writer.write(b"GET /health HTTP/1.1\r\nHost: loc")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await reader.readuntil(b"\r\n")
        ends = await asyncio.gather(*(first.read() for first, _ in held[:4]), return_exceptions=True)
        for _, one in [*held, (reader, writer)]:
            one.close()
        server.should_exit = True
        await task
        return answer, ends

    answer, ends = asyncio.run(attack())
    assert answer == b"HTTP/1.1 200 OK\r\n"
    assert all(end == b"" or isinstance(end, ConnectionError) for end in ends)


def test_the_message_of_a_lock_names_the_process(tmp_path: Path) -> None:
    import os

    settings = Settings(folder=tmp_path, dim=3, actions=2)
    with (
        settings.open_log() as log,
        Follower(settings.make_policy(), log, settings.snapshot),
        pytest.raises(
            BlockingIOError, match=f"expected no other follower, got process {os.getpid()}, which has locked"
        ),
    ):
        Follower(settings.make_policy(), log, settings.snapshot)
