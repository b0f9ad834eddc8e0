"""JSON Schemas: generated for the shapes of the API, written by hand for parameters and foreign shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import UnionType
from typing import Any, TypeAlias

import msgspec

from turnledger.api import fields, requests
from turnledger.engine.turn.validation import PAGE
from turnledger.model.ids import Id

Schema: TypeAlias = Mapping[str, Any]
Shape: TypeAlias = Schema | type | UnionType

STRING: Schema = {"type": "string"}
NAME: Schema = {"type": "string", **requests.NAME}
SCOPE: Schema = {"type": "string", **requests.SCOPE}
NUMBER: Schema = {"type": "integer", "minimum": 0}
PAGE_SIZE: Schema = {"type": "integer", "minimum": 1, "maximum": PAGE}
COMPONENTS = "#/components/schemas/"


def id_schema(kind: type[Id]) -> Schema:
    return {"type": "string", "pattern": fields.id_pattern(kind)}


def enum_schema(kind: type[StrEnum]) -> Schema:
    return {"type": "string", "enum": [str(each) for each in kind]}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def list_schema(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def object_schema(fields: Mapping[str, Schema], *, optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return an object schema that requires `fields` and allows any others."""
    properties = {**fields, **(optional or {})}
    return {"type": "object", "required": list(fields), "properties": properties}


class Components:
    """The schemas of shapes, each defined once and referenced elsewhere."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        classes = [each for shape in shapes for each in _classes(shape)]
        references, self.schemas = msgspec.json.schema_components(
            classes, schema_hook=_schema_of, ref_template=COMPONENTS + "{name}"
        )
        self._references = dict(zip(classes, references, strict=True))
        for schema in self.schemas.values():
            _require_response_fields(schema)

    def schema(self, shape: Shape) -> Schema:
        if isinstance(shape, Mapping):
            return shape
        references = [self._references[each] for each in _classes(shape)]
        return references[0] if len(references) == 1 else {"anyOf": references}


def _classes(shape: Shape) -> tuple[Any, ...]:
    if isinstance(shape, Mapping):
        return ()
    return shape.__args__ if isinstance(shape, UnionType) else (shape,)


def _schema_of(kind: type) -> dict[str, Any]:
    if issubclass(kind, Id):
        return dict(id_schema(kind))
    raise NotImplementedError(kind)


def _require_response_fields(schema: dict[str, Any]) -> None:
    """Require every field of a response: the server sends all, defaults are for clients. Requests are
    recognized by forbidding unknown fields."""
    if "properties" in schema and "additionalProperties" not in schema:
        schema["required"] = list(schema["properties"])
        for each in schema["properties"].values():
            each.pop("default", None)


QUOTA_REACHED = {507: "The storage quota of this owner is reached. Purge chats, then try again."}
"""The response of a route that stores something."""
KEY_REUSED = "The Idempotency-Key was used with another request."
UNAVAILABLE = {
    503: "The server is shutting down, its store is unavailable, or the outcome of the commit is unknown."
}
"""The response of a route that commits a turn."""
TURN_ERRORS = {
    422: KEY_REUSED,
    502: "The model gave no complete answer. The history is unchanged.",
    **UNAVAILABLE,
    504: "The model timed out. The history is unchanged.",
    **QUOTA_REACHED,
}
"""The responses of a route that runs a turn, besides those that name its chat or conversation."""
APPEND_ERRORS = {
    409: "A turn is running there, the turn was stopped, or chats are not stored here.",
    422: KEY_REUSED,
    **UNAVAILABLE,
    **QUOTA_REACHED,
}
"""The responses of a route that adds a turn which no model answers, likewise."""
