"""The example service: malformed requests, repeated calls, sixteen clients, a kill, and a graceful stop."""

import asyncio
import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.script_modules import script_modules
from torchonline.export import check_file

ROOT = Path(__file__).parents[2]
CONTEXT = [0.1 * i for i in range(16)]
DECIDE = {"id": "x", "context": CONTEXT, "mask": [True] * 5}
REWARD = {"id": "known", "value": 1.0}
# None is a wrong place for each of them.
WRONG: list[Any] = [
    "text",
    "",
    "\ud800",
    "x" * 600,
    "a\0b",
    {},
    {"a": 1},
    [[]],
    [None],
    ["1"] * 16,
    [True] * 16,
    [1e999] * 16,
    [float("nan")] * 16,
    [float("-inf"), *CONTEXT[1:]],
    [10**400, *CONTEXT[1:]],
    [1e7, *CONTEXT[1:]],
    CONTEXT[1:],
    [*CONTEXT, 1.0],
    [CONTEXT, CONTEXT],
    [False] * 5,
    [True] * 4,
    [1] * 5,
    2.0,
    -1,
    10**400,
    float("nan"),
    1e999,
]


@pytest.fixture(scope="module")
def serving() -> Iterator[Any]:
    with script_modules("serving", "load", "kill", "fleet", "client", "settings") as modules:
        yield modules


@pytest.fixture(scope="module")
def fleet(serving: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with serving.fleet.running(
        tmp_path_factory.mktemp("serving"), replicas=1, SERVING_EVERY="0.1", SERVING_EXPORT="1"
    ) as fleet:
        yield fleet


def malformed(generator: random.Random) -> tuple[str, bytes]:
    """Return a path and a body that is no request."""
    path, body = generator.choice([("/decide", DECIDE), ("/reward", REWARD)])
    whole = json.dumps(body).encode()
    kind = generator.randrange(5)
    if kind == 0:
        return path, bytes(generator.randrange(256) for _ in range(generator.randrange(60)))
    if kind == 1:
        return path, whole[: generator.randrange(len(whole))]
    if kind == 2:
        return path, json.dumps(generator.choice([None, 1, "a", [], [body], CONTEXT, {}, {"id": "a"}])).encode()
    if kind == 3:
        return path, b"[" * generator.choice([10, 1000, 100_000]) + whole
    name = generator.choice(
        [name for name in body if name != "mask"] if path == "/reward" else ["context", "mask", "id"]
    )
    fitting = {"id": str, "value": float, "context": list, "mask": list}
    wrong = [value for value in WRONG if not fits(name, value, fitting[name])]
    return path, json.dumps(body | {name: generator.choice(wrong)}).encode()


def fits(name: str, value: Any, kind: type) -> bool:
    """Return whether a value is a right one by chance."""
    return (name == "id" and value == "text") or (name == "mask" and value is None)


async def statuses_of(serving: Any, port: int, requests: list[tuple[str, bytes]]) -> list[int]:
    client, found = serving.client.Client(port), []
    for path, body in requests:
        status, answer = await client.post(path, body)
        found.append(status)
        assert status < 500, (path, body[:200], answer)
        assert isinstance(answer["detail"], str), (path, body[:200])
    client.close()
    return found


def test_a_thousand_malformed_requests(serving: Any, fleet: Any) -> None:
    async def prepare() -> None:
        client = serving.client.Client(fleet.port)
        assert (await client.post("/decide", DECIDE | {"id": "known"}))[0] == 200
        client.close()

    asyncio.run(prepare())
    log = serving.settings.Settings(folder=fleet.folder).open_log()
    before = log.counts()
    generator = random.Random(0)
    found = asyncio.run(statuses_of(serving, fleet.port, [malformed(generator) for _ in range(1000)]))
    assert set(found) <= {400, 413, 422}
    assert log.counts() == before
    log.close()


def test_other_requests(serving: Any, fleet: Any) -> None:
    async def ask() -> None:
        client = serving.client.Client(fleet.port)
        assert (await client.get("/nothing"))[0] == 404
        assert (await client.get("/decide"))[0] == 405
        assert (await client.post("/decide", b" " * (1 << 21)))[0] == 413
        client.close()
        first = await client.post("/decide", DECIDE | {"id": "again"})
        assert first[0] == 200
        assert [await client.post("/decide", DECIDE | {"id": "again"}) for _ in range(5)] == [first] * 5
        assert (await client.post("/decide", DECIDE | {"id": "again", "context": [0.0] * 16}))[0] == 409
        masked = await client.post("/decide", {"context": CONTEXT, "mask": [False, False, True, False, False]})
        assert (masked[1]["action"], masked[1]["probability"]) == (2, 1.0)
        outcomes = [(await client.post("/reward", {"id": "again", "value": 1}))[1]["outcome"] for _ in range(2)]
        assert outcomes == ["joined", "duplicate"]
        assert (await client.post("/reward", {"id": "nobody", "value": 0.5}))[1] == {"outcome": "unknown"}
        assert (await client.get("/health"))[0] == 200
        status, text = await client.get("/metrics")
        assert status == 200
        for line in (b'rewards_total{outcome="duplicate"} 1.0', b'refused_total{status="409"} 1.0', b"log_entries{"):
            assert line in text
        status, data = await client.get("/export")
        assert status == 200
        (fleet.folder / "policy.ts").write_bytes(data)
        client.close()

    asyncio.run(ask())
    check_file(fleet.folder / "policy.ts")
    file = torch.jit.load(fleet.folder / "policy.ts")
    assert int(file.select(torch.tensor(CONTEXT, dtype=torch.float64))) in range(5)


def test_a_wrong_request_fails_alone(serving: Any, fleet: Any) -> None:
    bad = [
        ("/decide", DECIDE | {"id": "a\0b"}),
        ("/reward", REWARD | {"id": "a\0b"}),
        ("/decide", DECIDE | {"masks": []}),
    ]

    async def ask(path: str, body: Any, times: int) -> set[int]:
        client = serving.client.Client(fleet.port)
        found = {(await client.post(path, body))[0] for _ in range(times)}
        client.close()
        return found

    async def together() -> list[set[int]]:
        right = [ask("/decide", {"context": CONTEXT}, 40) for _ in range(4)]
        return await asyncio.gather(*(ask(*request, 40) for request in bad), *right)

    assert asyncio.run(together()) == [{422}] * 3 + [{200}] * 4


def test_the_commands_of_the_page_share_a_folder(serving: Any) -> None:
    page = (ROOT / "docs" / "service.md").read_text()
    commands = page.partition("```sh\n")[2].partition("```")[0]
    assert "learner.py" in commands
    assert "uvicorn" in commands
    assert "cd " not in commands  # both make the same folder, from where they are called


def test_sixteen_clients_and_two_kills(serving: Any, fleet: Any) -> None:
    async def trouble() -> None:
        generator = random.Random(0)
        await serving.kill.kill_learner(fleet, generator)
        await serving.kill.kill_replica(fleet, generator)

        async with asyncio.timeout(120.0):
            while (fleet.folder / "service.log").read_text().count("learner: follows") < 2:
                await asyncio.sleep(0.1)

    told = asyncio.run(serving.kill.while_playing(fleet, trouble))
    assert set(told.statuses) == {200}
    assert len(told.rewards) == len(told.actions) > 16
    *servers, learner = fleet.stop()
    assert learner == 0
    assert set(servers) <= {0, -signal.SIGTERM}  # uvicorn ends as the signal does
    log = serving.settings.Settings(folder=fleet.folder).open_log()
    position = torch.load(fleet.folder / "policy-v1.pt")["snapshot"]["position"]
    assert position == log.counts()["known"]  # the last snapshot has all
    *_, lost, twice, same = serving.kill.verdict(log, told, fleet.folder / "policy-v1.pt").split(" | ")
    assert (lost, twice, same) == ("0", "0", "yes")
    log.close()
