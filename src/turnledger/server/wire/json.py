"""JSON as the server sends it: ids are the texts they are, items stay as they were given."""

from __future__ import annotations

from typing import Any

import msgspec

from turnledger.model.ids import Id
from turnledger.model.item import Item


def _plain(value: Any) -> Any:
    if isinstance(value, Id):
        return str(value)
    if isinstance(value, Item):
        return msgspec.Raw(value.raw)
    raise NotImplementedError(type(value))


encode = msgspec.json.Encoder(enc_hook=_plain).encode
