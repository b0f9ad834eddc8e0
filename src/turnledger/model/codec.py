"""The one versioned codec: what stores keep as bytes, and back again.

Every document carries its version. A document of a newer version is refused, never guessed at.

A decoder needs some hundred bytes for a value that is two bytes long, so the values of a text from outside
are counted before any of them is built: that takes no memory to speak of, and ends as soon as the bound is
passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

import msgspec

from turnledger.errors import InvalidId, InvalidInput, StoreCorrupt, StoreTooNew
from turnledger.model.ids import Id
from turnledger.model.item import DEEPEST, Item, check_plain

VERSION = 1


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The base of everything encoded: `v` is the version it was written with."""

    v: int = VERSION


class _Version(msgspec.Struct):
    v: int


AnyDocument = TypeVar("AnyDocument", bound=Document)
Value = TypeVar("Value")


def _to_json(value: Any) -> Any:
    if isinstance(value, Item):
        return msgspec.Raw(value.raw)
    if isinstance(value, Id):
        return str(value)
    raise NotImplementedError(type(value))


def _from_json(kind: type, value: Any) -> Any:
    if issubclass(kind, Id) and isinstance(value, str):
        try:
            return kind(value)
        except InvalidId as problem:
            raise ValueError(str(problem)) from None
    raise NotImplementedError(kind)


_objects = msgspec.json.Decoder(dict[str, Any])
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


encode: Callable[[Document], bytes] = msgspec.json.Encoder(enc_hook=_to_json).encode


def decode(kind: type[AnyDocument], raw: bytes) -> AnyDocument:
    """Decode a document; raise StoreTooNew for a later version, StoreCorrupt for anything else amiss."""
    document: AnyDocument = decode_one_of(kind, raw)
    return document


def decode_one_of(kinds: Any, raw: bytes) -> Any:
    """Decode a document of one kind, or of a tagged union of kinds; raises like `decode`."""
    decoder = _decoders.get(kinds)
    if decoder is None:
        decoder = _decoders[kinds] = msgspec.json.Decoder(kinds, dec_hook=_from_json)
    try:
        document = decoder.decode(raw)
        if document.v == VERSION:
            return document
        version = document.v
        problem: Exception = ValueError(f"there is no version {version}")
    except (msgspec.MsgspecError, NotImplementedError, UnicodeDecodeError, RecursionError) as caught:
        version, problem = _version_of(raw), caught
    if version <= VERSION:
        raise StoreCorrupt(f"A stored document cannot be read: {problem}.") from None
    raise StoreTooNew(f"A stored document has version {version}; this Turnledger reads {VERSION}.")


def _version_of(raw: bytes) -> int:
    try:
        return msgspec.json.decode(raw, type=_Version).v
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0


class computed_once(Generic[Value]):
    """`functools.cached_property` without its lock, which until Python 3.12 costs more than decoding."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: Any, owner: type) -> Self | Value:
        if instance is None:
            return self
        value: Value = self._compute(instance)
        instance.__dict__[self._name] = value
        return value


def raw_object(name: str, values: object) -> bytes:
    """A caller's values as a JSON object; raises InvalidInput with this name for what is none. It is read
    again at once: a document with anything else inside could not be."""
    try:
        raw = msgspec.json.encode(dict(values) if isinstance(values, Mapping) else values)
        decoded = _objects.decode(raw)
        if raw.count(b"{") + raw.count(b"[") > DEEPEST:
            check_plain(decoded)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"{name} must be a dict of JSON values: {problem}.") from None
    return raw


def object_of(raw: msgspec.Raw) -> dict[str, Any]:
    """The values of a JSON object inside a document."""
    try:
        return _objects.decode(raw)
    except (ValueError, RecursionError) as problem:
        raise StoreCorrupt(f"A stored object cannot be read: {problem}.") from None


MOST_VALUES = 400_000
"""Values of one body, or of one line of a file: decoded, they take about 100 MB at most."""
_WINDOW = 256 * 1024
_OPENINGS = (b",", b"[", b"{")
"""Each value but the first stands behind one of these. Keys of objects are not counted by themselves."""


def has_more_values(raw: bytes, most: int) -> bool:
    """Whether the text holds more than `most` values. What is not JSON may be counted wrongly: the decoder
    will refuse it, at a cost of no more than `most` values."""
    if len(raw) <= 2 * most or sum(map(raw.count, _OPENINGS)) < most:
        return False  # also if all of them were outside of strings
    found, is_inside, start = 1, False, 0
    while start < len(raw) and found <= most:
        window = raw[start : start + _WINDOW]
        backslashes = len(window) - len(window.rstrip(b"\\"))
        if backslashes % 2 and len(window) > 1:  # the last one belongs to what follows
            window = window[:-1]
        start += len(window)
        parts = window.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_inside::2])
        found += sum(map(outside.count, _OPENINGS))
        is_inside ^= len(parts) % 2 == 0
    return found > most
