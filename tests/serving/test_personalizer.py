"""Requests as clients of Azure Personalizer send them, and their answers."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from torchonline.command_line.service import make_settings
from torchonline.datasets import HEALTH_PLANS, health_insurance
from torchonline.feedback import Follower
from torchonline.models import BanditHead, table_head
from torchonline.serving import ServiceSettings, application
from torchonline.serving.personalizer import PREFIXES, ranked, values_by_name

SECRET = "0123456789abcdef0123456789abcdef"
RANK = "/personalizer/v1.0/rank"
COLUMNS: dict[str, Any] = {"time": "category", "user.age": "number", "user.at.0": "number"}
ARMS: dict[str, Any] = {"time": "category", "price": "number"}
NAMES = ["pasta", "salad", "soup"]
# The SDKs name an encoding.
SDK = {"Content-Type": "application/json; charset=utf-8", "Ocp-Apim-Subscription-Key": SECRET}


def named_head() -> BanditHead:
    return table_head(COLUMNS, "unit", actions=NAMES, explore="epsilon")


def head_of_arms() -> BanditHead:
    return table_head(ARMS, "unit", explore="epsilon")


def client(folder: Path, head: BanditHead, **options: Any) -> TestClient:
    options = {"window": None, "default_reward": None, "every": 1e6, "personalizer": True, "secret": SECRET} | options
    return TestClient(
        application(make_settings(head, str(folder), **options)), base_url="http://localhost", headers=SDK
    )


def request(**changes: Any) -> dict[str, Any]:
    context = [{"time": "morning"}, {"user": {"age": 31, "at": [47.4]}}]
    actions = [{"id": name, "features": [{"taste": "salty"}, {"facts": {"spicy": True}}]} for name in NAMES]
    return {"contextFeatures": context, "actions": actions} | changes


def post(service: TestClient, path: str, body: Any) -> Any:
    return service.post(path, content=json.dumps(body).encode())


def learn(service: TestClient, settings: Any) -> dict[str, torch.Tensor]:
    """Learn what the log of a service has, and let its replica load it."""
    replica: Any = service.app.state.replica  # type: ignore[attr-defined]
    policy = settings.make_policy()
    with Follower(policy, replica.log, settings.snapshot) as follower:
        follower.advance()
        follower.save()
    replica.refresh()
    return policy.state_dict()


@pytest.mark.parametrize("kind", ["named", "arms"])
def test_a_client_of_personalizer_gets_what_a_client_of_the_service_gets(kind: str, tmp_path: Path) -> None:
    """200 person-years of real data, on two services with equal seeds: equal decisions, logs and learnt states."""
    context, plan, cost, *_ = health_insurance().tensors
    names, offers = list(HEALTH_PLANS), [{"plan": float(k), "is_free": k == 0} for k in range(len(HEALTH_PLANS))]
    columns: dict[str, Any] = {"person.age": "number", "person.sex": "category", "income": "number"}
    if kind == "named":
        head = table_head(columns, "unit", actions=names, explore="epsilon")
    else:
        head = table_head(columns | {"plan": "number", "is_free": "boolean"}, "unit", explore="epsilon")
    options: Any = {"window": None, "default_reward": None, "every": 1e6}
    theirs = make_settings(head, str(tmp_path / "theirs"), personalizer=True, **options)
    ours = make_settings(head, str(tmp_path / "ours"), **options)
    clients = [TestClient(application(each), base_url="http://localhost", headers=SDK) for each in (theirs, ours)]
    with clients[0] as one, clients[1] as two:
        for i in range(200):
            age, _, female, income, *_ = context[97 * i].tolist()
            sex = "female" if female else "male"
            excluded = names[i % 6] if i % 3 == 0 else ""
            event = {
                "contextFeatures": [{"person": {"age": age, "sex": sex}}, {"income": income}],
                "actions": [{"id": name, "features": [offer]} for name, offer in zip(names, offers, strict=True)],
                "excludedActions": [excluded] if excluded else None,
                "eventId": f"year {i}",
                "deferActivation": False,
            }
            decision: dict[str, Any] = {
                "id": f"year {i}",
                "context": {"person.age": age, "person.sex": sex, "income": income},
            }
            if kind == "named":
                decision["actions"] = [name for name in names if name != excluded]
            else:
                decision |= {"actions": offers, "mask": [name != excluded for name in names]}
            torch.manual_seed(i)
            answer = post(one, RANK, event)
            torch.manual_seed(i)
            told = post(two, "/decide", decision).json()
            assert answer.status_code == 201, answer.text
            found = answer.json()
            assert found["eventId"] == told["id"]
            assert found["rewardActionId"] == names[told["action"]]
            shares = {each["id"]: each["probability"] for each in found["ranking"]}
            assert shares[found["rewardActionId"]] == told["probability"]
            assert list(shares).count(excluded) == bool(excluded)
            assert math.fsum(shares.values()) == pytest.approx(1.0)
            if told["action"] == plan[97 * i] or i % 2:
                value = float(cost[97 * i] < 50.0)
                assert post(one, f"/personalizer/v1.0/events/year {i}/reward", {"value": value}).status_code == 204
                assert post(two, "/reward", {"id": f"year {i}", "value": value}).json() == {"outcome": "joined"}
            if i % 50 == 49:
                states = learn(one, theirs), learn(two, ours)
                assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
        logs = [service.app.state.replica.log.decisions() for service in (one, two)]  # type: ignore[attr-defined]
    assert len(logs[0]) == 200
    for first, second in zip(*logs, strict=True):
        assert torch.equal(first.inputs.nan_to_num(), second.inputs.nan_to_num())
        assert torch.equal(first.mask, second.mask)
        assert (first.id, first.action, first.probability) == (second.id, second.action, second.probability)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_all_versions_take_the_same_requests(prefix: str, tmp_path: Path) -> None:
    with client(tmp_path, named_head()) as service:
        version = "?api-version=2022-09-01-preview" if prefix == "/personalizer" else ""
        answer = post(service, f"{prefix}/rank{version}", request(eventId="a/b c"))
        assert answer.status_code == 201, answer.text
        told = answer.json()
        assert set(told) == {"ranking", "eventId", "rewardActionId"}
        assert told["eventId"] == "a/b c"
        assert told["ranking"][0]["id"] == told["rewardActionId"]
        event = f"{prefix}/events/a%2Fb%20c"
        activated = service.post(f"{event}/activate{version}")
        assert (activated.status_code, activated.content) == (204, b"")
        for _ in range(2):  # a repetition counts once
            rewarded = post(service, f"{event}/reward{version}", {"value": 1})
            assert (rewarded.status_code, rewarded.content) == (204, b"")
        counts = service.app.state.replica.log.counts()  # type: ignore[attr-defined]
        assert (counts["known"], counts["duplicates"]) == (1, 1)
        metrics = service.get("/metrics", headers={"Authorization": f"Bearer {SECRET}"}).text
        assert f'decisions_total{{action="{told["rewardActionId"]}"}} 1.0' in metrics
        assert 'rewards_total{outcome="joined"} 1.0' in metrics


def test_a_request_needs_actions_only(tmp_path: Path) -> None:
    with client(tmp_path, named_head()) as service:
        told = post(service, RANK, {"actions": [{"id": "soup", "features": []}]}).json()
        assert told["rewardActionId"] == "soup"
        assert told["ranking"] == [{"id": "soup", "probability": 1.0}]
        assert len(told["eventId"]) == 32
        nulls = dict.fromkeys(("contextFeatures", "excludedActions", "eventId", "deferActivation"))
        assert post(service, RANK, request(**nulls)).status_code == 201


def test_a_ranking_has_the_probabilities_of_the_state_that_decided(tmp_path: Path) -> None:
    with client(tmp_path, named_head()) as service:
        replica: Any = service.app.state.replica  # type: ignore[attr-defined]
        for i in range(20):
            row = {"time": "morning", "user.age": 31, "user.at.0": 47.4}
            shares = replica.policy.probabilities(row, [True, i % 2 == 0, True]).tolist()
            told = post(service, RANK, request(excludedActions=["salad", "unknown"] if i % 2 else [])).json()
            wanted = dict(zip(NAMES, shares, strict=True))
            assert {one["id"]: one["probability"] for one in told["ranking"]} == pytest.approx(wanted)
            if i % 2:
                assert told["ranking"][1] == {"id": "salad", "probability": 0.0}
                assert told["rewardActionId"] == told["ranking"][0]["id"]


def test_an_excluded_action_keeps_its_place(tmp_path: Path) -> None:
    with client(tmp_path, named_head()) as service:
        told = post(service, RANK, request(excludedActions=["pasta"])).json()
        assert told["ranking"][0] == {"id": "pasta", "probability": 0.0}
        assert told["ranking"][1]["id"] == told["rewardActionId"]


def test_a_repeated_event_gets_the_first_action_and_probability(tmp_path: Path) -> None:
    settings = make_settings(named_head(), str(tmp_path), window=None, default_reward=None, every=1e6)
    with client(tmp_path, named_head()) as service:
        first = post(service, RANK, request(eventId="first")).json()
        for i in range(40):
            told = post(service, RANK, request(eventId=str(i))).json()
            value = float(told["rewardActionId"] != first["rewardActionId"])
            assert post(service, f"/personalizer/v1.0/events/{i}/reward", {"value": value}).status_code == 204
        learn(service, settings)
        again = post(service, RANK, request(eventId="first")).json()
        assert (again["rewardActionId"], again["ranking"][0]) == (first["rewardActionId"], first["ranking"][0])
        assert math.fsum(one["probability"] for one in again["ranking"]) == pytest.approx(1.0)
        other = post(service, RANK, request(eventId="first", contextFeatures=[{"time": "noon"}]))
        assert (other.status_code, other.json()["error"]["code"]) == (409, "BadRequest")


def test_the_key_is_the_secret(tmp_path: Path) -> None:
    with client(tmp_path, named_head()) as service:
        for given in ("", SECRET[:-1], f"{SECRET}x", "\u00e9".encode()):
            answer = service.post(RANK, json=request(), headers={"Ocp-Apim-Subscription-Key": given})
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "401")
        bearer = {"Ocp-Apim-Subscription-Key": "wrong", "Authorization": f"Bearer {SECRET}"}
        assert service.post(RANK, json=request(), headers=bearer).status_code == 201
        # The key is read in Personalizer's requests only.
        assert service.post("/decide", json={"context": {}}).status_code == 401


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": []}, "body.actions: List should have at least 1 item"),
        ({"actions": [{"id": name, "features": []} for name in "abcd"]}, "body.actions: List should have at most 3"),
        (
            {"actions": [{"id": "tea", "features": []}]},
            "actions: expected names among 'pasta', 'salad', 'soup', got 'tea'",
        ),
        ({"actions": [{"id": "soup", "features": []}] * 2}, "actions: expected each id once, got 'soup' 2 times"),
        ({"actions": [{"id": "soup"}]}, "body.actions.0.features: Field required"),
        ({"actions": [{"id": "", "features": []}]}, "body.actions.0.id: String should have at least 1 character"),
        ({"contextFeatures": [None]}, "body.contextFeatures.0: Input should be a valid dictionary"),
        ({"contextFeatures": {"time": 1}}, "body.contextFeatures: Input should be a valid list"),
        (
            {"contextFeatures": [{"tme": 1}]},
            "contextFeatures: expected columns 'time', 'user.age', 'user.at.0', got 'tme'",
        ),
        ({"contextFeatures": [{"": 1}]}, "contextFeatures: expected columns"),
        ({"contextFeatures": [{"user": {"age": "old"}}]}, "contextFeatures: expected numbers in 'user.age', got 'old'"),
        (
            {"contextFeatures": [{"time": "x" * 5000}]},
            "contextFeatures.time: Value error, expected a number, a text of up",
        ),
        (
            {"contextFeatures": [{"time": 1}, {"time": 2}]},
            "contextFeatures: expected each feature once, got 'time' twice",
        ),
        (
            {"contextFeatures": [{"user.age": 1}, {"user": {"age": 2}}]},
            "contextFeatures: expected each feature once, got 'user.age' twice",
        ),
        ({"excludedActions": NAMES}, "excludedActions: expected an action that is not excluded, got all of them"),
        ({"excludedActions": "soup"}, "body.excludedActions: Input should be a valid list"),
        ({"eventId": ""}, "body.eventId: String should have at least 1 character"),
        ({"eventId": "\u00e9" * 300}, "eventId: expected 1 to 512 bytes of UTF-8"),
        ({"deferActivation": 1}, "body.deferActivation: Input should be a valid boolean"),
        ({"slots": []}, "body.slots: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_request_is_refused_in_personalizers_form(changes: Any, message: str, tmp_path: Path) -> None:
    with client(tmp_path, named_head()) as service:
        answer = post(service, RANK, request(**changes))
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "BadRequest")
        assert error["message"].startswith(message), answer.text
        assert service.app.state.replica.log.counts()["decisions"] == 0  # type: ignore[attr-defined]


def test_deep_features_are_refused() -> None:
    features: Any = 1
    for _ in range(3000):
        features = [features]
    with pytest.raises(ValueError, match="contextFeatures: expected features in up to 8 objects and lists"):
        values_by_name("contextFeatures", [{"a": features}])
    nested: Any = 5
    for _ in range(8):
        nested = {"a": nested}
    assert values_by_name("contextFeatures", [{"a": nested}]) == {".".join("a" * 9): 5}


def test_long_names_are_refused() -> None:
    """A name around n values would be n times in memory."""
    assert values_by_name("contextFeatures", [{"a": {"b" * 510: 1}}]) == {f"a.{'b' * 510}": 1}
    with pytest.raises(ValueError, match="contextFeatures: expected names of up to 512 characters"):
        values_by_name("contextFeatures", [{"a": {"b" * 511: [1, 2]}}])
    assert values_by_name("contextFeatures", [{"c" * 1000: 1}], ("c" * 1000,)) == {}


def test_ignored_features_are_left_out() -> None:
    features = [{"device": {"mobile": True}, "time": "noon"}, {"user": {"id": "7", "age": 31}}]
    found = values_by_name("contextFeatures", features, ("device", "user.id"))
    assert found == {"time": "noon", "user.age": 31}


@pytest.mark.parametrize("ignored", [(), ("device",)])
def test_features_that_are_no_columns_are_refused_or_ignored(ignored: tuple[str, ...], tmp_path: Path) -> None:
    with client(tmp_path, named_head(), ignored=ignored) as service:
        answer = post(service, RANK, request(contextFeatures=[{"device": {"mobile": True}}]))
        assert answer.status_code == (201 if ignored else 400)


def test_other_refusals_are_in_personalizers_form(tmp_path: Path) -> None:
    with client(tmp_path, named_head(), undecided=0, most_waiting=1) as service:
        for answer, status, code, message in (
            (
                post(service, "/personalizer/v1.0/events/a/reward", {"value": 2}),
                400,
                "BadRequest",
                "value: expected a number",
            ),
            (
                post(service, "/personalizer/v1.0/events/a/reward", {"value": 1}),
                404,
                "ResourceNotFound",
                "eventId: expected",
            ),
            (post(service, "/personalizer/v1.0/events/a/reward", {"value": "1"}), 400, "BadRequest", "body.value"),
            (service.post("/personalizer/v1.0/multislot/rank", json={}), 404, "ResourceNotFound", "Not Found"),
            (service.get(RANK), 405, "BadRequest", "Method Not Allowed"),
            (service.get(RANK, headers={"Host": "evil.example"}), 400, "BadRequest", "Invalid host header"),
            (service.post(RANK, content=b"{"), 400, "BadRequest", "body: expected JSON"),
            (service.post(RANK, content=b" " * 10**6), 413, "BadRequest", "body: expected a content-length"),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            assert answer.json()["error"]["message"].startswith(message), answer.text
    with client(tmp_path, named_head(), most_waiting=0) as service:
        answer = post(service, RANK, request())
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "InternalServerError")
        assert answer.headers["retry-after"] == "1"


def test_deferred_activation_needs_a_log_without_a_window(tmp_path: Path) -> None:
    with client(tmp_path / "none", named_head()) as service:
        assert post(service, RANK, request(eventId="a", deferActivation=True)).status_code == 201
        assert service.app.state.replica.log.counts()["open"] == 1  # type: ignore[attr-defined]
    with client(tmp_path / "window", named_head(), window=60.0, default_reward=0.0) as service:
        answer = post(service, RANK, request(deferActivation=True))
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith("deferActivation: expected false")
        assert service.post("/personalizer/v1.0/events/a/activate").status_code == 204


def test_arms_of_each_request(tmp_path: Path) -> None:
    with client(tmp_path, head_of_arms()) as service:
        actions = [{"id": f"offer {k}", "features": [{"price": k}, {"time": "night"} if k else {}]} for k in range(4)]
        body = {
            "contextFeatures": [{"time": "morning"}],
            "actions": actions,
            "eventId": "a",
            "excludedActions": ["offer 1"],
        }
        told = post(service, RANK, body).json()
        assert told["ranking"][1] == {"id": "offer 1", "probability": 0.0}
        assert told["rewardActionId"] == told["ranking"][0]["id"]
        stored = service.app.state.replica.log.decisions()[0]  # type: ignore[attr-defined]
        assert told["rewardActionId"] == f"offer {stored.action}"
        assert stored.mask.tolist() == [True, False, True, True]
        rows = [{"price": k, "time": "night" if k else "morning"} for k in range(4)]
        assert torch.equal(stored.inputs, head_of_arms().encoder.lookup(rows))  # type: ignore[operator]
        wrong = body | {"actions": [{"id": "a", "features": [{"prise": 1}]}], "eventId": "b"}
        assert (
            post(service, RANK, wrong)
            .json()["error"]["message"]
            .startswith("actions: expected columns 'time', 'price'")
        )
        strange = body | {"actions": [{"id": "\ud800", "features": []}], "eventId": "b"}
        assert post(service, RANK, strange).status_code == 400
        twice = body | {"actions": [{"id": "a", "features": [{"price": 1}, {"price": 1}]}], "eventId": "b"}
        assert (
            post(service, RANK, twice).json()["error"]["message"]
            == "actions: a: expected each feature once, got 'price' twice"
        )


def test_a_ranking_of_an_older_decision_sums_to_1() -> None:
    found = ranked(["a", "b", "c", "d"], {"a": 0.9, "c": 0.02, "d": 0.08}, "c", 0.7)
    assert [one["id"] for one in found] == ["c", "b", "a", "d"]
    assert math.fsum(one["probability"] for one in found) == pytest.approx(1.0)
    assert ranked(["a", "b"], {"a": 1.0, "b": 0.0}, "a", 1.0)[1] == {"id": "b", "probability": 0.0}
    now_certain = ranked(["a", "b", "c"], {"a": 1.0, "b": 0.0, "c": 0.0}, "a", 0.5)
    assert [one["probability"] for one in now_certain] == [0.5, 0.25, 0.25]


def test_the_page_of_requests_has_each_once(tmp_path: Path) -> None:
    with client(tmp_path, named_head(), secret="") as service:
        paths = service.get("/openapi.json").json()["paths"]
        assert [path for path in paths if path.endswith("/rank")] == [RANK]


def test_personalizer_is_off_unless_asked_for(tmp_path: Path) -> None:
    with client(tmp_path, named_head(), personalizer=False, secret="") as service:
        assert post(service, RANK, request()).status_code == 404


def test_a_policy_without_columns_or_ids_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"personalizer: expected a policy on columns, .* got numbers"):
        ServiceSettings(personalizer=True)
    with pytest.raises(ValueError, match=r"personalizer: expected a policy on columns, .* got actions without names"):
        make_settings(table_head(COLUMNS, actions=3), str(tmp_path), personalizer=True)
