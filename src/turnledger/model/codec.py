"""The one versioned codec: what stores keep as bytes, and back again.

Every document carries its version. A document of a newer version is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

import msgspec

from turnledger.errors import InvalidId, StoreCorrupt, StoreTooNew
from turnledger.model.ids import Id
from turnledger.model.item import Item

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
        raise StoreCorrupt(
            f"A stored document cannot be read: {problem}. Restore the store from a backup."
        ) from None
    raise StoreTooNew(
        f"A stored document has version {version}; this Turnledger reads {VERSION}. Upgrade it."
    )


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
