"""The service of a head on the columns of a table: values by name, gaps, names of actions, and arms in the request."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from tests.features.texts import bits
from torchonline.command_line.service import HeadSettings, make_settings
from torchonline.feedback import Follower, follow
from torchonline.models import BanditHead, table_head
from torchonline.serving import application
from torchonline.serving.replica import Replica

COLUMNS: dict[str, Any] = {
    "age": "number",
    "country": {"kind": "category", "values": ["CH", "Z\u00fcrich"]},
    "member": "boolean",
    "since": "date",
    "note": {"kind": "text", "buckets": 4},
}
NAMES = ["stay", "call", "write"]
ARMS: dict[str, Any] = {"age": "number", "price": "number", "shop": {"kind": "category", "values": ["a"]}}
ROW = {"age": 31, "country": "CH", "member": True, "since": "2024-01-02", "note": "red red"}


def named_head() -> BanditHead:
    return table_head(COLUMNS, "unit", actions=NAMES)


def settings_of(folder: Path, head: BanditHead, **options: Any) -> HeadSettings:
    return make_settings(head, str(folder), **{"window": None, "default_reward": None, "every": 0.05, **options})


def client(folder: Path, head: BanditHead | None = None, **options: Any) -> TestClient:
    settings = settings_of(folder, named_head() if head is None else head, **options)
    return TestClient(application(settings), base_url="http://localhost")


def test_settings_of_a_head(tmp_path: Path) -> None:
    named = settings_of(tmp_path, named_head())
    assert (named.dim, named.actions, named.names, named.has_arms) == (8, 3, tuple(NAMES), False)
    of_arms = settings_of(tmp_path, table_head(ARMS, "real"))
    assert (of_arms.dim, of_arms.names, of_arms.has_arms) == (3, (), True)
    numbered = settings_of(tmp_path, table_head(COLUMNS, actions=2))
    assert (numbered.names, numbered.largest) == ((), 1e6)
    rich = table_head({"pay": {"kind": "number", "fill": -5e6, "edges": [1.0, 7e6]}}, actions=2)
    assert settings_of(tmp_path, rich).largest == 7e9
    assert settings_of(tmp_path, rich, largest=5.0).largest == 5.0


def test_values_by_name(tmp_path: Path) -> None:
    head = named_head()
    with client(tmp_path, head) as service:
        rows = [
            ROW,
            {},
            {"age": None, "country": None, "note": None},
            {"age": "1'044.5", "member": "no", "since": 1.7e9, "note": "\U0001f600 caf\u00e9"},
            {"country": "Z\u00fcrich", "member": 0, "since": ""},
            {"country": 7, "age": -0.0},
            {"country": True, "note": 12},
            {"country": " CH ", "age": "NA"},
        ]
        for i, row in enumerate(rows):
            answer = service.post("/decide", json={"id": f"row {i}", "context": row})
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert told["name"] == NAMES[told["action"]]
            assert 0.0 < told["probability"] <= 1.0
            assert service.post("/decide", json={"id": f"row {i}", "context": row}).json() == told
        assert 'decisions_total{action="' in service.get("/metrics").text
        stored = {one.id: one.inputs for one in service.app.state.replica.log.decisions()}  # type: ignore[attr-defined]
    wanted = head.encoder.lookup(rows)  # type: ignore[operator]
    assert bits(torch.stack([stored[f"row {i}"] for i in range(len(rows))])) == bits(wanted)


@pytest.mark.parametrize(
    ("context", "detail"),
    [
        (
            {"age": "old", "member": "perhaps"},
            "context: expected numbers in 'age', got 'old'; booleans in 'member', got 'perhaps'; mend",
        ),
        (
            {"aeg": 3},
            "context: expected columns 'age', 'country', 'member', 'since', 'note', got 'aeg'; did you mean 'age'?",
        ),
        ({"": 3}, "context: expected columns"),
        ({"age": 1e7}, "context: expected numbers up to 1e+06"),
        ({"age": "1e7"}, "context: expected numbers up to 1e+06"),
        ({"age": 10**40}, "context: expected numbers up to 1e+06"),
        ({"age": 10**400}, "context: expected numbers in 'age', got 1000"),
        (
            {"since": 1e300},
            "context: expected dates in 'since', got 1e+300; give dates as text, or as seconds since 1970",
        ),
        ({"since": -1.7e12}, "context: expected dates in 'since', got -1700000000000.0"),
        ({"country": 1.5}, "context: expected text, booleans or integers in 'country', got 1.5"),
        ({"note": 0.5}, "context: expected text in 'note', got 0.5"),
        ({"member": 2}, "context: expected booleans in 'member', got 2"),
        ({"note": "x" * 4097}, "body.context"),
        ({f"name {i}": 1 for i in range(6)}, "body.context"),
        ({"age": [1]}, "body.context"),
        ({"age": {"x": 1}}, "body.context"),
        ([1, 2, 3], "body.context"),
        ("age", "body.context"),
        (None, "body.context"),
    ],
)
def test_a_wrong_context_is_refused_by_name(context: Any, detail: str, tmp_path: Path) -> None:
    with client(tmp_path) as service:
        answer = service.post("/decide", json={"id": "a", "context": context})
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(detail), answer.text
        assert len(answer.text) < 1000
        assert service.app.state.replica.log.counts()["decisions"] == 0  # type: ignore[attr-defined]
        assert service.post("/decide", json={"id": "a", "context": ROW}).status_code == 200


def test_what_is_no_json_number_is_a_gap_or_refused(tmp_path: Path) -> None:
    headers = {"Content-Type": "application/json"}
    with client(tmp_path) as service:
        for text, status in (
            ("NaN", 200),
            ("Infinity", 422),
            ("-Infinity", 422),
            ('"\\ud800"', 422),
            ('"\\u0000"', 422),
        ):
            answer = service.post("/decide", content=f'{{"context": {{"age": {text}}}}}'.encode(), headers=headers)
            assert answer.status_code == status, text
        assert service.post("/decide", content=b'{"context": {"country": "\\ud800"}}', headers=headers).status_code in (
            200,
            422,
        )
        assert service.post("/decide", content=b'{"context": {"\\ud800": 1}}', headers=headers).status_code == 422


def test_bodies_of_the_longest_texts_are_read(tmp_path: Path) -> None:
    """Also where each character is written as an escape."""
    with client(tmp_path, table_head({"one": "text", "two": "text"}, actions=2)) as service:
        for character in ("x", "\u00e9", "\u4e2d", "\U0001f600", "\x00"):
            row = {"one": character * 4096, "two": character * 4096}
            assert service.post("/decide", json={"context": row}).status_code == 200, character
            body = json.dumps({"context": row}, ensure_ascii=ord(character) < 65536).encode()
            assert (
                service.post("/decide", content=body, headers={"Content-Type": "application/json"}).status_code == 200
            )
        assert service.post("/decide", json={"context": {"one": "x" * 200_000}}).status_code == 413


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"actions": ["stay", "cal"]}, "actions: expected names among 'stay', 'call', 'write', got 'cal'"),
        ({"actions": []}, "body.actions"),
        ({"actions": ["stay"] * 4}, "body.actions"),
        ({"actions": [0]}, "body.actions"),
        ({"actions": "stay"}, "body.actions"),
        (
            {"actions": ["stay"], "mask": [False, True, True]},
            "actions: expected an available action, got none under the mask",
        ),
        ({"mask": [False] * 3}, "mask: expected 3 booleans, at least one of them true"),
        ({"mask": [True] * 2}, "body.mask"),
    ],
)
def test_names_of_actions_are_checked(body: Any, detail: str, tmp_path: Path) -> None:
    with client(tmp_path) as service:
        answer = service.post("/decide", json={"context": ROW} | body)
        assert (answer.status_code, answer.json()["detail"][: len(detail)]) == (422, detail)


def test_a_request_lists_the_available_actions(tmp_path: Path) -> None:
    with client(tmp_path) as service:
        for names, mask, wanted in (
            (["write"], None, {"write"}),
            (["call", "stay"], [True, False, True], {"stay"}),
            (["write", "call", "call"], None, {"write", "call"}),
            (NAMES, None, set(NAMES)),
            (None, [False, True, False], {"call"}),
        ):
            for _ in range(5):
                answer = service.post("/decide", json={"context": ROW, "actions": names, "mask": mask})
                assert answer.json()["name"] in wanted
                assert answer.json()["probability"] == pytest.approx(1.0) or len(wanted) > 1
        stored = service.app.state.replica.log.decisions()[0]  # type: ignore[attr-defined]
    assert stored.mask.tolist() == [False, False, True]


def test_a_head_without_names_takes_none(tmp_path: Path) -> None:
    with client(tmp_path, table_head(COLUMNS, actions=2)) as service:
        assert service.post("/decide", json={"context": ROW, "actions": ["a"]}).status_code == 422
        assert set(service.post("/decide", json={"context": ROW}).json()) == {"id", "action", "probability"}


def test_rewards_are_learnt(tmp_path: Path) -> None:
    """The learner learns what a head in one process learns; replicas load its snapshot."""
    settings = settings_of(tmp_path, named_head())
    stepped = named_head()
    with TestClient(application(settings), base_url="http://localhost") as service:
        for i in range(30):
            row = {"age": i, "country": ["CH", "AT", None][i % 3], "note": "x" * (i % 2)}
            told = service.post("/decide", json={"id": str(i), "context": row, "actions": NAMES[: 1 + i % 3]}).json()
            reward = float(told["name"] == "call")
            assert service.post("/reward", json={"id": str(i), "value": reward}).json() == {"outcome": "joined"}
            stepped.step(row, told["name"], reward)
        with settings.open_log() as log:
            learner = settings.make_policy()
            last = follow(learner, log, settings.snapshot, every=0.01, stop=lambda: True, encoder=settings.encoder)
            assert (last.learnt, last.refused) == (30, 0)
        assert all(torch.equal(value, stepped.state_dict()[name]) for name, value in learner.state_dict().items())
        replica = service.app.state.replica  # type: ignore[attr-defined]
        replica.refresh()
        assert replica.snapshot.learnt == 30
        choice = learner.select({"age": 5})
        assert replica.policy.select({"age": 5}) == choice


# Arms with values of their own.


def offers(count: int) -> list[dict[str, Any]]:
    return [{"price": float(k), "shop": "ab"[k % 2]} for k in range(count)]


def test_arms_in_the_request(tmp_path: Path) -> None:
    head = table_head(ARMS, "real")
    with client(tmp_path, head) as service:
        for count in (1, 2, 7, 1000):
            for context in ({"age": 3}, {}, None):
                answer = service.post(
                    "/decide", json={"id": f"{count} {context}", "context": context, "actions": offers(count)}
                )
                assert answer.status_code == 200, answer.text
                assert 0 <= answer.json()["action"] < count
                assert set(answer.json()) == {"id", "action", "probability"}
        answer = service.post(
            "/decide",
            json={"id": "no context", "actions": [{"price": 1}, {}, {"shop": None}], "mask": [False, True, False]},
        )
        assert answer.json()["action"] == 1
        # A value of an arm replaces that of the context.
        service.post(
            "/decide", json={"id": "own", "context": {"age": 3, "price": 9}, "actions": [{"age": 4}, {"price": 5}]}
        )
        stored = {one.id: one for one in service.app.state.replica.log.decisions()}  # type: ignore[attr-defined]
    assert bits(stored["own"].inputs) == bits(head.encoder.lookup([{"age": 4, "price": 9}, {"age": 3, "price": 5}]))  # type: ignore[operator]
    assert stored["7 None"].inputs.shape == (7, 3)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"actions": offers(1001)}, "body.actions"),
        ({"actions": []}, "body.actions"),
        ({"actions": None}, "body.actions"),
        ({}, "body.actions"),
        ({"actions": ["a"]}, "body.actions"),
        (
            {"actions": [{"prise": 1}]},
            "actions: expected columns 'age', 'price', 'shop', got 'prise'; did you mean 'price'?",
        ),
        ({"actions": [{"price": 1}, {"price": "x"}]}, "actions: expected numbers in 'price', got 'x' in row 1"),
        ({"actions": [{"price": 1}, {"price": 1e7}]}, "actions: expected numbers up to 1e+06"),
        ({"context": {"agee": 1}, "actions": [{}]}, "actions: expected columns 'age', 'price', 'shop', got 'agee'"),
        ({"context": [1], "actions": [{}]}, "body.context"),
        ({"actions": [{}, {}], "mask": [True]}, "mask: expected 2 booleans"),
        ({"actions": [{}], "mask": [True] * 1001}, "body.mask"),
        ({"actions": [{}], "mask": []}, "mask: expected 1 booleans"),
        ({"actions": [{str(i): 1 for i in range(4)}]}, "body.actions"),
    ],
)
def test_wrong_arms(body: Any, detail: str, tmp_path: Path) -> None:
    with client(tmp_path, table_head(ARMS, "real")) as service:
        answer = service.post("/decide", json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(detail), answer.text
        assert len(answer.text) < 1000


def test_one_batch_of_different_numbers_of_arms(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, table_head(ARMS, "real"))
    with settings.open_log() as log:
        replica = Replica(settings, log)
        replica.refresh()
        counts = [3, 1, 3, 5, 1, 2]
        calls: list[Any] = [replica.checked(str(i), {"age": i}, None, offers(count)) for i, count in enumerate(counts)]
        calls.insert(2, ("0", 1.0))
        answers = replica.answer(calls)
        assert answers.pop(2) in ("joined", "unknown")
        assert [one.id for one in answers] == list("012345")
        assert all(0 <= one.action < count for one, count in zip(answers, counts, strict=True))
        assert [len(one.inputs) for one in answers] == counts
        again = replica.answer(calls[:1])
        assert again[0].action == answers[0].action


def test_arms_are_learnt(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, table_head(ARMS, "real"), lowest=-10.0, highest=10.0)
    stepped = table_head(ARMS, "real")
    with settings.open_log() as log:
        replica = Replica(settings, log)
        replica.refresh()
        for i in range(25):
            arms = offers(1 + i % 4)
            (one,) = replica.answer([replica.checked(str(i), {"age": i}, None, arms)])
            replica.answer([(one.id, -float(one.action))])
            stepped.step([{"age": i, **arm} for arm in arms], one.action, -float(one.action))
        learner = settings.make_policy()
        with Follower(learner, log, settings.snapshot) as follower:
            follower.advance()
            follower.save()
        assert all(torch.equal(value, stepped.state_dict()[name]) for name, value in learner.state_dict().items())
        replica.refresh()
        assert replica.snapshot.learnt == 25
        assert replica.policy.select([{"price": 0.0}, {"price": 3.0}]) == learner.select(
            [{"price": 0.0}, {"price": 3.0}]
        )


def test_arms_of_numbers(tmp_path: Path) -> None:
    """A head without columns, whose arms have features of their own."""
    from torchonline import bandit

    head = BanditHead(torch.nn.Identity(), bandit(2, "real"))
    with client(tmp_path, head, export=True) as service:
        answer = service.post("/decide", json={"actions": [[1, 2], [3, 4], [5, 6]]})
        assert answer.status_code == 200, answer.text
        for arms in ([[1, 2], [3]], [[1, 2], [3, math.pi * 1e9]], [1, 2], [[1, 2, 3]]):
            assert service.post("/decide", json={"actions": arms}).status_code == 422
        assert service.get("/export").status_code == 200


@pytest.mark.parametrize("kind", ["named", "arms"])
def test_export(kind: str, tmp_path: Path) -> None:
    head = named_head() if kind == "named" else table_head(ARMS, "real")
    with client(tmp_path, head, export=True) as service:
        file = torch.jit.load(io.BytesIO(service.get("/export").content))
    encoder: Any = head.encoder
    if kind == "named":
        numbers, texts = {"age": 31.0, "member": 1.0}, {"country": "CH", "note": "red"}
        codes = file.encoder.lookup_row(numbers, texts)
        assert bits(codes) == bits(encoder.lookup(numbers | texts))
    else:
        arms = [{"age": 3.0, "price": float(k)} for k in range(3)]
        codes = torch.stack([file.encoder.lookup_row(arm, {"shop": "a"}) for arm in arms])
        assert bits(codes) == bits(encoder.lookup([arm | {"shop": "a"} for arm in arms]))
    assert file.select(codes) == head.select(codes)
