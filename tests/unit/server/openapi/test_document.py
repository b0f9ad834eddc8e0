"""Which statuses an endpoint can answer with follows from what kind it is, and from what it says itself.

The description of the API leaves out nothing that is answered, and adds nothing.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.server.asgi import ask, breaks, serving
from turnledger.server.openapi.document import all_answers, describe, path_of
from turnledger.server.openapi.endpoint import Endpoint, Parameter


def answers(**kind: Any) -> list[int]:
    endpoint = Endpoint(method="GET", path="/", answer=breaks, summary="For a test.", tag="test", **kind)
    return list(all_answers(endpoint))


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        ({}, [200, 400, 401, 403, 415, 429, 503]),
        ({"is_public": True}, [200, 400, 403, 415, 429, 503]),
        ({"is_public": True, "while_ending": True}, [200, 400, 403, 415]),
        ({"while_ending": True}, [200, 400, 401, 403, 415, 503]),
        ({"body": {"type": "object"}}, [200, 400, 401, 403, 408, 413, 415, 429, 503]),
        ({"answers": {201: "Made.", 409: "Too many."}}, [201, 400, 401, 403, 409, 415, 429, 503]),
    ],
)
def test_the_statuses_follow_from_the_kind(kind: dict[str, Any], statuses: list[int]) -> None:
    assert answers(**kind) == statuses


def test_an_endpoint_says_better_what_a_status_means() -> None:
    endpoint = Endpoint(
        method="GET", path="/", answer=breaks, summary="For a test.", tag="test", answers={503: "It is not."}
    )
    assert all_answers(endpoint)[503] == "It is not."


async def test_every_route_is_listed() -> None:
    async with serving() as app:
        document = (await ask(app, "/openapi.json")).json
        listed = {
            (method.upper(), path) for path, operations in document["paths"].items() for method in operations
        }
        assert listed == {(endpoint.method, path_of(endpoint)) for endpoint in app.endpoints}
        assert ("GET", "/openapi.json") in listed
        assert document["openapi"].startswith("3.1")
        for operations in document["paths"].values():
            for operation in operations.values():
                assert operation["summary"].endswith(".")
                assert all(each["description"] for each in operation["responses"].values())


async def test_operations_have_names_of_their_own() -> None:
    async with serving() as app:
        paths = (await ask(app, "/openapi.json")).json["paths"]
        names = [operation["operationId"] for each in paths.values() for operation in each.values()]
        assert len(set(names)) == len(names)


def test_an_endpoint_is_described_by_itself() -> None:
    endpoint = Endpoint(
        method="POST",
        path="/api/turns/{turn_id}/stop",
        answer=breaks,
        summary="Stop a turn.",
        tag="turns",
        answers={200: "It has ended.", 404: "There is no such turn."},
        in_path={"turn_id": Parameter("Which turn.", {"pattern": "^turn_"})},
        headers={"X-Turn-On-Stop": Parameter("What becomes of it.")},
        query={"limit": Parameter("How many.", {"type": "integer"})},
        body={"type": "object"},
        content={200: {"text/plain": {"type": "string"}}},
        answer_headers={"X-Turn-Id": Parameter("The id.")},
    )
    operation = describe([endpoint])["paths"]["/api/turns/{turn_id}/stop"]["post"]
    assert operation["operationId"] == "post_api_turns_turn_id_stop"
    assert [(each["name"], each["in"], each["required"]) for each in operation["parameters"]] == [
        ("turn_id", "path", True),
        ("limit", "query", False),
        ("X-Turn-On-Stop", "header", False),
    ]
    assert [each["schema"] for each in operation["parameters"]] == [
        {"pattern": "^turn_"},
        {"type": "integer"},
        {"type": "string"},
    ]
    good, bad = operation["responses"]["200"], operation["responses"]["429"]
    assert good["content"] == {"text/plain": {"schema": {"type": "string"}}}
    assert set(good["headers"]) == {"X-Request-Id", "X-Turn-Id"}
    assert bad["content"] == {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    assert set(bad["headers"]) == {"X-Request-Id", "Retry-After"}
    assert operation["requestBody"]["content"]["application/json"]["schema"] == {"type": "object"}


def test_how_a_parameter_is_matched_is_not_told() -> None:
    endpoint = Endpoint(
        method="GET",
        path="/v1/models/{model:path}",
        answer=breaks,
        summary="One model.",
        tag="models",
        in_path={"model": Parameter("Its name.")},
    )
    operation = describe([endpoint])["paths"]["/v1/models/{model}"]["get"]
    assert [each["name"] for each in operation["parameters"]] == ["model"]
    assert operation["operationId"] == "get_v1_models_model"


async def test_every_parameter_of_a_path_is_described() -> None:
    async with serving() as app:
        for endpoint in app.endpoints:
            assert list(endpoint.in_path) == re.findall(r"{(\w+)}", path_of(endpoint)), endpoint.path


async def test_a_stop_need_not_say_anything() -> None:
    async with serving() as app:
        paths = (await ask(app, "/openapi.json")).json["paths"]
    assert paths["/api/turns/{turn}/stop"]["post"]["requestBody"]["required"] is False
    assert paths["/v1/chat/completions"]["post"]["requestBody"]["required"] is True
