"""Types of fields with their JSON Schema beyond the Python type. Decoding checks none of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Raw

from turnledger.model.ids import UUID7, Id


def schema(description: str | None = None, **keywords: Any) -> Meta:
    """Describe a field, and add keywords to its JSON Schema."""
    return Meta(description=description, extra_json_schema=keywords or None)


def id_pattern(kind: type[Id]) -> str:
    return f"^{kind.prefix}{UUID7.pattern}$"


def id_of(kind: type[Id], description: str | None = None) -> Meta:
    """Describe a text that is an id of this kind."""
    return schema(description, pattern=id_pattern(kind))


def one_of(kind: type[StrEnum], description: str | None = None) -> Meta:
    """Describe a word of an enumeration; later versions may add words."""
    return schema(description, enum=[str(each) for each in kind])


Count: TypeAlias = Annotated[int, schema(minimum=0)]
Time: TypeAlias = Annotated[int, schema("Milliseconds since 1970.", minimum=0)]
RawItems: TypeAlias = tuple[Annotated[Raw, schema(type="object")], ...]
"""Items as stored: objects whose shape depends on their `type`."""
