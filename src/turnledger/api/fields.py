"""Types of fields, and what their JSON Schema says beyond the Python type.

Decoding checks none of it: a bound of a request is checked where it matters, with a message of its own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Raw

from turnledger.model.access.token import MOST
from turnledger.model.conversation import KEY_LENGTH, LONGEST, METADATA_PAIRS, TEXT_LENGTH
from turnledger.model.ids import UUID7, Id


def schema(description: str | None = None, **keywords: Any) -> Meta:
    """Describe a field, and add keywords to its JSON Schema."""
    return Meta(description=description, extra_json_schema=keywords or None)


def id_pattern(kind: type[Id]) -> str:
    """The pattern of ids of this kind."""
    return f"^{kind.prefix}{UUID7.pattern}$"


def id_of(kind: type[Id], description: str | None = None) -> Meta:
    """A text that names something of this kind."""
    return schema(description, pattern=id_pattern(kind))


def one_of(kind: type[StrEnum], description: str | None = None) -> Meta:
    """One of the words of an enumeration, to which later versions may add."""
    return schema(description, enum=[str(each) for each in kind])


NAME: dict[str, Any] = {"minLength": 1, "maxLength": KEY_LENGTH}
SCOPE: dict[str, Any] = {"maxLength": KEY_LENGTH, "pattern": r"^[^\u0000-\u001f]*$"}

Count: TypeAlias = Annotated[int, schema(minimum=0)]
Time: TypeAlias = Annotated[int, schema("Milliseconds since 1970.", minimum=0)]
RawItems: TypeAlias = tuple[Annotated[Raw, schema(type="object")], ...]
"""Items as they are stored: each is an object of the shape that its `type` says."""

Name: TypeAlias = Annotated[str, schema(**NAME)]
Scope: TypeAlias = Annotated[str, schema(**SCOPE)]
Text: TypeAlias = Annotated[str, schema(maxLength=TEXT_LENGTH)]
Metadata: TypeAlias = Annotated[dict[str, Text], schema(maxProperties=METADATA_PAIRS)]
Bound: TypeAlias = Annotated[int, schema(minimum=1, maximum=MOST)]
Seconds: TypeAlias = Annotated[float, schema(exclusiveMinimum=0, maximum=LONGEST)]
