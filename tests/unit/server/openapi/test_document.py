"""Schemas come from the shapes of the API, statuses from the kind of an endpoint."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, get_args

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, breaks, fetch, run_app
from turnledger import api
from turnledger.api.fields import schema
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import ConversationId, IdSource, SystemEntropy, TokenId, TurnId
from turnledger.server.openapi.document import all_responses, describe, path_of
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    STRING,
    Components,
    enum_schema,
    id_schema,
    nullable,
    object_schema,
)

NOT_IN_THE_DOCUMENT = {
    "Change": "an event of a stream, which OpenAPI cannot describe",
    "ChatHistory": "what the command line prints; the server adds attempts",
    "Listing": "described with what it lists",
    "Page": "described as the pages that there are",
    "SearchPage": "described with what it lists",
}


class Answered(msgspec.Struct):
    """What is sent."""

    id: TurnId
    count: Annotated[int, schema("How many.", minimum=0)] = 0


class TextBody(msgspec.Struct, forbid_unknown_fields=True):
    """The text."""

    name: str
    count: int = 5


def test_id_schema_pattern_matches_only_ids_of_its_kind() -> None:
    pattern = id_schema(TurnId)["pattern"]
    ids = IdSource(lambda: 1_700_000_000_000, SystemEntropy())
    assert re.search(pattern, ids.new(TurnId))
    assert not re.search(pattern, ids.new(TokenId))
    assert not re.search(pattern, ids.new(TurnId) + "0")


def test_enum_schema_lists_its_values() -> None:
    assert enum_schema(TokenScope)["enum"] == ["chats:read", "chats:write", "turns:run", "admin"]


def test_object_schema_requires_all_but_optional_properties() -> None:
    assert object_schema({"a": STRING}, optional={"b": nullable(STRING)}) == {
        "type": "object",
        "required": ["a"],
        "properties": {"a": STRING, "b": {"anyOf": [STRING, {"type": "null"}]}},
    }


def test_answer_schema_requires_all_fields_and_has_no_defaults() -> None:
    components = Components([Answered])
    assert components.schema(Answered) == {"$ref": "#/components/schemas/Answered"}
    assert components.schemas["Answered"] == {
        "title": "Answered",
        "description": "What is sent.",
        "type": "object",
        "properties": {
            "id": id_schema(TurnId),
            "count": {"type": "integer", "minimum": 0, "description": "How many."},
        },
        "required": ["id", "count"],
    }


def test_request_schema_requires_fields_without_default_and_forbids_others() -> None:
    found = Components([TextBody]).schemas["TextBody"]
    assert (found["required"], found["additionalProperties"]) == (["name"], False)
    assert found["properties"]["count"] == {"type": "integer", "default": 5}


def test_union_schema_refers_to_its_classes_and_a_plain_schema_is_unchanged() -> None:
    components = Components([Answered | TextBody, STRING])
    assert components.schema(Answered | TextBody) == {
        "anyOf": [{"$ref": "#/components/schemas/Answered"}, {"$ref": "#/components/schemas/TextBody"}]
    }
    assert components.schema(STRING) == STRING


def test_schema_of_an_unsupported_field_type_is_refused() -> None:
    class Strange(msgspec.Struct):
        complex: complex

    with pytest.raises(TypeError, match="complex"):
        Components([Strange])


async def test_openapi_document_contains_every_api_shape() -> None:
    async with run_app() as app:
        document = (await fetch(app, "/openapi.json")).json
    described = set(document["components"]["schemas"])
    assert {shape.__name__ for shape in shapes()} - described == set(NOT_IN_THE_DOCUMENT)


def test_every_answer_is_sent_with_all_of_its_fields() -> None:
    answers = [shape for shape in shapes() if not shape.__struct_config__.forbid_unknown_fields]
    assert len(answers) > 20
    assert [shape for shape in answers if shape.__struct_config__.omit_defaults] == []
    may_lack = [
        f"{shape.__name__}.{field.name}"
        for shape in answers
        for field in msgspec.structs.fields(shape)
        if msgspec.UnsetType in get_args(field.type)
    ]
    assert may_lack == []


def shapes() -> Iterator[type[msgspec.Struct]]:
    for module in pkgutil.iter_modules(api.__path__, f"{api.__name__}."):
        for _, found in inspect.getmembers(import_module(module.name), inspect.isclass):
            if found.__module__ == module.name and issubclass(found, msgspec.Struct):
                yield found


def made(route: str = "GET /", **kind: Any) -> Endpoint:
    return Endpoint(route=route, handler=breaks, summary="For a test.", **kind)


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        ({}, [200, 400, 401, 403, 415, 429, 503]),
        ({"is_public": True}, [200, 400, 403, 415, 429, 503]),
        ({"is_public": True, "serves_while_ending": True}, [200, 400, 403, 415]),
        ({"serves_while_ending": True}, [200, 400, 401, 403, 415, 503]),
        ({"body": {"type": "object"}}, [200, 400, 401, 403, 408, 413, 415, 429, 503]),
        ({"responses": {201: "Made.", 409: "Too many."}}, [201, 400, 401, 403, 409, 415, 429, 503]),
    ],
)
def test_endpoint_statuses_follow_from_its_kind(kind: dict[str, Any], statuses: list[int]) -> None:
    assert list(all_responses(made(**kind))) == statuses


def test_endpoint_description_of_a_status_overrides_the_default() -> None:
    assert all_responses(made(responses={503: "It is not."}))[503] == "It is not."


async def test_openapi_document_lists_every_route_with_descriptions() -> None:
    async with run_app() as app:
        document = (await fetch(app, "/openapi.json")).json
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


async def test_openapi_operation_ids_are_unique() -> None:
    async with run_app() as app:
        paths = (await fetch(app, "/openapi.json")).json["paths"]
        names = [operation["operationId"] for each in paths.values() for operation in each.values()]
        assert len(set(names)) == len(names)


def test_openapi_operation_is_built_from_its_endpoint() -> None:
    endpoint = made(
        "POST /api/turns/{turn_id}/stop",
        responses={200: "It has ended.", 404: "Turn not found."},
        in_path={"turn_id": Parameter("Which turn.", {"pattern": "^turn_"})},
        headers={"X-Turn-On-Stop": Parameter("What becomes of it.")},
        query={"limit": Parameter("How many.", {"type": "integer"})},
        body={"type": "object"},
        content={200: {"text/plain": {"type": "string"}}},
        response_headers={"X-Turn-Id": Parameter("The id.")},
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


def test_openapi_path_omits_the_parameter_converter() -> None:
    endpoint = made("GET /v1/models/{model:path}", in_path={"model": Parameter("Its name.")})
    operation = describe([endpoint])["paths"]["/v1/models/{model}"]["get"]
    assert [each["name"] for each in operation["parameters"]] == ["model"]
    assert operation["operationId"] == "get_v1_models_model"


async def test_openapi_document_describes_every_path_parameter() -> None:
    async with run_app() as app:
        for endpoint in app.endpoints:
            assert list(endpoint.in_path) == re.findall(r"{(\w+)}", path_of(endpoint)), endpoint.path


async def test_openapi_stop_request_body_is_optional() -> None:
    async with run_app() as app:
        paths = (await fetch(app, "/openapi.json")).json["paths"]
    assert paths["/api/turns/{turn}/stop"]["post"]["requestBody"]["required"] is False
    assert paths["/v1/chat/completions"]["post"]["requestBody"]["required"] is True


async def test_openapi_document_describes_the_events_of_a_stream_and_their_data() -> None:
    async with run_app() as app:
        document = (await fetch(app, "/openapi.json")).json
    content = document["paths"]["/api/turns/{turn}/events"]["get"]["responses"]["200"]["content"]
    data = content["text/event-stream"]["schema"]["properties"]["data"]
    assert (data["type"], data["contentMediaType"]) == ("string", "application/json")
    assert {"$ref": "#/components/schemas/TextDelta"} in data["contentSchema"]["anyOf"]


@pytest.mark.parametrize("body", [b"", b" ", b"\r\n\t "])
async def test_body_without_json_is_refused_unless_it_is_empty_and_optional(body: bytes) -> None:
    ids = IdSource(lambda: 1_700_000_000_000, SystemEntropy())
    conversation, turn = ids.new(ConversationId), ids.new(TurnId)
    names = {
        "chat": conversation,
        "turn": turn,
        "response": turn,
        "conversation": conversation,
        "item": "msg",
    }
    async with run_app() as app:
        _, token = await Host(app.service.ledger).tokens.create(owner="ann", scopes=list(TokenScope))
        headers = (HOST, JSON, (b"authorization", b"Bearer " + token.encode()))
        taking_json = [each for each in app.endpoints if each.body and each.body_type == "application/json"]
        refused = []
        for each in taking_json:
            path = each.path.format(**names)
            reply = await fetch(app, path, method=each.method, headers=headers, parts=[body])
            if reply.status == 400 and reply.code == "malformed_json":
                refused.append(each.path)
    assert refused == [each.path for each in taking_json if each.needs_body or body]
