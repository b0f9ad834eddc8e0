"""JSON of the shapes: ids as plain texts, items byte for byte as given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from turnledger.errors import InvalidId
from turnledger.model.ids import Id
from turnledger.model.item import Item

Shape = TypeVar("Shape")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Item):
        return msgspec.Raw(value.raw)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(type(value))


encode = msgspec.json.Encoder(enc_hook=_plain).encode


def decoder_of(shape: type[Shape]) -> msgspec.json.Decoder[Shape]:
    """Return the cached decoder of a shape; it validates ids."""
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape, dec_hook=_id_of)
    return decoder


def decode(shape: type[Shape], raw: bytes | msgspec.Raw) -> Shape:
    """Decode a shape. Raises msgspec.MsgspecError, UnicodeDecodeError or RecursionError."""
    return decoder_of(shape).decode(raw)


def _id_of(kind: type, value: Any) -> Any:
    if not issubclass(kind, Id) or not isinstance(value, str):
        raise ValueError(f"{kind.__name__} is a text")
    try:
        return kind(value)
    except InvalidId as problem:
        raise ValueError(str(problem)) from None
