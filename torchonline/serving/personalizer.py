"""Requests of Azure Personalizer, translated to requests of the service.

docs/personalizer.md is the guide.
"""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import JSONResponse
from pydantic import Field, StrictBool

from torchonline.feedback.records import checked_id, checked_text
from torchonline.serving.bodies import Body, Name, Number, RewardBody, decide_body
from torchonline.serving.limits import JSONRoute
from torchonline.serving.settings import ServiceSettings

# Paths of the versions of the API, which have the same requests. The last one, 2022-09-01-preview, has its version in the query.
PREFIXES = (
    "/personalizer/v1.0",
    "/personalizer/v1.1-preview.1",
    "/personalizer/v1.1-preview.2",
    "/personalizer/v1.1-preview.3",
    "/personalizer",
)
# Objects and lists around a value.
DEEPEST = 8
# Characters of a path. Without a limit, a long name around many values would take memory for each of them.
LONGEST_PATH = 512
Features = Annotated[list[dict[str, Any]], Field(fail_fast=True)]
CODES = {401: "401", 404: "ResourceNotFound"}
# Names of the service's fields in Personalizer's requests.
FIELDS = {"context": "contextFeatures", "id": "eventId"}


def values_by_name(name: str, features: Any, ignored: Collection[str] = ()) -> dict[str, Any]:
    """Return Personalizer's features as values by column name.

    A name is the path to the value, joined by dots. Positions in lists count from 0. The objects of ``features`` have no names.
    Nulls are left out, because a missing name is a gap.

    Args:
        name: name of the features in the request, for errors.
        features: list of objects.
        ignored: names of values, objects and lists to leave out.

    Raises:
        ValueError: two values have the same name, or a value is too deep or has a name above 512 characters.

    Example:
        >>> values_by_name("contextFeatures", [{"time": "morning", "user": {"age": 31, "plan": None}}, {"at": [47.4, 8.5]}])
        {'time': 'morning', 'user.age': 31, 'at.0': 47.4, 'at.1': 8.5}
    """
    found: dict[str, Any] = {}

    def add(place: str, value: Any, depth: int) -> None:
        if value is None or place in ignored:
            return
        if len(place) > LONGEST_PATH:
            raise ValueError(f"{name}: expected names of up to {LONGEST_PATH} characters, got {place[:40]!r}...")
        if not isinstance(value, (dict, list)):
            if place in found:
                raise ValueError(f"{name}: expected each feature once, got {place[:40]!r} twice")
            found[place] = value
            return
        if depth > DEEPEST:
            raise ValueError(
                f"{name}: expected features in up to {DEEPEST} objects and lists, got more around {place[:40]!r}"
            )
        for part, one in value.items() if isinstance(value, dict) else enumerate(value):
            add(f"{place}.{part}" if depth else str(part), one, depth + 1)

    for one in features:
        add("", one, 0)
    return found


def ranked(ids: list[str], probabilities: dict[str, float], chosen: str, probability: float) -> list[dict[str, Any]]:
    """Return a ranking: the chosen action, then the others by probability.

    An excluded action keeps its place, with probability 0. The probabilities of the others are scaled to a sum of
    1 - ``probability``, and are equal if all are 0; this changes them only if the decision was made earlier, from another state.

    Args:
        ids: ids of the actions, in the order of the request.
        probabilities: probabilities of the actions that are not excluded, by id.
        chosen: id of the chosen action.
        probability: logged probability of the chosen action.

    Example:
        >>> ranked(["a", "b", "c"], {"a": 0.25, "c": 0.75}, "c", 0.75)
        [{'id': 'c', 'probability': 0.75}, {'id': 'b', 'probability': 0.0}, {'id': 'a', 'probability': 0.25}]
    """
    others = {id: value for id, value in probabilities.items() if id != chosen}
    if not any(others.values()):
        others = dict.fromkeys(others, 1.0)
    scale = (1.0 - probability) / (sum(others.values()) or 1.0)
    order = iter([chosen, *sorted(others, key=others.__getitem__, reverse=True)])
    places = [next(order) if id in probabilities else id for id in ids]
    told = {chosen: probability} | {id: scale * value for id, value in others.items()}
    return [{"id": id, "probability": told.get(id, 0.0)} for id in places]


def personalizer_router(
    app: FastAPI,
    settings: ServiceSettings,
    decide: Callable[[Any, bool], Awaitable[tuple[Any, str | None, list[float]]]],
    reward: Callable[[RewardBody], Awaitable[Any]],
) -> APIRouter:
    """Return the routes of Personalizer, without a prefix.

    Args:
        app: the application, whose state has the replica.
        settings: settings of the service.
        decide: takes a checked body of ``/decide`` and True. Returns the decision, the action's name and all probabilities.
        reward: takes a body of ``/reward``. Returns the outcome, or a response.
    """
    router, decide_request, ignored = (
        APIRouter(route_class=JSONRoute),
        decide_body(settings),
        frozenset(settings.ignored),
    )

    class RankableAction(Body):
        id: Name
        features: Features

    class RankRequest(Body):
        contextFeatures: Features | None = None
        actions: Annotated[list[RankableAction], Field(min_length=1, max_length=settings.actions, fail_fast=True)]
        excludedActions: Annotated[list[Name], Field(fail_fast=True)] | None = None
        eventId: Name | None = None
        deferActivation: StrictBool | None = None

    class RewardRequest(Body):
        value: Number

    @router.post("/rank", status_code=201)
    async def rank(body: RankRequest) -> Response:
        ids = [checked_text("actions", action.id, shortest=1) for action in body.actions]
        most, count = Counter(ids).most_common(1)[0]
        if count > 1:
            raise ValueError(f"actions: expected each id once, got {most!r} {count} times")
        excluded = set(body.excludedActions or ())
        available = [id not in excluded for id in ids]
        if not any(available):
            raise ValueError("excludedActions: expected an action that is not excluded, got all of them")
        if body.deferActivation and app.state.replica.log.window is not None:
            raise ValueError(
                "deferActivation: expected false, because a decision without a reward gets the default reward, got true"
            )
        context = values_by_name("contextFeatures", body.contextFeatures or [], ignored)
        request: dict[str, Any] = {"id": body.eventId, "context": context}
        if settings.has_arms:
            rows = [values_by_name(f"actions: {one.id}", one.features, ignored) for one in body.actions]
            request |= {"actions": rows, "mask": available}
        else:
            request["actions"] = [id for id, one in zip(ids, available, strict=True) if one]
        decision, name, probabilities = await decide(decide_request.model_validate(request), True)
        by_id = dict(zip(ids if settings.has_arms else settings.names, probabilities, strict=True))
        chosen = ids[decision.action] if name is None else name
        left = {id: by_id[id] for id, one in zip(ids, available, strict=True) if one}
        ranking = ranked(ids, left, chosen, decision.probability)
        return JSONResponse({"ranking": ranking, "eventId": decision.id, "rewardActionId": chosen}, status_code=201)

    @router.post("/events/{id:path}/reward", status_code=204)
    async def reward_event(body: RewardRequest, id: str) -> Response:
        answer = await reward(RewardBody(id=id, value=body.value))
        return answer if isinstance(answer, Response) else Response(status_code=204)

    @router.post("/events/{id:path}/activate", status_code=204)
    async def activate(id: str) -> Response:
        """Accept an activation, which is not needed: without a reward, a deferred decision is never learnt."""
        checked_id(id)
        return Response(status_code=204)

    return router


class PersonalizerDialect:
    """Middleware that reads Personalizer's key and writes Personalizer's errors.

    Below ``/personalizer``, the header ``Ocp-Apim-Subscription-Key: KEY`` counts as ``Authorization: Bearer KEY``. An error is
    ``{"error": {"code": ..., "message": ...}}``, and status 422 becomes 400.

    Args:
        app: the application.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/personalizer/"):
            await self.app(scope, receive, send)
            return
        given = dict(scope["headers"])
        if b"authorization" not in given and b"ocp-apim-subscription-key" in given:
            secret = (b"authorization", b"Bearer " + given[b"ocp-apim-subscription-key"])
            scope = scope | {"headers": [*scope["headers"], secret]}
        refusal: Any = None

        async def translated(message: Any) -> None:
            nonlocal refusal
            if message["type"] == "http.response.start" and message["status"] >= 400:
                refusal = message
            elif refusal is None:
                await send(message)
            else:  # the body of an error is one message
                await _error(refusal, message["body"])(scope, receive, send)

        await self.app(scope, receive, translated)


def _error(start: Any, body: bytes) -> JSONResponse:
    """Return Personalizer's error for a refusal of the service."""
    status = 400 if start["status"] == 422 else start["status"]
    headers = {name.decode("latin1"): value.decode("latin1") for name, value in start["headers"]}
    is_json = headers.pop("content-type", "").startswith("application/json")
    headers.pop("content-length", None)
    message = json.loads(body)["detail"] if is_json else body.decode()
    message = re.sub(r"^(body\.)?(context|id)(?=[.:])", lambda found: FIELDS[found[2]], message)
    code = CODES.get(status, "BadRequest" if status < 500 else "InternalServerError")
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status, headers=headers)
