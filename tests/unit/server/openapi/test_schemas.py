"""Schemas come from the shapes of the API; words for others are made by hand."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, get_args

import msgspec
import pytest

from tests.unit.server.asgi import ask, serving
from turnledger import api
from turnledger.api.fields import schema
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import IdSource, SystemEntropy, TokenId, TurnId
from turnledger.server.openapi.schemas import TEXT, Components, an_object, id_of, one_of, or_null

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


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """What is said."""

    name: str
    count: int = 5


def test_an_id_is_known_by_its_pattern() -> None:
    pattern = id_of(TurnId)["pattern"]
    ids = IdSource(lambda: 1_700_000_000_000, SystemEntropy())
    assert re.search(pattern, ids.new(TurnId))
    assert not re.search(pattern, ids.new(TokenId))
    assert not re.search(pattern, ids.new(TurnId) + "0")


def test_an_enumeration_lists_its_words() -> None:
    assert one_of(TokenScope)["enum"] == ["chats:read", "chats:write", "turns:run", "admin"]


def test_an_object_needs_all_but_the_optional() -> None:
    assert an_object({"a": TEXT}, optional={"b": or_null(TEXT)}) == {
        "type": "object",
        "required": ["a"],
        "properties": {"a": TEXT, "b": {"anyOf": [TEXT, {"type": "null"}]}},
    }


def test_answer_requires_all_fields_and_has_no_defaults() -> None:
    components = Components([Answered])
    assert components.schema(Answered) == {"$ref": "#/components/schemas/Answered"}
    assert components.schemas["Answered"] == {
        "title": "Answered",
        "description": "What is sent.",
        "type": "object",
        "properties": {
            "id": id_of(TurnId),
            "count": {"type": "integer", "minimum": 0, "description": "How many."},
        },
        "required": ["id", "count"],
    }


def test_request_requires_fields_without_default_and_forbids_others() -> None:
    found = Components([Asked]).schemas["Asked"]
    assert (found["required"], found["additionalProperties"]) == (["name"], False)
    assert found["properties"]["count"] == {"type": "integer", "default": 5}


def test_union_is_either_of_its_classes_and_a_schema_stays_itself() -> None:
    components = Components([Answered | Asked, TEXT])
    assert components.schema(Answered | Asked) == {
        "anyOf": [{"$ref": "#/components/schemas/Answered"}, {"$ref": "#/components/schemas/Asked"}]
    }
    assert components.schema(TEXT) == TEXT


def test_field_of_a_type_without_schema_is_refused() -> None:
    class Strange(msgspec.Struct):
        complex: complex

    with pytest.raises(TypeError, match="complex"):
        Components([Strange])


async def test_every_shape_of_the_api_is_in_the_document() -> None:
    async with serving() as app:
        document = (await ask(app, "/openapi.json")).json
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
