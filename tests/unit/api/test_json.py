"""Shapes as JSON."""

from __future__ import annotations

from types import MappingProxyType

import msgspec
import pytest

from tests.unit.client.scripted import BRANCH, CHAT
from turnledger.api.chats import ChatInfo
from turnledger.api.json import decode, encode
from turnledger.model.ids import ConversationId
from turnledger.model.item import Item

SAID = b'{"type":"message",  "role":"user","content":"Hi"}'


def test_ids_items_and_mappings_are_encoded() -> None:
    said = {"id": ConversationId(CHAT), "items": [Item(SAID)], "map": MappingProxyType({"a": 1})}
    assert encode(said) == b'{"id":"%s","items":[%s],"map":{"a":1}}' % (CHAT.encode(), SAID)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(NotImplementedError):
        encode({"a": object()})


def test_ids_are_checked_when_decoded() -> None:
    raw = b'{"id":"%s","branch":"%s"}'
    assert isinstance(decode(ChatInfo, raw % (CHAT.encode(), BRANCH.encode())).id, ConversationId)
    with pytest.raises(msgspec.ValidationError, match="not a valid id"):
        decode(ChatInfo, raw % (b"conv_1", BRANCH.encode()))
    with pytest.raises(msgspec.ValidationError, match="ConversationId is a text"):
        decode(ChatInfo, b'{"id":5}')
