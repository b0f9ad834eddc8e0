"""Ids that are made of something else, and the same for the same: what is imported twice is found again."""

from __future__ import annotations

import hashlib
from typing import TypeVar

from turnledger.model.ids import Id

AnyId = TypeVar("AnyId", bound=Id)

_MARKS, _PLACES = 7 << 76 | 0b10 << 62, 0xF << 76 | 0b11 << 62
"""The version and the variant of a UUIDv7, and where they stand."""
_PART = b"\x00"


def derived(kind: type[AnyId], at: int, *parts: str) -> AnyId:
    """An id of this kind that belongs to these texts, and sorts by a time in milliseconds since 1970."""
    told = _PART.join(part.encode(errors="surrogatepass") for part in parts)
    random = hashlib.sha256(kind.prefix.encode() + _PART + told).digest()
    number = int.from_bytes((at & 0xFFFF_FFFF_FFFF).to_bytes(6) + random[:10])
    return kind.of_bytes((number & ~_PLACES | _MARKS).to_bytes(16))


def time_of(id: Id) -> int:
    """When an id was made, in milliseconds since 1970."""
    return int.from_bytes(id.raw[:6])
