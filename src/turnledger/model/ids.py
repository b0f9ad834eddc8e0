"""Typed ids: a prefix that says what it names, then a UUIDv7 in hex.

They are strings, so they compare, hash, print and serialise as such; constructing one validates it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import ClassVar, Self, TypeVar

from turnledger.errors import InvalidId

_UUID7 = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")


class Id(str):
    """An id with the prefix of its kind."""

    __slots__ = ()
    prefix: ClassVar[str]

    def __new__(cls, text: str) -> Self:
        if not text.startswith(cls.prefix) or not _UUID7.fullmatch(text, len(cls.prefix)):
            raise InvalidId(f"{text[:80]!r} is not a valid id of the form {cls.prefix}….")
        return str.__new__(cls, text)

    @classmethod
    def of_bytes(cls, raw: bytes) -> Self:
        """Build the id from its 16 bytes, as stores keep it."""
        return cls(cls.prefix + raw.hex())

    @property
    def raw(self) -> bytes:
        """The 16 bytes without the prefix."""
        return bytes.fromhex(self[len(self.prefix) :])


class ConversationId(Id):
    __slots__ = ()
    prefix = "conv_"


class BranchId(Id):
    __slots__ = ()
    prefix = "branch_"


class TurnId(Id):
    """Names an attempt, and the turn it becomes when it commits."""

    __slots__ = ()
    prefix = "turn_"


class LeaseId(Id):
    __slots__ = ()
    prefix = "lease_"


AnyId = TypeVar("AnyId", bound=Id)


class IdSource:
    """Makes UUIDv7 ids that rise within a process, from an injected clock and randomness."""

    def __init__(self, now_ms: Callable[[], int], random: Random) -> None:
        self._now_ms = now_ms
        self._random = random
        self._last = 0

    def new(self, kind: type[AnyId]) -> AnyId:
        """Return a fresh id of this kind, greater than every earlier one of this source."""
        stamp = (self._now_ms() & 0xFFFF_FFFF_FFFF) << 74 | self._random.getrandbits(74)
        # A clock that stands still or steps back must not make ids that sort before earlier ones.
        self._last = stamp = max(stamp, self._last + 1)
        high, low = stamp >> 62, stamp & (1 << 62) - 1
        number = (high >> 12) << 80 | 7 << 76 | (high & 0xFFF) << 64 | 0b10 << 62 | low
        return kind(f"{kind.prefix}{number:032x}")
