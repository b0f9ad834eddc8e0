"""Typed ids: a prefix for the kind, then a UUIDv7 in hex.

They are strings and compare, hash, print and serialise as such. Constructing one validates it. Derived ids
depend only on their input, so that a second import finds the same rows.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from typing import ClassVar, Self, TypeAlias, TypeVar

from turnledger.errors import InvalidId

_HEX = 32
_LOW, _HIGH = (1 << 62) - 1, 0xFFF << 62
"""The 74 random bits of a UUIDv7: after the variant, and between version and variant."""
_MARKS = 7 << 76 | 0b10 << 62
"""Its version and its variant."""
_SECRETS = {"tlt_": "The text of a token", "tls_": "The code of a link"}
"""Secrets by prefix: error messages must not repeat them."""
UUID7 = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")


class Id(str):
    """An id with the prefix of its kind. `raw` are its 16 bytes without the prefix, as stores keep them."""

    __slots__ = ("raw",)
    prefix: ClassVar[str]
    raw: bytes

    def __new__(cls, text: str) -> Self:
        if not text.startswith(cls.prefix) or not UUID7.fullmatch(text, len(cls.prefix)):
            secrets = (name for mark, name in _SECRETS.items() if mark in text)
            named = next(secrets, None) or repr(text[:80])
            raise InvalidId(f"{named} is not an id that Turnledger issued ({cls.prefix}…).")
        id = str.__new__(cls, text)
        id.raw = bytes.fromhex(text[-_HEX:])
        return id

    @classmethod
    def of_bytes(cls, raw: bytes) -> Self:
        return cls(cls.prefix + raw.hex())

    @classmethod
    def trusted(cls, raw: bytes) -> Self:
        """Make an id of valid bytes without a check, which would take longer than reading the row."""
        id = str.__new__(cls, cls.prefix + raw.hex())
        id.raw = raw
        return id


class ConversationId(Id):
    __slots__ = ()
    prefix = "conv_"


class BranchId(Id):
    __slots__ = ()
    prefix = "branch_"


class TurnId(Id):
    """An attempt, and the turn that it becomes when it commits."""

    __slots__ = ()
    prefix = "turn_"


class LeaseId(Id):
    __slots__ = ()
    prefix = "lease_"


class TokenId(Id):
    """A token. The id is public; the secret is the token's text."""

    __slots__ = ()
    prefix = "tok_"


class ShareId(Id):
    """A share link. The id is public; the secret is the code in the link."""

    __slots__ = ()
    prefix = "share_"


AnyId = TypeVar("AnyId", bound=Id)


RandomBits: TypeAlias = Callable[[int], int]
"""Returns a number of this many random bits."""


class SystemEntropy:
    """Random bits of the operating system, read in bulk: one call per id costs more than the id."""

    def __init__(self, bulk: int = 4096) -> None:
        self._bulk = bulk
        self._bytes = b""
        self._used = 0

    def __call__(self, bits: int) -> int:
        size = (bits + 7) // 8
        start, end = self._used, self._used + size
        if end > len(self._bytes):
            self._bytes, start, end = os.urandom(max(self._bulk, size)), 0, size
        self._used = end
        return int.from_bytes(self._bytes[start:end]) >> (8 * size - bits)


class IdSource:
    """Makes UUIDv7 ids that increase within a process, from an injected clock and randomness."""

    def __init__(self, now_ms: Callable[[], int], random_bits: RandomBits) -> None:
        self._now_ms = now_ms
        self._random_bits = random_bits
        self._last = 0

    def new(self, kind: type[AnyId], now: int | None = None) -> AnyId:
        """Return a new id, greater than every earlier one of this source. `now` saves a look at the clock."""
        now = self._now_ms() if now is None else now
        stamp = (now & 0xFFFF_FFFF_FFFF) << 74 | self._random_bits(74)
        # A clock that stands still or goes back must not make ids that sort before earlier ones.
        if stamp <= self._last:
            stamp = self._last + 1
        self._last = stamp
        time, low = (stamp >> 74) << 80, stamp & _LOW
        return kind.trusted((time | _MARKS | (stamp & _HIGH) << 2 | low).to_bytes(16))


_PLACES = 0xF << 76 | 0b11 << 62
_PART = b"\x00"


def mark_uuid7(raw: bytes) -> bytes:
    """Turn any 16 bytes into those of a UUIDv7."""
    return (int.from_bytes(raw) & ~_PLACES | _MARKS).to_bytes(16)


def derive_id(kind: type[AnyId], at: int, *parts: str) -> AnyId:
    """Derive an id from these texts; it sorts by `at`, in milliseconds since 1970."""
    joined = _PART.join(part.encode(errors="surrogatepass") for part in parts)
    random = hashlib.sha256(kind.prefix.encode() + _PART + joined).digest()
    return kind.of_bytes(mark_uuid7((at & 0xFFFF_FFFF_FFFF).to_bytes(6) + random[:10]))


def time_of(id: Id) -> int:
    """Return when an id was made, in milliseconds since 1970."""
    return int.from_bytes(id.raw[:6])
