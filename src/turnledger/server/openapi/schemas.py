"""JSON Schemas of what many answers and requests hold, and the words to make others of."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from turnledger.engine.turn.validation import KEY_LENGTH, PAGE
from turnledger.model.attempt import AttemptState
from turnledger.model.ids import UUID7, Id

Schema: TypeAlias = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH}
SCOPE: Schema = {"type": "string", "maxLength": KEY_LENGTH, "pattern": r"^[^\u0000-\u001f]*$"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
TIME: Schema = {"type": "integer", "minimum": 0, "description": "Milliseconds since 1970."}
ITEMS: Schema = {"type": "array", "items": {"type": "object"}}
"""Items as they are stored: each is an object of the shape its `type` says."""
PAGE_SIZE: Schema = {"type": "integer", "minimum": 1, "maximum": PAGE}


def id_of(kind: type[Id]) -> Schema:
    """An id of this kind."""
    return {"type": "string", "pattern": f"^{kind.prefix}{UUID7.pattern}$"}


def one_of(kind: type[StrEnum]) -> Schema:
    """One of the words of an enumeration."""
    return {"type": "string", "enum": [str(each) for each in kind]}


def or_null(schema: Schema) -> Schema:
    """What is of this schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def a_list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def an_object(fields: Mapping[str, Schema], *, optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object that has all of these fields, and perhaps some of the optional ones. Others may be added in
    later versions: who reads it passes over what he does not know."""
    properties = {**fields, **(optional or {})}
    return {"type": "object", "required": list(fields), "properties": properties}


FAILURE: Schema = an_object({"code": TEXT, "message": TEXT})
STATE: Schema = one_of(AttemptState)
ERROR: Schema = an_object(
    {
        "error": an_object(
            {"message": TEXT, "type": TEXT, "param": or_null(TEXT), "code": or_null(TEXT)},
        )
    }
)

FULL = {507: "The storage quota of this owner is reached. Purge chats, then try again."}
"""What a route answers that stores something."""
